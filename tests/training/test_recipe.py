"""Recipes, and the optimiser they stand for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evidencenet as en


def updates(recipe: en.Recipe, steps: int, gradient: float = 1.0) -> np.ndarray:
    """What the optimiser does to a weight, a matrix of one number, in each step with the same gradient."""
    optimiser = recipe.optimiser(steps)

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        weight, inner = state
        change, inner = optimiser.update(jnp.full((1, 1), gradient), inner, weight)
        return (optax.apply_updates(weight, change), inner), change[0, 0]

    start = jnp.ones((1, 1))
    return np.asarray(jax.lax.scan(step, (start, optimiser.init(start)), None, length=steps)[1])


def test_the_papers_recipe_is_adam() -> None:
    recipe = en.Recipe.paper()
    assert recipe.batch == 100
    assert recipe.network == en.networks.Dense(norm=True)
    # With a constant gradient Adam moves by the learning rate, whatever the gradient's size: no clipping.
    for gradient in (1.0, -1e3, 1e-3):
        moved = updates(recipe, 10_001, gradient)
        rate = -np.sign(gradient) * 1e-4 * np.array([1, 0.95, 0.95**2])
        np.testing.assert_allclose(moved[[0, 5_000, 10_000]], rate, rtol=1e-3)
    # Without a gradient nothing moves: no decay.
    np.testing.assert_array_equal(updates(recipe, 10, 0.0), 0)


def test_the_papers_learning_rate_goes_down_smoothly() -> None:
    moved = updates(en.Recipe.paper(), 5_001)
    np.testing.assert_allclose(moved, -1e-4 * 0.95 ** (np.arange(5_001) / 5_000), rtol=1e-3)
    # In stairs, the rate would still be the first one here.
    assert moved[2_500] == pytest.approx(-1e-4 * np.sqrt(0.95), rel=1e-3)


def test_cosine_warms_up_and_ends_at_zero() -> None:
    recipe = en.Recipe(learning_rate=1e-2, weight_decay=0.0, clip=None, schedule="cosine")
    moved = -updates(recipe, 1_000)
    assert moved[0] == 0
    assert np.all(np.diff(moved[:50]) > 0)
    assert moved[50] == pytest.approx(1e-2, rel=1e-3)
    assert np.all(np.diff(moved[51:]) < 0)
    # Half way down a cosine is half the rate.
    assert moved[525] == pytest.approx(5e-3, rel=1e-2)
    assert moved[-1] < 1e-7


def test_weight_decay_is_of_matrices_alone() -> None:
    recipe = en.Recipe(learning_rate=1e-2, weight_decay=0.5, schedule="exponential")
    optimiser = recipe.optimiser(10)
    weights = {"matrix": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    change, _ = optimiser.update(jax.tree.map(jnp.zeros_like, weights), optimiser.init(weights), weights)
    np.testing.assert_allclose(change["matrix"], -1e-2 * 0.5, rtol=1e-6)
    np.testing.assert_array_equal(change["bias"], 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "Recipe: epochs = 0; wanted a whole number, 1 or more"),
        ({"epochs": 2.5}, "Recipe: epochs = 2.5; wanted a whole number"),
        ({"epochs": float("nan")}, "Recipe: epochs = nan; wanted a whole number"),
        ({"epochs": "3"}, "Recipe: epochs = .*3.*; wanted a whole number"),
        ({"batch": -1}, "Recipe: batch = -1; wanted a whole number"),
        ({"patience": 0}, "Recipe: patience = 0; wanted a whole number"),
        ({"learning_rate": 0.0}, "Recipe: learning_rate = 0.0; wanted a .*number above 0"),
        ({"learning_rate": float("nan")}, "Recipe: learning_rate = nan; wanted a .*number above 0"),
        ({"learning_rate": float("inf")}, "Recipe: learning_rate = inf; wanted a .*number above 0"),
        ({"weight_decay": -0.1}, "Recipe: weight_decay = -0.1; wanted .*0 or more"),
        ({"weight_decay": float("nan")}, "Recipe: weight_decay = nan; wanted .*0 or more"),
        ({"clip": 0.0}, "Recipe: clip = 0.0; wanted a number above 0, or None"),
        ({"held_out": 0.0}, "Recipe: held_out = 0.0; wanted a fraction between 0 and 1"),
        ({"held_out": 1.0}, "Recipe: held_out = 1.0; wanted a fraction between 0 and 1"),
        ({"momentum": "heavy"}, 'Recipe: momentum = \'heavy\'; wanted "nesterov" or "adam"'),
        ({"schedule": "stairs"}, 'Recipe: schedule = \'stairs\'; wanted "cosine" or "exponential"'),
    ],
    ids=str,
)
def test_bad_recipes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        en.Recipe(**options)


def test_whole_numbers_may_be_written_as_floats() -> None:
    recipe = en.Recipe(epochs=2.0, batch=np.int64(50))  # type: ignore[arg-type]
    assert recipe.epochs == 2
    assert isinstance(recipe.epochs, int)
    assert isinstance(recipe.batch, int)


def test_what_is_left_to_the_number_of_draws() -> None:
    few, many = en.Recipe().for_draws(1_000), en.Recipe().for_draws(1_000_000)
    assert few.epochs is not None
    assert many.epochs is not None
    assert few.epochs > many.epochs >= 1
    assert few.batch is not None
    assert many.batch is not None
    assert few.batch < many.batch
    # A budget multiplies the length, whatever limits it; a number of epochs that was named stays.
    for n, operations in ((1_000, 1.0), (1_000_000, 1.0), (100_000, 1e6)):
        usual = en.Recipe().for_draws(n, operations=operations).epochs
        assert usual is not None
        # Whole epochs, so one more may fit into twice the length.
        assert en.Recipe().for_draws(n, operations=operations, budget=2).epochs in (2 * usual, 2 * usual + 1)
    assert en.Recipe(epochs=5).for_draws(1_000, budget=2).epochs == 5
    # What there is to compute limits the number of epochs, but for the least.
    dear = en.Recipe().for_draws(1_000_000, operations=1e6, most=1.5e12)
    assert dear.epochs is not None
    assert dear.epochs <= many.epochs
    # By the square root of it, and at most three times the usual arithmetic.
    lengths = [en.Recipe().for_draws(100_000, operations=1e6, most=a * 1e11).epochs for a in (25, 9, 4, 1.5)]
    assert lengths == [20, 12, 8, 4]
    assert [en.Recipe().for_draws(10**6, operations=1e9, fewest=n).epochs for n in (2, 3)] == [2, 3]
    # Weights that all places share overfit less, and need less decay.
    assert [en.Recipe().for_draws(1_000, shared=shared).weight_decay for shared in (False, True)] == [
        0.1,
        0.01,
    ]
    fixed = en.Recipe(epochs=7, batch=11, weight_decay=0.0)
    assert fixed.for_draws(1_000, operations=1e9, shared=True) == fixed
    assert fixed.for_draws(1_000) == fixed
    with pytest.raises(ValueError, match=r"5 draws are left for training, fewer than one batch of 11.*batch"):
        fixed.for_draws(5)
