"""Numbers with errors, and fractions of draws."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import beta

from evidencenet._common.estimate import Estimate, fraction, rank_p_value


def test_an_estimate_is_a_number_and_prints_with_its_error() -> None:
    assert str(Estimate(1.23456, 0.0234)) == "1.235 ± 0.023"
    assert repr(Estimate(1.23456, 0.0234)) == "Estimate(1.235 ± 0.023)"
    assert float(Estimate(np.array([0.5]), np.array([0.1]))) == 0.5
    assert str(Estimate(np.array([1.0, 2.0]), np.array([0.1, 0.2]))) == "1.00 ± 0.10, 2.00 ± 0.20"
    with pytest.raises(ValueError, match="size 1"):
        float(Estimate(np.zeros(2), np.zeros(2)))


def test_the_error_of_a_fraction_is_that_of_its_posterior() -> None:
    count, n = np.array([0, 3, 50, 100]), np.array([100, 10, 100, 100])
    found = fraction(count, n)
    np.testing.assert_allclose(found.value, count / n)
    np.testing.assert_allclose(found.error, beta(count + 1, n - count + 1).std(), rtol=1e-12)
    # With many draws that is the binomial error.
    np.testing.assert_allclose(fraction(30_000, 100_000).error, np.sqrt(0.21 / 1e5), rtol=1e-3)
    assert isinstance(fraction(1, 2).value, float)
    assert np.isnan(fraction(0, 0).value)
    assert np.isnan(fraction(0, 0).error)


def test_rank_p_value_by_counting():
    rng = np.random.default_rng(8)
    reference, value = rng.integers(5, size=30).astype(float), np.arange(-1.0, 7.0).reshape(2, 4)
    expected = (1 + (reference >= value[..., None]).sum(axis=-1)) / 31
    assert rank_p_value(value, reference) == pytest.approx(expected)
    assert rank_p_value(2.0, reference).shape == ()


def test_rank_p_value_is_uniform_for_reference_draws_and_small_for_others():
    rng = np.random.default_rng(9)
    reference, value = rng.normal(size=2000), rng.normal(size=2000)
    assert stats.kstest(rank_p_value(value, reference), "uniform").pvalue > 1e-3
    assert stats.kstest(rank_p_value(value + 0.5, reference), "uniform").pvalue < 1e-6


def test_bad_rank_p_value():
    with pytest.raises(ValueError, match="one-dimensional and not empty"):
        rank_p_value(1.0, [])
    with pytest.raises(ValueError, match="NaN"):
        rank_p_value(np.nan, [1.0])
