r"""Pictures as sums of bands, each mixed with weights of its own.

A picture is split by boxes, each passed twice, of `WINDOWS` pixels: what is finer than the first,
what lies between the first and the second, and so on, and the rest. The bands add up to the picture
again, so that a frame whose weights are all 1 is left as it is; and as each band is as smooth as
its window, weights that change slowly where frames differ only coarsely show no seam.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MIXED_BANDS",
    "REACH",
    "WINDOWS",
    "blurred",
    "mean_of_channels",
    "smoothed",
    "split",
]

Levels = NDArray[np.float32]

#: Sides of the boxes in pixels; three to the octave and a half.
WINDOWS = (3, 7, 21)
MIXED_BANDS = len(WINDOWS) + 1
#: Pixels around a place that its bands depend on.
REACH = sum(2 * (side // 2) for side in WINDOWS)


def blurred(picture: Levels, side: int) -> Levels:
    """Pass a box over a picture, the border repeated beyond it."""
    import cv2  # takes a while to load

    return np.asarray(
        cv2.blur(picture, (side, side), borderType=cv2.BORDER_REPLICATE), picture.dtype
    )


def mean_of_channels(levels: Levels) -> Levels:
    """Average R, G and B; a grey picture is returned as it is."""
    if levels.ndim == 2:
        return levels
    import cv2  # takes a while to load

    return np.asarray(cv2.transform(levels, np.full((1, 3), 1 / 3, np.float32)), np.float32)


def split(picture: Levels) -> list[Levels]:
    """Split a picture, (h, w) or (h, w, channels), into `MIXED_BANDS` that add up to it."""
    pictures = smoothed(picture)
    return [*(finer - coarser for finer, coarser in pairwise(pictures)), pictures[-1]]


def smoothed(picture: Levels) -> list[Levels]:
    """Return a picture and the smoother ones that are left of it below every band."""
    pictures = [picture]
    for side in WINDOWS:
        pictures.append(blurred(blurred(pictures[-1], side), side))
    return pictures
