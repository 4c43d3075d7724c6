"""Gaussians fitted to each model's draws: a first guess of the log-odds, for a network to correct.

Fitted to n draws in d dimensions, the ratio of two Gaussians is exact where the models are linear and
Gaussian, but each of its ~d² numbers carries an error of order 1/√n. So only those directions are kept in
which a model differs from the others by more than noise could make it: the edge of the spectrum of pure noise
is known from the theory of random matrices (Marchenko & Pastur 1967).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evidencenet._common.arrays import Data, arrays_of
from evidencenet.training.batches import Chunk

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


def covariance(x: Data) -> np.ndarray:
    """Covariance of all numbers of the draws, (d, d)."""
    return np.atleast_2d(np.cov(flat(x).astype(np.float64), rowvar=False))


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


@dataclass(frozen=True, eq=False)
class Gaussians:
    """log q_k(x) = constant_k + x·linear_k + Σ_i curvature_ik (x·direction_i)², up to what models share.

    Parameters
    ----------
    constant
        Shape (K,).
    linear
        Shape (K, d).
    direction
        The directions of all models together, shape (r, d).
    curvature
        What the square along each direction adds to each model, shape (r, K).
    """

    constant: np.ndarray
    linear: np.ndarray
    direction: np.ndarray
    curvature: np.ndarray

    @staticmethod
    def fit(moments: Moments) -> "Gaussians":
        """Fit to the moments of scaled training draws."""
        models, dim = moments.mean.shape
        share = moments.size / moments.size.sum()
        centre = share @ moments.mean
        whiten = inverse_root(np.tensordot(share, moments.covariance, 1))
        constant, linear = np.zeros(models), np.zeros((models, dim))
        direction, curvature = [np.zeros((0, dim))], [np.zeros((0, models))]
        for k in range(models):
            # In units of the pooled covariance, model k's is 1 but for noise of this variance in each entry
            # (less than 1/n, since the pooled one is partly made of the same draws).
            noise = (1 - share[k]) / moments.size[k]
            value, vector = np.linalg.eigh(whiten @ moments.covariance[k] @ whiten)
            edge = 2 * np.sqrt(dim * noise) + dim * noise
            keep = (np.abs(value - 1) > 1.1 * edge) & (value > 1e-6)
            value, vector = value[keep], vector[:, keep]
            # James & Stein's shrinkage leaves nothing of a difference of means that noise could make.
            shift = whiten @ (moments.mean[k] - centre)
            shift *= max(0.0, 1 - max(dim - 2, 1) * noise / max(shift @ shift, 1e-300))
            # With y the whitened x and −½|y|², which all models share, left out:
            # log q_k = −½ log det − ½|shift|² + y·shift − ½ Σ_i excess_i ((y − shift)·vector_i)².
            excess, along = 1 / value - 1, vector.T @ whiten
            at = along @ centre + vector.T @ shift
            linear[k] = whiten @ shift + (excess * at) @ along
            constant[k] = -0.5 * (np.log(value).sum() + shift @ shift + excess @ at**2)
            constant[k] -= whiten @ shift @ centre
            direction.append(along)
            curvature.append(np.outer(-0.5 * excess, np.arange(models) == k))
        return Gaussians(constant, linear, np.concatenate(direction), np.concatenate(curvature))

    def __call__(self, x: Data) -> np.ndarray:
        """Log density ratios against model 0 of a batch of scaled draws, (n, K)."""
        # Scaled numbers are of order one, so single precision is off by 1e-6 of a log ratio at most.
        along = flat(x) @ self._projection
        r = len(self.direction)
        table = np.square(along[:, :r], dtype=np.float64) @ self.curvature + along[:, r:] + self.constant
        return table - table[:, :1]

    @cached_property
    def _projection(self) -> np.ndarray:
        return np.concatenate([self.direction, self.linear]).T.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Baseline:
    """Gaussians fitted to all training draws, and to all but one part of them, for their error.

    Parameters
    ----------
    full
        Fitted to all.
    folds
        Each fitted without one part of the draws.
    """

    full: Gaussians
    folds: tuple[Gaussians, ...]

    def __call__(self, x: Data) -> np.ndarray:
        """Log density ratios against model 0 of a batch of scaled draws, (n, K)."""
        return self.full(x)

    def variance(self, x: Data, above: int, below: int) -> np.ndarray:
        """Jackknife variance of the log density ratio of two models, (n,), for so many training draws."""
        tables = np.stack([fold(x) for fold in self.folds])
        ratio = tables[:, :, above] - tables[:, :, below]
        return (len(self.folds) - 1) * ratio.var(axis=0)
