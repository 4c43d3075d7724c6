"""Losses: log-odds known beforehand, bad input, descriptions, and the log score."""

import dataclasses
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from evidencenet import losses
from losses.test_losses import BOTH, NAMED, TWO_MODELS_ONLY, name


def worst_error_with(loss: Any, probabilities: np.ndarray, offset: np.ndarray) -> float:
    """How far the log-odds read at the least expected loss are from the true ones, given an offset."""
    models = len(probabilities)
    with jax.enable_x64(True):
        label, known = jnp.arange(models), jnp.broadcast_to(jnp.asarray(offset), (models, models))

        @jax.jit
        @jax.value_and_grad
        def expected(raw: jax.Array) -> jax.Array:
            batch = jnp.broadcast_to(raw, (models, *raw.shape))
            return jnp.sum(probabilities * loss.value(batch, label, known))

        def numpy(raw: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = expected(jnp.asarray(raw))
            return float(value), np.asarray(slope)

        start = np.array([0.3, -0.5, 0.4])[: losses.outputs(models)]
        best = minimize(numpy, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        found = np.asarray(loss.log_odds(best.x, offset))
    return float(np.max(np.abs(found - np.log(probabilities / probabilities[0]))))


@pytest.mark.parametrize("offset", [[0.0, 0.0], [0.0, 1.3], [0.0, -3.0]], ids=str)
@pytest.mark.parametrize("loss", BOTH, ids=name)
def test_known_log_odds_are_added_to(loss: Any, offset: list[float]) -> None:
    assert worst_error_with(loss, np.array([0.2, 0.8]), np.array(offset)) < 1e-4


@pytest.mark.parametrize("loss", BOTH, ids=name)
def test_known_log_odds_of_many_models_are_added_to(loss: Any) -> None:
    assert worst_error_with(loss, np.array([0.25, 0.05, 0.7]), np.array([0.0, 1.0, -0.7])) < 1e-4


def test_log_odds_in_the_wrong_units_fail_the_same_check() -> None:
    # Scores of this loss are half of the log-odds.
    class Wrong(losses.AlphaLogExponential):
        def value(self, raw: Any, label: Any, offset: Any = None) -> jax.Array:
            return super().value(raw, label, None if offset is None else 2 * offset)

    right, wrong = losses.AlphaLogExponential(2.0), Wrong(2.0)
    odds, offset = np.array([0.2, 0.8]), np.array([0.0, 1.3])
    assert worst_error_with(right, odds, offset) < 1e-4
    assert worst_error_with(wrong, odds, offset) > 0.1


def test_a_loss_of_ones_own_takes_no_offset() -> None:
    with pytest.raises(ValueError, match="asymmetric loss cannot start from known log-odds"):
        TWO_MODELS_ONLY.value(np.zeros((5, 1)), np.zeros(5, int), np.zeros((5, 2)))


def test_outputs() -> None:
    assert [losses.outputs(k) for k in (2, 3, 7)] == [1, 3, 7]
    with pytest.raises(ValueError, match="at least two"):
        losses.outputs(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: losses.Polynomial(1.0),
            "Polynomial: alpha = 1.0; wanted a finite number > 1. At 1 and below",
        ),
        (lambda: losses.Polynomial(math.inf), "wanted a finite number > 1"),
        (lambda: losses.AlphaExponential(0.5), "AlphaExponential: alpha = 0.5; wanted .* > 1 and <= 20"),
        (lambda: losses.AlphaExponential(21.0), "above 20 float32 overflows"),
        (lambda: losses.AlphaLogExponential(0.0), "AlphaLogExponential: alpha = 0.0; .* > 0"),
        (
            lambda: losses.PopExponential(0.9),
            "alpha = 0.9; .* >= 1. Below 1 the link is infinitely steep at 0",
        ),
        (lambda: losses.LPopExponential(alpha=0.5), "LPopExponential: alpha = 0.5; .* >= 1"),
        (lambda: losses.LPopExponential(alpha=math.nan), "alpha = nan; wanted a finite number"),
        (
            lambda: losses.LPopExponential(beta=0.0),
            "beta = 0.0; .* > 0. It is the link's slope at 0; .*PopExp",
        ),
        (lambda: losses.LPopLogistic(beta=-1.0), "LPopLogistic: beta = -1.0"),
    ],
)
def test_bad_parameters(make: Any, message: Any) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("alpha", ["2", None, True, [2.0]])
def test_parameters_that_are_not_numbers(alpha: Any) -> None:
    with pytest.raises(TypeError, match="is not a number"):
        losses.LPopExponential(alpha=alpha)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (jnp.exp, "not odd"),
        (lambda f: -f, "not strictly increasing"),
        (jnp.sin, "not strictly increasing"),
        (jnp.tanh, "too flat to reach all log-odds|not strictly increasing"),
        (jnp.arctan, "is 1.57 at 10000, too flat"),
        (jnp.log, "not finite"),
        (jnp.cbrt, "derivative is not finite"),
    ],
)
def test_bad_links(link: Any, message: Any) -> None:
    with pytest.raises(ValueError, match=message):
        losses.LinkedExponential(link)


def test_a_link_may_be_checked_while_tracing() -> None:
    def inside(raw: jax.Array) -> jax.Array:
        return losses.LinkedExponential(lambda f: f + f**3).log_odds(raw)

    np.testing.assert_allclose(jax.jit(inside)(jnp.array([2.0])), [0, 10])


def test_asymmetric_link_must_be_that_of_its_minimum() -> None:
    with pytest.raises(ValueError, match=r"link\(-2\) = -4, but .* for log-odds log\(-b'/a'\) = -2"):
        losses.Asymmetric(lambda f: jnp.exp(-f), lambda f: f, lambda f: 2 * f)
    with pytest.raises(ValueError, match="give a probability by its logit"):
        losses.Asymmetric(lambda f: (1 - f) ** 2, lambda f: f**2, lambda f: jnp.log(f / (1 - f)))


@pytest.mark.parametrize("loss", NAMED, ids=name)
def test_dict_round_trip(loss: Any) -> None:
    described = json.loads(json.dumps(losses.to_dict(loss)))
    assert losses.from_dict(described) == loss
    assert type(losses.from_dict(described)) is type(loss)


def test_every_loss_made_of_numbers_is_saved() -> None:
    assert {losses.to_dict(loss)["name"] for loss in NAMED} == set(losses._named())


def test_bad_descriptions() -> None:
    for loss in (losses.LinkedExponential(jnp.sinh), TWO_MODELS_ONLY):
        described = losses.to_dict(loss)
        assert described == {"name": type(loss).__name__, "custom": True}
        with pytest.raises(ValueError, match="pass the loss itself to load"):
            losses.from_dict(described)
    with pytest.raises(ValueError, match="Unknown loss 'Loss'; wanted one of Squared"):
        losses.from_dict({"name": "Loss"})
    with pytest.raises(ValueError, match="Unknown loss None"):
        losses.from_dict({})
    with pytest.raises(ValueError, match=r"Polynomial is described by \['beta'\]; wanted \['alpha'\]"):
        losses.from_dict({"name": "Polynomial", "beta": 1.0})
    with pytest.raises(ValueError, match=r"alpha = 0\.5"):
        losses.from_dict({"name": "Polynomial", "alpha": 0.5})


def test_losses_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        losses.Polynomial(2.0).alpha = 3.0  # type: ignore[misc]
