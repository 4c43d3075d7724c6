"""`measure_accuracy`: train on a worked problem, and compare log K with the exact answer."""

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

# A root mean square over 100,000 draws of normal deviations is known to 1/√(2n) = 0.2%. More would only
# take time.
_MOST_FRESH = 100_000


@dataclass(frozen=True, eq=False)
class Accuracy:
    """A network trained on a worked problem, compared with the exact log K of fresh draws; print it.

    Attributes
    ----------
    problem
        The problem.
    net
        The network trained on its draws.
    fresh
        Draws that the network has not seen.
    check
        The result of `validate` on these draws.
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
        """Which log K lie inside the network's validated range, booleans (n, K − 1)."""
        pairs = zip(self.net.ranges, self.check.log_k[:, 1:].T, strict=True)
        return np.stack([np.asarray(validated.contains(log_k)) for validated, log_k in pairs], axis=1)

    @property
    def rmse(self) -> float:
        """Root mean square of `deviation` over all fresh draws."""
        return float(np.sqrt(np.mean(self.deviation**2)))

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON; log K is natural, and unknown numbers are None."""
        inside, deviation = self.inside, self.deviation[self.inside]
        errors = np.stack([self.net.error(self.fresh.x, model=k) for k in range(1, len(self.net.names))], 1)
        in_errors = np.abs(deviation) / errors[inside]
        any_inside = bool(inside.any())
        return plain(
            {
                "problem": self.problem.name,
                "names": self.net.names,
                "training_draws": self.net.history.draws,
                "fresh_draws": len(self.fresh),
                "rmse": self.rmse,
                "bias": self.deviation.mean(),
                "exact_scatter": self.exact[:, 1:].std(),
                "in_validated_range": {
                    "part": inside.mean(),
                    "rmse": np.sqrt(np.mean(deviation**2)) if any_inside else None,
                    "bias": deviation.mean() if any_inside else None,
                    "within_one_error": np.mean(in_errors <= 1) if any_inside else None,
                    "within_two_errors": np.mean(in_errors <= 2) if any_inside else None,
                },
                "validation": self.check.to_dict(),
            }
        )

    def __str__(self) -> str:
        numbers = self.to_dict()
        inside = numbers["in_validated_range"]
        rows = [
            f"{self.problem.name}: estimated natural log K compared with the exact one, "
            f"on {len(self.fresh):,} fresh draws",
            f"  all draws        RMSE {numbers['rmse']:.4f}, mean difference {numbers['bias']:+.4f}; "
            f"the exact log K has a standard deviation of {numbers['exact_scatter']:.3g}",
        ]
        if inside["rmse"] is None:
            return "\n".join([*rows, "  validated range  empty: the models overlap too little"])
        part, one, two = (100 * inside[key] for key in ("part", "within_one_error", "within_two_errors"))
        rows += [
            f"  validated range  RMSE {inside['rmse']:.4f}, mean difference {inside['bias']:+.4f}; "
            f"it holds {part:.3g}% of the draws",
            f"  error of log K   {one:.0f}% of the draws in the range are within one error of the exact "
            f"log K (expected: 68%), {two:.0f}% within two (95%)",
        ]
        return "\n".join(rows)


def measure_accuracy(
    problem: Problem,
    draws: int,
    *,
    seed: int = 1,
    members: int = 4,
    recipe: Recipe | None = None,
    progress: bool = True,
) -> Accuracy:
    """Simulate a worked problem, train on it, and compare with its exact answer on fresh draws.

    Parameters
    ----------
    problem
        One of `evidencenet.problems`.
    draws
        How many draws to train on, all models together. The comparison uses as many fresh draws, at most
        100,000.
    seed
        Fixes all random numbers.
    members, recipe
        As for `train`.
    progress
        Show progress bars on standard error.

    Returns
    -------
    Accuracy

    Examples
    --------
    >>> import evidencenet as en
    >>> accuracy = measure_accuracy(en.problems.mean_test(), 20_000, progress=False)  # doctest: +SKIP
    >>> accuracy.rmse  # doctest: +SKIP
    """
    sims = simulate(problem.models, draws, seed=seed, progress=progress)
    net = train(sims, augment=problem.augment, members=members, recipe=recipe, seed=seed, progress=progress)
    fresh = simulate(problem.models, min(draws, _MOST_FRESH), seed=seed + 1, progress=False)
    evidence = problem.log_evidence(fresh.x)
    return Accuracy(problem, net, fresh, validate(net, fresh), evidence - evidence[:, :1])
