"""Tell the death of a worker process from an exception of a simulator."""

from concurrent.futures import BrokenExecutor


class WorkerError(RuntimeError):
    """A worker process died twice on the same draws."""


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


def worker_error(model: str, start: int, error: BaseException) -> WorkerError:
    """Make the error for a worker that died again when its draws were repeated."""
    return WorkerError(
        f"a worker process died twice in the chunk at draw {start:,} of model {model!r}: it was killed, "
        f"perhaps for its memory, or crashed ({type(error).__name__}). What was finished is kept if store= "
        "was given. Draw with workers=1 to see more, or in smaller chunks."
    )
