"""Steer a simulator: a stand-in for `numpy.random.Generator` that makes every number from standard normals.

A simulator turns random numbers into data. Here these are standard normals z, which are kept, so that the
simulator can be run again with numbers close to those of an earlier draw: z' = √(1 − β²) z + β ξ, with fresh
normals ξ. This move leaves the law of z as it is, for any β, and so the law of the data too.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from scipy import special

from evidencenet._common.arrays import Data, arrays_of, finite_rows, join, map_arrays
from evidencenet.rare import laws
from evidencenet.simulation.model import DrawError, Model

Array = np.ndarray

# Rows of the batch by which a simulator is tried out. A prime number: no axis of the data is likely to have
# it.
_TRIAL_ROWS = 61
# Two runs of the same numbers may differ by this part of the data's size: sums of a batch may be taken in
# another order, and simulators may work in single precision.
_ROUNDING = 1e-4


class UnsteerableError(RuntimeError):
    """A simulator's random numbers cannot be changed draw by draw; the message says which and what to do."""


class Steered(np.random.Generator):
    """A random generator whose numbers are made from standard normals that it keeps.

    Parameters
    ----------
    fresh
        Where fresh normals come from.
    rows
        How many draws the simulator makes at once; None for a simulator of single draws.
    before
        The normals of an earlier run, one array a call: (rows, m), or (m,) for single draws. Where there are
        none, or too few, fresh ones are taken.
    step
        β of the move away from `before`, one number a row, (rows,), or one for all. 0 repeats the earlier
        run.
    repeated
        So many of the first calls repeat `before` as it is, whatever `step` says.

    Notes
    -----
    `normals` are those of this run, one array a call, and `calls` the names of the calls.
    """

    def __init__(
        self,
        fresh: np.random.Generator,
        rows: int | None,
        before: Sequence[Array] | None = None,
        step: Array | float = 1.0,
        repeated: int = 0,
    ) -> None:
        super().__init__(np.random.PCG64(0))
        self._fresh, self._rows = fresh, rows
        self._before = [] if before is None else before
        self._step = np.asarray(step, dtype=np.float64)
        self._repeated = repeated
        self.normals: list[Array] = []
        self.calls: list[str] = []

    # ------------------------------------------------------------------ normals, call by call

    def _normals(self, call: str, shape: tuple[int, ...], extra: tuple[int, ...] = ()) -> Array:
        """Return the normals of the next call, of the shape of its result followed by `extra`."""
        number = len(self.normals)
        if self._rows is None:
            wanted = math.prod(shape) * math.prod(extra)
            z = self._moved(number, (wanted,))
            self._keep(call, shape, z)
            return z.reshape(shape + extra)
        axis = self._axis(call, shape)
        others = (*shape[:axis], *shape[axis + 1 :])
        z = self._moved(number, (self._rows, math.prod(others) * math.prod(extra)))
        self._keep(call, shape, z)
        return np.moveaxis(z.reshape(self._rows, *others, *extra), 0, axis)

    def _keep(self, call: str, shape: tuple[int, ...], z: Array) -> None:
        self.normals.append(z)
        self.calls.append(f"rng.{call} of shape {shape}" if shape else f"rng.{call} of a single number")

    def _axis(self, call: str, shape: tuple[int, ...]) -> int:
        """Return the axis of the draws: the first one, or else the only other one of the right length."""
        matching = [axis for axis, length in enumerate(shape) if length == self._rows]
        if matching and (matching[0] == 0 or len(matching) == 1):
            return matching[0]
        what = f"an array of shape {shape}" if shape else "a single number"
        raise UnsteerableError(
            f"rng.{call} drew {what} for {self._rows} draws: no axis of it is that of the draws, so "
            "the numbers "
            "of one draw cannot be told from those of another. Draw arrays whose first axis is n, or "
            "write the "
            'simulator for one draw at a time and declare it with kind="one", where any control flow works.'
        )

    def _moved(self, number: int, shape: tuple[int, ...]) -> Array:
        known = self._before[number] if number < len(self._before) else None
        if known is not None and known.shape != shape:
            # A longer or shorter call takes what there is; numbers that were not used before are fresh ones.
            if self._rows is not None:
                raise UnsteerableError(
                    f"call {number + 1} of the random generator drew {shape[1]} numbers a draw where it drew "
                    f"{known.shape[1]} before: which calls are made depends on earlier numbers of the batch. "
                    'Write the simulator for one draw at a time, kind="one", where any control flow works.'
                )
            missing = self._fresh.standard_normal(max(shape[0] - len(known), 0))
            known = np.concatenate([known[: shape[0]], missing])
        if known is not None and number < self._repeated:
            return known
        if known is None:
            return self._fresh.standard_normal(shape)
        step = self._step[:, None] if self._step.ndim else self._step
        if not np.any(step):
            return known
        return np.sqrt(1 - np.square(step)) * known + step * self._fresh.standard_normal(shape)

    def _shape(self, size: Any, *parameters: Any) -> tuple[int, ...]:
        """Return the shape of a result, from `size` or else that of the parameters together."""
        together = np.broadcast_shapes(*(np.shape(parameter) for parameter in parameters))
        if size is None:
            return together
        shape = (operator.index(size),) if np.ndim(size) == 0 else tuple(map(operator.index, size))
        if np.broadcast_shapes(shape, together) != shape:
            raise ValueError(f"size = {shape} does not hold parameters of shape {together}")
        return shape

    def _give(self, values: Any, size: Any, *parameters: Any, out: Any = None, dtype: Any = None) -> Any:
        """Return numbers as NumPy does: a plain number if neither size nor parameters are arrays."""
        if dtype is not None:
            values = np.asarray(values).astype(dtype, copy=False)
        if out is not None:
            out[...] = values
            return out
        if size is None and all(np.ndim(parameter) == 0 for parameter in parameters):
            return np.asarray(values)[()].item() if np.asarray(values).ndim == 0 else values
        return np.asarray(values)

    def _size(self, size: Any, out: Any) -> Any:
        return out.shape if size is None and out is not None else size

    # ------------------------------------------------------------------ continuous laws

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """As NumPy's."""
        size = self._size(size, out)
        z = self._normals("random", self._shape(size))
        return self._give(laws.uniform(z, dtype), size, out=out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("uniform", self._shape(size, low, high))
        low, high = _numbers(low, high)
        # From the nearer end, so that numbers close to it are precise.
        value = np.where(z < 0, low + (high - low) * special.ndtr(z), high - (high - low) * special.ndtr(-z))
        return self._give(value, size, low, high)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """As NumPy's."""
        size = self._size(size, out)
        z = self._normals("standard_normal", self._shape(size))
        # A copy: a simulator may write into what it draws.
        return self._give(np.array(z, dtype=dtype), size, out=out)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("normal", self._shape(size, loc, scale))
        loc, scale = _numbers(loc, scale)
        return self._give(loc + scale * z, size, loc, scale)

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("lognormal", self._shape(size, mean, sigma))
        mean, sigma = _numbers(mean, sigma)
        return self._give(np.exp(mean + sigma * z), size, mean, sigma)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        """As NumPy's."""
        size = self._size(size, out)
        z = self._normals("standard_exponential", self._shape(size))
        return self._give(laws.exponential(z), size, out=out, dtype=dtype)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("exponential", self._shape(size, scale))
        return self._give(np.asarray(scale) * laws.exponential(z), size, scale)

    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """As NumPy's."""
        size = self._size(size, out)
        z = self._normals("standard_gamma", self._shape(size, shape))
        return self._give(laws.gamma(z, shape), size, shape, out=out, dtype=dtype)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("gamma", self._shape(size, shape, scale))
        return self._give(np.asarray(scale) * laws.gamma(z, shape), size, shape, scale)

    def chisquare(self, df: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("chisquare", self._shape(size, df))
        return self._give(2 * laws.gamma(z, 0.5 * np.asarray(df)), size, df)

    def noncentral_chisquare(self, df: Any, nonc: Any, size: Any = None) -> Any:
        """As NumPy's; from two normals, by the law's mixture of chi-squares over a Poisson count."""
        z = self._normals("noncentral_chisquare", self._shape(size, df, nonc), (2,))
        more = laws.poisson(z[..., 0], 0.5 * np.asarray(nonc))
        return self._give(2 * laws.gamma(z[..., 1], 0.5 * np.asarray(df) + more), size, df, nonc)

    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> Any:
        """As NumPy's; from two normals."""
        z = self._normals("f", self._shape(size, dfnum, dfden), (2,))
        above, below = _numbers(dfnum, dfden)
        ratio = laws.gamma(z[..., 0], 0.5 * above) / above / (laws.gamma(z[..., 1], 0.5 * below) / below)
        return self._give(ratio, size, dfnum, dfden)

    def beta(self, a: Any, b: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("beta", self._shape(size, a, b))
        return self._give(laws.beta(z, a, b), size, a, b)

    def standard_t(self, df: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("standard_t", self._shape(size, df))
        return self._give(laws.standard_t(z, df), size, df)

    def standard_cauchy(self, size: Any = None) -> Any:
        """As NumPy's."""
        return self._give(laws.cauchy(self._normals("standard_cauchy", self._shape(size))), size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        return self._scaled("laplace", laws.laplace, loc, scale, size)

    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        return self._scaled("logistic", laws.logistic, loc, scale, size)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        return self._scaled("gumbel", laws.gumbel, loc, scale, size)

    def _scaled(self, call: str, law: Any, loc: Any, scale: Any, size: Any) -> Any:
        z = self._normals(call, self._shape(size, loc, scale))
        loc, scale = _numbers(loc, scale)
        return self._give(loc + scale * law(z), size, loc, scale)

    def weibull(self, a: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("weibull", self._shape(size, a))
        return self._give(laws.exponential(z) ** (1 / np.asarray(a)), size, a)

    def pareto(self, a: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("pareto", self._shape(size, a))
        return self._give(np.expm1(laws.exponential(z) / np.asarray(a)), size, a)

    def power(self, a: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("power", self._shape(size, a))
        return self._give(np.exp(special.log_ndtr(z) / np.asarray(a)), size, a)

    def rayleigh(self, scale: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("rayleigh", self._shape(size, scale))
        return self._give(np.asarray(scale) * np.sqrt(2 * laws.exponential(z)), size, scale)

    def vonmises(self, mu: Any, kappa: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("vonmises", self._shape(size, mu, kappa))
        return self._give(laws.vonmises(z, mu, kappa), size, mu, kappa)

    def triangular(self, left: Any, mode: Any, right: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("triangular", self._shape(size, left, mode, right))
        return self._give(laws.triangular(z, left, mode, right), size, left, mode, right)

    def wald(self, mean: Any, scale: Any, size: Any = None) -> Any:
        """As NumPy's; from two normals, by the two roots of a chi-square."""
        z = self._normals("wald", self._shape(size, mean, scale), (2,))
        mean, scale = _numbers(mean, scale)
        y = mean * np.square(z[..., 0]) / (2 * scale)
        # The smaller root, written so that it does not cancel.
        small = mean / (1 + y + np.sqrt(y * (2 + y)))
        value = np.where(special.ndtr(z[..., 1]) * (mean + small) <= mean, small, np.square(mean) / small)
        return self._give(value, size, mean, scale)

    # ------------------------------------------------------------------ counts

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        """As NumPy's."""
        low, high = (0, low) if high is None else (low, high)
        last = np.asarray(high) if endpoint else np.asarray(high) - 1
        if np.any(np.asarray(low) > last):
            raise ValueError(f"low = {low} is not below high = {high}")
        z = self._normals("integers", self._shape(size, low, high))
        return self._give(laws.integers(z, low, last, dtype), size, low, high)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("poisson", self._shape(size, lam))
        return self._give(laws.poisson(z, lam), size, lam)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("binomial", self._shape(size, n, p))
        return self._give(laws.binomial(z, n, p), size, n, p)

    def negative_binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("negative_binomial", self._shape(size, n, p))
        return self._give(laws.negative_binomial(z, n, p), size, n, p)

    def geometric(self, p: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("geometric", self._shape(size, p))
        return self._give(laws.geometric(z, p), size, p)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("hypergeometric", self._shape(size, ngood, nbad, nsample))
        return self._give(laws.hypergeometric(z, ngood, nbad, nsample), size, ngood, nbad, nsample)

    def zipf(self, a: Any, size: Any = None) -> Any:
        """As NumPy's."""
        z = self._normals("zipf", self._shape(size, a))
        return self._give(laws.zipf(z, a), size, a)

    # ------------------------------------------------------------------ several numbers at once

    def multivariate_normal(
        self,
        mean: Any,
        cov: Any,
        size: Any = None,
        check_valid: str = "warn",
        tol: float = 1e-8,
        *,
        method: str = "svd",
    ) -> Any:
        """As NumPy's."""
        mean, cov = np.asarray(mean, dtype=np.float64), np.asarray(cov, dtype=np.float64)
        z = self._normals("multivariate_normal", self._shape(size), mean.shape)
        value, vector = np.linalg.eigh(cov)
        if value.min() < -tol * max(1.0, abs(value.max())) and check_valid != "ignore":
            raise ValueError("the covariance has a negative eigenvalue")
        return mean + z @ (vector * np.sqrt(np.maximum(value, 0))).T

    def dirichlet(self, alpha: Any, size: Any = None) -> Any:
        """As NumPy's."""
        alpha = np.asarray(alpha, dtype=np.float64)
        z = self._normals("dirichlet", self._shape(size), (*alpha.shape, 2))
        # G(α) = G(α + 1) · U^(1/α), in logs: gamma numbers of a small shape are often too small to be
        # written.
        log_gamma = np.log(laws.gamma(z[..., 0], alpha + 1)) + special.log_ndtr(z[..., 1]) / alpha
        return special.softmax(log_gamma, axis=-1)

    def multinomial(self, n: Any, pvals: Any, size: Any = None) -> Any:
        """As NumPy's: one binomial after the other."""
        n, p = np.asarray(n), np.asarray(pvals, dtype=np.float64)
        shape = self._shape(size, n, p[..., 0])
        cells = p.shape[-1]
        z = self._normals("multinomial", shape, (cells - 1,))
        left = np.broadcast_to(n, shape).astype(np.int64)
        rest = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
        counts = np.empty((*shape, cells), dtype=np.int64)
        for cell in range(cells - 1):
            share = np.clip(p[..., cell] / np.maximum(rest[..., cell], 1e-300), 0, 1)
            counts[..., cell] = laws.binomial(z[..., cell], left, np.broadcast_to(share, shape))
            left = left - counts[..., cell]
        counts[..., -1] = left
        return counts

    # ------------------------------------------------------------------ choices and orders

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        """As NumPy's."""
        whole = np.ndim(a) == 0
        number = operator.index(a) if whole else np.shape(a)[axis]
        chance = None if p is None else np.asarray(p, dtype=np.float64)
        shape = self._shape(size)
        if replace or size is None:
            z = self._normals("choice", shape)
            index = (
                laws.integers(z, 0, number - 1, np.int64) if chance is None else laws.categories(z, chance)
            )
        else:
            if math.prod(shape) > number:
                raise ValueError(f"cannot take {math.prod(shape)} of {number} without replacement")
            keys = laws.exponential(self._normals("choice", (), (number,)))
            if chance is not None:
                with np.errstate(divide="ignore"):
                    keys = np.where(chance > 0, keys / chance, np.inf)
            index = np.argsort(keys, kind="stable")[: math.prod(shape)].reshape(shape)
        if whole:
            return int(index) if size is None else index
        return np.take(np.asarray(a), index, axis=axis)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """As NumPy's."""
        array = np.arange(operator.index(x)) if np.ndim(x) == 0 else np.asarray(x)
        order = np.argsort(self._normals("permutation", (), (array.shape[axis],)), kind="stable")
        return np.take(array, order, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """As NumPy's."""
        if isinstance(x, np.ndarray):
            order = np.argsort(self._normals("shuffle", (), (x.shape[axis],)), kind="stable")
            x[...] = np.take(x, order, axis=axis)
            return
        order = np.argsort(self._normals("shuffle", (), (len(x),)), kind="stable")
        x[:] = [x[i] for i in order]

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """As NumPy's."""
        array = np.asarray(x)
        if axis is None:
            order = np.argsort(self._normals("permuted", (), (array.size,)), kind="stable")
            value = np.ravel(array)[order].reshape(array.shape)
        else:
            order = np.argsort(self._normals("permuted", array.shape), axis=axis, kind="stable")
            value = np.take_along_axis(array, order, axis=axis)
        if out is None:
            return value
        out[...] = value
        return out

    # ------------------------------------------------------------------ what cannot be steered

    def _refuse(self, call: str) -> NoReturn:
        raise UnsteerableError(
            f"rng.{call} cannot be steered: its numbers are not made from a fixed number of normals. Draw "
            "them with another method of rng, such as random, normal, gamma, integers or choice."
        )

    def bytes(self, length: int) -> NoReturn:
        """Refuse."""
        self._refuse("bytes")

    def logseries(self, p: Any, size: Any = None) -> NoReturn:
        """Refuse."""
        self._refuse("logseries")

    def noncentral_f(self, dfnum: Any, dfden: Any, nonc: Any, size: Any = None) -> NoReturn:
        """Refuse."""
        self._refuse("noncentral_f")

    def multivariate_hypergeometric(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse."""
        self._refuse("multivariate_hypergeometric")

    def spawn(self, n_children: int) -> NoReturn:
        """Refuse."""
        self._refuse("spawn")

    def __repr__(self) -> str:
        return f"Steered({'one draw' if self._rows is None else f'{self._rows} draws'})"

    __str__ = __repr__

    @property
    def bit_generator(self) -> NoReturn:
        """Refuse."""
        self._refuse("bit_generator")


def _numbers(*values: Any) -> tuple[Array, ...]:
    return tuple(np.asarray(value, dtype=np.float64) for value in values)


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws of a model together with the normals they were made from.

    Parameters
    ----------
    x
        The data of n draws; rows of failed draws hold anything.
    valid
        Which draws did not fail, (n,).
    normals
        One array a call, (n, m); for a simulator of single draws, one such list a draw.
    """

    x: Data
    valid: Array
    normals: list[Any]
    single: bool

    def __len__(self) -> int:
        return len(self.valid)

    def take(self, rows: Array) -> "Chains":
        """Return some of the draws, in any order and number."""
        if self.single:
            normals = [self.normals[row] for row in rows]
        else:
            normals = [array[rows] for array in self.normals]
        return Chains(map_arrays(lambda array: array[rows], self.x), self.valid[rows], normals, self.single)

    @staticmethod
    def concatenate(parts: "Sequence[Chains]") -> "Chains":
        """Join draws of the same model."""
        if len(parts) == 1:
            return parts[0]
        x, valid = join(*(part.x for part in parts)), np.concatenate([part.valid for part in parts])
        if parts[0].single:
            return Chains(x, valid, [draw for part in parts for draw in part.normals], True)
        calls = zip(*(part.normals for part in parts), strict=True)
        return Chains(x, valid, [np.concatenate(call) for call in calls], False)

    def updated(self, accepted: Array, other: "Chains") -> "Chains":
        """Return these draws, with the accepted ones in the place of their own."""

        def mixed(old: Array, new: Array) -> Array:
            return np.where(accepted.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        if self.single:
            pairs = zip(accepted, other.normals, self.normals, strict=True)
            normals = [new if taken else old for taken, new, old in pairs]
        else:
            normals = [mixed(old, new) for old, new in zip(self.normals, other.normals, strict=True)]
        if isinstance(self.x, dict):
            assert isinstance(other.x, dict)
            x: Data = {key: mixed(array, other.x[key]) for key, array in self.x.items()}
        else:
            assert not isinstance(other.x, dict)
            x = mixed(self.x, other.x)
        return replace(self, x=x, valid=np.where(accepted, other.valid, self.valid), normals=normals)


def draw(model: Model, rng: np.random.Generator, n: int) -> Chains:
    """Draw n data sets of a model, and keep the normals that they are made from."""
    return _run(model, rng, n, None, np.ones(n))


def moved(model: Model, rng: np.random.Generator, chains: Chains, step: Array) -> Chains:
    """Run the simulator on normals close to those of each chain, z' = √(1 − β²) z + β ξ.

    Parameters
    ----------
    model, rng
        The model, and where fresh normals come from.
    chains
        Where to start.
    step
        β of each chain, from 0 to 1, (n,).
    """
    return _run(model, rng, len(chains), chains, step)


def _run(model: Model, rng: np.random.Generator, n: int, before: Chains | None, step: Array) -> Chains:
    if model.kind == "one":
        known = [None] * n if before is None else before.normals
        return _one_by_one(model, [Steered(rng, None, z, beta) for z, beta in zip(known, step, strict=True)])
    stand_in = Steered(rng, n, None if before is None else before.normals, step)
    try:
        x, _ = model.draw(stand_in, n)
    except (DrawError, MemoryError, UnsteerableError):
        raise
    except Exception:
        # One draw of the batch failed, and nobody knows which. Each is made again by itself, from the same
        # numbers as far as they were drawn.
        return _row_by_row(model, rng, n, stand_in.normals, [] if before is None else before.normals, step)
    made = stand_in.normals
    if before is not None and len(made) != len(before.normals):
        raise UnsteerableError(
            f"the simulator of model {model.name!r} made {len(made)} calls of the random generator where it "
            f"made {len(before.normals)} before, so the numbers of its draws cannot be told apart. "
            "Write it for one "
            'draw at a time, kind="one", where any control flow works.'
        )
    return Chains(x, _finite(x), made, False)


def _one_by_one(model: Model, stand_ins: list[Steered]) -> Chains:
    rows: list[Data | None] = []
    for stand_in in stand_ins:
        try:
            x, _ = model.draw(stand_in, 1)
        except (DrawError, MemoryError, UnsteerableError):
            raise
        except Exception:
            rows.append(None)
        else:
            rows.append(x)
    x, valid = _joined(model, rows)
    return Chains(x, valid, [stand_in.normals for stand_in in stand_ins], True)


def _row_by_row(
    model: Model, rng: np.random.Generator, n: int, made: list[Array], before: list[Array], step: Array
) -> Chains:
    rows: list[Data | None] = []
    normals: list[list[Array]] = []
    for row in range(n):
        known = [array[row : row + 1] for array in made]
        known += [array[row : row + 1] for array in before[len(made) :]]
        stand_in = Steered(rng, 1, known, step[row : row + 1], repeated=len(made))
        try:
            x, _ = model.draw(stand_in, 1)
        except (DrawError, MemoryError, UnsteerableError):
            raise
        except Exception:
            rows.append(None)
        else:
            rows.append(x)
        normals.append(stand_in.normals)
    x, valid = _joined(model, rows)
    calls = max(map(len, normals))
    widths = [max(z[call].shape[1] for z in normals if call < len(z)) for call in range(calls)]
    whole = []
    for call, width in enumerate(widths):
        # A draw that failed made fewer calls; the numbers it never asked for are fresh ones.
        parts = [z[call] if call < len(z) else rng.standard_normal((1, width)) for z in normals]
        whole.append(np.concatenate(parts))
    return Chains(x, valid, whole, False)


def _joined(model: Model, rows: list[Data | None]) -> tuple[Data, Array]:
    """Put single draws together; the places of failed ones are filled with another draw."""
    example = next((row for row in rows if row is not None), None)
    if example is None:
        raise RuntimeError(
            f"all of {len(rows)} draws of model {model.name!r} failed. Correct the simulator or the prior."
        )
    filled = [example if row is None else row for row in rows]
    if isinstance(example, dict):
        x: Data = {key: np.concatenate([row[key] for row in filled]) for key in example}
    else:
        x = np.concatenate(filled)  # type: ignore[arg-type]
    return x, np.array([row is not None for row in rows]) & _finite(x)


def check_steerable(model: Model, *, seed: int = 0) -> None:
    """Find out whether a simulator's random numbers can be changed draw by draw.

    Parameters
    ----------
    model
        The model. It is run a few times, on 61 draws.
    seed
        Of these draws.

    Raises
    ------
    UnsteerableError
        If not, with the call that is the cause, and what to do.

    Examples
    --------
    >>> flat = Model("flat", lambda rng, n: rng.normal(size=(n, 20)))
    >>> check_steerable(flat)
    >>> shared = Model("shared", lambda rng, n: rng.normal() + rng.normal(size=(n, 20)))
    >>> check_steerable(shared)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UnsteerableError: model 'shared': rng.normal drew a single number for 61 draws: ...
    """
    if model.kind == "jax":
        raise UnsteerableError(
            f"model {model.name!r} is a JAX simulator. Its random numbers come from keys, which are hashed: "
            "no key gives numbers close to those of another, so they cannot be steered. Draw the numbers "
            'with NumPy, in simulate(rng, n), or in simulate(rng) with kind="one", and call your JAX '
            "functions on them."
        )
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    n = _TRIAL_ROWS
    try:
        first = draw(model, rng, n)
        _check_repeats(model, rng, first)
        if not first.single:
            _check_rows(model, rng, first)
    except UnsteerableError as error:
        if str(error).startswith("model "):
            raise
        raise UnsteerableError(f"model {model.name!r}: {error}") from None


def _check_repeats(model: Model, rng: np.random.Generator, first: Chains) -> None:
    again = moved(model, rng, first, np.zeros(len(first)))
    if not _same(again, first).all():
        raise UnsteerableError(
            f"model {model.name!r} gives other data for the same random numbers: it draws from "
            "elsewhere too, "
            "such as numpy.random, random, a generator of its own, or the clock. Draw all numbers "
            "from the `rng` that "
            "the simulator is given."
        )


def _check_rows(model: Model, rng: np.random.Generator, first: Chains) -> None:
    n = len(first)
    odd = np.arange(n) % 2 == 1

    def spreads(numbers: Sequence[int]) -> bool:
        """Say whether other numbers in the odd rows of these calls change the data of even rows."""
        normals = list(first.normals)
        for number in numbers:
            other = rng.standard_normal(normals[number].shape)
            normals[number] = np.where(odd[:, None], other, normals[number])
        changed = moved(model, rng, replace(first, normals=normals), np.zeros(n))
        return not _same(changed, first)[~odd].all()

    every = range(len(first.normals))
    if spreads(every):
        probe = Steered(rng, n, first.normals, 0.0)
        model.draw(probe, n)
        guilty = [call for number, call in enumerate(probe.calls) if spreads([number])]
        raise UnsteerableError(
            f"model {model.name!r}: numbers drawn by {' and by '.join(guilty or probe.calls)} for one draw "
            "change the data of another draw. Keep the draws of a batch apart: row i of every array "
            "must be used for "
            'draw i only. Or write the simulator for one draw at a time and declare it with kind="one".'
        )
    swapped = first.take(rng.permutation(n))
    if not _same(moved(model, rng, swapped, np.zeros(n)), swapped).all():
        raise UnsteerableError(
            f"model {model.name!r}: the data of a draw depend on its place in the batch, and not only on its "
            "random numbers. Give all draws of a batch the same law, or write the simulator for one "
            "draw at a "
            'time and declare it with kind="one".'
        )


def _finite(x: Data) -> Array:
    """Say which draws hold no NaN and no infinity."""
    valid = np.ones(len(arrays_of(x)[0]), dtype=bool)
    for array in arrays_of(x):
        valid &= finite_rows(array)
    return valid


def _same(one: Chains, other: Chains) -> Array:
    """Say which draws have the same data, but for rounding."""
    equal = one.valid == other.valid
    for ours, theirs in zip(arrays_of(one.x), arrays_of(other.x), strict=True):
        if ours.dtype == bool:
            close = ours == theirs
        else:
            # Compared with how much the data vary, which may be far less than their size.
            finite = ours[np.isfinite(ours)].astype(np.float64)
            spread = np.median(np.abs(finite - np.median(finite))) if finite.size else 0.0
            exact = 8 * np.finfo(ours.dtype).eps if ours.dtype.kind == "f" else 0.0
            close = np.isclose(ours, theirs, rtol=exact, atol=_ROUNDING * spread, equal_nan=True)
        equal &= close.reshape(len(equal), -1).all(axis=1)
    return equal
