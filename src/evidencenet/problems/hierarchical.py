"""Hierarchical models: groups that share a mean, or have means of their own."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import (
    array,
    boolean,
    count,
    flip_signs,
    in_chunks,
    named_arrays,
    positive,
    rows,
    shuffle_along,
    signs,
)
from evidencenet.problems._quadrature import log_integral, trapezoid
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def meta_analysis(studies: int = 12, *, scatter: float = 0.3, step: float = 0.1) -> Problem:
    """Test whether studies of the same effect disagree by more than their stated errors.

    Study j reports an effect y_j and its standard error s_j, with log s_j ~ U(log 0.2, log 0.6). M0: all
    studies measure the same effect, y_j ~ N(μ, s_j²). M1: the true effects differ, y_j ~ N(μ, s_j² + τ²),
    with log τ ~ N(log scatter, ½²). In both models μ ~ N(0, 1). At given τ the evidence is normal. The mean
    over log τ is computed with the trapezoidal rule. The evidence is that of the y_j, given the s_j. The
    distribution of the s_j is the same in both models, so it cancels and is left out.

    log K does not depend on the order of the studies, and does not change if all effects change their sign.

    Parameters
    ----------
    studies
        Number of studies.
    scatter
        Median of the prior of τ, the standard deviation of the true effects.
    step
        Quadrature step for log τ.

    Returns
    -------
    problem
        Data of shape (n, studies, 2), float64: effect and standard error. Parameters ``mean``, and ``tau`` in
        M1.

    Examples
    --------
    >>> meta_analysis()
    Problem('meta_analysis', models=('one effect', 'varying effects'), augment=yes)
    """
    studies = count("studies", studies, least=2)
    scatter, step = positive("scatter", scatter), positive("step", step)

    def report(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["mean"])
        errors = 0.2 * 3.0 ** rng.random((n, studies))
        effects = theta["mean"][:, None] + errors * rng.standard_normal((n, studies))
        if "tau" in theta:
            effects += theta["tau"][:, None] * rng.standard_normal((n, studies))
        return np.stack([effects, errors], axis=2)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (studies, 2))
        if not np.all(x[..., 1] > 0):
            raise ValueError("every standard error must be above 0")
        groups = np.stack([x[..., 0], x[..., 1] ** 2, np.ones(x.shape[:2])], axis=1)
        return in_chunks(lambda part: _log_evidence_of_means(part, scatter, step), groups, 2_000)

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = shuffle_along(rng, array(x), 1).copy()
        x[..., 0] = flip_signs(rng, x[..., 0])
        return x

    return Problem(
        name="meta_analysis",
        models=(
            Model("one effect", report, prior=_one_mean),
            Model("varying effects", report, prior=lambda rng, n: _many_means(rng, n, scatter)),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def subjects(capacity: int = 8, trials: int = 12, *, scatter: float = 0.4, step: float = 0.1) -> Problem:
    """Test whether the subjects of an experiment differ: a set of subjects, each a set of trials.

    The number of subjects is uniform on 4..capacity (or it is the capacity, if that is below 4). Subject j
    has m_j trials, uniform on 2..trials. M0: all trials have the same mean, x_ji ~ N(μ, 1). M1: each subject
    has its own mean, x_ji ~ N(μ_j, 1) with μ_j ~ N(μ, τ²) and log τ ~ N(log scatter, ½²). In both models μ ~
    N(0, 1).

    The deviations of the trials from the mean of their subject have the same distribution in both models. The
    mean of subject j is N(μ, τ² + 1/m_j), and the rest is as in `meta_analysis`. The evidence is that of the
    trials, given their numbers.

    log K does not depend on the order of the subjects or of the trials, and does not change if all values
    change their sign.

    Parameters
    ----------
    capacity
        The largest number of subjects.
    trials
        The largest number of trials of a subject.
    scatter
        Median of the prior of τ, the standard deviation of the true means.
    step
        Quadrature step for log τ.

    Returns
    -------
    problem
        Data: dict with ``x`` (n, capacity, trials), float32, zero where there is no trial, and ``mask`` of
        the same shape, bool. Parameters ``mean``, and ``tau`` in M1.

    Examples
    --------
    >>> subjects()
    Problem('subjects', models=('alike', 'different'), augment=yes)
    """
    capacity, trials = count("capacity", capacity, least=2), count("trials", trials, least=2)
    scatter, step = positive("scatter", scatter), positive("step", step)

    def sample(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> Data:
        n = len(theta["mean"])
        number = rng.integers(min(4, capacity), capacity + 1, (n, 1))
        each = rng.integers(2, trials + 1, (n, capacity))
        each = np.where(np.arange(capacity) < number, each, 0)
        mask = np.arange(trials) < each[:, :, None]
        means = np.repeat(theta["mean"][:, None], capacity, axis=1)
        if "tau" in theta:
            means = means + theta["tau"][:, None] * rng.standard_normal((n, capacity))
        x = means[:, :, None] + rng.standard_normal((n, capacity, trials))
        return {"x": (x * mask).astype(np.float32), "mask": mask}

    def log_evidence(x: Data) -> np.ndarray:
        x = named_arrays(x)
        values = rows(x["x"], (capacity, trials))
        mask = boolean(x["mask"], values.shape)
        values, number = np.where(mask, values, 0.0), mask.sum(axis=2)
        if not mask.any(axis=(1, 2)).all():
            raise ValueError("every data set must have at least one trial")
        size = np.maximum(number, 1)
        means = values.sum(axis=2) / size
        deviations = (((values - means[:, :, None]) * mask) ** 2).sum(axis=(1, 2))
        present = number > 0
        # The density of m values is that of their mean times this factor.
        within = -0.5 * (deviations + (np.log(size) + (number - present) * np.log(2 * np.pi)).sum(axis=1))
        groups = np.stack([means, 1.0 / size, present], axis=1)
        between = in_chunks(lambda part: _log_evidence_of_means(part, scatter, step), groups, 2_000)
        return within[:, None] + between

    def augment(rng: np.random.Generator, x: Data) -> Data:
        x = named_arrays(x)
        # Values and mask must move together, so they are shuffled as one array.
        both = np.stack([x["x"], x["mask"]], axis=-1)
        trial_order = rng.random(x["x"].shape).argsort(axis=2)
        both = np.take_along_axis(both, trial_order[..., None], axis=2)
        both = shuffle_along(rng, both, 1)
        sign = signs(rng, (len(both), 1, 1)).astype(x["x"].dtype)
        return {"x": both[..., 0] * sign, "mask": both[..., 1].astype(bool)}

    return Problem(
        name="subjects",
        models=(
            Model("alike", sample, prior=_one_mean),
            Model("different", sample, prior=lambda rng, n: _many_means(rng, n, scatter)),
        ),
        log_evidence=log_evidence,
        augment=augment,
    )


def _one_mean(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {"mean": rng.standard_normal(n)}


def _many_means(rng: np.random.Generator, n: int, scatter: float) -> dict[str, np.ndarray]:
    return {"mean": rng.standard_normal(n), "tau": scatter * np.exp(0.5 * rng.standard_normal(n))}


def _log_evidence_of_means(groups: np.ndarray, scatter: float, step: float) -> np.ndarray:
    """Return the log evidence of the groups' means without and with a scatter τ between them, shape (n, 2).

    `groups` has shape (n, 3, groups): the mean, its squared error, and 1 if the group is there, else 0. At
    given τ the means are N(μ, variance_j + τ²) with μ ~ N(0, 1).
    """
    means, variances, present = groups.transpose(1, 0, 2)[:, :, None, :]
    offsets, log_step = trapezoid(4.0, step)
    log_weights = log_step - 0.5 * (offsets / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))

    def log_density(tau: np.ndarray) -> np.ndarray:
        weights = present / (variances + tau[:, None] ** 2)
        total, weighted = weights.sum(axis=2), (weights * means).sum(axis=2)
        squares = (weights * means**2).sum(axis=2) - weighted**2 / (1 + total)
        # An absent group has weight 0. It is replaced by 1 here, whose logarithm adds nothing.
        logs = np.log(np.where(present > 0, weights, 1.0)).sum(axis=2) - np.log1p(total)
        return 0.5 * (logs - squares - present.sum(axis=2) * np.log(2 * np.pi))

    varying = log_integral(log_density(scatter * np.exp(offsets)), log_weights)
    return np.stack([log_density(np.zeros(1))[:, 0], varying], axis=1)
