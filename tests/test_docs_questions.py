"""The pages of docs/questions: their code runs from top to bottom, and prints what they show."""

import contextlib
import io
import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

DOCS = Path(__file__).parents[1] / "docs" / "questions"
PAGES = sorted(DOCS.glob("*.md"))


def blocks(page: str) -> list[tuple[str, str]]:
    """Each block of code, and the output that is shown under it."""
    return re.findall(r"```python\n(.*?)```\n\s*```text\n(.*?)```", page, flags=re.DOTALL)


def words(text: str) -> list[str]:
    """Text without its numbers, which differ from machine to machine in their last figures."""
    return re.sub(r"[-−]?\d[\d,.]*(e-\d+)?", "#", text).split()


def test_there_is_a_page_for_each_question() -> None:
    names = {page.stem for page in PAGES}
    assert names >= {
        "new-prior",
        "failed-draws",
        "hypothesis-test",
        "predictive-test",
        "forecast",
        "several-observations",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text()
    found = blocks(text)
    assert len(found) == text.count("```python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    with matplotlib.rc_context({"backend": "agg"}):
        for code, shown in found:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, str(page), "exec"), names)
            assert words(out.getvalue()) == words(shown)
        pyplot.close("all")
    figures = {Path(name).name for name in re.findall(r"\]\((figures/[^)]*)\)", text)}
    assert {path.name for path in tmp_path.iterdir()} == figures
    for name in figures:
        assert (DOCS / "figures" / name).is_file()
    for target in re.findall(r"\]\(([^)#:]*\.md)\)", text):
        assert (DOCS / target).is_file()


def test_a_wrong_output_is_noticed() -> None:
    assert words("log K = -1.23 ± 0.05, exact") == words("log K = 0.9 ± 0.123, exact")
    assert words("log K = 1.2 (natural log)") != words("log K = 1.2")
