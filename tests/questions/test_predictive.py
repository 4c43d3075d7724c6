"""The posterior predictive test, against the closed form of linear models."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import evidencenet as en
from conftest import draws, rms
from evidencenet.questions.predictive import PredictiveTest

SIZE, KEPT = 8, [0, 1, 2, 3, 4]
PROBLEM = en.problems.polynomial_order(size=SIZE, orders=3)
MODELS = PROBLEM.models[::2]
OPTIONS: dict[str, Any] = {
    "members": 2,
    "recipe": en.Recipe(epochs=4),
    "baseline": True,
    "progress": False,
}


def log_evidence(x: np.ndarray, places: list[int]) -> np.ndarray:
    """Log evidence of some of the points, by each model, (n, 2): normal, with rows of the design left out."""
    basis = 0.7 * np.polynomial.legendre.legvander(np.linspace(-1, 1, SIZE), 2)[places]
    covariances = [np.eye(len(places)) + basis[:, :k] @ basis[:, :k].T for k in (1, 3)]
    return np.stack([multivariate_normal(cov=c).logpdf(x[:, places]) for c in covariances], axis=1)


def log_k(x: np.ndarray, places: list[int]) -> np.ndarray:
    return np.subtract(*log_evidence(x, places).T[::-1])


@pytest.fixture(scope="module")
def test_of_part() -> PredictiveTest:
    return en.predictive_test(MODELS, KEPT, 20_000, seed=1, augment=PROBLEM.augment, **OPTIONS)


@pytest.fixture(scope="module")
def fresh() -> Any:
    return en.simulate(MODELS, 4_000, seed=5, progress=False).x


def test_the_closed_form_is_that_of_the_problem(fresh: Any) -> None:
    expected = PROBLEM.log_bayes_factor(fresh, model=2)
    np.testing.assert_allclose(log_k(fresh, list(range(SIZE))), expected, rtol=1e-9, atol=1e-9)


def test_it_agrees_with_the_closed_form(test_of_part: PredictiveTest, fresh: Any) -> None:
    whole, part = log_k(fresh, list(range(SIZE))), log_k(fresh, KEPT)
    found, error = test_of_part.log_bayes_factor(fresh), test_of_part.error(fresh)
    assert found.shape == error.shape == (4_000,)
    off = rms(found - (whole - part))
    assert off < 2 * rms(error)
    assert off < 0.15
    # Neither the Bayes factor of all data nor that of the rest alone is the predictive one.
    assert rms(found - whole) > 3 * off
    assert rms(found - log_k(fresh, [5, 6, 7])) > 2 * rms(error)
    assert rms(test_of_part.kept.log_bayes_factor(fresh[:, KEPT]) - part) < 0.15


def test_errors_are_of_both_networks(test_of_part: PredictiveTest, fresh: Any) -> None:
    expected = np.hypot(test_of_part.whole.error(fresh), test_of_part.kept.error(fresh[:, KEPT]))
    np.testing.assert_allclose(test_of_part.error(fresh), expected)
    backwards = test_of_part.log_bayes_factor(fresh, model="order 0", against="order 2")
    np.testing.assert_allclose(backwards, -test_of_part.log_bayes_factor(fresh))


def test_one_observation(test_of_part: PredictiveTest, fresh: Any) -> None:
    answer = test_of_part.compare(fresh[7])
    assert answer.names == ("order 0", "order 2")
    assert answer.log_k == pytest.approx(test_of_part.log_bayes_factor(fresh[7:8])[0])
    assert answer.log_k == pytest.approx(answer.whole - answer.kept)
    assert answer.error == pytest.approx(test_of_part.error(fresh[7])[0])
    assert str(answer).splitlines()[0].startswith("order 2 against order 0")
    assert "predictive log K" in str(answer)
    assert "predictive log K" in answer._repr_html_()
    assert answer.to_dict()["log_k"] == answer.log_k
    assert answer.warnings == ()
    assert answer.validated
    strange = test_of_part.compare(np.full(SIZE, 50.0))
    assert {warning.split(":")[0] for warning in strange.warnings} == {"all data", "the kept part"}
    assert not strange.validated
    assert "outside the validated range: see the warnings" in str(strange)
    assert "Warning: the kept part: no model produces data like this" in str(strange)
    assert repr(test_of_part).count("EvidenceNetwork") == 2


def test_what_each_network_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(
        "evidencenet.questions.predictive.train", lambda sims, **options: calls.append((sims, options))
    )
    weight = np.random.default_rng(1).normal(size=400)
    drawn = en.simulate(MODELS, 400, seed=1, progress=False)
    sims: Any = en.Simulations(drawn.x, drawn.model, drawn.names, log_weight=weight, failed=(0, 7))
    ways: list[Any] = [KEPT, slice(0, 5), np.arange(8) < 5, range(5), lambda x: x[:, :5]]
    for keep in ways:
        calls.clear()
        en.predictive_test(sims, keep, seed=3, members=3)
        (whole, first), (part, second) = calls
        assert whole is sims
        np.testing.assert_array_equal(part.x, sims.x[:, :5])
        np.testing.assert_array_equal(part.model, sims.model)
        np.testing.assert_array_equal(part.log_weight, weight)
        assert part.failed == (0, 7)
        assert first["members"] == second["members"] == 3
        assert first["seed"] != second["seed"]
    # The symmetry of the whole is not handed on to the part, unless it is named for it.
    en.predictive_test(sims, KEPT, augment="whole", for_kept={"baseline": False})
    en.predictive_test(sims, KEPT, augment="whole", for_kept={"augment": "part"})
    options = [given for _, given in calls[2:]]
    assert [given["augment"] for given in options] == ["whole", None, "whole", "part"]
    assert options[1]["baseline"] is False
    assert "baseline" not in options[0]


def test_parts_of_a_dict() -> None:
    problem = en.problems.mean_test(size=4)
    sims = draws(problem, 4_000, seed=1)
    x: Any = sims.x
    both = en.Simulations({"a": x[:, :2], "b": x[:, 2:]}, sims.model, sims.names, failed=(0, 100))
    short = OPTIONS | {"recipe": en.Recipe(epochs=2)}
    test = en.predictive_test(both, "a", seed=1, **short)
    assert isinstance(test.kept.example, dict)
    assert list(test.kept.example) == ["a"]
    one = {"a": x[0, :2], "b": x[0, 2:]}
    assert test.log_bayes_factor(one).shape == (1,)
    # A draw fails as a whole: in the ratio of Bayes factors that cancels.
    np.testing.assert_allclose(test.whole.log_valid, test.kept.log_valid)
    assert test.whole.log_valid[1] == pytest.approx(np.log(2000 / 2100))
    part = en.problems.mean_test(size=2).log_bayes_factor(x[:, :2])
    exact = problem.log_bayes_factor(x) - part
    assert abs(np.mean(test.log_bayes_factor(both.x) - exact)) < 0.04
    with pytest.raises(ValueError, match=r"keep = 'c'; wanted one or more of the keys of x, 'a', 'b'"):
        en.predictive_test(both, "c", **short)
    with pytest.raises(ValueError, match="nothing is left to predict"):
        en.predictive_test(both, ["a", "b"], **short)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (slice(0), "takes 0 of 8 places; wanted one or more different places, but not all"),
        ([], "wanted indices from 0 to 7"),
        (range(8), "takes 8 of 8 places; .* something must be left to predict"),
        ([1, 1], "different places"),
        ([9], "wanted indices from 0 to 7, a slice, a mask of length 8"),
        (["a"], "wanted indices from 0 to 7"),
        (lambda x: x[:5], "keep returned 5 rows for a batch of 40 draws; wanted one row for each draw"),
    ],
)
def test_bad_parts(keep: Any, message: str) -> None:
    sims = en.simulate(MODELS, 40, seed=1, progress=False)
    with pytest.raises(ValueError, match=message):
        en.predictive_test(sims, keep)


def test_bad_input(test_of_part: PredictiveTest, fresh: Any) -> None:
    sims = en.simulate(MODELS, 40, seed=1, progress=False)
    with pytest.raises(ValueError, match="draws were given, so none are made"):
        en.predictive_test(sims, KEPT, 100)
    with pytest.raises(ValueError, match="n is missing"):
        en.predictive_test(MODELS, KEPT)
    with pytest.raises(
        ValueError, match=r"x has shape \(4000, 5\); this network wants one observation of shape \(8,\)"
    ):
        test_of_part.log_bayes_factor(fresh[:, KEPT])
    with pytest.raises(ValueError, match="NaN or infinity"):
        test_of_part.log_bayes_factor(np.full(SIZE, np.nan))
    with pytest.raises(ValueError, match="rows that differ in shape"):
        test_of_part.error([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="compare answers for one observation, got 2"):
        test_of_part.compare(fresh[:2])
