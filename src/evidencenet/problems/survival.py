"""Survival times, of which some are censored."""

import numpy as np
from scipy.special import gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, in_chunks, positive, rows, shuffle_along
from evidencenet.problems._quadrature import log_integral, trapezoid
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def censored_times(size: int = 30, *, spread: float = 0.4, step: float = 0.4) -> Problem:
    """Distinguish a constant hazard from a changing one, when some patients leave before the event.

    The event happens at time e_i, but patient i is observed only until c_i ~ U(0.3, 3). The data are min(e_i,
    c_i), and 1 if the event was seen or 0 if not. M0: e_i is exponential with rate λ. M1: e_i has the Weibull
    hazard λ k t^(k−1), with log k ~ N(0, spread²). In both models λ ~ gamma(4, rate 4). With d events, at
    given k,

        p(x|k) = k^d ∏_events t_i^(k−1) · 4⁴ Γ(4 + d) / (Γ(4) (4 + Σ t_i^k)^(4 + d)).

    In M0, k = 1. In M1, the mean over log k is computed with the trapezoidal rule. The distribution of the
    c_i is the same in both models, so it cancels and is left out.

    log K does not depend on the order of the patients.

    Parameters
    ----------
    size
        Number of patients.
    spread
        Standard deviation of log k.
    step
        Quadrature step for log k, in units of 1/sqrt(size), about the width of its posterior.

    Returns
    -------
    problem
        Data of shape (n, size, 2), float64: the time, and 1 for an event or 0 for a censored time.
        Parameters ``rate``, and ``shape`` (k) in M1.

    Examples
    --------
    >>> censored_times()
    Problem('censored_times', models=('constant hazard', 'changing hazard'), augment=yes)
    """
    size, spread = count("size", size), positive("spread", spread)
    log_shapes, log_step = trapezoid(8.0 * spread, positive("step", step) / np.sqrt(size))
    shapes = np.exp(log_shapes)
    log_weights = log_step - 0.5 * (log_shapes / spread) ** 2 - np.log(spread * np.sqrt(2 * np.pi))
    a = 4.0

    def follow(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["rate"])
        event = rng.standard_exponential((n, size)) / theta["rate"][:, None]
        if "shape" in theta:
            event **= 1 / theta["shape"][:, None]
        end = rng.uniform(0.3, 3.0, (n, size))
        return np.stack([np.minimum(event, end), event < end], axis=2)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size, 2))
        if not np.all(x[..., 0] > 0):
            raise ValueError("every time must be above 0")
        if not np.all((x[..., 1] == 0) | (x[..., 1] == 1)):
            raise ValueError("every flag must be 1 (event) or 0 (censored)")
        return in_chunks(_log_evidence, x, 2_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        log_times, seen = np.log(x[..., 0]), x[..., 1]
        events = seen.sum(axis=1)[:, None]
        log_events = (seen * log_times).sum(axis=1)[:, None]

        def log_density(k: np.ndarray) -> np.ndarray:
            exposure = sum(np.exp(log_times[:, i, None] * k) for i in range(size))
            hazard = events * np.log(k) + (k - 1) * log_events
            integral = gammaln(a + events) - gammaln(a) - (a + events) * np.log(a + exposure)
            return hazard + integral + a * np.log(a)

        changing = log_integral(log_density(shapes), log_weights)
        return np.stack([log_density(np.ones(1))[:, 0], changing], axis=1)

    def constant(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"rate": rng.standard_gamma(a, n) / a}

    def changing(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"rate": rng.standard_gamma(a, n) / a, "shape": np.exp(spread * rng.standard_normal(n))}

    return Problem(
        name="censored_times",
        models=(
            Model("constant hazard", follow, prior=constant),
            Model("changing hazard", follow, prior=changing),
        ),
        log_evidence=log_evidence,
        augment=lambda rng, x: shuffle_along(rng, array(x), 1),
    )
