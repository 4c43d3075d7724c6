"""What a network says of draws that it was not trained on."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidencenet.checks.coverage import check_log_k


@dataclass(frozen=True)
class Range:
    """The natural-log Bayes factors from `low` to `high` that held-out draws can vouch for.

    If `empty` is True they vouch for none, and `low` and `high` are 0. `n` is the number of draws of each
    model, `least` how many of each lie at or beyond each end. Infinite ends are those of known densities.
    """

    low: float
    high: float
    n: tuple[int, int]
    least: int
    empty: bool

    def contains(self, log_k: ArrayLike) -> NDArray[np.bool_]:
        """Say of each log K, any shape, whether it lies in the range."""
        log_k = np.asarray(log_k, dtype=np.float64)
        return np.asarray((log_k >= self.low) & (log_k <= self.high) & (not self.empty))

    def confirmed(self, log_k: float) -> float:
        """Return what is confirmed of a log K: itself, the end it lies beyond, or NaN if `empty`."""
        return float("nan") if self.empty else min(max(log_k, self.low), self.high)

    @property
    def unlimited(self) -> bool:
        """Whether it holds log K of any size, since a density is known."""
        return bool(np.isinf(self.low) and np.isinf(self.high))

    def reversed(self) -> "Range":
        """Return the same range for the inverse Bayes factor."""
        # 0.0 − x, because −0.0 would be printed as such.
        return replace(self, low=0.0 - self.high, high=0.0 - self.low, n=self.n[::-1])

    def __str__(self) -> str:
        draws = f"{self.n[0]:,} + {self.n[1]:,} held-out draws"
        if self.unlimited:
            return "Natural log K of any size is vouched for, by known densities."
        if self.empty:
            return f"No log K is vouched for by {draws}: fewer than {self.least} of each model overlap."
        return f"Natural log K from {self.low:.2f} to {self.high:.2f} is vouched for by {draws}."


def validated_range(log_k: ArrayLike, labels: ArrayLike, *, least: int = 10) -> Range:
    """Find the range of log K in which held-out draws can confirm or refute it.

    A claim log K = L > 0 says that model 0 yields such data exp(L) times more rarely than model 1. Only draws
    of model 0 with log K ≥ L can check it, and of n0 draws fewer than n0·exp(−L) are expected there. So
    `high` is the largest L such that at least `least` draws of *each* model have log K ≥ L, and `low` the
    smallest such that at least `least` of each have log K ≤ `low`. Ten draws at the ends check log K there to
    about 1/√10 ≈ 0.3. Values outside are extrapolated; a passed coverage test says nothing about them.

    Parameters
    ----------
    log_k
        Natural log of p(x|M1)/p(x|M0) for each held-out draw, shape (n,).
    labels
        Model each draw came from, 0 or 1, shape (n,).
    least
        Draws of each model wanted at or beyond each end.

    Returns
    -------
    Range
        Empty if either model has fewer than `least` draws, or if the models overlap too little.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 5000)
    >>> x = np.random.default_rng(1).normal(loc=labels)
    >>> validated_range(x - 0.5, labels).contains([1.0, 30.0])
    array([ True, False])
    """
    log_k, labels = check_log_k(log_k, labels)
    if least < 1:
        raise ValueError(f"least must be at least 1, got {least}.")
    sides = [np.sort(log_k[labels == model]) for model in (0, 1)]
    n = (len(sides[0]), len(sides[1]))
    if min(n) < least:
        return Range(0.0, 0.0, n, least, empty=True)
    low = max(float(side[least - 1]) for side in sides)
    high = min(float(side[-least]) for side in sides)
    if low > high:
        return Range(0.0, 0.0, n, least, empty=True)
    return Range(low, high, n, least, empty=False)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Log K of held-out draws against model 0, (n, K), as the network sees them, and their models (n,).

    `plain` says which of them are of the models as they are, (n,), and not rare draws; None if all are.
    """

    log_k: np.ndarray
    label: np.ndarray
    plain: np.ndarray | None = None

    def without_rare(self) -> "HeldOut":
        """Leave out the rare draws."""
        if self.plain is None:
            return self
        return HeldOut(self.log_k[self.plain], self.label[self.plain])

    def range(self, above: int, below: int) -> Range:
        """Return the log K of two models that these draws can vouch for."""
        pair = (self.label == above) | (self.label == below)
        return validated_range(self.log_k[pair, above] - self.log_k[pair, below], self.label[pair] == above)
