"""Zarr folders: looked at piece by piece before Zarr opens them, and written with checksums.

Zarr's older format 2, and some of its codecs, can run code or read other files. So only what we write
ourselves, and what is equally plain, is read: format 3, numbers or text of fixed length, known compressors,
and no links. All of this is checked in the JSON files of the folder, before Zarr sees it.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.atomic import created_folder, write_text
from evidencenet._common.files import FileError
from evidencenet._common.signals import interrupts_held

_KEY = "evidencenet"
_JSON = "zarr.json"
# Each piece is a file. Zarr holds about ten pieces of an array in memory at once, so pieces of 16 MB cost
# some 160 MB. Measured: they are written and read as fast as pieces of 4 MB; one of 66 MB takes two to three
# times as long.
_BYTES_PER_PIECE = 2**24
# To list as many files takes a third of a second on a local disk.
_MOST_FILES = 100_000
_FORMAT_2 = {".zarray", ".zgroup", ".zattrs", ".zmetadata"}
_NUMBERS = {
    "bool": 1,
    **{f"{kind}{8 * size}": size for kind in ("int", "uint") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": size for size in (2, 4, 8)},
    "complex64": 8,
    "complex128": 16,
}
_CODECS = {"bytes", "transpose", "blosc", "gzip", "zstd", "crc32c"}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Node:
    """An array in a Zarr folder, as its ``zarr.json`` describes it.

    Parameters
    ----------
    name
        Its path in the folder, with slashes; empty for the folder itself.
    shape
        The shape of the array.
    itemsize
        Bytes of one number.
    pieces
        Into how many pieces the array is cut.
    ours
        Whether evidencenet wrote it.
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int
    pieces: int
    ours: bool


def read(path: Path, max_bytes: int | None = None) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read all arrays of a Zarr folder, and the description if it is ours."""
    nodes, size = _checked(path)
    files.check_expansion(
        path, files.declared_bytes((node.shape, node.itemsize) for node in nodes), size, max_bytes
    )
    about = description(path)
    if about is None and any(node.ours for node in nodes):
        raise FileError(f"{path} is damaged: its description is lost. Copy or make it again.")
    with interrupts_held():
        return about, {node.name or "x": _array(path, node, complete=about is not None) for node in nodes}


def _array(path: Path, node: Node, *, complete: bool) -> np.ndarray:
    import zarr

    array: Any = zarr.open_array(path / node.name, mode="r", zarr_format=3)
    # Zarr takes a missing piece for one of zeros. Where we wrote it, it was lost.
    if complete and array.nchunks_initialized < node.pieces:
        raise FileError(f"{path}: pieces of the array {node.name!r} are missing. Copy or make it again.")
    return np.asarray(array[...])


def write(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a Zarr folder at a place where there is nothing."""
    with interrupts_held():
        _write(path, about, arrays)


def _write(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    root = zarr.create_group(path, attributes={_KEY: dict(about)})
    for name, array in arrays.items():
        row = max(1, array.nbytes // max(1, len(array)))
        rows = min(len(array), _BYTES_PER_PIECE // row)
        root.create_array(
            name,
            data=array,
            chunks=(max(1, rows), *(max(1, size) for size in array.shape[1:])),
            # The checksum shows damage. Pieces of zeros are written like others, so that a lost piece shows.
            compressors=[BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()],
            config={"write_empty_chunks": True},
            # If the description of the whole folder is damaged, this still tells that it is ours.
            attributes={_KEY: {"part": name}},
        )


def description(path: Path) -> dict[str, Any] | None:
    """Return only the description of a Zarr folder; None if evidencenet did not write it."""
    if not path.is_dir():
        raise FileError(f"{path} cannot be read: it is not a Zarr folder.")
    place = path / _JSON
    if not place.exists():
        older = next((name for name in sorted(_FORMAT_2) if (path / name).exists()), None)
        raise FileError(_older(path) if older else f"{path} cannot be read: it has no {_JSON}.")
    about = files.read_json(place)
    attributes = about.get("attributes")
    ours = attributes.get(_KEY) if isinstance(attributes, dict) else None
    if not isinstance(ours, dict) or (about.get("node_type") == "array"):
        return None
    return files.check_format(path, ours)


def begin(path: Path, about: Mapping[str, Any]) -> bool:
    """Make a Zarr group with a description and nothing else; False if there is one already."""
    return created_folder(path, {_JSON: _group(about).encode()})


def describe(path: Path, about: Mapping[str, Any]) -> None:
    """Replace the description of a Zarr group."""
    write_text(path / _JSON, _group(about))


def size_on_disk(path: Path) -> int:
    """Return the bytes of all files in a folder."""
    return count_on_disk(path)[1]


def count_on_disk(path: Path) -> tuple[int, int]:
    """Return how many files a folder has, and their bytes; files may come and go meanwhile."""
    count = size = 0
    for entry in _entries(path, most=None):
        with suppress(FileNotFoundError):
            size += entry.stat(follow_symlinks=False).st_size
            count += 1
    return count, size


def _group(about: Mapping[str, Any]) -> str:
    attributes = {_KEY: files.described(about)}
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}, indent=2)


def _checked(path: Path) -> tuple[list[Node], int]:
    """Return the arrays of a folder and its size; raise if it holds anything but plain format 3."""
    if not path.is_dir():
        raise FileError(f"{path} cannot be read: it is not a Zarr folder.")
    descriptions: dict[str, dict[str, Any]] = {}
    others: list[str] = []
    size = 0
    for entry in _entries(path, _MOST_FILES):
        relative = os.path.relpath(entry.path, path).replace(os.sep, "/")
        size += entry.stat(follow_symlinks=False).st_size
        if entry.name in _FORMAT_2:
            raise FileError(_older(path))
        if entry.name == _JSON:
            descriptions[relative.removesuffix(_JSON).rstrip("/")] = files.read_json(Path(entry.path))
        else:
            others.append(relative)
    if "" not in descriptions:
        raise FileError(f"{path} cannot be read: it has no {_JSON}.")
    nodes = []
    for name, about in sorted(descriptions.items()):
        if about.get("zarr_format") != 3:
            raise FileError(_older(path))
        if about.get("node_type") == "array":
            nodes.append(_node(path, name, about))
    arrays = {node.name: descriptions[node.name] for node in nodes}
    for relative in others:
        owner = _owner(relative, arrays)
        if owner is not None:
            _check_piece(path, path / relative, arrays[owner])
    return nodes, size


def _entries(path: Path, most: int | None) -> Iterator[os.DirEntry[str]]:
    """Give all files of a folder; links, pipes and more than `most` files are refused."""
    folders, count = [os.fspath(path)], 0
    while folders:
        try:
            scanned = os.scandir(folders.pop())
        except FileNotFoundError:
            # Another process has just moved it to its place, or removed it.
            continue
        with scanned as entries:
            for entry in entries:
                count += 1
                if most is not None and count > most:
                    raise FileError(
                        f"{path} has more than {most:,} files, which would take long to read. Write it in "
                        "larger pieces."
                    )
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry
                else:
                    raise FileError(
                        f"{path} holds {entry.name!r}, which is a link, pipe or device and could lead to "
                        "other files. Copy the folder without links."
                    )


def _owner(relative: str, arrays: Mapping[str, Any]) -> str | None:
    """Return the array whose folder a file is in."""
    folder = relative
    while folder:
        folder = folder.rpartition("/")[0]
        if folder in arrays:
            return folder
    return None


def _node(path: Path, name: str, about: Mapping[str, Any]) -> Node:
    """Check the description of one array."""
    where = f"{path}: the array {name!r}" if name else f"{path}: its array"
    itemsize = _itemsize(about.get("data_type"))
    if itemsize is None:
        raise FileError(
            f"{where} holds values of type {_short(about.get('data_type'))}; wanted numbers, or text of "
            "fixed length (Python objects are never loaded, since that can run code). Save it as numbers, "
            "such as float64."
        )
    for codec in about.get("codecs", ()):
        if _name(codec) not in _CODECS:
            raise FileError(
                f"{where} uses the codec {_short(_name(codec))}; wanted one of {', '.join(sorted(_CODECS))}. "
                "Write it again with one of these."
            )
    if about.get("storage_transformers"):
        raise FileError(f"{where} uses storage transformers, which are not read. Write it without them.")
    shape = tuple(about["shape"])
    grid = about["chunk_grid"]
    pieces = grid["configuration"]["chunk_shape"] if grid["name"] == "regular" else None
    if (
        not all(type(length) is int and length >= 0 for length in shape)
        or pieces is None
        or len(pieces) != len(shape)
        or not all(type(length) is int and length > 0 for length in pieces)
    ):
        raise FileError(f"{where} has the shape {_short(shape)} in pieces of {_short(pieces)}; one is wrong.")
    count = 1
    for length, piece in zip(shape, pieces, strict=True):
        count *= -(-length // piece)
    if count > _MOST_FILES:
        raise FileError(
            f"{where} is cut into {count:,} pieces; at most {_MOST_FILES:,} are read, since each takes time. "
            "Write it in larger pieces."
        )
    # Zarr makes a whole piece in memory, even if the array fills only a part of it.
    whole = files.declared_bytes([(tuple(pieces), itemsize)])
    if whole > max(files.FREE_BYTES, 2 * files.declared_bytes([(shape, itemsize)])):
        raise FileError(f"{where} is cut into pieces of {whole:,} bytes, larger than itself.")
    attributes = about.get("attributes")
    return Node(name, shape, itemsize, count, isinstance(attributes, dict) and _KEY in attributes)


def _itemsize(data_type: Any) -> int | None:
    """Return the bytes of one value; None for types that are not read."""
    if isinstance(data_type, str):
        return _NUMBERS.get(data_type)
    if isinstance(data_type, dict) and data_type.get("name") == "fixed_length_utf32":
        length = data_type.get("configuration", {}).get("length_bytes")
        return length if type(length) is int and length > 0 else None
    return None


def _check_piece(path: Path, place: Path, about: Mapping[str, Any]) -> None:
    """Raise if a piece of an array would unpack to more than the piece has."""
    shape = about["chunk_grid"]["configuration"]["chunk_shape"]
    expected = files.declared_bytes([(tuple(shape), _itemsize(about["data_type"]) or 1)])
    # The last codec is the outermost. A CRC only adds four bytes at the end.
    packed = [name for name in map(_name, about.get("codecs", ())) if name in ("blosc", "gzip", "zstd")]
    if len(packed) > 1:
        raise FileError(f"{path} compresses its arrays twice, which is not read. Write it again.")
    unpacked: float = expected
    with suppress(struct.error), place.open("rb") as file:
        if packed == ["blosc"]:
            unpacked = struct.unpack("<I", file.read(16)[4:8])[0]
        elif packed == ["zstd"]:
            unpacked = _zstd_size(file.read(18))
        elif packed == ["gzip"]:
            inflate = zlib.decompressobj(wbits=31)
            unpacked = len(inflate.decompress(file.read(), expected + 1))
            # More may follow in a second member of the archive.
            unpacked += len(inflate.unconsumed_tail) + max(0, len(inflate.unused_data) - 4)
        else:
            unpacked = max(0, os.fstat(file.fileno()).st_size - 4 * len(about.get("codecs", ())))
    if unpacked > expected:
        raise FileError(
            f"{path} is damaged: the piece {place.name!r} of {place.parent.name!r} unpacks to more than the "
            f"{expected:,} bytes it should have. Copy or make it again."
        )


def _zstd_size(head: bytes) -> float:
    """Return the size that the header of a Zstandard frame declares (RFC 8878); infinity if it has none."""
    if head[:4] != _ZSTD_MAGIC or len(head) < 6:
        return 0  # not Zstandard: the library will refuse it
    flags = head[4]
    single = bool(flags & 0x20)
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    length = (int(single), 2, 4, 8)[flags >> 6]
    if length == 0:
        return float("inf")
    return int.from_bytes(head[start : start + length], "little") + (256 if length == 2 else 0)


def _name(codec: Any) -> Any:
    return codec.get("name") if isinstance(codec, dict) else codec


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _older(path: Path) -> str:
    return (
        f"{path} is in format 2 of Zarr, which is not read, since it can hold codecs that run code. Write it "
        "in format 3 (zarr_format=3), or as .npz or .h5."
    )
