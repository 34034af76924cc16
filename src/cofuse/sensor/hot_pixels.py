"""Stuck pixels of the sensor: found across the frames, replaced when a frame is read.

Before alignment, a stuck pixel differs from its neighbours by about as much in every frame. A star
or a speck of dust is sharp in some frames and spread in others. In one frame a stuck pixel is a
*spike*: its excess over the median of 5 x 5 pixels is a multiple of the noise and of the texture
around it, and has a shape that no lens makes.
"""

from __future__ import annotations

import math
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.images import Levels, Pixels, Stack
from cofuse.progress import Progress, ProgressCallback, silent

#: Robust standard deviations of a spike, and of the pixels beside it that belong to it: demosaicing
#: spreads it over 3 x 3 pixels.
_STUCK, _BESIDE = 8.0, 4.0
#: Detail that is sharp in fewer frames than this cannot be told from a stuck pixel.
_FEWEST_FRAMES = 3
#: Texture counts as noise of this many times the mean excess of the pixels around.
_TEXTURE = 1.5
#: Share of its excess that the neighbours of a spike, or its other colours, have at most.
_ALONE = 0.2
#: Grey levels by which a spike must stand out: compression makes steps of less.
_VISIBLE = 6.0
#: Share of the frames in which a stuck pixel is a spike; least share of its largest excess in them.
_ALWAYS, _STEADY = 0.8, 0.5
#: Pixels with this share of a stuck pixel's excess belong to it if they are connected. They are a
#: thing in the scene if they reach this far; this many or more were spread by demosaicing.
_BELONGS, _REACH, _SPREAD = 0.1, 3, 3
#: Rows and columns of the four neighbours in such a window.
_CROSS = (
    slice(None),
    [_REACH - 1, _REACH + 1, _REACH, _REACH],
    [_REACH, _REACH, _REACH - 1, _REACH + 1],
)
#: Rows that are examined together, and rows around them that they depend on.
_ROWS, _HALO = 256, 8
#: Number and rows of the strips that noise is measured on.
_STRIPS, _STRIP = 12, 16

Places = NDArray[np.intp]


def find_hot_pixels(stack: Stack, *, progress: ProgressCallback = silent) -> Places:
    """Find the pixels that stand out from their neighbours in nearly every frame, hot or dead.

    The frames must be as the sensor took them: not aligned, turned or made smaller. In one or two
    frames nothing is found. Frames are read in turn until no pixel is left that could be stuck.
    Returns row, column and channel (0 in grey frames) of every stuck value, shape (N, 3).
    """
    count = len(stack)
    needed = math.ceil(_ALWAYS * count)
    # A place that is no spike in any of the first frames cannot be one in enough of all.
    first = count - needed + 1
    # For every place that may be stuck the frames in which it is a spike, and its windows there.
    seen: dict[int, list[tuple[int, Levels]]] = {}
    numbers = range(count if count >= _FEWEST_FRAMES else 0)
    with stack.ahead(stack.__getitem__, numbers, most=1) as frames:
        for done, frame in enumerate(frames, 1):
            known = np.array(sorted(seen), np.intp) if done > first else None
            for place, window in zip(*find_spikes(stack, frame, among=known), strict=True):
                seen.setdefault(int(place), []).append((done, window))
            seen = {p: own for p, own in seen.items() if len(own) + count - done >= needed}
            progress(Progress("hot pixels", done, count))
            if done >= first and not seen:
                break
    progress(Progress("hot pixels", count, count))
    volume = (*stack.shape[:2], math.prod(stack.shape[2:]))
    stuck = [np.empty((0, 3), np.intp)]
    for place, own in seen.items():
        excess = np.array([window[_REACH, _REACH] for _, window in own])
        offsets = _belonging(excess, np.stack([window for k, window in own if k > first]))
        stuck.append(np.pad(offsets, ((0, 0), (0, 1))) + np.unravel_index(place, volume))
    every = np.unique(np.concatenate(stuck), axis=0)
    return every[((every >= 0) & (every < volume)).all(axis=1)]


def _belonging(excess: Levels, windows: Levels) -> Places:
    """Find which pixels of windows are stuck: rows and columns from the middle, (pixels, 2)."""
    none = np.empty((0, 2), np.intp)
    least, most = excess.min(), excess.max()
    if min(least / most, most / least) < _STEADY:  # negative if they differ in sign
        return none
    window = np.median(windows, axis=0)
    window /= window[_REACH, _REACH]
    labels = cv2.connectedComponents((window > _BELONGS).astype(np.uint8), connectivity=8)[1]
    group = labels == labels[_REACH, _REACH]
    if window[group].max() > 1 or group[1:-1, 1:-1].sum() < group.sum():
        return none  # it belongs to another, or to a thing
    if group.sum() >= _SPREAD:
        # What demosaicing spreads to the corners is too faint to stand out, not to be seen.
        group[_REACH - 1 : _REACH + 2, _REACH - 1 : _REACH + 2] = True
    return np.argwhere(group) - _REACH


def find_spikes(
    stack: Stack, frame: Pixels, threshold: float = _STUCK, among: Places | None = None
) -> tuple[Places, Levels]:
    """Find the spikes of a frame, above a threshold in standard deviations.

    A lens spreads a point over its neighbours, in all colours. A stuck pixel of a grey sensor
    stands alone; one under a coloured filter has but that colour. With sorted places to look
    ``among``, no others are found.

    Returns
    -------
    places, windows
        Flat indices, and the excess of the 7 x 7 pixels around each in grey levels, 0 where it is
        within noise and texture.
    """
    planes = frame.reshape(*frame.shape[:2], -1)
    unit = np.float32(255.0 / stack.white)
    noise = noise_of(stack, planes)
    quiet = max(_VISIBLE, threshold * float(noise.min())) / unit
    side = 2 * _REACH + 1
    found = [(np.empty(0, np.intp), np.empty((0, side, side), np.float32))]
    for top in range(0, len(planes), _ROWS):
        start = max(top - _HALO, 0)
        values, usual, size = _with_median(planes[start : top + _ROWS + _HALO])
        before, row_length = top - start, size[0].size
        here = before * row_length + np.flatnonzero(size[before : before + _ROWS] > quiet)
        if among is not None:
            first, last = np.searchsorted(among, [top * row_length, (top + _ROWS) * row_length])
            here = here[np.isin(here, among[first:last] - start * row_length)]
        if not len(here):
            continue
        at = np.unravel_index(here, size.shape)
        scatter = np.maximum(_texture(size, at) * unit, noise[at[2]])
        strong = size[at] * unit > threshold * scatter
        at, scatter = tuple(axis[strong] for axis in at), scatter[strong]
        around, inside = _around(at, size.shape, _REACH)
        excess = np.where(inside, values[around].astype(np.float32) - usual[around], 0)
        least = _ALONE * np.abs(excess[:, _REACH, _REACH])
        alone = np.abs(excess[_CROSS].sum(axis=1)) < least * inside[_CROSS].sum(axis=1)
        if planes.shape[2] == 3:
            colours = np.abs(values[at[:2]].astype(np.float32) - usual[at[:2]])
            np.put_along_axis(colours, at[2][:, None], 0.0, axis=1)
            alone |= colours.max(axis=1) < least
        window = excess[alone] * unit
        window[np.abs(window) < _BESIDE * scatter[alone][:, None, None]] = 0
        found.append((here[strong][alone] + start * row_length, window))
    places, windows = (np.concatenate(part) for part in zip(*found, strict=True))
    return places, windows


def _around(
    at: tuple[Places, ...], shape: tuple[int, ...], reach: int
) -> tuple[tuple[Places, ...], NDArray[np.bool_]]:
    """Return indices of squares around places, (places, side, side), and which are in the picture.

    Indices beyond its rim are replaced by indices inside it.
    """
    steps = np.arange(-reach, reach + 1)
    rows, columns = at[0][:, None, None] + steps[:, None], at[1][:, None, None] + steps
    inside = (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
    return (np.where(inside, rows, 0), np.where(inside, columns, 0), at[2][:, None, None]), inside


def _with_median(rows: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Return values, the medians of 5 x 5 pixels around them, and how far they are apart."""
    values = np.ascontiguousarray(rows, np.float32 if rows.dtype == np.float64 else rows.dtype)
    # A patch of 3 x 3 is less than half of 5 x 5: the median does not see it.
    usual = np.asarray(cv2.medianBlur(values, 5)).reshape(values.shape)
    return values, usual, np.asarray(cv2.absdiff(values, usual)).reshape(values.shape)


def noise_of(stack: Stack, planes: Pixels) -> Levels:
    """Robust standard deviation of the excess of every channel, (H, W, C), in grey levels."""
    tops = np.unique(np.linspace(0, max(len(planes) - _STRIP, 0), _STRIPS).astype(int))
    strips = [_with_median(planes[top : top + _STRIP])[2] for top in tops]
    strip = np.concatenate([part.reshape(-1, planes.shape[2]) for part in strips])
    middle = np.median(strip[:: max(len(strip) // 100_000, 1)], axis=0) * (255.0 / stack.white)
    # Rounding hides noise of less than a step.
    rounding = 255.0 / stack.white / 12.0**0.5 if stack.dtype.kind == "u" else 1e-3
    return np.asarray(1.4826 * middle + rounding, np.float32)


def _texture(size: Pixels, at: tuple[Places, ...]) -> Levels:
    """Mean excess of the 9 x 9 pixels around places, without the inner 3 x 3, times `_TEXTURE`."""
    total, count = np.zeros((2, len(at[0])), np.float32)
    inside, border = np.ones(size.shape[:2], np.float32), cv2.BORDER_CONSTANT
    for side, sign in ((9, 1), (3, -1)):
        sums = cv2.boxFilter(size, cv2.CV_32F, (side, side), normalize=False, borderType=border)
        # At the rim fewer pixels are around; mirrored ones would show a stuck pixel beside itself.
        there = cv2.boxFilter(inside, -1, (side, side), normalize=False, borderType=border)
        total += sign * np.asarray(sums).reshape(size.shape)[at]
        count += sign * np.asarray(there)[at[:2]]
    return np.asarray(total * (_TEXTURE / np.maximum(count, 1)))


def without_hot_pixels(stack: Stack, found: Places) -> Stack:
    """Replace stuck pixels by the median of their good neighbours whenever a frame is read.

    The neighbours are those of the same channel within 5 x 5 pixels. All other pixels stay as they
    are.
    """
    if not len(found):
        return stack
    readers = [partial(_mended, stack, number, found) for number in range(len(stack))]
    return stack.made_into(readers)


def _mended(stack: Stack, number: int, found: Places) -> Pixels:
    """Read a frame and replace its stuck pixels."""
    frame = stack[number]
    planes = frame.reshape(*frame.shape[:2], -1).copy()
    stuck = tuple(found.T)
    around, inside = _around(stuck, planes.shape, 2)
    near, own = (np.ravel_multi_index(place, planes.shape) for place in (around, stuck))
    use = inside & ~np.isin(near, own)
    values = np.where(use, planes[around].astype(np.float64), np.nan).reshape(len(found), -1)
    good = ~np.isnan(values).all(axis=1)
    middle = np.nanmedian(values[good], axis=1)
    if frame.dtype.kind == "u":
        middle = np.rint(middle)
    planes[tuple(axis[good] for axis in stuck)] = middle
    return planes.reshape(frame.shape)
