"""`Given`: the draws that `train` is given, whatever form they have: in memory, in files, or only models."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet._common.arguments import whole
from evidencenet._common.arrays import arrays_of, kind_of
from evidencenet._common.fingerprint import fingerprint
from evidencenet._common.processors import processors
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.simulation.paths import are_paths, in_pieces, observed, read_whole
from evidencenet.simulation.stream import FreshDraws, Stream
from evidencenet.training.split import MOST_HELD_OUT

# Draws of a stream that are in memory: plans are tried on them, scalings are fitted to them, and a part of
# them is held out. They take no more memory than this.
SAMPLE_DRAWS, SAMPLE_BYTES = 200_000, 2**28
# An epoch of fresh draws has about so many: after each, the held-out draws judge the networks.
_EPOCH_DRAWS, _MOST_EPOCHS = 250_000, 40
# A first look at a model tells how large its draws are.
_FIRST_LOOK = 100


@dataclass(frozen=True, eq=False)
class Given:
    """The draws to train on.

    Parameters
    ----------
    sims
        The draws in memory: all, or a sample of the stream together with the held-out draws.
    stream
        Training draws that do not lie in memory, or None.
    held_out
        Which of the draws in memory are held out, boolean (n,); None leaves it to `train`.
    about
        What identifies the draws of the stream, for a checkpoint.
    """

    sims: Simulations
    stream: Stream | None = None
    held_out: np.ndarray | None = None
    about: str | None = None

    @staticmethod
    def of(
        sims: Any,
        models: Any,
        draws: Any,
        *,
        seed: int,
        workers: int,
        epochs: int | None,
        held_out: float,
        progress: bool,
    ) -> "Given":
        """Understand the first arguments of `train`.

        Parameters
        ----------
        sims, models, draws, workers, progress
            As in `train`.
        seed
            Seed of fresh draws.
        epochs
            Into how many epochs fresh draws are divided, if the user says so.
        held_out
            Fraction of the draws of a store to hold out.
        """
        if _are_models(sims) and models is None:
            sims, models = None, sims
        if are_paths(sims) and draws is None:
            return _read(sims, models, seed, workers, held_out)
        if models is not None:
            if sims is not None:
                raise TypeError(
                    "train takes draws, or models to draw from, and not both: leave one out. (Only the path "
                    "of clean draws goes with models, which then say how they are observed.)"
                )
            return _fresh(models, draws, seed, workers, epochs, progress)
        if draws is not None:
            raise TypeError(
                f"draws = {draws!r} says how many fresh draws to train on, and needs models: "
                "train(models=[first, second], draws=1_000_000)."
            )
        return Given(sims)


def _are_models(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(isinstance(one, Model) or callable(one) for one in value.values())
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Model) for one in value)


def _fresh(models: Any, draws: Any, seed: int, workers: int, epochs: int | None, progress: bool) -> Given:
    """Draw the sample, and make the stream of all further draws."""
    if isinstance(models, dict):
        models = [one if isinstance(one, Model) else Model(name, one) for name, one in models.items()]
    if not isinstance(models, Sequence) or not all(isinstance(model, Model) for model in models):
        wrong = kind_of(models)
        if isinstance(models, Sequence) and not isinstance(models, str):
            wrong = f"a list with {kind_of(next(one for one in models if not isinstance(one, Model)))}"
        raise TypeError(
            f"models must be a list of Model, got {wrong}. Give [Model('first', simulate), Model('second', "
            "other)], or a dict of functions by name."
        )
    if draws is None:
        raise TypeError(
            "train got models and not how many draws to train on: give draws=1_000_000, or simulate first, "
            "train(simulate(models, 100_000))."
        )
    number = whole("draws", draws, 2 * len(models))
    workers = _threads(workers)
    if any(model.log_density is not None for model in models):
        raise ValueError(
            "a model has a log_density, which cannot be combined with fresh draws. Simulate first, "
            "train(simulate(models, n)), or leave out log_density."
        )
    sample_seed, stream_seed = np.random.SeedSequence(seed, spawn_key=(1,)).generate_state(2, np.uint64)
    first = simulate(models, _FIRST_LOOK * len(models), seed=int(sample_seed), progress=False)
    row = row_bytes(first)
    size = int(min(SAMPLE_DRAWS, max(SAMPLE_BYTES // row, _FIRST_LOOK * len(models)), max(number, 1_000)))
    size -= size % len(models)
    sims = simulate(models, size, seed=int(sample_seed), workers=workers, progress=progress)
    shares = np.array(sims.counts) / len(sims)
    counts = tuple(int(count) for count in np.maximum(np.round(number * shares), 1))
    epochs = epochs or int(np.clip(round(number / _EPOCH_DRAWS), 1, _MOST_EPOCHS))
    stream = FreshDraws.of(models, counts, epochs, int(stream_seed), row, workers)
    code = [fingerprint(model.simulate, model.prior, model.observe) for model in models]
    return Given(sims, stream, about=f"{number} fresh draws of {', '.join(code)}")


def _threads(workers: Any) -> int:
    """Return how many threads make draws ready; −1 is one per processor."""
    if hasattr(workers, "submit"):
        raise TypeError(
            f"workers is {kind_of(workers)}; wanted the number of threads that simulate or read. Members are "
            "trained elsewhere by executor=; for draws, call simulate(models, n, executor=..., "
            "store='draws.zarr') first, and train on the store."
        )
    return processors() if workers == -1 else whole("workers", workers, 1)


def _read(paths: Any, models: Any, seed: int, workers: int, held_out: float) -> Given:
    """Take a sample of large stores into memory, and make a stream of the rest; read all else whole."""
    workers = _threads(workers)
    own = int(np.random.SeedSequence(seed, spawn_key=(1,)).generate_state(1)[0])
    large = in_pieces(paths, models, draws=SAMPLE_DRAWS, size=SAMPLE_BYTES, seed=own, workers=workers)
    if large is None:
        return Given(read_whole(paths, models))
    held = min(held_out * sum(large.stored.totals), MOST_HELD_OUT, large.size / 4) / large.size
    x, label, flags, stream = large.stored.sample(large.size, held)
    return Given(observed(stream, x, label, models), stream, flags, about=stream.about)


def row_bytes(sims: Simulations) -> int:
    """Return how many bytes a draw takes, clean part included."""
    parts = [*arrays_of(sims.x), *([] if sims.clean is None else arrays_of(sims.clean))]
    return sum(operator.floordiv(array.nbytes, max(1, len(array))) for array in parts)
