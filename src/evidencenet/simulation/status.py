"""`status`: what a store holds, what is missing, and which jobs failed."""

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidencenet._common.arguments import no_attribute
from evidencenet._common.arrays import kind_of
from evidencenet._common.files import FileError
from evidencenet._common.warnings import EvidenceWarning
from evidencenet.simulation.io import zarr_folder
from evidencenet.simulation.jobs import Job, jobs_of
from evidencenet.simulation.store import is_store, stored

# So many gaps, and so many jobs of a kind, are named.
_MOST_NAMED = 5
# What people look for in a status, and where it is.
_HINTS = {
    "done": "complete",
    "finished": "complete",
    "missing": "models[0].missing, for each model",
    "failed": "jobs, whose state may be 'failed', or models[0].failed for the draws",
    "running": "jobs, whose state may be 'running'",
    "n": "models[0].wanted, for each model",
    "draws": "models[0].valid, for each model",
}


@dataclass(frozen=True)
class ModelStatus:
    """What a store holds of one model.

    Parameters
    ----------
    name
        The model.
    wanted
        How many valid draws are wanted.
    valid, failed
        How many valid draws are stored, and how many draws failed beside them. Later draws than are needed
        may be among them.
    gaps
        First draw and end of each run of draws that is missing between others, or before them.
    end
        The end of the last draw that is stored; 0 if there is none.
    complete
        Whether the valid draws that are wanted are there.
    failure
        The first failure that is known, in words; None if there was none.
    """

    name: str
    wanted: int
    valid: int
    failed: int
    gaps: tuple[tuple[int, int], ...]
    end: int
    complete: bool
    failure: str | None

    @property
    def missing(self) -> int:
        """How many valid draws are missing: at least as many as this number."""
        if self.complete:
            return 0
        return max(1, self.wanted - self.valid)


@dataclass(frozen=True, repr=False)
class Status:
    """What a store holds, what is missing, and how its jobs went. Print it.

    Parameters
    ----------
    path
        The store.
    models
        What there is of each model.
    jobs
        The jobs that fill it in parts, as far as they have begun.
    files, bytes
        How many files the store has, and how large they are together.
    damaged
        Chunks that cannot be read: number of the model and first draw. Empty if they were not looked at.
    checked
        Whether every chunk was read and compared with its checksum.
    """

    path: str
    models: tuple[ModelStatus, ...]
    jobs: tuple[Job, ...]
    files: int
    bytes: int
    damaged: tuple[tuple[int, int], ...] = ()
    checked: bool = False

    @property
    def complete(self) -> bool:
        """Whether all draws that are wanted are there."""
        return all(model.complete for model in self.models)

    @property
    def not_begun(self) -> tuple[int, ...]:
        """Which parts have not begun, of as many as the other jobs were given."""
        if not self.jobs or self.complete:
            return ()
        of = self.jobs[-1].of
        return tuple(sorted(set(range(1, of + 1)) - {job.part for job in self.jobs if job.of == of}))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(no_attribute(self, name, _HINTS))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as dicts and lists, as JSON has them."""
        models = [asdict(model) | {"missing": model.missing} for model in self.models]
        jobs = [asdict(job) | {"silent": job.silent} for job in self.jobs]
        return asdict(self) | {
            "complete": self.complete,
            "models": models,
            "jobs": jobs,
            "not_begun": list(self.not_begun),
        }

    def __str__(self) -> str:
        there, wanted = (
            sum(numbers)
            for numbers in zip(*((min(m.valid, m.wanted), m.wanted) for m in self.models), strict=True)
        )
        state = "complete" if self.complete else "not complete"
        size = f"{self.bytes / 1e6:,.1f} MB in {self.files:,} files"
        intact = ", all chunks intact" if self.checked and not self.damaged else ""
        lines = [
            f"{self.path}: {state}, {there:,} of {wanted:,} draws, {size}{intact}",
            f"  {'model':<16}{'wanted':>14}{'there':>14}{'failed':>12}{'missing':>14}",
        ]
        for m in self.models:
            lines.append(
                f"  {m.name:<16}{m.wanted:>14,}{m.valid:>14,}{m.failed:>12,}{m.missing:>14,}"
                + (f"  first failure: {m.failure}" if m.failure else "")
            )
        for m in self.models:
            if not m.complete and m.end:
                lines.append(f"  not drawn yet of {m.name}: {_runs(m)}")
        for number, start in self.damaged[:_MOST_NAMED]:
            lines.append(f"  damaged: the chunk at draw {start:,} of {self.models[number].name}")
        return "\n".join([*lines, *self._job_lines(), *self._advice()])

    __repr__ = __str__

    def _job_lines(self) -> list[str]:
        if not self.jobs:
            return []
        kinds: dict[str, list[Job]] = {"done": [], "running": [], "silent": [], "stopped": [], "failed": []}
        for job in self.jobs:
            kinds["silent" if job.silent else job.state].append(job)
        counted = [f"{len(jobs)} {kind}" for kind, jobs in kinds.items() if jobs]
        if self.not_begun:
            counted.append(f"{len(self.not_begun)} not begun ({_numbers(self.not_begun)})")
        lines = [f"  jobs: {', '.join(counted)}"]
        for kind in ("failed", "silent", "stopped"):
            for job in kinds[kind][:_MOST_NAMED]:
                lines.append(
                    f"    part {job.part}/{job.of} on {job.host}, process {job.process}: {_text(job)}"
                )
            if len(kinds[kind]) > _MOST_NAMED:
                lines.append(f"    and {len(kinds[kind]) - _MOST_NAMED} more {kind}")
        return lines

    def _advice(self) -> list[str]:
        if self.damaged:
            return ["  Make the same call of simulate again: it draws the damaged chunks anew."]
        if self.complete:
            return []
        if any(job.state == "running" and not job.silent for job in self.jobs):
            return ["  Jobs still run."]
        again = [job.part for job in self.jobs if job.state in ("failed", "stopped") or job.silent]
        parts = sorted({*again, *self.not_begun})
        if parts:
            named = f"{'part' if len(parts) == 1 else 'the parts'} {_numbers(parts)}"
            return [f"  Start {named}, or make the same call without part: it draws all that is missing."]
        return ["  Make the same call of simulate again, without part: it draws all that is missing."]


def status(path: str | os.PathLike[str], *, check: bool = False) -> Status:
    """Say what a store holds, what is missing, and which jobs failed.

    It reads only the descriptions of the chunks, so it is quick, and may be called while jobs run.

    Parameters
    ----------
    path
        The store, as given to `simulate`.
    check
        Also read every chunk, and compare it with its checksum.

    Returns
    -------
    Status
        Print it, or look at ``complete``, ``models`` and ``jobs``.

    Raises
    ------
    evidencenet._common.files.FileError
        If there is no store.

    Examples
    --------
    >>> print(en.status("draws.zarr"))  # doctest: +SKIP
    draws.zarr: not complete, 9,500 of 10,000 draws, 1.5 MB in 90 files
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"status takes the path of one store, got {kind_of(path)}; call it for each of several."
        )
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no store {place}; wanted the folder given to simulate as store=.")
    if not is_store(place):
        raise FileError(f"{place} is not a store of simulate; wanted the folder given to it as store=.")
    store, names, shares = stored(place)
    pieces = [store.pieces(number) for number in range(len(names))]
    damaged = []
    if check:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvidenceWarning)
            for number, there in enumerate(pieces):
                damaged += [
                    (number, piece.start) for piece in there.pieces if store.read(number, piece.start) is None
                ]
    models = []
    for name, share, there in zip(names, shares, pieces, strict=True):
        drawn, valid = there.counted
        starts, ends = [start for start, _ in there.runs], [0, *(end for _, end in there.runs)]
        gaps = tuple((end, start) for end, start in zip(ends, starts, strict=False) if start > end)
        failure = next((piece.failure for piece in there.pieces if piece.failure), None)
        complete = there.prefix[1] >= share
        models.append(ModelStatus(name, share, valid, drawn - valid, gaps, ends[-1], complete, failure))
    files, size = zarr_folder.count_on_disk(place)
    return Status(str(place), tuple(models), jobs_of(place), files, size, tuple(damaged), check)


def _runs(model: ModelStatus) -> str:
    """Say which draws are missing: between those that are stored, and after them."""
    runs = [f"{start:,} to {end - 1:,}" for start, end in model.gaps[:_MOST_NAMED]]
    if len(model.gaps) > _MOST_NAMED:
        runs.append(f"and {len(model.gaps) - _MOST_NAMED} more runs")
    # If the gaps were filled, would there be enough?
    if sum(end - start for start, end in model.gaps) < model.missing:
        runs.append(f"{'and ' if runs else ''}from {model.end:,} on")
    return f"draws {', '.join(runs)}"


def _text(job: Job) -> str:
    """Say what went wrong with a job."""
    if job.state == "failed":
        return f"failed: {job.error}"
    when = datetime.fromtimestamp(job.seen, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if job.state == "stopped":
        return f"stopped at {when}"
    return f"no sign for {(time.time() - job.seen) / 60:,.0f} minutes, since {when}; it was probably killed"


def _numbers(parts: Sequence[int]) -> str:
    """Write 1, 2, 3, 7 as "1-3,7", as batch systems read it."""
    runs: list[list[int]] = []
    for part in parts:
        if runs and part == runs[-1][1] + 1:
            runs[-1][1] = part
        else:
            runs.append([part, part])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
