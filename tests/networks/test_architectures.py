"""Networks that know what a place means: sets, tables, sequences, images and spectra."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws, rms
from evidencenet import networks
from evidencenet.networks import ensemble
from evidencenet.networks.architectures import DeepSet, Dense, Image, Modes, Sequence, Spectrum, Table

KEY = jax.random.key(0)
apply = eqx.filter_jit(ensemble.apply)


def built(architecture: networks.Architecture, x: Any, outputs: int = 1) -> Any:
    """A function from a batch like x to raw outputs.

    All weights are changed a little, since with an evidence head all models begin alike.
    """
    one = jax.tree.map(lambda leaf: leaf[0], x)
    network, state = ensemble.initialise(architecture, one, outputs, key=KEY)
    weights, fixed = eqx.partition(network, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    weights = jax.tree.map(lambda w: w + 0.1 * rng.normal(size=w.shape).astype(np.float32), weights)
    network = eqx.combine(weights, fixed)
    return lambda batch: np.asarray(apply(network, state, batch)[0])


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal up to the rounding of sums in another order."""
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())


def cloud(n: int = 40, number: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "x": rng.normal(size=(n, number, 2)).astype(np.float32),
        "size": rng.normal(size=(n, number)).astype(np.float32),
        "mask": np.arange(number) < rng.integers(0, number + 1, size=(n, 1)),
    }


def reordered(x: dict[str, np.ndarray], seed: int = 2) -> dict[str, np.ndarray]:
    """The elements of each draw in another order, all arrays alike."""
    mask = x["mask"]
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(mask.shape[1]), (len(mask), 1)), axis=1)

    def moved(array: np.ndarray) -> np.ndarray:
        return np.take_along_axis(array, order.reshape(order.shape + (1,) * (array.ndim - 2)), axis=1)

    return {key: moved(array) for key, array in x.items()}


# --- Sets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "waves"), [(1, 0), (3, 0), (1, 4)])
def test_a_set_has_no_order(outputs: int, waves: int) -> None:
    x = cloud()
    run = built(DeepSet(waves=waves), x, outputs)
    found = run(x)
    assert found.shape == (40, outputs)
    assert len(np.unique(found)) > 30
    close(run(reordered(x)), found)
    # A control: to move the elements without their mask is another set.
    assert np.abs(run({**reordered(x), "mask": x["mask"]}) - found).max() > 0.01
    dense = built(Dense(), x, outputs)
    assert np.abs(dense(reordered(x)) - dense(x)).max() > 0.01


@pytest.mark.parametrize("architecture", [DeepSet(), DeepSet(waves=4), Sequence(kernel=3)], ids=str)
def test_what_is_not_there_does_not_matter(architecture: Any) -> None:
    x = cloud()
    run = built(architecture, x)
    other = {
        "x": np.where(x["mask"][:, :, None], x["x"], np.float32(-1e6)),
        "size": np.where(x["mask"], x["size"], np.float32(77.0)),
        "mask": x["mask"],
    }
    np.testing.assert_array_equal(run(other), run(x))
    assert np.all(np.isfinite(run(x)))
    # Some of these draws are empty, and all empty draws are the same.
    empty = ~x["mask"].any(axis=1)
    assert empty.sum() > 1
    assert len(np.unique(run(x)[empty])) == 1


def test_vectors_and_rows_are_sets_too() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(20, 6)).astype(np.float32)
    run = built(DeepSet(), vectors)
    close(run(rng.permuted(vectors, axis=1)), run(vectors))
    np.testing.assert_array_equal(built(DeepSet(), vectors[:, :, None])(vectors[:, :, None]), run(vectors))
    full = {"x": vectors, "mask": np.ones((20, 6), bool)}
    close(built(DeepSet(), full)(full), run(vectors))


def test_the_number_of_elements_counts() -> None:
    # All elements are the same: their mean is too, whatever their number.
    x = {"x": np.ones((5, 6, 1), np.float32), "mask": np.arange(6) < np.arange(1, 6)[:, None]}
    assert len(np.unique(built(DeepSet(), x)(x))) == 5


def test_correlations_of_elements_are_seen() -> None:
    # The same numbers in each channel, paired otherwise: means and spreads are the same, products are not.
    rng = np.random.default_rng(8)
    x = rng.normal(size=(10, 9, 2)).astype(np.float32)
    other = np.stack([x[:, :, 0], np.roll(x[:, :, 1], 1, axis=1)], axis=2)
    run = built(DeepSet(), x)
    assert np.all(np.abs(run(other) - run(x)) > 1e-5)


# --- Tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [Table(), Table(waves=3)], ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (6, 6), (4, 5, 2)], ids=str)
def test_a_table_has_no_order(architecture: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(size=(20, *shape)).astype(np.float32)
    run, dense = built(architecture, x), built(Dense(), x)
    found = run(x)
    assert len(np.unique(found)) == 20
    rows, columns = rng.permutation(shape[0]), rng.permutation(shape[1])
    for other in (x[:, rows], x[:, :, columns], x[:, rows][:, :, columns]):
        close(run(other), found)
        # A control: a dense network knows each place.
        assert np.abs(dense(other) - dense(x)).max() > 0.01
    # Entries that change places one by one have other rows and columns.
    loose = rng.permuted(x.reshape(20, shape[0] * shape[1], -1), axis=1).reshape(x.shape)
    assert np.abs(run(loose) - found).max() > 0.001


@pytest.mark.parametrize("links", [False, True])
def test_a_graph_has_no_order(links: bool) -> None:
    rng = np.random.default_rng(10)
    upper = np.triu(rng.random((20, 8, 8)) < 0.4, 1).astype(np.float32)
    x = upper + np.swapaxes(upper, 1, 2)
    run = built(Table(links=links), x)
    order = rng.permutation(8)
    close(run(x[:, order][:, :, order]), run(x))
    # As many edges elsewhere are another graph, by the degrees of the nodes that they link.
    star = np.zeros((1, 8, 8), np.float32)
    star[0, 0, 1:5] = star[0, 1:5, 0] = 1
    pairs = np.zeros((1, 8, 8), np.float32)
    for i in range(0, 8, 2):
        pairs[0, i, i + 1] = pairs[0, i + 1, i] = 1
    assert star.sum() == pairs.sum()
    assert np.abs(run(star) - run(pairs))[0, 0] > 0.001


@pytest.mark.parametrize("shape", [(6, 6), (5, 5, 2)], ids=str)
def test_links_between_nodes(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(12)
    x = rng.normal(size=(20, *shape)).astype(np.float32)
    run = built(Table(links=True), x)
    found = run(x)
    order = np.roll(np.arange(shape[0]), 1)
    close(run(x[:, order][:, :, order]), found)
    # Rows and columns are the same nodes: one cannot be moved without the other.
    assert np.abs(run(x[:, order]) - found).max() > 0.001
    # Links have a direction.
    assert np.abs(run(np.swapaxes(x, 1, 2)) - found).max() > 0.001


def test_no_graph() -> None:
    with pytest.raises(ValueError, match=r"wants as many rows as columns, two or more, not \(3, 4\)"):
        Table(links=True)(np.zeros((3, 4)), 1, key=KEY)


# --- Spectra ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(20,), (21, 2), (6, 8, 1)], ids=str)
def test_a_spectrum_knows_no_place(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(20, *shape)).astype(np.float32)
    axes = range(1, max(2, len(shape)))
    run, dense = built(Spectrum(), x), built(Dense(), x)
    found = run(x)
    assert len(np.unique(found)) == 20
    for axis in axes:
        close(run(np.roll(x, 3, axis)), found)
        assert np.abs(dense(np.roll(x, 3, axis)) - dense(x)).max() > 0.01
    # Without their means, draws may change sign.
    bare = x - x.mean(axis=tuple(axes), keepdims=True)
    close(run(-bare), run(bare))
    # Another order is another spectrum, and so is another mean.
    assert np.abs(run(rng.permuted(x, axis=1)) - found).max() > 0.001
    assert np.abs(run(x + 1) - found).max() > 0.001


# --- Sequences and images --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "shape"),
    [
        (Sequence(), (50, 1)),
        (Sequence(), (50,)),
        (Sequence(), (16, 4)),
        (Sequence(), (4, 1)),
        (Sequence(), (3, 1)),
        (Sequence(depth=3, kernel=4, parts=0), (11, 2)),
        (Image(), (12, 12, 1)),
        (Image(kernel=5, depth=1), (7, 9, 3)),
        (Image(), (2, 2, 1)),
        (Table(), (3, 4)),
        (Table(), (1, 1)),
        (Table(width=5, hidden=3), (2, 3, 4)),
        (Table(links=True), (2, 2)),
        (Table(links=True, waves=2), (5, 5, 3)),
        (Modes(), (2,)),
        (Modes(), (300, 2)),
        (Modes(), (16, 20)),
        (Modes(mixed=3, patterns=1, nodes=0), (6, 5, 4)),
        (Modes(), (4, 4, 4, 2)),
        (Spectrum(), (2,)),
        (Spectrum(), (16, 2)),
        (Spectrum(width=5, hidden=7), (4, 4, 4, 2)),
    ],
    ids=str,
)
def test_shapes(architecture: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(6).normal(size=(5, *shape)).astype(np.float32)
    found = built(architecture, x, 3)(x)
    assert found.shape == (5, 3)
    assert np.all(np.isfinite(found))
    assert len(np.unique(found)) == found.size


def test_order_matters_to_a_sequence_and_an_image() -> None:
    rng = np.random.default_rng(7)
    for architecture, shape in ((Sequence(), (30, 1)), (Image(), (8, 8, 1))):
        x = rng.normal(size=(10, *shape)).astype(np.float32)
        run = built(architecture, x)
        assert np.all(run(rng.permuted(x, axis=1)) != run(x))
    # But a vector is a sequence of one channel.
    vector = rng.normal(size=(10, 30)).astype(np.float32)
    np.testing.assert_array_equal(
        built(Sequence(), vector)(vector), built(Sequence(), vector[:, :, None])(vector[:, :, None])
    )


# --- Bad shapes, descriptions, cost ----------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [DeepSet(), Sequence()], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"x": np.zeros((5, 2)), "y": np.zeros(4)}, r"shapes \[\(5, 2\), \(4,\)\]; wanted the same number"),
        ({"x": np.zeros((5, 2)), "mask": np.zeros(4, bool)}, "wanted the same number of elements"),
        ({"x": np.zeros((5, 2)), "mask": np.zeros((5, 2), bool)}, "wanted the same number of elements"),
        ({"x": np.zeros(5), "a": np.zeros(5, bool), "b": np.zeros(5, bool)}, "at most one boolean mask"),
        ({"mask": np.zeros(5, bool)}, "wanted arrays of elements"),
        (np.zeros(()), "wanted arrays of elements"),
    ],
    ids=["lengths", "short mask", "wide mask", "two masks", "mask alone", "scalar"],
)
def test_no_elements(architecture: Any, x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        architecture(x, 1, key=KEY)


@pytest.mark.parametrize(
    "x", [np.zeros(5), np.zeros((5, 2)), np.zeros((2, 2, 2, 2, 2)), {"x": np.zeros((5, 5, 1))}]
)
def test_no_image(x: Any) -> None:
    with pytest.raises(ValueError, match=r"Image wants draws of shape \(height, width, channels\)"):
        Image()(x, 1, key=KEY)


@pytest.mark.parametrize(
    "x", [np.zeros(5), np.zeros(()), np.zeros((2, 2, 2, 2)), {"x": np.zeros((5, 5))}], ids=str
)
def test_no_table(x: Any) -> None:
    with pytest.raises(ValueError, match=r"Table wants draws of shape \(rows, columns\).*another network"):
        Table()(x, 1, key=KEY)


@pytest.mark.parametrize("x", [{"x": np.zeros(20)}, np.zeros(())], ids=["dict", "scalar"])
def test_no_spectrum(x: Any) -> None:
    for kind in (Spectrum, Modes):
        with pytest.raises(ValueError, match=f"{kind.__name__} wants draws that are one array"):
            kind()(x, 1, key=KEY)


def test_a_network_that_does_not_suit_the_draws(small: Case) -> None:
    with pytest.raises(ValueError, match="Image wants draws of shape"):
        en.train(small.sims, network=Image(), recipe=en.Recipe(epochs=1), progress=False)


# --- Trained ---------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"members": 2, "learn_error": False, "seed": 2, "progress": False}


@pytest.fixture(scope="module")
def sets() -> Case:
    """Sets of points in a masked dict; naming a recipe takes the network of the shape, with a plain head."""
    problem = en.problems.correlated_cloud(capacity=20)
    sims = draws(problem, 10_000, seed=1)
    net = en.train(sims, recipe=en.Recipe(epochs=6, batch=100), **OPTIONS)
    return Case(problem, sims, draws(problem, 500, seed=3), net)


@pytest.fixture(scope="module")
def ordered() -> Case:
    problem = en.problems.autocorrelation(length=20)
    sims = draws(problem, 6_000, seed=1)
    net = en.train(sims, network=Sequence(), recipe=en.Recipe(epochs=3, batch=100), **OPTIONS)
    return Case(problem, sims, draws(problem, 2_000, seed=3), net)


def test_a_trained_set_network_has_no_order(sets: Case) -> None:
    assert sets.net.architecture == DeepSet(nodes=0)
    x = sets.fresh.x
    assert isinstance(x, dict)
    log_k = sets.net.log_bayes_factor(x)
    assert np.std(log_k) > 0.1
    np.testing.assert_allclose(sets.net.log_bayes_factor(reordered(x)), log_k, rtol=1e-4, atol=1e-5)
    hidden = {**x, "x": np.where(x["mask"][:, :, None], x["x"], 123.0)}
    np.testing.assert_array_equal(sets.net.log_bayes_factor(hidden), log_k)


def row_effects(rows: int, columns: int) -> en.problems.Problem:
    """Tables of unit normal noise, without and with a unit normal effect of each row."""

    def log_evidence(x: Any) -> np.ndarray:
        # Of each row, only the sum tells: its variance is `columns`, or that times 1 + columns.
        squares = np.square(x.sum(axis=2)) / (1 + columns)
        log_k = 0.5 * np.sum(squares - np.log(1 + columns), axis=1)
        return np.stack([np.zeros(len(x)), log_k], axis=1)

    def noise(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.normal(size=(n, rows, columns))

    def effects(rng: np.random.Generator, n: int) -> np.ndarray:
        return noise(rng, n) + rng.normal(size=(n, rows, 1))

    return en.problems.Problem(
        "rows", (en.Model("none", noise), en.Model("rows", effects)), log_evidence, None
    )


@pytest.fixture(scope="module")
def tabled() -> Case:
    problem = row_effects(4, 3)
    sims = draws(problem, 6_000, seed=1)
    net = en.train(sims, network=Table(), recipe=en.Recipe(epochs=4, batch=100), **OPTIONS)
    return Case(problem, sims, draws(problem, 500, seed=3), net)


def test_a_trained_table_network_has_no_order(tabled: Case) -> None:
    x = np.asarray(tabled.fresh.x)
    log_k = tabled.net.log_bayes_factor(x)
    exact = tabled.problem.log_bayes_factor(x)
    inside = tabled.net.ranges[0].contains(exact)
    assert rms((log_k - exact)[inside]) < 0.3 * rms(exact[inside])
    rows, columns = [2, 0, 3, 1], [1, 2, 0]
    # The scaling treats all places alike too, or this would hold only to a part in a hundred.
    for other in (x[:, rows], x[:, :, columns], x[:, rows][:, :, columns]):
        np.testing.assert_allclose(tabled.net.log_bayes_factor(other), log_k, rtol=1e-4, atol=1e-4)
    # A control: rows are not columns.
    turned = np.swapaxes(x[:, :3], 1, 2)
    assert np.abs(tabled.net.log_bayes_factor(np.concatenate([turned, x[:, 3:]], axis=1)) - log_k).max() > 0.5


@pytest.mark.parametrize("name", ["sets", "ordered", "tabled"])
def test_what_a_file_holds(name: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    case = request.getfixturevalue(name)
    case.net.save(tmp_path / "some.evnet")
    back = en.load(tmp_path / "some.evnet")
    assert back.architecture == case.net.architecture
    np.testing.assert_array_equal(back.members(case.fresh.x), case.net.members(case.fresh.x))
    np.testing.assert_array_equal(back.error(case.fresh.x), case.net.error(case.fresh.x))
    assert repr(back) == repr(case.net)


@pytest.mark.parametrize("name", ["sets", "ordered", "tabled"])
def test_something_is_learned(name: str, request: pytest.FixtureRequest) -> None:
    case = request.getfixturevalue(name)
    check = en.validate(case.net, case.fresh)
    assert check.score.gain > 4 * check.score.gain_error
