"""Tables of numbers with one draw per row: text files such as CSV, and Parquet."""

import csv
import json
import math
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common.files import FileError
from evidencenet.simulation.io.containers import checked_version, package, readable, replaced, with_version

# The first line of a CSV file of ours: a comment with what columns cannot say.
_MARK = "# evidencenet: "
_KEY = b"evidencenet"
_ROWS_PER_BLOCK = 1_000


@dataclass(frozen=True)
class Table:
    """What a table holds.

    Parameters
    ----------
    about
        The description that `write` was given; None if the file comes from elsewhere.
    header
        The names of the columns in `values`; None if the file names none.
    values
        The numbers, shape (n, d).
    words
        Columns that may hold text, by name, shape (n,) each.
    """

    about: dict[str, Any] | None
    header: tuple[str, ...] | None
    values: np.ndarray
    words: dict[str, np.ndarray]


def read(path: Path, words: Collection[str] = ()) -> Table:
    """Read a table; `words` names the columns that may hold text instead of numbers."""
    with readable(path):
        table = READERS[path.suffix.lower()](path, words)
        if len(table.values) == 0:
            raise FileError(f"{path} has no rows of numbers; wanted one row for each draw.")
        for i, name in enumerate(table.header or ()):
            if not name:
                raise FileError(
                    f"{path}: column {i + 1} has no name. If it numbers the rows, write the file without it "
                    "(in pandas: index=False), else name it."
                )
            if table.header and table.header.count(name) > 1:
                raise FileError(f"{path} has two columns called {name!r}; names must be distinct.")
        return table


def write(path: Path, about: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    """Write columns of integers or floats to a CSV or Parquet file, exactly; replaced when all is written."""
    with replaced(path) as partial:
        WRITERS[path.suffix.lower()](partial, with_version(about), columns)


def arranged(path: Path, header: tuple[str, ...] | None, values: np.ndarray) -> np.ndarray:
    """Shape the columns of each row: ``x_2_5`` is entry [2, 5]; other names are taken in their order.

    Numbers may begin with 0 or 1. Columns ``x_0, x_1, ...`` are put in the order of their numbers.
    """
    found = [re.fullmatch(r"x((?:_\d+)+)", name) for name in header or ()]
    places = [tuple(map(int, match[1][1:].split("_"))) for match in found if match]
    if not places or len(places) < len(found):
        return values
    depths = {len(place) for place in places}
    if len(depths) > 1:
        raise FileError(f"{path} mixes columns such as x_1 and x_1_1; wanted as many numbers in each name.")
    least = [min(axis) for axis in zip(*places, strict=True)]
    base = 1 if all(number == 1 for number in least) else 0
    shape = [max(axis) + 1 - base for axis in zip(*places, strict=True)]
    if len(set(places)) < len(places) or math.prod(shape) != len(places):
        if depths == {1}:
            return values
        raise FileError(
            f"{path} has {len(places)} columns that would fill the shape {tuple(shape)} by their names; "
            "wanted each entry once, from x_0_0 on."
        )
    order = np.ravel_multi_index(tuple(np.transpose(places) - base), shape)
    if (np.diff(order) != 1).any():
        values = values[:, np.argsort(order)]
    return values.reshape(len(values), *shape)


def column_names(shape: tuple[int, ...]) -> list[str]:
    """Name the entries of a draw as `arranged` reads them."""
    return ["_".join(map(str, ("x", *place))) for place in np.ndindex(shape)]


def _read_text(path: Path, words: Collection[str]) -> Table:
    about, skip, line = None, 0, ""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line in file:
            if line.startswith(_MARK):
                about = checked_version(path, json.loads(line.removeprefix(_MARK)))
            if line.strip() and not line.startswith("#"):
                break
            skip += 1
        else:
            raise FileError(f"{path} is empty; wanted one row of numbers for each draw.")
    delimiter = next((mark for mark in "\t;," if mark in line), None)
    first = line.split() if delimiter is None else next(csv.reader([line], delimiter=delimiter))
    first = [name.strip() for name in first]
    header = _header(path, first)
    # A mark after the last number makes a column of nothing.
    blank = len(first) - 1 if delimiter and len(first) > 1 and not first[-1] else None
    codes: dict[int, dict[str, int]] = {i: {} for i, name in enumerate(header or ()) if name in words}
    converters: dict[int, Callable[[str], float]] = {i: _coder(found) for i, found in codes.items()}
    if blank is not None:
        converters[blank] = _is_something
    values = _numbers(path, skip + (header is not None), delimiter, converters)
    if header is not None and len(values) and len(header) != values.shape[1]:
        raise FileError(
            f"{path} names {len(header)} columns, but its rows have {values.shape[1]}; wanted a name for "
            "each (row numbers, as R writes them, must be left out)."
        )
    if blank is not None and values[:, blank:].any():
        raise FileError(f"{path} has numbers in column {blank + 1}, which in its first line is empty.")
    spare = sorted({*codes, *([] if blank is None else [blank])})
    named = None if header is None else tuple(name for i, name in enumerate(header) if i not in spare)
    texts = {first[i]: np.array(list(found))[values[:, i].astype(int)] for i, found in codes.items() if found}
    return Table(about, named, np.delete(values, spare, axis=1) if spare else values, texts)


def _numbers(path: Path, skip: int, delimiter: str | None, converters: dict[Any, Any]) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            # NumPy warns of a file without rows, which is refused below.
            warnings.simplefilter("ignore", UserWarning)
            return np.loadtxt(
                path,
                delimiter=delimiter,
                comments=None,
                quotechar='"',
                skiprows=skip,
                converters=converters or None,
                encoding="utf-8-sig",
                ndmin=2,
            )
    except ValueError as error:
        raise FileError(
            f"{path}, {_complaint(str(error), skip)}; wanted numbers with a decimal point, as many in each "
            "row, and nan where a draw failed."
        ) from error


def _complaint(text: str, skip: int) -> str:
    """Put NumPy's complaint, which counts rows from 0 or 1 without the header, in terms of lines."""
    if found := re.match(
        r"could not convert string (.*) to float64 at row (\d+), column (\d+)", text, re.DOTALL
    ):
        return f"line {skip + int(found[2]) + 1}, column {found[3]}: {found[1]} is no number"
    if found := re.match(r"the number of columns changed from (\d+) to (\d+) at row (\d+)", text):
        return f"line {skip + int(found[3])}: {found[2]} columns, where there were {found[1]} before"
    return text.rstrip(".")


def _coder(codes: dict[str, int]) -> Callable[[str], float]:
    """Return a function that numbers the words of a column in the order in which they come."""
    return lambda word: float(codes.setdefault(word.strip(), len(codes)))


def _is_something(word: str) -> float:
    return float(bool(word.strip()))


def _header(path: Path, first: list[str]) -> list[str] | None:
    """Return the first line as names of columns; None if these are numbers already."""
    # Where nothing else is asked for, pandas calls its columns so.
    counted = len(first) > 2 and first == [str(i) for i in range(len(first))]
    if not counted and all(map(_is_number, filter(None, first))):
        return None
    for name in first:
        if _is_number(name) and not name.isdigit():
            raise FileError(
                f"{path}: the first line mixes names and numbers such as {name}; wanted names of all "
                "columns, or numbers alone, with nan where a draw failed."
            )
    return first


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, words: Collection[str]) -> Table:
    pyarrow = package("pyarrow", "Parquet files")
    table = package("pyarrow.parquet", "Parquet files").read_table(path)
    about = (table.schema.metadata or {}).get(_KEY)
    numeric, texts = [], {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in words:
            texts[name] = np.array([str(label) for label in table[name].to_pylist()])
        elif name.startswith("__index_level_"):  # row numbers that pandas adds
            continue
        elif any(getattr(pyarrow.types, f"is_{k}")(kind) for k in ("integer", "floating", "boolean")):
            numeric.append(name)
        else:
            raise FileError(
                f"{path}: column {name!r} holds {kind}; wanted numbers, in one column for each entry of the "
                "data (x_0, x_1, ..., or x_0_0, x_0_1, ...)."
            )
    single = all(str(table.schema.field(name).type) == "float" for name in numeric)
    values = np.empty((table.num_rows, len(numeric)), np.float32 if single else np.float64)
    for i, name in enumerate(numeric):
        values[:, i] = table[name].cast(pyarrow.from_numpy_dtype(values.dtype), safe=False).to_numpy()
    return Table(
        None if about is None else checked_version(path, json.loads(about)), tuple(numeric), values, texts
    )


def _write_csv(path: Path, about: dict[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    rows = len(next(iter(columns.values())))
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{_MARK}{json.dumps(about)}\n{','.join(columns)}\n")
        for start in range(0, rows, _ROWS_PER_BLOCK):
            blocks = [_texts(column[start : start + _ROWS_PER_BLOCK]) for column in columns.values()]
            file.writelines(",".join(row) + "\n" for row in zip(*blocks, strict=True))


def _texts(column: np.ndarray) -> list[str]:
    """Numbers as text that gives back the same bits; single precision needs nine digits for that."""
    single = column.dtype == np.float32
    return [f"{value:.9g}" if single else repr(value) for value in column.tolist()]


def _write_parquet(path: Path, about: dict[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    table = package("pyarrow", "Parquet files").table(dict(columns))
    described = table.replace_schema_metadata({_KEY: json.dumps(about).encode()})
    package("pyarrow.parquet", "Parquet files").write_table(described, path)


READERS: dict[str, Callable[[Path, Collection[str]], Table]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".dat": _read_text,
    ".parquet": _read_parquet,
}
WRITERS: dict[str, Callable[[Path, dict[str, Any], Mapping[str, np.ndarray]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
