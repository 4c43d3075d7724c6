"""How far to trust log Bayes factors: their score, the range held-out draws vouch for, and moment checks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Mean log score in nats, smaller is better, and its gain over knowing nothing.

    Attributes
    ----------
    value, error
        Mean of −log p(true model|x) over the draws, and its standard error.
    nothing
        The score of knowing nothing but the models' proportions: their entropy.
    gain, gain_error
        `nothing` − `value`, and its standard error from the paired differences. For exact odds the expected
        gain is the mutual information of data and model, and no other odds gain more.
    n
        Number of draws.
    """

    value: float
    error: float
    nothing: float
    gain: float
    gain_error: float
    n: int

    @property
    def informative(self) -> bool:
        """Whether the gain is more than three of its standard errors."""
        return self.gain > 3 * self.gain_error

    def __str__(self) -> str:
        return (
            f"Log score {self.value:.4f} ± {self.error:.4f} nats; gain over knowing nothing "
            f"({self.nothing:.4f}): {self.gain:.4f} ± {self.gain_error:.4f} nats ({self.n:,} draws)."
        )


def score(log_odds: ArrayLike, labels: ArrayLike) -> Score:
    """Score log posterior odds on draws whose model is known.

    This sees what coverage cannot: odds that are calibrated but say little.

    Parameters
    ----------
    log_odds
        Log posterior odds of each model against model 0, shape (n, K) with zeros in the first column, or
        (n,) for model 1 against model 0. They include the prior odds, which should be those of the draws:
        for two models add log(n1/n0) to log K.
    labels
        Model each draw came from, 0 to K − 1, shape (n,).

    Returns
    -------
    Score
        Mean score and gain with standard errors, the number of draws of each model being given.

    Examples
    --------
    >>> score([0.0, 0.0, 0.0, 0.0], [0, 1, 0, 1]).gain
    0.0
    """
    log_odds, labels = check_log_odds(log_odds, labels)
    n, models = log_odds.shape
    loss = -log_softmax(log_odds, axis=1)[np.arange(n), labels]
    ignorant = -np.log(np.bincount(labels, minlength=models)[labels] / n)
    gain = ignorant - loss
    return Score(
        value=float(loss.mean()),
        error=error_of_mean(loss, labels),
        nothing=float(ignorant.mean()),
        gain=float(gain.mean()),
        gain_error=error_of_mean(gain, labels),
        n=n,
    )


def check_log_odds(log_odds: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """Return log-odds (n, K) against model 0 and labels (n,) as arrays, or say what is wrong with them."""
    log_odds, labels = np.asarray(log_odds, dtype=np.float64), np.asarray(labels)
    if log_odds.ndim == 1:
        log_odds = np.stack([np.zeros_like(log_odds), log_odds], axis=1)
    if log_odds.ndim != 2 or labels.shape != log_odds.shape[:1] or log_odds.shape[1] < 2:
        raise ValueError(
            "log_odds must have shape (n,) or (n, models) with two models or more, and labels (n,), "
            f"got {log_odds.shape} and {labels.shape}."
        )
    models = log_odds.shape[1]
    if len(log_odds) == 0:
        raise ValueError("log_odds and labels are empty; pass held-out draws.")
    if not np.isfinite(log_odds).all():
        raise ValueError(
            f"log_odds must be finite, got {np.sum(~np.isfinite(log_odds))} NaN or infinite values."
        )
    if not np.isin(labels, np.arange(models)).all():
        raise ValueError(f"labels must be whole numbers from 0 to {models - 1}, got {np.unique(labels)[:5]}.")
    return log_odds, labels.astype(np.int64)


def error_of_mean(values: Array, labels: NDArray[np.int64]) -> float:
    """Return the standard error of a mean over draws, the number of draws of each model being given."""
    total = 0.0
    for model in np.unique(labels):
        part = values[labels == model]
        if len(part) > 1:
            total += len(part) * part.var(ddof=1)
    return float(np.sqrt(total) / len(values))
