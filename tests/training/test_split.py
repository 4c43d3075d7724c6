"""Which draws are held out, which are trained on, and what they are like."""

from typing import Any

import numpy as np
import pytest

import evidencenet as en
from evidencenet.training.split import Draws, augmented
from training.synthetic import lifted, sims


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
