"""A result in a few numbers to draw: the relief of its depth, and its histogram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.web.pyramid import Sliceable

__all__ = ["Relief", "histogram", "relief_grid"]

Floats = NDArray[np.float32]

#: Rows read at a time, at least.
_BAND = 256
#: Means of the picture on a grid so many times finer, of which medians are taken, side of these.
_FINER, _MEDIAN = 3, 5
#: Heights beyond these quantiles are cut off: single wrong ones must not flatten all others.
_QUANTILES = (0.005, 0.995)
#: A relief spans this share of all frames at least, so that noise of a flat scene stays flat.
_LEAST_SPAN = 0.25


@dataclass(frozen=True)
class Relief:
    """Heights from 0 to 1, shape (rows, columns), and the picture's colours there, 8-bit RGB."""

    heights: Floats
    colours: NDArray[np.uint8]


def relief_grid(
    position: Sliceable,
    image: Sliceable,
    *,
    white: float,
    last: float,
    first_is_near: bool = True,
    side: int = 256,
) -> Relief:
    """Make a small grid of heights from a depth map, smoothed such that outliers do not count.

    Parameters
    ----------
    position
        Depth along the stack, shape (H, W).
    image
        The picture, shape (H, W) or (H, W, 3), for the colours.
    white
        Value of the picture that stands for white.
    last
        Value of ``position`` that stands for the last frame: K − 1, or 65535 in 16-bit pictures.
    first_is_near
        Whether the first frame is focused nearest, and therefore highest.
    side
        Most rows and columns of the grid.
    """
    if tuple(position.shape) != tuple(image.shape[:2]):
        raise CofuseError(
            f"the depth has shape {position.shape} but the picture {image.shape}; "
            "expected the same size"
        )
    import cv2

    fine = _reduced(position, _FINER * side)
    if min(fine.shape) > _MEDIAN:
        fine = np.asarray(cv2.medianBlur(fine, _MEDIAN), np.float32)
    grid = _reduced(fine, side)
    low, high = (float(q) for q in np.quantile(grid, _QUANTILES))
    span = max(high - low, _LEAST_SPAN * last, 1e-6)
    heights = (np.clip(grid, low, high) - low) / np.float32(span)
    if first_is_near:
        heights = heights.max() - heights
    colours = _reduced(image, side) * np.float32(255.0 / white)
    if colours.ndim == 2:
        colours = colours[..., None].repeat(3, axis=2)
    shown = np.rint(np.clip(colours, 0.0, 255.0)).astype(np.uint8)
    return Relief(np.asarray(heights, np.float32), shown)


def histogram(pixels: Sliceable, *, white: float) -> dict[str, list[int]]:
    """Count values in 256 steps from black to white, by channel: r, g and b, or grey."""
    names = ("r", "g", "b") if len(pixels.shape) == 3 else ("grey",)
    counts = np.zeros((len(names), 256), np.int64)
    for _, band in _bands(pixels, _BAND):
        values = band * np.float32(255.0 / white)
        levels = np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8).reshape(-1, len(names))
        for channel, count in enumerate(counts):
            count += np.bincount(levels[:, channel], minlength=256)
    return {name: count.tolist() for name, count in zip(names, counts, strict=True)}


def _bands(pixels: Sliceable, rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Rows of a picture from top to bottom, each time with the first one's number."""
    for top in range(0, pixels.shape[0], rows):
        yield top, np.asarray(pixels[top : top + rows, :])


def _reduced(pixels: Sliceable, side: int) -> Floats:
    """Means over equal blocks such that neither side is longer than ``side``."""
    import cv2

    height, width = pixels.shape[:2]
    step = -(-max(height, width) // side)
    rows, columns = -(-height // step), -(-width // step)
    result = np.empty((rows, columns, *pixels.shape[2:]), np.float32)
    for top, band in _bands(pixels, step * -(-_BAND // step)):
        # Blocks at the right and lower end are filled up with their last pixels.
        extra = -len(band) % step, -width % step
        block = cv2.copyMakeBorder(
            band.astype(np.float32), 0, extra[0], 0, extra[1], cv2.BORDER_REPLICATE
        )
        size = columns, len(block) // step
        small = cv2.resize(block, size, interpolation=cv2.INTER_AREA)
        result[top // step : top // step + size[1]] = small
    return result
