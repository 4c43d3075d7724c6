"""One file of named arrays and JSON, in safetensors form: nothing read from it can run code."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._version import __version__

# Raised whenever a file written by this version could be misread by an older one.
FORMAT = 5
_KEY = "evidencenet"


class FileError(ValueError):
    """A file that is not ours, is damaged, or was written by a newer version."""


def write(
    path: str | os.PathLike[str], kind: str, about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write arrays and a JSON description; an existing file is replaced only when all is written.

    Parameters
    ----------
    path
        The file.
    kind
        What the file holds, such as ``"network"``; `read` asks for the same.
    about
        Anything JSON can say.
    arrays
        Arrays by name.
    """
    from safetensors.numpy import save_file

    head = {"kind": kind, "format": FORMAT, "version": __version__, **about}
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"cannot write {target}: there is no folder {target.parent}. Make it first.")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    # safetensors stores the bytes as they lie in memory: other orders would come back scrambled.
    packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        save_file(packed, partial, metadata={_KEY: json.dumps(head, allow_nan=False)})
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


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

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise FileError(
            f"{path} cannot be read: it is cut short, damaged or not a file of evidencenet ({error}). "
            "Copy it again from where it was saved, or make it anew."
        ) from error
    if _KEY not in metadata:
        raise FileError(f"{path} was not written by evidencenet: it is a safetensors file of something else.")
    head = json.loads(metadata[_KEY])
    if head["format"] > FORMAT:
        raise FileError(
            f"{path} was written by evidencenet {head['version']} (file format {head['format']}); this is "
            f"{__version__}, which reads formats up to {FORMAT}. Update with: pip install -U evidencenet"
        )
    if head["kind"] != kind:
        raise FileError(f"{path} is a file of {head['kind']}, not of {kind}.")
    return head, arrays
