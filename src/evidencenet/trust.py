"""How far to trust log Bayes factors: their score, the range held-out draws vouch for, and moment checks."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc, expit, log_softmax, logsumexp

from evidencenet.coverage import check_log_k

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Mean log score in nats, smaller is better, and its gain over knowing nothing.

    Attributes
    ----------
    value, error
        Mean of −log p(true model|x) over the draws, and its standard error.
    nothing
        The score of knowing nothing but the models' proportions: their entropy.
    gain, gain_error
        `nothing` − `value`, and its standard error from the paired differences. For exact odds the expected
        gain is the mutual information of data and model, and no other odds gain more.
    n
        Number of draws.
    """

    value: float
    error: float
    nothing: float
    gain: float
    gain_error: float
    n: int

    @property
    def informative(self) -> bool:
        """Whether the gain is more than three of its standard errors."""
        return self.gain > 3 * self.gain_error

    def __str__(self) -> str:
        return (
            f"Log score {self.value:.4f} ± {self.error:.4f} nats; gain over knowing nothing "
            f"({self.nothing:.4f}): {self.gain:.4f} ± {self.gain_error:.4f} nats ({self.n:,} draws)."
        )


def score(log_odds: ArrayLike, labels: ArrayLike) -> Score:
    """Score log posterior odds on draws whose model is known.

    This sees what coverage cannot: odds that are calibrated but say little.

    Parameters
    ----------
    log_odds
        Log posterior odds of each model against model 0, shape (n, K) with zeros in the first column, or
        (n,) for model 1 against model 0. They include the prior odds, which should be those of the draws:
        for two models add log(n1/n0) to log K.
    labels
        Model each draw came from, 0 to K − 1, shape (n,).

    Returns
    -------
    Score
        Mean score and gain with standard errors, the number of draws of each model being given.

    Examples
    --------
    >>> score([0.0, 0.0, 0.0, 0.0], [0, 1, 0, 1]).gain
    0.0
    """
    log_odds, labels = check_log_odds(log_odds, labels)
    n, models = log_odds.shape
    loss = -log_softmax(log_odds, axis=1)[np.arange(n), labels]
    ignorant = -np.log(np.bincount(labels, minlength=models)[labels] / n)
    gain = ignorant - loss
    return Score(
        value=float(loss.mean()),
        error=error_of_mean(loss, labels),
        nothing=float(ignorant.mean()),
        gain=float(gain.mean()),
        gain_error=error_of_mean(gain, labels),
        n=n,
    )


def check_log_odds(log_odds: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """Return log-odds (n, K) against model 0 and labels (n,) as arrays, or say what is wrong with them."""
    log_odds, labels = np.asarray(log_odds, dtype=np.float64), np.asarray(labels)
    if log_odds.ndim == 1:
        log_odds = np.stack([np.zeros_like(log_odds), log_odds], axis=1)
    if log_odds.ndim != 2 or labels.shape != log_odds.shape[:1] or log_odds.shape[1] < 2:
        raise ValueError(
            "log_odds must have shape (n,) or (n, models) with two models or more, and labels (n,), "
            f"got {log_odds.shape} and {labels.shape}."
        )
    models = log_odds.shape[1]
    if len(log_odds) == 0:
        raise ValueError("log_odds and labels are empty; pass held-out draws.")
    if not np.isfinite(log_odds).all():
        raise ValueError(
            f"log_odds must be finite, got {np.sum(~np.isfinite(log_odds))} NaN or infinite values."
        )
    if not np.isin(labels, np.arange(models)).all():
        raise ValueError(f"labels must be whole numbers from 0 to {models - 1}, got {np.unique(labels)[:5]}.")
    return log_odds, labels.astype(np.int64)


@dataclass(frozen=True)
class Range:
    """The natural-log Bayes factors from `low` to `high` that held-out draws can vouch for.

    If `empty` is True they vouch for none, and `low` and `high` are 0. `n` is the number of draws of each
    model, `least` how many of each lie at or beyond each end. Infinite ends are those of known densities.
    """

    low: float
    high: float
    n: tuple[int, int]
    least: int
    empty: bool

    def contains(self, log_k: ArrayLike) -> NDArray[np.bool_]:
        """Say of each log K, any shape, whether it lies in the range."""
        log_k = np.asarray(log_k, dtype=np.float64)
        return np.asarray((log_k >= self.low) & (log_k <= self.high) & (not self.empty))

    def confirmed(self, log_k: float) -> float:
        """Return what is confirmed of a log K: itself, the end it lies beyond, or NaN if `empty`."""
        return float("nan") if self.empty else min(max(log_k, self.low), self.high)

    @property
    def unlimited(self) -> bool:
        """Whether it holds log K of any size, since a density is known."""
        return bool(np.isinf(self.low) and np.isinf(self.high))

    def reversed(self) -> "Range":
        """Return the same range for the inverse Bayes factor."""
        # 0.0 − x, because −0.0 would be printed as such.
        return replace(self, low=0.0 - self.high, high=0.0 - self.low, n=self.n[::-1])

    def __str__(self) -> str:
        draws = f"{self.n[0]:,} + {self.n[1]:,} held-out draws"
        if self.unlimited:
            return "Natural log K of any size is vouched for, by known densities."
        if self.empty:
            return f"No log K is vouched for by {draws}: fewer than {self.least} of each model overlap."
        return f"Natural log K from {self.low:.2f} to {self.high:.2f} is vouched for by {draws}."


def validated_range(log_k: ArrayLike, labels: ArrayLike, *, least: int = 10) -> Range:
    """Find the range of log K in which held-out draws can confirm or refute it.

    A claim log K = L > 0 says that model 0 yields such data exp(L) times more rarely than model 1. Only draws
    of model 0 with log K ≥ L can check it, and of n0 draws fewer than n0·exp(−L) are expected there. So
    `high` is the largest L such that at least `least` draws of *each* model have log K ≥ L, and `low` the
    smallest such that at least `least` of each have log K ≤ `low`. Ten draws at the ends check log K there to
    about 1/√10 ≈ 0.3. Values outside are extrapolated; a passed coverage test says nothing about them.

    Parameters
    ----------
    log_k
        Natural log of p(x|M1)/p(x|M0) for each held-out draw, shape (n,).
    labels
        Model each draw came from, 0 or 1, shape (n,).
    least
        Draws of each model wanted at or beyond each end.

    Returns
    -------
    Range
        Empty if either model has fewer than `least` draws, or if the models overlap too little.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 5000)
    >>> x = np.random.default_rng(1).normal(loc=labels)
    >>> validated_range(x - 0.5, labels).contains([1.0, 30.0])
    array([ True, False])
    """
    log_k, labels = check_log_k(log_k, labels)
    if least < 1:
        raise ValueError(f"least must be at least 1, got {least}.")
    sides = [np.sort(log_k[labels == model]) for model in (0, 1)]
    n = (len(sides[0]), len(sides[1]))
    if min(n) < least:
        return Range(0.0, 0.0, n, least, empty=True)
    low = max(float(side[least - 1]) for side in sides)
    high = min(float(side[-least]) for side in sides)
    if low > high:
        return Range(0.0, 0.0, n, least, empty=True)
    return Range(low, high, n, least, empty=False)


@dataclass(frozen=True)
class TuringGood:
    """The two means that must agree, E0[K^½] and E1[K^−½], as natural logs.

    Attributes
    ----------
    log_mean_0, error_0
        Log of the mean of K^½ over draws of model 0, and its standard error.
    log_mean_1, error_1
        Log of the mean of K^−½ over draws of model 1, and its standard error.
    z
        Difference of the two means, the first minus the second, over its standard error.
    p_value
        Two-sided, from `z`.
    effective
        How many draws of equal size would make either mean as uncertain, the smaller of the two numbers,
        (Σw)²/Σw². Below about 100, single draws decide, and `z` is not normal.
    """

    log_mean_0: float
    error_0: float
    log_mean_1: float
    error_1: float
    z: float
    p_value: float
    effective: float

    def __str__(self) -> str:
        return (
            f"Turing–Good check: log E0[K^½] = {self.log_mean_0:.4f} ± {self.error_0:.4f}, "
            f"log E1[K^−½] = {self.log_mean_1:.4f} ± {self.error_1:.4f}; "
            f"z = {self.z:.2f}, p-value {self.p_value:.2g}."
        )


def turing_good(log_k: ArrayLike, labels: ArrayLike) -> TuringGood:
    """Check that E0[K^½] equals E1[K^−½], as both are ∫ √(p(x|M0) p(x|M1)) dx.

    Of the identities E0[K^a] = E1[K^(a−1)], this is the one whose two sides always have finite variance. It
    does not depend on the models' proportions. If the models hardly overlap, single draws dominate both means
    and z says little.

    Parameters
    ----------
    log_k
        Natural log of p(x|M1)/p(x|M0) for each held-out draw, shape (n,), finite.
    labels
        Model each draw came from, 0 or 1, shape (n,), at least two of each.

    Returns
    -------
    TuringGood
        Both means with errors, and the z-score of their difference.
    """
    log_k, labels = check_log_k(log_k, labels)
    if not np.isfinite(log_k).all():
        raise ValueError(f"log_k must be finite, got {np.sum(np.isinf(log_k))} infinite values.")
    if np.bincount(labels).min() < 2:
        raise ValueError(f"the errors need two draws of each model, got {np.bincount(labels)}.")
    sides = (0.5 * log_k[labels == 0], -0.5 * log_k[labels == 1])
    (log_0, error_0), (log_1, error_1) = map(_log_mean_exp, sides)
    # The larger mean is scaled to 1, so that nothing overflows.
    first, second = np.exp(np.array([log_0, log_1]) - max(log_0, log_1))
    z, p_value = _z_score(first - second, np.hypot(first * error_0, second * error_1))
    effective = min(_effective(np.exp(side - side.max())) for side in sides)
    return TuringGood(log_0, error_0, log_1, error_1, z, p_value, effective)


@dataclass(frozen=True)
class MeanProbability:
    """A model's mean posterior probability, which must equal its share of the draws.

    Attributes
    ----------
    value, error
        Mean of p(model|x) over all draws, and its standard error, the number of draws of each model given.
    share
        The model's share of the draws, which is its prior probability.
    z, p_value
        (`value` − `share`)/`error`, and its two-sided p-value.
    effective
        How many equally uncertain draws of the model, or of the others, would do: the smaller number. Below
        about 30, single draws decide.
    """

    value: float
    error: float
    share: float
    z: float
    p_value: float
    effective: float


def mean_probability(log_odds: ArrayLike, labels: ArrayLike, model: int = 1) -> MeanProbability:
    """Check that the mean posterior probability of a model equals its prior, its share of the draws.

    Parameters
    ----------
    log_odds
        Log posterior odds as for `score`, (n, K) or (n,), with the draws' own shares as prior.
    labels
        Model each draw came from, 0 to K − 1, shape (n,).
    model
        The model.

    Returns
    -------
    MeanProbability

    Examples
    --------
    >>> mean_probability([0.0, 0.0, 0.0, 0.0], [0, 1, 0, 1]).value
    0.5
    """
    log_odds, labels = check_log_odds(log_odds, labels)
    odds = log_odds[:, model] - logsumexp(np.delete(log_odds, model, axis=1), axis=1)
    mine = labels == model
    # Σ p − n_model is what draws of others are given too much, less what those of the model lack: two sums of
    # positive numbers, without the rounding of 1 − p.
    wrong = expit(np.where(mine, -odds, odds))
    difference = float(wrong[~mine].sum() - wrong[mine].sum()) / len(labels)
    error = error_of_mean(wrong, labels)
    effective = min((_effective(wrong[side]) for side in (mine, ~mine) if side.any()), default=0.0)
    share = float(mine.mean())
    return MeanProbability(share + difference, error, share, *_z_score(difference, error), effective)


def rank_p_value(value: ArrayLike, reference: ArrayLike) -> Array:
    """Return how often reference draws are at least as large as an observed value.

    Parameters
    ----------
    value
        Observed statistics, for example distances from the simulated data, any shape.
    reference
        The same statistic for n reference draws, shape (n,).

    Returns
    -------
    p_value
        (1 + number of `reference` ≥ `value`)/(1 + n), the shape of `value`. If a value was drawn like the
        reference, the probability of a p-value of at most u is at most u.

    Examples
    --------
    >>> rank_p_value([0.0, 2.5, 9.0], [1.0, 2.0, 3.0]).tolist()
    [1.0, 0.5, 0.25]
    """
    value, reference = np.asarray(value, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if reference.ndim != 1 or len(reference) == 0:
        raise ValueError(f"reference must be one-dimensional and not empty, got shape {reference.shape}.")
    if np.isnan(value).any() or np.isnan(reference).any():
        raise ValueError("value and reference must not contain NaN.")
    below = np.searchsorted(np.sort(reference), value, side="left")
    return np.asarray((1 + len(reference) - below) / (1 + len(reference)), dtype=np.float64)


def error_of_mean(values: Array, labels: NDArray[np.int64]) -> float:
    """Return the standard error of a mean over draws, the number of draws of each model being given."""
    total = 0.0
    for model in np.unique(labels):
        part = values[labels == model]
        if len(part) > 1:
            total += len(part) * part.var(ddof=1)
    return float(np.sqrt(total) / len(values))


def _effective(weights: Array) -> float:
    """Return (Σw)²/Σw²: as how many equal weights these count."""
    largest = weights.max()
    # The largest is taken out first, since squares of tiny weights would be zero.
    return float(np.sum(weights / largest) ** 2 / np.sum((weights / largest) ** 2)) if largest > 0 else 0.0


def _z_score(difference: float, error: float) -> tuple[float, float]:
    """Return a difference in units of its error, and the two-sided p-value; what is only rounding is 0."""
    if abs(difference) < 1e-12:
        return 0.0, 1.0
    z = float(difference / error) if error > 0 else float(np.copysign(np.inf, difference))
    return z, float(erfc(abs(z) / np.sqrt(2)))


def _log_mean_exp(exponent: Array) -> tuple[float, float]:
    """Log of the mean of exp(exponent), and the standard error of that log."""
    largest = exponent.max()
    scaled = np.exp(exponent - largest)
    mean = scaled.mean()
    return float(largest + np.log(mean)), float(scaled.std(ddof=1) / np.sqrt(len(scaled)) / mean)
