"""`Partner`: a network of another kind, whose log K is averaged with that of the ensemble.

Networks of different kinds make different mistakes. The search trains the best networks of two or three kinds
on all draws, and throws away all but the best. If the mean of the best two, with a weight that the held-out
draws choose, has a better score than the best alone, the second one is kept too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize_scalar

from evidencenet import losses, networks
from evidencenet._common.arrays import Data
from evidencenet.checks.scores import log_scores
from evidencenet.networks import ensemble
from evidencenet.training.baseline import Baseline
from evidencenet.training.loop import weighted_mean
from evidencenet.training.scaling import Scaling

if TYPE_CHECKING:
    from evidencenet.training.inputs import Inputs
    from evidencenet.training.loop import Trained
    from evidencenet.training.search import Rival

# The largest weight of the partner: it is the worse of the two.
_LARGEST = 0.7
# It is kept if it improves the held-out score by this many nats, and by this many over the number n of
# held-out draws. A weight that is fitted to n draws gains 1/(2n) by chance, and more if the partner is the
# best of several. Two standard errors of the gain would be 8/n: then kinds that are level are hardly ever
# averaged, though their mean often halves the squared error.
_LEAST_GAIN, _LEAST_OF_ALL = 1e-4, 4.0


@dataclass(frozen=True, eq=False)
class Partner:
    """A trained network of another kind, and its weight in the mean.

    Parameters
    ----------
    weight
        Log K is (1 − weight) · that of the ensemble + weight · that of the partner.
    scaling, baseline, loss, architecture, networks, states, gain
        As in `EvidenceNetwork`.
    """

    weight: float
    scaling: Scaling
    baseline: Baseline | None
    loss: losses.Loss
    architecture: networks.Architecture
    networks: Any
    states: Any
    gain: np.ndarray

    @staticmethod
    def fit(inputs: "Inputs", trained: "Trained", rival: "Rival | None") -> "Partner | None":
        """Choose the weight of the rival by the held-out draws; None if the ensemble is better alone.

        Parameters
        ----------
        inputs, trained
            The draws, and the ensemble that was trained on them.
        rival
            The best network of another kind, if there is one.
        """
        if rival is None or isinstance(inputs.plan.loss, losses.Asymmetric):
            return None
        if rival.inputs is None or rival.trained is None:
            return None
        draws = inputs.draws
        rows = draws.held_out_rows
        own = trained.log_odds[:, : len(rows)].mean(axis=0)
        difference = rival.trained.log_odds[:, : len(rows)].mean(axis=0) - own
        label, importance = draws.model[rows], draws.weight[rows].astype(np.float64)

        def costs(weight: float) -> np.ndarray:
            return log_scores(own + weight * difference, label)

        best = minimize_scalar(
            lambda weight: np.average(costs(weight), weights=importance),
            bounds=(0, _LARGEST),
            method="bounded",
        )
        weight = float(best.x)
        gain, _ = weighted_mean(costs(0.0) - costs(weight), importance)
        if gain < max(_LEAST_GAIN, _LEAST_OF_ALL / len(rows)):
            return None
        second = rival.inputs
        return Partner(
            weight,
            second.scaling,
            second.baseline,
            second.plan.loss,
            second.plan.network,
            rival.trained.networks,
            rival.trained.states,
            rival.trained.gain,
        )

    def log_k(self, scaled: Data) -> np.ndarray:
        """Log K of the classes against the first, (n, classes), for data scaled by its own scaling."""
        log_odds = ensemble.log_odds(self.networks, self.states, self.gain, self.loss, scaled).mean(axis=0)
        log_k = log_odds.astype(np.float64)
        return log_k if self.baseline is None else log_k + self.baseline(scaled)

    def joined(self, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Average log K by each member, (members, n, classes), with that by the partner, (n, classes)."""
        mean: np.ndarray = own + self.weight * (other - own)
        return mean
