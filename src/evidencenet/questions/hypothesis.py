"""`hypothesis_test`: a frequentist test with log K as its statistic; p-values, thresholds, power, ROC."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from evidencenet._common.arrays import index_of, kind_of
from evidencenet._common.display import by_row, card, frame
from evidencenet._common.estimate import Estimate, fraction, rank_p_value
from evidencenet._common.harmless import harmless
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.simulation.dataset import Simulations, check_draws

if TYPE_CHECKING:
    import pandas

# The usual sizes of tests, which are printed; each only if at least ten draws of the null lie beyond its
# threshold, so that the size of the test is known to a third (1/√10).
_SIZES, _LEAST_BEYOND = (0.1, 0.05, 0.01, 0.001), 10
# size · (n + 1) can fall short of a whole number by rounding, such as 0.05 · 20.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Roc:
    """The power of the test at each size; all arrays have the shape (points,).

    Attributes
    ----------
    size
        Probability of rejecting the null if it is true.
    threshold
        Natural log K above which the null is rejected.
    power, error
        Probability of rejecting the null if the alternative is true, and its standard error.
    """

    size: np.ndarray
    threshold: np.ndarray
    power: np.ndarray
    error: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class HypothesisTest:
    """A test that rejects the null model if log K is large; made by `hypothesis_test` or `of`.

    Attributes
    ----------
    names
        The null and the alternative.
    null, alternative
        Natural log K, alternative against null, of draws of each model, in increasing order.
    statistic
        The function from data to log K that `p_value` uses; None if `p_value` takes log K itself.

    Notes
    -----
    The test is one-sided: only a large log K favours the alternative. By the lemma of Neyman and Pearson, no
    test of the same size has more power, on average over the prior of the alternative. Sizes and p-values
    are right even if log K is not exact: a poor network loses power, but the test stays valid, provided
    that the draws were not used to train the network.
    """

    names: tuple[str, str]
    null: np.ndarray
    alternative: np.ndarray
    statistic: Callable[[Any], np.ndarray] | None = field(default=None, kw_only=True)

    @staticmethod
    def of(
        log_k_null: ArrayLike,
        log_k_alternative: ArrayLike,
        *,
        names: tuple[str, str] = ("M0", "M1"),
        statistic: Callable[[Any], np.ndarray] | None = None,
    ) -> "HypothesisTest":
        """Make a test from log Bayes factors that any code computed.

        Parameters
        ----------
        log_k_null, log_k_alternative
            Natural log of p(x|alternative)/p(x|null) for draws of each model, shapes (n,) and (m,).
        names
            The names of the null and of the alternative.
        statistic
            ``statistic(x)`` returns log K of data, shape (n,). Without it, `p_value` takes log K.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(1)
        >>> x0, x1 = rng.normal(size=9_999), rng.normal(1.0, size=9_999)
        >>> test = HypothesisTest.of(x0 - 0.5, x1 - 0.5)  # N(0, 1) against N(1, 1)
        >>> print(test.power(0.05))  # exact: 0.2595
        0.2588 ± 0.0089
        """
        if len(names) != 2 or isinstance(names, str):
            raise ValueError(f"names must hold two names, of the null and of the alternative, got {names!r}.")
        sides = [
            _checked(side, log_k)
            for side, log_k in (("log_k_null", log_k_null), ("log_k_alternative", log_k_alternative))
        ]
        return HypothesisTest((names[0], names[1]), *sides, statistic=statistic)

    def p_value(self, x: Any) -> Estimate:
        """Return how often data of the null have a log K that is at least as large.

        Parameters
        ----------
        x
            Observations, as for the network: (n, ...), or a single one; log K if there is no `statistic`.

        Returns
        -------
        Estimate
            (1 + r)/(1 + n) if r of the n draws of the null have such a log K, with its binomial error; the
            shape is that of log K. It is never below 1/(1 + n). If the null is true, the probability that it
            is at most u is at most u.
        """
        log_k = np.asarray(x if self.statistic is None else self.statistic(x), dtype=np.float64)
        value = rank_p_value(log_k, self.null)
        n = len(self.null)
        return Estimate(value, fraction(value * (n + 1) - 1, np.full(value.shape, n)).error)

    def threshold(self, size: ArrayLike) -> Estimate:
        """Return the log K above which the null is rejected, for a probability `size` of a false alarm.

        Parameters
        ----------
        size
            Between 0 and 1, a number or an array; at least 1/(n + 1) for n draws of the null.

        Returns
        -------
        Estimate
            log K > threshold rejects the null exactly if p-value ≤ size does. The error comes from the
            limited number of draws of the null.
        """
        rank, rank_error = self._ranks(size)
        lower, upper = self._around(rank, rank_error)
        error = np.abs(self._at(lower) - self._at(upper)) * rank_error / (upper - lower)
        return _estimate(self._at(rank), error)

    def power(self, size: ArrayLike) -> Estimate:
        """Return the probability of rejecting the null if the alternative is true.

        Parameters
        ----------
        size
            Probability of rejecting the null if it is true, as for `threshold`.

        Returns
        -------
        Estimate
            The average over the prior of the alternative. The error combines the binomial error of the draws
            of the alternative and the error of the threshold.
        """
        rank, rank_error = self._ranks(size)
        lower, upper = self._around(rank, rank_error)
        beyond = self._beyond(rank)
        binomial = fraction(beyond, np.full(beyond.shape, len(self.alternative)))
        per_rank = (self._beyond(upper) - self._beyond(lower)) / len(self.alternative) / (upper - lower)
        return _estimate(np.asarray(binomial.value), np.hypot(binomial.error, per_rank * rank_error))

    def roc(self, points: int = 200) -> Roc:
        """Return power against size, at sizes from 1/(n + 1) to n/(n + 1).

        Parameters
        ----------
        points
            The largest number of sizes in steps of equal ratio; the same number again is in steps of equal
            length.
        """
        if points < 2:
            raise ValueError(f"points = {points}; wanted 2 or more.")
        n = len(self.null)
        ranks = np.unique(np.rint(np.r_[np.geomspace(1, n, points), np.linspace(1, n, points)]))
        size = ranks / (n + 1)
        threshold, power = self.threshold(size), self.power(size)
        return Roc(size, np.asarray(threshold.value), np.asarray(power.value), np.asarray(power.error))

    @property
    def auc(self) -> Estimate:
        """The area under the ROC: how often a draw of the alternative has the larger log K of two draws.

        Ties count one half. The error is that of DeLong, DeLong & Clarke-Pearson (1988).
        """
        above = _fraction_below(self.null, self.alternative)
        below = 1 - _fraction_below(self.alternative, self.null)
        variance = sum(part.var(ddof=1) / len(part) for part in (above, below))
        return Estimate(float(above.mean()), float(np.sqrt(variance)))

    def __str__(self) -> str:
        return "\n".join([self._title(), *(f"  {name:<16} {text}" for name, text in self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows())

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the points of `roc` as a table: size, threshold, power, and its error."""
        return frame(by_row(vars(self.roc())), "size")

    def plot(self, axes: Any = None, *, observed: float | None = None) -> Any:
        """Draw log K under each model (with the observed one, if given) and the ROC; returns the two axes."""
        from evidencenet.report import plots

        return plots.hypothesis_test(self, axes, observed=observed)

    def _title(self) -> str:
        draws = f"{len(self.null):,} + {len(self.alternative):,} draws"
        return (
            f"Test of {harmless(self.names[0])} (null) against {harmless(self.names[1])} by log K, on {draws}"
        )

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            (f"size {size:g}", f"reject if log K > {self.threshold(size)}; power {self.power(size)}")
            for size in _SIZES
            if size * (len(self.null) + 1) >= _LEAST_BEYOND
        ]
        rows.append(("area under ROC", str(self.auc)))
        return [
            *rows,
            ("smallest p-value", f"{1 / (1 + len(self.null)):.2g}, limited by the number of draws"),
        ]

    def _ranks(self, size: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Which draw of the null, counted from the largest, is the threshold; and the error of this rank."""
        size, n = np.asarray(size, dtype=np.float64), len(self.null)
        if not ((size > 0) & (size < 1)).all():
            raise ValueError(f"size = {size}; wanted a probability between 0 and 1.")
        rank = np.floor(size * (n + 1) + _ROUNDING)
        if rank.min() < 1:
            raise ValueError(
                f"size = {size.min():g} is too small for {n:,} draws of the null; wanted a size of "
                f"at least 1/{n + 1:,}, or {int(np.ceil(1 / size.min())) - 1:,} draws."
            )
        return rank, np.sqrt(n * size * (1 - size))

    def _around(self, rank: np.ndarray, rank_error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ranks one error, and at least one draw, to either side."""
        step = np.maximum(rank_error, 1)
        return np.maximum(rank - step, 1), np.minimum(rank + step, len(self.null))

    def _at(self, rank: np.ndarray) -> np.ndarray:
        """Log K of the draw of the null with this rank from the top; between two draws, interpolated."""
        n = len(self.null)
        return np.interp(n - rank, np.arange(n), self.null)

    def _beyond(self, rank: np.ndarray) -> np.ndarray:
        """How many draws of the alternative lie above the threshold of this rank."""
        return len(self.alternative) - np.searchsorted(self.alternative, self._at(rank), side="right")


def hypothesis_test(
    net: EvidenceNetwork, sims: Simulations, *, model: int | str = 1, against: int | str = 0
) -> HypothesisTest:
    """Make a frequentist test of one model, the null, with a network's log K as the statistic.

    Parameters
    ----------
    net
        The network.
    sims
        Draws that were *not* used in training, of the same models in the same order. Weighted draws are first
        thinned to draws of equal weight.
    model, against
        The alternative and the null, each by label or by name.

    Returns
    -------
    HypothesisTest
        Print it for thresholds and power. It has `p_value`, `threshold`, `power`, `roc`, `auc` and `plot`.

    Notes
    -----
    Failed draws are left out of sizes, power and p-values. To count failed draws as non-rejections, multiply
    the size by ``sims.valid_fraction`` of the null and the power by that of the alternative. The valid
    fractions shift log K of all data by the same constant, so they change no p-value.

    Examples
    --------
    >>> test = hypothesis_test(net, simulate([flat, trend], 20_000, seed=4))  # doctest: +SKIP
    >>> print(test.p_value(x_observed), test.power(0.05))  # doctest: +SKIP
    """
    if not isinstance(net, EvidenceNetwork):
        raise TypeError(
            f"hypothesis_test(net, sims) wanted a network made by train or load, got {kind_of(net)}. For log "
            "Bayes factors from other code use HypothesisTest.of(log_k_null, log_k_alternative)."
        )
    check_draws("hypothesis_test", sims, net.names)
    above, below = index_of(model, net.names), index_of(against, net.names)
    if above == below:
        raise ValueError(f"a model cannot be tested against itself: both are {net.names[above]!r}.")
    equal_weight = sims.of_equal_weight()

    def log_k(x: Any) -> np.ndarray:
        return net.log_bayes_factor(x, model=above, against=below)

    return HypothesisTest.of(
        log_k(equal_weight.of(below)),
        log_k(equal_weight.of(above)),
        names=(net.names[below], net.names[above]),
        statistic=log_k,
    )


def _checked(what: str, log_k: ArrayLike) -> np.ndarray:
    values = np.asarray(log_k, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(
            f"{what} must hold log K of two or more draws, shape (n,), got shape {values.shape}."
        )
    if np.isnan(values).any():
        raise ValueError(f"{what} is NaN for {np.isnan(values).sum()} of {len(values)} draws.")
    return np.sort(values)


def _estimate(value: np.ndarray, error: np.ndarray) -> Estimate:
    return Estimate(value, error) if value.ndim else Estimate(float(value), float(error))


def _fraction_below(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Fraction of the ordered numbers that lie below each value; ties count one half."""
    sides = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return sum(sides, np.zeros(len(values))) / (2 * len(ordered))
