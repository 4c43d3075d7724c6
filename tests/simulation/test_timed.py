"""A time limit for a draw: what hangs is stopped and counts as failed, and all other draws are the same."""

import concurrent.futures
import multiprocessing
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet.simulation.workers import WorkerError

pytestmark = pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
OPTIONS: dict[str, Any] = {"seed": 3, "progress": False}


@pytest.fixture(scope="module")
def pool() -> Any:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        yield executor


def one(hang: float) -> en.Model:
    """Draw by draw: one in thirty hangs (here: for long), or fails where it would hang."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        x = rng.normal(size=2)
        print(end="a simulator may print")
        if rng.random() < 0.03:
            time.sleep(hang)
            raise RuntimeError("it hangs")
        return x

    return en.Model("one", draw, kind="one")


def batch(hang: float) -> en.Model:
    """In blocks: parameters above 1.5 hang."""

    def draw(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        if (theta > 1.5).any():
            time.sleep(hang)
            raise RuntimeError("it hangs")
        return theta[:, None] + rng.normal(size=(len(theta), 2))

    return en.Model("batch", draw, prior=lambda rng, n: rng.normal(size=n), block=4)


def test_what_hangs_is_stopped_and_counts_as_failed(pool: Any) -> None:
    for make in (one, batch):
        # The same draws fail if they raise an exception instead.
        expected = en.simulate([make(0.0)], 24, **OPTIONS)
        sims = en.simulate([make(3600.0)], 24, executor=pool, timeout=0.5, **OPTIONS)
        np.testing.assert_array_equal(sims.x, expected.x)
        assert sims.failed == expected.failed
        assert sims.failed[0] > 0


def test_nothing_changes_if_nothing_hangs(pool: Any) -> None:
    models = [
        en.Model("flat", lambda rng, n: rng.normal(size=(n, 2))),
        en.Model(
            "level",
            lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 2)),
            prior=lambda rng, n: rng.normal(size=n),
        ),
    ]
    expected = en.simulate(models, 400, keep_parameters=True, **OPTIONS)
    limit: Any = np.int64(60)
    sims = en.simulate(models, 400, keep_parameters=True, executor=pool, timeout=limit, **OPTIONS)
    np.testing.assert_array_equal(sims.x, expected.x)
    np.testing.assert_array_equal(sims.parameters[1], expected.parameters[1])


def test_a_simulator_that_crashes_is_not_one_that_hangs(pool: Any) -> None:
    model = en.Model("crash", lambda rng, n: os._exit(3))
    with pytest.raises(WorkerError, match="died twice in the chunk at draw 0 of model 'crash'"):
        en.simulate([model], 20, executor=pool, timeout=5, **OPTIONS)


def test_mistakes_are_told_as_without_a_limit(pool: Any) -> None:
    with pytest.raises(ValueError, match="'bad': simulate returned 3 rows where 10 were wanted"):
        en.simulate(
            [en.Model("bad", lambda rng, n: np.zeros((3, 1)))], 20, executor=pool, timeout=5, **OPTIONS
        )


def test_a_limit_belongs_to_the_store(pool: Any, tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    en.simulate([one(0.0)], 5, store=store, **OPTIONS)
    with pytest.raises(FileError, match=r"timeout is None there and 5\.0 here"):
        en.simulate([one(0.0)], 5, store=store, executor=pool, timeout=5, **OPTIONS)


def test_it_is_refused_where_nothing_can_be_stopped() -> None:
    with pytest.raises(ValueError, match=r"the draws are made in this process. Give executor=.*ProcessPool"):
        en.simulate([one(0.0)], 10, timeout=1, **OPTIONS)
    with pytest.raises(ValueError, match=r"the workers are threads .*backend='loky'"):
        en.simulate([one(0.0)], 10, timeout=1, workers=2, **OPTIONS)
    with (
        concurrent.futures.ThreadPoolExecutor(2) as threads,
        pytest.raises(ValueError, match="workers are threads"),
    ):
        en.simulate([one(0.0)], 10, timeout=1, executor=threads, **OPTIONS)


def test_it_is_refused_in_threads_that_do_not_say_so() -> None:
    class Hidden:
        def submit(self, function: Any, *arguments: Any) -> Any:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            future.set_result(function(*arguments))
            return future

    with pytest.raises(ValueError, match="timeout= needs workers that are processes"):
        en.simulate([one(0.0)], 10, timeout=1, executor=Hidden(), **OPTIONS)


def test_processes_of_joblib() -> None:
    with joblib.parallel_config(backend="loky"):
        sims = en.simulate([one(3600.0)], 18, workers=2, timeout=0.5, **OPTIONS)
    np.testing.assert_array_equal(sims.x, en.simulate([one(0.0)], 18, **OPTIONS).x)


@pytest.mark.parametrize(
    ("timeout", "error", "message"),
    [
        (0, ValueError, "timeout must be more than 0 seconds, got 0; leave it out for no limit"),
        (-1.0, ValueError, "more than 0 seconds"),
        ("5", TypeError, "timeout must be a number of seconds, got '5'"),
        (True, TypeError, "timeout must be a number of seconds"),
        (timedelta(seconds=5), TypeError, r"give timeout\.total_seconds\(\)"),
    ],
)
def test_bad_limits(timeout: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        en.simulate([one(0.0)], 10, timeout=timeout, **OPTIONS)
