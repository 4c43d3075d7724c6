"""Checks and log K over stores: the same as of draws in memory, with few draws in memory at a time."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import evidencenet as en
from evidencenet.estimator import over_store
from evidencenet.simulation.stored import Piece


def pair(scale: float) -> list[en.Model]:
    return [
        en.Model("flat", lambda rng, n: rng.normal(size=(n, 3))),
        en.Model("wide", lambda rng, n: scale * rng.normal(size=(n, 3))),
    ]


def log_k(x: Any, scale: float) -> np.ndarray:
    squares = np.sum(np.asarray(x) ** 2, axis=1)
    return np.asarray(0.5 * squares * (1 - 1 / scale**2) - 3 * np.log(scale))


class Case(NamedTuple):
    """A network of a scale of 1.5, and stores of draws of this scale and of 1.3, for which it is wrong."""

    net: en.EvidenceNetwork
    right: Path
    wrong: list[Path]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("over")
    sims = en.simulate(pair(1.5), 40_000, seed=1, progress=False)
    net = en.train(
        sims,
        network="squares",
        recipe=en.Recipe(epochs=4),
        members=2,
        learn_error=False,
        seed=2,
        progress=False,
    )
    wrong = [folder / "wrong.zarr", folder / "more.zarr"]
    for seed, path in enumerate(wrong):
        for n in (3_000, 20_000):
            en.simulate(pair(1.3), n, seed=10 + seed, store=path, progress=False)
    en.simulate(pair(1.5), 20_000, seed=20, store=folder / "right.zarr", progress=False)
    return Case(net, folder / "right.zarr", wrong)


def test_recalibration_on_a_store_is_that_in_memory(case: Case) -> None:
    in_memory = case.net.recalibrate(en.Simulations.read(case.wrong[0]), seed=3)
    found = case.net.recalibrate(case.wrong[0], seed=3)
    for name in ("shift", "knots", "slope", "gain"):
        first, second = (getattr(net.recalibration[0], name) for net in (found, in_memory))
        np.testing.assert_array_equal(first, second, err_msg=name)
    both = case.net.recalibrate(case.wrong, seed=3)
    assert both.recalibration[0].draws == 20_000
    # It corrects log K towards that of the draws.
    sims = en.simulate(pair(1.3), 20_000, seed=30, progress=False)
    exact = log_k(sims.x, 1.3)
    off = [np.sqrt(np.mean((net.log_bayes_factor(sims.x) - exact) ** 2)) for net in (case.net, found, both)]
    assert max(off[1:]) < 0.3 * off[0]


def test_a_store_for_which_log_k_is_right_changes_nothing(case: Case) -> None:
    with pytest.warns(en.RecalibrationWarning, match="The network stays as it was"):
        assert case.net.recalibrate(case.right) is case.net


def test_large_stores_are_sampled(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = Piece.read

    def reading(piece: Piece) -> Any:
        read.append(piece.rows)
        return whole(piece)

    monkeypatch.setattr(Piece, "read", reading)
    monkeypatch.setattr(over_store, "_MOST_DRAWS", 5_000)
    found = case.net.recalibrate(case.wrong, seed=3)
    # Half of 5,000 draws are fitted to.
    assert found.recalibration[0].draws == pytest.approx(2_500, abs=2)
    again = case.net.recalibrate(case.wrong, seed=3)
    np.testing.assert_array_equal(found.recalibration[0].slope, again.recalibration[0].slope)
    sims = en.simulate(pair(1.3), 20_000, seed=30, progress=False)
    exact = log_k(sims.x, 1.3)
    off = [np.sqrt(np.mean((net.log_bayes_factor(sims.x) - exact) ** 2)) for net in (case.net, found)]
    assert off[1] < 0.5 * off[0]
    check = en.validate(case.net, case.wrong)
    assert len(check.label) == 5_000
    assert not check.passed
    assert en.validate(case.net, case.right).passed
    # No more than the chunks that the sample needs.
    assert sum(read) < 6 * 40_000
    assert max(read) < 20_000


def test_log_k_of_several_stores_in_pieces(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_store, "_BLOCK", 1_234)
    written = case.net.log_bayes_factor(case.wrong, out=tmp_path / "log_k.npy")
    assert isinstance(written, np.memmap)
    stores = [en.Simulations.read(path) for path in case.wrong]
    # The first model of all stores comes first.
    expected = [case.net.log_bayes_factor(sims.of(k)) for k in (0, 1) for sims in stores]
    np.testing.assert_allclose(written, np.concatenate(expected), atol=1e-5)


def test_what_log_k_of_a_store_is_refused_for(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "log_k.npy"
    with pytest.raises(FileNotFoundError, match=r"there is no store none\.zarr"):
        case.net.log_bayes_factor("none.zarr", out=out)
    sims = en.simulate(pair(1.5)[::-1], 200, store=tmp_path / "swapped.zarr", progress=False)
    with pytest.raises(ValueError, match=r"draws are of wide, flat; .*Draw from the same models in the same"):
        case.net.log_bayes_factor(tmp_path / "swapped.zarr", out=out)
    sims.write(tmp_path / "file.npz")
    with pytest.raises(ValueError, match=r"file\.npz is no store of simulate\. Read it first"):
        case.net.log_bayes_factor(tmp_path / "file.npz", out=out)
    assert not out.exists()
    for call in (case.net.log_bayes_factor, case.net.compare, case.net.probabilities):
        with pytest.raises(TypeError, match=r"give their data, sims\.x"):
            call(sims)


def test_clean_draws_have_the_noise_of_read(case: Case, tmp_path: Path) -> None:
    def noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return clean + 0.6 * rng.normal(size=clean.shape)

    def models() -> list[en.Model]:
        # With the noise, the scales are 1 and 1.5.
        sizes = np.sqrt(np.array([1.0, 2.25]) - 0.36)
        return [
            en.Model(name, lambda rng, n, s=size: s * rng.normal(size=(n, 3)), observe=noise)
            for name, size in zip(("flat", "wide"), sizes, strict=True)
        ]

    stores = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for seed, path in enumerate(stores):
        for n in (1_500, 8_000):
            en.simulate(models(), n, seed=seed, store=path, progress=False)
    pair_of_models = models()
    sims = [en.Simulations.read(path, observe=pair_of_models) for path in stores]
    written = case.net.log_bayes_factor(stores, out=tmp_path / "log_k.npy", models=pair_of_models)
    expected = [case.net.log_bayes_factor(part.of(k)) for k in (0, 1) for part in sims]
    np.testing.assert_allclose(written, np.concatenate(expected), atol=1e-5)
    in_memory = en.validate(case.net, sims[0])
    np.testing.assert_array_equal(en.validate(case.net, stores[0], models=models()).log_k, in_memory.log_k)
    assert en.validate(case.net, stores, models=pair_of_models).passed
    sims[0].write(tmp_path / "clean.npz")
    found = en.validate(case.net, tmp_path / "clean.npz", models=models())
    np.testing.assert_array_equal(found.log_k, in_memory.log_k)
    # Without the noise, log K is another: the check would fail if it were forgotten.
    without = en.Simulations(np.asarray(sims[0].clean), sims[0].model, sims[0].names)
    assert not en.validate(case.net, without).passed
    for call in (
        lambda: en.validate(case.net, stores[0]),
        lambda: case.net.recalibrate(stores[0]),
        lambda: case.net.log_bayes_factor(stores[0], out=tmp_path / "log_k.npy"),
    ):
        with pytest.raises(ValueError, match="Give the models that were simulated too"):
            call()
    with pytest.raises(TypeError, match="Leave models out, or give a path"):
        en.validate(case.net, sims[0], models=models())
    with pytest.raises(TypeError, match="models is for the draws of a store"):
        case.net.log_bayes_factor(sims[0].x, models=models())
