"""`Signal`: the few combinations of the numbers that vary by more than their noise, in units of the noise.

Draws that are observed anew tell noise from signal: two observations of one clean draw differ by noise alone,
and have in common what the draw is. If the noise is Gaussian and the same for all draws, the combinations
that are kept hold all that the data say about the models.
"""

from dataclasses import dataclass

import numpy as np

# At most so many combinations are kept.
_MOST = 64
# A combination is kept if its signal is larger than what chance makes of noise, by this factor.
_MARGIN = 1.5
# Noise less than this part of the variance counts as so much: single precision knows no smaller differences.
_LEAST_NOISE = 1e-11
# The numbers that the networks see are standardised. One that varies less than this has nothing to say.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Signal:
    """Turn scaled draws of d numbers into the length and the direction of their signal, in units of noise.

    The m combinations y that are kept have noise of unit variance. A network that sees them as they are
    resolves them in units of their spread, which may be thousands of times the noise. So it sees three other
    forms of them, each standardised: asinh y, which is linear in the noise and logarithmic beyond it; the
    direction y/√(1 + |y|²); and the logarithm of the length √(1 + |y|²).

    Parameters
    ----------
    matrix
        The combinations, (d, m), the largest signal first.
    origin
        What is subtracted from them, (m,): where the signals of the draws are densest.
    shift, factor
        How the three forms are standardised, (2m + 1,).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clean = np.outer(np.exp(rng.normal(size=5_000)), np.linspace(1, 2, 30))
    >>> first, second = (clean + rng.normal(size=clean.shape) for _ in range(2))
    >>> signal = Signal.fit(first, second)
    >>> signal.matrix.shape, signal(first).shape
    ((30, 1), (5000, 3))
    """

    matrix: np.ndarray
    origin: np.ndarray
    shift: np.ndarray
    factor: np.ndarray

    @staticmethod
    def fit(first: np.ndarray, second: np.ndarray) -> "Signal":
        """Find the signal from two observations of each of n clean draws, both (n, d).

        With the covariance of the noise as the unit, the covariance of the signal is that of the first with
        the second observation, in which noise has no part. Its eigenvectors are the combinations with the
        largest signal (Karhunen & Loève). Where there is no signal, the eigenvalues of the mean of n products
        of two times d independent numbers lie below √(2d/n).
        """
        n, dim = first.shape
        first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
        unit = _inverse_root((first - second).T @ (first - second) / (2 * n), np.var(first, axis=0).sum())
        one, other = first @ unit, second @ unit
        products = (one - one.mean(axis=0)).T @ (other - other.mean(axis=0)) / n
        value, vector = np.linalg.eigh((products + products.T) / 2)
        value, vector = value[::-1], vector[:, ::-1]
        above_chance = int(np.sum(value > _MARGIN * np.sqrt(2 * dim / n)))
        vector = vector[:, : int(np.clip(above_chance, 1, _MOST))]
        origin = np.array([_densest(along) for along in ((one + other) @ vector / 2).T])
        bare = Signal(unit @ vector, origin, np.zeros(()), np.ones(()))
        forms = bare._forms(first)
        spread = forms.std(axis=0)
        varies = spread > _CONSTANT
        factor = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
        parts = (bare.matrix, bare.origin, forms.mean(axis=0), factor)
        return Signal(*(np.asarray(part, np.float32) for part in parts))

    @property
    def numbers(self) -> int:
        """How many numbers a draw becomes."""
        return len(self.shift)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return what networks see of scaled draws (n, d), shape (n, 2m + 1); float32."""
        return np.asarray((self._forms(x) - self.shift) * self.factor, np.float32)

    def _forms(self, x: np.ndarray) -> np.ndarray:
        y = x @ self.matrix - self.origin
        length = np.sqrt(1 + np.sum(np.square(y), axis=1, keepdims=True))
        return np.concatenate([np.arcsinh(y), y / length, np.log(length)], axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Name the arrays, for a file."""
        return {name: getattr(self, name) for name in ("matrix", "origin", "shift", "factor")}


def _inverse_root(noise: np.ndarray, variance: float) -> np.ndarray:
    """Inverse square root of the covariance of the noise, in which no direction is without noise."""
    value, vector = np.linalg.eigh(noise)
    floor = max(_LEAST_NOISE * variance, 1e-300)
    return (vector / np.sqrt(np.maximum(value, floor))) @ vector.T


def _densest(values: np.ndarray) -> float:
    """Return where values are densest: the middle of the shortest half, of its shortest half, and so on.

    (Robertson & Cryer 1974.) For signals whose size varies over decades it is near the smallest ones, where
    the mean and the median are far from most.
    """
    ordered = np.sort(values)
    while len(ordered) > 2:
        half = (len(ordered) + 1) // 2
        start = int(np.argmin(ordered[half - 1 :] - ordered[: len(ordered) - half + 1]))
        if half == len(ordered):
            break
        ordered = ordered[start : start + half]
    return float(ordered.mean())
