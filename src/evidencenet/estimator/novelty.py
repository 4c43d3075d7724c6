"""Is an observation like anything the models produce? Its distance, ranked among held-out draws."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet._common.estimate import rank_p_value
from evidencenet.training.gaussians import Moments, flat

# Draws of each model: enough held-out ones for p-values down to 1e-4, few enough to keep in every saved
# network; enough training ones for the covariance of a few hundred hidden units.
REFERENCE_DRAWS = 10_000
FITTING_DRAWS = 5_000
# Variances below this part of the largest are rounding. Taken as so large, they make a small departure from
# what never varies, such as a sum that is always 1, a large distance; and no rounding is taken for one.
_LEAST_VARIANCE = 1e-6
# Two kinds of distance are put on one scale by what a tenth and a hundredth of the draws exceed.
_LEVELS = (0.9, 0.99)
_LEAST_STEP = 1e-3
# Hidden units that overflow are taken as so large; the squares of these do not overflow double precision.
_LARGEST = 1e30


class Seen(NamedTuple):
    """Scaled draws, what the networks make of them (n, units) or None, and the models they are of (n,)."""

    x: Data
    hidden: np.ndarray | None
    label: np.ndarray


@dataclass(frozen=True, eq=False)
class Novelty:
    """Squared Mahalanobis distances from each model's draws, and those of held-out draws of the model.

    One is the distance in the scaled data, the other in the networks' last hidden layers. The first sees what
    the networks ignore; the second sees what they look for, however many numbers the data have. The larger
    of the two, each in units of how far training draws of the model lie out, is ranked among held-out draws:
    its p-value is right whatever the law of the distances.

    Parameters
    ----------
    reference
        The same of held-out draws of all models, one model after the other, each sorted, shape (n,).
    counts
        How many of them belong to each model, shape (K,).
    mean, whiten
        Of each model's scaled draws the mean, shape (K, d), and inverse square root of the covariance,
        (K, d, d); None if there are too many numbers in a draw.
    hidden_mean, hidden_whiten
        Likewise of the hidden units; None if the networks add nothing.
    levels
        Log of the distances, in the data and in the hidden units, that a tenth and a hundredth of the draws
        of each model exceed, shape (K, 2, 2); None where there is one distance only.
    """

    reference: np.ndarray
    counts: np.ndarray
    mean: np.ndarray | None = None
    whiten: np.ndarray | None = None
    hidden_mean: np.ndarray | None = None
    hidden_whiten: np.ndarray | None = None
    levels: np.ndarray | None = None

    @staticmethod
    def fit(moments: Moments | None, training: Seen, held_out: Seen) -> "Novelty":
        """Fit to training draws, with held-out draws as reference.

        Parameters
        ----------
        moments
            Of each model's scaled training draws, or None: then the data themselves are not looked at.
        training, held_out
            Draws of equal weight, training ones of every model.
        """
        if moments is None and training.hidden is None:
            raise ValueError(
                "novelty needs something to look at, got neither moments of the data nor hidden units."
            )
        labels = [training.label == k for k in range(int(training.label.max()) + 1)]
        bare = Novelty(np.zeros(0), np.zeros(0, dtype=int))
        if moments is not None:
            bare = replace(bare, mean=moments.mean, whiten=_whitening(moments.covariance))
        if training.hidden is not None:
            units = _tamed(training.hidden)
            mean = np.stack([units[mine].mean(axis=0) for mine in labels])
            away = [units[mine] - centre for mine, centre in zip(labels, mean, strict=True)]
            covariance = np.stack([y.T @ y / len(y) for y in away])
            bare = replace(bare, hidden_mean=mean, hidden_whiten=_whitening(covariance))
        far = bare.distances(training.x, training.hidden)
        if len(far) == 2:
            levels = [np.quantile(_log(far[:, mine, k]), _LEVELS, axis=1).T for k, mine in enumerate(labels)]
            bare = replace(bare, levels=np.stack(levels))
        out = bare.outlyingness(held_out.x, held_out.hidden)
        sets = [np.sort(out[held_out.label == k, k]) for k in range(len(labels))]
        return replace(bare, reference=np.concatenate(sets), counts=np.array([len(s) for s in sets]))

    def distances(self, x: Data, hidden: np.ndarray | None = None) -> np.ndarray:
        """Squared distances of scaled draws from each model: in the data, in hidden units, each (n, K)."""
        found = []
        if self.mean is not None and self.whiten is not None:
            found.append(_distance(flat(x), self.mean, self.whiten))
        if self.hidden_mean is not None and self.hidden_whiten is not None:
            if hidden is None:
                raise ValueError("this novelty was fitted with hidden units: pass those of the draws too.")
            found.append(_distance(_tamed(hidden), self.hidden_mean, self.hidden_whiten))
        return np.array(found)

    def outlyingness(self, x: Data, hidden: np.ndarray | None = None) -> np.ndarray:
        """How far out scaled draws lie, as seen from each model, (n, K): what `reference` holds."""
        found = self.distances(x, hidden)
        if self.levels is None:
            return np.asarray(found[0])
        low, high = self.levels[:, :, 0].T[:, None], self.levels[:, :, 1].T[:, None]
        scaled: np.ndarray = (_log(found) - low) / np.maximum(high - low, _LEAST_STEP)
        return scaled.max(axis=0)

    def p_value(self, x: Data, hidden: np.ndarray | None = None) -> np.ndarray:
        """How often a draw of each model lies farther out than each of the scaled draws `x`, (n, K).

        `hidden` are the hidden units for these draws, (n, units), if it was fitted to such.
        """
        out = self.outlyingness(x, hidden)
        p = np.ones_like(out)
        for k, reference in enumerate(np.split(self.reference, np.cumsum(self.counts)[:-1])):
            if len(reference):
                p[:, k] = rank_p_value(out[:, k], reference)
        return p

    @property
    def least(self) -> float:
        """The smallest p-value that the held-out draws of every model can tell."""
        return float(1 / (1 + self.counts.min()))


def _distance(numbers: np.ndarray, mean: np.ndarray, whiten: np.ndarray) -> np.ndarray:
    """Squared distance of (n, d) from each of K means, (n, K)."""
    moved = [(numbers - centre) @ matrix for centre, matrix in zip(mean, whiten, strict=True)]
    return np.stack([np.sum(np.square(y, dtype=np.float64), axis=1) for y in moved], axis=1)


def _whitening(covariance: np.ndarray) -> np.ndarray:
    """Inverse square roots of covariances (K, d, d)."""
    value, vector = np.linalg.eigh(covariance)
    floor = np.maximum(_LEAST_VARIANCE * value[:, -1:], _LEAST_VARIANCE**2)
    root = (vector / np.sqrt(np.maximum(value, floor))[:, None]) @ np.swapaxes(vector, 1, 2)
    return np.asarray(root, dtype=np.float32)


def _tamed(hidden: np.ndarray) -> np.ndarray:
    """Hidden units in double precision, none of them NaN or infinite."""
    large = np.nan_to_num(hidden.astype(np.float64), nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    return np.clip(large, -_LARGEST, _LARGEST)


def _log(distance: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(distance, 1e-300))
