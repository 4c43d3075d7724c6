"""Members that are trained as separate jobs are the same to the bit as members trained side by side."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import evidencenet as en
from evidencenet import networks
from evidencenet.estimator import given
from evidencenet.simulation.workers import WorkerError
from executors import Dying, Pickling


@pytest.fixture(scope="module")
def sims() -> en.Simulations:
    return en.simulate(en.problems.mean_test(size=5).models, 2_000, seed=1, progress=False)


@pytest.mark.parametrize(("patience", "stems"), [(1, None), (10, 2)])
def test_jobs_train_the_same_members(
    sims: en.Simulations, tmp_path: Path, patience: int, stems: int | None
) -> None:
    """With batch normalisation, whose states JAX tells apart by identity; and members that stop early."""
    options: dict[str, Any] = {
        "members": 3,
        "network": networks.Dense(width=13, norm=True),
        "recipe": en.Recipe(epochs=5, patience=patience, learning_rate=0.03, stems=stems),
        "augment": lambda rng, x: rng.permuted(x, axis=1),
        "learn_error": False,
        "seed": 2,
        "progress": False,
    }
    executor = Pickling()
    together, apart = en.train(sims, **options), en.train(sims, executor=executor, **options)
    assert executor.tasks == 3
    for one, other in zip(
        jax.tree.leaves((together.networks, together.states)),
        jax.tree.leaves((apart.networks, apart.states)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(together.history.score, apart.history.score)
    np.testing.assert_array_equal(together.history.best_epoch, apart.history.best_epoch)
    np.testing.assert_array_equal(together.members(sims.x), apart.members(sims.x))
    # They are as good as others to save, and differ from each other.
    apart.save(tmp_path / "apart.evnet")
    log_k = en.load(tmp_path / "apart.evnet").members(sims.x)
    np.testing.assert_array_equal(log_k, together.members(sims.x))
    assert np.abs(log_k[0] - log_k[1]).max() > 1e-3


def test_a_worker_that_dies_is_forgiven_once(sims: en.Simulations) -> None:
    options: dict[str, Any] = {"members": 2, "network": "dense", "recipe": en.Recipe(epochs=1), "seed": 2}
    options |= {"learn_error": False, "progress": False}
    alone = en.train(sims, **options).members(sims.x)
    np.testing.assert_array_equal(en.train(sims, executor=Dying(1), **options).members(sims.x), alone)
    with pytest.raises(WorkerError, match=r"died twice while it trained member 1 of 2.*without executor="):
        en.train(sims, executor=Dying(10**9), **options)
    with pytest.raises(WorkerError, match=r"died while it trained member 1 of 2.*make a new one, and call t"):
        en.train(sims, executor=Dying(1, broken=True), **options)


def noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    return clean + 0.5 * rng.normal(size=clean.shape)


def shifted_models(observe: Any = None) -> list[en.Model]:
    return [
        en.Model("zero", lambda rng, n: rng.normal(size=(n, 3)), observe=observe),
        en.Model("one", lambda rng, n: 1 + rng.normal(size=(n, 3)), observe=observe),
    ]


class Elsewhere(Pickling):
    """Its workers are in another folder, so that they do not find what has no full path."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with contextlib.chdir(self.folder):
            return super().submit(function, *arguments)


@pytest.mark.parametrize("source", ["stores", "clean store", "fresh draws"])
def test_draws_that_are_not_in_memory(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs read the stores themselves, and simulate fresh draws themselves, to the same members."""
    monkeypatch.setattr(given, "SAMPLE_DRAWS", 1_000)
    models = shifted_models(noise if source == "clean store" else None)
    monkeypatch.chdir(tmp_path)
    stores = [Path("a.zarr"), Path("b.zarr")]
    for seed, path in enumerate(stores):
        en.simulate(models, 2_000, seed=seed, store=path, progress=False)
    sources: dict[str, dict[str, Any]] = {
        "stores": {"sims": stores},
        "clean store": {"sims": stores[0], "models": models},
        "fresh draws": {"models": models, "draws": 4_000},
    }
    options: dict[str, Any] = {"members": 2, "network": "dense", "recipe": en.Recipe(epochs=2), "seed": 2}
    options |= {"learn_error": False, "progress": False, **sources[source]}
    executor = Elsewhere(tmp_path.parent)
    together, apart = en.train(**options), en.train(executor=executor, **options)
    assert executor.tasks == 2
    x = np.random.default_rng(3).normal(size=(200, 3))
    log_k = together.members(x)
    np.testing.assert_array_equal(apart.members(x), log_k)
    # They differ from each other, and were trained on more draws than are in memory.
    assert np.abs(log_k[0] - log_k[1]).max() > 1e-3
    assert together.history.draws > 1_500


def test_a_checkpoint_is_refused(sims: en.Simulations, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"executor= trains them elsewhere\. Leave one of them out"):
        en.train(sims, executor=Pickling(), checkpoint=tmp_path / "a")
    with pytest.raises(TypeError, match=r"give simulate\(workers=2\)"):
        en.train(sims, executor=2)
