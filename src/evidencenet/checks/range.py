"""The validated range of log K: where held-out draws can confirm or refute it, and the bound beyond it."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidencenet._common import wording
from evidencenet.checks.coverage import check_log_k
from evidencenet.checks.scores import of_pair

# A bound holds with this confidence, and so it stays this many standard errors away: 97.5% of a normal law
# lie above its mean − 1.96 standard deviations.
CONFIDENCE = 0.975
_ERRORS = 1.96


@dataclass(frozen=True)
class Bound:
    """A bound on natural log K, which holds with 97.5% confidence.

    Attributes
    ----------
    value
        The bound, natural log.
    above
        True: log K is larger than `value`. False: it is smaller.
    """

    value: float
    above: bool

    def text(self, *, unit: float = 1.0, decimals: int = 1) -> str:
        """Write it in units of `unit` nats, rounded so that less is claimed, such as "> 4.3"."""
        return wording.bound(self.value / unit, above=self.above, decimals=decimals)

    def __str__(self) -> str:
        return f"log K {self.text()}"


@dataclass(frozen=True)
class Range:
    """The validated range: natural log K from `low` to `high`, which held-out draws can confirm or refute.

    If `empty` is True they can do so for no log K, and `low` and `high` are 0. `n` is the number of draws of
    each model, `least` how many of each lie at or beyond each end. Known densities give infinite ends.
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

    def bound(self, log_k: float, error: float) -> Bound | None:
        """Return the bound that holds for a log K beyond the range; None inside it, or if it is `empty`.

        Parameters
        ----------
        log_k, error
            The estimate and its standard error; NaN if that is not known.

        Notes
        -----
        The bound is the end of the range that log K lies beyond, or, where the estimate is near it, the
        estimate less 1.96 standard errors: of log K, and of `end_error`, to which the draws at the end
        confirm it. If the error of log K is not known, there is only the second. Over twelve trainings on
        three problems, 0.02% of such bounds were false, and none within 0.3 of the end; of the ends
        themselves, 5% to 71% were false there.
        """
        if self.empty or self.contains(log_k):
            return None
        both = self.end_error if np.isnan(error) else float(np.hypot(self.end_error, error))
        if log_k > self.high:
            return Bound(min(self.high, log_k - _ERRORS * both), above=True)
        return Bound(max(self.low, log_k + _ERRORS * both), above=False)

    @property
    def end_error(self) -> float:
        """The error to which the draws at the ends confirm log K there, 1/√least; 0 for known densities."""
        return 1 / float(np.sqrt(self.least)) if self.least > 0 else 0.0

    @property
    def unlimited(self) -> bool:
        """Whether it holds log K of any size, because a density is known."""
        return bool(np.isinf(self.low) and np.isinf(self.high))

    def reversed(self) -> "Range":
        """Return the same range for the inverse Bayes factor."""
        # 0.0 − x instead of −x, because −0.0 would be printed as such.
        return replace(self, low=0.0 - self.high, high=0.0 - self.low, n=self.n[::-1])

    def moved(self, shift: float) -> "Range":
        """Return the range of log K + shift."""
        return self if self.empty else replace(self, low=self.low + shift, high=self.high + shift)

    def __str__(self) -> str:
        draws = f"{self.n[0]:,} + {self.n[1]:,} held-out draws"
        if self.unlimited:
            return "The validated range has no ends: densities are known."
        if self.empty:
            return f"The validated range is empty: of {draws}, fewer than {self.least} of each model overlap."
        ends = f"natural log K from {wording.fixed(self.low)} to {wording.fixed(self.high)}"
        return f"Validated range: {ends}, by {draws}."


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
    by_model = [np.sort(log_k[labels == model]) for model in (0, 1)]
    n = (len(by_model[0]), len(by_model[1]))
    if min(n) < least:
        return Range(0.0, 0.0, n, least, empty=True)
    low = max(float(values[least - 1]) for values in by_model)
    high = min(float(values[-least]) for values in by_model)
    if low > high:
        return Range(0.0, 0.0, n, least, empty=True)
    return Range(low, high, n, least, empty=False)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Log K of held-out draws against model 0, (n, K), as the network gives it, and their models, (n,).

    `plain` says which of them are plain draws of the models, (n,), and not rare draws; None if all are.
    """

    log_k: np.ndarray
    label: np.ndarray
    plain: np.ndarray | None = None

    def without_rare(self) -> "HeldOut":
        """Leave out the rare draws."""
        if self.plain is None:
            return self
        return HeldOut(self.log_k[self.plain], self.label[self.plain])

    def range(self, model: int, against: int) -> Range:
        """Return the validated range of log K of two models."""
        return validated_range(*of_pair(self.log_k, self.label, model, against))
