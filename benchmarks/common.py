"""What the benchmarks over the zoo share: a trained network beside the exact answer, and the table."""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evidencenet as en
from evidencenet.problems import Problem, zoo


class Trained(NamedTuple):
    """A network, fresh draws, their exact log K against model 0, (n, K), and seconds of training."""

    net: en.EvidenceNetwork
    fresh: en.Simulations
    exact: np.ndarray
    seconds: float


def trained(
    problem: Problem, draws: int, seed: int, *, fresh: int, keep: str | None = None, **options: Any
) -> Trained:
    """Train on `draws` draws of a problem, and draw `fresh` more.

    `keep` is a file for the network, without its ending; if it is there already, it is taken as it is.
    """
    others = en.simulate(problem.models, fresh, seed=seed + 1000, progress=False)
    evidence = problem.log_evidence(others.x)
    exact = evidence - evidence[:, :1]
    if keep is not None and Path(f"{keep}.json").exists():
        seconds = json.loads(Path(f"{keep}.json").read_text())
        return Trained(en.load(f"{keep}.evnet"), others, exact, seconds)
    sims = en.simulate(problem.models, draws, seed=seed, progress=False)
    start = time.perf_counter()
    net = en.train(sims, augment=problem.augment, seed=seed, progress=False, **options)
    seconds = time.perf_counter() - start
    if keep is not None:
        Path(keep).parent.mkdir(parents=True, exist_ok=True)
        net.save(f"{keep}.evnet")
        Path(f"{keep}.json").write_text(json.dumps(seconds))
    return Trained(net, others, exact, seconds)


def pulls(found: Trained, name: str) -> np.ndarray:
    """Return how far log K is off in the validated range, in units of an error that is named."""
    net, x = found.net, found.fresh.x
    stated = getattr(net, name)
    parts = []
    for k, held in enumerate(net.ranges, start=1):
        log_k = net.log_bayes_factor(x, model=k)
        inside = held.contains(log_k)
        parts.append((np.abs(log_k - found.exact[:, k]) / stated(x, model=k))[inside])
    return np.concatenate(parts)


def parser(about: str | None) -> argparse.ArgumentParser:
    """Make a parser of the options that all have: how many draws, which problems, the seed, and a file."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--draws", type=lambda text: int(float(text)), default=200_000)
    found.add_argument("--only", nargs="*", default=list(zoo()))
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--json", help="write the rows to this file too")
    found.add_argument("--keep", help="a folder for the networks; those in it are not trained again")
    return found


def kept(options: argparse.Namespace, name: str, seed: int) -> str | None:
    """Return where the network of a setting is kept, if anywhere."""
    return options.keep and str(Path(options.keep) / f"{name}-{options.draws}-{seed}")


def table(
    jobs: Sequence[tuple[str, Callable[[], dict[str, Any]]]],
    line: Callable[[str, dict[str, Any]], str],
    path: str | None,
) -> None:
    """Do job by job, print each row as it comes, and keep all rows so far in a file."""
    rows = []
    for label, job in jobs:
        row = job()
        rows.append({"setting": label, **row})
        print(line(label, row), flush=True)
        if path:
            with open(path, "w") as file:
                json.dump(rows, file, indent=1)
