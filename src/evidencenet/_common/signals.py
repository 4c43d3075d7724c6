"""Treat the signal that clusters send before they kill a job like Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# As shells report it: 128 plus the number of the signal.
EXIT_CODE = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. Like KeyboardInterrupt it is not an `Exception`, so that nothing hides it."""


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """While this lasts, SIGTERM raises `Terminated` in the main thread, so that work in progress is kept.

    A second SIGTERM ends the process at once. In other threads, where Python cannot set signals, nothing
    changes.

    Examples
    --------
    >>> with sigterm_as_interrupt():
    ...     pass
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        # None if it was not set from Python, and cannot be set again.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def kept_on_sigterm() -> Iterator[None]:
    """While this lasts, SIGTERM ends the process only after what is in progress has been cleaned up and kept.

    For functions that are called from programs of all kinds: if the program handles SIGTERM itself, nothing
    changes.

    Examples
    --------
    >>> with kept_on_sigterm():
    ...     pass
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    try:
        with sigterm_as_interrupt():
            yield
    except Terminated:
        # The process ends as it would have without us; shells report this as 143.
        signal.raise_signal(signal.SIGTERM)
        raise


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until this is over; a second one comes through at once.

    For calls of libraries that do their work in threads, as Zarr does. An exception that comes in the middle
    of such a call does not stop the threads, which go on writing, and Python loses it if a destructor happens
    to run. Signals that no Python function handles end the process as always.

    Examples
    --------
    >>> with interrupts_held():
    ...     pass
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Callable[..., Any]] = {}
    waiting: list[int] = []
    over = False

    def hold(number: int, frame: FrameType | None) -> None:
        if waiting or over:
            before[number](number, frame)
        waiting.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler):
            before[number] = handler
            signal.signal(number, hold)
    try:
        yield
    finally:
        # From here on a signal comes through, also if it comes before the old function is back.
        over = True
        for each, function in before.items():
            signal.signal(each, function)
        for each in waiting[:1]:
            signal.raise_signal(each)
