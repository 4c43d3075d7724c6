"""What all commands share: where words go, how errors are told, and the record of what was done."""

import contextlib
import json
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import typer

import evidencenet as en
from evidencenet._common.display import plain
from evidencenet._common.versions import versions
from evidencenet._common.warnings import EvidenceWarning

# Exit codes beside 0, and 2 for a command that is not understood, which is typer's own.
ERROR, NOT_VALID, NOT_ALIKE, INTERRUPTED = 1, 3, 4, 130

# What these say is meant for the user; anything else is a fault, of which only a traceback tells more.
_PLAIN = (ValueError, TypeError, OSError, ImportError, MemoryError, en.SimulationError)


class CommandError(Exception):
    """An error that is told to the user as it stands."""


class Session:
    """One run of a command.

    Parameters
    ----------
    context
        Of the command: its name, and its arguments with all defaults.
    out
        Where results go: standard output, which nothing else may write to.
    """

    def __init__(self, context: typer.Context, out: TextIO) -> None:
        self.advice: Callable[[], str] = lambda: ""
        self._command = context.info_name
        self._arguments = {key: _named(value) for key, value in context.params.items()}
        self._out = out
        self._start = time.perf_counter()
        self._started = datetime.now(UTC)

    @property
    def progress(self) -> bool:
        """Whether to show how far the work has come."""
        return not self._arguments.get("quiet", False)

    @contextlib.contextmanager
    def speaking(self) -> Generator[None]:
        """While this lasts, what is printed is the result itself, unless JSON is wanted."""
        with contextlib.redirect_stdout(sys.stderr if self._arguments.get("json") else self._out):
            yield

    def finish(self, result: dict[str, Any], text: str, *, kept: Path | None = None, **more: Any) -> None:
        """Print a result, as text or as JSON with the record of the run, and keep the latter in a file."""
        run = {
            "command": self._command,
            "arguments": self._arguments,
            "folder": os.getcwd(),
            "versions": versions(),
            "platform": platform.platform(),
            "started": self._started.isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - self._start, 3),
            **more,
        }
        page = json.dumps(plain({**result, "run": run}), indent=2, allow_nan=False)
        if kept is not None:
            write_text(kept, page + "\n")
        if self._arguments.get("json"):
            text = page
        if text:
            show(text, self._out)


@contextlib.contextmanager
def session(context: typer.Context) -> Generator[Session]:
    """Do the work of a command: errors become one sentence on standard error, and an exit code."""
    run = Session(context, sys.stdout)
    try:
        # What a simulator prints must not get between the results.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.filterwarnings("always", category=EvidenceWarning)
            warnings.showwarning = lambda message, *_, **__: show(f"Warning: {message}", sys.stderr)
            yield run
    except KeyboardInterrupt:
        show(f"Stopped. {run.advice()}".rstrip(), sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    # A reader that has read enough, such as `head`, is typer's to deal with.
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if context.params.get("debug"):
            traceback.print_exc()
        show(f"Error: {_told(error)}", sys.stderr)
        raise typer.Exit(ERROR) from None


def write_text(path: Path, text: str) -> None:
    """Write a file; an existing one is replaced only when all is written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def show(text: str, stream: TextIO) -> None:
    """Print text; what could move the cursor or has no letter here, as in a name from a file, is escaped."""
    safe = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    encoding = stream.encoding or "utf-8"
    print(safe.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def new_file(path: Path, force: bool) -> Path:
    """Refuse to replace a file unless told to, and make its folder."""
    if path.exists() and not force:
        raise CommandError(f"{path} exists already. Give another --out, or --force to replace it.")
    if path.is_dir():
        raise CommandError(f"{path} is a folder; --out wants the name of a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def record_of(path: Path) -> Path:
    """Return the file beside `path` that tells how it was made."""
    return path.with_name(f"{path.name}.run.json")


def made_from(*sources: str | Path | list[str] | dict[str, str]) -> dict[str, Any]:
    """Return, by path, how each of the files was made; None where that is not known."""
    found: dict[str, Any] = {}
    for source in sources:
        paths = list(source.values()) if isinstance(source, dict) else source
        for path in map(Path, paths if isinstance(paths, list) else [paths]):
            try:
                found[str(path)] = json.loads(record_of(path).read_text(encoding="utf-8"))["run"]
            except (OSError, ValueError, KeyError, TypeError):
                found[str(path)] = None
    return found


def _named(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_named(part) for part in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _told(error: Exception) -> str:
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, _PLAIN) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}. If this is no fault of yours, --debug shows where it happened."
