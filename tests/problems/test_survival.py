"""Survival times: the evidence against scipy's Weibull distribution over draws of the prior."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from evidencenet import problems
from routes import agrees_with_prior_draws, draws


def log_likelihood(theta: dict[str, np.ndarray], x: np.ndarray) -> Any:
    shape = theta.get("shape", np.ones_like(theta["rate"]))
    weibull = stats.weibull_min(shape, scale=theta["rate"] ** (-1 / shape))
    return sum(weibull.logpdf(time) if seen else weibull.logsf(time) for time, seen in x)


def test_censored_times_against_draws_of_the_prior() -> None:
    problem = problems.censored_times(6, spread=0.6)
    x = draws(problem, 3)
    assert 0 < x[..., 1].mean() < 1
    for one in x:
        assert agrees_with_prior_draws(problem, one, log_likelihood)


def test_evidence_of_one_patient_is_a_probability() -> None:
    # For a patient followed until time 1: the event before, or no event.
    problem = problems.censored_times(1)
    # Nodes for log t, since the Weibull density is unbounded at 0; dt = t d(log t).
    nodes, weights = np.polynomial.legendre.leggauss(200)
    time = np.exp(20 * (nodes - 1))
    events = np.stack([time, np.ones_like(time)], axis=1)[:, None]
    before = (20 * weights * time) @ np.exp(problem.log_evidence(events))
    after = np.exp(problem.log_evidence(np.array([[[1.0, 0.0]]])))[0]
    np.testing.assert_allclose(before + after, 1, rtol=0, atol=1e-6)


def test_bad_data() -> None:
    problem = problems.censored_times(1)
    with pytest.raises(ValueError, match="every time must be above 0"):
        problem.log_evidence(np.array([[[0.0, 1.0]]]))
    with pytest.raises(ValueError, match=r"every flag must be 1 \(event\) or 0 \(censored\)"):
        problem.log_evidence(np.array([[[1.0, 2.0]]]))
