"""The Dark Energy Survey: are galaxies intrinsically aligned? After the paper's demonstration on real data.

    python examples/lensing.py [--quick] [--data FILE] [--store FOLDER] [--out FOLDER]

Model 1: shapes of galaxies follow the tidal field (NLA) with an amplitude A ~ U(−3, 3), besides being lensed.
Model 0: A = 0. In both, five parameters of the cosmology are unknown. The data are the shear two-point
functions ξ±(θ) of Year 3, 227 numbers; `lensing_data` says where the file FILE is to be had. Without it, the
observation is a mock of a survey like it. Beside the networks stands nested sampling (nautilus) of the same
simulator with its Gaussian likelihood, on the same data.

The paper used power spectra C_ℓ, which are not public, so its number is of other data than ours.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import evidencenet as en
from _common import Result, Row, figure, run
from evidencenet import plots
from evidencenet.drawing import BLACK, BLUE, GREY, ORANGE
from lensing_data import PAIRS, Survey, read
from lensing_evidence import from_posterior, nested_sampling
from lensing_theory import HIGH, LOW, MOST_ALIGNED, ORDINARY, Theory, imitation, mean, shear

QUICK: dict[str, Any] = {
    "draws": 2_000,
    "fresh": 1_000,
    "members": 2,
    "alphas": (1.0,),
    "epochs": 3,
    "choose": False,
    "live": 50,
    "effective": 50,
}
MOCK_ALIGNMENT = 0.3
TEN = np.log(10.0)


def models(survey: Survey, theory: Theory) -> list[en.Model]:
    """Return both models; data are in units of their noise, L⁻¹ξ± with L·Lᵀ the covariance."""

    def simulate(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        expected = survey.whitened(mean(theory(theta["cosmology"]), theta["alignment"]))
        return expected + rng.standard_normal(expected.shape)

    def prior(most: float) -> Callable[[np.random.Generator, int], dict[str, np.ndarray]]:
        return lambda rng, n: {
            "cosmology": rng.uniform(LOW, HIGH, size=(n, len(LOW))),
            "alignment": rng.uniform(-most, most, size=n),
        }

    return [
        en.Model("no alignment", simulate, prior=prior(0.0)),
        en.Model("alignment", simulate, prior=prior(MOST_ALIGNED)),
    ]


Form = Callable[[np.ndarray], np.ndarray]


class Training(NamedTuple):
    """How a network is trained: the form that data are brought into first, and the options of `train`."""

    form: Form
    options: dict[str, Any]


def trainings(
    survey: Survey,
    drawn: np.ndarray,
    *,
    members: int,
    alphas: tuple[float, ...],
    epochs: int,
    numbers: int,
    choose: bool,
) -> dict[str, Training]:
    """Return each training by name: the paper's recipe for each α, and the default call on three forms."""
    # As the paper says of this problem, a higher learning rate; epochs after the best one are wasted.
    recipe = replace(en.Recipe.paper(), epochs=epochs, learning_rate=1e-3, patience=8)
    ways = {}
    for alpha in alphas:
        loss = en.losses.LPopExponential(alpha=alpha)
        options = {"loss": loss, "recipe": recipe, "members": members}
        ways[f"paper's recipe, α = {alpha:g}"] = Training(np.asarray, options)
    if choose:
        factor, leading = np.linalg.cholesky(survey.covariance), directions(drawn)[:, :numbers]
        ways["default call"] = Training(np.asarray, {})
        ways["default call, data as measured"] = Training(lambda x: x @ factor.T, {})
        ways[f"default call, {numbers} numbers"] = Training(lambda x: x @ leading, {})
    return ways


def directions(drawn: np.ndarray) -> np.ndarray:
    """Return the directions, as columns (P, P), in which draws (n, P) scatter about zero, the widest first.

    In units of the noise, signals lie in few of them; in the others both models are noise of unit variance,
    which says nothing of the models.
    """
    return np.linalg.eigh(drawn.T @ drawn)[1][:, ::-1]


def main(
    *,
    data: Path | None = None,
    store: Path | None = None,
    draws: int = 40_000,
    fresh: int = 20_000,
    members: int = 13,
    alphas: tuple[float, ...] = (1.0, 2.0),
    epochs: int = 40,
    numbers: int = 30,
    choose: bool = True,
    live: int = 1_000,
    effective: int = 5_000,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Simulate, train, check, and compare the models on the observation; nested sampling beside it.

    Parameters
    ----------
    data
        The survey's FITS file, see `lensing_data`; None imitates it.
    store
        A folder in which the draws are kept; a second run, or one after a break, goes on from there.
    draws, fresh
        To train on, and to judge by; both models together.
    members, alphas, epochs
        Of the paper's recipe: networks in an ensemble, exponents α of the loss, one ensemble for each, and
        passes over the draws at most.
    numbers
        That the data are compressed to for one of the trainings.
    choose
        Whether to make the default call too, which chooses how to train by trials, and to learn the error of
        each training by two more networks.
    live, effective
        Live points of the nested sampling, and how many independent points of the posterior it stops at.
    seed
        Everything random follows from it.
    progress
        Show progress bars.
    """
    start = time.perf_counter()
    survey = observed_survey(data, seed)
    theory = shear(survey)
    both = models(survey, theory)
    if store is not None:
        store.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"chunk": 500, "workers": -1, "progress": progress}
    sims, others = (
        en.simulate(both, n, seed=s, store=store and store / f"{name}-{survey.digest()}.zarr", **options)
        for name, n, s in (("training", draws, seed), ("fresh", fresh, seed + 1000))
    )
    seconds = {"simulating": time.perf_counter() - start}
    x = survey.whitened(survey.observed[None])
    sizes: dict[str, Any] = {"members": members, "alphas": alphas, "epochs": epochs}
    ways = trainings(survey, np.asarray(sims.x), numbers=numbers, choose=choose, **sizes)
    found, checks = {}, {}
    for way, (form, named) in ways.items():
        begin = time.perf_counter()
        net = en.train(formed(sims, form), seed=seed, learn_error=choose, progress=progress, **named)
        seconds[way] = time.perf_counter() - begin
        answer, checks[way] = net.compare(form(x)[0]), en.validate(net, formed(others, form))
        found[way] = summary(net, answer, checks[way], form(x))
        print(f"\n{way}\n{net.choice or ''}\n{checks[way]}\n{answer}", flush=True)
    evidence = [
        nested_sampling(survey, theory, dim, live=live, effective=effective, seed=seed) for dim in (5, 6)
    ]
    seconds["nested sampling"] = sum(run.seconds for run in evidence)
    posterior = evidence[1].parameters
    some = posterior[:: 1 + len(posterior) // 2000, :5]
    reference = {
        "log_k": evidence[1].log_z - evidence[0].log_z,
        "error": float(np.hypot(evidence[0].error, evidence[1].error)),
        "evaluations": [run.evaluations for run in evidence],
        "least_chi_squared": [run.best for run in evidence],
        "alignment": [float(posterior[:, 5].mean()), float(posterior[:, 5].std())],
        "savage_dickey": from_posterior(survey, theory, some),
    }
    ordinary = survey.whitened(mean(theory(ORDINARY[None]), np.zeros(1)))
    lost = (ordinary @ directions(np.asarray(sims.x)))[:, numbers:]
    results = {
        "points": len(survey.observed),
        "chi_squared": float(np.sum((x - ordinary) ** 2)),
        "signal": {"all": np.linalg.norm(ordinary), "left out": np.linalg.norm(lost)},
        "networks": found,
        "reference": reference,
        "failed": list(sims.failed),
        "seconds": seconds,
    }
    title = f"{'DES Year 3' if data else 'A survey like DES Year 3'}: are galaxies intrinsically aligned?"
    figures = {
        "data": draw_data(survey, theory, seed),
        "coverage": draw_coverage(checks),
        "log-k": draw_log_k(checks, found, reference),
    }
    return Result(title, rows(results), results, figures)


def formed(sims: en.Simulations, form: Form) -> en.Simulations:
    """Return the draws in another form."""
    return en.Simulations(form(np.asarray(sims.x)), sims.model, sims.names, failed=sims.failed)


def observed_survey(data: Path | None, seed: int) -> Survey:
    """Read the survey, or imitate it, with the mock as what is observed."""
    if data is not None:
        return read(data)
    survey = imitation()
    return replace(survey, observed=mock(survey, shear(survey), seed)[1])


def mock(survey: Survey, theory: Theory, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ξ± of an ordinary cosmology and a little alignment, without noise and with it, each (P,)."""
    expected = mean(theory(ORDINARY[None]), np.array([MOCK_ALIGNMENT]))[0]
    noise = np.random.default_rng(seed).standard_normal(len(expected))
    return expected, expected + np.linalg.cholesky(survey.covariance) @ noise


def summary(
    net: en.EvidenceNetwork, answer: en.Comparison, check: en.Validation, x: np.ndarray
) -> dict[str, Any]:
    """Put together what a network says, and what is said of it; natural logs."""
    test = check.coverage
    return {
        "log_k": float(answer.log_k),
        "jackknife": float(net.jackknife(x)[0]),
        "error": float(answer.error),
        "inside": answer.inside,
        "range": [check.ranges[0].low, check.ranges[0].high],
        "members": net.members(x)[:, 0],
        "novelty": answer.novelty,
        "score": check.score.value,
        "gain": check.score.gain,
        "coverage_p_value": test.p_value,
        "residual_mean": test.mean_residual,
        "residual_std": test.std_residual,
        "passed": check.passed,
        "failed_checks": [one.name for one in check.checks if one.verdict == "fail"],
        "best_epochs": net.history.best_epoch,
    }


def rows(numbers: dict[str, Any]) -> list[Row]:
    """Lay out the table; the paper's numbers are of power spectra."""
    table = []
    reference = numbers["reference"]
    for way, found in numbers["networks"].items():
        error = f"± {found['jackknife'] / TEN:.2f} (jackknife)"
        if found["error"] != found["jackknife"]:
            error += f", ± {found['error'] / TEN:.2f} (learned)"
        paper = "−0.8 ± 0.3, of power spectra" if "α = 1" in way else "–"
        table.append(Row(f"log10 K, {way}", f"{found['log_k'] / TEN:.2f} {error}", paper))
    said = f"{reference['log_k'] / TEN:.3f} ± {reference['error'] / TEN:.3f}"
    table.append(Row("log10 K, nested sampling", said))
    said = "{:.3f} ± {:.3f}".format(*(np.array(reference["savage_dickey"]) / TEN))
    table.append(Row("log10 K, Savage–Dickey on its posterior", said))
    table.append(Row("A of model 1, posterior", "{:.2f} ± {:.2f}".format(*reference["alignment"])))
    for way, found in numbers["networks"].items():
        said = f"p-value {found['coverage_p_value']:.2g}; residuals {found['residual_mean']:.2f} ± "
        said += f"{found['residual_std']:.2f}; score {found['score']:.4f} nats"
        table.append(Row(f"coverage, {way}", said, "as expected (no number)" if "α = 1" in way else "–"))
    for way, found in numbers["networks"].items():
        said = ", ".join(f"{p:.2g}" for p in found["novelty"])
        table.append(Row(f"like the draws of M0, M1? {way}", f"p = {said}"))
    what = "χ² of an ordinary cosmology, A = 0"
    table.append(Row(what, f"{numbers['chi_squared']:.1f} for {numbers['points']} points"))
    least = " and ".join(f"{value:.1f}" for value in reference["least_chi_squared"])
    table.append(Row("least χ² of M0 and M1 met by nested sampling", least))
    return table


def draw_data(survey: Survey, theory: Theory, seed: int) -> Figure:
    """Draw the data beside a mock and what it would be without noise, for each pair of redshift bins."""
    made, axes = figure((13, 9), 4, 5, sharex=True)
    expected, drawn = mock(survey, theory, seed)
    centre = np.sqrt(survey.angle.prod(axis=1))
    # Sizes that do not fall by decades with the angle.
    scale = 1e4 * centre
    error = scale * np.sqrt(np.diag(survey.covariance))
    for number, (i, j) in enumerate(PAIRS):
        for kind, sign in enumerate("+−"):
            axis = axes[number // 5 + 2 * kind, number % 5]
            some = (survey.kind == kind) & (survey.pair == (i, j)).all(axis=1)
            x, bars = centre[some], error[some]
            axis.axhline(0, color=GREY, linewidth=0.6)
            axis.plot(x, (scale * expected)[some], color=ORANGE, label="mock without noise")
            axis.plot(
                1.04 * x,
                (scale * drawn)[some],
                "o",
                color=ORANGE,
                markersize=3,
                fillstyle="none",
                label="mock",
            )
            axis.errorbar(
                x,
                (scale * survey.observed)[some],
                yerr=bars,
                fmt="s",
                color=BLUE,
                markersize=3,
                elinewidth=0.9,
                label="observed",
            )
            axis.set_xscale("log")
            axis.text(0.04, 0.9, f"{i + 1}, {j + 1}", transform=axis.transAxes, fontsize="small")
            if number % 5 == 0:
                axis.set_ylabel(rf"$10^4\,\theta\,\xi_{sign}$ [arcmin]")
    for axis in axes[-1]:
        axis.set_xlabel(r"$\theta$ [arcmin]")
    handles, texts = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, texts, loc="outside upper center", ncols=3, frameon=False)
    return made


def draw_coverage(checks: dict[str, en.Validation]) -> Figure:
    """Draw the coverage test of each training, with residuals."""
    made, axes = figure((9.6, 4.4 * len(checks)), len(checks), 2, squeeze=False)
    for (way, check), (left, right) in zip(checks.items(), axes, strict=True):
        plots.coverage(check.coverage, left)
        plots.residuals(check.coverage, right)
        right.annotate(way, (0.5, 0.04), xycoords="axes fraction", ha="center")
    return made


def draw_log_k(
    checks: dict[str, en.Validation], found: dict[str, dict[str, Any]], reference: dict[str, Any]
) -> Figure:
    """Draw log10 K of fresh draws under each model, with that of the observation."""
    made, axes = figure((5.4 * len(checks), 4.2), 1, len(checks), squeeze=False)
    for (way, check), axis in zip(checks.items(), axes[0], strict=True):
        plots.log_k_distributions(
            check.log_k[:, 1], check.label, check.names, found[way]["log_k"], axis, base10=True
        )
        exact, error = reference["log_k"] / TEN, reference["error"] / TEN
        axis.axvspan(exact - error, exact + error, color=GREY, alpha=0.4, linewidth=0)
        axis.axvline(exact, color=BLACK, linestyle=":")
        text = f"{way}\ndotted: nested sampling, {exact:.2f}".replace("-", "−")
        axis.annotate(text, (0.98, 0.97), xycoords="axes fraction", ha="right", va="top")
    return made


if __name__ == "__main__":
    run(main, quick=QUICK)
