"""Angles: data on a circle, where π and −π are the same."""

import numpy as np
from scipy.special import i0e

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, in_chunks, positive, rows, shuffle, signs
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def headings(size: int = 20, *, strength: float = 0.6, nodes: int = 60) -> Problem:
    """Decide whether animals move in any direction, along one direction, or along an axis.

    The data are the angles at which the animals leave. "any": the angles are uniform. "direction": they have
    a von Mises distribution, with density exp(κ cos(x − μ)) / (2π I_0(κ)). "axis": twice the angle has this
    distribution, so the density is exp(κ cos 2(x − μ)) / (2π I_0(κ)), and both ways along the axis are
    equally probable. μ is uniform, and κ is exponential with mean `strength`.

    Let R be the length of the sum of the unit vectors at the angles (for "axis", at twice the angles). The
    integral over μ gives I_0(κ R) / (2π I_0(κ))^size. The mean over κ is computed with Gauss–Legendre
    quadrature.

    log K does not change if all angles are rotated or mirrored, and does not depend on their order.

    Parameters
    ----------
    size
        Number of angles.
    strength
        Mean of the prior of κ.
    nodes
        Quadrature nodes for κ.

    Returns
    -------
    problem
        Data of shape (n, size), float64: radians, from −π to π. Parameters ``mu`` and ``kappa``.

    Examples
    --------
    >>> headings()
    Problem('headings', models=('any', 'direction', 'axis'), augment=yes)
    """
    size, nodes = count("size", size), count("nodes", nodes, least=2)
    strength = positive("strength", strength)
    kappa, log_weights = legendre(0.0, 40.0 * strength, nodes)
    log_weights = log_weights - kappa / strength - np.log(strength)
    log_norm = size * (np.log(i0e(kappa)) + kappa)

    def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"mu": rng.uniform(-np.pi, np.pi, n), "kappa": strength * rng.standard_exponential(n)}

    def along_direction(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["mu"])
        return _wrapped(theta["mu"][:, None] + rng.vonmises(0.0, theta["kappa"][:, None], (n, size)))

    def along_axis(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["mu"])
        angle = 0.5 * rng.vonmises(0.0, theta["kappa"][:, None], (n, size))
        return _wrapped(theta["mu"][:, None] + angle + np.pi * rng.integers(0, 2, (n, size)))

    def concentrated(x: np.ndarray) -> np.ndarray:
        length = np.hypot(np.cos(x).sum(axis=1), np.sin(x).sum(axis=1))[:, None] * kappa
        return log_integral(np.log(i0e(length)) + length - log_norm, log_weights)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        columns = [np.zeros(len(x)), in_chunks(concentrated, x, 5_000), in_chunks(concentrated, 2 * x, 5_000)]
        return np.stack(columns, axis=1) - size * np.log(2 * np.pi)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = shuffle(rng, array(x))
        return _wrapped(signs(rng, (len(x), 1)) * x + rng.uniform(-np.pi, np.pi, (len(x), 1)))

    return Problem(
        name="headings",
        models=(
            Model("any", lambda rng, n: rng.uniform(-np.pi, np.pi, (n, size))),
            Model("direction", along_direction, prior=prior),
            Model("axis", along_axis, prior=prior),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def _wrapped(x: np.ndarray) -> np.ndarray:
    """Bring angles to −π ≤ x < π."""
    return np.remainder(x + np.pi, 2 * np.pi) - np.pi
