"""What users type first: names instead of objects, and messages that say what to do."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import evidencenet as en
from conftest import Case
from evidencenet.estimator.arguments import checked_loss, checked_network


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("logistic", en.losses.Logistic()),
        ("LPopExponential", en.losses.LPopExponential()),
        ("l-pop exponential", en.losses.LPopExponential()),
        ("cross_entropy", en.losses.CrossEntropy()),
        (en.losses.Squared, en.losses.Squared()),
        (None, None),
    ],
)
def test_losses_by_name(given: Any, wanted: Any) -> None:
    assert checked_loss(given) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("dense", en.networks.Dense()),
        ("deep set", en.networks.DeepSet()),
        ("image", en.networks.Image()),
        ("series", en.networks.Sequence()),
        (en.networks.Dense, en.networks.Dense()),
        (en.networks.Dense(width=7), en.networks.Dense(width=7)),
    ],
)
def test_networks_by_name_and_by_class(given: Any, wanted: Any) -> None:
    assert checked_network(given) == wanted


class Own(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(self, x: Any, outputs: int, *, key: jax.Array, width: int | None = None) -> None:
        self.layer = eqx.nn.Linear(width or x.size, outputs, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layer(x)


def without_key(x: Any, outputs: int) -> eqx.Module:
    return Own(x, outputs, key=jax.random.key(0))


def too_wide(x: Any, outputs: int, *, key: jax.Array) -> eqx.Module:
    return Own(x, outputs, key=key, width=9)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": 1.5}, TypeError, r"seed must be a whole number, got 1\.5"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": "one"}, TypeError, "seed must be a whole number, got 'one'"),
        ({"members": "2"}, TypeError, "members must be a whole number, got '2'"),
        ({"budget": "long"}, TypeError, "budget = 'long'; wanted a number, such as 2"),
        ({"budget": 0}, ValueError, "budget = 0; wanted a number above 0"),
        ({"budget": 2, "recipe": en.Recipe(epochs=3)}, ValueError, "the recipe names 3 epochs"),
        ({"members": 0}, ValueError, "members must be at least 1, got 0"),
        ({"loss": "logistics"}, ValueError, "loss = 'logistics' is not known. Did you mean 'Logistic'"),
        ({"network": "imagine"}, ValueError, "network = 'imagine' is not known. Did you mean 'Image'"),
        ({"network": "zzz"}, ValueError, "Known are: .*Dense"),
        ({"network": 3}, TypeError, r"network = 3; wanted one of evidencenet\.networks"),
        (
            {"network": Own(np.zeros(5), 1, key=jax.random.key(0))},
            TypeError,
            "a module that is built already",
        ),
        (
            {"network": without_key},
            TypeError,
            r"callable as network\(x, outputs, key=key\), but its parameters",
        ),
        ({"network": too_wide}, ValueError, r"calling your network failed for one draw of shape \(5,\)"),
        ({"recipe": "paper"}, TypeError, r"recipe = 'paper'; wanted a Recipe"),
        ({"augment": 1}, TypeError, r"augment must be a function augment\(rng, x\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes_are_named(small: Case, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        en.train(small.sims, progress=False, **{"recipe": en.Recipe(epochs=1), **options})
