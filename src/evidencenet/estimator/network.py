"""`EvidenceNetwork`: a trained ensemble, from data to log Bayes factors."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from evidencenet import losses, networks
from evidencenet._common import wording
from evidencenet._common.arguments import no_attribute
from evidencenet._common.arrays import Data, index_of, layout, layout_text, map_arrays
from evidencenet._common.display import card, listed_names, named
from evidencenet._common.estimate import Estimate
from evidencenet._common.harmless import listed, pair_text
from evidencenet._common.masks import Form
from evidencenet._common.warnings import RecalibrationWarning
from evidencenet.checks.range import HeldOut, Range
from evidencenet.checks.recalibration import Recalibration, fit
from evidencenet.estimator.answer import Comparison, Comparisons, Evaluated, pairs_of
from evidencenet.estimator.densities import Densities, finite
from evidencenet.estimator.error import Depth, ErrorModel
from evidencenet.estimator.evaluation import Evaluation as Evaluation
from evidencenet.estimator.evaluation import checked as checked
from evidencenet.estimator.evaluation import in_blocks
from evidencenet.estimator.novelty import Novelty
from evidencenet.estimator.partner import Partner
from evidencenet.estimator.reference import flattened
from evidencenet.estimator.seen_draws import SeenDraws, place_text
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.model import Model
from evidencenet.simulation.paths import are_paths
from evidencenet.training.baseline import Baseline
from evidencenet.training.loop import History
from evidencenet.training.scaling import Scaling
from evidencenet.training.search import Choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# So many numbers that differ from a constant are named in a warning.
_MOST_NAMED = 3
# What people look for in a network, and where it is.
_HINTS = {
    "predict": "log_bayes_factor(x), probabilities(x) or compare(x)",
    "predict_proba": "probabilities(x)",
    "posterior": "probabilities(x)",
    "fit": "evidencenet.train(sims), which makes a new network",
    "log_k": "log_bayes_factor(x)",
    "bayes_factor": "log_bayes_factor(x), or compare(x).bayes_factor",
    "evaluate": "log_bayes_factor(x), or evidencenet.validate(net, sims)",
    "score": "evidencenet.validate(net, sims).score",
    "validate": "evidencenet.validate(net, sims)",
    "load": "evidencenet.load(path)",
    "uncertainty": "error(x)",
    "summary": "print(net), or print(net.choice)",
    "report": "evidencenet.write_report(path, net, check, answer)",
}
Prior = ArrayLike | Mapping[str, float] | None


@dataclass(frozen=True, eq=False, repr=False)
class EvidenceNetwork:
    """A trained ensemble of networks that gives log Bayes factors; made by `train` or `load`.

    Attributes
    ----------
    names
        The K models, in the order of their labels.
    example
        Zeros in the form of one observation: an array, or a dict of arrays.
    history
        How training went.
    choice
        What was tried before training, or None.
    held_out
        Log K of the draws kept for early stopping. They give the validated range.
    log_prior, log_valid
        Log of each model's share of the training draws, and of the fraction of its draws that did not fail,
        shape (K,). Both are accounted for in every log K.
    log_valid_error
        Standard error of `log_valid`, shape (K,), which is part of every error.
    recalibration
        The corrections of log K that `recalibrate` made, one after the other; empty if there are none.
    errors
        How the error of log K depends on log K, on its jackknife error, and on how rare the data are; None if
        it was not learned.
    densities
        The known densities, if there are any, and the reference that the others were learned against.
    made
        Seed, recipe and versions that `train` was called with.
    depth
        What rare draws validated, if `deepen` was called; None otherwise.
    checkpoint
        The checkpoint of the training, which `save` removes when the network is safely on disk.
    seen
        What is kept of the training draws: constant numbers, and fingerprints. None if nothing is.
    columns
        Names of the numbers of a draw, if the draws had named columns; None otherwise.
    partner
        A network of another kind whose log K is averaged with that of the members; None if there is none.
    masked
        How missing numbers of the draws were masked, if they were declared as missing; observations with NaN
        are brought to this form. None otherwise.
    """

    names: tuple[str, ...]
    example: Data
    scaling: Scaling
    baseline: Baseline | None
    novelty: Novelty | None
    loss: losses.Loss
    architecture: networks.Architecture
    networks: Any
    states: Any
    gain: np.ndarray
    log_prior: np.ndarray
    log_valid: np.ndarray
    log_valid_error: np.ndarray
    held_out: HeldOut
    history: History
    choice: Choice | None = None
    recalibration: tuple[Recalibration, ...] = ()
    errors: ErrorModel | None = None
    densities: Densities | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    depth: Depth | None = None
    checkpoint: Path | None = None
    seen: SeenDraws | None = None
    columns: tuple[str, ...] | None = None
    partner: Partner | None = None
    masked: Form | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(no_attribute(self, name, _HINTS))

    def __call__(self, x: Any) -> Any:
        """Say which method is meant: there are several answers to an observation."""
        raise TypeError(
            "a network is not called like a function. Write net.compare(x) for an answer with errors and "
            "warnings, net.log_bayes_factor(x) for log K, or net.probabilities(x)."
        )

    def log_bayes_factor(
        self,
        x: Any,
        *,
        model: int | str | None = None,
        against: int | str | None = None,
        out: str | os.PathLike[str] | None = None,
        models: Sequence[Model] | None = None,
    ) -> np.ndarray:
        """Natural log of p(x|model)/p(x|against), the mean over members.

        Parameters
        ----------
        x
            n observations, (n, ...) or a dict of such arrays; or a single one, without the first axis.
        model, against
            The two models, each by number or by name. Of two models these are the second and the first. Of
            more, `model` must be given, and `against` is the first by default.
        out
            A file, .npy, for log K of all draws of a store, or of several, whose path is then given as `x`.
            They are read in pieces. The order is that of `Simulations.read`.
        models
            If the store holds clean draws: the models that were simulated, which observe them, with the same
            noise as in `Simulations.read`.

        Returns
        -------
        log_k
            Shape (n,); with `out`, an array on disk.

        Examples
        --------
        >>> net.log_bayes_factor(x, model="trend", against="flat")  # doctest: +SKIP
        >>> net.log_bayes_factor("draws.zarr", out="log_k.npy")  # doctest: +SKIP
        """
        from evidencenet.estimator.over_store import write_log_k

        if are_paths(x):
            return write_log_k(self, x, out, self._pair(model, against), models)
        if out is not None or models is not None:
            given = "models" if out is None else "out"
            raise TypeError(f"{given} is for the draws of a store: give its path, or leave out `{given}`.")
        return self.members(x, model=model, against=against).mean(axis=0)

    def members(
        self, x: Any, *, model: int | str | None = None, against: int | str | None = None
    ) -> np.ndarray:
        """Return the log Bayes factor by each member of the ensemble, shape (members, n)."""
        pair = self._pair(model, against)
        return np.concatenate([block.members(*pair) for block in self._blocks(x)], axis=1)

    def table(self, x: Any) -> np.ndarray:
        """Log Bayes factor of each model against the first, by each member, shape (members, n, K).

        It is finite: a model whose known density is zero counts as a million nats worse than the best.
        """
        log_p = np.concatenate([finite(block.log_p) for block in self._blocks(x)], axis=1)
        return log_p - log_p[:, :, :1]

    def in_range(
        self, x: Any, *, model: int | str | None = None, against: int | str | None = None
    ) -> np.ndarray:
        """Say of each observation whether its `log_bayes_factor` lies in the validated range, shape (n,).

        The range holds the log K that enough held-out draws can confirm or refute. If the density of one
        model is known, log K of any size counts as validated where log K of the other model against the
        reference lies in its own validated range, and the observation is not farther out than all draws of
        these two. If both densities are known, log K is exact.
        """
        pair = self._pair(model, against)
        return np.concatenate([block.in_range(*pair) for block in self._blocks(x)])

    def error(
        self, x: Any, *, model: int | str | None = None, against: int | str | None = None
    ) -> np.ndarray:
        """Return the standard error of `log_bayes_factor`, shape (n,).

        It was learned by training on halves of the draws, so it includes what all members share: the same
        draws, and the bias of the training (see `evidencenet.estimator.error`). How it varies from x to x
        follows the `jackknife` and how rare such data are, as far as these tell. It is never less than the
        scatter of the members.
        """
        pair = self._pair(model, against)
        return np.concatenate([block.error(*pair) for block in self._blocks(x)])

    def jackknife(
        self, x: Any, *, model: int | str | None = None, against: int | str | None = None
    ) -> np.ndarray:
        """Return the jackknife error of `log_bayes_factor`, shape (n,); NaN for a single member.

        This is the paper's error: over the members, and over parts of the training draws for the baseline if
        there is one. It does not include what all members share.
        """
        alone = replace(self, errors=None, depth=None, log_valid_error=np.zeros(len(self.names)))
        return alone.error(x, model=model, against=against)

    def probabilities(self, x: Any, prior: Prior = None) -> np.ndarray:
        """Posterior probability of each model, shape (n, K).

        Parameters
        ----------
        x
            Observations, as for `log_bayes_factor`.
        prior
            Prior probability of each model: shape (K,), or a dict by name. It is normalised. By default all
            are equal, whatever the training shares.
        """
        return softmax(self.table(x).mean(axis=0) + log_prior(prior, self.names), axis=1)

    def compare(
        self,
        x: Any,
        prior: Prior = None,
        *,
        model: int | str | None = None,
        against: int | str | None = None,
    ) -> Any:
        """Answer for one observation, or for several: log K with its error, probabilities, and warnings.

        Parameters
        ----------
        x
            One observation, with or without a first axis of length 1; or several, (n, ...).
        prior
            Prior probability of each model: shape (K,), or a dict by name; equal by default.
        model, against
            The pair that ``answer.log_k`` is about, each by number or by name. By default, of two models the
            second against the first, and of more the best against the second best.

        Returns
        -------
        Comparison
            For one observation. Print it.
        Comparisons
            For several, or none: a sequence of `Comparison`, printed as a table. Each is answered for by
            itself.
            Observations that share parameters must be simulated together as one x instead.

        Examples
        --------
        >>> answer = net.compare(x_observed)  # doctest: +SKIP
        >>> print(answer)                     # doctest: +SKIP
        >>> net.compare(x_observed, prior={"flat": 0.9, "trend": 0.1}).probabilities  # doctest: +SKIP
        """
        weights = log_prior(prior, self.names)
        pair = None
        if model is not None or against is not None:
            pair = self._pair(model, against)
            if pair[0] == pair[1]:
                raise ValueError(f"model and against are both {self.names[pair[0]]!r}; wanted two models.")
        data = checked(x, self.example, self.columns, self.masked)
        answers: list[Comparison] = []
        for block in in_blocks(self, data):
            evaluated = self._evaluated(block)
            answers += (evaluated.answer(i, weights, *(pair or (None, None))) for i in range(block.n))
        return answers[0] if len(answers) == 1 else Comparisons(tuple(answers))

    def novelty_p_value(self, x: Any) -> np.ndarray:
        """How often a draw of each model lies farther out than each observation, shape (n, K).

        If it is small for all models, none of them produces such data, and the Bayes factor compares wrong
        models. See `evidencenet.estimator.novelty`.
        """
        return np.concatenate([block.rarity[:, -len(self.names) :] for block in self._blocks(x)])

    def combine(
        self,
        x: Any,
        *,
        independent: bool = False,
        model: int | str | None = None,
        against: int | str | None = None,
    ) -> Estimate:
        """Add up the log Bayes factors of several observations, where that is right.

        It is right only if a model draws new parameters for each observation. If they share parameters, as
        they usually do, log K of all is *not* the sum: after the first observation the parameters are better
        known. Then simulate all observations together as one x (a set of them, for which
        `evidencenet.networks.DeepSet` is made), and train a network for that.

        Parameters
        ----------
        x
            Observations, (n, ...) or a dict of such arrays, or a list of single ones.
        independent
            Say True if each observation has parameters of its own, drawn anew from the prior.
        model, against
            The two models, as for `log_bayes_factor`.

        Returns
        -------
        Estimate
            Σ log K, and the sum of the errors, not in quadrature: one network gives all of them, so their
            errors are not independent.
        """
        x = stacked(x, independent=independent)
        log_k, error = (ask(x, model=model, against=against) for ask in (self.log_bayes_factor, self.error))
        return Estimate(float(log_k.sum()), float(error.sum()))

    def recalibrate(
        self,
        sims: Simulations | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        models: Sequence[Model] | None = None,
        seed: int = 0,
    ) -> "EvidenceNetwork":
        """Correct log K by an increasing function of it, if that improves the score of other draws.

        Half of the draws fit a shift and a stretch of log K; for two models the stretch varies along the
        range (see `evidencenet.checks.recalibration`). The other half decides: the network changes only if
        their log score improves by more than two errors of the improvement. Errors of log K are stretched
        too.

        Parameters
        ----------
        sims
            Draws that were used neither in training nor to `validate` the result, of the same models in the
            same order, at least 200 of each; or the path of a file or store, as in `validate`.
        models
            As in `validate`.
        seed
            Of the division into halves.

        Returns
        -------
        EvidenceNetwork
            A new network; or this one, with a warning, if that did not help.

        Examples
        --------
        >>> net = net.recalibrate(simulate([flat, trend], 50_000, seed=4))  # doctest: +SKIP
        """
        from evidencenet.estimator.over_store import draws_of

        sims = draws_of("recalibrate", sims, self.names, models)
        if sims.log_weight is not None:
            raise ValueError(
                "recalibrate needs draws of equal weight, and these have weights. Simulate from the prior "
                "that the weights lead to."
            )
        if self.densities is not None:
            raise ValueError(
                "recalibrate cannot be combined with known densities: it would change the exact part. "
                "Simulate more, or train without log_density."
            )
        valid = self.log_valid - self.log_valid[0]
        correction = fit(self.table(sims.x).mean(axis=0) - valid, sims.model, seed=seed)
        if not correction.helps:
            text = f"{correction.refusal} The network stays as it was."
            warnings.warn(text, RecalibrationWarning, stacklevel=2)
            return self
        log_k = (correction(self.held_out.log_k - valid) + valid).astype(np.float32)
        held_out = replace(self.held_out, log_k=log_k)
        return replace(self, held_out=held_out, recalibration=(*self.recalibration, correction))

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The validated range of log K of each further model against the first."""
        return tuple(self.held_out.range(k, 0) for k in range(1, len(self.names)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to one file (safetensors with a JSON header); read it with `load`."""
        from evidencenet.estimator.serialise import save

        save(self, path)

    def plot(self, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
        """Draw the learning curves, and log K of the held-out draws with its validated range, on two axes."""
        from evidencenet.report import plots

        return plots.network(self, axes)

    def __repr__(self) -> str:
        score = np.nanmin(self.history.score, axis=1).mean()
        steps = f"; recalibrated on {self.recalibration[-1].draws:,} draws" if self.recalibration else ""
        data = layout_text(layout(map_arrays(lambda array: array[None], self.example)))
        columns = "" if self.columns is None else f" (columns {listed_names(self.columns)})"
        averaged = ""
        if self.partner is not None:
            second = self.partner
            averaged = f", averaged with {named(second.architecture)} (weight {second.weight:.2f})"
        members = f"{len(self.gain)} members{averaged}"
        return (
            f"EvidenceNetwork: {models_text(self.names)}, {members}, for {data}{columns}; "
            f"held-out score {score:.4f} nats{steps}"
        )

    def _repr_html_(self) -> str:
        return network_card(self)

    def _pair(self, model: int | str | None, against: int | str | None) -> tuple[int, int]:
        """Return the numbers of the two models; of more than two, `model` must be given."""
        if model is None and len(self.names) > 2:
            raise ValueError(
                f"this network compares {len(self.names)} models: {listed(self.names)}. Say which log K "
                f"you want, such as model={self.names[1]!r}, against={self.names[0]!r}. "
                "net.compare(x) gives all pairs."
            )
        return index_of(1 if model is None else model, self.names), index_of(against or 0, self.names)

    def _blocks(self, x: Any) -> Iterator[Evaluation]:
        # One after the other, since a block keeps all that was computed of it.
        return in_blocks(self, checked(x, self.example, self.columns, self.masked))

    def _evaluated(self, block: Evaluation) -> Evaluated:
        pairs = pairs_of(len(self.names))
        return Evaluated(
            self.names,
            block.log_p.mean(axis=0),
            np.stack([block.error(*pair) for pair in pairs], axis=1),
            np.stack([block.validated_by_density(*pair) for pair in pairs], axis=1),
            tuple(self.held_out.range(*pair) for pair in pairs),
            block.rarity[:, -len(self.names) :],
            least_p=0.0 if self.novelty is None else self.novelty.least,
            recalibrated=self.recalibration[-1].draws if self.recalibration else 0,
            valid=np.exp(self.log_valid),
            constants=tuple(self._departures(block)),
        )

    def _departures(self, block: Evaluation) -> list[str]:
        """Say for each observation which numbers differ from their value in every training draw."""
        if self.seen is None:
            return [""] * block.n
        observed = flattened(block.data)
        texts = []
        for row, departs in zip(observed, block.departures, strict=True):
            places = np.flatnonzero(departs)
            listed = [
                f"{place_text(int(i), self.example, self.columns)} was {self.seen.constant[i]:.6g} in every "
                f"draw of every model; here it is {row[i]:.6g}"
                for i in places[:_MOST_NAMED]
            ]
            more = len(places) - len(listed)
            texts.append("; ".join(listed) + (f"; and {more} more such numbers" if more else ""))
        return texts


_init = EvidenceNetwork.__init__
_NEEDED = sum(part.default is MISSING and part.default_factory is MISSING for part in fields(EvidenceNetwork))


@wraps(_init)
def _init_with_message(self: EvidenceNetwork, *args: Any, **parts: Any) -> None:
    """Make a network of its parts, which only `train` and `load` have."""
    if len(args) + len(parts) < _NEEDED:
        raise TypeError("an EvidenceNetwork is made by train(sims) or load(path), not by hand.")
    _init(self, *args, **parts)


EvidenceNetwork.__init__ = _init_with_message  # type: ignore[method-assign]


def models_text(names: Sequence[str]) -> str:
    """Name what is compared: "trend against flat", or "4 models: flat, trend, wide, heavy"."""
    if len(names) == 2:
        return pair_text(names[1], names[0])
    return f"{len(names)} models: {listed(names)}"


def log_prior(prior: Prior, names: tuple[str, ...]) -> np.ndarray:
    """Return the log of the models' prior probabilities (K,), up to a constant; by default they are equal."""
    if prior is None:
        return np.zeros(len(names))
    if isinstance(prior, Mapping):
        if set(prior) != set(names):
            raise ValueError(
                f"prior has the models {', '.join(map(repr, prior))}; this network compares "
                f"{', '.join(map(repr, names))}. Give one probability for each of these names."
            )
        prior = [prior[name] for name in names]
    try:
        given = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(0, np.nan)
    if given.shape != (len(names),) or not np.all(given >= 0) or not 0 < given.sum() < np.inf:
        raise ValueError(
            f"prior = {prior}; wanted one probability, 0 or more, for each of {listed(names)}: a list in "
            "this order, or a dict by name."
        )
    with np.errstate(divide="ignore"):
        return np.log(given / given.sum())


def stacked(x: Any, *, independent: bool) -> Any:
    """Return several observations as one batch, if their log K may be added; otherwise raise."""
    if independent is not True:
        raise ValueError(
            "log K of several observations is not the sum of theirs if they share parameters: simulate them "
            "together as one x and train a network for it, such as networks.DeepSet. If each observation has "
            "its own parameters, drawn anew from the prior, say independent=True."
        )
    if not isinstance(x, list) or not any(isinstance(one, dict) for one in x):
        return x
    if not all(isinstance(one, dict) and set(one) == set(x[0]) for one in x):
        raise ValueError("the observations differ in their keys; wanted the same arrays in each.")
    return {key: [one[key] for one in x] for key in x[0]}


def network_card(net: EvidenceNetwork) -> str:
    """Return a network as HTML: what it compares, how it was trained, and its validated range."""
    example = layout(map_arrays(lambda array: array[None], net.example))
    rows = [("data", layout_text(example))]
    if net.columns is not None:
        rows.append(("columns", listed_names(net.columns)))
    if net.masked is not None:
        rows.append(("missing numbers", "masked, in the draws and in observations"))
    if net.densities is not None:
        rows.append(("known densities", known_densities(net)))
    if net.networks is not None:
        rows += _training_rows(net)
    for name, validated in zip(net.names[1:], net.ranges, strict=True):
        ends = f"{wording.fixed(validated.low)} to {wording.fixed(validated.high)} (natural log)"
        pair = f" of {pair_text(name, net.names[0])}" if len(net.names) > 2 else ""
        rows.append(("validated range", ("empty" if validated.empty else ends) + pair))
    if net.recalibration:
        rows.append(("recalibrated", f"on {net.recalibration[-1].draws:,} draws"))
    return card(f"Evidence network, {models_text(net.names)}", rows)


def known_densities(net: EvidenceNetwork) -> str:
    """Name the models whose densities were given."""
    if net.densities is None:
        return ""
    return listed(name for name, known in zip(net.names, net.densities.known, strict=True) if known)


def _training_rows(net: EvidenceNetwork) -> list[tuple[str, str]]:
    idle = int(np.sum(net.gain == 0))
    without = "say log K = 0" if net.baseline is None else "add nothing to the baseline"
    score = np.nanmin(net.history.score, axis=1).mean()
    averaged = []
    if net.partner is not None:
        name = named(net.partner.architecture)
        averaged = [("averaged with", f"{name}, which has a weight of {net.partner.weight:.2f}")]
    return [
        ("members", f"{len(net.gain)}" + (f", of which {idle} {without}" if idle else "")),
        ("network", named(net.architecture)),
        *averaged,
        ("loss", named(net.loss)),
        ("baseline", "none" if net.baseline is None else "Gaussians fitted to the draws of each model"),
        ("trained on", f"{net.history.draws:,} draws"),
        ("held-out score", f"{score:.4f} nats on {len(net.held_out.label):,} draws (lower is better)"),
    ]
