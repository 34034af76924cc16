"""Pixels of the sensor that are stuck: found across the frames, replaced as frames are read.

The scene moves through focus and the sensor does not. What stands out from its neighbours by as
much in every frame, before alignment, is the sensor's; a star or a speck of dust is sharp in some
frames and spread in others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images import Pixels, Stack
from cofuse.progress import Progress, ProgressCallback, silent
from cofuse.sensor.outliers import ROWS, TILE, Levels, noise_of, spikes, stand_out, tiles

__all__ = ["HotPixels", "find_hot_pixels", "without_hot_pixels"]

#: Robust standard deviations from the neighbours' median at which a pixel is stuck.
_STUCK = 8.0
#: With two frames there is little to tell by: so many times more is asked.
_OF_TWO = 2.0
#: Share of the frames in which it must stand out, and of its largest excess that the smallest is.
_ALWAYS, _STEADY = 0.8, 0.5
#: Share of the tiles from which on all is looked at instead.
_MANY_TILES = 0.25
#: What is kept of a place: times it stood out, above less below, and as a spike; its excess.
_TALLY = np.dtype(
    [("times", np.float32), ("spikes", np.float32), ("least", np.float32), ("most", np.float32)]
)
#: A larger group of pixels is dust or a thing, not a stuck pixel.
_LARGEST_GROUP = 12
#: From this size on a group is one pixel spread by demosaicing.
_SPREAD_GROUP = 3


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

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    channels: NDArray[np.intp]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Tell for every pixel whether it is stuck in any channel, shape (H, W)."""
        mask = np.zeros(self.shape[:2], np.bool_)
        mask[self.rows, self.columns] = True
        return mask


def find_hot_pixels(
    stack: Stack, *, threshold: float = _STUCK, progress: ProgressCallback = silent
) -> HotPixels:
    """Find the pixels that stand out from their neighbours in nearly every frame.

    The frames must be as the sensor took them: not aligned, turned or made smaller. In one frame
    alone nothing is found, for nothing tells a stuck pixel from a speck. Frames are read in turn
    until no pixel is left that could be stuck, and once more if some are; what is kept does not
    grow with their number.

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
    # A place that is missed in more frames than this cannot be stuck.
    misses = count - math.ceil(_ALWAYS * count)
    nothing = np.empty(0, np.intp)
    lasting = _lasting_spikes(stack, threshold, misses, progress) if count > 1 else nothing
    # All that stands out around them, which tells what belongs to them, or they to.
    boxes = tiles(lasting, stack.shape, _LARGEST_GROUP + 1)
    places, tally = nothing, np.empty(0, _TALLY)
    for number, frame in enumerate(stack if boxes else ()):
        now, excess, spike = stand_out(stack, frame, noise_of(stack, frame), threshold, boxes)
        if number <= misses:
            known = np.union1d(places, now)
            larger = np.zeros(len(known), _TALLY)
            larger["least"] = np.inf
            larger[np.searchsorted(known, places)] = tally
            places, tally = known, larger
        else:
            old = np.isin(now, places, assume_unique=True)
            now, excess, spike = now[old], excess[old], spike[old]
        rows = np.searchsorted(places, now)
        tally["times"][rows] += np.sign(excess)
        tally["spikes"][rows] += np.sign(excess) * spike
        tally["least"][rows] = np.minimum(tally["least"][rows], np.abs(excess))
        tally["most"][rows] = np.maximum(tally["most"][rows], np.abs(excess))
    progress(Progress("hot pixels", count, count))
    often = np.abs(tally["times"]) >= _ALWAYS * count
    stuck = np.abs(tally["spikes"]) >= _ALWAYS * count
    stuck &= tally["least"] >= _STEADY * tally["most"]
    if not stuck.any():
        return HotPixels(nothing, nothing, nothing, stack.shape)
    return _grouped(places[often], tally["least"][often], stuck[often], stack.shape)


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


def _lasting_spikes(
    stack: Stack, threshold: float, misses: int, progress: ProgressCallback
) -> NDArray[np.intp]:
    """Return places that are spikes, of one sign, in all frames but ``misses`` at most.

    The first frames are looked at whole. Few of their spikes are any in the next frame, and soon
    there is nothing left to look at.
    """
    count, height, width = len(stack), stack.height, stack.width
    whole = [(top, min(top + ROWS, height), 0, width) for top in range(0, height, ROWS)]
    most_tiles = _MANY_TILES * height * width / TILE**2
    places, times = np.empty(0, np.intp), np.empty(0, np.int16)
    boxes = whole
    with stack.ahead(stack.__getitem__, most=1) as frames:
        for number, frame in enumerate(frames):
            noise = noise_of(stack, frame)
            found = [spikes(stack, frame, noise, threshold, box) for box in boxes]
            now, sign = (np.concatenate(part) for part in zip(*found, strict=True))
            order = np.argsort(now)
            now, sign = now[order], sign[order]
            if number <= misses:
                known = np.union1d(places, now)
                larger = np.zeros(len(known), np.int16)
                larger[np.searchsorted(known, places)] = times
                places, times = known, larger
            else:
                old = np.isin(now, places, assume_unique=True)
                now, sign = now[old], sign[old]
            times[np.searchsorted(places, now)] += sign
            hopeful = np.abs(times) + (count - 1 - number) >= count - misses
            places, times = places[hopeful], times[hopeful]
            progress(Progress("hot pixels", number + 1, count))
            if number >= misses:
                boxes = tiles(places, stack.shape, 0)
                boxes = whole if len(boxes) > most_tiles else boxes
            if not boxes:
                break
    return places


def _grouped(
    places: NDArray[np.intp], excess: Levels, stuck: NDArray[np.bool_], shape: tuple[int, ...]
) -> HotPixels:
    """Join neighbours to groups and keep the small groups with a stuck pixel in them.

    Where pixels beside the largest belong to it, all 3 x 3 around it are kept: what demosaicing
    spreads to the corners is too faint to stand out, not to be seen.
    """
    import cv2

    volume = (*shape[:2], shape[2] if len(shape) == 3 else 1)
    rows, columns, channels = np.unravel_index(places, volume)
    found = np.zeros(volume, np.uint8)
    for channel in range(volume[2]):
        mine = channels == channel
        y, x, certain = rows[mine], columns[mine], stuck[mine]
        mask = np.zeros(shape[:2], np.uint8)
        mask[y, x] = 1
        groups, labels = cv2.connectedComponents(mask, connectivity=8)
        label = labels[y, x]
        sizes = np.bincount(label, minlength=groups)
        small = np.bincount(label, weights=certain, minlength=groups) > 0
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
