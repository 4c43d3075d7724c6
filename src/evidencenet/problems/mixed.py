"""Data of several parts: a dict whose arrays differ in shape and in meaning."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import count, in_chunks, named_arrays, positive, rows, signs
from evidencenet.problems._quadrature import log_integral
from evidencenet.problems.images import mirrored, point_sources
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def same_source(side: int = 8, bands: int = 6, *, amplitude: float = 4.0, width: float = 1.2) -> Problem:
    """Decide whether a source in an image and fluxes in other bands come from the same object.

    The image shows a source of flux a at a pixel that is uniform over the image, as in `faint_source`. The
    fluxes in `bands` other bands are b times a known spectrum, whose squares sum to 1. Both parts have noise
    N(0, 1). M0: two objects, with a and b ~ N(0, amplitude²), independent. M1: one object, with b = a ~ N(0,
    amplitude²). Each part alone has the same distribution in both models: the information is in whether the
    parts agree.

    At a given pixel the evidence is normal. Let p be the product of the image with the source of flux 1, q
    the sum of the squares of that source, r the product of the fluxes with the spectrum, and v = amplitude².
    Then the evidence of M1 is the density of the noise times g(p + r, q + 1), and that of M0 is the density
    of the noise times g(p, q) g(r, 1), with g(p, q) = exp(½ p² v / (1 + v q)) / √(1 + v q). The evidence is
    the mean over the pixels.

    log K does not change if all values change their sign, or if the image is mirrored or transposed.

    Parameters
    ----------
    side
        Pixels on a side of the image.
    bands
        Number of other bands.
    amplitude
        Standard deviation of the fluxes, in units of the noise.
    width
        Standard deviation of the blurred source, in pixels.

    Returns
    -------
    problem
        Data: dict with ``image`` (n, side, side) and ``fluxes`` (n, bands), float32. Parameters ``pixel``
        (n,), counted along the rows, and ``flux`` (n, 2): that of the image and that of the bands.

    Examples
    --------
    >>> same_source()
    Problem('same_source', models=('two sources', 'one source'), augment=yes)
    """
    side, bands = count("side", side, least=2), count("bands", bands)
    amplitude, width = positive("amplitude", amplitude), positive("width", width)
    sources = point_sources(side, width)
    squares = (sources**2).sum(axis=1)
    spectrum = np.exp(-np.arange(bands) / 3)
    spectrum /= np.sqrt((spectrum**2).sum())
    variance = amplitude**2

    def observe(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> Data:
        n = len(theta["pixel"])
        image = rng.standard_normal((n, side**2)) + theta["flux"][:, :1] * sources[theta["pixel"]]
        fluxes = rng.standard_normal((n, bands)) + theta["flux"][:, 1:] * spectrum
        return {
            "image": image.reshape(n, side, side).astype(np.float32),
            "fluxes": fluxes.astype(np.float32),
        }

    def prior(rng: np.random.Generator, n: int, fluxes: int) -> dict[str, np.ndarray]:
        flux = amplitude * rng.standard_normal((n, fluxes))
        pixel = rng.integers(0, side**2, n)
        return {"pixel": pixel, "flux": np.repeat(flux, 2, axis=1) if fluxes == 1 else flux}

    def gain(product: np.ndarray, length: np.ndarray | float) -> np.ndarray:
        growth = 1 + variance * length
        return 0.5 * variance * product**2 / growth - 0.5 * np.log(growth)

    def log_evidence(x: Data) -> np.ndarray:
        x = named_arrays(x, ("image", "fluxes"))
        image, fluxes = rows(x["image"], (side, side)), rows(x["fluxes"], (bands,))
        if len(image) != len(fluxes):
            raise ValueError(f"there are {len(image)} images but {len(fluxes)} rows of fluxes")
        both = np.concatenate([image.reshape(len(image), side**2), fluxes], axis=1)
        return in_chunks(_log_evidence, both, 10_000)

    def _log_evidence(x: np.ndarray) -> np.ndarray:
        noise = -0.5 * (x**2).sum(axis=1) - 0.5 * x.shape[1] * np.log(2 * np.pi)
        in_image, in_bands = x[:, : side**2] @ sources.T, x[:, side**2 :] @ spectrum
        uniform = -np.log(side**2)
        two = log_integral(gain(in_image, squares), uniform) + gain(in_bands, 1.0)
        one = log_integral(gain(in_image + in_bands[:, None], squares + 1), uniform)
        return noise[:, None] + np.stack([two, one], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = named_arrays(x, ("image", "fluxes"))
        image = mirrored(rng, x["image"])
        sign = signs(rng, (len(image), 1)).astype(image.dtype)
        return {"image": image * sign[:, :, None], "fluxes": x["fluxes"] * sign}

    return Problem(
        name="same_source",
        models=(
            Model("two sources", observe, prior=lambda rng, n: prior(rng, n, 2)),
            Model("one source", observe, prior=lambda rng, n: prior(rng, n, 1)),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )
