"""Records outside the terminal: HTML, plain values, data frames."""

import json
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet.display import card, frame, plain


class Whole(HTMLParser):
    """Complains about tags that do not match; keeps tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_card_is_escaped_and_whole() -> None:
    hostile = '<script>alert("&")</script>'
    page = card(hostile, [(hostile, hostile), (f"fail {hostile}", "a < b")], notes=[hostile])
    found = Whole(page)
    assert found.tags == {"div", "strong", "table", "tr", "th", "td", "b", "p"}
    assert "".join(found.words).count(hostile) == 5
    assert "http" not in page
    # The text has the notebook's own colour, light or dark: only marks are coloured.
    assert page.replace("background:none", "").count("color:") == 1


def test_marks() -> None:
    page = card("t", [("pass a", "x"), ("warn b", "x"), ("fail c", "x"), ("passing d", "x")])
    assert [page.count(f">{mark}</b>") for mark in ("pass", "warn", "fail", "passing")] == [1, 1, 1, 0]


def test_plain() -> None:
    values = {
        "numbers": np.array([1.0, np.inf, np.nan]),
        "flags": (np.bool_(True), False),
        "deep": [{"a": np.float32(0.5)}, None, "text", 3],
        "scalar": np.array(2.5),
    }
    found = plain(values)
    assert found == {
        "numbers": [1.0, None, None],
        "flags": [True, False],
        "deep": [{"a": 0.5}, None, "text", 3],
        "scalar": 2.5,
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_frame_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install pandas.*to_dict\(\) gives the same numbers"):
        frame([{"a": 1}], "a")


@pytest.mark.parametrize("name", ["series", "three"])
def test_records_show_themselves(name: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    answer = case.net.compare(np.asarray(case.fresh.x)[0])
    check = en.validate(case.net, case.fresh)
    for record in (answer, check):
        words = "".join(Whole(record._repr_html_()).words)
        assert all(model in words for model in record.names[1:])
        assert "nan" not in words
        text = json.dumps(record.to_dict(), allow_nan=False)
        assert json.loads(text)["names"] == list(case.net.names)
    table = answer.to_dataframe()
    assert list(table.index) == list(case.net.names)
    np.testing.assert_array_equal(table["probability"], answer.probabilities)
    assert table["log_k"].iloc[0] == 0
    assert table["log_k"].iloc[-1] == np.ravel(answer.log_k)[-1]
    checks = check.to_dataframe()
    assert list(checks.index) == [one.name for one in check.checks]
    assert set(checks["verdict"]) <= {"pass", "warn", "fail"}
    told = check.to_dict()
    assert told["passed"] == check.passed
    assert told["score"]["value"] == check.score.value
    assert len(told["ranges"]) == len(case.net.names) - 1
