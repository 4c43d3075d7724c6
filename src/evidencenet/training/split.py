"""Split draws into training draws and held-out draws."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from evidencenet._common.arrays import Data, arrays_of, as_data, layout, layout_text, map_arrays
from evidencenet.networks.architectures import Architecture, is_built_in
from evidencenet.networks.layout import Layout, arranged_example
from evidencenet.simulation.dataset import Simulations, thinned
from evidencenet.simulation.observe import Observation
from evidencenet.simulation.stream import Stream
from evidencenet.training.baseline import LARGEST, SMALLEST, PartialMoments, covariance
from evidencenet.training.scaling import Scaling, has_outliers, may_be_logged

Augment = Callable[[np.random.Generator, Data], Data]

# More held-out draws would cost training draws and time, and a score is known to about 0.002 nats with these.
MOST_HELD_OUT = 50_000
# Outliers and correlations show in this many draws. They decide only which scalings are tried.
_SAMPLE = 10_000
# What x is shows in this many draws: enough that the order of places is noticed where it matters.
_LAYOUT_DRAWS = 40_000
# Whitening is tried if the variances of two combinations of the numbers differ by more than this factor
# (docs/decisions.md, "Choice by evidence").
_CORRELATED = 100.0


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of K models, split into training draws and held-out draws.

    Parameters
    ----------
    x, model, weight
        All draws, each (n, ...): data, label, and importance weight.
    counts
        Number of draws of each model, shape (K,).
    training_rows, held_out_rows
        Positions of the training draws and of the held-out draws.
    augment
        A random symmetry of the problem, or None.
    known
        Log-odds of each draw against model 0 that are known beforehand, apart from the training shares,
        shape (n, K); or None. The networks learn what is missing.
    plain
        Which draws are of the models as they are, and not rare ones, shape (n,); None if all are.
    group
        Draws of different groups are independent of each other, shape (n,); None if all draws are.
    layout
        What x is; None leaves it as it is.
    clean, observation
        The clean parts of the draws, and how they are observed: then x has one observation of each, and
        training draws new ones. None if x is all there is.
    stream
        Training draws that do not lie in memory. Those in x are then a sample of them, on which plans are
        tried and scalings are fitted, and the held-out draws. None if all draws are in x.
    reference
        Moments of all draws of the stream, scaled in one way, from which those of other scalings follow.
    """

    x: Data
    model: np.ndarray
    weight: np.ndarray
    counts: np.ndarray
    training_rows: np.ndarray
    held_out_rows: np.ndarray
    augment: Augment | None
    known: np.ndarray | None = None
    plain: np.ndarray | None = None
    group: np.ndarray | None = None
    layout: Layout | None = None
    clean: Data | None = None
    observation: Observation | None = None
    stream: Stream | None = None
    reference: "tuple[Scaling, PartialMoments] | None" = None

    @staticmethod
    def split(
        sims: Simulations,
        held_out: float,
        augment: Augment | None,
        seed: int,
        layout: str | Mapping[str, str] | None = None,
        network: Architecture | None = None,
        held_out_draws: np.ndarray | None = None,
    ) -> "Draws":
        """Split simulations at random, each model in the same proportion.

        Parameters
        ----------
        sims
            Draws of two models or more.
        held_out
            Fraction of the draws to hold out, at most 50,000 draws in all.
        augment
            A random symmetry of the problem, or None.
        seed
            Seed of the split.
        layout
            What x is, in the words of `evidencenet.networks.layout`; None guesses it from the draws.
        network
            The user's choice of network, if any: one of his own sees x as it is.
        held_out_draws
            Which draws are held out, boolean (n,), if that is settled already.
        """
        if held_out_draws is None:
            training_rows, held_out_rows = _split_rows(sims, held_out, seed)
        else:
            rng = np.random.default_rng(seed)
            training_rows, held_out_rows = (
                rng.permutation(np.flatnonzero(held_out_draws == one)) for one in (False, True)
            )
        return Draws(
            sims.x,
            sims.model,
            sims.weights.astype(np.float32),
            np.array(sims.counts),
            training_rows,
            held_out_rows,
            augment,
            layout=_layout_of(sims, training_rows, layout, network),
            clean=sims.clean,
            observation=sims.observation,
        )

    @property
    def trained_on(self) -> Data:
        """What minibatches are taken from: clean draws, if they are observed anew, or x."""
        return self.clean if self.drawn_anew_each_epoch and self.clean is not None else self.x

    @property
    def drawn_anew_each_epoch(self) -> bool:
        """Whether the draws are clean, and training observes them anew in every epoch.

        Log-odds that are known for one observation of a draw do not hold for another.
        """
        return self.clean is not None and self.known is None

    @property
    def training_draws(self) -> int:
        """How many training draws there are, those that are not in memory included."""
        return len(self.training_rows) if self.stream is None else sum(self.stream.counts)

    def sample(self) -> "Draws":
        """Return the draws in memory alone."""
        return replace(self, stream=None)

    def observed(self, rng: np.random.Generator, rows: np.ndarray) -> Data:
        """Observe the clean draws in some rows once more, without augmenting them."""
        assert self.observation is not None
        assert self.clean is not None
        clean = map_arrays(lambda array: array[rows], self.clean)
        return self.observation.draw(rng, clean, self.model[rows])

    def drawn_anew(self, rng: np.random.Generator, batch: Data, label: np.ndarray) -> Data:
        """Observe a minibatch of `trained_on`, and augment it; `label` are the models of its draws."""
        if self.observation is not None and self.drawn_anew_each_epoch:
            batch = self.observation.draw(rng, batch, label)
        return batch if self.augment is None else augmented(self.augment, rng, batch)

    @property
    def example(self) -> Data:
        """Zeros in the form of one draw."""
        return map_arrays(lambda a: np.zeros(a.shape[1:], bool if a.dtype == bool else np.float32), self.x)

    @property
    def arranged_example(self) -> Data:
        """Zeros in the form of one draw, as networks see it."""
        return self.example if self.layout is None else arranged_example(self.layout, self.example)

    @property
    def features(self) -> int:
        """How many numbers a draw has."""
        return sum(array[0].size for array in arrays_of(self.x))

    @property
    def log_shares(self) -> np.ndarray:
        """Training shares: the log of each model's share of the draws, (K,)."""
        shares: np.ndarray = np.log(self.counts / self.counts.sum())
        return shares

    @property
    def log_odds(self) -> np.ndarray:
        """Log of the ratio of each model's share to that of model 0, (K,)."""
        return self.log_shares - self.log_shares[0]

    def few(self, number: int) -> "Draws":
        """Keep only the first `number` training draws, which are a random sample."""
        return replace(self, training_rows=self.training_rows[:number], stream=None)

    def halves(self, seed: int) -> tuple["Draws", "Draws"]:
        """Divide the training draws at random into two halves, each with half of every model's draws.

        Draws of one group stay together.
        """
        if self.group is not None:
            group = self.group[self.training_rows]
            chosen = np.random.default_rng(seed).permutation(np.unique(group))[::2]
            rows = np.isin(group, chosen)
            both = (self.training_rows[rows], self.training_rows[~rows])
            return replace(self, training_rows=both[0]), replace(self, training_rows=both[1])
        order = np.random.default_rng(seed).permutation(len(self.training_rows))
        order = order[np.argsort(self.model[self.training_rows[order]], kind="stable")]
        streams = (None, None) if self.stream is None else self.stream.halves()
        # Sorted, so that each half keeps the order of all training draws, which is random already.
        first, second = (
            replace(
                self,
                training_rows=self.training_rows[np.sort(order[i::2])],
                stream=streams[i],
                reference=None,
            )
            for i in (0, 1)
        )
        return first, second

    def held_out_draws(self) -> tuple[Data, np.ndarray]:
        """Return the held-out draws and their models."""
        return map_arrays(lambda array: array[self.held_out_rows], self.x), self.model[self.held_out_rows]

    def held_out_log_k(self, log_odds: np.ndarray) -> np.ndarray:
        """Return log K against model 0 of the held-out draws, (n, K): the mean over members.

        The members' log-odds, (members, rows, K), may have padding rows at the end.
        """
        mean: np.ndarray = log_odds[:, : len(self.held_out_rows)].mean(axis=0)
        log_k = mean - self.log_odds
        return log_k if self.known is None else log_k - self.known[self.held_out_rows]

    def plain_rows(self, rows: np.ndarray) -> np.ndarray:
        """Leave out rare draws."""
        return rows if self.plain is None else rows[self.plain[rows]]

    def of_equal_weight(self, rows: np.ndarray, most: int | None = None) -> np.ndarray:
        """Thin weighted draws to draws of equal weight, at most `most` of each model.

        Each draw stays with a probability in proportion to its weight. Draws of equal weight all stay.
        Rare draws do not: the others stand for the models.
        """
        rows = self.plain_rows(rows)
        model = self.model[rows]
        keep = thinned(model, self.weight[rows], np.random.default_rng(0))
        if most is not None:
            for k in range(len(self.counts)):
                keep[np.flatnonzero(keep & (model == k))[most:]] = False
        return rows[keep]

    def are_letters(self) -> bool:
        """Say whether all numbers are letters, which no scaling changes."""
        return self.layout is not None and all(part.kind == "categories" for part in self.layout.parts)

    def has_outliers(self) -> bool:
        """Say whether some numbers often lie far out."""
        return has_outliers(map_arrays(lambda array: array[self.training_rows[:_SAMPLE]], self.x))

    def may_be_logged(self) -> bool:
        """Say whether some numbers are never negative and vary so much that their logarithm may help."""
        return may_be_logged(map_arrays(lambda array: array[self.training_rows[:_SAMPLE]], self.x))

    def is_correlated(self) -> bool:
        """Say whether the numbers of a draw are so correlated that networks may see little else.

        That is, whether some combination of them varies a hundred times as much as another. Numbers that
        never vary do not count. Draws with masks, or of very many numbers, are never called correlated.
        """
        if self.features > LARGEST or any(array.dtype == bool for array in arrays_of(self.x)):
            return False
        sample = map_arrays(lambda array: array[self.training_rows[:_SAMPLE]], self.x)
        # asinh, so that single outliers do not decide.
        variances = np.linalg.eigvalsh(covariance(Scaling.fit(sample, squash=True)(sample)))
        varying = variances[variances > SMALLEST * variances[-1]]
        return len(varying) > 1 and bool(varying[-1] > _CORRELATED * varying[0])


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
        raise ValueError("augment returned NaN or infinity for draws that have neither.")
    return changed


def _layout_of(
    sims: Simulations,
    training_rows: np.ndarray,
    layout: str | Mapping[str, str] | None,
    network: Architecture | None,
) -> Layout | None:
    """Guess the layout from training draws, or take what the user says; None if x stays as it is."""
    sample = np.sort(training_rows[:_LAYOUT_DRAWS])
    x, model = map_arrays(lambda array: array[sample], sims.x), sims.model[sample]
    if layout is not None:
        return Layout.named(layout, x, model)
    if network is not None and not is_built_in(network):
        return None
    return Layout.guess(x, model)


def _split_rows(sims: Simulations, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of training draws and held-out draws, each model in the same proportion, in random order."""
    rng = np.random.default_rng(seed)
    fraction = min(fraction, MOST_HELD_OUT / len(sims))
    training_rows, held_out_rows = [], []
    for k, name in enumerate(sims.names):
        shuffled = rng.permutation(np.flatnonzero(sims.model == k))
        size = round(fraction * len(shuffled))
        if not 0 < size < len(shuffled):
            raise ValueError(
                f"model {name!r} has {len(shuffled)} draws, too few to hold out a fraction of {fraction:.2g} "
                "for early stopping. Simulate more."
            )
        held_out_rows.append(shuffled[:size])
        training_rows.append(shuffled[size:])
    return rng.permutation(np.concatenate(training_rows)), rng.permutation(np.concatenate(held_out_rows))
