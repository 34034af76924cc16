"""Stacks: what is refused, how native values and grey levels map, and when frames are read."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.errors import CofuseError
from cofuse.images import (
    LUMINANCE_WEIGHTS,
    Fusion,
    Stack,
    from_opponent,
    luminance,
    to_opponent,
)

Array = np.ndarray[Any, Any]

COLOUR = arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.just(3)),
    elements=st.floats(-100, 400, width=32),
)


def refusal(*frames: Any, **options: Any) -> str:
    """The one line with which a stack of these frames is refused, when made or when read."""
    with pytest.raises(CofuseError) as caught:
        list(Stack.from_arrays(list(frames), **options))
    message = str(caught.value)
    assert "\n" not in message
    assert message
    return message


def grey(height: int = 4, width: int = 5, dtype: Any = np.uint8) -> Array:
    return np.zeros((height, width), dtype)


# What is refused.


def test_a_stack_without_frames_is_refused() -> None:
    assert "at least one" in refusal()


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint32, bool, complex, "f2"])
def test_other_dtypes_are_refused_by_name(dtype: Any) -> None:
    message = refusal(np.zeros((4, 5), dtype))
    assert "frame 1" in message
    assert str(np.dtype(dtype)) in message
    assert "uint8, uint16, float32 or float64" in message


def test_what_is_no_array_of_numbers_is_refused() -> None:
    assert "frame 1" in refusal([["a", "b"]])
    assert "frame 1" in refusal(None)


@pytest.mark.parametrize("shape", [(), (7,), (4, 5, 1), (4, 5, 2), (4, 5, 4), (2, 4, 5, 3)])
def test_other_shapes_are_refused_by_name(shape: tuple[int, ...]) -> None:
    message = refusal(np.zeros(shape, np.uint8), names=["a.png"])
    assert "a.png" in message
    assert str(shape) in message


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0, 3), (0, 4, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_empty_pictures_are_refused(shape: tuple[int, ...], dtype: type) -> None:
    message = refusal(np.zeros(shape, dtype))
    assert "frame 1" in message
    assert "empty" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 1])
def test_values_that_are_not_finite_are_refused(value: float, dtype: type, place: int) -> None:
    frames = [grey(dtype=dtype), grey(dtype=dtype)]
    frames[place][2, 3] = value
    assert f"frame {place + 1} holds NaN or infinite" in refusal(*frames)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (grey(5, 4), "4x5 grey uint8"),
        (grey(4, 6), "6x4 grey uint8"),
        (np.zeros((4, 5, 3), np.uint8), "5x4 RGB uint8"),
        (grey(dtype=np.uint16), "5x4 grey uint16"),
        (grey(dtype=np.float32), "5x4 grey float32"),
    ],
)
def test_frames_that_do_not_agree_are_refused_with_both_described(other: Array, words: str) -> None:
    message = refusal(grey(), grey(), other, names=["a", "b", "c"])
    assert message.startswith("c is " + words)
    assert "a is 5x4 grey uint8" in message


def test_the_number_of_names_must_fit() -> None:
    message = refusal(grey(), grey(), names=["a"])
    assert "2 frames" in message
    assert "1 name" in message


@pytest.mark.parametrize("white", [0.0, -1.0, np.nan, np.inf])
def test_white_must_be_a_positive_number(white: float) -> None:
    assert "white" in refusal(grey(), white=white)


@pytest.mark.parametrize("sign", [1, -1])
def test_floats_on_another_scale_are_refused_unless_white_is_given(sign: int) -> None:
    frame = np.full((4, 5), sign * 200.0)
    message = refusal(frame)
    assert "200" in message
    assert "white" in message
    assert Stack.from_arrays([frame], white=255).white == 255.0


@pytest.mark.parametrize("place", [0, 1])
def test_a_wrong_float_scale_is_noticed_in_any_frame(place: int) -> None:
    frames = [np.full((4, 5), 0.5), np.full((4, 5), 0.5)]
    frames[place] *= 255
    assert f"frame {place + 1}" in refusal(*frames)


def test_floats_somewhat_above_white_are_taken() -> None:
    assert Stack.from_arrays([np.full((4, 5), 3.5)]).white == 1.0


# Values.


@pytest.mark.parametrize(
    ("dtype", "white"), [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1), (np.float64, 1)]
)
def test_white_is_the_largest_integer_or_one(dtype: type, white: float) -> None:
    stack = Stack.from_arrays([np.full((4, 5), white, dtype)])
    assert stack.white == white == stack.ceiling and not stack.white_is_found
    levels = stack.to_levels(np.array([[0, white]], dtype))
    assert levels.dtype == np.float32
    np.testing.assert_allclose(levels, [[0, 255]], rtol=1e-7)


@pytest.mark.parametrize("white", [None, 255, 200])
def test_levels_of_all_eight_bit_values_map_back_exactly(white: float | None) -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    stack = Stack.from_arrays([values], white=white)
    again = stack.from_levels(stack.to_levels(values))
    assert again.dtype == np.uint8
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("white", [None, 65535, 4095, 1023, 60000])
def test_levels_of_all_sixteen_bit_values_map_back_exactly(white: float | None) -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    stack = Stack.from_arrays([values], white=white)
    again = stack.from_levels(stack.to_levels(values))
    assert again.dtype == np.uint16
    np.testing.assert_array_equal(again, values)


@given(arrays(np.float32, (3, 4), elements=st.floats(-1, 2, width=32)))
def test_floats_map_back_to_their_last_digit_but_one(values: Array) -> None:
    for dtype in (np.float32, np.float64):
        stack = Stack.from_arrays([values.astype(dtype)])
        again = stack.from_levels(stack.to_levels(values.astype(dtype)))
        assert again.dtype == dtype
        # Two products in float32, and the two factors' own rounding; tiny ones may underflow.
        np.testing.assert_allclose(again, values, rtol=3e-7, atol=1e-37)


def test_eight_bit_values_are_their_own_levels() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(Stack.from_arrays([values]).to_levels(values), values)


def test_twelve_bits_in_sixteen_have_white_at_255() -> None:
    stack = Stack.from_arrays([grey(dtype=np.uint16)], white=4095)
    assert stack.to_levels(np.array([[4095]], np.uint16))[0, 0] == pytest.approx(255, rel=1e-6)


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535)])
def test_levels_outside_the_range_are_clipped_and_others_rounded(dtype: type, largest: int) -> None:
    stack = Stack.from_arrays([grey(dtype=dtype)], white=largest)
    levels = np.array([[-40.0, 300.0, 1e9, -0.1]], np.float32)
    np.testing.assert_array_equal(stack.from_levels(levels), [[0, largest, largest, 0]])
    eight = Stack.from_arrays([grey()])
    values = eight.from_levels(np.array([[10.4, 10.6, 254.6]], np.float32))
    np.testing.assert_array_equal(values, [[10, 11, 255]])


def test_converting_does_not_write_to_its_input() -> None:
    stack = Stack.from_arrays([grey(dtype=np.uint16)])
    values = np.full((2, 2), 7, np.uint16)
    levels = np.full((2, 2), 300.0, np.float32)
    for array in (values, levels):
        array.setflags(write=False)
    stack.to_levels(values)
    stack.from_levels(levels)


def test_levels_are_no_view_of_the_frame() -> None:
    frame = grey(dtype=np.float32)
    levels = Stack.from_arrays([frame], white=255.0).to_levels(frame)
    levels += 1
    assert not frame.any()


# Reading.


def test_frames_are_read_when_asked_for_and_not_before() -> None:
    calls = [0, 0, 0]

    def reader(k: int) -> Array:
        calls[k] += 1
        return np.full((4, 5), k, np.uint8)

    stack = Stack([lambda k=k: reader(k) for k in range(3)])  # type: ignore[misc]
    assert calls == [1, 0, 0]  # the first one tells shape and type
    assert len(stack) == 3
    assert (stack.height, stack.width, stack.is_colour) == (4, 5, False)
    assert calls == [1, 0, 0]
    assert stack[2].max() == 2
    assert calls == [1, 0, 1]
    frames = iter(stack)
    next(frames)
    assert calls == [2, 0, 1]
    assert [int(frame[0, 0]) for frame in stack] == [0, 1, 2]
    assert calls == [3, 1, 2]


def test_a_wrong_frame_is_refused_when_it_is_read() -> None:
    stack = Stack([grey, lambda: grey(9, 9)], names=["first", "second"])
    stack[0]
    with pytest.raises(CofuseError, match="second is 9x9"):
        stack[1]


def test_arrays_are_viewed() -> None:
    frame = grey()
    stack = Stack.from_arrays([frame])
    assert stack[0] is frame


def test_a_part_of_a_large_array_is_read_without_a_look_at_the_whole() -> None:
    frames = np.random.default_rng(0).uniform(0, 1, (2, 1536, 2048)).astype(np.float32)
    stack = Stack.from_arrays(frames)
    tracemalloc.start()
    try:
        for index in (0, 1):
            stack.part_levels(index, (slice(0, 16), slice(0, 16)))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 100_000  # to check a whole frame takes a byte a pixel, 3 million


@given(arrays(np.uint16, (2, 4, 5)), st.sampled_from([">u2", ">f4", ">f8", "<u2", "<f8"]))
def test_any_order_of_bytes_is_taken(values: Array, dtype: str) -> None:
    frames = values.astype(dtype) if dtype[1] == "u" else (values / 65536).astype(dtype)
    native = frames.dtype.newbyteorder("=")
    for stack in (
        Stack.from_arrays(list(frames)),
        Stack([lambda k=k: frames[k] for k in range(2)]),
    ):
        assert stack.dtype == native
        for given_frame, frame in zip(frames, stack, strict=True):
            assert frame.dtype == native and frame.dtype.isnative
            np.testing.assert_array_equal(frame, given_frame)


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_greater(np.arange(20, dtype=np.uint8).reshape(4, 5), 9)
    for message in (refusal(masked), refusal(grey(), masked)):
        assert "masked" in message and "filled" in message
    with pytest.raises(CofuseError, match="masked"):
        Stack([lambda: masked])
    Stack.from_arrays([masked.filled(0)])


def test_lists_of_numbers_are_taken() -> None:
    stack = Stack.from_arrays([[[0.0, 0.5], [1.0, 0.25]]])
    assert stack.dtype == np.float64
    np.testing.assert_array_equal(stack[0], [[0.0, 0.5], [1.0, 0.25]])


def test_frames_are_numbered_or_named() -> None:
    assert Stack.from_arrays([grey(), grey()]).names == ("frame 1", "frame 2")
    assert Stack.from_arrays([grey(), grey()], names=["a", "b"]).names == ("a", "b")


def test_an_index_past_the_end_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        Stack.from_arrays([grey()])[1]


# Keeping.


def counted(frames: list[Array], **options: Any) -> tuple[Stack, list[int]]:
    """A stack of frames behind readers, and how often each was read."""
    calls = [0] * len(frames)

    def reader(k: int) -> Array:
        calls[k] += 1
        return frames[k].copy()

    return Stack([lambda k=k: reader(k) for k in range(len(frames))], **options), calls  # type: ignore[misc]


@given(
    frames=arrays(
        st.sampled_from([np.uint8, np.uint16, np.float32, np.float64]),
        st.one_of(
            st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5)),
            st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.just(3)),
        ),
        elements=st.integers(0, 1),
    )
)
def test_kept_frames_are_the_frames_and_each_is_read_once(frames: Array) -> None:
    stack, calls = counted(list(frames), white=200, names=[f"n{k}" for k in range(len(frames))])
    calls[0] -= 1  # the first one told shape and type
    kept = stack.kept()
    for _ in range(2):
        for k, frame in enumerate(kept):
            np.testing.assert_array_equal(frame, frames[k])
            assert frame.dtype == frames.dtype
    assert calls == [1] * len(frames)
    assert len(kept) == len(frames)
    for name in ("shape", "dtype", "white", "names", "height", "width", "is_colour"):
        assert getattr(kept, name) == getattr(stack, name)
    assert kept.kept() is kept
    # The stack itself goes on reading.
    stack[0]
    assert calls[0] == 2


@pytest.mark.parametrize("shape", [(7, 9), (7, 9, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_parts_of_kept_frames_are_the_frames_parts(dtype: Any, shape: tuple[int, ...]) -> None:
    frames = np.random.default_rng(0).random((3, *shape)) * (1 if dtype == np.float32 else 200)
    stack, calls = counted(list(frames.astype(dtype)))
    kept = stack.kept()
    assert kept.at_hand and not kept.in_memory
    read = calls.copy()
    for k, rows, columns in itertools.product(
        range(3), (slice(0, 7), slice(2, 5), slice(6, 99)), (slice(0, 9), slice(3, 4))
    ):
        part = kept.part_reader(k)(rows, columns)
        np.testing.assert_array_equal(part, frames[k, rows, columns].astype(dtype))
        assert part.dtype == dtype
    assert calls == read
    np.testing.assert_array_equal(
        stack.part_reader(1)(slice(1, 2), slice(0, 9)), frames[1, 1:2].astype(dtype)
    )


def test_frames_in_a_file_are_not_in_memory() -> None:
    stack, _ = counted([np.zeros((500, 400, 3), np.uint8)] * 8)
    tracemalloc.start()
    try:
        kept = stack.kept()
        assert sum(int(frame.sum()) for frame in kept) == 0
        kept.part_reader(7)(slice(3, 5), slice(0, 400))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * stack.frame_bytes


def test_arrays_are_kept_as_they_are() -> None:
    frame = grey()
    stack = Stack.from_arrays([frame, frame])
    kept = stack.kept()
    assert kept is stack
    assert kept[1] is frame


def test_what_is_kept_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stack, _ = counted([grey(), grey()])
    opened = set(Path("/dev/fd").iterdir())
    kept = stack.kept()
    assert not list(tmp_path.iterdir())
    assert set(Path("/dev/fd").iterdir()) > opened
    some = kept.only([1])
    del kept
    np.testing.assert_array_equal(some[0], grey())
    del some
    assert set(Path("/dev/fd").iterdir()) <= opened


def test_a_wrong_frame_is_refused_when_it_is_kept() -> None:
    stack = Stack([grey, lambda: grey(9, 9)], names=["first", "second"])
    with pytest.raises(CofuseError, match="second is 9x9"):
        stack.kept()


# Colour.


def test_luminance_weights_are_those_of_rec_601() -> None:
    # BT.601: 0.299, 0.587, 0.114, to three digits; they sum to one so that grey stays grey.
    np.testing.assert_allclose(LUMINANCE_WEIGHTS, (0.299, 0.587, 0.114), atol=1e-4)
    assert sum(LUMINANCE_WEIGHTS) == pytest.approx(1.0, abs=1e-12)


def test_luminance_of_a_stack_weighs_its_channels() -> None:
    frame = np.zeros((1, 4, 3), np.uint8)
    frame[0, 0], frame[0, 1], frame[0, 2], frame[0, 3] = (255, 0, 0), (0, 255, 0), (0, 0, 255), 200
    result = Stack.from_arrays([frame]).luminance(0)
    assert result.dtype == np.float32
    expected = [255 * w for w in LUMINANCE_WEIGHTS] + [200]
    np.testing.assert_allclose(result[0], expected, rtol=1e-6)


def test_luminance_of_a_grey_picture_is_that_picture() -> None:
    levels = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(luminance(levels), levels)


@given(COLOUR)
def test_opponent_planes_turn_back_into_rgb(levels: Array) -> None:
    planes = to_opponent(levels)
    assert planes.dtype == np.float32
    # Two float32 products of 3 × 3 with numbers up to 400.
    np.testing.assert_allclose(from_opponent(planes), levels, rtol=0, atol=5e-4)


@given(COLOUR)
def test_the_opponent_transform_keeps_lengths(levels: Array) -> None:
    np.testing.assert_allclose(
        np.linalg.norm(to_opponent(levels), axis=-1),
        np.linalg.norm(levels, axis=-1),
        rtol=1e-5,
        atol=1e-5,
    )


def test_grey_pixels_have_no_chrominance() -> None:
    levels = np.repeat(np.linspace(0, 255, 5, dtype=np.float32)[None, :, None], 3, axis=-1)
    planes = to_opponent(levels)
    np.testing.assert_allclose(planes[..., 1:], 0.0, atol=5e-5)
    np.testing.assert_allclose(planes[..., 0], np.sqrt(3) * levels[..., 0], rtol=1e-6)


def test_a_grey_picture_is_its_own_only_plane() -> None:
    levels = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert to_opponent(levels).shape == (2, 3, 1)
    np.testing.assert_array_equal(from_opponent(to_opponent(levels)), levels)


def test_a_fusion_is_frozen_and_knows_no_maps_by_default() -> None:
    fusion = Fusion(image=grey())
    assert fusion.source_map is None
    assert fusion.confidence is None
    assert fusion.sigma == 0.0
    with pytest.raises(AttributeError):
        fusion.sigma = 1.0  # type: ignore[misc]
