"""`RareDraws`: labelled draws, most of which a model makes only rarely, and how rare they are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.arrays import Data, join, map_arrays
from evidencenet._common.harmless import harmless

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of one model's draws, the plain ones first.

    Attributes
    ----------
    threshold
        The score that the draws of a level have at least, shape (levels,); −∞ for plain draws.
    by_replicate
        Log of P(score ≥ threshold) by each of R independent runs, shape (levels, R).
    size
        How many draws a level of each run had, shape (R,).
    count
        How many draws of each level there are here, shape (levels,).
    accepted
        Which fraction of the moves was accepted, shape (levels,).
    step
        The mean size of each move, shape (levels, moves).
    calls
        Simulator calls that it took.
    stop
        Why there are no more levels.
    """

    threshold: Array
    by_replicate: Array
    size: Array
    count: Array
    accepted: Array
    step: Array
    calls: int
    stop: str

    @property
    def log_p(self) -> Array:
        """Log of P(score ≥ threshold) in all runs together, shape (levels,)."""
        return _log_mean(self.by_replicate, self.size)

    @property
    def log_p_error(self) -> Array:
        """Standard error of `log_p`, by leaving out one run at a time, shape (levels,)."""
        r = len(self.size)
        if r < 2:
            return np.zeros(len(self.threshold))
        without = np.array(
            [_log_mean(np.delete(self.by_replicate, i, 1), np.delete(self.size, i)) for i in range(r)]
        )
        # Where one run alone reached a level, P without it is zero, and P is known to a factor of e at best.
        known = np.isfinite(without).all(axis=0)
        spread = np.where(known, without, 0.0)
        spread = spread - spread.mean(axis=0)
        return np.where(known, np.sqrt((r - 1) / r * np.square(spread).sum(axis=0)), 1.0)

    def log_boost(self, score: Array) -> Array:
        """Log of how many more draws there are than the model's own density says, by the score.

        That is log Σ_j n_j 1[s ≥ t_j] / P_j for n_j draws of level j, with the shape of `score`.
        """
        with np.errstate(divide="ignore"):
            terms = np.log(self.count) - self.log_p
        # Levels are in order of their thresholds.
        place = np.searchsorted(self.threshold, score, side="right") - 1
        return np.logaddexp.accumulate(terms)[place]

    def error_at(self, score: Array) -> Array:
        """Return the standard error of log P at a score, on straight lines between the levels."""
        if len(self.threshold) < 2:
            return np.zeros(np.shape(score))
        # The error of the first level belongs to its threshold; below it there are plain draws, without one.
        start = self.threshold[1] - 1.0
        return np.interp(score, [start, *self.threshold[1:]], [0.0, *self.log_p_error[1:]])

    def known_from(self, score: Array, level: Array, replicate: Array, plain: Array) -> "Levels":
        """Return the levels with P estimated anew from all draws of all levels, and from more plain draws.

        Of the draws that could reach a threshold, whatever their level, the part that reaches the next one
        estimates the ratio of the two probabilities: the estimate of Kaplan and Meier for draws that are seen
        only above a threshold. Many plain draws make P of the first levels precise.

        Parameters
        ----------
        score, level, replicate
            Of this model's draws, shape (n,).
        plain
            Scores of more plain draws of the model, any number; they are shared out among the runs.
        """
        runs = np.unique(replicate)
        by_replicate = np.empty((len(self.threshold), len(runs)))
        for i, run in enumerate(runs):
            mine = replicate == run
            scores = np.concatenate([score[mine], plain[i :: len(runs)]])
            levels = np.concatenate([level[mine], np.zeros(len(plain[i :: len(runs)]), dtype=level.dtype)])
            by_replicate[0, i] = 0.0
            for j in range(1, len(self.threshold)):
                able = (levels < j) & (scores >= self.threshold[j - 1])
                with np.errstate(divide="ignore"):
                    step = np.log(np.count_nonzero(able & (scores >= self.threshold[j])) / max(able.sum(), 1))
                by_replicate[j, i] = by_replicate[j - 1, i] + step
        return replace(self, by_replicate=by_replicate)

    def together(self, other: "Levels") -> "Levels":
        """Return what these runs and others of the same thresholds say of P; the counts are these."""
        shared = min(len(self.threshold), len(other.threshold))
        if not np.array_equal(self.threshold[:shared], other.threshold[:shared]):
            raise ValueError("the two runs have different thresholds; wanted one run made like the other.")
        if shared < len(self.threshold):
            raise ValueError(f"the other run has {shared} levels of {len(self.threshold)}; it was cut short.")
        return replace(
            self,
            by_replicate=np.concatenate([self.by_replicate, other.by_replicate[:shared]], axis=1),
            size=np.concatenate([self.size, other.size]),
        )


def _log_mean(logs: Array, size: Array) -> Array:
    largest = logs.max(axis=1, keepdims=True)
    finite = np.where(np.isfinite(largest), largest, 0.0)
    mean = np.average(np.exp(logs - finite), axis=1, weights=size)
    with np.errstate(divide="ignore"):
        return finite[:, 0] + np.log(mean)


@dataclass(frozen=True, eq=False, repr=False)
class RareDraws:
    """Draws of K models at all levels of evidence against the model that made them.

    Each model has plain draws, and draws given that their score is at least as large as a threshold, level
    by level. The score of model k is the log-odds of all other models to k by some network, which need not be
    right: it only says where to look.

    Attributes
    ----------
    x
        The data, shape (n, ...) or a dict of such arrays.
    model
        The model of each draw, shape (n,).
    level
        Its level, 0 for plain draws, shape (n,).
    replicate
        The run that it belongs to, shape (n,); those of different runs are independent.
    score
        The score of each draw for every model, shape (n, K).
    names
        The K models.
    levels
        The levels of each model: thresholds, log P with its error, acceptance, calls.
    """

    x: Data
    model: Array
    level: Array
    replicate: Array
    score: Array
    names: tuple[str, ...]
    levels: tuple[Levels, ...]

    def __len__(self) -> int:
        return len(self.model)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many draws of each model there are."""
        return tuple(int(count) for count in np.bincount(self.model, minlength=len(self.names)))

    @property
    def calls(self) -> int:
        """Simulator calls in all."""
        return sum(levels.calls for levels in self.levels)

    @property
    def offset(self) -> Array:
        """Log-odds that each draw has because of how it was drawn, against model 0, shape (n, K).

        The log-odds of the model of a draw among these draws are log K plus this.
        """
        boost = np.stack([each.log_boost(self.score[:, k]) for k, each in enumerate(self.levels)], axis=1)
        return boost - boost[:, :1]

    @property
    def plain(self) -> Array:
        """Which draws are plain ones, shape (n,)."""
        return self.level == 0

    def take(self, rows: Array) -> "RareDraws":
        """Return some of the draws, given by positions or a boolean mask; every level must keep one."""
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows)
        model, level = self.model[rows], self.level[rows]
        levels = []
        for k, each in enumerate(self.levels):
            count = np.bincount(level[model == k], minlength=len(each.threshold))
            if not count.all():
                raise ValueError(
                    f"no draw is left of level {int(np.argmin(count))} of model {self.names[k]!r}; wanted at "
                    "least one of each level."
                )
            levels.append(replace(each, count=count))
        return RareDraws(
            map_arrays(lambda array: array[rows], self.x),
            model,
            level,
            self.replicate[rows],
            self.score[rows],
            self.names,
            tuple(levels),
        )

    def cut(self, levels: Sequence[int]) -> "RareDraws":
        """Return the draws of so many levels of each model, counting the plain ones; the others go."""
        keep = self.level < np.asarray(levels)[self.model]
        if keep.all():
            return self
        shorter = tuple(
            replace(
                each,
                **{
                    name: getattr(each, name)[:number]
                    for name in ("threshold", "by_replicate", "count", "accepted", "step")
                },
            )
            for each, number in zip(self.levels, levels, strict=True)
        )
        return replace(self, levels=shorter).take(keep)

    def split(self, fraction: float = 0.5, *, seed: int = 0) -> tuple["RareDraws", "RareDraws"]:
        """Split the draws in two that are independent of each other: runs stay together.

        Parameters
        ----------
        fraction
            The part of the runs that goes to the first, between 0 and 1.
        seed
            The same seed gives the same split.
        """
        runs = np.unique(self.replicate)
        number = round(fraction * len(runs))
        if not 0 < number < len(runs):
            raise ValueError(f"fraction = {fraction} of {len(runs)} runs leaves one part empty.")
        chosen = np.random.default_rng(np.random.SeedSequence(seed)).permutation(runs)[:number]
        first = np.isin(self.replicate, chosen)
        return self.take(first), self.take(~first)

    def thinned(self) -> "RareDraws":
        """Return fewer draws of each level: a quarter of 1/error² of its log P.

        A test of more draws would see the error of log P, and not that of log K. They are also nearer to
        independent: the others are copies of the same draws of the level before. At least 50 are kept; all
        plain draws are.
        """
        return self._spread(
            [
                [None if error == 0 else max(_FEWEST, int(0.25 / error**2)) for error in each.log_p_error]
                for each in self.levels
            ]
        )

    def at_most(self, number: int) -> "RareDraws":
        """Return at most so many draws of each level of each model."""
        return self._spread([[number] * len(each.threshold) for each in self.levels])

    def _spread(self, wanted: Sequence[Sequence[int | None]]) -> "RareDraws":
        """Return so many draws of each level of each model, evenly spread; None keeps all."""
        keep = np.zeros(len(self), dtype=bool)
        for k, numbers in enumerate(wanted):
            for level, number in enumerate(numbers):
                rows = np.flatnonzero((self.model == k) & (self.level == level))
                count = len(rows) if number is None else min(number, len(rows))
                # Evenly, because neighbours are copies of the same draw of the level before.
                keep[rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]] = True
        return self.take(keep)

    @staticmethod
    def concatenate(parts: "Sequence[RareDraws]") -> "RareDraws":
        """Join draws of the same models and thresholds; runs keep apart."""
        first = parts[0]
        start, replicate = 0, []
        for part in parts:
            replicate.append(part.replicate + start)
            start += int(part.replicate.max()) + 1
        levels = []
        for k in range(len(first.names)):
            each = first.levels[k]
            for part in parts[1:]:
                each = replace(
                    each.together(part.levels[k]),
                    count=each.count + part.levels[k].count,
                    calls=each.calls + part.levels[k].calls,
                )
            levels.append(each)
        return RareDraws(
            join(*(part.x for part in parts)),
            np.concatenate([part.model for part in parts]),
            np.concatenate([part.level for part in parts]),
            np.concatenate(replicate),
            np.concatenate([part.score for part in parts]),
            first.names,
            tuple(levels),
        )

    def __str__(self) -> str:
        lines = [f"{len(self):,} draws of {len(self.names)} models, {self.calls:,} simulator calls:"]
        for name, each in zip(self.names, self.levels, strict=True):
            if len(each.threshold) == 1:
                lines.append(f"  {harmless(name)}: {each.count[0]:,} plain draws; {each.stop}")
                continue
            lines.append(
                f"  {harmless(name)}: {len(each.threshold) - 1} levels up to log-odds of "
                f"{each.threshold[-1]:.1f} against "
                f"it, which it reaches with log P = {each.log_p[-1]:.2f} ± "
                f"{each.log_p_error[-1]:.2f}; {each.stop}"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def plot(self, axis: Any = None) -> Any:
        """Draw how the draws of each model spread along the score, plain and rare; returns the axis."""
        from evidencenet.report import plots

        return plots.rare_draws(self, axis)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the draws to one file, from which `load` gets the same to the bit."""
        arrays: dict[str, Any] = {
            name: getattr(self, name) for name in ("model", "level", "replicate", "score")
        }
        kinds = {"": self.x} if not isinstance(self.x, dict) else self.x
        arrays |= {f"x/{key}": array for key, array in kinds.items()}
        for k, each in enumerate(self.levels):
            for item in fields(each):
                if item.name not in ("calls", "stop"):
                    arrays[f"levels/{k}/{item.name}"] = getattr(each, item.name)
        about = {
            "names": self.names,
            "keys": list(self.x) if isinstance(self.x, dict) else None,
            "calls": [each.calls for each in self.levels],
            "stop": [each.stop for each in self.levels],
        }
        files.write(path, "rare draws", about, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "RareDraws":
        """Read what `save` wrote."""
        about, arrays = files.read(path, "rare draws")
        with files.readable(Path(path)):
            keys = about["keys"]
            x: Data = arrays["x/"] if keys is None else {key: arrays[f"x/{key}"] for key in keys}
            levels = tuple(
                Levels(
                    **{
                        item.name: arrays[f"levels/{k}/{item.name}"]
                        for item in fields(Levels)
                        if item.name not in ("calls", "stop")
                    },
                    calls=calls,
                    stop=stop,
                )
                for k, (calls, stop) in enumerate(zip(about["calls"], about["stop"], strict=True))
            )
            model, level, replicate, score = (
                arrays[name] for name in ("model", "level", "replicate", "score")
            )
            return cls(x, model, level, replicate, score, tuple(about["names"]), levels)


# Draws of a level that are kept however uncertain its log P is.
_FEWEST = 50
