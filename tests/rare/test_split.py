"""Probabilities by splitting, against exact ones, within the errors it states."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from evidencenet.rare import split as module
from evidencenet.rare.split import Split, log_ratio, split
from evidencenet.rare.steer import Chains
from evidencenet.simulation.model import Model
from evidencenet.simulation.workers import Workers

SEEDS = 40


def normal() -> Model:
    return Model("normal", lambda rng, n: rng.normal(size=(n, 2)))


def counts() -> Model:
    return Model("counts", lambda rng, n: rng.poisson(2.0, (n, 1)))


def total(x: Any) -> np.ndarray:
    return x.sum(axis=1)


def nearness(x: Any) -> np.ndarray:
    return -np.abs(x).sum(axis=1)


def first(x: Any) -> np.ndarray:
    return x[:, 0]


def two_modes(x: Any) -> np.ndarray:
    """Score two far regions: beyond 6 along the first number, or beyond 5.8 along the other, downwards."""
    return np.maximum(x[:, 0], 0.2 - x[:, 1])


# Model, score, where to stop, and the exact log P there.
CASES: dict[str, tuple[Callable[[], Model], Callable[..., np.ndarray], float, float]] = {
    "normal, e^-40": (normal, total, 8.57 * np.sqrt(2), float(special.log_ndtr(-8.57))),
    "counts": (counts, total, 17.0, float(stats.poisson.logsf(16, 2.0))),
    "two modes": (
        normal,
        two_modes,
        6.0,
        float(np.logaddexp(special.log_ndtr(-6.0), special.log_ndtr(-5.8))),
    ),
}


def scores(case: str, seeds: int, n: int = 2000) -> np.ndarray:
    """Return log P − exact, and its error, for runs with fixed thresholds, (2, seeds)."""
    model, score, reach, exact = CASES[case]
    pilot = split(model(), score, n=n, reach=reach, moves=5, seed=10_000)
    assert pilot.stop == "reach"
    runs = [split(model(), score, n=n, like=pilot, moves=5, seed=seed) for seed in range(seeds)]
    return np.array([(run.log_p[-1] - exact, run.log_p_error[-1]) for run in runs]).T


@pytest.mark.parametrize("case", CASES)
def test_probabilities_are_within_the_stated_error(case: str) -> None:
    off, error = scores(case, SEEDS)
    # Ten replicates: Student's t with nine degrees of freedom has 66% within one error. Of 40 seeds, 17 or
    # fewer happen in less than 0.3% of cases.
    assert np.sum(np.abs(off) < error) > 17
    assert np.all(np.abs(off) < 6 * error)
    # With fixed thresholds P itself is unbiased; its log is not, by half of its variance.
    ratio = np.exp(off)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(SEEDS)


def test_a_kernel_that_changes_the_law_fails_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: Model, rng: np.random.Generator, chains: Chains, mean_step: float) -> Chains:
        """Move by z + βξ, without the factor that keeps the law."""
        step = np.full(len(chains), 0.3 * mean_step)
        shifted = [z + step[:, None] * rng.standard_normal(z.shape) for z in chains.normals]
        return module.moved(model, rng, Chains(chains.x, chains.valid, shifted, False), np.zeros(len(chains)))

    monkeypatch.setattr(module, "_proposal", wrong)
    off, error = scores("normal, e^-40", 5)
    assert np.all(off > 6 * error)


def test_all_levels_are_right_and_adaptive_thresholds_nearly_unbiased() -> None:
    run = split(normal(), total, n=10_000, reach=9.0, seed=3)
    exact = special.log_ndtr(-run.threshold[1:] / np.sqrt(2))
    assert np.all(np.abs(run.log_p[1:] - exact) < 4 * run.log_p_error[1:])
    assert np.all(run.log_p_error[1:] < 0.12)
    # Each level holds only draws above its threshold, and of the law it should have.
    for level in range(len(run.threshold)):
        assert run.score[run.level == level].min() >= run.threshold[level]
    deep = run.score[run.level == len(run.threshold) - 1]
    wanted = stats.truncnorm(9 / np.sqrt(2), np.inf).mean() * np.sqrt(2)
    assert abs(deep.mean() - wanted) < 0.03


def test_both_modes_keep_their_share() -> None:
    run = split(normal(), two_modes, n=10_000, reach=6.0, seed=1)
    assert isinstance(run.x, np.ndarray)
    deep = run.x[run.level == len(run.threshold) - 1]
    # Weighted by each replicate's own estimate of P, which goes up and down with its share of the rarer mode.
    weight = np.exp(run.probabilities[-1] - run.log_p[-1])[run.replicate[run.level == len(run.threshold) - 1]]
    share = np.average(deep[:, 1] < -5.7, weights=weight)
    first, second = np.exp(special.log_ndtr(np.array([-6.0, -5.8])))
    assert abs(share - second / (first + second)) < 0.1


def test_pooled_levels_have_the_density_they_are_said_to_have() -> None:
    """Weighted by the inverse of their density ratio, the draws of all levels are plain draws again."""
    run = split(normal(), total, n=5000, reach=9.0, seed=4)
    log_weight = -run.log_density_ratio(run.score)
    for bound in (-1.0, 1.0, 4.0, 8.0):
        estimate = special.logsumexp(log_weight[run.score > bound])
        assert abs(estimate - special.log_ndtr(-bound / np.sqrt(2))) < 0.25


def test_the_density_ratio_is_the_sum_over_levels() -> None:
    threshold, log_p, n = np.array([-np.inf, 1.0, 2.0]), np.array([0.0, -1.5, -3.0]), np.array([10, 5, 5])
    found = log_ratio(np.array([0.0, 1.0, 5.0]), threshold, log_p, n)
    wanted = np.log([10, 10 + 5 * np.exp(1.5), 10 + 5 * np.exp(1.5) + 5 * np.exp(3.0)])
    np.testing.assert_allclose(found, wanted)


def test_it_stops_where_the_score_has_an_end() -> None:
    bounded = split(normal(), nearness, n=1000, seed=1)
    assert bounded.stop == "flat"
    assert len(bounded.threshold) < 12
    constant = split(normal(), lambda x: np.zeros(len(x)), n=1000, seed=1)
    assert constant.stop == "flat"
    assert len(constant.threshold) <= 2
    assert constant.log_p[-1] == 0


def test_it_stops_at_the_budget() -> None:
    run = split(normal(), total, n=1000, calls=50_000, seed=1)
    assert run.stop == "calls"
    assert run.calls <= 50_000
    assert run.threshold[-1] > 2


def test_workers_do_not_change_the_result() -> None:
    one, two = (split(normal(), total, n=400, reach=4.0, seed=1, workers=Workers(w)) for w in (1, 2))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.log_p, two.log_p)


def test_failed_draws_are_not_counted() -> None:
    def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.normal(size=(n, 2))
        return np.where(x[:, :1] < 0, np.nan, x)

    run = split(Model("half", simulate), first, n=4000, reach=5.0, seed=1)
    assert abs(run.drawn / run.n - 2) < 0.1
    # Of draws that did not fail, twice as many lie beyond 5.
    assert abs(run.log_p[-1] - special.log_ndtr(-5.0) - np.log(2)) < 4 * run.log_p_error[-1]


def test_single_draws_are_split_too() -> None:
    def simulate(rng: np.random.Generator) -> np.ndarray:
        return np.array([sum(rng.normal() for _ in range(1 + rng.poisson(0.5)))])

    run = split(Model("one", simulate, kind="one"), first, n=400, reach=4.0, replicates=5, seed=1)
    k = np.arange(30)
    exact = special.logsumexp(stats.poisson.logpmf(k, 0.5) + special.log_ndtr(-4 / np.sqrt(1 + k)))
    assert abs(run.log_p[-1] - exact) < 4 * run.log_p_error[-1]


def test_it_prints() -> None:
    run: Split = split(normal(), total, n=400, reach=3.0, seed=1)
    assert "the wanted score was reached" in str(run)
    with pytest.raises(ValueError, match="at least 20 draws for each of 10 replicates"):
        split(normal(), total, n=100)
