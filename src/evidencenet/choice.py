"""Choose how to train by evidence: candidates are tried on few draws and judged by their held-out score."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from evidencenet.training import Trained


@dataclass(frozen=True)
class Trial:
    """One candidate: its name, held-out log score in nats (lower is better) and seconds it took."""

    name: str
    score: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The candidates that were tried, and which was taken; print it.

    Attributes
    ----------
    trials
        All candidates, in the order tried.
    draws
        Training draws each was tried on.
    """

    trials: tuple[Trial, ...]
    draws: int

    @property
    def best(self) -> int:
        """Position of the candidate with the lowest score."""
        return int(np.argmin([trial.score for trial in self.trials]))

    def __str__(self) -> str:
        lines = [f"Tried on {self.draws:,} draws; held-out log score in nats, lower is better:"]
        for i, trial in enumerate(self.trials):
            mark = "*" if i == self.best else " "
            lines.append(f"{mark} {trial.name:<40} {trial.score:.5f}   {trial.seconds:.1f} s")
        return "\n".join(lines)


def choose(candidates: Mapping[str, Callable[[], Trained]], draws: int) -> Choice:
    """Run each candidate and note its score: the mean over members of the best held-out score."""
    trials = []
    for name, run in candidates.items():
        start = time.perf_counter()
        history = run().history
        score = float(np.nanmin(history.score, axis=1).mean())
        trials.append(Trial(name, score, time.perf_counter() - start))
    return Choice(tuple(trials), draws)
