"""Planes of a picture: luminance and chrominance, and undecimated bands.

A picture is smoothed again and again, by box filters of `WINDOWS` pixels passed twice. The bands
are the differences of neighbouring results, and the last result. They add up to the picture, so a
frame whose weights are all 1 is left as it is. Coarse bands are mixed with smooth weights: no seam
shows where frames differ only coarsely.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

#: Grey levels, 0 to 255 whatever the depth of the frames.
Levels = NDArray[np.float32]

#: ITU-R BT.601 weights of R, G and B, to the digits the reference metrics use.
LUMINANCE_WEIGHTS = (0.298936021293776, 0.587043074451121, 0.114020904255103)

#: Orthonormal luminance and chrominance: grey, red against blue, green against both.
_OPPONENT = np.array(
    [
        [3**-0.5, 3**-0.5, 3**-0.5],
        [2**-0.5, 0.0, -(2**-0.5)],
        [6**-0.5, -2 * 6**-0.5, 6**-0.5],
    ],
    dtype=np.float32,
)


def luminance(levels: Levels) -> Levels:
    """Weigh R, G and B to one grey picture; a grey picture is returned as it is."""
    if levels.ndim == 2:
        return levels
    return levels @ np.array(LUMINANCE_WEIGHTS, dtype=np.float32)


def to_opponent(levels: Levels) -> Levels:
    """Turn RGB into luminance and two chrominance planes, shape (H, W, 3); grey into (H, W, 1).

    The change is orthonormal: white noise keeps its level in every plane.
    """
    return levels[..., None] if levels.ndim == 2 else levels @ _OPPONENT.T


def from_opponent(planes: Levels) -> Levels:
    """Turn planes of `to_opponent` back into grey levels of RGB or grey."""
    return planes[..., 0] if planes.shape[-1] == 1 else planes @ _OPPONENT


#: Sides of the box filters in pixels, about an octave and a half apart.
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
    """Return a picture and its ever smoother versions, one below every band but the last."""
    pictures = [picture]
    for side in WINDOWS:
        pictures.append(blurred(blurred(pictures[-1], side), side))
    return pictures
