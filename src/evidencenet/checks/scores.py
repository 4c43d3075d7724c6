"""The log score of log Bayes factors on draws whose model is known, and what every check of arrays shares.

−log p(true model | x) of a draw and the draws of one pair of models are computed here and nowhere else.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
# A gain of more than this many of its standard errors is more than chance: three of them happen by chance in
# about one of a thousand cases.
_INFORMATIVE = 3.0


@dataclass(frozen=True)
class Score:
    """Mean log score in nats (smaller is better), and its gain over knowing nothing.

    Attributes
    ----------
    value, error
        Mean of −log p(true model|x) over the draws, and its standard error.
    nothing
        The score of somebody who knows only the share of each model among the draws: the entropy of the
        shares.
    gain, gain_error
        `nothing` − `value`, and its standard error from the paired differences. The expected gain of exact
        odds is the mutual information of data and model. No other odds gain more.
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
        return self.gain > _INFORMATIVE * self.gain_error

    def __str__(self) -> str:
        return (
            f"Log score {self.value:.4f} ± {self.error:.4f} nats; gain over knowing nothing "
            f"({self.nothing:.4f}): {self.gain:.4f} ± {self.gain_error:.4f} nats ({self.n:,} draws)."
        )


def score(log_odds: ArrayLike, labels: ArrayLike) -> Score:
    """Score log posterior odds on draws whose model is known.

    The score sees what coverage cannot: odds that are calibrated but say little.

    Parameters
    ----------
    log_odds
        Log posterior odds of each model against model 0, shape (n, K) with zeros in the first column, or
        (n,) for model 1 against model 0. They include the prior odds, which should be those of the draws:
        add log(n1/n0) to log K of two models.
    labels
        Model each draw came from, 0 to K − 1, shape (n,).

    Returns
    -------
    Score
        Mean score and gain with standard errors. The number of draws of each model counts as fixed.

    Examples
    --------
    >>> score([0.0, 0.0, 0.0, 0.0], [0, 1, 0, 1]).gain
    0.0
    """
    log_odds, labels = check_log_odds(log_odds, labels)
    n, models = log_odds.shape
    scores = log_scores(log_odds, labels)
    of_nothing = -np.log(np.bincount(labels, minlength=models)[labels] / n)
    gain = of_nothing - scores
    return Score(
        value=float(scores.mean()),
        error=error_of_mean(scores, labels),
        nothing=float(of_nothing.mean()),
        gain=float(gain.mean()),
        gain_error=error_of_mean(gain, labels),
        n=n,
    )


def log_scores(log_odds: np.ndarray, labels: np.ndarray) -> Array:
    """Return −log p(true model | x) of each draw, shape (n,), in nats.

    Parameters
    ----------
    log_odds
        Log posterior odds of the models, up to a constant for each draw, shape (n, K).
    labels
        Model each draw came from, 0 to K − 1, shape (n,).

    Examples
    --------
    >>> log_scores(np.zeros((2, 2)), np.array([0, 1])).round(3).tolist()
    [0.693, 0.693]
    """
    return np.asarray(-log_softmax(log_odds, axis=1)[np.arange(len(labels)), labels])


class PairDraws(NamedTuple):
    """The draws of two models.

    Attributes
    ----------
    log_k
        Natural log K of the one against the other, shape (n,).
    labels
        True for draws of the first model, False for draws of the other, shape (n,).
    """

    log_k: Array
    labels: NDArray[np.bool_]


def of_pair(log_k: np.ndarray, labels: np.ndarray, model: int, against: int) -> PairDraws:
    """Select the draws of two models from those of K.

    Parameters
    ----------
    log_k
        Log K of each draw against model 0, shape (n, K).
    labels
        Model each draw came from, shape (n,).
    model, against
        The numbers of the two models.

    Examples
    --------
    >>> log_k = np.array([[0.0, 1.0, 3.0], [0.0, 2.0, 5.0], [0.0, 0.5, 0.2]])
    >>> of_pair(log_k, np.array([0, 1, 2]), 2, 1)
    PairDraws(log_k=array([ 3. , -0.3]), labels=array([False,  True]))
    """
    rows = (labels == model) | (labels == against)
    return PairDraws(log_k[rows, model] - log_k[rows, against], labels[rows] == model)


def check_log_odds(log_odds: ArrayLike, labels: ArrayLike) -> tuple[Array, Labels]:
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


def error_of_mean(values: Array, labels: Labels) -> float:
    """Return the standard error of a mean over draws. The number of draws of each model counts as fixed."""
    variance_of_sum = 0.0
    for model in np.unique(labels):
        of_model = values[labels == model]
        if len(of_model) > 1:
            variance_of_sum += len(of_model) * of_model.var(ddof=1)
    return float(np.sqrt(variance_of_sum) / len(values))
