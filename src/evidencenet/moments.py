"""Mean and covariance of each model's draws, gathered in one pass over the training data."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from evidencenet.batches import Chunk
from evidencenet.data import Data, arrays_of

_BLOCK_ROWS = 20_000

# Above this many numbers in a draw, covariances take too long to compare and too much room in a file.
LARGEST = 600
# Directions whose variance is a smaller part of the largest do not vary, but for rounding.
SMALLEST = 1e-6


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the scaled draws of K models, each draw flattened to d numbers.

    Parameters
    ----------
    size
        Effective number of draws of each model, shape (K,).
    mean
        Shape (K, d).
    covariance
        Shape (K, d, d).
    """

    size: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    @staticmethod
    def of(chunks: Iterable[Chunk], models: int, folds: int) -> "tuple[Moments, list[Moments]]":
        """Gather the moments of chunks of scaled draws: of all, and of all but each of `folds` parts."""
        parts: list[_Sums] = []
        blocks = 0
        for chunk in chunks:
            x = flat(chunk.x, axes=2)
            parts = parts or [_Sums(models, x.shape[1]) for _ in range(folds)]
            label, weight = np.ravel(chunk.label), np.ravel(chunk.weight)
            size = min(_BLOCK_ROWS, -(-len(x) // folds))
            for start in range(0, len(x), size):
                rows = slice(start, start + size)
                parts[blocks % folds].add(x[rows], label[rows], weight[rows])
                blocks += 1
        every = range(folds)
        left_out = [_moments([parts[j] for j in every if j != i]) for i in every]
        return _moments(parts), left_out


def flat(x: Data, axes: int = 1) -> np.ndarray:
    """All numbers of each draw in a row, (n, d); the first `axes` axes count the draws."""
    parts = [np.reshape(array, (np.prod(array.shape[:axes], dtype=int), -1)) for array in arrays_of(x)]
    return parts[0] if len(parts) == 1 else np.concatenate([p.astype(np.float32) for p in parts], axis=1)


def inverse_root(matrix: np.ndarray) -> np.ndarray:
    """Inverse square root of a covariance; directions in which nothing varies are left out."""
    value, vector = np.linalg.eigh(matrix)
    keep = value > max(SMALLEST * value[-1], 1e-300)
    return (vector[:, keep] / np.sqrt(value[keep])) @ vector[:, keep].T


def _moments(parts: "list[_Sums]") -> Moments:
    total, squares, first, second = (
        sum(getattr(part, name) for part in parts) for name in ("total", "squares", "first", "second")
    )
    mean = first / total[:, None]
    return Moments(
        total**2 / squares, mean, second / total[:, None, None] - mean[:, :, None] * mean[:, None, :]
    )


class _Sums:
    """Running sums of weights, weighted numbers and their products."""

    def __init__(self, models: int, dim: int) -> None:
        self.total, self.squares = np.zeros(models), np.zeros(models)
        self.first, self.second = np.zeros((models, dim)), np.zeros((models, dim, dim))

    def add(self, x: np.ndarray, label: np.ndarray, weight: np.ndarray) -> None:
        for k in range(len(self.total)):
            mine = label == k
            w, part = weight[mine].astype(np.float32), x[mine]
            weighted = part * w[:, None]
            self.total[k] += w.sum(dtype=np.float64)
            self.squares[k] += np.square(w, dtype=np.float64).sum()
            self.first[k] += weighted.sum(axis=0, dtype=np.float64)
            # Single precision is ample for scaled numbers in blocks; the sums over blocks are double.
            self.second[k] += weighted.T @ part
