"""Executors of someone else, for tests."""

import pickle
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any


class Pickling:
    """It has submit() alone, and pickles all that passes, as those of other processes and machines do."""

    def __init__(self) -> None:
        self.tasks = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.tasks += 1
        future: Future[Any] = Future()
        try:
            called, given = pickle.loads(pickle.dumps((function, arguments)))
            future.set_result(pickle.loads(pickle.dumps(called(*given))))
        except Exception as error:
            future.set_exception(error)
        return future


class Dying:
    """A pool whose processes die: the first so many calls, or for ever, as Python's own pool does."""

    def __init__(self, times: int, *, broken: bool = False) -> None:
        self.left, self.pool, self._broken = times, Pickling(), broken

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        self.left -= 1
        if self.left < 0:
            return self.pool.submit(function, *arguments)
        future: Future[Any] = Future()
        future.set_exception(BrokenExecutor())
        return future
