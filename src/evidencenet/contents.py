"""What one file of draws or observations holds, whoever wrote it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet import containers, store, tables
from evidencenet.data import Data
from evidencenet.storage import FileError

Keys = str | Sequence[str] | None

SUFFIXES = (*containers.READERS, *tables.READERS)

_LABELS = ("model", "label")
# Names with a meaning of their own; all others are data.
_RESERVED = {"names", "failed", "log_weight", "parameters"}


@dataclass(frozen=True)
class Content:
    """The data, and of the other things what there is.

    Parameters
    ----------
    x
        The data, as they are in the file.
    labels
        Numbers or names, shape (n,).
    names
        The models' names, where the file says them.
    failed
        How many draws of each model failed.
    log_weight
        Log weights, shape (n,).
    parameters
        A tuple with an entry for each model, or arrays by name, as another program called them.
    columns
        The names of the columns of a table.
    """

    x: Data
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    failed: Sequence[int] | None = None
    log_weight: np.ndarray | None = None
    parameters: tuple[Any, ...] | dict[str, np.ndarray] | None = None
    columns: tuple[str, ...] | None = None


def read(path: Path, label: str = "model", keys: Keys = None) -> Content:
    """Read one file.

    Parameters
    ----------
    path
        A file with one of the suffixes in `SUFFIXES`.
    label
        The name of the labels; ``"model"`` and ``"label"`` stand for each other.
    keys
        Which arrays or columns are the data: several for a dict of arrays, one name for a single array. By
        default all that have no other meaning.
    """
    candidates = _LABELS if label in _LABELS else (label,)
    if path.suffix.lower() in tables.READERS:
        return _from_table(path, tables.read(path, candidates), keys)
    if path.suffix.lower() == ".zarr" and store.is_store(path):
        fields = store.read(path)
        x, labels = (fields.pop(name) for name in ("x", "model"))
        return Content(_chosen(path, x, keys), labels, **fields)
    about, arrays = containers.read(path)
    if about is None:
        return _from_arrays(path, arrays, candidates, keys)
    if about.get("kind") != "draws":
        raise FileError(f"{path} holds a {about.get('kind')} of evidencenet, not draws.")
    thetas = about["parameters"]
    if thetas is not None:
        thetas = tuple(containers.unflatten(f"parameters/{k}", how, arrays) for k, how in enumerate(thetas))
    return Content(
        _chosen(path, containers.unflatten("x", about["x"], arrays), keys),
        arrays["model"],
        about["names"],
        arrays["failed"].tolist(),
        arrays.get("log_weight"),
        thetas,
    )


def _from_arrays(path: Path, arrays: dict[str, np.ndarray], candidates: Sequence[str], keys: Keys) -> Content:
    """Tell apart the arrays of a file that another program wrote."""
    others = {*candidates, *_RESERVED}
    found = {name: array for name, array in arrays.items() if name.split("/")[0] not in others}
    if keys is not None:
        x = _chosen(path, arrays, keys)
    elif not found:
        raise FileError(f"{path} holds no data: it has {', '.join(arrays) or 'nothing'}. Wanted an array x.")
    elif len(found) == 1:
        # Whatever its name, so that files of several kinds can stand side by side.
        x = next(iter(found.values()))
    else:
        grouped = all(name.startswith("x/") for name in found)
        x = {name.removeprefix("x/"): array for name, array in found.items()} if grouped else found
    return Content(
        x,
        _only(path, {name: arrays[name] for name in candidates if name in arrays}),
        arrays["names"].tolist() if "names" in arrays else None,
        np.atleast_1d(arrays["failed"]).tolist() if "failed" in arrays else None,
        arrays.get("log_weight"),
        {name: array for name, array in arrays.items() if name.split("/")[0] == "parameters"} or None,
    )


def _from_table(path: Path, table: tables.Table, keys: Keys) -> Content:
    columns = {name: i for i, name in enumerate(table.header or ())}
    about = table.about or {}
    header, values = table.header, table.values
    if keys is not None or "log_weight" in columns:
        data = [name for name in columns if name != "log_weight"]
        wanted = _named(path, columns, data if keys is None else [keys] if isinstance(keys, str) else keys)
        header, values = tuple(wanted), values[:, list(wanted.values())]
    names = (*table.words, *columns)
    if values.shape[1] == 0:
        raise FileError(f"{path} has no columns of data, only {', '.join(names)}.")
    x = tables.arranged(path, header, values)
    return Content(
        x.astype(about.get("dtype", x.dtype), copy=False),
        _only(path, table.words),
        about.get("names"),
        about.get("failed"),
        table.values[:, columns["log_weight"]] if "log_weight" in columns else None,
        columns=None if table.header is None else names,
    )


def _chosen(path: Path, x: Data, keys: Keys) -> Data:
    """Return the arrays that were asked for."""
    if keys is None:
        return x
    arrays = x if isinstance(x, dict) else {"x": x}
    return _named(path, arrays, [keys])[keys] if isinstance(keys, str) else _named(path, arrays, keys)


def _named(path: Path, found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    for name in names:
        if name not in found:
            raise FileError(f"{path} has no data called {name!r}; it has {', '.join(found) or 'no names'}.")
    return {name: found[name] for name in names}


def _only(path: Path, found: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the labels, if there are any; of two kinds, one would have to be taken for data."""
    if len(found) > 1:
        raise FileError(f"{path} has both {' and '.join(map(repr, found))}; leave out what is not the label.")
    return next(iter(found.values()), None)
