"""Several observations, with parameters of their own and with shared ones."""

from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

import evidencenet as en
from conftest import Case, draws, rms

SIZE, SETS = 5, 3
ONE, ALL = en.problems.mean_test(size=SIZE), en.problems.mean_test(size=SIZE * SETS)
OPTIONS: dict[str, Any] = {
    "members": 2,
    "recipe": en.Recipe(epochs=4),
    "baseline": True,
    "seed": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def net() -> en.EvidenceNetwork:
    return en.train(draws(ONE, 20_000, seed=1), **OPTIONS)


def test_the_sum_is_right_for_parameters_of_their_own(net: en.EvidenceNetwork) -> None:
    rng = np.random.default_rng(3)
    means = rng.standard_normal((500, SETS, 1))
    x = means + rng.standard_normal((500, SETS, SIZE))
    # All three observations as one normal law, with a block of the covariance for each mean.
    alternative = block_diag(*[np.eye(SIZE) + np.ones((SIZE, SIZE))] * SETS)
    flat = x.reshape(500, -1)
    exact = multivariate_normal(cov=alternative).logpdf(flat) - multivariate_normal(
        cov=np.eye(SIZE * SETS)
    ).logpdf(flat)
    found = [net.combine(list(one), independent=True) for one in x]
    values, errors = (np.array([getattr(e, part) for e in found]) for part in ("value", "error"))
    assert rms(values - exact) < 2 * rms(errors)
    # As one mean for all, the same data have another log K.
    assert rms(values - ALL.log_bayes_factor(flat)) > 5 * rms(errors)
    np.testing.assert_allclose(errors[0], net.error(x[0]).sum())
    np.testing.assert_allclose(values[0], net.log_bayes_factor(x[0]).sum())
    backwards = net.combine(x[0], independent=True, model=0, against=1)
    assert float(backwards) == pytest.approx(-values[0])


def test_the_sum_is_wrong_for_shared_parameters_and_one_x_is_right(net: en.EvidenceNetwork) -> None:
    fresh: Any = draws(ALL, 2_000, seed=4).x
    exact = ALL.log_bayes_factor(fresh)
    parts = fresh.reshape(-1, SIZE)
    # Even exact log K of the parts do not add up to that of the whole.
    added = ONE.log_bayes_factor(parts).reshape(-1, SETS).sum(axis=1)
    together = en.train(draws(ALL, 20_000, seed=1), **OPTIONS)
    off = rms(together.log_bayes_factor(fresh) - exact)
    assert off < 2 * rms(together.error(fresh))
    assert rms(added - exact) > 10 * off


def test_it_refuses_unless_told(net: en.EvidenceNetwork) -> None:
    x = np.zeros((3, SIZE))
    unsure: Any = "yes"
    for options in ({}, {"independent": False}, {"independent": unsure}):
        with pytest.raises(
            ValueError, match=r"not the sum .* share parameters: simulate them together as one"
        ):
            net.combine(x, **options)
    with pytest.raises(ValueError, match="this network was trained on"):
        net.combine(np.zeros((3, SIZE + 1)), independent=True)


def test_lists_of_dicts(cloud: Case) -> None:
    x: Any = cloud.fresh.x
    single = [{key: array[i] for key, array in x.items()} for i in range(4)]
    batch = {key: array[:4] for key, array in x.items()}
    together, apart = (cloud.net.combine(given, independent=True) for given in (batch, single))
    assert float(together) == float(apart)
    with pytest.raises(ValueError, match="differ in their keys"):
        cloud.net.combine([single[0], {"x": single[1]["x"]}], independent=True)
