"""The theory of cosmic shear: the two-point functions ξ± from jax-cosmo's matter power spectrum.

The Limber integral is done on one grid of multipoles and redshifts and has three parts: lensing with lensing
(GG), lensing with intrinsic alignment (GI), and alignment with alignment (II). Those of galaxies aligned with
amplitude A are GG + A·GI + A²·II: the non-linear alignment model (NLA), here without its power of redshift.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax_cosmo as jc
import numpy as np
from jax_cosmo import background, constants, power
from scipy.interpolate import CubicSpline
from scipy.special import j0, j1

from lensing_data import BIAS, PAIRS, Survey, kept

# Flat priors: matter density, 1e9 × primordial amplitude, spectral index, baryon density, Hubble constant.
PARAMETERS = ("Omega_m", "1e9 A_s", "n_s", "Omega_b", "h")
LOW = np.array([0.1, 0.5, 0.87, 0.03, 0.55])
HIGH = np.array([0.9, 5.0, 1.07, 0.07, 0.91])
# The amplitude of alignment in model 1 lies between minus this and plus this.
MOST_ALIGNED = 3.0
# A cosmology like that of the cosmic microwave background.
ORDINARY = np.array([0.3, 2.1, 0.966, 0.048, 0.68])
ORDINARY_ALIGNMENT = 0.3

Theory = Callable[[np.ndarray], np.ndarray]

# At this wave number [1/Mpc] the primordial spectrum has the amplitude A_s.
_PIVOT = 0.05
# Early enough that matter dominates; jax-cosmo's table of growth begins here.
_EARLY = 1e-3
# The grid of wave numbers [h/Mpc] and scale factors on which the matter power spectrum is computed.
_WAVES = np.linspace(np.log(1e-4), np.log(1e3), 200)
_SCALE_FACTORS = 24
# Cosmologies in one call of a compiled function.
_BLOCK = 50
# Depths of the four redshift bins of an imitated survey: n(z) ∝ z³·exp(−(z/depth)^2.5).
DEPTHS = np.array([0.30, 0.46, 0.66, 0.84])


class Grid(NamedTuple):
    """Where the Limber integral is done.

    Attributes
    ----------
    multipole
        Shape (L,).
    redshift
        Middles of cells of equal width from zero on, shape (Z,).
    scale_factor
        Those at which the matter power spectrum is computed, shape (T,).
    spline
        Takes its logarithm from these to the redshifts, shape (Z, T).
    """

    multipole: np.ndarray
    redshift: np.ndarray
    scale_factor: np.ndarray
    spline: np.ndarray


def grid(redshift: np.ndarray, multipole: np.ndarray | None = None) -> Grid:
    """Return the grid of these redshifts and multipoles; by default 60 multipoles from 1 to 30,000."""
    if multipole is None:
        multipole = np.geomspace(1, 30_000, 60)
    a = 1 / (1 + redshift)
    nodes = np.linspace(a.min(), a.max(), _SCALE_FACTORS)
    return Grid(multipole, redshift, nodes, CubicSpline(nodes, np.eye(_SCALE_FACTORS))(a))


def cosmology(parameters: jax.Array) -> jc.Cosmology:
    """Return the flat cosmology of five `PARAMETERS`, without neutrino masses.

    jax-cosmo takes σ8, so A_s is converted with the spectrum that it will use itself: what grows out of A_s,
    P(k) = (8π²/25)·A_s·(c/H0)⁴·(D/Ωm)²·k·(k/pivot)^(ns − 1)·T(k)² with D the growth since matter dominated,
    integrated by jax-cosmo's own σ(8 Mpc/h). Matter then has exactly this spectrum, and it does not matter
    which part of σ8 the integral leaves out (it runs over wave numbers from 0.018 to 20 h/Mpc).
    """
    matter, amplitude, index, baryons, h = parameters

    def universe(sigma8: jax.Array | float) -> jc.Cosmology:
        rest = {"Omega_k": 0.0, "w0": -1.0, "wa": 0.0}
        return jc.Cosmology(matter - baryons, baryons, h=h, n_s=index, sigma8=sigma8, **rest)

    plain = universe(1.0)
    growth = _EARLY / background.growth_factor(plain, jnp.array([_EARLY]))[0]
    scale = 8 * np.pi**2 / 25 * 1e-9 * amplitude * (growth * constants.rh**2 / matter) ** 2
    tilt = (_PIVOT / h) ** (1 - index)
    return universe(jnp.sqrt(scale * tilt * power.sigmasqr(plain, 8.0, jc.transfer.Eisenstein_Hu)))


def limber(cosmo: jc.Cosmology, grid: Grid, density: jax.Array) -> jax.Array:
    """Return the angular power spectra GG, GI and II of all pairs of redshift bins, shape (3, L, 10).

    `density` are the galaxies of each bin by redshift, with unit integral, shape (4, Z).
    """
    a, width = 1 / (1 + grid.redshift), grid.redshift[1] - grid.redshift[0]
    chi = background.radial_comoving_distance(cosmo, a)
    expansion = jnp.sqrt(background.Esqr(cosmo, a))

    def behind(values: jax.Array) -> jax.Array:
        """Integrate over all redshifts behind each one."""
        return jnp.cumsum(values[:, ::-1], axis=1)[:, ::-1] * width

    lens = 1.5 * cosmo.Omega_m / constants.rh**2 * chi / a * (behind(density) - chi * behind(density / chi))
    strength = -constants.C_1 * constants.rhocrit * cosmo.Omega_m / background.growth_factor(cosmo, a)
    aligned = strength * density * expansion / constants.rh
    first, second = np.array(PAIRS).T
    kernels = jnp.stack(
        [
            lens[first] * lens[second],
            lens[first] * aligned[second] + aligned[first] * lens[second],
            aligned[first] * aligned[second],
        ]
    )
    ell = grid.multipole
    # Shear is a spin-2 field on a sphere.
    spin = (ell - 1) * ell * (ell + 1) * (ell + 2) / (ell + 0.5) ** 4
    measure = constants.rh / expansion * width / chi**2
    matter = _matter(cosmo, grid, (ell[:, None] + 0.5) / chi)
    return spin[:, None] * jnp.einsum("tsz,lz->tls", kernels * measure, matter)


def _matter(cosmo: jc.Cosmology, grid: Grid, k: jax.Array) -> jax.Array:
    """Return the non-linear power spectrum of matter at the wave numbers (L, Z) of each redshift.

    jax-cosmo is fast on a grid, so the logarithm of the spectrum is computed on one and interpolated.
    """
    nodes = power.nonlinear_matter_power(cosmo, np.exp(_WAVES)[:, None], grid.scale_factor)
    known = jnp.log(nodes) @ grid.spline.T
    # The cubic through the four nearest nodes.
    place = (jnp.log(k) - _WAVES[0]) / (_WAVES[1] - _WAVES[0])
    first = jnp.clip(jnp.floor(place).astype(int) - 1, 0, len(_WAVES) - 4)
    x = place - first
    weights = (
        -(x - 1) * (x - 2) * (x - 3) / 6,
        x * (x - 2) * (x - 3) / 2,
        -x * (x - 1) * (x - 3) / 2,
        x * (x - 1) * (x - 2) / 6,
    )
    terms = [w * jnp.take_along_axis(known, first + i, axis=0) for i, w in enumerate(weights)]
    return jnp.exp(sum(terms, jnp.zeros_like(x)))


@jax.jit
def _spectra(parameters: jax.Array, grid: Grid, density: jax.Array) -> jax.Array:
    # One after the other: all at once would need gigabytes, and eight at once is slower.
    return jax.lax.map(lambda one: limber(cosmology(one), grid, density), parameters)


def spectra(parameters: np.ndarray, grid: Grid, density: np.ndarray) -> np.ndarray:
    """Return GG, GI and II, shape (n, 3, L, 10), of cosmologies (n, 5); `density` as in `limber`."""
    blocks = -(-len(parameters) // _BLOCK)
    # Blocks of equal size, so that JAX compiles only once.
    filled = np.resize(parameters, (blocks * _BLOCK, len(PARAMETERS))).astype(np.float32)
    with warnings.catch_warnings():
        # jax-cosmo asks for 64-bit integers; 32 bits are available, and enough for its tables.
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        found = [np.asarray(_spectra(block, grid, density)) for block in np.split(filled, blocks)]
    return np.concatenate(found)[: len(parameters)]


def bin_averages(kind: int, angle: np.ndarray, multipole: np.ndarray) -> np.ndarray:
    """Return ξ+ (kind 0) or ξ− (1) of unit power at each multipole, averaged over a bin of angles.

    ℓ/2π·J0,4(ℓθ) on a flat sky, with J0 for ξ+ and J4 for ξ−; `angle` are the edges in arcmin.
    """
    low, high = np.radians(np.asarray(angle) / 60)

    def integral(edge: float) -> np.ndarray:
        """Return the integral of θ·J(ℓθ) over θ."""
        x = multipole * edge
        if kind == 0:
            return edge * j1(x) / multipole
        j2 = 2 * j1(x) / x - j0(x)
        return ((x - 8 / x) * j1(x) - 8 * j2) / multipole**2

    return multipole / (2 * np.pi) * 2 / (high**2 - low**2) * (integral(high) - integral(low))


def operator(kind: np.ndarray, angle: np.ndarray, multipole: np.ndarray) -> np.ndarray:
    """Return the matrix, shape (P, L), that takes a power spectrum at some multipoles to ξ±.

    Between these ℓ·C_ℓ is a cubic spline of log ℓ, and ξ± the sum over all whole ℓ, so ξ± is linear in C_ℓ.

    Parameters
    ----------
    kind, angle
        As in `Survey`, shapes (P,) and (P, 2).
    multipole
        Shape (L,), increasing, up to the largest ℓ of the sum.
    """
    whole = np.arange(max(2, np.ceil(multipole[0])), np.floor(multipole[-1] * (1 + 1e-9)) + 1)
    spline = CubicSpline(np.log(multipole), np.diag(multipole))(np.log(whole)) / whole[:, None]
    wanted, place = np.unique(np.column_stack([kind, angle]), axis=0, return_inverse=True)
    rows = [bin_averages(int(sign), edges, whole) @ spline for sign, *edges in wanted]
    return np.array(rows)[place.ravel()]


def shear(survey: Survey) -> Theory:
    """Return a function from cosmologies, shape (n, 5), to the parts GG, GI and II of ξ±, shape (n, 3, P)."""
    where = grid(survey.redshift)
    matrix = operator(survey.kind, survey.angle, where.multipole)
    matrix *= (1 + BIAS[survey.pair]).prod(axis=1, keepdims=True)
    which = [PAIRS.index((int(i), int(j))) for i, j in survey.pair]

    def parts(parameters: np.ndarray) -> np.ndarray:
        found = spectra(parameters, where, survey.density)
        return np.einsum("pl,ntlp->ntp", matrix, found[..., which], optimize=True)

    return parts


def mean(parts: np.ndarray, alignment: np.ndarray) -> np.ndarray:
    """Return ξ± without noise, shape (n, P), from GG, GI and II (n, 3, P) and amplitudes (n,)."""
    powers = alignment[:, None] ** np.arange(3)
    return np.einsum("ntp,nt->np", parts, powers)


def mock(survey: Survey, theory: Theory, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ξ± of an ordinary cosmology and a little alignment, without noise and with it, each (P,)."""
    expected = mean(theory(ORDINARY[None]), np.array([ORDINARY_ALIGNMENT]))[0]
    noise = np.random.default_rng(seed).standard_normal(len(expected))
    return expected, expected + np.linalg.cholesky(survey.covariance) @ noise


def imitation() -> Survey:
    """Return a survey like DES Year 3 without data: redshifts, angles and cuts, and a Gaussian covariance.

    The covariance is that of Gaussian fields on a tenth of the sky, in an ordinary cosmology, with the noise
    of 1.7 galaxies an arcmin² and bin, of ellipticities that scatter by 0.29. `observed` is zero.
    """
    redshift = (np.arange(300) + 0.5) / 100
    density = redshift**3 * np.exp(-((redshift / DEPTHS[:, None]) ** 2.5))
    density /= density.sum(axis=1, keepdims=True) / 100
    edges = np.geomspace(2.5, 250, 21)
    bins = np.column_stack([edges[:-1], edges[1:]])
    kind = np.repeat([0, 1], len(PAIRS) * len(bins))
    pair = np.tile(np.repeat(PAIRS, len(bins), axis=0), (2, 1))
    angle = np.tile(bins, (2 * len(PAIRS), 1))
    keep = kept(kind, pair, angle)
    kind, pair, angle = kind[keep], pair[keep], angle[keep]
    noise = 0.29**2 / (1.7 * (60 * 180 / np.pi) ** 2)
    covariance = gaussian_covariance(kind, pair, angle, redshift, density, noise=noise, sky=0.1)
    return Survey(kind, pair, angle, np.zeros(len(kind)), covariance, redshift, density)


def gaussian_covariance(
    kind: np.ndarray,
    pair: np.ndarray,
    angle: np.ndarray,
    redshift: np.ndarray,
    density: np.ndarray,
    *,
    noise: float,
    sky: float,
) -> np.ndarray:
    """Return the covariance (P, P) of ξ± of Gaussian fields; the arguments are those of `Survey`.

    `noise` is the power of the noise of each redshift bin, `sky` the fraction of the sky.
    """
    where = grid(redshift)
    found = spectra(ORDINARY[None], where, density)[0, 0]
    whole = np.arange(2.0, where.multipole[-1] + 0.5)
    smooth = np.exp(CubicSpline(np.log(where.multipole[1:]), np.log(found[1:]))(np.log(whole)))
    power_of = {two: smooth[:, i] + noise * (two[0] == two[1]) for i, two in enumerate(PAIRS)}
    power_of |= {(j, i): values for (i, j), values in power_of.items()}
    averages = {
        (sign, edges): bin_averages(sign, np.array(edges), whole)
        for sign, edges in {(int(s), tuple(map(float, e))) for s, e in zip(kind, angle, strict=True)}
    }
    rows = np.array([averages[int(s), tuple(map(float, e))] for s, e in zip(kind, angle, strict=True)])
    result = np.zeros((len(kind), len(kind)))
    of = [np.flatnonzero((pair == two).all(axis=1)) for two in PAIRS]
    for (i, j), here in zip(PAIRS, of, strict=True):
        for (k, m), there in zip(PAIRS, of, strict=True):
            both = power_of[i, k] * power_of[j, m] + power_of[i, m] * power_of[j, k]
            result[np.ix_(here, there)] = (rows[here] * (both / ((2 * whole + 1) * sky))) @ rows[there].T
    return (result + result.T) / 2
