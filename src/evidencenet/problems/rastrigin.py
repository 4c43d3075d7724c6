"""A prior with very many modes, after Jeffrey & Wandelt (2023)."""

import numpy as np
from scipy.special import ive

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, rows, shuffle, signs
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model

DEPTH = 10.0
NOISE_VARIANCE = 1 / 16
PRIOR_VARIANCE = 2.0


def rastrigin(dim: int = 2) -> Problem:
    """Distinguish a parameter prior with very many modes from a normal one.

    x = θ + n with n ~ N(0, 1/16) in each of `dim` components. M0: θ ~ N(0, 2), with density ∝ exp(−θ²/4). M1:
    the density of θ is ∝ exp(−θ²/4 + 10 (cos 2πθ − 1)). The components are independent. exp(10 cos φ) is the
    sum of I_k(10) cos kφ over all whole numbers k. In M0, θ given x is normal with variance v = 1/(16 + ½)
    and mean 16 v x. Therefore each component has

        K = Σ_k I_k(10) exp(−2π²k²v) cos(32 π k v x) / Σ_k I_k(10) exp(−4π²k²).

    A few terms of the sums give all digits.

    log K does not change if any component changes its sign, or if components are exchanged.

    Parameters
    ----------
    dim
        Number of components.

    Returns
    -------
    problem
        Data of shape (n, dim), float64; parameters θ of shape (n, dim).

    Examples
    --------
    >>> rastrigin()
    Problem('rastrigin', models=('one mode', 'many modes'), augment=yes)
    """
    dim = count("dim", dim)
    order = np.arange(1, 9)
    posterior_variance = 1 / (1 / NOISE_VARIANCE + 1 / PRIOR_VARIANCE)
    # `ive` is the Bessel function times exp(−10); this factor cancels in the ratio.
    terms = 2 * ive(order, DEPTH)
    waves = terms * np.exp(-2 * np.pi**2 * order**2 * posterior_variance)
    norm = ive(0, DEPTH) + terms @ np.exp(-2 * np.pi**2 * order**2 * PRIOR_VARIANCE)
    variance = PRIOR_VARIANCE + NOISE_VARIANCE

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (dim,))
        phase = 2 * np.pi * posterior_variance / NOISE_VARIANCE * x
        ratio = np.full_like(x, ive(0, DEPTH) / norm)
        for k, wave in zip(order, waves, strict=True):
            ratio += wave / norm * np.cos(k * phase)
        normal = -0.5 * (x**2).sum(axis=1) / variance - 0.5 * dim * np.log(2 * np.pi * variance)
        return np.stack([normal, normal + np.log(ratio).sum(axis=1)], axis=1)

    def many_modes(rng: np.random.Generator, n: int) -> np.ndarray:
        theta = np.empty(n * dim)
        pending = np.arange(n * dim)
        while len(pending):
            trial = np.sqrt(PRIOR_VARIANCE) * rng.standard_normal(len(pending))
            accepted = rng.random(len(pending)) < np.exp(DEPTH * (np.cos(2 * np.pi * trial) - 1))
            theta[pending[accepted]] = trial[accepted]
            pending = pending[~accepted]
        return theta.reshape(n, dim)

    def observe(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        return theta + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(theta.shape)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = shuffle(rng, x)
        return x * signs(rng, x.shape).astype(x.dtype)

    return Problem(
        name="rastrigin",
        models=(
            Model(
                "one mode",
                observe,
                prior=lambda rng, n: np.sqrt(PRIOR_VARIANCE) * rng.standard_normal((n, dim)),
            ),
            Model("many modes", observe, prior=many_modes),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )
