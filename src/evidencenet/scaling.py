"""Bring data to zero mean and unit variance, as fitted on training data only."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evidencenet.data import Data

_BLOCK_ROWS = 50_000


@dataclass(frozen=True, eq=False)
class Standardise:
    """(x − shift) · factor for each number of a draw; masks pass unchanged, constant numbers become 0.

    Parameters
    ----------
    shift, factor
        Float64 arrays of one draw's shape, or dicts of them; None stands for a mask.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> Standardise.fit(x)(x)
    array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """

    shift: Any
    factor: Any

    @staticmethod
    def fit(x: Data) -> "Standardise":
        """Fit to a batch of data, (n, ...) or a dict of such arrays."""
        if isinstance(x, dict):
            moments = {key: _moments(array) for key, array in x.items()}
            shift, factor = ({key: pair[i] for key, pair in moments.items()} for i in (0, 1))
            return Standardise(shift, factor)
        return Standardise(*_moments(x))

    def __call__(self, x: Data) -> Data:
        """Scale a batch; float32, shapes as given."""
        if isinstance(x, dict):
            return {key: _apply(x[key], self.shift[key], self.factor[key]) for key in x}
        return _apply(x, self.shift, self.factor)

    def arrays(self) -> dict[str, np.ndarray]:
        """Name the arrays, for a file."""
        found: dict[str, np.ndarray] = {}
        for part, tree in (("shift", self.shift), ("factor", self.factor)):
            leaves = tree if isinstance(tree, dict) else {"": tree}
            found |= {f"{part}/{key}": leaf for key, leaf in leaves.items() if leaf is not None}
        return found

    @staticmethod
    def from_arrays(arrays: dict[str, np.ndarray], keys: tuple[str, ...] | None) -> "Standardise":
        """Rebuild from `arrays`; `keys` are those of dict data, masks included, else None."""
        if keys is None:
            return Standardise(arrays["shift/"], arrays["factor/"])
        shift, factor = ({key: arrays.get(f"{part}/{key}") for key in keys} for part in ("shift", "factor"))
        return Standardise(shift, factor)


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    if x.dtype == bool:
        return None, None
    blocks = [x[i : i + _BLOCK_ROWS] for i in range(0, len(x), _BLOCK_ROWS)]
    mean = sum(block.sum(axis=0, dtype=np.float64) for block in blocks) / len(x)
    variance = sum(np.square(block - mean, dtype=np.float64).sum(axis=0) for block in blocks) / len(x)
    deviation = np.sqrt(variance)
    # The mean of a constant is rounded, so its spread is not exactly 0 but within rounding of its size.
    resolution = 8 * np.finfo(x.dtype).eps * np.abs(mean)
    constant = deviation <= resolution
    return mean, np.where(constant, 0.0, 1 / np.where(constant, 1.0, deviation))


def _apply(x: np.ndarray, shift: np.ndarray | None, factor: np.ndarray | None) -> np.ndarray:
    if shift is None or factor is None:
        return x
    # In the data's own precision: float64 data may be a small variation on a large offset, which float32
    # would lose; of float32 data nothing is lost, since rounding the shift moves all draws alike.
    scaled = np.subtract(x, shift.astype(x.dtype))
    scaled *= factor.astype(x.dtype)
    return scaled.astype(np.float32, copy=False)
