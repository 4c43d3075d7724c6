"""The package as a whole: what importing it does, and which file may know which."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import evidencenet as en

ROOT = Path(en.__file__).parent

# A file imports only from files above it.
ORDER = [
    "_version",
    "provenance",
    "compiled",
    "notices",
    "progress",
    "wording",
    "estimate",
    "several",
    "data",
    "display",
    "models",
    "function_code",
    "chunks",
    "gathering",
    "storage",
    "containers",
    "tables",
    "store",
    "contents",
    "labels",
    "simulation_fields",
    "files",
    "simulation_parts",
    "simulations",
    "simulate",
    "losses",
    "waves",
    "layers",
    "networks",
    "scaling",
    "batches",
    "moments",
    "baseline",
    "coverage",
    "trust",
    "held_out",
    "reference",
    "densities",
    "observations",
    "checks",
    "training_checks",
    "recalibration",
    "novelty",
    "forward",
    "errors",
    "checkpoints",
    "recipe",
    "steps",
    "training",
    "choice",
    "plans",
    "comparison",
    "estimator",
    "prepare",
    "halves",
    "known",
    "saving",
    "train",
    "absolute",
    "absolute_saving",
    "validation",
    "alpha",
    "hypothesis",
    "predictive",
    "forecast",
    "design",
    "problems.problem",
    "problems._data",
    "problems._normal",
    "problems._quadrature",
    "problems.counts",
    "problems.gaussian",
    "problems.graphs",
    "problems.images",
    "problems.limits",
    "problems.linear",
    "problems.location",
    "problems.positive",
    "problems.rastrigin",
    "problems.sequences",
    "problems.sets",
    "problems.time_series",
    "problems.zoo",
    "problems",
    "rehearsal",
    "drawing",
    "plots",
    "extension_plots",
    "svg",
    "report_answer",
    "report_making",
    "report",
    "__init__",
    "demo",
    "cli.options",
    "cli.session",
    "cli.spec_file",
    "cli.observations",
    "cli.simulate",
    "cli.train",
    "cli.answers",
    "cli.worked",
    "cli",
    "__main__",
]

# Records offer to draw or to save themselves: these they import when asked.
ON_DEMAND = {"plots", "extension_plots", "saving", "absolute_saving"}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported(node: ast.AST) -> list[str]:
    """Which files of the package an import statement names."""
    if isinstance(node, ast.Import):
        targets = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written in full"
        if node.module == "evidencenet":
            targets = [
                f"evidencenet.{alias.name}" if alias.name in ORDER else "evidencenet" for alias in node.names
            ]
        else:
            targets = [node.module or ""]
    else:
        return []
    own = [target for target in targets if target.split(".")[0] == "evidencenet"]
    return [target.removeprefix("evidencenet.") if "." in target else "__init__" for target in own]


def dependencies(source: str) -> tuple[list[str], list[str]]:
    """What the source of a file imports on being imported, and inside its functions."""
    tree = ast.parse(source)
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside.update(ast.walk(node))
    at_once = [name for node in ast.walk(tree) if node not in inside for name in imported(node)]
    return at_once, [name for node in inside for name in imported(node)]


def breaches(name: str, source: str) -> list[str]:
    at_once, on_demand = dependencies(source)
    allowed = set(ORDER[: ORDER.index(name)])
    return [other for other in at_once if other not in allowed] + [
        other for other in on_demand if other not in allowed | ON_DEMAND
    ]


def test_every_file_has_its_place() -> None:
    assert len(ORDER) == len(set(ORDER))
    assert set(FILES) <= set(ORDER)


@pytest.mark.parametrize("name", FILES)
def test_files_know_only_files_above(name: str) -> None:
    assert breaches(name, FILES[name].read_text()) == []


def test_a_breach_is_noticed() -> None:
    assert breaches("losses", "from evidencenet import networks") == ["networks"]
    assert breaches("losses", "import evidencenet.networks") == ["networks"]
    assert breaches("losses", "import evidencenet as en") == ["__init__"]
    assert breaches("losses", "from evidencenet import Model") == ["__init__"]
    assert breaches("data", "from evidencenet.problems.sets import a") == ["problems.sets"]
    assert breaches("losses", "if a:\n    from evidencenet.train import train") == ["train"]
    assert breaches("losses", "def f():\n    from evidencenet.train import train") == ["train"]
    assert breaches("losses", "def f():\n    from evidencenet import plots") == []
    assert breaches("losses", "import numpy\nfrom evidencenet.data import Data") == []


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
