"""Forecasts, against the mean test: given the mean μ, T = (Σx)²/n is noncentral χ² with nμ²."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import chi2, ncx2, norm

import evidencenet as en
from conftest import draws

SIZE, SPREAD = 5, 1.0
PROBLEM = en.problems.mean_test(size=SIZE, spread=SPREAD)
GROWTH = 1 + SIZE * SPREAD**2
LOG_3 = float(np.log(3.0))


def least_statistic(threshold: float) -> float:
    """The T from which log K reaches the threshold."""
    return (threshold + 0.5 * np.log(GROWTH)) * 2 * GROWTH / (GROWTH - 1)


def exact_overall(threshold: float) -> float:
    return float(chi2(1).sf(least_statistic(threshold) / GROWTH))


def exact_between(threshold: float, low: float, high: float) -> float:
    """On average over the prior of μ from `low` to `high`."""
    mean = np.linspace(low, high, 2001)
    weight = norm(scale=SPREAD).pdf(mean)
    beyond = ncx2(1, np.maximum(SIZE * mean**2, 1e-12)).sf(least_statistic(threshold))
    return float((weight * beyond).sum() / weight.sum())


@pytest.fixture(scope="module")
def net() -> en.EvidenceNetwork:
    sims = draws(PROBLEM, 20_000, seed=1)
    return en.train(sims, members=3, recipe=en.Recipe(epochs=4), baseline=True, seed=2, progress=False)


@pytest.mark.parametrize("threshold", [LOG_3, np.log(20.0)])
def test_probabilities_are_exact_within_their_errors(net: en.EvidenceNetwork, threshold: float) -> None:
    found = en.forecast(net, PROBLEM.models[1], threshold=threshold, bins=6, n=20_000, seed=3)
    assert found.n == 20_000
    assert found.names == ("free mean", "zero mean")
    assert abs(float(found.overall) - exact_overall(threshold)) < 3 * float(found.overall.error)
    assert float(found.overall.error) < 0.02
    (edges,) = found.edges
    exact = [exact_between(threshold, low, high) for low, high in pairwise(edges)]
    error = np.asarray(found.probability.error)
    assert np.all(np.abs(found.probability.value - np.array(exact)) < 4 * error)
    # The check sees a threshold that is off by half a unit, and a prior twice as wide.
    assert abs(float(found.overall) - exact_overall(threshold + 0.5)) > 3 * float(found.overall.error)
    assert not np.all(np.abs(found.probability.value - exact_overall(threshold)) < 4 * error)
    # Equal numbers of draws in each bin, all of them in one.
    np.testing.assert_allclose(found.count, 20_000 / 6, atol=1)
    assert found.count.sum() == 20_000


def test_errors_hold_that_of_the_network(net: en.EvidenceNetwork) -> None:
    x, _ = PROBLEM.models[1].draw(np.random.default_rng(1), 50_000)
    log_k, error = net.log_bayes_factor(x), net.error(x)
    shift = (np.mean(log_k + error >= LOG_3) - np.mean(log_k - error >= LOG_3)) / 2
    sims = en.Simulations(np.r_[x, x], np.repeat([0, 1], 50_000), net.names)
    found = en.forecast(net, sims, threshold=LOG_3)
    p = float(found.overall)
    np.testing.assert_allclose(found.overall.error, np.hypot(shift, np.sqrt(p * (1 - p) / 50_000)), rtol=1e-3)


def test_either_model_and_either_source(net: en.EvidenceNetwork) -> None:
    sims = draws(PROBLEM, 20_000, seed=8, keep_parameters=True)
    by_draws = en.forecast(net, sims, threshold=LOG_3, bins=[-1.0, 0.0, 2.0])
    mean: Any = (sims.parameters or ())[1]
    assert by_draws.count.tolist() == [np.sum((mean >= -1) & (mean < 0)), np.sum((mean >= 0) & (mean <= 2))]
    # Odds of 1.5 for the null itself: log K below −log 1.5.
    null = en.forecast(net, sims, model=0, threshold=np.log(1.5))
    assert null.names == ("zero mean", "free mean")
    exact = float(chi2(1).cdf(least_statistic(-np.log(1.5))))
    assert abs(float(null.overall) - exact) < 3 * float(null.overall.error)
    # A model at one point of the parameter: the truth is what is assumed, not the prior.
    fixed = en.Model("μ = 1", lambda rng, n: 1 + rng.standard_normal((n, SIZE)))
    found = en.forecast(net, fixed, model="free mean", threshold=LOG_3, seed=4)
    exact = float(ncx2(1, SIZE).sf(least_statistic(LOG_3)))
    assert abs(float(found.overall) - exact) < 3 * float(found.overall.error)
    assert found.parameters == ()
    assert str(found).count("\n") == 1


def test_weighted_draws_stand_for_another_prior(net: en.EvidenceNetwork) -> None:
    sims = draws(PROBLEM, 20_000, seed=8, keep_parameters=True)
    part = sims.reweight(1, lambda mean: np.where((mean > 0.5) & (mean < 1.5), 0.0, -np.inf))
    found = en.forecast(net, part, threshold=LOG_3)
    exact = exact_between(LOG_3, 0.5, 1.5)
    assert abs(float(found.overall) - exact) < 4 * float(found.overall.error)
    assert abs(exact_overall(LOG_3) - exact) > 4 * float(found.overall.error)


class Pair(NamedTuple):
    mean: np.ndarray
    other: np.ndarray


def test_parameters_by_name_number_or_function(net: en.EvidenceNetwork) -> None:
    rng = np.random.default_rng(1)
    mean, other = rng.standard_normal((2, 2_000))
    x = np.r_[rng.standard_normal((10, SIZE)), mean[:, None] + rng.standard_normal((2_000, SIZE))]
    label = np.repeat([0, 1], [10, 2_000])

    def made(theta: Any) -> en.Simulations:
        return en.Simulations(x, label, net.names, parameters=(None, theta))

    forms: list[tuple[Any, Any]] = [
        ({"mean": mean, "other": other}, "mean"),
        (Pair(mean, other), "mean"),
        (Pair(mean, other), 0),
        (np.stack([mean, other], axis=1), 0),
        ({"mean": mean[:, None], "other": other}, lambda theta: theta["mean"]),
        (mean, None),
    ]
    for theta, parameter in forms:
        found = en.forecast(net, made(theta), parameter=parameter, bins=[-2, 0, 2], threshold=LOG_3)
        assert found.count.tolist() == [np.sum((mean >= -2) & (mean < 0)), np.sum((mean >= 0) & (mean <= 2))]
    named = en.forecast(net, made(forms[0][0]), parameter="mean")
    assert named.parameters == ("mean",)
    assert en.forecast(net, made(Pair(mean, other))).parameters == ()
    cells: Any = [3, [-1.0, 0.0, 1.0]]
    square = en.forecast(net, made(forms[0][0]), parameter=["mean", "other"], bins=cells)
    assert square.count.shape == (3, 2)
    assert square.count.sum() == np.sum(np.abs(other) <= 1)
    table = square.to_dataframe()
    assert list(table.columns[:4]) == ["mean from", "mean to", "other from", "other to"]
    assert len(table) == 6
    cell = (mean >= square.edges[0][1]) & (mean < square.edges[0][2]) & (other >= 0) & (other <= 1)
    assert square.count[1, 1] == table["draws"].iloc[3] == cell.sum()
    beyond = net.log_bayes_factor(x[10:][cell]) >= square.threshold
    assert np.asarray(square.probability.value)[1, 1] == pytest.approx(beyond.mean())
    empty = en.forecast(net, made(mean), bins=[-2.0, 0.0, 50.0, 60.0])
    assert np.isnan(np.asarray(empty.probability.value)[2])
    assert "unknown  (0 draws)" in str(empty)


def test_it_prints(net: en.EvidenceNetwork) -> None:
    found = en.forecast(net, PROBLEM.models[1], bins=2, n=2_000)
    lines = str(found).splitlines()
    assert lines[0] == "Probability that data of free mean favour it over zero mean by 20 : 1 or more"
    assert lines[1].startswith("  overall")
    assert lines[1].endswith("(2,000 draws)")
    assert lines[2].startswith("  parameter -")
    assert repr(found) == str(found)
    assert "overall" in found._repr_html_()


def test_bad_input(net: en.EvidenceNetwork) -> None:
    model = PROBLEM.models[1]
    plain: Any = draws(PROBLEM, 2_000, seed=3)
    kept = en.Simulations(
        plain.x, plain.model, plain.names, parameters=(None, {"a": np.zeros((1000, 2)), "b": np.zeros(1000)})
    )
    bad: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (np.zeros((3, 5)), {}, TypeError, "source must be a Model or Simulations of one, got a ndarray"),
        (model, {"threshold": np.nan}, ValueError, "threshold = nan; wanted a finite natural log K"),
        (model, {"against": 1}, ValueError, "cannot be compared with itself: both are 'free mean'"),
        (en.Model("new", model.simulate), {}, ValueError, "'new' is none of them. Say with model="),
        (model, {"parameter": "mean"}, ValueError, "have no names, got 'mean'. Give the number"),
        (model, {"parameter": 1}, ValueError, "there is no parameter 1; there are 0 to 0"),
        (model, {"bins": 0}, ValueError, "wanted a whole number of bins"),
        (model, {"bins": [1.0, 0.0]}, ValueError, "wanted two or more, in increasing order"),
        (model, {"bins": [[0.0, 1.0], [0.0, 1.0]]}, ValueError, "is for 2 parameters; there are 1"),
        (
            model,
            {"parameter": lambda mean: mean * np.nan},
            ValueError,
            "is NaN or infinite for 100 of 100 draws",
        ),
        (plain, {"parameter": 0}, ValueError, r"without their parameters.*keep_parameters=True"),
        (kept, {"parameter": "c"}, ValueError, "there is no parameter 'c'; there are 'a', 'b'"),
        (kept, {"parameter": "a"}, ValueError, r"parameter 'a' has shape \(1000, 2\); wanted one number per"),
        (kept, {"parameter": "b"}, ValueError, "edges of the bins of 'b'"),
    ]
    for source, options, error, message in bad:
        with pytest.raises(error, match=message):
            en.forecast(net, source, n=100, **options)
    with pytest.raises(TypeError, match="wanted a network made by train or load, got a Model"):
        en.forecast(model, model)  # type: ignore[arg-type]
