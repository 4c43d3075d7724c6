"""A second look: what networks of other kinds still find in held-out draws, given log K.

Training on halves of the draws shows errors that shrink with more draws. It does not show what a kind of
network can never learn. So small networks of other kinds are trained on half of the held-out draws, with
log K as known log-odds. If they improve the score of the other half, log K lacks what they found.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.processors import processors
from evidencenet.checks.scores import log_scores
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.loop import weighted_mean
from evidencenet.training.plan import Plan
from evidencenet.training.trainer import Trainer

# Kinds of network that are asked, and the arithmetic that each may take: a few seconds.
_KINDS = 2
_OPERATIONS = 5e10
_MOST_EPOCHS = 10
# Fewer held-out draws than this teach a network too little: half of 10,000 find what costs 0.02 nats.
_LEAST_DRAWS = 10_000


@dataclass(frozen=True)
class SecondLook:
    """What the best second network found: its plan in words, and the gain in nats with its standard error."""

    plan: str
    gain: float
    error: float

    @property
    def certain(self) -> float:
        """The gain in nats that is beyond doubt: three standard errors less than the gain found."""
        return max(self.gain - 3 * self.error, 0.0)


def look_again(
    inputs: Inputs,
    log_k: np.ndarray,
    architectures: Sequence[networks.Architecture],
    trainer: Trainer,
    *,
    seed: int,
) -> SecondLook | None:
    """Train networks of other kinds on half of the held-out draws, with log K known.

    Parameters
    ----------
    inputs
        The draws, and the plan that was trained.
    log_k
        Log K of the held-out draws against model 0, (n, K).
    architectures
        Networks to choose from; those of the plan's own kind are left out.
    trainer
        Trains the networks.
    seed
        Seed of the division of the held-out draws.

    Returns
    -------
    SecondLook or None
        None if no other kind of network suits the data, or there are too few held-out draws.
    """
    draws, rows = inputs.draws, inputs.draws.held_out_rows
    others = _one_of_each_kind(architectures, inputs.plan.network)[:_KINDS]
    if len(rows) < _LEAST_DRAWS or not others or inputs.log_shares is None:
        return None
    known = np.zeros((len(draws.model), len(draws.counts)), np.float32)
    # Rare draws have log-odds because of how they were drawn, besides.
    known[rows] = log_k if draws.known is None else log_k + draws.known[rows]
    rng = np.random.default_rng(seed)
    shuffled = rows[rng.permutation(len(rows))]
    first = np.arange(len(rows)) < len(rows) // 2
    if draws.group is not None:
        # Draws of one group are not independent: all of them are on one side.
        groups = rng.permutation(np.unique(draws.group[rows]))
        first = np.isin(draws.group[shuffled], groups[::2])
    parts = replace(draws.sample(), known=known)
    parts = replace(parts, training_rows=shuffled[first], held_out_rows=shuffled[~first])
    test = parts.held_out_rows
    label, weight = draws.model[test], draws.weight[test]
    log_odds = known[test] + draws.log_odds
    costs = log_scores(log_odds, label)

    def look(network: networks.Architecture) -> SecondLook:
        plan = Plan(network, losses.Logistic(), squash=inputs.plan.squash)
        second_inputs = prepare(parts, plan)
        recipe = trainer.sized(second_inputs, _OPERATIONS, fewest=2)
        recipe = replace(recipe, epochs=min(recipe.epochs or _MOST_EPOCHS, _MOST_EPOCHS))
        trained = trainer.fit(second_inputs, recipe)
        gain, error = weighted_mean(costs - trained.costs[0, : len(test)], weight)
        return SecondLook(str(plan), gain, error)

    with ThreadPoolExecutor(processors()) as pool:
        return max(pool.map(look, others), key=lambda found: found.gain - 3 * found.error)


def _one_of_each_kind(
    architectures: Sequence[networks.Architecture], own: networks.Architecture
) -> list[networks.Architecture]:
    """Return the first architecture of each class, without the class of `own`."""
    first: dict[type, networks.Architecture] = {}
    for architecture in architectures:
        first.setdefault(type(architecture), architecture)
    first.pop(type(own), None)
    return list(first.values())
