"""Files that we write: named arrays and JSON in one file of the safetensors form, with a checksum.

Nothing read from such a file can run code. Also here: what all readers of files share, such as `FileError`,
the checksum, the limit on sizes, and the parsing of JSON from files that may be damaged or hostile.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common.atomic import write_bytes
from evidencenet._common.harmless import harmless_text
from evidencenet._version import __version__

# Raised whenever a file written by this version could be misread by an older one.
FORMAT = 1
_KEY = "evidencenet"
_CHECKSUM = "checksum"
# A file may always fill this much memory. It is what a laptop can spare several times over.
FREE_BYTES = 2**28
# Beyond that, it may fill this many times its size on disk. Draws of random numbers compress by less than 2,
# masks and counts by up to 50; an archive made to exhaust the memory expands by 250 (LZ4) to 1,000 (deflate).
MOST_EXPANSION = 100
# Descriptions that we write have some kilobytes.
_LARGEST_JSON = 2**24
# Hashed at once, so that an array which lies on disk is never in memory as a whole.
_BYTES_PER_BLOCK = 2**24


class FileError(ValueError):
    """A file that is not ours, is damaged, or was written by a newer version.

    The message is one line: names in it can come from the file.
    """

    def __init__(self, message: str) -> None:
        super().__init__(harmless_text(message, one_line=True))


def write(
    path: str | os.PathLike[str], kind: str, about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write arrays and a JSON description; an existing file is replaced only when all is written.

    Parameters
    ----------
    path
        The file.
    kind
        What the file holds, such as ``"network"``; `read` checks it.
    about
        Anything that JSON can express.
    arrays
        Arrays by name.

    Raises
    ------
    OSError
        The file cannot be written, for instance because the disk is full. The old file is unchanged.
    """
    from safetensors.numpy import save

    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder. Give the name of a file.")
    if not target.parent.is_dir():
        raise FileError(f"cannot write {target}: there is no folder {target.parent}. Make it first.")
    head = described(about, kind=kind)
    # safetensors stores the bytes as they are in memory, so other orders would come back scrambled.
    packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    noted = head | {_CHECKSUM: checksum(head, packed)}
    # One entry only: safetensors writes several in random order.
    write_bytes(target, save(packed, metadata={_KEY: json.dumps(noted, allow_nan=False)}))


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write` wrote: the description and the arrays.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    FileError
        The file is damaged, foreign, of another kind or from a newer version.
    """
    from safetensors import SafetensorError, safe_open

    place = Path(path)
    check_regular(place)
    try:
        with safe_open(place, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    # safetensors raises a ValueError or TypeError for some types of numbers that NumPy lacks.
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, MemoryError) as error:
        raise FileError(
            f"{path} cannot be read: it is cut short, damaged or not a file of evidencenet ({error}). "
            "Copy it again from where it was saved, or make it again."
        ) from error
    if _KEY not in metadata:
        raise FileError(f"{path} was not written by evidencenet: it is a safetensors file of something else.")
    with readable(place):
        head = check_format(place, parsed_json(place, metadata[_KEY]))
        check_checksum(place, head.pop(_CHECKSUM, None), head, arrays)
        if head["kind"] != kind:
            raise FileError(f"{path} is a file of {head['kind']}, not of {kind}.")
    return head, arrays


def described(about: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a description with the format and the version of the library that writes it."""
    return {**more, "format": FORMAT, "version": __version__, **about}


def check_format(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """Return a description, unless a newer version wrote it."""
    number = head.get("format")
    if type(number) is not int:
        raise FileError(f"{path} is damaged: its description has no format number. Copy or make it again.")
    if number > FORMAT:
        raise FileError(
            f"{path} was written by evidencenet {head.get('version')} (file format {number}); this is "
            f"{__version__}, which reads formats up to {FORMAT}. Update with: pip install -U evidencenet"
        )
    return head


def checksum(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a description and of arrays: their names, types, shapes and all bytes.

    Examples
    --------
    >>> checksum({}, {"a": np.zeros(2)}) == checksum({}, {"a": np.array([0.0, -0.0])})
    False
    """
    # Once through JSON and back, because a file has lists for tuples and text for numbers as keys.
    plain = json.loads(json.dumps(about))
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"\0{name}\0".encode("utf-8", "surrogatepass"))
        hash_array(digest, arrays[name])
    return digest.hexdigest()


def hash_array(digest: Any, array: Any) -> None:
    """Add the type, shape and all bytes of an array to a hash, block by block (about 1.6 GB a second)."""
    digest.update(f"{np.dtype(array.dtype).str}{tuple(array.shape)}".encode())
    if len(array.shape) == 0:
        digest.update(np.asarray(array).tobytes())
        return
    row = max(1, int(array.dtype.itemsize * np.prod(array.shape[1:], dtype=float)))
    step = max(1, _BYTES_PER_BLOCK // row)
    for start in range(0, array.shape[0], step):
        block = np.ascontiguousarray(array[start : start + step])
        if block.size:
            digest.update(block.reshape(-1).view(np.uint8).data)


def check_checksum(
    path: Path, expected: Any, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Raise a `FileError` unless the content of a file that we wrote has the checksum noted in it."""
    if expected != checksum(about, arrays):
        raise FileError(
            f"{path} is damaged: its content does not match its checksum, so its numbers cannot be used. "
            "Copy it again from where it was saved, or make it again."
        )


def parsed_json(path: Path, text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text; whatever is wrong with it becomes a `FileError`."""
    try:
        if len(text) > _LARGEST_JSON:
            raise ValueError(f"{len(text):,} characters, at most {_LARGEST_JSON:,} are read")
        parsed = json.loads(text)
        if not isinstance(parsed, dict):
            raise ValueError(f"a {type(parsed).__name__} instead of an object")
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FileError(
            f"{path} is damaged: its description cannot be read ({problem}). Copy or make it again."
        ) from error
    return parsed


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    check_regular(path)
    with path.open("rb") as file:
        return parsed_json(path, file.read(_LARGEST_JSON + 1))


def no_file(path: Path) -> FileNotFoundError:
    """Make the error for a file that is not there."""
    advice = ""
    if any(sign in path.name for sign in "*?["):
        advice = f". Patterns are not looked up: give sorted(glob.glob({str(path)!r})), a list of paths"
    return FileNotFoundError(f"there is no file {path}{advice}")


def check_regular(path: Path) -> None:
    """Raise unless this is a file: a device or a pipe could be read without end."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise no_file(path) from None
    except (OSError, ValueError) as error:
        raise FileError(f"{str(path)!r} cannot be opened ({error}).") from error
    if stat.S_ISDIR(mode):
        raise FileNotFoundError(f"there is no file {path}: it is a folder")
    if not stat.S_ISREG(mode):
        raise FileError(f"{path} is not a file but a device, pipe or socket; copy its content into a file.")


def allowed_bytes(size: int, max_bytes: int | None) -> int:
    """Return how much memory the content of a file of this size may take; `max_bytes` replaces the rule."""
    return max(FREE_BYTES, MOST_EXPANSION * size) if max_bytes is None else max_bytes


def check_expansion(path: Path, needed: float, size: int, max_bytes: int | None) -> None:
    """Raise a `FileError` if a file would fill far more memory than its size on disk.

    Parameters
    ----------
    path
        The file or folder, for the message.
    needed
        The bytes that its arrays say they have.
    size
        Its bytes on disk.
    max_bytes
        The user's own limit; None for `FREE_BYTES`, or `MOST_EXPANSION` times the size if that is more.
    """
    if needed > allowed_bytes(size, max_bytes):
        raise FileError(
            f"{path} has {size / 1e6:,.1f} MB, but would fill {needed / 1e6:,.0f} MB of memory; at most "
            f"{allowed_bytes(size, max_bytes) / 1e6:,.0f} MB are read. If it comes from someone you trust, "
            f"read it in Python with max_bytes={int(min(needed, 2**62))}."
        )


def declared_bytes(shapes: Iterable[tuple[tuple[int, ...], int]]) -> int:
    """Return how many bytes arrays of these shapes and item sizes take; plain integers cannot overflow."""
    total = 0
    for shape, itemsize in shapes:
        count = itemsize
        for length in shape:
            count *= length
        total += count
    return total


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever a library raises about the content of a file into a `FileError` with its path."""
    try:
        yield
    except FileError as error:
        if harmless_text(str(path), one_line=True) in str(error):
            raise
        raise FileError(f"{path}: {str(error).rstrip('.')}.") from error
    except (FileExistsError, PermissionError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not path.exists():
            raise no_file(path) from error
        raise FileError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, ValueError) and "Object arrays" in str(error):
        return (
            f"{path} holds Python objects, which are never loaded, since that can run code. Save arrays of "
            "numbers, all rows of the same shape."
        )
    if isinstance(error, MemoryError):
        return f"{path} cannot be read: there is not enough memory for its content ({error})."
    return (
        f"{path} cannot be read: it is empty, cut short, damaged, or not of the kind that its name says "
        f"({type(error).__name__}: {error}). Make or copy it again, or correct its suffix."
    )
