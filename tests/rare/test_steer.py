"""Moves leave the law of the data as it is; simulators that cannot be steered are refused with a reason."""

import jax
import numpy as np
import pytest
from scipy import stats

from evidencenet.problems import zoo
from evidencenet.rare.steer import Steered, UnsteerableError, check_steerable, draw, moved
from evidencenet.simulation.model import Model


def level() -> Model:
    return Model(
        "level",
        prior=lambda rng, n: rng.gamma(2.0, size=n),
        simulate=lambda rng, mean: rng.poisson(mean[:, None], (len(mean), 5)),
    )


def single(rng: np.random.Generator) -> np.ndarray:
    """Draw by rejection, then a random number of further draws: a control flow that a batch cannot have."""
    while (start := rng.normal()) < 0:
        pass
    return start + np.array([sum(rng.exponential() for _ in range(rng.poisson(1.5)))])


def test_moves_leave_the_law_of_a_batch_as_it_is() -> None:
    rng, n = np.random.default_rng(1), 20_000
    chains = draw(level(), rng, n)
    for beta in (0.1, 0.5, 1.0):
        chains = moved(level(), rng, chains, np.full(n, beta))
    plain, _ = level().draw(np.random.default_rng(2), n)
    assert isinstance(chains.x, np.ndarray)
    assert isinstance(plain, np.ndarray)
    assert stats.ks_2samp(chains.x.sum(axis=1), plain.sum(axis=1)).pvalue > 1e-3


def test_small_moves_change_the_data_little() -> None:
    rng, n = np.random.default_rng(1), 2000
    model = Model("gamma", lambda rng, n: rng.gamma(3.0, size=(n, 4)))
    chains = draw(model, rng, n)
    near = moved(model, rng, chains, np.full(n, 0.01))
    far = moved(model, rng, chains, np.full(n, 0.9))
    assert np.std(near.x - chains.x) < 0.03  # type: ignore[operator]
    assert np.std(far.x - chains.x) > 1.0  # type: ignore[operator]


def test_moves_of_single_draws_leave_their_law_as_it_is() -> None:
    model = Model("single", single, kind="one")
    rng, n = np.random.default_rng(1), 3000
    chains = draw(model, rng, n)
    for beta in (0.3, 0.3, 0.8):
        chains = moved(model, rng, chains, np.full(n, beta))
    plain, _ = model.draw(np.random.default_rng(2), n)
    assert stats.ks_2samp(chains.x[:, 0], plain[:, 0]).pvalue > 1e-3  # type: ignore[index]
    again = moved(model, rng, chains, np.zeros(n))
    np.testing.assert_array_equal(again.x, chains.x)


def test_a_law_that_is_not_kept_is_noticed() -> None:
    """A move that is not the right one fails the test above: z + βξ widens the law."""
    rng, n = np.random.default_rng(1), 20_000
    chains = draw(level(), rng, n)
    for _ in range(3):
        wider = [z + 0.5 * rng.standard_normal(z.shape) for z in chains.normals]
        chains = moved(level(), rng, type(chains)(chains.x, chains.valid, wider, False), np.zeros(n))
    plain, _ = level().draw(np.random.default_rng(2), n)
    assert stats.ks_2samp(chains.x.sum(axis=1), plain.sum(axis=1)).pvalue < 1e-3  # type: ignore[union-attr]


def test_failed_draws_are_marked_and_the_others_kept() -> None:
    def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.normal(size=(n, 2))
        if np.any(x[:, 0] > 2.5):
            raise FloatingPointError("too large")
        return np.where(x < -2.5, np.nan, x)

    rng, n = np.random.default_rng(1), 500
    chains = draw(Model("failing", simulate), rng, n)
    z = chains.normals[0]
    np.testing.assert_array_equal(chains.valid, (z[:, 0] <= 2.5) & (z >= -2.5).all(axis=1))
    np.testing.assert_array_equal(chains.x[chains.valid], z[chains.valid])  # type: ignore[index]


def test_draws_along_another_axis_are_told_apart() -> None:
    check_steerable(Model("columns", lambda rng, n: np.cumsum(rng.normal(size=(7, n)), axis=0).T))


@pytest.mark.parametrize("name", zoo())
def test_the_worked_problems_can_be_steered_or_say_why_not(name: str) -> None:
    for model in zoo()[name]().models:
        if name.startswith("rastrigin") and model.name == "many modes":
            # It draws by rejection, for the rows that are left.
            with pytest.raises(UnsteerableError, match=r"rng\.\w+ drew .*kind=\"one\""):
                check_steerable(model)
        else:
            check_steerable(model)


def one_number(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal() + rng.normal(size=(n, 3))


def mixed_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    rng.uniform(size=n)
    x = rng.normal(size=(n, 3))
    return x - x.mean(axis=0)


def elsewhere(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 3)) + np.random.default_rng().normal(size=(n, 3))


def rejection(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.normal(size=n)
    while np.any(bad := x < 0):
        x[bad] = rng.normal(size=int(np.sum(bad)))
    return x


def by_place(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.linspace(0, 1, n)[:, None] + rng.normal(size=(n, 3))


def shuffled(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.permutation(rng.normal(size=(n, 3)))


def raw_bits(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.random.Generator(rng.bit_generator).normal(size=(n, 3))


@pytest.mark.parametrize(
    ("simulate", "reason"),
    [
        (one_number, r"rng\.normal drew a single number for 61 draws.*kind=\"one\""),
        (mixed_rows, r"rng\.normal of shape \(61, 3\) for one draw change the data of another"),
        (elsewhere, r"other data for the same random numbers.*`rng` that the simulator is given"),
        (rejection, r"rng\.normal drew an array of shape .* for 61 draws"),
        (by_place, r"depend on its place in the batch"),
        (shuffled, r"rng\.permutation drew"),
        (raw_bits, r"rng\.bit_generator cannot be steered"),
    ],
)
def test_what_cannot_be_steered_is_refused_with_the_call_and_what_to_do(
    simulate: object, reason: str
) -> None:
    with pytest.raises(UnsteerableError, match=reason) as caught:
        check_steerable(Model("bad", simulate))  # type: ignore[arg-type]
    assert str(caught.value).startswith("model 'bad'")


def test_jax_simulators_are_refused() -> None:
    model = Model("jax", lambda key: jax.random.normal(key, (3,)), kind="jax")
    with pytest.raises(UnsteerableError, match=r"JAX simulator.*Draw the numbers with NumPy"):
        check_steerable(model)


def test_single_draws_of_a_rejection_are_fine() -> None:
    check_steerable(Model("single", single, kind="one"))


def test_the_stand_in_prints() -> None:
    assert repr(Steered(np.random.default_rng(0), 5)) == "Steered(5 draws)"


def test_noise_of_observe_is_steered_too() -> None:
    model = Model(
        "observed",
        prior=lambda rng, n: rng.normal(size=n),
        simulate=lambda rng, mean: mean[:, None] * np.ones(3),
        observe=lambda rng, clean: clean + rng.normal(size=clean.shape),
    )
    check_steerable(model)
    rng = np.random.default_rng(1)
    chains = draw(model, rng, 2_000)
    assert [z.shape[1] for z in chains.normals] == [1, 3]
    near = moved(model, rng, chains, np.full(2_000, 0.01))
    # Each number is a sum of two normals, each moved by 0.01: the difference scatters by 0.014.
    assert abs(np.std(np.asarray(near.x) - np.asarray(chains.x)) / 0.01414 - 1) < 0.1
