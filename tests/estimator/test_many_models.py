"""More than two models, with every loss that knows them, against exact log Bayes factors."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import laplace, logistic, multivariate_normal

import evidencenet as en
from conftest import draws, rms
from evidencenet import losses
from evidencenet.checks.scores import score

LOSSES = [
    losses.Squared(),
    losses.Polynomial(2.0),
    losses.CrossEntropy(),
    losses.Exponential(),
    losses.Logistic(),
    losses.AlphaExponential(2.0),
    losses.AlphaLogExponential(2.0),
    losses.PopExponential(2.0),
    losses.LPopExponential(),
    losses.LPopLogistic(),
]
QUICK: dict[str, Any] = {
    "network": en.networks.Dense(width=64, hidden=32),
    "recipe": en.Recipe(epochs=6),
    "members": 2,
    "baseline": False,
    "learn_error": False,
    "seed": 2,
    "progress": False,
}


def unlike() -> en.problems.Problem:
    """Three laws of two numbers that have nothing in common: a shared unknown mean, and two fixed shapes."""

    def evidence(x: Any) -> np.ndarray:
        shared = multivariate_normal(cov=np.eye(2) + 1).logpdf(x)
        return np.stack([shared, laplace.logpdf(x).sum(axis=1), logistic.logpdf(x).sum(axis=1)], axis=1)

    models = (
        en.Model(
            "shared mean",
            lambda rng, mean: mean[:, None] + rng.normal(size=(len(mean), 2)),
            prior=lambda rng, n: rng.normal(size=n),
        ),
        en.Model("Laplace", lambda rng, n: rng.laplace(size=(n, 2))),
        en.Model("logistic", lambda rng, n: rng.logistic(size=(n, 2))),
    )
    return en.problems.Problem("unlike", models, evidence)


PROBLEMS = {"orders": lambda: en.problems.polynomial_order(size=6, orders=5), "unlike": unlike}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_every_loss(name: str, loss: losses.Loss) -> None:
    problem = PROBLEMS[name]()
    net = en.train(draws(problem, 40_000, seed=1), loss=loss, **QUICK)
    fresh = draws(problem, 10_000, seed=3)
    evidence = problem.log_evidence(fresh.x)
    exact = evidence - evidence[:, :1]
    found = net.table(fresh.x).mean(axis=0)
    best = score(exact, fresh.model)

    def excess(log_k: np.ndarray) -> float:
        return score(log_k, fresh.model).value - best.value

    # A network of w weights that n draws were enough for misses about w/2n nats: 0.01 of 3,000 and 40,000.
    assert excess(found) < 0.02
    assert best.gain > 0.06
    # Wrong answers miss more, and so does one that has two models confused.
    assert excess(2 * found) > 0.02
    assert excess(found[:, [0, 2, 1, *range(3, found.shape[1])]]) > 0.02
    # Of every pair, and more than half of what there is.
    for above, below in ((1, 0), (2, 0), (2, 1)):
        log_k = net.log_bayes_factor(fresh.x, model=above, against=below)
        np.testing.assert_allclose(log_k, found[:, above] - found[:, below], atol=1e-4)
        np.testing.assert_allclose(
            log_k, -net.log_bayes_factor(fresh.x, model=below, against=above), atol=1e-6
        )
        truth = exact[:, above] - exact[:, below]
        some = np.abs(truth) < 3
        assert rms((log_k - truth)[some]) < 0.5 * rms(truth[some])
