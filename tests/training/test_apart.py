"""Members that are trained as separate jobs are the same to the bit as members trained side by side."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import evidencenet as en
from evidencenet import networks
from executors import Pickling


@pytest.fixture(scope="module")
def sims() -> en.Simulations:
    return en.simulate(en.problems.mean_test(size=5).models, 2_000, seed=1, progress=False)


def test_jobs_train_the_same_members(sims: en.Simulations, tmp_path: Path) -> None:
    """With batch normalisation, whose states JAX tells apart by identity; and members that stop early."""
    options: dict[str, Any] = {
        "members": 3,
        "network": networks.Dense(width=13, norm=True),
        "recipe": en.Recipe(epochs=5, patience=1, learning_rate=0.03),
        "augment": lambda rng, x: rng.permuted(x, axis=1),
        "learn_error": False,
        "seed": 2,
        "progress": False,
    }
    executor = Pickling()
    together, apart = en.train(sims, **options), en.train(sims, executor=executor, **options)
    assert executor.tasks == 3
    for one, other in zip(
        jax.tree.leaves((together.networks, together.states)),
        jax.tree.leaves((apart.networks, apart.states)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(together.history.score, apart.history.score)
    np.testing.assert_array_equal(together.history.best_epoch, apart.history.best_epoch)
    np.testing.assert_array_equal(together.members(sims.x), apart.members(sims.x))
    # They are as good as others to save, and differ from each other.
    apart.save(tmp_path / "apart.evnet")
    log_k = en.load(tmp_path / "apart.evnet").members(sims.x)
    np.testing.assert_array_equal(log_k, together.members(sims.x))
    assert np.abs(log_k[0] - log_k[1]).max() > 1e-3


def test_a_checkpoint_is_refused(sims: en.Simulations, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"executor= trains them elsewhere\. Leave one of them out"):
        en.train(sims, executor=Pickling(), checkpoint=tmp_path / "a")
    with pytest.raises(TypeError, match=r"give simulate\(workers=2\)"):
        en.train(sims, executor=2)
