"""What the default call costs, and how good it is, over the number of draws and of numbers in a draw.

    python benchmarks/sizes.py [--draws 1e4 1e5 1e6 1e7] [--numbers 10 30 100 300 1000 2000] [--json FILE]
                               [--figure FILE]

The paper's time series, default settings. First 100 numbers and so many draws; then 200,000 draws of so many
numbers. Up to a million draws are kept in memory. More are drawn anew while the networks train
(``train(models=, draws=)``). Each row: seconds of simulation and training, and the RMSE of log10 K on 10,000
fresh draws. The first call is made twice and only the second counts, so that the compilation which all
calls share is left out.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import evidencenet as en

# More draws than this are not kept in memory.
IN_MEMORY = 1_000_000
# Draws of the rows over numbers, and numbers of the rows over draws.
DRAWS, NUMBERS = 200_000, 100


def measure(draws: int, numbers: int, seed: int = 1) -> dict[str, Any]:
    """Simulate and train with the default settings, and compare with the exact log K."""
    problem = en.problems.time_series(numbers)
    options: dict[str, Any] = {"augment": problem.augment, "seed": seed, "progress": False}
    start = time.perf_counter()
    if draws <= IN_MEMORY:
        sims = en.simulate(problem.models, draws, seed=seed, workers=-1, progress=False)
        net = en.train(sims, **options)
    else:
        net = en.train(models=problem.models, draws=draws, **options)
    seconds = time.perf_counter() - start
    fresh = np.asarray(en.simulate(problem.models, 10_000, seed=seed + 1000, progress=False).x)
    error = net.log_bayes_factor(fresh) - problem.log_bayes_factor(fresh)
    return {
        "draws": draws,
        "numbers": numbers,
        "seconds": seconds,
        "rmse_log10": float(np.sqrt(np.mean(np.square(error))) / np.log(10)),
        "taken": net.choice.taken if net.choice else "",
    }


def figure(rows: list[dict[str, Any]], path: str) -> None:
    """Draw seconds and RMSE over both sizes."""
    made = Figure(figsize=(8.0, 5.6), layout="constrained")
    axes = made.subplots(2, 2, sharey="row")
    columns = (
        ("draws", "numbers", NUMBERS, f"draws of {NUMBERS} numbers"),
        ("numbers", "draws", DRAWS, f"numbers in each of {DRAWS:,} draws"),
    )
    for column, (name, other, fixed, words) in enumerate(columns):
        own = sorted((row for row in rows if row[other] == fixed), key=lambda row: row[name])
        size = np.array([row[name] for row in own], float)
        for axis, key, slope, text in (
            (axes[0, column], "seconds", 1.0, "linear"),
            (axes[1, column], "rmse_log10", -0.5 if name == "draws" else 0.5, "square root"),
        ):
            values = np.array([row[key] for row in own])
            axis.loglog(size, values, "o-", color="#2a6fb0")
            axis.loglog(size, values[-1] * (size / size[-1]) ** slope, ":", color="grey", label=text)
            axis.set_xlabel(words)
            axis.grid(alpha=0.3)
            axis.legend(frameon=False)
    axes[0, 0].set_ylabel("seconds, simulation included")
    axes[1, 0].set_ylabel("RMSE of log10 K")
    made.savefig(path, dpi=150)


def main() -> None:
    """Run the benchmark, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def whole(text: str) -> int:
        return int(float(text))

    parser.add_argument("--draws", type=whole, nargs="*", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--numbers", type=whole, nargs="*", default=[10, 30, 100, 300, 1000, 2000])
    parser.add_argument("--json", help="write the rows to this file too")
    parser.add_argument("--figure", help="draw them into this file")
    options = parser.parse_args()
    sizes = [(draws, NUMBERS) for draws in options.draws] + [(DRAWS, numbers) for numbers in options.numbers]
    measure(*sizes[0])
    rows = []
    print(f"{'draws':>12} {'numbers':>8} {'seconds':>8} {'RMSE log10 K':>13}  plan")
    for size in sizes:
        row = measure(*size)
        rows.append(row)
        size_text = f"{row['draws']:>12,} {row['numbers']:>8,}"
        print(f"{size_text} {row['seconds']:8.1f} {row['rmse_log10']:13.4f}  {row['taken']}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    if options.figure:
        figure(rows, options.figure)


if __name__ == "__main__":
    main()
