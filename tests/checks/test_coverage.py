import dataclasses

import numpy as np
import pytest
from scipy import stats

from conftest import shifted
from evidencenet.checks.coverage import coverage


def widened(seed, n0, n1, extra):
    """Draw from N(0, 1) or N(0, 1 + extra²); log K is bounded below and skewed."""
    labels = np.repeat([0, 1], [n0, n1])
    variance = 1 + extra**2
    x = np.random.default_rng(seed).normal(size=n0 + n1) * np.where(labels, np.sqrt(variance), 1)
    return 0.5 * x**2 * (1 - 1 / variance) - 0.5 * np.log(variance), labels


def false_alarms(problem, n0, n1, size, *, level=0.05, **options):
    return sum(coverage(*problem(seed, n0, n1, size), **options).p_value < level for seed in range(200))


# At a rate of 5%, 200 trials give more false alarms than this with a probability of at most 0.001.
MOST = int(stats.binom.isf(1e-3, 200, 0.05))


@pytest.mark.parametrize("binning", ["width", "count", "log_odds"])
@pytest.mark.parametrize("problem", [shifted, widened])
def test_exact_log_k_passes_and_wrong_ones_fail(problem, binning):
    log_k, labels = problem(1, 10_000, 10_000, 1.5)
    shuffled = np.random.default_rng(2).permutation(labels)
    assert coverage(log_k, labels, binning=binning).passed
    assert not coverage(2 * log_k, labels, binning=binning).passed
    assert not coverage(log_k / 2, labels, binning=binning).passed
    assert not coverage(log_k + 0.5, labels, binning=binning).passed
    assert not coverage(-log_k, labels, binning=binning).passed
    assert not coverage(log_k, shuffled, binning=binning).passed


def test_overconfidence_of_separated_models_fails():
    log_k, labels = shifted(3, 10_000, 10_000, 6.0)
    assert coverage(log_k, labels).passed
    assert coverage(2 * log_k, labels).p_surprises < 1e-3


@pytest.mark.parametrize(
    ("problem", "n0", "n1", "size"),
    [
        (shifted, 1000, 1000, 1.0),
        (shifted, 500, 500, 3.0),
        (widened, 1800, 200, 1.0),
        (widened, 1000, 1000, 4.0),
    ],
)
def test_false_alarms_are_near_the_nominal_rate(problem, n0, n1, size):
    assert 1 <= false_alarms(problem, n0, n1, size) <= MOST


@pytest.mark.parametrize(
    ("problem", "n0", "n1", "size"),
    [
        (shifted, 25, 25, 1.0),
        (shifted, 45, 5, 1.0),
        (shifted, 500, 500, 6.0),
        (shifted, 500, 500, 25.0),  # log K is about ±300
        (shifted, 500, 500, 0.01),
        (widened, 25, 25, 0.5),
        (widened, 90, 10, 1.0),
        (widened, 10, 90, 2.0),
    ],
)
def test_false_alarms_do_not_exceed_the_nominal_rate_in_hard_cases(problem, n0, n1, size):
    assert false_alarms(problem, n0, n1, size) <= MOST


def test_the_count_of_false_alarms_can_fail():
    assert false_alarms(lambda *given: (shifted(*given)[0] * 1.3, shifted(*given)[1]), 1000, 1000, 1.0) > MOST


def test_random_labels_with_known_prior():
    def drawn(seed, *_):
        rng = np.random.default_rng(seed)
        labels = (rng.random(1000) < 0.2).astype(int)
        return rng.normal(loc=labels) - 0.5, labels

    assert 1 <= false_alarms(drawn, 0, 0, 0, prior=0.2) <= MOST
    assert not coverage(*drawn(0), prior=0.5).passed


def test_fixed_numbers_do_not_hide_a_shift_of_weak_evidence():
    # p stays near 1/2; a test that ignores that the numbers of draws are given could not see this shift.
    log_k, labels = shifted(4, 1000, 1000, 0.05)
    assert coverage(log_k, labels).passed
    assert coverage(log_k + 0.1, labels).p_value < 1e-6
    assert coverage(log_k + 0.1, labels, prior=0.5).passed


def test_constant_log_k():
    labels = np.repeat([0, 1], [300, 700])
    nothing = coverage(np.zeros(1000), labels)
    assert nothing.p_value == 1.0
    assert nothing.predicted == pytest.approx([0.7])
    assert coverage(np.full(1000, 0.5), labels).p_value < 1e-100


def test_no_draw_is_lost_on_an_edge():
    # log K = ±inf gives p = 0 and 1, log K = 0 gives 1/2, and log 3 gives 3/4: edges of four bins.
    log_k = np.array([-np.inf, 0.0, np.log(3.0), np.inf, np.inf, -np.inf])
    labels = np.array([0, 1, 0, 1, 1, 0])
    for binning in ("width", "count", "log_odds"):
        result = coverage(log_k, labels, bins=4, binning=binning)
        assert result.count.sum() == result.n == 6
        assert np.sum(result.count * result.observed) == pytest.approx(3)
        assert all(
            np.isfinite(getattr(result, name)).all() for name in ("predicted", "low", "high", "residual")
        )
    assert coverage(log_k, labels, bins=4).count.tolist() == [2, 1, 3]
    assert coverage(log_k, labels, bins=4).edges.tolist() == [[0, 0.25], [0.5, 0.75], [0.75, 1]]


def test_each_draw_lies_within_the_edges_of_its_bin():
    log_k, labels = shifted(5, 400, 200, 2.0)
    for binning in ("width", "count", "log_odds"):
        result = coverage(log_k, labels, binning=binning)
        assert result.count.sum() == 600
        assert (result.edges[:, 0] <= result.predicted).all()
        assert (result.predicted <= result.edges[:, 1]).all()
        assert (result.edges[1:, 0] >= result.edges[:-1, 1]).all()


def test_certain_and_wrong_is_a_failure():
    log_k, labels = shifted(6, 500, 500, 1.0)
    log_k[0] = np.inf  # a draw of model 0
    result = coverage(log_k, labels)
    assert result.p_value == 0.0
    assert not result.passed
    log_k[0] = -np.inf
    assert coverage(log_k, labels).passed


def test_one_wrong_label_at_extreme_odds_is_seen():
    log_k, labels = shifted(7, 500, 500, 25.0)
    assert coverage(log_k, labels).p_value == 1.0
    log_k[0] = 15.0  # a draw of model 0: probability 3e-7
    assert coverage(log_k, labels).p_value < 1e-5


def test_empty_bins_are_left_out():
    log_k, labels = shifted(8, 500, 500, 25.0)
    result = coverage(log_k, labels)
    assert len(result.count) == 2
    assert (result.count > 0).all()
    assert np.isnan(result.std_residual)
    assert "too few" in str(result)


def test_equal_count_bins_keep_ties_together():
    log_k = np.repeat([-1.0, 0.0, 0.2, 3.0], [5, 60, 30, 5])
    labels = np.arange(100) % 2
    result = coverage(log_k, labels, bins=10, binning="count")
    assert result.count.tolist() == [5, 60, 35]  # the last cut by rank falls among the 30
    spread = coverage(*shifted(9, 500, 500, 1.0), bins=10, binning="count")
    assert spread.count.tolist() == [100] * 10


def test_bins_against_direct_sums():
    log_k, labels = shifted(10, 300, 900, 1.0)
    result = coverage(log_k, labels, bins=5)
    p = 1 / (1 + np.exp(-log_k) * 300 / 900)
    for i, (left, right) in enumerate(result.edges):
        inside = (p >= left) & (p < right)
        n, ones, variance = inside.sum(), labels[inside].sum(), np.sum(p[inside] * (1 - p[inside]))
        assert result.count[i] == n
        assert result.predicted[i] == pytest.approx(p[inside].mean(), rel=1e-12)
        assert result.expected_std[i] == pytest.approx(np.sqrt(variance) / n, rel=1e-9)
        assert result.residual[i] == pytest.approx((ones - p[inside].sum()) / np.sqrt(variance), rel=1e-9)
        exact = stats.binomtest(int(ones), int(n)).proportion_ci(0.95, method="exact")
        assert (result.low[i], result.high[i]) == pytest.approx((exact.low, exact.high), rel=1e-9)
    assert result.prior == 0.75


def test_intervals_of_pure_bins():
    result = coverage([-9.0, -9.0, -9.0, 9.0, 9.0], [0, 0, 0, 1, 1], bins=2, level=0.9)
    none = stats.binomtest(0, 3).proportion_ci(0.9, method="exact")
    both = stats.binomtest(2, 2).proportion_ci(0.9, method="exact")
    assert result.low == pytest.approx([none.low, both.low])
    assert result.high == pytest.approx([none.high, both.high])


def test_residuals_have_mean_zero_and_deviation_one():
    result = coverage(*shifted(11, 50_000, 50_000, 1.5), bins=50)
    assert abs(result.mean_residual) < 3 / np.sqrt(50)
    assert abs(result.std_residual - 1) < 3 / np.sqrt(2 * 49)
    # Stretched twofold, the residuals grow far beyond that.
    log_k, labels = shifted(11, 50_000, 50_000, 1.5)
    assert coverage(2 * log_k, labels, bins=50).std_residual > 5


def test_record_is_immutable_and_prints():
    result = coverage(*shifted(12, 500, 500, 1.0), bins=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.passed = False  # type: ignore[misc]
    text = str(result)
    assert text.startswith("Blind coverage test passed: p-value")
    assert len(text.splitlines()) == 3 + 4
    log_k, labels = shifted(12, 500, 500, 1.0)
    assert "FAILED" in str(coverage(-log_k, labels))
    assert "log-odds" in str(coverage(log_k, labels, binning="log_odds"))
    assert coverage(log_k, labels, alpha=0.999).passed == (result.p_value >= 0.999)


@pytest.mark.parametrize(
    ("log_k", "labels", "message"),
    [
        ([0.0, 1.0], [0, 1, 1], "equal length, got shapes"),
        ([[0.0, 1.0]], [[0, 1]], "one-dimensional"),
        ([], [], "empty"),
        ([0.0, np.nan], [0, 1], "1 NaN among 2"),
        ([0.0, 1.0, 2.0], [0, 1, 2], "0 or 1, got"),
        ([0.0, 1.0], [0.5, 1], "0 or 1, got"),
        ([0.0, 1.0], [1, 1], "all labels are 1"),
    ],
)
def test_bad_arrays(log_k, labels, message):
    with pytest.raises(ValueError, match=message):
        coverage(log_k, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 0}, "bins must be a whole number of at least 1, got 0"),
        ({"bins": 2.5}, "bins must be a whole number"),
        ({"binning": "depth"}, "binning must be one of width, count, log_odds, got 'depth'"),
        ({"prior": 1.0}, "prior must lie between 0 and 1, got 1.0"),
        ({"level": 95}, "level must lie between 0 and 1, got 95"),
        ({"alpha": 0.0}, "alpha must lie between 0 and 1, got 0.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        coverage([0.0, 1.0], [0, 1], **options)
