"""The answer for one observation: its numbers, its words, and its warnings."""

import pickle

import numpy as np
import pytest
from scipy.special import expit, softmax

import evidencenet as en
from conftest import Case, draws
from evidencenet._common.wording import jeffreys, kass_raftery
from evidencenet.checks.range import Range
from evidencenet.estimator.answer import Evaluated, Extrapolated, probability_errors

WIDE = Range(-5.0, 5.0, (1_000, 1_000), 10, empty=False)
EMPTY = Range(0.0, 0.0, (100, 100), 10, empty=True)


def evaluated(
    log_k: list[float], errors: list[float], ranges: list[Range], novelty: float = 0.5
) -> Evaluated:
    """Log K of each model against the first, and errors and ranges of every two models."""
    pairs = len(errors)
    names = ("flat", "trend") if pairs == 1 else ("a", "b", "c")
    return Evaluated(
        names,
        np.array([[0.0, *log_k]]),
        np.array([errors]),
        np.zeros((1, pairs), dtype=bool),
        tuple(ranges),
        np.full((1, len(names)), novelty),
    )


def answer(log_k: float, error: float = 0.1, held: Range = WIDE, novelty: float = 0.5) -> en.Comparison:
    return evaluated([log_k], [error], [held], novelty).answer(0, np.zeros(2))


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
    assert found.in_range == found.range.contains(found.log_k)


def test_three_models(three: Case) -> None:
    x = np.asarray(three.fresh.x)[0]
    found = three.net.compare(x)
    wanted = np.array([three.net.log_bayes_factor(x, model=k)[0] for k in range(3)])
    order = np.argsort(wanted)[::-1]
    assert list(found.ranking) == list(order)
    best, other = (int(k) for k in order[:2])
    # One pair, of floats, whatever the number of models: the best against the second best.
    assert isinstance(found.log_k, float)
    assert isinstance(found.error, float)
    assert isinstance(found.range, Range)
    assert (found.model, found.against) == (three.net.names[best], three.net.names[other])
    assert found.log_k == pytest.approx(wanted[best] - wanted[other])
    assert found.error == pytest.approx(three.net.error(x, model=best, against=other)[0])
    # Its range is that of the held-out draws of just these two models.
    held = three.net.held_out
    pair = np.isin(held.label, (best, other))
    assert found.range.n == (np.sum(held.label[pair] == other), np.sum(held.label[pair] == best))
    assert len(found.pairs) == 3
    for model, against in ((1, 0), (2, 0), (2, 1), (0, 2)):
        asked = three.net.compare(x, model=model, against=three.net.names[against])
        assert asked.log_k == pytest.approx(wanted[model] - wanted[against])
        assert asked.log_k == found.pair(model, against).log_k
        assert asked.error == pytest.approx(three.net.error(x, model=model, against=against)[0])
        assert asked.range == three.net.held_out.range(model, against)
    text = str(found)
    places = [text.index(f"  {three.net.names[k]} ") for k in order]
    assert places == sorted(places)
    assert f"for {three.net.names[best]} over {three.net.names[other]}: " in text


def test_beyond_the_range_of_one_of_several_models() -> None:
    ranges = [WIDE, Range(-2.0, 2.0, (500, 500), 10, empty=False), WIDE]
    found = evaluated([4.0, 30.0], [0.1, 0.2, 0.2], ranges, float("nan")).answer(0, np.zeros(3))
    assert (found.model, found.against) == ("c", "b")
    assert [pair.in_range for pair in found.pairs] == [True, False, False]
    lines = " ".join(str(found).split())
    assert "c probability > 0.9999; log K > 2.0 (97.5% bound, beyond the validated range of 1,000" in lines
    assert "b probability 5.11 × 10⁻¹²; log K 4.00 ± 0.10" in lines
    assert "more than 148 : 1 for c over b: decisive evidence by Jeffreys" in lines
    assert "validated range log K of b from -5.00 to 5.00; c from -2.00 to 2.00" in lines
    assert [warning.kind for warning in found.warnings] == ["range"]


def test_several_observations_are_a_table(small: Case) -> None:
    x = np.asarray(small.fresh.x)[:60]
    found = small.net.compare(x, prior=[0.3, 0.7])
    assert len(found) == 60
    for i in (0, 17, 59):
        single = small.net.compare(x[i], prior=[0.3, 0.7])
        # One observation uses another compiled program, which rounds differently.
        assert float(found[i].log_k) == pytest.approx(float(single.log_k), abs=1e-5)
        assert found[i].error == pytest.approx(single.error, rel=1e-4)
        np.testing.assert_allclose(found[i].probabilities, single.probabilities, atol=1e-5)
    np.testing.assert_allclose([float(one.log_k) for one in found], small.net.log_bayes_factor(x), atol=1e-6)
    assert len(found.table().splitlines()) == 61
    assert "20 more observations" in str(found)
    assert len(str(found[:3]).splitlines()) == 4
    table = found.to_dataframe()
    assert table["log_k"].to_numpy() == pytest.approx(small.net.log_bayes_factor(x), abs=1e-6)
    assert table.filter(like="p(").sum(axis=1).to_numpy() == pytest.approx(1)
    assert len(found.to_dict()["answers"]) == 60
    assert len(small.net.compare(np.zeros((0, 5)))) == 0


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
    assert "probabilities   flat 0.909 ± 0.019, trend 0.091 ± 0.019" in text
    assert "validated range natural log K from -5.00 to 5.00, by 2,000 held-out draws" in text
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
    assert answer(4.9).in_range is True
    above = answer(31.0)
    assert above.in_range is False
    (warning,) = above.warnings
    assert warning.kind == "range"
    assert above.bound is not None
    assert above.bound.value == 5
    assert str(warning).startswith(
        "trend against flat: log K > 5.0 (97.5% bound, beyond the validated range of 2,000 held-out draws;"
    )
    text = str(above)
    assert "log K           > 5.0 (97.5% bound, beyond the validated range of 2,000 held-out draws;" in text
    assert "the network says 31)" in text
    assert "log10 K         > 2.17 (the network says 13.5)" in text
    # Words are about the bound, not about what the network says.
    assert (
        "odds            more than 148 : 1 for trend over flat: decisive evidence by Jeffreys, strong by"
        in text
    )
    assert "(if the network extrapolates well)" in text
    assert "±" not in text
    assert "Warning" not in text
    below = answer(-5.17)
    # −5.17 + 1.96 √(0.1² + 0.1) = −4.52 is more than the end, −5.
    assert str(below.warnings[0]).startswith("trend against flat: log K < -4.5 (97.5% bound")
    assert f"more than {np.exp(4.5):.3g} : 1 for flat over trend" in str(below)


def test_bounds_claim_no_more_than_is_confirmed() -> None:
    held = Range(-1.08, 9.28, (25_000, 25_000), 10, empty=False)
    assert "log K           > 9.2 (97.5% bound, beyond the validated range of 50,000" in str(
        answer(31.0, held=held)
    )
    assert "more than 9,900 : 1 for trend" in str(answer(31.0, held=held))
    assert "log K           < -1.0 (97.5% bound" in str(answer(-3.0, held=held))


def test_a_bound_on_the_wrong_side_settles_nothing() -> None:
    found = answer(0.5, held=Range(-5.0, -1.0, (100, 100), 10, empty=False))
    assert "log K           > -1.0 (97.5% bound" in str(found)
    assert "odds            not settled (the network says 1.65 : 1) for trend over flat" in str(found)
    assert found.words == ""
    less = answer(0.5, held=Range(1.0, 5.0, (100, 100), 10, empty=False))
    assert "log K           < 1.2 (97.5% bound" in str(less)
    assert f"less than {np.exp(1.2):.3g} : 1 for trend over flat: barely worth" in str(less)


def test_an_empty_range() -> None:
    found = answer(31.0, held=EMPTY)
    assert found.in_range is False
    text = str(found)
    assert (
        "log K           not validated: the models overlap too little among 200 held-out draws (the" in text
    )
    assert "among 200 held-out draws (the network says 31)." in str(found.warnings[0])
    assert "odds            not validated (the network says 2.9 × 10¹³ : 1) for trend over flat" in text
    assert "Jeffreys" not in text
    assert "validated range" not in text
    assert found.bound is None
    assert found.to_dict()["range"] is None
    assert found.to_dict()["bound"] is None
    assert np.isnan(found.to_dataframe()["range_high"]).all()


def test_novelty_that_was_not_computed() -> None:
    found = answer(1.0, novelty=float("nan"))
    assert "nan" not in str(found)
    assert "novelty         not computed for data of so many numbers" in str(found)
    assert found.warnings == ()
    assert found.to_dict()["novelty"] == [None, None]


def test_to_dict() -> None:
    found = answer(2.302585, 0.23).to_dict()
    assert found["log10_k"] == pytest.approx(1)
    assert found["log10_error"] == pytest.approx(0.1, rel=0.01)
    assert (found["best"], found["second"]) == ("trend", "flat")
    assert found["range"] == {"low": -5.0, "high": 5.0, "draws": 2_000}
    assert found["in_range"] is True
    assert found["recalibrated_on"] is None


def test_warning_of_strange_data() -> None:
    (strange,) = answer(1.0, novelty=1e-4).warnings
    assert strange.kind == "novelty"
    assert "no model produces data like this" in str(strange)
    assert "compares wrong models" in str(strange)
    assert answer(1.0, novelty=0.01).warnings == ()


def test_usual_data_are_not_strange(series: Case) -> None:
    found = [series.net.compare(x) for x in np.asarray(series.fresh.x)[::500]]
    assert not any(warning.kind == "novelty" for f in found for warning in f.warnings)
    # How far out draws lie is uniform among the draws.
    p = series.net.novelty_p_value(series.fresh.x)
    own = p[np.arange(len(p)), series.fresh.model]
    assert np.mean(own) == pytest.approx(0.5, abs=0.02)
    assert np.mean(own < 0.1) == pytest.approx(0.1, abs=0.02)


def test_strange_data_are_noticed(series: Case) -> None:
    x = np.asarray(series.fresh.x)[0]
    found = series.net.compare(x + 30 * np.std(np.asarray(series.sims.x), axis=0))
    assert np.all(found.novelty < 1e-3)
    assert any(warning.kind == "novelty" for warning in found.warnings)
    assert "no model produces data like this" in str(found)


def test_strange_data_are_noticed_by_a_network_of_few_draws(small: Case) -> None:
    # Six hundred held-out draws know p-values down to 1/300 only; farther out than all of them is strange.
    found = small.net.compare(np.array([50.0, -50.0, 50.0, -50.0, 50.0]))
    assert any(warning.kind == "novelty" for warning in found.warnings)


def test_strong_evidence_is_beyond_the_range() -> None:
    problem = en.problems.mean_test(size=5, spread=10.0)
    sims = draws(problem, 4_000, seed=1)
    net = en.train(sims, members=2, recipe=en.Recipe(epochs=2), baseline=True, progress=False)
    found = net.compare(np.full(5, 10.0))
    assert found.log_k > 10
    assert not found.in_range
    assert "400 held-out draws" in str(found.warnings[0])
    assert "the network says" in str(found)


def test_a_number_beyond_the_range_is_not_shown_as_one() -> None:
    inside, beyond = answer(2.0), answer(31.0)
    assert repr(inside.log_k) == "2.0"
    assert inside.bayes_factor == pytest.approx(np.exp(2.0))
    assert inside.log10_k == pytest.approx(2 / np.log(10))
    assert repr(beyond.log_k) == "> 5.0 (bound; the network says 31)"
    assert str(beyond.log10_k) == "> 2.17 (bound; the network says 13.5)"
    assert repr(beyond.bayes_factor).startswith("> 148 (bound; the network says 2.9")
    # It is a float all the same.
    assert beyond.log_k + 1 == 32
    assert pickle.loads(pickle.dumps(beyond.log_k)).bound == "> 5.0"
    assert repr(answer(31.0, held=EMPTY).log_k) == "not validated (the network says 31)"
    assert isinstance(beyond.log_k, Extrapolated)
    assert answer(1e4).bayes_factor == np.inf


def test_errors_of_probabilities() -> None:
    # Against draws of correlated log p: the formula holds to first order.
    rng = np.random.default_rng(3)
    root = 0.01 * rng.normal(size=(3, 3))
    log_p = np.array([0.0, 0.7, -0.4])
    errors = [np.linalg.norm(root[a] - root[b]) for a, b in ((1, 0), (2, 0), (2, 1))]
    p = softmax(log_p)
    drawn = softmax(log_p + rng.normal(size=(200_000, 3)) @ root.T, axis=1).std(axis=0)
    np.testing.assert_allclose(probability_errors(p, np.array(errors)), drawn, rtol=0.02)
    # Negative control: the pairs in another order are another answer.
    assert not np.allclose(probability_errors(p, np.array(errors[::-1])), drawn, rtol=0.02)
    assert answer(1.0, 0.1).probability_errors == pytest.approx([0.1 * expit(1.0) * expit(-1.0)] * 2)
