"""Bring draws to the form that networks expect, and their numbers to order one; fitted to training draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet._common.arrays import Data, arrays_of
from evidencenet.networks.layout import Layout
from evidencenet.training.signal import Signal

_PARTS = ("shift", "factor", "logarithm", "floor")
_BLOCK_ROWS = 50_000
# Positive numbers whose central 98% spread over more than this ratio are taken by their logarithm.
_WIDE = 30.0
# With `logarithm`, this ratio is enough: a log-normal law with a spread of 0.3 has it.
_LOGGED = 4.0
# Squares of numbers between these stay far from the limits of double precision, 1e-308 and 1e308.
_EXTREME = (1e-100, 1e100)
# Interquartile range of a normal law with unit variance.
_QUARTILES = 1.349


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x − shift) · factor for each number of a draw, or asinh of it; log x may be taken before.

    Masks and letters pass unchanged. Numbers that never vary become 0, and so do elements that a mask leaves
    out.

    Parameters
    ----------
    shift, factor
        Arrays that fit one draw, or dicts of them; None stands for a mask.
    logarithm
        Where log x is taken before, boolean, likewise.
    floor
        Smaller x are taken for this number before the logarithm, likewise: zeros, and x below all draws.
    squash
        Whether asinh is taken after: numbers of order one stay, large ones grow like their logarithm.
    whitening
        A matrix (d, d) that the d numbers of a draw are multiplied by last, or None.
    layout
        What x is. Draws are arranged by it first. None leaves them as they are.
    projection
        A matrix (d, m), or None: then a draw becomes m combinations of its d numbers.
    signal
        What turns the d numbers of a draw into those of its signal, instead of a projection; or None.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> Scaling.fit(x)(x)
    array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """

    shift: Any
    factor: Any
    logarithm: Any
    floor: Any
    squash: bool = False
    whitening: np.ndarray | None = None
    layout: Layout | None = None
    projection: np.ndarray | None = None
    signal: Signal | None = None

    @staticmethod
    def fit(
        x: Data,
        *,
        squash: bool = False,
        shared: bool = False,
        logarithm: bool = False,
        layout: Layout | None = None,
    ) -> "Scaling":
        """Fit to a batch of data.

        Parameters
        ----------
        x
            Shape (n, ...), or a dict of such arrays.
        squash
            Scale by median and quartiles, take positive numbers over many decades by their logarithm, and
            squash the tails: for data with outliers.
        shared
            Scale all places of a draw alike: all numbers of a vector, or all but the last axis. Elements that
            a mask leaves out do not count. Single numbers beside other parts are scaled each by itself.
        logarithm
            Take the logarithm of all numbers that are never negative and vary by a factor of four or more.
        layout
            What x is.
        """
        if layout is not None:
            x = layout.arrange(x)
        arrays = x if isinstance(x, dict) else {"": x}
        fitted = {}
        for key, array in arrays.items():
            if layout is not None and layout.of_key(key).letters:
                nothing = np.zeros(array.shape[1:], np.float32)
                fitted[key] = (nothing, nothing + 1, nothing > 0, nothing)
                continue
            alike = shared and not _single_numbers(layout, key)
            mask = _mask_of(arrays, array) if shared else None
            fitted[key] = _fitted(array, mask, squash, alike, logarithm)
        if not isinstance(x, dict):
            return Scaling(**_named(fitted[""]), squash=squash, layout=layout)
        trees = [{key: part[i] for key, part in fitted.items()} for i in range(len(_PARTS))]
        return Scaling(**_named(trees), squash=squash, layout=layout)

    def __call__(self, x: Data) -> Data:
        """Arrange and scale a batch; float32."""
        scaled = self._each(x if self.layout is None else self.layout.arrange(x))
        if self.whitening is not None:
            scaled = _mixed(scaled, self.whitening)
        if self.numbers is None:
            return scaled
        rows = np.concatenate([_row_by_row(array) for array in arrays_of(scaled)], axis=1)
        return self.signal(rows) if self.signal is not None else np.asarray(rows @ self.projection)

    @property
    def numbers(self) -> int | None:
        """How many combinations of its numbers a draw becomes; None if it keeps its form."""
        if self.signal is not None:
            return self.signal.numbers
        return None if self.projection is None else self.projection.shape[1]

    def _each(self, x: Data) -> Data:
        """Scale each number by itself."""
        if isinstance(x, dict):
            scaled = {
                key: _apply(
                    x[key],
                    shift,
                    self.factor[key],
                    self.logarithm[key],
                    self.floor[key],
                    self._squashes(key),
                )
                for key, shift in self.shift.items()
            }
            return {key: _cleared(array, _mask_of(scaled, array)) for key, array in scaled.items()}
        return _apply(x, self.shift, self.factor, self.logarithm, self.floor, self._squashes(""))

    def _squashes(self, key: str) -> bool:
        return self.squash and not (self.layout is not None and self.layout.of_key(key).letters)

    def arrays(self) -> dict[str, np.ndarray]:
        """Name the arrays, for a file."""
        found: dict[str, np.ndarray] = {}
        for part in _PARTS:
            tree = getattr(self, part)
            leaves = tree if isinstance(tree, dict) else {"": tree}
            found |= {f"{part}/{key}": leaf for key, leaf in leaves.items() if leaf is not None}
        matrices = {"whitening": self.whitening, "projection": self.projection}
        found |= {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if self.signal is not None:
            found |= {f"signal/{name}": array for name, array in self.signal.arrays().items()}
        return found

    @staticmethod
    def from_arrays(
        arrays: dict[str, np.ndarray],
        keys: tuple[str, ...] | None,
        squash: bool,
        layout: Layout | None = None,
    ) -> "Scaling":
        """Rebuild from `arrays`; `keys` are those of arranged dict data, masks included, else None."""
        trees: list[Any] = [
            arrays[f"{part}/"] if keys is None else {key: arrays.get(f"{part}/{key}") for key in keys}
            for part in _PARTS
        ]
        signal = {name[7:]: array for name, array in arrays.items() if name.startswith("signal/")}
        return Scaling(
            **_named(trees),
            squash=squash,
            whitening=arrays.get("whitening"),
            layout=layout,
            projection=arrays.get("projection"),
            signal=Signal(**signal) if signal else None,
        )


def _named(parts: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_PARTS, parts, strict=True))


def _single_numbers(layout: Layout | None, key: str) -> bool:
    """Say whether an array is one of several parts, and holds numbers with meanings of their own."""
    return layout is not None and len(layout.parts) > 1 and layout.of_key(key).kind in ("vector", "numbers")


def _mixed(x: Data, matrix: np.ndarray) -> Data:
    """Multiply all numbers of each draw by a matrix; shapes stay."""
    arrays = arrays_of(x)
    columns = [_row_by_row(array) for array in arrays]
    mixed = (columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)) @ matrix
    ends = np.cumsum([part.shape[1] for part in columns])[:-1]
    parts = [
        part.reshape(array.shape) for part, array in zip(np.split(mixed, ends, axis=1), arrays, strict=True)
    ]
    return dict(zip(x, parts, strict=True)) if isinstance(x, dict) else parts[0]


def _row_by_row(array: np.ndarray) -> np.ndarray:
    """Put the numbers of each draw in a row, (n, d); also if there are no draws."""
    return array.reshape(len(array), int(np.prod(array.shape[1:])))


def _mask_of(x: dict[str, np.ndarray], array: np.ndarray) -> np.ndarray | None:
    """Return the mask (n, N) or (n, G, N) of the elements of an array, if there is just one."""
    if array.dtype == bool:
        return None
    masks = [
        other for other in x.values() if other.dtype == bool and other.shape == array.shape[: other.ndim]
    ]
    masks = [mask for mask in masks if mask.ndim > 1]
    return masks[0] if len(masks) == 1 else None


def _cleared(array: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Set to 0 what stands where the mask says there is nothing: it must not count."""
    if mask is None:
        return array
    return array * mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim))


def has_outliers(x: Data) -> bool:
    """Say whether some number of a draw often lies far out, so that `squash` may help.

    That is, whether more than one in a thousand of its values lies more than six of its robust standard
    deviations from the median (of a normal law, one in 5e8), or it spreads over decades.
    """
    for array in arrays_of(x):
        if array.dtype == bool:
            continue
        shift, factor, logarithm, _ = _fitted(array, None, squash=True, shared=False, log=False)
        far = np.mean(np.abs((array - shift) * factor) > 6, axis=0)
        if np.any(logarithm | (far > 1e-3)):
            return True
    return False


def may_be_logged(x: Data) -> bool:
    """Say whether some number of a draw is never negative and varies so much that its logarithm may help."""
    for array in arrays_of(x):
        if array.dtype != bool and np.any(_fitted(array, None, squash=False, shared=False, log=True)[2]):
            return True
    return False


def _fitted(
    x: np.ndarray, mask: np.ndarray | None, squash: bool, shared: bool, log: bool
) -> tuple[Any, Any, Any, Any]:
    if x.dtype == bool:
        return None, None, None, None
    if shared:
        # All places in one column per channel; a vector has one channel.
        channels = x.shape[-1] if x.ndim > 2 else 1
        if mask is not None:
            x = x[mask]
            channels = channels if x.ndim > 1 else 1
        x = x.reshape(-1, channels)
    logarithm = np.zeros(x.shape[1:], dtype=bool)
    floor = np.zeros(x.shape[1:], dtype=x.dtype)
    if log or squash:
        logarithm, floor = _logged(x, log)
    taken = _log(x, logarithm, floor)
    shift, spread = _moments(taken)
    if squash:
        first, middle, third = np.quantile(taken, [0.25, 0.5, 0.75], axis=0)
        # Where more than half of the numbers are the same, the quartiles say nothing of the others.
        quartiles = (third - first) / _QUARTILES
        shift, spread = middle, np.where(quartiles > 0, quartiles, spread)
    # What varies by less than its rounding is a constant too.
    constant = spread <= 8 * np.finfo(x.dtype).eps * np.abs(shift)
    with np.errstate(over="ignore"):
        factor = np.where(constant, 0.0, 1 / np.where(constant, 1.0, spread))
        usable = np.isfinite(factor.astype(x.dtype)) & np.isfinite(shift)
    if not usable.all():
        raise ValueError(
            f"x holds numbers that vary by {spread[~usable].flat[0]:.3g}, beyond what {x.dtype} can scale. "
            "Give x in other units, in which its numbers are of order one."
        )
    return shift, factor, logarithm, floor


def _logged(x: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    """Say of which numbers the logarithm is taken, and what is the smallest number that is told from 0."""
    smallest = np.min(x, axis=0)
    if not log:
        low, high = np.quantile(x, [0.01, 0.99], axis=0)
        logarithm = (smallest > 0) & (high > _WIDE * np.where(smallest > 0, low, np.inf))
        # Where data were positive but an observation is not, the logarithm is as low as can be.
        return logarithm, np.where(logarithm, np.finfo(x.dtype).tiny, 0).astype(x.dtype)
    positive = np.min(np.where(x > 0, x, np.inf), axis=0)
    # Zeros, too, are somewhere: below the smallest positive number by a factor of two.
    floor = 0.5 * positive
    low, high = (np.maximum(q, floor) for q in np.quantile(x, [0.01, 0.99], axis=0))
    logarithm = (smallest >= 0) & np.isfinite(positive) & (high > _LOGGED * low)
    return logarithm, np.where(logarithm, floor, 0).astype(x.dtype)


def _log(x: np.ndarray, logarithm: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Take the logarithm where it is wanted."""
    if not logarithm.any():
        return x
    logs = np.log(np.maximum(x, np.where(logarithm, floor, 1.0)))
    return np.where(logarithm, logs, x).astype(x.dtype, copy=False)


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Differences from the first draw: sums of a constant, or of numbers on a large offset, would be rounded.
    first = x[0].astype(np.float64)
    blocks = [x[i : i + _BLOCK_ROWS] for i in range(0, len(x), _BLOCK_ROWS)]
    unit = _unit(np.max([np.abs(block - first).max(axis=0) for block in blocks], axis=0))
    beyond = np.sum([((block - first) / unit).sum(axis=0) for block in blocks], axis=0) / len(x)
    squares = [np.square((block - first) / unit - beyond).sum(axis=0) for block in blocks]
    return first + unit * beyond, unit * np.sqrt(np.sum(squares, axis=0) / len(x))


def _unit(largest: np.ndarray) -> np.ndarray:
    """Return the unit to take squares in: 1, or a power of two where squares would be 0 or infinite."""
    extreme = (largest > 0) & ((largest < _EXTREME[0]) | (largest > _EXTREME[1]))
    return np.where(extreme, np.exp2(np.floor(np.log2(np.where(extreme, largest, 1.0)))), 1.0)


def _apply(x: np.ndarray, shift: Any, factor: Any, logarithm: Any, floor: Any, squash: bool) -> np.ndarray:
    if shift is None:
        return x
    x = _log(x, logarithm, floor)
    # In the data's own precision: float64 data may be a small variation on a large offset, which float32
    # would lose; of float32 data nothing is lost, since rounding the shift moves all draws alike.
    scaled = np.subtract(x, shift.astype(x.dtype))
    scaled *= factor.astype(x.dtype)
    if squash:
        np.arcsinh(scaled, out=scaled)
    return scaled.astype(np.float32, copy=False)
