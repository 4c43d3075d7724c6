"""The answer for one observation: its numbers, its words, and its warnings."""

import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws
from evidencenet._common.wording import jeffreys, kass_raftery
from evidencenet.checks.range import Range
from evidencenet.estimator.answer import Lead, compare

WIDE = Range(-5.0, 5.0, (1_000, 1_000), 10, empty=False)
EMPTY = Range(0.0, 0.0, (100, 100), 10, empty=True)


def answer(log_k: float, error: float = 0.1, held: Range = WIDE, novelty: float = 0.5) -> en.Comparison:
    favoured = int(log_k >= 0)
    lead = Lead(favoured, 1 - favoured, abs(log_k), error, held if favoured else held.reversed())
    return compare(
        ("flat", "trend"),
        np.array([0.0, log_k]),
        np.array([0.0, error]),
        np.zeros(2),
        (held,),
        np.full(2, novelty),
        lead,
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
    assert found.lead.log_k == abs(found.log_k)
    assert found.lead.error == pytest.approx(found.error)
    assert found.inside == found.range.contains(found.log_k)


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
    best, other = np.argsort(wanted)[::-1][:2]
    lead = found.lead
    assert (lead.best, lead.other) == (best, other)
    assert lead.log_k == pytest.approx(wanted[best] - wanted[other])
    assert lead.error == pytest.approx(three.net.error(x, model=int(best), against=int(other))[0])
    assert isinstance(found.inside, tuple)
    assert len(found.inside) == 2
    assert f"for {three.net.names[best]} over {three.net.names[other]}: " in text
    # Its range is that of the held-out draws of just these two models.
    held = three.net.held_out
    pair = np.isin(held.label, (best, other))
    assert lead.range.n == (np.sum(held.label[pair] == other), np.sum(held.label[pair] == best))


def test_beyond_the_range_of_one_of_several_models() -> None:
    ranges = (WIDE, Range(-2.0, 2.0, (500, 500), 10, empty=False))
    lead = Lead(2, 1, 26.0, 0.2, WIDE)
    log_k, error = np.array([0.0, 4.0, 30.0]), np.array([0.0, 0.1, 0.2])
    found = compare(("a", "b", "c"), log_k, error, np.zeros(3), ranges, np.full(3, np.nan), lead)
    assert found.inside == (True, False)
    lines = str(found).splitlines()
    assert lines[1].startswith(
        "  c               log K > 2.0 (beyond what 1,000 held-out draws can confirm; the network says 30);"
    )
    assert "  b               log K 4.00 ± 0.10; probability 5.11 × 10⁻¹²" in lines
    assert "more than 148 : 1 for c over b: decisive evidence by Jeffreys, strong by Kass & Raftery" in str(
        found
    )
    assert "confirmed log K b from -5.00 to 5.00; c from -2.00 to 2.00" in str(found)
    assert len(found.warnings) == 1


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
        (4.9, "trend over flat", "134 : 1", "decisive evidence"),
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
    assert "probabilities   flat 0.909, trend 0.0909" in text
    assert "range           natural log K from -5.00 to 5.00 is confirmed by 2,000 held-out draws" in text
    assert max(map(len, text.splitlines())) <= 110


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


@pytest.mark.parametrize(
    ("log_k", "words"),
    [(0.9, "not worth more than a bare mention"), (-1.1, "positive"), (3.1, "strong"), (-5.1, "very strong")],
)
def test_kass_raftery_grades(log_k: float, words: str) -> None:
    # The grades change at 2 log K = 2, 6 and 10.
    assert kass_raftery(log_k) == words


def test_beyond_the_range() -> None:
    assert answer(4.9).warnings == ()
    assert answer(4.9).inside is True
    above = answer(31.0)
    assert above.inside is False
    (warning,) = above.warnings
    assert warning.startswith(
        "trend against flat: log K > 5.0 (beyond what 2,000 held-out draws can confirm;"
    )
    text = str(above)
    assert "log K           > 5.0 (beyond what 2,000 held-out draws can confirm; the network says 31)" in text
    assert "log10 K         > 2.17 (the network says 13.5)" in text
    # Words are about what is confirmed, log K = 5, not about what the network says.
    assert (
        "odds            more than 148 : 1 for trend over flat: decisive evidence by Jeffreys, strong by"
        in text
    )
    assert "(if the network extrapolates well)" in text
    assert "±" not in text
    assert "Warning" not in text
    below = answer(-5.17)
    assert below.warnings[0].startswith("trend against flat: log K < -5.0 (beyond what")
    assert "more than 148 : 1 for flat over trend" in str(below)


def test_bounds_claim_no_more_than_is_confirmed() -> None:
    held = Range(-1.08, 9.28, (25_000, 25_000), 10, empty=False)
    assert "log K           > 9.2 (beyond what 50,000 held-out draws can confirm" in str(
        answer(31.0, held=held)
    )
    assert "more than 9,900 : 1 for trend" in str(answer(31.0, held=held))
    assert "log K           < -1.0 (beyond" in str(answer(-3.0, held=held))


def test_a_bound_on_the_wrong_side_settles_nothing() -> None:
    found = answer(0.5, held=Range(-5.0, -1.0, (100, 100), 10, empty=False))
    assert "log K           > -1.0 (beyond" in str(found)
    assert "odds            not settled (the network says 1.65 : 1) for trend over flat" in str(found)
    assert found.lead.words() == ""
    less = answer(0.5, held=Range(1.0, 5.0, (100, 100), 10, empty=False))
    assert "log K           < 1.0 (beyond" in str(less)
    assert "less than 2.72 : 1 for trend over flat: barely worth mentioning" in str(less)


def test_an_empty_range() -> None:
    found = answer(31.0, held=EMPTY)
    assert found.inside is False
    text = str(found)
    assert (
        "log K           not confirmed: the models overlap too little among 200 held-out draws (the" in text
    )
    assert found.warnings[0].endswith("among 200 held-out draws (the network says 31).")
    assert "odds            not confirmed (the network says 2.9 × 10¹³ : 1) for trend over flat" in text
    assert "Jeffreys" not in text
    assert "range  " not in text
    assert np.isnan(found.lead.confirmed)
    assert found.to_dict()["range"] is None
    assert found.to_dict()["best_against_second"]["confirmed_log_k"] is None
    assert np.isnan(found.to_dataframe()["range_high"]).all()


def test_novelty_that_was_not_computed() -> None:
    found = answer(1.0, novelty=float("nan"))
    assert "nan" not in str(found)
    assert "like the draws? not computed for data of so many numbers" in str(found)
    assert found.warnings == ()
    assert found.to_dict()["novelty"] == [None, None]


def test_to_dict() -> None:
    found = answer(2.302585, 0.23).to_dict()
    assert found["log10_k"] == pytest.approx(1)
    assert found["log10_error"] == pytest.approx(0.1, rel=0.01)
    assert (found["best"], found["second"]) == ("trend", "flat")
    assert found["range"] == {"low": -5.0, "high": 5.0, "draws": 2_000}
    assert found["inside"] is True
    assert found["recalibrated_on"] is None


def test_warning_of_strange_data() -> None:
    (strange,) = answer(1.0, novelty=1e-4).warnings
    assert "no model produces data like this" in strange
    assert "compares wrong models" in strange
    assert answer(1.0, novelty=0.01).warnings == ()


def test_usual_data_are_not_strange(series: Case) -> None:
    found = [series.net.compare(x) for x in np.asarray(series.fresh.x)[::500]]
    assert not any("no model produces" in warning for f in found for warning in f.warnings)
    # How far out draws lie is uniform among the draws.
    p = series.net.novelty_p_value(series.fresh.x)
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
    assert not found.inside
    assert "400 held-out draws" in found.warnings[0]
    assert "the network says" in str(found)
