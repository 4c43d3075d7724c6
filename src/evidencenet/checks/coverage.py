"""The blind coverage test: whether model probabilities match how often each model occurs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, expit, gammainc, gammaincc, logit

from evidencenet._common.display import by_row, frame

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Binning = Literal["width", "count", "log_odds"]
# Neighbouring bins are merged up to this sum of p(1 − p): with less, counts are too far from normal.
_LEAST_VARIANCE = 5.0
# Beyond these log-odds a single wrong label would decide the test of the line. `_surprises` tests them.
_LARGEST_LOG_ODDS = 8.0
# Eigenvalues of the covariance, scaled to 1, below this are directions in which the labels cannot scatter:
# far above the rounding of double precision, far below any scatter of labels.
_NO_SCATTER = 1e-9
# The j-th most surprising draw is tested for these j. Doubling them covers few and many surprises with five
# tests only.
_SURPRISES = (1, 2, 4, 8, 16)
# Given fixed numbers of draws, this times 1/√(draws of the rarer model) of the rest of the variance is added
# back. Without it, false alarms rose from 1% to 4% with 10 draws of one model.
_CAUTION = 4.0


@dataclass(frozen=True, eq=False)
class Coverage:
    """Result of `coverage`. Arrays have one entry for each of the b bins that hold data.

    Attributes
    ----------
    edges
        Lower and upper edge of each bin in the probability of model 1, shape (b, 2).
    count
        Draws in each bin, shape (b,). They add up to `n`.
    predicted
        Mean predicted probability of model 1, shape (b,).
    observed
        Fraction of draws that came from model 1, shape (b,).
    low, high
        Exact (Clopper–Pearson) interval of that fraction at `level`, shape (b,).
    expected_std
        Standard deviation of `observed` if the predictions are right, sqrt(Σ p(1 − p))/count, shape (b,).
    residual
        (observed − predicted)/expected_std, shape (b,). Not normal in bins with few expected exceptions.
    mean_residual, std_residual
        Mean and standard deviation of the residuals, near 0 and 1 if the predictions are right. Neighbouring
        bins are first merged until Σ p(1 − p) ≥ 5. NaN where fewer than one (two) such bins remain.
    p_value
        The verdict as one number: three times the smallest of the next three, at most 1.
    p_bins
        Chi-square of the residuals over the merged bins.
    p_line
        Test against a straight-line error, log K → a + b·log K.
    p_surprises
        Test for too many draws from a model that was given a small probability.
    passed
        Whether `p_value` is at least `alpha`.
    alpha, level, n, binning, prior
        The arguments of `coverage`; `prior` is the prior probability of model 1 that was used.
    """

    edges: Array
    count: NDArray[np.int64]
    predicted: Array
    observed: Array
    low: Array
    high: Array
    expected_std: Array
    residual: Array
    mean_residual: float
    std_residual: float
    p_value: float
    p_bins: float
    p_line: float
    p_surprises: float
    passed: bool
    alpha: float
    level: float
    n: int
    binning: str
    prior: float

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        lines = [
            f"Blind coverage test {verdict}: p-value {self.p_value:.2g} (must be at least {self.alpha:g}), "
            f"{self.n} draws, prior p(M1) = {self.prior:.3g}.",
            f"Parts: bins {self.p_bins:.2g}, straight line {self.p_line:.2g}, "
            f"surprises {self.p_surprises:.2g}. "
            f"Rescaled residuals: {_moments_text(self.mean_residual, self.std_residual)}.",
            f"{'log-odds' if self.binning == 'log_odds' else 'p(M1|x)':>18}{'draws':>9}{'predicted':>11}"
            f"{'observed':>11}{f'{100 * self.level:g}% interval':>21}{'residual':>10}",
        ]
        edges = logit(self.edges) if self.binning == "log_odds" else self.edges
        for i, (left, right) in enumerate(edges):
            interval = f"{self.low[i]:.3g} to {self.high[i]:.3g}"
            lines.append(
                f"{f'{left:.3g} to {right:.3g}':>18}{self.count[i]:>9}{self.predicted[i]:>11.4g}"
                f"{self.observed[i]:>11.4g}{interval:>21}{self.residual[i]:>10.2f}"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row a bin: its edges, draws, predicted and observed fraction, interval and residual."""
        names = ("count", "predicted", "observed", "low", "high", "expected_std", "residual")
        columns = {name: getattr(self, name) for name in names}
        left, right = self.edges.T
        return frame(by_row({"bin": range(len(left)), "from": left, "to": right} | columns), "bin")

    def plot(self, axis: "Axes | None" = None) -> "Axes":
        """Draw observed fraction against predicted probability; see `evidencenet.report.plots.coverage`."""
        from evidencenet.report import plots

        return plots.coverage(self, axis)


def coverage(
    log_k: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 20,
    binning: Binning = "width",
    prior: float | None = None,
    level: float = 0.95,
    alpha: float = 0.01,
) -> Coverage:
    """Check log Bayes factors, from any code, on draws whose model is known.

    Draws are binned by the posterior probability of model 1, and in each bin the mean of that probability is
    compared with the fraction of draws that did come from model 1. Exact log K passes with a probability of
    about 1 − `alpha` or more.

    Parameters
    ----------
    log_k
        Natural log of p(x|M1)/p(x|M0) for each held-out draw, shape (n,). ±inf states certainty: a single
        draw on the wrong side of it gives a p-value of 0.
    labels
        Model each draw came from, 0 or 1, shape (n,). Both must occur.
    bins
        Number of bins asked for. Empty ones are left out of the result.
    binning
        "width": equal widths in probability. "count": about equal numbers of draws, equal predictions kept
        together. "log_odds": equal widths in log-odds up to ±log n, the outermost bins open.
    prior
        Probability of model 1 with which the label of each draw was chosen at random. None (default) takes
        the draws' own mix, n1/n: right however n1 was chosen. With equal numbers, p = K/(1 + K).
    level
        Probability content of the intervals.
    alpha
        The test passes if its p-value is at least this.

    Returns
    -------
    Coverage
        Bins, p-value and verdict. Print it, or call its `plot`.

    Notes
    -----
    Three tests share the verdict, and the smallest of their p-values is multiplied by three:

    1. The chi-square of the bins' residuals, over bins merged until each has Σ p(1 − p) ≥ 5.
    2. The score test of an intercept and a slope of the log-odds (clipped to ±8), which sees a common shift
       or stretch of log K well before single bins do.
    3. Surprises, draws from the model given the smaller probability q: the 1st, 2nd, 4th, 8th and 16th most
       surprising, each against the Poisson probability of so many where Σ q are expected. This judges
       extreme probabilities, where no chi-square holds.

    With `prior=None` the number of draws of each model counts as fixed. Then residuals Σ w(m − p), for any
    weight w(x), have covariance Σ ww'v − gg'·n/(Σp Σ(1−p)) with v = p(1 − p) and g = Σ wv; the second term is
    absent if labels were chosen at random with a known `prior`, and taken smaller where draws are few. The
    p-value errs on the safe side: at a nominal 5%, exact log K fails in about 1% to 5% of cases, and hardly
    ever if the models are so different that almost every probability is 0 or 1.

    Coverage sees neither how much was learned (log K = 0 for all draws passes) nor errors of log K where no
    draws of the disfavoured model fall. `checks.score` and `checks.validated_range` do.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> labels = np.repeat([0, 1], 5000)
    >>> x = rng.normal(loc=labels)  # N(0, 1) against N(1, 1)
    >>> coverage(x - 0.5, labels).passed, coverage(2 * (x - 0.5), labels).passed
    (True, False)
    """
    log_k, labels = check_log_k(log_k, labels)
    _check_options(bins, binning, prior, level, alpha)
    n = len(labels)
    fraction = labels.mean() if prior is None else float(prior)
    log_odds = log_k + logit(fraction)
    p, q = expit(log_odds), expit(-log_odds)  # q is kept apart because 1 − p loses small values
    variance = p * q
    deviation = np.where(labels == 1, q, -p)

    lower_edges, upper_edges, index = _BINNINGS[binning](log_odds, bins)
    filled, index, count = np.unique(index, return_inverse=True, return_counts=True)
    total_variance, total_deviation, ones = (_sums(index, of) for of in (variance, deviation, labels))
    low, high = _clopper_pearson(ones, count, level)

    group = _merge(total_variance, _LEAST_VARIANCE)
    group_residual = np.zeros(0)
    p_bins = p_line = 1.0
    if total_variance.sum() >= _LEAST_VARIANCE:
        merged_variance = _sums(group, total_variance)
        merged_deviation = _sums(group, total_deviation)
        group_residual = merged_deviation / np.sqrt(merged_variance)
        fixed = 0.0 if prior is not None else _fixed_by_numbers(p, q, labels)
        p_bins = _chi_square(merged_deviation, np.diag(merged_variance), merged_variance, fixed)
        clipped = np.clip(log_odds, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
        features = np.stack([np.ones(n), clipped - np.average(clipped, weights=variance)])
        p_line = _chi_square(
            features @ deviation, (features * variance) @ features.T, features @ variance, fixed
        )
    p_surprises = _surprises(log_odds, labels)
    p_value = min(1.0, 3.0 * min(p_bins, p_line, p_surprises))

    return Coverage(
        edges=np.stack([lower_edges, upper_edges], axis=1)[filled],
        count=count.astype(np.int64),
        predicted=_sums(index, p) / count,
        observed=ones / count,
        low=low,
        high=high,
        expected_std=np.sqrt(total_variance) / count,
        residual=_ratio(total_deviation, np.sqrt(total_variance)),
        mean_residual=float(group_residual.mean()) if len(group_residual) > 0 else float("nan"),
        std_residual=float(group_residual.std(ddof=1)) if len(group_residual) > 1 else float("nan"),
        p_value=p_value,
        p_bins=p_bins,
        p_line=p_line,
        p_surprises=p_surprises,
        passed=p_value >= alpha,
        alpha=alpha,
        level=level,
        n=n,
        binning=binning,
        prior=float(fraction),
    )


def check_log_k(log_k: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """Return log K (n,) and labels (n,) of two models as arrays, or say what is wrong with them."""
    log_k, given = np.asarray(log_k, dtype=np.float64), np.asarray(labels)
    if log_k.ndim != 1 or given.shape != log_k.shape:
        raise ValueError(
            f"log_k and labels must be one-dimensional and of equal length, got shapes {log_k.shape} and "
            f"{given.shape}; pass one log Bayes factor and one label for each draw."
        )
    if len(log_k) == 0:
        raise ValueError("log_k and labels are empty; pass held-out draws of both models.")
    if np.isnan(log_k).any():
        raise ValueError(
            f"log_k has {np.isnan(log_k).sum()} NaN among {len(log_k)} values; "
            "remove failed draws from log_k and labels, and account for them in log K."
        )
    if not np.isin(given, (0, 1)).all():
        raise ValueError(f"labels must be 0 or 1, got {np.unique(given)[:5]}; pick the draws of two models.")
    checked = given.astype(np.int64)
    if checked.min() == checked.max():
        raise ValueError(f"all labels are {checked[0]}; the check needs draws of both models, 0 and 1.")
    return log_k, checked


def _check_options(bins: int, binning: str, prior: float | None, level: float, alpha: float) -> None:
    if bins < 1 or bins != int(bins):
        raise ValueError(f"bins must be a whole number of at least 1, got {bins}.")
    if binning not in get_args(Binning):
        raise ValueError(f"binning must be one of {', '.join(get_args(Binning))}, got {binning!r}.")
    for name, value in {"prior": prior, "level": level, "alpha": alpha}.items():
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {value}.")


def _by_width(log_odds: Array, bins: int) -> tuple[Array, Array, NDArray[np.intp]]:
    edges = np.linspace(0.0, 1.0, bins + 1)
    return edges[:-1], edges[1:], np.searchsorted(edges[1:-1], expit(log_odds), side="right")


def _by_log_odds(log_odds: Array, bins: int) -> tuple[Array, Array, NDArray[np.intp]]:
    # Beyond ±log n less than one exception is expected among n draws.
    largest = np.log(len(log_odds))
    inner = np.linspace(-largest, largest, bins + 1)[1:-1]
    edges = np.concatenate([[0.0], expit(inner), [1.0]])
    return edges[:-1], edges[1:], np.searchsorted(inner, log_odds, side="right")


def _by_count(log_odds: Array, bins: int) -> tuple[Array, Array, NDArray[np.intp]]:
    # Cutting at values, not at ranks, keeps equal predictions in one bin; log-odds still tell apart
    # predictions that round to the same probability 1.
    ordered = np.sort(log_odds)
    inner = np.unique(ordered[np.arange(1, bins) * len(ordered) // bins])
    index = np.searchsorted(inner, log_odds, side="right")
    edges = expit(np.concatenate([ordered[:1], inner, ordered[-1:]]))
    return edges[:-1], edges[1:], index


_BINNINGS: dict[str, Callable[[Array, int], tuple[Array, Array, NDArray[np.intp]]]] = {
    "width": _by_width,
    "count": _by_count,
    "log_odds": _by_log_odds,
}


def _sums(index: NDArray[np.intp], of: NDArray[Any]) -> Array:
    return np.bincount(index, weights=of).astype(np.float64)


def _merge(variance: Array, least: float) -> NDArray[np.intp]:
    """Return the group of each bin, so that neighbours join until each group's variance reaches `least`."""
    group = np.zeros(len(variance), dtype=np.intp)
    current, total = 0, 0.0
    for i, value in enumerate(variance):
        if total >= least:
            current, total = current + 1, 0.0
        group[i] = current
        total += value
    if total < least:  # what is left at the end joins its neighbour
        group[group == current] = max(current - 1, 0)
    return group


def _fixed_by_numbers(p: Array, q: Array, labels: NDArray[np.int64]) -> float:
    """Return the factor of gg' by which given numbers of each model lower the covariance of residuals."""
    factor = len(p) / (p.sum() * q.sum())
    share = factor * np.sum(p * q)  # of the variance of Σ(m − p); 1 if all predictions are equal
    # The rest, 1 − share, is estimated from these draws. It is too small if the tail of a skewed log K is
    # missing from them, and so it is enlarged.
    caution = _CAUTION / np.sqrt(np.bincount(labels).min())
    return float(factor * max(0.0, 1 - caution * (1 - share) / share))


def _chi_square(deviation: Array, covariance: Array, g: Array, fixed: float) -> float:
    """P-value of weighted residuals `deviation` with the covariance `covariance` − fixed·gg'."""
    scale = np.sqrt(np.diag(covariance))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh((covariance - fixed * np.outer(g, g)) / np.outer(scale, scale))
    # Where nothing can scatter, the floor makes a true deviation fail, and lets rounding pass.
    projected = vectors.T @ (deviation / scale)
    statistic = np.sum(projected**2 / np.maximum(values, _NO_SCATTER))
    freedom = max(int(np.sum(values > _NO_SCATTER)), 1)
    return float(gammaincc(freedom / 2, statistic / 2))


def _surprises(log_odds: Array, labels: NDArray[np.int64]) -> float:
    """P-value of the draws that came from the model with the smaller probability."""
    size = np.abs(log_odds)
    surprising = np.sort(size[(log_odds > 0) != (labels == 1)])[::-1]
    ordered = np.sort(-size)
    expected = np.concatenate([[0.0], np.cumsum(expit(ordered))])
    best = 1.0
    for j in _SURPRISES:
        if j > len(surprising):
            break
        # All draws at least as extreme as the j-th surprise count, ties included. The Poisson tail bounds
        # that of a sum of independent labels wherever it is small.
        total = expected[np.searchsorted(ordered, -surprising[j - 1], side="right")]
        best = min(best, float(gammainc(j, total)))
    return min(1.0, len(_SURPRISES) * best)


def _clopper_pearson(ones: Array, count: NDArray[Any], level: float) -> tuple[Array, Array]:
    tail = (1 - level) / 2
    zeros = count - ones
    low = np.where(ones > 0, betaincinv(np.maximum(ones, 1), zeros + 1, tail), 0.0)
    high = np.where(zeros > 0, betaincinv(ones + 1, np.maximum(zeros, 1), 1 - tail), 1.0)
    return low, high


def _ratio(deviation: Array, spread: Array) -> Array:
    """Residuals, with 0/0 = 0 for certain predictions that were right."""
    safe = np.where(spread > 0, spread, 1.0)
    return np.where(
        spread > 0, deviation / safe, np.where(deviation == 0, 0.0, np.copysign(np.inf, deviation))
    )


def _moments_text(mean: float, std: float) -> str:
    if np.isnan(std):
        return "too few uncertain draws for their mean and standard deviation"
    return f"mean {mean:.2f} (wanted 0), standard deviation {std:.2f} (wanted 1)"
