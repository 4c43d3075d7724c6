"""Letters: sequences whose values are names, not amounts."""

import numpy as np
from scipy.special import gammaln

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, positive, rows
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def markov_chain(length: int = 60, letters: int = 4, *, concentration: float = 2.0) -> Problem:
    """Distinguish independent letters from a Markov chain, as in a stretch of DNA.

    M0: all letters are independent and have the same probabilities, p ~ Dirichlet(concentration, ...). M1:
    the first letter is uniform, and each next letter depends on the one before it. Each row of the transition
    matrix ~ Dirichlet(concentration, ...), independently. Both evidences are Dirichlet-multinomial. For k
    counts c, let D(c) = Γ(kα) / Γ(kα + Σ c_i) · ∏ Γ(c_i + α) / Γ(α), with α = concentration and k the number
    of letters. Then

        p(x|M0) = D(counts of the letters),
        p(x|M1) = 1/k · ∏_a D(counts of the letters that follow the letter a).

    log K does not change if two letters are exchanged everywhere: they are names, not amounts.

    Parameters
    ----------
    length
        Letters in a sequence.
    letters
        Number of different letters.
    concentration
        Parameter of the Dirichlet priors. The larger it is, the more alike are all probabilities, and the
        more similar are the two models.

    Returns
    -------
    problem
        Data of shape (n, length): whole numbers from 0 to letters − 1. Parameters: the probabilities, of
        shape (n, letters) in M0; the transition matrix, of shape (n, letters, letters), in M1.

    Examples
    --------
    >>> markov_chain()
    Problem('markov_chain', models=('independent', 'chain'), augment=yes)
    """
    length, letters = count("length", length, least=2), count("letters", letters, least=2)
    concentration = positive("concentration", concentration)

    def probabilities(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        weights = rng.standard_gamma(concentration, shape)
        return weights / weights.sum(axis=-1, keepdims=True)

    def independent(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
        return _letter(rng.random((len(p), length)), p[:, None, :])

    def chain(rng: np.random.Generator, transition: np.ndarray) -> np.ndarray:
        uniform, row = rng.random((len(transition), length)), np.arange(len(transition))
        x = np.empty((len(transition), length), dtype=np.int64)
        x[:, 0] = (letters * uniform[:, 0]).astype(np.int64)
        for t in range(1, length):
            x[:, t] = _letter(uniform[:, t], transition[row, x[:, t - 1]])
        return x

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (length,))
        if not np.all((x >= 0) & (x < letters) & (x == np.rint(x))):
            raise ValueError(f"x must hold letters: whole numbers from 0 to {letters - 1}")
        x = x.astype(np.int64)
        single = _counts(x, letters)
        pairs = _counts(letters * x[:, :-1] + x[:, 1:], letters**2).reshape(len(x), letters, letters)
        following = _log_dirichlet(pairs, concentration).sum(axis=1) - np.log(letters)
        return np.stack([_log_dirichlet(single, concentration), following], axis=1)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = array(x)
        names = rng.random((len(x), letters)).argsort(axis=1)
        return np.take_along_axis(names, x.astype(np.int64), axis=1).astype(x.dtype)

    return Problem(
        name="markov_chain",
        models=(
            Model("independent", independent, prior=lambda rng, n: probabilities(rng, (n, letters))),
            Model("chain", chain, prior=lambda rng, n: probabilities(rng, (n, letters, letters))),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def _letter(uniform: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Turn uniform numbers into letters with the probabilities p, which lie along the last axis of p."""
    # The last bound, 1, is left out: rounding could make it smaller than the uniform number.
    bounds = p.cumsum(axis=-1)[..., :-1]
    return (uniform[..., None] > bounds).sum(axis=-1)


def _counts(x: np.ndarray, kinds: int) -> np.ndarray:
    """Count each value 0..kinds−1 in each row, shape (n, kinds)."""
    offset = kinds * np.arange(len(x))[:, None]
    return np.bincount((x + offset).ravel(), minlength=kinds * len(x)).reshape(len(x), kinds)


def _log_dirichlet(counts: np.ndarray, concentration: float) -> np.ndarray:
    """Return log ∫ ∏ p_i^{c_i} dp over Dirichlet(concentration, ...), for counts along the last axis."""
    kinds = counts.shape[-1]
    of_total = gammaln(kinds * concentration) - gammaln(kinds * concentration + counts.sum(axis=-1))
    return of_total + (gammaln(counts + concentration) - gammaln(concentration)).sum(axis=-1)
