"""`Job`: the record that a job keeps in the store which it fills with others: who it is, and how it went."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from evidencenet._common.arguments import whole
from evidencenet._common.files import FileError
from evidencenet.simulation.chunks import words
from evidencenet.simulation.io import containers, zarr_folder

# A job that runs says so every so many seconds. After ten times as long without a word it was killed.
_SECONDS_BETWEEN_SIGNS = 30.0
_FOLDER = "jobs"

State = Literal["running", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Part:
    """A part of a simulation: the third of twenty is ``Part(3, 20)``."""

    number: int
    of: int

    @staticmethod
    def checked(part: Any) -> "Part":
        """Return a part, given as (3, 20) or as "3/20"."""
        given = part.split("/") if isinstance(part, str) else part
        try:
            number, of = (int(each) if isinstance(each, str) else each for each in given)
        except (TypeError, ValueError):
            raise ValueError(f"part must be two numbers, such as (3, 20) or '3/20', got {part!r}") from None
        number, of = whole("part", number, 0), whole("the number of parts", of, 1)
        if not 1 <= number <= of:
            raise ValueError(
                f"part is {number} of {of}; parts are counted from 1 to {of}. For an array of jobs that "
                "counts from 0, add 1."
            )
        return Part(number, of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Job:
    """What is known of a job.

    Parameters
    ----------
    part, of
        Which part of the simulation it draws.
    shares
        How many valid draws of each model were wanted when it began.
    state
        A job that is "running" and gave no sign for five minutes was probably killed; see `silent`.
    host, process
        Where it ran, and the number of its process.
    began, seen
        When it began, and when it gave the last sign, in seconds since 1970.
    drawn, failed
        How many draws it made and how many of these failed, or found stored, in all models.
    error
        Why it failed; empty otherwise.
    """

    part: int
    of: int
    shares: tuple[int, ...]
    state: State
    host: str
    process: int
    began: float
    seen: float
    drawn: int = 0
    failed: int = 0
    error: str = ""

    @property
    def silent(self) -> float:
        """For how many seconds a running job has given no sign, if these are too many; else 0."""
        silence = time.time() - self.seen
        return silence if self.state == "running" and silence > 10 * _SECONDS_BETWEEN_SIGNS else 0.0


class JobRecord:
    """Keep the record of this job in the store, while it runs.

    Parameters
    ----------
    store
        The folder of the store.
    part, shares
        See `Job`.
    """

    def __init__(self, store: Path, part: Part, shares: Sequence[int]) -> None:
        now = time.time()
        self._job = Job(
            part.number, part.of, tuple(shares), "running", socket.gethostname(), os.getpid(), now, now
        )
        self._place = store / _FOLDER / f"{part.number}-of-{part.of}"
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._signs = threading.Thread(target=self._give_signs, daemon=True)

    def __enter__(self) -> Self:
        zarr_folder.begin(self._place.parent, {"kind": "jobs"})
        self.note()
        self._signs.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *rest: object) -> None:
        self._ended.set()
        self._signs.join()
        if error is None:
            self.note(state="done")
        elif isinstance(error, Exception):
            self.note(state="failed", error=words(error))
        else:
            self.note(state="stopped")

    def note(self, **changes: Any) -> None:
        """Write the record, with changes."""
        with self._lock:
            self._job = replace(self._job, seen=time.time(), **changes)
            about = {"kind": "job", **asdict(self._job)}
            if not zarr_folder.begin(self._place, about):
                zarr_folder.describe(self._place, about)

    def count(self, drawn: int, failed: int) -> None:
        """Count draws; they are written with the next sign."""
        with self._lock:
            self._job = replace(self._job, drawn=self._job.drawn + drawn, failed=self._job.failed + failed)

    def _give_signs(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_SIGNS):
            with contextlib.suppress(OSError):
                self.note()


def jobs_of(store: Path) -> tuple[Job, ...]:
    """Return the records of all jobs of a store, in order; those that cannot be read are left out."""
    folder = store / _FOLDER
    found = []
    for place in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileError, OSError, KeyError, TypeError, ValueError):
            if not place.name.startswith(".") and place.is_dir():
                found.append(_job(containers.zarr_description(place) or {}))
    return tuple(sorted(found, key=lambda job: (job.of, job.part)))


def _job(about: Mapping[str, Any]) -> Job:
    """Build a job from its record, and look at each entry."""
    if about["kind"] != "job" or about["state"] not in ("running", "done", "failed", "stopped"):
        raise FileError("it is not the record of a job")
    part = Part.checked((about["part"], about["of"]))
    return Job(
        part.number,
        part.of,
        tuple(whole("shares", share, 1) for share in about["shares"]),
        about["state"],
        str(about["host"]),
        int(about["process"]),
        float(about["began"]),
        float(about["seen"]),
        int(about["drawn"]),
        int(about["failed"]),
        str(about["error"]),
    )


def claimed(store: Path, part: Part, shares: Sequence[int]) -> bool:
    """Claim what no part has drawn, when all parts are done; of several jobs only one is told True.

    A claim of a job that no longer runs does not count.
    """
    place = store / _FOLDER / f"rest-of-{part.of}"
    mine = {"kind": "claim", "part": part.number, "shares": list(shares)}
    if zarr_folder.begin(place, mine):
        return True
    try:
        there = containers.zarr_description(place) or {}
    except (FileError, OSError):
        there = {}
    owner = [job for job in jobs_of(store) if (job.part, job.of) == (there.get("part"), part.of)]
    runs = bool(owner) and owner[0].state == "running" and not owner[0].silent
    if runs and there.get("part") != part.number and there.get("shares") == list(shares):
        return False
    zarr_folder.describe(place, mine)
    return True
