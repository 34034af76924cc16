"""Frames that do not fit are refused or aligned rightly, frames that fit are not refused."""

import numpy as np
import pytest

from benchmarks.alignment_safety import WRONG, Scenes, error_of, pair_of
from cofuse.alignment import Transform, align_stack, aligned
from cofuse.alignment.warping import warp
from cofuse.errors import CofuseError
from cofuse.images import Stack


@pytest.fixture(scope="module")
def scenes():
    return Scenes(None, tuning=False)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("border", (15,)), ("stop", (0, 2, 5, 12)), ("dust", (0,)), ("noise", (2,)), ("still", (0,)),
     ("shift 40", (0,)), ("defocus", (0,)), ("exposure", (0,)), ("focus stack", (0,))],
)  # fmt: skip
def test_what_stays_on_the_sensor_or_differs_in_light_is_seen_through(scenes, kind, numbers):
    for number in numbers:
        error = error_of(pair_of(kind, number, 0, scenes))
        assert error is not None and error <= WRONG, (kind, number)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("mirror", (0, 2, 5)), ("negative", (10, 17)), ("periodic", (0, 2, 5)),
     ("half hidden", (7, 15)), ("strong blur", (0, 10)), ("strong scale", (10,)),
     ("no overlap", (0,)), ("strong turn", (0,)), ("unrelated", (0,)), ("quarter turn", (0,)),
     ("flat", (0,))],
)  # fmt: skip
def test_what_has_no_place_is_refused_or_right(scenes, kind, numbers):
    for number in numbers:
        error = error_of(pair_of(kind, number, 0, scenes))
        assert error is None or error <= WRONG, (kind, number, error)


def test_a_refusal_says_what_was_found_and_what_to_do(scenes):
    pair = pair_of("mirror", 0, 0, scenes)
    stack = Stack.from_arrays([pair.first, pair.second])
    with pytest.raises(
        CofuseError, match=r"cannot be aligned: .*expected.*; leave such frames out"
    ):
        align_stack(stack, reference=0)


def test_a_pattern_that_repeats_itself_may_lie_still():
    rows, columns = np.indices((240, 240))
    wave = np.sin(rows * (2 * np.pi / 24)) + np.sin(columns * (2 * np.pi / 24))
    noise = np.random.default_rng(0).normal(0, 2, (2, 240, 240))
    frames = [np.clip(np.rint(128 + 50 * wave + n), 0, 255).astype(np.uint8) for n in noise]
    assert align_stack(Stack.from_arrays(frames)).already_aligned


@pytest.mark.parametrize("shape", [(40, 40_000), (34_000, 16)])
def test_frames_longer_than_opencv_looks_up_are_aligned(shape):
    rng = np.random.default_rng(2)
    scene = rng.integers(0, 255, (shape[0] // 2 + 8, shape[1] // 2 + 8), np.uint8)
    scene = np.kron(scene, np.ones((2, 2), np.uint8))
    height, width = shape
    frames = [scene[y : y + height, x : x + width] for y, x in ((4, 4), (6, 7))]
    stack = Stack.from_arrays(frames)
    found = align_stack(stack, reference=0, match_exposure=False)
    np.testing.assert_allclose(found.transforms[1].matrix[:2, 2], (-3, -2), atol=0.15)
    assert aligned(stack, found)[1].shape[1 - np.argmin(shape)] == max(shape) - (
        3 if height < width else 2
    )


def test_long_frames_of_doubles_are_warped_in_pieces():
    frame = np.random.default_rng(1).random((20, 40_000))
    half = Transform(np.array([[1.0, 0, 0.5], [0, 1.0, 0], [0, 0, 1]]))
    moved = warp(frame, half)
    part = warp(frame[:, 8000:8400].copy(), half)
    np.testing.assert_allclose(moved[:, 8010:8390], part[:, 10:390], atol=1e-3)
