"""The depth as a relief: the picture laid over its heights, seen obliquely from above.

The camera keeps its image plane upright, like an architect's. Everything above one line of the
ground that runs away from the camera then falls into one column of the view, and what is hidden is
told by one running minimum along that line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.depth.maps import Depth
from cofuse.errors import CofuseError

__all__ = ["relief_view"]

Floats = NDArray[np.float32]

#: Height of the eye and its distance from the picture's middle, in longer sides of the picture.
_EYE, _AWAY = 1.9, 2.2
#: Rendered pixels a pixel of the view: edges are averaged.
_FINE = 2
#: Longer side to which depth and picture are made smaller before.
_LARGEST = 1800
#: Thickness of the block that carries the relief, as part of the longer side, and the grey of its
#: left and right face.
_PLATE, _FACES = 0.03, (52.0, 78.0)
#: Colours at the top and at the bottom of the background.
_SKY = ((206.0, 211.0, 217.0), (244.0, 245.0, 247.0))
#: Direction of the light: from the left, from behind and from above.
_LIGHT = (-0.45, -0.40, 0.80)
#: How much the light shows; 0 leaves the picture's colours as they are.
_SHADING = 0.75


def relief_view(
    depth: Depth,
    image: NDArray[Any],
    *,
    white: float | None = None,
    size: tuple[int, int] = (1200, 900),
    turn: float = 24.0,
    strength: float = 0.18,
    first_is_near: bool | None = None,
) -> NDArray[np.uint8]:
    """Render the depth with the picture's colours, in perspective and shaded.

    Parameters
    ----------
    depth, image
        The positions, and a grey or RGB picture of the same size.
    white
        Value of the picture that stands for white; by default the largest of its dtype, or 1.0.
    size
        Width and height of the view in pixels.
    turn
        Degrees by which the picture is turned before the eye.
    strength
        Height of the relief as part of the picture's longer side. It spans the positions found, or
        a quarter of all frames where they span less.
    first_is_near
        Whether the first frame is focused nearest to the camera. By default it is, unless
        ``depth.z_step`` is negative.

    Returns
    -------
    ndarray
        8-bit RGB picture, shape (height, width, 3).
    """
    import cv2

    if image.shape[:2] != depth.position.shape:
        raise CofuseError(
            f"the picture has shape {image.shape} but the depth {depth.position.shape}; "
            "they must be of the same size"
        )
    if first_is_near is None:
        first_is_near = depth.z_step is None or depth.z_step > 0
    width, height = (_FINE * side for side in size)
    heights = _heights(depth, strength, first_is_near)
    colours = _shaded(image, heights, white)
    # The ground, from the front backwards: distance of every row, and the way across of a column.
    tall, wide = (side / max(heights.shape) for side in heights.shape)
    angle = np.radians(turn)
    half_x = 0.5 * (wide * abs(np.cos(angle)) + tall * abs(np.sin(angle)))
    half_y = 0.5 * (wide * abs(np.sin(angle)) + tall * abs(np.cos(angle)))
    distance = _AWAY + np.linspace(-half_y, half_y, int(1.2 * height))[:, None]
    lowest, highest = -_PLATE, float(heights.max())
    drop = (_EYE - lowest) / (_AWAY - half_y) - (_EYE - highest) / (_AWAY + half_y)
    focal = 0.94 * min(0.5 * width * (_AWAY - half_y) / half_x, height / drop)
    middle = 0.5 * ((_EYE - lowest) / (_AWAY - half_y) + (_EYE - highest) / (_AWAY + half_y))
    across = (np.arange(width) - (width - 1) / 2.0) / focal * distance
    along = distance - _AWAY
    x = np.cos(angle) * across + np.sin(angle) * along
    y = np.sin(angle) * across - np.cos(angle) * along
    scale = max(heights.shape)
    at_x = ((x + wide / 2) * scale - 0.5).astype(np.float32)
    at_y = ((y + tall / 2) * scale - 0.5).astype(np.float32)
    inside = (np.abs(x) <= wide / 2) & (np.abs(y) <= tall / 2)
    seen_heights = cv2.remap(heights, at_x, at_y, cv2.INTER_LINEAR, None, cv2.BORDER_REPLICATE)
    seen = cv2.remap(colours, at_x, at_y, cv2.INTER_LINEAR, None, cv2.BORDER_REPLICATE)

    def row_of(level: Any) -> Any:
        """Row of the view in which a height above the ground is seen."""
        return height / 2.0 + focal * ((_EYE - level) / distance - middle)

    rows = np.where(inside, row_of(seen_heights), np.inf)
    view = _draw(rows, row_of(np.float64(lowest)), seen, inside, height)
    small = cv2.resize(view, size, interpolation=cv2.INTER_AREA)
    return np.rint(small).clip(0, 255).astype(np.uint8)


def _draw(
    rows: NDArray[Any],
    foot: NDArray[Any],
    colours: NDArray[Any],
    inside: NDArray[np.bool_],
    height: int,
) -> Floats:
    """Paint what is seen: ``rows`` tells where every sample of the ground falls in its column."""
    steps, width = rows.shape
    view = np.linspace(_SKY[0], _SKY[1], height, dtype=np.float32)[:, None].repeat(width, axis=1)
    skyline = np.minimum.accumulate(rows, axis=0)
    pixels = np.arange(height) + 0.5
    fronts = np.where(inside.any(axis=0), inside.argmax(axis=0), steps)
    corner = int(fronts.argmin())
    for column in np.flatnonzero(inside.any(axis=0)):
        # The first sample from the front that rises to a pixel hides all behind it.
        first = np.searchsorted(-skyline[:, column], -pixels)
        front = int(fronts[column])
        plate = (first == front) & (pixels <= foot[front])
        view[plate, column] = _FACES[int(column >= corner)]
        found = (first > front) & (first < steps)
        here = first[found]
        top, below = rows[here, column], rows[here - 1, column]
        share = (pixels[found] - top) / np.maximum(below - top, 1e-6)
        share = np.clip(share, 0.0, 1.0)[:, None].astype(np.float32)
        line = colours[:, column]
        view[found, column] = (1.0 - share) * line[here] + share * line[here - 1]
    return view


def _heights(depth: Depth, strength: float, first_is_near: bool) -> Floats:
    """Heights above the ground, in longer sides of the picture."""
    position = _reduced(depth.position)
    low, high = (float(q) for q in np.quantile(position, (0.002, 0.998)))
    span = max(high - low, 0.25 * (depth.frames - 1), 1e-6)
    rise = np.clip(position, low, high) - low
    rise = (high - low) - rise if first_is_near else rise
    return np.asarray(rise * np.float32(strength / span), np.float32)


def _shaded(image: NDArray[Any], heights: Floats, white: float | None) -> Floats:
    """Colours of the picture, 0 to 255, in the light that falls on the heights."""
    import cv2

    if white is None:
        white = float(np.iinfo(image.dtype).max) if image.dtype.kind == "u" else 1.0
    levels = _reduced(image.astype(np.float32) * np.float32(255.0 / white))
    colours = levels[..., None].repeat(3, axis=2) if levels.ndim == 2 else levels
    scale = max(heights.shape)
    smooth = cv2.GaussianBlur(heights, (0, 0), 1.5) * scale
    slope_y, slope_x = np.gradient(smooth)
    light = np.array(_LIGHT) / np.linalg.norm(_LIGHT)
    facing = light[2] - slope_x * light[0] - slope_y * light[1]
    facing = facing / np.sqrt(1.0 + slope_x**2 + slope_y**2) / light[2]
    shade = 1.0 + _SHADING * (np.clip(facing, 0.1, 1.35) - 1.0)
    return np.asarray(np.clip(colours * shade[..., None], 0.0, 255.0), np.float32)


def _reduced(plane: NDArray[Any]) -> Floats:
    """Make a plane smaller to the size that the view needs."""
    import cv2

    scale = _LARGEST / max(plane.shape[:2])
    if scale >= 1.0:
        return np.asarray(plane, np.float32)
    size = (max(round(plane.shape[1] * scale), 1), max(round(plane.shape[0] * scale), 1))
    return np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_AREA), np.float32)
