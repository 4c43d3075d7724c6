"""Draws of data labelled by the model they came from."""

import operator
from collections.abc import Callable, Mapping, Sequence
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
    kind_of,
    map_arrays,
)
from evidencenet.display import simulations_card
from evidencenet.files import PathLike, naming, read_draws, write_draws
from evidencenet.simulation_fields import (
    alike,
    check_finite,
    check_no_density,
    checked_failed,
    checked_labels,
    checked_log_density,
    checked_log_ratio,
    checked_log_weight,
    checked_names,
    checked_parameters,
    positions,
)
from evidencenet.simulation_parts import halves, joined, subset, table_text, warn_of_few, weights


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
    log_density
        For each model the function that gives its log density, as in `Model`, or None. Files do not hold it.

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
    log_density: tuple[Callable[[Any], Any] | None, ...] | None = None

    def __init__(
        self,
        x: ArrayLike | dict[str, Any],
        model: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        log_weight: ArrayLike | None = None,
        failed: Sequence[int] | None = None,
        parameters: Sequence[Parameters | None] | None = None,
        log_density: Sequence[Callable[[Any], Any] | None] | None = None,
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
            log_density=checked_log_density(log_density, checked),
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
        return table_text(self)

    _repr_html_ = simulations_card

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
        return weights(self.log_weight, self.model)

    @property
    def effective_sample_size(self) -> np.ndarray:
        """Per model (Σ w)² / Σ w²: how many draws of equal weight these are worth, shape (K,)."""
        weight = self.weights
        return np.bincount(self.model, weight) ** 2 / np.bincount(self.model, weight**2)

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
        check_no_density(self.log_density, self.names, k)
        mine = self.model == k
        weight = np.zeros(len(self)) if self.log_weight is None else self.log_weight.copy()
        weight[mine] += checked_log_ratio(log_ratio, self.parameters, self.failed, self.names, k)
        checked = checked_log_weight(weight, self.model, self.names)
        new = Simulations._trusted(**(vars(self) | {"log_weight": checked}))
        warn_of_few(self.names[k], self.counts[k], float(new.effective_sample_size[k]))
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
        return Simulations._trusted(**subset(self, chosen, failed))

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
        in_first, failed = halves(self, fraction, seed)
        rest = list(map(operator.sub, self.failed, failed))
        parts = (np.flatnonzero(in_first), failed), (np.flatnonzero(~in_first), rest)
        first, second = (Simulations._trusted(**subset(self, *part)) for part in parts)
        return first, second

    @staticmethod
    def concatenate(parts: "Sequence[Simulations]") -> "Simulations":
        """Join simulations of the same models, also written ``first + second``; failed draws add up."""
        return Simulations._trusted(**joined(list(parts)))

    @classmethod
    def read(
        cls,
        path: PathLike | Mapping[str, PathLike] | Sequence[PathLike],
        *,
        names: Sequence[str] | None = None,
        label: str = "model",
        keys: str | Sequence[str] | None = None,
        log_density: Sequence[Callable[[Any], Any] | None] | None = None,
    ) -> Self:
        """Read draws from files, whoever wrote them.

        Rows with NaN or infinity are failed draws: they are dropped and counted in `failed`, with a warning.

        Parameters
        ----------
        path
            - One file with labels. Arrays (.npz, .h5, .hdf5, .zarr): the data in ``x``, or in several arrays
              for a dict, and ``model``; also ``names``, ``failed``, ``log_weight``, ``parameters/0`` and so
              on. The store of `simulate` is one too. Tables (.csv, .tsv, .txt, .dat, .parquet): one row per
              draw, a column ``label``, perhaps ``log_weight``; the others are the data in their order, or
              where they are called ``x_0_0``, ``x_0_1``, ..., entries of an array of that shape.
            - One file per model, in a list or in a dict by name; also .npy, or text without header.
        names
            The models in the order wanted. By default as the files say; else named as the files, in order of
            labels that are names, or ``"M0"``, ``"M1"``, ....
        label
            The name of the labels, which are numbers or names; ``"model"`` stands for ``"label"`` too.
        keys
            Which arrays or columns are the data; by default all others.
        log_density
            As in `Simulations`; files do not hold it.

        Raises
        ------
        evidencenet.storage.FileError
            A file is damaged, or holds something else.

        Examples
        --------
        >>> Simulations.read("draws.csv")  # doctest: +SKIP
        >>> Simulations.read({"flat": "a.npy", "trend": "b.h5"})  # doctest: +SKIP
        """
        with naming(path):
            return cls(**read_draws(path, names=names, label=label, keys=keys), log_density=log_density)

    def write(self, path: PathLike) -> None:
        """Write the draws to a file, from which `read` gets the same to the bit.

        A file that is there already is replaced when all is written, and not before.

        Parameters
        ----------
        path
            The suffix says how: .npz, .h5, .hdf5 and .zarr keep all but `log_density`; .csv and .parquet have
            no room for parameters and dicts, which are refused. The first line of a .csv file is a comment.
        """
        write_draws(path, vars(self))


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
