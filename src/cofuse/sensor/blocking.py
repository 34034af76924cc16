"""Whether frames went through a JPEG.

A JPEG rounds the coefficients of blocks of 8 x 8 pixels to multiples of steps that are large for
fine detail, so that most of them become zero: on the grid of the blocks, and nowhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Pixels, Stack

__all__ = ["jpeg_grid"]

_BLOCK = 8
#: Luminance as JPEG has it.
_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)
#: Fine coefficients that are looked at: numbers along rows and columns.
_FINE = ((7, 7), (6, 6), (5, 7), (7, 5))
#: Values below this are zero but for the rounding to bytes.
_ZERO = 0.7
#: Windows that suffice.
_MOST_WINDOWS = 16
#: Standard deviations by which one place of 64 must have fewer values that are not zero than
#: others, and the part of them that must be missing there.
_CLEAR, _MISSING = 6.0, 0.2


def jpeg_grid(stack: Stack, windows: Pixels, places: list[tuple[slice, slice]]) -> float:
    """Return which part of the fine detail of windows of a frame is missing on a grid of blocks.

    0 if there is no grid; resampling destroys it.
    """
    if min(windows.shape[1:3]) < 2 * _BLOCK:
        return 0.0
    every = -(-len(windows) // _MOST_WINDOWS)
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


def _along(picture: NDArray[np.float32], number: int, axis: int) -> NDArray[np.float32]:
    """Coefficient of the cosine transform of the eight values from every place on, on one axis."""
    count = picture.shape[axis] - _BLOCK + 1
    cosine = np.cos(np.pi * (2 * np.arange(_BLOCK) + 1) * number / (2 * _BLOCK)) / 2.0
    moved = np.moveaxis(picture, axis, 0)
    total = sum(np.float32(c) * moved[k : k + count] for k, c in enumerate(cosine))
    return np.moveaxis(np.asarray(total), 0, axis)
