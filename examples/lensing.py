"""The Dark Energy Survey: are galaxies intrinsically aligned? After the paper's demonstration on real data.

    python examples/lensing.py [--quick] [--data FILE] [--store FOLDER] [--out FOLDER]

Model 1: the shapes of galaxies are aligned with the tidal field (NLA) with an amplitude A ~ U(−3, 3), and
lensed. Model 0: A = 0. In both, five parameters of the cosmology are unknown. The data are the shear
two-point functions ξ±(θ) of Year 3, 227 numbers; `lensing_data` says where to get FILE. Without it, the
observation is a mock of a similar survey. The networks are compared with nested sampling (nautilus) of the
same simulator, with its Gaussian likelihood, on the same data.

The paper used power spectra C_ℓ, which are not public, so its number is for other data.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evidencenet as en
from _common import Result, Row, run
from evidencenet._common.warnings import RecalibrationWarning
from lensing_data import Survey, read
from lensing_evidence import reference
from lensing_plots import draw_coverage, draw_data, draw_log_k
from lensing_theory import HIGH, LOW, MOST_ALIGNED, ORDINARY, Theory, imitation, mean, mock, shear

QUICK: dict[str, Any] = {
    "draws": 2_000,
    "fresh": 1_000,
    "members": 2,
    "alphas": (1.0,),
    "epochs": 3,
    "choose": False,
    "live": 100,
    "effective": 50,
}
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
    """How a network is trained: what is done to the data first, and the options of `train`."""

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
    # As in the paper for this problem: longer, and with a higher learning rate.
    recipe = replace(en.Recipe.paper(), epochs=epochs, learning_rate=1e-3, patience=20)
    methods = {}
    for alpha in alphas:
        loss = en.losses.LPopExponential(alpha=alpha)
        options = {"loss": loss, "recipe": recipe, "members": members}
        methods[f"paper's recipe, α = {alpha:g}"] = Training(np.asarray, options)
    if choose:
        factor, leading = np.linalg.cholesky(survey.covariance), directions(drawn)[:, :numbers]
        methods["default call"] = Training(np.asarray, {})
        methods["default call, data as measured"] = Training(lambda x: x @ factor.T, {})
        methods[f"default call, {numbers} numbers"] = Training(lambda x: x @ leading, {})
    return methods


def directions(drawn: np.ndarray) -> np.ndarray:
    """Return the directions, as columns (P, P), in which draws (n, P) scatter about zero, the widest first.

    In units of the noise, signals lie in few of them. In the others both models are noise of unit variance,
    which carries no information about the models.
    """
    return np.linalg.eigh(drawn.T @ drawn)[1][:, ::-1]


def main(
    *,
    data: str | None = None,
    store: str | None = None,
    draws: int = 40_000,
    fresh: int = 20_000,
    members: int = 13,
    alphas: tuple[float, ...] = (1.0, 2.0),
    epochs: int = 60,
    numbers: int = 30,
    choose: bool = True,
    live: int = 1_000,
    effective: int = 5_000,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Simulate, train, check, and compare the models for the observation, also with nested sampling.

    Parameters
    ----------
    data
        The survey's FITS file, see `lensing_data`; None imitates it.
    store
        A folder for the draws; a second run, or one after an interruption, uses them.
    draws, fresh
        Draws to train on; and fresh draws, half to recalibrate and half to judge by. Both models together.
    members, alphas, epochs
        For the paper's recipe: networks in an ensemble, powers α of the loss with one ensemble each, and the
        largest number of passes over the draws.
    numbers
        To how many numbers the data are compressed for one of the trainings.
    choose
        Whether to make the default call too, which chooses its plan by trials, and to learn the error of each
        training with two more networks.
    live, effective
        Live points of nested sampling, and at how many independent points of the posterior it stops.
    seed
        Fixes all random numbers.
    progress
        Show progress bars.
    """
    survey = observed_survey(data, seed)
    theory = shear(survey)
    sims, others = simulated(survey, theory, (draws, fresh), store, seed, progress)
    half, judges = others.split(seed=seed)
    x = survey.whitened(survey.observed[None])
    sizes: dict[str, Any] = {"members": members, "alphas": alphas, "epochs": epochs}
    methods = trainings(survey, np.asarray(sims.x), numbers=numbers, choose=choose, **sizes)
    found: dict[str, dict[str, Any]] = {}
    checks = {}
    for method, (form, options) in methods.items():
        start = time.perf_counter()
        net = en.train(formed(sims, form), seed=seed, learn_error=choose, progress=progress, **options)
        seconds = time.perf_counter() - start
        mended = recalibrated(net, formed(half, form))
        checks[method] = [en.validate(one, formed(judges, form)) for one in (net, mended)]
        found[method] = {
            "as trained": summary(net, checks[method][0], form(x)),
            "recalibrated": summary(mended, checks[method][1], form(x)),
            "seconds": seconds,
            "best_epochs": net.history.best_epoch,
        }
        print(
            f"\n{method}\n{net.choice or ''}\n{checks[method][1]}\n{mended.compare(form(x)[0])}", flush=True
        )
    exact = reference(survey, theory, live=live, effective=effective, seed=seed)
    ordinary = survey.whitened(mean(theory(ORDINARY[None]), np.zeros(1)))
    lost = (ordinary @ directions(np.asarray(sims.x)))[:, numbers:]
    results = {
        "points": len(survey.observed),
        "chi_squared": float(np.sum((x - ordinary) ** 2)),
        "signal": {"all": np.linalg.norm(ordinary), "left out": np.linalg.norm(lost)},
        "networks": found,
        "reference": exact,
        "failed": list(sims.failed),
    }
    title = f"{'DES Year 3' if data else 'A survey like DES Year 3'}: are galaxies intrinsically aligned?"
    shown = {method: checks[method] for method in (next(iter(methods)), list(methods)[-1])}
    observed = {method: found[method]["recalibrated"]["log_k"] for method in shown}
    figures = {
        "data": draw_data(survey, *mock(survey, theory, seed)),
        "coverage": draw_coverage(shown),
        "log-k": draw_log_k(shown, observed, exact),
    }
    return Result(title, rows(results), results, figures)


def simulated(
    survey: Survey, theory: Theory, sizes: tuple[int, int], store: str | None, seed: int, progress: bool
) -> list[en.Simulations]:
    """Draw from both models, to train on and to judge by; in two stores if there is a folder."""
    folder = None if store is None else Path(store)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    result = []
    for name, n, own in zip(("training", "fresh"), sizes, (seed, seed + 1000), strict=True):
        place = folder and folder / f"{name}-{survey.digest()}.zarr"
        options: dict[str, Any] = {"chunk": 500, "workers": -1, "store": place, "progress": progress}
        result.append(en.simulate(models(survey, theory), n, seed=own, **options))
    return result


def recalibrated(net: en.EvidenceNetwork, sims: en.Simulations) -> en.EvidenceNetwork:
    """Return the network, recalibrated on draws that it has not seen if this helps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecalibrationWarning)
        return net.recalibrate(sims)


def formed(sims: en.Simulations, form: Form) -> en.Simulations:
    """Return the draws in another form."""
    return en.Simulations(form(np.asarray(sims.x)), sims.model, sims.names, failed=sims.failed)


def observed_survey(data: str | None, seed: int) -> Survey:
    """Read the survey, or imitate it with the mock as the observation."""
    if data is not None:
        return read(data)
    survey = imitation()
    return replace(survey, observed=mock(survey, shear(survey), seed)[1])


def summary(net: en.EvidenceNetwork, check: en.Validation, x: np.ndarray) -> dict[str, Any]:
    """Return the answers of a network and the results of its checks; natural logs."""
    answer, test = net.compare(x[0]), check.coverage
    return {
        "log_k": float(answer.log_k),
        "jackknife": float(net.jackknife(x)[0]),
        "error": float(answer.error),
        "inside": answer.in_range,
        "range": [check.ranges[0].low, check.ranges[0].high],
        "members": net.members(x)[:, 0],
        "novelty": answer.novelty,
        "score": check.score.value,
        "score_error": check.score.error,
        "coverage_p_value": test.p_value,
        "residual_mean": test.mean_residual,
        "residual_std": test.std_residual,
        "failed_checks": [one.name for one in check.checks if one.verdict == "fail"],
    }


def rows(results: dict[str, Any]) -> list[Row]:
    """Return the rows of the table; the paper's numbers are for power spectra."""
    table = []
    for method, found in results["networks"].items():
        plain, mended = (found[state] for state in ("as trained", "recalibrated"))
        error = f"± {plain['jackknife'] / TEN:.2f} (jackknife)"
        if plain["error"] != plain["jackknife"]:
            error += f" ± {plain['error'] / TEN:.2f} (learned)"
        said = f"{plain['log_k'] / TEN:.2f} {error}; recalibrated {mended['log_k'] / TEN:.2f}"
        paper = "−0.8 ± 0.3, of power spectra" if "α = 1" in method else "–"
        table.append(Row(f"log10 K, {method}", said, paper))
    exact = results["reference"]
    for what, value, error in (
        ("log10 K, nested sampling", exact["log_k"], exact["error"]),
        ("log10 K, Savage–Dickey on its posterior", *exact["savage_dickey"]),
    ):
        table.append(Row(what, f"{value / TEN:.3f} ± {error / TEN:.3f}"))
    table.append(Row("A of model 1, posterior", "{:.2f} ± {:.2f}".format(*exact["alignment"])))
    for method, found in results["networks"].items():
        said = "; recalibrated ".join(
            f"p-value {test['coverage_p_value']:.2g}, residuals {test['residual_mean']:.2f} ± "
            f"{test['residual_std']:.2f}, score {test['score']:.4f} nats"
            for test in (found["as trained"], found["recalibrated"])
        )
        table.append(
            Row(f"coverage, {method}", said, "as expected (no number)" if "α = 1" in method else "–")
        )
    for method, found in results["networks"].items():
        said = ", ".join(f"{p:.2g}" for p in found["as trained"]["novelty"])
        table.append(Row(f"like the draws of M0, M1? {method}", f"p = {said}"))
    what = "χ² of an ordinary cosmology, A = 0"
    table.append(Row(what, f"{results['chi_squared']:.1f} for {results['points']} points"))
    least = " and ".join(f"{value:.1f}" for value in exact["least_chi_squared"])
    table.append(Row("least χ² of M0 and M1 met by nested sampling", least))
    return [
        Row(row.what, row.ours.replace("-", "−").replace("p−value", "p-value"), row.paper) for row in table
    ]


if __name__ == "__main__":
    run(main, quick=QUICK)
