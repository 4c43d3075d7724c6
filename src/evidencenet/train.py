"""`train`: from simulations to an `EvidenceNetwork`."""

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evidencenet import losses, networks
from evidencenet.baseline import Baseline, Gaussians
from evidencenet.batches import Chunk, Shuffled, in_blocks
from evidencenet.checkpoints import fingerprint
from evidencenet.choice import Choice, Plan, choose
from evidencenet.data import Data, arrays_of, as_data, layout, layout_text, map_arrays
from evidencenet.estimator import EvidenceNetwork, HeldOut
from evidencenet.moments import LARGEST, Moments
from evidencenet.novelty import Novelty
from evidencenet.progress import Progress
from evidencenet.recipe import MOST_OPERATIONS, Recipe
from evidencenet.scaling import Scaling, has_outliers
from evidencenet.simulations import Simulations
from evidencenet.training import Checkpoint, Trained, train_ensemble

Augment = Callable[[np.random.Generator, Data], Data]

_MOST_HELD_OUT = 50_000
_HELD_OUT_BLOCK = 5_000
# Plans are tried on so many draws, with so much arithmetic at most: seconds, not minutes.
_TRIAL_DRAWS = 50_000
_TRIAL_PASSES = 10
_TRIAL_OPERATIONS = 5e10
# Parts of the training draws that are left out in turn, for the error of the baseline.
_FOLDS = 8
# The scale of the data need not be known better than to a few parts in a thousand.
_SCALING_DRAWS = 100_000
_OUTLIER_DRAWS = 10_000


def train(
    sims: Simulations,
    *,
    loss: losses.Loss | None = None,
    network: networks.Architecture | None = None,
    members: int = 4,
    recipe: Recipe | None = None,
    baseline: bool | None = None,
    augment: Augment | None = None,
    seed: int = 0,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> EvidenceNetwork:
    """Train an ensemble of networks to tell the models apart, and so to give log Bayes factors.

    Parameters
    ----------
    sims
        Draws of two models or more.
    loss
        One of `evidencenet.losses`; the paper's is ``LPopExponential(alpha=2.0)``.
    network
        One of `evidencenet.networks`, or ``function(x, outputs, key=key)`` that returns an Equinox module for
        draws like `x`.
    members
        Networks in the ensemble. Their mean is the estimate, their spread its error.
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
    seeds = [int(s) for s in np.random.SeedSequence(operator.index(seed)).generate_state(3)]
    named = recipe or Recipe()
    draws = _Draws.of(sims, named.held_out, augment, seeds[:2])
    given = network or named.network
    options = natural(draws.example) if given is None else [given]
    if baseline and draws.features > LARGEST:
        raise ValueError(
            f"a baseline needs draws of at most {LARGEST} numbers, these have {draws.features}. "
            "Leave it out: baseline=False."
        )
    outputs = losses.outputs(len(sims.names))

    def fit(
        data: _Prepared, recipe: Recipe, members: int, progress: bool, kept: Checkpoint | None = None
    ) -> Trained:
        plan = data.plan
        return train_ensemble(
            plan.network,
            outputs,
            plan.loss,
            data.source(recipe, seeds[1]),
            data.held_out(),
            recipe,
            members=members,
            seed=seeds[2],
            progress=progress,
            checkpoint=kept,
        )

    def sized(data: _Prepared, most: float = MOST_OPERATIONS) -> Recipe:
        operations = networks.operations(data.plan.network, data.draws.example, outputs)
        shared = isinstance(data.plan.network, networks.PLACE_BLIND)
        return named.for_draws(len(data.draws.training), operations=operations, most=most, shared=shared)

    # The baseline comes first: with it, networks need only learn what is not Gaussian, if anything.
    guided = recipe is None and draws.features <= LARGEST and not isinstance(loss, losses.Asymmetric)
    first = guided if baseline is None else baseline
    plan = Plan(options[0], loss or losses.LPopExponential(), baseline=first)
    choice = None
    if recipe is None:
        few = draws.few(_TRIAL_DRAWS)

        def attempt(plan: Plan) -> np.ndarray:
            data = few.prepared(plan)
            short = sized(data, _TRIAL_OPERATIONS)
            epochs = min(short.epochs or _TRIAL_PASSES, _TRIAL_PASSES)
            trained = fit(data, replace(short, epochs=epochs), 1, progress=False)
            weight = np.ravel(data.held_out().weight)
            return (trained.costs[0].ravel() * weight)[weight > 0]

        rounds = _rounds(options, loss, baseline, few)
        most = len({*rounds[0](plan), *rounds[1](plan)}) + (loss is None)
        with Progress("choosing", most, enabled=progress) as bar:

            def tell(tried: int, best: Plan) -> None:
                bar.update(tried, best=str(best))

            plan, choice = choose(plan, rounds, attempt, len(few.training), tell)
    data = draws.prepared(plan)
    final = sized(data)
    kept = None
    if checkpoint is not None:
        settings = (str(plan), repr(final), members, seeds)
        some = map_arrays(lambda array: array[::1000], sims.x)
        kept = Checkpoint(checkpoint, fingerprint(settings, sims.model, sims.log_weight, some))
    trained = fit(data, final, members, progress, kept)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return _finished(sims, data, trained, choice)


def natural(x: Data) -> list[networks.Architecture]:
    """Architectures that suit draws like `x`, by its shape alone; the first is the first to be tried."""
    if isinstance(x, dict):
        masks = [array for array in x.values() if array.dtype == bool]
        lengths = {array.shape[:1] for array in x.values()}
        is_set = len(masks) == 1 and masks[0].ndim == 1 and len(lengths) == 1
        return [networks.DeepSet(), networks.Dense()] if is_set else [networks.Dense()]
    if x.ndim == 1:
        # The numbers of a vector may well be exchangeable, or a series: the scores will tell.
        return [
            networks.Dense(),
            _wide(x.size),
            *([networks.DeepSet()] if x.size >= 4 else []),
            *([networks.Sequence()] if x.size >= 16 else []),
        ]
    if x.ndim == 2 and 4 * x.shape[1] <= x.shape[0]:
        return [networks.Sequence(), networks.DeepSet(), networks.Dense()]
    if x.ndim == 3 and x.shape[2] <= 4:
        return [networks.Image(), networks.Dense()]
    return [networks.Dense(), _wide(sum(array.size for array in arrays_of(x)))]


def _wide(numbers: int) -> networks.Dense:
    """For functions with more detail than the paper's widths can follow, above all of few numbers."""
    return networks.Dense(width=max(128, int(1.1 * numbers) + 20), hidden=64)


def _rounds(
    options: list[networks.Architecture], loss: losses.Loss | None, baseline: bool | None, draws: "_Draws"
) -> list[Callable[[Plan], list[Plan]]]:
    """Alternatives to try, one thing after the other, within what the caller has not fixed."""
    gaussian = [True, False] if baseline is None else [baseline]
    if draws.features > LARGEST or isinstance(loss, losses.Asymmetric):
        gaussian = [False]
    some = map_arrays(lambda array: array[draws.training[:_OUTLIER_DRAWS]], draws.sims.x)
    squashes = [False, True] if has_outliers(some) else [False]

    def inputs(plan: Plan) -> list[Plan]:
        return [replace(plan, squash=squash, baseline=base) for squash in squashes for base in gaussian]

    def architectures(plan: Plan) -> list[Plan]:
        # What one network makes of outliers says little about another.
        return [replace(plan, network=n, squash=squash) for n in options for squash in squashes]

    def penalties(plan: Plan) -> list[Plan]:
        return [] if loss is not None else [replace(plan, loss=losses.LPopLogistic())]

    return [inputs, architectures, penalties]


@dataclass(frozen=True, eq=False)
class _Draws:
    """The draws, split into training and held-out ones."""

    sims: Simulations
    weights: np.ndarray
    training: np.ndarray
    testing: np.ndarray
    augment: Augment | None

    @staticmethod
    def of(sims: Simulations, held_out: float, augment: Augment | None, seeds: list[int]) -> "_Draws":
        training, testing = _split(sims, held_out, seeds[0])
        return _Draws(sims, sims.weights.astype(np.float32), training, testing, augment)

    @property
    def example(self) -> Data:
        return map_arrays(
            lambda a: np.zeros(a.shape[1:], bool if a.dtype == bool else np.float32), self.sims.x
        )

    @property
    def features(self) -> int:
        return sum(array[0].size for array in arrays_of(self.sims.x))

    @property
    def log_shares(self) -> np.ndarray:
        return np.log(np.array(self.sims.counts) / len(self.sims))

    def few(self, number: int) -> "_Draws":
        return replace(self, training=self.training[:number])

    def prepared(self, plan: Plan) -> "_Prepared":
        """Fit the scaling of a plan, and the baseline if it has one, to the training draws."""
        shared = isinstance(plan.network, networks.PLACE_BLIND)
        some = map_arrays(lambda array: array[self.training[:_SCALING_DRAWS]], self.sims.x)
        scaling = Scaling.fit(some, squash=plan.squash, shared=shared)
        prior = None if isinstance(plan.loss, losses.Asymmetric) else self.log_shares
        bare = _Prepared(self, plan, scaling, prior, None, None)
        if self.features > LARGEST:
            return bare
        moments, left_out = Moments.of(bare.source(Recipe(), 0).epoch(0), len(self.sims.names), _FOLDS)
        gaussians = Baseline(Gaussians.fit(moments), tuple(map(Gaussians.fit, left_out)))
        return replace(bare, moments=moments, baseline=gaussians if plan.baseline else None)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Draws as a plan wants them; `prior` are log shares of the models, known beforehand."""

    draws: _Draws
    plan: Plan
    scaling: Scaling
    prior: np.ndarray | None
    moments: Moments | None
    baseline: Baseline | None

    def scaled(self, rng: np.random.Generator, x: Data) -> tuple[Data, np.ndarray | None]:
        augment = self.draws.augment
        return self.plain(x if augment is None else _augmented(augment, rng, x))

    def plain(self, x: Data) -> tuple[Data, np.ndarray | None]:
        scaled = self.scaling(x)
        if self.prior is None:
            return scaled, None
        shape = (len(arrays_of(scaled)[0]), len(self.prior))
        offset = np.broadcast_to((self.prior - self.prior[0]).astype(np.float32), shape)
        return scaled, offset if self.baseline is None else offset + self.baseline(scaled)

    def source(self, recipe: Recipe, seed: int) -> Shuffled:
        sims, training = self.draws.sims, self.draws.training
        batch = recipe.for_draws(len(training)).batch or 1
        return Shuffled(sims.x, sims.model, self.draws.weights, training, batch, self.scaled, seed)

    def held_out(self) -> Chunk:
        sims, testing = self.draws.sims, self.draws.testing
        x, offset = self.plain(map_arrays(lambda array: array[testing], sims.x))
        chunk = Chunk(x, offset, sims.model[testing], self.draws.weights[testing])
        return in_blocks(chunk, min(len(testing), _HELD_OUT_BLOCK))


def _augmented(augment: Augment, rng: np.random.Generator, x: Data) -> Data:
    """Augment a batch, and check what came back."""
    given, rows = layout(x), len(arrays_of(x)[0])
    returned = augment(rng, x)
    if returned is None:
        raise TypeError("augment returned None; it must return a batch like x.")
    changed = as_data(returned)
    if layout(changed) != given:
        raise ValueError(
            f"augment returned {layout_text(layout(changed))} for {layout_text(given)}; "
            "it must keep the shape of the data."
        )
    if len(arrays_of(changed)[0]) != rows:
        raise ValueError(f"augment returned {len(arrays_of(changed)[0])} draws for {rows}; wanted as many.")
    if not all(np.isfinite(array).all() for array in arrays_of(changed)):
        raise ValueError("augment returned NaN or infinity for draws that hold none.")
    return changed


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


def _split(sims: Simulations, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of training and held-out draws, each model in the same proportion, in random order."""
    rng = np.random.default_rng(seed)
    fraction = min(fraction, _MOST_HELD_OUT / len(sims))
    training, testing = [], []
    for k, name in enumerate(sims.names):
        mine = rng.permutation(np.flatnonzero(sims.model == k))
        size = round(fraction * len(mine))
        if not 0 < size < len(mine):
            raise ValueError(
                f"model {name!r} has {len(mine)} draws, too few to keep a fraction of {fraction:.2g} "
                "for early stopping. Simulate more."
            )
        testing.append(mine[:size])
        training.append(mine[size:])
    return rng.permutation(np.concatenate(training)), rng.permutation(np.concatenate(testing))


def _finished(sims: Simulations, data: _Prepared, trained: Trained, choice: Choice | None) -> EvidenceNetwork:
    """Put the network together, with what its held-out draws say."""
    x = map_arrays(lambda array: array[data.draws.testing], sims.x)
    label = sims.model[data.draws.testing].astype(np.int8)
    novelty = None if data.moments is None else Novelty.fit(data.moments, data.scaling(x), label)
    net = EvidenceNetwork(
        names=sims.names,
        example=data.draws.example,
        scaling=data.scaling,
        baseline=data.baseline,
        novelty=novelty,
        loss=data.plan.loss,
        architecture=data.plan.network,
        networks=trained.networks,
        states=trained.states,
        gain=trained.gain,
        log_prior=data.draws.log_shares,
        log_valid=np.log(sims.valid_fraction),
        held_out=HeldOut(np.zeros((0, len(sims.names))), label[:0]),
        history=trained.history,
        choice=choice,
    )
    log_k = np.stack([net.log_bayes_factor(x, model=k) for k in range(len(sims.names))], axis=1)
    return replace(net, held_out=HeldOut(log_k.astype(np.float32), label))
