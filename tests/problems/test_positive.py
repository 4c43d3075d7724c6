"""Positive data: reaction times against scipy's densities on a grid."""

import numpy as np
from scipy import stats

from evidencenet import problems
from routes import draws


def test_reaction_times_against_a_grid() -> None:
    problem = problems.reaction_times(5, spread=0.7)
    log_shape, log_rate = np.meshgrid(np.linspace(-5, 7, 481), np.linspace(-12, 8, 801), indexing="ij")
    shape, rate = np.exp(log_shape), np.exp(log_rate)
    step = np.log(12 / 480 * 20 / 800)
    # The density of log r has the factor r.
    log_prior = (
        stats.norm.logpdf(log_shape, np.log(2), 0.7) + stats.expon.logpdf(rate, scale=1 / 0.3) + log_rate
    )
    covariance = 0.5 * (np.eye(5) + 4 * np.ones((5, 5)))
    student = stats.multivariate_t(np.full(5, np.log(0.5)), covariance, df=8)
    x = draws(problem, 2)
    for row, given in zip(x, problem.log_evidence(x), strict=True):
        terms = log_prior + sum(stats.gamma.logpdf(value, shape, scale=1 / rate) for value in row)
        gamma = np.log(np.exp(terms - terms.max()).sum()) + terms.max() + step
        expected = (student.logpdf(np.log(row)) - np.log(row).sum(), gamma)
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-7)
