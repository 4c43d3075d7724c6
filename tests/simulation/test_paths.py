"""Draws that are given by paths: read whole or in pieces, and clean ones observed by the right models."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet.simulation.observe import Observation
from evidencenet.simulation.paths import are_paths, check_models, in_pieces, read_whole


def noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    return clean + rng.normal(size=clean.shape)


def clean_models() -> list[en.Model]:
    return [
        en.Model("zero", lambda rng, n: rng.normal(size=(n, 2)), observe=noise),
        en.Model("one", lambda rng, n: 1 + rng.normal(size=(n, 2)), observe=noise),
    ]


def plain_models() -> list[en.Model]:
    return [replace(model, observe=None) for model in clean_models()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paths") / "clean.zarr"
    for n in (900, 5_300):
        # A store that has grown holds several chunks of each model.
        en.simulate(clean_models(), n, seed=1, store=path, progress=False)
    return path


LIMITS: dict[str, Any] = {"draws": 1_000_000, "size": 2**29}


def test_only_what_is_large_is_read_in_pieces(store: Path, tmp_path: Path) -> None:
    models = clean_models()
    assert are_paths(store)
    assert are_paths([str(store), store])
    assert not are_paths([])
    assert not are_paths(en.Simulations.read(store, observe=models))
    assert in_pieces(store, models, **LIMITS) is None
    few = in_pieces(store, models, draws=2_000, size=2**29)
    assert few is not None
    assert few.size == 2_000
    assert few.stored.totals == (2_650, 2_650)
    # 16 bytes a draw; at least 1,000 draws.
    by_size = in_pieces(store, models, draws=10**6, size=16 * 3_000)
    assert by_size is not None
    assert by_size.size == 3_000
    sims = read_whole(store, models)
    np.testing.assert_array_equal(sims.x, en.simulate(models, 5_300, seed=1, progress=False).x)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.zarr"):
        read_whole([store, tmp_path / "none.zarr"], models)
    # A list of one path is that path.
    np.testing.assert_array_equal(read_whole([store], models).x, sims.x)
    sims.write(tmp_path / "clean.npz")
    assert in_pieces(tmp_path / "clean.npz", models, draws=10, size=10) is None
    np.testing.assert_array_equal(read_whole(tmp_path / "clean.npz", models).x, sims.x)


def test_draws_that_cannot_be_read_in_pieces_are_read_whole(tmp_path: Path) -> None:
    def gaps(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random((n, 3)) < 0.2, np.nan, rng.normal(size=(n, 3)))

    path = tmp_path / "gaps.zarr"
    models = [en.Model("a", gaps), en.Model("b", gaps)]
    sims = en.simulate(models, 4_000, seed=1, missing="mask", store=path, progress=False)
    assert in_pieces(path, None, draws=10, size=10) is None
    found = read_whole(path, None)
    assert isinstance(sims.x, dict)
    assert isinstance(found.x, dict)
    for key, array in sims.x.items():
        np.testing.assert_array_equal(found.x[key], array)
    # Models without `observe` change nothing.
    assert read_whole(path, models).masked == found.masked


def test_noise_in_pieces_is_the_noise_of_all_at_once(store: Path) -> None:
    models = clean_models()
    sims = en.Simulations.read(store, observe=models)
    observation = Observation.of(models, sims.names)
    assert observation is not None
    for k in (0, 1):
        clean = np.asarray(sims.clean)[sims.model == k]
        for cuts in ([], [1_000], [7, 8, 999, 1_500, 2_649], list(range(300, 2_650, 300))):
            pieces = np.split(clean, cuts)
            found = np.concatenate(list(observation.realise_pieces(k, iter(pieces), sims.noise_seed)))
            np.testing.assert_array_equal(found, sims.of(k))
    other = np.concatenate(list(observation.realise_pieces(0, iter([clean]), 2)))
    assert not np.any(other == sims.of(0))


def test_models_that_do_not_fit_the_draws_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"clean\.zarr holds clean draws.*--models models\.py"):
        check_models(store, None)
    with pytest.raises(ValueError, match="clean draws of 'zero', and the model that is given has no observe"):
        check_models(store, plain_models())
    with pytest.raises(ValueError, match=r"draws are of 'zero', 'one', and .* are 'one', 'zero'"):
        read_whole(store, clean_models()[::-1])
    with pytest.raises(FileError, match=r"a list of 2 functions or models.* of 1"):
        read_whole(store, clean_models()[:1])
    for wrong in (noise, [noise, noise], [], "models.py"):
        with pytest.raises(TypeError, match="models must be the list of Model"):
            check_models(store, wrong)
    ready = tmp_path / "ready.zarr"
    en.simulate(plain_models(), 100, store=ready, progress=False)
    check_models(ready, None)
    check_models(ready, plain_models())
    with pytest.raises(ValueError, match="'zero' that were simulated without observe"):
        check_models(ready, clean_models())
    # It is a choice that can be made.
    sims = en.Simulations.read(ready, observe=clean_models())
    assert np.var(np.asarray(sims.of(0))) == pytest.approx(2, abs=4 * 2 * np.sqrt(2 / 100))


def test_a_file_of_clean_draws_needs_models_that_observe(tmp_path: Path) -> None:
    path = tmp_path / "clean.npz"
    en.simulate(clean_models(), 100, progress=False).write(path)
    for models in (None, plain_models()):
        with pytest.raises(ValueError, match=r"holds clean draws.*with their observe"):
            read_whole(path, models)
    with pytest.raises(ValueError, match="wanted the same models in the same order"):
        read_whole(path, clean_models()[::-1])
    # Nothing names these draws, so the order counts.
    np.savez(tmp_path / "theirs.npz", x=np.zeros((10, 2)), model=np.arange(10) % 2)
    assert read_whole(tmp_path / "theirs.npz", clean_models()).clean is not None
