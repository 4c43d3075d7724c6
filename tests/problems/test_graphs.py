"""Graphs: who grooms whom, with all graphs of three animals, and with quadrature."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import simpson

from evidencenet import problems
from routes import draws, log_quad


def test_grooming_of_three_animals_sums_to_one() -> None:
    every = np.array(list(itertools.product([0, 1], repeat=6)))
    graphs = np.zeros((64, 3, 3))
    graphs[:, ~np.eye(3, dtype=bool)] = every
    total = np.exp(problems.grooming(3).log_evidence(graphs)).sum(axis=0)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_grooming_against_quadrature() -> None:
    problem = problems.grooming(5, largest=0.9)
    x = draws(problem, 2)
    p, rho = np.linspace(0, 1, 801), np.linspace(0, 0.9, 401)[:, None]
    prior = stats.beta.pdf(p, 2, 5) / 0.9
    for graph, given in zip(x, problem.log_evidence(x), strict=True):
        others = [np.delete(row, i) for i, row in enumerate(graph)]

        def chance(p: float, links: np.ndarray) -> float:
            return stats.bernoulli.logpmf(links, p).sum() + stats.beta.logpdf(p, 2, 5)

        links = np.concatenate(others)
        together = log_quad(lambda p, v=links: chance(p, v), 0, 1)
        by_animal = sum(log_quad(lambda p, v=v: chance(p, v), 0, 1) for v in others)
        density = prior
        for i, j in itertools.combinations(range(5), 2):
            # Independent, or with probability ρ a copy of the first: this has the correlation ρ.
            there = p if graph[i, j] else 1 - p
            back = p if graph[j, i] else 1 - p
            density = density * there * ((1 - rho) * back + rho * (graph[i, j] == graph[j, i]))
        mutual = np.log(simpson(simpson(density, p), rho[:, 0]))
        np.testing.assert_allclose(given, (together, mutual, by_animal), rtol=0, atol=1e-8)


def test_correlation_of_the_links_of_a_pair() -> None:
    simulate = problems.grooming().models[1].simulate
    assert simulate is not None
    n = 2_000
    x = simulate(np.random.default_rng(0), {"p": np.full(n, 0.3), "rho": np.full(n, 0.5)})
    first, second = np.triu_indices(10, 1)
    there, back = x[:, first, second].ravel(), x[:, second, first].ravel()
    # Four standard errors of 90,000 pairs.
    np.testing.assert_allclose([there.mean(), back.mean()], 0.3, rtol=0, atol=0.007)
    np.testing.assert_allclose(np.corrcoef(there, back)[0, 1], 0.5, rtol=0, atol=0.014)


def test_bad_graphs() -> None:
    with pytest.raises(ValueError, match="matrices of zeros and ones with an empty diagonal"):
        problems.grooming(4).log_evidence(np.ones((1, 4, 4)))
    with pytest.raises(ValueError, match=r"largest must lie between 0 and 1, got 1\.5"):
        problems.grooming(largest=1.5)
