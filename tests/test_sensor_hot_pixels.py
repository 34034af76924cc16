"""Stuck pixels: those planted are found and replaced, those of the scene are left alone."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.evaluation.simulation import SAMPLE_NAMES, disc_kernel, sample_picture, simulate_stack
from cofuse.images import Stack
from cofuse.sensor.hot_pixels import find_hot_pixels, find_spikes, noise_of, without_hot_pixels

Array = np.ndarray[Any, Any]

SEEDS = st.integers(0, 2**32 - 1)


def through_focus(picture: Array, frames: int, sigma: float = 2.0, seed: int = 0) -> list[Array]:
    """A sharp picture and ever more defocused ones, with noise."""
    rng = np.random.default_rng(seed)
    levels = picture.astype(np.float64)
    taken = []
    for frame in range(frames):
        blurred = cv2.filter2D(levels, -1, disc_kernel(1.0 + 1.5 * frame))
        noisy = np.rint(blurred + rng.normal(0, sigma, picture.shape))
        taken.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return taken


def smooth_scene(height: int, width: int, seed: int) -> Array:
    noise = np.random.default_rng(seed).normal(size=(height, width))
    field = cv2.GaussianBlur(noise, (0, 0), 6.0)
    return 110.0 + 30.0 * field / field.std()


def mask_of(found: Array, shape: tuple[int, ...]) -> Array:
    """Whether every pixel is stuck in any channel."""
    mask = np.zeros(shape[:2], np.bool_)
    mask[found[:, 0], found[:, 1]] = True
    return mask


@pytest.mark.parametrize("row", [0, 1, 2, 40, 77, 78, 79])
@pytest.mark.parametrize("column", [0, 1, 50, 98, 99])
def test_stuck_pixels_at_the_rim_are_found(row: int, column: int) -> None:
    scene = through_focus(smooth_scene(80, 100, 8383), 3, seed=8383)
    for frame in scene:
        frame[row, column] = 255
    mask = mask_of(find_hot_pixels(Stack.from_arrays(scene)), (80, 100))
    assert mask[row, column] and mask.sum() <= 2


@given(st.integers(3, 6), SEEDS)
@settings(max_examples=20, deadline=None)
def test_planted_pixels_are_found_and_nothing_else(frames: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene = through_focus(smooth_scene(80, 100, seed), frames, seed=seed)
    rows, columns = rng.permutation(80)[:6], rng.permutation(100)[:6]
    values = np.where(rng.uniform(size=6) < 0.5, 255, 0)
    for frame in scene:
        frame[rows, columns] = values
    stack = Stack.from_arrays(scene)
    mask = mask_of(find_hot_pixels(stack), (80, 100))
    truth = np.zeros((80, 100), np.bool_)
    truth[rows, columns] = True
    # A planted value may happen to be like its surroundings.
    usual = cv2.medianBlur(scene[0], 5).astype(int)
    visible = np.abs(usual[rows, columns] - values) > 90
    assert mask[rows[visible], columns[visible]].all()
    # Those beside a stuck one belong to it from four standard deviations on: one in a thousand
    # such scenes has one.
    beside = cv2.dilate(truth.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    assert not (mask & ~beside).any()
    assert (mask & ~truth).sum() <= 1


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_natural_pictures_give_no_false_alarm(name: str) -> None:
    simulation = simulate_stack(sample_picture(name), frames=4, max_radius=8.0, sigma=3.0)
    assert len(find_hot_pixels(simulation.stack())) == 0


@pytest.mark.parametrize("frames", [3, 6])
def test_stars_that_blur_are_kept(frames: int) -> None:
    rng = np.random.default_rng(1)
    sky = np.full((120, 120), 20.0)
    sky[rng.integers(5, 115, 40), rng.integers(5, 115, 40)] = 4_000.0
    stack = Stack.from_arrays(through_focus(sky, frames))
    assert len(find_hot_pixels(stack)) == 0


def test_sharp_stars_are_spread_by_the_lens_and_kept() -> None:
    rng = np.random.default_rng(2)
    sky = np.full((120, 120, 3), 20.0)
    sky[rng.integers(5, 115, 40), rng.integers(5, 115, 40)] = 1_000.0
    sky = cv2.GaussianBlur(sky, (0, 0), 0.8)
    frames = [np.clip(sky + rng.normal(0, 2, sky.shape), 0, 255).astype(np.uint8) for _ in range(5)]
    assert len(find_hot_pixels(Stack.from_arrays(frames))) == 0


@pytest.mark.parametrize("frames", [1, 2])
def test_few_frames_tell_nothing(frames: int) -> None:
    frame = np.full((40, 40), 100, np.uint8)
    frame[20, 20] = 255
    assert len(find_hot_pixels(Stack.from_arrays([frame] * frames))) == 0


def test_pixel_spread_by_demosaicing_is_taken_whole() -> None:
    clean = through_focus(np.dstack([smooth_scene(80, 100, 3)] * 3), 4, sigma=1.0)
    spread = np.array([[0.25, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 0.25]])
    hot = [frame.astype(np.float64) for frame in clean]
    for frame in hot:
        frame[29:32, 49:52, 0] += 100.0 * spread
    stack = Stack.from_arrays([np.clip(np.rint(f), 0, 255).astype(np.uint8) for f in hot])
    found = find_hot_pixels(stack)
    assert set(found[:, 2].tolist()) == {0}
    assert len(found) == 9
    mended = without_hot_pixels(stack, found)[0]
    patch = np.s_[29:32, 49:52]
    assert np.abs(mended[patch].astype(int) - clean[0][patch]).max() < 12
    np.testing.assert_array_equal(mended[..., 1:], stack[0][..., 1:])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("colour", [False, True])
def test_values_are_replaced_in_the_native_type(dtype: Any, colour: bool) -> None:
    scale = {"u": np.iinfo(dtype).max / 255.0 if np.dtype(dtype).kind == "u" else 0}.get(
        np.dtype(dtype).kind, 1 / 255.0
    )
    scene = through_focus(smooth_scene(60, 60, 5), 3)
    native = [(frame * scale).astype(dtype) for frame in scene]
    if colour:
        native = [np.dstack([frame] * 3) for frame in native]
    rows, columns = np.array([0, 30, 59]), np.array([0, 20, 59])
    hot = [frame.copy() for frame in native]
    for frame in hot:
        frame[rows, columns] = dtype(255 * scale)
    stack = Stack.from_arrays(hot)
    found = find_hot_pixels(stack)
    mask = mask_of(found, stack.shape)
    assert mask[rows, columns].all()
    mended = without_hot_pixels(stack, found)
    assert (mended.white, mended.names, mended.dtype) == (stack.white, stack.names, stack.dtype)
    for before, after, clean in zip(stack, mended, native, strict=True):
        np.testing.assert_allclose(after[rows, columns], clean[rows, columns], atol=15 * scale)
        np.testing.assert_array_equal(after[~mask], before[~mask])


def test_clean_stack_is_returned_untouched() -> None:
    stack = Stack.from_arrays(through_focus(smooth_scene(50, 50, 7), 3))
    assert without_hot_pixels(stack, find_hot_pixels(stack)) is stack


def test_bands_do_not_show() -> None:
    scene = through_focus(smooth_scene(600, 40, 8), 3)
    rows = np.array([254, 255, 256, 257, 511, 512])
    columns = np.array([5, 30, 12, 20, 8, 25])
    for frame in scene:
        frame[rows, columns] = 255
    mask = mask_of(find_hot_pixels(Stack.from_arrays(scene)), (600, 40))
    assert mask[rows, columns].all()
    assert mask.sum() == len(rows)


@given(
    st.sampled_from([np.uint8, np.uint16, np.float32, np.float64]),
    st.booleans(),
    st.floats(0.5, 20.0),
    st.floats(0.0, 12.0),
    SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_spikes_are_those_of_the_definition(
    dtype: Any, colour: bool, threshold: float, sigma: float, seed: int
) -> None:
    """Excess over noise or texture, and its shape, worked out for every pixel in grey levels."""
    rng = np.random.default_rng(seed)
    shape = (70, 90, 3) if colour else (70, 90)
    levels = smooth_scene(70, 90, seed)[..., None] if colour else smooth_scene(70, 90, seed)
    levels = levels + rng.normal(0, sigma, shape)
    levels += rng.uniform(-150, 150, shape) * (rng.uniform(size=shape) < 0.01)
    levels = np.clip(levels, 0, 255) / 255.0
    white = float(np.iinfo(dtype).max) if np.dtype(dtype).kind == "u" else 1.0
    frame = (np.rint(levels * white) if white > 1 else levels).astype(dtype)
    stack = Stack.from_arrays([frame])
    places, windows = find_spikes(stack, frame, threshold)
    again, same = find_spikes(stack, frame, threshold, places[::2])
    np.testing.assert_array_equal(again, places[::2])
    np.testing.assert_array_equal(same, windows[::2])
    planes = frame.reshape(70, 90, -1).astype(np.float32)
    excess = (planes - cv2.medianBlur(planes, 5).reshape(planes.shape)) * (255.0 / white)
    size, noise = np.abs(excess), noise_of(stack, frame.reshape(70, 90, -1))
    padded = np.pad(size, ((4, 4), (4, 4), (0, 0)), constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, (9, 9), axis=(0, 1)).copy()
    around[..., 3:6, 3:6] = np.nan
    scatter = np.maximum(1.5 * np.nanmean(around, axis=(-2, -1)), noise)
    rim = np.pad(excess, ((1, 1), (1, 1), (0, 0)), constant_values=np.nan)
    cross = np.stack([rim[:-2, 1:-1], rim[2:, 1:-1], rim[1:-1, :-2], rim[1:-1, 2:]])
    beside = np.abs(np.nanmean(cross, axis=0))
    if colour:
        others = np.stack([size[..., [1, 2]], size[..., [0, 2]], size[..., [0, 1]]], axis=2)
        beside = np.minimum(beside, others.max(axis=-1))

    def spikes(slack: float) -> Array:
        strong = (size > (threshold + slack) * scatter) & (size > 6.0 + slack)
        return np.flatnonzero(strong & (beside < 0.2 * size - slack))

    assert np.isin(spikes(1e-3), places).all() and np.isin(places, spikes(-1e-3)).all()
    assert len(np.unique(places)) == len(places)
    wide = np.pad(excess, ((3, 3), (3, 3), (0, 0)))
    for place, window in zip(places, windows, strict=True):
        row, column, channel = np.unravel_index(place, planes.shape)
        there = wide[row : row + 7, column : column + 7, channel]
        least = 4 * scatter[row, column, channel]
        sure, expected = np.abs(np.abs(there) - least) > 1e-3, there * (np.abs(there) > least)
        np.testing.assert_allclose(window[sure], expected[sure], atol=1e-3)


def test_a_coloured_line_that_is_always_sharp_is_kept() -> None:
    """A date or a scale bar written into all frames: longer than a stuck pixel is spread."""
    scene = through_focus(np.dstack([smooth_scene(80, 100, 3)] * 3), 4, sigma=1.0)
    for frame in scene:
        frame[20, 30:36, 0] = 255  # six pixels
        frame[40:70, 50, 0] = 255
        for step in range(8):
            frame[50 + step, 70 + step, 1] = 255
        frame[60, 20, 2] = 255  # this one is stuck
    found = find_hot_pixels(Stack.from_arrays(scene))
    assert found.tolist() == [[60, 20, 2]]


@pytest.mark.parametrize("frames", [3, 5, 10, 15])
def test_pixels_missed_in_few_frames_are_found_in_every_colour(frames: int) -> None:
    scene = through_focus(np.dstack([smooth_scene(300, 200, 4)] * 3), frames, sigma=1.0)
    rng = np.random.default_rng(5)
    rows, columns = rng.permutation(300)[:30], rng.permutation(200)[:30]
    for number, frame in enumerate(scene):
        # Each may be missed once in five frames.
        seen = (np.arange(30) + number) % 5 > 0 if frames >= 5 else np.ones(30, np.bool_)
        frame[rows[seen], columns[seen], np.arange(30)[seen] % 3] = 255
    found = find_hot_pixels(Stack.from_arrays(scene))
    truth = rows.tolist(), columns.tolist(), (np.arange(30) % 3).tolist()
    assert set(map(tuple, found.tolist())) == set(zip(*truth, strict=True))


def test_frames_are_read_until_nothing_is_left_to_find() -> None:
    scene, read = through_focus(smooth_scene(80, 100, 9), 10), []

    def reader(number: int) -> Array:
        read.append(number)
        return scene[number]

    stack = Stack([lambda k=k: reader(k) for k in range(10)])  # type: ignore[misc]
    read.clear()
    told = []
    assert len(find_hot_pixels(stack, progress=lambda step: told.append(step.done))) == 0
    # Three of ten must show one; nothing did.
    assert read == [0, 1, 2] and told == [1, 2, 3, 10]
