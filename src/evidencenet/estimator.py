"""`EvidenceNetwork`: a trained ensemble, from data to log Bayes factors."""

import os
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from evidencenet import forward, losses, networks
from evidencenet.baseline import Baseline
from evidencenet.choice import Choice
from evidencenet.comparison import Comparison, Lead, compare
from evidencenet.data import (
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
from evidencenet.errors import ErrorModel
from evidencenet.estimate import Estimate
from evidencenet.novelty import Novelty
from evidencenet.recalibration import Recalibration, fit
from evidencenet.scaling import Scaling
from evidencenet.several import added, stacked
from evidencenet.simulations import Simulations, check_draws
from evidencenet.training import History
from evidencenet.trust import Range, validated_range

# In standard deviations: far beyond any draw, and short of where single precision overflows.
_FARTHEST = 1e6


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Log K of held-out draws against model 0, (n, K), as the network sees them, and their models (n,)."""

    log_k: np.ndarray
    label: np.ndarray


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
        log_k = self.table(x)
        return log_k[:, :, above] - log_k[:, :, below]

    def table(self, x: Any) -> np.ndarray:
        """Log Bayes factor of each model against the first, by each member, shape (members, n, K)."""
        return self._mended(self._raw(self._checked(x)))[0]

    def error(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Return the standard error of `log_bayes_factor`, shape (n,).

        It was learned by training again on labels drawn from what this network says, so that it holds what
        all members share: the same draws, and the bias of the training (see `evidencenet.errors`). How it
        varies from x to x follows the `jackknife`, as far as that tells.
        """
        above, below = index_of(model, self.names), index_of(against, self.names)
        data = self._checked(x)
        raw = self._raw(data)
        return self._error(data, raw, self._mended(raw)[1], above, below)

    def jackknife(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Return the jackknife error of `log_bayes_factor`, shape (n,); NaN for a single member.

        The paper's error: over the members, and over parts of the training draws for the Gaussian baseline,
        if there is one. It does not hold what all members share.
        """
        above, below = index_of(model, self.names), index_of(against, self.names)
        data = self._checked(x)
        raw = self._raw(data)
        return self._mended(raw)[1] * self._jackknife(data, raw, above, below)

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
        log_prior = self._log_prior(prior)
        return softmax(self.table(x).mean(axis=0) + log_prior, axis=1)

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
        log_prior = self._log_prior(prior)
        data = self._checked(x)
        n = len(next(iter(data.values())) if isinstance(data, dict) else data)
        if n != 1:
            raise ValueError(
                f"compare answers for one observation, got {n}. Independent observations share parameters: "
                "simulate them together as one x. For many separate answers use log_bayes_factor."
            )
        raw = self._raw(data)
        table, slope = self._mended(raw)
        log_k = table[:, 0].mean(axis=0)

        def error(above: int, below: int) -> float:
            return float(self._error(data, raw, slope, above, below)[0])

        best, other = (int(k) for k in np.argsort(-log_k, kind="stable")[:2])
        size = float(log_k[best] - log_k[other])
        return compare(
            self.names,
            log_k,
            np.array([error(k, 0) for k in range(len(self.names))]),
            log_prior,
            self.ranges,
            self._strange(data)[0],
            Lead(best, other, size, error(best, other), self._range(best, other)),
            least=0.0 if self.novelty is None else self.novelty.least,
            recalibrated=self.recalibration[-1].draws if self.recalibration else 0,
        )

    def novelty_p_value(self, x: Any) -> np.ndarray:
        """How often a draw of each model lies farther out than each observation, shape (n, K).

        Small for all models: none of them produces such data, and the Bayes factor compares wrong models.
        See `evidencenet.novelty`. NaN for networks of old files, if the data have many numbers.
        """
        return self._strange(self._checked(x))

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
        (see `evidencenet.recalibration`). The other half decide: the network changes only if their log score
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
        valid = self.log_valid - self.log_valid[0]
        found = fit(self.table(sims.x).mean(axis=0) - valid, sims.model, seed=seed)
        if not found.helps:
            warnings.warn(f"{found.refusal} The network is returned as it was.", stacklevel=2)
            return self
        log_k = (found(self.held_out.log_k - valid) + valid).astype(np.float32)
        held_out = HeldOut(log_k, self.held_out.label)
        return replace(self, held_out=held_out, recalibration=(*self.recalibration, found))

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The log K of each further model against model 0 that the held-out draws can vouch for."""
        return tuple(self._range(k, 0) for k in range(1, len(self.names)))

    def _range(self, above: int, below: int) -> Range:
        held = self.held_out
        pair = (held.label == above) | (held.label == below)
        return validated_range(held.log_k[pair, above] - held.log_k[pair, below], held.label[pair] == above)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to one file (safetensors with a JSON header); read it with `load`."""
        from evidencenet.saving import save

        save(self, path)

    def __repr__(self) -> str:
        score = np.nanmin(self.history.score, axis=1).mean()
        mended = f"; recalibrated on {self.recalibration[-1].draws:,} draws" if self.recalibration else ""
        return (
            f"EvidenceNetwork: {' against '.join(reversed(self.names))}, {len(self.gain)} members, "
            f"for {layout_text(self._layout)}; held-out score {score:.4f} nats{mended}"
        )

    @property
    def _layout(self) -> dict[str, str]:
        return layout(map_arrays(lambda array: array[None], self.example))

    def _checked(self, x: Any) -> Data:
        """Observations as a batch, or an error that says what is wrong with them."""
        data = as_data(with_draws(x, self.example))
        if layout(data) != self._layout:
            raise ValueError(
                f"x is {layout_text(layout(data))}; this network was trained on {layout_text(self._layout)}. "
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

    def _scaled(self, data: Data) -> Data:
        """Scaled observations, none so far out that its log K would overflow."""
        with np.errstate(over="ignore"):
            scaled = self.scaling(data)
        return map_arrays(lambda a: a if a.dtype == bool else np.clip(a, -_FARTHEST, _FARTHEST), scaled)

    def _strange(self, data: Data) -> np.ndarray:
        scaled = self._scaled(data)
        if self.novelty is None:
            return np.full((len(arrays_of(scaled)[0]), len(self.names)), np.nan)
        if self.novelty.hidden_mean is None:
            return self.novelty.p_value(scaled)
        return self.novelty.p_value(scaled, forward.hidden(self.networks, self.states, self.gain, scaled))

    def _raw(self, data: Data) -> np.ndarray:
        """Log p(x|M_k)/p(x|M_0) by each member, as trained, for draws that do not fail, (members, n, K)."""
        scaled = self._scaled(data)
        log_odds = forward.log_odds(self.networks, self.states, self.gain, self.loss, scaled)
        log_odds = log_odds.astype(np.float64)
        if self.baseline is not None:
            log_odds += self.baseline(scaled)
        elif not self._knows_prior:
            log_odds -= self.log_prior - self.log_prior[0]
        return log_odds

    def _mended(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Recalibrate, and add the chance to fail; also return by what errors grow, (n,)."""
        log_k, slope = raw, np.ones(raw.shape[1])
        for step in self.recalibration:
            slope = slope * step.slope_at(log_k.mean(axis=0))
            log_k = step.members(log_k)
        return log_k + (self.log_valid - self.log_valid[0]), slope

    def _error(self, data: Data, raw: np.ndarray, slope: np.ndarray, above: int, below: int) -> np.ndarray:
        """Error (n,) of one pair's mean over members, of log K (members, n, K) as trained."""
        if above == below:
            return np.zeros(raw.shape[1])
        error = self._jackknife(data, raw, above, below)
        if self.errors is not None:
            # Either way round, the error is that of the later model against the earlier.
            later, earlier = max(above, below), min(above, below)
            error = self.errors((raw[:, :, later] - raw[:, :, earlier]).mean(axis=0), error)
        failed = np.hypot(self.log_valid_error[above], self.log_valid_error[below])
        return np.hypot(slope * error, failed)

    def _jackknife(self, data: Data, log_k: np.ndarray, above: int, below: int) -> np.ndarray:
        if len(log_k) < 2:
            return np.full(log_k.shape[1], np.nan)
        # Leaving out one member at a time gives just the error of a mean.
        variance = (log_k[:, :, above] - log_k[:, :, below]).var(axis=0, ddof=1) / len(log_k)
        if self.baseline is not None:
            variance += self.baseline.variance(self._scaled(data), above, below)
        return np.sqrt(variance)

    @property
    def _knows_prior(self) -> bool:
        """Whether the networks learned log K itself, with the training fractions given beforehand."""
        return not isinstance(self.loss, losses.Asymmetric)

    def _log_prior(self, prior: ArrayLike | None) -> np.ndarray:
        if prior is None:
            return np.zeros(len(self.names))
        given = np.asarray(prior, dtype=np.float64)
        if given.shape != (len(self.names),) or not np.all(given >= 0) or not 0 < given.sum() < np.inf:
            raise ValueError(
                f"prior = {prior}; wanted one probability for each of {', '.join(self.names)}, 0 or more."
            )
        with np.errstate(divide="ignore"):
            return np.log(given / given.sum())
