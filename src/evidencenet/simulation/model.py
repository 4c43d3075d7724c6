"""A model: a name and how to draw data from it."""

import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from evidencenet._common.arguments import explained_class, whole
from evidencenet._common.arrays import (
    Data,
    Parameters,
    arrays_of,
    as_data,
    in_order,
    kind_of,
    map_arrays,
    plain_array,
)
from evidencenet._common.display import card, named
from evidencenet._common.forked import check_not_forked
from evidencenet._common.masks import is_unequal, pad

if TYPE_CHECKING:
    import jax


Kind = Literal["batch", "one", "jax"]
# For messages: kind -> how the functions are called without a prior, and with one.
_SIGNATURES = {
    "batch": ("simulate(rng, n) -> n rows", "prior(rng, n) -> n rows, simulate(rng, theta) -> n rows"),
    "one": ("simulate(rng) -> one draw", "prior(rng) -> one theta, simulate(rng, theta) -> one draw"),
    "jax": ("simulate(key) -> one draw", "prior(key) -> one theta, simulate(key, theta) -> one draw"),
}
_OBSERVE = {
    "batch": "observe(rng, clean) -> n rows, one for each clean draw",
    "one": "observe(rng, clean) -> one data set, for one clean draw",
    "jax": "observe(key, clean) -> one data set, for one clean draw",
}
# For the card in a notebook.
_CALLS = {
    "batch": "many draws in a call",
    "one": "one draw in a call",
    "jax": "one draw in a call, compiled",
}


class DrawError(ValueError, TypeError):
    """A model's function did not return draws: a mistake in the model, not a failed draw."""


@explained_class(
    "Model('name', simulate), or Model('name', prior=prior, simulate=simulate)",
    {
        "*": "Give the prior by its name: prior=prior.",
        "simulator": "simulate=...",
        "sampler": "simulate=...",
        "function": "simulate=...",
        "likelihood": "simulate=..., a function that draws data; a density is given as log_density=...",
        "batch_size": "block=...",
        "noise": "observe=..., a function observe(rng, clean) that returns data",
        "noise_model": "observe=..., a function observe(rng, clean) that returns data",
        "instrument": "observe=..., a function observe(rng, clean) that returns data",
        "timeout": "simulate([...], n, timeout=...)",
        "vectorized": "kind='batch' or kind='one'",
        "seed": "simulate([...], n, seed=...)",
    },
)
@dataclass(frozen=True)
class Model:
    """A model, given only by how to draw data from it.

    Parameters
    ----------
    name
        A non-empty name, shown in every table and figure.
    simulate
        The simulator. How it is called depends on `kind` and on whether there is a prior.
    prior
        Draws parameters, an array or a dict or a tuple of arrays, which are then handed to `simulate`.
    kind
        - ``"batch"``: ``simulate(rng, n)`` returns n draws at once, or with a prior, ``prior(rng, n)``
          returns n parameters and ``simulate(rng, theta)`` one draw for each.
        - ``"one"``: ``simulate(rng)`` returns one draw, or ``prior(rng)`` and ``simulate(rng, theta)``.
        - ``"jax"``: ``simulate(key)`` returns one draw, or ``prior(key)`` and ``simulate(key, theta)``;
          both are vectorised and compiled.

        A draw is an array of any fixed shape, or a dict of such arrays; a batch has n of them along its
        first axis. `rng` is a `numpy.random.Generator`, `key` a JAX random key. With ``"one"``, or in a list
        of n arrays, draws may differ in length: they are padded, with a mask. A batch may be a DataFrame or
        a tuple of n numbers each; names of columns are kept.
    block
        How many draws one call makes, for kinds ``"batch"`` and ``"jax"``; the draws of a given seed depend
        on it. By default a call makes 10 draws, after the first 100 draws 100, after 10,000 draws 1,000, and
        after a million 10,000 (``"jax"``: always 500). Give a larger number if each call costs time of its
        own, for example to start a program.
    observe
        What happens to a draw after `simulate`, if that is expensive: noise, a mask, an instrument, a
        selection. `simulate` then returns clean draws. They are kept, also in stores and files, and
        ``observe(rng, clean)`` is cheap and called many times: training draws new noise in every epoch. It
        gets n clean draws and returns n data sets; for kind ``"one"`` one of each, for ``"jax"``
        ``observe(key, clean)``. A draw fails if it fails in either step. Clean draws of all models must have
        the same shape.
    log_density
        If it is known, the natural log of p(x|model): ``log_density(x)`` takes a batch of n data sets, for
        every kind of model, and returns n numbers; −inf where the density is zero. `train` then uses it
        instead of learning it. If draws can fail, it must be the density of the valid draws: it integrates
        to 1 over them. The chance to fail is accounted for as in other models.

    Examples
    --------
    >>> import numpy as np
    >>> flat = Model("flat", lambda rng, n: rng.normal(size=(n, 20)))
    >>> level = Model(
    ...     "level",
    ...     prior=lambda rng, n: rng.normal(size=n),
    ...     simulate=lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 20)),
    ... )
    >>> x, theta = level.draw(np.random.default_rng(1), 5)
    >>> x.shape, theta.shape
    ((5, 20), (5,))

    A slow simulator and cheap noise, which is then drawn anew in every epoch of a training:

    >>> theory = Model(
    ...     "theory",
    ...     prior=lambda rng, n: rng.normal(size=n),
    ...     simulate=lambda rng, mean: np.repeat(mean[:, None], 20, axis=1),
    ...     observe=lambda rng, clean: clean + rng.normal(size=clean.shape),
    ... )
    """

    name: str
    simulate: Callable[..., Any] | None = None
    prior: Callable[..., Any] | None = field(default=None, kw_only=True)
    kind: Kind = field(default="batch", kw_only=True)
    log_density: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    block: int | None = field(default=None, kw_only=True)
    observe: Callable[..., Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(
                f"a model's name must be a string, got {kind_of(self.name)}; wanted Model('name', simulate)"
            )
        if not self.name.strip():
            raise ValueError("a model's name must not be empty")
        if self.kind not in _SIGNATURES:
            raise ValueError(
                f"model {self.name!r}: kind must be 'batch' (many draws in a call), 'one' (one draw in a "
                f"call) or 'jax' (one draw in a call, compiled), got {self.kind!r}"
            )
        if not callable(self.simulate):
            raise TypeError(f"model {self.name!r}: simulate must be a function, got {self.simulate!r}")
        if self.prior is not None and not callable(self.prior):
            raise TypeError(f"model {self.name!r}: prior must be a function or None, got {self.prior!r}")
        if self.observe is not None and not callable(self.observe):
            raise TypeError(
                f"model {self.name!r}: observe must be a function of random numbers and clean draws, or "
                f"None, got {self.observe!r}"
            )
        self._check_arguments("prior", self.prior, 1)
        self._check_arguments("simulate", self.simulate, 1 if self.prior is None else 2)
        self._check_observe()
        if self.block is not None:
            if self.kind == "one":
                raise ValueError(f"model {self.name!r}: kind 'one' makes one draw in a call; leave out block")
            object.__setattr__(self, "block", whole(f"model {self.name!r}: block", self.block, 1))
        if self.log_density is not None and not callable(self.log_density):
            raise TypeError(
                f"model {self.name!r}: log_density must be a function of a batch of data, or None, got "
                f"{self.log_density!r}"
            )

    def __repr__(self) -> str:
        options = {"prior": self.prior, "observe": self.observe, "log_density": self.log_density}
        given = "".join(f", {key}={_name(value)}" for key, value in options.items() if value is not None)
        return f"Model({self.name!r}, simulate={_name(self.simulate)}{given}, kind={self.kind!r})"

    def _repr_html_(self) -> str:
        prior = [] if self.prior is None else [("prior", named(self.prior))]
        observe = [] if self.observe is None else [("observe", named(self.observe))]
        kind = ("kind", f"{self.kind}: {_CALLS[self.kind]}")
        return card(f"Model {self.name}", [("simulate", named(self.simulate)), *prior, *observe, kind])

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Data, Parameters | None]:
        """Draw n data sets and their parameters.

        Parameters
        ----------
        rng
            The source of all randomness, also for JAX simulators.
        n
            How many draws.

        Returns
        -------
        x, theta
            The data, shape (n, ...) or a dict of such arrays (one number per draw gives shape (n, 1)), and
            the parameters with n rows, or None without a prior.
        """
        theta = self.draw_parameters(rng, n)
        return self.draw_data(rng, n, theta), theta

    def draw_parameters(self, rng: np.random.Generator, n: int) -> Parameters | None:
        """Draw n parameters from the prior, or return None if the model has none."""
        n = _checked_request(rng, n)
        if self.prior is None:
            return None
        if self.kind == "batch":
            raw = self.prior(rng, n)
        elif self.kind == "one":
            raw = self._stacked("prior", [self.prior(rng) for _ in range(n)])
        else:
            raw = self._compiled_prior(_keys(rng, n))
        theta = map_arrays(np.asarray, raw)
        for array in arrays_of(theta):
            if array.dtype == object:
                raise self._error(
                    f"prior returned {kind_of(raw)}; wanted an array, or a dict or tuple of arrays"
                )
            self._check_rows("prior", array.shape[:1], n)
        return theta

    def draw_data(self, rng: np.random.Generator, n: int, theta: Parameters | None) -> Data:
        """Draw one data set for each of n parameters; `theta` is None for a model without a prior."""
        clean, _ = self.draw_clean(rng, n, theta)
        return clean if self.observe is None else self.observed(rng, clean)

    def observed(self, rng: np.random.Generator, clean: Data) -> Data:
        """Observe clean draws: return a data set for each, with new noise."""
        if self.observe is None:
            raise ValueError(f"model {self.name!r} has no observe: its draws are data as they are")
        n = len(arrays_of(clean)[0])
        if self.kind == "batch":
            raw, _ = _columns(self.observe(rng, clean), n)
        elif self.kind == "one":
            rows = [map_arrays(operator.itemgetter(i), clean) for i in range(n)]
            raw = self._stacked("observe", [_row(self.observe(rng, row))[0] for row in rows])
        else:
            # Minibatches have any number of draws of a model. Few sizes are compiled: powers of two.
            size = 1 << (n - 1).bit_length()
            padded = map_arrays(operator.itemgetter(np.arange(size) % n), clean)
            many = self._compiled_observe(_keys(rng, size), padded)
            raw = map_arrays(operator.itemgetter(slice(n)), many)
        return self._as_draws("observe", raw, n)

    def draw_clean(
        self, rng: np.random.Generator, n: int, theta: Parameters | None
    ) -> tuple[Data, tuple[str, ...] | None]:
        """Draw what `simulate` gives: data, or clean draws if the model has `observe`.

        Returns
        -------
        clean, names
            With n rows; and the names of the columns, if they have any.
        """
        names: tuple[str, ...] | None = None
        n = _checked_request(rng, n)
        simulate = cast(Callable[..., Any], self.simulate)
        if self.kind == "batch":
            raw, names = _columns(simulate(rng, n if theta is None else theta), n)
        elif self.kind == "one":
            arguments = [
                () if theta is None else (map_arrays(operator.itemgetter(i), theta),) for i in range(n)
            ]
            rows = [_row(simulate(rng, *argument)) for argument in arguments]
            names = rows[0][1]
            raw = self._stacked("simulate", [row for row, _ in rows])
        else:
            raw = self._compiled_simulate(_keys(rng, n), *(() if theta is None else (theta,)))
        return self._as_draws("simulate", raw, n), names

    def _as_draws(self, function: str, raw: Any, n: int) -> Data:
        """Return what a function gave as data with n rows."""
        try:
            x = as_data(raw)
        except (TypeError, ValueError) as error:
            advice = ""
            if isinstance(raw, tuple):
                advice = (
                    f". It returned a tuple of {len(raw)}: return the data alone. Parameters are kept by "
                    "simulate(..., keep_parameters=True) if they come from a prior"
                )
            raise self._error(f"{function} did not return data: {error}{advice}") from None
        for array in arrays_of(x):
            self._check_rows(function, array.shape[:1], n)
        return x

    def _check_rows(self, function: str, rows: tuple[int, ...], n: int) -> None:
        if rows == (n,):
            return
        given = f"{rows[0]} rows" if rows else "a single number"
        signature = (
            _OBSERVE[self.kind] if function == "observe" else _SIGNATURES[self.kind][self.prior is not None]
        )
        advice = "; if it makes one draw in a call, add kind='one'" if self.kind == "batch" else ""
        raise self._error(
            f"{function} returned {given} where {n} {'was' if n == 1 else 'were'} wanted; "
            f"for kind={self.kind!r} the signature is {signature}{advice}"
        )

    def _check_arguments(self, what: str, function: Any, count: int) -> None:
        """Raise if a function cannot be called with the arguments that it will get."""
        if function is None:
            return
        if self.kind == "batch" and (what == "prior" or self.prior is None):
            count += 1
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions in C do not tell
            return
        try:
            signature.bind(*[None] * count)
        except TypeError:
            wanted = _SIGNATURES[self.kind][self.prior is not None]
            others = [
                kind
                for kind, calls in _SIGNATURES.items()
                if kind != self.kind and _binds(signature, count + (1 if self.kind != "batch" else -1))
            ]
            advice = ""
            if self.kind == "batch" and others and (what == "prior" or self.prior is None):
                advice = ". If it makes one draw in a call, add kind='one' (or kind='jax')"
            elif self.kind != "batch" and others and (what == "prior" or self.prior is None):
                advice = ". If it makes n draws in a call, leave out kind="
            raise TypeError(
                f"model {self.name!r}: {what}{signature} cannot be called as kind={self.kind!r} calls it: "
                f"{wanted}{advice}"
            ) from None
        self._check_first(what, signature)

    def _check_observe(self) -> None:
        """Raise if `observe` cannot be called with random numbers and clean draws."""
        if self.observe is None:
            return
        try:
            signature = inspect.signature(self.observe)
        except (TypeError, ValueError):  # some functions in C do not tell
            return
        if not _binds(signature, 2):
            raise TypeError(
                f"model {self.name!r}: observe{signature} cannot be called as kind={self.kind!r} calls it: "
                f"{_OBSERVE[self.kind]}"
            )
        self._check_first("observe", signature)

    def _check_first(self, what: str, signature: inspect.Signature) -> None:
        """Raise if the second argument is called rng: the random numbers come first."""
        names = list(signature.parameters)
        if len(names) > 1 and names[1] in ("rng", "generator") and names[0] not in ("rng", "generator"):
            raise TypeError(
                f"model {self.name!r}: {what}{signature} has {names[1]} as its second argument; random "
                f"numbers come first: {what}({names[1]}, {names[0]})"
            )

    def _error(self, text: str) -> DrawError:
        return DrawError(f"model {self.name!r}: {text}")

    def _stacked(self, function: str, rows: list[Any]) -> Any:
        if function == "simulate" and self.observe is not None and is_unequal(rows):
            raise self._error(
                "simulate returned clean draws of unequal length; observe needs one shape for all. Return "
                "the longest, and let observe return a dict with a mask"
            )
        try:
            return _stack(rows)
        except (TypeError, ValueError) as error:
            raise self._error(f"{function} must return the same kind of draw every time: {error}") from None

    # Compiled once for each n: the compiled function keeps its own cache by shape.
    @functools.cached_property
    def _compiled_prior(self) -> Callable[..., Any]:
        return _vectorise(self.prior)

    @functools.cached_property
    def _compiled_observe(self) -> Callable[..., Any]:
        return _vectorise(self.observe)

    @functools.cached_property
    def _compiled_simulate(self) -> Callable[..., Any]:
        return _vectorise(self.simulate)


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _columns(raw: Any, n: int) -> tuple[Any, tuple[str, ...] | None]:
    """Return what a batch simulator gave as rows, and the names of the columns, if there are any."""
    if isinstance(raw, tuple) and raw and all(np.shape(column) == (n,) for column in raw):
        return np.stack([plain_array(column) for column in raw], axis=1), getattr(raw, "_fields", None)
    if isinstance(raw, list) and is_unequal(raw):
        return pad(raw), None
    return (raw, None) if isinstance(raw, dict) else in_order(raw, None)


def _row(raw: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return one draw, and the names of its numbers, if there are any."""
    if isinstance(raw, tuple) and raw and all(np.ndim(number) == 0 for number in raw):
        return np.array(raw), getattr(raw, "_fields", None)
    return (raw, None) if isinstance(raw, dict) else in_order(raw, None)


def _stack(rows: list[Any]) -> Any:
    """Put single draws together to one batch; dicts and tuples are stacked entry by entry."""
    first = rows[0]
    if isinstance(first, dict):
        if any(not isinstance(row, dict) or set(row) != set(first) for row in rows):
            raise ValueError(f"the first was a dict with keys {list(first)}, another was not")
        if len({_lengths(row) for row in rows}) > 1 and all(len(set(_lengths(row))) == 1 for row in rows):
            # Elements with several numbers each, such as times and values, and more of them in some draws.
            padded = {key: pad([plain_array(row[key]) for row in rows]) for key in first}
            return {key: part["x"] for key, part in padded.items()} | {
                "mask": padded[next(iter(first))]["mask"]
            }
        return {key: _stack([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        if any(not isinstance(row, tuple) or len(row) != len(first) for row in rows):
            raise ValueError(f"the first was a tuple of {len(first)}, another was not")
        entries = [_stack([row[i] for row in rows]) for i in range(len(first))]
        return type(first)(*entries) if hasattr(first, "_fields") else tuple(entries)
    arrays = [plain_array(row) for row in rows]
    if is_unequal(arrays):
        return pad(arrays)
    for array in arrays:
        if array.shape != arrays[0].shape:
            raise ValueError(f"the first had shape {arrays[0].shape}, another has {array.shape}")
    return np.stack(arrays)


def _lengths(row: dict[str, Any]) -> tuple[int, ...]:
    """Return the lengths of all arrays of a draw; 0 for single numbers."""
    return tuple(len(value) if np.ndim(value) else 0 for value in row.values())


def _vectorise(function: Any) -> Callable[..., Any]:
    """Compile for a batch of keys (and parameters), with NumPy arrays as the result."""
    import jax

    compiled = jax.jit(jax.vmap(function))
    return lambda *arguments: map_arrays(np.asarray, compiled(*arguments))


def _keys(rng: np.random.Generator, n: int) -> "jax.Array":
    import jax

    check_not_forked()
    # Two words of 32 bits: with a single one, two of 1000 chunks would share a key with probability 1e-4.
    first, second = rng.integers(2**32, size=2, dtype=np.uint32)
    return jax.random.split(jax.random.fold_in(jax.random.key(first), second), n)


def _checked_request(rng: np.random.Generator, n: int) -> int:
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, as from numpy.random.default_rng(seed); got {rng!r}"
        )
    if operator.index(n) < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return operator.index(n)


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
