"""Training data as chunks of minibatches, so that one training loop serves every source of draws."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, map_arrays
from evidencenet.simulation.stream import Mixed, Stream

# Large enough that starting a compiled chunk costs nothing in comparison, small enough that memory stays
# bounded and Ctrl-C is answered within a second.
_VALUES_PER_CHUNK = 10_000_000


class Chunk(NamedTuple):
    """Minibatches to train on: every array begins with (steps, batch).

    `offset` are log-odds known beforehand, (steps, batch, K), to which the network adds; or None.
    """

    x: Any
    offset: Any
    label: Any
    weight: Any


class Source(Protocol):
    """Where training draws come from, epoch by epoch; every chunk has the same shape."""

    @property
    def steps(self) -> int:
        """How many minibatches an epoch has."""

    @property
    def batch(self) -> int:
        """How many draws a minibatch has."""

    def epoch(self, number: int) -> Iterator[Chunk]:
        """Give the chunks of one epoch; the same chunks every time."""


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Draws held in memory, in a new random order each epoch.

    Parameters
    ----------
    x, label, weight
        Draws, each array (n, ...).
    rows
        Which of them to train on.
    batch
        Draws in a minibatch. Draws that do not fill a whole minibatch are left out of that epoch.
    prepare
        ``prepare(rng, x, rows)``: augment and scale a batch of draws, which stand in these rows; returns x
        and offset.
    seed
        Orders and augmentations depend on it and on the epoch alone.
    """

    x: Data
    label: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    batch: int
    prepare: Callable[[np.random.Generator, Data, np.ndarray], tuple[Data, np.ndarray | None]]
    seed: int

    @property
    def _layout(self) -> tuple[int, int]:
        values = sum(array[0].size for array in arrays_of(self.x))
        return _divided(len(self.rows), self.batch, values)

    @property
    def steps(self) -> int:
        """How many minibatches an epoch has."""
        chunks, steps = self._layout
        return chunks * steps

    def epoch(self, number: int) -> Iterator[Chunk]:
        """Give the chunks of one epoch."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        order = rng.permutation(self.rows)
        chunks, steps = self._layout
        for rows in order[: chunks * steps * self.batch].reshape(chunks, steps, self.batch):
            yield self._chunk(rng, rows)

    def _chunk(self, rng: np.random.Generator, rows: np.ndarray) -> Chunk:
        label = self.label[rows].astype(np.int32, copy=False)
        weight = self.weight[rows].astype(np.float32, copy=False)
        return _prepared(
            self.x, rows, label, weight, lambda batch, step: self.prepare(rng, batch, rows[step])
        )


@dataclass(frozen=True, eq=False)
class Streamed:
    """Draws of a stream. A chunk of minibatches is a window in which they are mixed.

    Parameters
    ----------
    stream
        The draws.
    batch
        Draws in a minibatch.
    prepare
        ``prepare(rng, x, label)``: observe, augment and scale a batch of draws; returns x and offset.
    seed
        The order within windows, noise and augmentations depend on it and on the epoch alone.
    values
        How many numbers a draw has.
    """

    stream: Stream
    batch: int
    prepare: Callable[[np.random.Generator, Data, np.ndarray], tuple[Data, np.ndarray | None]]
    seed: int
    values: int

    @property
    def _layout(self) -> tuple[int, int]:
        return _divided(sum(self.stream.counts) // (self.stream.epochs or 1), self.batch, self.values)

    @property
    def steps(self) -> int:
        """How many minibatches an epoch has."""
        chunks, steps = self._layout
        return chunks * steps

    def epoch(self, number: int) -> Iterator[Chunk]:
        """Give the chunks of one epoch."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        chunks, steps = self._layout
        with ThreadPoolExecutor(self.stream.workers) as pool:
            mixed = Mixed(self.stream, number, pool)
            try:
                for _ in range(chunks):
                    yield self._chunk(rng, steps, *mixed.take(steps * self.batch))
            finally:
                mixed.close()

    def _chunk(
        self, rng: np.random.Generator, steps: int, x: Data, label: np.ndarray, weight: np.ndarray
    ) -> Chunk:
        rows = rng.permutation(len(label)).reshape(steps, self.batch)
        label, weight = label[rows].astype(np.int32, copy=False), weight[rows]
        return _prepared(x, rows, label, weight, lambda batch, step: self.prepare(rng, batch, label[step]))


def _divided(draws: int, batch: int, values: int) -> tuple[int, int]:
    """Return chunks in an epoch and steps in a chunk. All chunks have one shape, compiled once."""
    steps = draws // batch
    most = max(1, _VALUES_PER_CHUNK // (values * batch))
    chunks = -(-steps // most)
    return chunks, steps // chunks


def _prepared(
    draws: Data,
    rows: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray,
    prepare: Callable[[Data, int], tuple[Data, np.ndarray | None]],
) -> Chunk:
    """Prepare the draws in these rows, (steps, batch), one minibatch after the other.

    One minibatch at a time stays in the processor's cache while it is augmented and scaled.
    """
    for step, batch_rows in enumerate(rows):
        x, offset = prepare(map_arrays(partial(np.take, indices=batch_rows, axis=0), draws), step)
        parts = arrays_of(x) if offset is None else [*arrays_of(x), offset]
        if step == 0:
            stacked = [np.empty((len(rows), *part.shape), part.dtype) for part in parts]
        for whole, part in zip(stacked, parts, strict=True):
            whole[step] = part
    stacked_x = dict(zip(x, stacked, strict=False)) if isinstance(x, dict) else stacked[0]
    return Chunk(stacked_x, None if offset is None else stacked[-1], label, weight)


def in_blocks(draws: Chunk, size: int) -> Chunk:
    """Cut draws, each array (n, ...), into blocks (n / size, size, ...); padding has a weight of zero."""
    n = len(draws.label)
    blocks = -(-n // size)

    def cut(array: np.ndarray) -> np.ndarray:
        if blocks * size > n:
            array = np.concatenate([array, np.repeat(array[:1], blocks * size - n, axis=0)])
        return array.reshape(blocks, size, *array.shape[1:])

    cut_draws = Chunk(
        map_arrays(cut, draws.x),
        None if draws.offset is None else cut(draws.offset.astype(np.float32)),
        cut(draws.label.astype(np.int32, copy=False)),
        cut(draws.weight.astype(np.float32, copy=False)),
    )
    cut_draws.weight.reshape(-1)[n:] = 0
    return cut_draws
