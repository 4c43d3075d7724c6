"""The documentation: code prints what is shown, commands exist, every page and name has its place."""

import ast
import json
import re
from pathlib import Path

import pytest

import evidencenet as en
from pages import DOCS, ROOT, commands, fault, figures, links, programs, run, words

PAGES = sorted(DOCS.rglob("*.md"))
NAMED = [str(page.relative_to(DOCS).with_suffix("")) for page in PAGES]
TEXT = {name: page.read_text(encoding="utf-8") for name, page in zip(NAMED, PAGES, strict=True)}
WITH_CODE = [name for name in NAMED if programs(TEXT[name])]
NAVIGATION = re.findall(r"([\w/.-]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", WITH_CODE)
def test_code_prints_what_is_shown(name: str, tmp_path: Path) -> None:
    done = run(DOCS / f"{name}.md", tmp_path)
    assert len(done) == TEXT[name].count("```python")
    for program in done:
        assert words(program.printed) == words(program.shown)
    shown = figures(TEXT[name])
    assert {path.name for path in tmp_path.glob("*.png")} == shown
    assert all((DOCS / name).with_name("figures").joinpath(figure).is_file() for figure in shown)


@pytest.mark.parametrize("name", [name for name in NAMED if commands(TEXT[name])])
def test_commands_exist(name: str) -> None:
    assert [fault(command) for command in commands(TEXT[name]) if fault(command)] == []


@pytest.mark.parametrize("name", NAMED)
def test_links_lead_to_other_pages(name: str) -> None:
    targets = [(DOCS / name).parent.joinpath(link).resolve() for link in links(TEXT[name])]
    assert [target for target in targets if not (target.is_file() and target.is_relative_to(DOCS))] == []


def test_formulae_need_no_script() -> None:
    notebook = (DOCS / "tutorial.ipynb").read_text(encoding="utf-8")
    assert [name for name, text in (TEXT | {"tutorial": notebook}).items() if "$$" in text] == []


def test_every_page_is_in_the_navigation() -> None:
    notebooks = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.ipynb")]
    assert sorted(NAVIGATION) == sorted([f"{name}.md" for name in NAMED] + notebooks)


def test_every_public_name_is_in_the_reference() -> None:
    listed = "\n".join(text for name, text in TEXT.items() if name.startswith("api/"))
    public = [getattr(en, name) for name in vars(en) if not name.startswith("_")]
    public += [getattr(en.problems, name) for name in vars(en.problems) if not name.startswith("_")]
    paths = [f"{item.__module__}.{item.__qualname__}" for item in public if hasattr(item, "__qualname__")]
    assert len(paths) > 40
    assert [path for path in paths if f"::: {path}\n" not in listed] == []


def test_the_site_asks_nothing_of_other_hosts() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "://" not in settings


def test_what_is_wrong_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('log K =', 1.5)\n```\n\n```text\nlog K = 2.25\n```\n")
    (program,) = run(page, tmp_path)
    assert words(program.printed) == words(program.shown)
    page.write_text("```python\nprint('log10 K =', 1.5)\n```\n\n```text\nlog K = 2.25\n```\n")
    (program,) = run(page, tmp_path)
    assert words(program.printed) != words(program.shown)
    page.write_text("```python\nprint(1)\n```\n\n```text\n$ evidencenet demo\n```\n")
    (program,) = run(page, tmp_path)
    assert program.shown == ""
    assert program.printed == "1\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("$ evidencenet train draws.zarr --out net.evnet | jq .", ""),
        ("$ make test && evidencenet guess net.evnet", "evidencenet has no command guess"),
        (
            "$ evidencenet compare net.evnet x.npy --hue=1",
            "evidencenet compare has no option --hue=1",
        ),
        ("$ make coffee", "make has no target coffee"),
        ("$ python examples/nothing.py", "there is no examples/nothing.py"),
    ],
)
def test_commands_that_do_not_exist_are_noticed(line: str, complaint: str) -> None:
    found = [fault(command) for command in commands(f"```text\n{line}\nits output\n```\n")]
    assert "".join(found) == complaint


# --- The tutorial notebook -------------------------------------------------------------------------------


NOTEBOOK = DOCS / "tutorial.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def test_the_tutorial_is_kept_without_what_running_it_adds() -> None:
    for cell in CELLS:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)
    assert NOTEBOOK.stat().st_size < 20_000


def test_the_tutorial_uses_names_that_exist() -> None:
    tree = ast.parse("\n".join(CODE))
    named = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "en"
    }
    assert {"Model", "simulate", "train", "validate", "write_report", "load"} <= named
    assert all(hasattr(en, name) for name in named)


def test_the_tutorial_begins_and_ends_with_words() -> None:
    assert CELLS[0]["cell_type"] == CELLS[-1]["cell_type"] == "markdown"
    assert "".join(CELLS[0]["source"]).startswith("# ")


# --- Pages of questions ----------------------------------------------------------------------------------


def test_there_is_a_page_for_each_question() -> None:
    names = {page.stem for page in PAGES if page.parent.name == "questions"}
    assert names >= {
        "new-prior",
        "failed-draws",
        "hypothesis-test",
        "predictive-test",
        "forecast",
        "several-observations",
    }
