"""Draws of data labelled by the model they came from."""

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from evidencenet.data import (
    Data,
    Parameters,
    arrays_of,
    as_data,
    index_of,
    join,
    kind_of,
    layout,
    layout_text,
    map_arrays,
)
from evidencenet.simulation_fields import (
    alike,
    check_finite,
    checked_failed,
    checked_labels,
    checked_log_ratio,
    checked_log_weight,
    checked_names,
    checked_parameters,
    positions,
)

# Reweighted draws that are worth fewer, or a smaller part of their number, are warned about.
_LEAST_EFFECTIVE, _LEAST_PART = 1_000, 0.01


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Simulations:
    """Data drawn from K models, which model each draw came from, and how many draws failed.

    Parameters
    ----------
    x
        The data, shape (n, ...), or a dict of such arrays; boolean arrays in a dict are masks. Integers
        become float64, arrays of shape (n,) become (n, 1). All values must be finite.
    model
        The label of each draw, integers 0, ..., K − 1, shape (n,).
    names
        K distinct names; by default ``"M0"``, ``"M1"``, ....
    log_weight
        The logarithm of an importance weight per draw, shape (n,); −inf is a weight of zero. Only ratios
        within one model matter. None means equal weights.
    failed
        How many draws of each model failed and are not in `x`, K integers; by default none.
    parameters
        For each model its parameters, with one row per draw of that model in the order of `x`, or None.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(1).normal(size=(6, 3))
    >>> sims = Simulations(x, [0, 0, 0, 1, 1, 1], names=("flat", "trend"), failed=(0, 1))
    >>> sims.counts, sims.valid_fraction
    ((3, 3), array([1.  , 0.75]))
    """

    x: Data
    model: np.ndarray
    names: tuple[str, ...]
    log_weight: np.ndarray | None
    failed: tuple[int, ...]
    parameters: tuple[Parameters | None, ...] | None

    def __init__(
        self,
        x: ArrayLike | dict[str, Any],
        model: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        log_weight: ArrayLike | None = None,
        failed: Sequence[int] | None = None,
        parameters: Sequence[Parameters | None] | None = None,
    ) -> None:
        data = as_data(x)
        n = len(arrays_of(data)[0])
        if n == 0:
            raise ValueError("x is empty; wanted at least one draw of each model")
        labels = checked_labels(model, n)
        checked = checked_names(names, labels)
        counts = np.bincount(labels, minlength=len(checked))
        for name, count in zip(checked, counts, strict=True):
            if count == 0:
                raise ValueError(f"model {name!r} has no draws; each model must have at least one")
        weight = None if log_weight is None else checked_log_weight(log_weight, labels, checked)
        check_finite(data)
        self._set(
            x=data,
            model=labels,
            names=checked,
            log_weight=weight,
            failed=checked_failed(failed, checked),
            parameters=None if parameters is None else checked_parameters(parameters, counts, checked),
        )

    def _set(self, **fields: Any) -> None:
        """Fill in the fields as they are, with arrays that cannot be written to by mistake."""
        for name, value in fields.items():
            if name in ("x", "model") or (name == "log_weight" and value is not None):
                value = map_arrays(_read_only, value)
            object.__setattr__(self, name, value)

    @classmethod
    def _trusted(cls, **fields: Any) -> Self:
        """Make a record of draws that were checked before: reading them all again would be slow."""
        new = object.__new__(cls)
        new._set(**fields)
        return new

    def __len__(self) -> int:
        return len(self.model)

    def __add__(self, other: "Simulations") -> "Simulations":
        return Simulations.concatenate([self, other]) if isinstance(other, Simulations) else NotImplemented

    def __repr__(self) -> str:
        parts = self.x if isinstance(self.x, dict) else {"x": self.x}
        shapes = ", ".join(f"{key} {array.shape[1:]} {array.dtype}" for key, array in parts.items())
        columns = {"draws": self.counts, "failed": self.failed}
        if self.log_weight is not None:
            columns["effective"] = tuple(round(float(size)) for size in self.effective_sample_size)
        width = max(len(name) for name in ("model", *self.names))
        rows = [f"{'model':<{width}}" + "".join(f"{title:>13}" for title in columns)]
        for k, name in enumerate(self.names):
            rows.append(f"{name:<{width}}" + "".join(f"{column[k]:>13,}" for column in columns.values()))
        return "\n  ".join([f"Simulations: {len(self):,} draws of {shapes}", *rows])

    @property
    def counts(self) -> tuple[int, ...]:
        """How many draws of each model there are, K integers."""
        return tuple(int(count) for count in np.bincount(self.model, minlength=len(self.names)))

    @property
    def drawn(self) -> tuple[int, ...]:
        """How many draws of each model were made, failed ones included."""
        return tuple(map(operator.add, self.counts, self.failed))

    @property
    def valid_fraction(self) -> np.ndarray:
        """The fraction of each model's draws that did not fail, shape (K,)."""
        return np.array(self.counts) / np.array(self.drawn)

    @property
    def log_valid_error(self) -> np.ndarray:
        """The standard error of log `valid_fraction`, shape (K,); 0 where no draw failed.

        It is √((1 − f)/(f n)) for a fraction f of n draws made, whether n was given, or the number of draws
        that did not fail, as in `simulate`. The Bayes factor of two models has the errors of both.
        """
        return np.sqrt(np.array(self.failed) / np.array(self.drawn) / np.array(self.counts))

    @property
    def shape(self) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
        """The shape of one draw, or a dict of shapes."""
        return map_arrays(lambda array: array.shape[1:], self.x)

    @property
    def weights(self) -> np.ndarray:
        """The weight of each draw, with mean one within each model, shape (n,)."""
        weights = np.ones(len(self))
        if self.log_weight is not None:
            for k in range(len(self.names)):
                mine = self.model == k
                # The largest weight is taken out first so that the exponential cannot overflow.
                raw = np.exp(self.log_weight[mine] - self.log_weight[mine].max())
                weights[mine] = raw / raw.mean()
        return weights

    @property
    def effective_sample_size(self) -> np.ndarray:
        """Per model (Σ w)² / Σ w²: how many draws of equal weight these are worth, shape (K,)."""
        weights = self.weights
        first = np.bincount(self.model, weights)
        return first**2 / np.bincount(self.model, weights**2)

    def reweight(self, model: int | str, log_ratio: Callable[[Any], ArrayLike]) -> "Simulations":
        """Change the prior of a model's parameters without new draws.

        Parameters
        ----------
        model
            The model, by label or by name.
        log_ratio
            ``log_ratio(theta)`` is the log of the new prior's density over the old one's, shape (n,), for all
            n parameters of the model's draws, in the form in which its prior drew them. A constant factor
            does not matter; −inf leaves a draw out. The new prior must not reach where the old one does not.

        Returns
        -------
        Simulations
            The same draws, with `log_weight` changed for this model. Networks trained on them, and every
            check, then answer for the new prior.

        Raises
        ------
        ValueError
            If the parameters were not kept, or if draws of the model failed: it is not known at which
            parameters, hence not what part would fail under the new prior.

        Warns
        -----
        UserWarning
            If the draws are then worth fewer than 1,000 of equal weight, or less than 1% of their number.

        Examples
        --------
        >>> import numpy as np
        >>> from evidencenet.models import Model
        >>> from evidencenet.simulate import simulate
        >>> noise = Model("noise", lambda rng, n: rng.normal(size=(n, 3)))
        >>> level = Model(
        ...     "level",
        ...     prior=lambda rng, n: rng.normal(scale=2, size=n),
        ...     simulate=lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 3)),
        ... )
        >>> wide = simulate([noise, level], 10_000, seed=1, keep_parameters=True, progress=False)
        >>> narrow = wide.reweight("level", lambda mean: -0.5 * mean**2 + 0.5 * (mean / 2) ** 2)
        >>> narrow.effective_sample_size.round(-2)  # exact: 5,000 and 3,307
        array([5000., 3300.])
        """
        k = index_of(model, self.names)
        mine = self.model == k
        weight = np.zeros(len(self)) if self.log_weight is None else self.log_weight.copy()
        weight[mine] += checked_log_ratio(log_ratio, self.parameters, self.failed, self.names, k)
        checked = checked_log_weight(weight, self.model, self.names)
        new = Simulations._trusted(**(vars(self) | {"log_weight": checked}))
        worth, count = float(new.effective_sample_size[k]), self.counts[k]
        if worth < max(_LEAST_EFFECTIVE, _LEAST_PART * count):
            warnings.warn(
                f"{count:,} draws of model {self.names[k]!r} are worth only {worth:,.0f} of equal weight: "
                "few of them lie where the new prior does, and log K will be about as uncertain as from so "
                "few. Simulate more, from the new prior itself or from one between the two.",
                stacklevel=2,
            )
        return new

    def of_equal_weight(self, *, seed: int = 0) -> "Simulations":
        """Return a part of weighted draws that has equal weights, as if drawn from the new prior.

        Each draw is kept with a chance in proportion to its weight, and none twice: every test of unweighted
        draws may be made on the result.
        """
        if self.log_weight is None:
            return self
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        part = self.take(alike(self.model, self.weights, rng))
        return Simulations._trusted(**(vars(part) | {"log_weight": None}))

    def of(self, model: int | str) -> Data:
        """Return the data of one model, given by its name or its number."""
        mine = self.model == index_of(model, self.names)
        return map_arrays(lambda array: array[mine], self.x)

    def take(self, index: ArrayLike | slice) -> "Simulations":
        """Return some of the draws.

        Parameters
        ----------
        index
            Integers, a boolean mask of length n, or a slice. Every model must keep at least one draw.

        Returns
        -------
        Simulations
            Failed draws are shared out in proportion to the draws taken of their model, rounded.
        """
        chosen = positions(index, len(self))
        taken = np.bincount(self.model[chosen], minlength=len(self.names))
        for name, count in zip(self.names, taken, strict=True):
            if count == 0:
                raise ValueError(f"no draw of model {name!r} was taken; each model must keep at least one")
        failed = [round(f * t / c) for f, t, c in zip(self.failed, taken.tolist(), self.counts, strict=True)]
        return self._subset(chosen, tuple(failed))

    def split(self, fraction: float = 0.5, *, seed: int = 0) -> tuple["Simulations", "Simulations"]:
        """Split the draws in two at random, each model in the same proportion.

        Parameters
        ----------
        fraction
            The part of each model's draws that goes to the first, between 0 and 1.
        seed
            The same seed gives the same split.

        Returns
        -------
        first, second
            Together they hold every draw, and every failed draw, exactly once.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must lie between 0 and 1, got {fraction}")
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        in_first = np.zeros(len(self), dtype=bool)
        failed = []
        for k, (name, count) in enumerate(zip(self.names, self.counts, strict=True)):
            size = round(fraction * count)
            if size in (0, count):
                raise ValueError(
                    f"model {name!r} has {count} draws: a fraction of {fraction} leaves one part without "
                    "any; draw more or choose a fraction nearer to one half"
                )
            in_first[rng.permutation(np.flatnonzero(self.model == k))[:size]] = True
            failed.append(round(self.failed[k] * size / count))
        first = self._subset(np.flatnonzero(in_first), tuple(failed))
        return first, self._subset(np.flatnonzero(~in_first), tuple(map(operator.sub, self.failed, failed)))

    @staticmethod
    def concatenate(parts: "Sequence[Simulations]") -> "Simulations":
        """Join simulations of the same models, also written ``first + second``; failed draws add up."""
        parts = list(parts)
        if not parts:
            raise ValueError("there is nothing to concatenate; wanted at least one Simulations")
        first = parts[0]
        for other in parts[1:]:
            _check_alike(first, other)
        log_weights = [part.log_weight for part in parts if part.log_weight is not None]
        kept = [part.parameters for part in parts if part.parameters is not None]
        per_model = zip(*kept, strict=True)
        parameters = tuple(None if theta[0] is None else join(*theta) for theta in per_model)
        return Simulations._trusted(
            x=join(*(part.x for part in parts)),
            model=join(*(part.model for part in parts)),
            names=first.names,
            log_weight=join(*log_weights) if log_weights else None,
            failed=tuple(map(sum, zip(*(part.failed for part in parts), strict=True))),
            parameters=parameters if kept else None,
        )

    def _subset(self, chosen: np.ndarray, failed: tuple[int, ...]) -> "Simulations":
        parameters = None
        if self.parameters is not None:
            rank = np.empty(len(self), dtype=np.intp)
            for k, count in enumerate(self.counts):
                rank[self.model == k] = np.arange(count)
            mine = [rank[chosen[self.model[chosen] == k]] for k in range(len(self.names))]
            parameters = tuple(
                None if theta is None else map_arrays(operator.itemgetter(rows), theta)
                for theta, rows in zip(self.parameters, mine, strict=True)
            )
        model, weight = self.model[chosen], self.log_weight
        return Simulations._trusted(
            x=map_arrays(operator.itemgetter(chosen), self.x),
            model=model,
            names=self.names,
            # Checked again, because the draws taken may be just those of weight zero.
            log_weight=None if weight is None else checked_log_weight(weight[chosen], model, self.names),
            failed=failed,
            parameters=parameters,
        )


def _check_alike(first: Simulations, other: Simulations) -> None:
    """Raise unless the two can be joined; the message says what differs."""
    if first.names != other.names:
        raise ValueError(f"the models differ: {', '.join(first.names)} and {', '.join(other.names)}")
    if layout(first.x) != layout(other.x):
        raise ValueError(
            f"the data differ: {layout_text(layout(first.x))} and {layout_text(layout(other.x))}; "
            "keys, shapes and types must be the same"
        )
    if (first.log_weight is None) != (other.log_weight is None):
        raise ValueError("one has log_weight and the other has not; give both (zeros if equal) or none")
    kept = [sims.parameters and [_parameter_layout(t) for t in sims.parameters] for sims in (first, other)]
    if kept[0] != kept[1]:
        raise ValueError("the parameters kept differ in what they hold; keep the same ones in both, or none")


def _parameter_layout(theta: Parameters | None) -> tuple[Any, ...]:
    if theta is None:
        return ()
    return list(theta) if isinstance(theta, dict) else type(theta), [a.shape[1:] for a in arrays_of(theta)]


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def check_draws(caller: str, sims: Any, names: tuple[str, ...]) -> None:
    """Refuse what are not draws of the models that a network compares."""
    if not isinstance(sims, Simulations):
        raise TypeError(f"{caller} takes Simulations, got {kind_of(sims)}; make some with simulate.")
    if sims.names != names:
        raise ValueError(f"the draws are of {sims.names}, the network compares {names}, in this order.")
