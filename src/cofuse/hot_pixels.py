"""Pixels of the sensor that are stuck: found across the frames, replaced as frames are read.

The scene moves through focus and the sensor does not. What stands out from its neighbours by as
much in every frame, before alignment, is the sensor's; a star or a speck of dust is sharp in some
frames and spread in others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images import Pixels, Stack
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["HotPixels", "find_hot_pixels", "without_hot_pixels"]

Levels = NDArray[np.float32]

#: Robust standard deviations from the neighbours' median at which a pixel is stuck, and at which
#: the pixels beside it belong to it: demosaicing spreads one over 3 x 3.
_STUCK, _BESIDE = 8.0, 4.0
#: With two frames there is little to tell by: so many times more is asked.
_OF_TWO = 2.0
#: Share of the frames in which it must stand out, and of its largest excess that the smallest is.
_ALWAYS, _STEADY = 0.8, 0.5
#: Texture counts as noise: as many times the mean excess of the pixels around.
_TEXTURE = 1.5
#: Share of its excess that the pixels beside it, or the other colours, have at most.
_SPREAD = 0.2
#: Grey levels by which it must stand out: compression makes steps of less.
_VISIBLE = 6.0
#: Rows looked at together, rows beyond that they depend on; number and rows of the strips that
#: noise is measured on.
_ROWS, _HALO, _STRIPS, _STRIP = 256, 8, 12, 16
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
    alone nothing is found, for nothing tells a stuck pixel from a speck. Each frame is read once;
    what is kept does not grow with their number.

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
    misses = int(count * (1.0 - _ALWAYS))
    places = np.empty(0, np.intp)
    tally = np.empty(0, _TALLY)
    for number, frame in enumerate(stack) if count > 1 else ():
        now, excess, spike = _stand_out(stack, frame, threshold)
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
        progress(Progress("hot pixels", number + 1, count))
    often = np.abs(tally["times"]) >= _ALWAYS * count
    stuck = np.abs(tally["spikes"]) >= _ALWAYS * count
    stuck &= tally["least"] >= _STEADY * tally["most"]
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
    return Stack(readers, white=stack.white, names=stack.names)


def _cleaned(stack: Stack, number: int, found: HotPixels) -> Pixels:
    """Read a frame and replace its stuck pixels."""
    frame = stack[number]
    planes = frame.reshape(*frame.shape[:2], -1)
    bad = np.zeros(planes.shape, np.bool_)
    where = found.rows, found.columns, found.channels
    bad[where] = True
    steps = np.arange(-2, 3)
    rows = found.rows[:, None, None] + steps[:, None]
    columns = found.columns[:, None, None] + steps
    outside = (rows < 0) | (rows >= len(planes)) | (columns < 0) | (columns >= planes.shape[1])
    around = (
        np.clip(rows, 0, len(planes) - 1),
        np.clip(columns, 0, planes.shape[1] - 1),
        found.channels[:, None, None],
    )
    values = np.where(outside | bad[around], np.nan, planes[around].astype(np.float64))
    values = values.reshape(len(found), -1)
    good = ~np.isnan(values).all(axis=1)
    middle = np.nanmedian(values[good], axis=1)
    result = planes.copy()
    whole = frame.dtype.kind == "u"
    result[tuple(axis[good] for axis in where)] = np.rint(middle) if whole else middle
    return result.reshape(frame.shape)


def _stand_out(
    stack: Stack, frame: Pixels, threshold: float
) -> tuple[NDArray[np.intp], Levels, NDArray[np.bool_]]:
    """Return places of values unlike those around, their excess, and whether they are spikes."""
    planes = frame.reshape(*frame.shape[:2], -1)
    starts = np.linspace(0, max(len(planes) - _STRIP, 0), _STRIPS).astype(int)
    strips = [np.abs(_excess(stack, planes[top : top + _STRIP])) for top in np.unique(starts)]
    strip = np.concatenate([part.reshape(-1, planes.shape[2]) for part in strips])
    noise = 1.4826 * np.median(strip[:: max(len(strip) // 100_000, 1)], axis=0)
    # Rounding hides noise of less than a step.
    noise += 255.0 / stack.white / 12.0**0.5 if stack.dtype.kind == "u" else 1e-3
    found = []
    for top in range(0, len(planes), _ROWS):
        first = max(top - _HALO, 0)
        excess = _excess(stack, planes[first : top + _ROWS + _HALO])
        strength = _strength(excess, noise.astype(np.float32))
        inner = strength[top - first : top - first + _ROWS] > _BESIDE
        here = np.flatnonzero(inner) + (top - first) * planes[0].size
        spike = (strength.ravel()[here] > threshold) & _is_spike(excess, here)
        found.append((here + first * planes[0].size, excess.ravel()[here], spike))
    places, excesses, spikes = (np.concatenate(part) for part in zip(*found, strict=True))
    return places, excesses, spikes


def _excess(stack: Stack, planes: Pixels) -> Levels:
    """By how many grey levels every value exceeds the median around it."""
    import cv2

    # A patch of 3 x 3 is less than half of 5 x 5: the median does not see it.
    values = planes.astype(np.float32) if planes.dtype == np.float64 else planes
    usual = cv2.medianBlur(np.ascontiguousarray(values), 5).reshape(planes.shape)
    return stack.to_levels(values) - stack.to_levels(usual)


def _strength(excess: Levels, noise: Levels) -> Levels:
    """Excess in standard deviations of the noise, or of the texture if that is stronger."""
    import cv2

    border = cv2.BORDER_REFLECT
    size = np.abs(excess)
    wide = cv2.boxFilter(size, -1, (9, 9), normalize=False, borderType=border)
    near = cv2.boxFilter(size, -1, (3, 3), normalize=False, borderType=border)
    # Of the pixels around, but not those beside, which belong to it.
    texture = (wide - near).reshape(size.shape)
    texture *= np.float32(_TEXTURE / 72.0)
    size /= np.maximum(texture, noise, out=texture)
    return size


def _is_spike(excess: Levels, here: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell whether values at flat places are visible, and of a shape that no lens makes.

    A lens spreads a point over its neighbours, in all colours. A stuck pixel of a grey sensor has
    no neighbours, one under a coloured filter is of its colour.
    """
    rows, columns, channels = np.unravel_index(here, excess.shape)
    size = np.abs(excess[rows, columns, channels])
    beside = np.zeros_like(size)
    for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        # At the rim the neighbour on the other side counts twice.
        inside_y = (rows + down >= 0) & (rows + down < excess.shape[0])
        inside_x = (columns + right >= 0) & (columns + right < excess.shape[1])
        row = np.where(inside_y, rows + down, rows - down) % excess.shape[0]
        column = np.where(inside_x, columns + right, columns - right) % excess.shape[1]
        beside += excess[row, column, channels] / 4.0
    alone = np.abs(beside) < _SPREAD * size
    if excess.shape[2] == 3:
        colours = np.abs(excess[rows, columns])
        np.put_along_axis(colours, channels[:, None], 0.0, axis=1)
        alone |= colours.max(axis=1) < _SPREAD * size
    return alone & (size > _VISIBLE)


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
