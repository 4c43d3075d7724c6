"""The picture of docs/architecture.md, drawn from the code.

    python docs/architecture.py

reads the order of the rooms from pyproject.toml and the imports with grimp. It then calls `simulate`,
`train`, `compare` and `write_report` on a small problem and records which files run. The data go to
docs/figures/architecture.json, the picture to docs/figures/architecture.svg. A test compares both with the
code.
"""

import ast
import json
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evidencenet"
FIGURES = ROOT / "docs" / "figures"
# What each call takes and returns. They follow each other in every analysis.
CALLS = {
    "simulate": ("models", "Simulations"),
    "train": ("Simulations", "EvidenceNetwork"),
    "compare": ("one observation", "Comparison"),
    "write_report": ("all three", "one HTML page"),
}


def rooms() -> dict[str, list[str]]:
    """Return the files of each room, from the room that everything uses to the one that uses everything."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    layers = [name.strip() for layer in contract["layers"] for name in layer.split(":")]
    return {name: _files(name) for name in reversed(layers) if name not in ("_version", "__main__", "demo")}


def purpose(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    path = PACKAGE / room / "__init__.py"
    text = (path if path.exists() else PACKAGE / f"{room}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ").replace("`", "")


def imports() -> dict[str, list[str]]:
    """Return the rooms that each room imports from.

    Left out are imports of figures inside a method `plot`, which import-linter's contract allows by name.
    """
    import grimp

    graph = grimp.build_graph("evidencenet", cache_dir=None)
    names = list(rooms())
    used: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        importer = _room(module)
        for imported in graph.find_modules_directly_imported_by(module):
            target = _room(imported)
            if importer in names and target in names and names.index(target) < names.index(importer):
                used[importer].add(target)
    return {name: [target for target in names if target in used[name]] for name in names}


def calls() -> dict[str, list[str]]:
    """Run each call on a small problem, and return the files that run, such as "training/loop", in order."""
    import numpy as np

    import evidencenet as en

    # The models are defined here, so that no file of the package is the user's simulator.
    flat = en.Model("flat", lambda rng, n: rng.normal(size=(n, 5)))
    level = en.Model(
        "level",
        prior=lambda rng, n: rng.normal(size=n),
        simulate=lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 5)),
    )
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        steps: dict[str, Callable[[], Any]] = {
            "simulate": lambda: en.simulate([flat, level], 4_000, seed=1, progress=False),
            "train": lambda: en.train(results["simulate"], seed=2, members=2, progress=False),
            "compare": lambda: results["train"].compare(np.full(5, 0.4)),
            "write_report": lambda: en.write_report(
                Path(folder) / "report.html", results["train"], results["check"], results["compare"]
            ),
        }
        files = {}
        for name, step in steps.items():
            recorder = Recorder(PACKAGE)
            with recorder:
                results[name] = step()
            files[name] = recorder.files
            if name == "train":
                fresh = en.simulate([flat, level], 2_000, seed=3, progress=False)
                results["check"] = en.validate(results["train"], fresh)
    return files


class Recorder:
    """While it is open, record which files of a package run, and how often control comes back to one of them.

    Parameters
    ----------
    package
        The folder of the package.
    home
        A file of the package, such as "estimator/train".

    Attributes
    ----------
    files
        The files whose functions were called, in order, without the ending.
    returns
        How often each line of `home` got control back from another file of the package.
    callbacks
        How often each function of `home`, by its first line, was called by another file of the package.
    """

    def __init__(self, package: Path, home: str = "") -> None:
        self.files: list[str] = []
        self.returns: Counter[int] = Counter()
        self.callbacks: Counter[int] = Counter()
        self._package, self._home, self._here = f"{package}/", home, ""
        self._names: dict[str, str] = {}

    def __enter__(self) -> "Recorder":
        threading.setprofile(self._other_thread)
        sys.setprofile(self._main_thread)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _name(self, frame: Any) -> str:
        """Return the file of a frame; empty outside of the package, or if it is the import of a module."""
        path, function = frame.f_code.co_filename, frame.f_code.co_name
        if not path.startswith(self._package) or not path.endswith(".py") or function == "<module>":
            return ""
        if path not in self._names:
            self._names[path] = str(Path(path).relative_to(self._package).with_suffix(""))
        return self._names[path]

    def _other_thread(self, frame: Any, event: str, _: object) -> None:
        if event == "call" and (name := self._name(frame)) and name not in self.files:
            self.files.append(name)

    def _main_thread(self, frame: Any, event: str, _: object) -> None:
        name = self._name(frame)
        if not name or event not in ("call", "return"):
            return
        if event == "call":
            if name not in self.files:
                self.files.append(name)
            if name == self._home and self._here not in ("", name):
                self.callbacks[frame.f_code.co_firstlineno] += 1
            self._here = name
        else:
            caller = next((f for f in _callers(frame) if self._name(f)), None)
            if caller is not None:
                back = self._name(caller)
                if back == self._home and self._here != back:
                    self.returns[caller.f_lineno] += 1
                self._here = back


def _callers(frame: Any) -> Iterator[Any]:
    while (frame := frame.f_back) is not None:
        yield frame


def _files(room: str) -> list[str]:
    folder = PACKAGE / room
    paths = sorted(folder.rglob("*.py")) if folder.is_dir() else []
    return [str(path.relative_to(folder).with_suffix("")) for path in paths if path.name != "__init__.py"]


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


# Lengths in pixels. The colours of the calls differ for colour-blind readers too.
_ARCS, _CARD, _COLUMN, _GAP, _TOP, _MARGIN = 74, 490, 118, 10, 100, 16
_CHARACTER, _LINE, _PAD = 6.63, 19, 10
_COLOURS = {"simulate": "#0072B2", "train": "#D55E00", "compare": "#009E73", "write_report": "#AA4499"}
_INK, _SOFT, _RULE, _PAPER, _BOX = "#1c2733", "#5a6775", "#c9d1da", "#ffffff", "#f4f6f9"
_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, 'SFMono-Regular', Menlo, 'DejaVu Sans Mono', monospace"


def draw(data: dict[str, Any]) -> str:
    """Return the picture as SVG: rooms from top to bottom, imports on the left, calls on the right."""
    left, right = _MARGIN + _ARCS, _MARGIN + _ARCS + _CARD
    columns = {name: right + 28 + _COLUMN * (i + 0.5) for i, name in enumerate(data["calls"])}
    width = round(right + 28 + _COLUMN * len(columns) + _MARGIN)
    cards, middle, y = [], {}, float(_TOP)
    for name, room in data["rooms"].items():
        parts, height = _card(name, room, data["calls"], left, y)
        cards += parts
        middle[name] = y + height / 2
        y += height + _GAP
    bottom = y + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 92:.0f}" width="{width}" '
        f'height="{bottom + 92:.0f}" font-family="{_SANS}" font-size="12" fill="{_INK}" role="img" '
        'aria-label="The packages of evidencenet, what they import, and the files that each call runs">',
        f'<rect width="100%" height="100%" rx="10" fill="{_PAPER}"/>',
        _text(left, 30, "The rooms of evidencenet", size=17, weight=700),
        _text(left, 50, "A room imports only from rooms above it (arcs on the left).", fill=_SOFT),
        _text(left, 67, "A dot beside a file: the call of this colour runs it.", fill=_SOFT),
        *_arcs(data["imports"], middle, left),
        *_lines(data["calls"], columns, middle, bottom),
        *cards,
        *_results(data["calls"], columns, bottom),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _card(
    name: str, room: dict[str, Any], runs: dict[str, list[str]], x: float, y: float
) -> tuple[list[str], float]:
    """Draw a room: its name, its purpose, and its files with a dot for each call that runs them."""
    wide = int((_CARD - 2 * _PAD) / 5.9)
    words, lines = room["purpose"].split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > wide:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    parts = [_text(x + _PAD, y + 20, f"{name}.py" if room["file"] else name, size=14, weight=700, font=_MONO)]
    top = y + 36
    for line in lines:
        parts.append(_text(x + _PAD, top, line, size=11.5, fill=_SOFT))
        top += 15
    top += 4
    left, right = x + _PAD, x + _CARD - _PAD
    at = left
    for file in [f for f in room["files"] if not f.split("/")[-1].startswith("_")]:
        dots = [call for call, files in runs.items() if f"{name}/{file}" in files]
        length = len(file) * _CHARACTER + 8 * len(dots) + (4 if dots else 0)
        if at + length > right:
            at, top = left, top + _LINE
        parts.append(_text(at, top, file, size=11, font=_MONO))
        for i, call in enumerate(dots):
            centre = at + len(file) * _CHARACTER + 6 + 8 * i
            parts.append(f'<circle cx="{centre:.1f}" cy="{top - 3.6:.1f}" r="3" fill="{_COLOURS[call]}"/>')
        at += length + 13
    height = top + (8 if room["files"] else -12) - y
    box = (
        f'<rect x="{x}" y="{y:.1f}" width="{_CARD}" height="{height:.1f}" rx="7" fill="{_BOX}" '
        f'stroke="{_RULE}"/>'
    )
    return [box, *parts], height


def _arcs(used: dict[str, list[str]], middle: dict[str, float], x: float) -> list[str]:
    """Draw an arc from each room up to each room that it imports from."""
    longest = max(middle.values()) - min(middle.values())
    parts = []
    for importer, targets in used.items():
        for target in targets:
            low, high = middle[target], middle[importer]
            reach = (_ARCS - 6) * ((high - low) / longest) ** 0.6 * 4 / 3
            # Arcs leave from the lower half of a room and arrive at its upper half, with a dot at the end.
            low, high = low - 5, high + 5
            out = x - reach
            parts.append(
                f'<path d="M{x} {high:.1f} C{out:.1f} {high:.1f} {out:.1f} {low:.1f} {x} {low:.1f}" '
                f'fill="none" stroke="#8593a3" stroke-width="1.1" opacity="0.75">'
                f"<title>{importer} imports from {target}</title></path>"
            )
    ends = {target for targets in used.values() for target in targets}
    parts += [
        f'<circle cx="{x}" cy="{middle[name] - 5:.1f}" r="3" fill="#5a6775"/>'
        for name in middle
        if name in ends
    ]
    return parts


def _lines(
    runs: dict[str, list[str]], columns: dict[str, float], middle: dict[str, float], bottom: float
) -> list[str]:
    """Draw a line for each call, with a station at each room that it runs through: how many files run."""
    parts = []
    for call, x in columns.items():
        colour, counts = _COLOURS[call], Counter(file.split("/")[0] for file in runs[call])
        parts.append(
            f'<line x1="{x}" y1="{_TOP - 18}" x2="{x}" y2="{bottom}" stroke="{colour}" stroke-width="2.5" '
            'opacity="0.35"/>'
        )
        parts.append(f'<rect x="{x - 55}" y="{_TOP - 66}" width="110" height="26" rx="13" fill="{colour}"/>')
        parts.append(
            _text(x, _TOP - 49, call, size=12.5, weight=700, fill="#ffffff", font=_MONO, anchor="middle")
        )
        parts.append(_text(x, _TOP - 24, CALLS[call][0], size=10.5, fill=_SOFT, anchor="middle", halo=True))
        for room, y in middle.items():
            if counts[room]:
                parts.append(
                    f'<circle cx="{x}" cy="{y:.1f}" r="13" fill="{_PAPER}" stroke="{colour}" '
                    'stroke-width="2.5">'
                    f"<title>{call} runs {counts[room]} files of {room}</title></circle>"
                )
                label = _text(x, y + 4.3, str(counts[room]), size=12, weight=600, anchor="middle")
                parts.append(label)
    return parts


def _results(runs: dict[str, list[str]], columns: dict[str, float], bottom: float) -> list[str]:
    """Draw what each call returns, an arrow to the call that takes it, and the number of files."""
    parts = [
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{_SOFT}"/></marker></defs>'
    ]
    places = list(columns.items())
    for i, (call, x) in enumerate(places):
        parts.append(
            f'<rect x="{x - 55}" y="{bottom}" width="110" height="24" rx="5" fill="{_PAPER}" '
            f'stroke="{_COLOURS[call]}" stroke-width="1.5"/>'
        )
        parts.append(_text(x, bottom + 16, CALLS[call][1], size=10.5, weight=600, anchor="middle"))
        parts.append(_text(x, bottom + 42, f"{len(runs[call])} files", size=11, fill=_SOFT, anchor="middle"))
        if i + 1 < len(places):
            start, end = x + 20, places[i + 1][1] - 20
            parts.append(
                f'<path d="M{start} {bottom + 50} C{start + 10} {bottom + 70} {end - 10} {bottom + 70} {end} '
                f'{bottom + 50}" fill="none" stroke="{_SOFT}" stroke-width="1.4" marker-end="url(#head)"/>'
            )
    parts.append(
        _text(
            (places[0][1] + places[-1][1]) / 2,
            bottom + 82,
            "each result goes into the next call",
            size=11,
            fill=_SOFT,
            anchor="middle",
        )
    )
    return parts


def _text(
    x: float,
    y: float,
    content: str,
    *,
    size: float = 12,
    weight: int = 400,
    fill: str = _INK,
    font: str = "",
    anchor: str = "start",
    halo: bool = False,
) -> str:
    options = f' font-family="{font}"' if font else ""
    options += f' stroke="{_PAPER}" stroke-width="4" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{fill}" '
        f'text-anchor="{anchor}"{options}>{escape(content)}</text>'
    )


def describe() -> dict[str, Any]:
    """Return what the code says about the rooms: their files and purposes, and the imports between them."""
    names = {
        name: {"purpose": purpose(name), "file": not (PACKAGE / name).is_dir(), "files": files}
        for name, files in rooms().items()
    }
    return {"rooms": names, "imports": imports()}


def main() -> None:
    """Write the data and the picture."""
    data = {**describe(), "calls": calls()}
    (FIGURES / "architecture.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (FIGURES / "architecture.svg").write_text(draw(data), encoding="utf-8")


if __name__ == "__main__":
    main()
