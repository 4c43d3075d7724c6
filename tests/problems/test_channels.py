"""Channels: the evidence against dense covariances over draws of the prior."""

from typing import Any

import numpy as np
import pytest

from evidencenet import problems
from routes import agrees_with_prior_draws, draws


def log_likelihood(theta: dict[str, np.ndarray], x: np.ndarray) -> Any:
    channels, length = x.shape
    lag = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    time = theta["phi"][:, None, None] ** lag
    rho = theta.get("rho", np.zeros_like(theta["phi"]))[:, None, None]
    between = np.where(np.eye(channels, dtype=bool), 1.0, rho)
    covariance = np.einsum("nij,nts->nitjs", between, time).reshape(len(rho), x.size, x.size)
    squares = x.ravel() @ np.linalg.solve(covariance, np.tile(x.reshape(-1, 1), (len(rho), 1, 1)))[..., 0].T
    return -0.5 * (squares + np.linalg.slogdet(covariance)[1] + x.size * np.log(2 * np.pi))


def test_coupled_channels_against_draws_of_the_prior() -> None:
    problem = problems.coupled_channels(3, 3, strongest=0.8)
    for x in draws(problem, 2):
        assert agrees_with_prior_draws(problem, x, log_likelihood, 20_000)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="strongest must lie between 0 and 1, got 1"):
        problems.coupled_channels(strongest=1)
    with pytest.raises(ValueError, match="channels must be at least 2, got 1"):
        problems.coupled_channels(1)
