"""Run the command line in this process, and a tiny problem to run it on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from evidencenet.cli import app

# Three numbers with a common level, or none: log K is known, see `exact`.
SPEC = """
import numpy as np
import evidencenet as en

flat = en.Model("flat", lambda rng, n: rng.normal(size=(n, 3)))
level = en.Model(
    "level",
    prior=lambda rng, n: rng.normal(size=n),
    simulate=lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 3)),
)
models = [flat, level]
"""


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments: Any) -> str:
    """Run a command that must succeed, and return what it printed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def parsed(*arguments: Any) -> Any:
    return json.loads(done(*arguments, "--json", "--quiet"))


def refused(*arguments: Any, code: int = 1) -> str:
    """Run a command that must fail, and return what it said, as one line; standard output stays empty."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def spec_file(folder: Path, text: str = SPEC) -> Path:
    path = folder / "models.py"
    path.write_text(text, encoding="utf-8")
    return path


def exact(x: np.ndarray) -> np.ndarray:
    """Log K of level against flat: p(x | level) is normal with covariance 1 + 1 1ᵀ."""
    return 0.5 * x.sum(axis=1) ** 2 / 4 - 0.5 * np.log(4)
