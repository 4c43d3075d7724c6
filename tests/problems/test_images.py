"""Images: a faint source against the covariance of its pixels; the field without a channel axis."""

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


def test_channel_axis_changes_the_shape_only() -> None:
    with_axis, plain = problems.random_field(), problems.random_field(channel_axis=False)
    x, same = draws(with_axis, 20), draws(plain, 20)
    assert x.shape == (40, 12, 12, 1)
    np.testing.assert_array_equal(x[..., 0], same)
    np.testing.assert_array_equal(with_axis.log_evidence(x), plain.log_evidence(same))
