"""What an experiment must be like for its data to decide between two models."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logit

from evidencenet._common import wording
from evidencenet._common.arrays import index_of, kind_of
from evidencenet._common.display import card, frame
from evidencenet._common.estimate import Estimate
from evidencenet._common.progress import Progress
from evidencenet.estimator.train import train
from evidencenet.questions.forecast import forecast
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model

if TYPE_CHECKING:
    import pandas

# A fall from one setting to a later one by so many of its errors is more than chance.
_FALLS = 3.0


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """How likely the data are to decide, at each setting of an experiment; print it or call `plot`.

    Attributes
    ----------
    names
        The model that the data are of, and the one that it is compared with.
    settings
        As they were given, S of them.
    odds
        The odds that the data should reach.
    wanted
        The probability with which they should.
    probability
        That with which they do, and its error, both (S,).
    draws
        From how many draws each probability is.
    """

    names: tuple[str, str]
    settings: tuple[Any, ...]
    odds: float
    wanted: float
    probability: Estimate
    draws: int

    @property
    def first(self) -> Any:
        """The first of the settings at which the probability is reached; None if there is none."""
        return None if self._reached is None else self.settings[self._reached]

    @property
    def answer(self) -> Estimate | None:
        """The setting at which the probability is just reached, between two of those tried.

        The log-odds of the probability are taken to be linear between the two settings, in the logarithm of
        the setting if all are above 0; the error is from those of both probabilities. None if the probability
        is reached nowhere, or at the first setting already, or if settings are not numbers in order, or if it
        falls again by more than three errors.
        """
        value, error = np.asarray(self.probability.value), np.asarray(self.probability.error)
        i = self._reached
        if not i or not (self._in_order and self._rises):
            return None
        # From all draws, not even one that missed says that the probability is 1.
        least = 1 / (self.draws + 2)
        pair = np.clip(value[i - 1 : i + 1], least, 1 - least)
        (low, high), errors = logit(pair), error[i - 1 : i + 1] / (pair * (1 - pair))
        part = (logit(self.wanted) - low) / (high - low)
        spread = float(np.hypot((1 - part) * errors[0], part * errors[1]) / (high - low))
        settings = np.asarray(self.settings, dtype=np.float64)
        if (settings > 0).all():
            # Numbers of points and levels of noise act by their ratios: of a mean with the number of points
            # doubling from setting to setting, this is off by 0.5%, steps of equal length by 4%.
            ratio = settings[i] / settings[i - 1]
            found = float(settings[i - 1] * ratio**part)
            return Estimate(found, found * spread * float(abs(np.log(ratio))))
        step = float(settings[i] - settings[i - 1])
        return Estimate(float(settings[i - 1]) + float(part) * step, abs(step) * spread)

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        goal = f"odds of {self.odds:g} : 1 for {self.names[0]} in {self.wanted:.0%} of cases"
        if self._reached is None:
            return f"Not reached: {goal}, at none of these settings."
        if self._reached == 0:
            return f"Reached at the first setting already, {self.settings[0]}: {goal}."
        if not self._in_order:
            return f"Reached first at {self.first}: {goal}."
        if not self._rises:
            return f"Reached first at {self.first}, but not at every later setting: {goal}."
        return f"Reached at {self.answer} (between the settings tried): {goal}."

    def __str__(self) -> str:
        return "\n".join([self._title(), *(f"  {name:<16} {text}" for name, text in self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows())

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row a setting: probability and error."""
        rows = zip(
            self.settings, np.ravel(self.probability.value), np.ravel(self.probability.error), strict=True
        )
        return frame(
            [{"setting": s, "probability": float(p), "error": float(e)} for s, p, e in rows], "setting"
        )

    def plot(self, axis: Any = None) -> Any:
        """Draw the probability at each setting, what was wanted, and the answer; returns the axis."""
        from evidencenet.report import plots

        return plots.design(self, axis)

    @property
    def _reached(self) -> int | None:
        reached = np.flatnonzero(np.asarray(self.probability.value) >= self.wanted)
        return int(reached[0]) if len(reached) else None

    @property
    def _in_order(self) -> bool:
        """Whether the settings are numbers that rise, or fall."""
        if not all(isinstance(s, int | float | np.number) for s in self.settings):
            return False
        steps = np.diff(np.asarray(self.settings, dtype=np.float64))
        return bool((steps > 0).all() or (steps < 0).all())

    @property
    def _rises(self) -> bool:
        """Whether no probability is clearly below an earlier one."""
        value, error = np.asarray(self.probability.value), np.asarray(self.probability.error)
        fall = value[:, None] - value[None, :]
        return not (np.triu(fall > _FALLS * np.hypot(error[:, None], error[None, :]))).any()

    def _title(self) -> str:
        odds = wording.odds(float(np.log(self.odds)))
        return f"Probability that data of {self.names[0]} favour it over {self.names[1]} by {odds} or more"

    def _rows(self) -> list[tuple[str, str]]:
        pairs = zip(np.ravel(self.probability.value), np.ravel(self.probability.error), strict=True)
        texts = [wording.with_error(float(p), float(e)) for p, e in pairs]
        rows = [(str(setting), text) for setting, text in zip(self.settings, texts, strict=True)]
        return [*rows, ("answer", self.verdict)]


def design(
    models_of: Callable[[Any], Sequence[Model]],
    settings: Sequence[Any],
    *,
    odds: float = 20.0,
    probability: float = 0.9,
    n: int = 100_000,
    draws: int = 20_000,
    model: int | str = 1,
    against: int | str = 0,
    seed: int = 0,
    progress: bool = True,
    **options: Any,
) -> Design:
    """Find the setting of an experiment at which its data decide between two models.

    At each setting, networks are trained on draws of the models, and fresh draws of `model` tell how often
    the odds for it reach `odds`.

    Parameters
    ----------
    models_of
        ``models_of(setting)`` returns the models at a setting, the same ones by name at each.
    settings
        At least one, in order of rising effort: numbers of data points, say, or levels of noise going down.
    odds
        The Bayes factor that the data should reach, above 0.
    probability
        With which probability they should, on average over the prior of `model`.
    n
        Draws to train on at each setting, in total.
    draws
        Fresh draws of `model` for the probability at each setting.
    model, against
        The model that the data are of and the one that it is compared with, by label or by name.
    seed
        The same seed on the same machine gives the same answer, to the bit.
    progress
        Whether to show progress on standard error.
    **options
        Options of `train`, the same at each setting, such as `members` or `recipe`.

    Returns
    -------
    Design
        Print it for a table and the verdict; `answer` is the setting, with its error.

    Examples
    --------
    >>> plan = design(lambda size: mean_models(size), [10, 20, 40, 80], odds=20)  # doctest: +SKIP
    >>> print(plan)  # doctest: +SKIP
    """
    settings = list(settings)
    if not callable(models_of):
        raise TypeError(f"models_of must be a function from a setting to models, got {kind_of(models_of)}.")
    if not settings:
        raise ValueError("settings is empty; wanted at least one.")
    if not 0 < probability < 1:
        raise ValueError(f"probability = {probability}; wanted a number between 0 and 1.")
    if not 0 < odds < np.inf:
        raise ValueError(f"odds = {odds}; wanted a finite number above 0, such as 20 for 20 : 1.")
    every = [list(models_of(setting)) for setting in settings]
    names = [m.name for m in every[0]]
    for setting, models in zip(settings, every, strict=True):
        if [m.name for m in models] != names:
            raise ValueError(
                f"at {setting!r} the models are {[m.name for m in models]}, but at {settings[0]!r} {names}; "
                "wanted the same names in the same order."
            )
    above, below = index_of(model, names), index_of(against, names)
    if above == below:
        raise ValueError(f"a model cannot be compared with itself: both are {names[above]!r}.")
    found = []
    with Progress("designing", len(settings), enabled=progress) as bar:
        for number, models in enumerate(every):
            # Independent at each setting, as the error of the answer takes for granted.
            sequence = np.random.SeedSequence(operator.index(seed), spawn_key=(number,))
            first, second, third = (int(s) for s in sequence.generate_state(3))
            sims = simulate(models, n, seed=first, progress=False)
            net = train(sims, seed=second, progress=False, **options)
            source, threshold = models[above], float(np.log(odds))
            ahead = forecast(net, source, against=below, threshold=threshold, n=draws, seed=third)
            found.append(ahead.overall)
            bar.update(number + 1, setting=str(settings[number]))
    values, errors = (np.array([getattr(e, part) for e in found]) for part in ("value", "error"))
    pair = names[above], names[below]
    return Design(pair, tuple(settings), float(odds), probability, Estimate(values, errors), draws)
