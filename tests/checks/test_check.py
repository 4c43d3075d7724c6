"""Checks of log Bayes factors: the exact ones pass at the stated rate, wrong ones are caught by name."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import evidencenet as en
from conftest import draws
from evidencenet.checks.check import Check, _binomial, _verdict, coverages, examine
from evidencenet.checks.coverage import coverage
from evidencenet.checks.learning import overfitting

NAMES = ("coverage", "log-odds bins", "Turing–Good", "mean probability", "information", "range")

# What each mistake must be caught by; other checks may see it too.
MISTAKES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], set[str]]] = {
    "doubled": (lambda log_k: 2 * log_k, {"coverage", "log-odds bins", "mean probability"}),
    "halved": (lambda log_k: log_k / 2, {"coverage", "log-odds bins", "Turing–Good"}),
    "shifted": (
        lambda log_k: log_k + 0.3 * (np.arange(log_k.shape[1]) == 1),
        {"coverage", "log-odds bins", "Turing–Good", "mean probability"},
    ),
    "truncated": (lambda log_k: np.clip(log_k, -3, 3), {"coverage", "log-odds bins", "Turing–Good"}),
    "shuffled": (
        lambda log_k: np.random.default_rng(1).permutation(log_k),
        {"coverage", "log-odds bins"},
    ),
}


def exact(problem: en.problems.Problem, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    sims = draws(problem, n, seed)
    log_evidence = problem.log_evidence(sims.x)
    return log_evidence - log_evidence[:, :1], sims.model


def shifted(n: int, shift: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """N(0, 1) against N(shift, 1), n draws of each, and the exact log K."""
    labels = np.repeat([0, 1], n)
    x = np.random.default_rng(seed).normal(loc=shift * labels)
    return shift * x - shift**2 / 2, labels


def verdicts(checks: tuple[Check, ...]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


@pytest.mark.parametrize("name", ["mean_test", "variance_test", "polynomial_order"])
def test_exact_log_k_passes_at_the_stated_rate(name: str) -> None:
    problem = en.problems.zoo()[name]()
    assert len(problem.models) == (5 if name == "polynomial_order" else 2)
    failed = warned = 0
    for seed in range(200):
        log_k, label = exact(problem, 4_000, seed)
        other = exact(problem, 2_000, 1_000 + seed)
        found = [*examine(log_k, label), overfitting(log_k, label, *other)]
        failed += any(check.verdict == "fail" for check in found)
        warned += any(check.verdict != "pass" for check in found)
    # Of 200 at most 2% and 5% are expected, that is 4 and 10; chance adds three times √4 and √9.5.
    assert failed <= 10
    assert warned <= 19


@pytest.mark.parametrize("name", ["mean_test", "variance_test", "polynomial_order"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught_by_name(name: str, mistake: str) -> None:
    # Truncation of the variance test takes so many draws: of 12 seeds, "Turing–Good" fails it in 5 with half
    # as many, and in 11 with these (not with seed 1).
    log_k, label = exact(en.problems.zoo()[name](), 40_000, seed=2)
    assert {check.verdict for check in examine(log_k, label)} == {"pass"}
    wrong, seen_by = MISTAKES[mistake]
    found = examine(wrong(log_k), label)
    failed = {check.name for check in found if check.verdict == "fail"}
    assert seen_by <= failed
    assert all(check.advice for check in found if check.verdict != "pass")


def test_the_worst_bin_of_truncated_log_k_is_the_last() -> None:
    log_k, label = shifted(10_000, 3.0)
    bins = examine(np.minimum(log_k, 3), label)[1]
    # Draws given p = 0.953, K/(1 + K) with log K = 3, nearly all come from model 1. Bins are log(n)/10 wide.
    assert bins.finding.startswith("Worst of 14 is 3.0 to 4.0: model 1 predicted in 0.953, observed in 0.99")


def test_every_check_says_a_number() -> None:
    found = examine(*shifted(2_000, 1.0), names=("flat", "trend"))
    assert tuple(check.name for check in found) == NAMES
    assert all(any(letter.isdigit() for letter in check.finding) for check in found)
    assert all(check.finding.endswith(".") and check.advice == "" for check in found)
    assert "for trend" in found[0].finding
    assert str(found[0]).startswith("pass  coverage: p = ")


def test_several_models_are_named() -> None:
    log_k, label = exact(en.problems.polynomial_order(), 10_000, seed=3)
    names = tuple("abcde")
    found = verdicts(examine(log_k, label, names=names))
    assert set(found.values()) == {"pass"}
    wrong = examine(log_k + 0.4 * (np.arange(5) == 3), label, names=names)
    assert "for d, the lowest of 5 models" in wrong[0].finding
    # Both neighbours of d are told from it; which one better is chance.
    assert any(pair in wrong[2].finding for pair in ("for e against d,", "for d against c,"))
    assert "the lowest of 10 pairs" in wrong[2].finding
    assert "of d, whose share is 0.2" in wrong[3].finding
    assert "the narrowest of 10" in wrong[5].finding
    assert len(coverages(log_k, label)) == 5


def test_levels_are_shared() -> None:
    # Five checks share 2%; the models of one check share its part.
    two, five = shifted(500, 1.0), exact(en.problems.polynomial_order(), 2_000, seed=1)
    assert [test.alpha for test in coverages(*two)] == [0.004]
    assert [test.alpha for test in coverages(*five)] == pytest.approx([0.004 / 5] * 5)


def test_knowing_nothing_is_calibrated_and_warned_about() -> None:
    found = examine(np.zeros(2_000), np.arange(2_000) % 2)
    assert verdicts(found) == dict.fromkeys(NAMES, "pass") | {"information": "warn"}
    assert "no better than chance" in found[4].advice


def test_models_far_apart_leave_little_to_check() -> None:
    found = examine(*shifted(2_000, 12.0))
    assert verdicts(found) == {
        "coverage": "pass",
        "log-odds bins": "pass",
        "Turing–Good": "warn",
        "mean probability": "warn",
        "information": "pass",
        "range": "warn",
    }
    assert "Single draws dominate" in found[2].finding
    assert "too few to tell" in found[3].finding
    assert "The validated range is empty for model 1 against model 0" in found[5].finding
    # Log K in error of thousands of nats does not overflow.
    assert verdicts(examine(1e4 * shifted(500, 12.0)[0], shifted(500, 12.0)[1]))["information"] == "pass"


def test_pairs_that_cannot_be_told_are_counted() -> None:
    rng = np.random.default_rng(2)
    label = np.repeat([0, 1, 2], 1_000)
    place = np.array([0.0, 1.0, 15.0])
    x = rng.normal(loc=place[label])[:, None]
    log_k = x * place - place**2 / 2
    found = examine(log_k, label)
    assert found[2].verdict == "pass"
    assert found[2].finding.endswith("; 2 pairs have too few draws that count.")


def test_certainty_that_is_wrong_fails() -> None:
    log_k, label = shifted(2_000, 1.0)
    log_k[0] = 800.0  # a draw of model 0
    found = verdicts(examine(log_k, label))
    assert found["coverage"] == found["log-odds bins"] == "fail"


def test_binomial_p_values() -> None:
    log_k, label = shifted(300, 2.0)
    test = coverage(log_k, label, binning="log_odds")
    ones = np.round(test.observed * test.count).astype(int)
    for p, one, n, q in zip(_binomial(test), ones, test.count, test.predicted, strict=True):
        tails = stats.binom.sf(one - 1, n, q), stats.binom.cdf(one, n, q)
        assert p == pytest.approx(min(1, 2 * min(tails)), rel=1e-9)


def test_levels_of_verdicts() -> None:
    # A p-value below a fifth of 5% warns, below a fifth of 2% fails; ten pairs multiply it by ten.
    assert [_verdict(p, 1) for p in (0.011, 0.009, 0.0041, 0.0039)] == ["pass", "warn", "warn", "fail"]
    assert [_verdict(p, 10) for p in (0.0011, 0.0009, 0.00039)] == ["pass", "warn", "fail"]


@pytest.mark.parametrize(
    ("log_k", "labels", "names", "message"),
    [
        ([0.0, 1.0, 2.0], [0, 1, 1], None, r"two draws of each model or more, got \[1, 2\]"),
        ([0.0, 1.0], [0, 2], None, "labels must be whole numbers from 0 to 1"),
        ([0.0, np.inf], [0, 1], None, "finite, got 1"),
        ([0.0, 1.0, 2.0], [0, 1], None, "shape"),
        ([0.0, 1.0, 0.0, 1.0], [0, 1, 0, 1], ("a",), "names = .*, but log_k is of 2 models"),
    ],
)
def test_bad_input(
    log_k: list[float], labels: list[int], names: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        examine(log_k, labels, names=names)
