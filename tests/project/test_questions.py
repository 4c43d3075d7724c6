"""The pages of docs/questions: their code runs from top to bottom, and prints what they show."""

from pathlib import Path

import pytest

from pages import DOCS, figures, run, words

PAGES = sorted((DOCS / "questions").glob("*.md"))


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
def test_pages_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    done = run(page, tmp_path)
    assert len(done) == text.count("```python")
    for program in done:
        assert words(program.printed) == words(program.shown)
    assert {path.name for path in tmp_path.iterdir()} == figures(text)
