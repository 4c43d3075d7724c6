"""Draws and observations in files: the same to the bit if we wrote them, and clear words if others did."""

import builtins
import io
import json
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from evidencenet._common.files import FileError
from evidencenet._common.warnings import FailedDrawsWarning
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.io import tables
from evidencenet.simulation.io.draws import read_data

ARRAYS = [".npz", ".h5", ".hdf5", ".zarr"]
TABLES = [".csv", ".parquet"]
ODD = ("a/b: ½ µ, 'c' \"d\"", "2nd\nline #", "../éè")

Theta = namedtuple("Theta", ["mean", "width"])


def vectors(dtype: Any = np.float64, shape: tuple[int, ...] = (3,), weighted: bool = True) -> Simulations:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(30, *shape)) * 10.0 ** rng.integers(-30, 30, size=(30, *shape))).astype(dtype)
    x.flat[0], x.flat[1] = np.finfo(dtype).smallest_subnormal, -0.0
    weight = np.where(np.arange(30) == 7, -np.inf, rng.normal(size=30))
    model = rng.permutation(np.arange(30) % 3)
    return Simulations(x, model, ODD, log_weight=weight if weighted else None, failed=(4, 0, 2**40))


def everything() -> Simulations:
    """A dict with masks, and parameters of each form that there is."""
    rng = np.random.default_rng(2)
    x = {
        "z": rng.normal(size=(30, 4, 2)).astype(np.float32),
        "a/b µ": rng.normal(size=30),
        "Mask": rng.random((30, 4)) < 0.5,
        "mask": np.zeros((30, 4), bool),
        "": rng.normal(size=(30, 1)),
    }
    parameters = (
        None,
        {"θ": rng.normal(size=10), "n": rng.integers(9, size=(10, 2)), ".": rng.random(10) < 0.5},
        Theta(rng.normal(size=10), rng.normal(size=(10, 2)) * (1 + 2j)),
    )
    return Simulations(x, np.repeat([0, 1, 2], 10), ODD, parameters=parameters, failed=(0, 1, 2))


def save_zarr(path: Path, array: Any) -> None:
    """Save a lone array, as others do."""
    zarr.save(str(path), array)


def same(a: Any, b: Any) -> None:
    """Require equality to the bit, of types and of the order of keys."""
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = tuple(a.values()), tuple(b.values())
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        assert len(a) == len(b)
        assert getattr(a, "_fields", None) == getattr(b, "_fields", None)
        for one, other in zip(a, b, strict=True):
            same(one, other)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    else:
        assert a == b


def same_draws(a: Simulations, b: Simulations) -> None:
    for name in ("x", "model", "names", "log_weight", "failed", "parameters"):
        same(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("suffix", [*ARRAYS, *TABLES])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_written_is_read_to_the_bit(tmp_path: Path, suffix: str, dtype: Any) -> None:
    for shape in ((3,), (1,), (2, 3, 1)):
        for weighted in (True, False):
            sims = vectors(dtype, shape, weighted)
            path = tmp_path / f"draws{suffix}"
            sims.write(path)  # replaces the one before
            same_draws(Simulations.read(str(path)), sims)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ARRAYS)
def test_dicts_masks_and_parameters_are_kept(tmp_path: Path, suffix: str) -> None:
    sims = everything()
    sims.write(tmp_path / f"draws{suffix}")
    back = Simulations.read(tmp_path / f"draws{suffix}")
    same_draws(back, sims)
    assert back.parameters is not None
    assert back.parameters[2].mean.shape == (10,)  # type: ignore[union-attr]
    # Draws from a file can stand beside those in memory, though the named tuple is of another type.
    assert (back + sims).counts == (20, 20, 20)
    assert read_data(tmp_path / f"draws{suffix}").keys() == sims.x.keys()  # type: ignore[union-attr]


def test_odd_byte_orders_and_empty_parameters(tmp_path: Path) -> None:
    parameters = (np.arange(4, dtype=">i4"), np.zeros((4, 0)))
    sims = Simulations(np.zeros((8, 2)), [0] * 4 + [1] * 4, parameters=parameters)
    for suffix in ARRAYS:
        sims.write(tmp_path / f"draws{suffix}")
        back: Any = Simulations.read(tmp_path / f"draws{suffix}").parameters
        np.testing.assert_array_equal(back[0], parameters[0])
        assert back[1].shape == (4, 0)


def test_what_a_file_cannot_keep_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    plain, table = vectors(), tmp_path / "draws.csv"
    plain.write(table)
    before = table.read_bytes()
    with pytest.raises(
        ValueError, match=r"draws\.csv: the data are a dict of 'z'.*Write \.npz, \.h5 or \.zarr"
    ):
        everything().write(table)
    kept = Simulations(np.zeros((2, 1)), [0, 1], parameters=(None, np.zeros(1)))
    with pytest.raises(ValueError, match=r"draws\.parquet: a table has no room for parameters"):
        kept.write(tmp_path / "draws.parquet")
    text = Simulations(np.zeros((2, 1)), [0, 1], parameters=(None, np.array(["blue"])))
    for path in (tmp_path / "draws.npz", tmp_path / "draws.zarr"):
        with pytest.raises(
            TypeError, match=r"draws\..*: parameters/1 holds values of type <U4; wanted numbers"
        ):
            text.write(path)
    with pytest.raises(ValueError, match=r"'\.npy' does not say how .*no room for labels\); wanted \.npz"):
        plain.write(tmp_path / "draws.npy")
    with pytest.raises(ValueError, match="the suffix '' does not say how to write"):
        plain.write(tmp_path / "draws")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        plain.write(tmp_path / "none" / "draws.npz")
    assert [entry.name for entry in tmp_path.iterdir()] == ["draws.csv"]
    assert table.read_bytes() == before


@pytest.mark.parametrize("suffix", [*ARRAYS, *TABLES])
def test_an_error_while_writing_loses_nothing(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sims = tmp_path / f"draws{suffix}", vectors()
    sims.write(path)

    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError("disk full")

    module: Any
    for module, name in (
        (np, "savez"),
        (h5py.Group, "create_dataset"),
        (zarr.Group, "create_array"),
        (pq, "write_table"),
        (json, "dumps"),
    ):
        monkeypatch.setattr(module, name, full)
    with pytest.raises(OSError, match="disk full"):
        vectors(np.float32).write(path)
    monkeypatch.undo()
    same_draws(Simulations.read(path), sims)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    save_zarr(tmp_path / "other.zarr", np.zeros(3))
    (tmp_path / "plain.zarr").mkdir()
    (tmp_path / "plain.zarr" / "thesis.tex").write_text("x")
    for name in ("other.zarr", "plain.zarr"):
        with pytest.raises(FileExistsError, match=r"holds no draws that evidencenet wrote\. Delete it first"):
            vectors().write(tmp_path / name)
    assert (tmp_path / "plain.zarr" / "thesis.tex").read_text() == "x"


# One file, written by others.

X = np.random.default_rng(3).normal(size=(6, 2))
MODEL = np.array([1, 0, 2, 1, 0, 2])
WORDS = np.array(["flat", "trend", "wave"])[MODEL]


def test_arrays_with_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, model=MODEL, log_weight=np.arange(6.0), failed=[1, 2, 3])
    sims = Simulations.read(tmp_path / "a.npz", names=("flat", "trend", "wave"))
    np.testing.assert_array_equal(sims.x, X)
    np.testing.assert_array_equal(sims.model, MODEL)
    np.testing.assert_array_equal(sims.log_weight, np.arange(6.0))
    assert (sims.names, sims.failed) == (("flat", "trend", "wave"), (1, 2, 3))
    assert Simulations.read(tmp_path / "a.npz").names == ("M0", "M1", "M2")

    np.savez(tmp_path / "b.npz", y=X, mask=X > 0, label=WORDS, names=["wave", "trend", "flat"])
    keyed: Any = Simulations.read(tmp_path / "b.npz")
    assert keyed.names == ("wave", "trend", "flat")
    assert list(keyed.x) == ["y", "mask"]
    assert keyed.x["mask"].dtype == bool
    np.testing.assert_array_equal(keyed.model, 2 - MODEL)

    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["data"] = X.astype(">f4")  # a lone array is the data, whatever its name
        file["kind"] = WORDS.tolist()
        file["parameters/1"] = np.arange(2)
        file["parameters/2/phase"] = np.arange(2.0)
    named: Any = Simulations.read(tmp_path / "c.h5", label="kind", names=("trend", "flat", "wave"))
    np.testing.assert_array_equal(named.x, X.astype(np.float32))
    np.testing.assert_array_equal(named.model, np.array([1, 0, 2])[MODEL])
    same(named.parameters, (None, np.arange(2), {"phase": np.arange(2.0)}))

    group = zarr.open_group(tmp_path / "d.zarr", mode="w")
    group["model"], group["x"] = MODEL.astype(float), X
    group["parameters"] = np.arange(6)
    stored: Any = Simulations.read(tmp_path / "d.zarr")
    np.testing.assert_array_equal(stored.x, X)
    np.testing.assert_array_equal(stored.parameters[2], [2, 5])

    np.savez(tmp_path / "e.npz", x=X, theta=X, model=MODEL)
    np.testing.assert_array_equal(Simulations.read(tmp_path / "e.npz", keys="x").x, X)
    assert list(Simulations.read(tmp_path / "e.npz", keys=["theta"]).x) == ["theta"]


def test_the_order_of_models_is_ours_to_choose(tmp_path: Path) -> None:
    sims = everything()
    sims.write(tmp_path / "a.npz")
    turned: Any = Simulations.read(tmp_path / "a.npz", names=ODD[::-1])
    np.testing.assert_array_equal(turned.model, 2 - sims.model)
    assert turned.failed == sims.failed[::-1]
    assert turned.parameters[2] is None
    same(turned.parameters[1], sims.parameters[1])  # type: ignore[index]
    with pytest.raises(FileError, match=r"(?s)a\.npz: the models are .*, but names= gives x, y, z"):
        Simulations.read(tmp_path / "a.npz", names=("x", "y", "z"))


@pytest.mark.parametrize("labels", [MODEL, WORDS, MODEL.astype(float)])
def test_tables_with_labels(tmp_path: Path, labels: np.ndarray) -> None:
    names = ("flat", "trend", "wave")
    frame = pd.DataFrame({"first": X[:, 0], "label": labels, "log_weight": np.arange(6.0), "second": X[:, 1]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "a.txt", index=False, sep=" ")
    frame.to_csv(tmp_path / "a.dat", index=False, sep=";")
    frame.to_parquet(tmp_path / "a.parquet", index=True)
    for path in tmp_path.iterdir():
        sims = Simulations.read(path, names=names)
        np.testing.assert_array_equal(sims.x, X)
        np.testing.assert_array_equal(sims.model, MODEL)
        np.testing.assert_array_equal(sims.log_weight, np.arange(6.0))
        one = Simulations.read(path, names=names, keys=["second"])
        np.testing.assert_array_equal(one.x, X[:, 1:])
    if labels is WORDS:
        assert Simulations.read(tmp_path / "a.csv").names == names  # in alphabetical order


def test_columns_can_be_entries_of_an_array(tmp_path: Path) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for base in (0, 1):
        names = [f"x_{i + base}_{j + base}" for i in range(3) for j in range(4)]
        frame = pd.DataFrame(x.reshape(2, 12), columns=names).assign(model=[0, 1])
        frame[sorted(frame.columns)].to_csv(tmp_path / "a.csv", index=False)
        np.testing.assert_array_equal(Simulations.read(tmp_path / "a.csv").x, x)
    # Sorted as text, x_10 comes before x_2.
    frame = pd.DataFrame(x.reshape(2, 12), columns=[f"x_{i}" for i in range(12)]).assign(model=[0, 1])
    frame[sorted(frame.columns)].to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(Simulations.read(tmp_path / "a.csv").x, x.reshape(2, 12))
    # Some of many columns keep their order.
    frame[["x_7", "model", "x_3"]].to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(Simulations.read(tmp_path / "a.csv").x, x.reshape(2, 12)[:, [7, 3]])
    frame.rename(columns={"x_3": "x_0_0"}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(FileError, match="mixes columns such as x_1 and x_1_1"):
        Simulations.read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("model,x_0_0,x_0_1,x_1_0\n0,1,2,3\n1,1,2,3\n")
    with pytest.raises(FileError, match=r"has 3 columns that would fill the shape \(2, 2\) by their names"):
        Simulations.read(tmp_path / "a.csv")


# One file per model.

PROGRAM = r"""
#include <stdio.h>
#include <math.h>
int main(int count, char **word) {
    int trend = word[1][0] == 't';
    for (int i = 1; i <= 4; i++) printf("%.17g, %.6e,%s\n", sqrt(i) + trend, i * 1e-3, i == 3 ? "-nan" : "2");
    return 0;
}
"""


def test_a_program_in_another_language(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    lines = [f"{np.sqrt(i):.17g}, {i * 1e-3:.6e},{'-nan' if i == 3 else '2'}\n" for i in (1, 2, 3, 4)]
    if compiler:
        (tmp_path / "a.c").write_text(PROGRAM)
        subprocess.run([compiler, "a.c", "-lm", "-o", "a.out"], cwd=tmp_path, check=True)
        made = subprocess.run([tmp_path / "a.out", "flat"], capture_output=True, text=True, check=True).stdout
        assert made == "".join(lines)
    (tmp_path / "flat.csv").write_text("".join(lines))
    (tmp_path / "trend.txt").write_text("# made by hand\n" + "1 2  3\n" * 3)
    with pytest.warns(FailedDrawsWarning, match=r"^1 rows with NaN .* count as failed draws: 1 of 'flat'\. "):
        sims = Simulations.read([tmp_path / "flat.csv", tmp_path / "trend.txt"])
    expected = [[np.sqrt(i), i / 1000, 2] for i in (1, 2, 4)] + [[1, 2, 3]] * 3
    np.testing.assert_allclose(sims.x, expected, rtol=1e-15)  # type: ignore[arg-type]
    assert (sims.names, sims.counts, sims.failed) == (("flat", "trend"), (3, 3), (1, 0))


def test_one_file_per_model_in_any_format(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    parts = [rng.normal(size=(5 + k, 2)) for k in range(6)]
    np.save(tmp_path / "a.npy", parts[0].astype(np.float32))
    np.savez(tmp_path / "b.npz", x=parts[1], failed=3, log_weight=np.arange(6.0), parameters=np.arange(6))
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["x"], file["parameters/mean"], file["parameters/width"] = parts[2], np.arange(7), np.ones(7)
    save_zarr(tmp_path / "d.zarr", parts[3])
    np.savetxt(tmp_path / "e.csv", parts[4], delimiter=";", fmt="%.17g", newline=";\n")
    pq.write_table(pa.table({"u": parts[5][:, 0], "v": parts[5][:, 1]}), tmp_path / "f.parquet")
    places = sorted(tmp_path.iterdir())
    sims: Any = Simulations.read(places)
    assert sims.names == tuple("abcdef")
    assert sims.counts == (5, 6, 7, 8, 9, 10)
    assert sims.failed == (0, 3, 0, 0, 0, 0)
    np.testing.assert_array_equal(sims.x[5:], np.concatenate(parts[1:]))
    np.testing.assert_array_equal(sims.x[:5], parts[0].astype(np.float32))
    np.testing.assert_array_equal(sims.log_weight, [0] * 5 + list(range(6)) + [0] * 34)
    same(sims.parameters, (None, np.arange(6), {"mean": np.arange(7), "width": np.ones(7)}, None, None, None))
    turned = Simulations.read({"last": places[5], ODD[0]: str(places[0])})
    assert (turned.names, turned.counts) == (("last", ODD[0]), (10, 5))
    assert Simulations.read(places[:2], names=("x", "y")).names == ("x", "y")
    with pytest.raises(ValueError, match="2 files and 1 names were given"):
        Simulations.read(places[:2], names=("x",))
    with pytest.raises(ValueError, match="names were given twice"):
        Simulations.read({"a": places[0]}, names=("x",))


def test_columns_that_are_only_numbered_are_no_draw(tmp_path: Path) -> None:
    pd.DataFrame(np.ones((4, 3))).to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(Simulations.read([tmp_path / "a.csv"]).x, np.ones((4, 3)))


def test_models_that_were_written_apart_are_put_together(tmp_path: Path) -> None:
    whole = everything()
    for k in range(3):
        theta = whole.parameters[k]  # type: ignore[index]
        part = Simulations(whole.of(k), [0] * 10, [ODD[k]], parameters=(theta,), failed=[whole.failed[k]])
        part.write(tmp_path / f"{k}.zarr")
    same_draws(Simulations.read([tmp_path / f"{k}.zarr" for k in range(3)]), whole)
    whole.write(tmp_path / "whole.npz")
    with pytest.raises(FileError, match=r"whole\.npz: it holds draws of 3 models, and it is one of several"):
        Simulations.read([tmp_path / "0.zarr", tmp_path / "whole.npz"])
    np.save(tmp_path / "other.npy", np.zeros((3, 5)))
    with pytest.raises(
        FileError, match=r"other\.npy: it holds an array of \(5,\) numbers per draw; 0\.zarr holds a dict"
    ):
        Simulations.read([tmp_path / "0.zarr", tmp_path / "other.npy"])


# Failed draws.


def test_rows_that_are_not_finite_are_failed_draws(tmp_path: Path) -> None:
    x = np.random.default_rng(5).normal(size=(200, 3))
    model, theta = np.arange(200) % 2, np.arange(200.0)
    x[[3, 10, 11], [0, 1, 2]] = np.nan, np.inf, -np.inf
    np.savez(tmp_path / "a.npz", x=x, model=model, failed=[5, 0], parameters=theta, log_weight=theta)
    with pytest.warns(FailedDrawsWarning, match=r"3 rows .*: 1 of 'M0', 2 of 'M1'\. The fraction of draws"):
        sims: Any = Simulations.read(tmp_path / "a.npz")
    good = np.delete(np.arange(200), [3, 10, 11])
    np.testing.assert_array_equal(sims.x, x[good])
    np.testing.assert_array_equal(sims.log_weight, good)
    np.testing.assert_array_equal(sims.parameters[1], good[good % 2 == 1])
    assert sims.failed == (6, 2)
    assert sims.drawn == (105, 100)
    frame = pd.DataFrame(x).assign(label=model)
    frame.columns = frame.columns.astype(str)
    frame.to_csv(tmp_path / "a.csv", index=False, na_rep="nan")
    frame.to_parquet(tmp_path / "a.parquet")
    for suffix in TABLES:
        with pytest.warns(FailedDrawsWarning, match="1 of 'M0', 2 of 'M1'"):
            assert Simulations.read(tmp_path / f"a{suffix}").failed == (1, 2)
    x[model == 1] = np.nan
    np.savez(tmp_path / "a.npz", x=x, model=model)
    with pytest.raises(FileError, match=r"a\.npz: all 100 draws of model 'M1' hold NaN or infinity"):
        Simulations.read(tmp_path / "a.npz")


# Observations.


def test_observations(tmp_path: Path) -> None:
    one = np.arange(4.0)
    np.save(tmp_path / "one.npy", one)
    np.savez(tmp_path / "one.npz", one)
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["observed"] = one
    save_zarr(tmp_path / "one.zarr", one)
    np.savetxt(tmp_path / "one.csv", one)  # one number per line
    for path in tmp_path.glob("one.*"):
        same(read_data(path), one)
    np.savetxt(tmp_path / "row.csv", one[None], delimiter=",")
    same(read_data(tmp_path / "row.csv"), one[None])
    pq.write_table(pa.table({f"x_{i}": [one[i]] for i in range(4)}), tmp_path / "row.parquet")
    same(read_data(tmp_path / "row.parquet"), one[None])
    np.savez(tmp_path / "keyed.npz", y=one, mask=one > 1)
    same(read_data(tmp_path / "keyed.npz"), {"y": one, "mask": one > 1})
    same(read_data(tmp_path / "keyed.npz", keys="y"), one)
    # Labels and weights are no data.
    for suffix in (*ARRAYS, *TABLES):
        vectors().write(tmp_path / f"draws{suffix}")
        same(read_data(tmp_path / f"draws{suffix}"), vectors().x)
    np.savez(tmp_path / "words.npz", x=["a", "b"])
    with pytest.raises(FileError, match=r"words\.npz holds values of type <U1; wanted numbers"):
        read_data(tmp_path / "words.npz")


# What cannot be read.


def text(content: str, name: str = "a.csv") -> tuple[str, bytes]:
    return name, content.encode()


BAD = {
    "trailing": (text("1,2,\n3,4,5\n"), "has numbers in column 3, which in its first line is empty"),
    "not a number": (text("NA,1.5\n1,2\n"), "first line mixes names and numbers such as 1.5; .*nan where"),
    "only names": (text("model,x\n"), "has no rows of numbers"),
    "empty text": (text(""), "is empty; wanted one row of numbers for each draw"),
    "only comments": (text("# a\n\n#b\n"), "is empty"),
    "no header": (text("1,2,3\n4,5,6\n"), "no model labels: it has no first line with the names"),
    "no label": (text("a,b\n1,2\n"), "no model labels: it has a, b. Wanted a label called 'model'"),
    "two labels": (text("model,label,x\n0,0,1\n"), "has both 'model' and 'label'; remove the one"),
    "only labels": (text("model,log_weight\n0,1\n"), "has no columns of data, only model, log_weight"),
    "index": (text(",model,x\n0,0,1\n1,1,1\n"), r"column 1 has no name\..*index=False"),
    "row names": (text("model,x\n1,0,1\n2,1,1\n"), "names 2 columns, but its rows have 3"),
    "same name": (text("model,x,x\n0,1,2\n"), "two columns called 'x'"),
    "comma": (
        text("model;x\n0;1,5\n"),
        r"a\.csv, line 2, column 'x': '1,5' is not a number; wanted numbers with a decimal point \(in R",
    ),
    "gap": (text("model,x\n0,\n1,2\n"), "all 1 draws of model 'M0' hold NaN or infinity"),
    "words": (text("model,x,y\n0,1,low\n1,2,low\n"), "column 'y': 'low' is not a number; .*give label='y'"),
    "row names of R": (text('"","x","model"\n"1",2,"a"\n'), "column 1 has no name.*row.names = FALSE"),
    "row names of write.table": (text("x model\n1 2 a\n2 3 b\n"), "names 2 columns.*row.names = FALSE"),
    "no rows": (text("model,x\n"), "has no rows of numbers"),
    "ragged": (
        text("model,x\n0,1\n1,2,3\n"),
        "line 3: 3 columns, but 2 in the lines before; wanted .* as many in each row",
    ),
    "half a label": (text("model,x\n0.5,1\n1,2\n"), "^$"),
    "gap in labels": (text("model,x\n0,1\n2,2\n2,3\n"), r"a\.csv: the labels are 0, 2; wanted 0, 1"),
    "negative": (text("model,x\n-1,1\n0,2\n"), r"a\.csv: labels must be 0, 1, \.\.\."),
    "not text": (("a.csv", b"\xff\xfe\x01"), "cannot be read: .*UnicodeDecodeError"),
    "zeros": (
        ("a.csv", b"model,x\n0,1\n\x00\n"),
        r"a\.csv is damaged, or no text in UTF-8: it holds zero bytes",
    ),
    "UTF-16": (("a.csv", "model,x\n0,1\n".encode("utf-16")), "no text in UTF-8"),
    "empty npz": (("a.npz", b""), r"cannot be read: it is empty, cut short.*\(BadZipFile"),
    "foreign npz": (("a.npz", b"once upon a time"), "cannot be read"),
    "foreign h5": (("a.h5", b"once upon a time"), r"cannot be read: .*\(OSError"),
    "foreign parquet": (("a.parquet", b"once upon a time"), r"cannot be read: .*\(ArrowInvalid"),
    "foreign zarr": (("a.zarr", b"once upon a time"), "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, name: str) -> None:
    (file, content), message = BAD[name]
    (tmp_path / file).write_bytes(content)
    if name == "half a label":  # a name like any other
        assert Simulations.read(tmp_path / file).names == ("0.5", "1")
        return
    with pytest.raises(FileError, match=message) as caught:
        Simulations.read(tmp_path / file)
    assert str(tmp_path / file) in str(caught.value)


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".parquet"])
@pytest.mark.parametrize("part", [0.3, 0.9])
def test_files_cut_short(tmp_path: Path, suffix: str, part: float) -> None:
    path = tmp_path / f"draws{suffix}"
    vectors().write(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(FileError, match=f"draws{suffix} cannot be read: it is empty, cut short, damaged"):
        Simulations.read(path)


def test_a_damaged_folder(tmp_path: Path) -> None:
    path = tmp_path / "draws.zarr"
    vectors().write(path)
    piece = path / "x" / "c" / "0" / "0"
    content = piece.read_bytes()
    piece.write_bytes(content[:-9] + b"\0" + content[-8:])
    with pytest.raises(FileError, match=r"draws\.zarr cannot be read: .*checksum"):
        Simulations.read(path)
    piece.unlink()
    with pytest.raises(FileError, match="pieces of the array 'x' are missing"):
        Simulations.read(path)
    shutil.rmtree(path / "model")
    piece.write_bytes(content)
    with pytest.raises(FileError, match=r"draws\.zarr is damaged: its content does not match its checksum"):
        Simulations.read(path)


def test_other_bad_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"

    def refused(message: str, **arrays: Any) -> None:
        np.savez(path, **arrays)
        with pytest.raises(FileError, match=message):
            Simulations.read(path)

    refused("holds Python objects, which are never loaded", x=np.array([None, {}]), model=[0, 1])
    refused("holds no data: it has model", model=[0, 1])
    refused("it holds only data", x=X)
    refused(r"labels have shape \(6,\), but there are 5 draws", x=X[:5], model=MODEL)
    refused(r"log_weight have shape \(5,\)", x=X, model=MODEL, log_weight=np.zeros(5))
    refused("labels must be whole numbers or names, got 0.5", x=X[:2], model=[0.5, 1])
    refused("differ in length", x=X, y=X[:4], model=MODEL)
    refused("a label 'wave', but the models are flat, trend", x=X, model=WORDS, names=["flat", "trend"])
    refused("failed must hold one number for each of the 3 models", x=X, model=MODEL, failed=[1, 2])
    refused(r"parameters/mean have shape \(5,\)", x=X, model=MODEL, **{"parameters/mean": np.zeros(5)})
    refused("'M0' has 2 draws, but its parameters have shape", x=X, model=MODEL, **{"parameters/0": X})
    refused("log_weight is NaN", x=X, model=MODEL, log_weight=np.full(6, np.nan))
    refused("wanted numbers or booleans; give the real and imaginary parts", x=X * 1j, model=MODEL)
    np.savez(path, x=X, model=MODEL)
    with pytest.raises(FileError, match=r"a\.npz has no data called 'y'; it has x, model"):
        Simulations.read(path, keys=["y"])
    with pytest.raises(FileError, match="it holds only data"):
        Simulations.read(path, keys="x", label="kind")
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(FileError, match=r"it holds only data\. Wanted a label .*or one file per model"):
        Simulations.read(tmp_path / "a.npy")
    pq.write_table(pa.table({"label": [0, 1], "x": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "a.parquet")
    with pytest.raises(FileError, match=r"'x' holds list<.*>; wanted numbers, in one column for each"):
        Simulations.read(tmp_path / "a.parquet")


def test_bad_paths(tmp_path: Path) -> None:
    given: Any
    for given in (3, None, [], {}):
        with pytest.raises(TypeError, match="path must be a file, or one file per model"):
            Simulations.read(given)
    given = [np.zeros(3)]
    with pytest.raises(TypeError, match="a file is given by its path, not by a ndarray"):
        Simulations.read(given)
    with pytest.raises(ValueError, match=r"'\.fits' does not say what a\.fits is; wanted \.npy, \.npz"):
        Simulations.read("a.fits")
    for name in ("a.npz", "a.csv", "a.zarr"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            Simulations.read(tmp_path / name)
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "other").mkdir()
    np.save(tmp_path / "other" / "a.npy", X)
    with pytest.raises(ValueError, match="two models are named 'a'; names must be distinct"):
        Simulations.read([tmp_path / "a.npy", tmp_path / "other" / "a.npy"])


def test_a_file_of_the_future(tmp_path: Path) -> None:
    vectors().write(tmp_path / "a.csv")
    later = (tmp_path / "a.csv").read_text().replace('"format": 1', '"format": 99')
    (tmp_path / "a.csv").write_text(later)
    with pytest.raises(FileError, match=r"\(file format 99\); this is .* pip install -U evidencenet"):
        Simulations.read(tmp_path / "a.csv")


@pytest.mark.parametrize(("suffix", "name"), [(".h5", "h5py"), (".parquet", "pyarrow")])
def test_packages_that_are_not_installed(
    tmp_path: Path, suffix: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors().write(tmp_path / f"a{suffix}")
    monkeypatch.setitem(sys.modules, name, None)
    message = rf"need the package {name}, .* pip install 'evidencenet\[files\]'"
    with pytest.raises(ImportError, match=message):
        Simulations.read(tmp_path / f"a{suffix}")
    with pytest.raises(ImportError, match=message):
        vectors().write(tmp_path / f"b{suffix}")
    assert not (tmp_path / f"b{suffix}").exists()


def test_csv_needs_no_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = builtins.__import__

    def guarded(name: str, *arguments: Any, **options: Any) -> Any:
        assert not name.startswith(("pandas", "pyarrow"))
        return loaded(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", guarded)
    vectors().write(tmp_path / "a.csv")
    same_draws(Simulations.read(tmp_path / "a.csv"), vectors())
    # And others can read it.
    monkeypatch.undo()
    frame = pd.read_csv(tmp_path / "a.csv", comment="#")
    assert list(frame) == ["label", "log_weight", "x_0", "x_1", "x_2"]
    assert len(frame) == 30


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_LONGEST_LINE", 1_000)
    monkeypatch.setattr(tables, "_BYTES_PER_BLOCK", 64)
    path = tmp_path / "a.csv"
    path.write_text("model,x\n0,1\n1,0." + 990 * "2" + "\n")
    assert Simulations.read(path).counts == (1, 1)
    for text in ("model,x\n0," + 2_000 * "1", 2_000 * "1", "model,x\n0,1\n1," + 1_500 * "2" + "\n1,1\n"):
        path.write_text(text)
        with pytest.raises(FileError, match=r"a\.csv has a line of more than 0 MB; wanted one line a draw"):
            Simulations.read(path)


def test_names_twice_and_too_many_levels(tmp_path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            with io.BytesIO() as file:
                np.save(file, np.zeros(3))
                archive.writestr("x.npy", file.getvalue())
    with pytest.raises(FileError, match="two arrays of the same name"):
        read_data(tmp_path / "a.npz")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["/".join("a" * 60)] = np.zeros(3)
    with pytest.raises(FileError, match="groups in more than 50 levels"):
        read_data(tmp_path / "a.h5")
