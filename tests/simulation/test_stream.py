"""Draws that are simulated while they are used: the same whatever the workers, and none of them twice."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet.simulation.model import DrawError
from evidencenet.simulation.stream import FreshDraws, Mixed


def fresh(workers: int = 1, **changes: Any) -> FreshDraws:
    models = [
        en.Model("flat", lambda rng, n: rng.normal(size=(n, 3))),
        en.Model("one", lambda rng: rng.normal(size=3), kind="one"),
    ]
    return replace(FreshDraws.of(models, (6_000, 3_000), 3, 5, 24, workers), **changes)


def some(stream: FreshDraws, model: int, epoch: int, blocks: int = 8) -> np.ndarray:
    with ThreadPoolExecutor(stream.workers) as pool:
        given = stream.blocks(model, epoch, pool)
        found = np.concatenate(list(islice(given, blocks)))
        given.close()
    return found


@pytest.mark.parametrize("model", [0, 1])
def test_draws_do_not_depend_on_the_workers_and_never_come_again(model: int) -> None:
    np.testing.assert_array_equal(some(fresh(1), model, 2), some(fresh(3), model, 2))
    epochs = np.concatenate([some(fresh(), model, epoch) for epoch in range(3)])
    assert len(np.unique(epochs[:, 0])) == len(epochs)
    other = some(fresh(seed=6), model, 0)
    assert not np.isin(other, epochs).any()


def test_halves_are_the_draws_of_all() -> None:
    stream = fresh()
    first, second = stream.halves()
    assert first.counts == (3_000, 1_500)
    everything = some(stream, 0, 1, 8).reshape(8, -1, 3)
    np.testing.assert_array_equal(some(first, 0, 1, 4).reshape(4, -1, 3), everything[::2])
    np.testing.assert_array_equal(some(second, 0, 1, 4).reshape(4, -1, 3), everything[1::2])
    quarters = [quarter for half in (first, second) for quarter in half.halves()]
    found = np.concatenate([some(quarter, 0, 1, 2) for quarter in quarters])
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(everything.reshape(-1, 3), axis=0))


def test_models_are_mixed_by_their_shares() -> None:
    stream = fresh()
    with ThreadPoolExecutor(1) as pool:
        mixed = Mixed(stream, 0, pool)
        taken = [mixed.take(100) for _ in range(5)]
        mixed.close()
    for _, label, weight in taken:
        np.testing.assert_array_equal(np.bincount(label), [67, 33])
        np.testing.assert_allclose(np.bincount(label, weight), [200 / 3, 100 / 3], rtol=1e-6)
    x = np.concatenate([np.asarray(x)[label == 0] for x, label, _ in taken])
    np.testing.assert_array_equal(x, some(stream, 0, 0)[: len(x)])


def test_failed_draws_are_left_out_and_a_model_that_only_fails_is_stopped() -> None:
    half = en.Model(
        "half", lambda rng, n: np.where(rng.random((n, 1)) < 0.5, np.nan, rng.normal(size=(n, 2)))
    )
    never = en.Model("never", lambda rng, n: np.full((n, 2), np.nan))
    stream = FreshDraws.of([half, never], (10_000, 10_000), 1, 1, 16, 1)
    x = some(stream, 0, 0, 4)
    assert np.isfinite(x).all()
    # Of 4 blocks of 625 draws, with a standard deviation of 25.
    assert abs(len(x) - 1_250) < 4 * 25
    with pytest.raises(DrawError, match="12,500 draws in a row failed"):
        some(stream, 1, 0)
