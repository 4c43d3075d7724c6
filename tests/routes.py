"""Independent routes to an evidence: dense normal densities, adaptive quadrature, draws of the prior."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.integrate import quad

from evidencenet.problems import Problem


def draws(problem: Problem, n: int = 5) -> Any:
    """Draw n data sets of each model, one model after the other, in double precision."""
    parts: list[Any] = [m.draw(np.random.default_rng([11, k]), n)[0] for k, m in enumerate(problem.models)]
    if isinstance(parts[0], dict):
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts).astype(np.float64)


def normal(x: Any, covariance: np.ndarray) -> Any:
    """Return the log density of N(0, covariance)."""
    return stats.multivariate_normal(np.zeros(len(covariance)), covariance).logpdf(x)


def log_mean(log_values: Any) -> Any:
    """Return the log of the mean of the exponentials."""
    return np.logaddexp.reduce(log_values) - np.log(len(log_values))


def log_quad(log_f: Callable[..., float], low: float, high: float) -> float:
    """Return log ∫ exp(log_f), scaled by its largest value on a grid."""
    grid = np.linspace(low, high, 401)
    values = np.array([log_f(g) for g in grid[1:-1]])
    top, peak = values.max(), grid[1 + values.argmax()]
    points = sorted(
        {p for w in (0.02, 0.1, 0.3) for p in (peak - w * (peak - low), peak, peak + w * (high - peak))}
    )
    integral, _ = quad(
        lambda u: np.exp(log_f(u) - top), low, high, points=points, epsabs=0, epsrel=1e-10, limit=500
    )
    return top + np.log(integral)


def prior_average(
    problem: Problem, x: Any, log_likelihood: Callable[..., Any], n: int = 200_000
) -> np.ndarray:
    """Return the log of each model's mean likelihood over draws of its prior, and the standard error.

    A model without parameters is called with None and returns one number.
    """
    answers = []
    for k, model in enumerate(problem.models):
        theta = model.draw_parameters(np.random.default_rng([5, k]), n)
        likelihood = np.exp(np.atleast_1d(log_likelihood(theta, x)))
        mean = likelihood.mean()
        answers.append((np.log(mean), likelihood.std() / np.sqrt(len(likelihood)) / mean))
    return np.array(answers).T


def agrees_with_prior_draws(
    problem: Problem, x: Any, log_likelihood: Callable[..., Any], n: int = 200_000
) -> bool:
    """Compare the evidence of one data set with the mean likelihood over draws of the prior.

    They must agree within four standard errors, which must be below 0.03. Evidences that are wrong by 0.3
    must not agree: this is the negative control.
    """
    batch = {key: value[None] for key, value in x.items()} if isinstance(x, dict) else x[None]
    estimate, error = prior_average(problem, x, log_likelihood, n)
    given = problem.log_evidence(batch)[0]
    # The sum of a density of no parameters is only rounded.
    tolerance = 4 * error + 1e-9
    wrong = np.abs(given + 0.3 - estimate) < tolerance
    return bool((error < 0.03).all() and (np.abs(given - estimate) < tolerance).all() and not wrong.any())
