"""Errors of log K: what is learned of them, and whether they hold."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

import evidencenet as en
from conftest import draws, rms
from evidencenet.estimator.error import ErrorModel
from evidencenet.estimator.learn_error import (
    Witness,
    _growth,
    _of_rival,
    _witnessed,
    shown_bias_square,
    squared_errors,
)
from evidencenet.estimator.second_look import SecondLook
from evidencenet.losses import Logistic
from evidencenet.networks.architectures import Dense
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.loop import History, Trained
from evidencenet.training.plan import Plan
from evidencenet.training.search import Fewer, Rival
from evidencenet.training.split import Draws

# --- The fit ---------------------------------------------------------------------------------------------


Size = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def synthetic(
    size: Size, *, seed: int = 1, n: int = 40_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log K, jackknife errors, p-values, errors as a function says, and estimates of their squares."""
    rng = np.random.default_rng(seed)
    log_k = rng.normal(size=n) * 2
    jackknife = 0.1 * np.exp(0.4 * rng.normal(size=n))
    p = 1 - rng.random(n)
    true = size(log_k, jackknife, p)
    # Two errors, less what the estimate has of its own: unbiased, and often negative.
    squared = true**2 * (1 + rng.chisquare(2, size=n) / 2 - rng.chisquare(3, size=n) / 3)
    return log_k, jackknife, p, true, squared


@pytest.mark.parametrize(
    "size",
    [
        lambda log_k, jackknife, p: np.full_like(log_k, 0.03),
        lambda log_k, jackknife, p: 2.5 * jackknife,
        lambda log_k, jackknife, p: 0.05 * np.exp(0.2 * np.abs(log_k)),
        lambda log_k, jackknife, p: 0.2 * np.exp(0.15 * log_k),
        lambda log_k, jackknife, p: 0.2 * p**-0.25,
        lambda log_k, jackknife, p: 3 * jackknife * np.exp(0.1 * np.abs(log_k) - 0.1 * log_k) * p**-0.1,
    ],
    ids=["constant", "jackknife", "grows both ways", "grows one way", "rare data", "all of these"],
)
def test_errors_of_known_size_are_found(size: Size) -> None:
    log_k, jackknife, p, true, squared = synthetic(size)
    assert np.mean(squared < 0) > 0.1
    model = ErrorModel.fit(log_k, jackknife, p, squared)
    found = model(log_k, jackknife, p)
    # Each of the few numbers of the fit rests on 2,000 draws or more whose squares scatter by 1.3 of
    # themselves: 3% of the square, 1.5% of the error; straight pieces between some log K cost a little more.
    middle = np.abs(log_k) < 3
    ratio = found[middle] / true[middle]
    assert abs(np.mean(ratio) - 1) < 0.02
    assert np.sqrt(np.mean((ratio - 1) ** 2)) < 0.06
    # A control: as much would be said of errors that are 10% off.
    assert np.sqrt(np.mean((1.1 * ratio - 1) ** 2)) > 0.06


def test_rare_data_have_larger_errors_if_they_do() -> None:
    everywhere = np.full(3, 0.1)
    p = np.array([1.0, 0.1, 0.001])
    sizes: list[Size] = [lambda log_k, jackknife, p: 0.2 + 0 * p, lambda log_k, jackknife, p: 0.2 * p**-0.25]
    for size in sizes:
        log_k, jackknife, seen, _, squared = synthetic(size)
        found = ErrorModel.fit(log_k, jackknife, seen, squared)(np.zeros(3), everywhere, p)
        np.testing.assert_allclose(found, size(everywhere, everywhere, p), rtol=0.1)
    # A control: without p-values the rarest of these would be said to have a fourth of their error.
    blind = ErrorModel.fit(log_k, jackknife, np.ones_like(log_k), squared)(np.zeros(3), everywhere, p)
    assert blind[2] < 0.4 * found[2]


def test_the_jackknife_alone_is_refuted_where_it_says_nothing() -> None:
    log_k, jackknife, p, _, squared = synthetic(lambda log_k, jackknife, p: np.full_like(log_k, 0.3))
    model = ErrorModel.fit(log_k, jackknife, p, squared)
    wide, narrow = (model(np.zeros(1), np.array([size]), np.ones(1))[0] for size in (0.2, 0.05))
    # Jackknife errors that differ by a factor of four mean nothing here.
    assert wide / narrow == pytest.approx(1, abs=0.1)
    assert wide == pytest.approx(0.3, rel=0.05)


def test_beyond_what_was_seen_the_error_is_that_of_the_end() -> None:
    log_k, jackknife, p, _, squared = synthetic(
        lambda log_k, jackknife, p: 0.05 * np.exp(0.2 * np.abs(log_k))
    )
    model = ErrorModel.fit(log_k, jackknife, p, squared)
    ends, same = np.array([log_k.min(), log_k.max()]), (np.full(2, 0.1), np.full(2, 0.5))
    np.testing.assert_allclose(model(ends * 100, *same), model(ends, *same), rtol=1e-9)


def test_small_jackknife_errors_count_as_the_smallest() -> None:
    log_k, jackknife, p, _, squared = synthetic(lambda log_k, jackknife, p: jackknife)
    model = ErrorModel.fit(log_k, jackknife, p, squared)
    assert model.floor == pytest.approx(0.1 * np.median(jackknife))
    found = model(np.zeros(4), model.floor * np.array([0.0, 0.5, 1.0, 2.0]), np.ones(4))
    np.testing.assert_allclose(found[:2], found[2], rtol=1e-12)
    assert found[3] == pytest.approx(2 * found[2], rel=0.1)


@pytest.mark.parametrize("jackknife", [np.nan, 0.0], ids=["one member", "members that agree"])
def test_without_a_jackknife_log_k_is_left(jackknife: float) -> None:
    log_k, _, p, true, squared = synthetic(lambda log_k, jackknife, p: 0.05 * np.exp(0.2 * np.abs(log_k)))
    unknown = np.full_like(log_k, jackknife)
    model = ErrorModel.fit(log_k, unknown, p, squared)
    assert model.floor == 0
    found = model(log_k, unknown, p)
    assert np.all(np.isfinite(found))
    middle = np.abs(log_k) < 3
    assert np.sqrt(np.mean((found / true - 1)[middle] ** 2)) < 0.06


@pytest.mark.parametrize("lucky", [-0.01, 0.0])
def test_no_error_is_zero(lucky: float) -> None:
    log_k, jackknife, p, _, _ = synthetic(lambda log_k, jackknife, p: jackknife)
    squared, unknown = np.full_like(log_k, lucky), np.full_like(log_k, np.nan)
    # What cannot be told from nothing is taken from the jackknife, and else is very small.
    found = ErrorModel.fit(log_k, jackknife, p, squared)(log_k, jackknife, p)
    np.testing.assert_allclose(np.mean(found**2), np.mean(jackknife**2), rtol=0.01)
    alone = ErrorModel.fit(log_k, unknown, p, squared)(log_k, unknown, p)
    assert np.all((alone > 0) & (alone < 1e-5))


def test_all_log_k_the_same() -> None:
    rng = np.random.default_rng(1)
    squared, unknown = 0.04 * rng.chisquare(1, size=5_000), np.full(5_000, np.nan)
    model = ErrorModel.fit(np.zeros(5_000), unknown, 1 - rng.random(5_000), squared)
    found = model(np.array([-1.0, 0.0, 5.0]), unknown[:3], np.full(3, 0.5))
    np.testing.assert_allclose(found, 0.2, rtol=0.03)


# --- Halves of the draws ---------------------------------------------------------------------------------


def estimated(seed: int, *, n: int = 400, bias: float = 0.0, members: int = 1) -> float:
    """Squared error, as halves of the draws tell it, of a mean of n draws of variance 1 (and a bias/n)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * n, 1))
    sims = en.Simulations(x, np.arange(2 * n) % 2)
    some = Draws.split(sims, 0.5, None, seed)
    data = prepare(some, Plan(Dense(), Logistic()))

    def fit(prepared: Inputs, rng: np.random.Generator) -> np.ndarray:
        rows = prepared.draws.training_rows
        value = x[rows].mean() + bias / len(rows)
        # Networks differ by chance, too, by 0.05 here.
        return np.tile([0.0, value + (0.05 * rng.normal() if members > 1 else 0.0)], (n, 1))

    found = np.stack([fit(data, rng) for _ in range(members)])
    trained = Trained(None, None, np.ones(members), found, np.zeros(0), cast(History, None))
    squared = squared_errors(data, trained, fit, seed=seed, progress=False)
    assert squared.shape == (n, 2)
    assert np.all(squared[:, 0] == 0)
    return float(squared[0, 1])


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize("bias", [0.0, 40.0])
def test_halves_tell_the_error_of_a_mean(bias: float, members: int) -> None:
    found = np.array([estimated(seed, bias=bias, members=members) for seed in range(150)])
    # Of 400 draws the mean has a variance of 1/400, and the bias is a tenth. Four networks add 0.05²/4, which
    # is counted twice.
    true = 1 / 400 + (bias / 400) ** 2 + (0.05**2 / 2 if members > 1 else 0.0)
    error = found.std() / np.sqrt(len(found))
    assert error < 0.15 * true
    assert abs(found.mean() - true) < 4 * error
    # A control: as much could not be said of half the square, or twice.
    assert abs(found.mean() - 0.5 * true) > 4 * error
    assert abs(found.mean() - 2 * true) > 4 * error


@pytest.mark.parametrize("corrected", [True, False], ids=["taken back", "left as they are"])
def test_errors_of_gaussians_count_unless_networks_take_them_back(corrected: bool) -> None:
    problem = en.problems.mean_test(30)
    some = Draws.split(draws(problem, 4_000, seed=1), 0.5, None, 1)
    x = some.held_out_draws()[0]
    data = prepare(some, Plan(Dense(), Logistic(), baseline=True))

    def gaussians(prepared: Inputs) -> np.ndarray:
        assert prepared.baseline is not None
        return prepared.baseline(prepared.scaling(x))

    def fit(prepared: Inputs, rng: np.random.Generator) -> np.ndarray:
        own = 0.02 * rng.normal(size=(len(some.held_out_rows), 2)) * [0, 1]
        return (gaussians(data) if corrected else gaussians(prepared)) + own

    trained = Trained(None, None, np.ones(1), gaussians(data)[None], np.zeros(0), cast(History, None))
    found = squared_errors(data, trained, fit, seed=3, progress=False)[:, 1]
    both = [[gaussians(prepare(half, data.plan))[:, 1] for half in some.halves(3 + i)] for i in range(6)]
    differ = np.mean([(first - second) ** 2 / 4 for first, second in both])
    # What half of the draws lacks in both halves is not counted, what differs between them is. The draws
    # are halved in other ways here, and a direction that one half finds and the other does not counts much.
    if corrected:
        assert found.mean() == pytest.approx(0.02**2, rel=0.1)
    else:
        assert 0.5 * differ < found.mean() < 2 * differ
    missed = np.mean([(one - gaussians(data)[:, 1]) ** 2 for pair in both for one in pair])
    assert missed > 1.3 * differ > 1.3 * 0.05**2


def test_members_that_were_not_taken_do_not_hide_the_error() -> None:
    some = Draws.split(draws(en.problems.mean_test(30), 4_000, seed=1), 0.5, None, 1)
    x = some.held_out_draws()[0]
    data = prepare(some, Plan(Dense(), Logistic(), baseline=True))
    assert data.baseline is not None
    log_k = data.baseline(data.scaling(x))
    # One of four members adds something, and neither half does.
    added = 2 * np.sin(log_k)
    log_odds = np.stack([log_k + added, log_k, log_k, log_k])
    trained = Trained(None, None, np.array([1.0, 0, 0, 0]), log_odds, np.zeros(0), cast(History, None))

    def fit(prepared: Inputs, rng: np.random.Generator) -> np.ndarray:
        assert prepared.baseline is not None
        return prepared.baseline(prepared.scaling(x))

    found = squared_errors(data, trained, fit, seed=3, progress=False)[:, 1]
    # That is an error of a quarter of what was added, of which half may be chance.
    missed = np.mean((added[:, 1] / 4) ** 2)
    assert found.mean() > 0.5 * missed
    # A control: members differ by more, so that all of it would be taken for chance.
    assert missed < 0.75 * np.mean(log_odds[:, :, 1].var(axis=0, ddof=1))


def test_errors_are_learned_of_as_many_draws_as_can_be_halved() -> None:
    x = np.random.default_rng(1).normal(size=(140, 2))
    # With 72 left for training, a half is less than the batch that was named.
    for n, known in ((80, True), (70, False)):
        sims = en.Simulations(x[:n], np.arange(n) % 2)
        net = en.train(sims, recipe=en.Recipe(epochs=2, batch=40), members=2, seed=1, progress=False)
        assert (net.errors is not None) == known
        assert np.isfinite(net.error(x)).all()


# --- Whether they hold -----------------------------------------------------------------------------------


class Missed(NamedTuple):
    """What log K misses on fresh draws, in the range that can be trusted, and its errors, (n,).

    Also errors for which no data are rare, and p-values.
    """

    off: np.ndarray
    error: np.ndarray
    jackknife: np.ndarray
    blind: np.ndarray
    p: np.ndarray


@functools.cache
def missed_by(name: str, *, baseline: bool, seed: int = 2) -> Missed:
    """Train three networks on 20,000 draws, and judge them on 10,000 others."""
    problem = getattr(en.problems, name)(10)
    sims, fresh = draws(problem, 20_000, seed=seed - 1), draws(problem, 10_000, seed=seed + 4)
    recipe = en.Recipe(epochs=4)
    net = en.train(sims, members=3, baseline=baseline, recipe=recipe, seed=seed, progress=False)
    found = net.log_bayes_factor(fresh.x)
    inside = net.ranges[0].contains(found)
    assert inside.mean() > 0.5
    assert net.errors is not None
    parts = (
        found - problem.log_bayes_factor(fresh.x),
        net.error(fresh.x),
        net.jackknife(fresh.x),
        replace(net, errors=replace(net.errors, rise=0.0)).error(fresh.x),
        net.novelty_p_value(fresh.x).max(axis=1),
    )
    return Missed(*(part[inside] for part in parts))


@pytest.fixture(scope="module", params=["mean_test", "time_series"])
def missed(request: pytest.FixtureRequest) -> Missed:
    """What networks miss that learn all by themselves."""
    return missed_by(request.param, baseline=False)


def holds(off: np.ndarray, error: np.ndarray) -> bool:
    """Whether one and two errors hold what they should."""
    # What one network misses is much the same from draw to draw, so that the fractions scatter by a tenth
    # from training to training. Ideal are 68% and 95%; twelve trainings of networks on these two problems had
    # 69% to 86% within one error, 78% in the mean, and 95% or more within two; twelve fits of Gaussians 54%
    # to 84%, 68% in the mean, and 87% or more.
    one, two = (float(np.mean(np.abs(off) < k * error)) for k in (1, 2))
    return 0.55 < one < 0.9 and two > 0.9


def test_errors_hold_the_exact_log_k(missed: Missed) -> None:
    off, error, jackknife, _, _ = missed
    assert holds(off, error)
    # Controls: errors too small or too large by a factor of three, and what members disagree by.
    assert not holds(off, error / 3)
    assert not holds(off, error * 3)
    assert not holds(off, jackknife)
    # Members share most of their error: the same draws.
    assert rms(jackknife) < 0.5 * rms(off)
    # Over four trainings of the mean test: 0.9 to 1.65.
    assert 0.7 < rms(error) / rms(off) < 1.8


def test_errors_hold_it_for_rare_data_too() -> None:
    ratios = []
    for seed in (2, 3, 4, 5):
        off, error, _, blind, p = missed_by("mean_test", baseline=False, seed=seed)
        rare, usual = p < 0.05, p > 0.3
        assert rare.sum() > 150
        ratios.append([rms((off / e)[rare]) / rms((off / e)[usual]) for e in (error, blind)])
    # Rare data are off by as many errors as usual ones; the ratio scatters by 0.15 from training to training.
    stated, control = np.exp(np.mean(np.log(ratios), axis=0))
    # Measured: 0.97, and 1.26 without the p-values.
    assert 0.8 < stated < 1.15 < control


@pytest.mark.parametrize("name", ["mean_test", "time_series"])
def test_errors_of_gaussians_hold_it_too(name: str) -> None:
    off, error, *_ = missed_by(name, baseline=True)
    assert holds(off, error)
    assert not holds(off, error / 3)
    assert not holds(off, error * 3)


# --- What other kinds of network say -----------------------------------------------------------------------


def judged_by_a_rival(size: float, rival_size: float, models: int = 2) -> tuple[float, float]:
    """Squared errors found with a rival's help, and the true ones, where halves see nothing of them."""
    rng = np.random.default_rng(5)
    n = 200_000
    exact = 1.5 * rng.normal(size=(n, models)) * (np.arange(models) > 0)
    p = softmax(exact, axis=1)
    label = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    # Smooth functions of log K: biases that a kind of network has for good.
    bias, other = size * np.sin(2 * exact), rival_size * np.cos(3 * exact) * (np.arange(models) > 0)

    def costs(log_odds: np.ndarray) -> np.ndarray:
        return -log_softmax(log_odds, axis=1)[np.arange(n), label]

    rival = Rival("another kind", exact + other, costs(exact + other))
    nothing = np.full((n, models), 1e-8)
    witness = _of_rival(rival, exact + bias, costs(exact + bias), np.zeros(models))
    squared = _witnessed(nothing, exact + bias, [witness])
    weight = p * (1 - p)
    found, true = ((weight * square)[:, 1:].mean() for square in (squared, np.square(bias)))
    return float(found), float(true)


@pytest.mark.parametrize("models", [2, 3])
@pytest.mark.parametrize(("size", "rival_size"), [(0.3, 0.3), (0.3, 0.1), (0.2, 0.4)])
def test_a_rival_shows_what_halves_cannot_see(size: float, rival_size: float, models: int) -> None:
    found, true = judged_by_a_rival(size, rival_size, models)
    # The score difference is known to about 0.0006 nats, twice of which enters a square of 0.01 to 0.04; and
    # for three models errors are taken as independent between the models.
    assert found == pytest.approx(true, rel=0.25, abs=0.002)
    # A control: without the rival nothing would be seen.
    assert true > 1e5 * 1e-8


def test_a_rival_that_agrees_changes_nothing() -> None:
    found, _ = judged_by_a_rival(0.0, 0.0)
    assert found == pytest.approx(1e-8, rel=1.0)


def test_errors_grow_until_they_cost_what_a_witness_says() -> None:
    rng = np.random.default_rng(6)
    log_odds = np.stack([np.zeros(50_000), rng.normal(size=50_000)], axis=1)
    squared = np.full((50_000, 2), 1e-8)
    p = softmax(log_odds, axis=1)[:, 1]

    def cost(square: np.ndarray) -> float:
        # Errors e cost p(1 − p)e²/2.
        return float(np.mean(p * (1 - p) * square[:, 1]) / 2)

    # A second look is believed as far as it is beyond doubt: three of its errors are taken off.
    look = SecondLook("another kind", 0.01, 0.001)
    evenly = Witness(2 * look.certain, np.ones_like(squared))
    grown = _witnessed(squared, log_odds, [evenly])
    assert cost(grown) == pytest.approx(0.007, rel=1e-6)
    # A gain that may be chance changes nothing, nor does a witness of less than is known already.
    chance = Witness(2 * SecondLook("another kind", 0.002, 0.001).certain, np.ones_like(squared))
    assert np.array_equal(_witnessed(squared, log_odds, [chance]), squared)
    assert np.array_equal(_witnessed(grown, log_odds, [evenly, chance]), grown)
    # In proportion to the errors, all of them grow by the same factor.
    uneven = squared * np.linspace(1, 3, len(squared))[:, None]
    grown = _witnessed(uneven, log_odds, [Witness(0.014, uneven)])
    assert cost(grown) == pytest.approx(0.007, rel=1e-6)
    assert np.ptp(grown[:, 1] / uneven[:, 1]) < 1e-6 * np.mean(grown[:, 1] / uneven[:, 1])


@pytest.mark.parametrize("few", [20_000, 45_000])
def test_a_trial_with_fewer_draws_shows_what_is_missing(few: int) -> None:
    """Networks whose error costs one over their draws: those of fewer draws tell what those of all lack."""
    rng = np.random.default_rng(6)
    many, n = 180_000, 200_000
    exact = np.stack([np.zeros(n), 1.5 * rng.normal(size=n)], axis=1)
    p = softmax(exact, axis=1)
    label = (rng.random(n) < p[:, 1]).astype(int)

    def costs(draws: float) -> np.ndarray:
        log_odds = exact + np.sin(2 * exact) * np.sqrt(10_000 / draws)
        return -log_softmax(log_odds, axis=1)[np.arange(n), label]

    true = float(np.mean(p[:, 1] * p[:, 0] * np.square(np.sin(2 * exact[:, 1])))) * 10_000 / many
    # The gain is known to the root of twice its size over n, and one such error is taken off.
    gain = 0.5 * true * (many - few) / few
    sigma = np.sqrt(2 * gain / n) / gain
    for stated in (0.75, 0.9):
        growth = _growth(Fewer(few, costs(few)), many, costs(many), stated * true)
        assert (1 - 5 * sigma) / stated < growth < (1 + 3 * sigma) / stated
    # Errors that are large enough stay as they are, and one bad trial does not spoil them.
    assert _growth(Fewer(few, costs(few)), many, costs(many), 1.5 * true) == 1
    assert _growth(Fewer(few, costs(few / 10)), many, costs(many), true) == 1.5
    # A control: a trial that was as good shows nothing.
    assert _growth(Fewer(few, costs(many)), many, costs(many), 1e-9) == 1


def test_a_bias_that_labels_of_rare_draws_show_is_in_the_error() -> None:
    rng = np.random.default_rng(7)
    n = 40_000
    log_k = rng.uniform(-5, 20, n)
    # As many draws of both models everywhere: the offset takes log K back.
    log_odds = rng.normal(size=n)
    label = rng.random(n) < expit(log_odds)
    group = rng.integers(10, size=n)

    def found(bias: float, offset_error: float) -> np.ndarray:
        shift = np.where(log_k > 10, bias, 0.0)
        return shown_bias_square(log_k + shift, log_odds + shift, label, group, np.full(n, offset_error))

    biased = found(0.5, 0.02)
    assert np.mean(biased[log_k > 12]) == pytest.approx(0.25, rel=0.25)
    assert np.mean(biased[log_k < 8]) < 0.01
    # Controls: no bias, and one that the error of the offset explains.
    assert np.mean(found(0.0, 0.02)) < 0.005
    assert np.mean(found(0.2, 0.4)) == 0
