"""`Simulations`: draws of data, each labelled with the model it came from.

The class comes first. Below it are the functions it uses: checks of what the user gives, parts and sums of
draws, weights, and the text and HTML that show the record.
"""

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from evidencenet._common.arguments import explained, no_attribute
from evidencenet._common.arrays import (
    Data,
    Named,
    Parameters,
    arrays_of,
    as_data,
    finite_rows,
    in_order,
    index_of,
    join,
    kind_of,
    layout,
    layout_text,
    map_arrays,
)
from evidencenet._common.display import card, listed_names
from evidencenet._common.harmless import harmless, listed
from evidencenet._common.masks import Form, is_unequal, mask_missing, pad, with_nan
from evidencenet._common.warnings import EffectiveSizeWarning, InputWarning, RandomnessWarning
from evidencenet.simulation.io.draws import PathLike, naming, read_draws, write_draws
from evidencenet.simulation.labels import checked_failed, checked_labels, checked_names
from evidencenet.simulation.observe import Observation, Observe

LogDensity = Callable[[Any], Any]

# `reweight` warns when the draws are worth fewer than this many of equal weight: 1,000 draws leave a scatter
# of about 1/√1000 = 3% in any mean.
_LEAST_EFFECTIVE = 1_000
# It also warns when they are worth less than this part of their number: then one draw in a hundred or fewer
# decides the answer.
_LEAST_PART = 0.01
# Draws are examined for repetitions up to this many of each model, or this many numbers: it then takes 0.1 s.
_MOST_ROWS, _MOST_NUMBERS = 200_000, 2 * 10**7
# Repetitions are told from this fraction on. Single precision alone makes 0.6% of 200,000 numbers equal.
_LEAST_REPEATED = 0.01
# Rows that repeat are counted. Even if all rows are equally likely, the counts of independent draws have a
# variance over mean of 0.82 for a mean of 3, and 0.56 for 1.9 (a Poisson law without 0). Counts that are more
# regular come from a seed, or from rows that are there twice: (least mean, largest variance over mean).
_REGULAR = ((3.0, 0.5), (1.9, 0.1))
# Up to this ratio, rows are repeated evenly, as from a library of simulations. That is told if the numbers
# are continuous, because then they should not repeat at all.
_EVEN = 2.0
# Fewer distinct rows than this are data of few values, unless they are continuous.
_LEAST_DISTINCT = 20
# Numbers missing in one model, and not at all in another, are told from this fraction on.
_TOLD_GAPS = 0.01
# What people look for in draws, and where it is.
_HINTS = {
    "y": "model, the label of each draw",
    "labels": "model, the label of each draw",
    "label": "model, the label of each draw",
    "models": "names",
    "data": "x",
    "theta": "parameters",
    "n": "counts, or len(sims)",
    "sample": "take(index) or split(fraction)",
    "to_dataframe": "x and model: pandas.DataFrame(sims.x, columns=sims.columns)",
    "save": "write(path)",
    "load": "Simulations.read(path)",
}
# Hashes are made of so many numbers at a time, half a megabyte, which stays in the processor's cache.
_HASH_NUMBERS = 2**16


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Simulations:
    """Data drawn from K models, the model of each draw, and how many draws failed.

    Parameters
    ----------
    x
        The data, shape (n, ...), or a dict of such arrays; boolean arrays in a dict are masks. Integers
        become float64, arrays of shape (n,) become (n, 1). Arrays of pandas, Polars, xarray, PyTorch and JAX
        are fine. A list of arrays of unequal length is padded and gets a mask. All values must be finite,
        unless `missing` is given. Without `model`, a dict with the data of each model, by name.
    model
        The label of each draw, shape (n,): integers 0, ..., K − 1, or names. Integers 1, ..., K are counted
        from 0, with a warning. If `x` is a data frame, also the name of its column of labels.
    names
        K distinct names; by default ``"M0"``, ``"M1"``, ..., or those in `model` in alphabetical order.
    log_weight
        The logarithm of an importance weight per draw, shape (n,); −inf is a weight of zero. Only ratios
        within one model matter. None means equal weights.
    failed
        How many draws of each model failed and are not in `x`, K integers; by default none.
    parameters
        For each model its parameters, with one row per draw of that model in the order of `x`, or None.
    log_density
        For each model the function that gives its log density, as in `Model`, or None. Files do not hold it.
    columns
        The names of the numbers of a draw, if it is a vector; by default those of a DataFrame.
    missing
        ``"mask"``: NaN in `x` is a missing number. The data then become a dict of ``"x"`` and ``"mask"``, or
        images with a further channel, which says where there are numbers; observations with NaN are brought
        to the same form. Numbers must be missing in the draws in the same way as in the observation.
    observe
        ``observe(rng, clean)`` adds noise to a batch of clean draws, or whatever else happens before they
        are observed; or one such function, or `Model`, for each model, None where draws are data already.
        Then `x` are clean draws. They are kept as `clean`, the attribute `x` has one observation of each,
        and `train` draws new noise in every epoch.
    seed
        Of the noise in the attribute `x`.

    Warns
    -----
    InputWarning
        If labels were counted from 0, columns reordered by name, or draws padded.
    RandomnessWarning
        If draws repeat, as from a simulator that sets its own seed.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(1).normal(size=(6, 3))
    >>> sims = Simulations(x, [0, 0, 0, 1, 1, 1], names=("flat", "trend"), failed=(0, 1))
    >>> sims.counts, sims.valid_fraction
    ((3, 3), array([1.  , 0.75]))
    >>> Simulations({"flat": x[:3], "trend": x[3:]}).names
    ('flat', 'trend')
    >>> noisy = Simulations(
    ...     x, [0, 0, 0, 1, 1, 1], observe=lambda rng, clean: clean + rng.normal(size=clean.shape)
    ... )
    >>> bool(np.all(noisy.clean == x)), bool(np.any(noisy.x == x))
    (True, False)
    """

    x: Data
    model: np.ndarray
    names: tuple[str, ...]
    log_weight: np.ndarray | None
    failed: tuple[int, ...]
    parameters: tuple[Parameters | None, ...] | None
    log_density: tuple[LogDensity | None, ...] | None = None
    columns: tuple[str, ...] | None = None
    masked: Form | None = None
    clean: Data | None = field(default=None, init=False)
    observation: Observation | None = field(default=None, init=False)
    noise_seed: int = field(default=0, init=False)

    def __init__(
        self,
        x: ArrayLike | Mapping[str, Any],
        model: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        *,
        log_weight: ArrayLike | None = None,
        failed: Sequence[int] | None = None,
        parameters: Sequence[Parameters | None] | None = None,
        log_density: Sequence[LogDensity | None] | None = None,
        columns: Sequence[str] | None = None,
        missing: Literal["mask"] | None = None,
        observe: Observe | None = None,
        seed: int = 0,
    ) -> None:
        if missing not in (None, "mask"):
            raise ValueError(
                f"missing must be 'mask' (NaN is a missing number) or None (NaN is a mistake), got "
                f"{missing!r}"
            )
        if isinstance(model, str):
            x, model = _label_column(x, model)
        if model is None:
            x, model, names = _by_model(x, names)
        given, own_columns = in_order(x, columns)
        data = as_data(_padded(given))
        n = len(arrays_of(data)[0])
        if n == 0:
            raise ValueError("x is empty; wanted at least one draw of each model")
        labels, label_names = checked_labels(model, n, names)
        all_names = checked_names(label_names, labels)
        all_columns = _checked_columns(own_columns if columns is None else columns, data)
        observation = None if observe is None else Observation.of(observe, all_names, missing == "mask")
        clean = None
        masked: Form | None = None
        if observation is not None:
            _check_finite(data)
            clean, data = data, observation.realise(data, labels, seed)
            if layout(data) != layout(clean):
                # What is observed has other numbers than the clean draws.
                all_columns = None
            # Only vectors can have missing numbers that `observe` makes.
            masked = "elements" if missing == "mask" else None
        elif missing == "mask":
            data, masked = mask_missing(data)
        counts = np.bincount(labels, minlength=len(all_names))
        for name, count in zip(all_names, counts, strict=True):
            if count == 0:
                raise ValueError(f"model {name!r} has no draws; each model must have at least one")
        weight = None if log_weight is None else _checked_log_weight(log_weight, labels, all_names)
        _check_finite(data)
        warn_of_repeats(data, labels, all_names)
        _warn_of_row_numbers(data, labels, all_columns)
        if masked is not None:
            _warn_of_uneven_gaps(data, masked, labels, all_names)
        self._set(
            x=data,
            model=labels,
            names=all_names,
            log_weight=weight,
            failed=checked_failed(failed, all_names),
            parameters=None if parameters is None else _checked_parameters(parameters, counts, all_names),
            log_density=_checked_log_density(log_density, all_names),
            columns=all_columns,
            masked=masked,
            clean=clean,
            observation=observation,
            noise_seed=seed,
        )

    def _set(self, **fields: Any) -> None:
        """Fill in the fields as they are, with arrays that cannot be written to by mistake."""
        for name, value in fields.items():
            if name in ("x", "model") or (name in ("log_weight", "clean") and value is not None):
                value = map_arrays(_read_only, value)
            object.__setattr__(self, name, value)

    @classmethod
    def _unchecked(cls, **fields: Any) -> Self:
        """Make a record of draws that were checked before: to read them all again would be slow."""
        new = object.__new__(cls)
        new._set(**fields)
        return new

    def with_fields(self, **fields: Any) -> Self:
        """Return the same draws with some fields changed, which are not checked."""
        return self._unchecked(**(vars(self) | fields))

    def in_columns(self, columns: tuple[str, ...] | None) -> "Simulations":
        """Return the draws with their columns in another order, by name, if both orders are known."""
        if columns is None or self.columns is None or self.columns == columns:
            return self
        _, order = in_order(Named(np.arange(len(self.columns)), self.columns), columns)
        places = [self.columns.index(name) for name in order or ()]
        return self.with_fields(x=map_arrays(lambda array: array[:, places], self.x), columns=columns)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(no_attribute(self, name, _HINTS))

    def __getitem__(self, model: str) -> Data:
        """Return the data of one model, by its name, as `of` does."""
        if not isinstance(model, str):
            raise TypeError(
                f"sims[{model!r}]: draws are taken by sims.take(index), and the data of a model by its name, "
                f"sims[{self.names[0]!r}] or sims.of({self.names[0]!r})"
            )
        return self.of(model)

    def __len__(self) -> int:
        return len(self.model)

    def __add__(self, other: "Simulations") -> "Simulations":
        return Simulations.concatenate([self, other]) if isinstance(other, Simulations) else NotImplemented

    def __repr__(self) -> str:
        return _table(self)

    def _repr_html_(self) -> str:
        return _card(self)

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

        It is √((1 − f)/(f n)) for a fraction f of n draws made. This holds whether n was fixed in advance, or
        the number of valid draws was, as in `simulate`. The Bayes factor of two models has the errors of
        both.
        """
        return np.sqrt(np.array(self.failed) / np.array(self.drawn) / np.array(self.counts))

    @property
    def shape(self) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
        """The shape of one draw, or a dict of shapes."""
        return map_arrays(lambda array: array.shape[1:], self.x)

    @property
    def weights(self) -> np.ndarray:
        """The weight of each draw, with mean one within each model, shape (n,)."""
        return _weights(self.log_weight, self.model)

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
            does not matter; −inf leaves a draw out. The new prior must be zero wherever the old one is zero.

        Returns
        -------
        Simulations
            The same draws, with `log_weight` changed for this model. Networks trained on them, and every
            check, then answer for the new prior.

        Raises
        ------
        ValueError
            If the parameters were not kept. Also if draws of the model failed: their parameters are not
            known, so nobody can tell which fraction would fail under the new prior.

        Warns
        -----
        EffectiveSizeWarning
            If the draws are then worth fewer than 1,000 of equal weight, or less than 1% of their number.

        Examples
        --------
        >>> import numpy as np
        >>> from evidencenet import Model, simulate
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
        _check_no_density(self.log_density, self.names, k)
        weight = np.zeros(len(self)) if self.log_weight is None else self.log_weight.copy()
        weight[self.model == k] += _checked_log_ratio(log_ratio, self, k)
        log_weight = _checked_log_weight(weight, self.model, self.names)
        new = self.with_fields(log_weight=log_weight)
        _warn_if_few(self.names[k], self.counts[k], float(new.effective_sample_size[k]))
        return new

    def observed_again(self, *, seed: int) -> "Simulations":
        """Return the same clean draws with other noise in `x`; `train` does it by itself in every epoch."""
        if self.clean is None or self.observation is None:
            raise ValueError(
                "these draws have no clean part, so they cannot be observed again; give observe= to "
                "Model(...) or to Simulations(...)"
            )
        x = self.observation.realise(self.clean, self.model, seed)
        return Simulations._unchecked(**(vars(self) | {"x": x, "noise_seed": seed}))

    def of_equal_weight(self, *, seed: int = 0) -> "Simulations":
        """Return a random part of weighted draws that has equal weights, as if drawn from the new prior.

        The chance to keep a draw is proportional to its weight. No draw is kept twice, so every test for
        unweighted draws is valid on the result.
        """
        if self.log_weight is None:
            return self
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        part = self.take(thinned(self.model, self.weights, rng))
        return part.with_fields(log_weight=None)

    def of(self, model: int | str) -> Data:
        """Return the data of one model, given by its name or its number."""
        in_model = self.model == index_of(model, self.names)
        return map_arrays(lambda array: array[in_model], self.x)

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
        chosen = _positions(index, len(self))
        taken = np.bincount(self.model[chosen], minlength=len(self.names))
        for name, count in zip(self.names, taken, strict=True):
            if count == 0:
                raise ValueError(f"no draw of model {name!r} was taken; each model must keep at least one")
        failed = [round(f * t / c) for f, t, c in zip(self.failed, taken.tolist(), self.counts, strict=True)]
        return _subset(self, chosen, failed)

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
        in_first = _first_part(self, fraction, seed)
        sizes = np.bincount(self.model[in_first], minlength=len(self.names)).tolist()
        failed = [round(f * s / c) for f, s, c in zip(self.failed, sizes, self.counts, strict=True)]
        rest = list(map(operator.sub, self.failed, failed))
        first = _subset(self, np.flatnonzero(in_first), failed)
        return first, _subset(self, np.flatnonzero(~in_first), rest)

    @staticmethod
    def concatenate(parts: "Sequence[Simulations]") -> "Simulations":
        """Join simulations of the same models, also written ``first + second``; failed draws add up."""
        return _joined(list(parts))

    @classmethod
    @explained(
        "Simulations.read('draws.npz')",
        {
            "models": "observe=[...], the models whose observe is used",
            "columns": "keys=...",
            "labels": "label=..., the name of the labels in the file",
            "*": "Several files, one for each model, are a list or a dict by name.",
        },
    )
    def read(
        cls,
        path: PathLike | Mapping[str, PathLike] | Sequence[PathLike],
        *,
        names: Sequence[str] | None = None,
        label: str = "model",
        keys: str | Sequence[str] | None = None,
        log_density: Sequence[LogDensity | None] | None = None,
        missing: Literal["mask"] | None = None,
        observe: Observe | None = None,
        max_bytes: int | None = None,
    ) -> Self:
        """Read draws from files that any program wrote.

        Rows with NaN or infinity are failed draws: they are dropped and counted in `failed`, with a warning.

        Parameters
        ----------
        path
            - One file with labels. Arrays (.npz, .h5, .hdf5, .zarr): the data in ``x``, or in several arrays
              for a dict, and ``model``; also ``names``, ``failed``, ``log_weight``, ``parameters/0`` and so
              on. The store of `simulate` is one too. Tables (.csv, .tsv, .txt, .dat, .parquet): one row per
              draw, a column ``label``, perhaps ``log_weight``. All other columns are the data, in their
              order. Columns called ``x_0_0``, ``x_0_1``, ... are entries of an array of that shape.
            - One file per model, in a list or in a dict by name; also .npy, or text without header.
        names
            The models in the order wanted. By default the order is that of the file; labels that are text
            are sorted; files in a list give their names to the models. If nothing names the models, they are
            ``"M0"``, ``"M1"``, ....
        label
            The name of the labels, which are numbers or names; ``"model"`` also finds ``"label"``.
        keys
            Which arrays or columns are the data; by default all others.
        log_density
            As in `Simulations`; files do not hold it.
        missing
            ``"mask"``: NaN is a missing number, as in `Simulations`; by default it is a failed draw.
        observe
            As in `Simulations`, or the list of models that were simulated: then the file holds clean draws.
            Files do not hold functions.
        max_bytes
            How much memory the draws of one file may take. By default 256 MB, or 100 times the size of the
            file if that is more: a small file that unpacks to more was probably made to do harm.

        Raises
        ------
        evidencenet._common.files.FileError
            A file is damaged, holds something else, or would take more than `max_bytes`.

        Examples
        --------
        >>> Simulations.read("draws.csv")  # doctest: +SKIP
        >>> Simulations.read({"flat": "a.npy", "trend": "b.h5"})  # doctest: +SKIP
        """
        with naming(path):
            fields = read_draws(
                path, names=names, label=label, keys=keys, max_bytes=max_bytes, missing=missing is not None
            )
            noise_seed, masked = fields.pop("noise_seed"), fields.pop("masked")
            if observe is not None and Observation.of(observe, tuple(fields["names"])) is None:
                # Models without `observe`, whose draws are data.
                observe = None
            if noise_seed is not None and observe is None:
                raise ValueError(
                    "it holds clean draws, and no file can hold the function that observes them. Give the "
                    "models that were simulated, with their observe: read(path, observe=[first, second]), "
                    "train(path, models=[first, second]), or --models models.py on the command line"
                )
            if observe is not None:
                # Clean draws: numbers are missing only after they are observed.
                fields["missing"] = fields["missing"] or missing or ("mask" if masked else None)
                return cls(**fields, log_density=log_density, observe=observe, seed=noise_seed or 0)
            if masked is None:
                return cls(**fields, log_density=log_density)
            # Masked before they were written. The names are those of the numbers before that.
            columns, _ = fields.pop("columns"), fields.pop("missing")
            return cls(**fields, log_density=log_density).with_fields(columns=columns, masked=masked)

    def write(self, path: PathLike) -> None:
        """Write the draws to a file, from which `read` gets the same to the bit.

        Of draws with `clean` parts only these are written. Then `read` needs `observe`, and draws the noise
        in `x` anew. A file that exists already is replaced only when the new one is complete.

        Parameters
        ----------
        path
            The suffix decides the format: .npz, .h5, .hdf5 and .zarr keep all but `log_density`; .csv and
            .parquet cannot hold parameters or dicts, which are refused. The first line of a .csv file is a
            comment.
        """
        write_draws(path, vars(self))


def check_draws(caller: str, sims: Any, names: tuple[str, ...]) -> None:
    """Raise unless these are draws of the models that a network compares, in the same order."""
    if not isinstance(sims, Simulations):
        raise TypeError(f"{caller} takes Simulations, got {kind_of(sims)}; make some with simulate.")
    if sims.names != names:
        raise other_models(sims.names, names)


def other_models(given: Sequence[str], wanted: Sequence[str]) -> ValueError:
    """Make the error for draws of other models than a network compares."""
    return ValueError(
        f"the draws are of {', '.join(given)}; the network compares {', '.join(wanted)}, in this order. Draw "
        "from the same models in the same order, or give the same names="
    )


def row_hashes(x: Data) -> np.ndarray:
    """Return a number for each draw that is the same for equal draws, shape (n,), uint64.

    Equal numbers of other types (float32, integers) have the same hash, and so have 0 and −0. Different draws
    agree by chance once in 2⁶⁴.

    Examples
    --------
    >>> import numpy as np
    >>> hashes = row_hashes(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> hashes[0] == hashes[2], hashes[0] == hashes[1]
    (np.True_, np.False_)
    """
    arrays = arrays_of(x)
    hashes = np.zeros(len(arrays[0]), np.uint64)
    for salt, array in enumerate(arrays):
        rows = array.reshape(len(array), -1)
        places = np.arange(rows.shape[1], dtype=np.uint64) + np.uint64(salt << 40)
        factors = _mixed(places) | np.uint64(1)
        step = max(1, _HASH_NUMBERS // max(1, rows.shape[1]))
        for start in range(0, len(rows), step):
            # Adding 0 turns −0 into 0.
            block = rows[start : start + step].astype(np.float64) + 0.0
            hashes[start : start + step] += (_mixed(block.view(np.uint64)) * factors).sum(
                axis=1, dtype=np.uint64
            )
    return hashes


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Spread every bit over all others (the finaliser of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def warn_of_repeats(x: Data, model: np.ndarray, names: tuple[str, ...]) -> None:
    """Warn if draws of a model repeat more than chance allows."""
    width = sum(array.size for array in arrays_of(x)) // max(1, len(model))
    most = int(min(_MOST_ROWS, max(1_000, _MOST_NUMBERS // max(1, width))))
    step = max(1, _HASH_NUMBERS // max(1, width))
    for k, name in enumerate(names):
        rows = np.flatnonzero(model == k)[:most]
        parts = [rows[start : start + step] for start in range(0, len(rows), step)]
        hashes = np.concatenate([row_hashes(map_arrays(operator.itemgetter(part), x)) for part in parts])
        distinct = _distinct_if_repeated(hashes, x, rows)
        if distinct is not None:
            of = f"{len(rows):,}" if len(rows) == np.count_nonzero(model == k) else f"the first {len(rows):,}"
            warnings.warn(
                f"model {name!r}: only {distinct:,} of {of} draws are distinct. The draws repeat, as from a "
                "simulator that sets its own seed, from a small library of simulations, or from a file that "
                "was read twice. The network would learn them by heart, and every check on them would pass. "
                "Take all random numbers from the rng that the simulator is given. If your data can take "
                "only so few values, ignore this.",
                RandomnessWarning,
                stacklevel=4,
            )


def _distinct_if_repeated(hashes: np.ndarray, x: Data, rows: np.ndarray) -> int | None:
    """Return how many of the draws in `rows` are distinct, if more repeat than chance allows."""
    _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    distinct, n = len(counts), len(rows)
    if distinct == 1 and n >= _LEAST_DISTINCT:
        one = map_arrays(operator.itemgetter(rows[:1]), x)
        # A model may always give the same counts; it hardly always gives the same fractions.
        return 1 if any(np.any(array != np.round(array)) for array in arrays_of(one)) else None
    if n - distinct < max(_LEAST_REPEATED * n, 2):
        return None
    ratio = counts.var() / counts.mean()
    regular = any(counts.mean() >= mean and ratio < largest for mean, largest in _REGULAR)
    regular &= distinct >= _LEAST_DISTINCT
    repeated = map_arrays(operator.itemgetter(rows[first[counts > 1][:1_000]]), x)
    return distinct if regular or (ratio < _EVEN and _is_continuous(repeated)) else None


def _is_continuous(x: Data) -> bool:
    """Say whether some number takes values off any regular grid, unlike whole or rounded numbers."""
    for array in arrays_of(x):
        if array.dtype == bool:
            continue
        for column in array.reshape(len(array), -1).T[:100]:
            values = np.unique(column.astype(np.float64))
            gaps = np.diff(values)
            if len(gaps) < 2:
                continue
            steps = gaps / gaps.min()
            rounding = 4 * np.finfo(array.dtype).eps * np.abs(values).max() / gaps.min()
            if np.abs(steps - np.round(steps)).max() > max(rounding, 1e-6):
                return True
    return False


def _warn_of_row_numbers(x: Data, model: np.ndarray, columns: tuple[str, ...] | None) -> None:
    """Warn if some number of a draw only counts the draws of each model."""
    if isinstance(x, dict) or x.ndim != 2 or len(x) < _LEAST_DISTINCT:
        return
    rows = [np.flatnonzero(model == k) for k in range(int(model.max()) + 1)]
    counting = np.ones(x.shape[1], bool)
    # A few draws first: random numbers hardly ever get farther.
    for most in (4, len(x)):
        for these in rows:
            places = np.flatnonzero(counting)
            part = x[np.ix_(these[:most], places)]
            counting[places] = np.all(np.diff(part, axis=0) == 1, axis=0) & (len(part) > 2)
    # Where all numbers count, they are an example and no data.
    if counting.any() and not counting.all():
        place = int(np.argmax(counting))
        name = f"number {place} of each draw" if columns is None else f"column {columns[place]!r}"
        warnings.warn(
            f"{name} rises by 1 from draw to draw, as a row number does. It is not data: leave it out, since "
            "the network would learn which rows belong to which model",
            InputWarning,
            stacklevel=4,
        )


def _warn_of_uneven_gaps(x: Data, form: Form, model: np.ndarray, names: tuple[str, ...]) -> None:
    """Warn if numbers are missing in some models and not in others: a gap then tells the models apart."""
    if form == "parts":
        return
    draws = with_nan(x, form)
    assert isinstance(draws, np.ndarray)
    parts = [float(np.isnan(draws[model == k]).mean()) for k in range(len(names))]
    if len(model) >= _LEAST_DISTINCT * len(names) and min(parts) == 0 and max(parts) > _TOLD_GAPS:
        least, most = names[int(np.argmin(parts))], names[int(np.argmax(parts))]
        warnings.warn(
            f"{100 * max(parts):.2g}% of the numbers are missing in draws of {most!r}, and none in draws of "
            f"{least!r}: a single gap in the observation then rules out {least!r}. If that is not meant, let "
            "numbers be missing in all models in the same way",
            InputWarning,
            stacklevel=4,
        )


# Checks of what the user gives: each raises an error that says what to give instead.


def _label_column(x: Any, label: str) -> tuple[Any, Any]:
    """Divide a data frame into data and the column of labels."""
    if not hasattr(x, "columns") or not hasattr(x, "drop"):
        raise TypeError(
            f"model = {label!r} names a column of labels, but x is {kind_of(x)}; wanted a data frame, or one "
            "label per draw"
        )
    if label not in x.columns:
        raise ValueError(f"x has no column {label!r} of labels; it has {', '.join(map(str, x.columns))}")
    rest = [name for name in x.columns if name != label]
    return x[rest], x[label]


def _by_model(x: Any, names: Sequence[str] | None) -> tuple[Any, np.ndarray, Sequence[str]]:
    """Return the data of a dict by model as one batch, their labels, and the names."""
    if not isinstance(x, Mapping) or not x:
        raise TypeError(
            "Simulations needs to know the model of each draw: give model=, one label per draw, or a dict "
            "with the data of each model, Simulations({'flat': x0, 'trend': x1})"
        )
    if names is not None and sorted(names) != sorted(map(str, x)):
        raise ValueError(f"x has the models {listed(x)}, but names= gives {listed(names)}")
    ordered = list(x) if names is None else list(names)
    columns: tuple[str, ...] | None = None
    tables = 0
    parts = []
    for name in ordered:
        values, found = in_order(x[name], columns)
        columns, tables = columns or found, tables + (found is not None)
        parts.append(values)
    if any(is_unequal(part) for part in parts):
        rows = [row for part in parts for row in part]
        data: Any = _padded(rows)
    else:
        batches = [as_data(part) for part in parts]
        for name, batch in zip(ordered[1:], batches[1:], strict=True):
            if layout(batch) != layout(batches[0]):
                raise ValueError(
                    f"the data of {name!r} are {layout_text(layout(batch))}, those of {ordered[0]!r} "
                    f"{layout_text(layout(batches[0]))}; wanted the same keys, shapes and types. (A dict of "
                    "the parts of a draw needs model=, one label per draw)"
                )
        data = join(*batches)
    labels = np.repeat(np.arange(len(parts)), [_rows(part) for part in parts])
    if columns is not None and tables == len(parts) and isinstance(data, np.ndarray):
        data = Named(data, columns)
    return data, labels, [str(name) for name in ordered]


def _rows(part: Any) -> int:
    return len(arrays_of(as_data(part))[0]) if not is_unequal(part) else len(part)


def _padded(x: Any) -> Any:
    """Pad a list of arrays of unequal length, and say so; return anything else as it is."""
    if not is_unequal(x):
        return x
    padded = pad(x)
    lengths = padded["mask"].sum(axis=1)
    tell_padding(int(lengths.min()), int(lengths.max()))
    return padded


def tell_padding(shortest: int, longest: int) -> None:
    """Warn that draws of unequal length were padded."""
    warnings.warn(
        f"the draws have unequal lengths, from {shortest} to {longest}: they were padded to {longest}, and "
        "beside the data there is now a 'mask', which is True where there is data. Shorter observations are "
        "padded in the same way; longer ones cannot be compared",
        InputWarning,
        stacklevel=5,
    )


def _checked_columns(columns: Sequence[str] | None, x: Data) -> tuple[str, ...] | None:
    """Return the names of the numbers of a draw, one for each."""
    if columns is None:
        return None
    names = tuple(map(str, columns))
    if isinstance(x, dict) or x.ndim != 2 or x.shape[1] != len(names):
        raise ValueError(
            f"columns gives {len(names)} names, but x is {layout_text(layout(x))}; wanted one name for each "
            "number of a draw"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name: {listed(names)}; names must be distinct")
    return names


def _check_finite(x: Data) -> None:
    """Raise if any draw holds NaN or infinity."""
    for where, array in {f"x[{key!r}]": x[key] for key in x}.items() if isinstance(x, dict) else [("x", x)]:
        finite = finite_rows(array)
        if not finite.all():
            raise ValueError(
                f"{where} has NaN or infinity in {np.count_nonzero(~finite)} of {len(finite)} rows, first in "
                f"row {int(np.argmin(finite))}. If NaN means that a number is missing, give missing='mask'. "
                "If these are failed draws, draw with simulate(), which counts them, or drop the rows and "
                "say with failed= how many were dropped of each model"
            )


def _checked_log_weight(log_weight: ArrayLike, labels: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return log weights (n,), none of which is NaN or +inf, and not all −inf in any model."""
    weight = np.asarray(log_weight, dtype=np.float64)
    if weight.shape != labels.shape:
        raise ValueError(f"log_weight has shape {weight.shape}; wanted one per draw, shape {labels.shape}")
    wrong = np.isnan(weight) | (weight == np.inf)
    if wrong.any():
        raise ValueError(
            f"log_weight is NaN or +infinity in {np.count_nonzero(wrong)} of {len(weight)} draws, first in "
            f"draw {int(np.argmax(wrong))}; wanted finite numbers, or −infinity for a weight of zero"
        )
    for k, name in enumerate(names):
        if np.all(weight[labels == k] == -np.inf):
            raise ValueError(f"all weights of model {name!r} are zero; at least one must not be")
    return weight


def _checked_log_ratio(log_ratio: Callable[[Any], ArrayLike], sims: Simulations, model: int) -> np.ndarray:
    """Return the log ratio of two priors for each draw of a model."""
    name, failed = sims.names[model], sims.failed[model]
    if not callable(log_ratio):
        raise TypeError(
            "log_ratio must be a function of the parameters that returns the log of new over old prior "
            f"density, got {kind_of(log_ratio)}"
        )
    theta = None if sims.parameters is None else sims.parameters[model]
    if theta is None:
        raise ValueError(
            f"the parameters of model {name!r} are not known, so its draws cannot be reweighted; draw them "
            "with simulate(..., keep_parameters=True) from a model that has a prior, or give "
            "Simulations(..., parameters=)"
        )
    if failed:
        raise ValueError(
            f"{failed:,} draws of model {name!r} failed, and their parameters are not known. Nobody can tell "
            "which fraction would fail under the new prior, and this fraction enters K. Simulate from the "
            "new prior"
        )
    ratio, count = np.asarray(log_ratio(theta), dtype=np.float64), len(arrays_of(theta)[0])
    if ratio.shape != (count,):
        raise ValueError(
            f"log_ratio returned shape {ratio.shape} for {count} parameters of model {name!r}; wanted one "
            f"number each, shape ({count},)"
        )
    wrong = np.isnan(ratio) | (ratio == np.inf)
    if wrong.any():
        raise ValueError(
            f"log_ratio is NaN or +infinity for {np.count_nonzero(wrong)} of {count} parameters of model "
            f"{name!r}, first for number {int(np.argmax(wrong))}; where the new prior has no density, return "
            "−infinity"
        )
    return ratio


def _checked_parameters(
    parameters: Sequence[Parameters | None], counts: np.ndarray, names: tuple[str, ...]
) -> tuple[Parameters | None, ...]:
    """Return each model's parameters as arrays with one row per draw."""
    if not isinstance(parameters, (list, tuple)) or len(parameters) != len(names):
        raise ValueError(f"parameters must be a tuple with an entry for each of the {len(names)} models")
    thetas = tuple(None if theta is None else map_arrays(np.asarray, theta) for theta in parameters)
    for theta, count, name in zip(thetas, counts, names, strict=True):
        for array in () if theta is None else arrays_of(theta):
            if array.shape[:1] != (count,):
                raise ValueError(
                    f"model {name!r} has {count} draws, but its parameters have shape {array.shape}"
                )
    return thetas


def _checked_log_density(
    functions: Sequence[LogDensity | None] | None, names: tuple[str, ...]
) -> tuple[LogDensity | None, ...] | None:
    """Return a function or None for each model, or None if no density is known."""
    if functions is None:
        return None
    if not isinstance(functions, (list, tuple)) or len(functions) != len(names):
        raise ValueError(f"log_density must be a tuple with an entry for each of the {len(names)} models")
    for name, function in zip(names, functions, strict=True):
        if function is not None and not callable(function):
            raise TypeError(
                f"log_density of model {name!r} must be a function of a batch of data, or None, got "
                f"{kind_of(function)}"
            )
    return None if all(function is None for function in functions) else tuple(functions)


def _check_no_density(
    functions: tuple[LogDensity | None, ...] | None, names: tuple[str, ...], model: int
) -> None:
    """Raise if the density of a model is known: a change of its prior would make it wrong."""
    if functions is not None and functions[model] is not None:
        raise ValueError(
            f"model {names[model]!r} has a log_density, which belongs to its own prior and not to the new "
            "one. Simulate a Model with the new prior and its density, or without log_density."
        )


# Parts of draws, and sums.


def _positions(index: ArrayLike | slice, n: int) -> np.ndarray:
    """Return the numbers of the draws that an index stands for."""
    if isinstance(index, slice):
        return np.arange(n)[index]
    chosen = np.asarray(index)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iub":
        raise TypeError(
            f"index must be integers, a mask or a slice; got {chosen.dtype}, shape {chosen.shape}"
        )
    if chosen.dtype == bool:
        if len(chosen) != n:
            raise ValueError(f"the mask has length {len(chosen)}, but there are {n} draws")
        return np.flatnonzero(chosen)
    chosen = chosen.astype(np.intp)
    outside = (chosen < -n) | (chosen >= n)
    if outside.any():
        raise ValueError(f"index {chosen[outside][0]} is outside the {n} draws")
    return np.where(chosen < 0, chosen + n, chosen)


def _subset(sims: Simulations, chosen: np.ndarray, failed: Sequence[int]) -> Simulations:
    """Return the draws with these numbers, (m,), and these counts of failed draws."""
    model, weight = sims.model[chosen], sims.log_weight
    fields = {
        "x": map_arrays(operator.itemgetter(chosen), sims.x),
        "clean": None if sims.clean is None else map_arrays(operator.itemgetter(chosen), sims.clean),
        "model": model,
        # Checked again, because all draws taken of a model may have a weight of zero.
        "log_weight": None if weight is None else _checked_log_weight(weight[chosen], model, sims.names),
        "failed": tuple(failed),
        "parameters": sims.parameters and _parameter_rows(sims.parameters, sims.model, chosen),
    }
    return sims.with_fields(**fields)


def _parameter_rows(
    parameters: tuple[Parameters | None, ...], model: np.ndarray, chosen: np.ndarray
) -> tuple[Parameters | None, ...]:
    """Return the parameters of the chosen draws: each model's rows are counted within the model."""
    rank = np.empty(len(model), dtype=np.intp)
    for k in range(len(parameters)):
        rank[model == k] = np.arange(np.count_nonzero(model == k))
    rows_per_model = [rank[chosen[model[chosen] == k]] for k in range(len(parameters))]
    return tuple(
        None if theta is None else map_arrays(operator.itemgetter(rows), theta)
        for theta, rows in zip(parameters, rows_per_model, strict=True)
    )


def _first_part(sims: Simulations, fraction: float, seed: int) -> np.ndarray:
    """Choose at random which draws go to the first of two parts, boolean (n,)."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, got {fraction}")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    in_first = np.zeros(len(sims), dtype=bool)
    for k, (name, count) in enumerate(zip(sims.names, sims.counts, strict=True)):
        size = round(fraction * count)
        if size in (0, count):
            raise ValueError(
                f"model {name!r} has {count} draws: a fraction of {fraction} leaves one part without "
                "any; draw more or choose a fraction nearer to one half"
            )
        in_first[rng.permutation(np.flatnonzero(sims.model == k))[:size]] = True
    return in_first


def _joined(parts: Sequence[Simulations]) -> Simulations:
    """Put several simulations of the same models one after the other."""
    if not parts:
        raise ValueError("there is nothing to concatenate; wanted at least one Simulations")
    parts = [parts[0], *(other.in_columns(parts[0].columns) for other in parts[1:])]
    for other in parts[1:]:
        _check_alike(parts[0], other)
    log_weights = [part.log_weight for part in parts if part.log_weight is not None]
    parameters = [part.parameters for part in parts if part.parameters is not None]
    thetas_per_model = zip(*parameters, strict=True)
    joined = tuple(None if thetas[0] is None else join(*thetas) for thetas in thetas_per_model)
    return Simulations._unchecked(
        x=join(*(part.x for part in parts)),
        model=join(*(part.model for part in parts)),
        names=parts[0].names,
        log_weight=join(*log_weights) if log_weights else None,
        failed=tuple(map(sum, zip(*(part.failed for part in parts), strict=True))),
        parameters=joined if parameters else None,
        log_density=_joined_densities(parts),
        columns=parts[0].columns,
        clean=None if parts[0].clean is None else join(*(part.clean for part in parts)),
        observation=parts[0].observation,
        noise_seed=parts[0].noise_seed,
        masked=parts[0].masked,
    )


def _joined_densities(parts: Sequence[Simulations]) -> tuple[LogDensity | None, ...] | None:
    """Return each model's density from the first part that has it: draws from a file have none."""
    per_model = zip(*(part.log_density for part in parts if part.log_density is not None), strict=True)
    return tuple(next((f for f in functions if f is not None), None) for functions in per_model) or None


def _check_alike(first: Simulations, other: Simulations) -> None:
    """Raise unless two Simulations can be joined; the message says what differs."""
    if first.names != other.names:
        raise ValueError(f"the models differ: {listed(first.names)} and {listed(other.names)}")
    if layout(first.x) != layout(other.x):
        raise ValueError(
            f"the data differ: {layout_text(layout(first.x))} and {layout_text(layout(other.x))}; "
            "keys, shapes and types must be the same"
        )
    _check_observed_alike(first, other)
    if (first.log_weight is None) != (other.log_weight is None):
        raise ValueError("one has log_weight and the other has not; give both (zeros if equal) or none")
    if _parameter_layouts(first) != _parameter_layouts(other):
        raise ValueError("the parameters differ in what they hold; keep the same ones in both, or none")


def _check_observed_alike(first: Simulations, other: Simulations) -> None:
    """Raise unless two Simulations are observed by the same functions, or both by none."""
    functions = [None if sims.observation is None else sims.observation.functions for sims in (first, other)]
    if functions[0] != functions[1]:
        raise ValueError(
            "they are observed by different functions; give both the same observe, as the same object"
            if None not in functions
            else "one has clean draws and observe, and the other has not; give observe to both, or to none"
        )
    if first.clean is not None and other.clean is not None and layout(first.clean) != layout(other.clean):
        raise ValueError(
            f"the clean draws differ: {layout_text(layout(first.clean))} and "
            f"{layout_text(layout(other.clean))}; keys, shapes and types must be the same"
        )


def _parameter_layouts(sims: Simulations) -> list[tuple[Any, ...]] | None:
    return None if sims.parameters is None else [_parameter_layout(theta) for theta in sims.parameters]


def _parameter_layout(theta: Parameters | None) -> tuple[Any, ...]:
    if theta is None:
        return ()
    # A named tuple that was read from a file is of another type than the one that was written.
    kind = list(theta) if isinstance(theta, dict) else getattr(theta, "_fields", type(theta))
    return kind, [array.shape[1:] for array in arrays_of(theta)]


# Weights.


def thinned(model: np.ndarray, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose a random part of the draws that has equal weights, boolean (n,).

    The chance to keep a draw is its weight over the largest weight of its model. Resampling with replacement
    would keep more draws, but some of them twice, and tests that assume independent draws would be wrong.
    """
    largest = np.zeros(model.max(initial=0) + 1)
    np.maximum.at(largest, model, weight)
    chosen: np.ndarray = rng.random(len(model)) * largest[model] < weight
    return chosen


def _weights(log_weight: np.ndarray | None, model: np.ndarray) -> np.ndarray:
    """Return weights with mean one within each model, shape (n,)."""
    normalised = np.ones(len(model))
    if log_weight is not None:
        for k in range(int(model.max()) + 1):
            in_model = model == k
            # The largest weight is taken out first so that the exponential cannot overflow.
            raw = np.exp(log_weight[in_model] - log_weight[in_model].max())
            normalised[in_model] = raw / raw.mean()
    return normalised


def _warn_if_few(name: str, count: int, worth: float) -> None:
    """Warn if reweighted draws are worth few of equal weight."""
    if worth < max(_LEAST_EFFECTIVE, _LEAST_PART * count):
        warnings.warn(
            f"{count:,} draws of model {name!r} are worth only {worth:,.0f} of equal weight: few of them lie "
            "where the new prior does, and log K will be about as uncertain as from so few. Simulate more, "
            "from the new prior itself or from one between the two.",
            EffectiveSizeWarning,
            stacklevel=3,
        )


# How the record is shown, and how it is protected.


def _table(sims: Simulations) -> str:
    """Return a small table: one row per model."""
    parts = sims.x if isinstance(sims.x, dict) else {"x": sims.x}
    shapes = ", ".join(f"{harmless(key)} {array.shape[1:]} {array.dtype}" for key, array in parts.items())
    columns = {"draws": sims.counts, "failed": sims.failed}
    if sims.log_weight is not None:
        columns["effective"] = tuple(round(float(size)) for size in sims.effective_sample_size)
    names = [harmless(name) for name in sims.names]
    width = max(len(name) for name in ("model", *names))
    rows = [f"{'model':<{width}}" + "".join(f"{title:>13}" for title in columns)]
    for k, name in enumerate(names):
        rows.append(f"{name:<{width}}" + "".join(f"{column[k]:>13,}" for column in columns.values()))
    noise = "" if sims.clean is None else ", observed anew in training"
    if sims.columns is not None:
        rows.append(f"columns: {listed_names(sims.columns)}")
    if sims.masked is not None:
        rows.append("missing numbers are masked")
    return "\n  ".join([f"Simulations: {len(sims):,} draws of {shapes}{noise}", *rows])


def _card(sims: Simulations) -> str:
    """Return HTML for a notebook: one row per model."""
    rows = []
    for k, name in enumerate(sims.names):
        text = f"{sims.counts[k]:,} draws"
        if sims.failed[k]:
            text += f", and {sims.failed[k]:,} that failed ({1 - sims.valid_fraction[k]:.2g} of all)"
        if sims.log_weight is not None:
            text += f", worth {sims.effective_sample_size[k]:,.0f} of equal weight"
        rows.append((name, text))
    rows.append(("data", layout_text(layout(sims.x))))
    if sims.columns is not None:
        rows.append(("columns", listed_names(sims.columns)))
    if sims.masked is not None:
        rows.append(("missing numbers", "masked"))
    if sims.parameters is not None:
        rows.append(("parameters", "kept"))
    if sims.clean is not None:
        rows.append(("clean draws", "kept; training draws new noise in every epoch"))
    return card(f"{len(sims):,} draws of {len(sims.names)} models", rows)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
