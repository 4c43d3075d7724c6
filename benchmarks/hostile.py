"""Damaged and hostile files: each must be refused in our own words, and nothing be silently different.

    python benchmarks/hostile.py [--cases 10000] [--seed 1] [--json FILE]

Three kinds of attack, each a row of the table for each kind of file:

- damage: a file that we wrote is changed at random (bits, bytes, blocks, length, files exchanged);
- forgery: a description that we wrote is changed at random, and gets a correct checksum;
- craft: files made to run code, to read other files, or to take far more memory or time than their size.

Outcomes: refused (our error, with the path), same (the damage changed nothing that is read), valid (a forged
file that is a proper file). The columns that must be 0: different (other numbers, without an error), foreign
(an exception that is not ours), ran code, slow (more than a second), memory (more than 600 MB taken).
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import pickle
import resource
import shutil
import signal
import struct
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import evidencenet as en
from evidencenet._common import files
from evidencenet._common.files import FileError
from evidencenet.estimator import serialise
from evidencenet.simulation.io.draws import read_data
from evidencenet.simulation.rare_draws import Levels, RareDraws
from evidencenet.training import checkpoint
from evidencenet.training.checkpoint import CheckpointError
from evidencenet.training.trials import StoredTrial, TrialFile

OUTCOMES = ("refused", "same", "valid", "different", "foreign", "ran code", "slow", "memory")
MUST_BE_ZERO = OUTCOMES[3:]
_MOST_SECONDS = 1.0
_MOST_BYTES = 600e6
_RUN = {"seed": "1"}
_TREES = [{"weights": np.zeros((3, 4)), "step": np.zeros(())}]


@dataclass(frozen=True)
class Subject:
    """A kind of file: one that is in order, and how it is read.

    Parameters
    ----------
    kind
        Its name in the table.
    path
        The file or folder.
    read
        Read it as a user does, and return a hash of all that was read.
    """

    kind: str
    path: Path
    read: Callable[[Path], str]


@dataclass(frozen=True)
class Case:
    """One attack and its outcome."""

    kind: str
    attack: str
    outcome: str
    detail: str


def subjects(folder: Path, net: en.EvidenceNetwork, sims: en.Simulations) -> list[Subject]:
    """Write one file of each kind that we write.

    Parameters
    ----------
    folder
        Where to.
    net
        Any network.
    sims
        Draws of an array (no dict), small: some kinds of damage are tried byte by byte.
    """
    net.save(folder / "a.evnet")
    state = [{"weights": np.arange(12.0).reshape(3, 4), "step": np.array(7.0)}]
    checkpoint.save(folder / "a.checkpoint", _RUN, state, {"losses": np.arange(5.0)})
    trials = TrialFile(folder / "a.trials", _RUN)
    for number in range(3):
        trials.add(f"plan {number}", StoredTrial(np.arange(4.0), np.full((4, 2), number), 1.5, True))
    rare_draws().save(folder / "a.rare")
    found = [
        Subject("network", folder / "a.evnet", read_network),
        Subject("checkpoint", folder / "a.checkpoint", read_checkpoint),
        Subject("trials", folder / "a.trials", read_trials),
        Subject("rare draws", folder / "a.rare", read_rare_draws),
    ]
    for suffix in (".npz", ".h5", ".zarr", ".csv", ".parquet"):
        sims.write(folder / f"a{suffix}")
        found.append(Subject(suffix[1:], folder / f"a{suffix}", read_draws))
    models = [
        en.Model(name, lambda rng, n, s=scale: s * rng.normal(size=(n, 3)))
        for name, scale in (("one", 1.0), ("two", 2.0))
    ]
    en.simulate(models, 60, chunk=10, seed=1, store=folder / "store.zarr", progress=False)
    found.append(Subject("store", folder / "store.zarr", read_draws))
    return found


def rare_draws() -> RareDraws:
    """Make rare draws by hand: two models, two levels."""
    levels = Levels(
        threshold=np.array([-np.inf, 2.0]),
        by_replicate=np.array([[0.0, 0.0], [-1.0, -1.1]]),
        size=np.array([10, 10]),
        count=np.array([6, 4]),
        accepted=np.array([1.0, 0.4]),
        step=np.array([[1.0], [0.5]]),
        calls=100,
        stop="enough",
    )
    rows = np.arange(20)
    return RareDraws(
        np.arange(60.0).reshape(20, 3),
        rows // 10,
        rows % 2,
        rows % 2,
        rows / 10,
        ("a", "b"),
        (levels, levels),
    )


def read_trials(path: Path) -> str:
    """Read finished trials, and hash them."""
    trials = TrialFile(path, _RUN).trials
    about = {name: [trial.seconds, trial.learned] for name, trial in trials.items()}
    costs = {f"costs/{name}": trial.costs for name, trial in trials.items()}
    return files.checksum(about, costs | {f"log_k/{name}": trial.log_k for name, trial in trials.items()})


def read_rare_draws(path: Path) -> str:
    """Read rare draws, and hash them."""
    draws = RareDraws.load(path)
    about = {"names": draws.names, "levels": [[each.calls, each.stop] for each in draws.levels]}
    arrays = {name: getattr(draws, name) for name in ("x", "model", "level", "replicate", "score")}
    for k, each in enumerate(draws.levels):
        arrays |= {
            f"{k}/{name}": getattr(each, name) for name in ("threshold", "by_replicate", "size", "count")
        }
        arrays |= {f"{k}/{name}": getattr(each, name) for name in ("accepted", "step")}
    return files.checksum(about, arrays)


def read_network(path: Path) -> str:
    """Load a network, and hash all that it is made of."""
    about, arrays = serialise.packed(en.load(path))
    return files.checksum(about, arrays)


def read_checkpoint(path: Path) -> str:
    """Load a checkpoint, and hash it."""
    loaded = checkpoint.load(path, _RUN, _TREES)
    if loaded is None:
        return "none"
    trees, curves = loaded
    return files.checksum({}, {**trees[0], **{f"curves/{name}": array for name, array in curves.items()}})


def read_draws(path: Path) -> str:
    """Read draws, and hash them."""
    sims = en.Simulations.read(path)
    about = {"names": sims.names, "failed": sims.failed}
    data = sims.x if isinstance(sims.x, dict) else {"x": sims.x}
    arrays = {**data, "model": sims.model.astype(np.int64)}
    if sims.log_weight is not None:
        arrays["log_weight"] = sims.log_weight
    return files.checksum(about, arrays)


# Damage.


def damaged(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Change bytes at random, and say how."""
    data = bytearray(content)
    size = len(data)
    place = int(rng.integers(max(1, size)))
    length = int(rng.integers(1, max(2, min(512, size))))
    how = str(
        rng.choice(
            [
                "bit",
                "bit",
                "bit",
                "byte",
                "cut",
                "zeros",
                "hole",
                "insert",
                "exchange",
                "append",
                "twice",
                "mixed",
            ]
        )
    )
    if how == "bit":
        data[place] ^= 1 << int(rng.integers(8))
    elif how == "byte":
        data[place] = (data[place] + int(rng.integers(1, 256))) % 256
    elif how == "cut":
        del data[place:]
    elif how == "zeros":
        data[place : place + length] = bytes(len(data[place : place + length]))
    elif how == "hole":
        del data[place : place + length]
    elif how == "insert":
        data[place:place] = rng.bytes(length)
    elif how == "exchange":
        other = int(rng.integers(max(1, size)))
        data[place : place + 16], data[other : other + 16] = (
            data[other : other + 16],
            data[place : place + 16],
        )
    elif how == "twice":
        data += bytes(data)
    elif how == "mixed":
        # As from a disk that lost a block: the rest is of another file.
        data[place:] = rng.permutation(np.frombuffer(bytes(data[place:]), np.uint8)).tobytes()
    else:
        data += rng.bytes(length)
    return how, bytes(data)


def damage(subject: Subject, target: Path, rng: np.random.Generator) -> str:
    """Write a damaged copy of a file or folder to `target`, and say how."""
    if subject.path.is_file():
        how, content = damaged(subject.path.read_bytes(), rng)
        target.write_bytes(content)
        if rng.random() < 0.03:
            # A file with a hole: it takes no room on the disk.
            os.truncate(target, 2**33)
            return "giant"
        return how
    shutil.copytree(subject.path, target)
    places = sorted(path for path in target.rglob("*") if path.is_file())
    one = places[int(rng.integers(len(places)))]
    what = str(
        rng.choice(["content", "content", "content", "file lost", "files exchanged", "folders exchanged"])
    )
    if what == "content":
        how, content = damaged(one.read_bytes(), rng)
        one.write_bytes(content)
        return how
    if what == "file lost":
        one.unlink()
        return what
    if what == "folders exchanged":
        folders = sorted(
            path for path in target.rglob("*") if path.is_dir() and (path / "zarr.json").exists()
        )
        one = folders[int(rng.integers(len(folders)))]
        other = folders[int(rng.integers(len(folders)))]
        if one in other.parents or other in one.parents:
            other = one
    else:
        other = places[int(rng.integers(len(places)))]
    if one != other:
        aside = target / "aside"
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
    return what


# Forgery.

# Kinds of files in the form of `evidencenet._common.files`.
_OURS = ("network", "checkpoint", "trials", "rare draws")
_WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    10**12,
    10**400,
    1e308,
    "",
    "x" * 100,
    [],
    {},
    [[]] * 3,
    ["a"],
    {"a": 1},
    float("nan"),
    float("-inf"),
    -(2**63),
    2**64,
    5e-324,
    "\x00",
    "\ud800",
    "../../a",
    "object",
    [1] * 10_000,
    {str(i): {} for i in range(1_000)},
    [[[[[[[[1]]]]]]]],
]


def forged(value: Any, rng: np.random.Generator) -> Any:
    """Return JSON in which one value, at random, is replaced by a wrong one."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = list(value)[int(rng.integers(len(value)))]
        if rng.random() < 0.15:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: forged(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        i = int(rng.integers(len(value)))
        return [*value[:i], forged(value[i], rng), *value[i + 1 :]]
    return _WRONG[int(rng.integers(len(_WRONG)))]


def forge(subject: Subject, target: Path, rng: np.random.Generator) -> str:
    """Write a file with a changed description and a correct checksum."""
    if subject.kind in _OURS:
        about, arrays = files.read(subject.path, subject.kind)
        about, arrays = forged(about, rng), dict(arrays)
        if not isinstance(about, dict):
            about = {}
        if rng.random() < 0.3:
            name = sorted(arrays)[int(rng.integers(len(arrays)))]
            arrays[name] = [np.zeros(0), np.zeros((2, 3)), np.array(np.nan), arrays[name][..., None]][
                int(rng.integers(4))
            ]
        from safetensors.numpy import save

        packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        with contextlib.suppress(ValueError):
            noted = about | {"checksum": files.checksum(about, packed)}
            target.write_bytes(save(packed, metadata={"evidencenet": json.dumps(noted)}))
        return "description"
    shutil.copytree(subject.path, target)
    places = sorted(target.rglob("zarr.json"))
    place = places[int(rng.integers(len(places)))]
    place.write_text(json.dumps(forged(json.loads(place.read_text()), rng)))
    return "description"


# Craft.


def crafted(folder: Path, net_file: Path) -> dict[str, tuple[Path, Callable[[Path], Any]]]:
    """Write files that were made to do harm; each with the function that reads it."""
    made: dict[str, tuple[Path, Callable[[Path], Any]]] = {}

    def add(name: str, path: Path, read: Callable[[Path], Any] = en.Simulations.read) -> None:
        made[name] = path, read

    canary = folder / "canary"
    for name, maker in _ZARR.items():
        path = folder / f"{name.replace(' ', '_')}.zarr"
        maker(path, canary)
        add(f"zarr: {name}", path)
        add(f"zarr: {name} (observed)", path, read_data)
    for name, suffix, maker in _FILES:
        path = folder / f"{name.replace(' ', '_')}{suffix}"
        maker(path, canary)
        add(f"{suffix[1:]}: {name}", path)
        add(f"{suffix[1:]}: {name} (observed)", path, read_data)
    for name, content in _networks(net_file).items():
        path = folder / f"{name.replace(' ', '_')}.evnet"
        path.write_bytes(content)
        add(f"network: {name}", path, en.load)
    os.mkfifo(folder / "pipe")
    add("network: pipe", folder / "pipe", en.load)
    for kind, read in (
        ("checkpoint", read_checkpoint),
        ("trials", read_trials),
        ("rare draws", read_rare_draws),
    ):
        add(f"{kind}: pipe", folder / "pipe", read)
        add(f"{kind}: /dev/zero", Path("/dev/zero"), read)
        add(f"{kind}: a network", net_file, read)
    (folder / "circle.evnet").symlink_to(folder / "circle.evnet")
    add("network: link to itself", folder / "circle.evnet", en.load)
    for suffix in (".npz", ".h5", ".zarr", ".csv", ".parquet", ".npy"):
        (folder / f"renamed{suffix}").write_bytes(net_file.read_bytes())
        add(f"{suffix[1:]}: a network, renamed", folder / f"renamed{suffix}")
    add("network: /dev/zero", Path("/dev/zero"), en.load)
    for suffix in (".npy", ".npz", ".h5", ".zarr", ".csv", ".parquet"):
        os.mkfifo(folder / f"lone{suffix}")
        add(f"{suffix[1:]}: pipe", folder / f"lone{suffix}")
        (folder / f"zero{suffix}").symlink_to("/dev/zero")
        add(f"{suffix[1:]}: /dev/zero", folder / f"zero{suffix}")
    return made


class Runs:
    """What a pickle must not do: make a file when it is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.canary), "w")


def _array(path: Path, **changes: Any) -> dict[str, Any]:
    """Write a Zarr array in format 3 of three zeros, with changes."""
    about: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [3],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    } | changes
    (path / "c").mkdir(parents=True)
    (path / "zarr.json").write_text(json.dumps(about))
    (path / "c" / "0").write_bytes(bytes(24))
    return about


def _codec(path: Path, codec: dict[str, Any], content: bytes) -> None:
    _array(path, codecs=[{"name": "bytes", "configuration": {"endian": "little"}}, codec])
    (path / "c" / "0").write_bytes(content)


def _format_2(path: Path, canary: Path) -> None:
    path.mkdir()
    about = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "compressor": None,
        "fill_value": None,
        "order": "C",
        "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}],
    }
    (path / ".zarray").write_text(json.dumps(about))
    (path / "0").write_bytes(pickle.dumps(Runs(canary)))


def _format_2_inside(path: Path, canary: Path) -> None:
    path.mkdir()
    (path / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    _format_2(path / "x", canary)


def _consolidated(path: Path, canary: Path) -> None:
    path.mkdir()
    about = _array(path / "x")
    about["codecs"] = [{"name": "numcodecs.pickle", "configuration": {}}]
    inside = {"kind": "inline", "must_understand": False, "metadata": {"x": about}}
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": inside}
    (path / "zarr.json").write_text(json.dumps(group))
    (path / "x" / "c" / "0").write_bytes(pickle.dumps(Runs(canary)))


def _grid(*pieces: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(pieces)}}


def _linked(path: Path, canary: Path) -> None:
    _array(path)
    (path / "c" / "0").unlink()
    secret = path.parent / "secret"
    secret.write_bytes(bytes(24))
    (path / "c" / "0").symlink_to(secret)


def _piped(path: Path, canary: Path) -> None:
    _array(path)
    (path / "c" / "0").unlink()
    os.mkfifo(path / "c" / "0")


def _nested(path: Path, canary: Path) -> None:
    path.mkdir()
    text = (
        '{"zarr_format": 3, "node_type": "group", "attributes": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    )
    (path / "zarr.json").write_text(text)


def _huge_store(path: Path, canary: Path) -> None:
    model = en.Model("a", lambda rng, n: rng.normal(size=(n, 3)))
    en.simulate([model], 20, chunk=10, seed=1, store=path, progress=False)
    about = json.loads((path / "zarr.json").read_text())
    about["attributes"]["evidencenet"]["shares"] = [10**12]
    (path / "zarr.json").write_text(json.dumps(about))


def _described(path: Path, text: bytes) -> None:
    path.mkdir()
    (path / "zarr.json").write_bytes(text)


def _same_key_twice(path: Path) -> None:
    about = json.dumps(_array(path))
    (path / "zarr.json").write_text(about[:-1] + ', "shape": [1000000000000]}')


def _endless(path: Path) -> None:
    _array(path)
    (path / "self").symlink_to(path, target_is_directory=True)


def _deep(path: Path) -> None:
    _array(path)
    place = path
    for _ in range(300):
        place = place / "a"
        place.mkdir()
    (place / "zarr.json").write_text('{"zarr_format": 2}')


def _zstd_unknown(size: int) -> bytes:
    """Return a Zstandard frame without its size: `size` zeros in blocks that repeat one byte."""
    block = (1 << 17) << 3 | 1 << 1
    blocks = b"".join(
        (block | (i == size >> 17)).to_bytes(3, "little") + b"\0" for i in range((size >> 17) + 1)
    )
    return b"\x28\xb5\x2f\xfd\x00\x88" + blocks


_BLOSC = {
    "name": "blosc",
    "configuration": {"typesize": 8, "cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0},
}
_ZARR: dict[str, Callable[[Path, Path], Any]] = {
    "format 2 with a pickle": _format_2,
    "format 2 inside format 3": _format_2_inside,
    "pickle in consolidated metadata": _consolidated,
    "codec pickle": lambda path, canary: _codec(
        path, {"name": "numcodecs.pickle", "configuration": {}}, pickle.dumps(Runs(canary))
    ),
    "objects": lambda path, canary: _array(path, data_type="object"),
    "text of any length": lambda path, canary: _array(
        path, data_type="string", codecs=[{"name": "vlen-utf8"}]
    ),
    "huge shape": lambda path, canary: _array(path, shape=[10**12], chunk_grid=_grid(10**8)),
    "huge piece": lambda path, canary: _array(path, chunk_grid=_grid(10**11)),
    "two million pieces": lambda path, canary: _array(path, shape=[2_000_000], chunk_grid=_grid(1)),
    "negative shape": lambda path, canary: _array(path, shape=[-3]),
    "pieces of nothing": lambda path, canary: _array(path, chunk_grid=_grid(0)),
    "storage transformers": lambda path, canary: _array(path, storage_transformers=[{"name": "a"}]),
    "gzip bomb": lambda path, canary: _codec(
        path, {"name": "gzip", "configuration": {"level": 9}}, gzip.compress(bytes(2**20), 9) * 1_000
    ),
    "zstd bomb": lambda path, canary: _codec(
        path, {"name": "zstd", "configuration": {"level": 0, "checksum": False}}, _zstd_unknown(10**10)
    ),
    "blosc bomb": lambda path, canary: _codec(
        path, _BLOSC, struct.pack("<BBBBIII", 2, 1, 0x31, 8, 2**31 - 1, 2**31 - 1, 20) + bytes(4)
    ),
    "link to another file": _linked,
    "pipe": _piped,
    "nested brackets": _nested,
    "store of 10^12 draws": _huge_store,
    "shape beyond all integers": lambda path, canary: _array(path, shape=[10**30], chunk_grid=_grid(10**29)),
    "shape of fractions": lambda path, canary: _array(path, shape=[1.5]),
    "shape of truth": lambda path, canary: _array(path, shape=[True]),
    "raw bits": lambda path, canary: _array(path, data_type="r64"),
    "shards": lambda path, canary: _array(
        path,
        codecs=[{"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": ["bytes"]}}],
    ),
    "codec by module": lambda path, canary: _codec(path, {"name": "os.system", "configuration": {}}, b"id"),
    "no codecs": lambda path, canary: _array(path, codecs=[]),
    "other keys of pieces": lambda path, canary: _array(
        path, chunk_key_encoding={"name": "v2", "configuration": {"separator": "/../"}}
    ),
    "wrong fill value": lambda path, canary: _array(path, fill_value={"a": 10**400}),
    "NaN in the description": lambda path, canary: _array(
        path, attributes={"evidencenet": {"format": float("nan")}}
    ),
    "the same key twice": lambda path, canary: _same_key_twice(path),
    "a folder that holds itself": lambda path, canary: _endless(path),
    "deep folders": lambda path, canary: _deep(path),
    "bad letters": lambda path, canary: _described(path, b"\xff\xfe{\x00"),
}


def _npy(shape: Any, descr: str = "'<f8'") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


def _zipped(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return target.getvalue()


def _pickled(path: Path, canary: Path) -> None:
    content = _npy((1,), "'|O'") + pickle.dumps(Runs(canary))
    path.write_bytes(content if path.suffix == ".npy" else _zipped(x=content))


def _npz_bomb(path: Path, canary: Path) -> None:
    zeros = bytes(2**24)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        file.write(_npy((2**27,)))
        for _ in range(64):
            file.write(zeros)


def _hdf5(path: Path, canary: Path, kind: str) -> None:
    import h5py

    secret = path.parent / "secret.bin"
    secret.write_bytes(bytes(24))
    with h5py.File(path.parent / "other.h5", "w") as file:
        file["x"] = np.zeros(3)
    with h5py.File(path, "w") as file:
        if kind == "external storage":
            file.create_dataset("x", (3,), "<f8", external=[(str(secret), 0, 24)])
        elif kind == "external link":
            file["x"] = h5py.ExternalLink(str(path.parent / "other.h5"), "x")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3,), "<f8")
            layout[:] = h5py.VirtualSource(str(path.parent / "other.h5"), "x", (3,))
            file.create_virtual_dataset("x", layout)
        elif kind == "huge shape":
            file.create_dataset("x", (10**11,), "<f8", chunks=(10**6,))
        elif kind == "links in a circle":
            file["a"] = h5py.SoftLink("/b")
            file["b"] = h5py.SoftLink("/a")
            file["group/x"] = file["/"]
        elif kind == "references":
            file["y"] = np.zeros(3)
            file.create_dataset("x", data=[file["y"].ref] * 3, dtype=h5py.ref_dtype)
        elif kind == "numbers of any length":
            file.create_dataset("x", (3,), h5py.vlen_dtype(np.float64))
        elif kind == "deep groups":
            # HDF5 itself refuses names of groups in more levels.
            file.create_group("/".join(["a"] * 2_000))
        elif kind == "nothing":
            file["x"] = h5py.Empty("f8")
        elif kind == "huge fill":
            file.create_dataset("x", (10**6, 10**6), "<f8", chunks=(1, 10**6), fillvalue=1.0)
        elif kind == "shared text":
            file.create_dataset("x", data=np.zeros(10))
            file.create_dataset(
                "model", (20_000,), h5py.string_dtype(), chunks=(100,), fillvalue=b"y" * 100_000
            )
        else:
            file.create_dataset("x", data=np.zeros(3, np.dtype([("a", "<f8")])))


def _parquet(path: Path, values: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"model": [0] * len(values), "x": values}), path)


def _with_hole(path: Path, content: bytes) -> None:
    """Write a file of 16 GB that takes almost no room on the disk."""
    path.write_bytes(content)
    os.truncate(path, 2**34)


def _same_name_twice(path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for number in (0, 1):
            archive.writestr("x.npy", _npy((1,)) + struct.pack("<d", number))


def _parquet_bomb(path: Path, canary: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("label", pa.int64()), *((f"x_{i}", pa.float64()) for i in range(20))])
    rows = 100_000
    batch = pa.table({name: np.zeros(rows) for name in schema.names}).cast(schema)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(100):
            writer.write_table(batch, row_group_size=rows)


_FILES: Sequence[tuple[str, str, Callable[[Path, Path], Any]]] = [
    ("pickle", ".npy", _pickled),
    ("pickle", ".npz", _pickled),
    ("huge shape", ".npy", lambda path, canary: path.write_bytes(_npy((10**12,)) + bytes(80))),
    ("negative shape", ".npy", lambda path, canary: path.write_bytes(_npy((-3,)) + bytes(24))),
    ("nested brackets", ".npy", lambda path, canary: path.write_bytes(_npy("(" * 9000 + ")" * 9000))),
    ("huge shape", ".npz", lambda path, canary: path.write_bytes(_zipped(x=_npy((10**12,)) + bytes(80)))),
    ("bomb", ".npz", _npz_bomb),
    (
        "nested brackets",
        ".npz",
        lambda path, canary: np.savez(path, evidencenet=np.array('{"a":' + "[" * 100_000), x=np.zeros(3)),
    ),
    *((k, ".h5", lambda p, c, k=k: _hdf5(p, c, k)) for k in ("external storage", "external link", "virtual")),
    *((k, ".h5", lambda p, c, k=k: _hdf5(p, c, k)) for k in ("huge shape", "shared text", "compound")),
    *(
        (k, ".h5", lambda p, c, k=k: _hdf5(p, c, k))
        for k in ("links in a circle", "references", "deep groups")
    ),
    *(
        (k, ".h5", lambda p, c, k=k: _hdf5(p, c, k))
        for k in ("numbers of any length", "nothing", "huge fill")
    ),
    (
        "code in the header",
        ".npy",
        lambda p, c: p.write_bytes(_npy((1,), f"open({str(c)!r}, 'w')") + bytes(8)),
    ),
    ("shape of fractions", ".npy", lambda p, c: p.write_bytes(_npy("(1.5,)") + bytes(12))),
    ("shape beyond all integers", ".npy", lambda p, c: p.write_bytes(_npy((10**30, 0)))),
    ("objects in a record", ".npy", lambda p, c: p.write_bytes(_npy((1,), "[('a', '|O')]") + bytes(8))),
    (
        "huge header",
        ".npy",
        lambda p, c: p.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"{"),
    ),
    ("giant with a hole", ".npy", lambda p, c: _with_hole(p, _npy((2**33,)))),
    ("giant with a hole", ".csv", lambda p, c: _with_hole(p, b"model,x\n0,1\n")),
    ("giant with a hole", ".h5", lambda p, c: _with_hole(p, b"\x89HDF\r\n\x1a\n")),
    ("giant with a hole", ".parquet", lambda p, c: _with_hole(p, b"PAR1")),
    ("giant with a hole", ".npz", lambda p, c: _with_hole(p, b"PK\x03\x04")),
    ("the same name twice", ".npz", lambda p, c: _same_name_twice(p)),
    ("name of another folder", ".npz", lambda p, c: p.write_bytes(_zipped(**{"../../canary": b"text"}))),
    (
        "encrypted",
        ".npz",
        lambda p, c: p.write_bytes(_zipped(x=_npy((1,)) + bytes(8)).replace(b"\x14\0\0\0", b"\x14\0\1\0")),
    ),
    ("one long line", ".csv", lambda p, c: p.write_text("model,x\n" + "1" * 50_000_000)),
    (
        "300,000 columns",
        ".csv",
        lambda p, c: p.write_text(",".join(f"c{i}" for i in range(300_000)) + "\n1\n"),
    ),
    ("quotes without end", ".csv", lambda p, c: p.write_text('model,x\n"' + "a\n" * 100_000)),
    ("letters of another code", ".csv", lambda p, c: p.write_text("model,x\n0,1\n", encoding="utf-16")),
    ("lists", ".parquet", lambda p, c: _parquet(p, [[1.0, 2.0]] * 3)),
    ("records", ".parquet", lambda p, c: _parquet(p, [{"a": 1.0}] * 3)),
    ("encrypted", ".parquet", lambda p, c: p.write_bytes(b"PARE" + bytes(100) + b"PARE")),
    ("bomb", ".parquet", _parquet_bomb),
    (
        "long label",
        ".csv",
        lambda path, canary: path.write_text("model,x\n" + "a" * 100_000 + ",1\n" + "b,1\n" * 200_000),
    ),
    (
        "nested brackets",
        ".csv",
        lambda path, canary: path.write_text('# evidencenet: {"a":' + "[" * 100_000 + "\nmodel,x\n0,1\n"),
    ),
    (
        "huge columns",
        ".csv",
        lambda path, canary: path.write_text(f"model,x_{'9' * 15}_1,x_0_0\n0,1,2\n1,2,3\n"),
    ),
    (
        "huge type",
        ".csv",
        lambda path, canary: path.write_text(
            '# evidencenet: {"kind": "draws", "format": 1, "dtype": "S1000000000"}\nmodel,x\n0,1\n1,2\n'
        ),
    ),
]


def _networks(net_file: Path) -> dict[str, bytes]:
    """Forge networks with a correct checksum and absurd sizes."""
    from safetensors.numpy import save

    about, arrays = files.read(net_file, "network")

    def forged_file(**changes: Any) -> bytes:
        head = about | changes
        noted = head | {"checksum": files.checksum(head, arrays)}
        return save(arrays, metadata={"evidencenet": json.dumps(noted)})

    nested = save(arrays, metadata={"evidencenet": '{"a": ' + "[" * 100_000})
    declared = json.dumps(
        {"x": {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}}
    ).encode()
    return {
        "huge observations": forged_file(example=["float64", 10**12]),
        "huge layers": forged_file(architecture={"name": "Dense", "width": 10**7}),
        "unknown architecture": forged_file(architecture={"name": "os.system"}),
        "type of objects": forged_file(example=["object", 3]),
        "nested brackets": nested,
        "huge shape": struct.pack("<Q", len(declared)) + declared + bytes(80),
        "huge header": struct.pack("<Q", 2**62) + b"{}",
        "two networks": net_file.read_bytes() * 2,
        "no weights": save({}, metadata={"evidencenet": "{}"}),
        "a list as description": save(arrays, metadata={"evidencenet": "[]"}),
        "NaN as format": save(arrays, metadata={"evidencenet": '{"format": NaN}'}),
        "huge number": save(arrays, metadata={"evidencenet": '{"format": ' + "9" * 5_000 + "}"}),
        "newer version": forged_file(format=10**6),
        "names of models": forged_file(names=[["a"], {"b": 1}]),
        "negative shape": forged_file(example=["float64", -3]),
        "letters without meaning": save(arrays, metadata={"evidencenet": "\x00\x1b[2J"}),
    }


# Outcomes.


def outcome_of(
    read: Callable[[Path], Any], path: Path, expected: str | None, canary: Path | None = None
) -> tuple[str, str]:
    """Read a file, and say what came of it.

    Parameters
    ----------
    read
        The function that reads it.
    path
        The file.
    expected
        The hash of what the undamaged file holds; None if the file need not be refused.
    canary
        A file that is there only if code has run.
    """
    # A read that does not end is interrupted.
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(20)
    start, memory = time.perf_counter(), _memory(begin=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = read(path)
    except (FileError, CheckpointError) as error:
        outcome, detail = ("refused" if str(path) in str(error) else "foreign"), f"no path: {error}"
    except FileNotFoundError as error:
        outcome, detail = ("foreign" if path.exists() else "refused"), repr(error)[:200]
    except Exception as error:
        outcome, detail = "foreign", repr(error)[:300]
    except _TooLongError:
        outcome, detail = "slow", "no end"
    else:
        outcome = "valid" if expected is None else "same" if _same(value, expected) else "different"
        detail = ""
    signal.alarm(0)
    if canary is not None and canary.exists():
        canary.unlink()
        return "ran code", detail
    if time.perf_counter() - start > _MOST_SECONDS:
        return "slow", f"{time.perf_counter() - start:.1f} s; {detail[:100]}"
    if _memory() - memory > _MOST_BYTES:
        return "memory", f"{(_memory() - memory) / 1e6:.0f} MB"
    return outcome, detail


class _TooLongError(BaseException):
    pass


def _too_long(*_: object) -> None:
    raise _TooLongError


def _same(value: Any, expected: str) -> bool:
    return isinstance(value, str) and value == expected


def _memory(*, begin: bool = False) -> float:
    """Return the peak of memory since the last call with `begin` (on Linux; else since the start)."""
    with contextlib.suppress(OSError):
        if begin:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fuzz(every: Sequence[Subject], cases: int, seed: int, folder: Path) -> list[Case]:
    """Damage and forge files at random."""
    results = []
    expected = {subject.kind: subject.read(subject.path) for subject in every}
    for number in range(cases):
        rng = np.random.default_rng([seed, number])
        subject = every[number % len(every)]
        can_be_forged = subject.kind in (*_OURS, "zarr", "store")
        forging = can_be_forged and rng.random() < 0.3
        target = folder / f"case{subject.path.suffix}"
        attack = (forge if forging else damage)(subject, target, rng)
        if target.exists():
            good = None if forging else expected[subject.kind]
            outcome, detail = outcome_of(subject.read, target, good)
            # Of the description of a Zarr folder, only what we wrote in it has a checksum.
            label = "forgery" if forging else "damage"
            results.append(Case(f"{label}: {subject.kind}", f"{attack} ({number})", outcome, detail))
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    return results


def craft(net_file: Path, folder: Path) -> list[Case]:
    """Read files that were made to do harm."""
    results = []
    canary = folder / "canary"
    for name, (path, read) in crafted(folder, net_file).items():
        outcome, detail = outcome_of(read, path, "", canary)
        results.append(Case(f"craft: {name.split(':')[0]}", name, outcome, detail))
    return results


def table(cases: Sequence[Case]) -> str:
    """Return the outcomes as text, a row for each kind of file."""
    kinds = list(dict.fromkeys(case.kind for case in cases))
    counts = {kind: Counter(case.outcome for case in cases if case.kind == kind) for kind in kinds}
    lines = [f"{'':22}{'files':>7}" + "".join(f"{name:>10}" for name in OUTCOMES)]
    for kind in [*kinds, "all"]:
        count = Counter(case.outcome for case in cases) if kind == "all" else counts[kind]
        lines.append(
            f"{kind:22}{sum(count.values()):>7}" + "".join(f"{count[name]:>10}" for name in OUTCOMES)
        )
    return "\n".join(lines)


def small_network() -> tuple[en.EvidenceNetwork, en.Simulations]:
    """Train a network in a few seconds, and draw the data for the files."""
    problem = en.problems.mean_test(size=3)
    sims = en.simulate(problem.models, 2_000, seed=1, progress=False)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=1), learn_error=False, seed=2, progress=False)
    return net, sims.take(slice(None, None, 100))


def main() -> None:
    """Run all attacks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    net, sims = small_network()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = subjects(folder, net, sims)
        (folder / "cases").mkdir()
        (folder / "craft").mkdir()
        cases = craft(every[0].path, folder / "craft")
        cases += fuzz(every, options.cases, options.seed, folder / "cases")
    print(table(cases))
    for case in [case for case in cases if case.outcome in MUST_BE_ZERO][:40]:
        print(f"{case.outcome}: {case.kind}, {case.attack}: {case.detail}")
    print(f"{len(cases):,} files, {time.perf_counter() - start:.0f} s, seed {options.seed}")
    if options.json:
        options.json.write_text(json.dumps([vars(case) for case in cases], indent=1))


if __name__ == "__main__":
    main()
