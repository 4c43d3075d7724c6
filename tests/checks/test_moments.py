"""Turing–Good and mean probability: identities that the right log K fulfils."""

import numpy as np
import pytest
from scipy import stats

from conftest import shifted
from evidencenet.checks.moments import mean_probability, turing_good


def test_turing_good_against_the_exact_overlap():
    log_k, labels = shifted(7, 20_000, 10_000, 1.0)
    result = turing_good(log_k, labels)
    # ∫ √(p0 p1) dx = exp(−shift²/8) for two normal densities.
    assert abs(result.log_mean_0 + 1 / 8) < 3 * result.error_0
    assert abs(result.log_mean_1 + 1 / 8) < 3 * result.error_1
    assert result.p_value > 0.01
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(result.z)), rel=1e-9)
    assert turing_good(log_k + 0.5, labels).z > 10
    assert "Turing–Good" in str(result)


def test_turing_good_scatters_as_it_says():
    z = [turing_good(*shifted(seed, 1000, 500, 1.0)).z for seed in range(300)]
    assert abs(np.mean(z)) < 4 / np.sqrt(300)
    assert np.std(z) == pytest.approx(1, rel=0.15)  # known to 4%


def test_effective_draws_of_turing_good():
    log_k, labels = shifted(7, 4000, 4000, 1.0)
    # Under model 0 K^½ is log-normal with variance 1/4 of its log: (E w)²/E w² = exp(−1/4).
    assert turing_good(log_k, labels).effective == pytest.approx(4000 * np.exp(-0.25), rel=0.05)
    assert turing_good(*shifted(7, 4000, 4000, 12.0)).effective < 10


def test_mean_probability_scatters_as_it_says():
    prior = np.log(500 / 1000)
    found = []
    for seed in range(300):
        log_k, labels = shifted(seed, 1000, 500, 1.0)
        found.append(mean_probability(log_k + prior, labels))
    z = [test.z for test in found]
    assert abs(np.mean(z)) < 4 / np.sqrt(300)
    assert np.std(z) == pytest.approx(1, rel=0.15)  # known to 4%
    assert np.std([test.value for test in found]) == pytest.approx(found[0].error, rel=0.2)


def test_mean_probability_by_hand():
    log_k, labels = shifted(8, 300, 200, 1.0)
    odds = log_k + np.log(200 / 300)
    found = mean_probability(odds, labels)
    p = 1 / (1 + np.exp(-odds))
    assert found.value == pytest.approx(p.mean(), rel=1e-12)
    assert found.share == pytest.approx(0.4)
    error = np.sqrt(300 * p[labels == 0].var(ddof=1) + 200 * p[labels == 1].var(ddof=1)) / 500
    assert found.error == pytest.approx(error, rel=1e-9)
    other = mean_probability(odds, labels, model=0)
    assert [other.value, other.z] == pytest.approx([1 - found.value, -found.z])
    assert abs(mean_probability(odds + 0.5, labels).z) > 5
    table = np.stack([np.zeros(500), odds, np.full(500, -1e9)], axis=1)
    assert mean_probability(table, labels).value == pytest.approx(found.value)


def test_mean_probability_of_certainty_and_ignorance():
    sure = mean_probability([-1000.0, -1000.0, 1000.0, 1000.0], [0, 0, 1, 1])
    assert (sure.value, sure.z, sure.effective) == (0.5, 0.0, 0.0)
    assert mean_probability(np.zeros(100), np.arange(100) % 2).p_value == 1.0


def test_turing_good_does_not_overflow():
    result = turing_good([3000.0, 2000.0, -2900.0, 1.0], [0, 0, 1, 1])
    assert result.log_mean_0 == pytest.approx(1500 - np.log(2))
    assert result.log_mean_1 == pytest.approx(1450 - np.log(2))
    assert abs(result.z) < 2
    assert turing_good(np.zeros(4), [0, 0, 1, 1]).p_value == 1.0
    assert turing_good(np.ones(4), [0, 0, 1, 1]).p_value == 0.0


def test_bad_turing_good():
    with pytest.raises(ValueError, match="finite, got 1 infinite"):
        turing_good([0.0, np.inf, 1.0, 1.0], [0, 0, 1, 1])
    with pytest.raises(ValueError, match="two draws of each model"):
        turing_good([0.0, 1.0, 1.0], [0, 1, 1])
