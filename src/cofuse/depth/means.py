"""Compiled passes over frames in their own pixels, for which NumPy needs several over floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from cofuse.operators import cpu

__all__ = ["luminance_means"]

Array = NDArray[Any]
Floats = NDArray[np.float32]

_jit: Callable[..., Any] = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}
)


def luminance_means(pixels: Array, weights: ArrayLike, scale: int = 1) -> Floats:
    """Means over blocks of the channels' weighted sum; the last blocks may be cut.

    Grey pixels have the shape (H, W) and one weight, coloured ones (H, W, 3) and three.
    """
    height, width = (-(-n // scale) for n in pixels.shape[:2])
    out = np.empty((height, width), np.float32)
    deep = pixels if pixels.ndim == 3 else pixels[..., None]
    shares = np.array(weights, np.float32)
    cpu._over_bands(lambda a, b: _luminance_means(deep, shares, scale, a, b, out), height)
    return out


@_jit
def _luminance_means(pixels, weights, scale, start, stop, out):  # type: ignore[no-untyped-def]
    height, width, channels = pixels.shape
    line = np.empty(width, np.float32)
    for y in range(start, stop):
        line[:] = np.float32(0)
        rows = min(scale, height - y * scale)
        for dy in range(rows):
            row = pixels[y * scale + dy]
            if channels == 3:
                red, green, blue = weights[0], weights[1], weights[2]
                for x in range(width):
                    line[x] += red * np.float32(row[x, 0]) + green * np.float32(row[x, 1])
                    line[x] += blue * np.float32(row[x, 2])
            else:
                grey = weights[0]
                for x in range(width):
                    line[x] += grey * np.float32(row[x, 0])
        target = out[y]
        if scale == 1:
            target[:] = line
            continue
        whole = width // scale
        share = np.float32(1) / np.float32(rows * scale)
        for x in range(whole):
            total = np.float32(0)
            for dx in range(scale):
                total += line[x * scale + dx]
            target[x] = share * total
        if whole < target.shape[0]:
            share = np.float32(1) / np.float32(rows * (width - whole * scale))
            target[whole] = share * line[whole * scale :].sum()
