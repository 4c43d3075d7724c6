"""Log K as the statistic of a frequentist test: p-values, thresholds, power, ROC."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from evidencenet._common.arrays import index_of, kind_of
from evidencenet._common.display import by_row, card, frame
from evidencenet._common.estimate import Estimate, fraction, rank_p_value
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.simulation.dataset import Simulations, check_draws

if TYPE_CHECKING:
    import pandas

# Sizes that are told on printing, if at least so many draws of the null lie beyond.
_SIZES, _LEAST_BEYOND = (0.1, 0.05, 0.01, 0.001), 10


@dataclass(frozen=True, eq=False)
class Roc:
    """The power of the test at each size, all of shape (points,).

    Attributes
    ----------
    size
        Probability to reject a true null.
    threshold
        Natural log K beyond which it is rejected.
    power, error
        Probability to reject the null under the alternative, and its standard error.
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
        The function from data to log K that `p_value` applies; None if it is to be given log K itself.

    Notes
    -----
    The test is one-sided: by the meaning of K, only a large log K speaks for the alternative. By Neyman and
    Pearson's lemma no test of the same size has more power, on average over the prior of the alternative.
    Size and p-values hold for the function log K as it is, exact or not: a poor network loses power, but the
    test stays valid, provided that the draws were not used to train it.
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
        """Make a test of log Bayes factors from any code.

        Parameters
        ----------
        log_k_null, log_k_alternative
            Natural log of p(x|alternative)/p(x|null) for draws of each model, shapes (n,) and (m,).
        names
            Of the null and the alternative.
        statistic
            ``statistic(x)`` gives log K of data, shape (n,). Without it `p_value` takes log K.

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
            raise ValueError(f"names must be those of the null and of the alternative, got {names!r}.")
        sides = [
            _checked(side, log_k)
            for side, log_k in (("log_k_null", log_k_null), ("log_k_alternative", log_k_alternative))
        ]
        return HypothesisTest((names[0], names[1]), *sides, statistic=statistic)

    def p_value(self, x: Any) -> Estimate:
        """Return how often data of the null have at least as large a log K.

        Parameters
        ----------
        x
            Observations, as for the network: (n, ...), or a single one; log K if there is no `statistic`.

        Returns
        -------
        Estimate
            (1 + r)/(1 + n) for r of n draws of the null, shape of log K: never below 1/(1 + n), and at most u
            with a probability of at most u if the null is true. With its binomial error.
        """
        log_k = np.asarray(x if self.statistic is None else self.statistic(x), dtype=np.float64)
        value = rank_p_value(log_k, self.null)
        n = len(self.null)
        return Estimate(value, fraction(value * (n + 1) - 1, np.full(value.shape, n)).error)

    def threshold(self, size: ArrayLike) -> Estimate:
        """Return the log K beyond which the null is rejected, for a probability `size` of a false alarm.

        Parameters
        ----------
        size
            Between 0 and 1, a number or an array; 1/(n + 1) or more for n draws of the null.

        Returns
        -------
        Estimate
            The same null is rejected by log K > threshold as by p-value ≤ size. The error is from the number
            of draws of the null.
        """
        place, reach = self._places(size)
        lower, upper = self._around(place, reach)
        return _estimate(self._at(place), np.abs(self._at(lower) - self._at(upper)) * reach / (upper - lower))

    def power(self, size: ArrayLike) -> Estimate:
        """Return the probability to reject the null if the alternative is true.

        Parameters
        ----------
        size
            Probability to reject a true null, as for `threshold`.

        Returns
        -------
        Estimate
            On average over the prior of the alternative, with the binomial error of its draws and what the
            error of the threshold adds.
        """
        place, reach = self._places(size)
        lower, upper = self._around(place, reach)
        beyond = self._beyond(place)
        binomial = fraction(beyond, np.full(beyond.shape, len(self.alternative)))
        per_place = (self._beyond(upper) - self._beyond(lower)) / len(self.alternative) / (upper - lower)
        return _estimate(np.asarray(binomial.value), np.hypot(binomial.error, per_place * reach))

    def roc(self, points: int = 200) -> Roc:
        """Return power against size, at sizes from 1/(n + 1) to n/(n + 1) in steps of equal ratio or length.

        Parameters
        ----------
        points
            At most so many of each kind of step.
        """
        if points < 2:
            raise ValueError(f"points = {points}; wanted 2 or more.")
        n = len(self.null)
        places = np.unique(np.rint(np.r_[np.geomspace(1, n, points), np.linspace(1, n, points)]))
        size = places / (n + 1)
        threshold, power = self.threshold(size), self.power(size)
        return Roc(size, np.asarray(threshold.value), np.asarray(power.value), np.asarray(power.error))

    @property
    def auc(self) -> Estimate:
        """The area under the ROC: how often the alternative has the larger log K, ties counting one half.

        The error is that of DeLong, DeLong & Clarke-Pearson (1988).
        """
        above, below = _ranks(self.null, self.alternative), 1 - _ranks(self.alternative, self.null)
        variance = sum(part.var(ddof=1) / len(part) for part in (above, below))
        return Estimate(float(above.mean()), float(np.sqrt(variance)))

    def __str__(self) -> str:
        return "\n".join([self._title(), *(f"  {name:<16} {text}" for name, text in self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows())

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the points of `roc`, by size: threshold, power, and its error."""
        return frame(by_row(vars(self.roc())), "size")

    def plot(self, axes: Any = None, *, observed: float | None = None) -> Any:
        """Draw log K under each model, with that observed, and the ROC, on two axes; returns them."""
        from evidencenet.report import plots

        return plots.hypothesis_test(self, axes, observed=observed)

    def _title(self) -> str:
        draws = f"{len(self.null):,} + {len(self.alternative):,} draws"
        return f"Test of {self.names[0]} (null) against {self.names[1]} by log K, on {draws}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            (f"size {size:g}", f"reject if log K > {self.threshold(size)}; power {self.power(size)}")
            for size in _SIZES
            if size * (len(self.null) + 1) >= _LEAST_BEYOND
        ]
        rows.append(("area under ROC", str(self.auc)))
        return [*rows, ("least p-value", f"{1 / (1 + len(self.null)):.2g}, by the number of draws")]

    def _places(self, size: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Which draw of the null, counted from the largest, is the threshold; and the error of that."""
        size, n = np.asarray(size, dtype=np.float64), len(self.null)
        if not ((size > 0) & (size < 1)).all():
            raise ValueError(f"size = {size}; wanted a probability between 0 and 1.")
        # 0.05 · 20 may fall short of 1 in floating point.
        places = np.floor(size * (n + 1) + 1e-9)
        if places.min() < 1:
            raise ValueError(
                f"size = {size.min():g} is too small for {n:,} draws of the null; wanted 1/{n + 1:,} or "
                f"more, or {int(np.ceil(1 / size.min())) - 1:,} draws."
            )
        return places, np.sqrt(n * size * (1 - size))

    def _around(self, place: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(place - np.maximum(reach, 1), 1), np.minimum(
            place + np.maximum(reach, 1), len(self.null)
        )

    def _at(self, place: np.ndarray) -> np.ndarray:
        """Log K of draws of the null, counted from the largest; between two, on the line through them."""
        n = len(self.null)
        return np.interp(n - place, np.arange(n), self.null)

    def _beyond(self, place: np.ndarray) -> np.ndarray:
        """How many draws of the alternative are beyond such a threshold."""
        return len(self.alternative) - np.searchsorted(self.alternative, self._at(place), side="right")


def hypothesis_test(
    net: EvidenceNetwork, sims: Simulations, *, model: int | str = 1, against: int | str = 0
) -> HypothesisTest:
    """Use log K of a network as the statistic of a frequentist test of one model, the null.

    Parameters
    ----------
    net
        The network.
    sims
        Draws that were *not* used in training, of the same models in the same order. Of weighted draws a part
        of equal weight is taken.
    model, against
        The alternative and the null, each by label or by name.

    Returns
    -------
    HypothesisTest
        Print it for thresholds and power; `p_value`, `threshold`, `power`, `roc`, `auc`, `plot`.

    Notes
    -----
    Size, power and p-values are among data that exist: draws that failed are left out. Who counts a failed
    draw as one that does not reject multiplies size and power by ``sims.valid_fraction`` of the null and of
    the alternative. Log K itself holds the chance to fail, which is the same for all data, so that no
    p-value depends on it.

    Examples
    --------
    >>> test = hypothesis_test(net, simulate([flat, trend], 20_000, seed=4))  # doctest: +SKIP
    >>> print(test.p_value(x_observed), test.power(0.05))  # doctest: +SKIP
    """
    if not isinstance(net, EvidenceNetwork):
        raise TypeError(
            f"hypothesis_test(net, sims) wanted a network made by train or load, got {kind_of(net)}. For log "
            "Bayes factors from elsewhere use HypothesisTest.of(log_k_null, log_k_alternative)."
        )
    check_draws("hypothesis_test", sims, net.names)
    above, below = index_of(model, net.names), index_of(against, net.names)
    if above == below:
        raise ValueError(f"a model cannot be tested against itself: both are {net.names[above]!r}.")
    fair = sims.of_equal_weight()

    def log_k(x: Any) -> np.ndarray:
        return net.log_bayes_factor(x, model=above, against=below)

    return HypothesisTest.of(
        log_k(fair.of(below)),
        log_k(fair.of(above)),
        names=(net.names[below], net.names[above]),
        statistic=log_k,
    )


def _checked(what: str, log_k: ArrayLike) -> np.ndarray:
    values = np.asarray(log_k, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(
            f"{what} must hold log K of two draws or more, shape (n,), got shape {values.shape}."
        )
    if np.isnan(values).any():
        raise ValueError(f"{what} is NaN for {np.isnan(values).sum()} of {len(values)} draws.")
    return np.sort(values)


def _estimate(value: np.ndarray, error: np.ndarray) -> Estimate:
    return Estimate(value, error) if value.ndim else Estimate(float(value), float(error))


def _ranks(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Fraction of a sorted reference below each value, ties counting one half."""
    sides = (np.searchsorted(reference, values, side=side) for side in ("left", "right"))
    return sum(sides, np.zeros(len(values))) / (2 * len(reference))
