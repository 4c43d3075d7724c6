"""Images: sources and gratings against the covariance of the pixels; the field without a channel axis."""

import numpy as np

from evidencenet import problems
from routes import draws, log_mean, normal


def test_faint_source_against_its_covariance() -> None:
    problem = problems.faint_source(4, amplitude=3.0, width=0.7)
    x = draws(problem, 3)
    i, j = np.indices((4, 4))
    far = np.exp(-(np.arange(-50, 51) ** 2) / 0.49).sum()
    for image, given in zip(x, problem.log_evidence(x), strict=True):
        at = []
        for row, column in np.ndindex(4, 4):
            source = np.exp(-((i - row) ** 2 + (j - column) ** 2) / 0.98).ravel() / far
            at.append(normal(image.ravel(), np.eye(16) + 9 * np.outer(source, source)))
        expected = (normal(image.ravel(), np.eye(16)), log_mean(at))
        # The sum that normalises the source ends at the edge of the image's side: 1e-14 of it is left out.
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-9)


def test_drift_against_its_covariance() -> None:
    problem = problems.drift(4, 3, contrast=0.7)
    x = draws(problem)
    i, j, t = (index.ravel() for index in np.indices((4, 4, 3)))
    expected = []
    for degrees in ((0,), (-120, -60, 60, 120)):
        of_waves = []
        for angle in range(0, 180, 30):
            for cycles in (1.5, 2.5):
                along = j * np.cos(np.radians(angle)) + i * np.sin(np.radians(angle))
                for move in degrees:
                    phase = 2 * np.pi * cycles * along / 4 + np.radians(move) * t
                    # cos(a − b) is the sum of the products of cosines and of sines.
                    covariance = np.eye(48) + 0.49 * np.cos(np.subtract.outer(phase, phase))
                    of_waves.append(normal(x.reshape(-1, 48), covariance))
        expected.append(log_mean(of_waves))
    np.testing.assert_allclose(problem.log_evidence(x), np.stack(expected, axis=1), rtol=0, atol=1e-9)


def test_gratings_move_as_their_number_says() -> None:
    # The noise is the same in both, so the difference is the grating alone.
    still, drifting = problems.drift().models
    for model, waves in ((still, 12), (drifting, 48)):
        assert model.simulate is not None
        grating, noise = (
            model.simulate(
                np.random.default_rng(1),
                {"a": np.full(waves, a), "b": np.zeros(waves), "wave": np.arange(waves)},
            )
            for a in (2.0, 0.0)
        )
        frames = np.moveaxis(grating - noise, 3, 0)
        assert np.allclose(frames[0, :, 0, 0], 2.0, atol=1e-5)
        corner = 2 * np.cos(
            np.radians([-120, -60, 60, 120] if waves == 48 else [0])[np.arange(waves) % (waves // 12)]
        )
        np.testing.assert_allclose(frames[1, :, 0, 0], corner, rtol=0, atol=1e-5)
        assert np.allclose(frames[1:], frames[:1], atol=1e-5) == (model.name == "still")


def test_channel_axis_changes_the_shape_only() -> None:
    with_axis, plain = problems.random_field(), problems.random_field(channel_axis=False)
    x, same = draws(with_axis, 20), draws(plain, 20)
    assert x.shape == (40, 12, 12, 1)
    np.testing.assert_array_equal(x[..., 0], same)
    np.testing.assert_array_equal(with_axis.log_evidence(x), plain.log_evidence(same))
