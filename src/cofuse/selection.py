"""Which frame is sharp where: activity under Ω, the choice, its clean-up, its confidence.

Frames are offered one after the other; only the two largest activities and the index of the
first are kept, so that memory does not grow with their number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cofuse.images import PartReader, Pixels, Stack, luminance_weights
from cofuse.operators import AnalysisOperator
from cofuse.patches import Positions, add_patches, take_patches

__all__ = [
    "Choice",
    "Rows",
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

#: Rows of a picture that are worked on at a time: floats of a whole one take much memory. These
#: do not depend on how much there is.
_BAND = 256
#: Rows in which small regions are filled at a time, and how far around one looks at first.
_FILL_BAND, _FILL_REACH = 1024, 128

Levels = NDArray[np.float32]
Indices = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Choice:
    """For every place the chosen frame's index and how clear the choice was, 0 to 1."""

    index: Indices
    confidence: Levels


class Rows(Protocol):
    """A picture in grey levels of which rows can be had; an array is one."""

    def __getitem__(self, rows: slice, /) -> Levels: ...


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
    from cofuse.kernels.cpu import region_areas

    areas = region_areas(choice.index)
    small, tiny = areas < smallest, areas < _TINY
    del areas
    if small.all():
        return choice
    if only_specks:
        sure = choice.confidence > _SURE
        sure[_RIM:-_RIM, _RIM:-_RIM] = False
        small &= ~sure
        small = _sparse(small, tiny)
    if not small.any():
        return choice
    index = _filled(choice.index, small)
    confidence = choice.confidence.copy()
    confidence[index != choice.index] = 0
    return Choice(index, confidence)


def _sparse(small: NDArray[np.bool_], tiny: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Leave out the small places that lie among many others, unless they are tiny."""
    import cv2

    sparse = np.empty_like(small)
    for rows, around, inner in _bands(len(small), _BAND, _CROWD[1]):
        near = small[around].astype(np.float32)
        crowd = cv2.blur(near, _CROWD, borderType=cv2.BORDER_REFLECT)[inner]
        sparse[rows] = small[rows] & ((crowd < _CROWDED) | tiny[rows])
    return sparse


def _filled(index: Indices, small: NDArray[np.bool_]) -> Indices:
    """Give every small place the index of the nearest other one."""
    import cv2

    filled = index.copy()
    reach = _FILL_REACH
    for start in range(0, len(index), _FILL_BAND):
        rows = slice(start, start + _FILL_BAND)
        if not small[rows].any():
            continue
        while True:
            top, bottom = max(start - reach, 0), start + _FILL_BAND + reach
            here, inner = small[top:bottom], slice(start - top, start - top + _FILL_BAND)
            distance, nearest = cv2.distanceTransformWithLabels(
                here.astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
            )
            # What lies beyond is no matter where half the way to it leads to something nearer.
            if reach >= len(index) or 2 * distance[inner].max() < reach - 4:
                break
            reach *= 2
        # OpenCV numbers the pixels of the others and tells each small one its nearest.
        index_of = np.zeros(int(nearest.max()) + 1, index.dtype)
        index_of[nearest[~here]] = index[top:bottom][~here]
        filled[rows] = index_of[nearest[inner]]
    return filled


def _bands(height: int, band: int, reach: int) -> Iterator[tuple[slice, slice, slice]]:
    """Rows in bands: which, which with so many around them, and where the first lie in those."""
    for start in range(0, height, band):
        stop, top = min(start + band, height), max(start - reach, 0)
        around = slice(top, min(stop + reach, height))
        yield slice(start, stop), around, slice(start - top, stop - top)


def compose(stack: Stack, frames: Iterable[Pixels], index: Indices, *, seam: int) -> Pixels:
    """Copy every pixel from its chosen frame, and blend the frames where a seam would show.

    Within a window of ``seam`` pixels frames are weighted by how often they were chosen there.
    Only where that changes a pixel by more than a few grey levels is the mixture taken: where the
    frames agree along a seam, as they mostly do, nothing has to be hidden and pixels stay copies.
    """
    import cv2

    from cofuse.kernels.pictures import copy_chosen

    image = np.empty(stack.shape, stack.dtype)
    bands = list(_bands(len(index), _BAND, seam))
    near_seam = _near_seams(index, seam)
    # Floats are kept along the seams only.
    blends = [np.zeros((int(near_seam[b].sum()), *stack.shape[2:]), np.float32) for b, *_ in bands]
    for number, frame in enumerate(frames):
        copy_chosen(frame, index, number, image)
        for (rows, around, inner), blend in zip(bands, blends, strict=True):
            mine = index[around] == number
            if not mine.any():
                continue
            votes = cv2.boxFilter(
                mine.astype(np.uint8),
                cv2.CV_32F,
                (seam, seam),
                normalize=False,
                borderType=cv2.BORDER_REPLICATE,
            )[inner]
            mixed = (votes > 0) & (votes < seam * seam)
            share = votes[mixed] / np.float32(seam * seam)
            added = _as_deep(share, frame[0]) * stack.to_levels(frame[rows][mixed])
            blend[mixed[near_seam[rows]]] += added
    for (rows, *_), blend in zip(bands, blends, strict=True):
        _hide_seams(stack, image[rows], near_seam[rows], blend)
    return image


def compose_with(
    stack: Stack, frames: Iterable[Pixels], index: Indices, mixed: Rows, *, seam: int
) -> Pixels:
    """Copy every pixel from its chosen frame; where a seam would show take the mixture given.

    That is within a window of ``seam`` pixels of a border of the choice, and only where it changes
    a pixel by more than a few grey levels. Everywhere else pixels are exact copies.
    """
    from cofuse.kernels.pictures import copy_chosen

    image = np.empty(stack.shape, stack.dtype)
    bands = [rows for rows, *_ in _bands(len(index), _BAND, 0)]
    for number, frame in enumerate(frames):
        copy_chosen(frame, index, number, image)
    near_seam = _near_seams(index, seam)
    for rows in bands:
        _hide_seams(stack, image[rows], near_seam[rows], mixed[rows][near_seam[rows]])
    return image


def _near_seams(index: Indices, seam: int) -> NDArray[np.bool_]:
    """Pixels in whose window of ``seam`` pixels more than one frame was chosen."""
    import cv2

    window = np.ones((seam, seam), np.uint8)
    near = np.empty(index.shape, np.bool_)
    for rows, around, inner in _bands(len(index), _BAND, seam):
        here = index[around]
        near[rows] = (cv2.dilate(here, window) != cv2.erode(here, window))[inner]
    return near


def _hide_seams(stack: Stack, image: Pixels, near: NDArray[np.bool_], mixed: Levels) -> None:
    """Put the mixture of the pixels ``near`` a seam where it would show."""
    change = np.abs(mixed - stack.to_levels(image[near]))
    shows = (change if change.ndim == 1 else change.max(axis=1)) > _VISIBLE_STEP
    near = near.copy()
    near[near] = shows
    image[near] = stack.from_levels(mixed[shows])


def _as_deep(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Give values that all channels share the channels' axis."""
    return values[..., None] if values.ndim < like.ndim else values


def reduce(levels: Levels, scale: int) -> Levels:
    """Make a grey picture smaller by whole factors: means of blocks, those at the end cut off."""
    from cofuse.kernels.pictures import luminance_means

    return luminance_means(levels, [1.0], scale)


def picture_scale(stack: Stack) -> int:
    """By what factor to make the frames smaller to choose among them: 1, 2, 4 or 8.

    That is half of what would leave their detail whole: pictures with up to twice the pixels that
    they need are common. The sharpest frame counts, in each of a few parts of the picture: the
    half of them with more in it.
    """
    parts: list[Levels] = []
    for number in range(len(stack)):
        found = [_detail(part) for part in _parts(stack, stack.part_reader(number))]
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


def _parts(stack: Stack, read: PartReader) -> Iterator[Levels]:
    """Cut squares out of a frame, evenly, as luminance."""
    side = min(_PART, stack.height, stack.width)
    starts = (
        np.linspace(0, length - side, min(6, -(-length // side))).astype(int)
        for length in (stack.height, stack.width)
    )
    from cofuse.kernels.pictures import luminance_means

    weights = luminance_weights(stack)
    for top, left in itertools.product(*starts):
        part = read(slice(top, top + side), slice(left, left + side))
        yield luminance_means(part, weights)


def _detail(part: Levels) -> Levels:
    """Mean squared difference of neighbours at every scale, finest first."""
    found: list[float] = []
    small = part
    for scale in (1, 2, 4, 8, 16):
        if min(part.shape) < 4 * scale:
            break
        if scale > 1:
            small = reduce(small, 2)
        down, across = (np.diff(small, axis=axis).ravel() for axis in (0, 1))
        found.append(float(down @ down) / down.size + float(across @ across) / across.size)
    return np.array(found or [0.0], np.float32)


def spread_choice(choice: Choice, scale: int, shape: tuple[int, int], frames: int) -> Choice:
    """Enlarge a choice by a whole factor, its borders smooth, and cut it to ``shape``."""
    import cv2

    index = np.empty(shape, np.uint8 if frames <= 256 else np.uint16)
    confidence = np.empty(shape, np.float32)
    for rows, around, inner in _bands(len(choice.index), max(1, _BAND // scale), 1):
        here = Choice(choice.index[around], choice.confidence[around])
        size = here.index.shape[1] * scale, here.index.shape[0] * scale
        large = slice(inner.start * scale, inner.stop * scale), slice(0, shape[1])
        out = slice(rows.start * scale, rows.stop * scale)

        def enlarged(small: Levels, size: tuple[int, int] = size, large: Any = large) -> Levels:
            return np.asarray(cv2.resize(small, size, interpolation=cv2.INTER_LINEAR)[large])

        def votes(frame: int, here: Choice = here) -> Levels:
            mine = here.confidence + np.float32(0.05)
            return np.where(here.index == frame, mine, np.float32(0))

        cut = len(index[out])
        chosen = choose(enlarged(votes(frame)) for frame in range(frames))
        index[out], confidence[out] = chosen.index[:cut], enlarged(here.confidence)[:cut]
    return Choice(index, confidence)


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
