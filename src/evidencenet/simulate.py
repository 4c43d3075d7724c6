"""Draw labelled simulations from models, in seeded chunks, counting the draws that fail."""

import contextlib
import itertools
import math
import operator
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet.data import Data, Parameters, finite_rows, join, layout, layout_text, map_arrays
from evidencenet.models import DrawError, Model
from evidencenet.progress import Progress
from evidencenet.simulations import Simulations

# The failed fraction of a model is judged after one chunk, but within these numbers of draws.
_FIRST_LOOK = (50, 200)


# Mistakes in a model, and a chunk that is too large, are raised at once.
_NOT_A_FAILED_DRAW = (DrawError, MemoryError)


class SimulationError(RuntimeError):
    """Too many draws of a model failed."""


def simulate(
    models: Sequence[Model],
    n: int,
    *,
    seed: int = 0,
    fractions: Sequence[float] | None = None,
    chunk: int = 10_000,
    workers: int = 1,
    max_failed: float = 0.5,
    keep_parameters: bool = False,
    progress: bool = True,
) -> Simulations:
    """Draw n valid data sets in total from the models.

    A draw fails if it raises an exception or holds a NaN or an infinity. Failed draws are replaced by new
    ones and counted: the fraction of valid draws enters the Bayes factor.

    Parameters
    ----------
    models
        The models, with distinct names and the same shape of data.
    n
        How many valid draws in total.
    seed
        Chunk c of model m is drawn from ``SeedSequence(seed, spawn_key=(m, c))``, so the result depends on
        the seed and on `chunk`, never on `workers`.
    fractions
        The share of each model, normalised to sum to one; equal by default.
    chunk
        How many draws are made in one call of a simulator (fewer if a model needs fewer in all).
    workers
        How many chunks are drawn at the same time, −1 for one per processor. They run in threads, or in any
        backend chosen with ``joblib.parallel_config``.
    max_failed
        The failed fraction of a model above which an error is raised, once a chunk has been drawn (or 200
        draws, if that is less; at least 50).
    keep_parameters
        Whether to keep the parameters of each draw in the `parameters` of the result.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    Simulations
        The draws of the first model, then those of the second, and so on. Failures are counted up to the last
        draw kept, so ``drawn`` is exactly the number of draws it took.

    Raises
    ------
    SimulationError
        If more than `max_failed` of a model's draws fail.

    Notes
    -----
    A batch simulator that raises cannot say which draw was bad. Its chunk is then done again draw by draw
    with the same parameters, draw r from ``SeedSequence(seed, spawn_key=(m, c, r))``. Where the parameters do
    not decide which draws raise, the failed fraction counted so is low by at most 0.17 / `chunk`.

    Examples
    --------
    >>> from evidencenet.models import Model
    >>> flat = Model("flat", lambda rng, n: rng.normal(size=(n, 3)))
    >>> wide = Model("wide", lambda rng, n: rng.normal(scale=2, size=(n, 3)))
    >>> simulate([flat, wide], 1000, seed=1, progress=False).counts
    (500, 500)
    """
    models = _checked_models(models)
    shares = _shares(models, _whole("n", n, 1), fractions)
    chunk = _whole("chunk", chunk, 1)
    if workers != -1:
        workers = _whole("workers", workers, 1)
    if not 0 <= max_failed < 1:
        raise ValueError(f"max_failed must be at least 0 and less than 1, got {max_failed}")
    store = _Store(models, sum(shares), keep_parameters)
    failed = []
    first_look = int(np.clip(chunk, *_FIRST_LOOK))
    with Progress("simulating", sum(shares), enabled=progress) as bar:
        for m, share in enumerate(shares):
            source = _Source(models[m], m, _whole("seed", seed, 0), min(chunk, share), _patience(max_failed))
            with contextlib.closing(_chunks(source, share, workers)) as chunks:
                failed.append(_fill(store, source.model, share, chunks, max_failed, first_look, bar))
    return Simulations(
        store.x,
        np.repeat(np.arange(len(models)), shares),
        [model.name for model in models],
        failed=failed,
        parameters=store.parameters(),
    )


@dataclass(frozen=True)
class _Chunk:
    """The valid draws of a chunk, and which of the draws made they are."""

    x: Data | None
    theta: Parameters | None
    valid: np.ndarray
    failure: Exception | str | None
    hopeless: bool = False


@dataclass(frozen=True)
class _Source:
    """Where the chunks of one model come from; each can be drawn by itself, in any thread or process."""

    model: Model
    number: int
    seed: int
    size: int
    patience: int

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.number, *key)))

    def draw(self, chunk: int) -> _Chunk:
        rng = self.rng(chunk)
        own = (self.rng(chunk, row) for row in itertools.count())
        theta = None
        try:
            theta = self.model.draw_parameters(rng, self.size)
            if self.model.kind != "one":
                x = self.model.draw_data(rng, self.size, theta)
        except _NOT_A_FAILED_DRAW:
            raise
        except Exception as error:
            # The same parameters again, because they decide as a rule which draws fail.
            return self._draw_rows(own, theta, error)
        if self.model.kind == "one":
            return self._draw_rows(itertools.repeat(rng), theta, None)
        valid, failure = _judge(x)
        if not valid.all():
            x = map_arrays(operator.itemgetter(valid), x)
            theta = None if theta is None else map_arrays(operator.itemgetter(valid), theta)
        return _Chunk(x, theta, valid, failure)

    def _draw_rows(
        self, rngs: Iterator[np.random.Generator], thetas: Parameters | None, raised: Exception | None
    ) -> _Chunk:
        """Draw one at a time; `raised` is the exception of the whole chunk, if that was tried before."""
        kept: list[tuple[Data, Parameters | None]] = []
        valid = np.zeros(self.size, dtype=bool)
        first: Exception | str | None = raised
        for row, rng in zip(range(self.size), rngs, strict=False):
            try:
                theta = self.model.draw_parameters(rng, 1) if thetas is None else _row(thetas, row)
                x = self.model.draw_data(rng, 1, theta)
            except _NOT_A_FAILED_DRAW:
                raise
            except Exception as error:
                first = first or error
            else:
                good, failure = _judge(x)
                first = first or failure
                if good[0]:
                    valid[row] = True
                    kept.append((x, theta))
                    _check_alike(self.model, x, self.model, kept[0][0])
            if not kept and row + 1 == self.patience:
                return _Chunk(None, None, valid[: row + 1], first, hopeless=True)
        if raised and len(kept) == self.size:
            self._check_takes_batches(raised)
            # The failure did not come again with other random numbers, yet it did happen once.
            valid[0] = False
            kept = kept[1:]
        if not kept:
            return _Chunk(None, None, valid, first)
        theta = None if kept[0][1] is None else join(*(theta for _, theta in kept))
        return _Chunk(join(*(x for x, _ in kept)), theta, valid, first)

    def _check_takes_batches(self, raised: Exception) -> None:
        """Raise if no two draws can be made at once: then the model is wrong, and no draw has failed."""
        for i in range(5):
            try:
                self.model.draw(self.rng(0, self.size + i), min(2, self.size))
                return
            except Exception:
                continue
        raise DrawError(
            f"model {self.model.name!r} raised {_words(raised)} for {self.size} draws at once, but for none "
            "of them alone; correct it for batches, or use kind='one'"
        ) from raised


class _Store:
    """The arrays of the result, allocated when the first draws have told their shape."""

    def __init__(self, models: Sequence[Model], n: int, keep_parameters: bool) -> None:
        self.x: Any = None
        self.done = 0
        self._n = n
        self._first = models[0]
        self._thetas: dict[str, list[Parameters | None]] | None = None
        if keep_parameters:
            self._thetas = {model.name: [] for model in models}

    def add(self, model: Model, chunk: _Chunk, count: int) -> None:
        """Keep the first `count` valid draws of a chunk."""
        if chunk.x is None or count == 0:
            return
        if self.x is None:
            self.x = map_arrays(lambda array: np.empty((self._n, *array.shape[1:]), array.dtype), chunk.x)
        _check_alike(model, chunk.x, self._first, self.x)
        self.x = map_arrays(self._widened, self.x, chunk.x)
        place = slice(self.done, self.done + count)
        map_arrays(lambda out, new: operator.setitem(out, place, new[:count]), self.x, chunk.x)
        self.done += count
        if self._thetas is not None:
            theta = None if chunk.theta is None else map_arrays(lambda array: array[:count], chunk.theta)
            self._thetas[model.name].append(theta)

    def _widened(self, out: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Make room for a model that is more precise than the first."""
        dtype = np.result_type(out, new)
        if dtype == out.dtype:
            return out
        wide = np.empty(out.shape, dtype)
        wide[: self.done] = out[: self.done]
        return wide

    def parameters(self) -> tuple[Parameters | None, ...] | None:
        """Return the parameters of each model's draws, if they were to be kept."""
        if self._thetas is None:
            return None
        return tuple(None if p[0] is None else join(*p) for p in self._thetas.values())


def _chunks(source: _Source, share: int, workers: int) -> Generator[_Chunk]:
    """Draw chunk after chunk, in order, for as long as they are asked for."""
    if workers == 1:
        yield from map(source.draw, itertools.count())
    import joblib

    start = valid = drawn = 0
    while True:
        # By the valid fraction so far, this many chunks give the draws that are still missing.
        count = math.ceil((share - valid) / source.size * max(drawn, 1) / max(valid, 1))
        parallel = joblib.Parallel(n_jobs=workers, prefer="threads", return_as="generator")
        results = parallel(joblib.delayed(source.draw)(c) for c in range(start, start + count))
        try:
            for chunk in results:
                valid += int(np.count_nonzero(chunk.valid))
                drawn += len(chunk.valid)
                yield chunk
        finally:
            with warnings.catch_warnings():
                # Joblib warns about results not used, which is meant when enough draws are there.
                warnings.simplefilter("ignore")
                results.close()
        start += count


def _fill(
    store: _Store,
    model: Model,
    share: int,
    chunks: Iterator[_Chunk],
    max_failed: float,
    first_look: int,
    bar: Progress,
) -> int:
    """Store `share` valid draws and return how many failed before the last of them."""
    valid = drawn = 0
    failure: Exception | str | None = None
    for chunk in chunks:
        places = np.flatnonzero(chunk.valid)
        used = min(len(places), share - valid)
        failure = failure or chunk.failure
        valid += len(places)
        drawn += len(chunk.valid)
        lost = drawn - valid
        if chunk.hopeless or (drawn >= first_look and lost > max_failed * drawn):
            raise _too_many(model, lost, drawn, max_failed, failure)
        store.add(model, chunk, used)
        bar.update(store.done, model=model.name, **({"failed": f"{lost:,}"} if lost else {}))
        if valid >= share:
            # What came after the last draw that is kept might as well not have been drawn.
            return drawn - len(chunk.valid) + int(places[used - 1]) + 1 - share
    raise AssertionError("chunks come without end")


def _too_many(
    model: Model, lost: int, drawn: int, max_failed: float, failure: Exception | str | None
) -> SimulationError:
    error = SimulationError(
        f"model {model.name!r}: {lost} of {drawn} draws failed ({lost / drawn:.0%}), more than "
        f"max_failed={max_failed:.0%}; the first failure was {_words(failure)}. Correct the simulator or the "
        "prior, or raise max_failed if such failures belong to the model"
    )
    error.__cause__ = failure if isinstance(failure, Exception) else None
    return error


def _patience(max_failed: float) -> int:
    """How many failures in a row from the start are beyond chance (one in a million) for a model in order."""
    return max(50, math.ceil(math.log(1e-6) / math.log(max(max_failed, 0.5))))


def _judge(x: Data) -> tuple[np.ndarray, str | None]:
    """Which draws are finite, and what is wrong with the others."""
    parts = {f"x[{key!r}]": x[key] for key in x} if isinstance(x, dict) else {"x": x}
    finite = {where: finite_rows(array) for where, array in parts.items()}
    bad = [where for where, rows in finite.items() if not rows.all()]
    return np.logical_and.reduce(list(finite.values())), f"NaN or infinity in {bad[0]}" if bad else None


def _check_alike(model: Model, x: Data, before: Model, x_before: Data) -> None:
    mine, theirs = layout(x), layout(x_before)
    if mine != theirs:
        who = "it gave" if before is model else f"model {before.name!r} gives"
        raise DrawError(
            f"model {model.name!r} gives {layout_text(mine)}, but {who} {layout_text(theirs)} before; "
            "all draws of all models must have the same keys, shapes and types"
        )


def _checked_models(models: Sequence[Model]) -> list[Model]:
    if isinstance(models, Model) or not all(isinstance(model, Model) for model in models):
        raise TypeError(f"models must be a list of Model, got {models!r}")
    names = [model.name for model in models]
    if not names:
        raise ValueError("models is empty; wanted at least one model")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two models are named {name!r}; names must be distinct")
    return list(models)


def _shares(models: list[Model], n: int, fractions: Sequence[float] | None) -> list[int]:
    """How many draws each model gives: n in all, what rounding leaves over goes to the first ones."""
    if n < len(models):
        raise ValueError(f"n={n} is less than the number of models, {len(models)}; each must have a draw")
    parts = np.ones(len(models)) if fractions is None else np.asarray(fractions, dtype=np.float64)
    if parts.shape != (len(models),) or not (np.isfinite(parts) & (parts > 0)).all():
        raise ValueError(
            f"fractions must be {len(models)} positive numbers, one per model; got {fractions!r}"
        )
    # 0.29 * 100 is a little less than 29 in floating point.
    shares = np.floor(n * (parts / parts.sum()) + 1e-9).astype(np.int64)
    shares[: n - shares.sum()] += 1
    for model, share in zip(models, shares, strict=True):
        if share == 0:
            raise ValueError(f"model {model.name!r} would get none of {n} draws; raise n or its fraction")
    return shares.tolist()


def _whole(name: str, value: int, least: int) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number of type int, got {value!r}") from None
    if whole < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return whole


def _row(theta: Parameters, row: int) -> Parameters:
    return map_arrays(lambda array: array[row : row + 1], theta)


def _words(failure: Exception | str | None) -> str:
    return f"{type(failure).__name__}: {failure}" if isinstance(failure, Exception) else str(failure)
