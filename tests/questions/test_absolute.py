"""Absolute evidence against closed forms, with its error; evidences of two models make a log K."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, t

import evidencenet as en
from conftest import rms
from evidencenet.estimator.reference import Reference

QUICK: dict[str, Any] = {"members": 2, "recipe": en.Recipe(epochs=3), "seed": 4, "progress": False}


def fresh(problem: en.problems.Problem, k: int, n: int = 2_000) -> np.ndarray:
    x, _ = problem.models[k].draw(np.random.default_rng(9), n)
    assert isinstance(x, np.ndarray)
    return x


@pytest.fixture(scope="module")
def series() -> tuple[en.problems.Problem, en.Evidence, en.Evidence]:
    """Both models of the time series in five dimensions."""
    problem = en.problems.time_series(dim=5)
    options = QUICK | {"baseline": True, "augment": problem.augment}
    # Of the same seed, both would have the same noise, and errors that cancel.
    first, second = (
        en.absolute_evidence(model, 10_000, **options | {"seed": 5 + k})
        for k, model in enumerate(problem.models)
    )
    return problem, first, second


def test_time_series(series: tuple[en.problems.Problem, en.Evidence, en.Evidence]) -> None:
    problem, *evidences = series
    for k, evidence in enumerate(evidences):
        x = fresh(problem, k)
        found, error = evidence.log_evidence(x), evidence.error(x)
        off = found - problem.log_evidence(x)[:, k]
        assert found.shape == error.shape == (2_000,)
        assert rms(off) < 0.1
        assert rms(off / error) < 1.6
        assert rms((off + 0.2) / error) > 1.6
        assert np.mean(evidence.inside(x)) > 0.95
        assert isinstance(evidence.reference, Reference)
        assert str(evidence.reference) == "Gaussian"


def test_two_evidences_make_a_bayes_factor(
    series: tuple[en.problems.Problem, en.Evidence, en.Evidence],
) -> None:
    problem, null, growth = series
    x = np.concatenate([fresh(problem, 0), fresh(problem, 1)])
    log_k = growth.log_bayes_factor(x, against=null)
    off = log_k.value - problem.log_bayes_factor(x)
    assert rms(off / log_k.error) < 1.6
    assert rms((off + 0.3) / log_k.error) > 1.6
    np.testing.assert_allclose(log_k.error, np.hypot(growth.error(x), null.error(x)))
    np.testing.assert_allclose(null.log_bayes_factor(x, against=growth).value, -np.asarray(log_k.value))
    with pytest.raises(TypeError, match=r"against must be an Evidence, .* got a float"):
        growth.log_bayes_factor(x, against=1.0)  # type: ignore[arg-type]


def test_it_prints(series: tuple[en.problems.Problem, en.Evidence, en.Evidence]) -> None:
    text = str(series[2])
    assert text.startswith("Evidence of growth\n")
    assert "Gaussian, fitted to the draws" in text
    assert "10,000 draws of the model" in text
    assert "held-out draws" in text
    assert repr(series[2]) == text
    assert "<table>" in series[2]._repr_html_()
    assert series[2].range == series[2].network.ranges[0]  # type: ignore[union-attr]


def test_heavy_tails() -> None:
    model = en.Model("heavy", lambda rng, n: rng.standard_t(3, size=(n, 2)))
    evidence = en.absolute_evidence(model, 12_000, **QUICK)
    x = np.random.default_rng(9).standard_t(3, size=(3_000, 2))
    off = evidence.log_evidence(x) - t.logpdf(x, 3).sum(axis=1)
    assert rms(off) < 0.25
    assert rms(off / evidence.error(x)) < 2
    assert rms((off + 0.5) / evidence.error(x)) > 2
    # A Gaussian would be off by far more, and no network could learn what it misses in the tails.
    gaussian = norm.logpdf(x, scale=np.std(x)).sum(axis=1)
    assert rms(gaussian - t.logpdf(x, 3).sum(axis=1)) > 1
    assert str(evidence.reference) != "Gaussian"


def box(limit: float) -> en.Model:
    return en.Model(
        "box",
        lambda rng, n: rng.uniform(-limit, limit, size=(n, 2)),
        log_density=lambda x: np.where(np.all(np.abs(x) <= limit, axis=1), -2 * np.log(2 * limit), -np.inf),
    )


DISC = en.Model("disc", lambda rng, n: np.clip(rng.normal(size=(n, 2)), -4, 4))


def test_a_reference_of_ones_own() -> None:
    wide = en.Model(
        "wide",
        lambda rng, n: 2 * rng.normal(size=(n, 2)),
        log_density=lambda x: norm.logpdf(x, scale=2).sum(axis=1),
    )
    evidence = en.absolute_evidence(DISC, 8_000, reference=wide, baseline=True, **QUICK)
    x = np.random.default_rng(1).normal(size=(1_000, 2))
    off = evidence.log_evidence(x) - norm.logpdf(x).sum(axis=1)
    assert rms(off / evidence.error(x)) < 2
    assert rms((off + 1) / evidence.error(x)) > 2
    assert "wide" in str(evidence)


def test_a_reference_that_lacks_data() -> None:
    options = QUICK | {"members": 1, "learn_error": False}
    evidence = en.absolute_evidence(DISC, 2_000, reference=box(5), baseline=True, **options)
    assert evidence.inside([[1.0, -0.5], [9.0, 0.0]]).tolist() == [True, False]
    assert evidence.log_evidence([9.0, 0.0])[0] == -np.inf
    with pytest.raises(ValueError, match=r"'box' has no density at [\d,]+ of 500 draws of 'disc'"):
        en.absolute_evidence(DISC, 500, reference=box(1), progress=False)


def test_a_known_density_is_exact() -> None:
    half = en.Model(
        "half",
        lambda rng, n: np.where(rng.random((n, 1)) < 0.25, np.nan, rng.normal(size=(n, 3))),
        log_density=lambda x: norm.logpdf(x).sum(axis=1),
    )
    with pytest.warns(en.FailedDrawsWarning, match=r"model 'half': .* draws failed \(25%\)"):
        evidence = en.absolute_evidence(half, 3_000, progress=False)
    x = np.array([[0.1, 0.2, 0.3]])
    assert abs(evidence.log_evidence(x)[0] - norm.logpdf(x).sum() - np.log(0.75)) < 4 * evidence.error(x)[0]
    assert 0 < evidence.error(x)[0] < 0.02
    assert evidence.inside(x).all()
    assert evidence.range is None
    assert "exact" in str(evidence)
    with pytest.raises(ValueError, match=r"x has shape \(2, 4\); .* observation of shape \(3,\)"):
        evidence.log_evidence(np.zeros((2, 4)))


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_failed_draws_count() -> None:
    model = en.Model(
        "half",
        lambda rng, n: np.where(rng.random((n, 1)) < 0.5, np.nan, rng.normal(size=(n, 3))),
    )
    evidence = en.absolute_evidence(model, 6_000, baseline=True, learn_error=False, **QUICK)
    x = np.random.default_rng(2).normal(size=(500, 3))
    off = evidence.log_evidence(x) - norm.logpdf(x).sum(axis=1)
    assert abs(off.mean() - np.log(0.5)) < 0.1
    assert abs(off.mean()) > 0.5
    assert "includes this" in str(evidence)


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="absolute_evidence takes a Model, got a int"):
        en.absolute_evidence(3, 100)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reference must be a Model with a log_density, got a str"):
        en.absolute_evidence(DISC, 100, reference="box")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reference 'disc' has no log_density"):
        en.absolute_evidence(DISC, 100, reference=replace(DISC, kind="batch"))
    for model, why in (
        (en.Model("dice", lambda rng, n: rng.integers(1, 7, size=(n, 2))), "it is discrete"),
        (
            en.Model("flat", lambda rng, n: rng.normal(size=(n, 2)) * [1, 0]),
            "number 1 of a draw never varies",
        ),
        (
            en.Model("sum", lambda rng, n: rng.normal(size=(n, 2)) @ [[1.0, 0, 1], [0, 1, 1]]),
            "follow from the others",
        ),
    ):
        with pytest.raises(ValueError, match=f"{model.name}.*{why}.*give a reference"):
            en.absolute_evidence(model, 500, progress=False)


# --- Files -----------------------------------------------------------------------------------------------


def test_saved_and_loaded(
    series: tuple[en.problems.Problem, en.Evidence, en.Evidence], tmp_path: Path
) -> None:
    problem, evidence, _ = series
    evidence.save(tmp_path / "null.evnet")
    back = en.Evidence.load(tmp_path / "null.evnet")
    assert str(back) == str(evidence)
    x = fresh(problem, 0, 100)
    for name in ("log_evidence", "error", "inside"):
        np.testing.assert_array_equal(getattr(back, name)(x), getattr(evidence, name)(x))
    with pytest.raises(ValueError, match=r"null.evnet is a file of evidence, not of network"):
        en.load(tmp_path / "null.evnet")


def test_a_reference_of_ones_own_is_asked_for(tmp_path: Path) -> None:
    wide = en.Model(
        "wide",
        lambda rng, n: 2 * rng.normal(size=(n, 1)),
        log_density=lambda x: norm(scale=2).logpdf(x)[:, 0],
    )
    model = en.Model("narrow", lambda rng, n: rng.normal(size=(n, 1)))
    evidence = en.absolute_evidence(model, 3_000, reference=wide, baseline=True, **QUICK)
    evidence.save(tmp_path / "some.evnet")
    with pytest.raises(ValueError, match=r"learned against the model 'wide'.*none was given"):
        en.Evidence.load(tmp_path / "some.evnet")
    with pytest.raises(ValueError, match="got 'narrow'"):
        en.Evidence.load(tmp_path / "some.evnet", reference=model)
    back = en.Evidence.load(tmp_path / "some.evnet", reference=wide)
    x = np.linspace(-2, 2, 7)[:, None]
    np.testing.assert_array_equal(back.log_evidence(x), evidence.log_evidence(x))


def test_what_is_known_needs_no_file(tmp_path: Path) -> None:
    density = en.Model(
        "known", lambda rng, n: rng.normal(size=(n, 1)), log_density=lambda x: norm.logpdf(x)[:, 0]
    )
    evidence = en.absolute_evidence(density, 100, progress=False)
    with pytest.raises(ValueError, match="there is nothing to save"):
        evidence.save(tmp_path / "known.evnet")
    assert not list(tmp_path.iterdir())
