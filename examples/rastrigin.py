"""The paper's example of a prior with many modes: log K is easy to learn, the posterior is not.

    python examples/rastrigin.py [--quick] [--draws 1e5] [--dims 1 2 5 10 20] [--out FOLDER]

The data are x = θ + noise in n components. In model 1 each θ has a Rastrigin prior, a comb of narrow peaks at
whole numbers, so the posterior has about 5ⁿ modes. In model 0 the prior is the Gaussian envelope of the comb.
The network sees only x. The example shows the posterior, the map of K for n = 2 with the exact one (by
quadrature), the error of log K as n grows, and the noisy limit, where the models become the same and K = 1.

There are two trainings for each n: the default call, and a network in which components can be exchanged.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from scipy.interpolate import CubicSpline

import evidencenet as en
from _common import Result, Row, figure, rms, run
from evidencenet.checks.scores import score
from evidencenet.problems import Problem
from evidencenet.report.plots import BLACK, BLUE, GREY, ORANGE, legend, symbol

QUICK = {
    "draws": 10_000,
    "fresh": 5_000,
    "dims": (1, 2),
    "noises": (1 / 16, 1.0),
    "epochs": 10,
    "members": 2,
    "choose": False,
}
PAPER_NOISE = 1 / 16
NETWORK = en.networks.DeepSet(waves=8)


def log_prior(theta: np.ndarray) -> np.ndarray:
    """Log density of the Rastrigin prior of one component, not normalised."""
    return -(theta**2) / 4 + 10 * (np.cos(2 * np.pi * theta) - 1)


def log_k_of_component(noise: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return log K of one component as a function of x, by quadrature over θ, for a variance of the noise."""
    theta, x = np.linspace(-12, 12, 4801), np.linspace(-15, 15, 3001)
    # For smooth functions that vanish at both ends the sum over an even grid is exact to rounding.
    comb = np.exp(log_prior(theta))
    comb /= comb.sum()
    evidence = np.exp(-0.5 * (x[:, None] - theta) ** 2 / noise) @ comb / np.sqrt(noise)
    gaussian = np.exp(-0.5 * x**2 / (2 + noise)) / np.sqrt(2 + noise)
    return CubicSpline(x, np.log(evidence / gaussian))


def with_noise(dim: int, noise: float) -> Problem:
    """Return the problem with another variance of the noise; its exact log K is by quadrature."""
    paper = en.problems.rastrigin(dim)
    component = log_k_of_component(noise)

    def observe(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        return theta + np.sqrt(noise) * rng.standard_normal(theta.shape)

    def log_evidence(x: Any) -> np.ndarray:
        gaussian = -0.5 * np.sum(x**2 / (2 + noise) + np.log(2 * np.pi * (2 + noise)), axis=1)
        return np.stack([gaussian, gaussian + component(x).sum(axis=1)], axis=1)

    models = tuple(en.Model(model.name, observe, prior=model.prior) for model in paper.models)
    return Problem("rastrigin", models, log_evidence, paper.augment)


def main(
    *,
    draws: int = 100_000,
    fresh: int = 20_000,
    dims: tuple[int, ...] = (1, 2, 5, 10, 20),
    noises: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1.0),
    epochs: int | None = None,
    members: int = 4,
    choose: bool = True,
    seed: int = 1,
) -> Result:
    """Train for each n, and for each noise at n = 2, and compare with the exact answer.

    Parameters
    ----------
    draws, fresh
        Draws to train on, and fresh draws to judge by; both models together.
    dims
        Numbers n of components; 2 must be among them.
    noises
        Variances of the noise for n = 2; the paper's is 1/16.
    epochs
        Epochs of the network with the symmetry; None lets the number of draws decide.
    members
        Networks in every ensemble.
    choose
        Whether to make the default call too, which chooses its plan by trials.
    seed
        Fixes all random numbers.
    """
    if 2 not in dims:
        raise ValueError(f"dims = {dims}; the map needs n = 2 among them.")
    methods: dict[str, dict[str, Any]] = {"default call": {"members": members}} if choose else {}
    told = {
        "members": members,
        "network": NETWORK,
        "loss": en.losses.Logistic(),
        "recipe": en.Recipe(epochs=epochs),
    }
    methods["exchangeable components"] = told
    by_dim: dict[str, list[dict[str, Any]]] = {}
    for method, options in methods.items():
        by_dim[method] = []
        for dim in dims:
            net, found = fitted(with_noise(dim, PAPER_NOISE), draws, fresh, seed, **options)
            by_dim[method].append({"dim": dim, **found})
            print(f"{method}, n = {dim}: RMSE of log K {found['rmse']:.4f}", flush=True)
            if dim == 2:
                shown = net
    (paper,) = (found for found in by_dim["exchangeable components"] if found["dim"] == 2)
    by_noise = []
    for noise in noises:
        found = paper
        if noise != PAPER_NOISE:
            found = fitted(with_noise(2, noise), draws, fresh, seed, **told)[1]
        by_noise.append({"noise": noise, **found})
    x = en.simulate(en.problems.rastrigin(2).models, fresh, seed=seed, progress=False).x
    difference = with_noise(2, PAPER_NOISE).log_bayes_factor(x) - en.problems.rastrigin(2).log_bayes_factor(x)
    return Result(
        f"A prior of very many modes, {draws:,} draws",
        rows(by_dim, by_noise),
        {"by_dim": by_dim, "by_noise": by_noise, "quadrature_against_series": np.abs(difference).max()},
        {"map": draw_map(shown), "error": draw_error(by_dim, by_noise)},
    )


def fitted(
    problem: Problem, draws: int, fresh: int, seed: int, **options: Any
) -> tuple[en.EvidenceNetwork, dict[str, float]]:
    """Train, and judge on fresh draws; all in nats."""
    sims = en.simulate(problem.models, draws, seed=seed, progress=False)
    others = en.simulate(problem.models, fresh, seed=seed + 1000, progress=False)
    start = time.perf_counter()
    net = en.train(sims, augment=problem.augment, learn_error=False, seed=seed, progress=False, **options)
    seconds = time.perf_counter() - start
    log_k, exact = net.log_bayes_factor(others.x), problem.log_bayes_factor(others.x)
    return net, {
        "rmse": rms(log_k - exact),
        "spread": float(exact.std()),
        "estimated_spread": float(log_k.std()),
        "mean": float(log_k.mean()),
        "excess": score(log_k, others.model).value - score(exact, others.model).value,
        "coverage": en.coverage(log_k, others.model).p_value,
        "seconds": seconds,
    }


def rows(by_dim: dict[str, list[dict[str, Any]]], by_noise: list[dict[str, Any]]) -> list[Row]:
    """Return the rows of the table; the paper has a picture and no numbers."""
    table = []
    for method, results in by_dim.items():
        for found in results:
            table.append(
                Row(
                    f"RMSE of ln K, n = {found['dim']}, {method}",
                    f"{found['rmse']:.3f} of a spread of {found['spread']:.2f}; "
                    f"coverage p-value {found['coverage']:.2g}; {found['seconds']:.0f} s",
                    "a map of K, no number" if found["dim"] == 2 else "–",
                )
            )
    for found in by_noise:
        table.append(
            Row(
                f"spread of ln K, n = 2, noise variance {found['noise']:g}",
                f"exact {found['spread']:.2g}, network {found['estimated_spread']:.2g}, "
                f"RMSE {found['rmse']:.2g}",
                {1 / 16: "amplitude of order 1", max(by_noise, key=_noise)["noise"]: "K → 1"}.get(
                    found["noise"], "–"
                ),
            )
        )
    return table


def draw_map(net: en.EvidenceNetwork) -> Figure:
    """Draw the posterior of two components in model 1, and the estimated and exact maps of K."""
    made, axes = figure((10, 8.6), 2, 2)
    (top, exact_axis), (net_axis, error_axis) = axes
    theta = np.linspace(-3, 3, 601)
    # As in the text of the paper: x = 0, seen with noise of variance 1.
    one = np.exp(log_prior(theta) - theta**2 / 2)
    top.pcolormesh(
        theta,
        theta,
        np.outer(one, one) / one.max() ** 2,
        cmap="cividis",
        norm=PowerNorm(0.4),
        rasterized=True,
    )
    top.set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$")
    top.set_title("posterior to the power 0.4 in model 1, $x = 0$, noise variance 1", fontsize="medium")
    x = np.linspace(-3, 3, 241)
    grid = np.stack(np.meshgrid(x, x), axis=-1)
    component = log_k_of_component(PAPER_NOISE)
    exact = component(grid).sum(axis=-1)
    estimate = net.log_bayes_factor(grid.reshape(-1, 2)).reshape(exact.shape)
    panels = [
        (exact_axis, np.exp(exact), "exact $K$ (quadrature)"),
        (net_axis, np.exp(estimate), "estimated $K$"),
        (error_axis, estimate - exact, f"estimated − exact {symbol(False)}"),
    ]
    for axis, values, title in panels:
        style: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": float(np.exp(exact).max())}
        if axis is error_axis:
            reach = float(np.quantile(np.abs(values), 0.99))
            style = {"cmap": "PuOr", "vmin": -reach, "vmax": reach}
        mesh = axis.pcolormesh(x, x, values, rasterized=True, **style)
        made.colorbar(mesh, ax=axis)
        axis.set(xlabel="$x_1$", ylabel="$x_2$")
        axis.set_title(title, fontsize="medium")
    for axis in axes.flat:
        axis.set_aspect("equal")
    return made


def draw_error(by_dim: dict[str, list[dict[str, Any]]], by_noise: list[dict[str, Any]]) -> Figure:
    """Draw the error of log K against the number of components, and the noisy limit."""
    made, (left, right) = figure((10, 4.2), 1, 2)
    for (method, results), marker, colour in zip(by_dim.items(), ("s", "o"), (ORANGE, BLUE), strict=False):
        n = [found["dim"] for found in results]
        left.loglog(
            n, [found["rmse"] for found in results], marker + "-", color=colour, label=f"RMSE, {method}"
        )
    left.loglog(n, [found["spread"] for found in results], "^--", color=GREY, label="spread of exact")
    left.set(xlabel="components $n$", ylabel=f"{symbol(False)}")
    left.set_xticks(n, [str(value) for value in n], minor=False)
    left.xaxis.set_minor_locator(NullLocator())
    noise = [found["noise"] for found in by_noise]
    for key, style, colour, label in (
        ("spread", "^--", GREY, "spread of exact"),
        ("estimated_spread", "s-", ORANGE, "spread of estimate"),
        ("rmse", "o-", BLUE, "RMSE"),
    ):
        # A network that learns nothing gives 0 everywhere, which a logarithmic scale cannot show.
        right.loglog(noise, [found[key] or np.nan for found in by_noise], style, color=colour, label=label)
    right.axvline(PAPER_NOISE, color=BLACK, linewidth=0.8, linestyle=":")
    right.set(xlabel="noise variance (dotted: the paper's)", ylabel=f"{symbol(False)}, $n = 2$")
    for axis in (left, right):
        legend(axis)
    return made


def _noise(found: dict[str, Any]) -> float:
    return float(found["noise"])


if __name__ == "__main__":
    run(main, quick=QUICK)
