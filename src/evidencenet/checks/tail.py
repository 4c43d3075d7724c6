"""The tail check: how often a model makes data that speak against it, and how often log K says it does."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, ndtr

from evidencenet._common import wording
from evidencenet._common.harmless import harmless
from evidencenet.checks.check import Check, Verdict, judged
from evidencenet.simulation.rare_draws import Levels, RareDraws

Array = NDArray[np.float64]

# The parts of all checks' false alarms that this one may have, as for each of the others.
_FAIL, _WARN = 0.02 / 5, 0.05 / 5
# With fewer effective draws the error of the mean is itself too rough.
_LEAST_EFFECTIVE = 30
# Differences below this many nats are not worth a failure: ten draws confirm an end of the range to 1/√10.
_SMALL = 0.3


@dataclass(frozen=True, eq=False)
class Tail:
    """How often draws of a model score above thresholds, found and expected, as natural logs.

    Attributes
    ----------
    threshold
        The scores, shape (levels,).
    log_p, log_p_error
        Log of the probability that a draw of the model scores at least that, found by simulation.
    expected, expected_error
        The same from log K and draws of the other model: E[1/K; score ≥ threshold].
    effective
        How many equal draws the expectation rests on, shape (levels,).
    name
        Of the model.
    """

    threshold: Array
    log_p: Array
    log_p_error: Array
    expected: Array
    expected_error: Array
    effective: Array
    name: str

    @property
    def difference(self) -> Array:
        """Log of found over expected: above 0, such data are less rare than log K says, shape (levels,)."""
        return self.log_p - self.expected

    @property
    def error(self) -> Array:
        """Standard error of `difference`, shape (levels,)."""
        return np.hypot(self.log_p_error, self.expected_error)

    @property
    def check(self) -> Check:
        """The verdict, on the level where found and expected differ most for their error."""
        judged_levels = np.flatnonzero((self.effective >= _LEAST_EFFECTIVE) & (self.error > 0))
        if not len(judged_levels):
            finding = f"Too few draws lie in the tail of {harmless(self.name)} to tell."
            return Check("tail", "warn", finding, "Simulate more draws to check with.")
        z = np.abs(self.difference[judged_levels] / self.error[judged_levels])
        worst = judged_levels[int(np.argmax(z))]
        p = float(min(1.0, 2 * ndtr(-z.max()) * len(judged_levels)))
        off = abs(float(self.difference[worst]))
        verdict: Verdict = "pass"
        if p < _WARN:
            verdict = "fail" if p < _FAIL and off > _SMALL else "warn"
        rare = "more" if self.difference[worst] > 0 else "less"
        finding = (
            f"{harmless(self.name)} makes data that score {self.threshold[worst]:.1f} or more against it "
            f"{rare} often than log K says, by {wording.with_error(off, float(self.error[worst]))} nats (p = "
            f"{wording.p_value(p)}, "
            f"the lowest of {len(judged_levels)} levels)."
        )
        advice = (
            "Log K is off there: train on rare draws with deepen(net, models), or once more with the result."
        )
        return judged("tail", verdict, finding, advice)


def tail(
    threshold: ArrayLike,
    log_p: ArrayLike,
    log_p_error: ArrayLike,
    score: ArrayLike,
    log_ratio: ArrayLike,
    *,
    name: str = "model 0",
) -> Tail:
    """Compare how often a model's draws score high with what log K says of it; no truth is needed.

    For any set A of data, P₀(A) = E₁[1/K; A]: the left side is found by simulating model 0, the right side
    from draws of model 1 and their log K. Here A is "the score is at least t". If the score is log K itself,
    then log P₀(score ≥ t) ≤ −t besides.

    Parameters
    ----------
    threshold, log_p, log_p_error
        Scores t, natural log of P₀(score ≥ t), and its standard error, shape (levels,). Probabilities too
        small to be counted in plain draws come from `evidencenet.rare_draws`.
    score, log_ratio
        Of plain draws of the other model (or of all others, as many of each): their score, and the natural
        log of p(x|other)/p(x|model), shape (n,). Any code that can score draws will do.
    name
        Of the model whose tail it is.

    Returns
    -------
    Tail
        `check` is its verdict; with exact log K it fails in less than 0.4% of cases.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import log_ndtr
    >>> x = np.random.default_rng(1).normal(loc=3, size=10_000)  # N(0, 1) against N(3, 1)
    >>> log_k, t = 3 * x - 4.5, np.array([3.0, 6.0, 9.0])
    >>> exact = log_ndtr(-(t + 4.5) / 3)                          # log P(log K ≥ t) under N(0, 1)
    >>> tail(t, exact, np.full(3, 0.01), log_k, log_k).check.verdict
    'pass'
    >>> tail(t, exact, np.full(3, 0.01), log_k, 1.2 * log_k).check.verdict
    'fail'
    """
    levels = [np.asarray(each, dtype=np.float64) for each in (threshold, log_p, log_p_error)]
    scores, ratios = np.asarray(score, dtype=np.float64), np.asarray(log_ratio, dtype=np.float64)
    if len({each.shape for each in levels}) > 1 or levels[0].ndim != 1:
        shapes = [each.shape for each in levels]
        raise ValueError(
            f"threshold, log_p and log_p_error have shapes {shapes}; wanted one (levels,) for all."
        )
    if scores.shape != ratios.shape or scores.ndim != 1:
        raise ValueError(
            f"score and log_ratio have shapes {scores.shape} and {ratios.shape}; wanted (n,) twice."
        )
    expected, error, effective = (np.empty(len(levels[0])) for _ in range(3))
    for j, t in enumerate(levels[0]):
        inside = -ratios[scores >= t]
        expected[j], error[j], effective[j] = _log_mean(inside, len(ratios))
    return Tail(levels[0], levels[1], levels[2], expected, error, effective, name)


def tails(
    levels: Sequence[Levels],
    score: NDArray[np.float64],
    log_k: NDArray[np.float64],
    label: NDArray[np.int64],
    names: Sequence[str],
) -> tuple[Tail, ...]:
    """Make the tail check of each of K models.

    Parameters
    ----------
    levels
        Of each model's rare draws.
    score, log_k, label
        Of plain draws of all models, as many of each: the scores by which the rare draws were steered, (n,
        K); natural log K against model 0, (n, K); and the model of each, (n,).
    names
        Of the models.
    """
    found = []
    for k, (each, name) in enumerate(zip(levels, names, strict=True)):
        others = label != k
        # The mixture of all other models, in equal parts, against this one.
        against = logsumexp(np.delete(log_k, k, axis=1), axis=1) - np.log(len(names) - 1) - log_k[:, k]
        found.append(
            tail(
                each.threshold[1:],
                each.log_p[1:],
                each.log_p_error[1:],
                score[others, k],
                against[others],
                name=name,
            )
        )
    return tuple(found)


def settled(rare: RareDraws, log_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log-odds that rare draws have because of how they were drawn, with P shifted within its errors.

    Checks of rare draws would see errors of log P, which all draws of a level share, and blame log K for
    them. So each step of log P from level to level is shifted to where the labels of the draws are most
    probable, given its own error as a prior: what log P can explain is no evidence against log K.

    Parameters
    ----------
    rare
        The draws.
    log_k
        Natural log K against model 0 that is to be checked, shape (n, K).

    Returns
    -------
    offset
        As `RareDraws.offset`, shape (n, K).
    """
    models = range(len(rare.levels))
    sizes = [len(each.threshold) - 1 for each in rare.levels]
    ends = np.cumsum(sizes)
    places = [
        np.searchsorted(each.threshold, rare.score[:, k], side="right") - 1
        for k, each in enumerate(rare.levels)
    ]
    with np.errstate(divide="ignore"):
        terms = [np.log(each.count) - each.log_p for each in rare.levels]
    variances = np.concatenate([_steps(each.log_p_error) for each in rare.levels])
    labels = rare.model[:, None] == np.arange(len(sizes))

    def boosts(shift: Array) -> tuple[list[Array], list[Array]]:
        """Return the shifted terms of the sum over levels, and its logs up to each level, by model."""
        parts = np.split(shift, ends[:-1])
        shifted = [terms[k] - np.cumsum([0.0, *parts[k]]) for k in models]
        return shifted, [np.logaddexp.accumulate(each) for each in shifted]

    def cost(shift: Array) -> tuple[float, Array]:
        shifted, sums = boosts(shift)
        log_odds = log_k + np.stack([sums[k][places[k]] for k in models], axis=1)
        log_p = log_softmax(log_odds, axis=1)
        residual = np.exp(log_p) - labels
        slopes = []
        for k in models:
            by_place = np.bincount(places[k], residual[:, k], minlength=sizes[k] + 1)
            # A term of level j is part of the sums at level j and beyond; its log falls as log P rises.
            share = np.exp(np.minimum(shifted[k][:, None] - sums[k][None, :], 0.0))
            of_level = -(np.triu(share) @ by_place)
            slopes.append(np.cumsum(of_level[::-1])[::-1][1:])
        value = -float(log_p[labels].sum()) + 0.5 * float(np.sum(shift**2 / variances))
        return value, np.concatenate(slopes) + shift / variances

    shift = np.zeros(int(ends[-1]))
    if len(shift):
        shift = minimize(cost, shift, jac=True, method="L-BFGS-B").x
    offset = np.stack([boosts(shift)[1][k][places[k]] for k in models], axis=1)
    return offset - offset[:, :1]


def _steps(error: Array) -> Array:
    """Return the variance of each step of log P, from level to level, given the errors of log P."""
    square = np.square(error)
    number = np.arange(1, len(square))
    # Errors are themselves uncertain, by a quarter for ten runs, and may seem to fall: no step is known much
    # better than the others, and all are taken for twice as uncertain, in variance. Then exact log K passed
    # in 14 of 16 runs on exponential times (3,000 to 4,000 draws a level, 26 levels) and 1.1 log K in 2;
    # without shifts exact log K passed in 1 of 6.
    return 2 * np.maximum(np.diff(square), 0.3 * square[1:] / number) + 1e-8


def _log_mean(exponent: Array, n: int) -> tuple[float, float, float]:
    """Return the log of Σ exp(exponent)/n, its standard error, and the effective number of terms."""
    if not len(exponent):
        return -np.inf, np.inf, 0.0
    largest = exponent.max()
    terms = np.exp(exponent - largest)
    mean = terms.sum() / n
    # Terms of draws outside the tail are zero.
    variance = (np.square(terms).sum() / n - mean**2) / n
    effective = float(terms.sum() ** 2 / np.square(terms).sum())
    return float(largest + np.log(mean)), float(np.sqrt(max(variance, 0.0)) / mean), effective
