"""Which density predicts the strength of pine: log K of 8.42, confirmed by simulations alone.

    python examples/radiata_pine.py [--quick] [--draws 1e5] [--n 20000] [--out FOLDER]

The strength y of 42 specimens of radiata pine is a straight line in their density x, or in their density
adjusted for resin z, with normal noise; priors are those of Carlin & Chib (1995). The table is of Williams,
Regression Analysis (Wiley, 1959), page 90, and stands in radiata_pine.csv. Both evidences are known in closed
form: log K = 8.4237 for z against x, the example of many papers on evidence. Plain draws of the first model
with so much evidence against it come once in 20,000 or less, so a network from plain draws extrapolates
there. `deepen` confirms it with rare draws.

A draw is not the 42 strengths but five numbers that hold all that they say about both models: the mean, and
slope and residuals of the two straight lines. Of 42 noisy numbers a network would have to learn these first.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

import evidencenet as en
from _common import Result, Row, rms, run
from evidencenet.problems import Problem

QUICK = {"draws": 20_000, "n": 1_000, "epochs": 5}
PUBLISHED = 8.4237
# Priors: the precision is Gamma(SHAPE, RATE); intercept and slope are normal about MEAN, with the precision
# of the noise times PRECISION.
SHAPE, RATE = 3.0, 2 * 300.0**2
MEAN, PRECISION = np.array([3000.0, 185.0]), np.array([0.06, 6.0])


def table() -> np.ndarray:
    """Return strength, density and adjusted density of each specimen, (42, 3)."""
    return np.loadtxt(
        Path(__file__).parent / "radiata_pine.csv", delimiter=",", skiprows=4, usecols=(1, 2, 3)
    )


class Fit(NamedTuple):
    """Straight lines through the strengths, by least squares: one column of the table as the abscissa.

    Intercept, slope and residual sum of squares say all that the strengths say about such a line, its noise,
    and the evidence for it.
    """

    design: np.ndarray

    @staticmethod
    def to(column: np.ndarray) -> "Fit":
        """Fit lines to a column of the table."""
        return Fit(np.stack([np.ones(len(column)), column - column.mean()], axis=1))

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Return intercept, slope, and log of the residual sum of squares, of strengths (n, 42), (n, 3)."""
        line = y @ np.linalg.pinv(self.design).T
        rest = np.sum(np.square(y - line @ self.design.T), axis=1)
        return np.concatenate([line, np.log(rest)[:, None]], axis=1)

    def log_evidence(self, fitted: np.ndarray) -> np.ndarray:
        """Return the log of the Student t density of the strengths, from what `__call__` returned, (n,)."""
        n = len(self.design)
        gram = self.design.T @ self.design
        spread = np.diag(1 / PRECISION) + np.linalg.inv(gram)
        off = fitted[:, :2] - MEAN
        square = np.exp(fitted[:, 2]) + np.sum(off * np.linalg.solve(spread, off.T).T, axis=1)
        size = np.linalg.slogdet(np.diag(1 / PRECISION) @ gram + np.eye(2))[1]
        constant = gammaln(SHAPE + n / 2) - gammaln(SHAPE) - 0.5 * n * np.log(2 * np.pi) - 0.5 * size
        return constant + SHAPE * np.log(RATE) - (SHAPE + n / 2) * np.log(RATE + square / 2)


def fits() -> tuple[Fit, Fit]:
    """Return the fits to the density and to the adjusted density."""
    density, adjusted = table()[:, 1:].T
    return Fit.to(density), Fit.to(adjusted)


def summaries(y: np.ndarray) -> np.ndarray:
    """Return the mean strength, and slope and log of the residuals' squares of both fits, (n, 5)."""
    first, second = (fit(y) for fit in fits())
    return np.concatenate([first, second[:, 1:]], axis=1)


def problem() -> Problem:
    """Make the two models, with their exact evidences; a draw is five numbers that say all."""
    both = fits()

    def model(name: str, fit: Fit) -> en.Model:
        def prior(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
            sigma = 1 / np.sqrt(rng.gamma(SHAPE, 1 / RATE, n))
            line = MEAN + sigma[:, None] * rng.normal(size=(n, 2)) / np.sqrt(PRECISION)
            return {"sigma": sigma, "line": line}

        def simulate(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
            noise = rng.normal(size=(len(theta["sigma"]), len(fit.design)))
            return summaries(theta["line"] @ fit.design.T + theta["sigma"][:, None] * noise)

        return en.Model(name, simulate, prior=prior)

    def log_evidence(x: Any) -> np.ndarray:
        x = np.asarray(x, dtype=np.float64)
        return np.stack(
            [both[0].log_evidence(x[:, [0, 1, 2]]), both[1].log_evidence(x[:, [0, 3, 4]])], axis=1
        )

    return Problem(
        "radiata_pine", (model("density", both[0]), model("adjusted density", both[1])), log_evidence
    )


def main(
    *, draws: int = 100_000, n: int = 20_000, epochs: int | None = None, seed: int = 1, progress: bool = True
) -> Result:
    """Train, deepen, and compare with the published figure and with the exact log K of fresh draws."""
    pine = problem()
    observed = summaries(table()[None, :, 0])
    recipe = None if epochs is None else en.Recipe(epochs=epochs)
    sims = en.simulate(pine.models, draws, seed=seed, progress=progress)
    network = en.networks.Dense(width=128, hidden=64)
    loss = en.losses.Logistic()
    net = en.train(sims, network=network, loss=loss, recipe=recipe, seed=seed, progress=progress)
    deep = en.deepen(net, pine.models, n=n, recipe=recipe, seed=seed, progress=progress)
    fresh = en.simulate(pine.models, 40_000, seed=seed + 1, progress=progress)
    exact = pine.log_bayes_factor(fresh.x)
    far = (np.abs(exact) > 6) & (np.abs(exact) < 15)
    answers = {"train": net.compare(observed[0]), "deepen": deep.compare(observed[0])}
    before, after = (rms(one.log_bayes_factor(fresh.x)[far] - exact[far]) for one in (net, deep))
    rows = [
        Row(f"log K of the pines, `{name}`", f"{float(one.log_k):.2f} ± {one.error:.2f}", f"{PUBLISHED}")
        for name, one in answers.items()
    ]
    rows += [
        Row(f"validated range, `{name}`", f"{one.range.low:.1f} to {one.range.high:.1f}")
        for name, one in answers.items()
    ]
    rows.append(Row("RMSE of log K at 6 to 15, `train` → `deepen`", f"{before:.2f} → {after:.2f}", "0"))
    assert deep.depth is not None
    rows.append(Row("simulator calls of `deepen`", f"{deep.depth.calls / 1e6:.1f} million"))
    numbers = {
        "log_k": {name: float(one.log_k) for name, one in answers.items()},
        "error": {name: one.error for name, one in answers.items()},
        "range": {name: [one.range.low, one.range.high] for name, one in answers.items()},
        "exact": float(pine.log_bayes_factor(observed)[0]),
        "rmse": [before, after],
        "calls": deep.depth.calls,
        "checks": [str(check) for check in deep.depth.checks],
    }
    return Result("Radiata pine: log K of 8.42, from simulations", rows, numbers)


if __name__ == "__main__":
    run(main, quick=QUICK)
