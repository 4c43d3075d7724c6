"""`design`: the setting of an experiment at which its data decide between two models."""

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
from evidencenet._common.harmless import harmless
from evidencenet._common.progress import Progress
from evidencenet.estimator.train import train
from evidencenet.questions.forecast import forecast
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model

if TYPE_CHECKING:
    import pandas

# A probability that falls from one setting to a later one by more than so many errors does not fall by chance
# (3 errors: 0.1% one-sided for each pair of settings).
_FALL_ERRORS = 3.0


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """How likely the data are to decide, at each setting of an experiment; print it or call `plot`.

    Attributes
    ----------
    names
        The model that makes the data, and the one that it is compared with.
    settings
        The S settings, as they were given.
    odds
        The odds that the data should reach.
    wanted
        The probability with which they should reach them.
    probability
        The probability with which they do, and its error, both (S,).
    draws
        How many draws each probability was measured with.
    """

    names: tuple[str, str]
    settings: tuple[Any, ...]
    odds: float
    wanted: float
    probability: Estimate
    draws: int

    @property
    def first(self) -> Any:
        """The first setting at which the wanted probability is reached; None if it is never reached."""
        return None if self._reached is None else self.settings[self._reached]

    @property
    def answer(self) -> Estimate | None:
        """The setting at which the wanted probability is just reached, interpolated between two settings.

        The interpolation is linear in the log-odds of the probability; in the logarithm of the setting, if
        all settings are above 0, otherwise in the setting itself. The error follows from the errors of the
        two probabilities. None if the probability is never reached, if the first setting already reaches it,
        if the settings are not numbers in order, or if the probability falls again by more than three errors.
        """
        value, error = np.asarray(self.probability.value), np.asarray(self.probability.error)
        i = self._reached
        if not i or not (self._in_order and self._rises):
            return None
        # A limited number of draws cannot show a probability of exactly 0 or 1: the log-odds stay finite.
        least = 1 / (self.draws + 2)
        pair = np.clip(value[i - 1 : i + 1], least, 1 - least)
        (low, high), errors = logit(pair), error[i - 1 : i + 1] / (pair * (1 - pair))
        part = (logit(self.wanted) - low) / (high - low)
        spread = float(np.hypot((1 - part) * errors[0], part * errors[1]) / (high - low))
        settings = np.asarray(self.settings, dtype=np.float64)
        if (settings > 0).all():
            # Numbers of points and levels of noise act by their ratios. Measured for the mean of a sample
            # whose size doubles from setting to setting: this answer is off by 0.5%, a linear one by 4%.
            ratio = settings[i] / settings[i - 1]
            setting = float(settings[i - 1] * ratio**part)
            return Estimate(setting, setting * spread * float(abs(np.log(ratio))))
        step = float(settings[i] - settings[i - 1])
        return Estimate(float(settings[i - 1]) + float(part) * step, abs(step) * spread)

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        goal = f"odds of {self.odds:g} : 1 for {harmless(self.names[0])} in {self.wanted:.0%} of cases"
        if self._reached is None:
            return f"None of these settings reaches {goal}."
        if self._reached == 0:
            return f"The first setting, {self.settings[0]}, already reaches {goal}."
        if not self._in_order:
            return f"{self.first} is the first setting that reaches {goal}."
        if not self._rises:
            return f"{self.first} is the first setting that reaches {goal}, but later settings fall short."
        return f"{self.answer} (interpolated between settings) reaches {goal}."

    def __str__(self) -> str:
        return "\n".join([self._title(), *(f"  {name:<16} {text}" for name, text in self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows())

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row for each setting: probability and error."""
        rows = zip(
            self.settings, np.ravel(self.probability.value), np.ravel(self.probability.error), strict=True
        )
        return frame(
            [{"setting": s, "probability": float(p), "error": float(e)} for s, p, e in rows], "setting"
        )

    def plot(self, axis: Any = None) -> Any:
        """Draw the probability at each setting, the wanted one, and the answer; returns the axis."""
        from evidencenet.report import plots

        return plots.design(self, axis)

    @property
    def _reached(self) -> int | None:
        reached = np.flatnonzero(np.asarray(self.probability.value) >= self.wanted)
        return int(reached[0]) if len(reached) else None

    @property
    def _in_order(self) -> bool:
        """Whether the settings are numbers that only rise, or only fall."""
        if not all(isinstance(s, int | float | np.number) for s in self.settings):
            return False
        steps = np.diff(np.asarray(self.settings, dtype=np.float64))
        return bool((steps > 0).all() or (steps < 0).all())

    @property
    def _rises(self) -> bool:
        """Whether no probability lies below an earlier one by more than chance."""
        value, error = np.asarray(self.probability.value), np.asarray(self.probability.error)
        fall = value[:, None] - value[None, :]
        return not (np.triu(fall > _FALL_ERRORS * np.hypot(error[:, None], error[None, :]))).any()

    def _title(self) -> str:
        odds = wording.odds(float(np.log(self.odds)))
        one, other = map(harmless, self.names)
        return f"Probability that data of {one} favour it over {other} by {odds} or more"

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

    At each setting, networks are trained on draws of the models. Fresh draws of `model` then show how often
    the odds in its favour reach `odds`.

    Parameters
    ----------
    models_of
        ``models_of(setting)`` returns the models at a setting, with the same names at each setting.
    settings
        One or more, in the order of rising effort: numbers of data points, for example, or falling levels of
        noise.
    odds
        The Bayes factor that the data should reach, above 0.
    probability
        The probability with which they should reach it, on average over the prior of `model`.
    n
        Draws to train on at each setting, in total.
    draws
        Fresh draws of `model` for the probability at each setting.
    model, against
        The model that makes the data and the one that it is compared with, by label or by name.
    seed
        Fixes all random numbers: the same seed on the same machine gives the same answer, to the bit.
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
        raise ValueError("settings is empty; wanted one or more settings, such as [10, 20, 40].")
    if not 0 < probability < 1:
        raise ValueError(f"probability = {probability}; wanted a number between 0 and 1.")
    if not 0 < odds < np.inf:
        raise ValueError(f"odds = {odds}; wanted a finite number above 0, such as 20 for 20 : 1.")
    models_at = [list(models_of(setting)) for setting in settings]
    names = [m.name for m in models_at[0]]
    for setting, models in zip(settings, models_at, strict=True):
        if [m.name for m in models] != names:
            raise ValueError(
                f"at {setting!r} the models are {[m.name for m in models]}, but at {settings[0]!r} {names}; "
                "wanted the same names in the same order."
            )
    above, below = index_of(model, names), index_of(against, names)
    if above == below:
        raise ValueError(f"a model cannot be compared with itself: both are {names[above]!r}.")
    probabilities = []
    with Progress("designing", len(settings), enabled=progress) as bar:
        for number, models in enumerate(models_at):
            # Each setting has its own random numbers: the error of the answer assumes independent settings.
            sequence = np.random.SeedSequence(operator.index(seed), spawn_key=(number,))
            draw_seed, train_seed, forecast_seed = (int(s) for s in sequence.generate_state(3))
            sims = simulate(models, n, seed=draw_seed, progress=False)
            net = train(sims, seed=train_seed, progress=False, **options)
            source, threshold = models[above], float(np.log(odds))
            ahead = forecast(net, source, against=below, threshold=threshold, n=draws, seed=forecast_seed)
            probabilities.append(ahead.overall)
            bar.update(number + 1, setting=str(settings[number]))
    values = np.array([probability.value for probability in probabilities])
    errors = np.array([probability.error for probability in probabilities])
    pair = names[above], names[below]
    return Design(pair, tuple(settings), float(odds), probability, Estimate(values, errors), draws)
