"""One chunk of a model's draws: made from its own seed, and judged draw by draw."""

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evidencenet.data import Data, Parameters, finite_rows, join, layout, layout_text, map_arrays
from evidencenet.models import DrawError, Model

# Mistakes in a model, and a chunk that is too large, are raised at once.
_NOT_A_FAILED_DRAW = (DrawError, MemoryError)


@dataclass(frozen=True)
class Chunk:
    """The valid draws of a chunk, and which of the draws made they are.

    Parameters
    ----------
    x, theta
        The data and the parameters of the valid draws, in order; None if there are none, or no prior.
    valid
        Which of the draws made are valid, boolean.
    failure
        What went wrong first, if anything did.
    hopeless
        Whether so many draws in a row failed that the others were not made.
    """

    x: Data | None
    theta: Parameters | None
    valid: np.ndarray
    failure: Exception | str | None
    hopeless: bool = False


@dataclass(frozen=True)
class Source:
    """Where the chunks of one model come from; each can be drawn by itself, in any thread or process."""

    model: Model
    number: int
    seed: int
    size: int
    patience: int

    def rng(self, *key: int) -> np.random.Generator:
        """Return the random numbers of a chunk, or of one of its draws."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.number, *key)))

    def draw(self, chunk: int) -> Chunk:
        """Make one chunk."""
        rng = self.rng(chunk)
        own = (self.rng(chunk, row) for row in itertools.count())
        theta = None
        try:
            theta = self.model.draw_parameters(rng, self.size)
            if self.model.kind != "one":
                x = self.model.draw_data(rng, self.size, theta)
        except _NOT_A_FAILED_DRAW:
            raise
        except Exception as error:
            # The same parameters again, because they decide as a rule which draws fail.
            return self._draw_rows(own, theta, error)
        if self.model.kind == "one":
            return self._draw_rows(itertools.repeat(rng), theta, None)
        valid, failure = _judge(x)
        if not valid.all():
            x = map_arrays(operator.itemgetter(valid), x)
            theta = None if theta is None else map_arrays(operator.itemgetter(valid), theta)
        return Chunk(x, theta, valid, failure)

    def _draw_rows(
        self, rngs: Iterator[np.random.Generator], thetas: Parameters | None, raised: Exception | None
    ) -> Chunk:
        """Draw one at a time; `raised` is the exception of the whole chunk, if that was tried before."""
        kept: list[tuple[Data, Parameters | None]] = []
        valid = np.zeros(self.size, dtype=bool)
        first: Exception | str | None = raised
        for row, rng in zip(range(self.size), rngs, strict=False):
            try:
                theta = self.model.draw_parameters(rng, 1) if thetas is None else _row(thetas, row)
                x = self.model.draw_data(rng, 1, theta)
            except _NOT_A_FAILED_DRAW:
                raise
            except Exception as error:
                first = first or error
            else:
                good, failure = _judge(x)
                first = first or failure
                if good[0]:
                    valid[row] = True
                    kept.append((x, theta))
                    check_alike(self.model.name, x, self.model.name, kept[0][0])
            if not kept and row + 1 == self.patience:
                return Chunk(None, None, valid[: row + 1], first, hopeless=True)
        if raised and len(kept) == self.size:
            self._check_takes_batches(raised)
            # The failure did not come again with other random numbers, yet it did happen once.
            valid[0] = False
            kept = kept[1:]
        if not kept:
            return Chunk(None, None, valid, first)
        theta = None if kept[0][1] is None else join(*(theta for _, theta in kept))
        return Chunk(join(*(x for x, _ in kept)), theta, valid, first)

    def _check_takes_batches(self, raised: Exception) -> None:
        """Raise if no two draws can be made at once: then the model is wrong, and no draw has failed."""
        for i in range(5):
            try:
                self.model.draw(self.rng(0, self.size + i), min(2, self.size))
                return
            except Exception:
                continue
        raise DrawError(
            f"model {self.model.name!r} raised {words(raised)} for {self.size} draws at once, but for none "
            "of them alone; correct it for batches, or use kind='one'"
        ) from raised


def _judge(x: Data) -> tuple[np.ndarray, str | None]:
    """Which draws are finite, and what is wrong with the others."""
    parts = {f"x[{key!r}]": x[key] for key in x} if isinstance(x, dict) else {"x": x}
    finite = {where: finite_rows(array) for where, array in parts.items()}
    bad = [where for where, rows in finite.items() if not rows.all()]
    return np.logical_and.reduce(list(finite.values())), f"NaN or infinity in {bad[0]}" if bad else None


def check_alike(model: str, x: Data, before: str, x_before: Data) -> None:
    """Raise unless what one model gives can stand beside what another, or itself, gave before."""
    mine, theirs = layout(x), layout(x_before)
    if mine != theirs:
        who = "it gave" if before == model else f"model {before!r} gives"
        raise DrawError(
            f"model {model!r} gives {layout_text(mine)}, but {who} {layout_text(theirs)} before; "
            "all draws of all models must have the same keys, shapes and types"
        )


def _row(theta: Parameters, row: int) -> Parameters:
    return map_arrays(lambda array: array[row : row + 1], theta)


def words(failure: Exception | str | None) -> str:
    """Say what a failure was."""
    return f"{type(failure).__name__}: {failure}" if isinstance(failure, Exception) else str(failure)
