"""Arrays that come as frames: what is taken, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError

__all__ = ["as_array", "checked", "describe"]

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
