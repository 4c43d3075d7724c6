"""The training loop: what early stopping keeps, and what an interrupt leaves."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evidencenet as en
from conftest import Case, draws
from evidencenet.checks.scores import score
from evidencenet.networks import ensemble
from evidencenet.training import loop
from evidencenet.training.batches import Chunk
from evidencenet.training.inputs import prepare
from evidencenet.training.plan import Plan
from evidencenet.training.split import Draws
from evidencenet.training.trainer import Trainer

SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


@pytest.fixture(scope="module")
def overfitted() -> en.EvidenceNetwork:
    """A network that learns 540 draws by heart, long after its held-out score was best."""
    sims = draws(en.problems.mean_test(size=20), 600, seed=2)
    recipe = en.Recipe(epochs=200, batch=50, learning_rate=3e-3, weight_decay=0.0, patience=15)
    return en.train(
        sims, network="dense", members=2, recipe=recipe, learn_error=False, seed=1, progress=False
    )


def test_early_stopping(overfitted: en.EvidenceNetwork) -> None:
    history = overfitted.history
    members, columns = history.score.shape
    assert members == 2
    for scores, loss, best in zip(history.score, history.train_loss, history.best_epoch, strict=True):
        last = int(np.flatnonzero(np.isfinite(scores))[-1])
        assert best < last < 200
        assert last == best + 15
        assert scores[best] == np.nanmin(scores)
        assert scores[last] > scores[best] + 0.05
        # Training went on to get better at the draws it saw, and stopped with the member.
        assert loss[last] < loss[max(best, 1)]
        assert np.all(np.isnan(loss[last + 1 :]))
    assert columns == 1 + max(history.best_epoch) + 15
    assert len(history.seconds) == columns - 1


def test_members_keep_their_best_weights(overfitted: en.EvidenceNetwork) -> None:
    sims = draws(en.problems.mean_test(size=20), 600, seed=2)
    assert isinstance(sims.x, np.ndarray)
    np.testing.assert_array_equal(overfitted.gain, 1)
    # Which draws were held out shows in the record of their log K.
    every = overfitted.log_bayes_factor(sims.x)
    rows = [int(np.argmin(np.abs(every - k))) for k in overfitted.held_out.log_k[:, 1]]
    np.testing.assert_allclose(every[rows], overfitted.held_out.log_k[:, 1], rtol=1e-4, atol=1e-5)
    label = overfitted.held_out.label
    np.testing.assert_array_equal(sims.model[rows], label)
    for member, scores in zip(overfitted.members(sims.x[rows]), overfitted.history.score, strict=True):
        table = np.stack([np.zeros(len(rows)), member], axis=1)
        assert score(table, label).value == pytest.approx(np.nanmin(scores), abs=1e-4)


def test_members_that_learned_nothing_say_nothing() -> None:
    rng = np.random.default_rng(5)
    sims = en.Simulations(rng.normal(size=(2_000, 5)), np.repeat([0, 1], [500, 1_500]))
    recipe = en.Recipe(epochs=3, batch=100)
    net = en.train(sims, members=3, recipe=recipe, seed=1, progress=False)
    # By chance one member in forty would beat the shares of the models by two errors: not with this seed.
    np.testing.assert_array_equal(net.gain, 0)
    x = rng.normal(size=(50, 5))
    np.testing.assert_array_equal(net.members(x), 0)
    # Log K of 8/√n would just have been noticed, of 200 held-out draws: half of that.
    np.testing.assert_allclose(net.error(x), 4 / np.sqrt(200), rtol=1e-3)


def test_the_start_may_be_the_best() -> None:
    # With state of its own, as batch normalisation has, in arrays that the compiled function takes back.
    rng = np.random.default_rng(5)
    sims = en.Simulations(rng.normal(size=(1_000, 5)), np.repeat([0, 1], 500))
    recipe = replace(en.Recipe.paper(), epochs=1)
    net = en.train(sims, members=2, recipe=recipe, learn_error=False, seed=1, progress=False)
    np.testing.assert_array_equal(net.history.best_epoch, 0)
    np.testing.assert_array_equal(net.gain, 0)


@pytest.mark.parametrize("learnable", [True, False])
def test_log_odds_of_held_out_draws(small: Case, learnable: bool) -> None:
    rng = np.random.default_rng(5)
    model = small.sims.model if learnable else rng.permutation(small.sims.model)
    some = Draws.split(en.Simulations(small.sims.x, model), 0.1, None, 1)
    data = prepare(some, Plan(en.networks.Dense(), en.losses.Logistic()))
    recipe = en.Recipe(epochs=2, batch=100).for_draws(len(some.training_rows))
    held_out = data.held_out_chunk()
    trained = loop.train_ensemble(
        data.plan.network,
        1,
        data.plan.loss,
        data.source(recipe, 1),
        held_out,
        recipe,
        members=2,
        seed=1,
        progress=False,
    )
    n = len(some.held_out_rows)
    assert trained.log_odds.shape == (2, held_out.label.size, 2)
    np.testing.assert_array_equal(trained.gain, float(learnable))
    # Those of a member that learned nothing are the offset: equal shares.
    assert np.all(trained.log_odds[:, :n, 1] == 0) != learnable
    label = some.model[some.held_out_rows]
    sign = np.where(label == 1, 1, -1)
    wanted = np.logaddexp(0, -sign * (trained.log_odds[:, :n, 1] - trained.log_odds[:, :n, 0]))
    np.testing.assert_allclose(trained.costs[:, :n], wanted, rtol=1e-6)
    best = np.nanmin(trained.history.score, axis=1)
    if learnable:
        np.testing.assert_allclose(trained.costs[:, :n].mean(axis=1), best, rtol=1e-5)
        for network, state, odds in zip(*_members(trained), trained.log_odds, strict=True):
            raw = ensemble.apply(network, state, held_out.x.reshape(-1, 5)[:n])[0]
            np.testing.assert_allclose(odds[:n, 1] - odds[:n, 0], raw[:, 0], rtol=1e-3, atol=1e-4)


def _members(trained: loop.Trained) -> tuple[list[Any], list[Any]]:
    """The networks and states of an ensemble, one by one."""
    weights, fixed = eqx.partition(trained.networks, eqx.is_inexact_array)
    rows = range(len(trained.gain))
    own = [jax.tree.map(lambda leaf, i=i: leaf[i], (weights, trained.states)) for i in rows]
    return [eqx.combine(part, fixed) for part, _ in own], [state for _, state in own]


@pytest.mark.parametrize(("gain", "significant"), [(0.19, False), (0.21, True), (-0.5, False)])
def test_a_gain_of_two_errors_counts(gain: float, significant: bool) -> None:
    # 100 gains that scatter by 1 have a mean known to 0.1.
    gained = gain + np.tile([-1.0, 1.0], 50)
    mean, error = loop.weighted_mean(gained, np.ones(100))
    assert (mean > 2 * error) == significant
    # Draws of no weight, which pad a block, do not count.
    padded = np.concatenate([gained, np.full(300, 99.0)]).reshape(4, 100)
    weight = (np.arange(400) < 100).reshape(4, 100).astype(float)
    assert loop.weighted_mean(padded, weight) == pytest.approx((mean, error))


def test_history_of_a_member_that_never_stopped(small: Case) -> None:
    history = small.net.history
    assert history.score.shape == history.train_loss.shape == (2, 4)
    # Before training nothing is known: the entropy of two equal shares.
    np.testing.assert_allclose(history.score[:, 0], np.log(2), rtol=1e-5)
    assert np.all(np.isnan(history.train_loss[:, 0]))
    assert np.all(np.isfinite(history.train_loss[:, 1:]))
    assert history.draws <= 5_400
    assert history.draws % history.batch == 0
    assert history.samples_per_second > 0
    axis = history.plot()
    assert axis.lines


def test_members_branch_off_from_stems(small: Case) -> None:
    """Four members of two stems: equal in pairs for half of the epochs, and then all different."""
    recipe = en.Recipe(epochs=6, batch=100, stems=2)
    options: dict[str, Any] = {"network": "dense", "learn_error": False, "seed": 1, "progress": False}
    net = en.train(small.sims, recipe=recipe, **options)
    score, loss = net.history.score, net.history.train_loss
    np.testing.assert_array_equal(score[:2, :4], score[2:, :4])
    for later in (4, 5, 6):
        assert len(set(score[:, later])) == 4
    assert score[0, 1] != score[1, 1]
    # Only what was trained counts: four members for three epochs, and two for six.
    assert np.isfinite(loss).sum() == 2 * 6 + 2 * 3
    assert "best after epoch" in repr(net.history)
    assert "of 6" in repr(net.history)
    log_k, exact = net.members(small.fresh.x), small.problem.log_bayes_factor(small.fresh.x)
    assert np.all(np.std(log_k, axis=0) > 0)
    # As good as members that share nothing.
    alone = en.train(small.sims, recipe=replace(recipe, stems=None), **options)
    assert len(set(alone.history.score[:, 1])) == 4
    errors = [
        np.sqrt(np.mean(np.square(each.log_bayes_factor(small.fresh.x) - exact))) for each in (net, alone)
    ]
    assert errors[0] < 1.2 * errors[1]
    # The stems are the same members whether others branch off from them or not.
    two = en.train(small.sims, recipe=recipe, members=2, **options)
    np.testing.assert_array_equal(two.members(small.fresh.x), log_k[:2])


def test_stems_that_stop_early_are_copied() -> None:
    sims = draws(en.problems.mean_test(size=20), 600, seed=2)
    recipe = en.Recipe(epochs=200, batch=50, learning_rate=3e-3, weight_decay=0.0, patience=5, stems=2)
    net = en.train(sims, network="dense", recipe=recipe, learn_error=False, seed=1, progress=False)
    assert net.history.score.shape[1] < 100
    assert np.all(net.history.best_epoch > 0)
    log_k = net.members(sims.x)
    np.testing.assert_array_equal(log_k[:2], log_k[2:])
    assert np.abs(log_k[0] - log_k[1]).max() > 0.1


def test_what_has_not_begun_to_learn_stops_after_a_third() -> None:
    sims = draws(en.problems.mean_test(size=5), 2_000, seed=2)
    inputs = prepare(Draws.split(sims, 0.1, None, 1), Plan(en.networks.Dense(), en.losses.Logistic()))
    trainer = Trainer(1, en.Recipe(epochs=9, batch=100), 1, 2)
    recipe = trainer.sized(inputs)
    assert len(trainer.fit(inputs, recipe, least=0.0).history.seconds) == 3
    # A control: what scores better than that is trained to the end, and to the same weights.
    whole, again = trainer.fit(inputs, recipe), trainer.fit(inputs, recipe, least=0.68)
    assert len(again.history.seconds) == 9
    np.testing.assert_array_equal(whole.log_odds, again.log_odds)


def test_stems_are_chosen_where_training_takes_long() -> None:
    many, few = (en.Recipe().for_draws(n, operations=5e5) for n in (180_000, 5_000))
    assert many.stems == 2
    assert few.stems is None
    assert en.Recipe(epochs=6).for_draws(180_000, operations=5e5).stems is None
    assert en.Recipe.paper().for_draws(900_000).stems is None
    assert en.Recipe(stems=3).for_draws(180_000, operations=5e5).stems == 3
    with pytest.raises(ValueError, match=r"stems = 0; wanted a whole number, 1 or more"):
        en.Recipe(stems=0)


def test_a_network_of_ones_own(small: Case) -> None:
    def mine(x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        return eqx.nn.MLP(x.size, outputs, 16, 1, key=key)

    recipe = en.Recipe(epochs=5)
    net = en.train(
        small.sims, network=mine, members=2, recipe=recipe, learn_error=False, seed=1, progress=False
    )
    best = score(small.problem.log_bayes_factor(small.fresh.x), small.fresh.model)
    assert en.validate(net, small.fresh).score.gain > 0.8 * best.gain


@pytest.mark.parametrize("parts", [2, 5, 10])
def test_a_batch_in_parts_has_the_same_gradient(parts: int) -> None:
    rng = np.random.default_rng(1)
    x, label, weight = rng.normal(size=(20, 3)), np.arange(20) % 2, rng.uniform(1, 2, 20)
    batch = Chunk(x.astype(np.float32), None, label, weight.astype(np.float32))

    def objective(weights: Any, state: Any, batch: Chunk) -> tuple[jax.Array, Any]:
        return jnp.mean(batch.weight * jnp.square(batch.x @ weights - batch.label)), state

    slope = jax.value_and_grad(objective, has_aux=True)
    weights = jnp.asarray([0.5, -1.0, 2.0])
    whole, divided = (loop.in_parts(slope, n, weights, None, batch) for n in (1, parts))
    np.testing.assert_allclose(divided[0][0], whole[0][0], rtol=1e-5)
    np.testing.assert_allclose(divided[1], whole[1], rtol=1e-5)


def test_only_large_batches_are_divided() -> None:
    def parts(network: Any, shape: tuple[int, ...], batch: int, state: Any = None) -> int:
        x = np.zeros((2, batch, *shape), np.float32)
        chunk = Chunk(x, None, np.zeros((2, batch), int), np.ones((2, batch)))
        return loop.parts_of(network, chunk, 1, state)

    assert parts(en.networks.Dense(), (100,), 450) == 1
    assert parts(en.networks.DeepSet(), (20,), 450) == 1
    found = parts(en.networks.Image(), (12, 12, 1), 450)
    assert found > 1
    assert 450 % found == 0
    # What cannot be divided stays whole, and so does what batch normalisation averages over.
    assert parts(en.networks.Image(), (12, 12, 1), 449) == 1
    assert parts(en.networks.Image(), (12, 12, 1), 450, state=np.zeros(1)) == 1


def test_batch_normalisation_trains(normed: Case) -> None:
    check = en.validate(normed.net, normed.fresh)
    assert check.score.gain > 5 * check.score.gain_error
    # Running averages of each member are its own, and inference does not move them.
    states = [np.asarray(leaf) for leaf in jax.tree.leaves(normed.net.states)]
    assert all(len(state) == 2 for state in states)
    assert any(not np.array_equal(state[0], state[1]) for state in states)
    first = normed.net.log_bayes_factor(normed.fresh.x)
    np.testing.assert_array_equal(first, normed.net.log_bayes_factor(normed.fresh.x))


def test_wrong_number_of_outputs(small: Case) -> None:
    def mine(x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
        return eqx.nn.MLP(x.size, 3, 4, 1, key=key)

    with pytest.raises(ValueError, match=r"outputs of shape \(3,\) for one draw; wanted \(1,\)"):
        en.train(small.sims, network=mine, members=1, recipe=en.Recipe(epochs=1), progress=False)


def test_an_interrupt_while_draws_are_prepared(small: Case) -> None:
    before = set(threading.enumerate())
    calls = 0

    def augment(rng: np.random.Generator, x: Any) -> Any:
        nonlocal calls
        calls += 1
        # The moments take one pass over 54 minibatches or more: this is within training.
        if calls == 150:
            raise KeyboardInterrupt
        return x

    recipe = en.Recipe(epochs=10_000, batch=100)
    with pytest.raises(KeyboardInterrupt):
        en.train(small.sims, augment=augment, members=2, recipe=recipe, progress=False)
    # The chunks prepared ahead are few: training stopped at once, and its threads with it.
    assert calls < 1_000
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= before


def test_an_error_while_draws_are_prepared(small: Case) -> None:
    def augment(rng: np.random.Generator, x: Any) -> Any:
        raise ZeroDivisionError("in the user's function")

    with pytest.raises(ZeroDivisionError, match="in the user's function"):
        en.train(small.sims, augment=augment, members=1, recipe=en.Recipe(epochs=1), progress=False)


def test_no_progress_is_silence(small: Case, capfd: pytest.CaptureFixture[str]) -> None:
    en.train(small.sims, members=1, recipe=en.Recipe(epochs=3), baseline=False, progress=False)
    assert capfd.readouterr() == ("", "")


ENDLESS = """
import numpy as np
import evidencenet as en

rng = np.random.default_rng(1)
label = np.arange(4000) % 2
sims = en.Simulations(rng.normal(size=(4000, 3)) + label[:, None], label)
en.train(sims, members=2, recipe=en.Recipe(epochs=10**7, patience=10**7), seed=1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_ctrl_c_at_a_terminal() -> None:
    import pty

    keyboard, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    # Were the bar never shown, or the interrupt not answered, this would wait forever.
    guard = threading.Timer(120, process.kill)
    guard.start()
    try:
        shown = b""
        while b"held-out 0." not in shown:
            shown += os.read(keyboard, 4096)
        process.send_signal(signal.SIGINT)
        # Python loses a signal that comes while a destructor runs (docs/decisions.md), so a person would
        # press the keys again.
        again = threading.Timer(15, process.send_signal, [signal.SIGINT])
        again.start()
        # The end of the program closes the terminal, which Linux reports as an error.
        with contextlib.suppress(OSError):
            while new := os.read(keyboard, 4096):
                shown += new
        status = process.wait()
        again.cancel()
    finally:
        guard.cancel()
        process.kill()
        os.close(keyboard)
    assert status in (-signal.SIGINT, 128 + signal.SIGINT)
    assert b"training" in shown
    assert b"KeyboardInterrupt" in shown
    assert shown.rindex(SHOW_CURSOR) > shown.rindex(HIDE_CURSOR)
