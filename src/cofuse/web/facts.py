"""A result in numbers: one pixel, what chose its frame, histogram and relief."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.fusion.presets import FastSettings
from cofuse.images import Pixels, Stack, luminance
from cofuse.operators import load_operator
from cofuse.web.pyramid import block_means, eight_bits, to_srgb

#: The settings whose operator and window measure the activity.
_FAST = FastSettings()
#: Rows read at a time, at least.
_BAND = 256
#: Most rows and columns of a relief.
_RELIEF_SIDE = 256


def pixel_facts(x: int, y: int, *, image: Pixels, maps: Mapping[str, Pixels]) -> dict[str, Any]:
    """Gather what is known about the pixel in column x and row y, both from 0.

    ``image`` is the result, and ``maps`` holds ``source``, ``confidence`` and ``depth`` as far as
    there are any. Returned are the native ``value``, one a channel, and ``frame``, ``confidence``
    and ``depth`` of the maps, None where there is none.
    """
    height, width = image.shape[:2]
    if not (0 <= x < width and 0 <= y < height):
        raise CofuseError(f"there is no pixel {x}, {y} in a picture of {width}x{height}")

    def at(name: str) -> Any:
        return maps[name][y, x].item() if name in maps else None

    return {
        "x": x,
        "y": y,
        "value": np.atleast_1d(image[y, x]).tolist(),
        "frame": at("source"),
        "confidence": at("confidence"),
        "depth": at("depth"),
    }


def activities(x: int, y: int, stack: Stack) -> list[float] | None:
    """Activity of every frame at a pixel, by which ``fast`` chooses, in grey levels.

    It is the mean over the patches around the pixel; only a small window of each frame is read.
    None if the picture is smaller than a patch.
    """
    operator = load_operator(_FAST.operator)
    side = operator.patch_size
    if min(stack.height, stack.width) < side:
        return None
    reach = (_FAST.window + side) // 2
    rows, columns = (
        slice(min(max(place - reach, 0), size - side), place + reach + 1)
        for place, size in ((y, stack.height), (x, stack.width))
    )
    parts = (stack.part_levels(index, (rows, columns)) for index in range(len(stack)))
    return [float(operator.activity(luminance(part)).mean()) for part in parts]


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
