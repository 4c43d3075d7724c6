"""Frequentist tests by log K, against the mean test where all is known.

With T = (Σx)²/n, log K = ½ T n s²/(1 + n s²) − ½ log(1 + n s²) rises with T, which is χ² with one degree of
freedom under the null, and 1 + n s² times that under the alternative.
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import evidencenet as en
from conftest import Case, draws

SIZE, SPREAD = 5, 1.0
PROBLEM = en.problems.mean_test(size=SIZE, spread=SPREAD)
GROWTH = 1 + SIZE * SPREAD**2
SIZES = np.array([0.001, 0.01, 0.05, 0.3, 0.9])


def log_k_of(statistic: np.ndarray) -> np.ndarray:
    return 0.5 * statistic * (GROWTH - 1) / GROWTH - 0.5 * np.log(GROWTH)


def exact_threshold(size: np.ndarray) -> np.ndarray:
    return log_k_of(chi2(1).isf(size))


def exact_power(size: np.ndarray) -> np.ndarray:
    return chi2(1).sf(chi2(1).isf(size) / GROWTH)


def exact_test(n: int, seed: int) -> en.HypothesisTest:
    rng = np.random.default_rng(seed)
    null, alternative = rng.chisquare(1, n), GROWTH * rng.chisquare(1, n)
    return en.HypothesisTest.of(log_k_of(null), log_k_of(alternative))


def test_the_formulas_are_those_of_the_problem() -> None:
    x: Any = draws(PROBLEM, 100, seed=1).x
    np.testing.assert_allclose(PROBLEM.log_bayes_factor(x), log_k_of(x.sum(axis=1) ** 2 / SIZE), rtol=1e-9)


def test_threshold_power_and_area_are_exact_within_their_errors() -> None:
    tests = [exact_test(2_000, seed) for seed in range(200)]
    size = SIZES[1:]
    for found, exact, wrong in (
        ([test.threshold(size) for test in tests], exact_threshold(size), exact_threshold(size / 2)),
        ([test.power(size) for test in tests], exact_power(size), exact_power(size / 2)),
        # P(√growth |z_1| > |z_0|) is an angle of the plane of two normals.
        ([test.auc for test in tests], 2 / np.pi * np.arctan(np.sqrt(GROWTH)), 0.5),
    ):
        values, errors = (np.array([getattr(e, part) for e in found]) for part in ("value", "error"))
        # Of 200 repeats: the mean is right to 4 of its errors (and the bias of a curved function), and the
        # errors tell the scatter to 25%, of which 4/√400 = 20% are chance.
        assert np.all(np.abs(values.mean(axis=0) - exact) < 0.35 * values.std(axis=0))
        np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), values.std(axis=0), rtol=0.25)
        # A test that splits its size between two tails, or one without any power, is found out.
        assert np.all(np.abs(values.mean(axis=0) - wrong) > 0.35 * values.std(axis=0))


def test_p_values_are_exact_and_uniform_under_the_null() -> None:
    test = exact_test(20_000, seed=1)
    statistic = np.array([0.0, 0.5, 2.0, 6.0, 10.0])
    found = test.p_value(log_k_of(statistic))
    exact = chi2(1).sf(statistic)
    assert np.all(np.abs(found.value - exact) <= 4 * np.asarray(found.error))
    # Two-sided p-values, twice as large, would not agree.
    assert not np.all(np.abs(found.value - 2 * exact) <= 4 * np.asarray(found.error))
    # Beyond all draws of the null, the p-value is the least there can be, not 0.
    assert float(test.p_value(1e9)) == 1 / 20_001
    null = np.asarray(test.p_value(log_k_of(np.random.default_rng(2).chisquare(1, 10_000))).value)
    assert np.abs(np.sort(null) - (np.arange(10_000) + 0.5) / 10_000).max() < 0.02


def test_rejecting_by_p_value_or_by_threshold_is_the_same() -> None:
    test = exact_test(999, seed=3)
    log_k = np.r_[test.null, test.alternative, np.linspace(-2, 8, 500)]
    for size in (0.001, 0.0015, 0.05, 0.5):
        by_p_value = np.asarray(test.p_value(log_k).value) <= size + 1e-12
        np.testing.assert_array_equal(by_p_value, log_k > float(test.threshold(size)))


def test_the_size_is_kept_on_average() -> None:
    """Over many sets of 99 draws, log K > threshold(0.05) has a chance of 5% under the null."""
    false_alarm = [
        chi2(1).sf(_statistic(float(exact_test(99, seed).threshold(0.05)))) for seed in range(2000)
    ]
    assert abs(np.mean(false_alarm) - 0.05) < 4 * np.std(false_alarm) / np.sqrt(2000)


def _statistic(log_k: float) -> float:
    return (log_k + 0.5 * np.log(GROWTH)) * 2 * GROWTH / (GROWTH - 1)


def test_a_network_is_a_valid_test(small: Case) -> None:
    fresh = draws(PROBLEM, 20_000, seed=11)
    test = en.hypothesis_test(small.net, fresh)
    assert test.names == ("zero mean", "free mean")
    np.testing.assert_array_equal(test.null, np.sort(small.net.log_bayes_factor(fresh.of(0))))
    # However rough this network is, its p-values are uniform under the null,
    p = np.asarray(test.p_value(draws(PROBLEM, 20_000, seed=12).of(0)).value)
    for size in (0.01, 0.05, 0.3):
        assert abs(np.mean(p <= size) - size) < 4 * np.sqrt(2 * size / 10_000)
    # and its power is at most that of the exact log K.
    power = test.power(SIZES)
    assert np.all(power.value <= exact_power(SIZES) + 4 * np.asarray(power.error))
    assert np.all(np.abs(power.value - exact_power(SIZES)) < 0.05)
    knowing_nothing = en.HypothesisTest.of(test.null, test.null)
    assert np.all(np.abs(knowing_nothing.power(SIZES[1:4]).value - exact_power(SIZES[1:4])) > 0.05)
    single = test.p_value(np.asarray(fresh.x)[0])
    assert np.shape(single.value) == (1,)


def test_the_models_can_be_exchanged(three: Case) -> None:
    test = en.hypothesis_test(three.net, three.fresh, model="order 0", against=2)
    assert test.names == ("order 2", "order 0")
    expected = three.net.log_bayes_factor(three.fresh.of(2), model=0, against=2)
    np.testing.assert_array_equal(test.null, np.sort(expected))


def test_weighted_draws_count_by_their_weight(small: Case) -> None:
    fresh = en.simulate(small.problem.models, 20_000, seed=4, keep_parameters=True, progress=False)
    positive = fresh.reweight(1, lambda mean: np.where(mean > 1, 0.0, -np.inf))
    test = en.hypothesis_test(small.net, positive)
    assert len(test.null) == 10_000
    assert len(test.alternative) == np.sum(np.asarray((fresh.parameters or ())[1]) > 1)
    assert float(test.auc) > float(en.hypothesis_test(small.net, fresh).auc) + 0.1


def test_roc_and_table() -> None:
    test = exact_test(5_000, seed=5)
    roc = test.roc()
    assert np.all(np.diff(roc.size) > 0)
    assert np.all(np.diff(roc.power) >= 0)
    assert np.all(np.diff(roc.threshold) <= 0)
    assert np.max(np.abs(roc.power - exact_power(roc.size)) / roc.error) < 5
    area = np.trapezoid(np.r_[0, roc.power, 1], np.r_[0, roc.size, 1])
    assert abs(area - float(test.auc)) < 0.002
    table = test.to_dataframe()
    assert list(table.columns) == ["threshold", "power", "error"]
    np.testing.assert_array_equal(table.index, roc.size)


def test_ties_count_one_half() -> None:
    test = en.HypothesisTest.of([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    # Of nine pairs: alternative above in 4, equal in 4, below in 1.
    assert float(test.auc) == pytest.approx((4 + 0.5 * 4) / 9)


def test_it_prints() -> None:
    test = exact_test(5_000, seed=5)
    lines = str(test).splitlines()
    assert lines[0] == "Test of M0 (null) against M1 by log K, on 5,000 + 5,000 draws"
    assert lines[1].startswith("  size 0.1")
    # Only 5 draws of the null lie beyond a size of 0.001, so this size is not printed.
    assert [line.split()[1] for line in lines if "size" in line] == ["0.1", "0.05", "0.01"]
    assert lines[-1].endswith("0.0002, limited by the number of draws")
    assert repr(test) == str(test)
    assert "area under ROC" in test._repr_html_()


def test_bad_input(small: Case) -> None:
    net: Any = small.net
    sims: Any = small.fresh
    with pytest.raises(TypeError, match=r"wanted a network .* HypothesisTest.of\(log_k_null"):
        en.hypothesis_test(sims, sims)
    with pytest.raises(TypeError, match="takes Simulations, got a ndarray"):
        en.hypothesis_test(net, sims.x)
    with pytest.raises(ValueError, match="in this order"):
        en.hypothesis_test(net, en.Simulations(sims.x, sims.model))
    with pytest.raises(ValueError, match="cannot be tested against itself: both are 'zero mean'"):
        en.hypothesis_test(net, sims, model=0)
    with pytest.raises(ValueError, match=r"log_k_null must hold log K of two or more draws.*shape \(1,\)"):
        en.HypothesisTest.of([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="log_k_alternative is NaN for 1 of 2 draws"):
        en.HypothesisTest.of([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(ValueError, match="two names, of the null and of the alternative"):
        en.HypothesisTest.of([1.0, 2.0], [1.0, 2.0], names=("a", "b", "c"))  # type: ignore[arg-type]
    test = exact_test(999, seed=1)
    for size in (0.0, 1.0, -1, np.nan):
        with pytest.raises(ValueError, match="wanted a probability between 0 and 1"):
            test.threshold(size)
    with pytest.raises(ValueError, match=r"size = 1e-05 is too small for 999 draws .*, or 99,999 draws"):
        test.power([0.5, 1e-5])
    with pytest.raises(ValueError, match="NaN"):
        test.p_value(np.nan)
    with pytest.raises(ValueError, match="points = 1; wanted 2 or more"):
        test.roc(1)
