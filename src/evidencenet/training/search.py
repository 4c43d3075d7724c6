"""Which plans are worth trying for given data, one question after the other."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of
from evidencenet._common.display import frame
from evidencenet.training.plan import Plan

if TYPE_CHECKING:
    import pandas

# A later plan must be better by this many nats, and by one standard error of the difference.
_LEAST_GAIN = 2e-4
# Of short trials, the best plan with another network is no worse for sure if it is behind by less than this.
CLOSE = 2e-3
# A longer trial is one training, and others of the same plan would come out a little differently.
_SCATTER = 5e-4


@dataclass(frozen=True)
class Trial:
    """One plan in words, its held-out log score in nats (lower is better), and seconds it took."""

    plan: str
    score: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The plans that were tried, and which was taken; print it.

    Attributes
    ----------
    trials
        All of them, in the order tried.
    taken
        The plan in words that the network was trained by.
    draws
        Training draws that each was tried on.
    longer
        The best plan and a rival, if one came close, tried again at greater length.
    """

    trials: tuple[Trial, ...]
    taken: str
    draws: int
    longer: tuple[Trial, ...] = ()

    def __str__(self) -> str:
        lines = [f"Tried on {self.draws:,} draws; held-out log score in nats, lower is better:"]
        width = max(len(trial.plan) for trial in self.trials)

        def rows(trials: tuple[Trial, ...]) -> list[str]:
            return [
                f"{'*' if trial.plan == self.taken else ' '} {trial.plan:<{width}}  {trial.score:.5f}  "
                f"{trial.seconds:5.1f} s"
                for trial in trials
            ]

        lines += rows(self.trials)
        if self.longer:
            lines += ["The closest two at greater length:", *rows(self.longer)]
        return "\n".join(lines)

    __repr__ = __str__

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row a plan: its score, the seconds it took, and whether it was taken."""
        return frame([{**asdict(trial), "taken": trial.plan == self.taken} for trial in self.trials], "plan")


def _with_another_network(plan: Plan, best: Plan) -> float:
    return CLOSE if plan.network != best.network else -np.inf


def choose(
    first: Plan,
    rounds: Sequence[Callable[[Plan], Sequence[Plan]]],
    run: Callable[[Plan], np.ndarray],
    draws: int,
    tell: Callable[[int, Plan], None] = lambda tried, best: None,
    run_longer: Callable[[Plan], np.ndarray] | None = None,
    rival: Callable[[Plan, Plan], float] = _with_another_network,
) -> tuple[Plan, Choice]:
    """Improve a plan round by round.

    Parameters
    ----------
    first
        Where to begin.
    rounds
        Each gives the alternatives to the best plan so far, simplest first; that plan itself may be among
        them, or else comes before them. A plan is preferred to a simpler one if it is better by more than
        chance.
    run
        Tries a plan: −log p(true model) of each held-out draw, (n,), weighted if draws are.
    draws
        How many draws a trial uses, for the record.
    tell
        Called after each round with the number of plans tried so far, and the best one.
    run_longer
        Tries a plan at greater length. The best plan, and its best rival if that is close behind, are then
        tried again: what learns fast is not always what learns most.
    rival
        Says how many nats a plan may be behind the best one to be its rival; −∞ if it never is.

    Returns
    -------
    plan, choice
    """
    trials: dict[Plan, Trial] = {}
    costs: dict[Plan, np.ndarray] = {}

    def attempt(plan: Plan, run: Callable[[Plan], np.ndarray] = run) -> Trial:
        start = time.perf_counter()
        costs[plan] = run(plan)
        score = float(np.mean(costs[plan]))
        return Trial(str(plan), score if np.isfinite(score) else np.inf, time.perf_counter() - start)

    def better(plan: Plan, than: Plan, least: float = _LEAST_GAIN) -> bool:
        # A plan that diverged never wins, and always loses.
        if not np.isfinite([trials[plan].score, trials[than].score]).all():
            return bool(np.isfinite(trials[plan].score))
        gained = costs[than] - costs[plan]
        error = np.std(gained) / np.sqrt(len(gained))
        return bool(np.mean(gained) > max(least, error))

    best = first
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for alternatives in rounds:
            asked = alternatives(best)
            asked = list(dict.fromkeys(asked if best in asked else [best, *asked]))
            new = [plan for plan in asked if plan not in trials]
            trials |= zip(new, pool.map(attempt, new), strict=True)
            best = asked[0]
            for plan in asked[1:]:
                if better(plan, best):
                    best = plan
            tell(len(trials), best)
        short = tuple(trials.values())
        close = [plan for plan in trials if trials[plan].score < trials[best].score + rival(plan, best)]
        longer: tuple[Trial, ...] = ()
        if run_longer is not None and close:
            second = min(close, key=lambda plan: trials[plan].score)
            longer = tuple(pool.map(partial(attempt, run=run_longer), (best, second)))
            trials |= zip((best, second), longer, strict=True)
            best = second if better(second, best, _SCATTER) else best
            tell(len(trials), best)
    return best, Choice(short, str(best), draws, longer)


# Its value is the score by which plans are judged, it is the least sensitive to outliers, and log K that is
# the raw output itself extrapolates best: other losses must do better.
FIRST_LOSS = losses.Logistic()
Round = Callable[[Plan], list[Plan]]
# A set needs some elements, and a series or spectrum some length, to be worth the name.
_LEAST_ELEMENTS = 4
_LEAST_LENGTH = 8
# Sines of more numbers than this cost more than they bring.
_MOST_WAVES = 32
_WAVES = 8
_LARGEST_SPECTRUM = 4096


def natural(x: Data) -> list[networks.Architecture]:
    """Architectures that suit draws like `x`, by its shape alone; the first is the first to be tried."""
    numbers = sum(array.size for array in arrays_of(x))
    dense: list[networks.Architecture] = [networks.Dense()]
    if numbers <= _MOST_WAVES:
        dense.append(_waves(numbers))
    if isinstance(x, dict):
        masks = [array for array in x.values() if array.dtype == bool]
        lengths = {array.shape[:1] for array in x.values()}
        is_set = len(masks) == 1 and masks[0].ndim == 1 and len(lengths) == 1
        return [networks.DeepSet(), networks.Dense()] if is_set else [*dense]
    if x.ndim <= 1:
        # The numbers of a vector may well be exchangeable, or a series: the scores will tell.
        if x.size >= _LEAST_ELEMENTS:
            dense.append(networks.DeepSet())
            if numbers <= _MOST_WAVES:
                # Exchangeable numbers that log K oscillates with are better seen so than by either alone.
                dense.append(networks.DeepSet(waves=_WAVES))
        if x.size >= 2 * _LEAST_LENGTH:
            dense += [networks.Sequence(), networks.Spectrum()]
        return dense
    spectrum = [networks.Spectrum()] if len(x) >= _LEAST_LENGTH and numbers <= _LARGEST_SPECTRUM else []
    if x.ndim == 2 and 4 * x.shape[1] <= x.shape[0]:
        return [networks.Sequence(), networks.DeepSet(), networks.Dense(), *spectrum]
    if x.ndim == 3 and x.shape[2] <= 4:
        return [networks.Image(), networks.Dense(), *spectrum]
    return [*dense, *([networks.Table()] if x.ndim == 2 else [])]


def rounds(
    options: list[networks.Architecture],
    *,
    numbers: int,
    squashes: list[bool],
    whitens: list[bool],
    baselines: list[bool],
    loss: losses.Loss | None,
    learned: Callable[[Plan], bool],
    on_all: bool,
) -> list[Round]:
    """Alternatives to the best plan so far, within what the caller has not fixed.

    Parameters
    ----------
    options
        Architectures; a single one is fixed, and so are its settings.
    numbers
        In one draw.
    squashes, whitens, baselines
        Ways to treat the inputs.
    loss
        None if it is free.
    learned
        Whether the networks of a plan that was tried improved on what they were given. If not even the best
        did, no finer setting will.
    on_all
        Whether plans are tried on all draws that the best will be trained on.
    """

    def inputs(plan: Plan) -> list[Plan]:
        return [
            replace(plan, squash=squash, whiten=whiten, baseline=base)
            for whiten in whitens
            for squash in squashes
            for base in baselines
        ]

    def kinds(plan: Plan) -> list[Plan]:
        found = []
        for network in options:
            # Networks that treat all places alike know second moments by themselves, and more than those of
            # the Gaussians are hard to take back; and places that were mixed are not alike.
            alike = networks.scales_alike(network) and False in baselines
            base = False if alike else plan.baseline
            whiten = plan.whiten and not alike
            # What one network makes of outliers says little about another.
            found += [
                replace(plan, network=network, squash=squash, whiten=whiten, baseline=base)
                for squash in squashes
            ]
        return found

    def settings(plan: Plan) -> list[Plan]:
        if not learned(plan):
            return []
        again = [plan, *(replace(plan, baseline=base) for base in baselines if base != plan.baseline)]
        again += [replace(plan, whiten=whiten) for whiten in whitens if whiten != plan.whiten]
        if len(options) == 1:
            return again
        others = [replace(plan, network=network) for network in variants(plan.network, numbers)]
        if not networks.shares_weights(plan.network):
            others.append(replace(plan, weight_decay=0.01))
        elif on_all:
            # The more draws, the less need to hold weights back: fewer ones would ask for more than is good.
            others.append(replace(plan, weight_decay=0.1))
        return [*again, *others]

    def penalties(plan: Plan) -> list[Plan]:
        if loss is not None or not learned(plan):
            return []
        kinds = [FIRST_LOSS, losses.Exponential(), losses.LPopLogistic(), losses.LPopExponential()]
        return [replace(plan, loss=kind) for kind in kinds]

    return [inputs, kinds, settings, penalties]


def variants(network: networks.Architecture, numbers: int) -> list[networks.Architecture]:
    """Give the same kind of network in other sizes."""
    match network:
        case networks.Dense(waves=0):
            return [_wide(numbers)]
        case networks.DeepSet(waves=0) | networks.Table(waves=0):
            return [replace(network, waves=_WAVES)]
        case networks.Sequence():
            return [replace(network, depth=network.depth + 1)]
        case networks.Spectrum():
            return [replace(network, width=max(128, numbers), hidden=64)]
    return []


def _wide(numbers: int) -> networks.Dense:
    """For functions with more detail than the paper's widths can follow, above all of few numbers."""
    return networks.Dense(width=max(128, int(1.1 * numbers) + 20), hidden=64)


def _waves(numbers: int) -> networks.Dense:
    return replace(_wide(numbers), waves=int(np.clip(64 // numbers, 4, _WAVES)))
