"""Train an ensemble on draws that are split already; `deepen` does, with rare draws among them."""

from dataclasses import replace

from evidencenet import losses, networks
from evidencenet.estimator.arguments import Seeds
from evidencenet.estimator.assemble import Failures, assembled, made
from evidencenet.estimator.learn_error import can_be_halved, learn_error_model
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.training.inputs import prepare
from evidencenet.training.recipe import Recipe
from evidencenet.training.search import FIRST_LOSS, Freedom, Search
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
    part: float = 1.0,
    learn_error: bool = True,
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
    recipe, members, seed, progress, learn_error
        As in `train`; but a recipe that leaves the epochs open fixes nothing else.
    part
        The part of the usual number of epochs to train for.
    """
    seeds = Seeds.of(seed)
    trainer = Trainer(losses.outputs(len(names)), recipe, seeds.order, seeds.weights)
    freedom = replace(Freedom.of(draws, network, FIRST_LOSS, None, None), opinions=())
    search = Search(draws, trainer, freedom)
    plan = search.run(progress=progress)
    inputs = prepare(draws, plan)
    full_recipe = trainer.sized(inputs)
    full_recipe = replace(full_recipe, epochs=max(1, round(part * (full_recipe.epochs or 1))))
    trained = trainer.fit(inputs, full_recipe, members, progress=progress)
    net = assembled(names, failures, inputs, trained, search.choice)
    net = replace(net, made=made(seed, draws.augment, full_recipe))
    if learn_error and can_be_halved(draws):
        error_model = learn_error_model(net, inputs, trained, trainer, seed=seeds.error, progress=progress)
        net = replace(net, errors=error_model)
    return net
