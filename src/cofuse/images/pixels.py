"""Pixels: what is taken as a frame, its value of white, its luminance, and its bands.

A picture is smoothed again and again, by box filters of `WINDOWS` pixels passed twice. The bands
are the differences of neighbouring results, and the last result. They add up to the picture, so a
frame whose weights are all 1 is left as it is. Coarse bands are mixed with smooth weights: no seam
shows where frames differ only coarsely.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cofuse.errors import CofuseError

#: A frame in native values: uint8, uint16, or floats with white at 1.
Pixels = NDArray[Any]
#: Grey levels, 0 to 255 whatever the depth of the frames.
Levels = NDArray[np.float32]

_DTYPES = (np.uint8, np.uint16, np.float32, np.float64)


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


# --- white ---------------------------------------------------------------------------------------

#: White is never below that of 8 bits: one step of the values is one grey level at most.
_LEAST_WHITE = 255.0


def white_of_type(dtype: DTypeLike) -> float:
    """Largest value of an integer dtype, 1.0 for floats."""
    dtype = np.dtype(dtype)
    return float(np.iinfo(dtype).max) if dtype.kind == "u" else 1.0


def found_white(frames: Iterable[NDArray[Any]]) -> float:
    """Find the value of white of uint16 frames.

    Sensors of 10, 12 or 14 bits are stored in 16, and a dim specimen uses few of those: the scale
    of such frames is that of what they show. White is the largest value that any frame shows, or
    that of the dtype where they use its top bit. Neither order nor turning changes it, frames left
    out or cut down never raise it, and values doubled double it.
    """
    white = _LEAST_WHITE
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


# --- colour and bands ----------------------------------------------------------------------------

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


def smoothed(picture: Levels) -> list[Levels]:
    """Return a picture and its ever smoother versions, one below every band but the last."""
    pictures = [picture]
    for side in WINDOWS:
        pictures.append(blurred(blurred(pictures[-1], side), side))
    return pictures
