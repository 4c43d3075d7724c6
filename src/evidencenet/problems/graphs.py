"""Graphs: with or without communities."""

import numpy as np
from scipy.special import betaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, rows
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
