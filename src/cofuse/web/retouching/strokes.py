"""Strokes of a brush: what they may be, and how deep inside of one every pixel lies."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError

__all__ = ["FARTHEST", "LARGEST_RADIUS", "MOST_POINTS", "Stroke", "Way", "Window", "stroke_window"]

#: Limits of one stroke. Coordinates beyond the last are of no picture.
LARGEST_RADIUS, MOST_POINTS, FARTHEST = 500.0, 100_000, 1_000_000.0
#: Share of the radius over which a stroke fades at least: a step of brightness cut off by a hard
#: brush would show.
_LEAST_FADE = 0.25
#: Points are drawn to fractions of a pixel, 2⁻⁴.
_FRACTION_BITS = 4

#: Rows and columns of a picture.
Window = tuple[slice, slice]


@dataclass(frozen=True)
class Stroke:
    """One stroke of a round brush.

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

    frame: int
    radius: float
    softness: float
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.frame, Integral) or isinstance(self.frame, bool) or self.frame < 0:
            raise CofuseError(f"a stroke's frame is {self.frame!r}; expected a number from 0")
        if not _lies_within(self.radius, 0.0, LARGEST_RADIUS) or self.radius == 0:
            raise CofuseError(
                f"a stroke's radius is {self.radius!r}; expected more than 0 and at most "
                f"{LARGEST_RADIUS:g} pixels"
            )
        if not _lies_within(self.softness, 0.0, 1.0):
            raise CofuseError(f"a stroke's softness is {self.softness!r}; expected 0 to 1")
        object.__setattr__(self, "points", _checked_points(self.points))

    @property
    def fade(self) -> float:
        """Pixels from the stroke's rim inwards after which all is the frame's own."""
        return float(self.radius) * max(float(self.softness), _LEAST_FADE)


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

        self._radius, self._window = float(stroke.radius), window
        # What the brush does outside of the window reaches into it by a radius.
        self._margin = math.ceil(stroke.radius) + 1
        rows, columns = window
        origin = columns.start - self._margin + 0.5, rows.start - self._margin + 0.5
        points = np.array((*stroke.points, stroke.points[-1]))  # one point alone draws no line
        corners = np.rint((points - origin) * (1 << _FRACTION_BITS)).astype(np.int32)
        height, width = (side.stop - side.start + 2 * self._margin for side in window)
        self._free = np.ones((height, width), np.uint8)
        cv2.polylines(self._free, [corners], False, (0,), shift=_FRACTION_BITS)

    def depth(self, part: Window) -> NDArray[np.float32]:
        """Distance of every pixel of a part of the window from the rim, positive inside."""
        import cv2

        margin = self._margin
        starts = [side.start - whole.start for side, whole in zip(part, self._window, strict=True)]
        height, width = (side.stop - side.start for side in part)
        rows, columns = (
            slice(start, start + size + 2 * margin)
            for start, size in zip(starts, (height, width), strict=True)
        )
        free = self._free[rows, columns]
        if free.all():
            return np.full((height, width), -np.inf, np.float32)
        distance = cv2.distanceTransform(free, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
        # Their last bits depend on where the array lies in memory; squares are whole numbers.
        exact = np.sqrt(np.rint(np.square(distance[margin:-margin, margin:-margin])))
        return np.asarray(np.float32(self._radius) - exact, np.float32)


def _lies_within(value: object, low: float, high: float) -> bool:
    """Whether a value is a number from ``low`` to ``high``; NaN is not."""
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high


def _checked_points(points: Iterable[Iterable[float]]) -> tuple[tuple[float, float], ...]:
    """Return the points of a stroke as pairs of finite numbers."""
    try:
        array = np.array(points, np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise CofuseError("a stroke's points are no pairs of numbers; expected [[x, y], …]")
    if len(array) > MOST_POINTS:
        raise CofuseError(f"a stroke has {len(array)} points; expected at most {MOST_POINTS}")
    if not (np.abs(array) <= FARTHEST).all():
        raise CofuseError("a stroke's points lie far off any picture, or are no numbers")
    return tuple(map(tuple, array.tolist()))
