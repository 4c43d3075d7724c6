"""The checkpoint of a training run: its state after each epoch, in a file, so that it can continue.

A run is identified by a record of everything its result depends on (`run_fingerprint`). A checkpoint of
another run is refused, and the message says what differs.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import numpy as np

from evidencenet._common import files
from evidencenet._common.atomic import remove_leftovers
from evidencenet._common.files import FileError
from evidencenet._common.fingerprint import fingerprint as code_fingerprint
from evidencenet._common.versions import versions

Run = Mapping[str, str]
# Texts that begin so are hashes, which tell a reader nothing.
_HASHED = "sha256:"
# Python itself computes nothing in the training, and SciPy only what comes before and after it.
_VERSIONS_THAT_DO_NOT_MATTER = ("python", "scipy")


class CheckpointError(ValueError):
    """A checkpoint of another run."""


def run_fingerprint(
    sims: Any,
    *,
    augment: Any = None,
    network: Any = None,
    loss: Any = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Identify a training run by everything that its result depends on.

    Parameters
    ----------
    sims
        The draws, a `Simulations`. Every byte of the data, labels and weights counts (1.6 GB a second); the
        arrays are read block by block, so they may also lie on disk.
    augment
        The function given to `train`, identified by its code and the values it uses.
    network
        The architecture: a record, or a function of the user's, identified like `augment`.
    loss
        The loss, likewise.
    settings
        Everything else, by name: seed, members, recipe, plan. Shown in the message if it differs, so each
        value should have a short `repr`.

    Returns
    -------
    dict
        Text by name; `save` stores it, and `load` compares it.

    Examples
    --------
    >>> import evidencenet as en
    >>> sims = en.Simulations(np.zeros((4, 2)), [0, 0, 1, 1])
    >>> one = run_fingerprint(sims, settings={"seed": 1})
    >>> differences(one, run_fingerprint(sims, settings={"seed": 2}))
    ['seed (1 there, 2 here)']
    """
    data = sims.x if isinstance(sims.x, dict) else {"": sims.x}
    keyed = [part for key, array in data.items() for part in (key, array)]
    record = {
        "the models": repr(tuple(sims.names)),
        "the data x": _hash(*keyed),
        "the labels": _hash(sims.model),
        "the failed draws": repr(tuple(sims.failed)),
        "the weights": "none" if sims.log_weight is None else _hash(sims.log_weight),
        "augment": _identified(augment),
        "the network": _identified(network),
        "the loss": _identified(loss),
    }
    record |= {name: repr(value) for name, value in (settings or {}).items()}
    if getattr(sims, "clean", None) is not None:
        kept = sims.clean if isinstance(sims.clean, dict) else {"": sims.clean}
        record["the clean draws"] = _hash(*[part for key, array in kept.items() for part in (key, array)])
        record["observe"] = f"{_HASHED}{code_fingerprint(*sims.observation.functions)}"
    used = {name: text for name, text in versions().items() if name not in _VERSIONS_THAT_DO_NOT_MATTER}
    return record | {f"the version of {name}": text for name, text in used.items()}


def differences(there: Run, here: Run) -> list[str]:
    """Say what differs between two runs, in words for a message."""
    texts = []
    for name in dict.fromkeys([*here, *there]):
        old, new = there.get(name), here.get(name)
        if old == new:
            continue
        shown = all(text is not None and not text.startswith(_HASHED) for text in (old, new))
        texts.append(f"{name} ({_short(old)} there, {_short(new)} here)" if shown else name)
    return texts


def save(path: str | os.PathLike[str], run: Run, trees: Sequence[Any], curves: dict[str, np.ndarray]) -> None:
    """Write the state of all members after an epoch.

    Parameters
    ----------
    path
        The file; replaced only when all is written.
    run
        The record of `run_fingerprint`.
    trees
        For each member, any tree of arrays.
    curves
        Arrays by name.
    """
    arrays = {f"curves/{name}": array for name, array in curves.items()}
    for member, tree in enumerate(trees):
        for i, leaf in enumerate(jax.tree.leaves(tree)):
            arrays[f"{member}/{i:05d}"] = np.asarray(leaf)
    files.write(path, "checkpoint", {"run": dict(run)}, arrays)


def load(
    path: str | os.PathLike[str], run: Run, trees: Sequence[Any]
) -> tuple[list[Any], dict[str, np.ndarray]] | None:
    """Read what `save` wrote into trees of the same form; None if there is no such file.

    Raises
    ------
    CheckpointError
        It is the checkpoint of another run; the message says what differs.
    FileError
        It is damaged.
    """
    if not Path(path).exists():
        return None
    about, arrays = files.read(path, "checkpoint")
    there = about.get("run")
    if not isinstance(there, dict) or not all(isinstance(text, str) for text in there.values()):
        raise FileError(f"{path} does not say which run it belongs to. Delete it to begin again.")
    different = differences(there, dict(run))
    if different:
        raise CheckpointError(
            f"{path} is a checkpoint of another run. These differ: {'; '.join(different)}. To continue it, "
            "call train with what it was made with; to begin again, delete the file or give another one."
        )
    restored = []
    for member, tree in enumerate(trees):
        leaves, structure = jax.tree.flatten(tree)
        saved = [arrays.get(f"{member}/{i:05d}") for i in range(len(leaves))]
        if [None if array is None else array.shape for array in saved] != [np.shape(leaf) for leaf in leaves]:
            raise FileError(f"{path} does not fit this network. Delete it to begin again.")
        restored.append(jax.tree.unflatten(structure, saved))
    prefix = "curves/"
    curves = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    return restored, curves


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint whose network has been saved, and the trials beside it."""
    for place in (Path(path), trials_path(path)):
        place.unlink(missing_ok=True)
        remove_leftovers(place)


def trials_path(path: str | os.PathLike[str]) -> Path:
    """Return the file beside a checkpoint for the finished trials of the search."""
    return Path(f"{os.fspath(path)}.trials")


def _hash(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"\0{part}\0".encode("utf-8", "surrogatepass"))
        else:
            files.hash_array(digest, part)
    return f"{_HASHED}{digest.hexdigest()}"


def _identified(thing: Any) -> str:
    """Identify a function by its code, and a record by its `repr` and the code of its functions."""
    if thing is None:
        return "none"
    own = isinstance(thing, FunctionType) or not type(thing).__module__.startswith("evidencenet.")
    if own:
        return f"{_HASHED}{code_fingerprint(thing, changing=True)}"
    parts = {item.name: getattr(thing, item.name) for item in fields(thing)} if is_dataclass(thing) else {}
    functions = [part for part in parts.values() if callable(part)]
    if functions:
        plain = {name: part for name, part in parts.items() if not callable(part)}
        return f"{_HASHED}{code_fingerprint(*functions, changing=True)} {type(thing).__name__} {plain}"
    return repr(thing)


def _short(text: str | None) -> str:
    text = "nothing" if text is None else text
    return text if len(text) <= 60 else f"{text[:57]}..."
