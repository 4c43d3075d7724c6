"""Standardisation: exact numbers, awkward scales, masks and constants."""

import numpy as np
import pytest

from evidencenet.data import Data
from evidencenet.scaling import Standardise


def standardised(x: Data) -> np.ndarray:
    scaled = Standardise.fit(x)(x)
    assert isinstance(scaled, np.ndarray)
    return scaled


def test_mean_and_variance() -> None:
    rng = np.random.default_rng(1)
    scaled = standardised(3.0 + 5.0 * rng.normal(size=(10_000, 2, 3)))
    assert scaled.dtype == np.float32
    assert scaled.shape == (10_000, 2, 3)
    # Single precision: 1e-7 per number.
    np.testing.assert_allclose(scaled.mean(axis=0, dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.var(axis=0, dtype=np.float64), 1, atol=1e-6)


def test_exact_numbers() -> None:
    x = np.array([[1.0, 10.0], [3.0, 20.0], [1.0, 30.0], [3.0, 20.0]])
    scaled = standardised(x)
    np.testing.assert_array_equal(scaled[:, 0], [-1, 1, -1, 1])
    np.testing.assert_allclose(scaled[:, 1], np.array([-1, 0, 1, 0]) * np.sqrt(2), rtol=1e-6)


def test_fresh_data_are_scaled_as_the_training_data() -> None:
    scaling = Standardise.fit(np.array([[0.0], [2.0]]))
    np.testing.assert_array_equal(scaling(np.array([[1.0], [11.0]])), [[0], [10]])


@pytest.mark.parametrize(("scale", "offset"), [(1e-12, 0.0), (1e12, 0.0), (1.0, 1e9), (1e-3, -1e9)])
def test_scales_and_offsets_change_nothing(scale: float, offset: float) -> None:
    z = np.random.default_rng(2).normal(size=(5_000, 3))
    # At an offset of 1e9 double precision resolves 1e-7.
    tolerance = 1e-6 + 1e-6 * abs(offset) / (1e9 * scale)
    np.testing.assert_allclose(standardised(offset + scale * z), standardised(z), atol=tolerance)


def test_single_precision_on_an_offset() -> None:
    # Float32 resolves 1/16 at 1e6: the rounding is the data's own, and none is added.
    x = (1e6 + 10 * np.random.default_rng(3).normal(size=(5_000, 1))).astype(np.float32)
    exact = (x.astype(np.float64) - x.mean(dtype=np.float64)) / x.std(dtype=np.float64)
    assert np.std(standardised(x) - exact) < 1e-6


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-300, 3e5])
def test_a_constant_becomes_zero(kind: type, value: float) -> None:
    x: np.ndarray = np.full((70_001, 2), value, kind)
    x[:, 1] = np.random.default_rng(4).normal(size=len(x))
    scaling = Standardise.fit(x)
    scaled = scaling(x)
    assert isinstance(scaled, np.ndarray)
    assert np.all(scaled[:, 0] == 0)
    # Also where an observation differs from the constant, which training has nothing to say about.
    other = scaling(np.array([[value + 5.0, 0.0]], kind))
    assert isinstance(other, np.ndarray)
    assert other[0, 0] == 0


def test_dicts_and_masks() -> None:
    rng = np.random.default_rng(5)
    x: Data = {"x": 2 + 3 * rng.normal(size=(1_000, 4)), "mask": rng.random((1_000, 4)) < 0.5}
    scaling = Standardise.fit(x)
    scaled = scaling(x)
    assert isinstance(scaled, dict)
    assert scaled["mask"].dtype == bool
    np.testing.assert_array_equal(scaled["mask"], x["mask"])
    np.testing.assert_array_equal(scaled["x"], standardised(x["x"]))


def test_keys_come_in_the_order_of_the_training_data() -> None:
    # Whoever flattens a dict relies on it, whichever way round a user writes an observation.
    x: Data = {"b": np.array([[1.0], [3.0]]), "a": np.array([[5.0], [6.0]])}
    scaled = Standardise.fit(x)({"a": x["a"], "b": x["b"]})
    assert list(scaled) == ["b", "a"]


@pytest.mark.parametrize("as_dict", [False, True])
def test_arrays_rebuild_it(as_dict: bool) -> None:
    rng = np.random.default_rng(6)
    values = 1e9 + rng.normal(size=(50, 3))
    x: Data = {"with/slash": values, "mask": values > 1e9} if as_dict else values
    scaling = Standardise.fit(x)
    keys = tuple(x) if isinstance(x, dict) else None
    again = Standardise.from_arrays(scaling.arrays(), keys)
    first, second = scaling(x), again(x)
    if isinstance(first, dict) and isinstance(second, dict):
        assert list(first) == list(second)
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])
    else:
        np.testing.assert_array_equal(first, second)


def test_the_data_are_not_changed() -> None:
    x = np.random.default_rng(7).normal(size=(100, 2)).astype(np.float32)
    before = x.copy()
    standardised(x)
    np.testing.assert_array_equal(x, before)
