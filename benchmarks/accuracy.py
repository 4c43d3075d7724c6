"""Accuracy on every problem of the zoo: the default call, and the paper's recipe on the same draws.

    python benchmarks/accuracy.py [--draws 200000] [--only NAME ...] [--paper] [--json FILE] [--keep FOLDER]

Each row: excess log score over the exact one (nats), in expectation over the models that may have made each
draw; root mean square error and bias of log K (nats) by the size of the exact log K; of the draws in the
validated range, the fractions (per cent) whose exact log K lies within one and two stated errors; verdict of
the coverage test; and seconds of training.
"""

from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

import evidencenet as en
from common import kept, parser, pulls, table, trained
from evidencenet.problems import Problem, zoo

BANDS = ((0, 2), (2, 6), (6, 15), (15, np.inf))


def measure(problem: Problem, draws: int, seed: int, **options: Any) -> dict[str, Any]:
    """Train on `draws` draws and compare with the exact answer on 20,000 fresh ones."""
    found = trained(problem, draws, seed, fresh=20_000, **options)
    net, fresh, exact, seconds = found
    check = en.validate(net, fresh)
    log_k = check.log_k
    prior = np.log(np.array(fresh.counts) / len(fresh))
    truth, stated = log_softmax(exact + prior, axis=1), log_softmax(log_k + prior, axis=1)
    error, size = (log_k - exact)[:, 1:].ravel(), np.abs(exact[:, 1:]).ravel()
    row: dict[str, Any] = {
        "problem": problem.name,
        "excess": float(np.mean(np.sum(np.exp(truth) * (truth - stated), axis=1))),
        "coverage": all(test.passed for test in check.coverages),
        "seconds": seconds,
    }
    within = [(f"{low:g}-{high:g}", (size >= low) & (size < high)) for low, high in BANDS]
    for name, some in [("<6", size < 6), *within]:
        row[f"rmse {name}"] = float(np.sqrt(np.mean(error[some] ** 2))) if some.any() else None
        row[f"bias {name}"] = float(np.mean(error[some])) if some.any() else None
    off = pulls(found, "error") if net.errors is not None else np.empty(0)
    row["within"] = [float(np.mean(off <= errors)) for errors in (1, 2)] if len(off) else None
    return row


def line(name: str, row: dict[str, Any]) -> str:
    """Format one row of the table."""
    cells = [f"{row['excess']:9.5f}"]
    for key in ("<6", *(f"{low:g}-{high:g}" for low, high in BANDS)):
        rmse, bias = row[f"rmse {key}"], row[f"bias {key}"]
        cells.append(f"{'-':>15}" if rmse is None else f"{rmse:7.3f} {bias:+7.3f}")
    cells.append(
        "  -   -" if row["within"] is None else "{:3.0f} {:3.0f}".format(*100 * np.array(row["within"]))
    )
    verdict = "passed" if row["coverage"] else "FAILED"
    return f"{name:<28}" + " ".join(cells) + f"  {verdict} {row['seconds']:6.1f}"


def main() -> None:
    """Run the benchmark and print the table."""
    flags = parser(__doc__)
    flags.add_argument("--paper", action="store_true", help="also the paper's recipe on the same draws")
    options = flags.parse_args()
    bands = " ".join(f"{f'{low:g}-{high:g}':>15}" for low, high in BANDS)
    print(f"{'problem':<28}{'excess':>9} {'|log K| < 6':>15} {bands}  1σ  2σ  coverage seconds")
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
