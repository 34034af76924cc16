"""Strokes of a brush: what they may be, and how deep inside of one every pixel lies."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat
from pydantic.dataclasses import dataclass

__all__ = ["LARGEST_RADIUS", "MOST_POINTS", "Stroke", "Way", "Window", "stroke_window"]

LARGEST_RADIUS, MOST_POINTS = 500.0, 100_000
#: No picture has pixels beyond this coordinate.
_FARTHEST = 1_000_000.0
#: Least fade as a share of the radius: a step of brightness cut off by a hard brush would show.
_LEAST_FADE = 0.25
#: Points are drawn to fractions of a pixel, 2⁻⁴.
_FRACTION_BITS = 4

#: Rows and columns of a picture.
Window = tuple[slice, slice]

Coordinate = Annotated[FiniteFloat, Field(ge=-_FARTHEST, le=_FARTHEST)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Stroke:
    """A stroke of a round brush that paints a frame over the result.

    Attributes
    ----------
    frame
        Index of the frame to paint from.
    radius
        Of the brush, in pixels.
    softness
        Share of the radius over which the stroke fades out, 0 to 1. The coarse structure of the
        picture fades over a quarter of the radius at least; fine detail always over less.
    points
        Where the brush went, (x, y) in pixels: pixel number i of a row reaches from i to i + 1.
        One point makes a dot.
    """

    frame: Annotated[int, Field(ge=0, lt=100_000)]
    radius: Annotated[FiniteFloat, Field(gt=0, le=LARGEST_RADIUS)]
    softness: Annotated[FiniteFloat, Field(ge=0, le=1)] = 0.5
    points: Annotated[
        list[tuple[Coordinate, Coordinate]], Field(min_length=1, max_length=MOST_POINTS)
    ]

    @property
    def fade(self) -> float:
        """Pixels from the stroke's rim inwards after which all is the frame's own."""
        return self.radius * max(self.softness, _LEAST_FADE)


def stroke_window(stroke: Stroke, shape: tuple[int, ...]) -> Window | None:
    """Rows and columns of a picture that a stroke can change; None if it lies off the picture."""
    points = np.array(stroke.points)
    low = np.floor(points.min(axis=0) - stroke.radius).astype(int)
    high = np.ceil(points.max(axis=0) + stroke.radius).astype(int)
    left, top = np.maximum(low, 0).tolist()
    right, bottom = np.minimum(high, (shape[1], shape[0])).tolist()
    return (slice(top, bottom), slice(left, right)) if left < right and top < bottom else None


class Way:
    """The way of a stroke's brush through a window of a picture.

    It is drawn as a line of pixels, once for all parts of the window: lines that are cut off at
    different places are not drawn alike.
    """

    def __init__(self, stroke: Stroke, window: Window) -> None:
        import cv2

        self._radius = np.float32(stroke.radius)
        # What the brush does outside of the window reaches into it by a radius.
        self._margin = math.ceil(stroke.radius) + 1
        rows, columns = window
        origin = columns.start - self._margin + 0.5, rows.start - self._margin + 0.5
        points = np.array((*stroke.points, stroke.points[-1]))  # one point alone draws no line
        corners = np.rint((points - origin) * (1 << _FRACTION_BITS)).astype(np.int32)
        height, width = (side.stop - side.start + 2 * self._margin for side in window)
        self._free = np.ones((height, width), np.uint8)
        cv2.polylines(self._free, [corners], False, (0,), shift=_FRACTION_BITS)

    def depth(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Distance of every pixel of a part of the window from the rim, positive inside."""
        import cv2

        margin = self._margin
        free = self._free[
            rows.start : rows.stop + 2 * margin, columns.start : columns.stop + 2 * margin
        ]
        if free.all():
            shape = rows.stop - rows.start, columns.stop - columns.start
            return np.full(shape, -np.inf, np.float32)
        distance = cv2.distanceTransform(free, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
        # Their last bits depend on where the array lies in memory; squares are whole numbers.
        exact = np.sqrt(np.rint(np.square(distance[margin:-margin, margin:-margin])))
        return np.asarray(self._radius - exact, np.float32)
