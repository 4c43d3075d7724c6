"""`choose_alpha`: the power of the l-POP loss, by the paper's rules and the held-out score."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_softmax

from evidencenet import losses, networks
from evidencenet._common.display import frame
from evidencenet._common.progress import Progress
from evidencenet.checks.training import excess, spread
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.train import train
from evidencenet.estimator.validate import validate
from evidencenet.simulation.dataset import Simulations
from evidencenet.training.recipe import Recipe
from evidencenet.training.split import Augment

if TYPE_CHECKING:
    import pandas

# The default of the paper, which keeps large log K accurate; of equals, the one nearest to it is taken.
_USUAL = 2.0
_JUDGES = 25_000
_JUDGING_PART = 0.25


@dataclass(frozen=True)
class AlphaTrial:
    """What became of one alpha.

    Attributes
    ----------
    alpha
        The power.
    score, error
        Log score of log K on draws not used in training, in nats, lower is better, and its standard error.
    spread
        How well the mean of the members is known, by their spread, in nats.
    coverage
        P-value of the blind coverage test, the lowest of the models.
    overfit, overfit_error
        By how many nats those draws score worse than the ones training was stopped by, and its error.
    sound
        Whether coverage did not fail, members agree, and nothing overfits.
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
        The one to take.
    table
        What became of each, from the lowest alpha to the highest.
    draws
        How many draws each was trained on.
    """

    alpha: float
    table: tuple[AlphaTrial, ...]
    draws: int

    def __str__(self) -> str:
        lines = [
            f"alpha = {self.alpha:g}, trained on {self.draws:,} draws each; in nats, lower is better",
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
            lines.append("None is sound: simulate more, or try another network.")
        return "\n".join(lines)

    __repr__ = __str__

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row an alpha: its score, coverage and so on, and whether it was taken."""
        return frame([{**asdict(trial), "taken": trial.alpha == self.alpha} for trial in self.table], "alpha")


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
    """Try several powers alpha of a loss on some of the draws, and say which to take.

    The rule. Jeffrey & Wandelt (2023) lower alpha from its default, 2, where members disagree, where networks
    overfit, or where the coverage test fails, since the losses of different alpha cannot be compared. So an
    alpha is sound if none of these checks of `validate` complains (coverage fails; members or overfitting
    warn). The log score of log K itself, on draws not used in training, can be compared: of the sound ones
    (of all, if none is) the best score wins. Those that are worse by no more than one standard error of the
    paired difference are as good; of these the one nearest to 2 is taken, the lower one of two.

    Parameters
    ----------
    sims
        Draws of two models or more.
    alphas
        The powers to try.
    loss
        Makes the loss: ``loss(alpha=...)``. `losses.LPopExponential`, or any other with such an argument.
    network, members, recipe, baseline, augment, seed
        As for `train`; by default ten epochs.
    draws
        Train on so many at most. A quarter of `sims`, or 25,000, are kept to judge by.
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
        raise TypeError(
            f"choose_alpha takes Simulations, got a {type(sims).__name__}; make some with simulate."
        )
    powers = sorted({float(alpha) for alpha in alphas})
    if not powers:
        raise ValueError("alphas is empty; wanted at least one power, such as (1.0, 2.0).")
    if members < 2:
        raise ValueError(f"members = {members}; wanted two or more, since their disagreement is judged.")
    judges, rest = sims.split(min(_JUDGING_PART, _JUDGES / len(sims)), seed=seed)
    part = rest if len(rest) <= draws else rest.split(draws / len(rest), seed=seed)[0]
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
            net = train(part, loss=loss(alpha=alpha), learn_error=False, seed=seed, progress=False, **options)
            trial, costs[alpha] = _judged(alpha, net, judges)
            trials.append(trial)
            bar.update(len(trials), alpha=f"{alpha:g}")
    return AlphaChoice(_taken(trials, costs), tuple(trials), len(part))


def _judged(alpha: float, net: EvidenceNetwork, judges: Simulations) -> tuple[AlphaTrial, np.ndarray]:
    """Judge a network by draws not used in training; also return −log p(true model|x) of each."""
    check = validate(net, judges)
    verdict = {one.name: one.verdict for one in check.checks}
    # Of draws that did not fail.
    valid = net.log_valid - net.log_valid[0]
    held = net.held_out
    trial = AlphaTrial(
        alpha,
        check.score.value,
        check.score.error,
        spread(net.table(judges.x) - valid, judges.model),
        check.coverage.p_value,
        *excess(check.log_k, check.label, held.log_k - valid, held.label),
        verdict["coverage"] != "fail" and verdict["members"] == verdict["overfitting"] == "pass",
    )
    shares = np.log(np.bincount(check.label) / len(check.label))
    cost = -log_softmax(check.log_k + shares, axis=1)[np.arange(len(check.label)), check.label]
    return trial, cost


def _taken(trials: Sequence[AlphaTrial], costs: dict[float, np.ndarray]) -> float:
    """Apply the rule."""
    running = [trial for trial in trials if trial.sound] or list(trials)
    best = min(running, key=lambda trial: trial.score)
    equals = []
    for trial in running:
        worse = costs[trial.alpha] - costs[best.alpha]
        if worse.mean() <= worse.std() / np.sqrt(len(worse)):
            equals.append(trial.alpha)
    return min(equals, key=lambda alpha: (abs(alpha - _USUAL), alpha))
