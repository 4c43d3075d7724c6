"""Events: aftershocks against quadrature over both parameters, and against a second simulator."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import simpson

from evidencenet import problems
from routes import draws, log_mean, log_quad


@pytest.mark.parametrize("capacity", [15, 80])
def test_aftershocks_against_quadrature(capacity: int) -> None:
    problem = problems.aftershocks(capacity, largest=0.5)
    x = draws(problem, 2)
    # The smaller capacity is reached, and the larger one is not.
    assert x["mask"].all() == (capacity == 15)
    mu, eta = np.linspace(0, 150, 1_501)[1:], np.linspace(0, 0.5, 101)
    prior = stats.gamma.logpdf(mu, 6, scale=20 / 6) - np.log(0.5)
    for i, given in enumerate(problem.log_evidence(x)):
        t = x["t"][i, x["mask"][i]].astype(float)
        end = t[-1] if len(t) == capacity else 1.0

        def constant(rate: float, t: np.ndarray = t, end: float = end) -> float:
            return len(t) * np.log(rate) - rate * end + stats.gamma.logpdf(rate, 6, scale=5)

        triggered = []
        for beta in (10, 40):
            lag = np.subtract.outer(t, t)
            raised = np.where(lag > 0, beta * np.exp(-beta * np.abs(lag)), 0).sum(axis=1)
            log_density = np.log(mu[:, None, None] + eta[:, None] * raised).sum(axis=2) + prior[:, None]
            log_density -= mu[:, None] * end + eta * (1 - np.exp(-beta * (end - t))).sum()
            top = log_density.max()
            triggered.append(top + np.log(simpson(simpson(np.exp(log_density - top), eta), mu)))
        expected = (log_quad(constant, 0, 200), log_mean(triggered))
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-6)


def test_aftershocks_by_their_clusters() -> None:
    # A second simulator: background events, each with its aftershocks, their aftershocks, and so on.
    n, mu, eta, beta = 4_000, 12.0, 0.6, 10.0
    simulate = problems.aftershocks().models[1].simulate
    assert simulate is not None
    theta = {"mu": np.full(n, mu), "eta": np.full(n, eta), "beta": np.full(n, beta)}
    x: Any = simulate(np.random.default_rng(1), theta)
    rng, times = np.random.default_rng(2), []
    for _ in range(n):
        born = rng.random(rng.poisson(mu))
        events = [born]
        while len(born):
            born = np.repeat(born, rng.poisson(eta, len(born)))
            born = born + rng.exponential(1 / beta, len(born))
            events.append(born[born < 1])
        times.append(np.sort(np.concatenate(events))[:80])
    number = np.array([len(t) for t in times])
    assert stats.ks_2samp(x["mask"].sum(axis=1), number).pvalue > 1e-3
    gaps = np.diff(x["t"], axis=1)[x["mask"][:, 1:]]
    clustered = np.concatenate([np.diff(t) for t in times])
    assert stats.ks_2samp(gaps, clustered).pvalue > 1e-3
    # The test notices aftershocks that come too late.
    assert stats.ks_2samp(1.1 * gaps, clustered).pvalue < 1e-6


def test_times_of_aftershocks_are_in_order() -> None:
    x = draws(problems.aftershocks(), 500)
    assert x["t"].dtype == np.float32
    assert not x["t"][~x["mask"]].any()
    for t, mask in zip(x["t"], x["mask"], strict=True):
        assert (np.diff(t[mask]) >= 0).all()
        np.testing.assert_array_equal(mask, np.arange(80) < mask.sum())


def test_no_events() -> None:
    problem = problems.aftershocks()
    given = problem.log_evidence({"t": np.zeros((1, 80)), "mask": np.zeros((1, 80), dtype=bool)})[0]
    # No event has happened at the rates r and μ: E[exp(−r)], of gamma distributed rates.
    expected = (-6 * np.log1p(5), -6 * np.log1p(20 / 6))
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-9)


def test_bad_data() -> None:
    problem = problems.aftershocks(3)
    mask = np.ones((1, 3), dtype=bool)
    with pytest.raises(TypeError, match=r"keys 't' and 'mask', got a dict with keys \['t'\]"):
        problem.log_evidence({"t": np.zeros((1, 3))})
    with pytest.raises(ValueError, match="times must lie between 0 and 1, in increasing order"):
        problem.log_evidence({"t": np.array([[0.2, 0.1, 0.3]]), "mask": mask})
    with pytest.raises(ValueError, match="times must lie between 0 and 1, in increasing order"):
        problem.log_evidence({"t": np.array([[0.2, 0.3, 1.3]]), "mask": mask})
    with pytest.raises(ValueError, match="the events must come first"):
        problem.log_evidence({"t": np.zeros((1, 3)), "mask": np.array([[False, True, True]])})
    with pytest.raises(ValueError, match=r"largest must be below 1, got 1\.0"):
        problems.aftershocks(largest=1.0)
