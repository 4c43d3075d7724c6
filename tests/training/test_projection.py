"""Directions in which models differ, for draws of very many numbers."""

import numpy as np
import pytest
from scipy.special import log_softmax

import evidencenet as en
from conftest import draws
from evidencenet import losses, networks, problems
from evidencenet.training.inputs import prepare
from evidencenet.training.plan import Plan
from evidencenet.training.projection import directions
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer

DIM, DRAWS = 700, 8_000


def two_models(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """White noise, to one model of which three random directions add variance, and a fourth a mean."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(DIM, 4)))[0]
    x, model = rng.normal(size=(DRAWS, DIM)), np.arange(DRAWS) % 2
    ones = model == 1
    x[ones] += rng.normal(size=(ones.sum(), 3)) * (3.0, 2.5, 2.0) @ basis[:, :3].T + basis[:, 3]
    return x.astype(np.float32), model, basis


def test_directions_are_found() -> None:
    x, model, basis = two_models()
    found = directions(x, model, np.ones(DRAWS))
    np.testing.assert_allclose(found.T @ found, np.eye(found.shape[1]), atol=1e-5)
    assert 4 <= found.shape[1] <= 8
    # The cosine of the angle between each true direction and the space that was found.
    cosine = np.linalg.norm(found.T @ basis, axis=0)
    assert np.all(cosine[:3] > 0.95)
    # The difference of two means of 4,000 draws has noise of length √(700 · 2/4000) = 0.59 beside its own, 1.
    assert cosine[3] == pytest.approx(1 / np.sqrt(1 + 0.35), abs=0.04)
    # A control: of no difference, nothing is found but chance.
    same = directions(x, np.random.default_rng(2).permutation(model), np.ones(DRAWS))
    assert np.all(np.linalg.norm(same.T @ basis[:, 3:], axis=0) < 0.5)


def test_weights_count() -> None:
    x, model, basis = two_models()
    # Half of model 1's draws are noise. With a weight of zero for the others, it differs in nothing.
    order = np.arange(DRAWS) % 4
    x[order == 3] = np.random.default_rng(5).normal(size=(DRAWS // 4, DIM))
    found = directions(x, model, np.where(order == 1, 0.0, 1.0))
    assert np.linalg.norm(found.T @ basis[:, 0]) < 0.5
    assert np.linalg.norm(directions(x, model, np.ones(DRAWS)).T @ basis[:, 0]) > 0.9


def test_a_projected_network_has_a_baseline_and_is_right() -> None:
    problem = problems.templates(dim=700)
    split = Draws.split(draws(problem, 20_000, seed=1), 0.1, problem.augment, 1)
    trainer = Trainer(1, Recipe(epochs=3), 1, 2)

    def excess(plan: Plan) -> float:
        inputs = prepare(split, plan)
        assert (inputs.baseline is not None) == plan.baseline
        trained = trainer.fit(inputs, trainer.sized(inputs))
        x, label = split.held_out_draws()
        wanted = log_softmax(problem.log_evidence(x), axis=1)
        found = log_softmax(trained.log_odds[0, : len(label)], axis=1)
        return float(np.mean(np.sum(np.exp(wanted) * (wanted - found), axis=1)))

    whole = excess(Plan(networks.Dense(), losses.Logistic()))
    projected = excess(Plan(networks.Squares(), losses.Logistic(), baseline=True, project=True))
    assert projected < 0.05
    assert whole > 2 * projected


def test_too_long_for_a_baseline_as_it_is() -> None:
    x, model, _ = two_models()
    sims = en.Simulations(x, model)
    with pytest.raises(ValueError, match="a baseline needs draws of at most"):
        en.train(sims, baseline=True, recipe=en.Recipe(epochs=1), progress=False)
