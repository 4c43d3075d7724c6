"""`Workers`: who draws the chunks. This process, joblib's workers, or any executor."""

import math
import numbers
import os
import socket
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evidencenet._common.arguments import whole
from evidencenet._common.arrays import arrays_of, kind_of
from evidencenet._common.executors import Shipped, checked_executor, in_order, places
from evidencenet._common.processors import processors
from evidencenet.simulation.chunks import Calls, Chunk, Source, words
from evidencenet.simulation.timed import TimedCalls, ship_calls


@dataclass(frozen=True)
class Workers:
    """Who draws, and how many at the same time.

    Parameters
    ----------
    count
        How many chunks are drawn at the same time; −1 for one per processor. None is 1, or as many as the
        executor has workers.
    executor
        Anything with ``submit``; None for this process, or for joblib's workers if there are several.
    timeout
        The most seconds for one draw; None for no limit. It needs workers that are processes.
    """

    count: int | None = None
    executor: Any = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.timeout is None:
            return
        if isinstance(self.executor, ThreadPoolExecutor):
            raise _not_stoppable("the workers are threads of this process")
        if self.executor is None and self.at_once == 1:
            raise _not_stoppable("the draws are made in this process")
        if self.executor is None and _joblib_uses_threads():
            raise _not_stoppable("the workers are threads of this process")

    @staticmethod
    def checked(workers: Any, executor: Any, timeout: Any = None) -> "Workers":
        """Return who draws, as the user says it; see `evidencenet.simulate`."""
        if workers is not None and workers != -1:
            if hasattr(workers, "submit"):
                raise TypeError(f"workers is {kind_of(workers)}; give it as executor=")
            workers = whole("workers", workers, 1)
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, numbers.Real)):
            advice = "; give timeout.total_seconds()" if hasattr(timeout, "total_seconds") else ""
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}{advice}")
        limit = None if timeout is None else float(timeout)
        if limit is not None and not 0 < limit < math.inf:
            raise ValueError(f"timeout must be more than 0 seconds, got {timeout}; leave it out for no limit")
        return Workers(workers, None if executor is None else checked_executor(executor), limit)

    @property
    def at_once(self) -> int:
        """How many chunks are drawn at the same time."""
        if self.count == -1:
            return processors()
        if self.count is None:
            return 1 if self.executor is None else places(self.executor)
        return self.count

    @property
    def broken(self) -> Any:
        """The executor, if it cannot be used any more since one of its processes died; else None."""
        return self.executor if getattr(self.executor, "_broken", False) else None

    def draw(self, source: Source, units: Iterator[tuple[int, int]]) -> Generator[Chunk]:
        """Draw chunks, from the first draw to the end of each of `units`, and give them in order."""
        # A copy of the model is without its compiled functions, which cannot travel.
        work = _Work(replace(source, model=replace(source.model)))
        if self.timeout is not None:
            limit = _Limit(self.timeout, ship_calls(work.source), (socket.gethostname(), os.getpid()))
            work = replace(work, limit=limit)
        if self.executor is not None:
            what = f"model {source.model.name!r}"
            at_once = None if self.count is None else self.at_once
            yield from in_order(self.executor, work, units, what, at_once)
        elif self.at_once == 1:
            yield from (source.draw(start, stop) for start, stop in units)
        else:
            draw = source.draw if self.timeout is None else work
            yield from _drawn_by_joblib(draw, units, self.at_once)

    def call(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], what: str
    ) -> list[Any]:
        """Call a function for each of several arguments; return the results in their order.

        Parameters
        ----------
        function
            What to call. It travels as bytes, and may be a lambda.
        arguments
            Of each call. They travel too.
        what
            What the function is, for messages.
        """
        if self.executor is not None:
            at_once = None if self.count is None else self.at_once
            return list(in_order(self.executor, function, arguments, what, at_once))
        if self.at_once == 1:
            return [function(*given) for given in arguments]
        import joblib

        parallel = joblib.Parallel(n_jobs=self.at_once, prefer="threads")
        return list(parallel(joblib.delayed(function)(*given) for given in arguments))


@dataclass(frozen=True)
class _Limit:
    """A time limit for a draw: seconds, the calls for the child process, and the process that asks for it."""

    seconds: float
    calls: Shipped
    caller: tuple[str, int]


@dataclass
class _Work:
    """What a worker of an executor does with a source."""

    source: Source
    limit: _Limit | None = None
    # Whether the simulator was seen not to use Python's global random numbers.
    follows_seed: bool = False

    def __call__(self, start: int, stop: int) -> Chunk:
        chunk = self.source.draw(start, stop, self._calls())
        if chunk.outside == ("random",):
            # Dask uses these too, in other threads of the worker. Draws that repeat do not depend on them.
            if not self.follows_seed:
                again = self.source.draw(start, start + self.source.block(start), self._calls())
                self.follows_seed = _begins_with(chunk, again)
            if self.follows_seed:
                chunk = replace(chunk, outside=())
        # Exceptions of other packages may not come back from another process, and their text always does.
        return chunk if chunk.failure is None else replace(chunk, failure=words(chunk.failure))

    def _calls(self) -> Calls | None:
        if self.limit is None:
            return None
        if (socket.gethostname(), os.getpid()) == self.limit.caller:
            # Some executors are threads without saying so, such as those of a Dask cluster in one process.
            raise _not_stoppable("the workers are threads of this process")
        return TimedCalls(self.source, self.limit.calls, self.limit.seconds)


def _not_stoppable(why: str) -> ValueError:
    return ValueError(
        f"timeout= needs workers that are processes, because only a process can be stopped, and here {why}. "
        "Give executor=concurrent.futures.ProcessPoolExecutor(2), or another executor of processes; or "
        "workers=2 inside \"with joblib.parallel_config(backend='loky'):\""
    )


def _joblib_uses_threads() -> bool:
    """Whether joblib's workers, as chosen by ``joblib.parallel_config``, are threads of this process."""
    from joblib.parallel import get_active_backend

    backend = get_active_backend(prefer="threads")[0]
    return bool(getattr(backend, "uses_threads", False)) or getattr(backend, "supports_sharedmem", False)


def _begins_with(chunk: Chunk, block: Chunk) -> bool:
    """Whether a chunk begins with the draws of a block."""
    if chunk.x is None or block.x is None:
        return chunk.x is block.x
    pairs = zip(arrays_of(chunk.x), arrays_of(block.x), strict=True)
    return all(np.array_equal(whole[: len(part)], part) for whole, part in pairs)


def _drawn_by_joblib(
    draw: Callable[[int, int], Chunk], units: Iterator[tuple[int, int]], workers: int
) -> Generator[Chunk]:
    import joblib

    # A task is a chunk: joblib must not put several together, since they have the right length already.
    parallel = joblib.Parallel(n_jobs=workers, prefer="threads", return_as="generator", batch_size=1)
    results = parallel(joblib.delayed(draw)(start, stop) for start, stop in units)
    try:
        # Not "yield from", which would close the results before the warnings are caught.
        for chunk in results:  # noqa: UP028
            yield chunk
    finally:
        with warnings.catch_warnings():
            # Joblib warns about results not used. That is intended once there are enough draws.
            warnings.simplefilter("ignore")
            results.close()


class WorkerError(RuntimeError):
    """A worker process died, and the draws cannot go on."""


def is_worker_death(error: BaseException) -> bool:
    """Whether an exception says that a worker process died (was killed, or crashed in compiled code).

    Python's executors and joblib's have one class for it; Dask's is recognised by its name, so that Dask need
    not be installed.

    Examples
    --------
    >>> is_worker_death(BrokenExecutor()), is_worker_death(ValueError())
    (True, False)
    """
    return isinstance(error, BrokenExecutor) or any(
        kind.__name__ in ("KilledWorker", "TerminatedWorkerError") for kind in type(error).__mro__
    )


def worker_error(model: str, start: int, error: BaseException, broken: Any = None) -> WorkerError:
    """Make the error for a worker that died again when its draws were repeated, or whose pool is `broken`."""
    times, advice = " twice", "Draw with workers=1 to see more, or in smaller chunks."
    if broken is not None:
        times, name = "", type(broken).__name__
        advice = f"{name} cannot be used after that: make a new one, and call simulate again."
    return WorkerError(
        f"a worker process died{times} in the chunk at draw {start:,} of model {model!r}: it was killed, "
        f"perhaps for its memory, or crashed ({type(error).__name__}). What was finished is kept if store= "
        f"was given. {advice}"
    )
