"""Rankings: the evidence against draws of the prior, and as a sum over all rankings."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from evidencenet import problems
from routes import agrees_with_prior_draws, draws


def log_likelihood(theta: Any, x: np.ndarray) -> Any:
    number, items = x.shape
    if theta is None:
        return -number * np.log(math.factorial(items))
    distance = np.zeros(len(theta["theta"]))
    for i, j in itertools.combinations(range(items), 2):
        for ranks in x:
            distance += (ranks[i] < ranks[j]) != (theta["order"][:, i] < theta["order"][:, j])
    # The sum of exp(−θ d) over all rankings, ranking by ranking.
    inversions = [
        sum(a > b for a, b in itertools.combinations(order, 2))
        for order in itertools.permutations(range(items))
    ]
    norm = np.exp(-np.outer(theta["theta"], inversions)).sum(axis=1)
    return -theta["theta"] * distance - number * np.log(norm)


def test_judges_against_draws_of_the_prior() -> None:
    problem = problems.judges(4, 4, agreement=0.5)
    for x in draws(problem, 3):
        assert agrees_with_prior_draws(problem, x, log_likelihood)


def test_evidences_sum_to_one() -> None:
    orders = list(itertools.permutations((1, 2, 3)))
    every = np.array(list(itertools.product(orders, repeat=3)))
    total = np.exp(problems.judges(3, 3).log_evidence(every)).sum(axis=0)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_draws_follow_the_law_of_mallows() -> None:
    # At a given θ and true order, all 24 rankings of four items have the stated probability.
    problem = problems.judges(1, 4)
    n, theta = 100_000, 0.7
    order = np.array([2, 0, 3, 1])
    given = {"order": np.tile(order, (n, 1)), "theta": np.full(n, theta)}
    x: Any = problem.models[1].draw_data(np.random.default_rng(1), n, given)
    orders = np.array(list(itertools.permutations(range(4))))
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    before = orders[:, pairs[:, 0]] < orders[:, pairs[:, 1]]
    distance = (before != (order[pairs[:, 0]] < order[pairs[:, 1]])).sum(axis=1)
    expected = np.exp(-theta * distance)
    expected /= expected.sum()
    seen = np.array([np.all(x[:, 0] == 1 + ranks, axis=1).mean() for ranks in orders])
    z = (seen - expected) / np.sqrt(expected * (1 - expected) / n)
    assert np.abs(z).max() < 4
    # A θ that is wrong by 5% is noticed.
    wrong = np.exp(-1.05 * theta * distance)
    wrong /= wrong.sum()
    assert np.abs((seen - wrong) / np.sqrt(wrong * (1 - wrong) / n)).max() > 4


def test_bad_rankings() -> None:
    with pytest.raises(ValueError, match="every judge must give each rank from 1 to 3 once"):
        problems.judges(1, 3).log_evidence(np.array([[[1, 2, 2]]]))
    with pytest.raises(ValueError, match="items must be at most 7, got 8"):
        problems.judges(2, 8)
