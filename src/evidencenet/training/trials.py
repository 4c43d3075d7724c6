"""`TrialFile`: finished trials in a file, so that a search that was cut off can continue."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evidencenet._common import files
from evidencenet.training.checkpoint import Run, differences

_KIND = "trials"


@dataclass(frozen=True, eq=False)
class StoredTrial:
    """Costs (n,) and log K (n, K) of the held-out draws, seconds, and whether networks learned."""

    costs: np.ndarray
    log_k: np.ndarray
    seconds: float
    learned: bool


@dataclass
class TrialFile:
    """Finished trials by name, in memory and in a file that is replaced after each.

    Parameters
    ----------
    path
        The file. Trials of another run that it holds are not used, and are overwritten.
    run
        The record of `evidencenet.training.checkpoint.run_fingerprint`.
    """

    path: str | os.PathLike[str]
    run: Run
    trials: dict[str, StoredTrial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        if not Path(self.path).exists():
            return
        about, arrays = files.read(self.path, _KIND)
        with files.readable(Path(self.path)):
            if differences(about["run"], self.run):
                return
            for i, trial in enumerate(about["trials"]):
                self.trials[trial["name"]] = StoredTrial(
                    arrays[f"costs/{i}"], arrays[f"log_k/{i}"], trial["seconds"], trial["learned"]
                )

    def add(self, name: str, trial: StoredTrial) -> None:
        """Keep a finished trial."""
        with self._lock:
            self.trials[name] = trial
            arrays: dict[str, np.ndarray] = {}
            listed = []
            for i, (each, stored) in enumerate(self.trials.items()):
                arrays |= {f"costs/{i}": stored.costs, f"log_k/{i}": stored.log_k}
                listed.append({"name": each, "seconds": stored.seconds, "learned": stored.learned})
            files.write(self.path, _KIND, {"run": dict(self.run), "trials": listed}, arrays)

    def remove(self) -> None:
        """Remove the file."""
        Path(self.path).unlink(missing_ok=True)
