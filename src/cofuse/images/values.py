"""What is taken as a frame, and the value of white: that of a dtype, or that which frames show.

Sensors of 10, 12 or 14 bits are stored in 16, and a dim specimen uses few of those. The scale of
such frames is that of what they show: the largest value that is more than a stray pixel's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cofuse.errors import CofuseError

_DTYPES = (np.uint8, np.uint16, np.float32, np.float64)

Pixels = NDArray[Any]


def as_array(frame: ArrayLike, name: str) -> Pixels:
    """Take a frame as an array in the byte order of this machine."""
    if isinstance(frame, np.ma.MaskedArray):
        raise CofuseError(
            f"{name} is a masked array, whose mask would be lost; fill it with values first "
            "(frame.filled)"
        )
    array = np.asarray(frame)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def checked(given: Pixels, name: str) -> Pixels:
    """Refuse what is no picture: wrong dtype or shape, nothing in it, values not finite."""
    frame = as_array(given, name)
    if frame.dtype not in _DTYPES:
        raise CofuseError(
            f"{name} has values of type {frame.dtype}; expected uint8, uint16, float32 or float64"
        )
    if frame.ndim not in (2, 3) or (frame.ndim == 3 and frame.shape[2] != 3):
        raise CofuseError(
            f"{name} has shape {frame.shape}; expected (height, width) or (height, width, 3)"
        )
    if frame.size == 0:
        raise CofuseError(f"{name} is empty: its shape is {frame.shape}")
    if frame.dtype.kind == "f" and not np.isfinite(frame).all():
        raise CofuseError(f"{name} holds NaN or infinite values; replace them before fusing")
    return frame


def describe(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Say a picture's size in a photographer's words."""
    kind = "RGB" if len(shape) == 3 else "grey"
    return f"{shape[1]}x{shape[0]} {kind} {dtype}"


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
