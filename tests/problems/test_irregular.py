"""Irregular series: the evidence against dense normal densities, at each frequency or place."""

from typing import Any

import numpy as np
import pytest

from evidencenet import problems
from routes import draws, log_mean, log_quad, normal


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


def test_dip_against_dense_normal_densities() -> None:
    problem = problems.dip(12, 7, level=1.1, depth=2.5, spread=0.8, scatter=0.5)
    x = draws(problem, 10)
    for i in range(20):
        t, y, err = (x[key][i, x["mask"][i]].astype(float) for key in ("t", "y", "err"))
        level = np.diag(err**2) + 1.21
        dips = []
        for centre in np.arange(1, 14, 2) / 14:
            h = np.interp(np.abs(t - centre), [0.05, 0.075], [1.0, 0.0])
            dips.append(normal(y + 2.5 * h, level + 0.64 * np.outer(h, h)))
        expected = (normal(y, level), log_mean(dips))
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-9)


def test_dip_is_where_its_parameters_say() -> None:
    # The noise is the same in all three, so the differences are the level and the dip alone.
    n, simulate = 400, problems.dip().models[1].simulate
    assert simulate is not None
    theta = {"level": np.full(n, 3.0), "depth": np.full(n, 2.0), "place": np.full(n, 0.425)}
    given, without, higher = (
        simulate(np.random.default_rng(1), {**theta, **changed})
        for changed in ({}, {"depth": np.zeros(n)}, {"level": np.full(n, 4.0)})
    )
    t, mask = given["t"], given["mask"]
    expected = np.interp(np.abs(t - 0.425), [0.05, 0.075], [2.0, 0.0])
    np.testing.assert_allclose((without["y"] - given["y"])[mask], expected[mask], rtol=0, atol=1e-5)
    np.testing.assert_allclose((higher["y"] - given["y"])[mask], 1.0, rtol=0, atol=1e-5)


def test_dip_has_an_error_for_each_value() -> None:
    x = draws(problems.dip(), 500)
    number = x["mask"].sum(axis=1)
    assert (number.min(), number.max()) == (20, 40)
    for key in ("t", "y", "err"):
        assert x[key].dtype == np.float32
        assert not x[key][~x["mask"]].any()
    for t, mask in zip(x["t"], x["mask"], strict=True):
        assert (np.diff(t[mask]) >= 0).all()
    log_err = np.log(x["err"][x["mask"]])
    # Four standard errors of the mean and of the standard deviation of 30,000 normal numbers.
    np.testing.assert_allclose([log_err.mean(), log_err.std()], [0.0, 0.35], rtol=0, atol=0.008)


def test_times_have_gaps_and_are_in_order() -> None:
    x = draws(problems.light_curve(), 500)
    number = x["mask"].sum(axis=1)
    assert (number.min(), number.max()) == (20, 40)
    for t, mask in zip(x["t"], x["mask"], strict=True):
        assert (np.diff(t[mask]) >= 0).all()
        assert not t[~mask].any()
        assert ((5 * t[mask]) % 1 < 0.6 + 1e-5).all()


@pytest.mark.parametrize(
    "problem", [problems.light_curve(), problems.dip()], ids=lambda problem: problem.name
)
def test_order_of_the_times_does_not_matter(problem: problems.Problem) -> None:
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


def test_bad_dip() -> None:
    problem = problems.dip(4)
    values, mask = np.ones((2, 4)), np.ones((2, 4), dtype=bool)
    with pytest.raises(TypeError, match=r"keys 't', 'y', 'err' and 'mask', got a dict with keys"):
        problem.log_evidence({"t": values, "y": values, "mask": mask})
    with pytest.raises(ValueError, match=r"same shape, got \(2, 4\), \(2, 4\) and \(1, 4\)"):
        problem.log_evidence({"t": values, "y": values, "err": values[:1], "mask": mask})
    with pytest.raises(ValueError, match=r"mask must be boolean of shape \(2, 4\), got float64"):
        problem.log_evidence({"t": values, "y": values, "err": values, "mask": values})
    with pytest.raises(ValueError, match="every standard error must be above 0"):
        problem.log_evidence({"t": values, "y": values, "err": 0 * values, "mask": mask})
    with pytest.raises(ValueError, match="capacity must be at least 2, got 1"):
        problems.dip(1)
    with pytest.raises(ValueError, match="places must be at least 1, got 0"):
        problems.dip(places=0)


@pytest.mark.parametrize("name", ["level", "depth", "spread", "scatter"])
def test_scales_of_the_dip_are_above_zero(name: str) -> None:
    options: dict[str, Any] = {name: 0.0}
    with pytest.raises(ValueError, match=rf"{name} must be a finite number above 0, got 0\.0"):
        problems.dip(**options)
