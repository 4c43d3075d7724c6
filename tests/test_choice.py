"""Which plan is taken, of those that were tried: by score alone, the simplest first."""

import time
from collections.abc import Callable

import jax
import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws, rms
from evidencenet.choice import Choice, Plan, choose
from evidencenet.losses import LPopExponential, LPopLogistic
from evidencenet.networks import DeepSet, Dense, Image, Sequence
from evidencenet.train import _Draws, _rounds, natural
from evidencenet.trust import score

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
    wide = Plan(Dense(hidden=64), LPopExponential())
    assert str(wide) != str(FIRST)
    _, choice = chosen({FIRST: 0.5, wide: 0.4}, [wide])
    assert [row[0] for row in str(choice).splitlines()[1:]] == [" ", "*"]


# --- By shape --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "first", "others"),
    [
        ((1,), Dense, set()),
        ((3,), Dense, set()),
        ((4,), Dense, {DeepSet}),
        ((20,), Dense, {DeepSet, Sequence}),
        ((50, 1), Sequence, {DeepSet, Dense}),
        ((16, 4), Sequence, {DeepSet, Dense}),
        ((3, 4), Dense, set()),
        ((12, 12, 1), Image, {Dense}),
        ((12, 12, 3), Image, {Dense}),
        ((4, 4, 7), Dense, set()),
        ((2, 2, 2, 2), Dense, set()),
    ],
    ids=str,
)
def test_networks_that_suit_a_shape(shape: tuple[int, ...], first: type, others: set[type]) -> None:
    found = natural(np.zeros(shape, np.float32))
    assert type(found[0]) is first
    assert {type(network) for network in found} == {first} | others
    # Each of them is able to take such draws.
    for network in found:
        assert np.all(np.isfinite(outputs(network, np.zeros(shape, np.float32))))


def outputs(network: en.networks.Architecture, x: np.ndarray) -> np.ndarray:
    module, state = en.networks.initialise(network, x, 1, key=jax.random.key(0))
    return np.asarray(en.networks.apply(module, state, x[None])[0])


def test_networks_that_suit_a_dict() -> None:
    mask = np.zeros(5, bool)
    points, rest = np.zeros((5, 2), np.float32), np.zeros(3, np.float32)
    assert natural({"x": points, "mask": mask}) == [DeepSet(), Dense()]
    assert natural({"x": points, "size": np.zeros(5), "mask": mask}) == [DeepSet(), Dense()]
    # Without a mask, with two of them, or with arrays that are no elements, nothing is known but numbers.
    assert natural({"x": points}) == [Dense()]
    assert natural({"x": points, "mask": mask, "other": mask}) == [Dense()]
    assert natural({"x": points, "rest": rest, "mask": mask}) == [Dense()]
    assert natural({"x": points, "mask": np.zeros((5, 2), bool)}) == [Dense()]


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
    assert scores[choice.taken] < min(scores.values()) + 2e-4
    # Two scalings with and without a baseline, two other networks with either scaling, another loss.
    assert len(choice.trials) == 9
    for trial in choice.trials:
        assert f"{trial.plan} " in str(choice)
    # Logarithms of numbers that may change places: each is worth 0.03 nats or more in the trials.
    assert isinstance(net.architecture, DeepSet)
    assert net.scaling.squash
    np.testing.assert_array_equal(net.scaling.logarithm, True)
    assert choice.taken.startswith("DeepSet, asinh, ")


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


def test_the_default_call_knows_no_order(default: Case) -> None:
    assert default.net.baseline is None
    x = np.asarray(default.fresh.x)
    shuffled = np.random.default_rng(1).permuted(x, axis=1)
    found = default.net.log_bayes_factor(x)
    # Sums in another order, in single precision, through a link that squares.
    np.testing.assert_allclose(default.net.log_bayes_factor(shuffled), found, rtol=1e-4, atol=1e-5)
    assert np.std(found) > 0.3


def test_squashing_is_tried_only_where_there_are_outliers(small: Case) -> None:
    plan = Plan(Dense(), LPopExponential())

    def tried(sims: en.Simulations, baseline: bool | None) -> list[tuple[bool, bool]]:
        some = _Draws.of(sims, 0.1, None, [1, 2])
        first = _rounds([Dense()], None, baseline, some)[0]
        return [(p.squash, p.baseline) for p in first(plan)]

    normal = small.sims
    tails = en.Simulations(np.random.default_rng(1).standard_cauchy(size=(6_000, 5)), normal.model)
    assert tried(normal, False) == [(False, False)]
    assert tried(normal, None) == [(False, True), (False, False)]
    assert tried(tails, True) == [(False, True), (True, True)]
    assert tried(tails, None) == [(False, True), (False, False), (True, True), (True, False)]
    wide = en.Simulations(np.random.default_rng(1).normal(size=(200, 601)), np.arange(200) % 2)
    assert tried(wide, None) == [(False, False)]


def test_the_default_call_is_the_same_again(default: Case) -> None:
    again = en.train(default.sims, members=1, seed=2, progress=False)
    assert again.choice is not None
    assert default.net.choice is not None
    assert again.choice.taken == default.net.choice.taken
    assert [(t.plan, t.score) for t in again.choice.trials] == [
        (t.plan, t.score) for t in default.net.choice.trials
    ]
    np.testing.assert_array_equal(again.members(default.fresh.x), default.net.members(default.fresh.x))
