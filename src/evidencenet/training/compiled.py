"""Compile each program once: trainings differ in their data more often than in what is computed."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax

# Programs that are kept, the last ones used; a call of `train` needs a dozen.
_MOST = 64
_programs: OrderedDict[Any, Future[Any]] = OrderedDict()
_lock = threading.Lock()


def compiled(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    """Compile a function for arguments like these, or return what the very same program was compiled to.

    Parameters
    ----------
    function
        Of JAX arrays.
    arguments
        Of the shapes and kinds that it will be called with.
    options
        Of `jax.jit`.
    """
    lowered = jax.jit(function, **options).lower(*arguments)
    # Programs of the same text still differ if their arguments are taken apart in another way. Equinox tells
    # states of batch normalisation apart by identity, so that these are never found again.
    key = (lowered.as_text(), jax.tree.structure(arguments))
    with _lock:
        try:
            program = _programs.get(key)
        except (TypeError, ValueError):
            # A module of the user's may hold what cannot be compared, such as an array that is no leaf.
            return lowered.compile()
        mine = program is None
        if program is None:
            program = _programs[key] = Future()
        _programs.move_to_end(key)
        while len(_programs) > _MOST:
            _programs.popitem(last=False)
    if mine:
        try:
            program.set_result(lowered.compile())
        except BaseException as error:
            with _lock:
                _programs.pop(key, None)
            program.set_exception(error)
    return program.result()
