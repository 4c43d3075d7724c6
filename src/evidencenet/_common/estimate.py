"""`Estimate`: numbers with standard errors, from counts and from ranks too."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evidencenet._common import wording


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, or an array of numbers, and the standard error of each.

    Attributes
    ----------
    value, error
        Two floats, or two arrays of the same shape.

    Examples
    --------
    >>> print(Estimate(0.1234, 0.0123))
    0.123 ± 0.012
    """

    value: float | np.ndarray
    error: float | np.ndarray

    def __float__(self) -> float:
        return float(np.asarray(self.value).item())

    def __str__(self) -> str:
        pairs = zip(np.ravel(self.value), np.ravel(self.error), strict=True)
        return ", ".join(wording.with_error(float(value), float(error)) for value, error in pairs)

    def __repr__(self) -> str:
        return f"Estimate({self})"


def fraction(count: ArrayLike, n: ArrayLike) -> Estimate:
    """Estimate a probability from how many of n draws had the property.

    Parameters
    ----------
    count, n
        Two numbers, or arrays of the same shape, with 0 ≤ count ≤ n.

    Returns
    -------
    Estimate
        count/n, and the posterior standard deviation of the probability under a flat prior: √(pq/(n + 3))
        with p = (count + 1)/(n + 2). For many draws this is the binomial √(pq/n), but it is not 0 if no draw
        or every draw had the property. NaN where n = 0.

    Examples
    --------
    >>> print(fraction(25, 100), "and", fraction(0, 100))
    0.250 ± 0.043 and 0.0000 ± 0.0097
    """
    count, n = np.asarray(count, dtype=np.float64), np.asarray(n, dtype=np.float64)
    value = np.where(n > 0, count / np.where(n > 0, n, 1.0), np.nan)
    error = np.where(n > 0, np.sqrt((count + 1) * (n - count + 1) / (n + 3)) / (n + 2), np.nan)
    return Estimate(value, error) if value.ndim else Estimate(float(value), float(error))


def rank_p_value(value: ArrayLike, reference: ArrayLike) -> np.ndarray:
    """Return how often reference draws are at least as large as an observed value.

    Parameters
    ----------
    value
        Observed statistics, for example distances from the simulated data, any shape.
    reference
        The same statistic for n reference draws, shape (n,).

    Returns
    -------
    p_value
        (1 + number of `reference` ≥ `value`)/(1 + n), the shape of `value`. If a value was drawn like the
        reference, the probability of a p-value of at most u is at most u.

    Examples
    --------
    >>> rank_p_value([0.0, 2.5, 9.0], [1.0, 2.0, 3.0]).tolist()
    [1.0, 0.5, 0.25]
    """
    value, reference = np.asarray(value, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if reference.ndim != 1 or len(reference) == 0:
        raise ValueError(f"reference must be one-dimensional and not empty, got shape {reference.shape}.")
    if np.isnan(value).any() or np.isnan(reference).any():
        raise ValueError("value and reference must not contain NaN.")
    below = np.searchsorted(np.sort(reference), value, side="left")
    return np.asarray((1 + len(reference) - below) / (1 + len(reference)), dtype=np.float64)
