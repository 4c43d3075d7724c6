"""Errors of log K: what is learned of them, labels drawn anew, and whether they hold."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import chi2

import evidencenet as en
from conftest import draws, rms
from evidencenet.errors import ErrorModel, relabel

CAUTION = 1.1
"""By this factor stated errors exceed those that were found."""


# --- The fit ---------------------------------------------------------------------------------------------


def synthetic(
    size: Callable[[np.ndarray, np.ndarray], np.ndarray], *, seed: int = 1, n: int = 40_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log K, jackknife errors, errors of the size that a function says, and estimates of their squares."""
    rng = np.random.default_rng(seed)
    log_k = rng.normal(size=n) * 2
    jackknife = 0.1 * np.exp(0.4 * rng.normal(size=n))
    true = size(log_k, jackknife)
    # Two errors, less what the estimate has of its own: unbiased, and often negative.
    squared = true**2 * (1 + rng.chisquare(2, size=n) / 2 - rng.chisquare(3, size=n) / 3)
    return log_k, jackknife, true, squared


@pytest.mark.parametrize(
    "size",
    [
        lambda log_k, jackknife: np.full_like(log_k, 0.03),
        lambda log_k, jackknife: 2.5 * jackknife,
        lambda log_k, jackknife: 0.05 * np.exp(0.2 * np.abs(log_k)),
        lambda log_k, jackknife: 0.2 * np.exp(0.15 * log_k),
        lambda log_k, jackknife: 3 * jackknife * np.exp(0.1 * np.abs(log_k) - 0.1 * log_k),
    ],
    ids=["constant", "jackknife", "grows both ways", "grows one way", "all of these"],
)
def test_errors_of_known_size_are_found(size: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    log_k, jackknife, true, squared = synthetic(size)
    assert np.mean(squared < 0) > 0.1
    model = ErrorModel.fit(log_k, jackknife, squared)
    found = model(log_k, jackknife) / CAUTION
    # Each of the few numbers of the fit rests on 2,000 draws or more whose squares scatter by 1.3 of
    # themselves: 3% of the square, 1.5% of the error; straight pieces between some log K cost a little more.
    middle = np.abs(log_k) < 3
    ratio = found[middle] / true[middle]
    assert abs(np.mean(ratio) - 1) < 0.02
    assert np.sqrt(np.mean((ratio - 1) ** 2)) < 0.06
    # A control: as much would be said of errors that are 10% off.
    assert np.sqrt(np.mean((1.1 * ratio - 1) ** 2)) > 0.06


def test_the_jackknife_alone_is_refuted_where_it_says_nothing() -> None:
    log_k, jackknife, _, squared = synthetic(lambda log_k, jackknife: np.full_like(log_k, 0.3))
    model = ErrorModel.fit(log_k, jackknife, squared)
    wide, narrow = (model(np.zeros(1), np.array([size]))[0] for size in (0.2, 0.05))
    # Jackknife errors that differ by a factor of four mean nothing here.
    assert wide / narrow == pytest.approx(1, abs=0.1)
    assert wide == pytest.approx(CAUTION * 0.3, rel=0.05)


def test_beyond_what_was_seen_the_error_is_that_of_the_end() -> None:
    log_k, jackknife, _, squared = synthetic(lambda log_k, jackknife: 0.05 * np.exp(0.2 * np.abs(log_k)))
    model = ErrorModel.fit(log_k, jackknife, squared)
    ends = np.array([log_k.min(), log_k.max()])
    np.testing.assert_allclose(model(ends * 100, np.full(2, 0.1)), model(ends, np.full(2, 0.1)), rtol=1e-9)


def test_small_jackknife_errors_count_as_the_smallest() -> None:
    log_k, jackknife, _, squared = synthetic(lambda log_k, jackknife: jackknife)
    model = ErrorModel.fit(log_k, jackknife, squared)
    assert model.floor == pytest.approx(0.1 * np.median(jackknife))
    found = model(np.zeros(4), model.floor * np.array([0.0, 0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found[:2], found[2], rtol=1e-12)
    assert found[3] == pytest.approx(2 * found[2], rel=0.1)


@pytest.mark.parametrize("jackknife", [np.nan, 0.0], ids=["one member", "members that agree"])
def test_without_a_jackknife_log_k_is_left(jackknife: float) -> None:
    log_k, _, true, squared = synthetic(lambda log_k, jackknife: 0.05 * np.exp(0.2 * np.abs(log_k)))
    unknown = np.full_like(log_k, jackknife)
    model = ErrorModel.fit(log_k, unknown, squared)
    assert model.floor == 0
    found = model(log_k, unknown) / CAUTION
    assert np.all(np.isfinite(found))
    middle = np.abs(log_k) < 3
    assert np.sqrt(np.mean((found / true - 1)[middle] ** 2)) < 0.06


@pytest.mark.parametrize("lucky", [-0.01, 0.0])
def test_no_error_is_zero(lucky: float) -> None:
    log_k, jackknife, _, _ = synthetic(lambda log_k, jackknife: jackknife)
    squared = np.full_like(log_k, lucky)
    # What cannot be told from nothing is taken from the jackknife, and else is very small.
    found = ErrorModel.fit(log_k, jackknife, squared)(log_k, jackknife)
    np.testing.assert_allclose(np.mean(found**2), CAUTION**2 * np.mean(jackknife**2), rtol=0.01)
    alone = ErrorModel.fit(log_k, np.full_like(log_k, np.nan), squared)(log_k, np.full_like(log_k, np.nan))
    assert np.all((alone > 0) & (alone < 1e-5))


def test_all_log_k_the_same() -> None:
    squared = 0.04 * np.random.default_rng(1).chisquare(1, size=5_000)
    model = ErrorModel.fit(np.zeros(5_000), np.full(5_000, np.nan), squared)
    np.testing.assert_allclose(model(np.array([-1.0, 0.0, 5.0]), np.full(3, np.nan)), 0.22, rtol=0.03)


# --- New labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("models", [2, 3, 5])
@pytest.mark.parametrize("size", [0.0, 1.0, 5.0, 40.0])
def test_as_many_of_each_model_as_there_were(models: int, size: float) -> None:
    rng = np.random.default_rng(1)
    for n in (50, 3_001):
        log_odds = size * rng.normal(size=(n, models))
        label = np.argmax(log_odds + rng.gumbel(size=(n, models)) + np.log(np.arange(models) + 1), axis=1)
        counts = np.bincount(label, minlength=models)
        found = relabel(log_odds, counts, rng)
        np.testing.assert_array_equal(np.bincount(found, minlength=models), counts)
    # Also where nothing suggests these numbers.
    counts = np.full(models, 10)
    counts[0] = 100
    found = relabel(np.zeros((counts.sum(), models)), counts, rng)
    np.testing.assert_array_equal(np.bincount(found), counts)


def statistic(labels: np.ndarray, p: np.ndarray) -> float:
    """χ² of how often each of (repeats, n) labels is each of K models, against probabilities (n, K)."""
    repeats, models = len(labels), p.shape[1]
    found = np.stack([(labels == k).sum(axis=0) for k in range(models)], axis=1)
    return float(np.sum((found - repeats * p) ** 2 / (repeats * p)))


@pytest.mark.parametrize("models", [2, 3])
def test_labels_follow_the_probabilities(models: int) -> None:
    rng = np.random.default_rng(2)
    n, repeats = 400, 400
    log_odds = rng.normal(size=(n, models))
    p = softmax(log_odds, axis=1)
    # The numbers of each model are those that are expected, up to rounding.
    counts = np.round(p.sum(axis=0)).astype(int)
    counts[0] += n - counts.sum()
    labels = np.stack([relabel(log_odds, counts, rng) for _ in range(repeats)])
    freedom = n * (models - 1)
    low, high = chi2.ppf(1e-4, freedom), chi2.ppf(1 - 1e-4, freedom)
    assert low < statistic(labels, p) < high
    # Controls: probabilities that are a quarter more or less extreme would be noticed.
    for factor in (0.75, 1.25):
        assert statistic(labels, softmax(factor * log_odds, axis=1)) > high
    # One draw's label says nothing of the next one's: the numbers of two halves vary as they should.
    half = (labels[:, : n // 2] == 1).sum(axis=1)
    expected = np.sum((p[:, 1] * (1 - p[:, 1]))[: n // 2]) / 2
    assert np.var(half) == pytest.approx(expected, rel=0.35)


def test_the_same_seed_gives_the_same_labels() -> None:
    log_odds = np.random.default_rng(1).normal(size=(100, 2))
    one, again, other = (relabel(log_odds, np.array([40, 60]), np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.any(one != other)


# --- Whether they hold -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["mean_test", "time_series"])
def off(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What three networks trained on 20,000 draws miss on fresh ones, in the range that can be trusted.

    Also their errors, learned and jackknife.
    """
    problem = getattr(en.problems, request.param)(10)
    sims, fresh = draws(problem, 20_000, seed=1), draws(problem, 10_000, seed=6)
    net = en.train(sims, members=3, baseline=False, recipe=en.Recipe(epochs=4), seed=2, progress=False)
    found = net.log_bayes_factor(fresh.x)
    inside = net.ranges[0].contains(found)
    assert inside.mean() > 0.5
    missed = found - problem.log_bayes_factor(fresh.x)
    return missed[inside], net.error(fresh.x)[inside], net.jackknife(fresh.x)[inside]


def holds(missed: np.ndarray, error: np.ndarray) -> bool:
    """Whether one and two errors hold what they should."""
    # What one network misses is much the same from draw to draw, so that the fractions scatter by a tenth
    # from training to training. Ideal are 68% and 95%; stated errors are on the large side: six trainings
    # on these two problems had 68% to 89% within one error, 80% in the mean, and 96% or more within two.
    one, two = (float(np.mean(np.abs(missed) < k * error)) for k in (1, 2))
    return 0.55 < one < 0.9 and two > 0.9


def test_errors_hold_the_exact_log_k(off: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    missed, error, jackknife = off
    assert holds(missed, error)
    # Controls: errors too small or too large by a factor of three, and what members disagree by.
    assert not holds(missed, error / 3)
    assert not holds(missed, error * 3)
    assert not holds(missed, jackknife)
    # Members share most of their error: the same draws.
    assert rms(jackknife) < 0.5 * rms(missed)
    assert 0.7 < rms(error) / rms(missed) < 1.6
