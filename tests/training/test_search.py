"""Which plan is taken, of those that were tried: by score alone, the simplest first."""

import time
from collections.abc import Callable

import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws, rms
from evidencenet.checks.scores import score
from evidencenet.losses import LPopExponential, LPopLogistic
from evidencenet.networks.architectures import DeepSet, Dense
from evidencenet.training.plan import Plan
from evidencenet.training.search import Choice, choose

FIRST = Plan(Dense(), LPopExponential())
SQUASHED = Plan(Dense(), LPopExponential(), squash=True)
GUIDED = Plan(Dense(), LPopExponential(), baseline=True)
SET = Plan(DeepSet(), LPopExponential())
LOGISTIC = Plan(Dense(), LPopLogistic())


def chosen(scores: dict[Plan, float], *rounds: list[Plan]) -> tuple[Plan, Choice]:
    steps: list[Callable[[Plan], list[Plan]]] = [lambda _, plans=plans: plans for plans in rounds]  # type: ignore[misc]
    return choose(FIRST, steps, lambda plan: np.full(64, scores[plan]), 1_000)


def test_the_lowest_score_is_taken() -> None:
    scores = {FIRST: 0.5, SQUASHED: 0.4, GUIDED: 0.45, SET: 0.3, LOGISTIC: 0.35}
    plan, choice = chosen(scores, [SQUASHED, GUIDED], [SET], [LOGISTIC])
    assert plan == SET
    assert choice.taken == str(SET)
    assert choice.draws == 1_000
    assert [trial.plan for trial in choice.trials] == [
        str(p) for p in (FIRST, SQUASHED, GUIDED, SET, LOGISTIC)
    ]
    assert [trial.score for trial in choice.trials] == pytest.approx([0.5, 0.4, 0.45, 0.3, 0.35])


@pytest.mark.parametrize(("gain", "taken"), [(1e-4, FIRST), (1.9e-4, FIRST), (2.1e-4, SET), (-1.0, FIRST)])
def test_a_later_plan_must_be_better_by_more_than_chance(gain: float, taken: Plan) -> None:
    assert chosen({FIRST: 0.5, SET: 0.5 - gain}, [SET])[0] == taken


def test_a_difference_within_its_own_error_does_not_count() -> None:
    noise = np.random.default_rng(1).normal(size=400)
    noise -= noise.mean()
    for gain, taken in ((0.03, FIRST), (0.07, SET)):  # the standard error is 0.05
        costs = {FIRST: np.full(400, 0.5), SET: 0.5 - gain + noise}
        assert choose(FIRST, [lambda _: [SET]], costs.__getitem__, 10)[0] == taken


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_plans_that_fail_lose(bad: float) -> None:
    plan, choice = chosen({FIRST: bad, SET: 0.6, GUIDED: bad}, [SET, GUIDED])
    assert plan == SET
    assert [trial.score for trial in choice.trials] == pytest.approx([np.inf, 0.6, np.inf])
    assert chosen({FIRST: 0.6, SET: bad}, [SET])[0] == FIRST
    plan, choice = chosen({FIRST: bad, SET: bad}, [SET])
    assert plan == FIRST
    assert "inf" in str(choice)


def test_the_simplest_that_is_as_good_is_taken() -> None:
    # In a round that lists the best plan so far, those before it are simpler: it must beat them.
    costs = {FIRST: 0.5, GUIDED: 0.4, SET: 0.4, LOGISTIC: 0.4}
    assert chosen(costs, [GUIDED], [SET, GUIDED, LOGISTIC])[0] == SET
    assert chosen({**costs, SET: 0.4 + 1e-4}, [GUIDED], [SET, GUIDED])[0] == SET
    # By more than 2e-4 it does.
    assert chosen({**costs, SET: 0.4 + 3e-4}, [GUIDED], [SET, GUIDED])[0] == GUIDED
    # A round that does not list it offers more elaborate plans.
    assert chosen(costs, [GUIDED], [SET, LOGISTIC])[0] == GUIDED
    assert chosen({**costs, SET: 0.4 - 3e-4}, [GUIDED], [SET, LOGISTIC])[0] == SET


def test_gains_do_not_add_up_by_small_steps() -> None:
    # Each is better than the one before by less than what counts, the last one than the first by more.
    names = [FIRST, SQUASHED, GUIDED, SET]
    scores = {plan: 0.5 - 1.5e-4 * i for i, plan in enumerate(names)}
    assert chosen(scores, names[1:2])[0] == FIRST
    assert chosen(scores, names[1:])[0] == GUIDED
    # A round of no alternatives changes nothing.
    assert chosen(scores, names[1:], [])[0] == GUIDED


def test_each_round_is_told_of() -> None:
    told = []
    costs = {FIRST: 0.5, SET: 0.4, GUIDED: 0.45}
    choose(
        FIRST,
        [lambda _: [SET, GUIDED], lambda _: []],
        lambda plan: np.full(64, costs[plan]),
        10,
        lambda tried, best: told.append((tried, best)),
    )
    assert told == [(3, SET), (3, SET)]


def test_each_round_starts_from_the_best_so_far() -> None:
    asked = []

    def again(best: Plan) -> list[Plan]:
        asked.append(best)
        return [FIRST, SET]

    tried = []

    def run(plan: Plan) -> np.ndarray:
        tried.append(plan)
        return np.full(64, {FIRST: 0.5, SET: 0.4}[plan])

    plan, choice = choose(FIRST, [again, again, again], run, 10)
    assert plan == SET
    assert asked == [FIRST, SET, SET]
    # None is tried twice.
    assert sorted(map(str, tried)) == sorted([str(FIRST), str(SET)])
    assert len(choice.trials) == 2


def test_trials_are_listed_in_order_whichever_ends_first() -> None:
    def run(plan: Plan) -> np.ndarray:
        time.sleep(0.05 if plan == FIRST else 0)
        return np.full(64, 0.5)

    _, choice = choose(FIRST, [lambda _: [SET, GUIDED]], run, 10)
    assert [trial.plan for trial in choice.trials] == [str(FIRST), str(SET), str(GUIDED)]
    assert choice.trials[0].seconds >= 0.05 > choice.trials[1].seconds


@pytest.mark.parametrize(
    ("short", "long", "taken", "again"),
    [
        (0.4010, 0.3, SET, [FIRST, SET]),  # what learns most
        (0.4010, 0.39, FIRST, [FIRST, SET]),  # what was best is best
        (0.4010, 0.3496, FIRST, [FIRST, SET]),  # by no more than chance
        (0.4010, 0.3494, SET, [FIRST, SET]),
        (0.4030, 0.3, FIRST, []),  # far behind already
    ],
)
def test_the_closest_two_are_tried_at_greater_length(
    short: float, long: float, taken: Plan, again: list[Plan]
) -> None:
    scores = {FIRST: 0.4, SQUASHED: 0.4005, SET: short}
    longer = {FIRST: 0.35, SET: long}
    plan, choice = choose(
        FIRST,
        [lambda _: [SQUASHED, SET]],
        lambda plan: np.full(64, scores[plan]),
        10,
        run_longer=lambda plan: np.full(64, longer[plan]),
    )
    assert plan == taken
    assert choice.taken == str(taken)
    # The same network with other inputs is no rival. Short trials stay on record.
    assert [trial.plan for trial in choice.longer] == [str(plan) for plan in again]
    assert [trial.score for trial in choice.trials] == pytest.approx([0.4, 0.4005, short])
    assert ("at greater length" in str(choice)) == bool(again)
    if again:
        assert f"{longer[SET]:.5f}" in str(choice)


@pytest.mark.parametrize(("behind", "again"), [(0.01, False), (0.0, False), (-0.01, True)])
def test_the_caller_says_how_far_behind_a_rival_may_be(behind: float, again: bool) -> None:
    # Better by less than chance, the rival is not taken at once, but tried at greater length.
    noise = np.random.default_rng(1).normal(size=100)
    plan, choice = choose(
        FIRST,
        [lambda _: [SET]],
        lambda plan: np.full(100, 0.5) if plan == FIRST else 0.5 + behind + noise - noise.mean(),
        10,
        run_longer=lambda plan: np.full(100, 0.5 if plan == FIRST else 0.4),
        rival=lambda plan, best: 0.0 if plan == SET else -np.inf,
    )
    assert bool(choice.longer) == again
    assert plan == (SET if again else FIRST)


def test_an_error_is_the_callers() -> None:
    def run(plan: Plan) -> np.ndarray:
        raise ZeroDivisionError("in a trial")

    with pytest.raises(ZeroDivisionError, match="in a trial"):
        choose(FIRST, [lambda _: [SET]], run, 10)


def test_the_table() -> None:
    _, choice = chosen({FIRST: 0.5, SET: 0.4321, GUIDED: 0.6}, [SET, GUIDED])
    head, *rows = str(choice).splitlines()
    assert head == "Tried on 1,000 draws; held-out log score in nats, lower is better:"
    assert [row[0] for row in rows] == [" ", "*", " "]
    assert "DeepSet, standardised, LPopExponential " in rows[1]
    assert "0.43210" in rows[1]
    assert rows[2].startswith("  Dense, standardised, LPopExponential, on Gaussians")


def test_different_plans_have_different_words() -> None:
    assert str(Plan(Dense(waves=3), LPopExponential(), squash=True, weight_decay=0.01)) == (
        "Dense(waves=3), asinh, LPopExponential, weight decay 0.01"
    )
    wide = Plan(Dense(hidden=64), LPopExponential())
    assert str(wide) != str(FIRST)
    _, choice = chosen({FIRST: 0.5, wide: 0.4}, [wide])
    assert [row[0] for row in str(choice).splitlines()[1:]] == [" ", "*"]


# --- The default call ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def default() -> Case:
    """Eight exchangeable numbers over decades, with nothing named but the number of members."""
    problem = en.problems.decades(size=8)
    sims = draws(problem, 20_000, seed=1)
    net = en.train(sims, members=1, seed=2, progress=False)
    return Case(problem, sims, draws(problem, 5_000, seed=3), net)


def test_the_default_call_chooses(default: Case) -> None:
    net = default.net
    choice = net.choice
    assert choice is not None
    assert choice.draws == 18_000
    scores = {trial.plan: trial.score for trial in choice.trials}
    # A simpler plan is kept if it is worse by no more than chance: errors of differences are 0.001 or so.
    assert scores[choice.taken] < min(scores.values()) + 0.003
    assert scores[choice.taken] < scores["Dense, asinh, Logistic"] - 0.03
    # Two scalings, whitened or not, with and without a baseline; three other networks with either scaling;
    # then the best one with a baseline, whitened, and with another decay; and three other losses.
    assert len(scores) == len(choice.trials) == 8 + 6 + 3 + 3
    for trial in choice.trials:
        assert f"{trial.plan} " in str(choice)
    # Logarithms of numbers that may change places: each is worth 0.03 nats or more in the trials.
    assert isinstance(net.architecture, DeepSet)
    assert net.scaling.squash
    np.testing.assert_array_equal(net.scaling.logarithm, True)
    assert ", asinh, " in choice.taken


def test_the_default_call_is_right(default: Case) -> None:
    exact = default.problem.log_bayes_factor(default.fresh.x)
    check = en.validate(default.net, default.fresh)
    best = score(exact, default.fresh.model)
    # Most of what there is to know, of 18,000 draws.
    assert check.score.gain > 0.8 * best.gain > 5 * check.score.gain_error
    # Where few draws of either model fall, log K is extrapolated, which the range says: not judged here.
    some = default.net.ranges[0].contains(exact)
    assert some.mean() > 0.8
    found = default.net.log_bayes_factor(default.fresh.x)
    assert rms((found - exact)[some]) < 0.8 * rms(exact[some])


def test_the_default_call_hardly_knows_an_order(default: Case) -> None:
    x = np.asarray(default.fresh.x)
    shuffled = np.random.default_rng(1).permuted(x, axis=1)
    found = default.net.log_bayes_factor(x)
    changed = default.net.log_bayes_factor(shuffled) - found
    # A set network knows none, but Gaussians under it do: within the error.
    if default.net.baseline is None:
        np.testing.assert_allclose(changed, 0, atol=1e-3)
    assert rms(changed) < rms(default.net.error(x))
    assert np.std(found) > 0.3


def test_the_default_call_is_the_same_again() -> None:
    sims, fresh = (draws(en.problems.mean_test(size=3), n, seed=n) for n in (2_000, 100))
    one, again = (en.train(sims, network=Dense(), members=1, seed=2, progress=False) for _ in range(2))
    assert one.choice is not None
    assert again.choice is not None
    assert again.choice.taken == one.choice.taken
    assert [(t.plan, t.score) for t in again.choice.trials] == [(t.plan, t.score) for t in one.choice.trials]
    assert len(one.choice.trials) >= 2
    np.testing.assert_array_equal(again.members(fresh.x), one.members(fresh.x))
    np.testing.assert_array_equal(again.error(fresh.x), one.error(fresh.x))
