"""Atomic writes: all or nothing, whoever kills, fills the disk or writes at the same time."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evidencenet._common import atomic
from evidencenet._common.atomic import created_folder, moved, removed, replaced, write_text


def test_old_or_new_but_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with contextlib.suppress(KeyboardInterrupt), replaced(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_exchanged_without_a_moment_without_one(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    missing, stop = [], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            try:
                content = (path / "number").read_text()
            except FileNotFoundError:
                missing.append(1)
            else:
                assert content.isdigit()

    for i in range(2):
        with replaced(path) as partial:
            partial.mkdir()
            (partial / "number").write_text(str(i))
    if atomic._exchange_call() is None:
        pytest.skip("this system cannot exchange two folders in one step")
    watcher = threading.Thread(target=watch)
    watcher.start()
    for i in range(100):
        with replaced(path) as partial:
            partial.mkdir()
            (partial / "number").write_text(str(i))
    stop.set()
    watcher.join()
    assert not missing
    assert (path / "number").read_text() == "99"
    assert list(tmp_path.iterdir()) == [path]


def test_without_the_exchange_a_folder_is_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_exchange_call", lambda: None)
    path = tmp_path / "a.zarr"
    for i in range(3):
        with replaced(path) as partial:
            partial.mkdir()
            (partial / str(i)).touch()
    assert [entry.name for entry in path.iterdir()] == ["2"]
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_killed_process_are_removed_but_not_those_in_use(tmp_path: Path) -> None:
    path = tmp_path / "a[1].txt"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from evidencenet._common.atomic import replaced\n"
        "with replaced(Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half')\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    write_text(path, "other")  # the first process is still writing
    assert len(list(tmp_path.glob(".*.partial"))) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(list(tmp_path.glob(".*.partial"))) == 1
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_where_locks_do_not_work_age_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_lock", lambda descriptor, *, wait: None)
    path = tmp_path / "a"
    young, old = tmp_path / ".a.1.partial", tmp_path / ".a.2.partial"
    young.mkdir()
    old.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    write_text(path, "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".a.1.partial", "a"]


def test_threads_that_write_one_path(tmp_path: Path) -> None:
    path, errors = tmp_path / "a", []
    barrier = threading.Barrier(8)

    def run(i: int) -> None:
        barrier.wait()
        for j in range(15):
            try:
                write_text(path, f"{i} {j}" * 1_000)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(path.read_text().split())) <= 3
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("Can't write data (errno = 28, error message = 'No space left on device')"),
    ],
)
def test_a_full_disk_is_told_with_path_space_and_advice(tmp_path: Path, error: OSError) -> None:
    path = tmp_path / "a.h5"
    with (
        pytest.raises(
            OSError, match=r"cannot write .*a\.h5: the disk is full.*5\.0 MB; .* are free.*Make room"
        ) as e,
        replaced(path, 5_000_000),
    ):
        raise error
    assert e.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="the disk is full, or your quota"):
            write_text(tmp_path / "a", "x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_other_errors_name_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_text(tmp_path / "none" / "a", "")
    with (
        pytest.raises(PermissionError, match=r"cannot write .*/a: Permission denied"),
        replaced(tmp_path / "a"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "elsewhere")


def test_a_folder_is_made_only_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert created_folder(path, {"name": b"first"})
    assert not created_folder(path, {"name": b"second"})
    assert (path / "name").read_bytes() == b"first"
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    assert created_folder(tmp_path / "link", {"name": b"first"})
    assert (tmp_path / "empty" / "name").exists()
    (tmp_path / "file").touch()
    assert not created_folder(tmp_path / "file", {"name": b"first"})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "empty", "file", "link"]


def test_of_many_processes_one_makes_the_folder(tmp_path: Path) -> None:
    made: list[bool] = []
    barrier = threading.Barrier(8)

    def run(i: int) -> None:
        barrier.wait()
        made.append(created_folder(tmp_path / "a", {"name": str(i).encode()}))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_folder_is_removed_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    removed(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link", tmp_path / "far" / "a.txt"
    link.symlink_to(target)
    for text in ("old", "new"):  # first there is no target
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "far", "link"]


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for path in (tmp_path / "pipe", tmp_path / "null", Path("/dev/null")):
        with pytest.raises(OSError, match=r"cannot write .*: it is a device, pipe or socket.*name of a file"):
            write_text(path, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["null", "pipe"]


@pytest.mark.parametrize("name", ["a" * 255, "模" * 80, "a[1]*?.txt", "-", " ", "a\nb"])
def test_names_of_any_length(tmp_path: Path, name: str) -> None:
    with contextlib.suppress(KeyboardInterrupt), replaced(tmp_path / name):
        raise KeyboardInterrupt
    write_text(tmp_path / name, "text")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_finished_folder_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    new, path = tmp_path / "new", tmp_path / "a.zarr"
    for i in range(3):
        new.mkdir()
        (new / str(i)).touch()
        moved(new, path)
        assert [entry.name for entry in path.iterdir()] == [str(i)]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "file", "a")
        created_folder(tmp_path / "once", {"a": b"a"})
        for _ in range(2):
            with replaced(tmp_path / "folder") as partial:
                partial.mkdir()
                (partial / "inside").touch()
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask
