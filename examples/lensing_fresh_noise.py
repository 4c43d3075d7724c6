"""The lensing comparison with what is cheap to draw drawn anew in every epoch, instead of once.

    python examples/lensing_fresh_noise.py [--quick] [--data FILE] [--store FOLDER] [--numbers 30]

The theory of ξ± takes milliseconds; its noise, and the alignment of the galaxies once the spectra are known,
take nothing. `simulate` keeps the spectra, `observe` draws the rest. Everything else is as in `lensing.py`,
with which the answers are to be compared.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import evidencenet as en
from _common import Result, Row, run
from lensing import TEN, directions, observed_survey
from lensing_data import Survey
from lensing_theory import HIGH, LOW, MOST_ALIGNED, Theory, mean, shear

QUICK: dict[str, Any] = {"draws": 1_000, "fresh": 1_000, "epochs": 2}


def clean_models(survey: Survey, theory: Theory) -> list[en.Model]:
    """Return the models of `lensing.py`, divided into spectra, and alignment with noise.

    A clean draw has the parts GG, GI and II of one cosmology, (3, P), in units of the noise.
    """

    def simulate(rng: np.random.Generator, cosmology: np.ndarray) -> np.ndarray:
        parts = theory(cosmology)
        return survey.whitened(parts.reshape(-1, parts.shape[2])).reshape(parts.shape)

    def prior(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.uniform(LOW, HIGH, size=(n, len(LOW)))

    return [
        en.Model(name, simulate, prior=prior, observe=aligned(most))
        for name, most in (("no alignment", 0.0), ("alignment", MOST_ALIGNED))
    ]


def aligned(most: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    """Return what draws an amplitude of the alignment, up to `most` in size, and adds the noise."""
    return lambda rng, parts: noisy(rng, mean(parts, rng.uniform(-most, most, size=len(parts))))


def noisy(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    """Add the noise, which has unit variance."""
    return clean + rng.standard_normal(clean.shape)


def main(
    *,
    data: str | None = None,
    store: str | None = None,
    draws: int = 40_000,
    fresh: int = 20_000,
    numbers: int | None = None,
    only: str | None = None,
    epochs: int | None = None,
    seed: int = 1,
    progress: bool = True,
) -> Result:
    """Simulate the theory, train with more and less drawn anew, and compare the models.

    Parameters
    ----------
    data, store, draws, fresh, seed, progress
        As in `lensing.py`; the store is one folder, .zarr, for the theory to train on.
    numbers
        To how many numbers the data are compressed, if at all: the directions in which the theory varies.
    only
        Which of the three comparisons to make; all by default.
    epochs
        Train a dense network for so many epochs, instead of the default call.
    """
    survey = observed_survey(data, seed)
    both = clean_models(survey, shear(survey))
    options: dict[str, Any] = {"chunk": 500, "workers": -1, "progress": progress}
    sims = en.simulate(both, draws, seed=seed, store=store, **options)
    judges = en.simulate(both, fresh, seed=seed + 1000, **options)
    parts = np.asarray(sims.clean)
    amplitude = np.random.default_rng(seed).uniform(-MOST_ALIGNED, MOST_ALIGNED, size=len(parts))
    leading = directions(mean(parts, amplitude))[:, :numbers] if numbers else np.eye(parts.shape[2])
    x = survey.whitened(survey.observed[None]) @ leading

    def with_spectra(given: en.Simulations) -> en.Simulations:
        """Compress the spectra. Noise of unit variance stays such in orthogonal directions."""
        clean = np.asarray(given.clean) @ leading
        return en.Simulations(clean, given.model, given.names, failed=given.failed, observe=both, seed=seed)

    def with_theory(given: en.Simulations) -> en.Simulations:
        """Draw the alignment once."""
        rng, most = np.random.default_rng(seed), np.array([0.0, MOST_ALIGNED])[given.model]
        clean = mean(np.asarray(given.clean) @ leading, most * rng.uniform(-1, 1, size=len(given)))
        return en.Simulations(clean, given.model, given.names, failed=given.failed, observe=noisy, seed=seed)

    def drawn_once(given: en.Simulations) -> en.Simulations:
        theory = with_theory(given)
        return en.Simulations(theory.x, theory.model, theory.names, failed=theory.failed)

    call: dict[str, Any] = {"seed": seed, "progress": progress}
    if epochs is not None:
        call |= {"recipe": en.Recipe(epochs=epochs), "members": 2, "learn_error": False}
    rows, found = [], {}
    for name, formed in (
        ("noise and alignment drawn anew", with_spectra),
        ("noise drawn anew", with_theory),
        ("noise drawn once", drawn_once),
    ):
        if only is not None and only != name:
            continue
        start = time.perf_counter()
        net = en.train(formed(sims), **call)
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
    return Result("Lensing: what is drawn anew, and what once", rows, found)


if __name__ == "__main__":
    run(main, quick=QUICK)
