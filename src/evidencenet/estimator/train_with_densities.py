"""Training where some densities are known.

Networks then tell the models apart from a reference, a density fitted to the draws of the models without a
known one: `KnownDensities` makes the draws they are trained on, and turns the result into a network of the
models themselves.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of, join, map_arrays
from evidencenet._common.warnings import TrustWarning
from evidencenet.checks.range import HeldOut, validated_range
from evidencenet.checks.scores import log_scores
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
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.loop import History
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment, Draws, augmented

# Networks are trained on a model of known density too if at least this many of its draws look like draws of
# the other models, and the other way round: fewer could not teach them anything.
_LEAST_ALIKE = 100
# Draws that are kept with a network, to recognise its densities when they are given again.
_EXAMPLES = 4


@dataclass(frozen=True, eq=False)
class KnownDensities:
    """Draws of K models of which some densities are known, and the classes that networks are trained on.

    Parameters
    ----------
    sims
        Draws of the models.
    densities
        Still without held-out draws.
    classes
        What the networks tell apart: draws of the reference, if there is one, and of the models that the
        networks are trained on.
    """

    sims: Simulations
    densities: Densities
    classes: Simulations

    @staticmethod
    def of(
        sims: Simulations, augment: Augment | None, seed: int, loss: losses.Loss | None = None
    ) -> "KnownDensities":
        """Check the densities, fit a reference if that is possible, and draw from it.

        With a loss for two classes only, networks are not trained on models of known density.
        """
        functions = sims.log_density or (None,) * len(sims.names)
        examples = map_arrays(lambda array: np.array(array[:: -(-len(sims) // _EXAMPLES)]), sims.x)
        values = np.zeros((len(arrays_of(examples)[0]), len(functions)))
        for k, function in enumerate(functions):
            if function is not None:
                check_weights(sims, k)
                check_density(function, sims.names[k], sims.of(k))
                values[:, k] = evaluated(function, sims.names[k], examples)
        known = tuple(function is not None for function in functions)
        no_draws = HeldOut(np.zeros((0, 0)), np.zeros(0, dtype=np.int8))
        models = tuple(range(len(known)))
        log_shares = np.log(np.array(sims.counts) / len(sims))
        densities = Densities(
            sims.names, known, functions, None, models, log_shares, no_draws, examples, values
        )
        unknown = [k for k in models if not known[k]]
        draws_of_unknown = [sims.of(k) for k in unknown]
        for k, x in zip(unknown, draws_of_unknown, strict=True):
            if why := refusal(x):
                warnings.warn(
                    f"no reference density can be fitted to the draws of {sims.names[k]!r}: {why}. Models "
                    "without a density are learned against the draws of models with one. Beyond the "
                    "validated range, log K is then no better than without the density.",
                    TrustWarning,
                    stacklevel=3,
                )
                return KnownDensities(sims, densities, with_reference(sims, None))
        if not unknown:
            return KnownDensities(sims, densities, with_reference(sims, None))
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        weights = [None if sims.log_weight is None else sims.weights[sims.model == k] for k in unknown]
        fitted = fit_reference(draws_of_unknown, weights, augment, rng)
        shown = list(unknown)
        if not isinstance(loss, losses.Asymmetric):
            shown += [k for k in models if known[k] and _overlaps(sims, k, unknown, fitted)]
        shown.sort()
        classes = tuple(shown.index(k) + 1 if k in shown else -1 for k in models)
        densities = replace(densities, reference=fitted, classes=classes)
        return KnownDensities(sims, densities, with_reference(sims, fitted, rng, shown))

    @property
    def all(self) -> bool:
        """Whether every density is known, so that there is nothing to learn."""
        return all(self.densities.known)

    def with_hidden_models(self, inputs: Inputs) -> Inputs:
        """Add the draws of models that the networks were not trained on, at the end."""
        draws, classes, offset = inputs.draws, self.densities.classes, self.densities.offset
        hidden = np.flatnonzero(np.array(classes)[self.sims.model] < 0)
        # Labels become numbers of models, after the reference.
        model_of_class = np.array(self.densities.columns)
        model = np.concatenate([model_of_class[draws.model], self.sims.model[hidden] + offset])
        is_held_out = np.zeros(len(model), dtype=bool)
        is_held_out[draws.held_out_rows] = True
        # The same fraction of the hidden draws is held out. None of them was used for anything.
        every = round(len(draws.model) / len(draws.held_out_rows))
        is_held_out[len(draws.model) :: every] = True
        all_draws = Draws(
            join(draws.x, map_arrays(lambda array: array[hidden], self.sims.x)),
            model,
            np.concatenate([draws.weight, np.ones(len(hidden), np.float32)]),
            np.bincount(model),
            np.flatnonzero(~is_held_out),
            np.flatnonzero(is_held_out),
            draws.augment,
            layout=draws.layout,
        )
        return replace(inputs, draws=all_draws, log_shares=None, baseline=None)

    def completed(self, net: EvidenceNetwork, draws: Draws) -> EvidenceNetwork:
        """Turn a network of the classes into one of the models; `draws` are those of all models."""
        sims, offset = self.sims, self.densities.offset
        of_models = replace(
            net,
            names=sims.names,
            densities=replace(self.densities, log_shares=net.log_prior, held_out=net.held_out),
            log_prior=self.densities.log_shares,
            log_valid=np.log(sims.valid_fraction),
            log_valid_error=sims.log_valid_error,
        )
        rows = draws.of_equal_weight(draws.held_out_rows)
        rows = rows[draws.model[rows] >= offset]
        log_k = of_models.table(map_arrays(lambda array: array[rows], draws.x)).mean(axis=0)
        held_out = HeldOut(log_k, (draws.model[rows] - offset).astype(np.int8))
        return replace(of_models, held_out=held_out)

    def exact(self, members: int, seed: int) -> tuple[EvidenceNetwork, Inputs]:
        """Build the network where all densities are known: it needs no training. Novelty is still missing."""
        draws = Draws.split(self.classes, Recipe().held_out, None, seed)
        inputs = prepare(draws, Plan(networks.Dense(), losses.Logistic()))
        x, label = draws.held_out_draws()
        log_p = finite(self.densities.exact(x))
        cost = log_scores(log_p + draws.log_shares, label)
        scores, n = np.full((members, 1), cost.mean()), len(draws.training_rows)
        net = EvidenceNetwork(
            names=self.sims.names,
            example=draws.example,
            scaling=inputs.scaling,
            baseline=None,
            novelty=None,
            loss=inputs.plan.loss,
            architecture=inputs.plan.network,
            networks=None,
            states=None,
            gain=np.zeros(members),
            log_prior=draws.log_shares,
            log_valid=np.zeros(len(draws.counts)),
            log_valid_error=np.zeros(len(draws.counts)),
            held_out=HeldOut(log_p - log_p[:, :1], label.astype(np.int8)),
            history=History(scores * np.nan, scores, np.zeros(members, int), n, n, np.zeros(0), 0.0),
        )
        return self.completed(net, draws), inputs


def _overlaps(sims: Simulations, k: int, unknown: list[int], fitted: Reference) -> bool:
    """Say whether draws of a model of known density look like draws of the models without one."""
    function = (sims.log_density or ())[k]
    if function is None:
        return False
    pair = np.isin(sims.model, [k, *unknown])
    x, is_known = map_arrays(lambda array: array[pair], sims.x), sims.model[pair] == k
    log_k = difference(fitted.log_density(x), evaluated(function, sims.names[k], x))
    return not validated_range(log_k, ~is_known, least=_LEAST_ALIKE).empty


def fit_reference(
    xs: list[Data], weights: list[np.ndarray | None], augment: Augment | None, rng: np.random.Generator
) -> Reference:
    """Fit a reference to the draws of several models, and to what `augment` makes of these draws."""
    if augment is None:
        return reference.fit(xs, weights)
    # With both, the reference has the symmetry too, except for chance.
    both = [join(x, augmented(augment, rng, x)) for x in xs]
    fitted = reference.fit(both, [None if w is None else np.concatenate([w, w]) for w in weights])
    # Augmented draws do not add to the number of independent draws.
    return replace(fitted, components=tuple(replace(part, size=part.size / 2) for part in fitted.components))


def with_reference(
    sims: Simulations,
    fitted: Reference | None,
    rng: np.random.Generator | None = None,
    shown: Sequence[int] | None = None,
) -> Simulations:
    """Return draws of the models `shown`, without densities and failures; draws of a reference come first."""
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
    shown_draws = Simulations(x, model, names, log_weight=weight)
    return shown_draws.with_fields(columns=sims.columns, masked=sims.masked)
