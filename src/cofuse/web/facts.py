"""A result in numbers: all about one pixel, the operator's filters, histogram and relief."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.fusion.presets import FastSettings
from cofuse.images import Pixels, Stack, luminance
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.web.colours import eight_bits, to_srgb
from cofuse.web.pyramid import block_means

__all__ = ["FILTERS_SHOWN", "histogram", "pixel_facts", "relief_grid"]

#: Number of filters listed, those with the largest answers.
FILTERS_SHOWN = 12
#: The settings whose operator and window measure the activity.
_FAST = FastSettings()
#: Rows read at a time, at least.
_BAND = 256
#: Most rows and columns of a relief.
_RELIEF_SIDE = 256


def pixel_facts(
    x: int, y: int, *, image: Pixels, stack: Stack, maps: Mapping[str, Pixels]
) -> dict[str, Any]:
    """Gather what is known about the pixel in column x and row y, both from 0.

    ``image`` is the result, ``stack`` the aligned frames, of which only a small window is read, and
    ``maps`` holds ``source``, ``confidence`` and ``depth`` as far as there are any. Returned are
    the native ``value``, one a channel; ``frame``, ``confidence`` and ``depth`` of the maps, None
    where there is none; ``activity`` of every frame here, as the preset ``fast`` measures it, in
    grey levels; and the ``filters`` of its operator that answer most on the result's patch here,
    each an index and the size of its answer in grey levels, the largest first.
    """
    height, width = image.shape[:2]
    if not (0 <= x < width and 0 <= y < height):
        raise CofuseError(f"there is no pixel {x}, {y} in a picture of {width}x{height}")
    operator = load_operator(_FAST.operator)

    def at(name: str) -> Any:
        return maps[name][y, x].item() if name in maps else None

    fits = min(height, width) >= operator.patch_size
    return {
        "x": x,
        "y": y,
        "value": np.atleast_1d(image[y, x]).tolist(),
        "frame": at("source"),
        "confidence": at("confidence"),
        "activity": _activities(x, y, stack, operator) if fits else [0.0] * len(stack),
        "depth": at("depth"),
        "filters": _strongest(x, y, image, stack, operator) if fits else [],
    }


def _activities(x: int, y: int, stack: Stack, operator: AnalysisOperator) -> list[float]:
    """Mean activity of the patches of every frame that lie around one pixel."""
    reach = (_FAST.window + operator.patch_size) // 2
    rows, columns = (
        slice(min(max(place - reach, 0), size - operator.patch_size), place + reach + 1)
        for place, size in ((y, stack.height), (x, stack.width))
    )
    parts = (stack.part_levels(index, (rows, columns)) for index in range(len(stack)))
    return [float(operator.activity(luminance(part)).mean()) for part in parts]


def _strongest(
    x: int, y: int, image: Pixels, stack: Stack, operator: AnalysisOperator
) -> list[dict[str, int | float]]:
    """Filters with the largest answers on the patch about a pixel, moved inside at the rim."""
    side = operator.patch_size
    top = min(max(y - side // 2, 0), stack.height - side)
    left = min(max(x - side // 2, 0), stack.width - side)
    patch = luminance(stack.to_levels(image[top : top + side, left : left + side]))
    answers = np.abs(operator.apply(patch.reshape(-1, 1).astype(np.float64))[:, 0])
    order = np.argsort(-answers, kind="stable")[:FILTERS_SHOWN]
    return [{"index": int(index), "strength": float(answers[index])} for index in order]


def histogram(pixels: Pixels, *, white: float) -> dict[str, list[int]]:
    """Count values in 256 steps from black to white, by channel: r, g and b, or grey."""
    names = ("r", "g", "b") if len(pixels.shape) == 3 else ("grey",)
    counts = np.zeros((len(names), 256), np.int64)
    for top in range(0, pixels.shape[0], _BAND):
        levels = eight_bits(pixels[top : top + _BAND], white).reshape(-1, len(names))
        for channel, count in enumerate(counts):
            count += np.bincount(levels[:, channel], minlength=256)
    return {name: count.tolist() for name, count in zip(names, counts, strict=True)}


def relief_grid(
    depth: Pixels, image: Pixels, *, white: float, last: float, profile: bytes | None = None
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Make a small grid of heights, 0 to 1, from a depth map, and of the picture's sRGB there.

    ``depth`` is the position along the stack, shape (H, W), where the first frame is focused
    nearest, hence highest; ``last`` is the position of the last frame, and ``white`` the value of
    ``image`` that stands for white, its colours those of ``profile`` (ICC).
    """
    import cv2

    # Each block of the grid is made of whole finer blocks, so that heights, which are filtered
    # between the two, and colours, which are not, lie on one grid whatever the size.
    least = -(-max(depth.shape) // _RELIEF_SIDE)
    step = -(-least // 3)
    blocks = -(-least // step)
    fine = _reduced(depth, step)
    if min(fine.shape) > 5:
        fine = np.asarray(cv2.medianBlur(fine, 5), np.float32)  # takes out single wrong heights
    grid = _reduced(fine, blocks)
    near, far = np.quantile(grid, (0.005, 0.995)).tolist()  # few wrong heights must not flatten all
    # At least a quarter of the stack, so that the noise of a flat scene stays flat.
    span = max(far - near, 0.25 * last, 1e-6)
    heights = (np.clip(grid, near, far) - near) / np.float32(span)
    colours = to_srgb(profile)(eight_bits(_reduced(image, step * blocks), white))
    if colours.ndim == 2:
        colours = colours[..., None].repeat(3, axis=2)
    return np.asarray(heights.max() - heights, np.float32), colours


def _reduced(pixels: Pixels, step: int) -> NDArray[np.float32]:
    """Means over blocks of ``step`` pixels a side."""
    rows, columns = (-(-length // step) for length in pixels.shape[:2])
    result = np.empty((rows, columns, *pixels.shape[2:]), np.float32)
    band = step * -(-_BAND // step)
    for top in range(0, pixels.shape[0], band):
        small = block_means(pixels[top : top + band].astype(np.float32), step)
        result[top // step : top // step + len(small)] = small
    return result
