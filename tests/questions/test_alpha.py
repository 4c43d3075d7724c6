"""The choice of alpha: its rule, its record, and what it refuses."""

from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import draws
from evidencenet.questions.alpha import AlphaChoice, AlphaTrial, _best


def trial(alpha: float, score: float, sound: bool = True) -> AlphaTrial:
    return AlphaTrial(alpha, score, 0.002, 0.1, 0.5, 0.0, 0.002, sound)


def costs(trials: list[AlphaTrial], scatter: float = 0.1) -> dict[float, np.ndarray]:
    """Costs of 10,000 draws with the scores of the trials, whose differences scatter."""
    noise = {t.alpha: np.random.default_rng(int(10 * t.alpha)).normal(size=10_000) for t in trials}
    return {t.alpha: t.score + scatter * (noise[t.alpha] - noise[t.alpha].mean()) for t in trials}


@pytest.mark.parametrize(
    ("trials", "alpha"),
    [
        # The best score wins,
        ([trial(1.0, 0.50), trial(2.0, 0.52), trial(3.0, 0.54)], 1.0),
        # but not if it is unsound,
        ([trial(1.0, 0.50, False), trial(2.0, 0.52), trial(3.0, 0.51)], 3.0),
        # unless all are.
        ([trial(1.0, 0.50, False), trial(2.0, 0.52, False)], 1.0),
        # Differences of less than one error, 0.1 · √2/100, do not count: then the usual one is taken,
        ([trial(1.0, 0.5000), trial(1.5, 0.5005), trial(2.0, 0.5010), trial(3.0, 0.6)], 2.0),
        # or the nearest to it, the lower of two.
        ([trial(1.0, 0.5000), trial(1.5, 0.5005), trial(2.5, 0.5005)], 1.5),
        ([trial(3.0, 0.5)], 3.0),
    ],
)
def test_the_rule(trials: list[AlphaTrial], alpha: float) -> None:
    assert _best(trials, costs(trials)) == alpha


def test_text() -> None:
    text = str(AlphaChoice(2.0, (trial(1.0, 0.5), trial(2.0, 0.49)), 9_000))
    assert text.startswith("alpha = 2, each trained on 9,000 draws")
    assert "*      2    0.4900 ± 0.0020    0.100         0.5    0.0000 ± 0.0020  yes" in text
    assert max(map(len, text.splitlines())) <= 110
    assert "No alpha is sound" in str(AlphaChoice(1.0, (trial(1.0, 0.5, False),), 9_000))


@pytest.fixture(scope="module")
def sims() -> en.Simulations:
    return draws(en.problems.mean_test(size=5), 4_000, seed=1)


def test_choose_alpha(sims: en.Simulations, capfd: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"alphas": (3.0, 1.0), "members": 2, "recipe": en.Recipe(epochs=2)}
    found = en.choose_alpha(sims, **options, seed=4, progress=False)
    assert capfd.readouterr().err == ""
    assert [t.alpha for t in found.table] == [1.0, 3.0]
    assert found.alpha in (1.0, 3.0)
    # A quarter is kept to judge by.
    assert found.draws == 3_000
    for t in found.table:
        assert 0 < t.score < np.log(2)
        assert 0 < t.spread < 2
        assert 0 <= t.coverage <= 1
        assert t.overfit_error > 0
    again = en.choose_alpha(sims, **options | {"alphas": (1.0,)}, seed=4, progress=False)
    assert again.table[0] == found.table[0]


def test_fewer_draws_and_another_loss(sims: en.Simulations, capfd: pytest.CaptureFixture[str]) -> None:
    found = en.choose_alpha(
        sims,
        alphas=[2.0],
        loss=en.losses.LPopLogistic,
        members=2,
        recipe=en.Recipe(epochs=1),
        draws=1_500,
    )
    assert (found.alpha, found.draws) == (2.0, 1_500)
    assert "choosing alpha" in capfd.readouterr().err


def test_bad_input(sims: en.Simulations) -> None:
    with pytest.raises(TypeError, match="choose_alpha takes Simulations, got a ndarray"):
        en.choose_alpha(np.zeros((3, 2)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="alphas is empty"):
        en.choose_alpha(sims, alphas=())
    with pytest.raises(ValueError, match="members = 1; wanted two or more"):
        en.choose_alpha(sims, members=1)
    with pytest.raises(ValueError, match="alpha"):
        en.choose_alpha(sims, alphas=(0.5,), progress=False)
