"""`validate`: check a network on draws that it was not trained on."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import gammainc, softmax

from evidencenet._common.arguments import explained
from evidencenet._common.arrays import Data, arrays_of, index_of, kind_of, map_arrays
from evidencenet._common.display import card, frame, plain
from evidencenet._common.masks import like_draws, with_nan
from evidencenet.checks.check import Check, measure, narrowest, range_check, verdicts
from evidencenet.checks.coverage import Coverage, coverage
from evidencenet.checks.learning import agreement, other_kinds, overfitting, training
from evidencenet.checks.moments import TuringGood, turing_good
from evidencenet.checks.range import Range, validated_range
from evidencenet.checks.scores import Score, of_pair
from evidencenet.checks.tail import settled, tails
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.over_store import draws_of
from evidencenet.estimator.seen_draws import row_hashes
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.model import Model
from evidencenet.simulation.rare_draws import RareDraws

if TYPE_CHECKING:
    import pandas

# Width of the printed text, and where its second column starts.
_WIDTH, _INDENT = 110, 25
# Weighted draws are thinned to draws of equal weight. Fewer of a model than this are too few for every check:
# the validated range needs ten draws at each end.
_LEAST_DRAWS = 20
# Draws count as used in training if so many are found again by chance in fewer cases than this. They make the
# check fail if they are more than this part of the draws: fewer hardly change any score.
_CHANCE, _MOST_USED = 1e-4, 0.01
# More repeated rows than this part, of numbers that are not whole, are no chance: simulators of continuous
# data never repeat a row.
_MOST_REPEATED = 0.01


@dataclass(frozen=True, eq=False)
class Pair:
    """What the draws of two models say about the log K of the one against the other.

    Attributes
    ----------
    model, against
        The names of the two.
    coverage
        The blind coverage test of `model`.
    moments
        The half-order Turing–Good check.
    range
        The validated range of these draws.
    """

    model: str
    against: str
    coverage: Coverage
    moments: TuringGood
    range: Range

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, one level deep."""
        return {
            "model": self.model,
            "against": self.against,
            "draws": self.coverage.n,
            "coverage_p": self.coverage.p_value,
            "mean_residual": self.coverage.mean_residual,
            "std_residual": self.coverage.std_residual,
            "turing_good_p": self.moments.p_value,
            "low": self.range.low,
            "high": self.range.high,
        }


@dataclass(frozen=True, eq=False)
class Validation:
    """What draws of known models say about a network; print it, show it in a notebook, or call `plot`.

    Attributes
    ----------
    names
        The models.
    log_k
        Log K of each draw against model 0, (n, K), for draws that did not fail.
    label
        The model of each draw, (n,).
    checks
        Each with its verdict, finding and advice; see `evidencenet.checks`.
    coverages
        The blind coverage test of each model against all others; for two models only that of model 1.
    score
        The log score, and its gain over knowing nothing.
    ranges
        The validated range of log K of each further model against model 0; see `pair` for any two models.
    moments
        Half-order Turing–Good check of each further model against model 0.
    weighted
        If the draws had weights: for each model, how many there were, and as how many draws of equal weight
        they count, (Σw)²/Σw². Empty otherwise.
    offset
        If rare draws are among them: the log-odds that each draw has because of how it was drawn, (n, K).
        Coverage, score and moments are then those of models that make such draws as often as they are here.
    """

    names: tuple[str, ...]
    log_k: np.ndarray
    label: np.ndarray
    checks: tuple[Check, ...]
    coverages: tuple[Coverage, ...]
    score: Score
    ranges: tuple[Range, ...]
    moments: tuple[TuringGood, ...]
    weighted: tuple[tuple[int, float], ...] = ()
    offset: np.ndarray | None = None

    @property
    def coverage(self) -> Coverage:
        """The coverage test with the lowest p-value; for two models the only one."""
        return min(self.coverages, key=lambda test: test.p_value)

    @property
    def range(self) -> Range:
        """The validated range; of more than two models, the narrowest of all pairs."""
        pairs = {(self.names.index(p.model), self.names.index(p.against)): p.range for p in self.pairs}
        return pairs[narrowest(pairs)]

    def pair(self, model: int | str, against: int | str) -> Pair:
        """Return what the draws of any two models say about the log K of the one against the other."""
        above, below = index_of(model, self.names), index_of(against, self.names)
        if above == below:
            raise ValueError(f"model and against are both {self.names[above]!r}; wanted two models.")
        plain = of_pair(self.log_k, self.label, above, below)
        drawn = of_pair(_as_drawn(self.log_k, self.label, self.offset), self.label, above, below)
        return Pair(
            self.names[above],
            self.names[below],
            coverage(*drawn),
            turing_good(*drawn),
            validated_range(*plain),
        )

    @property
    def pairs(self) -> "tuple[Pair, ...]":
        """Every two models, the later against the earlier."""
        return tuple(self.pair(b, a) for a, b in combinations(range(len(self.names)), 2))

    @property
    def passed(self) -> bool:
        """Whether no check failed. Exact log K passes in at least 98% of cases."""
        return all(check.verdict != "fail" for check in self.checks)

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The checks that neither passed nor failed."""
        return tuple(check for check in self.checks if check.verdict == "warn")

    @property
    def informative(self) -> bool:
        """Whether the score is better than knowing nothing, by three standard errors of the gain."""
        return self.score.informative

    def __str__(self) -> str:
        lines = [_wrapped(self._title())]
        for check in self.checks:
            line = f"  {check.verdict}  {check.name:<{_INDENT - 9}} {check.finding}"
            lines.append(_wrapped(line))
            if check.advice:
                lines.append(_wrapped(f"{'':<{_INDENT - 2}}→ {check.advice}"))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(check.name, f"{check.finding} {check.advice}".strip()) for check in self.checks]
        return card(self._title(), rows, marks=[check.verdict for check in self.checks])

    def _title(self) -> str:
        failed = sum(check.verdict == "fail" for check in self.checks)
        verdict = f"FAILED {failed} of {len(self.checks)} checks" if failed else "passed"
        if self.warnings:
            number = len(self.warnings)
            verdict += f", with {number} warning{'s' if number > 1 else ''}"
        # They are called fresh only if that was checked.
        fresh = any(check.name == "fresh draws" and check.verdict == "pass" for check in self.checks)
        draws = f"{len(self.label):,} {'fresh ' if fresh else ''}draws"
        draws += "" if self.offset is None else ", some of them rare,"
        if self.weighted:
            draws += f" of equal weight, thinned from {sum(n for n, _ in self.weighted):,} weighted ones"
            draws += f" that count as {sum(size for _, size in self.weighted):,.0f}"
        return f"Validation on {draws}: {verdict}"

    def to_dict(self) -> dict[str, Any]:
        """Return verdicts and numbers as JSON has them; NaN and infinity become None."""
        return plain(
            {
                "names": self.names,
                "draws": np.bincount(self.label, minlength=len(self.names)),
                "passed": self.passed,
                "informative": self.informative,
                "checks": [asdict(check) for check in self.checks],
                "score": asdict(self.score),
                "coverage_p_values": [test.p_value for test in self.coverages],
                "ranges": [None if r.empty else {"low": r.low, "high": r.high} for r in self.ranges],
                "turing_good": [asdict(moment) for moment in self.moments],
                "pairs": [pair.to_dict() for pair in self.pairs],
            }
        )

    def to_dataframe(self, by: Literal["check", "model", "pair"] = "check") -> "pandas.DataFrame":
        """Return one row a check (verdict, finding and advice), or one a model, or one a pair of models."""
        if by == "check":
            return frame([asdict(check) for check in self.checks], "name")
        if by == "pair":
            return frame([pair.to_dict() for pair in self.pairs], "model")
        if by == "model":
            return frame(self._models(), "model")
        raise ValueError(f'by = {by!r}; wanted "check", "model" or "pair".')

    def _models(self) -> list[dict[str, Any]]:
        shares = np.bincount(self.label, minlength=len(self.names)) / len(self.label)
        drawn = _as_drawn(self.log_k, self.label, self.offset)
        predicted = softmax(drawn + np.log(shares), axis=1).mean(axis=0)
        return [
            {
                "model": name,
                "draws": int(np.sum(self.label == k)),
                "share": shares[k],
                "mean_probability": predicted[k],
                # For two models, the test of the one is the test of the other.
                "coverage_p": self.coverages[k if len(self.coverages) > 1 else 0].p_value,
            }
            for k, name in enumerate(self.names)
        ]

    def plot(self, axes: Any = None) -> Any:
        """Draw the coverage test, its residuals, and log K under each model; returns the three axes."""
        from evidencenet.report import plots

        return plots.validation(self, axes)


@explained(
    "validate(net, fresh_sims)",
    {
        "*": "Put data and labels together first: validate(net, Simulations(x, labels)). Several stores are "
        "a list, validate(net, ['a.zarr', 'b.zarr']).",
        "observe": "models=[...], whose observe is used",
        "store": "the path itself, validate(net, 'fresh.zarr')",
        "out": "write_report('report.html', net, check), or check.to_dict() for JSON",
    },
)
def validate(
    net: EvidenceNetwork,
    sims: Simulations | RareDraws | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    models: Sequence[Model] | None = None,
) -> Validation:
    """Check a network on fresh draws of its models: calibration, information, training, and range.

    Parameters
    ----------
    net
        The network.
    sims
        Draws that were *not* used in training, of the same models in the same order. The numbers of draws of
        each model need not be those of the training. Weighted draws are thinned to draws of equal weight:
        each stays with a probability proportional to its weight, always the same ones. Rare draws, made by
        `rare_draws`, check log K beyond where plain draws come; of each level only as many are used as its
        probability is known to, and tail checks are made too. A path reads a file or a store, and a list of
        paths several stores. Of stores with more than a million draws, or 512 MB, random ones are used.
    models
        If a file or store holds clean draws: the models that were simulated, which observe them.

    Returns
    -------
    Validation
        Print it for a summary. `passed` says whether all checks passed, `checks` which failed and what to do,
        and `range` is the validated range.

    Notes
    -----
    The checks are those of `evidencenet.checks.examine` on log K, and four on the training: "members" (do
    they agree?), "overfitting" (is the score worse than on the early-stopping draws?), "training" (do the
    learning curves say that it was too short or too long?) and, if another kind of network was tried on all
    draws, "other kinds" (does it score better?). Before them comes "fresh draws" (were the draws used in
    training, or do they repeat each other?). A network that gives the exact log K fails any of them in less
    than 2% of cases.

    Examples
    --------
    >>> check = validate(net, simulate([flat, trend], 50_000, seed=3))  # doctest: +SKIP
    >>> check.passed  # doctest: +SKIP
    True
    """
    if not isinstance(net, EvidenceNetwork):
        raise TypeError(
            f"validate(net, sims) wanted a network made by train or load, got {kind_of(net)}. For log Bayes "
            "factors from elsewhere use evidencenet.checks.examine(log_k, labels)."
        )
    if isinstance(sims, RareDraws) and models is None:
        return _on_rare_draws(net, sims)
    sims = draws_of("validate", sims, net.names, models)
    fresh = freshness(net, sims.x, sims.clean)
    sims = sims.in_columns(net.columns)
    if sims.masked is not None and net.masked is not None and sims.masked != net.masked:
        sims = sims.with_fields(x=like_draws(with_nan(sims.x, sims.masked), net.example, net.masked))
    weighted: tuple[tuple[int, float], ...] = ()
    if sims.log_weight is not None:
        weighted = tuple(zip(sims.counts, map(float, sims.effective_sample_size), strict=True))
        sims = sims.of_equal_weight()
        if min(sims.counts) < _LEAST_DRAWS:
            raise ValueError(
                f"only {list(sims.counts)} draws of equal weight are left of {[n for n, _ in weighted]} "
                f"weighted ones; wanted {_LEAST_DRAWS} of each model. Simulate more, or from the prior that "
                "the weights lead to."
            )
    # There are only draws that did not fail here, so the fraction that fails is no part of log K.
    valid = net.log_valid - net.log_valid[0]
    members, label = net.table(sims.x) - valid, sims.model
    log_k = members.mean(axis=0)
    measured = measure(log_k, label)
    on_log_k = verdicts(measured, net.names)
    early = net.held_out.without_rare()
    on_training = (
        agreement(members, label),
        overfitting(log_k, label, early.log_k - valid, early.label),
        training(net.history.score, net.history.best_epoch, net.gain != 0),
        *([other_kinds(**net.made["rival"])] if net.made.get("rival") else []),
    )
    against_first = [(k, 0) for k in range(1, len(net.names))]
    return Validation(
        net.names,
        log_k,
        label,
        # First whether the draws are fresh, then whether log K is right, how much it says, and the range.
        (*fresh, *on_log_k[:4], *on_training, *on_log_k[4:]),
        measured.coverages,
        measured.score,
        tuple(measured.ranges[pair] for pair in against_first),
        tuple(measured.turing_good[pair] for pair in against_first),
        weighted,
    )


def freshness(net: EvidenceNetwork, x: Data, clean: Data | None = None) -> tuple[Check, ...]:
    """Check that draws were not used in training, and do not repeat each other.

    Draws with a `clean` part are recognised by it: other noise does not make them fresh.

    Returns
    -------
    checks
        One check "fresh draws"; none if the network keeps no fingerprints of its training draws.
    """
    if net.seen is None:
        return ()
    hashes = row_hashes(x)
    distinct = len(np.unique(hashes))
    repeated = 1 - distinct / len(hashes)
    looked_up, known = max(
        (net.seen.used_again(draws) for draws in (x, clean) if draws is not None), key=lambda found: found[1]
    )
    # So many or more equal a training draw by chance, as held-out draws do; a Poisson tail of 1e-4.
    expected = net.seen.chance * looked_up
    by_chance = known == 0 or float(gammainc(known, expected)) > _CHANCE
    if not by_chance:
        part = (known / looked_up - net.seen.chance) / max(1 - net.seen.chance, 1e-3)
        finding = (
            f"About {100 * min(max(part, 0.0), 1.0):.2g}% of these draws were used in training: {known:,} of "
            f"{looked_up:,} that were looked up."
        )
        advice = "Simulate others with another seed: on training draws a network looks better than it is."
        return (Check("fresh draws", "fail" if part > _MOST_USED else "warn", finding, advice),)
    whole = all(np.array_equal(array, np.round(array)) for array in arrays_of(x))
    if repeated > _MOST_REPEATED and not whole:
        finding = f"Only {distinct:,} of {len(hashes):,} draws are distinct."
        advice = "Does the simulator set its own seed? Use the generator that it is given."
        return (Check("fresh draws", "warn", finding, advice),)
    finding = f"None of {looked_up:,} that were looked up was used in training."
    if known:
        finding = f"{known:,} of {looked_up:,} equal a training draw, as many as by chance."
    return (Check("fresh draws", "pass", finding),)


def _on_rare_draws(net: EvidenceNetwork, rare: RareDraws) -> Validation:
    """Check a network on rare draws, as draws of models that make them as often as they are here."""
    if rare.names != net.names:
        raise ValueError(f"the draws are of {rare.names}, the network compares {net.names}, in this order.")
    valid = net.log_valid - net.log_valid[0]
    drawn = rare.thinned()
    members, label = net.table(drawn.x) - valid, drawn.model
    log_k = members.mean(axis=0)
    offset = settled(drawn, log_k)
    measured = measure(_as_drawn(log_k, label, offset), label)
    on_log_k = verdicts(measured, net.names)
    # The range is one of log K itself.
    ranges = measure(log_k, label).ranges
    # The tail check needs all plain draws, because it needs those of other models that reach as far as the
    # rare ones.
    rows = np.flatnonzero(rare.plain)
    plain_log_k, plain_label = _log_k(net, rare, rows) - valid, rare.model[rows]
    early = net.held_out.without_rare()
    checks = (
        *on_log_k[:4],
        *(tail.check for tail in tails(rare.levels, rare.score[rows], plain_log_k, plain_label, net.names)),
        agreement(members, label),
        overfitting(plain_log_k, plain_label, early.log_k - valid, early.label),
        training(net.history.score, net.history.best_epoch, net.gain != 0),
        on_log_k[4],
        range_check(ranges, net.names),
    )
    against_first = [(k, 0) for k in range(1, len(net.names))]
    return Validation(
        net.names,
        log_k,
        label,
        checks,
        measured.coverages,
        measured.score,
        tuple(ranges[pair] for pair in against_first),
        tuple(measured.turing_good[pair] for pair in against_first),
        (),
        offset,
    )


def _log_k(net: EvidenceNetwork, rare: RareDraws, rows: np.ndarray) -> np.ndarray:
    """Return log K against model 0 of rare draws, (n, K)."""
    return net.table(map_arrays(lambda array: array[rows], rare.x)).mean(axis=0)


def _as_drawn(log_k: np.ndarray, label: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    """Return log K, (n, K), of models that make each draw as often as it is here."""
    if offset is None:
        return log_k
    counts = np.bincount(label, minlength=log_k.shape[1])
    # The offset includes the shares of the models.
    return log_k + offset - np.log(counts / counts[0])


def _wrapped(line: str) -> str:
    return fill(line, _WIDTH, subsequent_indent=" " * _INDENT, break_long_words=False)
