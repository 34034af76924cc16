"""The choice of frames: streaming argmax, confidence, activity, and the clean-up."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse import selection
from cofuse.images import Stack
from cofuse.kernels.reference import activity, region_areas
from cofuse.operators import dct_operator, finite_difference_operator
from cofuse.patches import patch_positions
from cofuse.selection import (
    Choice,
    choose,
    compose,
    compose_with,
    gather_patches,
    patch_activity,
    patch_votes,
    picture_scale,
    reduce,
    remove_small_regions,
    spread_choice,
    window_activity,
)
from cofuse.simulation import sample_picture

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
    expected = np.abs(operator.apply_image(picture.astype(np.float64), stride=stride)).sum(axis=0)
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


def test_a_map_of_nothing_but_small_regions_stays_with_its_rim() -> None:
    index = (np.indices((16, 16)).sum(axis=0) % 2).astype(np.uint8)
    choice = Choice(index, np.ones((16, 16), np.float32))
    np.testing.assert_array_equal(remove_small_regions(choice, 5, only_specks=True).index, index)


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


@given(st.integers(1, 24), st.integers(1, 24), st.integers(2, 4), st.integers(2, 60), SEEDS)
@settings(deadline=None, max_examples=40)
def test_specks_are_small_and_neither_sure_at_the_rim_nor_in_a_crowd(
    height: int, width: int, frames: int, smallest: int, seed: int
) -> None:
    choice = choice_of(blobs(height, width, frames, seed), seed)
    kept = remove_small_regions(choice, smallest, only_specks=True)
    rim = np.ones((height, width), bool)
    rim[selection._RIM : -selection._RIM, selection._RIM : -selection._RIM] = False
    sure = rim & (choice.confidence > selection._SURE)
    large = region_areas(choice.index) >= smallest
    for stays in (sure, large):
        np.testing.assert_array_equal(kept.index[stays], choice.index[stays])
        np.testing.assert_array_equal(kept.confidence[stays], choice.confidence[stays])
    changed = kept.index != choice.index
    np.testing.assert_array_equal(kept.confidence[changed], 0.0)
    np.testing.assert_array_equal(kept.confidence[~changed], choice.confidence[~changed])
    # Of the tiniest regions there is no crowd, and where nothing is sure the rim is as all else.
    tiny = min(smallest, selection._TINY)
    doubtful = Choice(choice.index, np.minimum(choice.confidence, np.float32(0.5)))
    np.testing.assert_array_equal(
        remove_small_regions(doubtful, tiny, only_specks=True).index,
        remove_small_regions(choice, tiny).index,
    )


def test_a_narrow_strip_at_the_rim_is_no_speck() -> None:
    index = np.zeros((20, 30), np.uint8)
    index[-2:, 5:25] = 1  # 40 pixels
    index[8:12, 10:15] = 1  # 20 pixels, as sure, but in the middle
    choice = Choice(index, np.full(index.shape, 0.99, np.float32))
    assert not remove_small_regions(choice, 60).index.any()
    expected = index.copy()
    expected[8:12, 10:15] = 0
    kept = remove_small_regions(choice, 60, only_specks=True)
    np.testing.assert_array_equal(kept.index, expected)


def test_small_regions_among_others_like_them_are_the_scene() -> None:
    index = np.zeros((200, 400), np.uint8)
    rows, columns = np.indices((200, 200))
    index[:, :200] = ((rows // 5 + columns // 5) % 2) + 1  # a board of squares of 25 pixels
    index[100:105, 300:305] = 1  # and one alone
    choice = Choice(index, np.full(index.shape, 0.5, np.float32))
    kept = remove_small_regions(choice, 30, only_specks=True).index
    # In the middle of the board all stay; at its end, where the crowd thins, some go.
    np.testing.assert_array_equal(kept[:, :150], index[:, :150])
    assert not kept[:, 240:].any()
    assert not remove_small_regions(choice, 30).index.any()


# Smaller pictures.


@given(st.integers(1, 13), st.integers(1, 13), st.integers(1, 5), SEEDS)
def test_reduced_pictures_hold_the_means_of_blocks(
    height: int, width: int, scale: int, seed: int
) -> None:
    picture = texture(height, width, seed)
    small = reduce(picture, scale)
    assert small.shape == (-(-height // scale), -(-width // scale))
    assert small.dtype == np.float32
    # A block that the border cuts is the mean of what is left of it.
    whole = picture.astype(np.float64)
    for y, x in np.ndindex(small.shape):
        block = whole[y * scale : (y + 1) * scale, x * scale : (x + 1) * scale]
        assert small[y, x] == pytest.approx(block.mean(), rel=1e-6)


def enlarged(factor: int) -> Stack:
    """Two frames of one picture: sharp, and blurred."""
    sharp = cv2.cvtColor(sample_picture("astronaut"), cv2.COLOR_RGB2GRAY)[:128, 100:228]
    frames = (sharp, cv2.blur(sharp, (7, 7)))
    large = [cv2.resize(f, None, fx=factor, fy=factor) for f in frames]
    return Stack.from_arrays(large)


@pytest.mark.parametrize(("factor", "scale"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_enlarged_pictures_are_made_smaller_again_by_half_of_it(factor: int, scale: int) -> None:
    stack = enlarged(factor)
    assert picture_scale(stack) == scale
    turned = Stack.from_arrays([np.ascontiguousarray(f.T[::-1]) for f in reversed(list(stack))])
    assert picture_scale(turned) == scale


@pytest.mark.parametrize("shape", [(1, 1), (3, 200), (9, 9), (40, 30, 3)])
def test_noise_and_nothing_stay_as_large_as_they_are(shape: tuple[int, ...]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    assert picture_scale(Stack.from_arrays([noise, noise])) == 1
    assert picture_scale(Stack.from_arrays([np.zeros(shape, np.uint8)])) == 1


@given(st.integers(2, 4), st.integers(1, 4), st.integers(3, 12), st.integers(3, 12), SEEDS)
@settings(deadline=None, max_examples=30)
def test_a_spread_choice_is_the_choice_enlarged(
    frames: int, scale: int, height: int, width: int, seed: int
) -> None:
    choice = choice_of(blobs(height, width, frames, seed), seed)
    shape = (height * scale - seed % scale, width * scale - seed // 7 % scale)
    spread = spread_choice(choice, scale, shape, frames)
    assert spread.index.shape == spread.confidence.shape == shape
    assert spread.index.dtype == np.uint8
    assert choice.confidence.min() - 1e-6 <= spread.confidence.min()
    assert spread.confidence.max() <= choice.confidence.max() + 1e-6
    # Where a pixel and its neighbours agree so does everything made of them.
    window = np.ones((3, 3), np.uint8)
    alike = cv2.dilate(choice.index, window) == cv2.erode(choice.index, window)

    def large(values: Array) -> Array:
        return np.kron(values, np.ones((scale, scale), values.dtype))[: shape[0], : shape[1]]

    inside = large(alike.astype(np.uint8)) > 0
    np.testing.assert_array_equal(spread.index[inside], large(choice.index)[inside])
    if scale == 1:
        np.testing.assert_array_equal(spread.index, choice.index)
        np.testing.assert_array_equal(spread.confidence, choice.confidence)


# Composition.


def composed(frames: list[Array], index: Array, seam: int) -> Array:
    stack = Stack.from_arrays(frames)
    return compose(stack, iter(stack), index, seam=seam)


def shares(index: Array, frames: int, seam: int) -> Array:
    """How often each frame was chosen in the window of every pixel, shape (frames, H, W)."""
    padded = np.pad(index, seam // 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (seam, seam))
    return np.stack([(windows == k).mean(axis=(2, 3)) for k in range(frames)])


@given(
    st.integers(1, 4),
    st.sampled_from([1, 3, 5]),
    st.sampled_from([np.uint8, np.uint16, np.float32]),
    st.booleans(),
    SEEDS,
)
@settings(deadline=None, max_examples=50)
def test_pixels_are_copies_or_the_mixture_of_their_window(
    frames: int, seam: int, dtype: type, colour: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (17, 19, 3) if colour else (17, 19)
    white = {np.uint8: 255, np.uint16: 65535, np.float32: 1}[dtype]
    base = rng.uniform(0.1, 0.7, shape)
    # Differences from none to far more than what shows.
    levels = [base + rng.choice([0, 0.001, 0.02, 0.2], shape) for _ in range(frames)]
    stack = [(white * level).astype(dtype) for level in levels]
    index = blobs(17, 19, frames, seed)
    image = composed(stack, index, seam)
    assert image.dtype == dtype
    weights = shares(index, frames, seam)
    native = np.stack(stack).astype(np.float64).reshape(frames, 17, 19, -1)
    mixture = np.einsum("khw,khwc->hwc", weights, native)
    copies = np.take_along_axis(native, index[None, :, :, None].astype(int), axis=0)[0]
    change = np.abs(mixture - copies).max(axis=-1) * 255 / white
    result = image.reshape(17, 19, -1).astype(np.float64)
    # So near the step that can be seen that rounding decides, either is right.
    step = selection._VISIBLE_STEP
    is_copy, is_mixture = change < step - 0.01, change > step + 0.01
    np.testing.assert_array_equal(result[is_copy], copies[is_copy])
    # Rounded to an integer, or float32 arithmetic on numbers up to white.
    atol = 1e-6 if dtype is np.float32 else 0.51
    np.testing.assert_allclose(result[is_mixture], mixture[is_mixture], rtol=0, atol=atol)
    inside = weights.max(axis=0) == 1
    np.testing.assert_array_equal(result[inside], copies[inside])


def test_a_seam_of_one_pixel_copies_everything() -> None:
    frames = [texture(12, 13, k).astype(np.uint8) for k in range(3)]
    index = blobs(12, 13, 3, 0)
    expected = np.take_along_axis(np.stack(frames), index[None].astype(int), axis=0)[0]
    np.testing.assert_array_equal(composed(frames, index, 1), expected)


def test_a_visible_step_is_softened_and_an_invisible_one_is_not() -> None:
    index = np.zeros((5, 10), np.uint8)
    index[:, 5:] = 1
    dark, light = np.full((5, 10), 100, np.uint8), np.full((5, 10), 150, np.uint8)
    # Windows of five columns hold 1 or 2 of the other side's, of a step of 50.
    np.testing.assert_array_equal(
        composed([dark, light], index, 5)[2], [100, 100, 100, 110, 120, 130, 140, 150, 150, 150]
    )
    faint = dark + np.uint8(4)
    np.testing.assert_array_equal(composed([dark, faint], index, 5)[2], [100] * 5 + [104] * 5)


@given(
    st.integers(1, 4),
    st.sampled_from([1, 2, 3, 5, 7]),
    st.sampled_from([np.uint8, np.uint16, np.float32]),
    st.booleans(),
    SEEDS,
)
@settings(deadline=None, max_examples=50)
def test_pixels_are_copies_or_near_a_seam_the_mixture_given(
    frames: int, seam: int, dtype: type, colour: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (17, 19, 3) if colour else (17, 19)
    white = {np.uint8: 255, np.uint16: 65535, np.float32: 1}[dtype]
    levels = [rng.uniform(0.1, 0.7, shape) for _ in range(frames)]
    stack = Stack.from_arrays([(white * level).astype(dtype) for level in levels])
    index = blobs(17, 19, frames, seed)
    copies = np.take_along_axis(
        np.stack(list(stack)).reshape(frames, 17, 19, -1), index[None, :, :, None].astype(int), 0
    )[0].reshape(shape)
    # From nothing to far more than what shows, away from what is copied.
    mixed = stack.to_levels(copies) + rng.choice([0, 0.5, 3.9, 4.1, 60], shape).astype(np.float32)
    image = compose_with(stack, iter(stack), index, mixed, seam=seam)
    assert image.dtype == dtype
    padded = np.pad(index, ((seam // 2, (seam - 1) // 2),) * 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (seam, seam))
    near = windows.min(axis=(2, 3)) != windows.max(axis=(2, 3))
    change = np.abs(mixed - stack.to_levels(copies)).reshape(17, 19, -1).max(axis=-1)
    taken = near & (change > selection._VISIBLE_STEP)
    np.testing.assert_array_equal(image[~taken], copies[~taken])
    np.testing.assert_array_equal(image[taken], stack.from_levels(mixed[taken]))


def test_no_mixture_is_taken_where_every_pixel_is_of_one_frame() -> None:
    frame = texture(12, 13).astype(np.uint8)
    stack = Stack.from_arrays([frame, frame // 2])
    mixed = np.full((12, 13), 200.0, np.float32)
    image = compose_with(stack, iter(stack), np.zeros((12, 13), np.uint8), mixed, seam=7)
    np.testing.assert_array_equal(image, frame)


def test_many_frames_are_composed_as_few_are() -> None:
    frames = [np.full((6, 9), k % 256, np.uint8) for k in range(300)]
    index = np.zeros((6, 9), np.uint16)
    index[:, 6:] = 299
    stack = Stack.from_arrays(frames)
    mixed = np.full((6, 9), 100.0, np.float32)
    image = compose_with(stack, iter(stack), index, mixed, seam=3)
    np.testing.assert_array_equal(image[0], [0, 0, 0, 0, 0, 100, 100, 43, 43])


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
