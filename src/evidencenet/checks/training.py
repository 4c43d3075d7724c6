"""Checks of how an ensemble was trained: whether its members agree, overfit, or were stopped too soon."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from evidencenet.checks.check import Check, Verdict, judged
from evidencenet.checks.range import validated_range
from evidencenet.checks.scores import check_log_odds

# Standard errors of the members' mean, in nats. Ten draws at the ends of the range confirm log K to 0.3, so
# less does not matter; one nat is about a grade of Jeffreys' scale.
_SPREAD_WARN, _SPREAD_FAIL = 0.3, 1.0
_ROUNDING = 1e-9
# A score of fresh draws that is worse by so many errors, and by so much of the gain, is overfitting.
_WORSE, _WORSE_PART = 3.0, 0.1
# What counts as a change of the learning curve: so much of all that was learned, and so many nats.
_CHANGE_PART, _CHANGE = 0.02, 1e-3


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
        The standard error of the mean, root mean square over the draws in the range that they vouch for (over
        all, if that is empty), of the model where it is largest.
    """
    table, labels = np.asarray(members, dtype=np.float64), np.asarray(labels)
    error, mean = table.std(axis=0, ddof=1) / np.sqrt(len(table)), table.mean(axis=0)
    typical = []
    for k in range(1, table.shape[2]):
        pair = np.isin(labels, (0, k))
        held = validated_range(mean[pair, k], labels[pair] == k)
        inside = np.ones(len(mean), dtype=bool) if held.empty else held.contains(mean[:, k])
        typical.append(float(np.sqrt(np.mean(np.square(error[inside, k])))))
    return max(typical)


def excess(
    log_k: ArrayLike, labels: ArrayLike, seen: ArrayLike, seen_labels: ArrayLike
) -> tuple[float, float]:
    """Return by how many nats fresh draws score worse than others, and the standard error of that.

    Parameters
    ----------
    log_k, labels
        Of fresh draws, as for `evidencenet.checks.examine`.
    seen, seen_labels
        The same of the draws by which training was stopped. Each model counts alike in both scores.
    """
    (fresh, fresh_error), (kept, kept_error) = _balanced(log_k, labels), _balanced(seen, seen_labels)
    return fresh - kept, float(np.hypot(fresh_error, kept_error))


def agreement(members: ArrayLike, labels: ArrayLike) -> Check:
    """Check that the members of an ensemble agree, by `spread`.

    Returns
    -------
    Check
        "members": it warns above 0.3 nats, to which ten draws confirm each end of the range, and fails above
        1, about a grade of Jeffreys' scale.
    """
    number = len(np.asarray(members))
    if number < 2:
        finding = "There is one, so no spread is known."
        return Check("members", "warn", finding, "Train several: train(members=4).")
    typical = spread(members, labels)
    verdict: Verdict = "fail" if typical > _SPREAD_FAIL else "warn" if typical > _SPREAD_WARN else "pass"
    finding = f"The mean of {number} is known to {typical:.2g} nats, by their spread within the range."
    if typical < _ROUNDING:
        finding = f"All {number} give the same log K."
    return judged("members", verdict, finding, "Lower alpha, simulate more, or train more members.")


def overfitting(log_k: ArrayLike, labels: ArrayLike, seen: ArrayLike, seen_labels: ArrayLike) -> Check:
    """Compare the score on fresh draws with that on the draws by which training was stopped, by `excess`.

    Returns
    -------
    Check
        "overfitting": it warns if fresh draws score worse by three errors of the difference, and fails if
        that is more than a tenth of what was learned besides.
    """
    worse, error = excess(log_k, labels, seen, seen_labels)
    verdict: Verdict = "pass"
    # More than rounding: equal log K of all draws have no error at all.
    if worse > max(_WORSE * error, 1e-9):
        models = np.shape(log_k)[1] if np.ndim(log_k) == 2 else 2
        learned = np.log(models) - _balanced(seen, seen_labels)[0]
        verdict = "fail" if worse > _WORSE_PART * max(learned, 0) else "warn"
    how = "worse" if worse > 0 else "better"
    finding = (
        f"Fresh draws score {how} by {abs(worse):.4f} ± {error:.4f} nats than those training was stopped by."
    )
    return judged("overfitting", verdict, finding, "Simulate more, lower alpha, or take a smaller network.")


def training(scores: ArrayLike, best_epoch: ArrayLike, learned: ArrayLike) -> Check:
    """Look at the learning curves for training that was cut short, or overfitted from the start.

    Parameters
    ----------
    scores
        Held-out score after each epoch, shape (members, 1 + epochs); entry 0 is before training, NaN after a
        member has stopped.
    best_epoch
        The epoch that each member was kept after, shape (members,).
    learned
        Whether each member improved on what it started from, shape (members,).
    """
    best = np.asarray(best_epoch)[np.asarray(learned, dtype=bool)]
    curves = [curve[~np.isnan(curve)] for curve in np.asarray(scores)[np.asarray(learned, dtype=bool)]]
    if not curves:
        return Check("training", "pass", "No member improved on what it started from, so that is log K.")
    falling, rising = np.zeros(len(curves)), np.zeros(len(curves))
    for i, (curve, epoch) in enumerate(zip(curves, best, strict=True)):
        last = len(curve) - 1
        finite = curve[np.isfinite(curve)]
        notable = max(_CHANGE, _CHANGE_PART * (finite.max() - finite.min()))
        fell = curve[last - max(1, round(0.1 * last))] - curve[last]
        rose = curve[last] - curve[epoch]
        falling[i] = fell if epoch == last and fell > notable else 0
        rising[i] = rose if last >= 5 and epoch <= max(1, 0.1 * last) and rose > notable else 0
    epochs = ", ".join(f"{epoch} of {len(curve) - 1}" for curve, epoch in zip(curves, best, strict=True))
    kept = f"Members were kept after epochs {epochs}"
    if np.mean(falling > 0) >= 0.5:
        finding = f"{kept}; their held-out score still fell, last by {falling.max():.4f} nats."
        return Check("training", "warn", finding, "Train longer: recipe=Recipe(epochs=...).")
    if np.mean(rising > 0) >= 0.5:
        finding = f"{kept}; their held-out score then rose by up to {rising.max():.4f} nats."
        return Check("training", "warn", finding, "Simulate more, lower alpha, or take a smaller network.")
    return Check("training", "pass", f"{kept}.")


def _balanced(log_k: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Log score with equal prior probabilities and each model counting alike, and its error."""
    table, labels = check_log_odds(log_k, labels)
    cost = -log_softmax(table, axis=1)[np.arange(len(labels)), labels]
    parts = [cost[labels == k] for k in range(table.shape[1])]
    means = [part.mean() if len(part) else np.nan for part in parts]
    errors = [part.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else np.nan for part in parts]
    return float(np.mean(means)), float(np.sqrt(np.sum(np.square(errors))) / len(parts))
