"""The validated range: the log K that draws of both models reach."""

import numpy as np
import pytest

from conftest import Case, shifted
from evidencenet.checks.range import Bound, Range, validated_range


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
    assert "by 5,000 + 3,000 held-out draws" in str(found)


def test_validated_range_grows_with_draws():
    few, many = (validated_range(*shifted(5, n, n, 2.0)) for n in (1000, 100_000))
    assert many.low < few.low < 0 < few.high < many.high


@pytest.mark.parametrize("given", [shifted(6, 500, 500, 20.0), shifted(6, 9, 500, 1.0)])
def test_validated_range_can_be_empty(given):
    found = validated_range(*given)
    assert found.empty
    assert (found.low, found.high) == (0.0, 0.0)
    assert not found.contains(0.0)
    assert str(found).startswith("The validated range is empty")


def test_validated_range_of_models_that_cannot_be_told_apart():
    found = validated_range(np.zeros(40), np.arange(40) % 2)
    assert (found.low, found.high, found.empty) == (0.0, 0.0, False)
    assert found.contains(0.0)
    assert not found.contains(0.1)


def bound(found: Range, log_k: float, error: float) -> Bound:
    answer = found.bound(log_k, error)
    assert answer is not None
    return answer


def test_the_bound_beyond_a_range():
    found = validated_range(*shifted(4, 5000, 3000, 1.0))
    assert found.bound(0.5, 0.1) is None
    # Far beyond, it is the end of the range.
    above, below = bound(found, 99.0, 3.0), bound(found, -99.0, 3.0)
    assert (above.value, above.above) == (found.high, True)
    assert (below.value, below.above) == (found.low, False)
    # Just beyond, the errors of log K and of the end count; if the first is not known, the second.
    step = 1.96 * np.hypot(0.4, np.sqrt(0.1))
    assert bound(found, found.high + 0.1, 0.4).value == pytest.approx(found.high + 0.1 - step)
    unknown = bound(found, found.high + 0.1, float("nan")).value
    assert unknown == pytest.approx(found.high + 0.1 - 1.96 / np.sqrt(10))
    assert bound(found.reversed(), -99.0, 3.0).value == -above.value
    assert (found.reversed().low, found.reversed().n) == (-found.high, (3000, 5000))
    assert validated_range(*shifted(6, 9, 500, 1.0)).bound(1.0, 0.1) is None


def test_bad_range():
    with pytest.raises(ValueError, match="least must be at least 1, got 0"):
        validated_range([0.0, 1.0], [0, 1], least=0)
    with pytest.raises(ValueError, match="NaN"):
        validated_range([0.0, np.nan], [0, 1])


def test_bounds_hold_over_trainings(small: Case, series: Case, three: Case) -> None:
    false, near, false_ends = [], [], []
    for case in (small, series, three):
        evidence = case.problem.log_evidence(case.fresh.x)
        for k in range(1, len(case.net.names)):
            exact, held = evidence[:, k] - evidence[:, 0], case.net.ranges[k - 1]
            log_k, error = (ask(case.fresh.x, model=k) for ask in (case.net.log_bayes_factor, case.net.error))
            for value, uncertainty, truth in zip(log_k, error, exact, strict=True):
                found = held.bound(float(value), float(uncertainty))
                if found is None:
                    continue
                end = held.high if found.above else held.low
                sign = 1 if found.above else -1
                false.append(sign * truth < sign * found.value)
                false_ends.append(sign * truth < sign * end)
                near.append(abs(value - end) < 0.3)
    assert len(false) > 500
    # 97.5% of them hold, also of those just beyond the end; of the ends themselves far fewer would there.
    assert np.mean(false) < 0.025
    assert np.mean(np.array(false)[near]) < 0.025
    assert np.mean(np.array(false_ends)[near]) > 0.1
