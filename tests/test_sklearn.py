"""The network with the interface of scikit-learn."""

import warnings

import numpy as np
import pytest

import evidencenet as en

pytest.importorskip("sklearn")

from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from evidencenet.sklearn import EvidenceClassifier

# These checks give a class fewer rows than can be divided into training and held-out ones, and want a fit or
# another message.
TOO_FEW_ROWS: dict[str, str] = {}


def labelled(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """N(0, 1) against N(1, 1) in three dimensions: log K = Σ (x − ½)."""
    rng = np.random.default_rng(seed)
    y = np.array(["flat", "up"])[rng.integers(2, size=n)]
    return rng.normal(size=(n, 3)) + (y == "up")[:, None], y


def test_probabilities_are_those_of_bayes() -> None:
    X, y = labelled(8_000)
    classifier = EvidenceClassifier(members=2, epochs=4, learn_error=False).fit(X, y)
    assert list(classifier.classes_) == ["flat", "up"]
    fresh, label = labelled(2_000, seed=2)
    exact = 1 / (1 + np.exp(-(fresh - 0.5).sum(axis=1)))
    p = classifier.predict_proba(fresh)
    assert np.sqrt(np.mean((p[:, 1] - exact) ** 2)) < 0.05
    # Negative control: the labels the other way round.
    assert np.sqrt(np.mean((p[:, 0] - exact) ** 2)) > 0.3
    best = np.mean((exact > 0.5) == (label == "up"))
    assert classifier.score(fresh, label) == pytest.approx(best, abs=0.01)
    np.testing.assert_allclose(classifier.decision_function(fresh), np.log(p[:, 1] / p[:, 0]))
    assert isinstance(classifier.network_, en.EvidenceNetwork)
    # A prior moves the odds by its own.
    classifier.set_params(prior=[0.9, 0.1])
    moved = classifier.decision_function(fresh) - np.log(p[:, 1] / p[:, 0])
    np.testing.assert_allclose(moved, np.log(1 / 9), atol=1e-6)


def test_it_works_in_pipelines() -> None:
    X, y = labelled(3_000)
    model = make_pipeline(StandardScaler(), EvidenceClassifier(members=1, epochs=2, learn_error=False))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.7


def test_bad_input() -> None:
    X = labelled(100)[0]
    with pytest.raises(ValueError, match=r"class 'up' has 2 rows; wanted 3 or more of each class"):
        EvidenceClassifier().fit(X[:52], np.repeat(["flat", "up"], [50, 2]))
    with pytest.raises(ValueError, match="one class"):
        EvidenceClassifier().fit(X, np.zeros(100))


def test_the_checks_of_scikit_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = EvidenceClassifier(members=1, epochs=3, learn_error=False)
        results = check_estimator(classifier, on_skip=None, on_fail=None)
    failed = {each["check_name"] for each in results if each["status"] == "failed"}
    assert failed == set(TOO_FEW_ROWS)
    assert sum(each["status"] == "passed" for each in results) > 45


def test_names_of_columns_reach_the_network() -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(1).normal(size=(200, 2)), columns=["p", "q"])
    fitted = EvidenceClassifier(members=1, epochs=1, learn_error=False).fit(X, ["u", "v"] * 100)
    assert fitted.network_.columns == ("p", "q")
