"""The choice of frames of `fast` and `paper`: argmax, confidence, activity, and its blending."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.fusion.fast import ActivityWeigher, Chosen
from cofuse.fusion.mixing import Choice, MixingRun, choose
from cofuse.fusion.paper import gather_patches, patch_votes
from cofuse.images import LUMINANCE_WEIGHTS, Stack
from cofuse.images.tiles import Tile, tiles_of
from cofuse.operators import load_operator
from cofuse.operators.patches import patch_positions
from cofuse.progress import silent
from cofuse.sensor import NoiseLaw
from cofuse.sensor.law import BANDS, NoiseModel

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


def weigher(window: int = 11, sigma: float = 0.0) -> ActivityWeigher:
    law = NoiseLaw.white(sigma, frames=2)
    return ActivityWeigher(load_operator("separable-7"), window, law)


@pytest.mark.parametrize("window", [1, 5, 11])
def test_a_constant_picture_has_no_activity(window: int) -> None:
    constant = np.full((21, 26), 97.0, np.float32)
    activity = weigher(window).activity(constant, None)
    assert activity.shape == (21, 26)
    # Float32 filters sum to 1e-7 or so: coefficients of some 1e-5.
    np.testing.assert_allclose(activity, 0, atol=1e-2)


def test_activity_at_a_patch_is_the_mean_of_those_in_the_window_around_it() -> None:
    picture = texture(40, 50)
    patches = load_operator("separable-7").activity(picture, step=2)
    activity = weigher(11).activity(picture, None)
    # Patches begin at even pixels and stand three further on; five of them span the window.
    for row, column in ((5, 5), (7, 9), (10, 14)):
        window = patches[row - 2 : row + 3, column - 2 : column + 3]
        assert activity[2 * row + 3, 2 * column + 3] == pytest.approx(window.mean(), rel=1e-5)


def test_activity_peaks_where_the_texture_is() -> None:
    picture = np.full((41, 41), 100.0, np.float32)
    picture[18:23, 18:23] += texture(5, 5)
    peak = np.unravel_index(weigher(11).activity(picture, None).argmax(), picture.shape)
    # The symmetric window around a symmetric spot: nowhere far from its centre.
    assert np.abs(np.array(peak) - 20).max() <= 4


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_the_sharper_of_two_pictures_wins(seed: int) -> None:
    sharp = texture(30, 30, seed)
    soft = cv2.GaussianBlur(sharp, (0, 0), 1.5)
    seen = weigher().look(Stack.from_arrays([soft / 255, sharp / 255]), whole((30, 30)))
    assert (seen.choice.index == 1).all()


def test_noise_that_is_known_does_not_count_as_activity() -> None:
    """A frame with much noise loses against one with a little detail and no noise."""
    rng = np.random.default_rng(0)
    detail = 128 + 12 * np.sign(np.sin(np.arange(96) / 1.5)) * np.ones((96, 1))
    noisy = 128 + rng.normal(0, 15, (96, 96))
    frames = [(frame / 255).astype(np.float32) for frame in (noisy, detail)]
    levels = np.zeros((2, 1, BANDS))
    levels[0] = 15.0
    law = NoiseLaw(model=NoiseModel(15.0), levels=levels, errors=np.zeros_like(levels))
    operator, stack = load_operator("separable-7"), Stack.from_arrays(frames)
    seen = ActivityWeigher(operator, 11, law).look(stack, whole((96, 96)))
    assert (seen.choice.index == 1).mean() > 0.99
    # Without a word about the noise it wins.
    assert (weigher().look(stack, whole((96, 96))).choice.index == 0).mean() > 0.99


@pytest.mark.parametrize("colour", [True, False])
def test_three_standard_deviations_of_white_noise_are_taken_off(colour: bool) -> None:
    """Filters have unit length; of colours a luminance is activity's, whose noise is weighed."""
    law = NoiseLaw.white(4.0, frames=2, colour=colour)
    for thresholds in ActivityWeigher(load_operator("separable-7"), 11, law).thresholds:
        weights = LUMINANCE_WEIGHTS if colour else (1.0,)
        np.testing.assert_allclose(thresholds, 12.0 * np.linalg.norm(weights), rtol=1e-6)


# Blending.


def whole(shape: tuple[int, int]) -> Tile:
    (tile,) = tiles_of(shape, 16 * (max(shape) // 16 + 1), 16)
    return tile


def compose(stack: Stack, index: Array, part: int = 256) -> Array:
    """Mix the frames that were chosen, in parts."""
    shape = stack.height, stack.width
    chosen = Chosen(whole(shape), shape, choice_of(index), part)
    run = MixingRun(
        stack=stack,
        taken=range(len(stack)),
        progress=silent,
        weigher=lambda _: weigher(),
        model="auto",
    )
    image = np.zeros(stack.shape, stack.dtype)
    for where in chosen.parts():
        made = run.mix(chosen, where)
        image[made.part.here] = stack.from_levels(made.mixture)
        assert np.array_equal(made.best, index[made.part.here])
        np.testing.assert_allclose(made.weights.sum(axis=0), 1, rtol=0, atol=1e-5)
    return image


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
    """What blending is to make, in floats of the frames' own range."""
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


@given(SEEDS, st.sampled_from([8, 16, 32]))
@settings(deadline=None, max_examples=10)
def test_parts_do_not_show(seed: int, part: int) -> None:
    frames = some_frames(3, np.float32, True, seed)
    index = blobs(*SHAPE, 3, seed)
    whole = compose(Stack.from_arrays(frames), index)
    parts = compose(Stack.from_arrays(frames), index, part)
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
