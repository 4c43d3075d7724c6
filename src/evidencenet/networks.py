"""Network architectures. A network maps one x to raw outputs; batching and ensembles come from outside.

An architecture is anything callable as ``architecture(x, outputs, key=key)`` that returns an Equinox module,
where `x` is one scaled draw (an array, or a dict of arrays) of which only the shape matters. The module is
called as ``module(x)`` and returns shape (outputs,). If it holds Equinox state (batch normalisation), it is
called as ``module(x, state)``, inside a ``vmap`` over the axis ``"batch"``, and returns the new state too.
"""

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
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

    Six dense layers in all. Arrays of any shape, and dicts of arrays, are flattened.

    Parameters
    ----------
    width
        Units of the first layer; None is the paper's int(1.1·d) + 20 for d numbers in a draw.
    hidden
        Units of the four layers that follow.
    norm
        Batch normalisation after the first four layers and LeakyReLU(0.1), as in the paper; else no
        normalisation and a smooth activation, which trains faster and is more accurate.

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
        _check_sizes(self, width=self.width, hidden=self.hidden)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        size = flatten(x).size
        width = int(1.1 * size) + 20 if self.width is None else self.width
        return _DenseNetwork(size, width, self.hidden, outputs, norm=self.norm, key=key)


@dataclass(frozen=True)
class DeepSet:
    """Exchangeable elements: a network for each element, their mean, and a network of that.

    The elements of a draw are the rows of an array (N, C), the numbers of a vector, or the rows of all arrays
    of a dict; a boolean array of shape (N,) in the dict says which elements are there. The output does not
    depend on the order of the elements, nor on what stands where there is none.

    Parameters
    ----------
    width
        Units of both layers that every element goes through.
    hidden
        Units of both layers after the mean.

    Examples
    --------
    >>> draw = {"x": jnp.ones((5, 2)), "mask": jnp.arange(5) < 3}
    >>> DeepSet()(draw, 1, key=jax.random.key(0))(draw).shape
    (1,)
    """

    width: int = 32
    hidden: int = 64

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        values, _ = elements(x)
        rng = generator(key)
        return _SetNetwork(
            _Layers((values.shape[1], self.width, self.width), rng),
            _Layers((2 * self.width + 1, self.hidden, self.hidden), rng),
            _Linear(self.hidden, outputs, rng),
        )


@dataclass(frozen=True)
class Sequence:
    """Ordered data: convolutions along the first axis, then averages over all of it and over its parts.

    Works on arrays (T, C), on vectors as (T, 1), and on masked dicts as in `DeepSet`.

    Parameters
    ----------
    width
        Channels of each convolution.
    hidden
        Units of both layers after the averages.
    kernel
        Length of a convolution's window.
    depth
        Number of convolutions.
    parts
        The sequence is also averaged over so many parts, since the place may matter.
    """

    width: int = 16
    hidden: int = 64
    kernel: int = 5
    depth: int = 2
    parts: int = 4

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden, kernel=self.kernel, depth=self.depth)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        values, _ = elements(x)
        rng = generator(key)
        sizes = [values.shape[1] + 1, *[self.width] * self.depth]
        # Every layer after the first halves the number of places; a part without any has no average.
        places = -(-len(values) // 2 ** (self.depth - 1))
        parts = min(self.parts, places)
        pooled = (2 + parts) * self.width
        return _ConvolutionNetwork(
            [_Linear(self.kernel * a, b, rng) for a, b in itertools.pairwise(sizes)],
            _Layers((pooled, self.hidden, self.hidden), rng),
            _Linear(self.hidden, outputs, rng),
            window=(self.kernel,),
            parts=parts,
        )


@dataclass(frozen=True)
class Image:
    """Images (H, W, C): convolutions, then averages over the whole image.

    Parameters
    ----------
    width
        Channels of each convolution.
    hidden
        Units of both layers after the averages.
    kernel
        Side of a convolution's window.
    depth
        Number of convolutions.
    """

    width: int = 16
    hidden: int = 64
    kernel: int = 3
    depth: int = 2

    def __post_init__(self) -> None:
        _check_sizes(self, width=self.width, hidden=self.hidden, kernel=self.kernel, depth=self.depth)

    def __call__(self, x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        """Initialise a network for draws like `x`."""
        if isinstance(x, dict) or x.ndim != 3:
            raise ValueError("Image wants draws of shape (height, width, channels); use another network.")
        rng = generator(key)
        sizes = [x.shape[-1] + 1, *[self.width] * self.depth]
        return _ConvolutionNetwork(
            [_Linear(self.kernel**2 * a, b, rng) for a, b in itertools.pairwise(sizes)],
            _Layers((2 * self.width, self.hidden, self.hidden), rng),
            _Linear(self.hidden, outputs, rng),
            window=(self.kernel, self.kernel),
            parts=0,
        )


BUILT_IN = {kind.__name__: kind for kind in (Dense, DeepSet, Sequence, Image)}
# Architectures that treat all places alike, whose data must be scaled alike in all places too.
PLACE_BLIND = (DeepSet, Sequence, Image)


def to_dict(architecture: Architecture) -> dict[str, Any]:
    """Describe an architecture for a file; a user's own is only marked as such."""
    if type(architecture) in BUILT_IN.values():
        return {"name": type(architecture).__name__, **asdict(architecture)}  # type: ignore[call-overload]
    return {"name": getattr(architecture, "__name__", type(architecture).__name__), "custom": True}


def from_dict(about: dict[str, Any]) -> Architecture:
    """Rebuild what `to_dict` described."""
    if about.get("custom"):
        raise ValueError(
            f"this network was built by your own function {about['name']!r}, which the file does not hold. "
            "Pass it again: load(path, network=...)."
        )
    return BUILT_IN[about["name"]](**{name: value for name, value in about.items() if name != "name"})


def flatten(x: Any) -> jax.Array:
    """All numbers of one draw in a row; masks count as 0 and 1."""
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(x)])


def elements(x: Any) -> tuple[Any, Any]:
    """Return the elements of one draw, (N, C), and which of them are there, (N,) or None."""
    leaves = jax.tree.leaves(x)
    masks = [leaf for leaf in leaves if leaf.dtype == bool]
    values = [leaf for leaf in leaves if leaf.dtype != bool]
    if len(masks) > 1 or not values or any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError("wanted arrays of elements, and at most one boolean mask of shape (elements,).")
    number = values[0].shape[0]
    if any(leaf.shape[0] != number for leaf in values) or any(mask.shape != (number,) for mask in masks):
        shapes = [leaf.shape for leaf in leaves]
        raise ValueError(f"the arrays of a draw have shapes {shapes}; wanted the same number of elements.")
    rows = [leaf.reshape(number, -1) for leaf in values]
    return jnp.concatenate(rows, axis=1), masks[0] if masks else None


def _check_sizes(architecture: Any, **sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{type(architecture).__name__}: {name} = {size}; wanted at least 1 unit.")


def generator(key: jax.Array) -> np.random.Generator:
    """Make a NumPy generator from a key: JAX would compile for seconds to draw the first weights."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def initialise(
    architecture: Architecture, x: Any, outputs: int, *, key: jax.Array
) -> tuple[eqx.Module, eqx.nn.State]:
    """Build a network and its state (without leaves, if it has none)."""
    return eqx.nn.make_with_state(architecture)(x, outputs, key=key)


def operations(architecture: Architecture, x: Any, outputs: int) -> float:
    """Count the arithmetic to train on one draw like `x`: three times that of a forward pass."""
    network, state = initialise(architecture, x, outputs, key=jax.random.key(0))
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)

    def forward(weights: Any, batch: Any) -> jax.Array:
        return apply(eqx.combine(weights, fixed), state, batch)[0]

    batch = jax.tree.map(lambda leaf: np.zeros((100, *leaf.shape), leaf.dtype), x)
    counted = jax.jit(forward).lower(weights, batch).cost_analysis()
    # Not every backend counts.
    return 3 * float((counted or {}).get("flops", 0.0)) / 100


def apply(network: Any, state: eqx.nn.State, x: Any) -> tuple[jax.Array, eqx.nn.State]:
    """Raw outputs (n, outputs) and new state for a batch `x`."""
    if not jax.tree.leaves(state):
        return jax.vmap(network)(x), state
    return jax.vmap(network, in_axes=(0, None), out_axes=(0, None), axis_name=AXIS)(x, state)


class _Linear(eqx.Module):
    weight: Any
    bias: Any

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        # He's normal law, cut at two standard deviations, as in the paper's code.
        weight = rng.standard_normal((inputs, outputs))
        while (far := np.abs(weight) > 2).any():
            weight[far] = rng.standard_normal(far.sum())
        self.weight = (weight * np.sqrt(2 / inputs) / 0.8796).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        # In this order a batch multiplies from the left, without a transpose.
        return x @ self.weight + self.bias


class _Layers(eqx.Module):
    """Dense layers, each with its activation; all after the first add to their input if sizes allow."""

    layers: list[_Linear]

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.layers = [_Linear(a, b, rng) for a, b in itertools.pairwise(sizes)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            y = _act(layer(x))
            x = x + y if x.shape == y.shape else y
        return x


class _SetNetwork(eqx.Module):
    element: _Layers
    pooled: _Layers
    last: _Linear

    def __call__(self, x: Any) -> jax.Array:
        values, mask = elements(x)
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        h = self.element(values) * there[:, None]
        total = jnp.sum(h, axis=0)
        # The mean says what the elements are like, the sum how much evidence there is of it.
        share = jnp.sum(there) / len(there)
        mean = total / jnp.maximum(jnp.sum(there), 1)
        pooled = jnp.concatenate([mean, mean * share, share[None]])
        return 0.1 * self.last(self.pooled(pooled))


class _ConvolutionNetwork(eqx.Module):
    layers: list[_Linear]
    pooled: _Layers
    last: _Linear
    window: tuple[int, ...] = eqx.field(static=True)
    parts: int = eqx.field(static=True)

    def __call__(self, x: Any) -> jax.Array:
        values, mask = elements(x) if len(self.window) == 1 else (x, None)
        there = jnp.ones(values.shape[:-1]) if mask is None else mask.astype(values.dtype)
        # A channel of ones tells inside from padding.
        h = jnp.concatenate([values * there[..., None], there[..., None]], axis=-1)
        for i, layer in enumerate(self.layers):
            # After the first layer every second place will do, at half the cost (a quarter for images).
            step = 1 if i == 0 else 2
            there = there[(slice(None, None, step),) * len(self.window)]
            h = _act(layer(_windows(h, self.window, step))) * there[..., None]
        count = jnp.maximum(jnp.sum(there), 1)
        axes = tuple(range(h.ndim - 1))
        pooled = [jnp.sum(h, axis=axes) / count, jnp.sum(h * h, axis=axes) / count]
        pooled += [jnp.mean(part, axis=0) for part in jnp.array_split(h, self.parts)] if self.parts else []
        return 0.1 * self.last(self.pooled(jnp.concatenate(pooled)))


def _windows(x: jax.Array, window: tuple[int, ...], step: int) -> jax.Array:
    """All neighbours of every `step`-th place side by side, (..., C · window), with zeros beyond the edge.

    A convolution is then one matrix product. XLA's own has a very slow gradient inside a scan on CPU.
    """
    for axis, size in enumerate(window):
        before = size // 2
        padding = [(before, size - 1 - before) if i == axis else (0, 0) for i in range(x.ndim)]
        padded = jnp.pad(x, padding)
        length = x.shape[axis]
        x = jnp.concatenate(
            [jax.lax.slice_in_dim(padded, i, i + length, step, axis) for i in range(size)], axis=-1
        )
    return x


class _DenseNetwork(eqx.Module):
    layers: list[_Linear]
    norms: list[eqx.nn.BatchNorm] | None

    def __init__(
        self, inputs: int, width: int, hidden: int, outputs: int, *, norm: bool, key: jax.Array
    ) -> None:
        sizes = (inputs, width, hidden, hidden, hidden, hidden, outputs)
        rng = generator(key)
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

        act = _act if self.norms is None else partial(jax.nn.leaky_relu, negative_slope=0.1)
        h = norm(0, act(self.layers[0](flatten(x))))
        skip = norm(1, act(self.layers[1](h)))
        h = norm(2, act(self.layers[2](skip)))
        h = norm(3, act(self.layers[3](h)) + skip)
        h = act(self.layers[4](h))
        raw = 0.1 * self.layers[5](h)
        return raw if self.norms is None else (raw, state)


def _act(x: jax.Array) -> jax.Array:
    # Smooth, as log K is, and without an exponential: as accurate as GELU, and faster by a sixth.
    return 0.5 * x * (1 + x * jax.lax.rsqrt(1 + x * x))
