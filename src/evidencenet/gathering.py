"""Put the draws of all models together from chunks, as many of each as are wanted."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from evidencenet.chunks import Chunk, check_alike
from evidencenet.data import Data, Parameters, join, map_arrays


class Gathered:
    """The draws wanted of each model, filled in chunk by chunk.

    Chunks of one model come in order, and one model after the other. The arrays are allocated when the first
    draws have told their shape, so that the draws are in memory only once.

    Parameters
    ----------
    names
        The models.
    shares
        How many valid draws of each are wanted.
    keep_parameters
        Whether to keep the parameters too.
    """

    def __init__(self, names: Sequence[str], shares: Sequence[int], keep_parameters: bool) -> None:
        self.names, self.shares = tuple(names), tuple(shares)
        self.valid, self.drawn, self.failed = ([0] * len(self.names) for _ in range(3))
        self._x: Any = None
        self._thetas: list[list[Parameters | None]] | None = None
        if keep_parameters:
            self._thetas = [[] for _ in self.names]

    @property
    def done(self) -> int:
        """How many valid draws there are of those wanted."""
        return sum(map(min, self.valid, self.shares))

    def missing(self, model: int) -> int:
        """How many valid draws of a model are still wanted."""
        return max(0, self.shares[model] - self.valid[model])

    def add(self, model: int, chunk: Chunk) -> None:
        """Take what is wanted of the next chunk of a model."""
        places = np.flatnonzero(chunk.valid)
        wanted, start = min(len(places), self.missing(model)), self.done
        if chunk.x is not None and wanted:
            self._copy(model, chunk.x, chunk.theta, slice(start, start + wanted))
        self.valid[model] += len(places)
        self.drawn[model] += len(chunk.valid)
        if wanted and not self.missing(model):
            # What came after the last draw that is kept might as well not have been drawn.
            before = self.drawn[model] - len(chunk.valid)
            self.failed[model] = before + int(places[wanted - 1]) + 1 - self.shares[model]

    def _copy(self, model: int, x: Data, theta: Parameters | None, place: slice) -> None:
        if self._x is None:
            rows = sum(self.shares)
            self._x = map_arrays(lambda array: np.empty((rows, *array.shape[1:]), array.dtype), x)
        check_alike(self.names[model], x, self.names[0], self._x)
        self._x = map_arrays(lambda out, new: _widened(out, new, place.start), self._x, x)
        count = place.stop - place.start
        map_arrays(lambda out, new: operator.setitem(out, place, new[:count]), self._x, x)
        if self._thetas is not None:
            kept = None if theta is None else map_arrays(lambda array: array[:count], theta)
            self._thetas[model].append(kept)

    def fields(self) -> dict[str, Any]:
        """Return what `Simulations` is made of, once nothing is missing."""
        parameters = self._thetas
        return {
            "x": self._x,
            "model": np.repeat(np.arange(len(self.names)), self.shares),
            "names": self.names,
            "failed": tuple(self.failed),
            "parameters": parameters and tuple(None if p[0] is None else join(*p) for p in parameters),
        }


def _widened(out: np.ndarray, new: np.ndarray, done: int) -> np.ndarray:
    """Make room for a model that is more precise than the first."""
    dtype = np.result_type(out, new)
    if dtype == out.dtype:
        return out
    wide = np.empty(out.shape, dtype)
    wide[:done] = out[:done]
    return wide
