"""A folder that keeps the chunks of a simulation as they are drawn, so that it can go on after a break."""

import contextlib
import itertools
import math
import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidencenet._common.files import FileError
from evidencenet._common.warnings import EvidenceWarning
from evidencenet.simulation.chunks import Chunk, Gathered, words
from evidencenet.simulation.io import containers

# What was begun so long ago and is not finished never will be.
_SECONDS_UNTIL_LEFT = 3600.0
_SECONDS_TO_MOVE = 0.5


@dataclass(frozen=True)
class Store:
    """Chunks of draws on disk, each a Zarr group ``<model>/<chunk>`` in one Zarr folder.

    A chunk is written beside its place and then moved there: it is there as a whole or not at all, also if
    the process is killed, and if two processes fill the same store.
    """

    path: Path
    keep_parameters: bool

    def has(self, model: int, chunk: int) -> bool:
        """Whether a chunk is there; it may still turn out to be damaged."""
        return self._place(model, chunk).exists()

    def read(self, model: int, chunk: int) -> Chunk | None:
        """Return a chunk, None if it is missing or damaged."""
        place = self._place(model, chunk)
        if not place.exists():
            return None
        try:
            about, arrays = containers.read(place, ".zarr")
            about = about or {}
            return Chunk(
                containers.unflatten("x", about["x"], arrays),
                containers.unflatten("theta", about["theta"], arrays),
                arrays["valid"],
                about["failure"],
            )
        except (FileError, KeyError) as error:
            warnings.warn(
                f"chunk {chunk} of model {model} in {self.path} is damaged and counts as missing: {error}",
                EvidenceWarning,
                stacklevel=2,
            )
            return None

    def write(self, model: int, chunk: int, made: Chunk) -> None:
        """Keep a chunk; one that is there already is replaced."""
        built_x, arrays = containers.flatten("x", made.x)
        built_theta, thetas = containers.flatten("theta", made.theta if self.keep_parameters else None)
        failure = None if made.failure is None else words(made.failure)
        about = {"kind": "chunk", "x": built_x, "theta": built_theta, "failure": failure}
        place = self._place(model, chunk)
        for left in place.parent.glob(f".{place.name}.*"):
            # Of a process that was killed; a younger one may be another process's, and gone any moment.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _SECONDS_UNTIL_LEFT:
                    shutil.rmtree(left)
        try:
            containers.write(place, about, {**arrays, **thetas, "valid": made.valid}, ".zarr")
        except OSError:
            # Another process may be putting the same chunk there in this very moment.
            time.sleep(_SECONDS_TO_MOVE)
            if self.read(model, chunk) is None:
                raise

    def _place(self, model: int, chunk: int) -> Path:
        return self.path / str(model) / str(chunk)


def is_store(path: Path) -> bool:
    """Whether a folder is a store."""
    about = containers.zarr_description(path) if path.is_dir() else None
    return about is not None and about.get("kind") == "store"


def open_store(
    path: str | os.PathLike[str], settings: Mapping[str, Any], shares: Sequence[int], code: Sequence[str]
) -> Store:
    """Open a store, or begin one.

    Parameters
    ----------
    path
        The folder, with the suffix ``.zarr``.
    settings
        What must be the same to go on, by the name of the argument: ``models`` and more, in terms of JSON.
    shares
        How many valid draws of each model are wanted; if that is more than before, the store grows.
    code
        For each model something that changes with its code; a change is warned about.

    Raises
    ------
    FileError
        The folder is no store, or one with other settings; the message says which.
    """
    place = Path(path)
    if place.suffix.lower() != ".zarr":
        raise ValueError(f"store must be a folder whose name ends in .zarr, got {str(path)!r}")
    about: dict[str, Any] = {
        "kind": "store",
        "settings": dict(settings),
        "shares": list(shares),
        "code": list(code),
    }
    if not place.parent.is_dir():
        raise FileNotFoundError(f"cannot begin {place}: there is no folder {place.parent}. Make it first.")
    if not (_is_free(place) and containers.begin_zarr(place, about)):
        _go_on(place, about)
    for model, name in enumerate(settings["models"]):
        if not (place / str(model)).exists():
            containers.begin_zarr(place / str(model), {"kind": "model", "name": name})
    return Store(place, settings["keep_parameters"])


def _is_free(path: Path) -> bool:
    """Whether a store can be begun here; one whose first file is unfinished has not been begun."""
    if not path.is_dir():
        return not path.exists()
    return all(entry.suffix == ".partial" for entry in path.iterdir())


def _go_on(path: Path, about: dict[str, Any]) -> None:
    """Check that a store is one to go on with, and let it grow if more draws are wanted."""
    if not is_store(path):
        raise FileError(f"{path} is there already, and is no store of simulate. Give another path.")
    found = containers.zarr_description(path) or {}
    _check_same(path, found["settings"], about["settings"])
    for name, old, new in zip(found["settings"]["models"], found["code"], about["code"], strict=True):
        if old != new:
            warnings.warn(
                f"the code of model {name!r} has changed since {path} was begun; its draws so far are of the "
                "old code. If that changes what is drawn, delete the store and begin anew.",
                EvidenceWarning,
                stacklevel=4,
            )
    if sum(about["shares"]) > sum(found["shares"]):
        containers.describe_zarr(path, found | {"shares": about["shares"]})


def read(path: Path) -> dict[str, Any]:
    """Read what `Simulations` is made of from a store that is complete."""
    about = containers.zarr_description(path) or {}
    settings, shares = about["settings"], about["shares"]
    kept = Store(path, settings["keep_parameters"])
    gathered = Gathered(settings["models"], shares, kept.keep_parameters)
    for model in range(len(shares)):
        for number in itertools.count():
            chunk = kept.read(model, number) if gathered.missing(model) else None
            if chunk is None:
                break
            gathered.add(model, chunk)
    lacking = [
        f"{name!r} lacks {gathered.missing(m):,} of {share:,} draws"
        for m, (name, share) in enumerate(zip(settings["models"], shares, strict=True))
        if gathered.missing(m)
    ]
    if lacking:
        sizes = zip(settings["chunk"], range(len(shares)), strict=True)
        chunks = sum(math.ceil(gathered.missing(m) / size) for size, m in sizes)
        raise FileError(
            f"{path} is not complete: {', '.join(lacking)}, at least {chunks} chunks in all. Call simulate "
            f"again with the same arguments and store={str(path)!r}; it draws only what is missing."
        )
    return gathered.fields()


def _check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    different = [
        f"{key} is {found.get(key)} there and {wanted[key]} here"
        for key in wanted
        if found.get(key) != wanted[key]
    ]
    if different:
        advice = ""
        if found.get("chunk") != wanted["chunk"] and len(set(found.get("chunk", []))) == 1:
            # A chunk is never larger than what is wanted of its model, so a small n makes small chunks.
            advice = f" (with chunk={found['chunk'][0]} its chunks can be used)"
        raise FileError(
            f"{path} was made with other settings: {'; '.join(different)}{advice}. Give the same ones to go "
            "on with it, or another path, or delete the folder to begin anew."
        )
