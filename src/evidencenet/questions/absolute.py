"""`Evidence`: log p(x|model) of one model, learned against a reference density."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.arrays import Data, arrays_of, kind_of, layout, layout_text, map_arrays
from evidencenet._common.display import card
from evidencenet._common.estimate import Estimate
from evidencenet._common.harmless import harmless
from evidencenet.checks.range import Range
from evidencenet.estimator.densities import check_density, difference, evaluated, nearly_in_range
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

# Column in which the text of each printed row starts, and the width of a line.
_INDENT, _WIDTH = 20, 110
# If the density is known, nothing is learned. So many draws still measure the fraction that fails, with an
# error of 1/√(4n) = 0.005 at most, and check that the density belongs to the draws.
_MOST_CHECKED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """The log evidence of one model for any data, with its error; made by `absolute_evidence`. Print it.

    Attributes
    ----------
    name
        The model.
    network
        The network that compares the model (model 1) with the reference (model 0); None if the density of
        the model is known.
    reference
        The fitted `evidencenet.estimator.reference.Reference`, or the `Model` given as the reference. If the
        density of the model is known, this is the model itself.
    example
        Zeros in the form of one observation.
    draws
        How many draws of the model were used.
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

        If draws of the model can fail, p(x|model) includes the probability that a draw does not fail.

        Parameters
        ----------
        x
            n observations, (n, ...) or a dict of such arrays; or a single one, without the first axis.
        """
        data = self._checked(x)
        log_q = self._log_reference(data) + self.log_valid
        if self.network is None:
            return log_q
        valid = self.network.log_valid[1] - self.network.log_valid[0]
        return self.network.log_bayes_factor(data) - valid + log_q

    def error(self, x: Any) -> np.ndarray:
        """Return the standard error of `log_evidence`, shape (n,), including that of a fitted reference."""
        data = self._checked(x)
        square = np.full(len(arrays_of(data)[0]), self.log_valid_error**2)
        if self.network is not None:
            # The error of the network already includes the error of the valid fractions.
            square = np.square(self.network.error(data))
        if isinstance(self.reference, Reference):
            square = square + self.reference.variance(data)
        return np.sqrt(square)

    def inside(self, x: Any) -> np.ndarray:
        """Return whether the log evidence of each observation is validated, booleans (n,).

        It is if two things hold: log K against the reference lies in the validated `range`, or within 0.3 of
        it; and the observation does not lie farther out than all draws of the model and of the reference.
        """
        data = self._checked(x)
        validated = np.isfinite(self._log_reference(data))
        if self.network is None:
            return np.ones(len(validated), dtype=bool)
        validated &= nearly_in_range(self.network.ranges[0], self.network.log_bayes_factor(data))
        if self.network.novelty is None:
            return validated
        near: np.ndarray = self.network.novelty_p_value(data).max(axis=1) > self.network.novelty.least
        return validated & near

    @property
    def range(self) -> Range | None:
        """The validated range of log K of the model against the reference; None if its density is known."""
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

    def _checked(self, x: Any) -> Data:
        names = (None, None) if self.network is None else (self.network.columns, self.network.masked)
        return checked(x, self.example, *names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network, and the reference if it was fitted, to one file; read it with `Evidence.load`.

        Parameters
        ----------
        path
            The file. The usual ending is ``.evnet``.
        """
        if self.network is None:
            raise ValueError(
                f"the density of {self.name!r} is known, so nothing was learned: there is nothing to save. "
                "Call absolute_evidence again instead."
            )
        network, arrays = packed(self.network)
        arrays = {f"network/{name}": array for name, array in arrays.items()}
        if isinstance(self.reference, Reference):
            for i, component in enumerate(self.reference.components):
                arrays |= {f"reference/{i}/{key}": value for key, value in fields_of(component).items()}
        about = {
            "name": self.name,
            "network": network,
            "reference": None if isinstance(self.reference, Reference) else self.reference.name,
            "example": described(self.example),
            "draws": self.draws,
            "log_valid": self.log_valid,
            "log_valid_error": self.log_valid_error,
        }
        files.write(path, "evidence", about, arrays)

    @staticmethod
    def load(path: str | os.PathLike[str], *, reference: Model | None = None) -> "Evidence":
        """Read a file written by `save`; all numbers are the same to the bit.

        Parameters
        ----------
        path
            The file.
        reference
            Needed only if you gave `absolute_evidence` a reference of your own: the same model again, since
            a file cannot hold its `log_density`.
        """
        about, arrays = files.read(path, "evidence")
        name = about.get("reference")
        if name is not None and (
            reference is None or reference.name != name or reference.log_density is None
        ):
            given = "none was given" if reference is None else f"got {reference.name!r}"
            raise ValueError(
                f"{path} was learned against the model {name!r}, whose log_density a file cannot hold, and "
                f"{given}. Pass it again: Evidence.load(path, reference=model)."
            )
        with files.readable(Path(path)):
            components = [record(Component, part) for part in parts_of(under(arrays, "reference"))]
            return Evidence(
                about["name"],
                unpacked(about["network"], under(arrays, "network"), None, None),
                Reference(tuple(components)) if name is None or reference is None else reference,
                example_of(about["example"]),
                about["draws"],
                about["log_valid"],
                about["log_valid_error"],
            )

    def __str__(self) -> str:
        rows = [f"  {name:<{_INDENT - 3}} {text}" for name, text in self._rows()]
        wrapped = [fill(row, _WIDTH, subsequent_indent=" " * _INDENT, break_long_words=False) for row in rows]
        return "\n".join([self._title(), *wrapped])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows())

    def _title(self) -> str:
        return f"Evidence of {harmless(self.name)}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("data", layout_text(layout(map_arrays(lambda array: array[None], self.example))))]
        if self.network is None:
            return [*rows, ("density", "known, so the log evidence is exact")]
        reference = (
            self.reference.name
            if isinstance(self.reference, Model)
            else f"{self.reference}, fitted to the draws"
        )
        validated, held_out = self.network.ranges[0], self.network.held_out
        mean_log_k = float(held_out.log_k[held_out.label == 1, 1].mean()) - self.log_valid
        rows.append(("learned from", f"{self.draws:,} draws of the model"))
        rows.append(("reference", reference))
        rows.append(("log K against it", f"{mean_log_k:.3f} nats on average over draws of the model"))
        ends = (
            "empty"
            if validated.empty
            else f"log K against it from {validated.low:.2f} to {validated.high:.2f}"
        )
        rows.append(("validated range", f"{ends} ({sum(validated.n):,} held-out draws)"))
        if self.log_valid < 0:
            rows.append(
                ("failed draws", f"{1 - np.exp(self.log_valid):.3g} of all; the log evidence includes this")
            )
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
    """Learn log p(x|model), the evidence of one model, not only its ratio to another model's.

    A network compares the model with a reference whose density is known. Then log p(x|model) =
    log K(model : reference) + log p(x|reference). The data must have a density: discrete data, or data that
    are partly discrete, have none.

    Parameters
    ----------
    model
        The model. If it has a `log_density`, this is the answer, and nothing is learned.
    n
        How many draws of the model to make. The reference gets the same number.
    reference
        A model with a `log_density` to learn against. It should produce all data that the model can produce.
        By default a Gaussian or a Student t is fitted to the draws, in several coordinates; the fit that
        gives other draws the highest density is used.
    seed, progress, augment
        As for `train`.
    **options
        Further options of `train`, such as `members` or `recipe`.

    Returns
    -------
    Evidence
        With `log_evidence(x)`, `error(x)`, and `log_bayes_factor(x, against=)` to compare two models.

    Examples
    --------
    >>> import numpy as np
    >>> level = Model("level", lambda rng, n: rng.normal(size=(n, 1)) + rng.normal(size=(n, 3)))
    >>> evidence = absolute_evidence(level, 5_000, members=1, baseline=True, progress=False)
    >>> evidence.log_evidence(np.zeros((2, 3))).shape
    (2,)
    """
    _check(model, reference)
    draw_seed, reference_seed, train_seed = (int(s) for s in np.random.SeedSequence(seed).generate_state(3))
    if model.log_density is not None:
        sims = simulate([model], min(n, _MOST_CHECKED), seed=draw_seed, progress=progress)
        check_density(model.log_density, model.name, sims.x)
        return _evidence(model.name, None, model, sims)
    chosen: Reference | Model
    if reference is None:
        sims = simulate([model], n, seed=draw_seed, progress=progress)
        if why := refusal(sims.x):
            raise ValueError(
                f"no reference density can be fitted to the draws of {model.name!r}: {why}. If these data "
                "have a density, give a reference: a Model that produces such data, with its log_density."
            )
        rng = np.random.default_rng(reference_seed)
        chosen = fit_reference([sims.x], [None], augment, rng)
        both = with_reference(sims, chosen, rng)
        failed: tuple[int, ...] = (0, *sims.failed)
    else:
        both = simulate([reference, model], 2 * n, seed=draw_seed, progress=progress)
        check_density(_density(reference), reference.name, both.of(0))
        missing = np.isneginf(evaluated(_density(reference), reference.name, both.of(1)))
        if missing.any():
            raise ValueError(
                f"the reference {reference.name!r} has no density at {missing.sum():,} of {len(missing):,} "
                f"draws of {model.name!r}, so nothing can be learned there. Give a reference that can "
                "produce these data."
            )
        chosen, failed = reference, both.failed
    # Leave out known densities: with them `train` would fit a second reference.
    without_densities = Simulations(both.x, both.model, both.names, failed=failed)
    net = train(without_densities, seed=train_seed, progress=progress, augment=augment, **options)
    return _evidence(model.name, net, chosen, without_densities)


def _evidence(
    name: str, net: EvidenceNetwork | None, reference: Reference | Model, sims: Simulations
) -> Evidence:
    """Return the evidence of the last model of `sims`."""
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
            f"the reference {reference.name!r} has no log_density. Give a Model with one, or no reference."
        )


def _density(model: Model) -> Callable[[Any], Any]:
    if model.log_density is None:
        raise ValueError(f"model {model.name!r} has no log_density.")
    return model.log_density
