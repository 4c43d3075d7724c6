"""`Novelty`: is an observation like the draws of a model? Its distance is ranked among held-out draws."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet._common.estimate import rank_p_value
from evidencenet.training.baseline import Moments, flat

# Held-out draws of each model: enough for p-values down to 1e-4, few enough to keep in every saved network.
REFERENCE_DRAWS = 10_000
# Training draws of each model: enough for the covariance of the 256 hidden units that are kept at most.
FITTING_DRAWS = 5_000
# Variances below this part of the largest are set to it. A departure from what never varies, such as a sum
# that is always 1, is then a large distance, but a rounding of single precision (1e-7) is not.
_LEAST_VARIANCE = 1e-6
# The two distances are put on one scale by the values that a tenth and a hundredth of the draws exceed.
_LEVELS = (0.9, 0.99)
# If these two values are nearly equal, their difference in log distance counts as this much.
_LEAST_STEP = 1e-3
# Hidden units that overflow count as this large. The squares of these do not overflow in double precision.
_LARGEST = 1e30
# Distances below this count as this small, so that their logarithm exists.
_SMALLEST = 1e-300


class Seen(NamedTuple):
    """Scaled draws, the networks' hidden layers for them, (n, units) or None, and their models, (n,)."""

    x: Data
    hidden: np.ndarray | None
    label: np.ndarray


@dataclass(frozen=True, eq=False)
class Novelty:
    """Squared Mahalanobis distances from each model's draws, and those of held-out draws of the model.

    One is the distance in the scaled data, the other in the networks' last hidden layers. The first sees what
    the networks ignore. The second sees what they look for, however many numbers the data have. Each is
    measured in units of how far out training draws of the model lie. The larger of the two is ranked among
    held-out draws, so its p-value is right whatever the distribution of the distances.

    Parameters
    ----------
    reference
        This larger distance of held-out draws of all models, one model after the other, each sorted, (n,).
    counts
        How many of them belong to each model, shape (K,).
    mean, whiten
        Mean of each model's scaled draws, shape (K, d), and inverse square root of the covariance,
        (K, d, d); None if there are too many numbers in a draw.
    hidden_mean, hidden_whiten
        The same of the hidden units; None if the networks add nothing.
    levels
        Log of the distances, in the data and in the hidden units, that a tenth and a hundredth of the draws
        of each model exceed, shape (K, 2, 2); None if there is only one distance.
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
            Of each model's scaled training draws; None to use the hidden units only.
        training, held_out
            Draws of equal weight; training draws of every model.
        """
        if moments is None and training.hidden is None:
            raise ValueError(
                "novelty got neither moments of the data nor hidden units; it needs at least one of them."
            )
        labels = [training.label == k for k in range(int(training.label.max()) + 1)]
        bare = Novelty(np.zeros(0), np.zeros(0, dtype=int))
        if moments is not None:
            bare = replace(bare, mean=moments.mean, whiten=_whitening(moments.covariance))
        if training.hidden is not None:
            units = _tamed(training.hidden)
            mean = np.stack([units[of_model].mean(axis=0) for of_model in labels])
            away = [units[of_model] - centre for of_model, centre in zip(labels, mean, strict=True)]
            covariance = np.stack([y.T @ y / len(y) for y in away])
            bare = replace(bare, hidden_mean=mean, hidden_whiten=_whitening(covariance))
        distances = bare.distances(training.x, training.hidden)
        if len(distances) == 2:
            levels = [
                np.quantile(_log(distances[:, of_model, k]), _LEVELS, axis=1).T
                for k, of_model in enumerate(labels)
            ]
            bare = replace(bare, levels=np.stack(levels))
        out = bare.outlyingness(held_out.x, held_out.hidden)
        by_model = [np.sort(out[held_out.label == k, k]) for k in range(len(labels))]
        counts = np.array([len(part) for part in by_model])
        return replace(bare, reference=np.concatenate(by_model), counts=counts)

    def distances(self, x: Data, hidden: np.ndarray | None = None) -> np.ndarray:
        """Squared distances of scaled draws from each model: in the data, in hidden units, each (n, K)."""
        distances = []
        if self.mean is not None and self.whiten is not None:
            distances.append(_distance(flat(x), self.mean, self.whiten))
        if self.hidden_mean is not None and self.hidden_whiten is not None:
            if hidden is None:
                raise ValueError("this novelty was fitted with hidden units: pass those of the draws too.")
            distances.append(_distance(_tamed(hidden), self.hidden_mean, self.hidden_whiten))
        return np.array(distances)

    def outlyingness(self, x: Data, hidden: np.ndarray | None = None) -> np.ndarray:
        """How far out scaled draws lie, as seen from each model, (n, K): the numbers in `reference`."""
        distances = self.distances(x, hidden)
        if self.levels is None:
            return np.asarray(distances[0])
        low, high = self.levels[:, :, 0].T[:, None], self.levels[:, :, 1].T[:, None]
        scaled: np.ndarray = (_log(distances) - low) / np.maximum(high - low, _LEAST_STEP)
        return scaled.max(axis=0)

    def p_value(self, x: Data, hidden: np.ndarray | None = None) -> np.ndarray:
        """How often a draw of each model lies farther out than each of the scaled draws `x`, (n, K).

        `hidden` are the hidden units for these draws, (n, units), if it was fitted with hidden units.
        """
        out = self.outlyingness(x, hidden)
        p = np.ones_like(out)
        for k, reference in enumerate(np.split(self.reference, np.cumsum(self.counts)[:-1])):
            if len(reference):
                p[:, k] = rank_p_value(out[:, k], reference)
        return p

    @property
    def smallest(self) -> np.ndarray:
        """The smallest p-value that the held-out draws of each model can give, (K,)."""
        return np.asarray(1 / (1 + self.counts))

    @property
    def least(self) -> float:
        """The smallest p-value that the held-out draws of every model can give."""
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
    return np.log(np.maximum(distance, _SMALLEST))
