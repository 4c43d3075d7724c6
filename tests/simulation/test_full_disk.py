"""A full disk: our error with the path and the room that is needed; the old file stays, and nothing else."""

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet.training import checkpoint

resource = pytest.importorskip("resource")
KINDS = (".npz", ".h5", ".zarr", ".csv", ".parquet", ".checkpoint")


@contextmanager
def little_room() -> Iterator[None]:
    """Let no file grow beyond 100 kB: the system then refuses to write, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def numbers(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, 4))


def write(path: Path, rows: int) -> None:
    if path.suffix == ".checkpoint":
        checkpoint.save(path, {}, [{"x": numbers(rows)}], {})
    else:
        en.Simulations(numbers(rows), np.arange(rows) % 2).write(path)


def read(path: Path, rows: int) -> Any:
    if path.suffix == ".checkpoint":
        loaded = checkpoint.load(path, {}, [{"x": np.zeros((rows, 4))}])
        return None if loaded is None else loaded[0][0]["x"]
    return en.Simulations.read(path).x


def refused(run: Callable[[], object], path: Path) -> None:
    with little_room(), pytest.raises(OSError, match="the disk is full, or your quota") as caught:
        run()
    assert caught.value.errno == errno.ENOSPC
    assert str(path) in str(caught.value)
    assert "It needs about" in str(caught.value)
    assert "Make room, or write to another disk" in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize("suffix", KINDS)
def test_the_old_file_stays(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    write(path, 100)
    refused(lambda: write(path, 20_000), path)
    np.testing.assert_array_equal(read(path, 100), numbers(100))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    write(path, 20_000)
    np.testing.assert_array_equal(read(path, 20_000), numbers(20_000))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_store_continues_when_there_is_room(tmp_path: Path) -> None:
    models = [en.Model(name, lambda rng, n: rng.normal(size=(n, 20))) for name in ("a", "b")]
    store, options = tmp_path / "store.zarr", {"seed": 1, "progress": False}
    refused(lambda: en.simulate(models, 4_000, store=store, **options), store)  # type: ignore[call-overload]
    assert not list(tmp_path.rglob("*.partial"))
    found: Any = en.simulate(models, 4_000, store=store, **options).x  # type: ignore[call-overload]
    np.testing.assert_array_equal(found, en.simulate(models, 4_000, **options).x)  # type: ignore[call-overload]
