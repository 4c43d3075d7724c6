"""Which plan is taken, of those that were tried: by score alone, the simplest first."""

import time
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws, rms
from evidencenet import losses
from evidencenet.checks.scores import score
from evidencenet.losses import LPopExponential, LPopLogistic
from evidencenet.networks import ensemble
from evidencenet.networks.architectures import DeepSet, Dense, Image, Sequence, Spectrum, Table
from evidencenet.training import search
from evidencenet.training.plan import Plan
from evidencenet.training.search import Choice, choose, natural, variants

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


# --- Which plans are tried -------------------------------------------------------------------------------


START = Plan(Dense(), losses.Logistic(), baseline=True)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


# --- By shape --------------------------------------------------------------------------------------------


def test_the_first_loss_is_the_score_itself() -> None:
    assert losses.Logistic() == search.FIRST_LOSS


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((), [Dense, Dense]),
        ((1,), [Dense, Dense]),
        ((3,), [Dense, Dense]),
        ((4,), [Dense, Dense, DeepSet, DeepSet]),
        ((15,), [Dense, Dense, DeepSet, DeepSet]),
        ((16,), [Dense, Dense, DeepSet, DeepSet, Sequence, Spectrum]),
        ((32,), [Dense, Dense, DeepSet, DeepSet, Sequence, Spectrum]),
        ((33,), [Dense, DeepSet, Sequence, Spectrum]),
        ((50, 1), [Sequence, DeepSet, Dense, Spectrum]),
        ((16, 4), [Sequence, DeepSet, Dense, Spectrum]),
        ((7, 1), [Sequence, DeepSet, Dense]),
        ((5000, 1), [Sequence, DeepSet, Dense]),
        ((3, 4), [Dense, Dense, Table]),
        ((12, 12), [Dense, Table]),
        ((12, 12, 1), [Image, Dense, Spectrum]),
        ((12, 12, 3), [Image, Dense, Spectrum]),
        ((6, 6, 1), [Image, Dense]),
        ((4, 4, 7), [Dense]),
        ((2, 2, 2, 2), [Dense, Dense]),
    ],
    ids=str,
)
def test_networks_that_suit_a_shape(shape: tuple[int, ...], wanted: list[type]) -> None:
    found = natural(zeros(*shape))
    assert [type(network) for network in found] == wanted
    assert len(set(found)) == len(found)
    # Few numbers may be given waves as well, in a second dense network, and never in the first.
    dense = [network for network in found if isinstance(network, Dense)]
    assert [network.waves > 0 for network in dense] == [False, True][: len(dense)]


@pytest.mark.parametrize("shape", [(), (1,), (20,), (50, 1), (3, 4), (12, 12, 1), (2, 2, 2, 2)], ids=str)
def test_they_can_take_such_draws(shape: tuple[int, ...]) -> None:
    x = zeros(*shape)
    for network in natural(x):
        module, state = ensemble.initialise(network, x, 1, key=jax.random.key(0))
        assert eqx.filter_eval_shape(ensemble.apply, module, state, x[None])[0].shape == (1, 1)


def test_networks_that_suit_a_dict() -> None:
    mask = np.zeros(5, bool)
    points, rest = zeros(5, 2), zeros(3)
    assert natural({"x": points, "mask": mask}) == [DeepSet(), Dense()]
    assert natural({"x": points, "size": zeros(5), "mask": mask}) == [DeepSet(), Dense()]
    # Without a mask, with two of them, or with arrays that are no elements, nothing is known but numbers.
    for other in (
        {"x": points},
        {"x": points, "mask": mask, "other": mask},
        {"x": points, "rest": rest, "mask": mask},
        {"x": points, "mask": np.zeros((5, 2), bool)},
    ):
        first, waved = natural(other)
        assert first == Dense()
        assert isinstance(waved, Dense)
        assert waved.waves > 0
    assert natural({"x": zeros(40)}) == [Dense()]


def test_fewer_waves_of_more_numbers() -> None:
    assert DeepSet(waves=8) in natural(zeros(32))
    assert DeepSet(waves=8) not in natural(zeros(33))
    assert [natural(zeros(n))[1].waves for n in (1, 8, 10, 16, 32)] == [8, 8, 6, 4, 4]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("network", "wanted"),
    [
        (Dense(), [Dense(width=128, hidden=64)]),
        (Dense(waves=4), []),
        (DeepSet(), [DeepSet(waves=8)]),
        (DeepSet(width=5, waves=3), []),
        (DeepSet(width=5), [DeepSet(width=5, waves=8)]),
        (Table(), [Table(waves=8)]),
        (Sequence(depth=4), [Sequence(depth=5)]),
        (Spectrum(), [Spectrum(width=128, hidden=64)]),
        (Image(), []),
        (lambda x, outputs, key: None, []),
    ],
    ids=lambda value: "own" if callable(value) and not is_dataclass(value) else str(value),
)
def test_other_sizes_of_the_same_kind(network: Any, wanted: list[Any]) -> None:
    assert variants(network, 20) == wanted


def test_wide_networks_are_wide_enough() -> None:
    assert variants(Dense(), 200) == [Dense(width=240, hidden=64)]
    assert variants(Spectrum(), 200) == [Spectrum(width=200, hidden=64)]


# --- Rounds ----------------------------------------------------------------------------------------------


def rounds(options: list[Any], **changes: Any) -> list[Callable[[Plan], list[Plan]]]:
    usual: dict[str, Any] = {
        "numbers": 20,
        "squashes": [False],
        "whitens": [False],
        "baselines": [True, False],
        "loss": None,
        "learned": lambda plan: True,
        "on_all": True,
    }
    return search.rounds(options, **{**usual, **changes})


def test_inputs_come_first() -> None:
    inputs = rounds([Dense()], squashes=[False, True])[0]
    assert [(plan.squash, plan.baseline) for plan in inputs(START)] == [
        (False, True),
        (False, False),
        (True, True),
        (True, False),
    ]
    assert {(plan.network, plan.loss) for plan in inputs(START)} == {(Dense(), losses.Logistic())}


def test_correlated_inputs_are_whitened_too() -> None:
    inputs, kinds, settings, _ = rounds([Dense(), DeepSet()], whitens=[False, True])
    assert [(plan.whiten, plan.baseline) for plan in inputs(START)] == [
        (False, True),
        (False, False),
        (True, True),
        (True, False),
    ]
    # Places that were mixed are not alike.
    best = replace(START, whiten=True)
    assert [(plan.network, plan.whiten) for plan in kinds(best)] == [(Dense(), True), (DeepSet(), False)]
    assert replace(best, whiten=False) in settings(best)
    assert str(best) == "Dense, standardised, whitened, Logistic, on Gaussians"


def test_then_networks_with_either_scaling() -> None:
    kinds = rounds([Dense(), DeepSet(), Spectrum()], squashes=[False, True])[1]
    best = replace(START, squash=True)
    # Those that treat all places alike go without a baseline; the others keep what was best.
    assert [(plan.network, plan.squash, plan.baseline) for plan in kinds(best)] == [
        (Dense(), False, True),
        (Dense(), True, True),
        (DeepSet(), False, False),
        (DeepSet(), True, False),
        (Spectrum(), False, False),
        (Spectrum(), True, False),
    ]
    # Unless it was asked for.
    kinds = rounds([Dense(), DeepSet()], baselines=[True])[1]
    assert [plan.baseline for plan in kinds(START)] == [True, True]


@pytest.mark.parametrize(("network", "decay"), [(Dense(), 0.01), (DeepSet(), 0.1), (Spectrum(), 0.01)])
def test_then_its_settings(network: Any, decay: float) -> None:
    best = replace(START, network=network, baseline=False)
    found = rounds([Dense(), DeepSet(), Spectrum()])[2](best)
    assert found == [
        best,
        replace(best, baseline=True),
        *[replace(best, network=other) for other in variants(network, 20)],
        replace(best, weight_decay=decay),
    ]


def test_shared_weights_are_held_back_only_if_all_draws_say_so() -> None:
    def decays(network: Any) -> set[float | None]:
        settings = rounds([Dense(), DeepSet(), Sequence()], on_all=False)[2]
        return {plan.weight_decay for plan in settings(replace(START, network=network))}

    # Of fewer draws than there are, more decay looks better than it will be, but not less.
    assert decays(DeepSet()) == decays(Sequence()) == {None}
    assert decays(Dense()) == {None, 0.01}


def test_then_losses_the_simplest_first() -> None:
    found = rounds([Dense(), DeepSet()])[3](START)
    assert [plan.loss for plan in found] == [
        losses.Logistic(),
        losses.Exponential(),
        losses.LPopLogistic(),
        losses.LPopExponential(),
    ]
    assert {replace(plan, loss=losses.Logistic()) for plan in found} == {START}


def test_nothing_finer_is_tried_if_nothing_was_learned() -> None:
    asked = []

    def learned(plan: Plan) -> bool:
        asked.append(plan)
        return False

    inputs, kinds, settings, penalties = rounds([Dense(), DeepSet()], learned=learned)
    assert inputs(START)
    assert kinds(START)
    assert settings(START) == penalties(START) == []
    assert asked == [START, START]


def test_what_is_fixed_stays() -> None:
    # A network that was named keeps its settings, and its weight decay.
    mine = Dense(width=7)
    for ask in rounds([mine]):
        assert {(plan.network, plan.weight_decay) for plan in ask(replace(START, network=mine))} == {
            (mine, None)
        }
    # So does a loss, or a baseline.
    loss = losses.Squared()
    for ask in rounds([Dense(), DeepSet()], loss=loss):
        assert {plan.loss for plan in ask(replace(START, loss=loss))} <= {loss}
    for given in (True, False):
        for ask in rounds([Dense(), DeepSet()], baselines=[given]):
            assert {plan.baseline for plan in ask(replace(START, baseline=given))} == {given}


def test_what_is_tried_in_all() -> None:
    tried = []

    def run(plan: Plan) -> np.ndarray:
        tried.append(plan)
        return np.full(64, 0.5)

    found, choice = choose(START, rounds([Dense(), DeepSet()]), run, 10)
    # Where all are equally good, the first stays.
    assert found == START
    # Two inputs, a set; wide, with less decay; three more losses.
    assert len(tried) == len(set(tried)) == len(choice.trials) == 2 + 1 + 2 + 3


# --- In a training ---------------------------------------------------------------------------------------


def plans_tried(net: en.EvidenceNetwork) -> list[str]:
    assert net.choice is not None
    return [trial.plan for trial in net.choice.trials]


def test_a_training_where_there_is_nothing_to_learn() -> None:
    rng = np.random.default_rng(5)
    sims = en.Simulations(rng.normal(size=(2_000, 3)), np.arange(2_000) % 2)
    net = en.train(sims, members=1, seed=1, progress=False)
    # Inputs and networks are tried, with the first loss, and nothing further.
    assert plans_tried(net) == [
        "Dense, standardised, Logistic, on Gaussians",
        "Dense, standardised, Logistic",
        "Dense(width=128, hidden=64, waves=8), standardised, Logistic, on Gaussians",
    ]
    np.testing.assert_array_equal(net.gain, 0)
    assert np.all(np.isfinite(net.error(rng.normal(size=(5, 3)))))


def test_a_training_with_everything_named() -> None:
    rng = np.random.default_rng(5)
    label = np.arange(2_000) % 2
    sims = en.Simulations(rng.normal(size=(2_000, 3)) + label[:, None], label)
    net = en.train(
        sims,
        members=1,
        network=Dense(hidden=4),
        loss=losses.Squared(),
        baseline=False,
        seed=1,
        progress=False,
    )
    assert plans_tried(net) == ["Dense(hidden=4), standardised, Squared"]
    assert net.loss == losses.Squared()
    assert net.architecture == Dense(hidden=4)
    assert net.baseline is None
