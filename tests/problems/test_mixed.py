"""Data of several parts: the evidence against the covariance of all parts together."""

import numpy as np
import pytest

from evidencenet import problems
from routes import draws, log_mean, normal


def blurred(side: int, row: int, column: int, width: float) -> np.ndarray:
    """Draw a source pixel by pixel; the sum of its squares is 1 if it is far from the edge."""
    i, j = np.indices((side, side))
    source = np.exp(-((i - row) ** 2 + (j - column) ** 2) / (2 * width**2))
    far = np.exp(-(np.arange(-50, 51) ** 2) / width**2).sum()
    return source.ravel() / far


def test_same_source_against_its_covariance() -> None:
    problem = problems.same_source(4, 3, amplitude=2.0, width=0.6)
    x = draws(problem, 3)
    spectrum = np.exp([0, -1 / 3, -2 / 3])
    spectrum /= np.linalg.norm(spectrum)
    places = [(row, column) for row in range(4) for column in range(4)]
    for i in range(6):
        values = np.concatenate([x["image"][i].ravel(), x["fluxes"][i]]).astype(float)
        two, one = [], []
        for place in places:
            image = np.concatenate([blurred(4, *place, 0.6), np.zeros(3)])
            bands = np.concatenate([np.zeros(16), spectrum])
            two.append(normal(values, np.eye(19) + 4 * (np.outer(image, image) + np.outer(bands, bands))))
            one.append(normal(values, np.eye(19) + 4 * np.outer(image + bands, image + bands)))
        expected = (log_mean(two), log_mean(one))
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-5)


def test_one_part_alone_says_nothing() -> None:
    # Each part has the same distribution in both models, so parts of different data sets are data of M0.
    problem = problems.same_source()
    x, _ = problem.models[1].draw(np.random.default_rng(1), 20_000)
    mixed = {"image": x["image"], "fluxes": np.roll(x["fluxes"], 1, axis=0)}
    weight = np.exp(problem.log_bayes_factor(mixed))
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(len(weight))
    weight = np.exp(problem.log_bayes_factor(x))
    assert abs(weight.mean() - 1) > 4 * weight.std() / np.sqrt(len(weight))


def test_bad_data() -> None:
    problem = problems.same_source(2, 2)
    with pytest.raises(TypeError, match=r"keys 'image' and 'fluxes', got ndarray"):
        problem.log_evidence(np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="there are 1 images but 2 rows of fluxes"):
        problem.log_evidence({"image": np.zeros((1, 2, 2)), "fluxes": np.zeros((2, 2))})
