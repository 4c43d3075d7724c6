"""Checks of how an ensemble was trained."""

import numpy as np
import pytest

from evidencenet.checks.learning import agreement, excess, other_kinds, overfitting, spread, training


def shifted(n: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat([0, 1], n)
    x = np.random.default_rng(seed).normal(loc=shift * labels)
    return shift * x - shift**2 / 2, labels


def ensemble(scatter: float, members: int = 4) -> tuple[np.ndarray, np.ndarray]:
    log_k, labels = shifted(2_000, 2.0, seed=1)
    noise = scatter * np.random.default_rng(2).normal(size=(members, len(log_k)))
    table = log_k + noise
    return np.stack([np.zeros_like(table), table], axis=2), labels


@pytest.mark.parametrize("scatter", [0.02, 0.5])
def test_spread_is_the_error_of_the_mean(scatter: float) -> None:
    # 4,000 draws with four members each know the scatter to less than 1%; the range cuts off a few.
    assert spread(*ensemble(scatter)) == pytest.approx(scatter / np.sqrt(4), rel=0.03)


@pytest.mark.parametrize(
    ("scatter", "verdict"), [(0.0, "pass"), (0.5, "pass"), (0.7, "warn"), (1.9, "warn"), (2.2, "fail")]
)
def test_members_that_disagree(scatter: float, verdict: str) -> None:
    # Of four members the mean is known twice as well as one: 0.3 and 1 nat are 0.6 and 2 of scatter.
    found = agreement(*ensemble(scatter))
    assert (found.name, found.verdict) == ("members", verdict)
    assert bool(found.advice) == (verdict != "pass")
    assert ("the same log K" in found.finding) == (scatter == 0)


def test_one_member_has_no_spread() -> None:
    found = agreement(*ensemble(0.1, members=1))
    assert found.verdict == "warn"
    assert "members=4" in found.advice


def test_spread_of_models_that_do_not_overlap() -> None:
    log_k, labels = shifted(200, 20.0, seed=1)
    table = np.stack([np.zeros((2, 400)), log_k + np.array([[0.0], [1.0]])], axis=2)
    # Two members one nat apart: their mean is known to half of that.
    assert spread(table, labels) == pytest.approx(0.5)


def test_excess_is_the_difference_of_scores_whatever_the_shares() -> None:
    log_k, labels = shifted(4_000, 1.0, seed=1)
    some = np.flatnonzero((labels == 1) | (np.arange(len(labels)) % 4 == 0))
    worse, error = excess(log_k[some], labels[some], log_k, labels)
    # The score of unbalanced draws would differ by 0.1: here each model counts alike.
    assert abs(worse) < 3 * error < 0.05
    differences = []
    for seed in range(100):
        differences.append(excess(*shifted(200, 1.0, seed), *shifted(100, 1.0, 500 + seed)))
    z = [worse / error for worse, error in differences]
    assert np.std(z) == pytest.approx(1, rel=0.25)
    assert abs(np.mean(z)) < 0.3


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.5, "warn"), (3.0, "fail")])
def test_overfitting(factor: float, verdict: str) -> None:
    fresh, labels = shifted(20_000, 1.5, seed=1)
    seen = shifted(20_000, 1.5, seed=2)
    found = overfitting(factor * fresh, labels, *seen)
    assert (found.name, found.verdict) == ("overfitting", verdict)
    assert "±" in found.finding
    assert bool(found.advice) == (verdict != "pass")
    # To be better on fresh draws is no fault.
    assert overfitting(*seen, factor * fresh, labels).verdict == "pass"


def test_overfitting_of_a_network_that_learned_nothing() -> None:
    log_k, labels = shifted(5_000, 1.0, seed=1)
    found = overfitting(-log_k, labels, np.zeros(1_000), np.arange(1_000) % 2)
    assert found.verdict == "fail"
    # All scores are log 2 there, but for rounding.
    constant = np.full(999, 1e-3), np.arange(999) % 3 // 2
    assert overfitting(*constant, np.full(1_000, 1e-3), np.arange(1_000) % 2).verdict == "pass"


CURVE = 0.5 + 0.2 * np.exp(-np.arange(21) / 2)


def test_learning_curves() -> None:
    flat = training(np.stack([CURVE, CURVE]), [20, 20], [True, True])
    assert flat.verdict == "pass"
    assert "20 of 20" in flat.finding
    steep = 0.7 - 0.01 * np.arange(21)
    unfinished = training(np.stack([steep, steep]), [20, 20], [True, True])
    assert unfinished.verdict == "warn"
    # Over the last tenth of the epochs, two, it fell by 0.02.
    assert "last by 0.0200 nats" in unfinished.finding
    assert "epochs=" in unfinished.advice
    rising = np.concatenate([[0.69, 0.6], 0.6 + 0.01 * np.arange(1, 12), np.full(8, np.nan)])
    overfitted = training(np.stack([rising, rising]), [1, 1], [True, True])
    assert overfitted.verdict == "warn"
    assert "rose by up to 0.1100 nats" in overfitted.finding
    assert "1 of 12" in overfitted.finding


def test_learning_curves_of_few_members_do_not_decide() -> None:
    steep = 0.7 - 0.01 * np.arange(21)
    assert training(np.stack([steep, CURVE, CURVE]), [20] * 3, [True] * 3).verdict == "pass"
    # A member that was not kept does not count.
    assert training(np.stack([steep, CURVE]), [20, 20], [False, True]).verdict == "pass"
    none = training(np.stack([CURVE, CURVE]), [0, 0], [False, False])
    assert (none.verdict, "No member improved" in none.finding) == ("pass", True)
    diverged = np.concatenate([CURVE, [np.inf]])
    assert training(diverged[None], [20], [True]).verdict == "pass"


def test_another_kind_that_is_better_is_noticed() -> None:
    assert other_kinds("Sequence", -0.01, 0.001).verdict == "pass"
    assert other_kinds("Sequence", 0.002, 0.001).verdict == "pass"
    assert other_kinds("Sequence", 0.004, 0.001).verdict == "warn"
    check = other_kinds("Sequence", 0.0147, 0.001)
    assert check.verdict == "fail"
    assert "Sequence, scores better by 0.0147 ± 0.0010 nats" in check.finding
    assert "Leave out network=" in check.advice
