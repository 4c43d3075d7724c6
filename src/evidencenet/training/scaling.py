"""Bring the numbers of a draw to order one, as fitted on training data only."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet._common.arrays import Data, arrays_of

_PARTS = ("shift", "factor", "logarithm")
_BLOCK_ROWS = 50_000
# Positive numbers whose central 98% spread over more than this ratio are taken by their logarithm.
_WIDE = 30.0
# Interquartile range of a normal law with unit variance.
_QUARTILES = 1.349


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x − shift) · factor for each number of a draw, or asinh of it.

    Masks pass unchanged. Numbers that never vary become 0, and so do elements that a mask leaves out.

    Parameters
    ----------
    shift, factor
        Arrays that fit one draw, or dicts of them; None stands for a mask.
    logarithm
        Where log x is taken before, boolean, likewise.
    squash
        Whether asinh is taken after: numbers of order one stay, large ones grow like their logarithm.
    whitening
        A matrix (d, d) that the d numbers of a draw are multiplied by last, or None.

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
    squash: bool = False
    whitening: np.ndarray | None = None

    @staticmethod
    def fit(x: Data, *, squash: bool = False, shared: bool = False) -> "Scaling":
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
            a mask leaves out do not count.
        """
        if not isinstance(x, dict):
            shift, factor, logarithm = _fitted(x, None, squash, shared)
            return Scaling(shift, factor, logarithm, squash)
        mask = _mask(x) if shared else None
        parts = {key: _fitted(array, mask, squash, shared) for key, array in x.items()}
        shift, factor, logarithm = ({key: part[i] for key, part in parts.items()} for i in range(3))
        return Scaling(shift, factor, logarithm, squash)

    def __call__(self, x: Data) -> Data:
        """Scale a batch; float32, shapes as given."""
        scaled = self._each(x)
        return scaled if self.whitening is None else _mixed(scaled, self.whitening)

    def _each(self, x: Data) -> Data:
        """Scale each number by itself."""
        if isinstance(x, dict):
            scaled = {
                key: _apply(x[key], shift, self.factor[key], self.logarithm[key], self.squash)
                for key, shift in self.shift.items()
            }
            mask = _mask(scaled)
            return scaled if mask is None else {key: _cleared(array, mask) for key, array in scaled.items()}
        return _apply(x, self.shift, self.factor, self.logarithm, self.squash)

    def arrays(self) -> dict[str, np.ndarray]:
        """Name the arrays, for a file."""
        found: dict[str, np.ndarray] = {}
        for part in _PARTS:
            tree = getattr(self, part)
            leaves = tree if isinstance(tree, dict) else {"": tree}
            found |= {f"{part}/{key}": leaf for key, leaf in leaves.items() if leaf is not None}
        return found if self.whitening is None else {**found, "whitening": self.whitening}

    @staticmethod
    def from_arrays(arrays: dict[str, np.ndarray], keys: tuple[str, ...] | None, squash: bool) -> "Scaling":
        """Rebuild from `arrays`; `keys` are those of dict data, masks included, else None."""
        if keys is None:
            shift, factor, logarithm = (arrays[f"{part}/"] for part in _PARTS)
            return Scaling(shift, factor, logarithm, squash, arrays.get("whitening"))
        trees = ({key: arrays.get(f"{part}/{key}") for key in keys} for part in _PARTS)
        shift_tree, factor_tree, logarithm_tree = trees
        return Scaling(shift_tree, factor_tree, logarithm_tree, squash, arrays.get("whitening"))


def _mixed(x: Data, matrix: np.ndarray) -> Data:
    """Multiply all numbers of each draw by a matrix; shapes stay."""
    arrays = arrays_of(x)
    rows = len(arrays[0])
    columns = [array.reshape(rows, -1) for array in arrays]
    mixed = (columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)) @ matrix
    ends = np.cumsum([part.shape[1] for part in columns])[:-1]
    parts = [
        part.reshape(array.shape) for part, array in zip(np.split(mixed, ends, axis=1), arrays, strict=True)
    ]
    return dict(zip(x, parts, strict=True)) if isinstance(x, dict) else parts[0]


def _mask(x: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the mask (n, N) of the elements of each draw, if there is just one."""
    masks = [array for array in x.values() if array.dtype == bool and array.ndim == 2]
    return masks[0] if len(masks) == 1 else None


def _cleared(array: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Set to 0 what stands where the mask says there is nothing: it must not count."""
    if array.dtype == bool or array.shape[:2] != mask.shape:
        return array
    return array * mask.reshape(mask.shape + (1,) * (array.ndim - 2))


def has_outliers(x: Data) -> bool:
    """Say whether some number of a draw often lies far out, so that `squash` may help.

    That is, whether more than one in a thousand of its values lies more than six of its robust standard
    deviations from the median (of a normal law, one in 5e8), or it spreads over decades.
    """
    for array in arrays_of(x):
        if array.dtype == bool:
            continue
        shift, factor, logarithm = _fitted(array, None, squash=True, shared=False)
        far = np.mean(np.abs((array - shift) * factor) > 6, axis=0)
        if np.any(logarithm | (far > 1e-3)):
            return True
    return False


def _fitted(x: np.ndarray, mask: np.ndarray | None, squash: bool, shared: bool) -> tuple[Any, Any, Any]:
    if x.dtype == bool:
        return None, None, None
    if shared:
        # All places in one column per channel; a vector has one channel.
        channels = x.shape[-1] if x.ndim > 2 else 1
        there = mask is not None and x.shape[:2] == mask.shape
        x = (x[mask] if there else x).reshape(-1, channels)
    if squash:
        low, first, middle, third, high = np.quantile(x, [0.01, 0.25, 0.5, 0.75, 0.99], axis=0)
        positive = np.min(x, axis=0) > 0
        logarithm = positive & (high > _WIDE * np.where(positive, low, np.inf))
        # Quantiles are kept by the logarithm, up to interpolation.
        take = np.where(logarithm, 1.0, 0.0)
        first, middle, third = (
            np.where(take > 0, np.log(np.where(take > 0, q, 1.0)), q) for q in (first, middle, third)
        )
        shift, spread = middle, (third - first) / _QUARTILES
        if np.any(spread == 0):
            # Where more than half of the numbers are the same, the quartiles say nothing of the others.
            taken = np.where(logarithm, np.log(np.where(logarithm, x, 1.0)), x)
            spread = np.where(spread > 0, spread, _moments(taken)[1])
    else:
        shift, spread = _moments(x)
        logarithm = np.zeros(shift.shape, dtype=bool)
    # What varies by less than its rounding is a constant too.
    constant = spread <= 8 * np.finfo(x.dtype).eps * np.abs(shift)
    return shift, np.where(constant, 0.0, 1 / np.where(constant, 1.0, spread)), logarithm


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Differences from the first draw: sums of a constant, or of numbers on a large offset, would be rounded.
    first = x[0].astype(np.float64)
    blocks = [x[i : i + _BLOCK_ROWS] for i in range(0, len(x), _BLOCK_ROWS)]
    beyond = np.sum([(block - first).sum(axis=0) for block in blocks], axis=0) / len(x)
    squares = [np.square(block - first - beyond).sum(axis=0) for block in blocks]
    return first + beyond, np.sqrt(np.sum(squares, axis=0) / len(x))


def _apply(x: np.ndarray, shift: Any, factor: Any, logarithm: Any, squash: bool) -> np.ndarray:
    if shift is None:
        return x
    if logarithm.any():
        # Where data were positive but an observation is not, the logarithm is as low as can be.
        x = np.where(logarithm, np.log(np.maximum(x, np.finfo(x.dtype).tiny)), x).astype(x.dtype, copy=False)
    # In the data's own precision: float64 data may be a small variation on a large offset, which float32
    # would lose; of float32 data nothing is lost, since rounding the shift moves all draws alike.
    scaled = np.subtract(x, shift.astype(x.dtype))
    scaled *= factor.astype(x.dtype)
    if squash:
        np.arcsinh(scaled, out=scaled)
    return scaled.astype(np.float32, copy=False)
