"""Helpers for the data of the problems: checks, conversion, chunks, random signs and orders."""

from collections.abc import Callable

import numpy as np

from evidencenet._common.arrays import Data


def positive(name: str, value: float) -> float:
    """Return the value if it is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def count(name: str, value: int, *, least: int = 1) -> int:
    """Return the value if it is a whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def array(x: Data) -> np.ndarray:
    """Return the batch if it is a single array."""
    if isinstance(x, dict):
        raise TypeError(f"x must be an array, got a dict with keys {sorted(x)}")
    return np.asarray(x)


def named_arrays(x: Data, names: tuple[str, ...] = ("x", "mask")) -> dict[str, np.ndarray]:
    """Return the batch if it is a dict with these keys; by default, a set of values with its mask."""
    if not isinstance(x, dict) or set(x) != set(names):
        given = f"a dict with keys {sorted(x)}" if isinstance(x, dict) else type(x).__name__
        wanted = ", ".join(map(repr, names[:-1])) + f" and {names[-1]!r}"
        raise TypeError(f"x must be a dict with the keys {wanted}, got {given}")
    return x


def rows(x: Data, shape: tuple[int, ...]) -> np.ndarray:
    """Return the batch as a float64 array of shape (n, *shape)."""
    x = array(x)
    if x.shape[1:] != shape or x.ndim == 0:
        raise ValueError(
            f"x must have shape {_expected(shape)}, got {x.shape}; for a single data set write x[None]"
        )
    return x.astype(np.float64)


def masked_rows(x: Data, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return values (n, size, d), zero where masked, and mask (n, size) of a batch of sets."""
    x = named_arrays(x)
    values = rows(x["x"], shape)
    mask = boolean(x["mask"], values.shape[:2])
    return np.where(mask[..., None], values, 0.0), mask


def boolean(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mask if it is boolean and has this shape."""
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(f"mask must be boolean of shape {shape}, got {mask.dtype} of shape {mask.shape}")
    return mask


def in_chunks(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, size: int) -> np.ndarray:
    """Apply the function to at most `size` rows at a time, so that memory stays bounded."""
    if len(x) <= size:
        return function(x)
    return np.concatenate([function(x[start : start + size]) for start in range(0, len(x), size)])


def flip_signs(rng: np.random.Generator, x: Data) -> np.ndarray:
    """Multiply each data set by +1 or −1 at random."""
    x = array(x)
    return x * signs(rng, (len(x),) + (1,) * (x.ndim - 1)).astype(x.dtype)


def shuffle(rng: np.random.Generator, x: Data) -> np.ndarray:
    """Put the values of each data set in a random order."""
    return rng.permuted(array(x), axis=1)


def shuffle_along(rng: np.random.Generator, x: np.ndarray, axis: int) -> np.ndarray:
    """Permute one axis of each data set at random; the entries of the other axes move with it."""
    shape = [1] * x.ndim
    shape[0], shape[axis] = x.shape[0], x.shape[axis]
    return np.take_along_axis(x, rng.random(shape).argsort(axis=axis), axis=axis)


def signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw +1 or −1, each with probability one half, int8."""
    return 2 * rng.integers(0, 2, size=shape, dtype=np.int8) - 1


def _expected(shape: tuple[int, ...]) -> str:
    return f"({', '.join(['n', *map(str, shape)])})" if shape else "(n,)"
