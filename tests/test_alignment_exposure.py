"""Brightness is matched, and what a frame still shows is never cut off for it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cofuse import Stack, align_stack, aligned, fuse, read_image, write_image
from cofuse.alignment import Alignment
from cofuse.alignment.differences import Thumbnail, gains_of, thumbnail
from cofuse.alignment.transforms import Transform
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from tests.command_line import run

Array = np.ndarray[Any, Any]


@cache
def scene(colour: bool) -> tuple[Array, ...]:
    """Three frames that lie right, as parts of white."""
    picture = sample_picture("coffee")
    picture = picture if colour else picture[..., 0]
    made = simulate_stack(picture, frames=3, shape=(96, 120), seed=2, max_radius=3)
    return tuple(frame / 255.0 for frame in made.frames)


def exposed(colour: bool, dtype: Any, light: tuple[float, ...], balance: float) -> list[Array]:
    """Photograph the scene, each frame with another light and the first with another balance."""
    white = 1.0 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    frames = []
    for k, (frame, factor) in enumerate(zip(scene(colour), light, strict=True)):
        factors = factor * (np.array([1.0, balance, 1.0]) if colour and k == 0 else 1.0)
        values = np.minimum(frame * factors, 1.0) * white
        frames.append((values if white == 1 else np.rint(values)).astype(dtype))
    return frames


def clipped(frame: Array, white: float) -> Array:
    return frame >= white


STILL = Transform(np.eye(3))


def alignment_of(stack: Stack, reference: int, *transforms: Transform, gains: Any) -> Alignment:
    return Alignment(
        names=stack.names,
        size=(stack.height, stack.width),
        model="similarity",
        reference=reference,
        transforms=transforms,
        gains=gains,
    )


def still(stack: Stack, reference: int) -> Alignment:
    """Match the brightness of frames that lie right."""
    unmoved = (STILL,) * len(stack)
    size = (stack.height, stack.width)
    small = {k: thumbnail(stack.reduced(k), stack) for k in range(len(stack))}
    gains = gains_of(small, unmoved, reference, size, stack.ceiling)
    return alignment_of(stack, reference, *unmoved, gains=gains)


LIGHT = st.tuples(*[st.floats(0.45, 1.5)] * 3)
#: So little apart that the frames are sure to be found alike.
SIMILAR = st.tuples(*[st.floats(0.8, 1.2)] * 3)


@settings(max_examples=30, deadline=None)
@given(
    st.booleans(),
    st.sampled_from([np.uint8, np.uint16, np.float32]),
    LIGHT,
    st.floats(0.7, 1.3),
    st.integers(0, 2),
)
def test_no_gain_clips_what_was_not_clipped(colour, dtype, light, balance, reference) -> None:
    frames = exposed(colour, dtype, light, balance)
    stack = Stack.from_arrays(frames)
    found = still(stack, reference)
    assert 0 < found.brightness <= 1
    # The white balance is the reference's.
    assert len(set(found.gains[reference])) == 1
    for frame, made in zip(frames, aligned(stack, found), strict=True):
        assert not (clipped(made, stack.ceiling) & ~clipped(frame, stack.ceiling)).any()
    if found.brightness < 1:
        # No darker than it has to be: something comes to lie right below the ceiling.
        tops = [
            np.max(np.array(g) * f.max(axis=(0, 1)))
            for g, f in zip(found.gains, frames, strict=True)
        ]
        assert max(tops) >= 0.99 * stack.ceiling


@settings(max_examples=5, deadline=None)
@given(st.booleans(), SIMILAR, st.floats(0.9, 1.1))
def test_the_result_is_clipped_only_where_a_frame_is(colour, light, balance) -> None:
    frames = exposed(colour, np.uint8, light, balance)
    assume(align_stack(Stack.from_arrays(frames)).already_aligned)
    # `paper` averages values of frames; mixed bands may pass the values on both sides of a seam.
    result = fuse(frames, align=True, sigma=0, preset="paper")
    # Highlights are brightest where they are sharp, and the result is sharp everywhere.
    somewhere = np.any([frame == 255 for frame in frames], axis=0)
    assert not ((result.image == 255) & ~somewhere).any()


def test_the_reference_stays_as_it_is_where_there_is_headroom() -> None:
    frames = exposed(True, np.uint8, (0.5, 0.8, 0.6), 1.0)
    stack = Stack.from_arrays(frames)
    found = align_stack(stack)
    assert found.brightness == 1 and np.mean(found.gains[0]) == pytest.approx(1.6, rel=0.02)
    np.testing.assert_array_equal(aligned(stack, found)[1], frames[1])


def test_the_darkest_frame_stays_as_it_is_where_its_highlights_have_none() -> None:
    frames = exposed(False, np.uint8, (0.7, 1.0, 1.0), 1.0)
    frames[0][:2, :2] = 254
    stack = Stack.from_arrays(frames)
    found = align_stack(stack)
    assert found.gains[0] == (1.0,) and found.brightness == pytest.approx(0.7, rel=0.02)
    np.testing.assert_array_equal(aligned(stack, found)[0], frames[0])


def test_counts_have_all_the_room_of_their_type() -> None:
    frames = [
        np.rint(f * 0.02).astype(np.uint16) for f in exposed(False, np.uint16, (0.5, 1, 1), 1)
    ]
    stack = Stack.from_arrays(frames)
    assert stack.white_is_found
    found = align_stack(stack)
    assert found.brightness == 1 and found.gains[0][0] == pytest.approx(2, rel=0.02)
    assert aligned(stack, found)[0].max() == pytest.approx(2 * frames[0].max(), rel=0.02)


def test_what_not_all_frames_cover_is_filled_with_the_darkened_reference() -> None:
    frames = exposed(False, np.uint8, (0.6, 0.9, 0.9), 1.0)
    stack = Stack.from_arrays(frames)
    shift = np.eye(3)
    shift[0, 2] = 50  # the first frame ends 50 columns before the reference does
    moved = (Transform(shift), STILL, STILL)
    found = alignment_of(stack, 1, *moved, gains=((1.0,), (0.66,), (0.66,)))
    whole = aligned(stack, found, crop=False)
    there = slice(None), slice(-40, None)
    np.testing.assert_array_equal(whole[1], np.rint(frames[1] * np.float32(0.66)))
    ratio = whole[0][there] / whole[1][there].astype(float)
    assert np.ptp(ratio[whole[1][there] > 60]) < 0.05


def test_the_command_line_says_what_was_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = exposed(True, np.uint8, (1.0, 1.5, 1.5), 1.0)
    for k, frame in enumerate(frames):
        write_image(tmp_path / f"f{k}.png", frame)
    out = tmp_path.parent / f"{tmp_path.name}.png"
    words = ("fuse", tmp_path, "-o", out, "--sigma", 0, "--preset", "fast", "--overwrite")
    assert run(*words) == 0
    assert "of the reference to keep highlights" in capsys.readouterr().out
    assert run(*words, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    result = read_image(out)
    assert report["clipped"] == pytest.approx(np.mean(result == 255))
    assert report["clipped"] <= np.mean(np.any([frame == 255 for frame in frames], axis=0))
    said = report["alignment"]
    assert said["brightness"] == said["gains"][1][0] < 1 and said["reference"] == "f1.png"
    assert run(*words, "--json", "--no-match-exposure") == 0
    assert json.loads(capsys.readouterr().out)["alignment"]["brightness"] == 1


# In closed form: thumbnails of 50 x 50 pixels, in which every block is 10 x 10.

SIDE = 50


def grey(
    levels: Any, valid: Any = True, largest: float | tuple[float, ...] = 100.0, channels: int = 1
) -> Thumbnail:
    """Make a thumbnail of levels and validity that are broadcast to all its pixels."""
    shape = (SIDE, SIDE, channels)
    planes = np.broadcast_to(np.asarray(levels, np.float32), shape)
    largest = (largest,) * channels if isinstance(largest, float) else largest
    return Thumbnail(planes, np.broadcast_to(np.asarray(valid, np.bool_), shape), largest)


def gain_of(goal: Thumbnail, frame: Thumbnail, transform: Transform = STILL) -> tuple[float, ...]:
    """Return the gains of the second of two frames under a ceiling that none comes near."""
    found = gains_of({0: goal, 1: frame}, (STILL, transform), 0, (SIDE, SIDE), 1e6)
    assert found[0] == (1.0,) * goal.levels.shape[2]
    return found[1]


def texture(seed: int = 0, channels: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(50, 100, (SIDE, SIDE, channels))


@pytest.mark.parametrize("gains", [(2.0,), (0.5,), (0.8, 1.0, 1.25)])
def test_known_gains_are_found_by_channel(gains: tuple[float, ...]) -> None:
    light = texture(channels=len(gains))
    goal, frame = (grey(p, channels=len(gains)) for p in (light, light / gains))
    assert gain_of(goal, frame) == pytest.approx(gains, rel=1e-5)


def test_a_frame_that_is_moved_is_compared_where_it_covers_the_reference() -> None:
    light, shift = texture(), np.eye(3)
    shift[:2, 2] = 7, -4
    frame = np.roll(light / 1.5, (-4, 7), axis=(0, 1))
    frame[-4:] = frame[:, :7] = 200  # what the reference does not show
    assert gain_of(grey(light), grey(frame), Transform(shift)) == pytest.approx((1.5,), rel=1e-5)


@pytest.mark.parametrize("factor", [0.2, 0.9, 1.1, 4.0])
def test_outliers_do_not_count(factor: float) -> None:
    light = texture()
    frame = light / 1.5 * np.random.default_rng(1).uniform(0.999, 1.001, light.shape)
    moved = np.zeros(light.shape, np.bool_)
    moved[10:30, 20:40] = True  # whole blocks, and a part of a row beside them
    moved[3, ::3] = True
    assert gain_of(grey(light), grey(np.where(moved, frame * factor, frame))) == pytest.approx(
        (1.5,), rel=2e-4
    )


@pytest.mark.parametrize("which", [0, 1])
def test_clipped_highlights_do_not_count_in_either_frame(which: int) -> None:
    light = texture()
    frames, valid = [light, light / 1.5], np.ones(light.shape, np.bool_)
    frames[which] = np.where(np.arange(SIDE)[:, None] < 30, 250, frames[which][..., 0])[..., None]
    valid[:30] = False
    masks = [valid, True] if which == 0 else [True, valid]
    goal, frame = (grey(f, mask) for f, mask in zip(frames, masks, strict=True))
    assert gain_of(goal, frame) == pytest.approx((1.5,), rel=1e-5)


@pytest.mark.parametrize(("pixels", "gain"), [(49, 1.0), (50, 2.0)])
def test_a_gain_needs_fifty_pixels(pixels: int, gain: float) -> None:
    valid = (np.arange(SIDE * SIDE) < pixels).reshape(SIDE, SIDE, 1)
    assert gain_of(grey(80), grey(40, valid)) == pytest.approx((gain,))


@pytest.mark.parametrize(("level", "gain"), [(6.0, 1.0), (6.1, 0.5)])
def test_a_gain_needs_light(level: float, gain: float) -> None:
    assert gain_of(grey(level), grey(2 * level)) == pytest.approx((gain,))
    assert gain_of(grey(2 * level), grey(level)) == pytest.approx((1 / gain,))


@pytest.mark.parametrize(
    ("light", "gain"), [(1.0029, 1.0), (1.0031, 1.0031), (0.9971, 1.0), (0.9969, 0.9969)]
)
def test_a_gain_next_to_one_is_one(light: float, gain: float) -> None:
    assert gain_of(grey(100 * light), grey(100)) == pytest.approx((gain,), abs=1e-6)


@pytest.mark.parametrize(("apart", "gain"), [(0.0195, 1.02), (0.0213, 1.0)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_gain_within_five_errors_is_one(apart: float, gain: float, scale: float) -> None:
    """Of 25 blocks 12 are brighter and 12 darker: the error is apart · √24 / 25."""
    signs = np.resize([1.0, -1.0], 25) * (np.arange(25) < 24)
    blocks = np.kron(signs.reshape(5, 5), np.ones((10, 10)))[..., None]
    ratio = 1.02 + apart * blocks
    assert gain_of(grey(100 * scale * ratio), grey(100 * scale)) == pytest.approx((gain,), abs=1e-5)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (100.0, 1.0),  # twice as bright it stays below white
        (127.0, 1.0),
        (200.0, 254 / 400),
        (254.0, 0.5),
        (255.0, 0.5),  # what is clipped stays clipped
    ],
)
def test_headroom_in_closed_form(largest: float, expected: float) -> None:
    frames = {0: grey(80), 1: grey(40, largest=largest), 2: grey(40, largest=250.0)}
    found = gains_of(frames, (STILL, STILL, None), 0, (SIDE, SIDE), 255.0)
    assert found[0] == pytest.approx((expected,)) and found[1] == pytest.approx((2 * expected,))


def test_the_channel_with_the_least_headroom_decides_for_all() -> None:
    frames = {0: grey(80, channels=3), 1: grey([40, 80, 160], largest=(100, 200, 250), channels=3)}
    found = gains_of(frames, (STILL, STILL), 0, (SIDE, SIDE), 160.0)
    excess = 2 * 100 / (254 / 255 * 160)  # of the first channel; the second is clipped already
    assert found[0] == pytest.approx((1 / excess,) * 3)
    assert found[1] == pytest.approx((2 / excess, 1 / excess, 0.5 / excess))


@pytest.mark.parametrize(
    ("value", "valid"), [(1, False), (2, True), (120, True), (249, True), (250, False)]
)
@pytest.mark.parametrize("shape", [(40, 60), (200, 401, 3)])
def test_thumbnails_are_means_and_leave_out_what_is_clipped(
    value: int, valid: bool, shape: tuple[int, ...]
) -> None:
    frame = np.full(shape, 100, np.uint8)
    frame[:, : shape[1] // 2] = value
    stack = Stack.from_arrays([frame])
    made = thumbnail(stack.reduced(0), stack)
    factor = min(160 / shape[1], 1)
    assert made.levels.shape[:2] == tuple(round(side * factor) for side in shape[:2])
    assert made.levels.shape == made.valid.shape == (*made.levels.shape[:2], len(made.largest))
    left, right = np.s_[:, : made.valid.shape[1] // 2 - 14], np.s_[:, -14:]
    np.testing.assert_allclose(made.levels[left], value, atol=1e-3)
    np.testing.assert_allclose(made.levels[right], 100, atol=1e-3)
    assert (made.valid[left] == valid).all() and made.valid[right].all()
    assert set(made.largest) == {max(value, 100)}


def test_the_thumbnail_of_a_turned_frame_is_turned() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (120, 120), np.uint8)
    frame[40:60, 20:100] = 255
    stack = Stack.from_arrays([frame, np.ascontiguousarray(frame.T)])
    upright, turned = (thumbnail(stack.reduced(k), stack) for k in range(2))
    np.testing.assert_allclose(turned.levels, upright.levels.transpose(1, 0, 2), atol=1e-3)
    np.testing.assert_array_equal(turned.valid, upright.valid.transpose(1, 0, 2))


@pytest.mark.parametrize(("side", "valid"), [(1, True), (8, False)])
def test_single_clipped_pixels_leave_a_thumbnail_valid(side: int, valid: bool) -> None:
    """In the place of a single clipped pixel 1/16 · 1/(2π·3²) of the blurred copy is clipped."""
    frame = np.full((640, 640), 100, np.uint8)
    frame[320 : 320 + side, 320 : 320 + side] = 255
    stack = Stack.from_arrays([frame])
    made = thumbnail(stack.reduced(0), stack)
    assert made.valid.shape == (160, 160, 1) and made.valid[80, 80] == valid and made.valid[0, 0]
