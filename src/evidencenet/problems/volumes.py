"""Volumes: fields on a grid in three dimensions."""

from itertools import permutations

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, flip_signs, in_chunks, positive, rows
from evidencenet.problems._quadrature import log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def stretched_field(
    side: int = 6, *, length: float = 0.8, stretch: float = 1.35, noise: float = 0.5
) -> Problem:
    """Test whether the structures in a volume are stretched along one of its axes.

    The volume is a periodic Gaussian field of unit variance plus white noise N(0, noise²). The field has the
    power spectrum P(k) ∝ exp(−Σ_i k_i² ℓ_i²). M0: ℓ_i = length pixels along all three axes. M1: one axis,
    each with probability ⅓, has ℓ_i = stretch · length, and the other two have ℓ_i = length/√stretch. The
    Fourier modes are independent and have variance P(k) + noise². For a given axis the log evidence is
    therefore a sum over the modes. The evidence of M1 is the mean over the three axes.

    log K does not change if the volume changes its sign, is shifted along an axis, or has its axes exchanged.

    Parameters
    ----------
    side
        Pixels on a side.
    length
        Correlation length in M0, in pixels.
    stretch
        Ratio of the long correlation length in M1 to `length`.
    noise
        Standard deviation of the white noise.

    Returns
    -------
    problem
        Data of shape (n, side, side, side), float32. Parameters in M1: the long axis, 0, 1 or 2, of shape
        (n,).

    Examples
    --------
    >>> stretched_field()
    Problem('stretched_field', models=('round', 'stretched'), augment=yes)
    """
    side = count("side", side, least=2)
    length, stretch, noise = (
        positive("length", length),
        positive("stretch", stretch),
        positive("noise", noise),
    )
    pixels = side**3
    short, long = length / np.sqrt(stretch), length * stretch
    # The lengths along the three axes: the first row is M0, the others are M1 with each long axis.
    lengths = np.vstack([np.full(3, length), np.where(np.eye(3) > 0, long, short)])
    wave = 2 * np.pi * np.fft.fftfreq(side)
    along_axis = np.exp(-((lengths[:, :, None] * wave) ** 2))
    along_axis /= along_axis.mean(axis=2, keepdims=True)
    powers = np.einsum("ai,aj,ak->aijk", *along_axis.transpose(1, 0, 2))
    # The power is a product of one factor for each axis. To get a field with this power, white noise is
    # multiplied along each axis by the circulant matrix whose eigenvalues are the square roots of the factor.
    lag = np.subtract.outer(np.arange(side), np.arange(side)) % side
    colours = np.fft.ifft(np.sqrt(along_axis), axis=2).real[:, :, lag].astype(np.float32)

    def sample(rng: np.random.Generator, setting: np.ndarray) -> np.ndarray:
        n = len(setting)
        field = rng.standard_normal((n, side, side, side), dtype=np.float32)
        for axis in range(3):
            field = colours[setting, axis] @ field.reshape(n, side, side**2)
            # The next axis becomes the first. After three rounds the axes are in their old order.
            field = field.reshape(n, side, side, side).transpose(0, 2, 3, 1)
        return field + np.float32(noise) * rng.standard_normal(field.shape, dtype=np.float32)

    variances = powers.reshape(4, pixels) + noise**2
    log_volumes = np.log(2 * np.pi * variances).sum(axis=1)

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (side, side, side)), 5_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        modes = np.abs(np.fft.fftn(x, axes=(1, 2, 3), norm="ortho")) ** 2
        log_density = -0.5 * (modes.reshape(len(x), pixels) @ (1 / variances).T + log_volumes)
        return np.stack([log_density[:, 0], log_integral(log_density[:, 1:], -np.log(3))], axis=1)

    orders = np.array(list(permutations(range(3))))

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        pick = rng.integers(0, len(orders), len(x))
        shift = rng.integers(0, side, (len(x), 3))
        moved = np.empty_like(x)
        for i, order in enumerate(orders):
            moved[pick == i] = x[pick == i].transpose(0, *(1 + order))
        index = (np.arange(side) + shift[:, :, None]) % side
        down, across, along = index[:, 0, :, None, None], index[:, 1, None, :, None], index[:, 2, None, None]
        return flip_signs(rng, moved[np.arange(len(x))[:, None, None, None], down, across, along])

    return Problem(
        name="stretched_field",
        models=(
            Model("round", lambda rng, n: sample(rng, np.zeros(n, dtype=np.int64))),
            Model(
                "stretched",
                lambda rng, axis: sample(rng, 1 + axis),
                prior=lambda rng, n: rng.integers(0, 3, n),
            ),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )
