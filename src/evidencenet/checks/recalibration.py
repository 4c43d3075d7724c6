"""Correct log Bayes factors by an increasing function of them, fitted to draws and tested on other draws."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import Labels, check_log_odds, error_of_mean, log_scores

Array = NDArray[np.float64]
# The validated range is cut into this many straight pieces; the outermost continue beyond it. A choice:
# enough to follow a bend (tests/checks/test_recalibration.py has one), few enough to fit to 100 draws of each
# model.
_PIECES = 4
# Narrower ranges than this, in nats, have one piece: then each of four pieces has at least half a nat.
_LEAST_WIDTH = 2.0
# Prior standard deviations of the logs of the slopes, around 0 and around that of the next piece. A choice:
# slopes off by a factor of e^0.5 ≈ 1.6 are usual, and slopes change slowly along the range.
_SCATTER, _BEND = 0.5, 0.1
# Slopes are kept between these. Log K that is off by more than a factor of ten cannot be corrected so.
_SLOPES = (0.1, 10.0)
# Draws of each model. Half of them fit: 100 draws of each of two models fix a shift to about √(4/200) ≈ 0.14
# nats at best, where p = ½ for all.
_LEAST_DRAWS = 200
# The score of the draws not used for the fit must improve by this many of its errors: by chance in one of 40
# cases.
_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class Recalibration:
    """An increasing function of log K, made of straight pieces.

    Log K of model k against model 0 becomes `shift`_k + Σ_j `slope`_j · (the part of it in piece j). With
    more than two models there is one piece. So log K of all pairs still add up.

    Parameters
    ----------
    shift
        By how much each model's log K is moved, shape (K,); the first is 0.
    knots
        The log K, before the correction, where one piece ends and the next begins, shape (m,); empty for
        more than two models.
    slope
        Of each piece, above 0, shape (m + 1,).
    draws
        How many draws it was fitted to.
    gain, gain_error
        By how many nats it improves the log score of other draws, and the standard error of this gain.
    """

    shift: np.ndarray
    knots: np.ndarray
    slope: np.ndarray
    draws: int = 0
    gain: float = 0.0
    gain_error: float = 0.0

    def __call__(self, log_k: np.ndarray) -> np.ndarray:
        """Map log K against model 0, shape (..., K)."""
        return self.shift + np.tensordot(self.slope, _pieces(log_k, self.knots), 1)

    def slope_at(self, log_k: np.ndarray) -> np.ndarray:
        """Return the slope at log K of shape (..., K), shape (...): errors of log K are multiplied by it."""
        return np.asarray(self.slope[np.searchsorted(self.knots, log_k[..., 1])], dtype=np.float64)

    def members(self, log_k: np.ndarray) -> np.ndarray:
        """Map log K of each member, (members, n, K), so that their mean is the map of the mean."""
        mean = log_k.mean(axis=0)
        return self(mean) + self.slope_at(mean)[:, None] * (log_k - mean)

    @property
    def helps(self) -> bool:
        """Whether it improves the score of draws not used for the fit by more than two errors of the gain."""
        return self.gain > _ERRORS * self.gain_error

    @property
    def refusal(self) -> str:
        """Why it is not applied, if it does not help."""
        return (
            f"recalibration was not applied: fitted to {self.draws:,} draws, it improved the score of other "
            f"draws by {self.gain:.5f} ± {self.gain_error:.5f} nats. More than two errors are needed."
        )


def fit(log_k: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> Recalibration:
    """Fit a recalibration to half of the draws, and test it on the others.

    The fit maximises the likelihood times a prior that favours no change. For two models there are a shift
    and the slopes of four equal pieces of the validated range; for more models, one slope and a shift for
    each model. Slopes stay between 0.1 and 10.

    Parameters
    ----------
    log_k
        Log K against model 0, shape (n, K), or (n,) for two models.
    labels
        Model each draw came from, shape (n,); at least 200 of each.
    seed
        Of the division into halves.

    Returns
    -------
    Recalibration
        With its gain on the other half; `helps` says whether to use it.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 5000)
    >>> x = np.random.default_rng(1).normal(loc=labels)
    >>> fit(x - 0.5, labels).helps, fit(2 * (x - 0.5), labels).helps
    (False, True)
    """
    log_k, labels = check_log_odds(log_k, labels)
    counts = np.bincount(labels, minlength=log_k.shape[1])
    if counts.min() < _LEAST_DRAWS:
        raise ValueError(
            f"recalibration needs {_LEAST_DRAWS} draws of each model or more, got {counts.tolist()}. "
            "Simulate more."
        )
    fitting = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    for k, count in enumerate(counts):
        fitting[rng.permutation(np.flatnonzero(labels == k))[: count // 2]] = True
    fitted = _fitted(log_k[fitting], labels[fitting])
    others, other_labels = log_k[~fitting], labels[~fitting]
    shares = _log_shares(other_labels, log_k.shape[1])
    gained = log_scores(others + shares, other_labels) - log_scores(fitted(others) + shares, other_labels)
    return replace(fitted, gain=float(gained.mean()), gain_error=error_of_mean(gained, other_labels))


def _fitted(log_k: Array, labels: Labels) -> Recalibration:
    models = log_k.shape[1]
    knots = np.zeros(0)
    if models == 2:
        validated = validated_range(log_k[:, 1], labels)
        if validated.high - validated.low >= _LEAST_WIDTH:
            knots = np.linspace(validated.low, validated.high, _PIECES + 1)[1:-1]
    pieces = _pieces(log_k, knots)
    prior = _log_shares(labels, models)
    true = np.arange(models) == labels[:, None]

    def loss(numbers: Array) -> tuple[float, Array]:
        """Return minus the log posterior of shifts and log slopes, and its gradient."""
        shift, steep = numbers[: models - 1], numbers[models - 1 :]
        slope, bend = np.exp(steep), np.diff(steep)
        odds = np.concatenate([[0.0], shift]) + np.tensordot(slope, pieces, 1)
        log_p = log_softmax(odds + prior, axis=1)
        off = np.exp(log_p) - true
        value = -log_p[true].sum() + np.sum(steep**2) / (2 * _SCATTER**2) + np.sum(bend**2) / (2 * _BEND**2)
        by_slope = slope * np.tensordot(pieces, off, 2) + steep / _SCATTER**2
        by_slope[1:] += bend / _BEND**2
        by_slope[:-1] -= bend / _BEND**2
        gradient = np.concatenate([off[:, 1:].sum(axis=0), by_slope])
        return float(value) / len(labels), gradient / len(labels)

    start = np.zeros(models - 1 + len(knots) + 1)
    bounds: Any = [(None, None)] * (models - 1) + [tuple(np.log(_SLOPES))] * (len(knots) + 1)
    numbers = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    shift = np.concatenate([[0.0], numbers[: models - 1]])
    return Recalibration(shift, knots, np.exp(numbers[models - 1 :]), len(labels))


def _pieces(log_k: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Part of log K, counted from 0, that lies in each piece, (m + 1, ...). The sum of them is log K."""
    ends = np.concatenate([[-np.inf], knots, [np.inf]])
    return np.stack([np.clip(log_k, a, b) - np.clip(0.0, a, b) for a, b in pairwise(ends)])


def _log_shares(labels: Labels, models: int) -> Array:
    """Log of each model's share of the draws, (K,)."""
    return np.asarray(np.log(np.bincount(labels, minlength=models) / len(labels)))
