"""Any executor gives the same draws; a worker that dies costs nothing, or is named with model and draw."""

import multiprocessing
import os
import random
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import joblib
import numpy as np
import pytest

from evidencenet._common.executors import ShippingError
from evidencenet._common.warnings import RandomnessWarning
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.simulation.workers import WorkerError
from executors import Pickling


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
    expected = simulate([Model("mortal", lambda rng, n: rng.normal(size=(n, 2)))], 600, **options)  # type: ignore[call-overload]
    with joblib.parallel_config("loky", n_jobs=2):
        once = mortal(tmp_path / "died", always=False)
        again = simulate([once], 600, workers=2, **options)  # type: ignore[call-overload]
        assert (tmp_path / "died").exists()
        np.testing.assert_array_equal(again.x, expected.x)
        with pytest.raises(WorkerError, match=r"died twice in the chunk at draw \d+ of model 'mortal'"):
            simulate([mortal(tmp_path / "died", always=True)], 600, workers=2, **options)  # type: ignore[call-overload]


class Level(NamedTuple):
    mean: np.ndarray


@pytest.fixture(scope="module")
def pool() -> Any:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def models() -> list[Model]:
    """Lambdas, parameters of a class of this file, and draws that fail."""
    return [
        Model("flat", lambda rng, n: rng.normal(size=(n, 2))),
        Model(
            "level",
            lambda rng, level: (
                np.where(level.mean > 1, np.nan, level.mean)[:, None] + rng.normal(size=(1, 2))
            ),
            prior=lambda rng, n: Level(rng.normal(size=n)),
        ),
    ]


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_every_executor_gives_the_same_draws(pool: Any) -> None:
    options: dict[str, Any] = {"seed": 4, "keep_parameters": True, "progress": False}
    expected = simulate(models(), 500, **options)
    with ThreadPoolExecutor(3) as threads:
        for executor, workers in ((pool, None), (threads, None), (Pickling(), 3), (Pickling(), None)):
            sims = simulate(models(), 500, executor=executor, workers=workers, **options)
            np.testing.assert_array_equal(sims.x, expected.x)
            assert sims.failed == expected.failed
            assert sims.failed[1] > 10
            np.testing.assert_array_equal(sims.parameters[1].mean, expected.parameters[1].mean)


def test_work_is_shared_and_bounded() -> None:
    executor = Pickling()
    simulate([models()[0]], 1_000, chunk=50, executor=executor, workers=2, progress=False)
    # Blocks of 10, then of 100; and at most 4 chunks more than were needed.
    assert 10 <= executor.tasks <= 24


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_failures_come_back_as_text(pool: Any) -> None:
    class OwnError(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} is not {b}")

    def draw(rng: np.random.Generator) -> float:
        if rng.random() < 0.2:
            raise OwnError(1, 2)  # it cannot be unpickled
        return float(rng.random())

    model = Model("own", draw, kind="one")
    there = simulate([model], 60, seed=1, executor=pool, progress=False)
    here = simulate([model], 60, seed=1, progress=False)
    assert there.failed == here.failed
    assert there.failed[0] > 0


def test_mistakes_of_a_model_come_back(pool: Any) -> None:
    with pytest.raises(ValueError, match="'bad': simulate returned 3 rows where 10 were wanted") as caught:
        simulate([Model("bad", lambda rng, n: np.zeros((3, 1)))], 20, executor=pool, progress=False)
    assert "On the worker" in "".join(caught.value.__notes__)


def test_what_cannot_travel(pool: Any) -> None:
    lock = threading.Lock()

    def locked(rng: np.random.Generator, n: int) -> np.ndarray:
        with lock:
            return rng.normal(size=(n, 1))

    with pytest.raises(
        ShippingError, match=r"model 'locked' cannot be sent .* Open that inside the function"
    ):
        simulate([Model("locked", locked)], 20, executor=pool, progress=False)
    # Threads see the lock itself.
    with ThreadPoolExecutor(2) as threads:
        assert len(simulate([Model("locked", locked)], 20, executor=threads, progress=False)) == 20


def test_a_module_that_workers_lack(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_here")
    exec("def draw(rng, n):\n    return rng.normal(size=(n, 1))", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    model = Model("far", module.draw)
    with pytest.raises(ShippingError, match=r"cannot load model 'far': .*Install 'only_here' on the workers"):
        simulate([model], 20, executor=pool, progress=False)


def test_global_random_numbers_are_noticed_on_workers() -> None:
    """Python's own are used by Dask too, beside the simulator: only draws that depend on them count."""

    def beside(rng: np.random.Generator, n: int) -> np.ndarray:
        random.random()
        return rng.normal(size=(n, 1))

    simulate([Model("beside", beside)], 50, executor=Pickling(), progress=False)
    for model in (
        Model("python", lambda rng, n: np.array([[random.random()] for _ in range(n)])),
        Model("numpy", lambda rng, n: np.random.normal(size=(n, 1))),  # noqa: NPY002
    ):
        with pytest.warns(RandomnessWarning, match="uses global random numbers"):
            simulate([model], 50, executor=Pickling(), progress=False)


def test_a_pool_that_broke(tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    options: dict[str, Any] = {"chunk": 100, "seed": 1, "store": store, "progress": False}
    context = multiprocessing.get_context("spawn")
    model = mortal(tmp_path / "died", always=False)
    with (
        ProcessPoolExecutor(1, mp_context=context) as pool,
        pytest.raises(WorkerError, match=r"ProcessPoolExecutor cannot be used after that: make a new one"),
    ):
        simulate([model], 600, executor=pool, **options)
    # It does not die again: the marker is there.
    sims = simulate([model], 600, **options)
    plain = Model("mortal", lambda rng, n: rng.normal(size=(n, 2)))
    np.testing.assert_array_equal(sims.x, simulate([plain], 600, seed=1, progress=False).x)


def test_a_pool_that_is_closed() -> None:
    for kind in (ProcessPoolExecutor, ThreadPoolExecutor):
        with kind(1) as pool:
            pass
        with pytest.raises(
            RuntimeError, match=rf"the {kind.__name__} is shut down already\. Make the call in"
        ):
            simulate(models(), 10, executor=pool, progress=False)


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (4, r"give simulate\(workers=4\)"),
        ("dask", r"wanted an object with submit\(\)"),
        (ThreadPoolExecutor, r"wanted an instance, such as ThreadPoolExecutor\(4\)"),
        (object(), r"has no submit\(\); wanted a concurrent.futures.Executor"),
    ],
)
def test_bad_executors(executor: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        simulate(models(), 10, executor=executor)


def test_an_executor_given_as_workers() -> None:
    with pytest.raises(TypeError, match="give it as executor="):
        simulate(models(), 10, workers=Pickling())  # type: ignore[call-overload]
