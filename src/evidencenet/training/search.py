"""The search for a plan: plans are tried on few draws and judged by their held-out score.

`Search.run` is the story: three rounds of short trials (inputs, kind of network, settings), each round
asking for alternatives to the best plan so far; then the finalists, the best plan of each of the best kinds
of network, on all draws. What learns fast is not always what learns most, so kinds are not dropped early.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import arrays_of
from evidencenet._common.display import frame
from evidencenet._common.processors import processors
from evidencenet._common.progress import Progress
from evidencenet.networks.layout import Layout, candidates
from evidencenet.training.baseline import LARGEST
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.loop import Trained
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import MOST_OPERATIONS, Recipe
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer
from evidencenet.training.trials import StoredTrial, TrialFile

if TYPE_CHECKING:
    import pandas

# Short trials: so many draws, so many epochs and so much arithmetic at most. Seconds, not minutes.
_TRIAL_DRAWS = 50_000
_TRIAL_EPOCHS = 10
_TRIAL_OPERATIONS = 5e10
# Longer trials: all draws, and half of the arithmetic of a member of the final ensemble.
_LONGER_OPERATIONS = MOST_OPERATIONS / 2
# A plan replaces a simpler one if it is better by this many nats, and by one standard error.
_LEAST_GAIN = 2e-4
# Finalists: so many kinds of network at most go on to all draws, if the best plan of their kind is behind in
# the short trials by less than this many nats, or this part of what was learned. On AR(1) against MA(1) the
# second best in the end was behind by 5%. With 15%, a kind that was behind by 6% took 58 s and lost (bumps).
_FINALISTS = 3
_BEHIND, _BEHIND_PART = 2e-3, 0.05
# So many kinds are tried in other scalings than the one that suits the first network best.
_RESCALED = 2
# Vectors of at least so many numbers are also tried as the few combinations of them in which the models
# differ. These are learned from fewer draws than networks need: a damped oscillation of one of twelve
# frequencies, 128 numbers, 200,000 draws, had an excess of 0.058 before this was tried (docs/decisions.md).
_LEAST_PROJECTED = 24
_PROJECTED = networks.Squares(projections=32, nodes=32)
# If the user named the network, so many other kinds are tried for a second opinion.
_OPINIONS = 4
# A finalist wins if it leads by more than trainings of one plan scatter (docs/decisions.md).
_SCATTER = 5e-4
# Networks that gained less than this in a short trial are still at the start of their learning curve. If
# others have learned more than ten times as much, the slow ones may have been stopped too early.
_STUCK = 1e-3
# The loss, unless the user names one: its value is the score by which plans are judged, it is the least
# sensitive to outliers, and its log K extrapolates best. Others came out the same within 0.0002 nats in full
# trainings, also those that had won short trials (docs/decisions.md, "Choice by evidence").
FIRST_LOSS = losses.Logistic()
# Sines and cosines of each number that networks are tried with, and terms in the evidences of `Squares`.
_WAVES = 8
_MANY_NODES = 128


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
        The finalists: the best plan of each of the best kinds of network, tried again on all draws.
    layout
        What x was taken for, and why, in words.
    """

    trials: tuple[Trial, ...]
    taken: str
    draws: int
    longer: tuple[Trial, ...] = ()
    layout: str = ""

    def __str__(self) -> str:
        lines = [f"x was taken for {self.layout}."] if self.layout else []
        lines += [f"Tried on {self.draws:,} draws; held-out log score in nats, lower is better:"]
        width = max(len(trial.plan) for trial in self.trials)

        def rows(trials: tuple[Trial, ...]) -> list[str]:
            return [
                f"{'*' if trial.plan == self.taken else ' '} {trial.plan:<{width}}  {trial.score:.5f}  "
                f"{trial.seconds:5.1f} s"
                for trial in trials
            ]

        lines += rows(self.trials)
        if self.longer:
            lines += ["The best kinds of network, on all draws:", *rows(self.longer)]
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
    opinions
        Architectures that may not be chosen, but whose log K is asked for as a second opinion.
    """

    architectures: tuple[networks.Architecture, ...]
    loss: losses.Loss | None
    baselines: tuple[bool, ...]
    opinions: tuple[networks.Architecture, ...] = ()

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
        suitable = natural(draws)
        if given is not None:
            architectures = [given]
        elif recipe is None:
            architectures = [*suitable]
        else:
            # The paper's loss goes with a named recipe. It is made for networks without an evidence head, and
            # for vectors the paper's network goes with it.
            is_vector = not isinstance(draws.example, dict) and draws.example.ndim <= 1
            first = networks.Dense() if is_vector else suitable[0]
            architectures = [networks.without_evidence_head(first)]
        possible = draws.features <= LARGEST and not isinstance(loss, losses.Asymmetric)
        # With the baseline first: then networks need only learn what is not Gaussian, if anything.
        both = (True, False) if possible and recipe is None else (False,)
        opinions = () if given is None else tuple(a for a in suitable if _kind(a) != _kind(given))
        return Freedom(tuple(architectures), loss, both if baseline is None else (baseline,), opinions)

    def first_plan(self, default_loss: losses.Loss) -> Plan:
        """Return the plan that is tried first."""
        return Plan(self.architectures[0], self.loss or default_loss, baseline=self.baselines[0])


@dataclass(frozen=True, eq=False)
class _Attempt:
    """How one plan did on the held-out draws: −log p(true model) of each, (n,), and log K, (n, K).

    Networks `learned` if they improved on what they started from: the baseline, or nothing. The networks
    themselves are kept only if they were trained on all draws.
    """

    plan: Plan
    costs: np.ndarray
    seconds: float
    learned: bool
    log_k: np.ndarray | None = None
    inputs: Inputs | None = None
    trained: Trained | None = None

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


@dataclass(frozen=True)
class _Scaled:
    """How the numbers of a plan are scaled: standardised, by asinh, or by their logarithm."""

    squash: bool = False
    log: bool = False


@dataclass(frozen=True, eq=False)
class Rival:
    """The best finalist of another kind than the plan that was taken: a second opinion on log K.

    Parameters
    ----------
    plan
        Its plan in words.
    log_k
        Its log K of the held-out draws against model 0, (n, K).
    costs
        Its −log p(true model) of each held-out draw, (n,).
    inputs, trained
        The draws, prepared for its plan, and its network; None if it is only a second opinion.
    """

    plan: str
    log_k: np.ndarray
    costs: np.ndarray
    inputs: Inputs | None = None
    trained: Trained | None = None


@dataclass(frozen=True, eq=False)
class Fewer:
    """How the plan that was taken did in its short trial: it shows how much more draws matter.

    Parameters
    ----------
    draws
        Training draws of the trial.
    costs
        Its −log p(true model) of each held-out draw, (n,).
    """

    draws: int
    costs: np.ndarray


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
    kept
        Where finished trials are kept, so that a search that was cut off can continue; or None.
    """

    draws: Draws
    trainer: Trainer
    freedom: Freedom
    kept: TrialFile | None = None
    attempts: dict[Plan, _Attempt] = field(default_factory=dict)
    longer: tuple[_Attempt, ...] = ()

    def __post_init__(self) -> None:
        self.few = self.draws.few(_TRIAL_DRAWS)
        self.scalings = [_Scaled()]
        if not self.draws.are_letters():
            if self.few.has_outliers():
                self.scalings.append(_Scaled(squash=True))
            if self.few.may_be_logged():
                self.scalings.append(_Scaled(log=True))
        self.whitens = (False, True) if self.few.is_correlated() else (False,)
        self.best = self.freedom.first_plan(FIRST_LOSS)

    def run(self, *, progress: bool) -> Plan:
        """Improve the plan round by round, then let the finalists decide; return the best plan."""
        rounds = (self.other_inputs, self.other_kinds, self.other_settings)
        with (
            Progress("choosing", self._expected_trials(), enabled=progress) as bar,
            ThreadPoolExecutor(processors()) as pool,
        ):
            for alternatives in rounds:
                self._try(alternatives(), pool)
                bar.update(len(self.attempts), best=str(self.best))
            self._try([*map(self._with_network, self.freedom.opinions[:_OPINIONS])], pool, choose=False)
            finalists = self.finalists()
            if len(finalists) > 1:
                self._decide_on_all_draws(finalists, pool)
                bar.update(len(self.attempts) + len(finalists), best=str(self.best))
        return self.best

    def learned(self, plan: Plan) -> bool:
        """Say whether networks improved on what they started from, in the last trial of a plan."""
        trials = {attempt.plan: attempt for attempt in (*self.attempts.values(), *self.longer)}
        return trials[plan].learned

    @property
    def choice(self) -> Choice:
        """The record of all trials."""
        trials = tuple(attempt.trial() for attempt in self.attempts.values())
        longer = tuple(attempt.trial() for attempt in self.longer)
        layout = "" if self.draws.layout is None else str(self.draws.layout)
        return Choice(trials, str(self.best), len(self.few.training_rows), longer, layout)

    @cached_property
    def rival(self) -> Rival | None:
        """The best finalist of another kind, if there is one that did not diverge."""
        others = [
            attempt
            for attempt in self.longer
            if _sort(attempt.plan) != _sort(self.best) and np.isfinite(attempt.score)
        ]
        if not others:
            return None
        best = min(others, key=lambda attempt: attempt.score)
        if best.trained is None and not self.freedom.opinions:
            # The trial was found in a file, which does not hold its network. The same trial gives the same.
            self.kept = None
            best = self._long_trial(best.plan)
        assert best.log_k is not None
        if self.freedom.opinions:
            # The user named the network, so the rival has no part in the answer.
            return Rival(str(best.plan), best.log_k, best.costs)
        return Rival(str(best.plan), best.log_k, best.costs, best.inputs, best.trained)

    @property
    def fewer(self) -> Fewer | None:
        """The short trial of the plan that was taken, if it had one, and fewer draws than there are."""
        attempt, number = self.attempts.get(self.best), len(self.few.training_rows)
        if attempt is None or not np.isfinite(attempt.score) or number >= len(self.draws.training_rows):
            return None
        return Fewer(number, attempt.costs)

    # The three rounds: each lists alternatives to the best plan, simplest first.

    def other_inputs(self) -> list[Plan]:
        """List other ways to scale the data, with and without the baseline."""
        # Places that were mixed are not alike: networks that treat them so are tried without it first.
        whitens = (False,) if networks.scales_alike(self.best.network) else self.whitens
        plans = [
            replace(self.best, **asdict(scaled), whiten=whiten, baseline=baseline)
            for whiten in whitens
            for scaled in self.scalings
            for baseline in self._baselines_to_try(scaled)
        ]
        if self.draws.features > LARGEST and not networks.scales_alike(self.best.network):
            # Of very many numbers, the few combinations in which the models differ can have a baseline too.
            baselines = (False,) if isinstance(self.freedom.loss, losses.Asymmetric) else (True, False)
            plans += [replace(self.best, project=True, baseline=baseline) for baseline in baselines]
        return plans + [plan for plan in map(self._of_signal, plans) if plan.signal]

    def _baselines_to_try(self, scaled: _Scaled) -> tuple[bool, ...]:
        """List whether to try the baseline. Networks that treat places alike need it in one scaling only."""
        if (
            networks.scales_alike(self.best.network)
            and scaled != _Scaled()
            and False in self.freedom.baselines
        ):
            return (False,)
        return self.freedom.baselines

    def other_kinds(self) -> list[Plan]:
        """List other kinds of network, in the best scaling; the best of them are tried in others later."""
        plans = []
        for network in self.freedom.architectures:
            # Networks that treat all places alike know second moments by themselves, and can hardly undo
            # those of the baseline where it is wrong. And places that were mixed are no longer alike.
            bare = networks.scales_alike(network) and False in self.freedom.baselines
            plans.append(
                replace(
                    self.best,
                    network=network,
                    whiten=self.best.whiten and not bare,
                    project=self.best.project and not networks.scales_alike(network),
                    signal=self.best.signal and self._may_see_signal(network),
                    baseline=False if bare else self.best.baseline,
                )
            )
        if networks.scales_alike(self.best.network):
            # The first round could not try this with a network that treats all places alike.
            plans += [plan for plan in map(self._of_signal, plans) if plan.signal]
        if self._may_be_projected():
            alone = replace(self.best, whiten=False, signal=False, baseline=all(self.freedom.baselines))
            plans.append(replace(alone, network=_PROJECTED, project=True))
        return plans

    def _may_be_projected(self) -> bool:
        """Say whether to try combinations of the numbers: if each has a place of its own, and all are there.

        Of very many numbers they were tried in the first round.
        """
        architectures = self.freedom.architectures
        suit_vectors = any(isinstance(network, networks.Squares) for network in architectures)
        return (
            len(architectures) > 1
            and suit_vectors
            and not networks.is_exchangeable(architectures[0])
            and not any(array.dtype == bool for array in arrays_of(self.draws.x))
            and _LEAST_PROJECTED <= self.draws.features <= LARGEST
        )

    def other_settings(self) -> list[Plan]:
        """List the best kind of network in other settings: baseline, scaling, size, weight decay."""
        best = self.best
        if not self.attempts[best].learned:
            # If not even the best network improves on the baseline, no finer setting will.
            return []
        plans = [best, *(replace(best, baseline=b) for b in self.freedom.baselines if b != best.baseline)]
        # What one network makes of outliers says little about another.
        close = [] if len(self.freedom.architectures) == 1 else self._close(self._others())
        for plan in (best, *(attempt.plan for attempt in close[: _RESCALED - 1])):
            rescaled = [replace(plan, **asdict(scaled)) for scaled in self.scalings]
            plans += [other for other in rescaled if other != plan]
        # The signal is the same of all linear maps of the numbers.
        whitens = () if best.signal else self.whitens
        plans += [replace(best, whiten=whiten) for whiten in whitens if whiten != best.whiten]
        if len(self.freedom.architectures) == 1:
            return plans
        plans += [replace(best, network=network) for network in variants(best.network, self.draws.features)]
        if not networks.shares_weights(best.network):
            plans.append(replace(best, weight_decay=0.01))
        elif len(self.few.training_rows) == len(self.draws.training_rows):
            # The more draws, the less weight decay: a trial on few draws would ask for too much of it.
            plans.append(replace(best, weight_decay=0.1))
        return plans

    def _may_see_signal(self, network: networks.Architecture) -> bool:
        """Say whether a network may see the signal in place of the numbers: places lose their meaning."""
        known = self.draws.observation is not None and 1 < self.draws.features <= LARGEST
        return known and isinstance(network, networks.Dense | networks.Squares)

    def _of_signal(self, plan: Plan) -> Plan:
        """Return a plan with the signal as input, if its network may see that; else the plan itself."""
        if not self._may_see_signal(plan.network):
            return plan
        # What networks see of the signal is not Gaussian, so it goes without the baseline.
        return replace(plan, signal=True, whiten=False, baseline=all(self.freedom.baselines))

    # Trials.

    def _with_network(self, network: networks.Architecture) -> Plan:
        """Return the best plan with another kind of network, which learns everything itself."""
        plain = replace(self.best, network=network, baseline=False, whiten=False, project=False, signal=False)
        return replace(plain, loss=FIRST_LOSS, weight_decay=None)

    def _try(self, plans: list[Plan], pool: ThreadPoolExecutor, *, choose: bool = True) -> None:
        """Try plans, unless they were tried before, and take the best of them."""
        plans = list(dict.fromkeys(plans if self.best in plans else [self.best, *plans]))
        new = [plan for plan in plans if plan not in self.attempts]
        self.attempts |= zip(new, pool.map(self._short_trial, new), strict=True)
        if not choose:
            return
        self.best = plans[0]
        for plan in plans[1:]:
            if self.attempts[plan].beats(self.attempts[self.best], _LEAST_GAIN):
                self.best = plan

    def _short_trial(self, plan: Plan) -> _Attempt:
        def recipe(inputs: Inputs) -> Recipe:
            # One epoch of very many numbers takes as long as several of few.
            fewest = 1 if self.draws.features > LARGEST else 2
            sized = self.trainer.sized(inputs, _TRIAL_OPERATIONS, fewest=fewest)
            return replace(sized, epochs=min(sized.epochs or _TRIAL_EPOCHS, _TRIAL_EPOCHS))

        return self._trial("short", plan, self.few, recipe)

    def _long_trial(self, plan: Plan) -> _Attempt:
        # What had learned nothing with few draws may need more of them. If not, it is not trained in vain.
        short = self.attempts.get(plan)
        is_stuck = short is not None and plan != self.best and self._gained(short) < _STUCK
        return self._trial(
            "long",
            plan,
            self.draws,
            lambda inputs: self.trainer.sized(inputs, _LONGER_OPERATIONS),
            least=self._of_nothing - _STUCK if is_stuck else None,
        )

    def _trial(
        self,
        length: str,
        plan: Plan,
        draws: Draws,
        recipe: Callable[[Inputs], Recipe],
        *,
        least: float | None = None,
    ) -> _Attempt:
        name = f"{length}: {plan}"
        if self.kept is not None and name in self.kept.trials:
            stored = self.kept.trials[name]
            return _Attempt(plan, stored.costs, stored.seconds, stored.learned, stored.log_k)
        start = time.perf_counter()
        inputs = prepare(draws, plan)
        trained = self.trainer.fit(inputs, recipe(inputs), least=least)
        weight = draws.weight[draws.held_out_rows]
        costs = trained.costs[0, : len(weight)] * weight
        log_k = draws.held_out_log_k(trained.log_odds)
        attempt = _Attempt(
            plan,
            costs,
            time.perf_counter() - start,
            bool(trained.gain.any()),
            log_k,
            *((inputs, trained) if length == "long" else ()),
        )
        if self.kept is not None:
            self.kept.add(name, StoredTrial(costs, log_k, attempt.seconds, attempt.learned))
        return attempt

    # The decision.

    def finalists(self) -> list[Plan]:
        """Return the best plan of each of the best kinds of network, the best one first.

        A kind that has hardly begun to learn, where others have learned much, gets a second chance too, if
        it is one that may learn slowly at first. If the best is the baseline alone, which does not improve
        with more draws, networks must be level with it: they have learned nothing else in the short trials.
        """
        best = self.attempts[self.best]
        others = self._others()
        if self.freedom.opinions:
            return [self.best, *(attempt.plan for attempt in others[:1])]
        close = self._close(others)
        stuck = [
            attempt
            for attempt in others
            if self._gained(attempt) < _STUCK < self._gained(best) / 10
            and attempt not in close
            and networks.shares_weights(attempt.plan.network)
        ]
        others_of_sort = []
        if self.best.project and self.draws.features <= LARGEST:
            # Combinations are learned from few draws. With more of them, what sees all numbers catches up.
            others_of_sort = [replace(self.best, project=False)]
        plans = [self.best, *others_of_sort, *(attempt.plan for attempt in (*close, *stuck[:1]))]
        return [*dict.fromkeys(plans)]

    def _others(self) -> list[_Attempt]:
        """Return the best attempt of each other sort than that of the best plan, the best one first."""
        by_sort: dict[object, _Attempt] = {_sort(self.best): self.attempts[self.best]}
        for attempt in sorted(self.attempts.values(), key=lambda attempt: attempt.score):
            by_sort.setdefault(_sort(attempt.plan), attempt)
        return [*by_sort.values()][1:]

    def _close(self, others: list[_Attempt]) -> list[_Attempt]:
        """Return those of other kinds that are not far behind the best plan."""
        best = self.attempts[self.best]
        margin = max(_BEHIND, _BEHIND_PART * self._gained(best)) if best.learned else 0.0
        return [attempt for attempt in others if attempt.score < best.score + margin][: _FINALISTS - 1]

    def _gained(self, attempt: _Attempt) -> float:
        """How many nats an attempt scores better than knowing nothing."""
        return self._of_nothing - attempt.score

    @cached_property
    def _of_nothing(self) -> float:
        """The log score of knowing nothing but the shares of the models."""
        shares = self.draws.log_shares
        return float(-np.sum(np.exp(shares) * shares))

    def _decide_on_all_draws(self, finalists: list[Plan], pool: ThreadPoolExecutor) -> None:
        """Try the finalists on all draws, and take the best one that may be chosen."""
        self.longer = tuple(pool.map(self._long_trial, finalists))
        winner = self.longer[0]
        if self.freedom.opinions:
            return
        for attempt in self.longer[1:]:
            if attempt.beats(winner, _SCATTER):
                winner = attempt
        self.best = winner.plan

    def _expected_trials(self) -> int:
        """How many trials there will be at most. The later rounds depend on what the first ones find."""
        return len({*self.other_inputs(), *self.other_kinds()}) + 6 + _FINALISTS


def _kind(network: networks.Architecture) -> object:
    """Return the kind of network: its class, or the user's own function. Settings do not count."""
    return type(network) if is_dataclass(network) else network


def _sort(plan: Plan) -> object:
    """Return of which sort a plan is: the kind of network, and whether it sees all numbers."""
    return _kind(plan.network), plan.project


def natural(draws: Draws) -> Sequence[networks.Architecture]:
    """Architectures that suit the layout of the draws; the first is the first to be tried."""
    layout = draws.layout or Layout.guess(draws.x, draws.model)
    return candidates(layout, draws.arranged_example, models=len(draws.counts))


def variants(network: networks.Architecture, numbers: int) -> list[networks.Architecture]:
    """Return the same kind of network in other sizes."""
    match network:
        case networks.Dense(waves=0):
            return [_wide(numbers)]
        case networks.Squares(smooth=0):
            # The more models, the more directions in which some of them differ. The more parameters a model
            # has, the more terms its evidence needs.
            more = replace(network, projections=2 * network.projections)
            return [more, replace(more, nodes=_MANY_NODES)]
        case networks.DeepSet() | networks.Table():
            return [replace(network, waves=max(_WAVES, 2 * network.waves))]
        case networks.Sequence():
            return [replace(network, depth=network.depth + 1)]
        case networks.Spectrum():
            return [replace(network, width=max(128, numbers), hidden=64)]
    return []


def _wide(numbers: int) -> networks.Dense:
    """For functions with more detail than the paper's widths can follow, above all of few numbers."""
    return networks.Dense(width=max(128, int(1.1 * numbers) + 20), hidden=64)
