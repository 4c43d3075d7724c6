"""Networks that know what a place means: sets, sequences and images."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws
from evidencenet import networks
from evidencenet.networks import DeepSet, Dense, Image, Sequence, _windows

KEY = jax.random.key(0)
ALL: list[Any] = [DeepSet(), Sequence(), Image(), Dense()]
SHAPES = {"DeepSet": (9, 2), "Sequence": (50, 1), "Image": (12, 12, 1), "Dense": (5,)}
apply = eqx.filter_jit(networks.apply)


def built(architecture: networks.Architecture, x: Any, outputs: int = 1) -> Any:
    """A function from a batch like x to raw outputs."""
    one = jax.tree.map(lambda leaf: leaf[0], x)
    network, state = networks.initialise(architecture, one, outputs, key=KEY)
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


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_set_has_no_order(outputs: int) -> None:
    x = cloud()
    run = built(DeepSet(), x, outputs)
    found = run(x)
    assert found.shape == (40, outputs)
    assert len(np.unique(found)) > 30
    close(run(reordered(x)), found)
    # A control: to move the elements without their mask is another set.
    assert np.abs(run({**reordered(x), "mask": x["mask"]}) - found).max() > 0.01
    dense = built(Dense(), x, outputs)
    assert np.abs(dense(reordered(x)) - dense(x)).max() > 0.01


@pytest.mark.parametrize("architecture", [DeepSet(), Sequence(kernel=3)], ids=lambda a: type(a).__name__)
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


# --- Sequences and images --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_windows_are_numpys_convolution(size: int) -> None:
    rng = np.random.default_rng(4)
    x, kernel = rng.normal(size=(17, 2)), rng.normal(size=(size, 2))
    with jax.enable_x64(True):
        found = np.asarray(_windows(jnp.asarray(x), (size,), 1) @ kernel.reshape(-1))
    # Networks do not turn the kernel round, and an even one reaches one place farther back.
    before = size // 2
    padded = np.pad(x, ((before, size - 1 - before), (0, 0)))
    wanted = sum(np.convolve(padded[:, c], kernel[::-1, c], mode="valid") for c in range(2))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("window", [(3,), (5,), (3, 3), (5, 2)], ids=str)
def test_windows_are_xlas_convolution(window: tuple[int, ...], step: int) -> None:
    rng = np.random.default_rng(5)
    axes, channels, outputs = len(window), 3, 4
    x = rng.normal(size=(*(13, 10)[:axes], channels)).astype(np.float32)
    # The last axis is the slowest of the neighbours.
    weight = rng.normal(size=(*window[::-1], channels, outputs)).astype(np.float32)
    found = np.asarray(_windows(jnp.asarray(x), window, step) @ weight.reshape(-1, outputs))
    kernel = weight.transpose(*range(axes - 1, -1, -1), axes, axes + 1)
    letters = "HW"[:axes]
    wanted = jax.lax.conv_general_dilated(
        jnp.asarray(x[None]),
        jnp.asarray(kernel),
        (step,) * axes,
        [(size // 2, size - 1 - size // 2) for size in window],
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
    )[0]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outputs", [1, 3])
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
    ],
    ids=str,
)
def test_shapes(architecture: Any, shape: tuple[int, ...], outputs: int) -> None:
    x = np.random.default_rng(6).normal(size=(5, *shape)).astype(np.float32)
    found = built(architecture, x, outputs)(x)
    assert found.shape == (5, outputs)
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
    "x", [np.zeros(5), np.zeros((5, 2)), np.zeros((2, 2, 2, 2)), {"x": np.zeros((5, 5, 1))}]
)
def test_no_image(x: Any) -> None:
    with pytest.raises(ValueError, match=r"Image wants draws of shape \(height, width, channels\)"):
        Image()(x, 1, key=KEY)


def test_a_network_that_does_not_suit_the_draws(small: Case) -> None:
    with pytest.raises(ValueError, match="Image wants draws of shape"):
        en.train(small.sims, network=Image(), recipe=en.Recipe(epochs=1), progress=False)


@pytest.mark.parametrize("kind", [DeepSet, Sequence, Image])
def test_sizes_below_one(kind: Any) -> None:
    for name in ("width", "hidden"):
        with pytest.raises(ValueError, match=f"{kind.__name__}: {name} = 0; wanted at least 1"):
            kind(**{name: 0})


@pytest.mark.parametrize("architecture", ALL, ids=lambda a: type(a).__name__)
def test_descriptions(architecture: Any) -> None:
    import json

    kind = type(architecture)
    for one in (architecture, kind(width=7, hidden=3)):
        assert networks.from_dict(json.loads(json.dumps(networks.to_dict(one)))) == one
    # One network is told from another by its numbers.
    assert networks.to_dict(kind(hidden=3)) != networks.to_dict(kind())


@pytest.mark.parametrize("architecture", ALL, ids=lambda a: type(a).__name__)
def test_operations_grow_with_the_network(architecture: Any) -> None:
    x = np.zeros(SHAPES[type(architecture).__name__], np.float32)
    small, large = (networks.operations(type(architecture)(hidden=hidden), x, 1) for hidden in (64, 256))
    # Two for each of the last layers' weights in a forward pass, and as much again for each gradient.
    assert large - small > 3 * 2 * (256**2 - 64**2)
    assert large < 200 * (256**2 + 1e4)


# --- Trained ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sets() -> Case:
    """Sets of points in a masked dict; naming a recipe takes the network that suits the shape."""
    problem = en.problems.correlated_cloud(capacity=20)
    sims = draws(problem, 10_000, seed=1)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=6, batch=100), seed=2, progress=False)
    return Case(problem, sims, draws(problem, 500, seed=3), net)


@pytest.fixture(scope="module")
def ordered() -> Case:
    problem = en.problems.autocorrelation(length=20)
    sims = draws(problem, 6_000, seed=1)
    net = en.train(
        sims, network=Sequence(), members=2, recipe=en.Recipe(epochs=3, batch=100), seed=2, progress=False
    )
    return Case(problem, sims, draws(problem, 500, seed=3), net)


def test_a_trained_set_network_has_no_order(sets: Case) -> None:
    assert sets.net.architecture == DeepSet()
    x = sets.fresh.x
    assert isinstance(x, dict)
    log_k = sets.net.log_bayes_factor(x)
    assert np.std(log_k) > 0.1
    np.testing.assert_allclose(sets.net.log_bayes_factor(reordered(x)), log_k, rtol=1e-4, atol=1e-5)
    hidden = {**x, "x": np.where(x["mask"][:, :, None], x["x"], 123.0)}
    np.testing.assert_array_equal(sets.net.log_bayes_factor(hidden), log_k)


@pytest.mark.parametrize("name", ["sets", "ordered"])
def test_what_a_file_holds(name: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    case = request.getfixturevalue(name)
    case.net.save(tmp_path / "some.evnet")
    back = en.load(tmp_path / "some.evnet")
    assert back.architecture == case.net.architecture
    np.testing.assert_array_equal(back.members(case.fresh.x), case.net.members(case.fresh.x))
    np.testing.assert_array_equal(back.error(case.fresh.x), case.net.error(case.fresh.x))
    assert repr(back) == repr(case.net)


@pytest.mark.parametrize("name", ["sets", "ordered"])
def test_something_is_learned(name: str, request: pytest.FixtureRequest) -> None:
    case = request.getfixturevalue(name)
    check = en.validate(case.net, case.fresh)
    assert check.score.gain > 4 * check.score.gain_error
