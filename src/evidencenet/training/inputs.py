"""Draws on their way to the networks: split, scaled, augmented, and with what is known beforehand."""

from dataclasses import dataclass, replace

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of, map_arrays
from evidencenet.training.batches import Chunk, Shuffled, in_blocks
from evidencenet.training.gaussians import LARGEST, Baseline, Gaussians, Moments, covariance, inverse_root
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import Recipe
from evidencenet.training.scaling import Scaling
from evidencenet.training.split import Draws, augmented

_HELD_OUT_BLOCK = 5_000
# Parts of the training draws that are left out in turn, for the error of the baseline.
_FOLDS = 8
# The scale of the data need not be known better than to a few parts in a thousand.
_SCALING_DRAWS = 100_000


@dataclass(frozen=True, eq=False)
class Prepared:
    """Draws as a plan wants them.

    Parameters
    ----------
    draws, plan
        What for what.
    scaling
        Of the data.
    prior
        Log shares of the models, where the loss can be told them beforehand.
    moments
        Of each model's scaled training draws, if they are not too large.
    baseline
        Of the plan, or None.
    """

    draws: Draws
    plan: Plan
    scaling: Scaling
    prior: np.ndarray | None
    moments: Moments | None
    baseline: Baseline | None

    def source(self, recipe: Recipe, seed: int) -> Shuffled:
        """Training draws in minibatches."""
        draws = self.draws
        batch = recipe.for_draws(len(draws.training)).batch or 1
        return Shuffled(draws.x, draws.model, draws.weight, draws.training, batch, self._augmented, seed)

    def held_out(self) -> Chunk:
        """Held-out draws in blocks."""
        x, label = self.draws.held_out()
        scaled, offset = self._scaled(x)
        chunk = Chunk(scaled, offset, label, self.draws.weight[self.draws.testing])
        return in_blocks(chunk, min(len(label), _HELD_OUT_BLOCK))

    def _augmented(self, rng: np.random.Generator, x: Data) -> tuple[Data, np.ndarray | None]:
        augment = self.draws.augment
        return self._scaled(x if augment is None else augmented(augment, rng, x))

    def _scaled(self, x: Data) -> tuple[Data, np.ndarray | None]:
        """Scale a batch, and say what log-odds are known of it beforehand."""
        scaled = self.scaling(x)
        if self.prior is None:
            return scaled, None
        shape = (len(arrays_of(scaled)[0]), len(self.prior))
        offset = np.broadcast_to(self.draws.log_odds.astype(np.float32), shape)
        return scaled, offset if self.baseline is None else offset + self.baseline(scaled)


def prepare(draws: Draws, plan: Plan) -> Prepared:
    """Fit the scaling of a plan, and the baseline if it has one, to the training draws."""
    some = map_arrays(lambda array: array[draws.training[:_SCALING_DRAWS]], draws.x)
    if isinstance(plan.network, networks.Table) and isinstance(some, np.ndarray) and some.ndim == 3:
        # The last axis of a table is one of places, not of channels.
        some = some[..., None]
    scaling = Scaling.fit(some, squash=plan.squash, shared=networks.scales_alike(plan.network))
    if plan.whiten:
        root = inverse_root(covariance(scaling(some)))
        scaling = replace(scaling, whitening=root.astype(np.float32))
    prior = None if isinstance(plan.loss, losses.Asymmetric) else draws.log_shares
    bare = Prepared(draws, plan, scaling, prior, None, None)
    if draws.features > LARGEST:
        return bare
    moments, left_out = Moments.of(bare.source(Recipe(), 0).epoch(0), len(draws.counts), _FOLDS)
    gaussians = Baseline(Gaussians.fit(moments), tuple(map(Gaussians.fit, left_out)))
    return replace(bare, moments=moments, baseline=gaussians if plan.baseline else None)
