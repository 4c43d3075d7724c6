"""What a report says of observations: the answer in words, the models by rank, and where it lies."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from evidencenet import plots
from evidencenet.comparison import Comparison, Lead, against_first, beyond, log_k_text
from evidencenet.estimator import EvidenceNetwork
from evidencenet.svg import inline_svg
from evidencenet.trust import Range
from evidencenet.validation import Validation
from evidencenet.wording import odds

_LN10 = float(np.log(10.0))
# In inches. Small, so that the letters can still be read where a telephone shrinks the figure to its screen.
SIZE = (4.0, 3.3)


@dataclass(frozen=True, eq=False)
class Told:
    """An answer as the page tells it.

    Attributes
    ----------
    name, place
        Of the observation, empty if it is the only one; and the id of its section.
    record
        The answer.
    favoured, other
        The two best models.
    words, odds, odds_range
        The evidence for the first over the second: in words, as odds, and the odds one error either way.
    inside, unsure, by_fresh
        Whether these odds are confirmed; whether log K is within two errors of 0; whether something is
        confirmed only by fresh draws.
    warnings
        What is left to beware of.
    ranking
        Of each model, best first, what the observation says.
    """

    name: str
    place: str
    record: Comparison
    favoured: str
    other: str
    words: str
    odds: str
    odds_range: tuple[str, str] | None
    inside: bool
    unsure: bool
    by_fresh: bool
    warnings: tuple[str, ...]
    ranking: list[dict[str, Any]]


def told(net: EvidenceNetwork, check: Validation | None, answers: Mapping[str, Comparison]) -> list[Told]:
    """Tell each answer; fresh draws may confirm what those held out in training cannot."""
    single = len(answers) == 1
    return [
        _told(net, check, answer, name, "answer" if single else f"answer-{i}")
        for i, (name, answer) in enumerate(answers.items(), 1)
    ]


def _told(net: EvidenceNetwork, check: Validation | None, answer: Comparison, name: str, place: str) -> Told:
    log_k, _, ranges = against_first(answer)
    reach = [_reach(net, check, k, 0, log_k[k], held) for k, held in enumerate(ranges, 1)]
    lead = answer.lead
    lead = replace(lead, range=_reach(net, check, lead.best, lead.other, lead.log_k, lead.range))
    # The answer warned of what its own draws cannot confirm.
    settled = set(beyond(answer.names, log_k, ranges)) - set(beyond(answer.names, log_k, tuple(reach)))
    return Told(
        name=name,
        place=place,
        record=answer,
        favoured=answer.names[lead.best],
        other=answer.names[lead.other],
        words=lead.words(),
        odds=lead.odds(),
        odds_range=_odds_range(lead),
        inside=bool(lead.range.contains(lead.log_k)),
        unsure=lead.log_k < 2 * lead.error,
        by_fresh=lead.range is not answer.lead.range or any(map(operator.is_not, reach, ranges)),
        warnings=tuple(warning for warning in answer.warnings if warning not in settled),
        ranking=_ranking(answer, reach),
    )


def _reach(
    net: EvidenceNetwork, check: Validation | None, above: int, below: int, log_k: float, held: Range
) -> Range:
    """Return the range of fresh draws, if only they confirm this log K of two models; else that given."""
    if check is None or held.contains(log_k):
        return held
    fresh = _moved(check.pair(above, below).range, net, above, below)
    return fresh if fresh.contains(log_k) else held


def _odds_range(lead: Lead) -> tuple[str, str] | None:
    """Return the odds one error either way, where they are a number and have an error."""
    if lead.error == 0 or not (np.isfinite(lead.error) and lead.range.contains(lead.log_k)):
        return None
    return odds(lead.log_k - lead.error), odds(lead.log_k + lead.error)


def _ranking(answer: Comparison, ranges: list[Range]) -> list[dict[str, Any]]:
    """Say of each model, best first, what the observation says; the first model has no log K of its own."""
    log_k, error, _ = against_first(answer)

    def text(k: int, unit: float) -> str | None:
        return log_k_text(log_k[k], error[k], ranges[k - 1], unit=unit) if k else None

    return [
        {
            "name": answer.names[k],
            "natural": text(k, 1.0),
            "ten": text(k, _LN10) if k and ranges[k - 1].contains(log_k[k]) else None,
            "probability": float(answer.probabilities[k]),
            "novelty": float(answer.novelty[k]) if np.isfinite(answer.novelty[k]) else None,
        }
        for k in np.argsort(-log_k, kind="stable")
    ]


def _moved(held: Range, net: EvidenceNetwork, above: int, below: int) -> Range:
    """Move a range of fresh draws, which did not fail, to log K of observations, which holds that chance."""
    shift = float(net.log_valid[above] - net.log_valid[below])
    return held if held.empty else replace(held, low=held.low + shift, high=held.high + shift)


def pair(
    net: EvidenceNetwork, check: Validation | None, answers: Mapping[str, Comparison], k: int
) -> dict[str, Any]:
    """Tell how log K of model k against the first is distributed, and how far it can be trusted."""
    draws: Any = net.held_out if check is None else check
    mine = np.isin(draws.label, (0, k))
    values, label = draws.log_k[mine, k].astype(np.float64), draws.label[mine] == k
    held = net.ranges[k - 1]
    if check is not None:
        values = values + float(net.log_valid[k] - net.log_valid[0])
        held = _moved(check.ranges[k - 1], net, k, 0)
    names = (net.names[0], net.names[k])
    observed = {name: float(against_first(answer)[0][k]) for name, answer in answers.items()}
    listed = ", ".join(f"{value:.2f}" for value in observed.values())
    text = f" {'The observation lies' if len(observed) == 1 else 'Observations lie'} at {listed}."
    figure = inline_svg(
        partial(
            plots.log_k_distributions,
            values,
            label,
            names,
            list(observed.values()) or None,
            model=k,
            confirmed=held,
        ),
        SIZE,
        name=f"log-k-{k}",
        title=f"Log K of {names[1]} against {names[0]}",
        text=f"Histograms of natural log K, one for draws of each model.{text if observed else ''}",
    )
    tails = [(name, value, *_tails(values, label, value)) for name, value in observed.items()]
    return {"names": names, "held": held, "tails": tails, "figure": figure}


def _tails(values: np.ndarray, label: np.ndarray, observed: float) -> list[str]:
    """Say how many draws of each of two models lie as far out as the observation, towards the other."""
    sides = (values[~label] >= observed, values[label] <= observed)
    return [f"{side.sum():,} of {len(side):,} ({100 * side.mean():.3g}%)" for side in sides]
