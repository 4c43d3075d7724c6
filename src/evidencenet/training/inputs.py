"""Turn draws into the inputs of the networks: scaled, augmented, with log-odds that are known beforehand."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of, join, map_arrays
from evidencenet.simulation.stream import Stream
from evidencenet.training.baseline import (
    LARGEST,
    PARTS,
    Baseline,
    Moments,
    PartialMoments,
    covariance,
    flat,
    inverse_root,
)
from evidencenet.training.batches import Chunk, Shuffled, Streamed, in_blocks
from evidencenet.training.plan import Plan
from evidencenet.training.projection import directions
from evidencenet.training.recipe import Recipe
from evidencenet.training.scaling import Scaling
from evidencenet.training.signal import Signal
from evidencenet.training.split import Draws

# Held-out draws are judged in blocks of this many, so that memory stays bounded.
_HELD_OUT_BLOCK = 5_000
# Mean and spread of the data are then known to a few parts in a thousand, which is enough.
_SCALING_DRAWS = 100_000
# Directions in which models differ are found from so many draws, whose numbers are held in memory at once.
_PROJECTION_DRAWS = 100_000
# So many draws are projected at once, so that memory stays bounded.
_SCALED_AT_ONCE = 10_000
# Signal and noise are told apart from so many numbers: draws times numbers in a draw.
_SIGNAL_NUMBERS = 10_000_000
# Clean draws are observed several times for the moments: about so many observations in all, and at most so
# many of each draw. The noise is then known well, and what is left is the scatter of the clean draws.
_MOMENT_DRAWS, _MOST_REPEATS = 200_000, 16
# With fewer training draws, a part of them might have no draw of some model.
_LEAST_IN_PARTS = 1_000


@dataclass(frozen=True, eq=False)
class Inputs:
    """Draws, prepared as a plan wants them.

    Parameters
    ----------
    draws, plan
        The draws, and the plan they were prepared for.
    scaling
        How the data are scaled.
    log_shares
        The training shares, shape (K,); None if the loss takes no offset.
    baseline
        The Gaussian baseline that the networks correct; None if the plan has none.
    """

    draws: Draws
    plan: Plan
    scaling: Scaling
    log_shares: np.ndarray | None
    baseline: Baseline | None = None

    @cached_property
    def moments(self) -> PartialMoments | None:
        """Moments of each model's scaled training draws; None if a draw has too many numbers."""
        draws = self.draws
        if self.features > LARGEST:
            return None
        if draws.reference is not None:
            known = _rescaled(*draws.reference, self.scaling)
            if known is not None:
                return known
        if draws.stream is not None:
            return self._moments_of_stream(draws.stream)
        # Moments are those of the models as they are, without rare draws.
        rows = draws.plain_rows(draws.training_rows)
        # Of clean draws several observations are taken, all in the same part of the draws. A part must hold
        # a few draws of each model.
        repeats = int(np.clip(_MOMENT_DRAWS // len(rows), 1, _MOST_REPEATS))
        if draws.drawn_anew_each_epoch and repeats > 1 and len(rows) >= _LEAST_IN_PARTS:
            parts = [self._passes(rows[i::PARTS], repeats) for i in range(PARTS)]
            return Moments.of_parts(parts, len(draws.counts), repeats)
        return Moments.of(self._passes(rows, 1), len(draws.counts))

    def _moments_of_stream(self, stream: Stream) -> PartialMoments:
        """Gather the moments of all draws of a stream, in one pass, by the workers that make the draws ready.

        Every block is divided into the eight parts. The sums are added in the order of the blocks, so that
        they are the same whatever the number of workers.
        """
        total: PartialMoments | None = None
        with ThreadPoolExecutor(stream.workers) as pool:
            for epoch in range(stream.epochs or 1):
                for model, count in enumerate(stream.counts):
                    left = count // (stream.epochs or 1)
                    use = partial(self._moments_of_block, model, epoch)
                    with closing(stream.blocks(model, epoch, pool, use)) as blocks:
                        for number, moments in blocks:
                            total = moments if total is None else total.plus(moments)
                            left -= number
                            if left <= 0:
                                break
        assert total is not None
        return total

    def _moments_of_block(self, model: int, epoch: int, number: int, x: Data) -> tuple[int, PartialMoments]:
        """Return how many draws a block has, and their moments."""
        rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(epoch, model, number)))
        n = len(arrays_of(x)[0])
        label = np.full(n, model)
        scaled = flat(self.scaling(self.draws.drawn_anew(rng, x, label)))
        return n, PartialMoments.of_model(scaled, model, len(self.draws.counts))

    def _passes(self, rows: np.ndarray, number: int) -> Iterator[Chunk]:
        """Give some of the draws, so many times; of clean draws another observation each time."""
        part = replace(self, draws=replace(self.draws, training_rows=rows))
        # Fewer draws than the smallest usual batch, 32, are one batch.
        source = part.source(Recipe(batch=len(rows) if len(rows) < 32 else None), 0)
        return chain.from_iterable(map(source.epoch, range(number)))

    def on_sample(self) -> "Inputs":
        """Return the draws in memory alone, with the moments and the baseline of all draws."""
        sample = replace(self, draws=self.draws.sample())
        vars(sample)["moments"] = self.moments
        return sample

    @property
    def example(self) -> Data:
        """Zeros in the form of one draw, as networks see it."""
        numbers = self.scaling.numbers
        return self.draws.arranged_example if numbers is None else np.zeros(numbers, np.float32)

    @property
    def features(self) -> int:
        """How many numbers a draw has, as networks see it."""
        return sum(array.size for array in arrays_of(self.example))

    def source(self, recipe: Recipe, seed: int) -> Shuffled | Streamed:
        """Training draws in minibatches."""
        draws = self.draws
        batch = recipe.for_draws(draws.training_draws).batch or 1
        if draws.stream is not None:
            return Streamed(draws.stream, batch, self._prepared_by_label, seed, draws.features)
        if self._projected is not None:
            rows = draws.training_rows
            label, weight = draws.model[rows], draws.weight[rows]
            return Shuffled(self._projected, label, weight, np.arange(len(rows)), batch, self._ready, seed)
        return Shuffled(
            draws.trained_on, draws.model, draws.weight, draws.training_rows, batch, self._prepared, seed
        )

    @cached_property
    def _projected(self) -> Data | None:
        """The training draws as networks see them, if these are few combinations that stay the same.

        To project very many numbers takes longer than to train on what is left of them, so it is done once
        and not in every epoch.
        """
        draws = self.draws
        if self.scaling.projection is None or draws.augment is not None or draws.drawn_anew_each_epoch:
            return None
        parts = [
            self.scaling(map_arrays(lambda array, rows=rows: array[rows], draws.trained_on))
            for rows in np.array_split(draws.training_rows, -(-len(draws.training_rows) // _SCALED_AT_ONCE))
        ]
        return join(*parts)

    def held_out_chunk(self) -> Chunk:
        """Held-out draws in blocks."""
        x, label = self.draws.held_out_draws()
        scaled, offset = self._scaled(x, self.draws.held_out_rows)
        chunk = Chunk(scaled, offset, label, self.draws.weight[self.draws.held_out_rows])
        return in_blocks(chunk, min(len(label), _HELD_OUT_BLOCK))

    def _prepared(
        self, rng: np.random.Generator, x: Data, rows: np.ndarray
    ) -> tuple[Data, np.ndarray | None]:
        return self._scaled(self.draws.drawn_anew(rng, x, self.draws.model[rows]), rows)

    def _prepared_by_label(
        self, rng: np.random.Generator, x: Data, label: np.ndarray
    ) -> tuple[Data, np.ndarray | None]:
        # No log-odds are known beforehand of draws in a stream.
        return self._scaled(self.draws.drawn_anew(rng, x, label), None)

    def _ready(self, rng: np.random.Generator, x: Data, rows: np.ndarray) -> tuple[Data, np.ndarray | None]:
        """Return a batch of `_projected`, and the log-odds that are known beforehand."""
        return x, self._offset(x, self.draws.training_rows[rows])

    def _scaled(self, x: Data, rows: np.ndarray | None) -> tuple[Data, np.ndarray | None]:
        """Scale a batch, and return the log-odds that are known beforehand too."""
        scaled = self.scaling(x)
        return scaled, self._offset(scaled, rows)

    def _offset(self, scaled: Data, rows: np.ndarray | None) -> np.ndarray | None:
        """Log-odds that are known beforehand of a scaled batch, (n, K); None if the loss takes none."""
        if self.log_shares is None:
            return None
        shape = (len(arrays_of(scaled)[0]), len(self.log_shares))
        offset = np.broadcast_to(self.draws.log_odds.astype(np.float32), shape)
        if self.draws.known is not None and rows is not None:
            offset = offset + self.draws.known[rows].astype(np.float32)
        return offset if self.baseline is None else offset + self.baseline(scaled)


def with_reference(draws: Draws) -> Draws:
    """Add the moments of all draws of a stream, in one pass over them, if they are few enough numbers.

    Trials on few draws then know the baseline of all draws: networks have to improve on that.
    """
    if draws.stream is None or isinstance(draws.x, dict):
        return draws
    plan = Plan(networks.Dense(), losses.Logistic())
    inputs = prepare(replace(draws, reference=None), plan)
    moments = inputs.moments
    return draws if moments is None else replace(draws, reference=(inputs.scaling, moments))


def _rescaled(reference: Scaling, moments: PartialMoments, scaling: Scaling) -> PartialMoments | None:
    """Return the moments of draws in another scaling; None if that is not linear in the first one."""
    if scaling.squash or scaling.numbers is not None or np.any(scaling.logarithm):
        return None
    shape = np.shape(reference.shift)
    shift, factor = (
        np.broadcast_to(np.asarray(part, np.float64), shape).ravel()
        for part in (scaling.shift, scaling.factor)
    )
    first_shift, first_factor = (
        np.ravel(np.asarray(part, np.float64)) for part in (reference.shift, reference.factor)
    )
    # A number that never varies was scaled to 0; its value is its shift.
    slope = np.where(first_factor > 0, factor / np.where(first_factor > 0, first_factor, 1.0), 0.0)
    matrix, offset = np.diag(slope), (first_shift - shift) * factor
    if scaling.whitening is not None:
        matrix, offset = matrix @ scaling.whitening, offset @ scaling.whitening
    return moments.mapped(matrix, offset)


def prepare(draws: Draws, plan: Plan) -> Inputs:
    """Fit the scaling of a plan, and the baseline if it has one, to the training draws."""
    sample = map_arrays(lambda array: array[draws.training_rows[:_SCALING_DRAWS]], draws.x)
    scaling = Scaling.fit(
        sample,
        squash=plan.squash,
        shared=networks.scales_alike(plan.network),
        logarithm=plan.log,
        layout=draws.layout,
    )
    if plan.whiten:
        root = inverse_root(covariance(scaling(sample)))
        scaling = replace(scaling, whitening=root.astype(np.float32))
    log_shares = None if isinstance(plan.loss, losses.Asymmetric) else draws.log_shares
    if plan.project:
        scaling = replace(scaling, projection=_projection(draws, plan, scaling))
    if plan.signal:
        scaling = replace(scaling, signal=_signal(draws, scaling))
    bare = Inputs(draws, plan, scaling, log_shares)
    if not plan.baseline or bare.moments is None:
        return bare
    inputs = replace(bare, baseline=Baseline.fit(bare.moments))
    # The data are scaled alike with and without the baseline, so their moments need no second pass.
    vars(inputs)["moments"] = bare.moments
    return inputs


def _projection(draws: Draws, plan: Plan, scaling: Scaling) -> np.ndarray:
    """Find the directions in which the models differ, from training draws; once for each scaling."""
    # Kept beside the fields of the draws, so that other draws made from them have none.
    found: dict[Any, np.ndarray] = vars(draws).setdefault("projections", {})
    key = (plan.squash, plan.log, plan.whiten, networks.scales_alike(plan.network))
    if key not in found:
        rows = draws.plain_rows(draws.training_rows)[:_PROJECTION_DRAWS]
        x = flat(scaling(map_arrays(lambda array: array[rows], draws.x)))
        found[key] = directions(x, draws.model[rows], draws.weight[rows])
    return found[key]


def _signal(draws: Draws, scaling: Scaling) -> Signal:
    """Find the combinations that vary by more than their noise, from two observations of training draws."""
    rows = draws.plain_rows(draws.training_rows)[: _SIGNAL_NUMBERS // draws.features]
    rng = np.random.default_rng(0)
    first, second = (flat(scaling(draws.observed(rng, rows))) for _ in range(2))
    return Signal.fit(first, second)
