"""The store of a simulation: after any break it goes on to the same bits, and other settings are refused."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from evidencenet._common.files import FileError
from evidencenet._common.warnings import EvidenceWarning
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.failures import SimulationError
from evidencenet.simulation.model import DrawError, Model

# Failed draws are the subject here; the warning about them has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")

Theta = namedtuple("Theta", ["mean", "width"])


class Break:
    """Count calls, and interrupt one of them, as a user or a queue does."""

    def __init__(self, at: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.calls, self.at, self.error = 0, at, error

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.error


def models(pause: Break | None = None) -> list[Model]:
    """One model with parameters, of which some draws fail, and one without."""
    pause = pause or Break()

    def prior(rng: np.random.Generator, n: int) -> Any:
        return Theta(rng.normal(size=n), rng.normal(size=(n, 2)))

    def failing(rng: np.random.Generator, theta: Any) -> Any:
        pause()
        y = np.where(theta.mean > 1, np.nan, theta.mean)[:, None] + rng.normal(size=(len(theta.mean), 2))
        return {"y": y, "seen": y > 0}

    def plain(rng: np.random.Generator, n: int) -> Any:
        pause()
        return {"y": rng.normal(size=(n, 2)).astype(np.float32), "seen": np.ones((n, 2), bool)}

    return [Model("plain/½", plain), Model("failing", failing, prior=prior)]


@pytest.fixture(autouse=True)
def every_chunk_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evidencenet.simulation.writer._WRITE_SECONDS", 0.0)
    monkeypatch.setattr("evidencenet.simulation.writer._MERGED_BYTES", 0)


OPTIONS: dict[str, Any] = {"seed": 3, "chunk": 10, "keep_parameters": True, "progress": False}


def same_draws(a: Simulations, b: Simulations) -> None:
    assert isinstance(a.x, dict)
    assert isinstance(b.x, dict)
    for key in ("y", "seen"):
        assert a.x[key].dtype == b.x[key].dtype
        np.testing.assert_array_equal(a.x[key], b.x[key])
    assert (a.names, a.failed, a.model.tolist()) == (b.names, b.failed, b.model.tolist())
    if a.parameters is None or b.parameters is None:
        assert a.parameters is b.parameters
        return
    assert a.parameters[0] is b.parameters[0] is None
    for one, other in zip(a.parameters[1], b.parameters[1], strict=True):  # type: ignore[arg-type]
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("at", "workers"), [(1, 1), (3, 1), (6, 1), (2, 2), (5, 2)])
def test_it_goes_on_to_the_same_bits(tmp_path: Path, at: int, workers: int) -> None:
    whole = Break()
    expected = simulate(models(whole), 200, **OPTIONS)
    assert expected.failed[1] > 5
    store, first, second, third = tmp_path / "sims.zarr", Break(at), Break(), Break()
    with pytest.raises(KeyboardInterrupt):
        simulate(models(first), 200, store=store, workers=workers, **OPTIONS)
    same_draws(simulate(models(second), 200, store=store, workers=workers, **OPTIONS), expected)
    if workers == 1:
        assert (first.calls, second.calls) == (at, whole.calls - (at - 1))
    same_draws(simulate(models(third), 200, store=store, workers=workers, **OPTIONS), expected)
    assert third.calls == 0
    same_draws(Simulations.read(store), expected)
    assert list(tmp_path.iterdir()) == [store]
    assert not list(store.rglob("*.partial"))


def test_a_killed_process_leaves_whole_chunks(tmp_path: Path) -> None:
    script = """
import os, sys
import numpy as np
from evidencenet.simulation.io import containers
from evidencenet.simulation import draw, writer
from evidencenet.simulation.model import Model

write = containers.WRITERS[".zarr"]

def killed(path, about, arrays):
    write(path, about, arrays)
    if path.name == "20":
        (path / "x" / "c" / "0" / "0").write_bytes(b"half")
        os.kill(os.getpid(), 9)  # in the middle of a chunk's write

containers.WRITERS[".zarr"] = killed
writer._WRITE_SECONDS = 0.0
writer._MERGED_BYTES = 0
model = Model("a", lambda rng, n: rng.normal(size=(n, 2)))
draw.simulate([model], 50, chunk=10, store=sys.argv[1], progress=False)
"""
    store = tmp_path / "sims.zarr"
    finished = subprocess.run([sys.executable, "-c", script, store], check=False)
    assert finished.returncode == -9
    assert sorted(entry.name for entry in (store / "0").iterdir() if entry.is_dir())[1:] == ["0", "10"]
    with pytest.raises(FileError, match=r"'a' lacks 30 of 50 draws\. Call simulate"):
        Simulations.read(store)
    assert len(list((store / "0").glob(".20.*.partial"))) == 1
    pause = Break()
    with pytest.warns(EvidenceWarning, match="the code of model 'a' has changed since"):
        sims = simulate([counted(pause)], 50, chunk=10, store=store, progress=False)
    assert pause.calls == 3
    np.testing.assert_array_equal(sims.x, simulate([counted(pause)], 50, progress=False).x)
    # What the killed process had begun is removed.
    names = sorted(entry.name for entry in (store / "0").iterdir() if entry.is_dir())
    assert names == ["0", "10", "20", "30", "40"]


def counted(pause: Break) -> Model:
    def draw(rng: np.random.Generator, n: int) -> Any:
        pause()
        return rng.normal(size=(n, 2))

    return Model("a", draw)


@pytest.mark.parametrize(
    ("damage", "workers"),
    [("truncated", 1), ("changed", 2), ("missing", 1), ("no description", 2), ("empty", 1)],
)
def test_a_damaged_chunk_is_drawn_again(tmp_path: Path, damage: str, workers: int) -> None:
    store, pause = tmp_path / "sims.zarr", Break()
    expected = simulate(models(), 200, store=store, **OPTIONS)
    chunk = store / "1" / "20"
    piece = chunk / "x" / "y" / "c" / "0" / "0"
    if damage == "truncated":
        piece.write_bytes(piece.read_bytes()[:-5])
    elif damage == "changed":
        content = bytearray(piece.read_bytes())
        content[40] ^= 1
        piece.write_bytes(content)
    elif damage == "missing":
        piece.unlink()
    elif damage == "no description":
        (chunk / "zarr.json").unlink()
    else:
        shutil.rmtree(chunk)
        chunk.mkdir()
    with (
        pytest.warns(EvidenceWarning, match="the chunk at draw 20 of model 1 in .* is damaged"),
        pytest.raises(FileError, match=r"'failing' lacks \d+ of 100 draws"),
    ):
        Simulations.read(store)
    with pytest.warns(
        EvidenceWarning, match="the chunk at draw 20 of model 1 in .* is damaged and counts as missing"
    ):
        again = simulate(models(pause), 200, store=store, workers=workers, **OPTIONS)
    assert pause.calls == 1
    same_draws(again, expected)
    same_draws(Simulations.read(store), expected)  # without a warning: it was mended


def test_a_larger_number_goes_on_and_a_smaller_one_takes_a_part(tmp_path: Path) -> None:
    store, more, less = tmp_path / "sims.zarr", Break(), Break()
    simulate(models(), 100, store=store, **OPTIONS)
    same_draws(simulate(models(more), 200, store=store, **OPTIONS), simulate(models(), 200, **OPTIONS))
    assert more.calls < 16  # 50 draws of each model were there, in blocks of 10
    same_draws(simulate(models(less), 60, store=store, **OPTIONS), simulate(models(), 60, **OPTIONS))
    assert less.calls == 0
    assert len(Simulations.read(store)) == 200


def test_a_store_grows_whatever_the_chunk_was(tmp_path: Path) -> None:
    """It said "chunk is [1000, 1000] there and [1200, 1200] here" for a larger n."""
    store = tmp_path / "sims.zarr"
    for n, options in (
        (40, {}),
        (2_000, {}),
        (2_400, {"chunk": 300}),
        (2_500, {"workers": 2, "chunk": 7}),
        (3_001, {"chunk": None}),
    ):
        grown = simulate(models(), n, store=store, **(OPTIONS | options))
        same_draws(grown, simulate(models(), n, **OPTIONS))
        same_draws(Simulations.read(store), grown)


def test_slow_draws_are_kept_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator of 0.02 s a draw kept nothing when it was interrupted after six seconds."""
    monkeypatch.setattr("evidencenet.simulation.writer._WRITE_SECONDS", 0.2)
    monkeypatch.setattr("evidencenet.simulation.runs._CHUNK_SECONDS", 0.1)
    stop, calls = threading.Event(), []

    def slow(rng: np.random.Generator, n: int) -> Any:
        calls.append(n)
        time.sleep(0.002 * n)
        if len(calls) == 12:
            stop.wait()  # a call that never ends: what came before must be on disk already
        return rng.normal(size=(n, 2))

    model, store = Model("slow", slow), tmp_path / "sims.zarr"
    thread = threading.Thread(
        target=lambda: simulate([model], 1_000, store=store, progress=False), daemon=True
    )
    thread.start()
    until = time.monotonic() + 20
    while len(calls) < 12 and time.monotonic() < until:
        time.sleep(0.01)
    # 100 draws of 0.02 s in all, and 100 of 0.2 s: written at the latest with the second chunk of 100.
    with pytest.raises(FileError, match=r"'slow' lacks \d+ of 1,000 draws") as caught:
        Simulations.read(store)
    lacking = int(str(caught.value).split("lacks ")[1].split()[0])
    assert lacking <= 900
    stop.set()
    thread.join()
    # An interruption that can be noticed keeps the rest too.
    pause = Break(at=5)
    with pytest.raises(KeyboardInterrupt):
        simulate([counted(pause)], 1_000, chunk=10, store=tmp_path / "b.zarr", progress=False)
    with pytest.raises(FileError, match=r"'a' lacks 960 of 1,000 draws"):
        Simulations.read(tmp_path / "b.zarr")


def test_fast_draws_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    store = tmp_path / "sims.zarr"
    sims = simulate([counted(Break())], 5_000, store=store, progress=False)
    assert [path.name for path in (store / "0").iterdir() if path.is_dir()] == ["0"]
    np.testing.assert_array_equal(Simulations.read(store).x, sims.x)


def test_parameters_are_stored_only_if_wanted(tmp_path: Path) -> None:
    store, options = tmp_path / "sims.zarr", OPTIONS | {"keep_parameters": False}
    assert simulate(models(), 100, store=store, **options).parameters is None
    assert not list(store.rglob("theta"))
    assert Simulations.read(store).parameters is None


def test_parameters_that_cannot_be_stored(tmp_path: Path) -> None:
    model = Model("a", lambda rng, theta: rng.random(len(theta)), prior=lambda rng, n: np.full(n, "blue"))
    with pytest.raises(TypeError, match=r"theta holds values of type <U4; wanted numbers of at most 64 bits"):
        simulate([model], 10, store=tmp_path / "sims.zarr", **OPTIONS)


def test_chunks_without_a_valid_draw(tmp_path: Path) -> None:
    rare = Model("rare", lambda rng, n: np.where(rng.random((n, 1)) < 0.8, np.inf, rng.random((n, 1))))
    one = Model("one", lambda rng: rng.random() if rng.random() < 0.2 else np.nan, kind="one")
    options: dict[str, Any] = {"chunk": 3, "max_failed": 0.95, "progress": False}
    for model in (rare, one):
        store = tmp_path / f"{model.name}.zarr"
        expected = simulate([model], 8, **options)
        simulate([model], 8, store=store, **options)
        again = simulate([model], 8, store=store, **options)
        np.testing.assert_array_equal(again.x, expected.x)
        assert again.failed == expected.failed
        assert Simulations.read(store).failed == expected.failed


def test_a_chunk_may_be_more_precise_than_the_one_before(tmp_path: Path) -> None:
    def draw(rng: np.random.Generator, n: int) -> Any:
        x = rng.normal(size=(n, 1))
        return x.astype(np.float32) if x[0, 0] > 0 else x

    options: dict[str, Any] = {"chunk": 2, "seed": 1, "progress": False}
    expected = simulate([Model("a", draw)], 20, **options)
    simulate([Model("a", draw)], 20, store=tmp_path / "sims.zarr", **options)
    np.testing.assert_array_equal(Simulations.read(tmp_path / "sims.zarr").x, expected.x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed is 3 there and 4 here"),
        (
            {"models": [models()[0], replace(models()[1], block=7)]},
            r"blocks is \[.*\] there and \[.*\[\[0, 7\]\]\] here",
        ),
        ({"fractions": (1, 3)}, r"fractions is \[0\.5, 0\.5\] there and \[0\.25, 0\.75\] here"),
        ({"keep_parameters": False}, "keep_parameters is True there and False here"),
        (
            {"models": models()[::-1]},
            r"models is \['plain/½', 'failing'\] there .*; prior is \[False, True\]",
        ),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    store = tmp_path / "sims.zarr"
    simulate(models(), 200, store=store, **OPTIONS)
    given: dict[str, Any] = {"models": models(), "n": 200, "store": store}
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with pytest.raises(FileError, match=rf"was made with other settings: .*{message}.*delete the folder"):
        simulate(**(given | OPTIONS | change))
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_other_data_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "sims.zarr"
    with pytest.raises(KeyboardInterrupt):
        simulate(models(Break(3)), 200, store=store, **OPTIONS)
    wide = [Model("plain/½", lambda rng, n: rng.normal(size=(n, 3))), models()[1]]
    with (
        pytest.warns(EvidenceWarning, match="the code of model 'plain/½' has changed since .*begin again"),
        pytest.raises(DrawError, match=r"'plain/½' gives an array of \(3,\) numbers .*, but it gave a dict"),
    ):
        simulate(wide, 200, store=store, **OPTIONS)
    same_draws(simulate(models(), 200, store=store, **OPTIONS), simulate(models(), 200, **OPTIONS))


def test_a_change_of_code_is_warned_about(tmp_path: Path) -> None:
    def level(scale: float) -> Model:
        return Model("a", lambda rng, n: scale * rng.normal(size=(n, 1)))

    store = tmp_path / "sims.zarr"
    simulate([level(1.0)], 10, store=store, progress=False)
    simulate([level(1.0)], 10, store=store, progress=False)
    with pytest.warns(
        EvidenceWarning, match=r"the code of model 'a' has changed since .*sims\.zarr was begun"
    ) as w:
        simulate([level(2.0)], 10, store=store, progress=False)
    assert w[0].filename == __file__


def test_too_many_failures_are_not_kept(tmp_path: Path) -> None:
    store, good = tmp_path / "sims.zarr", [False]
    model = Model("a", lambda rng, n: rng.normal(size=(n, 1)) if good[0] else np.full((n, 1), np.nan))
    with pytest.raises(SimulationError):
        simulate([model], 200, chunk=100, store=store, progress=False)
    good[0] = True
    assert simulate([model], 200, chunk=100, store=store, progress=False).failed == (0,)


def test_two_at_once_do_no_harm(tmp_path: Path) -> None:
    store, found = tmp_path / "sims.zarr", []
    simulate(models(), 60, store=store, **OPTIONS)
    barrier = threading.Barrier(2, timeout=30)

    def run() -> None:
        barrier.wait()
        found.append(simulate(models(), 200, store=store, **OPTIONS))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for sims in (*found, Simulations.read(store)):
        same_draws(sims, simulate(models(), 200, **OPTIONS))


def test_it_is_a_zarr_folder_like_others(tmp_path: Path) -> None:
    store = tmp_path / "sims.zarr"
    expected: Any = simulate(models(), 200, store=str(store), **OPTIONS)
    root: Any = zarr.open_group(store, mode="r")
    np.testing.assert_array_equal(
        root["1/0/x/y"][...], expected.x["y"][100 : 100 + root["1/0/valid"][...].sum()]
    )
    assert root["0"].attrs["evidencenet"]["name"] == "plain/½"
    # The draws themselves can be written elsewhere, but not over the store.
    Simulations.read(store).write(tmp_path / "copy.zarr")
    same_draws(Simulations.read(tmp_path / "copy.zarr"), expected)
    with pytest.raises(
        FileExistsError, match=r"sims\.zarr exists already, and holds the store of a simulation"
    ):
        expected.write(store)
    turned = Simulations.read(store, names=["failing", "plain/½"])
    assert turned.failed == expected.failed[::-1]


def test_models_drawn_apart_are_read_together(tmp_path: Path) -> None:
    parts = [
        simulate([model], 100, store=tmp_path / f"{k}.zarr", **OPTIONS) for k, model in enumerate(models())
    ]
    sims = Simulations.read([tmp_path / "0.zarr", tmp_path / "1.zarr"])
    assert sims.names == ("plain/½", "failing")
    assert sims.failed == parts[0].failed + parts[1].failed
    np.testing.assert_array_equal(sims.of(1)["seen"], parts[1].x["seen"])


def test_bad_places(tmp_path: Path) -> None:
    def refused(error: type[Exception], message: str, store: Any) -> None:
        with pytest.raises(error, match=message):
            simulate(models(), 10, store=store, **OPTIONS)

    refused(ValueError, r"must be a folder whose name ends in \.zarr, got '.*sims'", tmp_path / "sims")
    refused(FileNotFoundError, "there is no folder", tmp_path / "none" / "sims.zarr")
    (tmp_path / "file.zarr").write_text("x")
    refused(FileError, "exists already, and is not a store of simulate", tmp_path / "file.zarr")
    (tmp_path / "folder.zarr").mkdir()
    simulate(models(), 10, store=tmp_path / "folder.zarr", **OPTIONS)  # an empty folder is as good as none
    simulate(models(), 10, **OPTIONS).write(tmp_path / "draws.zarr")
    refused(FileError, "is not a store of simulate", tmp_path / "draws.zarr")
    (tmp_path / "other.zarr").mkdir()
    (tmp_path / "other.zarr" / "a.txt").write_text("x")
    refused(FileError, r"other\.zarr", tmp_path / "other.zarr")
    assert [entry.name for entry in (tmp_path / "other.zarr").iterdir()] == ["a.txt"]


def test_a_store_of_the_future(tmp_path: Path) -> None:
    store = tmp_path / "sims.zarr"
    simulate(models(), 10, store=store, **OPTIONS)
    about = json.loads((store / "zarr.json").read_text())
    about["attributes"]["evidencenet"]["format"] = 99
    (store / "zarr.json").write_text(json.dumps(about))
    with pytest.raises(FileError, match="format 99"):
        simulate(models(), 10, store=store, **OPTIONS)
    with pytest.raises(FileError, match="format 99"):
        Simulations.read(store)
