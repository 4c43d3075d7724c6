"""Files of named arrays and JSON: what is written comes back, and nothing else is accepted."""

import errno
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from evidencenet._common import files

ABOUT = {"names": ["flat", "trend"], "number": 0.1, "nothing": None}


def written(folder: Path) -> Path:
    path = folder / "some.evnet"
    files.write(path, "network", ABOUT, {"a": np.arange(6.0).reshape(2, 3)})
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(10)[::-2],
        np.array([[True, False]]),
        np.array([np.nan, np.inf, -0.0, 5e-324]),
        np.zeros((0, 3)),
        np.array(7),
        np.array(0.25),
    ],
    ids=["C", "Fortran", "transposed", "strided", "bool", "special", "empty", "integer", "number"],
)
def test_arrays_come_back_to_the_bit(tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "file"
    files.write(path, "network", {}, {"some/name": array})
    back = files.read(path, "network")[1]["some/name"]
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_description_comes_back(tmp_path: Path) -> None:
    about, arrays = files.read(written(tmp_path), "network")
    assert {key: about[key] for key in ABOUT} == ABOUT
    assert about["format"] == files.FORMAT
    assert list(arrays) == ["a"]


def test_the_file_is_a_json_header_and_plain_numbers(tmp_path: Path) -> None:
    content = written(tmp_path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert json.loads(header.pop("__metadata__")["evidencenet"])["names"] == ["flat", "trend"]
    assert header.keys() == {"a"}
    assert header["a"]["dtype"] == "F64"
    # Six numbers of eight bytes, and nothing after them.
    assert len(content) - 8 - length == header["a"]["data_offsets"][1] == 48


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing"):
        files.read(tmp_path / "nothing", "network")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        files.read(tmp_path, "network")


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_truncated_file(tmp_path: Path, length: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(files.FileError, match="cut short, damaged or not a file of evidencenet"):
        files.read(path, "network")


@pytest.mark.parametrize("content", [b"some text\n" * 50, pickle.dumps({"a": 1}), b"\xff" * 64])
def test_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(files.FileError, match="cannot be read"):
        files.read(path, "network")


def test_foreign_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(files.FileError, match="was not written by evidencenet"):
        files.read(path, "network")


def test_newer_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = files.FORMAT + 1
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", newer)
        path = written(tmp_path)
    with pytest.raises(files.FileError, match=rf"file format {newer}.*up to {newer - 1}.*pip install -U"):
        files.read(path, "network")


def test_file_that_holds_something_else(tmp_path: Path) -> None:
    with pytest.raises(files.FileError, match="is a file of network, not of checkpoint"):
        files.read(written(tmp_path), "checkpoint")


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(files.FileError, match=r"there is no folder .*no. Make it first"):
        files.write(tmp_path / "no" / "file", "network", {}, {})
    inside_a_file = written(tmp_path) / "file"
    with pytest.raises(files.FileError, match="there is no folder"):
        files.write(inside_a_file, "network", {}, {})


def test_writing_onto_a_folder(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError, match="folder"):
        files.write(target, "network", {}, {})
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("bad", [object(), float("nan")])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, bad: object) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        files.write(path, "network", {"bad": bad}, {"a": np.zeros(1)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    before = path.read_bytes()

    def half(partial: Path, content: bytes) -> None:
        with partial.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match=r"some\.evnet: the disk is full.*needs about 0\.0 MB.*are free") as e:
        files.write(path, "network", {}, {"a": np.ones(1)})
    assert e.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    path = written(tmp_path)
    files.write(path, "network", {}, {"b": np.ones(1)})
    assert list(files.read(path, "network")[1]) == ["b"]
