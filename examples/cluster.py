"""A cluster: draws, members and `deepen` by Dask workers, to the same bits as in one process.

It starts a scheduler and some workers, each a process of its own, as on a cluster of many machines. One
worker is killed while it draws, and one while it trains. On your cluster, leave `started` out and connect to
your own scheduler:

    from distributed import Client
    executor = Client("tcp://scheduler:8786").get_executor()
    sims = en.simulate(models, 1_000_000, seed=1, executor=executor, store="draws.zarr")
    net = en.train(sims, seed=2, executor=executor)
    deep = en.deepen(net, models, seed=3, executor=executor)

Needs `pip install evidencenet[dask]`.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evidencenet as en
from _common import Result, Row, run

QUICK = {
    "draws": 2_000,
    "draws_a_second": 1_000.0,
    "members": 2,
    "epochs": 2,
    "rare_draws": 200,
    "rounds": 1,
    "workers": 3,
}


class Cluster(NamedTuple):
    """A running Dask cluster: its executor, its client, and the processes of its workers."""

    executor: Any
    client: Any
    workers: list[subprocess.Popen[bytes]]


@contextlib.contextmanager
def started(workers: int) -> Generator[Cluster]:
    """Start a scheduler and workers, each in a process of its own; all are stopped at the end."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        file = Path(folder, "scheduler.json")
        common = ["--scheduler-file", str(file), "--no-dashboard"]
        server = ["-m", "distributed.cli.dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0"]
        one = ["-m", "distributed.cli.dask_worker", *common, "--no-nanny", "--nthreads", "1"]
        one += ["--local-directory", folder]
        # Workers need the same packages as this process.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

        def process(arguments: list[str], log: str) -> subprocess.Popen[bytes]:
            output = stack.enter_context(open(Path(folder, log), "wb"))
            begun = subprocess.Popen(
                [sys.executable, *arguments], stderr=output, stdout=output, env=environment
            )
            stack.callback(begun.wait)
            stack.callback(begun.kill)
            return begun

        process(server, "scheduler.log")
        crew = [process(one, f"worker-{number}.log") for number in range(workers)]
        while not file.exists():
            time.sleep(0.02)
        client = stack.enter_context(Client(scheduler_file=str(file), set_as_default=False))
        client.wait_for_workers(workers, timeout=120)
        yield Cluster(client.get_executor(), client, crew)


@contextlib.contextmanager
def one_killed(cluster: Cluster, after: float = 0.0) -> Generator[None]:
    """Kill a worker that has something to do, some seconds after it was given it; the others go on."""
    numbers = cluster.client.run(os.getpid)
    while any(cluster.client.processing().values()):
        time.sleep(0.02)  # chunks that were begun and are no longer wanted

    def kill() -> None:
        while not (busy := [place for place, tasks in cluster.client.processing().items() if tasks]):
            time.sleep(0.02)
        time.sleep(after)
        worker = next(worker for worker in cluster.workers if worker.pid == numbers[busy[0]])
        worker.kill()
        worker.wait()

    killer = threading.Thread(target=kill)
    killer.start()
    yield
    killer.join()


def slow_models(seconds: float) -> list[en.Model]:
    """Two models whose draws take a while, as an expensive simulator's do."""
    t = np.linspace(-1, 1, 10)

    def flat(rng: np.random.Generator) -> np.ndarray:
        time.sleep(seconds)
        return rng.normal(size=10)

    def trend(rng: np.random.Generator, slope: float) -> np.ndarray:
        time.sleep(seconds)
        return slope * t + rng.normal(size=10)

    return [
        en.Model("flat", flat, kind="one"),
        en.Model("trend", trend, prior=lambda rng: rng.normal(), kind="one"),
    ]


def main(
    *,
    draws: int = 20_000,
    draws_a_second: float = 500.0,
    members: int = 4,
    epochs: int = 5,
    rare_draws: int = 2_000,
    rounds: int = 2,
    workers: int = 4,
    progress: bool = False,
) -> Result:
    """Draw, train and deepen on a cluster, of which two workers are killed, and in this process."""
    models = slow_models(1 / draws_a_second)
    plan: dict[str, Any] = {
        "members": members,
        "recipe": en.Recipe(epochs=epochs),
        "baseline": False,
        "learn_error": False,
        "seed": 2,
        "progress": progress,
    }
    few: dict[str, Any] = {
        "n": rare_draws,
        "reach": 3.0,
        "rounds": rounds,
        "recipe": en.Recipe(epochs=epochs),
    }
    few |= {"learn_error": False, "seed": 3, "progress": progress}
    # The same draws without the pauses.
    expected = en.simulate(slow_models(0.0), draws, seed=1, progress=progress)
    with started(workers) as cluster:
        # Half way through, one worker is killed.
        with one_killed(cluster, after=0.5 * draws / draws_a_second / workers):
            clock = time.perf_counter()
            sims = en.simulate(models, draws, seed=1, executor=cluster.executor, progress=progress)
            seconds = time.perf_counter() - clock
        # And another one, as soon as it trains a member.
        with one_killed(cluster):
            net = en.train(sims, executor=cluster.executor, **plan)
        left = len(cluster.client.nthreads())
        # The plain draws, the steered ones and the members of each round are made by the workers.
        deep = en.deepen(net, slow_models(0.0), executor=cluster.executor, **few)
    alone = en.train(expected, **plan)
    deep_alone = en.deepen(alone, slow_models(0.0), **few)
    x = np.asarray(expected.x)[:: max(1, draws // 1000)]
    same_draws = np.array_equal(np.asarray(sims.x), np.asarray(expected.x))
    same_members = np.array_equal(net.members(x), alone.members(x))
    same_deep = np.array_equal(deep.members(x), deep_alone.members(x))
    assert deep.depth is not None
    assert deep_alone.depth is not None
    same_deep &= all(map(np.array_equal, deep.depth.log_p, deep_alone.depth.log_p))
    rows = [
        Row("workers, and how many were left at the end", f"{workers}, {left}"),
        Row("draws a second of all workers", f"{draws / seconds:,.0f}"),
        Row("the same draws as in one process, to the bit", "yes" if same_draws else "no"),
        Row(f"the same log K of {members} members, to the bit", "yes" if same_members else "no"),
        Row("the same log K and probabilities of levels by deepen, to the bit", "yes" if same_deep else "no"),
    ]
    numbers = {
        "draws_per_second": draws / seconds,
        "workers_left": left,
        "same_draws": same_draws,
        "same_members": same_members,
        "same_deep": same_deep,
        "rare_calls": deep.depth.calls,
    }
    return Result("Draws and members on a Dask cluster, of which two workers are killed", rows, numbers)


if __name__ == "__main__":
    run(main, quick=QUICK)
