"""Values of another depth: 8 or 16 bits or floats, rounded to the nearest."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images.white import white_of_type

__all__ = ["BitDepth", "convert_depth", "dtype_at"]

Pixels = NDArray[Any]

#: 8 or 16 bits, or floats from 0 to 1.
BitDepth = Literal[8, 16, "float"]

_ROWS = 256


def dtype_at(dtype: np.dtype[Any], depth: BitDepth | None) -> np.dtype[Any]:
    """Return the dtype that values of ``dtype`` have once they are of a depth."""
    if depth is None:
        return dtype
    if depth not in (8, 16, "float"):
        raise CofuseError(f"`depth` is {depth!r}; expected 8, 16 or 'float'")
    if depth == "float":
        return dtype if dtype.kind == "f" else np.dtype(np.float32)
    return np.dtype(np.uint8 if depth == 8 else np.uint16)


def convert_depth(image: Pixels, depth: BitDepth | None, *, white: float | None = None) -> Pixels:
    """Bring a picture to another depth; white becomes the white of that depth.

    Parameters
    ----------
    image
        Any shape; uint8, uint16 or floats.
    depth
        8, 16, ``"float"``, or None for no change. A picture of that depth is returned as it is.
    white
        Value of white; by default the largest an integer can have, 1.0 for floats.
    """
    dtype = dtype_at(image.dtype, depth)
    if dtype == image.dtype:
        return image
    white = white_of_type(image.dtype) if white is None else white
    largest = white_of_type(dtype)
    result = np.empty(image.shape, dtype)
    for top in range(0, len(image), _ROWS):  # few at a time: the floats between take 8 bytes each
        values = image[top : top + _ROWS] * np.float64(largest / white)
        if dtype.kind == "u":
            if not np.isfinite(values).all():
                raise CofuseError("the picture holds NaN or infinite values; expected numbers")
            np.clip(np.rint(values, out=values), 0, largest, out=values)
        result[top : top + _ROWS] = values
    return result
