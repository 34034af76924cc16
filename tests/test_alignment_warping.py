"""Warped frames keep dtype and range, invent nothing, and identical frames keep every bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.alignment import Alignment, Transform, aligned, warp
from cofuse.alignment.exposure import apply_gains
from cofuse.alignment.resampling import weights_at
from cofuse.alignment.warping import _interpolated, _turns_little
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture
from cofuse.images import Stack

few = settings(max_examples=25, deadline=None)
DTYPES = (np.uint8, np.uint16, np.float32, np.float64)


def noise(shape, dtype, seed=0):
    values = np.random.default_rng(seed).uniform(0, 1, shape)
    scale = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    return (values * scale).astype(dtype)


def waves(shape, place=lambda x, y: (x, y)):
    """A smooth picture that can be computed at any place."""
    y, x = np.indices(shape, float)
    x, y = place(x, y)
    return 0.5 + 0.2 * np.sin(0.31 * x + 0.2 * y) + 0.2 * np.cos(0.23 * y - 0.11 * x)


def matrix(x=0.0, y=0.0, turn=0.0, scale=1.0):
    c, s = scale * np.cos(turn), scale * np.sin(turn)
    return Transform(np.array([[c, -s, x], [s, c, y], [0, 0, 1.0]]))


def alignment_of(stack, *found, gains=None, reference=0):
    one = (1.0,) * (3 if stack.is_colour else 1)
    gains = gains or [one] * len(found)
    size = (stack.height, stack.width)
    return Alignment(stack.names, size, "similarity", reference, tuple(found), tuple(gains))


@few
@given(
    dtype=st.sampled_from(DTYPES),
    colour=st.booleans(),
    height=st.integers(4, 300),
    x=st.integers(-5, 5),
    y=st.integers(-5, 5),
)
def test_whole_shifts_move_pixels_untouched(dtype, colour, height, x, y):
    frame = noise((height, 23, 3) if colour else (height, 23), dtype)
    moved = warp(frame, matrix(x, y))
    assert moved.dtype == dtype
    rows = np.clip(np.arange(height) + y, 0, height - 1)
    columns = np.clip(np.arange(23) + x, 0, 22)
    assert np.array_equal(moved, frame[rows][:, columns])


@pytest.mark.parametrize("dtype", DTYPES)
def test_interpolation_is_accurate(dtype):
    shape, found = (600, 90), matrix(2.3, -1.7, turn=0.01, scale=1.02)
    scale = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    frame = waves(shape) * scale
    frame = frame.astype(dtype) if scale == 1 else np.rint(frame).astype(dtype)
    moved = warp(frame, found)
    truth = waves(shape, lambda x, y: np.moveaxis(found(np.stack([x, y], -1)), -1, 0))
    inside = np.s_[20:-30, 25:-15]
    error = np.abs(moved / scale - truth)[inside]
    assert error.max() < 0.004 + (1 / 255 if dtype == np.uint8 else 0)
    assert error.mean() < 0.001 + (0.4 / 255 if dtype == np.uint8 else 0)


@few
@given(dtype=st.sampled_from(DTYPES), x=st.floats(-3, 3), turn=st.floats(-0.1, 0.1))
def test_ringing_never_leaves_the_range(dtype, x, turn):
    white = 1 if np.dtype(dtype).kind == "f" else 4095 if dtype == np.uint16 else 200
    frame = np.zeros((40, 40), dtype)
    frame[:, 20:] = white
    moved = warp(frame, matrix(x, 0.5, turn=turn), white=white)
    assert moved.min() >= 0
    assert moved.max() <= white
    assert moved.max() > 0.9 * white


def test_sixteen_bits_survive():
    """A ramp of single steps stays one: no eight-bit detour."""
    ramp = np.broadcast_to(np.arange(30000, 30000 + 200, dtype=np.uint16), (20, 200))
    moved = warp(np.ascontiguousarray(ramp), matrix(0.5))
    inside = moved[:, 10:-10].astype(int)
    expected = np.arange(30010, 30190) + 0.5
    assert np.abs(inside - expected).max() <= 0.5


def test_unmoved_frames_keep_their_bits_and_others_are_cropped_alike():
    frames = [noise((60, 70, 3), np.uint16, seed) for seed in range(3)]
    stack = Stack.from_arrays(frames)
    found = alignment_of(stack, Transform.identity(), matrix(3.5, 0), matrix(0, -2))
    result = aligned(stack, found)
    assert result.shape == (58, 66, 3)
    assert np.array_equal(result[0], frames[0][2:, :66])
    assert np.array_equal(result[2], frames[2][:58, :66])
    assert result.names == stack.names
    assert aligned(stack, alignment_of(stack, *[Transform.identity()] * 3)) is stack


def test_left_out_frames_are_gone():
    stack = Stack.from_arrays([noise((20, 20), np.uint8, seed) for seed in range(3)])
    still = Transform.identity()
    result = aligned(stack, alignment_of(stack, still, None, still))
    assert result.names == ("frame 1", "frame 3")
    assert np.array_equal(result[1], stack[2])


def test_frames_are_read_only_when_asked_for():
    read = []
    frames = [noise((20, 20), np.uint8, seed) for seed in range(3)]

    def reader(k):
        read.append(k)
        return frames[k]

    stack = Stack([lambda k=k: reader(k) for k in range(3)])
    found = alignment_of(stack, Transform.identity(), matrix(1), matrix(2))
    read.clear()
    result = aligned(stack, found)
    assert read == []
    _ = result[2]
    assert read == [2]


def test_without_cropping_the_reference_fills_what_a_frame_lacks():
    shape = (120, 160)
    reference = (waves(shape) * 255).astype(np.uint8)
    other = (waves(shape, lambda x, y: (x - 40.5, y)) * 255 * 0.8).astype(np.uint8)
    stack = Stack.from_arrays([reference, other])
    found = alignment_of(stack, Transform.identity(), matrix(40.5))
    whole = aligned(stack, found, crop=False)
    assert whole.shape == shape
    # The frame ends at x = 118; right of it is the reference, as dark as the frame.
    filled = whole[1].astype(float)
    np.testing.assert_allclose(filled[:, 119:], reference[:, 119:] * 0.8, atol=4)
    np.testing.assert_allclose(filled[:, 10:80], reference[:, 10:80] * 0.8, atol=2)
    # No edge: nowhere a steeper step than the scene has.
    assert (
        np.abs(np.diff(filled, axis=1)).max() <= np.abs(np.diff(reference * 0.8, axis=1)).max() + 3
    )


def test_gains_scale_values_and_leave_clipped_white_white():
    frame = np.full((8, 8, 3), 100, np.uint8)
    frame[4:] = 255
    frame[:, 4:, 0] = 255  # clipped in one channel only, above the white rows
    gained = warp(frame, Transform.identity(), gains=(0.5, 0.8, 1.2), white=255.0)
    assert (gained[:4, :4] == [50, 80, 120]).all()
    assert (gained[4:] == 255).all()
    assert (gained[:4, 4:, 1:] == [80, 120]).all()
    assert (np.abs(gained[:4, 4:, 0] - 127.5) <= 0.5).all()
    brighter = warp(frame, Transform.identity(), gains=(3.0, 3.0, 3.0), white=255.0)
    assert (brighter == 255).all()


@few
@given(gain=st.floats(0.5, 1.6))
def test_gains_never_turn_the_order_of_greys(gain):
    """The highlights' fade has no kink where a brighter pixel would become darker."""
    ramp = np.linspace(0, 1, 500)[None]
    out = np.minimum(apply_gains(ramp, (gain,), 1.0), 1.0)
    assert (np.diff(out) >= -1e-12).all()
    assert out[0, -1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ("a",), "transforms": (None,), "gains": ((1.0,),)}, "1 frames"),
        ({"size": (9, 9)}, "9x9"),
        ({"names": ("frame 1", "other")}, "'other'"),
        ({"gains": ((1.0,) * 3,) * 2}, "channel"),
    ],
)
def test_an_alignment_of_other_frames_is_refused(change, words):
    stack = Stack.from_arrays([noise((20, 30), np.uint8, seed) for seed in range(2)])
    good = alignment_of(stack, Transform.identity(), matrix(2))
    aligned(stack, good)
    with pytest.raises(CofuseError, match=words):
        aligned(stack, Alignment(**{**vars(good), **change}))


def test_frames_without_common_area_cannot_be_cropped():
    stack = Stack.from_arrays([noise((20, 30), np.uint8, seed) for seed in range(2)])
    with pytest.raises(CofuseError, match="no area in common"):
        aligned(stack, alignment_of(stack, Transform.identity(), matrix(40)))


@few
@given(place=st.floats(0, 1))
def test_weights_are_those_of_lanczos(place):
    away = np.arange(8) - 3 - place
    exact = np.sinc(away) * np.sinc(away / 4)
    weights = weights_at(place)
    assert sum(weights) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(weights, exact / exact.sum(), atol=3e-5)
    np.testing.assert_allclose(weights, weights_at(1 - place)[::-1], atol=1e-6)


def both_ways(frame, found, area, gains=(1.0,), white=255.0):
    """A frame warped in two passes, and by the general way in exact numbers."""
    assert _turns_little(found)
    passes = warp(frame, found, area=area, gains=gains, white=white)
    return passes, _interpolated(frame.astype(np.float64), found, area, gains, white)


@few
@given(
    dtype=st.sampled_from(DTYPES[:3]),
    colour=st.booleans(),
    turn=st.floats(-0.079, 0.079),  # times the scale no more than two passes take
    scale=st.floats(0.8, 1.25),
    x=st.floats(-9, 9),
    y=st.floats(-9, 9),
)
def test_two_passes_are_one_interpolation(dtype, colour, turn, scale, x, y):
    """Against OpenCV, which rounds places to a 32nd: on a smooth scene both are near the truth."""
    shape, found = (150, 131), matrix(x, y, turn, scale)
    white = 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    scene = np.asarray(waves(shape) * white, dtype)
    frame = np.dstack([scene, scene[::-1], scene[:, ::-1]]) if colour else scene
    area = (7, 140, 5, 120)
    passes, exact = both_ways(frame, found, area, white=white)
    # Where the frame covers what the kernel reaches; elsewhere its border is repeated.
    points = np.stack(np.meshgrid(np.arange(5, 120), np.arange(7, 140)), -1).reshape(-1, 2)
    u, v = found(points).T
    inside = ((u > 5) & (u < 125) & (v > 5) & (v < 144)).reshape(133, 115)
    error = np.abs(passes.astype(np.float64) - exact)[inside] / white
    assert passes.shape == exact.shape and passes.dtype == dtype
    assert error.max(initial=0) < 0.01 + (0.5 / 255 if dtype == np.uint8 else 0)


@few
@given(value=st.integers(0, 255), x=st.floats(-40, 40), turn=st.floats(-0.09, 0.09))
def test_what_is_flat_stays_flat_far_outside_as_well(value, x, turn):
    frame = np.full((30, 41, 3), value, np.uint8)
    assert (warp(frame, matrix(x, -x, turn), area=(-20, 60, -30, 70)) == value).all()


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_there_and_back_loses_no_more_than_one_interpolation_of_opencvs(name):
    picture = np.asarray(sample_picture(name))
    height, width = picture.shape[:2]
    found = matrix(1.37, -2.21, turn=0.008, scale=1.006)
    whole, inner = (0, height, 0, width), np.s_[24:-24, 24:-24]

    def loss(way):
        back = way(way(picture, found), found.invert())
        return np.mean((back[inner].astype(float) - picture[inner]) ** 2)

    ours = loss(lambda frame, t: warp(frame, t))
    assert ours <= 1.02 * loss(
        lambda frame, t: _interpolated(frame, t, whole, (1.0,), 255.0, two_passes=False)
    )


@few
@given(top=st.integers(0, 20), left=st.integers(0, 20), turn=st.floats(-0.05, 0.05))
def test_an_area_is_a_cut_of_the_whole(top, left, turn):
    frame = noise((60, 70, 3), np.uint16)
    found = matrix(0.4, 1.6, turn)
    part = warp(frame, found, area=(top, 50, left, 66)).astype(int)
    assert np.abs(part - warp(frame, found)[top:50, left:66]).max() <= 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("found", [matrix(0.3, 0.2, 0.01), matrix(2.0), Transform.identity()])
def test_gains_are_applied_after_the_interpolation(dtype, found):
    white = 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    frame = np.asarray(np.dstack([waves((40, 50))] * 3) * white * 0.98 / 0.9, dtype)
    gains = (0.7, 1.0, 1.3)
    expected = apply_gains(warp(frame, found, white=white).astype(np.float64), gains, white)
    got = warp(frame, found, gains=gains, white=white)
    assert got.dtype == dtype
    expected = np.minimum(expected, max(frame.max(), white))
    # The fade to white multiplies what was rounded before it by up to five.
    step = 0.5 + 5 * 0.5 if np.dtype(dtype).kind == "u" else 1e-5
    np.testing.assert_allclose(got, expected, atol=step, rtol=1e-5)


@pytest.mark.parametrize(
    "found",
    [
        matrix(3, 4, turn=0.5),
        matrix(scale=3.0),
        Transform(np.array([[1, 0, 0], [0, 1, 0], [1e-4, 0, 1.0]]), "homography"),
    ],
)
def test_what_turns_much_goes_the_general_way(found):
    assert not _turns_little(found)
    frame = (waves((80, 90)) * 255).astype(np.uint8)
    truth = waves((80, 90), lambda x, y: np.moveaxis(found(np.stack([x, y], -1)), -1, 0)) * 255
    points = np.stack(np.meshgrid(np.arange(90), np.arange(80)), -1).reshape(-1, 2)
    u, v = found(points).T
    inside = ((u > 6) & (u < 83) & (v > 6) & (v < 73)).reshape(80, 90)
    assert np.abs(warp(frame, found) - truth)[inside].max() < 2.5


def test_frames_are_not_written_to():
    frame = noise((40, 50, 3), np.uint8)
    frame.flags.writeable = False
    before = frame.copy()
    stack = Stack.from_arrays([frame, frame])
    found = alignment_of(stack, Transform.identity(), matrix(6, -4))
    for crop in (True, False):
        _ = aligned(stack, found, crop=crop)[1]
    assert np.array_equal(frame, before)
