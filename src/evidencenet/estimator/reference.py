"""`Reference`: a distribution with a known density, fitted to draws, against which others are learned.

A network learns the ratio of a model's density to that of the reference. The nearer the two are, the less
there is to learn. A few families are fitted, and the log density of draws that were not used for the fit, a
proper score, chooses among them.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp

from evidencenet._common.arrays import Data, arrays_of
from evidencenet.training.baseline import LARGEST

# Each number of a draw is used as it is, by its asinh, or by its logarithm.
_PLAIN, _ASINH, _LOG = 0, 1, 2
_WARPS = ("plain", "asinh", "log")
# A number is transformed if a Gaussian then describes it better by this many nats: with `_LOOK` draws, the
# mean log density of a Gaussian number is known to 0.7/√10,000 = 0.007, and this is three times as much.
_LEAST_GAIN = 0.02
# A fifth of the draws chooses among the families, as is usual.
_JUDGING_PART = 0.2
# Draws that the quantiles and transformations are chosen by: quantiles are then known to about 1%.
_LOOK = 10_000
# Draws times numbers squared in one step of the Student t fit: about a second on one core.
_FITTING_WORK = 5e8
# Steps of expectation and maximisation, first on a part of the draws, then on all. The fit converges
# geometrically; after eight steps the log density of the tests' draws changes by less than 0.001.
_STEPS, _LAST_STEPS = 8, 2
# Degrees of freedom. At the smallest the variance barely exists (it needs more than 2); a Student t above the
# largest counts as Gaussian.
_FREEDOM = (2.1, 200.0)
# More repeated values than this part mean that a number is discrete. Among 10,000 draws in single precision
# chance makes fewer.
_MOST_TIES = 0.01
# Directions whose variance is a smaller part than this of the largest do not vary: rounding in double
# precision is about 1e-16, in single precision data about 1e-14 in variance.
_LEAST_VARIANCE = 1e-10
# The interquartile range of a normal distribution with unit variance.
_QUARTILES = 1.349


@dataclass(frozen=True, eq=False)
class Component:
    """A Gaussian, or a Student t, of d numbers, each used as it is, by its asinh, or by its logarithm.

    Parameters
    ----------
    warp
        0 for a number as it is, 1 for its asinh, 2 for its logarithm, shape (d,).
    shift, factor
        Numbers, or their logarithms, are scaled to (number − shift) · factor before the asinh, shape (d,).
    mean, root
        Mean of the scaled numbers, and a lower triangular root of their covariance, (d,) and (d, d).
    freedom
        Degrees of freedom; infinite for a Gaussian.
    size
        How many draws of equal weight it was fitted to.
    """

    warp: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    freedom: float
    size: float

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Log density of draws (n, d), shape (n,); −inf where it is zero."""
        y, log_slope = self._warped(x)
        d, square = len(self.mean), self._square(y)
        if np.isinf(self.freedom):
            kernel = -0.5 * (square + d * np.log(2 * np.pi))
        else:
            v = self.freedom
            kernel = gammaln((v + d) / 2) - gammaln(v / 2) - d / 2 * np.log(v * np.pi)
            kernel = kernel - (v + d) / 2 * np.log1p(square / v)
        return np.asarray(kernel - np.log(np.diag(self.root)).sum() + log_slope)

    def variance(self, x: np.ndarray) -> np.ndarray:
        """Variance of the log density of draws (n, d), because it was fitted to `size` draws, shape (n,).

        A mean and a covariance fitted to n draws make the log density of a Gaussian at distance r from its
        centre uncertain by √((r⁴ + d)/2n).
        """
        y, _ = self._warped(x)
        d, square = len(self.mean), self._square(y)
        if np.isfinite(self.freedom):
            # In the fit of a Student t, far draws count for less, and their density depends less on the fit.
            square = square * (self.freedom + d) / (self.freedom + square)
        spread: np.ndarray = (np.square(square) + d) / (2 * self.size)
        return spread

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw (n, d) numbers."""
        y = rng.standard_normal((n, len(self.mean))) @ self.root.T
        if np.isfinite(self.freedom):
            y *= np.sqrt(self.freedom / rng.chisquare(self.freedom, n))[:, None]
        y += self.mean
        z = np.where(self.warp == _ASINH, np.sinh(np.where(self.warp == _ASINH, y, 0.0)), y)
        z = z / self.factor + self.shift
        return np.where(self.warp == _LOG, np.exp(np.where(self.warp == _LOG, z, 0.0)), z)

    def __str__(self) -> str:
        name = "Gaussian" if np.isinf(self.freedom) else f"Student t of {self.freedom:.3g} degrees of freedom"
        counts = {_WARPS[w]: int(np.sum(self.warp == w)) for w in (_ASINH, _LOG)}
        warped = [f"{count} by {warp}" for warp, count in counts.items() if count]
        return name + (f" of {len(self.mean)} numbers, {', '.join(warped)}" if warped else "")

    def _warped(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scaled numbers (n, d), and the log of the factor by which volumes at each draw grow, (n,)."""
        y, log_slope = _warped(x, self.warp, self.shift, self.factor)
        return y, log_slope.sum(axis=1)

    def _square(self, y: np.ndarray) -> np.ndarray:
        z = solve_triangular(self.root, (y - self.mean).T, lower=True, check_finite=False)
        return np.asarray(np.sum(np.square(z), axis=0))


@dataclass(frozen=True, eq=False)
class Reference:
    """An equal mixture of components, one for each model it was fitted to.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(1).standard_t(4, size=(5000, 3))
    >>> print(fit([x], [None]))  # doctest: +ELLIPSIS
    Student t of ... degrees of freedom
    """

    components: tuple[Component, ...]

    def log_density(self, x: Data) -> np.ndarray:
        """Natural log of the density of each of a batch of draws, shape (n,)."""
        flat = flattened(x)
        parts = np.stack([part.log_density(flat) for part in self.components])
        return _log_mean(parts)

    def variance(self, x: Data) -> np.ndarray:
        """Variance of the log density, because it was fitted to a finite number of draws, shape (n,)."""
        flat = flattened(x)
        share = np.stack([part.log_density(flat) for part in self.components])
        share = np.exp(share - np.maximum(share.max(axis=0), -1e300))
        share /= np.maximum(share.sum(axis=0), 1e-300)
        parts = zip(share, self.components, strict=True)
        return np.asarray(sum(weight * weight * part.variance(flat) for weight, part in parts))

    def draw(self, rng: np.random.Generator, n: int, like: Data) -> Data:
        """Draw n data sets with the shapes and types of `like`."""
        which = np.arange(n) % len(self.components)
        flat = np.concatenate([c.draw(rng, int(np.sum(which == i))) for i, c in enumerate(self.components)])
        return _unflattened(flat[rng.permutation(n)], like)

    def __str__(self) -> str:
        names = [str(part) for part in self.components]
        return names[0] if len(names) == 1 else f"mixture of {' and '.join(names)}"


def refusal(x: Data) -> str:
    """Say why no reference can be fitted to draws; empty if one can."""
    arrays = arrays_of(x)
    if any(array.dtype == bool for array in arrays):
        return "they have a mask, so the number of values in a draw varies"
    d, n = sum(array[0].size for array in arrays), len(arrays[0])
    if d > LARGEST:
        return f"they have {d:,} numbers each, more than {LARGEST}"
    if n < 2 * d + 20:
        return f"{n:,} draws are too few for {d} numbers each; wanted {2 * d + 20:,} or more"
    flat = flattened(x)
    ordered = np.sort(flat[:_LOOK], axis=0)
    ties = np.mean(np.diff(ordered, axis=0) == 0, axis=0)
    if np.any(constant := ordered[0] == ordered[-1]):
        return f"number {int(np.argmax(constant))} of a draw never varies: there is no density"
    if np.any(ties > _MOST_TIES):
        return f"number {int(np.argmax(ties))} of a draw has the same values again and again: it is discrete"
    scaled = (flat - flat.mean(axis=0)) / flat.std(axis=0)
    value = np.linalg.eigvalsh(scaled.T @ scaled / n)
    if value[0] < _LEAST_VARIANCE * value[-1]:
        return "some of their numbers follow from the others, so there is no density: leave those out"
    return ""


def fit(xs: list[Data], weights: list[np.ndarray | None]) -> Reference:
    """Fit one component to each model's draws, of the family that describes other draws best.

    Parameters
    ----------
    xs
        Draws of each model, for which `refusal` is empty.
    weights
        Importance weights of the draws, or None.
    """
    pairs = zip(xs, weights, strict=True)
    return Reference(tuple(_best(flattened(x), weight) for x, weight in pairs))


def fit_gaussian(x: Data) -> Reference:
    """Fit a single Gaussian to the numbers as they are."""
    flat = flattened(x)
    return Reference((_fitted(flat, np.ones(len(flat)), np.zeros(flat.shape[1], dtype=np.int64), False),))


def flattened(x: Data) -> np.ndarray:
    """All numbers of each draw in a row, (n, d), in double precision."""
    # With -1 for the numbers of a draw, NumPy cannot tell them if there are no draws.
    parts = [
        np.reshape(array, (len(array), math.prod(array.shape[1:]))).astype(np.float64, copy=False)
        for array in arrays_of(x)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _unflattened(flat: np.ndarray, like: Data) -> Data:
    if not isinstance(like, dict):
        return flat.reshape(len(flat), *like.shape[1:]).astype(like.dtype, copy=False)
    ends = np.cumsum([array[0].size for array in like.values()])[:-1]
    parts: dict[str, Any] = dict(zip(like, np.split(flat, ends, axis=1), strict=True))
    return {
        key: part.reshape(len(flat), *like[key].shape[1:]).astype(like[key].dtype)
        for key, part in parts.items()
    }


def _best(x: np.ndarray, weight: np.ndarray | None) -> Component:
    """Fit each family to most of the draws; fit the one that describes the others best to all draws."""
    weight = np.ones(len(x)) if weight is None else weight.astype(np.float64)
    judges = np.arange(len(x)) % round(1 / _JUDGING_PART) == 0
    plain = np.zeros(x.shape[1], dtype=np.int64)
    warps = [plain]
    if np.any(warp := _warps(x[~judges])):
        warps.append(warp)
    best, best_log_p = None, np.zeros(0)
    for option in [(warp, heavy) for warp in warps for heavy in (False, True)]:
        log_p = _fitted(x[~judges], weight[~judges], *option).log_density(x[judges])
        gained = (log_p - best_log_p) * weight[judges] if best is not None else np.ones(1)
        if gained.mean() > gained.std() / np.sqrt(len(gained)):
            best, best_log_p = option, log_p
    return _fitted(x, weight, *(best or (plain, False)))


def _warps(x: np.ndarray) -> np.ndarray:
    """Return the transformation of each number that a Gaussian describes best, (d,)."""
    x = x[:_LOOK]
    scores = np.full((len(_WARPS), x.shape[1]), -np.inf)
    for warp in (_PLAIN, _ASINH, _LOG):
        able = np.all(x > 0, axis=0) if warp == _LOG else np.ones(x.shape[1], dtype=bool)
        kinds = np.full(int(able.sum()), warp)
        y, log_slope = _warped(x[:, able], kinds, *_scaling(x[:, able], kinds))
        scores[warp, able] = log_slope.mean(axis=0) - np.log(y.std(axis=0))
    scores[_PLAIN] += _LEAST_GAIN
    return np.argmax(scores, axis=0)


def _scaling(x: np.ndarray, warp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians, and one over robust standard deviations, of the numbers or their logarithms."""
    z = np.where(warp == _LOG, np.log(np.where(warp == _LOG, x, 1.0)), x)
    first, middle, third = np.quantile(z[:_LOOK], [0.25, 0.5, 0.75], axis=0)
    spread = np.where(third > first, third - first, _QUARTILES * z.std(axis=0))
    return middle, _QUARTILES / spread


def _warped(
    x: np.ndarray, warp: np.ndarray, shift: np.ndarray, factor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scaled and warped numbers, and the log of the derivative of each by the number itself, both (n, d)."""
    logarithm = warp == _LOG
    with np.errstate(divide="ignore"):
        z = np.where(logarithm, np.log(np.maximum(np.where(logarithm, x, 1.0), 0.0)), x)
    # The density is zero where the logarithm does not exist.
    log_slope = np.log(factor) - np.where(logarithm, np.where(np.isinf(z), np.inf, z), 0.0)
    y = (np.where(np.isinf(z), 0.0, z) - shift) * factor
    log_slope = log_slope - np.where(warp == _ASINH, 0.5 * np.log1p(np.square(y)), 0.0)
    return np.where(warp == _ASINH, np.arcsinh(y), y), log_slope


def _fitted(x: np.ndarray, weight: np.ndarray, warp: np.ndarray, heavy: bool) -> Component:
    """Fit a Gaussian, or if `heavy` a Student t, to draws (n, d) with weights (n,)."""
    shift, factor = _scaling(x, warp)
    y = _warped(x, warp, shift, factor)[0]
    size = float(np.square(weight.sum()) / np.square(weight).sum())
    mean, root = _moments(y, weight, weight.sum())
    start = Component(warp, shift, factor, mean, root, np.inf, size)
    return _with_tails(start, y, weight) if heavy else start


def _with_tails(gaussian: Component, y: np.ndarray, weight: np.ndarray) -> Component:
    """Fit mean, covariance and degrees of freedom of a Student t by expectation and maximisation."""
    d = y.shape[1]
    part = slice(None, max(int(_FITTING_WORK / d**2), 4 * d))
    fitted = replace(gaussian, freedom=10.0)
    # Most steps are on a part of the draws, and come near. The last ones are on all draws.
    for rows in [part] * _STEPS + [slice(None)] * _LAST_STEPS:
        square = fitted._square(y[rows])
        v = _best_freedom(square, weight[rows], d)
        mean, root = _moments(y[rows], weight[rows] * (v + d) / (v + square), weight[rows].sum())
        fitted = replace(fitted, mean=mean, root=root, freedom=v)
        if v > 0.9 * _FREEDOM[1]:
            return gaussian
    return fitted


def _best_freedom(square: np.ndarray, weight: np.ndarray, d: int) -> float:
    """Return the most likely degrees of freedom, given squared distances (n,) in d dimensions."""

    def cost(log_freedom: float) -> float:
        v = float(np.exp(log_freedom))
        kernel = gammaln((v + d) / 2) - gammaln(v / 2) - d / 2 * np.log(v)
        return -float(np.average(kernel - (v + d) / 2 * np.log1p(square / v), weights=weight))

    ends = (float(np.log(_FREEDOM[0])), float(np.log(_FREEDOM[1])))
    return float(np.exp(minimize_scalar(cost, bounds=ends, method="bounded").x))


def _moments(y: np.ndarray, weight: np.ndarray, total: float) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean, and a root of the weighted squares around it over `total`."""
    mean = weight @ y / weight.sum()
    away = y - mean
    return mean, np.linalg.cholesky((away * weight[:, None]).T @ away / total)


def _log_mean(parts: np.ndarray) -> np.ndarray:
    """Log of the mean of exponentials over the first axis; −inf where all are."""
    return np.asarray(logsumexp(parts, axis=0) - np.log(len(parts)))
