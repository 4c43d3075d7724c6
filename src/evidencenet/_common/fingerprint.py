"""Tell whether a function has changed since it was last used, as far as its code and plain values show."""

import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np


def fingerprint(*functions: Callable[..., Any] | None) -> str:
    """Identify functions by what they do: their code, and the plain values, functions and classes it uses.

    Comments, names of files and line numbers do not matter. Functions and classes of other modules are not
    looked into, nor are lists, dicts and other objects that may change from call to call: equal fingerprints
    do not prove equal functions.

    Parameters
    ----------
    functions
        Functions, methods, partial or jitted functions, classes, objects that can be called, or None.

    Returns
    -------
    str
        A SHA-256 hash, the same in every process with this version of Python.

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
        for part in _callable(function, set()):
            digest.update(part + b"\0")
    return digest.hexdigest()


def _callable(thing: Any, seen: set[int]) -> Iterator[bytes]:
    """Give the parts of anything that can be called; nothing for what cannot be looked into."""
    if thing is None or id(thing) in seen:
        return
    if isinstance(thing, functools.partial):
        yield from _callable(thing.func, seen)
        yield from _value((*thing.args, *sorted(thing.keywords.items())))
    elif isinstance(thing, MethodType):
        yield from _callable(thing.__func__, seen)
        yield from _object(thing.__self__, seen)
    elif isinstance(thing, FunctionType):
        seen.add(id(thing))
        yield from _function(thing, seen)
    elif isinstance(thing, type):
        seen.add(id(thing))
        yield from _class(thing, seen)
    elif callable(inner := getattr(thing, "__wrapped__", None)):
        # A function inside jax.jit, functools.cache and the like.
        seen.add(id(thing))
        yield from _callable(inner, seen)
    elif not hasattr(thing, "__name__"):
        yield from _object(thing, seen)


def _function(function: FunctionType, seen: set[int]) -> Iterator[bytes]:
    yield from _code(function.__code__)
    used = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    used += [function.__defaults__, tuple(sorted((function.__kwdefaults__ or {}).items()))]
    used += [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    for value in used:
        yield from _value(value)
        if _module(value) == function.__module__:
            yield from _callable(value, seen)


def _class(kind: type, seen: set[int]) -> Iterator[bytes]:
    """Give the methods and plain attributes of a class, and of its bases in the same module."""
    for base in kind.__mro__:
        if base.__module__ != kind.__module__:
            continue
        for name, value in sorted(vars(base).items()):
            for function in _functions_of(value):
                yield name.encode()
                yield from _callable(function, seen)
            if not name.startswith("__"):
                yield from _value(value)


def _functions_of(value: Any) -> list[Any]:
    """Return the functions in an attribute of a class: a method, a property, or what Equinox makes of one."""
    candidates = [value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "method"))]
    return [function for function in candidates if isinstance(function, FunctionType)]


def _object(thing: Any, seen: set[int]) -> Iterator[bytes]:
    """Give the class of an object, and its fields if it is a record."""
    if type(thing).__module__ == "builtins" or id(thing) in seen:
        return
    seen.add(id(thing))
    yield type(thing).__qualname__.encode()
    yield from _callable(type(thing), seen)
    for item in fields(thing) if is_dataclass(thing) else ():
        value = getattr(thing, item.name, None)
        yield item.name.encode()
        yield from _value(value)
        if callable(value):
            yield from _callable(value, seen)


def _module(value: Any) -> str | None:
    """Return the module that a function, class or object was defined in."""
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else None


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
