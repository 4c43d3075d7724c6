"""The design of an experiment, against the exact probabilities of a mean measured with less and less noise.

The mean of n points is x ~ N(μ, 1/n) with μ ~ N(0, 1): log K and its law are those of the mean test.
"""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2

import evidencenet as en
from evidencenet._common.estimate import Estimate
from evidencenet.questions.design import Design

OPTIONS: dict[str, Any] = {
    "members": 2,
    "recipe": en.Recipe(epochs=4),
    "baseline": True,
    "progress": False,
    "n": 8_000,
    "draws": 10_000,
}


def models(points: float) -> list[en.Model]:
    noise = 1 / np.sqrt(points)
    return [
        en.Model("zero", lambda rng, n: noise * rng.standard_normal((n, 1))),
        en.Model(
            "free",
            lambda rng, mean: mean[:, None] + noise * rng.standard_normal((len(mean), 1)),
            prior=lambda rng, n: rng.standard_normal(n),
        ),
    ]


def exact(points: float, odds: float) -> float:
    growth = 1 + points
    least = (np.log(odds) + 0.5 * np.log(growth)) * 2 * growth / (growth - 1)
    return float(chi2(1).sf(least / growth))


def test_the_answer_is_exact_within_its_error() -> None:
    settings = [15, 30]
    found = en.design(models, settings, odds=5, probability=0.6, seed=1, **OPTIONS)
    wanted = [exact(points, 5) for points in settings]
    value, error = np.asarray(found.probability.value), np.asarray(found.probability.error)
    assert np.all(np.abs(value - wanted) < 3 * error)
    assert np.all(error < 0.03)
    answer = found.answer
    assert answer is not None
    truth = brentq(lambda points: exact(points, 5) - 0.6, 15, 30)
    assert abs(float(answer) - truth) < 3 * float(answer.error)
    assert float(answer.error) < 8
    # Another goal has another answer, and the check sees that.
    other = brentq(lambda points: exact(points, 10) - 0.6, 10, 100)
    assert abs(float(answer) - other) > 3 * float(answer.error)
    assert found.first in settings
    assert found.verdict.startswith(
        f"{answer} (interpolated between settings) reaches odds of 5 : 1 for free"
    )
    assert str(found).splitlines()[1].split()[0] == "15"
    again = en.design(models, settings[:1], odds=5, probability=0.6, seed=1, **OPTIONS)
    assert np.asarray(again.probability.value)[0] == value[0]


def record(settings: list[Any], values: list[float], error: float = 0.01, wanted: float = 0.9) -> Design:
    errors = np.full(len(values), error)
    return Design(("free", "zero"), tuple(settings), 20.0, wanted, Estimate(np.array(values), errors), 10_000)


def test_the_answer_by_hand() -> None:
    def logit(p: float) -> float:
        return float(np.log(p / (1 - p)))

    found = record([10, 20, 40], [0.5, 0.8, 0.95]).answer
    assert found is not None
    part = (logit(0.9) - logit(0.8)) / (logit(0.95) - logit(0.8))
    assert found.value == pytest.approx(20 * 2**part)
    # The error, by taking differences.
    steps = []
    for values in ([0.5, 0.8001, 0.95], [0.5, 0.8, 0.9501]):
        moved = record([10, 20, 40], values).answer
        assert moved is not None
        steps.append((float(moved) - float(found)) / 1e-4 * 0.01)
    assert found.error == pytest.approx(np.linalg.norm(steps), rel=1e-3)
    falling = record([1.0, 0.5, 0.25], [0.5, 0.8, 0.95]).answer
    assert falling is not None
    assert falling.value == pytest.approx(0.5 * 0.5**part)
    assert falling.error == pytest.approx(float(found.error) * float(falling) / float(found))
    through_zero = record([-10, 0, 10], [0.5, 0.8, 0.95]).answer
    assert through_zero is not None
    assert through_zero.value == pytest.approx(10 * part)
    assert through_zero.error == pytest.approx(float(found.error) * 10 / (float(found) * np.log(2)))
    sure = record([10, 20], [0.0, 1.0]).answer
    assert sure is not None
    assert 10 < float(sure) < 20


def test_when_there_is_no_answer() -> None:
    never = record([10, 20], [0.5, 0.6])
    assert never.answer is None
    assert never.first is None
    assert never.verdict.startswith("None of these settings reaches odds of 20 : 1 for free in 90% of cases")
    at_once = record([10, 20], [0.95, 0.96])
    assert at_once.answer is None
    assert at_once.verdict.startswith("The first setting, 10, already reaches")
    named = record(["day", "year"], [0.5, 0.95])
    assert named.answer is None
    assert named.verdict.startswith("year")
    falls = record([10, 20, 30], [0.5, 0.95, 0.7])
    assert falls.answer is None
    assert falls.verdict.endswith("but later settings fall short.")
    by_chance = record([10, 20, 30], [0.5, 0.92, 0.89])
    assert by_chance.answer is not None
    disordered = record([10, 30, 20], [0.5, 0.95, 0.96])
    assert disordered.verdict.startswith("30 is the first setting that reaches odds")


def test_table() -> None:
    found = record([10, 20], [0.5, 0.95])
    table = found.to_dataframe()
    assert table.loc[20, "probability"] == 0.95
    lines = str(found).splitlines()
    assert lines[0] == "Probability that data of free favour it over zero by 20 : 1 or more"
    assert lines[1].split() == ["10", "0.500", "±", "0.010"]
    assert lines[-1].startswith("  answer")
    assert "answer" in found._repr_html_()
    assert repr(found) == str(found)


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="models_of must be a function from a setting to models, got a list"):
        en.design([1], [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="settings is empty"):
        en.design(models, [])
    with pytest.raises(ValueError, match="probability = 90; wanted a number between 0 and 1"):
        en.design(models, [1], probability=90)
    for odds in (0, np.inf, -1):
        with pytest.raises(ValueError, match="wanted a finite number above 0, such as 20"):
            en.design(models, [1], odds=odds)
    with pytest.raises(ValueError, match="there is no model 'other'"):
        en.design(models, [10], model="other")
    with pytest.raises(ValueError, match="cannot be compared with itself: both are 'zero'"):
        en.design(models, [10], model=0)
    with pytest.raises(
        ValueError, match=r"at 2 the models are \['free', 'zero'\], but at 1 \['zero', 'free'\]"
    ):
        en.design(lambda points: models(points)[:: 1 if points == 1 else -1], [1, 2])
