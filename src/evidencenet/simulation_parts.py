"""Parts, sums and weights of draws: what the methods of `Simulations` of these names compute."""

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from evidencenet.data import Parameters, join, map_arrays
from evidencenet.notices import EffectiveSizeWarning
from evidencenet.simulation_fields import check_alike, checked_log_weight, joined_densities

# Reweighted draws that are worth fewer, or a smaller part of their number, are warned about.
_LEAST_EFFECTIVE, _LEAST_PART = 1_000, 0.01


def halves(sims: Any, fraction: float, seed: int) -> tuple[np.ndarray, list[int]]:
    """Return which draws go to the first of two parts, boolean (n,), and how many failed of each model."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, got {fraction}")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    in_first = np.zeros(len(sims), dtype=bool)
    failed = []
    for k, (name, count) in enumerate(zip(sims.names, sims.counts, strict=True)):
        size = round(fraction * count)
        if size in (0, count):
            raise ValueError(
                f"model {name!r} has {count} draws: a fraction of {fraction} leaves one part without "
                "any; draw more or choose a fraction nearer to one half"
            )
        in_first[rng.permutation(np.flatnonzero(sims.model == k))[:size]] = True
        failed.append(round(sims.failed[k] * size / count))
    return in_first, failed


def subset(sims: Any, chosen: np.ndarray, failed: Sequence[int]) -> dict[str, Any]:
    """Return the fields of some of the draws, given by their numbers."""
    model, weight = sims.model[chosen], sims.log_weight
    return vars(sims) | {
        "x": map_arrays(operator.itemgetter(chosen), sims.x),
        "model": model,
        # Checked again, because the draws taken may be just those of weight zero.
        "log_weight": None if weight is None else checked_log_weight(weight[chosen], model, sims.names),
        "failed": tuple(failed),
        "parameters": sims.parameters and _parameter_rows(sims.parameters, sims.model, chosen),
    }


def _parameter_rows(
    parameters: tuple[Parameters | None, ...], model: np.ndarray, chosen: np.ndarray
) -> tuple[Parameters | None, ...]:
    rank = np.empty(len(model), dtype=np.intp)
    for k in range(len(parameters)):
        rank[model == k] = np.arange(np.count_nonzero(model == k))
    rows = [rank[chosen[model[chosen] == k]] for k in range(len(parameters))]
    return tuple(
        None if theta is None else map_arrays(operator.itemgetter(mine), theta)
        for theta, mine in zip(parameters, rows, strict=True)
    )


def joined(parts: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of several simulations of the same models, one after the other."""
    if not parts:
        raise ValueError("there is nothing to concatenate; wanted at least one Simulations")
    for other in parts[1:]:
        check_alike(parts[0], other)
    log_weights = [part.log_weight for part in parts if part.log_weight is not None]
    kept = [part.parameters for part in parts if part.parameters is not None]
    per_model = zip(*kept, strict=True)
    parameters = tuple(None if theta[0] is None else join(*theta) for theta in per_model)
    return {
        "x": join(*(part.x for part in parts)),
        "model": join(*(part.model for part in parts)),
        "names": parts[0].names,
        "log_weight": join(*log_weights) if log_weights else None,
        "failed": tuple(map(sum, zip(*(part.failed for part in parts), strict=True))),
        "parameters": parameters if kept else None,
        "log_density": joined_densities([part.log_density for part in parts]),
    }


def weights(log_weight: np.ndarray | None, model: np.ndarray) -> np.ndarray:
    """Return weights with mean one within each model, shape (n,)."""
    normalised = np.ones(len(model))
    if log_weight is not None:
        for k in range(int(model.max()) + 1):
            mine = model == k
            # The largest weight is taken out first so that the exponential cannot overflow.
            raw = np.exp(log_weight[mine] - log_weight[mine].max())
            normalised[mine] = raw / raw.mean()
    return normalised


def warn_of_few(name: str, count: int, worth: float) -> None:
    """Warn if reweighted draws are worth few of equal weight."""
    if worth < max(_LEAST_EFFECTIVE, _LEAST_PART * count):
        warnings.warn(
            f"{count:,} draws of model {name!r} are worth only {worth:,.0f} of equal weight: few of them lie "
            "where the new prior does, and log K will be about as uncertain as from so few. Simulate more, "
            "from the new prior itself or from one between the two.",
            EffectiveSizeWarning,
            stacklevel=3,
        )


def table_text(sims: Any) -> str:
    """Return what is there as a small table."""
    parts = sims.x if isinstance(sims.x, dict) else {"x": sims.x}
    shapes = ", ".join(f"{key} {array.shape[1:]} {array.dtype}" for key, array in parts.items())
    columns = {"draws": sims.counts, "failed": sims.failed}
    if sims.log_weight is not None:
        columns["effective"] = tuple(round(float(size)) for size in sims.effective_sample_size)
    width = max(len(name) for name in ("model", *sims.names))
    rows = [f"{'model':<{width}}" + "".join(f"{title:>13}" for title in columns)]
    for k, name in enumerate(sims.names):
        rows.append(f"{name:<{width}}" + "".join(f"{column[k]:>13,}" for column in columns.values()))
    return "\n  ".join([f"Simulations: {len(sims):,} draws of {shapes}", *rows])
