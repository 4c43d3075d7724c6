"""Tell whether a function has changed since it was last used, as far as its code and plain values show."""

import functools
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np


def fingerprint(*functions: Callable[..., Any] | None, changing: bool = False) -> str:
    """Identify functions by what they do: their code, and the plain values, functions and classes it uses.

    Comments, names of files and line numbers do not matter. Functions and classes that are in files of the
    user's are looked into, also if they are in other modules; those of installed packages count by their
    names. Equal fingerprints do not prove equal functions: what a function reads from files, for instance, is
    not seen.

    Parameters
    ----------
    functions
        Functions, methods, partial or jitted functions, classes, objects that can be called, or None.
    changing
        Whether lists, dicts, sets and attributes of objects count too. They may change from call to call, so
        this is for fingerprints that are compared before the first call.

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
        for part in _Parts(changing).of_callable(function):
            digest.update(part + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class _Parts:
    """Takes things apart into bytes; what was seen once is not looked into again."""

    changing: bool
    seen: set[int] = field(default_factory=set)
    # So that no other thing gets the identity of one that was seen.
    kept: list[Any] = field(default_factory=list)

    def is_new(self, thing: Any) -> bool:
        if id(thing) in self.seen:
            return False
        self.seen.add(id(thing))
        self.kept.append(thing)
        return True

    def of_callable(self, thing: Any) -> Iterator[bytes]:
        """Give the parts of anything that can be called."""
        if thing is None:
            return
        if isinstance(thing, functools.partial):
            yield from self.of_callable(thing.func)
            yield from self.of_value((*thing.args, *sorted(thing.keywords.items())))
        elif isinstance(thing, MethodType):
            yield from self.of_callable(thing.__func__)
            yield from self.of_object(thing.__self__)
        elif isinstance(thing, FunctionType):
            if self.is_new(thing):
                yield from self.of_function(thing)
        elif isinstance(thing, type):
            if self.is_new(thing):
                yield from self.of_class(thing)
        elif callable(inner := getattr(thing, "__wrapped__", None)):
            # A function inside jax.jit, functools.cache and the like.
            if self.is_new(thing):
                yield from self.of_callable(inner)
        elif hasattr(thing, "__name__"):
            yield _named(thing)
        else:
            yield from self.of_object(thing)

    def of_function(self, function: FunctionType) -> Iterator[bytes]:
        yield from self.of_code(function.__code__)
        used = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
        used += [function.__defaults__, tuple(sorted((function.__kwdefaults__ or {}).items()))]
        names = tuple(_names(function.__code__))
        used += [function.__globals__[name] for name in names if name in function.__globals__]
        for value in used:
            yield from self.of_used(value, function.__module__, names)

    def of_used(self, value: Any, module: str, names: tuple[str, ...]) -> Iterator[bytes]:
        """Give the parts of what a function uses; of a module of the user's, what it uses of that."""
        yield from self.of_value(value)
        if isinstance(value, ModuleType):
            if _is_users(value.__name__):
                for name in names:
                    if not isinstance(part := getattr(value, name, None), ModuleType):
                        yield from self.of_used(part, module, ())
        elif (where := _module(value)) is not None and (where == module or _is_users(where)):
            yield from self.of_callable(value)
        elif callable(value):
            yield _named(value)

    def of_class(self, kind: type) -> Iterator[bytes]:
        """Give the methods and plain attributes of a class, and of its bases that are the user's."""
        for base in kind.__mro__:
            if base.__module__ != kind.__module__ and not _is_users(base.__module__):
                yield _named(base)
                continue
            for name, value in sorted(vars(base).items()):
                for function in _functions_of(value):
                    yield name.encode()
                    yield from self.of_callable(function)
                if not name.startswith("__"):
                    yield from self.of_value(value)

    def of_object(self, thing: Any) -> Iterator[bytes]:
        """Give the class of an object, and its fields if it is a record."""
        if type(thing).__module__ == "builtins" or not self.is_new(thing):
            return
        yield type(thing).__qualname__.encode()
        yield from self.of_callable(type(thing))
        if is_dataclass(thing):
            parts = {item.name: getattr(thing, item.name, None) for item in fields(thing)}
        else:
            parts = getattr(thing, "__dict__", {}) if self.changing else {}
        for name, value in parts.items():
            yield name.encode()
            yield from self.of_value(value)
            if callable(value):
                yield from self.of_callable(value)

    def of_code(self, code: CodeType) -> Iterator[bytes]:
        yield code.co_code
        yield repr(code.co_names).encode()
        for constant in code.co_consts:
            yield from self.of_code(constant) if isinstance(constant, CodeType) else self.of_value(constant)

    def of_value(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, str | bytes | int | float | complex | np.generic | None):
            yield repr(value).encode()
        elif isinstance(value, tuple):
            yield f"tuple of {len(value)}".encode()
            for item in value:
                yield from self.of_value(item)
        elif isinstance(value, frozenset):
            yield repr(sorted(map(repr, value))).encode()
        elif not isinstance(value, type) and hasattr(value, "__array__") and hasattr(value, "dtype"):
            # An array of NumPy or of JAX. Keys of random numbers cannot be turned into a plain array.
            with suppress(Exception):
                array = np.asarray(value)
                if array.dtype != object:
                    yield repr((array.dtype, array.shape)).encode() + array.tobytes()
        elif self.changing and isinstance(value, list | dict | set) and self.is_new(value):
            yield f"{type(value).__name__} of {len(value)}".encode()
            if isinstance(value, set):
                yield repr(sorted(map(repr, value))).encode()
            else:
                for item in value.items() if isinstance(value, dict) else value:
                    yield from self.of_value(item)


def _functions_of(value: Any) -> list[Any]:
    """Return the functions in an attribute of a class: a method, a property, or what Equinox makes of one."""
    candidates = [value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "method"))]
    return [function for function in candidates if isinstance(function, FunctionType)]


def _module(value: Any) -> str | None:
    """Return the module that a function, class or object was defined in."""
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else None


@cache
def _is_users(module: str) -> bool:
    """Whether a module is the user's: neither Python's, nor an installed package, nor a part of this one."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] == __name__.partition(".")[0]:
        return False
    place = Path(file).resolve()
    if {"site-packages", "dist-packages"} & set(place.parts):
        return False
    return not any(place.is_relative_to(Path(folder).resolve()) for folder in _installed())


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths)


def _named(thing: Any) -> bytes:
    """Name what cannot be looked into, or belongs to others."""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", type(thing).__qualname__)
    return f"{_module(thing)}.{name}".encode()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
