"""The error of log K, as a function of log K, of the jackknife error, and of how rare the data are.

`ErrorModel` is fitted to rough estimates of squared errors, one for each held-out draw (see
`evidencenet.estimator.learn_error`). Where draws are few, all members know less in the same way: their spread
does not show it, but the p-values of novelty do.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from evidencenet.checks.check import Check

# Jackknife errors below this part of their median are rounded up to it: smaller ones mean nothing more.
_FLOOR = 0.1
# Single draws may be off by any amount. Beyond this many errors of the last fit, the next fit counts them as
# if they were there. Four fits are enough to settle.
_FARTHEST, _FITS = 5.0, 4
# Knots of the error as a function of log K, as quantiles of log K; straight lines between them.
_QUANTILES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
# Prior standard deviations of the fit: of logs of squared errors at the knots; and of the powers of the
# jackknife and of the p-value, around 1 and 0.
_SCATTER, _POWER_SCATTER = 2.0, 0.5


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """log error² = power · log jackknife² − rise · log p + a piecewise linear function of log K.

    Parameters
    ----------
    power
        Of the jackknife error; 0 if it says nothing.
    floor
        The smallest jackknife error that counts; 0 if there is no jackknife.
    knots, values
        Log K at the ends of the linear pieces, increasing, and the function there, shape (m,). Beyond the
        outermost knots it is constant.
    rise
        How squared errors grow as the p-value of the data falls; 0 if they do not.
    """

    power: float
    floor: float
    knots: np.ndarray
    values: np.ndarray
    rise: float = 0.0

    @staticmethod
    def fit(log_k: np.ndarray, jackknife: np.ndarray, p: np.ndarray, squared: np.ndarray) -> "ErrorModel":
        """Fit to draws whose squared errors were estimated.

        Parameters
        ----------
        log_k, jackknife
            Log K and its jackknife error, shape (n,). A jackknife of NaN is not used.
        p
            How often draws of the two models lie farther out, the larger of both, shape (n,).
        squared
            Unbiased estimates of the squared error, shape (n,). Single ones may be negative.
        """
        known = bool(np.isfinite(jackknife).all() and np.any(jackknife > 0))
        floor = _FLOOR * float(np.median(jackknife[jackknife > 0])) if known else 0.0
        knots = np.unique(np.quantile(log_k, _QUANTILES))
        spread = _log_square(jackknife, floor)
        tents = np.stack([np.interp(log_k, knots, tent) for tent in np.eye(len(knots))], axis=1)
        features = np.concatenate([spread[:, None], -np.log(p)[:, None], tents], axis=1)
        mean, usual = float(np.mean(squared)), float(np.mean(np.exp(spread)))
        # No error may come out as zero, however lucky the draws were. Then the jackknife is all there is.
        level = mean if mean > 0 else usual if known else 1e-12
        # The fit starts from the jackknife times a constant factor.
        prior = np.full(2 + len(knots), np.log(level) - np.log(usual))
        prior[:2] = float(known), 0.0
        scatter = np.array([*[_POWER_SCATTER] * 2, *[_SCATTER] * len(knots)])

        def cost(coefficients: np.ndarray, square: np.ndarray) -> tuple[float, np.ndarray]:
            # On average it is minimal where exp(eta) is the mean of the squares, whatever their distribution.
            eta = features @ coefficients
            ratio = square * np.exp(-eta)
            away = (coefficients - prior) / scatter
            slope = (1 - ratio) @ features + away / scatter
            return float(np.sum(eta + ratio) + 0.5 * away @ away) / len(eta), slope / len(eta)

        bounds = [(0.0, 1.5)] * 2 + [(centre - 6.0, centre + 6.0) for centre in prior[2:]]
        coefficients, square = prior, squared
        for _ in range(_FITS if mean > 0 else 0):
            coefficients = minimize(
                cost, coefficients, (square,), jac=True, method="L-BFGS-B", bounds=bounds
            ).x
            square = np.minimum(squared, np.square(_FARTHEST) * np.exp(features @ coefficients))
        return ErrorModel(float(coefficients[0]), floor, knots, coefficients[2:], float(coefficients[1]))

    def __call__(self, log_k: np.ndarray, jackknife: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the standard error of log K, given its jackknife error and the p-value, all (n,)."""
        eta = self.power * _log_square(jackknife, self.floor) + np.interp(log_k, self.knots, self.values)
        if self.rise:
            eta = eta - self.rise * np.log(p)
        error: np.ndarray = np.exp(0.5 * eta)
        return error


def scatter_of(raw: np.ndarray, above: int, below: int) -> np.ndarray:
    """Return the jackknife error of the mean over members, (n,), of log K (members, n, classes)."""
    if len(raw) < 2:
        return np.full(raw.shape[1], np.nan)
    # Leaving out one member at a time gives just the error of a mean.
    return np.sqrt((raw[:, :, above] - raw[:, :, below]).var(axis=0, ddof=1) / len(raw))


@dataclass(frozen=True, eq=False)
class Depth:
    """What rare draws say of a network, and how well their probabilities are known.

    Parameters
    ----------
    threshold, log_p, log_p_error
        For each model, level by level: the log-odds of all other models to it, by the network that steered;
        the log of the probability that a draw of the model reaches them; and its standard error.
    checks
        The tail check of each model.
    rounds, calls
        How many times a network was trained on rare draws, and simulator calls in all.
    """

    threshold: tuple[np.ndarray, ...]
    log_p: tuple[np.ndarray, ...]
    log_p_error: tuple[np.ndarray, ...]
    checks: tuple[Check, ...]
    rounds: int
    calls: int

    def error(self, log_k: np.ndarray, above: int, below: int) -> np.ndarray:
        """Return what errors of log P add to the error of the log K of two models, (n,), for log K (n, K)."""
        square = np.zeros(len(log_k))
        for k in (above, below):
            odds = logsumexp(np.delete(log_k, k, axis=1), axis=1) - log_k[:, k]
            if len(self.threshold[k]):
                # Below the first level there are plain draws, whose probability has no error.
                knots = [self.threshold[k][0] - 1.0, *self.threshold[k]]
                square += np.square(np.interp(odds, knots, [0.0, *self.log_p_error[k]]))
        return np.sqrt(square)


def _log_square(jackknife: np.ndarray, floor: float) -> np.ndarray:
    return 2 * np.log(np.maximum(jackknife, floor)) if floor > 0 else np.zeros(np.shape(jackknife))
