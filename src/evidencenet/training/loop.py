"""Train an ensemble: one compiled chunk of minibatches, run for the members side by side."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from evidencenet import networks
from evidencenet._common.display import by_row, frame
from evidencenet._common.processors import processors
from evidencenet._common.progress import Progress
from evidencenet.checks.scores import log_scores
from evidencenet.networks import ensemble
from evidencenet.networks.architectures import BUILT_IN
from evidencenet.training import checkpoint as checkpoints
from evidencenet.training.batches import Chunk, Source
from evidencenet.training.devices import Devices
from evidencenet.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas

# A batch that takes more arithmetic than this (bytes moved included) is divided into parts, of at least this
# many draws. Measured by timing convolutions and sets of 50 to 500 places on a CPU: its cache is the limit.
_CACHED = 4e8
_SMALLEST_PART = 16


class Loss(Protocol):
    """What training needs of a loss."""

    def value(self, raw: Any, label: Any, offset: Any = None) -> jax.Array:
        """Loss per draw."""

    def log_odds(self, raw: Any, offset: Any = None) -> jax.Array:
        """Log posterior odds, of which the held-out score is made."""


class Member(NamedTuple):
    """All that changes while a member trains, and its schedule. It is judged by the average of its weights.

    The schedule, `steps` in all and an average over the last `horizon` of them, is an argument of the program
    and not a part of it: so one program serves trials and trainings of different lengths.
    """

    weights: Any
    state: Any
    optimiser: Any
    average: Any
    step: Any
    steps: Any
    horizon: Any


def train_chunk(
    fixed: Any,
    loss: Loss,
    recipe: Recipe,
    parts: int,
    member: Member,
    chunk: Chunk,
    order: jax.Array,
) -> tuple[Member, jax.Array]:
    """Train on the minibatches (steps, batch, ...) of a chunk, in some order; return the mean loss too.

    The gradient of a batch is computed in `parts`.
    """

    def objective(weights: Any, state: Any, batch: Chunk) -> tuple[jax.Array, Any]:
        raw, state = ensemble.apply(eqx.combine(weights, fixed), state, batch.x)
        return jnp.mean(batch.weight * loss.value(raw, batch.label, batch.offset)), state

    slope = jax.value_and_grad(objective, has_aux=True)

    def step(member: Member, number: jax.Array) -> tuple[Member, jax.Array]:
        batch = jax.tree.map(lambda leaf: leaf[number], chunk)
        (value, state), gradient = in_parts(slope, parts, member.weights, member.state, batch)
        optimiser = recipe.optimiser(member.steps)
        updates, optimiser_state = optimiser.update(gradient, member.optimiser, member.weights)
        weights = optax.apply_updates(member.weights, updates)
        # At first the average covers the last third of the steps, so that it forgets the initial weights.
        share = jnp.maximum(3 / (3 + member.step), 1 / jnp.maximum(member.horizon, 1.0))
        average = jax.tree.map(lambda mean, new: mean + share * (new - mean), member.average, weights)
        changed = Member(
            weights, state, optimiser_state, average, member.step + 1, member.steps, member.horizon
        )
        return changed, value

    member, values = jax.lax.scan(step, member, order)
    return member, jnp.mean(values)


def in_parts(slope: Any, parts: int, weights: Any, state: Any, batch: Chunk) -> Any:
    """Value and gradient of a batch: the mean over its parts."""
    if parts == 1:
        return slope(weights, state, batch)
    divided = jax.tree.map(lambda leaf: leaf.reshape(parts, -1, *leaf.shape[1:]), batch)

    def add(total: Any, part: Chunk) -> tuple[Any, None]:
        (value, _), gradient = slope(weights, state, part)
        return jax.tree.map(jnp.add, total, (value, gradient)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), weights))
    total, _ = jax.lax.scan(add, nothing, divided)
    value, gradient = jax.tree.map(lambda leaf: leaf / parts, total)
    return (value, state), gradient


def parts_of(architecture: networks.Architecture, chunk: Chunk, outputs: int, state: Any) -> int:
    """Into how many parts a batch is divided, so that the intermediate results of one stay in the cache.

    With batch normalisation it is one, since its statistics are those of the whole batch; and on other
    processors than a CPU, for which the limit was measured.
    """
    batch = chunk.label.shape[1]
    example = jax.tree.map(lambda leaf: np.zeros(leaf.shape[2:], leaf.dtype), chunk.x)
    if jax.tree.leaves(state) or jax.default_backend() != "cpu":
        return 1
    most = _CACHED / max(ensemble.operations(architecture, example, outputs), 1.0)
    sizes = [size for size in range(_SMALLEST_PART, batch) if batch % size == 0 and size <= most]
    return batch // max(sizes) if sizes and most < batch else 1


def judge_chunk(fixed: Any, loss: Loss, gain: Any, weights: Any, state: Any, held_out: Chunk) -> jax.Array:
    """Log posterior odds of each held-out draw, (blocks, rows, K)."""
    network = eqx.nn.inference_mode(eqx.combine(weights, fixed))

    def block(part: Chunk) -> jax.Array:
        return loss.log_odds(gain * ensemble.apply(network, state, part.x)[0], part.offset)

    return jax.lax.map(block, held_out)


@dataclass(frozen=True, eq=False)
class History:
    """How training went.

    Parameters
    ----------
    train_loss, score
        Mean training loss, and held-out log score in nats, after each epoch, (members, 1 + epochs). Entry 0
        is before training; NaN after a member has stopped. The loss is NaN too while a member is the same as
        its stem, which is trained in its place.
    best_epoch
        After how many epochs each member was at its best, and whose weights it keeps, (members,).
    batch
        Draws in a minibatch.
    draws
        Training draws in an epoch.
    seconds
        Wall-clock time of each epoch, (epochs,).
    compile_seconds
        Time spent on compilation.
    """

    train_loss: np.ndarray
    score: np.ndarray
    best_epoch: np.ndarray
    batch: int
    draws: int
    seconds: np.ndarray
    compile_seconds: float

    def __repr__(self) -> str:
        epochs = np.sum(~np.isnan(self.score), axis=1) - 1
        score = self.score[np.arange(len(self.best_epoch)), self.best_epoch]
        members = zip(self.best_epoch, epochs, score, strict=True)
        listed = "\n".join(
            f"  member {i}: best after epoch {best} of {last}, held-out score {value:.4f} nats"
            for i, (best, last, value) in enumerate(members)
        )
        time = f"{float(self.seconds.sum()):.1f} s of training"
        return f"History: {self.draws:,} draws in batches of {self.batch:,}, {time}\n{listed}"

    @property
    def samples_per_second(self) -> float:
        """Draws seen by all members together, per second of training."""
        trained = np.isfinite(self.train_loss).sum() * self.draws
        return float(trained / self.seconds.sum())

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row a member and epoch, 0 before training: its training loss and held-out score."""
        place = np.indices(self.score.shape)
        columns = {"member": place[0], "epoch": place[1], "train_loss": self.train_loss, "score": self.score}
        return frame(by_row({name: column.ravel() for name, column in columns.items()}), "member")

    def plot(self, axis: Any = None) -> Any:
        """Draw the learning curves; see `evidencenet.report.plots.history`."""
        from evidencenet.report import plots

        return plots.history(self, axis)


class Trained(NamedTuple):
    """A trained ensemble: networks and states with a leading axis of members, and their history.

    Raw outputs must be multiplied by each member's `gain`: 1, or 0 for a member that did not improve on the
    offset alone. `log_odds` are those of the held-out draws, padding included, (members, n, K), and `costs`
    their −log p(true model), (members, n).
    """

    networks: Any
    states: Any
    gain: np.ndarray
    log_odds: np.ndarray
    costs: np.ndarray
    history: History

    def repeated(self, members: int) -> "Trained":
        """Repeat the members until there are this many. It is meant for members that have learned nothing."""
        rows = np.arange(members) % len(self.gain)

        def take(leaf: Any) -> Any:
            return leaf[rows] if eqx.is_array(leaf) else leaf

        history = replace(
            self.history,
            train_loss=self.history.train_loss[rows],
            score=self.history.score[rows],
            best_epoch=self.history.best_epoch[rows],
        )
        return Trained(
            jax.tree.map(take, self.networks),
            jax.tree.map(take, self.states),
            self.gain[rows],
            self.log_odds[rows],
            self.costs[rows],
            history,
        )


class Checkpoint(NamedTuple):
    """A file for the state of training, and the record of the run (see `run_fingerprint`)."""

    path: str | os.PathLike[str]
    run: checkpoints.Run


@dataclass
class _Course:
    """One member's course: its present state, its best weights, the figures of each epoch, and its device.

    Epoch 0 is before training. The device is told by its place in the list of devices. For the first `branch`
    epochs a member is the same as its `stem`, another member or itself. Then minibatches come in an order of
    its own.
    """

    number: int
    stem: int
    branch: int
    seed: int
    member: Member
    best: Any
    best_epoch: int
    losses: list[float]
    scores: list[float]
    place: int = 0

    def order(self, epoch: int, chunk: int, steps: int) -> np.ndarray:
        """Return the order in which the minibatches of a chunk are used, (steps,)."""
        number = self.stem if epoch < self.branch else self.number
        seed = np.random.SeedSequence(self.seed, spawn_key=(number, epoch, chunk))
        return np.random.default_rng(seed).permutation(steps).astype(np.int32)

    def branch_off(self, stem: "_Course", place: Callable[..., Any]) -> None:
        """Become a copy of another member; `place` puts its arrays on the device of this one."""
        # Copied, because the compiled function reuses the memory of a running member.
        self.member = place(partial(jax.tree.map, np.array), stem.member)
        self.best, self.best_epoch = stem.best, stem.best_epoch
        # It was not trained itself until now.
        self.losses, self.scores = [np.nan] * len(stem.losses), [*stem.scores]

    def finished(self, patience: int) -> bool:
        """Say whether the score has not improved for so many epochs: then this member stops."""
        return len(self.scores) - 1 - self.best_epoch >= patience

    def note(self, loss: float, score: float) -> None:
        """Add the figures of an epoch, and keep the weights if they are the best so far."""
        # Weights that overflowed never recover; the best ones so far are kept.
        self.scores.append(score if np.isfinite(loss + score) else np.inf)
        self.losses.append(loss)
        if self.scores[-1] < self.scores[self.best_epoch]:
            self.best_epoch = len(self.scores) - 1
            # Copied, because the compiled function reuses the memory of a running member.
            self.best = jax.tree.map(np.array, (self.member.average, self.member.state))


@dataclass(frozen=True, eq=False)
class _Judge:
    """Scores weights on the held-out draws."""

    program: Callable[..., jax.Array]
    held_out: Chunk

    @cached_property
    def labels(self) -> np.ndarray:
        return np.ravel(self.held_out.label)

    @cached_property
    def importance(self) -> np.ndarray:
        """Weight of each held-out draw; 0 for padding."""
        return np.ravel(self.held_out.weight).astype(np.float64)

    def log_odds(self, gain: float, weights: Any, state: Any) -> np.ndarray:
        """Log posterior odds of each held-out draw, (n, K), with raw outputs multiplied by `gain`."""
        log_odds = np.asarray(self.program(gain, weights, state, self.held_out), np.float64)
        return log_odds.reshape(len(self.labels), -1)

    def costs(self, log_odds: np.ndarray) -> np.ndarray:
        """−log p(true model) of each held-out draw, (n,)."""
        return log_scores(log_odds, self.labels)

    def score(self, log_odds: np.ndarray) -> float:
        """Mean cost of the held-out draws, in nats."""
        return float(np.average(self.costs(log_odds), weights=self.importance))


def train_ensemble(
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
    checkpoint: Checkpoint | None = None,
    chosen: Sequence[int] | None = None,
    least: float | None = None,
) -> Trained:
    """Train `members` networks on the same chunks, each from its own initial weights or from a stem's.

    If the recipe has fewer `stems` than members, the others are copies of these after half of the epochs.

    Each member runs the same compiled function in a thread of its own, on one of the devices. They wait for
    nothing of each other, so all cores are busy. One large program over all members would not do that:
    measured on two cores, threads reach 1.7 times the rate of a `vmap` over members, with half the
    compilation.

    Parameters
    ----------
    architecture, outputs
        The network to build, and how many raw outputs it has.
    loss
        Trained on `value`; judged by the log score of `log_odds`.
    source
        Training draws.
    held_out
        Scaled draws (blocks, rows, ...) for early stopping; a weight of zero marks padding.
    recipe
        With `epochs` and `batch` filled in.
    members, seed, progress
        As in `evidencenet.train`.
    checkpoint
        Where to keep the state after each epoch, and which run it belongs to.
    chosen
        Train only the members of these numbers; each is the same to the bit as among all.
    least
        Stop after a third of the epochs if no member has a better held-out score than this.
    """
    if recipe.epochs is None:
        raise ValueError("the recipe has no number of epochs; fill it in with recipe.for_draws(n)")
    chunk = next(iter(source.epoch(0)))
    example = jax.tree.map(lambda array: np.zeros(array.shape[2:], array.dtype), chunk.x)
    fixed, starts = initialise_members(architecture, example, outputs, members, seed)
    numbers = range(members) if chosen is None else chosen
    optimiser = recipe.optimiser(source.steps * recipe.epochs)
    schedule = np.int32(source.steps * recipe.epochs), np.float32(recipe.average * source.steps)

    def begin(weights: Any, state: Any) -> Member:
        return Member(weights, state, optimiser.init(weights), weights, np.int32(0), *schedule)

    clock = time.perf_counter()
    devices, first = Devices.for_members(len(numbers)), begin(*starts[0])
    parts = parts_of(architecture, chunk, outputs, first.state)
    step = partial(train_chunk, fixed, loss, recipe, parts)
    order = np.arange(len(chunk.label), dtype=np.int32)
    train = devices.compiled(step, first, chunk, order, donate_argnums=0)
    judged = devices.compiled(partial(judge_chunk, fixed, loss), 1.0, first.weights, first.state, held_out)
    compile_seconds = time.perf_counter() - clock
    judges = [_Judge(*each) for each in zip(judged, devices.copies(held_out), strict=True)]
    judge = judges[0]
    # With an offset, the offset alone is the start to beat. Without one, the initial weights mean nothing.
    offset_odds = None if held_out.offset is None else judge.log_odds(0.0, first.weights, first.state)
    score = np.inf if offset_odds is None else judge.score(offset_odds)
    stems = members if recipe.stems is None else min(recipe.stems, members)
    branch = 0 if stems == members else recipe.epochs // 2
    courses = []
    for position, number in enumerate(numbers):
        stem, place = number % stems, devices.place_of(position)
        member = devices.call(place, begin, *starts[stem])
        courses.append(_Course(number, stem, branch, seed, member, starts[stem], 0, [np.nan], [score], place))
    seconds = _resume(checkpoint, courses)
    _run_epochs(courses, seconds, train, judges, devices, source, recipe, checkpoint, progress, least)
    weights, states = jax.tree.map(lambda *leaves: np.stack(leaves), *(course.best for course in courses))
    gain, log_odds = _accepted(courses, judge, offset_odds)
    history = History(
        padded([course.losses for course in courses]),
        padded([course.scores for course in courses]),
        np.array([course.best_epoch for course in courses]),
        source.batch,
        source.steps * source.batch,
        np.array(seconds),
        compile_seconds,
    )
    costs = np.stack([judge.costs(member_odds) for member_odds in log_odds])
    return Trained(eqx.combine(weights, fixed), states, gain, log_odds, costs, history)


def _run_epochs(
    courses: list[_Course],
    seconds: list[float],
    train: Sequence[Callable[..., Any]],
    judges: Sequence[_Judge],
    devices: Devices,
    source: Source,
    recipe: Recipe,
    checkpoint: Checkpoint | None,
    progress: bool,
    least: float | None,
) -> None:
    """Train all members epoch by epoch, until each has stopped; `seconds` are those of the epochs done."""

    def run(course: _Course, epoch: int, number: int, copies: Sequence[Chunk]) -> float:
        chunk = copies[course.place]
        order = course.order(epoch, number, len(chunk.label))
        course.member, loss = train[course.place](course.member, chunk, order)
        return float(loss)

    def evaluate(course: _Course) -> float:
        judge = judges[course.place]
        return judge.score(judge.log_odds(1.0, course.member.average, course.member.state))

    epochs, draws = recipe.epochs or 0, source.steps * source.batch
    stems, shared = len({course.stem for course in courses}), courses[0].branch
    passes = [stems if epoch < shared else len(courses) for epoch in range(epochs)]
    with (
        ThreadPoolExecutor(min(len(courses), max(processors(), len(devices)))) as pool,
        ThreadPoolExecutor(1) as reader,
        Progress("training", draws * sum(passes), enabled=progress) as bar,
    ):
        done = draws * sum(passes[: len(seconds)])
        for epoch in range(len(seconds), epochs):
            running = _running(courses, epoch, devices)
            active = [course for course in running if not course.finished(recipe.patience)]
            if not active:
                # Stems that stopped before the others branch off are all there is to copy.
                _running(courses, max(epoch, shared), devices)
                break
            clock = time.perf_counter()
            losses = []
            for number, copies in enumerate(_ahead(reader, source.epoch(epoch), devices)):
                one = partial(run, epoch=epoch, number=number, copies=copies)
                losses.append(list(pool.map(one, active)))
                done += copies[0].label.size * len(active)
                bar.update(done, **_fields(epoch, losses, active))
            means = np.mean(losses, axis=0)
            for course, loss, score in zip(active, means, pool.map(evaluate, active), strict=True):
                course.note(float(loss), score)
            bar.update(done, **_fields(epoch, losses, active))
            seconds.append(time.perf_counter() - clock)
            if checkpoint is not None:
                _keep(checkpoint, courses, seconds)
            best = min(score for course in courses for score in course.scores)
            if least is not None and 3 * len(seconds) >= epochs and best > least:
                break


def _running(courses: list[_Course], epoch: int, devices: Devices) -> list[_Course]:
    """Return the members that differ from each other in this epoch; members that branch off now are made."""
    leading = {course.stem: course for course in reversed(courses)}
    for course in courses:
        stem = leading[course.stem]
        if epoch == course.branch and course is not stem:
            course.branch_off(stem, partial(devices.call, course.place))
    return [course for course in courses if epoch >= course.branch or course is leading[course.stem]]


def _accepted(
    courses: list[_Course], judge: _Judge, offset_odds: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return each member's gain, (members,), and log-odds of the held-out draws, (members, n, K).

    A member that does not beat the offset alone by two standard errors has learned nothing that is more than
    chance: its gain is 0, and its log-odds are those of the offset.
    """
    gain = np.ones(len(courses))
    log_odds = np.stack([judge.log_odds(1.0, *course.best) for course in courses])
    if offset_odds is not None:
        for i, member_odds in enumerate(log_odds):
            improvement = judge.costs(offset_odds) - judge.costs(member_odds)
            mean, error = weighted_mean(improvement, judge.importance)
            if mean <= 2 * error:
                gain[i], log_odds[i] = 0.0, offset_odds
    return gain, log_odds


def weighted_mean(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return the mean of values and its standard error."""
    mean = np.average(values, weights=weight)
    error = np.sqrt(np.sum(np.square(weight * (values - mean)))) / np.sum(weight)
    return float(mean), float(error)


def _keep(checkpoint: Checkpoint, courses: list[_Course], seconds: list[float]) -> None:
    """Write the state of all members to the checkpoint."""
    curves = {
        "losses": padded([course.losses for course in courses]),
        "scores": padded([course.scores for course in courses]),
        "best_epoch": np.array([course.best_epoch for course in courses]),
        "seconds": np.array(seconds),
    }
    trees = [(course.member, course.best) for course in courses]
    checkpoints.save(checkpoint.path, checkpoint.run, trees, curves)


def _resume(checkpoint: Checkpoint | None, courses: list[_Course]) -> list[float]:
    """Set the members to what the checkpoint holds, if any; return the seconds of each epoch done."""
    trees = [(course.member, course.best) for course in courses]
    state = checkpoint and checkpoints.load(checkpoint.path, checkpoint.run, trees)
    if not state:
        return []
    trees, curves = state
    for course, (member, best), losses, scores, best_epoch in zip(
        courses, trees, curves["losses"], curves["scores"], curves["best_epoch"], strict=True
    ):
        # NaN stands for epochs after a member had stopped; the first loss is NaN too.
        epochs = int(np.sum(~np.isnan(scores)))
        course.member, course.best, course.best_epoch = member, best, int(best_epoch)
        course.losses, course.scores = losses[:epochs].tolist(), scores[:epochs].tolist()
    return list(map(float, curves["seconds"]))


def initialise_members(
    architecture: networks.Architecture, example: Any, outputs: int, members: int, seed: int
) -> tuple[Any, list[tuple[Any, Any]]]:
    """Build what all members share, and each one's initial weights and state, for draws like `example`.

    A network of the user's own that fails, or has other outputs than wanted, is refused.
    """
    seeds = np.random.SeedSequence(seed).generate_state(members)
    try:
        built = [ensemble.initialise(architecture, example, outputs, key=jax.random.key(s)) for s in seeds]
    except Exception as error:
        raise _failure("building your network", architecture, example, error) from error
    fixed = eqx.partition(built[0][0], eqx.is_inexact_array)[1]
    # Equinox tells states apart by identity, so all members get the structure of the first.
    structure = jax.tree.structure((eqx.filter(built[0][0], eqx.is_inexact_array), built[0][1]))
    starts = []
    for network, state in built:
        # NumPy arrays, since the compiled function reuses the memory of JAX arrays.
        parts = (eqx.filter(network, eqx.is_inexact_array), state)
        leaves = [np.array(leaf) for leaf in jax.tree.leaves(parts)]
        starts.append(jax.tree.unflatten(structure, leaves))
    weights, state = starts[0]
    try:
        shape = _output_shape(fixed, weights, state, example)
    except Exception as error:
        raise _failure("calling your network", architecture, example, error) from error
    if shape != (outputs,):
        raise ValueError(
            f"the network gives outputs of shape {shape} for one draw; wanted ({outputs},). "
            "Build it with the `outputs` that your function is given."
        )
    return fixed, starts


def _failure(doing: str, architecture: networks.Architecture, example: Any, error: Exception) -> Exception:
    """Say what failed in a network of the user's own; errors of our networks explain themselves."""
    if isinstance(architecture, tuple(BUILT_IN.values())):
        return error
    shape = jax.tree.map(lambda leaf: leaf.shape, example)
    return ValueError(
        f"{doing} failed for one draw of shape {shape}: {type(error).__name__}: {error}. The function "
        "network(x, outputs, key=key) gets such a draw as x, and its module is called with one draw too."
    )


def _output_shape(fixed: Any, weights: Any, state: Any, x: Any) -> tuple[int, ...]:
    """Return the shape of a network's outputs for one draw."""

    def raw_outputs(weights: Any, state: Any) -> jax.Array:
        batch = jax.tree.map(lambda leaf: leaf[None], x)
        return ensemble.apply(eqx.combine(weights, fixed), state, batch)[0]

    shape: tuple[int, ...] = eqx.filter_eval_shape(raw_outputs, weights, state).shape[1:]
    return shape


def _ahead(
    reader: ThreadPoolExecutor, chunks: Iterator[Chunk], devices: Devices
) -> Iterator[tuple[Chunk, ...]]:
    """Prepare the next chunk, on each device, while the present one is trained on."""

    def fetch() -> tuple[Chunk, ...] | None:
        chunk = next(chunks, None)
        return None if chunk is None else devices.copies(chunk)

    coming = reader.submit(fetch)
    while (copies := coming.result()) is not None:
        coming = reader.submit(fetch)
        yield copies


def _fields(epoch: int, losses: list[list[float]], courses: list[_Course]) -> dict[str, str]:
    """Return what the progress bar says."""
    score = np.mean([course.scores[-1] for course in courses])
    held_out = f"{score:.5f}" if np.isfinite(score) else "-"
    return {"epoch": str(epoch + 1), "loss": f"{np.mean(losses[-1]):.5f}", "held-out": held_out}


def padded(rows: list[list[float]]) -> np.ndarray:
    """Return rows of unequal length as a table, with NaN where a row has ended."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table
