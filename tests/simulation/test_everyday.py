"""What people type first, and mistakes that used to pass in silence."""

import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet._common.arrays import as_data, in_order
from evidencenet._common.masks import like_draws
from evidencenet.simulation.dataset import row_hashes

pandas = pytest.importorskip("pandas")
RNG = np.random.default_rng(1)


def flat(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 2))


def trend(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 2)) + np.array([0.0, 1.0])


def draw(models: Any, n: float = 400, **options: Any) -> Any:
    return en.simulate(models, n, progress=False, **options)


def frame(x: Any, columns: str = "ab") -> Any:
    return pandas.DataFrame(x, columns=list(columns))


# Models, labels and fractions as people write them.


def test_simulators_in_a_dict() -> None:
    sims = draw({"flat": flat, "trend": en.Model("x", trend)}, 1e3, fractions={"trend": 3, "flat": 1})
    assert sims.names == ("flat", "trend")
    assert sims.counts == (250, 750)
    expected = draw([en.Model("flat", flat), en.Model("trend", trend)], 1000, fractions=(1, 3))
    np.testing.assert_array_equal(sims.x, expected.x)


def test_data_in_a_dict_by_model() -> None:
    a, b = RNG.normal(size=(5, 2)), RNG.normal(size=(7, 2))
    sims = en.Simulations({"a": a, "b": b})
    assert (sims.names, sims.counts) == (("a", "b"), (5, 7))
    np.testing.assert_array_equal(sims.of("b"), b)
    turned = en.Simulations({"a": a, "b": b}, names=["b", "a"])
    np.testing.assert_array_equal(turned.of(0), b)
    keyed = en.Simulations({"a": {"y": a}, "b": {"y": b}})
    np.testing.assert_array_equal(keyed.of("b")["y"], b)
    with pytest.raises(ValueError, match=r"the data of 'b' are an array of \(3,\).*needs model="):
        en.Simulations({"a": a, "b": np.zeros((7, 3))})


def test_labels_as_names_categories_and_from_one() -> None:
    x = RNG.normal(size=(6, 2))
    words = np.array(["trend", "flat", "flat", "trend", "flat", "flat"])
    by_name = en.Simulations(x, words)
    assert (by_name.names, by_name.model.tolist()) == (("flat", "trend"), [1, 0, 0, 1, 0, 0])
    chosen = en.Simulations(x, pandas.Series(words), names=["trend", "flat"])
    assert (chosen.names, chosen.model.tolist()) == (("trend", "flat"), [0, 1, 1, 0, 1, 1])
    ordered = pandas.Categorical(words, categories=["trend", "flat"])
    assert en.Simulations(x, ordered).names == ("trend", "flat")
    assert en.Simulations(x, pandas.Series(ordered)).model.tolist() == [0, 1, 1, 0, 1, 1]
    assert en.Simulations(x, [0.0, 1, 0, 1, 0, 1]).counts == (3, 3)
    with pytest.warns(
        en.InputWarning, match="labels are 1 to 2.*label 1 became model 0, 'model 1'"
    ) as caught:
        from_one = en.Simulations(x, [1, 2, 1, 2, 2, 2])
    assert caught[0].filename == __file__
    assert (from_one.names, from_one.counts) == (("model 1", "model 2"), (2, 4))
    with pytest.warns(en.InputWarning, match="label 2 model 1, 'b'"):
        assert en.Simulations(x, [1, 2, 1, 2, 2, 2], ["a", "b"]).counts == (2, 4)
    # A model that is simply missing is still an error.
    with pytest.raises(ValueError, match="model 'a' has no draws"):
        en.Simulations(x, [1, 2, 1, 2, 2, 2], ["a", "b", "c"])


# Names of columns.


def test_columns_are_kept_and_put_in_order() -> None:
    x = RNG.normal(size=(6, 2))
    sims = en.Simulations(frame(x), [0, 1] * 3)
    assert sims.columns == ("a", "b")
    assert sims.take([0, 1]).columns == ("a", "b")
    assert "a, b" in sims._repr_html_()
    assert en.Simulations(pandas.DataFrame(x), [0, 1] * 3).columns is None
    with pytest.warns(en.InputWarning, match=r"another order \(b, a\); .* in the order a, b"):
        both = en.Simulations({"m": frame(x), "n": frame(x[:, ::-1], "ba")})
    np.testing.assert_array_equal(both.of("m"), both.of("n"))
    with pytest.raises(ValueError, match="lacks 'b' and has unknown 'c'"):
        en.Simulations({"m": frame(x), "n": frame(x, "ac")})
    turned = en.Simulations(frame(x[:, ::-1] + 1, "ba"), [0, 1] * 3)
    with pytest.warns(en.InputWarning, match="another order"):
        joined: Any = sims + turned
    np.testing.assert_array_equal(joined.x[6:], x + 1)


def test_simulators_that_return_data_frames(tmp_path: Path) -> None:
    models = {
        "flat": lambda rng, n: frame(flat(rng, n)),
        "trend": lambda rng, n: frame(trend(rng, n)[:, ::-1], "ba"),
    }
    with pytest.warns(en.InputWarning, match="another order"):
        sims = draw(models, store=tmp_path / "s.zarr")
    assert sims.columns == ("a", "b")
    np.testing.assert_array_equal(sims.x, draw({"flat": flat, "trend": trend}).x)
    with pytest.warns(en.InputWarning, match="another order"):
        assert en.Simulations.read(tmp_path / "s.zarr").columns == ("a", "b")
    Pair = namedtuple("Pair", "a b")
    named = draw({"flat": lambda rng, n: Pair(*flat(rng, n).T)})
    assert named.columns == ("a", "b")
    np.testing.assert_array_equal(named.x, draw({"flat": flat}).x)
    one = en.Model("one", lambda rng: pandas.Series({"a": rng.normal(), "b": 1.0}), kind="one")
    assert draw([one]).columns == ("a", "b")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".zarr"])
def test_files_keep_columns(tmp_path: Path, suffix: str) -> None:
    sims = en.Simulations(frame(RNG.normal(size=(6, 2))), [0, 1] * 3)
    path = tmp_path / f"draws{suffix}"
    sims.write(path)
    again = en.Simulations.read(path)
    assert again.columns == ("a", "b")
    np.testing.assert_array_equal(again.x, sims.x)


def test_csv_files_in_another_order(tmp_path: Path) -> None:
    x = RNG.normal(size=(6, 2))
    frame(x).to_csv(tmp_path / "m.csv", index=False)
    frame(x[:, ::-1], "ba").to_csv(tmp_path / "n.csv", index=False)
    with pytest.warns(en.InputWarning, match="another order"):
        sims: Any = en.Simulations.read([tmp_path / "m.csv", tmp_path / "n.csv"])
    np.testing.assert_array_equal(sims.of(0), sims.of(1))


def test_in_order_of_observations() -> None:
    columns = ("a", "b")
    for x in (frame([[1.0, 2.0]]), {"a": [1.0], "b": [2.0]}):
        np.testing.assert_array_equal(in_order(x, columns)[0], [[1.0, 2.0]])
    np.testing.assert_array_equal(in_order({"a": 1.0, "b": 2.0}, columns)[0], [1.0, 2.0])
    with pytest.warns(en.InputWarning, match="another order"):
        turned, names = in_order(pandas.Series({"b": 2.0, "a": 1.0}), columns)
    assert names == columns
    np.testing.assert_array_equal(turned, [1.0, 2.0])
    record = np.array([(1.0, 2.0)], dtype=[("a", float), ("b", float)])
    np.testing.assert_array_equal(in_order(record, columns)[0], [[1.0, 2.0]])
    plain = np.ones(2)
    assert in_order(plain, columns) == (plain, None)
    with pytest.raises(ValueError, match="the columns differ: x lacks 'b'"):
        in_order({"a": 1.0}, columns)


# Arrays of other libraries.


def test_tables_with_missing_and_text() -> None:
    table = pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64"), "b": [1.5, 2.5]})
    np.testing.assert_array_equal(as_data(table), [[1.0, 1.5], [np.nan, 2.5]])
    with pytest.raises(TypeError, match=r"column 'sex' of x holds .*, not numbers: leave it out"):
        as_data(pandas.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"]}))
    np.testing.assert_array_equal(as_data(((1, 2), (3, 4))), [[1.0, 2.0], [3.0, 4.0]])


def test_torch_tensors_and_simulators() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.ones((3, 2), requires_grad=True)
    np.testing.assert_array_equal(as_data(x), np.ones((3, 2)))

    def seeded(rng: np.random.Generator, n: int) -> Any:
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        return torch.randn((n, 2), generator=generator)

    np.testing.assert_array_equal(draw({"a": seeded}).x, draw({"a": seeded}).x)
    with pytest.warns(en.RandomnessWarning, match=r"global random numbers \(torch\)"):
        draw({"a": lambda rng, n: torch.randn((n, 2))})


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    sims: Any = en.Simulations(polars.DataFrame({"a": [1.0, 2.5], "b": [3, 4]}), [0, 1])
    assert sims.columns == ("a", "b")
    np.testing.assert_array_equal(sims.x, [[1.0, 3.0], [2.5, 4.0]])


def test_xarray() -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    array = xarray.DataArray([[1.0, 2.0], [3.0, 4.5]], dims=("draw", "number"), coords={"number": ["a", "b"]})
    assert en.Simulations(array, [0, 1]).columns == ("a", "b")
    data: Any = as_data(xarray.Dataset({"y": array}))
    np.testing.assert_array_equal(data["y"], array.values)


# Draws that repeat, and random numbers that do not follow the seed.


def test_a_simulator_that_seeds_itself_is_noticed() -> None:
    """500 distinct rows of 4,000 passed everything."""
    fixed = np.random.default_rng(0).normal(size=(1000, 2))
    with pytest.warns(en.RandomnessWarning, match="model 'b': only 100 of 2,000 draws are distinct"):
        draw({"a": flat, "b": lambda rng, n: fixed[:n]}, 4000)
    with pytest.warns(en.RandomnessWarning, match=r"model 'b': only 4\d\d of 2,000 draws are distinct"):
        draw({"a": flat, "b": lambda rng, n: fixed[rng.integers(500, size=n)]}, 4000)
    with pytest.warns(en.RandomnessWarning, match="only 100 of 200"):
        en.Simulations(np.tile(RNG.normal(size=(100, 2)), (2, 1)), np.zeros(200, int))
    counts = RNG.poisson(20.0, size=(100, 5))
    with pytest.warns(en.RandomnessWarning, match="only 100 of 200"):
        en.Simulations(np.tile(counts, (2, 1)), np.zeros(200, int))


@pytest.mark.parametrize(
    "simulator",
    [
        lambda rng, n: rng.poisson(3.0, size=(n, 1)),
        lambda rng, n: rng.integers(2, size=(n, 3)),
        lambda rng, n: rng.integers(100, size=(n, 2)),
        lambda rng, n: rng.integers(2, size=(n, 20)),
        lambda rng, n: np.round(rng.normal(size=(n, 1)), 1),
        lambda rng, n: np.sqrt(rng.poisson(5.0, size=(n, 1))),
        lambda rng, n: np.eye(30)[rng.integers(30, size=n)],
        lambda rng, n: np.maximum(rng.normal(size=(n, 2)), 0.0),
        lambda rng, n: rng.normal(size=(n, 1)).astype(np.float32),
    ],
)
def test_data_of_few_values_may_repeat(simulator: Any) -> None:
    draw({"a": simulator}, 20_000)


def test_hashes_of_rows() -> None:
    x = RNG.integers(-3, 3, size=(20_000, 6)).astype(float)
    hashes = row_hashes(x)
    assert hashes.dtype == np.uint64
    # As many distinct hashes as distinct rows, of small whole numbers, whose bits are mostly zero.
    assert len(np.unique(hashes)) == len(np.unique(x, axis=0))
    np.testing.assert_array_equal(row_hashes(x.astype(np.float32)), hashes)
    np.testing.assert_array_equal(row_hashes(-0.0 * x), row_hashes(0.0 * np.abs(x)))
    assert len(set(row_hashes(np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 0.0]])))) == 3
    assert row_hashes({"a": x, "b": x})[0] != row_hashes({"a": x, "b": x + 1})[0]


def test_global_random_numbers_are_noticed_once() -> None:
    """The same seed gave other draws, without a word."""

    def careless(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.random.normal(size=(n, 2))  # noqa: NPY002 (the mistake itself)

    with pytest.warns(
        en.RandomnessWarning, match=r"'b' uses global random numbers \(numpy.random\)"
    ) as caught:
        first = draw({"a": flat, "b": careless}, seed=1)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(en.RandomnessWarning):
        assert not np.array_equal(first.x, draw({"a": flat, "b": careless}, seed=1).x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw({"a": flat, "b": trend}, seed=1)


# Failed draws.


def test_many_failed_draws_are_a_warning() -> None:
    def failing(fraction: float) -> Any:
        return lambda rng, n: np.where(rng.random((n, 1)) < fraction, np.nan, rng.normal(size=(n, 2)))

    with pytest.warns(en.FailedDrawsWarning, match=r"model 'b': [\d,]+ of [\d,]+ draws failed") as caught:
        sims = draw({"a": flat, "b": failing(0.4)}, 4000)
    text = str(caught[0].message)
    term = np.log(sims.valid_fraction[1])
    assert f"= {term:.2f}" in text
    assert abs(term - np.log(0.6)) < 4 * sims.log_valid_error[1]
    assert "missing='mask'" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw({"a": flat, "b": failing(0.03)}, 4000)


# Missing numbers.


def test_missing_numbers_are_no_failures() -> None:
    def gaps(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random((n, 5)) < 0.3, np.nan, rng.normal(size=(n, 5)))

    sims = draw({"a": gaps, "b": gaps}, 4000, missing="mask")
    assert set(sims.x) == {"x", "mask"}
    # A draw fails only if all five are missing.
    p = 0.3**5
    assert abs(sum(sims.failed) - 4000 * p) < 4 * np.sqrt(4000 * p) + 1
    assert abs(sims.x["mask"].mean() - 0.7) < 0.01
    observation = np.array([1.0, np.nan, 0.5, 0.0, 0.0])
    example = {key: array[0] for key, array in sims.x.items()}
    like = like_draws(observation, example, sims.masked)
    np.testing.assert_array_equal(like["mask"], [[True, False, True, True, True]])
    with pytest.raises(ValueError, match="missing='mask'"):
        en.Simulations(gaps(RNG, 10), [0, 1] * 5)
    given: Any = en.Simulations(gaps(RNG, 10), [0, 1] * 5, missing="mask")
    assert given.x["mask"].dtype == bool


def test_missing_numbers_in_files(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("model,a,b\n0,1.5,nan\n1,2.5,3.5\n")
    sims: Any = en.Simulations.read(tmp_path / "x.csv", missing="mask")
    assert sims.failed == (0, 0)
    np.testing.assert_array_equal(sims.x["mask"], [[True, False], [True, True]])


# Draws of unequal length.


def test_draws_of_unequal_length_are_padded(tmp_path: Path) -> None:
    def run(level: float) -> Any:
        return lambda rng: level + np.arange(rng.integers(2, 9), dtype=float)

    models = [en.Model(name, run(k), kind="one") for k, name in enumerate("ab")]
    with pytest.warns(en.InputWarning, match="unequal lengths, from 2 to 8: they were padded to 8"):
        sims = draw(models, 200, store=tmp_path / "s.zarr")
    lengths = sims.x["mask"].sum(axis=1)
    assert set(lengths) == set(range(2, 9))
    for k in range(2):
        x, mask = sims.of(k)["x"], sims.of(k)["mask"]
        np.testing.assert_array_equal(x[mask], (np.broadcast_to(k + np.arange(8.0), x.shape))[mask])
        assert np.all(x[~mask] == 0)
    again: Any = en.Simulations.read(tmp_path / "s.zarr")
    np.testing.assert_array_equal(again.x["mask"], sims.x["mask"])
    with pytest.warns(en.InputWarning, match="padded"):
        np.testing.assert_array_equal(draw(models, 200, workers=2, chunk=3).x["x"], sims.x["x"])
    rows = [np.ones((2, 3)), np.ones((4, 3))]
    with pytest.warns(en.InputWarning, match="from 2 to 4"):
        given: Any = en.Simulations(rows, [0, 1])
    assert given.shape == {"x": (4, 3), "mask": (4,)}
    example = {"x": np.zeros(8), "mask": np.zeros(8, bool)}
    np.testing.assert_array_equal(like_draws([1.0, 2.0], example)["mask"].sum(), 2)
    with pytest.raises(ValueError, match="has length 9, and the longest draw has 8"):
        like_draws(np.ones(9), example)


def test_lengths_that_differ_between_models_are_a_mistake() -> None:
    models = [
        en.Model(name, lambda rng, k=k: rng.normal(size=k), kind="one") for k, name in ((2, "a"), (3, "b"))
    ]
    with pytest.raises(ValueError, match=r"'b' gives an array of \(3,\)"):
        draw(models, 20)


# Mistakes in a model.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"simulate": lambda rng, theta: theta, "prior": lambda rng: rng.normal()},
            r"'m': prior\(rng\) cannot be called as kind='batch' calls it: prior\(rng, n\).*add kind='one'",
        ),
        ({"simulate": lambda rng: rng.normal()}, r"simulate\(rng, n\) -> n rows.*add kind='one'"),
        ({"simulate": lambda rng, n: rng.normal(size=n), "kind": "one"}, "leave out kind="),
        ({"simulate": lambda rng: 1.0, "prior": lambda rng, n: np.zeros(n)}, r"simulate\(rng, theta\)"),
    ],
)
def test_functions_that_cannot_be_called(arguments: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        en.Model("m", **arguments)


def test_one_draw_where_many_were_wanted() -> None:
    with pytest.raises(ValueError, match=r"a single number where 10 were wanted.*add kind='one'"):
        draw([en.Model("m", lambda rng, theta: theta, prior=lambda rng, n: rng.normal())])
