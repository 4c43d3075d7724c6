"""Few directions in which the models differ, for draws of very many numbers."""

import numpy as np

# Directions that are looked for, and more that the search is done with: the first ones are then found well.
_MOST = 64
_MORE = 16
# Each pass turns the directions closer to those of the largest differences.
_PASSES = 3
# A direction that is left of a vector with less than this part of its length is none of its own.
_SAME = 1e-3
# At least so many are kept, also if no difference of the second moments is larger than chance.
_FEWEST = 4


def directions(x: np.ndarray, model: np.ndarray, weight: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Find the directions in which the models differ in mean or covariance.

    A randomised search (Halko, Martinsson & Tropp 2011) for the largest eigenvalues, in size, of the
    difference of each model's second moments from the mean of all. No matrix of all pairs of numbers is
    formed. Directions are kept whose eigenvalue is larger than the largest one with the models of the draws
    exchanged at random, which is chance.

    Parameters
    ----------
    x
        Scaled draws, (n, d).
    model, weight
        Of each draw, (n,).
    seed
        Of the random directions that the search begins with.

    Returns
    -------
    directions
        Orthonormal, (d, m), the largest differences first; float32.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(20_000, 300)).astype(np.float32)
    >>> x[::2, 7] *= 3
    >>> found = directions(x, np.arange(20_000) % 2, np.ones(20_000))
    >>> bool(abs(found[7, 0]) > 0.95)
    True
    """
    rng = np.random.default_rng(seed)
    differ, vectors = _largest(x, model, weight, rng)
    by_chance, _ = _largest(x, rng.permutation(model), weight, rng)
    number = int(np.clip(np.sum(np.abs(differ) > np.abs(by_chance).max()), _FEWEST, _MOST))
    means = _means(x, model, weight)
    joined = np.concatenate([vectors[:, :number], (means - means.mean(axis=0)).T], axis=1)
    # Means that the first directions describe already, such as that of the last model, drop out.
    basis, size = np.linalg.qr(joined)
    keep = np.abs(np.diag(size)) > _SAME * np.linalg.norm(joined, axis=0)
    return np.asarray(basis[:, keep], np.float32)


def _largest(
    x: np.ndarray, model: np.ndarray, weight: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of the differences of second moments, the largest in size first."""
    labels = np.unique(model)
    share = {k: weight * (model == k) / np.sum(weight[model == k]) for k in labels}
    # For each model: its moments less the mean of those of all models.
    signed = [(share[k] - sum(share.values()) / len(labels)).astype(np.float32) for k in labels]
    if len(labels) == 2:
        signed = signed[:1]
    size = min(_MOST + _MORE, x.shape[1])
    start = rng.standard_normal((x.shape[1], size)).astype(np.float32)
    spaces = [np.linalg.qr(start)[0] for _ in signed]
    for _ in range(_PASSES):
        spaces = [
            np.linalg.qr(_applied(x, part, space))[0] for part, space in zip(signed, spaces, strict=True)
        ]
    values, vectors = [], []
    for part, space in zip(signed, spaces, strict=True):
        inside = x @ space
        value, vector = np.linalg.eigh((inside * part[:, None]).T @ inside)
        values.append(value)
        vectors.append(space @ vector)
    value = np.concatenate(values)
    order = np.argsort(-np.abs(value))
    return value[order], np.concatenate(vectors, axis=1)[:, order]


def _applied(x: np.ndarray, part: np.ndarray, space: np.ndarray) -> np.ndarray:
    """Multiply the weighted second moments Σ part_i x_i x_iᵀ by vectors (d, m)."""
    return np.asarray(x.T @ ((x @ space) * part[:, None]))


def _means(x: np.ndarray, model: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.stack([np.average(x[model == k], axis=0, weights=weight[model == k]) for k in np.unique(model)])
