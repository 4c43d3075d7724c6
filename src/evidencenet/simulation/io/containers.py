"""Files of named arrays: npy, npz, HDF5 and Zarr.

Those that we write also hold a description in JSON and a checksum.
"""

import urllib.parse
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.atomic import replaced
from evidencenet._common.files import FileError, readable
from evidencenet.simulation.io import hdf5_file, numpy_file, zarr_folder

_CHECKSUM = "checksum"
Read = tuple[dict[str, Any] | None, dict[str, np.ndarray]]

READERS: dict[str, Callable[[Path, int | None], Read]] = {
    ".npy": numpy_file.read_npy,
    ".npz": numpy_file.read_npz,
    ".h5": hdf5_file.read,
    ".hdf5": hdf5_file.read,
    ".zarr": zarr_folder.read,
}
WRITERS: dict[str, Callable[[Path, Mapping[str, Any], Mapping[str, np.ndarray]], None]] = {
    ".npz": numpy_file.write_npz,
    ".h5": hdf5_file.write,
    ".hdf5": hdf5_file.write,
    ".zarr": zarr_folder.write,
}


def read(path: Path, kind: str | None = None, max_bytes: int | None = None) -> Read:
    """Read a file of arrays; of a file that we wrote, the checksum is compared.

    Parameters
    ----------
    path
        The file, or a Zarr folder.
    kind
        One of `READERS`; the path's suffix by default.
    max_bytes
        How much memory the arrays may take; see `evidencenet._common.files.check_expansion`.

    Returns
    -------
    about, arrays
        The description that `write` was given, None if the file comes from elsewhere; and the arrays by name.
        The name of an array in a group begins with that of the group and a slash. A single array without a
        name is called ``"x"``.
    """
    suffix = kind or path.suffix.lower()
    if suffix != ".zarr":
        files.check_regular(path)
    elif not path.exists():
        raise files.no_file(path)
    with readable(path):
        about, arrays = READERS[suffix](path, max_bytes)
        for name, array in arrays.items():
            if array.dtype.kind not in "biufcUS":
                raise FileError(
                    f"{path}: {name!r} holds values of type {array.dtype}; wanted arrays of numbers (Python "
                    "objects are never loaded, since that can run code). Save it as numbers, such as float64."
                )
        if about is not None:
            expected = about.pop(_CHECKSUM, None)
            files.check_checksum(path, expected, about, arrays)
        return about, arrays


def write(
    path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: str | None = None
) -> None:
    """Write arrays and their description; an old file or folder is replaced only when all is written.

    Parameters
    ----------
    path
        The file, or a Zarr folder.
    about
        Anything that JSON can express.
    arrays
        Arrays of numbers or booleans by name; slashes make groups.
    kind
        One of `WRITERS`; the path's suffix by default.
    """
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc" or array.dtype in (np.longdouble, np.clongdouble):
            raise TypeError(
                f"cannot write {path}: {name} holds values of type {array.dtype}; wanted numbers of at most "
                "64 bits"
            )
    native = {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}
    head = files.described(about)
    with replaced(path, sum(array.nbytes for array in native.values())) as partial:
        noted = head | {_CHECKSUM: files.checksum(head, native)}
        WRITERS[kind or path.suffix.lower()](partial, noted, native)


def zarr_description(path: Path) -> dict[str, Any] | None:
    """Read only the description of a Zarr folder; None if evidencenet did not write it."""
    if not path.exists():
        raise files.no_file(path)
    with readable(path):
        return zarr_folder.description(path)


def flatten(name: str, tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the structure of an array, or of a dict or tuple of arrays, and the arrays by name."""
    if tree is None:
        return None, {}
    if isinstance(tree, dict):
        names = _names(name, list(tree))
        return {"keys": list(tree)}, dict(zip(names, tree.values(), strict=True))
    if isinstance(tree, tuple):
        fields = getattr(tree, "_fields", None)
        structure = {"length": len(tree)} if fields is None else {"fields": list(fields)}
        return structure, {f"{name}/{i}": array for i, array in enumerate(tree)}
    return "array", {name: tree}


def unflatten(name: str, structure: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Build again what `flatten` took apart; a named tuple comes back as one with the same fields."""
    if structure is None:
        return None
    if structure == "array":
        return arrays[name]
    if "keys" in structure:
        keys = structure["keys"]
        return {key: arrays[place] for key, place in zip(keys, _names(name, keys), strict=True)}
    if "fields" in structure:
        fields = structure["fields"]
        return _named_tuple(*fields)(*(arrays[f"{name}/{i}"] for i in range(len(fields))))
    return tuple(arrays[f"{name}/{i}"] for i in range(structure["length"]))


@cache
def _named_tuple(*fields: str) -> Any:
    return namedtuple("Parameters", fields)


def _names(group: str, keys: Sequence[str]) -> list[str]:
    """Return names in a file for the keys of a dict: the keys, or numbers if the keys cannot be used."""
    quoted = [urllib.parse.quote(key, safe="").replace(".", "%2E") for key in keys]
    # Not all file systems tell capitals apart, and names in Zarr must not begin with two underscores.
    usable = len({name.lower() for name in quoted}) == len(keys)
    usable &= all(0 < len(name) <= 100 and not name.startswith("__") for name in quoted)
    return [f"{group}/{name}" for name in (quoted if usable else map(str, range(len(keys))))]
