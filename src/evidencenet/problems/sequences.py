"""Sequences: the order of the values matters."""

import numpy as np
from scipy.special import betaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, flip_signs, in_chunks, positive, rows
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def change_point(length: int = 40) -> Problem:
    """Test whether the rate of ones in a binary sequence changes once.

    M0: all values are 1 with the same probability p ~ U(0, 1). M1: the first c values are 1 with probability
    p and the others with probability q, where p, q ~ U(0, 1) and c is uniform on 1..length−1. If m values
    have the same rate and k of them are 1, their evidence is B(k + 1, m − k + 1). The evidence of M1 is the
    mean over c of the product of two of these.

    log K does not change if zeros and ones are exchanged, or if the sequence is reversed.

    Parameters
    ----------
    length
        Length of the sequence.

    Returns
    -------
    problem
        Data of shape (n, length, 1), float32, zeros and ones; parameters: p of shape (n,) in M0; ``p``, ``q``
        and ``c`` in M1.

    Examples
    --------
    >>> change_point()
    Problem('change_point', models=('one rate', 'two rates'), augment=yes)
    """
    length = count("length", length, least=2)
    position = np.arange(1, length)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (length, 1))[:, :, 0]
        if not np.all((x == 0) | (x == 1)):
            raise ValueError("x must hold zeros and ones only")
        ones = x.cumsum(axis=1)
        before, total = ones[:, :-1], ones[:, -1:]
        after = total - before
        left = betaln(before + 1, position - before + 1)
        right = betaln(after + 1, length - position - after + 1)
        changed = log_integral(left + right, np.full(length - 1, -np.log(length - 1)))
        return np.stack([betaln(total + 1, length - total + 1)[:, 0], changed], axis=1)

    def draw_change(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"p": rng.random(n), "q": rng.random(n), "c": rng.integers(1, length, n)}

    def constant(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
        return (rng.random((len(p), length, 1)) < p[:, None, None]).astype(np.float32)

    def changing(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        p, q, c = (theta[name][:, None] for name in ("p", "q", "c"))
        rate = np.where(np.arange(length) < c, p, q)
        return (rng.random(rate.shape) < rate).astype(np.float32)[:, :, None]

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = _reversed(rng, x)
        return np.where(rng.random((len(x), 1, 1)) < 0.5, 1 - x, x)

    return Problem(
        name="change_point",
        models=(
            Model("one rate", constant, prior=lambda rng, n: rng.random(n)),
            Model("two rates", changing, prior=draw_change),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def autocorrelation(length: int = 50, *, largest: float = 0.8, nodes: int = 100) -> Problem:
    """Distinguish an autocorrelated sequence from white noise.

    M0: x_t ~ N(0, 1), independent. M1: a stationary autoregressive process with the same variance, x_1 ~ N(0,
    1) and x_t ~ N(ρ x_{t−1}, 1 − ρ²), with ρ ~ U(−largest, largest). At given ρ the density depends on three
    sums over the sequence. The mean over ρ is computed with Gauss–Legendre quadrature.

    log K does not change if the sequence changes its sign or is reversed.

    Parameters
    ----------
    length
        Length of the sequence.
    largest
        Bound of |ρ|, below 1.
    nodes
        Quadrature nodes for ρ.

    Returns
    -------
    problem
        Data of shape (n, length, 1), float32; parameters ρ of shape (n,) in M1.

    Examples
    --------
    >>> autocorrelation()
    Problem('autocorrelation', models=('white', 'correlated'), augment=yes)
    """
    length, nodes = count("length", length, least=2), count("nodes", nodes, least=2)
    if positive("largest", largest) >= 1:
        raise ValueError(f"largest must be below 1 for a stationary process, got {largest!r}")
    rho, log_weights = legendre(-largest, largest, nodes)
    log_weights = log_weights - np.log(2 * largest)

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (length, 1))[:, :, 0], 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        white = -0.5 * (x**2).sum(axis=1) - 0.5 * length * np.log(2 * np.pi)
        return np.stack([white, white + log_integral(_gain_over_white(x, rho), log_weights)], axis=1)

    def correlated(rng: np.random.Generator, rho: np.ndarray) -> np.ndarray:
        x = rng.standard_normal((length, len(rho)), dtype=np.float32)
        step, rho = np.sqrt(1 - rho**2).astype(np.float32), rho.astype(np.float32)
        for t in range(1, length):
            x[t] = rho * x[t - 1] + step * x[t]
        return np.ascontiguousarray(x.T)[:, :, None]

    def augment(rng: np.random.Generator, x: Data) -> Data:
        return flip_signs(rng, _reversed(rng, x))

    return Problem(
        name="autocorrelation",
        models=(
            Model("white", lambda rng, n: rng.standard_normal((n, length, 1), dtype=np.float32)),
            Model("correlated", correlated, prior=lambda rng, n: rng.uniform(-largest, largest, n)),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def ar_or_ma(length: int = 50, *, largest: float = 0.9, nodes: int = 100) -> Problem:
    """Distinguish an autoregressive series from a moving average, AR(1) from MA(1).

    Both are stationary and normal, with variance 1. M0: x_t = φ x_{t−1} + √(1 − φ²) e_t, with correlation φ^s
    at lag s and φ ~ U(−largest, largest). M1: x_t = (e_t + θ e_{t−1}) / √(1 + θ²), with correlation θ / (1 +
    θ²) at lag 1 and zero at larger lags, and θ ~ U(−largest, largest).

    At given φ the density of M0 depends on three sums over the series, as in `autocorrelation`. The
    covariance of M1 has the same eigenvectors for every θ, sin(π j t / (length + 1)), and the eigenvalues 1 +
    2 θ cos(π j / (length + 1)) / (1 + θ²), j = 1..length. The means over φ and θ are computed with
    Gauss–Legendre quadrature.

    log K does not change if the series changes its sign or is reversed.

    Parameters
    ----------
    length
        Length of the series.
    largest
        Bound of |φ| and |θ|, below 1.
    nodes
        Quadrature nodes for φ, and for θ.

    Returns
    -------
    problem
        Data of shape (n, length), float32. Parameters of shape (n,): φ in M0, θ in M1.

    Examples
    --------
    >>> ar_or_ma()
    Problem('ar_or_ma', models=('AR(1)', 'MA(1)'), augment=yes)
    """
    length, nodes = count("length", length, least=2), count("nodes", nodes, least=2)
    if positive("largest", largest) >= 1:
        raise ValueError(f"largest must be below 1, got {largest!r}")
    coefficient, log_weights = legendre(-largest, largest, nodes)
    log_weights = log_weights - np.log(2 * largest)
    index = np.arange(1, length + 1)
    sines = np.sqrt(2 / (length + 1)) * np.sin(np.pi * np.outer(index, index) / (length + 1))
    eigenvalues = 1 + 2 * np.outer(np.cos(np.pi * index / (length + 1)), coefficient / (1 + coefficient**2))

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (length,)), 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        white = -0.5 * (x**2).sum(axis=1) - 0.5 * length * np.log(2 * np.pi)
        autoregressive = white + log_integral(_gain_over_white(x, coefficient), log_weights)
        squares = (x @ sines) ** 2
        log_density = -0.5 * (squares @ (1 / eigenvalues) + np.log(2 * np.pi * eigenvalues).sum(axis=0))
        return np.stack([autoregressive, log_integral(log_density, log_weights)], axis=1)

    def autoregressive(rng: np.random.Generator, phi: np.ndarray) -> np.ndarray:
        # In the transposed copy the values of one time are neighbours in memory, which makes the loop faster.
        x = np.ascontiguousarray(rng.standard_normal((len(phi), length), dtype=np.float32).T)
        step, phi = np.sqrt(1 - phi**2).astype(np.float32), phi.astype(np.float32)
        for t in range(1, length):
            x[t] = phi * x[t - 1] + step * x[t]
        return np.ascontiguousarray(x.T)

    def moving_average(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((len(theta), length + 1), dtype=np.float32)
        theta = theta[:, None].astype(np.float32)
        return (noise[:, 1:] + theta * noise[:, :-1]) / np.sqrt(1 + theta**2)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        return flip_signs(rng, np.where(rng.random((len(x), 1)) < 0.5, x[:, ::-1], x))

    return Problem(
        name="ar_or_ma",
        models=(
            Model("AR(1)", autoregressive, prior=lambda rng, n: rng.uniform(-largest, largest, n)),
            Model("MA(1)", moving_average, prior=lambda rng, n: rng.uniform(-largest, largest, n)),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def _gain_over_white(x: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """Return log p(x | correlations ρ^s at lag s) − log p(x | white noise): shape (n, len(rho))."""
    length, rest = x.shape[1], 1 - rho**2
    lagged = (x[:, 1:] * x[:, :-1]).sum(axis=1)[:, None]
    # Each value is the end of a step (except the first) and the start of a step (except the last).
    steps = (x[:, 1:] ** 2).sum(axis=1)[:, None] + (x[:, :-1] ** 2).sum(axis=1)[:, None]
    return (rho * lagged - 0.5 * rho**2 * steps) / rest - 0.5 * (length - 1) * np.log(rest)


def _reversed(rng: np.random.Generator, x: Data) -> np.ndarray:
    """Reverse each sequence with probability one half."""
    x = array(x)
    return np.where(rng.random((len(x), 1, 1)) < 0.5, x[:, ::-1], x)
