"""Sequences: AR(1) against MA(1), with dense covariances and quadrature over the coefficient."""

import numpy as np
import pytest

from evidencenet import problems
from routes import draws, log_quad, normal


def test_ar_or_ma_against_quadrature() -> None:
    problem = problems.ar_or_ma(6)
    lag = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))

    def moving(theta: float, x: np.ndarray) -> float:
        neighbour = theta / (1 + theta**2)
        return normal(x, np.where(lag == 0, 1.0, np.where(lag == 1, neighbour, 0.0))) - np.log(1.8)

    x = draws(problem, 2)
    for row, given in zip(x, problem.log_evidence(x), strict=True):
        autoregressive = log_quad(lambda p, v=row: normal(v, p**lag) - np.log(1.8), -0.9, 0.9)
        average = log_quad(lambda p, v=row: moving(p, v), -0.9, 0.9)
        np.testing.assert_allclose(given, (autoregressive, average), rtol=0, atol=1e-8)


def test_moving_average_one_step_at_a_time() -> None:
    # The innovations of a series of 50: each value is predicted from those before it.
    problem = problems.ar_or_ma()
    x = draws(problem, 3)
    theta, weight = np.polynomial.legendre.leggauss(300)
    theta, correlation = 0.9 * theta, 0.9 * theta / (1 + (0.9 * theta) ** 2)
    for row, given in zip(x, problem.log_evidence(x)[:, 1], strict=True):
        log_density, error, variance = np.zeros(300), np.zeros(300), np.ones(300)
        for t, value in enumerate(row):
            gain = correlation / variance if t else np.zeros(300)
            error, variance = value - gain * error, 1 - gain * correlation
            log_density -= 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
        expected = np.log(0.5 * weight @ np.exp(log_density - log_density.max())) + log_density.max()
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-8)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"largest must be below 1, got 1\.0"):
        problems.ar_or_ma(largest=1.0)
