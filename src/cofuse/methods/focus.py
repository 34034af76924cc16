"""Frames held to where the stack is in focus, wherever the model's own choice is a guess.

The model has learned from blur of up to 16 pixels, and from scenes in focus somewhere. Where no
frame is in focus all look alike to it, and its choice is patchy; in a frame that is blurred much
wider the inside of a dark bar looks as good as in the sharp one. The depth, found from windows that
are wide enough, tells which frames can be right there at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cofuse.depth import Depth, small_depth
from cofuse.images import Stack
from cofuse.joint_fusion import BLOCK
from cofuse.progress import ProgressCallback

__all__ = ["can_tell_focus", "focus_of", "out_of_focus_blocks"]

#: Fewest frames with a depth, and shortest side of a picture that holds windows wide enough.
_FRAMES, _SIDE = 3, 256
#: Pixels of the frames made smaller on which the depth is looked for: blocks need no more.
_PIXELS = 1_000_000
#: Confidence of the depth below which nothing is in focus.
_NOTHING_IN_FOCUS = 0.05
#: Frames in the order of their focus make curves with one hill: so sure the depth is at least, in
#: half of the places with detail. Frames in any other order hardly are.
_IN_ORDER = 0.3
#: Share of the picture that must tell something of the depth. With little blur in large frames none
#: of it is left when they are made smaller, and what the depth would then be is a guess itself.
_TELLING = 0.1
#: Frames, or share of all, by which a frame may be off the depth; where nothing is in focus less,
#: so that the choice is as smooth as the depth there.
_NEAR, _NEAR_SHARE = 0.75, 0.04
_NEAREST = 0.6
#: Places of the depth in a block, along a side.
_PLACES = 4


def can_tell_focus(stack: Stack) -> bool:
    """Whether a stack is large enough for its depth to be told."""
    return len(stack) >= _FRAMES and min(stack.height, stack.width) >= _SIDE


def focus_of(stack: Stack, progress: ProgressCallback) -> Depth | None:
    """Find the depth of a stack, coarsely.

    None if its frames are not in the order of focus, or alike at the size that is looked at.

    Each frame is read once.
    """
    scale = 1
    while stack.height * stack.width > _PIXELS * scale * scale:
        scale *= 2
    depth = small_depth(stack, scale=scale, progress=progress)
    telling = depth.evidence > 0.5
    if float(telling.mean()) < _TELLING:
        return None
    return depth if float(np.median(depth.confidence[telling])) >= _IN_ORDER else None


def out_of_focus_blocks(
    depth: Depth, shape: tuple[int, int], *, everywhere: bool
) -> NDArray[np.bool_]:
    """Find where each frame is too far from the depth, in blocks: (frames, rows, columns).

    A block allows the frames around all depths in it and in the blocks around it: along an outline
    both sides' frames and those between. Held to this are blocks where nothing is in focus, or all.
    """
    import cv2

    rows, columns = -(-shape[0] // BLOCK), -(-shape[1] // BLOCK)
    covered = shape[0] / (rows * BLOCK), shape[1] / (columns * BLOCK)

    def in_blocks(plane: NDArray[np.float32]) -> NDArray[np.float32]:
        # The last blocks may reach beyond the picture; places there are those at its border.
        y = np.arange(rows * _PLACES) / (rows * _PLACES * covered[0]) * plane.shape[0]
        x = np.arange(columns * _PLACES) / (columns * _PLACES * covered[1]) * plane.shape[1]
        y, x = (
            np.minimum(at, size - 1).astype(np.intp)
            for at, size in zip((y, x), plane.shape, strict=True)
        )
        return plane[np.ix_(y, x)].reshape(rows, _PLACES, columns, _PLACES)

    around = np.ones((3, 3), np.uint8)
    position, confidence = in_blocks(depth.position), in_blocks(depth.confidence)
    first = cv2.erode(position.min(axis=(1, 3)), around)
    last = cv2.dilate(position.max(axis=(1, 3)), around)
    unsure = cv2.dilate(confidence.mean(axis=(1, 3)), around) < np.float32(_NOTHING_IN_FOCUS)
    near = max(_NEAR, _NEAR_SHARE * depth.frames) if everywhere else np.inf
    slack = np.where(unsure, np.float32(_NEAREST), np.float32(near))
    frames = np.arange(depth.frames, dtype=np.float32)[:, None, None]
    return np.asarray((frames < first - slack) | (frames > last + slack))
