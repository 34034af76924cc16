"""Patches: every pixel covered, taking and adding adjoint, averaging the inverse of taking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.operators.patches import add_patches, average_patches, patch_positions, take_patches

#: (patch size, height, width, stride): the picture is no smaller than the patch, and the stride
#: no longer, so that patches leave no gaps.
LAYOUTS = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just(n), st.integers(n, n + 20), st.integers(n, n + 20), st.integers(1, n)
    )
)


@given(LAYOUTS)
def test_positions_cover_every_pixel_and_stay_inside(layout: tuple[int, int, int, int]) -> None:
    n, height, width, stride = layout
    positions = patch_positions((height, width), n, stride)
    for places, side in zip(positions, (height, width), strict=True):
        assert places[0] == 0
        assert places[-1] == side - n
        assert (np.diff(places) > 0).all()
        # All but the last step, which is cut at the border, are the stride itself.
        assert (np.diff(places)[:-1] == stride).all()
        assert set((places[:, None] + np.arange(n)).ravel()) == set(range(side))


@given(LAYOUTS, st.integers(0, 2**32 - 1))
def test_adding_is_the_adjoint_of_taking(layout: tuple[int, int, int, int], seed: int) -> None:
    n, height, width, stride = layout
    rng = np.random.default_rng(seed)
    positions = patch_positions((height, width), n, stride)
    image = rng.normal(size=(height, width))
    patches = rng.normal(size=(n * n, len(positions[0]) * len(positions[1])))
    taken = (take_patches(image, n, positions) * patches).sum()
    added = (image * add_patches(patches, (height, width), positions)).sum()
    # Both are sums of up to 70,000 products of order one.
    assert taken == pytest.approx(added, abs=1e-9)


@given(LAYOUTS, st.integers(0, 2**32 - 1))
def test_averaging_taken_patches_gives_the_picture_back(
    layout: tuple[int, int, int, int], seed: int
) -> None:
    n, height, width, stride = layout
    image = np.random.default_rng(seed).uniform(0, 255, (height, width))
    positions = patch_positions(image.shape, n, stride)
    patches = take_patches(image, n, positions)
    again = average_patches(patches, (height, width), positions)
    # A mean of up to 81 equal numbers.
    np.testing.assert_allclose(again, image, rtol=1e-13)


def test_a_taken_patch_is_read_row_by_row() -> None:
    image = np.arange(30.0).reshape(5, 6)
    positions = patch_positions(image.shape, 3, 2)
    patches = take_patches(image, 3, positions)
    assert [list(places) for places in positions] == [[0, 2], [0, 2, 3]]
    assert patches.shape == (9, 6)
    for column, (y, x) in enumerate((y, x) for y in (0, 2) for x in (0, 2, 3)):
        np.testing.assert_array_equal(patches[:, column].reshape(3, 3), image[y : y + 3, x : x + 3])


def test_average_is_the_mean_of_the_covering_patches() -> None:
    positions = patch_positions((2, 3), 2, 1)
    patches = np.array([[1.0, 3.0]]).repeat(4, axis=0)
    np.testing.assert_array_equal(
        average_patches(patches, (2, 3), positions), [[1, 2, 3], [1, 2, 3]]
    )


def test_patches_keep_float32() -> None:
    image = np.ones((6, 7), np.float32)
    positions = patch_positions(image.shape, 3, 2)
    patches = take_patches(image, 3, positions)
    assert patches.dtype == np.float32
    assert average_patches(patches, (6, 7), positions).dtype == np.float32


@pytest.mark.parametrize("stride", [0, -3, 4, 12])
def test_a_stride_that_leaves_gaps_or_does_not_advance_is_refused(stride: int) -> None:
    # A pixel in no patch would average to 0/0.
    with pytest.raises(CofuseError, match=f"the stride is {stride}"):
        patch_positions((10, 10), 3, stride)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (1, 1)])
def test_a_picture_below_patch_size_is_refused_in_one_line(shape: tuple[int, int]) -> None:
    with pytest.raises(CofuseError) as caught:
        patch_positions(shape, 7, 1)
    message = str(caught.value)
    assert f"{shape[1]}x{shape[0]}" in message
    assert "7x7" in message
    assert "\n" not in message


def test_a_colour_picture_has_the_positions_of_its_planes() -> None:
    colour, grey = (patch_positions(shape, 4, 3) for shape in ((9, 12, 3), (9, 12)))
    assert [list(places) for places in colour] == [list(places) for places in grey]
