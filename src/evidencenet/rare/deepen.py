"""`deepen`: train a network on rare draws, so that log K is validated as far as the models' draws go."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common.arguments import checked_seed, explained, whole
from evidencenet._common.arrays import Data, join, map_arrays
from evidencenet._common.executors import checked_executor
from evidencenet._common.fingerprint import fingerprint
from evidencenet._common.warnings import log
from evidencenet.checks.check import Check
from evidencenet.checks.tail import Tail, tails
from evidencenet.estimator.assemble import Failures
from evidencenet.estimator.error import Depth
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.retrain import plan_of, train_on
from evidencenet.estimator.serialise import load
from evidencenet.networks.architectures import is_built_in
from evidencenet.rare.draw import checked_models, identity, rare_draws, scorer
from evidencenet.rare.steer import check_steerable
from evidencenet.rare.store import check_settings
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.simulation.rare_draws import Levels, RareDraws
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment, Draws

Array = np.ndarray

# Rounds at most: each is steered by the network that the one before trained.
_ROUNDS = 3
# Draws of the first round, and of the run that the result is judged by, as a part of `n`; of the latter at
# least so many, but no more than of the run itself.
_FIRST_PART, _JUDGE_PART, _FEWEST_JUDGES = 0.5, 0.25, 1_000
# Members, and part of the usual epochs, of networks that only steer the next round.
_STEERING_MEMBERS, _STEERING_PART = 2, 0.4
# Held-out draws of each level, and plain ones in all, as a number and as a part of the training draws: the
# range and the errors need no more.
_HELD_OUT_LEVEL, _HELD_OUT_PLAIN, _HELD_OUT_PART = 1_000, 40_000, 0.25
# Plain draws to train on beside the rare ones, at most.
_MOST_PLAIN = 1_000_000
# A budget of calls must allow for so many levels without moves; two rounds are made if it allows for so many.
_LEAST_LEVELS, _TWO_ROUNDS_LEVELS = 10, 60
# Groups that plain draws are divided into, for trainings on halves.
_GROUPS = 10


@explained(
    "deepen(net, [model0, model1])",
    {
        "*": "All arguments after the models have names.",
        "log_k": "reach=...",
        "timeout": "a limit inside the simulator, since rare draws have none,",
        "pool": "executor=...",
        "client": "executor=client",
        "n_jobs": "workers=...",
        "depth": "reach=...",
        "n_draws": "n=..., draws of each level",
        "max_calls": "calls=...",
        "budget": "calls=..., simulator calls in all",
        "random_state": "seed=...",
        "verbose": "progress=False or True",
    },
)
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
    workers: int | None = None,
    executor: Any = None,
    progress: bool = True,
    calls: int | None = None,
    store: str | os.PathLike[str] | None = None,
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
        How many runs are simulated at the same time, −1 for one per processor, in threads or in any backend
        chosen with ``joblib.parallel_config``; see `rare_draws`. The default is 1, or as many as `executor`
        has.
    executor
        Makes all draws elsewhere, as in `simulate`, and trains each member as a job of its own, as in
        `train`, to the same network. Trials, and trainings for the error of log K, run here.
    progress
        Show bars on standard error: levels, the log-odds reached, log P, acceptance, calls, and time left.
    calls
        Simulator calls at most, in all rounds together. By default there is no limit; some 30 levels of
        20,000 draws in two rounds take 8 million. Levels end where the calls do; with few calls there is one
        round.
    store
        A folder that keeps plain draws, levels and networks as soon as they are there. After an interruption
        of any kind, make the same call again: it goes on from there, to the same result.

    Returns
    -------
    EvidenceNetwork
        A new one. `depth` tells levels, log P, tail checks, rounds and calls. Everything that works on a
        network works on it.

    Raises
    ------
    evidencenet.rare.steer.UnsteerableError
        If a simulator cannot be steered; it says which call is the cause and what to do.
    evidencenet._common.files.FileError
        If `store` was begun with other arguments; it says which.

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
    rounds, n = whole("rounds", rounds, 1), whole("n", n, 200)
    members = len(net.gain) if members is None else whole("members", members, 1)
    seed = checked_seed(seed)
    executor = None if executor is None else checked_executor(executor)
    least = _plain_draws(net) + _LEAST_LEVELS * n * len(models)
    if calls is not None and whole("calls", calls, 1) < least:
        raise ValueError(
            f"calls = {calls:,} does not even draw the first levels of {n:,} draws; wanted at least "
            f"{least:,}. Allow more, or take a smaller n."
        )
    for model in models:
        check_steerable(model, seed=seed)
    folder = None if store is None else Path(store)
    if folder is not None:
        settings = {
            "models": list(net.names),
            "network": identity(net),
            "reach": float(reach),
            "n": n,
            "rounds": rounds,
            "members": members,
            "recipe": repr(recipe),
            "learn_error": learn_error,
            "augment": None if augment is None else fingerprint(augment),
            "seed": seed,
            "calls": calls,
        }
        check_settings(folder, settings)
    crew: dict[str, Any] = {"workers": workers, "executor": executor, "progress": progress}
    plain = _plain(net, models, seed, crew, folder)
    spent = len(plain)
    # With few calls one round of all of them sees more than two rounds of half.
    if calls is not None and calls < spent + _TWO_ROUNDS_LEVELS * n * len(models):
        rounds = 1
    steering, deep = net, None
    for number in range(1, rounds + 1):
        last = number == rounds or number > 1
        place = None if folder is None else folder / f"round-{number}"
        size = n if last else max(int(_FIRST_PART * n), 200)
        seeds = [int(s) for s in np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(3)]
        part = min(max(int(_JUDGE_PART * size), _FEWEST_JUDGES), size)
        budget = None
        if calls is not None:
            # The run that judges has the same levels, with fewer draws.
            budget = int((calls - spent) / (1 + part / size) / (1 if last else 3))
            if budget < 2 * size * len(models):
                break
        run = partial(rare_draws, steering, models, **crew)
        found = run(reach=reach, n=size, seed=seeds[0], calls=budget, store=place and place / "found")
        judges = run(n=part, like=found, seed=seeds[1], store=place and place / "judges")
        # As many draws as a level has were made to find where the levels end.
        spent += found.calls + judges.calls + size * len(models)
        # Levels that fewer draws do not reach again cannot be judged.
        found = found.cut([len(levels.threshold) for levels in judges.levels])
        data = _Round(found, judges, plain, scorer(steering), augment)
        kept = place and place / "net.evnet"
        if kept is not None and kept.exists():
            own = None if is_built_in(net.architecture) else net.architecture
            deep = load(kept, network=own)
        else:
            draws, offset_error = data.draws()
            deep = train_on(
                replace(draws, layout=net.scaling.layout),
                net.names,
                Failures(net.log_valid, net.log_valid_error),
                net.architecture,
                recipe=recipe or Recipe(),
                members=members if last else min(members, _STEERING_MEMBERS),
                seed=seeds[2],
                progress=progress,
                executor=executor,
                part=1.0 if last else _STEERING_PART,
                learn_error=learn_error and last,
                # What suits rare draws shows in the first round.
                plan=None if number == 1 else plan_of(steering),
                offset_error=offset_error,
            )
            checks = tuple(each.check for each in data.tails(deep))
            depth = _depth(data, checks, number, spent)
            choice = deep.choice or steering.choice
            deep = replace(deep, depth=depth, columns=net.columns, choice=choice)
            if kept is not None:
                deep.save(kept)
        assert deep.depth is not None
        log.info("round %d: %s", number, "; ".join(str(check) for check in deep.depth.checks))
        steering = deep
        if last and all(check.verdict != "fail" for check in deep.depth.checks):
            break
    assert deep is not None
    return deep


def _plain_draws(net: EvidenceNetwork) -> int:
    """Return how many plain draws to make: as many as the network was trained on, and more to judge by."""
    number = min(net.history.draws, _MOST_PLAIN)
    return number + min(int(_HELD_OUT_PART * number), _HELD_OUT_PLAIN)


def _plain(
    net: EvidenceNetwork, models: list[Model], seed: int, crew: dict[str, Any], folder: Path | None
) -> Simulations:
    """Draw the plain data sets of all rounds."""
    own = int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1)[0])
    store = folder and folder / "plain.zarr"
    return simulate(models, _plain_draws(net), seed=own, store=store, **crew)


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

    def draws(self) -> tuple[Draws, Array]:
        """Put all draws together, with the log-odds that each has because of how it was drawn.

        Also return the standard errors of these log-odds against model 0, (n, K).
        """
        training, testing = self._plain_rows()
        scores = self._plain_scores
        judges = self.judges.at_most(_HELD_OUT_LEVEL)
        levels = self.levels
        parts = []
        for rare, rows in ((self.found, training), (judges, testing)):
            label = np.concatenate([rare.model, self.plain.model[rows]])
            score = np.concatenate([rare.score, scores[rows]])
            more = np.bincount(self.plain.model[rows], minlength=len(levels))
            boost, error = [], []
            for k, (each, own) in enumerate(zip(levels, rare.levels, strict=True)):
                count = own.count.copy()
                count[0] += more[k]
                boost.append(replace(each, count=count).log_boost(score[:, k]))
                error.append(each.error_at(score[:, k]))
            offset = np.stack(boost, axis=1)
            group = np.concatenate([rare.replicate, np.arange(len(rows)) % _GROUPS])
            plain = np.concatenate([rare.plain, np.ones(len(rows), dtype=bool)])
            x = join(rare.x, map_arrays(lambda array, rows=rows: array[rows], self.plain.x))
            errors = np.stack([np.hypot(each, error[0]) for each in error], axis=1)
            parts.append((x, label, offset - offset[:, :1], group, plain, errors))
        x, label, offset, group, plain, errors = (join(*pair) for pair in zip(*parts, strict=True))
        number = len(parts[0][1])
        counts = np.bincount(label[:number], minlength=len(levels))
        order = np.random.default_rng(0)
        draws = Draws(
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
        return draws, errors

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
