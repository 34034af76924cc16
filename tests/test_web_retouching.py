"""Painting from frames: exact inside, untouched outside, and no seam between."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import cofuse
from cofuse.images import Stack
from cofuse.sensor import NoiseLaw
from cofuse.sensor.law import BANDS, NoiseModel
from cofuse.web.retouching import (
    LARGEST_RADIUS,
    MOST_POINTS,
    Stroke,
    depth_reader,
    restored_reader,
    retouch,
)

DTYPES = ("uint8", "uint16", "float32")


def picture(seed: int, *shape: int, dtype: str = "uint8") -> np.ndarray:
    values = np.random.default_rng(seed).random(shape)
    if dtype == "float32":
        return values.astype(dtype)
    return np.rint(values * np.iinfo(dtype).max).astype(dtype)


def brush(frame: int, radius: float, softness: float, points: Any) -> Stroke:
    return Stroke(frame=frame, radius=radius, softness=softness, points=points)


def depth_in(stroke: Stroke, shape: tuple[int, ...]) -> np.ndarray:
    """How deep inside of a stroke every pixel of a picture lies, seen as painting sees it."""
    depth = np.full(shape[:2], -np.inf, np.float32)
    if (window := stroke.window(shape)) is not None:
        whole = (slice(0, part.stop - part.start) for part in window)
        depth[window] = depth_reader(stroke, window)(*whole)
    return depth


coordinates = st.floats(-30, 100)
strokes_of_two_frames = st.builds(
    Stroke,
    frame=st.integers(0, 1),
    radius=st.floats(0.3, 50),
    softness=st.floats(0, 1),
    points=st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=4),
)


@st.composite
def scenes(draw: Any) -> tuple[np.ndarray, Stack]:
    """A picture and two frames of its shape and dtype."""
    channels = draw(st.sampled_from([(), (3,)]))
    shape = draw(st.integers(1, 70)), draw(st.integers(1, 70)), *channels
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 99))
    image, *frames = (picture(seed + k, *shape, dtype=dtype) for k in range(3))
    return image, Stack.from_arrays(frames)


@settings(max_examples=60, deadline=None)
@given(scenes(), st.lists(strokes_of_two_frames, max_size=3))
def test_pixels_outside_are_untouched_and_the_core_is_the_frames_own(scene, strokes):
    image, frames = scene
    before = image.copy()
    result = retouch(image, frames, strokes)
    assert (image == before).all() and result.dtype == image.dtype
    touched = np.zeros(image.shape[:2], bool)
    for stroke in strokes:
        touched |= depth_in(stroke, image.shape) > 0
    assert (result[~touched] == image[~touched]).all()
    for last in strokes[-1:]:
        core = depth_in(last, image.shape) >= last.fade
        assert (result[core] == frames[last.frame][core]).all()


@settings(max_examples=30, deadline=None)
@given(scenes(), st.lists(strokes_of_two_frames, min_size=1, max_size=3))
def test_strokes_may_be_painted_in_several_goes(scene, strokes):
    """So that undoing is painting the list without its last stroke."""
    image, frames = scene
    step_by_step = image
    for number, stroke in enumerate(strokes, start=1):
        step_by_step = retouch(step_by_step, frames, [stroke])
        assert (step_by_step == retouch(image, frames, strokes[:number])).all()


@settings(max_examples=30, deadline=None)
@given(scenes(), strokes_of_two_frames, st.integers(0, 99))
def test_painting_what_is_there_already_changes_nothing(scene, stroke, seed):
    other, frames = scene
    inside = depth_in(stroke, other.shape) > 0
    image = other.copy()
    image[inside] = frames[stroke.frame][inside]  # all that the stroke covers came from its frame
    assert (retouch(image, frames, [stroke]) == image).all()


@settings(max_examples=30, deadline=None)
@given(strokes_of_two_frames, st.integers(0, 40), st.integers(0, 40), st.sampled_from(DTYPES))
def test_moving_everything_moves_the_result(stroke, right, down, dtype):
    pictures = [picture(seed, 240, 240, dtype=dtype) for seed in range(3)]
    moved = [np.roll(pixels, (down, right), (0, 1)) for pixels in pictures]
    inside = tuple((x + 80, y + 80) for x, y in stroke.points)
    here = brush(stroke.frame, stroke.radius, stroke.softness, inside)
    points = tuple((x + right, y + down) for x, y in inside)
    there = brush(stroke.frame, stroke.radius, stroke.softness, points)
    window = here.window((10**6, 10**6))
    assert window is not None
    if window[0].stop > 200 or window[1].stop > 200:
        return  # clipped at the picture's end, where nothing can move along
    first = retouch(pictures[0], Stack.from_arrays(pictures[1:]), [here])
    second = retouch(moved[0], Stack.from_arrays(moved[1:]), [there])
    # Fractions of a pixel are cut to sixteenths, either way.
    drawn = depth_in(here, (240, 240)), depth_in(there, (240, 240))
    if (np.roll(drawn[0], (down, right), (0, 1)) == drawn[1]).all():
        assert (np.roll(first, (down, right), (0, 1)) == second).all()


def steps(pixels: np.ndarray) -> np.ndarray:
    """Largest difference of every pixel to those on its right and below, shape (H − 1, W − 1)."""
    values = pixels.astype(float)
    across, down = np.abs(np.diff(values, axis=1)), np.abs(np.diff(values, axis=0))
    return np.maximum(across[:-1], down[:, :-1])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.floats(-90, 90), st.floats(10, 50), st.floats(0, 1))
def test_a_step_of_brightness_becomes_a_slope(seed, offset, radius, softness):
    image = np.float32(100) + 40 * picture(seed, 120, 150, dtype="float32")
    frame = image + np.float32(offset)
    stroke = brush(0, radius, softness, ((60, 60), (80, 65)))
    result = retouch(image, Stack.from_arrays([frame], white=255), [stroke])
    assert (steps(result) <= steps(image) + 2.1 * abs(offset) / stroke.fade + 0.01).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.floats(20, 50), st.floats(0.4, 1), st.booleans())
def test_no_seam_along_the_rim(seed, radius, softness, smooth):
    """Where picture and frame have nothing in common, their change is not seen at the rim."""
    image, frame = (picture(seed + k, 120, 150).astype(np.float32) / 255 for k in range(2))
    if smooth:  # as a picture out of focus
        image[:] = image.mean()
    stroke = brush(0, radius, softness, ((60, 60), (80, 65)))
    result = retouch(image, Stack.from_arrays([frame]), [stroke])
    depth = depth_in(stroke, image.shape)[:-1, :-1]
    rim = np.abs(depth) <= 1.0
    largest = np.maximum(steps(image), steps(frame))
    assert (steps(result) <= largest + 0.06)[rim].all()
    core = np.abs(depth - stroke.fade) <= 1.0
    assert (steps(result) <= largest + 0.06)[core].all()
    # And nowhere does it hold values that neither of them has.
    assert result.min() >= min(image.min(), frame.min())
    assert result.max() <= max(image.max(), frame.max())


def test_detail_fades_faster_than_brightness():
    x = np.arange(200)
    frame = np.tile(120 + 60 * (x % 2) - 30 + 0.0 * x, (200, 1)).astype(np.float32)
    image = np.full_like(frame, 60.0)
    stroke = brush(0, 80, 1.0, ((100, 100),))
    row = retouch(image, Stack.from_arrays([frame], white=255), [stroke])[100]
    detail = np.abs(np.diff(row)) / 60
    brightness = (row[1:] + row[:-1]) / 2
    # The left half of the stroke: from its rim at 20 to its middle at 100.
    assert ((detail > 0.05) & (detail < 0.95))[20:100].sum() < 10
    assert ((brightness > 63) & (brightness < 117))[20:100].sum() > 40


def test_brush_is_round_and_follows_its_way():
    points = ((20.0, 30.0), (60.5, 40.25), (50.0, 80.0))
    depth = depth_in(brush(0, 15, 0.5, points), (110, 100))
    y, x = np.mgrid[:110, :100] + 0.5
    distance = np.full(depth.shape, np.inf)
    for (ax, ay), (bx, by) in itertools.pairwise(points):
        along = ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / ((bx - ax) ** 2 + (by - ay) ** 2)
        t = np.clip(along, 0, 1)
        distance = np.minimum(distance, np.hypot(ax + t * (bx - ax) - x, ay + t * (by - ay) - y))
    known = np.isfinite(depth)
    assert np.abs((15 - distance) - depth)[known].max() < 1.0 and (distance[~known] > 14).all()
    dot = depth_in(brush(0, 4, 0.5, ((10.5, 10.5),)), (21, 21))
    assert dot[10, 10] == 4 and dot[10, 13] == 1 and (dot == dot.T).all()
    assert np.isneginf(depth_in(brush(0, 4, 0.5, ((900, 900),)), (21, 21))).all()


def test_tiles_of_a_long_stroke_do_not_show():
    image, *frames = (picture(seed, 300, 400, 3) for seed in range(2))
    strokes = [brush(0, 30, 0.9, ((20, 20), (380, 250), (30, 290)))]
    whole = retouch(image, Stack.from_arrays(frames), strokes)
    pieces = retouch(image, Stack.from_arrays(frames), strokes, side=128)
    assert np.abs(whole.astype(int) - pieces).max() <= 1
    assert (whole != pieces).mean() < 1e-3


def test_strokes_off_the_picture_are_cut_off():
    image, *frames = (picture(seed, 40, 60) for seed in range(2))
    stack = Stack.from_arrays(frames)
    off = brush(0, 10, 0.5, ((-500, 20), (-20, 20)))
    assert off.window(image.shape) is None
    assert (retouch(image, stack, [off]) == image).all()
    half = brush(0, 10, 0.5, ((0, 20),))
    assert half.window(image.shape) == (slice(10, 30), slice(0, 10))
    result = retouch(image, stack, [half])
    assert (result[20, :4] == frames[0][20, :4]).all() and (result[:, 10:] == image[:, 10:]).all()


GOOD: dict[str, Any] = {"frame": 0, "radius": 5.0, "softness": 0.5, "points": [[1, 2]]}


@pytest.mark.parametrize(
    "bad",
    [
        {"radius": 0},
        {"radius": -1},
        {"radius": float("nan")},
        {"radius": LARGEST_RADIUS + 1},
        {"softness": 1.1},
        {"softness": float("nan")},
        {"softness": None},
        {"frame": -1},
        {"frame": 0.5},
        {"points": []},
        {"points": [[1, 2, 3]]},
        {"points": [[1, 2], [3]]},
        {"points": [1, 2]},
        {"points": "a line"},
        {"points": None},
        {"points": [[1, float("nan")]]},
        {"points": [[1, float("inf")]]},
        {"points": [[1, 1e300]]},
        {"points": np.zeros((MOST_POINTS + 1, 2))},
    ],
    ids=str,
)
def test_bad_strokes_are_refused(bad):
    with pytest.raises(ValidationError, match=next(iter(bad))):
        Stroke(**GOOD | bad)


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_parts_are_restored_as_the_whole_frame_is(preset):
    y, x = np.mgrid[:200, :220]
    clean = 128 + 60 * np.sin(x / 9) * np.cos(y / 13)
    noisy = clean + np.random.default_rng(0).normal(0, 12, clean.shape)
    stack = Stack.from_arrays([np.rint(noisy.clip(0, 255)).astype(np.uint8)])
    with pytest.warns(UserWarning, match="one frame"):
        whole = cofuse.fuse(stack, sigma=12, preset=preset).image
    read = restored_reader(stack, NoiseLaw.white(12), 0, preset)
    part = read(slice(101, 131), slice(70, 110))
    assert part.shape == (30, 40) and part.dtype == np.uint8
    assert np.abs(part.astype(int) - whole[101:131, 70:110]).max() <= 1
    assert np.abs(part - clean[101:131, 70:110]).mean() < 4
    corner = read(slice(0, 10), slice(210, 220))
    assert np.abs(corner.astype(int) - whole[:10, 210:]).max() <= 1


def test_every_frame_is_restored_by_its_own_noise():
    rng = np.random.default_rng(0)
    noisy = [np.clip(128 + rng.normal(0, s, (40, 40)), 0, 255).astype(np.uint8) for s in (4, 20)]
    levels = np.array([4.0, 20.0])[:, None, None] * np.ones((2, 1, BANDS))
    law = NoiseLaw(model=NoiseModel(9.0), levels=levels, errors=np.zeros_like(levels))
    stack = Stack.from_arrays(noisy)
    for index, frame in enumerate(noisy):
        part = restored_reader(stack, law, index, "fast")(slice(0, 40), slice(0, 40))
        with pytest.warns(UserWarning, match="one frame"):
            alone = cofuse.fuse([frame], noise=law.only([index]), preset="fast").image
        np.testing.assert_array_equal(part, alone)
