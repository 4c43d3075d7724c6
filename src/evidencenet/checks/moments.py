"""Two means that exact log Bayes factors must reproduce: Turing–Good moments, and mean probabilities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, expit, logsumexp

from evidencenet.checks.coverage import check_log_k
from evidencenet.checks.scores import Array, check_log_odds, error_of_mean

# Differences of two means of order one below this are rounding in double precision.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class TuringGood:
    """The two means that must agree, E0[K^½] and E1[K^−½], as natural logs.

    Attributes
    ----------
    log_mean_0, error_0
        Log of the mean of K^½ over draws of model 0, and its standard error.
    log_mean_1, error_1
        Log of the mean of K^−½ over draws of model 1, and its standard error.
    z
        Difference of the two means, the first minus the second, over its standard error.
    p_value
        Two-sided, from `z`.
    effective
        Each mean is as uncertain as one of (Σw)²/Σw² equal terms; this is the smaller of the two numbers.
        Below about 100, single draws decide, and `z` is not normal.
    """

    log_mean_0: float
    error_0: float
    log_mean_1: float
    error_1: float
    z: float
    p_value: float
    effective: float

    def __str__(self) -> str:
        return (
            f"Turing–Good check: log E0[K^½] = {self.log_mean_0:.4f} ± {self.error_0:.4f}, "
            f"log E1[K^−½] = {self.log_mean_1:.4f} ± {self.error_1:.4f}; "
            f"z = {self.z:.2f}, p-value {self.p_value:.2g}."
        )


def turing_good(log_k: ArrayLike, labels: ArrayLike) -> TuringGood:
    """Check that E0[K^½] equals E1[K^−½], as both are ∫ √(p(x|M0) p(x|M1)) dx.

    Of the identities E0[K^a] = E1[K^(a−1)], this is the one whose two sides always have finite variance. It
    does not depend on the shares of the models. If the models hardly overlap, single draws dominate both
    means, and z says little.

    Parameters
    ----------
    log_k
        Natural log of p(x|M1)/p(x|M0) for each held-out draw, shape (n,), finite.
    labels
        Model each draw came from, 0 or 1, shape (n,), at least two of each.

    Returns
    -------
    TuringGood
        Both means with errors, and the z-score of their difference.
    """
    log_k, labels = check_log_k(log_k, labels)
    if not np.isfinite(log_k).all():
        raise ValueError(f"log_k must be finite, got {np.sum(np.isinf(log_k))} infinite values.")
    if np.bincount(labels).min() < 2:
        raise ValueError(f"the errors need two draws of each model, got {np.bincount(labels)}.")
    sides = (0.5 * log_k[labels == 0], -0.5 * log_k[labels == 1])
    (log_0, error_0), (log_1, error_1) = map(_log_mean_exp, sides)
    # The larger mean is scaled to 1. So nothing overflows.
    first, second = np.exp(np.array([log_0, log_1]) - max(log_0, log_1))
    z, p_value = _z_score(first - second, np.hypot(first * error_0, second * error_1))
    effective = min(_effective(np.exp(side - side.max())) for side in sides)
    return TuringGood(log_0, error_0, log_1, error_1, z, p_value, effective)


@dataclass(frozen=True)
class MeanProbability:
    """A model's mean posterior probability, which must equal its share of the draws.

    Attributes
    ----------
    value, error
        Mean of p(model|x) over all draws, and its standard error. The number of draws of each model counts
        as fixed.
    share
        The model's share of the draws, which is its prior probability.
    z, p_value
        (`value` − `share`)/`error`, and its two-sided p-value.
    effective
        As how many equally uncertain draws those of the model count, and those of the others: the smaller
        number. Below about 30, single draws decide.
    """

    value: float
    error: float
    share: float
    z: float
    p_value: float
    effective: float


def mean_probability(log_odds: ArrayLike, labels: ArrayLike, model: int = 1) -> MeanProbability:
    """Check that the mean posterior probability of a model equals its prior, its share of the draws.

    Parameters
    ----------
    log_odds
        Log posterior odds as for `score`, (n, K) or (n,), with the draws' own shares as prior.
    labels
        Model each draw came from, 0 to K − 1, shape (n,).
    model
        The model.

    Returns
    -------
    MeanProbability

    Examples
    --------
    >>> mean_probability([0.0, 0.0, 0.0, 0.0], [0, 1, 0, 1]).value
    0.5
    """
    log_odds, labels = check_log_odds(log_odds, labels)
    odds = log_odds[:, model] - logsumexp(np.delete(log_odds, model, axis=1), axis=1)
    of_model = labels == model
    # Σ p − n_model = Σ p over draws of other models − Σ (1 − p) over draws of this one. Both sums have
    # positive terms, and the odds give 1 − p without rounding.
    misplaced = expit(np.where(of_model, -odds, odds))
    difference = float(misplaced[~of_model].sum() - misplaced[of_model].sum()) / len(labels)
    error = error_of_mean(misplaced, labels)
    effective = min(
        (_effective(misplaced[side]) for side in (of_model, ~of_model) if side.any()), default=0.0
    )
    share = float(of_model.mean())
    return MeanProbability(share + difference, error, share, *_z_score(difference, error), effective)


def _effective(weights: Array) -> float:
    """Return (Σw)²/Σw²: as how many equal weights these count."""
    largest = weights.max()
    # The weights are divided by the largest first, because squares of tiny weights would be zero.
    return float(np.sum(weights / largest) ** 2 / np.sum((weights / largest) ** 2)) if largest > 0 else 0.0


def _z_score(difference: float, error: float) -> tuple[float, float]:
    """Return a difference in units of its error, and the two-sided p-value. Rounding errors count as 0."""
    if abs(difference) < _ROUNDING:
        return 0.0, 1.0
    z = float(difference / error) if error > 0 else float(np.copysign(np.inf, difference))
    return z, float(erfc(abs(z) / np.sqrt(2)))


def _log_mean_exp(exponent: Array) -> tuple[float, float]:
    """Log of the mean of exp(exponent), and the standard error of that log."""
    largest = exponent.max()
    scaled = np.exp(exponent - largest)
    mean = scaled.mean()
    return float(largest + np.log(mean)), float(scaled.std(ddof=1) / np.sqrt(len(scaled)) / mean)
