"""Rankings: each judge puts the same items in order."""

from itertools import combinations, permutations

import numpy as np
from scipy.special import gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, in_chunks, positive, rows, shuffle_along
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def judges(number: int = 8, items: int = 6, *, agreement: float = 0.35, nodes: int = 200) -> Problem:
    """Test whether judges who rank the same items agree.

    M0: all rankings are equally probable. M1 is the Mallows model: there is a true order σ, uniform among all
    orders. A judge gives the ranking r with probability exp(−θ d(r, σ)) / Z(θ), where d is the number of
    pairs of items that r and σ put in different order, and Z(θ) = ∏_{i ≤ items} Σ_{j < i} e^(−jθ). θ is
    exponential with mean `agreement`.

    For a given σ, let D be the sum of the distances d of all judges. The integral over θ is a function of D
    only, ∫ exp(−θ D) Z(θ)^(−number) p(θ) dθ. It is computed once for each D = 0, 1, 2, ... with
    Gauss–Legendre quadrature. The evidence of M1 is its mean over all items! orders σ.

    log K does not depend on the order of the judges or of the items.

    Parameters
    ----------
    number
        Number of judges.
    items
        Number of items, at most 7: the sum is over all items! orders.
    agreement
        Mean of the prior of θ.
    nodes
        Quadrature nodes for θ.

    Returns
    -------
    problem
        Data of shape (n, number, items): the rank, from 1 to items, that each judge gives to each item.
        Parameters in M1: ``order`` (n, items), and ``theta`` (n,).

    Examples
    --------
    >>> judges()
    Problem('judges', models=('no agreement', 'agreement'), augment=yes)
    """
    number, items = count("number", number), count("items", items, least=2)
    agreement, nodes = positive("agreement", agreement), count("nodes", nodes, least=2)
    if items > 7:
        raise ValueError(f"items must be at most 7, got {items}: the evidence is a sum over items! orders")
    pairs = np.array(list(combinations(range(items), 2)))
    # +1 where an order puts the first item of a pair before the second, −1 where it does not.
    orders = np.array(list(permutations(range(items))))
    before = np.sign(orders[:, pairs[:, 1]] - orders[:, pairs[:, 0]])
    theta, log_weights = legendre(0.0, 40.0 * agreement, nodes)
    log_weights = log_weights - theta / agreement - np.log(agreement)
    log_norm = sum(np.log(np.exp(-np.outer(theta, np.arange(i))).sum(axis=1)) for i in range(1, items + 1))
    distances = np.arange(number * len(pairs) + 1)
    table = log_integral(-distances[:, None] * theta - number * log_norm, log_weights)

    def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        order = rng.random((n, items)).argsort(axis=1)
        return {"order": order, "theta": agreement * rng.standard_exponential(n)}

    def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
        return 1 + rng.random((n, number, items)).argsort(axis=2)

    def agreeing(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["theta"])
        decay = theta["theta"][:, None]
        draws = rng.random((n, number, items))
        ranks = np.ones((n, number, items), dtype=np.int64)
        # The items are inserted one by one, in the true order. Each is put before `passed` of the earlier
        # items, with probability ∝ exp(−θ passed): the inverse of the distribution function gives `passed`.
        for i in range(1, items):
            inside = np.log1p(draws[:, :, i] * np.expm1(-(i + 1) * decay))
            passed = np.clip(np.floor(-inside / decay), 0, i).astype(np.int64)
            place = 1 + i - passed
            ranks[:, :, :i] += ranks[:, :, :i] >= place[:, :, None]
            ranks[:, :, i] = place
        return np.take_along_axis(ranks, theta["order"][:, None, :], axis=2)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (number, items))
        if not np.all(np.sort(x, axis=2) == np.arange(1, items + 1)):
            raise ValueError(f"every judge must give each rank from 1 to {items} once")
        return in_chunks(_log_evidence, x, 5_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        votes = np.sign(x[:, :, pairs[:, 1]] - x[:, :, pairs[:, 0]]).sum(axis=1)
        distance = np.rint(0.5 * (number * len(pairs) - votes @ before.T)).astype(np.int64)
        any_order = log_integral(table[distance], -gammaln(items + 1))
        return np.stack([np.full(len(x), -number * gammaln(items + 1)), any_order], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        return shuffle_along(rng, shuffle_along(rng, array(x), 1), 2)

    return Problem(
        name="judges",
        models=(Model("no agreement", uniform), Model("agreement", agreeing, prior=prior)),
        log_evidence=log_evidence,
        augment=augment,
    )
