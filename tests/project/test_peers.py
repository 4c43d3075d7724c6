"""The examples that set other methods beside ours, at sizes of a few seconds, against exact answers."""

import numpy as np
import pytest

import evidencenet as en
from conftest import rms
from project.test_examples import example, quick


@pytest.mark.parametrize("dim", [2, 5])
def test_the_series_written_out_is_that_of_the_problem(dim: int) -> None:
    series, problem = example("_series"), en.problems.time_series(dim)
    x = np.asarray(en.simulate(problem.models, 6, seed=1, progress=False).x, dtype=np.float64)
    np.testing.assert_allclose(
        series.log_k_of_part(x, np.arange(dim)), problem.log_bayes_factor(x), atol=1e-9
    )
    theta = np.random.default_rng(2).standard_normal((100_000, dim))
    for model in (0, 1):
        function, parameters = series.log_likelihood(x[0], growth=model == 1)
        assert parameters == (dim if model == 1 else max(2, dim - 1))
        likelihood = np.exp(function(theta[:, :parameters]))
        error = likelihood.std() / likelihood.mean() / np.sqrt(len(likelihood))
        exact = problem.log_evidence(x[:1])[0]
        assert np.log(likelihood.mean()) == pytest.approx(exact[model], abs=4 * error)
        assert abs(np.log(likelihood.mean()) - exact[1 - model]) > 4 * error


def test_nested_sampling_by_slices_states_honest_errors() -> None:
    series, nested = example("_series"), example("_nested")
    problem = en.problems.time_series(4)
    x = np.asarray(en.simulate(problem.models, 40, seed=1, progress=False).x, dtype=np.float64)
    exact = problem.log_evidence(x)[:, 1]
    runs = [
        nested.nested_sampling(series.log_likelihood(one, growth=True)[0], 4, live=100, repeats=8, seed=i)
        for i, one in enumerate(x)
    ]
    pull = np.array([(run.log_z - truth) / run.error for run, truth in zip(runs, exact, strict=True)])
    # Of 40 standard normal numbers: mean 0 ± 0.16, root mean square 1 ± 0.11.
    assert abs(pull.mean()) < 4 * 0.16
    assert 0.6 < rms(pull) < 1.45
    assert rms(pull + 2) > 1.45
    assert all(run.finished and 0.01 < run.error < 0.3 for run in runs)
    function = series.log_likelihood(x[0], growth=True)[0]
    assert nested.nested_sampling(function, 4, live=100, repeats=8, seed=0).log_z == runs[0].log_z


def test_nested_sampling_says_when_it_was_stopped() -> None:
    series, nested = example("_series"), example("_nested")
    problem = en.problems.time_series(10)
    # Farther out than any draw, so that few points of the prior come near.
    x = 8 * np.asarray(en.simulate(problem.models, 2, seed=1, progress=False).x, dtype=np.float64)
    function, dim = series.log_likelihood(x[1], growth=True)
    stopped = nested.nested_sampling(function, dim, live=250, repeats=20, seed=1, most=10_000)
    assert not stopped.finished
    assert 10_000 <= stopped.evaluations < 30_000
    assert stopped.log_z < problem.log_evidence(x)[1, 1] - 2 * stopped.error


def test_nested_sampling() -> None:
    result = quick("nested_sampling", progress=False)
    program = example("nested_sampling")
    lines = {line["way"]: line for line in result.numbers["lines"]}
    assert set(lines) == {program.SLICED, program.NAUTILUS, program.SHARE, program.ALONE, program.FIXED}
    sliced = lines[program.SLICED]
    # Ten observations: the error of a root mean square is 22%.
    assert sliced["rmse"] == pytest.approx(sliced["stated"], rel=4 * 0.22)
    assert sliced["error"] == pytest.approx(sliced["rmse"] / np.sqrt(20))
    assert lines[program.NAUTILUS]["rmse"] < 4 * lines[program.NAUTILUS]["stated"]
    for way in (program.SHARE, program.ALONE):
        assert lines[way]["evaluations"] == int(0.01 * sliced["evaluations"])
    # Gaussians of four numbers have 20 in all; each draw of 10,000 gives them about p(1 − p) = 0.22.
    assert lines[program.FIXED]["rmse"] < 2 * np.sqrt(20 / (10_000 * 0.22)) / np.log(10)
    assert lines[program.FIXED]["rmse"] < 0.5 * lines[program.SHARE]["rmse"]
    assert all(lines[way]["further"] < 0.1 for way in program.OPTIONS)
    assert not any(line["capped"] for line in lines.values())
    assert result.figures[""].axes[2].get_title().startswith("RMSE")


def test_limits_of_nested_sampling_are_told() -> None:
    program = example("nested_sampling")
    problem = en.problems.time_series(4)
    x = np.asarray(en.simulate(problem.models, 4, seed=1, progress=False).x, dtype=np.float64)
    exact = problem.log_bayes_factor(x)
    stopped = program.sampled(program.SLICED, program._by_slices(300), x, exact, 1)
    assert stopped.capped
    assert stopped.n == 1
    cheap = program.sampled(program.SLICED, program._by_slices(np.inf), x, exact, 1, budget=30_000)
    assert not cheap.capped
    assert cheap.n == 2
    few = cheap._replace(way=program.SHARE, capped=True)
    first, second, third = program.rows([stopped, cheap, few])
    assert "(stopped there)" in first.ours
    assert "(" not in second.ours.split(",")[0]
    assert "(not 1%)" in third.ours
    assert program.draw([stopped, few]).axes


def test_density_estimation() -> None:
    result = quick("density_estimation", progress=False)
    program = example("density_estimation")
    rmse = {way: found["rmse_log10"] for way, found in result.numbers.items()}
    # The 28 numbers of two Gaussians, each from 4,000 draws; log K is off by about sqrt(28/8,000) nats.
    assert rmse[program.GAUSSIANS] == pytest.approx(np.sqrt(28 / 8_000) / np.log(10), rel=1)
    assert rmse[program.NETWORK] < 2 * rmse[program.GAUSSIANS]
    assert rmse[program.NETWORK] < 0.5 * min(rmse[program.FLOW], rmse[program.WHITE])
    # Flows are no match, but they have learned: log10 K scatters by 0.35.
    assert max(rmse[program.FLOW], rmse[program.WHITE]) < 0.25
    assert all(abs(result.numbers[way]["bias_log10"]) < 0.08 for way in rmse)
    assert result.numbers[program.GAUSSIANS]["parameters"] == 28


def test_densities_are_densities() -> None:
    program = example("density_estimation")
    x = np.random.default_rng(1).normal(3, 2, size=(20_000, 2))
    fitted = program._gaussian(x)
    np.testing.assert_allclose(fitted.log_density(np.full((1, 2), 3.0)), -np.log(2 * np.pi * 4), atol=0.05)
    halves = program._ratio(lambda y, _: program._gaussian(y), [x, x], x[:5])
    np.testing.assert_allclose(halves.log_k, 0, atol=1e-12)


def test_extensions() -> None:
    result = quick("extensions", progress=False)
    found = result.numbers
    for judged in found["evidence"].values():
        assert judged["rmse"] < 0.1 * found["evidence_spread"]
        assert 0.4 < judged["pull"] < 1.6
    test = found["test"]
    exact = example("extensions").Exact
    for i, size in enumerate(test["sizes"]):
        assert abs(test["alarms"][i] - size) < 4 * test["alarms_error"][i]
        # The network loses some power, at most; not more than a few errors here.
        assert abs(test["power"][i] - test["exact_power"][i]) < 4 * test["power_error"][i]
    truth = exact.of(en.problems.time_series(6), 6)
    assert test["exact_auc"] == truth.auc
    assert abs(test["auc"] - truth.auc) < 4 * test["auc_error"]
    assert abs(test["auc"] - exact(2 * truth.ratio).auc) > 4 * test["auc_error"]
    assert found["predictive"]["rmse"] < 0.15 * found["predictive_spread"]
    assert found["predictive"]["pull"] < 1.6
    assert len(result.figures[""].axes) == 4


def test_closed_form_of_the_hypothesis_test() -> None:
    program = example("extensions")
    problem = en.problems.time_series(6)
    exact = program.Exact.of(problem, 6)
    sims = en.simulate(problem.models, 40_000, seed=3, progress=False)
    log_k = problem.log_bayes_factor(sims.x)
    p_value = exact.p_value(log_k)
    for size in (0.5, 0.1, 0.01):
        for model, wanted in ((0, size), (1, float(exact.power(size)))):
            error = np.sqrt(wanted * (1 - wanted) / 20_000)
            assert np.mean(p_value[sims.model == model] <= size) == pytest.approx(wanted, abs=4 * error)
    sides = [log_k[sims.model == model] for model in (0, 1)]
    assert np.mean(sides[1] > sides[0]) == pytest.approx(exact.auc, abs=4 * 0.5 / np.sqrt(20_000))
