"""Draw one part of a simulation into a store that other jobs fill too.

All parts have one seed and one store. The first draws of a model, as many as are wanted, are divided into
equal runs, one for each part. Draws that fail are replaced by later draws, which are divided into short runs,
dealt out to the parts like cards. So every draw belongs to one part, whatever the others do, and none is made
twice.

How many later draws are needed is known only at the end. The job that ends last looks, and draws what is
still missing.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evidencenet._common.progress import Progress
from evidencenet.simulation.chunks import Source
from evidencenet.simulation.failures import SimulationError, Tally
from evidencenet.simulation.jobs import Job, JobRecord, Part, claimed, jobs_of
from evidencenet.simulation.runs import Run
from evidencenet.simulation.store import Pieces, Store
from evidencenet.simulation.writer import Writer

# A run of later draws is this part of a job's own draws. If one draw in ten fails, each job gets about two
# such runs.
_LATER_PART = 20


@dataclass
class _Work:
    """What one job does with one model."""

    run: Run
    store: Store
    share: int
    tally: Tally
    record: JobRecord
    tell: Callable[[int], None]
    outside: set[str]

    def draw(self, start: int, stop: int) -> None:
        """Draw from one draw to another, as far as that is not stored, and store it."""
        with (
            Writer(self.store, self.run.source, discard=SimulationError) as writer,
            contextlib.closing(self.run.chunks(start, stop)) as chunks,
        ):
            for first, chunk, new in chunks:
                self.tally.add(chunk)
                self.outside |= set(chunk.outside)
                self.record.count(len(chunk.valid), chunk.lost)
                if new:
                    writer.add(first, chunk, wait=self.tally.early)
                self.tell(len(chunk.valid))

    def draw_own(self, part: Part) -> None:
        """Draw all that belongs to a part."""
        done: set[tuple[int, int]] = set()
        while True:
            needed = _needed(self.store.pieces(self.run.source.number), self.share)
            own = [each for each in _runs(self.run.source, part, self.share, needed) if each not in done]
            if not own:
                return
            self.draw(*own[0])
            done.add(own[0])

    def draw_rest(self) -> None:
        """Draw what no part has drawn, until there are enough valid draws without a gap."""
        source = self.run.source
        while True:
            pieces = self.store.pieces(source.number)
            end, valid = pieces.prefix
            if valid >= self.share:
                return
            following = [start for start, _ in pieces.runs if start > end]
            stop = following[0] if following else source.end(max(_needed(pieces, self.share), end + 1))
            self.draw(end, stop)

    @property
    def complete(self) -> bool:
        """Whether there are enough valid draws without a gap."""
        return self.store.pieces(self.run.source.number).prefix[1] >= self.share


def draw_part(
    runs: Sequence[Run], shares: Sequence[int], store: Store, part: Part, max_failed: float, progress: bool
) -> dict[str, set[str]]:
    """Draw what belongs to a part, of each model; the last job to end draws what is then missing.

    Returns
    -------
    outside
        For each model which global random numbers it used, if any.
    """
    first = [_first_run(run.source, part, share) for run, share in zip(runs, shares, strict=True)]
    own, done = sum(end - begin for begin, end in first), 0
    with (
        JobRecord(store.path, part, shares) as record,
        Progress(f"simulating part {part}", max(own, 1), enabled=progress) as bar,
    ):

        def tell(drawn: int) -> None:
            nonlocal done
            done += drawn
            bar.update(min(done, own))

        works = [
            _Work(run, store, share, Tally(run.source.model.name, max_failed), record, tell, set())
            for run, share in zip(runs, shares, strict=True)
        ]
        for work in works:
            work.draw_own(part)
        # Others see that this part is done before it looks whether they are: so one of them is the last.
        record.note(state="done")
        others = {job.part for job in jobs_of(store.path) if _is_done(job, part, shares)}
        lacking = [work for work in works if not work.complete]
        if lacking and others == set(range(1, part.of + 1)) and claimed(store.path, part, shares):
            record.note(state="running")
            for work in lacking:
                work.draw_rest()
        for work in works:
            work.tally.tell()
    return {work.run.source.model.name: work.outside for work in works if work.outside}


def _is_done(job: Job, part: Part, shares: Sequence[int]) -> bool:
    """Whether a job has drawn its part of this simulation."""
    return job.state == "done" and job.of == part.of and job.shares == tuple(shares)


def _needed(pieces: Pieces, share: int) -> int:
    """Return how many draws give the valid ones that are wanted, by the valid fraction so far."""
    drawn, valid = pieces.counted
    return share if valid == 0 else math.ceil(share * drawn / valid)


def _first_run(source: Source, part: Part, share: int) -> tuple[int, int]:
    """Return which of the first draws belong to a part."""
    return source.end(share * (part.number - 1) // part.of), source.end(share * part.number // part.of)


def _runs(source: Source, part: Part, share: int, needed: int) -> Iterator[tuple[int, int]]:
    """Give the runs of draws that belong to a part, as far as draw `needed`."""
    begin, end = _first_run(source, part, share)
    if end > begin:
        yield begin, end
    end, length = source.end(share), max(1, share // (_LATER_PART * part.of))
    for number in itertools.count():
        begin, end = end, source.end(end + length)
        if begin >= needed:
            return
        if number % part.of == part.number - 1:
            yield begin, end
