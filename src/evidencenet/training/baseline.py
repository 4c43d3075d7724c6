"""The Gaussian baseline: Gaussians fitted to each model's draws, a first guess that networks correct.

The ratio of two Gaussians, fitted to n draws in d dimensions, is exact if the models are linear and Gaussian.
But each of its ~d² numbers has an error of order 1/√n. So only those directions are kept in which a model
differs from the others by more than noise alone would: the edge of the spectrum of pure noise is known from
the theory of random matrices (Marchenko & Pastur 1967).
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evidencenet._common.arrays import Data, arrays_of
from evidencenet.training.batches import Chunk

_BLOCK_ROWS = 20_000
# Random parts of the draws: left out in turn for the jackknife, and put together to halves.
PARTS = 8
# The seven affine planes of {0, 1}³ through 0: the ways to halve eight parts that treat all pairs alike.
_HALVES = tuple(
    frozenset(i for i in range(PARTS) if (i & plane).bit_count() % 2 == 0) for plane in range(1, PARTS)
)
# With more numbers in a draw, covariances take too long to compare and too much space in a file.
LARGEST = 600
# Directions whose variance is below this part of the largest do not vary, except for rounding.
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
    def of(chunks: Iterable[Chunk], models: int) -> "PartialMoments":
        """Gather the moments of chunks of scaled draws, in one pass, for each of eight random parts."""
        parts: list[_Sums] = []
        blocks = 0
        for chunk in chunks:
            x = flat(chunk.x, axes=2)
            parts = parts or [_Sums(models, x.shape[1]) for _ in range(PARTS)]
            label, weight = np.ravel(chunk.label), np.ravel(chunk.weight)
            size = min(_BLOCK_ROWS, -(-len(x) // PARTS))
            for start in range(0, len(x), size):
                rows = slice(start, start + size)
                parts[blocks % PARTS].add(x[rows], label[rows], weight[rows])
                blocks += 1
        return PartialMoments(tuple(parts))

    @staticmethod
    def of_parts(parts: Sequence[Iterable[Chunk]], models: int, repeats: int = 1) -> "PartialMoments":
        """Gather the moments of eight parts of scaled draws, in which each draw is observed `repeats` times.

        Several observations of a draw know more of the noise, and no more of the draw. So they count as one.
        """
        sums = []
        for chunks in parts:
            total: _Sums | None = None
            for chunk in chunks:
                x = flat(chunk.x, axes=2)
                total = total or _Sums(models, x.shape[1])
                label, weight = np.ravel(chunk.label), np.ravel(chunk.weight) / repeats
                for start in range(0, len(x), _BLOCK_ROWS):
                    rows = slice(start, start + _BLOCK_ROWS)
                    total.add(x[rows], label[rows], weight[rows])
            if total is not None:
                total.squares *= repeats
                sums.append(total)
        return PartialMoments(tuple(sums))


@dataclass(frozen=True, eq=False)
class PartialMoments:
    """Sums over each of eight random parts of the draws: moments of all, and of any of the parts."""

    parts: "tuple[_Sums, ...]"

    @staticmethod
    def of_model(x: np.ndarray, model: int, models: int) -> "PartialMoments":
        """Gather the sums of scaled draws (n, d) of one model, divided into eight parts."""
        parts = []
        for i in range(PARTS):
            part, sums = x[len(x) * i // PARTS : len(x) * (i + 1) // PARTS], _Sums(models, x.shape[1])
            sums.total[model] = sums.squares[model] = len(part)
            sums.first[model] = part.sum(axis=0, dtype=np.float64)
            sums.second[model] = part.T @ part
            parts.append(sums)
        return PartialMoments(tuple(parts))

    def plus(self, other: "PartialMoments") -> "PartialMoments":
        """Add the sums of further draws to these; they change in place, and are returned."""
        for mine, others in zip(self.parts, other.parts, strict=True):
            for name in ("total", "squares", "first", "second"):
                operator.iadd(getattr(mine, name), getattr(others, name))
        return self

    def mapped(self, matrix: np.ndarray, shift: np.ndarray) -> "PartialMoments":
        """Return the moments of y = x·matrix + shift, given those of x: matrix (d, m), shift (m,)."""
        parts = []
        for part in self.parts:
            new = _Sums(len(part.total), len(shift))
            new.total, new.squares = part.total.copy(), part.squares.copy()
            moved = part.first @ matrix
            new.first = moved + part.total[:, None] * shift
            mixed = moved[:, :, None] * shift
            new.second = (
                np.swapaxes(part.second @ matrix, 1, 2) @ matrix
                + mixed
                + np.swapaxes(mixed, 1, 2)
                + part.total[:, None, None] * np.outer(shift, shift)
            )
            parts.append(new)
        return PartialMoments(tuple(parts))

    def of_all(self) -> Moments:
        """Moments of all draws."""
        return _moments(self.parts)

    def leaving_one_out(self) -> list[Moments]:
        """Moments of all draws but those of each part, for a jackknife."""
        return [_moments([*self.parts[:i], *self.parts[i + 1 :]]) for i in range(len(self.parts))]

    def halves(self) -> list[tuple[Moments, Moments]]:
        """Moments of the two halves of the draws, for several ways to halve them: four parts against four.

        Seven of the 35 ways are balanced: two parts are in the same half in three of these, whichever two.
        """
        everyone = set(range(PARTS))
        return [
            (
                _moments([self.parts[i] for i in sorted(half)]),
                _moments([self.parts[i] for i in sorted(everyone - half)]),
            )
            for half in _HALVES
        ]


def flat(x: Data, axes: int = 1) -> np.ndarray:
    """Flatten each draw to one row of numbers, (n, d); the first `axes` axes count the draws."""
    # Both sizes, because -1 cannot be told from a batch without draws.
    parts = [
        np.reshape(array, (math.prod(array.shape[:axes]), math.prod(array.shape[axes:])))
        for array in arrays_of(x)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([p.astype(np.float32) for p in parts], axis=1)


def covariance(x: Data) -> np.ndarray:
    """Covariance of all numbers of the draws, (d, d)."""
    return np.atleast_2d(np.cov(flat(x).astype(np.float64), rowvar=False))


def inverse_root(matrix: np.ndarray) -> np.ndarray:
    """Inverse square root of a covariance, without directions in which nothing varies."""
    value, vector = np.linalg.eigh(matrix)
    keep = value > max(SMALLEST * value[-1], 1e-300)
    return (vector[:, keep] / np.sqrt(value[keep])) @ vector[:, keep].T


def _moments(parts: "Sequence[_Sums]") -> Moments:
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
            of_model = label == k
            w, part = weight[of_model].astype(np.float32), x[of_model]
            weighted = part * w[:, None]
            self.total[k] += w.sum(dtype=np.float64)
            self.squares[k] += np.square(w, dtype=np.float64).sum()
            self.first[k] += weighted.sum(axis=0, dtype=np.float64)
            # Single precision is enough for scaled numbers in a block. The sums over blocks are double.
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
            # James & Stein's shrinkage removes differences of means that noise alone could make.
            shift = whiten @ (moments.mean[k] - centre)
            shift *= max(0.0, 1 - max(dim - 2, 1) * noise / max(shift @ shift, 1e-300))
            # With y the whitened x, and without −½|y|², which all models share:
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
        # Scaled numbers are of order one, so single precision changes a log ratio by 1e-6 at most.
        along = flat(x) @ self._projection
        r = len(self.direction)
        table = np.square(along[:, :r], dtype=np.float64) @ self.curvature + along[:, r:] + self.constant
        return table - table[:, :1]

    @cached_property
    def _projection(self) -> np.ndarray:
        return np.concatenate([self.direction, self.linear]).T.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Baseline:
    """Gaussians fitted to all training draws, and to all but one part of them, for the jackknife error.

    Parameters
    ----------
    full
        Fitted to all.
    folds
        Each fitted without one part of the draws.
    """

    full: Gaussians
    folds: tuple[Gaussians, ...]

    @staticmethod
    def fit(moments: PartialMoments) -> "Baseline":
        """Fit to the moments of scaled training draws."""
        return Baseline(Gaussians.fit(moments.of_all()), tuple(map(Gaussians.fit, moments.leaving_one_out())))

    def __call__(self, x: Data) -> np.ndarray:
        """Log density ratios against model 0 of a batch of scaled draws, (n, K)."""
        return self.full(x)

    def variance(self, x: Data, above: int, below: int) -> np.ndarray:
        """Jackknife variance of the log density ratio of two models, (n,)."""
        tables = np.stack([fold(x) for fold in self.folds])
        ratio = tables[:, :, above] - tables[:, :, below]
        return (len(self.folds) - 1) * ratio.var(axis=0)
