"""Programs that were compiled before."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from evidencenet.training import compiled as module
from evidencenet.training.compiled import compiled


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing compiled yet."""
    kept: Any = type(module._programs)()
    monkeypatch.setattr(module, "_programs", kept)
    return kept


def scaled(factor: Any, x: Any) -> Any:
    return factor * x


def test_the_same_program_is_compiled_once(programs: Any) -> None:
    x = np.arange(3.0, dtype=np.float32)
    one, again = (compiled(partial(scaled, 2.0), x) for _ in range(2))
    assert one is again
    np.testing.assert_array_equal(one(x), 2 * x)
    assert len(programs) == 1


def test_what_differs_is_not_mistaken(programs: Any) -> None:
    x = np.arange(1_000.0, dtype=np.float32)
    large = np.arange(1_000.0, dtype=np.float32)
    other = large.copy()
    other[500] = 7
    functions = [partial(scaled, factor) for factor in (2.0, 3.0, large, other)]
    for function in functions:
        np.testing.assert_array_equal(compiled(function, x)(x), function(x))
    assert len(programs) == 4
    # Another shape, another order of the arguments' parts, and arrays that may be written over.
    compiled(functions[0], x[:5])
    pair = {"a": x, "b": x}
    assert compiled(lambda d: d["a"] - d["b"], pair)(pair).sum() == 0
    compiled(functions[0], x, donate_argnums=0)
    assert len(programs) == 7


def test_threads_wait_for_each_other(programs: Any) -> None:
    x = np.ones((40, 40), np.float32)

    def work(x: Any) -> Any:
        for _ in range(20):
            x = jnp.tanh(x @ x)
        return x

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: compiled(work, x), range(8)))
    assert len(set(map(id, found))) == 1
    assert len(programs) == 1


def test_the_last_ones_used_are_kept(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    x = np.ones(3, np.float32)
    first = compiled(partial(scaled, 1.5), x)
    compiled(partial(scaled, 2.5), x)
    assert compiled(partial(scaled, 1.5), x) is first
    compiled(partial(scaled, 3.5), x)
    assert len(programs) == 2
    assert compiled(partial(scaled, 1.5), x) is first


def test_what_cannot_be_compared_is_compiled_anew(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the structure of a user's module may be, if it holds an array that is no leaf."""

    class Moody:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth of an array is ambiguous")

    monkeypatch.setattr(module.jax.tree, "structure", lambda arguments: Moody())
    x = np.ones(3, np.float32)
    one, again = (compiled(partial(scaled, 2.0), x) for _ in range(2))
    assert one is not again
    np.testing.assert_array_equal(again(x), 2 * x)


def test_a_failure_is_told_and_forgotten(programs: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        compiled(lambda x: 1 / 0, np.ones(2))
    assert not programs
