"""`rehearse`: train on a worked problem, and set the answers beside the exact ones."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evidencenet._common.display import plain
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.train import train
from evidencenet.estimator.validate import Validation, validate
from evidencenet.problems.problem import Problem
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.training.recipe import Recipe

_MOST_FRESH = 100_000


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A network trained on a worked problem, and what fresh draws say about it; print it.

    Attributes
    ----------
    problem
        The problem.
    net
        The network trained on its draws.
    fresh
        Draws that it has not seen.
    check
        What `validate` says of the network on them.
    exact
        Their exact log K against the first model, natural log, (n, K).
    """

    problem: Problem
    net: EvidenceNetwork
    fresh: Simulations
    check: Validation
    exact: np.ndarray

    @cached_property
    def deviation(self) -> np.ndarray:
        """Estimated minus exact log K of each further model against the first, natural log, (n, K − 1)."""
        return self.check.log_k[:, 1:] - self.exact[:, 1:]

    @cached_property
    def inside(self) -> np.ndarray:
        """Which log K lie in the range that the network's held-out draws confirm, booleans (n, K − 1)."""
        pairs = zip(self.net.ranges, self.check.log_k[:, 1:].T, strict=True)
        return np.stack([np.asarray(held.contains(log_k)) for held, log_k in pairs], axis=1)

    @cached_property
    def _errors(self) -> np.ndarray:
        pairs = range(1, len(self.net.names))
        return np.stack([self.net.error(self.fresh.x, model=k) for k in pairs], axis=1)

    @property
    def rmse(self) -> float:
        """Root mean square of `deviation` over all fresh draws."""
        return float(np.sqrt(np.mean(self.deviation**2)))

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON knows them; log K is natural, what is not known is None."""
        some, deviation = self.inside, self.deviation[self.inside]
        size = np.abs(deviation) / self._errors[some]
        known = bool(some.any())
        return plain(
            {
                "problem": self.problem.name,
                "names": self.net.names,
                "training_draws": self.net.history.draws,
                "fresh_draws": len(self.fresh),
                "rmse": self.rmse,
                "bias": self.deviation.mean(),
                "exact_scatter": self.exact[:, 1:].std(),
                "in_confirmed_range": {
                    "part": some.mean(),
                    "rmse": np.sqrt(np.mean(deviation**2)) if known else None,
                    "bias": deviation.mean() if known else None,
                    "within_one_error": np.mean(size <= 1) if known else None,
                    "within_two_errors": np.mean(size <= 2) if known else None,
                },
                "validation": self.check.to_dict(),
            }
        )

    def __str__(self) -> str:
        told = self.to_dict()
        held = told["in_confirmed_range"]
        rows = [
            f"{self.problem.name}: natural log K beside the exact one, of {len(self.fresh):,} fresh draws",
            f"  all draws        off by {told['rmse']:.4f} (root mean square), {told['bias']:+.4f} on "
            f"average; the exact ones scatter by {told['exact_scatter']:.3g}",
        ]
        if held["rmse"] is None:
            return "\n".join([*rows, "  confirmed range  none: the models overlap too little"])
        part, one, two = (100 * held[key] for key in ("part", "within_one_error", "within_two_errors"))
        rows += [
            f"  confirmed range  off by {held['rmse']:.4f}, {held['bias']:+.4f} on average, in {part:.3g}% "
            "of the draws",
            f"  stated errors    {one:.0f}% of these lie within one error (wanted: 68%), {two:.0f}% within "
            "two (95%)",
        ]
        return "\n".join(rows)


def rehearse(
    problem: Problem,
    draws: int,
    *,
    seed: int = 1,
    members: int = 4,
    recipe: Recipe | None = None,
    progress: bool = True,
) -> Rehearsal:
    """Simulate a worked problem, train on it, and compare with its exact answer on fresh draws.

    Parameters
    ----------
    problem
        One of `evidencenet.problems`.
    draws
        How many to train on, all models together. As many are drawn afresh, at most 100,000.
    seed
        Everything random follows from it.
    members, recipe
        As for `train`.
    progress
        Show progress bars on standard error.

    Returns
    -------
    Rehearsal

    Examples
    --------
    >>> import evidencenet as en
    >>> found = rehearse(en.problems.mean_test(), 20_000, progress=False)  # doctest: +SKIP
    >>> found.rmse  # doctest: +SKIP
    """
    sims = simulate(problem.models, draws, seed=seed, progress=progress)
    net = train(sims, augment=problem.augment, members=members, recipe=recipe, seed=seed, progress=progress)
    fresh = simulate(problem.models, min(draws, _MOST_FRESH), seed=seed + 1, progress=False)
    evidence = problem.log_evidence(fresh.x)
    return Rehearsal(problem, net, fresh, validate(net, fresh), evidence - evidence[:, :1])
