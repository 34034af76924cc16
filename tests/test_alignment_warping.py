"""Warped frames keep dtype and range, invent nothing, and identical frames keep every bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.alignment import Alignment, Transform, aligned
from cofuse.alignment.warping import apply_gains, warp
from cofuse.errors import CofuseError
from cofuse.images import Stack

few = settings(max_examples=25, deadline=None)
DTYPES = (np.uint8, np.uint16, np.float32, np.float64)


def noise(shape, dtype, seed=0):
    values = np.random.default_rng(seed).uniform(0, 1, shape)
    scale = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    return (values * scale).astype(dtype)


#: Of two waves the height, the angular frequencies along x and y, and the phase.
WAVES = ((0.2, 0.31, 0.2, 0.0), (0.2, -0.11, 0.23, np.pi / 2))
#: Largest sum of their slopes along x and along y, for a pixel.
SLOPES = sum(height * (abs(x) + abs(y)) for height, x, y, _ in WAVES)


def waves(x, y):
    """A smooth picture that can be computed at any place, around 0.5."""
    return 0.5 + sum(h * np.sin(along * x + down * y + phase) for h, along, down, phase in WAVES)


def scene(shape):
    y, x = np.indices(shape, float)
    return waves(x, y)


def kernel_error(frequency):
    """By what Lanczos' kernel of eight points changes a wave of height 1, at the worst place."""
    place = np.linspace(0, 1, 200)[:, None]
    away = np.arange(-3, 5) - place
    weights = np.sinc(away) * np.sinc(away / 4)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.abs((weights * np.exp(1j * frequency * away)).sum(axis=1) - 1).max()


def most_error():
    """What an interpolation of `waves` may be off by: its kernel, and places rounded to a 32nd."""
    along_both = 0.0
    for height, along, down, _ in WAVES:
        along_both += height * ((1 + kernel_error(along)) * (1 + kernel_error(down)) - 1)
    return along_both + SLOPES / 64


def matrix(x=0.0, y=0.0, turn=0.0, scale=1.0):
    c, s = scale * np.cos(turn), scale * np.sin(turn)
    return Transform(np.array([[c, -s, x], [s, c, y], [0, 0, 1.0]]))


def alignment_of(stack, *found, gains=None, reference=0):
    one = (1.0,) * (3 if stack.is_colour else 1)
    gains = gains or [one] * len(found)
    size = (stack.height, stack.width)
    return Alignment(
        names=stack.names,
        size=size,
        model="similarity",
        reference=reference,
        transforms=tuple(found),
        gains=tuple(gains),
    )


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


TRANSFORMS = st.one_of(
    st.builds(
        matrix,
        x=st.floats(-9, 9),
        y=st.floats(-9, 9),
        turn=st.floats(-0.6, 0.6),
        scale=st.floats(0.7, 1.5),
    ),
    st.builds(
        lambda x, y: Transform(np.array([[1, 0, 2.3], [0, 1, -1], [x, y, 1.0]])),
        st.floats(-1e-4, 1e-4),
        st.floats(-1e-4, 1e-4),
    ),
)


@few
@given(dtype=st.sampled_from(DTYPES), colour=st.booleans(), found=TRANSFORMS)
def test_interpolation_is_as_good_as_kernel_and_rounding_allow(dtype, colour, found):
    white = 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    values = scene((300, 131)) * white
    frame = (np.rint(values) if white > 1 else values).astype(dtype)
    frame = np.dstack([frame, frame, frame]) if colour else frame
    moved = warp(frame, found, area=(7, 290, 5, 120))
    assert moved.dtype == dtype and moved.shape == (283, 115, 3)[: frame.ndim]
    rows, columns = np.indices((283, 115))
    u, v = np.moveaxis(found(np.stack([columns + 5, rows + 7], axis=-1)), -1, 0)
    # Where the frame has all eight points; elsewhere its border is repeated.
    inside = (u > 4) & (u < 126) & (v > 4) & (v < 295)
    off = np.abs(moved / white - (waves(u, v)[..., None] if colour else waves(u, v)))[inside]
    # Rounded to integers twice, and places to float32.
    assert off.max(initial=0) <= most_error() + (1.5 / white if white > 1 else 0) + 1e-3 * SLOPES


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
    found = alignment_of(stack, Transform(np.eye(3)), matrix(3.5, 0), matrix(0, -2))
    result = aligned(stack, found)
    assert result.shape == (58, 66, 3)
    assert np.array_equal(result[0], frames[0][2:, :66])
    assert np.array_equal(result[2], frames[2][:58, :66])
    assert result.names == stack.names
    assert aligned(stack, alignment_of(stack, *[Transform(np.eye(3))] * 3)) is stack


def test_left_out_frames_are_gone():
    stack = Stack.from_arrays([noise((20, 20), np.uint8, seed) for seed in range(3)])
    still = Transform(np.eye(3))
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
    found = alignment_of(stack, Transform(np.eye(3)), matrix(1), matrix(2))
    read.clear()
    result = aligned(stack, found)
    assert read == []
    _ = result[2]
    assert read == [2]


def test_without_cropping_the_reference_fills_what_a_frame_lacks():
    shape = (120, 160)
    y, x = np.indices(shape, float)
    reference = (waves(x, y) * 255).astype(np.uint8)
    other = (waves(x - 40.5, y) * 255 * 0.8).astype(np.uint8)
    stack = Stack.from_arrays([reference, other])
    found = alignment_of(stack, Transform(np.eye(3)), matrix(40.5))
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
    gained = warp(frame, Transform(np.eye(3)), gains=(0.5, 0.8, 1.2), white=255.0)
    assert (gained[:4, :4] == [50, 80, 120]).all()
    assert (gained[4:] == 255).all()
    assert (gained[:4, 4:, 1:] == [80, 120]).all()
    assert (np.abs(gained[:4, 4:, 0] - 127.5) <= 0.5).all()
    brighter = warp(frame, Transform(np.eye(3)), gains=(3.0, 3.0, 3.0), white=255.0)
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
    good = alignment_of(stack, Transform(np.eye(3)), matrix(2))
    aligned(stack, good)
    with pytest.raises(CofuseError, match=words):
        aligned(stack, Alignment(**{**vars(good), **change}))


def test_frames_without_common_area_cannot_be_cropped():
    stack = Stack.from_arrays([noise((20, 30), np.uint8, seed) for seed in range(2)])
    with pytest.raises(CofuseError, match="no area in common"):
        aligned(stack, alignment_of(stack, Transform(np.eye(3)), matrix(40)))


@few
@given(value=st.integers(0, 255), x=st.floats(-40, 40), turn=st.floats(-0.09, 0.09))
def test_what_is_flat_stays_flat_far_outside_as_well(value, x, turn):
    frame = np.full((30, 41, 3), value, np.uint8)
    assert (warp(frame, matrix(x, -x, turn), area=(-20, 60, -30, 70)) == value).all()


@few
@given(top=st.integers(0, 20), left=st.integers(0, 20), turn=st.floats(-0.05, 0.05))
def test_an_area_is_a_cut_of_the_whole(top, left, turn):
    frame = np.rint(scene((60, 70)) * 65535).astype(np.uint16)
    found = matrix(0.4, 1.6, turn)
    part = warp(frame, found, area=(top, 50, left, 66)).astype(int)
    # A place between two 32nds may be rounded to either.
    most = 65535 * SLOPES / 32 + 1
    assert np.abs(part - warp(frame, found)[top:50, left:66]).max() <= most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("found", [matrix(0.3, 0.2, 0.01), matrix(2.0), Transform(np.eye(3))])
def test_gains_are_applied_after_the_interpolation(dtype, found):
    white = 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)
    frame = np.asarray(np.dstack([scene((40, 50))] * 3) * white * 0.98 / 0.9, dtype)
    gains = (0.7, 1.0, 1.3)
    expected = apply_gains(warp(frame, found, white=white).astype(np.float64), gains, white)
    got = warp(frame, found, gains=gains, white=white)
    assert got.dtype == dtype
    expected = np.minimum(expected, max(frame.max(), white))
    # The fade to white multiplies what was rounded before it by up to five.
    step = 0.5 + 5 * 0.5 if np.dtype(dtype).kind == "u" else 1e-5
    np.testing.assert_allclose(got, expected, atol=step, rtol=1e-5)


def test_frames_are_not_written_to():
    frame = noise((40, 50, 3), np.uint8)
    frame.flags.writeable = False
    before = frame.copy()
    stack = Stack.from_arrays([frame, frame])
    found = alignment_of(stack, Transform(np.eye(3)), matrix(6, -4))
    for crop in (True, False):
        _ = aligned(stack, found, crop=crop)[1]
    assert np.array_equal(frame, before)
