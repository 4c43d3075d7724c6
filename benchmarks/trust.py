"""How far what a network says of itself can be trusted, on every problem of the zoo.

    python benchmarks/trust.py [--draws 200000] [--trainings 3] [--only NAME ...] [--json FILE] [--keep DIR]

Each row is the default call, each training with draws of its own, judged on 10,000 fresh ones. Of those whose
log K lies in the stated range: the fractions (per cent) for which the exact log K lies within one and two
stated errors, over all trainings, and the lowest and highest of single ones; the same for the jackknife; the
largest error in units of the stated one; the range of the first, and the fraction inside. What a training is
off by is much alike on all draws, so that its fractions are one throw of the dice: an error is right if they
are right over trainings.

Novelty at a nominal 1%: the fraction of draws that are strange to their own model, and to all models, as
`compare` warns of it; and its power, the fraction strange to all models of data that are shifted by one
standard deviation of each number, stretched by 1.5 about their mean, or have 10% of their numbers moved by
five standard deviations. Last, seconds of training, and milliseconds of one `compare` after the first.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import evidencenet as en
from common import Trained, kept, parser, pulls, table, trained
from evidencenet._common.arrays import Data, map_arrays
from evidencenet.problems import Problem, zoo

SIZE = 0.01
HEAD = (
    f"{'':<20} {'within 1 σ (%)':>17} {'within 2 σ (%)':>17} {'jackknife':>11} {'worst':>6} {'range':>15}"
    f" {'inside':>6} {'alarms (%)':>10} {'power (%)':>20} {'seconds':>8} {'ms':>5}\n"
    f"{'problem':<20} {'all':>5} {'of each':>11} {'all':>5} {'of each':>11} {'1 σ':>5} {'2 σ':>5} {'σ':>6}"
    f" {'log K':>15} {'(%)':>6} {'own':>4} {'all':>5} {'shift':>6} {'stretch':>7} {'spoil':>5}"
)


def measure(
    problem: Problem,
    draws: int,
    seeds: Sequence[int],
    keep: Sequence[str | None] = (),
    *,
    fresh: int = 10_000,
    **options: Any,
) -> dict[str, Any]:
    """Train on `draws` draws for each seed, and judge on `fresh` others; `keep` are files for networks."""
    files = keep or [None] * len(seeds)
    found = [
        trained(problem, draws, seed, fresh=fresh, keep=file, **options)
        for seed, file in zip(seeds, files, strict=True)
    ]
    unlike = [novelty(one, seed) for one, seed in zip(found, seeds, strict=True)]
    return {
        "problem": problem.name,
        **errors(found),
        **{name: np.mean([row[name] for row in unlike], axis=0).tolist() for name in unlike[0]},
        "seconds": float(np.mean([one.seconds for one in found])),
        "compare_ms": 1e3 * seconds_of_compare(found[0].net, found[0].fresh.x),
    }


def errors(found: Sequence[Trained]) -> dict[str, Any]:
    """Compare errors with what is stated, over all trainings, and all models against the first."""
    row: dict[str, Any] = {}
    for name in ("error", "jackknife"):
        each = [pulls(one, name) for one in found]
        every = np.concatenate(each)
        for sigmas in (1, 2):
            row[f"{name} within {sigmas}"] = float(np.mean(every <= sigmas)) if len(every) else None
            row[f"{name} within {sigmas} of each"] = [float(np.mean(e <= sigmas)) for e in each if len(e)]
        row[f"{name} worst"] = float(np.max(every)) if len(every) else None
    row["inside"] = len(every) / sum(len(one.net.ranges) * len(one.fresh) for one in found)
    row["ranges"] = [None if held.empty else [held.low, held.high] for held in found[0].net.ranges]
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

    def span(key: str) -> str:
        each = [100 * value for value in row[key]]
        return f"{f'{min(each):.0f} to {max(each):.0f}' if each else '-':>11}"

    first = row["ranges"][0]
    held = "none" if first is None else f"{first[0]:.1f} to {first[1]:.1f}"
    cells = []
    for key in ("error within 1", "error within 2"):
        cells += [cell(key, "5.1f"), span(f"{key} of each")]
    cells += [cell(f"jackknife within {sigmas}", "5.1f") for sigmas in (1, 2)]
    cells += [cell("error worst", "6.1f", 1), f"{held:>15}", cell("inside", "6.1f")]
    cells += [cell("alarms own", "4.1f"), cell("alarms all", "5.1f")]
    cells += [cell("power shift", "6.1f"), cell("power stretch", "7.1f"), cell("power spoil", "5.1f")]
    cells += [cell("seconds", "8.1f", 1), cell("compare_ms", "5.1f", 1)]
    return f"{name:<20} " + " ".join(cells)


def main() -> None:
    """Run the benchmark and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--trainings", type=int, default=3, help="of each problem, with seeds that follow")
    options = arguments.parse_args()
    seeds = range(options.seed, options.seed + options.trainings)
    print(HEAD, flush=True)
    jobs = [
        (name, partial(measure, zoo()[name](), options.draws, seeds, [kept(options, name, s) for s in seeds]))
        for name in options.only
    ]
    table(jobs, line, options.json)


if __name__ == "__main__":
    main()
