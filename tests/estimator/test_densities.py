"""Known densities: used, not learned, so that log K is right far beyond what draws can confirm."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

import evidencenet as en
from conftest import rms
from evidencenet._common.arrays import Data
from evidencenet._common.files import FileError
from evidencenet.estimator import reference

DIM, LARGEST = 6, 30.0
TEMPLATE = np.full(DIM, DIM**-0.5)


def log_noise(x: Any) -> np.ndarray:
    return np.asarray(norm.logpdf(x).sum(axis=1))


def noise_draws(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, DIM))


def pulse_draws(rng: np.random.Generator, size: np.ndarray) -> np.ndarray:
    return size[:, None] * TEMPLATE + rng.normal(size=(len(size), DIM))


def exact_log_k(x: np.ndarray) -> np.ndarray:
    """Pulse against noise: with y along the template, log (Φ(y) − Φ(y − L))/(L φ(y))."""
    y = x @ TEMPLATE
    # The same difference from either side, whichever loses no figures.
    near = np.minimum(y, LARGEST - y)
    inner = log_ndtr(near) + np.log1p(-np.exp(log_ndtr(near - LARGEST) - log_ndtr(near)))
    return np.asarray(inner - np.log(LARGEST) - norm.logpdf(y))


NOISE = en.Model("noise", noise_draws, log_density=log_noise)
PULSE = en.Model("pulse", pulse_draws, prior=lambda rng, n: rng.uniform(0, LARGEST, n))
QUICK: dict[str, Any] = {"members": 2, "recipe": en.Recipe(epochs=4), "seed": 2, "progress": False}


def draws(models: list[en.Model], n: int, seed: int = 1, **options: Any) -> en.Simulations:
    return en.simulate(models, n, seed=seed, progress=False, **options)


def array(x: Data) -> np.ndarray:
    assert isinstance(x, np.ndarray)
    return x


@pytest.fixture(scope="module")
def net() -> en.EvidenceNetwork:
    return en.train(draws([NOISE, PULSE], 10_000), **QUICK | {"recipe": en.Recipe()})


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return array(draws([NOISE, PULSE], 3_000, seed=3).x)


def test_log_k_is_right_far_beyond_what_draws_confirm(net: en.EvidenceNetwork, x: np.ndarray) -> None:
    exact = exact_log_k(x)
    off = net.log_bayes_factor(x) - exact
    pull = off / net.error(x)
    # Errors of one training scatter; it is 1.89 in this one, of two members and few epochs.
    assert rms(pull) < 2.0
    far = (exact > 100) & (exact < 300)
    assert np.sum(far) > 200
    assert rms(off[far]) < 0.3
    assert np.all(np.abs(off[far]) < 0.01 * exact[far])
    # The check can fail: a log K off by one, or by a hundredth, would.
    assert rms(pull + 1 / net.error(x)) > 2.0
    assert rms((off + 0.01 * exact)[far]) > 0.3
    # Nor could draws alone do it: they confirm log K of a few.
    alone = en.train(replace_densities(draws([NOISE, PULSE], 10_000)), **QUICK | {"learn_error": False})
    assert rms((alone.log_bayes_factor(x) - exact)[far]) > 10
    assert alone.ranges[0].high < 10
    assert not alone.in_range(x)[far].any()


def replace_densities(sims: en.Simulations) -> en.Simulations:
    return en.Simulations(sims.x, sims.model, sims.names, failed=sims.failed)


def test_the_range_says_so(net: en.EvidenceNetwork, x: np.ndarray) -> None:
    exact = exact_log_k(x)
    far = (exact > 100) & (exact < 300)
    assert np.mean(net.in_range(x)[far]) > 0.99
    answer = net.compare(18 * TEMPLATE)
    assert answer.in_range
    assert answer.range.unlimited
    assert "log K of any size: one density is known" in " ".join(str(answer).split())
    assert answer.to_dict()["range"] == {"low": None, "high": None, "draws": 1_000}
    assert not answer.warnings
    # Beyond all draws of the pulse and of the reference, nothing is known of the pulse.
    away = net.compare(40 * TEMPLATE[::-1] * np.array([1, -1, 1, -1, 1, -1]))
    assert not away.range.unlimited
    assert "any size" not in str(away)
    assert "no model produces data like this" in " ".join(str(away).split())


def test_pairs_are_antisymmetric_and_probabilities_follow(net: en.EvidenceNetwork, x: np.ndarray) -> None:
    one, other = net.members(x), net.members(x, model="noise", against="pulse")
    np.testing.assert_allclose(one, -other, atol=1e-9)
    log_k = net.log_bayes_factor(x)
    p = net.probabilities(x, prior=[0.2, 0.8])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    small = np.abs(log_k) < 10
    np.testing.assert_allclose(np.log(p[small, 1] / p[small, 0]), log_k[small] + np.log(4), atol=1e-8)


def test_it_validates(net: en.EvidenceNetwork) -> None:
    check = en.validate(net, draws([NOISE, PULSE], 6_000, seed=7))
    assert check.passed, str(check)
    assert net.held_out.log_k.shape == (len(net.held_out.label), 2)
    assert "EvidenceNetwork: pulse against noise" in repr(net)


@pytest.fixture(scope="module")
def orders() -> tuple[en.problems.Problem, en.EvidenceNetwork]:
    """Three models, the first of known density, in unequal shares."""
    problem = en.problems.polynomial_order(size=8, orders=3)
    first = replace(problem.models[0], log_density=lambda x: problem.log_evidence(x)[:, 0])
    sims = draws([first, *problem.models[1:]], 30_000, fractions=(1, 2, 2))
    return problem, en.train(sims, baseline=True, **QUICK)


def test_three_models(orders: tuple[en.problems.Problem, en.EvidenceNetwork]) -> None:
    problem, net = orders
    x = array(draws(list(problem.models), 3_000, seed=5).x)
    for above, below in ((1, 0), (2, 0), (2, 1)):
        off = net.log_bayes_factor(x, model=above, against=below)
        off -= problem.log_bayes_factor(x, model=above, against=below)
        pull = off / net.error(x, model=above, against=below)
        inside = net.in_range(x, model=above, against=below)
        assert np.mean(inside) > 0.5
        assert rms(pull[inside]) < 1.6
        assert rms((off[inside] + 1) / net.error(x, model=above, against=below)[inside]) > 1.6
    first, second = net.members(x, model=1), net.members(x, model=2, against=1)
    np.testing.assert_allclose(first + second, net.members(x, model=2), atol=1e-9)
    np.testing.assert_allclose(net.probabilities(x).sum(axis=1), 1)
    assert net.novelty_p_value(x).shape == (len(x), 3)
    assert "validated range" in str(net.compare(x[0]))


def test_weighted_draws() -> None:
    """A signal of strength N(0, 3²), reweighted to N(0, 2²), is a Gaussian of variance 1 + 4 along it."""
    wide = replace(PULSE, prior=lambda rng, n: 3 * rng.normal(size=n))
    sims = draws([NOISE, wide], 20_000, keep_parameters=True)
    narrow = sims.reweight("pulse", lambda size: -(size**2) / 8 + size**2 / 18)
    net = en.train(narrow, baseline=True, learn_error=False, **QUICK)
    y = np.linspace(-6, 6, 13)
    exact = norm.logpdf(y, scale=np.sqrt(5)) - norm.logpdf(y)
    off = net.log_bayes_factor(y[:, None] * TEMPLATE) - exact
    assert rms(off) < 0.2
    # The prior drawn from would be seen.
    assert rms(off + exact - (norm.logpdf(y, scale=np.sqrt(10)) - norm.logpdf(y))) > 0.4


def test_a_loss_for_two_classes() -> None:
    loss = en.losses.Asymmetric(lambda f: jnp.exp(-f), lambda f: f, lambda f: f)
    options = QUICK | {"members": 1, "loss": loss, "learn_error": False}
    sims = draws([NOISE, PULSE], 6_000, fractions=(1, 3))
    net = en.train(sims, **options)
    x = 10 * TEMPLATE[None]
    np.testing.assert_allclose(net.log_prior, np.log([0.25, 0.75]))
    assert abs(net.log_bayes_factor(x) - exact_log_k(x)) < 0.5


def test_all_densities_known() -> None:
    wide = en.Model(
        "wide",
        lambda rng, n: 2 * rng.normal(size=(n, DIM)),
        log_density=lambda x: norm.logpdf(x, scale=2).sum(axis=1),
    )
    sims = draws([NOISE, wide], 4_000)
    net = en.train(sims, progress=False)
    x = array(sims.x)
    exact = norm.logpdf(x, scale=2).sum(axis=1) - log_noise(x)
    np.testing.assert_allclose(net.log_bayes_factor(x), exact, atol=1e-10)
    assert not net.error(x).any()
    assert not net.jackknife(x).any()
    assert net.in_range(x).all()
    text = str(net.compare(np.zeros(DIM)))
    assert "-4.15888, exact" in text
    assert "both densities are known" in text
    assert en.validate(net, draws([NOISE, wide], 4_000, seed=2)).passed


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_failed_draws_count() -> None:
    half = en.Model(
        "half",
        lambda rng, n: np.where(rng.random((n, 1)) < 0.5, np.nan, 2 * rng.normal(size=(n, DIM))),
        log_density=lambda x: norm.logpdf(x, scale=2).sum(axis=1),
    )
    net = en.train(draws([NOISE, half], 4_000, max_failed=0.8), progress=False)
    found, error = net.log_bayes_factor(np.zeros(DIM))[0], net.error(np.zeros(DIM))[0]
    exact = DIM * np.log(0.5) + np.log(0.5)
    assert 0 < error < 0.05
    assert abs(found - exact) < 4 * error
    # Forgetting the failures would be seen.
    assert abs(found - DIM * np.log(0.5)) > 4 * error


def test_a_density_of_zero() -> None:
    box = en.Model(
        "box",
        lambda rng, n: rng.uniform(-1, 1, size=(n, 2)),
        log_density=lambda x: np.where(np.all(np.abs(x) <= 1, axis=1), -2 * np.log(2), -np.inf),
    )
    disc = en.Model("disc", lambda rng, n: rng.normal(size=(n, 2)))
    net = en.train(draws([box, disc], 6_000), baseline=True, learn_error=False, **QUICK)
    x = np.array([[0.2, 0.1], [1.5, 0.3]])
    log_k = net.log_bayes_factor(x)
    assert np.isfinite(log_k[0])
    assert log_k[1] == np.inf
    assert net.log_bayes_factor(x, model=0, against=1)[1] == -np.inf
    np.testing.assert_array_equal(net.probabilities(x)[1], [0, 1])
    assert np.isfinite(net.table(x)).all()
    assert np.isfinite(net.error(x)).all()
    answer = net.compare(x[1])
    assert "box cannot produce these data: its density is zero" in " ".join(str(answer).split())
    assert "1 : 0" in str(answer)
    assert answer.probabilities.tolist() == [0, 1]
    assert en.validate(net, draws([box, disc], 4_000, seed=4)).score.value < 0.7
    ball = replace(box, name="ball")
    both = en.train(draws([box, ball], 2_000), progress=False)
    assert both.log_bayes_factor(x[1:])[0] == 0
    with pytest.raises(ValueError, match="the known density of every model is zero"):
        both.compare(x[1])


def test_simulations_carry_the_functions() -> None:
    sims = draws([NOISE, PULSE], 4_000, keep_parameters=True)
    assert sims.log_density == (log_noise, None)
    for other in (*sims.split(), sims.take(slice(None, None, 2)), sims + sims, sims.of_equal_weight()):
        assert other.log_density == (log_noise, None)
    assert draws([PULSE], 10).log_density is None
    from_file = en.Simulations(sims.x, sims.model, sims.names, parameters=sims.parameters)
    assert from_file.log_density is None
    assert (from_file + sims).log_density == (log_noise, None)
    assert sims.reweight("pulse", lambda size: -0.01 * size).log_density == (log_noise, None)
    known = draws([NOISE, replace(PULSE, log_density=log_noise)], 400, keep_parameters=True)
    with pytest.raises(ValueError, match="'pulse' has a log_density, which belongs to its own prior"):
        known.reweight("pulse", lambda size: -0.01 * size)


ELSEWHERE = """
import sys
sys.path[:0] = [sys.argv[1]]
import numpy as np
import evidencenet as en
from estimator.test_densities import NOISE, PULSE
net = en.load(sys.argv[2], models=[NOISE, PULSE])
x = np.load(sys.argv[3])
np.save(sys.argv[3], np.concatenate([net.members(x), net.error(x)[None], net.in_range(x)[None]]))
"""


def test_saved_and_loaded(
    net: en.EvidenceNetwork,
    orders: tuple[en.problems.Problem, en.EvidenceNetwork],
    x: np.ndarray,
    tmp_path: Path,
) -> None:
    path, some = tmp_path / "pulse.evnet", x[:200]
    net.save(path)
    np.save(tmp_path / "x.npy", some)
    tests = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-c", ELSEWHERE, tests, str(path), str(tmp_path / "x.npy")], check=True)
    wanted = np.concatenate([net.members(some), net.error(some)[None], net.in_range(some)[None]])
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), wanted)
    bare = en.load(path)
    assert repr(bare) == repr(net)
    assert bare.ranges == net.ranges
    with pytest.raises(ValueError, match=r"density of model 'noise' .* load\(path, models="):
        bare.log_bayes_factor(some)
    wrong = replace(NOISE, log_density=lambda x: log_noise(x) + 0.1)
    with pytest.raises(ValueError, match="'noise' is not the one that the network was trained with"):
        en.load(path, models=[wrong])
    with pytest.raises(ValueError, match="density of model 'noise' is a function"):
        en.load(path, models=[PULSE]).compare(some[0])
    problem, three = orders
    three.save(path)
    first = replace(problem.models[0], log_density=lambda x: problem.log_evidence(x)[:, 0])
    again, y = en.load(path, models=[first]), array(draws(list(problem.models), 60, seed=5).x)
    np.testing.assert_array_equal(again.table(y), three.table(y))


def test_networks_without_networks_are_saved_too(tmp_path: Path) -> None:
    wide = en.Model(
        "wide", lambda rng, n: rng.normal(size=(n, 2)), log_density=lambda x: norm.logpdf(x).sum(axis=1)
    )
    twin = replace(wide, name="twin")
    net = en.train(draws([wide, twin], 4_000), progress=False)
    net.save(tmp_path / "exact.evnet")
    again = en.load(tmp_path / "exact.evnet", models=[wide, twin])
    assert again.log_bayes_factor(np.ones((3, 2))).tolist() == [0, 0, 0]
    assert again.novelty_p_value(np.full((1, 2), 9.0)).max() < 0.01


def flawed(function: Callable[[Any], Any]) -> en.Model:
    return replace(NOISE, log_density=function)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: norm.logpdf(x),
            r"'noise' returned shape \(\d+, 6\) for \d+ draws; wanted one number each",
        ),
        (lambda x: 0.0, r"returned shape \(\)"),
        (lambda x: np.full(len(x), np.nan), "is NaN or .infinity for"),
        (lambda x: np.full(len(x), np.inf), "where the density is zero, return −infinity"),
        (lambda x: np.where(x[:, 0] > 0, log_noise(x), -np.inf), "draws of the same model: it is not"),
    ],
)
def test_a_density_that_is_none(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        en.train(draws([flawed(function), PULSE], 400), progress=False)


@pytest.mark.parametrize(
    ("shift", "word"),
    [
        (0.5, r"too high by at least 0\.4"),
        (-0.5, r"too low by at least 0\.[45]"),
        (-40.0, "too low by at least [34]"),
    ],
)
def test_a_density_that_is_not_that_of_the_draws(shift: float, word: str) -> None:
    twin = en.Model("twin", noise_draws, log_density=log_noise)
    sims = draws([flawed(lambda x: log_noise(x) + shift), twin], 8_000)
    with pytest.warns(UserWarning, match=f"log_density of model 'noise' does not fit .*{word}"):
        en.train(sims, progress=False)


def test_bad_input(net: en.EvidenceNetwork) -> None:
    with pytest.raises(TypeError, match="log_density must be a function of a batch of data, or None, got 3"):
        en.Model("noise", noise_draws, log_density=3)  # type: ignore[arg-type]
    assert "log_density=log_noise" in repr(NOISE)
    sims = draws([NOISE, PULSE], 400)
    with pytest.raises(ValueError, match="log_density must be a tuple with an entry for each of the 2"):
        en.Simulations(sims.x, sims.model, log_density=[log_noise])
    with pytest.raises(TypeError, match="log_density of model 'M1' must be a function"):
        en.Simulations(sims.x, sims.model, log_density=[log_noise, "no"])  # type: ignore[list-item]
    weight = np.linspace(0, 1, 400)
    weighted = en.Simulations(sims.x, sims.model, sims.names, log_weight=weight, log_density=sims.log_density)
    with pytest.raises(ValueError, match="draws of model 'noise' have unequal weights"):
        en.train(weighted, progress=False)
    with pytest.raises(ValueError, match="recalibrate cannot be combined with known densities"):
        net.recalibrate(draws([NOISE, PULSE], 600))
    with pytest.raises(FileError, match="damaged"):
        en.load(__file__, models=[NOISE])


def test_where_no_reference_can_be_fitted() -> None:
    few = en.Model(
        "few",
        lambda rng, n: rng.poisson(3.0, size=(n, 3)),
        log_density=lambda x: np.sum(x * np.log(3.0) - 3.0 - _log_factorial(x), axis=1),
    )
    more = en.Model("more", lambda rng, n: rng.poisson(4.0, size=(n, 3)))
    with pytest.warns(UserWarning, match="draws of 'more': number . of a draw .* it is discrete"):
        net = en.train(draws([few, more], 8_000), baseline=True, **QUICK)
    x = np.array([[3.0, 4.0, 2.0], [5.0, 4.0, 6.0]])
    exact = x.sum(axis=1) * np.log(4 / 3) - 3
    assert np.all(np.abs(net.log_bayes_factor(x) - exact) < 4 * net.error(x) + 0.02)
    assert net.densities is not None
    assert net.densities.reference is None
    assert not net.compare(x[0]).range.unlimited


def _log_factorial(x: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    return np.asarray(gammaln(x + 1))


@pytest.mark.parametrize(
    ("draw", "family"),
    [
        (lambda rng, n: rng.normal(size=(n, 3)) @ np.triu(np.ones((3, 3))) + 1e6, "Gaussian"),
        (lambda rng, n: rng.standard_t(3, size=(n, 1)), "Student t of"),
        (lambda rng, n: np.exp(3 * rng.normal(size=(n, 2))), "Gaussian of 2 numbers, 2 by log"),
    ],
)
def test_references(draw: Callable[[np.random.Generator, int], np.ndarray], family: str) -> None:
    fitted = reference.fit([draw(np.random.default_rng(1), 20_000)], [None])
    assert str(fitted).startswith(family)
    # The mean of g/q over draws of q is 1 for every density g, here a narrow Gaussian amid the draws.
    x = array(fitted.draw(np.random.default_rng(2), 100_000, np.zeros((1, fitted.components[0].mean.size))))
    centre = np.median(x, axis=0)
    width = 0.3 * (centre - np.quantile(x, 0.25, axis=0))
    ratio = np.exp(np.sum(norm.logpdf(x, centre, width), axis=1) - fitted.log_density(x))
    error = ratio.std() / np.sqrt(len(ratio))
    assert abs(ratio.mean() - 1) < 4 * error < 0.2
    assert abs(ratio.mean() * np.exp(0.4) - 1) > 4 * error


def test_the_error_of_a_fitted_density() -> None:
    rng, x = np.random.default_rng(3), np.array([[0.5, 0.0, -0.5, 2.0], [0.0, 0.0, 0.0, 0.0]])
    fits = [reference.fit_gaussian(rng.normal(size=(500, 4))) for _ in range(300)]
    scatter = np.std([fit.log_density(x) for fit in fits], axis=0)
    stated = np.sqrt(fits[0].variance(x))
    # 300 fits tell a standard deviation to 4%, and the stated one has fluctuations of its own fit.
    np.testing.assert_allclose(stated, scatter, rtol=0.2)


def test_refusals() -> None:
    rng = np.random.default_rng(1)
    good = rng.normal(size=(500, 3))
    assert reference.refusal(good) == ""
    assert "never varies" in reference.refusal(np.concatenate([good, np.ones((500, 1))], axis=1))
    assert "it is discrete" in reference.refusal(np.round(good, 1))
    assert "follow from the others" in reference.refusal(
        np.concatenate([good, good.sum(axis=1, keepdims=True)], axis=1)
    )
    assert "too few for 3 numbers" in reference.refusal(good[:20])
    assert "more than 600" in reference.refusal(np.zeros((2, 601)))
    assert "mask" in reference.refusal({"a": good, "m": np.ones((500, 3), bool)})
    both: Data = {"a": good.astype(np.float32), "b": rng.normal(size=(500, 2, 2))}
    assert reference.refusal(both) == ""
    fitted = reference.fit([both], [None])
    again = fitted.draw(rng, 7, both)
    assert isinstance(again, dict)
    found = {key: (part.shape, str(part.dtype)) for key, part in again.items()}
    assert found == {"a": ((7, 3), "float32"), "b": ((7, 2, 2), "float64")}
    assert fitted.log_density(again).shape == (7,)


def test_a_known_model_unlike_the_others_is_not_shown_to_the_networks() -> None:
    problem = en.problems.far_apart(size=12)
    quiet = replace(problem.models[0], log_density=lambda x: problem.log_evidence(x)[:, 0])
    net = en.train(draws([quiet, problem.models[1]], 10_000), baseline=True, **QUICK)
    assert net.densities is not None
    assert net.densities.classes == (-1, 1)
    x = array(draws([quiet, problem.models[1]], 2_000, seed=5).x)
    off, error = net.log_bayes_factor(x) - problem.log_bayes_factor(x), net.error(x)
    assert rms(off / error) < 1.5
    assert rms((off + 0.5) / error) > 1.5
    assert net.novelty_p_value(x).shape == (2_000, 2)
    assert np.mean(net.novelty_p_value(x)[:1_000, 0] < 0.1) < 0.15
    assert np.bincount(net.held_out.label).tolist() == [500, 500]
