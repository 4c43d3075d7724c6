"""Which loss gives log K where it is large: the paper's three, and all others of its table.

    python examples/loss_comparison.py [--quick] [--draws 3e5] [--noise 0.15] [--members 3] [--out FOLDER]

The time series of the paper with less noise, so that log K reaches 30. Every loss trains the same single
network on the same draws (no ensemble, no trials, no Gaussian baseline), several times from different initial
weights. Bias and RMSE of log K, by the size of its exact value, show where each loss fails. The network of
cross entropy is trained once more with rare draws (`deepen`), which no loss has to extrapolate to.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import evidencenet as en
from _common import Result, Row, binned, figure, rms, run
from evidencenet import losses
from evidencenet.checks.scores import score
from evidencenet.report.plots import BLACK, BLUE, ORANGE, symbol

PAPER = {
    "cross entropy": "systematic error at moderately high K",
    "exponential": "smaller systematic error",
    "l-POP-exponential, α = 2": "none apparent",
}
QUICK = {
    "draws": 20_000,
    "fresh": 20_000,
    "dim": 10,
    "epochs": 4,
    "members": 1,
    "only": tuple(PAPER),
    "rare": 0,
}
DEEPENED = "cross entropy"
# Natural log.
EDGES = (-5.0, 5.0, 10.0, 15.0, 20.0, 30.0)
# A loss fails where its bias exceeds this fraction of log K.
WRONG = 0.1


def named() -> dict[str, losses.Loss]:
    """Return every loss of the table; cross entropy and logistic are one for two models."""
    return {
        "cross entropy": losses.CrossEntropy(),
        "exponential": losses.Exponential(),
        "l-POP-exponential, α = 2": losses.LPopExponential(2.0),
        "squared": losses.Squared(),
        "polynomial, α = 3": losses.Polynomial(3.0),
        "α-exponential, α = 1.5": losses.AlphaExponential(1.5),
        "α-log-exponential, α = 2": losses.AlphaLogExponential(2.0),
        "POP-exponential, α = 2": losses.PopExponential(2.0),
        "exponential of sinh": losses.LinkedExponential(jnp.sinh),
        "asymmetric": losses.Asymmetric(lambda f: jnp.exp(-f), lambda f: f, lambda f: f),
        "l-POP-logistic, α = 2": losses.LPopLogistic(2.0),
    }


class Answer(NamedTuple):
    """Log K of the fresh draws by each network trained with a loss, (members, n)."""

    name: str
    log_k: np.ndarray


def main(
    *,
    draws: int = 300_000,
    fresh: int = 200_000,
    dim: int = 100,
    noise: float = 0.15,
    epochs: int = 10,
    members: int = 3,
    only: tuple[str, ...] | None = None,
    rare: int = 20_000,
    seed: int = 1,
) -> Result:
    """Train with each loss, and compare with the exact answer by bins of log K.

    Parameters
    ----------
    draws, fresh
        Draws to train on, and fresh draws to judge by; both models together.
    dim, noise
        Of `evidencenet.problems.time_series`.
    epochs
        Epochs of every training.
    members
        How many networks are trained with each loss; each is judged by itself.
    only
        Names of the losses to try; all by default.
    rare
        Draws in a level of the rare draws by which the network of cross entropy is deepened; 0 for none.
    seed
        Fixes all random numbers.
    """
    problem = en.problems.time_series(dim, noise=noise)
    sims = en.simulate(problem.models, draws, seed=seed, progress=False)
    others = en.simulate(problem.models, fresh, seed=seed + 1000, progress=False)
    exact = problem.log_bayes_factor(others.x)
    answers = []
    for name, loss in named().items():
        if only is not None and name not in only:
            continue
        net = en.train(
            sims,
            loss=loss,
            network=en.networks.Dense(),
            recipe=en.Recipe(epochs=epochs),
            members=members,
            augment=problem.augment,
            learn_error=False,
            seed=seed,
            progress=False,
        )
        log_k = net.members(others.x)
        answers.append(Answer(name, log_k))
        print(f"{name}: RMSE {rms(log_k - exact):.3f}", flush=True)
        if rare and name == DEEPENED:
            deep = en.deepen(
                net,
                problem.models,
                n=rare,
                recipe=en.Recipe(epochs=epochs),
                augment=problem.augment,
                learn_error=False,
                seed=seed,
                progress=False,
            )
            answers.append(Answer(f"{name}, with rare draws", deep.members(others.x)))
            print(f"{answers[-1].name}: RMSE {rms(answers[-1].log_k - exact):.3f}", flush=True)
    found = {answer.name: measured(answer, exact, others.model) for answer in answers}
    return Result(
        f"Losses where log K is large: {dim} numbers, noise {noise:g}, {draws:,} draws",
        rows(found),
        {"edges": EDGES, "exact": [exact.min(), exact.max()], "losses": found},
        {"": draw(answers, exact)},
    )


def measured(answer: Answer, exact: np.ndarray, label: np.ndarray) -> dict[str, Any]:
    """Bias and RMSE of log K by bins of its exact value, over all networks; and log score above the exact."""
    tables = [binned(log_k, exact, EDGES) for log_k in answer.log_k]
    bins = []
    for same in zip(*tables, strict=True):
        bias = [part["bias"] for part in same]
        bins.append(
            {
                **{key: same[0][key] for key in ("low", "high", "n", "exact")},
                "bias": float(np.mean(bias)),
                # The scatter between networks is larger than that between draws.
                "bias_error": float(np.std(bias, ddof=1) / np.sqrt(len(bias))) if len(bias) > 1 else None,
                "rmse": float(np.sqrt(np.mean([part["rmse"] ** 2 for part in same]))),
            }
        )
    best = score(exact, label).value
    return {
        "bins": bins,
        "rmse": rms(answer.log_k - exact),
        "excess": float(np.mean([score(log_k, label).value - best for log_k in answer.log_k])),
        "fails_from": next(
            (part["low"] for part in bins[1:] if abs(part["bias"]) > WRONG * part["exact"]), None
        ),
    }


def rows(found: dict[str, dict[str, Any]]) -> list[Row]:
    """Return the rows of the table."""
    table = []
    for name, figures in found.items():
        parts = []
        for part in figures["bins"][1:]:
            error = "" if part["bias_error"] is None else f" ± {part['bias_error']:.2f}"
            parts.append(f"{part['bias']:+.2f}{error} ({part['low']:g} to {part['high']:g})")
        below = f"RMSE {figures['bins'][0]['rmse']:.2f} below {EDGES[1]:g}; bias {', '.join(parts)}"
        table.append(Row(f"log K by {name}", below.replace("-", "−"), PAPER.get(name, "–")))
    return table


def draw(answers: list[Answer], exact: np.ndarray) -> Figure:
    """Draw estimated against exact log K, one panel for each loss, all with the same scale."""
    columns = 4
    lines = -(-len(answers) // columns)
    made, axes = figure((12, 3.1 * lines), lines, columns, sharex=True, sharey=True, squeeze=False)
    # All draws with a large log K, and only some of the many with a small one.
    order = np.random.default_rng(0).permutation(len(exact))
    some = np.concatenate([order[exact[order] > 8][:1500], order[:1500]])
    frame = (-3.0, min(EDGES[-1], float(exact.max())) + 1)
    fine = np.linspace(frame[0], frame[1], 15)
    for axis, answer in zip(axes.flat, answers, strict=False):
        axis.plot(frame, frame, color=BLACK, linestyle="--", linewidth=1)
        axis.plot(
            exact[some], answer.log_k[0][some], "o", color=BLUE, markersize=2, alpha=0.3, markeredgewidth=0
        )
        bins = [part for part in binned(answer.log_k.mean(axis=0), exact, fine) if part["n"] >= 5]
        x = np.array([part["exact"] for part in bins])
        axis.plot(x, x + [part["bias"] for part in bins], color=ORANGE, linewidth=2)
        axis.set_title(answer.name, fontsize="medium")
        axis.set(xlim=frame, ylim=frame)
    for axis in axes.flat[len(answers) :]:
        axis.set_visible(False)
    # The lowest panel of each column; it may not be in the last row.
    for axis in axes.flat[max(0, len(answers) - columns) : len(answers)]:
        axis.set_xlabel(f"exact {symbol(False)}")
        axis.tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"estimated {symbol(False)}")
    return made


if __name__ == "__main__":
    run(main, quick=QUICK)
