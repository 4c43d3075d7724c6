"""The check of a network on fresh draws: what passes, what fails, and what is said of it."""

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet.trust import score


def test_the_record(series: Case) -> None:
    check = en.validate(series.net, series.fresh)
    assert check.names == series.net.names
    np.testing.assert_array_equal(check.log_k[:, 0], 0)
    np.testing.assert_array_equal(check.log_k[:, 1], series.net.log_bayes_factor(series.fresh.x))
    np.testing.assert_array_equal(check.label, series.fresh.model)
    assert check.coverage.p_value == en.coverage(check.log_k[:, 1], check.label).p_value
    assert check.range == check.ranges[0]
    best = score(series.problem.log_bayes_factor(series.fresh.x), series.fresh.model)
    # No odds score better than the exact ones, but by chance.
    assert check.score.value > best.value - 3 * best.error
    assert check.score.gain == pytest.approx(best.gain, rel=0.1)
    assert abs(check.moments[0].z) < 4


def test_text(series: Case, three: Case) -> None:
    text = str(en.validate(series.net, series.fresh))
    assert text.startswith("Validation on 10,000 fresh draws: coverage passed")
    assert "growth against no growth" in text
    assert "coverage of growth: p = " in text
    assert "nats" in text
    text = str(en.validate(three.net, three.fresh))
    for name in three.net.names:
        assert f"coverage of {name}: p = " in text


def test_shares_of_the_fresh_draws_do_not_matter(three: Case) -> None:
    fresh = en.simulate(three.problem.models, 4_000, seed=9, fractions=(5, 2, 1), progress=False)
    check = en.validate(three.net, fresh)
    assert check.passed
    # Knowing nothing but the shares is worth their entropy.
    shares = np.array(fresh.counts) / len(fresh)
    assert check.score.nothing == pytest.approx(-shares @ np.log(shares))


@pytest.mark.parametrize("k", [0, 1, 2])
def test_any_model_that_is_wrong_fails(three: Case, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    right = en.EvidenceNetwork.log_bayes_factor

    def wrong(self: en.EvidenceNetwork, x: np.ndarray, *, model: int = 1, against: int = 0) -> np.ndarray:
        """The evidence of one model is too large by 0.5."""
        return right(self, x, model=model, against=against) + 0.5 * (int(model == k) - int(against == k))

    monkeypatch.setattr(en.EvidenceNetwork, "log_bayes_factor", wrong)
    check = en.validate(three.net, three.fresh)
    assert not check.passed
    assert "coverage FAILED" in str(check)
    assert "do not match the draws" in str(check)


def test_knowing_nothing_is_calibrated_and_says_so() -> None:
    rng = np.random.default_rng(1)
    sims = en.Simulations(rng.normal(size=(4_000, 3)), np.arange(4_000) % 2)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=2), progress=False)
    check = en.validate(net, en.Simulations(rng.normal(size=(4_000, 3)), np.arange(4_000) % 2))
    assert check.passed
    assert not check.informative
    assert "no better than chance" in str(check)


def test_plot(series: Case) -> None:
    axes = en.validate(series.net, series.fresh).plot()
    assert len(axes) == 3


def test_not_simulations(small: Case) -> None:
    with pytest.raises(TypeError, match="validate takes Simulations, got a ndarray; make some with simulate"):
        en.validate(small.net, small.fresh.x)  # type: ignore[arg-type]


def test_other_models(small: Case) -> None:
    x, model = small.fresh.x, small.fresh.model
    for names in (("a", "b"), small.net.names[::-1]):
        sims = en.Simulations(x, model, names=names)
        with pytest.raises(ValueError, match=r"the draws are of .*, the network compares .*, in this order"):
            en.validate(small.net, sims)


def test_other_data(small: Case) -> None:
    sims = en.Simulations(np.asarray(small.fresh.x)[:, :4], small.fresh.model, names=small.net.names)
    with pytest.raises(ValueError, match=r"x is an array of \(4,\) numbers.*trained on an array of \(5,\)"):
        en.validate(small.net, sims)


def test_weighted_draws(small: Case) -> None:
    weighted = en.Simulations(
        small.fresh.x, small.fresh.model, small.net.names, log_weight=np.zeros(len(small.fresh))
    )
    with pytest.raises(ValueError, match="validate takes draws of equal weight"):
        en.validate(small.net, weighted)


def test_too_few_draws(small: Case) -> None:
    with pytest.raises(ValueError, match="two draws of each model"):
        en.validate(small.net, small.fresh.take([0, 1_500]))
