"""A process that was forked after a network was used gets an error; without it, JAX would wait for ever."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import evidencenet as en
from conftest import Case

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


def said_by_a_child(run: Callable[[], object]) -> str:
    """Run something in a forked process, and return what it raised; kill it after ten seconds."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # JAX and Python warn of the fork itself.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        text = "nothing"
        try:
            run()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.01)
    with os.fdopen(reader) as file:
        return file.read()


def test_networks_and_models_in_a_forked_process(small: Case) -> None:
    x = np.asarray(small.fresh.x)[:3]
    small.net.log_bayes_factor(x)
    message = "RuntimeError: this process was made by os.fork after a network was used"
    assert said_by_a_child(lambda: small.net.log_bayes_factor(x)).startswith(message)
    quick = {"members": 1, "recipe": en.Recipe(epochs=1), "progress": False}
    assert said_by_a_child(lambda: en.train(small.sims, **quick)).startswith(message)  # type: ignore[arg-type]
    # What needs no JAX works.
    assert said_by_a_child(lambda: en.simulate(small.problem.models, 100, progress=False)) == "nothing"
