"""Whether an observation is like the draws: p-values that are nominal for draws and small for other data."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import evidencenet as en
from conftest import Case, draws
from evidencenet._common.arrays import Data, map_arrays
from evidencenet.estimator.novelty import Novelty, Seen
from evidencenet.networks import ensemble
from evidencenet.training.baseline import Moments
from evidencenet.training.batches import Chunk
from evidencenet.training.split import Draws

CASES = ("series", "small", "three", "cloud")


def moments_of(x: np.ndarray, label: np.ndarray) -> Moments:
    one = Chunk(x[None], None, label[None], np.ones((1, len(x)), np.float32))
    return Moments.of([one], 2).of_all()


def fitted(
    x: np.ndarray, label: np.ndarray, hidden: np.ndarray | None = None, *, data: bool = True
) -> Novelty:
    """Fit to the first two thirds of the draws, with the last third as reference."""
    part = 2 * len(x) // 3
    first, last = slice(0, part), slice(part, None)
    seen = [Seen(x[s], None if hidden is None else hidden[s], label[s]) for s in (first, last)]
    found = Novelty.fit(moments_of(x[first], label[first]) if data else None, *seen)
    return found


def look(x: np.ndarray) -> np.ndarray:
    """What a network might make of data: a few numbers, not linear in them."""
    return np.tanh(np.stack([x.mean(axis=1), np.sqrt(np.square(x).mean(axis=1)), x[:, 0] * x[:, 1]], axis=1))


def heavy(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of two models, the second three times as wide; not Gaussian, since ranks need no law."""
    label = rng.integers(2, size=n)
    return (rng.standard_t(4, size=(n, 5)) * (1 + 2 * label)[:, None]).astype(np.float32), label


# The distances alone.


@pytest.mark.parametrize("views", ["data", "hidden", "both"])
def test_p_values_of_fresh_draws_are_uniform(views: str) -> None:
    rng = np.random.default_rng(6)
    x, label = heavy(rng, 30_000)
    novelty = fitted(x, label, None if views == "data" else look(x), data=views != "hidden")
    assert (novelty.levels is not None) == (views == "both")
    for k in (0, 1):
        fresh = ((1 + 2 * k) * rng.standard_t(4, size=(1_000, 5))).astype(np.float32)
        for stretch, uniform in ((1.0, True), (1.3, False)):
            p = novelty.p_value(stretch * fresh, look(stretch * fresh))[:, k]
            assert (stats.kstest(p, "uniform").pvalue > 1e-3) == uniform


def test_distances_are_mahalanobis() -> None:
    rng = np.random.default_rng(8)
    x = (rng.normal(size=(6_000, 3)) @ rng.normal(size=(3, 3))).astype(np.float32)
    label, hidden = np.arange(6_000) % 2, look(x)
    distances = fitted(x, label, hidden).distances(x[:10], hidden[:10])
    assert distances.shape == (2, 10, 2)
    for view, numbers in enumerate((x, hidden)):
        for k in (0, 1):
            mine = numbers[:4_000][label[:4_000] == k]
            y = numbers[:10] - mine.mean(axis=0)
            wanted = np.einsum("ni,ij,nj->n", y, np.linalg.inv(np.cov(mine.T)), y)
            np.testing.assert_allclose(distances[view, :, k], wanted, rtol=5e-3)


def test_far_data_have_the_smallest_p_value() -> None:
    rng = np.random.default_rng(7)
    x, label = rng.normal(size=(6_000, 3)).astype(np.float32), rng.integers(2, size=6_000)
    far = np.array([[20, 0, 0], [1e6, -1e6, 1e6], [0.5, -0.8, 0.6]], np.float32)
    for novelty in (fitted(x, label), fitted(x, label, look(x))):
        # The hidden units, which are bounded here, need not say so too.
        p = novelty.p_value(far, look(far))
        np.testing.assert_array_equal(p[:2], np.tile(1 / (1 + novelty.counts), (2, 1)))
        assert np.all(p[2] > 0.3)
        assert novelty.counts.sum() == 2_000
        assert novelty.least == 1 / (1 + novelty.counts.min())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_hidden_units_that_overflow_are_far_out(value: float) -> None:
    rng = np.random.default_rng(9)
    x, label = rng.normal(size=(3_000, 3)).astype(np.float32), rng.integers(2, size=3_000)
    hidden = x.copy()
    some = hidden[:1].copy()
    some[0, 1] = value
    for data in (True, False):
        novelty = fitted(x, label, hidden, data=data)
        np.testing.assert_array_equal(novelty.p_value(x[:1], some)[0], 1 / (1 + novelty.counts))
    # Even if that happens for draws, there is a p-value.
    hidden[::7, 1] = value
    p = fitted(x, label, hidden).p_value(x, hidden)
    assert np.all((p > 0) & (p <= 1))


def test_departures_from_what_never_varies_are_seen() -> None:
    rng = np.random.default_rng(10)
    x = rng.normal(size=(6_000, 4)).astype(np.float32)
    x[:, 3] = x[:, 0] + x[:, 1]
    novelty = fitted(x, rng.integers(2, size=6_000))
    assert np.mean(novelty.p_value(x) < 0.1) == pytest.approx(0.1, abs=0.03)
    x[:, 3] += 0.1
    assert np.all(novelty.p_value(x[:100]) <= 2 * novelty.least)


def test_one_kind_of_distance_does_not_drown_the_other() -> None:
    # Data of heavy tails, and hidden units that lie on a narrow shell: a small step off it is noticed.
    rng = np.random.default_rng(11)
    x, label = rng.standard_cauchy(size=(30_000, 3)).astype(np.float32), np.arange(30_000) % 2
    hidden = rng.normal(size=(30_000, 40))
    novelty = fitted(x, label, hidden)
    stretched = novelty.p_value(x[-5_000:], 1.5 * hidden[-5_000:])
    assert np.mean(stretched <= 0.01) > 0.8
    assert np.mean(novelty.p_value(1e5 * x[:1_000], hidden[:1_000]) <= 0.01) > 0.9


def test_nothing_to_look_at() -> None:
    x, label = heavy(np.random.default_rng(1), 300)
    with pytest.raises(ValueError, match="neither moments of the data nor hidden units"):
        Novelty.fit(None, Seen(x, None, label), Seen(x, None, label))
    with pytest.raises(ValueError, match="fitted with hidden units: pass those of the draws too"):
        fitted(x, label, look(x)).p_value(x)
    # No draw of the second model to compare with: nothing is strange to it.
    alone = Novelty.fit(
        moments_of(x, label), Seen(x, None, label), Seen(x[label == 0], None, label[label == 0])
    )
    np.testing.assert_array_equal(alone.p_value(1e6 * x)[:, 1], 1)
    assert alone.least == 1


# Hidden layers.


class Mine(eqx.Module):
    """A module with a field of the name that is asked for as a method."""

    weight: jax.Array
    hidden: int = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight @ x


def test_a_module_without_hidden_layer_gives_its_outputs() -> None:
    members = Mine(jnp.arange(12.0).reshape(2, 2, 3), 7)
    x = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32)
    found = ensemble.hidden_layers(
        members, ensemble.initialise(en.networks.Dense(), x[0], 1, key=jax.random.key(0))[1], np.ones(2), x
    )
    np.testing.assert_allclose(
        found, np.concatenate([x @ w.T for w in np.asarray(members.weight)], axis=1), rtol=1e-5
    )


def test_members_that_learned_nothing_are_not_asked(small: Case) -> None:
    net, x = small.net, small.net.scaling(small.fresh.x)
    both = ensemble.hidden_layers(net.networks, net.states, np.array([1, 1]), x)
    second = ensemble.hidden_layers(net.networks, net.states, np.array([0, 1]), x)
    assert both.shape == (len(small.fresh), 2 * second.shape[1])
    np.testing.assert_array_equal(both[:, second.shape[1] :], second)
    # If none has, what they make of the data is still something to tell data from draws by.
    np.testing.assert_array_equal(ensemble.hidden_layers(net.networks, net.states, np.zeros(2), x), both)


# Trained networks.


def own_p_values(case: Case, x: Data, model: np.ndarray) -> np.ndarray:
    return case.net.novelty_p_value(x)[np.arange(len(model)), model]


@pytest.mark.parametrize("name", CASES)
def test_false_alarms_are_as_rare_as_stated(name: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    fresh = draws(case.problem, 20_000, seed=11)
    p = own_p_values(case, fresh.x, fresh.model)
    # Negative control: draws that are a third larger.
    wider = own_p_values(case, map_arrays(lambda a: a if a.dtype == bool else 1.33 * a, fresh.x), fresh.model)
    assert case.net.novelty is not None
    assert (case.net.novelty.levels is not None) == case.net.gain.any()
    for size in (0.01, 0.05):
        for k, reference in enumerate(case.net.novelty.counts):
            mine = fresh.model == k
            # The binomial error of the fresh draws, and of the reference by which p is measured.
            error = np.sqrt(size * (1 - size) * (1 / mine.sum() + 1 / reference))
            assert abs(np.mean(p[mine] <= size) - size) < 3.5 * error
        assert np.mean(wider <= size) > size + 5 * error


def flagged(case: Case, x: Data, size: float = 0.02) -> float:
    """The fraction of data that no model produces, at this size."""
    return float(np.mean(np.all(case.net.novelty_p_value(x) <= size, axis=1)))


@pytest.mark.parametrize("name", ["series", "cloud"])
def test_other_data_are_noticed(name: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    rng = np.random.default_rng(12)
    x = case.fresh.x
    spread = map_arrays(lambda a: a.std(axis=0), x)

    def changed(change: Any) -> float:
        return flagged(case, map_arrays(lambda a, s: a if a.dtype == bool else change(a, s), x, spread))

    def some(a: np.ndarray) -> np.ndarray:
        return rng.random(a.shape) < 0.15

    found = {
        "shifted": changed(lambda a, s: a + 2 * s),
        "rescaled": changed(lambda a, s: 1.5 * a),
        "outliers": changed(lambda a, s: np.where(some(a), 6 * s, a)),
        "zeros": changed(lambda a, s: np.where(some(a), 0, a)),
        "wrong": changed(lambda a, s: s * rng.standard_t(2, size=a.shape)),
    }
    assert flagged(case, x) < 0.025
    # In noise that is not correlated, zeros lie as far in as can be; no distance tells them from draws.
    assert found.pop("zeros") < 0.1
    assert min(found.values()) > (0.5 if name == "series" else 0.15)


def test_numbers_replaced_by_zeros_are_noticed_where_neighbours_tell() -> None:
    rng = np.random.default_rng(14)
    walk = np.cumsum(rng.normal(size=(6_500, 20)), axis=1).astype(np.float32) / 3
    novelty = fitted(walk[:6_000], rng.integers(2, size=6_000))
    fresh = walk[6_000:]
    lost = np.where(rng.random(fresh.shape) < 0.1, 0, fresh)
    assert np.mean(np.all(novelty.p_value(fresh) <= 0.02, axis=1)) < 0.04
    assert np.mean(np.all(novelty.p_value(lost) <= 0.02, axis=1)) > 0.3


def test_the_networks_see_what_mean_and_covariance_do_not(cloud: Case) -> None:
    # The same point again and again: near the centre, and unlike any draw of either model.
    x = draws(cloud.problem, 4_000, seed=15).x
    assert isinstance(x, dict)
    same = {**x, "x": np.broadcast_to(x["x"][:, :1], x["x"].shape) * x["mask"][:, :, None]}
    assert flagged(cloud, same) > 3 * flagged(cloud, x)
    novelty, usual, strange = cloud.net.novelty, cloud.net.scaling(x), cloud.net.scaling(same)
    assert novelty is not None
    blind = replace(novelty, hidden_mean=None, hidden_whiten=None, levels=None)
    limit = np.quantile(blind.distances(usual)[0], 0.98, axis=0)
    assert np.mean(np.all(blind.distances(strange)[0] > limit, axis=1)) < 0.03


def test_data_of_many_numbers() -> None:
    rng = np.random.default_rng(13)

    def made(n: int) -> tuple[np.ndarray, np.ndarray]:
        label = np.arange(n) % 2
        return rng.normal(size=(n, 601)) + 0.1 * label[:, None], label

    network = en.networks.Dense(width=16)
    net = en.train(
        en.Simulations(*made(4_000)),
        network=network,
        members=1,
        recipe=en.Recipe(epochs=1, batch=100),
        learn_error=False,
        seed=1,
        progress=False,
    )
    assert net.novelty is not None
    assert net.novelty.mean is None
    x, label = made(4_000)
    p = net.novelty_p_value(x)
    for k, reference in enumerate(net.novelty.counts):
        mine = label == k
        error = np.sqrt(0.05 * 0.95 * (1 / mine.sum() + 1 / reference))
        assert abs(np.mean(p[mine, k] <= 0.05) - 0.05) < 3.5 * error
    assert np.mean(net.novelty_p_value(x + 1) <= 0.05) > 0.9
    answer = net.compare(x[0] + 1e9)
    np.testing.assert_array_equal(answer.novelty, 1 / (1 + net.novelty.counts))
    assert "no model produces data like this" in str(answer)


def test_weighted_draws_stand_for_the_weighted_models() -> None:
    # Drawn with a standard deviation of 2, and weighted as if it were 1.
    rng = np.random.default_rng(16)
    x, label = 2 * rng.normal(size=(40_000, 2)), np.arange(40_000) % 2
    log_weight = np.where(label == 1, -0.375 * np.square(x).sum(axis=1), 0.0)
    sims = en.Simulations(x, label, log_weight=log_weight)
    parts = Draws.split(sims, 0.5, None, seed=1)
    rows = parts.of_equal_weight(parts.held_out_rows)
    assert np.all(np.isin(rows, parts.held_out_rows))
    # All draws of equal weight stay; of the others those of a density four times lower than the largest.
    counts = np.bincount(label[rows])
    assert counts[0] == 10_000
    assert abs(counts[1] - 2_500) < 4 * np.sqrt(2_500 * 0.75)
    variance = np.square(x[rows[label[rows] == 1]]).mean()
    assert abs(variance - 1) < 4 * np.sqrt(2 / (2 * counts[1]))
    np.testing.assert_array_equal(np.bincount(label[parts.of_equal_weight(parts.held_out_rows, 700)]), 700)

    recipe = en.Recipe(epochs=1)
    net = en.train(sims, members=1, recipe=recipe, baseline=True, learn_error=False, seed=2, progress=False)
    fresh = rng.normal(size=(4_000, 2))
    assert net.novelty is not None
    error = np.sqrt(0.05 * 0.95 * (1 / 4_000 + 1 / net.novelty.counts[1]))
    assert abs(np.mean(net.novelty_p_value(fresh)[:, 1] <= 0.05) - 0.05) < 3.5 * error
    assert np.mean(net.novelty_p_value(2 * fresh)[:, 1] <= 0.05) > 0.3
    # What can be confirmed is counted by draws that stand for the weighted models too.
    assert np.bincount(net.held_out.label)[1] < 0.35 * np.bincount(net.held_out.label)[0]


def test_it_is_saved(cloud: Case, tmp_path: Path) -> None:
    cloud.net.save(tmp_path / "net")
    back = en.load(tmp_path / "net")
    for item in fields(Novelty):
        np.testing.assert_array_equal(*(getattr(net.novelty, item.name) for net in (cloud.net, back)))
    x = cloud.fresh.x
    np.testing.assert_array_equal(back.novelty_p_value(x), cloud.net.novelty_p_value(x))


@pytest.mark.parametrize("name", CASES)
def test_a_second_comparison_compiles_nothing(
    name: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    case: Case = request.getfixturevalue(name)
    first, second = (map_arrays(lambda array, i=i: array[i], case.fresh.x) for i in (0, 1))
    case.net.compare(first)
    with jax.log_compiles():
        case.net.compare(second)
        assert [record.getMessage() for record in caplog.records if "ompil" in record.getMessage()] == []
        # What is compiled is told.
        jax.jit(lambda x: x + 1)(np.zeros(3))
        assert any("ompil" in record.getMessage() for record in caplog.records)
