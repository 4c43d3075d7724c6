"""A progress display: a bar on a terminal or in a notebook, a few lines in a log file."""

import importlib
import sys
import time
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from evidencenet._common.harmless import harmless

if TYPE_CHECKING:
    import rich.console
    import rich.progress

# In a log file: an hour of work leaves 360 lines.
_SECONDS_BETWEEN_LINES = 10.0
# In a notebook, where each change is a message to the browser: four a second look smooth.
_SECONDS_BETWEEN_CELLS = 0.25


class Progress:
    """Show how far a long computation has come.

    On a terminal this is a bar on standard error with the percentage, the fields given to `update`, the speed
    and the time left. In Jupyter it is the same bar as one output, which a line of text replaces in the end.
    If standard error is a file or a pipe, there is a first line, then at most one line every ten seconds,
    and a last line with the total time and speed. A bar ends as "done", or as "stopped early" if not all
    items were needed. An exception inside the block restores the terminal and is
    raised again.

    Parameters
    ----------
    title
        What is being done, for example ``"simulating"``.
    total
        How many items there are to do.
    enabled
        With False nothing is shown at all.

    Examples
    --------
    >>> with Progress("training", 10, enabled=False) as bar:
    ...     for epoch in range(10):
    ...         bar.update(epoch + 1, loss="0.123")
    """

    def __init__(
        self, title: str, total: int, *, enabled: bool = True, _clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._total = total
        self._enabled = enabled
        self._clock = _clock
        self._done = 0
        self._fields = ""
        self._start = self._last_line = 0.0
        self._bar: rich.progress.Progress | None = None
        self._cell: Any = None

    def __enter__(self) -> Self:
        # There is no standard error at all in some windowed programs.
        self._enabled = self._enabled and sys.stderr is not None
        if not self._enabled:
            return self
        import rich.console

        self._start = self._last_line = self._clock()
        console = rich.console.Console(stderr=True)
        if console.is_jupyter:
            self._cell = _notebook_cell(self._as_bundle("starting"))
        elif sys.stderr.isatty() and console.is_interactive:
            self._bar = _terminal_bar(console, self._clock)
            self._bar.add_task(self._title, total=self._total, fields="", speed="")
            self._bar.start()
        else:
            self._write(f"0 / {self._total:,}")
        return self

    def update(self, done: int, **fields: str) -> None:
        """Tell that `done` items are done, counted from the start; `fields` are shown beside the bar."""
        if not self._enabled:
            return
        self._done = done
        self._fields = "  ".join(f"{name} {harmless(text)}" for name, text in fields.items())
        if self._bar is None:
            self._update_lines()
            return
        task = self._bar.tasks[0]
        self._bar.update(task.id, completed=done, fields=self._fields)
        # While it runs, the speed of the last half minute; at the end, the mean speed.
        elapsed = self._clock() - self._start
        speed = task.speed if done < self._total or elapsed == 0 else done / elapsed
        self._bar.update(task.id, speed=humanise(speed) + "/s" if speed else "")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._enabled:
            return
        if self._bar is not None:
            if kind is None:
                self._finish_bar(self._bar)
            self._bar.stop()
            return
        elapsed = self._clock() - self._start
        time_taken = f"in {_duration(elapsed)}{self._speed(elapsed)}"
        if kind is not None:
            line = f"stopped at {self._done:,} / {self._total:,} {time_taken}"
        elif self._done < self._total:
            line = f"done, stopped early at {self._done:,} of {self._total:,} {time_taken}"
        else:
            line = f"done, {self._done:,} {time_taken}"
        if self._cell is None:
            self._write(line, self._fields)
        else:
            self._cell.update({"text/plain": self._text(line, self._fields)}, raw=True)

    def _finish_bar(self, bar: "rich.progress.Progress") -> None:
        """Show a full bar, with a word if not all items were needed."""
        early = self._done < self._total
        fields = "  ".join(part for part in (self._fields, "stopped early" if early else "done") if part)
        bar.update(bar.tasks[0].id, total=max(self._total, 1), completed=max(self._total, 1), fields=fields)

    def _update_lines(self) -> None:
        now = self._clock()
        wait = _SECONDS_BETWEEN_LINES if self._cell is None else _SECONDS_BETWEEN_CELLS
        if now - self._last_line < wait:
            return
        self._last_line = now
        elapsed = now - self._start
        percent = f" ({100 * self._done / self._total:.0f}%)" if self._total else ""
        left = f", {_duration(elapsed * (self._total / self._done - 1))} left" if self._done else ""
        line = f"{self._done:,} / {self._total:,}{percent}{self._speed(elapsed)}{left}"
        if self._cell is None:
            self._write(line, self._fields)
        else:
            self._cell.update(self._as_bundle(line, self._fields), raw=True)

    def _speed(self, elapsed: float) -> str:
        return f", {humanise(self._done / elapsed)}/s" if elapsed > 0 and self._done else ""

    def _write(self, *parts: str) -> None:
        print(self._text(*parts), file=sys.stderr, flush=True)

    def _text(self, *parts: str) -> str:
        return f"{self._title}: " + "  ".join(part for part in parts if part)

    def _as_bundle(self, *parts: str) -> dict[str, str]:
        """Return a bar as HTML, and a line of text for programs that cannot show HTML."""
        line = self._text(*parts)
        style = "width:12em;margin-right:1em;vertical-align:middle"
        bar = f'<progress value="{self._done}" max="{max(self._total, 1)}" style="{style}"></progress>'
        return {"text/plain": line, "text/html": f"<div>{bar}{escape(line)}</div>"}


def humanise(number: float) -> str:
    """Write a positive number in three figures at most, with k, M or G.

    Examples
    --------
    >>> humanise(1_234_567)
    '1.2M'
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")):
        # 999.6 would be printed as 1000: it belongs to the next letter.
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.1f}{letter}" if scaled < 9.95 else f"{scaled:.0f}{letter}"
    return f"{number:.2g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d} min"


def _terminal_bar(console: "rich.console.Console", clock: Callable[[], float]) -> "rich.progress.Progress":
    from rich import progress

    columns: tuple[Any, ...] = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        # Fields are the caller's text: square brackets in them are not markup.
        progress.TextColumn("{task.fields[fields]}", markup=False),
        progress.TextColumn("{task.fields[speed]}"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
    )
    return progress.Progress(*columns, console=console, get_time=clock)


def _notebook_cell(bundle: dict[str, str]) -> Any:
    """Show the first state in the notebook, and return the handle that can replace it."""
    # Rich's own display needs ipywidgets, and shows nothing without them. IPython is imported by name because
    # it is installed only where notebooks are.
    return importlib.import_module("IPython.display").display(bundle, raw=True, display_id=True)
