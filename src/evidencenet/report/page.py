"""`write_report`: one HTML page that holds the answer, the checks and how the network was made."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arguments import explained
from evidencenet._common.arrays import kind_of, layout, layout_text, map_arrays
from evidencenet._common.atomic import write_bytes
from evidencenet._common.harmless import harmless, harmless_text, listed, pair_text
from evidencenet._common.versions import versions
from evidencenet._common.wording import fixed, odds, p_value, probabilities, typeset
from evidencenet.checks.scores import of_pair
from evidencenet.estimator.answer import Comparison, Comparisons, PairAnswer, range_warning
from evidencenet.estimator.network import EvidenceNetwork, known_densities, models_text
from evidencenet.estimator.validate import Validation
from evidencenet.report import plots
from evidencenet.report.svg import inline_svg

_LN10 = float(np.log(10.0))
# In inches. Small, so that the letters can still be read where a telephone shrinks the figure to its screen.
_SIZE, _SQUARE = (4.0, 3.3), (4.0, 4.1)
_LEARNED = "learned by training on halves of the draws"
# Of more pairs of models than this, only those that hold the best model are listed.
_MOST_PAIRS = 10
Answers = Comparison | Sequence[Comparison] | Mapping[str, Comparison]


@explained("write_report('report.html', net, check, answer)", {"answers": "answer=..."})
def write_report(
    path: str | os.PathLike[str],
    net: EvidenceNetwork,
    check: Validation | None = None,
    answer: Answers | None = None,
    *,
    title: str | None = None,
    made: Mapping[str, Any] | None = None,
) -> None:
    """Write one HTML page that needs no other file. It can be read offline, on a telephone, or printed.

    Parameters
    ----------
    path
        The file; an existing one is replaced only when all is written.
    net
        The network.
    check
        The result of `validate`; its sections are left out if None.
    answer
        The result of `net.compare`; its sections are left out if None. For several observations a list, a
        dict by their names, or what ``net.compare`` of all of them gave.
    title
        Of the page; the names of the models by default.
    made
        What else is to be said about how the network was made, in the last section: for example
        ``{"Simulator": "version 3.1"}``. Each is shown as its `str`.

    Raises
    ------
    FileNotFoundError
        There is no folder to write the file to.

    Examples
    --------
    >>> write_report("report.html", net, check, net.compare(x_observed))  # doctest: +SKIP
    >>> write_report("both.html", net, check, {"June": june, "July": july})  # doctest: +SKIP
    """
    answers = _by_name(answer)
    _check_arguments(net, check, answers)
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}. Make it first.")
    if title is None:
        title = models_text(net.names)
    page = _page(net, check, answers, title, made or {})
    # A lone surrogate in a name cannot be encoded. It is replaced, so that the page is written.
    write_bytes(target, page.encode("utf-8", "replace"))


@dataclass(frozen=True, eq=False)
class Section:
    """One answer as the page shows it.

    Attributes
    ----------
    name, place
        Of the observation, empty if it is the only one; and the id of its section.
    answer
        The answer. Where only the fresh draws of the check validate a log K, it has their range.
    by_fresh
        Whether there is such a log K.
    odds_range
        The odds for the best model over the second one standard error either way, or None.
    unsure
        Whether the log K of these two is within two errors of 0.
    rows
        For each model, best first, what the observation says.
    pairs
        Log K of each pair of models as text, if there are more than two.
    """

    name: str
    place: str
    answer: Comparison
    by_fresh: bool
    odds_range: tuple[str, str] | None
    unsure: bool
    rows: list[dict[str, Any]]
    pairs: list[tuple[str, str]]


def sections(
    net: EvidenceNetwork, check: Validation | None, answers: Mapping[str, Comparison]
) -> list[Section]:
    """Prepare each answer. Fresh draws may validate a log K that the held-out draws of training cannot."""
    single = len(answers) == 1
    return [
        _section(net, check, answer, name, "answer" if single else f"answer-{i}")
        for i, (name, answer) in enumerate(answers.items(), 1)
    ]


def _section(
    net: EvidenceNetwork, check: Validation | None, answer: Comparison, name: str, place: str
) -> Section:
    pairs = tuple(_with_fresh_range(net, check, pair) for pair in answer.pairs)
    by_fresh = any(new is not old for new, old in zip(pairs, answer.pairs, strict=True))
    against_first = [pair for pair in pairs if pair.against == answer.names[0]]
    warnings = (
        *(range_warning(pair) for pair in against_first if not pair.in_range),
        *(warning for warning in answer.warnings if warning.kind != "range"),
    )
    shown = replace(answer, pairs=pairs, warnings=warnings)
    lead = shown.lead
    return Section(
        name=name,
        place=place,
        answer=shown,
        by_fresh=by_fresh,
        odds_range=_odds_range(lead),
        unsure=lead.estimate < 2 * lead.error,
        rows=_rows(shown),
        pairs=_pair_rows(shown),
    )


def _with_fresh_range(net: EvidenceNetwork, check: Validation | None, pair: PairAnswer) -> PairAnswer:
    """Give a pair the range of the fresh draws, if only they validate its log K."""
    if check is None or pair.in_range:
        return pair
    # Fresh draws did not fail; log K of an observation includes the fraction of draws that do.
    shift = _failed_term(net, net.names.index(pair.model), net.names.index(pair.against))
    fresh = check.pair(pair.model, pair.against).range.moved(shift)
    return replace(pair, range=fresh) if fresh.contains(pair.estimate) else pair


def _failed_term(net: EvidenceNetwork, model: int, against: int) -> float:
    """Return the part of log K that comes from failed draws."""
    return float(net.log_valid[model] - net.log_valid[against])


def _odds_range(lead: PairAnswer) -> tuple[str, str] | None:
    """Return the odds one standard error either way, if they are a number with an error."""
    if lead.error == 0 or not (np.isfinite(lead.error) and lead.in_range):
        return None
    return odds(lead.estimate - lead.error), odds(lead.estimate + lead.error)


def _rows(answer: Comparison) -> list[dict[str, Any]]:
    """Say for each model, best first, what the observation says; the first model has no log K of its own."""
    errors = answer.probability_errors.tolist() if answer.lead.in_range else None
    texts = probabilities(answer.probabilities.tolist(), errors)
    rows = []
    for k in answer.ranking:
        pair = answer.pair(k, 0) if k else None
        rows.append(
            {
                "name": answer.names[k],
                "natural": pair and pair.text(),
                "ten": pair.text(unit=_LN10) if pair and pair.in_range else None,
                "probability": float(answer.probabilities[k]),
                "probability_text": texts[k],
                "novelty": float(answer.novelty[k]) if np.isfinite(answer.novelty[k]) else None,
            }
        )
    return rows


def _pair_rows(answer: Comparison) -> list[tuple[str, str]]:
    """Write log K of each pair of more than two models, the better model first."""
    if len(answer.names) == 2:
        return []
    order, best = answer.ranking, answer.names[answer.ranking[0]]
    pairs = [answer.pair(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
    if len(pairs) > _MOST_PAIRS:
        pairs = [pair for pair in pairs if pair.model == best]
    return [(f"{pair.model} against {pair.against}", pair.text()) for pair in pairs]


def distribution(
    net: EvidenceNetwork, check: Validation | None, answers: Mapping[str, Comparison], k: int
) -> dict[str, Any]:
    """Show how log K of model k against the first is distributed, its validated range, and observations."""
    # Rare draws would make large log K look common.
    draws: Any = net.held_out.without_rare() if check is None else check
    selected = of_pair(draws.log_k, draws.label, k, 0)
    values, label = selected.log_k.astype(np.float64), selected.labels
    held_out = fresh = net.ranges[k - 1]
    if check is not None:
        shift = _failed_term(net, k, 0)
        values, fresh = values + shift, check.ranges[k - 1].moved(shift)
    names = (net.names[0], net.names[k])
    observed = {name: answer.pair(k, 0).estimate for name, answer in answers.items()}
    listed = ", ".join(fixed(value) for value in observed.values())
    text = f" {'The observation lies' if len(observed) == 1 else 'Observations lie'} at {listed}."
    figure = inline_svg(
        partial(
            plots.log_k_distributions,
            values,
            label,
            names,
            list(observed.values()) or None,
            model=k,
            validated=fresh,
        ),
        _SIZE,
        name=f"log-k-{k}",
        title=f"Log K of {pair_text(names[1], names[0])}",
        text=f"Histograms of natural log K, one for draws of each model.{text if observed else ''}",
    )
    tails = [(name, value, *_tails(values, label, value)) for name, value in observed.items()]
    return {
        "names": names,
        "range": fresh,
        # The answers use the range of the held-out draws, which are fewer.
        "held_out_range": None if check is None or held_out.empty else held_out,
        "tails": tails,
        "figure": figure,
    }


def _tails(values: np.ndarray, label: np.ndarray, observed: float) -> list[str]:
    """Say how many draws of each of two models favour the other as much as the observation, or more."""
    sides = (values[~label] >= observed, values[label] <= observed)
    return [f"{side.sum():,} of {len(side):,} ({100 * side.mean():.3g}%)" for side in sides]


def worst(check: Validation) -> dict[str, Any]:
    """Draw the coverage test that has the lowest p-value."""
    tests = list(zip(check.names[-len(check.coverages) :], check.coverages, strict=True))
    name, test = min(tests, key=lambda pair: pair[1].p_value)
    text = f"{len(test.count)} bins of {test.n:,} draws."
    titles = {
        "coverage": f"Fraction of draws from {name} against its predicted probability",
        "residuals": f"Rescaled residuals of the coverage of {name}",
    }
    figures = {
        kind: inline_svg(
            partial(getattr(plots, kind), test, name=name), _SQUARE, name=kind, title=title, text=text
        )
        for kind, title in titles.items()
    }
    return {"name": name, "tests": tests, **figures}


def training(net: EvidenceNetwork) -> dict[str, Any] | None:
    """Draw the learning curves, and say which epoch each member is from; None if nothing was learned."""
    if net.networks is None:
        return None
    score, best = net.history.score, net.history.best_epoch
    epochs = np.sum(~np.isnan(score), axis=1) - 1
    text = "Held-out score of each member after each epoch."
    return {
        "members": list(zip(best, epochs, score[np.arange(len(best)), best], net.gain, strict=True)),
        "figure": inline_svg(net.history.plot, _SIZE, name="curves", title="Learning curves", text=text),
    }


def making(net: EvidenceNetwork, known: Mapping[str, Any]) -> dict[str, str]:
    """List how the network was made: label and text; `known` is added by the caller."""
    leaves = jax.tree.leaves(eqx.filter(net.networks, eqx.is_inexact_array))
    seconds = net.history.compile_seconds + float(net.history.seconds.sum())
    # If there is a fitted reference, it is one of the classes of the training.
    classes = (*["a fitted reference"] * (len(net.log_prior) - len(net.names)), *net.names)
    shares = _percentages(classes, np.exp(net.log_prior))
    data = {
        "Models": listed(net.names),
        "Data": layout_text(layout(map_arrays(lambda array: array[None], net.example))),
        **({} if net.columns is None else {"Columns": ", ".join(net.columns)}),
        **({} if net.masked is None else {"Missing numbers": "masked, in the draws and in observations"}),
        "Failed draws": _percentages(net.names, 1 - np.exp(net.log_valid)) if net.log_valid.any() else "none",
        **({} if net.densities is None else {"Known densities": known_densities(net)}),
    }
    trained = {
        "Training draws": f"{net.history.draws:,} ({shares}), in batches of {net.history.batch:,}",
        "Held-out draws": f"{len(net.held_out.label):,}, for early stopping and the validated range",
        "Members": f"{len(net.gain)}, of {sum(leaf[0].size for leaf in leaves):,} weights each",
        "Architecture": _described(networks.to_dict(net.architecture)),
        "Loss": _described(losses.to_dict(net.loss)),
        "Baseline": "none" if net.baseline is None else "Gaussians fitted to the draws of each model",
        "Scaling": f"each number of a draw {'by asinh' if net.scaling.squash else 'standardised'}"
        + ("" if net.scaling.whitening is None else "; correlations removed"),
        "Error of log K": "the jackknife over the members" if net.errors is None else _LEARNED,
        "Recalibration": _recalibration(net),
        **_made(net.made),
        "Time": f"{seconds:.0f} s of training, of which {net.history.compile_seconds:.0f} s for compilation",
    }
    return {
        **data,
        **(trained if leaves else {"Training": "none: all densities are known"}),
        **{str(what): str(value) for what, value in known.items()},
        "Page written by": _listed(versions()),
        "Date": f"{_today()} (of this page)",
    }


def _today() -> str:
    """Return the date; or that of SOURCE_DATE_EPOCH, which makes pages that can be repeated to the byte."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    return moment.date().isoformat()


def _percentages(names: Sequence[str], parts: np.ndarray) -> str:
    return ", ".join(f"{harmless(name)} {100 * part:.3g}%" for name, part in zip(names, parts, strict=True))


def _recalibration(net: EvidenceNetwork) -> str:
    steps = [
        f"fitted to {step.draws:,} draws; it improved the score of other draws by {step.gain:.4f} ± "
        f"{step.gain_error:.4f} nats"
        for step in net.recalibration
    ]
    return ", then ".join(steps) or "none"


def _made(made: Mapping[str, Any]) -> dict[str, str]:
    """List what the network holds of the call of `train`."""
    if not made:
        return {}
    return {
        "Seed": str(made["seed"]),
        "Recipe": _options(made["recipe"]),
        "Augmented by": made["augment"] or "nothing",
        "Trained with": _listed(made["versions"]),
    }


def _listed(numbers: Mapping[str, str]) -> str:
    return ", ".join(f"{library} {number}" for library, number in numbers.items())


def _described(about: dict[str, Any]) -> str:
    options = _options({key: value for key, value in about.items() if key not in ("name", "custom")})
    return ", ".join(filter(None, (f"{about['name']}{' (custom)' if 'custom' in about else ''}", options)))


def _options(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in given.items())


def _harmless(value: Any) -> Any:
    """Write out characters that would reverse, or cut off, the text after them."""
    # Figures are HTML already, and have been cleaned.
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return harmless_text(value)


def _by_name(answer: Any) -> dict[str, Any]:
    """Return answers by the names of their observations; a single one has no name."""
    if isinstance(answer, Mapping):
        return {str(name): one for name, one in answer.items()}
    several = isinstance(answer, list | tuple | Comparisons)
    if answer is None or (several and not len(answer)):
        return {}
    if several and len(answer) > 1:
        return {f"observation {i}": one for i, one in enumerate(answer, 1)}
    return {"": answer[0] if several else answer}


def _check_arguments(net: Any, check: Any, answers: Mapping[str, Any]) -> None:
    wanted: list[tuple[Any, Any]] = [(net, EvidenceNetwork), (check, Validation)]
    wanted += [(one, Comparison) for one in answers.values()]
    for value, kind in wanted:
        if value is None and kind is Validation:
            continue
        if not isinstance(value, kind):
            raise TypeError(
                f"write_report(path, net, check, answer) wanted an instance of {kind.__name__}, got "
                f"{kind_of(value)}. Without a check: write_report(path, net, answer=answer)."
            )
        if value.names != net.names:
            raise ValueError(
                f"the {kind.__name__} is about {value.names}, but the network compares {net.names}. "
                "Pass results of this network."
            )


def _page(
    net: EvidenceNetwork,
    check: Validation | None,
    answers: Mapping[str, Comparison],
    title: str,
    made: Mapping[str, Any],
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("evidencenet.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"p_value": p_value, "typeset": typeset, "fixed": fixed}
    return environment.get_template("report.html.jinja").render(
        title=title,
        net=net,
        check=check,
        answers=sections(net, check, answers),
        distributions=[distribution(net, check, answers, k) for k in range(1, len(net.names))],
        worst=None if check is None else worst(check),
        training=training(net),
        making=making(net, made),
    )
