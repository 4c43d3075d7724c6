"""Training at any size: peak memory over the size of a store, and draws per second from each source.

`benchmarks/scale.py --training` runs all of these, and writes their tables to the pages.

    python benchmarks/scale_training.py memory --gigabytes 2 10 40 --folder FOLDER
    python benchmarks/scale_training.py speed [--draws 1000000]
    python benchmarks/scale_training.py fresh [--draws 5000000]

`memory` writes stores of these sizes, whose chunks repeat a few draws so that they take little space on disk,
and trains on each in a process of its own. `speed` trains the same network on draws in memory, in a store,
and drawn while it is trained. `fresh` makes the default call on fresh draws of the paper's time series, and
compares with the exact log K.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import evidencenet as en
from evidencenet.simulation.chunks import Chunk
from evidencenet.simulation.store import open_store

# Numbers in a draw of the large stores; in single precision, 4 kB a draw and 64 MB a chunk.
NUMBERS, ROWS = 1_000, 16_384
DISTINCT = 16


def write_store(path: Path, gigabytes: float) -> None:
    """Write a store of two models, of about so many gigabytes when it is read."""
    chunks = max(1, round(gigabytes * 1e9 / (4 * NUMBERS * ROWS) / 2))
    settings: dict[str, Any] = {"models": ["narrow", "wide"], "kind": ["batch"] * 2, "seed": 1}
    settings |= {"keep_parameters": False, "missing": None, "observe": [False] * 2}
    store = open_store(path, settings, [chunks * ROWS] * 2, ["", ""])
    rng = np.random.default_rng(1)
    for k in range(2):
        for number in range(chunks):
            some = (1 + 0.01 * k) * rng.standard_normal((DISTINCT, NUMBERS), dtype=np.float32)
            x = np.tile(some, (ROWS // DISTINCT, 1))
            store.write(k, number * ROWS, Chunk(x, None, np.ones(ROWS, dtype=bool), None))


def train_on_store(path: Path) -> dict[str, Any]:
    """Train one small network for one epoch; return seconds, draws and the peak of memory."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = en.networks.Squares(projections=2, nodes=2)
        recipe = en.Recipe(epochs=1, batch=1_000)
        net = en.train(path, network=network, recipe=recipe, members=1, learn_error=False, progress=False)
        trained = time.perf_counter() - start
        en.validate(net, path)
        net.recalibrate(path)
        net.log_bayes_factor(path, out=path.parent / "log_k.npy")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "draws": net.history.draws,
        "train_seconds": trained,
        "seconds": time.perf_counter() - start,
        "peak_megabytes": peak,
    }


def memory(gigabytes: list[float], folder: str | None = None) -> list[dict[str, float]]:
    """Measure the peak of memory for stores of several sizes, and print each."""
    rows = []
    for size in gigabytes:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = Path(place) / "draws.zarr"
            write_store(path, size)
            call = [sys.executable, __file__, "one", str(path)]
            done = subprocess.run(call, check=True, capture_output=True, text=True)
            rows.append({"gigabytes": size, **json.loads(done.stdout.splitlines()[-1])})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def speed(draws: int) -> dict[str, dict[str, float]]:
    """Draws per second of the same training from memory, from a store, and from fresh draws."""
    models = en.problems.time_series(dim=100).models
    options: dict[str, Any] = {"members": 2, "learn_error": False, "progress": False, "network": "dense"}
    options |= {"recipe": en.Recipe(epochs=2, batch=1_000), "seed": 1}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "draws.zarr"
        sims = en.simulate(models, draws, seed=1, store=path, progress=False)
        calls: dict[str, Any] = {
            "memory": lambda: en.train(sims, **options),
            "store": lambda: en.train(path, **options),
            "fresh": lambda: en.train(models=models, draws=2 * draws, **options),
        }
        rates: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(3):
            # In turn, so that a busy machine slows all of them alike.
            for name, call in calls.items():
                rates[name].append(call().history.samples_per_second)
    best = {name: max(each) for name, each in rates.items()}
    return {name: {"draws_per_second": rate, "part": rate / best["memory"]} for name, rate in best.items()}


def fresh(draws: int) -> dict[str, float]:
    """Return the error of log10 K of the default call on fresh draws of the paper's time series."""
    problem = en.problems.time_series(dim=100)
    start, processor = time.perf_counter(), time.process_time()
    net = en.train(models=problem.models, draws=draws, augment=problem.augment, seed=2, progress=False)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    sims = en.simulate(problem.models, 50_000, seed=99, progress=False)
    off = (net.log_bayes_factor(sims.x) - problem.log_bayes_factor(sims.x)) / np.log(10)
    stated = net.error(sims.x) / np.log(10)
    record = {"rmse_log10_k": float(np.sqrt(np.mean(off**2))), "stated": float(np.sqrt(np.mean(stated**2)))}
    return {"draws": draws, "seconds": seconds, "processor_seconds": processor, **record}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["memory", "speed", "fresh", "one"])
    parser.add_argument("path", nargs="?")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[2, 10, 40])
    parser.add_argument("--folder")
    parser.add_argument("--draws", type=float)
    given = parser.parse_args()
    if given.what == "one":
        print(json.dumps(train_on_store(Path(given.path))))
    elif given.what == "memory":
        memory(given.gigabytes, given.folder)
    elif given.what == "speed":
        print(json.dumps(speed(int(given.draws or 1_000_000))))
    else:
        print(json.dumps(fresh(int(given.draws or 5_000_000))))


if __name__ == "__main__":
    main()
