"""Simulations: the record, its parts, and a distinct message for every kind of bad input."""

import tracemalloc
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import evidencenet as en
from conftest import draws
from evidencenet.simulation.dataset import Simulations


def example(
    n: Sequence[int] = (40, 60),
    failed: Sequence[int] | None = (10, 5),
    *,
    seed: int = 1,
    weighted: bool = False,
    parameters: bool = False,
) -> Any:
    """Draws in mixed order whose value tells model and number: x = 1000 · model + rank within the model."""
    rng = np.random.default_rng(seed)
    model = rng.permutation(np.repeat(np.arange(len(n)), n))
    rank = np.empty(len(model))
    for k, count in enumerate(n):
        rank[model == k] = np.arange(count)
    x = (1000.0 * model + rank)[:, None] * np.ones(3)
    return Simulations(
        x,
        model,
        names=[f"model {k}" for k in range(len(n))],
        failed=failed,
        log_weight=rng.normal(size=len(model)) if weighted else None,
        parameters=(None, *({"theta": 1000.0 * k + np.arange(n[k])} for k in range(1, len(n))))
        if parameters
        else None,
    )


def test_counts_and_fractions() -> None:
    sims = example()
    assert len(sims) == 100
    assert sims.counts == (40, 60)
    assert sims.drawn == (50, 65)
    np.testing.assert_allclose(sims.valid_fraction, [40 / 50, 60 / 65], rtol=1e-15)
    assert sims.shape == (3,)
    assert sims.names == ("model 0", "model 1")
    default = Simulations(np.zeros((4, 2)), [0, 1, 2, 1])
    assert default.names == ("M0", "M1", "M2")
    assert default.failed == (0, 0, 0)
    assert Simulations(np.zeros(2), np.array([True, False])).shape == (1,)


def test_dicts_keep_masks_and_tell_shapes() -> None:
    x = {"y": np.zeros((4, 2, 3), np.float32), "mask": np.ones((4, 2), bool), "count": np.arange(4)}
    sims = Simulations(x, [0, 1, 0, 1])
    assert sims.shape == {"y": (2, 3), "mask": (2,), "count": (1,)}
    assert isinstance(sims.x, dict)
    assert {key: array.dtype.name for key, array in sims.x.items()} == {
        "y": "float32",
        "mask": "bool",
        "count": "float64",
    }


def test_arrays_are_neither_copied_nor_writable() -> None:
    x = np.zeros((4, 2))
    sims: Any = Simulations(x, [0, 1, 0, 1])
    assert np.shares_memory(sims.x, x)
    with pytest.raises(ValueError, match="read-only"):
        sims.x[0] = 1
    x[0] = 1  # the caller's own array stays as it was
    with pytest.raises(AttributeError):
        sims.names = ("a", "b")


def test_checking_for_nan_takes_little_memory() -> None:
    x = np.zeros((200_000, 50), np.float32)
    model = np.arange(200_000) % 2
    tracemalloc.start()
    Simulations(x, model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A boolean for every value would take a quarter of x; labels and their checks are 8 bytes a draw.
    assert peak < x.nbytes / 8


def test_weights_and_effective_sample_size_by_hand() -> None:
    log_weight = np.log([1.0, 3.0, 2.0, 2.0, 4.0]) + np.array([800, 800, -900, -900, -900])
    sims = Simulations(np.zeros(5), [0, 0, 1, 1, 1], log_weight=log_weight)
    np.testing.assert_allclose(sims.weights, [0.5, 1.5, 0.75, 0.75, 1.5], rtol=1e-12)
    np.testing.assert_allclose(sims.effective_sample_size, [16 / 10, 64 / 24], rtol=1e-12)
    zero = Simulations(np.zeros(3), [0, 0, 1], log_weight=[-np.inf, 0, 0])
    np.testing.assert_array_equal(zero.weights, [0, 2, 1])
    plain = example()
    np.testing.assert_array_equal(plain.weights, np.ones(100))
    np.testing.assert_array_equal(plain.effective_sample_size, [40, 60])


def test_of_gives_one_models_data() -> None:
    sims = example()
    for key in (1, "model 1", np.int64(1)):
        x = sims.of(key)
        assert isinstance(x, np.ndarray)
        np.testing.assert_array_equal(x[:, 0], 1000 + np.arange(60))
    with pytest.raises(ValueError, match="there is no model 'model 2'; the models are 'model 0', 'model 1'"):
        sims.of("model 2")
    with pytest.raises(ValueError, match="no model 2; the models are 0 to 1"):
        sims.of(2)


def test_take_keeps_everything_together() -> None:
    sims = example(weighted=True, parameters=True)
    index = np.random.default_rng(2).integers(-100, 100, size=50)
    part = sims.take(index)
    np.testing.assert_array_equal(part.x, sims.x[index])
    np.testing.assert_array_equal(part.model, sims.model[index])
    assert sims.log_weight is not None
    np.testing.assert_array_equal(part.log_weight, sims.log_weight[index])
    assert part.parameters is not None
    assert part.parameters[0] is None
    # In this example the parameter equals the data.
    np.testing.assert_array_equal(part.parameters[1]["theta"], part.of(1)[:, 0])
    counts = np.bincount(sims.model[index])
    assert part.failed == (round(10 * counts[0] / 40), round(5 * counts[1] / 60))
    assert sims.take(slice(None, None, 2)).counts == sims.take(np.arange(100) % 2 == 0).counts


def test_take_refuses_bad_indices() -> None:
    sims = example()
    with pytest.raises(ValueError, match="no draw of model 'model 1' was taken"):
        sims.take(sims.model == 0)
    with pytest.raises(ValueError, match="mask has length 3, but there are 100 draws"):
        sims.take([True, False, True])
    with pytest.raises(ValueError, match="index 100 is outside the 100 draws"):
        sims.take([3, 100])
    with pytest.raises(TypeError, match="index must be integers, a mask or a slice; got float64"):
        sims.take([0.5])
    zero = Simulations(np.zeros(4), [0, 0, 1, 1], log_weight=[-np.inf, 0, 0, 0])
    with pytest.raises(ValueError, match="all weights of model 'M0' are zero"):
        zero.take([0, 2])


@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.9])
def test_split_holds_every_draw_once(fraction: float) -> None:
    sims = example(failed=(1, 5), weighted=True, parameters=True)
    parts = sims.split(fraction, seed=3)
    assert parts[0].counts == (round(40 * fraction), round(60 * fraction))
    both = np.concatenate([part.x for part in parts])
    np.testing.assert_array_equal(np.sort(both[:, 0]), np.sort(sims.x[:, 0]))
    assert tuple(map(sum, zip(*(part.failed for part in parts), strict=True))) == (1, 5)
    for part in parts:
        np.testing.assert_array_equal(part.parameters[1]["theta"], part.of(1)[:, 0])


def test_split_is_random_and_follows_the_seed() -> None:
    sims = example(n=(2000, 2000), failed=None)
    first, _ = sims.split(seed=3)
    np.testing.assert_array_equal(first.x, sims.split(seed=3)[0].x)
    assert not np.array_equal(first.x, sims.split(seed=4)[0].x)
    rank = first.of(0)[:, 0]
    # 1000 of 0..1999 without replacement: the mean has variance (2000² / 12) · (1/1000) · (1/2).
    sigma = 2000 / np.sqrt(12 * 1000 * 2)
    assert abs(rank.mean() - 999.5) < 4 * sigma
    # The check can fail: the first half in order is far off.
    assert abs(np.arange(1000).mean() - 999.5) > 4 * sigma


def test_split_refuses_to_lose_a_model() -> None:
    with pytest.raises(ValueError, match=r"model 'model 0' has 4 draws: a fraction of 0.01 leaves one part"):
        example(n=(4, 60)).split(0.01)
    for fraction in (0, 1, 1.5, np.nan):
        with pytest.raises(ValueError, match="fraction must lie between 0 and 1"):
            example().split(fraction)


def test_sum_is_the_inverse_of_split() -> None:
    sims = example(weighted=True, parameters=True)
    first, second = sims.split(0.3)
    both = first + second
    assert both.counts == sims.counts
    assert both.failed == sims.failed
    order, reference = np.argsort(both.x[:, 0]), np.argsort(sims.x[:, 0])
    np.testing.assert_array_equal(both.x[order], sims.x[reference])
    np.testing.assert_array_equal(both.log_weight[order], sims.log_weight[reference])
    np.testing.assert_array_equal(both.parameters[1]["theta"], both.of(1)[:, 0])
    three = Simulations.concatenate([first, second, sims])
    assert three.counts == (80, 120)
    assert len(Simulations.concatenate([sims])) == 100


def test_sum_says_what_differs() -> None:
    sims = example()
    x, model = np.zeros((2, 3)), [0, 1]
    with pytest.raises(ValueError, match="the models differ: model 0, model 1 and M0, M1"):
        sims + Simulations(x, model)
    with pytest.raises(ValueError, match=r"the data differ: .*\(3,\) numbers per draw and .*\(2,\) numbers"):
        sims + Simulations(x[:, :2], model, sims.names)
    with pytest.raises(ValueError, match=r"the data differ: an array .* and a dict of 'y'"):
        sims + Simulations({"y": x}, model, sims.names)
    with pytest.raises(ValueError, match="one has log_weight and the other has not"):
        sims + example(weighted=True)
    with pytest.raises(ValueError, match="the parameters differ in what they hold"):
        sims + example(parameters=True)
    with pytest.raises(ValueError, match="the parameters differ in what they hold"):
        example(parameters=True) + Simulations(x, model, sims.names, parameters=(None, np.zeros(1)))
    with pytest.raises(TypeError):
        sims + 1
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Simulations.concatenate([])


def test_subsets_are_not_checked_for_nan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sims = example()
    monkeypatch.setattr("evidencenet.simulation.dataset.finite_rows", None)
    first, second = sims.split()
    assert len(first + second) == 100
    with pytest.raises(TypeError, match="not callable"):
        example()


def test_the_table() -> None:
    sims = Simulations(
        np.zeros((1500, 20), np.float32), np.arange(1500) % 2, ("flat", "trend"), failed=(0, 12)
    )
    assert str(sims).splitlines() == [
        "Simulations: 1,500 draws of x (20,) float32",
        "  model        draws       failed",
        "  flat           750            0",
        "  trend          750           12",
    ]
    weighted = Simulations({"y": np.zeros(3)}, [0, 0, 1], log_weight=[0, -np.inf, 0])
    assert repr(weighted).splitlines() == [
        "Simulations: 3 draws of y (1,) float64",
        "  model        draws       failed    effective",
        "  M0               2            0            1",
        "  M1               1            0            1",
    ]


BAD_X = np.zeros((5, 2))
BAD_X[[1, 3], [0, 1]] = [np.nan, np.inf]
GOOD: dict[str, Any] = {"x": np.zeros((5, 2)), "model": [0, 1, 0, 1, 0]}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": None}, TypeError, "x must be an array"),
        ({"x": np.zeros((0, 2)), "model": []}, ValueError, "x is empty"),
        ({"x": np.zeros((4, 2))}, ValueError, r"model has shape \(5,\), but x has 4 rows"),
        ({"x": {"a": np.zeros(5), "b": np.zeros(4)}}, ValueError, "arrays of x differ in length"),
        (
            {"x": BAD_X},
            ValueError,
            r"x has NaN or infinity in 2 of 5 rows, first in row 1\. .*missing='mask'.*simulate\(\)",
        ),
        (
            {"x": {"a": np.zeros(5), "b": BAD_X}},
            ValueError,
            r"x\['b'\] has NaN or infinity .*say with failed= how many",
        ),
        ({"model": [0.5, 1, 0, 1, 0]}, ValueError, "labels must be whole numbers or names, got 0.5"),
        ({"model": [None] * 5}, ValueError, "5 of 5 labels are missing, first in row 0"),
        ({"model": [0, 1, None, 1, 0]}, ValueError, "1 of 5 labels are missing, first in row 2"),
        ({"model": np.eye(2)[[0, 1, 0, 1, 0]]}, ValueError, r"give model\.argmax\(axis=1\)"),
        ({"model": "kind"}, TypeError, "names a column of labels, but x is a ndarray"),
        ({"model": list("abxab"), "names": ["a", "b"]}, ValueError, "a label 'x', but the models are a, b"),
        ({"model": None}, TypeError, r"needs to know the model of each draw: give model=.*'flat': x0"),
        ({"missing": "drop"}, ValueError, r"missing must be 'mask' \(NaN is a missing number\) or None"),
        ({"columns": ["a"]}, ValueError, r"columns gives 1 names, but x is an array of \(2,\) numbers"),
        ({"columns": ["a", "a"]}, ValueError, "two columns have the same name"),
        ({"model": [-1, 0, 1, 0, 1]}, ValueError, "got values from -1 to 1"),
        ({"model": [0, 1, 0, 1, 7]}, ValueError, "the labels are 0, 1, 7; wanted 0, 1, .*given as names"),
        ({"model": [0, 1, 2, 1, 0], "names": "ab"}, TypeError, "got the string 'ab'"),
        (
            {"model": [0, 1, 2, 1, 0], "names": ["a", "b"]},
            ValueError,
            "up to 2, but 2 names .* wanted 3 names",
        ),
        ({"names": ["a", "b", "c"]}, ValueError, "model 'c' has no draws"),
        ({"model": [0, 2, 0, 2, 0]}, ValueError, "the labels are 0, 2; wanted 0, 1"),
        ({"names": ["a", "a"]}, ValueError, "two models are named 'a'"),
        ({"names": ["a", 1]}, TypeError, "names must be non-empty strings"),
        ({"failed": [1]}, ValueError, r"one number for each of the 2 models, got \[1\]"),
        ({"failed": [1, -2]}, ValueError, "failed is -2 for model 'M1'; it cannot be negative"),
        ({"failed": [1, 0.5]}, TypeError, "failed must hold integers"),
        ({"log_weight": np.zeros(4)}, ValueError, r"log_weight has shape \(4,\); .* shape \(5,\)"),
        ({"log_weight": [0, 0, np.nan, np.inf, 0]}, ValueError, "in 2 of 5 draws, first in draw 2"),
        ({"log_weight": [0, -np.inf, 0, -np.inf, 0]}, ValueError, "all weights of model 'M1' are zero"),
        ({"parameters": (None,)}, ValueError, "an entry for each of the 2 models"),
        (
            {"parameters": (None, np.zeros(5))},
            ValueError,
            r"model 'M1' has 2 draws, but its parameters have shape \(5,\)",
        ),
    ],
)
def test_bad_input(arguments: dict[str, Any], error: type[BaseException], message: str) -> None:
    with pytest.raises(error, match=message):
        Simulations(**(GOOD | arguments))


# --- Failed draws ----------------------------------------------------------------------------------------


SIZE, LIMIT = 4, 0.5


def fails_above(limit: float) -> en.Model:
    """The mean test's second model, whose simulator breaks down where the mean is above a limit."""

    def simulate(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
        x = mean[:, None] + rng.standard_normal((len(mean), SIZE))
        return np.where(mean[:, None] > limit, np.nan, x)

    return en.Model("free mean", simulate, prior=lambda rng, n: rng.standard_normal(n))


@pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")
def test_the_error_of_the_valid_fraction() -> None:
    model = fails_above(LIMIT)
    valid = float(ndtr(LIMIT))
    repeats, errors = [], []
    for seed in range(1000):
        sims = en.simulate([model], 300, seed=seed, progress=False)
        repeats.append((np.log(sims.valid_fraction[0]) - np.log(valid)) / sims.log_valid_error[0])
        errors.append(sims.log_valid_error[0])
    # The scatter of 1000 standard normals is 1 to 1/√2000; four of that.
    assert abs(np.std(repeats) - 1) < 0.09
    assert abs(np.mean(repeats)) < 4 / np.sqrt(1000) + np.mean(errors)
    # The error of the fraction itself, not of its logarithm, would fail.
    assert np.std(repeats) / valid > 1.09


def test_the_error_of_the_valid_fraction_by_hand() -> None:
    sims = en.Simulations(np.zeros(8), [0, 0, 1, 1, 1, 1, 1, 1], failed=(0, 2))
    np.testing.assert_allclose(sims.log_valid_error, [0, np.sqrt(0.25 / (0.75 * 8))])


# --- Another prior ---------------------------------------------------------------------------------------


OLD, NEW = en.problems.mean_test(size=5, spread=2.0), en.problems.mean_test(size=5, spread=1.0)


def log_ratio(mean: Any) -> np.ndarray:
    """Log N(mean; 0, 1) − log N(mean; 0, 2²), up to a constant."""
    return -0.5 * mean**2 + 0.5 * (mean / 2) ** 2


@pytest.fixture(scope="module")
def old() -> en.Simulations:
    return draws(OLD, 20_000, seed=1, keep_parameters=True)


def test_weights_are_the_ratio_of_the_priors(old: en.Simulations) -> None:
    new = old.reweight("free mean", log_ratio)
    assert old.log_weight is None
    assert new.names == old.names
    assert old.parameters is not None
    mean: Any = old.parameters[1]
    mine = new.model == 1
    np.testing.assert_array_equal(new.weights[~mine], 1)
    np.testing.assert_allclose(new.weights[mine], np.exp(w := log_ratio(mean)) / np.exp(w).mean())
    # (Σw)²/Σw² = n √(2·4 − 1)/4 for these two priors; its scatter was measured at 0.5%.
    np.testing.assert_allclose(new.effective_sample_size, [10_000, 10_000 * np.sqrt(7) / 4], rtol=0.02)
    assert "effective" in repr(new)
    assert repr(new).splitlines()[-1].split()[-1] == f"{new.effective_sample_size[1]:,.0f}"


def test_weights_multiply_and_can_be_undone(old: en.Simulations) -> None:
    back = old.reweight(1, log_ratio).reweight(1, lambda mean: -log_ratio(mean) + 7)
    np.testing.assert_allclose(back.weights, 1)
    both = old.reweight(1, log_ratio).reweight(1, lambda mean: np.where(mean > 0, 0.0, -np.inf))
    mean: Any = (old.parameters or ())[1]
    assert np.all(both.weights[both.model == 1][mean <= 0] == 0)
    # A mixed order of models, and parts, keep each weight with its draw.
    part = old.take(np.random.default_rng(1).permutation(len(old))[:5000])
    again: Any = part.reweight(1, log_ratio)
    np.testing.assert_allclose(again.log_weight[part.model == 1], log_ratio((part.parameters or ())[1]))


def test_equal_weight_draws_follow_the_new_prior(old: en.Simulations) -> None:
    part: Any = old.reweight(1, log_ratio).of_equal_weight(seed=3)
    assert part.log_weight is None
    assert part.counts[0] == 10_000
    mean, n = part.parameters[1], part.counts[1]
    # Half of the draws are kept: the largest ratio of the two densities is 2.
    assert abs(n - 5_000) < 4 * np.sqrt(2_500)
    assert abs(mean.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs(old.parameters[1].var() - 1) > 4 * np.sqrt(2 / n)  # type: ignore[index,union-attr]
    assert old.of_equal_weight() is old


def test_few_effective_draws_are_warned_about(old: en.Simulations) -> None:
    with pytest.warns(UserWarning, match=r"10,000 draws of model 'free mean' are worth only \d+ of equal"):
        far = old.reweight(1, lambda mean: -0.5 * ((mean - 7) / 0.3) ** 2)
    assert far.effective_sample_size[1] < 1_000
    few = old.take(slice(None, None, 20))
    with pytest.warns(UserWarning, match="Simulate more, from the new prior itself"):
        few.reweight(1, log_ratio)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old.reweight(1, log_ratio)


def test_what_cannot_be_reweighted(old: en.Simulations) -> None:
    with pytest.raises(
        ValueError, match=r"parameters of model 'zero mean' are not known.*keep_parameters=True"
    ):
        old.reweight(0, log_ratio)
    with pytest.raises(ValueError, match="'free mean' are not known"):
        draws(OLD, 100, seed=1).reweight(1, log_ratio)
    with pytest.raises(ValueError, match="there is no model 'other'"):
        old.reweight("other", log_ratio)
    with pytest.raises(TypeError, match="log_ratio must be a function of the parameters"):
        old.reweight(1, np.zeros(10_000))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"returned shape \(10000, 1\) for 10000 parameters"):
        old.reweight(1, lambda mean: np.asarray(mean)[:, None])
    with pytest.raises(
        ValueError, match=r"NaN or \+infinity for 1 of 10000 parameters .* number 3; where the"
    ):
        old.reweight(1, lambda mean: np.where(np.arange(10_000) == 3, np.nan, 0.0))
    with pytest.raises(ValueError, match="all weights of model 'free mean' are zero"):
        old.reweight(1, lambda mean: np.full(10_000, -np.inf))
    lost = en.Simulations(np.zeros(3), [0, 1, 1], failed=(0, 2), parameters=(None, np.zeros(2)))
    with pytest.raises(ValueError, match=r"2 draws of model 'M1' failed, .*Simulate from the new prior"):
        lost.reweight(1, log_ratio)
