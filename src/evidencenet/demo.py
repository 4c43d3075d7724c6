"""The paper's time series from start to end: run ``make demo`` or ``python -m evidencenet.demo``."""

import argparse
import time
from pathlib import Path

import numpy as np

from evidencenet import problems
from evidencenet.questions.accuracy import Accuracy, measure_accuracy
from evidencenet.report import plots


def main(
    *,
    draws: int = 1_000_000,
    dim: int = 100,
    seed: int = 1,
    folder: str = "demo-output",
    progress: bool = True,
) -> float:
    """Train on the time series of Jeffrey & Wandelt (2023), and compare with the exact answers.

    Parameters
    ----------
    draws
        Simulated series to train on, both models together.
    dim
        Length of a series, and number of parameters of the larger model.
    seed
        Fixes all random numbers.
    folder
        Where the figure and the network are written.
    progress
        Show progress bars.

    Returns
    -------
    float
        Root mean square error of log10 K on fresh draws.
    """
    start = time.perf_counter()
    problem = problems.time_series(dim)
    without, growth = (model.name for model in problem.models)
    print(
        f"A noisy series of {dim} numbers. Model 0, {without!r}: {dim - 1} oscillations with unknown\n"
        f"amplitudes. Model 1, {growth!r}: the same plus a linear growth. Which one made the data?\n"
        f"The network learns from {draws:,} simulated series. It sees no likelihood and no parameters.\n"
    )
    accuracy = measure_accuracy(problem, draws, seed=seed, progress=progress)
    net = accuracy.net
    print(f"{net.choice}\n\n{accuracy.check}\n")

    observed = problem.models[1].draw(np.random.default_rng(seed), 1)[0]
    exact = float(problem.log_bayes_factor(observed)[0])
    answer = net.compare(observed)
    print(f"One series with growth, used as the observation:\n{answer}\n  exact log K     {exact:.3f}\n")

    rmse = accuracy.rmse / float(np.log(10))
    _write(accuracy, Path(folder))
    print(
        f"The RMSE of log10 K over {len(accuracy.fresh):,} fresh series is {rmse:.4f}\n"
        f"(the paper has 0.017 for series of 100 numbers and a million draws).\n"
        f"The figure and the network are in {folder}/. This took {time.perf_counter() - start:.0f} s."
    )
    return rmse


def _write(accuracy: Accuracy, folder: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    shown = slice(None, None, max(1, len(accuracy.exact) // 5000))
    plots.log_k(accuracy.check.log_k[shown, 1], accuracy.exact[shown, 1], axis=left)
    plots.coverage(accuracy.check.coverage, axis=middle)
    plots.residuals(accuracy.check.coverage, axis=right)
    figure.savefig(folder / "time_series.png", dpi=150)
    accuracy.net.save(folder / "time_series.evnet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="demo-output")
    options = parser.parse_args()
    main(draws=options.draws, dim=options.dim, seed=options.seed, folder=options.folder)
