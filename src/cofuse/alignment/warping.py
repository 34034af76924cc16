"""Bringing frames into place on reading: warping, the common area, and what fills the rest.

Every frame is interpolated once, from its native values, by OpenCV's Lanczos kernel of 8 x 8
points, which rounds places to a 32nd of a pixel. Frames that need not move, or by whole pixels,
keep their values to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from itertools import product
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.alignment.comparison import Values
from cofuse.alignment.differences import find_field, small
from cofuse.alignment.transforms import Alignment, Transform, shift_by, to_reduced
from cofuse.arguments import check
from cofuse.errors import CofuseError
from cofuse.images import Pixels, Stack

#: Rows and columns that are interpolated at a time: floats of a whole frame would take four times
#: its memory, and OpenCV looks nothing up beyond the 32767th row or column.
_ROWS, _COLUMNS = 256, 8192
#: Pixels the kernel reaches, with one to spare.
_REACH = 5
#: Part of white above which a pixel is led back from its gain to its own value.
_HIGHLIGHT = 0.9
#: Pixels over which a frame fades into what fills the area it does not cover.
_FEATHER = 32
#: Brightness ratio up to which the fill follows the frame.
_MOST_RATIO = 2.0
#: Part of a pixel by which a place may miss a frame through rounding alone.
_ROUNDING = 1e-6

#: A rectangle of the reference: top, bottom, left, right; bottom and right are not part of it.
Area = tuple[int, int, int, int]


def aligned(
    stack: Stack | Sequence[ArrayLike], alignment: Alignment, *, crop: bool = True
) -> Stack:
    """Return the frames that were not left out in the place of the reference, of one brightness.

    The frames are warped when they are read.

    Parameters
    ----------
    stack, alignment
        A `Stack`, or arrays as `Stack.from_arrays` takes them, and what `align_stack` found about
        them, now or in an earlier run.
    crop
        Whether to cut off what not all frames cover. Otherwise the result has the reference's size.
        Where a frame has nothing it shows the reference's pixels, brought to the frame's brightness
        and faded in over 32 pixels.
    """
    stack = Stack.of(stack)
    check("alignment", alignment, "what align_stack found", lambda a: isinstance(a, Alignment))
    check_fits(stack, alignment)
    if alignment.changes_nothing:
        return stack
    size = alignment.size
    transforms = {k: found for k, found in enumerate(alignment.transforms) if found is not None}
    whole = (0, size[0], 0, size[1])
    area = common_area(list(transforms.values()), size) if crop else whole

    def read(index: int) -> Pixels:
        """Read a frame, bring it into place, and fill what it does not cover."""
        frame, field = stack[index], None
        if alignment.parallax and index != alignment.reference:
            field = find_field(goal(), small(frame, stack), transforms[index], size)
        gains, found = alignment.gains[index], transforms[index]
        moved = warp(frame, found, field, area=area, gains=gains, white=stack.ceiling)
        return moved if crop else _filled(moved, reference, found)

    goal = cache(lambda: small(stack[alignment.reference], stack))
    reference = cache(partial(read, alignment.reference))
    made = stack.made_into(
        [partial(read, index) for index in transforms],
        names=[stack.names[index] for index in transforms],
        shape=(area[1] - area[0], area[3] - area[2], *stack.shape[2:]),
    )
    made.reference = alignment.kept.index(alignment.reference)
    return made


def check_fits(stack: Stack, alignment: Alignment) -> None:
    """Refuse an alignment that was made for other frames."""
    height, width = alignment.size
    channels = 3 if stack.is_colour else 1
    facts: list[tuple[str, Any, Any]] = [
        ("{} frames", len(alignment.names), len(stack)),
        ("frames of {} px", f"{width}x{height}", f"{stack.width}x{stack.height}"),
        *(("frames of {} channel(s)", len(gains), channels) for gains in alignment.gains),
        *(("a frame {!r}", *names) for names in zip(alignment.names, stack.names, strict=False)),
    ]
    for words, theirs, ours in facts:
        if theirs != ours:
            raise CofuseError(
                f"the alignment is for {words.format(theirs)} but the stack has "
                f"{words.format(ours)}; align this stack anew, or give the frames it was made for, "
                "in the same order and by the same names"
            )


def warp(
    frame: Pixels,
    transform: Transform,
    field: Values | None = None,
    *,
    area: Area | None = None,
    gains: Sequence[float] = (1.0,),
    white: float = 1.0,
) -> Pixels:
    """Look a frame up at the transformed pixels of an area of the reference (default: all).

    Pixels are first shifted by a field, if there is one. Values stay within those of the frame,
    times the gains; integers are rounded. Outside the frame its border is repeated. After a shift
    by whole pixels within the frame, without gains, the result is a view of the frame.
    """
    top, bottom, left, right = area = area or (0, frame.shape[0], 0, frame.shape[1])
    shift = transform.whole_shift if field is None else None
    if shift is not None and all(gain == 1 for gain in gains):
        return _shifted(frame, shift, area)
    working = np.result_type(frame, np.float32)
    low, high = working.type(frame.min()), working.type(frame.max())
    out = np.empty((bottom - top, right - left, *frame.shape[2:]), frame.dtype)
    for y, x in product(range(top, bottom, _ROWS), range(left, right, _COLUMNS)):
        part = (y, min(y + _ROWS, bottom), x, min(x + _COLUMNS, right))
        if shift is not None:
            values = _shifted(frame, shift, part).astype(working)
        else:
            values = _interpolated(frame, transform, field, part, working)
            np.clip(values, low, high, out=values)
        if any(gain != 1 for gain in gains):
            values = np.minimum(apply_gains(values, gains, white), max(float(high), white))
        here = out[y - top : part[1] - top, x - left : part[3] - left]
        here[:] = values if out.dtype.kind == "f" else np.rint(values, out=values)
    return out


def _shifted(frame: Pixels, shift: tuple[int, int], area: Area) -> Pixels:
    """Cut an area out of a frame, moved by whole pixels; its border is repeated outside."""
    y, x = np.arange(area[0], area[1]) + shift[1], np.arange(area[2], area[3]) + shift[0]
    if min(y[0], x[0]) >= 0 and y[-1] < frame.shape[0] and x[-1] < frame.shape[1]:
        return frame[y[0] : y[-1] + 1, x[0] : x[-1] + 1]
    y, x = (np.clip(at, 0, side - 1) for at, side in zip((y, x), frame.shape[:2], strict=True))
    return np.asarray(frame[y[:, None], x])


def _interpolated(
    frame: Pixels, transform: Transform, field: Values | None, area: Area, working: np.dtype[Any]
) -> NDArray[Any]:
    """Look a frame up as floats in an area that OpenCV can take at once."""
    top, bottom, left, right = area
    x, y = np.arange(right - left, dtype=np.float32), np.arange(bottom - top, dtype=np.float32)
    y = y[:, None]
    if field is not None:
        to_field = to_reduced(frame.shape, field.shape) @ shift_by(left, top)
        flags, border = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, cv2.BORDER_REPLICATE
        part = right - left, bottom - top
        shifts = cv2.warpAffine(field, to_field[:2], part, flags=flags, borderMode=border)
        x, y = x + shifts[..., 0], y + shifts[..., 1]
    # Relative to a corner of the area places are small, and float32 is exact to a thousandth.
    corner = np.floor(transform((left, top)))
    matrix = shift_by(*-corner) @ transform.matrix @ shift_by(left, top)
    to_u, to_v, to_down = matrix.astype(np.float32)
    u, v = (a * x + (b * y + c) for a, b, c in (to_u, to_v))
    if to_down[:2].any():
        down = to_down[0] * x + (to_down[1] * y + to_down[2])
        u, v = u / down, v / down
    # Only what is looked up becomes floats.
    size = np.array(frame.shape[1::-1])
    low, high = np.array([u.min(), v.min()]), np.array([u.max(), v.max()])
    first = np.clip(corner + np.floor(low) - _REACH, 0, size - 1).astype(int)
    last = np.clip(corner + np.ceil(high) + _REACH, first, size - 1).astype(int)
    source = frame[first[1] : last[1] + 1, first[0] : last[0] + 1].astype(working)
    u, v = (at + np.float32(c - f) for at, c, f in zip((u, v), corner, first, strict=True))
    return np.asarray(cv2.remap(source, u, v, cv2.INTER_LANCZOS4, borderMode=cv2.BORDER_REPLICATE))


def apply_gains(values: NDArray[Any], gains: Sequence[float], white: float) -> NDArray[Any]:
    """Multiply float values of native scale by the gains; what is white in all channels stays.

    Between 0.9 and 1 of white, in the darkest channel, gains below 1 fade to 1: a clipped highlight
    must neither turn grey nor take a colour. Larger gains exceed white, where the caller clips.
    """
    factors = np.asarray(gains, values.dtype)
    planes = values if values.ndim == 3 else values[..., None]
    result = np.empty_like(planes)
    for channel in range(planes.shape[2]):  # NumPy is slow along an axis of three
        np.multiply(planes[..., channel], factors[channel], out=result[..., channel])
    darkest = reduce(np.minimum, np.moveaxis(planes, 2, 0))
    bright = darkest > _HIGHLIGHT * white
    if (factors < 1).any() and bright.any():
        fade = np.clip((darkest[bright] / white - _HIGHLIGHT) / (1 - _HIGHLIGHT), 0, 1)
        fade = (fade * fade * (3 - 2 * fade)).astype(values.dtype)[:, None]
        result[bright] = planes[bright] * (factors + np.maximum(1 - factors, 0) * fade)
    return result.reshape(values.shape)


def common_area(transforms: Sequence[Transform], size: tuple[int, int]) -> Area:
    """Return the largest rectangle of reference pixels that all frames cover.

    A frame covers a pixel whose place in it is not beyond the centres of its border pixels. Each
    such region is convex, so rows bound an interval and a rectangle is bounded by its end rows.
    """
    left, right = np.zeros(size[0]), np.full(size[0], size[1] - 1.0)
    for transform in transforms:
        first, last = _covered(transform, size)
        left, right = np.maximum(left, first), np.minimum(right, last)
    best, area = 0.0, (0, 0, 0, 0)
    for top in range(size[0]):
        wide = np.minimum(right[top], right[top:]) - np.maximum(left[top], left[top:]) + 1
        pixels = np.maximum(wide, 0) * np.arange(1, size[0] - top + 1)
        height = int(pixels.argmax())
        if pixels[height] > best:
            best = float(pixels[height])
            start = int(max(left[top], left[top + height]))
            area = (top, top + height + 1, start, start + int(wide[height]))
    if best == 0:
        raise CofuseError(
            "the aligned frames have no area in common; keep the size of the reference instead of "
            "cropping, or leave out the frames that lie farthest away"
        )
    return area


def _covered(transform: Transform, size: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return of every row of the reference the first and the last column that a frame covers."""
    to_u, to_v, down = transform.matrix
    # 0 <= u/d <= W - 1 and the same for v, with d > 0: five half-planes a x + b y + c >= 0.
    planes = np.stack([to_u, (size[1] - 1) * down - to_u, to_v, (size[0] - 1) * down - to_v, down])
    a, b, c = planes.T[..., None]
    # A frame that misses a place by rounding alone covers it.
    rest = b * np.arange(size[0], dtype=np.float64) + c + _ROUNDING
    # A half-plane along the rows bounds x by about ±infinity.
    slope = np.where(np.abs(a) < 1e-15, 1e-15, a)
    bounds = -rest / slope
    low = np.max(bounds, axis=0, where=slope > 0, initial=0.0)
    high = np.min(bounds, axis=0, where=slope < 0, initial=size[1] - 1.0)
    return np.ceil(low - _ROUNDING), np.floor(high + _ROUNDING)


def _filled(moved: Pixels, reference: Callable[[], Pixels], transform: Transform) -> Pixels:
    """Put the reference where a frame covers nothing, faded in over a band inside its border."""
    first, last = _covered(transform, moved.shape)
    x = np.arange(moved.shape[1])
    covered = (x >= first[:, None]) & (x <= last[:, None])
    if covered.all():
        return moved
    goal = reference()
    # The border of the reference is no border of the frame: only uncovered pixels are.
    distance = cv2.distanceTransform(covered.astype(np.uint8), cv2.DIST_L2, 5)
    touched = distance <= _FEATHER
    weight = np.clip(distance[touched] / _FEATHER, 0, 1).astype(np.float64)
    weight = weight * weight * (3 - 2 * weight)
    weight = weight[:, None] if moved.ndim == 3 else weight
    # Brightness of the frame over that of the reference along the border, by channel.
    ratio: Any = 1.0
    band = (distance > 0) & touched
    if band.any():
        ours, theirs = (np.mean(p[band], axis=0, dtype=np.float64) for p in (moved, goal))
        ratio = np.divide(ours, theirs, out=np.ones_like(np.asarray(ours)), where=theirs > 0)
    filled = goal[touched] * np.clip(ratio, 1 / _MOST_RATIO, _MOST_RATIO)
    filled = np.minimum(filled, max(goal.max(), moved.max()))
    mixed = weight * moved[touched] + (1 - weight) * filled
    result = moved.copy()
    result[touched] = mixed if moved.dtype.kind == "f" else np.rint(mixed)
    return result
