"""Draws of known shares, shapes and correlations."""

from typing import Any

import numpy as np

import evidencenet as en


def sims(n: int = 1_000, shape: tuple[int, ...] = (4,), shares: tuple[float, ...] = (0.5, 0.3, 0.2)) -> Any:
    rng = np.random.default_rng(1)
    model = rng.permutation(np.repeat(np.arange(len(shares)), (n * np.array(shares)).round().astype(int)))
    return en.Simulations(3 + 2 * rng.normal(size=(n, *shape)) + model.reshape(n, *[1] * len(shape)), model)


def lifted(n: int, level: float, form: str = "vector") -> Any:
    """White noise, or noise in which each number is like the one before, on a common level that varies."""
    rng = np.random.default_rng(3)
    noise, model = rng.normal(size=(n, 12)), np.arange(n) % 2
    like = (noise + np.roll(noise, 1, axis=1)) / np.sqrt(2)
    x = np.where(model[:, None] == 1, like, noise) + level * rng.normal(size=(n, 1))
    return en.Simulations({"a": x[:, :5], "b": x[:, 5:]} if form == "dict" else x, model)
