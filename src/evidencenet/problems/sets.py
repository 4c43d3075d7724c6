"""Sets of varying size: values padded with zeros, and a mask."""

import numpy as np
from scipy.special import betaln, gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, flip_signs, in_chunks, masked_rows, named_arrays
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def correlated_cloud(capacity: int = 30, *, correlation: float = 0.6) -> Problem:
    """Test whether the two coordinates of a cloud of points are correlated.

    The number m of points is uniform on 2..capacity in both models, so it cancels. The points are N(μ, C)
    with μ ~ N(0, 4 I). C has unit variances; its correlation is 0 in M0 and `correlation` in M1. Along the
    diagonals (u ± v)/√2 the coordinates are independent with variances 1 ± correlation. The evidence along
    each diagonal is N(y; 0, variance · I + 4 · 1 1ᵀ).

    log K does not change if the cloud changes its sign, or if the two coordinates are exchanged.

    Parameters
    ----------
    capacity
        The largest number of points.
    correlation
        Correlation in M1, between −1 and 1.

    Returns
    -------
    problem
        Data: dict with ``x`` (n, capacity, 2), float32, zero where there is no point, and ``mask``
        (n, capacity), bool; parameters μ of shape (n, 2).

    Examples
    --------
    >>> correlated_cloud()
    Problem('correlated_cloud', models=('uncorrelated', 'correlated'), augment=yes)
    """
    capacity = count("capacity", capacity, least=2)
    if not -1 < correlation < 1:
        raise ValueError(f"correlation must lie between -1 and 1, got {correlation!r}")
    spread = 4.0

    def model(name: str, correlation: float) -> Model:
        factor = np.linalg.cholesky([[1, correlation], [correlation, 1]]).T.astype(np.float32)

        def sample(rng: np.random.Generator, mean: np.ndarray) -> Data:
            mask = np.arange(capacity) < rng.integers(2, capacity + 1, (len(mean), 1))
            points = rng.standard_normal((len(mean), capacity, 2), dtype=np.float32) @ factor
            points += mean[:, None, :].astype(np.float32)
            return {"x": points * mask[:, :, None], "mask": mask}

        return Model(name, sample, prior=lambda rng, n: np.sqrt(spread) * rng.standard_normal((n, 2)))

    def log_evidence(x: Data) -> np.ndarray:
        values, mask = masked_rows(x, (capacity, 2))
        number = mask.sum(axis=1)
        if np.any(number < 2):
            raise ValueError("every cloud must have at least 2 points")
        diagonal = np.stack([values.sum(axis=2), values[..., 0] - values[..., 1]], axis=2) / np.sqrt(2)
        squares, total = (diagonal**2).sum(axis=1), diagonal.sum(axis=1)

        def cloud(correlation: float) -> np.ndarray:
            variance = np.array([1 + correlation, 1 - correlation])
            of_sum = variance + number[:, None] * spread
            exponent = -0.5 * (squares - spread * total**2 / of_sum) / variance
            constant = -0.5 * (number[:, None] - 1) * np.log(variance) - 0.5 * np.log(of_sum)
            return (exponent + constant).sum(axis=1) - number * np.log(2 * np.pi) - np.log(capacity - 1)

        return np.stack([cloud(0.0), cloud(correlation)], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = named_arrays(x)
        values, exchange = x["x"], rng.random((len(x["x"]), 1, 1)) < 0.5
        return {**x, "x": flip_signs(rng, np.where(exchange, values[..., ::-1], values))}

    return Problem(
        name="correlated_cloud",
        models=(model("uncorrelated", 0.0), model("correlated", correlation)),
        log_evidence=log_evidence,
        augment=augment,
    )


def point_pattern(capacity: int = 40) -> Problem:
    """Distinguish uniform points in the unit square from points whose density has a gradient.

    The number m of points is binomial(capacity, q), with q ~ beta(2, 2) in M0 and q ~ beta(3, 2) in M1, so
    the number carries information too. In M0 the points are uniform. In M1 their density is 1 + g (2u − 1),
    where u is the first coordinate and g ~ U(−1, 1). The mean over g of ∏ (1 + g z_i), with z_i = 2u_i − 1,
    is the integral of a polynomial of degree m in g, which Gauss–Legendre quadrature gives exactly.

    log K does not change if a coordinate is mirrored.

    Parameters
    ----------
    capacity
        The largest number of points.

    Returns
    -------
    problem
        Data: dict with ``x`` (n, capacity, 2), float32, zero where there is no point, and ``mask``
        (n, capacity), bool; parameters ``q``, and ``gradient`` in M1.

    Examples
    --------
    >>> point_pattern()
    Problem('point_pattern', models=('uniform', 'gradient'), augment=yes)
    """
    capacity = count("capacity", capacity)
    gradients, log_weights = legendre(-1.0, 1.0, capacity // 2 + 1)
    log_weights = log_weights - np.log(2.0)

    def sample(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> Data:
        points = rng.random((len(theta["q"]), capacity, 2), dtype=np.float32)
        if "gradient" in theta:
            # A uniform z in (−1, 1) that stays with probability (1 + g z)/2, and else is mirrored to −z, has
            # the density (1 + g z)/2.
            z = 2 * points[..., 0] - 1
            stays = rng.random(z.shape) < 0.5 * (1 + theta["gradient"][:, None] * z)
            points[..., 0] = 0.5 + 0.5 * np.where(stays, z, -z)
        mask = np.arange(capacity) < rng.binomial(capacity, theta["q"])[:, None]
        return {"x": points * mask[:, :, None], "mask": mask}

    def log_number(number: np.ndarray, a: float, b: float) -> np.ndarray:
        log_ways = gammaln(capacity + 1) - gammaln(number + 1) - gammaln(capacity - number + 1)
        return log_ways + betaln(a + number, b + capacity - number) - betaln(a, b)

    def log_mean_product(z: np.ndarray) -> np.ndarray:
        return log_integral(np.log1p(z[:, :, None] * gradients).sum(axis=1), log_weights)

    def log_evidence(x: Data) -> np.ndarray:
        values, mask = masked_rows(x, (capacity, 2))
        if np.any((values < 0) | (values > 1)):
            raise ValueError("points must lie in the unit square")
        number = mask.sum(axis=1)
        z = np.where(mask, 2 * values[..., 0] - 1, 0.0)
        sloping = in_chunks(log_mean_product, z, 1_000)
        return np.stack([log_number(number, 2.0, 2.0), log_number(number, 3.0, 2.0) + sloping], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = named_arrays(x)
        values, mirror = x["x"], rng.random((len(x["x"]), 1, 2)) < 0.5
        return {**x, "x": np.where(mirror & x["mask"][:, :, None], 1 - values, values)}

    return Problem(
        name="point_pattern",
        models=(
            Model("uniform", sample, prior=lambda rng, n: {"q": rng.beta(2, 2, n)}),
            Model(
                "gradient",
                sample,
                prior=lambda rng, n: {"q": rng.beta(3, 2, n), "gradient": rng.uniform(-1, 1, n)},
            ),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def marked_points(capacity: int = 30, *, share: float = 0.5) -> Problem:
    """Test whether the marks of points vary smoothly over a square, as tree heights vary with the soil.

    The number m of points is uniform on capacity/3..capacity, and the points are uniform in the unit square.
    Each point has a mark of variance 1. M0: the marks are N(0, 1), independent. M1: the mark at r = (u, v) is
    √share · s(r) + √(1 − share) · n, with independent n ~ N(0, 1). The smooth part s is a sum of a_k cos(2π
    k·r) + b_k sin(2π k·r) over the wave vectors k = (1, 0), (0, 1), (1, 1) and (1, −1), with a_k, b_k ~ N(0,
    ¼).

    Given the points, the marks of M1 are normal with covariance (1 − share) I + share Φ Φᵀ, where Φ has eight
    columns, the waves. The evidence is that of the marks, given the points. The distribution of the points is
    the same in both models, so it cancels and is left out.

    log K does not change if a coordinate is mirrored, if the two coordinates are exchanged, or if all marks
    change their sign.

    Parameters
    ----------
    capacity
        The largest number of points, at least 3.
    share
        Share of the smooth part in the variance of the marks, between 0 and 1.

    Returns
    -------
    problem
        Data: dict with ``x`` (n, capacity, 3), float32, the coordinates u and v and the mark, zero where
        there is no point, and ``mask`` (n, capacity), bool. Parameters in M1: a_k and b_k, of shape (n, 8).

    Examples
    --------
    >>> marked_points()
    Problem('marked_points', models=('independent', 'smooth'), augment=yes)
    """
    capacity = count("capacity", capacity, least=3)
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share!r}")
    waves = 2 * np.pi * np.array([[1, 0], [0, 1], [1, 1], [1, -1]]).T
    noise = 1 - share

    def columns(points: np.ndarray) -> np.ndarray:
        """Return the eight waves at points (n, capacity, 2), with Σ squares = 1: (n, capacity, 8)."""
        phase = points @ waves
        return 0.5 * np.concatenate([np.cos(phase), np.sin(phase)], axis=2)

    def place(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        mask = np.arange(capacity) < rng.integers(capacity // 3, capacity + 1, (n, 1))
        return rng.random((n, capacity, 2), dtype=np.float32), mask

    def marked(points: np.ndarray, marks: np.ndarray, mask: np.ndarray) -> Data:
        x = np.concatenate([points, marks[:, :, None].astype(np.float32)], axis=2)
        return {"x": x * mask[:, :, None], "mask": mask}

    def independent(rng: np.random.Generator, n: int) -> Data:
        points, mask = place(rng, n)
        return marked(points, rng.standard_normal((n, capacity)), mask)

    def smooth(rng: np.random.Generator, coefficients: np.ndarray) -> Data:
        n = len(coefficients)
        points, mask = place(rng, n)
        signal = (columns(points) @ coefficients[:, :, None])[..., 0]
        marks = np.sqrt(share) * signal + np.sqrt(noise) * rng.standard_normal((n, capacity))
        return marked(points, marks, mask)

    def log_evidence(x: Data) -> np.ndarray:
        values, mask = masked_rows(x, (capacity, 3))
        if np.any((values[..., :2] < 0) | (values[..., :2] > 1)):
            raise ValueError("points must lie in the unit square")
        return in_chunks(_log_evidence, np.concatenate([values, mask[..., None]], axis=2), 2_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        marks, mask = x[..., 2], x[..., 3]
        number, squares = mask.sum(axis=1), (marks**2).sum(axis=1)
        design = columns(x[..., :2]) * mask[:, :, None]
        gram = np.eye(8) + share / noise * design.transpose(0, 2, 1) @ design
        product = (marks[:, None, :] @ design)[:, 0]
        explained = share / noise * (product * np.linalg.solve(gram, product[:, :, None])[..., 0]).sum(axis=1)
        log_volume = np.linalg.slogdet(gram)[1] + number * np.log(noise)
        constant = -0.5 * number * np.log(2 * np.pi)
        varying = constant - 0.5 * (log_volume + (squares - explained) / noise)
        return np.stack([constant - 0.5 * squares, varying], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = named_arrays(x)
        points, marks = x["x"][..., :2], x["x"][..., 2:]
        points = np.where(rng.random((len(points), 1, 2)) < 0.5, 1 - points, points)
        points = np.where(rng.random((len(points), 1, 1)) < 0.5, points[..., ::-1], points)
        moved = np.concatenate([points, flip_signs(rng, marks)], axis=2)
        return {**x, "x": moved * x["mask"][:, :, None]}

    return Problem(
        name="marked_points",
        models=(
            Model("independent", independent),
            Model("smooth", smooth, prior=lambda rng, n: rng.standard_normal((n, 8))),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )
