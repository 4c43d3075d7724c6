"""`write_report`: one HTML page that holds the answer, the checks and how the network was made."""

import operator
import os
import re
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
from evidencenet._common.arrays import kind_of, layout, layout_text, map_arrays
from evidencenet._common.versions import versions
from evidencenet._common.wording import odds, p_value, probability, typeset
from evidencenet.checks.range import Range
from evidencenet.estimator.answer import Comparison, Lead, against_first, beyond, log_k_text
from evidencenet.estimator.network import EvidenceNetwork, known_densities
from evidencenet.estimator.validate import Validation
from evidencenet.report import plots
from evidencenet.report.svg import inline_svg

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
    # Rare draws would make a model's own log K look common where it is not.
    draws: Any = net.held_out.without_rare() if check is None else check
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


_LEARNED = "learned by training on halves of the draws"
# In inches, as the other figures of the page.
_SIZE, _SQUARE = (4.0, 3.3), (4.0, 4.1)


def worst(check: Validation) -> dict[str, Any]:
    """Draw the coverage test with the lowest p-value."""
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
    """Draw the learning curves, and say which epoch each member is of; None if nothing was learned."""
    if net.networks is None:
        return None
    score, best = net.history.score, net.history.best_epoch
    epochs = np.sum(~np.isnan(score), axis=1) - 1
    text = "Training loss and held-out score of each member after each epoch."
    return {
        "members": list(zip(best, epochs, score[np.arange(len(best)), best], net.gain, strict=True)),
        "figure": inline_svg(net.history.plot, _SIZE, name="curves", title="Learning curves", text=text),
    }


def making(net: EvidenceNetwork, known: Mapping[str, Any]) -> dict[str, str]:
    """List how the network was made, by what a reader would look for; `known` is what the caller adds."""
    leaves = jax.tree.leaves(eqx.filter(net.networks, eqx.is_inexact_array))
    seconds = net.history.compile_seconds + float(net.history.seconds.sum())
    # A reference, against which models were learned whose density is not known, is a class of its own.
    classes = (*["a fitted reference"] * (len(net.log_prior) - len(net.names)), *net.names)
    shares = _percentages(classes, np.exp(net.log_prior))
    data = {
        "Models": ", ".join(net.names),
        "Data": layout_text(layout(map_arrays(lambda array: array[None], net.example))),
        "Failed draws": _percentages(net.names, 1 - np.exp(net.log_valid)) if net.log_valid.any() else "none",
        **({} if net.densities is None else {"Known densities": known_densities(net)}),
    }
    trained = {
        "Training draws": f"{net.history.draws:,} ({shares}), in batches of {net.history.batch:,}",
        "Held-out draws": f"{len(net.held_out.label):,}, for early stopping and the range of log K",
        "Members": f"{len(net.gain)}, of {sum(leaf[0].size for leaf in leaves):,} weights each",
        "Architecture": _described(networks.to_dict(net.architecture)),
        "Loss": _described(losses.to_dict(net.loss)),
        "Baseline": "none" if net.baseline is None else "Gaussians fitted to the draws of each model",
        "Scaling": f"each number of a draw {'by asinh' if net.scaling.squash else 'standardised'}"
        + ("" if net.scaling.whitening is None else "; correlations taken out"),
        "Error of log K": "the jackknife over the members" if net.errors is None else _LEARNED,
        "Recalibration": _recalibration(net),
        **_made(net.made),
        "Time": f"{seconds:.0f} s of training, {net.history.compile_seconds:.0f} s of them for compilation",
    }
    return {
        **data,
        **(trained if leaves else {"Training": "none: all densities are known"}),
        **{str(what): str(value) for what, value in known.items()},
        "Page written by": _listed(versions()),
        "Date": f"{_today()} (of this page)",
    }


def _today() -> str:
    """Return the date, or the one to which builds that can be repeated are fixed."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.now(UTC) if fixed is None else datetime.fromtimestamp(int(fixed), UTC)
    return moment.date().isoformat()


def _percentages(names: Sequence[str], parts: np.ndarray) -> str:
    return ", ".join(f"{name} {100 * part:.3g}%" for name, part in zip(names, parts, strict=True))


def _recalibration(net: EvidenceNetwork) -> str:
    steps = [
        f"fitted to {step.draws:,} draws; it improved the score of others by {step.gain:.4f} ± "
        f"{step.gain_error:.4f} nats"
        for step in net.recalibration
    ]
    return ", then ".join(steps) or "none"


def _made(made: Mapping[str, Any]) -> dict[str, str]:
    """List what `train` kept of its call; networks of older files have nothing."""
    if not made:
        return {}
    return {
        "Seed": str(made["seed"]),
        "Recipe": _options(made["recipe"]),
        "Augmented by": made["augment"] or "nothing",
        "Trained with": _listed(made["versions"]),
    }


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{library} {number}" for library, number in found.items())


def _described(about: dict[str, Any]) -> str:
    options = _options({key: value for key, value in about.items() if key not in ("name", "custom")})
    return ", ".join(filter(None, (f"{about['name']}{' (custom)' if 'custom' in about else ''}", options)))


def _options(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in given.items())


# Controls, but for the ends of lines, and orders to write from right to left.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
Answers = Comparison | Sequence[Comparison] | Mapping[str, Comparison]


def write_report(
    path: str | os.PathLike[str],
    net: EvidenceNetwork,
    check: Validation | None = None,
    answer: Answers | None = None,
    *,
    title: str | None = None,
    made: Mapping[str, Any] | None = None,
) -> None:
    """Write one self-contained HTML page, to be read offline, on a telephone, or printed.

    Parameters
    ----------
    path
        The file; an existing one is replaced only when all is written.
    net
        The network.
    check
        What `validate` said of it; its sections are left out if None.
    answer
        What `net.compare` said of an observation; its sections are left out if None. For several
        observations a list, or a dict by their names.
    title
        Of the page; the names of the models by default.
    made
        What else is known of how the network was made, for the last section: for example
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
        title = " against ".join(reversed(net.names)) if len(net.names) == 2 else ", ".join(net.names)
    page = _page(net, check, answers, title, made or {})
    partial_file = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        # A lone surrogate in a name cannot be encoded; the page is not lost for it.
        partial_file.write_text(page, encoding="utf-8", errors="replace", newline="\n")
        os.replace(partial_file, target)
    finally:
        partial_file.unlink(missing_ok=True)


def _harmless(value: Any) -> Any:
    """Put a mark for letters that would turn round, or cut off, the text that follows them."""
    # Figures, which are HTML already, have been cleaned.
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", value)


def _by_name(answer: Any) -> dict[str, Any]:
    """Return answers by the names of their observations; a single one has none."""
    if answer is None or (isinstance(answer, list | tuple) and not answer):
        return {}
    if isinstance(answer, Mapping):
        return {str(name): one for name, one in answer.items()}
    if isinstance(answer, list | tuple) and len(answer) > 1:
        return {f"observation {i}": one for i, one in enumerate(answer, 1)}
    return {"": answer[0] if isinstance(answer, list | tuple) else answer}


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
                f"the {kind.__name__} is about {value.names}, the network compares {net.names}; "
                "pass what was made with this network."
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
    environment.filters |= {"probability": probability, "p_value": p_value, "typeset": typeset}
    return environment.get_template("report.html.jinja").render(
        title=title,
        net=net,
        check=check,
        answers=told(net, check, answers),
        pairs=[pair(net, check, answers, k) for k in range(1, len(net.names))],
        worst=None if check is None else worst(check),
        training=training(net),
        making=making(net, made),
    )
