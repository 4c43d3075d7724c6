"""Masks: missing numbers, and draws of unequal length, in arrays of one shape with a mask beside them.

A mask is True where there is a number. Where it is False the array holds 0, which networks ignore.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from evidencenet._common.arrays import Data, as_data, layout, plain_array

Form = Literal[
    "elements", "numbers", "plane", "pixels", "pixels first", "channels", "channels first", "parts"
]
# Arrays (rows, columns) with this many columns or more, and fewer than four times as many rows, are planes.
_LEAST_SIDE = 5


def mask_missing(x: Any) -> tuple[Data, Form]:
    """Return data in which NaN means a missing number, with masks instead of NaN; and the form they now have.

    Parameters
    ----------
    x
        Data with one row per draw: an array, or a dict of arrays.

    Returns
    -------
    data, form
        - Vectors (n, d): "elements", a dict of ``"x"`` and ``"mask"``, both (n, d).
        - Sets and series (n, N, C): "elements", with a mask (n, N), if elements are always missing as a
          whole. Otherwise "numbers", with also ``"seen"``, (n, N, C), which is 1 where there is a number.
        - Images (n, H, W) of which single pixels are missing: "plane", an array (n, H, W, 2), whose second
          channel is 1 where there is a number.
        - Images (n, H, W, C) or (n, C, H, W): "pixels", with one further channel, if all channels of a pixel
          are missing together, otherwise "channels", with C further channels. If the channels come first,
          so is it said.
        - A dict: "parts". For each array with NaN there is another one, named ``"<key>_seen"``, of 1 and 0.
          NaN that an existing mask leaves out becomes 0.

    Examples
    --------
    >>> mask_missing(np.array([[1.0, np.nan]]))
    ({'x': array([[1., 0.]]), 'mask': array([[ True, False]])}, 'elements')
    """
    data = as_data(x)
    if isinstance(data, dict):
        return _masked_dict(data), "parts"
    there: np.ndarray = ~np.isnan(data)
    form = _form_of(there)
    return _in_form(data, there, form), form


def _form_of(there: np.ndarray) -> Form:
    if there.ndim == 2:
        return "elements"
    first = there.ndim > 3 and there.shape[1] < there.shape[-1]
    axis = 1 if first else -1
    together = bool((there.all(axis=axis) == there.any(axis=axis)).all())
    if there.ndim == 3:
        rows, columns = there.shape[1:]
        if together:
            return "elements"
        return "plane" if columns >= _LEAST_SIDE and rows < 4 * columns else "numbers"
    if together:
        return "pixels first" if first else "pixels"
    return "channels first" if first else "channels"


def _in_form(data: np.ndarray, there: np.ndarray, form: Form) -> Data:
    """Write data (n, ...), of which only some numbers are there, in one of the forms."""
    filled: np.ndarray = np.where(there, data, data.dtype.type(0))
    seen = there.astype(data.dtype)
    if form in ("elements", "numbers"):
        mask = np.asarray(there.any(axis=tuple(range(2, there.ndim))))
        masked = {"x": filled, "mask": mask}
        return masked if form == "elements" else masked | {"seen": seen}
    if form == "plane":
        return np.stack([filled, seen], axis=-1)
    axis = 1 if form.endswith("first") else -1
    return np.concatenate([filled, seen if "channels" in form else seen.max(axis, keepdims=True)], axis=axis)


def unmasked_shape(example: Data, form: Form) -> tuple[int, ...]:
    """Return the shape that a draw had before its missing numbers were masked; `example` is one draw."""
    if isinstance(example, dict):
        return tuple(example["x"].shape)
    if form == "plane":
        return tuple(example.shape[:-1])
    shape, axis = list(example.shape), 0 if form.endswith("first") else -1
    shape[axis] = shape[axis] // 2 if "channels" in form else shape[axis] - 1
    return tuple(shape)


def with_nan(x: Data, form: Form) -> Data:
    """Return draws (n, ...) that `mask_missing` brought to a form as they were before, with NaN.

    Examples
    --------
    >>> with_nan(*mask_missing(np.array([[1.0, np.nan]])))
    array([[ 1., nan]])
    """
    if form == "parts":
        return x
    if isinstance(x, dict):
        there = x["mask"].reshape(x["mask"].shape + (1,) * (x["x"].ndim - 2))
        there = there if form == "elements" else x["seen"] > 0
        return np.where(there, x["x"], np.nan)
    if form == "plane":
        return np.where(x[..., 1] > 0, x[..., 0], np.nan)
    axis = 1 if form.endswith("first") else -1
    channels = x.shape[axis] // 2 if "channels" in form else x.shape[axis] - 1
    values, seen = np.split(x, [channels], axis=axis)
    return np.where(seen > 0, values, np.nan)


def _masked_dict(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    masks = [array for array in data.values() if array.dtype == bool]
    masked: dict[str, np.ndarray] = {}
    for key, array in data.items():
        there = np.ones(array.shape, bool) if array.dtype == bool else ~np.isnan(array)
        if there.all():
            masked[key] = array
            continue
        masked[key] = np.where(there, array, array.dtype.type(0))
        left_out = [mask for mask in masks if mask.shape == array.shape[: mask.ndim]]
        if len(left_out) == 1:
            there |= ~left_out[0].reshape(left_out[0].shape + (1,) * (array.ndim - left_out[0].ndim))
        if not there.all():
            masked[f"{key}_seen"] = there.astype(array.dtype)
    return masked


def no_infinity(array: np.ndarray) -> np.ndarray:
    """Say which rows have no infinity and at least one number that is not missing, shape (n,)."""
    if array.dtype == bool:
        return np.ones(len(array), bool)
    rows = array.reshape(len(array), -1)
    return ~np.isinf(rows).any(axis=1) & ~np.isnan(rows).all(axis=1)


def is_unequal(rows: Any) -> bool:
    """Say whether rows are arrays that differ in the length of their first axis, and in nothing else."""
    if isinstance(rows, np.ndarray) and rows.dtype == object and rows.ndim == 1:
        rows = list(rows)
    if not isinstance(rows, list | tuple) or len(rows) < 2:
        return False
    try:
        shapes = {plain_array(row).shape for row in rows}
    except (TypeError, ValueError):
        return False
    return len(shapes) > 1 and () not in shapes and len({shape[1:] for shape in shapes}) == 1


def pad(rows: Sequence[Any], length: int | None = None) -> dict[str, np.ndarray]:
    """Return arrays of unequal length, (T_i,) or (T_i, C), as one array with a mask.

    Parameters
    ----------
    rows
        One array per draw.
    length
        The length to pad to; by default that of the longest.

    Returns
    -------
    dict
        ``"x"``, (n, T) or (n, T, C), with 0 after the end of each; and ``"mask"``, (n, T).

    Examples
    --------
    >>> pad([np.array([1.0, 2.0]), np.array([3.0])])
    {'x': array([[1., 2.],
           [3., 0.]]), 'mask': array([[ True,  True],
           [ True, False]])}
    """
    arrays: list[Any] = [as_data(row) for row in rows]
    arrays = [array[:, 0] if np.ndim(row) == 1 else array for array, row in zip(arrays, rows, strict=True)]
    longest = max(len(array) for array in arrays) if length is None else length
    x = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), np.result_type(*arrays))
    mask = np.zeros((len(arrays), longest), bool)
    for i, array in enumerate(arrays):
        x[i, : len(array)] = array
        mask[i, : len(array)] = True
    return {"x": x, "mask": mask}


def lengthened(x: dict[str, np.ndarray], lengths: dict[str, int]) -> dict[str, np.ndarray]:
    """Return a batch with some arrays padded with zeros along their second axis, up to these lengths."""
    padded = {}
    for key, array in x.items():
        extra = lengths.get(key, array.shape[1]) - array.shape[1]
        width = [(0, 0), (0, extra), *((0, 0) for _ in array.shape[2:])]
        padded[key] = np.pad(array, width) if extra else array
    return padded


def made_equal(first: Data, other: Data, *, add_mask: bool) -> tuple[Data, Data]:
    """Give two batches the same length by padding, if they differ in nothing else; else return them as given.

    Parameters
    ----------
    first, other
        Batches of draws.
    add_mask
        Whether arrays without a mask may get one. Batches that have a mask may always be padded.
    """
    if add_mask and layout(first) != layout(other):
        one, two = _with_full_mask(first), _with_full_mask(other)
        if one is None or two is None or set(one) != set(two):
            return first, other
        if any(one[key].shape[2:] != two[key].shape[2:] for key in one):
            return first, other
        first, other = one, two
    if not (isinstance(first, dict) and isinstance(other, dict) and set(first) == set(other)):
        return first, other
    if "mask" not in first or first["mask"].dtype != bool:
        return first, other
    lengths: dict[str, int] = {}
    for key in first:
        shape, other_shape = first[key].shape, other[key].shape
        if len(shape) != len(other_shape) or shape[2:] != other_shape[2:]:
            return first, other
        if shape[1] != other_shape[1]:
            lengths[key] = max(shape[1], other_shape[1])
    if "mask" not in lengths:
        return first, other
    return lengthened(first, lengths), lengthened(other, lengths)


def _with_full_mask(batch: Data) -> dict[str, np.ndarray] | None:
    if not isinstance(batch, dict):
        return {"x": batch, "mask": np.ones(batch.shape[:2], bool)}
    if "mask" in batch:
        return batch
    # Arrays of as many elements each belong together, such as times and values.
    if any(array.dtype == bool for array in batch.values()) or len({a.shape[1] for a in batch.values()}) > 1:
        return None
    return batch | {"mask": np.ones(next(iter(batch.values())).shape[:2], bool)}


def like_draws(x: Any, example: Data, form: Form | None = None) -> Any:
    """Bring observations to the form of draws with masks; what needs nothing, or does not fit, stays.

    NaN becomes missing if it was declared so in the draws, and arrays shorter than the draws are padded.

    Parameters
    ----------
    x
        One observation, or several: an array, a list of arrays of unequal length, or a dict of arrays.
    example
        One draw, without an axis of draws.
    form
        What `mask_missing` made of the draws; None if their NaN were not masked. They may then still have a
        mask because of their unequal lengths.

    Raises
    ------
    ValueError
        If an observation is longer than all draws, or has gaps that no draw had.

    Examples
    --------
    >>> example = {"x": np.zeros(3), "mask": np.zeros(3, bool)}
    >>> like_draws(np.array([1.0, 2.0]), example)
    {'x': array([[1., 2., 0.]]), 'mask': array([[ True,  True, False]])}
    >>> like_draws(np.array([1.0, np.nan, 2.0]), example, "elements")
    {'x': array([[1., 0., 2.]]), 'mask': array([[ True, False,  True]])}
    """
    if isinstance(x, Mapping):
        if form == "parts" and isinstance(example, dict):
            return _parts_like(x, example)
        may_be_padded = isinstance(example, dict) and set(example) == {*x, "mask"} and "mask" not in x
        return _padded_parts(x, example) if may_be_padded else x
    if form is None or form == "parts":
        may_be_padded = isinstance(example, dict) and {"x", "mask"} <= set(example) <= {"x", "mask", "x_seen"}
        return _padded_like(x, example) if may_be_padded else x
    batch = _batch_of(x, unmasked_shape(example, form))
    if batch is None:
        return x
    there: np.ndarray = ~np.isnan(batch)
    if there.ndim > 2 and form in ("elements", "pixels", "pixels first"):
        axis = 1 if form == "pixels first" else -1
        if (there.all(axis=axis) != there.any(axis=axis)).any():
            what = "an element" if form == "elements" else "a pixel"
            raise ValueError(
                f"{what} of x is missing in part, but in the draws it was always missing as a whole. "
                "Simulate draws that have such gaps too."
            )
    return _in_form(batch, there, form)


def _batch_of(x: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return one observation of a shape, or several, as a batch of numbers; None if x is something else."""
    try:
        array = plain_array(x)
    except ValueError:  # rows that differ in length
        return None
    if array.dtype.kind not in "biuf" or array.shape[-len(shape) :] != shape or array.ndim > len(shape) + 1:
        return None
    array = array.astype(np.result_type(array, np.float32), copy=False)
    return array[None] if array.ndim == len(shape) else array


def _parts_like(x: Mapping[str, Any], example: Mapping[str, np.ndarray]) -> Any:
    """Add to a dict of arrays those that say which numbers are there, if it has none."""
    added = {key: key.removesuffix("_seen") for key in example if key not in x and key.endswith("_seen")}
    if set(x) | set(added) != set(example) or not all(key in x for key in added.values()):
        return x
    complete = dict(x)
    for key, of in added.items():
        array = plain_array(x[of])
        complete[key] = (~np.isnan(array)).astype(array.dtype)
        complete[of] = np.nan_to_num(array, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return {key: complete[key] for key in example}


def _padded_parts(x: Mapping[str, Any], example: Any) -> Any:
    """Pad the arrays of one observation to the length of the draws, and add the mask."""
    arrays = {key: plain_array(value) for key, value in x.items()}
    longest = len(example["mask"])
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) != 1 or any(array.shape[1:] != example[key].shape[1:] for key, array in arrays.items()):
        return x
    (length,) = lengths
    _check_length(length, longest)
    batch = {key: array[None] for key, array in arrays.items()}
    batch |= {"mask": np.ones((1, length), bool)}
    padded = lengthened(batch, dict.fromkeys(batch, longest))
    return {key: padded[key] for key in example}


def _check_length(length: int, longest: int) -> None:
    if length > longest:
        raise ValueError(
            f"an observation has length {length}, and the longest draw has {longest}; simulate data that are "
            "as long"
        )


def _padded_like(x: Any, example: Any) -> Any:
    """Pad one observation, or several, to the length of the draws."""
    wanted = example["x"].shape
    if isinstance(x, list | tuple) and not x:
        return x
    rows = [plain_array(row) for row in x] if is_unequal(x) else None
    if rows is None:
        array = plain_array(x)
        if array.dtype.kind not in "biuf" or array.ndim not in (len(wanted), len(wanted) + 1):
            return x
        rows = [array] if array.ndim == len(wanted) else list(array)
    if not rows or any(row.shape[1:] != wanted[1:] for row in rows):
        return x
    if "x_seen" not in example:
        # NaN after the end is how others pad.
        rows = [_without_end(row) for row in rows]
    _check_length(max(len(row) for row in rows), wanted[0])
    if any(len(row) == wanted[0] > 1 and not row[-1].any() for row in rows):
        raise ValueError(
            "an observation ends with 0, as draws do that were padded. If these zeros are padding, leave "
            "them out; if they are data, give a dict of the arrays and their 'mask', which is True where "
            "there is data"
        )
    padded = pad(rows, wanted[0])
    if "x_seen" not in example:
        return padded
    there = ~np.isnan(padded["x"])
    filled = np.where(there, padded["x"], 0.0)
    return {"x": filled, "mask": padded["mask"], "x_seen": there.astype(filled.dtype)}


def _without_end(row: np.ndarray) -> np.ndarray:
    """Leave out NaN after the last element of an observation."""
    if row.dtype.kind != "f":
        return row
    there = np.flatnonzero(~np.isnan(row.reshape(len(row), -1)).all(axis=1))
    return row[: there[-1] + 1] if len(there) else row
