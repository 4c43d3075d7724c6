"""The store of a simulation: a folder that holds every chunk as soon as it is drawn.

A simulation that was interrupted continues from its store, to the same draws as without the interruption.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evidencenet._common import atomic, files
from evidencenet._common.arrays import arrays_of
from evidencenet._common.atomic import remove_all_leftovers, remove_leftovers
from evidencenet._common.files import FileError
from evidencenet._common.warnings import EvidenceWarning
from evidencenet.simulation.chunks import Chunk, Gathered, words
from evidencenet.simulation.io import containers, zarr_folder


@dataclass(frozen=True)
class Store:
    """Chunks of draws on disk, each a Zarr group ``<model>/<number of its first draw>`` in one Zarr folder.

    A chunk is written to a temporary folder and then moved to its place: it is there as a whole or not at
    all, also if the process is killed, or if two processes fill the same store. Every chunk says which model,
    draws and settings (with the seed) it belongs to, and has a checksum.

    Parameters
    ----------
    path
        The Zarr folder.
    keep_parameters
        Whether the parameters of the draws are stored too.
    spec
        Identifies the settings of the simulation; see `open_store`.
    """

    path: Path
    keep_parameters: bool
    spec: str

    def starts(self, model: int) -> list[int]:
        """Return the first draw of every chunk of a model, sorted; a chunk may turn out to be damaged."""
        folder = self.path / str(model)
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def read(self, model: int, start: int, max_bytes: int | None = None) -> Chunk | None:
        """Return the chunk that begins at a draw; None if it is missing, damaged, or belongs elsewhere."""
        place = self._place(model, start)
        while (folder := _state_of(place)) is not None:
            try:
                return self._read(place, model, start, max_bytes)
            except (FileError, FileNotFoundError, KeyError) as error:
                if _state_of(place) != folder:
                    # Another process has just written it anew, or put it together with the one before it.
                    continue
                warnings.warn(
                    f"the chunk at draw {start} of model {model} in {self.path} is damaged and counts as "
                    f"missing: {error}",
                    EvidenceWarning,
                    stacklevel=2,
                )
                return None
        return None

    def _read(self, place: Path, model: int, start: int, max_bytes: int | None) -> Chunk:
        about, arrays = containers.read(place, ".zarr", max_bytes)
        self._check_identity(about or {}, model, start)
        about = about or {}
        return Chunk(
            containers.unflatten("x", about["x"], arrays),
            containers.unflatten("theta", about["theta"], arrays),
            arrays["valid"],
            about["failure"],
            columns=None if about.get("columns") is None else tuple(map(str, about["columns"])),
        )

    def pieces(self, model: int) -> "Pieces":
        """Return which chunks of a model there are, from their descriptions alone."""
        found = (self._piece(model, start) for start in self.starts(model))
        return Pieces(self, model, tuple(piece for piece in found if piece is not None))

    def _piece(self, model: int, start: int) -> "Piece | None":
        """Return what the description of a chunk says; None if it is gone, damaged, or belongs elsewhere."""
        try:
            about = containers.zarr_description(self._place(model, start)) or {}
            self._check_identity(about, model, start)
            return Piece(start, int(about["drawn"]), int(about["valid"]), about["failure"])
        except (FileError, OSError, KeyError, TypeError, ValueError):
            # It is read, and told about, only if it is needed.
            return Piece(start, 0, 0, None) if self._place(model, start).exists() else None

    def write(self, model: int, start: int, drawn: Chunk) -> None:
        """Store a chunk. One that is there already is replaced, unless it is intact and longer."""
        there = self._piece(model, start)
        if there is not None and there.drawn > len(drawn.valid):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EvidenceWarning)
                if self.read(model, start) is not None:
                    return
        structure_x, arrays = containers.flatten("x", drawn.x)
        structure_theta, thetas = containers.flatten("theta", drawn.theta if self.keep_parameters else None)
        about = {
            "kind": "chunk",
            **self._identity(model, start),
            "x": structure_x,
            "theta": structure_theta,
            "columns": drawn.columns,
            "drawn": len(drawn.valid),
            "valid": len(drawn.valid) - drawn.lost,
            "failure": None if drawn.failure is None else words(drawn.failure),
        }
        containers.write(
            self._place(model, start), about, {**arrays, **thetas, "valid": drawn.valid}, ".zarr"
        )

    def remove(self, model: int, start: int, stop: int) -> None:
        """Remove a chunk, if it ends at a draw that is stored elsewhere."""
        there = self._piece(model, start)
        if there is not None and there.stop <= stop:
            atomic.removed(self._place(model, start))

    def _identity(self, model: int, start: int) -> dict[str, Any]:
        return {"model": model, "start": start, "spec": self.spec}

    def _check_identity(self, about: Mapping[str, Any], model: int, start: int) -> None:
        if about.get("spec") != self.spec:
            raise FileError("it was drawn with another seed or other settings")
        if (about["model"], about["start"]) != (model, start):
            raise FileError(
                f"it begins at draw {about['start']} of model {about['model']}, so it is in the wrong place"
            )

    def _place(self, model: int, start: int) -> Path:
        return self.path / str(model) / str(start)


@dataclass(frozen=True)
class Piece:
    """What the description of a stored chunk says.

    Parameters
    ----------
    start, drawn, valid
        Its first draw, how many draws were made, and how many of them are valid. Nothing is known of a
        damaged chunk: then both numbers are 0.
    failure
        What went wrong first, if anything did.
    """

    start: int
    drawn: int
    valid: int
    failure: str | None

    @property
    def stop(self) -> int:
        """The draw after its last one."""
        return self.start + self.drawn


@dataclass(frozen=True)
class Pieces:
    """The stored chunks of one model, by their first draw. They may overlap."""

    store: Store
    model: int
    pieces: tuple[Piece, ...]

    def read(self, start: int, max_bytes: int | None = None) -> Chunk | None:
        """Return the stored draws from `start` to the end of a chunk; None if there are none, or damaged."""
        # Two processes that fill one store may have cut their chunks at different draws.
        there = [p for p in self.pieces if p.start == start or p.start < start < p.stop]
        for piece in sorted(there, key=lambda piece: piece.stop, reverse=True):
            chunk = self.store.read(self.model, piece.start, max_bytes)
            if chunk is not None and len(chunk.valid) > start - piece.start:
                return chunk.after(start - piece.start) if start > piece.start else chunk
        return None

    def next_start(self, start: int, stop: int) -> int:
        """Return the first draw of the next chunk, but at most `stop`."""
        return min([piece.start for piece in self.pieces if start < piece.start < stop], default=stop)

    @cached_property
    def prefix(self) -> tuple[int, int]:
        """Where the first gap is, and how many valid draws there are before it."""
        end = valid = 0
        for piece in sorted(self.pieces, key=lambda piece: (piece.start, -piece.stop)):
            if piece.start > end:
                break
            if piece.start == end:
                end, valid = piece.stop, valid + piece.valid
            elif piece.stop > end:
                chunk = self.read(end)
                if chunk is not None:
                    end, valid = end + len(chunk.valid), valid + len(chunk.valid) - chunk.lost
        return end, valid

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """First draw and end of each run of draws without a gap."""
        runs: list[tuple[int, int]] = []
        for piece in sorted(self.pieces, key=lambda piece: piece.start):
            if piece.drawn == 0:
                continue
            if runs and piece.start <= runs[-1][1]:
                runs[-1] = (runs[-1][0], max(runs[-1][1], piece.stop))
            else:
                runs.append((piece.start, piece.stop))
        return runs

    @property
    def counted(self) -> tuple[int, int]:
        """How many draws were made, and how many are valid; where chunks overlap, only one of them counts."""
        drawn = valid = end = 0
        for piece in sorted(self.pieces, key=lambda piece: (piece.start, -piece.stop)):
            if piece.start >= end:
                drawn, valid, end = drawn + piece.drawn, valid + piece.valid, piece.stop
        return drawn, valid


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
        What must be the same to continue, by the name of the argument: ``models``, ``seed`` and more, as JSON
        can express it.
    shares
        How many valid draws of each model are wanted; if that is more than before, the store grows.
    code
        For each model something that changes with its code; a change gives a warning.

    Raises
    ------
    FileError
        The folder is not a store, or one with other settings; the message says which.
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
    remove_leftovers(place)
    if not (_is_free(place) and zarr_folder.begin(place, about)):
        _continue(place, about)
    remove_all_leftovers(place)
    for model, name in enumerate(settings["models"]):
        if not (place / str(model)).exists():
            zarr_folder.begin(place / str(model), {"kind": "model", "name": name})
        # The next chunks may begin at other draws, so they would not remove what is left of this one.
        remove_all_leftovers(place / str(model))
    return Store(place, settings["keep_parameters"], _spec(settings))


def stored(path: Path) -> tuple[Store, list[str], list[int]]:
    """Open a store to look at it; return it, its models, and how many valid draws of each are wanted."""
    store, about = described(path)
    return store, about["settings"]["models"], about["shares"]


def described(path: Path) -> tuple[Store, dict[str, Any]]:
    """Open a store to read it in pieces; return its description too."""
    about = _description(path)
    settings = about["settings"]
    return Store(path, settings["keep_parameters"], _spec(settings)), about


def read(path: Path, max_bytes: int | None = None) -> dict[str, Any]:
    """Read the fields of `Simulations` from a complete store."""
    about = _description(path)
    settings, shares = about["settings"], about["shares"]
    store = Store(path, settings["keep_parameters"], _spec(settings))
    # Draws of models that make one at a time may differ in length.
    unequal = [kind == "one" for kind in settings.get("kind", [])] or None
    gathered = Gathered(settings["models"], shares, store.keep_parameters, unequal)
    for model in range(len(shares)):
        pieces = store.pieces(model)
        while gathered.missing(model):
            chunk = pieces.read(gathered.drawn[model], max_bytes)
            if chunk is None:
                # A process that still writes may just have put chunks together.
                pieces, before = store.pieces(model), pieces
                if pieces == before:
                    break
                continue
            if sum(gathered.drawn) == 0 and chunk.x is not None:
                # The arrays for all draws are made now, in the size that the description asks for.
                row = sum(array.nbytes // max(1, len(array)) for array in arrays_of(chunk.x))
                files.check_expansion(path, row * sum(shares), zarr_folder.size_on_disk(path), max_bytes)
            gathered.add(model, chunk)
    if any(gathered.missing(model) for model in range(len(shares))):
        numbers = range(len(shares))
        raise not_complete(store, list(zip(numbers, settings["models"], shares, gathered.valid, strict=True)))
    # Of models with `observe`, the store holds clean draws.
    noise_seed = settings["seed"] if any(settings.get("observe", ())) else None
    return gathered.fields() | {"noise_seed": noise_seed, "missing": settings.get("missing")}


def _description(path: Path) -> dict[str, Any]:
    """Return the description of a store, after looking at every part of it that is used."""
    about = containers.zarr_description(path) or {}
    settings, shares = about.get("settings"), about.get("shares")
    complete = isinstance(settings, dict) and isinstance(shares, list) and isinstance(about.get("code"), list)
    if complete and isinstance(settings, dict) and isinstance(shares, list):
        count = len(shares)
        lists = (settings.get("models"), about["code"])
        complete = all(isinstance(part, list) and len(part) == count for part in lists)
        complete &= all(type(share) is int and share > 0 for share in shares)
        complete &= all(isinstance(name, str) for name in settings.get("models") or [None])
        complete &= isinstance(settings.get("keep_parameters"), bool)
    if not complete:
        raise FileError(
            f"{path} is damaged: the description of the store is incomplete. Its chunks cannot be told apart "
            "without it; draw them again in another folder."
        )
    return about


def not_complete(store: Store, wanted: Sequence[tuple[int, str, int, int]]) -> FileError:
    """Make the error for a store of which too few draws could be read.

    Parameters
    ----------
    store
        The store.
    wanted
        Number and name of each model, how many valid draws are wanted, and how many could be read. Draws are
        read up to the first gap; those behind it are counted too, as `status` does.
    """
    texts = []
    for model, name, share, read in wanted:
        if read >= share:
            continue
        pieces = store.pieces(model)
        is_damaged = pieces.prefix[1] >= share
        lacking = share - read if is_damaged else max(1, share - pieces.counted[1])
        texts.append(f"{name!r} lacks {lacking:,} of {share:,} draws")
    return FileError(
        f"{store.path} is not complete: {', '.join(texts)}. Call simulate again with the same arguments and "
        f"store={str(store.path)!r}; it draws only what is missing."
    )


def _spec(settings: Mapping[str, Any]) -> str:
    """Identify settings by a hash."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]


def _is_free(path: Path) -> bool:
    """Whether a store can be begun here: there is nothing, or an empty folder."""
    return not any(path.iterdir()) if path.is_dir() else not path.exists()


def _continue(path: Path, about: dict[str, Any]) -> None:
    """Check that a store can be continued, and let it grow if more draws are wanted."""
    if not is_store(path):
        raise FileError(f"{path} exists already, and is not a store of simulate. Give another path.")
    there = _description(path)
    _check_same(path, there["settings"], about["settings"])
    for name, old, new in zip(there["settings"]["models"], there["code"], about["code"], strict=True):
        if old != new:
            warnings.warn(
                f"the code of model {name!r} has changed since {path} was begun; its draws so far are of the "
                "old code. If that changes what is drawn, delete the store and begin again.",
                EvidenceWarning,
                stacklevel=5,
            )
    if sum(about["shares"]) > sum(there["shares"]):
        zarr_folder.describe(path, there | {"shares": about["shares"]})


def _check_same(path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    different = [
        f"{key} is {there.get(key)} there and {wanted[key]} here"
        for key in wanted
        if there.get(key) != wanted[key]
    ]
    if different:
        raise FileError(
            f"{path} was made with other settings: {'; '.join(different)}. Give the same settings to "
            "continue it, or another path, or delete the folder to begin again."
        )


def _state_of(folder: Path) -> tuple[int, int] | None:
    """Tell a folder from another one that later has the same name; None if there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
