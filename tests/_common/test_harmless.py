"""Names from files are shown in one line, and move no cursor and turn no text."""

from pathlib import Path

import pytest

from evidencenet._common.harmless import harmless


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("a\r\tb", r"a\r\tb"),
        ("\x1b[2Ja", r"\x1b[2Ja"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u2066b\u200f", r"a\u2066b\u200f"),
        ("a\u200bb", r"a\u200bb"),
        ("a\u2028b", r"a\u2028b"),
        ("\ud800", r"\ud800"),
        ("é½µ 模型 עברית", "é½µ 模型 עברית"),
        ("e\u0301", "e\u0301"),
        ("a\u00a0b\u3000c", "a\u00a0b\u3000c"),
        ("👩\u200d🔬 می\u200cخواهم", "👩\u200d🔬 می\u200cخواهم"),
        ("a'b\"c\\", "a'b\"c\\"),
        (3, "3"),
        (Path("x\n.npz"), r"x\n.npz"),
        ("a" * 300, "a" * 200 + "..."),
    ],
)
def test_names(name: object, shown: str) -> None:
    assert harmless(name) == shown
    assert "\n" not in harmless(name)
