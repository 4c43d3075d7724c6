"""Irregular series: values at times that differ from one data set to the next."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import boolean, count, in_chunks, named_arrays, positive, rows, signs
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model

# The gaps make aliases of the frequency, as the seasons do for a star that cannot be seen all year.
SEASONS = 5
OBSERVABLE = 0.6

# A dip is whole up to the first distance from its centre, and it is over at the second.
FLOOR = 0.05
EDGE = 0.075


def light_curve(
    capacity: int = 40, *, cycles: tuple[float, float] = (2.0, 4.0), amplitude: float = 0.6, nodes: int = 56
) -> Problem:
    """Look for a periodic signal in the brightness of a star, seen at irregular times with gaps.

    The number m of times is uniform on capacity/2..capacity. The times lie between 0 and 1, in increasing
    order, and are uniform over five seasons: only the first 60% of each fifth can be observed. M0: y_i = c +
    n_i, with an unknown level c ~ N(0, 1) and noise n_i ~ N(0, 1). M1: y_i = c + a cos(2π f t_i) + b sin(2π f
    t_i) + n_i, with a, b ~ N(0, amplitude²) and f ~ U(cycles).

    At given f the evidence is normal. After the integral over c, the product of two vectors u and v is ⟨u, v⟩
    = Σ u_i v_i − Σ u_i Σ v_i / (1 + m), and the integral over a and b needs a 2 × 2 matrix of these products.
    The mean over f is computed with Gauss–Legendre quadrature. The evidence is that of y, given the times.
    The distribution of the times is the same in both models, so it cancels and is left out.

    log K does not change if y changes its sign.

    Parameters
    ----------
    capacity
        The largest number of times.
    cycles
        Bounds of f: how many cycles the signal has between times 0 and 1.
    amplitude
        Standard deviation of a and of b, in units of the noise.
    nodes
        Quadrature nodes for f.

    Returns
    -------
    problem
        Data: dict with ``t`` and ``y``, each (n, capacity), float32, zero after the last time, and ``mask``
        (n, capacity), bool; parameters ``level``, and ``a``, ``b`` and ``f`` in M1.

    Examples
    --------
    >>> light_curve()
    Problem('light_curve', models=('constant', 'periodic'), augment=yes)
    """
    capacity, nodes = count("capacity", capacity, least=2), count("nodes", nodes, least=2)
    amplitude = positive("amplitude", amplitude)
    if len(cycles) != 2 or not 0 < cycles[0] < cycles[1]:
        raise ValueError(f"cycles must be two numbers above 0, the smaller first, got {cycles!r}")
    low, high = cycles
    frequencies, log_weights = legendre(low, high, nodes)
    log_weights = log_weights - np.log(high - low)

    def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> Data:
        n = len(theta["level"])
        mask = np.arange(capacity) < rng.integers((capacity + 1) // 2, capacity + 1, (n, 1))
        place = SEASONS * rng.random((n, capacity))
        season = np.floor(place)
        times = (season + OBSERVABLE * (place - season)) / SEASONS
        # Places without a time are sorted to the end, where they are set to zero.
        times = np.sort(np.where(mask, times, np.inf), axis=1)
        times = np.where(mask, times, 0.0).astype(np.float32)
        y = theta["level"][:, None] + rng.standard_normal((n, capacity))
        if "f" in theta:
            phase = 2 * np.pi * theta["f"][:, None] * times
            y += theta["a"][:, None] * np.cos(phase) + theta["b"][:, None] * np.sin(phase)
        return {"t": times, "y": (y * mask).astype(np.float32), "mask": mask}

    def constant_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"level": rng.standard_normal(n)}

    def periodic_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        level = rng.standard_normal(n)
        waves = amplitude * rng.standard_normal((n, 2))
        return {"level": level, "a": waves[:, 0], "b": waves[:, 1], "f": rng.uniform(low, high, n)}

    def log_evidence(x: Data) -> np.ndarray:
        x = named_arrays(x, ("t", "y", "mask"))
        times, y = rows(x["t"], (capacity,)), rows(x["y"], (capacity,))
        if times.shape != y.shape:
            raise ValueError(f"t and y must have the same shape, got {times.shape} and {y.shape}")
        mask = boolean(x["mask"], times.shape)
        return in_chunks(_log_evidence, np.stack([times, np.where(mask, y, 0.0), mask], axis=1), 200)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        times, y, mask = x.transpose(1, 0, 2)
        number = mask.sum(axis=1)[:, None]
        total = y.sum(axis=1)
        squares = (y**2).sum(axis=1) - total**2 / (1 + number[:, 0])
        constant = -0.5 * (squares + np.log1p(number[:, 0]) + number[:, 0] * np.log(2 * np.pi))
        phase = 2 * np.pi * frequencies[:, None] * times[:, None, :]
        cosine, sine = np.cos(phase) * mask[:, None, :], np.sin(phase) * mask[:, None, :]
        sums = cosine.sum(axis=2), sine.sum(axis=2)

        def product(u: np.ndarray, v: np.ndarray, sum_u: np.ndarray, sum_v: np.ndarray) -> np.ndarray:
            return np.einsum("ijk,ijk->ij", u, v) - sum_u * sum_v / (1 + number)

        cc = 1 + amplitude**2 * product(cosine, cosine, sums[0], sums[0])
        ss = 1 + amplitude**2 * product(sine, sine, sums[1], sums[1])
        cs = amplitude**2 * product(cosine, sine, *sums)
        cy = amplitude * ((cosine @ y[:, :, None])[..., 0] - sums[0] * total[:, None] / (1 + number))
        sy = amplitude * ((sine @ y[:, :, None])[..., 0] - sums[1] * total[:, None] / (1 + number))
        determinant = cc * ss - cs**2
        gain = 0.5 * (ss * cy**2 - 2 * cs * cy * sy + cc * sy**2) / determinant - 0.5 * np.log(determinant)
        return np.stack([constant, constant + log_integral(gain, log_weights)], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = named_arrays(x, ("t", "y", "mask"))
        return {**x, "y": x["y"] * signs(rng, (len(x["y"]), 1)).astype(x["y"].dtype)}

    return Problem(
        name="light_curve",
        models=(
            Model("constant", observe, prior=constant_prior),
            Model("periodic", observe, prior=periodic_prior),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def dip(
    capacity: int = 40,
    places: int = 20,
    *,
    level: float = 0.6,
    depth: float = 1.9,
    spread: float = 0.3,
    scatter: float = 0.35,
) -> Problem:
    """Look for a dip in the brightness of a star, such as a planet in front of it makes.

    The number m of times is uniform on capacity/2..capacity. The times are uniform between 0 and 1, in
    increasing order. Each value y_i has its own standard error s_i, with log s_i ~ N(0, scatter²). M0: y_i =
    c + s_i n_i, with an unknown level c ~ N(0, level²) and noise n_i ~ N(0, 1). M1: y_i = c − d h(t_i − t_0)
    + s_i n_i, with a depth d ~ N(depth, spread²). The centre t_0 is one of (j + ½)/places, j = 0..places−1,
    all equally likely. The shape h(u) is 1 for |u| ≤ 0.05 and falls in a straight line to 0 at |u| = 0.075.

    At given t_0 the evidence is normal. With weights w_i = 1/s_i², the product of two vectors u and v after
    the integral over c is ⟨u, v⟩ = Σ w_i u_i v_i − Σ w_i u_i Σ w_i v_i / (1/level² + Σ w_i). The integral
    over d needs ⟨h, h⟩ and ⟨h, y⟩. The mean over t_0 is a sum. The evidence is that of y, given the times and
    the errors. Their distribution is the same in both models, so it cancels and is left out.

    log K does not change if the times are mirrored, t → 1 − t. The network has to learn this: there is no
    augmentation.

    Parameters
    ----------
    capacity
        The largest number of times.
    places
        Number of places where the centre of the dip can be.
    level
        Standard deviation of c, in units of the median error.
    depth
        Mean of the depth d, in the same units.
    spread
        Standard deviation of the depth d, in the same units.
    scatter
        Standard deviation of the logarithm of the errors.

    Returns
    -------
    problem
        Data: dict with ``t``, ``y`` and ``err``, each (n, capacity), float32, zero after the last time, and
        ``mask`` (n, capacity), bool; parameters ``level``, and ``depth`` and ``place`` in M1.

    Examples
    --------
    >>> dip()
    Problem('dip', models=('constant', 'dip'), augment=no)
    """
    capacity, places = count("capacity", capacity, least=2), count("places", places)
    level, depth = positive("level", level), positive("depth", depth)
    spread, scatter = positive("spread", spread), positive("scatter", scatter)
    centres = (np.arange(places) + 0.5) / places

    def shape(distance: np.ndarray) -> np.ndarray:
        return np.clip((EDGE - np.abs(distance)) / (EDGE - FLOOR), 0.0, 1.0)

    def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> Data:
        n = len(theta["level"])
        mask = np.arange(capacity) < rng.integers((capacity + 1) // 2, capacity + 1, (n, 1))
        times = rng.random((n, capacity), dtype=np.float32)
        # Entries without a time are sorted to the end, where they are set to zero.
        times = np.sort(np.where(mask, times, np.float32(np.inf)), axis=1)
        times = np.where(mask, times, np.float32(0))
        errors = np.exp(np.float32(scatter) * rng.standard_normal((n, capacity), dtype=np.float32))
        y = theta["level"][:, None] + errors * rng.standard_normal((n, capacity), dtype=np.float32)
        if "depth" in theta:
            y -= theta["depth"][:, None] * shape(times - theta["place"][:, None])
        return {"t": times, "y": (y * mask).astype(np.float32), "err": errors * mask, "mask": mask}

    def constant_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"level": level * rng.standard_normal(n)}

    def dip_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {
            "level": level * rng.standard_normal(n),
            "depth": depth + spread * rng.standard_normal(n),
            "place": centres[rng.integers(0, places, n)],
        }

    def log_evidence(x: Data) -> np.ndarray:
        x = named_arrays(x, ("t", "y", "err", "mask"))
        times, y, errors = (rows(x[key], (capacity,)) for key in ("t", "y", "err"))
        if not times.shape == y.shape == errors.shape:
            raise ValueError(
                f"t, y and err must have the same shape, got {times.shape}, {y.shape} and {errors.shape}"
            )
        mask = boolean(x["mask"], times.shape)
        if not np.all(errors[mask] > 0):
            raise ValueError("every standard error must be above 0")
        # Entries without a time get the weight zero, and the error 1, whose logarithm is zero.
        y, errors = np.where(mask, y, 0.0), np.where(mask, errors, 1.0)
        return in_chunks(_log_evidence, np.stack([times, y, errors, mask], axis=1), 200)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        times, y, errors, mask = x.transpose(1, 0, 2)
        weights = mask / errors**2
        weighted = np.stack([weights, weights * y], axis=2)
        sum_1, sum_y = weighted.sum(axis=1).T
        precision = 1 / level**2 + sum_1
        squares = (weights * y**2).sum(axis=1) - sum_y**2 / precision
        constant = -0.5 * (squares + np.log(level**2 * precision) + mask.sum(axis=1) * np.log(2 * np.pi))
        constant -= np.log(errors).sum(axis=1)
        h = shape(times[:, None, :] - centres[:, None])
        sum_h, sum_hy = (h @ weighted).transpose(2, 0, 1)
        hh = (h**2 @ weights[:, :, None])[..., 0] - sum_h**2 / precision[:, None]
        hy = sum_hy - sum_h * (sum_y / precision)[:, None]
        # log ∫ N(d; depth, spread²) exp(−d ⟨h, y⟩ − ½ d² ⟨h, h⟩) dd
        ratio = 1 + spread**2 * hh
        gain = (0.5 * spread**2 * hy**2 - depth * hy - 0.5 * depth**2 * hh) / ratio - 0.5 * np.log(ratio)
        return np.stack([constant, constant + log_integral(gain, -np.log(places))], axis=1)

    return Problem(
        name="dip",
        models=(Model("constant", observe, prior=constant_prior), Model("dip", observe, prior=dip_prior)),
        log_evidence=log_evidence,
    )
