"""`simulate`: draw from models in chunks, each with its own seed, and count the draws that fail."""

import contextlib
import math
import operator
import os
import warnings
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from evidencenet._common.fingerprint import fingerprint
from evidencenet._common.progress import Progress
from evidencenet._common.warnings import log
from evidencenet.simulation.chunks import Chunk, Gathered, Source, words
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.model import Model
from evidencenet.simulation.store import Store, open_store

# The failed fraction of a model is judged after one chunk, but not before 50 draws and not after 200. From 50
# draws, a fraction is known to ±0.07.
_FIRST_LOOK = (50, 200)
# After so many chunks, the number of chunks still needed is estimated again from the failed fraction so far.
_AT_ONCE = 1_000


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
    store: str | os.PathLike[str] | None = None,
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
    store
        A folder, with a name that ends in ``.zarr``, which keeps each chunk as soon as it is drawn. After an
        interruption of any kind, make the same call again: it reads the chunks that exist and draws only the
        others, and the result is the same to the bit as without the interruption. With a larger `n` the store
        grows. To write a chunk takes about 20 ms, and the time for its bytes. ``Simulations.read`` reads a
        complete store.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    Simulations
        The draws of the first model, then those of the second, and so on. Failures are counted up to the last
        draw used, so ``drawn`` is exactly the number of draws that were needed.

    Raises
    ------
    SimulationError
        If more than `max_failed` of a model's draws fail.
    evidencenet._common.files.FileError
        If `store` was made with another seed, other models, fractions, `keep_parameters` or size of chunks;
        nothing in it is changed then.

    Warns
    -----
    EvidenceWarning
        If the code of a model has changed since its store was made; this is noticed in the functions
        themselves, not in all that they call. Also if a chunk in the store is damaged; it is drawn again.

    Notes
    -----
    An exception in a batch simulator does not tell which draw was bad. The chunk is then drawn again, draw by
    draw, with the same parameters; draw r comes from ``SeedSequence(seed, spawn_key=(m, c, r))``. If the
    parameters do not decide which draws raise, the failed fraction is too low by at most 0.17 / `chunk`.

    Examples
    --------
    >>> from evidencenet.simulation.model import Model
    >>> flat = Model("flat", lambda rng, n: rng.normal(size=(n, 3)))
    >>> wide = Model("wide", lambda rng, n: rng.normal(scale=2, size=(n, 3)))
    >>> simulate([flat, wide], 1000, seed=1, progress=False).counts
    (500, 500)
    """
    models = _checked_models(models)
    fractions_of_n = _normalised(models, fractions)
    shares = _shares(models, _whole("n", n, 1), fractions_of_n)
    chunk = _whole("chunk", chunk, 1)
    if workers != -1:
        workers = _whole("workers", workers, 1)
    if not 0 <= max_failed < 1:
        raise ValueError(f"max_failed must be at least 0 and less than 1, got {max_failed}")
    seed = _whole("seed", seed, 0)
    sizes = [min(chunk, share) for share in shares]
    opened = None
    if store is not None:
        settings = {
            "models": [model.name for model in models],
            "kind": [model.kind for model in models],
            "prior": [model.prior is not None for model in models],
            "seed": seed,
            "chunk": sizes,
            "fractions": fractions_of_n.tolist(),
            "keep_parameters": bool(keep_parameters),
        }
        code = [fingerprint(model.simulate, model.prior) for model in models]
        opened = open_store(store, settings, shares, code)
    gathered = Gathered([model.name for model in models], shares, keep_parameters)
    first_look = int(np.clip(chunk, *_FIRST_LOOK))
    with Progress("simulating", sum(shares), enabled=progress) as bar:
        for m, (model, size) in enumerate(zip(models, sizes, strict=True)):
            source = Source(model, m, seed, size, _patience(max_failed))
            with contextlib.closing(_chunks(source, shares[m], workers, opened)) as chunks:
                _fill(gathered, source, chunks, max_failed, first_look, opened, bar)
    return Simulations(**gathered.fields(), log_density=[model.log_density for model in models])


def _chunks(
    source: Source, share: int, workers: int, store: Store | None
) -> Generator[tuple[int, Chunk, bool]]:
    """Yield chunk after chunk, in order and without end: number, chunk, and whether it is new."""
    start = valid = drawn = 0
    while True:
        # With the valid fraction so far, this many chunks give the draws that are still missing.
        count = math.ceil((share - valid) / source.size * max(drawn, 1) / max(valid, 1))
        numbers = range(start, start + min(count, _AT_ONCE))
        stored = {c for c in numbers if store is not None and store.has(source.number, c)}
        with contextlib.closing(_drawn(source, [c for c in numbers if c not in stored], workers)) as made:
            for c in numbers:
                chunk = store.read(source.number, c) if store is not None and c in stored else None
                new = chunk is None
                if chunk is None:
                    # A stored chunk that is damaged is not among those being made.
                    chunk = source.draw(c) if c in stored else next(made)
                valid += int(np.count_nonzero(chunk.valid))
                drawn += len(chunk.valid)
                yield c, chunk, new
        start = numbers.stop


def _drawn(source: Source, numbers: Sequence[int], workers: int) -> Generator[Chunk]:
    """Draw chunks, in order; with several workers, several at the same time."""
    if workers == 1 or not numbers:
        yield from map(source.draw, numbers)
        return
    import joblib

    parallel = joblib.Parallel(n_jobs=workers, prefer="threads", return_as="generator")
    results = parallel(joblib.delayed(source.draw)(c) for c in numbers)
    try:
        # Not "yield from", which would close the results before the warnings are caught.
        for chunk in results:  # noqa: UP028
            yield chunk
    finally:
        with warnings.catch_warnings():
            # Joblib warns about results not used. That is intended once there are enough draws.
            warnings.simplefilter("ignore")
            results.close()


def _fill(
    gathered: Gathered,
    source: Source,
    chunks: Iterator[tuple[int, Chunk, bool]],
    max_failed: float,
    first_look: int,
    store: Store | None,
    bar: Progress,
) -> None:
    """Gather as many valid draws of a model as are wanted."""
    m, failure = source.number, None
    for c, chunk, new in chunks:
        failure = failure or chunk.failure
        drawn = gathered.drawn[m] + len(chunk.valid)
        lost = drawn - gathered.valid[m] - int(np.count_nonzero(chunk.valid))
        if chunk.hopeless or (drawn >= first_look and lost > max_failed * drawn):
            raise _too_many(source.model, lost, drawn, max_failed, failure)
        gathered.add(m, chunk)
        if store is not None and new:
            store.write(m, c, chunk)
        bar.update(gathered.done, model=source.model.name, **({"failed": f"{lost:,}"} if lost else {}))
        if not gathered.missing(m):
            if lost:
                text = "model %r: %d of %d draws failed, the first by %s; log K accounts for it"
                log.warning(text, source.model.name, lost, drawn, words(failure))
            return


def _too_many(
    model: Model, lost: int, drawn: int, max_failed: float, failure: Exception | str | None
) -> SimulationError:
    error = SimulationError(
        f"model {model.name!r}: {lost} of {drawn} draws failed ({lost / drawn:.0%}), more than "
        f"max_failed={max_failed:.0%}; the first failure was {words(failure)}. Correct the simulator or the "
        "prior, or raise max_failed if such failures belong to the model"
    )
    error.__cause__ = failure if isinstance(failure, Exception) else None
    return error


def _patience(max_failed: float) -> int:
    """Return how many failures in a row, from the start, happen to a working model once in a million."""
    return max(50, math.ceil(math.log(1e-6) / math.log(max(max_failed, 0.5))))


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


def _normalised(models: list[Model], fractions: Sequence[float] | None) -> np.ndarray:
    """Return the fraction of the draws that each model gives, shape (K,)."""
    parts = np.ones(len(models)) if fractions is None else np.asarray(fractions, dtype=np.float64)
    if parts.shape != (len(models),) or not (np.isfinite(parts) & (parts > 0)).all():
        raise ValueError(
            f"fractions must be {len(models)} positive numbers, one per model; got {fractions!r}"
        )
    normalised: np.ndarray = parts / parts.sum()
    return normalised


def _shares(models: list[Model], n: int, parts: np.ndarray) -> list[int]:
    """Return how many draws each model gives, n in all; the first models get what rounding leaves over."""
    if n < len(models):
        raise ValueError(f"n={n} is less than the number of models, {len(models)}; each must have a draw")
    # 0.29 * 100 is a little less than 29 in floating point.
    shares = np.floor(n * parts + 1e-9).astype(np.int64)
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
