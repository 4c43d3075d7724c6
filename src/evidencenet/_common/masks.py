"""Masks: missing numbers, and draws of unequal length, in arrays of one shape with a mask beside them.

A mask is True where there is a number. Where it is False the array holds 0, which networks ignore.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evidencenet._common.arrays import Data, as_data, plain_array


def mask_missing(x: Any) -> Data:
    """Return data in which NaN means a missing number, with masks instead of NaN.

    Parameters
    ----------
    x
        Data with one row per draw: an array, or a dict of arrays.

    Returns
    -------
    Data
        - Vectors (n, d): a dict of ``"x"`` and ``"mask"``, both (n, d).
        - Sets and series (n, N, C): a dict of ``"x"`` and ``"mask"``, (n, N), which is True for elements that
          have any number. If elements can be missing in part, also ``"seen"``, (n, N, C), which is 1 where
          there is a number and else 0.
        - Images (n, H, W, C): an array with a further channel, which is 1 where there is a number; if the
          channels can be missing one by one, with C further channels.
        - A dict: for each array with NaN another one, named ``"<key>_seen"``, of 1 and 0. NaN that an
          existing mask leaves out becomes 0.

    Examples
    --------
    >>> mask_missing(np.array([[1.0, np.nan]]))
    {'x': array([[1., 0.]]), 'mask': array([[ True, False]])}
    """
    data = as_data(x)
    if isinstance(data, dict):
        return _masked_dict(data)
    there: np.ndarray = ~np.isnan(data)
    filled: np.ndarray = np.where(there, data, data.dtype.type(0))
    if data.ndim == 2:
        return {"x": filled, "mask": there}
    together = bool((there.all(axis=-1) == there.any(axis=-1)).all())
    if data.ndim == 3:
        masked: dict[str, np.ndarray] = {"x": filled, "mask": np.asarray(there.any(axis=-1))}
        if not together:
            masked["seen"] = there.astype(data.dtype)
        return masked
    seen = there[..., :1] if together else there
    return np.concatenate([filled, seen.astype(data.dtype)], axis=-1)


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
    if add_mask and not (isinstance(first, dict) and isinstance(other, dict)):
        one, two = _with_full_mask(first), _with_full_mask(other)
        if one is None or two is None or one["x"].shape[2:] != two["x"].shape[2:]:
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
    if isinstance(batch, dict):
        return batch if set(batch) == {"x", "mask"} else None
    return {"x": batch, "mask": np.ones(batch.shape[:2], bool)}


def like_draws(x: Any, example: Data) -> Any:
    """Bring observations given as arrays into the masked form of the draws; return others as they are.

    NaN becomes missing, and arrays that are shorter than the draws are padded.

    Parameters
    ----------
    x
        One observation, or several: an array, or a list of arrays of unequal length.
    example
        One draw, without an axis of draws: a dict of ``"x"``, ``"mask"`` and perhaps ``"seen"``, or an image
        with channels that say which numbers are there.

    Examples
    --------
    >>> example = {"x": np.zeros(3), "mask": np.zeros(3, bool)}
    >>> like_draws(np.array([1.0, np.nan]), example)
    {'x': array([[1., 0., 0.]]), 'mask': array([[ True, False, False]])}
    """
    if not isinstance(example, dict):
        return _image_like(x, example)
    if isinstance(x, dict) or not {"x", "mask"} <= set(example) <= {"x", "mask", "seen"}:
        return x
    wanted = example["x"].shape
    rows = list(x) if is_unequal(x) else None
    if rows is None:
        array = plain_array(x)
        if array.dtype.kind not in "biuf" or array.ndim not in (len(wanted), len(wanted) + 1):
            return x
        rows = [array] if array.ndim == len(wanted) else list(array)
    longest = max(len(row) for row in rows)
    if longest > wanted[0]:
        raise ValueError(
            f"an observation has length {longest}, and the longest draw has {wanted[0]}; simulate data that "
            "are as long"
        )
    padded = pad(rows, wanted[0])
    there = ~np.isnan(padded["x"])
    per_element = there if there.ndim == 2 else there.any(axis=tuple(range(2, there.ndim)))
    masked = {"x": np.where(there, padded["x"], 0.0), "mask": padded["mask"] & per_element}
    if "seen" in example:
        in_length = padded["mask"].reshape(padded["mask"].shape + (1,) * (there.ndim - 2))
        masked["seen"] = (there & in_length).astype(masked["x"].dtype)
    elif there.ndim > 2 and (there.all(axis=-1) != there.any(axis=-1)).any():
        raise ValueError(
            "an element of x is missing in part, and in the draws elements were missing only as a whole; "
            "simulate data with such gaps"
        )
    return masked


def _image_like(x: Any, example: np.ndarray) -> Any:
    """Add to images with NaN the channels that say which numbers are there."""
    if isinstance(x, dict) or example.ndim != 3 or not hasattr(x, "__array__"):
        return x
    array = plain_array(x)
    if array.dtype.kind != "f" or array.ndim not in (3, 4) or array.shape[-3:-1] != example.shape[:2]:
        return x
    channels, wanted = array.shape[-1], example.shape[-1]
    if channels == wanted or wanted not in (channels + 1, 2 * channels):
        return x
    there = ~np.isnan(array)
    if wanted == channels + 1 and (there.all(axis=-1) != there.any(axis=-1)).any():
        raise ValueError(
            "x lacks some channels of a pixel, and in the draws all channels were missing together; simulate "
            "data with such gaps"
        )
    seen = there[..., :1] if wanted == channels + 1 else there
    return np.concatenate([np.where(there, array, 0.0), seen.astype(array.dtype)], axis=-1)
