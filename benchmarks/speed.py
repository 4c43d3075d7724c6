"""The paper's time series: accuracy, time and share of the machine's speed of the default call.

    python benchmarks/speed.py [--draws 1000000] [--dim 100] [--seeds 3] [--paper] [--profile] [--json FILE]

One row per seed: RMSE of log10 K on 20,000 fresh draws; RMSE of the error bars' pull (1 if honest); seconds;
draws trained on per second (all members); and the arithmetic of training (forward, weight and input gradients
of the dense layers) per second, as a share of a large float32 matrix product's in the same run.

With --profile, a table of where the time of each call goes: seconds of each phase on the clock, and how many
programs were compiled meanwhile, and for how long (two threads may compile at the same time).
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import evidencenet as en
from evidencenet.estimator import assemble, fit, learn_error
from evidencenet.training import compiled, devices, search, trainer

# The phases of a call of `train`: their names, and the functions that they are.
PHASES: tuple[tuple[str, Any, str], ...] = (
    ("split, guess the layout", fit.Draws, "split"),
    ("choose: trials", search.Search, "run"),
    ("train the members", trainer.Trainer, "fit_unless_idle"),
    ("novelty", assemble, "fit_novelty"),
    ("error: second look", learn_error, "look_again"),
    ("error: halves", learn_error, "learn_error_model"),
)


class Profile:
    """Seconds of each phase, and programs that were compiled: how many, and seconds of all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.programs, self.compiling = 0, 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose time is added to a phase."""

        def run(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

        return run

    def compiled(self, *arguments: Any, **options: Any) -> Any:
        """Compile a program, and count it."""
        known, start = len(compiled._programs), time.perf_counter()
        program = compiled.compiled(*arguments, **options)
        self.programs += len(compiled._programs) > known
        self.compiling += time.perf_counter() - start
        return program

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure while this lasts."""
        patches = [patch.object(devices, "compiled", self.compiled)]
        for name, place, function in PHASES:
            measured = self.timed(name, getattr(place, function))
            static = isinstance(vars(place).get(function), staticmethod)
            patches.append(patch.object(place, function, staticmethod(measured) if static else measured))
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()

    def table(self, row: dict[str, float]) -> str:
        """Format the budget of one call."""
        phases = {"simulate": row["simulate"], **self.seconds, "evaluate": row["evaluate"]}
        phases["everything else"] = row["in_all"] - sum(phases.values())
        lines = [f"  {name:<26}{seconds:7.1f} s" for name, seconds in phases.items()]
        lines.append(f"  {'in all':<26}{row['in_all']:7.1f} s")
        lines.append(
            f"  of which {self.programs} programs were compiled in {self.compiling:.1f} thread seconds"
        )
        return "\n".join(lines)


def matrix_rate(size: int = 2048, repeats: int = 8) -> float:
    """Floating-point operations per second of a square float32 matrix product, the best of several."""
    a = jnp.ones((size, size), jnp.float32)
    multiply = jax.jit(lambda a, b: a @ b)
    multiply(a, a).block_until_ready()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        multiply(a, a).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def operations_per_draw(net: en.EvidenceNetwork) -> int:
    """Multiplications and additions to train one member on one draw."""
    layers = [leaf.shape[1:] for leaf in jax.tree.leaves(net.networks) if leaf.ndim == 3]
    products = [2 * rows * columns for rows, columns in layers]
    # Forward and weight gradient of every layer; the gradient of its input, but for the first layer's.
    return 3 * sum(products) - products[0]


def measure(draws: int, dim: int, seed: int, **options: Any) -> dict[str, float]:
    """Run once, from nothing to log K."""
    problem = en.problems.time_series(dim)
    start = time.perf_counter()
    sims = en.simulate(problem.models, draws, seed=seed, progress=False, workers=-1)
    simulated = time.perf_counter()
    net = en.train(sims, augment=problem.augment, seed=seed, progress=False, **options)
    trained = time.perf_counter()
    fresh = np.asarray(en.simulate(problem.models, 20_000, seed=seed + 1000, progress=False).x)
    ready = time.perf_counter()
    log_k = net.log_bayes_factor(fresh)
    evaluated = time.perf_counter()
    error = log_k - problem.log_bayes_factor(fresh)
    many = np.tile(fresh, (5, 1))
    clock = time.perf_counter()
    net.log_bayes_factor(many)
    many_seconds = time.perf_counter() - clock
    history = net.history
    return {
        "rmse_log10": float(np.sqrt(np.mean(error**2)) / np.log(10)),
        "pull": float(np.sqrt(np.mean((error / net.error(fresh)) ** 2))),
        "simulate": simulated - start,
        "choose": sum(trial.seconds for trial in net.choice.trials) if net.choice else 0.0,
        "compile": history.compile_seconds,
        "train": float(history.seconds.sum()),
        "evaluate": evaluated - ready,
        "in_all": trained - start + evaluated - ready,
        "evaluate_100k": many_seconds,
        "draws_per_second": history.samples_per_second,
        "gflops": history.samples_per_second * operations_per_draw(net) / 1e9,
        "share_of_matrix_product": history.samples_per_second * operations_per_draw(net) / matrix_rate(),
    }


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--paper", action="store_true", help="the paper's recipe instead of the default call")
    parser.add_argument("--no-baseline", action="store_true", help="networks alone, without a choice")
    parser.add_argument("--profile", action="store_true", help="where the time of each call goes")
    parser.add_argument("--json", help="write the rows to this file too")
    options = parser.parse_args()
    settings: dict[str, Any] = {"recipe": en.Recipe.paper()} if options.paper else {}
    if options.no_baseline:
        settings["baseline"] = False
    rows = []
    for seed in range(1, options.seeds + 1):
        profile = Profile()
        with profile.running():
            row = measure(options.draws, options.dim, seed, **settings)
        rows.append(row)
        if seed == 1:
            print("  ".join(f"{name:>12.12}" for name in row))
        print("  ".join(f"{value:12.4g}" for value in row.values()), flush=True)
        if options.profile:
            print(profile.table(row), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
