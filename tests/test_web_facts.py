"""Facts about a pixel agree with the maps they are taken from; reliefs and histograms with sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.images import Stack
from cofuse.operators import load_operator
from cofuse.web.facts import (
    activities,
    histogram,
    pixel_facts,
    relief_grid,
)


def stack_of(*shape: int, dtype: str = "uint8", frames: int = 3) -> Stack:
    values = np.random.default_rng(0).random((frames, *shape))
    white = np.iinfo(dtype).max if dtype.startswith("u") else 1
    return Stack.from_arrays(list((values * white).astype(dtype)))


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(["uint8", "uint16", "float32"]), st.booleans())
def test_activity_is_the_mean_of_patches_around_a_pixel(data, dtype, colour):
    shape = data.draw(st.integers(7, 40)), data.draw(st.integers(7, 40)), *((3,) if colour else ())
    stack = stack_of(*shape, dtype=dtype)
    y, x = (data.draw(st.integers(0, side - 1)) for side in shape[:2])
    facts = pixel_facts(x, y, image=stack[1], maps={})
    operator = load_operator("separable-7")
    for index, value in enumerate(activities(x, y, stack)):
        patches = operator.activity(stack.luminance(index))
        # Corners of the patches of 7 that begin up to 9 pixels before it and end 9 behind it.
        rows, columns = (
            slice(min(max(place - 9, 0), side - 7), place + 4)
            for place, side in ((y, shape[0]), (x, shape[1]))
        )
        assert value == pytest.approx(patches[rows, columns].mean(), rel=1e-4)
    assert facts["value"] == np.atleast_1d(stack[1][y, x]).tolist()


def test_only_a_small_window_of_each_frame_is_read():
    seen: list[int] = []

    class Watched(Stack):
        def part_reader(self, index: int) -> Any:
            read = super().part_reader(index)

            def watched(rows: slice, columns: slice) -> Any:
                seen.append(read(rows, columns).size)
                return read(rows, columns)

            return watched

    frame = np.zeros((200, 300), np.uint8)
    found = activities(150, 100, Watched([lambda: frame] * 3))
    assert len(seen) == len(found) == 3 and 17**2 <= max(seen) <= 32**2


def test_maps_are_read_at_the_pixel():
    stack = stack_of(20, 30, 3)
    index = np.arange(600, dtype=np.uint16).reshape(20, 30)
    maps = {"source": index, "confidence": index / 600, "depth": index / 2}
    facts = pixel_facts(7, 3, image=stack[0], maps=maps)
    assert (facts["x"], facts["y"], facts["frame"]) == (7, 3, 97)
    assert facts["confidence"] == 97 / 600 and facts["depth"] == 48.5
    without = pixel_facts(7, 3, image=stack[0], maps={})
    assert without["frame"] is without["confidence"] is without["depth"] is None


def test_pictures_below_patch_size_and_pixels_outside():
    stack = stack_of(4, 5)
    assert activities(4, 3, stack) is None
    for x, y in ((5, 0), (0, 4), (-1, 0)):
        with pytest.raises(CofuseError, match="no pixel"):
            pixel_facts(x, y, image=stack[0], maps={})


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([(), (3,)]))
def test_histogram_counts_every_pixel(height, width, channels):
    pixels = np.random.default_rng(height).integers(0, 256, (height, width, *channels), np.uint8)
    counts = histogram(pixels, white=255)
    assert tuple(counts) == (("r", "g", "b") if channels else ("grey",))
    for channel, count in enumerate(counts.values()):
        plane = pixels[..., channel] if channels else pixels
        assert count == np.bincount(plane.ravel(), minlength=256).tolist()


def test_histogram_is_over_white():
    twelve_bits = np.array([[0, 4095, 2048, 65535]], np.uint16)
    count = histogram(twelve_bits, white=4095)["grey"]
    assert (count[0], count[128], count[255]) == (1, 1, 2)
    tall = np.full((1000, 3), 0.5, np.float32)  # several bands
    assert histogram(tall, white=1.0)["grey"][128] == 3000


def test_relief_of_a_ramp_with_outliers():
    x = np.arange(900, dtype=np.float32) * np.ones((600, 1), np.float32)
    position = 9 * x / 899
    position[::37, ::41] = 0  # a few wrong ones
    image = np.zeros((600, 900, 3), np.uint8)
    image[:300, :, 0] = 255
    heights, colours = relief_grid(position, image, white=255, last=9)
    rows, columns = heights.shape
    assert max(rows, columns) <= 256 and colours.shape == (rows, columns, 3)
    assert heights.min() == 0 and heights.max() == pytest.approx(1)
    expected = 1 - (np.arange(columns) + 0.5) / columns  # the first frame is nearest
    assert np.abs(heights - expected).max() < 0.03
    assert colours[0, 0].tolist() == [255, 0, 0] and not colours[-1].any()


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 500), (256, 257), (300, 1)])
def test_reliefs_of_any_shape(shape):
    position = np.random.default_rng(0).random(shape).astype(np.float32)
    heights, colours = relief_grid(position, np.full(shape, 0.5, np.float32), white=1, last=65535)
    assert max(heights.shape) <= 256 and colours.shape == (*heights.shape, 3)
    # What spans hardly any frames stays flat.
    assert heights.min() >= 0 and heights.max() < 1e-3
    assert (colours == 128).all()


@settings(max_examples=60)
@example(2048, 1536)
@example(6000, 4000)
@example(1904, 1427)
@example(159, 212)
@given(st.integers(2, 6000), st.integers(2, 6000))
def test_heights_and_colours_of_a_relief_lie_on_one_grid(width, height):
    ramp = (np.arange(width, dtype=np.float32) + 0.5) / width
    position = np.broadcast_to(ramp, (height, width))
    heights, colours = relief_grid(position, position, white=1, last=1)
    rows, columns = heights.shape
    assert colours.shape == (rows, columns, 3) and max(rows, columns) <= 256
    # Blocks are square and begin at the first pixel; both are means over the same of them.
    step = -(-width // columns) if width >= height else -(-height // rows)
    assert (rows, columns) == (-(-height // step), -(-width // step))
    means = (np.arange(columns) + 0.5) * step / width
    inner = slice(1, -1)  # the last block may be cut
    shown = colours[..., 0] / 255
    assert np.abs(shown[:, inner] - means[inner]).max(initial=0) < 0.003
    near, far = np.quantile(shown, (0.005, 0.995))
    expected = (far - np.clip(shown, near, far)) / max(far - near, 0.25)
    assert np.abs(heights - expected)[:, inner].max(initial=0) < 0.03
