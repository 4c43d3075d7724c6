"""Cost and accuracy of log K as the number of parameters grows: nested sampling against networks.

    python examples/nested_sampling.py [--quick] [--dims 2 5 10 20 50 100] [--seeds 3] [--out FOLDER]

The series has as many numbers as parameters. Nested sampling knows prior and likelihood, and integrates both
models for one observation at a time: by slices with 25 live points for each parameter, as PolyChord in the
paper; and with nautilus, whose bounds suit few parameters. Networks know only draws: a hundredth of the
evaluations that nested sampling by slices made for *one* observation. They then answer for any observation.
All are compared with the exact log K.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtri

import evidencenet as en
from _common import Result, Row, figure, rms, run
from _nested import Evidence, nested_sampling
from _series import log_likelihood
from evidencenet.report.plots import BLACK, BLUE, GREY, ORANGE, symbol

QUICK = {
    "dims": (4,),
    "observations": 10,
    "nautilus_observations": 1,
    "nautilus_points": 300,
    "nautilus_networks": 0,
    "fixed": 10_000,
    "fresh": 5_000,
    "seeds": 1,
    "epochs": 6,
}
LOG10 = np.log(10)
# PolyChord's default of live points a parameter. It makes 5 slices a parameter between a point and its
# offspring; 2 are enough here for honest errors, and so nested sampling is cheaper than in the paper.
LIVE, SLICES = 25, 2
# Fewer draws are too few to train on.
LEAST = 200

SLICED, NAUTILUS = "nested sampling, slices", "nested sampling, nautilus"
SHARE, ALONE, FIXED = "network, 1%", "network alone, 1%", "network, fixed draws"
# The default call would choose networks that correct Gaussians here; naming them saves the trials.
OPTIONS: dict[str, dict[str, Any]] = {
    SHARE: {"baseline": True},
    ALONE: {"baseline": False},
    FIXED: {"baseline": True},
}

Sampler = Callable[[np.ndarray, bool, int], Evidence]


class Line(NamedTuple):
    """The result of one method at one number of parameters.

    `evaluations` are of the likelihood for one observation, or draws to train on; `seconds`, of all cores,
    for one observation, or to simulate and train; `further` those of one more observation. `rmse` is of
    log10 K, over `n` observations or seeds, with its error. `stated` is the error that nested sampling
    states, or NaN. `capped` says that a limit cut evaluations or draws short.
    """

    dim: int
    method: str
    evaluations: float
    seconds: float
    further: float
    rmse: float
    error: float
    stated: float
    n: int
    capped: bool


def main(
    *,
    dims: tuple[int, ...] = (2, 5, 10, 20, 50, 100),
    observations: int = 16,
    budget: float = 4e7,
    most: float = 1e8,
    nautilus_dim: int = 20,
    nautilus_observations: int = 3,
    nautilus_points: int = 10_000,
    nautilus_networks: int = 4,
    nautilus_seconds: float = 60.0,
    share: float = 0.01,
    most_draws: int = 1_000_000,
    fixed: int = 100_000,
    fresh: int = 20_000,
    seeds: int = 3,
    epochs: int | None = None,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Run all methods at each number of parameters.

    Parameters
    ----------
    dims
        Numbers of parameters, and of numbers in the series.
    observations, budget
        Integrated by slices at each of them; no further one is begun after `budget` evaluations.
    most
        Evaluations at which one evidence by slices is stopped; the paper's limit is 1e8 too.
    nautilus_dim, nautilus_observations, nautilus_points, nautilus_networks, nautilus_seconds
        The most parameters nautilus is tried on, how often, its effective number of points for one evidence
        and networks for a bound (its own defaults), and when it is stopped short of them.
    share, most_draws, fixed
        Draws to train on: a share of the evaluations of one observation, within a limit; and a fixed number.
    fresh, seeds, epochs
        Draws that judge the networks, how many ensembles are trained, and how long; None is as long as the
        recipe says.
    seed
        Fixes all random numbers.
    progress
        Print each line as soon as it is measured.
    """
    lines: list[Line] = []
    peer = _by_nautilus(nautilus_points, nautilus_networks, nautilus_seconds)
    for dim in dims:
        problem = en.problems.time_series(dim)
        x = np.asarray(en.simulate(problem.models, observations, seed=seed, progress=False).x)
        # In random order, because the budget may not be enough for all of them.
        x = np.random.default_rng(seed).permutation(x).astype(np.float64)
        exact = problem.log_bayes_factor(x)
        found = [sampled(SLICED, _by_slices(most), x, exact, seed, budget)]
        if dim <= nautilus_dim:
            some = slice(nautilus_observations)
            found.append(sampled(NAUTILUS, peer, x[some], exact[some], seed))
        wanted = share * found[0].evaluations
        draws = int(np.clip(wanted, LEAST, most_draws))
        for method in OPTIONS:
            line = learned(method, dim, fixed if method == FIXED else draws, fresh, seeds, epochs, seed)
            found.append(line._replace(capped=method != FIXED and draws != int(wanted)))
        lines += found
        if progress:
            print("\n".join(f"{row.what}: {row.ours}" for row in rows(found)), flush=True)
    return Result(
        "Nested sampling with the known likelihood, against networks",
        rows(lines),
        {"lines": [line._asdict() for line in lines]},
        {"": draw(lines)},
    )


def sampled(
    method: str, sampler: Sampler, x: np.ndarray, exact: np.ndarray, seed: int, budget: float = np.inf
) -> Line:
    """Integrate both models for each observation (n, dim), as long as the budget of evaluations lasts."""
    runs: list[tuple[Evidence, Evidence]] = []
    for i, one in enumerate(x):
        without, growth = (sampler(one, model == 1, 2 * (seed + i) + model) for model in (0, 1))
        runs.append((without, growth))
        # If the limit stopped one run, it would stop the next one too.
        if sum(e.evaluations for pair in runs for e in pair) >= budget or not (
            without.finished and growth.finished
        ):
            break
    wrong = np.array([pair[1].log_z - pair[0].log_z for pair in runs]) - exact[: len(runs)]
    stated = rms(np.array([np.hypot(pair[0].error, pair[1].error) for pair in runs])) / LOG10
    rmse = rms(wrong) / LOG10
    return Line(
        dim=x.shape[1],
        method=method,
        evaluations=float(np.mean([pair[0].evaluations + pair[1].evaluations for pair in runs])),
        seconds=(seconds := float(np.mean([pair[0].seconds + pair[1].seconds for pair in runs]))),
        further=seconds,
        rmse=rmse,
        error=rmse / np.sqrt(2 * len(runs)),  # as of normal errors
        stated=stated,
        n=len(runs),
        capped=not all(e.finished for pair in runs for e in pair),
    )


def _by_slices(most: float) -> Sampler:
    def integrate(x: np.ndarray, growth: bool, seed: int) -> Evidence:
        function, dim = log_likelihood(x, growth=growth)
        return nested_sampling(function, dim, live=LIVE * dim, repeats=SLICES * dim, seed=seed, most=most)

    return integrate


def _by_nautilus(points: int, networks: int, seconds: float) -> Sampler:
    from nautilus import Sampler as Nautilus

    def integrate(x: np.ndarray, growth: bool, seed: int) -> Evidence:
        function, dim = log_likelihood(x, growth=growth)
        start = time.process_time()
        sampler = Nautilus(
            ndtri,
            function,
            n_dim=dim,
            n_live=LIVE * dim,
            n_networks=networks,
            vectorized=True,
            pass_dict=False,
            seed=seed,
        )
        finished = sampler.run(n_eff=points, timeout=seconds)
        # Importance sampling: the relative error of Z falls with the effective number of points.
        error = 1 / np.sqrt(max(sampler.n_eff, 1.0))
        spent = time.process_time() - start
        return Evidence(float(sampler.log_z), float(error), int(sampler.n_like), spent, bool(finished))

    return integrate


def learned(method: str, dim: int, draws: int, fresh: int, seeds: int, epochs: int | None, seed: int) -> Line:
    """Train ensembles, each on its own draws, and compare log K of fresh draws with the exact one."""
    problem = en.problems.time_series(dim)
    others = np.asarray(en.simulate(problem.models, fresh, seed=seed + 1000, progress=False).x)
    exact = problem.log_bayes_factor(others)
    found, spent, further = [], [], []
    for i in range(seed, seed + seeds):
        start = time.process_time()
        sims = en.simulate(problem.models, draws, seed=i, progress=False)
        net = en.train(
            sims,
            augment=problem.augment,
            recipe=en.Recipe(epochs=epochs),
            learn_error=False,
            seed=i,
            progress=False,
            **OPTIONS[method],
        )
        spent.append(time.process_time() - start)
        net.log_bayes_factor(others[:1])  # compiles
        start = time.process_time()
        for one in others[:20]:
            net.log_bayes_factor(one[None])
        further.append((time.process_time() - start) / 20)
        found.append(rms(net.log_bayes_factor(others) - exact) / LOG10)
    error = float(np.std(found, ddof=1)) if seeds > 1 else np.nan
    rmse, seconds, more = (float(np.mean(values)) for values in (found, spent, further))
    return Line(dim, method, draws, seconds, more, rmse, error, np.nan, seeds, False)


def rows(lines: Sequence[Line]) -> list[Row]:
    """Return the rows of the table."""
    paper = {SLICED: "PolyChord, ≤ 1e8 evaluations", ALONE: "more accurate than PolyChord at each dim"}
    found = []
    for line in lines:
        nested = line.method in (SLICED, NAUTILUS)
        unit, per = ("evaluations", "observations") if nested else ("draws", "seeds")
        cap = f" ({'stopped there' if nested else 'not 1%'})" if line.capped else ""
        stated = f", stated {line.stated:.3f}" if nested else ""
        error = "" if np.isnan(line.error) else f" ± {line.error:.3f}"
        cost = f"{float(f'{line.evaluations:.2g}'):,.0f} {unit}{cap}, {line.seconds:.1f} core-s"
        further = f"{line.further:.1f} s" if nested else f"{1000 * line.further:.1f} ms"
        found.append(
            Row(
                f"dim {line.dim}, {line.method}",
                f"{cost}, then {further} each; "
                f"RMSE of log10 K {line.rmse:.3f}{error} ({line.n} {per}){stated}",
                paper.get(line.method, "–"),
            )
        )
    return found


def draw(lines: Sequence[Line]) -> Figure:
    """Draw evaluations or draws, seconds, and error of log10 K against the number of parameters."""
    styles = {
        SLICED: (ORANGE, "s", "-"),
        NAUTILUS: (GREY, "D", ":"),
        SHARE: (BLUE, "o", "-"),
        ALONE: (BLUE, "^", "--"),
        FIXED: (BLACK, "v", "-."),
    }
    made, axes = figure((14, 4.6), 1, 3)
    for method, (colour, marker, dashes) in styles.items():
        some = [line for line in lines if line.method == method]
        if not some:
            continue
        dims = [line.dim for line in some]
        full = [not line.capped for line in some]
        for axis, what in zip(axes, ("evaluations", "seconds", "rmse"), strict=True):
            height = np.array([getattr(line, what) for line in some])
            axis.plot(dims, height, dashes, color=colour, linewidth=1.2)
            if what == "rmse":
                # On a logarithmic axis an error bar cannot reach zero.
                bars = np.array([np.nan_to_num(line.error) for line in some])
                reach = [np.minimum(bars, 0.9 * height), bars]
                axis.errorbar(dims, height, yerr=reach, fmt="none", ecolor=colour, capsize=2.5)
            for keep, fill in ((full, colour), (np.logical_not(full), "white")):
                axis.plot(
                    np.array(dims)[keep],
                    height[keep],
                    marker,
                    color=colour,
                    markerfacecolor=fill,
                    markersize=6,
                    linestyle="none",
                )
    titles = (
        "likelihood evaluations per observation,\nor draws to train on",
        "core-seconds per observation,\nor to simulate and train",
        f"RMSE of {symbol(True)}",
    )
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", yscale="log", xlabel="parameters, and numbers in the series", title=title)
        axis.title.set_fontsize("medium")
        ticks = sorted({line.dim for line in lines})
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
    handles = [
        axes[0].plot([], [], dashes, marker=marker, color=colour, label=method)[0]
        for method, (colour, marker, dashes) in styles.items()
    ]
    handles += axes[0].plot([], [], "s", color=BLACK, markerfacecolor="white", label="cut short by a limit")
    made.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return made


if __name__ == "__main__":
    run(main, quick=QUICK)
