"""HDF5 files: checked for links to other files and for sizes before any numbers are read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.files import FileError
from evidencenet.simulation.io.packages import package

_KEY = "evidencenet"
_MARK = "evidencenet_format"
# Deflate, shuffle, Fletcher's checksum, n-bit, scale-offset, and LZF: what HDF5 and h5py bring themselves.
# Others are libraries that HDF5 loads from a folder, and SZIP is not in every build.
_FILTERS = {1, 2, 3, 5, 6, 32000}
_MOST_ARRAYS = 10_000
# To visit thousands of groups within each other takes seconds.
_DEEPEST = 50
# Of text, read at once.
_BYTES_PER_BLOCK = 2**24


def read(path: Path, max_bytes: int | None = None) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read all arrays of an HDF5 file, and the description if it is ours; links are not followed."""
    h5py = package("h5py", "HDF5 files")
    datasets: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if name.count("/") > _DEEPEST:
            raise FileError(f"{path} has groups in more than {_DEEPEST} levels; wanted a few.")
        if isinstance(item, h5py.Dataset):
            if len(datasets) >= _MOST_ARRAYS:
                raise FileError(f"{path} has more than {_MOST_ARRAYS:,} arrays; wanted a few.")
            _check(path, name, item)
            datasets[name] = item

    size = path.stat().st_size
    with h5py.File(path, "r") as file:
        file.visititems(visit)
        # Of text that varies in length, `itemsize` is that of a pointer; the rest is counted when it is read.
        shapes = ((item.shape, item.dtype.itemsize) for item in datasets.values())
        files.check_expansion(path, files.declared_bytes(shapes), size, max_bytes)
        arrays = {name: _array(path, item, size, max_bytes) for name, item in datasets.items()}
        marked = any(name in (_KEY, _MARK) for name in file)
    text = arrays.pop(_KEY, None)
    arrays.pop(_MARK, None)
    if text is None:
        if marked:
            raise FileError(f"{path} is damaged: its description is lost. Copy or make it again.")
        return None, arrays
    return files.check_format(path, files.parsed_json(path, text.tobytes())), arrays


def write(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write an HDF5 file in a version of the format whose own structures have checksums."""
    with package("h5py", "HDF5 files").File(path, "w", libver="v110") as file:
        # As bytes: HDF5 keeps text of any length in a heap without a checksum, and damage there can make it
        # search without end.
        file.create_dataset(_KEY, data=np.frombuffer(json.dumps(about).encode(), np.uint8))
        # If the description is lost, this still tells that the file is ours.
        file.create_dataset(_MARK, data=files.FORMAT)
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


def _check(path: Path, name: str, item: Any) -> None:
    """Refuse an array whose numbers are in other files, or need code that is not part of HDF5."""
    if item.external or item.is_virtual:
        raise FileError(
            f"{path}: the numbers of {name!r} are in other files, which are not followed, since they could "
            "be any file of yours. Copy them into one file (h5repack)."
        )
    if item.shape is None:
        raise FileError(f"{path}: {name!r} is empty; wanted an array.")
    properties = item.id.get_create_plist()
    for i in range(properties.get_nfilters()):
        number = properties.get_filter(i)[0]
        if number not in _FILTERS:
            raise FileError(
                f"{path}: {name!r} is packed with the filter {number}, which is not part of HDF5. Write it "
                "with gzip, or without a filter."
            )
    if not _is_text(item) and item.dtype.kind not in "biufcUS":
        raise FileError(
            f"{path}: {name!r} holds values of type {item.dtype}; wanted arrays of numbers (Python objects "
            "are never loaded, since that can run code). Save it as numbers, such as float64."
        )


def _is_text(item: Any) -> bool:
    return package("h5py", "HDF5 files").check_string_dtype(item.dtype) is not None


def _array(path: Path, item: Any, size: int, max_bytes: int | None) -> np.ndarray:
    if not _is_text(item):
        return np.asarray(item[()])
    if len(item.shape) == 0:
        return np.asarray(item.asstr()[()], dtype=str)
    if len(item.shape) > 1:
        raise FileError(f"{path}: {item.name!r} holds text of shape {item.shape}; wanted one label per draw.")
    # Many entries can share one long text, so a small file can hold any amount. No text is longer than the
    # file, so a block of so many entries stays within the limit; and it is read in a moment.
    allowed = files.allowed_bytes(size, max_bytes)
    step = max(1, min(allowed // max(1, 4 * size), max(100, _BYTES_PER_BLOCK // max(1, size))))
    blocks, total = [np.empty(0, dtype="U1")], 0
    for start in range(0, item.shape[0], step):
        block = np.asarray(item.asstr()[start : start + step], dtype=str)
        total += block.nbytes
        # The longest text decides how much memory each entry of the whole array takes.
        files.check_expansion(path, max(total, item.shape[0] * block.dtype.itemsize), size, max_bytes)
        blocks.append(block)
    return np.concatenate(blocks)
