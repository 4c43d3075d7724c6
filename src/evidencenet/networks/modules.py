"""Equinox modules that architectures are made of; each maps one x to raw outputs.

A module's `hidden` is its last hidden layer: what the network has made of the data, in which observations can
be told from draws. Raw outputs are a linear function of it, or come from an `EvidenceHead`.
"""

import itertools
import math
from functools import partial, reduce
from typing import Any, NamedTuple

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


AXIS = "batch"


"""Name of the batch axis, over which batch normalisation averages."""


# Values of a series up to so many places apart, less one, are multiplied.
_LAGS = 9
# The logarithm of nothing, as far as a sum of exponentials can tell; infinity would have no gradient.
_NOWHERE = -1e9
# Small raw outputs to begin with: the first guess is the offset.
_FIRST = 0.1
# Outputs of the dense layers that join the exact features in an evidence head, and concentrations of the
# Dirichlet priors that counts are judged by (docs/decisions.md, "Evidence heads").
_JOINED = 16
_CONCENTRATIONS = (0.5, 2.0)
# Numbers that explain others are cut off at so many standard deviations.
_FAR = 30.0
# Columns that are multiplied with each other, initial logarithms of large and small amplitudes, and bounds of
# the logarithm of a weight.
_MULTIPLIED = 3
_AMPLITUDES = (-0.5, -3.0)
_LARGEST_WEIGHT = 3.0
# All pairs of so many columns of a transition are multiplied, of more only the squares are taken.
_MOST_PAIRED = 9
# Filters that look for a shape at every place, and their length.
_FILTERS, _FILTER_LENGTH = 8, 7
# Frequencies twice as fine as the grid are seen where there are so many modes at most. Along axes of up to so
# many places, a Fourier transform is a product with a matrix, and its frequencies are learned.
_MOST_MODES = 1024
_LONGEST_PRODUCT = 256
# Relative to other weights, what decides between modes must be learned quickly, and frequencies slowly.
_SWIFT, _SLOW = 10.0, 0.4
# Along axes of up to so many places, a filter is a product with a matrix.
_LONGEST_BAND = 24
# Convolutions see at most so many places of a series.
_LONGEST_SERIES = 512
# Long filters see at most so many places: the matrix of all their shifts grows with the square.
_LONGEST_SHIFTED = 256
# Series are cut into blocks of this length for recurrences: a matrix of this size is filled quickly, and the
# cost is linear in the length of longer series.
_BLOCK = 128


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


def groups(x: Any) -> tuple[Any, Any]:
    """Return the elements of all groups of one draw, (G, N, C), and which are there, (G, N) or None."""
    leaves = jax.tree.leaves(x)
    masks = [leaf for leaf in leaves if leaf.dtype == bool]
    values = [leaf for leaf in leaves if leaf.dtype != bool]
    if len(masks) > 1 or not values or any(leaf.ndim < 2 for leaf in leaves):
        raise ValueError("wanted arrays (groups, elements, ...), and at most one boolean mask of that shape.")
    shape = values[0].shape[:2]
    if any(leaf.shape[:2] != shape for leaf in leaves):
        shapes = [leaf.shape for leaf in leaves]
        raise ValueError(f"the arrays of a draw have shapes {shapes}; wanted the same groups and elements.")
    rows = [leaf.reshape(*shape, -1) for leaf in values]
    return jnp.concatenate(rows, axis=2), masks[0] if masks else None


def entries(x: Any) -> jax.Array:
    """Return the entries of a table (H, W) or (H, W, C), each beside the means of its row and column."""
    table = x[..., None] if x.ndim == 2 else x
    rows = jnp.broadcast_to(jnp.mean(table, axis=1, keepdims=True), table.shape)
    columns = jnp.broadcast_to(jnp.mean(table, axis=0, keepdims=True), table.shape)
    return jnp.concatenate([table, rows, columns], axis=-1).reshape(-1, 3 * table.shape[-1])


def links(x: Any) -> tuple[jax.Array, jax.Array]:
    """Return what is known of each pair of nodes, (N · (N − 1), 7 C), and of each node, (N, 4 C).

    x is (N, N) or (N, N, C): the links from nodes (rows) to nodes (columns). Of a pair: its links both ways,
    the sum of products of the links, both ways together, that the two have with a third, and the mean links
    from and to the first node, and from and to the second. Of a node: mean links from and to it, the mean
    product of the links both ways, and the link to itself.
    """
    table = x[..., None] if x.ndim == 2 else x
    number = len(table)
    itself = jnp.eye(number)[..., None]
    others = table * (1 - itself)
    back = jnp.swapaxes(others, 0, 1)
    sent, received, mutual = (jnp.sum(each, axis=1) / (number - 1) for each in (others, back, others * back))
    either = jnp.moveaxis(0.5 * (others + back), -1, 0)
    common = jnp.moveaxis(either @ either, 0, -1) / np.sqrt(number)
    first, second = np.nonzero(~np.eye(number, dtype=bool))
    of_nodes = jnp.concatenate([sent, received], axis=-1)
    of_pairs = jnp.concatenate([others, back, common], axis=-1)
    pairs = [of_pairs[first, second], of_nodes[first], of_nodes[second]]
    loops = jnp.sum(table * itself, axis=1)
    return jnp.concatenate(pairs, axis=-1), jnp.concatenate([sent, received, mutual, loops], axis=-1)


def spectrum(x: Any) -> jax.Array:
    """Return the means of the channels of (..., C), or of a vector, and the power of every Fourier mode."""
    channels = x[:, None] if x.ndim == 1 else x
    axes = tuple(range(channels.ndim - 1))
    modes = jnp.fft.rfftn(channels, axes=axes, norm="ortho")
    power = jnp.square(modes.real) + jnp.square(modes.imag)
    return jnp.concatenate([jnp.mean(channels, axis=axes), jnp.ravel(power)])


def squashed(x: jax.Array) -> jax.Array:
    """sign(x) · log(1 + |x|): sums over many places, brought to order one."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def act(x: jax.Array) -> jax.Array:
    """Apply the activation: smooth, as log K is, and without an exponential."""
    # As accurate as GELU, and faster by a sixth.
    return 0.5 * x * (1 + x * jax.lax.rsqrt(1 + x * x))


class Linear(eqx.Module):
    """A dense layer without activation."""

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
        """Apply to x (..., inputs)."""
        # In this order a batch multiplies from the left, without a transpose.
        return x @ self.weight + self.bias


def _faint(inputs: int, outputs: int, rng: np.random.Generator) -> Linear:
    """Make a layer of exponents that begin small.

    Sums of exponentials of large numbers would see one place alone, before anything is learned.
    """
    layer = Linear(inputs, outputs, rng)
    return eqx.tree_at(lambda layer: layer.weight, layer, _FIRST * layer.weight)


class Layers(eqx.Module):
    """Dense layers, each with its activation; all after the first add to their input if sizes allow."""

    layers: list[Linear]

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.layers = [Linear(a, b, rng) for a, b in itertools.pairwise(sizes)]

    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply all layers to x (..., inputs)."""
        for layer in self.layers:
            y = act(layer(x))
            x = x + y if x.shape == y.shape else y
        return x


class DenseNetwork(eqx.Module):
    """The paper's network: a wide layer, then narrow ones with one skip."""

    waves: Waves | None
    layers: list[Linear]
    norms: list[eqx.nn.BatchNorm] | None

    def __init__(
        self,
        inputs: int,
        width: int,
        hidden: int,
        outputs: int,
        *,
        norm: bool,
        waves: int,
        rng: np.random.Generator,
    ) -> None:
        self.waves = Waves(inputs, waves) if waves else None
        sizes = ((1 + 2 * waves) * inputs, width, hidden, hidden, hidden, hidden, outputs)
        self.layers = [Linear(a, b, rng) for a, b in itertools.pairwise(sizes)]
        self.norms = (
            [eqx.nn.BatchNorm(n, AXIS, eps=1e-3, momentum=0.99, mode="batch") for n in sizes[1:5]]
            if norm
            else None
        )

    def hidden(self, x: Any, state: Any = None) -> Any:
        """Return the last hidden layer of one draw; with batch normalisation, the new state too."""

        def norm(i: int, h: jax.Array) -> jax.Array:
            nonlocal state
            if self.norms is None:
                return h
            h, state = self.norms[i](h, state)
            return h

        smooth = act if self.norms is None else partial(jax.nn.leaky_relu, negative_slope=0.1)
        numbers = flatten(x)
        h = norm(0, smooth(self.layers[0](numbers if self.waves is None else self.waves(numbers))))
        skip = norm(1, smooth(self.layers[1](h)))
        h = norm(2, smooth(self.layers[2](skip)))
        h = norm(3, smooth(self.layers[3](h)) + skip)
        h = smooth(self.layers[4](h))
        return h if self.norms is None else (h, state)

    def __call__(self, x: Any, state: Any = None) -> Any:
        """Raw outputs of one draw; with batch normalisation, the new state too."""
        if self.norms is None:
            return _FIRST * self.layers[5](self.hidden(x))
        h, state = self.hidden(x, state)
        return _FIRST * self.layers[5](h), state


class Features(NamedTuple):
    """What an encoder makes of one draw.

    Parameters
    ----------
    smooth
        Numbers of order one, for dense layers.
    exact
        Numbers that log evidences may be linear in, such as sums over all places, for an `EvidenceHead`.
    """

    smooth: jax.Array
    exact: jax.Array


class EvidenceHead(eqx.Module):
    """Log evidences as logarithms of sums of exponentials, and their differences as raw outputs.

    The evidence of a model is an integral over its parameters; with `nodes` values of these, and exponents
    linear in the features s, log p(x | k) ≈ log Σ_j exp(w_kj · s + b_kj).
    """

    weight: Any
    bias: Any
    models: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, nodes: int, rng: np.random.Generator) -> None:
        self.models = 2 if outputs == 1 else outputs
        weight = _FIRST * rng.standard_normal((inputs, 1, nodes)) / np.sqrt(inputs)
        # All models start alike, so that the first guess of log K is 0.
        self.weight = np.tile(weight, (1, self.models, 1)).reshape(inputs, -1).astype(np.float32)
        self.bias = np.zeros(self.models * nodes, np.float32)

    def __call__(self, features: jax.Array) -> jax.Array:
        """Raw outputs for features (inputs,)."""
        exponents = (features @ self.weight + self.bias).reshape(self.models, -1)
        log_evidence = jax.nn.logsumexp(exponents, axis=1)
        # Two models have one raw output, their difference; of more, only the differences matter.
        return log_evidence[1:] - log_evidence[:1] if self.models == 2 else log_evidence


class Head(eqx.Module):
    """From the features of one draw to raw outputs.

    Without nodes: two dense layers of the smooth features, and a linear one. With nodes: the outputs of these
    layers join the exact features in an `EvidenceHead`.
    """

    layers: Layers
    last: Linear
    evidence: EvidenceHead | None

    def __init__(
        self, smooth: int, exact: int, hidden: int, outputs: int, *, nodes: int, rng: np.random.Generator
    ) -> None:
        self.layers = Layers((smooth, hidden, hidden), rng)
        self.last = Linear(hidden, _JOINED if nodes else outputs, rng)
        self.evidence = EvidenceHead(exact + _JOINED, outputs, nodes, rng) if nodes else None

    def hidden(self, features: Features) -> jax.Array:
        """Return the last hidden layer, beside the exact features if they are used."""
        h = self.layers(features.smooth)
        return h if self.evidence is None else jnp.concatenate([h, squashed(features.exact)])

    def __call__(self, features: Features) -> jax.Array:
        """Raw outputs."""
        last = self.last(self.layers(features.smooth))
        if self.evidence is None:
            return _FIRST * last
        return self.evidence(jnp.concatenate([features.exact, last]))


class EncodedNetwork(eqx.Module):
    """An encoder, which turns one draw into `Features`, and a head, which turns these into raw outputs."""

    encoder: Any
    head: Head

    def __init__(
        self, encoder: Any, x: Any, hidden: int, outputs: int, *, nodes: int, rng: np.random.Generator
    ) -> None:
        self.encoder = encoder
        made = jax.eval_shape(encoder, x)
        self.head = Head(made.smooth.size, made.exact.size, hidden, outputs, nodes=nodes, rng=rng)

    def hidden(self, x: Any) -> jax.Array:
        """Return the last hidden layer of one draw."""
        return self.head.hidden(self.encoder(x))

    def __call__(self, x: Any) -> jax.Array:
        """Raw outputs of one draw."""
        return self.head(self.encoder(x))


class SquaresNetwork(eqx.Module):
    """An evidence head on projections of the data, their squares, and a small dense network.

    For Gaussian-like data the log likelihood is quadratic in x, whatever the parameters.
    """

    project: Linear
    layers: Layers | None
    evidence: EvidenceHead

    def __init__(
        self,
        inputs: int,
        projections: int,
        smooth: int,
        outputs: int,
        *,
        nodes: int,
        rng: np.random.Generator,
    ) -> None:
        self.project = Linear(inputs, projections, rng)
        self.layers = Layers((inputs, 2 * smooth, smooth), rng) if smooth else None
        self.evidence = EvidenceHead(2 * projections + smooth, outputs, nodes, rng)

    def hidden(self, x: Any) -> jax.Array:
        """Return projections, squares, and the outputs of the small network."""
        numbers = flatten(x)
        projected = self.project(numbers)
        parts = [projected, jnp.square(projected) - 1]
        return jnp.concatenate(parts if self.layers is None else [*parts, self.layers(numbers)])

    def __call__(self, x: Any) -> jax.Array:
        """Raw outputs of one draw."""
        return self.evidence(self.hidden(x))


class FlatEncoder(eqx.Module):
    """All numbers of one draw, as they are."""

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        numbers = flatten(x)
        return Features(numbers, jnp.concatenate([numbers, jnp.square(numbers)]))


class SetEncoder(eqx.Module):
    """A network for each element, and its mean over all elements.

    An element comes with its difference from the mean of all elements, and with the squares and products of
    these differences, so that an unknown location, and means, variances and correlations of the elements,
    need not be learned.
    """

    waves: Waves | None
    element: Layers
    table: bool = eqx.field(static=True)

    def __init__(
        self, channels: int, width: int, *, waves: int, table: bool, rng: np.random.Generator
    ) -> None:
        self.table = table
        self.waves = Waves(2 * channels, waves) if waves else None
        inputs = 2 * channels * (1 + 2 * waves) + channels * (channels + 1) // 2
        self.element = Layers((inputs, width, width), rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        values, mask = (entries(x), None) if self.table else elements(x)
        return self.pooled(values, mask)

    def pooled(self, values: jax.Array, mask: jax.Array | None) -> Features:
        """Features of elements (N, C), of which the mask (N,) says which are there."""
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        number = jnp.maximum(jnp.sum(there), 1)
        learned, centred = self.of_each(values, there)
        mean, h = there @ values / number, there @ learned / number
        # The mean says what the elements are like, the sum how much evidence there is of it.
        share = jnp.sum(there) / len(there)
        # The floor keeps the logarithm of a spread finite where there is only one element.
        spread = 0.5 * jnp.log(there @ jnp.square(centred) / number + 1e-3)
        smooth = jnp.concatenate([h, h * share, share[None], mean, spread])
        # Sums over elements grow with their number, and scatter with its root.
        return Features(smooth, jnp.sqrt(len(values)) * share * jnp.concatenate([h, mean]))

    def of_each(self, values: jax.Array, there: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return what the network makes of each element, (N, width), and elements less their mean, (N, C)."""
        centred = values - there @ values / jnp.maximum(jnp.sum(there), 1)
        both = jnp.concatenate([values, centred], axis=1)
        first, second = np.triu_indices(values.shape[1])
        products = centred[:, first] * centred[:, second]
        inputs = [both if self.waves is None else self.waves(both), products]
        return self.element(jnp.concatenate(inputs, axis=1)), centred


class NeighboursEncoder(eqx.Module):
    """Elements of a set beside how many others are near them, at several distances.

    Events that follow each other, and points that cluster or keep apart, show in that. Of single numbers,
    such as times, the others that come before count apart: causes come first. Nothing here is learned but the
    network of each element: distances that are learned take more time, and gain little.
    """

    element: SetEncoder
    longest: float = eqx.field(static=True)
    distances: int = eqx.field(static=True)

    def __init__(
        self, capacity: int, columns: int, distances: int, width: int, rng: np.random.Generator
    ) -> None:
        # The longest is ten times the usual distance of neighbours: of N uniform numbers of unit variance,
        # √12/N. Each of the others is a quarter of the one before.
        self.longest = float(10 * np.sqrt(12) * capacity ** (-1 / columns))
        self.distances = distances
        sides = 2 if columns == 1 else 1
        self.element = SetEncoder(columns + sides * distances, width, waves=0, table=False, rng=rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw: elements (N, C), or a dict of these and a mask (N,)."""
        values, mask = elements(x)
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        return self.element.pooled(jnp.concatenate([values, *self._near(values, there)], axis=1), mask)

    def _near(self, values: jax.Array, there: jax.Array) -> list[jax.Array]:
        """Return the logarithm of one plus how many others are near each element, (N, distances) a side."""
        step = values[:, None] - values
        # The floor keeps the gradient of the root finite: an element is at no distance from itself.
        distance = jnp.sqrt(jnp.sum(step * step, axis=2) + 1e-12)
        others = there * (1 - jnp.eye(len(values)))
        near = [others * jnp.exp(-distance / self.longest)]
        while len(near) < self.distances:
            # The fourth power, for a quarter of the distance, takes less time than another exponential.
            near.append(jnp.square(jnp.square(near[-1])))
        around = jnp.stack([jnp.sum(kernel, axis=1) for kernel in near], axis=1)
        if values.shape[1] > 1:
            return [jnp.log1p(around)]
        earlier = (step[:, :, 0] > 0).astype(values.dtype)
        before = jnp.stack([jnp.sum(kernel * earlier, axis=1) for kernel in near], axis=1)
        # Differences of rounded sums may be a little less than nothing.
        return [jnp.log1p(before), jnp.log1p(jnp.maximum(around - before, 0.0))]


class GraphEncoder(eqx.Module):
    """Links between nodes (N, N) or (N, N, C): a set of all pairs of nodes, and one of all nodes.

    A pair is seen with its links both ways, the mean links to and from both nodes, and how alike the links of
    the two nodes are. A node is seen with its mean links to and from others, how many of them are mutual, and
    its link to itself. Links of nodes to themselves, which may mean nothing, count nowhere else.
    """

    pair: SetEncoder
    node: SetEncoder

    def __init__(self, channels: int, width: int, *, waves: int, rng: np.random.Generator) -> None:
        self.pair = SetEncoder(7 * channels, width, waves=waves, table=False, rng=rng)
        self.node = SetEncoder(4 * channels, width, waves=waves, table=False, rng=rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        both = [
            encoder.pooled(of, None) for encoder, of in zip((self.pair, self.node), links(x), strict=True)
        ]
        return Features(*(jnp.concatenate(parts) for parts in zip(*both, strict=True)))


class GroupsEncoder(eqx.Module):
    """Sets of sets: each group as a set of elements, then all groups as a set of what these are like."""

    inner: SetEncoder
    project: Linear
    outer: SetEncoder

    def __init__(
        self, channels: int, width: int, projected: int, *, waves: int, rng: np.random.Generator
    ) -> None:
        self.inner = SetEncoder(channels, width, waves=waves, table=False, rng=rng)
        self.project = Linear(2 * width + 2 * channels + 1, projected, rng)
        self.outer = SetEncoder(projected + 2 * channels + 1, width, waves=0, table=False, rng=rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw (G, N) or (G, N, C), or a dict of that and a boolean mask (G, N)."""
        values, mask = groups(x)
        there = jnp.ones(values.shape[:2], bool) if mask is None else mask
        inside = jax.vmap(self.inner.pooled)(values, there).smooth
        # The number, mean and spread of a group's elements go on as they are.
        known = inside[:, -(1 + 2 * values.shape[2]) :]
        rows = jnp.concatenate([known, act(self.project(inside))], axis=1)
        return self.outer.pooled(rows, jnp.any(there, axis=1))


class PlacesEncoder(eqx.Module):
    """What may be at any place, but at one only: sums of exponentials over all places.

    Linear filters look for a shape at every place. The log likelihood of a shape of unknown strength, at a
    known place, is quadratic in what its filter gives. The evidence is the mean of the likelihoods over the
    places. Filters are products of one filter along each axis, which are quick to apply.
    """

    filters: list[Linear]
    exponent: Linear

    def __init__(self, axes: int, channels: int, rng: np.random.Generator) -> None:
        sizes = [channels, *[_FILTERS] * axes]
        self.filters = [Linear(_FILTER_LENGTH * a, b, rng) for a, b in itertools.pairwise(sizes)]
        self.exponent = _faint(2 * _FILTERS, _FILTERS, rng)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Log of the mean over all places, for x (..., C) whose last channel says which places are there."""
        there = x[..., -1:]
        for axis, layer in enumerate(self.filters):
            x = _filtered(x, layer, axis)
        exponents = self.exponent(jnp.concatenate([x, jnp.square(x)], axis=-1))
        axes = tuple(range(x.ndim - 1))
        inside = jnp.where(there > 0, exponents, _NOWHERE)
        return jax.nn.logsumexp(inside, axis=axes) - jnp.log(jnp.maximum(jnp.sum(there), 1))


class ShapesEncoder(eqx.Module):
    """A shape at any one place, and little else: long filters, whose likelihoods add up over all places.

    As `PlacesEncoder`, which stands beside convolutions, but with filters of any shape along a series, and
    for an evidence head: log K of a pulse or motif of unknown place is then found at once.
    """

    places: Any
    coarse: int = eqx.field(static=True)

    def __init__(
        self, places: tuple[int, ...], channels: int, length: int, filters: int, rng: np.random.Generator
    ) -> None:
        self.coarse = -(-places[0] // _LONGEST_SHIFTED) if len(places) == 1 else 1
        if len(places) > 1:
            self.places = PlacesEncoder(len(places), channels + 1, rng)
        else:
            size = min(length, -(-places[0] // self.coarse))
            self.places = LongPlacesEncoder(channels + 1, size, filters, rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw: (T, C), a masked dict of that, or an image (H, W, C)."""
        is_image = not isinstance(x, dict) and x.ndim > 2
        values, mask = (x, None) if is_image else elements(x)
        there = jnp.ones(values.shape[:-1]) if mask is None else mask.astype(values.dtype)
        values = values * there[..., None]
        axes, size = tuple(range(values.ndim - 1)), there.size
        number = jnp.maximum(jnp.sum(there), 1)
        mean, square = (jnp.sum(each, axis=axes) / number for each in (values, values * values))
        if self.coarse > 1:
            values = _block_sums(values, self.coarse) / np.sqrt(self.coarse)
            there = _block_sums(there[:, None], self.coarse)[:, 0] / self.coarse
        found = self.places(jnp.concatenate([values, there[..., None]], axis=-1))
        share = jnp.mean(there, keepdims=True).reshape(1)
        # The floor keeps the logarithm finite where all values are 0.
        smooth = [squashed(found), mean, jnp.log(square + 1e-3), share]
        return Features(
            jnp.concatenate(smooth),
            jnp.concatenate([found, np.sqrt(size) * jnp.concatenate([mean, square - 1, share])]),
        )


class LongPlacesEncoder(eqx.Module):
    """`PlacesEncoder` of series with long filters: a product with the matrix of all shifted filters."""

    weight: Any
    bias: Any
    exponent: Linear

    def __init__(self, channels: int, length: int, filters: int, rng: np.random.Generator) -> None:
        first = rng.standard_normal((length * channels, filters)) / np.sqrt(length * channels)
        self.weight = first.astype(np.float32)
        self.bias = np.zeros(filters, np.float32)
        self.exponent = _faint(2 * filters, filters, rng)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Log of the mean over all places, for x (T, C) whose last channel says which places are there."""
        there = x[:, -1:]
        shifted = _shifted(self.weight.reshape(-1, x.shape[1], self.bias.size), len(x))
        filtered = jnp.tensordot(x, shifted, axes=2) + self.bias
        exponents = self.exponent(jnp.concatenate([filtered, jnp.square(filtered)], axis=1))
        inside = jnp.where(there > 0, exponents, _NOWHERE)
        return jax.nn.logsumexp(inside, axis=0) - jnp.log(jnp.maximum(jnp.sum(there), 1))


class ConvolutionEncoder(eqx.Module):
    """Convolutions, and their averages over all places and over parts of them.

    A series of more than 512 places is first averaged over neighbouring ones: convolutions look for what is
    local, and their cost grows with the length. The moments of the series are those of all places.
    """

    layers: list[Linear]
    anywhere: "PlacesEncoder"
    window: tuple[int, ...] = eqx.field(static=True)
    parts: int = eqx.field(static=True)
    lags: int = eqx.field(static=True)
    coarse: int = eqx.field(static=True)

    def __init__(
        self,
        places: tuple[int, ...],
        channels: int,
        width: int,
        *,
        kernel: int,
        depth: int,
        parts: int,
        rng: np.random.Generator,
    ) -> None:
        self.window = (kernel,) * len(places)
        series = len(places) == 1
        sizes = [(1 + series) * channels + 1, *[width] * depth]
        self.layers = [Linear(kernel ** len(places) * a, b, rng) for a, b in itertools.pairwise(sizes)]
        self.coarse = -(-places[0] // _LONGEST_SERIES) if series else 1
        # Every layer after the first halves the number of places; a part without any has no average.
        shortest = -(-min(places) // self.coarse)
        self.parts = min(parts, -(-shortest // 2 ** (depth - 1)))
        self.lags = min(_LAGS, places[0]) if series else 0
        self.anywhere = PlacesEncoder(len(places), channels + 1, rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        values, mask = elements(x) if len(self.window) == 1 else (x, None)
        there = jnp.ones(values.shape[:-1]) if mask is None else mask.astype(values.dtype)
        values = values * there[..., None]
        size, channels = there.size, values.shape[-1]
        products: list[jax.Array] = []
        if self.lags:
            values, products = self._moments(values, there)
        if self.coarse > 1:
            # Sums scatter with the root of their number.
            values = _block_sums(values, self.coarse) / np.sqrt(self.coarse)
            there = _block_sums(there[:, None], self.coarse)[:, 0] / self.coarse
        # A channel of ones tells inside from padding.
        h = jnp.concatenate([values, there[..., None]], axis=-1)
        found = self.anywhere(jnp.concatenate([values[..., :channels], there[..., None]], axis=-1))
        for i, layer in enumerate(self.layers):
            # After the first layer every second place will do, at half the cost (a quarter for images).
            step = 1 if i == 0 else 2
            there = there[(slice(None, None, step),) * len(self.window)]
            h = act(layer(_windows(h, self.window, step))) * there[..., None]
        number = jnp.maximum(jnp.sum(there), 1)
        axes = tuple(range(h.ndim - 1))
        means = [jnp.sum(h, axis=axes) / number, jnp.sum(h * h, axis=axes) / number]
        # What may be at any place, but at one only: the odds of the places add up, not their logarithms.
        inside = jnp.where(there[..., None] > 0, h, _NOWHERE)
        anywhere = jax.nn.logsumexp(inside, axis=axes) - jnp.log(number)
        local = [jnp.mean(part, axis=axes) for part in _divided(h, self.parts)] if self.parts else []
        if mask is not None:
            # How much there is: normalisations grow with it.
            local = [*local, jnp.mean(mask.astype(h.dtype), keepdims=True)]
        sums = jnp.concatenate([*means, *local, *products[: self.lags]])
        exact = jnp.concatenate([anywhere, jnp.sqrt(size) * sums, found])
        return Features(jnp.concatenate([*means, anywhere, *local, *products, found]), exact)

    def _moments(self, values: jax.Array, there: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        """Put values beside their differences from the mean, and average products of those some places apart.

        These are the sufficient statistics of a stationary normal series, whether its level is known or not.
        """
        number = jnp.maximum(jnp.sum(there), 1)
        mean = jnp.sum(values, axis=0) / number
        centred = (values - mean) * there[:, None]
        both = jnp.concatenate([values, centred], axis=-1)
        products = [
            jnp.sum(both[lag:] * both[: len(both) - lag], axis=0) / number for lag in range(self.lags)
        ]
        # The floor keeps the logarithm of a spread finite where all values are the same.
        spread = 0.5 * jnp.log(jnp.sum(jnp.square(centred), axis=0) / number + 1e-3)
        return both, [*products, mean, spread]


class RecurrenceEncoder(eqx.Module):
    """A bank of linear recurrences h_t = a h_{t−1} + x_t with learned complex poles a, and second moments.

    The likelihood of a stationary normal series is a quadratic form of such h: of an autoregression, of
    neighbouring values; of a moving average, of innovations, which are a recurrence. So the bank is mixed to
    a few channels, and the products of all pairs of (x_t, x_{t−1}, h_{t−1}) are summed over t.
    """

    radius: Any
    angle: Any
    mix: Any

    def __init__(self, channels: int, poles: int, mixed: int, rng: np.random.Generator) -> None:
        # Memories of about three and twenty places (|a| = 0.73 and 0.95), and all frequencies.
        self.radius = np.resize(np.array([0.5, 1.5], np.float32), poles)
        self.angle = np.linspace(0, np.pi, poles, dtype=np.float32)
        size = channels * 2 * poles
        self.mix = (rng.standard_normal((size, mixed)) / np.sqrt(size)).astype(np.float32)

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        values, mask = elements(x)
        length = len(values)
        there = None if mask is None else mask.astype(values.dtype)
        if there is not None:
            values = values * there[:, None]
        h = self._recurrences(values)
        joined = jnp.concatenate([values[1:], values[:-1], h[:-1]], axis=1)
        if there is not None:
            # After the end of a short series, and in gaps, nothing is predicted.
            joined = joined * there[1:, None]
        first, second = np.triu_indices(joined.shape[1])
        sums = jnp.sum(joined, axis=0)
        # Of an unknown level, the products of the sums are to be taken off.
        products = (joined.T @ joined)[first, second]
        number = length if there is None else jnp.maximum(jnp.sum(there), 1)
        levels = (sums[:, None] * sums / number)[first, second]
        # What comes before the first value is unknown, and so is what it did to the next ones: of a moving
        # average, the likelihood has the square of Σ_s a^s x_s for that.
        start = jnp.concatenate([values[0], self._from_start(values)])
        end = jnp.concatenate([values[-1], h[-1]])
        first, second = np.triu_indices(len(start))
        edges = [jnp.outer(edge, edge)[first, second] for edge in (start, end)]
        exact = jnp.concatenate([products, levels, *edges, sums])
        if there is not None:
            # Normalisations grow with the number of values, and of neighbours.
            counts = jnp.stack([jnp.sum(there), jnp.sum(there[1:] * there[:-1])])
            exact = jnp.concatenate([exact, counts])
        return Features(squashed(exact), exact / jnp.sqrt(length))

    def _recurrences(self, x: jax.Array) -> jax.Array:
        """Run the bank over x (T, C), and mix it to (T, mixed).

        A recurrence is a product with the triangular matrix of the powers of its pole. The series is cut into
        blocks, so that the cost is linear in its length: within a block as a product, and what a block hands
        on to the later ones as a product of the same kind.
        """
        length, channels = x.shape
        size = min(length, _BLOCK)
        blocks = -(-length // size)
        padded = jnp.pad(x, ((0, blocks * size - length), (0, 0))).reshape(blocks, size, channels)
        mix = self.mix.reshape(channels, 2, len(self.angle), -1)
        powers = self._powers(size + 1)
        # Within a block: kernel[s, c, t, m] is the effect of x_s on channel m at t ≥ s.
        triangle = _triangle(powers[:, :, :size])
        kernel = jnp.einsum("rpst,crpm->sctm", triangle, mix)
        within = jnp.tensordot(padded, kernel, axes=[[1, 2], [0, 1]])
        if blocks == 1:
            return within.reshape(-1, within.shape[-1])[:length]
        # What each block leaves behind: Σ_s a^(size − 1 − s) x_s, complex, (blocks, C, poles).
        left = jnp.einsum("bsc,rps->brcp", padded, powers[:, :, size - 1 :: -1][:, :, :size])
        # ... and what all earlier blocks have left when a block begins.
        between = _triangle(self._powers(blocks, size))
        shifted = jnp.concatenate([jnp.zeros_like(left[:1]), left[:-1]])
        real = jnp.einsum("bcp,pbd->dcp", shifted[:, 0], between[0]) - jnp.einsum(
            "bcp,pbd->dcp", shifted[:, 1], between[1]
        )
        imaginary = jnp.einsum("bcp,pbd->dcp", shifted[:, 0], between[1]) + jnp.einsum(
            "bcp,pbd->dcp", shifted[:, 1], between[0]
        )
        later = powers[:, :, 1:]
        decayed = jnp.stack(
            [
                real[..., None] * later[0] - imaginary[..., None] * later[1],
                real[..., None] * later[1] + imaginary[..., None] * later[0],
            ]
        )
        carried = jnp.einsum("rdcpt,crpm->dtm", decayed, mix)
        return (within + carried).reshape(-1, within.shape[-1])[:length]

    def _from_start(self, x: jax.Array) -> jax.Array:
        """Return Σ_s a^s x_s of x (T, C), mixed to (mixed,): the bank that runs back to the first value."""
        mix = self.mix.reshape(x.shape[1], 2, len(self.angle), -1)
        kernel = jnp.einsum("rps,crpm->scm", self._powers(len(x)), mix)
        return jnp.tensordot(x, kernel, axes=2)

    def _powers(self, number: int, step: int = 1) -> jax.Array:
        """Real and imaginary parts of a^(k · step) for k below `number`, (2, poles, number)."""
        exponent = np.arange(number, dtype=np.float32) * step
        size = jnp.exp(jax.nn.log_sigmoid(2 * self.radius)[:, None] * exponent)
        sine, cosine = sine_and_cosine(self.angle[:, None] * exponent)
        return jnp.stack([size * cosine, size * sine])


class CategoriesEncoder(eqx.Module):
    """Series of letters, given as indicators (T, kinds): counts of letters, and of pairs of them.

    Beside the counts come their evidences if all probabilities are unknown (Dirichlet-multinomial), those of
    pairs relative to letters that do not depend on each other. Nothing here is learned.
    """

    distances: int = eqx.field(static=True)

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        letters, mask = elements(x)
        # What is no indicator would have negative counts.
        letters = jnp.clip(letters, 0, 1)
        if mask is not None:
            letters = letters * mask[:, None].astype(letters.dtype)
        length, kinds = letters.shape
        counts = jnp.sum(letters, axis=0)
        number = jnp.sum(counts)
        parts = [
            jnp.log1p(counts),
            (counts - number / kinds) / np.sqrt(length),
            jnp.stack([log_evidence_of_counts(counts, a) + number * np.log(kinds) for a in _CONCENTRATIONS]),
        ]
        for distance in range(1, min(self.distances, length - 1) + 1):
            pairs = letters[:-distance].T @ letters[distance:]
            # The share of each letter, kept away from 0.
            share = (jnp.sum(pairs, axis=0) + 1 / kinds) / (jnp.sum(pairs) + 1)
            expected = jnp.sum(pairs, axis=1, keepdims=True) * share
            parts.append(jnp.ravel((pairs - expected) * jax.lax.rsqrt(expected + 1)))
            independent = pairs @ jnp.log(share)
            parts += [log_evidence_of_counts(pairs, a) - independent for a in _CONCENTRATIONS]
        exact = jnp.concatenate([*parts, letters[0], letters[-1]])
        return Features(squashed(exact), exact)


class IrregularEncoder(eqx.Module):
    """Values y at irregular times t: how well sines of t describe them, for frequencies that are learned.

    For each frequency, the log evidence of a sine and a cosine with normal amplitudes in white noise,
    relative to noise alone, is a quadratic form of the sums of y cos ωt and y sin ωt. The ratio of the
    variances of noise and amplitude is learned too. A small network of each element stands beside it, and one
    of each pair of neighbours and the time between them: of processes with a memory, neighbours tell most.
    """

    frequency: Any
    ratio: Any
    element: SetEncoder
    pair: SetEncoder
    spacing: float = eqx.field(static=True)

    def __init__(self, columns: int, capacity: int, waves: int, width: int, rng: np.random.Generator) -> None:
        # Half a cycle over the whole span of the times, up to one in four elements: what they can resolve. A
        # uniform time of unit variance has a span of √12.
        cycles = np.linspace(0.5, max(capacity / 4, 2.0), waves, dtype=np.float32)
        self.frequency = 2 * np.pi * cycles / np.float32(np.sqrt(12))
        self.ratio = np.zeros(waves, np.float32)
        self.element = SetEncoder(columns, width, waves=0, table=False, rng=rng)
        self.pair = SetEncoder(3 * columns - 1, 2 * width, waves=0, table=False, rng=rng)
        # The time between two elements is of the order of one over their number.
        self.spacing = float(np.sqrt(12) / capacity)

    def __call__(self, x: Any) -> Features:
        """Features of one draw: elements (N, 1 + C), of which the first column is the time."""
        values, mask = elements(x)
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        others = [self.element.pooled(values, mask), self._of_pairs(values, mask)]
        time, y = values[:, 0], values[:, 1:] * there[:, None]
        sine, cosine = (wave * there[:, None] for wave in sine_and_cosine(time[:, None] * self.frequency))
        number = jnp.maximum(jnp.sum(there), 1)
        ratio = jnp.exp(self.ratio)
        parts = []
        # Once with the level known to be 0, and once unknown: then sums over elements are taken off.
        for level in (0.0, 1.0):
            sums = [level * jnp.sum(part, axis=0) for part in (sine, cosine, y)]
            of_sine = y.T @ sine - jnp.outer(sums[2], sums[0]) / number
            of_cosine = y.T @ cosine - jnp.outer(sums[2], sums[1]) / number
            a = jnp.sum(sine * sine, axis=0) - jnp.square(sums[0]) / number + ratio
            b = jnp.sum(cosine * cosine, axis=0) - jnp.square(sums[1]) / number + ratio
            c = jnp.sum(sine * cosine, axis=0) - sums[0] * sums[1] / number
            determinant = a * b - c * c
            quadratic = b * jnp.square(of_sine) - 2 * c * of_sine * of_cosine + a * jnp.square(of_cosine)
            volume = 0.5 * jnp.log(determinant / jnp.square(ratio))
            parts += [jnp.ravel(0.5 * quadratic / determinant - volume), volume]
        squares = jnp.sum(y * y, axis=0)
        parts += [squares / np.sqrt(len(values)), jnp.square(jnp.sum(y, axis=0)) / number]
        waves = jnp.concatenate(parts)
        return Features(
            jnp.concatenate([squashed(waves), jnp.log1p(squares), *(other.smooth for other in others)]),
            jnp.concatenate([waves, *(other.exact for other in others)]),
        )

    def _of_pairs(self, values: jax.Array, mask: jax.Array | None) -> Features:
        """Pool what a network makes of each pair of neighbours; elements that are there come first."""
        earlier, later = values[:-1], values[1:]
        step = (later[:, :1] - earlier[:, :1]) / self.spacing
        products = earlier[:, 1:] * later[:, 1:]
        both = None if mask is None else mask[1:] & mask[:-1]
        columns = [jnp.log1p(jnp.maximum(step, 0)), jnp.exp(-jnp.maximum(step, 0))]
        pairs = jnp.concatenate([*columns, earlier[:, 1:], later[:, 1:], products], axis=1)
        return self.pair.pooled(pairs, both)


class WindowsEncoder(eqx.Module):
    """Values at irregular times: sums over windows along the time, and what may be at any one of them.

    A small network of each element is summed over windows, each the tent between its neighbours. So an
    irregular series becomes a regular one, in which a dip or a flare is local, whatever its time. Two layers
    see each window with its neighbours. As in `PlacesEncoder`, the odds of the windows add up.
    """

    element: SetEncoder
    first: Linear
    second: Linear
    exponent: Linear
    windows: int = eqx.field(static=True)
    kernel: int = eqx.field(static=True)

    def __init__(
        self, columns: int, windows: int, width: int, local: int, kernel: int, rng: np.random.Generator
    ) -> None:
        self.element = SetEncoder(columns, width, waves=0, table=False, rng=rng)
        # Beside the outputs of the network: the values, the values less their mean, and their number.
        self.first = Linear(kernel * (width + 2 * (columns - 1) + 1), local, rng)
        self.second = Linear(local, local, rng)
        self.exponent = _faint(local, local, rng)
        self.windows, self.kernel = windows, kernel

    def __call__(self, x: Any) -> Features:
        """Features of one draw: elements (N, 1 + C), of which the first column is the time."""
        values, mask = elements(x)
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        learned, centred = self.element.of_each(values, there)
        columns = [learned, values[:, 1:], centred[:, 1:], jnp.ones((len(values), 1))]
        sums = self._tents(values[:, 0]).T @ (jnp.concatenate(columns, axis=1) * there[:, None])
        h = act(self.first(_windows(sums, (self.kernel,), 1)))
        h = h + act(self.second(h))
        anywhere = jax.nn.logsumexp(self.exponent(h), axis=0) - np.log(self.windows)
        means = jnp.concatenate([anywhere, jnp.mean(h, axis=0), jnp.mean(h * h, axis=0)])
        pooled = self.element.pooled(values, mask)
        return Features(
            jnp.concatenate([means, pooled.smooth]),
            jnp.concatenate([np.sqrt(self.windows) * means, pooled.exact]),
        )

    def _tents(self, time: jax.Array) -> jax.Array:
        """Return how much each time (N,) belongs to each window, (N, windows); rows sum to one."""
        # A uniform time of unit variance ends at ±√3. What lies farther out is in the last window.
        centre, step = np.linspace(-np.sqrt(3), np.sqrt(3), self.windows, dtype=np.float32, retstep=True)
        inside = jnp.clip(time, centre[0], centre[-1])
        return jnp.maximum(0, 1 - jnp.abs(inside[:, None] - centre) / np.float32(step))


@jax.custom_vjp
def eliminated(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return bᵀ A⁻¹ b and log |A| of a positive definite matrix (m, m), by Gaussian elimination.

    Not by JAX's own factorisations: on a CPU, two programs with these that ran at the same time waited for
    each other without end (docs/decisions.md, "A search that learning curves cannot fool").
    """
    return _inverted(a, b)[:2]


def _eliminated_forward(a: jax.Array, b: jax.Array) -> tuple[Any, Any]:
    quadratic, log_volume, solution, inverse = _inverted(a, b)
    return (quadratic, log_volume), (solution, inverse)


def _eliminated_backward(known: Any, slopes: Any) -> tuple[jax.Array, jax.Array]:
    solution, inverse = known
    of_quadratic, of_log_volume = slopes
    return of_log_volume * inverse - of_quadratic * jnp.outer(solution, solution), 2 * of_quadratic * solution


eliminated.defvjp(_eliminated_forward, _eliminated_backward)


@jax.custom_batching.custom_vmap
def _inverted(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return bᵀ A⁻¹ b, log |A|, A⁻¹ b and A⁻¹, for a (m, m, ...) and b (m, ...), by Gauss–Jordan elimination.

    Axes behind the first two are a batch. There, each step is one long vector operation: four times as fast
    on a CPU as with the batch in front, where m = 15 numbers are next to each other.
    """
    size = len(b)

    def step(k: Any, state: Any) -> Any:
        a, b, quadratic, log_volume = state
        pivot = a[k, k]
        others = (jnp.arange(size) != k).reshape(size, *(1,) * pivot.ndim)
        # Row and column k are set anew: 1/pivot where they meet, the row divided by the pivot beside it.
        row = jnp.where(others, a[k], 1.0) / pivot
        column = jnp.where(others, a[:, k], -1.0)
        quadratic += jnp.square(b[k]) / pivot
        b = jnp.where(others, b, 0.0) - column * (b[k] / pivot)
        a = jnp.where(others[:, None] & others, a, 0.0) - column[:, None] * row
        return a, b, quadratic, log_volume + jnp.log(pivot)

    nothing = jnp.zeros(b.shape[1:], b.dtype)
    inverse, solution, quadratic, log_volume = jax.lax.fori_loop(0, size, step, (a, b, nothing, nothing))
    return quadratic, log_volume, solution, inverse


@_inverted.def_vmap
def _inverted_in_batches(number: int, is_batched: Any, a: jax.Array, b: jax.Array) -> tuple[Any, Any]:
    """Put the axis of the batch last."""
    both = [
        jnp.moveaxis(array, 0, -1) if batched else jnp.broadcast_to(array[..., None], (*array.shape, number))
        for array, batched in zip((a, b), is_batched, strict=True)
    ]
    return tuple(jnp.moveaxis(array, -1, 0) for array in _inverted(*both)), (True,) * 4


class RegressionEncoder(eqx.Module):
    """Sets of vectors: how well the other columns explain each column, with functions that are learned.

    For each of the last columns, as the response y, basis functions φ of the others have normal amplitudes,
    in white noise. The log evidence of y relative to noise alone is ½ bᵀ A⁻¹ b − ½ log |A| with A = 1 +
    Σ φ φᵀ and b = Σ φ y; if the noise is unknown, it is ½ N log (f + Σ y²) − ½ N log (f + Σ y² − bᵀ A⁻¹ b)
    − ½ log |A|. Both are features, for several hypotheses. The first has a constant, the other columns, and
    sines and cosines of combinations of them. The others have no sines, but the squares and products of the
    first few columns: at first one with little but a constant, one with the columns too, one with products,
    and one with squares. Frequencies, f, and for each hypothesis the variance of the amplitudes relative to
    the noise are learned; without sines, their covariances too. Elements have weights, exponentials of a
    learned combination of the columns, since these may say how exact y is. A `SetEncoder` stands beside it.
    """

    frequency: Any
    amplitude: Any
    amplitudes: Any
    mixing: Any
    weight: Any
    floor: Any
    element: SetEncoder

    def __init__(
        self, columns: int, responses: int, waves: int, width: int, rng: np.random.Generator
    ) -> None:
        direction = rng.standard_normal((responses, columns - 1, waves))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        # Half a cycle over the whole span, up to two and a half: a uniform number of unit variance has a span
        # of √12.
        cycles = np.linspace(0.5, 2.5, waves)
        self.frequency = (direction * cycles * 2 * np.pi / np.sqrt(12)).astype(np.float32)
        self.amplitude = np.full((responses, columns + 2 * waves), -1, np.float32)
        first, second = _multiplied(columns - 1)
        square, none = first == second, np.zeros(len(first), bool)
        linear = np.ones(columns - 1, bool)
        large = [
            np.r_[none, True, ~linear],
            np.r_[none, True, linear],
            np.r_[~square, True, linear],
            np.r_[square, True, linear],
        ]
        size = len(large[0])
        # Columns must differ, or hypotheses could not learn to take some of them only.
        spread = 0.1 * rng.standard_normal((responses, len(large), size))
        self.amplitudes = (np.where(large, *_AMPLITUDES) + spread).astype(np.float32)
        self.mixing = np.zeros((responses, len(large), size, size), np.float32)
        self.weight = np.zeros((responses, columns - 1), np.float32)
        self.floor = np.ones((responses, 1 + len(large)), np.float32)
        self.element = SetEncoder(columns, width, waves=0, table=False, rng=rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        values, mask = elements(x)
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        columns = values.shape[1]
        responses = np.arange(columns - len(self.amplitude), columns)
        explaining = np.array([np.delete(np.arange(columns), c) for c in responses])
        learned = (self.frequency, self.amplitude, self.amplitudes, self.mixing, self.weight, self.floor)
        sums, logs = jax.vmap(partial(_explained, values, there))(learned, responses, explaining)
        sums, pooled = jnp.ravel(sums), self.element.pooled(values, mask)
        return Features(
            jnp.concatenate([squashed(sums), jnp.ravel(logs), pooled.smooth]),
            jnp.concatenate([sums, pooled.exact]),
        )


def _explained(
    values: jax.Array, there: jax.Array, learned: tuple[jax.Array, ...], column: Any, others: Any
) -> tuple[jax.Array, jax.Array]:
    """Return log evidences of one column given the others, and logarithms of the squares that are left."""
    frequency, amplitude, amplitudes, mixing, weight, floor = learned
    # Single observations may lie anywhere; beyond 30 standard deviations A could not be inverted.
    known = jnp.clip(values[:, others], -_FAR, _FAR)
    weights = there * jnp.exp(jnp.clip(known @ weight, -_LARGEST_WEIGHT, _LARGEST_WEIGHT))
    y = values[:, column] * weights
    first, second = _multiplied(len(others))
    # Squares less their mean, so that they take nothing from the constant.
    products = jnp.clip(known[:, first] * known[:, second] - (first == second), -_FAR, _FAR)
    basis = [products, jnp.ones((len(y), 1)), known, *sine_and_cosine(known @ frequency)]
    phi = jnp.concatenate(basis, axis=1) * weights[:, None]
    # All hypotheses have parts of the same sums over elements: those with sines the last, others the first.
    gram, along, squares = phi.T @ phi, phi.T @ y, jnp.sum(y * y)
    begin, end = len(first), amplitudes.shape[-1]

    def without_waves(amplitude: jax.Array, mixing: jax.Array) -> tuple[jax.Array, jax.Array]:
        one = jnp.eye(end)
        mixed = (one + mixing) * jnp.exp(amplitude)
        return eliminated(mixed.T @ gram[:end, :end] @ mixed + one, along[:end] @ mixed)

    scale = jnp.exp(amplitude)
    whole = gram[begin:, begin:] * (scale[:, None] * scale) + jnp.eye(len(scale))
    found = eliminated(whole, along[begin:] * scale), jax.vmap(without_waves)(amplitudes, mixing)
    quadratic, log_volume = (jnp.r_[a, b] for a, b in zip(*found, strict=True))
    fitted, volume, least = 0.5 * quadratic, 0.5 * log_volume, jnp.exp(floor)
    left = jnp.log(least + jnp.maximum(squares - quadratic, 0.0))
    number = jnp.sum(there)
    gained = 0.5 * number * (jnp.log(least + squares) - left)
    relative = left - jnp.log(least + number)
    root = np.sqrt(len(y))
    exact = [_compared(part) for part in (fitted - volume, gained - volume, volume, relative)]
    rest = jnp.stack([relative[0] * number / root, squares / root])
    return jnp.concatenate([*exact, rest]), left


def _compared(evidence: jax.Array) -> jax.Array:
    """Return the first two numbers, and the difference of each later one from the one before it.

    Hypotheses say nearly the same. Of their differences a head is learned faster than of themselves.
    """
    return jnp.concatenate([evidence[:2], jnp.diff(evidence[1:])])


def _multiplied(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which columns are multiplied with which: the first three of so many, with themselves too."""
    first, second = np.triu_indices(min(columns, _MULTIPLIED))
    return first, second


class TransitionsEncoder(eqx.Module):
    """Series: a network of each value and those just before it, as they are and relative to the series.

    The likelihood of a Markov chain is a product over its transitions, so that its logarithm is a sum of what
    a network can learn, whatever their law: spreads that change from place to place, thresholds, growth. An
    unknown level and scale of the series are taken off in one of two copies.
    """

    element: Layers
    earlier: int = eqx.field(static=True)

    def __init__(self, channels: int, earlier: int, width: int, rng: np.random.Generator) -> None:
        columns = (1 + earlier) * channels
        self.element = Layers((2 * columns + len(_squared(columns)[0]), width, width), rng)
        self.earlier = earlier

    def __call__(self, x: Any) -> Features:
        """Features of one draw: (T, C), or a dict of that and a mask (T,)."""
        values, mask = elements(x)
        there = jnp.ones(len(values)) if mask is None else mask.astype(values.dtype)
        number = jnp.maximum(jnp.sum(there), 1)
        mean = there @ values / number
        centred = (values - mean) * there[:, None]
        # The floor keeps the root finite where all values are the same.
        variance = there @ jnp.square(centred) / number + 1e-3
        plain, relative = (self._beside(each) for each in (values, centred * jax.lax.rsqrt(variance)))
        # A transition counts if all its values are there.
        inside = jnp.prod(self._beside(there[:, None]), axis=1)
        first, second = _squared(plain.shape[1])
        products = relative[:, first] * relative[:, second]
        h = self.element(jnp.concatenate([plain, relative, products], axis=1))
        pooled = inside @ h / jnp.maximum(jnp.sum(inside), 1)
        # The mean says what the transitions are like, the sum how much evidence there is of it.
        share, spread = jnp.mean(inside), 0.5 * jnp.log(variance)
        start = jnp.ravel((values * there[:, None])[: self.earlier])
        sums = np.sqrt(len(values)) * share * jnp.concatenate([pooled, mean, spread])
        return Features(
            jnp.concatenate([pooled, pooled * share, share[None], mean, spread, squashed(start)]),
            jnp.concatenate([sums, start, jnp.square(start)]),
        )

    def _beside(self, values: jax.Array) -> jax.Array:
        """Put each place beside those before it: (T − earlier, (1 + earlier) · C), the latest first."""
        length = len(values) - self.earlier
        return jnp.concatenate([values[lag:][:length] for lag in range(self.earlier, -1, -1)], axis=1)


def _squared(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of so many columns are multiplied: all pairs, or only squares if there are many."""
    if columns <= _MOST_PAIRED:
        first, second = np.triu_indices(columns)
        return first, second
    return np.arange(columns), np.arange(columns)


class AutoregressionEncoder(eqx.Module):
    """Series: how well the values before explain each value, as a `RegressionEncoder` of all places.

    An element is what one place has in all channels, behind the values of the places before it. So lags of
    any kind, thresholds, laws of growth and influences of one channel on another are regressions.
    """

    regression: RegressionEncoder
    lags: int = eqx.field(static=True)

    def __init__(self, channels: int, lags: int, waves: int, width: int, rng: np.random.Generator) -> None:
        self.lags = lags
        columns = (1 + lags) * channels
        self.regression = RegressionEncoder(columns, min(channels, 2), waves, width, rng)

    def __call__(self, x: Any) -> Features:
        """Features of one draw: (T, C), or a dict of that and a mask (T,)."""
        values, mask = elements(x)
        length = len(values) - self.lags
        # The latest of the earlier places come first: squares and products are taken of these.
        earlier = [values[self.lags - lag :][:length] for lag in range(1, self.lags + 1)]
        rows = jnp.concatenate([*earlier, values[self.lags :]], axis=1)
        first = jnp.ravel(values[: self.lags])
        elements_of_places = {"x": rows}
        if mask is not None:
            # A place counts if it and all that came before it are there.
            inside = [mask[self.lags - lag :][:length] for lag in range(self.lags + 1)]
            elements_of_places["mask"] = jnp.all(jnp.stack(inside), axis=0)
            first = first * jnp.repeat(mask[: self.lags], values.shape[1])
        found = self.regression(elements_of_places)
        edge = jnp.concatenate([first, jnp.square(first)])
        return Features(jnp.concatenate([found.smooth, squashed(edge)]), jnp.concatenate([found.exact, edge]))


class PartsEncoder(eqx.Module):
    """Data of several parts, each with its encoder; the numbers of single vectors are shown to the others.

    What a vector says may decide how the other parts are to be read. So a few combinations of its numbers
    join every place of the other parts as further channels.
    """

    encoders: dict[str, Any]
    shown: Linear | None
    keys: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    flat: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, x: Any) -> Features:
        """Features of one draw, a dict of arrays."""
        numbers = [jnp.ravel(x[key]).astype(jnp.float32) for key in self.flat]
        channels = None if self.shown is None else act(self.shown(jnp.concatenate(numbers)))
        made = [
            self.encoders[keys[0]](part_of(x, keys, channels if keys[0] not in self.flat else None))
            for keys in self.keys
        ]
        return Features(*(jnp.concatenate(parts) for parts in zip(*made, strict=True)))


def part_of(x: Any, keys: tuple[str, ...], channels: jax.Array | None) -> Any:
    """Take the arrays of one part, with further channels at every place."""
    chosen = {key: x[key] for key in keys}
    values = [key for key in keys if chosen[key].dtype != bool]
    if channels is not None:
        array = chosen[values[0]]
        if array.ndim == 1:
            array = array[:, None]
        more = jnp.broadcast_to(channels, (*array.shape[:-1], channels.size))
        chosen[values[0]] = jnp.concatenate([array, more], axis=-1)
    return chosen if len(keys) > 1 else chosen[keys[0]]


class SpectrumNetwork(eqx.Module):
    """A dense network of the power spectrum."""

    dense: DenseNetwork

    def hidden(self, x: Any) -> jax.Array:
        """Return the last hidden layer of one draw."""
        h: jax.Array = self.dense.hidden(spectrum(x))
        return h

    def __call__(self, x: Any) -> Any:
        """Raw outputs of one draw."""
        return self.dense(spectrum(x))


class SpectrumEncoder(eqx.Module):
    """The power of every Fourier mode."""

    def __call__(self, x: Any) -> Features:
        """Features of one draw."""
        powers = spectrum(x)
        return Features(squashed(powers), powers)


class ModesEncoder(eqx.Module):
    """Fourier modes of all channels: sums over modes, and a wave that may be any one of them.

    Each mode F_c has a number for every channel c. Combinations Σ_c m_c F_c with complex weights see the
    phases between channels: a wave that moves from one frame to the next adds up in one of them, and powers
    of enough combinations span all products of two channels. The log likelihood of a wave of unknown
    amplitude and phase in white noise is linear in such a power. The evidence of a wave of one of many
    frequencies is the mean of the likelihoods; that of a stationary field has a sum over modes. Frequencies
    are learned along each axis, so that waves between those of the grid are met too.
    """

    shift: list[Any]
    level: Any
    mix: Any
    pattern: Any
    exponent: Any
    bias: Any
    places: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, places: tuple[int, ...], channels: int, mixed: int, patterns: int, rng: np.random.Generator
    ) -> None:
        self.places = places
        grid = _frequencies(places)
        self.shift = [
            np.zeros_like(each) if length <= _LONGEST_PRODUCT else None
            for each, length in zip(grid, places, strict=True)
        ]
        modes = math.prod(len(each) for each in grid)
        # At first all of a draw's mean is taken off; where the level is known, none of it need be.
        self.level = np.ones(channels, np.float32)
        self.mix = _combinations(channels, mixed)
        powers = self.mix.shape[-1]
        pattern = 1 + rng.standard_normal((modes, patterns))
        self.pattern = (pattern / np.sqrt(modes)).astype(np.float32)
        # Each exponent begins with one power. Several have the same, if there are few, at another strength.
        strength = np.linspace(0.3, 0.6, -(-mixed // powers)).repeat(powers)[:mixed]
        self.exponent = (np.eye(powers)[:, np.arange(mixed) % powers] * strength).astype(np.float32)
        # A vector, since matrices are subject to weight decay, and most modes may be impossible.
        self.bias = np.zeros(modes * mixed, np.float32)

    def __call__(self, x: Any) -> Features:
        """Features of one draw (..., C), or of a vector."""
        values = x[:, None] if x.ndim == 1 else x
        mean = jnp.mean(values, axis=tuple(range(values.ndim - 1)))
        power = self.powers(values)
        exponents = power @ self.exponent + _SWIFT * self.bias.reshape(len(power), -1)
        anywhere = jax.nn.logsumexp(exponents, axis=0) - np.log(len(power))
        sums = jnp.ravel(self.pattern.T @ (power - 1))
        level = np.sqrt(math.prod(self.places)) * mean
        exact = jnp.concatenate([anywhere, sums, level, jnp.square(level)])
        return Features(jnp.concatenate([squashed(exact), mean]), exact)

    def powers(self, values: jax.Array) -> jax.Array:
        """Return the power of each combination of channels in each mode, (modes, combinations)."""
        mean = self.level * jnp.mean(values, axis=tuple(range(values.ndim - 1)))
        # The mean is taken off behind the transform, which then has no gradient to hand back to the data.
        both = zip(self._modes(values), self._modes(jnp.ones((*self.places, 1))), strict=True)
        joined = jnp.concatenate([of_values - of_ones * mean for of_values, of_ones in both], axis=1)
        # Complex numbers as pairs: (a + ib)(m + in) = (am − bn) + i(an + bm).
        first, second = self.mix
        squares = jnp.square(joined @ jnp.block([[first, second], [-second, first]]))
        number = first.shape[1]
        return squares[:, :number] + squares[:, number:]

    def _modes(self, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return real and imaginary parts of all modes, (modes, C), in units of white noise."""
        real, imaginary = values / np.sqrt(math.prod(self.places)), None
        for axis, grid in reversed(list(enumerate(_frequencies(self.places)))):
            length = self.places[axis]
            if self.shift[axis] is None:
                whole = jnp.fft.rfft(real, axis=axis) if imaginary is None else real + 1j * imaginary
                whole = whole if imaginary is None else jnp.fft.fft(whole, axis=axis)
                real, imaginary = whole.real, whole.imag
                continue
            frequency = grid + _SLOW * 2 * np.pi / length * self.shift[axis]
            sine, cosine = sine_and_cosine(frequency[:, None] * np.arange(length, dtype=np.float32))
            along = partial(_along, axis=axis)
            if imaginary is None:
                real, imaginary = along(real, cosine), -along(real, sine)
            else:
                real, imaginary = (
                    along(real, cosine) + along(imaginary, sine),
                    along(imaginary, cosine) - along(real, sine),
                )
        assert imaginary is not None
        channels = values.shape[-1]
        return real.reshape(-1, channels), imaginary.reshape(-1, channels)


def _along(x: jax.Array, matrix: jax.Array, axis: int) -> jax.Array:
    """Multiply x by a matrix along one axis."""
    return jnp.moveaxis(jnp.tensordot(matrix, x, axes=[[1], [axis]]), 0, axis)


def _frequencies(places: tuple[int, ...]) -> list[np.ndarray]:
    """Return the frequencies along each axis, in radians per place, of half of all modes.

    The modes of real numbers come in pairs of opposite frequencies; of the last axis only one half is taken.
    """

    def grid(fine: int) -> list[np.ndarray]:
        sides = [n if n > _LONGEST_PRODUCT else fine * n for n in places]
        halves = [np.arange(n // 2 + 1) if i == len(sides) - 1 else np.arange(n) for i, n in enumerate(sides)]
        return [
            (2 * np.pi / n * np.where(k > n // 2, k - n, k)).astype(np.float32)
            for n, k in zip(sides, halves, strict=True)
        ]

    # Twice as fine as the grid, where it costs little: a wave between its frequencies is weak in all of them.
    fine = grid(2)
    return fine if math.prod(len(each) for each in fine) <= _MOST_MODES else grid(1)


def _combinations(channels: int, number: int) -> np.ndarray:
    """Return weights of channels, as real and imaginary parts (2, C, combinations), to begin with.

    Single channels, if they are few, and waves that go through all channels with different phases.
    """
    if channels == 1:
        return np.array([[[1.0]], [[0.0]]], np.float32)
    single = np.eye(channels) if 2 * channels <= number else np.zeros((channels, 0))
    waves = number - single.shape[1]
    phase = np.arange(channels)[:, None] * np.linspace(-np.pi, np.pi, waves, endpoint=False)
    real = np.concatenate([single, np.cos(phase) / np.sqrt(channels)], axis=1)
    imaginary = np.concatenate([0 * single, np.sin(phase) / np.sqrt(channels)], axis=1)
    return np.stack([real, imaginary]).astype(np.float32)


def log_evidence_of_counts(counts: jax.Array, concentration: float) -> jax.Array:
    """Log evidence of counts (..., kinds) if the probabilities have a symmetric Dirichlet prior."""
    kinds = counts.shape[-1]
    constant = math.lgamma(kinds * concentration) - kinds * math.lgamma(concentration)
    total = jnp.sum(counts, axis=-1)
    of_kinds = jnp.sum(_log_gamma(counts + concentration), axis=-1)
    return of_kinds - _log_gamma(total + kinds * concentration) + constant


def _log_gamma(x: jax.Array) -> jax.Array:
    """Return the logarithm of the gamma function for x ≥ 0.5, to within 1e-6 of its size.

    Stirling's series at x + 3. XLA's own takes several times as long on a CPU.
    """
    y = x + 3
    inverse = 1 / y
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square / 1260))
    return (y - 0.5) * jnp.log(y) - y + 0.5 * math.log(2 * math.pi) + series - jnp.log(x * (x + 1) * (x + 2))


def _triangle(powers: jax.Array) -> jax.Array:
    """Arrange powers (..., T) as matrices (..., T, T) whose entry s, t is the power t − s, or 0 if t < s."""
    length = powers.shape[-1]
    lag = np.arange(length) - np.arange(length)[:, None]
    return jnp.where(lag >= 0, powers[..., np.maximum(lag, 0)], 0.0)


def _block_sums(x: jax.Array, size: int) -> jax.Array:
    """Add up (T, C) over blocks of `size` neighbouring places: (T / size rounded up, C)."""
    padded = jnp.pad(x, ((0, -len(x) % size), (0, 0)))
    return jnp.sum(padded.reshape(-1, size, x.shape[1]), axis=1)


def _divided(h: jax.Array, parts: int) -> list[jax.Array]:
    """Divide (..., C) into so many parts along every axis of places."""
    blocks = [h]
    for axis in range(h.ndim - 1):
        blocks = [part for block in blocks for part in jnp.array_split(block, parts, axis=axis)]
    return blocks


def _shifted(filters: jax.Array, places: int) -> jax.Array:
    """Arrange filters (L, C, F) as a matrix (T, C, T, F): entry s, c, t, f is filters[s − t + L // 2, c, f].

    Rows of a padded filter, one after the other and one number too long, begin a place later each. Neither
    this nor its gradient looks up single numbers, which is slow on a CPU.
    """
    length, channels, number = filters.shape
    row = places + length - 1
    padded = jnp.pad(filters, ((0, places), (0, 0), (0, 0)))
    rows = jnp.tile(padded, (places, 1, 1))[: places * row].reshape(places, row, channels, number)
    return jnp.transpose(rows[:, length // 2 : length // 2 + places], (1, 2, 0, 3))


def _filtered(x: jax.Array, layer: Linear, axis: int) -> jax.Array:
    """Apply a linear filter along one axis of x (..., C): (..., filters), with zeros beyond the edge."""
    length, channels = x.shape[axis], x.shape[-1]
    size = len(layer.weight) // channels
    if length > _LONGEST_BAND:
        window = [1] * (x.ndim - 1)
        window[axis] = size
        return layer(_windows(x, tuple(window), 1))
    # Along a short axis, a product with the whole banded matrix is faster than copies of all neighbours.
    offset = np.arange(length)[:, None] - np.arange(length) + size // 2
    inside = (offset >= 0) & (offset < size)
    weight = layer.weight.reshape(size, channels, -1)[np.clip(offset, 0, size - 1)]
    band = jnp.where(inside[..., None, None], weight, 0.0)
    filtered = jnp.tensordot(jnp.moveaxis(x, axis, -2), band, axes=[[-2, -1], [0, 2]])
    return jnp.moveaxis(filtered, -2, axis) + layer.bias


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
