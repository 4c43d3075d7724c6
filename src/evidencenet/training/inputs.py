"""Turn draws into the inputs of the networks: scaled, augmented, with log-odds that are known beforehand."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of, map_arrays
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
from evidencenet.training.batches import Chunk, Shuffled, in_blocks
from evidencenet.training.plan import Plan
from evidencenet.training.projection import directions
from evidencenet.training.recipe import Recipe
from evidencenet.training.scaling import Scaling
from evidencenet.training.split import Draws

# Held-out draws are judged in blocks of this many, so that memory stays bounded.
_HELD_OUT_BLOCK = 5_000
# Mean and spread of the data are then known to a few parts in a thousand, which is enough.
_SCALING_DRAWS = 100_000
# Directions in which models differ are found from so many draws, whose numbers are held in memory at once.
_PROJECTION_DRAWS = 100_000
# Clean draws are observed several times for the moments: about so many observations in all, and at most so
# many of each draw. The noise is then known well, and what is left is the scatter of the clean draws.
_MOMENT_DRAWS, _MOST_REPEATS = 400_000, 16
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
        # Moments are those of the models as they are, without rare draws.
        rows = draws.plain_rows(draws.training_rows)
        # Of clean draws several observations are taken, all in the same part of the draws. A part must hold
        # a few draws of each model.
        repeats = int(np.clip(_MOMENT_DRAWS // len(rows), 1, _MOST_REPEATS))
        if draws.drawn_anew_each_epoch and repeats > 1 and len(rows) >= _LEAST_IN_PARTS:
            parts = [self._passes(rows[i::PARTS], repeats) for i in range(PARTS)]
            return Moments.of_parts(parts, len(draws.counts), repeats)
        return Moments.of(self._passes(rows, 1), len(draws.counts))

    def _passes(self, rows: np.ndarray, number: int) -> Iterator[Chunk]:
        """Give some of the draws, so many times; of clean draws another observation each time."""
        part = replace(self, draws=replace(self.draws, training_rows=rows))
        # Fewer draws than the smallest usual batch, 32, are one batch.
        source = part.source(Recipe(batch=len(rows) if len(rows) < 32 else None), 0)
        return chain.from_iterable(map(source.epoch, range(number)))

    @property
    def example(self) -> Data:
        """Zeros in the form of one draw, as networks see it."""
        if self.scaling.projection is not None:
            return np.zeros(self.scaling.projection.shape[1], np.float32)
        return self.draws.arranged_example

    @property
    def features(self) -> int:
        """How many numbers a draw has, as networks see it."""
        return sum(array.size for array in arrays_of(self.example))

    def source(self, recipe: Recipe, seed: int) -> Shuffled:
        """Training draws in minibatches."""
        draws = self.draws
        batch = recipe.for_draws(len(draws.training_rows)).batch or 1
        return Shuffled(
            draws.trained_on, draws.model, draws.weight, draws.training_rows, batch, self._prepared, seed
        )

    def held_out_chunk(self) -> Chunk:
        """Held-out draws in blocks."""
        x, label = self.draws.held_out_draws()
        scaled, offset = self._scaled(x, self.draws.held_out_rows)
        chunk = Chunk(scaled, offset, label, self.draws.weight[self.draws.held_out_rows])
        return in_blocks(chunk, min(len(label), _HELD_OUT_BLOCK))

    def _prepared(
        self, rng: np.random.Generator, x: Data, rows: np.ndarray
    ) -> tuple[Data, np.ndarray | None]:
        return self._scaled(self.draws.drawn_anew(rng, x, rows), rows)

    def _scaled(self, x: Data, rows: np.ndarray) -> tuple[Data, np.ndarray | None]:
        """Scale a batch, and return the log-odds that are known beforehand too."""
        scaled = self.scaling(x)
        if self.log_shares is None:
            return scaled, None
        shape = (len(arrays_of(scaled)[0]), len(self.log_shares))
        offset = np.broadcast_to(self.draws.log_odds.astype(np.float32), shape)
        if self.draws.known is not None:
            offset = offset + self.draws.known[rows].astype(np.float32)
        return scaled, offset if self.baseline is None else offset + self.baseline(scaled)


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
        scaling = replace(scaling, projection=_projection(draws, scaling))
    bare = Inputs(draws, plan, scaling, log_shares)
    if not plan.baseline or bare.moments is None:
        return bare
    inputs = replace(bare, baseline=Baseline.fit(bare.moments))
    # The data are scaled alike with and without the baseline, so their moments need no second pass.
    vars(inputs)["moments"] = bare.moments
    return inputs


def _projection(draws: Draws, scaling: Scaling) -> np.ndarray:
    """Find the directions in which the models differ, from training draws."""
    rows = draws.plain_rows(draws.training_rows)[:_PROJECTION_DRAWS]
    x = flat(scaling(map_arrays(lambda array: array[rows], draws.x)))
    return directions(x, draws.model[rows], draws.weight[rows])
