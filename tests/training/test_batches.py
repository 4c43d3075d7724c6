"""Chunks of minibatches: every draw once, in an order that only the seed and the epoch decide."""

from collections.abc import Callable

import numpy as np
import pytest

from evidencenet._common.arrays import Data
from evidencenet.training import batches
from evidencenet.training.batches import Chunk, Shuffled, in_blocks

Prepare = Callable[[np.random.Generator, Data, np.ndarray], tuple[Data, np.ndarray | None]]


def as_they_are(rng: np.random.Generator, x: Data, rows: np.ndarray) -> tuple[Data, None]:
    return x, None


def source(n: int = 103, batch: int = 10, seed: int = 5, prepare: Prepare = as_they_are) -> Shuffled:
    """Draws whose number, label and weight can be read off each other."""
    number = np.arange(2 * n, dtype=np.float64)
    rows = np.arange(0, 2 * n, 2)
    label = (number % 3).astype(np.int64)
    return Shuffled(number[:, None], label, number / 10, rows, batch, prepare, seed)


def numbers(draws: Shuffled, epoch: int) -> np.ndarray:
    return np.concatenate([chunk.x.ravel() for chunk in draws.epoch(epoch)])


def test_every_draw_at_most_once() -> None:
    draws = source()
    seen = numbers(draws, 0)
    assert draws.steps == 10
    assert len(seen) == len(set(seen)) == 100
    assert set(seen) <= set(np.arange(0, 206, 2))


def test_label_and_weight_stay_with_their_draw() -> None:
    for chunk in source().epoch(0):
        assert chunk.offset is None
        np.testing.assert_array_equal(chunk.label, chunk.x[..., 0] % 3)
        np.testing.assert_array_equal(chunk.weight, (chunk.x[..., 0] / 10).astype(np.float32))


def test_order_is_new_each_epoch_and_the_same_again() -> None:
    first = numbers(source(), 0)
    np.testing.assert_array_equal(first, numbers(source(), 0))
    assert not np.array_equal(first, numbers(source(), 1))
    assert not np.array_equal(first, numbers(source(seed=6), 0))


def test_large_sets_come_in_chunks_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_VALUES_PER_CHUNK", 30)
    draws = source()
    shapes = [chunk.x.shape for chunk in draws.epoch(0)]
    assert len(shapes) > 1
    assert len(set(shapes)) == 1
    assert sum(shape[0] for shape in shapes) == draws.steps
    seen = numbers(draws, 0)
    assert len(seen) == len(set(seen)) == draws.steps * 10


def test_prepared_with_an_offset() -> None:
    def prepare(rng: np.random.Generator, x: Data, rows: np.ndarray) -> tuple[Data, np.ndarray | None]:
        assert isinstance(x, np.ndarray)
        return -x, np.concatenate([np.zeros_like(x), x], axis=1)

    for chunk in source(prepare=prepare).epoch(0):
        assert chunk.offset.shape == (*chunk.label.shape, 2)
        np.testing.assert_array_equal(chunk.offset[..., 1], -chunk.x[..., 0])


def test_random_preparation_is_reproducible() -> None:
    def prepare(rng: np.random.Generator, x: Data, rows: np.ndarray) -> tuple[Data, np.ndarray | None]:
        assert isinstance(x, np.ndarray)
        return x * rng.choice([-1, 1], size=x.shape), None

    first = numbers(source(prepare=prepare), 0)
    assert np.any(first < 0)
    assert np.any(first > 0)
    np.testing.assert_array_equal(first, numbers(source(prepare=prepare), 0))


def test_dicts() -> None:
    n = 50
    x: Data = {"x": np.arange(n)[:, None] * np.ones((n, 3)), "mask": np.arange(n)[:, None] % 2 == 0}
    draws = Shuffled(x, np.zeros(n, int), np.ones(n), np.arange(n), 7, as_they_are, 0)
    for chunk in draws.epoch(0):
        assert chunk.x["x"].shape == (7, 7, 3)
        assert chunk.x["mask"].dtype == bool
        np.testing.assert_array_equal(chunk.x["mask"][..., 0], chunk.x["x"][..., 0] % 2 == 0)


@pytest.mark.parametrize("n", [10, 12, 15])
def test_blocks_are_padded_with_weight_zero(n: int) -> None:
    x = np.arange(n, dtype=np.float32)[:, None]
    draws = Chunk({"x": x, "mask": x > 3}, np.ones((n, 2)), np.arange(n), np.full(n, 2.0))
    cut = in_blocks(draws, 5)
    blocks = -(-n // 5)
    assert cut.x["x"].shape == (blocks, 5, 1)
    assert cut.x["mask"].dtype == bool
    assert cut.offset.shape == (blocks, 5, 2)
    np.testing.assert_array_equal(cut.x["x"].ravel()[:n], x.ravel())
    np.testing.assert_array_equal(cut.label.ravel()[:n], np.arange(n))
    np.testing.assert_array_equal(cut.weight.ravel(), [2.0] * n + [0.0] * (5 * blocks - n))
    # The padding must not be NaN: zero times NaN is not zero.
    assert np.all(np.isfinite(cut.x["x"]))
    np.testing.assert_array_equal(draws.weight, 2.0)
