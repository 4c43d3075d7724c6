"""What a network is asked about: observations and prior probabilities, checked."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evidencenet.data import Data, as_data, finite_rows, layout, layout_text, map_arrays, with_draws


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
