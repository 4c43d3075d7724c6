"""Multilevel splitting: draws of one model that score ever higher, and how probable such scores are.

Plain draws that score among the best quarter are copied until there are as many as before, and each copy is
moved by steps that leave the model's law, given at least this score, as it is. Again the best quarter is
kept, and so on: after j levels the draws are of the law p(x | s ≥ t_j), whose probability P_j is the product
of the fractions that survived. A probability of e^−30 takes some twenty levels, not e^30 draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from evidencenet._common.arrays import Data, join, map_arrays
from evidencenet.rare.steer import Chains, draw, moved
from evidencenet.rare.store import Level, LevelStore
from evidencenet.simulation.model import Model
from evidencenet.simulation.workers import WorkerError, Workers, is_worker_death

Array = np.ndarray
Score = Callable[[Data], Array]
Tell = Callable[[int, int, float, float, float], None]

# The part of the draws that a level keeps. Smaller parts need fewer levels, each with more noise; between
# 0.1 and 0.5 the error of log P for the same number of calls is nearly the same (Cérou & Guyader 2007).
_KEPT = 0.25
# Moves are steered to this acceptance, which is close to the best for random walks of few and of many
# numbers.
_ACCEPTANCE = 0.3
# How the sizes of single steps scatter about their mean: exp of a normal number of this standard deviation.
# So some are right where the acceptance differs from draw to draw.
_SCATTER = 0.5
# The first mean step; how fast it follows the acceptance; the smallest one; and the acceptance below which
# draws that move by it are stuck.
_FIRST_STEP, _FOLLOW, _SMALLEST, _LEAST_ACCEPTED = 0.7, 1.0, 1e-3, 0.01
# Draws of a simulator of single draws that a worker moves at once.
_BLOCK = 50
# A level that is higher than the last by less has reached the largest score there is, in nats.
_LEAST_RISE = 0.05
# Draws of a replicate below which the fraction that survives would be too rough.
_FEWEST = 20

# What to do after the death of a process of Python's own pool.
_NEW_POOL = "The executor cannot be used after that: make a new one, and make the same call again."

Stop = Literal["reach", "flat", "calls", "stuck"]
STOPS: dict[Stop, str] = {
    "reach": "the wanted score was reached",
    "flat": "levels no longer rise: there are no larger scores",
    "calls": "the budget of simulator calls was used up",
    "stuck": "moves are no longer accepted",
}


@dataclass(frozen=True, eq=False)
class Split:
    """Draws of one model, level by level.

    Attributes
    ----------
    x
        The data of all levels, one after the other, each with `n` draws: the plain ones first.
    score
        Of each draw, shape (levels · n,).
    replicate
        To which of R independent runs each draw belongs, shape (levels · n,).
    threshold
        The score that the draws of a level have at least, shape (levels,); −∞ for plain draws.
    fraction
        How many of the level before reach it, in each replicate, shape (levels, R); ones for plain draws.
    accepted
        The fraction of moves accepted in each level, shape (levels,).
    step
        The mean step of each move, shape (levels, moves).
    n
        Draws in a level.
    calls
        Simulator calls in all.
    drawn
        Plain draws that were made to have `n` that did not fail.
    stop
        Why there are no more levels; see `STOPS`.
    """

    x: Data
    score: Array
    replicate: Array
    threshold: Array
    fraction: Array
    accepted: Array
    step: Array
    n: int
    calls: int
    drawn: int
    stop: Stop

    @property
    def level(self) -> Array:
        """The level of each draw, shape (levels · n,)."""
        return np.repeat(np.arange(len(self.threshold)), self.n)

    @property
    def probabilities(self) -> Array:
        """P(s ≥ threshold) by each replicate, on a log scale, shape (levels, R); −∞ if none survived."""
        with np.errstate(divide="ignore"):
            return np.cumsum(np.log(self.fraction), axis=0)

    @property
    def log_p(self) -> Array:
        """Natural log of the probability of each threshold, shape (levels,): of the mean over replicates."""
        return _log_mean(self.probabilities)

    @property
    def log_p_error(self) -> Array:
        """Standard error of `log_p` from the scatter of the replicates, shape (levels,)."""
        return jackknife(self.probabilities)

    def log_density_ratio(self, score: Array, counts: Array | None = None) -> Array:
        """Log of the density of all levels' draws together over that of the model, by the score.

        Parameters
        ----------
        score
            Any shape.
        counts
            Draws taken of each level, shape (levels,); `n` of each by default.

        Returns
        -------
        log_ratio
            log Σ_j n_j 1[s ≥ t_j] / P_j, the shape of `score`: counts are not normalised.
        """
        counts = np.full(len(self.threshold), self.n) if counts is None else np.asarray(counts)
        return log_ratio(score, self.threshold, self.log_p, counts)

    def __str__(self) -> str:
        last = f"{self.threshold[-1]:.1f}" if len(self.threshold) > 1 else "none"
        return (
            f"{len(self.threshold) - 1} levels up to a score of {last}, log P = {self.log_p[-1]:.2f} ± "
            f"{self.log_p_error[-1]:.2f}, {self.calls:,} calls; {STOPS[self.stop]}"
        )

    __repr__ = __str__


def log_ratio(score: Array, threshold: Array, log_p: Array, counts: Array) -> Array:
    """Return log Σ_j n_j 1[s ≥ t_j] / P_j for scores of any shape."""
    order = np.argsort(threshold, kind="stable")
    with np.errstate(divide="ignore"):
        terms = np.log(counts[order]) - log_p[order]
    cumulative = np.logaddexp.accumulate(terms)
    place = np.searchsorted(threshold[order], score, side="right") - 1
    return cumulative[place]


def jackknife(logs: Array) -> Array:
    """Return the standard error of the log of a mean over replicates, given by logs (levels, R)."""
    r = logs.shape[1]
    if r < 2:
        return np.where(np.arange(len(logs)) == 0, 0.0, np.nan)
    without = np.stack([_log_mean(np.delete(logs, i, axis=1)) for i in range(r)], axis=1)
    spread = without - without.mean(axis=1, keepdims=True)
    return np.sqrt((r - 1) / r * np.square(spread).sum(axis=1))


def _log_mean(logs: Array) -> Array:
    largest = logs.max(axis=1, keepdims=True)
    return (largest + np.log(np.mean(np.exp(logs - largest), axis=1, keepdims=True)))[:, 0]


def split(
    model: Model,
    score: Score,
    *,
    n: int = 20_000,
    reach: float = np.inf,
    like: Split | None = None,
    moves: int = 10,
    replicates: int = 10,
    most_levels: int = 200,
    calls: int | None = None,
    seed: int = 0,
    workers: Workers | None = None,
    store: LevelStore | None = None,
    tell: Tell | None = None,
) -> Split:
    """Draw data of a model that score ever higher.

    Parameters
    ----------
    model
        The model; `evidencenet.rare.steer.check_steerable` says whether it can be steered.
    score
        ``score(x)`` takes a batch of data and returns one number a draw. Any fixed function will do.
    n
        Draws in a level.
    reach
        The last level is at this score.
    like
        An earlier run, whose thresholds and steps are taken. With these fixed, estimates of P are unbiased:
        thresholds that are quantiles of the draws themselves bias them by a part of order 1/n.
    moves
        Moves of each draw in a level.
    replicates
        Independent runs that the draws are divided into, which only share thresholds. Their scatter gives
        the error of log P.
    most_levels
        At most so many.
    calls
        Simulator calls after which no further level is begun.
    seed
        Move m of replicate r in level j is drawn from ``SeedSequence(seed, spawn_key=(r, j, m, 0))``: the
        result depends neither on `workers` nor on interruptions.
    workers
        Who moves the replicates (of a simulator of single draws, blocks of 50 draws), and how many at the
        same time; None for this process alone.
    store
        Keeps each level as soon as it is drawn; the levels that are there already are not drawn again.
    tell
        Called after each move with the level, the calls so far, the score reached, log P, and the fraction
        accepted.

    Returns
    -------
    Split

    Examples
    --------
    >>> wave = Model("noise", lambda rng, n: rng.normal(size=(n, 1)))
    >>> found = split(wave, lambda x: x[:, 0], n=2000, reach=6.0, seed=1)
    >>> bool(abs(found.log_p[-1] - -20.7) < 4 * found.log_p_error[-1])  # log P(z ≥ 6) = −20.74
    True
    """
    if n < replicates * _FEWEST:
        raise ValueError(f"n = {n}; wanted at least {_FEWEST} draws for each of {replicates} replicates.")
    run = _Run(model, score, replicates, n // replicates, moves, seed, workers or Workers())
    levels = [] if store is None else store.levels()
    if not levels:
        levels = [run.plain()]
        if store is not None:
            store.write(0, levels[0])
    stop: Stop | None = None
    while stop is None:
        last = levels[-1]
        alive = last.fraction > 0
        step = last.next_step
        if like is not None:
            if len(levels) == len(like.threshold):
                stop = like.stop
                break
            threshold, steps = float(like.threshold[len(levels)]), like.step[len(levels)]
        elif last.threshold >= reach:
            # A store may hold all levels.
            stop = "reach"
            break
        else:
            threshold, stop = _next(last.score[alive], last.threshold, reach)
            steps = None
            if stop == "flat":
                break
            if len(levels) > most_levels or (last.accepted < _LEAST_ACCEPTED and step <= 2 * _SMALLEST):
                stop = "flat" if len(levels) > most_levels else "stuck"
                break
        if calls is not None and last.calls + n // replicates * replicates * moves > calls:
            stop = "calls"
            break
        if not np.any(last.score[alive] >= threshold):
            stop = "stuck"
            break
        log_p = float(_log_mean(_logs([*levels]))[-1])
        levels.append(run.next(levels, threshold, steps, tell and _telling(tell, len(levels), log_p)))
        levels[-2] = replace(levels[-2], chains=None)
        if store is not None:
            store.write(len(levels) - 1, levels[-1])
    return Split(
        x=join(*(level.x for level in levels)),
        score=np.concatenate([level.score.ravel() for level in levels]),
        replicate=np.tile(np.repeat(np.arange(replicates), run.size), len(levels)),
        threshold=np.array([level.threshold for level in levels]),
        fraction=np.array([level.fraction for level in levels]),
        accepted=np.array([level.accepted for level in levels]),
        step=np.array([level.step for level in levels]),
        n=run.size * replicates,
        calls=levels[-1].calls,
        drawn=levels[-1].drawn,
        stop=stop,
    )


@dataclass(frozen=True)
class _Run:
    """What all levels of a run share. The same arguments give the same level, whatever ran before."""

    model: Model
    score: Score
    replicates: int
    size: int
    moves: int
    seed: int
    workers: Workers

    def plain(self) -> Level:
        """Draw the first level: plain draws, as many as wanted that did not fail."""
        made = self._in_parallel(0, _plain, [(stop - start,) for _, start, stop in self._units()])
        chains = self._by_replicate([part for part, _ in made])
        drawn = sum(number for _, number in made)
        return Level(
            chains=chains,
            x=_joined(chains),
            score=_scores(self.score, chains),
            threshold=-np.inf,
            fraction=np.ones(self.replicates),
            accepted=1.0,
            step=np.ones(self.moves),
            next_step=_FIRST_STEP,
            calls=drawn,
            drawn=drawn,
        )

    def next(
        self,
        levels: Sequence[Level],
        threshold: float,
        steps: Array | None,
        tell: Callable[[int, float, float, float], None] | None,
    ) -> Level:
        """Copy the draws that reach a threshold, and move the copies; `steps` fixes the mean steps."""
        last = levels[-1]
        assert last.chains is not None
        number = len(levels)
        survivors = [np.flatnonzero(part >= threshold) for part in last.score]
        fraction = np.array([len(rows) / self.size for rows in survivors])
        # A replicate in which none survived counts as zero from now on; it goes on with copies of another.
        alive = (last.fraction > 0) & (fraction > 0)
        fraction[~alive] = 0.0
        donor = int(np.flatnonzero(alive)[0])
        origin = [r if alive[r] else donor for r in range(self.replicates)]
        chosen = [
            _copies(self._rng(r, number, 0), survivors[origin[r]], self.size) for r in range(self.replicates)
        ]
        chains = tuple(last.chains[origin[r]].take(rows) for r, rows in enumerate(chosen))
        scores = np.stack([last.score[origin[r]][rows] for r, rows in enumerate(chosen)])
        rates: list[float] = []
        used: list[float] = []
        mean_step, calls = last.next_step, last.calls
        for move in range(self.moves):
            if steps is not None:
                mean_step = float(steps[move])
            used.append(mean_step)
            tasks = [(chains[r].take(np.arange(start, stop)), mean_step) for r, start, stop in self._units()]
            proposals = self._by_replicate(self._in_parallel(number, _proposal, tasks, move))
            calls += self.size * self.replicates
            new = _scores(self.score, proposals)
            # A failed draw is a move that is not accepted.
            taken = new >= threshold
            chains = tuple(
                old.updated(row, other) for old, row, other in zip(chains, taken, proposals, strict=True)
            )
            scores = np.where(taken, new, scores)
            rates.append(float(taken.mean()))
            if steps is None:
                wish = np.log(mean_step) + _FOLLOW * (rates[-1] - _ACCEPTANCE)
                mean_step = float(np.exp(np.clip(wish, np.log(_SMALLEST), 0.0)))
            if tell is not None:
                # Thresholds rise while the draws of a level are moved; so does what is shown.
                before = last.threshold if np.isfinite(last.threshold) else min(threshold, 0.0)
                shown = before + (threshold - before) * (move + 1) / self.moves
                tell(calls, shown, float(np.log(fraction[alive].mean())), float(np.mean(rates)))
        return Level(
            chains=chains,
            x=_joined(chains),
            score=scores,
            threshold=threshold,
            fraction=fraction,
            accepted=float(np.mean(rates)),
            step=np.array(used),
            next_step=mean_step,
            calls=calls,
            drawn=last.drawn,
        )

    def _units(self) -> list[tuple[int, int, int]]:
        """Divide the draws into what one worker does at once: replicate, first draw and end."""
        length = _BLOCK if self.model.kind == "one" else self.size
        return [
            (r, start, min(start + length, self.size))
            for r in range(self.replicates)
            for start in range(0, self.size, length)
        ]

    def _by_replicate(self, parts: Sequence[Chains]) -> tuple[Chains, ...]:
        """Put the units of each replicate together again."""
        units = self._units()
        return tuple(
            Chains.concatenate([part for part, unit in zip(parts, units, strict=True) if unit[0] == r])
            for r in range(self.replicates)
        )

    def _rng(self, *place: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=place))

    def _in_parallel(
        self, level: int, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], move: int = 0
    ) -> list[Any]:
        """Call ``function(model, rng, *task)`` for each unit, with a generator of its own."""
        # Move 0 of a level other than the first is the one after the copies were chosen, hence + 1.
        rngs = [self._rng(r, level, move + 1, start) for r, start, _ in self._units()]
        # A simulator travels once, as bytes; what it is called with travels for each unit.
        call, what = partial(function, self.model), f"model {self.model.name!r}"
        arguments = [(rng, *task) for rng, task in zip(rngs, tasks, strict=True)]
        try:
            return self.workers.call(call, arguments, what)
        except Exception as error:
            if not is_worker_death(error):
                raise
            if self.workers.broken is not None:
                raise self._worker_error(level, error, " ", _NEW_POOL) from error
        # Once may be chance, such as a machine short of memory. The same draws are made again.
        try:
            return self.workers.call(call, arguments, what)
        except Exception as error:
            if not is_worker_death(error):
                raise
            raise self._worker_error(level, error, " twice ", "Draw with workers=1 to see more.") from error

    def _worker_error(self, level: int, error: Exception, times: str, advice: str) -> WorkerError:
        return WorkerError(
            f"a worker process died{times}in level {level} of model {self.model.name!r}: it was killed, "
            f"perhaps for its memory, or crashed ({type(error).__name__}). Levels that were finished are "
            f"kept if store= was given. {advice}"
        )


def _telling(tell: Tell, level: int, log_p: float) -> Callable[[int, float, float, float], None]:
    """Return what tells of a level, given log P of the level before."""
    return lambda calls, threshold, step, accepted: tell(level, calls, threshold, log_p + step, accepted)


def _logs(levels: Sequence[Level]) -> Array:
    """Log P of each level by each replicate, (levels, R)."""
    with np.errstate(divide="ignore"):
        return np.cumsum(np.log([level.fraction for level in levels]), axis=0)


def _next(scores: Array, last: float, reach: float) -> tuple[float, Stop | None]:
    """Return the next threshold, and why it is the last one if it is."""
    pooled = scores.ravel()
    threshold = float(np.quantile(pooled, 1 - _KEPT, method="higher"))
    if threshold <= last:
        # More draws than are kept share the smallest score, as discrete data do: take the next larger one.
        above = pooled[pooled > last]
        if not len(above):
            return last, "flat"
        threshold = float(above.min())
    if threshold >= reach:
        return (reach, "reach") if reach > last else (last, "flat")
    return threshold, "flat" if threshold < last + _LEAST_RISE else None


def _plain(model: Model, rng: np.random.Generator, size: int) -> tuple[Chains, int]:
    """Draw until there are as many as wanted that did not fail; also return how many draws it took."""
    whole = draw(model, rng, size)
    made = size
    while not whole.valid.all():
        bad = np.flatnonzero(~whole.valid)
        # At least a batch of the usual kind: simulators may be slow for single draws.
        more = draw(model, rng, size)
        good = np.flatnonzero(more.valid)[: len(bad)]
        if not len(good):
            raise RuntimeError(
                f"nearly all draws of model {model.name!r} fail. Correct the simulator or the prior."
            )
        # Only draws up to the last one that was needed count, as in `simulate`.
        made += int(good[-1]) + 1 if len(good) == len(bad) else size
        rows = np.arange(size)
        rows[bad[: len(good)]] = size + good
        whole = Chains.concatenate([whole, more]).take(rows)
    return whole, made


def _proposal(model: Model, rng: np.random.Generator, chains: Chains, mean_step: float) -> Chains:
    step = np.minimum(mean_step * np.exp(_SCATTER * rng.standard_normal(len(chains))), 1.0)
    return moved(model, rng, chains, step)


def _scores(score: Score, parts: Sequence[Chains]) -> Array:
    """Score all replicates at once, (R, size); failed draws score −∞."""
    values = np.asarray(score(_joined(parts)), dtype=np.float64).reshape(len(parts), -1)
    valid = np.stack([part.valid for part in parts])
    return np.where(valid & ~np.isnan(values), values, -np.inf)


def _joined(parts: Sequence[Chains]) -> Data:
    return join(*(map_arrays(np.asarray, part.x) for part in parts))


def _copies(rng: np.random.Generator, rows: Array, size: int) -> Array:
    """Copy the survivors until there are `size`: each as often as the others, the remainder by lot."""
    times, rest = divmod(size, len(rows))
    extra = rng.choice(rows, rest, replace=False)
    return np.concatenate([np.tile(rows, times), extra])
