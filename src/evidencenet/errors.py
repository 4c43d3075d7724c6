"""The error of log K, as a function of log K, of the spread of the members, and of how rare the data are.

It is fitted to held-out draws for which squared errors were estimated, one by one and roughly, by training
on halves of the draws (see `evidencenet.halves`). Where few draws lie networks know less, all of them alike:
the spread of the members does not show it, but p-values of novelty do (see `evidencenet.novelty`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

# Jackknife errors below this part of their median say nothing more.
_FLOOR = 0.1
# Single draws may be off by any amount: beyond so many errors of the last fit, the next counts them as there.
_FARTHEST, _FITS = 5.0, 4
# Between these quantiles of log K the logarithm of the error is on straight lines.
_QUANTILES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
# Before anything is seen, logs of squared errors scatter by so much, and the powers of the jackknife and of
# the p-value around 1 and 0.
_SCATTER, _POWER_SCATTER = 2.0, 0.5


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """log error² = power · log jackknife² − rise · log p + a function of log K, made of straight pieces.

    Parameters
    ----------
    power
        Of the jackknife error; 0 if it says nothing.
    floor
        The smallest jackknife error that counts; 0 if there is none.
    knots, values
        Log K where pieces meet, increasing, and the function there, shape (m,). Beyond the outermost it is
        constant.
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
        """Fit to draws of known error.

        Parameters
        ----------
        log_k, jackknife
            Log K and its jackknife error, shape (n,); a jackknife of NaN is not used.
        p
            How often draws of the two models lie farther out, the larger of both, shape (n,).
        squared
            Unbiased estimates of the squared error, shape (n,); single ones may be negative.
        """
        known = bool(np.isfinite(jackknife).all() and np.any(jackknife > 0))
        floor = _FLOOR * float(np.median(jackknife[jackknife > 0])) if known else 0.0
        knots = np.unique(np.quantile(log_k, _QUANTILES))
        spread = _log_square(jackknife, floor)
        tents = np.stack([np.interp(log_k, knots, tent) for tent in np.eye(len(knots))], axis=1)
        features = np.concatenate([spread[:, None], -np.log(p)[:, None], tents], axis=1)
        mean, usual = float(np.mean(squared)), float(np.mean(np.exp(spread)))
        # No error may come out as zero, however lucky the draws were: then the jackknife is all there is.
        level = mean if mean > 0 else usual if known else 1e-12
        # At first the jackknife is taken at its word, up to a common factor.
        prior = np.full(2 + len(knots), np.log(level) - np.log(usual))
        prior[:2] = float(known), 0.0
        scatter = np.array([*[_POWER_SCATTER] * 2, *[_SCATTER] * len(knots)])

        def cost(coefficients: np.ndarray, square: np.ndarray) -> tuple[float, np.ndarray]:
            # Minimal in the mean where exp(η) is the mean of the squares, whatever their distribution.
            eta = features @ coefficients
            ratio = square * np.exp(-eta)
            away = (coefficients - prior) / scatter
            slope = (1 - ratio) @ features + away / scatter
            return float(np.sum(eta + ratio) + 0.5 * away @ away) / len(eta), slope / len(eta)

        bounds = [(0.0, 1.5)] * 2 + [(centre - 6.0, centre + 6.0) for centre in prior[2:]]
        found, square = prior, squared
        for _ in range(_FITS if mean > 0 else 0):
            found = minimize(cost, found, (square,), jac=True, method="L-BFGS-B", bounds=bounds).x
            square = np.minimum(squared, np.square(_FARTHEST) * np.exp(features @ found))
        return ErrorModel(float(found[0]), floor, knots, found[2:], float(found[1]))

    def __call__(self, log_k: np.ndarray, jackknife: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the standard error of log K, given its jackknife error and the p-value, all (n,)."""
        eta = self.power * _log_square(jackknife, self.floor) + np.interp(log_k, self.knots, self.values)
        if self.rise:
            eta = eta - self.rise * np.log(p)
        error: np.ndarray = np.exp(0.5 * eta)
        return error


def _log_square(jackknife: np.ndarray, floor: float) -> np.ndarray:
    return 2 * np.log(np.maximum(jackknife, floor)) if floor > 0 else np.zeros(np.shape(jackknife))


def scatter_of(raw: np.ndarray, above: int, below: int) -> np.ndarray:
    """Return the jackknife error of the mean over members, (n,), of log K (members, n, classes)."""
    if len(raw) < 2:
        return np.full(raw.shape[1], np.nan)
    # Leaving out one member at a time gives just the error of a mean.
    return np.sqrt((raw[:, :, above] - raw[:, :, below]).var(axis=0, ddof=1) / len(raw))
