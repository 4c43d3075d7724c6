"""The answer for one observation: log Bayes factor, error, probabilities, and what to beware of."""

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from evidencenet._common import wording
from evidencenet._common.display import card, frame, plain
from evidencenet.checks.range import Range
from evidencenet.estimator.densities import difference, finite

if TYPE_CHECKING:
    import pandas

_STRANGE = 0.001
_STRANGE_AT_MOST = 0.01
_LN10 = float(np.log(10.0))
_INDENT = 18


@dataclass(frozen=True)
class Lead:
    """The best model against the second best.

    Attributes
    ----------
    best, other
        Numbers of the two models.
    log_k, error
        Natural log K of the one against the other, 0 or more, and its standard error.
    range
        The log K of this pair that the held-out draws can vouch for.
    """

    best: int
    other: int
    log_k: float
    error: float
    range: Range

    @property
    def confirmed(self) -> float:
        """The log K that the held-out draws confirm: itself, the end of the range it lies beyond, or NaN."""
        return self.range.confirmed(self.log_k)

    def odds(self) -> str:
        """Return the odds in words: a number, a bound, or that there is none."""
        if self.range.empty:
            return f"not confirmed (the network says {wording.odds(self.log_k)})"
        if self.range.contains(self.log_k):
            return wording.odds(self.log_k)
        if self.confirmed <= 0:
            return f"not settled (the network says {wording.odds(self.log_k)})"
        above = self.log_k > self.range.high
        end = float(wording.bound(self.confirmed, above=above)[2:])
        return f"{'more' if above else 'less'} than {wording.odds(end)}"

    def words(self) -> str:
        """Return Jeffreys' and Kass and Raftery's words for what is confirmed; empty if nothing is."""
        if not (self.confirmed > 0 or self.range.contains(self.log_k)):
            return ""
        size = self.confirmed
        return f"{wording.jeffreys(size)} by Jeffreys, {wording.kass_raftery(size)} by Kass & Raftery"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What an observation says about the models; print it, or show it in a notebook.

    Attributes
    ----------
    names
        The models.
    log_k
        Natural log Bayes factor of each model against the first, shape (K,); for two models a number,
        log p(x|M1) − log p(x|M0).
    error
        Its standard error; NaN if it is not known.
    probabilities
        Posterior probability of each model, shape (K,), under the prior given to `compare`.
    range
        The log K that the held-out draws can vouch for, of each model against the first, a tuple of K − 1;
        for two models one `Range`. Beyond it, log K is no more than a bound. It has infinite ends where a
        known density vouches for log K of any size.
    novelty
        Per model the p-value of the observation's distance from that model's draws, shape (K,): how often a
        draw of the model lies farther out. NaN if it was not computed.
    warnings
        Sentences; empty if there is nothing to beware of.
    lead
        The best model against the second best.
    recalibrated
        To how many draws log K was recalibrated; 0 if it was not.
    """

    names: tuple[str, ...]
    log_k: float | np.ndarray
    error: float | np.ndarray
    probabilities: np.ndarray
    range: Range | tuple[Range, ...]
    novelty: np.ndarray
    warnings: tuple[str, ...]
    lead: Lead
    recalibrated: int = 0

    @property
    def inside(self) -> bool | tuple[bool, ...]:
        """Whether log K lies in `range`: of each model against the first, K − 1; for two models one bool."""
        if isinstance(self.range, Range):
            return bool(self.range.contains(self.log_k))
        pairs = zip(self.range, np.asarray(self.log_k)[1:], strict=True)
        return tuple(bool(held.contains(value)) for held, value in pairs)

    def __str__(self) -> str:
        lines = [self._title()]
        for name, text in self._rows():
            line = f"  {name:<{_INDENT - 3}} {text}"
            lines.append(fill(line, 110, subsequent_indent=" " * _INDENT, break_long_words=False))
        lines += [fill(f"  Warning: {w}", 110, subsequent_indent="    ") for w in self._other_warnings()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows(), notes=self._other_warnings())

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON knows them; what is NaN or infinite is None."""
        ranges = self.range if isinstance(self.range, tuple) else (self.range,)
        held = [None if r.empty else {"low": r.low, "high": r.high, "draws": sum(r.n)} for r in ranges]
        lead = self.lead
        return plain(
            {
                "names": self.names,
                "log_k": self.log_k,
                "error": self.error,
                "log10_k": np.asarray(self.log_k) / _LN10,
                "log10_error": np.asarray(self.error) / _LN10,
                "probabilities": self.probabilities,
                "range": held[0] if len(self.names) == 2 else held,
                "inside": self.inside,
                "novelty": self.novelty,
                "best": self.names[lead.best],
                "second": self.names[lead.other],
                "best_against_second": {
                    "log_k": lead.log_k,
                    "error": lead.error,
                    "confirmed_log_k": lead.confirmed,
                    "words": lead.words(),
                },
                "recalibrated_on": self.recalibrated or None,
                "warnings": self.warnings,
            }
        )

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row a model, by its name: log K against the first model, and what belongs to it."""
        log_k, error, ranges = against_first(self)
        rows = []
        for k, name in enumerate(self.names):
            held = ranges[k - 1] if k and not ranges[k - 1].empty else None
            rows.append(
                {
                    "model": name,
                    "log_k": float(log_k[k]),
                    "error": float(error[k]),
                    "probability": float(self.probabilities[k]),
                    "range_low": held.low if held else float("nan"),
                    "range_high": held.high if held else float("nan"),
                    "inside": bool(ranges[k - 1].contains(log_k[k])) if k else True,
                    "novelty": float(self.novelty[k]),
                }
            )
        return frame(rows, "model")

    def _title(self) -> str:
        if len(self.names) == 2:
            return f"{self.names[1]} against {self.names[0]}"
        return f"{len(self.names)} models, best first; log K against {self.names[0]}, natural log"

    def _rows(self) -> list[tuple[str, str]]:
        """Say everything, line by line: what it is about, and what it is."""
        log_k, error, ranges = against_first(self)
        lead, rows = self.lead, []
        if len(self.names) == 2:
            rows += _of_pair(float(log_k[1]), float(error[1]), ranges[0])
        else:
            for k in np.argsort(-log_k, kind="stable"):
                said = "the reference" if k == 0 else f"log K {log_k_text(log_k[k], error[k], ranges[k - 1])}"
                rows.append(
                    (self.names[k], f"{said}; probability {wording.probability(self.probabilities[k])}")
                )
        words = lead.words()
        pair = f"{self.names[lead.best]} over {self.names[lead.other]}"
        rows.append(("odds", f"{lead.odds()} for {pair}{f': {words}' if words else ''}"))
        if len(self.names) == 2:
            parts = zip(self.names, self.probabilities, strict=True)
            listed = ", ".join(f"{name} {wording.probability(p)}" for name, p in parts)
            doubt = "" if self.inside else " (if the network extrapolates well)"
            rows.append(("probabilities", listed + doubt))
            if not ranges[0].empty:
                rows.append(("range", _confirmed(ranges[0], float(error[1]))))
        else:
            told = zip(self.names[1:], ranges, strict=True)
            rows.append(("confirmed log K", "; ".join(f"{name} {_ends(held)}" for name, held in told)))
        rows.append(("like the draws?", self._likeness()))
        if self.recalibrated:
            rows.append(("recalibrated", f"on {self.recalibrated:,} draws"))
        return rows

    def _likeness(self) -> str:
        if np.isnan(self.novelty).all():
            return "not computed for data of so many numbers"
        parts = zip(self.names, self.novelty, strict=True)
        listed = ", ".join(f"{wording.p_value(p)} for {name}" for name, p in parts)
        return f"p = {listed} (how often a draw of the model lies farther out)"

    def _other_warnings(self) -> list[str]:
        """Return the warnings, but for those about the range, which stand beside log K."""
        log_k, _, ranges = against_first(self)
        said = beyond(self.names, log_k, ranges)
        return [warning for warning in self.warnings if warning not in said]


def compare(
    names: tuple[str, ...],
    log_p: np.ndarray,
    error: np.ndarray,
    log_prior: np.ndarray,
    ranges: tuple[Range, ...],
    novelty: np.ndarray,
    lead: Lead,
    *,
    least: float = 0.0,
    recalibrated: int = 0,
) -> Comparison:
    """Put together the answer from log p(x|M) (K,), up to what all share, and the errors of log K (K,).

    That is log K against model 0, or against any other. `least` is the smallest p-value that the held-out
    draws can tell.
    """
    impossible = np.flatnonzero(np.isneginf(log_p))
    if len(impossible) == len(names):
        raise ValueError("the known density of every model is zero for this observation: none can be right.")
    probabilities = softmax(finite(log_p) + log_prior)
    log_k = difference(log_p, np.full_like(log_p, log_p[0]))
    warnings = beyond(names, log_k, ranges)
    # Few draws do not know small p-values; then to lie farther out than all of them is strange enough.
    strange = max(_STRANGE, least if least < _STRANGE_AT_MOST else 0.0)
    if np.all(novelty <= strange):
        warnings.append(
            f"no model produces data like this (p ≤ {strange:.2g} under each): "
            "the Bayes factor compares wrong models."
        )
    for k in impossible:
        warnings.append(f"{names[k]} cannot produce these data: its density is zero.")
    two = len(names) == 2
    return Comparison(
        names,
        float(log_k[1]) if two else log_k,
        float(error[1]) if two else error,
        probabilities,
        ranges[0] if two else ranges,
        novelty,
        tuple(warnings),
        lead,
        recalibrated,
    )


def against_first(answer: Comparison) -> tuple[np.ndarray, np.ndarray, tuple[Range, ...]]:
    """Return log K and its error against the first model, both (K,), and ranges, for two models too."""
    if isinstance(answer.range, tuple):
        return np.asarray(answer.log_k), np.asarray(answer.error), answer.range
    return np.array([0.0, float(answer.log_k)]), np.array([0.0, float(answer.error)]), (answer.range,)


def beyond(names: tuple[str, ...], log_k: np.ndarray, ranges: tuple[Range, ...]) -> list[str]:
    """Say of each log K outside its range what is confirmed of it."""
    return [
        f"{name} against {names[0]}: log K {log_k_text(value, float('nan'), held)}. Extend the range with "
        "rare draws: deepen(net, models)."
        for name, value, held in zip(names[1:], log_k[1:], ranges, strict=True)
        if not held.contains(value)
    ]


def log_k_text(log_k: float, error: float, held: Range, *, unit: float = 1.0) -> str:
    """Write a log K with its error, or as the bound that is confirmed of it, in units of `unit` nats."""
    if held.contains(log_k):
        return _with_error(log_k / unit, error / unit)
    says = f"the network says {log_k / unit:.3g}"
    if held.empty:
        return f"not confirmed: the models overlap too little among {_draws(held)} ({says})"
    end = wording.bound(held.confirmed(log_k) / unit, above=log_k > held.high)
    return f"{end} (beyond what {_draws(held)} can confirm; {says})"


def _of_pair(log_k: float, error: float, held: Range) -> list[tuple[str, str]]:
    """Write the log K of two models, natural and to base 10."""
    if held.contains(log_k):
        ten = _with_error(log_k / _LN10, error / _LN10)
        return [("log K", f"{_with_error(log_k, error)} (natural log; log10 K {ten})")]
    rows = [("log K", log_k_text(log_k, error, held))]
    if not held.empty:
        end = wording.bound(held.confirmed(log_k) / _LN10, above=log_k > held.high, decimals=2)
        rows.append(("log10 K", f"{end} (the network says {log_k / _LN10:.3g})"))
    return rows


def _with_error(log_k: float, error: float) -> str:
    return f"{log_k:.6g}, exact" if error == 0 else wording.with_error(log_k, error)


def _ends(held: Range) -> str:
    if held.unlimited:
        return "any"
    return "none" if held.empty else f"from {held.low:.2f} to {held.high:.2f}"


def _confirmed(held: Range, error: float) -> str:
    """Say what vouches for a log K of two models, in a range that is not empty."""
    if not held.unlimited:
        return f"natural log K {_ends(held)} is confirmed by {_draws(held)}"
    if error == 0:
        return "none is needed: both densities are known"
    return "log K of any size is confirmed here: one density is known, the other learned against a reference"


def _draws(held: Range) -> str:
    return f"{sum(held.n):,} held-out draws"
