"""The value of white: that of a dtype, and that which frames themselves show.

Sensors of 10, 12 or 14 bits are stored in 16, and a dim specimen uses few of those. The scale of
such frames is that of what they show: the largest value that is more than a stray pixel's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["found_white", "largest_shown", "white_of_type"]

#: White is never below that of 8 bits: one step of the values is one grey level at most.
_LEAST = 255.0


def white_of_type(dtype: DTypeLike) -> float:
    """Largest value of an integer dtype, 1.0 for floats."""
    dtype = np.dtype(dtype)
    return float(np.iinfo(dtype).max) if dtype.kind == "u" else 1.0


def found_white(frames: Iterable[NDArray[Any]]) -> float:
    """Find the value of white of uint16 frames.

    It is the largest value that any frame shows, or that of the dtype where they use its top bit:
    all 16 bits are in use then. Neither order nor turning changes it, frames left out or cut down
    never raise it, and values doubled double it.
    """
    white = _LEAST
    for frame in frames:
        white = max(white, largest_shown(frame))
        top = white_of_type(frame.dtype)
        if white > top // 2:  # what the other frames hold does not matter any more
            return top
    return white


def largest_shown(frame: NDArray[Any]) -> float:
    """Largest median of 3 x 3 pixels of a channel; of a narrower frame its largest value.

    Hot pixels, and hot lines one pixel wide, are no majority of any such window.
    """
    if min(frame.shape[:2]) < 3:
        return float(frame.max())
    import cv2

    return float(np.max(cv2.medianBlur(np.ascontiguousarray(frame), 3)[1:-1, 1:-1]))
