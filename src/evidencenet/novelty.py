"""Is an observation like anything the models produce? Its distance, ranked among held-out draws."""

from dataclasses import dataclass

import numpy as np

from evidencenet.data import Data
from evidencenet.moments import Moments, flat, inverse_root
from evidencenet.trust import rank_p_value

# Enough for p-values down to 1e-4, few enough to keep in every saved network.
_REFERENCE_DRAWS = 10_000


@dataclass(frozen=True, eq=False)
class Novelty:
    """Squared Mahalanobis distance from each model's draws, and that of held-out draws of the model.

    Parameters
    ----------
    mean
        Of each model's scaled draws, shape (K, d).
    whiten
        Inverse square root of each model's covariance, shape (K, d, d).
    reference
        Distances of held-out draws of all models, one model after the other, each sorted, shape (n,).
    counts
        How many of them belong to each model, shape (K,).
    """

    mean: np.ndarray
    whiten: np.ndarray
    reference: np.ndarray
    counts: np.ndarray

    @staticmethod
    def fit(moments: Moments, held_out: Data, label: np.ndarray) -> "Novelty":
        """Fit to the moments of scaled training draws, with scaled held-out draws as reference."""
        whiten = np.stack([inverse_root(matrix) for matrix in moments.covariance]).astype(np.float32)
        empty = Novelty(moments.mean, whiten, np.zeros(0), np.zeros(0, dtype=int))
        numbers = flat(held_out)
        sets = []
        for k in range(len(whiten)):
            mine = numbers[label == k][:_REFERENCE_DRAWS]
            sets.append(np.sort(empty.distance(mine)[:, k]))
        return Novelty(moments.mean, whiten, np.concatenate(sets), np.array([len(s) for s in sets]))

    def distance(self, x: Data) -> np.ndarray:
        """Squared distance of scaled draws (n, ...) from each model, (n, K)."""
        numbers = flat(x)
        moved = [(numbers - mean) @ whiten for mean, whiten in zip(self.mean, self.whiten, strict=True)]
        return np.stack([np.sum(np.square(y), axis=1) for y in moved], axis=1)

    def p_value(self, x: Data) -> np.ndarray:
        """How often a draw of each model lies farther out than each of the scaled draws `x`, (n, K)."""
        sets = np.split(self.reference, np.cumsum(self.counts)[:-1])
        distance = self.distance(x)
        return np.stack([rank_p_value(distance[:, k], s) for k, s in enumerate(sets)], axis=1)
