"""A process that is held to some processors starts no more workers than these."""

import os
import subprocess
import sys

import pytest

from evidencenet._common.processors import processors


def test_a_process_may_use_what_it_is_held_to() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system holds no process to processors")
    assert processors() == len(os.sched_getaffinity(0))
    script = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from evidencenet._common.processors import processors
from evidencenet.simulation.workers import Workers
print(processors(), Workers(-1).at_once, Workers(3).at_once)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "3"]


def test_other_systems_say_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors() == 1
