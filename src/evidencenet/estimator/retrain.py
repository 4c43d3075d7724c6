"""Train an ensemble on draws that are split already; `deepen` does, with rare draws among them."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from evidencenet import losses, networks
from evidencenet.estimator.arguments import Seeds
from evidencenet.estimator.assemble import Failures, assembled, made
from evidencenet.estimator.learn_error import can_be_halved, learn_error_model
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.second_look import look_again
from evidencenet.training.inputs import prepare
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import Recipe
from evidencenet.training.search import FIRST_LOSS, Freedom, Search, natural
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer


def train_on(
    draws: Draws,
    names: tuple[str, ...],
    failures: Failures,
    network: networks.Architecture,
    *,
    recipe: Recipe,
    members: int,
    seed: int,
    progress: bool,
    executor: Any = None,
    part: float = 1.0,
    learn_error: bool = True,
    plan: Plan | None = None,
    offset_error: np.ndarray | None = None,
) -> EvidenceNetwork:
    """Train one architecture on draws that are split already, with the logistic loss.

    Parameters
    ----------
    draws
        The draws.
    names, failures
        Names of the models, and how many of their draws fail.
    network
        The architecture. Trials choose the scaling of its inputs, and whether it corrects the baseline.
    recipe, members, seed, progress, executor, learn_error
        As in `train`; but a recipe that leaves the epochs open fixes nothing else.
    part
        The part of the usual number of epochs to train for.
    plan
        A plan that was chosen before, such as by `plan_of`; None chooses one by trials.
    offset_error
        The standard error of the log-odds that the draws have because of how they were drawn, (n, K).
    """
    seeds = Seeds.of(seed)
    trainer = Trainer(losses.outputs(len(names)), recipe, seeds.order, seeds.weights, executor)
    choice = None
    if plan is None:
        freedom = replace(Freedom.of(draws, network, FIRST_LOSS, None, None), opinions=())
        search = Search(draws, trainer, freedom)
        plan, choice = search.run(progress=progress), search.choice
    inputs = prepare(draws, plan)
    full_recipe = trainer.sized(inputs)
    full_recipe = replace(full_recipe, epochs=max(1, round(part * (full_recipe.epochs or 1))))
    trained = trainer.fit(inputs, full_recipe, members, progress=progress)
    net = assembled(names, failures, inputs, trained, choice)
    net = replace(net, made=made(seed, draws.augment, full_recipe))
    if learn_error and can_be_halved(draws):
        log_k = draws.held_out_log_k(trained.log_odds)
        second_look = look_again(inputs, log_k, natural(draws), trainer, seed=seeds.error)
        error_model = learn_error_model(
            net,
            inputs,
            trained,
            trainer,
            second_look=second_look,
            offset_error=None if offset_error is None else offset_error[draws.held_out_rows],
            seed=seeds.error,
            progress=progress,
        )
        net = replace(net, errors=error_model)
    return net


def plan_of(net: EvidenceNetwork) -> Plan:
    """Return the plan that a network was trained by, with the logistic loss."""
    logarithms = [part for part in jax.tree.leaves(net.scaling.logarithm) if part is not None]
    return Plan(
        net.architecture,
        FIRST_LOSS,
        squash=net.scaling.squash,
        baseline=net.baseline is not None,
        weight_decay=net.made.get("recipe", {}).get("weight_decay"),
        whiten=net.scaling.whitening is not None,
        log=any(np.any(part) for part in logarithms),
        project=net.scaling.projection is not None,
        signal=net.scaling.signal is not None,
    )
