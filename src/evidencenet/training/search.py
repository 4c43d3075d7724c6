"""The search for a plan: plans are tried on few draws and judged by their held-out score.

`Search.run` is the story: four rounds of short trials (inputs, kind of network, settings, loss), each round
asking for alternatives to the best plan so far; then, if a rival came close, both at greater length.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import Data, arrays_of
from evidencenet._common.display import frame
from evidencenet._common.progress import Progress
from evidencenet.training.gaussians import LARGEST
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import MOST_OPERATIONS, Recipe
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer

if TYPE_CHECKING:
    import pandas

# Short trials: so many draws, so many epochs and so much arithmetic at most. Seconds, not minutes.
_TRIAL_DRAWS = 50_000
_TRIAL_EPOCHS = 10
_TRIAL_OPERATIONS = 1e11
# Longer trials: all draws, and half of the arithmetic that a member of the final ensemble may take.
_LONGER_OPERATIONS = MOST_OPERATIONS / 2
# A plan replaces a simpler one if it is better by this many nats, and by one standard error.
_LEAST_GAIN = 2e-4
# After short trials, a plan with another kind of network may still be the better one if it is behind by less
# than this many nats. It then wins a longer trial if it leads by more than trainings of one plan scatter
# (both from docs/decisions.md, "Choice by evidence").
_CLOSE = 2e-3
_SCATTER = 5e-4
# The logistic loss is tried first, and the others must do better: its value is the score by which plans are
# judged, it is the least sensitive to outliers, and its log K extrapolates best.
FIRST_LOSS = losses.Logistic()
_LOSSES = (FIRST_LOSS, losses.Exponential(), losses.LPopLogistic(), losses.LPopExponential())
# A set needs this many elements, and a series or spectrum this length, to be treated as such.
_LEAST_ELEMENTS = 4
_LEAST_LENGTH = 8
# Sines of more numbers than this cost more than they gain.
_MOST_WAVES = 32
_WAVES = 8
_LARGEST_SPECTRUM = 4096


@dataclass(frozen=True)
class Trial:
    """One plan in words, its held-out log score in nats (lower is better), and the seconds it took."""

    plan: str
    score: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The plans that were tried, and which was taken; print it.

    Attributes
    ----------
    trials
        All short trials, in the order they were made.
    taken
        The plan in words that the network was trained by.
    draws
        Training draws that each plan was tried on.
    longer
        The best plan and its rival, if one came close, tried again at greater length.
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


@dataclass(frozen=True)
class Freedom:
    """What the caller of `train` left free to choose.

    Parameters
    ----------
    architectures
        Architectures to try, the first one first. A single one is fixed, and so are its settings.
    loss
        The loss; None if it is free.
    baselines
        Whether to correct the Gaussian baseline: (True, False) tries both, the first one first.
    """

    architectures: tuple[networks.Architecture, ...]
    loss: losses.Loss | None
    baselines: tuple[bool, ...]

    @staticmethod
    def of(
        draws: Draws,
        network: networks.Architecture | None,
        loss: losses.Loss | None,
        baseline: bool | None,
        recipe: Recipe | None,
    ) -> "Freedom":
        """Say what is free, given the arguments of `train`. A named recipe fixes everything."""
        if baseline and draws.features > LARGEST:
            raise ValueError(
                f"a baseline needs draws of at most {LARGEST} numbers, these have {draws.features}. "
                "Leave it out: baseline=False."
            )
        given = network or (recipe.network if recipe else None)
        architectures = natural(draws.example) if given is None else [given]
        possible = draws.features <= LARGEST and not isinstance(loss, losses.Asymmetric)
        # With the baseline first: then networks need only learn what is not Gaussian, if anything.
        both = (True, False) if possible and recipe is None else (False,)
        return Freedom(tuple(architectures), loss, both if baseline is None else (baseline,))

    def first_plan(self, default_loss: losses.Loss) -> Plan:
        """Return the plan that is tried first."""
        return Plan(self.architectures[0], self.loss or default_loss, baseline=self.baselines[0])


@dataclass(frozen=True, eq=False)
class _Attempt:
    """How one plan did: −log p(true model) of each held-out draw, seconds, and whether networks learned.

    Networks learned if they improved on what they started from: the baseline, or nothing.
    """

    plan: Plan
    costs: np.ndarray
    seconds: float
    learned: bool

    @property
    def score(self) -> float:
        """The mean cost; infinite if training diverged."""
        mean = float(np.mean(self.costs))
        return mean if np.isfinite(mean) else np.inf

    def beats(self, other: "_Attempt", least: float) -> bool:
        """Say whether this plan is better by `least` nats and by one standard error of the difference."""
        if not np.isfinite([self.score, other.score]).all():
            # A plan that diverged never wins, and always loses.
            return bool(np.isfinite(self.score))
        gained = other.costs - self.costs
        error = np.std(gained) / np.sqrt(len(gained))
        return bool(np.mean(gained) > max(least, error))

    def trial(self) -> Trial:
        """Return what is shown to the user."""
        return Trial(str(self.plan), self.score, self.seconds)


@dataclass
class Search:
    """The state of the search: every plan tried so far, and the best of them.

    Parameters
    ----------
    draws
        All draws. Short trials use few of them.
    trainer
        Trains the networks of every trial.
    freedom
        What may be chosen.
    """

    draws: Draws
    trainer: Trainer
    freedom: Freedom
    attempts: dict[Plan, _Attempt] = field(default_factory=dict)
    longer: tuple[_Attempt, ...] = ()

    def __post_init__(self) -> None:
        self.few = self.draws.few(_TRIAL_DRAWS)
        self.squashes = (False, True) if self.few.has_outliers() else (False,)
        self.whitens = (False, True) if self.few.is_correlated() else (False,)
        self.best = self.freedom.first_plan(FIRST_LOSS)

    def run(self, *, progress: bool) -> tuple[Plan, Choice]:
        """Improve the plan round by round; return the best one, and the record of all trials."""
        rounds = (self.other_inputs, self.other_kinds, self.other_settings, self.other_losses)
        with (
            Progress("choosing", self._expected_trials(), enabled=progress) as bar,
            ThreadPoolExecutor(os.cpu_count() or 1) as pool,
        ):
            for alternatives in rounds:
                self._try(alternatives(), pool)
                bar.update(len(self.attempts), best=str(self.best))
            rival = self.closest_rival()
            if rival is not None:
                self._decide_at_length(rival, pool)
                bar.update(len(self.attempts), best=str(self.best))
        trials = tuple(attempt.trial() for attempt in self.attempts.values())
        longer = tuple(attempt.trial() for attempt in self.longer)
        return self.best, Choice(trials, str(self.best), len(self.few.training_rows), longer)

    # The four rounds: each lists alternatives to the best plan, simplest first.

    def other_inputs(self) -> list[Plan]:
        """List other ways to scale the data, with and without the baseline."""
        return [
            replace(self.best, squash=squash, whiten=whiten, baseline=baseline)
            for whiten in self.whitens
            for squash in self.squashes
            for baseline in self.freedom.baselines
        ]

    def other_kinds(self) -> list[Plan]:
        """List other kinds of network."""
        plans = []
        for network in self.freedom.architectures:
            # Networks that treat all places alike know second moments by themselves, and can hardly undo
            # those of the baseline where it is wrong. And places that were mixed are no longer alike.
            bare = networks.scales_alike(network) and False in self.freedom.baselines
            plans += [
                replace(
                    self.best,
                    network=network,
                    # What one network makes of outliers says little about another.
                    squash=squash,
                    whiten=self.best.whiten and not bare,
                    baseline=False if bare else self.best.baseline,
                )
                for squash in self.squashes
            ]
        return plans

    def other_settings(self) -> list[Plan]:
        """List the best kind of network in other settings: baseline, whitening, size, weight decay."""
        best = self.best
        if not self.attempts[best].learned:
            # If not even the best network improves on the baseline, no finer setting will.
            return []
        plans = [best, *(replace(best, baseline=b) for b in self.freedom.baselines if b != best.baseline)]
        plans += [replace(best, whiten=whiten) for whiten in self.whitens if whiten != best.whiten]
        if len(self.freedom.architectures) == 1:
            return plans
        plans += [replace(best, network=network) for network in variants(best.network, self.draws.features)]
        if not networks.shares_weights(best.network):
            plans.append(replace(best, weight_decay=0.01))
        elif len(self.few.training_rows) == len(self.draws.training_rows):
            # The more draws, the less weight decay: a trial on few draws would ask for too much of it.
            plans.append(replace(best, weight_decay=0.1))
        return plans

    def other_losses(self) -> list[Plan]:
        """List the best plan with other losses."""
        if self.freedom.loss is not None or not self.attempts[self.best].learned:
            return []
        return [replace(self.best, loss=loss) for loss in _LOSSES]

    # Trials.

    def _try(self, plans: list[Plan], pool: ThreadPoolExecutor) -> None:
        """Try plans, unless they were tried before, and take the best of them."""
        plans = list(dict.fromkeys(plans if self.best in plans else [self.best, *plans]))
        new = [plan for plan in plans if plan not in self.attempts]
        self.attempts |= zip(new, pool.map(self._short_trial, new), strict=True)
        self.best = plans[0]
        for plan in plans[1:]:
            if self.attempts[plan].beats(self.attempts[self.best], _LEAST_GAIN):
                self.best = plan

    def _short_trial(self, plan: Plan) -> _Attempt:
        def recipe(inputs: Inputs) -> Recipe:
            sized = self.trainer.sized(inputs, _TRIAL_OPERATIONS, fewest=2)
            return replace(sized, epochs=min(sized.epochs or _TRIAL_EPOCHS, _TRIAL_EPOCHS))

        return self._trial(plan, self.few, recipe)

    def _long_trial(self, plan: Plan) -> _Attempt:
        return self._trial(plan, self.draws, lambda inputs: self.trainer.sized(inputs, _LONGER_OPERATIONS))

    def _trial(self, plan: Plan, draws: Draws, recipe: Callable[[Inputs], Recipe]) -> _Attempt:
        start = time.perf_counter()
        inputs = prepare(draws, plan)
        trained = self.trainer.fit(inputs, recipe(inputs))
        weight = np.ravel(inputs.held_out_chunk().weight)
        costs = (trained.costs[0] * weight)[weight > 0]
        return _Attempt(plan, costs, time.perf_counter() - start, bool(trained.gain.any()))

    # The decision.

    def closest_rival(self) -> Plan | None:
        """Return the best plan that may still overtake at greater length, or None.

        What learns fast is not always what learns most. So another kind of network is a rival if it is close
        behind. Against the baseline alone, which does not improve with length, networks are rivals if they
        are level with it.
        """
        best = self.attempts[self.best]

        def may_be_behind_by(attempt: _Attempt) -> float:
            if not best.learned:
                return 0.0 if attempt.learned else -np.inf
            network = attempt.plan.network
            other_kind = network in self.freedom.architectures and network != self.best.network
            return _CLOSE if other_kind else -np.inf

        rivals = [a for a in self.attempts.values() if a.score < best.score + may_be_behind_by(a)]
        return min(rivals, key=lambda attempt: attempt.score).plan if rivals else None

    def _decide_at_length(self, rival: Plan, pool: ThreadPoolExecutor) -> None:
        """Try the best plan and its rival on all draws, and take the better one."""
        self.longer = tuple(pool.map(self._long_trial, (self.best, rival)))
        if self.longer[1].beats(self.longer[0], _SCATTER):
            self.best = rival

    def _expected_trials(self) -> int:
        """How many trials there will be at most. The later rounds depend on what the first ones find."""
        return len({*self.other_inputs(), *self.other_kinds()}) + 6


def natural(x: Data) -> Sequence[networks.Architecture]:
    """Architectures that suit draws like `x`, by its shape alone; the first is the first to be tried."""
    numbers = sum(array.size for array in arrays_of(x))
    dense: list[networks.Architecture] = [networks.Dense()]
    if numbers <= _MOST_WAVES:
        dense.append(_with_waves(numbers))
    if isinstance(x, dict):
        masks = [array for array in x.values() if array.dtype == bool]
        lengths = {array.shape[:1] for array in x.values()}
        is_set = len(masks) == 1 and masks[0].ndim == 1 and len(lengths) == 1
        return [networks.DeepSet(), networks.Dense()] if is_set else [*dense]
    if x.ndim <= 1:
        # The numbers of a vector may be exchangeable, or a series: the scores decide.
        if x.size >= _LEAST_ELEMENTS:
            dense.append(networks.DeepSet())
            if numbers <= _MOST_WAVES:
                # Best for exchangeable numbers with which log K oscillates.
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


def variants(network: networks.Architecture, numbers: int) -> list[networks.Architecture]:
    """Return the same kind of network in other sizes."""
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


def _with_waves(numbers: int) -> networks.Dense:
    return replace(_wide(numbers), waves=int(np.clip(64 // numbers, 4, _WAVES)))
