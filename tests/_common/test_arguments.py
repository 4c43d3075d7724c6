"""Whole numbers and seeds, as people give them."""

import re
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.arguments import checked_seed, whole


@pytest.mark.parametrize("given", [2, 2.0, np.int8(2), np.float32(2), np.uint64(2)])
def test_whole_numbers_of_any_type_are_taken(given: Any) -> None:
    assert whole("members", given, 1) == checked_seed(given) == 2


@pytest.mark.parametrize("given", [1.5, "2", None, True, np.nan, np.inf, [2], 2j])
def test_anything_else_is_refused_by_name(given: Any) -> None:
    with pytest.raises(TypeError, match=f"members must be a whole number, got {re.escape(repr(given))}"):
        whole("members", given, 1)


def test_a_seed_that_is_drawn_is_said() -> None:
    with pytest.warns(en.InputWarning, match="seed=None: the seed") as record:
        seed = checked_seed(None)
    assert re.findall(r"Give seed=(\d+)", str(record[0].message)) == [str(seed)]


def flat(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 2))


def test_a_seed_is_drawn_the_same_way_everywhere() -> None:
    with pytest.warns(en.InputWarning, match="seed=None: the seed") as record:
        sims = en.simulate({"a": flat, "b": flat}, 200, seed=None, progress=False)
    quick: Any = {"members": 1, "recipe": en.Recipe(epochs=1), "learn_error": False, "progress": False}
    with pytest.warns(en.InputWarning, match="seed=None: the seed") as other:
        en.train(sims, seed=None, **quick)
    # Both warnings point at the line of the caller.
    assert record[0].filename == other[0].filename == __file__
