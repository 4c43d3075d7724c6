"""What newcomers type first, from eight sides: it works, or our own message names the fix."""

import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidencenet as en
from conftest import Case

RNG = np.random.default_rng(0)
QUICK: Any = {"members": 1, "recipe": en.Recipe(epochs=2), "learn_error": False, "progress": False}


def flat(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 3))


def shifted(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(0.7, 1.0, size=(n, 3))


MODELS = {"flat": flat, "shifted": shifted}


def draw(models: Any = MODELS, n: Any = 400, **options: Any) -> en.Simulations:
    return en.simulate(models, n, progress=False, **options)


# Without types: what is tried here does not have them right.
ANY: Any = en

# Calls that do not fit, and what to write instead.
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "train(x, y)": (lambda: ANY.train(flat(RNG, 9), [0, 1]), r"train\(Simulations\(x, labels\)\)"),
    "epochs": (lambda: ANY.train(draw(), epochs=3), r"write recipe=Recipe\(epochs=\.\.\.\) instead"),
    "lr": (lambda: ANY.train(draw(), lr=3), r"write recipe=Recipe\(learning_rate=\.\.\.\)"),
    "verbose": (lambda: ANY.train(draw(), verbose=0), "write progress=False"),
    "misspelt": (lambda: ANY.train(draw(), member=3), r"write members=\.\.\. instead"),
    "unknown": (lambda: ANY.train(draw(), colour=3), "train has no argument 'colour'; it has sims"),
    "n missing": (lambda: ANY.simulate(MODELS), r"required argument: 'n'.*usual call is simulate\("),
    "n_jobs": (lambda: draw(n_jobs=2), r"write workers=\.\.\. instead"),
    "n per model": (lambda: draw(n=[100, 100]), "number of all draws together.*fractions="),
    "a generator": (lambda: draw(seed=np.random.default_rng(1)), "got a Generator; give the number itself"),
    "validate(x, y)": (lambda: ANY.validate(1, 2, 3), r"validate\(net, Simulations\(x, labels\)\)"),
    "no path": (lambda: ANY.write_report(1), r"usual call is write_report\('report\.html', net, check"),
    "Recipe(lr)": (lambda: ANY.Recipe(lr=0.1), r"Recipe has no argument 'lr'; write learning_rate="),
    "simulator": (lambda: ANY.Model("a", simulator=flat), r"write simulate=\.\.\. instead"),
    "prior by place": (lambda: ANY.Model("a", flat, flat), "Give the prior by its name"),
    "no name": (lambda: ANY.Model(flat), r"wanted Model\('name', simulate\)"),
    "by hand": (lambda: ANY.EvidenceNetwork(draw()), r"made by train\(sims\) or load\(path\)"),
    "one-hot": (lambda: ANY.Simulations(flat(RNG, 4), np.eye(2)[[0, 1, 0, 1]]), r"argmax\(axis=1\)"),
    "labels 3 and 7": (lambda: ANY.Simulations(flat(RNG, 4), [3, 7, 3, 7]), "labels are 3, 7.*as names"),
    "augment(x)": (lambda: ANY.train(draw(), augment=abs, **QUICK), r"function augment\(rng, x\)"),
    "(x, theta)": (
        lambda: draw({"a": lambda rng, n: (flat(rng, n), n)}),
        "tuple of 2: return the data alone",
    ),
    "noise=": (
        lambda: ANY.Model("a", flat, noise=flat),
        r"write observe=\.\.\., a function observe\(rng, clean",
    ),
    "observe(clean, rng)": (
        lambda: ANY.Model("a", flat, observe=lambda clean, rng: clean),
        r"random numbers come first: observe\(rng, clean\)",
    ),
    "simulate(theta, rng)": (
        lambda: ANY.Model("a", lambda theta, rng: theta, prior=lambda rng, n: n),
        r"random numbers come first: simulate\(rng, theta\)",
    ),
    "train(models, n)": (lambda: ANY.train(MODELS, 1_000), r"train\(models, draws=1_000_000\)"),
    "train(a, b)": (lambda: ANY.train("a.zarr", "b.zarr"), r"train\(\['a\.zarr', 'b\.zarr'\]\)"),
    "train(functions)": (
        lambda: ANY.train(models=[flat, shifted], draws=1_000),
        "got a list with a function.*a dict of functions by name",
    ),
    "train([sims, sims])": (lambda: ANY.train([draw(), draw()]), r"Simulations\.concatenate\(parts\)"),
    "train({paths})": (lambda: ANY.train({"a.zarr", "b.zarr"}), r"a list of paths: train\(\['a\.zarr'"),
    "train(by model)": (lambda: ANY.train({"a": "a.npz", "b": "b.npz"}), r"train\(Simulations\.read\(\{"),
    "train(glob)": (lambda: ANY.train(Path().glob("*.zarr")), r"train\(sorted\(folder\.glob\('\*\.zarr'\)"),
    "stores=": (lambda: ANY.train(stores=["a.zarr"]), r"write the paths themselves, train\(\['a\.zarr'"),
    "device=": (lambda: ANY.train(draw(), device="gpu"), r"with jax\.default_device\(\.\.\.\):"),
    "processes=": (lambda: draw(processes=2), r"write executor=ProcessPoolExecutor"),
    "pool=": (lambda: draw(pool=2), r"write executor=\.\.\. instead"),
    "job=": (lambda: draw(job=2), r"write part=\(1, 20\)"),
    "time_limit=": (lambda: draw(time_limit=2), r"write timeout=\.\.\. instead"),
    "read(models=)": (lambda: ANY.Simulations.read("a.zarr", models=[]), r"write observe=\[\.\.\.\]"),
    "status(several)": (lambda: ANY.status(["a.zarr", "b.zarr"]), "the path of one store, got a list"),
    "(C, T)": (
        lambda: ANY.Simulations([np.ones((2, 3)), np.ones((2, 4))], [0, 1]),
        r"\(T, C\), not \(C, T\)",
    ),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_calls_that_do_not_fit_name_the_fix(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_patterns_of_paths_are_not_looked_up() -> None:
    with pytest.raises(FileNotFoundError, match=r"give sorted\(glob\.glob\('\*\.zarr'\)\)"):
        en.train("*.zarr")


def test_signatures_stay_readable() -> None:
    """A checked call must not hide what `help` shows."""
    import inspect

    assert {"sims", "loss", "network"} <= set(inspect.signature(en.train).parameters)
    assert list(inspect.signature(en.Model).parameters)[:2] == ["name", "simulate"]
    assert (en.train.__doc__ or "").startswith("Train an ensemble")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("predict", "log_bayes_factor"),
        ("predict_proba", "probabilities"),
        ("fit", "evidencenet.train"),
        ("eror", "error"),
    ],
)
def test_attributes_that_are_looked_for_in_a_network(small: Case, name: str, meant: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"an EvidenceNetwork has no attribute '{name}'\. Did you mean {meant}"
    ):
        getattr(small.net, name)
    assert not hasattr(small.net, "something else")
    # Copies look for attributes that are not there.
    assert pickle.loads(pickle.dumps(small.net)).names == small.net.names


def test_networks_and_answers_are_not_functions_or_numbers(small: Case) -> None:
    x = np.asarray(small.fresh.x)
    with pytest.raises(TypeError, match=r"Write net\.compare\(x\) for an answer"):
        small.net(x)
    with pytest.raises(TypeError, match=r"Write answer\.log_k, answer\.log10_k"):
        float(small.net.compare(x[0]))
    with pytest.raises(TypeError, match=r"The usual call is deepen\(net, \[model0, model1\]\)"):
        ANY.deepen(small.net)
    with pytest.raises(TypeError, match=r"write calls=\.\.\."):
        ANY.deepen(small.net, small.problem.models, budget=3)
    # A network is not an architecture either, though both can be called.
    with pytest.raises(TypeError, match=r"network must be callable as network\(x, outputs, key=key\)"):
        ANY.train(small.sims, network=small.net)


def test_attributes_of_answers(small: Case) -> None:
    x = np.asarray(small.fresh.x)[:3]
    answers = small.net.compare(x)
    assert answers[1].best in small.net.names
    np.testing.assert_array_equal(answers.log_k, small.net.log_bayes_factor(x))
    np.testing.assert_array_equal(answers.error, small.net.error(x))
    np.testing.assert_array_equal(answers.probabilities, small.net.probabilities(x))
    np.testing.assert_array_equal(answers.in_range, small.net.in_range(x))
    assert answers.novelty.shape == (3, 2)
    with pytest.raises(AttributeError, match=r"a Comparison has no attribute 'logk'\. Did you mean log_k"):
        answers[0].logk  # noqa: B018


@pytest.mark.parametrize(
    ("name", "meant"),
    [("labels", "model, the label"), ("X", "x"), ("save", "write"), ("paramters", "parameters")],
)
def test_attributes_that_are_looked_for_in_draws(name: str, meant: str) -> None:
    sims = draw()
    with pytest.raises(
        AttributeError, match=rf"a Simulations has no attribute '{name}'\. Did you mean {meant}"
    ):
        getattr(sims, name)
    np.testing.assert_array_equal(ANY.Simulations.__getitem__(sims, "flat"), sims.of("flat"))
    with pytest.raises(TypeError, match=r"sims\.take\(index\)"):
        ANY.Simulations.__getitem__(sims, 0)
    assert pickle.loads(pickle.dumps(sims)).names == sims.names


@pytest.mark.parametrize(
    ("name", "meant"), [("compare", r"net\.compare"), ("Modle", "Model"), ("trian", "train")]
)
def test_names_that_are_looked_for_in_the_package(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'.*Did you mean .*{meant}"):
        getattr(en, name)


# Tables.


def test_tables_as_people_have_them() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(flat(RNG, 60), columns=["a", "b", "c"])
    labelled = table.assign(kind=np.repeat(["x", "y"], 30))
    sims = en.Simulations(labelled, "kind")
    assert sims.names == ("x", "y")
    assert sims.columns == ("a", "b", "c")
    assert en.Simulations(table, labelled[["kind"]]).counts == (30, 30)
    with pytest.raises(ValueError, match="no column 'sort' of labels; it has a, b, c, kind"):
        en.Simulations(labelled, "sort")
    with pytest.raises(TypeError, match="column 'day' of x holds datetime64"):
        en.Simulations(labelled.assign(day=pandas.Timestamp("2020-01-01"), e="?"), "kind")
    levels = table.set_axis(pandas.MultiIndex.from_product([["left"], list("abc")]), axis=1)
    assert en.Simulations(levels, labelled["kind"]).columns == ("left.a", "left.b", "left.c")
    with pytest.warns(
        en.InputWarning, match="column 'id' rises by 1 from draw to draw, as a row number does"
    ):
        en.Simulations(labelled.assign(id=np.arange(60)), "kind")
    # Whole numbers that do not count are data.
    en.Simulations(labelled.assign(id=RNG.integers(100, size=60)), "kind")


def test_observations_as_people_have_them() -> None:
    pandas = pytest.importorskip("pandas")

    def table(shift: float) -> Any:
        return lambda rng, n: pandas.DataFrame(rng.normal(shift, 1, size=(n, 2)), columns=["a", "b"])

    net = en.train(draw({"x": table(0.0), "y": table(1.0)}), **QUICK)
    wanted = net.log_bayes_factor(np.array([0.3, 0.8]))
    with pytest.warns(en.InputWarning, match="another order"):
        np.testing.assert_array_equal(net.log_bayes_factor([{"b": 0.8, "a": 0.3}]), wanted)
    np.testing.assert_array_equal(net.log_bayes_factor({"a": 0.3, "b": 0.8}), wanted)
    np.testing.assert_array_equal(net.log_bayes_factor(np.array([[0.3, 0.8]], object)), wanted)
    with pytest.raises(TypeError, match=r"read the file first: read_data\('x\.csv'\)"):
        net.compare("x.csv")
    with pytest.raises(ValueError, match=r"simulate\(\.\.\., missing='mask'\)"):
        net.compare({"a": 0.3, "b": None})
    assert "columns a, b" in repr(net)
    assert "a, b" in net._repr_html_()


def test_tables_of_polars_and_arrays_of_xarray() -> None:
    polars = pytest.importorskip("polars")
    xarray = pytest.importorskip("xarray")
    table = polars.DataFrame({"u": RNG.normal(size=40), "v": RNG.normal(size=40), "m": ["x", "y"] * 20})
    assert en.Simulations(table, "m").columns == ("u", "v")
    with pytest.raises(TypeError, match="column 'm' of x holds String, not numbers"):
        en.Simulations(table, [0, 1] * 20)
    missing = polars.DataFrame({"u": [1.0, None], "v": [1.0, 2.0]})
    masked: Any = en.Simulations(missing, [0, 1], missing="mask").x
    np.testing.assert_array_equal(masked["mask"], [[True, True], [False, True]])

    def bands(shift: float) -> Any:
        names = {"band": ["g", "r"]}
        return lambda rng, n: xarray.DataArray(
            rng.normal(shift, 1, (n, 2)), dims=("draw", "band"), coords=names
        )

    net = en.train(draw({"a": bands(0.0), "b": bands(1.0)}), **QUICK)
    one = xarray.DataArray([0.2, 1.5], dims=("band",), coords={"band": ["r", "g"]})
    wanted = net.log_bayes_factor(np.array([1.5, 0.2]))
    for given in (one, one.expand_dims("draw")):
        with pytest.warns(en.InputWarning, match="another order"):
            np.testing.assert_array_equal(net.log_bayes_factor(given), wanted)
    both = xarray.Dataset({"y": (("n", "t"), RNG.normal(size=(40, 5))), "z": (("n",), RNG.normal(size=40))})
    assert en.Simulations(both, [0, 1] * 20).shape == {"y": (5,), "z": (1,)}


def test_one_number_a_draw() -> None:
    models = {"a": lambda rng, n: rng.normal(size=n), "b": lambda rng, n: rng.normal(1, 1, size=n)}
    net = en.train(draw(models), **QUICK)
    assert net.compare(1.3).log_k == net.compare([1.3]).log_k == net.compare([[1.3]]).log_k


R_FILE = '"a","b","model"\n' + "".join(
    f'{RNG.normal(k):.4f},{"NA" if i == 5 else f"{RNG.normal():.4f}"},"m{k}"\n'
    for k in (0, 1)
    for i in range(40)
)


def test_files_of_r(tmp_path: Path) -> None:
    path = tmp_path / "draws.csv"
    path.write_text(R_FILE)
    with pytest.warns(en.FailedDrawsWarning, match="2 rows with NaN .* missing='mask'"):
        assert en.Simulations.read(path).failed == (1, 1)
    sims: Any = en.Simulations.read(path, missing="mask")
    assert sims.x["mask"].sum() == 158
    (tmp_path / "spaces.txt").write_text(R_FILE.replace(",", " "))
    again: Any = en.Simulations.read(tmp_path / "spaces.txt", missing="mask")
    np.testing.assert_array_equal(again.x["x"], sims.x["x"])
    (tmp_path / "observed.csv").write_text("b,a\n0.5,TRUE\n")
    observed = en.read_data(tmp_path / "observed.csv")
    assert observed.columns == ("b", "a")
    np.testing.assert_array_equal(observed, [[0.5, 1.0]])


# Simulators.


def test_a_simulator_whose_draws_are_all_the_same_is_noticed() -> None:
    models = [
        en.Model("stuck", lambda rng: np.random.default_rng(1).normal(size=3), kind="one"),
        en.Model("free", lambda rng: rng.normal(size=3), kind="one"),
    ]
    with pytest.warns(en.RandomnessWarning, match="'stuck': only 1 of 50 draws are distinct"):
        draw(models, 100)
    # A model may always give the same counts.
    draw({"a": lambda rng, n: np.zeros((n, 3)), "b": lambda rng, n: rng.poisson(1.0, size=(n, 3))}, 200)


def test_gaps_in_one_model_only_are_said() -> None:
    def gaps(rng: np.random.Generator, n: int) -> np.ndarray:
        x = flat(rng, n)
        x[rng.random(n) < 0.3, 0] = np.nan
        return x

    with pytest.warns(en.InputWarning, match=r"9\.7% of the numbers .* of 'b', and none in draws of 'a'"):
        draw({"a": flat, "b": gaps}, 2_000, missing="mask")
    draw({"a": gaps, "b": gaps}, 2_000, missing="mask")


def test_times_and_values_of_unequal_length() -> None:
    def light(period: float) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
        def simulate(rng: np.random.Generator) -> dict[str, np.ndarray]:
            t = np.sort(rng.random(rng.integers(4, 9)))
            return {"t": t, "y": np.sin(period * t) + rng.normal(size=len(t))}

        return simulate

    models = [en.Model("slow", light(1.0), kind="one"), en.Model("fast", light(9.0), kind="one")]
    with pytest.warns(en.InputWarning, match="unequal lengths, from 4 to 8"):
        sims: Any = draw(models, 200)
    assert sims.shape == {"t": (8,), "y": (8,), "mask": (8,)}
    assert np.all(sims.x["y"][~sims.x["mask"]] == 0)
    with pytest.warns(en.InputWarning, match="unequal"):
        np.testing.assert_array_equal(draw(models, 200, workers=2, chunk=3).x["t"], sims.x["t"])
    net = en.train(sims, network="set", **QUICK)
    one = light(9.0)(RNG)
    length = len(one["t"])
    mask = np.arange(8) < length
    padded = {key: np.pad(value, (0, 8 - length)) for key, value in one.items()} | {"mask": mask}
    np.testing.assert_array_equal(net.log_bayes_factor(one), net.log_bayes_factor(padded))


def test_padding_is_not_taken_for_data() -> None:
    models = [
        en.Model(name, lambda rng, k=k: rng.normal(k, 1, size=rng.integers(3, 7)), kind="one")
        for k, name in enumerate("ab")
    ]
    with pytest.warns(en.InputWarning, match="unequal"):
        net = en.train(draw(models, 300), network="set", **QUICK)
    short = np.array([0.5, 1.5, 1.0])
    wanted = net.log_bayes_factor(short)
    # NaN after the end is how others pad, in lists and in arrays of objects.
    np.testing.assert_array_equal(net.log_bayes_factor([*short, np.nan, np.nan]), wanted)
    rows = np.empty(2, object)
    rows[:] = [short, short[:2]]
    np.testing.assert_array_equal(net.log_bayes_factor(rows)[:1], wanted)
    with pytest.raises(ValueError, match="ends with 0, as draws do that were padded"):
        net.log_bayes_factor([*short, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"x has shape \(0,\)"):
        net.log_bayes_factor([])


# Files, networks and PyTorch.


def test_files_follow_the_umask(small: Case, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        small.net.save(tmp_path / "net.evnet")
        en.write_report(tmp_path / "report.html", small.net)
        for name in ("draws.npz", "draws.csv"):
            small.sims.write(tmp_path / name)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o640}, modes


def test_names_of_columns_are_in_the_report(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")

    def table(shift: float) -> Any:
        def simulate(rng: np.random.Generator, n: int) -> Any:
            x = rng.normal(shift, 1, size=(n, 2))
            return pandas.DataFrame({"mass": x[:, 0], "age": x[:, 1], "site": 1.0})

        return simulate

    net = en.train(draw({"a": table(0.0), "b": table(1.0)}), **QUICK)
    answer = net.compare({"mass": 0.2, "age": 0.1, "site": 2.0})
    assert "column 'site' was 1 in every draw of every model; here it is 2" in str(answer)
    en.write_report(tmp_path / "report.html", net, answer=answer)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "mass, age, site" in page
    assert "column &#39;site&#39; was 1 in every draw" in page


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    x, y = flat(RNG, 60), np.repeat([0, 1], 30)
    for tensor in (torch.tensor(x), torch.tensor(x, requires_grad=True), torch.tensor(x).bfloat16()):
        sims = en.Simulations(tensor, torch.tensor(y))
        np.testing.assert_allclose(np.asarray(sims.x), x, atol=0.02)

    def simulator(shift: float) -> Any:
        def simulate(rng: np.random.Generator, n: int) -> Any:
            generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
            return shift + torch.randn(n, 3, generator=generator)

        return simulate

    models = {"a": simulator(0.0), "b": simulator(1.0)}
    np.testing.assert_array_equal(np.asarray(draw(models).x), np.asarray(draw(models, workers=2).x))
    net = en.train(draw(models, 2_000), **QUICK)
    # log K of N(1, 1) against N(0, 1) is Σ (x − 1/2).
    observed = torch.tensor([[0.0, 0.5, 0.1], [1.0, 0.8, 0.4]])
    exact = (observed - 0.5).sum(dim=1).numpy()
    assert np.abs(net.log_bayes_factor(observed) - exact).max() < 1.0
    with pytest.raises(TypeError, match="of PyTorch, and networks here are JAX"):
        en.train(draw(models), network=torch.nn.Linear(3, 1), **QUICK)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("bce", en.losses.Logistic()), ("cross-entropy", en.losses.CrossEntropy())],
)
def test_losses_by_other_names(given: str, wanted: Any) -> None:
    from evidencenet.estimator.arguments import checked_loss

    assert checked_loss(given) == wanted


def test_a_history_is_short(small: Case) -> None:
    text = repr(small.net.history)
    assert "nan" not in text
    assert len(text.splitlines()) == 1 + len(small.net.gain)
    assert "member 0: best after epoch" in text
