"""What is compiled of training: one chunk of minibatches, and the log-odds of held-out draws."""

from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from evidencenet import networks
from evidencenet.batches import Chunk

# A batch of more arithmetic than this, bytes moved included, is divided, but not into parts of fewer draws:
# found by timing convolutions and sets of 50 to 500 places.
_CACHED = 4e8
_SMALLEST_PART = 16


class Loss(Protocol):
    """What training needs of a loss."""

    def value(self, raw: Any, label: Any, offset: Any = None) -> jax.Array:
        """Loss per draw."""

    def log_odds(self, raw: Any, offset: Any = None) -> jax.Array:
        """Log posterior odds, of which the held-out score is made."""


class Member(NamedTuple):
    """All that changes while a member trains; the average of its weights is what it is judged by."""

    weights: Any
    state: Any
    optimiser: Any
    average: Any
    step: Any


def train_chunk(
    fixed: Any,
    loss: Loss,
    optimiser: optax.GradientTransformation,
    horizon: float,
    parts: int,
    member: Member,
    chunk: Chunk,
) -> tuple[Member, jax.Array]:
    """Train on the minibatches (steps, batch, ...) of a chunk, one after the other; return the mean loss too.

    Weights are averaged over the last `horizon` steps. Each batch is taken in so many `parts`.
    """

    def objective(weights: Any, state: Any, batch: Chunk) -> tuple[jax.Array, Any]:
        raw, state = networks.apply(eqx.combine(weights, fixed), state, batch.x)
        return jnp.mean(batch.weight * loss.value(raw, batch.label, batch.offset)), state

    slope = jax.value_and_grad(objective, has_aux=True)

    def step(member: Member, batch: Chunk) -> tuple[Member, jax.Array]:
        (value, state), gradient = in_parts(slope, parts, member.weights, member.state, batch)
        updates, optimiser_state = optimiser.update(gradient, member.optimiser, member.weights)
        weights = optax.apply_updates(member.weights, updates)
        # At first over the last third of the steps, so that the initial weights are soon forgotten.
        share = jnp.maximum(3 / (3 + member.step), 1 / max(horizon, 1.0))
        average = jax.tree.map(lambda mean, new: mean + share * (new - mean), member.average, weights)
        return Member(weights, state, optimiser_state, average, member.step + 1), value

    member, values = jax.lax.scan(step, member, chunk)
    return member, jnp.mean(values)


def in_parts(slope: Any, parts: int, weights: Any, state: Any, batch: Chunk) -> Any:
    """Value and gradient of a batch, as the mean of those of its parts."""
    if parts == 1:
        return slope(weights, state, batch)
    divided = jax.tree.map(lambda leaf: leaf.reshape(parts, -1, *leaf.shape[1:]), batch)

    def add(total: Any, part: Chunk) -> tuple[Any, None]:
        (value, _), gradient = slope(weights, state, part)
        return jax.tree.map(jnp.add, total, (value, gradient)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), weights))
    total, _ = jax.lax.scan(add, nothing, divided)
    value, gradient = jax.tree.map(lambda leaf: leaf / parts, total)
    return (value, state), gradient


def parts_of(architecture: networks.Architecture, chunk: Chunk, outputs: int, state: Any) -> int:
    """Say into how many parts a batch is divided so that what is computed of one stays in the cache.

    With batch normalisation it is one.
    """
    batch = chunk.label.shape[1]
    example = jax.tree.map(lambda leaf: np.zeros(leaf.shape[2:], leaf.dtype), chunk.x)
    if jax.tree.leaves(state):
        return 1
    most = _CACHED / max(networks.operations(architecture, example, outputs), 1.0)
    sizes = [size for size in range(_SMALLEST_PART, batch) if batch % size == 0 and size <= most]
    return batch // max(sizes) if sizes and most < batch else 1


def judge_chunk(fixed: Any, loss: Loss, gain: Any, weights: Any, state: Any, held_out: Chunk) -> jax.Array:
    """Log posterior odds of each held-out draw, (blocks, rows, K)."""
    network = eqx.nn.inference_mode(eqx.combine(weights, fixed))

    def block(part: Chunk) -> jax.Array:
        return loss.log_odds(gain * networks.apply(network, state, part.x)[0], part.offset)

    return jax.lax.map(block, held_out)
