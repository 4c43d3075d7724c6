"""How far what a network says of itself can be trusted, on every problem of the zoo.

    python benchmarks/trust.py [--draws 200000] [--only NAME ...] [--json FILE] [--keep FOLDER]

Each row is the default call, judged on 10,000 fresh draws. Of those whose log K lies in the stated range: the
fractions (per cent) for which the exact log K lies within one and two stated errors, the same for the
jackknife, and the largest error in units of the stated one; then the range, and the fraction inside. Novelty
at a nominal 1%: the fraction of draws that are strange to their own model, and to all models, which is what
`compare` warns about; and its power, the fraction strange to all models of data that are shifted by one
standard deviation of each number, stretched by 1.5 about their mean, or have 10% of their numbers moved by
five standard deviations. Last, seconds of training, and milliseconds of one `compare` after the first.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import evidencenet as en
from common import Trained, kept, parser, table, trained
from evidencenet.data import Data, map_arrays
from evidencenet.problems import Problem, zoo

SIZE = 0.01
HEAD = (
    f"{'':<20} {'within (%)':>11} {'jackknife':>11} {'worst':>6} {'range':>15} {'inside':>6}"
    f" {'alarms (%)':>10} {'power (%)':>20} {'seconds':>8} {'ms':>5}\n"
    f"{'problem':<20} {'1 σ':>5} {'2 σ':>5} {'1 σ':>5} {'2 σ':>5} {'σ':>6} {'log K':>15} {'(%)':>6}"
    f" {'own':>4} {'all':>5} {'shift':>6} {'stretch':>7} {'spoil':>5}"
)


def measure(
    problem: Problem, draws: int, seed: int, *, fresh: int = 10_000, **options: Any
) -> dict[str, Any]:
    """Train on `draws` draws, and judge on `fresh` others."""
    found = trained(problem, draws, seed, fresh=fresh, **options)
    return {
        "problem": problem.name,
        **errors(found),
        **novelty(found, seed),
        "seconds": found.seconds,
        "compare_ms": 1e3 * seconds_of_compare(found.net, found.fresh.x),
    }


def errors(found: Trained) -> dict[str, Any]:
    """Compare errors with what is stated, over all models against the first."""
    net, x = found.net, found.fresh.x
    pulls: dict[str, list[np.ndarray]] = {"error": [], "jackknife": []}
    for k, held in enumerate(net.ranges, start=1):
        log_k = net.log_bayes_factor(x, model=k)
        inside = held.contains(log_k)
        off = np.abs(log_k - found.exact[:, k])[inside]
        for name, stated in (("error", net.error), ("jackknife", net.jackknife)):
            pulls[name].append(off / stated(x, model=k)[inside])
    row: dict[str, Any] = {}
    for name, parts in pulls.items():
        pull = np.concatenate(parts)
        for sigmas in (1, 2):
            row[f"{name} within {sigmas}"] = float(np.mean(pull <= sigmas)) if len(pull) else None
        row[f"{name} worst"] = float(np.max(pull)) if len(pull) else None
    number = sum(len(part) for part in pulls["error"])
    row["inside"] = number / (len(net.ranges) * len(found.fresh))
    row["ranges"] = [None if held.empty else [held.low, held.high] for held in net.ranges]
    return row


def novelty(found: Trained, seed: int) -> dict[str, Any]:
    """Count what is strange at the nominal size, among fresh draws and among data made unlike them."""
    net, fresh = found.net, found.fresh
    p = net.novelty_p_value(fresh.x)
    own = p[np.arange(len(p)), fresh.model] <= SIZE
    row: dict[str, Any] = {
        "alarms own": float(own.mean()),
        "alarms of each": [float(own[fresh.model == k].mean()) for k in range(len(net.names))],
        "alarms all": strange(p),
    }
    rng = np.random.default_rng(seed)
    changes: dict[str, Callable[..., np.ndarray]] = {
        "shift": lambda a, mean, spread: a + spread,
        "stretch": lambda a, mean, spread: mean + 1.5 * (a - mean),
        "spoil": lambda a, mean, spread: a + 5 * spread * signs(rng, a.shape, 0.1),
    }
    for name, change in changes.items():
        row[f"power {name}"] = strange(net.novelty_p_value(changed(fresh.x, change)))
    return row


def strange(p: np.ndarray) -> float:
    """Return the fraction of observations that all models find strange, as `compare` asks it."""
    return float(np.mean(np.all(p <= SIZE, axis=1)))


def changed(x: Data, change: Callable[..., np.ndarray]) -> Data:
    """Apply ``change(numbers, mean, standard deviation)``; masks stay."""

    def apply(array: np.ndarray) -> np.ndarray:
        if array.dtype == bool:
            return array
        numbers = array.astype(np.float64)
        return change(numbers, numbers.mean(axis=0), numbers.std(axis=0))

    changed: Data = map_arrays(apply, x)
    return changed


def signs(rng: np.random.Generator, shape: tuple[int, ...], fraction: float) -> np.ndarray:
    """Return −1 or 1 for a fraction of the numbers, 0 for the others."""
    return np.where(rng.random(shape) < fraction, rng.choice([-1.0, 1.0], size=shape), 0.0)


def seconds_of_compare(net: en.EvidenceNetwork, x: Data, repeats: int = 50) -> float:
    """Return the median time of one answer, after a first one."""
    one = map_arrays(lambda array: array[0], x)
    net.compare(one)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        net.compare(one)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def line(name: str, row: dict[str, Any]) -> str:
    """Format one row of the table."""

    def cell(key: str, form: str, factor: float = 100) -> str:
        value = row[key]
        width = int(form.split(".")[0])
        return f"{'-':>{width}}" if value is None else f"{factor * value:{form}}"

    first = row["ranges"][0]
    held = "none" if first is None else f"{first[0]:.1f} to {first[1]:.1f}"
    within = [f"{kind} within {sigmas}" for kind in ("error", "jackknife") for sigmas in (1, 2)]
    cells = [cell(key, "5.1f") for key in within]
    cells += [cell("error worst", "6.1f", 1), f"{held:>15}", cell("inside", "6.1f")]
    cells += [cell("alarms own", "4.1f"), cell("alarms all", "5.1f")]
    cells += [cell("power shift", "6.1f"), cell("power stretch", "7.1f"), cell("power spoil", "5.1f")]
    cells += [cell("seconds", "8.1f", 1), cell("compare_ms", "5.1f", 1)]
    return f"{name:<20} " + " ".join(cells)


def main() -> None:
    """Run the benchmark and print the table."""
    options = parser(__doc__).parse_args()
    print(HEAD, flush=True)
    jobs = [
        (name, partial(measure, zoo()[name](), options.draws, options.seed, keep=kept(options, name)))
        for name in options.only
    ]
    table(jobs, line, options.json)


if __name__ == "__main__":
    main()
