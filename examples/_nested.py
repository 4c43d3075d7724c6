"""Nested sampling by slices, as in PolyChord, for a likelihood under a standard normal prior.

As in Handley, Hobson & Lasenby (2015), points move along random directions, whitened by the spread of the
live points, to a place drawn from the prior on that line, above the likelihood of the points removed; the
interval of places shrinks towards the point until one is found. A quarter of the live points is replaced at
once, so that NumPy moves them together: this makes the error of log Z 8% larger than one by one.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

# The live points hold less than this of the evidence at the end.
_PRECISION = 1e-3


class Evidence(NamedTuple):
    """Natural log Z and its standard error, as the run states it, and what they cost in seconds of a core.

    If not `finished`, the run was stopped at the largest number of evaluations. Then log Z includes the live
    points as they were, but nothing at higher likelihood, and the error does not include this.
    """

    log_z: float
    error: float
    evaluations: int
    seconds: float
    finished: bool


def nested_sampling(
    log_likelihood: Callable[[np.ndarray], np.ndarray],
    dim: int,
    *,
    live: int,
    repeats: int,
    seed: int,
    most: float = np.inf,
) -> Evidence:
    """Integrate a likelihood over standard normal parameters.

    Parameters
    ----------
    log_likelihood
        θ (n, dim) → log p(x|θ), (n,).
    dim
        Parameters.
    live
        Live points; PolyChord's default is 25 · dim.
    repeats
        Slices between a point and its offspring; PolyChord's default is 5 · dim.
    seed
        Fixes all random numbers.
    most
        The largest number of evaluations of the likelihood.
    """
    start = time.process_time()
    rng = np.random.default_rng(seed)
    # Single precision halves the time; its rounding is far below the error of log Z.
    theta = rng.standard_normal((live, dim), dtype=np.float32)
    value = log_likelihood(theta)
    evaluations, removed, log_volume = live, max(1, live // 4), 0.0
    # Of the points removed, one after the other: how much the expected log volume shrinks by each.
    shrink = 1 / np.arange(live, live - removed, -1)
    dead: list[np.ndarray] = []
    weight: list[np.ndarray] = []
    while True:
        order = np.argsort(value)
        theta, value = theta[order], value[order]
        log_z = logsumexp(np.concatenate([*weight, [-np.inf]]))
        finished = log_volume + logsumexp(value) - np.log(live) < log_z + np.log(_PRECISION)
        if finished or evaluations >= most:
            break
        volumes = log_volume - np.cumsum(shrink) + shrink  # before each of them goes
        dead.append(value[:removed].copy())
        weight.append(dead[-1] + volumes + np.log(-np.expm1(-shrink)))
        log_volume -= shrink.sum()
        factor = np.linalg.cholesky(np.cov(theta[removed:], rowvar=False)).astype(np.float32)
        parents = rng.integers(removed, live, removed)
        young, worth = theta[parents], value[parents]
        for _ in range(repeats):
            young, worth, spent = _slice(log_likelihood, young, worth, value[removed - 1], factor, rng)
            evaluations += spent
        theta[:removed], value[:removed] = young, worth
    dead.append(value)
    weight.append(value + log_volume - np.log(live))
    log_l, log_w = np.concatenate(dead), np.concatenate(weight)
    log_z = logsumexp(log_w)
    information = float(np.sum(np.exp(log_w - log_z) * log_l) - log_z)
    # A quarter at once: each stage adds Σ 1/n² of its live points n, for Σ 1/n of log volume.
    error = np.sqrt(max(information, 0.0) * np.sum(shrink**2) / np.sum(shrink))
    return Evidence(float(log_z), float(error), evaluations, time.process_time() - start, bool(finished))


def _slice(
    log_likelihood: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    value: np.ndarray,
    above: float,
    factor: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Move each point along a line of its own to another of likelihood above a bound; count evaluations."""
    lines = rng.standard_normal(theta.shape, dtype=np.float32) @ factor.T
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    # On a line the prior is N(centre, 1); in units of its distribution function it is uniform.
    centre = -np.einsum("ij,ij->i", theta, lines).astype(np.float64)
    here = ndtr(-centre)
    low, high = np.zeros(len(theta)), np.ones(len(theta))
    theta, value = theta.copy(), value.copy()
    left, spent = np.arange(len(theta)), 0
    while len(left):
        place = low[left] + (high - low)[left] * rng.random(len(left))
        step = (centre[left] + ndtri(place)).astype(np.float32)
        there = theta[left] + step[:, None] * lines[left]
        found = log_likelihood(there)
        spent += len(left)
        good = found > above
        theta[left[good]], value[left[good]] = there[good], found[good]
        left, place = left[~good], place[~good]
        beyond = place > here[left]
        high[left[beyond]], low[left[~beyond]] = place[beyond], place[~beyond]
        # If rounding leaves no room to move, the point stays.
        left = left[(high - low)[left] > 1e-12]
    return theta, value, spent
