"""Assemble an `EvidenceNetwork`: the fitted ensemble, with what its held-out draws say."""

import operator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from evidencenet._common.arrays import map_arrays
from evidencenet._common.versions import versions
from evidencenet.checks.range import HeldOut
from evidencenet.checks.scores import log_scores
from evidencenet.estimator.arguments import Request
from evidencenet.estimator.fit import Fit
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.novelty import FITTING_DRAWS, REFERENCE_DRAWS, Novelty, Seen
from evidencenet.estimator.seen_draws import SeenDraws
from evidencenet.networks import ensemble
from evidencenet.training.inputs import Inputs
from evidencenet.training.loop import Trained
from evidencenet.training.recipe import Recipe
from evidencenet.training.search import Choice
from evidencenet.training.split import Augment


@dataclass(frozen=True)
class Failures:
    """Log of the fraction of each model's draws that did not fail, and its standard error, (K,) each."""

    log_valid: np.ndarray
    log_valid_error: np.ndarray


def assemble(request: Request, fit: Fit) -> EvidenceNetwork:
    """Assemble the network that was asked for, still without the error of log K."""
    sims, choice = request.sims, fit.search.choice if fit.search else None
    failures = Failures(np.log(sims.valid_fraction), sims.log_valid_error)
    net = assembled(sims.names, failures, fit.inputs, fit.trained, choice, fit.log_odds)
    about = made(request.seed, request.augment, fit.recipe) | {"rival": _rival(fit)}
    return replace(net, made=about, columns=sims.columns, masked=sims.masked, partner=fit.partner)


def _rival(fit: Fit) -> dict[str, Any] | None:
    """Say by how much the best network of another kind scores better than the one that was chosen."""
    rival = fit.rival
    if rival is None:
        return None
    weight = fit.inputs.draws.weight[fit.inputs.draws.held_out_rows]
    label = fit.inputs.draws.model[fit.inputs.draws.held_out_rows]
    gained = weight * log_scores(fit.log_odds.mean(axis=0), label) - rival.costs
    error = float(gained.std() / np.sqrt(len(gained)))
    return {"plan": rival.plan, "gain": float(gained.mean()), "error": error}


def completed(net: EvidenceNetwork, request: Request, fit: Fit) -> EvidenceNetwork:
    """Add the known densities, if there are any, and say where the checkpoint is."""
    if request.known is not None:
        inputs = request.known.with_hidden_models(fit.inputs)
        net = request.known.completed(replace(net, novelty=fit_novelty(inputs, fit.trained)), inputs.draws)
    # The checkpoint stays until the network is saved: then `save` removes it.
    return net if request.checkpoint is None else replace(net, checkpoint=request.checkpoint)


def exact_network(request: Request) -> EvidenceNetwork:
    """Assemble the network where all densities are known, so that nothing is learned."""
    assert request.known is not None
    net, inputs = request.known.exact(request.members, request.seeds.split)
    return replace(
        net,
        made=made(request.seed, request.augment, None),
        novelty=fit_novelty(inputs, net),
        columns=request.sims.columns,
        masked=request.sims.masked,
    )


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


def assembled(
    names: tuple[str, ...],
    failures: Failures,
    inputs: Inputs,
    trained: Trained,
    choice: Choice | None,
    log_odds: np.ndarray | None = None,
) -> EvidenceNetwork:
    """Put the network together, with log K of its held-out draws.

    `log_odds` are those of the held-out draws, (members, n, K), if a partner has a part in them.
    """
    draws = inputs.draws
    label = draws.model[draws.held_out_rows]
    log_valid = failures.log_valid
    own = trained.log_odds if log_odds is None else log_odds
    log_k = draws.held_out_log_k(own) + log_valid - log_valid[0]
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
        seen=SeenDraws.of(draws.x, draws.training_rows, draws.held_out_rows, draws.clean),
    )


def made(seed: int, augment: Augment | None, recipe: Recipe | None) -> dict[str, Any]:
    """Keep what another call would need to give the same network."""
    given = {} if recipe is None else {item.name: getattr(recipe, item.name) for item in fields(recipe)}
    return {
        "seed": operator.index(seed),
        # The architecture is a part of the network itself.
        "recipe": {name: value for name, value in given.items() if name != "network"},
        "augment": augment and getattr(augment, "__qualname__", type(augment).__name__),
        "versions": versions(),
    }
