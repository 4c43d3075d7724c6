"""Damaged, forged and hostile files: our error or the same numbers, never code, other numbers, or a crash."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet._common import files
from evidencenet._common.files import FileError
from evidencenet._common.warnings import EvidenceWarning
from evidencenet.simulation.io.draws import read_data


@pytest.fixture(scope="module")
def hostile() -> ModuleType:
    """The program that runs the same attacks ten thousand times."""
    place = Path(__file__).parents[2] / "benchmarks" / "hostile.py"
    spec = importlib.util.spec_from_file_location("hostile", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hostile"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def every(hostile: ModuleType, small: Case, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hostile.subjects(
        tmp_path_factory.mktemp("subjects"), small.net, small.sims.take(slice(None, None, 300))
    )


def bad(hostile: ModuleType, cases: Any) -> list[Any]:
    # On a busy machine a case may be slow for no fault of its own; `benchmarks/hostile.py` reports those.
    return [case for case in cases if case.outcome in hostile.MUST_BE_ZERO and case.outcome != "slow"]


def test_damage_and_forgery(hostile: ModuleType, every: Any, tmp_path: Path) -> None:
    cases = hostile.fuzz(every, 320, 5, tmp_path)
    assert len(cases) > 300
    assert bad(hostile, cases) == []
    refused = [case for case in cases if case.outcome == "refused"]
    assert len(refused) > 200


def test_craft(hostile: ModuleType, every: Any, tmp_path: Path) -> None:
    cases = hostile.craft(every[0].path, tmp_path)
    assert bad(hostile, cases) == []
    assert {case.outcome for case in cases if "no end" not in case.detail} <= {"refused", "slow"}


def test_the_attacks_can_succeed(hostile: ModuleType, every: Any, tmp_path: Path) -> None:
    """The control: without the checksum, damage goes unnoticed; and a pickle does run when it is loaded."""
    import pickle

    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(hostile.Runs(canary))).close()
    assert canary.exists()
    network = every[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "check_checksum", lambda *_: None)
        cases = hostile.fuzz([network], 60, 5, tmp_path)
    assert any(case.outcome == "different" for case in cases)


def test_every_bit_of_a_network_counts(every: Any, tmp_path: Path) -> None:
    content = every[0].path.read_bytes()
    path = tmp_path / "a.evnet"
    rng = np.random.default_rng(1)
    for place in rng.integers(len(content), size=100):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(FileError, match=r"a\.evnet"):
            en.load(path)


def models(seed: int) -> list[en.Model]:
    return [en.Model(name, lambda rng, n: rng.normal(size=(n, 2))) for name in ("a", "b")]


def test_exchanged_chunks_are_noticed_and_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evidencenet.simulation.writer._WRITE_SECONDS", 0.0)  # every chunk has its own folder
    monkeypatch.setattr("evidencenet.simulation.writer._MERGED_BYTES", 0)
    options: dict[str, Any] = {"chunk": 10, "progress": False}
    store, other = tmp_path / "a.zarr", tmp_path / "b.zarr"
    expected: Any = en.simulate(models(1), 60, seed=1, store=store, **options)
    en.simulate(models(1), 60, seed=2, store=other, **options)

    def exchange(one: Path, two: Path) -> None:
        one.rename(tmp_path / "aside")
        two.rename(one)
        (tmp_path / "aside").rename(two)

    message = "in the wrong place|another seed or other settings"
    for one, two in (
        (store / "0" / "10", store / "1" / "10"),
        (store / "0" / "0", store / "0" / "20"),
        (store / "1" / "20", other / "1" / "20"),
    ):
        exchange(one, two)
        with pytest.warns(EvidenceWarning, match=message), pytest.raises(FileError, match="is not complete"):
            en.Simulations.read(store)
        with pytest.warns(EvidenceWarning, match=message):
            again: Any = en.simulate(models(1), 60, seed=1, store=store, **options)
        np.testing.assert_array_equal(again.x, expected.x)
        np.testing.assert_array_equal(en.Simulations.read(store).x, expected.x)


def test_a_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, np.zeros((4_000, 1_000)))
    assert np.shape(read_data(path)) == (4_000, 1_000)  # small enough to be read without a question
    monkeypatch.setattr(files, "FREE_BYTES", 1_000_000)
    with pytest.raises(
        FileError, match=r"zeros\.npz has 0\.\d MB, but would fill 32 MB .*max_bytes=32000128"
    ):
        read_data(path)
    assert np.shape(read_data(path, max_bytes=32_000_128)) == (4_000, 1_000)
    with pytest.raises(FileError, match="would fill 32 MB"):
        read_data(path, max_bytes=1_000)


def test_a_table_that_was_changed(tmp_path: Path) -> None:
    sims = en.Simulations(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1], ("a", "b"))
    path = tmp_path / "a.csv"
    sims.write(path)
    text = path.read_text()
    path.write_text(text.replace("5.0", "5.5"))
    with pytest.raises(FileError, match=r"a\.csv was changed after it was written.*remove the description"):
        en.Simulations.read(path)
    # Other ends of lines change nothing, and without the first line it is a table like any other.
    path.write_bytes(text.replace("\n", "\r\n").encode())
    np.testing.assert_array_equal(en.Simulations.read(path).x, sims.x)
    path.write_text(text.replace("5.0", "5.5").partition("\n")[2])
    assert np.asarray(en.Simulations.read(path).x)[2, 1] == 5.5


def test_a_lost_description_is_noticed(tmp_path: Path) -> None:
    sims = en.Simulations(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1], ("a", "b"))
    sims.write(tmp_path / "a.zarr")
    place = tmp_path / "a.zarr" / "zarr.json"
    about = json.loads(place.read_text())
    about["attributes"] = {}
    place.write_text(json.dumps(about))
    with pytest.raises(FileError, match=r"a\.zarr is damaged: its description is lost"):
        en.Simulations.read(tmp_path / "a.zarr")
    shutil.rmtree(tmp_path / "a.zarr")
