"""Draws and observations in files of many kinds; the suffix says which."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common.arrays import (
    Data,
    arrays_of,
    as_data,
    finite_rows,
    join,
    kind_of,
    layout,
    layout_text,
    map_arrays,
)
from evidencenet._common.files import FileError
from evidencenet._common.warnings import FailedDrawsWarning
from evidencenet.simulation import store
from evidencenet.simulation.io import containers, tables
from evidencenet.simulation.labels import checked_failed, checked_names, coded, parameters_by_model

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


PathLike = str | os.PathLike[str]


def read_data(path: PathLike, *, keys: Keys = None) -> Data:
    """Read an observation, or a batch of them, from a file.

    Parameters
    ----------
    path
        A file of the same form as for `Simulations.read`; labels and weights in it are passed over.
    keys
        Which arrays, or columns of a table, are the data; all by default.

    Returns
    -------
    Data
        As in the file: a single observation need not have an axis of draws. A table has one row per
        observation; one with a single column comes as shape (n,), since it may also be one observation,
        written line by line.

    Examples
    --------
    >>> net.compare(read_data("observed.csv"))  # doctest: +SKIP
    """
    place = _checked_path(path)
    x = read(place, keys=keys).x
    for array in arrays_of(x):
        if array.dtype.kind not in "biuf":
            raise FileError(f"{place} holds values of type {array.dtype}; wanted numbers.")
    single = not isinstance(x, dict) and x.shape[1:] == (1,) and place.suffix.lower() in tables.READERS
    return map_arrays(lambda array: array[:, 0], x) if single else x


def read_draws(
    path: PathLike | Mapping[str, PathLike] | Sequence[PathLike],
    *,
    names: Sequence[str] | None = None,
    label: str = "model",
    keys: Keys = None,
) -> dict[str, Any]:
    """Read what `Simulations` is made of; see `Simulations.read`."""
    if isinstance(path, str | os.PathLike):
        place = _checked_path(path)
        with naming(place):
            fields = _labelled(place, read(place, label, keys), names)
    elif isinstance(path, Mapping | Sequence) and len(path):
        if isinstance(path, Mapping) and names is not None:
            raise ValueError(
                "names were given twice: as keys of the files, and as names=; wanted one of them"
            )
        fields = _one_per_model(path, list(path) if isinstance(path, Mapping) else names, label, keys)
    else:
        raise TypeError(
            f"path must be a file, or one file per model in a list or a dict by name; got {path!r}"
        )
    dropped = fields.pop("dropped")
    if any(dropped):
        counts = ", ".join(
            f"{n:,} of {name!r}" for n, name in zip(dropped, fields["names"], strict=True) if n
        )
        warnings.warn(
            f"{sum(dropped):,} rows with NaN or infinity were dropped and count as failed draws: {counts}. "
            "The part of draws that do not fail enters the Bayes factor: if these rows are no draws, remove "
            "them from the file.",
            FailedDrawsWarning,
            stacklevel=3,
        )
    return fields


def write_draws(path: PathLike, fields: Mapping[str, Any]) -> None:
    """Write the fields of `Simulations`; see `Simulations.write`."""
    place = Path(path)
    suffix = place.suffix.lower()
    if suffix in containers.WRITERS:
        about, arrays = _as_arrays(fields)
        _check_replaceable(place)
        containers.write(place, about, arrays)
    elif suffix in tables.WRITERS:
        tables.write(place, *_as_columns(place, fields))
    else:
        wanted = ", ".join((*containers.WRITERS, *tables.WRITERS))
        extra = " (a .npy file has no room for labels)" if suffix == ".npy" else ""
        raise ValueError(
            f"cannot tell from the suffix {suffix!r} how to write {place}{extra}; wanted {wanted}"
        )


@contextmanager
def naming(path: Any) -> Iterator[None]:
    """Name the file in every message about what is in it."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (ValueError, TypeError, KeyError) as error:
        if not isinstance(path, str | os.PathLike) or str(path) in str(error):
            raise
        lacking = isinstance(error, KeyError)
        text = f"its description lacks {error}; make it again" if lacking else str(error).rstrip(".")
        raise FileError(f"{path}: {text}.") from error


def _as_arrays(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    built, arrays = containers.flatten("x", fields["x"])
    arrays |= {"model": fields["model"], "failed": np.array(fields["failed"], dtype=np.int64)}
    if fields["log_weight"] is not None:
        arrays["log_weight"] = fields["log_weight"]
    how: list[Any] = []
    for k, theta in enumerate(fields["parameters"] or ()):
        built_theta, thetas = containers.flatten(f"parameters/{k}", theta)
        how.append(built_theta)
        arrays |= thetas
    about = {"kind": "draws", "names": list(fields["names"]), "x": built}
    return about | {"parameters": None if fields["parameters"] is None else how}, arrays


def _as_columns(path: Path, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    x = fields["x"]
    if isinstance(x, dict):
        raise ValueError(
            f"cannot write {path}: the data are a dict of {', '.join(map(repr, x))}, and a table holds one "
            "array. Write .npz, .h5 or .zarr instead"
        )
    if fields["parameters"] is not None:
        raise ValueError(
            f"cannot write {path}: a table has no room for parameters. Write .npz, .h5 or .zarr instead"
        )
    columns = {"label": fields["model"]}
    if fields["log_weight"] is not None:
        columns["log_weight"] = fields["log_weight"]
    flat = x.reshape(len(x), -1)
    columns |= {name: flat[:, i] for i, name in enumerate(tables.column_names(x.shape[1:]))}
    about = {"kind": "draws", "names": list(fields["names"]), "failed": list(fields["failed"])}
    return about | {"dtype": str(x.dtype)}, columns


def _labelled(path: Path, content: Content, names: Sequence[str] | None) -> dict[str, Any]:
    """Make the fields of `Simulations` from one file; rows that are not finite are dropped and counted."""
    if content.labels is None:
        found = "it holds only data" if content.columns is None else f"it has {', '.join(content.columns)}"
        if content.columns is None and path.suffix.lower() in tables.READERS:
            found = "it has no first line with the names of its columns"
        raise FileError(
            f"it is not said which model each draw came from: {found}. Wanted a label called 'model' or "
            "'label' (for another name give label=), or one file per model, as in "
            "read({'flat': 'a.csv', 'trend': 'b.csv'})"
        )
    x = as_data(content.x)
    n = len(arrays_of(x)[0])
    for what, array in {"labels": content.labels, "log_weight": content.log_weight}.items():
        if array is not None and array.shape != (n,):
            raise FileError(f"{what} have shape {array.shape}, but there are {n} draws; wanted one for each")
    model, known = coded(content.labels, content.names, names)
    final = checked_names(known, model)
    failed = list(checked_failed(content.failed, final))
    parameters = content.parameters
    if isinstance(parameters, dict):
        parameters = parameters_by_model(parameters, model, len(final))
    if content.names is not None and names is not None:
        order = [list(content.names).index(name) for name in final]
        failed = [failed[k] for k in order]
        parameters = parameters and tuple(parameters[k] for k in order)
    fields = {"x": x, "model": model, "names": final, "failed": failed, "parameters": parameters}
    return _without_failed(fields | {"log_weight": content.log_weight})


def _without_failed(fields: dict[str, Any]) -> dict[str, Any]:
    model, count = fields["model"], len(fields["names"])
    good = np.logical_and.reduce([finite_rows(array) for array in arrays_of(fields["x"])])
    dropped = np.bincount(model[~good], minlength=count).tolist()
    if good.all():
        return fields | {"dropped": dropped}
    for k, name in enumerate(fields["names"]):
        if dropped[k] and dropped[k] == np.count_nonzero(model == k):
            raise FileError(f"all {dropped[k]} draws of model {name!r} hold NaN or infinity, so none is left")
    parameters, weight = fields["parameters"], fields["log_weight"]
    return fields | {
        "x": map_arrays(lambda array: array[good], fields["x"]),
        "model": model[good],
        "failed": [f + d for f, d in zip(fields["failed"], dropped, strict=True)],
        "log_weight": None if weight is None else weight[good],
        "parameters": parameters and tuple(_rows(t, good[model == k]) for k, t in enumerate(parameters)),
        "dropped": dropped,
    }


def _rows(theta: Any, good: np.ndarray) -> Any:
    if theta is None:
        return None
    if any(len(array) != len(good) for array in arrays_of(theta)):
        raise FileError("a model's parameters and its draws differ in number; wanted one row for each draw")
    return map_arrays(lambda array: array[good], theta)


def _one_per_model(
    paths: Mapping[str, PathLike] | Sequence[PathLike], names: Sequence[str] | None, label: str, keys: Keys
) -> dict[str, Any]:
    places = [_checked_path(path) for path in (paths.values() if isinstance(paths, Mapping) else paths)]
    if names is not None and len(names) != len(places):
        raise ValueError(f"{len(places)} files and {len(names)} names were given; wanted one name per file")
    parts: list[dict[str, Any]] = []
    for place in places:
        with naming(place):
            parts.append(_alone(place, read(place, label, keys)))
            mine, first = layout(parts[-1]["x"]), layout(parts[0]["x"])
            if mine != first:
                raise FileError(f"it holds {layout_text(mine)}; {places[0].name} holds {layout_text(first)}")
    weights, counts = [part["log_weight"] for part in parts], [len(part["model"]) for part in parts]
    if any(weight is not None for weight in weights):
        # Only ratios within one model matter, so those without weights may have any.
        weights = [np.zeros(n) if w is None else w for w, n in zip(weights, counts, strict=True)]
    parameters = tuple(part["parameters"] and part["parameters"][0] for part in parts)
    return {
        "x": join(*(part["x"] for part in parts)),
        "model": np.repeat(np.arange(len(parts)), counts),
        "names": [part["names"][0] for part in parts] if names is None else list(names),
        "failed": [part["failed"][0] for part in parts],
        "log_weight": None if weights[0] is None else join(*weights),
        "parameters": None if all(theta is None for theta in parameters) else parameters,
        "dropped": [part["dropped"][0] for part in parts],
    }


def _alone(path: Path, content: Content) -> dict[str, Any]:
    """Make the fields of `Simulations` from a file with the draws of one model, called as the file itself."""
    labels = content.labels
    if labels is None:
        labels = np.zeros(len(arrays_of(content.x)[0]), int)
    fields = _labelled(path, replace(content, labels=labels), None)
    if len(fields["names"]) > 1:
        raise FileError(
            f"it holds draws of {len(fields['names'])} models, and it is one of several files; wanted one "
            "model in each. Read it by itself"
        )
    said = content.names is not None or labels.dtype.kind in "US"
    return fields if said else fields | {"names": [path.stem]}


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a file is given by its path, not by {kind_of(path)}")
    place = Path(path)
    if place.suffix.lower() not in SUFFIXES:
        wanted = ", ".join(SUFFIXES)
        raise ValueError(f"cannot tell from the suffix {place.suffix!r} what {place} is; wanted {wanted}")
    return place


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a Zarr folder that is not draws written before."""
    if path.suffix.lower() != ".zarr" or not path.exists():
        return
    try:
        about = containers.zarr_description(path)
    except FileError:
        about = None
    if about is None or about.get("kind") != "draws":
        what = "the store of a simulation" if about else "no draws that evidencenet wrote"
        raise FileExistsError(
            f"{path} is there already, and holds {what}. Delete it first, or write elsewhere."
        )
