"""`Session`: what all commands share: output, error messages, exit codes, and the record of the run."""

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
from evidencenet._common.atomic import write_text
from evidencenet._common.display import plain
from evidencenet._common.harmless import harmless_text
from evidencenet._common.signals import EXIT_CODE, Terminated, sigterm_as_interrupt
from evidencenet._common.versions import versions
from evidencenet._common.warnings import EvidenceWarning

# Exit codes. Also: 0 for success, and 2 from typer for a command that it does not understand.
ERROR, NOT_VALID, NOT_ALIKE, NOT_COMPLETE, INTERRUPTED, TERMINATED = 1, 3, 4, 5, 130, EXIT_CODE

# The messages of these errors are written for users. Any other error is a fault of the program, and only its
# traceback says more.
_FOR_USERS = (
    ValueError,
    TypeError,
    OSError,
    ImportError,
    MemoryError,
    en.SimulationError,
    en.UnsteerableError,
)


class CommandError(Exception):
    """An error whose message is shown to the user unchanged."""


class Session:
    """One run of a command.

    Parameters
    ----------
    context
        The command's name, and its arguments with all defaults.
    out
        Where results go: standard output. Nothing else may be written there.

    Attributes
    ----------
    advice
        Returns what to tell the user after Ctrl-C.
    """

    def __init__(self, context: typer.Context, out: TextIO) -> None:
        self.advice: Callable[[], str] = lambda: ""
        self._command = context.info_name
        self._arguments = {key: _for_json(value) for key, value in context.params.items()}
        self._out = out
        self._start = time.perf_counter()
        self._started = datetime.now(UTC)

    @property
    def progress(self) -> bool:
        """Whether to show progress bars."""
        return not self._arguments.get("quiet", False)

    @contextlib.contextmanager
    def printing(self) -> Generator[None]:
        """Send printed text to standard output as the result, or to standard error if JSON is wanted."""
        with contextlib.redirect_stdout(sys.stderr if self._arguments.get("json") else self._out):
            yield

    def finish(self, result: dict[str, Any], text: str, *, kept: Path | None = None, **more: Any) -> None:
        """Print the result, and write it with the record of the run to a JSON file.

        Parameters
        ----------
        result
            The numbers, which become the JSON object.
        text
            Printed instead of JSON unless the user gave --json; nothing is printed if it is empty.
        kept
            The JSON file; None to write no file.
        more
            Further entries of the record.
        """
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
        as_json = json.dumps(plain({**result, "run": run}), indent=2, allow_nan=False)
        if kept is not None:
            write_text(kept, as_json + "\n")
        if self._arguments.get("json"):
            text = as_json
        if text:
            show(text, self._out)


@contextlib.contextmanager
def session(context: typer.Context) -> Generator[Session]:
    """Run a command: an error becomes one sentence on standard error, and an exit code."""
    run = Session(context, sys.stdout)
    try:
        # A user's simulator may print: this must not mix with the results.
        with sigterm_as_interrupt(), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.filterwarnings("always", category=EvidenceWarning)
            warnings.showwarning = lambda message, *_, **__: show(f"Warning: {message}", sys.stderr)
            yield run
    except KeyboardInterrupt as stop:
        show(f"Stopped. {run.advice()}".rstrip(), sys.stderr)
        raise typer.Exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
    # typer handles these itself; BrokenPipeError comes from a reader that stops early, such as `head`.
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if context.params.get("debug"):
            traceback.print_exc()
        show(f"Error: {_message(error)}", sys.stderr)
        raise typer.Exit(ERROR) from None


def show(text: str, stream: TextIO) -> None:
    """Print text; control characters, and characters that the terminal cannot show, are escaped.

    They can come from a file, for example in the name of a model.
    """
    encoding = stream.encoding or "utf-8"
    print(harmless_text(text).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def new_file(path: Path, force: bool) -> Path:
    """Raise an error if the file exists and `force` is not set; make its folder."""
    if path.exists() and not force:
        raise CommandError(f"{path} already exists. Give another --out, or --force to replace it.")
    if path.is_dir():
        raise CommandError(f"{path} is a folder. Give --out the name of a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def record_of(path: Path) -> Path:
    """Return the file next to `path` that records how it was made."""
    return path.with_name(f"{path.name}.run.json")


def made_from(*sources: str | Path | list[str] | dict[str, str]) -> dict[str, Any]:
    """Return, by path, the record of how each file was made; None if there is no record."""
    records: dict[str, Any] = {}
    for source in sources:
        paths = list(source.values()) if isinstance(source, dict) else source
        for path in map(Path, paths if isinstance(paths, list) else [paths]):
            try:
                records[str(path)] = json.loads(record_of(path).read_text(encoding="utf-8"))["run"]
            except (OSError, ValueError, KeyError, TypeError):
                records[str(path)] = None
    return records


def _for_json(value: Any) -> Any:
    """Return an argument as JSON can hold it: paths and names become texts."""
    if isinstance(value, list | tuple):
        return [_for_json(part) for part in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _message(error: Exception) -> str:
    if isinstance(error, CommandError) or (isinstance(error, _FOR_USERS) and str(error)):
        return str(error)
    return f"{type(error).__name__}: {error}. Run it again with --debug to see where this happened."
