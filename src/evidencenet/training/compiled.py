"""Compile each program once: most trainings of a call differ only in their data."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax

# Programs that are kept, the most recently used ones. A call of `train` needs about a dozen.
_MOST = 64
_programs: OrderedDict[Any, Future[Any]] = OrderedDict()
_lock = threading.Lock()


def compiled(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    """Compile a function for arguments like these, or return the program if it was compiled before.

    Parameters
    ----------
    function
        A function of JAX arrays.
    arguments
        Arguments of the shapes and types that it will be called with.
    options
        Options of `jax.jit`.
    """
    lowered = jax.jit(function, **options).lower(*arguments)
    # Programs with the same text still differ if the structure of their arguments differs. Equinox tells
    # states of batch normalisation apart by identity, so programs with these are never found again.
    key = (lowered.as_text(), jax.tree.structure(arguments))
    with _lock:
        try:
            program = _programs.get(key)
        except (TypeError, ValueError):
            # A user's module may hold something that cannot be compared, such as an array that is not a leaf.
            return lowered.compile()
        is_new = program is None
        if program is None:
            program = _programs[key] = Future()
        _programs.move_to_end(key)
        while len(_programs) > _MOST:
            _programs.popitem(last=False)
    if is_new:
        try:
            program.set_result(lowered.compile())
        except BaseException as error:
            with _lock:
                _programs.pop(key, None)
            program.set_exception(error)
    return program.result()
