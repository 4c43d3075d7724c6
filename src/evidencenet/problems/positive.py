"""Positive data: one lifetime, and samples that spread over many decades."""

import numpy as np
from scipy.special import gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, in_chunks, positive, rows, shuffle
from evidencenet.problems._quadrature import log_integral, trapezoid
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def lifetime(shape: float = 2.0) -> Problem:
    """Decide from one lifetime whether the decay rate is known: the smallest problem, one number.

    M0: x ~ exponential(1), with density e^(−x). M1: x ~ exponential(λ) with λ ~ gamma(a = shape, rate a),
    which gives the Lomax density (1 + x/a)^(−a−1). log K grows without bound as x grows.

    Parameters
    ----------
    shape
        Shape of the prior of λ, whose mean is 1; the smaller, the heavier the tail of x.

    Returns
    -------
    problem
        Data of shape (n, 1), float64; parameters λ of shape (n,).

    Examples
    --------
    >>> lifetime()
    Problem('lifetime', models=('known rate', 'free rate'), augment=no)
    """
    shape = positive("shape", shape)

    def log_evidence(x: Data) -> np.ndarray:
        value = _all_positive(rows(x, (1,)))[:, 0]
        return np.stack([-value, -(shape + 1) * np.log1p(value / shape)], axis=1)

    return Problem(
        name="lifetime",
        models=(
            Model("known rate", lambda rng, n: rng.standard_exponential((n, 1))),
            Model(
                "free rate",
                lambda rng, rate: rng.standard_exponential((len(rate), 1)) / rate[:, None],
                prior=lambda rng, n: rng.standard_gamma(shape, n) / shape,
            ),
        ),
        log_evidence=log_evidence,
    )


def decades(size: int = 10, *, shape: float = 1.5, width: float = 1.0) -> Problem:
    """Distinguish gamma from log-normal data whose scale is unknown over many decades.

    M0: x_i ~ gamma(k = shape, rate r) with r ~ gamma(a = 0.3, rate 1). M1: log x_i ~ N(μ, width²) with μ ~
    N(3, 4²). With S = Σ x_i,

        p(x|M0) = ∏ x_i^(k−1) / Γ(k)^size · Γ(a + size·k) / (Γ(a) (1 + S)^(a + size·k)).

    In M1 log x is normal with covariance width² I + 16 · 1 1ᵀ, and each x_i adds −log x_i.

    log K does not depend on the order of the values.

    Parameters
    ----------
    size
        Values in a data set.
    shape
        Shape of the gamma distribution.
    width
        Standard deviation of log x in M1.

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters of shape (n,): r in M0, μ in M1.

    Examples
    --------
    >>> decades()
    Problem('decades', models=('gamma', 'log-normal'), augment=yes)
    """
    size = count("size", size)
    shape, width = positive("shape", shape), positive("width", width)
    a, centre, spread = 0.3, 3.0, 4.0

    def log_evidence(x: Data) -> np.ndarray:
        x = _all_positive(rows(x, (size,)))
        log_x = np.log(x)
        jacobian = log_x.sum(axis=1)
        posterior_shape = a + size * shape
        gamma = (shape - 1) * jacobian - size * gammaln(shape) + gammaln(posterior_shape) - gammaln(a)
        gamma = gamma - posterior_shape * np.log1p(x.sum(axis=1))
        # The mean and the scatter are computed separately: the difference of two sums of squares would lose
        # digits where |log x| is large.
        mean = log_x.mean(axis=1) - centre
        scatter = ((log_x - log_x.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        variance = width**2 + size * spread**2
        normal = -0.5 * (scatter / width**2 + size * mean**2 / variance)
        normal = normal - (size - 1) * np.log(width) - 0.5 * np.log(variance) - 0.5 * size * np.log(2 * np.pi)
        return np.stack([gamma, normal - jacobian], axis=1)

    return Problem(
        name="decades",
        models=(
            Model(
                "gamma",
                lambda rng, rate: rng.standard_gamma(shape, (len(rate), size)) / rate[:, None],
                prior=lambda rng, n: rng.standard_gamma(a, n),
            ),
            Model(
                "log-normal",
                lambda rng, mean: np.exp(mean[:, None] + width * rng.standard_normal((len(mean), size))),
                prior=lambda rng, n: centre + spread * rng.standard_normal(n),
            ),
        ),
        log_evidence=log_evidence,
        augment=shuffle,
    )


def reaction_times(size: int = 25, *, spread: float = 0.5, step: float = 0.4) -> Problem:
    """Distinguish log-normal from gamma reaction times, with unknown scale and shape in both.

    M0: log x_i ~ N(μ, σ²), with σ² ~ inverse gamma(4, 2) and μ ~ N(log 0.5, 4 σ²): times are in seconds. log
    x has a multivariate Student t density, as in `t_test`, and each x_i adds −log x_i. M1: x_i ~ gamma(k,
    rate r), with log k ~ N(log 2, spread²) and r ~ gamma(1, rate 0.3). At given k the integral over r has a
    closed form, as in `decades`. The mean over log k is computed with the trapezoidal rule.

    log K does not depend on the order of the values.

    Parameters
    ----------
    size
        Values in a data set.
    spread
        Standard deviation of log k.
    step
        Quadrature step for log k, in units of 1/sqrt(size), about the width of its posterior.

    Returns
    -------
    problem
        Data of shape (n, size), float64. Parameters ``mean`` and ``sigma`` in M0, ``shape`` and ``rate`` in
        M1.

    Examples
    --------
    >>> reaction_times()
    Problem('reaction_times', models=('log-normal', 'gamma'), augment=yes)
    """
    size, spread = count("size", size), positive("spread", spread)
    offsets, log_step = trapezoid(8.0 * spread, positive("step", step) / np.sqrt(size))
    shapes = 2.0 * np.exp(offsets)
    log_weights = log_step - 0.5 * (offsets / spread) ** 2 - np.log(spread * np.sqrt(2 * np.pi))
    # The priors: σ² ~ inverse gamma(a, b), μ ~ N(centre, ratio · σ²), r ~ gamma(1, rate_scale).
    centre, a, b, ratio, rate_scale = np.log(0.5), 4.0, 2.0, 4.0, 0.3

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, _all_positive(rows(x, (size,))), 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        log_x = np.log(x)
        jacobian, total = log_x.sum(axis=1), x.sum(axis=1)
        mean = log_x.mean(axis=1)
        scatter = ((log_x - mean[:, None]) ** 2).sum(axis=1)
        determinant = 1 + size * ratio
        squares = scatter + size * (mean - centre) ** 2 / determinant
        posterior_shape = a + 0.5 * size
        normal = gammaln(posterior_shape) - gammaln(a) + a * np.log(b)
        normal = normal - posterior_shape * np.log(b + 0.5 * squares)
        normal = normal - 0.5 * (size * np.log(2 * np.pi) + np.log(determinant)) - jacobian
        power = 1 + size * shapes
        constant = np.log(rate_scale) + gammaln(power) - size * gammaln(shapes)
        gamma = constant + np.outer(jacobian, shapes - 1) - np.outer(np.log(rate_scale + total), power)
        return np.stack([normal, log_integral(gamma, log_weights)], axis=1)

    def normal_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        sigma = np.sqrt(b / rng.standard_gamma(a, n))
        return {"mean": centre + np.sqrt(ratio) * sigma * rng.standard_normal(n), "sigma": sigma}

    def normal_times(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        noise = rng.standard_normal((len(theta["mean"]), size))
        return np.exp(theta["mean"][:, None] + theta["sigma"][:, None] * noise)

    def gamma_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        shape = 2.0 * np.exp(spread * rng.standard_normal(n))
        return {"shape": shape, "rate": rng.standard_exponential(n) / rate_scale}

    def gamma_times(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        times = rng.standard_gamma(theta["shape"][:, None], (len(theta["shape"]), size))
        return times / theta["rate"][:, None]

    return Problem(
        name="reaction_times",
        models=(
            Model("log-normal", normal_times, prior=normal_prior),
            Model("gamma", gamma_times, prior=gamma_prior),
        ),
        log_evidence=log_evidence,
        augment=shuffle,
    )


def _all_positive(x: np.ndarray) -> np.ndarray:
    if not np.all(x > 0):
        raise ValueError("x must be positive everywhere: values of zero or below have no density here")
    return x
