"""Networks that several test files look at, each trained once."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import evidencenet as en


class Case(NamedTuple):
    """A worked problem, the draws that a network was trained on, fresh draws, and the network."""

    problem: en.problems.Problem
    sims: en.Simulations
    fresh: en.Simulations
    net: en.EvidenceNetwork


def draws(problem: en.problems.Problem, n: int, seed: int, **options: Any) -> en.Simulations:
    return en.simulate(problem.models, n, seed=seed, progress=False, **options)


@pytest.fixture(scope="session")
def series() -> Case:
    """The paper's time series in 20 dimensions: four members that correct Gaussians."""
    problem = en.problems.time_series(dim=20)
    sims = draws(problem, 60_000, seed=1)
    recipe = en.Recipe(epochs=8)
    net = en.train(sims, augment=problem.augment, baseline=True, recipe=recipe, seed=2, progress=False)
    return Case(problem, sims, draws(problem, 10_000, seed=6), net)


@pytest.fixture(scope="session")
def small() -> Case:
    """Five numbers, two members without a baseline: quick, and each member gives its own log K."""
    problem = en.problems.mean_test(size=5)
    sims = draws(problem, 6_000, seed=1)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=3), baseline=False, seed=2, progress=False)
    return Case(problem, sims, draws(problem, 2_000, seed=3), net)


@pytest.fixture(scope="session")
def three() -> Case:
    """Three models, in shares of 1 : 2 : 3, on a Gaussian baseline."""
    problem = en.problems.polynomial_order(size=8, orders=3)
    sims = draws(problem, 42_000, seed=1, fractions=(1, 2, 3))
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=3), baseline=True, seed=2, progress=False)
    return Case(problem, sims, draws(problem, 3_000, seed=3), net)


@pytest.fixture(scope="session")
def cloud() -> Case:
    """Sets of points: a dict of values and a mask, on a Gaussian baseline."""
    problem = en.problems.correlated_cloud(capacity=5)
    sims = draws(problem, 8_000, seed=1)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=2), baseline=True, seed=2, progress=False)
    return Case(problem, sims, draws(problem, 1_000, seed=3), net)


@pytest.fixture(scope="session")
def normed(small: Case) -> Case:
    """The small problem with batch normalisation, whose state belongs to each member."""
    net = en.train(
        small.sims,
        network=en.networks.Dense(norm=True),
        members=2,
        recipe=en.Recipe(epochs=3),
        seed=2,
        progress=False,
    )
    return small._replace(net=net)


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def shifted(seed: int, n0: int, n1: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw from N(0, 1) or N(shift, 1), and return the exact log K, shift·x − shift²/2, and the labels."""
    labels = np.repeat([0, 1], [n0, n1])
    x = np.random.default_rng(seed).normal(size=n0 + n1) + shift * labels
    return shift * x - shift**2 / 2, labels
