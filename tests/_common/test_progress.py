"""The progress display: what is written, when, and that it cleans up."""

import io
import re
import sys
from typing import Any

import pytest

from evidencenet._common.progress import Progress, humanise

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error; called in the test itself, because pytest sets its own after the fixtures."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def interrupted(error: type[BaseException]) -> None:
    with Progress("simulating", 100, _clock=Clock()) as bar:
        bar.update(3)
        raise error


def test_lines_are_sparse_and_exact(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("simulating", 2_000_000, _clock=clock) as bar:
        for second in range(1, 26):
            clock.now = 100.0 + second
            bar.update(second * 40_000, loss="0.123")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "simulating: 0 / 2,000,000",
        # 40,000 per second: 1.6 million are left after 10 s, which is 40 s more.
        "simulating: 400,000 / 2,000,000 (20%), 40k/s, 40.0 s left  loss 0.123",
        "simulating: 800,000 / 2,000,000 (40%), 40k/s, 30.0 s left  loss 0.123",
        "simulating: done, stopped early at 1,000,000 of 2,000,000 in 25.0 s, 40k/s  loss 0.123",
    ]


def test_a_long_run_shows_minutes_and_hours(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("training", 100, _clock=clock) as bar:
        clock.now += 61
        bar.update(1)
        clock.now += 7200
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "training: 1 / 100 (1%), 0.016/s, 1:40:39 left"
    assert lines[2] == "training: done, stopped early at 1 of 100 in 2:01:01, 0.00014/s"


def test_no_time_passed_and_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("nothing", 0, _clock=clock) as bar:
        clock.now += 20
        bar.update(0)
    with Progress("quick", 5, _clock=Clock()) as bar:
        bar.update(5)
    assert capsys.readouterr().err.splitlines() == [
        "nothing: 0 / 0",
        "nothing: 0 / 0",
        "nothing: done, 0 in 20.0 s",
        "quick: 0 / 5",
        "quick: done, 5 in 0.0 s",
    ]


def test_silent_when_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with Progress("simulating", 10, enabled=False) as bar:
        bar.update(10, loss="1")
    assert terminal.getvalue() == ""


def test_silent_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("simulating", 10) as bar:
        bar.update(10)


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    clock = Clock()
    with Progress("simulating", 100, _clock=clock) as bar:
        clock.now += 1
        bar.update(25, loss="[0.5]")
        clock.now += 1
        bar.update(50, loss="[0.4]")
        clock.now += 1
        bar.update(100, loss="[0.3]")
    text = terminal.getvalue()
    assert "simulating" in text
    assert "100%" in text
    assert "loss [0.3]" in text
    assert "33/s" in text  # 100 in 3 seconds
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)


def test_a_bar_that_is_not_needed_to_the_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended at "choosing: 5 / 11", which looks broken."""
    terminal = on_a_terminal(monkeypatch)
    clock = Clock()
    with Progress("choosing", 11, _clock=clock) as bar:
        clock.now += 1
        bar.update(5, best="dense")
    last = next(line for line in reversed(terminal.getvalue().splitlines()) if "choosing" in line)
    assert "stopped early" in last
    assert "100%" in last
    assert "best dense" in last


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_restores_the_terminal(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    terminal = on_a_terminal(monkeypatch)
    with pytest.raises(error):
        interrupted(error)
    text = terminal.getvalue()
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert sys.stderr is terminal  # rich's redirection is undone


def test_an_exception_in_a_log_says_where_it_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(KeyboardInterrupt)
    assert capsys.readouterr().err.splitlines()[-1] == "simulating: stopped at 3 / 100 in 0.0 s"


def test_a_dumb_terminal_and_a_forced_pipe_get_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with Progress("simulating", 1):
        pass
    assert terminal.getvalue().startswith("simulating: 0 / 1\n")
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress("simulating", 1):
        pass
    assert pipe.getvalue().startswith("simulating: 0 / 1\n")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.016, "0.016"),
        (1.0, "1.0"),
        (9.94, "9.9"),
        (9.96, "10"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (1_234_567, "1.2M"),
        (12_345_678, "12M"),
        (2.5e9, "2.5G"),
    ],
)
def test_humanise(number: float, text: str) -> None:
    assert humanise(number) == text


NOTEBOOK = """
import time
from evidencenet._common.progress import Progress
with Progress("training", 300) as bar:
    for done in range(1, 301):
        time.sleep(0.003)
        bar.update(done, loss="<b>0.1</b>")
"""


def test_a_notebook_keeps_one_line_of_a_bar() -> None:
    nbclient = pytest.importorskip("nbclient", reason="no notebooks: nbclient is not installed")
    pytest.importorskip("ipykernel", reason="no notebooks: ipykernel is not installed")
    import nbformat

    stopped = "with Progress('halting', 5) as bar:\n    bar.update(2)\n    raise ValueError"
    cells = [nbformat.v4.new_code_cell(code) for code in (NOTEBOOK, stopped)]
    seen: list[dict[str, str]] = []

    class Client(nbclient.NotebookClient):  # type: ignore[name-defined]
        def process_message(self, message: dict[str, Any], *rest: Any) -> Any:
            if message["msg_type"] in ("display_data", "update_display_data"):
                seen.append(message["content"]["data"])
            return super().process_message(message, *rest)

    Client(nbformat.v4.new_notebook(cells=cells), timeout=60, allow_errors=True).execute()
    ((output,), (halted, error)) = (cell.outputs for cell in cells)
    assert list(output.data) == ["text/plain"]
    assert re.fullmatch(
        r"training: done, 300 in \d\.\d s, \d+/s  loss <b>0\.1</b>", output.data["text/plain"]
    )
    assert halted.data["text/plain"].startswith("halting: stopped at 2 / 5 in")
    assert error.output_type == "error"
    # On the way a bar in HTML, escaped, at most four times a second.
    bars = [bundle["text/html"] for bundle in seen if "text/html" in bundle]
    assert 3 <= len(bars) <= 40
    assert '<progress value="0" max="300"' in bars[0]
    assert all("<b>" not in bar for bar in bars)
    assert "&lt;b&gt;0.1" in bars[1]
