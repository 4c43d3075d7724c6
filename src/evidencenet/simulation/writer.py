"""`Writer`: put the chunks of one model into a store, few and large, and soon after they were drawn."""

import time
from dataclasses import dataclass

from evidencenet._common.warnings import log
from evidencenet.simulation.chunks import Chunk, Source, join_chunks
from evidencenet.simulation.runs import MOST_BYTES
from evidencenet.simulation.store import Store

# Draws are written to the store after so many seconds. To write takes 20 ms, under 1% of the time.
_WRITE_SECONDS = 3.0
# Chunks that follow each other are put together until they have so many bytes: a slow simulator would leave
# a folder for every three seconds otherwise.
_MERGED_BYTES = MOST_BYTES


@dataclass(frozen=True)
class _Written:
    """A chunk that this writer has stored."""

    start: int
    chunk: Chunk

    @property
    def stop(self) -> int:
        return self.start + len(self.chunk.valid)


class Writer:
    """Write the chunks of a model to a store, several together if they come fast; all at the end.

    Stored chunks are put together like the digits of a binary number: two neighbours of about equal size
    become one of twice the size. So each draw is written some ten times at most, and a model leaves one
    chunk for every 64 MB, and a few smaller ones after an interruption.

    Parameters
    ----------
    store
        The store; None to write nothing.
    source
        The model.
    discard
        An exception after which what still waits is not written.
    """

    def __init__(self, store: Store | None, source: Source, discard: type[BaseException]) -> None:
        self._store, self._source, self._discard = store, source, discard
        self._start = 0
        self._waiting: list[Chunk] = []
        self._written: list[_Written] = []
        self._last = time.monotonic()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._write()
            self._merge(at_the_end=True)
        # Draws of a simulator that fails too often are not stored: it will be corrected.
        elif not issubclass(kind, self._discard):
            try:
                self._write()
            except Exception as problem:
                # What stopped the simulation is told, not this. It may have stopped an import half way.
                log.warning("the last draws could not be stored: %s", problem)

    def add(self, start: int, chunk: Chunk, *, wait: bool) -> bool:
        """Take the next chunk; `wait` means that it is too early to write it. Return whether it wrote."""
        if self._store is None:
            return False
        if start != self._start + sum(len(waiting.valid) for waiting in self._waiting):
            self._write()
        if not self._waiting:
            self._start = start
        self._waiting.append(chunk)
        full = sum(waiting.size for waiting in self._waiting) >= MOST_BYTES
        due = not wait and (full or time.monotonic() - self._last >= _WRITE_SECONDS)
        if due:
            self._write()
        return due

    def _write(self) -> None:
        if self._store is not None and self._waiting:
            chunk = join_chunks(self._waiting, self._source.model)
            if self._written and self._written[-1].stop != self._start:
                # There is a gap: nothing will be joined to the chunks before it.
                self._merge(at_the_end=True)
                self._written.clear()
            self._store.write(self._source.number, self._start, chunk)
            self._written.append(_Written(self._start, chunk))
            self._merge()
        self._waiting = []
        self._last = time.monotonic()

    def _merge(self, *, at_the_end: bool = False) -> None:
        """Put the last stored chunks together, as long as the one before is not larger than the last."""
        joined = 1
        while joined < len(self._written):
            first, *others = (each.chunk.size for each in self._written[-joined - 1 :])
            if first + sum(others) > _MERGED_BYTES or (first > sum(others) and not at_the_end):
                break
            joined += 1
        if joined > 1 and self._store is not None:
            parts = self._written[-joined:]
            whole = join_chunks([part.chunk for part in parts], self._source.model)
            self._store.write(self._source.number, parts[0].start, whole)
            for part in parts[1:]:
                self._store.remove(self._source.number, part.start, part.stop)
            self._written[-joined:] = [_Written(parts[0].start, whole)]
        # Nothing will be joined to a chunk that is nearly full, so it need not stay in memory.
        while len(self._written) > 1 and self._written[0].chunk.size > _MERGED_BYTES // 2:
            self._written.pop(0)
