"""Chunks of draws: how blocks are drawn from their own seeds, and how chunks become the draws wanted.

The draws of a model are numbered 0, 1, 2, .... They are made in *blocks*, one call of the simulator each, and
every block has a seed of its own. Which draws form a block depends only on the model, so the draws depend
only on the seed. A *chunk* is a run of blocks that is drawn, and stored, in one go. Its length depends on how
long draws take, and on nothing that changes the draws.

`Source` draws the chunks of one model, `Gathered` puts the chunks of all models together.
"""

import operator
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from evidencenet._common.arrays import (
    Data,
    Named,
    Parameters,
    arrays_of,
    finite_rows,
    in_order,
    join,
    layout,
    layout_text,
    map_arrays,
)
from evidencenet._common.executors import ShippingError
from evidencenet._common.masks import made_equal, no_infinity
from evidencenet.simulation.model import DrawError, Model

# Raised at once: a mistake in the model, a chunk too large for memory, or a process that died or cannot load
# the model. Other exceptions are failed draws.
_NOT_A_FAILED_DRAW = (DrawError, MemoryError, BrokenExecutor, ShippingError)
# Draws in one block of a batch model: (from draw number, size). A block must be small, because it is the
# smallest piece of work that can be shared out or stored: 100 draws of 0.02 s take 2 s. It must not be too
# small, because a call costs 0.1 ms (seed and checks), and more if the simulator prepares something: measured
# on two shared cores, drawing a Gaussian of 100 dimensions from its covariance matrix takes 160 µs a draw in
# blocks of 100, and 25 µs in blocks of 1,000. The first blocks are smaller so that a trial of a few draws
# takes no longer than these. Later blocks are larger, at most a tenth of what was drawn before.
_BATCH_BLOCKS = ((0, 10), (100, 100), (10_000, 1_000), (1_000_000, 10_000))
# A JAX model is compiled for one size of block. Measured: 11 µs a draw at 100, 1.1 at 500, 0.5 at 1,000.
_JAX_BLOCK = 500
# A model whose draws fail by chance half the time makes two good ones at once within 20 tries: it misses all
# of them three times in a thousand.
_TRIES = 20


class DrawTimeoutError(TimeoutError):
    """A call of a simulator took longer than its time limit, and was stopped."""


@dataclass(frozen=True)
class Chunk:
    """The valid draws of a chunk, and which draws failed.

    Parameters
    ----------
    x, theta
        The data and the parameters of the valid draws, in order; None if there are none, or no prior.
    valid
        For each draw that was made, whether it is valid; boolean.
    failure
        What went wrong first, if anything did.
    seconds
        How long it took; 0 if the chunk was read from a store.
    columns
        The names of the numbers of a draw, if the simulator gives them.
    outside
        Which global random numbers were used while it was drawn: these do not follow the seed.
    """

    x: Data | None
    theta: Parameters | None
    valid: np.ndarray
    failure: Exception | str | None
    seconds: float = 0.0
    columns: tuple[str, ...] | None = None
    outside: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """How many draws failed."""
        return len(self.valid) - int(np.count_nonzero(self.valid))

    @property
    def size(self) -> int:
        """How many bytes the data take."""
        return 0 if self.x is None else sum(array.nbytes for array in arrays_of(self.x))

    def after(self, count: int) -> "Chunk":
        """Return the chunk without its first `count` draws."""
        rows = slice(int(np.count_nonzero(self.valid[:count])), None)
        x, theta = (
            None if tree is None else map_arrays(operator.itemgetter(rows), tree)
            for tree in (self.x, self.theta)
        )
        return replace(self, x=x, theta=theta, valid=self.valid[count:])


def join_chunks(chunks: Sequence[Chunk], model: Model) -> Chunk:
    """Return consecutive chunks of a model as one."""
    if len(chunks) == 1:
        return chunks[0]
    full = [chunk for chunk in chunks if chunk.x is not None]
    columns = full[0].columns if full else None
    data = [_in_columns(chunk, columns, model.name) for chunk in full]
    thetas = [chunk.theta for chunk in chunks if chunk.theta is not None]
    longest: Any = data[0] if data else None
    if len({str(layout(x)) for x in data}) > 1 and model.observe is None:
        for x in data[1:]:
            longest, _ = made_equal(longest, x, add_mask=model.kind == "one")
        data = [made_equal(x, longest, add_mask=model.kind == "one")[0] for x in data]
    for x in data[1:]:
        check_alike(model.name, x, model.name, data[0])
    return Chunk(
        x=join(*data) if data else None,
        theta=join(*thetas) if thetas else None,
        valid=np.concatenate([chunk.valid for chunk in chunks]),
        failure=next((chunk.failure for chunk in chunks if chunk.failure is not None), None),
        seconds=sum(chunk.seconds for chunk in chunks),
        columns=columns,
        outside=tuple(sorted({name for chunk in chunks for name in chunk.outside})),
    )


def _in_columns(chunk: Chunk, columns: tuple[str, ...] | None, model: str) -> Data:
    """Return the data of a chunk with their columns in a given order."""
    if chunk.x is None or isinstance(chunk.x, dict) or None in (columns, chunk.columns):
        return chunk.x  # type: ignore[return-value]
    try:
        return in_order(Named(chunk.x, chunk.columns or ()), columns)[0]
    except ValueError as error:
        raise DrawError(f"model {model!r}: {error}") from None


def _global_states() -> dict[str, Any]:
    """Return the states of the global random numbers, which a simulator must not use."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002 (to see whether others use it)
    states: dict[str, Any] = {
        "numpy.random": (state["state"]["key"].tobytes(), state["state"]["pos"], state["gauss"]),
        "random": random.getstate(),
    }
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return states


def block_sizes(model: Model) -> tuple[tuple[int, int], ...]:
    """Return the blocks of a model: from which draw on, and how many draws each then has."""
    if model.kind == "one":
        return ((0, 1),)
    if model.block is not None:
        return ((0, model.block),)
    return _BATCH_BLOCKS if model.kind == "batch" else ((0, _JAX_BLOCK),)


@dataclass(frozen=True)
class Source:
    """What is needed to draw any chunk of one model by itself, in any thread or process.

    Parameters
    ----------
    model
        The model.
    number
        Its number among the models, which is part of the seed.
    seed
        The seed of the whole simulation.
    patience
        If so many draws fail one by one from the very first, the rest of the block is not tried.
    missing
        Whether NaN is a missing number. If not, it is a failure.
    """

    model: Model
    number: int
    seed: int
    patience: int
    missing: bool = False

    def rng(self, *key: int) -> np.random.Generator:
        """Return the random numbers of the block that begins at a draw, or of one draw in it."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.number, *key)))

    def block(self, start: int) -> int:
        """Return how many draws the block has that begins at a draw."""
        return [size for first, size in block_sizes(self.model) if start >= first][-1]

    def end(self, draw: int) -> int:
        """Return where the block ends that holds the draw before `draw`: a chunk may end there."""
        sizes = block_sizes(self.model)
        first, size = [(first, size) for first, size in sizes if draw > first or first == 0][-1]
        return first + -(-(draw - first) // size) * size

    def draw(self, start: int, stop: int, calls: "Calls | None" = None) -> Chunk:
        """Draw a chunk: all blocks from draw `start`, where one begins, to draw `stop`, where one ends.

        `calls` makes the calls of the simulator; by default they are made here.
        """
        began, before = time.perf_counter(), _global_states()
        blocks = []
        while start < stop:
            blocks.append(self._draw_block(start, calls or self))
            start += self.block(start)
        after = _global_states()
        return replace(
            join_chunks(blocks, self.model),
            seconds=time.perf_counter() - began,
            outside=tuple(name for name in before if before[name] != after[name]),
        )

    def call_block(self, start: int) -> Chunk:
        """Draw a block by one call of the simulator, which may raise anything."""
        rng, size = self.rng(start), self.block(start)
        theta = self.model.draw_parameters(rng, size)
        x, columns = self.model.draw_clean(rng, size, theta)
        valid, failure = self._checked(rng, x)
        if not valid.all():
            x = map_arrays(operator.itemgetter(valid), x)
            theta = None if theta is None else map_arrays(operator.itemgetter(valid), theta)
        return Chunk(x, theta, valid, failure, columns=columns)

    def call_rows(self, start: int) -> Callable[[int], Chunk]:
        """Return the function that draws one of a block by a call of its own, as a chunk of one draw.

        The call may raise anything.
        """
        single = self.model.kind == "one"
        # With the parameters of the block, because they usually decide which draws fail.
        thetas = None if single else self._thetas(start)

        def call(row: int) -> Chunk:
            rng = self.rng(start) if single else self.rng(start, row)
            theta = self.model.draw_parameters(rng, 1) if thetas is None else _row(thetas, row)
            x, columns = self.model.draw_clean(rng, 1, theta)
            valid, failure = self._checked(rng, x)
            if not valid[0]:
                return Chunk(None, None, valid, failure)
            return Chunk(x, theta, valid, failure, columns=columns)

        return call

    def _thetas(self, start: int) -> Parameters | None:
        """Return the parameters of a block; None if there is no prior, or if it raises an exception."""
        try:
            return self.model.draw_parameters(self.rng(start), self.block(start))
        except _NOT_A_FAILED_DRAW:
            raise
        except Exception:
            return None

    def _draw_block(self, start: int, calls: "Calls") -> Chunk:
        if self.model.kind == "one":
            return self._draw_rows(start, None, calls)
        try:
            return calls.call_block(start)
        except _NOT_A_FAILED_DRAW:
            raise
        except Exception as error:
            return self._draw_rows(start, error, calls)

    def _draw_rows(self, start: int, raised: Exception | None, calls: "Calls") -> Chunk:
        """Draw one at a time; `raised` is the exception of the whole block, if that was tried before."""
        size, call = self.block(start), calls.call_rows(start)
        rows: list[Chunk] = []
        valid = np.zeros(size, dtype=bool)
        failure: Exception | str | None = raised
        for row in range(size):
            try:
                one = call(row)
            except _NOT_A_FAILED_DRAW:
                raise
            except Exception as error:
                failure = failure or error
            else:
                failure = failure or one.failure
                if one.x is not None:
                    valid[row] = True
                    rows.append(one)
                    if self.model.kind != "one":
                        check_alike(self.model.name, one.x, self.model.name, rows[0].x)  # type: ignore[arg-type]
            if start == 0 and not rows and row + 1 == self.patience:
                return Chunk(None, None, valid[: row + 1], failure)
        if raised and len(rows) == size:
            if not isinstance(raised, DrawTimeoutError):
                self._check_takes_batches(size, raised)
            # With other random numbers no draw failed. Still, one failure happened: count it.
            valid[0] = False
            rows = rows[1:]
        if not rows:
            return Chunk(None, None, valid, failure)
        theta = None if rows[0].theta is None else join(*(one.theta for one in rows))
        return Chunk(join(*(one.x for one in rows)), theta, valid, failure, columns=rows[-1].columns)

    def _checked(self, rng: np.random.Generator, x: Data) -> tuple[np.ndarray, str | None]:
        """Return which draws are valid, boolean (n,), and a text about the others.

        A clean draw is observed once to see whether it is valid. The noise is not kept.
        """
        if self.model.observe is None:
            return _finite(x, self.missing)
        valid, failure = _finite(x, False)
        if valid.any():
            observed = self.model.observed(rng, map_arrays(operator.itemgetter(valid), x))
            seen, not_seen = _finite(observed, self.missing)
            valid[valid] = seen
            failure = failure or not_seen
        return valid, failure

    def _check_takes_batches(self, size: int, raised: Exception) -> None:
        """Raise if no two draws can be made at once: then the model has a mistake, and no draw has failed."""
        for i in range(_TRIES):
            try:
                self.model.draw(self.rng(0, size + i), min(2, size))
                return
            except Exception:
                continue
        raise DrawError(
            f"model {self.model.name!r} raised {words(raised)} for {size} draws at once, but for none "
            "of them alone; correct it for batches, or use kind='one'"
        ) from raised


class Calls(Protocol):
    """What makes the calls of a simulator: `Source`, or `TimedCalls` with a time limit."""

    def call_block(self, start: int) -> Chunk:
        """Draw a block by one call."""

    def call_rows(self, start: int) -> Callable[[int], Chunk]:
        """Return the function that draws one of a block by a call of its own."""


def _finite(x: Data, missing: bool) -> tuple[np.ndarray, str | None]:
    """Return which draws are valid, boolean (n,), and a text about the first array that has others.

    If NaN is a missing number, a draw fails by infinity, or if all its numbers are missing.
    """
    arrays = {f"x[{key!r}]": x[key] for key in x} if isinstance(x, dict) else {"x": x}
    check = no_infinity if missing else finite_rows
    finite = {where: check(array) for where, array in arrays.items()}
    bad = [where for where, rows in finite.items() if not rows.all()]
    valid = np.logical_and.reduce(list(finite.values()))
    if missing:
        return valid, f"infinity, or no number at all, in {bad[0]}" if bad else None
    return valid, f"NaN or infinity in {bad[0]}" if bad else None


def check_alike(model: str, x: Data, before: str, x_before: Data) -> None:
    """Raise unless the draws of a model have the layout of draws that it, or another model, gave before."""
    new, old = layout(x), layout(x_before)
    if new != old:
        who = "it gave" if before == model else f"model {before!r} gives"
        raise DrawError(
            f"model {model!r} gives {layout_text(new)}, but {who} {layout_text(old)} before; "
            "all draws of all models must have the same keys, shapes and types. (Draws of one model may "
            "differ in length, with kind='one', but only along their first axis: (T, C), not (C, T))"
        )


def _row(theta: Parameters, row: int) -> Parameters:
    return map_arrays(lambda array: array[row : row + 1], theta)


def words(failure: Exception | str | None) -> str:
    """Return the text of a failure."""
    return f"{type(failure).__name__}: {failure}" if isinstance(failure, Exception) else str(failure)


class Gathered:
    """The draws wanted of each model, filled in chunk by chunk.

    The chunks of a model must come in order, one model after the other. The arrays are allocated when the
    first draws show their shape, so that the draws are in memory only once.

    Parameters
    ----------
    names
        The models.
    shares
        How many valid draws of each are wanted.
    keep_parameters
        Whether to keep the parameters too.
    unequal
        Whether the draws of each model may differ in length; by default not. Those with a mask always may.
    """

    def __init__(
        self,
        names: Sequence[str],
        shares: Sequence[int],
        keep_parameters: bool,
        unequal: Sequence[bool] | None = None,
    ) -> None:
        self.names, self.shares = tuple(names), tuple(shares)
        self.columns: tuple[str, ...] | None = None
        self.failure: list[str | None] = [None] * len(self.names)
        self._padded = False
        self._unequal = [False] * len(self.names) if unequal is None else list(unequal)
        self.valid, self.drawn, self.failed = ([0] * len(self.names) for _ in range(3))
        self._x: Any = None
        self._thetas: list[list[Parameters | None]] | None = None
        if keep_parameters:
            self._thetas = [[] for _ in self.names]

    @property
    def done(self) -> int:
        """How many of the draws wanted there are."""
        return sum(map(min, self.valid, self.shares))

    def missing(self, model: int) -> int:
        """How many valid draws of a model are still wanted."""
        return max(0, self.shares[model] - self.valid[model])

    def add(self, model: int, chunk: Chunk) -> None:
        """Take what is wanted of the next chunk of a model."""
        places = np.flatnonzero(chunk.valid)
        wanted, start = min(len(places), self.missing(model)), self.done
        if chunk.x is not None and wanted:
            if self._x is None:
                self.columns = chunk.columns
            x = _in_columns(chunk, self.columns, self.names[model])
            if chunk.columns is None:
                self.columns = None
            self._copy(model, x, chunk.theta, slice(start, start + wanted))
        self.valid[model] += len(places)
        self.drawn[model] += len(chunk.valid)
        if wanted and not self.missing(model):
            # Draws after the last one that is used do not count, failed or not.
            before = self.drawn[model] - len(chunk.valid)
            self.failed[model] = before + int(places[wanted - 1]) + 1 - self.shares[model]

    def _copy(self, model: int, x: Data, theta: Parameters | None, place: slice) -> None:
        if self._x is None:
            rows = sum(self.shares)
            self._x = map_arrays(lambda array: np.empty((rows, *array.shape[1:]), array.dtype), x)
        if layout(x) != layout(self._x):
            # Lengths that differ between two models, and in neither of them, are a mistake.
            varies = self._unequal[model] and (isinstance(self._x, dict) or place.start > self._start(model))
            x, self._x = made_equal(x, self._x, add_mask=varies or isinstance(x, dict))
            self._padded = True
        check_alike(self.names[model], x, self.names[0], self._x)
        self._x = map_arrays(lambda out, new: _widened(out, new, place.start), self._x, x)
        count = place.stop - place.start
        map_arrays(lambda out, new: operator.setitem(out, place, new[:count]), self._x, x)
        if self._thetas is not None:
            wanted = None if theta is None else map_arrays(lambda array: array[:count], theta)
            self._thetas[model].append(wanted)

    @property
    def padded(self) -> tuple[int, int] | None:
        """The shortest and the longest draw, if draws of unequal length were padded."""
        if not isinstance(self._x, dict) or not (self._padded or any(self._unequal)):
            return None
        lengths = self._x["mask"].sum(axis=1) if "mask" in self._x else np.zeros(1)
        return (int(lengths.min()), int(lengths.max())) if self._padded else None

    def _start(self, model: int) -> int:
        return sum(self.shares[:model])

    def fields(self) -> dict[str, Any]:
        """Return what `Simulations` is made of, once nothing is missing."""
        parameters = self._thetas
        return {
            "x": self._x,
            "model": np.repeat(np.arange(len(self.names)), self.shares),
            "names": self.names,
            "failed": tuple(self.failed),
            "parameters": parameters and tuple(None if p[0] is None else join(*p) for p in parameters),
            "columns": self.columns,
        }


def _widened(out: np.ndarray, new: np.ndarray, done: int) -> np.ndarray:
    """Return an array of a wider type if the new draws are more precise than the first ones."""
    dtype = np.result_type(out, new)
    if dtype == out.dtype:
        return out
    wide = np.empty(out.shape, dtype)
    wide[:done] = out[:done]
    return wide
