"""Networks over stores: log K of every draw into a file, and a sample of the draws for checks."""

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, kind_of, map_arrays
from evidencenet._common.atomic import replaced
from evidencenet.simulation.dataset import Simulations, check_draws, other_models
from evidencenet.simulation.observe import Observation
from evidencenet.simulation.paths import are_paths, check_models, in_pieces, observed, read_whole
from evidencenet.simulation.stored import StoredDraws, are_stores

if TYPE_CHECKING:
    from evidencenet.estimator.network import EvidenceNetwork

# Checks use so many draws of a store at most, in so many bytes: p-values and scores hardly change with more.
_MOST_DRAWS, _MOST_BYTES = 1_000_000, 2**29
# Draws that are given to the networks at once.
_BLOCK = 50_000


def draws_of(caller: str, given: Any, names: tuple[str, ...], models: Any) -> Simulations:
    """Return draws for a check: those given, those of a file, or a random part of those of stores.

    Of stores with more than a million draws, or with more than fit in 512 MB, random ones are taken, always
    the same. Draws of other models than these are refused. Clean draws are observed by `models`.
    """
    if models is not None and not are_paths(given):
        raise TypeError(
            f"models say how the clean draws of a file or store are observed, and {caller} got "
            f"{kind_of(given)}. Leave models out, or give a path."
        )
    sims: Simulations = _read(given, models) if are_paths(given) else given
    check_draws(caller, sims, names)
    return sims


def _read(paths: Any, models: Any) -> Simulations:
    large = in_pieces(paths, models, draws=_MOST_DRAWS, size=_MOST_BYTES)
    if large is None:
        return read_whole(paths, models)
    x, label, _, _ = large.stored.sample(large.size, 0.0)
    return observed(large.stored, x, label, models)


def write_log_k(
    net: "EvidenceNetwork",
    paths: Any,
    out: str | os.PathLike[str] | None,
    pair: tuple[int, int],
    models: Any = None,
) -> np.ndarray:
    """Write log K of every draw of stores to a .npy file, in pieces; return it as an array on disk.

    The draws are in the order of `Simulations.read`: those of the first model, then those of the second, and
    so on, in each model one store after the other. Clean draws are observed by `models`, with the same noise
    as in `Simulations.read`.
    """
    if out is None or Path(out).suffix != ".npy":
        raise ValueError(
            f"log K of the draws of a store is written to a file: wanted out='log_k.npy', got {out!r}."
        )
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        if not Path(path).exists():
            raise FileNotFoundError(
                f"there is no store {path}; wanted the folder given to simulate as store=."
            )
        if not are_stores(path):
            raise ValueError(
                f"{path} is no store of simulate. Read it first: log_bayes_factor(Simulations.read(path).x)."
            )
    check_models(paths, models)
    stored = StoredDraws.open([paths] if isinstance(paths, str | os.PathLike) else list(paths))
    if stored.names != net.names:
        raise other_models(stored.names, net.names)
    observation = None if models is None else Observation.of(models, stored.names)
    place, n = Path(out), sum(stored.totals)
    with replaced(place, 8 * n) as partial:
        log_k = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float64, shape=(n,))
        at = 0
        for x in (x for k in range(len(net.names)) for x in _data(stored, k, observation)):
            for start in range(0, len(arrays_of(x)[0]), _BLOCK):
                block = map_arrays(lambda array, start=start: array[start : start + _BLOCK], x)
                found = net.log_bayes_factor(block, model=pair[0], against=pair[1])
                log_k[at : at + len(found)] = found
                at += len(found)
        log_k.flush()
        del log_k
    return np.asanyarray(np.load(place, mmap_mode="r"))


def _data(stored: StoredDraws, model: int, observation: Observation | None) -> Iterator[Data]:
    """Give the draws of a model piece by piece, one store after the other; clean ones are observed."""
    for _, group in groupby(stored.pieces[model], lambda piece: piece.store.path):
        pieces = list(group)
        read, noise_seed = (piece.read() for piece in pieces), pieces[0].noise_seed
        if observation is None or noise_seed is None:
            yield from read
        else:
            yield from observation.realise_pieces(model, read, noise_seed)
