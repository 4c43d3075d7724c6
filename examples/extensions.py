"""Three questions beyond log K on the paper's time series, each compared with its exact answer.

    python examples/extensions.py [--quick] [--draws 2e5] [--dim 20] [--out FOLDER]

1. Absolute evidence: log p(x|growth), learned against a reference with a known density; once against a
   Gaussian fitted to the draws, and once against independent normals, which leave all correlations to the
   network.
2. A frequentist test with log K as its statistic: p-values, power, and false alarms among fresh draws. Here
   log K is a constant plus the square of a normal variable, so all of these have a closed form.
3. The posterior predictive test: which model predicts the second half of the series better from the first
   half? The parts of a normal vector are normal, so the exact K is known too.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

import evidencenet as en
from _common import Result, Row, figure, rms, run
from _series import log_k_of_part
from evidencenet.problems import Problem
from evidencenet.report import plots
from evidencenet.report.plots import BLACK, BLUE, ORANGE, legend

QUICK = {"draws": 20_000, "fresh": 8_000, "dim": 6, "epochs": 4}
FITTED, INDEPENDENT = "fitted Gaussian", "independent normals"
SIZES = (0.05, 0.01)


class Exact(NamedTuple):
    """The test in closed form: log K = (y² − log r)/2, y ~ N(0, (r − 1)/r) or N(0, r − 1) by the models."""

    ratio: float

    @staticmethod
    def of(problem: Problem, dim: int) -> "Exact":
        """Take r from the log K of a series of zeros, where y = 0."""
        return Exact(float(np.exp(-2 * problem.log_bayes_factor(np.zeros((1, dim)))[0])))

    def p_value(self, log_k: np.ndarray) -> np.ndarray:
        """Return how often data without growth have at least this log K."""
        square = 2 * log_k + np.log(self.ratio)
        spread = np.sqrt((self.ratio - 1) / self.ratio)
        return 2 * norm.sf(np.sqrt(np.maximum(square, 0)) / spread)

    def power(self, size: Any) -> np.ndarray:
        """Return how often the test rejects for data with growth."""
        return 2 * norm.sf(norm.isf(np.asarray(size) / 2) / np.sqrt(self.ratio))

    @property
    def auc(self) -> float:
        """The area under the ROC."""
        return float(2 / np.pi * np.arctan(np.sqrt(self.ratio)))


class Tested(NamedTuple):
    """The frequentist test of a network, p-values of fresh draws, and what is exact."""

    found: en.HypothesisTest
    exact: Exact
    p_value: np.ndarray
    exact_p_value: np.ndarray
    label: np.ndarray


def main(
    *,
    draws: int = 200_000,
    fresh: int = 20_000,
    dim: int = 20,
    epochs: int | None = None,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Answer the three questions.

    Parameters
    ----------
    draws, fresh
        To train each network on, and to judge by; both models together.
    dim
        Length of a series.
    epochs
        None means the default call with its trials; a number means so many epochs on Gaussians, without
        trials.
    seed
        Fixes all random numbers.
    progress
        Show progress bars.
    """
    problem = en.problems.time_series(dim)
    options: dict[str, Any] = {"augment": problem.augment, "progress": progress}
    if epochs is not None:
        options |= {"recipe": en.Recipe(epochs=epochs), "baseline": True, "members": 2}
    others = en.simulate(problem.models, fresh, seed=seed + 1000, progress=False)
    x = np.asarray(others.x)

    # Half of the draws come from the reference.
    of_growth = x[others.model == 1]
    references = {FITTED: None, INDEPENDENT: _independent(problem.models[1], seed)}
    evidence = {
        method: en.absolute_evidence(problem.models[1], draws // 2, reference=reference, seed=seed, **options)
        for method, reference in references.items()
    }
    exact_evidence = problem.log_evidence(of_growth)[:, 1]

    kept = np.arange(dim // 2)
    predictive = en.predictive_test(
        problem.models, kept, draws, seed=seed, for_kept={"augment": problem.augment}, **options
    )
    exact_predictive = problem.log_bayes_factor(x) - log_k_of_part(x, kept)

    test = _test(problem, predictive.whole, others, seed + 2000)
    part = {
        method: _judged(e.log_evidence(of_growth), e.error(of_growth), exact_evidence)
        for method, e in evidence.items()
    }
    foretold = predictive.log_bayes_factor(x)
    judged = _judged(foretold, predictive.error(x), exact_predictive)
    numbers = {
        "evidence": part,
        "evidence_spread": exact_evidence.std(),
        "test": _numbers(test),
        "predictive": judged,
        "predictive_spread": exact_predictive.std(),
    }
    shown = {method: e.log_evidence(of_growth[:1000]) for method, e in evidence.items()}
    return Result(
        f"Extensions: {dim} numbers, {draws:,} draws for each network",
        rows(numbers),
        numbers,
        {"": draw(shown, exact_evidence[:1000], test, foretold, exact_predictive)},
    )


def _independent(model: en.Model, seed: int) -> en.Model:
    """Return independent normals as wide as the numbers of a model's draws, with their density."""
    spread = np.asarray(en.simulate([model], 10_000, seed=seed + 3000, progress=False).x).std(axis=0)
    return en.Model(
        INDEPENDENT,
        lambda rng, n: spread * rng.normal(size=(n, len(spread))),
        log_density=lambda batch: norm(scale=spread).logpdf(batch).sum(axis=1),
    )


def _judged(estimate: np.ndarray, error: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    wrong = estimate - exact
    return {"rmse": rms(wrong), "bias": float(wrong.mean()), "pull": rms(wrong / error)}


def _test(problem: Problem, net: en.EvidenceNetwork, others: en.Simulations, seed: int) -> Tested:
    """Calibrate the test on one set of draws, and compute p-values of another."""
    calibration = en.simulate(problem.models, len(others), seed=seed, progress=False)
    found, exact = en.hypothesis_test(net, calibration), Exact.of(problem, np.asarray(others.x).shape[1])
    p_value = np.asarray(found.p_value(others.x).value)
    return Tested(found, exact, p_value, exact.p_value(problem.log_bayes_factor(others.x)), others.model)


def _numbers(test: Tested) -> dict[str, Any]:
    null = test.label == 0
    alarms = [np.mean(test.p_value[null] <= size) for size in SIZES]
    return {
        "sizes": SIZES,
        "alarms": alarms,
        # Of the draws that are counted, and of those that set the threshold.
        "alarms_error": [
            np.sqrt(size * (1 - size) * (1 / null.sum() + 1 / len(test.found.null))) for size in SIZES
        ],
        "power": [float(test.found.power(size)) for size in SIZES],
        "power_error": [float(test.found.power(size).error) for size in SIZES],
        "exact_power": test.exact.power(SIZES),
        "auc": float(test.found.auc),
        "auc_error": float(test.found.auc.error),
        "exact_auc": test.exact.auc,
        "p_value_rmse": rms(test.p_value - test.exact_p_value),
    }


def rows(numbers: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the table."""
    found = []
    for method, judged in numbers["evidence"].items():
        found += [
            Row(
                f"RMSE of log evidence in nats, {method}", f"{judged['rmse']:.3f}, bias {judged['bias']:+.3f}"
            ),
            Row(f"RMS of error over stated error, {method}", f"{judged['pull']:.2f}"),
        ]
    found.append(Row("standard deviation of exact log evidence", f"{numbers['evidence_spread']:.2f}"))
    test = numbers["test"]
    for i, size in enumerate(test["sizes"]):
        found += [
            Row(
                f"false alarms at size {size:g}",
                f"{test['alarms'][i]:.4f} ± {test['alarms_error'][i]:.4f} (nominal {size:g})",
            ),
            Row(
                f"power at size {size:g}",
                f"{test['power'][i]:.4f} ± {test['power_error'][i]:.4f} (exact {test['exact_power'][i]:.4f})",
            ),
        ]
    judged = numbers["predictive"]
    return [
        *found,
        Row(
            "area under the ROC",
            f"{test['auc']:.4f} ± {test['auc_error']:.4f} (exact {test['exact_auc']:.4f})",
        ),
        Row("RMS difference of p-values from exact ones", f"{test['p_value_rmse']:.4f}"),
        Row("RMSE of predictive log K in nats", f"{judged['rmse']:.3f}, bias {judged['bias']:+.3f}"),
        Row("RMS of error over stated error, predictive", f"{judged['pull']:.2f}"),
        Row("standard deviation of exact predictive log K", f"{numbers['predictive_spread']:.3f}"),
    ]


def draw(
    evidence: Mapping[str, np.ndarray],
    exact_evidence: np.ndarray,
    test: Tested,
    foretold: np.ndarray,
    exact_predictive: np.ndarray,
) -> Figure:
    """Draw the evidence, the power and the p-values of the test, and the predictive log K, against exact."""
    made, ((first, second), (third, fourth)) = figure((10.4, 9.6), 2, 2)
    for (method, values), colour, marker in zip(evidence.items(), (ORANGE, BLUE), "so", strict=True):
        label = f"{method}: RMSE {rms(values - exact_evidence):.2f}"
        first.plot(
            exact_evidence,
            values,
            marker,
            color=colour,
            markersize=3.5,
            alpha=0.7,
            markeredgewidth=0,
            label=label,
        )
    ends = exact_evidence.min(), exact_evidence.max()
    first.plot(ends, ends, color=BLACK, linestyle="--", linewidth=1)
    name = r"$\ln\,p(x|M_1)$"
    first.set(xlabel=f"exact {name}", ylabel=f"estimated {name}")
    legend(first, title="Absolute evidence, against")

    plots.roc(test.found, second)
    size = np.linspace(1e-6, 1, 400)
    second.plot(
        size, test.exact.power(size), ":", color=ORANGE, linewidth=2.5, label=f"exact, {test.exact.auc:.4f}"
    )
    legend(second)

    null = test.label == 0
    some = np.flatnonzero(null)[:: max(1, null.sum() // 1000)]
    third.plot(
        test.exact_p_value[some],
        test.p_value[some],
        "o",
        color=BLUE,
        markersize=3.5,
        alpha=0.7,
        markeredgewidth=0,
    )
    third.plot([1e-4, 1], [1e-4, 1], color=BLACK, linestyle="--", linewidth=1)
    third.set(
        xscale="log",
        yscale="log",
        xlim=(5e-4, 1.2),
        ylim=(5e-4, 1.2),
        xlabel="exact p-value",
        ylabel="p-value by the network",
        title="Draws without growth",
    )
    third.title.set_fontsize("medium")
    third.set_aspect("equal")

    every = slice(None, None, max(1, len(foretold) // 2000))
    plots.log_k(foretold[every], exact_predictive[every], fourth, base10=False)
    fourth.set(
        xlabel=r"exact $\ln\,K_{\mathrm{PPT}}$",
        ylabel=r"estimated $\ln\,K_{\mathrm{PPT}}$",
        title=rf"Predictive test: RMSE of $\ln\,K_{{\mathrm{{PPT}}}}$ {rms(foretold - exact_predictive):.3f}",
    )
    fourth.title.set_fontsize("medium")
    return made


if __name__ == "__main__":
    run(main, quick=QUICK)
