"""What halves of the draws say of the error of log K.

The spread of an ensemble misses what its members share: they saw the same draws, and have the same bias. So
networks are trained on each half of the draws. Where variances fall as 1/n, that of a half is twice that of
all, of which it shares one part: so a half differs from all as all differ from the truth. The same holds for
a bias that falls as 1/n, since it is twice as large for a half.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from evidencenet._common.progress import Progress
from evidencenet.training.inputs import Prepared, prepare
from evidencenet.training.loop import Trained
from evidencenet.training.split import Draws

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


# Training draws in all, and of each model, of which halves can be trained on.
_LEAST, _LEAST_OF_EACH = 64, 4
# Ways to halve the draws for Gaussians, which take no time; for networks there is one.
_DIVISIONS = 6
# Of what networks on halves miss, at most this part is put down to their being single ones.
_LARGEST_PART = 0.5


def can_be_halved(draws: Draws) -> bool:
    """Say whether there are draws enough to train on half of them."""
    model = draws.model[draws.training]
    return len(model) >= _LEAST and bool(np.bincount(model).min() >= _LEAST_OF_EACH)


def squared_errors(
    data: Prepared,
    trained: Trained,
    fit: Callable[[Prepared, np.random.Generator], np.ndarray],
    *,
    seed: int,
    progress: bool,
) -> np.ndarray:
    """Estimate squared errors of log K against model 0 for the held-out draws, (n, K).

    Single ones are rough, and may be negative.

    Parameters
    ----------
    data, trained
        All draws, and the ensemble that was trained on them.
    fit
        Trains one network on prepared draws, with seeds from a generator: its log K, (n, K).
    seed
        Of the halves.
    progress
        Show a bar.
    """
    draws = data.draws
    x, n, members = draws.held_out()[0], len(draws.testing), len(trained.gain)
    log_k = draws.held_out_log_k(trained.log_odds)
    if data.baseline is not None and not trained.gain.any():
        return _of_gaussians(data, seed, progress) + _lacking(trained, n)
    baseline = np.zeros_like(log_k) if data.baseline is None else data.baseline(data.scaling(x))

    def missed(number: int, half: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Return what half of the draws adds to log K, and to the baseline's part of it, (n, K) each."""
        mine = prepare(half, data.plan)
        part = np.zeros_like(log_k) if mine.baseline is None else mine.baseline(mine.scaling(x)) - baseline
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
        return fit(mine, rng) - log_k, part

    halves = draws.halves(seed)
    with (
        Progress("learning the error", len(halves), enabled=progress) as bar,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        found = []
        for pair in pool.map(missed, range(len(halves)), halves):
            found.append(pair)
            bar.update(len(found))
    off, part = (np.stack(each) for each in zip(*found, strict=True))
    kept = _kept(off[..., 1:], part[..., 1:])
    squared: np.ndarray = np.mean(np.square(off - kept * part), axis=0)
    if members > 1:
        # A half has one network; the mean of many has less of what they do not share. The mean's own part of
        # that is counted twice, to be on the safe side: networks of a half scatter more than those of all. If
        # only some members were taken, they differ by more than chance, and by more than halves do.
        single = (1 - 1 / members) * trained.log_odds[:, :n].var(axis=0, ddof=1)
        usual, chance = np.median(squared[:, 1:]), np.median(single[:, 1:])
        squared -= single * (min(1.0, _LARGEST_PART * usual / chance) if chance > 0 else 1.0)
    return squared if kept == 0 else squared + kept**2 * _of_gaussians(data, seed, progress)


def _of_gaussians(data: Prepared, seed: int, progress: bool) -> np.ndarray:
    """Estimate squared errors of the baseline, (n, K).

    Only the scatter between halves counts: they find fewer directions in half of the draws, a bias that does
    not fall as 1/n. If they find none at all, it is left to the jackknife.
    """
    assert data.baseline is not None
    x, squares = data.draws.held_out()[0], []
    with Progress("learning the error of Gaussians", _DIVISIONS, enabled=progress) as bar:
        for i in range(_DIVISIONS):
            ways = []
            for half in data.draws.halves(seed + i):
                mine = prepare(half, data.plan)
                assert mine.baseline is not None
                ways.append(mine.baseline(mine.scaling(x)))
            squares.append(np.square(ways[0] - ways[1]) / 4)
            bar.update(i + 1)
    scatter = np.mean(squares, axis=0)
    scaled, pairs = data.scaling(x), range(scatter.shape[1])
    jackknife = np.stack([data.baseline.variance(scaled, k, 0) for k in pairs], axis=1)
    return max(scatter, jackknife, key=np.mean)


def _lacking(trained: Trained, n: int) -> float:
    """Return the mean square of what the Gaussians may lack: too little for networks to prove it.

    They gained a score that may be chance, and were not taken. What is more than chance counts: an error δ of
    log K costs p (1 − p) δ²/2 on average, and its variance from draw to draw is twice that.
    """
    scores = trained.history.score
    gained = float(np.mean(scores[:, 0] - np.nanmin(scores, axis=1)))
    sure = max(gained - np.sqrt(2 * gained / n), 0.0)
    p = softmax(trained.log_odds[0, :n], axis=1)[:, 1:]
    return 2 * sure / max(float(np.mean(np.sum(p * (1 - p), axis=1))), 1e-6)


def _kept(off: np.ndarray, part: np.ndarray) -> float:
    """Say how much of what the baseline misses the networks leave as it is, from 0 to 1."""
    size = np.median(np.abs(part))
    return float(np.clip(np.median(off * np.sign(part)) / size, 0, 1)) if size > 0 else 0.0
