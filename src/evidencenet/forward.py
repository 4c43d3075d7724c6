"""Run an ensemble of networks on many draws, block by block."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses, networks
from evidencenet.data import Data, arrays_of, map_arrays

# Few observations are padded to the small block, many are cut into large ones: two compiled sizes, and memory
# that does not grow with the number of observations.
_BLOCKS = (64, 8192)
# Four members of the widest architecture here, with its default width.
_MOST_UNITS = 256


def log_odds(members: Any, states: Any, gain: np.ndarray, loss: losses.Loss, x: Data) -> np.ndarray:
    """Return what each member adds to the log-odds of scaled draws `x`, (members, n, K).

    Parameters
    ----------
    members, states
        Networks and their states, every leaf with a leading axis of members.
    gain
        By which raw outputs are multiplied, shape (members,).
    loss
        How to read raw outputs.
    x
        Scaled draws, each array (n, ...).
    """
    factor = gain.astype(np.float32)
    return _in_blocks(lambda block: _log_odds(members, states, factor, loss, block), x)


def hidden(members: Any, states: Any, gain: np.ndarray, x: Data) -> np.ndarray:
    """Return the last hidden layers for scaled draws `x`, those of all members side by side, (n, units).

    Where members differ, though they agree on the draws, the observation is not like these: so all of them,
    up to a number of units whose covariance is quickly found and takes little room. Members of gain 0, which
    have learned nothing, are left out, unless that holds for all.
    """
    asked = gain != 0 if np.any(gain) else np.ones(len(gain), dtype=bool)
    layers = _in_blocks(lambda block: _hidden(members, states, block), x)
    return np.concatenate(list(layers[asked]), axis=1)[:, :_MOST_UNITS]


def _in_blocks(function: Callable[[Any], jax.Array], x: Data) -> np.ndarray:
    """Apply a function to all draws, whose second axis counts them."""
    n = len(arrays_of(x)[0])
    size = _BLOCKS[0] if n <= _BLOCKS[0] else _BLOCKS[1]
    parts = []
    for start in range(0, max(n, 1), size):
        block = map_arrays(lambda array, start=start: _padded(array[start : start + size], size), x)
        parts.append(np.asarray(function(block))[:, : n - start])
    return np.concatenate(parts, axis=1)


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


@eqx.filter_jit
def _log_odds(network: Any, states: Any, gain: Any, loss: losses.Loss, x: Any) -> jax.Array:
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)

    def member(parts: Any) -> jax.Array:
        mine, state, factor = parts
        one = eqx.nn.inference_mode(eqx.combine(mine, fixed))
        return loss.log_odds(factor * networks.apply(one, state, x)[0])

    return jax.lax.map(member, (weights, states, gain))


@eqx.filter_jit
def _hidden(network: Any, states: Any, x: Any) -> jax.Array:
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)

    def member(parts: Any) -> jax.Array:
        mine, state = parts
        one = eqx.nn.inference_mode(eqx.combine(mine, fixed))
        return networks.hidden(one, state, x)

    return jax.lax.map(member, (weights, states))
