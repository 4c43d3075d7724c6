"""How far it scales: draws per second of each kind of worker, overhead per chunk, and the size of a store.

    python benchmarks/scale.py [--draws 2e5] [--seconds-a-draw 0.001] [--stored 5e5] [--json FILE]

The simulation half measures

- draws per second of a simulator that waits, of one in pure Python, and of one in NumPy, with one and two
  workers of each kind: threads, joblib's processes, Python's process pool, a time limit, and a Dask cluster;
- what a chunk costs beside its draws, and the bytes that travel for it;
- bytes and files of a store, of a fast simulator and of a slow one;

and computes from these what 10⁹ draws on 1,000 workers would cost.
"""

import argparse
import contextlib
import json
import multiprocessing
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np

import evidencenet as en
from evidencenet._common.executors import ship
from evidencenet.simulation import writer
from evidencenet.simulation.chunks import Source
from evidencenet.simulation.runs import _CHUNK_SECONDS, _CHUNKS_A_SECOND, MOST_BYTES

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from cluster import started

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
        "hours": draws * seconds_a_draw / workers / 3600,
        "store_tb": stored / 1e12,
        "chunks": chunks,
        "files": chunks * sizes["fast"]["files_a_chunk"],
        "tasks_of_one_scheduler": tasks,
        "tasks_a_second": workers / chunk_seconds,
        "scheduler_busy": workers / chunk_seconds * chunk_ms / 1e3,
        "sent_mb_a_second": workers / seconds_a_draw * sent["result_bytes_a_draw"] / 1e6,
        "messages_of_array_jobs": 0.0,
        # One file for each, in a folder of its own.
        "files_of_job_records": 1.0 * workers,
    }


def simulation(draws: int, seconds_a_draw: float, stored: int) -> dict[str, Any]:
    """All of the simulation half."""
    rows = rates(draws, seconds_a_draw)
    sent, sizes = messages(), stores(stored)
    return {"rates": rows, "messages": sent, "stores": sizes, "on_paper": on_paper(rows, sizes, sent)}


def show_simulation(found: dict[str, Any]) -> None:
    """Print the simulation half."""
    print(f"{'kind':<24}{'workers':>8}{'waiting /s':>12}{'Python /s':>12}{'NumPy /s':>12}{'ms a chunk':>12}")
    for row in found["rates"]:
        print(
            f"{row['kind']:<24}{row['workers']:>8}{row['waiting']:>12,.0f}{row['busy']:>12,.0f}"
            f"{row['gaussian']:>12,.0f}{row['chunk_ms']:>12.2f}"
        )
    for name in ("messages", "stores", "on_paper"):
        print(f"\n{name}")
        for key, value in found[name].items():
            print(f"  {key:<24}{value if isinstance(value, dict) else f'{value:,.4g}'}")


# --- The command -------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, print, and write a file if that is wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=lambda text: int(float(text)), default=200_000)
    parser.add_argument("--seconds-a-draw", type=float, default=0.001)
    parser.add_argument("--stored", type=lambda text: int(float(text)), default=500_000)
    parser.add_argument("--json", help="write the figures to this file too")
    given = parser.parse_args()
    found = {"simulation": simulation(given.draws, given.seconds_a_draw, given.stored)}
    show_simulation(found["simulation"])
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
