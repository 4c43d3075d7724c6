"""What x is: guessed from draws, said by the user, and the form in which networks see it."""

import json
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import log_softmax

import evidencenet as en
from conftest import draws
from evidencenet import networks, problems
from evidencenet._common.arrays import arrays_of, map_arrays
from evidencenet.networks import ensemble
from evidencenet.networks.layout import Layout, arranged_example, candidates
from evidencenet.problems import zoo

# What each problem is, by its description: none of them was told.
KINDS = {
    "time_series": "numbers",
    "t_test": "exchangeable",
    # Two samples, one after the other, of different variance.
    "variance_test": "numbers",
    "polynomial_order": "numbers",
    "lifetime": "vector",
    "decades": "exchangeable",
    "overdispersion": "exchangeable",
    "rastrigin": "vector",
    "contingency_table": "table",
    "communities": "graph",
    "change_point": "series",
    "correlated_cloud": "set",
    "censored_times": "set",
    "meta_analysis": "set",
    "questionnaire": "set",
    "random_field": "image",
    "random_field_plain": "image",
    "faint_source": "image",
    "stretched_field": "volume",
    "markov_chain": "categories",
    "ar_or_ma": "numbers",
    "coupled_channels": "channels x time",
    "light_curve": "irregular series",
    "subjects": "set of sets",
    "judges": "table",
}


@pytest.mark.parametrize("name", KINDS)
def test_the_guess_is_right(name: str) -> None:
    sims = draws(zoo()[name](), 20_000, seed=1)
    layout = Layout.guess(sims.x, sims.model)
    assert [part.kind for part in layout.parts] == [KINDS[name]]
    assert Layout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout
    one = arranged_example(layout, map_arrays(lambda array: array[0], sims.x))
    batch = layout.arrange(map_arrays(lambda array: array[:3], sims.x))
    assert map_arrays(np.shape, one) == map_arrays(lambda array: array.shape[1:], batch)
    for network in candidates(layout, one):
        module, state = ensemble.initialise(network, one, 1, key=jax.random.key(0))
        scaled = map_arrays(lambda array: array if array.dtype == bool else array.astype(np.float32), batch)
        assert eqx.filter_eval_shape(ensemble.apply, module, state, scaled)[0].shape == (3, 1)


def test_parts_of_a_dict() -> None:
    sims = draws(problems.same_source(), 10_000, seed=1)
    layout = Layout.guess(sims.x, sims.model)
    assert [(part.keys, part.kind) for part in layout.parts] == [
        (("image",), "image"),
        (("fluxes",), "numbers"),
    ]
    first = candidates(layout, arranged_example(layout, map_arrays(lambda array: array[0], sims.x)))[0]
    assert isinstance(first, networks.Parts)
    assert [type(network) for _, network in first.parts] == [networks.Image, type(None)]
    assert "image as image: two axes whose order matters" in str(layout)


@pytest.mark.parametrize(
    ("name", "shape", "arranged"),
    [
        ("image", (5, 6), (5, 6, 1)),
        ("image", (5, 6, 3), (5, 6, 3)),
        ("image", (3, 5, 6), (5, 6, 3)),
        ("volume", (5, 6, 7), (5, 6, 7, 1)),
        ("volume", (2, 5, 6, 7), (5, 6, 7, 2)),
        ("series", (9,), (9,)),
        ("series", (9, 4), (9, 4)),
        ("channels x time", (4, 9), (9, 4)),
        ("table", (4, 9), (4, 9, 1)),
        ("graph", (6, 6), (6, 6, 1)),
        ("graph", (6, 6, 2), (6, 6, 2)),
        ("set of sets", (4, 9), (4, 9, 1)),
        ("vector", (4, 9), (4, 9)),
    ],
)
def test_what_the_user_says(name: str, shape: tuple[int, ...], arranged: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(50, *shape))
    layout = Layout.named(name, x, np.arange(50) % 2)
    found = layout.arrange(x)
    assert isinstance(found, np.ndarray)
    assert found.shape == (50, *arranged)
    # The numbers are the same ones, in another order.
    np.testing.assert_array_equal(np.sort(found.ravel()), np.sort(x.ravel()))
    assert "as given" in str(layout)
    for network in candidates(layout, arranged_example(layout, x[0])):
        assert network(found[0].astype(np.float32), 1, key=jax.random.key(0))


@pytest.mark.parametrize("channels", [(), (2,)], ids=str)
def test_a_constant_diagonal_is_that_of_a_graph(channels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    model = np.arange(2000) % 2
    # Links, and some nodes that send more of them than others.
    often = np.where(model[:, None], rng.beta(2, 5, (2000, 7)), 0.3).reshape(
        2000, 7, 1, *(1 for _ in channels)
    )
    x = (rng.random((2000, 7, 7, *channels)) < often).astype(np.float32)
    x[:, np.arange(7), np.arange(7)] = 0
    layout = Layout.guess(x, model)
    assert layout.parts[0].kind == "graph"
    assert "the diagonal is constant" in str(layout)
    assert candidates(layout, arranged_example(layout, x[0]))[0] == networks.Table(links=True)
    # Controls: one draw with a link of a node to itself; an image of which a half is always empty.
    other = x.copy()
    other[5, 3, 3] = 1
    assert Layout.guess(other, model).parts[0].kind != "graph"
    smooth = np.cumsum(np.cumsum(rng.normal(size=x.shape), axis=1), axis=2)
    assert Layout.guess(smooth, model).parts[0].kind in ("image", "volume")
    lower = np.tril(np.ones((7, 7)), -1).reshape(7, 7, *(1 for _ in channels))
    assert Layout.guess(smooth * lower, model).parts[0].kind != "graph"


def test_a_graph_is_square() -> None:
    with pytest.raises(ValueError, match="wants as many rows as columns"):
        Layout.named("graph", np.zeros((5, 3, 4)), np.arange(5) % 2)


def test_waves_between_channels_are_looked_for() -> None:
    for name, shape, wanted in (
        ("series", (40, 3), True),
        ("series", (40, 1), False),
        # Too long: it would take longer than all others together.
        ("series", (1000, 3), False),
        ("channels x time", (3, 40), True),
        ("image", (8, 8, 3), True),
        ("volume", (6, 6, 6), True),
    ):
        x = np.zeros((4, *shape))
        layout = Layout.named(name, x, np.arange(4) % 2)
        found = candidates(layout, arranged_example(layout, x[0]))
        assert (networks.Modes() in found) == wanted


def test_channels_first_are_the_last() -> None:
    x = np.arange(2 * 3 * 5 * 6.0).reshape(2, 3, 5, 6)
    found = Layout.named("image", x, np.arange(2)).arrange(x)
    np.testing.assert_array_equal(found, np.moveaxis(x, 1, 3))


def test_letters_become_indicators() -> None:
    x = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 9.0]])
    layout = Layout.named("categories", x[:1], np.zeros(1))
    # A letter that was never seen is none of those.
    np.testing.assert_array_equal(
        layout.arrange(x), [[[0, 0, 1], [1, 0, 0], [0, 1, 0]], [[1, 0, 0], [1, 0, 0], [0, 0, 0]]]
    )


def test_times_of_events_are_a_set() -> None:
    rng = np.random.default_rng(0)
    mask = np.arange(40) < rng.integers(10, 40, size=(300, 1))
    x = {"events": np.sort(rng.random((300, 40)), axis=1), "mask": mask}
    layout = Layout.guess(x, np.arange(300) % 2)
    assert layout.parts[0].kind == "set"
    assert "as times of events do" in str(layout)
    example = arranged_example(layout, map_arrays(lambda array: array[0], x))
    assert networks.DeepSet(waves=8) in candidates(layout, example)
    # A control: a series of unequal length that goes up and down is none.
    x["events"] = np.cumsum(rng.normal(size=(300, 40)), axis=1)
    assert Layout.guess(x, np.arange(300) % 2).parts[0].kind == "numbers"


def test_times_come_first() -> None:
    rng = np.random.default_rng(0)
    x = {
        "flux": rng.normal(size=(30, 8)),
        "when": np.sort(rng.random((30, 8)), axis=1),
        "ok": np.ones((30, 8), bool),
    }
    layout = Layout.guess(x, np.arange(30) % 2)
    assert layout.parts[0].kind == "irregular series"
    assert layout.parts[0].keys == ("when", "flux", "ok")
    arranged: Any = layout.arrange(x)
    np.testing.assert_array_equal(arranged["x"], np.stack([x["when"], x["flux"]], axis=2))
    # A control: times that do not rise are no times.
    shuffled = {**x, "when": x["when"][:, ::-1]}
    assert Layout.guess(shuffled, np.arange(30) % 2).parts[0].kind == "set"


@pytest.mark.parametrize(
    ("layout", "x", "message"),
    [
        ("picture", np.zeros((4, 3)), "layout = 'picture'; wanted one of 'numbers', 'vector'"),
        (
            "image",
            np.zeros((4, 3)),
            r'layout = "image" wants draws of 2 or 3 axes; these have the shape \(3,\)',
        ),
        ("categories", np.arange(3000.0).reshape(10, 300), "3000 different values"),
        ("irregular series", np.zeros((4, 5)), "wants times and values"),
        (
            "image",
            {"a": np.zeros((4, 3)), "b": np.zeros((4, 5, 5))},
            "a dict of 2 parts; wanted a dict that says",
        ),
        ({"c": "image"}, {"a": np.zeros((4, 3))}, r"layout names the keys \['c'\]; x has the keys \['a'\]"),
    ],
)
def test_what_cannot_be(layout: Any, x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.named(layout, x, np.arange(len(arrays_of(x)[0])) % 2)


# --- Each architecture learns what it is for ---------------------------------------------------------------


def excess(name: str, network: Any, number: int = 20_000, epochs: int = 4) -> float:
    """Expected score above the exact one, without the noise of labels, of one network."""
    problem = zoo()[name]()
    sims, fresh = draws(problem, number, seed=1), draws(problem, 4_000, seed=2)
    recipe = en.Recipe(epochs=epochs)
    net = en.train(
        sims,
        network=network,
        recipe=recipe,
        loss=en.losses.Logistic(),
        members=1,
        learn_error=False,
        augment=problem.augment,
        progress=False,
    )
    exact = log_softmax(problem.log_evidence(fresh.x), axis=1)
    found = log_softmax(np.stack([np.zeros(len(fresh)), net.log_bayes_factor(fresh.x)], axis=1), axis=1)
    return float(np.mean(np.sum(np.exp(exact) * (exact - found), axis=1)))


# Bounds of one short training; as a control, a network not made for such data misses them by a factor of two.
LEARNED = [
    ("decay_or_trend", networks.Squares(), 0.02, networks.DeepSet()),
    ("autocorrelation", networks.Recurrence(), 0.02, networks.DeepSet()),
    ("markov_chain", networks.Categories(), 0.02, networks.DeepSet()),
    ("light_curve", networks.Irregular(), 0.03, networks.Dense()),
    ("dip", networks.Windows(), 0.04, networks.Dense()),
    ("subjects", networks.Groups(), 0.03, networks.Dense()),
    ("marked_points", networks.Regression(), 0.03, networks.DeepSet()),
]


@pytest.mark.parametrize(("name", "network", "bound", "wrong"), LEARNED, ids=[row[0] for row in LEARNED])
def test_what_each_is_for(name: str, network: Any, bound: float, wrong: Any) -> None:
    assert 0 < excess(name, network) < bound
    assert excess(name, wrong) > 2 * bound


def test_many_models_have_many_projections() -> None:
    x = np.random.default_rng(0).normal(size=(400, 12)).cumsum(axis=1)
    layout = Layout.named("vector", x, np.arange(400) % 2)
    first = {models: candidates(layout, x[0], models=models)[0] for models in (2, 4, 10)}
    assert first[2] == first[4] == networks.Squares()
    assert first[10] == networks.Squares(projections=20, nodes=8)


def test_arrays_of_the_same_length_belong_together() -> None:
    """Cases and temperatures of the same weeks are one series of two channels."""
    rng = np.random.default_rng(1)
    walk = rng.normal(size=(4_000, 20)).cumsum(axis=1)
    x = {
        "cases": walk,
        "temperature": rng.normal(size=(4_000, 20)),
        "population": rng.normal(size=(4_000, 1)),
    }
    model = np.arange(4_000) % 2
    layout = Layout.guess(x, model)
    assert [(part.keys, part.kind) for part in layout.parts] == [
        (("cases", "temperature"), "series"),
        (("population",), "vector"),
    ]
    # Without a sign that the order matters, they are a set of pairs.
    shuffled = {name: rng.normal(size=(4_000, 20)) for name in ("a", "b")}
    assert [part.kind for part in Layout.guess(shuffled, model).parts] == ["set"]
    # A control: arrays of other lengths stay apart.
    apart = {"a": walk, "b": walk[:, :15]}
    assert [part.keys for part in Layout.guess(apart, model).parts] == [("a",), ("b",)]
