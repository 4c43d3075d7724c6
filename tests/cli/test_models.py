"""Commands that are given the models: clean draws are observed by them, and fresh ones simulated."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from command import done, parsed, refused, run, spec_file
from evidencenet.estimator import given, over_store

# The level is the clean part. Log K of x is that of `exact` in command.py: noise of variance 1, three times.
SPEC = """
import numpy as np
import evidencenet as en

def noise(rng, clean):
    return clean + rng.normal(size=clean.shape)

flat = en.Model("flat", lambda rng, n: np.zeros((n, 3)), observe=noise)
level = en.Model(
    "level",
    prior=lambda rng, n: rng.normal(size=n),
    simulate=lambda rng, mean: np.repeat(mean[:, None], 3, axis=1),
    observe=noise,
)
models = [flat, level]
"""
TRAINING = ("--seed", 2, "--members", 1, "--epochs", 4, "--quiet")


def exact(x: np.ndarray) -> np.ndarray:
    """Log K of level against flat: p(x | level) is normal with covariance 1 + 1 1ᵀ."""
    return np.asarray(0.5 * x.sum(axis=1) ** 2 / 4 - 0.5 * np.log(4))


def defined(spec: Path) -> Any:
    names: dict[str, Any] = {}
    exec(spec.read_text(), names)
    return names["models"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clean")
    spec = spec_file(path, SPEC)
    done("simulate", spec, "--n", 12_000, "--seed", 1, "--out", path / "clean.zarr", "--quiet")
    done("simulate", spec, "--n", 12_000, "--seed", 1, "--out", path / "clean.npz", "--quiet")
    done("simulate", spec, "--n", 4_000, "--seed", 3, "--out", path / "fresh.zarr", "--quiet")
    return path


@pytest.fixture(scope="module")
def net(folder: Path) -> Path:
    out = folder / "net.evnet"
    done("train", folder / "clean.zarr", "--models", folder / "models.py", *TRAINING, "--out", out)
    return out


def test_clean_draws_are_trained_on_as_in_python(folder: Path, net: Path) -> None:
    models = defined(folder / "models.py")
    trained = en.load(net)
    x = np.asarray(en.simulate(models, 2_000, seed=5, progress=False).x)
    found = trained.log_bayes_factor(x)
    # Both are small, and read into memory, so a file of the same draws gives the same network.
    out = folder / "from-npz.evnet"
    done("train", folder / "clean.npz", "--models", folder / "models.py", *TRAINING, "--out", out)
    np.testing.assert_array_equal(en.load(out).log_bayes_factor(x), found)
    in_python = en.train(
        folder / "clean.npz",
        models=models,
        members=1,
        recipe=en.Recipe(epochs=4),
        seed=2,
        progress=False,
    )
    np.testing.assert_array_equal(in_python.log_bayes_factor(x), found)
    # A network that saw the clean draws alone would be far off: they are constant in x.
    assert np.sqrt(np.mean((found - exact(x)) ** 2)) < 0.25 * np.std(exact(x))
    record = json.loads(Path(f"{net}.run.json").read_text())["run"]
    assert record["arguments"]["models"] == str(folder / "models.py")
    assert record["spec"] == SPEC


def test_a_store_larger_than_the_sample_is_streamed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "SAMPLE_DRAWS", 4_000)
    arguments = ("train", folder / "clean.zarr", "--models", folder / "models.py", *TRAINING)
    done(*arguments, "--out", tmp_path / "net.evnet")
    trained = en.load(tmp_path / "net.evnet")
    # A quarter of the sample is held out, at most; all others are trained on, in whole batches.
    assert 12_000 - 1_000 - trained.history.batch < trained.history.draws <= 12_000 - 1_000
    x = np.asarray(en.simulate(defined(folder / "models.py"), 2_000, seed=5, progress=False).x)
    assert np.sqrt(np.mean((trained.log_bayes_factor(x) - exact(x)) ** 2)) < 0.25 * np.std(exact(x))
    python = en.train(
        folder / "clean.zarr",
        models=defined(folder / "models.py"),
        members=1,
        recipe=en.Recipe(epochs=4),
        seed=2,
        progress=False,
    )
    np.testing.assert_array_equal(python.log_bayes_factor(x), trained.log_bayes_factor(x))


def test_validate_and_report(folder: Path, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, spec = folder / "fresh.zarr", folder / "models.py"
    check = en.validate(en.load(net), fresh, models=defined(spec))
    result = run("validate", net, fresh, "--models", spec, "--json", "--quiet")
    said = json.loads(result.stdout)
    assert result.exit_code == (0 if check.passed else 3)
    assert [test["p_value"] for test in said["turing_good"]] == [test.p_value for test in check.moments]
    assert said["draws"] == [2_000, 2_000]
    # The draws of the training are noticed by their clean parts, whatever noise they have.
    again = run("validate", net, folder / "clean.zarr", "--models", spec)
    assert again.exit_code == 3
    assert "were used in training" in again.stdout
    page = folder / "report.html"
    done("report", net, fresh, "--models", spec, "--out", page, "--quiet")
    assert "4,000" in page.read_text()
    monkeypatch.setattr(over_store, "_MOST_DRAWS", 1_000)
    said = json.loads(run("validate", net, fresh, "--models", spec, "--json", "--quiet").stdout)
    assert said["draws"] == [500, 500]


def test_fresh_draws(folder: Path, tmp_path: Path) -> None:
    spec, out = folder / "models.py", tmp_path / "net.evnet"
    about = parsed("train", "--models", spec, "--draws", "2e4", "--members", 1, "--epochs", 2, "--out", out)
    assert about["names"] == ["flat", "level"]
    assert about["run"]["arguments"]["draws"] == 20_000
    net = en.load(out)
    x = np.asarray(en.simulate(defined(spec), 2_000, seed=5, progress=False).x)
    assert np.sqrt(np.mean((net.log_bayes_factor(x) - exact(x)) ** 2)) < 0.3 * np.std(exact(x))


def test_several_stores(folder: Path, tmp_path: Path) -> None:
    spec = spec_file(tmp_path)
    stores = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for seed, store in enumerate(stores):
        done("simulate", spec, "--n", 3_000, "--seed", seed, "--out", store, "--quiet")
    done("train", *stores, *TRAINING, "--out", tmp_path / "net.evnet")
    # A tenth of the draws of both is held out.
    history = en.load(tmp_path / "net.evnet").history
    assert 5_400 - history.batch < history.draws <= 5_400
    said = refused("train", stores[0], stores[0], *TRAINING, "--out", tmp_path / "twice.evnet")
    assert "hold the same draws" in said


def test_mistakes_name_what_was_wanted(folder: Path, net: Path, tmp_path: Path) -> None:
    clean, spec, out = folder / "clean.zarr", folder / "models.py", ("--out", tmp_path / "x.evnet")
    for draws in (clean, folder / "clean.npz"):
        assert "--models models.py on the command line" in refused("train", draws, *out)
        assert "--models models.py on the command line" in refused("validate", net, draws)
    other = tmp_path / "other"
    other.mkdir()
    turned = spec_file(other, SPEC.replace("[flat, level]", "[level, flat]"))
    assert "wanted the same models in the same order" in refused("train", clean, "--models", turned, *out)
    silent = spec_file(other, SPEC.replace("observe=noise", "observe=None"))
    assert "has no observe" in refused("train", clean, "--models", silent, *out)
    broken = spec_file(other, SPEC.replace("clean + rng", "oops + rng"))
    said = refused("train", clean, "--models", broken, *out)
    assert "line 6: return oops + rng" in said
    assert "there is no file" in refused("train", clean, "--models", tmp_path / "none.py", *out)
    assert not list(tmp_path.glob("x.evnet*"))
    for arguments, wanted in (
        ((), "Give SIMS, or --models and --draws"),
        (("--draws", 100), "Give --models too"),
        (("--models", spec), "Give SIMS, which the models observe, or --draws"),
        ((clean, "--models", spec, "--draws", 100), "give one of them"),
        (("--models", spec, "--draws", "half"), "not a whole number"),
    ):
        # A message is in a frame, which may break its lines.
        said = refused("train", *arguments, *out, code=2).replace("│ ", "")
        assert wanted in said, said
