"""Letters: the evidence against draws of the prior, and as a sum over all sequences."""

import itertools
from typing import Any

import numpy as np
import pytest

from evidencenet import problems
from routes import agrees_with_prior_draws, draws


def log_likelihood(theta: np.ndarray, x: np.ndarray) -> Any:
    letters = [int(letter) for letter in x]
    if theta.ndim == 2:
        return sum(np.log(theta[:, letter]) for letter in letters)
    steps = (np.log(theta[:, a, b]) for a, b in itertools.pairwise(letters))
    return -np.log(theta.shape[1]) + sum(steps)


def test_markov_chain_against_draws_of_the_prior() -> None:
    problem = problems.markov_chain(12, 3, concentration=1.5)
    for x in draws(problem, 3):
        assert agrees_with_prior_draws(problem, x, log_likelihood)


def test_evidences_sum_to_one() -> None:
    sequences = np.array(list(itertools.product(range(3), repeat=6)))
    total = np.exp(problems.markov_chain(6, 3).log_evidence(sequences)).sum(axis=0)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_a_chain_that_repeats_is_no_independent_sequence() -> None:
    # Nothing but the order differs: each letter occurs 15 times in both.
    blocks = np.repeat(np.arange(4), 15)
    mixed = np.random.default_rng(0).permutation(blocks)
    log_k = problems.markov_chain().log_bayes_factor(np.stack([blocks, mixed]))
    assert log_k[0] > 20
    assert log_k[1] < 0


def test_bad_letters() -> None:
    for x in (np.full((1, 60), 4), np.full((1, 60), 0.5), np.full((1, 60), -1)):
        with pytest.raises(ValueError, match="whole numbers from 0 to 3"):
            problems.markov_chain().log_evidence(x)
