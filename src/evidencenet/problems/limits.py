"""The two extremes: models that no data can distinguish, and models that any data distinguish."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, flip_signs, positive, rows
from evidencenet.problems._normal import linear_log_density
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def indistinguishable(size: int = 10) -> Problem:
    """Compare two models that differ in their parameters only, not in their data.

    M0: x_i ~ N(a + b, 1) with a, b ~ N(0, ½). M1: x_i ~ N(c, 1) with c ~ N(0, 1). Since a + b ~ N(0, 1), both
    have the evidence N(x; 0, I + 1 1ᵀ), and log K = 0 for all data.

    log K does not change if x changes its sign.

    Parameters
    ----------
    size
        Values in a data set.

    Returns
    -------
    problem
        Data of shape (n, size), float64.

    Examples
    --------
    >>> indistinguishable()
    Problem('indistinguishable', models=('two terms', 'one term'), augment=yes)
    """
    size = count("size", size)
    density = linear_log_density(np.ones((size, 1)), 1.0)

    def log_evidence(x: Data) -> np.ndarray:
        return np.repeat(density(rows(x, (size,)))[:, None], 2, axis=1)

    def sample(rng: np.random.Generator, parameters: np.ndarray) -> np.ndarray:
        return parameters.sum(axis=1, keepdims=True) + rng.standard_normal((len(parameters), size))

    return Problem(
        name="indistinguishable",
        models=(
            Model("two terms", sample, prior=lambda rng, n: np.sqrt(0.5) * rng.standard_normal((n, 2))),
            Model("one term", sample, prior=lambda rng, n: rng.standard_normal((n, 1))),
        ),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def far_apart(size: int = 200, *, ratio: float = 3.0) -> Problem:
    """Distinguish quiet noise from loud noise in a sample so large that log K is in the hundreds.

    x_i ~ N(μ, σ²) with μ ~ N(0, 1). M0: σ = 1. M1: σ = ratio. The evidence is N(x; 0, σ² I + 1 1ᵀ). With the
    default arguments, log K is about −130 for data from M0 and +580 for data from M1: no draw of one model
    looks like a draw of the other.

    log K does not change if x changes its sign.

    Parameters
    ----------
    size
        Values in a data set.
    ratio
        Standard deviation in M1.

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters μ of shape (n,).

    Examples
    --------
    >>> far_apart()
    Problem('far_apart', models=('quiet', 'loud'), augment=yes)
    """
    size, ratio = count("size", size), positive("ratio", ratio)
    densities = [linear_log_density(np.ones((size, 1)), sigma) for sigma in (1.0, ratio)]

    def model(name: str, sigma: float) -> Model:
        return Model(
            name,
            lambda rng, mean: mean[:, None] + sigma * rng.standard_normal((len(mean), size)),
            prior=lambda rng, n: rng.standard_normal(n),
        )

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        return np.stack([f(x) for f in densities], axis=1)

    return Problem(
        name="far_apart",
        models=(model("quiet", 1.0), model("loud", ratio)),
        log_evidence=log_evidence,
        augment=flip_signs,
    )
