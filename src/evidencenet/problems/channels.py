"""Channels: several series side by side, as from several sensors."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, flip_signs, in_chunks, rows, shuffle_along
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def coupled_channels(
    channels: int = 3, length: int = 40, *, strongest: float = 0.4, nodes: int = 40
) -> Problem:
    """Test whether the channels of a recording share a part of their signal.

    Each channel is a stationary autoregressive series of variance 1, with correlation φ^t at lag t. φ ~
    U(0.2, 0.9) is the same for all channels. M0: the channels are independent. M1: two different channels
    have correlation ρ φ^t at lag t, with ρ ~ U(0, strongest).

    The covariance is the product of a matrix in time and a matrix between channels. The sum of the channels,
    divided by √channels, has variance 1 + (channels − 1) ρ. Every direction orthogonal to it has variance 1 −
    ρ. At given φ and ρ the log evidence is a sum over these directions. The mean over both is computed with
    Gauss–Legendre quadrature.

    log K does not change if channels are exchanged, if time is reversed, or if all values change their sign.

    Parameters
    ----------
    channels
        Number of channels, at least 2.
    length
        Number of times.
    strongest
        The largest correlation between channels, below 1.
    nodes
        Quadrature nodes for each of φ and ρ.

    Returns
    -------
    problem
        Data of shape (n, channels, length), float32: channels first. Parameters ``phi``, and ``rho`` in M1.

    Examples
    --------
    >>> coupled_channels()
    Problem('coupled_channels', models=('independent', 'coupled'), augment=yes)
    """
    channels, length = count("channels", channels, least=2), count("length", length, least=2)
    nodes = count("nodes", nodes, least=2)
    if not 0 < strongest < 1:
        raise ValueError(f"strongest must lie between 0 and 1, got {strongest!r}")
    low, high = 0.2, 0.9
    phi, phi_weights = legendre(low, high, nodes)
    rho, rho_weights = legendre(0.0, strongest, nodes)
    phi_weights = phi_weights - np.log(high - low)
    log_weights = (phi_weights[:, None] + (rho_weights - np.log(strongest))).ravel()

    def sample(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["phi"])
        x = rng.standard_normal((n, channels, length))
        if "rho" in theta:
            shared = rng.standard_normal((n, 1, length))
            part = theta["rho"][:, None, None]
            x = np.sqrt(1 - part) * x + np.sqrt(part) * shared
        phi = theta["phi"][:, None]
        step = np.sqrt(1 - phi**2)
        for t in range(1, length):
            x[:, :, t] = phi * x[:, :, t - 1] + step * x[:, :, t]
        return x.astype(np.float32)

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (channels, length)), 1_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        common = x.sum(axis=1, keepdims=True) / np.sqrt(channels)
        total = _squares(x, phi).sum(axis=1)
        shared = _squares(common, phi)[:, 0]
        log_volume = (length - 1) * np.log1p(-(phi**2)) + length * np.log(2 * np.pi)
        independent = -0.5 * (total + channels * log_volume)
        large, small = 1 + (channels - 1) * rho, 1 - rho
        # The orthogonal directions together have the sum of squares that the common one leaves.
        squares = shared[:, :, None] / large + (total - shared)[:, :, None] / small
        log_scale = length * (np.log(large) + (channels - 1) * np.log(small))
        coupled = -0.5 * (squares + log_scale + channels * log_volume[:, None])
        return np.stack(
            [
                log_integral(independent, phi_weights),
                log_integral(coupled.reshape(len(x), nodes**2), log_weights),
            ],
            axis=1,
        )

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = shuffle_along(rng, array(x), 1)
        return flip_signs(rng, np.where(rng.random((len(x), 1, 1)) < 0.5, x[:, :, ::-1], x))

    def independent_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"phi": rng.uniform(low, high, n)}

    def coupled_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"phi": rng.uniform(low, high, n), "rho": rng.uniform(0.0, strongest, n)}

    return Problem(
        name="coupled_channels",
        models=(
            Model("independent", sample, prior=independent_prior),
            Model("coupled", sample, prior=coupled_prior),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def _squares(x: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Return xᵀC⁻¹x of each series, for the correlations φ^|t − s|: shape (n, channels, len(phi))."""
    total = (x**2).sum(axis=2)[..., None]
    inner = (x[:, :, 1:-1] ** 2).sum(axis=2)[..., None]
    lagged = (x[:, :, 1:] * x[:, :, :-1]).sum(axis=2)[..., None]
    return (total - 2 * phi * lagged + phi**2 * inner) / (1 - phi**2)
