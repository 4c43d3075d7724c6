"""Draws on their way to the networks: split, scaled, augmented, and with what is known beforehand."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, as_data, layout, layout_text, map_arrays
from evidencenet.simulation.dataset import Simulations, thinned
from evidencenet.training.gaussians import LARGEST, SMALLEST, covariance
from evidencenet.training.scaling import Scaling, has_outliers

Augment = Callable[[np.random.Generator, Data], Data]
_MOST_HELD_OUT = 50_000
_OUTLIER_DRAWS = 10_000
# Ratio of variances above which combinations of numbers are taken for unlike.
_CORRELATED = 100.0


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of K models, split into training and held-out ones.

    Parameters
    ----------
    x, model, weight
        All draws, each (n, ...): data, label, and importance weight.
    counts
        Of each model, shape (K,).
    training, testing
        Positions of the training and of the held-out draws.
    augment
        A random symmetry, or None.
    """

    x: Data
    model: np.ndarray
    weight: np.ndarray
    counts: np.ndarray
    training: np.ndarray
    testing: np.ndarray
    augment: Augment | None

    @staticmethod
    def of(sims: Simulations, held_out: float, augment: Augment | None, seed: int) -> "Draws":
        """Split simulations."""
        training, testing = _split(sims, held_out, seed)
        weight = sims.weights.astype(np.float32)
        return Draws(sims.x, sims.model, weight, np.array(sims.counts), training, testing, augment)

    @property
    def example(self) -> Data:
        """Zeros in the form of one draw."""
        return map_arrays(lambda a: np.zeros(a.shape[1:], bool if a.dtype == bool else np.float32), self.x)

    @property
    def features(self) -> int:
        """How many numbers a draw has."""
        return sum(array[0].size for array in arrays_of(self.x))

    @property
    def log_shares(self) -> np.ndarray:
        """Log of each model's share of the draws, (K,)."""
        shares: np.ndarray = np.log(self.counts / self.counts.sum())
        return shares

    @property
    def log_odds(self) -> np.ndarray:
        """Log of the ratio of each model's share to that of the first, (K,)."""
        return self.log_shares - self.log_shares[0]

    def few(self, number: int) -> "Draws":
        """Leave out all training draws but so many."""
        return replace(self, training=self.training[:number])

    def held_out(self) -> tuple[Data, np.ndarray]:
        """Return the held-out draws and their models."""
        return map_arrays(lambda array: array[self.testing], self.x), self.model[self.testing]

    def held_out_log_k(self, log_odds: np.ndarray) -> np.ndarray:
        """Return log K against model 0 of the held-out draws, (n, K): the mean of members.

        Their log-odds, (members, ..., K), may have rows more, of padding.
        """
        mean: np.ndarray = log_odds[:, : len(self.testing)].mean(axis=0)
        return mean - self.log_odds

    def of_equal_weight(self, rows: np.ndarray, most: int | None = None) -> np.ndarray:
        """Thin draws so that those that stay, at most so many of each model, stand for the weighted models.

        Each stays with a chance in proportion to its weight; of draws of equal weight, all stay.
        """
        model = self.model[rows]
        keep = thinned(model, self.weight[rows], np.random.default_rng(0))
        if most is not None:
            for k in range(len(self.counts)):
                keep[np.flatnonzero(keep & (model == k))[most:]] = False
        return rows[keep]

    def has_outliers(self) -> bool:
        """Say whether some numbers often lie far out."""
        return has_outliers(map_arrays(lambda array: array[self.training[:_OUTLIER_DRAWS]], self.x))

    def is_correlated(self) -> bool:
        """Say whether the numbers of a draw are correlated so much that networks may see little else.

        That is, whether some combination of them varies a hundred times as much as another, constants apart.
        Draws with masks, or of very many numbers, are left as they are.
        """
        if self.features > LARGEST or any(array.dtype == bool for array in arrays_of(self.x)):
            return False
        some = map_arrays(lambda array: array[self.training[:_OUTLIER_DRAWS]], self.x)
        # Squashed, so that single outliers do not decide.
        value = np.linalg.eigvalsh(covariance(Scaling.fit(some, squash=True)(some)))
        varying = value[value > SMALLEST * value[-1]]
        return len(varying) > 1 and bool(varying[-1] > _CORRELATED * varying[0])

    def halves(self, seed: int) -> tuple["Draws", "Draws"]:
        """Divide the training draws at random into two, each with half of those of each model."""
        order = np.random.default_rng(seed).permutation(len(self.training))
        order = order[np.argsort(self.model[self.training[order]], kind="stable")]
        # In the order they had, which is a random one already.
        first, second = (replace(self, training=self.training[np.sort(order[i::2])]) for i in (0, 1))
        return first, second


def augmented(augment: Augment, rng: np.random.Generator, x: Data) -> Data:
    """Augment a batch, and check what came back."""
    given, rows = layout(x), len(arrays_of(x)[0])
    returned = augment(rng, x)
    if returned is None:
        raise TypeError("augment returned None; it must return a batch like x.")
    changed = as_data(returned)
    if layout(changed) != given:
        raise ValueError(
            f"augment returned {layout_text(layout(changed))} for {layout_text(given)}; "
            "it must keep the shape of the data."
        )
    if len(arrays_of(changed)[0]) != rows:
        raise ValueError(f"augment returned {len(arrays_of(changed)[0])} draws for {rows}; wanted as many.")
    if not all(np.isfinite(array).all() for array in arrays_of(changed)):
        raise ValueError("augment returned NaN or infinity for draws that hold none.")
    return changed


def _split(sims: Simulations, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of training and held-out draws, each model in the same proportion, in random order."""
    rng = np.random.default_rng(seed)
    fraction = min(fraction, _MOST_HELD_OUT / len(sims))
    training, testing = [], []
    for k, name in enumerate(sims.names):
        mine = rng.permutation(np.flatnonzero(sims.model == k))
        size = round(fraction * len(mine))
        if not 0 < size < len(mine):
            raise ValueError(
                f"model {name!r} has {len(mine)} draws, too few to keep a fraction of {fraction:.2g} "
                "for early stopping. Simulate more."
            )
        testing.append(mine[:size])
        training.append(mine[size:])
    return rng.permutation(np.concatenate(training)), rng.permutation(np.concatenate(testing))
