"""Drawing: seeds, shares, workers, and above all the counting of failed draws."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
from scipy import stats

from evidencenet._common.progress import Progress
from evidencenet._common.warnings import InputWarning
from evidencenet.simulation.dataset import Simulations
from evidencenet.simulation.draw import simulate
from evidencenet.simulation.failures import SimulationError
from evidencenet.simulation.model import DrawError, Model

# Failed draws are the subject here; the warning about them has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore::evidencenet.FailedDrawsWarning")


def flat(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 2))


FLAT = Model("flat", flat)


def generator(*key: int, seed: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def nan_above_one(rng: np.random.Generator, theta: Any) -> Any:
    """A simulator that gives NaN for theta > 1 and theta itself otherwise."""
    return np.where(theta > 1, np.nan, theta)[:, None] * np.ones(2)


def raise_above_one(rng: np.random.Generator, theta: Any) -> Any:
    if np.any(theta > 1):
        raise FloatingPointError("theta is too large")
    return theta[:, None] * np.ones(2)


def one_above_one(rng: np.random.Generator, theta: Any) -> Any:
    if theta > 1:
        raise FloatingPointError("theta is too large")
    return theta * np.ones(2)


def normal(rng: np.random.Generator, n: int | None = None) -> Any:
    return rng.normal(size=n)


FAILING = {
    "nan": Model("failing", nan_above_one, prior=normal),
    "raise": Model("failing", raise_above_one, prior=normal),
    "one": Model("failing", one_above_one, prior=normal, kind="one"),
}


def within(sims: Simulations, k: int, truth: float, sigmas: float = 4) -> bool:
    """Whether model k's valid fraction agrees with the truth within its binomial error."""
    error = np.sqrt(truth * (1 - truth) / sims.drawn[k])
    return bool(abs(sims.valid_fraction[k] - truth) < sigmas * error)


# How many draws a call makes, up to which draw.
BLOCKS = ((100, 10), (10_000, 100), (1_000_000, 1_000), (np.inf, 10_000))


def in_blocks(draw: Callable[..., Any], model: int, n: int, seed: int) -> np.ndarray:
    """Make n draws as documented: 10 in a call, after 100 draws 100, after 10,000 1,000, then 10,000."""
    start, blocks = 0, []
    while start < n:
        size = next(size for end, size in BLOCKS if start < end)
        blocks.append(draw(generator(model, start, seed=seed), size))
        start += size
    return np.concatenate(blocks)[:n]


def test_blocks_are_seeded_as_documented() -> None:
    sims = simulate([FLAT, Model("b", flat)], 500, seed=7, progress=False)
    for m in range(2):
        np.testing.assert_array_equal(sims.of(m), in_blocks(flat, m, 250, seed=7))
    np.testing.assert_array_equal(sims.model, np.repeat([0, 1], 250))
    assert sims.names == ("flat", "b")
    assert sims.failed == (0, 0)
    long: Any = simulate([FLAT], 1_020_000, seed=7, progress=False)
    np.testing.assert_array_equal(long.x, in_blocks(flat, 0, 1_020_000, seed=7))
    assert not np.array_equal(long.x[100_000:101_000], in_blocks(flat, 1, 101_000, seed=7)[100_000:])


def test_one_draw_at_a_time_has_a_seed_for_each() -> None:
    one = Model("one", lambda rng: rng.normal(size=2), kind="one")
    sims = simulate([one], 30, seed=7, progress=False)
    np.testing.assert_array_equal(sims.x, [generator(0, i, seed=7).normal(size=2) for i in range(30)])


def test_a_model_may_choose_its_block() -> None:
    sizes = []

    def noted(rng: np.random.Generator, n: int) -> Any:
        sizes.append(n)
        return flat(rng, n)

    sims: Any = simulate([Model("a", noted, block=400)], 1000, seed=7, progress=False)
    assert sizes == [400, 400, 400]
    np.testing.assert_array_equal(sims.x[400:800], flat(generator(0, 400, seed=7), 400))
    with pytest.raises(ValueError, match="'a': kind 'one' makes one draw in a call; leave out block"):
        Model("a", lambda rng: 1.0, kind="one", block=10)
    with pytest.raises(ValueError, match="'a': block must be at least 1, got 0"):
        Model("a", flat, block=0)


@pytest.mark.parametrize("kind", ["batch", "one", "jax"])
def test_draws_depend_on_nothing_but_the_seed(kind: Any) -> None:
    import jax

    functions: dict[str, Any] = {
        "batch": flat,
        "one": lambda rng: rng.normal(size=2),
        "jax": lambda key: jax.random.normal(key, (2,)),
    }
    model = Model("a", functions[kind], kind=kind)
    whole: Any = simulate([model], 700, seed=5, progress=False)
    for options in ({"chunk": 1}, {"chunk": 350}, {"workers": 2}, {"workers": 3, "chunk": 40}):
        again: Any = simulate([model], 700, seed=5, progress=False, **options)  # type: ignore[call-overload]
        np.testing.assert_array_equal(again.x, whole.x)
    # A smaller number is the beginning of a larger one.
    for n in (1, 15, 333):
        np.testing.assert_array_equal(simulate([model], n, seed=5, progress=False).x, whole.x[:n])
    assert not np.any(np.asarray(simulate([model], 700, seed=6, progress=False).x) == whole.x)


def test_a_small_trial_makes_few_draws() -> None:
    made = []

    def noted(rng: np.random.Generator, n: int) -> Any:
        made.append(n)
        return flat(rng, n)

    simulate([Model("a", noted), Model("b", noted)], 20, progress=False)
    assert made == [10, 10]


def test_seeds_matter() -> None:
    draws = [simulate([FLAT], 100, seed=seed, progress=False).x for seed in (1, 1, 2)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.any(draws[0] == draws[2])


@pytest.mark.parametrize(
    ("n", "fractions", "counts"),
    [
        (10, None, (4, 3, 3)),
        (100, (0.29, 0.31, 0.4), (29, 31, 40)),
        (100, (1, 1, 2), (25, 25, 50)),
        (11, (1, 1, 8), (2, 1, 8)),
        (3, None, (1, 1, 1)),
    ],
)
def test_shares_add_up(n: int, fractions: Any, counts: tuple[int, ...]) -> None:
    models = [Model(name, flat) for name in "abc"]
    assert simulate(models, n, fractions=fractions, progress=False).counts == counts


@pytest.mark.parametrize("kind", FAILING)
def test_the_valid_fraction_is_right(kind: Any) -> None:
    n = 6000
    sims: Any = simulate([FLAT, FAILING[kind]], n, seed=2, chunk=500, keep_parameters=True, progress=False)
    truth = stats.norm.cdf(1)
    assert sims.counts == (n // 2, n // 2)
    assert sims.failed[0] == 0
    assert within(sims, 1, truth)
    # The check can fail: a fraction off by a tenth, or failures forgotten.
    assert not within(sims, 1, truth - 0.1)
    assert sims.valid_fraction[1] < 0.9
    # What is kept follows the truncated prior.
    x = sims.of(1)[:, 0]
    assert x.max() <= 1
    assert stats.kstest(x, lambda t: stats.norm.cdf(t) / truth).pvalue > 1e-4
    assert stats.kstest(x, "norm").pvalue < 1e-4
    assert sims.parameters is not None
    assert sims.parameters[0] is None
    np.testing.assert_array_equal(sims.parameters[1], x)


@pytest.mark.parametrize("chunk", [7, 64, None])
def test_drawn_is_exactly_the_draws_it_took(chunk: int | None) -> None:
    sims: Any = simulate([FAILING["nan"]], 300, seed=3, chunk=chunk, progress=False)
    thetas = in_blocks(normal, 0, 600, seed=3)
    kept = np.flatnonzero(thetas <= 1)[:300]
    assert sims.drawn == (kept[-1] + 1,)
    np.testing.assert_array_equal(sims.x[:, 0], thetas[kept])


def test_a_chunk_that_raises_is_done_again_with_the_same_parameters() -> None:
    # The parameters alone decide here, so the very same draws fail as if they were NaN.
    options: dict[str, Any] = {"seed": 4, "chunk": 50, "progress": False}
    raised = simulate([FAILING["raise"]], 400, **options)
    marked = simulate([FAILING["nan"]], 400, **options)
    np.testing.assert_array_equal(raised.x, marked.x)
    assert raised.failed == marked.failed


def test_rows_done_again_have_seeds_as_documented() -> None:
    def noisy(rng: np.random.Generator, theta: Any) -> Any:
        if len(theta) > 1 and theta.max() > 1:
            raise ValueError("too large somewhere")
        return rng.normal(size=(len(theta), 1)) if theta[0] <= 1 else np.full((1, 1), np.inf)

    sims: Any = simulate([Model("noisy", noisy, prior=normal)], 10, seed=5, chunk=10, progress=False)
    theta = normal(generator(0, 0, seed=5), 10)
    assert theta.max() > 1  # else the chunk would not have been done again
    rows = [generator(0, 0, row, seed=5).normal(size=1) for row in range(10)]
    good = [row for row, t in zip(rows, theta, strict=True) if t <= 1]
    np.testing.assert_array_equal(sims.x[: len(good)], good)


def test_a_prior_that_raises_counts_too() -> None:
    def prior(rng: np.random.Generator, n: int) -> Any:
        theta = rng.normal(size=n)
        if np.any(theta > 1):
            raise ArithmeticError("prior")
        return theta

    sims = simulate([Model("prior", lambda r, t: t, prior=prior)], 2000, seed=6, chunk=400, progress=False)
    assert within(sims, 0, stats.norm.cdf(1))


def test_a_failure_that_does_not_come_again_is_still_counted() -> None:
    calls = []

    def once(rng: np.random.Generator, n: int) -> Any:
        calls.append(n)
        if len(calls) == 1:
            raise OSError("disk was busy")
        return rng.normal(size=(n, 1))

    sims = simulate([Model("once", once)], 100, chunk=20, progress=False)
    assert sims.counts == (100,)
    assert sims.failed == (1,)


def test_the_bias_of_failures_by_chance_is_as_documented() -> None:
    probability, block = 0.375, 4

    def unlucky(rng: np.random.Generator, n: int) -> Any:
        if np.any(rng.random(n) < probability):
            raise ArithmeticError("bad luck")
        return rng.normal(size=(n, 1))

    model = Model("unlucky", unlucky, block=block)
    sims = simulate([model], 5000, seed=3, max_failed=0.9, progress=False)
    # A block without failure (probability q) counts 0, another as many as its repetition, and at least 1.
    q = (1 - probability) ** block
    expected = (1 - q) * (block * probability + q) / block
    assert within(sims, 0, 1 - expected)
    assert not within(sims, 0, 1 - probability)
    assert 0 < probability - expected < 0.17 / block


def test_one_early_failure_in_small_chunks_is_no_reason_to_stop() -> None:
    calls = []

    def first_fails(rng: np.random.Generator) -> Any:
        calls.append(1)
        return np.nan if len(calls) == 1 else 1.0

    assert simulate([Model("a", first_fails, kind="one")], 5, chunk=1, progress=False).failed == (1,)


@pytest.mark.parametrize("name", ["nan", "raise", "one"])
def test_workers_do_not_change_a_bit(name: str) -> None:
    models = [FLAT, FAILING[name]]
    options: dict[str, Any] = {"seed": 8, "chunk": 64, "keep_parameters": True, "progress": False}
    alone: Any = simulate(models, 1000, workers=1, **options)
    together: Any = simulate(models, 1000, workers=2, **options)
    np.testing.assert_array_equal(alone.x, together.x)
    assert alone.failed == together.failed
    np.testing.assert_array_equal(alone.parameters[1], together.parameters[1])


def test_workers_really_work_at_the_same_time() -> None:
    barrier = threading.Barrier(2, timeout=30)

    def meet(rng: np.random.Generator, n: int) -> Any:
        barrier.wait()  # breaks unless two chunks are being drawn at once
        return rng.normal(size=(n, 1))

    assert simulate([Model("meet", meet)], 40, chunk=10, workers=2, progress=False).failed == (0,)


def test_a_backend_chosen_by_the_user_is_used() -> None:
    threads = set()

    def note(rng: np.random.Generator, n: int) -> Any:
        threads.add(threading.current_thread())
        return rng.normal(size=(n, 2))

    with joblib.parallel_config(backend="sequential"):
        sims = simulate([Model("flat", note)], 40, chunk=10, workers=2, progress=False)
    assert threads == {threading.current_thread()}
    np.testing.assert_array_equal(sims.x, simulate([FLAT], 40, chunk=10, progress=False).x)


def test_too_many_failures_are_an_error_with_its_cause() -> None:
    half = Model("half", lambda rng, n: np.where(rng.random((n, 1)) < 0.8, np.inf, np.ones(2)))
    with pytest.raises(
        SimulationError, match=r"'half': \d+ of \d\d\d? draws failed \(\d\d%\), .*infinity in x\."
    ):
        simulate([FLAT, half], 2000, progress=False)
    keyed = Model("keyed", lambda rng, n: {"a": np.zeros(n), "b": np.full(n, np.nan)})
    with pytest.raises(
        SimulationError, match=r"(\d+) of \1 draws failed \(100%\).*NaN or infinity in x\['b'\]"
    ):
        simulate([keyed], 50, progress=False)
    assert simulate([half], 200, max_failed=0.9, progress=False).counts == (200,)


def test_too_many_means_beyond_doubt() -> None:
    def failing(fraction: float) -> Model:
        return Model(
            "a", lambda rng, n: np.where(rng.random((n, 1)) < fraction, np.nan, rng.normal(size=(n, 1)))
        )

    # Just as many as allowed: never stopped by chance.
    for seed in range(20):
        simulate([failing(0.3)], 1000, seed=seed, max_failed=0.3, progress=False)
    # A fraction of 0.4 is 5 standard errors off after 525 draws, one of 0.8 after 50.
    with pytest.raises(SimulationError, match=r"of \d\d\d draws failed \((3|4)\d%\)"):
        simulate([failing(0.4)], 2000, max_failed=0.3, chunk=10, progress=False)
    with pytest.raises(SimulationError, match=r"of 50 draws failed"):
        simulate([failing(0.8)], 2000, max_failed=0.3, chunk=10, progress=False)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["batch", "one"])
def test_a_model_that_always_raises_stops_after_fifty(kind: Any, workers: int) -> None:
    calls = []

    def broken(rng: np.random.Generator, *n: int) -> None:
        calls.append(n)
        raise KeyError("amplitude")

    with pytest.raises(SimulationError, match=r"50 of 50 draws failed .*KeyError: 'amplitude'") as caught:
        simulate([Model("broken", broken, kind=kind)], 100_000, workers=workers, progress=False)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.__traceback__ is not None
    # Blocks of 10 are tried at once and then draw by draw; workers are a few chunks ahead.
    assert len(calls) <= (55 if workers == 1 else 5_000)


def test_rare_success_is_not_mistaken_for_none_when_it_is_allowed() -> None:
    rare = Model("rare", lambda rng: 1.0 if rng.random() < 0.05 else np.nan, kind="one")
    # The first 50 of a chunk fail with a probability of 0.95^50 = 8%: some of these 100 chunks begin so.
    for seed in range(5):
        assert simulate([rare], 60, seed=seed, max_failed=0.99, progress=False).counts == (60,)


def test_mistakes_are_raised_at_once() -> None:
    calls = []

    def short(rng: np.random.Generator, n: int) -> Any:
        calls.append(n)
        return np.zeros((n - 1, 2))

    with pytest.raises(DrawError, match="simulate returned 9 rows where 10 were wanted"):
        simulate([FLAT, Model("short", short)], 100, progress=False)
    assert calls == [10]
    with pytest.raises(TypeError, match="dtype object"):
        simulate([Model("object", lambda rng, n: np.array([None] * n))], 10, workers=2, progress=False)
    no_batches = Model("slope", lambda rng, t: t * np.ones((len(t), 3)), prior=normal)
    with pytest.raises(DrawError, match="for 10 draws at once, but for none of them alone"):
        simulate([no_batches], 10, progress=False)
    with pytest.raises(MemoryError):
        simulate([Model("large", lambda rng, n: (_ for _ in ()).throw(MemoryError()))], 10, progress=False)


def test_models_must_agree() -> None:
    wide = Model("wide", lambda rng, n: np.zeros((n, 3)))
    with pytest.raises(DrawError, match=r"'wide' gives .*\(3,\) numbers.*, but model 'flat' gives .*\(2,\)"):
        simulate([FLAT, wide], 10, progress=False)
    keyed = Model("keyed", lambda rng, n: {"y": np.zeros((n, 2))})
    with pytest.raises(DrawError, match=r"'keyed' gives a dict of 'y'.* but model 'flat' gives an array"):
        simulate([FLAT, keyed], 10, progress=False)
    mask = Model("mask", lambda rng, n: {"y": np.zeros((n, 2), bool)})
    with pytest.raises(DrawError, match=r"booleans per draw, but model 'keyed' gives .*numbers"):
        simulate([keyed, mask], 10, progress=False)
    ragged = Model("ragged", lambda rng: np.zeros((2, rng.integers(1, 9))), kind="one")
    with pytest.raises(DrawError, match=r"'ragged' gives .* but it gave"):
        simulate([ragged], 10, progress=False)


def test_dicts_masks_and_the_finer_of_two_types() -> None:
    def keyed(dtype: Any) -> Callable[..., Any]:
        return lambda rng, n: {"y": rng.normal(size=(n, 2)).astype(dtype), "mask": rng.random(n) < 0.5}

    sims = simulate(
        [Model("a", keyed(np.float32)), Model("b", keyed(np.float64))], 20, chunk=4, progress=False
    )
    assert isinstance(sims.x, dict)
    assert sims.x["y"].dtype == np.float64
    assert sims.x["mask"].dtype == bool
    expected = keyed(np.float64)(generator(1, 0, seed=0), 4)
    np.testing.assert_array_equal(sims.x["y"][10:14], expected["y"])
    np.testing.assert_array_equal(sims.x["mask"][10:14, 0], expected["mask"])
    single = keyed(np.float32)(generator(0, 0, seed=0), 4)
    np.testing.assert_array_equal(sims.x["y"][:4], single["y"])
    only = simulate([Model("a", keyed(np.float32))], 20, progress=False)
    assert only.x["y"].dtype == np.float32


def test_jax_models_go_through_the_same_chunks() -> None:
    import jax

    model = Model("jax", lambda key: jax.random.normal(key, (2,)), kind="jax")
    one, two = (simulate([model], 1000, seed=9, workers=w, progress=False).x for w in (1, 2))
    assert isinstance(one, np.ndarray)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[500:], model.draw(generator(0, 500, seed=9), 500)[0])
    assert len(np.unique(one)) > 1990


def test_progress_counts_valid_draws(capsys: pytest.CaptureFixture[str]) -> None:
    simulate([FLAT, FAILING["nan"]], 1000)
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "simulating: 0 / 1,000"
    assert "simulating: done, 1,000 in" in err.splitlines()[-1]
    assert "model failing  failed " in err
    simulate([FLAT], 10, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"models": []}, ValueError, "models is empty"),
        ({"models": FLAT}, TypeError, "must be a list of Model"),
        ({"models": [flat]}, TypeError, "it holds a function. For functions give a dict"),
        (
            {"models": {"a": 3}},
            TypeError,
            r"models\['a'\] must be a Model or a simulator f\(rng, n\), got a int",
        ),
        ({"fractions": {"flat": 1}}, ValueError, "fractions has 'flat'; wanted flat, b"),
        ({"missing": "drop"}, ValueError, "missing must be 'mask' .* got 'drop'"),
        ({"models": [FLAT, FLAT]}, ValueError, "two models are named 'flat'"),
        ({"n": 1}, ValueError, "n=1 is less than the number of models, 2"),
        ({"n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"n": 1.5}, TypeError, "n must be a whole number, got 1.5"),
        ({"n": "100"}, TypeError, "n must be a whole number, got '100'"),
        ({"n": np.inf}, TypeError, "n must be a whole number, got inf"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number, got 1.5"),
        ({"chunk": 0}, ValueError, "chunk must be at least 1"),
        ({"workers": 0}, ValueError, "workers must be at least 1"),
        ({"max_failed": 1}, ValueError, "max_failed must be at least 0 and less than 1, got 1"),
        ({"fractions": [1]}, ValueError, r"fractions must be 2 positive numbers, one per model; got \[1\]"),
        ({"fractions": [1, 0]}, ValueError, "fractions must be 2 positive numbers"),
        ({"fractions": [0.99, 0.01], "n": 2}, ValueError, "model 'b' would get none of 2 draws"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[BaseException], message: str) -> None:
    given: dict[str, Any] = {"models": [FLAT, Model("b", flat)], "n": 100, "progress": False} | arguments
    with pytest.raises(error, match=message):
        simulate(**given)


def test_n_as_people_write_it() -> None:
    assert simulate([FLAT], 1e3, progress=False).counts == (1000,)
    assert simulate([FLAT], np.int64(50), progress=False).counts == (50,)  # type: ignore[call-overload]


def test_a_seed_that_is_drawn_is_told() -> None:
    with pytest.warns(InputWarning, match=r"seed=None: the seed \d+ was drawn\. Give seed=\d+") as caught:
        drawn = simulate([FLAT], 50, seed=None, progress=False)
    assert caught[0].filename == __file__
    seed = int(re.findall(r"\d+", str(caught[0].message))[0])
    np.testing.assert_array_equal(simulate([FLAT], 50, seed=seed, progress=False).x, drawn.x)


def slow(seconds: float, calls: list[Any] | None = None) -> Model:
    """A batch simulator that takes this long for each draw."""

    def draw(rng: np.random.Generator, n: int) -> Any:
        if calls is not None:
            calls.append((threading.current_thread(), time.monotonic()))
        time.sleep(seconds * n)
        return flat(rng, n)

    return Model("slow", draw)


def test_slow_draws_are_shared_by_workers() -> None:
    """A simulator of 0.02 s a draw ran on one worker of eight: one chunk a model."""
    calls: list[Any] = []
    began = time.monotonic()
    simulate([slow(0.02, calls)], 400, workers=8, progress=False)
    elapsed = time.monotonic() - began
    assert len({thread for thread, _ in calls}) >= 4
    # 8 s of work alone; the last three blocks of 100 draws take 2 s each.
    assert elapsed < 5


def test_progress_moves_while_draws_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress jumped 0, 50, 100%."""
    seen: list[int] = []
    monkeypatch.setattr(Progress, "update", lambda self, done, **fields: seen.append(done))
    monkeypatch.setattr("evidencenet.simulation.runs._CHUNK_SECONDS", 0.05)
    simulate([slow(0.004)], 200, progress=False)
    assert seen[-1] == 200
    # Chunks of 0.05 s of work, rounded up to whole blocks of 10 draws until 100, then of 100.
    assert len(seen) >= 6
    assert max(np.diff([0, *seen])) <= 110
    # Fast draws do not make more chunks than that: 1, 10, 100, ... blocks.
    seen.clear()
    simulate([FLAT], 10_000, progress=False)
    assert len(seen) < 20
