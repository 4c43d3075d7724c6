"""Tell whether a function has changed since it was last used, as far as its code and plain values show."""

import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np


def fingerprint(*functions: Callable[..., Any] | None) -> str:
    """Identify functions by what they do: their code, and the plain values and functions that it uses.

    Comments, names of files and line numbers do not matter. Functions of other modules are not looked into,
    nor are lists, dicts and other objects that may change from call to call: equal fingerprints do not prove
    equal functions.

    Examples
    --------
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    # Each version of Python compiles in its own way.
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for function in functions:
        for part in _function(function, set()):
            digest.update(part + b"\0")
    return digest.hexdigest()


def _function(function: Any, seen: set[int]) -> Iterator[bytes]:
    if isinstance(function, functools.partial):
        yield from _function(function.func, seen)
        yield from _value((*function.args, *sorted(function.keywords.items())))
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    yield from _code(function.__code__)
    used = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    used += [function.__defaults__, tuple(sorted((function.__kwdefaults__ or {}).items()))]
    used += [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    for value in used:
        yield from _value(value)
        if getattr(value, "__module__", None) == function.__module__:
            yield from _function(value, seen)


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else _value(constant)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _value(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield repr((value.dtype, value.shape)).encode() + value.tobytes()
    elif isinstance(value, str | bytes | int | float | complex | np.generic | None):
        yield repr(value).encode()
    elif isinstance(value, tuple):
        for item in value:
            yield from _value(item)
    elif isinstance(value, frozenset):
        yield repr(sorted(map(repr, value))).encode()
