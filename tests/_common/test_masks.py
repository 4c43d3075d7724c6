"""Masks: the forms that missing numbers get, by the shape of the data."""

from typing import Any

import numpy as np
import pytest

from evidencenet._common.masks import like_draws, mask_missing, unmasked_shape, with_nan

NAN = np.nan
RNG = np.random.default_rng(1)


def test_masks_by_the_shape_of_the_data() -> None:
    vector: Any = mask_missing(np.array([[1.0, NAN], [3.0, 4.0]]))[0]
    np.testing.assert_array_equal(vector["x"], [[1, 0], [3, 4]])
    np.testing.assert_array_equal(vector["mask"], [[True, False], [True, True]])
    whole: Any = mask_missing(np.array([[[1.0, 2.0], [NAN, NAN]]]))[0]
    assert set(whole) == {"x", "mask"}
    np.testing.assert_array_equal(whole["mask"], [[True, False]])
    part: Any = mask_missing(np.array([[[1.0, NAN], [NAN, NAN]]]))[0]
    np.testing.assert_array_equal(part["mask"], [[True, False]])
    np.testing.assert_array_equal(part["seen"], [[[1, 0], [0, 0]]])
    image: Any = mask_missing(np.array([[[[1.0], [NAN]]]]))[0]
    np.testing.assert_array_equal(image, [[[[1, 1], [0, 0]]]])
    keyed: Any = mask_missing({"y": np.array([[1.0, NAN]]), "there": np.array([[True, False]])})[0]
    assert set(keyed) == {"y", "there"}  # the mask says already that it is missing
    keyed = mask_missing({"y": np.array([[1.0, NAN]]), "z": np.array([[1.0]])})[0]
    np.testing.assert_array_equal(keyed["y_seen"], [[1, 0]])


def gaps(shape: tuple[int, ...], axis: int | None) -> np.ndarray:
    """Draws of a shape with gaps: of single numbers, or of all along an axis together."""
    x = RNG.normal(size=(20, *shape))
    missing = RNG.random(x.shape) < 0.3
    if axis is not None:
        missing = np.broadcast_to(missing.take([0], axis), x.shape)
    return np.where(missing, NAN, x)


@pytest.mark.parametrize(
    ("shape", "axis", "form"),
    [
        ((4,), None, "elements"),
        ((30, 2), 2, "elements"),
        ((30, 2), None, "numbers"),
        ((6, 7), None, "plane"),
        ((6, 7, 3), 3, "pixels"),
        ((6, 7, 3), None, "channels"),
        ((3, 6, 7), 1, "pixels first"),
        ((3, 6, 7), None, "channels first"),
        ((6, 6, 6, 2), None, "channels"),
    ],
)
def test_forms_can_be_undone_and_given_to_observations(
    shape: tuple[int, ...], axis: int | None, form: Any
) -> None:
    x = gaps(shape, axis)
    masked, found = mask_missing(x)
    assert found == form
    np.testing.assert_array_equal(with_nan(masked, form), x)
    example = {key: array[0] for key, array in masked.items()} if isinstance(masked, dict) else masked[0]
    assert unmasked_shape(example, form) == shape
    for given, wanted in ((x, slice(None)), (x[3], slice(3, 4))):
        like = like_draws(given, example, form)
        pairs = [(like[key], masked[key]) for key in like] if isinstance(masked, dict) else [(like, masked)]
        for one, other in pairs:
            np.testing.assert_array_equal(one, other[wanted])


def test_gaps_that_no_draw_had_are_refused() -> None:
    masked: Any = mask_missing(gaps((30, 2), 2))[0]
    example = {key: array[0] for key, array in masked.items()}
    with pytest.raises(ValueError, match="an element of x is missing in part"):
        like_draws(gaps((30, 2), None), example, "elements")
    images: Any = mask_missing(gaps((3, 6, 7), 1))[0]
    with pytest.raises(ValueError, match="a pixel of x is missing in part"):
        like_draws(gaps((3, 6, 7), None), images[0], "pixels first")


def test_a_channel_is_not_taken_for_a_mask() -> None:
    """A network for images of two channels refuses one channel, whatever it holds."""
    one_channel = np.ones((6, 7, 1))
    assert like_draws(one_channel, np.zeros((6, 7, 2)), None) is one_channel


def test_parts_of_a_dict() -> None:
    draws: Any = mask_missing({"y": np.array([[1.0, NAN], [2.0, 3.0]]), "z": np.ones((2, 1))})[0]
    example = {key: array[0] for key, array in draws.items()}
    like = like_draws({"y": np.array([NAN, 4.0]), "z": np.ones(1)}, example, "parts")
    np.testing.assert_array_equal(like["y"], [0, 4])
    np.testing.assert_array_equal(like["y_seen"], [0, 1])
    unknown = {"w": np.ones(2)}
    assert like_draws(unknown, example, "parts") is unknown
