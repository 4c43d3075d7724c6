"""Arguments that many functions take: whole numbers, and the seed."""

import numbers
import secrets
import warnings
from typing import Any

from evidencenet._common.warnings import InputWarning

# Seeds that are drawn have at most nine digits: easy to copy, and two of a thousand agree once in 2,000.
_LARGEST_SEED = 10**9


def whole(name: str, value: Any, least: int) -> int:
    """Return a whole number that is at least `least`; 1e5 is one too.

    Examples
    --------
    >>> whole("n", 1e5, 1)
    100000
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value != value // 1:
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    number: Any = value
    return int(number)


def checked_seed(seed: Any, *, stacklevel: int = 3) -> int:
    """Return a seed; for None, draw one and say which in a warning `stacklevel` calls up."""
    if seed is None:
        seed = secrets.randbelow(_LARGEST_SEED)
        warnings.warn(
            f"seed=None: the seed {seed} was drawn. Give seed={seed} to get the same result again.",
            InputWarning,
            stacklevel=stacklevel,
        )
    return whole("seed", seed, 0)
