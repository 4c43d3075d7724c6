"""A saved network is the same network, also in another process; anything else is refused in words."""

import errno
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import evidencenet as en
from conftest import Case
from evidencenet._common.arrays import Data
from evidencenet._common.files import FileError
from evidencenet.training.search import Choice, Trial

NAMES = ("series", "small", "three", "cloud", "normed")

ELSEWHERE = """
import sys
import numpy as np
import evidencenet as en

folder = sys.argv[1]
for name in sys.argv[2:]:
    net = en.load(f"{folder}/{name}.evnet")
    with np.load(f"{folder}/{name}.npz") as file:
        x = dict(file)
    data = x["only"] if list(x) == ["only"] else x
    found = [net.members(data, model=k) for k in range(len(net.names))]
    found += [net.error(data, model=1)[None], net.jackknife(data, model=1)[None], net.probabilities(data).T]
    np.save(f"{folder}/{name}.npy", np.concatenate(found))
"""


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> dict[str, Case]:
    return {name: request.getfixturevalue(name) for name in NAMES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cases: dict[str, Case]) -> Path:
    """All networks, saved, and what a new process makes of them."""
    folder = tmp_path_factory.mktemp("saved")
    for name, case in cases.items():
        case.net.save(folder / f"{name}.evnet")
        x = some(case)
        arrays: dict[str, Any] = x if isinstance(x, dict) else {"only": x}
        np.savez(folder / f"{name}.npz", **arrays)
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(folder), *cases], check=True)
    return folder


def some(case: Case) -> Data:
    return case.fresh.take(slice(None, None, 5)).x


def answers(net: en.EvidenceNetwork, x: Data) -> np.ndarray:
    found = [net.members(x, model=k) for k in range(len(net.names))]
    found += [net.error(x, model=1)[None], net.jackknife(x, model=1)[None], net.probabilities(x).T]
    return np.concatenate(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_new_process_gives_the_same_bits(folder: Path, cases: dict[str, Case], name: str) -> None:
    here = answers(cases[name].net, some(cases[name]))
    assert np.array_equal(np.load(folder / f"{name}.npy"), here)
    assert np.all(np.isfinite(here))


@pytest.mark.parametrize("name", NAMES)
def test_everything_comes_back(folder: Path, cases: dict[str, Case], name: str) -> None:
    net, back = cases[name].net, en.load(folder / f"{name}.evnet")
    assert repr(back) == repr(net)
    assert back.names == net.names
    assert back.loss == net.loss
    assert back.architecture == net.architecture
    assert back.choice == net.choice
    assert back.made == net.made
    assert back.made["versions"]["numpy"] == np.__version__
    assert back.ranges == net.ranges
    for record in ("history", "held_out", "errors"):
        for field in fields(getattr(net, record)):
            old, new = (getattr(getattr(n, record), field.name) for n in (net, back))
            assert type(old) is type(new), field.name
            np.testing.assert_array_equal(old, new)
    assert back.history.samples_per_second == net.history.samples_per_second
    x = some(cases[name])
    one = {key: array[0] for key, array in x.items()} if isinstance(x, dict) else x[0]
    assert str(back.compare(one)) == str(net.compare(one))


def test_saved_again_it_is_the_same_file(folder: Path, tmp_path: Path) -> None:
    en.load(folder / "three.evnet").save(tmp_path / "again.evnet")
    assert (tmp_path / "again.evnet").read_bytes() == (folder / "three.evnet").read_bytes()


def test_nothing_is_unpickled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("pickle was used")

    for function in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, function, never)
    assert en.load(folder / "cloud.evnet").names == ("uncorrelated", "correlated")
    assert b"pickle" not in (folder / "cloud.evnet").read_bytes()


def mine(x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
    return eqx.nn.MLP(x.size, outputs, 8, 1, key=key)


def test_a_network_and_a_loss_of_ones_own(small: Case, tmp_path: Path) -> None:
    loss = en.losses.LinkedExponential(jnp.sinh)
    recipe = en.Recipe(epochs=1)
    net = en.train(
        small.sims, network=mine, loss=loss, members=2, recipe=recipe, learn_error=False, progress=False
    )
    path = tmp_path / "mine.evnet"
    net.save(path)
    with pytest.raises(ValueError, match=r"your own function 'mine'.*Pass it again: load\(path, network="):
        en.load(path)
    with pytest.raises(ValueError, match=r"LinkedExponential is made of functions.*pass the loss itself"):
        en.load(path, network=mine)
    with pytest.raises(FileError, match=r"other layers than its architecture.*Pass the same network="):
        en.load(path, network=en.networks.Dense(), loss=loss)
    back = en.load(path, network=mine, loss=loss)
    np.testing.assert_array_equal(back.members(small.fresh.x), net.members(small.fresh.x))


def test_a_trial_that_failed(small: Case, tmp_path: Path) -> None:
    choice = Choice((Trial("good", 0.5, 1.0), Trial("bad", np.inf, 2.0)), "good", 100)
    replace(small.net, choice=choice).save(tmp_path / "some.evnet")
    assert en.load(tmp_path / "some.evnet").choice == choice


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.evnet"):
        en.load(tmp_path / "nothing.evnet")


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.999])
def test_truncated_file(folder: Path, tmp_path: Path, part: float) -> None:
    content = (folder / "small.evnet").read_bytes()
    (tmp_path / "cut.evnet").write_bytes(content[: int(part * len(content))])
    with pytest.raises(FileError, match="cut short, damaged or not a file of evidencenet"):
        en.load(tmp_path / "cut.evnet")


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "some"
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(FileError, match="was not written by evidencenet"):
        en.load(path)
    path.write_text("name,value\n" * 20)
    with pytest.raises(FileError, match="cannot be read"):
        en.load(path)


def test_a_file_that_lacks_something(small: Case, tmp_path: Path) -> None:
    from evidencenet._common import files

    small.net.save(tmp_path / "whole")
    about, arrays = files.read(tmp_path / "whole", "network")
    own = {key: about[key] for key in about if key not in ("kind", "format", "version")}
    for name in ("gain", "scaling/shift/"):
        rest = {key: array for key, array in arrays.items() if key != name}
        files.write(tmp_path / "part", "network", own, rest)
        with pytest.raises(FileError, match="is incomplete: it lacks"):
            en.load(tmp_path / "part")


def test_newer_format(small: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evidencenet._common import files

    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", files.FORMAT + 1)
        small.net.save(tmp_path / "newer")
    with pytest.raises(FileError, match="Update with: pip install -U evidencenet"):
        en.load(tmp_path / "newer")


def test_a_failed_save_leaves_the_old_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Case, three: Case
) -> None:
    path = tmp_path / "some.evnet"
    small.net.save(path)
    before = path.read_bytes()

    def half(partial: Path, content: bytes) -> None:
        with partial.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(OSError, match=r"some\.evnet: the disk is full.*Nothing there has changed"):
            three.net.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(
        en.load(path).log_bayes_factor(small.fresh.x), small.net.log_bayes_factor(small.fresh.x)
    )


def test_a_folder_that_does_not_exist(small: Case, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"there is no folder .*nowhere\. Make it first"):
        small.net.save(tmp_path / "nowhere" / "some.evnet")
