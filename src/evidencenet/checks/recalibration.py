"""Mend log Bayes factors by an increasing function of them, fitted to draws and tested on others."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import check_log_odds, error_of_mean

Array = NDArray[np.float64]
# Straight pieces that the range of log K is cut into; the outermost go on beyond it.
_PIECES = 4
# Narrower ranges than this, in nats, have one piece.
_LEAST_WIDTH = 2.0
# Logs of slopes scatter by so much around 0, and around that of the piece beside, before the draws are seen.
_SCATTER, _BEND = 0.5, 0.1
# Beyond these no slope is believed.
_SLOPES = (0.1, 10.0)
_LEAST_DRAWS = 200
# The score of the draws not used for the fit must improve by so many of its errors.
_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class Recalibration:
    """An increasing function of log K, made of straight pieces.

    Log K of model k against model 0 becomes `shift`_k + Σ_j `slope`_j · (the part of it in piece j). With
    more than two models there is one piece, so that log K of all pairs still add up.

    Parameters
    ----------
    shift
        What each model's log K is moved by, shape (K,); the first is 0.
    knots
        Where one piece ends and the next begins, in log K before, shape (m,); empty for more than two models.
    slope
        Of each piece, above 0, shape (m + 1,).
    draws
        How many draws it was fitted to.
    gain, gain_error
        By how many nats it improves the log score of other draws, and the standard error of that.
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
        """Return the slope at log K of shape (..., K), shape (...): errors of log K grow by it."""
        return np.asarray(self.slope[np.searchsorted(self.knots, log_k[..., 1])], dtype=np.float64)

    def members(self, log_k: np.ndarray) -> np.ndarray:
        """Map log K by each member, (members, n, K), so that the mean is what the mean is mapped to."""
        mean = log_k.mean(axis=0)
        return self(mean) + self.slope_at(mean)[:, None] * (log_k - mean)

    @property
    def helps(self) -> bool:
        """Whether it improves the score of draws not used for the fit, by two errors of the improvement."""
        return self.gain > _ERRORS * self.gain_error

    @property
    def refusal(self) -> str:
        """Why it is not kept, if it does not help."""
        return (
            f"recalibration was not kept: fitted to {self.draws:,} draws, it improved the score of others by "
            f"{self.gain:.5f} ± {self.gain_error:.5f} nats, and two errors were wanted."
        )


def fit(log_k: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> Recalibration:
    """Fit a recalibration to half of the draws, and test it on the others.

    The fit is by maximum likelihood, drawn towards no change at all: the slopes of four equal pieces of the
    range that the draws vouch for, and a shift; with more than two models, one slope and a shift for each
    model. Slopes stay between 0.1 and 10.

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
    first = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    for k, count in enumerate(counts):
        first[rng.permutation(np.flatnonzero(labels == k))[: count // 2]] = True
    found = _fitted(log_k[first], labels[first])
    other, model = log_k[~first], labels[~first]
    gained = _cost(other, model) - _cost(found(other), model)
    return replace(found, gain=float(gained.mean()), gain_error=error_of_mean(gained, model))


def _fitted(log_k: Array, labels: NDArray[np.int64]) -> Recalibration:
    models = log_k.shape[1]
    knots = np.zeros(0)
    if models == 2:
        held = validated_range(log_k[:, 1], labels)
        if held.high - held.low >= _LEAST_WIDTH:
            knots = np.linspace(held.low, held.high, _PIECES + 1)[1:-1]
    pieces = _pieces(log_k, knots)
    prior = np.log(np.bincount(labels, minlength=models) / len(labels))
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
    """Part of log K, counted from 0, that lies in each piece, (m + 1, ...); together they are log K."""
    ends = np.concatenate([[-np.inf], knots, [np.inf]])
    return np.stack([np.clip(log_k, a, b) - np.clip(0.0, a, b) for a, b in pairwise(ends)])


def _cost(log_k: Array, labels: NDArray[np.int64]) -> Array:
    """−log p(true model|x) of each draw, with the draws' own shares as prior, (n,)."""
    prior = np.log(np.bincount(labels, minlength=log_k.shape[1]) / len(labels))
    return np.asarray(-log_softmax(log_k + prior, axis=1)[np.arange(len(labels)), labels])
