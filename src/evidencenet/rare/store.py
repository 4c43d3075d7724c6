"""The store of a splitting run: a folder that holds every level as soon as it is drawn.

A run that was interrupted continues from its last level, to the same draws as without the interruption: the
random numbers of a level depend on the seed and on the number of the level alone.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidencenet._common import files
from evidencenet._common.arrays import Data, map_arrays
from evidencenet._common.files import FileError
from evidencenet._common.warnings import EvidenceWarning
from evidencenet.rare.steer import Chains

Array = np.ndarray

_LEVEL, _NORMALS, _SETTINGS = "level of rare draws", "normals of rare draws", "settings of rare draws"


@dataclass(frozen=True, eq=False)
class Level:
    """One level of a splitting run, with R independent replicates.

    Attributes
    ----------
    chains
        The draws of each replicate, with the normals that they are made from; None where these are no longer
        needed.
    x
        The data of all replicates, one after the other.
    score
        Of each draw, shape (R, size).
    threshold
        The score that these draws have at least.
    fraction
        How many draws of the level before reach it, in each replicate, shape (R,).
    accepted
        The fraction of moves that was accepted.
    step
        The mean step of each move, shape (moves,).
    next_step
        The mean step that the next level begins with.
    calls, drawn
        Simulator calls so far; plain draws that were made for the first level.
    """

    chains: tuple[Chains, ...] | None
    x: Data
    score: Array
    threshold: float
    fraction: Array
    accepted: float
    step: Array
    next_step: float
    calls: int
    drawn: int


class LevelStore:
    """Levels in a folder, each in a file of its own.

    A file is written as a whole or not at all. The normals, from which the next level starts, are kept for
    the last level alone.

    Parameters
    ----------
    folder
        Made if it does not exist.
    settings
        What the draws depend on. A folder that was begun with other settings is refused.
    code
        Identifies the code of the simulator. If it has changed there is a warning, as in `simulate`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], code: str = "") -> None:
        self._folder = folder
        check_settings(folder, settings, code)

    def levels(self) -> list[Level]:
        """Return the levels that are there, in order; the last one has its chains."""
        last = max((self._number(path) for path in self._folder.glob("normals-*.rare")), default=None)
        if last is None:
            return []
        try:
            levels = [self._read(number) for number in range(last)]
            return [*levels, self._read(last, chains=True)]
        except (FileError, FileNotFoundError, KeyError) as error:
            warnings.warn(
                f"the levels in {self._folder} cannot be read ({error}); they are drawn again.",
                EvidenceWarning,
                stacklevel=2,
            )
            return []

    def write(self, number: int, level: Level) -> None:
        """Write a level, and forget the normals of those before."""
        assert level.chains is not None
        about = {
            # The threshold of plain draws is −∞, which JSON cannot express.
            "threshold": None if np.isinf(level.threshold) else level.threshold,
            "accepted": level.accepted,
            "next_step": level.next_step,
            "calls": level.calls,
            "drawn": level.drawn,
            "keys": list(level.x) if isinstance(level.x, dict) else None,
        }
        parts = level.x if isinstance(level.x, dict) else {"": level.x}
        arrays = {f"x/{key}": array for key, array in parts.items()}
        arrays |= {"score": level.score, "fraction": level.fraction, "step": level.step}
        files.write(self._path("level", number), _LEVEL, about, arrays)
        files.write(self._path("normals", number), _NORMALS, *_packed(level.chains))
        for path in self._folder.glob("normals-*.rare"):
            if self._number(path) < number:
                path.unlink()

    def _read(self, number: int, *, chains: bool = False) -> Level:
        about, arrays = files.read(self._path("level", number), _LEVEL)
        keys = about["keys"]
        x: Data = arrays["x/"] if keys is None else {key: arrays[f"x/{key}"] for key in keys}
        normals = files.read(self._path("normals", number), _NORMALS) if chains else None
        return Level(
            None if normals is None else _unpacked(*normals, x),
            x,
            arrays["score"],
            -np.inf if about["threshold"] is None else about["threshold"],
            arrays["fraction"],
            about["accepted"],
            arrays["step"],
            about["next_step"],
            about["calls"],
            about["drawn"],
        )

    def _path(self, what: str, number: int) -> Path:
        return self._folder / f"{what}-{number:03d}.rare"

    @staticmethod
    def _number(path: Path) -> int:
        digits = path.stem.rpartition("-")[2]
        return int(digits) if digits.isdigit() else -1


def check_settings(folder: Path, settings: Mapping[str, Any], code: str = "") -> None:
    """Begin a folder with these settings, or check that it was begun with them.

    Parameters
    ----------
    folder
        Made if it does not exist.
    settings
        Anything that JSON can express.
    code
        Identifies the code of the simulator; there is a warning if it has changed.

    Raises
    ------
    FileError
        If the folder was begun with other settings, or holds other files; it says which.
    """
    path = folder / "settings.rare"
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileError(
                f"{folder} exists already and is not a store of rare draws. Give another path, or delete it."
            )
        folder.mkdir(parents=True, exist_ok=True)
        files.write(path, _SETTINGS, {"settings": dict(settings), "code": code}, {})
        return
    about = files.read(path, _SETTINGS)[0]
    there = about["settings"]
    different = [
        f"{key} is {there.get(key)} there and {settings[key]} here"
        for key in settings
        if there.get(key) != settings[key]
    ]
    if different:
        raise FileError(
            f"{folder} was made with other settings: {'; '.join(different)}. Give the same settings to "
            "continue it, or another path, or delete the folder to begin again."
        )
    if about["code"] != code:
        warnings.warn(
            f"the code of the simulator has changed since {folder} was begun; its draws so far are of the "
            "old code. If that changes what is drawn, delete the store and begin again.",
            EvidenceWarning,
            stacklevel=3,
        )


def _packed(chains: tuple[Chains, ...]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a description of the normals of all replicates, and their arrays."""
    single = chains[0].single
    arrays: dict[str, Array] = {"valid": np.stack([each.valid for each in chains])}
    for r, each in enumerate(chains):
        if single:
            # Every draw has its own calls, of its own lengths.
            flat = [call for draw in each.normals for call in draw]
            arrays[f"{r}/values"] = np.concatenate([np.empty(0), *flat])
            arrays[f"{r}/lengths"] = np.array([len(call) for call in flat], dtype=np.int64)
            arrays[f"{r}/calls"] = np.array([len(draw) for draw in each.normals], dtype=np.int64)
        else:
            arrays |= {f"{r}/{call}": array for call, array in enumerate(each.normals)}
    calls = [0 if single else len(each.normals) for each in chains]
    return {"single": single, "calls": calls}, arrays


def _unpacked(about: Mapping[str, Any], arrays: Mapping[str, Array], x: Data) -> tuple[Chains, ...]:
    """Return the chains of all replicates from what `_packed` made, and their data."""
    chains = []
    size = arrays["valid"].shape[1]
    for r, valid in enumerate(arrays["valid"]):
        if about["single"]:
            ends = np.cumsum(arrays[f"{r}/lengths"])[:-1]
            flat = iter(np.split(arrays[f"{r}/values"], ends) if len(arrays[f"{r}/lengths"]) else [])
            normals: list[Any] = [[next(flat) for _ in range(number)] for number in arrays[f"{r}/calls"]]
        else:
            normals = [arrays[f"{r}/{call}"] for call in range(about["calls"][r])]
        own = map_arrays(lambda array, r=r: array[r * size : (r + 1) * size], x)
        chains.append(Chains(own, valid, normals, about["single"]))
    return tuple(chains)
