"""Rare draws in a store: an interrupted run goes on to the same draws, and nothing else is continued."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet.rare import draw
from evidencenet.rare.split import split
from evidencenet.rare.store import LevelStore
from evidencenet.simulation.workers import WorkerError
from executors import Dying, Pickling

RATES = (1.0, 0.4)
QUICK = {"n": 200, "reach": 4.0, "seed": 3, "progress": False}


def models(allowed: float = np.inf) -> list[en.Model]:
    """Three exponential times of one of two rates; Ctrl-C comes after so many calls of the simulator."""
    left = [allowed]  # In a list, so that the code of the simulator is the same for all numbers.

    def times(rate: float) -> Any:
        def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return rng.exponential(1 / rate, size=(n, 3))

        return simulate

    return [en.Model(f"rate {rate}", times(rate)) for rate in RATES]


@pytest.fixture(scope="module")
def net() -> en.EvidenceNetwork:
    sims = en.simulate(models(), 4_000, seed=1, progress=False)
    recipe = en.Recipe(epochs=3)
    network = en.networks.Dense()
    return en.train(
        sims, network=network, recipe=recipe, members=1, learn_error=False, seed=2, progress=False
    )


def test_an_interrupted_run_goes_on_to_the_same_draws(net: en.EvidenceNetwork, tmp_path: Path) -> None:
    wanted = en.rare_draws(net, models(), **QUICK)  # type: ignore[arg-type]
    interrupted = 0
    for allowed in (150, 350, 10_000):
        try:
            found = en.rare_draws(net, models(allowed), store=tmp_path / "draws", **QUICK)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted == 2
    np.testing.assert_array_equal(found.x, wanted.x)
    np.testing.assert_array_equal(found.score, wanted.score)
    assert found.calls == wanted.calls
    assert str(found) == str(wanted)


def test_single_draws_of_unequal_calls_are_kept_too(tmp_path: Path) -> None:
    def simulate(rng: np.random.Generator) -> np.ndarray:
        return np.array([sum(rng.normal() for _ in range(rng.poisson(0.8)))])

    model = en.Model("sum", simulate, kind="one")

    def first(x: Any) -> np.ndarray:
        return x[:, 0]

    kept = LevelStore(tmp_path / "levels", {"seed": 1})
    wanted = split(model, first, n=60, replicates=3, moves=2, reach=3.0, seed=1)
    split(model, first, n=60, replicates=3, moves=2, reach=3.0, seed=1, calls=300, store=kept)
    found = split(model, first, n=60, replicates=3, moves=2, reach=3.0, seed=1, store=kept)
    np.testing.assert_array_equal(found.x, wanted.x)
    np.testing.assert_array_equal(found.fraction, wanted.fraction)


def test_deepen_goes_on_where_it_stopped(net: en.EvidenceNetwork, tmp_path: Path) -> None:
    options: dict[str, Any] = QUICK | {"recipe": en.Recipe(epochs=1), "learn_error": False, "rounds": 2}
    place = tmp_path / "deep"
    with pytest.raises(KeyboardInterrupt):
        en.deepen(net, models(1_500), store=place, **options)
    assert (place / "round-1" / "net.evnet").exists()
    deep = en.deepen(net, models(), store=place, **options)
    wanted = en.deepen(net, models(), **options)
    x = np.linspace(0.5, 12, 30).reshape(10, 3)
    np.testing.assert_array_equal(deep.log_bayes_factor(x), wanted.log_bayes_factor(x))
    assert deep.depth is not None
    assert wanted.depth is not None
    assert deep.depth.calls == wanted.depth.calls
    with pytest.raises(FileError, match="seed is 3 there and 4 here"):
        en.deepen(net, models(), store=place, **options | {"seed": 4})


def test_foreign_folders_and_damage(net: en.EvidenceNetwork, tmp_path: Path) -> None:
    place = tmp_path / "draws"
    first = en.rare_draws(net, models(), store=place, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(FileError, match="n is 200 there and 300 here"):
        en.rare_draws(net, models(), store=place, **QUICK | {"n": 300})  # type: ignore[arg-type]
    (place / "model-0" / "level-001.rare").write_bytes(b"nothing")
    with pytest.warns(en.EvidenceWarning, match="drawn again"):
        again = en.rare_draws(net, models(), store=place, **QUICK)  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.x, first.x)
    shutil.rmtree(place / "model-0")
    (place / "model-0").mkdir()
    (place / "model-0" / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match="not a store of rare draws"):
        en.rare_draws(net, models(), store=place, **QUICK)  # type: ignore[arg-type]


def test_processes_draw_the_same(net: en.EvidenceNetwork) -> None:
    """Random numbers belong to the move, and not to the worker."""
    options = QUICK | {"reach": 2.0}
    wanted = en.rare_draws(net, models(), **options)  # type: ignore[arg-type]
    with joblib.parallel_config(backend="loky"):
        found = en.rare_draws(net, models(), workers=2, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.x, wanted.x)


def test_any_executor_draws_the_same(net: en.EvidenceNetwork, tmp_path: Path) -> None:
    options: dict[str, Any] = QUICK | {"reach": 2.0}
    wanted = en.rare_draws(net, models(), **options)
    pool = Pickling()
    found = en.rare_draws(net, models(), executor=pool, **options)
    np.testing.assert_array_equal(found.x, wanted.x)
    np.testing.assert_array_equal(found.score, wanted.score)
    # Ten runs of each model, for plain draws and for every move.
    assert pool.tasks == 10 * sum(1 + 6 * (len(levels.threshold) - 1) for levels in found.levels)
    with ThreadPoolExecutor(2) as threads:
        again = en.rare_draws(net, models(), executor=threads, **options)
        with pytest.raises(KeyboardInterrupt):
            en.rare_draws(net, models(150), executor=threads, store=tmp_path / "draws", **options)
    np.testing.assert_array_equal(again.x, wanted.x)
    # What it left is continued without the executor.
    assert list((tmp_path / "draws" / "model-0").glob("level-*"))
    rest = en.rare_draws(net, models(), store=tmp_path / "draws", **options)
    np.testing.assert_array_equal(rest.x, wanted.x)
    for bad, message in ((3, r"executor=3; wanted an object with submit\(\)"), ("dask", "executor='dask'")):
        with pytest.raises(TypeError, match=message):
            en.rare_draws(net, models(), executor=bad, **options)
        with pytest.raises(TypeError, match=message):
            en.deepen(net, models(), executor=bad, **options)
    with pytest.raises(TypeError, match="give it as executor="):
        en.rare_draws(net, models(), workers=pool, **options)  # type: ignore[arg-type]


def test_a_worker_that_dies_is_forgiven_once(net: en.EvidenceNetwork) -> None:
    options: dict[str, Any] = QUICK | {"reach": 2.0}
    found = en.rare_draws(net, models(), executor=Dying(1), **options)
    np.testing.assert_array_equal(found.x, en.rare_draws(net, models(), **options).x)
    with pytest.raises(WorkerError, match=r"died twice in level 0 of model .*workers=1 to see more"):
        en.rare_draws(net, models(), executor=Dying(10**9), **options)
    with pytest.raises(WorkerError, match=r"died in level 0 of model .*make a new one"):
        en.rare_draws(net, models(), executor=Dying(1, broken=True), **options)


def test_progress_tells_where_it_is(net: en.EvidenceNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, dict[str, str]]] = []

    class Recorder:
        def __init__(self, title: str, total: int, *, enabled: bool) -> None:
            self.total = total

        def __enter__(self) -> "Recorder":
            return self

        def __exit__(self, *reason: object) -> None:
            assert shown[-1][0] == self.total

        def update(self, done: int, **fields: str) -> None:
            shown.append((done, fields))

    monkeypatch.setattr(draw, "Progress", Recorder)
    rare = en.rare_draws(net, models(), **QUICK)  # type: ignore[arg-type]
    done = [number for number, _ in shown]
    assert done == sorted(done)
    # After each move of each level, the plain ones apart; and at the end.
    moves = sum((len(levels.threshold) - 1) * draw.MOVES for levels in rare.levels)
    assert len(shown) == moves + 1
    assert set(shown[0][1]) == {"model", "level", "score", "log_p", "accepted", "calls"}
    last = shown[-2][1]
    assert last["model"] == "rate 0.4"
    assert last["level"] == str(len(rare.levels[1].threshold) - 1)
    assert float(last["score"]) == pytest.approx(rare.levels[1].threshold[-1], abs=0.1)
    assert float(last["log_p"]) == pytest.approx(rare.levels[1].log_p[-1], abs=0.5)


def test_deepen_keeps_to_its_budget(net: en.EvidenceNetwork) -> None:
    options: dict[str, Any] = QUICK | {"recipe": en.Recipe(epochs=1), "learn_error": False}
    deep = en.deepen(net, models(), calls=20_000, **options)
    assert deep.depth is not None
    # Too few for two rounds.
    assert deep.depth.rounds == 1
    assert 12_000 < deep.depth.calls <= 20_000
    with pytest.raises(ValueError, match="wanted at least 8,480"):
        en.deepen(net, models(), calls=5_000, **options)
