"""`choose_alpha`: which power alpha the l-POP loss should have, by the paper's rules and the log score."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evidencenet import losses, networks
from evidencenet._common.arrays import kind_of
from evidencenet._common.display import frame
from evidencenet._common.progress import Progress
from evidencenet.checks.learning import excess, spread
from evidencenet.checks.scores import log_scores
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.train import train
from evidencenet.estimator.validate import validate
from evidencenet.simulation.dataset import Simulations
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment

if TYPE_CHECKING:
    import pandas

# The paper's default, which keeps large log K accurate. If several alphas are equally good, the one nearest
# to this is chosen.
_PAPER_ALPHA = 2.0
# Draws set aside to compare the alphas. With 25,000 the log score is known to 0.003 nats (its standard
# deviation is 0.42 nats a draw in the README's example); a quarter leaves enough draws to train on.
_MOST_JUDGING, _JUDGING_PART = 25_000, 0.25


@dataclass(frozen=True)
class AlphaTrial:
    """How one alpha did.

    Attributes
    ----------
    alpha
        The power.
    score, error
        Log score of log K on fresh draws, in nats (lower is better), and its standard error.
    spread
        Standard error of the mean over members, from their spread, in nats.
    coverage
        P-value of the blind coverage test, the lowest of all models.
    overfit, overfit_error
        By how many nats fresh draws score worse than the held-out draws, and its error.
    sound
        Whether the coverage test did not fail, the members agree, and nothing overfits.
    """

    alpha: float
    score: float
    error: float
    spread: float
    coverage: float
    overfit: float
    overfit_error: float
    sound: bool


@dataclass(frozen=True)
class AlphaChoice:
    """Result of `choose_alpha`; print it.

    Attributes
    ----------
    alpha
        The alpha to use.
    table
        How each alpha did, from the lowest to the highest.
    draws
        How many draws each was trained on.
    """

    alpha: float
    table: tuple[AlphaTrial, ...]
    draws: int

    def __str__(self) -> str:
        lines = [
            f"alpha = {self.alpha:g}, each trained on {self.draws:,} draws; score in nats, lower is better",
            f"{'alpha':>8}{'score':>19}{'spread':>9}{'coverage p':>12}{'overfit':>19}  sound",
        ]
        for trial in self.table:
            mark = "*" if trial.alpha == self.alpha else " "
            lines.append(
                f"{mark}{trial.alpha:>7g}{f'{trial.score:.4f} ± {trial.error:.4f}':>19}{trial.spread:>9.3f}"
                f"{trial.coverage:>12.3g}{f'{trial.overfit:.4f} ± {trial.overfit_error:.4f}':>19}  "
                f"{'yes' if trial.sound else 'no'}"
            )
        if not any(trial.sound for trial in self.table):
            lines.append("No alpha is sound: simulate more, or try another network.")
        return "\n".join(lines)

    __repr__ = __str__

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row for each alpha: its score, coverage and so on, and whether it was chosen."""
        return frame(
            [{**asdict(trial), "chosen": trial.alpha == self.alpha} for trial in self.table], "alpha"
        )


def choose_alpha(
    sims: Simulations,
    *,
    alphas: Sequence[float] = (1.0, 1.5, 2.0, 3.0),
    loss: Callable[..., losses.Loss] = losses.LPopExponential,
    network: networks.Architecture | None = None,
    members: int = 3,
    recipe: Recipe | None = None,
    baseline: bool = False,
    augment: Augment | None = None,
    draws: int = 50_000,
    seed: int = 0,
    progress: bool = True,
) -> AlphaChoice:
    """Try several powers alpha of a loss on some of the draws, and choose one.

    The losses of different alpha cannot be compared. So Jeffrey & Wandelt (2023) start from alpha = 2 and
    lower it if members disagree, if networks overfit, or if the coverage test fails. Here an alpha is called
    sound if `validate` finds none of this: coverage does not fail, and the checks of members and of
    overfitting pass. The log score of log K on fresh draws can be compared. The sound alpha with the best
    score wins (the best of all, if none is sound). Every alpha whose score is worse by no more than one
    standard error of the paired difference counts as equally good. Of these, the one nearest to 2 is chosen,
    and the lower one if two are equally near.

    Parameters
    ----------
    sims
        Draws of two models or more.
    alphas
        The powers to try.
    loss
        The loss, called as ``loss(alpha=...)``: `losses.LPopExponential`, or any other with this argument.
    network, members, recipe, baseline, augment, seed
        As for `train`; by default ten epochs.
    draws
        Train on this many at most. A quarter of `sims`, at most 25,000, is set aside to compare the alphas.
    progress
        Show a bar on standard error.

    Returns
    -------
    AlphaChoice
        Print it; `alpha` is the choice.

    Examples
    --------
    >>> chosen = choose_alpha(sims)  # doctest: +SKIP
    >>> net = train(sims, loss=losses.LPopExponential(alpha=chosen.alpha))  # doctest: +SKIP
    """
    if not isinstance(sims, Simulations):
        raise TypeError(f"choose_alpha takes Simulations, got {kind_of(sims)}. Make them with simulate.")
    powers = sorted({float(alpha) for alpha in alphas})
    if not powers:
        raise ValueError("alphas is empty; wanted at least one power, such as (1.0, 2.0).")
    if members < 2:
        raise ValueError(f"members = {members}; wanted two or more, to see whether they disagree.")
    judging, rest = sims.split(min(_JUDGING_PART, _MOST_JUDGING / len(sims)), seed=seed)
    training = rest if len(rest) <= draws else rest.split(draws / len(rest), seed=seed)[0]
    options: dict[str, Any] = {
        "network": network,
        "members": members,
        "recipe": recipe or Recipe(epochs=10),
        "baseline": baseline,
        "augment": augment,
    }
    trials: list[AlphaTrial] = []
    costs: dict[float, np.ndarray] = {}
    with Progress("choosing alpha", len(powers), enabled=progress) as bar:
        for alpha in powers:
            net = train(
                training, loss=loss(alpha=alpha), learn_error=False, seed=seed, progress=False, **options
            )
            trial, costs[alpha] = _judged(alpha, net, judging)
            trials.append(trial)
            bar.update(len(trials), alpha=f"{alpha:g}")
    return AlphaChoice(_best(trials, costs), tuple(trials), len(training))


def _judged(alpha: float, net: EvidenceNetwork, judging: Simulations) -> tuple[AlphaTrial, np.ndarray]:
    """Judge a network by fresh draws; also return −log p(true model|x) of each draw, (n,)."""
    validation = validate(net, judging)
    verdict = {check.name: check.verdict for check in validation.checks}
    # The scores are of draws that did not fail, so log K must be without the valid fractions.
    valid = net.log_valid - net.log_valid[0]
    held_out = net.held_out
    trial = AlphaTrial(
        alpha,
        validation.score.value,
        validation.score.error,
        spread(net.table(judging.x) - valid, judging.model),
        validation.coverage.p_value,
        *excess(validation.log_k, validation.label, held_out.log_k - valid, held_out.label),
        verdict["coverage"] != "fail" and verdict["members"] == verdict["overfitting"] == "pass",
    )
    label = validation.label
    log_shares = np.log(np.bincount(label) / len(label))
    cost = log_scores(validation.log_k + log_shares, label)
    return trial, cost


def _best(trials: Sequence[AlphaTrial], costs: dict[float, np.ndarray]) -> float:
    """Apply the rule that `choose_alpha` describes."""
    candidates = [trial for trial in trials if trial.sound] or list(trials)
    best = min(candidates, key=lambda trial: trial.score)
    equally_good = []
    for trial in candidates:
        worse = costs[trial.alpha] - costs[best.alpha]
        if worse.mean() <= worse.std() / np.sqrt(len(worse)):
            equally_good.append(trial.alpha)
    return min(equally_good, key=lambda alpha: (abs(alpha - _PAPER_ALPHA), alpha))
