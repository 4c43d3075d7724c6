"""The log score: its value, its error, and what it is worth."""

import numpy as np
import pytest
from scipy import stats

from conftest import shifted
from evidencenet.checks.coverage import coverage
from evidencenet.checks.scores import score


def test_score_against_the_mutual_information():
    log_k, labels = shifted(1, 20_000, 20_000, 1.0)
    result = score(log_k, labels)
    # log K is N(1/2, 1) under model 1, and −log p(true) has the same distribution under both models.
    grid = np.linspace(-9.5, 10.5, 20_001)
    exact = np.sum(np.logaddexp(0, -grid) * stats.norm.pdf(grid, 0.5)) * (grid[1] - grid[0])
    assert abs(result.value - exact) < 3 * result.error
    assert result.nothing == pytest.approx(np.log(2), rel=1e-12)
    assert result.gain == pytest.approx(result.nothing - result.value, rel=1e-9)
    assert result.gain > 30 * result.gain_error
    assert score(2 * log_k, labels).gain < result.gain - 3 * result.gain_error
    assert score(log_k + 0.5, labels).gain < result.gain - 3 * result.gain_error


def test_error_of_the_score_is_its_scatter():
    results = [score(*shifted(seed, 100, 300, 1.0)) for seed in range(300)]
    # The standard deviation of 300 values is known to 1/√600 = 4%.
    assert np.std([r.value for r in results]) == pytest.approx(np.mean([r.error for r in results]), rel=0.13)
    gain_error = np.mean([r.gain_error for r in results])
    assert np.std([r.gain for r in results]) == pytest.approx(gain_error, rel=0.13)


def test_knowing_nothing_passes_coverage_and_gains_nothing():
    log_k, labels = shifted(2, 2000, 6000, 1.0)
    prior = np.log(6000 / 2000)
    nothing = score(np.full(8000, prior), labels)
    assert coverage(np.zeros(8000), labels).passed
    assert abs(nothing.gain) <= nothing.gain_error + 1e-12
    learned = score(log_k + prior, labels)
    assert learned.gain > 20 * learned.gain_error
    assert nothing.nothing == pytest.approx(stats.entropy([0.25, 0.75]), rel=1e-12)


def test_score_of_several_models():
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=500)
    odds = rng.normal(size=(500, 3))
    odds[:, 0] = 0
    p = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    assert score(odds, labels).value == pytest.approx(-np.log(p[np.arange(500), labels]).mean(), rel=1e-12)
    two = labels[labels < 2]
    pair = odds[labels < 2][:, :2]
    assert score(pair, two) == score(pair[:, 1], two)
    assert score([[0.0, 1e5], [0.0, -1e5]], [1, 0]).value == 0.0
    assert str(score(odds, labels)).startswith("Log score ")


@pytest.mark.parametrize(
    ("log_odds", "labels", "message"),
    [
        ([0.0, 1.0], [0], "shape"),
        ([[0.0], [0.0]], [0, 0], "two models or more"),
        ([], [], "empty"),
        ([0.0, np.inf], [0, 1], "finite, got 1"),
        ([0.0, 1.0], [0, 2], "from 0 to 1"),
        ([[0.0, 1.0, 2.0]], [-1], "from 0 to 2"),
    ],
)
def test_bad_scores(log_odds, labels, message):
    with pytest.raises(ValueError, match=message):
        score(log_odds, labels)
