"""Programs that use the package as a user would: the first example, the demonstration, the benchmarks."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import evidencenet as en
from evidencenet import demo

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# What a user writes, but for the numbers of draws.
EXAMPLE = """
import evidencenet as en

flat  = en.Model("flat",  lambda rng, n: rng.normal(size=(n, 20)))
trend = en.Model("trend", prior=lambda rng, n: rng.normal(size=n),
                 simulate=lambda rng, slope: slope[:, None] * t + rng.normal(size=(len(slope), 20)))

sims = en.simulate([flat, trend], 10_000, seed=1)
net  = en.train(sims, seed=2)
net.log_bayes_factor(x)
net.members(x)
net.probabilities(x, prior=None)
answer = net.compare(x_observed)
check  = en.validate(net, en.simulate([flat, trend], 5_000, seed=3))
en.write_report("report.html", net, check, answer)
net.save("trend.evnet"); net = en.load("trend.evnet")
"""


def log_k(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The exact one: p(x | trend) is normal with covariance 1 + t tᵀ."""
    return 0.5 * (x @ t) ** 2 / (1 + t @ t) - 0.5 * np.log(1 + t @ t)


def test_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    t = np.linspace(0, 1, 20)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2_000, 20)) + (rng.normal(size=(2_000, 1)) * (np.arange(2_000) % 2)[:, None]) * t
    # One for which the evidence is clear, yet within what 2,000 held-out draws can confirm.
    names = {"t": t, "x": x, "x_observed": 0.9 * t}
    exec(EXAMPLE, names)
    net, check, answer = (names[name] for name in ("net", "check", "answer"))
    assert isinstance(net, en.EvidenceNetwork)
    assert net.log_bayes_factor(x).shape == (2_000,)
    assert net.members(x).shape == (4, 2_000)
    assert net.probabilities(x).shape == (2_000, 2)
    exact = log_k(x, t)
    # log K = constant + (a·x)²: 21 numbers, fitted to 9,000 draws, to which each gives p(1 − p) ≈ 0.22.
    best = math.sqrt(21 / (9_000 * 0.22))
    # So it is the error of draws weighted by p(1 − p): by few draws, log K beyond 10 is hardly determined.
    away, weight = net.log_bayes_factor(x) - exact, 1 / (2 + np.exp(exact) + np.exp(-exact))
    assert np.sqrt(np.average(away**2, weights=weight)) < 3 * best < 0.5 * np.std(exact)
    assert np.sqrt(np.mean(away**2)) < 0.25 * np.std(exact)
    assert isinstance(answer, en.Comparison)
    assert answer.log_k == pytest.approx(log_k(0.9 * t, t), abs=0.3)
    assert str(answer).startswith("trend against flat")
    assert check.passed  # type: ignore[attr-defined]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>" in page
    assert net.choice is not None
    assert net.choice.taken in page
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "trend.evnet"}
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "training" in shown.err


def test_demonstration(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rmse = demo.main(draws=20_000, dim=20, folder=str(tmp_path / "new"), progress=False)
    # The 21 numbers of log K, if its form were known, could be fitted to 18,000 draws to 0.07, or 0.032 of
    # log10 K; a network that does not know it may be off by three times that. log10 K scatters by 0.3.
    assert 0 < rmse < 0.095
    shown = capfd.readouterr()
    assert shown.err == ""
    assert f"fresh series is {rmse:.4f}" in shown.out
    assert "coverage" in shown.out
    assert "exact log K" in shown.out
    assert (tmp_path / "new" / "time_series.png").read_bytes().startswith(b"\x89PNG")
    net = en.load(tmp_path / "new" / "time_series.evnet")
    problem = en.problems.time_series(20)
    x = en.simulate(problem.models, 2_000, seed=9, progress=False).x
    error = (net.log_bayes_factor(x) - problem.log_bayes_factor(x)) / np.log(10)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(rmse, rel=0.2)


def program(name: str) -> ModuleType:
    # As if it were run: programs import what they share from beside them.
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    about = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert about is not None
    assert about.loader is not None
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def test_benchmark_of_speed() -> None:
    recipe = en.Recipe(epochs=2, batch=100)
    row = program("speed").measure(3_000, 10, 1, recipe=recipe, baseline=True, members=2)
    assert all(np.isfinite(value) for value in row.values())
    assert 0 < row["rmse_log10"] < 0.3
    assert row["in_all"] > row["simulate"] + row["train"]
    assert row["choose"] == 0
    assert 0 < row["share_of_matrix_product"] < 1


@pytest.mark.parametrize("name", ["mean_test", "polynomial_order"])
def test_benchmark_of_accuracy(name: str) -> None:
    accuracy = program("accuracy")
    recipe = en.Recipe(epochs=2, batch=100)
    row = accuracy.measure(accuracy.zoo()[name](), 3_000, 1, recipe=recipe, baseline=True, members=2)
    assert row["problem"] == name
    # An exact answer is the best on average.
    assert 0 < row["excess"] < 0.2
    assert 0 < row["within"][0] < row["within"][1] <= 1
    assert row["rmse <6"] > abs(row["bias <6"])
    assert row["seconds"] > 0
    text = accuracy.line(name, row)
    assert text.startswith(name)
    assert ("passed" in text) == row["coverage"]


def test_benchmark_of_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = program("sizes")
    monkeypatch.setattr(sizes, "IN_MEMORY", 2_000)
    row = sizes.measure(2_000, 10)
    assert 0 < row["rmse_log10"] < 0.5
    assert row["seconds"] > 0
    rows = [
        {"draws": draws, "numbers": numbers, "seconds": draws * numbers, "rmse_log10": 1 / draws}
        for draws, numbers in ((1_000, 100), (10_000, 100), (200_000, 10), (200_000, 100))
    ]
    sizes.figure(rows, str(tmp_path / "sizes.png"))
    assert (tmp_path / "sizes.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("name", "draws", "seeds"), [("correlated_cloud", 4_000, [1]), ("polynomial_order", 12_000, [1, 2])]
)
def test_benchmark_of_trust(name: str, draws: int, seeds: list[int]) -> None:
    trust = program("trust")
    recipe = en.Recipe(epochs=2, batch=100)
    row = trust.measure(trust.zoo()[name](), draws, seeds, fresh=1_000, recipe=recipe, members=2)
    assert row["problem"] == name
    assert len(row["ranges"]) == len(row["alarms of each"]) - 1
    for kind in ("error", "jackknife"):
        assert 0 < row[f"{kind} within 1"] < row[f"{kind} within 2"] <= 1
        assert row[f"{kind} worst"] > 1
    # 3,000 draws, ranked among some 300 of each of two models or more: the binomial error of both is 0.5%.
    assert row["alarms own"] == pytest.approx(0.01, abs=0.018)
    assert row["alarms all"] <= row["alarms own"]
    assert row["power spoil"] > row["alarms all"] + 0.1
    assert row["seconds"] > 0
    assert row["compare_ms"] > 0
    assert trust.line(name, row).startswith(name)
    assert len(trust.line(name, row)) == len(trust.HEAD.splitlines()[0])
    json.dumps(row, allow_nan=False)
    nothing = {**row, "ranges": [None], "error within 1": None, "error worst": None}
    assert "none" in trust.line(name, nothing)


def test_benchmark_rows_are_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = program("common")
    jobs = [("one", lambda: {"a": 1}), ("two", lambda: {"a": 2})]
    common.table(jobs, lambda label, row: f"{label} {row['a']}", str(tmp_path / "rows.json"))
    assert capsys.readouterr().out == "one 1\ntwo 2\n"
    assert json.loads((tmp_path / "rows.json").read_text()) == [
        {"setting": "one", "a": 1},
        {"setting": "two", "a": 2},
    ]
    options = common.parser("about").parse_args(["--draws", "1e4", "--only", "mean_test"])
    assert (options.draws, options.only, options.seed, options.json) == (10_000, ["mean_test"], 1, None)
    assert common.parser(None).parse_args([]).only == list(en.problems.zoo())


def test_changes_of_the_data() -> None:
    trust = program("trust")
    x = {"x": np.random.default_rng(1).normal(3, 2, size=(1_000, 4, 1)), "mask": np.ones((1_000, 4), bool)}
    moved = trust.changed(x, lambda a, mean, spread: a + spread)
    np.testing.assert_allclose(moved["x"] - x["x"], np.broadcast_to(x["x"].std(axis=0), x["x"].shape))
    assert moved["mask"] is x["mask"]
    found = trust.signs(np.random.default_rng(2), (100, 100), 0.1)
    assert set(np.unique(found)) == {-1.0, 0.0, 1.0}
    assert abs(np.mean(found != 0) - 0.1) < 4 * np.sqrt(0.09 / 10_000)
    assert trust.strange(np.array([[0.001, 0.01], [0.001, 0.02], [0.5, 0.5], [0.001, 0.001]])) == 0.5


def test_benchmark_of_scale(tmp_path: Path) -> None:
    scale = program("scale")
    kinds = {"Dask": scale.threads}  # a cluster is started by test_cluster
    rows = scale.rates(2_000, 0.001, kinds, seconds=0.2)
    # No more than one draw a millisecond by one worker in pure Python.
    assert 0 < rows[0]["busy"] < 1_010
    assert rows[0]["waiting"] < 1_010
    # Two threads that wait do so at the same time, and no faster.
    assert 0 < rows[1]["waiting"] < 2 * 1_010
    assert all(row["gaussian"] > 0 for row in rows)
    sizes = scale.stores(5_000, writes=4)
    # A real scheduler receives and sends these; see docs/scale.md.
    sent = scale.messages() | {"received_a_chunk": 5.0, "sent_a_chunk": 3.0}
    # 100 numbers of eight bytes, of which some can be saved by compression, and all travel.
    assert 600 < sizes["fast"]["bytes_a_draw"] < 810
    assert 800 < sent["result_bytes_a_draw"] < 810
    # Four writes became one chunk.
    assert sizes["slow"]["files"] < 12
    paper = scale.on_paper(rows, sizes, sent)
    assert paper["store_tb"] == pytest.approx(sizes["fast"]["bytes_a_draw"] / 1e3)
    assert paper["tasks_a_second"] <= 100
    assert paper["messages_a_second"] == pytest.approx(8 * paper["tasks_a_second"])
    small = scale.small_draws(4_000, parts=3)
    # Two models, five files a chunk, and a few descriptions; each job leaves a chunk of each model.
    assert small["files_of_one"] < 2 * 5 + 5
    assert 3 * 2 * 5 < small["files_of_parts"] < 3 * 2 * 5 + 3 + 5
    assert small["files_of_parts_if_some_fail"] > small["files_of_parts"]
    half = {
        "memory": [
            {"gigabytes": 2, "draws": 100, "train_seconds": 1.4, "seconds": 3.0, "peak_megabytes": 1234.5}
        ],
        "speed": {"memory": {"draws_per_second": 1e6, "part": 1.0}},
        "fresh": {"draws": 5e6, "rmse_log10_k": 0.00432, "stated": 0.00441, "seconds": 37.2},
    }
    found = {
        "simulation": {
            "rates": rows,
            "messages": sent,
            "stores": sizes,
            "small_draws": small,
            "on_paper": paper,
        },
        "training": half,
    }
    for page in ("scale.md", "scale-training.md"):
        (tmp_path / page).write_text((BENCHMARKS.parent / "docs" / page).read_text())
    scale.write(found, tmp_path)
    text = (tmp_path / "scale-training.md").read_text()
    assert "| 2 | 100 | 1 | 3 | 1,234 |" in text
    assert "| 5,000,000 | 0.0043 | 0.0044 | 37 |" in text
    assert "How memory and speed of a training" in text
    assert f"| {small['files_of_parts']} |" in (tmp_path / "scale.md").read_text()
    scale.write(found, tmp_path)
    assert (tmp_path / "scale-training.md").read_text() == text
    (tmp_path / "scale.md").write_text("no place")
    with pytest.raises(ValueError, match="no place for 'rates'"):
        scale.write(found, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize(("job", "kills"), [("write .zarr", 70), ("simulate", 25)])
def test_kills(job: str, kills: int) -> None:
    # In a process of its own, since this one has used JAX and must not be forked.
    command = [
        sys.executable,
        str(BENCHMARKS / "kills.py"),
        "--kills",
        str(kills),
        "--seed",
        "7",
        "--only",
        job,
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert any(line.split()[: len(job.split())] == job.split() for line in run.stdout.splitlines())
