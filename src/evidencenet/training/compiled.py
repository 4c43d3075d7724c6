"""Compile each program once: most trainings of a call differ only in their data.

Compiled programs are also kept in a folder of the user, so that the next process finds them.
"""

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax

# Programs that are kept, the most recently used ones. A call of `train` needs about a dozen.
_MOST = 64
_programs: OrderedDict[Any, Future[Any]] = OrderedDict()
_lock = threading.Lock()


# Set it to "off", or to a folder of your choice.
CACHE_VARIABLE = "EVIDENCENET_CACHE"
# Programs that compile faster than this many seconds are not worth a file.
_WORTH_KEEPING = 0.2


def cache_folder() -> Path | None:
    """Return the folder in which compiled programs are kept between processes; None if that is switched off.

    It is ``evidencenet/compiled`` in the user's cache folder, or what the environment variable
    ``EVIDENCENET_CACHE`` names; ``EVIDENCENET_CACHE=off`` switches it off.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named is not None:
        return None if named.lower() in ("off", "no", "0", "") else Path(named).expanduser()
    if sys.platform == "darwin":
        root = Path("~/Library/Caches")
    else:
        root = Path(os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME") or "~/.cache")
    return root.expanduser() / "evidencenet" / "compiled"


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in `cache_folder`, unless the user has told it where to keep them.

    Several processes may share the folder. A program that cannot be read or written is compiled again.
    """
    folder = cache_folder()
    if folder is None or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    try:
        # Programs are code: nobody else may write here.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _is_private(folder: Path) -> bool:
    """Whether only this user can write to a folder; what others put there would be run."""
    if os.name == "nt":
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def compiled(
    function: Callable[..., Any], *arguments: Any, device: Any = None, **options: Any
) -> Callable[..., Any]:
    """Compile a function for arguments like these, or return the program if it was compiled before.

    Parameters
    ----------
    function
        A function of JAX arrays.
    arguments
        Arguments of the shapes and types that it will be called with.
    device
        The device that it runs on; None for JAX's default.
    options
        Options of `jax.jit`.
    """
    with jax.default_device(device):
        lowered = jax.jit(function, **options).lower(*arguments)
    # Programs with the same text still differ if the structure of their arguments differs. Equinox tells
    # states of batch normalisation apart by identity, so programs with these are never found again.
    key = (lowered.as_text(), jax.tree.structure(arguments), device)
    with _lock:
        try:
            program = _programs.get(key)
        except (TypeError, ValueError):
            # A user's module may hold something that cannot be compared, such as an array that is not a leaf.
            return lowered.compile()
        is_new = program is None
        if program is None:
            program = _programs[key] = Future()
        _programs.move_to_end(key)
        while len(_programs) > _MOST:
            _programs.popitem(last=False)
    if is_new:
        try:
            program.set_result(lowered.compile())
        except BaseException as error:
            with _lock:
                _programs.pop(key, None)
            program.set_exception(error)
    return program.result()
