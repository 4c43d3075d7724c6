"""`StoredDraws`: the draws of stores as a stream, for those that do not fit in memory."""

import os
import socket
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, join, layout, layout_text, map_arrays
from evidencenet._common.files import FileError
from evidencenet.simulation.io import containers
from evidencenet.simulation.store import Store, described, is_store, not_complete
from evidencenet.simulation.stream import Use, in_order

# Chunks are handed on in blocks of about this many bytes.
_BLOCK_BYTES = 2**24


class NotInPiecesError(FileError):
    """The draws of a store can only be read all at once."""


@dataclass(frozen=True)
class Piece:
    """A stored chunk, or the end of one.

    Parameters
    ----------
    store, model, start
        Where it is.
    skip
        Draws at its beginning that belong to the chunk before: two processes may have cut chunks differently.
    rows
        How many valid draws of it are used.
    checksum
        Of its content.
    noise_seed
        Seed of the noise of its store, if this holds clean draws, else None.
    """

    store: Store
    model: int
    start: int
    skip: int
    rows: int
    checksum: str
    noise_seed: int | None = None

    def read(self) -> Data:
        """Return its valid draws."""
        chunk = self.store.read(self.model, self.start, max_bytes=2**62)
        if chunk is None and not self.store.path.exists():
            raise FileNotFoundError(
                f"there is no store {self.store.path} on {socket.gethostname()}. It was moved or removed, or "
                "a worker on another machine does not see it. All workers must see it at the same path."
            )
        if chunk is None:
            raise FileError(
                f"the chunk at draw {self.start} of model {self.model} in {self.store.path} is gone or "
                "damaged. Call simulate again with the same arguments and the same store; it draws what is "
                "missing."
            )
        x = chunk.after(self.skip).x if self.skip else chunk.x
        return map_arrays(lambda array: array[: self.rows], x)


@dataclass(frozen=True, eq=False)
class StoredDraws:
    """The draws of one store or several: whole chunks in a new random order in each epoch.

    Parameters
    ----------
    names
        The models.
    pieces
        The chunks of each model.
    failed
        How many draws of each model failed.
    noise_seed
        Seed of the noise if the stores hold clean draws, else None; of several stores, that of the first.
    seed
        Orders depend on it and on the epoch alone.
    workers
        How many chunks are read at the same time.
    held_out
        Rows that are not part of the stream, by model and number of the piece.
    first, every
        Of the other rows of each chunk, only these are taken.
    columns
        The names of the numbers of a draw, if the stores have them.
    """

    names: tuple[str, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    failed: tuple[int, ...]
    noise_seed: int | None
    seed: int = 0
    workers: int = 1
    held_out: Mapping[tuple[int, int], np.ndarray] = field(default_factory=dict)
    first: int = 0
    every: int = 1
    columns: tuple[str, ...] | None = None

    @staticmethod
    def open(paths: Sequence[str | os.PathLike[str]], *, seed: int = 0, workers: int = 1) -> "StoredDraws":
        """Open stores of the same models, or of one model each. Only their descriptions are read."""
        opened = [_opened(Path(path)) for path in paths]
        apart = drawn_apart([one.names for one in opened])
        for path, other in zip(paths[1:], opened[1:], strict=True):
            if other.names != opened[0].names and not apart:
                raise FileError(
                    f"{path} has draws of {', '.join(other.names)}, and {paths[0]} of "
                    f"{', '.join(opened[0].names)}; wanted the same models in the same order, or one model "
                    "in each."
                )
            if (other.noise_seed is None) != (opened[0].noise_seed is None) and not apart:
                raise FileError(f"one of {path} and {paths[0]} holds clean draws, and the other does not.")
        first: dict[str, str | os.PathLike[str]] = {}
        for path, one in zip(paths, opened, strict=True):
            spec = one.pieces[0][0].store.spec
            if spec in first:
                # Held-out draws of the one would be training draws of the other.
                raise FileError(
                    f"{path} and {first[spec]} hold the same draws: they were made by the same models with "
                    "the same seed. Leave one out, or simulate it with another seed."
                )
            first[spec] = path
        seeds = [one.noise_seed for one in opened if one.noise_seed is not None]
        together = replace(opened[0], noise_seed=seeds[0] if seeds else None, seed=seed, workers=workers)
        pieces, failed = [one.pieces for one in opened], [one.failed for one in opened]
        if apart:
            # As if they were one store, whose noise has one seed.
            own = [
                tuple(replace(piece, noise_seed=together.noise_seed) for piece in one[0]) for one in pieces
            ]
            names = sum((one.names for one in opened), ())
            return replace(together, names=names, pieces=tuple(own), failed=sum(failed, ()))
        return replace(
            together,
            pieces=tuple(sum(each, ()) for each in zip(*pieces, strict=True)),
            failed=tuple(map(sum, zip(*failed, strict=True))),
        )

    @property
    def epochs(self) -> None:
        """Every epoch has all draws."""
        return

    @property
    def totals(self) -> tuple[int, ...]:
        """How many draws of each model there are, held-out ones included."""
        return tuple(sum(piece.rows for piece in pieces) for pieces in self.pieces)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many draws of each model the stream has."""
        return tuple(
            sum(len(range(self.first, self._kept(k, i), self.every)) for i in range(len(pieces)))
            for k, pieces in enumerate(self.pieces)
        )

    def halves(self) -> "tuple[StoredDraws, StoredDraws]":
        """Divide the draws: every other one of each chunk."""
        first, second = (
            replace(self, first=self.first + i * self.every, every=2 * self.every) for i in (0, 1)
        )
        return first, second

    def blocks(self, model: int, epoch: int, pool: Executor, use: Use | None = None) -> Generator[Any]:
        """Give the draws of a model, whole chunks in random order."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(epoch, model)))
        order = rng.permutation(len(self.pieces[model])).tolist()

        def made(number: int) -> list[Any]:
            x = self._rows(model, number)
            n = len(arrays_of(x)[0])
            row = sum(array.nbytes for array in arrays_of(x)) // max(n, 1)
            step = max(1, _BLOCK_BYTES // max(row, 1))
            parts = [map_arrays(lambda array, at=at: array[at : at + step], x) for at in range(0, n, step)]
            return parts if use is None else [use((number << 20) + i, part) for i, part in enumerate(parts)]

        for results in in_order(pool, made, ((number,) for number in order), self.workers, ahead=1):
            yield from results

    def sample(self, size: int, part_held_out: float) -> tuple[Data, np.ndarray, np.ndarray, "StoredDraws"]:
        """Take random draws into memory, from as few chunks as are needed.

        Parameters
        ----------
        size
            How many draws in all, each model in proportion.
        part_held_out
            The part of them that is held out, and no longer in the stream.

        Returns
        -------
        x, label, held_out, stream
            The draws, their models, which are held out, and the stream without these.
        """
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(2**31,)))
        totals = self.totals
        parts: list[Any] = []
        labels, flags, removed = [], [], {}
        for k, pieces in enumerate(self.pieces):
            left = max(2, round(size * totals[k] / sum(totals)))
            for number in rng.permutation(len(pieces)).tolist():
                x = pieces[number].read()
                if parts and layout(x) != layout(parts[0]):
                    raise NotInPiecesError(
                        f"{pieces[number].store.path} holds {layout_text(layout(parts[0]))} and "
                        f"{layout_text(layout(x))}; draws of unequal length cannot be read in pieces. Read "
                        "all of them, train(Simulations.read(path))."
                    )
                taken = min(left, pieces[number].rows)
                rows = rng.permutation(pieces[number].rows)[:taken]
                held = max(1, round(part_held_out * taken)) if part_held_out else 0
                removed[k, number] = np.sort(rows[:held])
                parts.append(map_arrays(lambda array, rows=rows: array[rows], x))
                labels.append(np.full(taken, k))
                flags.append(np.arange(taken) < held)
                left -= taken
                if left <= 0:
                    break
        stream = replace(self, held_out={key: rows for key, rows in removed.items() if len(rows)})
        return join(*parts), np.concatenate(labels), np.concatenate(flags), stream

    @property
    def about(self) -> str:
        """Identify all draws by the checksums of the chunks, which are in their descriptions."""
        return " ".join(piece.checksum for pieces in self.pieces for piece in pieces)

    def _kept(self, model: int, number: int) -> int:
        return self.pieces[model][number].rows - len(self.held_out.get((model, number), ()))

    def _rows(self, model: int, number: int) -> Data:
        """Read a piece without the held-out draws."""
        x, removed = self.pieces[model][number].read(), self.held_out.get((model, number))
        if removed is not None:
            x = map_arrays(lambda array: np.delete(array, removed, axis=0), x)
        if self.every == 1:
            return x
        return map_arrays(lambda array: array[self.first :: self.every], x)


def drawn_apart(names: Sequence[tuple[str, ...]]) -> bool:
    """Say whether several stores have one model each, a different one."""
    return len(names) > 1 and all(len(own) == 1 for own in names) and len(set(names)) == len(names)


def are_stores(paths: Any) -> bool:
    """Say whether something is the path of a store, or several of them."""
    if isinstance(paths, str | os.PathLike):
        return Path(paths).suffix.lower() == ".zarr" and Path(paths).is_dir() and is_store(Path(paths))
    return isinstance(paths, list | tuple) and bool(paths) and all(map(are_stores, paths))


def _opened(path: Path) -> StoredDraws:
    """Open one store: look at the description of every chunk."""
    store, about = described(path)
    settings = about["settings"]
    if settings.get("missing"):
        raise NotInPiecesError(
            f"{path} has draws with missing numbers, which cannot be read in pieces. Read all of them, "
            "train(Simulations.read(path, missing='mask'))."
        )
    # Pieces may be read by workers that are in another folder.
    everywhere = replace(store, path=path.absolute())
    noise_seed = int(settings["seed"]) if any(settings.get("observe", ())) else None
    pieces, failed, columns = [], [], None
    for k, (name, share) in enumerate(zip(settings["models"], about["shares"], strict=True)):
        mine: list[Piece] = []
        position = valid = lost = 0
        for start in store.starts(k):
            if valid >= share or start > position:
                break
            told = containers.zarr_description(path / str(k) / str(start)) or {}
            drawn = int(told["drawn"])
            if start + drawn <= position:
                continue
            skip, rows = position - start, int(told["valid"])
            wanted = share - valid
            if skip or rows > wanted:
                chunk = store.read(k, start, max_bytes=2**62)
                places = np.flatnonzero([] if chunk is None else chunk.valid[skip:])
                rows = min(len(places), wanted)
                drawn = skip + (int(places[rows - 1]) + 1 if rows == wanted else drawn - skip)
            columns = told.get("columns")
            if rows:
                mine.append(Piece(everywhere, k, start, skip, rows, str(told.get("checksum")), noise_seed))
            valid, lost, position = valid + rows, lost + drawn - skip - rows, start + drawn
        if valid < share:
            raise not_complete(store, [(k, name, share, valid)])
        pieces.append(tuple(mine))
        failed.append(lost)
    return StoredDraws(
        tuple(settings["models"]),
        tuple(pieces),
        tuple(failed),
        noise_seed,
        columns=None if columns is None else tuple(map(str, columns)),
    )
