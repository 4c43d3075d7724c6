"""Shared by all examples: the command line, the table "ours | paper", and the files of results.

An example is a file with a function ``main(*, ...)`` that returns a `Result`. Its keywords are sizes, each
with a default, and annotated as int, float, bool, str, Path or a tuple of one of these (``tuple[int, ...]``),
or as one of these ``| None``. The file ends with

    if __name__ == "__main__":
        run(main, quick=QUICK)

where QUICK are sizes with which it takes seconds. On the command line each keyword is a flag, such as
``--draws 1e5``, ``--dims 2 5`` or ``--no-progress``. ``--quick`` uses the sizes of QUICK, unless a flag gives
another one. ``--out FOLDER`` writes FOLDER/figures/<example>-<figure>.png and FOLDER/results/<example>.json.
Then

    python examples/_common.py FOLDER

writes all tables to FOLDER/README.md, and each table to the page FOLDER/<example>.md, between the
lines ``<!-- results -->`` and ``<!-- end of results -->``.
"""

import argparse
import inspect
import itertools
import json
import os
import sys
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

import evidencenet as en
from evidencenet._common.display import plain

_START, _END = "<!-- results -->\n", "<!-- end of results -->"


class Row(NamedTuple):
    """One line of the table: what was measured, our figure and the paper's, as they are shown."""

    what: str
    ours: str
    paper: str = "–"


@dataclass(frozen=True)
class Result:
    """The result of an example.

    Attributes
    ----------
    title
        What was done, in one line.
    rows
        The table.
    numbers
        The same and more, as numbers: dicts, lists, NumPy arrays and scalars, which become JSON.
    figures
        Matplotlib figures by a short name; "" for the only or first one.
    """

    title: str
    rows: Sequence[Row]
    numbers: Mapping[str, Any]
    figures: Mapping[str, Figure] = field(default_factory=dict)


def run(main: Callable[..., Result], *, quick: Mapping[str, Any]) -> None:
    """Run an example with the options of the command line: print its table, and write the results."""
    name = Path(inspect.getfile(main)).stem
    sizes, out = parse(main, quick=quick)
    start, worked = time.perf_counter(), time.process_time()
    result = main(**sizes)
    record = {
        "title": result.title,
        "command": " ".join(["python", f"examples/{name}.py", *sys.argv[1:]]),
        "seconds": round(time.perf_counter() - start, 1),
        # On a busy machine this says more than the seconds.
        "cpu_seconds": round(time.process_time() - worked, 1),
        # Only the cores that this process may use.
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "version": en.__version__,
        "sizes": {key: str(size) if isinstance(size, Path) else size for key, size in sizes.items()},
        "rows": [row._asdict() for row in result.rows],
        "numbers": result.numbers,
    }
    print(f"\n{result.title}\n\n{text(result.rows)}\n\n{took(record)}")
    if out is not None:
        write(name, record, result.figures, out)


def parse(
    main: Callable[..., Any], arguments: Sequence[str] | None = None, *, quick: Mapping[str, Any]
) -> tuple[dict[str, Any], Path | None]:
    """Read the keywords of `main`, and the folder for results, from the command line."""
    about = inspect.getdoc(inspect.getmodule(main)) or inspect.getdoc(main)
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: takes seconds")
    parser.add_argument("--out", type=Path, help="a folder for figures and numbers")
    given = inspect.signature(main).parameters
    for key, parameter in given.items():
        parser.add_argument(f"--{key.replace('_', '-')}", default=None, **_flag(parameter.annotation))
    named = vars(parser.parse_args(arguments))
    is_quick, out = named.pop("quick"), named.pop("out")
    sizes = {key: parameter.default for key, parameter in given.items()} | (dict(quick) if is_quick else {})
    return sizes | {key: value for key, value in named.items() if value is not None}, out


def _flag(annotation: Any) -> dict[str, Any]:
    """Return how argparse reads a value of this type."""
    if isinstance(annotation, types.UnionType):
        (annotation,) = (kind for kind in typing.get_args(annotation) if kind is not types.NoneType)
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(annotation) is tuple:
        return {"nargs": "+", "action": _Tuple, **_flag(typing.get_args(annotation)[0])}
    # Sizes are large: 1e6 reads better than 1000000.
    return {"type": (lambda word: int(float(word))) if annotation is int else annotation}


class _Tuple(argparse.Action):
    """Several values, stored as a tuple as in the signature."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, tuple(values))


def figure(size: tuple[float, float], rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Make a figure and its axes, as `matplotlib.pyplot.subplots` does, but without a window or a backend."""
    made = Figure(figsize=size, layout="constrained")
    return made, made.subplots(rows, columns, **options)


def binned(estimate: np.ndarray, exact: np.ndarray, edges: ArrayLike) -> list[dict[str, Any]]:
    """Compare estimates with exact values, both (n,), by bins of the exact one; empty bins are left out.

    Each bin is a dict: ``low`` and ``high``, how many ``n``, mean ``exact`` value, ``bias`` (mean error),
    ``bias_error`` (its standard error) and ``rmse`` (root mean square error).
    """
    bins = []
    for low, high in itertools.pairwise(np.asarray(edges, float).tolist()):
        inside = (exact >= low) & (exact < high)
        if inside.any():
            error = estimate[inside] - exact[inside]
            bins.append(
                {
                    "low": low,
                    "high": high,
                    "n": int(inside.sum()),
                    "exact": float(exact[inside].mean()),
                    "bias": float(error.mean()),
                    "bias_error": float(error.std() / np.sqrt(len(error))),
                    "rmse": rms(error),
                }
            )
    return bins


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def text(rows: Sequence[Row]) -> str:
    """Return the table for a terminal."""
    lines = [Row("", "ours", "paper"), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    shown = [
        " | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines
    ]
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:]])


def markdown(record: Mapping[str, Any]) -> str:
    """Return the table of a result file, with its command and time, for a page."""
    rows = [Row(**row) for row in record["rows"]]
    cells = [[word.replace("|", "\\|") for word in row] for row in (Row("", "ours", "paper"), *rows)]
    lines = ["| " + " | ".join(words) + " |" for words in cells]
    return "\n".join([lines[0], "|---|---|---|", *lines[1:], "", f"`{record['command']}`: {took(record)}"])


def took(record: Mapping[str, Any]) -> str:
    """Say how long a run took, and on what."""
    cores = "one CPU core" if record["cores"] == 1 else f"{record['cores']} CPU cores"
    worked = f" ({_spent(record['cpu_seconds'])} of CPU time)" if "cpu_seconds" in record else ""
    return f"{_spent(record['seconds'])} on {cores}{worked}, evidencenet {record['version']}."


def _spent(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def write(name: str, record: Mapping[str, Any], figures: Mapping[str, Figure], out: Path) -> None:
    """Write figures and numbers of an example into a folder."""
    for kind in ("figures", "results"):
        (out / kind).mkdir(parents=True, exist_ok=True)
    for label, drawn in figures.items():
        drawn.savefig(out / "figures" / f"{'-'.join(filter(None, (name, label)))}.png", dpi=110)
    (out / "results" / f"{name}.json").write_text(
        json.dumps(plain(record), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def refresh(folder: Path) -> str:
    """Write README.md from all results in a folder, and each table into its page; return the README."""
    paths = sorted((folder / "results").glob("*.json"))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    about = (
        "Our results and the paper's. Each table has the command that made it. `make paper` runs them all,\n"
        f"which takes {_spent(sum(record['seconds'] for record in records))} in total."
    )
    parts = [f"# The paper, reproduced\n\n{about}\n"]
    for path, record in zip(paths, records, strict=True):
        table, page = markdown(record), folder / f"{path.stem}.md"
        title = record["title"]
        if page.exists():
            title = f"[{title}]({page.name})"
            before, start, rest = page.read_text(encoding="utf-8").partition(_START)
            _, end, after = rest.partition(_END)
            if end:
                page.write_text(f"{before}{start}{table}\n{end}{after}", encoding="utf-8")
        parts.append(f"## {title}\n\n{table}\n")
    content = "\n".join(parts)
    (folder / "README.md").write_text(content, encoding="utf-8")
    return content


if __name__ == "__main__":
    folder = argparse.ArgumentParser(description=refresh.__doc__)
    folder.add_argument("folder", type=Path)
    print(refresh(folder.parse_args().folder))
