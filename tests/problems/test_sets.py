"""Sets: marked points against the covariance of the marks."""

import numpy as np
import pytest

from evidencenet import problems
from routes import draws, normal


def test_marked_points_against_their_covariance() -> None:
    problem = problems.marked_points(9, share=0.7)
    x = draws(problem, 4)
    for i in range(8):
        u, v, marks = x["x"][i][x["mask"][i]].astype(float).T
        du, dv = 2 * np.pi * np.subtract.outer(u, u), 2 * np.pi * np.subtract.outer(v, v)
        # The covariance of the smooth part: the mean of the cosines of the four waves.
        smooth = 0.25 * (np.cos(du) + np.cos(dv) + np.cos(du + dv) + np.cos(du - dv))
        one = np.eye(len(u))
        expected = (normal(marks, one), normal(marks, 0.3 * one + 0.7 * smooth))
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-8)


def test_bad_data() -> None:
    with pytest.raises(ValueError, match="share must lie between 0 and 1"):
        problems.marked_points(share=1.0)
    x = {"x": np.full((1, 3, 3), 1.5), "mask": np.ones((1, 3), dtype=bool)}
    with pytest.raises(ValueError, match="unit square"):
        problems.marked_points(3).log_evidence(x)
