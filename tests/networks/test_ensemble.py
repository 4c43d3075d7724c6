"""Architectures: shapes, the paper's numbers, initial weights, and what a file says of them."""

import itertools
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_expit, log_softmax

from conftest import draws
from evidencenet import networks, problems
from evidencenet.losses import Logistic
from evidencenet.networks import ensemble
from evidencenet.networks.architectures import (
    BUILT_IN,
    Autoregression,
    Categories,
    DeepSet,
    Dense,
    Groups,
    Image,
    Irregular,
    Modes,
    Neighbours,
    Parts,
    Recurrence,
    Regression,
    Sequence,
    Shapes,
    Spectrum,
    Squares,
    Table,
    Transitions,
    Windows,
)
from evidencenet.training.inputs import prepare
from evidencenet.training.loop import train_ensemble
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Draws

KEY = jax.random.key(0)
apply = eqx.filter_jit(ensemble.apply)
hidden = eqx.filter_jit(ensemble.last_hidden)

# Every kind of network, with other than the usual numbers, and the shape of a draw that it takes.
KINDS: list[tuple[Any, tuple[int, ...]]] = [
    (Dense(width=7, hidden=3), (5,)),
    (Dense(width=7, hidden=3, waves=2), (5,)),
    (Dense(width=7, hidden=3, norm=True), (5,)),
    (DeepSet(width=7, hidden=3, nodes=0), (9, 2)),
    (DeepSet(width=7, hidden=3, waves=2, nodes=0), (9,)),
    (Table(width=7, hidden=3, nodes=0), (4, 6)),
    (Table(width=7, hidden=3, waves=1, nodes=0), (4, 4, 2)),
    (Sequence(width=7, hidden=3, kernel=4, depth=3, parts=2), (20, 1)),
    (Image(width=7, hidden=3, kernel=2, depth=1), (6, 6, 1)),
    (Table(width=7, hidden=3, nodes=0, links=True), (4, 4)),
    (Modes(mixed=4, hidden=3, nodes=0), (6, 5, 2)),
    (Spectrum(width=7, hidden=3), (16,)),
    (Spectrum(width=7, hidden=3), (6, 6, 2)),
]
# Those with an evidence head, of which the raw outputs are no linear function of anything.
EVIDENCE_KINDS: list[tuple[Any, tuple[int, ...]]] = [
    (Squares(projections=3, nodes=4), (7,)),
    (Squares(projections=3, nodes=4, smooth=2), (7, 2)),
    (DeepSet(hidden=3), (9, 2)),
    (Table(hidden=3), (4, 6)),
    (Table(hidden=3, links=True), (4, 4, 2)),
    (Modes(mixed=4, patterns=2, hidden=3), (12, 2)),
    (Sequence(hidden=3, nodes=4), (20,)),
    (Image(hidden=3, nodes=4), (4, 5, 6, 1)),
    (Recurrence(poles=3, mixed=2, hidden=3, nodes=4), (20, 2)),
    (Categories(hidden=3), (20, 4)),
    (Irregular(waves=5, hidden=3), (20, 2)),
    (Regression(waves=3, hidden=3), (12, 2)),
    (Windows(windows=7, hidden=3, nodes=4), (12, 2)),
    (Neighbours(distances=2, hidden=3), (9,)),
    (Neighbours(hidden=3, nodes=4), (9, 2)),
    (Shapes(length=5, filters=3, hidden=3), (20,)),
    (Shapes(hidden=3, nodes=4), (6, 6, 2)),
    (Autoregression(lags=3, hidden=3), (20,)),
    (Autoregression(hidden=3, nodes=4), (20, 2)),
    (Transitions(hidden=3), (20, 2)),
    (Groups(hidden=3), (5, 6)),
    (Groups(hidden=3, nodes=4), (5, 6, 2)),
]
each_kind = pytest.mark.parametrize(("architecture", "shape"), KINDS, ids=str)


def weights(network: Any) -> list[Any]:
    return jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))


def parameters(network: Any) -> int:
    return sum(leaf.size for leaf in weights(network))


def run(architecture: networks.Architecture, x: Any, outputs: int) -> np.ndarray:
    """Raw outputs for a batch."""
    one = jax.tree.map(lambda leaf: leaf[0], x)
    network, state = ensemble.initialise(architecture, one, outputs, key=KEY)
    return np.asarray(apply(network, state, x)[0])


@pytest.mark.parametrize("dim", [1, 20, 100])
@pytest.mark.parametrize("norm", [False, True])
def test_six_layers_of_the_papers_widths(dim: int, norm: bool) -> None:
    network, _ = ensemble.initialise(Dense(norm=norm), jnp.zeros(dim), 1, key=KEY)
    first = int(1.1 * dim) + 20
    sizes = [dim, first, 16, 16, 16, 16, 1]
    dense = sum(a * b + b for a, b in itertools.pairwise(sizes))
    # A scale and a shift for each unit of the first four layers.
    assert parameters(network) == dense + norm * 2 * (first + 3 * 16)


def test_width_and_hidden() -> None:
    network, _ = ensemble.initialise(Dense(width=5, hidden=3), jnp.zeros(2), 4, key=KEY)
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
    network, state = ensemble.initialise(Dense(norm=True), x[0], 1, key=KEY)
    _, moved = apply(network, state, x)
    before, after = jax.tree.leaves(state), jax.tree.leaves(moved)
    assert len(before) == len(after) > 0
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    # Each draw's output does not depend on the others once trained.
    quiet = eqx.nn.inference_mode(network)
    together = np.asarray(apply(quiet, moved, x)[0])
    alone = np.asarray(apply(quiet, moved, x[:1])[0])
    np.testing.assert_allclose(alone[0], together[0], rtol=1e-5)
    assert not jax.tree.leaves(ensemble.initialise(Dense(), x[0], 1, key=KEY)[1])


# --- Each kind -------------------------------------------------------------------------------------------


def test_no_kind_is_forgotten() -> None:
    tested = {type(architecture) for architecture, _ in (*KINDS, *EVIDENCE_KINDS)}
    assert tested | {Parts} == set(BUILT_IN.values())


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(("architecture", "shape"), EVIDENCE_KINDS, ids=str)
def test_kinds_with_an_evidence_head(architecture: Any, shape: tuple[int, ...], outputs: int) -> None:
    x = np.random.default_rng(3).normal(size=(20, *shape)).astype(np.float32)
    network, state = ensemble.initialise(architecture, x[0], outputs, key=KEY)
    raw, last = np.asarray(apply(network, state, x)[0]), np.asarray(hidden(network, state, x))
    assert raw.shape == (20, outputs)
    assert np.all(np.isfinite(raw))
    assert np.all(np.isfinite(last))
    assert last.shape[0] == 20
    assert np.all(np.ptp(last, axis=0).max() > 0)
    # All models begin alike.
    np.testing.assert_allclose(raw - raw[:, :1], 0, atol=1e-5)
    assert ensemble.operations(architecture, x[0], outputs) > 0
    assert networks.from_dict(json.loads(json.dumps(networks.to_dict(architecture)))) == architecture


def test_parts_are_joined() -> None:
    parts = Parts(((("image",), Image(width=3)), (("numbers",), None), (("x", "mask"), DeepSet(width=3))))
    rng = np.random.default_rng(4)
    x = {
        "image": rng.normal(size=(5, 6, 6, 1)).astype(np.float32),
        "mask": np.arange(7) < np.arange(3, 8)[:, None],
        "numbers": rng.normal(size=(5, 4)).astype(np.float32),
        "x": rng.normal(size=(5, 7, 2)).astype(np.float32),
    }
    one = jax.tree.map(lambda leaf: leaf[0], x)
    network, state = ensemble.initialise(parts, one, 3, key=KEY)
    assert apply(network, state, x)[0].shape == (5, 3)
    last = np.asarray(hidden(network, state, x))
    for key in ("image", "numbers", "x"):
        # Every part counts ...
        assert np.all(
            np.abs(np.asarray(hidden(network, state, {**x, key: x[key] + 1})) - last).max(axis=1) > 0
        )
    # ... but not what the mask leaves out.
    other = {**x, "x": np.where(x["mask"][..., None], x["x"], np.float32(9))}
    np.testing.assert_allclose(hidden(network, state, other), last, rtol=1e-5, atol=1e-5)
    assert networks.from_dict(json.loads(json.dumps(networks.to_dict(parts)))) == parts
    with pytest.raises(ValueError, match="Parts is made for draws with the keys"):
        parts({"image": one["image"]}, 1, key=KEY)


@each_kind
def test_raw_outputs_are_linear_in_the_last_hidden_layer(architecture: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).normal(size=(40, *shape)).astype(np.float32)
    network, state = ensemble.initialise(architecture, x[0], 2, key=KEY)
    network = eqx.nn.inference_mode(network)
    found, raw = np.asarray(hidden(network, state, x)), np.asarray(apply(network, state, x)[0])
    assert found.shape == (40, 3)
    assert np.all(np.std(found, axis=0) > 0)
    # Three weights and a bias for each output, of forty equations: that they fit is no accident.
    table = np.concatenate([found, np.ones((40, 1))], axis=1)
    fit, *_ = np.linalg.lstsq(table.astype(np.float64), raw.astype(np.float64), rcond=None)
    np.testing.assert_allclose(table @ fit, raw, atol=1e-5 * np.abs(raw).max())
    bent = np.linalg.lstsq(table, raw**2, rcond=None)[0]
    assert np.abs(table @ bent - raw**2).max() > 1e-3 * np.max(raw**2)


def test_the_last_layers_own_weights() -> None:
    x = np.random.default_rng(3).normal(size=(10, 9, 2)).astype(np.float32)
    network, state = ensemble.initialise(DeepSet(nodes=0), x[0], 3, key=KEY)
    last: Any = network.head.last  # type: ignore[attr-defined]
    wanted = 0.1 * (np.asarray(hidden(network, state, x)) @ last.weight + last.bias)
    np.testing.assert_allclose(apply(network, state, x)[0], wanted, rtol=1e-4, atol=1e-6)


def test_ones_own_module_has_no_hidden_layer() -> None:
    x = np.ones((4, 5), np.float32)
    network, state = ensemble.initialise(mine, x[0], 2, key=KEY)
    np.testing.assert_array_equal(hidden(network, state, x), apply(network, state, x)[0])


@each_kind
def test_operations_are_counted(architecture: Any, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    found = ensemble.operations(architecture, x, 1)
    network, _ = ensemble.initialise(architecture, x, 1, key=KEY)
    matrices = sum(leaf.size for leaf in weights(network) if leaf.ndim == 2 and leaf.shape[1] in (7, 3, 1))
    # Every weight is used once, at least, by a multiplication and an addition, and twice for gradients.
    assert found >= 3 * 2 * matrices
    assert found < 1e6


@each_kind
def test_descriptions(architecture: Any, shape: tuple[int, ...]) -> None:
    kind = type(architecture)
    for one in (architecture, kind()):
        assert networks.from_dict(json.loads(json.dumps(networks.to_dict(one)))) == one
    # One network is told from another by its numbers.
    assert networks.to_dict(kind(hidden=3)) != networks.to_dict(kind())


def mine(x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
    return eqx.nn.MLP(x.size, outputs, 8, 1, key=key)


def test_ones_own_function_is_only_named() -> None:
    with pytest.raises(ValueError, match=r"your own function 'mine'.*Pass it again: load\(path, network="):
        networks.from_dict(networks.to_dict(mine))


# --- Waves -----------------------------------------------------------------------------------------------


def test_waves_widen_the_first_layer() -> None:
    plain, waved = (Dense(width=9, waves=waves)(jnp.zeros(4), 1, key=KEY) for waves in (0, 3))
    # Three sines and three cosines of each number, and their frequencies.
    assert parameters(waved) - parameters(plain) == 9 * 4 * 6 + 4 * 3


def test_waves_follow_what_changes_often() -> None:
    # log K goes up and down three times within two standard deviations of each of two numbers.
    problem = problems.rastrigin(dim=2)
    some = Draws.split(draws(problem, 20_000, seed=1), 0.2, problem.augment, 2)
    x, label = some.held_out_draws()
    exact = log_expit(np.outer(problem.log_bayes_factor(x), [-1, 1]))

    def excess(log_p: np.ndarray) -> float:
        """Expected score above the exact one, without the noise of labels."""
        return float(np.mean(np.sum(np.exp(exact) * (exact - log_p), axis=1)))

    recipe = Recipe(epochs=5, batch=100, weight_decay=0.01).for_draws(len(some.training_rows))
    found = {}
    for waves in (0, 8):
        data = prepare(some, Plan(Dense(width=32, waves=waves), Logistic()))
        source, held_out, network = data.source(recipe, 1), data.held_out_chunk(), data.plan.network
        trained = train_ensemble(
            network, 1, data.plan.loss, source, held_out, recipe, members=1, seed=1, progress=False
        )
        found[waves] = excess(log_softmax(trained.log_odds[0, : len(label)], axis=1))
    frequency = trained.networks.waves.frequency[0]
    assert frequency.shape == (16,)
    # They are learned, and free of weight decay.
    moved = frequency / Dense(waves=8)(x[0], 1, key=KEY).waves.frequency  # type: ignore[attr-defined,index]
    assert moved.max() > 1.05
    assert moved.min() < 0.95
    # There are 0.04 nats to gain. The same network without waves gains next to nothing, and with them 90%.
    gain = excess(np.full_like(exact, -np.log(2)))
    assert gain == pytest.approx(0.043, abs=0.002)
    assert 0.8 * gain < found[0] <= gain
    assert 0 < found[8] < 0.2 * gain


# --- Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in BUILT_IN.values()
        for name in ("width", "hidden", "projections", "poles", "mixed", "distances", "projected")
        if kind is not Parts and name in kind.__dataclass_fields__
    ],
)
def test_sizes_below_one(kind: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__}: {name} = 0; wanted at least 1 unit"):
        kind(**{name: 0})


@pytest.mark.parametrize("kind", [Sequence, Image])
@pytest.mark.parametrize("name", ["kernel", "depth"])
def test_convolutions_below_one(kind: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__}: {name} = 0; wanted at least 1"):
        kind(**{name: 0})


@pytest.mark.parametrize("kind", [Dense, DeepSet, Table])
def test_waves_below_zero(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__}: waves = -1; wanted 0 or more"):
        kind(waves=-1)
    assert kind(waves=0) == kind()
