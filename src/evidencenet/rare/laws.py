"""Turn standard normal numbers into other laws, by the inverse distribution function.

Each function takes standard normals `z` and the parameters of the law, broadcasts them, and returns numbers
of that law. It increases with z, so neighbours stay neighbours, and it works with the smaller of the two tail
probabilities, so that it is precise at z = ±12 (a tail probability of 2e-33).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

Array = np.ndarray

# The largest numbers below 1 that a uniform number may be: NumPy's uniform numbers never reach 1.
_BELOW_ONE = {np.dtype(kind): np.nextafter(kind(1), kind(0)) for kind in (np.float64, np.float32)}
# A search for whole numbers or for an angle ends after so many steps at the latest.
_MOST_STEPS = 130


def uniform(z: Array, dtype: Any = np.float64) -> Array:
    """Return numbers uniform on [0, 1)."""
    return np.minimum(special.ndtr(z).astype(dtype), _BELOW_ONE[np.dtype(dtype)])


def exponential(z: Array) -> Array:
    """Return numbers of the exponential law of mean 1."""
    return -special.log_ndtr(-z)


def gamma(z: Array, shape: Any) -> Array:
    """Return numbers of the gamma law of scale 1."""
    z, shape = np.broadcast_arrays(z, np.asarray(shape, dtype=np.float64))
    return _by_tails(z, special.gammaincinv, special.gammainccinv, shape)


def beta(z: Array, a: Any, b: Any) -> Array:
    """Return numbers of the beta law."""
    z, a, b = np.broadcast_arrays(z, np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    return _by_tails(
        z, lambda p, a, b: special.betaincinv(a, b, p), lambda q, a, b: special.betainccinv(a, b, q), a, b,
        first=True,
    )  # fmt: skip


def standard_t(z: Array, df: Any) -> Array:
    """Return numbers of Student's t law."""
    # The square of t over df is a ratio of gammas; the beta law of its transform is precise in both tails.
    size = np.abs(z)
    q = 2 * special.ndtr(-size)
    half = 0.5 * np.asarray(df, dtype=np.float64)
    part = special.betaincinv(half, 0.5, q)
    rest = special.betainccinv(0.5, half, q)
    with np.errstate(divide="ignore", over="ignore"):
        # `part` is df/(df + t²) and `rest` is t²/(df + t²), each precise where it is small.
        found = np.sqrt(2 * half) * np.sqrt(rest) / np.sqrt(part)
    # For tail probabilities so small that `part` underflows, t is beyond any number that can be written.
    return np.copysign(np.where(z == 0, 0.0, found), z)


def cauchy(z: Array) -> Array:
    """Return numbers of the Cauchy law."""
    return np.copysign(1 / np.tan(np.pi * special.ndtr(-np.abs(z))), z)


def laplace(z: Array) -> Array:
    """Return numbers of the Laplace law of scale 1."""
    return np.copysign(-(special.log_ndtr(-np.abs(z)) + np.log(2)), z)


def logistic(z: Array) -> Array:
    """Return numbers of the logistic law of scale 1."""
    return special.log_ndtr(z) - special.log_ndtr(-z)


def gumbel(z: Array) -> Array:
    """Return numbers of the Gumbel law of scale 1."""
    return -np.log(-special.log_ndtr(z))


def triangular(z: Array, left: Any, mode: Any, right: Any) -> Array:
    """Return numbers of the triangular law."""
    low, high = special.ndtr(z), special.ndtr(-z)
    left, mode, right = (np.asarray(end, dtype=np.float64) for end in (left, mode, right))
    width = right - left
    rising = left + np.sqrt(low * width * (mode - left))
    falling = right - np.sqrt(high * width * (right - mode))
    return np.where(low * width < mode - left, rising, falling)


def vonmises(z: Array, mu: Any, kappa: Any) -> Array:
    """Return angles in [−π, π] of the von Mises law."""
    z, mu, kappa = np.broadcast_arrays(z, np.asarray(mu, dtype=float), np.asarray(kappa, dtype=float))
    shape = z.shape
    size, concentration = np.abs(z).ravel(), np.maximum(kappa, 1e-300).ravel()
    log_q = special.log_ndtr(-size)
    nodes, weights = np.polynomial.legendre.leggauss(48)
    nodes, weights = 0.5 * (nodes + 1), 0.5 * weights
    log_scale = np.log(2 * np.pi * special.i0e(concentration))

    def log_tail(angle: Array, kappa: Array) -> tuple[Array, Array]:
        """Return log ∫ exp(κ (cos a − cos angle)) da over larger angles, by quadrature, and κ (cos − 1)."""
        # Beyond this distance the density has fallen by e^−40.
        width = np.minimum(np.pi - angle, np.sqrt(80 / kappa))
        cosine = np.cos(angle)
        total = np.zeros(angle.shape)
        for node, weight in zip(nodes, weights, strict=True):
            total += weight * np.exp(kappa * (np.cos(angle + node * width) - cosine))
        return np.log(total * width), kappa * (cosine - 1)

    # For large κ the sine of half the angle is nearly normal; for small κ the angle is nearly uniform.
    spread = np.sqrt(2 / np.pi) / special.i0e(concentration)
    peaked = 2 * np.arcsin(np.minimum(size / spread, 0.999))
    flat = np.pi * (1 - 2 * special.ndtr(-size))
    found = np.where(concentration > 0.5, peaked, flat)
    low, high = np.zeros(size.shape), np.full(size.shape, np.pi)
    rows = np.arange(len(size))
    # Newton's method on the log of the tail, with bisection where a step would leave the bracket.
    for _ in range(_MOST_STEPS):
        now, own = found[rows], concentration[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            integral, exponent = log_tail(now, own)
            off = integral + exponent - log_scale[rows] - log_q[rows]
            low[rows], high[rows] = np.where(off > 0, now, low[rows]), np.where(off > 0, high[rows], now)
            wish = now + off * np.exp(integral)
        inside = (wish >= low[rows]) & (wish <= high[rows])
        found[rows] = np.where(inside, wish, 0.5 * (low[rows] + high[rows]))
        # What is off after this step is of the order of the square of what was off before.
        rows = rows[(np.abs(off) > 1e-5) & (found[rows] != now)]
        if not len(rows):
            break
    found = found.reshape(shape)
    angle = mu + np.copysign(found, z)
    # Numbers of a large kappa need no wrapping; others are brought back into [−π, π].
    return np.where(np.abs(angle) > np.pi, np.remainder(angle + np.pi, 2 * np.pi) - np.pi, angle)


def integers(z: Array, low: Any, high: Any, dtype: Any) -> Array:
    """Return whole numbers from `low` to `high`, both included, each as likely as the other."""
    low, high = np.asarray(low), np.asarray(high)
    count = high.astype(np.float64) - low.astype(np.float64) + 1
    step = np.minimum(np.floor(special.ndtr(z) * count), count - 1)
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return (low + step) > 0
    # Added as whole numbers: float64 does not hold all of 64 bits.
    wide = np.uint64 if kind == np.uint64 else np.int64
    return np.asarray(low.astype(wide) + np.minimum(step, 2.0**63 - 1024).astype(wide)).astype(kind)


def poisson(z: Array, lam: Any) -> Array:
    """Return counts of the Poisson law."""
    z, lam = np.broadcast_arrays(z, np.asarray(lam, dtype=np.float64))
    root = np.sqrt(lam)
    # Cornish–Fisher, to second order.
    guess = lam + root * z + (np.square(z) - 1) / 6
    return whole(
        z,
        guess,
        lambda k, lam: special.gammaincc(k + 1, lam),
        lambda k, lam: special.gammainc(k + 1, lam),
        lam,
    )


def binomial(z: Array, n: Any, p: Any) -> Array:
    """Return counts of the binomial law."""
    n, p = np.asarray(n, dtype=np.float64), np.asarray(p, dtype=np.float64)
    z, n, p = np.broadcast_arrays(z, n, p)
    spread = np.sqrt(n * p * (1 - p))
    guess = n * p + spread * z + (1 - 2 * p) * (np.square(z) - 1) / 6

    def below(k: Array, n: Array, p: Array) -> Array:
        return np.where(k >= n, 1.0, special.betainc(np.maximum(n - k, 1e-9), k + 1, 1 - p))

    def above(k: Array, n: Array, p: Array) -> Array:
        return np.where(k >= n, 0.0, special.betainc(k + 1, np.maximum(n - k, 1e-9), p))

    return np.minimum(whole(z, np.minimum(guess, n), below, above, n, p), n.astype(np.int64))


def negative_binomial(z: Array, n: Any, p: Any) -> Array:
    """Return the number of failures before the n-th success."""
    n, p = np.asarray(n, dtype=np.float64), np.asarray(p, dtype=np.float64)
    z, n, p = np.broadcast_arrays(z, n, p)
    mean = n * (1 - p) / p
    guess = mean + np.sqrt(mean / p) * z + (2 - p) / p * (np.square(z) - 1) / 6
    return whole(
        z,
        guess,
        lambda k, n, p: special.betainc(n, k + 1, p),
        lambda k, n, p: special.betainc(k + 1, n, 1 - p),
        n,
        p,
    )


def geometric(z: Array, p: Any) -> Array:
    """Return the number of trials up to the first success."""
    p = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore"):
        trials = np.ceil(special.log_ndtr(-z) / np.log1p(-p))
    return np.maximum(np.where(p == 1, 1, trials), 1).astype(np.int64)


def hypergeometric(z: Array, good: Any, bad: Any, drawn: Any) -> Array:
    """Return how many good ones are among those drawn without replacement."""
    # Here, not above: it alone would take half of the time to import the package.
    from scipy import stats

    z, good, bad, drawn = np.broadcast_arrays(
        z, *(np.asarray(a, dtype=np.float64) for a in (good, bad, drawn))
    )
    everything = good + bad
    share = good / np.maximum(everything, 1)
    spread = np.sqrt(drawn * share * (1 - share) * (everything - drawn) / np.maximum(everything - 1, 1))
    law = stats.hypergeom
    counts = whole(
        z,
        drawn * share + spread * z,
        lambda k, good, everything, drawn: law.cdf(k, everything, good, drawn),
        lambda k, good, everything, drawn: law.sf(k, everything, good, drawn),
        good,
        everything,
        drawn,
    )
    return np.clip(counts, np.maximum(drawn - bad, 0), np.minimum(drawn, good)).astype(np.int64)


def zipf(z: Array, a: Any) -> Array:
    """Return whole numbers from 1 up, with probabilities in proportion to k^−a."""
    z, a = np.broadcast_arrays(z, np.asarray(a, dtype=np.float64))
    # P(k > m) is about m^(1 − a), and P(k ≤ m) is precise only as its complement.
    guess = np.exp(np.minimum(-special.log_ndtr(-z) / (a - 1), 42.0))
    less = whole(
        z,
        guess - 1,
        lambda k, a: 1 - special.zeta(a, k + 2) / special.zeta(a, 1),
        lambda k, a: special.zeta(a, k + 2) / special.zeta(a, 1),
        a,
    )
    return less + 1


def categories(z: Array, p: Array) -> Array:
    """Return positions 0 to len(p) − 1 with probabilities p, precise at both ends."""
    rising, falling = np.cumsum(p), np.cumsum(p[::-1])
    from_start = np.searchsorted(rising, special.ndtr(z) * rising[-1], side="right")
    from_end = len(p) - 1 - np.searchsorted(falling, special.ndtr(-z) * falling[-1], side="left")
    # Positions of probability zero are never taken, not even by rounding.
    possible = np.flatnonzero(p > 0)
    position = np.clip(np.where(z > 0, from_end, from_start), possible[0], possible[-1])
    return possible[np.searchsorted(possible, position)]


def whole(
    z: Array, guess: Array, below: Callable[..., Any], above: Callable[..., Any], *parameters: Array
) -> Array:
    """Return the smallest k ≥ 0 with P(k or less) at least that of z.

    Parameters
    ----------
    z
        Standard normals.
    guess
        Where to begin the search; the nearer, the faster.
    below, above
        P(X ≤ k) and P(X > k), functions of k ≥ 0 and of the parameters.
    parameters
        Arrays of the shape of z.
    """
    shape = np.shape(z)
    z = np.ravel(z)
    parameters = tuple(np.ravel(parameter) for parameter in parameters)
    upper = z > 0
    log_tail = special.ndtr(-np.abs(z))

    def enough(k: Array, rows: Array) -> Array:
        """Say whether P(X ≤ k) reaches that of z, by the tail that is small."""
        given = [parameter[rows] for parameter in parameters]
        answer = np.zeros(len(rows), dtype=bool)
        for side in (True, False):
            part = (upper[rows] == side) & (k >= 0)
            if part.any():
                values = (above if side else below)(k[part], *(array[part] for array in given))
                tail = log_tail[rows][part]
                answer[part] = values <= tail if side else values >= tail
        return answer

    # 2^62 is the largest power of two that a 64-bit count can hold.
    high = np.clip(np.nan_to_num(np.floor(guess), nan=0.0), 0, 2.0**62).astype(np.float64).ravel()
    low = high - 1
    everyone = np.arange(len(z))
    step = 1.0
    # Widen the bracket until `high` is enough and `low` is not.
    search = everyone[~enough(high, everyone)]
    for _ in range(_MOST_STEPS):
        if not len(search):
            break
        low[search] = high[search]
        high[search] = np.minimum(high[search] + step, 2.0**62)
        search = search[~enough(high[search], search) & (high[search] < 2.0**62)]
        step *= 2
    step = 1.0
    search = everyone[(low >= 0) & (high == low + 1)]
    search = search[enough(low[search], search)]
    for _ in range(_MOST_STEPS):
        if not len(search):
            break
        high[search] = low[search]
        low[search] = np.maximum(low[search] - step, -1.0)
        search = search[(low[search] >= 0)]
        search = search[enough(low[search], search)]
        step *= 2
    search = everyone[high - low > 1]
    for _ in range(_MOST_STEPS):
        if not len(search):
            break
        middle = np.floor(0.5 * (low[search] + high[search]))
        reached = enough(middle, search)
        high[search[reached]] = middle[reached]
        low[search[~reached]] = middle[~reached]
        search = search[high[search] - low[search] > 1]
    return high.astype(np.int64).reshape(shape)


def _by_tails(
    z: Array,
    lower: Callable[..., Any],
    upper: Callable[..., Any],
    *parameters: Array,
    first: bool = False,
) -> Array:
    """Invert a distribution function by whichever tail is the smaller one.

    `lower` and `upper` take the parameters and then the tail probability; with `first`, it comes first.
    """
    z = np.asarray(z)
    tail = special.ndtr(-np.abs(z))
    result = np.empty(z.shape)
    for function, part in ((lower, z <= 0), (upper, z > 0)):
        given = [parameter[part] for parameter in parameters]
        arguments = (tail[part], *given) if first else (*given, tail[part])
        result[part] = function(*arguments)
    return result
