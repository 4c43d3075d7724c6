"""Draws with a time limit: each call of the simulator is made in a process that can be stopped.

Nothing else stops a simulator that hangs: Python cannot end a thread, and a loop in compiled code does not
answer to signals. So a worker starts a child process, which makes the calls. If one takes too long, the child
is killed, the draw counts as failed, and a new child makes the next call.
"""

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from typing import IO, Any

from evidencenet._common.executors import Shipped, ship, unpacked
from evidencenet.simulation.chunks import Chunk, DrawTimeoutError, Source

_PROGRAM = "from evidencenet.simulation.timed import serve; serve()"
# If the worker dies while a call hangs, nobody stops the child. Its own alarm does, so many seconds later.
_GRACE = 60.0


class ChildDiedError(BrokenExecutor):
    """The process that made the calls died by itself: it was killed from outside, or crashed."""


@dataclass(frozen=True)
class TimedCalls:
    """Makes the calls of a source with a time limit; see `evidencenet.simulation.chunks.Calls`.

    Parameters
    ----------
    source
        Whose calls they are.
    shipped
        What `ship_calls` made of the source.
    seconds
        The limit for one draw. A call that makes n draws may take n times as long.
    """

    source: Source
    shipped: Shipped
    seconds: float

    def call_block(self, start: int) -> Chunk:
        """Draw a block by one call."""
        return self._ask(self.source.block(start), "block", start, 0)

    def call_rows(self, start: int) -> Callable[[int], Chunk]:
        """Return the function that draws one of a block by a call of its own."""
        return lambda row: self._ask(1, "row", start, row)

    def _ask(self, draws: int, *request: Any) -> Chunk:
        limit = draws * self.seconds
        reply = _child_of_this_thread(self.shipped).ask(request, limit)
        if reply is None:
            each = f" for {draws} draws" if draws > 1 else ""
            raise DrawTimeoutError(f"it took longer than {limit:g} s{each}, and was stopped")
        chunk: Chunk = unpacked(reply)
        return chunk


def ship_calls(source: Source) -> Shipped:
    """Turn the calls of a source into bytes, for the child."""
    return ship(_Calls(source), f"model {source.model.name!r}")


@dataclass
class _Calls:
    """What the child does: the calls of one source."""

    source: Source
    # The last block that was drawn row by row: its parameters are drawn once.
    rows: tuple[int, Callable[[int], Chunk]] | None = field(default=None, init=False)

    def __call__(self, kind: str, start: int, row: int) -> Chunk:
        if kind == "block":
            return self.source.call_block(start)
        if self.rows is None or self.rows[0] != start:
            self.rows = (start, self.source.call_rows(start))
        return self.rows[1](row)


class _Child:
    """A process that makes calls, one after the other."""

    def __init__(self, shipped: Shipped) -> None:
        self.shipped = shipped
        # It finds the modules that this process finds, such as a simulator beside the script.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._expired = False
        # Its start, and loading the model, have no limit.
        self._send(pickle.dumps(shipped))
        if self._receive() is None:
            raise self._died()

    @property
    def alive(self) -> bool:
        """Whether it can make another call."""
        return not self._expired and self._process.poll() is None

    def ask(self, request: tuple[Any, ...], limit: float) -> bytes | None:
        """Make a call; None if it took longer than the limit."""
        timer = threading.Timer(limit, self._expire)
        timer.daemon = True
        timer.start()
        try:
            self._send(pickle.dumps((limit, request)))
            reply = self._receive()
        finally:
            timer.cancel()
        if reply is None and not self._expired:
            raise self._died()
        return reply

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # What was not sent is lost on purpose.
                with contextlib.suppress(OSError):
                    stream.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        # If the process has gone, the answer will be missing too.
        with contextlib.suppress(BrokenPipeError):
            _write(self._process.stdin, content)

    def _receive(self) -> bytes | None:
        assert self._process.stdout is not None
        return _read(self._process.stdout)

    def _died(self) -> ChildDiedError:
        code = self._process.wait()
        return ChildDiedError(f"the process that makes the calls of {self.shipped.what} ended with {code}")


_children = threading.local()


def _child_of_this_thread(shipped: Shipped) -> _Child:
    """Return the process that makes calls for this thread; a new one for another model, or after a kill."""
    child: _Child | None = getattr(_children, "child", None)
    if child is None or not child.alive or child.shipped != shipped:
        if child is not None:
            child.close()
        _children.child = None
        child = _children.child = _Child(shipped)
    return child


def serve() -> None:
    """Make calls until the worker goes away: the main program of the child."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # A simulator may read and print: this must not disturb the messages.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    first = _read(requests)
    if first is None:
        return
    shipped: Shipped = pickle.loads(first)
    _write(replies, b"ready")
    while (content := _read(requests)) is not None:
        limit, request = pickle.loads(content)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, limit + _GRACE)
        _write(replies, shipped(*request))
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(struct.pack("<Q", len(content)) + content)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None if the other side has gone."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    content = stream.read(length)
    return content if len(content) == length else None
