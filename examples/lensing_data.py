"""Measured cosmic shear: the two-point functions ξ± of a survey, with scale cuts, noise and redshifts.

The file read here is ``DES-Y3_xipm_and_KiDS-1000_COSEBIs_2.0_300.0.fits``, in the folder
``likelihood/des-y3_and_kids-1000`` of https://github.com/joezuntz/cosmosis-standard-library: what the Dark
Energy Survey measured in its first three years, in the part of its area that does not overlap with KiDS.
"""

import hashlib
import os
from dataclasses import dataclass

import numpy as np
from astropy.io import fits
from scipy.linalg import solve_triangular

# Pairs of the survey's redshift bins, and the angles [arcmin] below which their ξ+ and ξ− are left out,
# because the effect of galaxies on matter is not known well enough there.
PAIRS = [(i, j) for i in range(4) for j in range(i, 4)]
CUTS = np.array(
    [
        [2.475, 6.217, 6.217, 4.938, 6.217, 6.217, 6.217, 6.217, 6.217, 4.938],
        [24.75, 62.169, 62.169, 49.383, 62.169, 78.266, 78.266, 78.266, 78.266, 62.169],
    ]
)
# By how much the measured shear is too large in each redshift bin: the mean that DES found in simulations.
BIAS = np.array([-0.0063, -0.0198, -0.0241, -0.0369])


@dataclass(frozen=True, eq=False)
class Survey:
    """A measurement of ξ± at P points.

    Attributes
    ----------
    kind
        0 for ξ+, 1 for ξ−, shape (P,).
    pair
        Numbers of the two redshift bins, shape (P, 2).
    angle
        Edges of the bin of angles, in arcmin, shape (P, 2).
    observed
        The measured values, shape (P,).
    covariance
        Of their noise, shape (P, P).
    redshift
        Middles of cells of equal width from zero on, shape (Z,).
    density
        Galaxies of each redshift bin by redshift, with unit integral, shape (4, Z).
    """

    kind: np.ndarray
    pair: np.ndarray
    angle: np.ndarray
    observed: np.ndarray
    covariance: np.ndarray
    redshift: np.ndarray
    density: np.ndarray

    def whitened(self, x: np.ndarray) -> np.ndarray:
        """Return data (n, P) in units of their noise: L⁻¹x with L·Lᵀ the covariance.

        This is a linear map with an inverse, so it does not change K.
        """
        factor = np.linalg.cholesky(self.covariance)
        return np.asarray(solve_triangular(factor, x.T, lower=True).T)

    def digest(self) -> str:
        """Return a short name for all that a draw depends on: the survey without its measured values."""
        parts = (self.kind, self.pair, self.angle, self.covariance, self.redshift, self.density)
        return hashlib.sha256(b"".join(np.asarray(part, float).tobytes() for part in parts)).hexdigest()[:12]


def kept(kind: np.ndarray, pair: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return which points are above the scale cuts, shape (P,); the arguments are those of `Survey`."""
    place = np.array([PAIRS.index((int(i), int(j))) for i, j in pair])
    return np.asarray(angle[:, 0] > CUTS[kind, place])


def read(path: str | os.PathLike[str]) -> Survey:
    """Read a measurement of ξ±, and leave out the points below the scale cuts.

    Parameters
    ----------
    path
        A FITS file of the two-point format with the tables ``xip`` and ``xim``, their ``COVMAT``, and
        ``nz_source_des`` (or ``nz_source``) for four redshift bins.

    Returns
    -------
    Survey
        Of DES Year 3, with 227 points.
    """
    with fits.open(path) as file:
        tables = [_table(file, path, name) for name in ("xip", "xim")]
        covariance, start = _table(file, path, "COVMAT"), _starts(file["COVMAT"].header)
        galaxies = _table(file, path, "nz_source_des", "nz_source")
        redshift = np.array(galaxies["Z_MID"], float)
        density = np.array([galaxies[f"BIN{i}"] for i in (1, 2, 3, 4)], float)
        columns = [
            [table[name] for table in tables] for name in ("BIN1", "BIN2", "ANGLEMIN", "ANGLEMAX", "VALUE")
        ]
        first, second, low, high, value = (np.concatenate(column).astype(float) for column in columns)
        rows = np.concatenate([start[i] + np.arange(len(table)) for i, table in enumerate(tables)])
        noise = np.array(covariance, float)[np.ix_(rows, rows)]
    step = np.diff(redshift)
    if not np.allclose(step, 2 * redshift[0], rtol=1e-3):
        raise ValueError(f"{path}: wanted n(z) in cells of equal width from z = 0 on, got Z_MID {redshift}.")
    density /= density.sum(axis=1, keepdims=True) * step.mean()
    kind = np.repeat([0, 1], [len(table) for table in tables])
    pair = np.column_stack([first, second]).astype(int) - 1
    if set(map(tuple, pair.tolist())) != set(PAIRS):
        raise ValueError(f"{path}: wanted all ten pairs of four redshift bins, got {np.unique(pair) + 1}.")
    angle = np.column_stack([low, high])
    keep = kept(kind, pair, angle)
    return Survey(
        kind[keep], pair[keep], angle[keep], value[keep], noise[np.ix_(keep, keep)], redshift, density
    )


def _table(file: fits.HDUList, path: str | os.PathLike[str], *names: str) -> np.ndarray:
    """Return the data of the first table of these names that exists."""
    there = [part.name for part in file]
    for name in names:
        if name.upper() in (part.upper() for part in there):
            return file[name].data
    raise ValueError(f"{path}: wanted a part {' or '.join(names)}, there are only {', '.join(there)}.")


def _starts(header: fits.Header) -> list[int]:
    """Return at which row of the covariance ξ+ and ξ− begin."""
    begins = {
        str(header[f"NAME_{i}"]).strip(): int(header[f"STRT_{i}"])
        for i in range(len(header))
        if f"NAME_{i}" in header
    }
    return [begins["xip"], begins["xim"]]
