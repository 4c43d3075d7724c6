"""Draws that are given by paths: small ones are read whole, and large stores are read in pieces."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidencenet._common.arrays import arrays_of, kind_of
from evidencenet._common.files import no_file
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.model import Model
from evidencenet.simulation.store import described
from evidencenet.simulation.stored import NotInPiecesError, StoredDraws, are_stores, drawn_apart

# So many draws of each model tell how many bytes a draw takes. Ten times as many of all are always read.
_FIRST_LOOK = 100


class InPieces(NamedTuple):
    """Stores that are too large to be read whole, and how many of their draws may lie in memory."""

    stored: StoredDraws
    size: int


def are_paths(value: Any) -> bool:
    """Say whether something is a path, or a list of paths."""
    several = isinstance(value, list | tuple) and bool(value)
    return isinstance(value, str | os.PathLike) or (several and all(map(are_paths, value)))


def in_pieces(
    paths: Any, models: Any, *, draws: int, size: int, seed: int = 0, workers: int = 1
) -> InPieces | None:
    """Open stores to read them in pieces; None if they are small, or can only be read whole.

    Parameters
    ----------
    paths
        A path, or several.
    models
        The models that were simulated, which observe clean draws; None if the draws are data.
    draws, size
        The most draws to read whole, and the most bytes.
    seed, workers
        As in `StoredDraws.open`.
    """
    check_models(paths, models)
    if not are_stores(paths):
        return None
    try:
        stored = StoredDraws.open(_several(paths), seed=seed, workers=workers)
        x, _, _, _ = stored.sample(_FIRST_LOOK * len(stored.names), 0.0)
    except NotInPiecesError:
        return None
    row = sum(array.nbytes // max(1, len(array)) for array in arrays_of(x))
    most = int(min(draws, max(size // max(row, 1), 10 * _FIRST_LOOK)))
    return None if sum(stored.totals) <= most else InPieces(stored, most)


def read_whole(paths: Any, models: Any) -> Simulations:
    """Read all draws of files or stores; clean ones are observed by the models."""
    check_models(paths, models)
    several = _several(paths)
    for path in several if len(several) > 1 else []:
        # Else the message would be about those that are there.
        if not Path(path).exists():
            raise no_file(Path(path))
    if len(several) > 1 and are_stores(several):
        names = [tuple(described(Path(path))[1]["settings"]["models"]) for path in several]
        if not drawn_apart(names):
            return Simulations.concatenate([Simulations.read(path, observe=models) for path in several])
    # Several files have one model each; a single one may have all.
    return Simulations.read(several[0] if len(several) == 1 else several, observe=models)


def observed(stored: StoredDraws, x: Any, label: np.ndarray, models: Any) -> Simulations:
    """Return draws that were taken from stores; clean ones are observed."""
    counts = np.bincount(label, minlength=len(stored.names))
    failed = [round(f * c / t) for f, c, t in zip(stored.failed, counts, stored.totals, strict=True)]
    return Simulations(
        x,
        label,
        stored.names,
        failed=failed,
        columns=stored.columns,
        observe=None if stored.noise_seed is None else models,
        seed=stored.noise_seed or 0,
    )


def check_models(paths: Any, models: Any) -> None:
    """Raise unless models observe the draws of stores as those did that were simulated.

    Other files say nothing of their models, so any models may observe their draws.
    """
    if models is not None and not (
        isinstance(models, list | tuple) and models and all(isinstance(model, Model) for model in models)
    ):
        raise TypeError(
            f"models must be the list of Model that were simulated, got {kind_of(models)}. They say how "
            "clean draws are observed. If you have a function, read(path, observe=function) does it."
        )
    for path in _several(paths) if are_stores(paths) else []:
        settings = described(Path(path))[1]["settings"]
        clean = dict(zip(settings["models"], settings.get("observe", ()), strict=False))
        if models is None and any(clean.values()):
            raise ValueError(
                f"{path} holds clean draws, and no store can hold the function that observes them. Give the "
                "models that were simulated too: models=[first, second], or --models models.py on the "
                "command line."
            )
        for model in models or ():
            wanted, there = model.observe is not None, clean.get(model.name)
            if there and not wanted:
                raise ValueError(
                    f"{path} holds clean draws of {model.name!r}, and the model that is given has no "
                    "observe. Give the models that were simulated."
                )
            if wanted and there is False:
                raise ValueError(
                    f"{path} holds draws of {model.name!r} that were simulated without observe, and the "
                    "model that is given has one. Leave out models if nothing is to be added to the draws; "
                    "else read them with Simulations.read(path, observe=models)."
                )


def _several(paths: Any) -> list[Any]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)
