"""`deepen`: train a network on rare draws, so that log K is validated as far as the models' draws go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from evidencenet._common.arrays import Data, join, map_arrays
from evidencenet._common.warnings import log
from evidencenet.checks.check import Check
from evidencenet.checks.tail import Tail, tails
from evidencenet.estimator.assemble import Failures
from evidencenet.estimator.error import Depth
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.retrain import train_on
from evidencenet.rare.draw import checked_models, rare_draws, scorer
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.simulation.rare_draws import Levels, RareDraws
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment, Draws

Array = np.ndarray

# Rounds at most: each is steered by the network that the one before trained.
_ROUNDS = 3
# Draws of the first round, and of the run that the result is judged by, as a part of `n`.
_FIRST_PART, _JUDGE_PART = 0.5, 0.25
# Members, and part of the usual epochs, of networks that only steer the next round.
_STEERING_MEMBERS, _STEERING_PART = 2, 0.4
# Held-out draws of each level, and plain ones in all, as a number and as a part of the training draws: the
# range and the errors need no more.
_HELD_OUT_LEVEL, _HELD_OUT_PLAIN, _HELD_OUT_PART = 1_000, 40_000, 0.25
# Plain draws to train on beside the rare ones, at most.
_MOST_PLAIN = 1_000_000
# Groups that plain draws are divided into, for trainings on halves.
_GROUPS = 10


def deepen(
    net: EvidenceNetwork,
    models: Sequence[Model],
    *,
    reach: float = 30.0,
    n: int = 20_000,
    rounds: int = _ROUNDS,
    members: int | None = None,
    recipe: Recipe | None = None,
    augment: Augment | None = None,
    learn_error: bool = True,
    seed: int = 0,
    workers: int = 1,
    progress: bool = True,
    calls: int | None = None,
) -> EvidenceNetwork:
    """Train a network anew on rare draws, so that its validated range reaches as far as the draws go.

    Plain draws confirm log K up to about log n − 3. Beyond, a network extrapolates. Here the simulators' own
    random numbers are steered, by multilevel splitting, to draws of each model that speak against it by up to
    `reach` nats, whose probability is found on the way. A network trained on them knows log K there, and
    held-out rare draws confirm it.

    Parameters
    ----------
    net
        A network of these models, from `train` or from `deepen`. It says where to look, and which
        architecture to train.
    models
        The models, in the order of the network, with simulators of NumPy (kinds "batch" and "one").
    reach
        How far to go, in nats. It ends earlier where the draws of the models do.
    n
        Draws in a level. The error of log P, part of that of log K, falls as 1/√n.
    rounds
        At most so many. The first round is steered by `net`, which may be wrong at depth; the next ones by
        the network trained before. It stops when the tail check passes.
    members
        Networks in the ensemble; as many as `net` has by default.
    recipe
        How to train, above all for how many epochs; by default as `train` would.
    augment, learn_error
        As in `train`. A symmetry leaves the log-odds of a draw as they are, so rare draws may be augmented.
    seed
        The same seed on the same machine gives the same network.
    workers
        Runs simulated at the same time, in threads.
    progress
        Show bars on standard error.
    calls
        Simulator calls at most, in all rounds together. By default there is no limit; some 30 levels of
        20,000 draws in two rounds take 8 million.

    Returns
    -------
    EvidenceNetwork
        A new one. `depth` tells levels, log P, tail checks, rounds and calls. Everything that works on a
        network works on it.

    Raises
    ------
    evidencenet.rare.steer.UnsteerableError
        If a simulator cannot be steered; it says which call is the cause and what to do.

    Examples
    --------
    >>> net = en.train(en.simulate([flat, trend], 200_000, seed=1), seed=2)  # doctest: +SKIP
    >>> net.compare(x_observed).range.high                                   # doctest: +SKIP
    4.1
    >>> deep = en.deepen(net, [flat, trend], seed=3)                         # doctest: +SKIP
    >>> deep.compare(x_observed).range.high                                  # doctest: +SKIP
    28.4
    """
    models = checked_models(net, models)
    if rounds < 1:
        raise ValueError(f"rounds = {rounds}; wanted at least 1.")
    members = len(net.gain) if members is None else members
    plain = _plain(net, models, seed, workers, progress)
    spent = len(plain)
    steering = net
    for number in range(1, rounds + 1):
        last = number == rounds or number > 1
        size = n if last else max(int(_FIRST_PART * n), 200)
        seeds = [int(s) for s in np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(3)]
        budget = None if calls is None else max(calls - spent, size * len(models))
        if budget is not None:
            # The run that judges has the same levels, with fewer draws.
            budget = int(budget / (1 + _JUDGE_PART) / (1 if last else 3))
        found = rare_draws(
            steering,
            models,
            reach=reach,
            n=size,
            seed=seeds[0],
            workers=workers,
            progress=progress,
            calls=budget,
        )
        judges = rare_draws(
            steering,
            models,
            n=max(int(_JUDGE_PART * size), 200),
            like=found,
            seed=seeds[1],
            workers=workers,
            progress=progress,
        )
        spent += found.calls + judges.calls
        data = _Round(found, judges, plain, scorer(steering), augment)
        trained = train_on(
            replace(data.draws(), layout=net.scaling.layout),
            net.names,
            Failures(net.log_valid, net.log_valid_error),
            net.architecture,
            recipe=recipe or Recipe(),
            members=members if last else min(members, _STEERING_MEMBERS),
            seed=seeds[2],
            progress=progress,
            part=1.0 if last else _STEERING_PART,
            learn_error=learn_error and last,
        )
        checks = tuple(each.check for each in data.tails(trained))
        log.info("round %d: %s", number, "; ".join(str(check) for check in checks))
        deep = replace(trained, depth=_depth(data, checks, number, spent))
        steering = deep
        if last and all(check.verdict != "fail" for check in checks):
            break
        if calls is not None and spent >= calls:
            break
    if not last:
        raise ValueError(f"calls = {calls} is too small for two rounds; wanted at least {3 * spent}.")
    return deep


def _plain(net: EvidenceNetwork, models: list[Model], seed: int, workers: int, progress: bool) -> Simulations:
    """Draw as many plain data sets as the network was trained on, and more to judge by."""
    number = min(net.history.draws, _MOST_PLAIN)
    number += min(int(_HELD_OUT_PART * number), _HELD_OUT_PLAIN)
    own = int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1)[0])
    return simulate(models, number, seed=own, workers=workers, progress=progress)


@dataclass(frozen=True, eq=False)
class _Round:
    """The draws of one round: to train on, to judge by, and plain ones for both.

    `score` is that of the network which steered the round.
    """

    found: RareDraws
    judges: RareDraws
    plain: Simulations
    score: Callable[[Data], Array]
    augment: Augment | None

    def draws(self) -> Draws:
        """Put all draws together, with the log-odds that each has because of how it was drawn."""
        training, testing = self._plain_rows()
        scores = self._plain_scores
        judges = self.judges.thinned(_HELD_OUT_LEVEL)
        levels = self.levels
        parts = []
        for rare, rows in ((self.found, training), (judges, testing)):
            label = np.concatenate([rare.model, self.plain.model[rows]])
            score = np.concatenate([rare.score, scores[rows]])
            more = np.bincount(self.plain.model[rows], minlength=len(levels))
            boost = []
            for k, (each, own) in enumerate(zip(levels, rare.levels, strict=True)):
                count = own.count.copy()
                count[0] += more[k]
                boost.append(replace(each, count=count).log_boost(score[:, k]))
            offset = np.stack(boost, axis=1)
            group = np.concatenate([rare.replicate, np.arange(len(rows)) % _GROUPS])
            plain = np.concatenate([rare.plain, np.ones(len(rows), dtype=bool)])
            x = join(rare.x, map_arrays(lambda array, rows=rows: array[rows], self.plain.x))
            parts.append((x, label, offset - offset[:, :1], group, plain))
        x, label, offset, group, plain = (join(*pair) for pair in zip(*parts, strict=True))
        number = len(parts[0][1])
        counts = np.bincount(label[:number], minlength=len(levels))
        order = np.random.default_rng(0)
        return Draws(
            x=x,
            model=label,
            weight=np.ones(len(label), dtype=np.float32),
            counts=counts,
            training_rows=order.permutation(number),
            held_out_rows=order.permutation(np.arange(number, len(label))),
            augment=self.augment,
            # The boost counts draws, and so holds the training shares, which `Draws` adds by itself.
            known=(offset - np.log(counts / counts[0])).astype(np.float32),
            plain=plain,
            group=group,
        )

    def tails(self, net: EvidenceNetwork) -> tuple[Tail, ...]:
        """Compare how often each model's draws speak against it with what a network says."""
        rows = self._plain_rows()[1]
        x = map_arrays(lambda array: array[rows], self.plain.x)
        log_k = net.table(x).mean(axis=0) - (net.log_valid - net.log_valid[0])
        return tails(self.levels, self._plain_scores[rows], log_k, self.plain.model[rows], net.names)

    @cached_property
    def levels(self) -> tuple[Levels, ...]:
        """The levels of each model; both runs together know log P best."""
        runs = [
            self._known_from_all(rare, rows)
            for rare, rows in zip((self.found, self.judges), self._plain_rows(), strict=True)
        ]
        return tuple(first.together(second) for first, second in zip(*runs, strict=True))

    def _known_from_all(self, rare: RareDraws, rows: Array) -> list[Levels]:
        """Return the levels of a run, with log P known from its draws and from plain ones."""
        levels = []
        for k, each in enumerate(rare.levels):
            own = rare.model == k
            plain = rows[self.plain.model[rows] == k]
            levels.append(
                each.known_from(
                    rare.score[own, k], rare.level[own], rare.replicate[own], self._plain_scores[plain, k]
                )
            )
        return levels

    @cached_property
    def _plain_scores(self) -> Array:
        return self.score(self.plain.x)

    def _plain_rows(self) -> tuple[Array, Array]:
        """Positions of the plain draws to train on, and of those to judge by: the last ones of each model."""
        training, testing = [], []
        for k in range(len(self.plain.names)):
            rows = np.flatnonzero(self.plain.model == k)
            held_out = min(int(_HELD_OUT_PART / (1 + _HELD_OUT_PART) * len(rows)), _HELD_OUT_PLAIN // 2)
            training.append(rows[:-held_out])
            testing.append(rows[-held_out:])
        return np.concatenate(training), np.concatenate(testing)


def _depth(data: _Round, checks: tuple[Check, ...], rounds: int, calls: int) -> Depth:
    levels = data.levels
    return Depth(
        tuple(each.threshold[1:] for each in levels),
        tuple(each.log_p[1:] for each in levels),
        tuple(each.log_p_error[1:] for each in levels),
        checks,
        rounds,
        calls,
    )
