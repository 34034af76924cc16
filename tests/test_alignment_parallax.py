"""Parallax: known smooth shifts are found, and stacks without any stay as they are."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from cofuse.alignment import align_stack, aligned, alignment_from_json, alignment_to_json
from cofuse.alignment.differences import find_field, frames_to_test, small
from cofuse.alignment.transforms import Transform
from cofuse.alignment.warping import warp
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture
from cofuse.images import Stack

HEIGHT, WIDTH = 300, 420


def scene(number=0, scale=1):
    """A photograph of some size, grey."""
    picture = cv2.cvtColor(sample_picture(SAMPLE_NAMES[number]), cv2.COLOR_RGB2GRAY)
    return cv2.resize(picture, (WIDTH * scale, HEIGHT * scale), interpolation=cv2.INTER_CUBIC)


def waves(scale=1, most=5.0):
    """Shifts that no similarity comes near: sines along and across, half a wave in the picture."""
    y, x = np.mgrid[: HEIGHT * scale, : WIDTH * scale] / scale
    along = most * scale * np.sin(2 * np.pi * y / 200) * np.cos(2 * np.pi * x / 280)
    across = most * scale * np.sin(2 * np.pi * x / 280)
    return np.stack([along, across], axis=-1).astype(np.float32)


def bent(picture, shifts):
    """The frame that shows, at the shifted place of every pixel, what `picture` has there."""
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]].astype(np.float32)
    back = np.zeros_like(shifts)
    for _ in range(20):
        back = cv2.remap(
            shifts, x - back[..., 0], y - back[..., 1], cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
    return cv2.remap(
        picture, x - back[..., 0], y - back[..., 1], cv2.INTER_LANCZOS4,
        borderMode=cv2.BORDER_REFLECT,
    )  # fmt: skip


def inner(picture, margin=24):
    return picture[margin:-margin, margin:-margin]


def noisy(frame, sigma, seed):
    grain = np.random.default_rng(seed).normal(scale=sigma, size=frame.shape)
    return np.clip(np.rint(frame + grain), 0, 255).astype(np.uint8)


def defocused(frame, mask, width):
    """A frame that is blurred where the mask is 1."""
    weight = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 2.0)
    blurred = cv2.GaussianBlur(frame.astype(np.float32), (0, 0), width)
    return np.rint(weight * blurred + (1 - weight) * frame).astype(np.uint8)


def halves():
    return np.broadcast_to(np.arange(WIDTH) < WIDTH // 2, (HEIGHT, WIDTH))


@pytest.mark.parametrize(("scale", "sigma", "bound"), [(1, 0, 0.3), (1, 5, 0.3), (4, 0, 0.3)])
def test_a_known_smooth_warp_is_found(scale, sigma, bound):
    # At four times the size it is found on a reduced copy; the bound is in that copy's pixels.
    truth = waves(scale)
    frames = [
        noisy(f, sigma, k) for k, f in enumerate((scene(0, scale), bent(scene(0, scale), truth)))
    ]
    stack = Stack.from_arrays(frames)
    size = (stack.height, stack.width)
    found = find_field(*(small(f, stack) for f in frames), Transform(np.eye(3)), size)
    assert found.shape[0] * found.shape[1] <= 1_000_000
    reduced = size[0] / found.shape[0]
    # Bilinearly, pixels being squares, as every frame is bent.
    shifts = cv2.resize(found, size[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.median(inner(np.linalg.norm(shifts - truth, axis=-1))) < bound * reduced


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("colour", [False, True])
def test_frames_with_parallax_come_together(dtype, colour):
    sharp, far = scene(), ~halves()
    frames = [bent(defocused(sharp, far, 2.0), waves()), defocused(sharp, ~far, 2.0)]
    frames = [np.stack([f] * 3, axis=-1) if colour else f for f in frames]
    scale = {"u": np.iinfo(dtype).max if np.dtype(dtype).kind == "u" else 1, "f": 1.0}
    factor = scale[np.dtype(dtype).kind] / 255
    frames = [(f * factor).astype(dtype) for f in frames]
    found = align_stack(frames)
    assert found.parallax and not found.already_aligned and not found.changes_nothing
    stiff = replace(found, parallax=False)
    goal = (np.stack([sharp] * 3, axis=-1) if colour else sharp) * factor

    def error(alignment):
        moved = aligned(frames, alignment, crop=False)[0]
        assert moved.dtype == dtype and moved.shape == goal.shape
        left = inner(moved.astype(np.float64) - goal)[:, : WIDTH // 2 - 48]
        return np.sqrt(np.mean(left**2)) / factor

    assert 3 * error(found) < error(stiff)


def test_one_interpolation_under_shift_turn_and_field():
    # A frame that is also moved as a whole loses no more than one that is bent alone.
    turn = np.vstack([cv2.getRotationMatrix2D((WIDTH / 2, HEIGHT / 2), 1.0, 1.02), [0, 0, 1]])
    sharp, both = scene(), bent(scene(), waves(most=3.0))
    moved = cv2.warpPerspective(both, turn, (WIDTH, HEIGHT), flags=cv2.INTER_LANCZOS4)
    stack = [moved, sharp]
    found = align_stack(stack)
    assert found.parallax
    left = inner(aligned(stack, found, crop=False)[0].astype(float) - sharp, 40)
    assert np.sqrt(np.mean(left**2)) < 4.0


@pytest.mark.parametrize("sigma", [0, 2, 15])
@pytest.mark.parametrize("width", [0.0, 1.5, 6.0])
def test_frames_that_differ_in_focus_alone_are_left_as_they_are(sigma, width):
    sharp, far = scene(), ~halves()
    masks = [far, ~far]
    frames = [
        noisy(defocused(sharp, mask, width) if width else sharp, sigma, k)
        for k, mask in enumerate(masks)
    ]
    found = align_stack(frames)
    assert not found.parallax and found.already_aligned
    for made, given in zip(aligned(frames, found), frames, strict=True):
        np.testing.assert_array_equal(made, given)


def test_an_area_is_bent_as_the_whole_is():
    field = cv2.resize(waves(), (WIDTH // 2, HEIGHT // 2), interpolation=cv2.INTER_AREA)
    stays = Transform(np.eye(3))
    whole = warp(scene(), stays, field).astype(int)
    part = warp(scene(), stays, field, area=(20, 260, 30, 280)).astype(int)
    # Places are rounded to a 32nd of a pixel.
    assert np.abs(part - whole[20:260, 30:280]).max() <= 4


def test_a_field_between_equal_frames_is_zero():
    frames = [scene(), scene()]
    stack = Stack.from_arrays(frames)
    found = find_field(*(small(f, stack) for f in frames), Transform(np.eye(3)), (HEIGHT, WIDTH))
    assert np.abs(found).max() < 0.01


@pytest.mark.parametrize("level", [0, 90, 255])
def test_flat_and_noisy_pictures_have_none(level):
    stack = Stack.from_arrays([np.full((64, 90), level, np.uint8)] * 2)
    pictures = [small(frame, stack) for frame in stack]
    found = find_field(*pictures, Transform(np.eye(3)), (64, 90))
    assert np.abs(found).max() < 1e-3
    grey = [noisy(scene() // 8 + 60, 20, k) for k in range(3)]
    assert not align_stack(grey).parallax


def test_darker_frames_are_bent_alike():
    frames = [np.rint(bent(scene(), waves()) * 0.7).astype(np.uint8), scene()]
    found = align_stack(frames)
    left = inner(aligned(frames, found, crop=False)[0].astype(float) - scene())
    assert found.parallax and np.sqrt(np.mean(left**2)) < 6.0


def test_it_can_be_left_out_and_is_kept_in_a_file():
    frames = [bent(scene(), waves()), scene()]
    assert not align_stack(frames, parallax=False).parallax
    found = align_stack(frames)
    again = alignment_from_json(alignment_to_json(found))
    assert again.parallax
    for one, other in zip(aligned(frames, found), aligned(frames, again), strict=True):
        np.testing.assert_array_equal(one, other)
    older = alignment_to_json(found).replace('  "parallax": true,\n', "")
    assert not alignment_from_json(older).parallax


@pytest.mark.parametrize(("count", "reference"), [(1, 0), (2, 1), (9, 4), (300, 150)])
def test_a_few_frames_are_tested_and_always_the_reference(count, reference):
    chosen = frames_to_test(count, reference)
    assert reference in chosen and chosen <= set(range(count))
    assert len(chosen) == min(count, 9)
