"""Graphs: with or without communities, and who does something to whom."""

import numpy as np
from scipy.special import betaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, in_chunks, rows
from evidencenet.problems._quadrature import legendre, log_integral
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def communities(nodes: int = 20) -> Problem:
    """Test whether two known halves of a graph are communities.

    Every pair of nodes is linked or not, independently. M0: all pairs are linked with the same probability p
    ~ U(0, 1) (an Erdős–Rényi graph). M1: pairs inside a half are linked with probability p and pairs between
    the halves with probability q, where p, q ~ U(0, 1) (a stochastic block model). If m pairs have the same
    probability and e of them are linked, their evidence is B(e + 1, m − e + 1).

    log K does not change if nodes of the same half are exchanged, or the two halves.

    Parameters
    ----------
    nodes
        Number of nodes, even; the first half of them is one community.

    Returns
    -------
    problem
        Data of shape (n, nodes, nodes), float32: symmetric adjacency matrices of zeros and ones; parameters
        of shape (n, 2): the probabilities p and q, equal in M0.

    Examples
    --------
    >>> communities()
    Problem('communities', models=('no communities', 'communities'), augment=yes)
    """
    nodes = count("nodes", nodes, least=4)
    if nodes % 2:
        raise ValueError(f"nodes must be even, got {nodes}")
    half = nodes // 2
    first, second = np.triu_indices(nodes, 1)
    inside = (first < half) == (second < half)
    pairs = np.array([inside.sum(), (~inside).sum()])

    def link(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        linked = rng.random((len(theta), len(first)), dtype=np.float32) < theta[:, np.where(inside, 0, 1)]
        graph = np.zeros((len(theta), nodes, nodes), dtype=np.float32)
        graph[:, first, second] = linked
        graph[:, second, first] = linked
        return graph

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (nodes, nodes))
        symmetric = np.all(x == x.transpose(0, 2, 1)) and not np.any(np.trace(x, axis1=1, axis2=2))
        if not (symmetric and np.all((x == 0) | (x == 1))):
            raise ValueError("x must hold symmetric matrices of zeros and ones with an empty diagonal")
        links = x[:, first, second]
        linked = np.stack([links[:, inside].sum(axis=1), links[:, ~inside].sum(axis=1)], axis=1)
        total = linked.sum(axis=1)
        one_probability = betaln(total + 1, len(first) - total + 1)
        two_probabilities = betaln(linked + 1, pairs - linked + 1).sum(axis=1)
        return np.stack([one_probability, two_probabilities], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        order = rng.random((len(x), 2, half)).argsort(axis=2)
        exchange = rng.random((len(x), 1)) < 0.5
        start = np.where(exchange, [half, 0], [0, half])
        order = (order + start[:, :, None]).reshape(len(x), nodes)
        return x[np.arange(len(x))[:, None, None], order[:, :, None], order[:, None, :]]

    return Problem(
        name="communities",
        models=(
            Model("no communities", link, prior=lambda rng, n: np.repeat(rng.random((n, 1)), 2, axis=1)),
            Model("communities", link, prior=lambda rng, n: rng.random((n, 2))),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def grooming(animals: int = 10, *, largest: float = 0.6) -> Problem:
    """Find why animals groom each other: by chance, in return, or because some are more active.

    x_ij is 1 if animal i grooms animal j. M0: all x_ij are 1 with the same probability p ~ beta(2, 5),
    independently. M1: the same, but x_ij and x_ji have the correlation ρ ~ U(0, largest); different pairs are
    independent. M2: each animal has its own probability p_i ~ beta(2, 5) to groom any other.

    If m values have the same probability and k of them are 1, their evidence is B(k + 2, m − k + 5) / B(2,
    5). This gives M0, and for each row M2. In M1, a pair has both links with probability p² + ρ p (1 − p), no
    link with (1 − p)² + ρ p (1 − p), and each of the two single links with (1 − ρ) p (1 − p). The evidence is
    the integral of a polynomial in p and ρ, which Gauss–Legendre quadrature gives exactly.

    log K does not change if animals are exchanged.

    Parameters
    ----------
    animals
        Number of animals, at least 2.
    largest
        Bound of ρ, at most 1.

    Returns
    -------
    problem
        Data of shape (n, animals, animals), float32: matrices of zeros and ones with an empty diagonal.
        Parameters: p of shape (n,) in M0 and (n, animals) in M2; ``p`` and ``rho`` in M1.

    Examples
    --------
    >>> grooming()
    Problem('grooming', models=('chance', 'in return', 'active animals'), augment=yes)
    """
    animals = count("animals", animals, least=2)
    if not 0 < largest <= 1:
        raise ValueError(f"largest must lie between 0 and 1, got {largest!r}")
    first, second = np.triu_indices(animals, 1)
    pairs = len(first)
    # N nodes are exact up to the degree 2 N − 1. The prior of p is a polynomial of degree 5.
    p, p_weights = legendre(0.0, 1.0, pairs + 3)
    rho, rho_weights = legendre(0.0, largest, pairs // 2 + 1)
    p_weights = p_weights + np.log(p) + 4 * np.log1p(-p) - betaln(2, 5)
    log_weights = (p_weights[:, None] + rho_weights - np.log(largest)).ravel()
    shared = (p * (1 - p))[:, None]
    none, one, both = (1 - p[:, None]) ** 2 + rho * shared, (1 - rho) * shared, p[:, None] ** 2 + rho * shared
    log_pairs = np.log(np.stack([none, one, both]).reshape(3, -1))

    def in_return_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"p": rng.beta(2, 5, n), "rho": rng.uniform(0, largest, n)}

    def by_chance(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
        return active(rng, np.repeat(p[:, None], animals, axis=1))

    def in_return(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        p, rho = theta["p"][:, None], theta["rho"][:, None]
        there = rng.random((len(p), pairs)) < p
        back = rng.random((len(p), pairs)) < (1 - rho) * p + rho * there
        graph = np.zeros((len(p), animals, animals), dtype=np.float32)
        graph[:, first, second] = there
        graph[:, second, first] = back
        return graph

    def active(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
        graph = (rng.random((len(p), animals, animals)) < p[:, :, None]).astype(np.float32)
        graph[:, np.arange(animals), np.arange(animals)] = 0
        return graph

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (animals, animals))
        if np.any(np.trace(x, axis1=1, axis2=2)) or not np.all((x == 0) | (x == 1)):
            raise ValueError("x must hold matrices of zeros and ones with an empty diagonal")
        given = x.sum(axis=2)
        by_animal = betaln(given + 2, animals - 1 - given + 5) - betaln(2, 5)
        total = given.sum(axis=1)
        together = betaln(total + 2, 2 * pairs - total + 5) - betaln(2, 5)
        links = x[:, first, second] + x[:, second, first]
        number = np.stack([(links == k).sum(axis=1) for k in range(3)], axis=1).astype(np.float64)
        mutual = in_chunks(lambda number: log_integral(number @ log_pairs, log_weights), number, 1_000)
        return np.stack([together, mutual, by_animal.sum(axis=1)], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        order = rng.random((len(x), animals)).argsort(axis=1)
        return x[np.arange(len(x))[:, None, None], order[:, :, None], order[:, None, :]]

    return Problem(
        name="grooming",
        models=(
            Model("chance", by_chance, prior=lambda rng, n: rng.beta(2, 5, n)),
            Model("in return", in_return, prior=in_return_prior),
            Model("active animals", active, prior=lambda rng, n: rng.beta(2, 5, (n, animals))),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )
