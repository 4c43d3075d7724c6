"""Labels: which model each draw came from, the models' names, and what is counted or kept per model.

`Simulations` checks its arguments with these functions, and the readers of files use them too. Every message
says what to give instead.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evidencenet._common.arrays import plain_array
from evidencenet._common.harmless import listed
from evidencenet._common.warnings import InputWarning


def checked_labels(
    model: Any, n: int, names: Sequence[str] | None
) -> tuple[np.ndarray, Sequence[str] | None]:
    """Return labels (n,) as integers from 0, and the models' names if the labels or the caller give them.

    Labels may be whole numbers, names or categories; numbers that begin with 1 are counted from 0.
    """
    # Categories of pandas have an order of their own.
    order = getattr(getattr(model, "cat", model), "categories", None)
    if hasattr(model, "columns") and len(model.columns) == 1:
        model = model[model.columns[0]]
    labels = plain_array(model)
    if labels.dtype.kind in "Of":
        missing = [label is None or label != label for label in labels.ravel().tolist()]
        if any(missing):
            raise ValueError(
                f"{sum(missing)} of {len(missing)} labels are missing, first in row {missing.index(True)}; "
                "leave out these rows of x and of the labels"
            )
        if labels.dtype == object and all(isinstance(label, str) for label in labels.ravel()):
            labels = labels.astype(str)
    if labels.dtype.kind not in "iubfUS":
        raise TypeError(f"model must hold whole numbers or names, got dtype {labels.dtype}")
    if labels.shape == (n, 1):
        labels = labels[:, 0]
    if labels.ndim == 2 and len(labels) == n and labels.dtype.kind in "iubf":
        raise ValueError(
            f"model has shape {labels.shape}: wanted one label per row. If each row is 1 at the place of its "
            "model, and else 0, give model.argmax(axis=1)"
        )
    if labels.shape != (n,):
        raise ValueError(f"model has shape {labels.shape}, but x has {n} rows; wanted one label per row")
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of strings, one per model, got the string {names!r}")
    if labels.dtype.kind in "US" and (names is not None or order is not None):
        known = list(order) if names is None and order is not None else names
        numbers, all_names = coded(labels, known, None)
    else:
        numbers, all_names = coded(labels, None, names)
    return _from_zero(numbers.astype(np.int64, copy=False), all_names)


def _from_zero(labels: np.ndarray, names: Sequence[str] | None) -> tuple[np.ndarray, Sequence[str] | None]:
    """Count labels that begin with 1 from 0, with a warning."""
    if len(labels) == 0 or labels.min() != 1 or (names is not None and labels.max() != len(names)):
        return labels, names
    count = int(labels.max())
    if count < 2 or len(np.unique(labels)) != count:
        return labels, names
    if names is None:
        names = [f"model {k}" for k in range(1, count + 1)]
    warnings.warn(
        f"the labels are 1 to {count}; evidencenet counts models from 0, so label 1 became model 0, "
        f"{names[0]!r}, and label 2 model 1, {names[1]!r}",
        InputWarning,
        stacklevel=4,
    )
    return labels - 1, names


def checked_names(names: Sequence[str] | None, labels: np.ndarray) -> tuple[str, ...]:
    """Return K distinct names; without any, ``"M0"``, ``"M1"``, ... for labels 0, 1, ...."""
    low, high = int(labels.min()), int(labels.max())
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of strings, one per model, got the string {names!r}")
    count = high + 1 if names is None else len(names)
    distinct = np.unique(labels)
    if names is None and len(distinct) < count:
        listed = ", ".join(map(str, distinct[:10])) + (", ..." if len(distinct) > 10 else "")
        raise ValueError(
            f"the labels are {listed}; wanted 0, 1, ..., one for each model. Labels of another kind can be "
            "given as names: model=[f'model {label}' for label in labels]"
        )
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


def coded(
    labels: np.ndarray, known: Sequence[str] | None, names: Sequence[str] | None
) -> tuple[np.ndarray, Sequence[str] | None]:
    """Return labels as numbers, and the models' names.

    Parameters
    ----------
    labels
        Whole numbers, names, or whole numbers written as text, shape (n,).
    known
        The names that the file gives, in its order.
    names
        The names in the order wanted; by default in that of the file, or in alphabetical order if the labels
        are names.

    Returns
    -------
    model, names
        Numbers, shape (n,), and names; None if neither the labels nor the file nor the caller gives any.
    """
    numbers = labels
    if labels.dtype.kind in "US":
        words, numbers = np.unique(labels.astype(str), return_inverse=True)
        whole = [_whole(word) for word in words]
        if None not in whole:
            numbers = np.array(whole)[numbers]
        else:
            # Alphabetical, because the order of the rows may differ between files.
            known = words.tolist() if known is None else known
            numbers = _places(words.tolist(), known)[numbers]
    elif labels.dtype.kind == "f":
        whole_numbers = np.isfinite(labels) & (labels == np.floor(labels))
        if not whole_numbers.all():
            raise ValueError(f"labels must be whole numbers or names, got {labels[~whole_numbers][0]}")
        numbers = labels.astype(np.int64)
    if known is None or names is None:
        return numbers, names if known is None else known
    if sorted(known) != sorted(names):
        raise ValueError(f"the models are {listed(known)}, but names= gives {listed(names)}")
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(known):
        raise ValueError(f"labels go from {numbers.min()} to {numbers.max()} for {len(known)} models")
    return _places(known, names)[numbers], names


def parameters_by_model(arrays: Mapping[str, np.ndarray], model: np.ndarray, count: int) -> tuple[Any, ...]:
    """Return the parameters of each model.

    They are called ``parameters/0``, or ``parameters/0/mean`` and so on, with one row for each draw of model
    0; or ``parameters``, or ``parameters/mean``, with one row for each draw of any model.
    """
    parts = {name.removeprefix("parameters").removeprefix("/"): array for name, array in arrays.items()}
    if all(name.split("/")[0].isdigit() for name in parts):
        return tuple(_under(parts, str(k)) for k in range(count))
    for name, array in parts.items():
        if array.shape[:1] != model.shape:
            raise ValueError(
                f"parameters{name and '/'}{name} have shape {array.shape}; wanted a row for each of the "
                f"{len(model)} draws"
            )
    each = [{name: array[model == k] for name, array in parts.items()} for k in range(count)]
    return tuple(theta.get("", theta) for theta in each)


def _under(parts: Mapping[str, np.ndarray], name: str) -> Any:
    """Return the array of this name, or a dict of those in the group of this name."""
    group = {
        key.removeprefix(f"{name}/"): array for key, array in parts.items() if key.startswith(f"{name}/")
    }
    return parts.get(name, group or None)


def _places(words: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Return the position of each word in the names."""
    for word in words:
        if word not in names:
            raise ValueError(f"there is a label {word!r}, but the models are {', '.join(names)}")
    return np.array([list(names).index(word) for word in words])


def _whole(word: str) -> int | None:
    """Return a whole number that is written as text, or None."""
    try:
        number = float(word)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
