import numpy as np
import pytest
from scipy import stats

from evidencenet._common.estimate import rank_p_value
from evidencenet.checks.coverage import coverage
from evidencenet.checks.moments import mean_probability, turing_good
from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import score


def shifted(seed, n0, n1, shift):
    """Draw from N(0, 1) or N(shift, 1); the exact log K is shift·x − shift²/2."""
    labels = np.repeat([0, 1], [n0, n1])
    x = np.random.default_rng(seed).normal(size=n0 + n1) + shift * labels
    return shift * x - shift**2 / 2, labels


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


def test_validated_range_by_counting():
    log_k, labels = shifted(4, 5000, 3000, 1.0)
    found = validated_range(log_k, labels, least=10)
    for model in (0, 1):
        assert np.sum(log_k[labels == model] >= found.high) >= 10
        assert np.sum(log_k[labels == model] <= found.low) >= 10
    assert np.sum(log_k[labels == 0] >= found.high) == 10
    assert np.sum(log_k[labels == 1] <= found.low) == 10
    assert found.n == (5000, 3000)
    # K > e^L has a probability of at most e^−L under model 0, so ten of 5000 draws lie below log 500.
    assert 0 < found.high < np.log(500)
    assert found.contains([found.low, 0.0, found.high, 50.0, -50.0, np.nan]).tolist() == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert "vouched for by 5,000 + 3,000" in str(found)


def test_validated_range_grows_with_draws():
    few, many = (validated_range(*shifted(5, n, n, 2.0)) for n in (1000, 100_000))
    assert many.low < few.low < 0 < few.high < many.high


@pytest.mark.parametrize("given", [shifted(6, 500, 500, 20.0), shifted(6, 9, 500, 1.0)])
def test_validated_range_can_be_empty(given):
    found = validated_range(*given)
    assert found.empty
    assert (found.low, found.high) == (0.0, 0.0)
    assert not found.contains(0.0)
    assert str(found).startswith("No log K")


def test_validated_range_of_models_that_cannot_be_told_apart():
    found = validated_range(np.zeros(40), np.arange(40) % 2)
    assert (found.low, found.high, found.empty) == (0.0, 0.0, False)
    assert found.contains(0.0)
    assert not found.contains(0.1)


def test_what_a_range_confirms():
    found = validated_range(*shifted(4, 5000, 3000, 1.0))
    assert [found.confirmed(x) for x in (-99.0, 0.5, 99.0)] == [found.low, 0.5, found.high]
    assert (found.reversed().low, found.reversed().n) == (-found.high, (3000, 5000))
    assert np.isnan(validated_range(*shifted(6, 9, 500, 1.0)).confirmed(1.0))


def test_bad_range():
    with pytest.raises(ValueError, match="least must be at least 1, got 0"):
        validated_range([0.0, 1.0], [0, 1], least=0)
    with pytest.raises(ValueError, match="NaN"):
        validated_range([0.0, np.nan], [0, 1])


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
