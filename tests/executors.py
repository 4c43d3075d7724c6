"""An executor of someone else, for tests."""

import pickle
from collections.abc import Callable
from concurrent.futures import Future
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
