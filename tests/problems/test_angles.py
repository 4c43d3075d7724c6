"""Angles: the evidence on a grid over both parameters, from the density of the von Mises distribution."""

from typing import Any

import numpy as np
from scipy import stats

from evidencenet import problems
from routes import draws


def test_headings_against_a_grid() -> None:
    problem = problems.headings(5, strength=1.2)
    # Whole periods for the direction (the rectangle rule is exact to rounding), Gauss–Laguerre for κ.
    direction = np.linspace(-np.pi, np.pi, 400, endpoint=False)
    nodes, weights = np.polynomial.laguerre.laggauss(60)
    kappa = 1.2 * nodes[:, None, None]
    for x in draws(problem, 2):

        def mean(factor: int, x: np.ndarray = x) -> Any:
            angle = factor * (x - direction[:, None])
            likelihood = np.exp(np.sum(stats.vonmises.logpdf(angle, kappa), axis=2))
            return np.log(weights @ likelihood.mean(axis=1))

        expected = (-5 * np.log(2 * np.pi), mean(1), mean(2))
        np.testing.assert_allclose(problem.log_evidence(x[None])[0], expected, rtol=0, atol=1e-7)


def test_whole_turns_change_nothing() -> None:
    problem = problems.headings()
    x = draws(problem, 50)
    assert (np.abs(x) <= np.pi).all()
    turned = x + 2 * np.pi * np.random.default_rng(0).integers(-2, 3, x.shape)
    np.testing.assert_allclose(problem.log_evidence(turned), problem.log_evidence(x), rtol=0, atol=1e-9)


def test_an_axis_is_no_direction() -> None:
    opposite = np.array([[0.3, 0.3 - np.pi] * 10])
    log_evidence = problems.headings().log_evidence(opposite)[0]
    assert log_evidence[2] > log_evidence[0] + 10
    assert log_evidence[1] < log_evidence[0]
