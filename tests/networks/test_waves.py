"""Fast sines and cosines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evidencenet.networks.modules import sine_and_cosine


@pytest.mark.parametrize("largest", [0.1, 3.0, 100.0, 3000.0])
def test_they_are_numpys(largest: float) -> None:
    phase = np.linspace(-largest, largest, 10_001).astype(np.float32)
    sine, cosine = sine_and_cosine(jnp.asarray(phase))
    # Single precision of the phase itself is 6e-8 of it, and of the turns likewise.
    np.testing.assert_allclose(sine, np.sin(phase.astype(float)), atol=1e-5 + 3e-7 * largest)
    np.testing.assert_allclose(cosine, np.cos(phase.astype(float)), atol=1e-5 + 3e-7 * largest)


def test_their_slopes_are_each_other() -> None:
    phase = jnp.linspace(-9, 9, 1001)
    slopes = [jax.vmap(jax.grad(lambda x, i=i: sine_and_cosine(x)[i]))(phase) for i in range(2)]
    np.testing.assert_allclose(slopes[0], np.cos(phase), atol=1e-5)
    np.testing.assert_allclose(slopes[1], -np.sin(phase), atol=1e-5)


def test_far_out_they_stay_bounded() -> None:
    found = np.asarray(sine_and_cosine(jnp.asarray([1e7, -3e9, 1e30], dtype=jnp.float32)))
    assert np.all(np.abs(found) <= 1 + 1e-5)
