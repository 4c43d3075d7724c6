"""Keep the state of a training run in a file, so that it goes on exactly where it was cut off."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evidencenet._common import files


class CheckpointError(ValueError):
    """A checkpoint of another run."""


def fingerprint(*parts: Any) -> str:
    """Identify a run by its settings and data: arrays by their bytes, all else by its words."""
    digest = hashlib.sha256()
    for part in parts:
        for leaf in jax.tree.leaves(part, is_leaf=lambda x: x is None):
            digest.update(leaf.tobytes() if isinstance(leaf, np.ndarray) else repr(leaf).encode())
    return digest.hexdigest()


def save(path: str | os.PathLike[str], run: str, trees: Sequence[Any], curves: dict[str, np.ndarray]) -> None:
    """Write the state of all members after an epoch.

    Parameters
    ----------
    path
        The file; replaced only when all is written.
    run
        The run's `fingerprint`.
    trees
        Per member, any tree of arrays.
    curves
        Arrays by name.
    """
    arrays = {f"curves/{name}": array for name, array in curves.items()}
    for member, tree in enumerate(trees):
        for i, leaf in enumerate(jax.tree.leaves(tree)):
            arrays[f"{member}/{i:05d}"] = np.asarray(leaf)
    files.write(path, "checkpoint", {"run": run}, arrays)


def load(
    path: str | os.PathLike[str], run: str, trees: Sequence[Any]
) -> tuple[list[Any], dict[str, np.ndarray]] | None:
    """Read what `save` wrote into trees of the same form; None if there is no such file."""
    if not Path(path).exists():
        return None
    about, arrays = files.read(path, "checkpoint")
    if about["run"] != run:
        raise CheckpointError(
            f"{path} is a checkpoint of another run: other draws, seed or settings. Give the same ones to go "
            "on with it, or another file, or delete it to begin anew."
        )
    found = []
    for member, tree in enumerate(trees):
        count = len(jax.tree.leaves(tree))
        leaves = [arrays[f"{member}/{i:05d}"] for i in range(count)]
        found.append(jax.tree.unflatten(jax.tree.structure(tree), leaves))
    prefix = "curves/"
    return found, {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
