"""The time series of Jeffrey & Wandelt (2023)."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, flip_signs, in_chunks, positive, rows
from evidencenet.problems._normal import normal_log_density
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def time_series(dim: int = 100, noise: float = 1.0) -> Problem:
    """Look for a linear growth beside the oscillations of a noisy series.

    M0 has no growth, M1 has. The times are t = linspace(0, π/2, dim). The data are x = A θ + n, with A_j0 = 2
    t_j (the growth) and A_ji = cos((i − ½) t_j) for i = 1..dim−1 (the oscillations). All θ_i ~ N(0, 1), but
    θ_0 = 0 in M0. The noise is independent and normal, with standard deviation noise · sqrt(dim/100) ·
    linspace(2.5, 4, dim)².

    The evidence of M1 is N(x; 0, Σ + A Aᵀ), where Σ is the covariance of the noise. For M0, the first column
    of A is left out.

    log K does not change if x changes its sign.

    Parameters
    ----------
    dim
        How many times, and how many parameters.
    noise
        Scale of the noise; 1 is the paper's, 0.15 gives log K above 20.

    Returns
    -------
    problem
        Data of shape (n, dim), float32; parameters θ of shape (n, dim).

    Examples
    --------
    >>> time_series(dim=20)
    Problem('time_series', models=('no growth', 'growth'), augment=yes)
    """
    dim = count("dim", dim, least=2)
    noise = positive("noise", noise)
    t = np.linspace(0, np.pi / 2, dim)
    design = np.cos((np.arange(dim) - 0.5) * t[:, None])
    design[:, 0] = 2 * t
    sigma = noise * np.sqrt(dim / 100) * np.linspace(2.5, 4, dim) ** 2

    # Single precision halves the cost of a draw. Its rounding errors, 1e-7 of x, are far below the noise.
    to_series, noise_scale = design.T.astype(np.float32), sigma.astype(np.float32)

    def with_growth(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.standard_normal((n, dim), dtype=np.float32)

    def without_growth(rng: np.random.Generator, n: int) -> np.ndarray:
        theta = with_growth(rng, n)
        theta[:, 0] = 0
        return theta

    def observe(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        x = rng.standard_normal(theta.shape, dtype=np.float32)
        x *= noise_scale
        x += theta @ to_series
        return x

    oscillations = np.diag(sigma**2) + design[:, 1:] @ design[:, 1:].T
    densities = [
        normal_log_density(c) for c in (oscillations, oscillations + np.outer(design[:, 0], design[:, 0]))
    ]

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(lambda part: np.stack([f(part) for f in densities], axis=1), rows(x, (dim,)), 20_000)

    return Problem(
        name="time_series",
        models=(
            Model("no growth", observe, prior=without_growth),
            Model("growth", observe, prior=with_growth),
        ),
        log_evidence=log_evidence,
        augment=flip_signs,
    )
