"""Tables of answers: the evidence against draws of the prior, and as a sum over all tables."""

import itertools
from typing import Any

import numpy as np
import pytest

from evidencenet import problems
from routes import agrees_with_prior_draws, draws


def log_likelihood(theta: dict[str, np.ndarray], x: np.ndarray) -> Any:
    # Abilities are drawn too: the mean over them is part of the mean over the prior.
    persons, questions = x.shape
    tau = theta.get("tau", np.zeros_like(theta["mean"]))
    unit = np.random.default_rng(8).standard_normal((len(tau), persons))
    ability = theta["mean"][:, None] + tau[:, None] * unit
    total = np.zeros(len(tau))
    for j, difficulty in enumerate(np.linspace(-1.5, 1.5, questions)):
        right = 1 / (1 + np.exp(difficulty - ability))
        total += np.log(np.where(x[:, j] == 1, right, 1 - right)).sum(axis=1)
    return total


def test_questionnaire_against_draws_of_the_prior() -> None:
    problem = problems.questionnaire(4, 5, spread=1.2)
    for x in draws(problem, 2):
        assert agrees_with_prior_draws(problem, x, log_likelihood)


def test_evidences_sum_to_one() -> None:
    every = np.array(list(itertools.product([0, 1], repeat=9))).reshape(-1, 3, 3)
    total = np.exp(problems.questionnaire(3, 3).log_evidence(every)).sum(axis=0)
    np.testing.assert_allclose(total, 1, rtol=0, atol=1e-9)


def test_all_right_is_integrated_far_out() -> None:
    # All answers right pull the mean ability up, where the quadrature must still reach.
    problem, finer = problems.questionnaire(), problems.questionnaire(step=0.1)
    x = np.stack([np.ones((20, 8)), np.zeros((20, 8))])
    np.testing.assert_allclose(problem.log_evidence(x), finer.log_evidence(x), rtol=0, atol=1e-8)
    mean = np.linspace(-4, 20, 24_001)
    chance = -np.logaddexp(0, np.linspace(-1.5, 1.5, 8)[:, None] - mean).sum(axis=0)
    terms = 20 * chance - 0.5 * mean**2
    expected = np.log(np.exp(terms - terms.max()).sum() * 0.001 / np.sqrt(2 * np.pi)) + terms.max()
    np.testing.assert_allclose(problem.log_evidence(x)[0, 0], expected, rtol=0, atol=1e-8)


def test_bad_data() -> None:
    with pytest.raises(ValueError, match="zeros and ones only"):
        problems.questionnaire(1, 2).log_evidence(np.array([[[0.0, 0.5]]]))
