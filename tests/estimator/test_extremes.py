"""Data of any scale give the same log K; a batch without observations gives an answer without numbers."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet.estimator import evaluation
from evidencenet.training.scaling import Scaling


@pytest.mark.parametrize("power", [-700, -530, 500, 990])
def test_log_k_does_not_depend_on_the_unit(small: Case, power: int) -> None:
    unit = 2.0**power  # 1e-211, 1e-160, 1e150, 1e298: squares of these are 0 or infinite
    scaled = en.Simulations(np.asarray(small.sims.x) * unit, small.sims.model, small.sims.names)
    options: dict[str, Any] = {"members": 2, "recipe": en.Recipe(epochs=3), "baseline": False}
    net = en.train(scaled, seed=2, learn_error=False, progress=False, **options)
    x = np.asarray(small.fresh.x)[:50]
    np.testing.assert_allclose(net.log_bayes_factor(x * unit), small.net.log_bayes_factor(x), rtol=1e-5)
    assert np.std(net.log_bayes_factor(x * unit)) > 0.1


def test_scaling_takes_squares_in_a_unit_only_where_needed() -> None:
    x = np.random.default_rng(1).normal(size=(1_000, 3))
    x[:, 1] *= 1e-250
    x[:, 2] *= 1e300
    scaled = Scaling.fit(x)(x)
    assert isinstance(scaled, np.ndarray)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-6)
    np.testing.assert_array_equal(scaled[:, :1], Scaling.fit(x[:, :1])(x[:, :1]))


def test_what_cannot_be_scaled_is_refused() -> None:
    tiny = np.random.default_rng(1).normal(size=(100, 1)).astype(np.float32) * np.float32(1e-40)
    with pytest.raises(
        ValueError, match=r"vary by .*e-41, beyond what float32 can scale\. Give x in other units"
    ):
        Scaling.fit(tiny)


# Bytes that are kept for each observation. It is the answer, twice while blocks are joined, and of log K and
# the probabilities those of each member. If all blocks are kept, it is 85, 89, 41, 100 and 84.
@pytest.mark.parametrize(
    ("ask", "most"),
    [
        ("in_range", 20),
        ("error", 30),
        ("novelty_p_value", 30),
        ("log_bayes_factor", 50),
        ("probabilities", 72),
    ],
)
def test_memory_does_not_grow_with_the_number_of_observations(
    small: Case, ask: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_ROWS", 8_192)
    x = np.random.default_rng(1).normal(size=(16 * 8_192, 5))
    getattr(small.net, ask)(x[:20_000])
    peaks = []
    for rows in (4 * 8_192, 16 * 8_192):
        tracemalloc.start()
        getattr(small.net, ask)(x[:rows])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < most * 12 * 8_192


@pytest.mark.parametrize("case", ["small", "three", "cloud"])
def test_no_observations(case: str, request: pytest.FixtureRequest) -> None:
    given: Case = request.getfixturevalue(case)
    x = given.fresh.x
    empty = {key: array[:0] for key, array in x.items()} if isinstance(x, dict) else x[:0]
    count, members = len(given.net.names), len(given.net.gain)
    assert given.net.log_bayes_factor(empty, model=1, against=0).shape == (0,)
    assert given.net.error(empty, model=1, against=0).shape == (0,)
    assert given.net.members(empty, model=1, against=0).shape == (members, 0)
    assert given.net.probabilities(empty).shape == (0, count)
