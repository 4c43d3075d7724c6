"""The paper's main result: log K of a noisy series of 100 numbers, against its exact value.

    python examples/time_series.py [--quick] [--draws 1e6] [--dim 100] [--epochs 40] [--out FOLDER]

Do the data contain a linear growth in addition to the oscillations? Both models have about as many parameters
as the series has numbers, and log K has a closed form. Two trainings use the same draws: the paper's recipe
(four networks; 40 epochs in which each draw has one random sign, where the paper has 20 with both signs) and
the default call. They are compared with the smallest error that these draws allow, that of a
maximum-likelihood fit that knows the form of log K. The blind coverage test follows, which needs no exact
answer.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import expit

import evidencenet as en
from _common import Result, Row, binned, figure, rms, run
from evidencenet.checks.coverage import Coverage
from evidencenet.problems import Problem
from evidencenet.report import plots
from evidencenet.report.plots import BLACK, BLUE, GREY, ORANGE, legend, symbol

QUICK = {"draws": 20_000, "fresh": 4_000, "dim": 5, "epochs": 6, "choose": False}
LOG10 = np.log(10)


class Answer(NamedTuple):
    """Log K of the fresh draws by one training, (n,), its stated errors, its coverage and its seconds."""

    method: str
    log_k: np.ndarray
    error: np.ndarray
    coverage: Coverage
    seconds: float


def main(
    *,
    draws: int = 1_000_000,
    fresh: int = 100_000,
    dim: int = 100,
    epochs: int = 40,
    choose: bool = True,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Make both trainings on the same draws, and compare with the exact answer on fresh draws.

    Parameters
    ----------
    draws, fresh
        Draws to train on, and fresh draws to judge by; both models together.
    dim
        Length of a series.
    epochs
        Epochs of the paper's recipe; the default call has its own.
    choose
        Whether the default call chooses its plan by trials, as it usually does.
    seed
        Fixes all random numbers.
    progress
        Show progress bars.
    """
    problem = en.problems.time_series(dim)
    sims = en.simulate(problem.models, draws, seed=seed, progress=progress)
    others = en.simulate(problem.models, fresh, seed=seed + 1000, progress=False)
    exact = problem.log_bayes_factor(others.x)
    recipe = replace(en.Recipe.paper(), epochs=epochs, patience=epochs)
    # The paper's error is the jackknife over the networks.
    methods: dict[str, dict[str, Any]] = {
        "paper's recipe": {"recipe": recipe, "learn_error": False},
        "default call": {} if choose else {"recipe": en.Recipe(), "baseline": True},
    }
    answers = []
    for method, options in methods.items():
        start = time.perf_counter()
        net = en.train(sims, augment=problem.augment, seed=seed, progress=progress, **options)
        seconds = time.perf_counter() - start
        log_k = net.log_bayes_factor(others.x)
        answers.append(Answer(method, log_k, net.error(others.x), en.coverage(log_k, others.model), seconds))
    limit = rms(known_form(np.asarray(sims.x), sims.model)(np.asarray(others.x)) - exact) / LOG10
    return Result(
        f"Time series of {dim} numbers, {draws:,} draws",
        rows(answers, exact, limit),
        numbers(answers, exact, limit),
        {
            "data": draw_data(problem, dim, seed),
            "log-k": draw_log_k(answers, exact),
            "coverage": draw_coverage(answers),
        },
    )


def known_form(x: np.ndarray, label: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Fit log K = (b·x)²/2 − c, its true form here, to draws (n, dim) by maximum likelihood; return it."""
    covariances = [np.cov(x[label == model], rowvar=False) for model in (0, 1)]
    inverses = [np.linalg.inv(covariance) for covariance in covariances]
    # The difference of the inverses is b bᵀ, but for noise.
    values, vectors = np.linalg.eigh(inverses[0] - inverses[1])
    spread = np.sqrt(np.diag(covariances[0]))
    shift = 0.5 * np.subtract(*(np.linalg.slogdet(covariance)[1] for covariance in covariances[::-1]))
    first = np.append(np.sqrt(max(values[-1], 0.0)) * vectors[:, -1] * spread, shift)

    def cost(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        projected = x @ (numbers[:-1] / spread).astype(x.dtype)
        log_k = 0.5 * projected.astype(float) ** 2 - numbers[-1]
        wrong = (expit(log_k) - label) / len(x)
        slope = (wrong * projected).astype(x.dtype) @ x / spread
        score = np.mean(np.logaddexp(0, log_k) - label * log_k)
        return float(score), np.append(slope, -wrong.sum()).astype(float)

    found = minimize(cost, first, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return lambda x: np.asarray(0.5 * (x @ (found[:-1] / spread)) ** 2 - found[-1])


def rows(answers: Sequence[Answer], exact: np.ndarray, limit: float) -> list[Row]:
    """Return the rows of the table."""
    paper = {"paper's recipe": "0.017 (their figure, 100 numbers), 0.0179 (their code)"}
    found = []
    for answer in answers:
        test, error = answer.coverage, answer.log_k - exact
        found += [
            Row(
                f"RMSE of log10 K, {answer.method}",
                f"{rms(error) / LOG10:.4f}",
                paper.get(answer.method, "–"),
            ),
            Row(
                f"coverage residuals in σ, {answer.method}",
                f"mean {test.mean_residual:.2f}, std {test.std_residual:.2f}, p-value {test.p_value:.2g}",
                "match σ" if answer.method in paper else "–",
            ),
            Row(f"RMS of error over stated error, {answer.method}", f"{rms(error / answer.error):.2f}"),
            Row(f"seconds of training, {answer.method}", f"{answer.seconds:.0f}"),
        ]
    low, high = exact.min() / LOG10, exact.max() / LOG10
    return [
        *found,
        Row("RMSE of log10 K, a fit that knows its form", f"{limit:.4f}"),
        Row("exact log10 K of the fresh draws", f"{low:.2f} to {high:.2f}"),
    ]


def numbers(answers: Sequence[Answer], exact: np.ndarray, limit: float) -> dict[str, Any]:
    """Return the numbers of the result; RMSE and bins are for log10 K."""
    return {
        "rmse_log10": {answer.method: rms(answer.log_k - exact) / LOG10 for answer in answers},
        "rmse_log10_limit": limit,
        "pull": {answer.method: rms((answer.log_k - exact) / answer.error) for answer in answers},
        "coverage_p_value": {answer.method: answer.coverage.p_value for answer in answers},
        "seconds": {answer.method: answer.seconds for answer in answers},
        "exact_log10": [exact.min() / LOG10, exact.max() / LOG10],
        "by_log10_k": {
            answer.method: binned(answer.log_k / LOG10, exact / LOG10, np.arange(-1, 12, 0.5))
            for answer in answers
        },
    }


def draw_data(problem: Problem, dim: int, seed: int) -> Figure:
    """Draw a series of each model, with and without its noise."""
    made, axes = figure((10, 3.6), 1, 2, sharey=True)
    # The same models with hardly any noise show the signal.
    quiet = en.problems.time_series(dim, noise=1e-3)
    t = np.linspace(0, np.pi / 2, dim)
    for axis, model, silent in zip(axes, problem.models, quiet.models, strict=True):
        rng = np.random.default_rng(seed)
        x, theta = model.draw(rng, 20)
        log_k = problem.log_bayes_factor(x)
        # As in the paper, a series whose evidence is for the model that made it, if there is one.
        one = int(np.argmax(log_k > 0 if silent is quiet.models[1] else log_k < 0))
        signal = silent.draw_data(rng, 20, theta)
        axis.plot(t, np.asarray(x)[one], "o", color=BLUE, markersize=3, alpha=0.7, label="data")
        axis.plot(t, np.asarray(signal)[one], color=ORANGE, linewidth=1.8, label="signal")
        title = f"{model.name}: exact {symbol(True)} = {log_k[one] / LOG10:.2f}".replace("-", "−")
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel("time $t$")
    axes[0].set_ylabel("$x(t)$")
    axes[0].legend(frameon=False)
    return made


def draw_log_k(answers: Sequence[Answer], exact: np.ndarray) -> Figure:
    """Draw estimated against exact log10 K, and the differences, for each method."""
    made, axes = figure((10, 4.4 * len(answers)), len(answers), 2)
    some = slice(None, None, max(1, len(exact) // 5000))
    reach = 1.1 * max(np.abs(answer.log_k - exact)[some].max() for answer in answers) / LOG10
    for (left, right), answer in zip(axes, answers, strict=True):
        plots.log_k(answer.log_k[some], exact[some], left)
        left.set_title(f"{answer.method}: RMSE {rms(answer.log_k - exact) / LOG10:.4f}", fontsize="medium")
        shown, error = exact[some] / LOG10, (answer.log_k - exact)[some] / LOG10
        right.plot(shown, error, "o", color=BLUE, markersize=2, alpha=0.35, markeredgewidth=0)
        right.axhline(0, color=GREY, linestyle="--", linewidth=1)
        bins = [b for b in binned(answer.log_k / LOG10, exact / LOG10, np.arange(-1, 12, 0.5)) if b["n"] > 20]
        right.plot([b["exact"] for b in bins], [b["bias"] for b in bins], "-s", color=BLACK, markersize=4)
        right.set(
            xlabel=f"exact {symbol(True)}", ylabel=f"estimated − exact {symbol(True)}", ylim=(-reach, reach)
        )
        right.set_title("dots: draws; squares: mean of a bin", fontsize="medium")
    return made


def draw_coverage(answers: Sequence[Answer]) -> Figure:
    """Draw the coverage test and its residuals in units of σ for each method."""
    made, axes = figure((10, 4.4 * len(answers)), len(answers), 2)
    for (left, right), answer in zip(axes, answers, strict=True):
        plots.coverage(answer.coverage, left)
        plots.residuals(answer.coverage, right)
        legend(right, title=answer.method)
        right.set_ylabel("(observed − predicted) / σ")
    return made


if __name__ == "__main__":
    run(main, quick=QUICK)
