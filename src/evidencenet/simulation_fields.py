"""What `Simulations` is given, checked field by field; every message says what to give instead."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evidencenet.data import (
    Data,
    Parameters,
    arrays_of,
    finite_rows,
    kind_of,
    layout,
    layout_text,
    map_arrays,
)

LogDensities = tuple[Callable[[Any], Any] | None, ...]


def check_finite(x: Data) -> None:
    """Raise if any draw holds NaN or infinity."""
    for where, array in {f"x[{key!r}]": x[key] for key in x}.items() if isinstance(x, dict) else [("x", x)]:
        finite = finite_rows(array)
        if not finite.all():
            raise ValueError(
                f"{where} has NaN or infinity in {np.count_nonzero(~finite)} of {len(finite)} rows, first in "
                f"row {int(np.argmin(finite))}; draw with simulate(), which counts failed draws, or drop "
                "these rows and say with failed= how many were dropped of each model"
            )


def checked_labels(model: ArrayLike, n: int) -> np.ndarray:
    """Return labels (n,) as integers."""
    labels = np.asarray(model)
    if labels.dtype.kind not in "iub":
        raise TypeError(f"model must hold integers, got dtype {labels.dtype}; convert with .astype(int)")
    if labels.shape != (n,):
        raise ValueError(f"model has shape {labels.shape}, but x has {n} rows; wanted one label per row")
    return labels.astype(np.int64, copy=False)


def checked_names(names: Sequence[str] | None, labels: np.ndarray) -> tuple[str, ...]:
    """Return K distinct names."""
    low, high = int(labels.min()), int(labels.max())
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of strings, one per model, got the string {names!r}")
    count = high + 1 if names is None else len(names)
    if low < 0 or (names is None and high >= len(labels)):
        raise ValueError(f"labels must be 0, 1, ..., one for each model; got values from {low} to {high}")
    if high >= count:
        raise ValueError(f"labels go up to {high}, but {count} names were given; wanted {high + 1} names")
    if names is None:
        return tuple(f"M{k}" for k in range(count))
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise TypeError(f"names must be non-empty strings, got {list(names)!r}")
    for name in names:
        if list(names).count(name) > 1:
            raise ValueError(f"two models are named {name!r}; names must be distinct")
    return tuple(names)


def checked_log_weight(log_weight: ArrayLike, labels: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
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


def checked_log_ratio(
    log_ratio: Callable[[Any], ArrayLike],
    parameters: tuple[Parameters | None, ...] | None,
    failed: tuple[int, ...],
    names: tuple[str, ...],
    model: int,
) -> np.ndarray:
    """Return the log ratio of two priors for each draw of a model."""
    name = names[model]
    if not callable(log_ratio):
        raise TypeError(
            "log_ratio must be a function of the parameters that returns the log of new over old prior "
            f"density, got {kind_of(log_ratio)}"
        )
    theta = None if parameters is None else parameters[model]
    if theta is None:
        raise ValueError(
            f"the parameters of model {name!r} are not known, so its draws cannot be reweighted; draw them "
            "with simulate(..., keep_parameters=True) from a model that has a prior, or give "
            "Simulations(..., parameters=)"
        )
    if failed[model]:
        raise ValueError(
            f"{failed[model]:,} draws of model {name!r} failed, and their parameters are not known: what "
            "part would fail under the new prior cannot be told, and it enters K. Simulate from the new prior"
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


def checked_failed(failed: Sequence[int] | None, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the number of failed draws of each model."""
    if failed is None:
        return (0,) * len(names)
    if np.ndim(failed) != 1 or len(failed) != len(names):
        raise ValueError(f"failed must hold one number for each of the {len(names)} models, got {failed!r}")
    if np.asarray(failed).dtype.kind not in "iu":
        raise TypeError(f"failed must hold integers, got {failed!r}")
    for name, count in zip(names, failed, strict=True):
        if count < 0:
            raise ValueError(f"failed is {count} for model {name!r}; it cannot be negative")
    return tuple(int(count) for count in failed)


def checked_parameters(
    parameters: Sequence[Parameters | None], counts: np.ndarray, names: tuple[str, ...]
) -> tuple[Parameters | None, ...]:
    """Return each model's parameters as arrays with one row per draw."""
    if not isinstance(parameters, (list, tuple)) or len(parameters) != len(names):
        raise ValueError(f"parameters must be a tuple with an entry for each of the {len(names)} models")
    checked = tuple(None if theta is None else map_arrays(np.asarray, theta) for theta in parameters)
    for theta, count, name in zip(checked, counts, names, strict=True):
        for array in () if theta is None else arrays_of(theta):
            if array.shape[:1] != (count,):
                raise ValueError(
                    f"model {name!r} has {count} draws, but its parameters have shape {array.shape}"
                )
    return checked


def checked_log_density(
    functions: Sequence[Callable[[Any], Any] | None] | None, names: tuple[str, ...]
) -> LogDensities | None:
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


def check_no_density(functions: LogDensities | None, names: tuple[str, ...], model: int) -> None:
    """Raise if the density of a model is known: a change of its prior would make it wrong."""
    if functions is not None and functions[model] is not None:
        raise ValueError(
            f"model {names[model]!r} has a log_density, which is that of its own prior and not of the new "
            "one. Simulate a Model with the new prior and its density, or without log_density."
        )


def joined_densities(parts: Sequence[LogDensities | None]) -> LogDensities | None:
    """Return each model's density from the first part that has it: draws from a file have none."""
    per_model = zip(*(part for part in parts if part is not None), strict=True)
    return tuple(next((f for f in some if f is not None), None) for some in per_model) or None


def check_alike(first: Any, other: Any) -> None:
    """Raise unless two Simulations can be joined; the message says what differs."""
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
    # A named tuple that was read from a file is of another type than the one that was written.
    kind = list(theta) if isinstance(theta, dict) else getattr(theta, "_fields", type(theta))
    return kind, [array.shape[1:] for array in arrays_of(theta)]


def positions(index: ArrayLike | slice, n: int) -> np.ndarray:
    """Return the numbers of the draws meant by an index."""
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


def alike(model: np.ndarray, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Thin draws to equal weights: which to keep, boolean (n,), by chance in proportion to their weight.

    Resampling with replacement would keep more, but the same draws twice, which no test allows for.
    """
    largest = np.zeros(model.max(initial=0) + 1)
    np.maximum.at(largest, model, weight)
    kept: np.ndarray = rng.random(len(model)) * largest[model] < weight
    return kept
