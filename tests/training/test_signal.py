"""The few combinations that vary by more than their noise, found from two observations of each clean draw."""

from pathlib import Path

import numpy as np
from scipy.special import log_expit, logsumexp, ndtr

import evidencenet as en
from evidencenet import losses, networks
from evidencenet.training.inputs import prepare
from evidencenet.training.plan import Plan
from evidencenet.training.recipe import Recipe
from evidencenet.training.search import FIRST_LOSS, Freedom, Search
from evidencenet.training.signal import Signal
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer

DIM = 40
# Noise of unit variance, but in a mixture of the numbers.
TURN = np.linalg.qr(np.random.default_rng(7).normal(size=(DIM, DIM)))[0]
MIX = np.geomspace(0.1, 10, DIM)[:, None] * TURN
# Two shapes, orthogonal and of unit length in units of the noise. The second is mixed in by model 1 alone.
SHAPES = np.eye(2, DIM)
SIZES = (0.0, 6.0)


def add_noise(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    return clean + rng.standard_normal(clean.shape) @ MIX


def shapes(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Clean draws of a shape whose size varies over decades; in model 1 a part of another one is added."""
    rng = np.random.default_rng(seed)
    model = np.arange(n) % 2
    size, part = np.exp(rng.uniform(*SIZES, size=n)), rng.uniform(-1, 1, size=n) * model
    return (size[:, None] * (SHAPES[0] + part[:, None] * SHAPES[1])) @ MIX, model


def exact_log_k(x: np.ndarray) -> np.ndarray:
    """Sum over a grid of sizes and parts: for both models the likelihood is that of two numbers."""
    y = x @ np.linalg.inv(MIX)[:, :2]
    size = np.exp(np.linspace(*SIZES, 6_001))
    log_l = -0.5 * (y[:, :1] - size) ** 2
    without = log_l - 0.5 * y[:, 1:] ** 2
    # The part is flat between −1 and 1, so size · part is flat between −size and size: an error function.
    low, high = (normal_cdf(sign * size - y[:, 1:]) for sign in (-1, 1))
    with np.errstate(divide="ignore"):
        mixed = log_l + np.log((high - low) * np.sqrt(2 * np.pi) / (2 * size))
    return np.asarray(logsumexp(mixed, axis=1) - logsumexp(without, axis=1))


def normal_cdf(z: np.ndarray) -> np.ndarray:
    return np.asarray(ndtr(z))


def simulations(n: int, seed: int = 1) -> en.Simulations:
    clean, model = shapes(n, seed)
    return en.Simulations(clean, model, ("plain", "mixed"), observe=add_noise, seed=seed)


def test_signal_is_told_from_noise() -> None:
    clean, _ = shapes(10_000)
    rng = np.random.default_rng(2)
    signal = Signal.fit(add_noise(rng, clean), add_noise(rng, clean))
    # Two shapes, in units of the noise: what is kept of noise alone has unit variance in both.
    assert signal.matrix.shape == (DIM, 2)
    noise = add_noise(rng, np.zeros((50_000, DIM))) @ signal.matrix
    np.testing.assert_allclose(np.cov(noise.T), np.eye(2), atol=0.03)
    # The shapes lie in what is kept: their lengths are 1 there, as in all numbers.
    kept = SHAPES @ MIX @ signal.matrix
    np.testing.assert_allclose(kept @ kept.T, np.eye(2), atol=0.02)
    # Sizes are densest at the smallest, 1, and not at their mean, 67: the origin is near.
    assert np.linalg.norm(signal.origin) < 3
    seen = signal(add_noise(rng, clean))
    assert seen.shape == (10_000, signal.numbers)
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=0.05)


def test_of_noise_alone_nothing_is_kept_but_one_combination() -> None:
    rng = np.random.default_rng(2)
    first, second = (add_noise(rng, np.ones((10_000, DIM))) for _ in range(2))
    assert Signal.fit(first, second).matrix.shape == (DIM, 1)


def test_numbers_without_noise_do_not_break_it() -> None:
    rng = np.random.default_rng(2)
    clean = rng.normal(size=(5_000, 3)) * [1.0, 1.0, 0.0]
    first, second = (clean + rng.normal(size=clean.shape) * [0.1, 0.0, 0.0] for _ in range(2))
    signal = Signal.fit(first, second)
    assert np.isfinite(signal(first)).all()
    # The second number has no noise, and the last does not vary at all.
    assert signal.matrix.shape == (3, 2)


def scores(sims: en.Simulations, signal: bool, epochs: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Train one dense network; return its held-out score in nats, its log K, and the held-out draws."""
    split = Draws.split(sims, 0.2, None, 1)
    plan = Plan(networks.Dense(), losses.Logistic(), signal=signal)
    inputs = prepare(split, plan)
    trainer = Trainer(1, Recipe(epochs=epochs), 1, 2)
    trained = trainer.fit(inputs, trainer.sized(inputs))
    x, label = split.held_out_draws()
    log_k = split.held_out_log_k(trained.log_odds)[:, 1]
    return float(-np.mean(log_expit(np.where(label == 1, log_k, -log_k)))), log_k, np.asarray(x)


def test_networks_that_see_the_signal_know_log_k() -> None:
    sims = simulations(10_000)
    score, log_k, x = scores(sims, True, 30)
    plain, plain_log_k, _ = scores(sims, False, 30)
    wanted = exact_log_k(x)
    label = sims.model[Draws.split(sims, 0.2, None, 1).held_out_rows]
    exact = float(-np.mean(log_expit(np.where(label == 1, wanted, -wanted))))
    near = np.abs(wanted) < 4
    missed, plain_missed = (np.sqrt(np.mean((k - wanted)[near] ** 2)) for k in (log_k, plain_log_k))
    # Measured: 0.0015 and 0.0074 nats worse than exact, and log K off by 0.27 and 0.41.
    assert score - exact < 0.004
    assert plain - exact > 3 * (score - exact)
    assert missed < 0.8 * plain_missed


def test_where_noise_tells_the_models_apart_the_signal_is_blind() -> None:
    # The control: model 1 is louder and nothing else. The signal's combination cannot know that.
    def louder(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return clean + 1.3 * rng.standard_normal(clean.shape)

    def quiet(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return clean + rng.standard_normal(clean.shape)

    model = np.arange(6_000) % 2
    clean = np.outer(np.random.default_rng(3).normal(size=6_000), np.ones(DIM))
    sims = en.Simulations(clean, model, ("quiet", "loud"), observe=[quiet, louder], seed=1)
    assert scores(sims, True, 10)[0] > 0.65
    assert scores(sims, False, 10)[0] < 0.5


def test_the_search_tries_the_signal_of_observed_draws_alone() -> None:
    observed = simulations(2_000)
    once = en.Simulations(observed.x, observed.model, observed.names)
    tried = []
    for sims in (observed, once):
        split = Draws.split(sims, 0.2, None, 1)
        freedom = Freedom.of(split, None, FIRST_LOSS, None, None)
        search = Search(split, Trainer(1, Recipe(), 1, 2), freedom)
        tried.append([plan for plan in search.other_inputs() if plan.signal])
    assert tried[0]
    assert not any(plan.baseline or plan.whiten for plan in tried[0])
    assert str(tried[0][0]) == "Squares, standardised, signal, Logistic"
    assert not tried[1]


def test_the_default_call_takes_it_and_a_file_keeps_it(tmp_path: Path) -> None:
    sims = simulations(4_000)
    net = en.train(sims, members=1, learn_error=False, seed=1, progress=False)
    assert net.choice is not None
    assert "signal" in net.choice.taken
    assert net.scaling.signal is not None
    net.save(tmp_path / "net.evnet")
    x = simulations(2_000, seed=5).x
    np.testing.assert_array_equal(
        en.load(tmp_path / "net.evnet").log_bayes_factor(x), net.log_bayes_factor(x)
    )
    wanted = exact_log_k(np.asarray(x))
    near = np.abs(wanted) < 4
    # Sizes go up to 400 times the noise, and 4,000 clean draws are not everywhere: single answers may be off.
    missed = (net.log_bayes_factor(x) - wanted)[near]
    assert np.quantile(np.abs(missed), 0.95) < 0.8
