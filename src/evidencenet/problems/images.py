"""Images: a random field, a faint source, and a grating in a few frames."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, flip_signs, in_chunks, positive, rows
from evidencenet.problems._normal import linear_log_density
from evidencenet.problems._quadrature import log_integral, trapezoid
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model

# The gratings of `drift`: how many orientations they have, how many cycles there are in a side of the image,
# and by what phase they move from one frame to the next.
ORIENTATIONS = 6
CYCLES = (1.5, 2.5)
MOVES = (-2 * np.pi / 3, -np.pi / 3, np.pi / 3, 2 * np.pi / 3)


def random_field(
    side: int = 12,
    *,
    lengths: tuple[float, float] = (1.0, 1.4),
    noise: float = 0.5,
    step: float = 0.5,
    channel_axis: bool = True,
) -> Problem:
    """Distinguish two correlation lengths of a Gaussian random field of unknown amplitude.

    The image is a periodic, stationary Gaussian field plus white noise N(0, noise²). The field has the power
    spectrum P(k) ∝ exp(−k² ℓ²), scaled to unit variance per pixel, times an amplitude A with log A ~ N(0,
    ½²). In model m, ℓ = lengths[m] pixels. The Fourier modes are independent and have variance A P(k) +
    noise². At given A the log evidence is therefore a sum over the distinct values of the power. The mean
    over log A is computed with the trapezoidal rule.

    log K does not change if the image changes its sign, is shifted, or is transposed.

    Parameters
    ----------
    side
        Pixels on a side.
    lengths
        The two correlation lengths, in pixels.
    noise
        Standard deviation of the white noise.
    step
        Quadrature step for log A, in units of 1/side, about the width of the likelihood of log A.
    channel_axis
        Whether an image has a last axis of length 1 for its one channel.

    Returns
    -------
    problem
        Data of shape (n, side, side, 1), float32, or (n, side, side) without a channel axis; parameters A of
        shape (n,).

    Examples
    --------
    >>> random_field()
    Problem('random_field', models=('rough', 'smooth'), augment=yes)
    """
    side = count("side", side, least=2)
    noise, step = positive("noise", noise), positive("step", step)
    image_shape = (side, side, 1) if channel_axis else (side, side)
    if len(lengths) != 2:
        raise ValueError(f"lengths must be two correlation lengths, got {lengths!r}")
    scales = [positive("lengths", length) for length in lengths]
    frequency = np.fft.fftfreq(side) * side
    squared = np.rint(frequency[:, None] ** 2 + frequency**2).astype(int)
    # Modes with the same |k| have the same power. The evidence needs only the sum of their squares and their
    # number.
    shells, shell = np.unique(squared, return_inverse=True)
    shell = shell.reshape(side, side)
    number = np.bincount(shell.ravel()).astype(float)
    membership = np.eye(len(shells))[shell.ravel()]
    powers = []
    for length in scales:
        power = np.exp(-shells * (2 * np.pi * length / side) ** 2)
        powers.append(power * side**2 / (number @ power))
    # The nodes reach out to 24 prior widths, because a smooth field explains a rough image only if its
    # amplitude is very large.
    log_amplitudes, log_step = trapezoid(12.0, step / side)
    log_weights = log_step - 0.5 * (log_amplitudes / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))

    def model(name: str, power: np.ndarray) -> Model:
        colour = np.sqrt(power[shell])[:, : side // 2 + 1]

        def observe(rng: np.random.Generator, amplitude: np.ndarray) -> np.ndarray:
            shape = (len(amplitude), side, side)
            field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal(shape)) * colour, s=(side, side))
            image = np.sqrt(amplitude)[:, None, None] * field + noise * rng.standard_normal(shape)
            return image.astype(np.float32).reshape(-1, *image_shape)

        return Model(name, observe, prior=lambda rng, n: np.exp(0.5 * rng.standard_normal(n)))

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, image_shape).reshape(-1, side, side), 5_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        modes = np.abs(np.fft.fft2(x, norm="ortho")) ** 2
        shell_sums = modes.reshape(len(x), side**2) @ membership
        columns = []
        for power in powers:
            variance = np.exp(log_amplitudes) * power[:, None] + noise**2
            log_density = -0.5 * shell_sums @ (1 / variance) - 0.5 * number @ np.log(2 * np.pi * variance)
            columns.append(log_integral(log_density, log_weights))
        return np.stack(columns, axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x).reshape(-1, side, side)
        x = np.where(rng.random((len(x), 1, 1)) < 0.5, x.transpose(0, 2, 1), x)
        shift = rng.integers(0, side, size=(2, len(x), 1, 1))
        pixel = np.arange(side)
        down, across = (pixel[:, None] + shift[0]) % side, (pixel + shift[1]) % side
        x = flip_signs(rng, x[np.arange(len(x))[:, None, None], down, across])
        return x.reshape(-1, *image_shape)

    return Problem(
        name="random_field",
        models=(model("rough", powers[0]), model("smooth", powers[1])),
        log_evidence=log_evidence,
        augment=augment,
    )


def faint_source(side: int = 12, *, amplitude: float = 4.0, width: float = 1.2) -> Problem:
    """Look for a faint source at an unknown place in an image.

    M0: all pixels are noise, N(0, 1). M1: a source is added at a pixel that is uniform over the image. The
    source is a Gaussian of standard deviation `width` pixels, cut at the edge, times its flux a ~ N(0,
    amplitude²). The image is the difference of two exposures, so the flux can have either sign.

    At a given pixel the evidence is normal. Let p be the product of the image with the source of flux 1, q
    the sum of the squares of that source, and v = amplitude². Then the evidence is the density of the noise
    times exp(½ p² v / (1 + v q)) / √(1 + v q). The evidence of M1 is the mean of this over the pixels.

    log K does not change if the image changes its sign, is mirrored, or is transposed.

    Parameters
    ----------
    side
        Pixels on a side.
    amplitude
        Standard deviation of the flux, in units of the noise.
    width
        Standard deviation of the blurred source, in pixels.

    Returns
    -------
    problem
        Data of shape (n, side, side), float32: an image without an axis of colours. Parameters in M1:
        ``pixel`` (n,), counted along the rows, and ``flux`` (n,).

    Examples
    --------
    >>> faint_source()
    Problem('faint_source', models=('noise', 'source'), augment=yes)
    """
    side = count("side", side, least=2)
    amplitude, width = positive("amplitude", amplitude), positive("width", width)
    sources = point_sources(side, width)
    growth = 1 + amplitude**2 * (sources**2).sum(axis=1)

    def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"pixel": rng.integers(0, side**2, n), "flux": amplitude * rng.standard_normal(n)}

    def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        image = rng.standard_normal((len(theta["flux"]), side**2), dtype=np.float32)
        image += theta["flux"][:, None] * sources[theta["pixel"]]
        return image.reshape(-1, side, side)

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (side, side)).reshape(-1, side**2), 5_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        noise = -0.5 * (x**2).sum(axis=1) - 0.5 * side**2 * np.log(2 * np.pi)
        gain = 0.5 * (amplitude * (x @ sources.T)) ** 2 / growth - 0.5 * np.log(growth)
        return np.stack([noise, noise + log_integral(gain, -np.log(side**2))], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        return flip_signs(rng, mirrored(rng, array(x)))

    return Problem(
        name="faint_source",
        models=(
            Model("noise", lambda rng, n: rng.standard_normal((n, side, side), dtype=np.float32)),
            Model("source", observe, prior=prior),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def drift(side: int = 10, frames: int = 4, *, contrast: float = 0.2) -> Problem:
    """Tell whether a faint grating stands still or drifts, from a few frames.

    Each frame is an image. Frame t shows a cos(φ) − b sin(φ) + n with φ = k·r + s t at the pixel r. The noise
    n is N(0, 1), and a, b ~ N(0, contrast²). The wave vector k has one of 6 orientations, 30° apart, and 1.5
    or 2.5 cycles in a side of the image; all twelve are equally likely. M0: s = 0. M1: s is ±60° or ±120°,
    all four equally likely.

    At given k and s the evidence is N(x; 0, I + contrast² Φ Φᵀ), where Φ has two columns, cos φ and sin φ.
    The evidence is the mean over k, and in M1 over s.

    log K does not change if the frames change their sign, are mirrored, or run backwards.

    Parameters
    ----------
    side
        Pixels on a side.
    frames
        Number of frames, at least 2.
    contrast
        Standard deviation of a and of b, in units of the noise.

    Returns
    -------
    problem
        Data of shape (n, side, side, frames), float32. Parameters: ``a`` and ``b``, each (n,), and ``wave``
        (n,), the number of the pair of k and s.

    Examples
    --------
    >>> drift()
    Problem('drift', models=('still', 'drifting'), augment=yes)
    """
    side, frames = count("side", side, least=2), count("frames", frames, least=2)
    contrast = positive("contrast", contrast)
    down, across = np.indices((side, side))

    def phases(moves: tuple[float, ...]) -> np.ndarray:
        """Return the phase of each wave at each pixel of each frame: (waves, side · side · frames)."""
        found = []
        for i in range(ORIENTATIONS):
            angle = np.pi * i / ORIENTATIONS
            for cycles in CYCLES:
                still = 2 * np.pi * cycles / side * (np.cos(angle) * across + np.sin(angle) * down)
                found += [(still[..., None] + move * np.arange(frames)).ravel() for move in moves]
        return np.array(found)

    def model(name: str, phase: np.ndarray) -> Model:
        cosine, sine = np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)

        def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
            a, b = contrast * rng.standard_normal((n, 2)).T
            return {"a": a, "b": b, "wave": rng.integers(0, len(phase), n)}

        def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
            a, b = (theta[key][:, None].astype(np.float32) for key in ("a", "b"))
            x = rng.standard_normal((len(a), phase.shape[1]), dtype=np.float32)
            x += a * cosine[theta["wave"]]
            x -= b * sine[theta["wave"]]
            return x.reshape(-1, side, side, frames)

        return Model(name, observe, prior=prior)

    waves = {"still": phases((0.0,)), "drifting": phases(MOVES)}
    densities = [
        [linear_log_density(contrast * np.stack([np.cos(row), np.sin(row)], axis=1), 1.0) for row in phase]
        for phase in waves.values()
    ]

    def log_evidence(x: Data) -> np.ndarray:
        return in_chunks(_log_evidence, rows(x, (side, side, frames)).reshape(-1, side**2 * frames), 500)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        of_waves = [np.stack([f(x) for f in same], axis=1) for same in densities]
        return np.stack([log_integral(each, -np.log(each.shape[1])) for each in of_waves], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        for axis in (1, 2, 3):
            x = np.where(rng.random((len(x), 1, 1, 1)) < 0.5, np.flip(x, axis), x)
        return flip_signs(rng, x)

    return Problem(
        name="drift",
        models=tuple(model(name, phase) for name, phase in waves.items()),
        log_evidence=log_evidence,
        augment=augment,
    )


def point_sources(side: int, width: float) -> np.ndarray:
    """Return the image of a source of flux 1 at each pixel, flattened: shape (side², side²).

    The source is a Gaussian of standard deviation `width` pixels, cut at the edge. Far from the edge the sum
    of its squares is 1.
    """
    pixel = np.arange(side)
    profile = np.exp(-0.5 * ((pixel[:, None] - pixel) / width) ** 2)
    whole = np.exp(-((np.arange(-side, side + 1) / width) ** 2)).sum()
    return np.einsum("ik,jl->ijkl", profile, profile).reshape(side**2, side**2) / whole


def mirrored(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Mirror each image (n, side, side) in its axes and its diagonal, each with probability one half."""
    moves = rng.random((len(x), 3, 1, 1)) < 0.5
    x = np.where(moves[:, 0], x[:, ::-1], x)
    x = np.where(moves[:, 1], x[:, :, ::-1], x)
    return np.where(moves[:, 2], x.transpose(0, 2, 1), x)
