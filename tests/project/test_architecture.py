"""The picture of docs/architecture.md: it shows the code as it is now."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
REDRAW = "The picture is out of date: run `python docs/architecture.py` and commit docs/figures."


@pytest.fixture(scope="module")
def architecture() -> Any:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FIGURES / "architecture.json").read_text(encoding="utf-8"))
    return content


def test_rooms_files_and_imports_are_those_of_the_code(architecture: Any, data: dict[str, Any]) -> None:
    described = architecture.describe()
    assert {key: data[key] for key in described} == described, REDRAW


def test_a_room_imports_only_from_rooms_above_it(data: dict[str, Any]) -> None:
    order = list(data["rooms"])
    assert order[0] == "_common"
    assert order[-1] == "cli"
    pairs = [(importer, used) for importer, targets in data["imports"].items() for used in targets]
    assert len(pairs) > 20
    assert [pair for pair in pairs if order.index(pair[1]) >= order.index(pair[0])] == []


def test_the_picture_is_drawn_from_the_data(architecture: Any, data: dict[str, Any]) -> None:
    picture = (FIGURES / "architecture.svg").read_text(encoding="utf-8")
    assert architecture.draw(data) == picture, REDRAW
    # The check sees a file that was moved.
    moved = json.loads(json.dumps(data))
    moved["rooms"]["checks"]["files"].append(moved["rooms"]["training"]["files"].pop())
    assert architecture.draw(moved) != picture


def test_calls_run_the_files_shown(data: dict[str, Any]) -> None:
    """In a process of its own: what JAX has compiled once does not run again."""
    program = "import json, architecture; print(json.dumps(architecture.calls()))"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", program],
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        check=True,
    )
    files = {call: sorted(files) for call, files in json.loads(done.stdout.splitlines()[-1]).items()}
    assert files == {call: sorted(files) for call, files in data["calls"].items()}, REDRAW
    assert "simulation/draw" in files["simulate"]
    assert "training/loop" in files["train"]
    assert "training/loop" not in files["compare"]


def test_the_recorder_counts_returns_and_callbacks(architecture: Any, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "home.py").write_text(
        "from package.other import apply, nothing\n\n\n"
        "def main():\n    nothing()\n    apply(square)\n    return nothing()\n\n\n"
        "def square(x):\n    return x * x\n"
    )
    (package / "other.py").write_text("def nothing():\n    pass\n\n\ndef apply(f):\n    f(2)\n    f(3)\n")
    sys.path.insert(0, str(tmp_path))
    try:
        from package.home import main  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
    recorder = architecture.Recorder(package, "home")
    with recorder:
        main()
    assert recorder.files == ["home", "other"]
    # Control comes back in each of the three lines of `main`, and `other` calls `square` twice.
    assert dict(recorder.returns) == {5: 1, 6: 1, 7: 1}
    assert dict(recorder.callbacks) == {10: 2}


def test_every_room_is_in_the_text(data: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [room for room in data["rooms"] if not re.search(rf"`{room}(\.py)?`", text)] == []
