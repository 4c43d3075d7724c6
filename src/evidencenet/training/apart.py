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
from evidencenet._common.warnings import log
from evidencenet.simulation.workers import WorkerError, Workers, is_worker_death
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
    same to the bit as that of `train_ensemble` on the same kind of processor. Each job is sent the draws;
    those of stores it reads itself, and fresh draws it simulates itself.

    Parameters
    ----------
    executor
        Anything with ``submit``; see `evidencenet._common.executors`.
    architecture, outputs, loss, source, held_out, recipe, members, seed, progress
        As in `train_ensemble`.
    """
    settings: dict[str, Any] = {"members": members, "seed": seed, "progress": False}
    train = partial(train_ensemble, architecture, outputs, loss, source, held_out, recipe, **settings)
    with Progress("training", members, enabled=progress) as bar:
        trained = _jobs_done(executor, partial(_train_one, train), members, bar)
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


def _jobs_done(executor: Any, job: Callable[[int], _Member], members: int, bar: Progress) -> list[_Member]:
    """Train all members; those that a worker did not finish because it died are trained again, once."""
    trained: list[_Member] = []
    died_at = None
    while len(trained) < members:
        try:
            left = ((number,) for number in range(len(trained), members))
            for member in in_order(executor, job, left, "the training"):
                trained.append(member)
                bar.update(len(trained))
        except Exception as error:
            if not is_worker_death(error):
                raise
            number, is_broken = len(trained), Workers(executor=executor).broken is not None
            if is_broken or died_at == number:
                raise _died(number, members, executor, error, is_broken) from error
            died_at = number
            log.warning("a worker process died while it trained member %d; trying again", number + 1)
    return trained


def _died(number: int, members: int, executor: Any, error: Exception, is_broken: bool) -> WorkerError:
    """Make the error for a worker that died again, or whose pool cannot be used any more."""
    times = "" if is_broken else " twice"
    advice = "Train without executor= to see more."
    if is_broken:
        name = type(executor).__name__
        advice = f"{name} cannot be used after that: make a new one, and call train again."
    return WorkerError(
        f"a worker process died{times} while it trained member {number + 1} of {members}: it was killed, "
        f"perhaps for its memory, or crashed ({type(error).__name__}). {advice}"
    )


def _train_one(train: Callable[..., Trained], number: int) -> _Member:
    """Train one of the members, on a worker."""
    trained = train(chosen=[number])
    parts = (eqx.filter(trained.networks, eqx.is_inexact_array), trained.states)
    leaves = [np.asarray(leaf)[0] for leaf in jax.tree.leaves(parts)]
    return _Member(leaves, trained.gain, trained.log_odds, trained.costs, trained.history)
