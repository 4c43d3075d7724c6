"""How far log K is right before and after `deepen`, on problems of the zoo.

    python benchmarks/deep.py [--draws 200000] [--n 20000] [--only NAME ...] [--json FILE] [--keep DIR]
    python benchmarks/deep.py --epochs 8 --draws 50000 --n 4000

Each row is the default call of `train`, then `deepen` of the result, both judged on 100,000 fresh plain draws
of all models. For exact |log K| (of two models; of the best against the second for more) from 0 to 3, 3 to 6,
6 to 15 and 15 to 30: the RMSE of log K in nats before and after, where there are at least 30 draws. Then, of
draws in the validated range after: the fractions (per cent) within one and two stated errors, in all of the
range and beyond |log K| = 6. Last, the validated range before and after, rounds, simulator calls, and seconds
of `deepen`.

With `--epochs` both trainings are short ones, to see where `deepen` fails rather than how well it does: a
network is named, so that there is no search, `train` sees the draws 8 times and `deepen` so many times, with
two members and without learned errors, and there are 30,000 fresh draws.
"""

import time
from typing import Any

import numpy as np

import evidencenet as en
from common import Trained, kept, parser, table, trained
from evidencenet.problems import Problem, zoo
from evidencenet.training.search import natural
from evidencenet.training.split import Draws

STRATA = ((0.0, 3.0), (3.0, 6.0), (6.0, 15.0), (15.0, 30.0))
LEAST = 30
HEAD = (
    f"{'':<20} {'RMSE of log K, before / after (nats)':^59} {'in range':>9} {'beyond 6':>9}\n"
    f"{'problem':<20} " + " ".join(f"{f'{low:.0f} to {high:.0f}':>14}" for low, high in STRATA)
    + f" {'1σ':>4} {'2σ':>4} {'1σ':>4} {'2σ':>4} {'range before':>15} {'range after':>15}"
    + f" {'rounds':>6} {'calls':>6} {'s':>5}"
)  # fmt: skip


# Networks of short trainings, by problem; for the others the first one that suits the draws.
_MANY_SQUARES = en.networks.Squares(projections=32, nodes=32, smooth=16)
_WIDE = en.networks.Dense(width=128, hidden=64)
NAMED: dict[str, Any] = {
    "decay_or_trend": _MANY_SQUARES,
    "spectral_line": _MANY_SQUARES,
    "variance_test": _MANY_SQUARES,
    "ar_or_ma": en.networks.Recurrence(),
    "lifetime": _WIDE,
}


def measure(
    problem: Problem,
    draws: int,
    n: int,
    seed: int,
    keep: str | None,
    *,
    fresh: int = 100_000,
    epochs: int | None = None,
) -> dict[str, Any]:
    """Train on `draws` draws, deepen, and judge both networks on `fresh` others; see the top for `epochs`."""
    options: dict[str, Any] = {}
    deeper: dict[str, Any] = {}
    if epochs is not None:
        deeper = {"members": 2, "learn_error": False, "recipe": en.Recipe(epochs=epochs)}
        options = {
            **deeper,
            "recipe": en.Recipe(epochs=8),
            "network": NAMED.get(problem.name) or first_network(problem, seed),
            "loss": en.losses.Logistic(),
        }
    one = trained(problem, draws, seed, fresh=fresh, keep=keep, **options)
    start = time.perf_counter()
    deep = en.deepen(
        one.net, problem.models, n=n, augment=problem.augment, seed=seed, progress=False, **deeper
    )
    seconds = time.perf_counter() - start
    pair = strongest(one.exact)
    exact = chosen(one.exact, pair)
    before, after = (log_k(net, one, pair) for net in (one.net, deep))
    error = pair_errors(deep, one.fresh.x, pair)
    inside = in_range(deep, after, pair)
    size, off = np.abs(exact), np.abs(after - exact)
    row: dict[str, Any] = {"problem": problem.name, "seconds": seconds, "train_seconds": one.seconds}
    for low, high in STRATA:
        rows = (size >= low) & (size < high)
        number = int(rows.sum())
        both = [rmse(found[rows] - exact[rows]) for found in (before, after)] if number >= LEAST else None
        row[f"{low:.0f}-{high:.0f}"] = both and [*both, number]
    for name, rows in (("all", inside), ("deep", inside & (size >= 6))):
        shares = [float(np.mean(off[rows] < f * error[rows])) for f in (1, 2)]
        row[f"within_{name}"] = shares if rows.sum() >= LEAST and deep.errors is not None else None
    row["before"], row["after"] = ([[r.low, r.high] for r in net.ranges] for net in (one.net, deep))
    depth = deep.depth
    assert depth is not None
    checks = [str(check) for check in depth.checks]
    row |= {"rounds": depth.rounds, "calls": depth.calls, "checks": checks}
    return row


def first_network(problem: Problem, seed: int) -> Any:
    """Return the network that `train` would try first."""
    sims = en.simulate(problem.models, 40_000, seed=seed, progress=False)
    return natural(Draws.split(sims, 0.1, None, seed))[0]


def strongest(exact: np.ndarray) -> np.ndarray:
    """Return the pair of models to judge each draw by, (n, 2): 1 against 0, or best against second."""
    if exact.shape[1] == 2:
        return np.tile([1, 0], (len(exact), 1))
    return np.argsort(-exact, axis=1)[:, :2]


def chosen(log_k: np.ndarray, pair: np.ndarray) -> np.ndarray:
    """Return log K of each draw's pair, (n,)."""
    rows = np.arange(len(log_k))
    return log_k[rows, pair[:, 0]] - log_k[rows, pair[:, 1]]


def log_k(net: en.EvidenceNetwork, one: Trained, pair: np.ndarray) -> np.ndarray:
    """Return a network's log K of each draw's pair, (n,)."""
    return chosen(net.table(one.fresh.x).mean(axis=0), pair)


def pair_errors(net: en.EvidenceNetwork, x: Any, pair: np.ndarray) -> np.ndarray:
    """Return the stated error of log K of each draw's pair, (n,)."""
    error = np.zeros(len(pair))
    for above, below in np.unique(pair, axis=0):
        rows = np.all(pair == (above, below), axis=1)
        error[rows] = net.error(x, model=int(above), against=int(below))[rows]
    return error


def in_range(net: en.EvidenceNetwork, found: np.ndarray, pair: np.ndarray) -> np.ndarray:
    """Say which draws have log K in the validated range of their pair, (n,)."""
    inside = np.zeros(len(pair), dtype=bool)
    for above, below in np.unique(pair, axis=0):
        rows = np.all(pair == (above, below), axis=1)
        inside[rows] = net.held_out.range(int(above), int(below)).contains(found[rows])
    return inside


def rmse(off: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(off))))


def line(label: str, row: dict[str, Any]) -> str:
    """Write a row of the table."""
    parts = []
    for low, high in STRATA:
        pair = row[f"{low:.0f}-{high:.0f}"]
        parts.append(f"{'-':>14}" if pair is None else f"{f'{pair[0]:.2f} / {pair[1]:.2f}':>14}")
    for name in ("all", "deep"):
        both = row[f"within_{name}"] or (float("nan"),) * 2
        parts += [f"{100 * value:4.0f}" for value in both]
    ends = [f"{f'{r[0][0]:.1f} to {r[0][1]:.1f}':>15}" for r in (row["before"], row["after"])]
    calls = f"{row['calls'] / 1e6:.1f}M"
    parts += [*ends, f"{row['rounds']:>6}", f"{calls:>6}", f"{row['seconds']:5.0f}"]
    return f"{label:<20} " + " ".join(parts)


def main() -> None:
    """Run from the command line."""
    found = parser(__doc__)
    found.add_argument("--n", type=int, default=20_000)
    found.add_argument("--epochs", type=int, help="short trainings of a named network")
    options = found.parse_args()
    problems = zoo()
    print(HEAD, flush=True)

    def job(name: str) -> dict[str, Any]:
        keep = kept(options, name, options.seed)
        sizes = {} if options.epochs is None else {"fresh": 30_000, "epochs": options.epochs}
        return measure(problems[name](), options.draws, options.n, options.seed, keep, **sizes)

    table([(name, lambda name=name: job(name)) for name in options.only], line, options.json)  # type: ignore[misc]


if __name__ == "__main__":
    main()
