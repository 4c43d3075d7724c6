"""Linear signals: new problems against dense covariances."""

import numpy as np

from evidencenet import problems
from routes import draws, normal


def test_templates_against_scipy() -> None:
    problem = problems.templates(15, amplitude=1.5)
    x = draws(problem)
    covariance = np.eye(15)
    for centre, width in ((0.25, 0.05), (0.5, 0.1), (0.75, 0.2)):
        bump = np.exp(-((np.arange(15) / 14 - centre) ** 2) / (2 * width**2))
        covariance += 2.25 * np.outer(bump, bump) / (bump @ bump)
    expected = np.stack([normal(x, np.eye(15)), normal(x, covariance)], axis=1)
    np.testing.assert_allclose(problem.log_evidence(x), expected, rtol=0, atol=1e-9)


def test_long_templates_keep_the_digits_of_log_k() -> None:
    # log K from the three products of x with the bumps alone, without the sum of 2,000 squares.
    problem = problems.templates()
    x = draws(problem, 200)
    place = np.linspace(0, 1, 2000)[:, None]
    bumps = np.exp(-0.5 * ((place - [0.25, 0.5, 0.75]) / [0.05, 0.1, 0.2]) ** 2)
    bumps /= np.linalg.norm(bumps, axis=0)
    inner = np.eye(3) + 4 * bumps.T @ bumps
    product = x @ bumps
    gain = 2 * np.einsum("ni,ni->n", product, np.linalg.solve(inner, product.T).T)
    expected = gain - 0.5 * np.linalg.slogdet(inner)[1]
    np.testing.assert_allclose(problem.log_bayes_factor(x), expected, rtol=0, atol=1e-9)


def test_spectral_line_against_scipy() -> None:
    problem = problems.spectral_line(20, 3, amplitude=2.0, width=1.5)
    x = draws(problem)
    pixel = np.arange(20)
    slope = 2 * pixel / 19 - 1
    expected = []
    for place in (2, 10, 18):
        line = np.exp(-((pixel - place) ** 2) / (2 * 1.5**2))
        continuum = np.eye(20) + np.ones((20, 20)) + np.outer(slope, slope)
        expected.append(normal(x, continuum + 4 * np.outer(line, line)))
    np.testing.assert_allclose(problem.log_evidence(x), np.stack(expected, axis=1), rtol=0, atol=1e-9)
