"""The choice of frames: streaming argmax, confidence, activity, and the clean-up."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.fusion.choice import (
    Choice,
    choose,
    compose,
    gather_patches,
    patch_activity,
    patch_votes,
    remove_small_regions,
    window_activity,
)
from cofuse.images import Stack
from cofuse.operators import dct_operator, finite_difference_operator
from cofuse.operators.patches import patch_positions
from cofuse.operators.reference import activity, region_areas

Array = np.ndarray[Any, Any]

SEEDS = st.integers(0, 2**32 - 1)

#: Activities of 1 to 6 frames of a few places, from few values, so that ties are common.
TIED = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4)),
    elements=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]),
)


def texture(height: int, width: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0, 255, (height, width)).astype(np.float32)


def blobs(height: int, width: int, frames: int, seed: int) -> Array:
    """A label map with regions of many sizes: the argmax of smoothed noises."""
    rng = np.random.default_rng(seed)
    noises = [
        cv2.GaussianBlur(rng.normal(size=(height, width)), (0, 0), 1.2) for _ in range(frames)
    ]
    return np.argmax(noises, axis=0).astype(np.uint8)


def choice_of(index: Array, seed: int = 0) -> Choice:
    confidence = np.random.default_rng(seed).uniform(0.1, 1, index.shape).astype(np.float32)
    return Choice(index, confidence)


# The choice.


@given(TIED)
def test_choice_is_the_first_frame_of_largest_activity(activities: Array) -> None:
    choice = choose(iter(activities))
    np.testing.assert_array_equal(choice.index, np.argmax(activities, axis=0))
    assert choice.index.dtype == np.uint8


@given(TIED)
def test_confidence_is_one_less_second_over_first(activities: Array) -> None:
    confidence = choose(iter(activities)).confidence
    assert confidence.dtype == np.float32
    assert (confidence >= 0).all()
    assert (confidence <= 1).all()
    if len(activities) == 1:
        np.testing.assert_array_equal(confidence, 1.0)
        return
    second, first = np.sort(activities, axis=0)[-2:]
    active = first > 0
    expected = 1 - second[active] / first[active]
    # Small numbers and their quotients in float32.
    np.testing.assert_allclose(confidence[active], expected, rtol=0, atol=2e-7)
    np.testing.assert_array_equal(confidence[~active], 0.0)


@given(st.integers(2, 6), SEEDS)
def test_choice_follows_a_permutation_of_the_frames(frames: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    activities = rng.permuted(np.arange(frames * 20), axis=0).reshape(frames, 4, 5)
    activities = activities.astype(np.float32)  # whole numbers, all different: no ties
    order = rng.permutation(frames)
    straight, permuted = choose(iter(activities)), choose(iter(activities[order]))
    np.testing.assert_array_equal(order[permuted.index], straight.index)
    np.testing.assert_array_equal(permuted.confidence, straight.confidence)


@pytest.mark.parametrize(
    ("frames", "dtype"), [(1, np.uint8), (256, np.uint8), (257, np.uint16), (300, np.uint16)]
)
def test_the_index_is_as_wide_as_the_stack_needs(frames: int, dtype: type) -> None:
    winners = np.array([[0, frames // 2, frames - 1]])
    choice = choose((winners == k).astype(np.float32) for k in range(frames))
    assert choice.index.dtype == dtype
    np.testing.assert_array_equal(choice.index, winners)


def test_choice_does_not_write_to_the_activities() -> None:
    activities = texture(4, 5).reshape(2, 2, 5)
    activities.setflags(write=False)
    choose(iter(activities))


# Activity.


@pytest.mark.parametrize("n", [3, 4, 7])
@pytest.mark.parametrize("window", [1, 5, 11])
def test_window_activity_of_a_constant_picture_is_zero(n: int, window: int) -> None:
    picture = np.full((25, 30), 200.0, np.float32)
    result = window_activity(picture, dct_operator(n), window=window)
    assert result.shape == picture.shape
    assert result.dtype == np.float32
    # n² − 1 coefficients, each the float32 rounding of a sum of n² terms of about 200/n.
    np.testing.assert_allclose(result, 0.0, atol=n**2 * n**2 * (200 / n) * 6e-8)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("window", [1, 3, 7])
def test_window_activity_is_the_mean_of_patches_standing_at_their_centres(
    n: int, window: int
) -> None:
    picture, operator = texture(14, 17), finite_difference_operator(n)
    values = activity(picture.astype(np.float64), operator)
    result = window_activity(picture, operator, window=window)
    # A pixel has the patch centred on it, or at the border the nearest one there is.
    rows, columns = (np.clip(np.arange(side) - n // 2, 0, side - n) for side in (14, 17))
    at_pixels = values[np.ix_(rows, columns)]
    reach = window // 2
    padded = np.pad(at_pixels, reach, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (window, window))
    # Activities of thousands, made of float32 coefficients.
    np.testing.assert_allclose(result, windows.mean(axis=(2, 3)), rtol=1e-5)


def test_window_activity_peaks_where_the_texture_is() -> None:
    picture = np.full((60, 60), 128.0, np.float32)
    picture[30:45, 10:25] = texture(15, 15)
    result = window_activity(picture, dct_operator(5), window=5)
    y, x = np.unravel_index(result.argmax(), result.shape)
    assert 30 <= y < 45
    assert 10 <= x < 25
    # Windows and patches that reach from here to the texture: 2 + 2 pixels and no more.
    far = np.ones_like(picture, bool)
    far[26:49, 6:29] = False
    assert result[far].max() < 1e-4 * result.max()


@given(st.integers(3, 7), st.sampled_from([1, 5, 11]), SEEDS)
@settings(deadline=None, max_examples=20)
def test_the_sharper_of_two_pictures_wins(n: int, window: int, seed: int) -> None:
    sharp = texture(40, 40, seed)
    blurred = cv2.GaussianBlur(sharp, (0, 0), 1.5)
    frames = [blurred.copy(), sharp.copy()]
    frames[0][:, :20], frames[1][:, :20] = sharp[:, :20], blurred[:, :20]
    choice = choose(window_activity(f, dct_operator(n), window=window) for f in frames)
    # Away from the seam by the reach of patch and window.
    reach = n // 2 + window // 2 + 1
    assert (choice.index[:, : 20 - reach] == 0).all()
    assert (choice.index[:, 20 + reach :] == 1).all()


@pytest.mark.parametrize("stride", [1, 3])
def test_patch_activity_is_the_activity_at_the_positions(stride: int) -> None:
    picture, operator = texture(16, 18), dct_operator(5)
    positions = patch_positions(picture.shape, 5, stride)
    expected = activity(picture.astype(np.float64), operator)[np.ix_(*positions)]
    # Sums of 24 float32 coefficients.
    np.testing.assert_allclose(patch_activity(picture, operator, positions), expected, rtol=1e-5)


# Clean-up.


def test_a_hole_is_filled_by_its_surroundings_and_loses_its_confidence() -> None:
    index = np.zeros((20, 20), np.uint8)
    index[:, 10:] = 1
    index[3:6, 3:6] = 1
    index[12, 15] = 0
    choice = choice_of(index)
    cleaned = remove_small_regions(choice, 10)
    expected = np.zeros((20, 20), np.uint8)
    expected[:, 10:] = 1
    np.testing.assert_array_equal(cleaned.index, expected)
    changed = index != expected
    np.testing.assert_array_equal(cleaned.confidence[changed], 0.0)
    np.testing.assert_array_equal(cleaned.confidence[~changed], choice.confidence[~changed])


def test_a_region_of_just_the_smallest_size_stays() -> None:
    index = np.zeros((12, 12), np.uint8)
    index[2:5, 2:5] = 1
    assert remove_small_regions(choice_of(index), 9).index.sum() == 9
    assert remove_small_regions(choice_of(index), 10).index.sum() == 0


@pytest.mark.parametrize("smallest", [0, 1])
def test_nothing_is_smaller_than_a_pixel(smallest: int) -> None:
    choice = choice_of(texture(9, 9).astype(np.uint8) % 2)
    cleaned = remove_small_regions(choice, smallest)
    np.testing.assert_array_equal(cleaned.index, choice.index)
    np.testing.assert_array_equal(cleaned.confidence, choice.confidence)


def test_a_map_of_nothing_but_small_regions_stays() -> None:
    choice = choice_of((np.indices((8, 8)).sum(axis=0) % 2).astype(np.uint8))
    cleaned = remove_small_regions(choice, 5)
    np.testing.assert_array_equal(cleaned.index, choice.index)
    np.testing.assert_array_equal(cleaned.confidence, choice.confidence)


@given(st.integers(1, 24), st.integers(1, 24), st.integers(2, 4), st.integers(2, 60), SEEDS)
@settings(deadline=None, max_examples=60)
def test_clean_up_keeps_large_regions_and_gives_the_rest_to_the_nearest(
    height: int, width: int, frames: int, smallest: int, seed: int
) -> None:
    choice = choice_of(blobs(height, width, frames, seed))
    kept = choice.index.copy(), choice.confidence.copy()
    cleaned = remove_small_regions(choice, smallest)
    np.testing.assert_array_equal(choice.index, kept[0])
    np.testing.assert_array_equal(choice.confidence, kept[1])
    assert cleaned.index.dtype == choice.index.dtype
    assert cleaned.confidence.dtype == np.float32
    large = region_areas(choice.index) >= smallest
    if not large.any():
        np.testing.assert_array_equal(cleaned.index, choice.index)
        return
    np.testing.assert_array_equal(cleaned.index[large], choice.index[large])
    assert set(np.unique(cleaned.index)) <= set(np.unique(choice.index[large]))
    places, labels = np.argwhere(large), choice.index[large]
    for y, x in np.argwhere(~large):
        distances = np.hypot(*(places - (y, x)).T)
        mine = distances[labels == cleaned.index[y, x]].min()
        # OpenCV measures along a 5 × 5 mask: up to a few per cent off.
        assert mine <= 1.08 * distances.min()
    changed = cleaned.index != choice.index
    np.testing.assert_array_equal(cleaned.confidence[changed], 0.0)
    np.testing.assert_array_equal(cleaned.confidence[~changed], choice.confidence[~changed])


# Composition.

SHAPE = 37, 41
WHITE = {np.uint8: 255, np.uint16: 65535, np.float32: 1}


def boxed(picture: Array, side: int) -> Array:
    """The picture after two passes of a box, its border repeated before each."""
    for _ in range(2):
        for axis in (0, 1):
            pads = [(0, 0)] * picture.ndim
            pads[axis] = (side // 2, side // 2)
            padded = np.pad(picture, pads, mode="edge")
            picture = np.lib.stride_tricks.sliding_window_view(padded, side, axis).mean(axis=-1)
    return picture


def mixture_of(frames: list[Array], index: Array) -> Array:
    """What `compose` is to make, in floats of the frames' own range."""
    total = np.zeros(frames[0].shape)
    for number, frame in enumerate(frames):
        rest = frame.astype(np.float64)
        # The finest detail is not blended, the other over 3, 7 and 21 pixels.
        for finer, blend in ((3, 1), (7, 3), (21, 7), (None, 21)):
            smooth = np.zeros_like(rest) if finer is None else boxed(rest, finer)
            share = boxed((index == number).astype(np.float64), blend)
            total += (rest - smooth) * (share if rest.ndim == 2 else share[..., None])
            rest = smooth
    return total


def some_frames(count: int, dtype: Any, colour: bool, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    shape = (*SHAPE, 3) if colour else SHAPE
    return [(WHITE[dtype] * rng.uniform(0.1, 0.7, shape)).astype(dtype) for _ in range(count)]


@given(st.integers(1, 4), st.sampled_from(list(WHITE)), st.booleans(), SEEDS)
@settings(deadline=None, max_examples=30)
def test_frames_are_blended_band_by_band(count: int, dtype: Any, colour: bool, seed: int) -> None:
    frames = some_frames(count, dtype, colour, seed)
    index = blobs(*SHAPE, count, seed)
    image = compose(Stack.from_arrays(frames), index)
    assert image.dtype == dtype
    # Rounded to an integer, or float32 arithmetic on numbers up to white.
    atol = 3e-6 if dtype is np.float32 else 0.5 + 1e-5 * WHITE[dtype]
    expected = mixture_of(frames, index)
    if dtype is not np.float32:
        expected = expected.clip(0, WHITE[dtype])
    np.testing.assert_allclose(image, expected, rtol=0, atol=atol)


@given(st.integers(1, 3), st.sampled_from(list(WHITE)), st.booleans(), SEEDS)
@settings(deadline=None, max_examples=30)
def test_what_is_all_of_one_frame_is_that_frame(
    number: int, dtype: Any, colour: bool, seed: int
) -> None:
    frames = some_frames(4, dtype, colour, seed)
    image = compose(Stack.from_arrays(frames), np.full(SHAPE, number, np.uint8))
    atol = 1e-6 if dtype is np.float32 else 0
    np.testing.assert_allclose(image, frames[number], rtol=0, atol=atol)
    # And a frame that is all there is, whatever was chosen.
    same = Stack.from_arrays([frames[0]] * 4)
    image = compose(same, blobs(*SHAPE, 4, seed))
    np.testing.assert_allclose(image, frames[0], rtol=0, atol=atol)


def test_a_step_between_flat_frames_becomes_a_long_ramp() -> None:
    index = np.zeros((5, 200), np.uint8)
    index[:, 100:] = 1
    dark, light = np.full((5, 200), 0.2, np.float32), np.full((5, 200), 0.6, np.float32)
    row = compose(Stack.from_arrays([dark, light]), index)[2]
    # A box of 21 pixels passed twice over a step: sums of 1, 2, … 21, 20, … 1 by 21².
    rise = np.cumsum([*range(1, 22), *range(20, 0, -1)]) / 21**2
    expected = np.concatenate([np.zeros(80), rise[:-1], np.ones(80)])
    np.testing.assert_allclose(row, 0.2 + 0.4 * expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", WHITE)
def test_far_from_a_border_of_the_choice_pixels_are_copies(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    frames = [(WHITE[dtype] * rng.random((20, 200, 3))).astype(dtype) for _ in range(2)]
    index = np.zeros((20, 200), np.uint8)
    index[:, 100:] = 1
    image = compose(Stack.from_arrays(frames), index)
    atol = 1e-6 if dtype is np.float32 else 0
    np.testing.assert_allclose(image[:, :38], frames[0][:, :38], rtol=0, atol=atol)
    np.testing.assert_allclose(image[:, 162:], frames[1][:, 162:], rtol=0, atol=atol)


@given(SEEDS, st.sampled_from([7, 16, 30]))
@settings(deadline=None, max_examples=10)
def test_rows_that_are_worked_on_at_a_time_do_not_show(seed: int, band: int) -> None:
    frames = some_frames(3, np.float32, True, seed)
    index = blobs(*SHAPE, 3, seed)
    whole = compose(Stack.from_arrays(frames), index)
    parts = compose(Stack.from_arrays(frames), index, band=band)
    # OpenCV's running sums are rounded by where they begin.
    np.testing.assert_allclose(parts, whole, rtol=0, atol=2e-6)


def test_many_frames_are_composed_as_few_are() -> None:
    frames = [np.full((6, 200), k % 256, np.uint8) for k in range(300)]
    index = np.zeros((6, 200), np.uint16)
    index[:, 100:] = 299
    image = compose(Stack.from_arrays(frames), index)
    np.testing.assert_array_equal(image[:, :38], 0)
    np.testing.assert_array_equal(image[:, 162:], 43)


# Patches.


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), SEEDS)
@settings(deadline=None, max_examples=30)
def test_every_patch_is_gathered_from_its_frame(
    frames: int, planes: int, stride: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    stack = rng.uniform(0, 255, (frames, 9, 11, planes)).astype(np.float32)
    positions = patch_positions((9, 11), 3, stride)
    index = rng.integers(0, frames, tuple(map(len, positions))).astype(np.uint8)
    gathered = gather_patches(iter(stack), index, 3, positions)
    assert gathered.shape == (planes, 9, index.size)
    column = 0
    for i, y in enumerate(positions[0]):
        for j, x in enumerate(positions[1]):
            patch = stack[index[i, j], y : y + 3, x : x + 3]
            np.testing.assert_array_equal(gathered[:, :, column], patch.reshape(9, planes).T)
            column += 1


@given(st.integers(1, 4), st.integers(1, 3), SEEDS)
@settings(deadline=None, max_examples=30)
def test_patch_votes_are_a_majority_with_ties_to_the_earlier_frame(
    frames: int, stride: int, seed: int
) -> None:
    shape, n = (8, 10), 3
    rng = np.random.default_rng(seed)
    positions = patch_positions(shape, n, stride)
    index = rng.integers(0, frames, tuple(map(len, positions))).astype(np.uint8)
    choice = choice_of(index, seed)
    result = patch_votes(choice, frames, n, shape, positions)
    counts = np.zeros((frames, *shape))
    total = np.zeros(shape)
    for i, y in enumerate(positions[0]):
        for j, x in enumerate(positions[1]):
            counts[index[i, j], y : y + n, x : x + n] += 1
            total[y : y + n, x : x + n] += choice.confidence[i, j]
    np.testing.assert_array_equal(result.index, counts.argmax(axis=0))
    # Means of at most nine numbers up to 1 in float32.
    np.testing.assert_allclose(result.confidence, total / counts.sum(axis=0), rtol=1e-6)
    assert result.confidence.dtype == np.float32


@pytest.mark.parametrize("band", [32, 100, 333])
def test_small_regions_are_filled_alike_in_bands_of_any_height(band):
    rng = np.random.default_rng(band)
    index = np.repeat(np.repeat(rng.integers(0, 3, (18, 2), np.uint8), 40, axis=0), 30, axis=1)
    specks = rng.random(index.shape) < 0.02
    index[specks] = 3
    choice = Choice(index, np.ones(index.shape, np.float32))
    whole = remove_small_regions(choice, 20, band=len(index))
    in_bands = remove_small_regions(choice, 20, band=band)
    assert specks.sum() > 500 and not (whole.index == 3).any()
    np.testing.assert_array_equal(in_bands.index, whole.index)
    np.testing.assert_array_equal(in_bands.confidence == 0, specks)


def test_a_large_hole_is_filled_from_beyond_the_first_reach():
    index = np.zeros((900, 3), np.uint8)
    index[860:] = 4
    index[40:860] = np.arange(820, dtype=np.uint8)[:, None] % 2 + 5  # rows of three pixels each
    choice = Choice(index, np.ones(index.shape, np.float32))
    filled = remove_small_regions(choice, 10, band=100).index
    assert (filled[:440] == 0).all() and (filled[460:] == 4).all()
