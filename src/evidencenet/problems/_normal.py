"""Log densities of multivariate normals, also of unknown scale, for many points at once."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln


def normal_log_density(covariance: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function x (n, d) → log N(x; 0, covariance), shape (n,)."""
    factor = np.linalg.cholesky(covariance)
    constant = -np.log(np.diag(factor)).sum() - 0.5 * len(factor) * np.log(2 * np.pi)

    def log_density(x: np.ndarray) -> np.ndarray:
        white = solve_triangular(factor, x.T, lower=True, check_finite=False)
        return constant - 0.5 * np.einsum("ij,ij->j", white, white)

    return log_density


def linear_log_density(design: np.ndarray, sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function x (n, d) → log N(x; 0, sigma² I + design designᵀ), shape (n,).

    The cost depends on the few columns of the design: no d × d matrix is built.
    """
    axes, singular, _ = np.linalg.svd(design / sigma, full_matrices=False)
    shrink = singular**2 / (1 + singular**2)
    constant = -0.5 * np.log1p(singular**2).sum() - len(design) * np.log(sigma * np.sqrt(2 * np.pi))

    def log_density(x: np.ndarray) -> np.ndarray:
        projected = x @ axes
        squares = np.einsum("ij,ij->i", x, x)
        return constant - 0.5 * (squares - projected**2 @ shrink) / sigma**2

    return log_density


def scale_free_log_density(squares: np.ndarray, size: int, shape: float, rate: float) -> np.ndarray:
    """Return log ∫ ∏ N(x_i; 0, σ²) IG(σ²) dσ² for `size` values with the given sum of squares."""
    posterior_shape = shape + 0.5 * size
    constant = gammaln(posterior_shape) - gammaln(shape) + shape * np.log(rate)
    constant = constant - 0.5 * size * np.log(2 * np.pi)
    return constant - posterior_shape * np.log(rate + 0.5 * squares)
