"""Batches of data: an array, or a dict of arrays, with one row per draw.

First what a user gives is turned into data, then come functions that work on all arrays of a batch at once.
"""

import numbers
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet._common.harmless import listed
from evidencenet._common.warnings import InputWarning

Data = np.ndarray | dict[str, np.ndarray]
Parameters = np.ndarray | dict[str, np.ndarray] | tuple[np.ndarray, ...]
# Numbers in a block, 2 MB of float64: large enough that NumPy's cost per call (about 1 µs) does not count,
# small enough to stay in the processor's cache.
_VALUES_PER_BLOCK = 2**18


def as_data(x: Any) -> Data:
    """Return x as data: arrays with one row per draw, of type float32, float64 or, for masks in a dict, bool.

    Integers become float64, as do booleans outside a dict; arrays of shape (n,) become (n, 1). Arrays may be
    of NumPy, JAX, PyTorch, pandas, Polars or xarray, or lists and tuples of rows; a Dataset of xarray is a
    dict. Nothing is copied where the type is right already.
    """
    if hasattr(x, "data_vars"):
        x = {str(name): x[name] for name in x.data_vars}
    if not isinstance(x, dict):
        array = _as_numbers(x, "x")
        return array.astype(np.float64) if array.dtype == bool else array
    if not x:
        raise ValueError("x is an empty dict; wanted at least one array")
    if not all(isinstance(key, str) for key in x):
        raise TypeError(f"the keys of x must be strings, got {list(x)!r}")
    arrays = {key: _as_numbers(value, f"x[{key!r}]") for key, value in x.items()}
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the arrays of x differ in length: {lengths}; wanted one row per draw in each")
    return arrays


def with_draws(x: Any, example: Data) -> Any:
    """Give a single observation its first axis."""
    if isinstance(x, dict) != isinstance(example, dict) or (isinstance(x, dict) and set(x) != set(example)):
        return x
    try:
        same = map_arrays(lambda wanted, given: np.shape(given) == wanted.shape, example, x)
    except ValueError:  # rows that differ in length, which as_data explains
        return x
    if not all(same.values() if isinstance(same, dict) else [same]):
        return x
    return map_arrays(lambda value: plain_array(value)[None], x)


def in_order(
    x: Any, columns: Sequence[str] | None, *, stacklevel: int = 3
) -> tuple[Any, tuple[str, ...] | None]:
    """Return data with named columns as an array whose columns have a given order, and their names.

    Parameters
    ----------
    x
        A DataFrame of pandas or Polars, a Series with an index of names, a two-dimensional DataArray of
        xarray with names along its second axis, a structured array, a dict of single numbers, or, if
        `columns` are known, a dict with just these keys. Anything else is returned as it is, without names.
    columns
        The names in the order wanted; None if no order is known.
    stacklevel
        How many calls up the warning points to.

    Returns
    -------
    array, names
        The numbers, and the names of the last axis in the order of `array`; None if `x` has no names.

    Raises
    ------
    ValueError
        If the names differ from `columns`.

    Warns
    -----
    InputWarning
        If the columns had to be reordered.

    Examples
    --------
    >>> in_order({"a": 1.0, "b": 2.0}, None)
    (array([1., 2.]), ('a', 'b'))
    """
    values, names = _with_names(x, columns)
    if names is None or columns is None or names == tuple(columns):
        return values, names
    missing = [name for name in columns if name not in names]
    unknown = [name for name in names if name not in columns]
    if missing or unknown or len(names) != len(columns):
        texts = [
            f"{what} {', '.join(map(repr, these))}"
            for what, these in (("lacks", missing), ("has unknown", unknown))
            if these
        ]
        raise ValueError(
            f"the columns differ: x {' and '.join(texts) or 'has a column twice'}; wanted "
            f"{', '.join(map(repr, columns))}, in any order"
        )
    warnings.warn(
        f"the columns are in another order ({listed(names)}); by their names they were put in the order "
        f"{', '.join(columns)}",
        InputWarning,
        stacklevel=stacklevel,
    )
    return values[..., [names.index(name) for name in columns]], tuple(columns)


@dataclass(frozen=True)
class Named:
    """An array with names for its last axis. NumPy takes it as the array, and `net.compare` uses the names.

    Examples
    --------
    >>> table = Named(np.array([[1.0, 2.0], [3.0, 4.0]]), ("a", "b"))
    >>> table[1].columns, np.sum(table)
    (('a', 'b'), np.float64(10.0))
    """

    values: np.ndarray
    columns: tuple[str, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        """Return some rows, with the names; an index of several axes gives an array."""
        chosen = self.values[rows]
        return chosen if isinstance(rows, tuple) else Named(chosen, self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.values.shape

    def to_numpy(self) -> np.ndarray:
        """Return the array."""
        return self.values


def _with_names(x: Any, columns: Sequence[str] | None) -> tuple[Any, tuple[str, ...] | None]:
    """Return the numbers of something with named columns, and the names; None if it has none."""
    names: Any = None
    if hasattr(x, "columns") and hasattr(x, "to_numpy"):
        names, x = list(x.columns), plain_array(x)
    elif hasattr(x, "index") and hasattr(x, "to_numpy") and not callable(x.index):
        names, x = list(x.index), plain_array(x)
    elif hasattr(x, "dims") and hasattr(x, "coords") and not hasattr(x, "data_vars"):
        # An observation, if an order is wanted; otherwise one axis is that of the draws.
        named = len(x.dims) == 2 or (len(x.dims) == 1 and columns is not None)
        names = list(x.coords[x.dims[-1]].values) if named and x.dims[-1] in x.coords else None
        x = plain_array(x)
    elif isinstance(x, np.ndarray) and x.dtype.names:
        names, x = x.dtype.names, np.stack([x[name] for name in x.dtype.names], axis=-1)
    elif isinstance(x, list) and x and all(isinstance(row, Mapping) and set(row) == set(x[0]) for row in x):
        names, x = list(x[0]), plain_array([list(row[name] for name in x[0]) for row in x])
    elif isinstance(x, Mapping) and x:
        single = all(np.ndim(value) == 0 and not isinstance(value, str) for value in x.values())
        if single or (columns is not None and set(x) == set(columns)):
            numbers = [np.nan if value is None else value for value in x.values()]
            names, x = list(x), np.stack([plain_array(value) for value in numbers], axis=-1)
    if names is not None and all(isinstance(name, tuple) for name in names):
        # Columns of several levels.
        names = [".".join(map(str, name)) for name in names]
    # Numbers are what pandas calls columns without names.
    if names is None or not all(isinstance(name, str) for name in names):
        return x, None
    return x, tuple(map(str, names))


def plain_array(value: Any) -> np.ndarray:
    """Return an array as NumPy sees it; a masked one is refused, since it would lose its mask."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            "a masked array would lose its mask; give its values with NaN where they are masked and "
            "missing='mask', or a dict of the values and of the mask as a boolean array"
        )
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        # PyTorch: off the graph and off the graphics card.
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return _table_values(value)
    array = np.asarray(value)
    if array.dtype != object:
        return array
    if hasattr(value, "to_numpy") and hasattr(value, "index"):
        # A pandas Series that marks missing numbers with NA.
        value = value.to_numpy(dtype=object, na_value=np.nan)
        array = np.asarray(value)
    real = [isinstance(item, numbers.Real) for item in array.flat]
    if any(real) and all(item is None or is_real for item, is_real in zip(array.flat, real, strict=True)):
        # None becomes NaN.
        return array.astype(np.float64)
    if array.ndim == 1 and array.size and all(isinstance(item, list | np.ndarray) for item in array):
        shapes = {np.shape(item) for item in array}
        return plain_array(list(array)) if len(shapes) == 1 else array
    return array


def _table_values(table: Any) -> np.ndarray:
    """Return the numbers of a data frame; NA becomes NaN."""
    array = np.asarray(table.to_numpy())
    if array.dtype != object and array.dtype.kind not in "US":
        return array
    columns = []
    for name in table.columns:
        column = table[name]
        try:
            if getattr(column.dtype, "kind", "") in ("M", "m") or "date" in str(column.dtype).lower():
                raise TypeError("dates have no unit")
            columns.append(_numbers_of(column))
        except (TypeError, ValueError):
            raise TypeError(
                f"column {name!r} of x holds {column.dtype}, not numbers: leave it out, or code it as "
                f"numbers. If it holds the labels, write Simulations(table, {name!r})"
            ) from None
    return np.stack(columns, axis=1)


def _numbers_of(column: Any) -> np.ndarray:
    """Return the numbers of a column; NA becomes NaN."""
    if hasattr(column, "index") and not callable(column.index):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    # Polars.
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "US" or any(isinstance(item, str) for item in values[:1000]):
        raise TypeError("text")
    return values.astype(np.float64)


def arrays_of(tree: Data | Parameters) -> Sequence[np.ndarray]:
    """Return all arrays of a batch of data or parameters."""
    if isinstance(tree, dict):
        return list(tree.values())
    return tree if isinstance(tree, tuple) else [tree]


def map_arrays(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to each array of a batch (together with the matching arrays of other batches)."""
    if isinstance(tree, dict):
        return {key: function(array, *(other[key] for other in others)) for key, array in tree.items()}
    if isinstance(tree, tuple):
        mapped = [function(*arrays) for arrays in zip(tree, *others, strict=True)]
        # A namedtuple stays one, so that a simulator may use its names.
        return type(tree)(*mapped) if hasattr(tree, "_fields") else tuple(mapped)
    return function(tree, *others)


def join(*trees: Any) -> Any:
    """Put batches with the same structure one after the other."""
    return map_arrays(lambda *arrays: np.concatenate(arrays), *trees)


def layout(x: Data) -> dict[str, str]:
    """Describe what two batches must share to be joined: the keys, the shape of one draw and its type."""
    arrays = x if isinstance(x, dict) else {"": x}
    return {k: f"{a.shape[1:]} {'booleans' if a.dtype == bool else 'numbers'}" for k, a in arrays.items()}


def layout_text(parts: dict[str, str]) -> str:
    """Words for a layout, for messages."""
    if list(parts) == [""]:
        return f"an array of {parts['']} per draw"
    return "a dict of " + ", ".join(f"{key!r}: {text}" for key, text in parts.items()) + " per draw"


def finite_rows(array: np.ndarray) -> np.ndarray:
    """Say which rows of an array hold only finite values, shape (n,), without a copy of its size."""
    finite = np.ones(len(array), dtype=bool)
    if array.dtype == bool:
        return finite
    step = max(1, _VALUES_PER_BLOCK // max(1, array.size // max(1, len(array))))
    for start in range(0, len(array), step):
        block = np.isfinite(array[start : start + step])
        # Almost every block is finite as a whole, and it is faster to test that first.
        if not block.all():
            finite[start : start + step] = block.reshape(len(block), -1).all(axis=1)
    return finite


def index_of(model: int | str, names: Sequence[str]) -> int:
    """Return the label of a model given by its label or its name."""
    if isinstance(model, str):
        if model not in names:
            raise ValueError(f"there is no model {model!r}; the models are {', '.join(map(repr, names))}")
        return list(names).index(model)
    if isinstance(model, bool):
        raise TypeError(f"a model is given by its number or name, not by {model!r}")
    try:
        index = operator.index(model)
    except TypeError:
        raise TypeError(f"a model is given by its number or name, not by {model!r}") from None
    if not 0 <= index < len(names):
        raise ValueError(f"there is no model {model}; the models are 0 to {len(names) - 1}")
    return index


def kind_of(value: Any) -> str:
    """Name the type of something, for messages."""
    return "None" if value is None else f"a {type(value).__name__}"


def _as_numbers(value: Any, what: str) -> np.ndarray:
    if not (isinstance(value, list | tuple) or hasattr(value, "__array__")):
        advice = f"; read the file first: read_data({value!r})" if isinstance(value, str) else ""
        raise TypeError(f"{what} must be an array (or x a dict of arrays), got {kind_of(value)}{advice}")
    try:
        array = plain_array(value)
    except ValueError:
        raise ValueError(
            f"{what} is a list of rows that differ in shape; wanted one shape for all. (Rows may differ in "
            "length, but only along their first axis: (T, C), not (C, T))"
        ) from None
    if array.dtype.kind in "iuf":
        # Also turns the byte order of files such as FITS into the machine's own.
        single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        array = array.astype(np.float32 if single else np.float64, copy=False)
    elif array.dtype.kind != "b":
        texts = [item for item in array.flat[:1000] if isinstance(item, str | bytes)]
        if texts:
            raise TypeError(f"{what} holds text, such as {str(texts[0])!r}; wanted numbers")
        advice = "; give the real and imaginary parts as two columns" if array.dtype.kind == "c" else ""
        raise TypeError(f"{what} has dtype {array.dtype}; wanted numbers or booleans{advice}")
    if array.ndim == 0:
        raise ValueError(f"{what} is a single number; wanted one row per draw")
    return array[:, None] if array.ndim == 1 else array
