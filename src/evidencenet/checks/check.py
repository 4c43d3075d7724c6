"""Checks of log Bayes factors that need no truth, each with a verdict, a finding, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, logit, logsumexp

from evidencenet._common import wording
from evidencenet.checks.coverage import Binning, Coverage, coverage
from evidencenet.checks.moments import mean_probability, turing_good
from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import check_log_odds, score

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Verdict = Literal["pass", "warn", "fail"]
# All checks together call exact log K failed in at most 2% of cases, and warn or fail in at most 5%, not
# counting warnings that there are too few draws. Each of five is given a fifth of that; within a check,
# models or pairs share its part.
_FAIL, _WARN = 0.02 / 5, 0.05 / 5
# With fewer effective draws, z-scores of the two sums of positive numbers have tails that are not normal:
# measured over the worked problems, with nominal 0.4% beyond, 1.3% were at 42 of them, and 0.4% from 200 on.
_LEAST_FOR_MOMENTS, _LEAST_FOR_MEANS = 100, 30


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
    """Make a check whose advice is given only if it does not pass."""
    return Check(name, verdict, finding, "" if verdict == "pass" else advice)


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
        - "mean probability": that of each model over all draws is its share of them;
        - "information": the score's gain over knowing nothing; calibrated log K may still say nothing;
        - "range": the log K that the draws can vouch for.

    Notes
    -----
    Exact log K fails one of the first four in less than 1.6% of cases, and one of all checks that `validate`
    makes in less than 2%; warnings and failures together come in less than 5%, besides warnings that there
    are too few draws. Levels are divided by the number of checks, and of models or pairs within a check.

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
    log_k, labels = check_log_odds(log_k, labels)
    models = log_k.shape[1]
    counts = np.bincount(labels, minlength=models)
    if counts.min() < 2:
        raise ValueError(f"the checks need two draws of each model or more, got {counts.tolist()} draws.")
    names = [f"model {k}" for k in range(models)] if names is None else list(names)
    if len(names) != models:
        raise ValueError(f"names = {names}, but log_k is of {models} models.")
    log_odds = log_k + np.log(counts / counts[0])
    pairs = list(combinations(range(models), 2))
    return (
        _coverage(coverages(log_k, labels), names),
        _bins(coverages(log_k, labels, binning="log_odds"), names),
        _turing_good(log_k, labels, names, pairs),
        _mean_probability(log_odds, labels, names),
        _information(log_odds, labels),
        _range(log_k, labels, names, pairs),
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
    scatter = ""
    if np.isfinite(test.std_residual):
        scatter = f"; residuals {test.mean_residual:.2f} ± {test.std_residual:.2f} (exact: 0 ± 1)"
    finding = f"p = {wording.p_value(test.p_value)} for {name}{_of(tests, 'models')}{scatter}."
    advice = (
        "Probabilities do not match the draws: simulate more, lower alpha, try another network, or mend "
        "log K with net.recalibrate(sims)."
    )
    return judged("coverage", verdict, finding, advice)


def _bins(tests: tuple[Coverage, ...], names: Sequence[str]) -> Check:
    p_values = [_binomial(test) for test in tests]
    worst = min(range(len(tests)), key=lambda i: p_values[i].min() * len(p_values[i]))
    test, i = tests[worst], int(p_values[worst].argmin())
    low, high = logit(test.edges[i])
    place = f"{low:.1f} to {high:.1f}"
    if np.isinf(low) or np.isinf(high):
        place = f"above {low:.1f}" if np.isinf(high) else f"below {high:.1f}"
    p = min(1.0, float(p_values[worst][i]) * len(test.count))
    verdict = _verdict(p, len(tests))
    finding = (
        f"Worst of {len(test.count)} is {place}: {names[worst - len(tests)]} predicted in "
        f"{wording.fraction(test.predicted[i])}, observed in {wording.fraction(test.observed[i])} of "
        f"{test.count[i]:,} draws (p = {wording.p_value(p)})."
    )
    advice = "Log K is off there: simulate more, or mend it with net.recalibrate(sims)."
    return judged("log-odds bins", verdict, finding, advice)


def _turing_good(log_k: Array, labels: Labels, names: Sequence[str], pairs: list[tuple[int, int]]) -> Check:
    found = {}
    for low, high in pairs:
        pair = np.isin(labels, (low, high))
        found[low, high] = turing_good(log_k[pair, high] - log_k[pair, low], labels[pair] == high)
    sure = {pair: test for pair, test in found.items() if test.effective >= _LEAST_FOR_MOMENTS}
    if not sure:
        least = max(test.effective for test in found.values())
        finding = f"Single draws dominate E0[K^½] or E1[K^−½]: as if of {least:.0f} draws, too few to tell."
        return Check("Turing–Good", "warn", finding, "Simulate more draws to check with.")
    low, high = max(sure, key=lambda pair: abs(sure[pair].z))
    test = sure[low, high]
    # Pairs that were left out are counted too: that errs on the safe side.
    verdict = _verdict(test.p_value, len(pairs))
    which = "" if len(pairs) == 1 else f" for {names[high]} against {names[low]}{_of(pairs, 'pairs')}"
    if len(sure) < len(pairs):
        which += f"; of {len(pairs) - len(sure)} too few draws count to tell"
    z, p = round(test.z, 1) + 0.0, wording.p_value(test.p_value)
    finding = f"E0[K^½] − E1[K^−½] is {z:+.1f} errors from 0 (p = {p}){which}."
    advice = "Log K is off on the whole: lower alpha, or mend it with net.recalibrate(sims)."
    return judged("Turing–Good", verdict, finding, advice)


def _mean_probability(log_odds: Array, labels: Labels, names: Sequence[str]) -> Check:
    models = range(1, 2) if len(names) == 2 else range(len(names))
    found = {k: mean_probability(log_odds, labels, k) for k in models}
    sure = {k: test for k, test in found.items() if test.effective >= _LEAST_FOR_MEANS}
    if not sure:
        most = max(test.effective for test in found.values())
        finding = f"Only {most:.0f} draws are uncertain enough to count, too few to tell."
        return Check("mean probability", "warn", finding, "Simulate more draws to check with.")
    k = max(sure, key=lambda model: abs(sure[model].z))
    test = sure[k]
    verdict = _verdict(test.p_value, len(models))
    finding = (
        f"{wording.with_error(test.value, test.error)} of {names[k]}, whose share is {test.share:.4g} "
        f"(p = {wording.p_value(test.p_value)}){_of(models, 'models')}."
    )
    advice = "Log K favours a model too much: mend it with net.recalibrate(sims)."
    return judged("mean probability", verdict, finding, advice)


def _information(log_odds: Array, labels: Labels) -> Check:
    found = score(log_odds, labels)
    finding = (
        f"Log score {found.value:.4f} ± {found.error:.4f} nats, a gain of {found.gain:.4f} ± "
        f"{found.gain_error:.4f} over knowing nothing ({found.nothing:.4f})."
    )
    if found.informative:
        return Check("information", "pass", finding)
    advice = (
        "It tells the models apart no better than chance: either they predict the same data, or it needs "
        "more draws or another network."
    )
    return Check("information", "warn", finding, advice)


def _range(log_k: Array, labels: Labels, names: Sequence[str], pairs: list[tuple[int, int]]) -> Check:
    found = {}
    for low, high in pairs:
        pair = np.isin(labels, (low, high))
        found[low, high] = validated_range(log_k[pair, high] - log_k[pair, low], labels[pair] == high)
    empty = [f"{names[high]} against {names[low]}" for (low, high), held in found.items() if held.empty]
    if empty:
        finding = f"No log K is confirmed of {', '.join(empty[:3])}{' and others' if len(empty) > 3 else ''}."
        return Check(
            "range", "warn", finding, "Simulate more; if the models hardly overlap, any log K is large."
        )
    low, high = min(found, key=lambda pair: found[pair].high - found[pair].low)
    held = found[low, high]
    which = "" if len(pairs) == 1 else f"; {names[high]} against {names[low]}, the narrowest of {len(pairs)}"
    draws = f"{held.n[0]:,} + {held.n[1]:,} draws"
    return Check(
        "range", "pass", f"Log K from {held.low:.2f} to {held.high:.2f} is confirmed by {draws}{which}."
    )


def _binomial(test: Coverage) -> Array:
    """Two-sided p-value of each bin's number of draws of model 1.

    A sum of labels with unequal probabilities scatters less than a binomial with their mean (Hoeffding 1956),
    and given numbers of draws of each model only lower it more: the p-values err on the safe side.
    """
    n, p = test.count.astype(np.float64), test.predicted
    ones = np.round(test.observed * n)
    as_many = np.where(ones > 0, betainc(np.maximum(ones, 1), n - ones + 1, p), 1.0)
    as_few = np.where(ones < n, betainc(np.maximum(n - ones, 1), ones + 1, 1 - p), 1.0)
    return np.minimum(1.0, 2 * np.minimum(as_many, as_few))


def _verdict(p: float, tests: int) -> Verdict:
    return "fail" if p * tests < _FAIL else "warn" if p * tests < _WARN else "pass"


def _of(tests: Sequence[object], what: str) -> str:
    return f", the lowest of {len(tests)} {what}" if len(tests) > 1 else ""
