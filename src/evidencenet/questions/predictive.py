"""The posterior predictive test: how well each model, fitted to a part of the data, foretells the rest."""

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
    layout,
    layout_text,
    map_arrays,
    plain_array,
)
from evidencenet._common.display import card, plain
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.train import train
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.model import Model

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
    confirmed
        Whether both log Bayes factors lie where held-out draws can vouch for them.
    warnings
        What each network has to say against the observation; empty if nothing.
    """

    names: tuple[str, str]
    log_k: float
    error: float
    whole: float
    kept: float
    confirmed: bool
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [self._title(), *(f"  {name:<21} {text}" for name, text in self._rows())]
        lines += [fill(f"  Warning: {w}", 110, subsequent_indent="    ") for w in self.warnings]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return card(self._title(), self._rows(), notes=self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON knows them; what is NaN or infinite is None."""
        return plain(vars(self))

    def _title(self) -> str:
        return (
            f"{self.names[1]} against {self.names[0]}: which predicts the rest of the data from the kept part"
        )

    def _rows(self) -> list[tuple[str, str]]:
        better, worse = self.names[::-1] if self.log_k >= 0 else self.names
        doubt = "" if self.confirmed else " (not confirmed: see the warnings)"
        return [
            ("predictive log K", f"{wording.with_error(self.log_k, self.error)} (natural log)"),
            ("odds", f"{wording.odds(abs(self.log_k))} for {better} over {worse}, as predictors{doubt}"),
            ("log K of all data", f"{self.whole:.3g}"),
            ("log K of the part", f"{self.kept:.3g}"),
        ]


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveTest:
    """Two networks, for the whole data x and for a part x_0 of them; made by `predictive_test`.

    Attributes
    ----------
    whole, kept
        The network for x, and the one for x_0. Each can be validated and saved by itself.
    keep
        ``keep(x)`` is x_0 of a batch x.
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

        What the two have in common, as they were trained on the same draws, cancels in the difference: the
        error is then rather too large.
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
        batch = self._batch(x)
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
            # Each model against the first, which is its own reference.
            confirmed=all(np.r_[True, answer.inside][k] for answer in answers.values() for k in pair),
            warnings=tuple(f"{part}: {w}" for part, answer in answers.items() for w in answer.warnings),
        )

    def __repr__(self) -> str:
        return f"PredictiveTest:\n  of all data: {self.whole!r}\n  of the part: {self.kept!r}"

    def _both(self, ask: Callable[..., np.ndarray], x: Any, model: Any, against: Any) -> list[np.ndarray]:
        batch = self._batch(x)
        parts = ((self.whole, batch), (self.kept, self.keep(batch)))
        return [ask(net, part, model=model, against=against) for net, part in parts]

    def _batch(self, x: Any) -> Data:
        """Observations with a first axis, in the form of the draws."""
        example = self.whole.example
        try:
            single = map_arrays(np.shape, x) == map_arrays(np.shape, example)
        except ValueError:  # rows that differ in length, which as_data explains
            single = False
        data = as_data(map_arrays(lambda value: plain_array(value)[None], x) if single else x)
        wanted = layout(map_arrays(lambda array: array[None], example))
        if layout(data) != wanted:
            raise ValueError(
                f"x is {layout_text(layout(data))}; the test was made for {layout_text(wanted)}. Give all of "
                "an observation, in the form of the simulated data: the part is taken here."
            )
        return data


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
    """Compare models by how well they predict a part of the data from the rest of them.

    With x = (x_0, x_1), the odds K_PPT = p(x_1|x_0, M1)/p(x_1|x_0, M0) = K(x)/K(x_0) ask each model to learn
    its parameters from x_0, and to foretell x_1. They depend less on the priors of the parameters than K.

    Parameters
    ----------
    models
        The models to draw from; or draws that are there already, as `Simulations`.
    keep
        Which part of x is x_0, the part that is known first: indices along the first axis of a draw
        (integers, a slice, or a boolean mask); for a dict of arrays the keys; or a function from a batch
        (n, ...) to a batch of n parts.
    n
        How many draws in total; both networks are trained on all of them. None if `models` are draws.
    seed
        The same seed on the same machine gives the same test, to the bit.
    for_kept
        Options of `train` that are different for the network of x_0, for example its `network`. `augment` is
        not handed on to it: name here the symmetry of x_0, if it has one.
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
    Draws that fail do not count: a draw fails as a whole, which cancels in K(x)/K(x_0).

    Examples
    --------
    >>> test = predictive_test([flat, trend], range(10), 100_000, seed=1)  # doctest: +SKIP
    >>> print(test.compare(x_observed))  # doctest: +SKIP
    """
    first, second, third = (int(s) for s in np.random.SeedSequence(operator.index(seed)).generate_state(3))
    if isinstance(models, Simulations):
        if n is not None:
            raise ValueError("n is how many draws to make, but draws were given; leave it out.")
        sims = models
    elif n is None:
        raise ValueError("n is missing: predictive_test(models, keep, n) makes n draws in total.")
    else:
        sims = simulate(models, n, seed=first, progress=progress)
    part = _keeping(keep, sims.x)
    kept = Simulations(part(sims.x), sims.model, sims.names, log_weight=sims.log_weight, failed=sims.failed)
    different = {"augment": None, **(for_kept or {})}
    return PredictiveTest(
        whole=train(sims, seed=second, progress=progress, **options),
        kept=train(kept, progress=progress, **(options | {"seed": third} | different)),
        keep=part,
    )


def _keeping(keep: Any, x: Data) -> Keep:
    """Return the function that takes a part of a batch, tried on these draws."""
    if callable(keep):
        function: Keep = keep
    elif isinstance(x, dict):
        keys = [keep] if isinstance(keep, str) else list(keep)
        missing = [key for key in keys if key not in x]
        if missing or not keys:
            raise ValueError(f"keep = {keep!r}; wanted some of the keys of x, {', '.join(map(repr, x))}.")
        if len(set(keys)) == len(x):
            raise ValueError("keep names all of x; then there is nothing left to predict.")
        return lambda batch: {key: batch[key] for key in keys}
    else:
        places = _places(keep, x)
        return lambda batch: batch[:, places]  # type: ignore[index]

    def part(batch: Data) -> Data:
        given = as_data(function(batch))
        rows = len(arrays_of(batch)[0])
        if len(arrays_of(given)[0]) != rows:
            raise ValueError(
                f"keep returned {len(arrays_of(given)[0])} rows for a batch of {rows}; it must take a part "
                "of each draw, not some of the draws."
            )
        return given

    return part


def _places(keep: Any, x: np.ndarray) -> np.ndarray:
    """Return indices along the first axis of a draw, each once, and not all of them."""
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
            f"keep = {keep!r} takes {chosen.size} of {size}; wanted at least one, each once, and not all: "
            "something must be left to predict."
        )
    return chosen
