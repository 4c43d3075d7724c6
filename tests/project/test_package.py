"""The package as a whole: what importing it does, and what it publishes."""

import functools
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case

ROOT = Path(en.__file__).parent

IMPORT = """
import json, os, sys, threading, time
start = time.process_time()
import equinox, jax, optax, scipy.linalg, scipy.optimize, scipy.special
libraries = time.process_time() - start
before = dict(os.environ), dict(jax.config.values)
threads = threading.active_count()
start = time.process_time()
import evidencenet
own = time.process_time() - start
after = dict(os.environ), dict(jax.config.values)
start = time.process_time()
import matplotlib.pyplot, pandas
heavy = time.process_time() - start
json.dump(
    {
        "loaded": [name for name in sys.argv[1:] if name in sys.modules],
        "same": before == after,
        "threads": threading.active_count() - threads,
        "seconds": {"libraries": libraries, "own": own, "heavy": heavy},
    },
    sys.stdout,
)
"""


def test_importing_does_nothing_else(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    heavy = ["matplotlib", "pandas", "torch", "jinja2", "joblib", "rich.progress", "h5py", "zarr"]
    program = IMPORT.replace("import matplotlib.pyplot, pandas\n", "")
    finished = subprocess.run(
        # -B: Python's own cache of compiled modules is no concern of ours.
        [sys.executable, "-B", "-c", program, *heavy],
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


def test_importing_takes_little_beside_the_libraries() -> None:
    """In seconds of the processor, and as a part of what the libraries take: both hold on a busy machine."""
    finished = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    seconds = json.loads(finished.stdout)["seconds"]
    # Measured: 0.35 of it, of which nearly all is to define the classes of some 160 files.
    assert seconds["own"] < 0.5 * seconds["libraries"]
    # Figures and tables, if they came along, would be noticed.
    assert seconds["own"] + seconds["heavy"] > 0.5 * seconds["libraries"]


# --- The contract ------------------------------------------------------------------------------------------


def _train(
    sims=None,
    *,
    models=None,
    draws=None,
    loss=None,
    network=None,
    members=4,
    recipe=None,
    augment=None,
    seed=0,
    progress=True,
    checkpoint=None,
) -> None:
    """What is promised of `train`."""


# What a user may rely on: the names of arguments, their order, which of them are keywords, and defaults.
CONTRACT: dict[str, Callable[..., None]] = {
    "Model": lambda name, simulate=None, *, prior=None, observe=None: None,
    "simulate": lambda models, n, *, seed=0, fractions=None, store=None, progress=True: None,
    "Simulations": lambda x, model=None, names=None, *, log_weight=None, columns=None, missing=None: None,
    "Simulations.read": lambda path, *, names=None: None,
    "train": _train,
    "Recipe": lambda epochs=None, batch=None, learning_rate=1e-2: None,
    "Recipe.paper": lambda: None,
    "EvidenceNetwork.log_bayes_factor": lambda self, x, *, model=None, against=None: None,
    "EvidenceNetwork.members": lambda self, x: None,
    "EvidenceNetwork.error": lambda self, x: None,
    "EvidenceNetwork.probabilities": lambda self, x, prior=None: None,
    "EvidenceNetwork.compare": lambda self, x, prior=None: None,
    "EvidenceNetwork.save": lambda self, path: None,
    "validate": lambda net, sims: None,
    "Validation.plot": lambda self: None,
    "coverage": lambda log_k, labels: None,
    "write_report": lambda path, net, check=None, answer=None: None,
    "load": lambda path: None,
    "problems.time_series": lambda dim=100: None,
    "problems.rastrigin": lambda dim=2: None,
    "absolute_evidence": lambda model, n: None,
    "Evidence.log_evidence": lambda self, x: None,
    "hypothesis_test": lambda net, sims: None,
    "HypothesisTest.p_value": lambda self, x: None,
    "HypothesisTest.threshold": lambda self, size: None,
    "HypothesisTest.power": lambda self, size: None,
    "predictive_test": lambda models, keep, n=None: None,
    "losses.LPopExponential": lambda alpha=2.0: None,
}


def kept(promised: Callable[..., Any], actual: Callable[..., Any]) -> bool:
    """Whether every call that was promised is understood as promised; more options may follow."""
    wanted, given = (list(inspect.signature(function).parameters.values()) for function in (promised, actual))
    known = {argument.name: argument for argument in given}
    places = [argument.name for argument in given if argument.kind is argument.POSITIONAL_OR_KEYWORD]
    for place, argument in enumerate(wanted):
        other = known.get(argument.name)
        if other is None or (argument.default, argument.kind) != (other.default, other.kind):
            return False
        if argument.kind is argument.POSITIONAL_OR_KEYWORD and places.index(argument.name) != place:
            return False
    named = {argument.name for argument in wanted}
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return all(
        argument.name in named or argument.kind in optional or argument.default is not argument.empty
        for argument in given
    )


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_is_kept(name: str) -> None:
    actual = functools.reduce(getattr, name.split("."), en)
    assert kept(CONTRACT[name], actual), f"{name}{inspect.signature(actual)}"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("actual", "holds"),
    [
        (lambda x, names=None, *, seed=0: None, True),
        (lambda x, names=None, more=1, *, seed=0, other="": None, True),
        (lambda names=None, x=None, *, seed=0: None, False),
        (lambda x, more=1, names=None, *, seed=0: None, False),
        (lambda x, names=(), *, seed=0: None, False),
        (lambda x, names=None, *, seed=1: None, False),
        (lambda x, names=None, seed=0: None, False),
        (lambda x, *, names=None, seed=0: None, False),
        (lambda x, names=None, *, key=0: None, False),
        (lambda x, names=None, *, seed=0, other: None, False),
    ],
)
def test_a_contract_that_is_broken_is_noticed(actual: Callable[..., Any], holds: bool) -> None:
    assert kept(lambda x, names=None, *, seed=0: None, actual) == holds


def test_the_parts_of_answers(small: Case) -> None:
    answer, check = small.net.compare(np.asarray(small.fresh.x)[0]), en.validate(small.net, small.fresh)
    for record, names in (
        (answer, ("log_k", "error", "probabilities", "range", "novelty", "warnings")),
        (check, ("coverage", "score", "range", "passed")),
        (small.problem, ("models", "log_bayes_factor", "augment")),
        (en, ("losses", "networks", "problems")),
    ):
        assert [name for name in names if not hasattr(record, name)] == []


def test_types_are_published() -> None:
    assert (ROOT / "py.typed").is_file()
    assert en.__version__.count(".") >= 2
