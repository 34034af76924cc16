"""Which frame is sharp where: activity under Ω, the choice, its clean-up, its confidence.

Frames are offered one after the other; only the two largest activities and the index of the
first are kept, so that memory does not grow with their number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Pixels, Stack, luminance
from cofuse.operators import AnalysisOperator
from cofuse.patches import Positions, add_patches, take_patches

__all__ = [
    "Choice",
    "choose",
    "compose",
    "compose_with",
    "gather_patches",
    "patch_activity",
    "patch_votes",
    "picture_scale",
    "reduce",
    "remove_small_regions",
    "spread_choice",
    "window_activity",
]

#: A step of this many grey levels along a seam can be seen.
_VISIBLE_STEP = 4.0

#: Along so many pixels at the picture's rim, choices of more than this confidence stay.
_RIM = 4
_SURE = 0.9
#: Small regions that make up more than this share of a window are no specks, unless of so few
#: pixels.
_CROWD, _CROWDED, _TINY = (65, 65), 0.3, 16

#: Where squared differences of neighbours grow by more than this factor when the picture is
#: halved, it holds nothing at its finest scale. A ramp, with no detail at all, grows by 4; 40
#: training pictures by 0.9 to 2.2, enlarged twice by 2.7 to 3.3 and four times by 3.4 to 3.7.
_EMPTY = 2.8
#: Side of the parts of a picture that are looked at for it.
_PART = 256

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


def remove_small_regions(choice: Choice, smallest: int, *, only_specks: bool = False) -> Choice:
    """Give regions of fewer than ``smallest`` pixels to the nearest larger region.

    With ``only_specks`` it takes more than being small. Regions stay that lie among others like
    them, for such is the scene, except for the tiniest; and along the rim of the picture confident
    ones stay, for blur that reaches beyond the picture leaves narrow strips there that are right in
    one frame only. Where the choice changes the confidence becomes 0. A map of nothing but small
    regions stays.
    """
    import cv2

    from cofuse.kernels.cpu import region_areas

    areas = region_areas(choice.index)
    small = areas < smallest
    if small.all():
        return choice
    if only_specks:
        sure = choice.confidence > _SURE
        sure[_RIM:-_RIM, _RIM:-_RIM] = False
        small &= ~sure
        crowd = cv2.blur(small.astype(np.float32), _CROWD, borderType=cv2.BORDER_REFLECT)
        small &= (crowd < _CROWDED) | (areas < _TINY)
    if not small.any():
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


def compose_with(
    stack: Stack, frames: Iterable[Pixels], index: Indices, mixed: Levels, *, seam: int
) -> Pixels:
    """Copy every pixel from its chosen frame; where a seam would show take the mixture given.

    That is within a window of ``seam`` pixels of a border of the choice, and only where it changes
    a pixel by more than a few grey levels. Everywhere else pixels are exact copies.
    """
    import cv2

    image = np.empty(stack.shape, stack.dtype)
    for number, frame in enumerate(frames):
        mine = index == number
        image[mine] = frame[mine]
    window = np.ones((seam, seam), np.uint8)
    near_seam = np.asarray(cv2.dilate(index, window) != cv2.erode(index, window))
    change = np.abs(mixed[near_seam] - stack.to_levels(image[near_seam]))
    near_seam[near_seam] = (change if change.ndim == 1 else change.max(axis=1)) > _VISIBLE_STEP
    image[near_seam] = stack.from_levels(mixed[near_seam])
    return image


def reduce(levels: Levels, scale: int) -> Levels:
    """Make a grey picture smaller by whole factors: means of blocks, those at the end cut off."""
    height, width = levels.shape
    padded = np.pad(levels, ((0, -height % scale), (0, -width % scale)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // scale, scale, padded.shape[1] // scale, scale)
    return np.asarray(blocks.mean(axis=(1, 3)), np.float32)


def picture_scale(stack: Stack) -> int:
    """By what factor to make the frames smaller to choose among them: 1, 2, 4 or 8.

    That is half of what would leave their detail whole: pictures with up to twice the pixels that
    they need are common. The sharpest frame counts, in each of a few parts of the picture: the
    half of them with more in it.
    """
    parts: list[Levels] = []
    for frame in stack:
        found = [_detail(part) for part in _parts(stack, frame)]
        parts = (
            found if not parts else [np.maximum(a, b) for a, b in zip(parts, found, strict=True)]
        )
    detail = np.array(parts)
    scale = 1
    for fine, coarse in zip(detail.T, detail.T[1:], strict=False):
        rich = coarse >= np.median(coarse)
        if np.median(coarse[rich] / (fine[rich] + 1e-3)) <= _EMPTY:
            break
        scale *= 2
    return max(1, scale // 2)


def _parts(stack: Stack, frame: Pixels) -> Iterator[Levels]:
    """Cut squares out of a frame, evenly, as luminance."""
    side = min(_PART, stack.height, stack.width)
    starts = (
        np.linspace(0, length - side, min(6, -(-length // side))).astype(int)
        for length in (stack.height, stack.width)
    )
    for top, left in itertools.product(*starts):
        yield luminance(stack.to_levels(frame[top : top + side, left : left + side]))


def _detail(part: Levels) -> Levels:
    """Mean squared difference of neighbours at every scale, finest first."""
    found: list[float] = []
    for scale in (1, 2, 4, 8, 16):
        if min(part.shape) < 4 * scale:
            break
        small = reduce(part, scale)
        found.append(float(np.mean(np.diff(small, axis=0) ** 2)))
        found[-1] += float(np.mean(np.diff(small, axis=1) ** 2))
    return np.array(found or [0.0], np.float32)


def spread_choice(choice: Choice, scale: int, shape: tuple[int, int], frames: int) -> Choice:
    """Enlarge a choice by a whole factor, its borders smooth, and cut it to ``shape``."""
    import cv2

    size = choice.index.shape[1] * scale, choice.index.shape[0] * scale

    def votes(frame: int) -> Levels:
        mine = np.where(choice.index == frame, choice.confidence + np.float32(0.05), np.float32(0))
        return np.asarray(cv2.resize(mine, size, interpolation=cv2.INTER_LINEAR), np.float32)

    index = choose(votes(frame)[: shape[0], : shape[1]] for frame in range(frames)).index
    confidence = cv2.resize(choice.confidence, size, interpolation=cv2.INTER_LINEAR)
    return Choice(index, np.asarray(confidence[: shape[0], : shape[1]], np.float32))


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
