"""Check a network on draws it has never seen."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from evidencenet.coverage import Coverage, coverage
from evidencenet.estimator import EvidenceNetwork
from evidencenet.simulations import Simulations
from evidencenet.trust import Range, Score, TuringGood, score, turing_good, validated_range


@dataclass(frozen=True, eq=False)
class Validation:
    """What fresh draws say about a network; print it, or call `plot`.

    Attributes
    ----------
    names
        The models.
    log_k
        Log K of each draw against model 0, (n, K), for draws that did not fail.
    label
        The model of each draw, (n,).
    coverages
        The blind coverage test of each model against all others; for two models only that of model 1.
    score
        Held-out log score, beside that of knowing nothing.
    ranges
        The log K of each further model against model 0 that these draws can vouch for.
    moments
        Half-order Turing–Good check of each further model against model 0.
    """

    names: tuple[str, ...]
    log_k: np.ndarray
    label: np.ndarray
    coverages: tuple[Coverage, ...]
    score: Score
    ranges: tuple[Range, ...]
    moments: tuple[TuringGood, ...]

    @property
    def coverage(self) -> Coverage:
        """The coverage test with the lowest p-value; for two models the only one."""
        return min(self.coverages, key=lambda test: test.p_value)

    @property
    def range(self) -> Range | tuple[Range, ...]:
        """`ranges`; for two models the only one."""
        return self.ranges[0] if len(self.names) == 2 else self.ranges

    @property
    def passed(self) -> bool:
        """Whether every coverage test passed, at a joint level of 1%."""
        return all(test.passed for test in self.coverages)

    @property
    def informative(self) -> bool:
        """Whether the network knows more than nothing, by three standard errors of its score's gain."""
        return self.score.gain > 3 * self.score.gain_error

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        lines = [f"Validation on {len(self.label):,} fresh draws: coverage {verdict}"]
        for name, test in zip(self.names[-len(self.coverages) :], self.coverages, strict=True):
            lines.append(
                f"  coverage of {name}: p = {test.p_value:.3g}, residuals {test.mean_residual:.2f} ± "
                f"{test.std_residual:.2f} (0 ± 1 if exact)"
            )
        lines.append(f"  {self.score}")
        for name, held, moment in zip(self.names[1:], self.ranges, self.moments, strict=True):
            lines.append(f"  {name} against {self.names[0]}: {held}")
            lines.append(
                f"    E0[K^½] − E1[K^−½]: {moment.z:+.1f} standard errors from 0 (p = {moment.p_value:.2g})"
            )
        if not self.passed:
            lines.append(
                "  The probabilities do not match the draws. Simulate more, lower alpha of the loss, or try "
                "another network; the figure of check.plot() shows where they are off."
            )
        if not self.informative:
            lines.append(
                "  The network tells the models apart no better than chance: either they predict the same "
                "data, or it needs more draws or another architecture."
            )
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw the coverage test, its residuals, and log K under each model, on three axes; returns them."""
        from evidencenet import plots

        return plots.validation(self, axes)


def validate(net: EvidenceNetwork, sims: Simulations) -> Validation:
    """Check a network on fresh draws of its models: calibration, information, and range.

    Parameters
    ----------
    net
        The network.
    sims
        Draws that were *not* used in training, of the same models in the same order. The numbers of draws of
        each model need not be those of the training.

    Returns
    -------
    Validation
        Print it for a summary. `passed` says whether the probabilities match the draws; `score` whether they
        say anything; `range` how far log K is confirmed.

    Examples
    --------
    >>> check = validate(net, simulate([flat, trend], 50_000, seed=3))  # doctest: +SKIP
    >>> check.passed  # doctest: +SKIP
    True
    """
    if not isinstance(sims, Simulations):
        raise TypeError(f"validate takes Simulations, got a {type(sims).__name__}; make some with simulate.")
    if sims.names != net.names:
        raise ValueError(f"the draws are of {sims.names}, the network compares {net.names}, in this order.")
    if sims.log_weight is not None:
        raise ValueError("validate takes draws of equal weight; simulate from the prior the weights lead to.")
    log_k = np.stack([net.log_bayes_factor(sims.x, model=k) for k in range(len(net.names))], axis=1)
    # Only draws that did not fail are here: among them the chance to fail no longer counts.
    log_k -= net.log_valid - net.log_valid[0]
    log_odds = log_k + np.log(np.array(sims.counts) / sims.counts[0])
    pairs = [np.isin(sims.model, (0, k)) for k in range(1, len(net.names))]
    return Validation(
        net.names,
        log_k,
        sims.model,
        _coverages(log_k, log_odds, sims.model),
        score(log_odds, sims.model),
        tuple(
            validated_range(log_k[pair, k], sims.model[pair] == k) for k, pair in enumerate(pairs, start=1)
        ),
        tuple(turing_good(log_k[pair, k], sims.model[pair] == k) for k, pair in enumerate(pairs, start=1)),
    )


def _coverages(log_k: np.ndarray, log_odds: np.ndarray, label: np.ndarray) -> tuple[Coverage, ...]:
    models = log_k.shape[1]
    if models == 2:
        return (coverage(log_k[:, 1], label),)
    tests = []
    for k in range(models):
        mine = label == k
        others = np.delete(log_odds, k, axis=1)
        odds = log_odds[:, k] - logsumexp(others, axis=1)
        # A Bayes factor against the mixture of the others: coverage() adds the prior odds again.
        against = odds - np.log(mine.sum() / (~mine).sum())
        tests.append(coverage(against, mine.astype(int), alpha=0.01 / models))
    return tuple(tests)
