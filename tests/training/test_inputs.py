"""Draws on their way to the networks: which are held out, and what is done to them."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import evidencenet as en
from evidencenet.losses import Asymmetric, Logistic
from evidencenet.networks.architectures import DeepSet, Dense, Table
from evidencenet.training.gaussians import flat
from evidencenet.training.inputs import prepare
from evidencenet.training.plan import Plan
from evidencenet.training.split import Draws, augmented

PLAN = Plan(Dense(), Logistic())


def sims(n: int = 1_000, shape: tuple[int, ...] = (4,), shares: tuple[float, ...] = (0.5, 0.3, 0.2)) -> Any:
    rng = np.random.default_rng(1)
    model = rng.permutation(np.repeat(np.arange(len(shares)), (n * np.array(shares)).round().astype(int)))
    return en.Simulations(3 + 2 * rng.normal(size=(n, *shape)) + model.reshape(n, *[1] * len(shape)), model)


def test_held_out_draws_are_not_trained_on() -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    together = np.concatenate([some.training_rows, some.held_out_rows])
    np.testing.assert_array_equal(np.sort(together), np.arange(1_000))
    # Each model in the same proportion.
    np.testing.assert_array_equal(np.bincount(some.model[some.held_out_rows]), [50, 30, 20])
    np.testing.assert_array_equal(np.bincount(some.model[some.training_rows]), [450, 270, 180])
    x, label = some.held_out_draws()
    np.testing.assert_array_equal(x, np.asarray(some.x)[some.held_out_rows])
    np.testing.assert_array_equal(label, some.model[some.held_out_rows])
    # Neither is in the order of the models: any few of them are a fair sample.
    assert 150 < np.sum(some.model[some.training_rows[:450]] == 0) < 300
    same, other = (Draws.split(sims(), 0.1, None, seed).training_rows for seed in (5, 6))
    np.testing.assert_array_equal(same, some.training_rows)
    assert np.any(other != some.training_rows)


def test_no_more_are_held_out_than_needed() -> None:
    model = np.arange(600_000) % 2
    some = Draws.split(en.Simulations(np.zeros((600_000, 1), np.float32), model), 0.5, None, 1)
    assert len(some.held_out_rows) == 50_000
    assert len(some.training_rows) == 550_000


def test_what_draws_are_like() -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    np.testing.assert_allclose(np.exp(some.log_shares), [0.5, 0.3, 0.2])
    assert some.features == 4
    np.testing.assert_array_equal(some.example, np.zeros(4, np.float32))
    assert not some.has_outliers()
    few = some.few(100)
    np.testing.assert_array_equal(few.training_rows, some.training_rows[:100])
    np.testing.assert_array_equal(few.held_out_rows, some.held_out_rows)
    # The shares are those of all draws, whatever few of them are trained on.
    np.testing.assert_array_equal(few.log_shares, some.log_shares)
    mask = np.ones((10, 3), bool)
    with_mask = en.Simulations({"x": np.zeros((10, 3, 2)), "mask": mask}, np.arange(10) % 2)
    example = Draws.split(with_mask, 0.5, None, 1).example
    assert isinstance(example, dict)
    assert {key: (a.shape, a.dtype) for key, a in example.items()} == {
        "x": ((3, 2), np.dtype(np.float32)),
        "mask": ((3,), np.dtype(bool)),
    }


def test_outliers_are_noticed() -> None:
    x = np.random.default_rng(1).standard_cauchy(size=(1_000, 4))
    assert Draws.split(en.Simulations(x, np.arange(1_000) % 2), 0.1, None, 1).has_outliers()


def test_draws_of_equal_weight_are_all_kept() -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    np.testing.assert_array_equal(some.of_equal_weight(some.held_out_rows), some.held_out_rows)
    few = some.of_equal_weight(some.training_rows, 100)
    np.testing.assert_array_equal(np.bincount(some.model[few]), [100, 100, 100])


def test_weighted_draws_are_thinned_by_their_weight() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40_000, 1))
    # Weights exp(x) make a unit normal law one of mean 1; model 1 has none.
    model = np.arange(40_000) % 2
    weighted = en.Simulations(x, model, log_weight=np.where(model == 0, np.minimum(x[:, 0], 2.5), 0))
    some = Draws.split(weighted, 0.1, None, 1)
    kept = some.of_equal_weight(np.arange(40_000))
    first, second = (x[kept[model[kept] == k], 0] for k in (0, 1))
    assert len(second) == 20_000
    # About a tenth stays, 2,700 draws: their mean is known to 0.02, and the cut at 2.5 costs 0.02.
    assert np.mean(first) == pytest.approx(1, abs=0.08)
    assert np.var(first) == pytest.approx(1, abs=0.12)


# --- Halves ----------------------------------------------------------------------------------------------


def test_halves_share_no_draw_and_have_half_of_each_model() -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    halves = some.halves(7)
    both = np.concatenate([half.training_rows for half in halves])
    np.testing.assert_array_equal(np.sort(both), np.sort(some.training_rows))
    for half in halves:
        np.testing.assert_array_equal(np.bincount(some.model[half.training_rows]), [225, 135, 90])
        np.testing.assert_array_equal(half.held_out_rows, some.held_out_rows)
        np.testing.assert_array_equal(half.log_shares, some.log_shares)
        # In random order, as training wants them: a half of the draws in front are of the first model.
        assert 80 < np.sum(half.model[half.training_rows[:225]] == 0) < 145
    again, other = some.halves(7)[0], some.halves(8)[0]
    np.testing.assert_array_equal(again.training_rows, halves[0].training_rows)
    assert len(np.intersect1d(other.training_rows, again.training_rows)) < 0.6 * len(again.training_rows)


# --- Scaled ----------------------------------------------------------------------------------------------


def test_scaled_by_training_draws_alone() -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    assert isinstance(some.x, np.ndarray)
    data = prepare(some, PLAN)
    x = np.asarray(data.scaling(some.x[some.training_rows]))
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(axis=0), 1, rtol=1e-5)
    held_out = data.held_out_chunk()
    n = len(some.held_out_rows)
    scaled = np.asarray(data.scaling(some.x[some.held_out_rows]))
    np.testing.assert_array_equal(held_out.x.reshape(-1, 4)[:n], scaled)
    assert np.abs(scaled.mean(axis=0)).max() > 1e-3
    np.testing.assert_array_equal(held_out.label.ravel()[:n], some.model[some.held_out_rows])
    # The offset is what the shares say of the models, against the first.
    wanted = np.log([1, 0.6, 0.4])
    np.testing.assert_allclose(held_out.offset.reshape(-1, 3), np.tile(wanted, (n, 1)), rtol=1e-5)


def test_a_baseline_is_part_of_the_offset() -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    data = prepare(some, Plan(Dense(), Logistic(), baseline=True))
    assert data.baseline is not None
    assert data.moments is not None
    held_out = data.held_out_chunk()
    scaled = held_out.x.reshape(-1, 4)
    wanted = data.baseline(scaled) + np.log([1, 0.6, 0.4])
    np.testing.assert_allclose(held_out.offset.reshape(-1, 3), wanted, rtol=1e-4, atol=1e-5)
    # Model 2 lies higher than model 0 in all numbers alike: log K follows their mean.
    assert np.corrcoef(wanted[:, 2], scaled.mean(axis=1))[0, 1] > 0.9
    assert prepare(some, PLAN).baseline is None


def test_an_asymmetric_loss_is_told_nothing() -> None:
    loss = Asymmetric(lambda f: jnp.exp(-f / 2), lambda f: jnp.exp(f / 2), lambda f: f)
    some = Draws.split(sims(shares=(0.6, 0.4)), 0.1, None, 5)
    assert prepare(some, Plan(Dense(), loss)).held_out_chunk().offset is None


@pytest.mark.parametrize(("network", "alike"), [(Dense(), False), (DeepSet(), True)])
def test_places_that_are_alike_are_scaled_alike(network: Any, alike: bool) -> None:
    some = Draws.split(sims(), 0.1, None, 5)
    factor = np.asarray(prepare(some, Plan(network, Logistic())).scaling.factor)
    assert (len(np.unique(factor)) == 1) == alike


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 2)])
def test_tables_are_scaled_alike_in_rows_and_columns(shape: tuple[int, ...]) -> None:
    some = Draws.split(sims(shape=shape), 0.1, None, 5)
    scaling = prepare(some, Plan(Table(), Logistic())).scaling
    for part in (scaling.shift, scaling.factor):
        whole = np.broadcast_to(part, shape).reshape(15, -1)
        np.testing.assert_array_equal(whole, np.tile(whole[0], (15, 1)))


def test_large_draws_have_no_moments() -> None:
    some = Draws.split(sims(shape=(601,)), 0.1, None, 5)
    assert prepare(some, PLAN).moments is None


def test_minibatches_are_of_training_draws() -> None:
    def flip(rng: np.random.Generator, x: Any) -> Any:
        return -x

    for augment, sign in ((None, 1), (flip, -1)):
        some = Draws.split(sims(), 0.1, augment, 5)
        data = prepare(some, PLAN)
        assert isinstance(some.x, np.ndarray)
        source = data.source(en.Recipe(batch=100), 1)
        assert source.batch == 100
        assert source.steps == 9
        seen = np.concatenate([chunk.x.reshape(-1, 4) for chunk in source.epoch(0)])
        wanted = np.asarray(data.scaling(sign * some.x[some.training_rows]))
        np.testing.assert_array_equal(np.sort(seen[:, 0]), np.sort(wanted[:, 0]))


@pytest.mark.parametrize(
    ("augment", "error", "message"),
    [
        (lambda rng, x: x[:, :3], ValueError, r"augment returned an array of \(3,\).*must keep the shape"),
        (lambda rng, x: x[:-1], ValueError, "augment returned 4 draws for 5; wanted as many"),
        (lambda rng, x: None, TypeError, "augment returned None; it must return a batch like x"),
        (lambda rng, x: x / 0, ValueError, "augment returned NaN or infinity"),
    ],
)
def test_bad_augmentations(augment: Any, error: type[Exception], message: str) -> None:
    with np.errstate(divide="ignore"), pytest.raises(error, match=message):
        augmented(augment, np.random.default_rng(1), np.ones((5, 4)))


def test_too_few_draws() -> None:
    with pytest.raises(ValueError, match=r"model 'M2' has 4 draws, too few to hold out a fraction of 0\.1"):
        Draws.split(sims(20), 0.1, None, 1)


# --- Correlated numbers ----------------------------------------------------------------------------------


def lifted(n: int, level: float, form: str = "vector") -> Any:
    """White noise, or noise in which each number is like the one before, on a common level that varies."""
    rng = np.random.default_rng(3)
    noise, model = rng.normal(size=(n, 12)), np.arange(n) % 2
    like = (noise + np.roll(noise, 1, axis=1)) / np.sqrt(2)
    x = np.where(model[:, None] == 1, like, noise) + level * rng.normal(size=(n, 1))
    return en.Simulations({"a": x[:, :5], "b": x[:, 5:]} if form == "dict" else x, model)


@pytest.mark.parametrize("form", ["vector", "dict"])
def test_correlations_are_noticed_and_taken_out(form: str) -> None:
    draws = Draws.split(lifted(5_000, 10.0, form), 0.1, None, seed=1)
    assert draws.is_correlated()
    data = prepare(draws, Plan(Dense(), Logistic(), whiten=True))
    x = flat(data.scaling(draws.x))
    # Fitted to 4,500 draws, judged on 5,000: correlations have an error of 1/√5000.
    np.testing.assert_allclose(np.cov(x, rowvar=False), np.eye(12), atol=6 / np.sqrt(5_000))
    plain = flat(prepare(draws, Plan(Dense(), Logistic())).scaling(draws.x))
    assert np.abs(np.cov(plain, rowvar=False) - np.eye(12)).max() > 0.9
    # Each number is still nearest to itself.
    both = np.corrcoef(plain - plain.mean(axis=1, keepdims=True), x, rowvar=False)[:12, 12:]
    np.testing.assert_array_equal(np.argmax(np.abs(both), axis=1), np.arange(12))


def test_where_there_is_nothing_to_take_out() -> None:
    assert not Draws.split(lifted(5_000, 1.0), 0.1, None, seed=1).is_correlated()
    # Constants, copies, and masks are no reason.
    rng = np.random.default_rng(4)
    x, model = rng.normal(size=(2_000, 3)), np.arange(2_000) % 2
    for other in (np.zeros((2_000, 1)), x[:, :1], 1e6 * x[:, :1]):
        some = en.Simulations(np.concatenate([x, other], axis=1), model)
        assert not Draws.split(some, 0.1, None, seed=1).is_correlated()
    level = x[:, :1] + 0.01 * rng.normal(size=(2_000, 5))
    masked = en.Simulations({"x": level, "mask": np.ones((2_000, 5), bool)}, model)
    assert not Draws.split(masked, 0.1, None, seed=1).is_correlated()
    assert Draws.split(en.Simulations(level, model), 0.1, None, seed=1).is_correlated()


def test_the_default_call_takes_correlations_out_where_that_helps(tmp_path: Path) -> None:
    """A large common level hides what the numbers say of each other."""
    sims = lifted(10_000, 30.0)
    net = en.train(
        sims, network=Dense(hidden=32), baseline=False, members=1, learn_error=False, progress=False
    )
    assert net.choice is not None
    scores = {trial.plan: trial.score for trial in net.choice.trials}
    name = "Dense(hidden=32), standardised, whitened, Logistic"
    assert "whitened" in net.choice.taken
    # Knowing nothing scores log 2 = 0.693. Errors of scores are 0.01 or so.
    assert scores[name] < scores["Dense(hidden=32), standardised, Logistic"] - 0.1
    net.save(tmp_path / "white.evnet")
    back = en.load(tmp_path / "white.evnet")
    np.testing.assert_array_equal(back.log_bayes_factor(sims.x), net.log_bayes_factor(sims.x))
