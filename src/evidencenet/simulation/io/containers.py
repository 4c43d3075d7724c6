"""Files of named arrays (NumPy's npy and npz, HDF5, Zarr), with a description in JSON where they are ours."""

import importlib
import json
import os
import shutil
import urllib.parse
import uuid
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common.files import FileError
from evidencenet._version import __version__

# Raised whenever a file written by this version could be misread by an older one.
FORMAT = 1
_KEY = "evidencenet"
# Aimed at in the pieces in which Zarr keeps an array; it holds about ten of them in memory at once.
_BYTES_PER_PIECE = 2**22


def read(path: Path, kind: str | None = None) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read a file of arrays.

    Parameters
    ----------
    path
        The file, or a Zarr folder.
    kind
        One of `READERS`; the path's suffix by default.

    Returns
    -------
    about, arrays
        The description that `write` was given, None if the file comes from elsewhere; and the arrays by name,
        those in groups with the group's name and a slash before theirs. A lone array without name is ``"x"``.
    """
    with readable(path):
        about, arrays = READERS[kind or path.suffix.lower()](path)
        for name, array in arrays.items():
            if array.dtype.kind not in "biufcUS":
                raise FileError(
                    f"{path}: {name!r} holds values of type {array.dtype}; wanted arrays of numbers (Python "
                    "objects are never loaded, since that can run code). Save it as numbers, such as float64."
                )
        return about, arrays


def write(
    path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: str | None = None
) -> None:
    """Write arrays and their description; what stood there is replaced only when all is written.

    Parameters
    ----------
    path
        The file, or a Zarr folder.
    about
        Anything JSON can say.
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
    with replaced(path) as partial:
        WRITERS[kind or path.suffix.lower()](partial, with_version(about), native)


def _read_npy(path: Path) -> tuple[None, dict[str, np.ndarray]]:
    return None, {"x": np.load(path, allow_pickle=False)}


def _read_npz(path: Path) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    # NumPy leaves a file open that it cannot read.
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    about = arrays.pop(_KEY, None)
    return None if about is None else checked_version(path, json.loads(str(about))), arrays


def _write_npz(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        named: dict[str, Any] = {_KEY: np.array(json.dumps(about)), **arrays}
        np.savez(file, **named)


def _read_hdf5(path: Path) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    h5py = package("h5py", "HDF5 files")
    arrays: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            text = h5py.check_string_dtype(item.dtype) is not None
            arrays[name] = np.asarray(item.asstr()[()], dtype=str) if text else np.asarray(item[()])

    with h5py.File(path, "r") as file:
        about = file.attrs.get(_KEY)
        file.visititems(visit)
    return None if about is None else checked_version(path, json.loads(about)), arrays


def _write_hdf5(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    with package("h5py", "HDF5 files").File(path, "w") as file:
        file.attrs[_KEY] = json.dumps(about)
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


def _read_zarr(path: Path) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    import zarr

    root = zarr.open(path, mode="r")
    if isinstance(root, zarr.Array):
        return None, {"x": np.asarray(root[...])}
    about: Any = root.attrs.get(_KEY)
    arrays = {}
    for name, item in root.members(max_depth=None):
        if isinstance(item, zarr.Array):
            # Zarr takes a piece that is missing for one of zeros; where we wrote it, it was lost.
            if about is not None and item.nchunks_initialized < item.nchunks:
                raise FileError(f"{path}: pieces of the array {name!r} are missing. Copy or make it again.")
            array = np.asarray(item[...])
            arrays[name] = array.astype(str) if array.dtype.kind == "T" else array
    return None if about is None else checked_version(path, about), arrays


def _write_zarr(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    root = zarr.create_group(path, attributes={_KEY: about})
    for name, array in arrays.items():
        row = max(1, array.nbytes // max(1, len(array)))
        rows = min(len(array), _BYTES_PER_PIECE // row)
        root.create_array(
            name,
            data=array,
            chunks=(max(1, rows), *(max(1, size) for size in array.shape[1:])),
            # The checksum, and pieces of zeros written like others, show what was damaged or lost.
            compressors=[BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()],
            config={"write_empty_chunks": True},
        )


READERS: dict[str, Callable[[Path], tuple[dict[str, Any] | None, dict[str, np.ndarray]]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
    ".zarr": _read_zarr,
}
WRITERS: dict[str, Callable[[Path, dict[str, Any], dict[str, np.ndarray]], None]] = {
    ".npz": _write_npz,
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
    ".zarr": _write_zarr,
}


def zarr_description(path: Path) -> dict[str, Any] | None:
    """Read only the description of a Zarr folder; None if it was not written by this package."""
    import zarr

    with readable(path):
        about: Any = zarr.open(path, mode="r").attrs.get(_KEY)
        return None if about is None else checked_version(path, about)


def begin_zarr(path: Path, about: Mapping[str, Any]) -> bool:
    """Make a Zarr folder with a description and nothing else; False if there is one already."""
    import zarr
    from zarr.errors import ContainsGroupError

    try:
        zarr.create_group(path, attributes={_KEY: with_version(about)})
    except ContainsGroupError:
        return False
    return True


def describe_zarr(path: Path, about: Mapping[str, Any]) -> None:
    """Change the description of a Zarr folder."""
    import zarr

    zarr.open_group(path, mode="r+").attrs[_KEY] = with_version(about)


def flatten(name: str, tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Return how an array, or a dict or tuple of arrays, is built, and its arrays by name for a file."""
    if tree is None:
        return None, {}
    if isinstance(tree, dict):
        names = _names(name, list(tree))
        return {"keys": list(tree)}, dict(zip(names, tree.values(), strict=True))
    if isinstance(tree, tuple):
        fields = getattr(tree, "_fields", None)
        built = {"length": len(tree)} if fields is None else {"fields": list(fields)}
        return built, {f"{name}/{i}": array for i, array in enumerate(tree)}
    return "array", {name: tree}


def unflatten(name: str, built: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Build again what `flatten` took apart; a named tuple comes back as one with the same fields."""
    if built is None:
        return None
    if built == "array":
        return arrays[name]
    if "keys" in built:
        keys = built["keys"]
        return {key: arrays[place] for key, place in zip(keys, _names(name, keys), strict=True)}
    if "fields" in built:
        return _named(*built["fields"])(*(arrays[f"{name}/{i}"] for i in range(len(built["fields"]))))
    return tuple(arrays[f"{name}/{i}"] for i in range(built["length"]))


@cache
def _named(*fields: str) -> Any:
    return namedtuple("Parameters", fields)


def _names(group: str, keys: Sequence[str]) -> list[str]:
    """Names in a file for the keys of a dict: the keys themselves, or numbers where these cannot serve."""
    quoted = [urllib.parse.quote(key, safe="").replace(".", "%2E") for key in keys]
    # Folders do not tell capitals apart everywhere, and names in Zarr must not begin with two underscores.
    usable = len({name.lower() for name in quoted}) == len(keys)
    usable &= all(0 < len(name) <= 100 and not name.startswith("__") for name in quoted)
    return [f"{group}/{name}" for name in (quoted if usable else map(str, range(len(keys))))]


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Give a place beside a file or folder to write to; it takes its place when all went well."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}. Make it first.")
    token = uuid.uuid4().hex
    partial, old = (path.with_name(f".{path.name}.{token}.{kind}") for kind in ("partial", "old"))
    try:
        yield partial
        if partial.is_dir() and path.exists():
            # A folder cannot be put in another's place at once.
            path.rename(old)
            try:
                partial.rename(path)
            except BaseException:
                old.rename(path)
                raise
            shutil.rmtree(old)
        else:
            os.replace(partial, path)
    finally:
        # If it was interrupted, a thread of Zarr's may still be making the folder.
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever a library says about a file it cannot read into one message."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        yield
    except (FileError, ImportError, MemoryError, PermissionError):
        raise
    except Exception as error:
        pickled = isinstance(error, ValueError) and "Object arrays" in str(error)
        raise FileError(
            f"{path} holds Python objects, which are never loaded, since that can run code. Save arrays of "
            "numbers, all rows of the same shape."
            if pickled
            else f"{path} cannot be read: it is empty, cut short, damaged, or not of the kind that its name "
            f"says ({type(error).__name__}: {error}). Make or copy it again, or correct its suffix."
        ) from error


def package(name: str, what: str) -> Any:
    """Import a package that only some files need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{what} need the package {name.split('.')[0]}, which is not installed; install it with: "
            "pip install 'evidencenet[files]'"
        ) from error


def with_version(about: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a description who wrote it."""
    return {"format": FORMAT, "version": __version__, **about}


def checked_version(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Return a description, unless a newer version wrote it."""
    if about["format"] > FORMAT:
        raise FileError(
            f"{path} was written by evidencenet {about['version']} (format {about['format']} of draws); this "
            f"is {__version__}, which reads formats up to {FORMAT}. Update with: pip install -U evidencenet"
        )
    return about
