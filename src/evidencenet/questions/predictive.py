"""`predictive_test`: how well each model predicts one part of the data from the rest."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np

from evidencenet._common import wording
from evidencenet._common.arrays import (
    Data,
    arrays_of,
    as_data,
    index_of,
    kind_of,
)
from evidencenet._common.display import card, plain
from evidencenet._common.harmless import pair_text
from evidencenet.estimator.network import EvidenceNetwork, checked
from evidencenet.estimator.train import train
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model

# From a batch of data to the part x_0 of each draw.
Keep = Callable[[Data], Data]


@dataclass(frozen=True)
class Prediction:
    """The posterior predictive test of one observation; print it.

    Attributes
    ----------
    names
        The two models, first the one in the denominator.
    log_k, error
        Natural log of p(x_1|x_0, model)/p(x_1|x_0, against), and its standard error.
    whole, kept
        Log Bayes factors of all of x, and of the part x_0 alone; `log_k` is their difference.
    validated
        Whether both log Bayes factors lie in the validated range of their network.
    warnings
        The warnings of both networks about this observation; empty if there are none.
    """

    names: tuple[str, str]
    log_k: float
    error: float
    whole: float
    kept: float
    validated: bool
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [self._title(), *(f"  {name:<21} {text}" for name, text in self._rows())]
        lines += [fill(f"  Warning: {w}", 110, subsequent_indent="    ") for w in self.warnings]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows(), notes=self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON; NaN and infinity become None."""
        return plain(vars(self))

    def _title(self) -> str:
        return (
            f"{pair_text(self.names[1], self.names[0])}: which one predicts the rest of the data better "
            "from the kept part"
        )

    def _rows(self) -> list[tuple[str, str]]:
        better, worse = self.names[::-1] if self.log_k >= 0 else self.names
        doubt = "" if self.validated else " (outside the validated range: see the warnings)"
        return [
            ("predictive log K", f"{wording.with_error(self.log_k, self.error)} (natural log)"),
            ("odds", f"{wording.odds(abs(self.log_k))} for {better} over {worse}, as predictors{doubt}"),
            ("log K of all data", f"{self.whole:.3g}"),
            ("log K of kept part", f"{self.kept:.3g}"),
        ]


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveTest:
    """Two networks, one for the whole data x and one for the part x_0; made by `predictive_test`.

    Attributes
    ----------
    whole, kept
        The network for x, and the network for x_0. You can validate and save each one.
    keep
        ``keep(x)`` returns x_0 of a batch x.
    """

    whole: EvidenceNetwork
    kept: EvidenceNetwork
    keep: Keep

    def log_bayes_factor(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Natural log of p(x_1|x_0, model)/p(x_1|x_0, against) = K(x)/K(x_0).

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
        whole, kept = self._both(EvidenceNetwork.log_bayes_factor, x, model, against)
        return whole - kept

    def error(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Return the standard error of `log_bayes_factor`, shape (n,): those of both networks in quadrature.

        Both networks are trained on the same draws. The errors that this gives both of them cancel in the
        difference, so the stated error is rather too large.
        """
        whole, kept = self._both(EvidenceNetwork.error, x, model, against)
        return np.hypot(whole, kept)

    def compare(self, x: Any, *, model: int | str = 1, against: int | str = 0) -> Prediction:
        """Answer for one observation, with warnings.

        Parameters
        ----------
        x
            One observation, with or without a first axis of length 1.
        model, against
            The two models, each by label or by name.
        """
        batch = checked(x, self.whole.example, self.whole.columns, self.whole.masked)
        if (n := len(arrays_of(batch)[0])) != 1:
            raise ValueError(
                f"compare answers for one observation, got {n}. For several use log_bayes_factor and error."
            )
        answers = {
            "all data": self.whole.compare(batch),
            "the kept part": self.kept.compare(self.keep(batch)),
        }
        whole, kept = self._both(EvidenceNetwork.log_bayes_factor, batch, model, against)
        names = self.whole.names
        pair = index_of(against, names), index_of(model, names)
        return Prediction(
            names=(names[pair[0]], names[pair[1]]),
            log_k=float(whole[0] - kept[0]),
            error=float(self.error(batch, model=model, against=against)[0]),
            whole=float(whole[0]),
            kept=float(kept[0]),
            validated=all(answer.pair(pair[1], pair[0]).in_range for answer in answers.values()),
            warnings=tuple(f"{part}: {w}" for part, answer in answers.items() for w in answer.warnings),
        )

    def __repr__(self) -> str:
        return f"PredictiveTest:\n  of all data: {self.whole!r}\n  of the part: {self.kept!r}"

    def _both(self, ask: Callable[..., np.ndarray], x: Any, model: Any, against: Any) -> list[np.ndarray]:
        batch = checked(x, self.whole.example, self.whole.columns, self.whole.masked)
        parts = ((self.whole, batch), (self.kept, self.keep(batch)))
        return [ask(net, part, model=model, against=against) for net, part in parts]


def predictive_test(
    models: Sequence[Model] | Simulations,
    keep: Any,
    n: int | None = None,
    *,
    seed: int = 0,
    for_kept: Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> PredictiveTest:
    """Compare models by how well they predict one part of the data from the rest.

    With x = (x_0, x_1), the ratio K_PPT = p(x_1|x_0, M1)/p(x_1|x_0, M0) = K(x)/K(x_0) lets each model learn
    its parameters from x_0 and then predict x_1. It depends less on the priors of the parameters than K does.

    Parameters
    ----------
    models
        The models to draw from; or existing draws, as `Simulations`.
    keep
        Which part of x is x_0, the part that each model learns from: indices along the first axis of a draw
        (integers, a slice, or a boolean mask); the keys, for a dict of arrays; or a function from a batch
        (n, ...) to a batch of n parts.
    n
        How many draws in total; both networks are trained on all of them. None if `models` are draws.
    seed
        Fixes all random numbers: the same seed on the same machine gives the same test, to the bit.
    for_kept
        Options of `train` for the network of x_0 only, for example its `network`. The network of x_0 does not
        get `augment` from `options`: if x_0 has a symmetry, give it here.
    progress
        Whether to show progress on standard error.
    **options
        Options of `train` for both networks, such as `members` or `recipe`.

    Returns
    -------
    PredictiveTest
        ``.log_bayes_factor(x)`` for all of x, ``.error(x)``, ``.compare(x)``.

    Notes
    -----
    Failed draws have no effect: a draw fails as a whole, so the valid fractions cancel in K(x)/K(x_0).

    Examples
    --------
    >>> test = predictive_test([flat, trend], range(10), 100_000, seed=1)  # doctest: +SKIP
    >>> print(test.compare(x_observed))  # doctest: +SKIP
    """
    seeds = np.random.SeedSequence(operator.index(seed)).generate_state(3)
    draw_seed, whole_seed, kept_seed = (int(s) for s in seeds)
    if isinstance(models, Simulations):
        if n is not None:
            raise ValueError(f"n = {n}, but draws were given, so none are made. Leave n out.")
        sims = models
    elif n is None:
        raise ValueError("n is missing. Give the number of draws in total: predictive_test(models, keep, n).")
    else:
        sims = simulate(models, n, seed=draw_seed, progress=progress)
    part = _keeping(keep, sims.x)
    kept = Simulations(part(sims.x), sims.model, sims.names, log_weight=sims.log_weight, failed=sims.failed)
    kept_options = options | {"seed": kept_seed, "augment": None} | dict(for_kept or {})
    return PredictiveTest(
        whole=train(sims, seed=whole_seed, progress=progress, **options),
        kept=train(kept, progress=progress, **kept_options),
        keep=part,
    )


def _keeping(keep: Any, x: Data) -> Keep:
    """Return the function that takes x_0 from a batch, after a check that it suits the draws x."""
    if callable(keep):
        function: Keep = keep
    elif isinstance(x, dict):
        keys = [keep] if isinstance(keep, str) else list(keep)
        missing = [key for key in keys if key not in x]
        if missing or not keys:
            raise ValueError(
                f"keep = {keep!r}; wanted one or more of the keys of x, {', '.join(map(repr, x))}."
            )
        if len(set(keys)) == len(x):
            raise ValueError(
                "keep names all keys of x, so nothing is left to predict. Leave out one or more."
            )
        return lambda batch: {key: batch[key] for key in keys}
    else:
        places = _places(keep, x)
        return lambda batch: batch[:, places]  # type: ignore[index]

    def part(batch: Data) -> Data:
        given = as_data(function(batch))
        rows = len(arrays_of(batch)[0])
        if len(arrays_of(given)[0]) != rows:
            raise ValueError(
                f"keep returned {len(arrays_of(given)[0])} rows for a batch of {rows} draws; wanted one row "
                "for each draw: a part of every draw, not only certain draws."
            )
        return given

    return part


def _places(keep: Any, x: np.ndarray) -> np.ndarray:
    """Return different indices along the first axis of a draw, but not all of them."""
    size = x.shape[1]
    try:
        chosen = np.arange(size)[keep if isinstance(keep, slice) else np.asarray(keep)]
    except (IndexError, TypeError):
        raise ValueError(
            f"keep = {keep!r}; wanted indices from 0 to {size - 1}, a slice, a mask of length {size}, or a "
            f"function; got {kind_of(keep)}."
        ) from None
    if chosen.ndim != 1 or not 0 < len(chosen) < size or len(set(chosen.tolist())) < len(chosen):
        raise ValueError(
            f"keep = {keep!r} takes {chosen.size} of {size} places; wanted one or more different places, but "
            "not all: something must be left to predict."
        )
    return chosen
