"""Kill processes at random moments: nothing finished may be lost, and a restart must give the same bits.

    python benchmarks/kills.py [--kills 1000] [--seed 1] [--json FILE]

Each job runs in a process of its own, which gets SIGKILL, SIGTERM or SIGINT at a random moment:

- write: draws are written again and again to one file, of every kind (npz, HDF5, Zarr, CSV, Parquet);
- save: a network, and a checkpoint, are saved again and again to one file;
- rivals: two processes write to one file; one is killed, then the other;
- simulate: draws go to a store, and the same call is repeated until it comes to its end;
- train: a training with a checkpoint, and `save`, repeated until they come to their end;
- command line: `evidencenet simulate` and `evidencenet train`, likewise.

Columns of the table that must be 0: lost (a file that was finished is not there, or is older than the last
one; a stored draw or a finished epoch is gone), different (the result is not the same to the bit as without
kills), left over (temporary files after the next save, or right after SIGINT), wrong end (an exception, or an
exit code other than that of the signal). Beside them: twice (a signal that had to be sent again, since Python
loses one that comes while a destructor runs).

Processes are made by fork from one that has imported evidencenet but not used JAX, so a kill of a process
that only writes files takes some hundredths of a second.
"""

import argparse
import contextlib
import itertools
import json
import os
import select
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import evidencenet as en
from evidencenet._common import files
from evidencenet.simulation import store, writer
from evidencenet.training import checkpoint

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FAULTS = ("lost", "different", "left over", "wrong end")
_PATIENCE = 120.0
_AGAIN = 15.0
# Of the kills, how many parts each kind of job gets. Most are cheap.
_PARTS = {
    "write .npz": 10,
    "write .h5": 10,
    "write .zarr": 14,
    "write .csv": 8,
    "write .parquet": 8,
    "save checkpoint": 10,
    "rivals .npz": 5,
    "rivals .zarr": 5,
    "save network": 8,
    "simulate": 12,
    "train": 5,
    "command line: simulate": 3,
    "command line: train": 2,
}
Tell = Callable[[str], Any]


@dataclass(frozen=True)
class Kill:
    """One kill: what was running, the signal, how it ended, and the faults that were found."""

    job: str
    signal: str
    hit: bool
    faults: tuple[str, ...]
    detail: str = ""
    twice: bool = False


class Child:
    """A process that runs a job, and tells by lines what it has finished."""

    def __init__(self, job: Callable[[Tell], Any]) -> None:
        self._reader, writer = os.pipe()
        self._text, self.printed, self.twice = b"", "", False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            for stream in (1, 2):
                os.dup2(self._errors.fileno(), stream)
            os._exit(_run(job, lambda line: os.write(writer, f"{line}\n".encode())))
        os.close(writer)

    def wait_for(self, line: str) -> bool:
        """Wait until the process has told a line; False if it ends before."""
        deadline = time.monotonic() + _PATIENCE
        while line not in self.lines:
            if not select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"the process did not say {line!r}")
            part = os.read(self._reader, 65536)
            if not part:
                return False
            self._text += part
        return True

    def end(self, number: signal.Signals | None) -> int:
        """Send a signal, wait for the end, and return the exit code, or minus the signal that ended it."""
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        start, again = time.monotonic(), number in (signal.SIGINT, signal.SIGTERM)
        while True:
            # Read while waiting, because a pipe that is full would stop the process.
            if select.select([self._reader], [], [], 0.002)[0]:
                self._text += os.read(self._reader, 65536)
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                break
            # Python loses an interrupt that comes while a destructor runs. Users press Ctrl-C again.
            if again and number is not None and time.monotonic() - start > _AGAIN:
                os.kill(self.pid, number)
                again, self.twice = False, True
            if time.monotonic() - start > _PATIENCE:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return 99
        while part := os.read(self._reader, 65536):
            self._text += part
        os.close(self._reader)
        self._errors.seek(0)
        self.printed = self._errors.read().decode(errors="replace")[-400:]
        self._errors.close()
        return os.waitstatus_to_exitcode(status)

    @property
    def lines(self) -> list[str]:
        """The whole lines told so far."""
        return self._text.decode(errors="replace").split("\n")[:-1]

    @property
    def last(self) -> int:
        """The number of the last thing that was finished; -1 if none was."""
        return max([int(line.split()[1]) for line in self.lines if line.startswith("done ")], default=-1)


def _run(job: Callable[[Tell], Any], tell: Tell) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        job(tell)
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        tell("raised " + traceback.format_exc().replace("\n", " | ")[-1500:])
        return 70
    return 0


def _ends(number: signal.Signals, code: int) -> bool:
    """Whether a process ended as this signal should end it; or finished before."""
    wanted = {signal.SIGKILL: (-9,), signal.SIGTERM: (-15, 143), signal.SIGINT: (130, -2)}
    return code == 0 or code in wanted[number]


def leftovers(folder: Path) -> list[str]:
    """Return the temporary files and folders in a folder."""
    return [path.name for path in folder.rglob("*.partial")]


# Jobs that write one file again and again, each time with the next number.


@dataclass(frozen=True)
class Writing:
    """Files of one kind: how to write the one with a number, how to read the number, and how long to wait."""

    write: Callable[[Path, int], None]
    read: Callable[[Path], int]
    suffix: str
    seconds: float


def draws(number: int) -> en.Simulations:
    """Return draws that all are the number; in steps, so that files have different lengths."""
    return en.Simulations(
        np.full((200 + 50 * (number % 5), 3), float(number)), np.arange(200 + 50 * (number % 5)) % 2
    )


def read_draws(path: Path) -> int:
    """Return the number of draws that were written; the file says by its checksum that it is whole."""
    values = np.unique(np.asarray(en.Simulations.read(path).x))
    return int(values[0]) if len(values) == 1 else -2


def write_checkpoint(path: Path, number: int) -> None:
    """Write the checkpoint with a number."""
    checkpoint.save(
        path, {"seed": "1"}, [{"w": np.full((40, 40), float(number))}], {"number": np.array([number])}
    )


def read_checkpoint(path: Path) -> int:
    """Return the number of a checkpoint."""
    loaded = checkpoint.load(path, {"seed": "1"}, [{"w": np.zeros((40, 40))}])
    return -1 if loaded is None else int(loaded[1]["number"][0])


def read_network(path: Path) -> int:
    """Return the number of a network, without JAX."""
    return int(files.read(path, "network")[0]["made"]["number"])


def _written(kind: Writing, path: Path, first: int, tell: Tell) -> None:
    tell("ready")
    for number in itertools.count(first):
        kind.write(path, number)
        tell(f"done {number}")


def _saved(net_file: Path, path: Path, first: int, tell: Tell) -> None:
    net = en.load(net_file)
    tell("ready")
    for number in itertools.count(first):
        replace(net, made={"number": number}).save(path)
        tell(f"done {number}")


def writing(
    job: str,
    kind: Writing,
    job_of: Callable[[Path, int], Callable[[Tell], Any]],
    kills: int,
    seed: int,
    folder: Path,
) -> Iterator[Kill]:
    """Kill processes that write one file, and look at the file after each."""
    path, last = folder / f"a{kind.suffix}", -1
    for k in range(kills):
        rng = np.random.default_rng([seed, k])
        number = SIGNALS[int(rng.integers(3))]
        older = leftovers(folder)
        child = Child(job_of(path, last + 1))
        child.wait_for("ready")
        time.sleep(float(rng.uniform(0, kind.seconds)))
        code = child.end(number)
        faults = [] if _ends(number, code) and code != 0 else ["wrong end"]
        finished = max(last, child.last)
        try:
            there = kind.read(path) if path.exists() else -1
        except Exception as error:
            there, code = -3, f"{code} {error!r}"[:300]  # type: ignore[assignment]
        # The one that was being written when the signal came may be there already.
        if there not in (finished, finished + 1):
            faults.append("lost")
        if number == signal.SIGINT and not set(leftovers(folder)) <= set(older):
            faults.append("left over")
        last = max(there, finished)
        yield Kill(
            job,
            number.name,
            True,
            tuple(faults),
            f"{code}, {there} of {finished}; {child.lines[-1:]}",
            child.twice,
        )
    # One more, without a kill, removes what is left.
    child = Child(lambda tell: job_of(path, last + 1)(_stopping(tell)))
    child.end(None)
    if leftovers(folder) or [entry.name for entry in folder.iterdir()] != [path.name]:
        yield Kill(job, "none", False, ("left over",), f"{sorted(entry.name for entry in folder.iterdir())}")


def _stopping(tell: Tell) -> Tell:
    def told(line: str) -> None:
        tell(line)
        if line.startswith("done"):
            os._exit(0)

    return told


def _every_second(kind: Writing, first: int) -> Writing:
    return replace(kind, write=lambda path, number: kind.write(path, 2 * number + first))


def rivals(job: str, kind: Writing, kills: int, seed: int, folder: Path) -> Iterator[Kill]:
    """Let two processes write to one file; kill one of them, look at the file, then kill the other."""
    path = folder / f"a{kind.suffix}"
    for k in range(0, kills, 2):
        rng = np.random.default_rng([seed, k])
        # Even numbers are of one process, odd numbers of the other.
        pair = [Child(partial(_written, _every_second(kind, i), path, 0)) for i in (0, 1)]
        for i, child in enumerate(pair):
            child.wait_for("ready")
            time.sleep(float(rng.uniform(0, kind.seconds)))
            number = SIGNALS[int(rng.integers(3))]
            code = child.end(number)
            faults = [] if _ends(number, code) and code != 0 else ["wrong end"]
            detail = f"{code}; {child.lines[-1:]}"
            if child.last >= 0:
                try:
                    there = kind.read(path)
                    # After both have ended, it is the last or next number of one of them.
                    allowed = {2 * (one.last + more) + j for j, one in enumerate(pair) for more in (0, 1)}
                    if there < 0 or (i == 1 and there not in allowed):
                        faults.append("lost")
                    detail += f", {there} of {allowed}"
                except Exception as error:
                    faults.append("lost")
                    detail += repr(error)[:300]
            yield Kill(job, number.name, True, tuple(faults), detail, child.twice)
    child = Child(lambda tell: _written(kind, path, 0, _stopping(tell)))
    child.end(None)
    if [entry.name for entry in folder.iterdir()] != [path.name]:
        yield Kill(job, "none", False, ("left over",), f"{sorted(entry.name for entry in folder.iterdir())}")


# Jobs that are repeated until they come to their end.


@dataclass(frozen=True)
class Lasting:
    """A job that continues where it stopped.

    Parameters
    ----------
    run
        Do the job in a folder.
    kept
        What is finished so far, by name; it must never get less, nor change. None if the result is there.
    result
        Of the finished job: a hash, the same to the bit every time.
    most
        The longest time until the kill, in seconds.
    names
        What is in the folder in the end.
    """

    run: Callable[[Path, Tell], Any]
    kept: Callable[[Path], dict[str, Any] | None]
    result: Callable[[Path], str]
    most: float
    names: tuple[str, ...]


def lasting(job: str, kind: Lasting, kills: int, seed: int, folder: Path) -> Iterator[Kill]:
    """Kill a job again and again until it comes to its end; compare it with one that was not killed."""
    whole = folder / "whole"
    whole.mkdir()
    start = time.monotonic()
    code = Child(lambda tell: kind.run(whole, tell)).end(None)
    if code != 0:
        yield Kill(job, "none", False, ("wrong end",), f"without a kill: {code}")
        return
    print(f"{job}: {time.monotonic() - start:.1f} s without a kill", flush=True)
    expected, done, turn = kind.result(whole), 0, 0
    while done < kills:
        place = folder / str(turn)
        place.mkdir()
        turn += 1
        before: dict[str, Any] = {}
        for attempt in itertools.count():
            rng = np.random.default_rng([seed, turn, attempt])
            number = SIGNALS[int(rng.integers(3))]
            child = Child(partial(kind.run, place))
            faults, detail, older = [], "", leftovers(place)
            if not child.wait_for("ready"):
                faults.append("wrong end")
            # Later attempts come farther, so that every job comes to its end.
            time.sleep(float(rng.uniform(0, kind.most * (1 + attempt / 8))))
            code = child.end(number)
            after = {} if code == 0 else kind.kept(place)
            if not _ends(number, code):
                faults.append("wrong end")
                detail += child.printed
            # None: the result itself is finished, so what led to it is no longer needed.
            if (
                code != 0
                and after is not None
                and any(after.get(name) != value for name, value in before.items())
            ):
                faults.append("lost")
                detail = f"{before} became {after}"
            if number == signal.SIGINT and code != 0 and not set(leftovers(place)) <= set(older):
                faults.append("left over")
            if code == 0:
                if kind.result(place) != expected:
                    faults.append("different")
                names = tuple(sorted(entry.name for entry in place.iterdir()))
                if leftovers(place) or names != tuple(sorted(kind.names)):
                    faults.append("left over")
                    detail += f"{names} {leftovers(place)}"
            done += code != 0
            yield Kill(
                job,
                number.name,
                code != 0,
                tuple(faults),
                f"{code} {detail[:500]} {child.lines[-1:]}",
                child.twice,
            )
            before = after or {}
            if code == 0 or (faults and "wrong end" in faults):
                break


def _slow(scale: float) -> Callable[..., np.ndarray]:
    def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
        time.sleep(0.004)
        return scale * rng.normal(size=(n, 3))

    return simulate


def _models() -> list[en.Model]:
    return [en.Model("narrow", _slow(1.0)), en.Model("wide", _slow(2.0))]


def simulated(place: Path, tell: Tell) -> None:
    """Draw to a store; every chunk is written at once, so that there are many."""
    writer._WRITE_SECONDS = 0.0
    tell("ready")
    en.simulate(_models(), 900, chunk=30, seed=7, store=place / "store.zarr", progress=False)


def stored(place: Path) -> dict[str, Any]:
    """Return which draws are in a store, ten by ten, since chunks may be put together."""
    return _stored(place / "store.zarr")


def _stored(path: Path) -> dict[str, Any]:
    if not path.is_dir() or not store.is_store(path):
        return {}
    opened, names, _ = store.stored(path)
    runs = {model: opened.pieces(model).runs for model in range(len(names))}
    return {
        f"draw {draw} of model {model}": True
        for model, found in runs.items()
        for start, stop in found
        for draw in range(start, stop, 10)
    }


def store_result(place: Path) -> str:
    """Hash the draws of a store."""
    sims = en.Simulations.read(place / "store.zarr")
    return files.checksum({"failed": sims.failed}, {"x": np.asarray(sims.x), "model": sims.model})


def _training_draws() -> en.Simulations:
    return en.simulate(en.problems.mean_test(size=3).models, 3_000, seed=1, progress=False)


def trained(place: Path, tell: Tell) -> None:
    """Train with a checkpoint, and save."""
    tell("ready")
    recipe = en.Recipe(epochs=12, patience=12)
    net = en.train(
        _training_draws(),
        members=2,
        recipe=recipe,
        learn_error=False,
        seed=2,
        progress=False,
        checkpoint=place / "net.checkpoint",
    )
    net.save(place / "net.evnet")


def epochs(place: Path) -> dict[str, Any] | None:
    """Return what is finished of a training: the losses of each epoch in the checkpoint."""
    if (place / "net.evnet").exists():
        return None
    path = next(iter(place.glob("*.checkpoint")), None)
    if path is None:
        return {}
    _, arrays = files.read(path, "checkpoint")
    curves = {
        name: array for name, array in arrays.items() if name.startswith("curves/") and "seconds" not in name
    }
    return {
        f"{name} {i}": column.tobytes() for name, curve in curves.items() for i, column in _columns(curve)
    }


def _columns(curve: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return a curve epoch by epoch; epochs are its last axis."""
    return [(i, curve[..., i]) for i in range(curve.shape[-1])] if curve.ndim else []


def network_result(place: Path) -> str:
    """Hash the numbers of a network; not the times that its training took."""
    about, arrays = files.read(place / "net.evnet", "network")
    kept = {name: array for name, array in arrays.items() if "seconds" not in name}
    return files.checksum({"names": about["names"], "architecture": about["architecture"]}, kept)


_SPEC = """
import time
import evidencenet as en
from evidencenet.simulation import writer
writer._WRITE_SECONDS = 0.0

def slow(scale):
    def simulate(rng, n):
        time.sleep(0.004)
        return scale * rng.normal(size=(n, 3))
    return simulate

models = [en.Model("narrow", slow(1.0)), en.Model("wide", slow(2.0))]
"""


def _command(tell: Tell, *arguments: Any) -> None:
    from evidencenet.cli import app

    tell("ready")
    app([str(argument) for argument in arguments])


def simulated_by_command(place: Path, tell: Tell) -> None:
    """Run ``evidencenet simulate``."""
    spec = place.parent / "models.py"
    spec.write_text(_SPEC)
    out = place / "draws.npz"
    _command(
        tell, "simulate", spec, "--n", 900, "--chunk", 30, "--seed", 7, "--out", out, "--quiet", "--force"
    )


def stored_by_command(place: Path) -> dict[str, Any] | None:
    """Return which draws the command has stored."""
    if (place / "draws.npz").exists():
        return None
    return _stored(place / "draws.npz.partial.zarr")


def file_result(place: Path) -> str:
    """Hash the draws of a file."""
    sims = en.Simulations.read(place / "draws.npz")
    return files.checksum({"failed": sims.failed}, {"x": np.asarray(sims.x), "model": sims.model})


def trained_by_command(place: Path, tell: Tell) -> None:
    """Run ``evidencenet train``."""
    source = place.parent / "draws.npz"
    if not source.exists():
        _training_draws().write(source)
    out = place / "net.evnet"
    _command(
        tell, "train", source, "--epochs", 4, "--members", 2, "--seed", 2, "--out", out, "--quiet", "--force"
    )


def lasting_jobs() -> dict[str, Lasting]:
    """Return the jobs that are repeated until they come to their end."""
    records = ("net.evnet", "net.evnet.run.json")
    return {
        "simulate": Lasting(simulated, stored, store_result, 0.8, ("store.zarr",)),
        "train": Lasting(trained, epochs, network_result, 4.0, ("net.evnet",)),
        "command line: simulate": Lasting(
            simulated_by_command, stored_by_command, file_result, 1.5, ("draws.npz", "draws.npz.run.json")
        ),
        "command line: train": Lasting(trained_by_command, epochs, network_result, 6.0, records),
    }


def attack(job: str, kills: int, seed: int, folder: Path) -> Iterator[Kill]:
    """Kill one kind of job so many times."""
    what, _, suffix = job.partition(" ")
    if job in lasting_jobs():
        yield from lasting(job, lasting_jobs()[job], kills, seed, folder)
    elif job == "save network":
        net_file = folder.parent / "trained.evnet"
        if not net_file.exists():
            place = folder.parent / "training"
            place.mkdir()
            Child(lambda tell: trained(place, tell)).end(None)
            (place / "net.evnet").rename(net_file)
        kind = Writing(lambda *_: None, read_network, ".evnet", 0.1)
        yield from writing(
            job,
            kind,
            lambda path, first: lambda tell: _saved(net_file, path, first, tell),
            kills,
            seed,
            folder,
        )
    else:
        kind = Writing(lambda path, number: draws(number).write(path), read_draws, suffix, 0.06)
        if job == "save checkpoint":
            kind = Writing(write_checkpoint, read_checkpoint, ".checkpoint", 0.03)
        if what == "rivals":
            yield from rivals(job, kind, kills, seed, folder)
        else:
            yield from writing(
                job,
                kind,
                lambda path, first: lambda tell: _written(kind, path, first, tell),
                kills,
                seed,
                folder,
            )


def table(results: Sequence[Kill]) -> str:
    """Return the outcomes as text, a row for each kind of job."""
    names = [number.name for number in SIGNALS]
    lines = [f"{'':24}{'kills':>7}" + "".join(f"{name:>11}" for name in (*names, *FAULTS, "twice"))]
    jobs = list(dict.fromkeys(kill.job for kill in results))
    for job in [*jobs, "all"]:
        mine = [kill for kill in results if job in (kill.job, "all")]
        counts = Counter(kill.signal for kill in mine if kill.hit)
        faults = Counter(fault for kill in mine for fault in kill.faults)
        numbers = [counts[name] for name in names] + [faults[name] for name in FAULTS]
        numbers.append(sum(kill.twice for kill in mine))
        lines.append(f"{job:24}{sum(counts.values()):>7}" + "".join(f"{number:>11}" for number in numbers))
    return "\n".join(lines)


def main() -> None:
    """Run all kills and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one kind of job")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    start, results = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as name:
        for i, (job, part) in enumerate(_PARTS.items()):
            if options.only not in (None, job):
                continue
            folder = Path(name) / f"job{i}"
            folder.mkdir()
            count = max(1, round(options.kills * part / sum(_PARTS.values())))
            results += list(attack(job, count, options.seed + 1_000 * i, folder))
    print(table(results))
    for kill in [kill for kill in results if kill.faults][:40]:
        print(f"{', '.join(kill.faults)}: {kill.job}, {kill.signal}: {kill.detail}")
    hits = sum(kill.hit for kill in results)
    print(f"{hits:,} kills, {time.perf_counter() - start:.0f} s, seed {options.seed}")
    if options.json:
        options.json.write_text(json.dumps([vars(kill) for kill in results], indent=1))


if __name__ == "__main__":
    main()
