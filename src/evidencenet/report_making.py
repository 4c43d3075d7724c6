"""What a report says of the network: its checks, its training, and how it was made."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from evidencenet import losses, networks, plots
from evidencenet.data import layout, layout_text, map_arrays
from evidencenet.display import known_densities
from evidencenet.estimator import EvidenceNetwork
from evidencenet.provenance import versions
from evidencenet.svg import inline_svg
from evidencenet.validation import Validation

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
