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
import hashlib
import os
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from evidencenet._common.signals import interrupts_held

# Where locks do not work (some network file systems), temporary folders older than this are left over from a
# crash. No single save takes an hour.
_SECONDS_UNTIL_ABANDONED = 3600.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# File systems allow names of 255 bytes, and a temporary folder adds 22 to the name of its file.
_LONGEST_NAME = 230
# From <linux/fs.h> and <sys/stdio.h>; both mean "exchange the two names".
_RENAME_EXCHANGE, _RENAME_SWAP = 2, 2
_AT_FDCWD = -100


@contextlib.contextmanager
def replaced(path: Path, needed: int | None = None) -> Iterator[Path]:
    """Give a temporary path to write to; what was written there replaces `path` if no exception is raised.

    The temporary file or folder has the same name as `path`, inside a hidden folder beside it. Temporary
    folders that killed processes left behind for the same path are removed. If `path` is a link, the file
    that it leads to is replaced, and the link stays. Who may read the file follows the user's umask, as for
    every new file.

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
    target = _target(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {target.parent}. Make it first.")
    try:
        remove_leftovers(target)
        with _temporary_folder(target) as folder:
            partial = folder / target.name
            yield partial
            _to_disk(partial)
            _put(partial, target)
            _sync(target.parent)
    except Exception as error:
        if _is_full(error):
            raise _full_disk(path, target.parent, needed) from error
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


def created_folder(path: Path, contents: Mapping[str, bytes]) -> bool:
    """Make a folder with some files in it, unless there is one with anything in it; all in one step.

    Returns
    -------
    bool
        False if there was one already; of two processes only one succeeds.
    """
    target = _target(path)
    remove_leftovers(target)
    with _temporary_folder(target) as folder:
        partial = folder / target.name
        partial.mkdir()
        for name, content in contents.items():
            (partial / name).write_bytes(content)
        _to_disk(partial)
        try:
            # This also takes the place of an empty folder.
            partial.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            return False
        _sync(target.parent)
    return True


def removed(folder: Path) -> None:
    """Remove a folder, which may be gone already; others see all of it or nothing, also after a kill."""
    remove_leftovers(folder)
    with _temporary_folder(folder) as temporary, contextlib.suppress(FileNotFoundError):
        folder.rename(temporary / folder.name)


def moved(new: Path, path: Path) -> None:
    """Move a finished file or folder to `path`, on the same disk; what was there before is removed.

    Where the system can exchange two folders in one step, there is no moment without one.
    """
    remove_leftovers(path)
    _put(new, path)
    _sync(path.parent)
    if new.exists():
        # The old folder has taken the place of the new one.
        removed(new)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders that killed processes left behind when they wrote `path`."""
    _remove_abandoned(path.parent, f".{_escaped(_shortened(path.name))}.*.partial")


def remove_all_leftovers(folder: Path) -> None:
    """Remove the temporary folders that killed processes left behind when they wrote anything in a folder."""
    _remove_abandoned(folder, ".*.partial")


def _target(path: Path) -> Path:
    """Return what is to be replaced: the file that a link leads to. Devices and pipes are refused."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = target.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise FileExistsError(
                f"cannot write {path}: it is a device, pipe or socket, and would be replaced by a file. Give "
                "the name of a file."
            )
    return target


def _remove_abandoned(parent: Path, pattern: str) -> None:
    for folder in parent.glob(pattern):
        with contextlib.suppress(OSError), interrupts_held():
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                if _is_abandoned(folder, descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Make a hidden folder beside `path`, locked while it is in use, so that others can tell it is."""
    folder, descriptor = None, None
    try:
        with interrupts_held():
            folder, descriptor = _locked_folder(path)
        yield folder
    finally:
        try:
            # Ctrl-C in the middle of this would leave a part, or be hidden by another error.
            with interrupts_held():
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    if folder.exists():
                        # After a second interrupt, a thread of Zarr may still have been writing.
                        time.sleep(0.1)
                        shutil.rmtree(folder, ignore_errors=True)
                if descriptor is not None:
                    os.close(descriptor)
        except KeyboardInterrupt:
            # It may have come just before.
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _locked_folder(path: Path) -> tuple[Path, int | None]:
    while True:
        folder = path.with_name(f".{_shortened(path.name)}.{uuid.uuid4().hex[:12]}.partial")
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


def _full_disk(path: Path, folder: Path, needed: int | None) -> OSError:
    try:
        free = f"{_megabytes(shutil.disk_usage(folder).free)} are free"
    except OSError:
        free = "how much is free is not known"
    wanted = "" if needed is None else f" It needs about {_megabytes(needed)};"
    return OSError(
        errno.ENOSPC,
        f"cannot write {path}: the disk is full, or your quota or the largest size of a file (ulimit -f) is "
        f"reached.{wanted or ' There,'} {free} in "
        f"{folder}. Nothing there has changed. Make room, or write to another disk.",
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _shortened(name: str) -> str:
    """Return a name that leaves room for what is added to it; another one for every name."""
    if len(os.fsencode(name)) <= _LONGEST_NAME:
        return name
    return hashlib.sha256(os.fsencode(name)).hexdigest()


def _escaped(name: str) -> str:
    """Return a name in which no character has a meaning for `glob`."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
