"""Accuracy on every problem of the zoo: the default call, and the paper's recipe on the same draws.

    python benchmarks/accuracy.py [--draws 200000] [--only NAME ...] [--paper] [--json FILE]

Each row: excess log score over the exact one (nats), root mean square error and bias of log K (nats) by the
size of the exact log K, verdict of the coverage test, and seconds of training.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

import evidencenet as en
from evidencenet.losses import log_score
from evidencenet.problems import Problem, zoo

BANDS = ((0, 2), (2, 6), (6, 15), (15, np.inf))


def measure(problem: Problem, draws: int, seed: int, **options: Any) -> dict[str, Any]:
    """Train on `draws` draws and compare with the exact answer on 20,000 fresh ones."""
    sims = en.simulate(problem.models, draws, seed=seed, progress=False)
    fresh = en.simulate(problem.models, 20_000, seed=seed + 1000, progress=False)
    start = time.perf_counter()
    net = en.train(sims, augment=problem.augment, seed=seed, progress=False, **options)
    seconds = time.perf_counter() - start
    check = en.validate(net, fresh)
    evidence = problem.log_evidence(fresh.x)
    exact, log_k = evidence - evidence[:, :1], check.log_k
    prior = np.log(np.array(fresh.counts) / len(fresh))
    error, size = (log_k - exact)[:, 1:].ravel(), np.abs(exact[:, 1:]).ravel()
    row: dict[str, Any] = {
        "problem": problem.name,
        "excess": log_score(log_k + prior, fresh.model) - log_score(exact + prior, fresh.model),
        "coverage": check.passed,
        "seconds": seconds,
    }
    within = [(f"{low:g}-{high:g}", (size >= low) & (size < high)) for low, high in BANDS]
    for name, some in [("<6", size < 6), *within]:
        row[f"rmse {name}"] = float(np.sqrt(np.mean(error[some] ** 2))) if some.any() else None
        row[f"bias {name}"] = float(np.mean(error[some])) if some.any() else None
    return row


def line(name: str, row: dict[str, Any]) -> str:
    """Format one row of the table."""
    cells = [f"{row['excess']:9.5f}"]
    for key in ("<6", *(f"{low:g}-{high:g}" for low, high in BANDS)):
        rmse, bias = row[f"rmse {key}"], row[f"bias {key}"]
        cells.append(f"{'-':>15}" if rmse is None else f"{rmse:7.3f} {bias:+7.3f}")
    verdict = "passed" if row["coverage"] else "FAILED"
    return f"{name:<28}" + " ".join(cells) + f"  {verdict} {row['seconds']:6.1f}"


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=lambda text: int(float(text)), default=200_000)
    parser.add_argument("--only", nargs="*", default=list(zoo()))
    parser.add_argument("--paper", action="store_true", help="also the paper's recipe on the same draws")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the rows to this file too")
    options = parser.parse_args()
    bands = " ".join(f"{f'{low:g}-{high:g}':>15}" for low, high in BANDS)
    print(f"{'problem':<28}{'excess':>9} {'|log K| < 6':>15} {bands}  coverage seconds")
    rows = []
    for name in options.only:
        settings: dict[str, dict[str, Any]] = {name: {}}
        if options.paper:
            settings[f"{name} (paper)"] = {"recipe": en.Recipe.paper()}
        for label, choice in settings.items():
            row = measure(zoo()[name](), options.draws, options.seed, **choice)
            rows.append({"setting": label, **row})
            print(line(label, row), flush=True)
            if options.json:
                with open(options.json, "w") as file:
                    json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
