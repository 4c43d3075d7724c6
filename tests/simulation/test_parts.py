"""Many jobs fill one store: in any order, interrupted or not, they make the same draws, and each once."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet.simulation import jobs
from evidencenet.simulation.chunks import join_chunks
from evidencenet.simulation.store import Store, stored

pytestmark = pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")


class Calls:
    """Which draws were made, by the first random number of their call; one of them may be interrupted."""

    def __init__(self, stop_at: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.made: list[float] = []
        self.stop_at, self.error = stop_at, error

    def models(self, failing: float = 0.2) -> list[en.Model]:
        def draw(rng: np.random.Generator) -> np.ndarray:
            x = rng.normal(size=3)
            self.made.append(float(x[0]))
            if len(self.made) == self.stop_at:
                raise self.error
            return x if rng.random() >= failing else np.full(3, np.nan)

        def batch(rng: np.random.Generator, n: int) -> np.ndarray:
            return rng.normal(size=(n, 3))

        return [en.Model("fails", draw, kind="one"), en.Model("whole", batch)]


OPTIONS: dict[str, Any] = {"seed": 5, "progress": False}
N = 400


def draw_part(number: int, of: int, store: Path, calls: Calls | None = None, n: int = N) -> en.Status:
    there = en.simulate((calls or Calls()).models(), n, part=(number, of), store=store, **OPTIONS)
    # For type checkers too, and without `part` it is something else.
    assert_type(there, en.Status)
    assert isinstance(there, en.Status)
    return there


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 1, 2]])
def test_parts_make_each_draw_once_and_the_same_draws(tmp_path: Path, order: list[int]) -> None:
    expected = en.simulate(Calls().models(), N, seed=OPTIONS["seed"], progress=False)
    assert_type(expected, en.Simulations)
    store, calls = tmp_path / "draws.zarr", Calls()
    for number in order[:-1]:
        there = draw_part(number, 3, store, calls)
        assert not there.complete
        assert there.not_begun != ()
    there = draw_part(order[-1], 3, store, calls)
    assert there.complete
    assert [job.state for job in there.jobs] == ["done"] * 3
    assert there.not_begun == ()
    assert len(set(calls.made)) == len(calls.made)
    # A job replaces its own failed draws, and the last one all that are then missing: few are made in vain.
    assert len(calls.made) <= 1.3 * expected.drawn[0]
    again = Calls()
    for sims in (en.Simulations.read(store), en.simulate(again.models(), N, store=store, **OPTIONS)):
        np.testing.assert_array_equal(sims.x, expected.x)
        assert sims.failed == expected.failed
    assert again.made == []


def test_jobs_that_are_interrupted_and_started_again(tmp_path: Path) -> None:
    store, calls = tmp_path / "draws.zarr", Calls(stop_at=30)
    with pytest.raises(KeyboardInterrupt):
        en.simulate(calls.models(), N, part="2/2", store=store, chunk=4, **OPTIONS)
    there = en.status(store)
    assert [job.state for job in there.jobs] == ["stopped"]
    assert there.not_begun == (1,)
    assert "Start the parts 1-2, or" in str(there)
    assert f"process {there.jobs[0].process}: stopped at" in str(there)
    draw_part(1, 2, store, calls)
    assert draw_part(2, 2, store, calls).complete
    # Only the chunk in which it was interrupted was made again.
    assert 1 <= len(calls.made) - len(set(calls.made)) <= 4
    np.testing.assert_array_equal(en.Simulations.read(store).x, en.simulate(Calls().models(), N, **OPTIONS).x)


def test_a_call_without_part_completes_what_jobs_left(tmp_path: Path) -> None:
    store, calls = tmp_path / "draws.zarr", Calls()
    draw_part(3, 4, store, calls)
    with pytest.raises(FileError, match="is not complete: 'fails' lacks"):
        en.Simulations.read(store)
    there = en.status(store)
    assert there.models[1].gaps == ((0, 100),)
    assert "not drawn yet of whole: draws 0 to 99\n" in str(there)
    sims = en.simulate(calls.models(), N, store=store, **OPTIONS)
    assert len(set(calls.made)) == len(calls.made)
    np.testing.assert_array_equal(sims.x, en.simulate(Calls().models(), N, **OPTIONS).x)
    assert en.status(store).complete


def test_draws_that_are_missing_on_both_sides(tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    there = draw_part(2, 3, store, n=600)
    whole = there.models[1]
    assert (whole.valid, whole.gaps, whole.end, whole.missing) == (100, ((0, 100),), 200, 200)
    assert "not drawn yet of whole: draws 0 to 99, and from 200 on\n" in str(there)
    # Draws behind the gap are not read, but they are not missing either.
    with pytest.raises(FileError, match="'whole' lacks 200 of 300 draws"):
        en.Simulations.read(store)
    assert "not drawn yet of whole: draws from 200 on\n" in str(draw_part(1, 3, store, n=600))


def test_many_jobs_at_the_same_time_and_one_of_them_twice(tmp_path: Path) -> None:
    store, found = tmp_path / "draws.zarr", []
    numbers = [1, 2, 3, 4, 4]
    barrier = threading.Barrier(len(numbers), timeout=60)

    def run(number: int) -> None:
        barrier.wait()
        found.append(draw_part(number, 4, store))

    threads = [threading.Thread(target=run, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(numbers)
    assert en.status(store, check=True).damaged == ()
    sims = en.simulate(Calls().models(), N, store=store, **OPTIONS)
    np.testing.assert_array_equal(sims.x, en.simulate(Calls().models(), N, **OPTIONS).x)


def test_a_job_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "draws.zarr"
    script = """
import os, sys
import numpy as np
import evidencenet as en

def draw(rng):
    if len(made) == 20:
        os.kill(os.getpid(), 9)
    made.append(1)
    return rng.normal(size=2)

made = []
en.simulate([en.Model("a", draw, kind="one")], 60, part="1/2", store=sys.argv[1], progress=False)
"""
    finished = subprocess.run([sys.executable, "-c", script, store], check=False)
    assert finished.returncode == -9
    assert "jobs: 1 running" in str(en.status(store))
    monkeypatch.setattr(jobs.time, "time", lambda now=time.time: now() + 3600)
    assert "no sign for 60 minutes" in str(en.status(store))
    assert "Start the parts 1-2, or" in str(en.status(store))


def test_a_job_that_failed(tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    with pytest.raises(en.SimulationError):
        en.simulate(Calls().models(failing=1.0), N, part=(2, 3), store=store, **OPTIONS)
    there = en.status(store)
    assert there.jobs[0].state == "failed"
    assert "part 2/3 on " in str(there)
    assert "failed: SimulationError: model 'fails': " in str(there)
    assert there.models[0].valid == 0


def test_what_the_last_job_cannot_know_is_drawn_by_one(tmp_path: Path) -> None:
    """A claim on the rest by a job that runs is respected; by one that was killed it is not."""
    store = tmp_path / "draws.zarr"
    draw_part(1, 2, store)
    first, second = jobs.Part(1, 2), jobs.Part(2, 2)
    shares = (200, 200)
    with jobs.JobRecord(store, first, shares):
        assert jobs.claimed(store, first, shares)
        assert not jobs.claimed(store, second, shares)
        assert jobs.claimed(store, first, shares)
    assert jobs.claimed(store, second, shares)


def test_slow_draws_leave_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that are written every few seconds are put together."""
    monkeypatch.setattr("evidencenet.simulation.writer._WRITE_SECONDS", 0.0)
    model = en.Model("slow", lambda rng: rng.normal(size=2), kind="one")
    store = tmp_path / "draws.zarr"
    calls: list[int] = []

    def noted(rng: np.random.Generator) -> np.ndarray:
        if len(calls) == 75:
            raise KeyboardInterrupt
        calls.append(1)
        return rng.normal(size=2)

    with pytest.raises(KeyboardInterrupt):
        en.simulate([en.Model("slow", noted, kind="one")], 100, chunk=5, store=store, **OPTIONS)
    opened = stored(store)[0]
    # Fifteen chunks of five draws: at most as many are left as 15 has binary digits.
    assert len(opened.pieces(0).pieces) <= 4
    assert opened.pieces(0).prefix == (75, 75)
    with pytest.warns(en.EvidenceWarning, match="code of model 'slow' has changed"):
        sims = en.simulate([model], 100, chunk=5, store=store, **OPTIONS)
    np.testing.assert_array_equal(sims.x, en.simulate([model], 100, **OPTIONS).x)
    np.testing.assert_array_equal(en.Simulations.read(store).x, sims.x)
    assert len(opened.pieces(0).pieces) <= 5


def test_files_do_not_grow_with_the_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job leaves one chunk of a model, for every 64 MB, however many it has written."""
    monkeypatch.setattr("evidencenet.simulation.writer._WRITE_SECONDS", 0.0)
    models = [en.Model(name, lambda rng: rng.normal(size=2), kind="one") for name in ("a", "b")]

    def files(name: str, n: int) -> int:
        store = tmp_path / f"{name}.zarr"
        for number in (1, 2):
            there = en.simulate(models, n, part=(number, 2), store=store, chunk=10, seed=5, progress=False)
        assert there.complete
        np.testing.assert_array_equal(
            en.Simulations.read(store).x, en.simulate(models, n, seed=5, progress=False).x
        )
        return there.files

    few = files("few", 80)
    assert files("many", 240) == few
    opened = stored(tmp_path / "many.zarr")[0]
    assert [len(opened.pieces(k).pieces) for k in (0, 1)] == [2, 2]
    # Data and valid draws are five files of a chunk; each job has a record.
    assert few <= 4 * 5 + 2 + 5
    # The same number of writes, of which none is put together with others.
    monkeypatch.setattr("evidencenet.simulation.writer._MERGED_BYTES", 0)
    assert files("apart", 80) > 1.8 * few


def test_two_processes_cannot_spoil_a_chunk(tmp_path: Path) -> None:
    """Both write the same chunks, again and again; whoever reads meanwhile finds whole ones, or none."""
    store, models = tmp_path / "draws.zarr", Calls().models(failing=0.0)
    expected = en.simulate(models, 40, store=store, **OPTIONS)
    script = """
import sys
from pathlib import Path
from evidencenet.simulation.store import stored

store = stored(Path(sys.argv[1]))[0]
chunks = [store.read(k, 0) for k in (0, 1)]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(40):
    for k, chunk in enumerate(chunks):
        store.write(k, 0, chunk)
"""
    command = [sys.executable, "-c", script, str(store)]
    pipe = subprocess.PIPE
    writers = [subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    opened, found = stored(store)[0], 0
    while any(writer.poll() is None for writer in writers):
        for k in (0, 1):
            # A damaged chunk would be a warning, and so an error here.
            chunk = opened.read(k, 0)
            if chunk is not None:
                np.testing.assert_array_equal(chunk.x, expected.of(k))
                found += 1
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert found > 10
    assert en.status(store, check=True).damaged == ()
    np.testing.assert_array_equal(en.Simulations.read(store).x, expected.x)
    # Nothing is left over of the folders in which chunks are written.
    assert {path.name for path in (store / "0").iterdir()} == {"0", "zarr.json"}


def test_a_store_is_read_while_chunks_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks that a reader has listed are gone when it comes to them."""
    monkeypatch.setattr("evidencenet.simulation.writer._WRITE_SECONDS", 0.0)
    monkeypatch.setattr("evidencenet.simulation.writer._MERGED_BYTES", 0)
    path = tmp_path / "draws.zarr"
    expected = en.simulate([en.Model("a", lambda rng, n: rng.normal(size=(n, 2)))], 40, chunk=10, store=path)
    read, opened = Store.read, stored(path)[0]

    def reading(store: Store, model: int, start: int, max_bytes: int | None = None) -> Any:
        chunk = read(store, model, start, max_bytes)
        if start == 0 and len(opened.pieces(0).pieces) == 4:
            parts = [read(store, model, first) for first in (0, 10, 20, 30)]
            store.write(model, 0, join_chunks([part for part in parts if part is not None], model_a))
            for first in (10, 20, 30):
                store.remove(model, first, 40)
        return chunk

    model_a = en.Model("a", lambda rng, n: rng.normal(size=(n, 2)))
    monkeypatch.setattr(Store, "read", reading)
    np.testing.assert_array_equal(en.Simulations.read(path).x, expected.x)
    assert [piece.stop for piece in opened.pieces(0).pieces] == [40]


def test_a_shorter_chunk_does_not_replace_a_longer_one(tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    en.simulate(Calls().models(failing=0.0), N, store=store, **OPTIONS)
    opened = stored(store)[0]
    whole = opened.read(1, 0)
    assert whole is not None
    en.simulate(Calls().models(failing=0.0), 40, store=tmp_path / "short.zarr", **OPTIONS)
    few = stored(tmp_path / "short.zarr")[0].read(1, 0)
    assert few is not None
    opened.write(1, 0, few)
    kept = opened.read(1, 0)
    assert kept is not None
    assert len(kept.valid) == len(whole.valid) > len(few.valid)
    # Unless it is damaged.
    for file in (store / "1" / "0" / "x" / "c").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    assert en.status(store, check=True).damaged == ((1, 0),)
    assert "damaged: the chunk at draw 0 of whole" in str(en.status(store, check=True))
    opened.write(1, 0, few)
    mended = opened.read(1, 0)
    assert mended is not None
    assert len(mended.valid) == len(few.valid)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"part": (0, 3)}, r"part is 0 of 3; parts are counted from 1 to 3. .* counts from 0, add 1"),
        ({"part": (4, 3)}, "counted from 1 to 3"),
        ({"part": "3"}, r"part must be two numbers, such as \(3, 20\) or '3/20', got '3'"),
        ({"part": 3}, "part must be two numbers"),
        ({"store": None}, "needs store=: all parts draw into one store"),
        ({"seed": None}, "needs a seed: all parts draw into one store, from one seed"),
    ],
)
def test_bad_parts(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"part": (1, 3), "store": tmp_path / "draws.zarr", **OPTIONS} | change
    with pytest.raises(ValueError, match=message):
        en.simulate(Calls().models(), N, **given)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    draw_part(1, 3, store)
    with pytest.raises(FileError, match="seed is 5 there and 6 here"):
        en.simulate(Calls().models(), N, part=(2, 3), store=store, seed=6, progress=False)


def test_status_of_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no store"):
        en.status(tmp_path / "none.zarr")
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(FileError):
        en.status(tmp_path / "a.zarr")


def test_attributes_that_are_looked_for_in_a_status(tmp_path: Path) -> None:
    there: Any = draw_part(1, 2, tmp_path / "draws.zarr")
    for name, meant in (("done", "complete"), ("missing", r"models\[0\]\.missing"), ("job", "jobs")):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Did you mean {meant}"):
            getattr(there, name)


def test_a_forged_record_of_a_job_is_left_out(tmp_path: Path) -> None:
    store = tmp_path / "draws.zarr"
    draw_part(1, 2, store)
    record = store / "jobs" / "1-of-2" / "zarr.json"
    record.write_text(record.read_text().replace('"part": 1', '"part": {"a": 1}'))
    assert en.status(store).jobs == ()
