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

from cofuse.images import Pixels, Stack
from cofuse.operators import AnalysisOperator
from cofuse.patches import Positions, add_patches, take_patches

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

#: A step of this many grey levels along a seam can be seen.
_VISIBLE_STEP = 4.0

Levels = NDArray[np.float32]
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

    from cofuse.kernels.cpu import activity

    values: NDArray[Any] = activity(picture, operator)
    before = operator.patch_size // 2
    after = operator.patch_size - 1 - before
    values = cv2.copyMakeBorder(values, before, after, before, after, cv2.BORDER_REPLICATE)
    mean = cv2.blur(values, (window, window), borderType=cv2.BORDER_REPLICATE)
    return np.asarray(mean, np.float32)


def patch_activity(picture: Levels, operator: AnalysisOperator, positions: Positions) -> Levels:
    """Activity ``‖Ω W_ij I‖₁`` of the patches at ``positions``."""
    from cofuse.kernels.cpu import activity

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


def remove_small_regions(choice: Choice, smallest: int) -> Choice:
    """Give regions of fewer than ``smallest`` pixels to the nearest larger region.

    Where the choice changes the confidence becomes 0. A map of nothing but small regions stays.
    """
    import cv2

    from cofuse.kernels.cpu import region_areas

    small = region_areas(choice.index) < smallest
    if not small.any() or small.all():
        return choice
    _, nearest = cv2.distanceTransformWithLabels(
        small.astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    # OpenCV numbers the pixels of the larger regions and tells each other pixel its nearest one.
    index_of = np.zeros(int(nearest.max()) + 1, choice.index.dtype)
    index_of[nearest[~small]] = choice.index[~small]
    index = index_of[nearest]
    return Choice(index, np.where(index == choice.index, choice.confidence, np.float32(0)))


def compose(stack: Stack, frames: Iterable[Pixels], index: Indices, *, seam: int) -> Pixels:
    """Copy every pixel from its chosen frame, and blend the frames where a seam would show.

    Within a window of ``seam`` pixels frames are weighted by how often they were chosen there.
    Only where that changes a pixel by more than a few grey levels is the mixture taken: where the
    frames agree along a seam, as they mostly do, nothing has to be hidden and pixels stay copies.
    """
    import cv2

    image = np.empty(stack.shape, stack.dtype)
    blend = np.zeros(stack.shape, np.float32)
    near_seam = np.zeros(index.shape, np.bool_)
    for number, frame in enumerate(frames):
        mine = index == number
        image[mine] = frame[mine]
        votes = cv2.boxFilter(
            mine.astype(np.uint8),
            cv2.CV_32F,
            (seam, seam),
            normalize=False,
            borderType=cv2.BORDER_REPLICATE,
        )
        mixed = (votes > 0) & (votes < seam * seam)
        share = votes[mixed] / np.float32(seam * seam)
        blend[mixed] += share.reshape(-1, *[1] * (frame.ndim - 2)) * stack.to_levels(frame[mixed])
        near_seam |= mixed
    change = np.abs(blend[near_seam] - stack.to_levels(image[near_seam]))
    near_seam[near_seam] = (change if change.ndim == 1 else change.max(axis=1)) > _VISIBLE_STEP
    image[near_seam] = stack.from_levels(blend[near_seam])
    return image


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
