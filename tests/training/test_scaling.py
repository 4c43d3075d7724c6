"""Scaling: exact numbers, awkward scales, masks, constants, tails, and places that are treated alike."""

from typing import Any

import numpy as np
import pytest

from evidencenet._common.arrays import Data
from evidencenet.training.scaling import Scaling


def scaled(x: np.ndarray, **options: Any) -> np.ndarray:
    found = Scaling.fit(x, **options)(x)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert found.shape == x.shape
    return found


def test_mean_and_variance() -> None:
    rng = np.random.default_rng(1)
    found = scaled(3.0 + 5.0 * rng.normal(size=(10_000, 2, 3)))
    # Single precision: 1e-7 per number.
    np.testing.assert_allclose(found.mean(axis=0, dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(found.var(axis=0, dtype=np.float64), 1, atol=1e-6)


def test_exact_numbers() -> None:
    x = np.array([[1.0, 10.0], [3.0, 20.0], [1.0, 30.0], [3.0, 20.0]])
    found = scaled(x)
    np.testing.assert_array_equal(found[:, 0], [-1, 1, -1, 1])
    np.testing.assert_allclose(found[:, 1], np.array([-1, 0, 1, 0]) * np.sqrt(2), rtol=1e-6)


def test_fresh_data_are_scaled_as_the_training_data() -> None:
    scaling = Scaling.fit(np.array([[0.0], [2.0]]))
    np.testing.assert_array_equal(scaling(np.array([[1.0], [11.0]])), [[0], [10]])


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize(("scale", "offset"), [(1e-12, 0.0), (1e12, 0.0), (1.0, 1e9), (1e-3, -1e9)])
def test_scales_and_offsets_change_nothing(scale: float, offset: float, squash: bool) -> None:
    z = np.random.default_rng(2).normal(size=(5_000, 3))
    # At an offset of 1e9 double precision resolves 1e-7.
    tolerance = 1e-6 + 1e-6 * abs(offset) / (1e9 * scale)
    found = scaled(offset + scale * z, squash=squash)
    np.testing.assert_allclose(found, scaled(z, squash=squash), atol=tolerance)


def test_single_precision_on_an_offset() -> None:
    # Float32 resolves 1/16 at 1e6: the rounding is the data's own, and none is added.
    x = (1e6 + 10 * np.random.default_rng(3).normal(size=(5_000, 1))).astype(np.float32)
    exact = (x.astype(np.float64) - x.mean(dtype=np.float64)) / x.std(dtype=np.float64)
    assert np.std(scaled(x) - exact) < 1e-6


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-300, 3e5])
def test_a_constant_becomes_zero(kind: type, value: float, squash: bool) -> None:
    x: np.ndarray = np.full((70_001, 2), value, kind)
    x[:, 1] = np.random.default_rng(4).normal(size=len(x))
    scaling = Scaling.fit(x, squash=squash)
    found = scaling(x)
    assert isinstance(found, np.ndarray)
    assert np.all(found[:, 0] == 0)
    # Also where an observation differs from the constant, which training has nothing to say about.
    other = scaling(np.array([[value + 5.0, 0.0]], kind))
    assert isinstance(other, np.ndarray)
    assert other[0, 0] == 0


# --- Tails -----------------------------------------------------------------------------------------------


def test_squashed_by_median_and_quartiles() -> None:
    x = np.random.default_rng(5).standard_cauchy(size=(20_000, 2)) * [1.0, 50.0] + [0.0, -7.0]
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    wanted = np.arcsinh(1.349 * (x - middle) / (high - low))
    np.testing.assert_allclose(scaled(x, squash=True), wanted, rtol=1e-4, atol=1e-5)
    # The largest of 40,000 numbers is some 10⁴ quartiles out, and comes to 10 or so: not so without.
    assert np.abs(scaled(x, squash=True)).max() < 15
    assert np.abs(scaled(x)).max() > 50


def test_positive_numbers_over_decades_by_their_logarithm() -> None:
    rng = np.random.default_rng(6)
    z = rng.normal(size=(20_000, 1))
    x = np.concatenate([np.exp(3 * z), -np.exp(3 * z), np.exp(0.1 * z)], axis=1)
    scaling = Scaling.fit(x, squash=True)
    np.testing.assert_array_equal(scaling.logarithm, [True, False, False])
    # The quartiles of 20,000 normal numbers give their deviation to 1%.
    np.testing.assert_allclose(np.sinh(scaled(x, squash=True)[:, 0]), z[:, 0], atol=0.03, rtol=0.03)
    assert not np.any(Scaling.fit(x).logarithm)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_observations_that_have_no_logarithm(kind: type) -> None:
    x: np.ndarray = np.exp(3 * np.random.default_rng(7).normal(size=(1_000, 2))).astype(kind)
    scaling = Scaling.fit(x, squash=True)
    assert np.all(scaling.logarithm)
    found = scaling(np.array([[0.0, -5.0], [np.finfo(kind).max, x.min()]], kind))
    assert isinstance(found, np.ndarray)
    assert np.all(np.isfinite(found))
    # As low as can be, below all that was seen.
    smallest = scaling(x)
    assert isinstance(smallest, np.ndarray)
    assert np.all(found[0] < smallest.min(axis=0))
    assert found[0, 0] == scaling(np.full((1, 2), -1.0, kind))[0, 0]  # type: ignore[index]


@pytest.mark.parametrize("decades", [False, True])
def test_numbers_of_which_most_are_the_same(decades: bool) -> None:
    # Detections over many decades among values of 1, or counts among zeros: the quartiles coincide.
    rng = np.random.default_rng(8)
    rest = np.exp(4 * np.abs(rng.normal(size=(10_000, 1)))) if decades else rng.normal(size=(10_000, 1))
    same = rng.random((10_000, 1)) < 0.8
    x = np.where(same, 1.0, rest)
    scaling = Scaling.fit(x, squash=True)
    assert np.all(scaling.logarithm == decades)
    found = np.sinh(scaled(x, squash=True))
    assert np.all(found[same] == 0)
    # Of order one: a network learns nothing from a variation of 10⁻³.
    assert 0.2 < np.std(found) < 5


# --- All places alike ------------------------------------------------------------------------------------


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("shape", [(6,), (6, 2), (4, 3, 2)])
def test_shared_scaling_is_the_same_everywhere(shape: tuple[int, ...], squash: bool) -> None:
    rng = np.random.default_rng(9)
    place = np.arange(np.prod(shape)).reshape(shape)
    x = rng.normal(size=(500, *shape)) * (1 + place) + place
    scaling = Scaling.fit(x, squash=squash, shared=True)
    # The same number, wherever it stands, becomes the same; only channels differ.
    everywhere = scaling(np.full((1, *shape), 0.3))
    assert isinstance(everywhere, np.ndarray)
    channels = everywhere.reshape(-1, shape[-1] if len(shape) > 1 else 1)
    assert np.all(channels == channels[0])
    assert len(set(channels[0].tolist())) == channels.shape[1]
    apart = Scaling.fit(x, squash=squash)(np.full((1, *shape), 0.3))
    assert len(np.unique(np.asarray(apart))) > channels.shape[1]
    if not squash:
        found = np.asarray(scaling(x), np.float64).reshape(-1, channels.shape[1])
        np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_allclose(found.var(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize("squash", [False, True])
def test_shared_scaling_counts_only_elements_that_are_there(squash: bool) -> None:
    rng = np.random.default_rng(10)
    values, mask = 5 + 2 * rng.normal(size=(2_000, 4, 2)), rng.random((2_000, 4)) < 0.3
    x: Data = {"x": values, "size": values[:, :, 0], "mask": mask}
    noise: Data = {
        "x": np.where(mask[:, :, None], values, -1e6),
        "size": np.where(mask, values[:, :, 0], 1e9),
        "mask": mask,
    }
    first, second = (Scaling.fit(data, squash=squash, shared=True) for data in (x, noise))
    for key in ("x", "size"):
        np.testing.assert_array_equal(first.shift[key], second.shift[key])
        np.testing.assert_array_equal(first.factor[key], second.factor[key])
    there = np.asarray(first(x)["x"])[mask]
    # 2,400 elements know mean and deviation to 2%; asinh makes a unit variance about 0.6.
    np.testing.assert_allclose(there.mean(axis=0), 0, atol=0.08)
    assert np.all(np.abs(there.std(axis=0) - (0.78 if squash else 1)) < 0.08)
    # Without sharing, each place is scaled by what stands there, whatever the mask says.
    assert np.all(Scaling.fit(noise).shift["x"] != Scaling.fit(x).shift["x"])


# --- Dicts and files -------------------------------------------------------------------------------------


def test_dicts_and_masks() -> None:
    rng = np.random.default_rng(11)
    x = {"x": 2 + 3 * rng.normal(size=(1_000, 4)), "mask": rng.random((1_000, 4)) < 0.5}
    found = Scaling.fit(x)(x)
    assert isinstance(found, dict)
    assert found["mask"].dtype == bool
    np.testing.assert_array_equal(found["mask"], x["mask"])
    # What a mask leaves out does not count, whatever stands there.
    np.testing.assert_array_equal(found["x"], scaled(x["x"]) * x["mask"])


def test_keys_come_in_the_order_of_the_training_data() -> None:
    # Whoever flattens a dict relies on it, whichever way round a user writes an observation.
    x: Data = {"b": np.array([[1.0], [3.0]]), "a": np.array([[5.0], [6.0]])}
    found = Scaling.fit(x)({"a": x["a"], "b": x["b"]})
    assert list(found) == ["b", "a"]


@pytest.mark.parametrize(
    "options", [{}, {"squash": True}, {"shared": True}, {"squash": True, "shared": True}]
)
@pytest.mark.parametrize("as_dict", [False, True])
def test_arrays_rebuild_it(as_dict: bool, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(12)
    values = np.exp(4 * rng.normal(size=(200, 3)))
    x: Data = {"with/slash": values, "mask": values > 1} if as_dict else values
    scaling = Scaling.fit(x, **options)
    keys = tuple(x) if isinstance(x, dict) else None
    again = Scaling.from_arrays(scaling.arrays(), keys, scaling.squash)
    first, second = scaling(x), again(x)
    if isinstance(first, dict) and isinstance(second, dict):
        assert list(first) == list(second)
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])
    else:
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("squash", [False, True])
def test_the_data_are_not_changed(squash: bool) -> None:
    x = np.exp(4 * np.random.default_rng(13).normal(size=(100, 2))).astype(np.float32)
    before = x.copy()
    scaled(x, squash=squash)
    np.testing.assert_array_equal(x, before)


# --- Logarithms ------------------------------------------------------------------------------------------


def test_logarithm_of_positive_numbers_zeros_included() -> None:
    rng = np.random.default_rng(0)
    x = np.exp(0.6 * rng.normal(size=(5000, 2)))
    x[::50, 0] = 0
    x[:, 1] = rng.normal(size=5000)
    scaling = Scaling.fit(x, logarithm=True)
    # Only of numbers that are never negative.
    assert scaling.logarithm.tolist() == [True, False]
    smallest = x[:, 0][x[:, 0] > 0].min()
    wanted = np.log(np.maximum(x[:, 0], smallest / 2))
    found = scaling(x)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found[:, 0], (wanted - wanted.mean()) / wanted.std(), atol=1e-4)
    # What varies by less than a factor of four stays as it is.
    assert not np.any(Scaling.fit(1 + 0.1 * rng.random((100, 3)), logarithm=True).logarithm)
    again = Scaling.from_arrays(scaling.arrays(), None, scaling.squash)
    np.testing.assert_array_equal(again(x), found)
