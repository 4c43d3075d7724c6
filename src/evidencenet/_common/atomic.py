"""Write a file or a folder so that it is there as a whole or not at all.

Everything is first written into a temporary folder beside its place, and moved when it is complete. A killed
process, a full disk or an exception therefore leaves the old file as it was.

What is promised: when a function of this module returns, the data and the new name have been handed to the
disk (fsync of every file, of the folder, and of the folder above). After a loss of power one finds the old
content or the new content, never a mixture, provided that the disk does what it reports.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

# Where locks do not work (some network file systems), temporary folders older than this are left over from a
# crash. No single save takes an hour.
_SECONDS_UNTIL_ABANDONED = 3600.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# From <linux/fs.h> and <sys/stdio.h>; both mean "exchange the two names".
_RENAME_EXCHANGE, _RENAME_SWAP = 2, 2
_AT_FDCWD = -100


@contextlib.contextmanager
def replaced(path: Path, needed: int | None = None) -> Iterator[Path]:
    """Give a temporary path to write to; what was written there replaces `path` if no exception is raised.

    The temporary file or folder has the same name as `path`, inside a hidden folder beside it. Temporary
    folders that killed processes left behind for the same path are removed.

    Parameters
    ----------
    path
        The file or folder to write.
    needed
        How many bytes will be written, for the message if the disk is full.

    Raises
    ------
    FileNotFoundError
        The folder of `path` does not exist.
    OSError
        It cannot be written; the message says why, and what was at `path` is unchanged.

    Examples
    --------
    >>> with replaced(Path("notes.txt")) as partial:  # doctest: +SKIP
    ...     partial.write_text("all of it")
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}. Make it first.")
    try:
        remove_leftovers(path)
        with _temporary_folder(path) as folder:
            partial = folder / path.name
            yield partial
            _to_disk(partial)
            _put(partial, path)
            _sync(path.parent)
    except Exception as error:
        if _is_full(error):
            raise _full_disk(path, needed) from error
        if isinstance(error, OSError) and error.errno is not None and str(path) not in str(error):
            raise type(error)(error.errno, f"cannot write {path}: {error.strerror}") from error
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file of bytes; an existing one is replaced only when all is written."""
    with replaced(path, len(content)) as partial:
        partial.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file; an existing one is replaced only when all is written."""
    write_bytes(path, text.encode("utf-8"))


def created(path: Path, content: bytes) -> bool:
    """Write a file unless there is one already; of two processes only one succeeds.

    Returns
    -------
    bool
        False if the file was there already.
    """
    with _temporary_folder(path) as folder:
        partial = folder / path.name
        partial.write_bytes(content)
        _to_disk(partial)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        except OSError:
            # Not every file system has links. Then two processes at the same moment may both succeed.
            if path.exists():
                return False
            os.replace(partial, path)
        _sync(path.parent)
    return True


def remove(path: Path) -> None:
    """Remove a file or a folder so that others see all of it or nothing; it may be gone already."""
    with _temporary_folder(path) as folder, contextlib.suppress(FileNotFoundError):
        path.rename(folder / path.name)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders that killed processes left behind when they wrote `path`."""
    for folder in path.parent.glob(f".{_escaped(path.name)}.*.partial"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                if _is_abandoned(folder, descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Make a hidden folder beside `path`, locked while it is in use, so that others can tell it is."""
    folder, descriptor = _locked_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            # After an interrupt, a thread of Zarr may still have been writing.
            time.sleep(0.1)
            shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _locked_folder(path: Path) -> tuple[Path, int | None]:
    while True:
        folder = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.partial")
        folder.mkdir()
        if sys.platform == "win32":
            return folder, None
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            # Another process took it for a leftover before it was locked.
            continue
        _lock(descriptor, wait=True)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return folder, descriptor
        os.close(descriptor)


def _is_abandoned(folder: Path, descriptor: int) -> bool:
    """Whether nobody is writing here any more: the lock of a process ends with the process."""
    locked = _lock(descriptor, wait=False)
    if locked is None:
        return time.time() - folder.stat().st_mtime > _SECONDS_UNTIL_ABANDONED
    return locked


def _lock(descriptor: int, *, wait: bool) -> bool | None:
    """Lock an open folder; False if another process holds the lock, None if locks do not work here."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _to_disk(place: Path) -> None:
    """Hand a file, or a folder with all that is in it, to the disk."""
    if not place.is_dir():
        _sync(place)
        return
    for folder, _, names in os.walk(place):
        for name in names:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def _sync(place: Path) -> None:
    if sys.platform == "win32" and place.is_dir():
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a folder; a failing disk is another matter.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _put(partial: Path, path: Path) -> None:
    """Move a file or folder to its place."""
    if not partial.is_dir():
        os.replace(partial, path)
        return
    if not path.exists():
        try:
            partial.rename(path)
            return
        except OSError as error:
            # Another process may just have put its own there.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    _exchange(partial, path)


def _exchange(new: Path, old: Path) -> None:
    """Exchange two folders. Where the system can do it in one step, there is no moment without one."""
    exchange = _exchange_call()
    if exchange is not None and exchange(os.fsencode(new), os.fsencode(old)) == 0:
        return
    aside = new.with_name(f"{new.name}.old")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise


@cache
def _exchange_call() -> Callable[[bytes, bytes], int] | None:
    """Return the system's call that exchanges two paths; None if it has none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            swap = library.renamex_np
            return lambda new, old: int(swap(new, old, _RENAME_SWAP))
        exchange = library.renameat2
    except (OSError, AttributeError, TypeError):
        return None
    return lambda new, old: int(exchange(_AT_FDCWD, new, _AT_FDCWD, old, _RENAME_EXCHANGE))


def _is_full(error: BaseException) -> bool:
    # HDF5 and Arrow tell the cause only in the text.
    texts = ("No space left on device", "Disk quota exceeded", "File too large")
    return getattr(error, "errno", None) in _FULL or any(text in str(error) for text in texts)


def _full_disk(path: Path, needed: int | None) -> OSError:
    try:
        free = f"{_megabytes(shutil.disk_usage(path.parent).free)} are free"
    except OSError:
        free = "how much is free is not known"
    wanted = "" if needed is None else f" It needs about {_megabytes(needed)};"
    return OSError(
        errno.ENOSPC,
        f"cannot write {path}: the disk is full, or your quota is used up.{wanted or ' There,'} {free} in "
        f"{path.parent}. Nothing there has changed. Make room, or write to another disk.",
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _escaped(name: str) -> str:
    """Return a name in which no character has a meaning for `glob`."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
