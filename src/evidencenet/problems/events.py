"""Events: the times at which something happened, and a mask."""

import numpy as np
from scipy.special import gammainc, gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import boolean, count, in_chunks, named_arrays, positive, rows
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model

# How quickly aftershocks follow: 1/10 or 1/40 of the time of observation.
DECAYS = (10.0, 40.0)
# The rates of both models are gamma distributed with this shape, and have these means.
SHAPE = 6.0
STEADY_RATE, BACKGROUND_RATE = 30.0, 20.0


def aftershocks(capacity: int = 80, *, largest: float = 0.7, nodes: int = 48) -> Problem:
    """Test whether earthquakes cause further ones, from the times at which they happened.

    The data are the times of the events between 0 and 1, or of the first `capacity` of them. M0: the events
    happen at a constant rate r ~ gamma(6), of mean 30 (a Poisson process). M1: they happen at a background
    rate μ ~ gamma(6), of mean 20, and each event raises the rate by η β exp(−β u) after a time u (a Hawkes
    process). η is the mean number of direct aftershocks of an event, η ~ U(0, largest), and β is 10 or 40,
    both equally likely.

    Let there be m events, and let T be 1, or the time of the last event if there are `capacity` of them. The
    evidence of M0 is a gamma integral. In M1, let s_i be the sum of β exp(−β (t_i − t_j)) over the events j
    before i, and g the sum of 1 − exp(−β (T − t_i)) over all. The density is ∏ (μ + η s_i) exp(−μ T − η g).
    With η = q μ it is μ^m ∏ (1 + q s_i) exp(−μ (T + q g)). The integral over μ from 0 to largest/q is then an
    incomplete gamma function. The integral over q is computed with Gauss–Legendre quadrature in q / (q + c),
    where c = largest/20.

    Parameters
    ----------
    capacity
        The largest number of events.
    largest
        Bound of η, below 1.
    nodes
        Quadrature nodes for q.

    Returns
    -------
    problem
        Data: dict with ``t`` (n, capacity), float32, in increasing order and zero after the last event, and
        ``mask`` (n, capacity), bool. Parameters: r of shape (n,) in M0; ``mu``, ``eta`` and ``beta`` in M1.

    Examples
    --------
    >>> aftershocks()
    Problem('aftershocks', models=('constant rate', 'aftershocks'), augment=no)
    """
    capacity, nodes = count("capacity", capacity, least=2), count("nodes", nodes, least=2)
    if positive("largest", largest) >= 1:
        raise ValueError(f"largest must be below 1, got {largest!r}")
    scale = largest / BACKGROUND_RATE
    share, share_weights = legendre(0.0, 1.0, nodes)
    ratio = scale * share / (1 - share)
    # The prior of η is 1/largest, dη = μ dq, and dq is this many times the step of the share.
    ratio_weights = share_weights + np.log(scale) - 2 * np.log1p(-share) - np.log(largest)

    def constant_prior(rng: np.random.Generator, n: int) -> np.ndarray:
        return STEADY_RATE / SHAPE * rng.standard_gamma(SHAPE, n)

    def aftershock_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {
            "mu": BACKGROUND_RATE / SHAPE * rng.standard_gamma(SHAPE, n),
            "eta": rng.uniform(0, largest, n),
            "beta": np.array(DECAYS)[rng.integers(0, len(DECAYS), n)],
        }

    def observed(gaps: np.ndarray) -> Data:
        times = np.cumsum(gaps, axis=1)
        mask = times < 1
        return {"t": np.where(mask, times, 0.0).astype(np.float32), "mask": mask}

    def constant(rng: np.random.Generator, rate: np.ndarray) -> Data:
        return observed(rng.standard_exponential((len(rate), capacity)) / rate[:, None])

    def triggered(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> Data:
        mu, eta, beta = (theta[key] for key in ("mu", "eta", "beta"))
        gaps = rng.standard_exponential((len(mu), capacity)) / mu[:, None]
        waits = rng.standard_exponential((len(mu), capacity)) * beta[:, None]
        raised = np.zeros(len(mu))
        for i in range(capacity):
            # The raised part of the rate falls to zero, so it may bring no further event.
            brings = waits[:, i] < raised
            wait = -np.log1p(-np.divide(waits[:, i], raised, out=np.zeros(len(mu)), where=brings)) / beta
            gaps[:, i] = np.where(brings, np.minimum(gaps[:, i], wait), gaps[:, i])
            raised = raised * np.exp(-beta * gaps[:, i]) + eta * beta
        return observed(gaps)

    def log_evidence(x: Data) -> np.ndarray:
        x = named_arrays(x, ("t", "mask"))
        times = rows(x["t"], (capacity,))
        mask = boolean(x["mask"], times.shape)
        number = mask.sum(axis=1)
        if not np.array_equal(mask, np.arange(capacity) < number[:, None]):
            raise ValueError("the events must come first, and the padding after them")
        if np.any((times < 0) | (times > 1)) or np.any((np.diff(times) < 0) & mask[:, 1:]):
            raise ValueError("times must lie between 0 and 1, in increasing order")
        return in_chunks(_log_evidence, np.stack([times, mask], axis=1), 1_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        times, mask = x[:, 0], x[:, 1] > 0
        number = mask.sum(axis=1)
        end = np.where(number == capacity, times[:, -1], 1.0)
        constant = _log_gamma_prior(STEADY_RATE) + gammaln(SHAPE + number)
        constant = constant - (SHAPE + number) * np.log(SHAPE / STEADY_RATE + end)
        by_decay = [_log_triggered(times, mask, end, beta) for beta in DECAYS]
        triggered = np.logaddexp.reduce(by_decay, axis=0) - np.log(len(DECAYS))
        return np.stack([constant, triggered], axis=1)

    def _log_triggered(times: np.ndarray, mask: np.ndarray, end: np.ndarray, beta: float) -> np.ndarray:
        number = mask.sum(axis=1)
        log_product, product = np.zeros((len(times), nodes)), np.ones((len(times), nodes))
        after = np.zeros(len(times))
        for i in range(int(number.max(initial=0))):
            if i:
                after = (after + beta) * np.exp(-beta * np.maximum(times[:, i] - times[:, i - 1], 0))
            # (1 + q s_i) (1 − share), which is neither very large nor very small.
            product *= np.where(mask[:, i, None], 1 - share + scale * after[:, None] * share, 1.0)
            if i % 16 == 15:
                log_product, product = log_product + np.log(product), np.ones_like(product)
        log_product += np.log(product) - number[:, None] * np.log1p(-share)
        caused = np.where(mask, -np.expm1(-beta * (end[:, None] - times)), 0.0).sum(axis=1)
        # ∫ μ^(power − 1) exp(−μ rate) dμ, from 0 to largest/q
        power = number[:, None] + SHAPE + 1
        rate = SHAPE / BACKGROUND_RATE + end[:, None] + ratio * caused[:, None]
        with np.errstate(divide="ignore"):
            log_part = np.log(gammainc(power, rate * largest / ratio))
        log_mu = gammaln(power) - power * np.log(rate) + log_part
        return _log_gamma_prior(BACKGROUND_RATE) + log_integral(log_product + log_mu, ratio_weights)

    return Problem(
        name="aftershocks",
        models=(
            Model("constant rate", constant, prior=constant_prior),
            Model("aftershocks", triggered, prior=aftershock_prior),
        ),
        log_evidence=log_evidence,
    )


def _log_gamma_prior(mean: float) -> float:
    """Return the log of the constant in the gamma density of a rate with this mean."""
    return float(SHAPE * np.log(SHAPE / mean) - gammaln(SHAPE))
