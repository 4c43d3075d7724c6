"""Moments of the draws, and the Gaussians made of them."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import evidencenet as en
from conftest import draws, rms
from evidencenet._common.arrays import Data
from evidencenet.training.baseline import Baseline, Gaussians, Moments, flat, inverse_root
from evidencenet.training.batches import Chunk
from evidencenet.training.scaling import Scaling

FOLDS = 8


def shuffled(sims: en.Simulations, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Array data and labels in random order, as training sees them."""
    order = np.random.default_rng(seed).permutation(len(sims))
    assert isinstance(sims.x, np.ndarray)
    return sims.x[order], sims.model[order]


def moments_of(
    x: Data, label: np.ndarray, weight: np.ndarray | None = None, chunks: int = 1
) -> tuple[Moments, list[Moments], list[tuple[Moments, Moments]]]:
    """Moments of draws cut into chunks of minibatches."""
    weight = np.ones(len(label)) if weight is None else weight
    models = int(label.max()) + 1

    def cut(array: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(2, -1, *array.shape[1:]) for part in np.split(array, chunks)]

    parts = zip(
        [dict(zip(x, p, strict=True)) for p in zip(*map(cut, x.values()), strict=True)]
        if isinstance(x, dict)
        else cut(x),
        cut(label),
        cut(weight),
        strict=True,
    )
    gathered = Moments.of((Chunk(p, None, q, r) for p, q, r in parts), models)
    return gathered.of_all(), gathered.leaving_one_out(), gathered.halves()


def baseline_of(sims: en.Simulations) -> tuple[Scaling, Baseline]:
    x, label = shuffled(sims)
    scaling = Scaling.fit(x)
    moments, left_out, _ = moments_of(scaling(x), label)
    return scaling, Baseline(Gaussians.fit(moments), tuple(map(Gaussians.fit, left_out)))


def limit(log_odds: np.ndarray, numbers: int) -> float:
    """Error of log-odds when `numbers` numbers that describe them are fitted to draws with these log-odds.

    The score of a fit by maximum likelihood exceeds the exact one by numbers / 2n on average, and errors δ of
    the log-odds exceed it by ½ E[p(1 − p) δ²]: so δ² is numbers / Σ p(1 − p).
    """
    p = expit(log_odds)
    return float(np.sqrt(numbers / np.sum(p * (1 - p))))


@pytest.mark.parametrize("chunks", [1, 5])
def test_moments_are_numpys(chunks: int) -> None:
    rng = np.random.default_rng(1)
    label = rng.integers(2, size=4_000)
    x = rng.normal(size=(4_000, 3)) @ rng.normal(size=(3, 3)) + label[:, None]
    moments, left_out, halves = moments_of(x.astype(np.float32), label, chunks=chunks)
    assert len(left_out) == FOLDS
    for k in (0, 1):
        mine = x[label == k]
        assert moments.size[k] == pytest.approx(len(mine))
        # Products are summed in single precision, in blocks.
        np.testing.assert_allclose(moments.mean[k], mine.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(moments.covariance[k], np.cov(mine.T, ddof=0), atol=1e-4)
        # Each draw is left out once.
        assert sum(fold.size[k] for fold in left_out) == pytest.approx((FOLDS - 1) * len(mine))
        # The two halves are all draws, and each is half of them.
        for first, second in halves:
            assert first.size[k] + second.size[k] == pytest.approx(len(mine))
            assert abs(first.size[k] - second.size[k]) < 0.1 * len(mine)


def test_weights() -> None:
    rng = np.random.default_rng(2)
    x, label, weight = rng.normal(size=(2_000, 2)), rng.integers(2, size=2_000), rng.exponential(size=2_000)
    moments, *_ = moments_of(x.astype(np.float32), label, weight)
    for k in (0, 1):
        mine, w = x[label == k], weight[label == k]
        assert moments.size[k] == pytest.approx(w.sum() ** 2 / np.sum(w**2), rel=1e-5)
        np.testing.assert_allclose(moments.mean[k], w @ mine / w.sum(), atol=1e-5)
        wanted = np.cov(mine.T, aweights=w, ddof=0)
        np.testing.assert_allclose(moments.covariance[k], wanted, atol=1e-4)


def test_dicts_are_flattened() -> None:
    rng = np.random.default_rng(3)
    label = rng.integers(2, size=400)
    values, mask = rng.normal(size=(400, 2, 2)).astype(np.float32), rng.random((400, 3)) < 0.5
    whole = np.concatenate([values.reshape(400, 4), mask.astype(np.float32)], axis=1)
    np.testing.assert_array_equal(flat({"x": values, "mask": mask}), whole)
    first, *_ = moments_of({"x": values, "mask": mask}, label)
    second, *_ = moments_of(whole, label)
    np.testing.assert_array_equal(first.covariance, second.covariance)


def test_inverse_root() -> None:
    rng = np.random.default_rng(4)
    factor = rng.normal(size=(5, 3))
    root = inverse_root(factor @ factor.T)
    # Of rank 3: a projection on the directions in which there is variance.
    product = root @ factor @ factor.T @ root
    np.testing.assert_allclose(product @ product, product, atol=1e-9)
    assert np.trace(product) == pytest.approx(3)
    np.testing.assert_array_equal(inverse_root(np.zeros((2, 2))), 0)


def test_known_moments_give_the_exact_log_ratio() -> None:
    rng = np.random.default_rng(5)
    models, dim = 3, 4
    mean = rng.normal(size=(models, dim))
    factor = rng.normal(size=(models, dim, dim))
    covariance = factor @ factor.transpose(0, 2, 1) + np.eye(dim)
    gaussians = Gaussians.fit(Moments(np.full(models, 1e15), mean, covariance))
    x = rng.normal(size=(100, dim)) * 2
    densities = [stats.multivariate_normal(m, c).logpdf(x) for m, c in zip(mean, covariance, strict=True)]
    exact = np.stack(densities, axis=1) - densities[0][:, None]
    # Projections are made in single precision.
    np.testing.assert_allclose(gaussians(x.astype(np.float32)), exact, atol=1e-4)


def test_linear_gaussian_problem_is_nearly_exact() -> None:
    problem = en.problems.time_series(dim=20)
    sims = draws(problem, 54_000, seed=1)
    scaling, baseline = baseline_of(sims)
    # M1 adds to M0 the variance along one direction: 20 numbers, and the constant.
    best = limit(problem.log_bayes_factor(sims.x), 21)
    fresh = draws(problem, 5_000, seed=2)
    exact, found = problem.log_bayes_factor(fresh.x), baseline(scaling(fresh.x))
    assert np.all(found[:, 0] == 0)
    assert rms(found[:, 1] - exact) < 2 * best
    assert rms(0.8 * found[:, 1] - exact) > 2 * best
    # One direction for each model, which their common covariance lies between, and at most one by chance.
    assert 1 <= len(baseline.full.direction) <= 3


def test_all_directions_would_be_worse() -> None:
    problem = en.problems.time_series(dim=20)
    sims, fresh = draws(problem, 10_000, seed=1), draws(problem, 5_000, seed=2)
    scaling, baseline = baseline_of(sims)
    x, label = shuffled(sims)
    scaled = scaling(x)
    assert isinstance(scaled, np.ndarray)
    full = [stats.multivariate_normal(y.mean(0), np.cov(y.T)) for y in (scaled[label == k] for k in (0, 1))]
    exact = problem.log_bayes_factor(fresh.x)
    new: Any = scaling(fresh.x)
    every = np.asarray(full[1].logpdf(new)) - np.asarray(full[0].logpdf(new))
    assert rms(baseline(new)[:, 1] - exact) < 0.5 * rms(every - exact)


def test_nothing_is_kept_of_models_that_agree() -> None:
    problem = en.problems.indistinguishable()
    left = []
    for seed in range(9):
        sims = draws(problem, 20_000, seed=seed)
        scaling, baseline = baseline_of(sims)
        assert len(baseline.full.direction) == 0
        left.append(rms(baseline(scaling(sims.x))[:, 1]))
    # A chance difference of the ten means is all there could be, and more than half of it is taken away.
    assert np.median(left) < 0.5 * limit(np.zeros(20_000), 10)
    assert min(left) == 0


def test_jackknife_variance_is_the_squared_error() -> None:
    problem = en.problems.time_series(dim=20)
    fresh = draws(problem, 2_000, seed=99)
    exact = problem.log_bayes_factor(fresh.x)
    ratios = []
    # Errors of one baseline go together for all draws: so several baselines.
    for seed in range(12):
        scaling, baseline = baseline_of(draws(problem, 20_000, seed=seed))
        x = scaling(fresh.x)
        variance = baseline.variance(x, 1, 0)
        np.testing.assert_allclose(variance, baseline.variance(x, 0, 1), rtol=1e-6)
        ratios.append(np.mean((baseline(x)[:, 1] - exact) ** 2 / variance))
    assert 0.4 < np.median(ratios) < 2.5
