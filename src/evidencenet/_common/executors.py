"""Send work to any executor: functions travel as bytes, and results come back in order.

An executor is anything with ``submit(function, *arguments)`` that returns a future: the process pools of
Python, Dask's, those of MPI or of a batch system. Most of them pickle the function, which fails for a lambda.
So the function is turned into bytes here, by cloudpickle, and the executor only sees these bytes.
"""

import contextlib
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from evidencenet._common.arrays import kind_of
from evidencenet._common.processors import processors

# So many tasks for each worker are under way: one that runs, and one that waits for the worker.
_TASKS_PER_WORKER = 2
# While the first of several tasks takes long, results of others may wait for it, of so many bytes.
_MOST_WAITING = 2**28
# A cluster may grow and shrink. The number of its workers is asked again after so many seconds.
_SECONDS_BETWEEN_COUNTS = 5.0


class ShippingError(TypeError):
    """A function cannot be sent to a worker, or a worker cannot load it."""


@dataclass(frozen=True)
class Shipped:
    """A function as bytes, which any process can call that has the same packages.

    Parameters
    ----------
    content
        What `ship` made of the function.
    what
        What it is, for messages.
    """

    content: bytes
    what: str

    def __call__(self, *arguments: Any) -> bytes:
        """Call the function, on a worker; return the result, or what was raised, as bytes."""
        try:
            function = _loaded(self.content)
        except Exception as error:
            return _packed(False, self._not_loaded(error))
        try:
            return _packed(True, function(*arguments))
        except Exception as error:
            error.add_note(f"On the worker:\n{traceback.format_exc()}")
            return _packed(False, error)

    def _not_loaded(self, error: Exception) -> Exception:
        advice = ""
        if isinstance(error, ModuleNotFoundError):
            advice = (
                f" Install {error.name!r} on the workers, or call "
                f"cloudpickle.register_pickle_by_value({error.name}) before, to send its code along."
            )
        return ShippingError(
            f"a worker cannot load {self.what}: {type(error).__name__}: {error}. Workers need the same "
            f"packages as this process.{advice}"
        )


def ship(function: Callable[..., Any], what: str) -> Shipped:
    """Turn a function into bytes, also a lambda or one of the main script.

    Parameters
    ----------
    function
        The function, with all that it refers to.
    what
        What it is, for messages, such as ``"model 'flat'"``.

    Raises
    ------
    ShippingError
        It refers to something that exists only in this process.
    """
    try:
        return Shipped(_cloudpickle().dumps(function), what)
    except Exception as error:
        raise ShippingError(
            f"{what} cannot be sent to another process: {error}. It refers to something that exists only "
            "here, such as an open file, a lock or a connection. Open that inside the function, or use "
            "threads: workers=2 without executor=."
        ) from error


@contextlib.contextmanager
def sent_along(module: ModuleType) -> Iterator[None]:
    """While this lasts, `ship` sends the code of a module along, which workers could not import."""
    _cloudpickle().register_pickle_by_value(module)
    try:
        yield
    finally:
        _cloudpickle().unregister_pickle_by_value(module)


def unpacked(content: bytes) -> Any:
    """Return the result that a call of `Shipped` gave, or raise what was raised there."""
    succeeded, result = _cloudpickle().loads(content)
    if succeeded:
        return result
    raise result


def in_order(
    executor: Any,
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    what: str,
    workers: int | None = None,
) -> Generator[Any]:
    """Call a function for each of many arguments, in an executor; give the results in their order.

    The arguments are taken only when there is a worker for them: at most two tasks for each worker wait or
    run. Results wait for those before them, of at most 256 MB, so one task that takes long does not stop the
    others, and memory stays bounded. Tasks that wait are cancelled when the generator is closed.

    Parameters
    ----------
    executor
        Anything with ``submit``; see `checked_executor`.
    function
        What to call.
    arguments
        Of each call.
    what
        What the function is, for messages.
    workers
        How many calls at the same time; by default as many as the executor has workers.

    Examples
    --------
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(pool, lambda a, b: a + b, [(1, 2), (3, 4)], "the sum"))
    [3, 7]
    """
    # Threads see the same objects, so nothing needs to travel.
    here = isinstance(executor, ThreadPoolExecutor)
    task: Callable[..., Any] = function if here else ship(function, what)
    coming: Iterator[tuple[Any, ...]] = iter(arguments)
    under_way: deque[Future[Any]] = deque()
    most = _Places(executor, workers)
    ended = False
    try:
        while True:
            while not ended and _has_room(under_way, most()):
                given = next(coming, None)
                ended = given is None
                if given is not None:
                    under_way.append(_submitted(executor, task, given))
            if not under_way:
                return
            if under_way[0].done() or ended:
                result = under_way.popleft().result()
                yield result if here else unpacked(result)
            else:
                # The first may take long. Meanwhile, workers that have finished get more to do.
                _wait_for_one(under_way)
    finally:
        for future in under_way:
            future.cancel()


def _submitted(executor: Any, task: Callable[..., Any], given: tuple[Any, ...]) -> Future[Any]:
    try:
        future: Future[Any] = executor.submit(task, *given)
    except RuntimeError as error:
        if "after shutdown" not in str(error):
            raise
        raise RuntimeError(
            f"the {type(executor).__name__} is shut down already. Make the call inside its with block, or "
            "give a new one."
        ) from error
    return future


def _has_room(under_way: Collection[Future[Any]], workers: int) -> bool:
    """Whether another task may be submitted: workers have too little to do, and memory is not too full."""
    finished = [future for future in under_way if future.done()]
    if len(under_way) - len(finished) >= _TASKS_PER_WORKER * workers:
        return False
    if len(finished) < _TASKS_PER_WORKER * workers:
        return True
    if any(future.cancelled() or future.exception() is not None for future in finished):
        return False
    # Results wait for the first task, which takes long. Those of threads are no bytes, and few may wait.
    results = [future.result() for future in finished]
    return all(isinstance(result, bytes) for result in results) and sum(map(len, results)) < _MOST_WAITING


def _wait_for_one(under_way: Collection[Future[Any]]) -> None:
    """Wait until a task that runs has ended."""
    running = [future for future in under_way if not future.done()]
    if all(isinstance(future, Future) for future in running):
        wait(running, return_when=FIRST_COMPLETED)
    else:
        # A future of another kind can only be waited for by itself; what it raises is raised later.
        with contextlib.suppress(Exception):
            running[0].result()


class _Places:
    """How many workers an executor has, asked from time to time."""

    def __init__(self, executor: Any, workers: int | None) -> None:
        self._executor, self._fixed = executor, workers
        self._count, self._asked = 1, -float("inf")

    def __call__(self) -> int:
        if self._fixed is not None:
            return self._fixed
        if time.monotonic() - self._asked > _SECONDS_BETWEEN_COUNTS:
            self._count, self._asked = places(self._executor), time.monotonic()
        return self._count


def places(executor: Any) -> int:
    """Return how many tasks an executor runs at the same time, as far as it tells; else one per processor."""
    client = getattr(executor, "_client", None)  # Dask
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(client.nthreads().values()))
    # Python's and joblib's pools, executorlib, MPI.
    for name in ("_max_workers", "max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    return processors()


def checked_executor(executor: Any) -> Any:
    """Return an executor; a Dask client gives its own. Raise for what has no ``submit``."""
    if isinstance(executor, type):
        raise TypeError(
            f"executor is the class {executor.__name__}; wanted an instance, such as {executor.__name__}(4)"
        )
    if hasattr(executor, "get_executor"):
        return executor.get_executor()
    if callable(getattr(executor, "submit", None)):
        return executor
    if isinstance(executor, int):
        raise TypeError(
            f"executor={executor!r}; wanted an object with submit(). For so many workers on this machine, "
            f"give simulate(workers={executor})"
        )
    if isinstance(executor, str):
        raise TypeError(
            f"executor={executor!r}; wanted an object with submit(), such as "
            "concurrent.futures.ProcessPoolExecutor(4) or Client(address).get_executor() of Dask"
        )
    raise TypeError(
        f"executor is {kind_of(executor)}, which has no submit(); wanted a concurrent.futures.Executor, such "
        "as ProcessPoolExecutor(4), or Client(address).get_executor() of Dask"
    )


@lru_cache(maxsize=8)
def _loaded(content: bytes) -> Callable[..., Any]:
    """Return the function; loaded once in a process, so that what it compiles is compiled once."""
    function: Callable[..., Any] = _cloudpickle().loads(content)
    return function


def _packed(succeeded: bool, result: Any) -> bytes:
    try:
        content: bytes = _cloudpickle().dumps((succeeded, result))
    except Exception as error:
        kind = "result" if succeeded else type(result).__name__
        text = f"a worker cannot send its {kind} back: {error}" + ("" if succeeded else f". It was: {result}")
        content = _cloudpickle().dumps((False, ShippingError(text)))
    return content


def _cloudpickle() -> Any:
    """Return cloudpickle; joblib brings a copy of its own."""
    try:
        import cloudpickle
    except ImportError:
        from joblib.externals import cloudpickle
    return cloudpickle
