"""The answer for one observation: log Bayes factor, error, probabilities, and what to beware of."""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from evidencenet.trust import Range
from evidencenet.wording import odds, with_error

# Jeffreys (1961), appendix B: grades of evidence by powers of √10.
_JEFFREYS = ("barely worth mentioning", "substantial", "strong", "very strong", "decisive")
_STRANGE = 0.001
_STRANGE_AT_MOST = 0.01


@dataclass(frozen=True, eq=False)
class Comparison:
    """What an observation says about the models; print it.

    Attributes
    ----------
    names
        The models.
    log_k
        Natural log Bayes factor of each model against the first, shape (K,); for two models a number,
        log p(x|M1) − log p(x|M0).
    error
        Its standard error, from the spread of the ensemble (jackknife); NaN for a single member. It does not
        hold what all members share, such as too few draws to train on.
    probabilities
        Posterior probability of each model, shape (K,), under the prior given to `compare`.
    range
        The log K that the held-out draws can vouch for, of each model against the first, a tuple of K − 1;
        for two models one `Range`.
    novelty
        Per model the p-value of the observation's distance from that model's draws, shape (K,): how often a
        draw of the model lies farther out.
    warnings
        Sentences; empty if there is nothing to beware of.
    """

    names: tuple[str, ...]
    log_k: float | np.ndarray
    error: float | np.ndarray
    probabilities: np.ndarray
    range: Range | tuple[Range, ...]
    novelty: np.ndarray
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = self._two() if len(self.names) == 2 else self._many()
        listed = ", ".join(f"{n} {p:.4g}" for n, p in zip(self.names, self.probabilities, strict=True))
        lines.append(f"  probabilities   {listed}")
        strange = ", ".join(f"{p:.3g}" for p in self.novelty)
        lines.append(f"  like the draws? p = {strange} (how often a draw of each model lies farther out)")
        lines += [f"  Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _two(self) -> list[str]:
        log_k, error = float(self.log_k), float(self.error)
        favoured, other = (self.names[1], self.names[0]) if log_k >= 0 else self.names
        return [
            f"{self.names[1]} against {self.names[0]}",
            f"  log K           {with_error(log_k, error)} (natural log; "
            f"log10 K {with_error(log_k / np.log(10), error / np.log(10))})",
            f"  odds            {odds(abs(log_k))} for {favoured} over {other}: {jeffreys(log_k)}",
        ]

    def _many(self) -> list[str]:
        lines = [f"{len(self.names)} models, best first"]
        log_k, error = np.asarray(self.log_k), np.asarray(self.error)
        for k in np.argsort(-log_k):
            against = "" if k == 0 else f"log K {with_error(log_k[k], error[k])} against {self.names[0]}"
            lines.append(f"  {self.names[k]:<15} {against or 'the reference'}")
        return lines


def compare(
    names: tuple[str, ...],
    log_k: np.ndarray,
    error: np.ndarray,
    log_prior: np.ndarray,
    ranges: tuple[Range, ...],
    novelty: np.ndarray,
    least: float = 0.0,
) -> Comparison:
    """Put together the answer from log K (K,) against model 0, its error (K,), and log prior (K,).

    `least` is the smallest p-value that the held-out draws can tell.
    """
    warnings = []
    for k in range(1, len(names)):
        held = ranges[k - 1]
        if held.contains(log_k[k]):
            continue
        pair = f"{names[k]} against {names[0]}"
        draws = f"{sum(held.n):,} held-out draws"
        if held.empty:
            warnings.append(f"{pair}: {draws} can confirm no log K, the models overlap too little.")
        elif log_k[k] > held.high:
            warnings.append(f"{pair}: log K > {held.high:.1f} is all that {draws} can confirm.")
        else:
            warnings.append(f"{pair}: log K < {held.low:.1f} is all that {draws} can confirm.")
    # Few draws do not know small p-values; then to lie farther out than all of them is strange enough.
    strange = max(_STRANGE, least if least < _STRANGE_AT_MOST else 0.0)
    if np.all(novelty <= strange):
        warnings.append(
            f"no model produces data like this (p ≤ {strange:.2g} under each): "
            "the Bayes factor compares wrong models."
        )
    two = len(names) == 2
    return Comparison(
        names,
        float(log_k[1]) if two else log_k,
        float(error[1]) if two else error,
        softmax(log_k + log_prior),
        ranges[0] if two else ranges,
        novelty,
        tuple(warnings),
    )


def jeffreys(log_k: float) -> str:
    """Jeffreys' words for the strength of evidence, whichever model it favours.

    Examples
    --------
    >>> jeffreys(-2.0)
    'substantial evidence'
    """
    grade = int(min(4, abs(log_k) / (0.5 * np.log(10))))
    return f"{_JEFFREYS[grade]}{'' if grade == 0 else ' evidence'}"
