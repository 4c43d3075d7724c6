"""`SeenDraws`: what a network keeps of the draws it was trained on: constant numbers, and fingerprints.

The constants show that an observation is impossible under every model though the networks never look at the
number. The fingerprints show that draws given to `validate` were used in training.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evidencenet._common.arrays import Data, arrays_of

# Fingerprints that are kept, 64 kB in a file: of a million training draws, 8 of 1,000 draws that are used
# again are then recognised, and already three cannot be chance.
_MOST_HASHES = 8_192
# Numbers that differ by less than this many units of rounding are the same.
_ROUNDING = 8
_BLOCK_ROWS = 65_536
# Odd constants of the splitmix64 generator (Steele, Lea & Flood 2014), whose steps mix all bits.
_GOLDEN, _MIX = np.uint64(0x9E3779B97F4A7C15), (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class SeenDraws:
    """What is kept of the training draws.

    Parameters
    ----------
    constant
        For each number of a draw, all arrays in a row: its value if it was the same in every draw, else NaN,
        shape (d,).
    hashes
        The smallest of the hashes of the training draws, sorted, shape (m,). All of them, if they are few.
    highest
        Hashes up to this one are in `hashes` if the draw was used in training.
    chance
        The fraction of held-out draws that equal a training draw by chance; 0 for continuous data.
    """

    constant: np.ndarray
    hashes: np.ndarray
    highest: np.ndarray
    chance: float

    @staticmethod
    def of(x: Data, training: np.ndarray, held_out: np.ndarray, clean: Data | None = None) -> "SeenDraws":
        """Keep what is needed of all draws `x`, given the rows used for training and those held out.

        Draws with a `clean` part are recognised by it, since their noise is drawn anew.
        """
        hashes = row_hashes(x if clean is None else clean)
        kept, highest = hashes[training], np.uint64(2**64 - 1)
        if len(kept) > _MOST_HASHES:
            kept = np.partition(kept, _MOST_HASHES - 1)[:_MOST_HASHES]
            highest = kept.max()
        kept = np.unique(kept)
        looked_up = hashes[held_out][hashes[held_out] <= highest]
        chance = float(np.mean(np.isin(looked_up, kept))) if len(looked_up) else 0.0
        return SeenDraws(_constants(x), kept, np.asarray(highest), chance)

    def departures(self, x: Data) -> np.ndarray:
        """Say where numbers differ from their value in every training draw, (n, d)."""
        numbers = _flat(x)
        single = any(array.dtype == np.float32 for array in arrays_of(x))
        # Draws may have been rounded to single precision, or computed in another order.
        rounding = _ROUNDING * np.finfo(np.float32 if single else np.float64).eps
        known = np.isfinite(self.constant)
        off = np.abs(numbers - np.where(known, self.constant, 0.0))
        return np.asarray(known & (off > rounding * np.abs(np.where(known, self.constant, 0.0))))

    def used_again(self, x: Data) -> tuple[int, int]:
        """Return how many draws have a hash that can be looked up, and how many of these were trained on."""
        hashes = row_hashes(x)
        looked_up = hashes[hashes <= self.highest]
        return len(looked_up), int(np.isin(looked_up, self.hashes).sum())


def row_hashes(x: Data) -> np.ndarray:
    """Return a 64-bit hash of the numbers of each draw, in single precision, shape (n,).

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    >>> hashes = row_hashes(x)
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
    """
    n = len(arrays_of(x)[0])
    hashes = np.zeros(n, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for start in range(0, n, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            block = _flat(x, rows, np.float32) + np.float32(0.0)  # −0.0 becomes 0.0
            bits = np.ascontiguousarray(block).view(np.uint32).astype(np.uint64)
            salt = _mixed(np.arange(1, bits.shape[1] + 1, dtype=np.uint64) * _GOLDEN)
            hashes[rows] = _mixed(np.asarray(np.sum(_mixed(bits ^ salt), axis=1, dtype=np.uint64)))
    return hashes


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def _constants(x: Data) -> np.ndarray:
    """Return the value of each number that is the same in all draws, and NaN for the others, (d,)."""
    first = _flat(x, slice(0, 1))[0]
    same = np.ones(len(first), dtype=bool)
    n = len(arrays_of(x)[0])
    for start in range(0, n, _BLOCK_ROWS):
        same &= np.all(_flat(x, slice(start, start + _BLOCK_ROWS)) == first, axis=0)
        if not same.any():
            break
    # Masks say which numbers exist; what never was masked may be masked in an observation.
    is_mask = np.concatenate([np.full(array[0].size, array.dtype == bool) for array in arrays_of(x)])
    return np.where(same & ~is_mask, first, np.nan)


def _flat(x: Data, rows: slice = slice(None), kind: type[np.floating] = np.float64) -> np.ndarray:
    """All numbers of each draw in a row, in this precision, (n, d)."""
    # Not -1 for the second size, which cannot be told if there are no draws.
    blocks = [(array[rows], int(np.prod(array.shape[1:]))) for array in arrays_of(x)]
    parts = [block.reshape(len(block), size).astype(kind, copy=False) for block, size in blocks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def place_text(i: int, example: Data, columns: Sequence[str] | None = None) -> str:
    """Name the number at place i of a flattened draw: x[3], x[1, 2], x['key'][3], or by its column."""
    # Arrays that say which numbers are there come after the numbers.
    if columns is not None and i < len(columns):
        return f"column {columns[i]!r}"
    parts = example.items() if isinstance(example, dict) else [("", example)]
    for key, array in parts:
        if i < array.size:
            index = ", ".join(str(int(k)) for k in np.unravel_index(i, array.shape))
            return f"x{f'[{key!r}]' if key else ''}[{index}]"
        i -= array.size
    raise IndexError(f"an observation does not have so many numbers: {i} too many")
