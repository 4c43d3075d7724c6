"""`EvidenceNetwork`: a trained ensemble, from data to log Bayes factors."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from evidencenet import losses, networks
from evidencenet._common.arrays import (
    Data,
    arrays_of,
    as_data,
    finite_rows,
    index_of,
    layout,
    layout_text,
    map_arrays,
    with_draws,
)
from evidencenet._common.display import card, named
from evidencenet._common.estimate import Estimate
from evidencenet._common.warnings import RecalibrationWarning
from evidencenet.checks.range import HeldOut, Range
from evidencenet.checks.recalibration import Recalibration, fit
from evidencenet.estimator.answer import Comparison, Lead, compare
from evidencenet.estimator.densities import Densities, difference, finite
from evidencenet.estimator.error import Depth, ErrorModel, scatter_of
from evidencenet.estimator.novelty import Novelty
from evidencenet.networks import ensemble
from evidencenet.simulation.dataset import Simulations, check_draws
from evidencenet.training.gaussians import Baseline
from evidencenet.training.loop import History
from evidencenet.training.scaling import Scaling
from evidencenet.training.search import Choice

if TYPE_CHECKING:
    pass


def network_card(net: Any) -> str:
    """Return an `EvidenceNetwork` as HTML: what it compares, how it was trained, and how far it reaches."""
    example = layout(map_arrays(lambda array: array[None], net.example))
    rows = [("data", layout_text(example))]
    if net.densities is not None:
        rows.append(("known densities", known_densities(net)))
    if net.networks is not None:
        rows += _trained(net)
    for name, held in zip(net.names[1:], net.ranges, strict=True):
        ends = "none" if held.empty else f"{held.low:.2f} to {held.high:.2f} (natural log)"
        pair = f" of {name} against {net.names[0]}" if len(net.names) > 2 else ""
        rows.append(("confirmed log K", ends + pair))
    if net.recalibration:
        rows.append(("recalibrated", f"on {net.recalibration[-1].draws:,} draws"))
    several = f"{len(net.names)} models: {', '.join(net.names)}"
    compared = " against ".join(reversed(net.names)) if len(net.names) == 2 else several
    return card(f"Evidence network, {compared}", rows)


def _trained(net: Any) -> list[tuple[str, str]]:
    idle, start = int(np.sum(net.gain == 0)), "nothing" if net.baseline is None else "the baseline alone"
    score = np.nanmin(net.history.score, axis=1).mean()
    return [
        ("members", f"{len(net.gain)}" + (f", {idle} of which know {start}" if idle else "")),
        ("network", named(net.architecture)),
        ("loss", named(net.loss)),
        ("baseline", "none" if net.baseline is None else "Gaussians fitted to the draws of each model"),
        ("trained on", f"{net.history.draws:,} draws"),
        ("held-out score", f"{score:.4f} nats on {len(net.held_out.label):,} draws (lower is better)"),
    ]


def known_densities(net: Any) -> str:
    """Name the models whose densities were given."""
    return ", ".join(name for name, known in zip(net.names, net.densities.known, strict=True) if known)


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


def added(log_k: np.ndarray, error: np.ndarray) -> Estimate:
    """Add log K, (n,), and its errors: those of one network are not independent, so not in quadrature."""
    return Estimate(float(log_k.sum()), float(error.sum()))


def checked(x: Any, example: Data) -> Data:
    """Return observations as a batch like the draws, or an error that says what is wrong with them.

    Parameters
    ----------
    x
        n observations, (n, ...) or a dict of such arrays; or a single one, without the first axis.
    example
        Zeros in the form of one draw.
    """
    data, wanted = as_data(with_draws(x, example)), layout(map_arrays(lambda array: array[None], example))
    if layout(data) != wanted:
        raise ValueError(
            f"x is {layout_text(layout(data))}; this network was trained on {layout_text(wanted)}. "
            "Give observations in the form of the simulated data."
        )
    for key, array in data.items() if isinstance(data, dict) else [("", data)]:
        finite = finite_rows(array)
        if not finite.all():
            raise ValueError(
                f"x{f'[{key!r}]' if key else ''} holds NaN or infinity in {(~finite).sum()} of "
                f"{len(array)} observations, first in number {int(np.argmin(finite))}: its Bayes factor "
                "is not defined. If data can be missing, simulate that too and pass a mask."
            )
    return data


def log_prior(prior: ArrayLike | None, names: tuple[str, ...]) -> np.ndarray:
    """Return the log of the models' prior probabilities (K,), up to a constant; by default they are equal."""
    if prior is None:
        return np.zeros(len(names))
    given = np.asarray(prior, dtype=np.float64)
    if given.shape != (len(names),) or not np.all(given >= 0) or not 0 < given.sum() < np.inf:
        raise ValueError(
            f"prior = {prior}; wanted one probability for each of {', '.join(names)}, 0 or more."
        )
    with np.errstate(divide="ignore"):
        return np.log(given / given.sum())


# In standard deviations: far beyond any draw, and short of where single precision overflows.
_FARTHEST = 1e6


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
        Log K of the draws kept for early stopping, which state the range that can be trusted.
    log_prior, log_valid
        Log of each model's share of the training draws, and of the fraction of its draws that did not fail,
        shape (K,). Both are accounted for in every log K.
    log_valid_error
        Standard error of `log_valid`, shape (K,), which is part of every error.
    recalibration
        What `recalibrate` made of log K, one after the other; empty if it was never called.
    errors
        How the error of log K was found to depend on log K and its jackknife error; None in files written
        before there was one.
    densities
        The known densities, if there are any, and a reference that the others were learned against.
    made
        Seed, recipe and versions that `train` was called with; empty in older files.
    depth
        What rare draws confirmed, if `deepen` was called; None otherwise.
    checkpoint
        The checkpoint of the training, which `save` removes when the network is safely on disk.
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
    _repr_html_ = network_card

    def log_bayes_factor(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Natural log of p(x|model)/p(x|against), the mean over members.

        Parameters
        ----------
        x
            n observations, (n, ...) or a dict of such arrays; or a single one, without the first axis.
        model, against
            The two models, each by label or by name.

        Returns
        -------
        log_k
            Shape (n,).
        """
        return self.members(x, model=model, against=against).mean(axis=0)

    def members(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Log Bayes factor by each member of the ensemble, shape (members, n)."""
        above, below = index_of(model, self.names), index_of(against, self.names)
        data = checked(x, self.example)
        log_p = self._log_p(data, self._mended(self._raw(data))[0])
        return difference(log_p[:, :, above], log_p[:, :, below])

    def table(self, x: Any) -> np.ndarray:
        """Log Bayes factor of each model against the first, by each member, shape (members, n, K).

        It is finite: a model whose known density is zero counts as a million nats worse than the best.
        """
        data = checked(x, self.example)
        log_p = finite(self._log_p(data, self._mended(self._raw(data))[0]))
        return log_p - log_p[:, :, :1]

    def inside(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Say of each observation whether held-out draws can vouch for its `log_bayes_factor`, shape (n,).

        They can within the range of log K in which enough of them lie. If the density of one model is known,
        they also can, whatever log K is, where the log K of the other against the reference is in its own
        such range, and the observation is not farther out than all draws of these two. If both densities are
        known, log K is exact.
        """
        above, below = index_of(model, self.names), index_of(against, self.names)
        data = checked(x, self.example)
        learned = self._mended(self._raw(data))[0]
        log_p = self._log_p(data, learned)
        log_k = difference(log_p[:, :, above], log_p[:, :, below]).mean(axis=0)
        held = self.held_out.range(above, below).contains(log_k)
        return held | self._known(data, learned, above, below)

    def error(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Return the standard error of `log_bayes_factor`, shape (n,).

        It was learned by training on halves of the draws, so that it holds what all members share: the same
        draws, and the bias of the training (see `evidencenet.estimator.error`). How it varies from x to x
        follows the
        `jackknife` and how rare such data are, as far as these tell, and it is never less than that of the
        members.
        """
        above, below = index_of(model, self.names), index_of(against, self.names)
        data = checked(x, self.example)
        raw = self._raw(data)
        return self._error(data, raw, self._mended(raw)[1], self._strange(data), above, below)

    def jackknife(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Return the jackknife error of `log_bayes_factor`, shape (n,); NaN for a single member.

        The paper's error: over the members, and over parts of the training draws for the Gaussian baseline,
        if there is one. It does not hold what all members share.
        """
        bare = replace(self, errors=None, depth=None, log_valid_error=np.zeros(len(self.names)))
        return bare.error(x, model=model, against=against)

    def probabilities(self, x: Any, prior: ArrayLike | None = None) -> np.ndarray:
        """Posterior probability of each model, shape (n, K).

        Parameters
        ----------
        x
            Observations, as for `log_bayes_factor`.
        prior
            Prior probability of each model, shape (K,); normalised. Equal by default, whatever the shares of
            the models in training.
        """
        return softmax(self.table(x).mean(axis=0) + log_prior(prior, self.names), axis=1)

    def compare(self, x: Any, prior: ArrayLike | None = None) -> Comparison:
        """Answer for one observation: log K with its error, probabilities, and warnings.

        Parameters
        ----------
        x
            One observation, with or without a first axis of length 1.
        prior
            Prior probability of each model, shape (K,); equal by default.

        Examples
        --------
        >>> answer = net.compare(x_observed)  # doctest: +SKIP
        >>> print(answer)                     # doctest: +SKIP
        """
        weights = log_prior(prior, self.names)
        data = checked(x, self.example)
        if (n := len(arrays_of(data)[0])) != 1:
            raise ValueError(
                f"compare answers for one observation, got {n}. Independent observations share parameters: "
                "simulate them together as one x. For many separate answers use log_bayes_factor."
            )
        raw = self._raw(data)
        learned, slope = self._mended(raw)
        log_p = self._log_p(data, learned)[:, 0].mean(axis=0)
        p = self._strange(data)

        def error(above: int, below: int) -> float:
            return float(self._error(data, raw, slope, p, above, below)[0])

        def held(above: int, below: int) -> Range:
            """Return the range of a pair; without limits where a known density vouches for any log K."""
            found = self.held_out.range(above, below)
            if not self._known(data, learned, above, below)[0]:
                return found
            return replace(found, low=-np.inf, high=np.inf, least=0, empty=False)

        best, other = (int(k) for k in np.argsort(-log_p, kind="stable")[:2])
        size, models = float(difference(log_p[best], log_p[other])), range(len(self.names))
        return compare(
            self.names,
            log_p,
            np.array([error(k, 0) for k in models]),
            weights,
            tuple(held(k, 0) for k in models[1:]),
            p[0, -len(self.names) :],
            Lead(best, other, size, error(best, other), held(best, other)),
            least=0.0 if self.novelty is None else self.novelty.least,
            recalibrated=self.recalibration[-1].draws if self.recalibration else 0,
        )

    def novelty_p_value(self, x: Any) -> np.ndarray:
        """How often a draw of each model lies farther out than each observation, shape (n, K).

        Small for all models: none of them produces such data, and the Bayes factor compares wrong models.
        See `evidencenet.estimator.novelty`. NaN for networks of old files, if the data have many numbers.
        """
        return self._strange(checked(x, self.example))[:, -len(self.names) :]

    def combine(
        self, x: Any, *, independent: bool = False, model: int | str = 1, against: int | str = 0
    ) -> Estimate:
        """Add up the log Bayes factors of several observations, if that is right.

        It is right only if a model draws new parameters for each observation. If they share parameters, as
        they mostly do, log K of all is *not* the sum: after the first observation the parameters are better
        known. Then simulate all observations together as one x (a set of them, for which
        `evidencenet.networks.DeepSet` is made), and train a network for that.

        Parameters
        ----------
        x
            Observations, (n, ...) or a dict of such arrays, or a list of single ones.
        independent
            Say True if each observation has parameters of its own, drawn anew from the prior.
        model, against
            The two models, each by label or by name.

        Returns
        -------
        Estimate
            Σ log K, and the sum of the errors: one network gives all of them, so that they err together.
        """
        x = stacked(x, independent=independent)
        log_k, error = (ask(x, model=model, against=against) for ask in (self.log_bayes_factor, self.error))
        return added(log_k, error)

    def recalibrate(self, sims: Simulations, *, seed: int = 0) -> "EvidenceNetwork":
        """Mend log K by an increasing function of it, if that improves the score of draws not used for it.

        Half of the draws fit a shift and a stretch of log K, for two models one that varies along the range
        (see `evidencenet.checks.recalibration`). The other half decide: the network changes only if their log
        score
        improves by more than two errors of the improvement. Errors of log K grow and shrink with it.

        Parameters
        ----------
        sims
            Draws that were used neither in training nor to `validate` the result, of the same models in the
            same order, at least 200 of each.
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
        check_draws("recalibrate", sims, self.names)
        if sims.log_weight is not None:
            raise ValueError("recalibrate takes draws of equal weight; simulate from the prior they lead to.")
        if self.densities is not None:
            raise ValueError(
                "recalibrate changes log K as a whole, of which known densities are a part that is right. "
                "Simulate more, or train without log_density."
            )
        valid = self.log_valid - self.log_valid[0]
        found = fit(self.table(sims.x).mean(axis=0) - valid, sims.model, seed=seed)
        if not found.helps:
            warnings.warn(f"{found.refusal} The network stays as it was.", RecalibrationWarning, stacklevel=2)
            return self
        log_k = (found(self.held_out.log_k - valid) + valid).astype(np.float32)
        held_out = replace(self.held_out, log_k=log_k)
        return replace(self, held_out=held_out, recalibration=(*self.recalibration, found))

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The log K of each further model against model 0 that the held-out draws can vouch for."""
        return tuple(self.held_out.range(k, 0) for k in range(1, len(self.names)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to one file (safetensors with a JSON header); read it with `load`."""
        from evidencenet.estimator.serialise import save

        save(self, path)

    def __repr__(self) -> str:
        score = np.nanmin(self.history.score, axis=1).mean()
        mended = f"; recalibrated on {self.recalibration[-1].draws:,} draws" if self.recalibration else ""
        data = layout_text(layout(map_arrays(lambda array: array[None], self.example)))
        return (
            f"EvidenceNetwork: {' against '.join(reversed(self.names))}, {len(self.gain)} members, "
            f"for {data}; held-out score {score:.4f} nats{mended}"
        )

    def _scaled(self, data: Data) -> Data:
        """Scaled observations, none so far out that its log K would overflow."""
        with np.errstate(over="ignore"):
            scaled = self.scaling(data)
        return map_arrays(lambda a: a if a.dtype == bool else np.clip(a, -_FARTHEST, _FARTHEST), scaled)

    def _strange(self, data: Data) -> np.ndarray:
        """How often draws of each class lie farther out, (n, classes)."""
        scaled = self._scaled(data)
        if self.novelty is None:
            return np.full((len(arrays_of(scaled)[0]), len(self.names)), np.nan)
        if self.novelty.hidden_mean is None:
            return self.novelty.p_value(scaled)
        return self.novelty.p_value(
            scaled, ensemble.hidden_layers(self.networks, self.states, self.gain, scaled)
        )

    def _raw(self, data: Data) -> np.ndarray:
        """Log K of the classes against the first by each member, as trained, (members, n, classes).

        The classes are the models, after a reference if there is one; chances to fail are not in it.
        """
        if self.networks is None:
            return np.zeros((len(self.gain), len(arrays_of(data)[0]), len(self.names)))
        scaled = self._scaled(data)
        log_odds = ensemble.log_odds(self.networks, self.states, self.gain, self.loss, scaled).astype(float)
        if self.baseline is not None:
            log_odds += self.baseline(scaled)
        elif isinstance(self.loss, losses.Asymmetric):
            # Others learned log K itself, with the training fractions given beforehand.
            shares = self.log_prior if self.densities is None else self.densities.log_shares
            log_odds -= shares - shares[0]
        return log_odds

    def _mended(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Recalibrate; also return by what errors grow, (n,)."""
        log_k, slope = raw, np.ones(raw.shape[1])
        for step in self.recalibration:
            slope = slope * step.slope_at(log_k.mean(axis=0))
            log_k = step.members(log_k)
        return log_k, slope

    def _log_p(self, data: Data, learned: np.ndarray) -> np.ndarray:
        """Log p(x, valid|model), but for what all models share if no density is known, (members, n, K)."""
        log_p = learned if self.densities is None else self.densities.log_p(learned, data)
        return log_p + self.log_valid

    def _known(self, data: Data, learned: np.ndarray, above: int, below: int) -> np.ndarray:
        """Say whether log K is vouched for whatever its size, (n,), because densities are known."""
        if self.densities is None:
            return np.zeros(learned.shape[1], dtype=bool)
        near = self._strange(data) > (1.0 if self.novelty is None else self.novelty.least)
        return self.densities.vouch(above, below, learned.mean(axis=0), data, near)

    def _error(
        self, data: Data, raw: np.ndarray, slope: np.ndarray, p: np.ndarray, above: int, below: int
    ) -> np.ndarray:
        """Error (n,) of one pair's mean over members, of log K (members, n, classes) as trained.

        `p` says how often draws of each class lie farther out, (n, classes).
        """
        if above == below:
            return np.zeros(raw.shape[1])
        if self.densities is None:
            error = slope * self._learned_error(data, raw, p, above, below)
        else:
            p = p[:, self.densities.columns]

            def squared(first: int, second: int) -> np.ndarray:
                return np.square(self._learned_error(data, raw, p, first, second))

            error = np.sqrt(self.densities.variance(above, below, raw.mean(axis=0), data, squared))
        if self.depth is not None:
            error = np.hypot(error, self.depth.error(raw.mean(axis=0), above, below))
        return np.hypot(error, np.hypot(self.log_valid_error[above], self.log_valid_error[below]))

    def _learned_error(
        self, data: Data, raw: np.ndarray, p: np.ndarray, above: int, below: int
    ) -> np.ndarray:
        """Error (n,) of what was learned of two classes."""
        scatter = scatter_of(raw, above, below)
        jackknife = scatter
        if self.baseline is not None:
            jackknife = np.sqrt(scatter**2 + self.baseline.variance(self._scaled(data), above, below))
        if self.errors is None:
            return jackknife
        # Either way round it is that of the later model, and by no luck less than the members' own scatter.
        later, earlier = max(above, below), min(above, below)
        log_k = (raw[:, :, later] - raw[:, :, earlier]).mean(axis=0)
        return np.fmax(self.errors(log_k, jackknife, p[:, [above, below]].max(axis=1)), scatter)
