"""What the modules compute, number by number, against NumPy."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

from evidencenet.networks import modules
from evidencenet.networks.modules import (
    AutoregressionEncoder,
    CategoriesEncoder,
    ConvolutionEncoder,
    DenseNetwork,
    EvidenceHead,
    IrregularEncoder,
    Layers,
    Linear,
    LongPlacesEncoder,
    ModesEncoder,
    NeighboursEncoder,
    RecurrenceEncoder,
    RegressionEncoder,
    SetEncoder,
    ShapesEncoder,
    TransitionsEncoder,
    Waves,
    WindowsEncoder,
    _windows,
    sine_and_cosine,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 2) -> np.ndarray:
    return rng(seed).normal(size=shape).astype(np.float32)


def spectrum(x: np.ndarray) -> np.ndarray:
    return np.asarray(modules.spectrum(jnp.asarray(x)))


@eqx.filter_jit
def hidden(network: Any, x: Any) -> Any:
    """The last hidden layer, compiled as a whole, which is faster than step by step."""
    return network.hidden(x)


@eqx.filter_jit
def encoded(encoder: Any, x: Any) -> Any:
    """The features of one draw."""
    return encoder(x)


def identity(x: Any) -> Any:
    return x


def without(module: Any, name: str) -> Any:
    """A module one part of which passes on what it is given."""
    return eqx.tree_at(lambda whole: getattr(whole, name), module, identity, is_leaf=lambda x: x is None)


# --- What draws are taken apart into ---------------------------------------------------------------------


def test_numbers_in_a_row() -> None:
    x = {"a": normal(2, 3), "mask": np.array([True, False]), "z": normal(4)}
    found = modules.flatten(x)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.concatenate([x["a"].ravel(), [1, 0], x["z"]]))


def test_elements_side_by_side() -> None:
    x = {"a": normal(5, 2), "b": normal(5, seed=3), "mask": np.arange(5) < 2}
    values, mask = modules.elements(x)
    np.testing.assert_array_equal(values, np.concatenate([x["a"], x["b"][:, None]], axis=1))
    np.testing.assert_array_equal(mask, x["mask"])
    values, mask = modules.elements(normal(6))
    assert values.shape == (6, 1)
    assert mask is None


@pytest.mark.parametrize("shape", [(4, 3), (3, 5, 2)])
def test_entries_stand_beside_the_means_of_rows_and_columns(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    table = x.reshape(*shape[:2], -1)
    found = np.asarray(modules.entries(x)).reshape(*shape[:2], -1)
    channels = table.shape[2]
    for i in range(shape[0]):
        for j in range(shape[1]):
            wanted = np.concatenate([table[i, j], table[i].mean(axis=0), table[:, j].mean(axis=0)])
            np.testing.assert_allclose(found[i, j], wanted, rtol=1e-5, atol=1e-6)
    assert found.shape[2] == 3 * channels


@pytest.mark.parametrize("shape", [(16,), (15,), (12, 1), (12, 3), (6, 8, 1), (5, 6, 2)], ids=str)
def test_the_spectrum_is_numpys(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    channels = x if x.ndim > 1 else x[:, None]
    axes = tuple(range(channels.ndim - 1))
    places = int(np.prod(channels.shape[:-1]))
    power = np.abs(np.fft.rfftn(channels.astype(np.float64), axes=axes)) ** 2 / places
    wanted = np.concatenate([channels.mean(axis=axes), power.ravel()])
    found = spectrum(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    # A control: one place less is another spectrum.
    assert np.abs(found - spectrum(x * (np.arange(shape[-1]) > 0))).max() > 0.01


def test_the_spectrum_of_a_sine_is_one_mode() -> None:
    x = np.sin(2 * np.pi * 3 * np.arange(32) / 32)
    mean, *power = spectrum(x.astype(np.float32))
    # Half of the sum of squares, 16, is in the negative frequency, which a real series need not keep.
    np.testing.assert_allclose([mean, *power], 8.0 * (np.arange(18) == 4), atol=1e-5)


@pytest.mark.parametrize("shape", [(20,), (20, 2), (6, 8, 1)], ids=str)
def test_the_spectrum_knows_no_place(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    found = spectrum(x)
    for axis in range(max(1, len(shape) - 1)):
        np.testing.assert_allclose(spectrum(np.roll(x, 3, axis)), found, rtol=1e-4, atol=1e-5)
    assert np.abs(spectrum(rng().permutation(x)) - found).max() > 0.1
    # A change of sign changes the means alone, which come first.
    channels = shape[1] if len(shape) == 2 else 1
    other = spectrum(-x)
    np.testing.assert_allclose(other[:channels], -found[:channels], rtol=1e-6)
    np.testing.assert_allclose(other[channels:], found[channels:], rtol=1e-6)


# --- Modes -----------------------------------------------------------------------------------------------


def phases(places: tuple[int, ...], frequencies: list[np.ndarray]) -> np.ndarray:
    """The phase of every wave, in the order of the modes, at every place."""
    at = np.stack(np.meshgrid(*map(np.arange, places), indexing="ij"), axis=-1).reshape(-1, len(places))
    waves = np.stack(np.meshgrid(*frequencies, indexing="ij"), axis=-1).reshape(-1, len(places))
    return waves @ at.T


@pytest.mark.parametrize(("places", "channels"), [((9,), 1), ((8,), 3), ((5, 6), 2), ((3, 4, 4), 2)], ids=str)
def test_powers_of_modes_are_numpys(places: tuple[int, ...], channels: int) -> None:
    encoder = ModesEncoder(places, channels, 5, 2, rng())
    # Weights as they may be after training.
    shift = [normal(len(each), seed=3) for each in encoder.shift]
    mix, level = normal(*encoder.mix.shape, seed=4), normal(channels, seed=5)
    encoder = eqx.tree_at(lambda made: (made.shift, made.mix, made.level), encoder, (shift, mix, level))
    x = normal(*places, channels)
    grid = [
        2 * np.pi / (2 * n) * np.where(np.arange(2 * n) > n, np.arange(2 * n) - 2 * n, np.arange(2 * n))
        for n in places
    ]
    grid[-1] = grid[-1][: places[-1] + 1]
    learned = [each + 0.4 * 2 * np.pi / n * off for each, n, off in zip(grid, places, shift, strict=True)]
    rows = x.reshape(-1, channels).astype(np.float64)
    modes = np.exp(-1j * phases(places, learned)) @ (rows - level * rows.mean(axis=0)) / np.sqrt(len(rows))
    wanted = np.abs(modes @ (mix[0] + 1j * mix[1])) ** 2
    np.testing.assert_allclose(encoder.powers(jnp.asarray(x)), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(300, 2), (260, 9, 1)], ids=str)
def test_along_long_axes_modes_are_those_of_the_grid(shape: tuple[int, ...]) -> None:
    places, channels = shape[:-1], shape[-1]
    encoder = ModesEncoder(places, channels, 2 * channels, 2, rng())
    assert encoder.shift[0] is None
    x = normal(*shape)
    axes = tuple(range(len(places)))
    # Of an image, the short axis is no finer than the grid: the modes would be too many.
    wanted = np.abs(np.fft.rfftn(x - x.mean(axis=axes), axes=axes)) ** 2 / np.prod(places)
    found = np.asarray(encoder.powers(jnp.asarray(x)))
    # Single channels come first.
    np.testing.assert_allclose(found[:, :channels], wanted.reshape(-1, channels), rtol=1e-3, atol=1e-3)


def test_a_wave_may_be_any_mode() -> None:
    encoder = ModesEncoder((6, 5), 2, 6, 3, rng())
    bias, weight = normal(encoder.bias.size, seed=3), 0.2 * normal(*encoder.exponent.shape, seed=4)
    encoder = eqx.tree_at(lambda made: (made.bias, made.exponent), encoder, (bias, weight))
    x = normal(6, 5, 2)
    power = np.asarray(encoder.powers(jnp.asarray(x)), np.float64)
    anywhere = np.log(np.mean(np.exp(power @ weight + 10 * bias.reshape(len(power), -1)), axis=0))
    sums = encoder.pattern.T @ (power - 1)
    level = np.sqrt(30) * x.mean(axis=(0, 1))
    found = encoded(encoder, x)
    wanted = np.concatenate([anywhere, sums.ravel(), level, level**2])
    np.testing.assert_allclose(found.exact, wanted, rtol=1e-3, atol=1e-3)


def test_a_wave_that_moves_adds_up_in_one_combination() -> None:
    encoder = ModesEncoder((12,), 4, 12, 2, rng())
    # Three cycles, which move on by a quarter of a cycle from frame to frame: to the right, or to the left.
    phase = 2 * np.pi * 3 * np.arange(12)[:, None] / 12
    step = np.pi / 2 * np.arange(4)
    right, left = (np.asarray(encoder.powers(jnp.cos(phase + sign * step))) for sign in (-1, 1))
    alone, together = right[:, :4], right[:, 4:]
    assert together.max() > 3.9 * alone.max()
    mode, best = np.unravel_index(together.argmax(), together.shape)
    assert mode == 6
    # The other direction is another combination, though every channel has the same power.
    assert left[6, 4:].argmax() != best
    np.testing.assert_allclose(left[:, :4], alone, atol=1e-3)


# --- Graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 5), (4, 4, 2)], ids=str)
def test_pairs_of_nodes_and_nodes(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    table = x.reshape(*shape[:2], -1).astype(np.float64)
    number = len(table)
    others = [np.delete(np.arange(number), i) for i in range(number)]
    sent = [table[i, others[i]].mean(axis=0) for i in range(number)]
    received = [table[others[i], i].mean(axis=0) for i in range(number)]
    mutual = [(table[i, others[i]] * table[others[i], i]).mean(axis=0) for i in range(number)]
    either = (table + table.swapaxes(0, 1)) / 2
    pairs = []
    for i, j in itertools.permutations(range(number), 2):
        common = sum(either[i, k] * either[k, j] for k in range(number) if k not in (i, j))
        nodes = [sent[i], received[i], sent[j], received[j]]
        pairs.append(np.concatenate([table[i, j], table[j, i], common / np.sqrt(number), *nodes]))
    nodes = [np.concatenate([sent[i], received[i], mutual[i], table[i, i]]) for i in range(number)]
    for found, wanted in zip(modules.links(x), (pairs, nodes), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# --- Layers ----------------------------------------------------------------------------------------------


def test_the_activation() -> None:
    x = np.array([-1e3, -3.0, -0.5, 0.0, 0.5, 3.0, 1e3])
    wanted = 0.5 * x * (1 + x / np.sqrt(1 + x**2))
    np.testing.assert_allclose(modules.act(jnp.asarray(x, jnp.float32)), wanted, rtol=1e-4, atol=3e-4)
    slope = jax.vmap(jax.grad(modules.act))(jnp.asarray([-1e6, 0.0, 1e6]))
    np.testing.assert_allclose(slope, [0, 0.5, 1], atol=1e-6)


def test_layers_add_to_their_input() -> None:
    module = Layers((3, 4, 4), rng())
    first, second = module.layers
    x = normal(7, 3)
    h = modules.act(x @ first.weight + first.bias)
    wanted = h + modules.act(h @ second.weight + second.bias)
    np.testing.assert_allclose(module(jnp.asarray(x)), wanted, rtol=1e-5, atol=1e-6)


def test_waves_are_sines_and_cosines() -> None:
    waves = Waves(2, 4)
    # Periods from 2π/0.5 to 2π/20, in a geometric series, the same for all channels.
    np.testing.assert_allclose(
        waves.frequency, np.tile([0.5, 0.5 * 40 ** (1 / 3), 20 / 40 ** (1 / 3), 20], 2), rtol=1e-6
    )
    x = normal(5, 2)
    phase = (x[:, :, None] * waves.frequency.reshape(2, 4)).reshape(5, 8)
    wanted = np.concatenate([x, np.sin(phase), np.cos(phase)], axis=1)
    np.testing.assert_allclose(waves(jnp.asarray(x)), wanted, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_windows_are_numpys_convolution(size: int) -> None:
    x, kernel = rng(4).normal(size=(17, 2)), rng(5).normal(size=(size, 2))
    with jax.enable_x64(True):
        found = np.asarray(_windows(jnp.asarray(x), (size,), 1) @ kernel.reshape(-1))
    # Networks do not turn the kernel round, and an even one reaches one place farther back.
    before = size // 2
    padded = np.pad(x, ((before, size - 1 - before), (0, 0)))
    wanted = sum(np.convolve(padded[:, c], kernel[::-1, c], mode="valid") for c in range(2))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("window", [(3,), (5,), (3, 3), (5, 2)], ids=str)
def test_windows_are_xlas_convolution(window: tuple[int, ...], step: int) -> None:
    axes, channels, outputs = len(window), 3, 4
    x = normal(*(13, 10)[:axes], channels)
    # The last axis is the slowest of the neighbours.
    weight = normal(*window[::-1], channels, outputs, seed=3)
    found = np.asarray(_windows(jnp.asarray(x), window, step) @ weight.reshape(-1, outputs))
    kernel = weight.transpose(*range(axes - 1, -1, -1), axes, axes + 1)
    letters = "HW"[:axes]
    wanted = jax.lax.conv_general_dilated(
        jnp.asarray(x[None]),
        jnp.asarray(kernel),
        (step,) * axes,
        [(size // 2, size - 1 - size // 2) for size in window],
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
    )[0]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# --- What networks know of a draw ------------------------------------------------------------------------


def test_what_a_set_network_sees_of_each_element() -> None:
    x = normal(5, 2)
    network = SetEncoder(2, 6, waves=3, table=False, rng=rng())
    assert network.waves is not None
    centred = x - x.mean(axis=0)
    both = np.concatenate([x, centred], axis=1)
    products = np.stack([centred[:, 0] ** 2, centred[:, 0] * centred[:, 1], centred[:, 1] ** 2], axis=1)
    wanted = np.concatenate([np.asarray(network.waves(jnp.asarray(both))), products], axis=1)
    assert wanted.shape[1] == len(network.element.layers[0].weight)
    # Without its network of each element, only the means over the elements are left.
    found = np.asarray(encoded(without(network, "element"), x).smooth)
    np.testing.assert_allclose(found[: wanted.shape[1]], wanted.mean(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [0, 1, 3, 6])
def test_what_a_set_network_sees_of_all_elements(number: int) -> None:
    x = {"mask": np.arange(6) < number, "x": normal(6, 2)}
    network = SetEncoder(2, 4, waves=0, table=False, rng=rng())
    found = np.asarray(encoded(network, x).smooth)
    mean, sums, share, centre, spread = np.split(found, [4, 8, 9, 11])
    there = x["x"][: max(number, 1)] if number else np.zeros((1, 2), np.float32)
    np.testing.assert_allclose(share, [number / 6], rtol=1e-6)
    np.testing.assert_allclose(sums, mean * number / 6, rtol=1e-5)
    np.testing.assert_allclose(centre, there.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spread, 0.5 * np.log(there.var(axis=0) + 1e-3), rtol=1e-4, atol=1e-5)


def moments(network: Any, x: Any, channels: int) -> np.ndarray:
    """Products by lag of values, and of these less their mean; then mean and spread: (lags + 1, 2, C)."""
    # Last comes what was found at any place.
    found = np.asarray(encoded(network, x).smooth)[: -modules._FILTERS]
    return found[-2 * (network.lags + 1) * channels :].reshape(network.lags + 1, 2, channels)


def correlated(x: np.ndarray, lags: int) -> np.ndarray:
    # All of NumPy's products are in its middle and after.
    return np.correlate(x, x, mode="full")[len(x) - 1 :][:lags] / len(x)


@pytest.mark.parametrize(("length", "channels", "lags"), [(50, 1, 9), (20, 3, 9), (4, 2, 4)])
def test_lag_products_are_numpys(length: int, channels: int, lags: int) -> None:
    x = normal(length, channels)
    network = ConvolutionEncoder((length,), channels, 4, kernel=3, depth=2, parts=2, rng=rng())
    assert network.lags == lags
    found = moments(network, x, channels)
    for c in range(channels):
        np.testing.assert_allclose(found[:-1, 0, c], correlated(x[:, c], lags), rtol=1e-4, atol=1e-5)
        centred = x[:, c] - x[:, c].mean()
        np.testing.assert_allclose(found[:-1, 1, c], correlated(centred, lags), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[-1, 0], x.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[-1, 1], 0.5 * np.log(x.var(axis=0) + 1e-3), rtol=1e-3)


def test_lag_products_of_what_is_there() -> None:
    x = {"mask": np.arange(12) < 8, "x": normal(12)}
    network = ConvolutionEncoder((12,), 1, 4, kernel=3, depth=1, parts=0, rng=rng())
    short = x["x"][:8].astype(np.float64)
    found = moments(network, x, 1)
    for i, values in enumerate((short, short - short.mean())):
        wanted = np.append(correlated(values, 9), 0)[:9]
        np.testing.assert_allclose(found[:-1, i, 0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[-1, :, 0], [short.mean(), 0.5 * np.log(short.var() + 1e-3)], rtol=1e-3)
    # A control: where the mask is turned round, others are there.
    other = {**x, "mask": ~x["mask"]}
    assert np.abs(moments(network, other, 1)[0, 0, 0] - found[0, 0, 0]) > 0.01


def test_what_may_be_at_any_place() -> None:
    """The largest of the averages counts odds: it is the logarithm of their mean over all places."""
    x, width = normal(10), 4
    network = ConvolutionEncoder((10,), 1, width, kernel=3, depth=1, parts=0, rng=rng())
    mean, square, odds = np.asarray(encoded(network, x).smooth)[: 3 * width].reshape(3, width)
    assert np.all(odds > mean)
    # To third order in what is small: log E[exp h] = E[h] + Var[h]/2.
    np.testing.assert_allclose(odds - mean, (square - mean**2) / 2, rtol=0.5)
    padded = {"mask": np.arange(14) < 10, "x": np.append(x, np.full(4, 7.0, np.float32))}
    longer = ConvolutionEncoder((14,), 1, width, kernel=3, depth=1, parts=0, rng=rng())
    again = np.asarray(encoded(longer, padded).smooth)[: 3 * width]
    np.testing.assert_allclose(again, np.concatenate([mean, square, odds]), rtol=1e-4, atol=1e-6)


def test_images_have_no_lags() -> None:
    assert ConvolutionEncoder((8, 8), 1, 4, kernel=3, depth=1, parts=0, rng=rng()).lags == 0


def test_the_last_layer_is_linear_and_small() -> None:
    x = normal(6)
    network = DenseNetwork(6, 9, 5, 3, norm=False, waves=2, rng=rng())
    wanted = 0.1 * (np.asarray(hidden(network, x)) @ network.layers[5].weight + network.layers[5].bias)
    np.testing.assert_allclose(eqx.filter_jit(network)(x), wanted, rtol=1e-5)
    assert isinstance(network.layers[0], Linear)
    assert network.layers[0].weight.shape == (6 * 5, 9)


# --- Sines and cosines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [0.1, 3.0, 100.0, 3000.0])
def test_sine_and_cosine_are_numpys(largest: float) -> None:
    phase = np.linspace(-largest, largest, 10_001).astype(np.float32)
    sine, cosine = sine_and_cosine(jnp.asarray(phase))
    # Single precision of the phase itself is 6e-8 of it, and of the turns likewise.
    np.testing.assert_allclose(sine, np.sin(phase.astype(float)), atol=1e-5 + 3e-7 * largest)
    np.testing.assert_allclose(cosine, np.cos(phase.astype(float)), atol=1e-5 + 3e-7 * largest)


def test_slopes_of_sine_and_cosine_are_each_other() -> None:
    phase = jnp.linspace(-9, 9, 1001)
    slopes = [jax.vmap(jax.grad(lambda x, i=i: sine_and_cosine(x)[i]))(phase) for i in range(2)]
    np.testing.assert_allclose(slopes[0], np.cos(phase), atol=1e-5)
    np.testing.assert_allclose(slopes[1], -np.sin(phase), atol=1e-5)


def test_far_out_sine_and_cosine_stay_bounded() -> None:
    found = np.asarray(sine_and_cosine(jnp.asarray([1e7, -3e9, 1e30], dtype=jnp.float32)))
    assert np.all(np.abs(found) <= 1 + 1e-5)


# --- Evidence heads --------------------------------------------------------------------------------------


def test_an_evidence_head_is_a_sum_of_exponentials() -> None:
    head = EvidenceHead(3, 1, 4, rng())
    assert float(head(jnp.asarray(normal(3)))[0]) == 0  # all models begin alike
    weight, bias, x = normal(3, 8, seed=4), normal(8, seed=5), normal(3, seed=6)
    head = eqx.tree_at(lambda h: (h.weight, h.bias), head, (weight, bias))
    exponents = (x @ weight + bias).reshape(2, 4)
    wanted = np.log(np.exp(exponents).sum(axis=1))
    np.testing.assert_allclose(head(jnp.asarray(x)), [wanted[1] - wanted[0]], rtol=1e-5)
    assert EvidenceHead(3, 5, 4, rng())(jnp.asarray(x)).shape == (5,)


@pytest.mark.parametrize(("length", "channels"), [(2, 1), (50, 1), (128, 2), (129, 1), (300, 2)])
def test_recurrences_are_a_loop(length: int, channels: int) -> None:
    x = normal(length, channels)
    encoder = RecurrenceEncoder(channels, 5, 3, rng())
    powers = np.asarray(encoder._powers(2), np.float64)[:, :, 1]
    pole, state, wanted = powers[0] + 1j * powers[1], np.zeros((channels, 5), complex), []
    mix = encoder.mix.reshape(channels, 2, 5, 3)
    for row in x:
        state = pole * state + row[:, None]
        wanted.append(np.einsum("crp,crpm->m", np.stack([state.real, state.imag], axis=1), mix))
    found = np.asarray(eqx.filter_jit(encoder._recurrences)(jnp.asarray(x)))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_recurrences_run_back_to_the_first_value() -> None:
    x, encoder = normal(40, 2), RecurrenceEncoder(2, 5, 3, rng())
    backwards = encoder._recurrences(jnp.asarray(x[::-1].copy()))
    np.testing.assert_allclose(encoder._from_start(jnp.asarray(x)), backwards[-1], rtol=1e-3, atol=1e-4)
    # Its products are among the features: a network without them cannot tell a moving average from others.
    start = np.concatenate([x[0], np.asarray(backwards[-1])])
    wanted = np.outer(start, start)[np.triu_indices(5)] / np.sqrt(40)
    exact = np.asarray(encoded(encoder, x).exact)
    found = [np.abs(exact - value).min() for value in wanted]
    assert max(found) < 1e-3
    assert np.abs(exact - 2 * np.abs(wanted).max()).min() > 1e-2


@pytest.mark.parametrize("places", [(9,), (40,), (8, 12), (30, 6)])
def test_a_shape_is_looked_for_at_every_place(places: tuple[int, ...]) -> None:
    encoder = modules.PlacesEncoder(len(places), 3, rng())
    there = np.ones((*places, 1), np.float32)
    there[-1] = 0
    x = np.concatenate([normal(*places, 2) * there, there], axis=-1)
    h = x.astype(np.float64)
    for axis, layer in enumerate(encoder.filters):
        weight = layer.weight.reshape(7, -1, 8)
        padded = np.pad(h, [(3, 3) if i == axis else (0, 0) for i in range(h.ndim)])
        shifted = [np.take(padded, np.arange(places[axis]) + i, axis=axis) for i in range(7)]
        h = sum(part @ weight[i] for i, part in enumerate(shifted))
    e = np.concatenate([h, h**2], axis=-1) @ encoder.exponent.weight
    wanted = np.log(np.mean(np.exp(e[there[..., 0] > 0]), axis=0))
    np.testing.assert_allclose(eqx.filter_jit(encoder)(jnp.asarray(x)), wanted, rtol=1e-4, atol=1e-4)


def test_elimination_solves_and_has_the_right_slope() -> None:
    phi = normal(3, 2, 20, 6).astype(np.float64)
    a, b = np.einsum("brni,brnj->brij", phi, phi) + np.eye(6), normal(3, 2, 6).astype(np.float64)
    inverse = np.linalg.inv(a)
    solution = np.einsum("brij,brj->bri", inverse, b)
    log_volume = np.linalg.slogdet(a)[1]

    def both(a: Any, b: Any) -> Any:
        return jax.vmap(jax.vmap(modules.eliminated))(a, b)

    given = jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)
    found = both(*given)
    np.testing.assert_allclose(found[0], np.sum(b * solution, axis=-1), rtol=1e-4)
    np.testing.assert_allclose(found[1], log_volume, rtol=1e-5)
    of_a, of_b = jax.grad(lambda a, b: jnp.sum(both(a, b)[0] + 3 * both(a, b)[1]), argnums=(0, 1))(*given)
    outer = solution[..., :, None] * solution[..., None, :]
    np.testing.assert_allclose(of_a, 3 * inverse - outer, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(of_b, 2 * solution, rtol=1e-3, atol=1e-5)


def test_the_gamma_function() -> None:
    x = np.concatenate([np.arange(0.5, 30, 0.25), [100.0, 5_000.0]])
    np.testing.assert_allclose(
        modules._log_gamma(jnp.asarray(x, jnp.float32)), gammaln(x), rtol=1e-6, atol=2e-6
    )


def test_pairs_of_letters_are_counted() -> None:
    letters = np.array([0, 1, 1, 2, 0, 1, 2, 2, 0, 1])
    hot = np.eye(3, dtype=np.float32)[letters]
    exact = np.asarray(encoded(CategoriesEncoder(1), hot).exact)
    counts = np.bincount(letters)
    np.testing.assert_allclose(exact[:3], np.log1p(counts), rtol=1e-5)
    pairs = np.zeros((3, 3))
    for first, second in itertools.pairwise(letters):
        pairs[first, second] += 1
    share = (pairs.sum(axis=0) + 1 / 3) / (pairs.sum() + 1)
    expected = pairs.sum(axis=1, keepdims=True) * share
    # After logarithms and differences of three counts, and their evidence for two concentrations.
    np.testing.assert_allclose(
        exact[8:17], ((pairs - expected) / np.sqrt(expected + 1)).ravel(), rtol=1e-4, atol=1e-5
    )
    # The evidence of counts is that of Pólya's urn, drawn from one letter at a time.
    urn, seen = 0.0, np.zeros(3)
    for letter in letters:
        urn += np.log((seen[letter] + 2.0) / (seen.sum() + 6.0))
        seen[letter] += 1
    assert float(modules.log_evidence_of_counts(jnp.asarray(counts, jnp.float32), 2.0)) == pytest.approx(
        urn, abs=1e-4
    )


def test_sines_are_fitted_to_irregular_values() -> None:
    time, y = np.sort(rng(7).uniform(-1.7, 1.7, 30)), rng(8).normal(size=30)
    there = np.arange(30) < 22
    x = {"mask": there, "x": np.stack([time, y], axis=1).astype(np.float32)}
    encoder = IrregularEncoder(2, 30, 4, 5, rng())
    found = np.asarray(encoded(encoder, x).exact)[:4]
    for wanted_at, frequency in zip(found, encoder.frequency, strict=True):
        design = np.stack([np.sin(frequency * time), np.cos(frequency * time)], axis=1)[there]
        # The density of y with normal amplitudes of unit variance, relative to noise alone.
        covariance = np.eye(22) + design @ design.T
        quadratic = y[there] @ (np.eye(22) - np.linalg.inv(covariance)) @ y[there]
        wanted = 0.5 * quadratic - 0.5 * np.linalg.slogdet(covariance)[1]
        assert wanted_at == pytest.approx(wanted, abs=1e-3)


def test_neighbours_at_irregular_times_are_seen_in_pairs() -> None:
    time = np.sort(rng(7).uniform(-1.7, 1.7, 12))
    x = np.stack([time, rng(8).normal(size=12)], axis=1).astype(np.float32)
    there = np.arange(12) < 9
    encoder = IrregularEncoder(2, 12, 4, 5, rng())
    pairs: Any = eqx.filter_jit(encoder._of_pairs)
    found = pairs(x, there).smooth
    # Nine elements are eight pairs, and what stands behind them means nothing.
    changed = x.copy()
    changed[9:] = 1e3
    np.testing.assert_allclose(pairs(changed, there).smooth, found, rtol=1e-5)
    steps = np.diff(time)[:8] * 12 / np.sqrt(12)
    width = 2 * 5
    share, means = np.asarray(found)[2 * width], np.asarray(found)[2 * width + 1 : 2 * width + 6]
    y = x[:9, 1]
    wanted = [np.log1p(steps), np.exp(-steps), y[:-1], y[1:], y[:-1] * y[1:]]
    assert share == pytest.approx(8 / 11)
    np.testing.assert_allclose(means, [part.mean() for part in wanted], rtol=1e-4, atol=1e-5)
    # A control: values that are exchanged have other neighbours.
    x[[2, 6], 1] = x[[6, 2], 1]
    assert np.abs(np.asarray(pairs(x, there).smooth) - np.asarray(found)).max() > 1e-3


def test_windows_sum_over_elements_nearby() -> None:
    """An irregular series as sums over windows: each element belongs to its two nearest windows."""
    time, y = rng(7).uniform(-2.5, 2.5, 15), rng(8).normal(size=15)
    there = np.arange(15) < 11
    x = {"mask": there, "x": np.stack([time, y], axis=1).astype(np.float32)}
    encoder = WindowsEncoder(2, 9, 4, 6, 3, rng())
    shares = np.asarray(encoder._tents(jnp.asarray(time, jnp.float32)))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    centre = np.linspace(-np.sqrt(3), np.sqrt(3), 9)
    # Tents keep the mean of what lies inside, and what lies outside is in the last window.
    np.testing.assert_allclose(shares @ centre, np.clip(time, centre[0], centre[-1]), atol=1e-5)
    assert (shares > 0).sum(axis=1).max() <= 2
    # The order of the elements means nothing, nor what stands behind the mask.
    found = encoded(encoder, x)
    order = rng(9).permutation(15)
    changed = {"mask": there[order], "x": np.where(there[:, None], x["x"], 1e3)[order]}
    for one, other in zip(found, encoded(encoder, changed), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
    # A control: the same values at other times are another series.
    moved = {"mask": there, "x": np.stack([time[::-1], y], axis=1).astype(np.float32)}
    assert np.abs(np.asarray(encoded(encoder, moved).exact) - np.asarray(found.exact)).max() > 1e-2


def test_images_are_averaged_over_parts_too() -> None:
    x = normal(6, 6, 1)
    places = [(slice(i, i + 2), slice(j, j + 2)) for i in (0, 2, 4) for j in (0, 2, 4)]
    encoder = ConvolutionEncoder((6, 6), 1, 4, kernel=1, depth=1, parts=3, rng=rng())
    found = np.asarray(encoded(encoder, x).smooth)
    h = np.asarray(modules.act(encoder.layers[0](jnp.concatenate([x, np.ones_like(x)], axis=2))))
    wanted = np.concatenate([h[place].mean(axis=(0, 1)) for place in places])
    parts = found[: -modules._FILTERS][-len(wanted) :]
    np.testing.assert_allclose(parts, wanted, rtol=1e-4, atol=1e-6)
    # A control: parts tell where something is, and averages over all places do not.
    moved = np.roll(x, 2, axis=0)
    again = np.asarray(encoded(encoder, moved).smooth)
    np.testing.assert_allclose(again[:12], found[:12], rtol=1e-4, atol=1e-6)
    assert np.abs(again - found).max() > 1e-2


def test_long_series_are_averaged_before_the_convolutions() -> None:
    x = normal(1_300, 1)
    encoder = ConvolutionEncoder((1_300,), 1, 4, kernel=1, depth=1, parts=0, rng=rng())
    assert encoder.coarse == 3
    found = np.asarray(encoded(encoder, x).smooth)
    both = np.concatenate([x, x - x.mean(axis=0)], axis=1)
    padded = np.concatenate([both, np.zeros((2, 2))]).reshape(434, 3, 2).sum(axis=1) / np.sqrt(3)
    inside = np.r_[np.ones(433), 1 / 3]
    h = np.asarray(
        modules.act(encoder.layers[0](jnp.asarray(np.column_stack([padded, inside]), jnp.float32)))
    )
    wanted = (h * inside[:, None]).sum(axis=0) / inside.sum()
    np.testing.assert_allclose(found[:4], wanted, rtol=1e-3, atol=1e-5)
    # Products of neighbours are those of all places.
    assert found[12 + 2] == pytest.approx(np.sum(x[1:] * x[:-1]) / 1_300, abs=1e-5)


def log_evidences(y: np.ndarray, design: np.ndarray, floor: float) -> tuple[float, float]:
    """Log density of y relative to noise alone, of known and of unknown variance, by a dense covariance."""
    covariance = np.eye(len(y)) + design @ design.T
    volume, left = 0.5 * np.linalg.slogdet(covariance)[1], y @ np.linalg.solve(covariance, y)
    unknown = 0.5 * len(y) * (np.log(floor + y @ y) - np.log(floor + left))
    return 0.5 * (y @ y - left) - volume, unknown - volume


def test_columns_are_explained_by_the_others() -> None:
    places, marks = rng(7).uniform(-1.7, 1.7, (30, 2)), rng(8).normal(size=30)
    there = np.arange(30) < 22
    values = np.column_stack([places, marks]).astype(np.float32)
    x = {"mask": there, "x": values}
    encoder = RegressionEncoder(3, 1, 4, 5, rng())
    # Learned numbers begin at zero, where mistakes would not show.
    encoder = eqx.tree_at(
        lambda e: (e.mixing, e.weight),
        encoder,
        (0.2 * normal(*encoder.mixing.shape), 0.3 * normal(*encoder.weight.shape)),
    )
    found = np.asarray(encoded(encoder, x).exact)
    weight = np.exp(places @ encoder.weight[0])
    y = (marks * weight)[there]
    phase, (u, v) = places @ encoder.frequency[0], places.T
    one = np.ones(30)
    waves = np.column_stack([one, places, np.sin(phase), np.cos(phase)]) * np.exp(-1.0)
    powers = np.column_stack([u * u - 1, u * v, v * v - 1, one, places])
    mixed = (np.eye(6) + encoder.mixing[0]) * np.exp(encoder.amplitudes[0])[:, None]
    designs = [basis * weight[:, None] for basis in (waves, *(powers @ m for m in mixed))]
    wanted = np.array([log_evidences(y, design[there], np.exp(1.0)) for design in designs])
    known, unknown = (np.r_[e[:2], np.diff(e[1:])] for e in wanted.T)
    np.testing.assert_allclose(found[:5], known, atol=2e-3)
    np.testing.assert_allclose(found[5:10], unknown, atol=2e-3)
    # Neither the order of the elements matters, nor what stands where there is none.
    order = rng(9).permutation(30)
    again = encoded(encoder, {"mask": there[order], "x": values[order]})
    np.testing.assert_allclose(np.asarray(again.exact), found, atol=2e-3)
    values[22:] = 1e3
    np.testing.assert_allclose(np.asarray(encoded(encoder, x).exact), found, atol=2e-3)
    # No observation is too far out.
    values[:22] *= 1e5
    assert np.isfinite(np.asarray(encoded(encoder, x).smooth)).all()


def test_hypotheses_begin_with_different_functions() -> None:
    amplitudes = RegressionEncoder(4, 2, 1, 2, rng()).amplitudes
    assert amplitudes.shape == (2, 4, 6 + 4)
    large = amplitudes[1] > -2
    square = np.array([True, False, False, True, False, True])
    np.testing.assert_array_equal(large[:, :6], [0 * square, 0 * square, ~square, square])
    np.testing.assert_array_equal(large[:, 6], True)
    np.testing.assert_array_equal(large[:, 7:].all(axis=1), [False, True, True, True])
    # Two columns: one explains the other, and there are no products.
    assert RegressionEncoder(2, 2, 1, 2, rng()).amplitudes.shape == (2, 4, 1 + 2)


def test_long_filters_add_up_over_all_places() -> None:
    """The likelihoods of a shape at every place, against NumPy's correlation of series and filter."""
    x, length = normal(30), 7
    encoder = LongPlacesEncoder(2, length, 3, rng())
    weight = rng(4).normal(size=(2 * length, 3)).astype(np.float32)
    encoder = eqx.tree_at(lambda module: module.weight, encoder, weight)
    both = np.stack([x, np.ones_like(x)], axis=1)
    filters = weight.reshape(length, 2, 3)
    padded = np.pad(both, ((length // 2, length // 2), (0, 0)))
    filtered = sum(
        np.array([np.correlate(padded[:, c], filters[:, c, f], "valid") for f in range(3)]) for c in range(2)
    )
    exponents = np.concatenate([filtered, filtered**2]).T @ encoder.exponent.weight
    wanted = np.log(np.mean(np.exp(exponents.astype(np.float64)), axis=0))
    np.testing.assert_allclose(encoded(encoder, both), wanted, rtol=1e-4, atol=1e-4)


def test_a_shape_is_found_wherever_it_is() -> None:
    encoder = ShapesEncoder((64,), 1, 9, 4, rng())
    shape = 5 * np.sin(np.arange(9)).astype(np.float32)
    early, late = (np.pad(shape, (before, 64 - 9 - before))[:, None] for before in (15, 40))
    one, other = (np.asarray(encoded(encoder, x).exact) for x in (early, late))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    # A control: another shape of the same values is not the same.
    assert np.abs(np.asarray(encoded(encoder, early[::-1]).exact) - one).max() > 1e-3


@pytest.mark.parametrize("columns", [1, 2])
def test_how_many_others_are_near(columns: int) -> None:
    x, there = normal(12, columns), np.arange(12) < 9
    encoder = NeighboursEncoder(12, columns, 2, 4, rng())
    distance = np.linalg.norm(x[:, None] - x, axis=2)
    others = there & ~np.eye(12, dtype=bool)
    before = x[:, None, 0] > x[:, 0]
    sides = [others & before, others & ~before] if columns == 1 else [others]
    near = [np.exp(-distance / encoder.longest * factor) for factor in (1, 4)]
    wanted = [np.log1p(np.stack([np.sum(part * side, axis=1) for part in near], axis=1)) for side in sides]
    found = encoder._near(jnp.asarray(x), jnp.asarray(there, jnp.float32))
    np.testing.assert_allclose(np.stack(found), np.stack(wanted), rtol=1e-4, atol=1e-5)
    # In a dict of parts, elements have channels that are learned: their gradient is finite.
    slope = jax.grad(lambda values: jnp.sum(encoder({"mask": jnp.asarray(there), "x": values}).exact))
    assert np.isfinite(slope(jnp.asarray(x))).all()
    # Neither the order of the elements counts, nor what stands behind the mask.
    features = encoded(encoder, {"mask": there, "x": x})
    order = rng(9).permutation(12)
    changed = {"mask": there[order], "x": np.where(there[:, None], x, 50.0).astype(np.float32)[order]}
    for one, other in zip(features, encoded(encoder, changed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_transitions_are_averaged() -> None:
    """Each value beside the two before it, relative to mean and spread of the series too."""
    x = normal(20, 1) * 3 + 5
    encoder = TransitionsEncoder(1, 2, 4, rng())
    relative = (x - x.mean()) / np.sqrt(x.var() + 1e-3)
    plain, scaled = (np.concatenate([v[2:], v[1:-1], v[:-2]], axis=1) for v in (x, relative))
    first, second = np.triu_indices(3)
    inputs = np.concatenate([plain, scaled, scaled[:, first] * scaled[:, second]], axis=1)
    wanted = np.asarray(encoder.element(jnp.asarray(inputs))).mean(axis=0)
    features = encoded(encoder, x)
    np.testing.assert_allclose(features.smooth[:4], wanted, rtol=1e-4, atol=1e-4)
    # A control: the order of the values counts.
    assert np.abs(np.asarray(encoded(encoder, x[::-1]).smooth[:4]) - wanted).max() > 1e-3
    # What stands behind a mask does not.
    there = np.arange(20) < 14
    masked, changed = ({"mask": there, "x": np.where(there[:, None], x, fill)} for fill in (0.0, 9.0))
    for one, other in zip(encoded(encoder, masked), encoded(encoder, changed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_autoregression_is_a_regression_on_earlier_values() -> None:
    x = normal(20, 2)
    encoder = AutoregressionEncoder(2, 3, 2, 4, rng())
    rows = np.concatenate([x[2:-1], x[1:-2], x[:-3], x[3:]], axis=1)
    wanted = encoded(encoder.regression, rows)
    found = encoded(encoder, x)
    np.testing.assert_allclose(found.smooth[: len(wanted.smooth)], wanted.smooth, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.exact[: len(wanted.exact)], wanted.exact, rtol=1e-4, atol=1e-4)
    # The first three values explain, but are not explained: they count by themselves.
    np.testing.assert_allclose(found.exact[-12:-6], x[:3].ravel(), rtol=1e-5)
