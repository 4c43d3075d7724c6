"""Stores as streams: every draw once an epoch, held-out draws never, and the same as in memory."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet.estimator import given
from evidencenet.simulation.stored import StoredDraws, are_stores
from evidencenet.training.checkpoint import CheckpointError


def models() -> list[en.Model]:
    def partly(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random((n, 1)) < 0.02, np.nan, rng.normal(size=(n, 2)))

    return [en.Model("flat", partly), en.Model("wide", lambda rng, n: 2 * rng.normal(size=(n, 2)))]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("stores")
    stores = [folder / "a.zarr", folder / "b.zarr"]
    for seed, store in enumerate(stores):
        for n in (3_000, 10_000):
            # A store that has grown holds several chunks of each model.
            en.simulate(models(), n, seed=seed, store=store, progress=False)
    return stores


def epoch(stream: StoredDraws, model: int, number: int) -> np.ndarray:
    with ThreadPoolExecutor(stream.workers) as pool:
        return np.concatenate(list(stream.blocks(model, number, pool)))


def test_every_draw_comes_once_in_an_epoch_in_another_order(paths: list[Path]) -> None:
    stream = StoredDraws.open(paths, seed=1)
    together = en.Simulations.concatenate([en.Simulations.read(path) for path in paths])
    assert (stream.counts, stream.failed) == (together.counts, together.failed)
    for k in (0, 1):
        first, second = epoch(stream, k, 0), epoch(stream, k, 1)
        wanted = np.sort(np.asarray(together.of(k)), axis=0)
        np.testing.assert_array_equal(np.sort(first, axis=0), wanted)
        np.testing.assert_array_equal(np.sort(second, axis=0), wanted)
        many = StoredDraws.open(paths, seed=1, workers=3)
        np.testing.assert_array_equal(epoch(many, k, 1), second)
    orders = {epoch(stream, 0, number).tobytes() for number in range(6)}
    assert len(orders) > 1


def test_held_out_draws_are_not_in_the_stream(paths: list[Path]) -> None:
    whole = StoredDraws.open(paths, seed=1)
    x, label, held_out, stream = whole.sample(4_000, 0.25)
    np.testing.assert_array_equal(np.bincount(label), [2_000, 2_000])
    assert abs(held_out.sum() - 1_000) <= 4
    assert sum(stream.counts) == 20_000 - held_out.sum()
    for k in (0, 1):
        streamed = epoch(stream, k, 0)
        assert len(streamed) == stream.counts[k]
        mine = np.asarray(x)[label == k]
        np.testing.assert_array_equal(np.isin(mine[:, 0], streamed[:, 0]), ~held_out[label == k])
        halves = [epoch(half, k, 0) for half in stream.halves()]
        assert [len(half) for half in halves] == [half.counts[k] for half in stream.halves()]
        np.testing.assert_array_equal(np.sort(np.concatenate(halves), axis=0), np.sort(streamed, axis=0))


def test_other_stores_are_refused(paths: list[Path], tmp_path: Path) -> None:
    assert are_stores(paths)
    assert not are_stores(tmp_path / "none.zarr")
    other = tmp_path / "other.zarr"
    en.simulate({"a": models()[0], "b": models()[1]}, 200, store=other, progress=False)
    with pytest.raises(FileError, match="wanted the same models"):
        StoredDraws.open([paths[0], other])
    lost = tmp_path / "lost.zarr"
    en.simulate(models(), 200, store=lost, progress=False)
    first = min((lost / "1").glob("[0-9]*"))
    first.rename(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="'wide' lacks 100 of 100 draws"):
        StoredDraws.open([lost])
    gaps = tmp_path / "gaps.zarr"
    en.simulate(models(), 200, store=gaps, missing="mask", progress=False)
    with pytest.raises(FileError, match="missing='mask'"):
        StoredDraws.open([gaps])
    with pytest.raises(FileError, match=r"hold the same draws: .* the same seed"):
        StoredDraws.open([paths[0], paths[1], paths[0]])


def test_a_store_that_is_not_seen(tmp_path: Path) -> None:
    en.simulate(models(), 200, store=tmp_path / "a.zarr", progress=False)
    stream = StoredDraws.open([tmp_path / "a.zarr"])
    (tmp_path / "a.zarr").rename(tmp_path / "b.zarr")
    with pytest.raises(FileNotFoundError, match=r"no store .*a\.zarr on .*must see it at the same path"):
        stream.pieces[0][0].read()


def test_stores_of_one_model_each_are_put_together(tmp_path: Path) -> None:
    apart = [tmp_path / "flat.zarr", tmp_path / "wide.zarr"]
    for model, path in zip(models(), apart, strict=True):
        en.simulate([model], 2_000, seed=4, store=path, progress=False)
    stream, together = StoredDraws.open(apart, seed=1), en.Simulations.read(apart)
    assert (stream.names, stream.counts, stream.failed) == (together.names, (2_000, 2_000), together.failed)
    for k in (0, 1):
        wanted = np.sort(np.asarray(together.of(k)), axis=0)
        np.testing.assert_array_equal(np.sort(epoch(stream, k, 0), axis=0), wanted)
    with pytest.raises(FileError, match="or one model in each"):
        StoredDraws.open([apart[0], apart[0], apart[1]])


def pair() -> list[en.Model]:
    return [
        en.Model("flat", lambda rng, n: rng.normal(size=(n, 3))),
        en.Model("wide", lambda rng, n: 1.5 * rng.normal(size=(n, 3))),
    ]


def test_training_and_checks_on_stores(tmp_path: Path) -> None:
    store, fresh = tmp_path / "draws.zarr", tmp_path / "fresh.zarr"
    en.simulate(pair(), 240_000, seed=1, store=store, progress=False)
    sims = en.simulate(pair(), 20_000, seed=2, store=fresh, progress=False)
    options: dict[str, Any] = {"network": "squares", "members": 1, "recipe": en.Recipe(epochs=2), "seed": 3}
    net = en.train(store, learn_error=False, progress=False, **options)
    # 200,000 draws are in memory, 24,000 of them held out. The networks see all others.
    assert net.history.draws == 216_000
    found = net.log_bayes_factor(sims.x)
    exact = 0.5 * np.sum(np.asarray(sims.x) ** 2, axis=1) * (1 - 1 / 2.25) - 3 * np.log(1.5)
    p = 1 / (1 + np.exp(-exact))
    # Four numbers are learned; three times the error that they have at best, 0.009.
    best = np.sqrt(4 / (216_000 * np.mean(p * (1 - p))))
    assert np.sqrt(np.average((found - exact) ** 2, weights=p * (1 - p))) < 3 * best
    written = net.log_bayes_factor(fresh, out=tmp_path / "log_k.npy")
    np.testing.assert_allclose(written, found, atol=1e-4)
    np.testing.assert_array_equal(np.load(tmp_path / "log_k.npy"), written)
    check = en.validate(net, fresh)
    np.testing.assert_array_equal(np.bincount(check.label), sims.counts)
    assert check.checks[0].verdict == "pass"
    assert en.validate(net, store).checks[0].verdict == "fail"
    with pytest.raises(ValueError, match=r"out='log_k\.npy'"):
        net.log_bayes_factor(fresh)
    with pytest.raises(TypeError, match="for the draws of a store"):
        net.log_bayes_factor(sims.x, out="log_k.npy")


def test_several_stores_are_one_training_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "SAMPLE_DRAWS", 4_000)
    stores = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for seed, path in enumerate(stores):
        en.simulate(pair(), 20_000, seed=seed, store=path, progress=False)
    options: dict[str, Any] = {"network": "squares", "members": 2, "recipe": en.Recipe(epochs=6), "seed": 1}
    net = en.train(stores, progress=False, **options)
    # At most a quarter of the 4,000 in memory is held out, and batches are whole.
    assert 36_000 < net.history.draws < 40_000
    x = np.asarray(en.simulate(pair(), 5_000, seed=9, progress=False).x)
    exact = 0.5 * np.sum(x**2, axis=1) * (1 - 1 / 2.25) - 3 * np.log(1.5)
    p = 1 / (1 + np.exp(-exact))
    off, stated = (
        np.sqrt(np.average(each**2, weights=p * (1 - p)))
        for each in (net.log_bayes_factor(x) - exact, net.error(x))
    )
    # Four numbers are learned. Of 4,000 draws, those in memory, the error would be 0.07 at best.
    best = np.sqrt(4 / (40_000 * np.mean(p * (1 - p))))
    assert off < 2.5 * best < 0.06
    # It was learned from halves of the stores; in four trainings it was 1.2 to 2.1 times as large.
    assert 0.5 * off < stated < 4 * off


def test_a_training_on_stores_that_was_cut_off_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "SAMPLE_DRAWS", 1_000)
    store, other, path = tmp_path / "draws.zarr", tmp_path / "other.zarr", tmp_path / "net.checkpoint"
    for seed, place in enumerate((store, other)):
        en.simulate(pair(), 4_000, seed=seed, store=place, progress=False)
    options: dict[str, Any] = {"network": "dense", "members": 1, "recipe": en.Recipe(epochs=4), "seed": 1}
    options |= {"learn_error": False, "progress": False}
    whole = en.train(store, **options)
    begun: list[int] = []
    blocks = StoredDraws.blocks

    def noted(stream: StoredDraws, model: int, number: int, *more: Any) -> Any:
        if number == 3 and interrupted:
            raise KeyboardInterrupt
        begun.append(number)
        return blocks(stream, model, number, *more)

    monkeypatch.setattr(StoredDraws, "blocks", noted)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        en.train(store, checkpoint=path, **options)
    assert sorted(set(begun)) == [0, 1, 2]
    interrupted = False
    begun.clear()
    with pytest.raises(CheckpointError, match=r"These differ: .*the draws that are not in memory"):
        en.train(other, checkpoint=path, **options)
    net = en.train(store, checkpoint=path, **options)
    x = np.random.default_rng(3).normal(size=(200, 3))
    np.testing.assert_array_equal(net.members(x), whole.members(x))
    # Epoch 0 gives the form of the draws; the one after it was finished, and is not read again.
    assert {0, 3} <= set(begun) <= {0, 2, 3}


def test_clean_draws_of_a_store_are_observed_anew(tmp_path: Path) -> None:
    store = tmp_path / "clean.zarr"
    clean = [
        en.Model(
            name,
            lambda rng, n, k=k: np.full((n, 2), float(k)),
            observe=lambda rng, c: c + rng.normal(size=c.shape),
        )
        for k, name in enumerate(("zero", "one"))
    ]
    en.simulate(clean, 210_000, seed=1, store=store, progress=False)
    with pytest.raises(ValueError, match=r"Give the models that were simulated too: models="):
        en.train(store, progress=False)
    net = en.train(
        store,
        models=clean,
        network="dense",
        members=1,
        recipe=en.Recipe(epochs=1),
        learn_error=False,
        progress=False,
    )
    # log K of two numbers with means 0 or 1 is x1 + x2 − 1.
    x = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]])
    np.testing.assert_allclose(net.log_bayes_factor(x), [-1, 1, 0], atol=0.1)
