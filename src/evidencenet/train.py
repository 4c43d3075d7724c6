"""`train`: from simulations to an `EvidenceNetwork`."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from evidencenet import losses, networks
from evidencenet.baseline import Baseline, Gaussians
from evidencenet.batches import Chunk, Shuffled, in_blocks
from evidencenet.choice import Choice, choose
from evidencenet.data import Data, layout, layout_text, map_arrays
from evidencenet.estimator import EvidenceNetwork, HeldOut
from evidencenet.moments import LARGEST, Moments, flat
from evidencenet.novelty import Novelty
from evidencenet.scaling import Standardise
from evidencenet.simulations import Simulations
from evidencenet.training import Recipe, Trained, train_ensemble

Augment = Callable[[np.random.Generator, Data], Data]

_MOST_HELD_OUT = 50_000
_HELD_OUT_BLOCK = 5_000
# Candidates are tried on so many draws, each seen ten times: seconds, not minutes.
_TRIAL_DRAWS = 100_000
_TRIAL_EPOCHS = 10
# Parts of the training draws that are left out in turn, for the error of the baseline.
_FOLDS = 8
# The scale of the data need not be known better than to a few parts in a thousand.
_SCALING_DRAWS = 100_000


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
) -> EvidenceNetwork:
    """Train an ensemble of networks to tell the models apart, and so to give log Bayes factors.

    Parameters
    ----------
    sims
        Draws of two models or more.
    loss
        One of `evidencenet.losses`; by default ``LPopExponential(alpha=2.0)``.
    network
        One of `evidencenet.networks`, or ``function(x, outputs, key=key)`` that returns an Equinox module for
        draws like `x`; by default ``Dense()``.
    members
        Networks in the ensemble. Their mean is the estimate, their spread its error.
    recipe
        How to train. Naming one switches off every choice made by evidence.
    baseline
        Whether the networks correct Gaussians fitted to each model's draws, or learn all by themselves. By
        default both are tried on some of the draws, and the better held-out score decides.
    augment
        ``augment(rng, x)`` applies a random symmetry of the problem to each of a batch of draws, for example
        a change of sign.
    seed
        The same seed on the same machine gives the same network, to the bit.
    progress
        Show a bar (or, where there is no terminal, a few lines) on standard error.

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
    _check(sims, members, augment)
    loss = losses.LPopExponential() if loss is None else loss
    named = Recipe() if recipe is None else recipe
    network = network or named.network or networks.Dense()
    if baseline is None and (recipe is not None or isinstance(loss, losses.Asymmetric)):
        baseline = False
    seeds = np.random.SeedSequence(operator.index(seed)).generate_state(3)
    data = _Data.of(sims, named, augment, int(seeds[0]))
    gaussians, moments = None, None
    if data.features <= LARGEST:
        chunks = data.source(named, int(seeds[1])).epoch(0)
        moments, left_out = Moments.of(chunks, len(sims.names), _FOLDS)
        if baseline is not False:
            gaussians = Baseline(Gaussians.fit(moments), tuple(map(Gaussians.fit, left_out)))
    if baseline and gaussians is None:
        raise ValueError(
            f"a baseline needs draws of at most {LARGEST:,} numbers, these have {data.features:,}. "
            "Leave it out, or simulate summaries of the data."
        )

    def fit(data: "_Data", recipe: Recipe, members: int, progress: bool) -> Trained:
        source = data.source(recipe, int(seeds[1]))
        return train_ensemble(
            network,
            losses.outputs(len(sims.names)),
            loss,
            source,
            data.held_out(),
            recipe.for_draws(len(data.training)),
            members=members,
            seed=int(seeds[2]),
            progress=progress,
        )

    prior = _log_shares(sims)
    offset = None if isinstance(loss, losses.Asymmetric) else prior
    plain, guided = replace(data, prior=offset), replace(data, prior=offset, baseline=gaussians)
    choice: Choice | None = None
    if baseline is None and gaussians is not None:
        quick = replace(named, epochs=_TRIAL_EPOCHS)
        candidates = {
            "network alone": partial(fit, plain.few(), quick, 2, False),
            "network on a Gaussian baseline": partial(fit, guided.few(), quick, 2, False),
        }
        choice = choose(candidates, len(plain.few().training))
        baseline = choice.best == 1
    data = guided if baseline else plain
    trained = fit(data, named, members, progress)
    return _finished(sims, data, trained, moments, loss, network, prior, choice)


@dataclass(frozen=True, eq=False)
class _Data:
    """The draws, split and scaled; `prior` are log shares of the models, known beforehand."""

    sims: Simulations
    weights: np.ndarray
    training: np.ndarray
    testing: np.ndarray
    scaling: Standardise
    augment: Augment | None
    prior: np.ndarray | None = None
    baseline: Baseline | None = None

    @staticmethod
    def of(sims: Simulations, recipe: Recipe, augment: Augment | None, seed: int) -> "_Data":
        training, testing = _split(sims, recipe.held_out, seed)
        scaling = Standardise.fit(map_arrays(lambda array: array[training[:_SCALING_DRAWS]], sims.x))
        return _Data(sims, sims.weights.astype(np.float32), training, testing, scaling, augment)

    @property
    def features(self) -> int:
        return flat(map_arrays(lambda array: array[:1], self.sims.x)).shape[1]

    def few(self) -> "_Data":
        return replace(self, training=self.training[:_TRIAL_DRAWS])

    def prepare(self, rng: np.random.Generator, x: Data) -> tuple[Data, np.ndarray | None]:
        if self.augment is not None:
            changed = self.augment(rng, x)
            if layout(changed) != layout(x):
                raise ValueError(
                    f"augment returned {layout_text(layout(changed))} for {layout_text(layout(x))}; "
                    "it must keep the shape of the data."
                )
            x = changed
        scaled = self.scaling(x)
        if self.prior is None:
            return scaled, None
        n = len(next(iter(scaled.values())) if isinstance(scaled, dict) else scaled)
        offset = np.broadcast_to(self.prior - self.prior[0], (n, len(self.prior)))
        return scaled, offset if self.baseline is None else offset + self.baseline(scaled)

    def source(self, recipe: Recipe, seed: int) -> Shuffled:
        batch = recipe.for_draws(len(self.training)).batch
        assert batch is not None
        sims = self.sims
        return Shuffled(sims.x, sims.model, self.weights, self.training, batch, self.prepare, seed)

    def held_out(self) -> Chunk:
        plain = replace(self, augment=None)
        x, offset = plain.prepare(
            np.random.default_rng(0), map_arrays(lambda array: array[self.testing], self.sims.x)
        )
        draws = Chunk(x, offset, self.sims.model[self.testing], self.weights[self.testing])
        return in_blocks(draws, min(len(self.testing), _HELD_OUT_BLOCK))


def _check(sims: Simulations, members: int, augment: Augment | None) -> None:
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


def _log_shares(sims: Simulations) -> np.ndarray:
    return np.log(np.array(sims.counts) / len(sims))


def _finished(
    sims: Simulations,
    data: _Data,
    trained: Trained,
    moments: Moments | None,
    loss: losses.Loss,
    network: networks.Architecture,
    prior: np.ndarray,
    choice: Choice | None,
) -> EvidenceNetwork:
    x = map_arrays(lambda array: array[data.testing], sims.x)
    label = sims.model[data.testing].astype(np.int8)
    unheld = HeldOut(np.zeros((0, len(sims.names))), label[:0])
    net = EvidenceNetwork(
        sims.names,
        map_arrays(lambda array: np.zeros(array.shape[1:], array.dtype), sims.x),
        data.scaling,
        data.baseline,
        Novelty.fit(moments, data.scaling(x), label) if moments is not None else None,
        loss,
        network,
        trained.networks,
        trained.states,
        trained.gain,
        prior,
        np.log(sims.valid_fraction),
        unheld,
        trained.history,
        choice,
    )
    log_k = np.stack([net.log_bayes_factor(x, model=k) for k in range(len(sims.names))], axis=1)
    return replace(net, held_out=HeldOut(log_k.astype(np.float32), label))
