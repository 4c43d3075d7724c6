"""A command that a cluster stops with SIGTERM keeps its work, and exits with 143."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from command import done

SPEC = """
import time
from pathlib import Path
import evidencenet as en

def slow(rng, n):
    with Path({calls!r}).open("a") as file:
        file.write("x")
    time.sleep({seconds})
    return rng.normal(size=(n, 2))

models = [en.Model("a", slow)]
"""


def test_sigterm(tmp_path: Path) -> None:
    spec, out, calls = tmp_path / "models.py", tmp_path / "draws.zarr", tmp_path / "calls"
    calls.touch()
    spec.write_text(SPEC.format(calls=str(calls), seconds=0.5))
    arguments = ["simulate", str(spec), "--n", "100", "--chunk", "5", "--out", str(out), "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "evidencenet", *arguments], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while calls.stat().st_size < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Stopped." in text
    assert [path for path in out.glob("0/*/zarr.json")]
    assert not list(out.rglob("*.partial"))
    # The same command continues: the chunks that were finished are not drawn again.
    before = calls.stat().st_size
    spec.write_text(SPEC.format(calls=str(calls), seconds=0.0))
    done(*arguments)
    assert calls.stat().st_size - before <= 20 - (before - 1)
