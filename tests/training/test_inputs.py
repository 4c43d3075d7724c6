"""What is done to draws on their way to the networks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import evidencenet as en
from evidencenet.losses import Asymmetric, Logistic
from evidencenet.networks.architectures import DeepSet, Dense, Table
from evidencenet.simulation.stream import FreshDraws
from evidencenet.training.baseline import flat
from evidencenet.training.inputs import prepare, with_reference
from evidencenet.training.plan import Plan
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer
from training.synthetic import lifted, sims

PLAN = Plan(Dense(), Logistic())


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


def test_correlations_are_taken_out_where_that_helps(tmp_path: Path) -> None:
    """A large common level hides what the numbers say of each other."""
    sims = lifted(10_000, 30.0)
    named: dict[str, Any] = {"network": Dense(hidden=32), "loss": Logistic(), "baseline": False}
    net = en.train(sims, **named, members=1, learn_error=False, progress=False)
    assert net.choice is not None
    scores = {trial.plan: trial.score for trial in net.choice.trials}
    name = "Dense(hidden=32), standardised, whitened, Logistic"
    assert "whitened" in net.choice.taken
    # Knowing nothing scores log 2 = 0.693. Errors of scores are 0.01 or so.
    assert scores[name] < scores["Dense(hidden=32), standardised, Logistic"] - 0.1
    net.save(tmp_path / "white.evnet")
    back = en.load(tmp_path / "white.evnet")
    np.testing.assert_array_equal(back.log_bayes_factor(sims.x), net.log_bayes_factor(sims.x))


def test_clean_draws_get_new_noise_in_every_epoch() -> None:
    rng = np.random.default_rng(1)
    clean, model = 3 * rng.normal(size=(3_000, 4)), np.arange(3_000) % 2

    def noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return clean + rng.normal(size=clean.shape)

    some = Draws.split(en.Simulations(clean, model, observe=noise), 0.1, None, 5)
    data = prepare(some, PLAN)

    def epoch(number: int, order: int = 1) -> np.ndarray:
        chunks = list(data.source(en.Recipe(batch=100), order).epoch(number))
        return np.concatenate([chunk.x.reshape(-1, 4) for chunk in chunks])

    np.testing.assert_array_equal(epoch(3), epoch(3))
    # A few numbers agree by chance in single precision.
    assert np.isin(epoch(0), epoch(1)).mean() < 0.01
    # Rows are in another order in each epoch, so take moments: clean draws and noise add up.
    factor = np.asarray(data.scaling.factor)
    variance = (epoch(0) / factor).var(axis=0)
    np.testing.assert_allclose(variance, clean.var(axis=0) + 1, rtol=4 * np.sqrt(2 / 2_700))
    np.testing.assert_array_equal(data.held_out_chunk().x, prepare(some, PLAN).held_out_chunk().x)
    # Log-odds that are known hold for one observation, so that it must be the one that is trained on.
    known = prepare(replace(some, known=np.zeros((3_000, 2))), PLAN)
    fixed = np.concatenate(
        [chunk.x.reshape(-1, 4) for chunk in known.source(en.Recipe(batch=100), 1).epoch(0)]
    )
    scaled = np.asarray(known.scaling(some.x))
    assert np.isin(fixed, scaled).all()


def test_several_observations_of_a_clean_draw_are_in_one_part_and_count_once() -> None:
    rng = np.random.default_rng(2)
    # The clean draws differ in one number; the others are noise alone.
    clean, model = np.zeros((4_000, 4)), np.arange(4_000) % 2
    clean[:, 0] = 3 * rng.normal(size=4_000)

    def noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return clean + rng.normal(size=clean.shape)

    several = prepare(Draws.split(en.Simulations(clean, model, observe=noise), 0.1, None, 5), PLAN)
    moments = several.moments
    assert moments is not None
    np.testing.assert_allclose(moments.of_all().size, 1_800, rtol=0.02)
    factor = np.asarray(several.scaling.factor)
    spread = (
        np.array([half.covariance[0].diagonal() for pair in moments.halves() for half in pair]) / factor**2
    )
    # Halves differ by the scatter of 900 clean draws, 10·√(2/900) = 0.47, also after 16 observations of each.
    # The noise is known four times better than from one observation, 0.047/4.
    scatter = spread.std(axis=0)
    assert 0.47 / 2 < scatter[0] < 2 * 0.47
    assert scatter[1:].max() < 0.047 / 2


def test_moments_of_a_stream_in_any_linear_scaling_come_from_one_pass() -> None:
    models = [
        en.Model(str(k), lambda rng, n, k=k: rng.normal(3, 1 + k, size=(n, 5)) @ np.triu(np.ones((5, 5))))
        for k in (0, 1)
    ]
    some = Draws.split(en.simulate(models, 4_000, progress=False), 0.1, None, 1)
    stream = FreshDraws.of(models, (20_000, 10_000), 2, 5, 40, 1)
    all_draws = with_reference(replace(some, stream=stream))
    for plan in (PLAN, replace(PLAN, whiten=True), Plan(DeepSet(), Logistic())):
        known = prepare(all_draws.few(500), plan).moments
        passed = prepare(
            replace(all_draws, reference=None, training_rows=some.training_rows[:500]), plan
        ).moments
        assert known is not None
        assert passed is not None
        np.testing.assert_allclose(known.of_all().size, [20_000, 10_000], rtol=0.1)
        np.testing.assert_allclose(known.of_all().mean, passed.of_all().mean, atol=1e-6)
        np.testing.assert_allclose(known.of_all().covariance, passed.of_all().covariance, atol=1e-5)
    # asinh is not linear, so that it needs a pass of its own.
    plain, squashed = (prepare(all_draws, plan).moments for plan in (PLAN, replace(PLAN, squash=True)))
    assert plain is not None
    assert squashed is not None
    assert np.abs(squashed.of_all().covariance - plain.of_all().covariance).max() > 0.05
    # Halves know only their own draws.
    assert all(half.reference is None for half in all_draws.halves(1))


def test_clean_draws_are_trained_on_for_longer() -> None:
    clean, model = np.random.default_rng(1).normal(size=(2_000, 4)), np.arange(2_000) % 2
    anew = en.Simulations(clean, model, observe=lambda rng, clean: clean + rng.normal(size=clean.shape))
    trainer = Trainer(1, en.Recipe(), 1, 2)
    longer, usual = (
        trainer.sized(prepare(Draws.split(some, 0.1, None, 5), PLAN))
        for some in (anew, en.Simulations(anew.x, model))
    )
    assert (longer.epochs, longer.patience) == (240, 240)
    assert (usual.epochs, usual.patience) == (60, 10)
    named = replace(trainer, recipe=en.Recipe(epochs=5))
    assert named.sized(prepare(Draws.split(anew, 0.1, None, 5), PLAN)).patience == 10
