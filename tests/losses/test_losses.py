"""Losses: their formulas, minimisers and gradients."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from evidencenet import losses
from evidencenet.losses import Loss

TWO_MODELS_ONLY: Loss = losses.Asymmetric(lambda f: jnp.exp(-f), lambda f: f, lambda f: f)
BOTH: list[Loss] = [
    losses.Squared(),
    *(losses.Polynomial(alpha) for alpha in (1.5, 2.0, 3.0)),
    losses.CrossEntropy(),
    losses.Exponential(),
    losses.Logistic(),
    *(losses.AlphaExponential(alpha) for alpha in (1.5, 2.0, 4.0)),
    *(losses.AlphaLogExponential(alpha) for alpha in (0.5, 1.0, 3.0)),
    *(losses.PopExponential(alpha) for alpha in (1.0, 1.5, 3.0)),
    *(
        losses.LPopExponential(alpha, beta)
        for alpha, beta in ((1.0, 1.0), (1.5, 0.3), (2.0, 1.0), (3.0, 2.0))
    ),
    *(losses.LPopLogistic(alpha) for alpha in (1.0, 1.5, 2.0)),
    losses.LinkedExponential(jnp.sinh),
]
NAMED = [loss for loss in BOTH if not isinstance(loss, losses.LinkedExponential)]


def name(value: Any) -> str:
    """Name a test case without the address of a function, which changes from run to run."""
    return "-".join(str(v) for v in losses.to_dict(value).values()) if isinstance(value, Loss) else str(value)


def lpop(f: np.ndarray, alpha: float, beta: float = 0.0) -> np.ndarray:
    return beta * f + np.sign(f) * np.abs(f) ** alpha


def table(loss: Any, raw: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Two-model losses as they are defined, in float64, of the f that `raw` stands for."""
    p = 1 / (1 + np.exp(-raw))
    match loss:
        case losses.Squared():
            return (p - m) ** 2
        case losses.Polynomial(alpha):
            return m * (1 - p) ** alpha + (1 - m) * p**alpha
        case losses.CrossEntropy():
            return -m * np.log(p) - (1 - m) * np.log(1 - p)
        case losses.Exponential():
            return np.exp((0.5 - m) * raw)
        case losses.Logistic():
            return np.log(1 + np.exp((1 - 2 * m) * raw))
        case losses.AlphaExponential(alpha):
            return (1 + np.exp((1 - 2 * m) * raw)) ** (alpha - 1)
        case losses.AlphaLogExponential(alpha):
            return np.exp(raw) ** ((0.5 - m) * alpha)
        case losses.PopExponential(alpha):
            return np.exp((0.5 - m) * lpop(raw, alpha))
        case losses.LPopExponential(alpha, beta):
            return np.exp((0.5 - m) * lpop(raw, alpha, beta))
        case losses.LPopLogistic(alpha, beta):
            return np.log(1 + np.exp((1 - 2 * m) * lpop(raw, alpha, beta)))
        case losses.LinkedExponential():
            return np.exp((0.5 - m) * np.sinh(raw))
        case _:
            return np.where(m == 1, np.exp(-raw), raw)


def minimiser(loss: Loss, log_odds: np.ndarray) -> np.ndarray:
    """Raw outputs, (n, 1), where the expected loss is least: bisection on its derivative in float32."""

    @jax.jit
    @jax.grad
    def slope(f: jax.Array) -> jax.Array:
        ones = jnp.ones(f.shape, int)
        one, zero = loss.value(f[:, None], ones), loss.value(f[:, None], 1 - ones)
        return jnp.sum(one / (1 + jnp.exp(-log_odds)) + zero / (1 + jnp.exp(log_odds)))

    # Uneven, since f = 0 is stationary for every odds where the link has no slope (POP).
    low, high = np.full(log_odds.shape, -20.0), np.full(log_odds.shape, 21.0)
    for _ in range(40):
        middle = (low + high) / 2
        rising = np.asarray(slope(jnp.asarray(middle, jnp.float32))) > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return ((low + high) / 2).astype(np.float32)[:, None]


def worst_error(loss: Loss, read: Callable[[np.ndarray], Any], limit: float = 8.0) -> float:
    known = np.linspace(-limit, limit, 17)
    return float(np.max(np.abs(np.asarray(read(minimiser(loss, known))) - known)))


def raw_for(loss: Loss, log_odds: float) -> float:
    """One raw output with these log-odds, by interpolation of the link, which is odd."""
    grid = np.geomspace(0.1, 4000, 100_000)
    found = np.interp(abs(log_odds), np.asarray(loss.log_odds(grid[:, None]))[:, 1], grid)
    return float(found) * math.copysign(1, log_odds)


# float32 carries about 1e-7 of relative error through a dozen operations on exponents up to 30: 1e-4 is safe,
# and a wrong formula is off by more than 0.1.
@pytest.mark.parametrize("loss", [*BOTH, TWO_MODELS_ONLY], ids=name)
def test_minimiser_gives_the_known_odds(loss: Any) -> None:
    assert worst_error(loss, lambda raw: loss.log_odds(raw)[:, 1]) < 1e-4


def test_misprinted_minimisers_fail_the_same_check() -> None:
    # Printed: f = p1^(1/(α−1)), so p1 = f^(α−1). True for α = 2 only.
    def printed(alpha: float) -> Callable[[np.ndarray], np.ndarray]:
        def read(raw: np.ndarray) -> np.ndarray:
            p1 = (1 / (1 + np.exp(-raw[:, 0].astype(float)))) ** (alpha - 1)
            return np.log(p1 / (1 - p1))

        return read

    assert worst_error(losses.Polynomial(2.0), printed(2.0)) < 1e-4
    assert worst_error(losses.Polynomial(3.0), printed(3.0)) > 0.1
    # Printed: f = (p1/p0)^(1/(1+α)).
    assert worst_error(losses.AlphaLogExponential(2.0), lambda raw: 2 * raw[:, 0]) < 1e-4
    assert worst_error(losses.AlphaLogExponential(2.0), lambda raw: 3 * raw[:, 0]) > 0.1
    # Printed: f = sgn(L) |L|^(1/α) for the leaky link.
    assert worst_error(losses.LPopExponential(2.0), lambda raw: lpop(raw[:, 0], 2.0)) > 0.1


@pytest.mark.parametrize(
    ("loss", "limit"),
    [
        (losses.Squared(), 14.9),
        (losses.Polynomial(1.25), 14.9),
        (losses.Polynomial(3.0), 29.0),
        (losses.AlphaExponential(20.0), 26.0),
        (losses.LPopExponential(), 59.0),
        (losses.PopExponential(2.0), 59.0),
    ],
    ids=name,
)
def test_odds_are_exact_up_to_the_stated_limit(loss: Any, limit: Any) -> None:
    raw = [raw_for(loss, sign * limit) for sign in (-1, 1)]
    gradient = jax.vmap(jax.grad(lambda f, m: loss.value(f[None], m)))
    slope = {m: np.asarray(gradient(jnp.array(raw), jnp.full(2, m)), np.float64) for m in (0, 1)}
    # Stationary where p1 V1' + p0 V0' = 0; float32 exponents up to 60 carry an error of about 1e-5.
    np.testing.assert_allclose(np.log(-slope[0] / slope[1]), [-limit, limit], atol=1e-3)


def test_odds_beyond_the_limit_are_off_as_documented() -> None:
    def found(loss: Loss, log_odds: float) -> float:
        return float(loss.log_odds(minimiser(loss, np.array([log_odds])))[0, 1])

    assert found(losses.Squared(), 18.0) == pytest.approx((18 + 15) / 2, abs=1e-3)
    assert found(losses.LPopExponential(), 65.0) == pytest.approx(2 * 65 - 60, abs=1e-2)


@pytest.mark.parametrize("loss", [*BOTH, TWO_MODELS_ONLY], ids=name)
def test_two_models_follow_the_table(loss: Any) -> None:
    rng = np.random.default_rng(1)
    raw, m = rng.uniform(-3, 3, 200), rng.integers(0, 2, 200)
    value = loss.value(raw[:, None], m)
    np.testing.assert_allclose(value, table(loss, raw, m), rtol=2e-5, atol=1e-6)
    odds = loss.log_odds(raw[:, None])
    assert odds.shape == (200, 2)
    np.testing.assert_array_equal(odds[:, 0], 0)


@pytest.mark.parametrize("loss", BOTH, ids=name)
def test_many_models_recover_all_log_odds(loss: Any) -> None:
    probabilities = np.array([0.25, 0.05, 0.7])
    with jax.enable_x64(True):
        label = jnp.arange(3)

        @jax.jit
        @jax.value_and_grad
        def expected(raw: jax.Array) -> jax.Array:
            return jnp.sum(probabilities * loss.value(jnp.broadcast_to(raw, (3, 3)), label))

        def numpy(raw: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = expected(jnp.asarray(raw))
            return float(value), np.asarray(slope)

        start = np.array([0.3, -0.5, 0.4])
        best = minimize(numpy, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        odds = np.asarray(loss.log_odds(best.x))
        shifted = np.asarray(loss.log_odds(best.x + 5.0))
    # A gradient of 1e-9 leaves an error of about 1e-8 over the least curvature (about 1e-3): 1e-4 is ample.
    np.testing.assert_allclose(odds, np.log(probabilities / probabilities[0]), atol=1e-4)
    np.testing.assert_allclose(odds, shifted, atol=1e-6)


@pytest.mark.parametrize("loss", BOTH, ids=name)
def test_models_are_treated_alike(loss: Any) -> None:
    raw = np.random.default_rng(2).normal(size=(20, 4)).astype(np.float32)
    order = np.array([2, 0, 3, 1])
    odds, permuted = np.asarray(loss.log_odds(raw)), np.asarray(loss.log_odds(raw[:, order]))
    np.testing.assert_allclose(permuted, odds[:, order] - odds[:, order[:1]], atol=1e-4)
    values = [loss.value(raw, np.full(20, k)) for k in order]
    for k, value in enumerate(values):
        np.testing.assert_allclose(loss.value(raw[:, order], np.full(20, k)), value, rtol=1e-4)


def test_cross_entropy_of_many_models_is_softmax() -> None:
    raw = np.random.default_rng(3).normal(size=(20, 3))
    label = np.arange(20) % 3
    wanted = np.log(np.exp(raw).sum(axis=1)) - raw[np.arange(20), label]
    np.testing.assert_allclose(losses.CrossEntropy().value(raw, label), wanted, rtol=1e-5)
    np.testing.assert_allclose(losses.CrossEntropy().log_odds(raw), raw - raw[:, :1], atol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_lpop_derivative(alpha: Any, beta: Any) -> None:
    f = np.array([-2.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 2.0])
    h = 1e-6
    # Central differences of the float64 formula: at 0 they are beta + h^(α−1), within 1e-3 for α = 1.5.
    wanted = (lpop(f + h, alpha, beta) - lpop(f - h, alpha, beta)) / (2 * h)
    single = f.astype(np.float32)
    reverse = jax.jit(jax.vmap(jax.grad(lambda x: losses.lpop(x, alpha, beta))))(single)
    forward = jax.vmap(lambda x: jax.jvp(lambda y: losses.lpop(y, alpha, beta), (x,), (jnp.ones(()),))[1])(
        single
    )
    np.testing.assert_allclose(reverse, wanted, rtol=1e-4, atol=1.1e-3)
    np.testing.assert_allclose(forward, reverse, rtol=1e-6)
    np.testing.assert_allclose(losses.lpop(jnp.asarray(single), alpha, beta), lpop(f, alpha, beta), rtol=1e-6)
    assert float(reverse[3]) == beta + (alpha == 1)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("kind", [losses.LPopExponential, losses.LPopLogistic, losses.PopExponential])
def test_loss_gradients_around_zero(alpha: Any, kind: Any) -> None:
    loss, h = kind(alpha=alpha), 1e-6
    f = np.array([-1.0, -0.1, 0.0, 0.1, 1.0])
    for m in (0, 1):
        found = jax.jit(jax.grad(lambda x: jnp.sum(loss.value(x[:, None], jnp.full(5, m)))))(  # noqa: B023
            jnp.asarray(f, jnp.float32)
        )
        wanted = (table(loss, f + h, np.array(m)) - table(loss, f - h, np.array(m))) / (2 * h)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


# Beyond the two-model losses, Asymmetric is the user's own: its gradient is not ours to keep alive.
@pytest.mark.parametrize("loss", BOTH, ids=name)
def test_wrong_side_outliers_keep_a_gradient(loss: Any) -> None:
    wrong = raw_for(loss, 1000.0)  # odds of e^1000, for and against, each with the other label
    raw = jnp.array([[wrong], [-wrong], [0.1], [-0.2]], jnp.float32)
    labels = jnp.array([0, 1, 0, 1])
    np.testing.assert_allclose(loss.log_odds(raw)[:2, 1], [1000, -1000], rtol=1e-3)

    def mean(r: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(loss.value)(r, labels))

    value, gradient = jax.jit(jax.value_and_grad(mean))(raw)
    assert value.dtype == gradient.dtype == jnp.float32
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert np.isfinite(np.asarray(gradient) ** 2).all()  # the second moment of Adam
    assert gradient[0, 0] > 0 > gradient[1, 0]  # descent moves towards the true model


@pytest.mark.parametrize("loss", BOTH, ids=name)
def test_many_models_keep_a_gradient_on_the_wrong_side(loss: Any) -> None:
    scale = raw_for(loss, 1000.0)
    raw = jnp.array([scale, -scale, 0.0], jnp.float32) / 2
    gradient = jax.grad(lambda r: loss.value(r, 1))(raw)
    assert np.isfinite(gradient).all()
    assert gradient[0] > 0 > gradient[1]


def test_saturating_losses_are_smooth_where_they_turn_linear() -> None:
    for loss in (
        losses.Squared(),
        losses.Polynomial(1.5),
        losses.Exponential(),
        losses.AlphaExponential(3.0),
    ):
        # 15 and 30 for the powers of a sigmoid; −d/2 = 30; 2 softplus(−d) = 30.
        edge = {"Squared": 15.0, "Polynomial": 30.0, "Exponential": 60.0, "AlphaExponential": 15.0}
        d = -edge[type(loss).__name__]
        slope = jax.grad(lambda f, loss=loss: loss.value(f[None], 1))
        around = [float(slope(jnp.float32(d + step))) for step in (-1e-3, 0.0, 1e-3)]
        np.testing.assert_allclose(around, around[1], rtol=5e-3)


def test_losses_are_static_arguments_of_jit() -> None:
    value = jax.jit(lambda loss, raw, label: loss.value(raw, label), static_argnums=0)
    for loss in (losses.LPopExponential(), losses.LinkedExponential(jnp.sinh), TWO_MODELS_ONLY):
        assert value(loss, jnp.zeros((4, 1)), jnp.zeros(4, int)).shape == (4,)
    assert hash(losses.Polynomial(2)) == hash(losses.Polynomial(np.float64(2.0)))


def test_shapes() -> None:
    loss = losses.LPopExponential()
    assert loss.value(np.zeros((5, 6, 3)), np.zeros((5, 6), int)).shape == (5, 6)
    assert loss.log_odds(np.zeros((5, 6, 3))).shape == (5, 6, 3)
    assert loss.log_odds(np.zeros((5, 1))).shape == (5, 2)
    assert loss.log_odds(np.zeros(1)).shape == (2,)
    with pytest.raises(ValueError, match=r"label has shape \(5, 1\); wanted \(5,\)"):
        loss.value(np.zeros((5, 1)), np.zeros((5, 1), int))
    with pytest.raises(ValueError, match=r"raw has shape \(5, 2\); wanted \(..., 1\) for two models"):
        loss.log_odds(np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"raw has shape \(\)"):
        loss.log_odds(1.0)
    with pytest.raises(ValueError, match="compares two models, not 3"):
        TWO_MODELS_ONLY.value(np.zeros((5, 3)), np.zeros(5, int))
    with pytest.raises(ValueError, match="compares two models, not 3"):
        TWO_MODELS_ONLY.log_odds(np.zeros((5, 3)))


# --- Known log-odds, bad input, descriptions -------------------------------------------------------------


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
            "beta = 0.0; .* > 0. It is the slope of the link at 0; .*PopExp",
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
        (jnp.arctan, "is only 1.57 at 10000, too flat"),
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
    with pytest.raises(ValueError, match="as functions of its logit"):
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
    with pytest.raises(ValueError, match="there is no loss 'Loss'; wanted one of Squared"):
        losses.from_dict({"name": "Loss"})
    with pytest.raises(ValueError, match="there is no loss None"):
        losses.from_dict({})
    with pytest.raises(ValueError, match=r"Polynomial is described by \['beta'\]; wanted \['alpha'\]"):
        losses.from_dict({"name": "Polynomial", "beta": 1.0})
    with pytest.raises(ValueError, match=r"alpha = 0\.5"):
        losses.from_dict({"name": "Polynomial", "alpha": 0.5})


def test_losses_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        losses.Polynomial(2.0).alpha = 3.0  # type: ignore[misc]
