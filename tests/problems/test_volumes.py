"""Volumes: the evidence against the covariance of the pixels."""

import itertools

import numpy as np

from evidencenet import problems
from routes import draws, log_mean, normal


def covariance(side: int, lengths: tuple[float, ...], noise: float) -> np.ndarray:
    """Sum the waves of a field of unit variance, one by one, and add the noise."""
    place = np.array(list(itertools.product(range(side), repeat=3)))
    wave = np.where(place > side / 2, place - side, place) * 2 * np.pi / side
    power = np.exp(-((wave * lengths) ** 2).sum(axis=1))
    difference = place[:, None] - place
    field = np.cos(difference @ wave.T) @ power / power.sum()
    return field + noise**2 * np.eye(len(place))


def test_stretched_field_against_its_covariance() -> None:
    problem = problems.stretched_field(3, length=0.7, stretch=1.6, noise=0.4)
    x = draws(problem, 3)
    short, long = 0.7 / np.sqrt(1.6), 0.7 * 1.6
    axes = [(long, short, short), (short, long, short), (short, short, long)]
    for volume, given in zip(x, problem.log_evidence(x), strict=True):
        stretched = log_mean([normal(volume.ravel(), covariance(3, axis, 0.4)) for axis in axes])
        expected = (normal(volume.ravel(), covariance(3, (0.7,) * 3, 0.4)), stretched)
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-8)


def test_draws_have_the_covariance() -> None:
    # Draws of one axis: a wrong order of the axes would exchange the neighbours' correlations.
    problem = problems.stretched_field(4)
    n = 20_000
    x = np.asarray(problem.models[1].draw_data(np.random.default_rng(1), n, np.full(n, 1)), dtype=float)
    short, long = 0.8 / np.sqrt(1.35), 0.8 * 1.35
    expected = covariance(4, (short, long, short), 0.5)[0]
    seen = (x[:, 0, 0, 0, None] * x.reshape(n, 64)).mean(axis=0)
    error = np.sqrt((expected[0] ** 2 + expected**2) / n)
    assert (np.abs(seen - expected) < 4 * error).all()
    wrong = covariance(4, (long, short, short), 0.5)[0]
    assert (np.abs(seen - wrong) > 4 * error).any()
