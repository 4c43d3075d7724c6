"""The answer for one observation: its numbers, its words, and its warnings."""

import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws
from evidencenet.comparison import compare, jeffreys
from evidencenet.trust import Range

WIDE = Range(-5.0, 5.0, (1_000, 1_000), 10, empty=False)


def answer(log_k: float, error: float = 0.1, held: Range = WIDE, novelty: float = 0.5) -> en.Comparison:
    return compare(
        ("flat", "trend"),
        np.array([0.0, log_k]),
        np.array([0.0, error]),
        np.zeros(2),
        (held,),
        np.full(2, novelty),
    )


def test_numbers_are_the_networks(series: Case) -> None:
    x = np.asarray(series.fresh.x)[:1]
    found = series.net.compare(x, prior=[0.3, 0.7])
    assert found.log_k == series.net.log_bayes_factor(x)[0]
    assert found.error == pytest.approx(series.net.error(x)[0])
    np.testing.assert_array_equal(found.probabilities, series.net.probabilities(x, prior=[0.3, 0.7])[0])
    assert found.names == series.net.names
    assert found.novelty.shape == (2,)
    assert found.range == series.net.ranges[0]
    assert found.log_k == series.net.compare(x[0]).log_k


def test_three_models(three: Case) -> None:
    x = np.asarray(three.fresh.x)[0]
    found = three.net.compare(x)
    wanted = [three.net.log_bayes_factor(x, model=k)[0] for k in range(3)]
    np.testing.assert_array_equal(found.log_k, wanted)
    assert np.asarray(found.error).shape == (3,)
    assert isinstance(found.range, tuple)
    assert len(found.range) == 2
    text = str(found)
    places = [text.index(f"  {three.net.names[k]} ") for k in np.argsort(wanted)[::-1]]
    assert places == sorted(places)


def test_one_observation_at_a_time(small: Case) -> None:
    with pytest.raises(ValueError, match=r"one observation, got 3.*simulate them together.*log_bayes_factor"):
        small.net.compare(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="one observation, got 0"):
        small.net.compare(np.zeros((0, 5)))


@pytest.mark.parametrize(
    ("log_k", "favoured", "odds", "words"),
    [
        (np.log(20.0), "trend over flat", "20 : 1", "strong evidence"),
        (-np.log(20.0), "flat over trend", "20 : 1", "strong evidence"),
        (0.3, "trend over flat", "1.35 : 1", "barely worth mentioning"),
        (4.0, "trend over flat", "54.6 : 1", "very strong evidence"),
        (2_000.0, "trend over flat", "3.88 × 10⁸⁶⁸ : 1", "decisive evidence"),
    ],
)
def test_words(log_k: float, favoured: str, odds: str, words: str) -> None:
    text = str(answer(log_k))
    assert text.startswith("trend against flat")
    assert f"{odds} for {favoured}: {words}" in text
    assert "natural log" in text


def test_both_logarithms_with_their_errors() -> None:
    text = str(answer(-2.302585, 0.23))
    assert "log K           -2.30 ± 0.23 (natural log; log10 K -1.000 ± 0.100)" in text
    assert "probabilities   flat 0.9091, trend 0.09091" in text


@pytest.mark.parametrize("error", [1e-9, 3e-4, 0.0, 7.0, 4e5, np.nan])
def test_any_error_can_be_printed(error: float) -> None:
    assert "log K" in str(answer(1.0, error))


@pytest.mark.parametrize(
    ("log_k", "grade"),
    [
        (0.0, "barely worth mentioning"),
        (1.15, "barely worth mentioning"),
        (1.16, "substantial evidence"),
        (-2.31, "strong evidence"),
        (3.46, "very strong evidence"),
        (4.61, "decisive evidence"),
        (-1e9, "decisive evidence"),
    ],
)
def test_jeffreys_grades(log_k: float, grade: str) -> None:
    # The grades change at powers of √10, log K = 1.151, 2.303, 3.454, 4.605.
    assert jeffreys(log_k) == grade


def test_warnings_beyond_the_range() -> None:
    assert answer(4.9).warnings == ()
    (above,) = answer(5.1).warnings
    assert above == "trend against flat: log K > 5.0 is all that 2,000 held-out draws can confirm."
    (below,) = answer(-5.1).warnings
    assert below == "trend against flat: log K < -5.0 is all that 2,000 held-out draws can confirm."
    (none,) = answer(0.0, held=Range(0.0, 0.0, (100, 100), 10, empty=True)).warnings
    assert "can confirm no log K" in none
    assert f"Warning: {above}" in str(answer(5.1))


def test_warning_of_strange_data() -> None:
    (strange,) = answer(1.0, novelty=1e-4).warnings
    assert "no model produces data like this" in strange
    assert "compares wrong models" in strange
    assert answer(1.0, novelty=0.01).warnings == ()


def test_usual_data_are_not_strange(series: Case) -> None:
    found = [series.net.compare(x) for x in np.asarray(series.fresh.x)[::500]]
    assert not any("no model produces" in warning for f in found for warning in f.warnings)
    # How far out draws lie is uniform among the draws.
    p = series.net.novelty.p_value(series.net.scaling(series.fresh.x)) if series.net.novelty else None
    assert p is not None
    own = p[np.arange(len(p)), series.fresh.model]
    assert np.mean(own) == pytest.approx(0.5, abs=0.02)
    assert np.mean(own < 0.1) == pytest.approx(0.1, abs=0.02)


def test_strange_data_are_noticed(series: Case) -> None:
    x = np.asarray(series.fresh.x)[0]
    found = series.net.compare(x + 30 * np.std(np.asarray(series.sims.x), axis=0))
    assert np.all(found.novelty < 1e-3)
    assert any("no model produces data like this" in warning for warning in found.warnings)
    assert "no model produces data like this" in str(found)


def test_strange_data_are_noticed_by_a_network_of_few_draws(small: Case) -> None:
    # Six hundred held-out draws know p-values down to 1/300 only; farther out than all of them is strange.
    found = small.net.compare(np.array([50.0, -50.0, 50.0, -50.0, 50.0]))
    assert any("no model produces data like this" in warning for warning in found.warnings)


def test_strong_evidence_is_beyond_the_range() -> None:
    problem = en.problems.mean_test(size=5, spread=10.0)
    sims = draws(problem, 4_000, seed=1)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=2), baseline=True, progress=False)
    found = net.compare(np.full(5, 10.0))
    assert found.log_k > 10
    assert any("400 held-out draws can confirm" in warning for warning in found.warnings)
