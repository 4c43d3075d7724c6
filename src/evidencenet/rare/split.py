"""Multilevel splitting: draws of one model that score ever higher, and how probable such scores are.

Plain draws that score among the best quarter are copied until there are as many as before, and each copy is
moved by steps that leave the model's law, given at least this score, as it is. Again the best quarter is
kept, and so on: after j levels the draws are of the law p(x | s ≥ t_j), whose probability P_j is the product
of the fractions that survived. A probability of e^−30 takes some twenty levels, not e^30 draws.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evidencenet._common.arrays import Data, join, map_arrays
from evidencenet.rare.steer import Chains, draw, moved
from evidencenet.simulation.model import Model

Array = np.ndarray
Score = Callable[[Data], Array]

# The part of the draws that a level keeps. Smaller parts need fewer levels, each with more noise; between
# 0.1 and 0.5 the error of log P for the same number of calls is nearly the same (Cérou & Guyader 2007).
_KEPT = 0.25
# Moves are steered to this acceptance, which is close to the best for random walks of few and of many
# numbers.
_ACCEPTANCE = 0.3
# How the sizes of single steps scatter about their mean: exp of a normal number of this standard deviation.
# So some are right where the acceptance differs from draw to draw.
_SCATTER = 0.5
# How fast the mean step follows the acceptance, and the smallest mean step.
_FOLLOW, _SMALLEST = 1.0, 1e-3
# A level that is higher than the last by less has reached the largest score there is, in nats.
_LEAST_RISE = 0.05
# Draws of a replicate below which the fraction that survives would be too rough.
_FEWEST = 20

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
    levels: int = 200,
    calls: int | None = None,
    seed: int = 0,
    workers: int = 1,
    tell: Callable[[int, float, float, float], None] | None = None,
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
    levels
        At most so many.
    calls
        Simulator calls after which no further level is begun.
    seed
        Replicate r of the run is drawn from ``SeedSequence(seed, spawn_key=(r,))``: the result does not
        depend on `workers`.
    workers
        Replicates that are moved at the same time, in threads.
    tell
        Called after each level with the calls so far, the threshold, log P, and the fraction accepted.

    Returns
    -------
    Split

    Examples
    --------
    >>> wave = Model("noise", lambda rng, n: rng.normal(size=(n, 1)))
    >>> found = split(wave, lambda x: x[:, 0], n=2000, reach=6.0, seed=1)
    >>> abs(found.log_p[-1] - -20.7) < 4 * found.log_p_error[-1]  # log P(z ≥ 6) = −20.74
    True
    """
    if n < replicates * _FEWEST:
        raise ValueError(f"n = {n}; wanted at least {_FEWEST} draws for each of {replicates} replicates.")
    size = n // replicates
    rngs = [
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replicate,)))
        for replicate in range(replicates)
    ]
    with _Pool(workers) as run:
        first = run(lambda rng: _plain(model, rng, size), rngs)
        chains = [part for part, _ in first]
        drawn = spent = sum(made for _, made in first)
        scores = _scores(score, chains)
        threshold, steps = -np.inf, [[1.0] * moves]
        pools, pooled, thresholds = [_joined(chains)], [scores], [threshold]
        fractions, accepted = [np.ones(replicates)], [1.0]
        stop: Stop | None = None
        mean_step = 0.7
        alive = np.ones(replicates, dtype=bool)
        while stop is None:
            last = threshold
            if like is None:
                threshold, stop = _next(scores[alive], last, reach)
                if stop == "flat":
                    break
            else:
                if len(thresholds) == len(like.threshold):
                    stop = like.stop
                    break
                threshold = float(like.threshold[len(thresholds)])
            if calls is not None and spent + size * replicates * moves > calls:
                stop = "calls"
                break
            survivors = [np.flatnonzero(part >= threshold) for part in scores]
            fraction = np.array([len(rows) / size for rows in survivors])
            if not fraction[alive].any():
                stop = "stuck"
                break
            # A replicate in which none survived counts as zero from now on; it goes on with copies of
            # another.
            alive &= fraction > 0
            fraction[~alive] = 0.0
            donor = int(np.flatnonzero(alive)[0])
            origin = [replicate if alive[replicate] else donor for replicate in range(replicates)]
            chosen = [_copies(rngs[r], survivors[origin[r]], size) for r in range(replicates)]
            chains = [chains[origin[r]].take(rows) for r, rows in enumerate(chosen)]
            scores = np.stack([scores[origin[r]][rows] for r, rows in enumerate(chosen)])
            rates, used = [], []
            for move in range(moves):
                if like is not None:
                    mean_step = float(like.step[len(thresholds), move])
                used.append(mean_step)
                proposals = run(
                    lambda pair, beta=mean_step: _proposal(model, pair[0], pair[1], beta),  # type: ignore[misc]
                    list(zip(rngs, chains, strict=True)),
                )
                spent += size * replicates
                new = _scores(score, proposals)
                # A failed draw is a move that is not accepted.
                taken = new >= threshold
                chains = [
                    old.updated(row, other) for old, row, other in zip(chains, taken, proposals, strict=True)
                ]
                scores = np.where(taken, new, scores)
                rates.append(float(taken.mean()))
                if like is None:
                    wish = np.log(mean_step) + _FOLLOW * (rates[-1] - _ACCEPTANCE)
                    mean_step = float(np.exp(np.clip(wish, np.log(_SMALLEST), 0.0)))
            pools.append(_joined(chains))
            pooled.append(scores)
            thresholds.append(threshold)
            fractions.append(fraction)
            accepted.append(float(np.mean(rates)))
            steps.append(used)
            if tell is not None:
                tell(spent, threshold, float(_log_mean(np.cumsum(np.log(np.maximum(fractions, 1e-300)),
                0))[-1]),
                     accepted[-1])  # fmt: skip
            if stop is None and len(thresholds) > levels:
                stop = "flat"
            if stop is None and like is None and accepted[-1] < 0.01 and mean_step <= 2 * _SMALLEST:
                stop = "stuck"
    return Split(
        x=join(*pools),
        score=np.concatenate([part.ravel() for part in pooled]),
        replicate=np.tile(np.repeat(np.arange(replicates), size), len(thresholds)),
        threshold=np.array(thresholds),
        fraction=np.array(fractions),
        accepted=np.array(accepted),
        step=np.array(steps),
        n=size * replicates,
        calls=spent,
        drawn=drawn,
        stop=stop,
    )


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
        whole = _both(whole, more).take(rows)
    return whole, made


def _both(first: Chains, second: Chains) -> Chains:
    x = join(first.x, second.x)
    valid = np.concatenate([first.valid, second.valid])
    if first.single:
        return Chains(x, valid, first.normals + second.normals, True)
    pairs = zip(first.normals, second.normals, strict=True)
    return Chains(x, valid, [np.concatenate(pair) for pair in pairs], False)


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


class _Pool:
    """Run a function on each of a list, in threads if there are several workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._parallel: Any = None

    def __enter__(self) -> "_Pool":
        if self._workers != 1:
            import joblib

            self._parallel = joblib.Parallel(n_jobs=self._workers, prefer="threads")
            self._parallel.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._parallel is not None:
            self._parallel.__exit__(*reason)

    def __call__(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        if self._parallel is None:
            return [function(item) for item in items]
        import joblib

        return list(self._parallel(joblib.delayed(function)(item) for item in items))
