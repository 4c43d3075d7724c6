"""Network architectures. A network maps one x to raw outputs; batching and ensembles come from outside.

An architecture is anything callable as ``architecture(x, outputs, key=key)`` that returns an Equinox module,
where `x` is one scaled draw (an array, or a dict of arrays) of which only the shape matters. The module is
called as ``module(x)`` and returns shape (outputs,). If it holds Equinox state (batch normalisation), it is
called as ``module(x, state)``, inside a ``vmap`` over the axis ``"batch"``, and returns the new state too.
"""

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Architecture = Callable[..., eqx.Module]

AXIS = "batch"
"""Name of the batch axis, over which batch normalisation averages."""


@dataclass(frozen=True)
class Dense:
    """The dense network of Jeffrey & Wandelt (2023): a wide layer, then narrow ones with one skip.

    Six dense layers with LeakyReLU(0.1). Arrays of any shape, and dicts of arrays, are flattened.

    Parameters
    ----------
    width
        Units of the first layer; None is the paper's int(1.1·d) + 20 for d numbers in a draw.
    hidden
        Units of the four layers that follow.
    norm
        Batch normalisation after the first four layers, as in the paper. Off by default: training is half
        as fast again without it.

    Examples
    --------
    >>> network = Dense()(jnp.zeros(20), 1, key=jax.random.key(0))
    >>> network(jnp.ones(20)).shape
    (1,)
    """

    width: int | None = None
    hidden: int = 16
    norm: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "hidden"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"Dense: {name} = {size}; wanted at least 1 unit.")

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        size = flatten(x).size
        width = int(1.1 * size) + 20 if self.width is None else self.width
        return _DenseNetwork(size, width, self.hidden, outputs, norm=self.norm, key=key)


def to_dict(architecture: Architecture) -> dict[str, Any]:
    """Describe an architecture for a file; a user's own is only marked as such."""
    if isinstance(architecture, Dense):
        return {"name": "Dense", **asdict(architecture)}
    return {"name": getattr(architecture, "__name__", type(architecture).__name__), "custom": True}


def from_dict(about: dict[str, Any]) -> Architecture:
    """Rebuild what `to_dict` described."""
    if about.get("custom"):
        raise ValueError(
            f"this network was built by your own function {about['name']!r}, which the file does not hold. "
            "Pass it again: load(path, network=...)."
        )
    return Dense(**{name: value for name, value in about.items() if name != "name"})


def flatten(x: Any) -> jax.Array:
    """All numbers of one draw in a row; masks count as 0 and 1."""
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(x)])


def initialise(
    architecture: Architecture, x: Any, outputs: int, *, key: jax.Array
) -> tuple[eqx.Module, eqx.nn.State]:
    """Build a network and its state (without leaves, if it has none)."""
    return eqx.nn.make_with_state(architecture)(x, outputs, key=key)


def apply(network: Any, state: eqx.nn.State, x: Any) -> tuple[jax.Array, eqx.nn.State]:
    """Raw outputs (n, outputs) and new state for a batch `x`."""
    if not jax.tree.leaves(state):
        return jax.vmap(network)(x), state
    return jax.vmap(network, in_axes=(0, None), out_axes=(0, None), axis_name=AXIS)(x, state)


class _Linear(eqx.Module):
    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        # Glorot's uniform law, as in the paper's code; drawn by NumPy, since JAX would compile for seconds.
        limit = (6 / (inputs + outputs)) ** 0.5
        self.weight = rng.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        # In this order a batch multiplies from the left, without a transpose.
        return x @ self.weight + self.bias


class _DenseNetwork(eqx.Module):
    layers: list[_Linear]
    norms: list[eqx.nn.BatchNorm] | None

    def __init__(
        self, inputs: int, width: int, hidden: int, outputs: int, *, norm: bool, key: jax.Array
    ) -> None:
        sizes = (inputs, width, hidden, hidden, hidden, hidden, outputs)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        self.layers = [_Linear(a, b, rng) for a, b in itertools.pairwise(sizes)]
        self.norms = (
            [eqx.nn.BatchNorm(n, AXIS, eps=1e-3, momentum=0.99, mode="batch") for n in sizes[1:5]]
            if norm
            else None
        )

    def __call__(self, x: Any, state: Any = None) -> Any:
        def norm(i: int, h: jax.Array) -> jax.Array:
            nonlocal state
            if self.norms is None:
                return h
            h, state = self.norms[i](h, state)
            return h

        h = norm(0, _act(self.layers[0](flatten(x))))
        skip = norm(1, _act(self.layers[1](h)))
        h = norm(2, _act(self.layers[2](skip)))
        h = norm(3, _act(self.layers[3](h)) + skip)
        h = _act(self.layers[4](h))
        raw = 0.1 * self.layers[5](h)
        return raw if self.norms is None else (raw, state)


def _act(x: jax.Array) -> jax.Array:
    return jax.nn.leaky_relu(x, 0.1)
