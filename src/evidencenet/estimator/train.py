"""`train`: from simulations to an `EvidenceNetwork`."""

import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import map_arrays
from evidencenet._common.versions import versions
from evidencenet.checks.range import HeldOut
from evidencenet.estimator.arguments import (
    check_others,
    checked_loss,
    checked_members,
    checked_network,
    checked_seed,
    checked_simulations,
)
from evidencenet.estimator.error import can_be_halved, learn_error_model
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.novelty import FITTING_DRAWS, REFERENCE_DRAWS, Novelty, Seen
from evidencenet.estimator.second_look import look_again
from evidencenet.estimator.seen_draws import SeenDraws
from evidencenet.estimator.train_with_densities import KnownDensities
from evidencenet.networks import ensemble
from evidencenet.simulation.dataset import Simulations
from evidencenet.training.checkpoint import run_fingerprint, trials_path
from evidencenet.training.compiled import keep_compiled_programs
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.loop import Checkpoint, Trained, initialise_members
from evidencenet.training.recipe import Recipe
from evidencenet.training.search import FIRST_LOSS, Choice, Freedom, Search, natural
from evidencenet.training.split import Augment, Draws
from evidencenet.training.trainer import Trainer
from evidencenet.training.trials import TrialFile


def train(
    sims: Simulations,
    *,
    loss: losses.Loss | str | None = None,
    network: networks.Architecture | str | None = None,
    members: int = 4,
    recipe: Recipe | None = None,
    baseline: bool | None = None,
    augment: Augment | None = None,
    layout: str | Mapping[str, str] | None = None,
    learn_error: bool = True,
    seed: int | None = 0,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> EvidenceNetwork:
    """Train an ensemble of networks to tell the models apart, and so to give log Bayes factors.

    Parameters
    ----------
    sims
        Draws of two models or more. If the density of a model is known, by `Model(log_density=)`, it is used
        and not learned (see `evidencenet.estimator.densities`).
    loss
        One of `evidencenet.losses`, or its name; the paper's is ``LPopExponential(alpha=2.0)``.
    network
        One of `evidencenet.networks`, or its name, such as "image"; or ``function(x, outputs, key=key)`` that
        returns an Equinox module for draws like `x`.
    members
        Networks in the ensemble. Their mean is the estimate.
    recipe
        How to train. If you name one, nothing is chosen by evidence: the loss is the paper's, the network is
        the first that suits the shape of the data, and there is no baseline, unless you name these too.
    baseline
        Whether the networks correct Gaussians fitted to each model's draws, or learn everything themselves.

        Loss, network and baseline that you do not name are chosen by evidence, and so is the scaling of the
        data: alternatives are trained on some of the draws, and the best held-out score of log K decides. The
        result's `choice` lists them.
    augment
        ``augment(rng, x)`` applies a random symmetry of the problem to each draw of a batch, for example a
        change of sign.
    layout
        What x is: "vector", "exchangeable", "series", "channels x time", "image", "volume", "table", "set",
        "set of sets", "irregular series" or "categories"; for a dict of several parts, a dict of such names.
        None guesses it from the draws (see `evidencenet.networks.layout`). A network of your own sees x as
        you gave it.
    learn_error
        Learn the error of log K by training two more networks, each on half of the draws (see
        `evidencenet.estimator.error`). If False, or with fewer than 64 draws to train on, errors are the
        jackknife over the members, as in the paper, which misses what they share.
    seed
        The same seed on the same machine gives the same network, to the bit. None draws one, and says which.
    progress
        Show a bar (or, where there is no terminal, a few lines) on standard error.
    checkpoint
        A file for the state of the training after each epoch. If the file is there already, training
        continues from it, to the same network as without a break. A checkpoint of another run (other draws,
        settings, `augment` or network) is refused, and the message says what differs. `EvidenceNetwork.save`
        removes it, when the network is safely on disk; until then the same call continues from it.

    Returns
    -------
    EvidenceNetwork
        Trained; it cannot be changed.

    Examples
    --------
    >>> import numpy as np
    >>> import evidencenet as en
    >>> flat = en.Model("flat", lambda rng, n: rng.normal(size=(n, 20)))
    >>> wide = en.Model("wide", lambda rng, n: 1.5 * rng.normal(size=(n, 20)))
    >>> sims = en.simulate([flat, wide], 20_000, seed=1, progress=False)
    >>> net = en.train(sims, seed=2, progress=False)
    >>> net.log_bayes_factor(np.zeros((1, 20))).shape
    (1,)
    """
    sims, loss, network = checked_simulations(sims), checked_loss(loss), checked_network(network)
    members, seed = checked_members(members), checked_seed(seed)
    check_others(recipe, baseline, augment, loss)
    keep_compiled_programs()
    split_seed, order_seed, weights_seed, error_seed = _seeds(seed)
    known = KnownDensities.of(sims, augment, split_seed, loss) if sims.log_density is not None else None
    if known is not None and known.all:
        net, inputs = known.exact(members, split_seed)
        return replace(net, made=_made(seed, augment, None), novelty=fit_novelty(inputs, net))
    if known is not None:
        sims = known.classes

    # Split, and choose a plan.
    trainer = Trainer(losses.outputs(len(sims.names)), recipe or Recipe(), order_seed, weights_seed)
    draws = Draws.split(sims, trainer.recipe.held_out, augment, split_seed, layout, network)
    if network is not None:
        # A network of the user's own may fail: then at once, and with a reason.
        initialise_members(network, draws.arranged_example, trainer.outputs, 1, 0)
    freedom = Freedom.of(draws, network, loss, baseline, recipe)
    run = _identified(checkpoint, sims, augment, network, loss, seed, members, recipe, baseline)
    trials = None if checkpoint is None else TrialFile(trials_path(checkpoint), run)
    search = None if recipe is not None else Search(draws, trainer, freedom, trials)
    plan = search.run(progress=progress) if search else freedom.first_plan(losses.LPopExponential())

    # Fit.
    inputs = prepare(draws, plan)
    full_recipe = trainer.sized(inputs)
    if checkpoint is None:
        doubtful = search is not None and plan.baseline and not search.learned(plan)
        trained = trainer.fit_unless_idle(inputs, full_recipe, members, doubtful=doubtful, progress=progress)
    else:
        state = Checkpoint(checkpoint, run | {"the plan": str(plan)})
        trained = trainer.fit(inputs, full_recipe, members, progress=progress, checkpoint=state)

    # Judge by the held-out draws, and learn the error.
    failures = Failures(np.log(sims.valid_fraction), sims.log_valid_error)
    net = _assembled(sims.names, failures, inputs, trained, search.choice if search else None)
    net = replace(net, made=_made(seed, augment, full_recipe), columns=sims.columns)
    if learn_error and can_be_halved(draws):
        second_look = None
        if search:
            log_k, kinds = draws.held_out_log_k(trained.log_odds), natural(draws)
            second_look = look_again(inputs, log_k, kinds, trainer, seed=error_seed)
        error_model = learn_error_model(
            net,
            inputs,
            trained,
            trainer,
            rival=search.rival if search else None,
            second_look=second_look,
            seed=error_seed,
            progress=progress,
        )
        net = replace(net, errors=error_model)

    # Put together.
    if known is not None:
        all_inputs = known.with_hidden_models(inputs)
        net = known.completed(replace(net, novelty=fit_novelty(all_inputs, trained)), all_inputs.draws)
    # The checkpoint stays until the network is saved: then `save` removes it.
    return net if checkpoint is None else replace(net, checkpoint=Path(checkpoint))


@dataclass(frozen=True)
class Failures:
    """Log of the fraction of each model's draws that did not fail, and its standard error, (K,) each."""

    log_valid: np.ndarray
    log_valid_error: np.ndarray


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
    _, order_seed, weights_seed, error_seed = _seeds(seed)
    trainer = Trainer(losses.outputs(len(names)), recipe, order_seed, weights_seed)
    freedom = replace(Freedom.of(draws, network, FIRST_LOSS, None, None), opinions=())
    search = Search(draws, trainer, freedom)
    plan = search.run(progress=progress)
    inputs = prepare(draws, plan)
    full_recipe = trainer.sized(inputs)
    full_recipe = replace(full_recipe, epochs=max(1, round(part * (full_recipe.epochs or 1))))
    trained = trainer.fit(inputs, full_recipe, members, progress=progress)
    net = _assembled(names, failures, inputs, trained, search.choice)
    net = replace(net, made=_made(seed, draws.augment, full_recipe))
    if learn_error and can_be_halved(draws):
        error_model = learn_error_model(net, inputs, trained, trainer, seed=error_seed, progress=progress)
        net = replace(net, errors=error_model)
    return net


def fit_novelty(inputs: Inputs, trained: Trained | EvidenceNetwork) -> Novelty | None:
    """Learn what draws look like, also to the networks, and how far out held-out draws lie.

    None if there is nothing to look at: draws of very many numbers, and no networks.
    """
    draws = inputs.draws
    if inputs.moments is None and trained.networks is None:
        return None
    # Networks that have learned nothing are used only if a draw has too many numbers to look at itself.
    use_networks = inputs.moments is None or trained.gain.any()

    def seen(rows: np.ndarray, most: int) -> Seen:
        sample = draws.of_equal_weight(rows, most)
        x = inputs.scaling(map_arrays(lambda array: array[sample], draws.x))
        hidden = None
        if use_networks:
            hidden = ensemble.hidden_layers(trained.networks, trained.states, trained.gain, x)
        return Seen(x, hidden, draws.model[sample])

    return Novelty.fit(
        None if inputs.moments is None else inputs.moments.of_all(),
        seen(draws.training_rows, FITTING_DRAWS),
        seen(draws.held_out_rows, REFERENCE_DRAWS),
    )


def _assembled(
    names: tuple[str, ...], failures: Failures, inputs: Inputs, trained: Trained, choice: Choice | None
) -> EvidenceNetwork:
    """Put the network together, with log K of its held-out draws."""
    draws = inputs.draws
    label = draws.model[draws.held_out_rows]
    log_valid = failures.log_valid
    log_k = draws.held_out_log_k(trained.log_odds) + log_valid - log_valid[0]
    # Only draws of equal weight can say which range is validated: their numbers count.
    equal = np.isin(draws.held_out_rows, draws.of_equal_weight(draws.held_out_rows))
    plain = None
    if draws.plain is not None:
        # Rare draws validate log K too, where plain ones never come.
        plain = draws.plain[draws.held_out_rows]
        equal = equal | ~plain
        plain = plain[equal]
    return EvidenceNetwork(
        names=names,
        example=draws.example,
        scaling=inputs.scaling,
        baseline=inputs.baseline,
        novelty=fit_novelty(inputs, trained),
        loss=inputs.plan.loss,
        architecture=inputs.plan.network,
        networks=trained.networks,
        states=trained.states,
        gain=trained.gain,
        log_prior=draws.log_shares,
        log_valid=log_valid,
        log_valid_error=failures.log_valid_error,
        held_out=HeldOut(log_k[equal].astype(np.float32), label[equal].astype(np.int8), plain),
        history=trained.history,
        choice=choice,
        seen=SeenDraws.of(draws.x, draws.training_rows, draws.held_out_rows),
    )


def _seeds(seed: int) -> list[int]:
    """Seeds of the split, the order of the draws, the initial weights, and the halves."""
    return [int(number) for number in np.random.SeedSequence(operator.index(seed)).generate_state(4)]


def _identified(
    checkpoint: str | os.PathLike[str] | None,
    sims: Simulations,
    augment: Augment | None,
    network: networks.Architecture | None,
    loss: losses.Loss | None,
    seed: int,
    members: int,
    recipe: Recipe | None,
    baseline: bool | None,
) -> dict[str, str]:
    """Identify the run that a checkpoint belongs to; empty if there is no checkpoint."""
    if checkpoint is None:
        return {}
    settings = {"seed": seed, "members": members, "the recipe": recipe, "baseline": baseline}
    return run_fingerprint(sims, augment=augment, network=network, loss=loss, settings=settings)


def _made(seed: int, augment: Augment | None, recipe: Recipe | None) -> dict[str, Any]:
    """Keep what another call would need to give the same network."""
    given = {} if recipe is None else {item.name: getattr(recipe, item.name) for item in fields(recipe)}
    return {
        "seed": operator.index(seed),
        # The architecture is a part of the network itself.
        "recipe": {name: value for name, value in given.items() if name != "network"},
        "augment": augment and getattr(augment, "__qualname__", type(augment).__name__),
        "versions": versions(),
    }
