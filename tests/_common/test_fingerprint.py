"""Fingerprints of functions: the same for the same code and values, another for others."""

import functools
import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evidencenet._common import fingerprint as module
from evidencenet._common.fingerprint import fingerprint

SCALE = 1.0
CALLS: list[int] = []


def helper(x: Any) -> Any:
    return SCALE * x


def uses_helper(x: Any) -> Any:
    CALLS.append(1)
    return [helper(y) for y in x]


def scaled(scale: Any) -> Callable[[Any], Any]:
    return lambda x: scale * x


def test_code_constants_closures_and_defaults_count() -> None:
    assert fingerprint(scaled(1)) == fingerprint(scaled(1))
    assert fingerprint(scaled(1)) != fingerprint(scaled(2))
    assert fingerprint(scaled(np.zeros(2))) == fingerprint(scaled(np.zeros(2)))
    assert fingerprint(scaled(np.zeros(2))) != fingerprint(scaled(np.ones(2)))
    assert fingerprint(lambda x: x + 1) != fingerprint(lambda x: x - 1)
    assert fingerprint(lambda x: x.sin()) != fingerprint(lambda x: x.cos())
    assert fingerprint(lambda x: [x + i for i in (1, 2)]) != fingerprint(lambda x: [x + i for i in (1, 3)])
    assert fingerprint(lambda x, a=1: x) != fingerprint(lambda x, a=2: x)
    assert fingerprint(lambda x, *, a=1: x) != fingerprint(lambda x, *, a=2: x)
    assert fingerprint(functools.partial(pow, 2)) != fingerprint(functools.partial(pow, 3))
    assert fingerprint(helper, None) != fingerprint(helper, uses_helper)
    assert fingerprint(np.sin) != fingerprint(np.cos)  # cannot be looked into, but have names
    assert fingerprint(scaled(np.sin)) != fingerprint(scaled(np.cos))
    assert fingerprint(scaled((1, (2,)))) != fingerprint(scaled((1, 2)))


def test_globals_and_helpers_count_but_not_what_calls_change(monkeypatch: Any) -> None:
    before = fingerprint(uses_helper)
    uses_helper([1.0])
    assert fingerprint(uses_helper) == before
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    assert fingerprint(uses_helper) != before


def test_recursion_and_unset_names_end() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1) + later()

    assert len(fingerprint(factorial)) == 64

    def later() -> int:
        return 0


def test_it_is_the_same_in_every_process() -> None:
    # The file by itself, because the whole package takes seconds to import.
    code = (
        "import runpy, sys\n"
        "fingerprint = runpy.run_path(sys.argv[1])['fingerprint']\n"
        "print(fingerprint(lambda x: x in {'a', 'b', 'c', 'd'} and [y for y in 'ab']))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, module.__file__],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def test_what_may_change_counts_on_request() -> None:
    for one, other in (([1, 2], [1, 3]), ({"width": 8}, {"width": 9}), ({1, 2}, {1, 3}), ([[1]], [[2]])):
        assert fingerprint(scaled(one)) == fingerprint(scaled(other))
        assert fingerprint(scaled(one), changing=True) != fingerprint(scaled(other), changing=True)
        assert fingerprint(scaled(one), changing=True) == fingerprint(scaled(one), changing=True)

    class Factory:
        def __init__(self, width: int) -> None:
            self.width = width

        def __call__(self, x: Any) -> Any:
            return self.width * x

    assert fingerprint(Factory(1)) == fingerprint(Factory(2))
    assert fingerprint(Factory(1), changing=True) != fingerprint(Factory(2), changing=True)
    endless: list[Any] = []
    endless.append(endless)
    assert len(fingerprint(scaled(endless), changing=True)) == 64
    assert fingerprint(scaled(jnp.zeros(2))) != fingerprint(scaled(jnp.ones(2)))
    assert len(fingerprint(scaled(jax.random.key(0)))) == 64


def test_helpers_in_other_files_of_the_user_count(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_constants.py").write_text("FACTOR = 1.0")
    text = (
        "import numpy, my_constants\ndef turn(x):\n    return numpy.abs(x) * my_constants.FACTOR + {number}"
    )
    prints = []

    def by_module(helpers: Any) -> Any:
        return lambda x: helpers.turn(x)

    for number in (1, 2):
        (tmp_path / "my_helpers.py").write_text(text.format(number=number))
        for name in ("my_helpers", "my_constants"):
            sys.modules.pop(name, None)
        # Both files are written within a second, and have the same length.
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        helpers, constants = map(importlib.import_module, ("my_helpers", "my_constants"))
        prints += [fingerprint(by_module(helpers)), fingerprint(scaled(helpers.turn))]
        constants.FACTOR = 3.0  # type: ignore[attr-defined]
        prints += [fingerprint(by_module(helpers)), fingerprint(scaled(helpers.turn))]
    assert len({*prints}) == len(prints) == 8
