"""Blocks of a frame in bands of frequency, as coefficients in which white noise is independent.

A band is an octave. A window of a frame is cut into blocks of 8 x 8 pixels. The finest band is the
48 coefficients of a block's cosine transform in its finest octave. For the next band the window is
halved by averages of 2 x 2 pixels. Averaging halves the level of white noise, so coefficients are
doubled from band to band: white noise has one variance in all bands.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cofuse.images import Levels, Pixels, Stack, to_opponent
from cofuse.images.pixels import WINDOWS
from cofuse.sensor.law import BANDS

_BLOCK = 8
#: Side of a window: one block of the coarsest band.
_SIDE = _BLOCK << (BANDS - 1)
#: Pixels from block to block in every band. The first is odd: the finest blocks lie at all offsets
#: to the 8 x 8 grid of a JPEG.
_STEPS = (7, 5, 4, 4, 8)
_NUMBERS = np.arange(_BLOCK)
#: Orthonormal cosine transform, one basis vector a row.
_COSINES = np.sqrt(2.0 / _BLOCK) * np.cos(
    np.pi * (2 * _NUMBERS + 1) * _NUMBERS[:, None] / (2 * _BLOCK)
)
_COSINES[0] /= np.sqrt(2.0)
_COSINES = _COSINES.astype(np.float32)
#: Which half a coefficient belongs to, by the parity of its bits (Thue and Morse): both halves have
#: all frequencies and symmetries. An edge in the middle of a block has odd coefficients alone.
_BITS = np.array([number.bit_count() for number in range(_BLOCK)])
_HALF = (_BITS[:, None] + _BITS) % 2
#: Coefficients of the finest octave: the first half, then the second, each from coarse to fine.
_ORDER = np.lexsort((np.hypot(_NUMBERS[:, None], _NUMBERS).ravel(), _HALF.ravel()))
_ORDER = _ORDER[np.maximum(*np.divmod(_ORDER, _BLOCK)) >= _BLOCK // 2]
COEFFICIENTS = len(_ORDER)

#: Rows and columns of a window.
Place = tuple[slice, slice]

#: Luminance as JPEG has it.
_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)
#: Rows and columns of the fine coefficients that show the grid of a JPEG, and the magnitude in grey
#: levels below which they are zero but for the rounding to bytes.
_FINE, _ZERO = ((7, 7), (6, 6), (5, 7), (7, 5)), 0.7
#: Most windows in which the grid of a JPEG is looked for.
_GRID_WINDOWS = 16
#: The blocks of a grid have fewer nonzero coefficients than those at other offsets, by this many of
#: their standard deviations and by this share of their mean.
_CLEAR, _MISSING = 6.0, 0.2


class Blocks(NamedTuple):
    """Blocks of one band, at the same places in every frame."""

    #: Coefficients in grey levels, shape (blocks, planes, `COEFFICIENTS`).
    values: Levels
    #: Mean grey level of every block over its channels.
    brightness: Levels
    #: Share of a block's pixels that are black or white; 1 for a constant block.
    clipped: Levels


def window_places(shape: tuple[int, ...], most: int) -> list[Place]:
    """Spread about ``most`` windows evenly over frames of a shape; they overlap by half at most."""
    step = max(_SIDE // 2, int(np.sqrt(shape[0] * shape[1] / most)))

    def cuts(length: int) -> list[slice]:
        last = max(length - _SIDE, 0)
        starts = np.linspace(0, last, -(-last // step) + 1).astype(int).tolist()
        return [slice(start, min(start + _SIDE, length)) for start in starts]

    return list(itertools.product(cuts(shape[0]), cuts(shape[1])))


def cut_blocks(stack: Stack, windows: Pixels) -> list[Blocks]:
    """Cut windows in native values into blocks, band by band, finest first.

    Bands whose blocks do not fit into a window are left out.
    """
    levels = stack.to_levels(windows)
    # Scaling a native white to 255 leaves it a rounding away.
    clipped = (levels <= 1e-3) | (levels >= 255.0 - 1e-3)
    if stack.is_colour:
        planes, clipped = to_opponent(levels), np.asarray(clipped.any(axis=-1))
    else:
        planes = levels[..., None]
    # (windows, planes and what is clipped, rows, columns)
    picture = np.concatenate([planes, clipped[..., None]], axis=-1, dtype=np.float32)
    picture = np.ascontiguousarray(np.moveaxis(picture, -1, 1))
    count = planes.shape[-1]
    bands = []
    for band, step in enumerate(_STEPS):
        if band:
            height, width = (n - n % 2 for n in picture.shape[2:])
            rows = picture[:, :, :height:2, :width] + picture[:, :, 1:height:2, :width]
            picture = (rows[..., ::2] + rows[..., 1::2]) * np.float32(0.25)
        if min(picture.shape[2:]) < _BLOCK:
            break
        cut = sliding_window_view(picture, (_BLOCK, _BLOCK), axis=(2, 3))[:, :, ::step, ::step]
        cut = np.moveaxis(cut, 1, 3).reshape(-1, count + 1, _BLOCK, _BLOCK)
        values, share = cut[:, :-1], cut[:, -1].mean(axis=(1, 2))
        transformed = (_COSINES @ values @ _COSINES.T).reshape(len(values), count, -1)
        brightness = transformed[:, 0, 0] * np.float32(1.0 / np.sqrt(count) / _BLOCK)
        constant = np.ptp(values[:, 0], axis=(1, 2)) == 0
        kept = transformed[:, :, _ORDER] * np.float32(2**band)
        bands.append(Blocks(kept, brightness, np.where(constant, np.float32(1.0), share)))
    return bands


def jpeg_grid(stack: Stack, windows: Pixels, places: list[Place]) -> float:
    """Return the share of the fine detail of a frame that is missing on the grid of a JPEG.

    A JPEG rounds most fine coefficients of its blocks of 8 x 8 pixels to zero, but not those of
    blocks off its grid. The share is 0 if there is no grid; resampling destroys it. ``windows`` are
    in native values and lie at ``places`` of the frame.
    """
    if min(windows.shape[1:3]) < 2 * _BLOCK:
        return 0.0
    every = -(-len(windows) // _GRID_WINDOWS)
    levels = stack.to_levels(windows[::every])
    picture = levels @ _WEIGHTS if stack.is_colour else levels
    # Share of coefficients that are not zero, by the offset of their block.
    busy = np.zeros((_BLOCK, _BLOCK))
    for down, along in _FINE:
        values = sliding_window_view(picture, _BLOCK, axis=1) @ _COSINES[down]
        values = sliding_window_view(values, _BLOCK, axis=2) @ _COSINES[along]
        for window, (rows, columns) in zip(np.abs(values) > _ZERO, places[::every], strict=True):
            height, width = (n - n % _BLOCK for n in window.shape)
            cut = window[:height, :width].reshape(height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK)
            busy += np.roll(cut.mean(axis=(0, 2)), (rows.start, columns.start), (0, 1))
    row, column = np.unravel_index(busy.argmin(), busy.shape)
    # Offsets that are on the grid along one axis have fewer too.
    others = np.delete(np.delete(busy, row, axis=0), column, axis=1)
    usual, missing = others.mean(), others.mean() - busy[row, column]
    clear = missing > max(_CLEAR * others.std(), _MISSING * usual)
    return float(missing / usual) if clear else 0.0


# --- octaves in other filters ---------------------------------------------------------------------


def octaves_in_bands() -> NDArray[np.float64]:
    """Share of the white noise in a band that is of each octave of a `NoiseLaw`.

    Shape (`MIXED_BANDS`, `BANDS`), rows that add up to 1.
    """
    power = _power()
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def white_in_bands() -> NDArray[np.float64]:
    """Share of white noise that is in each band, of all that the bands pass; adds up to 1."""
    power = _power().sum(axis=1)
    return np.asarray(power / power.sum())


@cache
def _power() -> NDArray[np.float64]:
    """Power of every octave that every band passes, (`MIXED_BANDS`, `BANDS`)."""
    size = 512
    frequency = np.fft.fftfreq(size)
    below = np.ones((size, size))
    passed = []
    for side in WINDOWS:
        offset = np.arange(side) - side // 2
        box = np.cos(2 * np.pi * np.outer(offset, frequency)).mean(axis=0) ** 2
        smooth = below * np.outer(box, box)
        passed.append((below - smooth) ** 2)
        below = smooth
    passed.append(below**2)
    return _by_octave(np.array(passed))


def octaves_in_filters(filters: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the white noise in small filters (N, n, n) that is of each octave.

    Shape (N, `BANDS`), rows that add up to 1.
    """
    # With an odd number no frequency lies just between two octaves.
    power = _by_octave(np.abs(np.fft.fft2(filters, s=(127, 127))) ** 2)
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def _by_octave(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum powers (N, size, size) at the frequencies of `numpy.fft.fft2` by octave, (N, `BANDS`)."""
    frequency = np.abs(np.fft.fftfreq(power.shape[-1]))
    highest = np.maximum(frequency[:, None], frequency)
    # 0.5 down to above 0.25 is the finest; the coarsest stands for all below it.
    octave = np.minimum(np.floor(-np.log2(np.maximum(2 * highest, 1e-9))).astype(int), BANDS - 1)
    return np.stack([power[:, octave == b].sum(axis=1) for b in range(BANDS)], axis=1)
