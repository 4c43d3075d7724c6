"""Checks of log Bayes factors that need no truth: each has a verdict, a finding, and advice.

`measure` computes what the draws say, once. `examine` judges it. The two are apart so that `validate` can
show the same numbers that it judges.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, logit, logsumexp

from evidencenet._common import wording
from evidencenet._common.harmless import harmless, pair_text
from evidencenet.checks.coverage import Binning, Coverage, coverage
from evidencenet.checks.moments import MeanProbability, TuringGood, mean_probability, turing_good
from evidencenet.checks.range import Range, validated_range
from evidencenet.checks.scores import Score, check_log_odds, of_pair, score

Array = NDArray[np.float64]
Verdict = Literal["pass", "warn", "fail"]
# All checks together call exact log K failed in at most 2% of cases, and warn or fail in at most 5%, not
# counting warnings that there are too few draws. Each of five is given a fifth of that; within a check,
# models or pairs share its part.
_FAIL, _WARN = 0.02 / 5, 0.05 / 5
# With fewer effective draws, z-scores of the two sums of positive numbers have tails that are not normal:
# measured over the worked problems, with nominal 0.4% beyond, 1.3% were at 42 of them, and 0.4% from 200 on.
_LEAST_FOR_MOMENTS, _LEAST_FOR_MEANS = 100, 30
# So many names of pairs fit into one line of a finding.
_MOST_NAMED = 3


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    name
        What was looked at.
    verdict
        "pass", "warn" or "fail".
    finding
        One sentence with the number, and its error or p-value.
    advice
        One sentence on what to do; empty if the check passes.
    """

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}  {self.name}: {self.finding}" + (f" {self.advice}" if self.advice else "")


def judged(name: str, verdict: Verdict, finding: str, advice: str) -> Check:
    """Make a check. The advice is left out if it passes."""
    return Check(name, verdict, finding, "" if verdict == "pass" else advice)


@dataclass(frozen=True, eq=False)
class Measured:
    """What draws of known models say about log K, before any verdict.

    Attributes
    ----------
    coverages, log_odds_coverages
        The blind coverage test of each model against all others, with bins of equal width in probability and
        in log-odds. For two models only the test of model 1.
    turing_good, ranges
        The half-order Turing–Good check and the validated range of each pair, by the numbers of the later
        model and of the earlier one.
    mean_probability
        The mean probability of each model, by its number. For two models only that of model 1.
    score
        The log score, with the shares of the draws as prior.
    """

    coverages: tuple[Coverage, ...]
    log_odds_coverages: tuple[Coverage, ...]
    turing_good: Mapping[tuple[int, int], TuringGood]
    mean_probability: Mapping[int, MeanProbability]
    score: Score
    ranges: Mapping[tuple[int, int], Range]


def measure(log_k: ArrayLike, labels: ArrayLike) -> Measured:
    """Compute everything that `examine` judges; parameters as there."""
    log_k, labels = check_log_odds(log_k, labels)
    models = log_k.shape[1]
    counts = np.bincount(labels, minlength=models)
    if counts.min() < 2:
        raise ValueError(f"the checks need two draws of each model or more, got {counts.tolist()} draws.")
    log_odds = log_k + np.log(counts / counts[0])
    pairs = {(high, low): of_pair(log_k, labels, high, low) for low, high in combinations(range(models), 2)}
    tested = range(1, 2) if models == 2 else range(models)
    return Measured(
        coverages(log_k, labels),
        coverages(log_k, labels, binning="log_odds"),
        {pair: turing_good(*draws) for pair, draws in pairs.items()},
        {k: mean_probability(log_odds, labels, k) for k in tested},
        score(log_odds, labels),
        {pair: validated_range(*draws) for pair, draws in pairs.items()},
    )


def examine(log_k: ArrayLike, labels: ArrayLike, *, names: Sequence[str] | None = None) -> tuple[Check, ...]:
    """Check log Bayes factors, from any code, on draws whose model is known.

    Parameters
    ----------
    log_k
        Natural log of p(x|M_k)/p(x|M_0) for each draw, shape (n, K) with zeros in the first column, or (n,)
        for two models. Finite.
    labels
        Model each draw came from, 0 to K − 1, shape (n,). Each must occur at least twice.
    names
        Of the K models; "model 0" and so on by default.

    Returns
    -------
    checks
        - "coverage": the blind coverage test of each model against all others;
        - "log-odds bins": the same fractions in bins of the log-odds, each with its exact binomial test, so
          that extreme odds are judged too;
        - "Turing–Good": E0[K^½] = E1[K^−½] for each pair of models;
        - "mean probability": the mean probability of each model over all draws equals its share of them;
        - "information": the gain of the score over knowing nothing, because calibrated log K may still say
          nothing;
        - "range": the validated range, in which the draws can confirm or refute log K.

    Notes
    -----
    Exact log K fails one of the first four in less than 1.6% of cases, and one of all checks that `validate`
    makes in less than 2%. Warnings and failures together come in less than 5%, not counting warnings that
    there are too few draws. Levels are divided by the number of checks, and of models or pairs within a
    check.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 5000)
    >>> x = np.random.default_rng(1).normal(loc=labels)  # N(0, 1) against N(1, 1)
    >>> [check.verdict for check in examine(x - 0.5, labels)]
    ['pass', 'pass', 'pass', 'pass', 'pass', 'pass']
    >>> [check.name for check in examine(x - 0.2, labels) if check.verdict == "fail"]
    ['coverage', 'log-odds bins', 'Turing–Good', 'mean probability']
    """
    measured = measure(log_k, labels)
    models = 1 + max(above for above, _ in measured.ranges)
    names = [f"model {k}" for k in range(models)] if names is None else list(names)
    if len(names) != models:
        raise ValueError(f"names = {names}, but log_k is of {models} models.")
    return verdicts(measured, names)


def verdicts(measured: Measured, names: Sequence[str]) -> tuple[Check, ...]:
    """Judge what was measured: the checks of `examine`, in its order."""
    return (
        _coverage(measured.coverages, names),
        _bins(measured.log_odds_coverages, names),
        _turing_good(measured.turing_good, names),
        _mean_probability(measured.mean_probability, names),
        _information(measured.score),
        range_check(measured.ranges, names),
    )


def coverages(log_k: ArrayLike, labels: ArrayLike, *, binning: Binning = "width") -> tuple[Coverage, ...]:
    """Test the coverage of each model against all others; for two models only that of model 1.

    Parameters
    ----------
    log_k, labels
        As for `examine`.
    binning
        As for `evidencenet.coverage`.

    Returns
    -------
    tests
        Each at its part of the level that all checks share.
    """
    log_k, labels = check_log_odds(log_k, labels)
    models = log_k.shape[1]
    if models == 2:
        return (coverage(log_k[:, 1], labels, binning=binning, alpha=_FAIL),)
    counts = np.bincount(labels, minlength=models)
    log_odds = log_k + np.log(counts / counts[0])
    tests = []
    for k in range(models):
        odds = log_odds[:, k] - logsumexp(np.delete(log_odds, k, axis=1), axis=1)
        # A Bayes factor against the mixture of the others: coverage() adds the prior odds again.
        against = odds - np.log(counts[k] / (len(labels) - counts[k]))
        tests.append(coverage(against, labels == k, binning=binning, alpha=_FAIL / models))
    return tuple(tests)


def _coverage(tests: tuple[Coverage, ...], names: Sequence[str]) -> Check:
    worst = min(range(len(tests)), key=lambda i: tests[i].p_value)
    test, name = tests[worst], names[worst - len(tests)]
    verdict = _verdict(test.p_value, len(tests))
    residuals = ""
    if np.isfinite(test.std_residual):
        mean = wording.fixed(test.mean_residual)
        residuals = f"; residuals {mean} ± {test.std_residual:.2f} (exact: 0 ± 1)"
    finding = (
        f"p = {wording.p_value(test.p_value)} for {harmless(name)}{_lowest_of(tests, 'models')}{residuals}."
    )
    advice = (
        "Probabilities do not match the draws: simulate more, lower alpha, try another network, or correct "
        "log K with net.recalibrate(sims)."
    )
    return judged("coverage", verdict, finding, advice)


def _bins(tests: tuple[Coverage, ...], names: Sequence[str]) -> Check:
    p_values = [_binomial(test) for test in tests]
    worst = min(range(len(tests)), key=lambda i: p_values[i].min() * len(p_values[i]))
    test, i = tests[worst], int(p_values[worst].argmin())
    low, high = logit(test.edges[i])
    place = f"{wording.fixed(low, 1)} to {wording.fixed(high, 1)}"
    if np.isinf(low) or np.isinf(high):
        place = f"above {wording.fixed(low, 1)}" if np.isinf(high) else f"below {wording.fixed(high, 1)}"
    p = min(1.0, float(p_values[worst][i]) * len(test.count))
    verdict = _verdict(p, len(tests))
    finding = (
        f"Worst of {len(test.count)} is {place}: {harmless(names[worst - len(tests)])} predicted in "
        f"{wording.fraction(test.predicted[i])}, observed in {wording.fraction(test.observed[i])} of "
        f"{test.count[i]:,} draws (p = {wording.p_value(p)})."
    )
    advice = "Log K is off there: simulate more, or correct it with net.recalibrate(sims)."
    return judged("log-odds bins", verdict, finding, advice)


def _turing_good(tests: Mapping[tuple[int, int], TuringGood], names: Sequence[str]) -> Check:
    usable = {pair: test for pair, test in tests.items() if test.effective >= _LEAST_FOR_MOMENTS}
    if not usable:
        most = max(test.effective for test in tests.values())
        finding = (
            f"Single draws dominate E0[K^½] or E1[K^−½]: they count as {most:.0f} draws, too few to tell."
        )
        return Check("Turing–Good", "warn", finding, "Simulate more draws to check with.")
    above, below = max(usable, key=lambda pair: abs(usable[pair].z))
    test = usable[above, below]
    # Pairs that were left out are counted too. That errs on the safe side.
    verdict = _verdict(test.p_value, len(tests))
    of = (
        "" if len(tests) == 1 else f" for {pair_text(names[above], names[below])}{_lowest_of(tests, 'pairs')}"
    )
    if len(usable) < len(tests):
        of += f"; {len(tests) - len(usable)} pairs have too few draws that count"
    z, p = round(test.z, 1) + 0.0, wording.p_value(test.p_value)
    finding = f"E0[K^½] − E1[K^−½] is {z:+.1f} errors from 0 (p = {p}){of}."
    advice = "Log K as a whole is off: lower alpha, or correct it with net.recalibrate(sims)."
    return judged("Turing–Good", verdict, finding, advice)


def _mean_probability(tests: Mapping[int, MeanProbability], names: Sequence[str]) -> Check:
    usable = {k: test for k, test in tests.items() if test.effective >= _LEAST_FOR_MEANS}
    if not usable:
        most = max(test.effective for test in tests.values())
        finding = f"Only {most:.0f} draws are uncertain enough to count, too few to tell."
        return Check("mean probability", "warn", finding, "Simulate more draws to check with.")
    worst = max(usable, key=lambda k: abs(usable[k].z))
    test = usable[worst]
    verdict = _verdict(test.p_value, len(tests))
    finding = (
        f"{wording.with_error(test.value, test.error)} of {harmless(names[worst])}, whose share is "
        f"{test.share:.4g} (p = {wording.p_value(test.p_value)}){_lowest_of(tests, 'models')}."
    )
    advice = "Log K favours a model too much: correct it with net.recalibrate(sims)."
    return judged("mean probability", verdict, finding, advice)


def _information(result: Score) -> Check:
    finding = (
        f"Log score {result.value:.4f} ± {result.error:.4f} nats, a gain of "
        f"{wording.fixed(result.gain, 4)} ± {result.gain_error:.4f} over knowing nothing "
        f"({result.nothing:.4f})."
    )
    if result.informative:
        return Check("information", "pass", finding)
    advice = (
        "It tells the models apart no better than chance: either they predict the same data, or it needs "
        "more draws or another network."
    )
    return Check("information", "warn", finding, advice)


def range_check(ranges: Mapping[tuple[int, int], Range], names: Sequence[str]) -> Check:
    """State the validated range; of more than two models the narrowest, by the numbers of each pair."""
    empty = [pair_text(names[above], names[below]) for (above, below), one in ranges.items() if one.empty]
    if empty:
        others = " and others" if len(empty) > _MOST_NAMED else ""
        finding = f"The validated range is empty for {', '.join(empty[:_MOST_NAMED])}{others}."
        advice = (
            "Simulate more draws. If the models hardly overlap, log K is large, and only a bound is known."
        )
        return Check("range", "warn", finding, advice)
    above, below = narrowest(ranges)
    one = ranges[above, below]
    pair = (
        ""
        if len(ranges) == 1
        else f"; {pair_text(names[above], names[below])}, the narrowest of {len(ranges)}"
    )
    ends = f"{wording.fixed(one.low)} to {wording.fixed(one.high)}"
    draws = f"{one.n[0]:,} + {one.n[1]:,} draws"
    return Check("range", "pass", f"Log K is validated from {ends} by {draws}{pair}.")


def narrowest(ranges: Mapping[tuple[int, int], Range]) -> tuple[int, int]:
    """Return the pair of models whose validated range is the narrowest; empty ones have no width."""
    return min(ranges, key=lambda pair: ranges[pair].high - ranges[pair].low)


def _binomial(test: Coverage) -> Array:
    """Two-sided p-value of each bin's number of draws of model 1.

    A sum of labels with unequal probabilities scatters less than a binomial with their mean (Hoeffding 1956).
    Fixed numbers of draws of each model lower the scatter further. So the p-values err on the safe side.
    """
    n, p = test.count.astype(np.float64), test.predicted
    ones = np.round(test.observed * n)
    as_many = np.where(ones > 0, betainc(np.maximum(ones, 1), n - ones + 1, p), 1.0)
    as_few = np.where(ones < n, betainc(np.maximum(n - ones, 1), ones + 1, 1 - p), 1.0)
    return np.minimum(1.0, 2 * np.minimum(as_many, as_few))


def _verdict(p: float, tests: int) -> Verdict:
    return "fail" if p * tests < _FAIL else "warn" if p * tests < _WARN else "pass"


def _lowest_of(tests: Sized, what: str) -> str:
    return f", the lowest of {len(tests)} {what}" if len(tests) > 1 else ""
