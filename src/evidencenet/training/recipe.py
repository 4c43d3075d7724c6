"""`Recipe`: how to train, apart from what is trained."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from evidencenet import networks
from evidencenet._common.arguments import explained_class

# If no number of epochs is named, a member sees this many draws in all, each several times if there are few.
_PASSES = 6e6
# The arithmetic (bytes moved included) of a usual training of one member, about ten seconds on one core. A
# network that takes less is trained for less, and one that takes more for more, by the square root: else slow
# networks stop before they have learned, and quick ones go on when there is nothing more to learn. But never
# for more than three times this (docs/decisions.md, "Length of training").
MOST_OPERATIONS = 1.2e12
_EPOCHS, _LONGEST_PART = 4.0, 3.0
# So many epochs at most, unless the budget is raised: networks overfit few draws before that. Clean draws
# have new noise in every epoch, and are worth more of them: on the lensing data, 240 epochs score 0.006 nats
# better than 60.
_LONGEST, _LONGEST_ANEW = 60, 240
# How much of the average of squared gradients is kept in a step. With it, and Nesterov's momentum, seven
# kinds of networks were better by 5 to 30% after four epochs than with Adam's usual 0.999
# (docs/decisions.md, "What problems outside the zoo asked for").
_SQUARES = 0.99
# A minibatch is such a part of the draws: a larger one where noise is drawn anew, which was measured to score
# better (docs/decisions.md, "Any size").
_BATCHES, _BATCHES_OF_SETS, _BATCHES_ANEW = 400, 800, 100
# Members that share nothing, where training takes long. Four members of two stems were as accurate as four
# that share nothing, in three quarters of the time (docs/decisions.md, "Members that share a stem").
_STEMS = 2


@explained_class(
    "Recipe(epochs=10, batch=1000)",
    {
        "lr": "learning_rate=...",
        "batch_size": "batch=...",
        "n_epochs": "epochs=...",
        "early_stopping": "patience=...",
        "validation_split": "held_out=...",
        "validation_fraction": "held_out=...",
        "members": "train(sims, members=...)",
        "seed": "train(sims, seed=...)",
    },
)
@dataclass(frozen=True)
class Recipe:
    """How to train.

    Parameters
    ----------
    epochs
        How often all training draws are seen. None chooses by the number of draws: the fewer there are, the
        more often they are seen.
    batch
        Draws in a minibatch; None is a 400th of the training draws, an 800th for networks of sets and
        tables, a 100th if draws are observed anew, between 32 and 1000.
    learning_rate
        The largest learning rate.
    schedule
        ``"cosine"``: warm-up over the first 5% of steps, then down to zero along a cosine;
        ``"exponential"``: down by a factor of 0.95 in 5000 steps, as in the paper.
    momentum
        ``"nesterov"``: Adam with Nesterov's momentum and a shorter memory of squared gradients, which learns
        faster; ``"adam"``: Adam as it was published, and as in the paper.
    weight_decay
        Of weight matrices, decoupled from the gradient (AdamW). None is 0.1 for networks with a weight for
        each place of a draw, and 0.01 for networks that use the same weights in all places: these overfit
        less.
    clip
        Largest norm of a gradient; None does not clip.
    average
        The weights that are judged and kept are an exponential average over this many epochs. 0 keeps the
        weights of the last step.
    patience
        A member stops after this many epochs without a better held-out score.
    held_out
        Fraction of the draws kept for early stopping, at most 50,000 of them.
    stems
        How many members are trained on their own from the start. The others are copies of them after half of
        the epochs, and then have an order of the draws of their own. None is all members, or two if no
        number of epochs is named and training takes long.
    network
        The architecture that goes with the recipe, if it has one of its own.

    Examples
    --------
    >>> Recipe(epochs=3).batch is None
    True
    """

    epochs: int | None = None
    batch: int | None = None
    learning_rate: float = 1e-2
    schedule: Literal["cosine", "exponential"] = "cosine"
    momentum: Literal["nesterov", "adam"] = "nesterov"
    weight_decay: float | None = None
    clip: float | None = 1.0
    average: float = 0.5
    patience: int = 10
    held_out: float = 0.1
    stems: int | None = None
    network: networks.Architecture | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "patience", "stems"):
            value = getattr(self, name)
            if value is None and name != "patience":
                continue
            if not isinstance(value, int | float | np.integer) or not (value >= 1 and value % 1 == 0):
                raise ValueError(f"Recipe: {name} = {value!r}; wanted a whole number, 1 or more.")
            object.__setattr__(self, name, int(value))
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"Recipe: learning_rate = {self.learning_rate}; wanted a finite number above 0.")
        if self.weight_decay is not None and not 0 <= self.weight_decay < np.inf:
            raise ValueError(f"Recipe: weight_decay = {self.weight_decay}; wanted 0 or more, finite.")
        if not 0 <= self.average < np.inf:
            raise ValueError(f"Recipe: average = {self.average}; wanted a number of epochs, 0 or more.")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"Recipe: clip = {self.clip}; wanted a number above 0, or None.")
        if not 0 < self.held_out < 1:
            raise ValueError(f"Recipe: held_out = {self.held_out}; wanted a fraction between 0 and 1.")
        if self.schedule not in ("cosine", "exponential"):
            raise ValueError(f'Recipe: schedule = {self.schedule!r}; wanted "cosine" or "exponential".')
        if self.momentum not in ("nesterov", "adam"):
            raise ValueError(f'Recipe: momentum = {self.momentum!r}; wanted "nesterov" or "adam".')

    @staticmethod
    def paper() -> "Recipe":
        """Return the recipe of Jeffrey & Wandelt (2023): Adam, batches of 100, batch normalisation."""
        return Recipe(
            epochs=20,
            batch=100,
            learning_rate=1e-4,
            schedule="exponential",
            momentum="adam",
            weight_decay=0.0,
            clip=None,
            average=0.0,
            patience=20,
            network=networks.Dense(norm=True),
        )

    def for_draws(
        self,
        n: int,
        *,
        operations: float = 0.0,
        most: float = MOST_OPERATIONS,
        fewest: int = 3,
        shared: bool = False,
        exchangeable: bool = False,
        budget: float = 1.0,
        anew: bool = False,
    ) -> "Recipe":
        """Fill in what was left open: by the number of training draws, and by the network.

        Parameters
        ----------
        n
            Training draws.
        operations
            Arithmetic to train on one of them.
        most
            Arithmetic of a usual training of one member, if no number of epochs was named.
        fewest
            Epochs that are trained whatever they take, if no number of epochs was named.
        shared
            Whether the network uses the same weights in all places of a draw.
        exchangeable
            Whether the order of the places means nothing to the network.
        budget
            By which factor training may be longer than usual, if no number of epochs was named.
        anew
            Whether draws are observed anew in every epoch: then they are seen more often, in larger batches.
        """
        batches = _BATCHES_ANEW if anew else _BATCHES_OF_SETS if exchangeable else _BATCHES
        batch = self.batch or int(np.clip(n // batches, 32, 1000))
        if n < batch:
            raise ValueError(
                f"{n} draws are left for training, fewer than one batch of {batch}. Simulate more "
                f"draws, or give a smaller batch: train(sims, recipe=Recipe(batch={max(1, n // 10)}))."
            )
        affordable = most / max(operations * n, 1.0)
        if anew:
            # What is drawn anew cannot be learned by heart: the more epochs, the better.
            usual = min(affordable, _LONGEST_ANEW)
        else:
            usual = min(_PASSES / n, _EPOCHS * np.sqrt(affordable), _LONGEST_PART * affordable, _LONGEST)
        epochs = self.epochs or max(int(budget * usual), fewest)
        stems = self.stems
        if stems is None and self.epochs is None and epochs <= 2 * self.patience:
            # Trainings of more epochs are those of few draws. They are short, and members have learned what
            # they can before half of the epochs.
            stems = _STEMS
        decay = (0.01 if shared else 0.1) if self.weight_decay is None else self.weight_decay
        return replace(self, batch=batch, epochs=epochs, weight_decay=decay, stems=stems)

    def optimiser(self, steps: Any) -> optax.GradientTransformation:
        """Make the optimiser for this many steps in all, which may be a traced number of JAX."""
        clip = [] if self.clip is None else [optax.clip_by_global_norm(self.clip)]
        # Only matrices decay: shrinking a bias or a scale of normalisation does not regularise.
        matrices = partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
        return optax.chain(
            *clip,
            optax.adamw(
                lambda step: self.rate(step, steps),
                b2=0.999 if self.momentum == "adam" else _SQUARES,
                nesterov=self.momentum == "nesterov",
                weight_decay=self.weight_decay or 0.0,
                mask=matrices,
            ),
        )

    def rate(self, step: Any, steps: Any) -> Any:
        """Return the learning rate at a step, counted from 0, of this many steps in all."""
        if self.schedule == "exponential":
            return self.learning_rate * 0.95 ** (step / 5000)
        warm_up = jnp.maximum(1, steps // 20)
        end = jnp.maximum(steps, warm_up + 1)
        part = jnp.clip((step - warm_up) / (end - warm_up), 0, 1)
        rising, falling = step / warm_up, 0.5 * (1 + jnp.cos(jnp.pi * part))
        return self.learning_rate * jnp.where(step < warm_up, rising, falling)
