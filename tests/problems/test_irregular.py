"""Irregular series: the evidence against dense normal densities and quadrature over the frequency."""

import numpy as np
import pytest

from evidencenet import problems
from routes import draws, log_quad, normal


def test_light_curve_against_quadrature() -> None:
    problem = problems.light_curve(10, cycles=(1.5, 2.5), amplitude=1.3)
    x = draws(problem, 2)
    for i in range(4):
        t, y = (x[key][i, x["mask"][i]].astype(float) for key in ("t", "y"))
        level = np.eye(len(t)) + np.ones((len(t), len(t)))

        def periodic(f: float, t: np.ndarray = t, y: np.ndarray = y, level: np.ndarray = level) -> float:
            # cos(a − b) is the sum of the products of cosines and of sines.
            return normal(y, level + 1.69 * np.cos(2 * np.pi * f * np.subtract.outer(t, t)))

        expected = (normal(y, level), log_quad(periodic, 1.5, 2.5))
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-8)


def test_times_have_gaps_and_are_in_order() -> None:
    x = draws(problems.light_curve(), 500)
    number = x["mask"].sum(axis=1)
    assert (number.min(), number.max()) == (20, 40)
    for t, mask in zip(x["t"], x["mask"], strict=True):
        assert (np.diff(t[mask]) >= 0).all()
        assert not t[~mask].any()
        assert ((5 * t[mask]) % 1 < 0.6 + 1e-5).all()


def test_order_of_the_times_does_not_matter() -> None:
    problem = problems.light_curve()
    x = draws(problem, 20)
    order = np.random.default_rng(0).permutation(40)
    shuffled = {key: value[:, order] for key, value in x.items()}
    np.testing.assert_allclose(problem.log_evidence(shuffled), problem.log_evidence(x), rtol=0, atol=1e-9)


def test_bad_data() -> None:
    problem = problems.light_curve(4)
    values, mask = np.zeros((2, 4)), np.ones((2, 4), dtype=bool)
    with pytest.raises(TypeError, match=r"keys 't', 'y' and 'mask', got a dict with keys \['t', 'y'\]"):
        problem.log_evidence({"t": values, "y": values})
    with pytest.raises(ValueError, match=r"t and y must have the same shape, got \(2, 4\) and \(1, 4\)"):
        problem.log_evidence({"t": values, "y": values[:1], "mask": mask})
    with pytest.raises(ValueError, match=r"mask must be boolean of shape \(2, 4\), got float64"):
        problem.log_evidence({"t": values, "y": values, "mask": values})
    with pytest.raises(ValueError, match="cycles must be two numbers above 0, the smaller first"):
        problems.light_curve(cycles=(3.0, 2.0))
