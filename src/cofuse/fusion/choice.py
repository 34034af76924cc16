"""Which frame is sharp where: activity under Ω, the choice, its clean-up, its confidence.

Frames are offered one after the other; only the two largest activities and the index of the
first are kept, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Levels, Pixels, Stack
from cofuse.images.bands import REACH, WINDOWS, blurred, split
from cofuse.operators import AnalysisOperator
from cofuse.operators.patches import Positions, add_patches, take_patches
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = [
    "Choice",
    "choose",
    "compose",
    "gather_patches",
    "patch_activity",
    "patch_votes",
    "remove_small_regions",
    "window_activity",
]

#: Rows around a band in which the nearest large region is looked for at first.
_FILL_REACH = 128
#: Sides of the boxes, each passed twice, that blend a choice in the bands of a mixture: as wide as
#: the finest detail in each. The finest band is not blended, lest it be averaged away where the
#: choice changes from pixel to pixel.
_BLENDS = (1, *WINDOWS)

Indices = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Choice:
    """For every place the chosen frame's index and how clear the choice was, 0 to 1."""

    index: Indices
    confidence: Levels


def choose(activities: Iterable[Levels]) -> Choice:
    """Choose the frame with the largest activity at every place; the earlier one on a tie.

    The confidence is ``1 − second / first``: 0 for a tie or where nothing is active at all.
    """
    offers = iter(activities)
    first = np.array(next(offers), np.float32)
    second = np.zeros_like(first)
    index = np.zeros(first.shape, np.uint16)
    count = 1
    for frame, activity in enumerate(offers, start=1):
        better = activity > first
        second = np.where(better, first, np.maximum(second, activity))
        first = np.where(better, activity, first)
        index[better] = frame
        count += 1
    confidence = 1.0 - second / np.where(first > 0, first, 1.0)
    confidence[first <= 0] = 1.0 if count == 1 else 0.0
    narrow = index.astype(np.uint8) if count <= 256 else index
    return Choice(narrow, confidence.astype(np.float32))


def window_activity(picture: Levels, operator: AnalysisOperator, *, window: int) -> Levels:
    """Activity at every pixel: the mean over a window of the patches' ``‖Ω W_ij I‖₁``.

    A patch stands at its centre; the borders repeat the outermost patches.
    """
    import cv2

    from cofuse.operators.cpu import activity

    values: NDArray[Any] = activity(picture, operator)
    before = operator.patch_size // 2
    after = operator.patch_size - 1 - before
    values = cv2.copyMakeBorder(values, before, after, before, after, cv2.BORDER_REPLICATE)
    mean = cv2.blur(values, (window, window), borderType=cv2.BORDER_REPLICATE)
    return np.asarray(mean, np.float32)


def patch_activity(picture: Levels, operator: AnalysisOperator, positions: Positions) -> Levels:
    """Activity ``‖Ω W_ij I‖₁`` of the patches at ``positions``."""
    from cofuse.operators.cpu import activity

    return activity(picture, operator)[np.ix_(*positions)]


def gather_patches(
    frames: Iterable[Levels], index: Indices, patch_size: int, positions: Positions
) -> Levels:
    """Take every patch from its chosen frame, shape (planes, n², patches).

    ``frames`` have shape (H, W, planes) and pass one at a time.
    """
    chosen_frame = index.ravel()
    gathered: Levels | None = None
    for number, frame in enumerate(frames):
        if gathered is None:
            gathered = np.empty((frame.shape[-1], patch_size**2, chosen_frame.size), np.float32)
        mine = chosen_frame == number
        if mine.any():
            for plane in range(frame.shape[-1]):
                patches = take_patches(frame[..., plane], patch_size, positions)
                gathered[plane][:, mine] = patches[:, mine]
    assert gathered is not None, "a stack has at least one frame"
    return gathered


def remove_small_regions(choice: Choice, smallest: int, *, band: int = 1024) -> Choice:
    """Give regions of fewer than ``smallest`` pixels to the nearest larger region.

    Where the choice changes the confidence becomes 0. A map of nothing but small regions stays.
    ``band`` is how many rows are filled at a time.
    """
    from cofuse.operators.cpu import region_areas

    small = region_areas(choice.index) < smallest
    if small.all() or not small.any():
        return choice
    index = _filled(choice.index, small, band)
    confidence = choice.confidence.copy()
    confidence[index != choice.index] = 0
    return Choice(index, confidence)


def _filled(index: Indices, small: NDArray[np.bool_], band: int) -> Indices:
    """Give every small place the index of the nearest other one."""
    import cv2

    filled = index.copy()
    reach = _FILL_REACH
    for start in range(0, len(index), band):
        rows = slice(start, min(start + band, len(index)))
        if not small[rows].any():
            continue
        while True:
            around, inner = _widened(rows, reach, len(index))
            here = small[around]
            distance, nearest = cv2.distanceTransformWithLabels(
                here.astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
            )
            # Nothing beyond the reach can be nearer than what was found within half of it.
            if reach >= len(index) or 2 * distance[inner].max() < reach - 4:
                break
            reach *= 2
        # OpenCV numbers the large regions' pixels and gives each small one its nearest's number.
        index_of = np.zeros(int(nearest.max()) + 1, index.dtype)
        index_of[nearest[~here]] = index[around][~here]
        filled[rows] = index_of[nearest[inner]]
    return filled


def compose(
    stack: Stack, index: Indices, *, band: int = 256, progress: ProgressCallback = silent
) -> Pixels:
    """Mix the chosen frames, blending one into the other as widely as the detail in each band.

    Far from borders of the choice the pixels are those of the chosen frame. ``band`` is how many
    rows are worked on at a time: floats of a whole picture take much memory.
    """
    image = np.empty(stack.shape, stack.dtype)
    readers = [stack.part_reader(number) for number in range(len(stack))]
    height, columns = len(index), slice(0, stack.width)
    for start in range(0, height, band):
        rows = slice(start, min(start + band, height))
        around, inner = _widened(rows, 2 * (_BLENDS[-1] // 2), height)
        near, made = _widened(rows, REACH, height)
        chosen = index[around]
        mixture = np.zeros((rows.stop - rows.start, *stack.shape[1:]), np.float32)
        for number in np.unique(chosen):
            mine = (chosen == number).astype(np.float32)
            bands = split(stack.to_levels(readers[number](near, columns)))
            for side, detail in zip(_BLENDS, bands, strict=True):
                weights = blurred(blurred(mine, side), side)[inner]
                mixture += detail[made] * (weights if detail.ndim == 2 else weights[..., None])
        image[rows] = stack.from_levels(mixture)
        progress(Progress("composition", rows.stop, height))
    return image


def _widened(rows: slice, reach: int, height: int) -> tuple[slice, slice]:
    """Rows with up to ``reach`` more on either side, and where the rows lie in these."""
    top = max(rows.start - reach, 0)
    return slice(top, min(rows.stop + reach, height)), slice(rows.start - top, rows.stop - top)


def patch_votes(
    choice: Choice, frames: int, patch_size: int, shape: tuple[int, int], positions: Positions
) -> Choice:
    """Turn a choice of patches into one of pixels: the frame most covering patches chose."""

    def votes(values: NDArray[Any]) -> Levels:
        spread = np.broadcast_to(values.ravel(), (patch_size**2, values.size))
        return add_patches(spread.astype(np.float32), shape, positions)

    majority = choose(votes(choice.index == k) for k in range(frames))
    confidence = votes(choice.confidence) / votes(np.ones_like(choice.confidence))
    return Choice(majority.index, confidence)
