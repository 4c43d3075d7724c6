"""Warnings and the log: what is said beside results, and how to turn it off."""

import ast
import logging
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet._common import warnings as notices

ROOT = Path(en.__file__).parent
CATEGORIES = [value for value in vars(notices).values() if isinstance(value, type)]


def test_all_are_of_one_kind_and_have_names_of_their_own() -> None:
    assert len(CATEGORIES) >= 4
    for category in CATEGORIES:
        assert issubclass(category, en.EvidenceWarning)
        assert category.__name__.endswith("Warning")
        assert getattr(en, category.__name__) is category
        assert category.__doc__
    assert issubclass(en.EvidenceWarning, UserWarning)


def uncategorised(source: str) -> list[int]:
    """Lines at which a warning is given without a category of ours."""
    ours = {category.__name__ for category in CATEGORIES}
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            given = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "category")]
            if not any(ast.unparse(category).split(".")[-1] in ours for category in given):
                lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_warning_has_a_category(path: Path) -> None:
    assert uncategorised(path.read_text()) == []


def test_a_warning_without_category_is_noticed() -> None:
    assert uncategorised("warnings.warn('a')\nwarnings.warn('a', UserWarning)") == [1, 2]
    assert uncategorised("warnings.warn('a', TrustWarning, stacklevel=2)") == []
    assert uncategorised("warnings.warn('a', category=notices.TrustWarning)") == []


def few(sims: en.Simulations) -> en.Simulations:
    return sims.reweight("b", lambda theta: -50 * (theta - 3.0) ** 2)


def test_one_filter_is_enough() -> None:
    models = [
        en.Model("a", lambda rng, n: rng.normal(size=(n, 2))),
        en.Model(
            "b",
            prior=lambda rng, n: rng.normal(size=n),
            simulate=lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 2)),
        ),
    ]
    sims = en.simulate(models, 2000, seed=1, keep_parameters=True, progress=False)
    with pytest.warns(en.EffectiveSizeWarning, match="1,000 draws of model 'b' are worth only"):
        few(sims)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=en.EvidenceWarning)
        assert few(sims).log_weight is not None


def test_recalibration_that_does_not_help(small: Case) -> None:
    held = small.net.held_out
    # Labels drawn by the network's own probabilities leave nothing to mend. Still the score improves by two
    # errors now and then, by chance: in 2 of the first 24 sets of labels, of which this is not one.
    rng = np.random.default_rng(2)
    x = np.concatenate([np.asarray(small.fresh.x), np.asarray(small.sims.x)])
    chance = small.net.probabilities(x)[:, 1]
    own = en.Simulations(x, (rng.random(len(x)) < chance).astype(int), small.net.names)
    with pytest.warns(en.RecalibrationWarning, match="The network stays as it was"):
        assert small.net.recalibrate(own) is small.net
    assert small.net.held_out is held


def test_the_log_is_silent_unless_asked() -> None:
    log = logging.getLogger("evidencenet")
    assert log.level == logging.NOTSET
    assert any(isinstance(handler, logging.NullHandler) for handler in log.handlers)
    code = "import evidencenet, logging; logging.getLogger('evidencenet').error('not asked for')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("", "")


def failing(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.normal(size=(n, 2))
    return np.where(x[:, :1] > 1.0, np.nan, x)


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_failed_draws_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    models = [en.Model("whole", lambda rng, n: rng.normal(size=(n, 2))), en.Model("part", failing)]
    with caplog.at_level(logging.INFO, logger="evidencenet"):
        sims = en.simulate(models, 2000, seed=1, progress=False)
    (record,) = [one for one in caplog.records if one.name == "evidencenet"]
    assert record.levelno == logging.WARNING
    # Failures in the last chunk after the last draw that was kept are logged, but are none of the result.
    lost, drawn = (int(number) for number in re.findall(r"\d+", record.message)[:2])
    assert lost >= sims.failed[1] > 100
    assert drawn >= sims.drawn[1]
    assert record.message.startswith("model 'part':")
    assert "NaN or infinity in x" in record.message
    assert sims.failed[0] == 0


def test_the_choice_of_a_plan_is_logged(caplog: pytest.LogCaptureFixture, small: Case) -> None:
    with caplog.at_level(logging.INFO, logger="evidencenet"):
        # All but the scaling of the data is named, so that little is tried.
        named = {"network": en.networks.Dense(), "loss": en.losses.Logistic(), "baseline": False}
        net = en.train(small.sims, members=1, learn_error=False, seed=1, progress=False, **named)  # type: ignore[arg-type]
    assert net.choice is not None
    (record,) = [one for one in caplog.records if one.name == "evidencenet"]
    assert record.levelno == logging.INFO
    assert record.message.startswith(
        f"training {net.choice.taken}, the best of {len(net.choice.trials)} tried"
    )
