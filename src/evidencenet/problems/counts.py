"""Counts: overdispersion, and independence in a table."""

import numpy as np
from scipy.special import betaln, gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, positive, rows, shuffle
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def overdispersion(size: int = 20, *, failures: float = 5.0) -> Problem:
    """Distinguish Poisson counts of one rate from overdispersed counts.

    M0: x_i ~ Poisson(λ) with λ ~ gamma(4, rate 0.4). M1: x_i ~ negative binomial(r = failures, p) with p ~
    beta(5, 8). This is a Poisson count whose rate has a gamma distribution. With S = Σ x_i, the priors are
    conjugate and give

        p(x|M0) = b^a Γ(a + S) / (Γ(a) (b + size)^(a + S) ∏ x_i!),  a = 4, b = 0.4,
        p(x|M1) = ∏ Γ(x_i + r)/(x_i! Γ(r)) · B(5 + size·r, 8 + S)/B(5, 8).

    log K does not depend on the order of the counts.

    Parameters
    ----------
    size
        Counts in a data set.
    failures
        The r of the negative binomial; the larger, the nearer to Poisson.

    Returns
    -------
    problem
        Data of shape (n, size), whole numbers; parameters of shape (n,): λ in M0, p in M1.

    Examples
    --------
    >>> overdispersion()
    Problem('overdispersion', models=('Poisson', 'negative binomial'), augment=yes)
    """
    size, failures = count("size", size), positive("failures", failures)
    a, b, alpha, beta = 4.0, 0.4, 5.0, 8.0

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (size,))
        if not np.all((x >= 0) & (x == np.rint(x))):
            raise ValueError("x must hold counts: whole numbers from 0 up")
        total, factorials = x.sum(axis=1), gammaln(x + 1).sum(axis=1)
        poisson = (
            a * np.log(b) - gammaln(a) + gammaln(a + total) - (a + total) * np.log(b + size) - factorials
        )
        binomial = (gammaln(x + failures) - gammaln(failures)).sum(axis=1) - factorials
        binomial = binomial + betaln(alpha + size * failures, beta + total) - betaln(alpha, beta)
        return np.stack([poisson, binomial], axis=1)

    return Problem(
        name="overdispersion",
        models=(
            Model(
                "Poisson",
                lambda rng, rate: rng.poisson(rate[:, None], (len(rate), size)),
                prior=lambda rng, n: rng.standard_gamma(a, n) / b,
            ),
            Model(
                "negative binomial",
                lambda rng, p: rng.negative_binomial(failures, p[:, None], (len(p), size)),
                prior=lambda rng, n: rng.beta(alpha, beta, n),
            ),
        ),
        log_evidence=log_evidence,
        augment=shuffle,
    )


def contingency_table(height: int = 3, width: int = 4, *, total: int = 60) -> Problem:
    """Test whether the rows and columns of a table of counts are independent.

    `total` items fall into height × width cells. M0: the probability of a cell is u_i v_j, where u and v are
    each uniform on their simplex. M1: the probabilities are uniform on the simplex of all cells. Both
    evidences are Dirichlet-multinomial. For k counts c, let D(c) = Γ(k) ∏ Γ(c_i + 1) / Γ(k + Σ c_i), and let
    m be the multinomial coefficient. Then p(x|M0) = m D(row sums) D(column sums) and p(x|M1) = m D(x).

    log K does not change if rows are exchanged, or columns.

    Parameters
    ----------
    height, width
        Shape of the table, at least 2 × 2.
    total
        Sum of the table.

    Returns
    -------
    problem
        Data of shape (n, height, width), whole numbers; parameters of the same shape: the probabilities.

    Examples
    --------
    >>> contingency_table()
    Problem('contingency_table', models=('independent', 'dependent'), augment=yes)
    """
    height, width = count("height", height, least=2), count("width", width, least=2)
    total = count("total", total)

    def independent(rng: np.random.Generator, n: int) -> np.ndarray:
        return _simplex(rng, n, height)[:, :, None] * _simplex(rng, n, width)[:, None, :]

    def dependent(rng: np.random.Generator, n: int) -> np.ndarray:
        return _simplex(rng, n, height * width).reshape(n, height, width)

    def fill(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
        flat = probabilities.reshape(len(probabilities), height * width)
        return rng.multinomial(total, flat).reshape(probabilities.shape)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (height, width))
        if not (np.all(x >= 0) and np.all(x.sum(axis=(1, 2)) == total)):
            raise ValueError(f"every table must hold counts that sum to {total}")
        flat = x.reshape(len(x), height * width)
        log_ways = gammaln(total + 1) - gammaln(flat + 1).sum(axis=1)
        margins = _dirichlet(x.sum(axis=2)) + _dirichlet(x.sum(axis=1))
        return log_ways[:, None] + np.stack([margins, _dirichlet(flat)], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        row_order = rng.random((len(x), height, 1)).argsort(axis=1)
        column_order = rng.random((len(x), 1, width)).argsort(axis=2)
        return np.take_along_axis(np.take_along_axis(x, row_order, axis=1), column_order, axis=2)

    return Problem(
        name="contingency_table",
        models=(Model("independent", fill, prior=independent), Model("dependent", fill, prior=dependent)),
        log_evidence=log_evidence,
        augment=augment,
    )


def _simplex(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Draw points uniform on a simplex, shape (n, size)."""
    weights = rng.standard_exponential((n, size))
    return weights / weights.sum(axis=1, keepdims=True)


def _dirichlet(counts: np.ndarray) -> np.ndarray:
    """Return log ∫ ∏ p_i^{c_i} dp over the uniform distribution on the simplex."""
    size = counts.shape[1]
    return gammaln(size) + gammaln(counts + 1).sum(axis=1) - gammaln(size + counts.sum(axis=1))
