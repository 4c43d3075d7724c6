"""Learn the error of log K by training on halves of the draws.

The spread of an ensemble misses what its members share: they saw the same draws, and have the same bias. So
networks are trained on each half of the draws as well. Where variances fall as 1/n, the variance of a half is
twice that of all draws, and they share one part of it. So a half differs from all as much as all differ from
the truth. The same holds for a bias that falls as 1/n, since it is twice as large for a half.

Halves do not show what a kind of network can never learn, or has not yet learned. Three other witnesses do,
and the squared errors grow until they agree with all: a network of another kind, trained on all draws
(`Rival`); what a small second network still finds in held-out draws (`SecondLook`); and how much worse the
same kind of network was with fewer draws, in its short trial (`Fewer`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax

from evidencenet._common.processors import processors
from evidencenet._common.progress import Progress
from evidencenet.checks.range import validated_range
from evidencenet.estimator.arguments import Request
from evidencenet.estimator.error import ErrorModel
from evidencenet.estimator.fit import Fit
from evidencenet.estimator.network import EvidenceNetwork
from evidencenet.estimator.second_look import SecondLook, look_again
from evidencenet.training.baseline import Gaussians
from evidencenet.training.inputs import Inputs, prepare
from evidencenet.training.loop import Trained
from evidencenet.training.recipe import MOST_OPERATIONS
from evidencenet.training.search import Fewer, Rival, natural
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer

FitOne = Callable[[Inputs, np.random.Generator], np.ndarray]

# The least numbers of training draws, in all and of each model, that can be halved.
_LEAST, _LEAST_OF_EACH = 64, 4
# At most this part of the difference between halves and all is put down to the halves having one member.
_LARGEST_PART = 0.5
# Standard error of log K if no difference between the models was found, times √n: half of the log K that
# would have been noticed. Log K of 8/√n gain just the two standard errors of the score, of n held-out draws,
# that are asked of networks.
_UNNOTICED = 4.0
# At least this part of the squared errors is left, whatever a partner changes: its own errors are not less.
_LEAST_LEFT = 0.3
# Squared errors grow by this factor at most because of what a short trial lacked.
_LARGEST_GROWTH = 1.5
# Networks whose training takes less arithmetic than this are quick: more halves of them cost little.
_QUICK, _MOST_DIVISIONS = MOST_OPERATIONS / 2, 3
# Bins of log K in which a bias is looked for, and the weight p (1 − p) of the draws that a bin needs: 1/√25
# is the error of a shift.
_BIAS_BINS, _LEAST_BIAS_WEIGHT = 16, 25.0
# If log K varies by less than this, it is the same for all draws.
_ROUNDING = 1e-5


def can_be_halved(draws: Draws) -> bool:
    """Say whether there are enough draws to train on half of them."""
    model = draws.model[draws.training_rows]
    return len(model) >= _LEAST and bool(np.bincount(model).min() >= _LEAST_OF_EACH)


def learn_error_model(
    net: EvidenceNetwork,
    inputs: Inputs,
    trained: Trained,
    trainer: Trainer,
    *,
    rival: Rival | None = None,
    second_look: SecondLook | None = None,
    fewer: Fewer | None = None,
    log_odds: np.ndarray | None = None,
    offset_error: np.ndarray | None = None,
    seed: int,
    progress: bool,
) -> ErrorModel:
    """Learn the error of log K by training on halves of the draws.

    Parameters
    ----------
    net
        The network: its jackknife errors and p-values of the held-out draws are inputs of the error model.
    inputs, trained
        All draws, and the ensemble that was trained on them.
    trainer
        Trains one network on each half.
    rival
        A network of another kind, trained on the same draws.
    second_look
        What a second network still finds in held-out draws.
    fewer
        The same plan with fewer draws.
    log_odds
        Log-odds of the held-out draws by each member with a partner's part, (members, n, K); None if the
        network has no partner.
    offset_error
        Of rare draws: the standard error of the log-odds that held-out draws have because of how they were
        drawn, against model 0, (n, K). With it, a bias of log K that their labels show is in the error.
    seed
        Seed of the halves.
    progress
        Show a bar.
    """
    draws = inputs.draws
    x, model = draws.held_out_draws()
    log_k = draws.held_out_log_k(trained.log_odds)
    # Halves are trained for as many epochs as all draws, and so for half as long. What networks have not yet
    # learned at the end of their training then shows too: halves, trained for as long, would lack the same.
    epochs = trainer.sized(inputs).epochs or 1
    fit_half = partial(trainer.fit_one, epochs=epochs)
    squared = squared_errors(
        inputs, trained, fit_half, divisions=_divisions(trainer, inputs), seed=seed, progress=progress
    )
    costs = draws.weight[draws.held_out_rows] * trained.costs[:, : len(model)].mean(axis=0)
    offset = np.broadcast_to(draws.log_odds, log_k.shape)
    if draws.known is not None:
        offset = offset + draws.known[draws.held_out_rows]
    witnesses = []
    if rival is not None:
        witnesses.append(_of_rival(rival, log_k + offset, costs, offset))
    if second_look is not None:
        shape = np.ones_like(squared) if draws.plain is None else np.maximum(squared, 0.0)
        witnesses.append(Witness(2 * second_look.certain, shape))
    squared = _witnessed(squared, log_k + offset, witnesses)
    if fewer is not None and trained.gain.any():
        squared = squared * _growth(
            fewer, draws.training_draws, costs, _cost_of(squared, softmax(log_k + offset, axis=1))
        )
    if log_odds is not None:
        joined = draws.held_out_log_k(log_odds)
        squared = _joined_errors(squared, log_k + offset, joined - log_k)
        log_k = joined
    if offset_error is not None and draws.group is not None:
        group = draws.group[draws.held_out_rows]
        for k in range(1, len(draws.counts)):
            pair = (model == 0) | (model == k)
            odds = (log_k + offset)[pair]
            squared[pair, k] += shown_bias_square(
                log_k[pair, k], odds[:, k] - odds[:, 0], model[pair] == k, group[pair], offset_error[pair, k]
            )
    # Where no difference was found, there may be one that is too small to be noticed.
    squared[:, np.ptp(log_k, axis=0) < _ROUNDING] = np.square(_UNNOTICED / np.sqrt(len(model)))
    models = range(1, len(draws.counts))
    in_range = np.stack([_in_validated_range(log_k[:, k], model, k) for k in models], axis=1)
    jackknife = np.stack([net.jackknife(x, model=k, against=0) for k in models], axis=1)
    p_values = net.novelty_p_value(x)
    p = np.maximum(p_values[:, 1:], p_values[:, :1])
    return ErrorModel.fit(log_k[:, 1:][in_range], jackknife[in_range], p[in_range], squared[:, 1:][in_range])


def with_learned_error(net: EvidenceNetwork, request: Request, fit: Fit) -> EvidenceNetwork:
    """Learn the error of log K, if that was asked for and there are enough draws."""
    draws = fit.inputs.draws
    if not request.learn_error or not can_be_halved(draws):
        return net
    rival, second_look, fewer = None, None, None
    if fit.search is not None:
        rival, log_k = fit.rival, draws.held_out_log_k(fit.log_odds)
        fewer = fit.search.fewer if draws.stream is None else None
        # Where log K is the baseline's, trials of several kinds on top of it found nothing, on more draws.
        if fit.inputs.baseline is None or fit.trained.gain.any():
            others = natural(draws)
            second_look = look_again(fit.inputs, log_k, others, fit.trainer, seed=request.seeds.error)
    error_model = learn_error_model(
        net,
        fit.inputs,
        fit.trained,
        fit.trainer,
        rival=rival,
        second_look=second_look,
        fewer=fewer,
        log_odds=None if fit.partner is None else fit.log_odds,
        seed=request.seeds.error,
        progress=request.progress,
    )
    return replace(net, errors=error_model)


def squared_errors(
    inputs: Inputs, trained: Trained, fit_one: FitOne, *, divisions: int = 1, seed: int, progress: bool
) -> np.ndarray:
    """Estimate squared errors of log K against model 0 for the held-out draws, (n, K).

    Single ones are rough, and may be negative. `fit_one` trains one network with seeds from a generator, and
    returns log K of the held-out draws, (n, K). The draws are halved in so many `divisions`. The other
    parameters are those of `learn_error_model`.
    """
    draws = inputs.draws
    n, members = len(draws.held_out_rows), len(trained.gain)
    if inputs.baseline is not None and not trained.gain.any():
        return _squared_errors_of_baseline(inputs) + _undetected_square(trained, n)
    differences, baseline_differences = _differences_of_halves(
        inputs, trained, fit_one, divisions, seed, progress
    )
    uncorrected = _uncorrected_part(differences[..., 1:], baseline_differences[..., 1:])
    squared: np.ndarray = np.mean(np.square(differences - uncorrected * baseline_differences), axis=0)
    if members > 1:
        # A half has one network. The mean of several scatters less. The mean's own scatter is counted twice,
        # to be on the safe side: networks on a half scatter more than those on all draws. If only some
        # members have learned, they differ by more than chance, and by more than halves do.
        scatter = (1 - 1 / members) * trained.log_odds[:, :n].var(axis=0, ddof=1)
        usual, chance = np.median(squared[:, 1:]), np.median(scatter[:, 1:])
        squared -= scatter * (min(1.0, _LARGEST_PART * usual / chance) if chance > 0 else 1.0)
    if uncorrected == 0:
        return squared
    return squared + uncorrected**2 * _squared_errors_of_baseline(inputs)


class Witness(NamedTuple):
    """What the errors of log-odds cost at least, and where.

    Errors e of log-odds cost half of their variance over the models, V(e), in nats: models are drawn with
    their posterior probabilities. `variance` is a mean of V(e) over the draws, and `shape` is in proportion
    to the squared errors that are missing, (n, K).
    """

    variance: float
    shape: np.ndarray


def _of_rival(rival: Rival, log_odds: np.ndarray, costs: np.ndarray, share_odds: np.ndarray) -> Witness:
    """Return what a network of another kind says of the errors of ours.

    If the errors of two networks A and B are independent, V of their difference is V(e_A) + V(e_B) on
    average, and B scores worse by half of V(e_B) − V(e_A). So V(e_A) is half of V of the difference, less
    what B scores worse.
    """
    p = softmax(log_odds, axis=1)
    difference = rival.log_k + share_odds - log_odds
    mean = np.sum(p * difference, axis=1, keepdims=True)
    variance = float(np.mean(np.sum(p * np.square(difference - mean), axis=1)))
    worse = float(np.mean(rival.costs - costs))
    return Witness(float(np.clip(variance / 2 - worse, 0.0, variance)), np.square(difference))


def _growth(fewer: Fewer, draws: int, costs: np.ndarray, cost: float) -> float:
    """Return by which factor squared errors grow because of what the same plan lacked with fewer draws.

    If the score that is missing falls as one over the draws, it follows from how much worse the short trial
    was. On 13 of 14 problems it was found so, within a factor of three, and on one nine times too large
    (docs/decisions.md, "Short trials as witnesses"). So errors do not grow by much.

    Parameters
    ----------
    fewer
        The short trial.
    draws
        How many draws the networks were trained on.
    costs
        Their −log p(true model) of each held-out draw, (n,).
    cost
        What the squared errors cost, twice the nats that are missing by them.
    """
    gained = fewer.costs - costs
    certain = max(float(np.mean(gained) - np.std(gained) / np.sqrt(len(gained))), 0.0)
    missing = certain * fewer.draws / (draws - fewer.draws)
    return float(np.clip(2 * missing / cost, 1.0, _LARGEST_GROWTH)) if cost > 0 else 1.0


def _witnessed(squared: np.ndarray, log_odds: np.ndarray, witnesses: Sequence[Witness]) -> np.ndarray:
    """Let squared errors grow until they cost as much as each witness says."""
    p = softmax(log_odds, axis=1)
    for witness in witnesses:
        missing, cost = witness.variance - _cost_of(squared, p), _cost_of(witness.shape, p)
        if missing > 0 and cost > 0:
            squared = squared + witness.shape * (missing / cost)
    return squared


def _joined_errors(squared: np.ndarray, log_odds: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Squared errors of the mean with a partner, given those of the ensemble alone, (n, K).

    The weight of the partner is that of the best score. There the error that is left is independent of the
    change that the partner makes, so the square of the change is what squared errors lose, on average.
    """
    p = softmax(log_odds, axis=1)
    before = _cost_of(squared, p)
    if before <= 0:
        return squared
    return squared * max(1 - _cost_of(np.square(change), p) / before, _LEAST_LEFT)


def _cost_of(square: np.ndarray, p: np.ndarray) -> float:
    """Mean over draws of V of errors with these squares, taken as independent between the models."""
    return float(np.mean(np.sum((p * (1 - p) * square)[:, 1:], axis=1)))


def shown_bias_square(
    log_k: np.ndarray, log_odds: np.ndarray, label: np.ndarray, group: np.ndarray, offset_error: np.ndarray
) -> np.ndarray:
    """Return the square of the bias of log K that labels of rare draws show, in bins of log K, (n,).

    In a bin the labels and their probabilities differ by a shift of log K, and by the error of the offset,
    which is stated apart. Only what is larger than both of their errors counts.

    Parameters
    ----------
    log_k, log_odds
        Of each draw; the log-odds are log K and what is known of how it was drawn, (n,).
    label
        Whether each draw is of the second model, (n,).
    group
        Draws of different groups are independent, (n,).
    offset_error
        The standard error of log-odds − log K, (n,).
    """
    edges = np.unique(np.quantile(log_k, np.linspace(0, 1, _BIAS_BINS + 1)[1:-1]))
    place = np.searchsorted(edges, log_k)
    p = expit(log_odds)
    groups = np.unique(group)
    result = np.zeros(len(log_k))
    for number in range(len(edges) + 1):
        rows = place == number
        own = rows & (group == groups[:, None])
        excess, weight = own @ (label - p), own @ (p * (1 - p))
        total = weight.sum()
        if total < _LEAST_BIAS_WEIGHT:
            continue
        shift = excess.sum() / total
        # The scatter of the groups about the common shift.
        variance = np.sum(np.square(excess - shift * weight)) / total**2
        variance += float(np.mean(np.square(offset_error[rows])))
        result[rows] = max(shift**2 - 2 * variance, 0.0)
    return result


def _divisions(trainer: Trainer, inputs: Inputs) -> int:
    """Return in how many ways the draws are halved.

    What two halves miss is much alike on all draws, and so a single throw: several ways average over it.
    Draws of a stream, and groups of rare draws, are divided in one way.
    """
    if inputs.draws.stream is not None or inputs.draws.group is not None:
        return 1
    return int(np.clip(_QUICK / max(trainer.operations(inputs), 1.0), 1, _MOST_DIVISIONS))


def _differences_of_halves(
    inputs: Inputs, trained: Trained, fit_one: FitOne, divisions: int, seed: int, progress: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Train on each half; return log K minus that of all draws, and the same of the baseline.

    Both are of the shape (2 · divisions, n, K).
    """
    draws = inputs.draws
    x = draws.held_out_draws()[0]
    log_k = draws.held_out_log_k(trained.log_odds)
    baseline = np.zeros_like(log_k) if inputs.baseline is None else inputs.baseline(inputs.scaling(x))

    def train_half(number: int, half: Draws) -> tuple[np.ndarray, np.ndarray]:
        half_inputs = prepare(half, inputs.plan)
        half_baseline = np.zeros_like(log_k)
        if half_inputs.baseline is not None:
            half_baseline = half_inputs.baseline(half_inputs.scaling(x)) - baseline
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
        return fit_one(half_inputs, rng) - log_k, half_baseline

    halves = [half for division in range(divisions) for half in draws.halves(seed + division)]
    results = []
    with (
        Progress("learning the error", len(halves), enabled=progress) as bar,
        ThreadPoolExecutor(processors()) as pool,
    ):
        for result in pool.map(train_half, range(len(halves)), halves):
            results.append(result)
            bar.update(len(results))
    differences, baseline_differences = (np.stack(each) for each in zip(*results, strict=True))
    return differences, baseline_differences


def _squared_errors_of_baseline(inputs: Inputs) -> np.ndarray:
    """Estimate squared errors of the baseline, (n, K).

    Only the scatter between halves counts. Halves find fewer directions in which the models differ, which is
    a bias that does not fall as 1/n. If they find no direction at all, the jackknife decides.
    """
    assert inputs.baseline is not None
    assert inputs.moments is not None
    scaled = inputs.scaling(inputs.draws.held_out_draws()[0])
    squares = [
        np.square(Gaussians.fit(first)(scaled) - Gaussians.fit(second)(scaled)) / 4
        for first, second in inputs.moments.halves()
    ]
    scatter = np.mean(squares, axis=0)
    models = range(scatter.shape[1])
    jackknife = np.stack([inputs.baseline.variance(scaled, k, 0) for k in models], axis=1)
    return max(scatter, jackknife, key=np.mean)


def _undetected_square(trained: Trained, n: int) -> float:
    """Return the mean square of what the baseline may miss: too little for networks to prove it.

    The networks gained a score that may be chance, and were not taken. The part that is more than chance
    counts: an error δ of log K costs p (1 − p) δ²/2 on average, and its variance from draw to draw is twice
    that.
    """
    scores = trained.history.score
    gained = float(np.mean(scores[:, 0] - np.nanmin(scores, axis=1)))
    beyond_chance = max(gained - np.sqrt(2 * gained / n), 0.0)
    p = softmax(trained.log_odds[0, :n], axis=1)[:, 1:]
    return 2 * beyond_chance / max(float(np.mean(np.sum(p * (1 - p), axis=1))), 1e-6)


def _uncorrected_part(differences: np.ndarray, baseline_differences: np.ndarray) -> float:
    """Say which part of the baseline's errors the networks leave uncorrected, from 0 to 1."""
    size = np.median(np.abs(baseline_differences))
    if size == 0:
        return 0.0
    return float(np.clip(np.median(differences * np.sign(baseline_differences)) / size, 0, 1))


def _in_validated_range(log_k: np.ndarray, model: np.ndarray, k: int) -> np.ndarray:
    """Say which log K against model 0 lie in the validated range; all, if that is empty."""
    pair = (model == 0) | (model == k)
    inside = validated_range(log_k[pair], model[pair] == k).contains(log_k)
    return inside if inside.any() else np.ones_like(inside)
