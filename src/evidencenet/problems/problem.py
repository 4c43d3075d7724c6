"""`Problem`: models to draw from, and their exact evidence."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evidencenet._common.arrays import Data, index_of
from evidencenet.simulation.model import Model


@dataclass(frozen=True, repr=False)
class Problem:
    """Models to draw data from, together with the exact evidence of any data set.

    Attributes
    ----------
    name
        The name of the problem.
    models
        The K models, in the order of the labels 0..K-1.
    log_evidence
        ``log_evidence(x)`` is log p(x | M_k), exact, natural log, shape (n, K). Where a part of x (times,
        standard errors) has the same distribution in all models, its density can be left out: it cancels.
    augment
        ``augment(rng, x)`` applies a random symmetry to each data set of a batch. A symmetry does not change
        the distribution of x under any model, so it does not change log K. None if the problem has no
        symmetry.

    Examples
    --------
    >>> import numpy as np
    >>> from evidencenet.problems import time_series
    >>> problem = time_series(dim=20)
    >>> x, theta = problem.models[1].draw(np.random.default_rng(0), 5)
    >>> problem.log_bayes_factor(x).shape
    (5,)
    """

    name: str
    models: tuple[Model, ...]
    log_evidence: Callable[[Data], np.ndarray]
    augment: Callable[[np.random.Generator, Data], Data] | None = None

    def __post_init__(self) -> None:
        names = [m.name for m in self.models]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"a problem needs two or more models with distinct names, got {names}")

    def log_bayes_factor(self, x: Data, *, model: int | str = 1, against: int | str = 0) -> np.ndarray:
        """Exact log p(x | model) − log p(x | against), natural log.

        Parameters
        ----------
        x
            A batch of n data sets, as the models draw them.
        model, against
            The two models, each by index or by name.

        Returns
        -------
        log_k
            Shape (n,), float64.
        """
        names = [m.name for m in self.models]
        above, below = index_of(model, names), index_of(against, names)
        log_evidence = self.log_evidence(x)
        return log_evidence[:, above] - log_evidence[:, below]

    def __repr__(self) -> str:
        names = ", ".join(repr(m.name) for m in self.models)
        return f"Problem({self.name!r}, models=({names}), augment={'yes' if self.augment else 'no'})"
