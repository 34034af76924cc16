"""Retouching: strokes of a brush paint parts of frames into the fused picture, without seams.

A `Stroke` says where, and from which frame. Its pixels, of noisy frames restored ones, are blended
into the picture tile by tile and band by band (`blend`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat
from pydantic.dataclasses import dataclass as checked_dataclass

from cofuse.fusion import fuse
from cofuse.images import PartReader, Pixels, Stack
from cofuse.images.tiles import relative, tiles_of
from cofuse.sensor import NoiseLaw

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

#: Width of the finest ramp in pixels, and of the widest in fades: it is smeared a little on its way
#: up, and must not reach the patch's core.
_FINEST, _WIDEST = 4.0, 0.75
#: Keeps quotients of nothing by nothing finite.
_TINY = np.float32(1e-12)

Floats = NDArray[np.float32]
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


def depth_reader(stroke: Stroke, window: Window) -> Callable[[slice, slice], Floats]:
    """Draw the way of a stroke's brush through a window of a picture.

    Returns what measures the distance of every pixel of a part of the window from the rim, positive
    inside. The way is drawn as a line of pixels, once for all parts: lines that are cut off at
    different places are not drawn alike.
    """
    import cv2

    # What the brush does outside of the window reaches into it by a radius.
    margin = math.ceil(stroke.radius) + 1
    origin = window[1].start - margin + 0.5, window[0].start - margin + 0.5
    points = np.array((*stroke.points, stroke.points[-1]))  # one point alone draws no line
    corners = np.rint((points - origin) * (1 << _FRACTION_BITS)).astype(np.int32)
    height, width = (side.stop - side.start + 2 * margin for side in window)
    whole = np.ones((height, width), np.uint8)
    cv2.polylines(whole, [corners], False, (0,), shift=_FRACTION_BITS)

    def depth(rows: slice, columns: slice) -> Floats:
        free = whole[rows.start : rows.stop + 2 * margin, columns.start : columns.stop + 2 * margin]
        if free.all():
            shape = rows.stop - rows.start, columns.stop - columns.start
            return np.full(shape, -np.inf, np.float32)
        distance = cv2.distanceTransform(free, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
        # Their last bits depend on where the array lies in memory; squares are whole numbers.
        exact = np.sqrt(np.rint(np.square(distance[margin:-margin, margin:-margin])))
        return np.asarray(np.float32(stroke.radius) - exact, np.float32)

    return depth


def restored_reader(stack: Stack, noise: NoiseLaw, index: int, preset: str = "auto") -> PartReader:
    """Open one frame of a noisy stack; every part that is read is restored on its own.

    ``noise`` is that of the stack, as in `Fusion.noise`; ``preset`` restores as in `fuse`.
    """
    read = stack.part_reader(index)
    own = noise.for_stack(len(stack), colour=stack.is_colour).only([index])

    def restored(rows: slice, columns: slice) -> Pixels:
        around = _widened(rows, stack.height), _widened(columns, stack.width)
        part = np.ascontiguousarray(read(*around))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="one frame only")
            fused = fuse([part], noise=own, preset=preset, white=stack.white)
        return np.asarray(fused.image)[relative((rows, columns), around)]

    return restored


def _widened(side: slice, size: int) -> slice:
    """Rows or columns with a halo, as far as the picture goes."""
    start = max(side.start - _HALO, 0) // _MODEL_STEP * _MODEL_STEP
    return slice(start, min(side.stop + _HALO, size))


def retouch(
    image: Pixels,
    frames: Stack,
    strokes: Iterable[Stroke],
    *,
    noise: NoiseLaw | None = None,
    side: int = _SIDE,
) -> Pixels:
    """Paint parts of frames into a copy of a picture, with soft brushes and without seams.

    ``image``, shape (H, W) or (H, W, 3), was fused from ``frames``, which are aligned with it and
    of its dtype. Later strokes lie over earlier ones; what lies off the picture is left out. Pixels
    outside of all strokes keep their exact values, and painting some strokes into the result of
    others is the same as painting all at once. With ``noise``, that of the frames, they are
    restored. ``side`` is that of the tiles to work in, in pixels, a multiple of 64.
    """
    result = np.array(image)
    for stroke in strokes:
        window = stroke.window(image.shape)
        if window is not None:
            index = stroke.frame
            read = restored_reader(frames, noise, index) if noise else frames.part_reader(index)
            _paint(result[window], read, stroke, window, side)
    return result


def painted_from(strokes: Sequence[Stroke], x: int, y: int, shape: tuple[int, ...]) -> int | None:
    """Number of the frame that strokes painted last at a pixel; None if none reaches it."""
    for stroke in reversed(strokes):
        window = stroke.window(shape)
        if window is None or not all(
            side.start <= place < side.stop for side, place in zip(window, (y, x), strict=True)
        ):
            continue
        depth = depth_reader(stroke, (slice(y, y + 1), slice(x, x + 1)))
        if depth(slice(0, 1), slice(0, 1))[0, 0] > 0:
            return stroke.frame
    return None


def _paint(picture: Pixels, read: PartReader, stroke: Stroke, window: Window, side: int) -> None:
    """Paint one stroke into ``picture``, the stroke's window of the result."""
    depth_of, parts = depth_reader(stroke, window), []
    rows, columns = window
    halo = math.ceil(stroke.fade / _STEP) * _STEP
    for tile in tiles_of(picture.shape[:2], max(side, 2 * halo), halo):
        depth = depth_of(*tile.around)
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


def blend(image: NDArray[Any], patch: NDArray[Any], depth: Floats, *, fade: float) -> NDArray[Any]:
    r"""Lay ``patch`` over ``image`` where ``depth`` is positive.

    ``image`` and ``patch`` have one shape, (H, W) or (H, W, 3), and one dtype; ``depth`` is the
    distance of every pixel from the rim in pixels, positive inside, shape (H, W), and ``fade`` the
    depth from which on the result is ``patch``. Outside of the rim the result has the very values
    of ``image``, deep inside those of ``patch``.

    A difference between the two of a certain size is faded in over about that size: fine detail
    over a few pixels, brightness over the whole fade. One ramp for all would show detail double
    where it is wide, and a step of brightness where it is narrow. The difference D becomes a
    Laplacian pyramid; with G its levels of means, U the way up from the next level and a_l a smooth
    ramp 4·2^l pixels wide, all ramps about one line inside of the rim,

    .. math:: B_l = a_l (G_l - U G_{l+1}) + U B_{l+1},

    and the picture gets I + B₀. Where all ramps are 1 the sum telescopes to I + D, the patch
    itself. Means are of pixels inside of the rim only: what lies outside must not matter, and where
    the two agree inside nothing changes.
    """
    inside, solid = depth > 0, depth >= fade
    ring, weight = inside & ~solid, inside.astype(np.float32)
    result = image.copy()
    # Channel by channel: planes that lie in one piece are several times faster to work on.
    planes = (np.atleast_3d(pixels) for pixels in (image, patch, result))
    for old, new, out in zip(*(np.moveaxis(pixels, -1, 0) for pixels in planes), strict=True):
        if ring.any():
            before, after = old.astype(np.float32), new.astype(np.float32)
            mixed = before + _faded((after - before) * weight, weight, depth, fade)
            # Bands may overshoot: values are kept within those that occur here.
            low, high = min(before.min(), after.min()), max(before.max(), after.max())
            np.clip(mixed, low, high, out=mixed)
            if image.dtype.kind == "u":
                np.rint(mixed, out=mixed)
            np.copyto(out, mixed.astype(image.dtype), where=ring)
        np.copyto(out, new, where=solid)
    return result


def _faded(
    sums: Floats, weight: Floats, depth: Floats, fade: float, width: float = _FINEST
) -> Floats:
    """Fade a difference in, from the level whose ramp has this width.

    ``weight`` says how much of each pixel lies inside; ``sums`` is the difference times that. The
    coarsest level's ramp takes most of the fade.
    """
    import cv2

    means = sums / np.maximum(weight, _TINY)
    if 4.0 * width > fade:
        return np.asarray(_ramp(depth, fade, _WIDEST * fade) * means, np.float32)
    small, size = np.asarray(cv2.pyrDown(sums), np.float32), sums.shape[::-1]
    less = np.asarray(cv2.pyrDown(weight), np.float32)
    spread = np.float32(1.0) / np.maximum(cv2.pyrUp(less, dstsize=size), _TINY)
    band = _ramp(depth, fade, width) * (means - spread * cv2.pyrUp(small, dstsize=size))
    coarse = less * _faded(small, less, depth[::2, ::2], fade, 2.0 * width)
    return np.asarray(band + spread * cv2.pyrUp(coarse, dstsize=size), np.float32)


def _ramp(depth: Floats, fade: float, width: float) -> Floats:
    """Rise smoothly from 0 to 1 over ``width`` pixels about the middle of the fade."""
    t = np.clip((depth - np.float32(fade / 2.0)) / np.float32(width) + np.float32(0.5), 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), np.float32)
