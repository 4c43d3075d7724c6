"""The answer for an observation: log Bayes factors, errors, probabilities, and warnings.

`PairAnswer` is about one pair of models, `Comparison` about one observation, `Comparisons` about several.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from scipy.special import softmax

from evidencenet._common import wording
from evidencenet._common.arguments import no_attribute
from evidencenet._common.arrays import index_of
from evidencenet._common.display import card, frame, plain
from evidencenet._common.harmless import harmless, pair_text
from evidencenet.checks.range import Bound, Range
from evidencenet.estimator.densities import difference, finite

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

Kind = Literal["range", "novelty", "constant", "impossible"]
# Data are called unlike the draws of a model if its novelty p-value is below this: one draw in a thousand is.
_NOVEL = 0.001
# Few held-out draws have no p-values that small. Then the smallest they have counts, if it is below this.
_NOVEL_AT_MOST = 0.01
_LN10 = float(np.log(10.0))
# What people look for in an answer, and where it is.
_HINTS = {
    "logk": "log_k",
    "lnk": "log_k",
    "log_bayes_factor": "log_k",
    "log_bf": "log_k",
    "bf": "bayes_factor",
    "k": "bayes_factor",
    "p_value": "novelty",
    "posterior": "probabilities",
    "probability": "probabilities",
    "std": "error",
    "sigma": "error",
    "log_k_error": "error",
    "winner": "best",
    "summary": "to_dict() or to_dataframe()",
}
# Width of the printed text, and where the second column starts: after "validated range".
_WIDTH, _INDENT = 110, 18
# A table of more observations is printed with its middle left out.
_SHOWN_ROWS = 40


@dataclass(frozen=True)
class AnswerWarning:
    """One warning of an answer; `str` gives its text.

    Attributes
    ----------
    kind
        "range": a log K lies beyond its validated range. "novelty": the data are unlike the draws of every
        model. "constant": a number that was the same in every draw is another one here. "impossible": the
        known density of a model is zero for these data.
    text
        The warning as a sentence.
    """

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text


class Extrapolated(float):
    """A number beyond the validated range. It is a float, but is shown as the bound that holds instead.

    Examples
    --------
    >>> Extrapolated(31.2, "> 4.3")
    > 4.3 (bound; the network says 31.2)
    >>> Extrapolated(31.2, "> 4.3") + 1
    32.2
    """

    bound: str

    def __new__(cls, value: float, bound: str) -> "Extrapolated":
        """Make the number, with the text of its bound; empty if there is none."""
        number = super().__new__(cls, value)
        number.bound = bound
        return number

    def __repr__(self) -> str:
        says = f"the network says {float(self):.3g}"
        return f"{self.bound} (bound; {says})" if self.bound else f"not validated ({says})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return Extrapolated, (float(self), self.bound)


@dataclass(frozen=True)
class PairAnswer:
    """What an observation says about one model against another.

    Attributes
    ----------
    model, against
        The names of the two.
    estimate, error
        Natural log K = log p(x|model) − log p(x|against) as the network gives it, and its standard error; the
        error is NaN if it is not known, 0 if log K is exact.
    range
        The validated range of this log K. Beyond it, only `bound` is known. It has infinite ends where
        known densities make log K of any size right.
    """

    model: str
    against: str
    estimate: float
    error: float
    range: Range

    @property
    def in_range(self) -> bool:
        """Whether log K lies in the validated range."""
        return bool(self.range.contains(self.estimate))

    @property
    def bound(self) -> Bound | None:
        """The bound that holds with 97.5% confidence beyond the range; None inside it, or if it is empty."""
        return self.range.bound(self.estimate, self.error)

    @property
    def log_k(self) -> float:
        """Natural log K. Beyond the validated range it is shown as its bound, not as a number."""
        return self.estimate if self.in_range else Extrapolated(self.estimate, self._bound())

    @property
    def log10_k(self) -> float:
        """Decimal log K, shown as its bound beyond the validated range."""
        value = self.estimate / _LN10
        return value if self.in_range else Extrapolated(value, self._bound(_LN10, 2))

    @property
    def bayes_factor(self) -> float:
        """K itself, infinite if too large for a float; shown as its bound beyond the validated range."""
        with np.errstate(over="ignore"):
            value = float(np.exp(self.estimate))
        if self.in_range:
            return value
        bound = self.bound
        if bound is None:
            return Extrapolated(value, "")
        end = float(bound.text()[2:])
        return Extrapolated(value, f"{'>' if bound.above else '<'} {wording.odds(end).removesuffix(' : 1')}")

    @property
    def odds(self) -> str:
        """The odds for the model that the data favour: a number, a bound, or that there is none."""
        pair = self.favouring()
        if pair.range.empty:
            return f"not validated (the network says {wording.odds(pair.estimate)})"
        if (bound := pair.bound) is None:
            return wording.odds(pair.estimate)
        end = float(bound.text()[2:])
        if end <= 0:
            return f"not settled (the network says {wording.odds(pair.estimate)})"
        return f"{'more' if bound.above else 'less'} than {wording.odds(end)}"

    @property
    def words(self) -> str:
        """Jeffreys' and Kass and Raftery's words for the evidence, or for its bound; empty without one."""
        pair = self.favouring()
        bound = pair.bound
        if pair.range.empty or (bound is not None and float(bound.text()[2:]) <= 0):
            return ""
        size = pair.estimate if bound is None else bound.value
        return f"{wording.jeffreys(size)} by Jeffreys, {wording.kass_raftery(size)} by Kass & Raftery"

    def favouring(self) -> "PairAnswer":
        """Return the same pair with the model that the data favour first, so that log K is not negative."""
        return self if self.estimate >= 0 else self.reversed()

    def reversed(self) -> "PairAnswer":
        """Return the same pair the other way round."""
        return PairAnswer(self.against, self.model, 0.0 - self.estimate, self.error, self.range.reversed())

    def text(self, *, unit: float = 1.0) -> str:
        """Write log K with its error, or as the bound that holds, in units of `unit` nats."""
        if self.in_range:
            return _with_error(self.estimate / unit, self.error / unit)
        says = f"the network says {self.estimate / unit:.3g}"
        draws = f"{sum(self.range.n):,} held-out draws"
        if (bound := self.bound) is None:
            return f"not validated: the models overlap too little among {draws} ({says})"
        return f"{bound.text(unit=unit)} (97.5% bound, beyond the validated range of {draws}; {says})"

    def __str__(self) -> str:
        return f"{pair_text(self.model, self.against)}: log K {self.text()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, one level deep."""
        validated, bound = self.range, self.bound
        return {
            "model": self.model,
            "against": self.against,
            "log_k": self.estimate,
            "error": self.error,
            "log10_k": self.estimate / _LN10,
            "range_low": float("nan") if validated.empty else validated.low,
            "range_high": float("nan") if validated.empty else validated.high,
            "in_range": self.in_range,
            "bound": None if bound is None else bound.text(),
            "words": self.words,
        }

    def _bound(self, unit: float = 1.0, decimals: int = 1) -> str:
        return "" if (bound := self.bound) is None else bound.text(unit=unit, decimals=decimals)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What one observation says about the models; print it, show it in a notebook, or call `plot`.

    `log_k`, `error`, `range`, `in_range`, `bound`, `log10_k`, `bayes_factor` and `words` are those of one
    pair of models, named by `model` and `against`: for two models the second against the first; for more
    the best against the second best, unless `compare` was asked for another pair.

    Attributes
    ----------
    names
        The K models.
    model, against
        The pair that `log_k` is about.
    pairs
        Log K of every two models, the later against the earlier; see also `pair` and
        ``to_dataframe("pair")``.
    ranking
        The numbers of the models, best first, by their evidence p(x|model).
    probabilities, probability_errors
        Posterior probability of each model under the prior given to `compare`, and its standard error, (K,).
    novelty
        For each model the p-value of the observation's distance from its draws, shape (K,): how often a draw
        of the model lies farther out. NaN if it was not computed.
    warnings
        `AnswerWarning` records; empty if there is nothing to beware of.
    recalibrated
        To how many draws log K was recalibrated; 0 if it was not.
    valid
        The fraction of each model's draws that did not fail, (K,). Log K includes the log of their ratio; see
        `failed_term`.
    """

    names: tuple[str, ...]
    model: str
    against: str
    pairs: tuple[PairAnswer, ...]
    ranking: tuple[int, ...]
    probabilities: np.ndarray
    probability_errors: np.ndarray
    novelty: np.ndarray
    warnings: tuple[AnswerWarning, ...]
    recalibrated: int = 0
    valid: np.ndarray | None = None

    def pair(self, model: int | str | None = None, against: int | str | None = None) -> PairAnswer:
        """Return what the observation says about any two models, each by number or name.

        Without arguments these are `model` and `against`.
        """
        first = index_of(self.model if model is None else model, self.names)
        second = index_of(self.against if against is None else against, self.names)
        if first == second:
            raise ValueError(f"model and against are both {self.names[first]!r}; wanted two models.")
        for pair in self.pairs:
            if (pair.model, pair.against) == (self.names[max(first, second)], self.names[min(first, second)]):
                return pair if first > second else pair.reversed()
        raise AssertionError("an answer holds every pair")

    def failed_term(self, model: int | str | None = None, against: int | str | None = None) -> float:
        """Return the part of log K of two models that comes from failed draws, log(v_model/v_against).

        v is the fraction of a model's draws that did not fail: a model whose draws often fail predicts valid
        data less often.
        """
        pair = self.pair(model, against)
        if self.valid is None:
            return 0.0
        above, below = self.names.index(pair.model), self.names.index(pair.against)
        return float(np.log(self.valid[above] / self.valid[below]))

    @property
    def best(self) -> str:
        """The model with the largest evidence p(x|model)."""
        return self.names[self.ranking[0]]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(no_attribute(self, name, _HINTS))

    def __float__(self) -> float:
        """Say which number is meant: beyond the validated range log K is only a bound."""
        raise TypeError(
            "an answer is not one number. Write answer.log_k, answer.log10_k or answer.bayes_factor."
        )

    @property
    def lead(self) -> PairAnswer:
        """The best model against the second best."""
        return self.pair(*self.ranking[:2])

    @property
    def log_k(self) -> float:
        """Natural log K of `model` against `against`; beyond the validated range it is shown as its bound."""
        return self.pair().log_k

    @property
    def log10_k(self) -> float:
        """Decimal log K of `model` against `against`; beyond the validated range it is shown as its bound."""
        return self.pair().log10_k

    @property
    def bayes_factor(self) -> float:
        """K of `model` against `against`; beyond the validated range it is shown as its bound."""
        return self.pair().bayes_factor

    @property
    def error(self) -> float:
        """Standard error of `log_k`; NaN if it is not known, 0 if log K is exact."""
        return self.pair().error

    @property
    def range(self) -> Range:
        """The validated range of `log_k`."""
        return self.pair().range

    @property
    def in_range(self) -> bool:
        """Whether `log_k` lies in its validated range."""
        return self.pair().in_range

    @property
    def bound(self) -> Bound | None:
        """Beyond the validated range, the bound on `log_k` that holds with 97.5% confidence; else None."""
        return self.pair().bound

    @property
    def words(self) -> str:
        """Jeffreys' and Kass and Raftery's words for the evidence of `model` and `against`."""
        return self.pair().words

    def __str__(self) -> str:
        lines = [self._title()]
        for name, text in self._rows():
            line = f"  {name:<{_INDENT - 3}} {text}"
            lines.append(fill(line, _WIDTH, subsequent_indent=" " * _INDENT, break_long_words=False))
        lines += [fill(f"  Warning: {w}", _WIDTH, subsequent_indent="    ") for w in self._other_warnings()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows(), notes=self._other_warnings())

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON has them; NaN and infinity become None."""
        pair, lead = self.pair(), self.lead
        validated = pair.range
        ends = {"low": validated.low, "high": validated.high, "draws": sum(validated.n)}
        return plain(
            {
                "names": self.names,
                "model": self.model,
                "against": self.against,
                "log_k": pair.estimate,
                "error": pair.error,
                "log10_k": pair.estimate / _LN10,
                "log10_error": pair.error / _LN10,
                "range": None if validated.empty else ends,
                "in_range": pair.in_range,
                "bound": pair.bound and {"value": pair.bound.value, "above": pair.bound.above},
                "probabilities": self.probabilities,
                "probability_errors": self.probability_errors,
                "novelty": self.novelty,
                "best": lead.model,
                "second": lead.against,
                "words": lead.words,
                "pairs": [one.to_dict() for one in self.pairs],
                "failed_term": self.failed_term(),
                "recalibrated_on": self.recalibrated or None,
                "warnings": [vars(warning) for warning in self.warnings],
            }
        )

    def to_dataframe(self, by: Literal["model", "pair"] = "model") -> "pandas.DataFrame":
        """Return one row a model, with log K against the first model; or one row a pair of models."""
        if by == "pair":
            return frame([plain_row(pair.to_dict()) for pair in self.pairs], "model")
        if by != "model":
            raise ValueError(f'by = {by!r}; wanted "model" or "pair".')
        rows = []
        for k, name in enumerate(self.names):
            pair = self.pair(k, 0).to_dict() if k else {}
            rows.append(
                {
                    "model": name,
                    "log_k": pair.get("log_k", 0.0),
                    "error": pair.get("error", 0.0),
                    "probability": float(self.probabilities[k]),
                    "probability_error": float(self.probability_errors[k]),
                    "range_low": pair.get("range_low", float("nan")),
                    "range_high": pair.get("range_high", float("nan")),
                    "in_range": pair.get("in_range", True),
                    "novelty": float(self.novelty[k]),
                }
            )
        return frame(rows, "model")

    def plot(self, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
        """Draw the probabilities, and log K of every pair with its validated range, on two axes."""
        from evidencenet.report import plots

        return plots.answer(self, axes)

    def _title(self) -> str:
        if len(self.names) == 2:
            return pair_text(self.names[1], self.names[0])
        return f"{len(self.names)} models, best first; log K against {harmless(self.names[0])}, natural log"

    def _rows(self) -> list[tuple[str, str]]:
        """Return all lines: label and text."""
        two, lead, rows = len(self.names) == 2, self.lead, []
        shown = [harmless(name) for name in self.names]
        chances = self._probability_texts()
        if two:
            rows += _of_two(self.pairs[0])
        else:
            for k in self.ranking:
                text = f"log K {self.pair(k, 0).text()}" if k else "the others' log K is against this model"
                rows.append((shown[k], f"probability {chances[k]}; {text}"))
        evidence = f": {lead.words}" if lead.words else ""
        rows.append(
            ("odds", f"{lead.odds} for {harmless(lead.model)} over {harmless(lead.against)}{evidence}")
        )
        if two:
            doubt = "" if self.in_range else " (if the network extrapolates well)"
            texts = (f"{name} {p}" for name, p in zip(shown, chances, strict=True))
            rows.append(("probabilities", ", ".join(texts) + doubt))
            if not self.pairs[0].range.empty:
                rows.append(("validated range", _range_text(self.pairs[0])))
        else:
            ends = (f"{harmless(pair.model)} {_ends(pair.range)}" for pair in self._against_first())
            rows.append(("validated range", f"log K of {'; '.join(ends)}"))
        rows.append(("novelty", self._novelty_text()))
        if failed := self._failed_text():
            rows.append(("failed draws", failed))
        if self.recalibrated:
            rows.append(("recalibrated", f"on {self.recalibrated:,} draws"))
        return rows

    def _against_first(self) -> list[PairAnswer]:
        return [self.pair(k, 0) for k in range(1, len(self.names))]

    def _probability_texts(self) -> list[str]:
        errors = self.probability_errors if self.in_range else None
        return wording.probabilities(self.probabilities.tolist(), None if errors is None else errors.tolist())

    def _failed_text(self) -> str:
        """Say how failed draws enter log K, if that is more than the error; else nothing."""
        pair, term = self.pair(), self.failed_term()
        # An unknown error (NaN) hides nothing.
        if self.valid is None or term == 0 or abs(term) <= pair.error:
            return ""
        parts = zip(self.names, 1 - self.valid, strict=True)
        failed = ", ".join(f"{100 * part:.3g}% of {harmless(name)}" for name, part in parts)
        return (
            f"{wording.fixed(term)} of log K of {pair_text(pair.model, pair.against)} comes from "
            f"draws that failed ({failed})"
        )

    def _novelty_text(self) -> str:
        if np.isnan(self.novelty).all():
            return "not computed for data of so many numbers"
        parts = zip(self.names, self.novelty, strict=True)
        listed = ", ".join(f"{wording.p_value(p)} for {harmless(name)}" for name, p in parts)
        return f"p = {listed} (how often a draw of the model lies farther out)"

    def _other_warnings(self) -> list[str]:
        """Return the warnings that are not about the range: that stands beside log K already."""
        return [warning.text for warning in self.warnings if warning.kind != "range"]


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(Sequence[Comparison]):
    """Answers for several observations, each by itself: a sequence of `Comparison`, printed as a table.

    If the observations share parameters, the evidence of all together is *not* the sum of these log K:
    simulate them together as one x instead.

    Attributes
    ----------
    answers
        One `Comparison` for each observation.
    """

    answers: tuple[Comparison, ...]

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int) -> Comparison: ...

    @overload
    def __getitem__(self, index: slice) -> "Comparisons": ...

    def __getitem__(self, index: int | slice) -> "Comparison | Comparisons":
        if isinstance(index, slice):
            return Comparisons(self.answers[index])
        return self.answers[index]

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.answers)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(no_attribute(self, name, _HINTS))

    @property
    def log_k(self) -> list[float]:
        """Natural log K of each observation; beyond the validated range it is shown as its bound."""
        return [answer.log_k for answer in self.answers]

    @property
    def error(self) -> np.ndarray:
        """Standard error of each log K, (n,)."""
        return np.array([answer.error for answer in self.answers])

    @property
    def in_range(self) -> np.ndarray:
        """Whether each log K lies in its validated range, (n,)."""
        return np.array([answer.in_range for answer in self.answers])

    @property
    def probabilities(self) -> np.ndarray:
        """Posterior probability of each model for each observation, (n, K)."""
        return np.stack([answer.probabilities for answer in self.answers])

    @property
    def novelty(self) -> np.ndarray:
        """P-values of novelty of each observation for each model, (n, K)."""
        return np.stack([answer.novelty for answer in self.answers])

    def table(self, rows: Sequence[int] | None = None) -> str:
        """Write one line for each observation; `rows` are their numbers, from 0 on by default."""
        if not self.answers:
            return "no observations"
        numbers = range(len(self)) if rows is None else rows
        return "\n".join([self._header(), *map(self._line, numbers, self.answers)])

    def __str__(self) -> str:
        if len(self) <= _SHOWN_ROWS:
            return self.table()
        half = _SHOWN_ROWS // 2
        left_out = f"{'…':>5}  {len(self) - 2 * half:,} more observations"
        lines = [self._header(), *map(self._line, range(half), self.answers), left_out]
        last = range(len(self) - half, len(self))
        return "\n".join([*lines, *(self._line(i, self.answers[i]) for i in last)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        shown = self.answers[:_SHOWN_ROWS]
        more = [f"{len(self) - len(shown):,} more observations"] if len(self) > len(shown) else []
        rows = [(str(i), self._line(i, answer)[5:].strip()) for i, answer in enumerate(shown)]
        return card(f"{len(self):,} observations", [*rows, *(("…", text) for text in more)])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON has them."""
        return {"answers": [answer.to_dict() for answer in self.answers]}

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row an observation: log K of its pair of models, and the probability of each model."""
        rows = []
        for number, answer in enumerate(self.answers):
            probabilities = zip(answer.names, answer.probabilities, strict=True)
            rows.append(
                {
                    "row": number,
                    "best": answer.lead.model,
                    **plain_row(answer.pair().to_dict()),
                    **{f"p({name})": float(p) for name, p in probabilities},
                    "novelty": float(np.max(answer.novelty)),
                    "warnings": "; ".join(map(str, answer.warnings)),
                }
            )
        return frame(rows, "row")

    def _header(self) -> str:
        names = self.answers[0].names
        pair = pair_text(names[1], names[0]) if len(names) == 2 else "the pair named"
        return f"{'row':>5}  {'best model':<{self._width()}}  {'probability':<11}  natural log K of {pair}"

    def _line(self, number: int, answer: Comparison) -> str:
        best = answer.ranking[0]
        chance = wording.probability(float(answer.probabilities[best]))
        pair = answer.pair()
        named = "" if len(answer.names) == 2 else f"{pair_text(pair.model, pair.against)} "
        novel = any(warning.kind == "novelty" for warning in answer.warnings)
        unlike = "; unlike the draws of every model" if novel else ""
        width = self._width()
        first = harmless(answer.names[best])
        return f"{number:>5}  {first:<{width}}  {chance:<11}  {named}{pair.text()}{unlike}"

    def _width(self) -> int:
        return max(len(harmless(name)) for name in ("best model", *self.answers[0].names))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What was computed for n observations, from which answers are made.

    Attributes
    ----------
    names
        The K models.
    log_p
        Log p(x|model), up to a term that all models share, (n, K).
    errors
        Standard error of log K of every two models, (n, pairs), in the order of `pairs_of`.
    exact
        Whether that log K is validated by known densities, whatever its size, (n, pairs).
    ranges
        The validated range of every two models by held-out draws.
    novelty
        P-values of novelty, (n, K).
    least_p
        The smallest p-value of novelty that the held-out draws of every model have.
    recalibrated
        To how many draws log K was recalibrated.
    valid
        The fraction of each model's draws that did not fail, (K,).
    constants
        For each observation, which numbers differ from their value in every draw, as text.
    """

    names: tuple[str, ...]
    log_p: np.ndarray
    errors: np.ndarray
    exact: np.ndarray
    ranges: tuple[Range, ...]
    novelty: np.ndarray
    least_p: float = 0.0
    recalibrated: int = 0
    valid: np.ndarray | None = None
    constants: tuple[str, ...] = ()

    def answer(
        self, i: int, log_prior: np.ndarray, model: int | None = None, against: int | None = None
    ) -> Comparison:
        """Put together the answer for one of the observations, given the log prior of the models, (K,)."""
        names, log_p = self.names, self.log_p[i]
        impossible = np.flatnonzero(np.isneginf(log_p))
        if len(impossible) == len(names):
            raise ValueError(
                "the known density of every model is zero for this observation: none can be right."
            )
        pairs = []
        for j, (above, below) in enumerate(pairs_of(len(names))):
            validated = self.ranges[j]
            if self.exact[i, j]:
                validated = replace(validated, low=-np.inf, high=np.inf, least=0, empty=False)
            log_k = float(difference(log_p[above], log_p[below]))
            pairs.append(PairAnswer(names[above], names[below], log_k, float(self.errors[i, j]), validated))
        ranking = tuple(int(k) for k in np.argsort(-log_p, kind="stable"))
        usual = (1, 0) if len(names) == 2 else ranking[:2]
        probabilities = softmax(finite(log_p) + log_prior)
        return Comparison(
            names,
            names[usual[0] if model is None else model],
            names[usual[1] if against is None else against],
            tuple(pairs),
            ranking,
            probabilities,
            probability_errors(probabilities, self.errors[i]),
            self.novelty[i],
            self._warnings(i, pairs, impossible),
            self.recalibrated,
            self.valid,
        )

    def _warnings(self, i: int, pairs: list[PairAnswer], impossible: np.ndarray) -> tuple[AnswerWarning, ...]:
        first = self.names[0]
        warnings = [range_warning(pair) for pair in pairs if pair.against == first and not pair.in_range]
        # Few draws have no small p-values. Then to lie farther out than all of them is unusual enough.
        smallest = max(_NOVEL, self.least_p if self.least_p < _NOVEL_AT_MOST else 0.0)
        if np.all(self.novelty[i] <= smallest):
            text = (
                f"no model produces data like this (p ≤ {smallest:.2g} under each): "
                "the Bayes factor compares wrong models."
            )
            warnings.append(AnswerWarning("novelty", text))
        if self.constants and self.constants[i]:
            text = f"{self.constants[i]}. No model produces such data, and log K does not see it."
            warnings.append(AnswerWarning("constant", text))
        for k in impossible:
            text = f"{harmless(self.names[k])} cannot produce these data: its density is zero."
            warnings.append(AnswerWarning("impossible", text))
        return tuple(warnings)


def range_warning(pair: PairAnswer) -> AnswerWarning:
    """Warn of a log K beyond its validated range, and say how the range can be extended."""
    return AnswerWarning("range", f"{pair}. Extend the range with rare draws: deepen(net, models).")


def pairs_of(models: int) -> list[tuple[int, int]]:
    """Return the numbers of every two of K models, the later one first."""
    return [(above, below) for below, above in combinations(range(models), 2)]


def probability_errors(probabilities: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the standard errors of posterior probabilities, (K,), from those of log K of every two models.

    Parameters
    ----------
    probabilities
        Shape (K,).
    errors
        Of log K, in the order of `pairs_of`, shape (pairs,); NaN where they are not known.

    Notes
    -----
    A change of log K changes p_k by p_k Σ_j p_j δL_kj. With V_ij the variance of L_ij = log p_i − log p_j,
    the covariance of L_ki and L_kj is (V_ki + V_kj − V_ij)/2, so that the variance of the sum is Σ_i p_i V_ki
    − ½ Σ_ij p_i p_j V_ij.

    Examples
    --------
    >>> probability_errors(np.array([0.2, 0.8]), np.array([0.1])).round(4).tolist()  # p (1 − p) error
    [0.016, 0.016]
    """
    models = len(probabilities)
    variance = np.zeros((models, models))
    for (above, below), error in zip(pairs_of(models), errors, strict=True):
        variance[above, below] = variance[below, above] = error**2
    # Models without any probability have none to lose; their errors may be infinite.
    variance = np.where(np.outer(probabilities, probabilities) > 0, variance, 0.0)
    of_sum = variance @ probabilities - 0.5 * probabilities @ variance @ probabilities
    return np.asarray(probabilities * np.sqrt(np.maximum(of_sum, 0.0)))


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for a table: a missing text is empty."""
    return {key: "" if value is None else value for key, value in row.items()}


def _of_two(pair: PairAnswer) -> list[tuple[str, str]]:
    """Write the log K of two models, natural and to base 10."""
    if pair.in_range:
        ten = _with_error(pair.estimate / _LN10, pair.error / _LN10)
        return [("log K", f"{pair.text()} (natural log; log10 K {ten})")]
    rows = [("log K", pair.text())]
    if (bound := pair.bound) is not None:
        end = bound.text(unit=_LN10, decimals=2)
        rows.append(("log10 K", f"{end} (the network says {pair.estimate / _LN10:.3g})"))
    return rows


def _with_error(log_k: float, error: float) -> str:
    return f"{log_k:.6g}, exact" if error == 0 else wording.with_error(log_k, error)


def _ends(validated: Range) -> str:
    if validated.unlimited:
        return "of any size"
    if validated.empty:
        return "none"
    return f"from {wording.fixed(validated.low)} to {wording.fixed(validated.high)}"


def _range_text(pair: PairAnswer) -> str:
    """Write the validated range of two models, which is not empty."""
    if not pair.range.unlimited:
        return f"natural log K {_ends(pair.range)}, by {sum(pair.range.n):,} held-out draws"
    if pair.error == 0:
        return "not needed: both densities are known"
    return "log K of any size: one density is known, and the other was learned against a reference"
