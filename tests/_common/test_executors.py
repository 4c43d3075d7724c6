"""Tasks of any executor: in order, bounded, and not held up by one of them."""

import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from evidencenet._common.executors import in_order, places
from executors import Pickling


def test_results_come_in_order() -> None:
    def late_first(number: int) -> int:
        time.sleep(0.05 if number == 0 else 0.0)
        return number

    with ThreadPoolExecutor(3) as pool:
        assert list(in_order(pool, late_first, ((k,) for k in range(20)), "it")) == list(range(20))


def held_up(number: int, mark: Path) -> bool:
    """The first task ends only when the fortieth has run; say whether it has."""
    if number == 40:
        mark.touch()
    # At most a minute, if it is not handed out.
    until = time.monotonic() + 60
    while number == 0 and not mark.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return number == 0 and mark.exists()


def test_one_task_that_takes_long_does_not_stop_the_others(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        tasks = ((k, tmp_path / "fortieth") for k in range(60))
        results = list(in_order(pool, held_up, tasks, "it"))
    assert results == [True] + [False] * 59


def _numbers(count: int) -> Any:
    return ((k,) for k in range(count))


def test_few_tasks_are_under_way() -> None:
    """And those that wait are cancelled when nobody wants more results."""
    begun, gate = [], threading.Event()

    def wait(number: int) -> int:
        begun.append(number)
        gate.wait(10)
        return number

    taken = []

    def numbers() -> Any:
        for k in range(100):
            taken.append(k)
            yield (k,)

    with ThreadPoolExecutor(2) as pool:
        results = in_order(pool, wait, numbers(), "it")
        threading.Timer(0.1, gate.set).start()
        assert next(results) == 0
        results.close()
    assert len(taken) <= 9
    assert len(begun) <= len(taken)


def test_an_exception_is_raised_in_its_turn() -> None:
    def fail(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    for executor in (Pickling(), ThreadPoolExecutor(2)):
        results = in_order(executor, fail, _numbers(5), "it")
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="two"):
            next(results)


def test_places() -> None:
    with ThreadPoolExecutor(3) as pool:
        assert places(pool) == 3
    assert places(Pickling()) >= 1
