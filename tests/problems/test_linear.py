"""Linear signals: dense covariances, also of unknown scale."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from evidencenet import problems
from routes import draws, log_mean, normal


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


def test_oscillation_against_scipy() -> None:
    problem = problems.oscillation(30, 4, strength=1.8, spread=0.6, decay=9.0)
    x = draws(problem)
    t = np.arange(30)
    oscillations = []
    for f in (0.03, 0.12, 0.21, 0.30):
        wave = np.exp(2j * np.pi * f * t - t / 9)
        covariance = np.eye(30) + 0.36 * np.outer(wave, wave.conj()).real
        oscillations.append(normal(x - 1.8 * wave.imag, covariance))
    expected = np.stack([normal(x, np.eye(30)), log_mean(oscillations)], axis=1)
    np.testing.assert_allclose(problem.log_evidence(x), expected, rtol=0, atol=1e-9)


def test_oscillation_is_what_its_parameters_say() -> None:
    # The noise is the same in both, so the difference is the oscillation alone.
    simulate = problems.oscillation().models[1].simulate
    assert simulate is not None
    x, noise = (
        simulate(
            np.random.default_rng(1), {"sine": np.full(12, a), "cosine": np.full(12, b), "f": np.arange(12)}
        )
        for a, b in ((2.0, -3.0), (0.0, 0.0))
    )
    t, frequency = np.arange(128), np.linspace(0.03, 0.30, 12)[:, None]
    wave = 2 * np.sin(2 * np.pi * frequency * t) - 3 * np.cos(2 * np.pi * frequency * t)
    np.testing.assert_allclose(x - noise, np.exp(-t / 26) * wave, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["strength", "spread", "decay"])
def test_scales_of_the_oscillation_are_above_zero(name: str) -> None:
    options: dict[str, Any] = {name: -1.0}
    with pytest.raises(ValueError, match=rf"{name} must be a finite number above 0, got -1\.0"):
        problems.oscillation(**options)


def test_bad_oscillation() -> None:
    with pytest.raises(ValueError, match="size must be at least 2, got 1"):
        problems.oscillation(1)
    with pytest.raises(ValueError, match="frequencies must be at least 1, got 0"):
        problems.oscillation(frequencies=0)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 128\), got \(3, 127\)"):
        problems.oscillation().log_evidence(np.zeros((3, 127)))


def test_moderation_against_multivariate_t() -> None:
    problem = problems.moderation(8, shape=3.0)
    x = draws(problem, 3)
    for person, given in zip(x, problem.log_evidence(x), strict=True):
        age, treated, score = person.T
        z = (age - 40) / 12
        expected = []
        for extra in (0 * z, np.where(treated == 1, z, -z), z**2 - 1):
            covariance = np.eye(8) + 1.0
            for term in (z, treated - 0.5, extra):
                covariance = covariance + 0.36 * np.outer(term, term)
            student = stats.multivariate_t(np.full(8, 500.0), 1e4 * covariance, df=6)
            expected.append(student.logpdf(score))
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-9)


def test_rows_of_the_moderation_are_persons() -> None:
    x = draws(problems.moderation(), 1_000)
    age, treated = x[..., 0].ravel(), x[..., 1].ravel()
    np.testing.assert_array_equal(age, np.round(age))
    assert set(treated) == {0.0, 1.0}
    # Four standard errors of 90,000 numbers; rounding adds 1/12 to the variance of the ages.
    np.testing.assert_allclose(age.mean(), 40, rtol=0, atol=0.17)
    np.testing.assert_allclose(age.std(), np.sqrt(144 + 1 / 12), rtol=0, atol=0.12)
    np.testing.assert_allclose(treated.mean(), 0.5, rtol=0, atol=0.007)
    with pytest.raises(ValueError, match="every treatment must be 0 or 1"):
        problems.moderation().log_evidence(np.full((1, 30, 3), 0.5))
