"""Train the members of an ensemble as separate jobs of an executor, to the same bits as side by side."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from evidencenet import networks
from evidencenet._common.executors import in_order
from evidencenet._common.progress import Progress
from evidencenet.training.batches import Chunk, Source
from evidencenet.training.loop import History, Loss, Trained, initialise_members, padded, train_ensemble
from evidencenet.training.recipe import Recipe


class _Member(NamedTuple):
    """What a job sends back of the member that it trained: NumPy arrays and no functions."""

    leaves: list[np.ndarray]
    gain: np.ndarray
    log_odds: np.ndarray
    costs: np.ndarray
    history: History


def train_apart(
    executor: Any,
    architecture: networks.Architecture,
    outputs: int,
    loss: Loss,
    source: Source,
    held_out: Chunk,
    recipe: Recipe,
    *,
    members: int,
    seed: int,
    progress: bool,
) -> Trained:
    """Train each member as a job of its own, and put them together.

    A member depends on the draws, the seed and its own number, not on the other members. So the result is the
    same to the bit as that of `train_ensemble` on the same kind of processor. Each job is sent the draws.

    Parameters
    ----------
    executor
        Anything with ``submit``; see `evidencenet._common.executors`.
    architecture, outputs, loss, source, held_out, recipe, members, seed, progress
        As in `train_ensemble`.
    """
    settings: dict[str, Any] = {"members": members, "seed": seed, "progress": False}
    train = partial(train_ensemble, architecture, outputs, loss, source, held_out, recipe, **settings)
    job = partial(_train_one, train)
    trained: list[_Member] = []
    with Progress("training", members, enabled=progress) as bar:
        for member in in_order(executor, job, ((number,) for number in range(members)), "the training"):
            trained.append(member)
            bar.update(len(trained))
    x = jax.tree.map(lambda array: np.zeros(array.shape[2:], array.dtype), next(iter(source.epoch(0))).x)
    fixed, starts = initialise_members(architecture, x, outputs, 1, seed)
    stacked = [np.stack(leaves) for leaves in zip(*(member.leaves for member in trained), strict=True)]
    weights, states = jax.tree.unflatten(jax.tree.structure(starts[0]), stacked)
    histories = [member.history for member in trained]
    seconds = padded([history.seconds.tolist() for history in histories])
    history = History(
        padded([history.train_loss[0].tolist() for history in histories]),
        padded([history.score[0].tolist() for history in histories]),
        np.concatenate([history.best_epoch for history in histories]),
        histories[0].batch,
        histories[0].draws,
        # They run at the same time, so an epoch takes as long as the slowest member.
        np.nanmax(seconds, axis=0),
        max(history.compile_seconds for history in histories),
    )
    gain, log_odds, costs = (
        np.concatenate([getattr(member, name) for member in trained])
        for name in ("gain", "log_odds", "costs")
    )
    return Trained(eqx.combine(weights, fixed), states, gain, log_odds, costs, history)


def _train_one(train: Callable[..., Trained], number: int) -> _Member:
    """Train one of the members, on a worker."""
    trained = train(chosen=[number])
    parts = (eqx.filter(trained.networks, eqx.is_inexact_array), trained.states)
    leaves = [np.asarray(leaf)[0] for leaf in jax.tree.leaves(parts)]
    return _Member(leaves, trained.gain, trained.log_odds, trained.costs, trained.history)
