"""Run an ensemble of networks on many draws, block by block."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses
from evidencenet._common.arrays import Data, arrays_of, map_arrays
from evidencenet._common.forked import check_not_forked
from evidencenet.networks.architectures import Architecture, slowness
from evidencenet.networks.modules import AXIS


def initialise(
    architecture: Architecture, x: Any, outputs: int, *, key: jax.Array
) -> tuple[eqx.Module, eqx.nn.State]:
    """Build a network and its state (without leaves, if it has none)."""
    check_not_forked()
    return eqx.nn.make_with_state(architecture)(x, outputs, key=key)


def operations(architecture: Architecture, x: Any, outputs: int) -> float:
    """Count the arithmetic to train on one draw like `x`, with what moving numbers costs in its terms.

    Three times that of a forward pass. A byte that is moved counts as half an operation: with that, dense
    networks and deep sets were found to do as many of these a second, and convolutions nearly so. Networks
    with loops, which are counted once, say themselves how much longer they take.
    """
    network, state = initialise(architecture, x, outputs, key=jax.random.key(0))
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)

    def forward(weights: Any, batch: Any) -> jax.Array:
        return apply(eqx.combine(weights, fixed), state, batch)[0]

    batch = jax.tree.map(lambda leaf: np.zeros((100, *leaf.shape), leaf.dtype), x)
    # Not every backend counts.
    counted = jax.jit(forward).lower(weights, batch).cost_analysis() or {}
    each = float(counted.get("flops", 0.0) + 0.5 * counted.get("bytes accessed", 0.0)) / 100
    return 3 * slowness(architecture) * each


def apply(network: Any, state: eqx.nn.State, x: Any) -> tuple[jax.Array, eqx.nn.State]:
    """Raw outputs (n, outputs) and new state for a batch `x`."""
    if not jax.tree.leaves(state):
        return jax.vmap(network)(x), state
    return jax.vmap(network, in_axes=(0, None), out_axes=(0, None), axis_name=AXIS)(x, state)


def last_hidden(network: Any, state: eqx.nn.State, x: Any) -> jax.Array:
    """Last hidden layer (n, units) for a batch `x`; of a user's own module without one, its raw outputs."""
    # A module of the user's may have a field of that name; only a method is what is meant.
    if not callable(getattr(type(network), "hidden", None)):
        return apply(network, state, x)[0]
    if not jax.tree.leaves(state):
        return jax.vmap(network.hidden)(x)
    last: jax.Array = jax.vmap(network.hidden, (0, None), (0, None), axis_name=AXIS)(x, state)[0]
    return last


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


def hidden_layers(members: Any, states: Any, gain: np.ndarray, x: Data) -> np.ndarray:
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
    check_not_forked()
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
        return loss.log_odds(factor * apply(one, state, x)[0])

    return jax.lax.map(member, (weights, states, gain))


@eqx.filter_jit
def _hidden(network: Any, states: Any, x: Any) -> jax.Array:
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)

    def member(parts: Any) -> jax.Array:
        mine, state = parts
        one = eqx.nn.inference_mode(eqx.combine(mine, fixed))
        return last_hidden(one, state, x)

    return jax.lax.map(member, (weights, states))
