"""The tutorial notebook: kept without what running it adds. `make docs` runs it."""

import ast
import json
from pathlib import Path

import evidencenet as en

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def test_it_is_kept_as_it_was_written() -> None:
    for cell in CELLS:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)
    assert NOTEBOOK.stat().st_size < 20_000


def test_it_uses_names_that_exist() -> None:
    tree = ast.parse("\n".join(CODE))
    named = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "en"
    }
    assert {"Model", "simulate", "train", "validate", "write_report", "load"} <= named
    assert all(hasattr(en, name) for name in named)


def test_it_begins_and_ends_with_words() -> None:
    assert CELLS[0]["cell_type"] == CELLS[-1]["cell_type"] == "markdown"
    assert "".join(CELLS[0]["source"]).startswith("# ")
