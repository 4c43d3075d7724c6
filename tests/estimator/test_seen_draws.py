"""What a network keeps of its training draws: constants that an observation breaks, and draws used again."""

from pathlib import Path

import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws
from evidencenet.estimator.seen_draws import SeenDraws, place_text, row_hashes


def noisy(shift: float, fails: float = 0.0) -> en.Model:
    """Five numbers, of which the last is 1 in every draw."""

    def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.normal(size=(n, 5)) + shift
        x[:, 4] = 1.0
        x[rng.random(n) < fails] = np.nan
        return x

    return en.Model(f"shift {shift:g}", simulate)


def trained(models: list[en.Model]) -> en.EvidenceNetwork:
    sims = en.simulate(models, 6_000, seed=1, progress=False)
    recipe = en.Recipe(epochs=2)
    return en.train(sims, members=2, recipe=recipe, learn_error=False, seed=2, progress=False)


@pytest.fixture(scope="module")
def net() -> en.EvidenceNetwork:
    return trained([noisy(0.0), noisy(0.5)])


def test_a_constant_that_differs_is_named(net: en.EvidenceNetwork, tmp_path: Path) -> None:
    usual = np.array([0.1, 0.2, 0.3, 0.4, 1.0])
    other = np.array([0.1, 0.2, 0.3, 0.4, 2.0])
    assert net.compare(usual).warnings == ()
    assert net.novelty_p_value(usual).min() > 0.1
    net.save(tmp_path / "net")
    for one in (net, en.load(tmp_path / "net")):
        answer = one.compare(other)
        assert one.novelty is not None
        # As small as a p-value can be, for every model.
        np.testing.assert_array_equal(answer.novelty, 1 / (1 + one.novelty.counts))
        (constant,) = (w for w in answer.warnings if w.kind == "constant")
        assert str(constant).startswith("x[4] was 1 in every draw of every model; here it is 2.")
        assert "x[4] was 1" in str(answer)
    # Rounding is no departure, and log K of the others is as before.
    assert net.compare(np.array([0.1, 0.2, 0.3, 0.4, 1 + 1e-16])).warnings == ()
    many = net.compare(np.stack([usual, other]))
    assert [len(answer.warnings) for answer in many] == [0, 2]


def test_places_are_named_as_in_python() -> None:
    assert place_text(3, np.zeros(5)) == "x[3]"
    assert place_text(5, np.zeros((2, 3))) == "x[1, 2]"
    assert place_text(4, {"a": np.zeros(3), "b": np.zeros((1, 2))}) == "x['b'][0, 1]"


def test_hashes_tell_rows_apart_and_know_them_again() -> None:
    x = np.random.default_rng(1).normal(size=(200_000, 3))
    hashes = row_hashes(x)
    assert len(np.unique(hashes)) == 200_000
    np.testing.assert_array_equal(row_hashes(x.astype(np.float32)), hashes)
    np.testing.assert_array_equal(row_hashes({"a": x[:, :1], "b": x[:, 1:]}), hashes)
    assert not np.any(row_hashes(x[:, ::-1]) == hashes)
    # All bits are used: the fraction below a threshold is that of the threshold.
    assert np.mean(hashes < np.uint64(2**60)) == pytest.approx(1 / 16, abs=0.003)


def test_a_sketch_estimates_the_part_used_again() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(100_000, 2))
    seen = SeenDraws.of(x, np.arange(90_000), np.arange(90_000, 100_000))
    assert seen.chance == 0
    mixed = np.concatenate([x[:20_000], rng.normal(size=(60_000, 2))])
    looked_up, known = seen.used_again(mixed)
    error = np.sqrt(0.25 * 0.75 / looked_up)
    assert known / looked_up == pytest.approx(0.25, abs=4 * error)
    assert seen.used_again(rng.normal(size=(80_000, 2)))[1] == 0


def test_validate_notices_draws_of_the_training(small: Case) -> None:
    check = en.validate(small.net, small.sims)
    first = check.checks[0]
    assert (first.name, first.verdict) == ("fresh draws", "fail")
    assert "About 90% of these draws were used in training" in first.finding
    assert not check.passed
    assert "fresh" not in str(check).splitlines()[0]
    fresh = en.validate(small.net, small.fresh)
    assert fresh.checks[0].verdict == "pass"
    assert "2,000 fresh draws" in str(fresh).splitlines()[0]
    # A few of them among many: no failure.
    x = np.concatenate([np.asarray(draws(small.problem, 20_000, seed=8).x), np.asarray(small.sims.x)[:40]])
    label = np.concatenate([np.repeat([0, 1], 10_000), small.sims.model[:40]])
    some = en.validate(small.net, en.Simulations(x, label, small.sims.names))
    assert some.checks[0].verdict == "warn"


@pytest.mark.filterwarnings("ignore::evidencenet.EvidenceWarning")
def test_validate_notices_draws_that_repeat(small: Case) -> None:
    few = draws(small.problem, 500, seed=9)
    sims = en.Simulations(np.tile(np.asarray(few.x), (8, 1)), np.tile(few.model, 8), few.names)
    (check,) = (one for one in en.validate(small.net, sims).checks if one.name == "fresh draws")
    assert check.verdict == "warn"
    assert check.finding == "Only 500 of 4,000 draws are distinct."


def test_counts_repeat_by_chance() -> None:
    rng = np.random.default_rng(4)

    def counts(n: int) -> en.Simulations:
        label = np.arange(n) % 2
        return en.Simulations(rng.poisson(2.0 + label[:, None], size=(n, 2)).astype(float), label)

    recipe = en.Recipe(epochs=1)
    net = en.train(counts(4_000), members=1, recipe=recipe, learn_error=False, progress=False)
    assert net.seen is not None
    assert net.seen.chance > 0.9
    (check,) = (one for one in en.validate(net, counts(4_000)).checks if one.name == "fresh draws")
    assert check.verdict == "pass"


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_failed_draws_are_said_where_they_count() -> None:
    net = trained([noisy(0.0), noisy(0.5, fails=0.4)])
    answer = net.compare(np.array([0.1, 0.2, 0.3, 0.4, 1.0]))
    term = net.log_valid[1] - net.log_valid[0]
    assert answer.failed_term() == pytest.approx(term)
    assert answer.failed_term(0, 1) == pytest.approx(-term)
    assert abs(term - np.log(0.6)) < 0.05
    assert f"failed draws    {term:.2f} of log K of shift 0.5 against shift 0 comes from draws that" in str(
        answer
    )
    assert answer.to_dict()["failed_term"] == pytest.approx(term)
    # Without failures nothing is said.
    same = trained([noisy(0.0), noisy(0.5)])
    assert "failed draws" not in str(same.compare(np.array([0.1, 0.2, 0.3, 0.4, 1.0])))
