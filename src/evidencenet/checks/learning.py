"""Checks of how an ensemble was trained: whether its members agree, overfit, or were stopped too soon."""

import numpy as np
from numpy.typing import ArrayLike

from evidencenet.checks.check import Check, Verdict, judged
from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import check_log_odds, log_scores, of_pair

# Standard errors of the members' mean, in nats. Ten draws at the ends of the validated range confirm log K to
# 0.3, so less does not matter; one nat is about a grade of Jeffreys' scale.
_SPREAD_WARN, _SPREAD_FAIL = 0.3, 1.0
# Differences of log K or of scores below this many nats are rounding in double precision.
_ROUNDING = 1e-9
# Overfitting: fresh draws score worse by this many standard errors (by chance in one of 700 cases), and by
# this part of what was learned.
_WORSE, _WORSE_PART = 3.0, 0.1
# Another kind of network that is better by so many nats: errors δ of log K cost p(1 − p)δ²/2, so this is an
# error of 0.2 where both models are as probable.
_MOST_BETTER = 5e-3
# A change of the learning curve counts from this part of its whole fall on, and from this many nats on. The
# log score of single draws scatters by about 0.3 nats: of 100,000 held-out draws the mean by a thousandth.
_CHANGE_PART, _CHANGE = 0.02, 1e-3
# Learning curves are judged by their last tenth, and only from this many epochs on.
_LAST_PART, _LEAST_EPOCHS = 0.1, 5


def spread(members: ArrayLike, labels: ArrayLike) -> float:
    """Return how well the mean of an ensemble's members is known, by their spread, in nats.

    Parameters
    ----------
    members
        Log K of each draw against model 0 by each member, shape (members, n, K), two members or more.
    labels
        Model each draw came from, shape (n,).

    Returns
    -------
    error
        The standard error of the mean: its root mean square over the draws in the validated range (over all
        draws if that is empty), for the model where it is largest.
    """
    table, labels = np.asarray(members, dtype=np.float64), np.asarray(labels)
    error, mean = table.std(axis=0, ddof=1) / np.sqrt(len(table)), table.mean(axis=0)
    by_model = []
    for k in range(1, table.shape[2]):
        validated = validated_range(*of_pair(mean, labels, k, 0))
        in_range = np.ones(len(mean), dtype=bool) if validated.empty else validated.contains(mean[:, k])
        by_model.append(float(np.sqrt(np.mean(np.square(error[in_range, k])))))
    return max(by_model)


def excess(
    log_k: ArrayLike, labels: ArrayLike, seen: ArrayLike, seen_labels: ArrayLike
) -> tuple[float, float]:
    """Return by how many nats fresh draws score worse than others, and the standard error of that.

    Parameters
    ----------
    log_k, labels
        Of fresh draws, as for `evidencenet.checks.examine`.
    seen, seen_labels
        The same of the early-stopping draws. Each model counts alike in both scores.
    """
    (fresh, fresh_error), (early, early_error) = _balanced(log_k, labels), _balanced(seen, seen_labels)
    return fresh - early, float(np.hypot(fresh_error, early_error))


def agreement(members: ArrayLike, labels: ArrayLike) -> Check:
    """Check that the members of an ensemble agree, by `spread`.

    Returns
    -------
    Check
        "members": it warns above 0.3 nats, to which ten draws confirm log K at each end of the validated
        range, and fails above 1, about a grade of Jeffreys' scale.
    """
    number = len(np.asarray(members))
    if number < 2:
        finding = "There is only one member, so their spread is not known."
        return Check("members", "warn", finding, "Train several: train(members=4).")
    error = spread(members, labels)
    verdict: Verdict = "fail" if error > _SPREAD_FAIL else "warn" if error > _SPREAD_WARN else "pass"
    finding = f"The mean of {number} members is known to {error:.2g} nats, by their spread in the range."
    if error < _ROUNDING:
        finding = f"All {number} members give the same log K."
    return judged("members", verdict, finding, "Lower alpha, simulate more, or train more members.")


def overfitting(log_k: ArrayLike, labels: ArrayLike, seen: ArrayLike, seen_labels: ArrayLike) -> Check:
    """Compare the score on fresh draws with that on the early-stopping draws, by `excess`.

    Returns
    -------
    Check
        "overfitting": it warns if fresh draws score worse by three errors of the difference, and fails if
        the difference is also more than a tenth of what was learned.
    """
    worse, error = excess(log_k, labels, seen, seen_labels)
    verdict: Verdict = "pass"
    # If log K is the same for all draws, the error is 0 and the difference is rounding.
    if worse > max(_WORSE * error, _ROUNDING):
        models = np.shape(log_k)[1] if np.ndim(log_k) == 2 else 2
        learned = np.log(models) - _balanced(seen, seen_labels)[0]
        verdict = "fail" if worse > _WORSE_PART * max(learned, 0) else "warn"
    how = "as well as" if verdict == "pass" else "worse than"
    finding = (
        f"These draws score {how} the early-stopping ones (difference {worse + 0.0:.4f} ± {error:.4f} nats)."
    )
    return judged("overfitting", verdict, finding, "Simulate more, lower alpha, or take a smaller network.")


def training(scores: ArrayLike, best_epoch: ArrayLike, learned: ArrayLike) -> Check:
    """Look whether the learning curves show that training was too short, or overfitted from the start.

    Parameters
    ----------
    scores
        Held-out score after each epoch, shape (members, 1 + epochs); entry 0 is before training, NaN after a
        member has stopped.
    best_epoch
        The epoch whose weights each member has, shape (members,).
    learned
        Whether each member improved on the baseline (without one: on log K = 0), shape (members,).
    """
    best = np.asarray(best_epoch)[np.asarray(learned, dtype=bool)]
    curves = [curve[~np.isnan(curve)] for curve in np.asarray(scores)[np.asarray(learned, dtype=bool)]]
    if not curves:
        finding = "No member improved on where it started, so log K is the baseline's (without one: 0)."
        return Check("training", "pass", finding)
    falling, rising = np.zeros(len(curves)), np.zeros(len(curves))
    for i, (curve, epoch) in enumerate(zip(curves, best, strict=True)):
        last = len(curve) - 1
        finite = curve[np.isfinite(curve)]
        notable = max(_CHANGE, _CHANGE_PART * (finite.max() - finite.min()))
        fell = curve[last - max(1, round(_LAST_PART * last))] - curve[last]
        rose = curve[last] - curve[epoch]
        falling[i] = fell if epoch == last and fell > notable else 0
        early = last >= _LEAST_EPOCHS and epoch <= max(1, _LAST_PART * last)
        rising[i] = rose if early and rose > notable else 0
    epochs = ", ".join(f"{epoch} of {len(curve) - 1}" for curve, epoch in zip(curves, best, strict=True))
    kept = f"The members are those of epochs {epochs}"
    if np.mean(falling > 0) >= 0.5:
        finding = f"{kept}; their held-out score was still falling, last by {falling.max():.4f} nats."
        return Check("training", "warn", finding, "Train longer: recipe=Recipe(epochs=...).")
    if np.mean(rising > 0) >= 0.5:
        finding = f"{kept}; their held-out score then rose by up to {rising.max():.4f} nats."
        return Check("training", "warn", finding, "Simulate more, lower alpha, or take a smaller network.")
    return Check("training", "pass", f"{kept}.")


def other_kinds(plan: str, gain: float, error: float) -> Check:
    """Check that no other kind of network scores better on the same held-out draws.

    Parameters
    ----------
    plan
        The best plan of another kind, in words.
    gain, error
        By how many nats it scores better than the network, and the standard error of that.

    Returns
    -------
    Check
        "other kinds": it warns if the other kind is better by three errors, and fails if that is more than
        0.005 nats besides: such a network gives log K that is off by 0.2 or so for a typical draw.
    """
    verdict: Verdict = "pass"
    if gain > _WORSE * error:
        verdict = "fail" if gain > _MOST_BETTER else "warn"
    finding = (
        f"The best of another kind, {plan}, scores {'better' if gain > 0 else 'worse'} by {abs(gain):.4f} ± "
        f"{error:.4f} nats."
    )
    return judged("other kinds", verdict, finding, "Leave out network=, or name that kind.")


def _balanced(log_k: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Log score and its error, with equal prior probabilities, and each model counting alike."""
    table, labels = check_log_odds(log_k, labels)
    scores = log_scores(table, labels)
    by_model = [scores[labels == k] for k in range(table.shape[1])]
    means = [part.mean() if len(part) else np.nan for part in by_model]
    errors = [part.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else np.nan for part in by_model]
    return float(np.mean(means)), float(np.sqrt(np.sum(np.square(errors))) / len(by_model))
