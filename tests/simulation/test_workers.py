"""A worker process that dies once costs nothing; one that dies again is named with model and draw."""

import os
import signal
from pathlib import Path

import joblib
import numpy as np
import pytest

from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.simulation.workers import WorkerError


def mortal(marker: Path, *, always: bool) -> Model:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.normal(size=(n, 2))
        if (always or not marker.exists()) and x[0, 0] > 0.5:
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    return Model("mortal", draw)


def test_a_worker_that_dies(tmp_path: Path) -> None:
    options = {"chunk": 100, "seed": 1, "progress": False}
    expected = simulate([Model("mortal", lambda rng, n: rng.normal(size=(n, 2)))], 600, **options)  # type: ignore[arg-type]
    with joblib.parallel_config("loky", n_jobs=2):
        once = mortal(tmp_path / "died", always=False)
        again = simulate([once], 600, workers=2, **options)  # type: ignore[arg-type]
        assert (tmp_path / "died").exists()
        np.testing.assert_array_equal(again.x, expected.x)
        with pytest.raises(WorkerError, match=r"died twice in the chunk at draw \d+ of model 'mortal'"):
            simulate([mortal(tmp_path / "died", always=True)], 600, workers=2, **options)  # type: ignore[arg-type]
