"""Parts of frames by bands of frequency: coefficients in which noise is independent.

A window is cut into blocks of 8 x 8 pixels, and of their cosine transform those 48 coefficients
are kept that belong to the finest octave. Then it is halved by averages of 2 x 2 pixels for the
next octave. Averages of white noise are white noise of half the level, which is made up for: white
noise has one variance in all bands.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Levels, Pixels, Stack, to_opponent
from cofuse.sensor.law import BANDS

_BLOCK = 8
#: Side of a window: one block of the coarsest band.
_SIDE = _BLOCK << (BANDS - 1)
#: Pixels from block to block in every band: none is a multiple of eight in the finest, so that all
#: places in the grid of a JPEG occur.
_STEPS = (7, 5, 4, 4, 8)
_NUMBERS = np.arange(_BLOCK)
_COSINES = np.sqrt(2.0 / _BLOCK) * np.cos(
    np.pi * (2 * _NUMBERS + 1) * _NUMBERS[:, None] / (2 * _BLOCK)
)
_COSINES[0] /= np.sqrt(2.0)
_OCTAVE = np.maximum(_NUMBERS[:, None], _NUMBERS) >= _BLOCK // 2
#: Two halves that are alike in frequency and in symmetry: an edge in the middle of a block has odd
#: coefficients alone. By the parity of the bits (Thue and Morse) both have some of all kinds.
_BITS = np.array([number.bit_count() for number in range(_BLOCK)])
_FIRST_HALF = (_BITS[:, None] + _BITS) % 2 == 0
_RADIUS = np.hypot(_NUMBERS[:, None], _NUMBERS).ravel()
#: Coefficients of a block: the two halves, of each the coarser ones first.
_ORDER = np.concatenate(
    [
        half[np.argsort(_RADIUS[half], kind="stable")]
        for half in (np.flatnonzero(_OCTAVE & _FIRST_HALF), np.flatnonzero(_OCTAVE & ~_FIRST_HALF))
    ]
)
COEFFICIENTS = len(_ORDER)

#: Luminance as JPEG has it.
_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)
#: Fine coefficients that are looked at: numbers along rows and columns.
_FINE = ((7, 7), (6, 6), (5, 7), (7, 5))
#: Values below this are zero but for the rounding to bytes.
_ZERO = 0.7
#: Windows that suffice to find the grid of a JPEG.
_GRID_WINDOWS = 16
#: Standard deviations by which one place of 64 must have fewer values that are not zero than
#: others, and the part of them that must be missing there.
_CLEAR, _MISSING = 6.0, 0.2


class Blocks(NamedTuple):
    """Blocks of one band, at the same places in every frame."""

    #: Coefficients in grey levels, shape (blocks, planes, `COEFFICIENTS`).
    values: Levels
    #: Mean grey level of the channels.
    brightness: Levels
    #: Part of a block's pixels that are black or white; all of those of a block that is constant.
    clipped: Levels


def window_places(shape: tuple[int, ...], most: int) -> list[tuple[slice, slice]]:
    """Spread windows evenly over a frame, overlapping by half at most; small frames are one."""
    height, width = shape[:2]
    sides = min(_SIDE, height), min(_SIDE, width)
    step = max(_SIDE // 2, int(np.sqrt(height * width / most)))
    starts = []
    for length, side in zip((height, width), sides, strict=True):
        count = max(1, -(-(length - side) // step) + 1) if length > side else 1
        starts.append(np.linspace(0, length - side, count).astype(int).tolist())
    return [(slice(y, y + sides[0]), slice(x, x + sides[1])) for y, x in itertools.product(*starts)]


def read_windows(stack: Stack, index: int, places: list[tuple[slice, slice]]) -> Pixels:
    """Read the windows of one frame, in native values."""
    read = stack.part_reader(index)
    return np.stack([read(*place) for place in places])


def cut_blocks(stack: Stack, windows: Pixels) -> list[Blocks]:
    """Split windows into blocks, band by band; bands whose blocks do not fit are left out."""
    levels = stack.to_levels(windows)
    # Scaling a native white to 255 leaves it a rounding away.
    clipped = (levels <= 1e-3) | (levels >= 255.0 - 1e-3)
    if stack.is_colour:
        clipped = np.asarray(clipped.any(axis=-1))
    planes = to_opponent(levels) if stack.is_colour else levels[..., None]
    # (windows, planes and what is clipped, rows, columns)
    picture = np.concatenate([planes, clipped[..., None]], axis=-1, dtype=np.float32)
    picture = np.ascontiguousarray(np.moveaxis(picture, -1, 1))
    scale = np.float32(1.0 / np.sqrt(planes.shape[-1]) / _BLOCK)
    bands = []
    for band, step in enumerate(_STEPS):
        if band:
            picture = _halved(picture)
        if min(picture.shape[2:]) < _BLOCK:
            break
        cut = np.lib.stride_tricks.sliding_window_view(picture, (_BLOCK, _BLOCK), axis=(2, 3))
        cut = np.moveaxis(cut[:, :, ::step, ::step], 1, 3)
        cut = np.ascontiguousarray(cut.reshape(-1, *cut.shape[3:]))
        values, share = cut[:, :-1], cut[:, -1].mean(axis=(1, 2))
        cosines = (_COSINES * 2.0**band).astype(np.float32)
        all_values = cosines @ values @ _COSINES.T.astype(np.float32)
        all_values = all_values.reshape(len(values), planes.shape[-1], -1)
        kept = np.ascontiguousarray(all_values[:, :, _ORDER])
        brightness = all_values[:, 0, 0] * np.float32(scale / 2.0**band)
        constant = values[:, 0].max(axis=(1, 2)) == values[:, 0].min(axis=(1, 2))
        bands.append(Blocks(kept, brightness, np.where(constant, np.float32(1.0), share)))
    return bands


def _halved(picture: NDArray[Any]) -> NDArray[Any]:
    """Average 2 x 2 pixels along the last axes."""
    height, width = (n - n % 2 for n in picture.shape[2:])
    even = picture[:, :, :height, :width]
    rows = even[:, :, ::2] + even[:, :, 1::2]
    return np.asarray((rows[..., ::2] + rows[..., 1::2]) * np.float32(0.25))


def jpeg_grid(stack: Stack, windows: Pixels, places: list[tuple[slice, slice]]) -> float:
    """Return which part of the fine detail of a frame is missing on the grid of a JPEG.

    A JPEG rounds the coefficients of blocks of 8 x 8 pixels, most of the fine ones to zero: on the
    grid of the blocks, and nowhere else. The part is 0 if there is no grid; resampling destroys it.
    """
    if min(windows.shape[1:3]) < 2 * _BLOCK:
        return 0.0
    every = -(-len(windows) // _GRID_WINDOWS)
    levels = stack.to_levels(windows[::every])
    picture = levels @ _WEIGHTS if stack.is_colour else levels
    busy = np.zeros((_BLOCK, _BLOCK))
    for down, along in _FINE:
        values = _along(_along(picture, down, 1), along, 2)
        for window, (rows, columns) in zip(np.abs(values) > _ZERO, places[::every], strict=True):
            height, width = (n - n % _BLOCK for n in window.shape)
            cut = window[:height, :width].reshape(height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK)
            busy += np.roll(cut.mean(axis=(0, 2)), (rows.start, columns.start), (0, 1))
    row, column = np.unravel_index(busy.argmin(), busy.shape)
    # Places that are on the grid along one axis have fewer as well.
    others = np.delete(np.delete(busy, row, axis=0), column, axis=1)
    least, usual = float(busy[row, column]), float(others.mean())
    clear = usual - least > _CLEAR * float(others.std()) and usual - least > _MISSING * usual
    return 1.0 - least / usual if clear else 0.0


def _along(picture: Levels, number: int, axis: int) -> Levels:
    """Coefficient of the cosine transform of the eight values from every place on, on one axis."""
    count = picture.shape[axis] - _BLOCK + 1
    moved = np.moveaxis(picture, axis, 0)
    total = sum(np.float32(c) * moved[k : k + count] for k, c in enumerate(_COSINES[number]))
    return np.moveaxis(np.asarray(total), 0, axis)
