"""Against density estimation: log K as the ratio of two normalizing flows, on the same draws.

    python examples/density_estimation.py [--quick] [--draws 2e5] [--dim 20] [--epochs 15] [--out FOLDER]

Neural spline flows (flowjax) learn p(x|M) of each model of the paper's time series, and their ratio is K.
Evidence networks learn log K directly. Each method is tried with and without Gaussians as a start: for flows
this means that the data of each model are whitened; for networks, that they correct Gaussians fitted to each
model. All are compared with the exact log K. The ratio of the fitted Gaussians alone, which have the true
form here, shows the smallest error that these draws allow for an estimate of densities.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import paramax
from flowjax.bijections import RationalQuadraticSpline
from flowjax.distributions import Normal
from flowjax.flows import coupling_flow
from flowjax.train import fit_to_data
from flowjax.train.losses import MaximumLikelihoodLoss
from matplotlib.figure import Figure
from scipy.stats import multivariate_normal

import evidencenet as en
from _common import Result, Row, figure, rms, run
from evidencenet.report.plots import BLACK, BLUE, GREY, ORANGE, symbol

QUICK = {
    "draws": 8_000,
    "fresh": 4_000,
    "dim": 4,
    "epochs": 5,
    "layers": 2,
    "width": 16,
    "batch": 200,
    "network_epochs": 4,
}
LOG10 = np.log(10)
FLOW, WHITE, ALONE, NETWORK = "flows", "flows, whitened data", "network alone", "network on Gaussians"
GAUSSIANS = "Gaussians, fitted"


class Answer(NamedTuple):
    """Log K of the fresh draws by one method, (n,); how many numbers were fitted; seconds of all cores."""

    log_k: np.ndarray
    parameters: int
    seconds: float
    note: str = ""


class Density(NamedTuple):
    """A fitted log density, its number of parameters, and how many epochs it was trained."""

    log_density: Callable[[np.ndarray], np.ndarray]
    parameters: int
    epochs: int


class Flow(NamedTuple):
    """A flow before training, and how to train it.

    All flows start from this one: with one structure, one loss and one optimiser, JAX compiles once.
    """

    start: Any
    epochs: int
    patience: int
    batch: int
    loss: MaximumLikelihoodLoss
    optimiser: optax.GradientTransformation


def main(
    *,
    draws: int = 200_000,
    fresh: int = 20_000,
    dim: int = 20,
    layers: int = 6,
    width: int = 64,
    knots: int = 8,
    epochs: int = 15,
    patience: int = 5,
    batch: int = 500,
    network_epochs: int | None = None,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Fit flows and networks to the same draws, and compare them on fresh draws.

    Parameters
    ----------
    draws, fresh
        Draws to train on, and fresh draws to judge by; both models together.
    dim
        Length of a series.
    layers, width, knots
        Of a flow: coupling layers; width of the two hidden layers of each; knots of each spline.
    epochs, patience, batch
        Of a flow: at most so many passes, fewer if the held-out tenth has not improved for `patience` of
        them; draws in a batch. The learning rate falls from 1e-3 to zero along a cosine.
    network_epochs
        Epochs of the networks; None means those of the recipe.
    seed
        Fixes all random numbers.
    progress
        Print each line as soon as it is measured.
    """
    problem = en.problems.time_series(dim)
    sims = en.simulate(problem.models, draws, seed=seed, progress=False)
    others = np.asarray(en.simulate(problem.models, fresh, seed=seed + 1000, progress=False).x)
    exact = problem.log_bayes_factor(others)
    sides = [np.asarray(sims.of(model)) for model in (0, 1)]
    steps = epochs * int(0.9 * len(sides[0]) // batch)
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-3, steps))
    start = coupling_flow(
        jax.random.key(seed),
        base_dist=Normal(jnp.zeros(dim)),
        # Beyond ±5 the spline is the identity; the data have unit variance.
        transformer=RationalQuadraticSpline(knots=knots, interval=5),
        flow_layers=layers,
        nn_width=width,
        nn_depth=2,
    )
    flow = Flow(start, epochs, patience, batch, MaximumLikelihoodLoss(), optimiser)
    methods: dict[str, Callable[[], Answer]] = {
        FLOW: lambda: _ratio(lambda x, i: _flow(x, flow, False, seed + i), sides, others),
        WHITE: lambda: _ratio(lambda x, i: _flow(x, flow, True, seed + i), sides, others),
        ALONE: lambda: _network(sims, problem.augment, False, network_epochs, others, seed),
        NETWORK: lambda: _network(sims, problem.augment, True, network_epochs, others, seed),
        GAUSSIANS: lambda: _ratio(lambda x, _: _gaussian(x), sides, others),
    }
    answers = {}
    for method, ask in methods.items():
        clock = time.process_time()
        answers[method] = ask()._replace(seconds=time.process_time() - clock)
        if progress:
            print(f"{method}: RMSE of log10 K {rms(answers[method].log_k - exact) / LOG10:.4f}", flush=True)
    return Result(
        f"Density estimation against networks: {dim} numbers, {draws:,} draws",
        rows(answers, exact),
        {
            method: {
                "rmse_log10": rms(answer.log_k - exact) / LOG10,
                "bias_log10": float(np.mean(answer.log_k - exact)) / LOG10,
                "parameters": answer.parameters,
                "seconds": answer.seconds,
            }
            for method, answer in answers.items()
        },
        {"": draw(answers, exact)},
    )


def _ratio(fit: Callable[[np.ndarray, int], Density], sides: list[np.ndarray], others: np.ndarray) -> Answer:
    """Fit a density to the draws of each model, and take the ratio."""
    without, growth = (fit(x, i) for i, x in enumerate(sides))
    log_k = growth.log_density(others) - without.log_density(others)
    note = f"{without.epochs} and {growth.epochs} epochs" if growth.epochs else ""
    return Answer(log_k, without.parameters + growth.parameters, np.nan, note)


def _flow(x: np.ndarray, plan: Flow, whiten: bool, seed: int) -> Density:
    """Fit a neural spline flow to draws (n, dim), scaled to unit variance, or to unit covariance.

    The networks know the symmetry of x and −x, so the flows get it too: their density is the mean of both.
    """
    mean = x.mean(axis=0, dtype=np.float64)
    covariance = np.cov(x, rowvar=False)
    factor = np.linalg.cholesky(covariance) if whiten else np.diag(np.sqrt(np.diag(covariance)))
    inverse, log_volume = np.linalg.inv(factor).T, np.log(np.diag(factor)).sum()

    def scaled(x: np.ndarray) -> np.ndarray:
        return ((x - mean) @ inverse).astype(np.float32)

    flow, losses = fit_to_data(
        jax.random.key(seed),
        plan.start,
        scaled(x),
        loss_fn=plan.loss,
        optimizer=plan.optimiser,
        max_epochs=plan.epochs,
        max_patience=plan.patience,
        batch_size=plan.batch,
        show_progress=False,
    )
    fitted = eqx.filter(
        flow, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable)
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(fitted))

    def log_density(y: np.ndarray) -> np.ndarray:
        sides = [np.asarray(_log_prob(flow, scaled(z)), dtype=np.float64) for z in (y, -y)]
        return np.logaddexp(*sides) - np.log(2) - log_volume

    return Density(log_density, count, len(losses["train"]))


@eqx.filter_jit
def _log_prob(flow: Any, x: np.ndarray) -> jax.Array:
    return flow.log_prob(x)


def _gaussian(x: np.ndarray) -> Density:
    """Fit a normal density, of the mean and covariance of the draws (n, dim)."""
    dim = x.shape[1]
    law = multivariate_normal(x.mean(axis=0, dtype=np.float64), np.cov(x, rowvar=False))
    return Density(law.logpdf, dim + dim * (dim + 1) // 2, 0)


def _network(
    sims: en.Simulations, augment: Any, baseline: bool, epochs: int | None, others: np.ndarray, seed: int
) -> Answer:
    """Train four networks with the l-POP loss, as in the paper, alone or on fitted Gaussians."""
    net = en.train(
        sims,
        augment=augment,
        baseline=baseline,
        recipe=en.Recipe(epochs=epochs),
        learn_error=False,
        seed=seed,
        progress=False,
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(net.networks) if eqx.is_inexact_array(leaf))
    return Answer(net.log_bayes_factor(others), count, np.nan, "4 members")


def rows(answers: Mapping[str, Answer], exact: np.ndarray) -> list[Row]:
    """Return the rows of the table."""
    error = {method: rms(answer.log_k - exact) / LOG10 for method, answer in answers.items()}
    found = []
    for method, answer in answers.items():
        note = f", {answer.note}" if answer.note else ""
        found.append(Row(f"RMSE of log10 K, {method}", f"{error[method]:.4f}"))
        found.append(
            Row(
                f"core-seconds, {method}",
                f"{answer.seconds:.0f} ({answer.parameters:,} numbers fitted{note})",
            )
        )
    return [
        *found,
        Row("error of flows over that of the network alone", f"{error[FLOW] / error[ALONE]:.1f}", "> 10"),
        Row(
            "the same, whitened data and network on Gaussians", f"{error[WHITE] / error[NETWORK]:.1f}", "> 10"
        ),
        Row("standard deviation of exact log10 K", f"{exact.std() / LOG10:.3f}"),
    ]


def draw(answers: Mapping[str, Answer], exact: np.ndarray) -> Figure:
    """Draw estimated against exact log10 K, and how the errors are distributed."""
    styles = {FLOW: (ORANGE, ":"), WHITE: (GREY, "--"), ALONE: (BLACK, "-."), NETWORK: (BLUE, "-")}
    made, (left, right) = figure((11, 4.8), 1, 2)
    some = slice(None, None, max(1, len(exact) // 1000))
    reach = 4 * np.median(np.abs(answers[FLOW].log_k - exact)) / LOG10
    edges = np.linspace(-reach, reach, 121)
    for method, (colour, dashes) in styles.items():
        shown, error = answers[method].log_k[some] / LOG10, (answers[method].log_k - exact) / LOG10
        if method in (FLOW, NETWORK):
            left.plot(
                exact[some] / LOG10,
                shown,
                "o" if method == NETWORK else "s",
                color=colour,
                markersize=3 if method == NETWORK else 3.5,
                alpha=0.7,
                markeredgewidth=0,
                label=method,
            )
        heights = np.histogram(error, edges, density=True)[0]
        right.stairs(
            heights,
            edges,
            color=colour,
            linestyle=dashes,
            linewidth=1.5,
            label=f"{method}: RMSE {rms(error):.3f}",
        )
    ends = np.array([exact[some].min(), exact[some].max()]) / LOG10
    left.plot(ends, ends, color=BLACK, linestyle="--", linewidth=1)
    left.set(xlabel=f"exact {symbol(True)}", ylabel=f"estimated {symbol(True)}")
    left.legend(frameon=False)
    right.set(xlabel=f"estimated − exact {symbol(True)}", ylabel="density", yscale="log", ylim=(0.02, None))
    right.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return made


if __name__ == "__main__":
    run(main, quick=QUICK)
