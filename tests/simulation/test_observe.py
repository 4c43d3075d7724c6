"""Fresh noise: clean draws are kept and observed anew, by all kinds of models, in memory and in files."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import evidencenet as en
from evidencenet._common.files import FileError
from evidencenet._common.warnings import FailedDrawsWarning
from evidencenet.simulation.model import DrawError

TIMES = np.linspace(-1, 1, 5)


def noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    return clean + rng.normal(size=clean.shape)


def models(observe: Any = noise) -> list[en.Model]:
    return [
        en.Model("flat", lambda rng, n: np.zeros((n, 5)), observe=observe),
        en.Model(
            "trend",
            prior=lambda rng, n: rng.normal(size=n),
            simulate=lambda rng, slope: slope[:, None] * TIMES,
            observe=observe,
        ),
    ]


def simulated(n: int = 2_000, **options: Any) -> en.Simulations:
    return en.simulate(models(), n, seed=1, progress=False, **options)


def test_clean_draws_are_kept_and_observed_once() -> None:
    sims = simulated(keep_parameters=True)
    assert sims.clean is not None
    assert sims.parameters is not None
    slope = np.asarray(sims.parameters[1])
    np.testing.assert_array_equal(sims.clean[sims.model == 1], slope[:, None] * TIMES)
    residual = (np.asarray(sims.x) - sims.clean).ravel()
    # The standard error of a standard deviation from 10,000 numbers is 0.007.
    assert abs(residual.std() - 1) < 4 * 0.0071
    assert abs(residual.mean()) < 4 * 0.01
    assert "observed anew in training" in repr(sims)


def test_the_same_seed_gives_the_same_noise_whatever_the_workers() -> None:
    one, two = simulated(), simulated(workers=2, chunk=100)
    np.testing.assert_array_equal(one.clean, two.clean)
    np.testing.assert_array_equal(one.x, two.x)
    again = one.observed_again(seed=7)
    np.testing.assert_array_equal(one.clean, again.clean)
    assert np.all(np.asarray(again.x) != np.asarray(one.x))
    np.testing.assert_array_equal(again.x, one.observed_again(seed=7).x)


def test_a_model_draws_prior_simulate_and_observe_as_one_chain() -> None:
    rng, expected = np.random.default_rng(3), np.random.default_rng(3)
    x, theta = models()[1].draw(rng, 4)
    slope = expected.normal(size=4)
    np.testing.assert_array_equal(theta, slope)
    np.testing.assert_array_equal(x, slope[:, None] * TIMES + expected.normal(size=(4, 5)))


def test_one_draw_in_a_call_and_jax() -> None:
    one = en.Model(
        "one",
        lambda rng: rng.normal(size=3),
        kind="one",
        observe=lambda rng, clean: clean + rng.normal(size=3),
    )
    compiled = en.Model(
        "jax",
        lambda key: jax.random.normal(key, (3,)),
        kind="jax",
        observe=lambda key, clean: clean + jax.random.normal(key, (3,)),
    )
    sims = en.simulate([one, compiled], 2_000, seed=1, progress=False)
    # Both have the variance 2, with a standard error of 2·√(2/3000) = 0.052.
    for k in (0, 1):
        assert abs(np.var(np.asarray(sims.of(k))) - 2) < 4 * 0.052
        assert sims.clean is not None
        assert abs(np.var(np.asarray(sims.clean)[sims.model == k]) - 1) < 4 * 0.026


def test_a_model_without_observe_beside_one_with_it() -> None:
    plain = en.Model("plain", lambda rng, n: rng.normal(size=(n, 5)))
    sims = en.simulate([plain, models()[1]], 500, seed=1, progress=False)
    assert sims.clean is not None
    same = np.all(np.asarray(sims.x) == sims.clean, axis=1)
    np.testing.assert_array_equal(same, sims.model == 0)


def selected(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    """Only data with a positive first number can be observed."""
    x = clean + rng.normal(size=clean.shape)
    return np.where(x[:, :1] > 0, x, np.nan)


def test_draws_that_observe_rejects_count_as_failed_and_never_come_back() -> None:
    wide = en.Model("wide", lambda rng, n: rng.normal(1, 1, size=(n, 1)), observe=selected)
    flat = en.Model("flat", lambda rng, n: np.zeros((n, 1)), observe=selected)
    with pytest.warns(FailedDrawsWarning):
        sims = en.simulate([flat, wide], 8_000, seed=2, progress=False, max_failed=0.9)
    exact = np.array([0.5, stats.norm.cdf(1 / np.sqrt(2))])
    assert np.all(np.abs(np.log(sims.valid_fraction / exact)) < 4 * sims.log_valid_error)
    assert sims.observation is not None
    assert sims.clean is not None
    anew = sims.observation.draw(np.random.default_rng(5), sims.clean, sims.model)
    # A normal law N(1, √2) cut at 0, in both observations.
    law = stats.truncnorm(-1 / np.sqrt(2), np.inf, 1, np.sqrt(2))
    for x in (sims.x, anew):
        assert stats.kstest(np.asarray(x)[sims.model == 1, 0], law.cdf).pvalue > 1e-3
    # Negative control: kept without regard to what was rejected, clean draws have another law.
    blind = np.random.default_rng(6).normal(1, 1, size=4_000)
    again = np.asarray(sims.observation.draw(np.random.default_rng(7), blind[:, None], np.ones(4_000, int)))
    assert stats.kstest(again[:, 0], law.cdf).pvalue < 1e-3


def test_an_observe_that_raises_for_some_draws_is_tried_again() -> None:
    def fragile(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        x = noise(rng, clean)
        if np.any(x[:, 0] > 2.5):
            raise RuntimeError("saturated")
        return x

    sims = en.Simulations(np.zeros((200, 5)), np.arange(200) % 2, observe=fragile, seed=3)
    assert np.asarray(sims.x)[:, 0].max() <= 2.5
    with pytest.raises(ValueError, match=r"failed 1,000 times for the same clean draw"):
        en.Simulations(np.zeros((2, 1)), [0, 1], observe=lambda rng, clean: clean * np.nan)


def test_clean_arrays_and_one_function_are_enough() -> None:
    clean = np.arange(8.0)[:, None]
    sims = en.Simulations(clean, np.arange(8) % 2, ("a", "b"), observe=noise, seed=4)
    np.testing.assert_array_equal(sims.clean, clean)
    taken = sims.take([0, 1, 6])
    np.testing.assert_array_equal(taken.clean, clean[[0, 1, 6]])
    np.testing.assert_array_equal(taken.x, np.asarray(sims.x)[[0, 1, 6]])
    first, second = sims.split(0.5, seed=1)
    both = first + second
    assert both.clean is not None
    np.testing.assert_array_equal(np.sort(np.asarray(both.clean), axis=0), clean)
    with pytest.raises(ValueError, match="one has clean draws and observe"):
        sims + en.Simulations(clean, np.arange(8) % 2, ("a", "b"))
    with pytest.raises(ValueError, match="different functions"):
        sims + en.Simulations(clean, np.arange(8) % 2, ("a", "b"), observe=lambda rng, c: c)


@pytest.mark.parametrize("suffix", ["npz", "h5", "zarr", "csv"])
def test_files_keep_the_clean_part(tmp_path: Path, suffix: str) -> None:
    sims, path = simulated(200), tmp_path / f"draws.{suffix}"
    sims.write(path)
    with pytest.raises(FileError, match=r"holds clean draws.*observe=\[first, second\]"):
        en.Simulations.read(path)
    for observe in (models(), noise):
        back = en.Simulations.read(path, observe=observe)
        np.testing.assert_array_equal(back.clean, sims.clean)
        np.testing.assert_array_equal(back.x, sims.x)


def test_stores_keep_the_clean_part_and_continue(tmp_path: Path) -> None:
    path = tmp_path / "draws.zarr"
    simulated(500, store=path)
    longer = simulated(2_000, store=path)
    plain = simulated()
    np.testing.assert_array_equal(longer.clean, plain.clean)
    np.testing.assert_array_equal(longer.x, plain.x)
    back = en.Simulations.read(path, observe=models())
    np.testing.assert_array_equal(back.x, plain.x)
    with pytest.raises(FileError, match="holds clean draws"):
        en.Simulations.read(path)
    without = [en.Model(model.name, model.simulate, prior=model.prior) for model in models()]
    with pytest.raises(FileError, match="other settings"):
        en.simulate(without, 500, seed=1, store=path, progress=False)


def test_missing_numbers_may_come_from_observe() -> None:
    def gaps(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return np.where(rng.random(clean.shape) < 0.3, np.nan, clean)

    sims = en.simulate(models(gaps), 500, seed=1, missing="mask", progress=False)
    assert isinstance(sims.x, dict)
    assert isinstance(sims.clean, np.ndarray)
    np.testing.assert_array_equal(sims.x["x"], np.where(sims.x["mask"], sims.clean, 0))
    images = en.Model("image", lambda rng, n: np.zeros((n, 4, 4, 1)), observe=gaps)
    with pytest.raises(ValueError, match="return a dict with a mask"):
        en.simulate(
            [images, en.Model("b", images.simulate, observe=gaps)], 100, missing="mask", progress=False
        )


def test_mistakes_are_explained() -> None:
    with pytest.raises(TypeError, match=re.escape("observe(rng, clean) -> n rows")):
        en.Model("a", lambda rng, n: np.zeros((n, 5)), observe=lambda clean: clean)
    with pytest.raises(TypeError, match="observe must be a function"):
        en.Model("a", lambda rng, n: np.zeros((n, 5)), observe=0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a list of 2 functions or models"):
        en.Simulations(np.zeros((4, 2)), [0, 0, 1, 1], observe=[noise])
    with pytest.raises(DrawError, match="observe returned 1 rows where"):
        en.simulate(models(lambda rng, clean: clean[:1]), 100, progress=False)
    narrow = en.Model("narrow", lambda rng, n: np.zeros((n, 5)), observe=lambda rng, clean: clean[:, :2])
    with pytest.raises(DrawError, match="A model without observe is taken as it is"):
        en.simulate([narrow, en.Model("b", lambda rng, n: rng.normal(size=(n, 5)))], 100, progress=False)
    lengths = en.Model("lengths", lambda rng: np.zeros(rng.integers(1, 5)), kind="one", observe=noise)
    with pytest.raises(DrawError, match=r"the same keys, shapes and types|unequal length"):
        en.simulate({"a": lengths, "b": lengths}, 100, progress=False)
    with pytest.raises(ValueError, match="no clean part"):
        en.Simulations(np.arange(4.0), [0, 0, 1, 1]).observed_again(seed=1)
