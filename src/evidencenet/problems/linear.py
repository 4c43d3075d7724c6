"""Signals that are linear in most of their parameters, in normal noise."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import (
    array,
    count,
    flip_signs,
    in_chunks,
    positive,
    rows,
    shuffle_along,
    signs,
)
from evidencenet.problems._normal import linear_log_density, scale_free_log_density
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model

# How many terms the models of `moderation` have, and the standard deviations of their coefficients, in units
# of σ.
TERMS = {"additive": 3, "moderated": 4, "curved": 4}
SPREADS = np.array([1.0, 0.6, 0.6, 0.6])


def polynomial_order(size: int = 20, orders: int = 5, *, amplitude: float = 0.7) -> Problem:
    """Find the order of a polynomial through noisy points.

    In model k = 0..orders−1, x_i = Σ_{j≤k} c_j P_j(t_i) + n_i at t = linspace(−1, 1, size). The P_j are the
    Legendre polynomials, c_j ~ N(0, amplitude²) and n_i ~ N(0, 1). The evidence is N(x; 0, I + amplitude² Φ_k
    Φ_kᵀ), where Φ_k is the matrix of P_j(t_i) for j ≤ k.

    log K does not change if x changes its sign.

    Parameters
    ----------
    size
        Number of points.
    orders
        Number K of models.
    amplitude
        Standard deviation of the coefficients, in units of the noise.

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters c of shape (n, orders), zero beyond the order.

    Examples
    --------
    >>> len(polynomial_order().models)
    5
    """
    size, orders = count("size", size), count("orders", orders, least=2)
    amplitude = positive("amplitude", amplitude)
    basis = amplitude * np.polynomial.legendre.legvander(np.linspace(-1, 1, size), orders - 1)
    densities = [linear_log_density(basis[:, : k + 1], 1.0) for k in range(orders)]

    def model(order: int) -> Model:
        def prior(rng: np.random.Generator, n: int) -> np.ndarray:
            coefficients = np.zeros((n, orders))
            coefficients[:, : order + 1] = amplitude * rng.standard_normal((n, order + 1))
            return coefficients

        def observe(rng: np.random.Generator, coefficients: np.ndarray) -> np.ndarray:
            return coefficients @ basis.T / amplitude + rng.standard_normal((len(coefficients), size))

        return Model(f"order {order}", observe, prior=prior)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        return np.stack([f(x) for f in densities], axis=1)

    return Problem(
        name="polynomial_order",
        models=tuple(model(k) for k in range(orders)),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def bumps(dim: int = 500, number: int = 25, *, amplitude: float = 0.35) -> Problem:
    """Look for bumps of unknown height in a long noisy record.

    M0: x_j ~ N(0, 1) for j = 1..dim. M1: the record is divided into `number` runs of equal length, and each
    run has a height h ~ N(0, amplitude²) that is added to the noise. The evidence of M1 is N(x; 0, I +
    amplitude² B Bᵀ), where B is the sparse matrix that says which value belongs to which run.

    log K does not change if any of the runs changes its sign.

    Parameters
    ----------
    dim
        Length of the record, a multiple of `number`.
    number
        Number of runs.
    amplitude
        Standard deviation of the heights, in units of the noise.

    Returns
    -------
    problem
        Data of shape (n, dim), float32; parameters h of shape (n, number).

    Examples
    --------
    >>> bumps()
    Problem('bumps', models=('noise', 'bumps'), augment=yes)
    """
    dim, number = count("dim", dim), count("number", number)
    amplitude = positive("amplitude", amplitude)
    if dim % number:
        raise ValueError(f"dim must be a multiple of number, got dim={dim} and number={number}")
    width = dim // number

    def observe(rng: np.random.Generator, heights: np.ndarray) -> np.ndarray:
        x = rng.standard_normal((len(heights), number, width), dtype=np.float32)
        x += heights[:, :, None]
        return x.reshape(-1, dim)

    def log_evidence(x: Data) -> np.ndarray:
        runs = rows(x, (dim,)).reshape(-1, number, width)
        noise = -0.5 * np.einsum("ijk,ijk->i", runs, runs) - 0.5 * dim * np.log(2 * np.pi)
        # The variance of the sum of a run, in units of the noise's.
        ratio = 1 + width * amplitude**2
        gain = 0.5 * amplitude**2 / ratio * (runs.sum(axis=2) ** 2).sum(axis=1) - 0.5 * number * np.log(ratio)
        return np.stack([noise, noise + gain], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        return x * np.repeat(signs(rng, (len(x), number)), width, axis=1).astype(x.dtype)

    return Problem(
        name="bumps",
        models=(
            Model("noise", lambda rng, n: rng.standard_normal((n, dim), dtype=np.float32)),
            Model(
                "bumps",
                observe,
                prior=lambda rng, n: (
                    np.float32(amplitude) * rng.standard_normal((n, number), dtype=np.float32)
                ),
            ),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def decay_or_trend(size: int = 30, *, noise: float = 0.6, nodes: int = 200) -> Problem:
    """Distinguish an exponential decay from a quadratic trend: models with different parameters.

    At t = linspace(0, 2, size), M0 is x = b_0 + b_1 t + b_2 t² + n with b_i ~ N(0, ½²): a trend with three
    linear parameters. M1 is x = a exp(−γ t) + n with a ~ N(0, 2²) and γ ~ U(0.5, 5). The noise n is N(0,
    noise²). The evidence of M0 is normal. The evidence of M1 is normal at given γ, and the mean over γ is
    computed with Gauss–Legendre quadrature.

    log K does not change if x changes its sign.

    Parameters
    ----------
    size
        Number of times.
    noise
        Standard deviation of the noise.
    nodes
        Quadrature nodes for γ.

    Returns
    -------
    problem
        Data of shape (n, size), float64; parameters ``b`` in M0, ``amplitude`` and ``rate`` in M1.

    Examples
    --------
    >>> decay_or_trend()
    Problem('decay_or_trend', models=('trend', 'decay'), augment=yes)
    """
    size, nodes = count("size", size, least=2), count("nodes", nodes, least=2)
    noise = positive("noise", noise)
    t = np.linspace(0, 2, size)
    powers = np.vander(t, 3, increasing=True)
    trend = linear_log_density(0.5 * powers, noise)
    rates, log_weights = legendre(0.5, 5.0, nodes)
    log_weights = log_weights - np.log(4.5)
    decays = 2.0 * np.exp(-t[:, None] * rates)
    variance = noise**2 + (decays**2).sum(axis=0)

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (size,)), 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        only_noise = -0.5 * (x**2).sum(axis=1) / noise**2 - size * np.log(noise * np.sqrt(2 * np.pi))
        gain = 0.5 * (x @ decays) ** 2 / (noise**2 * variance) - 0.5 * np.log(variance / noise**2)
        return np.stack([trend(x), only_noise + log_integral(gain, log_weights)], axis=1)

    def draw_decay(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"amplitude": 2.0 * rng.standard_normal(n), "rate": rng.uniform(0.5, 5.0, n)}

    def observe_decay(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        signal = theta["amplitude"][:, None] * np.exp(-theta["rate"][:, None] * t)
        return signal + noise * rng.standard_normal(signal.shape)

    def observe_trend(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        signal = theta["b"] @ powers.T
        return signal + noise * rng.standard_normal(signal.shape)

    return Problem(
        name="decay_or_trend",
        models=(
            Model("trend", observe_trend, prior=lambda rng, n: {"b": 0.5 * rng.standard_normal((n, 3))}),
            Model("decay", observe_decay, prior=draw_decay),
        ),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def templates(dim: int = 2000, *, amplitude: float = 2.0) -> Problem:
    """Look for three known shapes of unknown strength in a very long noisy record.

    M0: x_j ~ N(0, 1) for j = 1..dim. M1: three smooth bumps are added. They are Gaussians about 0.25, 0.5 and
    0.75 of the record, with standard deviations 0.05, 0.1 and 0.2 of it. Each bump is scaled so that its
    squares sum to 1, and is multiplied by its own c ~ N(0, amplitude²). The evidence of M1 is N(x; 0, I +
    amplitude² T Tᵀ), where T is the matrix of the three bumps.

    log K does not change if x changes its sign.

    Parameters
    ----------
    dim
        Length of the record.
    amplitude
        Standard deviation of the c, in units of the noise.

    Returns
    -------
    problem
        Data of shape (n, dim), float32. Parameters in M1: c, of shape (n, 3).

    Examples
    --------
    >>> templates()
    Problem('templates', models=('noise', 'shapes'), augment=yes)
    """
    dim, amplitude = count("dim", dim, least=3), positive("amplitude", amplitude)
    place = np.linspace(0, 1, dim)[:, None]
    bump = np.exp(-0.5 * ((place - [0.25, 0.5, 0.75]) / [0.05, 0.1, 0.2]) ** 2)
    bump = bump / np.sqrt((bump**2).sum(axis=0))
    densities = [linear_log_density(a * bump, 1.0) for a in (0.0, amplitude)]
    to_record = bump.T.astype(np.float32)

    def observe(rng: np.random.Generator, coefficients: np.ndarray) -> np.ndarray:
        x = rng.standard_normal((len(coefficients), dim), dtype=np.float32)
        x += coefficients @ to_record
        return x

    def log_evidence(x: Data) -> np.ndarray:
        # A copy in double precision takes twice the memory of the draws, so only chunks are converted.
        return in_chunks(_log_evidence, array(x), 2_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        x = rows(x, (dim,))
        return np.stack([f(x) for f in densities], axis=1)

    return Problem(
        name="templates",
        models=(
            Model("noise", lambda rng, n: rng.standard_normal((n, dim), dtype=np.float32)),
            Model(
                "shapes",
                observe,
                prior=lambda rng, n: np.float32(amplitude) * rng.standard_normal((n, 3), dtype=np.float32),
            ),
        ),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def spectral_line(size: int = 60, lines: int = 10, *, amplitude: float = 1.5, width: float = 4.0) -> Problem:
    """Find which of ten known spectral lines is in a spectrum: ten models.

    In model k = 0..lines−1, x_i = c_0 + c_1 u_i + a exp(−½ ((i − m_k)/width)²) + n_i for the pixels i =
    0..size−1, with u = linspace(−1, 1, size). This is a continuum of unknown level and slope, a line of
    unknown strength at the known place m_k, and noise n_i ~ N(0, 1). The places are evenly spaced from
    size/10 to 9 size/10, and neighbouring lines overlap. c_0, c_1 ~ N(0, 1) and a ~ N(0, amplitude²), so a
    line can be in emission or in absorption. The evidence is N(x; 0, I + Φ_k Φ_kᵀ), where Φ_k has the three
    columns of model k, each times the standard deviation of its coefficient.

    log K does not change if x changes its sign.

    Parameters
    ----------
    size
        Number of pixels.
    lines
        Number K of models.
    amplitude
        Standard deviation of the line's strength, in units of the noise.
    width
        Width of the lines, in pixels.

    Returns
    -------
    problem
        Data of shape (n, size), float64. Parameters of shape (n, 3): c_0, c_1 and a.

    Examples
    --------
    >>> len(spectral_line().models)
    10
    """
    size, lines = count("size", size, least=2), count("lines", lines, least=2)
    amplitude, width = positive("amplitude", amplitude), positive("width", width)
    place = np.linspace(0.1 * size, 0.9 * size, lines)
    continuum = np.vander(np.linspace(-1, 1, size), 2, increasing=True)

    def columns(line: int) -> np.ndarray:
        shape = np.exp(-0.5 * ((np.arange(size) - place[line]) / width) ** 2)
        return np.column_stack([continuum, shape])

    scale = np.array([1.0, 1.0, amplitude])
    densities = [linear_log_density(columns(line) * scale, 1.0) for line in range(lines)]

    def model(line: int) -> Model:
        design = columns(line)
        return Model(
            f"line {line + 1}",
            lambda rng, theta: theta @ design.T + rng.standard_normal((len(theta), size)),
            prior=lambda rng, n: scale * rng.standard_normal((n, 3)),
        )

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        return np.stack([f(x) for f in densities], axis=1)

    return Problem(
        name="spectral_line",
        models=tuple(model(line) for line in range(lines)),
        log_evidence=log_evidence,
        augment=flip_signs,
    )


def oscillation(
    size: int = 128,
    frequencies: int = 12,
    *,
    strength: float = 1.35,
    spread: float = 0.35,
    decay: float = 26.0,
) -> Problem:
    """Look for a damped oscillation in a noisy series, as after a blow with a hammer.

    M0: x_t ~ N(0, 1) for t = 0..size−1. M1: x_t = exp(−t/decay) (a sin(2π f t) + b cos(2π f t)) + n_t, with a
    ~ N(strength, spread²), b ~ N(0, spread²) and n_t ~ N(0, 1). The frequency f is one of `frequencies`
    evenly spaced values from 0.03 to 0.30 cycles per step, all equally likely.

    At given f the evidence is N(x; Φ_f (strength, 0)ᵀ, I + spread² Φ_f Φ_fᵀ), where Φ_f has the columns
    exp(−t/decay) sin(2π f t) and exp(−t/decay) cos(2π f t). Along the singular vectors of Φ_f it is a product
    of two integrals over one number each. The mean over f is a sum.

    Parameters
    ----------
    size
        Length of the series.
    frequencies
        Number of frequencies.
    strength
        Mean of the amplitude a of the sine, in units of the noise.
    spread
        Standard deviation of the amplitudes a and b, in units of the noise.
    decay
        Number of steps after which the oscillation has become weaker by the factor e.

    Returns
    -------
    problem
        Data of shape (n, size), float32. Parameters in M1: ``sine`` and ``cosine``, which are a and b, and
        ``f``, the number of the frequency, from 0 to frequencies−1.

    Examples
    --------
    >>> oscillation()
    Problem('oscillation', models=('noise', 'oscillation'), augment=no)
    """
    size, frequencies = count("size", size, least=2), count("frequencies", frequencies)
    strength, spread = positive("strength", strength), positive("spread", spread)
    decay = positive("decay", decay)
    t = np.arange(size)
    phase = 2 * np.pi * np.linspace(0.03, 0.30, frequencies)[:, None] * t
    sines, cosines = np.exp(-t / decay) * np.sin(phase), np.exp(-t / decay) * np.cos(phase)
    sines_32, cosines_32 = sines.astype(np.float32), cosines.astype(np.float32)
    # Along the two axes of a frequency, the amplitudes are independent too, as they have the same spread.
    axes, singular, turn = np.linalg.svd(np.stack([sines, cosines], axis=2), full_matrices=False)
    axes = axes.transpose(1, 0, 2).reshape(size, -1)
    singular, mean = singular.ravel(), strength * turn[:, :, 0].ravel()

    def draw_parameters(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {
            "sine": strength + spread * rng.standard_normal(n),
            "cosine": spread * rng.standard_normal(n),
            "f": rng.integers(0, frequencies, n),
        }

    def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        x = rng.standard_normal((len(theta["f"]), size), dtype=np.float32)
        x += theta["sine"][:, None].astype(np.float32) * sines_32[theta["f"]]
        x += theta["cosine"][:, None].astype(np.float32) * cosines_32[theta["f"]]
        return x

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (size,)), 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        noise = -0.5 * np.einsum("ij,ij->i", x, x) - 0.5 * size * np.log(2 * np.pi)
        product = (x @ axes) * singular
        # log ∫ N(a; mean, spread²) exp(a product − ½ a² singular²) da, for each axis
        ratio = 1 + (spread * singular) ** 2
        gain = 0.5 * (spread * product) ** 2 + mean * product - 0.5 * (mean * singular) ** 2
        gain = gain / ratio - 0.5 * np.log(ratio)
        gain = gain.reshape(-1, frequencies, 2).sum(axis=2)
        return np.stack([noise, noise + log_integral(gain, -np.log(frequencies))], axis=1)

    return Problem(
        name="oscillation",
        models=(
            Model("noise", lambda rng, n: rng.standard_normal((n, size), dtype=np.float32)),
            Model("oscillation", observe, prior=draw_parameters),
        ),
        log_evidence=log_evidence,
    )


def moderation(people: int = 30, *, shape: float = 4.0) -> Problem:
    """Find whether age changes the effect of a treatment, or only the score, in a line or in a curve.

    Each of `people` persons has an age, a whole number from N(40, 12²), a treatment w that is 0 or 1 with
    equal probability, and a score in milliseconds. With z = (age − 40) / 12 and y = (score − 500) / 100, y is
    a sum of terms plus noise N(0, σ²). M0: b_0 + b_1 z + b_2 (w − ½). M1: the same plus b_3 z (2w − 1): the
    effect of the treatment depends on age. M2: the same as M0 plus b_3 (z² − 1). The variance σ² is inverse
    gamma(shape, shape). The coefficients are N(0, σ²) for b_0 and N(0, (0.6 σ)²) for the others.

    At given σ, y is normal with covariance σ² (I + Φ Φᵀ), where Φ has the terms, each times its standard
    deviation. The integral over σ² has the closed form of `t_test`. The evidence is that of the scores, given
    ages and treatments. Their distribution is the same in all models, so it cancels and is left out.

    log K does not change if persons are exchanged, if the treatments are, or if ages are mirrored about 40.

    Parameters
    ----------
    people
        Number of persons.
    shape
        Both parameters of the inverse gamma prior of σ².

    Returns
    -------
    problem
        Data of shape (n, people, 3), float32: age, treatment and score. Parameters: ``sigma`` (n,) and ``b``,
        (n, 3) in M0 and (n, 4) in M1 and M2.

    Examples
    --------
    >>> moderation()
    Problem('moderation', models=('additive', 'moderated', 'curved'), augment=yes)
    """
    people, shape = count("people", people), positive("shape", shape)

    def terms(name: str, x: np.ndarray) -> np.ndarray:
        """Return the terms of a model, before their coefficients: (n, people, 3 or 4)."""
        z, treated = (x[..., 0] - 40) / 12, x[..., 1] - 0.5
        columns = [np.ones_like(z), z, treated]
        if name == "moderated":
            columns.append(2 * z * treated)
        elif name == "curved":
            columns.append(z**2 - 1)
        return np.stack(columns, axis=2)

    def model(name: str) -> Model:
        spreads = SPREADS[: TERMS[name]]

        def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
            sigma = np.sqrt(shape / rng.standard_gamma(shape, n))
            return {"sigma": sigma, "b": sigma[:, None] * spreads * rng.standard_normal((n, len(spreads)))}

        def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
            n = len(theta["sigma"])
            x = np.empty((n, people, 3))
            x[..., 0] = np.round(40 + 12 * rng.standard_normal((n, people)))
            x[..., 1] = rng.random((n, people)) < 0.5
            noise = theta["sigma"][:, None] * rng.standard_normal((n, people))
            x[..., 2] = 500 + 100 * ((terms(name, x) @ theta["b"][:, :, None])[..., 0] + noise)
            return x.astype(np.float32)

        return Model(name, observe, prior=prior)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (people, 3))
        if not np.all((x[..., 1] == 0) | (x[..., 1] == 1)):
            raise ValueError("every treatment must be 0 or 1")
        return in_chunks(_log_evidence, x, 5_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        y = (x[..., 2] - 500) / 100
        squares, columns = (y**2).sum(axis=1), []
        for name, number in TERMS.items():
            design = SPREADS[:number] * terms(name, x)
            gram = np.eye(number) + design.transpose(0, 2, 1) @ design
            product = (y[:, None, :] @ design)[:, 0]
            explained = (product * np.linalg.solve(gram, product[:, :, None])[..., 0]).sum(axis=1)
            of_y = scale_free_log_density(squares - explained, people, shape, shape)
            columns.append(of_y - 0.5 * np.linalg.slogdet(gram)[1] - people * np.log(100))
        return np.stack(columns, axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = shuffle_along(rng, array(x), 1)
        explaining, score = x[..., :2], x[..., 2:]
        mirrored = np.array([80, 1], dtype=x.dtype) - explaining
        explaining = np.where(rng.random((len(x), 1, 2)) < 0.5, mirrored, explaining)
        return np.concatenate([explaining, score], axis=2)

    return Problem(
        name="moderation",
        models=tuple(model(name) for name in TERMS),
        log_evidence=log_evidence,
        augment=augment,
    )
