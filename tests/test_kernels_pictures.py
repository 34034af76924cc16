"""The compiled passes over frames, each against the plain NumPy that says what it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cofuse.depth.means import luminance_means

DTYPES = (np.uint8, np.uint16, np.float32)


def pixels(shape: tuple[int, ...], dtype: Any, seed: int) -> NDArray[Any]:
    return (np.random.default_rng(seed).random(shape) * 200).astype(dtype)


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.sampled_from((1, 2, 3, 4, 8)),
)
def test_means_are_those_of_the_pixels_that_are_there(
    height: int, width: int, dtype: Any, colour: bool, scale: int
) -> None:
    picture = pixels((height, width, 3) if colour else (height, width), dtype, height)
    weights = np.array([0.5, -0.2, 1.1] if colour else [0.7], np.float32)
    plane = picture.astype(np.float32) @ weights if colour else picture * weights[0]
    small = luminance_means(picture, weights, scale)
    assert small.shape == (-(-height // scale), -(-width // scale))
    for y, x in np.ndindex(small.shape):
        block = plane[y * scale : (y + 1) * scale, x * scale : (x + 1) * scale]
        assert small[y, x] == pytest.approx(block.mean(), rel=1e-5, abs=1e-4)
