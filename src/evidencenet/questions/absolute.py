"""Save an `Evidence` to one file, and load it again."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.arrays import Data, arrays_of, kind_of, layout, layout_text, map_arrays
from evidencenet._common.display import card
from evidencenet._common.estimate import Estimate
from evidencenet.checks.range import Range
from evidencenet.estimator.densities import check_density, confirmed, difference, evaluated
from evidencenet.estimator.network import EvidenceNetwork, checked
from evidencenet.estimator.reference import Component, Reference, refusal
from evidencenet.estimator.serialise import (
    described,
    example_of,
    fields_of,
    packed,
    parts_of,
    record,
    under,
    unpacked,
)
from evidencenet.estimator.train import train
from evidencenet.estimator.train_with_densities import fit_reference, with_reference
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model
from evidencenet.training.split import Augment

_INDENT = 18
# Where nothing is to be learned, so many draws show how often they fail, and that the density is theirs.
_MOST_CHECKED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """The log evidence of a model for any data, with its error; made by `absolute_evidence`. Print it.

    Attributes
    ----------
    name
        The model.
    network
        What tells the model from the reference, model 0 of the two; None if the model's density is known.
    reference
        The fitted `evidencenet.estimator.reference.Reference`, or the `Model` that was given as one; for a
        model of
        known density, itself.
    example
        Zeros in the form of one observation.
    draws
        How many draws of the model it was learned from.
    log_valid, log_valid_error
        Log of the fraction of the model's draws that did not fail, and its standard error.
    """

    name: str
    network: EvidenceNetwork | None
    reference: Reference | Model
    example: Data
    draws: int
    log_valid: float
    log_valid_error: float

    def log_evidence(self, x: Any) -> np.ndarray:
        """Natural log of p(x|model), shape (n,).

        That data exist is part of it: if draws of the model fail, log of the fraction that does not is added.

        Parameters
        ----------
        x
            n observations, (n, ...) or a dict of such arrays; or a single one, without the first axis.
        """
        data = checked(x, self.example)
        log_q = self._log_reference(data) + self.log_valid
        if self.network is None:
            return log_q
        valid = self.network.log_valid[1] - self.network.log_valid[0]
        return self.network.log_bayes_factor(data) - valid + log_q

    def error(self, x: Any) -> np.ndarray:
        """Return the standard error of `log_evidence`, shape (n,), that of a fitted reference included."""
        data = checked(x, self.example)
        square = np.full(len(arrays_of(data)[0]), self.log_valid_error**2)
        if self.network is not None:
            # The network's holds that of the valid fractions.
            square = np.square(self.network.error(data))
        if isinstance(self.reference, Reference):
            square = square + self.reference.variance(data)
        return np.sqrt(square)

    def inside(self, x: Any) -> np.ndarray:
        """Say of each observation whether held-out draws can vouch for its log evidence, shape (n,).

        They can where log K against the reference lies in the `range` in which enough of them lie, or within
        0.3 of it, and the observation is not farther out than all draws of the model and of the reference.
        """
        data = checked(x, self.example)
        found = np.isfinite(self._log_reference(data))
        if self.network is None:
            return np.ones(len(found), dtype=bool)
        found &= confirmed(self.network.ranges[0], self.network.log_bayes_factor(data))
        if self.network.novelty is None:
            return found
        near: np.ndarray = self.network.novelty_p_value(data).max(axis=1) > self.network.novelty.least
        return found & near

    @property
    def range(self) -> Range | None:
        """The log K of the model against the reference that is confirmed; None if its density is known."""
        return None if self.network is None else self.network.ranges[0]

    def log_bayes_factor(self, x: Any, *, against: "Evidence") -> Estimate:
        """Log p(x|model) − log p(x|other), natural log, with the errors of both in quadrature.

        Parameters
        ----------
        x
            Observations, as for `log_evidence`.
        against
            The evidence of the other model, for the same data.
        """
        if not isinstance(against, Evidence):
            raise TypeError(
                f"against must be an Evidence, as made by absolute_evidence, got {kind_of(against)}."
            )
        value = difference(self.log_evidence(x), against.log_evidence(x))
        return Estimate(value, np.hypot(self.error(x), against.error(x)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file; read it with `Evidence.load`."""
        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], *, reference: Model | None = None) -> "Evidence":
        """Read what `save` wrote; its numbers are the same to the bit.

        Parameters
        ----------
        path
            The file.
        reference
            Only if it was learned against a model of your own, whose `log_density` the file cannot hold: the
            same model.
        """
        return load(path, reference)

    def __str__(self) -> str:
        rows = [f"  {name:<{_INDENT - 3}} {text}" for name, text in self._rows()]
        wrapped = [fill(row, 110, subsequent_indent=" " * _INDENT, break_long_words=False) for row in rows]
        return "\n".join([self._title(), *wrapped])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows())

    def _title(self) -> str:
        return f"Evidence of {self.name}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("data", layout_text(layout(map_arrays(lambda array: array[None], self.example))))]
        if self.network is None:
            return [*rows, ("density", "known, so that the log evidence is exact")]
        fitted = isinstance(self.reference, Reference)
        name = f"{self.reference}, fitted to the draws" if fitted else self.reference.name  # type: ignore[union-attr]
        held, kept = self.network.ranges[0], self.network.held_out
        gain = float(kept.log_k[kept.label == 1, 1].mean()) - self.log_valid
        rows.append(("learned from", f"{self.draws:,} draws of the model"))
        rows.append(("reference", str(name)))
        rows.append(("log K to it", f"{gain:.3f} nats on average over draws of the model"))
        ends = "none" if held.empty else f"from {held.low:.2f} to {held.high:.2f}"
        rows.append(("confirmed", f"{ends} of this log K, by {sum(held.n):,} held-out draws"))
        if self.log_valid < 0:
            rows.append(("failed draws", f"{1 - np.exp(self.log_valid):.3g} of all, accounted for"))
        return rows

    def _log_reference(self, data: Data) -> np.ndarray:
        if isinstance(self.reference, Reference):
            return self.reference.log_density(data)
        return evaluated(_density(self.reference), self.reference.name, data)


def absolute_evidence(
    model: Model,
    n: int,
    *,
    reference: Model | None = None,
    seed: int = 0,
    progress: bool = True,
    augment: Augment | None = None,
    **options: Any,
) -> Evidence:
    """Learn log p(x|model), the evidence itself, and not only its ratio to that of another model.

    A network tells draws of the model from draws of a reference whose density is known; then log p(x|model) =
    log K(model : reference) + log p(x|reference). A density must exist: data that are discrete, or partly
    so, have none.

    Parameters
    ----------
    model
        The model. If it has a `log_density`, that is the answer, and nothing is learned.
    n
        How many draws of the model to make, and as many of the reference.
    reference
        A model with a `log_density` to learn against. It should produce all data that the model does. By
        default a Gaussian or a Student t fitted to the draws, in coordinates that suit them: of several, the
        one that gives other draws the highest density.
    seed, progress, augment, options
        As for `train`, which takes all `options`.

    Returns
    -------
    Evidence
        With `log_evidence(x)`, `error(x)`, and `log_bayes_factor(x, against=)` for two of them.

    Examples
    --------
    >>> import numpy as np
    >>> level = Model("level", lambda rng, n: rng.normal(size=(n, 1)) + rng.normal(size=(n, 3)))
    >>> evidence = absolute_evidence(level, 5_000, members=1, baseline=True, progress=False)
    >>> evidence.log_evidence(np.zeros((2, 3))).shape
    (2,)
    """
    _check(model, reference)
    first, second, third = (int(s) for s in np.random.SeedSequence(seed).generate_state(3))
    if model.log_density is not None:
        sims = simulate([model], min(n, _MOST_CHECKED), seed=first, progress=progress)
        check_density(model.log_density, model.name, sims.x)
        return _evidence(model.name, None, model, sims)
    chosen: Reference | Model
    if reference is None:
        sims = simulate([model], n, seed=first, progress=progress)
        if why := refusal(sims.x):
            raise ValueError(
                f"no reference density can be fitted to the draws of {model.name!r}: {why}. If these data "
                "have a density, give a reference: a Model that produces such data, with its log_density."
            )
        rng = np.random.default_rng(second)
        chosen = fit_reference([sims.x], [None], augment, rng)
        both = with_reference(sims, chosen, rng)
        failed: tuple[int, ...] = (0, *sims.failed)
    else:
        both = simulate([reference, model], 2 * n, seed=first, progress=progress)
        check_density(_density(reference), reference.name, both.of(0))
        missing = np.isneginf(evaluated(_density(reference), reference.name, both.of(1)))
        if missing.any():
            raise ValueError(
                f"the reference {reference.name!r} has no density at {missing.sum():,} of {len(missing):,} "
                f"draws of {model.name!r}: nothing can be learned there. Give one that produces such data."
            )
        chosen, failed = reference, both.failed
    # Without densities, which would have the network learn against another reference.
    plain = Simulations(both.x, both.model, both.names, failed=failed)
    net = train(plain, seed=third, progress=progress, augment=augment, **options)
    return _evidence(model.name, net, chosen, plain)


def _evidence(
    name: str, net: EvidenceNetwork | None, reference: Reference | Model, sims: Simulations
) -> Evidence:
    """Put together what is known of the last model of `sims`."""
    return Evidence(
        name,
        net,
        reference,
        map_arrays(lambda a: np.zeros(a.shape[1:], bool if a.dtype == bool else np.float32), sims.x),
        sims.counts[-1],
        float(np.log(sims.valid_fraction[-1])),
        float(sims.log_valid_error[-1]),
    )


def _check(model: Model, reference: Model | None) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"absolute_evidence takes a Model, got {kind_of(model)}.")
    if reference is not None and not isinstance(reference, Model):
        raise TypeError(f"reference must be a Model with a log_density, got {kind_of(reference)}.")
    if reference is not None and reference.log_density is None:
        raise ValueError(
            f"the reference {reference.name!r} has no log_density, so nothing can be learned from it."
        )


def _density(model: Model) -> Callable[[Any], Any]:
    if model.log_density is None:
        raise ValueError(f"model {model.name!r} has no log_density.")
    return model.log_density


def save(evidence: Evidence, path: str | os.PathLike[str]) -> None:
    """Write an evidence to one file: its network, and the reference if that was fitted."""
    if evidence.network is None:
        raise ValueError(
            f"the density of {evidence.name!r} is known: nothing was learned that a file could keep. Make it "
            "anew with absolute_evidence."
        )
    network, arrays = packed(evidence.network)
    arrays = {f"network/{name}": array for name, array in arrays.items()}
    fitted = isinstance(evidence.reference, Reference)
    if isinstance(evidence.reference, Reference):
        for i, part in enumerate(evidence.reference.components):
            arrays |= {f"reference/{i}/{key}": value for key, value in fields_of(part).items()}
    about = {
        "name": evidence.name,
        "network": network,
        "reference": None if fitted else evidence.reference.name,  # type: ignore[union-attr]
        "example": described(evidence.example),
        "draws": evidence.draws,
        "log_valid": evidence.log_valid,
        "log_valid_error": evidence.log_valid_error,
    }
    files.write(path, "evidence", about, arrays)


def load(path: str | os.PathLike[str], reference: Model | None) -> Evidence:
    """Read what `save` wrote."""
    about, arrays = files.read(path, "evidence")
    named = about["reference"]
    if named is not None and (reference is None or reference.name != named or reference.log_density is None):
        given = "none was given" if reference is None else f"got {reference.name!r}"
        raise ValueError(
            f"{path} was learned against the model {named!r}, whose log_density a file cannot hold, and "
            f"{given}. Pass it again: Evidence.load(path, reference=model)."
        )
    parts = parts_of(under(arrays, "reference"))
    fitted = Reference(tuple(record(Component, part) for part in parts))
    return Evidence(
        about["name"],
        unpacked(about["network"], under(arrays, "network"), None, None),
        fitted if named is None or reference is None else reference,
        example_of(about["example"]),
        about["draws"],
        about["log_valid"],
        about["log_valid_error"],
    )
