"""Another prior of the parameters without new draws."""

import warnings
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import draws, rms

OLD, NEW = en.problems.mean_test(size=5, spread=2.0), en.problems.mean_test(size=5, spread=1.0)


def log_ratio(mean: Any) -> np.ndarray:
    """Log N(mean; 0, 1) − log N(mean; 0, 2²), up to a constant."""
    return -0.5 * mean**2 + 0.5 * (mean / 2) ** 2


@pytest.fixture(scope="module")
def old() -> en.Simulations:
    return draws(OLD, 20_000, seed=1, keep_parameters=True)


def test_weights_are_the_ratio_of_the_priors(old: en.Simulations) -> None:
    new = old.reweight("free mean", log_ratio)
    assert old.log_weight is None
    assert new.names == old.names
    assert old.parameters is not None
    mean: Any = old.parameters[1]
    mine = new.model == 1
    np.testing.assert_array_equal(new.weights[~mine], 1)
    np.testing.assert_allclose(new.weights[mine], np.exp(w := log_ratio(mean)) / np.exp(w).mean())
    # (Σw)²/Σw² = n √(2·4 − 1)/4 for these two priors; its scatter was measured at 0.5%.
    np.testing.assert_allclose(new.effective_sample_size, [10_000, 10_000 * np.sqrt(7) / 4], rtol=0.02)
    assert "effective" in repr(new)
    assert repr(new).splitlines()[-1].split()[-1] == f"{new.effective_sample_size[1]:,.0f}"


def test_weights_multiply_and_can_be_undone(old: en.Simulations) -> None:
    back = old.reweight(1, log_ratio).reweight(1, lambda mean: -log_ratio(mean) + 7)
    np.testing.assert_allclose(back.weights, 1)
    both = old.reweight(1, log_ratio).reweight(1, lambda mean: np.where(mean > 0, 0.0, -np.inf))
    mean: Any = (old.parameters or ())[1]
    assert np.all(both.weights[both.model == 1][mean <= 0] == 0)
    # A mixed order of models, and parts, keep each weight with its draw.
    part = old.take(np.random.default_rng(1).permutation(len(old))[:5000])
    again: Any = part.reweight(1, log_ratio)
    np.testing.assert_allclose(again.log_weight[part.model == 1], log_ratio((part.parameters or ())[1]))


def test_equal_weight_draws_follow_the_new_prior(old: en.Simulations) -> None:
    part: Any = old.reweight(1, log_ratio).of_equal_weight(seed=3)
    assert part.log_weight is None
    assert part.counts[0] == 10_000
    mean, n = part.parameters[1], part.counts[1]
    # Half of the draws are kept: the largest ratio of the two densities is 2.
    assert abs(n - 5_000) < 4 * np.sqrt(2_500)
    assert abs(mean.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs(old.parameters[1].var() - 1) > 4 * np.sqrt(2 / n)  # type: ignore[index,union-attr]
    assert old.of_equal_weight() is old


def test_networks_answer_for_the_new_prior(old: en.Simulations) -> None:
    fresh: Any = draws(NEW, 4_000, seed=9).x
    exact = NEW.log_bayes_factor(fresh)
    options: dict[str, Any] = {"members": 2, "recipe": en.Recipe(epochs=6), "seed": 2, "progress": False}
    off = {}
    for name, sims in {
        "new": draws(NEW, 20_000, seed=1),
        "weighted": old.reweight(1, log_ratio),
        "old": old,
    }.items():
        net = en.train(sims, baseline=True, learn_error=False, **options)
        off[name] = rms(net.log_bayes_factor(fresh) - exact)
        if name == "weighted":
            error = rms(net.jackknife(fresh))
    assert off["weighted"] < 2 * error
    assert off["weighted"] < 2 * off["new"]
    # Without the weights the answer is for another prior, whose exact log K is off by 0.58 (rms).
    assert off["old"] > 3 * off["weighted"]
    assert off["old"] > 2 * error


def test_weights_enter_the_loss_without_a_baseline(old: en.Simulations) -> None:
    fresh: Any = draws(NEW, 4_000, seed=9).x
    exact = NEW.log_bayes_factor(fresh)
    weighted, recipe = old.reweight(1, log_ratio), en.Recipe(epochs=6)
    net = en.train(weighted, members=2, recipe=recipe, learn_error=False, seed=2, progress=False)
    difference = net.log_bayes_factor(fresh) - exact
    assert rms(difference) < 0.25
    assert abs(difference.mean()) < 0.1
    wrong = OLD.log_bayes_factor(fresh) - exact
    assert rms(wrong) > 0.5
    assert abs(wrong.mean()) > 0.3


def test_few_effective_draws_are_warned_about(old: en.Simulations) -> None:
    with pytest.warns(UserWarning, match=r"10,000 draws of model 'free mean' are worth only \d+ of equal"):
        far = old.reweight(1, lambda mean: -0.5 * ((mean - 7) / 0.3) ** 2)
    assert far.effective_sample_size[1] < 1_000
    few = old.take(slice(None, None, 20))
    with pytest.warns(UserWarning, match="Simulate more, from the new prior itself"):
        few.reweight(1, log_ratio)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old.reweight(1, log_ratio)


def test_what_cannot_be_reweighted(old: en.Simulations) -> None:
    with pytest.raises(
        ValueError, match=r"parameters of model 'zero mean' are not known.*keep_parameters=True"
    ):
        old.reweight(0, log_ratio)
    with pytest.raises(ValueError, match="'free mean' are not known"):
        draws(OLD, 100, seed=1).reweight(1, log_ratio)
    with pytest.raises(ValueError, match="there is no model 'other'"):
        old.reweight("other", log_ratio)
    with pytest.raises(TypeError, match="log_ratio must be a function of the parameters"):
        old.reweight(1, np.zeros(10_000))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"returned shape \(10000, 1\) for 10000 parameters"):
        old.reweight(1, lambda mean: np.asarray(mean)[:, None])
    with pytest.raises(
        ValueError, match=r"NaN or \+infinity for 1 of 10000 parameters .* number 3; where the"
    ):
        old.reweight(1, lambda mean: np.where(np.arange(10_000) == 3, np.nan, 0.0))
    with pytest.raises(ValueError, match="all weights of model 'free mean' are zero"):
        old.reweight(1, lambda mean: np.full(10_000, -np.inf))
    lost = en.Simulations(np.zeros(3), [0, 1, 1], failed=(0, 2), parameters=(None, np.zeros(2)))
    with pytest.raises(ValueError, match=r"2 draws of model 'M1' failed, .*Simulate from the new prior"):
        lost.reweight(1, log_ratio)
