"""The check of a network on fresh draws: what passes, what fails, and what is said of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws
from evidencenet.checks.recalibration import Recalibration
from evidencenet.checks.scores import score

CHECKS = [
    "fresh draws",
    "coverage",
    "log-odds bins",
    "Turing–Good",
    "mean probability",
    "members",
    "overfitting",
    "training",
    "information",
    "range",
]


def test_the_record(series: Case) -> None:
    check = en.validate(series.net, series.fresh)
    assert check.names == series.net.names
    np.testing.assert_array_equal(check.log_k[:, 0], 0)
    np.testing.assert_array_equal(check.log_k[:, 1], series.net.log_bayes_factor(series.fresh.x))
    np.testing.assert_array_equal(check.label, series.fresh.model)
    assert check.coverage.p_value == en.coverage(check.log_k[:, 1], check.label).p_value
    assert check.range == check.ranges[0]
    best = score(series.problem.log_bayes_factor(series.fresh.x), series.fresh.model)
    # No odds score better than the exact ones, but by chance.
    assert check.score.value > best.value - 3 * best.error
    assert check.score.gain == pytest.approx(best.gain, rel=0.1)
    assert abs(check.moments[0].z) < 4


def test_text(series: Case, three: Case) -> None:
    text = str(en.validate(series.net, series.fresh))
    assert text.startswith("Validation on 10,000 fresh draws: passed")
    lines = text.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 110
    assert "for growth" in text
    assert "nats" in text
    check = en.validate(three.net, three.fresh)
    assert "the lowest of 3 models" in str(check)
    assert [one.name for one in check.checks] == CHECKS


@pytest.mark.parametrize(("gain", "verdict"), [(-0.01, "pass"), (0.02, "fail")])
def test_another_kind_that_was_tried_is_compared(three: Case, gain: float, verdict: str) -> None:
    rival = {"plan": "Sequence", "gain": gain, "error": 0.001}
    check = en.validate(replace(three.net, made={**three.net.made, "rival": rival}), three.fresh)
    after = CHECKS.index("training") + 1
    assert [one.name for one in check.checks] == [*CHECKS[:after], "other kinds", *CHECKS[after:]]
    assert check.checks[after].verdict == verdict


def test_a_failed_check_fits_the_screen(small: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check = validated(monkeypatch, small, lambda log_k: 3 * log_k - 1)
    lines = str(check).splitlines()
    assert lines[0].startswith("Validation on 20,000 fresh draws: FAILED ")
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 110
    assert sum(line.strip().startswith("→") for line in lines) == sum(
        bool(one.advice) for one in check.checks
    )


def test_shares_of_the_fresh_draws_do_not_matter(three: Case) -> None:
    fresh = en.simulate(three.problem.models, 4_000, seed=9, fractions=(5, 2, 1), progress=False)
    check = en.validate(three.net, fresh)
    assert check.passed
    # Knowing nothing but the shares is worth their entropy.
    shares = np.array(fresh.counts) / len(fresh)
    assert check.score.nothing == pytest.approx(-shares @ np.log(shares))


@pytest.mark.parametrize("k", [0, 1, 2])
def test_any_model_that_is_wrong_fails(three: Case, k: int) -> None:
    shift = 0.5 * (np.arange(3) == k)
    wrong = Recalibration(shift - shift[0], np.zeros(0), np.ones(1))
    check = en.validate(replace(three.net, recalibration=(wrong,)), three.fresh)
    assert not check.passed
    assert {"coverage", "mean probability"} <= failed(check)
    assert "do not match the draws" in str(check)


def validated(
    monkeypatch: pytest.MonkeyPatch, case: Case, distort: Callable[[np.ndarray], np.ndarray]
) -> en.Validation:
    """Validate a network whose two members give the exact log K, distorted."""

    def table(net: en.EvidenceNetwork, x: np.ndarray) -> np.ndarray:
        log_k = distort(case.problem.log_bayes_factor(x))
        both = np.stack([log_k + 0.01, log_k - 0.01])
        return np.stack([np.zeros_like(both), both], axis=2)

    monkeypatch.setattr(en.EvidenceNetwork, "table", table)
    # The learning curves are those of a network trained for three epochs only.
    net = replace(case.net, gain=np.zeros(2))
    return en.validate(net, draws(case.problem, 20_000, seed=21))


def failed(check: en.Validation) -> set[str]:
    return {one.name for one in check.checks if one.verdict == "fail"}


def test_the_exact_answer_passes(small: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check = validated(monkeypatch, small, lambda log_k: log_k)
    assert check.passed
    assert check.warnings == ()


@pytest.mark.parametrize(
    ("distort", "seen_by"),
    [
        (lambda log_k: 2 * log_k, {"coverage", "log-odds bins", "mean probability"}),
        (lambda log_k: log_k + 0.3, {"coverage", "log-odds bins", "Turing–Good", "mean probability"}),
        (lambda log_k: np.clip(log_k, -3, 3), {"coverage", "log-odds bins", "Turing–Good"}),
        (lambda log_k: np.random.default_rng(1).permutation(log_k), {"coverage", "log-odds bins"}),
    ],
    ids=["doubled", "shifted", "truncated", "shuffled"],
)
def test_wrong_answers_are_caught_by_name(
    small: Case,
    monkeypatch: pytest.MonkeyPatch,
    distort: Callable[[np.ndarray], np.ndarray],
    seen_by: set[str],
) -> None:
    assert seen_by <= failed(validated(monkeypatch, small, distort))


def test_too_little_data_is_caught() -> None:
    problem = en.problems.mean_test(size=20)
    # A dense network does not know that the order of the numbers means nothing: its members differ.
    network, recipe = en.networks.Dense(), en.Recipe(epochs=30)
    options: dict[str, Any] = {"baseline": False, "learn_error": False, "progress": False}
    net = en.train(draws(problem, 400, seed=1), network=network, members=2, recipe=recipe, **options)
    check = en.validate(net, draws(problem, 20_000, seed=2))
    assert {"coverage", "log-odds bins"} <= failed(check)
    assert "members" in {one.name for one in check.warnings} | failed(check)


def test_shuffled_labels_teach_nothing_which_is_said(small: Case) -> None:
    label = np.random.default_rng(1).permutation(small.sims.model)
    shuffled = en.Simulations(small.sims.x, label, small.sims.names)
    options: dict[str, Any] = {"baseline": False, "learn_error": False, "progress": False}
    net = en.train(shuffled, members=2, recipe=en.Recipe(epochs=3), seed=2, **options)
    check = en.validate(net, small.fresh)
    assert not check.informative
    assert "information" in {one.name for one in check.warnings}


def test_knowing_nothing_is_calibrated_and_says_so() -> None:
    rng = np.random.default_rng(1)
    sims = en.Simulations(rng.normal(size=(4_000, 3)), np.arange(4_000) % 2)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=2), learn_error=False, progress=False)
    check = en.validate(net, en.Simulations(rng.normal(size=(4_000, 3)), np.arange(4_000) % 2))
    assert check.passed
    assert not check.informative
    assert "information" in {one.name for one in check.warnings}
    assert "no better than chance" in " ".join(str(check).split())


def test_plot(series: Case) -> None:
    axes = en.validate(series.net, series.fresh).plot()
    assert len(axes) == 3


def test_not_simulations(small: Case) -> None:
    with pytest.raises(TypeError, match="validate takes Simulations, got a ndarray; make some with simulate"):
        en.validate(small.net, small.fresh.x)  # type: ignore[arg-type]


@pytest.mark.parametrize(("net", "kind"), [(3, "a int"), (None, "None")])
def test_not_a_network(small: Case, net: Any, kind: str) -> None:
    with pytest.raises(
        TypeError, match=rf"wanted a network made by train or load, got {kind}.*checks\.examine"
    ):
        en.validate(net, small.fresh)


def test_other_models(small: Case) -> None:
    x, model = small.fresh.x, small.fresh.model
    for names in (("a", "b"), small.net.names[::-1]):
        sims = en.Simulations(x, model, names=names)
        with pytest.raises(ValueError, match=r"the draws are of .*; the network compares .*, in this order"):
            en.validate(small.net, sims)


def test_other_data(small: Case) -> None:
    sims = en.Simulations(np.asarray(small.fresh.x)[:, :4], small.fresh.model, names=small.net.names)
    with pytest.raises(
        ValueError, match=r"x has shape \(2000, 4\); this network wants one observation of shape \(5,\)"
    ):
        en.validate(small.net, sims)


def weighted_draws(n: int, wide: float) -> tuple[en.Simulations, Callable[[np.ndarray], np.ndarray]]:
    """N(0, 1) against N(0, 1.5²) in five dimensions; the latter drawn wider, with weights for it."""
    rng = np.random.default_rng(3)
    label = np.repeat([0, 1], n)
    x = rng.normal(size=(2 * n, 5)) * np.where(label == 1, wide, 1.0)[:, None]

    def log_density(x: np.ndarray, scale: float) -> np.ndarray:
        return -0.5 * np.sum(x**2, axis=1) / scale**2 - x.shape[1] * np.log(scale)

    log_weight = np.where(label == 1, log_density(x, 1.5) - log_density(x, wide), 0.0)
    sims = en.Simulations(x, label, ("zero mean", "free mean"), log_weight=log_weight)
    return sims, lambda x: log_density(x, 1.5) - log_density(x, 1.0)


def test_weighted_draws(small: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    sims, exact = weighted_draws(10_000, 2.0)

    def table(net: en.EvidenceNetwork, x: np.ndarray) -> np.ndarray:
        return np.stack([np.stack([np.zeros(len(x)), exact(x)], axis=1)] * 2)

    monkeypatch.setattr(en.EvidenceNetwork, "table", table)
    check = en.validate(small.net, sims)
    kept = np.bincount(check.label)
    # Draws of equal weight are all kept; of the others a part, in all fewer than they are worth.
    assert kept[0] == 10_000
    assert 1_500 < kept[1] < sims.effective_sample_size[1] < 10_000
    assert check.passed
    assert check.weighted == tuple(zip((10_000, 10_000), sims.effective_sample_size, strict=True))
    assert "fresh draws of equal weight, thinned from 20,000 weighted ones that count as" in " ".join(
        str(check).split()
    )
    again = en.validate(small.net, sims)
    np.testing.assert_array_equal(again.log_k, check.log_k)
    # Without their weights the same draws are of another model, for which log K is wrong.
    bare = en.Simulations(sims.x, sims.model, sims.names)
    assert "coverage" in failed(en.validate(small.net, bare))


def test_weights_that_leave_nothing(small: Case) -> None:
    sims, _ = weighted_draws(100, 20.0)
    with pytest.raises(
        ValueError, match=r"draws of equal weight are left of \[100, 100\] weighted ones.*wanted 20 of each"
    ):
        en.validate(small.net, sims)


def test_any_pair(three: Case) -> None:
    check = en.validate(three.net, three.fresh)
    names, counts = three.net.names, three.fresh.counts
    assert check.pair(2, 0).range == check.ranges[1]
    assert check.pair(2, 0).moments == check.moments[1]
    assert check.pair(names[2], names[1]).range.n == (counts[1], counts[2])
    assert check.pair(1, 2).range == check.pair(2, 1).range.reversed()
    assert [(pair.model, pair.against) for pair in check.pairs] == [
        (names[1], names[0]),
        (names[2], names[0]),
        (names[2], names[1]),
    ]
    with pytest.raises(ValueError, match="there is no model 3"):
        check.pair(3, 0)
    with pytest.raises(ValueError, match="wanted two models"):
        check.pair(1, 1)


def test_coverage_of_every_pair(three: Case) -> None:
    check = en.validate(three.net, three.fresh)
    rows = check.to_dataframe(by="pair")
    assert list(rows["draws"]) == [sum(three.fresh.counts[i] for i in p) for p in ((0, 1), (0, 2), (1, 2))]
    # All three pass at 1% together; log K of one model that is too large is noticed in its own pairs.
    assert rows["coverage_p"].min() > 0.01 / 3
    assert rows["turing_good_p"].min() > 0.01 / 3
    wrong = check.log_k.copy()
    wrong[:, 2] += 1.0
    off = replace(check, log_k=wrong).to_dataframe(by="pair")
    np.testing.assert_array_equal(off["coverage_p"].to_numpy() < 1e-4, [False, True, True])
    assert off["coverage_p"].iloc[0] == rows["coverage_p"].iloc[0]


def test_every_model(three: Case) -> None:
    check = en.validate(three.net, three.fresh)
    rows = check.to_dataframe(by="model")
    assert list(rows.index) == list(three.net.names)
    assert list(rows["coverage_p"]) == [test.p_value for test in check.coverages]
    assert rows["mean_probability"].sum() == pytest.approx(1)
    # A share of n draws has an error below 0.5/√n.
    np.testing.assert_allclose(
        rows["mean_probability"], rows["share"], atol=4 * 0.5 / np.sqrt(len(check.label))
    )
    with pytest.raises(ValueError, match='wanted "check", "model" or "pair"'):
        check.to_dataframe(by="draw")  # type: ignore[arg-type]


def test_too_few_draws(small: Case) -> None:
    with pytest.raises(ValueError, match="two draws of each model"):
        en.validate(small.net, small.fresh.take([0, 1_500]))
