"""How far it scales: draws per second of each kind of worker, overhead per chunk, and the size of a store.

    python benchmarks/scale.py [--draws 2e5] [--seconds-a-draw 0.001] [--stored 5e5] [--json FILE]
    python benchmarks/scale.py --training --write     # all of it, on idle cores, into the pages

The simulation half measures

- draws per second of a simulator that waits, of one in pure Python, and of one in NumPy, with one and two
  workers of each kind: threads, joblib's processes, Python's process pool, a time limit, and a Dask cluster;
- what a chunk costs beside its draws, the bytes that travel for it, and the messages of a scheduler;
- bytes and files of a store: of a fast simulator, of a slow one, and of 10⁷ small draws by 1 and by 20 jobs;

and computes from these what 10⁹ draws on 1,000 workers would cost. `--training` adds memory over the size of
a store, and draws per second in training, of `scale_training.py`. `--write` puts the tables into the pages
docs/scale.md and docs/scale-training.md, between the comments that name them.
"""

import argparse
import contextlib
import json
import multiprocessing
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np

import evidencenet as en
from evidencenet._common.executors import ship
from evidencenet.simulation import writer
from evidencenet.simulation.chunks import Source
from evidencenet.simulation.runs import _CHUNK_SECONDS, _CHUNKS_A_SECOND, MOST_BYTES

sys.path += [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parent)]
import scale_training
from cluster import started
from scale_pages import tables, write

NUMBERS = 100

# --- Simulation --------------------------------------------------------------------------------------------


def busy(seconds: float) -> en.Model:
    """Make a simulator in pure Python: it keeps a core busy for so long, and lets no other thread run."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        # Time of the processor, so that others on the machine do not make a draw cheaper.
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return rng.normal(size=NUMBERS)

    return en.Model("busy", draw, kind="one")


def waiting(seconds: float) -> en.Model:
    """Make a simulator that waits for so long, as for another program. Others on the machine matter less."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        time.sleep(seconds)
        return rng.normal(size=NUMBERS)

    return en.Model("waiting", draw, kind="one")


def gaussian() -> en.Model:
    """Make a fast simulator in NumPy: it draws normal numbers and sorts them."""
    return en.Model("gaussian", lambda rng, n: np.sort(rng.normal(size=(n, NUMBERS)), axis=1))


@contextlib.contextmanager
def process_pool(workers: int) -> Generator[dict[str, Any]]:
    """Start Python's process pool."""
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield {"executor": executor}


@contextlib.contextmanager
def limited(workers: int) -> Generator[dict[str, Any]]:
    """Start the same, with a time limit for a draw."""
    with process_pool(workers) as options:
        yield options | {"timeout": 60.0}


@contextlib.contextmanager
def loky(workers: int) -> Generator[dict[str, Any]]:
    """Choose joblib's processes."""
    with joblib.parallel_config(backend="loky"):
        yield {"workers": workers}


@contextlib.contextmanager
def dask(workers: int) -> Generator[dict[str, Any]]:
    """Start a Dask cluster: a scheduler and workers, each a process."""
    with started(workers) as cluster:
        yield {"executor": cluster.executor}


@contextlib.contextmanager
def threads(workers: int) -> Generator[dict[str, Any]]:
    """Choose threads; a single one is this process itself."""
    yield {"workers": workers}


KINDS: dict[str, Callable[[int], Any]] = {
    "threads": threads,
    "joblib's processes": loky,
    "process pool": process_pool,
    "process pool, timeout": limited,
    "Dask": dask,
}


def timed(model: en.Model, n: int, **options: Any) -> float:
    """Seconds that it takes to draw n: the least of three times, since others use the machine too."""
    seconds = []
    for _ in range(3):
        clock = time.perf_counter()
        en.simulate([model], n, seed=1, progress=False, **options)
        seconds.append(time.perf_counter() - clock)
    return min(seconds)


def rates(
    draws: int,
    seconds_a_draw: float,
    kinds: dict[str, Callable[[int], Any]] = KINDS,
    seconds: float = 1.0,
) -> list[Any]:
    """Draws per second, and seconds that a chunk costs, of one and two workers of each kind.

    The slow simulators draw for `seconds` each time.
    """
    slow, wait, few_draws = busy(seconds_a_draw), waiting(seconds_a_draw), int(seconds / seconds_a_draw)
    empty = en.Model("empty", lambda rng: rng.normal(size=1), kind="one")
    rows = []
    for kind, workers_of in kinds.items():
        # One worker of joblib is this process itself, as a single thread is.
        for workers in (2,) if kind == "joblib's processes" else (1, 2):
            with workers_of(workers) as options:
                # All processes are started, and have loaded what they need.
                timed(slow, 20 * workers, chunk=1, **options)
                row = {
                    "kind": kind,
                    "workers": workers,
                    "waiting": few_draws / timed(wait, few_draws, **options),
                    "busy": few_draws / timed(slow, few_draws, **options),
                    "gaussian": draws / timed(gaussian(), draws, **options),
                }
                few, many = (timed(empty, 200, chunk=chunk, **options) for chunk in (100, 1))
                # 200 chunks of one draw, and at least three of more.
                row["chunk_ms"] = 1e3 * max(many - few, 0.0) / 197
            rows.append(row)
    return rows


def messages() -> dict[str, float]:
    """Bytes that travel to a worker and back for a chunk."""
    source = Source(gaussian(), 0, 1, 50)
    task = pickle.dumps((ship(source.draw, "the model"), 10_000, 11_000))
    chunk = source.draw(10_000, 11_000)
    return {"task_bytes": len(task), "result_bytes_a_draw": len(pickle.dumps(chunk)) / 1_000}


def count_messages(dask_scheduler: Any) -> None:
    """Count from now on what a Dask scheduler receives and sends; this runs on the scheduler."""
    import functools
    import inspect

    from distributed.batched import BatchedSend

    dask_scheduler.counted = {"received": 0, "sent": 0}

    def counting(handler: Any) -> Any:
        @functools.wraps(handler)
        def handle(*args: Any, **options: Any) -> Any:
            dask_scheduler.counted["received"] += 1
            return handler(*args, **options)

        @functools.wraps(handler)
        async def handle_later(*args: Any, **options: Any) -> Any:
            dask_scheduler.counted["received"] += 1
            return await handler(*args, **options)

        return handle_later if inspect.iscoroutinefunction(handler) else handle

    for handlers in (dask_scheduler.stream_handlers, dask_scheduler.handlers):
        handlers.update({operation: counting(handler) for operation, handler in handlers.items()})
    send = BatchedSend.send

    def counted(self: Any, *messages: Any) -> None:
        dask_scheduler.counted["sent"] += len(messages)
        send(self, *messages)

    BatchedSend.send = counted  # type: ignore[method-assign]


def scheduler_messages(chunks: int = 400) -> dict[str, float]:
    """Messages that a Dask scheduler receives and sends for each chunk.

    Answers to what it is asked are not counted. One of them is the draws themselves, which go through it.
    """
    empty = en.Model("empty", lambda rng: rng.normal(size=1), kind="one")
    with started(2) as cluster:
        cluster.client.run_on_scheduler(count_messages)
        en.simulate([empty], chunks, chunk=1, seed=1, executor=cluster.executor, progress=False)
        found = cluster.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.counted)
    return {f"{kind}_a_chunk": number / chunks for kind, number in found.items()}


def small_draws(draws: int, numbers: int = 3, parts: int = 20) -> dict[str, Any]:
    """Files of a store of many draws of few numbers, drawn by one call and by an array of jobs."""

    def failing(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.standard_normal((n, numbers), dtype=np.float32)
        x[rng.random(n) < 0.1] = np.nan
        return x

    first = en.Model("first", lambda rng, n: rng.standard_normal((n, numbers), dtype=np.float32))
    found: dict[str, Any] = {"draws": draws, "numbers": numbers, "parts": parts}
    for name, second in {
        "": replace(first, name="second"),
        "_if_some_fail": en.Model("second", failing),
    }.items():
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", en.FailedDrawsWarning)
            whole, shared = Path(folder, "one.zarr"), Path(folder, "shared.zarr")
            en.simulate([first, second], draws, seed=1, store=whole, progress=False)
            found[f"files_of_one{name}"] = en.status(whole).files
            for number in range(1, parts + 1):
                there = en.simulate(
                    [first, second], draws, seed=1, part=(number, parts), store=shared, progress=False
                )
            assert there.complete
            found[f"files_of_parts{name}"] = there.files
    return found


def stores(stored: int, writes: int = 64) -> dict[str, Any]:
    """Bytes and files of a store of a fast simulator, and of one whose chunks are written one by one."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fast.zarr")
        clock = time.perf_counter()
        en.simulate([gaussian()], stored, seed=1, store=path, progress=False)
        found["write_mb_s"] = stored * NUMBERS * 8 / 1e6 / (time.perf_counter() - clock)
        clock = time.perf_counter()
        fast = en.status(path)
        found["status_ms"] = 1e3 * (time.perf_counter() - clock)
        chunks = len([each for each in (path / "0").iterdir() if each.name.isdigit()])
        found["fast"] = {
            "draws": stored,
            "bytes_a_draw": fast.bytes / stored,
            "files": fast.files,
            "chunks": chunks,
            "files_a_chunk": (fast.files - 2) / chunks,
        }
        seconds, writer._WRITE_SECONDS = writer._WRITE_SECONDS, 0.0
        try:
            few = 64 * writes
            slow = en.Model("slow", lambda rng: rng.normal(size=NUMBERS), kind="one")
            clock = time.perf_counter()
            en.simulate([slow], few, chunk=64, seed=1, store=Path(folder, "s.zarr"), progress=False)
            found["ms_a_write"] = 1e3 * (time.perf_counter() - clock) / writes
            written = en.status(Path(folder, "s.zarr"))
        finally:
            writer._WRITE_SECONDS = seconds
        found["slow"] = {"draws": few, "writes": writes, "files": written.files}
    return found


def on_paper(
    rows: list[Any], sizes: dict[str, Any], sent: dict[str, float], draws: float = 1e9, workers: int = 1_000
) -> dict[str, float]:
    """Compute what very many draws would cost, from the measured pieces: bytes, files and messages.

    The chunk length is that of `evidencenet.simulation.runs`, for a simulator of 0.1 s a draw.
    """
    seconds_a_draw = 0.1
    chunk_seconds = max(_CHUNK_SECONDS, workers / _CHUNKS_A_SECOND)
    tasks = draws * seconds_a_draw / chunk_seconds
    chunk_ms = max(row["chunk_ms"] for row in rows if row["kind"] == "Dask")
    stored = draws * sizes["fast"]["bytes_a_draw"]
    chunks = draws * NUMBERS * 8 / MOST_BYTES
    return {
        "draws": draws,
        "workers": workers,
        "seconds_a_draw": seconds_a_draw,
        "bytes_a_draw": 8.0 * NUMBERS,
        "hours": draws * seconds_a_draw / workers / 3600,
        "store_tb": stored / 1e12,
        "chunks": chunks,
        "files": chunks * sizes["fast"]["files_a_chunk"],
        "tasks_of_one_scheduler": tasks,
        "messages_of_one_scheduler": tasks * (sent["received_a_chunk"] + sent["sent_a_chunk"]),
        "messages_a_second": workers / chunk_seconds * (sent["received_a_chunk"] + sent["sent_a_chunk"]),
        "tasks_a_second": workers / chunk_seconds,
        "scheduler_busy": workers / chunk_seconds * chunk_ms / 1e3,
        "sent_mb_a_second": workers / seconds_a_draw * sent["result_bytes_a_draw"] / 1e6,
        "messages_of_array_jobs": 0.0,
        # One file for each, in a folder of its own.
        "files_of_job_records": 1.0 * workers,
    }


def simulation(draws: int, seconds_a_draw: float, stored: int, small: int) -> dict[str, Any]:
    """All of the simulation half."""
    rows = rates(draws, seconds_a_draw)
    sent, sizes = messages() | scheduler_messages(), stores(stored)
    return {
        "rates": rows,
        "messages": sent,
        "stores": sizes,
        "small_draws": small_draws(small),
        "on_paper": on_paper(rows, sizes, sent),
    }


# --- Training ----------------------------------------------------------------------------------------------


def training(gigabytes: list[float], draws: int, fresh: int, folder: str | None) -> dict[str, Any]:
    """All of the training half: memory, draws per second, and the error with fresh draws."""
    return {
        "memory": scale_training.memory(gigabytes, folder),
        "speed": scale_training.speed(draws),
        "fresh": scale_training.fresh(fresh),
    }


# --- The command -------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, print, and write files if that is wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def whole(text: str) -> int:
        return int(float(text))

    parser.add_argument("--draws", type=whole, default=200_000)
    parser.add_argument("--seconds-a-draw", type=float, default=0.001)
    parser.add_argument("--stored", type=whole, default=500_000)
    parser.add_argument(
        "--small", type=whole, default=10_000_000, help="draws of few numbers, to count files"
    )
    parser.add_argument("--training", action="store_true", help="measure training too, for half an hour")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[2, 10, 40])
    parser.add_argument("--trained", type=whole, default=300_000, help="draws to compare sources with")
    parser.add_argument("--fresh", type=whole, default=5_000_000, help="fresh draws of the time series")
    parser.add_argument("--folder", help="where the large stores are made, of 5 GB at most")
    parser.add_argument("--json", help="write the figures to this file too")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages of docs")
    given = parser.parse_args()
    found: dict[str, Any] = {
        "simulation": simulation(given.draws, given.seconds_a_draw, given.stored, given.small)
    }
    if given.training:
        found["training"] = training(given.gigabytes, given.trained, given.fresh, given.folder)
    for page, parts in tables(found).items():
        for name, table in parts.items():
            print(f"\n{page}, {name}\n\n{table}")
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.write:
        write(found)


if __name__ == "__main__":
    main()
