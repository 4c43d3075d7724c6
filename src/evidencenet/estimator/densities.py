"""`Densities`: the known densities among the models, and log K that is learned against them.

A model whose density is not known is learned against *anchors*: models of known density that its draws
overlap with, and a reference fitted to the draws. Its log density is that of the anchor plus the learned log
K.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, map_arrays
from evidencenet._common.warnings import TrustWarning
from evidencenet.checks.range import HeldOut, Range
from evidencenet.estimator.reference import Reference, fit_gaussian, refusal
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.model import Model

LogDensity = Callable[[Any], Any]
# A known model is an anchor within the validated range. Beyond it, its weight falls to 0 over this many nats:
# a choice, about a grade of Jeffreys' scale.
_TAPER = 1.0
# Ten draws at the ends of a validated range confirm log K there to 1/√10 ≈ 0.3: log K that lies no farther
# beyond is as good as the end.
_SLACK = 0.3
# Densities given to a network that was loaded must give the values that they gave in training, up to the
# rounding of single precision in a user's function.
_SAME = 1e-3
# An impossible model counts as worse by this many nats: more than any prior can outweigh, and small enough
# that double precision still resolves log K of the other models to 1e-10.
_IMPOSSIBLE = 1e6
# Checks of a density: it must agree with draws of its model to this many nats, and to this many errors.
_MOST_OFF, _ERRORS = 0.1, 5.0
# An importance ratio can tell if its draws are worth this part of their number, and at least so many: then
# its error is at most 7%, less than `_MOST_OFF`.
_LEAST_PART, _LEAST_WORTH = 0.05, 200
# Draws to check with: log K is known to about 0.01 by them, and the user's function is called for few.
_CHECKED_DRAWS = 10_000


@dataclass(frozen=True, eq=False)
class Densities:
    """The known densities among K models, and what the other models are learned against.

    Parameters
    ----------
    names
        Of the K models.
    known
        Whether the density of each is known, K booleans.
    functions
        The log densities of the known models, K functions or None. After a file was read, None for known
        models too: files hold no functions.
    reference
        A density fitted to the draws of the unknown models, class 0 of the networks; None if there is none.
    classes
        Which class of the networks each model is, K integers; −1 for known models that the networks were not
        shown, because no draws of them look like those of others.
    log_shares
        Log of each class's share of the draws that the networks were trained on, (classes,).
    held_out
        Log K of held-out draws as the networks see it, against the first class.
    examples, values
        A few draws, and the log densities of the known models there, (n, K), 0 for others. They show whether
        the functions given to a loaded network are the same.
    """

    names: tuple[str, ...]
    known: tuple[bool, ...]
    functions: tuple[LogDensity | None, ...]
    reference: Reference | None
    classes: tuple[int, ...]
    log_shares: np.ndarray
    held_out: HeldOut
    examples: Data
    values: np.ndarray

    @property
    def offset(self) -> int:
        """How many columns, of the reference, come before the models in `exact`."""
        return int(self.reference is not None)

    @property
    def columns(self) -> list[int]:
        """The column of each class in arrays of the reference, if there is one, and all models."""
        shown = [k + self.offset for k in np.argsort(self.classes).tolist() if self.classes[k] >= 0]
        return [*range(self.offset), *shown]

    @property
    def anchors(self) -> list[tuple[int, int]]:
        """The classes of known density, and which column of `exact` belongs to each."""
        pairs = zip(self.classes, self.known, strict=True)
        shown = [(c, k + self.offset) for k, (c, known) in enumerate(pairs) if known and c >= 0]
        return [*((i, i) for i in range(self.offset)), *shown]

    def log_p(self, learned: np.ndarray, x: Data) -> np.ndarray:
        """Log density of draws under each model, (members, n, K); −inf where a known density is zero.

        `learned` is log K of the classes against the first of them by each member, (members, n, classes).
        """
        exact, mean = self.exact(x), learned.mean(axis=0)
        log_p = np.broadcast_to(exact[:, self.offset :], (*learned.shape[:2], len(self.names))).copy()
        for k in np.flatnonzero(~np.array(self.known)):
            weights = self.weights(int(k), mean, exact)
            # Where every known density is zero, the others cannot be learned. All that is known is that they
            # are not zero.
            log_p[:, :, k] = 0.0
            for weight, (anchor, column) in zip(weights.T, self.anchors, strict=True):
                log_q = np.where(weight > 0, exact[:, column], 0.0)
                log_p[:, :, k] += weight * (learned[:, :, self.classes[k]] - learned[:, :, anchor] + log_q)
        return log_p

    def exact(self, x: Data) -> np.ndarray:
        """Log density of draws under the reference, if there is one, and each known model; 0 for others."""
        log_p = np.zeros((len(arrays_of(x)[0]), self.offset + len(self.names)))
        if self.reference is not None:
            log_p[:, 0] = self.reference.log_density(x)
        for k, (name, known) in enumerate(zip(self.names, self.known, strict=True)):
            if known:
                log_p[:, k + self.offset] = evaluated(self._function(k, name), name, x)
        return log_p

    def weights(self, k: int, log_k: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """Weight of each anchor for an unknown model, (n, anchors): they add up to 1, or to 0 without one.

        `log_k` is that of the classes, (n, classes).
        """
        own, weights = self.classes[k], np.zeros((len(log_k), len(self.anchors)))
        for i, (anchor, column) in enumerate(self.anchors):
            if column >= self.offset:
                validated, ratio = self.held_out.range(own, anchor), log_k[:, own] - log_k[:, anchor]
                beyond = np.maximum(validated.low - ratio, ratio - validated.high)
                weights[:, i] = 0.0 if validated.empty else np.clip(1 - beyond / _TAPER, 0.0, 1.0)
        if self.reference is not None:
            weights[:, 0] = 1 - weights.max(axis=1)
        else:
            weights[~weights.any(axis=1)] = 1.0
        # A density of zero cannot be an anchor.
        weights[np.isneginf(exact[:, [column for _, column in self.anchors]])] = 0.0
        total = weights.sum(axis=1, keepdims=True)
        return weights / np.where(total > 0, total, 1.0)

    def variance(
        self,
        above: int,
        below: int,
        log_k: np.ndarray,
        x: Data,
        squared_error: Callable[[int, int], np.ndarray],
    ) -> np.ndarray:
        """Variance of log K of two models, (n,), given the function for that of two classes."""
        n, unknown = len(log_k), [k for k in (above, below) if not self.known[k]]
        if not unknown:
            return np.zeros(n)
        exact = self.exact(x)
        weights = [self.weights(k, log_k, exact) for k in unknown]
        spread = np.zeros((n, len(self.anchors)))
        if self.reference is not None:
            spread[:, 0] = self.reference.variance(x)
        if len(unknown) == 1:
            learned = [squared_error(self.classes[unknown[0]], anchor) for anchor, _ in self.anchors]
            of_one: np.ndarray = np.sum(
                weights[0] * np.stack(learned, axis=1) + weights[0] ** 2 * spread, axis=1
            )
            return of_one
        # The error of an anchor cancels as far as both models depend on it alike.
        apart = (weights[0] - weights[1]) ** 2
        learned_pair = squared_error(self.classes[above], self.classes[below])
        of_two: np.ndarray = learned_pair * (1 + apart.max(axis=1)) + np.sum(apart * spread, axis=1)
        return of_two

    def validates(self, above: int, below: int, log_k: np.ndarray, x: Data, near: np.ndarray) -> np.ndarray:
        """Say whether log K of two models counts as validated whatever its size, (n,).

        It does if both densities are known. If one is, it does where log K of the other against the reference
        is in its own validated range, and x is not farther out than all draws of these two: farther out,
        nothing is known of the unknown model.

        `log_k` is that of the classes, (n, classes). `near` says whether x is not farther out than all draws
        of the reference, if there is one, and of each model.
        """
        unknown = [k for k in (above, below) if not self.known[k]]
        if len(unknown) != 1 or self.reference is None:
            return np.full(len(log_k), not unknown)
        own = self.classes[unknown[0]]
        against = nearly_in_range(self.held_out.range(own, 0), log_k[:, own] - log_k[:, 0])
        near_either = near[:, [0, unknown[0] + self.offset]].any(axis=1)
        return np.asarray(against & near_either & np.isfinite(self.exact(x)[:, 0]))

    def with_functions(self, models: Sequence[Model]) -> "Densities":
        """Give back the functions that a file cannot hold, if they give the values they gave in training."""
        given = {model.name: model.log_density for model in models if model.log_density is not None}
        functions = tuple(given.get(n) if k else None for n, k in zip(self.names, self.known, strict=True))
        for k, (name, function) in enumerate(zip(self.names, functions, strict=True)):
            if function is None:
                continue
            now, then = evaluated(function, name, self.examples), self.values[:, k]
            off = np.abs(difference(now, then)) > _SAME * (1 + np.abs(finite(then)))
            if off.any():
                first = int(np.argmax(off))
                raise ValueError(
                    f"the log_density of model {name!r} is not the one that the network was trained with: "
                    f"that gave {then[first]:.6g} where this gives {now[first]:.6g}. Pass the same model."
                )
        return replace(self, functions=functions)

    def _function(self, k: int, name: str) -> LogDensity:
        function = self.functions[k]
        if function is None:
            raise ValueError(
                f"the density of model {name!r} is a function, which a file cannot hold. Pass it when you "
                f"load the network: load(path, models=[...]) with the Model {name!r} and its log_density."
            )
        return function


def evaluated(function: LogDensity, name: str, x: Data) -> np.ndarray:
    """Return the log density of a batch, (n,), or say what is wrong with what the function gave."""
    n = len(arrays_of(x)[0])
    log_p = np.asarray(function(x), dtype=np.float64)
    if log_p.shape != (n,):
        raise ValueError(
            f"log_density of model {name!r} returned shape {log_p.shape} for {n} draws; wanted one number "
            f"each, shape ({n},)"
        )
    wrong = np.isnan(log_p) | (log_p == np.inf)
    if wrong.any():
        raise ValueError(
            f"log_density of model {name!r} is NaN or +infinity for {np.count_nonzero(wrong)} of {n} draws, "
            f"first for number {int(np.argmax(wrong))}; where the density is zero, return −infinity"
        )
    return log_p


def nearly_in_range(validated: Range, log_k: np.ndarray) -> np.ndarray:
    """Say of log K whether it lies in a validated range, or beyond it by less than its ends are known to."""
    return replace(validated, low=validated.low - _SLACK, high=validated.high + _SLACK).contains(log_k)


def difference(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Log p minus log p, where either may be −inf. Where both are, the data say nothing: 0."""
    both = np.isneginf(above) & np.isneginf(below)
    return np.where(both, 0.0, above) - np.where(both, 0.0, below)


def finite(log_p: np.ndarray) -> np.ndarray:
    """Return log p (..., K) with every −inf replaced by a number far below that of the best model."""
    possible = np.isfinite(log_p)
    if possible.all():
        return log_p
    best = np.max(log_p, axis=-1, keepdims=True)
    return np.where(possible, log_p, np.where(np.isfinite(best), best, 0.0) - _IMPOSSIBLE)


def check_density(function: LogDensity, name: str, x: Data) -> None:
    """Refuse a density that the model's own draws contradict, and warn if it does not integrate to 1.

    A Gaussian g is fitted to the draws. If the mean of g/p over draws of the model is more than 1, or the
    mean of log g more than that of log p, then p is too low. If the mean of p/g over draws of g is more than
    1, then p is too high.
    """
    x = map_arrays(lambda array: array[:_CHECKED_DRAWS], x)
    log_p = evaluated(function, name, x)
    if np.any(impossible := np.isneginf(log_p)):
        raise ValueError(
            f"log_density of model {name!r} is −infinity for {impossible.sum()} of {len(log_p)} draws of "
            "the same model: it is not the density of what the model simulates."
        )
    if refusal(x):
        return
    guess = fit_gaussian(map_arrays(lambda array: array[::2], x))
    ratio = guess.log_density(map_arrays(lambda array: array[1::2], x)) - log_p[1::2]
    low = max(_surplus(ratio), float(ratio.mean()) - _ERRORS * float(ratio.std()) / np.sqrt(len(ratio)))
    other = guess.draw(np.random.default_rng(0), len(ratio), x)
    high = _surplus(_tried(function, other) - guess.log_density(other))
    if max(low, high) > _MOST_OFF:
        warnings.warn(
            f"log_density of model {name!r} does not fit the model's draws: it is too "
            f"{'high' if high > low else 'low'} by at least {max(low, high):.2g} nats. Is it normalised, and "
            "the density of this model? Every log K with this model is off by as much.",
            TrustWarning,
            stacklevel=4,
        )


def _surplus(log_ratio: np.ndarray) -> float:
    """Return by how many nats the mean of a ratio is above 1, less its error; −inf if single draws decide."""
    ratio = np.exp(log_ratio - log_ratio.max())
    n, worth = len(ratio), float(ratio.sum() ** 2 / np.square(ratio).sum())
    if worth < max(_LEAST_PART * n, _LEAST_WORTH):
        return -np.inf
    error = float(ratio.std() / ratio.mean()) / np.sqrt(n)
    return float(log_ratio.max() + np.log(ratio.mean()) - _ERRORS * error)


def _tried(function: LogDensity, x: Data) -> np.ndarray:
    """Log density of data that the model may never produce, for which the function may not work."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log_p = np.asarray(function(x), dtype=np.float64)
    except Exception:
        return np.full(len(arrays_of(x)[0]), -1e300)
    return np.where(np.isnan(log_p), -1e300, np.maximum(log_p, -1e300))


def check_weights(sims: Simulations, k: int) -> None:
    """Refuse draws of unequal weight of a model whose density is known."""
    if sims.log_weight is not None and np.ptp(sims.log_weight[sims.model == k]) > 0:
        raise ValueError(
            f"the draws of model {sims.names[k]!r} have unequal weights, but its log_density is the density "
            "of draws without weights. Give it draws of equal weight, or no log_density."
        )
