"""Losses: how a network's raw outputs are trained, and how they are read as log-odds.

A loss is a small immutable record with two methods: `value(raw, label)`, which training minimises, and
`log_odds(raw)`, which turns the outputs at the minimum into log-odds. Records are hashable, so a loss can be
a static argument of `jax.jit`.

Nearly all losses follow one pattern. The raw outputs give a score t_k for each model. A draw of model m costs
Σ_{j≠m} φ(t_m − t_j): the loss for two models, summed over the pairs of the true model and another one. Each
term is minimised where t_m − t_j is proportional to log p(M_m|x)/p(M_j|x). Differences of scores can satisfy
all of these conditions at the same time. So the log-odds of K models are consistent by construction:
exchanging two models changes the sign, and log-odds along a chain of models add up.

To add a loss, write a frozen dataclass that inherits from `Loss` and returns its `_Parts`. If it is described
by numbers alone, it can be saved and loaded without further work.
"""

import abc
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Function = Callable[[Any], jax.Array]
# Above _T, exp is continued linearly. A draw that is far on the wrong side then has a finite loss and a
# gradient that is not zero. e^30 = 1e13, so gradients and their squares (in Adam) stay below 3e38, the
# largest float32. The minimiser of p1 exp(−d/2) + p0 exp(d/2) is exact if both arguments are below _T, that
# is for |d| < 2 _T = 60.
_T = 30.0
# sigmoid(−d)^α tends to 1 as d → −∞, and its gradient to 0. Below a margin of −_SATURATED it is continued
# linearly. The slope there is about α e^−15 = 3e-7 α, which is above the 1e-8 in Adam's denominator.
_SATURATED = 15.0


def outputs(models: int) -> int:
    """Return how many raw outputs a network needs: 1 for two models, K for K > 2 models."""
    if models < 2:
        raise ValueError(f"got {models} model(s); a comparison needs at least two. Add a model.")
    return 1 if models == 2 else models


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def lpop(f: jax.Array, alpha: float = 2.0, beta: float = 1.0) -> jax.Array:
    """Return J(f) = β f + f |f|^(α−1), the link of the l-POP losses, for f of any shape and α ≥ 1.

    The derivative β + α |f|^(α−1) is written out, because automatic differentiation gives 0 · ∞ at f = 0 for
    α < 2.

    Examples
    --------
    >>> float(lpop(jnp.array(-2.0), 2.0, 1.0))
    -6.0
    """
    return beta * f + f * jnp.abs(f) ** (alpha - 1.0)


@lpop.defjvp
def _lpop_jvp(alpha: float, beta: float, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (f,), (df,) = primals, tangents
    return lpop(f, alpha, beta), (beta + alpha * jnp.abs(f) ** (alpha - 1.0)) * df


class _Parts(NamedTuple):
    """The functions that define a loss. The margin d is `link` of the raw output."""

    # φ(d), the loss of a draw with margin d.
    penalty: Function
    # From raw output to margin: odd, increasing, onto the real line.
    link: Function = lambda f: f
    # The loss of all margins (..., K) together, where the margin of the true model is 0; None: Σ_{j≠m} φ.
    joint: Function | None = None
    # The loss of draws of model 0, for two models only; None: φ(−d).
    reverse: Function | None = None
    # From margin to log-odds; a constant factor unless `reverse` is given.
    read: Function = lambda d: d


class Loss(abc.ABC):
    """A loss. Two models have one raw output f; K > 2 models have K, and only their differences matter.

    Examples
    --------
    >>> LPopExponential(alpha=2.0).log_odds(jnp.array([[2.0]]))        # one draw, one output: J(2) = 2 + 4
    Array([[0., 6.]], dtype=float32)
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            if "check" in item.metadata:
                object.__setattr__(self, item.name, item.metadata["check"](self, item.name))

    @abc.abstractmethod
    def _parts(self) -> _Parts: ...

    def value(self, raw: ArrayLike, label: ArrayLike, offset: ArrayLike | None = None) -> jax.Array:
        """Return the loss of each draw, shape (...).

        Parameters
        ----------
        raw
            Raw outputs of the network, (..., outputs).
        label
            The true model of each draw, integers (...).
        offset
            Log-odds against model 0 that are known before training, (..., K). The raw outputs then learn what
            must be added to them.
        """
        parts, labels = self._parts(), jnp.asarray(label)
        scores = _scores(raw, parts)
        if offset is not None:
            scores = scores + _as_scores(offset, parts)
        # Without this check, broadcasting could pair every draw with every label.
        if labels.shape != scores.shape[:-1]:
            raise ValueError(
                f"label has shape {labels.shape}; wanted {scores.shape[:-1]}, as the raw outputs have."
            )
        if scores.shape[-1] == 1:
            d, is_one = scores[..., 0], labels == 1
            if parts.reverse is None:
                return parts.penalty(jnp.where(is_one, d, -d))
            # Each function gets 0 for the other's draws, where an overflow would make the gradient NaN.
            penalty, reverse = parts.penalty(jnp.where(is_one, d, 0)), parts.reverse(jnp.where(is_one, 0, d))
            return jnp.where(is_one, penalty, reverse)
        true = labels[..., None] == jnp.arange(scores.shape[-1])
        margins = jnp.sum(jnp.where(true, scores, 0), axis=-1, keepdims=True) - scores
        pairs = jnp.where(true, 0, parts.penalty(margins))
        return jnp.sum(pairs, axis=-1) if parts.joint is None else parts.joint(margins)

    def log_odds(self, raw: ArrayLike, offset: ArrayLike | None = None) -> jax.Array:
        """Return the log posterior odds log p(M_k|x)/p(M_0|x), (..., K).

        Parameters
        ----------
        raw
            Raw outputs of the network, (..., outputs).
        offset
            Log-odds that were known before training, (..., K), as for `value`.
        """
        parts = self._parts()
        scores = _scores(raw, parts)
        if scores.shape[-1] == 1:
            odds = parts.read(scores)
            odds = jnp.concatenate([jnp.zeros_like(odds), odds], axis=-1)
        else:
            odds = parts.read(scores - scores[..., :1])
        return odds if offset is None else odds + offset


def _scores(raw: ArrayLike, parts: _Parts) -> jax.Array:
    """Return the scores (..., K) of K > 2 models, or the one margin (..., 1) of two."""
    f = jnp.asarray(raw)
    if f.ndim == 0 or f.shape[-1] in (0, 2):
        raise ValueError(f"raw has shape {f.shape}; wanted (..., 1) for two models, (..., K) for K > 2.")
    if f.shape[-1] == 1:
        return parts.link(f)
    if parts.reverse is not None:
        raise ValueError(f"an asymmetric loss compares two models, not {f.shape[-1]}. Use another loss.")
    # The scores are t = J(2u)/2 of the centred outputs u. This treats all models alike, and reaches every set
    # of log-odds because J is onto. For two models, u = (−f/2, f/2), it would give t_1 − t_0 = J(f).
    return parts.link(2 * (f - jnp.mean(f, axis=-1, keepdims=True))) / 2


def _as_scores(offset: ArrayLike, parts: _Parts) -> jax.Array:
    """Return log-odds (..., K) in the units of `_scores`: (..., 1) for two models, else (..., K)."""
    odds = jnp.asarray(offset)
    if parts.reverse is not None:
        raise ValueError("an asymmetric loss cannot start from known log-odds. Use another loss.")
    # Without `reverse`, `read` multiplies by a constant factor.
    return (odds[..., 1:] if odds.shape[-1] == 2 else odds) / parts.read(jnp.ones(()))


def _exp(z: jax.Array) -> jax.Array:
    """exp(z), continued linearly above _T."""
    return jnp.exp(jnp.minimum(z, _T)) * (1 + jnp.maximum(z - _T, 0))


def _exponential(d: jax.Array) -> jax.Array:
    return _exp(-d / 2)


def _logistic(d: jax.Array) -> jax.Array:
    return jax.nn.softplus(-d)


def _sigmoid_power(d: jax.Array, alpha: float) -> jax.Array:
    """sigmoid(−d)^α, continued linearly below a margin of −edge."""
    # The minimiser is at d = L/(α−1) for log-odds L, so a smaller α needs a wider margin for the same L. The
    # margin ends at 60, where the slope e^−60 is still a normal float32. Log-odds are exact for
    # |L| < (α−1)·edge, which is 15 for 1.25 ≤ α ≤ 2.
    edge = min(max(_SATURATED, _SATURATED / (alpha - 1)), 2 * _T)
    slope = -alpha * math.exp(-edge) * (1 + math.exp(-edge)) ** (-alpha - 1)
    return jnp.exp(-alpha * jax.nn.softplus(jnp.maximum(d, -edge))) + slope * jnp.minimum(d + edge, 0)


def _number(why: str, *, low: float, strict: bool = True, high: float = math.inf, **default: Any) -> Any:
    """Make a field that is checked and stored as a plain float, so that equal losses have equal hashes."""

    def check(loss: Loss, name: str) -> float:
        title, value = f"{type(loss).__name__}: {name}", getattr(loss, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{title} = {value!r} is not a number. Give a float.")
        number = float(value)
        if not math.isfinite(number) or not low <= number <= high or (strict and number == low):
            wanted = f"{'>' if strict else '>='} {low:g}" + (f" and <= {high:g}" if high < math.inf else "")
            raise ValueError(f"{title} = {value}; wanted a finite number {wanted}. {why}")
        return number

    return field(metadata={"check": check}, **default)


_pop_alpha = partial(_number, "Below 1 the link is infinitely steep at 0; use 2.", low=1, strict=False)
_lpop_beta = partial(
    _number, "It is the slope of the link at 0; use 1, or PopExponential for a slope of 0.", low=0
)


def _check_link(loss: "LinkedExponential", name: str) -> Function:
    """Check on a grid that a link is finite, odd, increasing and unbounded; the tolerance is float32's."""
    half = np.geomspace(1e-2, 5, 60)
    f = np.concatenate([-half[::-1], [0.0], half, [1e4]]).astype(np.float32)
    # A loss can be made while JAX traces another function.
    with jax.ensure_compile_time_eval():
        y, slope = (np.asarray(a, np.float64) for a in jax.vmap(jax.value_and_grad(loss.link))(f))
    near, far = y[:-1], y[-1]
    for bad, fault in (
        (not np.isfinite([near, slope[:-1]]).all(), "or its derivative is not finite everywhere in [-5, 5]"),
        (np.any(np.abs(near + near[::-1]) > 1e-5 + 1e-4 * np.abs(near)), "is not odd, link(-f) = -link(f)"),
        (np.any(np.diff(near) <= 0), "is not strictly increasing in [-5, 5]"),
        (far < 5, f"is only {far:.3g} at 10000, too flat to reach all log-odds"),
    ):
        if bad:
            raise ValueError(f"{name} {fault}. Use an odd, increasing, unbounded function such as jnp.sinh.")
    return loss.link


def _check_minimum(loss: "Asymmetric", name: str) -> Function:
    """Check on a grid that `link` is the log-odds for which a and b are minimised."""
    f = np.linspace(-2, 2, 41, dtype=np.float32)
    with jax.ensure_compile_time_eval(), np.errstate(divide="ignore", invalid="ignore"):
        a, b = (np.asarray(jax.vmap(jax.grad(g))(f), np.float64) for g in (loss.a, loss.b))
        given, wanted = np.asarray(jax.vmap(loss.link)(f), np.float64), np.log(-b / a)
        # If a' = b' = 0 at some f, then f is stationary for any odds, and there is nothing to check.
        wrong = ((a != 0) | (b != 0)) & ~(np.abs(wanted - given) <= 1e-3 * (1 + np.abs(wanted)))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"{name}({f[i]:.3g}) = {given[i]:.4g}, but at this f the loss is minimised for log-odds "
            f"log(-b'/a') = {wanted[i]:.4g}. Change link, or a and b. If f should be a probability, write "
            "a, b and link as functions of its logit, since f takes every real value."
        )
    return loss.link


@dataclass(frozen=True)
class Squared(Loss):
    """(f − m)² of a probability f = sigmoid(raw); the output is the logit, so log-odds do not saturate.

    Log-odds: raw. More than 15 on the wrong side, the loss is continued linearly, so that the gradient is
    never zero. Log-odds L are exact below 15; above, they come out too small, as (|L| + 15)/2.
    """

    def _parts(self) -> _Parts:
        return _Parts(partial(_sigmoid_power, alpha=2.0))


@dataclass(frozen=True)
class Polynomial(Loss):
    """m (1 − f)^α + (1 − m) f^α of a probability f = sigmoid(raw), α > 1; `Polynomial(2)` is `Squared`.

    Log-odds: (α − 1) raw. The loss is continued linearly like `Squared`. Log-odds are exact below 15 (α − 1)
    for α ≥ 2, below 15 for 1.25 ≤ α ≤ 2, and below 60 (α − 1) for smaller α.
    """

    alpha: float = _number("At 1 and below, the minimum is at 0 or 1 for all odds; use 2.", low=1)

    def _parts(self) -> _Parts:
        return _Parts(partial(_sigmoid_power, alpha=self.alpha), read=lambda d: (self.alpha - 1) * d)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """−log p(true model), with p = softmax(raw); for two models p = sigmoid(raw).

    Log-odds: raw_k − raw_0; for two models raw.
    """

    def _parts(self) -> _Parts:
        return _Parts(_logistic, joint=lambda d: jax.nn.logsumexp(-d, axis=-1))


@dataclass(frozen=True)
class Exponential(Loss):
    """exp((½ − m) f). Log-odds: f.

    They are exact below 60. Above, the loss is linear, and log-odds L come out too large, as 2|L| − 60.
    """

    def _parts(self) -> _Parts:
        return _Parts(_exponential)


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp((1 − 2m) f)); less sensitive to outliers than the exponential. Log-odds: f."""

    def _parts(self) -> _Parts:
        return _Parts(_logistic)


@dataclass(frozen=True)
class AlphaExponential(Loss):
    """(1 + exp((1 − 2m) f))^(α−1), 1 < α ≤ 20. Log-odds: α f, exact at least below 26."""

    # At f = 0 the loss is 2^(α−1). Above α = 20 it comes close to e^_T before any odds are learned.
    alpha: float = _number("At 1 nothing is learned; above 20 float32 overflows. Use 2.", low=1, high=20)

    def _parts(self) -> _Parts:
        return _Parts(lambda d: _exp((self.alpha - 1) * _logistic(d)), read=lambda d: self.alpha * d)


@dataclass(frozen=True)
class AlphaLogExponential(Loss):
    """f^((½ − m) α) of a positive f = exp(raw), α > 0. Log-odds: α raw."""

    alpha: float = _number("At 0 the loss is constant; use 1.", low=0)

    def _parts(self) -> _Parts:
        return _Parts(lambda d: _exponential(self.alpha * d), read=lambda d: self.alpha * d)


@dataclass(frozen=True)
class PopExponential(Loss):
    """exp((½ − m) J(f)) with J = f |f|^(α−1), α ≥ 1. Log-odds: J(f), exact below 60.

    For α > 1 the gradient is zero at f = 0, so training can stall there; `LPopExponential` cannot.
    """

    alpha: float = _pop_alpha()

    def _parts(self) -> _Parts:
        return _Parts(_exponential, lambda f: lpop(f, self.alpha, 0.0))


@dataclass(frozen=True)
class LPopExponential(Loss):
    """exp((½ − m) J(f)) with J = `lpop`, α ≥ 1, β > 0. Log-odds: J(f), exact below 60. The default."""

    alpha: float = _pop_alpha(default=2.0)
    beta: float = _lpop_beta(default=1.0)

    def _parts(self) -> _Parts:
        return _Parts(_exponential, lambda f: lpop(f, self.alpha, self.beta))


@dataclass(frozen=True)
class LPopLogistic(Loss):
    """log(1 + exp((1 − 2m) J(f))) with J = `lpop`, α ≥ 1, β > 0. Log-odds: J(f)."""

    alpha: float = _pop_alpha(default=2.0)
    beta: float = _lpop_beta(default=1.0)

    def _parts(self) -> _Parts:
        return _Parts(_logistic, lambda f: lpop(f, self.alpha, self.beta))


@dataclass(frozen=True)
class LinkedExponential(Loss):
    """exp((½ − m) J(f)) with your own link J, as in `LinkedExponential(jnp.sinh)`.

    J is a JAX function: odd, increasing and onto the real line. This is checked on a grid when the loss is
    made. Log-odds: J(f), exact below 60.
    """

    link: Function = field(metadata={"check": _check_link})

    def _parts(self) -> _Parts:
        return _Parts(_exponential, self.link)


@dataclass(frozen=True)
class Asymmetric(Loss):
    """Your own loss for two models: a(f) for draws of model 1, b(f) for model 0, log-odds link(f).

    All three are JAX functions of one real f. At the minimum p1 a'(f) + p0 b'(f) = 0, so the log-odds are
    log(−b'(f)/a'(f)). When the loss is made, `link` is compared with this on a grid in [−2, 2].

    Examples
    --------
    >>> loss = Asymmetric(lambda f: jnp.exp(-f), lambda f: f, lambda f: f)
    """

    a: Function
    b: Function
    link: Function = field(metadata={"check": _check_minimum})

    def _parts(self) -> _Parts:
        return _Parts(self.a, reverse=self.b, read=self.link)


def _named() -> dict[str, Any]:
    """Return the losses of this file that numbers alone describe, by name."""
    kinds = [c for c in globals().values() if isinstance(c, type) and issubclass(c, Loss) and is_dataclass(c)]
    return {c.__name__: c for c in kinds if all(item.type is float for item in fields(c))}


def to_dict(loss: Loss) -> dict[str, Any]:
    """Return the name and the numbers of a loss, for JSON; only the name if it is made of functions.

    Examples
    --------
    >>> to_dict(LPopExponential())
    {'name': 'LPopExponential', 'alpha': 2.0, 'beta': 1.0}
    >>> from_dict({"name": "Polynomial", "alpha": 3.0})
    Polynomial(alpha=3.0)
    """
    name = type(loss).__name__
    return {"name": name, **(vars(loss) if _named().get(name) is type(loss) else {"custom": True})}


def from_dict(description: dict[str, Any]) -> Loss:
    """Make the loss that `to_dict` described; its numbers are checked again."""
    known, given = _named(), dict(description)
    name = given.pop("name", None)
    if "custom" in given:
        raise ValueError(
            f"{name} is made of functions, which files do not hold: pass the loss itself to load."
        )
    if name not in known:
        raise ValueError(f"there is no loss {name!r}; wanted one of {', '.join(known)}.")
    if sorted(given) != (wanted := sorted(item.name for item in fields(known[name]))):
        raise ValueError(f"{name} is described by {sorted(given)}; wanted {wanted}.")
    return known[name](**given)
