"""Sequences: dense covariances, with sums over places or quadrature over the coefficients."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import simpson

from evidencenet import problems
from routes import draws, log_mean, log_quad, normal


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


def test_chirp_against_dense_normal_densities() -> None:
    problem = problems.chirp(20, 12, amplitude=3.0)
    x = draws(problem)
    u = np.arange(0, 24, 2)
    shape = np.sin(u * (0.25 + 0.022 * u)) * stats.norm.pdf(u, 14, 5)
    shape /= np.linalg.norm(shape)
    at = [np.pad(shape, (place, 8 - place)) for place in range(9)]
    chirps = [normal(x, np.eye(20) + 9 * np.outer(c, c)) for c in at]
    expected = np.stack([normal(x, np.eye(20)), log_mean(chirps)], axis=1)
    np.testing.assert_allclose(problem.log_evidence(x), expected, rtol=0, atol=1e-9)


def test_chirp_is_where_its_parameters_say() -> None:
    # The noise is the same in both, so the difference is the chirp alone.
    simulate = problems.chirp().models[1].simulate
    assert simulate is not None
    place = np.array([0, 50, 104])
    loud, quiet = (
        simulate(np.random.default_rng(1), {"place": place, "amplitude": np.full(3, a)}) for a in (7.0, 0.0)
    )
    for row, start in zip(loud - quiet, place, strict=True):
        assert not row[:start].any()
        assert not row[start + 24 :].any()
        np.testing.assert_allclose(np.linalg.norm(row), 7.0, rtol=1e-5)
        np.testing.assert_allclose(row, np.roll(loud[0] - quiet[0], start), rtol=0, atol=1e-5)


def test_regimes_against_dense_normal_densities() -> None:
    problem = problems.regimes(12, level=0.8)
    x = draws(problem, 2)
    unit = np.linspace(0, 1, 401)
    for row, given in zip(x, problem.log_evidence(x), strict=True):
        y, last = row[1:], row[:-1]
        week = np.concatenate([np.zeros(6), row[:5]])
        expected = [log_quad(lambda a, y=y, b=last: normal(y - a * b, np.eye(11) + 0.64), -0.2, 0.8)]
        for terms, bounds in (
            ((np.where(last < 0, last, 0), np.where(last > 0, last, 0)), ((-0.4, 0.9), (-0.4, 0.9))),
            ((last, week), ((-0.2, 0.6), (-0.1, 0.35))),
        ):
            a, b = (low + (high - low) * unit for low, high in bounds)
            rest = y - a[:, None, None] * terms[0] - b[:, None] * terms[1]
            density = normal(rest, np.eye(11) + 0.64)
            top = density.max()
            expected.append(top + np.log(simpson(simpson(np.exp(density - top), unit), unit)))
        # For one regime `log_quad` integrates over a range of length 1, so it is the mean.
        expected += stats.norm.logpdf(row[0])
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", range(3))
def test_regimes_follow_their_parameters(k: int) -> None:
    # The simulator draws nothing but the noise, so it can be drawn again.
    model = problems.regimes().models[k]
    simulate = model.simulate
    assert simulate is not None
    noise = np.random.default_rng(3).standard_normal((4, 80), dtype=np.float32)
    theta = {"level": np.full(4, -0.3), "coefficients": np.tile([0.7, -0.2], (4, 1))[:, : 1 + (k > 0)]}
    x = simulate(np.random.default_rng(3), theta).astype(float)
    for t in range(1, 80):
        last = x[:, t - 1]
        if model.name == "two regimes":
            change = np.where(last < 0, 0.7, -0.2) * last
        else:
            change = 0.7 * last - 0.2 * (x[:, t - 7] if model.name == "weekly" and t >= 7 else 0)
        np.testing.assert_allclose(x[:, t], noise[:, t] - 0.3 + change, rtol=0, atol=1e-5)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="width must be at most length, got width=24 and length=20"):
        problems.chirp(20)
    with pytest.raises(ValueError, match="length must be at least 8, got 7"):
        problems.regimes(7)
    with pytest.raises(ValueError, match=r"largest must be below 1, got 1\.0"):
        problems.ar_or_ma(largest=1.0)
