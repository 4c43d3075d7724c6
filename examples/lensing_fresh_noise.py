"""The lensing comparison with noise that is drawn anew in every epoch, instead of once.

    python examples/lensing_fresh_noise.py [--quick] [--data FILE] [--store FOLDER] [--numbers 30]

The theory of ξ± takes milliseconds, and its noise nothing: `simulate` keeps the theory, `observe` adds the
noise. Everything else is as in `lensing.py`, with which the answers are to be compared.
"""

import time
from typing import Any

import numpy as np

import evidencenet as en
from _common import Result, Row, run
from lensing import TEN, directions, models, observed_survey
from lensing_data import Survey
from lensing_theory import Theory, mean, shear

QUICK: dict[str, Any] = {"draws": 1_000, "fresh": 1_000, "epochs": 2}


def clean_models(survey: Survey, theory: Theory) -> list[en.Model]:
    """Return the models of `lensing.py`, divided into theory and noise."""

    def simulate(rng: np.random.Generator, theta: dict[str, np.ndarray]) -> np.ndarray:
        return survey.whitened(mean(theory(theta["cosmology"]), theta["alignment"]))

    def observe(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
        return clean + rng.standard_normal(clean.shape)

    return [
        en.Model(model.name, simulate, prior=model.prior, observe=observe) for model in models(survey, theory)
    ]


def main(
    *,
    data: str | None = None,
    store: str | None = None,
    draws: int = 40_000,
    fresh: int = 20_000,
    numbers: int | None = None,
    epochs: int | None = None,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Simulate the theory, train with fresh noise and with noise drawn once, and compare the models.

    Parameters
    ----------
    data, store, draws, fresh, seed, progress
        As in `lensing.py`; the store is one folder, .zarr, for the theory to train on.
    numbers
        To how many numbers the data are compressed, if at all: the directions in which the theory varies.
    epochs
        Train a dense network for so many epochs, instead of the default call.
    """
    survey = observed_survey(data, seed)
    both = clean_models(survey, shear(survey))
    options: dict[str, Any] = {"chunk": 500, "workers": -1, "progress": progress}
    sims = en.simulate(both, draws, seed=seed, store=store, **options)
    judges = en.simulate(both, fresh, seed=seed + 1000, **options)
    leading = directions(np.asarray(sims.clean))[:, :numbers] if numbers else np.eye(len(survey.observed))
    x = survey.whitened(survey.observed[None]) @ leading

    def formed(given: en.Simulations) -> en.Simulations:
        """Compress the theory. Noise of unit variance stays such in orthogonal directions."""
        clean = np.asarray(given.clean) @ leading
        return en.Simulations(clean, given.model, given.names, failed=given.failed, observe=both, seed=seed)

    call: dict[str, Any] = {"seed": seed, "progress": progress}
    if epochs is not None:
        call |= {"recipe": en.Recipe(epochs=epochs), "members": 2, "learn_error": False}
    noisy = formed(sims)
    rows, found = [], {}
    for name, drawn in (
        ("noise drawn anew", noisy),
        ("noise drawn once", en.Simulations(noisy.x, noisy.model, noisy.names, failed=noisy.failed)),
    ):
        start = time.perf_counter()
        net = en.train(drawn, **call)
        check, answer = en.validate(net, formed(judges)), net.compare(x[0])
        found[name] = {
            "log_k": float(answer.log_k),
            "error": float(answer.error),
            "score": check.score.value,
            "seconds": time.perf_counter() - start,
        }
        said = f"{answer.log_k / TEN:.2f} ± {answer.error / TEN:.2f}, score {check.score.value:.4f} nats"
        rows.append(Row(f"log10 K, {name}", said.replace("-", "−")))
        print(f"\n{name}\n{net.choice or ''}\n{check}", flush=True)
    return Result("Lensing: noise drawn anew, and drawn once", rows, found)


if __name__ == "__main__":
    run(main, quick=QUICK)
