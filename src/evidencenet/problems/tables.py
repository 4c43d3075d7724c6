"""Tables of answers: one row for each person, one column for each question."""

import numpy as np

from evidencenet._common.arrays import Data
from evidencenet.problems._data import array, count, in_chunks, positive, rows, shuffle_along
from evidencenet.problems._quadrature import log_integral, trapezoid
from evidencenet.problems.problem import Problem
from evidencenet.simulation.model import Model


def questionnaire(
    persons: int = 20, questions: int = 8, *, spread: float = 0.8, step: float = 0.15
) -> Problem:
    """Test whether the persons who took a test differ in ability: a binary table.

    Person i answers question j correctly with probability 1 / (1 + exp(d_j − θ_i)) (the Rasch model). The
    difficulties are known, d = linspace(−1.5, 1.5, questions). M0: all persons have the same ability, θ_i =
    μ. M1: θ_i ~ N(μ, τ²) with τ ~ |N(0, spread²)|. In both models μ ~ N(0, 1).

    The likelihood of a person's answers depends on θ_i only through the number s of correct answers: it is ∝
    exp(s θ_i) / ∏_j (1 + exp(θ_i − d_j)). Its mean over θ_i is computed once for each s, μ and τ. For a given
    table, only the number of persons with each s is then needed. The means over θ_i, μ and τ are computed
    with the trapezoidal rule.

    log K does not depend on the order of the persons.

    Parameters
    ----------
    persons
        Number of persons: rows of the table.
    questions
        Number of questions: columns of the table.
    spread
        Scale of the prior of τ.
    step
        Quadrature step for τ.

    Returns
    -------
    problem
        Data of shape (n, persons, questions): 1 for a correct answer, 0 for a wrong one. Parameters ``mean``,
        and ``tau`` in M1.

    Examples
    --------
    >>> questionnaire()
    Problem('questionnaire', models=('one ability', 'many abilities'), augment=yes)
    """
    persons, questions = count("persons", persons), count("questions", questions)
    spread, step = positive("spread", spread), positive("step", step)
    difficulties = np.linspace(-1.5, 1.5, questions)
    scores = np.arange(questions + 1)

    def log_row(theta: np.ndarray) -> np.ndarray:
        """Return the log likelihood of each score at each ability, without Σ_j x_j d_j: (scores, ...)."""
        norm = np.logaddexp(0.0, theta[..., None] - difficulties).sum(axis=-1)
        return scores.reshape(-1, *[1] * theta.ndim) * theta - norm

    # The posterior of μ has a standard deviation of at least 1/√(1 + persons · questions / 4). With 0.9 of it
    # as the step, the error of the trapezoidal rule is about exp(−2π²/0.9²) = 3e-11.
    mean, mean_step = trapezoid(9.0, 0.9 / np.sqrt(1 + 0.25 * persons * questions))
    mean_weights = mean_step - 0.5 * mean**2 - 0.5 * np.log(2 * np.pi)
    # The integrand depends on τ only through τ², so it is smooth on the whole line. The nodes with τ > 0 get
    # twice the weight, instead of those with τ < 0.
    tau, tau_step = trapezoid(8.0 * spread, step)
    tau_weights = tau_step - 0.5 * (tau / spread) ** 2 - np.log(spread * np.sqrt(2 * np.pi))
    middle = len(tau) // 2
    tau, tau_weights = tau[middle:], tau_weights[middle:] + np.log(2)
    tau_weights[0] -= np.log(2)
    unit, unit_step = trapezoid(9.0, 0.1)
    unit_weights = unit_step - 0.5 * unit**2 - 0.5 * np.log(2 * np.pi)
    one_ability = log_row(mean)
    many_abilities = np.stack(
        [log_integral(log_row(mean[:, None] + width * unit), unit_weights) for width in tau], axis=2
    ).reshape(len(scores), -1)
    weights = (mean_weights[:, None] + tau_weights).ravel()

    def answer(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        n = len(theta["mean"])
        ability = np.repeat(theta["mean"][:, None], persons, axis=1)
        if "tau" in theta:
            ability = ability + theta["tau"][:, None] * rng.standard_normal((n, persons))
        chance = 1 / (1 + np.exp(difficulties - ability[:, :, None]))
        return (rng.random((n, persons, questions)) < chance).astype(np.float32)

    def log_evidence(x: Data) -> np.ndarray:
        x = rows(x, (persons, questions))
        if not np.all((x == 0) | (x == 1)):
            raise ValueError("x must hold zeros and ones only")
        correct = x.sum(axis=2)
        number = (correct[:, :, None] == scores).sum(axis=1).astype(float)
        easiness = -x.sum(axis=1) @ difficulties
        return easiness[:, None] + in_chunks(_log_evidence, number, 500)

    def _log_evidence(number: np.ndarray) -> np.ndarray:
        columns = [
            log_integral(number @ one_ability, mean_weights),
            log_integral(number @ many_abilities, weights),
        ]
        return np.stack(columns, axis=1)

    def one_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"mean": rng.standard_normal(n)}

    def many_prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"mean": rng.standard_normal(n), "tau": spread * np.abs(rng.standard_normal(n))}

    return Problem(
        name="questionnaire",
        models=(
            Model("one ability", answer, prior=one_prior),
            Model("many abilities", answer, prior=many_prior),
        ),
        log_evidence=log_evidence,
        augment=lambda rng, x: shuffle_along(rng, array(x), 1),
    )
