"""What stands out in a frame: values unlike those around them, found without looking twice.

Most pixels are ruled out in their native type. Where little is left to see, only tiles are
looked at; what a value depends on lies within a margin of eight pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.images import Pixels, Stack

__all__ = ["ROWS", "TILE", "Box", "Levels", "noise_of", "spikes", "stand_out", "tiles"]

Levels = NDArray[np.float32]
#: A part of a frame: top, bottom, left, right; bottom and right are not part of it.
Box = tuple[int, int, int, int]

#: Robust standard deviations from which on the pixels beside a stuck one belong to it:
#: demosaicing spreads one over 3 x 3.
_BESIDE = 4.0
#: Texture counts as noise: as many times the mean excess of the pixels around.
_TEXTURE = 1.5
#: Share of its excess that the pixels beside it, or the other colours, have at most.
_SPREAD = 0.2
#: Grey levels by which it must stand out: compression makes steps of less.
_VISIBLE = 6.0
#: Rows looked at together, side of the tiles that are where little is left to see, and pixels
#: beyond that they depend on; number and rows of the strips that noise is measured on.
ROWS, TILE, _HALO, _STRIPS, _STRIP = 256, 64, 8, 12, 16
#: Types that sums of differences fit into.
_DEEP = {
    np.dtype(np.uint8): cv2.CV_16U,
    np.dtype(np.uint16): cv2.CV_32S,
    np.dtype(np.float32): cv2.CV_32F,
}


def tiles(places: NDArray[np.intp], shape: tuple[int, ...], around: int) -> list[Box]:
    """Return the tiles of a frame that lie within so many pixels of given places."""
    if not len(places):
        return []
    rows, columns = np.unravel_index(places, (*shape[:2], math.prod(shape[2:])))[:2]
    steps = (-around, around) if around else (0,)
    found = {
        pair
        for down in steps
        for right in steps
        for pair in zip(
            (np.clip(rows + down, 0, shape[0] - 1) // TILE).tolist(),
            (np.clip(columns + right, 0, shape[1] - 1) // TILE).tolist(),
            strict=True,
        )
    }
    return [
        (y * TILE, min(y * TILE + TILE, shape[0]), x * TILE, min(x * TILE + TILE, shape[1]))
        for y, x in sorted(found)
    ]


def noise_of(stack: Stack, frame: Pixels) -> Levels:
    """Noise of every channel, in grey levels of what pixels differ by from those around."""
    planes = frame.reshape(*frame.shape[:2], -1)
    starts = np.linspace(0, max(len(planes) - _STRIP, 0), _STRIPS).astype(int)
    strips = [np.abs(_excess(stack, planes[top : top + _STRIP])) for top in np.unique(starts)]
    strip = np.concatenate([part.reshape(-1, planes.shape[2]) for part in strips])
    noise = 1.4826 * np.median(strip[:: max(len(strip) // 100_000, 1)], axis=0)
    # Rounding hides noise of less than a step.
    noise += 255.0 / stack.white / 12.0**0.5 if stack.dtype.kind == "u" else 1e-3
    return np.asarray(noise, np.float32)


def _cut(frame: Pixels, box: Box) -> tuple[Pixels, int, int]:
    """Cut a box with what it depends on out of a frame; also where it lies in the cut."""
    planes = frame.reshape(*frame.shape[:2], -1)
    top, left = max(box[0] - _HALO, 0), max(box[2] - _HALO, 0)
    cut = planes[top : box[1] + _HALO, left : box[3] + _HALO]
    return cut, box[0] - top, box[2] - left


def _in_frame(
    inner: NDArray[np.bool_], box: Box, down: int, right: int, cut: Pixels, shape: tuple[int, ...]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Turn what is true in a box into flat places in the cut and in the frame."""
    rows, columns, channels = np.nonzero(inner)
    channel_count = cut.shape[2]
    here = ((rows + down) * cut.shape[1] + columns + right) * channel_count + channels
    there = ((rows + box[0]) * shape[1] + columns + box[2]) * channel_count + channels
    return here, there


def spikes(
    stack: Stack, frame: Pixels, noise: Levels, threshold: float, box: Box
) -> tuple[NDArray[np.intp], NDArray[np.int16]]:
    """Return places in a box that are spikes, and whether above (1) or below (-1).

    Nearly all pixels are ruled out in their native type, by their own excess alone.
    """
    cut, down, right = _cut(frame, box)
    values = np.ascontiguousarray(cut.astype(np.float32) if cut.dtype == np.float64 else cut)
    usual = cv2.medianBlur(values, 5).reshape(values.shape)
    size: Pixels = np.asarray(cv2.absdiff(values, usual)).reshape(values.shape)
    unit = 255.0 / stack.white
    # A little less than is asked for, against rounding.
    least = max(_VISIBLE, threshold * float(noise.min())) / unit * (1.0 - 1e-5)
    loud = size > least
    if not loud.any():
        return np.empty(0, np.intp), np.empty(0, np.int16)
    texture = _texture(size)
    # The same of the texture; whole numbers are rounded by half of one at most.
    flat = size.reshape(len(size), -1)
    factor = 72.0 / _TEXTURE / threshold * (1.0 + 1e-5)
    scaled = np.asarray(cv2.addWeighted(flat, factor, flat, 0.0, 0.0, dtype=_DEEP[size.dtype]))
    rounding = scaled.dtype.type(scaled.dtype.kind != "f")
    loud &= scaled.reshape(size.shape) + rounding > texture
    inner = loud[down : down + box[1] - box[0], right : right + box[3] - box[2]]
    here, there = _in_frame(inner, box, down, right, cut, frame.shape)
    around = texture.ravel()[here].astype(np.float32) * np.float32(_TEXTURE / 72.0)
    around = np.maximum(around, noise[here % size.shape[2]] / np.float32(unit))
    strong = size.ravel()[here].astype(np.float32) > np.float32(threshold) * around
    here, there = here[strong], there[strong]

    def excess(*index: Any) -> Levels:
        return np.asarray(stack.to_levels(values[index]) - stack.to_levels(usual[index]))

    spike = _is_spike(excess, values.shape, here)
    here, there = here[spike], there[spike]
    above = values.ravel()[here] > usual.ravel()[here]
    return there, np.where(above, 1, -1).astype(np.int16)


def _texture(size: Pixels) -> NDArray[Any]:
    """Sum of the native differences around every value, less of those beside, in a deeper type."""
    deep = _DEEP[size.dtype]
    wide, near = (
        cv2.boxFilter(size, deep, (side, side), normalize=False, borderType=cv2.BORDER_CONSTANT)
        for side in (9, 3)
    )
    return _filled_up(cv2.subtract(wide, near).reshape(size.shape))


def _filled_up(texture: NDArray[Any]) -> NDArray[Any]:
    """Scale sums at the rim, where fewer pixels lie around, to the 72 of all others, in place.

    A picture that is mirrored there would show a stuck pixel beside itself.
    """
    height, width = texture.shape[:2]
    (tall, wide), (low, narrow) = ([_within(n, reach) for n in (height, width)] for reach in (4, 1))
    upper, lower = slice(0, min(4, height)), slice(max(height - 4, 4), height)
    between, whole = slice(upper.stop, lower.start), slice(0, width)
    left, right = slice(0, min(4, width)), slice(max(width - 4, 4), width)
    for rows, columns in ((upper, whole), (lower, whole), (between, left), (between, right)):
        around = np.outer(tall[rows], wide[columns]) - np.outer(low[rows], narrow[columns])
        part = texture[rows, columns] * (72.0 / np.maximum(around, 1))[..., None]
        texture[rows, columns] = np.rint(part) if texture.dtype.kind != "f" else part
    return texture


def _within(length: int, reach: int) -> NDArray[Any]:
    """Count the places of a row that lie within reach of each of them."""
    place = np.arange(length)
    return np.minimum(place, reach) + np.minimum(place[::-1], reach) + 1


def stand_out(
    stack: Stack, frame: Pixels, noise: Levels, threshold: float, boxes: Sequence[Box]
) -> tuple[NDArray[np.intp], Levels, NDArray[np.bool_]]:
    """Return places of values unlike those around, their excess, and whether they are spikes."""
    found = []
    for box in boxes:
        cut, down, right = _cut(frame, box)
        excess = _excess(stack, cut)
        strength = _strength(excess, noise)
        inner = strength[down : down + box[1] - box[0], right : right + box[3] - box[2]] > _BESIDE
        here, there = _in_frame(inner, box, down, right, cut, frame.shape)
        spike = strength.ravel()[here] > threshold
        spike &= _is_spike(lambda *index, all=excess: all[index], excess.shape, here)
        found.append((there, excess.ravel()[here], spike))
    places, excesses, spikes = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(places)
    return places[order], excesses[order], spikes[order]


def _excess(stack: Stack, planes: Pixels) -> Levels:
    """By how many grey levels every value exceeds the median around it."""
    # A patch of 3 x 3 is less than half of 5 x 5: the median does not see it.
    values = planes.astype(np.float32) if planes.dtype == np.float64 else planes
    usual = cv2.medianBlur(np.ascontiguousarray(values), 5).reshape(planes.shape)
    return stack.to_levels(values) - stack.to_levels(usual)


def _strength(excess: Levels, noise: Levels) -> Levels:
    """Excess in standard deviations of the noise, or of the texture if that is stronger."""
    border = cv2.BORDER_CONSTANT
    size = np.abs(excess)
    wide = cv2.boxFilter(size, -1, (9, 9), normalize=False, borderType=border)
    near = cv2.boxFilter(size, -1, (3, 3), normalize=False, borderType=border)
    # Of the pixels around, but not those beside, which belong to it.
    texture = _filled_up((wide - near).reshape(size.shape))
    texture *= np.float32(_TEXTURE / 72.0)
    size /= np.maximum(texture, noise, out=texture)
    return size


def _is_spike(
    excess: Callable[..., Levels], shape: tuple[int, ...], here: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Tell whether values at flat places are visible, and of a shape that no lens makes.

    A lens spreads a point over its neighbours, in all colours. A stuck pixel of a grey sensor has
    no neighbours, one under a coloured filter is of its colour. ``excess`` gives that at an index.
    """
    rows, columns, channels = np.unravel_index(here, shape)
    size = np.abs(excess(rows, columns, channels))
    beside = np.zeros_like(size)
    for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        # At the rim the neighbour on the other side counts twice.
        inside_y = (rows + down >= 0) & (rows + down < shape[0])
        inside_x = (columns + right >= 0) & (columns + right < shape[1])
        row = np.where(inside_y, rows + down, rows - down) % shape[0]
        column = np.where(inside_x, columns + right, columns - right) % shape[1]
        beside += excess(row, column, channels) / 4.0
    alone = np.abs(beside) < _SPREAD * size
    if shape[2] == 3:
        colours = np.abs(excess(rows, columns))
        np.put_along_axis(colours, channels[:, None], 0.0, axis=1)
        alone |= colours.max(axis=1) < _SPREAD * size
    return np.asarray(alone & (size > _VISIBLE))
