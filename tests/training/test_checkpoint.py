"""Checkpoints: another run's is refused with what differs; none is removed before the network is saved."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet.training import checkpoint
from evidencenet.training.checkpoint import CheckpointError, differences, run_fingerprint

RUN = {"seed": "1", "the data x": "sha256:ab"}
STATE = [{"weights": np.arange(6.0).reshape(2, 3), "step": np.array(4)}]
EMPTY = [{"weights": np.zeros((2, 3)), "step": np.array(0)}]


def draws(**changes: Any) -> en.Simulations:
    x = np.random.default_rng(1).normal(size=(3_000, 4))
    fields: dict[str, Any] = {"x": x, "model": np.arange(3_000) % 2, "names": ("a", "b")}
    return en.Simulations(**(fields | changes))


def flipped(rng: np.random.Generator, x: Any) -> Any:
    return x * rng.choice([-1.0, 1.0], size=(len(x), 1))


def scaled_by(factor: float) -> Callable[..., Any]:
    class Own(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x: Any) -> Any:
            return factor * self.layer(x)

    def build(x: Any, outputs: int, *, key: jax.Array) -> Any:
        return Own(eqx.nn.Linear(x.size, outputs, key=key))

    return build


def test_the_state_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert checkpoint.load(path, RUN, EMPTY) is None
    checkpoint.save(path, RUN, STATE, {"losses": np.arange(3.0)})
    loaded = checkpoint.load(path, RUN, EMPTY)
    assert loaded is not None
    trees, curves = loaded
    np.testing.assert_array_equal(trees[0]["weights"], STATE[0]["weights"])
    assert trees[0]["step"] == 4
    np.testing.assert_array_equal(curves["losses"], np.arange(3.0))
    with pytest.raises(FileError, match="does not fit this network"):
        checkpoint.load(path, RUN, [{"weights": np.zeros((2, 4)), "step": np.array(0)}])


def test_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "a"
    checkpoint.save(path, RUN, STATE, {})
    other = {"seed": "2", "the data x": "sha256:cd"}
    message = r"another run\. These differ: seed \(1 there, 2 here\); the data x\. To continue it.*delete"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(path, other, EMPTY)


def test_every_byte_of_the_draws_counts() -> None:
    sims = draws()
    one = run_fingerprint(sims)
    assert differences(one, run_fingerprint(draws())) == []
    x = np.array(sims.x)
    x[1_234, 2] = np.nextafter(x[1_234, 2], np.inf)
    assert differences(one, run_fingerprint(draws(x=x))) == ["the data x"]
    assert differences(one, run_fingerprint(draws(x={"y": sims.x}))) == ["the data x"]
    assert differences(one, run_fingerprint(draws(model=np.arange(3_000) // 1_500))) == ["the labels"]
    assert differences(one, run_fingerprint(draws(failed=(0, 5)))) == [
        "the failed draws ((0, 0) there, (0, 5) here)"
    ]
    weighted = draws(log_weight=np.linspace(-1, 1, 3_000))
    assert differences(one, run_fingerprint(weighted)) == ["the weights"]


def test_functions_count_by_code_and_values() -> None:
    sims = draws()
    one = run_fingerprint(sims, augment=flipped, network=scaled_by(1.0))
    assert differences(one, run_fingerprint(sims, augment=flipped, network=scaled_by(1.0))) == []
    assert differences(one, run_fingerprint(sims, augment=None, network=scaled_by(1.0))) == ["augment"]
    assert differences(one, run_fingerprint(sims, augment=flipped, network=scaled_by(2.0))) == ["the network"]
    config = {"factor": 1.0}

    def turned(rng: np.random.Generator, x: Any) -> Any:
        return config["factor"] * x

    before = run_fingerprint(sims, augment=turned)
    config["factor"] = 2.0
    assert differences(before, run_fingerprint(sims, augment=turned)) == ["augment"]
    loss = en.losses.LPopExponential(alpha=2.0)
    changed = differences(
        run_fingerprint(sims, loss=loss), run_fingerprint(sims, loss=replace(loss, alpha=1.0))
    )
    assert len(changed) == 1
    assert "alpha=2.0" in changed[0]


def test_versions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    one = run_fingerprint(draws())
    monkeypatch.setattr(checkpoint, "versions", lambda: {"jax": "0.0.1", "python": "2.7"})
    changed = differences(one, run_fingerprint(draws()))
    assert any(text.startswith("the version of jax (") and "0.0.1 here" in text for text in changed)
    assert not any("python" in text for text in changed)


QUICK: dict[str, Any] = {
    "members": 1,
    "recipe": en.Recipe(epochs=2),
    "learn_error": False,
    "seed": 3,
    "progress": False,
}


def test_train_refuses_another_run_and_save_removes_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sims = tmp_path / "net.checkpoint", draws()
    net = en.train(sims, checkpoint=path, **QUICK)
    assert path.exists()
    for changes, what in (
        ({"augment": flipped}, "augment"),
        ({"network": scaled_by(1.0)}, "the network"),
    ):
        with pytest.raises(CheckpointError, match=rf"These differ: .*{what}"):
            en.train(sims, checkpoint=path, **(QUICK | changes))
    with pytest.raises(CheckpointError, match="These differ: the data x"):
        en.train(draws(x=np.array(sims.x) + 1e-9), checkpoint=path, **QUICK)

    # A save that fails leaves the checkpoint, and says so; the same call continues from it.
    def full(partial: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(
            OSError, match=r"disk is full.*The training is kept in .*net\.checkpoint"
        ) as caught:
            net.save(tmp_path / "net.evnet")
    assert caught.value.errno == errno.ENOSPC
    assert path.exists()
    again = en.train(sims, checkpoint=path, **QUICK)
    np.testing.assert_array_equal(again.members(sims.x), net.members(sims.x))
    assert len(again.history.seconds) == 2
    np.testing.assert_array_equal(again.history.seconds, net.history.seconds)  # not trained again
    again.save(tmp_path / "net.evnet")
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.evnet"]
    back = en.load(tmp_path / "net.evnet")
    np.testing.assert_array_equal(back.members(sims.x), net.members(sims.x))
    assert back.checkpoint is None


def test_other_noise_is_another_run() -> None:
    one, same, other = (
        run_fingerprint(
            draws(observe=lambda rng, clean, size=size: clean + size * rng.normal(size=clean.shape))
        )
        for size in (0.1, 0.1, 0.2)
    )
    assert differences(one, same) == []
    assert "observe" in differences(one, other)
    assert "the clean draws" in differences(one, run_fingerprint(draws()))
