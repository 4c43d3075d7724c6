"""Training where some densities are known: what is added to the draws, and to the network."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_softmax

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of, join, map_arrays
from evidencenet._common.warnings import TrustWarning
from evidencenet.checks.range import HeldOut, validated_range
from evidencenet.estimator import reference
from evidencenet.estimator.densities import (
    Densities,
    check_density,
    check_weights,
    difference,
    evaluated,
    finite,
)
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.reference import Reference, refusal
from evidencenet.simulation.dataset import Simulations
from evidencenet.training.gaussians import LARGEST, Moments
from evidencenet.training.inputs import Prepared, prepare
from evidencenet.training.loop import History
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment, Draws, augmented

# Networks are shown a known model if so many draws of it look like those of others, and the other way round.
_LEAST_ALIKE = 100
# Draws that are kept beside a network, to recognise its densities by.
_EXAMPLES = 4


@dataclass(frozen=True, eq=False)
class Known:
    """Draws of K models, of which some densities are known, and what the networks are to tell apart.

    Parameters
    ----------
    sims
        Draws of the models.
    densities
        Still without held-out draws.
    classes
        Draws of the reference, if there is one, and of the models that the networks are shown.
    """

    sims: Simulations
    densities: Densities
    classes: Simulations

    @staticmethod
    def of(sims: Simulations, augment: Augment | None, seed: int, *, two: bool = False) -> "Known":
        """Check the densities, fit a reference if that is possible, and draw from it.

        If the loss is for `two` classes only, known models are not shown to the networks.
        """
        functions = sims.log_density or (None,) * len(sims.names)
        some = map_arrays(lambda array: np.array(array[:: -(-len(sims) // _EXAMPLES)]), sims.x)
        values = np.zeros((len(arrays_of(some)[0]), len(functions)))
        for k, function in enumerate(functions):
            if function is not None:
                check_weights(sims, k)
                check_density(function, sims.names[k], sims.of(k))
                values[:, k] = evaluated(function, sims.names[k], some)
        known = tuple(function is not None for function in functions)
        nothing = HeldOut(np.zeros((0, 0)), np.zeros(0, dtype=np.int8))
        every = tuple(range(len(known)))
        shares = np.log(np.array(sims.counts) / len(sims))
        bare = Densities(sims.names, known, functions, None, every, shares, nothing, some, values)
        unknown = [k for k in every if not known[k]]
        xs = [sims.of(k) for k in unknown]
        refused = [(sims.names[k], why) for k, x in zip(unknown, xs, strict=True) if (why := refusal(x))]
        if refused:
            name, why = refused[0]
            warnings.warn(
                f"no reference density can be fitted to the draws of {name!r}: {why}. Models without a "
                "density are learned against the draws of those with one, and log K beyond what both can "
                "confirm is no better than without the density.",
                TrustWarning,
                stacklevel=3,
            )
        if refused or not unknown:
            return Known(sims, bare, with_reference(sims, None))
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        weights = [None if sims.log_weight is None else sims.weights[sims.model == k] for k in unknown]
        fitted = fit_reference(xs, weights, augment, rng)
        shown = list(unknown)
        for k, function in enumerate(functions):
            if function is not None and not two:
                pair = np.isin(sims.model, [k, *unknown])
                x, theirs = map_arrays(lambda array, pair=pair: array[pair], sims.x), sims.model[pair] == k
                log_k = difference(fitted.log_density(x), evaluated(function, sims.names[k], x))
                if not validated_range(log_k, ~theirs, least=_LEAST_ALIKE).empty:
                    shown.append(k)
        shown.sort()
        classes = tuple(shown.index(k) + 1 if k in shown else -1 for k in every)
        densities = replace(bare, reference=fitted, classes=classes)
        return Known(sims, densities, with_reference(sims, fitted, rng, shown))

    @property
    def all(self) -> bool:
        """Whether every density is known, so that there is nothing to learn."""
        return all(self.densities.known)

    def everything(self, data: Prepared) -> Prepared:
        """Put all draws together, those of models that the networks are not shown last."""
        draws, classes, offset = data.draws, self.densities.classes, self.densities.offset
        hidden = np.flatnonzero(np.array(classes)[self.sims.model] < 0)
        # Labels are numbers of models, after the reference.
        of_class = np.array(self.densities.columns)
        model = np.concatenate([of_class[draws.model], self.sims.model[hidden] + offset])
        held = np.zeros(len(model), dtype=bool)
        held[draws.testing] = True
        # Every tenth, say, of the others, as of those shown; none of these was used for anything.
        every = round(len(draws.model) / len(draws.testing))
        held[len(draws.model) :: every] = True
        weight = np.concatenate([draws.weight, np.ones(len(hidden), np.float32)])
        x = join(draws.x, map_arrays(lambda array: array[hidden], self.sims.x))
        whole = Draws(
            x, model, weight, np.bincount(model), np.flatnonzero(~held), np.flatnonzero(held), draws.augment
        )
        found = replace(data, draws=whole, prior=None, baseline=None, moments=None)
        if whole.features > LARGEST:
            return found
        return replace(found, moments=Moments.of(found.source(Recipe(), 0).epoch(0), len(whole.counts), 2)[0])

    def completed(self, net: EvidenceNetwork, draws: Draws) -> EvidenceNetwork:
        """Make a network of the classes one of the models; `draws` are those of `everything`."""
        sims, offset = self.sims, self.densities.offset
        bare = replace(
            net,
            names=sims.names,
            densities=replace(self.densities, log_shares=net.log_prior, held_out=net.held_out),
            log_prior=self.densities.log_shares,
            log_valid=np.log(sims.valid_fraction),
            log_valid_error=sims.log_valid_error,
        )
        rows = draws.of_equal_weight(draws.testing)
        rows = rows[draws.model[rows] >= offset]
        log_k = bare.table(map_arrays(lambda array: array[rows], draws.x)).mean(axis=0)
        return replace(bare, held_out=HeldOut(log_k, (draws.model[rows] - offset).astype(np.int8)))

    def exact(self, members: int, seed: int) -> tuple[EvidenceNetwork, Prepared]:
        """Put together what needs no networks, since all densities are known; without novelty."""
        draws = Draws.of(self.classes, Recipe().held_out, None, seed)
        data = prepare(draws, Plan(networks.Dense(), losses.Logistic()))
        x, label = draws.held_out()
        log_p = finite(self.densities.exact(x))
        cost = -log_softmax(log_p + draws.log_shares, axis=1)[np.arange(len(label)), label]
        scores, n = np.full((members, 1), cost.mean()), len(draws.training)
        net = EvidenceNetwork(
            names=self.sims.names,
            example=draws.example,
            scaling=data.scaling,
            baseline=None,
            novelty=None,
            loss=data.plan.loss,
            architecture=data.plan.network,
            networks=None,
            states=None,
            gain=np.zeros(members),
            log_prior=draws.log_shares,
            log_valid=np.zeros(len(draws.counts)),
            log_valid_error=np.zeros(len(draws.counts)),
            held_out=HeldOut(log_p - log_p[:, :1], label.astype(np.int8)),
            history=History(scores * np.nan, scores, np.zeros(members, int), n, n, np.zeros(0), 0.0),
        )
        return self.completed(net, draws), data


def fit_reference(
    xs: list[Data], weights: list[np.ndarray | None], augment: Augment | None, rng: np.random.Generator
) -> Reference:
    """Fit a reference to the draws of each of some models, and to what a symmetry makes of them."""
    if augment is None:
        return reference.fit(xs, weights)
    # So that the reference has the symmetry too, but for chance.
    both = [join(x, augmented(augment, rng, x)) for x in xs]
    found = reference.fit(both, [None if w is None else np.concatenate([w, w]) for w in weights])
    # The draws that a symmetry makes of others are no new ones.
    return replace(found, components=tuple(replace(part, size=part.size / 2) for part in found.components))


def with_reference(
    sims: Simulations,
    fitted: Reference | None,
    rng: np.random.Generator | None = None,
    shown: Sequence[int] | None = None,
) -> Simulations:
    """Return draws of some models, without densities and failures, after as many of a reference."""
    shown = range(len(sims.names)) if shown is None else shown
    rows = np.flatnonzero(np.isin(sims.model, shown))
    x, model = map_arrays(lambda array: array[rows], sims.x), np.searchsorted(shown, sims.model[rows])
    weight = None if sims.log_weight is None else sims.log_weight[rows]
    names = [sims.names[k] for k in shown]
    if fitted is not None and rng is not None:
        n, name = round(len(rows) / len(names)), "reference"
        while name in names:
            name = f"the {name}"
        x, model = join(fitted.draw(rng, n, x), x), np.concatenate([np.zeros(n, np.int64), model + 1])
        weight, names = None if weight is None else np.concatenate([np.zeros(n), weight]), [name, *names]
    return Simulations(x, model, names, log_weight=weight)
