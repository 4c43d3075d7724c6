"""The package as a whole: what importing it does, and what it publishes."""

import json
import subprocess
import sys
from pathlib import Path

import evidencenet as en

ROOT = Path(en.__file__).parent

IMPORT = """
import json, os, sys, threading
import jax
before = dict(os.environ), dict(jax.config.values)
threads = threading.active_count()
import evidencenet
after = dict(os.environ), dict(jax.config.values)
json.dump(
    {
        "loaded": [name for name in sys.argv[1:] if name in sys.modules],
        "same": before == after,
        "threads": threading.active_count() - threads,
    },
    sys.stdout,
)
"""


def test_importing_does_nothing_else(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    heavy = ["matplotlib", "pandas", "torch", "jinja2", "joblib", "rich.progress", "h5py", "zarr"]
    finished = subprocess.run(
        # -B: Python's own cache of compiled modules is no concern of ours.
        [sys.executable, "-B", "-c", IMPORT, *heavy],
        cwd=work,
        env={"HOME": str(home), "TMPDIR": str(work), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stderr == ""
    found = json.loads(finished.stdout)
    assert found["loaded"] == []
    assert found["same"]
    assert found["threads"] == 0
    assert [*home.rglob("*"), *work.rglob("*")] == []


def test_the_names_of_the_contract() -> None:
    for name in (
        "Model",
        "simulate",
        "Simulations",
        "train",
        "Recipe",
        "EvidenceNetwork",
        "validate",
        "coverage",
        "load",
        "losses",
        "networks",
        "problems",
    ):
        assert hasattr(en, name), name
    assert en.__version__.count(".") >= 2


def test_types_are_published() -> None:
    assert (ROOT / "py.typed").is_file()
