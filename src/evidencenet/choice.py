"""Choose how to train by evidence: plans are tried on few draws and judged by their held-out score."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet import losses, networks
from evidencenet.display import frame

if TYPE_CHECKING:
    import pandas

# A later plan must be better by this many nats, and by one standard error of the difference.
_LEAST_GAIN = 2e-4
# Of short trials, the best plan with another network is no worse for sure if it is behind by less than this.
CLOSE = 2e-3
# A longer trial is one training, and others of the same plan would come out a little differently.
_SCATTER = 5e-4


@dataclass(frozen=True)
class Plan:
    """All that is chosen before training.

    Parameters
    ----------
    network, loss
        What is trained.
    squash
        Whether inputs are scaled by asinh.
    whiten
        Whether correlations of the inputs are taken out.
    baseline
        Whether the networks correct Gaussians.
    weight_decay
        None is the usual one of the network.
    """

    network: networks.Architecture
    loss: losses.Loss
    squash: bool = False
    baseline: bool = False
    weight_decay: float | None = None
    whiten: bool = False

    def __str__(self) -> str:
        parts = [
            _short(self.network),
            "asinh" if self.squash else "standardised",
            *(["whitened"] if self.whiten else []),
            _short(self.loss),
            *(["on Gaussians"] if self.baseline else []),
            *([] if self.weight_decay is None else [f"weight decay {self.weight_decay:g}"]),
        ]
        return ", ".join(parts)


def _short(thing: Any) -> str:
    """Name a network or loss, with those of its settings that are not the usual ones."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return str(getattr(thing, "__name__", type(thing).__name__))
    values = [(item, getattr(thing, item.name)) for item in fields(thing)]
    special = [f"{item.name}={value!r}" for item, value in values if value != item.default]
    return type(thing).__name__ + (f"({', '.join(special)})" if special else "")


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
