"""Which plans are tried for which data, in which order, and what is left alone."""

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import evidencenet as en
from evidencenet import losses
from evidencenet.networks import ensemble
from evidencenet.networks.architectures import DeepSet, Dense, Image, Sequence, Spectrum, Table
from evidencenet.training import search
from evidencenet.training.plan import Plan
from evidencenet.training.search import choose, natural, variants

FIRST = Plan(Dense(), losses.Logistic(), baseline=True)


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
    assert [(plan.squash, plan.baseline) for plan in inputs(FIRST)] == [
        (False, True),
        (False, False),
        (True, True),
        (True, False),
    ]
    assert {(plan.network, plan.loss) for plan in inputs(FIRST)} == {(Dense(), losses.Logistic())}


def test_correlated_inputs_are_whitened_too() -> None:
    inputs, kinds, settings, _ = rounds([Dense(), DeepSet()], whitens=[False, True])
    assert [(plan.whiten, plan.baseline) for plan in inputs(FIRST)] == [
        (False, True),
        (False, False),
        (True, True),
        (True, False),
    ]
    # Places that were mixed are not alike.
    best = replace(FIRST, whiten=True)
    assert [(plan.network, plan.whiten) for plan in kinds(best)] == [(Dense(), True), (DeepSet(), False)]
    assert replace(best, whiten=False) in settings(best)
    assert str(best) == "Dense, standardised, whitened, Logistic, on Gaussians"


def test_then_networks_with_either_scaling() -> None:
    kinds = rounds([Dense(), DeepSet(), Spectrum()], squashes=[False, True])[1]
    best = replace(FIRST, squash=True)
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
    assert [plan.baseline for plan in kinds(FIRST)] == [True, True]


@pytest.mark.parametrize(("network", "decay"), [(Dense(), 0.01), (DeepSet(), 0.1), (Spectrum(), 0.01)])
def test_then_its_settings(network: Any, decay: float) -> None:
    best = replace(FIRST, network=network, baseline=False)
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
        return {plan.weight_decay for plan in settings(replace(FIRST, network=network))}

    # Of fewer draws than there are, more decay looks better than it will be, but not less.
    assert decays(DeepSet()) == decays(Sequence()) == {None}
    assert decays(Dense()) == {None, 0.01}


def test_then_losses_the_simplest_first() -> None:
    found = rounds([Dense(), DeepSet()])[3](FIRST)
    assert [plan.loss for plan in found] == [
        losses.Logistic(),
        losses.Exponential(),
        losses.LPopLogistic(),
        losses.LPopExponential(),
    ]
    assert {replace(plan, loss=losses.Logistic()) for plan in found} == {FIRST}


def test_nothing_finer_is_tried_if_nothing_was_learned() -> None:
    asked = []

    def learned(plan: Plan) -> bool:
        asked.append(plan)
        return False

    inputs, kinds, settings, penalties = rounds([Dense(), DeepSet()], learned=learned)
    assert inputs(FIRST)
    assert kinds(FIRST)
    assert settings(FIRST) == penalties(FIRST) == []
    assert asked == [FIRST, FIRST]


def test_what_is_fixed_stays() -> None:
    # A network that was named keeps its settings, and its weight decay.
    mine = Dense(width=7)
    for ask in rounds([mine]):
        assert {(plan.network, plan.weight_decay) for plan in ask(replace(FIRST, network=mine))} == {
            (mine, None)
        }
    # So does a loss, or a baseline.
    loss = losses.Squared()
    for ask in rounds([Dense(), DeepSet()], loss=loss):
        assert {plan.loss for plan in ask(replace(FIRST, loss=loss))} <= {loss}
    for given in (True, False):
        for ask in rounds([Dense(), DeepSet()], baselines=[given]):
            assert {plan.baseline for plan in ask(replace(FIRST, baseline=given))} == {given}


def test_what_is_tried_in_all() -> None:
    tried = []

    def run(plan: Plan) -> np.ndarray:
        tried.append(plan)
        return np.full(64, 0.5)

    found, choice = choose(FIRST, rounds([Dense(), DeepSet()]), run, 10)
    # Where all are equally good, the first stays.
    assert found == FIRST
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
