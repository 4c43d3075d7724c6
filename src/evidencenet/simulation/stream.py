"""Draws that never lie in memory all at once: `FreshDraws`, which are simulated while they are used.

A stream gives the draws of each model block by block. `Mixed` puts the models together, in the same
proportion from beginning to end.
"""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, join, map_arrays
from evidencenet.simulation.chunks import Source, words
from evidencenet.simulation.model import DrawError, Model

# A block of fresh draws takes about so many bytes, and has at most so many draws: large enough that a call
# costs nothing in comparison, small enough to share out. Measured on the time series of 100 numbers: 8 µs a
# draw in blocks of 1,000, and 3 µs in blocks of 10,000.
_BLOCK_BYTES, _MOST_IN_BLOCK = 2**24, 10_000
# Blocks that each worker has ready before they are asked for.
_AHEAD = 2
# A model whose blocks all fail is stopped after so many.
_MOST_EMPTY = 20
# How many draws fail in a row from the start until a block is given up; a model that fails so often was
# stopped when the sample was drawn.
_PATIENCE = 10_000


Use = Callable[[int, Data], Any]


class Stream(Protocol):
    """Draws of K models, as many as there may be."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many training draws of each model there are, K integers."""

    @property
    def epochs(self) -> int | None:
        """Into how many epochs the draws are divided; None if every epoch has all of them."""

    def blocks(self, model: int, epoch: int, pool: Executor, use: Use | None = None) -> Generator[Any]:
        """Give the draws of a model in an epoch, block by block.

        The pool makes blocks ready ahead. With `use`, it also calls ``use(number, x)`` for each, the number
        of the block and its draws, and the results are given instead.
        """

    def halves(self) -> "tuple[Stream, Stream]":
        """Divide the draws in two halves."""

    @property
    def workers(self) -> int:
        """How many blocks are made ready at the same time."""


@dataclass(frozen=True, eq=False)
class FreshDraws:
    """Draws that are simulated while they are used, and never seen twice.

    Every epoch, model and block has random numbers of its own, so that the draws are the same whatever the
    number of workers is.

    Parameters
    ----------
    models
        The models.
    counts
        How many draws of each there are in all, over all epochs.
    epochs
        Into how many epochs they are divided.
    seed
        Seed of all draws.
    block
        How many draws a block has, unless the model says so itself; see `FreshDraws.of`.
    workers
        How many blocks are drawn at the same time, in threads.
    missing
        Whether NaN is a missing number. If not, it is a failure.
    first, every
        Only these blocks are taken: the first one, and every so many after it.
    """

    models: tuple[Model, ...]
    counts: tuple[int, ...]
    epochs: int | None
    seed: int
    block: int
    workers: int = 1
    missing: bool = False
    first: int = 0
    every: int = 1

    @staticmethod
    def of(
        models: Sequence[Model], counts: Sequence[int], epochs: int, seed: int, row_bytes: int, workers: int
    ) -> "FreshDraws":
        """Divide the draws into blocks, by the bytes of a draw: several in each epoch and model."""
        most = min(_BLOCK_BYTES // max(row_bytes, 1), _MOST_IN_BLOCK, min(counts) // (16 * epochs))
        return FreshDraws(tuple(models), tuple(counts), epochs, seed, int(max(most, 10)), workers)

    def halves(self) -> "tuple[FreshDraws, FreshDraws]":
        """Divide the draws: every other block of each epoch."""
        counts = tuple(max(1, count // 2) for count in self.counts)
        first, second = (
            replace(self, counts=counts, first=self.first + i * self.every, every=2 * self.every)
            for i in (0, 1)
        )
        return first, second

    def blocks(self, model: int, epoch: int, pool: Executor, use: Use | None = None) -> Generator[Any]:
        """Draw a model block by block, without end."""
        source = self._source(model, epoch)
        size = self.block if source.model.block is None else source.model.block

        def made(number: int) -> tuple[Any, Any]:
            chunk = source.draw(number * size, (number + 1) * size)
            if chunk.x is None or not chunk.valid.any():
                return None, chunk.failure
            return chunk.x if use is None else use(number, chunk.x), None

        empty = 0
        numbers = ((number,) for number in itertools.count(self.first, self.every))
        for result, failure in in_order(pool, made, numbers, self.workers):
            if result is None:
                empty += 1
                if empty >= _MOST_EMPTY:
                    raise DrawError(
                        f"model {source.model.name!r}: {empty * size:,} draws in a row failed, the last by "
                        f"{words(failure)}"
                    )
                continue
            empty = 0
            yield result

    def _source(self, model: int, epoch: int) -> Source:
        given = self.models[model]
        if given.kind != "one" and given.block is None:
            given = replace(given, block=self.block)
        seed = np.random.SeedSequence(self.seed, spawn_key=(epoch,)).generate_state(1, np.uint64)[0]
        return Source(given, model, int(seed), _PATIENCE, self.missing)


def in_order(
    pool: Executor,
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    workers: int,
    ahead: int = _AHEAD,
) -> Iterator[Any]:
    """Give the results of calls in order, while `ahead` later ones a worker are computed by the pool."""
    waiting: deque[Future[Any]] = deque()
    calls = iter(arguments)
    try:
        while True:
            while len(waiting) < ahead * workers and (call := next(calls, None)) is not None:
                waiting.append(pool.submit(function, *call))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class Mixed:
    """The draws of all models in an epoch, taken in the same proportion from beginning to end.

    Parameters
    ----------
    stream
        The draws.
    epoch
        Number of the epoch.
    pool
        Makes blocks ready ahead.
    """

    def __init__(self, stream: Stream, epoch: int, pool: Executor) -> None:
        self._shares = np.array(stream.counts) / sum(stream.counts)
        self._begin = [lambda k=k: stream.blocks(k, epoch, pool) for k in range(len(stream.counts))]
        self._blocks = [begin() for begin in self._begin]
        self._left: list[Data | None] = [None] * len(self._begin)

    def take(self, rows: int) -> tuple[Data, np.ndarray, np.ndarray]:
        """Return the next draws: data, label and weight, one model after the other.

        The number of draws of each model is rounded. The weights make up for it: those of a model add up to
        its share of the draws.
        """
        numbers = np.maximum(np.round(self._shares * rows).astype(int), 1)
        numbers[np.argmax(numbers)] += rows - numbers.sum()
        x = join(*(self._rows(k, int(number)) for k, number in enumerate(numbers)))
        weight = np.repeat(self._shares * rows / numbers, numbers).astype(np.float32)
        return x, np.repeat(np.arange(len(numbers)), numbers), weight

    def close(self) -> None:
        """Stop making blocks ready."""
        for blocks in self._blocks:
            blocks.close()

    def _rows(self, model: int, number: int) -> Data:
        """Return the next draws of a model. Where an epoch ends a few draws early, it begins again."""
        parts: list[Any] = []
        while number > 0:
            block = self._left[model]
            if block is None:
                block = next(self._blocks[model], None)
                if block is None:
                    self._blocks[model] = self._begin[model]()
                    block = next(self._blocks[model])
            length = len(arrays_of(block)[0])
            taken = min(number, length)
            parts.append(map_arrays(lambda array, end=taken: array[:end], block))
            rest = map_arrays(lambda array, start=taken: array[start:], block)
            self._left[model] = None if taken == length else rest
            number -= taken
        return parts[0] if len(parts) == 1 else join(*parts)
