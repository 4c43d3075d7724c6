"""Failed draws in the Bayes factor, on a model that fails for a known part of its prior."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import evidencenet as en

SIZE, LIMIT = 4, 0.5
PROBLEM = en.problems.mean_test(size=SIZE)


def fails_above(limit: float) -> en.Model:
    """The mean test's second model, whose simulator breaks down where the mean is above a limit."""

    def simulate(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
        x = mean[:, None] + rng.standard_normal((len(mean), SIZE))
        return np.where(mean[:, None] > limit, np.nan, x)

    return en.Model("free mean", simulate, prior=lambda rng, n: rng.standard_normal(n))


def exact(x: np.ndarray) -> np.ndarray:
    """Log of p(x, valid|M1)/p(x|M0): log K of the whole prior, times p(mean ≤ limit|x)."""
    precision = SIZE + 1
    return PROBLEM.log_bayes_factor(x) + log_ndtr((LIMIT - x.sum(axis=1) / precision) * np.sqrt(precision))


@pytest.fixture(scope="module")
def models() -> list[en.Model]:
    return [PROBLEM.models[0], fails_above(LIMIT)]


def test_failures_shift_log_k_by_the_log_of_the_valid_fraction(models: list[en.Model]) -> None:
    sims = en.simulate(models, 30_000, seed=1, progress=False)
    recipe = en.Recipe(epochs=6)
    net = en.train(sims, members=2, baseline=True, recipe=recipe, learn_error=False, seed=2, progress=False)
    error = sims.log_valid_error[1]
    shift = float(log_ndtr(LIMIT))
    assert abs(net.log_valid[1] - shift) < 4 * error
    x = en.simulate(models, 5_000, seed=3, progress=False).x
    difference = net.log_bayes_factor(x) - exact(np.asarray(x))
    tolerance = 4 * error + 0.1
    assert abs(difference.mean()) < tolerance
    # Draws that were dropped without being counted would give a Bayes factor off by the whole shift.
    assert abs((difference - shift).mean()) > tolerance
    assert abs(shift) > 3 * tolerance


def test_the_error_of_the_valid_fraction() -> None:
    model = fails_above(LIMIT)
    valid = float(ndtr(LIMIT))
    repeats, errors = [], []
    for seed in range(1000):
        sims = en.simulate([model], 300, seed=seed, progress=False)
        repeats.append((np.log(sims.valid_fraction[0]) - np.log(valid)) / sims.log_valid_error[0])
        errors.append(sims.log_valid_error[0])
    # The scatter of 1000 standard normals is 1 to 1/√2000; four of that.
    assert abs(np.std(repeats) - 1) < 0.09
    assert abs(np.mean(repeats)) < 4 / np.sqrt(1000) + np.mean(errors)
    # The error of the fraction itself, not of its logarithm, would fail.
    assert np.std(repeats) / valid > 1.09


def test_the_error_by_hand() -> None:
    sims = en.Simulations(np.zeros(8), [0, 0, 1, 1, 1, 1, 1, 1], failed=(0, 2))
    np.testing.assert_allclose(sims.log_valid_error, [0, np.sqrt(0.25 / (0.75 * 8))])
