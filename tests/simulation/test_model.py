"""Models: what each kind of simulator is handed, what comes back, and the messages for mistakes."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from evidencenet._common.arrays import as_data, finite_rows, join, layout
from evidencenet.simulation.model import DrawError, Model


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_batch_without_a_prior_is_the_simulator_itself() -> None:
    model = Model("flat", lambda rng, n: rng.normal(size=(n, 3)))
    x, theta = model.draw(rng(), 7)
    assert theta is None
    np.testing.assert_array_equal(x, rng().normal(size=(7, 3)))


def test_batch_with_a_prior_draws_parameters_first() -> None:
    model = Model(
        "level",
        prior=lambda rng, n: rng.normal(size=n),
        simulate=lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 2)),
    )
    x, theta = model.draw(rng(), 5)
    expected = rng()
    mean = expected.normal(size=5)
    np.testing.assert_array_equal(theta, mean)
    np.testing.assert_array_equal(x, mean[:, None] + expected.normal(size=(5, 2)))


def test_one_at_a_time_stacks_arrays_dicts_and_numbers() -> None:
    model = Model(
        "one",
        prior=lambda rng: {"a": rng.normal(), "b": rng.normal(size=2)},
        simulate=lambda rng, theta: {"y": theta["a"] + theta["b"], "mask": theta["b"] > 0, "count": 3},
        kind="one",
    )
    x, theta = model.draw(rng(), 4)
    assert isinstance(x, dict)
    assert isinstance(theta, dict)
    assert (theta["a"].shape, theta["b"].shape) == ((4,), (4, 2))
    np.testing.assert_array_equal(x["y"], theta["a"][:, None] + theta["b"])
    np.testing.assert_array_equal(x["mask"], theta["b"] > 0)
    np.testing.assert_array_equal(x["count"], np.full((4, 1), 3.0))
    number, _ = Model("number", lambda rng: 2, kind="one").draw(rng(), 3)
    np.testing.assert_array_equal(number, np.full((3, 1), 2.0))


def test_tuples_and_named_tuples_of_parameters_reach_the_simulator_as_such() -> None:
    Theta = namedtuple("Theta", "mean scale")
    model = Model(
        "named",
        prior=lambda rng, n: Theta(rng.normal(size=n), rng.uniform(size=n)),
        simulate=lambda rng, theta: theta.mean + theta.scale,
    )
    x, theta = model.draw(rng(), 3)
    assert isinstance(x, np.ndarray)
    assert isinstance(theta, Theta)
    np.testing.assert_array_equal(x[:, 0], theta.mean + theta.scale)
    single = Model(
        "named",
        prior=lambda rng: Theta(rng.normal(), 2.0),
        simulate=lambda r, t: t.mean * t.scale,
        kind="one",
    )
    x, theta = single.draw(rng(), 3)
    assert isinstance(x, np.ndarray)
    assert isinstance(theta, Theta)
    np.testing.assert_array_equal(x[:, 0], 2 * theta.mean)
    plain = Model("plain", prior=lambda rng: (1.0, 2.0), simulate=lambda r, t: t[0] + t[1], kind="one")
    np.testing.assert_array_equal(plain.draw(rng(), 2)[0], [[3.0], [3.0]])


def test_jax_simulator_has_the_right_distribution_and_follows_the_seed() -> None:
    import jax

    model = Model(
        "jax",
        prior=lambda key: 3.0 + 2.0 * jax.random.normal(key),
        simulate=lambda key, mean: mean + jax.random.normal(key, (2,)),
        kind="jax",
    )
    n = 4000
    x, theta = model.draw(rng(), n)
    assert type(x) is np.ndarray
    assert type(theta) is np.ndarray
    assert (x.shape, theta.shape) == ((n, 2), (n,))
    # Var x = 4 + 1, covariance of the two = 4, and the noise is independent of theta; 4 sigma each.
    assert abs(x.mean() - 3) < 4 * np.sqrt((4 + 1 / 2) / n)
    assert abs(theta.var() - 4) < 4 * 4 * np.sqrt(2 / n)
    noise = x - theta[:, None]
    assert np.all(np.abs(noise.var(axis=0) - 1) < 4 * np.sqrt(2 / n))
    assert abs(np.corrcoef(noise[:, 0], theta)[0, 1]) < 4 / np.sqrt(n)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 4 / np.sqrt(n)
    np.testing.assert_array_equal(model.draw(rng(), n)[0], x)
    assert not np.any(model.draw(rng(2), n)[0] == x)


def test_jax_simulator_is_compiled_once_for_each_n() -> None:
    import jax

    traced = []

    def simulator(key: Any) -> Any:
        traced.append(1)
        return jax.random.normal(key, (2,))

    model = Model("jax", simulator, kind="jax")
    generator = rng()
    draws = [model.draw(generator, 5)[0] for _ in range(3)]
    assert len(traced) == 1
    assert not np.any(draws[0] == draws[1])
    model.draw(generator, 6)
    assert len(traced) == 2


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.zeros((2, 3), np.float32), np.float32),
        (np.zeros((2, 3), np.float16), np.float32),
        (np.zeros((2, 3)), np.float64),
        (np.zeros((2, 3), np.longdouble), np.float64),
        (np.zeros((2, 3), np.uint8), np.float64),
        (np.zeros((2, 3), ">f4"), np.float32),
        (np.zeros((2, 3), bool), np.float64),
        ([[1, 2, 3], [4, 5, 6]], np.float64),
    ],
)
def test_types_of_data(given: Any, dtype: Any) -> None:
    x = as_data(given)
    assert isinstance(x, np.ndarray)
    assert x.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(x, np.asarray(given, dtype=dtype))


def test_data_of_the_right_type_are_not_copied_and_masks_stay_boolean() -> None:
    array = np.zeros((4, 2), np.float32)
    assert as_data(array) is array
    assert np.shares_memory(as_data(array[:, 0]), array)
    x = as_data({"mask": np.ones(4, bool), "y": array})
    assert isinstance(x, dict)
    assert x["mask"].dtype == bool
    assert layout(x) == {"mask": "(1,) booleans", "y": "(2,) numbers"}
    np.testing.assert_array_equal(join(x, x)["mask"], np.ones((8, 1), bool))


def test_finite_rows_in_blocks() -> None:
    x = np.zeros((3000, 500), np.float32)  # several blocks
    bad = [0, 523, 524, 2999]
    x[bad, [0, 499, 3, 499]] = [np.nan, np.inf, -np.inf, np.nan]
    assert np.flatnonzero(~finite_rows(x)).tolist() == bad
    assert finite_rows(np.ones((5, 2), bool)).all()
    assert not finite_rows(np.full((2, 3, 4), np.nan)).any()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (None, TypeError, "must be an array .* got None"),
        (3, TypeError, "got a int"),
        ({}, ValueError, "empty dict"),
        ({1: np.zeros(2)}, TypeError, "keys of x must be strings"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, ValueError, r"differ in length: \{'a': 2, 'b': 3\}"),
        ([[1], [2, 3]], ValueError, "rows that differ in shape"),
        (np.array([None]), TypeError, "dtype object; wanted numbers"),
        (np.array(["a"]), TypeError, "x holds text, such as 'a'; wanted numbers"),
        (np.array(["a", None]), TypeError, "x holds text, such as 'a'; wanted numbers"),
        (np.zeros(2, complex), TypeError, "real and imaginary parts as two columns"),
        (np.array(1.0), ValueError, "single number; wanted one row per draw"),
        (np.ma.masked_array([1.0], [True]), TypeError, "would lose its mask"),
        ({"a": np.array([None])}, TypeError, r"x\['a'\] has dtype object"),
    ],
)
def test_what_is_not_data(given: Any, error: type[BaseException], message: str) -> None:
    with pytest.raises(error, match=message):
        as_data(given)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Model("short", lambda rng, n: rng.normal(size=(n - 1, 3))),
            r"'short': simulate returned 4 rows where 5 were wanted; .* simulate\(rng, n\) -> n rows",
        ),
        (
            Model("short", prior=lambda rng, n: np.zeros(2), simulate=lambda rng, t: t),
            r"prior returned 2 rows where 5 were wanted; .*simulate\(rng, theta\) -> n rows",
        ),
        (
            Model("scalar", prior=lambda rng, n: 1.0, simulate=lambda rng, t: t),
            "prior returned a single number",
        ),
        (Model("none", lambda rng, n: None), "'none': simulate did not return data.*got None"),
        (Model("objects", lambda rng, n: np.array([None] * n)), "'objects': .*dtype object"),
        (
            Model("dicts", prior=lambda rng, n: [{"a": 1}] * n, simulate=lambda rng, t: t),
            "prior returned a list; wanted an array, or a dict or tuple of arrays",
        ),
        (
            Model("ragged", lambda rng: rng.normal(size=(2, rng.integers(1, 9))), kind="one"),
            r"'ragged': simulate must return the same kind of draw.*the first had shape \(2, \d\), another",
        ),
        (
            Model("keys", lambda rng: {"a" if rng.random() < 0.5 else "b": 1.0}, kind="one"),
            "'keys': .*the first was a dict with keys .*, another was not",
        ),
        (
            Model("tuples", prior=lambda rng: (1,) * rng.integers(1, 9), simulate=lambda r, t: 1, kind="one"),
            "'tuples': prior must .*the first was a tuple of .*, another was not",
        ),
        (Model("masked", lambda rng: np.ma.masked_array([1.0], [True]), kind="one"), "would lose its mask"),
    ],
)
def test_mistakes_in_a_model(model: Model, message: str) -> None:
    with pytest.raises(DrawError, match=message):
        model.draw(rng(), 5)


def test_a_mistake_is_a_value_error_and_a_type_error() -> None:
    assert issubclass(DrawError, ValueError)
    assert issubclass(DrawError, TypeError)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="name must be a string, got a int"):
        Model(3, lambda rng, n: n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        Model(" ", lambda rng, n: n)
    with pytest.raises(TypeError, match="'a': simulate must be a function, got None"):
        Model("a")
    with pytest.raises(TypeError, match="'a': prior must be a function or None, got 1"):
        Model("a", print, prior=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"kind must be 'batch' .* got 'many'"):
        Model("a", print, kind="many")  # type: ignore[arg-type]
    model = Model("a", lambda rng, n: np.zeros(n))
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random.Generator.*got 3"):
        model.draw(3, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        model.draw(rng(), 0)
    with pytest.raises(AttributeError):
        model.name = "b"  # type: ignore[misc]


def test_repr_names_the_functions() -> None:
    def trend(rng: np.random.Generator, theta: Any) -> Any:
        return theta

    assert repr(Model("a", trend, prior=np.zeros)) == "Model('a', simulate=trend, prior=zeros, kind='batch')"
    assert repr(Model("b", trend)) == "Model('b', simulate=trend, kind='batch')"
