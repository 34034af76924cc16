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
from cofuse.alignment.exposure import exposure_gains, thumbnail
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


def still(stack: Stack, reference: int) -> Alignment:
    """Match the brightness of frames that lie right."""
    unmoved = (Transform.identity(),) * len(stack)
    size = (stack.height, stack.width)
    small = {k: thumbnail(stack.reduced(k), stack) for k in range(len(stack))}
    gains = exposure_gains(small, unmoved, reference, size, stack.ceiling)
    return Alignment(stack.names, size, "similarity", reference, unmoved, gains)


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
    moved = (Transform(shift, "similarity"), Transform.identity(), Transform.identity())
    gains = ((1.0,), (0.66,), (0.66,))
    size = (stack.height, stack.width)
    whole = aligned(stack, Alignment(stack.names, size, "similarity", 1, moved, gains), crop=False)
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
