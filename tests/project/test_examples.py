"""The examples, each at sizes of a few seconds: their numbers against exact answers."""

import functools
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import rms

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = EXAMPLES.parent / "docs" / "paper"


@functools.cache
def example(name: str) -> ModuleType:
    # As if it were run: examples import what they share from beside them.
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    about = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert about is not None
    assert about.loader is not None
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def quick(name: str, **sizes: Any) -> Any:
    """Run an example at its quick sizes, or smaller ones; every row of its table is filled."""
    program = example(name)
    result = program.main(**{**program.QUICK, **sizes})
    assert all(row.what and row.ours for row in result.rows)
    return result


def test_time_series() -> None:
    result = quick("time_series", progress=False)
    numbers = result.numbers
    rmse, limit = numbers["rmse_log10"], numbers["rmse_log10_limit"]
    # Six numbers are fitted to 20,000 draws, each of which tells about p(1 − p) = 0.22, of natural log.
    assert limit == pytest.approx(np.sqrt(6 / (20_000 * 0.22)) / np.log(10), rel=0.6)
    assert 0.8 * limit < rmse["default call"] < 2.5 * limit
    # Six short epochs are too few for the paper's learning rate.
    assert rmse["paper's recipe"] > 2 * rmse["default call"]
    assert numbers["coverage_p_value"]["default call"] > 0.01
    assert 0.5 < numbers["pull"]["default call"] < 1.6
    assert set(result.figures) == {"data", "log-k", "coverage"}


def test_a_fit_that_knows_the_form_needs_the_labels() -> None:
    program = example("time_series")
    problem = program.en.problems.time_series(5)
    sims = program.en.simulate(problem.models, 20_000, seed=1, progress=False)
    x, exact = np.asarray(sims.x), problem.log_bayes_factor(sims.x)
    best = np.sqrt(6 / (20_000 * 0.22))
    assert program.rms(program.known_form(x, sims.model)(x) - exact) < 3 * best
    mixed = np.random.default_rng(1).permutation(sims.model)
    assert program.rms(program.known_form(x, mixed)(x) - exact) > 6 * best


def test_loss_comparison() -> None:
    result = quick("loss_comparison", only=("cross entropy", "l-POP-exponential, α = 2"))
    found = result.numbers["losses"]
    plain, lpop = found["cross entropy"], found["l-POP-exponential, α = 2"]
    # Beyond 10 natural units a network that gives log K itself falls short, which the link mends.
    high = [part for part in plain["bins"] if part["low"] >= 10]
    assert len(high) >= 2
    assert all(part["bias"] < -0.15 * part["exact"] for part in high)
    assert plain["fails_from"] <= 10
    mended = [part for part in lpop["bins"] if part["low"] >= 10]
    assert all(abs(a["bias"]) < 0.6 * abs(b["bias"]) for a, b in zip(mended, high, strict=True))
    # Where most draws lie, both do well; 20,000 draws know the difference of scores to some thousandths.
    for figures in (plain, lpop):
        assert figures["bins"][0]["rmse"] < 0.5
        assert -0.005 < figures["excess"] < 0.05


def test_rastrigin() -> None:
    # Both models have equally many fresh draws, so 5,000 of them see a constant error of log K of 0.03, which
    # a training on 10,000 draws may leave; one on 20,000 leaves half of that.
    result = quick("rastrigin", dims=(2,), draws=20_000)
    numbers = result.numbers
    assert numbers["quadrature_against_series"] < 1e-6
    (found,) = numbers["by_dim"]["exchangeable components"]
    assert 0.03 < found["rmse"] < 0.3 * found["spread"]
    assert -0.005 < found["excess"] < 0.02
    assert found["coverage"] > 0.01
    noisy = numbers["by_noise"][-1]
    assert noisy["noise"] == 1
    # The models cannot be told apart: K = 1. What 20,000 draws leave open is sqrt(1/20,000/0.25) = 0.014.
    assert noisy["spread"] < 1e-4
    assert noisy["rmse"] < 0.045


def test_rastrigin_wants_two_components() -> None:
    with pytest.raises(ValueError, match="the map needs n = 2"):
        example("rastrigin").main(dims=(1, 5))


def test_exact_log_k_of_the_generators() -> None:
    program = example("generators")
    made = program.generators(3)
    # K integrates to one over draws of model 0, and 1/K over draws of model 1, within four standard errors.
    for number, model in enumerate(made.models):
        x = np.asarray(model.draw(np.random.default_rng(number), 4_000)[0])
        ratio = np.exp(made.log_bayes_factor(x) * (1 if number == 0 else -1))
        assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / np.sqrt(len(ratio)))
        assert abs((1.3 * ratio).mean() - 1) > 4 * ratio.std() / np.sqrt(len(ratio))


def test_generators() -> None:
    result = quick("generators", fresh=4_000)
    digits, labelled = result.numbers["digits"], result.numbers["labelled"]
    assert digits["rmse"] < 0.7 * digits["spread"]
    assert -0.003 < digits["excess"] < 0.05
    unseen = digits["unseen"]
    assert abs(unseen["value"] - unseen["exact"]) < 2 * unseen["error"]
    gain, error = labelled["gain"]
    assert gain > 3 * error
    # Logistic regression knows as much as a straight line can.
    assert gain == pytest.approx(labelled["gain_of_logistic_regression"][0], abs=2 * error)
    assert labelled["coverage"] > 0.01
    assert labelled["range"][0] < 0 < labelled["range"][1]
    assert 0.3 < labelled["halves_pull"] < 1.7


def test_flags_are_the_keywords_of_main() -> None:
    common = example("_common")

    def main(
        *,
        draws: int = 10,
        noise: float = 0.5,
        dims: tuple[int, ...] = (1, 2),
        epochs: int | None = None,
        show_all: bool = True,
    ) -> None:
        """Do nothing."""

    sizes, out = common.parse(main, [], quick={"draws": 3})
    assert sizes == {"draws": 10, "noise": 0.5, "dims": (1, 2), "epochs": None, "show_all": True}
    assert out is None
    words = ["--quick", "--dims", "5", "1e1", "--epochs", "4", "--no-show-all", "--out", "there"]
    sizes, out = common.parse(main, words, quick={"draws": 3, "epochs": 1})
    assert sizes == {"draws": 3, "noise": 0.5, "dims": (5, 10), "epochs": 4, "show_all": False}
    assert out == Path("there")
    with pytest.raises(SystemExit):
        common.parse(main, ["--draw-nothing"], quick={})


def test_results_are_written_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = example("_common")
    (tmp_path / "test_examples.md").write_text(
        "# Page\n<!-- results -->\nold\n<!-- end of results -->\nend\n"
    )

    def main(*, draws: int = 2) -> Any:
        drawn, axis = common.figure((2, 2))
        axis.plot([0, 1])
        rows = [common.Row("RMSE", "0.1", "0.2"), common.Row("a | b", "1")]
        return common.Result("A title", rows, {"rmse": np.float64(0.1) * draws, "none": np.nan}, {"": drawn})

    monkeypatch.setattr(sys, "argv", ["x", "--out", str(tmp_path)])
    common.run(main, quick={})
    assert "RMSE  | 0.1  | 0.2" in capsys.readouterr().out
    assert (tmp_path / "figures" / "test_examples.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((tmp_path / "results" / "test_examples.json").read_text())
    assert record["numbers"] == {"rmse": 0.2, "none": None}
    assert record["sizes"] == {"draws": 2}
    assert record["command"].startswith("python examples/test_examples.py --out")
    page = common.refresh(tmp_path)
    assert page == (tmp_path / "README.md").read_text()
    assert "## [A title](test_examples.md)" in page
    filled = (tmp_path / "test_examples.md").read_text()
    assert filled.startswith("# Page\n<!-- results -->\n|  | ours | paper |\n")
    assert "| a \\| b | 1 | – |" in filled
    assert "old" not in filled
    assert filled.endswith("<!-- end of results -->\nend\n")
    assert common.refresh(tmp_path) == page


def test_bins() -> None:
    common = example("_common")
    exact = np.array([0.5, 1.5, 1.6, 9.0])
    one, two = common.binned(exact + np.array([0.1, 0.2, -0.2, 5.0]), exact, [0, 1, 2, 3])
    assert (one["n"], one["low"], one["high"], two["n"]) == (1, 0, 1, 2)
    assert one["bias"] == pytest.approx(0.1)
    assert two["bias"] == pytest.approx(0.0)
    assert two["rmse"] == pytest.approx(0.2)
    assert two["bias_error"] == pytest.approx(0.2 / np.sqrt(2))


@pytest.mark.parametrize("name", ["time_series", "loss_comparison", "rastrigin"])
def test_pages_have_a_place_for_results(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("<!-- results -->\n") == text.count("<!-- end of results -->") == 1
    assert f"(figures/{name}" in text


WRITTEN = sorted(path for path in (PAGES / "results").glob("*.json"))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_pages_show_the_results_that_were_written(path: Path) -> None:
    table = example("_common").markdown(json.loads(path.read_text(encoding="utf-8")))
    assert table in (PAGES / "README.md").read_text(encoding="utf-8")
    page = PAGES / f"{path.stem}.md"
    if page.exists() and "<!-- results -->" in page.read_text(encoding="utf-8"):
        assert table in page.read_text(encoding="utf-8")


# --- Other methods beside ours ---------------------------------------------------------------------------


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
    lines = {line["method"]: line for line in result.numbers["lines"]}
    assert set(lines) == {program.SLICED, program.NAUTILUS, program.SHARE, program.ALONE, program.FIXED}
    sliced = lines[program.SLICED]
    # Ten observations: the error of a root mean square is 22%.
    assert sliced["rmse"] == pytest.approx(sliced["stated"], rel=4 * 0.22)
    assert sliced["error"] == pytest.approx(sliced["rmse"] / np.sqrt(20))
    assert lines[program.NAUTILUS]["rmse"] < 4 * lines[program.NAUTILUS]["stated"]
    for method in (program.SHARE, program.ALONE):
        assert lines[method]["evaluations"] == int(0.01 * sliced["evaluations"])
    # Gaussians of four numbers have 20 in all; each draw of 10,000 gives them about p(1 − p) = 0.22.
    assert lines[program.FIXED]["rmse"] < 2 * np.sqrt(20 / (10_000 * 0.22)) / np.log(10)
    assert lines[program.FIXED]["rmse"] < 0.5 * lines[program.SHARE]["rmse"]
    assert all(lines[method]["further"] < 0.1 for method in program.OPTIONS)
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
    few = cheap._replace(method=program.SHARE, capped=True)
    first, second, third = program.rows([stopped, cheap, few])
    assert "(stopped there)" in first.ours
    assert "(" not in second.ours.split(",")[0]
    assert "(not 1%)" in third.ours
    assert program.draw([stopped, few]).axes


def test_density_estimation() -> None:
    result = quick("density_estimation", progress=False)
    program = example("density_estimation")
    rmse = {method: found["rmse_log10"] for method, found in result.numbers.items()}
    # The 28 numbers of two Gaussians, each from 4,000 draws; log K is off by about sqrt(28/8,000) nats.
    assert rmse[program.GAUSSIANS] == pytest.approx(np.sqrt(28 / 8_000) / np.log(10), rel=1)
    assert rmse[program.NETWORK] < 2 * rmse[program.GAUSSIANS]
    assert rmse[program.NETWORK] < 0.5 * min(rmse[program.FLOW], rmse[program.WHITE])
    # Flows are no match, but they have learned: log10 K scatters by 0.35.
    assert max(rmse[program.FLOW], rmse[program.WHITE]) < 0.25
    assert all(abs(result.numbers[method]["bias_log10"]) < 0.08 for method in rmse)
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


def test_cluster() -> None:
    """A real scheduler and real workers, of which two are killed: the same draws and networks, also deep."""
    numbers = quick("cluster").numbers
    assert numbers["same_draws"]
    assert numbers["same_members"]
    assert numbers["same_deep"]
    # Levels beside the plain draws.
    assert numbers["rare_calls"] > 2_500 + 5_000
    assert numbers["workers_left"] == 1


def test_radiata_pine() -> None:
    result = quick("radiata_pine", progress=False)
    numbers = result.numbers
    # The published figure, which has a closed form.
    assert numbers["exact"] == pytest.approx(8.4237, abs=1e-4)
    assert abs(numbers["log_k"]["deepen"] - numbers["exact"]) < 3 * numbers["error"]["deepen"]
    assert numbers["error"]["deepen"] < 0.6
    # Plain draws end long before it; rare draws go beyond.
    assert numbers["range"]["train"][1] < 5
    assert numbers["range"]["deepen"][1] > 15
    before, after = numbers["rmse"]
    assert after < 0.6 < before
