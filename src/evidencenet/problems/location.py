"""Samples about an unknown location, with normal or other noise."""

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, flip_signs, in_chunks, positive, rows, shuffle, signs
from evidencenet.problems._normal import linear_log_density
from evidencenet.problems._quadrature import log_integral, trapezoid
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def heavy_tails(size: int = 20, *, freedom: float = 2.0, step: float = 0.5) -> Problem:
    """Distinguish normal noise from noise with heavy tails.

    x_i = μ + n_i with μ ~ N(0, 1). M0: n_i ~ N(0, 1.5²). M1: n_i ~ Student t with `freedom` degrees of
    freedom and unit scale. The evidence of M0 is N(x; 0, 1.5² I + 1 1ᵀ). The evidence of M1 is the mean over
    μ of ∏ t(x_i − μ), computed with the trapezoidal rule.

    log K does not depend on the order of the values, and does not change if all change their sign.

    Parameters
    ----------
    size
        Values in a data set.
    freedom
        Degrees of freedom of the Student t; 1 is the Cauchy distribution.
    step
        Quadrature step for μ, in units of 1/sqrt(size + 1), about the width of its posterior.

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters μ of shape (n,).

    Examples
    --------
    >>> heavy_tails()
    Problem('heavy_tails', models=('normal', 'heavy'), augment=yes)
    """
    size, freedom = count("size", size), positive("freedom", freedom)
    half = 0.5 * (freedom + 1)
    constant = gammaln(half) - gammaln(0.5 * freedom) - 0.5 * np.log(np.pi * freedom)
    # Beyond this reach the log prior of μ falls by 40 nats more than the log likelihood of any data can rise.
    reach = 9.0
    for _ in range(100):
        reach = float(np.sqrt(2 * size * half * np.log1p(reach**2 / freedom) + 80))
    return _location_problem(
        "heavy_tails",
        ("normal", "heavy"),
        size,
        sigma=1.5,
        noise=lambda rng, shape: rng.standard_t(freedom, shape),
        log_noise=lambda y: constant - half * np.log1p(y**2 / freedom),
        centre=lambda x: np.zeros(len(x)),
        reach=reach,
        step=step,
    )


def two_humps(size: int = 20, *, separation: float = 1.5, step: float = 0.5) -> Problem:
    """Distinguish a distribution with two humps from a normal one of the same mean and variance.

    x_i = μ + n_i with μ ~ N(0, 1). M0: n_i ~ N(0, 1 + separation²). M1: n_i is N(−separation, 1) or
    N(separation, 1), each with probability ½. The evidence of M0 is normal. The evidence of M1 is the mean
    over μ of the product of the mixture densities, computed with the trapezoidal rule.

    log K does not depend on the order of the values, and does not change if all change their sign.

    Parameters
    ----------
    size
        Values in a data set.
    separation
        Half the distance between the humps, in units of their width.
    step
        Quadrature step for μ, in units of 1/sqrt(size + 1), about the width of its posterior.

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters μ of shape (n,).

    Examples
    --------
    >>> two_humps()
    Problem('two_humps', models=('one hump', 'two humps'), augment=yes)
    """
    size, a = count("size", size), positive("separation", separation)
    constant = -0.5 * np.log(2 * np.pi) - 0.5 * a**2 - np.log(2)

    def log_noise(y: np.ndarray) -> np.ndarray:
        # This is log(exp(a y) + exp(−a y)), written so that it does not overflow.
        z = a * np.abs(y)
        return constant - 0.5 * y**2 + z + np.log1p(np.exp(-2 * z))

    def noise(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return a * signs(rng, shape) + rng.standard_normal(shape)

    return _location_problem(
        "two_humps",
        ("one hump", "two humps"),
        size,
        sigma=float(np.sqrt(1 + a**2)),
        noise=noise,
        log_noise=log_noise,
        # If the hump of each value were known, μ would be normal with variance 1/(size + 1), and its mean
        # would differ from this centre by at most a·size/(size + 1).
        centre=lambda x: x.sum(axis=1) / (size + 1),
        reach=(a * size + 9 * np.sqrt(size + 1)) / (size + 1),
        step=step,
    )


def _location_problem(
    name: str,
    names: tuple[str, str],
    size: int,
    *,
    sigma: float,
    noise: Callable[[np.random.Generator, tuple[int, int]], np.ndarray],
    log_noise: Callable[[np.ndarray], np.ndarray],
    centre: Callable[[np.ndarray], np.ndarray],
    reach: float,
    step: float,
) -> Problem:
    """Build the problem x_i = μ + n_i, μ ~ N(0, 1): normal noise of width sigma in M0, `noise` in M1."""
    normal = linear_log_density(np.ones((size, 1)), sigma)
    offsets, log_step = trapezoid(reach, positive("step", step) / np.sqrt(size + 1))

    def other_log_evidence(x: np.ndarray) -> np.ndarray:
        location = centre(x)[:, None] + offsets
        log_joint = -0.5 * location**2
        for i in range(size):
            log_joint += log_noise(x[:, i, None] - location)
        return log_integral(log_joint, log_step - 0.5 * np.log(2 * np.pi))

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        return np.stack([normal(x), in_chunks(other_log_evidence, x, 500)], axis=1)

    def prior(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.standard_normal(n)

    def normal_sample(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
        return mean[:, None] + sigma * rng.standard_normal((len(mean), size))

    def other_sample(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
        return mean[:, None] + noise(rng, (len(mean), size))

    def augment(rng: np.random.Generator, x: Data) -> Data:
        return flip_signs(rng, shuffle(rng, x))

    return Problem(
        name=name,
        models=(Model(names[0], normal_sample, prior=prior), Model(names[1], other_sample, prior=prior)),
        log_evidence=log_evidence,
        augment=augment,
    )
