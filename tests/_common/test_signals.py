"""SIGTERM, as clusters send it, is told from Ctrl-C and does not get lost; a forked process is noticed."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest

from evidencenet._common import forked
from evidencenet._common.signals import EXIT_CODE, Terminated, interrupts_held, sigterm_as_interrupt
from evidencenet.simulation.workers import is_worker_death, worker_error


def test_sigterm_raises_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), sigterm_as_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
    assert issubclass(Terminated, KeyboardInterrupt)
    assert EXIT_CODE == 143


def test_a_second_sigterm_ends_the_process() -> None:
    code = (
        "import os, signal, runpy, sys\n"
        "module = runpy.run_path(sys.argv[1])\n"
        "with module['sigterm_as_interrupt']():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    except KeyboardInterrupt:\n"
        "        print('kept', flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print('never')\n"
    )
    place = sys.modules[sigterm_as_interrupt.__module__].__file__
    assert place is not None
    run = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("kept\n", -signal.SIGTERM)


def test_a_program_ends_by_sigterm_after_its_work_was_kept() -> None:
    code = (
        "import os, signal, runpy, sys\n"
        "module = runpy.run_path(sys.argv[1])\n"
        "if sys.argv[2] == 'own':\n"
        "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "with module['kept_on_sigterm']():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    finally:\n"
        "        print('kept', flush=True)\n"
        "print('never')\n"
    )
    place = sys.modules[sigterm_as_interrupt.__module__].__file__
    assert place is not None
    for handler, returned in (("default", -signal.SIGTERM), ("own", 5)):
        run = subprocess.run([sys.executable, "-c", code, place, handler], capture_output=True, text=True)
        assert (run.stdout, run.returncode) == ("kept\n", returned)


def test_in_another_thread_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run() -> None:
        with sigterm_as_interrupt():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_wait_and_the_second_does_not(number: int) -> None:
    done = []

    def work(*signals: int) -> None:
        with interrupts_held():
            for each in signals:
                signal.raise_signal(each)
            done.append(len(signals))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for count in (0, 1, 2):
            with sigterm_as_interrupt():
                if count == 0:
                    work()
                    continue
                with pytest.raises(KeyboardInterrupt) as caught:
                    work(*[number] * count)
                assert isinstance(caught.value, Terminated) == (number == signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [0, 1]


def test_a_forked_process_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_users", set())
    forked.check_not_forked()
    forked.check_not_forked()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match=r'made by os\.fork after a network was used.*"spawn"'):
        forked.check_not_forked()


def test_a_worker_that_dies_is_told_from_a_simulator_that_raises() -> None:
    with ProcessPoolExecutor(1, mp_context=__import__("multiprocessing").get_context("spawn")) as pool:
        try:
            pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL).result()
        except Exception as error:
            death = error
    assert is_worker_death(death)
    assert not is_worker_death(ValueError("BrokenExecutor"))
    assert "the chunk at draw 10 of model 'a'" in str(worker_error("a", 10, death))
