"""`Evaluation`: what a network says of a batch of observations, computed once and in blocks.

Observations are checked first, then scaled, then given to the networks. Log K of all models, its error, and
how unusual the data are follow from the same few arrays, and each of these is computed when it is first
needed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet import losses
from evidencenet._common.arrays import (
    Data,
    arrays_of,
    as_data,
    finite_rows,
    in_order,
    layout,
    layout_text,
    map_arrays,
    with_draws,
)
from evidencenet._common.masks import Form, like_draws, unmasked_shape
from evidencenet.estimator.densities import difference
from evidencenet.estimator.error import scatter_of
from evidencenet.networks import ensemble
from evidencenet.simulation.dataset import Simulations
from evidencenet.training.scaling import Scaling

if TYPE_CHECKING:
    from evidencenet.estimator.network import EvidenceNetwork

# Scaled numbers are clipped to this many standard deviations: far beyond any draw, and small enough that
# products of several of them do not overflow in single precision (3e38).
_FARTHEST = 1e6
# Observations in one block: a multiple of the 8,192 that networks take at once. With four members, 100
# numbers and 256 hidden units a block takes about 200 MB.
_ROWS = 65_536
# A last block this small would use another compiled program, whose rounding differs. It joins the one before.
_SMALLEST_BLOCK = 64


def checked(x: Any, example: Data, columns: Sequence[str] | None = None, masked: Form | None = None) -> Data:
    """Return observations as a batch like the draws, or say in an error what is wrong with them.

    Parameters
    ----------
    x
        n observations, (n, ...) or a dict of such arrays; or a single one, without the first axis.
    example
        Zeros in the form of one draw.
    columns
        Names of the numbers of a draw, if they are known. Data with named columns are then put in this order,
        and refused if they have other names.
    masked
        The form that missing numbers of the draws were given, if they were declared as missing.
    """
    if isinstance(x, Simulations):
        raise TypeError("x is Simulations, which hold labels too; give their data, sims.x.")
    given, data = x, as_batch(x, example, columns, masked)
    if layout(data) != layout(map_arrays(lambda array: array[None], example)):
        raise ValueError(_wrong_form(given, data, example, masked))
    for key, array in data.items() if isinstance(data, dict) else [("", data)]:
        is_finite = finite_rows(array)
        if not is_finite.all():
            place = f"x[{key!r}]" if isinstance(given, dict) else "x"
            advice = (
                "Infinity is not a number that can be missing; give NaN for a missing one."
                if masked is not None
                else "If numbers can be missing, let the simulators return NaN in the same way, draw with "
                "simulate(..., missing='mask'), and train on that: then x may hold NaN."
            )
            raise ValueError(
                f"{place} holds NaN or infinity in {(~is_finite).sum()} of {len(array)} observations, first "
                f"in number {int(np.argmin(is_finite))}: its Bayes factor is not defined. {advice}"
            )
    if masked in ("elements", "numbers") and isinstance(data, dict) and len(data["mask"]):
        empty = ~data["mask"].any(axis=1)
        if empty.any():
            raise ValueError(
                f"observation number {int(np.argmax(empty))} has no number at all: every one is missing. "
                "Leave such observations out."
            )
    return data


def as_batch(x: Any, example: Data, columns: Sequence[str] | None, masked: Form | None) -> Data:
    """Return observations as arrays with a first axis, their columns in order, and what is missing masked.

    The arguments are those of `checked`. What does not fit the draws is not refused here.
    """
    if columns is not None:
        x, _ = in_order(x, columns, stacklevel=5)
    if isinstance(x, Real) and not isinstance(example, dict) and example.shape == (1,):
        x = np.array([[x]], dtype=np.float64)
    return as_data(with_draws(like_draws(x, example, masked), example))


def _wrong_form(given: Any, data: Data, example: Data, masked: Form | None) -> str:
    """Say what was given, and what the network wants."""
    wanted: tuple[Any, ...] | None = None
    note = ", as the draws that it was trained on"
    if not isinstance(example, dict) and masked is None:
        wanted = example.shape
    elif masked not in (None, "parts"):
        wanted, note = unmasked_shape(example, masked), ", with NaN where a number is missing"
    elif isinstance(example, dict) and set(example) <= {"x", "mask", "x_seen"} and "mask" in example:
        wanted = ("T", *example["x"].shape[1:])
        note = f", where the length T is at most {len(example['mask'])}"
    if wanted is None or isinstance(given, dict):
        return (
            f"x is {layout_text(layout(data))}; this network was trained on "
            f"{layout_text(layout(map_arrays(lambda array: array[None], example)))}. Give observations in "
            "the form of the simulated data."
        )
    shape = ", ".join(map(str, wanted))
    one = f"({shape},)" if len(wanted) == 1 else f"({shape})"
    return (
        f"x has shape {np.shape(given)}; this network wants one observation of shape {one}, or several of "
        f"shape (n, {shape}){note}."
    )


def in_blocks(net: "EvidenceNetwork", data: Data) -> "Iterator[Evaluation]":
    """Evaluate checked observations block by block, so that memory does not grow with their number."""
    n = len(arrays_of(data)[0])
    starts = list(range(0, max(n, 1), _ROWS))
    if len(starts) > 1 and n - starts[-1] <= _SMALLEST_BLOCK:
        starts.pop()
    for start, stop in zip(starts, [*starts[1:], n], strict=True):
        yield Evaluation(net, map_arrays(lambda array, rows=slice(start, stop): array[rows], data))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a network says of n observations.

    The *classes* that networks tell apart are the models; if some densities are known, a fitted reference
    comes first, and known models may be missing.

    Attributes
    ----------
    net
        The network.
    data
        Checked observations, as a batch.
    """

    net: "EvidenceNetwork"
    data: Data

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(arrays_of(self.data)[0])

    @cached_property
    def scaled(self) -> Data:
        """Scaled observations, clipped so that no log K overflows."""
        return self._scaled_by(self.net.scaling)

    def _scaled_by(self, scaling: Scaling) -> Data:
        with np.errstate(over="ignore"):
            scaled = scaling(self.data)
        return map_arrays(lambda a: a if a.dtype == bool else np.clip(a, -_FARTHEST, _FARTHEST), scaled)

    @cached_property
    def trained(self) -> np.ndarray:
        """Log K of the classes against the first by each member, as trained, (members, n, classes).

        Neither recalibration nor failed draws are part of it.
        """
        net = self.net
        if net.networks is None:
            return np.zeros((len(net.gain), self.n, len(net.names)))
        log_odds = ensemble.log_odds(net.networks, net.states, net.gain, net.loss, self.scaled).astype(float)
        if net.baseline is not None:
            log_odds += net.baseline(self.scaled)
        elif isinstance(net.loss, losses.Asymmetric):
            # Other losses give log K itself, because they are told the training shares.
            shares = net.log_prior if net.densities is None else net.densities.log_shares
            log_odds -= shares - shares[0]
        if net.partner is not None:
            log_odds = net.partner.joined(log_odds, net.partner.log_k(self._scaled_by(net.partner.scaling)))
        return log_odds

    @cached_property
    def recalibrated(self) -> np.ndarray:
        """Log K of the classes after recalibration, (members, n, classes)."""
        log_k = self.trained
        for step in self.net.recalibration:
            log_k = step.members(log_k)
        return log_k

    @cached_property
    def slope(self) -> np.ndarray:
        """By which factor recalibration multiplies the errors of log K, (n,)."""
        log_k, slope = self.trained, np.ones(self.n)
        for step in self.net.recalibration:
            slope = slope * step.slope_at(log_k.mean(axis=0))
            log_k = step.members(log_k)
        return slope

    @cached_property
    def log_p(self) -> np.ndarray:
        """Log p(x, x is valid | model) by each member, (members, n, K).

        If no density is known, a term that all models share is left out.
        """
        net, learned = self.net, self.recalibrated
        log_p = learned if net.densities is None else net.densities.log_p(learned, self.data)
        return log_p + net.log_valid

    @cached_property
    def rarity(self) -> np.ndarray:
        """How often draws of each class lie farther out than an observation, (n, classes); NaN if unknown."""
        net = self.net
        if net.novelty is None:
            return np.full((self.n, len(net.names)), np.nan)
        hidden = None
        if net.novelty.hidden_mean is not None:
            hidden = ensemble.hidden_layers(net.networks, net.states, net.gain, self.scaled)
        p = net.novelty.p_value(self.scaled, hidden)
        # A number that was the same in every draw, and is another here, is impossible for all of them.
        # Scaling makes it 0, so the distances do not see it.
        impossible = self.departures.any(axis=1)
        p[impossible] = net.novelty.smallest
        return p

    @cached_property
    def departures(self) -> np.ndarray:
        """Where numbers differ from their value in every training draw, (n, numbers of a draw)."""
        if self.net.seen is None:
            return np.zeros((self.n, 0), dtype=bool)
        return self.net.seen.departures(self.data)

    def members(self, model: int, against: int) -> np.ndarray:
        """Return log K of two models by each member, (members, n)."""
        return difference(self.log_p[:, :, model], self.log_p[:, :, against])

    def validated_by_density(self, model: int, against: int) -> np.ndarray:
        """Say whether log K of two models needs no validated range, (n,), because of known densities."""
        net = self.net
        if net.densities is None:
            return np.zeros(self.n, dtype=bool)
        near = self.rarity > (1.0 if net.novelty is None else net.novelty.least)
        return net.densities.validates(model, against, self.recalibrated.mean(axis=0), self.data, near)

    def in_range(self, model: int, against: int) -> np.ndarray:
        """Say whether log K of two models lies in its validated range, (n,)."""
        if model == against:
            return np.ones(self.n, dtype=bool)
        log_k = self.members(model, against).mean(axis=0)
        in_range = self.net.held_out.range(model, against).contains(log_k)
        return in_range | self.validated_by_density(model, against)

    def error(self, model: int, against: int) -> np.ndarray:
        """Return the standard error of log K of two models, (n,)."""
        net = self.net
        if model == against:
            return np.zeros(self.n)
        if net.densities is None:
            error = self.slope * self._learned_error(model, against, self.rarity)
        else:
            rarity = self.rarity[:, net.densities.columns]

            def squared(first: int, second: int) -> np.ndarray:
                return np.square(self._learned_error(first, second, rarity))

            mean = self.trained.mean(axis=0)
            error = np.sqrt(net.densities.variance(model, against, mean, self.data, squared))
        if net.depth is not None:
            error = np.hypot(error, net.depth.error(self.trained.mean(axis=0), model, against))
        return np.hypot(error, np.hypot(net.log_valid_error[model], net.log_valid_error[against]))

    def _learned_error(self, first: int, second: int, rarity: np.ndarray) -> np.ndarray:
        """Return the error of log K of two classes as trained, (n,), given their `rarity` (n, classes)."""
        net = self.net
        scatter = scatter_of(self.trained, first, second)
        jackknife = scatter
        if net.baseline is not None:
            jackknife = np.sqrt(scatter**2 + net.baseline.variance(self.scaled, first, second))
        if net.errors is None:
            return jackknife
        # The error was learned for the later class against the earlier one, and is the same both ways round.
        # It is never less than the scatter of the members.
        later, earlier = max(first, second), min(first, second)
        log_k = (self.trained[:, :, later] - self.trained[:, :, earlier]).mean(axis=0)
        return np.fmax(net.errors(log_k, jackknife, rarity[:, [first, second]].max(axis=1)), scatter)
