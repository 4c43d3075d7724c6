"""Training data as chunks of minibatches, so that one training loop serves every source of draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from evidencenet.models import Data, map_arrays

# Large enough that the cost of starting a compiled chunk vanishes, small enough that memory stays
# bounded and an interrupt is answered within a second.
_VALUES_PER_CHUNK = 10_000_000


class Chunk(NamedTuple):
    """Minibatches to train on: every array begins with (steps, batch)."""

    x: Any
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
        """Give the chunks of one epoch, the same ones whenever they are asked for."""


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Draws held in memory, in a new random order each epoch.

    Parameters
    ----------
    x, label, weight
        The training draws, each array (n, ...).
    batch
        Draws in a minibatch; the few that fill no whole minibatch sit out an epoch.
    prepare
        ``prepare(rng, x)``: augment and scale a batch of draws.
    seed
        Orders and augmentations depend on it and on the epoch alone.
    """

    x: Data
    label: np.ndarray
    weight: np.ndarray
    batch: int
    prepare: Callable[[np.random.Generator, Data], Data]
    seed: int

    @property
    def _layout(self) -> tuple[int, int]:
        """Chunks in an epoch and steps in a chunk. All chunks are alike: another shape is compiled anew."""
        steps = len(self.label) // self.batch
        values = sum(array[0].size for array in (self.x.values() if isinstance(self.x, dict) else [self.x]))
        most = max(1, _VALUES_PER_CHUNK // (values * self.batch))
        chunks = -(-steps // most)
        return chunks, steps // chunks

    @property
    def steps(self) -> int:
        """How many minibatches an epoch has."""
        chunks, steps = self._layout
        return chunks * steps

    def epoch(self, number: int) -> Iterator[Chunk]:
        """Give the chunks of one epoch."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        order = rng.permutation(len(self.label))
        chunks, steps = self._layout
        for some in order[: chunks * steps * self.batch].reshape(chunks, -1):
            x = self.prepare(rng, map_arrays(lambda array, rows=some: array[rows], self.x))
            yield Chunk(
                map_arrays(lambda array: array.reshape(steps, self.batch, *array.shape[1:]), x),
                self.label[some].reshape(steps, self.batch),
                self.weight[some].reshape(steps, self.batch),
            )
