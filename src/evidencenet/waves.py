"""Sines and cosines of numbers as inputs of a network: a smooth one hardly learns what oscillates."""

from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

# Sines begin with periods between twelve and a third of a standard deviation.
_FREQUENCIES = (0.5, 20.0)
# Polynomials of r² for sin(2πr)/r and cos(2πr), r up to half a turn, by least squares at Chebyshev's nodes.
_NODES = 0.25 + 0.25 * np.cos(np.pi * (np.arange(400) + 0.5) / 400)
_SINE = np.polyfit(np.square(_NODES), np.sin(2 * np.pi * _NODES) / _NODES, 5).astype(np.float32)
_COSINE = np.polyfit(np.square(_NODES), np.cos(2 * np.pi * _NODES), 6).astype(np.float32)


@jax.custom_jvp
def sine_and_cosine(phase: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sine and cosine to within 1e-5, for phases of thousands at most.

    XLA's own take 25 times as long on a CPU, and most of the time of a network of waves.
    """
    turns = phase * np.float32(0.5 / np.pi)
    part = turns - jnp.round(turns)
    square = part * part
    sine, cosine = (
        reduce(lambda total, factor: total * square + factor, factors) for factors in (_SINE, _COSINE)
    )
    return part * sine, cosine


@sine_and_cosine.defjvp
def _slope(primals: Any, tangents: Any) -> Any:
    sine, cosine = sine_and_cosine(*primals)
    return (sine, cosine), (cosine * tangents[0], -sine * tangents[0])


class Waves(eqx.Module):
    """Numbers (..., C) beside sines and cosines of them, of frequencies that are learned.

    A network of smooth activations is slow to learn what changes many times over the spread of the data; with
    sines among its inputs it need not.
    """

    frequency: Any

    def __init__(self, channels: int, number: int) -> None:
        first = np.geomspace(*_FREQUENCIES, number).astype(np.float32)
        # One vector for all channels, since matrices are subject to weight decay.
        self.frequency = np.tile(first, channels)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Give (..., C · (1 + 2 · number))."""
        phase = jnp.repeat(x, self.frequency.size // x.shape[-1], axis=-1) * self.frequency
        return jnp.concatenate([x, *sine_and_cosine(phase)], axis=-1)
