"""Architectures: shapes, the paper's numbers, initial weights, and what a file says of them."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evidencenet import networks
from evidencenet.networks import Dense

KEY = jax.random.key(0)
apply = eqx.filter_jit(networks.apply)


def weights(network: Any) -> list[Any]:
    return jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))


def parameters(network: Any) -> int:
    return sum(leaf.size for leaf in weights(network))


def run(architecture: networks.Architecture, x: Any, outputs: int) -> np.ndarray:
    """Raw outputs for a batch."""
    one = jax.tree.map(lambda leaf: leaf[0], x)
    network, state = networks.initialise(architecture, one, outputs, key=KEY)
    return np.asarray(apply(network, state, x)[0])


@pytest.mark.parametrize("dim", [1, 20, 100])
@pytest.mark.parametrize("norm", [False, True])
def test_six_layers_of_the_papers_widths(dim: int, norm: bool) -> None:
    network, _ = networks.initialise(Dense(norm=norm), jnp.zeros(dim), 1, key=KEY)
    first = int(1.1 * dim) + 20
    sizes = [dim, first, 16, 16, 16, 16, 1]
    dense = sum(a * b + b for a, b in itertools.pairwise(sizes))
    # A scale and a shift for each unit of the first four layers.
    assert parameters(network) == dense + norm * 2 * (first + 3 * 16)


def test_width_and_hidden() -> None:
    network, _ = networks.initialise(Dense(width=5, hidden=3), jnp.zeros(2), 4, key=KEY)
    assert parameters(network) == (2 * 5 + 5) + (5 * 3 + 3) + 3 * (3 * 3 + 3) + (3 * 4 + 4)


@pytest.mark.parametrize(("norm", "outputs"), [(False, 1), (False, 3), (True, 3)])
def test_any_data_are_flattened(norm: bool, outputs: int) -> None:
    rng = np.random.default_rng(1)
    architecture = Dense(norm=norm)
    values, mask = rng.normal(size=(7, 4, 2)).astype(np.float32), rng.random((7, 4)) < 0.5
    assert run(architecture, values, outputs).shape == (7, outputs)
    image = run(architecture, values, outputs)
    np.testing.assert_array_equal(image, run(architecture, values.reshape(7, 8), outputs))
    both = run(architecture, {"x": values, "mask": mask}, outputs)
    swapped = run(architecture, {"x": values, "mask": ~mask}, outputs)
    assert both.shape == (7, outputs)
    assert np.all(np.any(both != swapped, axis=1))


def test_initial_weights() -> None:
    network = Dense(width=200, hidden=50)(jnp.zeros(100), 1, key=KEY)
    first, bias = weights(network)[:2]
    assert first.shape == (100, 200)
    # A normal law cut at two standard deviations has 0.8796 of its width, which is made good: the variance is
    # He's 2/inputs, known from 20,000 numbers to 1.1 / √20,000 = 0.8%.
    assert np.var(first) == pytest.approx(2 / 100, rel=0.03)
    assert 0.99 < np.abs(first).max() / (2 * np.sqrt(2 / 100) / 0.8796) <= 1.0001
    assert np.all(bias == 0)
    same = Dense(width=200, hidden=50)(jnp.zeros(100), 1, key=jax.random.key(0))
    other = Dense(width=200, hidden=50)(jnp.zeros(100), 1, key=jax.random.key(1))
    assert all(np.array_equal(a, b) for a, b in zip(weights(network), weights(same), strict=True))
    assert not np.array_equal(first, weights(other)[0])


def test_batch_normalisation_has_a_state_that_moves() -> None:
    x = 5 + np.random.default_rng(2).normal(size=(64, 3)).astype(np.float32)
    network, state = networks.initialise(Dense(norm=True), x[0], 1, key=KEY)
    _, moved = apply(network, state, x)
    before, after = jax.tree.leaves(state), jax.tree.leaves(moved)
    assert len(before) == len(after) > 0
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    # Each draw's output does not depend on the others once trained.
    quiet = eqx.nn.inference_mode(network)
    together = np.asarray(apply(quiet, moved, x)[0])
    alone = np.asarray(apply(quiet, moved, x[:1])[0])
    np.testing.assert_allclose(alone[0], together[0], rtol=1e-5)
    assert not jax.tree.leaves(networks.initialise(Dense(), x[0], 1, key=KEY)[1])


@pytest.mark.parametrize("name", ["width", "hidden"])
def test_sizes_below_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"Dense: {name} = 0; wanted at least 1 unit"):
        Dense(**{name: 0})  # type: ignore[arg-type]


def test_descriptions() -> None:
    for architecture in (Dense(), Dense(width=7, hidden=3, norm=True)):
        assert networks.from_dict(networks.to_dict(architecture)) == architecture

    def mine(x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        return eqx.nn.MLP(x.size, outputs, 8, 1, key=key)

    with pytest.raises(ValueError, match=r"your own function 'mine'.*Pass it again: load\(path, network="):
        networks.from_dict(networks.to_dict(mine))
