"""`simulate`: draw from models, share out the work, store it, and count the draws that fail."""

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from evidencenet._common.arguments import checked_seed, explained, whole
from evidencenet._common.arrays import kind_of
from evidencenet._common.fingerprint import fingerprint
from evidencenet._common.progress import Progress
from evidencenet._common.warnings import FailedDrawsWarning, RandomnessWarning, log
from evidencenet.simulation.chunks import Chunk, Gathered, Source, block_sizes, join_chunks, words
from evidencenet.simulation.dataset import Simulations, tell_padding
from evidencenet.simulation.model import Model
from evidencenet.simulation.store import Store, open_store
from evidencenet.simulation.workers import is_worker_death, worker_error

# A simulation stops if more draws failed than `max_failed` allows, by so many standard errors:
# a model that fails just as often as allowed is then stopped by chance once in 30,000 looks.
_SIGMAS = 4.0
# The failed fraction is not judged before so many draws: from 50 it is known to ±0.07.
_LEAST_DRAWS = 50
# A chunk should take so many seconds: progress moves, and a worker that is interrupted loses no more.
_CHUNK_SECONDS = 1.0
# A chunk is at most so many times as long as the one before: the time of the first few draws may deceive.
_GROWTH = 10
# Several workers get at least so many chunks each, so that they finish at about the same time.
_CHUNKS_PER_WORKER = 4
# Draws are written to the store after so many seconds. To write takes 20 ms, under 1% of the time.
_WRITE_SECONDS = 3.0
# Neither a chunk nor what waits to be written takes more bytes than this, unless a single block does.
_MOST_BYTES = 2**26
# Failed draws are told as a warning from this fraction on: they then change log K by 0.05 or more.
_TOLD_FAILED = 0.05


class SimulationError(RuntimeError):
    """Too many draws of a model failed."""


@explained(
    "simulate([model0, model1], 100_000, seed=1)",
    {
        "*": "All arguments after n have names.",
        "n_simulations": "n=..., the number of all draws together",
        "num_simulations": "n=..., the number of all draws together",
        "size": "n=..., the number of all draws together",
        "n_draws": "n=..., the number of all draws together",
        "n_jobs": "workers=...",
        "n_workers": "workers=...",
        "num_workers": "workers=...",
        "parallel": "workers=...",
        "random_state": "seed=...",
        "rng": "seed=...",
        "batch_size": "Model(..., block=...), the number of draws in a call",
        "chunk_size": "chunk=...",
        "path": "store='draws.zarr'",
        "out": "store='draws.zarr'",
        "verbose": "progress=False or True",
        "weights": "fractions=...",
        "prior": "fractions=... for the shares of the draws; a prior of the models is given to net.compare",
    },
)
def simulate(
    models: Sequence[Model] | Mapping[str, Model | Callable[..., Any]],
    n: float,
    *,
    seed: int | None = 0,
    fractions: Sequence[float] | Mapping[str, float] | None = None,
    chunk: int | None = None,
    workers: int = 1,
    max_failed: float = 0.5,
    keep_parameters: bool = False,
    store: str | os.PathLike[str] | None = None,
    missing: Literal["mask"] | None = None,
    progress: bool = True,
) -> Simulations:
    """Draw n valid data sets in total from the models.

    A draw fails if it raises an exception or holds a NaN or an infinity. Failed draws are replaced by new
    ones and counted: the fraction of valid draws enters the Bayes factor.

    Parameters
    ----------
    models
        The models, with distinct names and the same shape of data; or a dict of simulators by name, such as
        ``{"flat": f, "trend": g}``, where ``f(rng, n)`` returns n draws.
    n
        How many valid draws in total; 1e5 is fine.
    seed
        The same seed gives the same draws, whatever `n`, `chunk` and `workers` are. With None, a seed is
        drawn and shown in a warning.
    fractions
        The share of each model, normalised to sum to one, in order or by name; equal by default.
    chunk
        The most draws that one worker makes before it hands them over. By default the work is divided by the
        time that draws take, into chunks of about one second.
    workers
        How many chunks are drawn at the same time, −1 for one per processor. They run in threads, or in any
        backend chosen with ``joblib.parallel_config``.
    max_failed
        The failed fraction of a model above which an error is raised, as soon as it exceeds this by four
        standard errors. Fewer than 50 draws are not judged.
    keep_parameters
        Whether to keep the parameters of each draw in the `parameters` of the result.
    store
        A folder, with a name that ends in ``.zarr``, which keeps the draws. They are written every three
        seconds. After an interruption of any kind, make the same call again: it reads what was stored and
        draws only the rest, and the result is the same to the bit as without the interruption. With a larger
        `n` the store grows. ``Simulations.read`` reads a complete store.
    missing
        ``"mask"``: NaN in a draw is a missing number, and not a failure; see `Simulations`. A draw without
        any number, or with infinity, fails.
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
        If `store` was made with another seed, other models, fractions or `keep_parameters`; nothing in it is
        changed then.

    Warns
    -----
    FailedDrawsWarning
        If 5% or more of a model's draws failed: they change log K.
    RandomnessWarning
        If a simulator uses global random numbers, such as ``np.random.normal``, which do not follow the seed;
        or if draws repeat.
    InputWarning
        If draws of unequal length were padded, or columns reordered by name.
    EvidenceWarning
        If the code of a model has changed since its store was made; this is noticed in the functions
        themselves, not in all that they call. Also if a chunk in the store is damaged; it is drawn again.

    Notes
    -----
    The draws of a model are numbered, and made in blocks, one call of the simulator each: see `Model`. The
    block of model m that begins at draw s comes from ``SeedSequence(seed, spawn_key=(m, s))``. For
    ``kind="one"`` every draw is a block.

    An exception in a batch simulator does not tell which draw was bad. The block is then drawn again, draw by
    draw, with the same parameters; its draw r comes from ``SeedSequence(seed, spawn_key=(m, s, r))``. If the
    parameters do not decide which draws raise, the failed fraction is too low by at most 0.17 divided by the
    size of the block.

    Examples
    --------
    >>> from evidencenet.simulation.model import Model
    >>> flat = Model("flat", lambda rng, n: rng.normal(size=(n, 3)))
    >>> wide = Model("wide", lambda rng, n: rng.normal(scale=2, size=(n, 3)))
    >>> simulate([flat, wide], 1000, seed=1, progress=False).counts
    (500, 500)
    """
    models = _checked_models(models)
    if missing not in (None, "mask"):
        raise ValueError(
            "missing must be 'mask' (NaN is a missing number) or None (a draw with NaN failed), got "
            f"{missing!r}"
        )
    fractions_of_n = _normalised(models, fractions)
    if isinstance(n, Sequence | np.ndarray) and not isinstance(n, str):
        raise TypeError(
            f"n must be one whole number, the number of all draws together, got {n!r}; for other than equal "
            "shares give fractions="
        )
    shares = _shares(models, whole("n", n, 1), fractions_of_n)
    most = math.inf if chunk is None else whole("chunk", chunk, 1)
    if workers != -1:
        workers = whole("workers", workers, 1)
    if not 0 <= max_failed < 1:
        raise ValueError(f"max_failed must be at least 0 and less than 1, got {max_failed}")
    seed = checked_seed(seed, stacklevel=4)
    opened = None
    if store is not None:
        settings = {
            "models": [model.name for model in models],
            "kind": [model.kind for model in models],
            "prior": [model.prior is not None for model in models],
            "seed": seed,
            "blocks": [[list(block) for block in block_sizes(model)] for model in models],
            "fractions": fractions_of_n.tolist(),
            "keep_parameters": bool(keep_parameters),
            "missing": missing,
        }
        code = [fingerprint(model.simulate, model.prior) for model in models]
        opened = open_store(store, settings, shares, code)
    unequal = [model.kind == "one" for model in models]
    gathered = Gathered([model.name for model in models], shares, keep_parameters, unequal)
    outside: dict[str, set[str]] = {}
    with Progress("simulating", sum(shares), enabled=progress) as bar:
        for m, model in enumerate(models):
            source = Source(model, m, seed, _patience(max_failed), missing is not None)
            pace = Pace(workers, most)
            with (
                _Writer(opened, source) as writer,
                contextlib.closing(_chunks(source, gathered, pace, opened)) as chunks,
            ):
                used = _fill(gathered, source, chunks, max_failed, writer, bar)
            if used:
                outside[model.name] = used
    _tell_outside(outside)
    _tell_failed(models, gathered, missing)
    if gathered.padded is not None:
        tell_padding(*gathered.padded)
    densities = [model.log_density for model in models]
    return Simulations(**gathered.fields(), log_density=densities, missing=missing)


@dataclass
class Pace:
    """How long the next chunk of a model should be, from the time that the last one took.

    Parameters
    ----------
    workers
        How many chunks are drawn at the same time; −1 for one per processor.
    most
        The most draws that a chunk may have.
    """

    workers: int
    most: float
    _draws: float = field(default=0.0, init=False)

    def note(self, chunk: Chunk) -> None:
        """Learn from a chunk how many draws one chunk should have."""
        drawn = len(chunk.valid)
        by_time = _CHUNK_SECONDS * drawn / max(chunk.seconds, 1e-9)
        by_size = _MOST_BYTES * drawn / max(chunk.size, 1)
        self._draws = min(by_time, by_size, _GROWTH * drawn)

    def draws(self, left: int) -> int:
        """Return how many draws the next chunk should have, if `left` are to be made."""
        workers = (os.cpu_count() or 1) if self.workers == -1 else self.workers
        fair = math.inf if workers == 1 else left / (_CHUNKS_PER_WORKER * workers)
        return max(1, int(min(self._draws, fair, self.most)))


def _chunks(
    source: Source, gathered: Gathered, pace: Pace, store: Store | None
) -> Generator[tuple[int, Chunk, bool]]:
    """Yield chunk after chunk of a model, in order and without end: first draw, chunk, whether it is new."""
    m, died_at = source.number, None
    while True:
        valid, start = gathered.valid[m], gathered.drawn[m]
        # With the valid fraction so far, this many draws give those that are still missing.
        stop = source.end(start + math.ceil(gathered.missing(m) * max(start, 1) / max(valid, 1)))
        stored = [] if store is None else [first for first in store.starts(m) if start <= first < stop]
        while start < stop:
            chunk = store.read(m, start) if store is not None and start in stored else None
            if chunk is not None:
                yield start, chunk, False
                start += len(chunk.valid)
                continue
            until = min([first for first in stored if first > start], default=stop)
            units = _units(source, start, until, pace)
            try:
                with contextlib.closing(_drawn(source, units, pace.workers)) as made:
                    for chunk in made:
                        pace.note(chunk)
                        yield start, chunk, True
                        start += len(chunk.valid)
            except Exception as error:
                if not is_worker_death(error):
                    raise
                # Once may be chance, such as a machine short of memory. The same draws are made again.
                if died_at == start:
                    raise worker_error(source.model.name, start, error) from error
                died_at = start
                log.warning(
                    "a worker process died at draw %d of model %r; trying again", start, source.model.name
                )


def _units(source: Source, start: int, stop: int, pace: Pace) -> Iterator[tuple[int, int]]:
    """Divide draws into chunks: first draw and end of each."""
    while start < stop:
        end = min(source.end(start + pace.draws(stop - start)), stop)
        if start < source.patience:
            # A model that always fails is stopped here.
            end = min(end, source.end(source.patience))
        yield start, end
        start = end


def _drawn(source: Source, units: Iterator[tuple[int, int]], workers: int) -> Generator[Chunk]:
    """Draw chunks, in order; with several workers, several at the same time."""
    if workers == 1:
        yield from (source.draw(start, stop) for start, stop in units)
        return
    import joblib

    # A task is a chunk: joblib must not put several together, since they have the right length already.
    parallel = joblib.Parallel(n_jobs=workers, prefer="threads", return_as="generator", batch_size=1)
    results = parallel(joblib.delayed(source.draw)(start, stop) for start, stop in units)
    try:
        # Not "yield from", which would close the results before the warnings are caught.
        for chunk in results:  # noqa: UP028
            yield chunk
    finally:
        with warnings.catch_warnings():
            # Joblib warns about results not used. That is intended once there are enough draws.
            warnings.simplefilter("ignore")
            results.close()


class _Writer:
    """Write the chunks of a model to a store, several together if they come fast; all at the end."""

    def __init__(self, store: Store | None, source: Source) -> None:
        self._store, self._source = store, source
        self._start = 0
        self._waiting: list[Chunk] = []
        self._last = time.monotonic()

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # Draws of a simulator that fails too often are not stored: it will be corrected.
        if kind is None or not issubclass(kind, SimulationError):
            self._write()

    def add(self, start: int, chunk: Chunk, *, wait: bool) -> None:
        """Take the next chunk; `wait` means that it is too early to write it."""
        if self._store is None:
            return
        if start != self._start + sum(len(waiting.valid) for waiting in self._waiting):
            self._write()
        if not self._waiting:
            self._start = start
        self._waiting.append(chunk)
        full = sum(waiting.size for waiting in self._waiting) >= _MOST_BYTES
        if not wait and (full or time.monotonic() - self._last >= _WRITE_SECONDS):
            self._write()

    def _write(self) -> None:
        if self._store is not None and self._waiting:
            chunk = join_chunks(self._waiting, self._source.model)
            self._store.write(self._source.number, self._start, chunk)
        self._waiting = []
        self._last = time.monotonic()


def _fill(
    gathered: Gathered,
    source: Source,
    chunks: Iterator[tuple[int, Chunk, bool]],
    max_failed: float,
    writer: _Writer,
    bar: Progress,
) -> set[str]:
    """Gather as many valid draws of a model as are wanted; return which global random numbers it used."""
    m, lost, failure = source.number, 0, None
    outside: set[str] = set()
    for start, chunk, new in chunks:
        failure = failure or chunk.failure
        drawn, lost = start + len(chunk.valid), lost + chunk.lost
        enough = drawn - lost >= gathered.shares[m]
        if _is_too_many(lost, drawn, max_failed, source.patience):
            raise _too_many(source.model, lost, drawn, max_failed, failure)
        gathered.add(m, chunk)
        gathered.failure[m] = None if failure is None else words(failure)
        outside |= set(chunk.outside)
        if new:
            writer.add(start, chunk, wait=drawn < _LEAST_DRAWS and lost > max_failed * drawn)
        bar.update(gathered.done, model=source.model.name, **({"failed": f"{lost:,}"} if lost else {}))
        if enough:
            break
    if lost:
        text = "model %r: %d of %d draws failed, the first by %s; log K accounts for it"
        log.warning(text, source.model.name, lost, drawn, words(failure))
    return outside


def _tell_outside(outside: dict[str, set[str]]) -> None:
    """Warn once if simulators use random numbers that do not follow the seed."""
    if outside:
        generators = sorted(set().union(*outside.values()))
        warnings.warn(
            f"the simulator of {', '.join(map(repr, outside))} uses global random numbers "
            f"({', '.join(generators)}), which do not follow seed=: the same call gives other draws, and "
            "workers may repeat each other's. Take all random numbers from the rng that it is given, such as "
            "rng.normal() for np.random.normal()"
            + (
                ", or a torch.Generator with a seed from rng.integers(2**63)" if "torch" in generators else ""
            ),
            RandomnessWarning,
            stacklevel=4,
        )


def _tell_failed(models: list[Model], gathered: Gathered, missing: str | None) -> None:
    """Warn of failed draws that change log K by more than a little."""
    for m, model in enumerate(models):
        lost, drawn = gathered.failed[m], gathered.failed[m] + gathered.shares[m]
        if lost < _TOLD_FAILED * drawn:
            continue
        cause = gathered.failure[m] or ""
        advice = ""
        if "NaN" in cause and missing is None:
            advice = " If NaN means that a number is missing, give missing='mask'."
        warnings.warn(
            f"model {model.name!r}: {lost:,} of {drawn:,} draws failed ({lost / drawn:.0%}), the first by "
            f"{cause}. They were replaced, and log K of this model holds the term "
            f"log({1 - lost / drawn:.3g}) = {math.log(1 - lost / drawn):.2f} for it. That is right if such "
            f"data cannot be observed under the model, and wrong if the simulator has a fault.{advice}",
            FailedDrawsWarning,
            stacklevel=4,
        )


def _is_too_many(lost: int, drawn: int, max_failed: float, patience: int) -> bool:
    """Say whether more draws failed than are allowed, beyond doubt."""
    doubt = _SIGMAS * math.sqrt(max_failed * (1 - max_failed) * drawn)
    all_failed = lost == drawn >= patience
    return all_failed or (drawn >= _LEAST_DRAWS and lost > max_failed * drawn + doubt)


def _too_many(
    model: Model, lost: int, drawn: int, max_failed: float, failure: Exception | str | None
) -> SimulationError:
    missing = (
        " If NaN means that a number is missing, give missing='mask'." if "NaN" in words(failure) else ""
    )
    error = SimulationError(
        f"model {model.name!r}: {lost} of {drawn} draws failed ({lost / drawn:.0%}), more than "
        f"max_failed={max_failed:.0%}; the first failure was {words(failure)}. Correct the simulator or the "
        f"prior, or raise max_failed if such failures belong to the model.{missing}"
    )
    error.__cause__ = failure if isinstance(failure, Exception) else None
    return error


def _patience(max_failed: float) -> int:
    """Return how many failures in a row, from the start, happen to a working model once in a million."""
    return max(_LEAST_DRAWS, math.ceil(math.log(1e-6) / math.log(max(max_failed, 0.5))))


def _checked_models(models: Any) -> list[Model]:
    if isinstance(models, Mapping):
        models = [_named_model(name, value) for name, value in models.items()]
    if isinstance(models, Model) or not isinstance(models, Sequence):
        raise TypeError(f"models must be a list of Model, or a dict of simulators by name, got {models!r}")
    for model in models:
        if not isinstance(model, Model):
            raise TypeError(
                f"models must be a list of Model, and it holds {kind_of(model)}. For functions give a dict, "
                "such as simulate({'flat': f, 'trend': g}, n)"
            )
    names = [model.name for model in models]
    if not names:
        raise ValueError("models is empty; wanted at least one model")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two models are named {name!r}; names must be distinct")
    return list(models)


def _named_model(name: Any, value: Any) -> Model:
    """Return a model of a dict: a simulator, or a model, which takes the name."""
    if isinstance(value, Model):
        return replace(value, name=name)
    if not callable(value):
        raise TypeError(f"models[{name!r}] must be a Model or a simulator f(rng, n), got {kind_of(value)}")
    return Model(name, value)


def _normalised(models: list[Model], fractions: Sequence[float] | Mapping[str, float] | None) -> np.ndarray:
    """Return the fraction of the draws that each model gives, shape (K,)."""
    if isinstance(fractions, Mapping):
        names = [model.name for model in models]
        if set(fractions) != set(names):
            raise ValueError(f"fractions has {', '.join(map(repr, fractions))}; wanted {', '.join(names)}")
        fractions = [fractions[name] for name in names]
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
