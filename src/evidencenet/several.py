"""Several observations: when log Bayes factors add up, and when they do not."""

from typing import Any

import numpy as np

from evidencenet.estimate import Estimate


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
