"""Accuracy on every problem of the zoo: the default call, and the paper's recipe on the same draws.

    python benchmarks/accuracy.py [--draws 200000] [--only NAME ...] [--paper] [--json FILE] [--keep FOLDER]

Each row: excess log score over the exact one (nats), root mean square error and bias of log K (nats) by the
size of the exact log K, verdict of the coverage test, and seconds of training.
"""

from functools import partial
from typing import Any

import numpy as np

import evidencenet as en
from common import kept, parser, table, trained
from evidencenet.checks.scores import score
from evidencenet.problems import Problem, zoo

BANDS = ((0, 2), (2, 6), (6, 15), (15, np.inf))


def measure(problem: Problem, draws: int, seed: int, **options: Any) -> dict[str, Any]:
    """Train on `draws` draws and compare with the exact answer on 20,000 fresh ones."""
    net, fresh, exact, seconds = trained(problem, draws, seed, fresh=20_000, **options)
    check = en.validate(net, fresh)
    log_k = check.log_k
    prior = np.log(np.array(fresh.counts) / len(fresh))
    prior -= prior[0]
    error, size = (log_k - exact)[:, 1:].ravel(), np.abs(exact[:, 1:]).ravel()
    row: dict[str, Any] = {
        "problem": problem.name,
        "excess": score(log_k + prior, fresh.model).value - score(exact + prior, fresh.model).value,
        "coverage": all(test.passed for test in check.coverages),
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
    flags = parser(__doc__)
    flags.add_argument("--paper", action="store_true", help="also the paper's recipe on the same draws")
    options = flags.parse_args()
    bands = " ".join(f"{f'{low:g}-{high:g}':>15}" for low, high in BANDS)
    print(f"{'problem':<28}{'excess':>9} {'|log K| < 6':>15} {bands}  coverage seconds")
    jobs = []
    for name in options.only:
        job = partial(measure, zoo()[name](), options.draws, options.seed)
        jobs.append((name, partial(job, keep=kept(options, name, options.seed))))
        if options.paper:
            keep = kept(options, f"{name}-paper", options.seed)
            paper = partial(job, recipe=en.Recipe.paper(), learn_error=False, keep=keep)
            jobs.append((f"{name} (paper)", paper))
    table(jobs, line, options.json)


if __name__ == "__main__":
    main()
