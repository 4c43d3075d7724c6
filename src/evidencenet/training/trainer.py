"""`Trainer`: what all trainings of one call of `train` share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from evidencenet import networks
from evidencenet.networks import ensemble
from evidencenet.training.apart import train_apart
from evidencenet.training.inputs import Inputs
from evidencenet.training.loop import Checkpoint, Trained, train_ensemble
from evidencenet.training.recipe import MOST_OPERATIONS, Recipe

# Members that are trained first where networks may have nothing to learn: one for each of two cores.
_PROBES = 2


@dataclass(frozen=True)
class Trainer:
    """Trains networks for any plan: trials, the final ensemble, and halves of the draws.

    Parameters
    ----------
    outputs
        How many raw outputs the networks have.
    recipe
        As the user gave it; what it leaves open is filled in for each training.
    order_seed, weights_seed
        Seeds of the order of the draws, and of the initial weights.
    executor
        Trains the members of an ensemble, each as a job of its own; None to train them here.
    budget
        By which factor every training may be longer than usual.
    """

    outputs: int
    recipe: Recipe
    order_seed: int
    weights_seed: int
    executor: Any = None
    budget: float = 1.0

    def fit(
        self,
        inputs: Inputs,
        recipe: Recipe,
        members: int = 1,
        *,
        progress: bool = False,
        checkpoint: Checkpoint | None = None,
        least: float | None = None,
    ) -> Trained:
        """Train an ensemble by a recipe that is filled in.

        With `least`, it stops after a third of the epochs if no member has a better held-out score than that.
        """
        if self.executor is not None and members > 1 and checkpoint is None:
            train: Callable[..., Trained] = partial(train_apart, self.executor)
        else:
            train = partial(train_ensemble, checkpoint=checkpoint, least=least)
        return train(
            inputs.plan.network,
            self.outputs,
            inputs.plan.loss,
            inputs.source(recipe, self.order_seed),
            inputs.held_out_chunk(),
            recipe,
            members=members,
            seed=self.weights_seed,
            progress=progress,
        )

    def fit_unless_idle(
        self, inputs: Inputs, recipe: Recipe, members: int, *, doubtful: bool, progress: bool
    ) -> Trained:
        """Train an ensemble, but only its first members if these do not improve on the baseline.

        Where it is `doubtful` that networks can improve on the baseline, because they did not in a trial, two
        members are trained first, for half as long. If neither improves on it, the others would not either,
        and log K is the baseline's whatever their weights.
        """
        if not doubtful or members <= _PROBES:
            return self.fit(inputs, recipe, members, progress=progress)
        shorter = replace(recipe, epochs=max(1, (recipe.epochs or 1) // 2))
        probes = self.fit(inputs, shorter, _PROBES, progress=progress)
        if not probes.gain.any():
            return probes.repeated(members)
        return self.fit(inputs, recipe, members, progress=progress)

    def fit_one(self, inputs: Inputs, rng: np.random.Generator, *, epochs: int | None = None) -> np.ndarray:
        """Train one network with seeds of its own; return log K of the held-out draws, (n, K).

        It is trained for so many epochs, or for as many as such draws usually are.
        """
        # The batch that the user named may be larger than these draws, which may be half of all.
        batch, rows = self.recipe.batch, inputs.draws.training_draws
        order_seed, weights_seed = (int(number) for number in rng.integers(2**31, size=2))
        trainer = replace(
            self,
            recipe=replace(self.recipe, batch=batch and min(batch, rows)),
            order_seed=order_seed,
            weights_seed=weights_seed,
        )
        recipe = trainer.sized(inputs)
        recipe = replace(recipe, epochs=epochs or recipe.epochs)
        return inputs.draws.held_out_log_k(trainer.fit(inputs, recipe).log_odds)

    def operations(self, inputs: Inputs) -> float:
        """Return the arithmetic of one member's training."""
        recipe = self.sized(inputs)
        each = ensemble.operations(inputs.plan.network, inputs.example, self.outputs)
        return each * inputs.draws.training_draws * (recipe.epochs or 1)

    def sized(self, inputs: Inputs, most: float = MOST_OPERATIONS, *, fewest: int = 3) -> Recipe:
        """Fill in what the recipe leaves open: by the draws, the plan, and the arithmetic allowed.

        Parameters
        ----------
        inputs
            What will be trained on.
        most
            Arithmetic of a usual training of one member.
        fewest
            Epochs that are trained whatever they take.
        """
        plan = inputs.plan
        decay = self.recipe.weight_decay if plan.weight_decay is None else plan.weight_decay
        recipe = replace(self.recipe, weight_decay=decay).for_draws(
            inputs.draws.training_draws,
            operations=ensemble.operations(plan.network, inputs.example, self.outputs),
            most=most,
            fewest=fewest,
            shared=networks.shares_weights(plan.network),
            exchangeable=networks.is_exchangeable(plan.network),
            budget=self.budget,
            anew=inputs.draws.drawn_anew_each_epoch,
        )
        if inputs.draws.drawn_anew_each_epoch and self.recipe.epochs is None:
            # Scores go up and down while the learning rate is high. With a patience of 10, three of four
            # members stopped at epoch 16 of 166 on the lensing data, with scores worse by 0.03 nats.
            recipe = replace(recipe, patience=max(recipe.patience, recipe.epochs or 1))
        stream = inputs.draws.stream
        # Fresh draws are divided into epochs, and no more than they are used.
        return recipe if stream is None or stream.epochs is None else replace(recipe, epochs=stream.epochs)
