"""`train`: from simulations to an `EvidenceNetwork`."""

import operator
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import map_arrays
from evidencenet._common.progress import Progress
from evidencenet._common.versions import versions
from evidencenet._common.warnings import log
from evidencenet.checks.range import HeldOut, validated_range
from evidencenet.estimator.error import ErrorModel, can_be_halved, squared_errors
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.novelty import FITTING_DRAWS, REFERENCE_DRAWS, Novelty, Seen
from evidencenet.estimator.train_with_densities import Known
from evidencenet.networks import ensemble
from evidencenet.simulation.dataset import Simulations
from evidencenet.training import search
from evidencenet.training.checkpoint import fingerprint
from evidencenet.training.gaussians import LARGEST
from evidencenet.training.inputs import Prepared, prepare
from evidencenet.training.loop import Checkpoint, Trained, train_ensemble
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import MOST_OPERATIONS, Recipe
from evidencenet.training.search import CLOSE, Choice, choose
from evidencenet.training.split import Augment, Draws

# Plans are tried on so many draws, with so much arithmetic at most: seconds, not minutes.
_TRIAL_DRAWS = 50_000
_TRIAL_PASSES = 10
_TRIAL_OPERATIONS = 1e11
# And the last two on all draws, with half of what a member may take.
_LONGER_OPERATIONS = MOST_OPERATIONS / 2
# Standard error of log K if no difference was found, times √n: half of what would have been noticed.
_UNNOTICED = 4.0
# Log K that vary by less than this are all the same.
_ROUNDING = 1e-5


def train(
    sims: Simulations,
    *,
    loss: losses.Loss | None = None,
    network: networks.Architecture | None = None,
    members: int = 4,
    recipe: Recipe | None = None,
    baseline: bool | None = None,
    augment: Augment | None = None,
    learn_error: bool = True,
    seed: int = 0,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> EvidenceNetwork:
    """Train an ensemble of networks to tell the models apart, and so to give log Bayes factors.

    Parameters
    ----------
    sims
        Draws of two models or more. Densities of models that are known, by `Model(log_density=)`, are used
        and not learned: then a reference fitted to the draws of the other models is told apart too (see
        `evidencenet.estimator.densities`).
    loss
        One of `evidencenet.losses`; the paper's is ``LPopExponential(alpha=2.0)``.
    network
        One of `evidencenet.networks`, or ``function(x, outputs, key=key)`` that returns an Equinox module for
        draws like `x`.
    members
        Networks in the ensemble. Their mean is the estimate.
    recipe
        How to train. Naming one switches off every choice made by evidence: then the loss is the paper's,
        the network the first that suits the shape of the data, and there is no baseline, unless named too.
    baseline
        Whether the networks correct Gaussians fitted to each model's draws, or learn all by themselves.

        Of loss, network and baseline, what is not named is chosen by evidence, and so is the scaling of the
        data: alternatives are trained on some of the draws, and the best held-out score of log K decides. The
        result's `choice` lists them.
    augment
        ``augment(rng, x)`` applies a random symmetry of the problem to each of a batch of draws, for example
        a change of sign.
    learn_error
        Learn the error of log K by training two more networks, each on half of the draws (see
        `evidencenet.estimator.error`). If False, or with fewer than 64 draws to train on, errors are the
        jackknife
        over the members, as in the paper, which misses what they share.
    seed
        The same seed on the same machine gives the same network, to the bit.
    progress
        Show a bar (or, where there is no terminal, a few lines) on standard error.
    checkpoint
        A file that holds the state of the training after each epoch. If it is there already, training goes
        on where it was cut off, to the same network as without a break; it is removed in the end.

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
    _check(sims, members, augment, loss, network, recipe)
    if baseline and isinstance(loss, losses.Asymmetric):
        raise ValueError("an asymmetric loss cannot start from a baseline. Leave it out, or change the loss.")
    seeds = [int(s) for s in np.random.SeedSequence(operator.index(seed)).generate_state(4)]
    known = None
    if sims.log_density is not None:
        known = Known.of(sims, augment, seeds[0], two=isinstance(loss, losses.Asymmetric))
        if known.all:
            net, data = known.exact(members, seeds[0])
            net = replace(net, made=_made(seed, augment, None))
            return net if data.moments is None else replace(net, novelty=_novelty(data, net))
        sims = known.classes
    job = _Job(losses.outputs(len(sims.names)), recipe or Recipe(), seeds[1], seeds[2])
    draws = Draws.of(sims, job.named.held_out, augment, seeds[0])
    if baseline and draws.features > LARGEST:
        raise ValueError(
            f"a baseline needs draws of at most {LARGEST} numbers, these have {draws.features}. "
            "Leave it out: baseline=False."
        )
    given = network or job.named.network
    options = search.natural(draws.example) if given is None else [given]
    # The baseline comes first: with it, networks need only learn what is not Gaussian, if anything.
    guided = recipe is None and draws.features <= LARGEST and not isinstance(loss, losses.Asymmetric)
    baselines = ([True, False] if guided else [False]) if baseline is None else [baseline]
    usual = search.FIRST_LOSS if recipe is None else losses.LPopExponential()
    plan, choice = Plan(options[0], loss or usual, baseline=baselines[0]), None
    if recipe is None:
        plan, choice = _chosen(job, draws, plan, options, baselines, loss, progress)
        log.info("training %s, the best of %d tried on %d draws", plan, len(choice.trials), choice.draws)
    data = prepare(draws, plan)
    final = job.sized(data)
    kept = None
    if checkpoint is not None:
        settings = (str(plan), repr(final), members, seeds)
        some = map_arrays(lambda array: array[::1000], sims.x)
        kept = Checkpoint(checkpoint, fingerprint(settings, sims.model, sims.log_weight, some))
    trained = job.fit(data, final, members, progress=progress, kept=kept)
    net = replace(_finished(sims, data, trained, choice), made=_made(seed, augment, final))
    if learn_error and can_be_halved(draws):
        net = replace(net, errors=_error_model(job, net, data, trained, seeds[3], progress))
    if known is not None:
        every = known.everything(data)
        net = known.completed(replace(net, novelty=_novelty(every, trained)), every.draws)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return net


@dataclass(frozen=True)
class _Job:
    """What all trainings of one call share: outputs of the networks, the recipe as named, and seeds."""

    outputs: int
    named: Recipe
    order: int
    weights: int

    def fit(
        self,
        data: Prepared,
        recipe: Recipe,
        members: int = 1,
        *,
        progress: bool = False,
        kept: Checkpoint | None = None,
    ) -> Trained:
        return train_ensemble(
            data.plan.network,
            self.outputs,
            data.plan.loss,
            data.source(recipe, self.order),
            data.held_out(),
            recipe,
            members=members,
            seed=self.weights,
            progress=progress,
            checkpoint=kept,
        )

    def sized(self, data: Prepared, most: float = MOST_OPERATIONS, *, fewest: int = 3) -> Recipe:
        """Fill in what the recipe leaves to the draws, the plan, and the arithmetic that is allowed."""
        plan = data.plan
        decay = self.named.weight_decay if plan.weight_decay is None else plan.weight_decay
        return replace(self.named, weight_decay=decay).for_draws(
            len(data.draws.training),
            operations=ensemble.operations(plan.network, data.draws.example, self.outputs),
            most=most,
            fewest=fewest,
            shared=networks.shares_weights(plan.network),
            exchangeable=networks.is_exchangeable(plan.network),
        )


def _chosen(
    job: _Job,
    draws: Draws,
    first: Plan,
    options: list[networks.Architecture],
    baselines: list[bool],
    loss: losses.Loss | None,
    progress: bool,
) -> tuple[Plan, Choice]:
    """Choose a plan by trials on few draws, within what the caller has not fixed."""
    few = draws.few(_TRIAL_DRAWS)
    learned: set[Plan] = set()

    def attempt(plan: Plan) -> np.ndarray:
        data = prepare(few, plan)
        short = job.sized(data, _TRIAL_OPERATIONS, fewest=2)
        epochs = min(short.epochs or _TRIAL_PASSES, _TRIAL_PASSES)
        return tried(data, replace(short, epochs=epochs))

    def longer(plan: Plan) -> np.ndarray:
        data = prepare(draws, plan)
        return tried(data, job.sized(data, _LONGER_OPERATIONS))

    def rival(plan: Plan, best: Plan) -> float:
        """How far a plan may be behind and yet overtake: one of another kind, not only of another size."""
        if best not in learned:
            # Gaussians alone do not improve at length. Networks do, if they are as good already.
            return 0.0 if plan in learned else -np.inf
        return CLOSE if plan.network in options and plan.network != best.network else -np.inf

    def tried(data: Prepared, recipe: Recipe) -> np.ndarray:
        trained = job.fit(data, recipe)
        if trained.gain.any():
            learned.add(data.plan)
        weight = np.ravel(data.held_out().weight)
        return (trained.costs[0] * weight)[weight > 0]

    rounds = search.rounds(
        options,
        numbers=draws.features,
        squashes=[False, True] if few.has_outliers() else [False],
        whitens=[False, True] if few.is_correlated() else [False],
        baselines=baselines,
        loss=loss,
        learned=learned.__contains__,
        on_all=len(few.training) == len(draws.training),
    )
    # The later rounds depend on what the first ones find.
    most = len({plan for ask in rounds[:2] for plan in ask(first)}) + 6
    with Progress("choosing", most, enabled=progress) as bar:

        def tell(tried: int, best: Plan) -> None:
            bar.update(tried, best=str(best))

        return choose(first, rounds, attempt, len(few.training), tell, longer, rival)


def _error_model(
    job: _Job, net: EvidenceNetwork, data: Prepared, trained: Trained, seed: int, progress: bool
) -> ErrorModel:
    """Learn the error from trainings on halves of the draws."""
    draws = data.draws
    x, n = draws.held_out()[0], len(draws.testing)

    def fit(half: Prepared, rng: np.random.Generator) -> np.ndarray:
        # A batch that was named may be more than half of the draws.
        batch, most = job.named.batch, len(half.draws.training)
        named = replace(job.named, batch=batch and min(batch, most))
        order, weights = (int(number) for number in rng.integers(2**31, size=2))
        mine = replace(job, named=named, order=order, weights=weights)
        return draws.held_out_log_k(mine.fit(half, mine.sized(half)).log_odds)

    squared = squared_errors(data, trained, fit, seed=seed, progress=progress)
    log_k = draws.held_out_log_k(trained.log_odds)
    # Where no difference was found, one may be there that is too small to be noticed: log K of 8/√n gain just
    # the two standard errors of the score, of n held-out draws, that are asked of networks.
    squared[:, np.ptp(log_k, axis=0) < _ROUNDING] = np.square(_UNNOTICED / np.sqrt(n))
    pairs = range(1, len(net.names))
    inside = np.stack([_confirmed(log_k[:, k], draws.model[draws.testing], k) for k in pairs], axis=1)
    jackknife = np.stack([net.jackknife(x, model=k) for k in pairs], axis=1)
    alone = net.novelty_p_value(x)
    p = np.maximum(alone[:, 1:], alone[:, :1])
    return ErrorModel.fit(log_k[:, 1:][inside], jackknife[inside], p[inside], squared[:, 1:][inside])


def _confirmed(log_k: np.ndarray, model: np.ndarray, k: int) -> np.ndarray:
    """Say which log K against model 0 lie in the confirmed range; all, if that is empty."""
    pair = (model == 0) | (model == k)
    held = validated_range(log_k[pair], model[pair] == k)
    inside = held.contains(log_k)
    return inside if inside.any() else np.ones_like(inside)


def _finished(sims: Simulations, data: Prepared, trained: Trained, choice: Choice | None) -> EvidenceNetwork:
    """Put the network together, with what its held-out draws say."""
    draws = data.draws
    label = draws.model[draws.testing]
    valid = np.log(sims.valid_fraction)
    log_k = draws.held_out_log_k(trained.log_odds) + valid - valid[0]
    # Of weighted draws, those that stand for the weighted models: their numbers say what can be confirmed.
    alike = np.isin(draws.testing, draws.of_equal_weight(draws.testing))
    return EvidenceNetwork(
        names=sims.names,
        example=draws.example,
        scaling=data.scaling,
        baseline=data.baseline,
        novelty=_novelty(data, trained),
        loss=data.plan.loss,
        architecture=data.plan.network,
        networks=trained.networks,
        states=trained.states,
        gain=trained.gain,
        log_prior=draws.log_shares,
        log_valid=valid,
        log_valid_error=sims.log_valid_error,
        held_out=HeldOut(log_k[alike].astype(np.float32), label[alike].astype(np.int8)),
        history=trained.history,
        choice=choice,
    )


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


def _novelty(data: Prepared, trained: Trained | EvidenceNetwork) -> Novelty:
    """Learn what draws look like, to the networks too, and how far out held-out ones lie."""
    draws = data.draws
    # Networks that have learned nothing are asked only if the data themselves are too many numbers.
    asked = data.moments is None or trained.gain.any()

    def seen(rows: np.ndarray, most: int) -> Seen:
        some = draws.of_equal_weight(rows, most)
        x = data.scaling(map_arrays(lambda array: array[some], draws.x))
        hidden = ensemble.hidden_layers(trained.networks, trained.states, trained.gain, x) if asked else None
        return Seen(x, hidden, draws.model[some])

    return Novelty.fit(
        data.moments, seen(draws.training, FITTING_DRAWS), seen(draws.testing, REFERENCE_DRAWS)
    )


def _check(
    sims: Simulations,
    members: int,
    augment: Augment | None,
    loss: losses.Loss | None,
    network: networks.Architecture | None,
    recipe: Recipe | None,
) -> None:
    if not isinstance(sims, Simulations):
        raise TypeError(
            f"train takes Simulations, got a {type(sims).__name__}. Make them with simulate(models, n), or "
            "from arrays with Simulations(x, model)."
        )
    if len(sims.names) < 2:
        raise ValueError(f"there is only one model, {sims.names[0]!r}; a comparison needs two or more.")
    if operator.index(members) < 1:
        raise ValueError(f"members = {members}; wanted at least 1 network.")
    if augment is not None and not callable(augment):
        raise TypeError("augment must be a function augment(rng, x) that returns a batch like x.")
    if loss is not None and not isinstance(loss, losses.Loss):
        raise TypeError(f"loss = {loss!r}; wanted one of evidencenet.losses, such as losses.Logistic().")
    if network is not None and not callable(network):
        raise TypeError(f"network = {network!r}; wanted a function network(x, outputs, key=key).")
    if recipe is not None and not isinstance(recipe, Recipe):
        raise TypeError(f"recipe = {recipe!r}; wanted a Recipe, such as Recipe.paper().")
