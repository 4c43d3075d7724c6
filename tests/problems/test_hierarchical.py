"""Hierarchical models: the evidence against dense normal densities and quadrature over the scatter."""

import numpy as np
import pytest
from scipy import stats

from evidencenet import problems
from routes import draws, log_quad, normal


def test_meta_analysis_against_quadrature() -> None:
    problem = problems.meta_analysis(5, scatter=0.7)
    x = draws(problem, 2)
    for i, (y, s) in enumerate(x.transpose(0, 2, 1)):
        same = np.diag(s**2) + np.ones((5, 5))

        def varying(log_tau: float, y: np.ndarray = y, same: np.ndarray = same) -> float:
            prior = float(stats.norm.logpdf(log_tau, np.log(0.7), 0.5))
            return normal(y, same + np.exp(2 * log_tau) * np.eye(5)) + prior

        expected = (normal(y, same), log_quad(varying, np.log(0.7) - 4, np.log(0.7) + 4))
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-8)


def test_subjects_against_quadrature() -> None:
    # The covariance of all trials, without means of subjects.
    problem = problems.subjects(4, 3, scatter=0.9)
    x = draws(problem, 2)
    for i in range(4):
        mask = x["mask"][i]
        y = x["x"][i][mask].astype(float)
        subject = np.nonzero(mask)[0]
        same_subject = (subject[:, None] == subject).astype(float)
        alike = np.eye(len(y)) + np.ones((len(y), len(y)))

        def different(
            log_tau: float, y: np.ndarray = y, alike: np.ndarray = alike, same: np.ndarray = same_subject
        ) -> float:
            prior = float(stats.norm.logpdf(log_tau, np.log(0.9), 0.5))
            return normal(y, alike + np.exp(2 * log_tau) * same) + prior

        expected = (normal(y, alike), log_quad(different, np.log(0.9) - 4, np.log(0.9) + 4))
        np.testing.assert_allclose(problem.log_evidence(x)[i], expected, rtol=0, atol=1e-8)


def test_numbers_of_subjects_and_trials() -> None:
    mask = draws(problems.subjects(), 500)["mask"]
    trials = mask.sum(axis=2)
    present = trials > 0
    assert set(present.sum(axis=1)) == {4, 5, 6, 7, 8}
    assert set(trials[present]) == set(range(2, 13))


def test_bad_data() -> None:
    with pytest.raises(ValueError, match="every standard error must be above 0"):
        problems.meta_analysis(2).log_evidence(np.zeros((1, 2, 2)))
    x = {"x": np.zeros((1, 2, 2)), "mask": np.zeros((1, 2, 2), dtype=bool)}
    with pytest.raises(ValueError, match="at least one trial"):
        problems.subjects(2, 2).log_evidence(x)
