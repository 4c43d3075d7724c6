"""Tests of the mean and the variance of normal samples."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, flip_signs, positive, rows, signs
from evidencenet.problems._normal import linear_log_density, scale_free_log_density
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def mean_test(size: int = 20, spread: float = 1.0, *, scale: float = 1.0, offset: float = 0.0) -> Problem:
    """Test whether the mean of a normal sample of known variance is zero.

    M0: x_i ~ N(0, 1) for i = 1..size. M1: x_i ~ N(μ, 1) with μ ~ N(0, spread²). Both evidences are
    multivariate normal, with covariance I in M0 and I + spread² 1 1ᵀ in M1.

    The data are then written in other units, offset + scale · x. This does not change log K. A tiny or huge
    scale, or an offset that is much larger than the variation, only makes log K harder to learn.

    log K does not change if the data are reflected about the offset.

    Parameters
    ----------
    size
        Sample size.
    spread
        Standard deviation of μ.
    scale, offset
        Unit of the data and its origin.

    Returns
    -------
    problem
        Data of shape (n, size), float64.

    Examples
    --------
    >>> mean_test()
    Problem('mean_test', models=('zero mean', 'free mean'), augment=yes)
    """
    size = count("size", size)
    spread, scale = positive("spread", spread), positive("scale", scale)
    if not np.isfinite(offset):
        raise ValueError(f"offset must be finite, got {offset!r}")
    densities = [linear_log_density(s * np.ones((size, 1)), 1.0) for s in (0.0, spread)]

    def log_evidence(x: Data) -> np.ndarray:
        standard = (rows(x, (size,)) - offset) / scale
        return np.stack([f(standard) for f in densities], axis=1) - size * np.log(scale)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        return offset + flip_signs(rng, rows(x, (size,)) - offset)

    return Problem(
        name="mean_test",
        models=(
            Model("zero mean", lambda rng, n: offset + scale * rng.standard_normal((n, size))),
            Model(
                "free mean",
                lambda rng, mean: offset + scale * (mean[:, None] + rng.standard_normal((len(mean), size))),
                prior=lambda rng, n: spread * rng.standard_normal(n),
            ),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def t_test(size: int = 20, spread: float = 1.0, *, shape: float = 3.0, rate: float = 2.0) -> Problem:
    """Test whether the mean of a normal sample of unknown variance is zero.

    x_i ~ N(μ, σ²) with σ² ~ inverse gamma(shape, rate) in both models. M0: μ = 0. M1: μ ~ N(0, spread² σ²).
    Given σ, the data have covariance σ² C with C = I in M0 and C = I + spread² 1 1ᵀ in M1. The evidence is
    therefore a multivariate Student t density; with a = shape and b = rate,

        p(x) = (2π)^(−n/2) |C|^(−½) b^a Γ(a + n/2) / (Γ(a) (b + ½ xᵀC⁻¹x)^(a + n/2)).

    log K does not change if x changes its sign.

    Parameters
    ----------
    size
        Sample size.
    spread
        Standard deviation of μ, in units of σ.
    shape, rate
        Parameters of the inverse gamma prior of σ².

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters ``mean`` and ``sigma``.

    Examples
    --------
    >>> t_test()
    Problem('t_test', models=('zero mean', 'free mean'), augment=yes)
    """
    size = count("size", size)
    spread, shape, rate = positive("spread", spread), positive("shape", shape), positive("rate", rate)

    def prior(spread: float, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        sigma = np.sqrt(rate / rng.standard_gamma(shape, n))
        return {"mean": spread * sigma * rng.standard_normal(n), "sigma": sigma}

    def sample(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        noise = rng.standard_normal((len(theta["sigma"]), size))
        return theta["mean"][:, None] + theta["sigma"][:, None] * noise

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        squares, total = np.einsum("ij,ij->i", x, x), x.sum(axis=1)
        # The determinant of I + spread² 1 1ᵀ.
        determinant = 1 + size * spread**2
        rest = squares - (spread * total) ** 2 / determinant
        free_mean = scale_free_log_density(rest, size, shape, rate) - 0.5 * np.log(determinant)
        return np.stack([scale_free_log_density(squares, size, shape, rate), free_mean], axis=1)

    return Problem(
        name="t_test",
        models=(
            Model("zero mean", sample, prior=lambda rng, n: prior(0.0, rng, n)),
            Model("free mean", sample, prior=lambda rng, n: prior(spread, rng, n)),
        ),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def variance_test(size: int = 10, *, shape: float = 2.0, rate: float = 2.0) -> Problem:
    """Test whether two normal samples have the same variance.

    There are two samples of `size` values each, all with mean zero. M0: both samples have the same variance
    σ² ~ inverse gamma(shape, rate). M1: each sample has its own variance, drawn independently from the same
    prior. The evidence has the closed form of `t_test`: for all 2·size values together in M0, and for each
    sample separately in M1.

    log K does not change if any value changes its sign, or if the samples are exchanged.

    Parameters
    ----------
    size
        Values in each sample.
    shape, rate
        Parameters of the inverse gamma prior of σ².

    Returns
    -------
    problem
        Data of shape (n, 2·size), float64, one sample after the other; parameters σ of shape (n, 2).

    Examples
    --------
    >>> variance_test()
    Problem('variance_test', models=('one variance', 'two variances'), augment=yes)
    """
    size = count("size", size)
    shape, rate = positive("shape", shape), positive("rate", rate)

    def one_variance(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.repeat(np.sqrt(rate / rng.standard_gamma(shape, (n, 1))), 2, axis=1)

    def two_variances(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.sqrt(rate / rng.standard_gamma(shape, (n, 2)))

    def sample(rng: np.random.Generator, sigma: np.ndarray) -> np.ndarray:
        return np.repeat(sigma, size, axis=1) * rng.standard_normal((len(sigma), 2 * size))

    def log_evidence(x: Data) -> np.ndarray:
        squares = (rows(x, (2 * size,)) ** 2).reshape(-1, 2, size).sum(axis=2)
        together = scale_free_log_density(squares.sum(axis=1), 2 * size, shape, rate)
        separate = scale_free_log_density(squares, size, shape, rate).sum(axis=1)
        return np.stack([together, separate], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = rows(x, (2 * size,))
        exchange = rng.random((len(x), 1)) < 0.5
        return signs(rng, x.shape) * np.where(exchange, np.roll(x, size, axis=1), x)

    return Problem(
        name="variance_test",
        models=(
            Model("one variance", sample, prior=one_variance),
            Model("two variances", sample, prior=two_variances),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )
