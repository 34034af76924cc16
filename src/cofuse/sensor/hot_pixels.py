"""Stuck pixels of the sensor: found across the frames, replaced when a frame is read.

The scene moves through focus and the sensor does not. A pixel that differs from its neighbours by
about as much in every frame, before alignment, is stuck; a star or a speck of dust is sharp in some
frames and spread in others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images import Levels, Pixels, Stack
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["HotPixels", "find_hot_pixels", "find_outliers", "noise_of", "without_hot_pixels"]

#: Strength (see `find_outliers`) of a stuck pixel, and the factor on it where there are two frames.
_STUCK, _OF_TWO = 8.0, 2.0
#: Strength of the pixels that belong to a stuck one: demosaicing spreads it over 3 x 3 pixels.
_BESIDE = 4.0
#: Texture counts as noise of this many times the mean excess of the pixels around.
_TEXTURE = 1.5
#: Share of its excess that the neighbours of a spike, or its other colours, have at most.
_ALONE = 0.2
#: Grey levels by which a spike must stand out: compression makes steps of less.
_VISIBLE = 6.0
#: Share of the frames in which a stuck pixel stands out; smallest excess as a share of the largest.
_ALWAYS, _STEADY = 0.8, 0.5
#: A larger group of pixels is dust or a thing, not a stuck pixel.
_LARGEST_GROUP = 12
#: From this size on a group is one pixel spread by demosaicing.
_SPREAD_GROUP = 3
#: Rows that are examined together, and rows around them that they depend on.
_ROWS, _HALO = 256, 8
#: Number and rows of the strips that noise is measured on.
_STRIPS, _STRIP = 12, 16

Places = NDArray[np.intp]


@dataclass(frozen=True)
class HotPixels:
    """Stuck pixels of a sensor, hot or dead, by channel.

    Attributes
    ----------
    rows, columns, channels
        Where they are, one entry a value of a frame; the channel is 0 in grey frames.
    shape
        Shape of the frames they were found in.
    """

    rows: Places
    columns: Places
    channels: Places
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Whether every pixel is stuck in any channel, shape (H, W)."""
        mask = np.zeros(self.shape[:2], np.bool_)
        mask[self.rows, self.columns] = True
        return mask


def find_hot_pixels(
    stack: Stack, *, threshold: float = _STUCK, progress: ProgressCallback = silent
) -> HotPixels:
    """Find the pixels that stand out from their neighbours in nearly every frame.

    The frames must be as the sensor took them: not aligned, turned or made smaller. In one frame
    alone nothing is found, for nothing tells a stuck pixel from a speck. Frames are read in turn
    until no pixel is left that could be stuck, and once more if some are.

    Parameters
    ----------
    stack
        The frames.
    threshold
        Robust standard deviations by which a stuck pixel differs from the median around it.
    progress
        Called after every frame.
    """
    if not (np.isfinite(threshold) and threshold > 0):
        raise CofuseError(f"threshold is {threshold}; expected a positive number")
    count = len(stack)
    if count == 2:
        threshold *= _OF_TWO
    lasting = _lasting_spikes(stack, threshold, progress) if count > 1 else np.empty(0, np.intp)
    # Weaker outliers around the spikes tell what belongs to them, or what they belong to.
    bands = _bands(lasting, stack.shape, _LARGEST_GROUP + 1)
    found = [find_outliers(stack, frame, threshold, bands) for frame in (stack if bands else ())]
    progress(Progress("hot pixels", count, count))
    if not found:
        return HotPixels(lasting, lasting, lasting, stack.shape)
    everywhere, excess, spike = (np.concatenate(part) for part in zip(*found, strict=True))
    places, index = np.unique(everywhere, return_inverse=True)
    sign, size = np.sign(excess), np.abs(excess)
    times, spikes = (np.abs(np.bincount(index, sign * part)) for part in (1, spike))
    least, most = np.full(len(places), np.inf, np.float32), np.zeros(len(places), np.float32)
    np.minimum.at(least, index, size)
    np.maximum.at(most, index, size)
    often = times >= _ALWAYS * count
    stuck = (spikes >= _ALWAYS * count) & (least >= _STEADY * most)
    return _grouped(places[often], least[often], stuck[often], stack.shape)


def without_hot_pixels(stack: Stack, found: HotPixels) -> Stack:
    """Replace stuck pixels by the median of their good neighbours whenever a frame is read.

    The neighbours are those of the same channel within 5 x 5 pixels. All other pixels, and the
    whole stack where nothing was found, stay as they are.
    """
    if found.shape != stack.shape:
        raise CofuseError(
            f"the stuck pixels are of frames of shape {found.shape} but these are {stack.shape}"
        )
    if not len(found):
        return stack
    readers = [partial(_cleaned, stack, number, found) for number in range(len(stack))]
    return stack.made_into(readers)


def _cleaned(stack: Stack, number: int, found: HotPixels) -> Pixels:
    """Read a frame and replace its stuck pixels."""
    frame = stack[number]
    planes = frame.reshape(*frame.shape[:2], -1)
    where = found.rows, found.columns, found.channels
    steps = np.arange(-2, 3)
    rows = found.rows[:, None, None] + steps[:, None]
    columns = found.columns[:, None, None] + steps
    outside = (rows < 0) | (rows >= len(planes)) | (columns < 0) | (columns >= planes.shape[1])
    around = (
        np.clip(rows, 0, len(planes) - 1),
        np.clip(columns, 0, planes.shape[1] - 1),
        found.channels[:, None, None],
    )
    near, bad = (np.ravel_multi_index(place, planes.shape) for place in (around, where))
    outside |= np.isin(near, bad)  # of no use either
    values = np.where(outside, np.nan, planes[around].astype(np.float64))
    values = values.reshape(len(found), -1)
    good = ~np.isnan(values).all(axis=1)
    middle = np.nanmedian(values[good], axis=1)
    result = planes.copy()
    whole = frame.dtype.kind == "u"
    result[tuple(axis[good] for axis in where)] = np.rint(middle) if whole else middle
    return result.reshape(frame.shape)


def _lasting_spikes(stack: Stack, threshold: float, progress: ProgressCallback) -> Places:
    """Return places that are spikes of one sign in nearly all frames."""
    count = len(stack)
    needed = math.ceil(_ALWAYS * count)
    bands = list(range(0, stack.height, _ROWS))
    # Places from 1 on, once for every frame they are a spike in; negative if below the median.
    seen, lasting = np.empty(0, np.intp), np.empty(0, np.intp)
    with stack.ahead(stack.__getitem__, most=1) as frames:
        for number, frame in enumerate(frames):
            places, excess, spike = find_outliers(stack, frame, threshold, bands, spikes_only=True)
            now = np.where(excess > 0, places + 1, -places - 1)[spike]
            signed, times = np.unique(np.concatenate([seen, now]), return_counts=True)
            hopeful = times + (count - 1 - number) >= needed
            seen = np.repeat(signed[hopeful], times[hopeful])
            lasting = np.abs(signed[hopeful]) - 1
            progress(Progress("hot pixels", number + 1, count))
            if number >= count - needed:
                bands = _bands(lasting, stack.shape, 0)
            if not bands:
                break
    return lasting


def _bands(places: Places, shape: tuple[int, ...], reach: int) -> list[int]:
    """Return the first rows of the bands within so many rows of flat places."""
    rows = places // math.prod(shape[1:])
    near = np.concatenate([rows - reach, rows + reach])
    return sorted(set((np.clip(near, 0, shape[0] - 1) // _ROWS * _ROWS).tolist()))


def find_outliers(
    stack: Stack,
    frame: Pixels,
    threshold: float,
    bands: Sequence[int],
    *,
    spikes_only: bool = False,
) -> tuple[Places, Levels, NDArray[np.bool_]]:
    """Find the values of a frame that differ from those around them.

    The strength of a value is its excess over the median of 5 x 5 pixels, divided by the noise or,
    if that is larger, by the texture around.

    Parameters
    ----------
    stack, frame
        A frame of the stack.
    threshold
        Strength above which a value may be a spike.
    bands
        First rows of the bands of rows to examine.
    spikes_only
        Whether values that are no spikes may be left out, which is quicker.

    Returns
    -------
    places
        Flat indices of the values as strong as those beside a stuck pixel are.
    excess
        Their excess, in grey levels.
    spike
        Whether they are visible, strong, and of a shape that no lens makes.
    """
    planes = frame.reshape(*frame.shape[:2], -1)
    row_length = planes.shape[1] * planes.shape[2]
    unit = 255.0 / stack.white
    noise = noise_of(stack, planes)
    least = threshold if spikes_only else _BESIDE
    quiet = max(_VISIBLE if spikes_only else 0.0, least * float(noise.min())) / unit
    found = []
    for top in bands:
        start = max(top - _HALO, 0)
        values, usual, size = _with_median(planes[start : top + _ROWS + _HALO])
        inner = size[top - start : top - start + _ROWS]
        here = np.flatnonzero(inner > quiet) + (top - start) * row_length
        if len(here):
            texture = _texture(size).ravel()[here] * unit
            strength = size.ravel()[here] * unit
            strength /= np.maximum(texture, noise[here % planes.shape[2]])
            here, strength = here[strength > least], strength[strength > least]
            excess = stack.to_levels(values.ravel()[here]) - stack.to_levels(usual.ravel()[here])
            at = np.unravel_index(here, values.shape)
            spike = (strength > threshold) & _is_spike(values, usual, at, _VISIBLE / unit)
            found.append((here + start * row_length, excess, spike))
    if not found:
        return np.empty(0, np.intp), np.empty(0, np.float32), np.empty(0, np.bool_)
    places, excess, spike = (np.concatenate(part) for part in zip(*found, strict=True))
    return places, excess, spike


def _with_median(rows: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Return values, the medians of 5 x 5 pixels around them, and how far they are apart."""
    values = np.ascontiguousarray(rows, np.float32 if rows.dtype == np.float64 else rows.dtype)
    # A patch of 3 x 3 is less than half of 5 x 5: the median does not see it.
    usual = np.asarray(cv2.medianBlur(values, 5)).reshape(values.shape)
    return values, usual, np.asarray(cv2.absdiff(values, usual)).reshape(values.shape)


def noise_of(stack: Stack, planes: Pixels) -> Levels:
    """Robust standard deviation of the excess of every channel, (H, W, C), in grey levels."""
    starts = np.linspace(0, max(len(planes) - _STRIP, 0), _STRIPS).astype(int)
    strips = [_with_median(planes[top : top + _STRIP])[2] for top in np.unique(starts)]
    strip = np.concatenate([part.reshape(-1, planes.shape[2]) for part in strips])
    middle = np.median(strip[:: max(len(strip) // 100_000, 1)], axis=0) * (255.0 / stack.white)
    # Rounding hides noise of less than a step.
    rounding = 255.0 / stack.white / 12.0**0.5 if stack.dtype.kind == "u" else 1e-3
    return np.asarray(1.4826 * middle + rounding, np.float32)


def _texture(size: Pixels) -> Levels:
    """Mean excess of the 9 x 9 pixels around, without the inner 3 x 3, times `_TEXTURE`."""
    total, count = (
        cv2.boxFilter(plane, cv2.CV_32F, (9, 9), normalize=False, borderType=cv2.BORDER_CONSTANT)
        - cv2.boxFilter(plane, cv2.CV_32F, (3, 3), normalize=False, borderType=cv2.BORDER_CONSTANT)
        for plane in (size, np.ones(size.shape[:2], np.uint8))
    )
    # At the rim fewer pixels are around; mirrored ones would show a stuck pixel beside itself.
    return np.asarray(total.reshape(size.shape) * (_TEXTURE / np.maximum(count, 1))[..., None])


def _is_spike(
    planes: Pixels, usual: Pixels, at: tuple[Places, ...], visible: float
) -> NDArray[np.bool_]:
    """Tell whether values are visible, and of a shape that no lens makes.

    A lens spreads a point over its neighbours, in all colours. A stuck pixel of a grey sensor has
    no neighbours, one under a coloured filter is of its colour.
    """

    def excess(*index: Any) -> Levels:
        return np.asarray(planes[index].astype(np.float32) - usual[index])

    rows, columns, channels = at
    size = np.abs(excess(*at))
    # Index k + 1 is row or column k; beyond the rim they are mirrored.
    row, column = (np.pad(np.arange(n), 1, mode="reflect") for n in planes.shape[:2])
    beside = np.abs(
        excess(row[rows], columns, channels)
        + excess(row[rows + 2], columns, channels)
        + excess(rows, column[columns], channels)
        + excess(rows, column[columns + 2], channels)
    )
    alone = beside < 4.0 * _ALONE * size
    if planes.shape[2] == 3:
        colours = np.abs(excess(rows, columns))
        np.put_along_axis(colours, channels[:, None], 0.0, axis=1)
        alone |= colours.max(axis=1) < _ALONE * size
    return np.asarray(alone & (size > visible))


def _grouped(
    places: Places, excess: Levels, stuck: NDArray[np.bool_], shape: tuple[int, ...]
) -> HotPixels:
    """Join neighbours to groups and keep the small groups with a stuck pixel in them.

    Where pixels beside the largest belong to it, all 3 x 3 around it are kept: what demosaicing
    spreads to the corners is too faint to stand out, not to be seen.
    """
    volume = (*shape[:2], math.prod(shape[2:]))
    rows, columns, channels = np.unravel_index(places, volume)
    found = np.zeros(volume if stuck.any() else (0, 0, 0), np.uint8)
    for channel in range(found.shape[2]):
        mine = channels == channel
        y, x = rows[mine], columns[mine]
        mask = np.zeros(shape[:2], np.uint8)
        mask[y, x] = 1
        groups, labels = cv2.connectedComponents(mask, connectivity=8)
        label = labels[y, x]
        sizes = np.bincount(label, minlength=groups)
        small = np.bincount(label, weights=stuck[mine], minlength=groups) > 0
        small &= sizes <= _LARGEST_GROUP
        largest = np.zeros(groups, np.float32)
        np.maximum.at(largest, label, excess[mine])
        spread = small[label] & (sizes[label] >= _SPREAD_GROUP) & (excess[mine] == largest[label])
        mask[:] = 0
        mask[y[spread], x[spread]] = 1
        mask = np.asarray(cv2.dilate(mask, np.ones((3, 3), np.uint8)))
        mask[y[small[label]], x[small[label]]] = 1
        found[..., channel] = mask
    rows, columns, channels = np.nonzero(found)
    return HotPixels(rows, columns, channels, shape)
