"""The evidence of both lensing models from their known likelihood, to compare the networks with."""

import time
from typing import Any, NamedTuple

import numpy as np
from nautilus import Sampler
from scipy.special import logsumexp

from lensing_data import Survey
from lensing_theory import HIGH, LOW, MOST_ALIGNED, Theory, mean


class Evidence(NamedTuple):
    """Natural log Z (without the constant of the likelihood), its error, its cost, and the posterior."""

    log_z: float
    error: float
    evaluations: int
    seconds: float
    parameters: np.ndarray
    best: float


def nested_sampling(
    survey: Survey, theory: Theory, dim: int, *, live: int, effective: int, seed: int
) -> Evidence:
    """Integrate the Gaussian likelihood over the prior of model 0 (dim 5) or model 1 (6)."""
    start = time.perf_counter()
    low, high = np.append(LOW, -MOST_ALIGNED)[:dim], np.append(HIGH, MOST_ALIGNED)[:dim]
    observed = survey.whitened(survey.observed[None])

    def log_likelihood(points: np.ndarray) -> np.ndarray:
        alignment = points[:, 5] if dim > 5 else np.zeros(len(points))
        expected = mean(theory(points[:, :5]), alignment)
        return -0.5 * np.sum((observed - survey.whitened(expected)) ** 2, axis=1)

    sampler = Sampler(
        lambda unit: low + (high - low) * unit,
        log_likelihood,
        n_dim=dim,
        n_live=live,
        n_networks=1,
        n_batch=100,
        vectorized=True,
        pass_dict=False,
        seed=seed,
    )
    sampler.run(n_eff=effective)
    points, _, values = sampler.posterior(equal_weight=True)
    return Evidence(
        float(sampler.log_z),
        float(1 / np.sqrt(sampler.n_eff)),
        int(sampler.n_like),
        time.perf_counter() - start,
        points,
        float(-2 * values.max()),
    )


def from_posterior(survey: Survey, theory: Theory, cosmologies: np.ndarray) -> tuple[float, float]:
    """Return log K and its error from cosmologies (n, 5) of the posterior of model 1 (Savage & Dickey).

    Model 0 is model 1 at A = 0, so 1/K = E[L(A = 0)/∫L(A)p(A)dA] over that posterior.
    """
    grid = np.linspace(-MOST_ALIGNED, MOST_ALIGNED, 601)
    observed = survey.whitened(survey.observed[None])[0]
    parts = theory(cosmologies)
    flat = survey.whitened(parts.reshape(-1, len(observed))).reshape(parts.shape)
    flat[:, 0] -= observed
    # χ² is a polynomial of A, whose coefficients are products of the parts.
    products = np.einsum("ntp,nup->ntu", flat, flat)
    powers = grid ** np.arange(3)[:, None]
    log_l = -0.5 * np.einsum("ntu,tg,ug->ng", products, powers, powers)
    weights = np.ones(len(grid))
    weights[[0, -1]] = 0.5
    ratio = np.exp(log_l[:, 300] - logsumexp(log_l, b=weights / weights.sum(), axis=1))
    return float(-np.log(ratio.mean())), float(ratio.std() / ratio.mean() / np.sqrt(len(ratio)))


def reference(survey: Survey, theory: Theory, *, live: int, effective: int, seed: int) -> dict[str, Any]:
    """Return log K by nested sampling of both models, and what the runs cost; natural logs."""
    without, aligned = (
        nested_sampling(survey, theory, dim, live=live, effective=effective, seed=seed) for dim in (5, 6)
    )
    # The points are not in random order: take every so many of all of them.
    sample = aligned.parameters[:: 1 + len(aligned.parameters) // 2000]
    return {
        "log_k": aligned.log_z - without.log_z,
        "error": float(np.hypot(without.error, aligned.error)),
        "savage_dickey": from_posterior(survey, theory, sample[:, :5]),
        "alignment": [float(sample[:, 5].mean()), float(sample[:, 5].std())],
        "least_chi_squared": [without.best, aligned.best],
        "evaluations": [without.evaluations, aligned.evaluations],
        "seconds": without.seconds + aligned.seconds,
    }
