"""`deepen`: log K far beyond plain draws, against exact answers; and everything that works on the result."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import evidencenet as en
from evidencenet._common.arrays import Data
from evidencenet.checks.check import examine
from evidencenet.checks.range import Range
from evidencenet.checks.tail import Tail, settled, tails
from evidencenet.problems import Problem
from evidencenet.rare.steer import UnsteerableError

CENTRE, WIDTH = -1.5, 0.7
QUICK = {"network": en.networks.Dense(), "members": 2, "seed": 2, "progress": False}


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Three exponential times of rate 1, or of a log-normal rate that is mostly lower.

    Only their sum S matters: p(x|M1) = ∫ r³ exp(−r S) p(r) dr, here by Gauss–Hermite quadrature.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    rate = np.exp(CENTRE + WIDTH * node)
    log_weight = np.log(weight / weight.sum())

    def log_evidence(x: Data) -> np.ndarray:
        total = np.asarray(x).sum(axis=1)
        free = logsumexp(log_weight + 3 * np.log(rate) - total[:, None] * rate, axis=1)
        return np.stack([-total, free], axis=1)

    return Problem(
        "times",
        (
            en.Model("known rate", lambda rng, n: rng.exponential(size=(n, 3))),
            en.Model(
                "free rate",
                prior=lambda rng, n: rng.lognormal(CENTRE, WIDTH, n),
                simulate=lambda rng, rate: rng.exponential(size=(len(rate), 3)) / rate[:, None],
            ),
        ),
        log_evidence,
    )


@pytest.fixture(scope="module")
def net(problem: Problem) -> en.EvidenceNetwork:
    sims = en.simulate(problem.models, 40_000, seed=1, progress=False)
    return en.train(sims, recipe=en.Recipe(epochs=5), learn_error=False, **QUICK)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def deep(net: en.EvidenceNetwork, problem: Problem) -> en.EvidenceNetwork:
    return en.deepen(net, problem.models, n=3000, recipe=en.Recipe(epochs=5), seed=3, progress=False)


@pytest.fixture(scope="module")
def rare(deep: en.EvidenceNetwork, problem: Problem) -> en.RareDraws:
    """Fresh rare draws, with thresholds that other draws chose."""
    first = en.rare_draws(deep, problem.models, n=1000, seed=4, progress=False)
    return en.rare_draws(deep, problem.models, n=3000, like=first, seed=5, progress=False)


def far(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return fresh draws whose exact log K lies from 6 to 20, and log K."""
    x = en.simulate(problem.models, 40_000, seed=11, progress=False).x
    assert isinstance(x, np.ndarray)
    exact = problem.log_bayes_factor(x)
    rows = (exact > 6) & (exact < 20)
    return x[rows], exact[rows]


def test_log_k_is_right_far_beyond_plain_draws(
    net: en.EvidenceNetwork, deep: en.EvidenceNetwork, problem: Problem
) -> None:
    x, exact = far(problem)
    before = np.sqrt(np.mean(np.square(net.log_bayes_factor(x) - exact)))
    off = deep.log_bayes_factor(x) - exact
    assert before > 0.7
    assert np.sqrt(np.mean(np.square(off))) < 0.4
    # Stated errors: neither far too small nor far too large. What is off along the grid goes together.
    ratio = np.abs(off) / deep.error(x)
    assert np.quantile(ratio, 0.95) < 4
    assert np.median(ratio) > 0.1


def test_the_validated_range_reaches_as_far(net: en.EvidenceNetwork, deep: en.EvidenceNetwork) -> None:
    assert net.ranges[0].high < 5
    assert deep.ranges[0].high > 18
    assert deep.depth is not None
    assert all(check.verdict != "fail" for check in deep.depth.checks)
    assert deep.depth.rounds in (2, 3)


def test_the_bulk_is_not_worse(net: en.EvidenceNetwork, deep: en.EvidenceNetwork, problem: Problem) -> None:
    fresh = en.simulate(problem.models, 20_000, seed=7, progress=False)
    exact = problem.log_bayes_factor(fresh.x)
    bulk = np.abs(exact) < 3
    before, after = (one.log_bayes_factor(fresh.x)[bulk] - exact[bulk] for one in (net, deep))
    assert np.sqrt(np.mean(after**2)) < max(1.3 * np.sqrt(np.mean(before**2)), 0.06)


def test_fresh_rare_draws_confirm_it(deep: en.EvidenceNetwork, rare: en.RareDraws) -> None:
    check = en.validate(deep, rare)
    # Of a network trained for a few seconds: not exact, but nowhere far off.
    assert check.score.gain > 0.05
    assert all(one.check.verdict != "fail" for one in _tails(deep, rare)), str(check)
    assert isinstance(check.range, Range)
    assert check.range.high > 18
    assert [one.name for one in check.checks].count("tail") == 2
    assert "rare" in str(check)
    assert check.pair(1, 0).coverage.p_value > 1e-3


def _tails(net: en.EvidenceNetwork, rare: en.RareDraws) -> tuple[Tail, ...]:
    rows = rare.plain
    assert isinstance(rare.x, np.ndarray)
    log_k = net.table(rare.x[rows]).mean(axis=0)
    return tails(rare.levels, rare.score[rows], log_k, rare.model[rows], rare.names)


def test_exact_log_k_passes_the_checks_of_rare_draws(problem: Problem, rare: en.RareDraws) -> None:
    """And log K that is a third too large fails: what errors of log P explain is not blamed on log K."""
    drawn = rare.thinned()
    assert isinstance(drawn.x, np.ndarray)
    exact = problem.log_bayes_factor(drawn.x)
    verdicts = []
    for factor in (1.0, 1.3):
        log_k = np.stack([np.zeros(len(exact)), factor * exact], axis=1)
        counts = np.bincount(drawn.model)
        boosted = log_k + settled(drawn, log_k) - np.log(counts / counts[0])
        verdicts.append({check.verdict for check in examine(boosted, drawn.model)[:4]})
    assert "fail" not in verdicts[0]
    assert "fail" in verdicts[1]


def test_they_refute_the_network_that_extrapolates(
    net: en.EvidenceNetwork, deep: en.EvidenceNetwork, rare: en.RareDraws
) -> None:
    failed = {check.name for check in en.validate(net, rare).checks if check.verdict == "fail"}
    assert "tail" in failed
    assert failed & {"coverage", "log-odds bins", "Turing–Good"}
    # And a network whose log K is stretched by a tenth.
    off = replace(deep, loss=deep.loss, gain=1.1 * deep.gain)
    if deep.baseline is None:
        assert not en.validate(off, rare).passed


def test_probabilities_are_those_of_the_model(deep: en.EvidenceNetwork, rare: en.RareDraws) -> None:
    """Weighted by 1/boost, rare draws are plain ones again: the tail of the sum, a gamma number, is right."""
    own = rare.model == 0
    assert isinstance(rare.x, np.ndarray)
    total, weight = rare.x[own].sum(axis=1), -rare.levels[0].log_boost(rare.score[own, 0])
    for bound in (6.0, 12.0, 20.0):
        found = logsumexp(weight[total > bound])
        assert abs(found - stats.gamma(3).logsf(bound)) < 0.35
    assert rare.levels[0].log_p[-1] < -15


def test_rare_draws_are_kept_split_and_drawn(rare: en.RareDraws, tmp_path: Path) -> None:
    path = tmp_path / "draws.rare"
    rare.save(path)
    again = en.RareDraws.load(path)
    np.testing.assert_array_equal(again.x, rare.x)
    np.testing.assert_array_equal(again.offset, rare.offset)
    assert str(again) == str(rare)
    assert "levels up to log-odds" in str(rare)
    first, second = rare.split(0.5, seed=1)
    assert len(first) + len(second) == len(rare)
    assert not set(first.replicate) & set(second.replicate)
    axis = rare.plot()
    assert len(axis.get_legend_handles_labels()[0]) == 4
    with pytest.raises(ValueError, match="no draw is left of level"):
        rare.take(rare.plain)


def test_the_result_is_saved_and_loaded(deep: en.EvidenceNetwork, problem: Problem, tmp_path: Path) -> None:
    deep.save(tmp_path / "deep.evnet")
    again = en.load(tmp_path / "deep.evnet")
    x, _ = far(problem)
    np.testing.assert_array_equal(again.log_bayes_factor(x), deep.log_bayes_factor(x))
    np.testing.assert_array_equal(again.error(x), deep.error(x))
    assert again.ranges == deep.ranges
    assert again.depth is not None
    assert deep.depth is not None
    assert again.depth.checks == deep.depth.checks


def test_answers_and_reports(
    net: en.EvidenceNetwork, deep: en.EvidenceNetwork, problem: Problem, tmp_path: Path
) -> None:
    x = np.array([[6.0, 4.0, 10.0]])
    assert any("deepen" in str(warning) for warning in net.compare(x).warnings)
    answer = deep.compare(x)
    assert answer.in_range
    exact = problem.log_bayes_factor(x)[0]
    assert abs(answer.log_k - exact) < 4 * answer.error + 0.05
    check = en.validate(deep, en.simulate(problem.models, 20_000, seed=8, progress=False))
    assert {one.name for one in check.checks} >= {"coverage", "overfitting", "range"}
    en.write_report(tmp_path / "report.html", deep, check, answer)
    total = deep.combine(np.array([[3.0, 1.0, 2.0], [6.0, 4.0, 5.0]]), independent=True)
    assert (
        abs(total.value - problem.log_bayes_factor(np.array([[3.0, 1.0, 2.0], [6.0, 4.0, 5.0]])).sum())
        < 4 * total.error + 0.1
    )


def test_recalibration_keeps_the_range(deep: en.EvidenceNetwork, problem: Problem) -> None:
    """Whether it helps or not, a deep range stays deep: held-out rare draws are recalibrated too."""
    sims = en.simulate(problem.models, 20_000, seed=9, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", en.RecalibrationWarning)
        again = deep.recalibrate(sims)
    assert deep.ranges[0].high > 20
    assert again.ranges[0].high == pytest.approx(deep.ranges[0].high, rel=0.05)


def test_errors_hold_that_of_log_p(deep: en.EvidenceNetwork, problem: Problem) -> None:
    assert deep.depth is not None
    x, _ = far(problem)
    bare = replace(deep, depth=None)
    log_k = np.stack([np.zeros(len(x)), deep.log_bayes_factor(x)], axis=1)
    added = deep.depth.error(log_k, 1, 0)
    np.testing.assert_allclose(deep.error(x), np.hypot(bare.error(x), added), rtol=1e-6)
    assert added.max() > 0.05
    assert deep.depth.error(np.zeros((1, 2)), 1, 0)[0] < 0.05


def test_tail_checks_need_no_truth(problem: Problem, deep: en.EvidenceNetwork, rare: en.RareDraws) -> None:
    """Exact log K passes on the same draws; log K that is off by a tenth fails."""
    rows = rare.plain
    assert isinstance(rare.x, np.ndarray)
    exact = problem.log_bayes_factor(rare.x[rows])
    log_k = np.stack([np.zeros(len(exact)), exact], axis=1)
    given = rare.score[rows], rare.model[rows]
    good = tails(rare.levels, given[0], log_k, given[1], rare.names)
    bad = tails(rare.levels, given[0], 1.1 * log_k, given[1], rare.names)
    assert all(one.check.verdict == "pass" for one in good)
    assert bad[0].check.verdict == "fail"
    assert "deepen" in bad[0].check.advice


def test_three_models() -> None:
    rng = np.random.default_rng(0)
    design = rng.normal(size=(2, 4))

    def shifted(number: int) -> en.Model:
        return en.Model(
            f"line {number}",
            lambda rng, a: 2 * a[:, None] * design[number] + rng.normal(size=(len(a), 4)),
            prior=lambda rng, n: rng.normal(size=n),
        )

    models = [en.Model("noise", lambda rng, n: rng.normal(size=(n, 4))), shifted(0), shifted(1)]
    sims = en.simulate(models, 20_000, seed=1, progress=False)
    recipe = en.Recipe(epochs=6)
    net = en.train(sims, recipe=recipe, learn_error=False, **QUICK)  # type: ignore[arg-type]
    deep = en.deepen(net, models, n=2000, recipe=recipe, learn_error=False, rounds=1, seed=2, progress=False)

    def exact(x: np.ndarray, k: int) -> np.ndarray:
        cov = np.eye(4) + (0 if k == 0 else 4 * np.outer(design[k - 1], design[k - 1]))
        inverse, size = np.linalg.inv(cov), np.linalg.slogdet(cov)[1]
        return -0.5 * np.einsum("ni,ij,nj->n", x, inverse, x) - 0.5 * size

    fresh = en.simulate(models, 5000, seed=5, progress=False)
    assert isinstance(fresh.x, np.ndarray)
    for k in (1, 2):
        truth = exact(fresh.x, k) - exact(fresh.x, 0)
        rows = (truth > 5) & (truth < 15)
        plain, deepened = (
            np.sqrt(np.mean((one.log_bayes_factor(fresh.x, model=k) - truth)[rows] ** 2))
            for one in (net, deep)
        )
        # Measured with three seeds: 1.9 to 5.7 before, 0.15 to 0.37 after.
        assert plain > 1
        assert deepened < 0.5
        assert deep.ranges[k - 1].high > net.ranges[k - 1].high + 3


def test_mistakes_are_refused(net: en.EvidenceNetwork, problem: Problem) -> None:
    with pytest.raises(ValueError, match="the network compares"):
        en.deepen(net, problem.models[::-1])
    shared = en.Model(problem.models[0].name, lambda rng, n: rng.exponential() + rng.exponential(size=(n, 1)))
    with pytest.raises(UnsteerableError, match="single number"):
        en.rare_draws(net, [shared, problem.models[1]], progress=False)
    with pytest.raises(ValueError, match="at least 200"):
        en.rare_draws(net, problem.models, n=50)


def test_a_budget_of_calls_is_kept(net: en.EvidenceNetwork, problem: Problem) -> None:
    rare = en.rare_draws(net, problem.models, n=1000, calls=40_000, seed=1, progress=False)
    assert rare.calls <= 40_000
    assert "budget" in rare.levels[0].stop


def test_the_same_seed_gives_the_same_draws(net: en.EvidenceNetwork, problem: Problem) -> None:
    one, two = (
        en.rare_draws(net, problem.models, n=400, reach=6, seed=1, workers=w, progress=False) for w in (1, 2)
    )
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.levels[0].log_p, two.levels[0].log_p)
