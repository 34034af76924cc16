"""Retouching: strokes of a brush paint parts of frames into the fused picture, without seams.

A `Stroke` says where, and from which frame. Its pixels are blended into the picture band by band
(`blending`), tile by tile. Noisy frames are restored first by `RestoredFrames`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat
from pydantic.dataclasses import dataclass as checked_dataclass

from cofuse.fusion import fuse
from cofuse.images import PartReader, Pixels, Stack
from cofuse.images.tiles import relative, tiles_of
from cofuse.sensor import NoiseLaw
from cofuse.web.blending import blend

LARGEST_RADIUS, MOST_POINTS = 500.0, 100_000
#: No picture has pixels beyond this coordinate.
_FARTHEST = 1_000_000.0
#: Least fade as a share of the radius: a step of brightness cut off by a hard brush would show.
_LEAST_FADE = 0.25
#: Points are drawn to fractions of a pixel, 2⁻⁴.
_FRACTION_BITS = 4
#: Side of the tiles that a long stroke is painted in.
_SIDE = 512
#: Tiles and halos are multiples of this, the coarsest step of the widest fade, so that the coarse
#: bands of all tiles lie on one grid.
_STEP = 64
#: Halo in pixels of a part of a frame that is restored.
_HALO = 64
#: Parts to restore begin at multiples of this, the coarsest step of the trained model.
_MODEL_STEP = 32

#: Rows and columns of a picture.
Window = tuple[slice, slice]
Coordinate = Annotated[FiniteFloat, Field(ge=-_FARTHEST, le=_FARTHEST)]


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Stroke:
    """A stroke of a round brush that paints the frame number ``frame``, from 0, over the result.

    ``radius`` is in pixels. Over ``softness``, a share of it, the stroke fades out; the coarse
    structure of the picture fades over a quarter of the radius at least, fine detail always over
    less. ``points`` say where the brush went, (x, y) in pixels: pixel number i of a row reaches
    from i to i + 1. One point makes a dot.
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

    def window(self, shape: tuple[int, ...]) -> Window | None:
        """Part of a picture of this shape that can change; None if the stroke lies off it."""
        points = np.array(self.points)
        low = np.floor(points.min(axis=0) - self.radius).astype(int)
        high = np.ceil(points.max(axis=0) + self.radius).astype(int)
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


@dataclass(frozen=True)
class RestoredFrames:
    """The frames of a noisy stack; every part that is read is restored on its own.

    ``noise`` is that of the stack, as in `Fusion.noise`; ``preset`` restores as in `fuse`.
    """

    stack: Stack
    noise: NoiseLaw
    preset: str = "auto"

    def part_reader(self, index: int) -> PartReader:
        """Open one frame to read restored parts of it."""
        stack, read = self.stack, self.stack.part_reader(index)
        noise = self.noise.for_stack(len(stack), colour=stack.is_colour).only([index])

        def restored(rows: slice, columns: slice) -> Pixels:
            around = _widened(rows, stack.height), _widened(columns, stack.width)
            part = np.ascontiguousarray(read(*around))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="one frame only")
                fused = fuse([part], noise=noise, preset=self.preset, white=stack.white)
            return np.asarray(fused.image)[relative((rows, columns), around)]

        return restored


def _widened(side: slice, size: int) -> slice:
    """Rows or columns with a halo, as far as the picture goes."""
    start = max(side.start - _HALO, 0) // _MODEL_STEP * _MODEL_STEP
    return slice(start, min(side.stop + _HALO, size))


def retouch(
    image: Pixels, frames: Stack | RestoredFrames, strokes: Iterable[Stroke], *, side: int = _SIDE
) -> Pixels:
    """Paint parts of frames into a copy of a picture, with soft brushes and without seams.

    ``image``, shape (H, W) or (H, W, 3), was fused from ``frames``, which are aligned with it and
    of its dtype. Later strokes lie over earlier ones; what lies off the picture is left out. Pixels
    outside of all strokes keep their exact values, and painting some strokes into the result of
    others is the same as painting all at once. ``side`` is that of the tiles to work in, in pixels,
    a multiple of 64.
    """
    result = np.array(image)
    for stroke in strokes:
        window = stroke.window(image.shape)
        if window is not None:
            _paint(result[window], frames.part_reader(stroke.frame), stroke, window, side)
    return result


def painted_from(strokes: Sequence[Stroke], x: int, y: int, shape: tuple[int, ...]) -> int | None:
    """Number of the frame that strokes painted last at a pixel; None if none reaches it."""
    for stroke in reversed(strokes):
        window = stroke.window(shape)
        if window is None or not all(
            side.start <= place < side.stop for side, place in zip(window, (y, x), strict=True)
        ):
            continue
        here = Way(stroke, (slice(y, y + 1), slice(x, x + 1)))
        if here.depth(slice(0, 1), slice(0, 1))[0, 0] > 0:
            return stroke.frame
    return None


def _paint(picture: Pixels, read: PartReader, stroke: Stroke, window: Window, side: int) -> None:
    """Paint one stroke into ``picture``, the stroke's window of the result."""
    way, parts = Way(stroke, window), []
    rows, columns = window
    halo = math.ceil(stroke.fade / _STEP) * _STEP
    for tile in tiles_of(picture.shape[:2], max(side, 2 * halo), halo):
        depth = way.depth(*tile.around)
        if not (depth[tile.within] > 0).any():
            continue
        here = picture[tile.around]
        patch = read(_moved(tile.around_rows, rows), _moved(tile.around_columns, columns))
        # Kept until all are done: neighbouring tiles must see the picture as it was.
        parts.append((tile.here, blend(here, patch, depth, fade=stroke.fade)[tile.within]))
    for place, pixels in parts:
        picture[place] = pixels


def _moved(part: slice, whole: slice) -> slice:
    """Rows or columns of a window, counted from the picture's first."""
    return slice(part.start + whole.start, part.stop + whole.start)
