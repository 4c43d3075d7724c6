"""Networks over stores: log K of every draw into a file, and a sample of the draws for checks."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet._common.arrays import arrays_of, map_arrays
from evidencenet._common.atomic import replaced
from evidencenet.estimator.given import observed_sample
from evidencenet.simulation.dataset import Simulations, check_draws
from evidencenet.simulation.stored import StoredDraws, are_stores

if TYPE_CHECKING:
    from evidencenet.estimator.network import EvidenceNetwork

# Checks use so many draws of a store at most, in so many bytes: p-values and scores hardly change with more.
_MOST_DRAWS, _MOST_BYTES = 1_000_000, 2**29
# Draws that are given to the networks at once.
_BLOCK = 50_000


def is_path(value: Any) -> bool:
    """Say whether something is a path, or a list of paths."""
    several = isinstance(value, list | tuple) and bool(value)
    return isinstance(value, str | os.PathLike) or (several and all(map(is_path, value)))


def draws_of(caller: str, given: Any, names: tuple[str, ...]) -> Simulations:
    """Return draws for a check: those given, those of a file, or a random part of those of stores.

    Of stores with more than a million draws, or with more than fit in 512 MB, random ones are taken, always
    the same. Draws of other models than these are refused.
    """
    sims: Simulations = _read(given) if is_path(given) else given
    check_draws(caller, sims, names)
    return sims


def _read(sims: Any) -> Simulations:
    if not are_stores(sims):
        return Simulations.read(sims)
    stored = StoredDraws.open([sims] if isinstance(sims, str | os.PathLike) else list(sims))
    if stored.noise_seed is not None:
        raise ValueError(
            "the store holds clean draws, and no store can hold the function that observes them. Read it "
            "with the models that were simulated: Simulations.read(path, observe=[first, second])."
        )
    x = stored.pieces[0][0].read()
    row = sum(array.nbytes for array in arrays_of(x)) // max(1, len(arrays_of(x)[0]))
    size = min(sum(stored.totals), _MOST_DRAWS, max(1_000, _MOST_BYTES // max(1, row)))
    x, label, _, _ = stored.sample(size, 0.0)
    return observed_sample(stored, x, label, None)


def write_log_k(
    net: "EvidenceNetwork", paths: Any, out: str | os.PathLike[str] | None, pair: tuple[int, int]
) -> np.ndarray:
    """Write log K of every draw of stores to a .npy file, in pieces; return it as an array on disk.

    The draws are in the order of `Simulations.read`: those of the first model, then those of the second, and
    so on, in each model one store after the other.
    """
    if out is None or Path(out).suffix != ".npy":
        raise ValueError(
            f"log K of the draws of a store is written to a file: wanted out='log_k.npy', got {out!r}."
        )
    if not are_stores(paths):
        raise ValueError(
            f"{paths!r} is no store of simulate. Read it first: log_bayes_factor(Simulations.read(path).x)."
        )
    stored = StoredDraws.open([paths] if isinstance(paths, str | os.PathLike) else list(paths))
    if stored.names != net.names:
        raise ValueError(f"the draws are of {stored.names}, the network compares {net.names}, in this order.")
    if stored.noise_seed is not None:
        raise ValueError("the store holds clean draws, and log K is that of observed ones.")
    place, n = Path(out), sum(stored.totals)
    with replaced(place, 8 * n) as partial:
        log_k = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float64, shape=(n,))
        at = 0
        for piece in (piece for pieces in stored.pieces for piece in pieces):
            x = piece.read()
            for start in range(0, piece.rows, _BLOCK):
                block = map_arrays(lambda array, start=start: array[start : start + _BLOCK], x)
                found = net.log_bayes_factor(block, model=pair[0], against=pair[1])
                log_k[at : at + len(found)] = found
                at += len(found)
        log_k.flush()
        del log_k
    return np.asanyarray(np.load(place, mmap_mode="r"))
