"""The time series with its likelihood: x = A θ + σ n, where θ and n are standard normal.

`evidencenet.problems.time_series` draws from the same models and knows their evidence, but does not give A
and σ: networks do not need them.
"""

from collections.abc import Callable

import numpy as np
from scipy.stats import multivariate_normal


def parts(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return A of the model with growth, (dim, dim), whose first column is the growth, and σ, (dim,)."""
    t = np.linspace(0, np.pi / 2, dim)
    waves = np.cos((np.arange(1, dim) - 0.5) * t[:, None])
    return np.column_stack([2 * t, waves]), np.sqrt(dim / 100) * np.linspace(2.5, 4, dim) ** 2


def log_likelihood(x: np.ndarray, *, growth: bool) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """Return the function θ (n, k) → log p(x|θ) of one series, (n,), and the number k of parameters.

    Without growth there is one parameter less, but never fewer than two; the first one may then have no
    effect.
    """
    design, sigma = parts(len(x))
    if not growth:
        design = design[:, 1:] if len(x) > 2 else design * [0, 1]
    white, rows = (x / sigma).astype(np.float32), (design / sigma[:, None]).T.astype(np.float32)
    constant = -np.log(sigma * np.sqrt(2 * np.pi)).sum()

    def function(theta: np.ndarray) -> np.ndarray:
        left = theta.astype(np.float32, copy=False) @ rows
        left -= white
        return constant - 0.5 * np.einsum("ij,ij->i", left, left).astype(np.float64)

    return function, len(rows)


def log_k_of_part(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the exact log K of some of the numbers of each series (n, dim), as if there were no others.

    The marginal of a normal law is normal, with rows and columns of the covariance left out.
    """
    design, sigma = parts(x.shape[1])
    evidence = []
    for columns in (design[:, 1:], design):
        covariance = np.diag(sigma**2) + columns @ columns.T
        evidence.append(multivariate_normal(cov=covariance[np.ix_(places, places)]).logpdf(x[:, places]))
    return evidence[1] - evidence[0]
