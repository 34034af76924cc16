"""Tiles: every pixel of any picture is made once, with what lies around it in view."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cofuse.images.tiles import MULTIPLE, Tile, box_of, padded, tiles_of

sides = st.integers(1, 400)
multiples = st.integers(1, 8).map(MULTIPLE.__mul__)


@given(st.tuples(sides, sides), multiples, multiples)
def test_tiles_make_every_pixel_once(shape: tuple[int, int], side: int, halo: int) -> None:
    times = np.zeros(shape, int)
    for tile in tiles_of(shape, side, halo):
        times[tile.here] += 1
        assert times[tile.here].size > 0
    assert (times == 1).all()


@given(st.tuples(sides, sides), multiples, multiples)
def test_tiles_see_as_far_as_there_is_picture(shape: tuple[int, int], side: int, halo: int) -> None:
    place = np.arange(shape[0] * shape[1]).reshape(shape)
    for tile in tiles_of(shape, side, halo):
        assert np.array_equal(place[tile.around][tile.within], place[tile.here])
        for part, seen, length in zip(tile.here, tile.around, shape, strict=True):
            assert part.stop - part.start <= side
            assert seen.start == max(0, part.start - halo)
            assert seen.stop == min(length, part.stop + halo)
            # Networks halve what they see: it lies on their grid, as the whole picture does.
            assert seen.start % MULTIPLE == 0


@given(sides, sides, st.integers(1, 3), st.sampled_from([2, 4, 8, MULTIPLE]))
def test_padding_mirrors_at_the_last_row_and_column(
    height: int, width: int, channels: int, multiple: int
) -> None:
    planes = np.arange(channels * height * width, dtype=np.float32)
    planes = planes.reshape(channels, height, width)
    result = padded(planes) if multiple == MULTIPLE else padded(planes, multiple)
    assert result.dtype == np.float32 and result.flags.c_contiguous
    assert result.shape[:2] == (1, channels)
    for length, given_length in zip(result.shape[2:], (height, width), strict=True):
        assert length % multiple == 0
        assert given_length <= length < given_length + multiple
    rows, columns = (
        np.where((place := np.arange(long) % (2 * short)) < short, place, 2 * short - 1 - place)
        for long, short in zip(result.shape[2:], (height, width), strict=True)
    )
    assert np.array_equal(result[0], planes[:, rows[:, None], columns])


@pytest.mark.parametrize(("side", "halo"), [(100, 16), (96, 20)])
def test_sides_and_halos_off_the_grid_are_refused(side: int, halo: int) -> None:
    with pytest.raises(AssertionError):
        list(tiles_of((200, 200), side, halo))


@given(
    hnp.arrays(bool, st.tuples(st.integers(1, 20), st.integers(1, 20)), fill=st.just(False)),
    st.integers(0, 6),
    st.integers(1, 5),
    st.tuples(*[st.integers(0, 8)] * 4),
)
def test_a_box_is_the_smallest_that_holds_what_is_wanted(wanted, halo, multiple, margins) -> None:
    top, left, bottom, right = margins
    rows, columns = slice(top, top + wanted.shape[0]), slice(left, left + wanted.shape[1])
    part = Tile(rows, columns, slice(0, rows.stop + bottom), slice(0, columns.stop + right))
    box = box_of(part, wanted, halo, multiple)
    if not wanted.any():
        assert box is None
        return
    assert box is not None
    for axis, (here, around, whole, every) in enumerate(
        zip(box.here, box.around, part.here, part.around, strict=True)
    ):
        along = np.flatnonzero(wanted.any(axis=1 - axis)) + whole.start
        assert whole.start <= here.start <= along[0] and along[-1] < here.stop <= whole.stop
        assert (here.start - whole.start) % multiple == 0
        assert here.stop == whole.stop or (here.stop - whole.start) % multiple == 0
        assert along[0] - here.start < multiple and here.stop - 1 - along[-1] < multiple
        assert around.start == max(every.start, here.start - halo)
        assert around.stop == min(every.stop, here.stop + halo)
