"""Sequences: the order of the values matters."""

import numpy as np
from scipy.special import betaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, flip_signs, in_chunks, positive, rows
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model

# The coefficients of the three models of `regimes` are uniform between these bounds.
WEEK = 7
COEFFICIENTS = {
    "one regime": ((-0.2, 0.8),),
    "two regimes": ((-0.4, 0.9), (-0.4, 0.9)),
    "weekly": ((-0.2, 0.6), (-0.1, 0.35)),
}


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


def chirp(length: int = 128, width: int = 24, *, amplitude: float = 5.0) -> Problem:
    """Look for a chirp at an unknown place in a noisy series: a short wave whose pitch rises.

    M0: all values are noise, N(0, 1). M1: a chirp of `width` values is added. It starts at one of the length
    − width + 1 places where it fits, all equally likely. With u = 24 j / width for j = 0..width−1, it has the
    shape exp(−½ ((u − 14) / 5)²) sin(0.25 u + 0.022 u²). The shape is scaled so that its squares sum to 1,
    and is multiplied by a ~ N(0, amplitude²).

    At a given place the evidence is normal. Let p be the product of the series with the shape at this place,
    and v = amplitude². Then the evidence is the density of the noise times exp(½ p² v / (1 + v)) / √(1 + v).
    The evidence of M1 is the mean of this over the places.

    log K does not change if the series changes its sign.

    Parameters
    ----------
    length
        Length of the series.
    width
        Length of the chirp, at most `length`.
    amplitude
        Standard deviation of a, in units of the noise.

    Returns
    -------
    problem
        Data of shape (n, length), float32. Parameters in M1: ``place`` (n,), where the chirp starts, and
        ``amplitude`` (n,).

    Examples
    --------
    >>> chirp()
    Problem('chirp', models=('noise', 'chirp'), augment=yes)
    """
    length, width = count("length", length, least=2), count("width", width, least=2)
    amplitude = positive("amplitude", amplitude)
    if width > length:
        raise ValueError(f"width must be at most length, got width={width} and length={length}")
    u = 24 * np.arange(width) / width
    shape = np.exp(-0.5 * ((u - 14) / 5) ** 2) * np.sin(0.25 * u + 0.022 * u**2)
    shape = shape / np.sqrt((shape**2).sum())
    places = length - width + 1
    chirps = np.zeros((places, length))
    for place in range(places):
        chirps[place, place : place + width] = shape

    def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"place": rng.integers(0, places, n), "amplitude": amplitude * rng.standard_normal(n)}

    def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        x = rng.standard_normal((len(theta["place"]), length), dtype=np.float32)
        x += theta["amplitude"][:, None] * chirps[theta["place"]]
        return x

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (length,)), 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        noise = -0.5 * (x**2).sum(axis=1) - 0.5 * length * np.log(2 * np.pi)
        growth = 1 + amplitude**2
        gain = 0.5 * (amplitude * (x @ chirps.T)) ** 2 / growth - 0.5 * np.log(growth)
        return np.stack([noise, noise + log_integral(gain, -np.log(places))], axis=1)

    return Problem(
        name="chirp",
        models=(
            Model("noise", lambda rng, n: rng.standard_normal((n, length), dtype=np.float32)),
            Model("chirp", observe, prior=prior),
        ),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def regimes(length: int = 80, *, level: float = 0.5, nodes: int = 40) -> Problem:
    """Find what the load of a day depends on: the last day, two regimes of it, or also the day a week before.

    x_1 ~ N(0, 1). In M0, x_t = c + a x_{t−1} + n_t with a ~ U(−0.2, 0.8). In M1, the coefficient depends on
    the sign of the last value: x_t = c + a min(x_{t−1}, 0) + b max(x_{t−1}, 0) + n_t with a, b ~ U(−0.4,
    0.9). In M2, the value of a week before matters too: x_t = c + a x_{t−1} + b x_{t−7} + n_t with a ~
    U(−0.2, 0.6) and b ~ U(−0.1, 0.35); the values before x_1 count as 0. In all models c ~ N(0, level²) and
    n_t ~ N(0, 1).

    At given coefficients, the differences d_t = x_t − a … are N(0, I + level² 1 1ᵀ), so the log density is a
    quadratic form in the coefficients. The mean over the coefficients is computed with Gauss–Legendre
    quadrature.

    log K does not change if the series changes its sign.

    Parameters
    ----------
    length
        Number of days, at least 8.
    level
        Standard deviation of c, in units of the noise.
    nodes
        Quadrature nodes for each coefficient.

    Returns
    -------
    problem
        Data of shape (n, length), float32. Parameters: ``level`` (n,) and ``coefficients``, (n, 1) in M0 and
        (n, 2) in M1 and M2.

    Examples
    --------
    >>> regimes()
    Problem('regimes', models=('one regime', 'two regimes', 'weekly'), augment=yes)
    """
    length, nodes = count("length", length, least=WEEK + 1), count("nodes", nodes, least=2)
    level = positive("level", level)
    steps = length - 1

    def terms(name: str, x: np.ndarray, t: int) -> list[np.ndarray]:
        """Return what the coefficients multiply at time t; x has time along its first axis."""
        last = x[t - 1]
        if name == "two regimes":
            return [np.minimum(last, 0), np.maximum(last, 0)]
        if name == "weekly":
            return [last, x[t - WEEK] if t >= WEEK else np.zeros_like(last)]
        return [last]

    def model(name: str) -> Model:
        low, high = np.array(COEFFICIENTS[name]).T

        def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
            coefficients = rng.uniform(low, high, (n, len(low)))
            return {"level": level * rng.standard_normal(n), "coefficients": coefficients}

        def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
            # In the transposed copy the values of one time are neighbours in memory, which makes the loop
            # faster.
            x = np.ascontiguousarray(rng.standard_normal((len(theta["level"]), length), dtype=np.float32).T)
            coefficients = theta["coefficients"].T.astype(np.float32)
            x[1:] += theta["level"].astype(np.float32)
            for t in range(1, length):
                for coefficient, term in zip(coefficients, terms(name, x, t), strict=True):
                    x[t] += coefficient * term
            return np.ascontiguousarray(x.T)

        return Model(name, observe, prior=prior)

    def grid(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the products of (1, −a, −b) with itself at each node, flattened, and log weights."""
        points, log_weights = np.ones((1, 1)), np.zeros(1)
        for low, high in COEFFICIENTS[name]:
            axis, weights = legendre(low, high, nodes)
            points = np.column_stack([np.repeat(points, nodes, axis=0), -np.tile(axis, len(points))])
            log_weights = (log_weights[:, None] + weights - np.log(high - low)).ravel()
        return (points[:, :, None] * points[:, None, :]).reshape(len(points), -1), log_weights

    grids = {name: grid(name) for name in COEFFICIENTS}

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (length,)), 1_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        # The determinant of I + level² 1 1ᵀ.
        determinant = 1 + steps * level**2
        constant = -0.5 * (x[:, 0] ** 2 + np.log(determinant) + length * np.log(2 * np.pi))
        series, columns = x.T, []
        for name, (products, log_weights) in grids.items():
            pairs = [np.stack([series[t], *terms(name, series, t)], axis=1) for t in range(1, length)]
            values = np.stack(pairs, axis=1)
            total = values.sum(axis=1)
            inner = values.transpose(0, 2, 1) @ values
            inner -= level**2 / determinant * total[:, :, None] * total[:, None, :]
            squares = inner.reshape(len(x), products.shape[1]) @ products.T
            columns.append(constant + log_integral(-0.5 * squares, log_weights))
        return np.stack(columns, axis=1)

    return Problem(
        name="regimes",
        models=tuple(model(name) for name in COEFFICIENTS),
        log_evidence=log_evidence,
        augment=flip_signs,
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
