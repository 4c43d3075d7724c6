"""NumPy's files, npy and npz: sizes are compared with the file before memory is taken."""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.files import FileError

_KEY = "evidencenet"
_MOST_ARRAYS = 10_000


def read_npy(path: Path, max_bytes: int | None = None) -> tuple[None, dict[str, np.ndarray]]:
    """Read the array of an npy file, called ``"x"``."""
    with path.open("rb") as file:
        # The file holds the numbers themselves, so it cannot expand and needs no limit.
        return None, {"x": _array(path, file, os.fstat(file.fileno()).st_size)}


def read_npz(path: Path, max_bytes: int | None = None) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read the arrays of an npz file, and the description if it is ours."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > _MOST_ARRAYS:
            raise FileError(f"{path} has more than {_MOST_ARRAYS:,} arrays; wanted a few.")
        if len({member.filename for member in members}) < len(members):
            raise FileError(f"{path} is damaged: it has two arrays of the same name. Copy or make it again.")
        needed = sum(member.file_size for member in members)
        files.check_expansion(path, needed, path.stat().st_size, max_bytes)
        arrays = {}
        for member in members:
            with archive.open(member) as file:
                arrays[member.filename.removesuffix(".npy")] = _array(path, file, member.file_size)
    text = arrays.pop(_KEY, None)
    if text is None:
        return None, arrays
    return files.check_format(path, files.parsed_json(path, str(text))), arrays


def write_npz(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and a description to an npz file."""
    with path.open("wb") as file:
        named: dict[str, Any] = {_KEY: np.array(json.dumps(about)), **arrays}
        np.savez(file, **named)


def _array(path: Path, file: IO[bytes], size: int) -> np.ndarray:
    """Read one array in NumPy's form, if `size` bytes are what its header says."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype.hasobject:
        raise FileError(
            f"{path} holds Python objects, which are never loaded, since that can run code. Save arrays of "
            "numbers, all rows of the same shape."
        )
    needed, there = files.declared_bytes([(shape, dtype.itemsize)]), size - file.tell()
    if needed != there or min(shape, default=0) < 0:
        raise FileError(
            f"{path} cannot be read: it is damaged or cut short. It declares an array of shape {shape} and "
            f"type {dtype}, which takes {needed:,} bytes, but it has {there:,}. Copy or make it again."
        )
    file.seek(0)
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    # Only at its end the archive compares the checksum.
    file.read(1)
    return array
