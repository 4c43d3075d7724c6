"""The command line from simulations to a report, against exact log K and the Python interface."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import evidencenet as en
from command import done, exact, parsed, refused, run, spec_file
from evidencenet.questions.accuracy import Accuracy
from evidencenet.training import checkpoint

TRAINING = ("--seed", 2, "--members", 2, "--epochs", 6)


class Folder(NamedTuple):
    """What a short session left behind, and what was printed on the way."""

    path: Path
    spec: Path
    draws: Path
    fresh: Path
    net: Path
    observed: Path
    said: dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("session")
    spec = spec_file(path)
    found = Folder(
        path, spec, path / "draws.zarr", path / "fresh.npz", path / "net.evnet", path / "observed.npy", {}
    )
    found.said["simulate"] = done("simulate", spec, "--n", "2e4", "--seed", 2, "--out", found.draws)
    done("simulate", spec, "--n", "4_000", "--seed", 3, "--out", found.fresh, "--quiet")
    training = ("train", found.draws, *TRAINING, "--out", found.net, "--quiet")
    found.said["stopped"] = _stopped_after_two_epochs(*training)
    found.said["train"] = done(*training)
    np.save(found.observed, np.array([0.5, 0.9, 1.0]))
    return found


def _stopped_after_two_epochs(*training: Any) -> str:
    """Press Ctrl-C in the midst of a training, which the same command is to take up again."""
    save, epochs = checkpoint.save, []

    def stopping(*arguments: Any) -> None:
        save(*arguments)
        epochs.append(arguments)
        if len(epochs) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", stopping)
        return refused(*training, code=130)


@pytest.fixture(scope="module")
def net(folder: Folder) -> en.EvidenceNetwork:
    return en.load(folder.net)


def test_simulate_writes_what_python_draws(folder: Folder) -> None:
    names: dict[str, Any] = {}
    exec(folder.spec.read_text(), names)
    expected = en.simulate(names["models"], 20_000, seed=2, progress=False)
    found = en.Simulations.read(folder.draws)
    assert found.names == expected.names == ("flat", "level")
    assert isinstance(expected.x, np.ndarray)
    assert isinstance(found.x, np.ndarray)
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.model, expected.model)
    assert f"written to {folder.draws}" in folder.said["simulate"]
    assert "level       10,000            0" in folder.said["simulate"]
    assert not list(folder.path.glob("*partial*"))


def test_train_is_the_same_as_in_python_to_the_bit(
    folder: Folder, net: en.EvidenceNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `problems` calls simulate, train and validate of Python, without a break; here on the same models.
    names: dict[str, Any] = {}
    exec(folder.spec.read_text(), names)
    problem = en.problems.Problem(
        "level", tuple(names["models"]), lambda x: np.stack([np.zeros(len(x)), exact(np.asarray(x))], axis=1)
    )
    monkeypatch.setattr(en.problems, "zoo", lambda: {"level": lambda: problem})
    found = parsed("problems", "level", "--n", 20_000, *TRAINING)
    assert found.pop("run")["command"] == "problems"
    fresh = en.simulate(problem.models, 20_000, seed=3, progress=False)
    log_k = problem.log_evidence(fresh.x)
    accuracy = Accuracy(problem, net, fresh, en.validate(net, fresh), log_k)
    assert accuracy.to_dict() == found
    # The one of the command line was stopped on the way.
    assert "Stopped. The training so far is in" in folder.said["stopped"]
    assert not list(folder.path.glob("*.checkpoint"))
    # What it says of itself.
    error = net.log_bayes_factor(fresh.x) - log_k[:, 1]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert found["rmse"] < 0.2 * found["exact_scatter"]
    validated = found["in_validated_range"]
    inside = net.ranges[0].contains(net.log_bayes_factor(fresh.x))
    assert validated["part"] == pytest.approx(np.mean(inside))
    size = np.abs(error / net.error(fresh.x))[inside]
    assert validated["within_one_error"] == pytest.approx(np.mean(size < 1))
    assert 0.4 < validated["within_one_error"] < validated["within_two_errors"]
    assert "% of the draws in the range are within one error" in str(accuracy)


def test_train_keeps_how_it_was_made(folder: Folder) -> None:
    record = json.loads(Path(f"{folder.net}.run.json").read_text())
    assert record["names"] == ["flat", "level"]
    assert record["loss"] == {"name": "LPopExponential", "alpha": 2.0, "beta": 1.0}
    assert np.shape(record["history"]["score"]) == (2, 7)
    assert record["choice"] is None
    made = record["run"]
    assert made["command"] == "train"
    assert made["arguments"]["seed"] == 2
    assert made["arguments"]["members"] == 2
    assert made["versions"]["evidencenet"] == en.__version__
    assert made["versions"]["python"] == sys.version.split()[0]
    assert {"jax", "numpy"} <= set(made["versions"])
    assert made["seconds"] > 0
    # How the draws were made comes along, with the models' source.
    draws = made["made_from"][str(folder.draws)]
    assert draws["arguments"]["n"] == 20_000
    assert draws["spec"] == folder.spec.read_text()


def test_compare_gives_the_exact_answer_within_its_error(folder: Folder, net: en.EvidenceNetwork) -> None:
    printed = parsed("compare", folder.net, folder.observed)
    (answer,) = printed["answers"]
    truth = float(exact(np.array([[0.5, 0.9, 1.0]]))[0])
    assert math.isclose(truth, 0.0269, abs_tol=1e-4)
    assert abs(answer["log_k"] - truth) < 4 * answer["error"] < 0.5
    assert {key: answer[key] for key in answer if key != "row"} == net.compare([[0.5, 0.9, 1.0]]).to_dict()
    assert printed["run"]["made_from"][str(folder.net)]["command"] == "train"
    text = done("compare", folder.net, folder.observed)
    assert text == f"{net.compare([[0.5, 0.9, 1.0]])}\n"


def test_compare_many_rows(folder: Folder, net: en.EvidenceNetwork, tmp_path: Path) -> None:
    x = np.random.default_rng(4).normal(size=(200, 3))
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="a,b,c", comments="")
    printed = parsed("compare", folder.net, tmp_path / "x.csv")
    found = np.array([[answer["log_k"], answer["error"]] for answer in printed["answers"]])
    assert [answer["row"] for answer in printed["answers"]] == list(range(200))
    np.testing.assert_allclose(found[:, 0], net.log_bayes_factor(x), atol=1e-5)
    # Over trainings 94% are within two errors. What one training is off by is the same for all rows, so that
    # single ones had between 63 and 100%.
    deviation = np.abs(found[:, 0] - exact(x)) / found[:, 1]
    assert np.mean(deviation < 2) > 0.5
    assert np.mean(np.abs(found[:, 0] + 1 - exact(x)) / found[:, 1] < 2) < 0.2
    one = parsed("compare", folder.net, tmp_path / "x.csv", "--row", 7)["answers"]
    assert one == printed["answers"][7:8]
    lines = done("compare", folder.net, tmp_path / "x.csv", "--quiet").splitlines()
    assert len(lines) == 201
    assert " ".join(lines[0].split()) == "row best model probability natural log K of level against flat"
    assert lines[8].split()[0] == "7"
    assert "row 200" in refused("compare", folder.net, tmp_path / "x.csv", "--row", 200)


def test_prior_changes_probabilities_alone(folder: Folder, net: en.EvidenceNetwork) -> None:
    (equal,) = parsed("compare", folder.net, folder.observed)["answers"]
    (unequal,) = parsed("compare", folder.net, folder.observed, "--prior", "9,1")["answers"]
    assert unequal["log_k"] == equal["log_k"]
    odds = unequal["probabilities"][1] / unequal["probabilities"][0]
    assert odds == pytest.approx(math.exp(equal["log_k"]) / 9)
    assert "prior" in refused("compare", folder.net, folder.observed, "--prior", "1,2,3")


def test_an_observation_unlike_all_draws(folder: Folder, tmp_path: Path) -> None:
    np.save(tmp_path / "far.npy", [[0.5, 0.9, 1.0], [80.0, -80.0, 80.0]])
    result = run("compare", folder.net, tmp_path / "far.npy", "--json", "--quiet")
    assert result.exit_code == 4
    answers = json.loads(result.stdout)["answers"]
    assert not answers[0]["warnings"]
    assert "no model produces data like this" in answers[1]["warnings"][-1]["text"]
    assert run("compare", folder.net, tmp_path / "far.npy", "--row", 1).exit_code == 4
    # Strong evidence is a bound, and no failure.
    np.save(tmp_path / "strong.npy", [[2.0, 2.0, 2.0]])
    result = run("compare", folder.net, tmp_path / "strong.npy")
    assert result.exit_code == 0
    assert "beyond the validated range" in " ".join(result.stdout.split())


def test_validate(folder: Folder, net: en.EvidenceNetwork, tmp_path: Path) -> None:
    check = en.validate(net, en.Simulations.read(folder.fresh))
    assert check.passed
    assert done("validate", folder.net, folder.fresh) == f"{check}\n"
    kept = tmp_path / "new" / "check.json"
    printed = parsed("validate", folder.net, folder.fresh, "--out", kept)
    assert printed == json.loads(kept.read_text())
    assert printed.pop("run")["made_from"][str(folder.fresh)]["command"] == "simulate"
    assert printed == check.to_dict()
    assert "already exists" in refused("validate", folder.net, folder.fresh, "--out", kept)


@pytest.mark.parametrize("change", ["labels", "data"])
def test_validation_that_fails(folder: Folder, tmp_path: Path, change: str) -> None:
    sims = en.Simulations.read(folder.fresh)
    assert isinstance(sims.x, np.ndarray)
    labels = np.random.default_rng(1).permutation(sims.model) if change == "labels" else sims.model
    en.Simulations(sims.x + (change == "data"), labels, sims.names).write(tmp_path / "wrong.npz")
    result = run("validate", folder.net, tmp_path / "wrong.npz", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["passed"] is False
    result = run("validate", folder.net, tmp_path / "wrong.npz")
    assert result.exit_code == 3
    assert "FAILED" in result.stdout


def test_one_file_per_model(folder: Folder, tmp_path: Path) -> None:
    sims = en.Simulations.read(folder.fresh)
    paths = []
    for name in sims.names:
        np.save(tmp_path / f"x={name}.npy", np.asarray(sims.of(name)))
        paths.append(f"{name}={tmp_path / f'x={name}.npy'}")
    together = parsed("validate", folder.net, folder.fresh)
    apart = parsed("validate", folder.net, *paths)
    assert apart["run"]["made_from"] != together["run"]["made_from"]
    assert {**apart, "run": None} == {**together, "run": None}
    said = refused("validate", folder.net, paths[0], tmp_path / "x=level.npy", code=2)
    assert "names its model" in said
    assert "two files are given for the model 'flat'" in refused(
        "validate", folder.net, paths[0], paths[0], code=2
    )
    assert "in this order" in refused("validate", folder.net, *reversed(paths))


def test_labels_of_another_program(folder: Folder, tmp_path: Path) -> None:
    sims = en.Simulations.read(folder.fresh)
    table = np.column_stack([sims.model, np.asarray(sims.x)])
    np.savetxt(tmp_path / "x.csv", table, delimiter=",", header="class,a,b,c", comments="", fmt="%.17g")
    given = ("validate", folder.net, tmp_path / "x.csv", "--names", "flat, level")
    found = parsed(*given, "--label", "class")
    assert {**found, "run": None} == {**parsed("validate", folder.net, folder.fresh), "run": None}
    assert "x.csv" in refused(*given)


def test_report(folder: Folder, tmp_path: Path) -> None:
    page = tmp_path / "a" / "report.html"
    text = done("report", folder.net, folder.fresh, "--observed", folder.observed, "--out", page)
    assert text == f"written to {page}\n"
    html = page.read_text(encoding="utf-8")
    assert "level against flat" in html
    assert "coverage" in html
    made = json.loads(Path(f"{page}.run.json").read_text())
    assert parsed("compare", folder.net, folder.observed)["answers"] == made["answers"]
    assert made["validation"]["passed"] is True
    assert "already exists" in refused("report", folder.net, "--out", page)
    assert page.read_text(encoding="utf-8") == html
    done("report", folder.net, "--out", page, "--force", "--title", "<b>Mine & yours</b>")
    assert "&lt;b&gt;Mine &amp; yours&lt;/b&gt;" in page.read_text(encoding="utf-8")


def test_report_of_several_observations(folder: Folder, tmp_path: Path) -> None:
    two, many, page = tmp_path / "two.npy", tmp_path / "many.npy", tmp_path / "report.html"
    np.save(two, [[0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])
    done("report", folder.net, "--observed", two, "--out", page)
    html = page.read_text(encoding="utf-8")
    assert "Answer: row 0" in html
    assert "Answer: row 1" in html
    assert str(two) in html
    made = json.loads(Path(f"{page}.run.json").read_text())
    assert made["answers"] == parsed("compare", folder.net, two)["answers"]
    done("report", folder.net, "--observed", two, "--row", 1, "--out", page, "--force")
    assert "Answer: row" not in page.read_text(encoding="utf-8")
    assert json.loads(Path(f"{page}.run.json").read_text())["answers"] == made["answers"][1:]
    np.save(many, np.zeros((21, 3)))
    said = refused("report", folder.net, "--observed", many, "--out", tmp_path / "b.html")
    assert "holds 21 observations, and a page at most 20. Choose one with --row" in said
    assert not (tmp_path / "b.html").exists()


def test_wrong_networks_and_observations(folder: Folder, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((2, 5)))
    said = refused("compare", folder.net, tmp_path / "wide.npy")
    assert "x has shape (1, 5)" in said
    assert "this network wants one observation of shape (3,)" in said
    np.save(tmp_path / "nan.npy", np.full((1, 3), np.nan))
    assert "NaN or infinity" in refused("compare", folder.net, tmp_path / "nan.npy")
    assert "there is no file" in refused("compare", tmp_path / "none.evnet", folder.observed)
    assert "cannot be read" in refused("compare", folder.observed, folder.observed)
    missing = refused("compare", folder.net, tmp_path / "none.npy")
    assert "none.npy" in missing
    assert "none.npy" in refused("train", tmp_path / "none.npy", "--out", tmp_path / "a.evnet")
    assert not (tmp_path / "a.evnet").exists()


def test_nothing_is_replaced_unasked(folder: Folder) -> None:
    before = folder.net.read_bytes()
    assert "already exists" in refused("train", folder.draws, "--out", folder.net)
    assert folder.net.read_bytes() == before
    before = folder.fresh.read_bytes()
    assert "already exists" in refused("simulate", folder.spec, "--n", 10, "--out", folder.fresh)
    assert folder.fresh.read_bytes() == before
    for command in (("train", folder.draws), ("report", folder.net)):
        assert "is a folder" in refused(*command, "--out", folder.path, "--force")
    assert folder.draws.exists()


def test_force_replaces(folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "draws.zarr"
    done("simulate", folder.spec, "--n", 100, "--out", out)
    assert "holds 100 draws already" in refused("simulate", folder.spec, "--n", 50, "--out", out)
    assert "other settings: seed" in refused("simulate", folder.spec, "--n", 200, "--seed", 5, "--out", out)
    # An error on the way costs nothing.
    refused("simulate", spec_file(tmp_path, "models = oops"), "--n", 50, "--out", out, "--force")
    assert len(en.Simulations.read(out)) == 100
    done("simulate", folder.spec, "--n", 50, "--out", out, "--force", "--fractions", "1,4")
    assert en.Simulations.read(out).counts == (10, 40)
    assert {path.name for path in tmp_path.iterdir()} == {"draws.zarr", "draws.zarr.run.json", "models.py"}


def test_a_store_grows(folder: Folder, tmp_path: Path) -> None:
    for n in (100, 300):
        about = parsed("simulate", folder.spec, "--n", n, "--chunk", 25, "--out", tmp_path / "x.zarr")
        assert about["draws"] == [n // 2, n // 2]
        assert len(en.Simulations.read(tmp_path / "x.zarr")) == n
    done("simulate", folder.spec, "--n", 300, "--chunk", 25, "--out", tmp_path / "y.csv")
    first, second = (en.Simulations.read(tmp_path / name).x for name in ("x.zarr", "y.csv"))
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


def test_folders_that_are_not_ours_are_left_alone(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.tex").write_text("all of it")
    said = refused("simulate", folder.spec, "--n", 100, "--out", tmp_path / "mine.zarr", "--force")
    assert "was not written by evidencenet; it was not changed" in said
    assert (tmp_path / "mine.zarr" / "thesis.tex").read_text() == "all of it"


def test_hostile_names(tmp_path: Path) -> None:
    names = '"\\x1b[31mred", "a=b,\\u2192"'
    draw = "lambda rng, n: rng.normal(size=(n, 2))"
    text = f"import evidencenet as en\nmodels = [en.Model(name, {draw}) for name in ({names})]"
    spec = spec_file(tmp_path, text)
    text = done("simulate", spec, "--n", 40, "--out", tmp_path / "x.npz", "--quiet")
    assert "\x1b" not in text
    assert "\\x1b[31mred" in text
    about = parsed("simulate", spec, "--n", 40, "--out", tmp_path / "y.npz")
    assert about["names"] == ["\x1b[31mred", "a=b,→"]
    assert en.Simulations.read(tmp_path / "y.npz").names == ("\x1b[31mred", "a=b,→")


def program(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evidencenet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_output_and_messages_are_apart(folder: Folder, tmp_path: Path) -> None:
    spec = spec_file(tmp_path, 'print("drawing")\n' + folder.spec.read_text())
    result = program("simulate", spec, "--n", 100, "--out", tmp_path / "a.npz", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["draws"] == [50, 50]
    assert "drawing" in result.stderr
    assert "simulating" in result.stderr
    result = program("validate", folder.net, tmp_path / "a.npz", "--names")
    assert result.returncode == 2
    assert result.stdout == ""


SLOW = """
import time
import evidencenet as en

def draw(rng, n):
    time.sleep(0.05)
    with open(__file__ + ".calls", "a") as file:
        file.write("|")
    return rng.normal(size=(n, 2))

models = [en.Model("a", draw), en.Model("b", draw)]
"""


def test_an_interrupted_simulation_goes_on(tmp_path: Path) -> None:
    spec = spec_file(tmp_path, SLOW)
    out, calls = tmp_path / "x.npz", tmp_path / "models.py.calls"
    arguments = ["simulate", str(spec), "--n", "4000", "--chunk", "10", "--out", str(out)]
    child = subprocess.Popen(
        [sys.executable, "-m", "evidencenet", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not (calls.exists() and len(calls.read_text()) > 5) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGINT)
    printed, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert printed == b""
    assert b"the same command goes on from there" in said
    assert b"Traceback" not in said
    assert not out.exists()
    assert 5 < len(calls.read_text()) < 40
    done(*arguments)
    # Each of the 2 · (10 + 19) blocks was drawn once; perhaps not so the one that was interrupted.
    assert len(calls.read_text()) in (58, 59)
    assert not (tmp_path / "x.npz.partial.zarr").exists()
    quick = [en.Model(name, lambda rng, n: rng.normal(size=(n, 2))) for name in "ab"]
    expected = en.simulate(quick, 4000, progress=False).x
    np.testing.assert_array_equal(np.asarray(en.Simulations.read(out).x), np.asarray(expected))
