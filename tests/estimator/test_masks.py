"""Missing numbers and draws of unequal length: log K of observations as they come, against the exact one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en

QUICK: Any = {"members": 1, "learn_error": False, "progress": False, "seed": 3}


def log_k_of_rest(x: np.ndarray, means: Any, covariances: Any) -> np.ndarray:
    """Exact log K of normal laws for rows of which only the finite numbers were seen, (n,)."""
    values = []
    for row in x:
        seen = np.flatnonzero(np.isfinite(row))
        log_p = []
        for mean, covariance in zip(means, covariances, strict=True):
            away = row[seen] - mean[seen]
            part = covariance[np.ix_(seen, seen)]
            log_p.append(-0.5 * (away @ np.linalg.solve(part, away) + np.linalg.slogdet(part)[1]))
        values.append(log_p[1] - log_p[0])
    return np.array(values)


def normal(
    mean: np.ndarray, covariance: np.ndarray, shape: tuple[int, ...], gaps: float
) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Make a simulator of normal numbers, of which a part is missing at random."""
    root = np.linalg.cholesky(covariance)

    def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
        x = mean + rng.normal(size=(n, len(mean))) @ root.T
        missing = rng.random(x.shape) < gaps
        missing[:, 0] = False  # a draw without any number fails
        x[missing] = np.nan
        return x.reshape(n, *shape)

    return simulate


def wrong_by(log_k: np.ndarray, exact: np.ndarray) -> float:
    """Return the root mean square of the error, as a part of the spread of exact log K, where |log K| < 4."""
    usual = np.abs(exact) < 4
    return float(np.sqrt(np.mean(np.square(log_k - exact)[usual])) / exact[usual].std())


LEVEL = np.array([0.0, 10.0, -3.0, 5.0])
SPREAD = np.diag([1.0, 4.0, 0.25, 9.0])
MOVED = np.array([1.0, 0.0, 0.4, -3.0])


def pixels(number: int) -> tuple[Any, Any]:
    """Two laws of independent pixels, whose level differs a little."""
    return [np.full(number, 3.0), np.full(number, 3.4)], [np.eye(number)] * 2


CASES = {
    "vector": ((4,), [LEVEL, LEVEL + MOVED], [SPREAD, SPREAD], "dense"),
    "set of pairs": ((10, 2), *pixels(20), "set"),
    "image": ((5, 6), *pixels(30), "squares"),
}


@pytest.mark.parametrize(("shape", "means", "covariances", "network"), CASES.values(), ids=CASES)
def test_log_k_where_numbers_are_missing(
    shape: tuple[int, ...], means: Any, covariances: Any, network: str, tmp_path: Path
) -> None:
    laws = [normal(m, c, shape, 0.25) for m, c in zip(means, covariances, strict=True)]
    models = {"a": laws[0], "b": laws[1]}
    sims = en.simulate(models, 4_000, seed=1, missing="mask", progress=False)
    net = en.train(sims, network=network, recipe=en.Recipe(epochs=6), **QUICK)
    # Observations as they come: arrays with NaN.
    rng = np.random.default_rng(2)
    x = np.concatenate([law(rng, 300) for law in laws])
    exact = log_k_of_rest(x.reshape(len(x), -1), means, covariances)
    log_k = net.log_bayes_factor(x)
    assert wrong_by(log_k, exact) < 0.4
    # The control: a missing number is not a zero.
    assert wrong_by(net.log_bayes_factor(np.nan_to_num(x)), exact) > 0.8
    # One observation, with and without an axis, and after saving.
    net.save(tmp_path / "net.evnet")
    again = en.load(tmp_path / "net.evnet")
    assert again.compare(x[5]).log_k == pytest.approx(log_k[5], abs=1e-4)
    assert again.compare(x[5:6]).log_k == pytest.approx(log_k[5], abs=1e-4)
    # Fresh draws in which, by chance, less is missing have another form; validate knows that.
    whole = en.Simulations(
        np.concatenate([normal(m, c, shape, 0.0)(rng, 150) for m, c in zip(means, covariances, strict=True)]),
        np.repeat([0, 1], 150),
        ("a", "b"),
        missing="mask",
    )
    en.validate(net, whole)


def autoregression(memory: float) -> Callable[[np.random.Generator], np.ndarray]:
    def simulate(rng: np.random.Generator) -> np.ndarray:
        x = rng.normal(size=rng.integers(6, 17))
        for t in range(1, len(x)):
            x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * x[t]
        return x

    return simulate


def test_log_k_of_series_of_unequal_length(tmp_path: Path) -> None:
    memory = 0.6
    models = [
        en.Model("white", autoregression(0.0), kind="one"),
        en.Model("red", autoregression(memory), kind="one"),
    ]
    with pytest.warns(en.InputWarning, match="unequal lengths, from 6 to 16"):
        sims = en.simulate(models, 6_000, seed=1, progress=False)
    net = en.train(sims, network="recurrence", recipe=en.Recipe(epochs=6), **QUICK)
    rng = np.random.default_rng(2)
    observed = [models[i % 2].simulate(rng) for i in range(400)]  # type: ignore[misc]
    padded = np.full((400, 16), np.nan)
    for row, x in zip(padded, observed, strict=True):
        row[: len(x)] = x
    lag = np.abs(np.subtract.outer(np.arange(16), np.arange(16)))
    exact = log_k_of_rest(padded, [np.zeros(16)] * 2, [np.eye(16), memory**lag])
    # A list of arrays of unequal length, as it comes.
    log_k = net.log_bayes_factor(observed)
    assert wrong_by(log_k, exact) < 0.25
    # The control: zeros after the end are not data.
    full = {"x": np.nan_to_num(padded), "mask": np.ones((400, 16), bool)}
    assert wrong_by(net.log_bayes_factor(full), exact) > 1.5 * wrong_by(log_k, exact)
    net.save(tmp_path / "net.evnet")
    answer = en.load(tmp_path / "net.evnet").compare(observed[7])
    assert answer.log_k == pytest.approx(log_k[7], abs=1e-4)
    with pytest.raises(ValueError, match="has length 20, and the longest draw has 16"):
        net.compare(np.ones(20))
    with pytest.raises(ValueError, match=r"one observation of shape \(T,\), or several of shape \(n, T\)"):
        net.compare(np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="missing='mask'"):
        net.compare(np.array([1.0, np.nan, 2.0]))


def test_the_default_call_asks_whether_the_order_matters() -> None:
    models = [en.Model(name, autoregression(k), kind="one") for name, k in (("white", 0.0), ("red", 0.6))]
    with pytest.warns(en.InputWarning, match="unequal"):
        x: Any = en.simulate(models, 4_000, seed=1, progress=False)
    guessed = en.networks.layout.Layout.guess(x.x, x.model)
    assert guessed.parts[0].kind == "numbers"
    # The same numbers in random order, padded in the same way, are a set.
    rng = np.random.default_rng(1)
    key = np.where(x.x["mask"], rng.random(x.x["mask"].shape), 2.0)
    shuffled = {"x": np.take_along_axis(x.x["x"], key.argsort(axis=1), 1), "mask": x.x["mask"]}
    assert en.networks.layout.Layout.guess(shuffled, x.model).parts[0].kind == "set"


def test_missing_numbers_by_name(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")

    def table(level: float) -> Any:
        def simulate(rng: np.random.Generator, n: int) -> Any:
            x = rng.normal(size=(n, 3)) * [1.0, 5.0, 0.2] + level
            x[rng.random(x.shape) < 0.2] = np.nan
            return pandas.DataFrame(x, columns=["height", "mass", "age"])

        return simulate

    models = {"a": table(0.0), "b": table(1.0)}
    sims = en.simulate(models, 3_000, seed=1, missing="mask", progress=False, store=tmp_path / "s.zarr")
    assert sims.columns == ("height", "mass", "age")
    assert "columns: height, mass, age" in repr(sims)
    sims.write(tmp_path / "draws.npz")
    for path in ("draws.npz", "s.zarr"):
        again = en.Simulations.read(tmp_path / path)
        assert again.columns == sims.columns
        assert again.masked == sims.masked
        assert again.failed == sims.failed
        np.testing.assert_array_equal(again.x["mask"], sims.x["mask"])
    net = en.train(sims, network="dense", recipe=en.Recipe(epochs=2), **QUICK)
    one = pandas.Series({"age": 0.3, "mass": np.nan, "height": 1.2})
    with pytest.warns(en.InputWarning, match="in the order height, mass, age"):
        moved = net.log_bayes_factor(one)
    np.testing.assert_array_equal(moved, net.log_bayes_factor(np.array([1.2, np.nan, 0.3])))
    with pytest.raises(ValueError, match="observation number 0 has no number at all"):
        net.compare(np.full(3, np.nan))
    with pytest.raises(ValueError, match=r"x has shape \(4,\); .* of shape \(3,\), .* with NaN where"):
        net.compare(np.ones(4))
