"""`write_report`: one HTML page that holds the answer, the checks and how the network was made."""

import os
import platform
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses, networks, plots
from evidencenet._version import __version__
from evidencenet.comparison import Comparison, Lead, against_first, log_k_text
from evidencenet.data import kind_of, layout, layout_text, map_arrays
from evidencenet.estimator import EvidenceNetwork
from evidencenet.svg import inline_svg
from evidencenet.trust import Range
from evidencenet.validation import Validation
from evidencenet.wording import odds, p_value, probability, typeset

_LIBRARIES = ("jax", "equinox", "optax", "numpy", "scipy")
_LN10 = float(np.log(10.0))
# In inches. Small, so that the letters can still be read where a telephone shrinks the figure to its screen.
_SIZE, _SQUARE = (4.0, 3.3), (4.0, 4.1)


def write_report(
    path: str | os.PathLike[str],
    net: EvidenceNetwork,
    check: Validation | None = None,
    answer: Comparison | None = None,
    *,
    title: str | None = None,
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
        What `net.compare` said of an observation; its sections are left out if None.
    title
        Of the page; the names of the models by default.

    Raises
    ------
    FileNotFoundError
        There is no folder to write the file to.

    Examples
    --------
    >>> write_report("report.html", net, check, net.compare(x_observed))  # doctest: +SKIP
    """
    _check_arguments(net, check, answer)
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}. Make it first.")
    if title is None:
        title = " against ".join(reversed(net.names)) if len(net.names) == 2 else ", ".join(net.names)
    page = _page(net, check, answer, title)
    partial_file = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        # A lone surrogate in a name cannot be encoded; the page is not lost for it.
        partial_file.write_text(page, encoding="utf-8", errors="replace", newline="\n")
        os.replace(partial_file, target)
    finally:
        partial_file.unlink(missing_ok=True)


def _check_arguments(net: Any, check: Any, answer: Any) -> None:
    for value, kind in ((net, EvidenceNetwork), (check, Validation), (answer, Comparison)):
        if value is None and kind is not EvidenceNetwork:
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


def _page(net: EvidenceNetwork, check: Validation | None, answer: Comparison | None, title: str) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("evidencenet"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pairs = [_pair(net, check, answer, k) for k in range(1, len(net.names))]
    environment.filters |= {"probability": probability, "p_value": p_value, "typeset": typeset}
    return environment.get_template("report.html.jinja").render(
        title=title,
        net=net,
        check=check,
        answer=answer,
        verdict=None if answer is None else _verdict(net, check, answer),
        ranking=[] if answer is None else _ranking(answer),
        pairs=pairs,
        worst=None if check is None else _worst(check),
        training=_training(net),
        making=_making(net),
    )


def _verdict(net: EvidenceNetwork, check: Validation | None, answer: Comparison) -> dict[str, Any]:
    """Set the two best models against each other, in words; fresh draws may confirm what others cannot."""
    lead = answer.lead
    by_fresh = False
    if check is not None and not lead.range.contains(lead.log_k):
        fresh = _moved(check.pair_range(lead.best, lead.other), net, lead.best, lead.other)
        by_fresh = bool(fresh.contains(lead.log_k))
        lead = replace(lead, range=fresh) if by_fresh else lead
    return {
        "favoured": answer.names[lead.best],
        "other": answer.names[lead.other],
        "words": lead.words(),
        "odds": lead.odds(),
        "inside": bool(lead.range.contains(lead.log_k)),
        "odds_range": _odds_range(lead),
        "unsure": lead.log_k < 2 * lead.error,
        "by_fresh": by_fresh,
    }


def _odds_range(lead: Lead) -> tuple[str, str] | None:
    """Return the odds one error either way, where they are a number and have an error."""
    if not (np.isfinite(lead.error) and lead.range.contains(lead.log_k)):
        return None
    return odds(lead.log_k - lead.error), odds(lead.log_k + lead.error)


def _ranking(answer: Comparison) -> list[dict[str, Any]]:
    """Say of each model, best first, what the observation says; the first model has no log K of its own."""
    log_k, error, ranges = against_first(answer)

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


def _pair(
    net: EvidenceNetwork, check: Validation | None, answer: Comparison | None, k: int
) -> dict[str, Any]:
    """Tell how log K of model k against the first is distributed, and how far it can be trusted."""
    draws: Any = net.held_out if check is None else check
    pair = np.isin(draws.label, (0, k))
    values, label = draws.log_k[pair, k].astype(np.float64), draws.label[pair] == k
    held = net.ranges[k - 1]
    if check is not None:
        values = values + float(net.log_valid[k] - net.log_valid[0])
        held = _moved(check.ranges[k - 1], net, k, 0)
    names = (net.names[0], net.names[k])
    text, observed, tails = "", None, None
    if answer is not None:
        observed = float(against_first(answer)[0][k])
        text = f" The observation lies at {observed:.2f}."
        beyond = (values[~label] >= observed, values[label] <= observed)
        tails = [f"{side.sum():,} of {len(side):,} ({100 * side.mean():.3g}%)" for side in beyond]
    figure = inline_svg(
        partial(plots.log_k_distributions, values, label, names, observed, model=k, confirmed=held),
        _SIZE,
        name=f"log-k-{k}",
        title=f"Log K of {names[1]} against {names[0]}",
        text=f"Histograms of natural log K, one for draws of each model.{text}",
    )
    return {"names": names, "held": held, "tails": tails, "figure": figure}


def _worst(check: Validation) -> dict[str, Any]:
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


def _training(net: EvidenceNetwork) -> dict[str, Any]:
    score, best = net.history.score, net.history.best_epoch
    epochs = np.sum(~np.isnan(score), axis=1) - 1
    text = "Training loss and held-out score of each member after each epoch."
    return {
        "members": list(zip(best, epochs, score[np.arange(len(best)), best], net.gain, strict=True)),
        "figure": inline_svg(net.history.plot, _SIZE, name="curves", title="Learning curves", text=text),
    }


def _making(net: EvidenceNetwork) -> dict[str, str]:
    """List how the network was made, by what a reader would look for."""
    leaves = jax.tree.leaves(eqx.filter(net.networks, eqx.is_inexact_array))
    seconds = net.history.compile_seconds + float(net.history.seconds.sum())
    parts = (np.exp(net.log_prior), 1 - np.exp(net.log_valid))
    shares, failed = (
        ", ".join(f"{name} {100 * part:.3g}%" for name, part in zip(net.names, of, strict=True))
        for of in parts
    )
    return {
        "Models": ", ".join(net.names),
        "Data": layout_text(layout(map_arrays(lambda array: array[None], net.example))),
        "Training draws": f"{net.history.draws:,} ({shares}), in batches of {net.history.batch:,}",
        "Failed draws": failed if np.any(net.log_valid < 0) else "none",
        "Held-out draws": f"{len(net.held_out.label):,}, for early stopping and the range of log K",
        "Members": f"{len(net.gain)}, of {sum(leaf[0].size for leaf in leaves):,} weights each",
        "Architecture": _described(networks.to_dict(net.architecture)),
        "Loss": _described(losses.to_dict(net.loss)),
        "Baseline": "none" if net.baseline is None else "Gaussians fitted to the draws of each model",
        "Recalibration": _recalibration(net),
        "Time": f"{seconds:.0f} s of training, {net.history.compile_seconds:.0f} s of them for compilation",
        "Page written by": f"evidencenet {__version__}, Python {platform.python_version()}, "
        + ", ".join(f"{library} {version(library)}" for library in _LIBRARIES),
    }


def _recalibration(net: EvidenceNetwork) -> str:
    steps = [
        f"fitted to {step.draws:,} draws; it improved the score of others by {step.gain:.4f} ± "
        f"{step.gain_error:.4f} nats"
        for step in net.recalibration
    ]
    return ", then ".join(steps) or "none"


def _described(about: dict[str, Any]) -> str:
    options = [f"{key} = {value}" for key, value in about.items() if key not in ("name", "custom")]
    return f"{about['name']}{' (custom)' if 'custom' in about else ''}" + "".join(f", {o}" for o in options)
