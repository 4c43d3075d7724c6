"""`simulate`: draw from models, share out the work, store it, and count the draws that fail."""

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np

from evidencenet._common.arguments import checked_seed, explained, whole
from evidencenet._common.arrays import kind_of
from evidencenet._common.fingerprint import fingerprint
from evidencenet._common.progress import Progress
from evidencenet._common.signals import kept_on_sigterm
from evidencenet._common.warnings import FailedDrawsWarning, RandomnessWarning
from evidencenet.simulation.chunks import Chunk, Gathered, Source, block_sizes, words
from evidencenet.simulation.dataset import Simulations, tell_padding
from evidencenet.simulation.failures import SimulationError, Tally, patience
from evidencenet.simulation.jobs import Part
from evidencenet.simulation.model import Model
from evidencenet.simulation.parts import draw_part
from evidencenet.simulation.runs import Pace, Run
from evidencenet.simulation.status import Status, status
from evidencenet.simulation.store import open_store
from evidencenet.simulation.workers import Workers
from evidencenet.simulation.writer import Writer

# Failed draws are told as a warning from this fraction on: they then change log K by 0.05 or more.
_TOLD_FAILED = 0.05


class _Options(TypedDict, total=False):
    """The arguments of `simulate` that are the same with and without `part`."""

    fractions: Sequence[float] | Mapping[str, float] | None
    chunk: int | None
    workers: int | None
    executor: Any
    timeout: float | None
    max_failed: float
    keep_parameters: bool
    missing: Literal["mask"] | None
    progress: bool


# Type checkers see these two: with `part` there are no draws to return, but a status.
@overload
def simulate(
    models: Sequence[Model] | Mapping[str, Model | Callable[..., Any]],
    n: float,
    *,
    seed: int | None = 0,
    store: str | os.PathLike[str] | None = None,
    part: None = None,
    **options: Unpack[_Options],
) -> Simulations: ...
@overload
def simulate(
    models: Sequence[Model] | Mapping[str, Model | Callable[..., Any]],
    n: float,
    *,
    seed: int = 0,
    store: str | os.PathLike[str],
    part: tuple[int, int] | str,
    **options: Unpack[_Options],
) -> Status: ...
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
        "jobs": "workers=..., or part=(1, 20) for one of twenty jobs",
        "job": "part=(1, 20), the first of twenty jobs",
        "array": "part=(1, 20), the first of twenty jobs",
        "processes": "executor=ProcessPoolExecutor(...) of concurrent.futures",
        "backend": "workers=... inside \"with joblib.parallel_config(backend='loky'):\"",
        "pool": "executor=...",
        "client": "executor=client",
        "cluster": "executor=Client(cluster).get_executor() of Dask",
        "time_limit": "timeout=...",
        "max_seconds": "timeout=...",
        "random_state": "seed=...",
        "rng": "seed=...",
        "batch_size": "Model(..., block=...), the number of draws in a call",
        "chunk_size": "chunk=...",
        "path": "store='draws.zarr'",
        "out": "store='draws.zarr'",
        "observe": "Model(..., observe=...)",
        "noise": "Model(..., observe=...)",
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
    workers: int | None = None,
    executor: Any = None,
    timeout: float | None = None,
    max_failed: float = 0.5,
    keep_parameters: bool = False,
    store: str | os.PathLike[str] | None = None,
    part: tuple[int, int] | str | None = None,
    missing: Literal["mask"] | None = None,
    progress: bool = True,
) -> Simulations | Status:
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
        backend chosen with ``joblib.parallel_config``. The default is 1, or as many as `executor` has.
    executor
        Draws the chunks elsewhere: a `concurrent.futures.Executor`, such as ``ProcessPoolExecutor(8)``,
        Dask's ``client.get_executor()``, or anything else with ``submit``. Models may be lambdas: they are
        sent as bytes by cloudpickle. It stays open.
    timeout
        The most seconds that one draw may take. A draw that takes longer is stopped, and counts as failed. A
        simulator of kind "batch" or "jax" makes a block of n draws in one call, which may take n times as
        long; after that its draws are made one by one, each with the limit. It needs workers that are
        processes: an `executor` of processes, or several `workers` with joblib's backend "loky". Each of
        these starts a second process, which makes the calls and is killed if it must be.
    max_failed
        The failed fraction of a model above which an error is raised, as soon as it exceeds this by four
        standard errors. Fewer than 50 draws are not judged.
    keep_parameters
        Whether to keep the parameters of each draw in the `parameters` of the result.
    store
        A folder, with a name that ends in ``.zarr``, which keeps the draws. They are written every three
        seconds, and on Ctrl-C and SIGTERM. After an interruption of any kind, make the same call again: it
        reads what was stored and draws only the rest, and the result is the same to the bit as without the
        interruption. With a larger `n` the store grows. ``Simulations.read`` reads a complete store.
    part
        ``(3, 20)`` or ``"3/20"``: draw only the third of twenty parts, counted from 1. Twenty jobs, all with
        the same other arguments, fill the same `store`, at the same time or not, and a job that was
        interrupted may be started again. No draw is made twice. When all have ended, the store is complete;
        the same call without `part` completes it in any case, and reads it.
    missing
        ``"mask"``: NaN in a draw is a missing number, and not a failure; see `Simulations`. A draw without
        any number, or with infinity, fails.
    progress
        Whether to show progress on standard error.

    Returns
    -------
    Simulations
        The draws of the first model, then those of the second, and so on. Failures are counted up to the last
        draw used, so ``drawn`` is exactly the number of draws that were needed. If models have `observe`, the
        result has their clean draws in `clean`, and one observation of each in `x`.
    Status
        With `part`: what is in the store, and what is missing; see `status`. The draws are not read.

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
    crew = Workers.checked(workers, executor, timeout)
    if not 0 <= max_failed < 1:
        raise ValueError(f"max_failed must be at least 0 and less than 1, got {max_failed}")
    own = None if part is None else Part.checked(part)
    if own is not None and (store is None or seed is None):
        lacking = "store=" if store is None else "a seed"
        raise ValueError(f"part={own} needs {lacking}: all parts draw into one store, from one seed")
    seed = checked_seed(seed, stacklevel=4)
    opened = None
    if store is not None:
        settings = {
            "models": [model.name for model in models],
            "kind": [model.kind for model in models],
            "prior": [model.prior is not None for model in models],
            "observe": [model.observe is not None for model in models],
            "seed": seed,
            "blocks": [[list(block) for block in block_sizes(model)] for model in models],
            "fractions": fractions_of_n.tolist(),
            "keep_parameters": bool(keep_parameters),
            "missing": missing,
            # It decides which draws fail.
            "timeout": None if timeout is None else float(timeout),
        }
        code = [fingerprint(model.simulate, model.prior, model.observe) for model in models]
        opened = open_store(store, settings, shares, code)
    sources = [
        Source(model, m, seed, patience(max_failed), missing is not None) for m, model in enumerate(models)
    ]
    runs = [Run(source, crew, Pace(crew.at_once, most), opened) for source in sources]
    if own is not None and opened is not None:
        with kept_on_sigterm():
            _tell_outside(draw_part(runs, shares, opened, own, max_failed, progress))
        return status(opened.path)
    unequal = [model.kind == "one" and model.observe is None for model in models]
    gathered = Gathered([model.name for model in models], shares, keep_parameters, unequal)
    outside: dict[str, set[str]] = {}
    with kept_on_sigterm(), Progress("simulating", sum(shares), enabled=progress) as bar:
        for model, source, run in zip(models, sources, runs, strict=True):
            with (
                Writer(opened, source, discard=SimulationError) as writer,
                contextlib.closing(_chunks(run, gathered)) as chunks,
            ):
                used = _fill(gathered, source, chunks, max_failed, writer, bar)
            if used:
                outside[model.name] = used
    _tell_outside(outside)
    _tell_failed(models, gathered, missing)
    if gathered.padded is not None:
        tell_padding(*gathered.padded)
    densities = [model.log_density for model in models]
    observe = models if any(model.observe is not None for model in models) else None
    return Simulations(
        **gathered.fields(), log_density=densities, missing=missing, observe=observe, seed=seed
    )


def _chunks(run: Run, gathered: Gathered) -> Generator[tuple[int, Chunk, bool]]:
    """Yield chunk after chunk of a model, in order and without end: first draw, chunk, whether it is new."""
    m = run.source.number
    while True:
        valid, start = gathered.valid[m], gathered.drawn[m]
        # With the valid fraction so far, this many draws give those that are still missing.
        stop = run.source.end(start + math.ceil(gathered.missing(m) * max(start, 1) / max(valid, 1)))
        yield from run.chunks(start, stop)


def _fill(
    gathered: Gathered,
    source: Source,
    chunks: Iterator[tuple[int, Chunk, bool]],
    max_failed: float,
    writer: Writer,
    bar: Progress,
) -> set[str]:
    """Gather as many valid draws of a model as are wanted; return which global random numbers it used."""
    m, tally = source.number, Tally(source.model.name, max_failed)
    outside: set[str] = set()
    for start, chunk, new in chunks:
        tally.add(chunk)
        gathered.add(m, chunk)
        gathered.failure[m] = None if tally.failure is None else words(tally.failure)
        outside |= set(chunk.outside)
        if new:
            writer.add(start, chunk, wait=tally.early)
        failed = {"failed": f"{tally.lost:,}"} if tally.lost else {}
        bar.update(gathered.done, model=source.model.name, **failed)
        if not gathered.missing(m):
            break
    tally.tell()
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
