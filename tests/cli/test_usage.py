"""The command line before any work: help, options, the user's own Python file, worked problems."""

import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import evidencenet as en
from command import SPEC, done, parsed, refused, run, spec_file
from evidencenet import demo, losses
from evidencenet.cli import app, options
from evidencenet.cli.session import made_from, show
from evidencenet.cli.train import LossName, RecipeName, _loss, named_recipe

COMMANDS = ("simulate", "train", "validate", "compare", "deepen", "report", "problems", "demo")


def test_help() -> None:
    text = done("--help")
    for name in COMMANDS:
        assert f"\n  {name} " in text
        about = done(name, "--help")
        assert f"Examples:\n    evidencenet {name}" in about
        for option in ("--json", "--quiet", "--debug"):
            assert option in about
    assert "3    validate: a check failed" in text
    assert run().exit_code == 2
    assert done("--version") == f"evidencenet {en.__version__}\n"


def test_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_EVIDENCENET_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "evidencenet problems ras")
    monkeypatch.setenv("COMP_CWORD", "2")
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, [], prog_name="evidencenet")
    assert result.stdout.split() == ["rastrigin", "rastrigin_10"]


@pytest.mark.parametrize(("text", "value"), [("1e6", 10**6), ("1_000_000", 10**6), ("7", 7), ("2.5e3", 2500)])
def test_whole_numbers(text: str, value: int) -> None:
    assert options.whole(text) == value


@pytest.mark.parametrize("text", ["1.5", "many", "", "inf", "nan", "1e-3"])
def test_what_is_not_a_whole_number(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a whole number"):
        options.whole(text)


def test_lists() -> None:
    assert options.numbers("1, 2.5,3e-1", "--prior") == [1.0, 2.5, 0.3]
    assert options.numbers(None, "--prior") is None
    assert options.words("a, b c,d") == ["a", "b c", "d"]
    with pytest.raises(typer.BadParameter, match="list of numbers"):
        options.numbers("1;2", "--prior")


def test_sources(tmp_path: Path) -> None:
    assert options.sources(["a.npz"]) == "a.npz"
    assert options.sources(["a.npy", "b.npy"]) == ["a.npy", "b.npy"]
    assert options.sources(["M 0=a.npy", "M1=b=c.npy"]) == {"M 0": "a.npy", "M1": "b=c.npy"}
    odd = tmp_path / "a=b.npy"
    odd.touch()
    assert options.sources([str(odd)]) == str(odd)


def test_every_loss_of_numbers_has_a_name() -> None:
    for name in LossName:
        loss = _loss(name, None if name in ("squared", "cross-entropy", "exponential", "logistic") else 1.5)
        assert loss is not None
        about = losses.to_dict(loss)
        assert about["name"].lower() == name.replace("-", "")
        assert about.get("alpha", 1.5) == 1.5
    described = [
        kind.__name__
        for kind in vars(losses).values()
        if isinstance(kind, type) and issubclass(kind, losses.Loss) and kind is not losses.Loss
    ]
    assert len(LossName) == len(set(described) - {"LinkedExponential", "Asymmetric"})
    assert _loss(None, 1.5) == losses.LPopExponential(alpha=1.5)
    assert _loss(None, None) is None
    assert named_recipe(RecipeName.PAPER, None) == en.Recipe.paper()
    assert named_recipe(None, 3) == en.Recipe(epochs=3)
    assert named_recipe(None, None) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--loss", "polynomial"), "needs --alpha as well"),
        (("--loss", "logistic", "--alpha", "2"), "has no alpha"),
        (("--alpha", "0.2"), "alpha"),
        (("--loss", "hinge"), "hinge"),
        (("--members", "0"), "members"),
        (("--seed", "-1"), "seed"),
        (("--epochs", "0"), "epochs"),
    ],
)
def test_training_options(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    said = refused("train", "a.npz", "--out", tmp_path / "a.evnet", *arguments, code=2)
    assert message in said
    assert not list(tmp_path.iterdir())


SIMULATE: tuple[Any, ...] = ("--n", 100, "--out")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import numpy as np\n\nx = np.oops\n", "line 3: x = np.oops", "AttributeError"),
        ("import numpy\nx = (1,\n", "line 2", "SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit(3)\n", "line 2: sys.exit(3)", "SystemExit: 3"),
        ("def f():\n    raise ValueError('bad')\n\nf()\n", "line 2: raise ValueError('bad')", "bad"),
        ("import evidencenet as en\nm = en.Model('a', 3)\n", "line 2: m = en.Model('a', 3)", "got 3"),
        ("import beside_me_not\n", "line 1", "No module named 'beside_me_not'"),
    ],
)
def test_errors_of_the_users_file(tmp_path: Path, text: str, line: str, message: str) -> None:
    said = refused("simulate", spec_file(tmp_path, text), *SIMULATE, tmp_path / "x.npz")
    assert line in said
    assert message in said
    assert "evidencenet/" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["models.py"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not define `models`. Add a line such as: models = [first, second]"),
        (SPEC.replace("models = ", "others = "), "such as: models = [flat, level]"),
        ("models = 3", "is 3; wanted a list"),
        ("models = []", "is []; wanted a list"),
        ("models = ['flat']", "wanted a list of evidencenet.Model"),
    ],
)
def test_a_file_without_models(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused("simulate", spec_file(tmp_path, text), *SIMULATE, tmp_path / "x.npz")


def test_errors_while_drawing_tell_the_line(tmp_path: Path) -> None:
    text = SPEC.replace("rng.normal(size=(n, 3))", "rng.normal(size=(n, 3)) + oops")
    said = refused("simulate", spec_file(tmp_path, text), *SIMULATE, tmp_path / "x.npz")
    assert "line 5: flat = en.Model(" in said
    assert "model 'flat': 50 of 50 draws failed" in said
    assert "name 'oops' is not defined" in said
    unequal = SPEC.replace("size=(n, 3)", "size=(n, 4)")
    said = refused("simulate", spec_file(tmp_path, unequal), *SIMULATE, tmp_path / "x.npz")
    assert "must have the same keys, shapes and types" in said
    result = run("simulate", spec_file(tmp_path, text), *SIMULATE, tmp_path / "x.npz", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    for folder, size in (("one", 2), ("two", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "neighbour.py").write_text(f"size = {size}\n")
        text = "from neighbour import size\n" + SPEC.replace("3)", "size)")
        spec = spec_file(tmp_path / folder, text)
        about = parsed("simulate", spec, *SIMULATE, tmp_path / folder / "x.npz")
        assert about["shape"] == [size]


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("--n", "half"), "not a whole number", 2),
        (("--n", "100", "--fractions", "a,b"), "not a list of numbers", 2),
        (("--n", "100", "--fractions", "1,2,3"), "fractions must be 2 positive numbers", 1),
        (("--n", "1"), "less than the number of models", 1),
        (("--n", "100", "--workers", "0"), "workers", 1),
    ],
)
def test_simulation_options(tmp_path: Path, arguments: tuple[str, ...], message: str, code: int) -> None:
    spec = spec_file(tmp_path)
    assert message in refused("simulate", spec, "--out", tmp_path / "x.npz", *arguments, code=code)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    assert "there is no file" in refused("simulate", tmp_path / "no.py", *SIMULATE, tmp_path / "x.npz")
    (tmp_path / "binary.py").write_bytes(b"\0\1\2")
    said = refused("simulate", tmp_path / "binary.py", *SIMULATE, tmp_path / "x.npz")
    assert "binary.py" in said
    said = refused("simulate", spec_file(tmp_path), *SIMULATE, tmp_path / "x.fits")
    assert ".fits" in said


def test_problems_are_listed() -> None:
    lines = done("problems").splitlines()
    assert [line.split()[0] for line in lines] == list(en.problems.zoo())
    found = parsed("problems")["problems"]
    assert found["rastrigin"]["models"] == ["one mode", "many modes"]
    assert "Did you mean rastrigin" in refused("problems", "rastrign", code=2)


def test_demo_hands_over_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The demonstration itself is run in test_programs.
    given: dict[str, Any] = {}

    def main(**options: Any) -> float:
        given.update(options)
        Path(options["folder"]).mkdir()
        print("the demonstration speaks")
        return 0.01

    monkeypatch.setattr(demo, "main", main)
    sizes = ("--n", "2e4", "--dim", 20, "--seed", 5, "--out")
    assert done("demo", *sizes, tmp_path / "a") == "the demonstration speaks\n"
    assert given == {
        "draws": 20_000,
        "dim": 20,
        "seed": 5,
        "folder": str(tmp_path / "a"),
        "progress": True,
    }
    result = run("demo", *sizes, tmp_path / "b", "--json", "--quiet")
    assert json.loads(result.stdout)["rmse_log10_k"] == 0.01
    assert "speaks" in result.stderr
    assert given["progress"] is False


PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_commands_in_the_page_and_in_the_help_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [PAGE.read_text(encoding="utf-8"), done("--help"), *(done(name, "--help") for name in COMMANDS)]
    lines = re.findall(r"^\s*(?:\$ )?evidencenet (\w.*?)(?: [>|].*)?$", "\n".join(texts), re.M)
    assert len(lines) > 25
    for line in set(lines):
        arguments = shlex.split(line)
        if arguments[0] in ("demo", "problems"):
            arguments.append("--help")
        result = run(*arguments)
        # The files are not there, which is another matter than an option that is not.
        assert result.exit_code == (0 if "--help" in arguments else 1), (line, result.stderr)
        assert "--help" in arguments or "there is no file" in result.stderr, result.stderr


def test_letters_that_cannot_be_shown_are_escaped() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    show("½ \x1b[0m\n\ud800", stream)
    stream.seek(0)
    assert stream.read() == "\\xbd \\x1b[0m\n\\ud800\n"


def test_a_fault_of_ours_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zoo() -> None:
        raise KeyError("lost")

    monkeypatch.setattr(en.problems, "zoo", lambda: {"a": zoo})
    said = refused("problems")
    assert said == "Error: KeyError: 'lost'. Run it again with --debug to see where this happened."
    result = run("problems", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_ctrl_c(tmp_path: Path) -> None:
    spec = spec_file(tmp_path, "raise KeyboardInterrupt")
    said = refused("simulate", spec, *SIMULATE, tmp_path / "x.npz", code=130)
    assert said == "Stopped."


def test_a_hostile_record_is_passed_over(tmp_path: Path) -> None:
    records = {"deep": '{"run": ' + "[" * 100_000, "list": "[1]", "empty": "", "bad": '{"run": NaN'}
    for name, text in records.items():
        (tmp_path / f"{name}.run.json").write_text(text)
    os.mkfifo(tmp_path / "pipe.run.json")
    names = [*records, "pipe", "none"]
    assert made_from([str(tmp_path / name) for name in names]) == {str(tmp_path / n): None for n in names}
    (tmp_path / "good.run.json").write_text('{"run": {"seed": 1}}')
    assert made_from(tmp_path / "good") == {str(tmp_path / "good"): {"seed": 1}}
