"""Draws and observations in files of many kinds; the suffix of the path says which.

`read_data` reads observations, `read_draws` and `write_draws` the fields of `Simulations`. They work on
`Content`: what a file holds, whatever its kind, before it is checked.
"""

import operator
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
    Named,
    arrays_of,
    as_data,
    finite_rows,
    in_order,
    join,
    kind_of,
    layout,
    layout_text,
    map_arrays,
)
from evidencenet._common.files import FileError, readable
from evidencenet._common.harmless import listed
from evidencenet._common.masks import no_infinity
from evidencenet._common.warnings import FailedDrawsWarning
from evidencenet.simulation import store
from evidencenet.simulation.io import containers, tables
from evidencenet.simulation.labels import checked_failed, checked_names, coded, parameters_by_model

PathLike = str | os.PathLike[str]
Keys = str | Sequence[str] | None
SUFFIXES = (*containers.READERS, *tables.READERS)
_LABELS = ("model", "label")
# Names with a meaning of their own; all other arrays are data.
_RESERVED = {"names", "failed", "log_weight", "parameters"}
# The types of numbers in the tables that we write.
_TABLE_TYPES = ("float32", "float64")


def read_data(path: PathLike, *, keys: Keys = None, max_bytes: int | None = None) -> Any:
    """Read an observation, or a batch of them, from a file.

    Parameters
    ----------
    path
        A file of the same form as for `Simulations.read`; labels and weights in it are ignored.
    keys
        Which arrays, or columns of a table, are the data; all by default.
    max_bytes
        How much memory the data may take. By default 256 MB, or 100 times the size of the file if that is
        more: a small file that unpacks to more was probably made to do harm.

    Returns
    -------
    Data or Named
        As in the file: a single observation need not have an axis of draws. A table has one row per
        observation, and keeps the names of its columns; one with a single column comes as shape (n,), since
        it may also be one observation, written line by line.

    Raises
    ------
    evidencenet._common.files.FileError
        The file is damaged, is not what its suffix says, or would unpack to more than `max_bytes`.

    Examples
    --------
    >>> net.compare(read_data("observed.csv"))  # doctest: +SKIP
    """
    place = _checked_path(path)
    with readable(place):
        content = read(place, keys=keys, max_bytes=max_bytes)
        x = content.x
        for array in arrays_of(x):
            if array.dtype.kind not in "biuf":
                raise FileError(f"{place} holds values of type {array.dtype}; wanted numbers.")
    if not isinstance(x, dict) and place.suffix.lower() in tables.READERS:
        if x.shape[1:] == (1,):
            return x[:, 0]
        if content.data_columns is not None:
            return Named(x, content.data_columns)
    return x


def read_draws(
    path: PathLike | Mapping[str, PathLike] | Sequence[PathLike],
    *,
    names: Sequence[str] | None = None,
    label: str = "model",
    keys: Keys = None,
    max_bytes: int | None = None,
    missing: bool = False,
) -> dict[str, Any]:
    """Read the fields of `Simulations`; see `Simulations.read`."""
    if isinstance(path, str | os.PathLike):
        place = _checked_path(path)
        with naming(place):
            fields = _labelled(place, read(place, label, keys, max_bytes), names, missing)
    elif isinstance(path, Mapping | Sequence) and len(path):
        if isinstance(path, Mapping) and names is not None:
            raise ValueError(
                "names were given twice: as keys of the files, and as names=; wanted one of them"
            )
        names = list(path) if isinstance(path, Mapping) else names
        paths = list(path.values()) if isinstance(path, Mapping) else list(path)
        fields = _one_per_model(paths, names, label, keys, max_bytes, missing)
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
            "The fraction of draws that do not fail is part of the Bayes factor: if these rows are not "
            "draws, remove them from the file. If NaN means that a number is missing, give missing='mask'.",
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
        raise ValueError(f"the suffix {suffix!r} does not say how to write {place}{extra}; wanted {wanted}")


@dataclass(frozen=True)
class Content:
    """What a file holds, before it is checked.

    Parameters
    ----------
    x
        The data, as they are in the file.
    labels
        Numbers or names, shape (n,); None if the file has none.
    names
        The models' names, if the file has them.
    failed
        How many draws of each model failed.
    log_weight
        Log weights, shape (n,).
    parameters
        A tuple with an entry for each model, or arrays by name as another program called them.
    columns
        The names of the columns of a table.
    data_columns
        The names of the numbers of a draw, if it is a vector and the file gives them.
    noise_seed
        Seed of the noise, if the data are clean draws that must be observed first; else None.
    masked
        The form that missing numbers were given before the draws were written; None if there were none.
    missing
        "mask" if NaN in the file is a missing number.
    """

    x: Data
    labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    failed: Sequence[int] | None = None
    log_weight: np.ndarray | None = None
    parameters: tuple[Any, ...] | dict[str, np.ndarray] | None = None
    columns: tuple[str, ...] | None = None
    data_columns: tuple[str, ...] | None = None
    noise_seed: int | None = None
    masked: str | None = None
    missing: str | None = None


def read(path: Path, label: str = "model", keys: Keys = None, max_bytes: int | None = None) -> Content:
    """Read one file.

    Parameters
    ----------
    path
        A file with one of the suffixes in `SUFFIXES`.
    label
        The name of the labels; ``"model"`` and ``"label"`` mean the same.
    keys
        Which arrays or columns are the data: several for a dict of arrays, one name for a single array. By
        default all that have no other meaning.
    max_bytes
        How much memory the data may take.
    """
    candidates = _LABELS if label in _LABELS else (label,)
    if path.suffix.lower() in tables.READERS:
        return _from_table(path, tables.verified(path, tables.read(path, candidates, max_bytes)), keys)
    if path.suffix.lower() == ".zarr" and store.is_store(path):
        fields = store.read(path, max_bytes)
        x, labels = (fields.pop(name) for name in ("x", "model"))
        columns = fields.pop("columns") if keys is None else None
        return Content(_chosen(path, x, keys), labels, **fields, data_columns=columns)
    about, arrays = containers.read(path, max_bytes=max_bytes)
    if about is None:
        return _from_arrays(path, arrays, candidates, keys)
    if about.get("kind") != "draws":
        raise FileError(f"{path} holds a {about.get('kind')} of evidencenet, not draws.")
    thetas = about["parameters"]
    if thetas is not None:
        thetas = tuple(
            containers.unflatten(f"parameters/{k}", structure, arrays) for k, structure in enumerate(thetas)
        )
    return Content(
        _chosen(path, containers.unflatten("x", about["x"], arrays), keys),
        arrays["model"],
        about["names"],
        arrays["failed"].tolist(),
        arrays.get("log_weight"),
        thetas,
        data_columns=None if about.get("columns") is None else tuple(map(str, about["columns"])),
        noise_seed=_noise_seed(about),
        masked=None if keys is not None else about.get("masked"),
    )


@contextmanager
def naming(path: Any) -> Iterator[None]:
    """Name the file in every message about its content."""
    if not isinstance(path, str | os.PathLike):
        # One file per model: each was named when it was read.
        yield
        return
    with readable(Path(path)):
        try:
            yield
        except FileError:
            raise
        except KeyError as error:
            raise FileError(f"{path}: its description lacks {error}; make it again.") from error
        except (ValueError, TypeError) as error:
            text = str(error) if str(path) in str(error) else f"{path}: {str(error).rstrip('.')}."
            raise FileError(text) from error


def _from_arrays(path: Path, arrays: dict[str, np.ndarray], candidates: Sequence[str], keys: Keys) -> Content:
    """Tell apart the arrays of a file that another program wrote."""
    reserved = {*candidates, *_RESERVED}
    data = {name: array for name, array in arrays.items() if name.split("/")[0] not in reserved}
    if keys is not None:
        x = _chosen(path, arrays, keys)
    elif not data:
        raise FileError(f"{path} holds no data: it has {listed(arrays) or 'nothing'}. Wanted an array x.")
    elif len(data) == 1:
        # Its name does not matter, so that files of several kinds can be read together.
        x = next(iter(data.values()))
    else:
        grouped = all(name.startswith("x/") for name in data)
        x = {name.removeprefix("x/"): array for name, array in data.items()} if grouped else data
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
        raise FileError(f"{path} has no columns of data, only {listed(names)}.")
    x = tables.arranged(path, header, values)
    dtype = about.get("dtype", x.dtype)
    if table.about is not None and dtype not in _TABLE_TYPES:
        raise FileError(f"{path} is damaged: its numbers are of type {dtype!r}. Copy or make it again.")
    return Content(
        x.astype(dtype, copy=False),
        _only(path, table.words),
        about.get("names"),
        about.get("failed"),
        table.values[:, columns["log_weight"]] if "log_weight" in columns else None,
        columns=None if table.header is None else names,
        data_columns=None if header is None or all(map(tables.is_entry, header)) else header,
        noise_seed=_noise_seed(about),
    )


def _noise_seed(about: Mapping[str, Any]) -> int | None:
    seed = about.get("noise_seed")
    return None if seed is None else operator.index(seed)


def _chosen(path: Path, x: Data, keys: Keys) -> Data:
    """Return the arrays named by `keys`."""
    if keys is None:
        return x
    arrays = x if isinstance(x, dict) else {"x": x}
    return _named(path, arrays, [keys])[keys] if isinstance(keys, str) else _named(path, arrays, keys)


def _named(path: Path, available: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    for name in names:
        if name not in available:
            raise FileError(f"{path} has no data called {name!r}; it has {listed(available) or 'no names'}.")
    return {name: available[name] for name in names}


def _only(path: Path, labels: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the labels, if there are any; with two of them it is not clear which is meant."""
    if len(labels) > 1:
        raise FileError(
            f"{path} has both {' and '.join(map(repr, labels))}; remove the one that is not the label."
        )
    return next(iter(labels.values()), None)


def _as_arrays(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    structure, arrays = containers.flatten("x", _kept(fields))
    arrays |= {"model": fields["model"], "failed": np.array(fields["failed"], dtype=np.int64)}
    if fields["log_weight"] is not None:
        arrays["log_weight"] = fields["log_weight"]
    structures: list[Any] = []
    for k, theta in enumerate(fields["parameters"] or ()):
        structure_of_theta, thetas = containers.flatten(f"parameters/{k}", theta)
        structures.append(structure_of_theta)
        arrays |= thetas
    about = {"kind": "draws", "names": list(fields["names"]), "x": structure}
    about |= {"columns": fields["columns"], "masked": fields["masked"]} | _about_noise(fields)
    return about | {"parameters": None if fields["parameters"] is None else structures}, arrays


def _as_columns(path: Path, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    x = _kept(fields)
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
    data_columns = fields["columns"] or tables.column_names(x.shape[1:])
    if {*columns, "model", "label", "log_weight"} & set(data_columns):
        raise ValueError(
            f"cannot write {path}: columns called model, label or log_weight have a meaning there"
        )
    columns |= {name: flat[:, i] for i, name in enumerate(data_columns)}
    about = {"kind": "draws", "names": list(fields["names"]), "failed": list(fields["failed"])}
    return about | {"dtype": str(x.dtype)} | _about_noise(fields), columns


def _kept(fields: Mapping[str, Any]) -> Data:
    """Return what a file keeps of the draws: their clean parts, if they have any."""
    clean: Data | None = fields.get("clean")
    return fields["x"] if clean is None else clean


def _about_noise(fields: Mapping[str, Any]) -> dict[str, int]:
    return {} if fields.get("clean") is None else {"noise_seed": int(fields["noise_seed"])}


def _labelled(
    path: Path, content: Content, names: Sequence[str] | None, missing: bool = False
) -> dict[str, Any]:
    """Make the fields of `Simulations` from one file; rows that are not finite are dropped and counted."""
    if content.labels is None:
        there = "it holds only data" if content.columns is None else f"it has {listed(content.columns)}"
        if content.columns is None and path.suffix.lower() in tables.READERS:
            there = "it has no first line with the names of its columns"
        raise FileError(
            f"the file has no model labels: {there}. Wanted a label called 'model' or 'label' (for another "
            "name give label=), or one file per model, as in read({'flat': 'a.csv', 'trend': 'b.csv'})"
        )
    x = as_data(content.x)
    n = len(arrays_of(x)[0])
    for what, array in {"labels": content.labels, "log_weight": content.log_weight}.items():
        if array is not None and array.shape != (n,):
            raise FileError(f"{what} have shape {array.shape}, but there are {n} draws; wanted one for each")
    model, known_names = coded(content.labels, content.names, names)
    final = checked_names(known_names, model)
    failed = list(checked_failed(content.failed, final))
    parameters = content.parameters
    if isinstance(parameters, dict):
        parameters = parameters_by_model(parameters, model, len(final))
    if content.names is not None and names is not None:
        order = [list(content.names).index(name) for name in final]
        failed = [failed[k] for k in order]
        parameters = parameters and tuple(parameters[k] for k in order)
    fields: dict[str, Any] = {"x": x, "model": model, "names": final, "failed": failed}
    fields["parameters"] = parameters
    missing = missing or content.missing is not None
    named = content.masked is not None or (isinstance(x, np.ndarray) and x.ndim == 2)
    columns = content.data_columns if named else None
    fields |= {"log_weight": content.log_weight, "columns": columns, "masked": content.masked}
    fields |= {"missing": "mask" if missing else None, "noise_seed": content.noise_seed}
    return _without_failed(fields, missing and content.noise_seed is None)


def _without_failed(fields: dict[str, Any], missing: bool) -> dict[str, Any]:
    """Drop the rows that failed; ``"dropped"`` counts them by model. NaN may be a missing number instead."""
    model, count = fields["model"], len(fields["names"])
    check = no_infinity if missing else finite_rows
    finite = np.logical_and.reduce([check(array) for array in arrays_of(fields["x"])])
    dropped = np.bincount(model[~finite], minlength=count).tolist()
    if finite.all():
        return fields | {"dropped": dropped}
    for k, name in enumerate(fields["names"]):
        if dropped[k] and dropped[k] == np.count_nonzero(model == k):
            raise FileError(f"all {dropped[k]} draws of model {name!r} hold NaN or infinity, so none is left")
    parameters, weight = fields["parameters"], fields["log_weight"]
    return fields | {
        "x": map_arrays(lambda array: array[finite], fields["x"]),
        "model": model[finite],
        "failed": [f + d for f, d in zip(fields["failed"], dropped, strict=True)],
        "log_weight": None if weight is None else weight[finite],
        "parameters": parameters and tuple(_rows(t, finite[model == k]) for k, t in enumerate(parameters)),
        "dropped": dropped,
    }


def _rows(theta: Any, finite: np.ndarray) -> Any:
    if theta is None:
        return None
    if any(len(array) != len(finite) for array in arrays_of(theta)):
        raise FileError(
            "the number of parameters of a model is not that of its draws; wanted one row for each draw"
        )
    return map_arrays(lambda array: array[finite], theta)


def _one_per_model(
    paths: Sequence[PathLike],
    names: Sequence[str] | None,
    label: str,
    keys: Keys,
    max_bytes: int | None,
    missing: bool,
) -> dict[str, Any]:
    """Make the fields of `Simulations` from one file per model."""
    places = [_checked_path(path) for path in paths]
    if names is not None and len(names) != len(places):
        raise ValueError(f"{len(places)} files and {len(names)} names were given; wanted one name per file")
    parts: list[dict[str, Any]] = []
    for place in places:
        with naming(place):
            parts.append(_alone(place, read(place, label, keys, max_bytes), missing))
            if parts[0]["columns"] is not None and parts[-1]["columns"] is not None:
                x, _ = in_order(Named(parts[-1]["x"], parts[-1]["columns"]), parts[0]["columns"])
                parts[-1] |= {"x": x, "columns": parts[0]["columns"]}
            this, first = layout(parts[-1]["x"]), layout(parts[0]["x"])
            if this != first:
                raise FileError(f"it holds {layout_text(this)}; {places[0].name} holds {layout_text(first)}")
    weights, counts = [part["log_weight"] for part in parts], [len(part["model"]) for part in parts]
    if any(weight is not None for weight in weights):
        # Only ratios within one model matter, so a model without weights may have any constant.
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
        "columns": parts[0]["columns"] if all(part["columns"] for part in parts) else None,
        "noise_seed": next((part["noise_seed"] for part in parts if part["noise_seed"] is not None), None),
        "masked": parts[0]["masked"],
        "missing": parts[0]["missing"],
    }


def _alone(path: Path, content: Content, missing: bool) -> dict[str, Any]:
    """Make the fields of `Simulations` from a file of one model, named after the file if it has no name."""
    labels = content.labels
    if labels is None:
        labels = np.zeros(len(arrays_of(content.x)[0]), int)
    fields = _labelled(path, replace(content, labels=labels), None, missing)
    if len(fields["names"]) > 1:
        raise FileError(
            f"it holds draws of {len(fields['names'])} models, and it is one of several files; wanted one "
            "model in each. Read each by itself, and join them: Simulations.concatenate([first, second])"
        )
    named_in_file = content.names is not None or labels.dtype.kind in "US"
    return fields if named_in_file else fields | {"names": [path.stem]}


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a file is given by its path, not by {kind_of(path)}")
    place = Path(path)
    if place.suffix.lower() not in SUFFIXES:
        wanted = ", ".join(SUFFIXES)
        raise ValueError(f"the suffix {place.suffix!r} does not say what {place} is; wanted {wanted}")
    return place


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a Zarr folder unless it holds draws that we wrote."""
    if path.suffix.lower() != ".zarr" or not path.exists():
        return
    try:
        about = containers.zarr_description(path)
    except FileError:
        about = None
    if about is None or about.get("kind") != "draws":
        what = "the store of a simulation" if about else "no draws that evidencenet wrote"
        raise FileExistsError(
            f"{path} exists already, and holds {what}. Delete it first, or write elsewhere."
        )
