"""Records shown elsewhere than as text: HTML for notebooks, plain values for JSON, data frames."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet._common.harmless import harmless, harmless_text, listed

if TYPE_CHECKING:
    import pandas

# These colours can be read on white and on black. The text has the notebook's own colour.
_MARKS = {"pass": "#2a9d68", "warn": "#c77700", "fail": "#d6404f"}
# So many names are listed in full.
_MOST_NAMED = 8
_CELL = "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;background:none;border:none"


def card(
    title: str,
    rows: Sequence[tuple[str, str]],
    *,
    marks: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return a small table as HTML that needs nothing else; all text is escaped.

    Parameters
    ----------
    title
        The heading.
    rows
        Row label and text.
    marks
        "pass", "warn" or "fail" for each row, shown in colour before it.
    notes
        Warnings under the table.

    Examples
    --------
    >>> "&lt;b&gt;" in card("title", [("name", "<b>")])
    True
    """
    lines = [f'<div style="line-height:1.4;max-width:60em"><strong>{_escaped(title)}</strong>', "<table>"]
    for (name, text), mark in zip(rows, marks or [""] * len(rows), strict=True):
        shown = _escaped(name)
        if mark:
            shown = f'<b style="color:{_MARKS[mark]}">{mark}</b> {shown}'
        lines.append(
            f'<tr style="background:none"><th scope="row" style="{_CELL};font-weight:normal;'
            f'white-space:nowrap">{shown}</th><td style="{_CELL}">{_escaped(text)}</td></tr>'
        )
    lines.append("</table>")
    for note in notes:
        style = f"border-left:.25em solid {_MARKS['warn']};padding-left:.6em;margin:.4em 0"
        lines.append(f'<p style="{style}"><b>Warning:</b> {_escaped(note)}</p>')
    return "\n".join([*lines, "</div>"])


def _escaped(text: str) -> str:
    """Return text as HTML shows it; what would turn or hide the text after it is written out."""
    return escape(harmless_text(text, one_line=True))


def named(thing: Any) -> str:
    """Name a function or an object, without its address in memory.

    Examples
    --------
    >>> named(len), named(lambda x: x), named(object())
    ('len', 'a lambda', 'object')
    """
    name = getattr(thing, "__name__", None)
    if name is not None:
        return "a lambda" if name == "<lambda>" else str(name)
    return repr(thing) if is_dataclass(thing) else type(thing).__name__


def listed_names(names: Sequence[str]) -> str:
    """List names, the middle ones left out if they are many.

    Examples
    --------
    >>> listed_names([f"x{i}" for i in range(20)])
    'x0, x1, x2, x3, x4, x5, x6, …, x19 (20 in all)'
    """
    if len(names) <= _MOST_NAMED:
        return listed(names)
    return f"{listed(names[: _MOST_NAMED - 1])}, …, {harmless(names[-1])} ({len(names)} in all)"


def plain(value: Any) -> Any:
    """Return arrays and numbers as JSON has them: lists, floats, and None for NaN and infinity.

    Examples
    --------
    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), "c")})
    {'a': [1.0, None], 'b': [2, 'c']}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def by_row(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turn columns of equal length into rows.

    Examples
    --------
    >>> by_row({"a": [1, 2], "b": [3, 4]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def frame(rows: Sequence[Mapping[str, Any]], index: str) -> "pandas.DataFrame":
    """Return rows as a pandas data frame, with one of the columns as index."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "to_dataframe needs pandas, which is not installed: pip install pandas. "
            "to_dict() gives the same numbers without it."
        ) from error
    return pandas.DataFrame(list(rows), columns=None if rows else [index]).set_index(index)
