"""Records outside the terminal: HTML for notebooks, plain values for JSON, data frames."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet.data import layout, layout_text, map_arrays

if TYPE_CHECKING:
    import pandas

# Told apart on white and on black alike; the text has the notebook's own colour.
_MARKS = {"pass": "#2a9d68", "warn": "#c77700", "fail": "#d6404f"}
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
        What is told, and the telling.
    marks
        "pass", "warn" or "fail" for each row, in colour before it.
    notes
        Warnings under the table.

    Examples
    --------
    >>> "&lt;b&gt;" in card("title", [("name", "<b>")])
    True
    """
    lines = [f'<div style="line-height:1.4;max-width:60em"><strong>{escape(title)}</strong>', "<table>"]
    for (name, text), mark in zip(rows, marks or [""] * len(rows), strict=True):
        shown = escape(name)
        if mark:
            shown = f'<b style="color:{_MARKS[mark]}">{mark}</b> {shown}'
        lines.append(
            f'<tr style="background:none"><th scope="row" style="{_CELL};font-weight:normal;'
            f'white-space:nowrap">{shown}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        )
    lines.append("</table>")
    for note in notes:
        style = f"border-left:.25em solid {_MARKS['warn']};padding-left:.6em;margin:.4em 0"
        lines.append(f'<p style="{style}"><b>Warning.</b> {escape(note)}</p>')
    return "\n".join([*lines, "</div>"])


def model_card(model: Any) -> str:
    """Return a `Model` as HTML."""
    rows = [("simulate", _named(model.simulate))]
    rows += [("prior", _named(model.prior))] if model.prior is not None else []
    how = {
        "batch": "many draws in a call",
        "one": "one draw in a call",
        "jax": "one draw in a call, compiled",
    }
    return card(f"Model {model.name}", [*rows, ("kind", f"{model.kind}: {how[model.kind]}")])


def simulations_card(sims: Any) -> str:
    """Return `Simulations` as HTML: one row a model."""
    rows = []
    for k, name in enumerate(sims.names):
        text = f"{sims.counts[k]:,} draws"
        if sims.failed[k]:
            text += f", and {sims.failed[k]:,} that failed ({1 - sims.valid_fraction[k]:.2g} of all)"
        if sims.log_weight is not None:
            text += f", worth {sims.effective_sample_size[k]:,.0f} of equal weight"
        rows.append((name, text))
    kept = () if sims.parameters is None else (("parameters", "kept"),)
    data = ("data", layout_text(layout(sims.x)))
    return card(f"{len(sims):,} draws of {len(sims.names)} models", [*rows, data, *kept])


def network_card(net: Any) -> str:
    """Return an `EvidenceNetwork` as HTML: what it compares, how it was trained, and how far it reaches."""
    example = layout(map_arrays(lambda array: array[None], net.example))
    rows = [("data", layout_text(example))]
    if net.densities is not None:
        rows.append(("known densities", known_densities(net)))
    if net.networks is not None:
        rows += _trained(net)
    for name, held in zip(net.names[1:], net.ranges, strict=True):
        ends = "none" if held.empty else f"{held.low:.2f} to {held.high:.2f} (natural log)"
        pair = f" of {name} against {net.names[0]}" if len(net.names) > 2 else ""
        rows.append(("confirmed log K", ends + pair))
    if net.recalibration:
        rows.append(("recalibrated", f"on {net.recalibration[-1].draws:,} draws"))
    several = f"{len(net.names)} models: {', '.join(net.names)}"
    compared = " against ".join(reversed(net.names)) if len(net.names) == 2 else several
    return card(f"Evidence network, {compared}", rows)


def _trained(net: Any) -> list[tuple[str, str]]:
    idle, start = int(np.sum(net.gain == 0)), "nothing" if net.baseline is None else "the baseline alone"
    score = np.nanmin(net.history.score, axis=1).mean()
    return [
        ("members", f"{len(net.gain)}" + (f", {idle} of which know {start}" if idle else "")),
        ("network", _named(net.architecture)),
        ("loss", _named(net.loss)),
        ("baseline", "none" if net.baseline is None else "Gaussians fitted to the draws of each model"),
        ("trained on", f"{net.history.draws:,} draws"),
        ("held-out score", f"{score:.4f} nats on {len(net.held_out.label):,} draws (lower is better)"),
    ]


def known_densities(net: Any) -> str:
    """Name the models whose densities were given."""
    return ", ".join(name for name, known in zip(net.names, net.densities.known, strict=True) if known)


def _named(thing: Any) -> str:
    """Name a function or an object: no address in memory, which says nothing."""
    name = getattr(thing, "__name__", None)
    if name == "<lambda>":
        return "a lambda"
    return name if name is not None else repr(thing) if is_dataclass(thing) else type(thing).__name__


def plain(value: Any) -> Any:
    """Return arrays and numbers as JSON knows them: lists, floats, None for NaN and infinity.

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
    return pandas.DataFrame(list(rows)).set_index(index)
