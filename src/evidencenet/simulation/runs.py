"""Draw a run of draws of one model, chunk by chunk: chunks that are stored are read, the others are drawn."""

import contextlib
import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from evidencenet._common.warnings import log
from evidencenet.simulation.chunks import Chunk, Source
from evidencenet.simulation.store import Store
from evidencenet.simulation.workers import Workers, is_worker_death, worker_error

# A chunk should take so many seconds: progress moves, and a worker that is interrupted loses no more.
_CHUNK_SECONDS = 1.0
# All workers together finish at most so many chunks a second: with many workers, chunks are longer. A
# scheduler needs some milliseconds for each (see docs/scale.md).
_CHUNKS_A_SECOND = 100
# A chunk is at most so many times as long as the one before: the time of the first few draws may deceive.
_GROWTH = 10
# Several workers get at least so many chunks each, so that they finish at about the same time.
_CHUNKS_PER_WORKER = 4
# Neither a chunk nor what waits to be written takes more bytes than this, unless a single block does.
MOST_BYTES = 2**26


@dataclass
class Pace:
    """How long the next chunk of a model should be, from the time that the last one took.

    Parameters
    ----------
    workers
        How many chunks are drawn at the same time.
    most
        The most draws that a chunk may have.
    """

    workers: int
    most: float
    _draws: float = field(default=0.0, init=False)

    def note(self, chunk: Chunk) -> None:
        """Learn from a chunk how many draws one chunk should have."""
        drawn = len(chunk.valid)
        seconds = max(_CHUNK_SECONDS, self.workers / _CHUNKS_A_SECOND)
        by_time = seconds * drawn / max(chunk.seconds, 1e-9)
        by_size = MOST_BYTES * drawn / max(chunk.size, 1)
        self._draws = min(by_time, by_size, _GROWTH * drawn)

    def draws(self, left: int) -> int:
        """Return how many draws the next chunk should have, if `left` are to be made."""
        fair = math.inf if self.workers == 1 else left / (_CHUNKS_PER_WORKER * self.workers)
        return max(1, int(min(self._draws, fair, self.most)))


@dataclass(frozen=True)
class Run:
    """How the draws of one model are made.

    Parameters
    ----------
    source
        Draws any chunk of the model.
    workers
        Who draws.
    pace
        How long the chunks are.
    store
        Where chunks may be stored already; None if nothing is stored.
    """

    source: Source
    workers: Workers
    pace: Pace
    store: Store | None

    def chunks(self, start: int, stop: int) -> Generator[tuple[int, Chunk, bool]]:
        """Give the chunks from one draw to another, in order: first draw, chunk, whether it is new.

        The first chunk begins at `start`, where a block begins. The last one ends at `stop`, where a block
        ends, or later if a stored chunk does.
        """
        died_at = None
        stored = None if self.store is None else self.store.pieces(self.source.number)
        while start < stop:
            chunk = None if stored is None else stored.read(start)
            if chunk is not None:
                yield start, chunk, False
                start += len(chunk.valid)
                continue
            until = stop if stored is None else stored.next_start(start, stop)
            try:
                with contextlib.closing(self.workers.draw(self.source, self._units(start, until))) as made:
                    for chunk in made:
                        self.pace.note(chunk)
                        yield start, chunk, True
                        start += len(chunk.valid)
            except Exception as error:
                if not is_worker_death(error):
                    raise
                # Once may be chance, such as a machine short of memory. The same draws are made again.
                name = self.source.model.name
                if died_at == start or self.workers.broken is not None:
                    raise worker_error(name, start, error, self.workers.broken) from error
                died_at = start
                log.warning("a worker process died at draw %d of model %r; trying again", start, name)

    def _units(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Divide draws into chunks: first draw and end of each."""
        while start < stop:
            end = min(self.source.end(start + self.pace.draws(stop - start)), stop)
            if start < self.source.patience:
                # A model that always fails is stopped here.
                end = min(end, self.source.end(self.source.patience))
            yield start, end
            start = end
