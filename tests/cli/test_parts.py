"""An array of jobs on the command line: simulate --part, and status."""

import json
from pathlib import Path

import numpy as np

import evidencenet as en
from command import done, parsed, refused, run, spec_file


def test_an_array_of_jobs(tmp_path: Path) -> None:
    spec, out = spec_file(tmp_path), tmp_path / "draws.zarr"
    options = ("--n", "600", "--seed", 4, "--out", out, "--quiet")
    said = done("simulate", spec, "--part", "2/3", *options)
    assert "not complete, 200 of 600 draws" in said
    unfinished = run("status", out)
    assert unfinished.exit_code == 5
    assert "2 not begun (1,3)" in unfinished.stdout
    assert "not drawn yet of flat: draws 0 to 99" in unfinished.stdout
    assert not Path(f"{out}.run.json").exists()
    done("simulate", spec, "--part", "3/3", *options)
    last = json.loads(done("simulate", spec, "--part", "1/3", "--json", *options))
    assert last["complete"]
    assert last["run"]["arguments"]["part"] == "1/3"
    assert "complete, 600 of 600 draws" in done("status", out)
    assert "all chunks intact" in done("status", out, "--check")
    found = json.loads(done("status", out, "--json"))
    assert [job["state"] for job in found["jobs"]] == ["done"] * 3
    done("simulate", spec, "--n", "600", "--seed", 4, "--out", tmp_path / "alone.zarr", "--quiet")
    alone = en.Simulations.read(tmp_path / "alone.zarr")
    np.testing.assert_array_equal(en.Simulations.read(out).x, alone.x)


def test_what_jobs_are_refused(tmp_path: Path) -> None:
    spec, out = spec_file(tmp_path), tmp_path / "draws.zarr"
    for part, where, more, message in (
        ("0/3", out, (), "parts are counted from 1 to 3"),
        ("three", out, (), "part must be two numbers"),
        (
            "1/3",
            tmp_path / "draws.npz",
            (),
            "--part needs a folder that all jobs fill, such as --out dra",
        ),
        ("1/3", out, ("--force",), "--part and --force cannot go together"),
    ):
        said = refused("simulate", spec, "--n", 100, "--part", part, "--out", where, *more)
        assert message in said
    assert "there is no store" in refused("status", tmp_path / "none.zarr")


def test_processes_and_a_time_limit(tmp_path: Path) -> None:
    """The models of the file travel to the processes, with what they use of the file."""
    text = """
import time
import evidencenet as en

LIMIT = 1.0

def draw(rng):
    x = rng.normal()
    if x > LIMIT:
        time.sleep(3600 if x > 1.5 else 0)
    return x

models = [en.Model("a", draw, kind="one"), en.Model("b", lambda rng, n: rng.normal(size=(n, 1)))]
"""
    spec, out = spec_file(tmp_path, text), tmp_path / "draws.npz"
    assert "--timeout needs --processes" in refused("simulate", spec, "--n", 40, "--timeout", 1, "--out", out)
    options = ("--seed", 2, "--processes", "--timeout", 0.5, "--out", out)
    found = parsed("simulate", spec, "--n", 40, *options)
    assert found["failed"][0] > 0
    x = np.asarray(en.Simulations.read(out).of("a"))
    assert len(x) == 20
    assert x.max() < 1.5
