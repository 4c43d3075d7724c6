"""The exact evidence of every problem, checked with draws of its own models."""

import doctest
import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from evidencenet import problems
from evidencenet.problems import Problem, zoo

Evidences = Sequence[np.ndarray]
NAMES = tuple(zoo())
DRAWS = 20_000

# No draw of one model looks like a draw of the other, so draws cannot check the evidence. test_exact.py
# compares it with scipy.
SEPARATED = {"far_apart"}

# Problems without augmentation: they have no symmetry of use, or leave it for the network to learn.
NO_SYMMETRY = {"lifetime", "dip", "oscillation", "aftershocks"}

# Models whose rows cannot be steered one by one: "many modes" repeats draws until they are accepted, and
# "correlated" draws with time along the first axis.
ROWS_TOGETHER = {
    ("rastrigin", "many modes"),
    ("rastrigin_10", "many modes"),
    ("autocorrelation", "correlated"),
}


@dataclass(frozen=True)
class Drawn:
    """The first 500 draws of each model of a problem, and the log evidences of all its draws."""

    problem: Problem
    x: tuple
    log_evidence: tuple[np.ndarray, ...]


def first(x: Any, n: int) -> Any:
    return {key: value[:n] for key, value in x.items()} if isinstance(x, dict) else x[:n]


@cache
def drawn(name: str) -> Drawn:
    problem = zoo()[name]()
    first_draws, evidences = [], []
    for k, model in enumerate(problem.models):
        x, _ = model.draw(np.random.default_rng([7, k]), DRAWS)
        first_draws.append(first(x, 500))
        evidences.append(problem.log_evidence(x))
    return Drawn(problem, tuple(first_draws), tuple(evidences))


def moment_z(evidences: Evidences, model: int, against: int) -> tuple[float, float]:
    """Compare E[K^½ | against] with E[K^−½ | model], which are equal: z score and relative standard error.

    Both have a finite variance for any two models, because E[K | against] = E[1/K | model] = 1.
    """
    under_against = 0.5 * (evidences[against][:, model] - evidences[against][:, against])
    under_model = -0.5 * (evidences[model][:, model] - evidences[model][:, against])
    top = max(under_against.max(), under_model.max())
    means, errors = [], []
    for exponent in (under_against, under_model):
        values = np.exp(exponent - top)
        means.append(values.mean())
        errors.append(values.std() / np.sqrt(len(values)))
    # The added term is the rounding error, for problems in which all values are the same.
    error = np.hypot(*errors) + 1e-14 * means[0]
    return (means[0] - means[1]) / error, max(e / m for e, m in zip(errors, means, strict=True))


def calibration_p_value(evidences: Evidences) -> float:
    """Compare the frequencies of labels with the posterior probabilities in 20 bins: chi-square p-value."""
    log_evidence = np.concatenate(evidences)
    labels = np.repeat(np.arange(len(evidences)), [len(e) for e in evidences])
    probabilities = np.exp(log_evidence - log_evidence.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    p_values = []
    for k in range(1, len(evidences)):
        p = probabilities[:, k]
        bins = np.minimum((p * 20).astype(int), 19)
        surplus = np.bincount(bins, (labels == k) - p, minlength=20)
        variance = np.bincount(bins, p * (1 - p), minlength=20)
        used = variance >= 5
        chi_square = (surplus[used] ** 2 / variance[used]).sum()
        p_values.append(stats.chi2.sf(chi_square, used.sum()) if used.any() else 1.0)
    return min(p_values) * len(p_values)


def score_z(evidences: Evidences, model: int, against: int) -> tuple[float, float]:
    """Test whether log K + c or (1 + c) log K would fit the labels better, for a small c: two z scores.

    They are the derivatives of the log likelihood of the labels with respect to c, at c = 0, divided by their
    standard deviations.
    """
    log_k = np.concatenate([evidences[k][:, model] - evidences[k][:, against] for k in (against, model)])
    label = np.repeat([0, 1], [len(evidences[against]), len(evidences[model])])
    p = expit(log_k)
    # 1e-12 avoids 0/0 for a problem whose log K is zero everywhere.
    offset = (label - p).sum() / np.sqrt((p * (1 - p)).sum() + 1e-12)
    scale = ((label - p) * log_k).sum() / np.sqrt((p * (1 - p) * log_k**2).sum() + 1e-12)
    return offset, scale


def is_exact(evidences: Evidences) -> bool:
    for against, model in itertools.combinations(range(len(evidences)), 2):
        scores = (moment_z(evidences, model, against)[0], *score_z(evidences, model, against))
        if max(map(abs, scores)) > 4.5:
            return False
    return calibration_p_value(evidences) > 1e-4


def test_examples_of_the_docstrings() -> None:
    for name in sorted({function.__module__ for function in vars(problems).values() if callable(function)}):
        # By name: `evidencenet.problems.zoo` as an attribute is the function, not the module.
        result = doctest.testmod(importlib.import_module(name))
        assert result.attempted > 0
        assert result.failed == 0


def test_zoo_is_large() -> None:
    assert len(NAMES) >= 53
    kinds = {zoo()[name]().name for name in NAMES}
    assert len(kinds) >= 47


@pytest.mark.parametrize("name", NAMES)
def test_draws_and_shapes(name: str) -> None:
    problem = drawn(name).problem
    for k, model in enumerate(problem.models):
        x, _ = model.draw(np.random.default_rng([7, k]), 40)
        again, _ = model.draw(np.random.default_rng([7, k]), 40)
        for a, b in zip(arrays(x), arrays(again), strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.isfinite(a).all()
        log_evidence = problem.log_evidence(x)
        assert log_evidence.shape == (40, len(problem.models))
        assert log_evidence.dtype == np.float64
        assert np.isfinite(log_evidence).all()
        np.testing.assert_allclose(problem.log_evidence(first(x, 3)), log_evidence[:3], rtol=1e-12, atol=1e-9)
        assert problem.log_evidence(first(x, 0)).shape == (0, len(problem.models))


@pytest.mark.parametrize("name", NAMES)
def test_moments_of_bayes_factor(name: str) -> None:
    evidences = drawn(name).log_evidence
    for against, model in itertools.combinations(range(len(evidences)), 2):
        z, relative_error = moment_z(evidences, model, against)
        assert (relative_error > 0.2) == (name in SEPARATED)
        if name not in SEPARATED:
            assert abs(z) < 4


@pytest.mark.parametrize("name", NAMES)
def test_calibration(name: str) -> None:
    assert calibration_p_value(drawn(name).log_evidence) > 1e-4


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SEPARATED])
def test_wrong_evidence_is_noticed(name: str) -> None:
    evidences = drawn(name).log_evidence
    shift = np.zeros(len(evidences))
    shift[1] = 0.3
    assert is_exact(evidences)
    assert not is_exact([e + shift for e in evidences])
    if name == "indistinguishable":
        # 1.1 times nothing is nothing.
        assert is_exact([e + 0.1 * (e - e[:, :1]) for e in evidences])
        return
    # 1.1 log K is wrong; where log K is mostly near zero, 20,000 draws notice only a larger factor.
    log_k = np.concatenate([e[:, 1] - e[:, 0] for e in evidences])
    information = (expit(log_k) * expit(-log_k) * log_k**2).sum()
    wrong = max(0.1, 9 / np.sqrt(information))
    assert wrong < 0.3
    assert not is_exact([e + wrong * (e - e[:, :1]) for e in evidences])


class Recorder(np.random.Generator):
    """A generator that records the length of the first axis of every array it returns."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.lengths: list[int] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in ("lengths", "bit_generator", "spawn") or name.startswith("_") or not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            result = value(*arguments, **options)
            self.lengths.append(np.shape(result)[0] if np.ndim(result) else 0)
            return result

        return call


@pytest.mark.parametrize("name", NAMES)
def test_rows_can_be_steered_one_by_one(name: str) -> None:
    # Every call returns one row for each draw, and the number of calls does not depend on the numbers drawn.
    for model in drawn(name).problem.models:
        recorders = [Recorder(seed) for seed in (1, 2)]
        for recorder in recorders:
            model.draw(recorder, 37)
        by_row = set(recorders[0].lengths) == {37} and recorders[0].lengths == recorders[1].lengths
        assert by_row == ((name, model.name) not in ROWS_TOGETHER)


def arrays(x: Any) -> list[np.ndarray]:
    return list(x.values()) if isinstance(x, dict) else [x]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NO_SYMMETRY])
def test_augmentation_leaves_bayes_factors(name: str) -> None:
    sample = drawn(name)
    for x in sample.x:
        assert sample.problem.augment is not None
        moved: Any = sample.problem.augment(np.random.default_rng(3), x)
        for a, b in zip(arrays(x), arrays(moved), strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
        assert any(np.any(a != b) for a, b in zip(arrays(x), arrays(moved), strict=True))
        if isinstance(x, dict) and "mask" in x:
            assert x["mask"].sum() == moved["mask"].sum()
            for key in set(x) - {"mask"}:
                assert not moved[key][~moved["mask"]].any()
        before, after = sample.problem.log_evidence(x), sample.problem.log_evidence(moved)
        # Mirrored coordinates are rounded to single precision, which changes the phase of a wave by 1e-7.
        tolerance = 1e-4 if name == "marked_points" else 1e-10
        np.testing.assert_allclose(after, before, rtol=1e-11, atol=tolerance)


@pytest.mark.parametrize("name", sorted(NO_SYMMETRY))
def test_problems_without_symmetry_have_no_augmentation(name: str) -> None:
    assert drawn(name).problem.augment is None


# Quadrature


@pytest.mark.parametrize(
    ("make", "finer"),
    [
        (problems.decay_or_trend, {"nodes": 400}),
        (problems.autocorrelation, {"nodes": 200}),
        (problems.random_field, {"step": 0.25}),
        (problems.heavy_tails, {"step": 0.25}),
        (problems.two_humps, {"step": 0.25}),
        (problems.aftershocks, {"nodes": 96}),
        (problems.ar_or_ma, {"nodes": 200}),
        (problems.censored_times, {"step": 0.2}),
        (problems.coupled_channels, {"nodes": 60}),
        (problems.headings, {"nodes": 120}),
        (problems.judges, {"nodes": 400}),
        (problems.light_curve, {"nodes": 80}),
        (problems.meta_analysis, {"step": 0.05}),
        (problems.questionnaire, {"step": 0.1}),
        (problems.reaction_times, {"step": 0.2}),
        (problems.regimes, {"nodes": 80}),
        (problems.subjects, {"step": 0.05}),
    ],
)
def test_quadrature_has_converged(make: Callable[..., Problem], finer: dict[str, Any]) -> None:
    coarse, fine = make(), make(**finer)
    for model in coarse.models:
        x, _ = model.draw(np.random.default_rng(9), 1_000)
        np.testing.assert_allclose(coarse.log_evidence(x), fine.log_evidence(x), rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", [problems.heavy_tails, problems.two_humps])
@pytest.mark.parametrize("distance", [10.0, 16.0, 25.0])
def test_location_is_integrated_wherever_the_data_are(make: Callable[..., Problem], distance: float) -> None:
    # The prior of the location is N(0, 1), so the integrand lies near the data, near zero or in between.
    problem = make()
    x: Any = problem.models[1].draw(np.random.default_rng(0), 10)[0] + np.array(distance)
    location, h = np.linspace(-60, 60, 12_001, retstep=True)
    for row, given in zip(x, problem.log_evidence(x)[:, 1], strict=True):
        y = row[:, None] - location
        if make is problems.heavy_tails:
            terms = stats.t.logpdf(y, 2).sum(axis=0)
        else:
            terms = (np.logaddexp(-0.5 * (y - 1.5) ** 2, -0.5 * (y + 1.5) ** 2) - np.log(8 * np.pi) / 2).sum(
                axis=0
            )
        terms = terms + stats.norm.logpdf(location)
        expected = np.log(np.exp(terms - terms.max()).sum() * h) + terms.max()
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-8)


def test_quadrature_converges_on_long_records() -> None:
    # A longer record has a narrower likelihood, which needs more nodes. Here: four times the default length.
    coarse = problems.autocorrelation(length=200)
    fine = problems.autocorrelation(length=200, nodes=400)
    x, _ = coarse.models[1].draw(np.random.default_rng(0), 500)
    np.testing.assert_allclose(coarse.log_evidence(x), fine.log_evidence(x), rtol=0, atol=1e-8)


# Errors and the record itself


def untyped(**options: Any) -> dict[str, Any]:
    """Hide wrong types from the type checker: these tests are about wrong types."""
    return options


def test_log_bayes_factor_by_index_and_name() -> None:
    problem = problems.polynomial_order(orders=3)
    x, _ = problem.models[2].draw(np.random.default_rng(0), 4)
    log_evidence = problem.log_evidence(x)
    expected = log_evidence[:, 2] - log_evidence[:, 1]
    np.testing.assert_array_equal(problem.log_bayes_factor(x, model=2, against=1), expected)
    np.testing.assert_array_equal(problem.log_bayes_factor(x, model="order 2", against="order 1"), expected)
    np.testing.assert_array_equal(problem.log_bayes_factor(x), log_evidence[:, 1] - log_evidence[:, 0])


def test_bad_models() -> None:
    problem = problems.mean_test()
    x = np.zeros((2, 20))
    with pytest.raises(
        ValueError, match=r"there is no model 'flat'; the models are 'zero mean', 'free mean'"
    ):
        problem.log_bayes_factor(x, model="flat")
    with pytest.raises(ValueError, match="there is no model 2; the models are 0 to 1"):
        problem.log_bayes_factor(x, model=2)
    with pytest.raises(ValueError, match="there is no model -1"):
        problem.log_bayes_factor(x, against=-1)
    with pytest.raises(TypeError, match=r"by its number or name, not by 1\.0"):
        problem.log_bayes_factor(x, **untyped(model=1.0))
    with pytest.raises(TypeError, match=r"not by True"):
        problem.log_bayes_factor(x, model=True)
    with pytest.raises(ValueError, match=r"two or more models with distinct names"):
        Problem("same", problem.models[:1] * 2, problem.log_evidence)


def test_repr() -> None:
    assert repr(problems.lifetime()) == "Problem('lifetime', models=('known rate', 'free rate'), augment=no)"
    assert "augment=yes" in repr(problems.time_series(5))


def test_bad_data() -> None:
    with pytest.raises(
        ValueError, match=r"x must have shape \(n, 20\), got \(20,\); for a single data set write x\[None\]"
    ):
        problems.mean_test().log_evidence(np.zeros(20))
    with pytest.raises(ValueError, match=r"\(n, 12, 12, 1\), got \(3, 12, 12\)"):
        problems.random_field().log_evidence(np.zeros((3, 12, 12)))
    with pytest.raises(TypeError, match=r"x must be an array, got a dict with keys \['x'\]"):
        problems.mean_test().log_evidence({"x": np.zeros((3, 20))})
    with pytest.raises(TypeError, match=r"keys 'x' and 'mask', got ndarray"):
        problems.point_pattern().log_evidence(np.zeros((3, 40, 2)))
    with pytest.raises(ValueError, match=r"mask must be boolean of shape \(3, 40\), got float64"):
        problems.point_pattern().log_evidence({"x": np.zeros((3, 40, 2)), "mask": np.ones((3, 40))})
    with pytest.raises(ValueError, match=r"unit square"):
        problems.point_pattern(1).log_evidence({"x": np.full((1, 1, 2), 2.0), "mask": np.ones((1, 1), bool)})
    with pytest.raises(ValueError, match=r"at least 2 points"):
        problems.correlated_cloud(3).log_evidence({"x": np.zeros((1, 3, 2)), "mask": np.zeros((1, 3), bool)})
    with pytest.raises(ValueError, match=r"positive everywhere"):
        problems.lifetime().log_evidence(np.zeros((1, 1)))
    with pytest.raises(ValueError, match=r"whole numbers from 0 up"):
        problems.overdispersion(2).log_evidence(np.array([[1.0, 0.5]]))
    with pytest.raises(ValueError, match=r"counts that sum to 60"):
        problems.contingency_table().log_evidence(np.zeros((1, 3, 4)))
    with pytest.raises(ValueError, match=r"zeros and ones only"):
        problems.change_point(3).log_evidence(np.full((1, 3, 1), 2.0))
    with pytest.raises(ValueError, match=r"symmetric matrices of zeros and ones with an empty diagonal"):
        problems.communities(4).log_evidence(np.ones((1, 4, 4)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: problems.time_series(dim=1), ValueError, "dim must be at least 2, got 1"),
        (
            lambda: problems.time_series(**untyped(dim=10.0)),
            TypeError,
            r"dim must be a whole number, got 10\.0",
        ),
        (lambda: problems.time_series(noise=0), ValueError, "noise must be a finite number above 0, got 0"),
        (
            lambda: problems.time_series(**untyped(noise="low")),
            TypeError,
            "noise must be a number, got 'low'",
        ),
        (
            lambda: problems.mean_test(scale=-1.0),
            ValueError,
            r"scale must be a finite number above 0, got -1\.0",
        ),
        (lambda: problems.mean_test(offset=np.inf), ValueError, "offset must be finite, got inf"),
        (
            lambda: problems.bumps(10, 3),
            ValueError,
            "dim must be a multiple of number, got dim=10 and number=3",
        ),
        (lambda: problems.autocorrelation(largest=1.0), ValueError, "largest must be below 1"),
        (
            lambda: problems.correlated_cloud(correlation=1.0),
            ValueError,
            "correlation must lie between -1 and 1",
        ),
        (lambda: problems.random_field(**untyped(lengths=(1.0,))), ValueError, "two correlation lengths"),
        (lambda: problems.communities(5), ValueError, "nodes must be even, got 5"),
        (lambda: problems.polynomial_order(orders=1), ValueError, "orders must be at least 2, got 1"),
    ],
)
def test_bad_arguments(make: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
