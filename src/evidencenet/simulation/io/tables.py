"""Tables of numbers with one draw per row: text files such as CSV, and Parquet.

Text is read with NumPy, so that CSV needs no further package; Parquet needs pyarrow.
"""

import csv
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.atomic import replaced
from evidencenet._common.files import FileError, readable
from evidencenet.simulation.io.packages import package

# The first line of a CSV file of ours: a comment with the description. If it is damaged, one of these words
# is still there.
_MARK = "# evidencenet: "
_SIGNS = ("evidencenet", '"checksum"', '"format"')
_KEY = b"evidencenet"
# Says that a Parquet file is ours, even if the description is damaged.
_OURS = b"evidencenet.format"
_CHECKSUM = "checksum"
# Columns that we write beside those of the data.
_NOT_DATA = ("label", "log_weight")
# Written at once; the text of so many rows of 100 numbers has 2 MB.
_ROWS_PER_BLOCK = 1_000
# A line becomes a text in memory. One of 2 million numbers has 40 MB.
_LONGEST_LINE = 2**26
_BYTES_PER_BLOCK = 2**22
# Labels become an array of text of fixed length, so one long label would cost its length for every row.
_LONGEST_LABEL = 1_000
# Arrow holds a column in memory at its declared length, in at most so many bytes per row.
_BYTES_PER_VALUE = 8
# Words that stand for numbers in files of R, pandas and spreadsheets.
_WORDS = {
    **dict.fromkeys(("", "na", "n/a", "#n/a", "nan"), float("nan")),
    "true": 1.0,
    "false": 0.0,
}


@dataclass(frozen=True)
class Table:
    """The content of a table.

    Parameters
    ----------
    about
        The description that `write` was given; None if the file comes from elsewhere.
    header
        The names of the columns in `values`; None if the file has none.
    values
        The numbers, shape (n, d).
    words
        Columns that may hold text, by name, shape (n,) each.
    """

    about: dict[str, Any] | None
    header: tuple[str, ...] | None
    values: np.ndarray
    words: dict[str, np.ndarray]


def read(path: Path, words: Collection[str] = (), max_bytes: int | None = None) -> Table:
    """Read a table; `words` names the columns that may hold text instead of numbers."""
    files.check_regular(path)
    with readable(path):
        table = READERS[path.suffix.lower()](path, words, max_bytes)
        if len(table.values) == 0:
            raise FileError(f"{path} has no rows of numbers; wanted one row for each draw.")
        seen: set[str] = set()
        for i, name in enumerate(table.header or ()):
            if not name:
                raise FileError(
                    f"{path}: column {i + 1} has no name. If it numbers the rows, write the file without it "
                    "(in R: row.names = FALSE, in pandas: index=False), else name it."
                )
            if name in seen:
                raise FileError(f"{path} has two columns called {name!r}; names must be distinct.")
            seen.add(name)
        return table


def write(path: Path, about: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    """Write columns of integers or floats to a CSV or Parquet file, exactly.

    An old file is replaced only when all is written. The columns are ``label``, perhaps ``log_weight``, and
    those of the data.
    """
    head = files.described(about)
    data = {name: np.asarray(column) for name, column in columns.items()}
    # About 20 characters for a number as text.
    with replaced(path, 20 * sum(column.size for column in data.values())) as partial:
        noted = head | {_CHECKSUM: _checksum(head, data)}
        WRITERS[path.suffix.lower()](partial, noted, columns)


def verified(path: Path, table: Table) -> Table:
    """Return a table without the checksum in its description, after comparing it with the content."""
    if table.about is None:
        return table
    about = dict(table.about)
    expected = about.pop(_CHECKSUM, None)
    columns = {name: table.values[:, i] for i, name in enumerate(table.header or ())} | table.words
    try:
        matches = expected == _checksum(about, columns)
    except (ValueError, TypeError, OverflowError):
        matches = False
    if not matches:
        raise FileError(
            f"{path} was changed after it was written: its content does not match its checksum. If it was "
            "changed on purpose, remove the description (in a .csv file the first line); else copy or make "
            "it again."
        )
    return replace(table, about=about)


def arranged(path: Path, header: tuple[str, ...] | None, values: np.ndarray) -> np.ndarray:
    """Shape the columns of each row: ``x_2_5`` is entry [2, 5]; other names are taken in their order.

    Numbers may begin with 0 or 1. Columns ``x_0, x_1, ...`` are put in the order of their numbers.
    """
    matches = [re.fullmatch(r"x((?:_\d{1,18})+)", name) for name in header or ()]
    places = [tuple(map(int, match[1][1:].split("_"))) for match in matches if match]
    if not places or len(places) < len(matches):
        return values
    depths = {len(place) for place in places}
    if len(depths) > 1:
        raise FileError(
            f"{path} mixes columns such as x_1 and x_1_1; wanted the same number of indices in each name."
        )
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


def is_entry(name: str) -> bool:
    """Say whether a column is named as an entry of an array, such as ``x_0`` or ``x_2_5``."""
    return re.fullmatch(r"x((?:_\d+)+)", name) is not None


def column_names(shape: tuple[int, ...]) -> list[str]:
    """Name the entries of a draw as `arranged` reads them."""
    return ["_".join(map(str, ("x", *place))) for place in np.ndindex(shape)]


def _checksum(about: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> str:
    """Return the checksum of a table, the same for numbers and for their text in the file."""
    # Numbers of single precision have fewer digits in the text, and are rounded again.
    precision = np.float32 if about.get("dtype") == "float32" else np.float64
    numbers = {
        name: np.asarray(column, np.float64 if name in _NOT_DATA else precision)
        for name, column in columns.items()
    }
    return files.checksum(about, numbers)


def _check_lines(path: Path) -> None:
    """Raise if a file has a line that would fill the memory, or is no text."""
    length = 0
    with path.open("rb") as file:
        while block := file.read(_BYTES_PER_BLOCK):
            if b"\0" in block:
                raise FileError(
                    f"{path} is damaged, or no text in UTF-8: it holds zero bytes. Copy or make it again."
                )
            ends = block.rfind(b"\n"), block.find(b"\n")
            if length + (len(block) if ends[1] < 0 else ends[1]) > _LONGEST_LINE:
                raise FileError(
                    f"{path} has a line of more than {_LONGEST_LINE / 1e6:,.0f} MB; wanted one line a draw."
                )
            length = length + len(block) if ends[0] < 0 else len(block) - ends[0] - 1


def _read_text(path: Path, words: Collection[str], max_bytes: int | None) -> Table:
    _check_lines(path)
    about, skip, line = None, 0, ""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line in file:
            if line.startswith(_MARK):
                about = files.check_format(path, files.parsed_json(path, line.removeprefix(_MARK)))
            elif skip == 0 and any(sign in line for sign in _SIGNS):
                raise FileError(f"{path} is damaged: line {skip + 1} cannot be read. Copy or make it again.")
            if line.strip() and not line.startswith("#"):
                break
            skip += 1
        else:
            raise FileError(f"{path} is empty; wanted one row of numbers for each draw.")
    delimiter = next((mark for mark in "\t;," if mark in line), None)
    first = [name.strip() for name in _split(line, delimiter)]
    header = _header(path, first)
    # A delimiter after the last number makes an empty column.
    blank = len(first) - 1 if delimiter and len(first) > 1 and not first[-1] else None
    codes: dict[int, dict[str, int]] = {i: {} for i, name in enumerate(header or ()) if name in words}
    converters: dict[int, Callable[[str], float]] = {i: _coder(numbers) for i, numbers in codes.items()}
    if blank is not None:
        converters[blank] = _is_something
    values = _numbers(path, skip + (header is not None), delimiter, converters, header)
    if len(values) == 0:
        raise FileError(f"{path} has no rows of numbers; wanted one row for each draw.")
    if header is not None and len(header) != values.shape[1]:
        raise FileError(_unnamed(path, len(header), values.shape[1]))
    if blank is not None and values[:, blank:].any():
        raise FileError(f"{path} has numbers in column {blank + 1}, which in its first line is empty.")
    spare = sorted({*codes, *([] if blank is None else [blank])})
    named = None if header is None else tuple(name for i, name in enumerate(header) if i not in spare)
    texts = {}
    for i, numbers in codes.items():
        if numbers:
            _check_labels(path, numbers)
            texts[first[i]] = np.array(list(numbers))[values[:, i].astype(int)]
    return Table(about, named, np.delete(values, spare, axis=1) if spare else values, texts)


def _check_labels(path: Path, labels: Collection[str]) -> None:
    longest = max(labels, key=len)
    if len(longest) > _LONGEST_LABEL:
        raise FileError(
            f"{path} has a label of {len(longest):,} characters, {longest[:20]!r}...; wanted at most "
            f"{_LONGEST_LABEL:,}."
        )


def _numbers(
    path: Path, skip: int, delimiter: str | None, converters: dict[Any, Any], header: list[str] | None
) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            # NumPy warns about a file without rows; `read` refuses it.
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
        if str(error).startswith("could not convert"):
            return _words_as_numbers(path, skip, delimiter, converters, header)
        raise FileError(
            f"{path}, {_complaint(str(error), skip)}; wanted numbers with a decimal point, as many in each "
            "row, and NA or nan where there is none."
        ) from error


def _words_as_numbers(
    path: Path, skip: int, delimiter: str | None, converters: dict[Any, Any], header: list[str] | None
) -> np.ndarray:
    """Read numbers word by word: slower than NumPy, but NA, TRUE and empty cells are understood."""
    rows: list[list[float]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, line in enumerate(file, 1):
            if number <= skip or not line.strip():
                continue
            words = _split(line, delimiter)
            if header is not None and len(words) == len(header) + 1:
                raise FileError(_unnamed(path, len(header), len(words)))
            if rows and len(words) != len(rows[0]):
                raise FileError(
                    f"{path}, line {number}: {len(words)} columns, but {len(rows[0])} in the lines before."
                )
            row = []
            for i, word in enumerate(words):
                value = converters[i](word) if i in converters else _WORDS.get(word.strip().lower())
                if value is None:
                    try:
                        # Python reads 1_000 as a number; files have no such numbers.
                        value = float(word.replace("_", "?"))
                    except ValueError:
                        raise FileError(_not_a_number(path, number, i, word, header)) from None
                row.append(value)
            rows.append(row)
    return np.array(rows, dtype=np.float64)


def _unnamed(path: Path, names: int, columns: int) -> str:
    return (
        f"{path} names {names} columns, but its rows have {columns}; wanted a name for each. If the first "
        "column numbers the rows, write the file without it (in R: row.names = FALSE)."
    )


def _split(line: str, delimiter: str | None) -> list[str]:
    """Return the words of a line, without quotes; None stands for any white space."""
    text = " ".join(line.split()) if delimiter is None else line
    return next(csv.reader([text], delimiter=delimiter or " "))


def _not_a_number(path: Path, line: int, i: int, word: str, header: list[str] | None) -> str:
    named = header is not None and i < len(header) and header[i]
    place = f"column {header[i]!r}" if named and header is not None else f"column {i + 1}"
    text = f"{path}, line {line}, {place}: {word.strip()!r} is not a number; "
    if re.fullmatch(r"\s*-?\d+,\d+([eE][-+]?\d+)?\s*", word):
        return text + "wanted numbers with a decimal point (in R: write.csv instead of write.csv2)."
    if named and header is not None:
        return text + (
            "wanted numbers, and NA or nan where there is none. If this column says which model a draw came "
            f"from, give label={header[i]!r}; else remove it, or code it as numbers."
        )
    return text + "wanted numbers with a decimal point, and NA or nan where there is none."


def _complaint(text: str, skip: int) -> str:
    """Say in which line a problem is; NumPy counts rows from 1, without the header."""
    if match := re.match(r"the number of columns changed from (\d+) to (\d+) at row (\d+)", text):
        return f"line {skip + int(match[3])}: {match[2]} columns, but {match[1]} in the lines before"
    return text.rstrip(".")


def _coder(codes: dict[str, int]) -> Callable[[str], float]:
    """Return a function that numbers the words of a column in the order of their first appearance."""
    return lambda word: float(codes.setdefault(word.strip(), len(codes)))


def _is_something(word: str) -> float:
    return float(bool(word.strip()))


def _header(path: Path, first: list[str]) -> list[str] | None:
    """Return the first line as names of columns; None if it holds numbers of a draw."""
    # Columns without names are called 0, 1, 2, ... by pandas.
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


def _read_parquet(path: Path, words: Collection[str], max_bytes: int | None) -> Table:
    pyarrow = package("pyarrow", "Parquet files")
    parquet = package("pyarrow.parquet", "Parquet files")
    size = path.stat().st_size
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        # A few bytes can declare a constant column of any length.
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        files.check_expansion(path, rows * columns * _BYTES_PER_VALUE, size, max_bytes)
        groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
        files.check_expansion(path, sum(group.total_byte_size for group in groups), size, max_bytes)
        table = file.read()
    metadata = table.schema.metadata or {}
    about = metadata.get(_KEY)
    if about is None and (_OURS in metadata or _OURS in _footer(path)):
        raise FileError(f"{path} is damaged: its description is lost. Copy or make it again.")
    numeric, texts = [], {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in words:
            texts[name] = _labels(path, table[name])
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
    head = None if about is None else files.check_format(path, files.parsed_json(path, about))
    return Table(head, tuple(numeric), values, texts)


def _footer(path: Path) -> bytes:
    """Return the footer of a Parquet file: its length and the letters PAR1 are its last eight bytes."""
    with path.open("rb") as file:
        content_end = file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, content_end - length))
        return file.read(length)


def _labels(path: Path, column: Any) -> np.ndarray:
    """Return a column as text."""
    encoded = column.combine_chunks().dictionary_encode() if str(column.type)[:10] != "dictionary" else None
    if encoded is None or encoded.null_count:
        distinct = {str(label) for label in column.unique().to_pylist()}
        _check_labels(path, distinct or [""])
        return np.array([str(label) for label in column.to_pylist()])
    distinct_labels = [str(label) for label in encoded.dictionary.to_pylist()]
    _check_labels(path, distinct_labels or [""])
    return np.array(distinct_labels or [""])[encoded.indices.to_numpy()]


def _write_csv(path: Path, about: dict[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    rows = len(next(iter(columns.values())))
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{_MARK}{json.dumps(about)}\n{','.join(columns)}\n")
        for start in range(0, rows, _ROWS_PER_BLOCK):
            blocks = [_texts(column[start : start + _ROWS_PER_BLOCK]) for column in columns.values()]
            file.writelines(",".join(row) + "\n" for row in zip(*blocks, strict=True))


def _texts(column: np.ndarray) -> list[str]:
    """Write numbers as text that gives back the same bits; single precision needs nine digits for that."""
    single = column.dtype == np.float32
    return [f"{value:.9g}" if single else repr(value) for value in column.tolist()]


def _write_parquet(path: Path, about: dict[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    table = package("pyarrow", "Parquet files").table(dict(columns))
    metadata = {_KEY: json.dumps(about).encode(), _OURS: str(files.FORMAT).encode()}
    described = table.replace_schema_metadata(metadata)
    package("pyarrow.parquet", "Parquet files").write_table(described, path, write_page_checksum=True)


READERS: dict[str, Callable[[Path, Collection[str], int | None], Table]] = {
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
