"""Bringing frames into place: warping on reading, the common area, and what fills the rest.

Every frame is interpolated once, by Lanczos' kernel of eight points, straight from its native
values; frames that need not move keep theirs to the last bit. Where there is parallax the place
of every pixel is its own, and four points make the kernel: on six such stacks eight gave 0.03 dB
more, and took six times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.alignment.exposure import apply_gains
from cofuse.alignment.parallax import Field, find_field, small
from cofuse.alignment.stack import Alignment
from cofuse.alignment.transforms import Transform
from cofuse.arguments import check
from cofuse.errors import CofuseError
from cofuse.images import Pixels, Stack

__all__ = ["Area", "aligned", "check_fits", "common_area", "warp"]

#: Rows that are interpolated at a time: floats of a whole frame would take four times its memory.
_STRIP = 256
#: Columns that OpenCV interpolates at a time: it looks nothing up beyond the 32767th.
_STRIP_WIDTH = 8192
#: Pixels the kernel reaches, with one to spare.
_REACH = 5
#: Sine of the turn and factor of the scale up to which rows and columns are interpolated in turn.
_MOST_TURN, _MOST_SCALE = 0.1, 2.0
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
    """Return a stack with its kept frames in the place of the reference, and of one brightness.

    The frames are warped when they are read.

    Parameters
    ----------
    stack, alignment
        A `Stack`, or arrays as `Stack.from_arrays` takes them, and what `align_stack` found about
        them, now or in an earlier run.
    crop
        Whether to cut off what not all frames cover. Otherwise the reference's size is kept, and
        where a frame has nothing it shows the reference's pixels, brought to the frame's
        brightness and faded in over 32 pixels: no frame shows anything that was not there, and
        where two frames are equal the choice between them does not matter.
    """
    stack = Stack.of(stack)
    check("alignment", alignment, "what align_stack found", lambda a: isinstance(a, Alignment))
    check_fits(stack, alignment)
    transforms = [alignment.transforms[k] for k in alignment.kept]
    if alignment.changes_nothing:
        return stack
    area = everywhere = (0, stack.height, 0, stack.width)
    if crop:
        area = common_area([t for t in transforms if t is not None], alignment.size)
    reference = cache(partial(_moved, stack, alignment, alignment.reference, everywhere))
    goal = cache(lambda: small(stack[alignment.reference], stack)) if alignment.parallax else None
    readers: list[Callable[[], Pixels]] = [
        partial(_read, stack, alignment, index, area, reference, goal) for index in alignment.kept
    ]
    names = [stack.names[k] for k in alignment.kept]
    shape = (area[1] - area[0], area[3] - area[2], *stack.shape[2:])
    made = stack.made_into(readers, names=names, shape=shape)
    made.reference = alignment.kept.index(alignment.reference)
    return made


def check_fits(stack: Stack, alignment: Alignment) -> None:
    """Refuse an alignment that was made for other frames."""
    if len(stack) != len(alignment.names):
        raise CofuseError(
            f"the alignment is for {len(alignment.names)} frames but the stack has {len(stack)}; "
            "align this stack anew"
        )
    if (stack.height, stack.width) != alignment.size:
        raise CofuseError(
            f"the alignment is for frames of {alignment.size[1]}x{alignment.size[0]} px but these "
            f"are {stack.width}x{stack.height} px; align this stack anew"
        )
    channels = 3 if stack.is_colour else 1
    if any(len(gains) != channels for gains in alignment.gains):
        raise CofuseError(
            f"the alignment is not for frames of {channels} channel(s); align this stack anew"
        )
    for theirs, ours in zip(alignment.names, stack.names, strict=True):
        if theirs != ours:
            raise CofuseError(
                f"the alignment is for a frame {theirs!r} where the stack has {ours!r}; align this "
                "stack anew, or give the frames in the same order and by the same names"
            )


def _read(
    stack: Stack,
    alignment: Alignment,
    index: int,
    area: Area,
    reference: Callable[[], Pixels],
    goal: Callable[[], NDArray[np.float32]] | None,
) -> Pixels:
    """Read one frame, warped into an area of the reference, and fill what it does not cover."""
    transform, moved = alignment.transforms[index], _moved(stack, alignment, index, area, goal)
    assert transform is not None  # only kept frames are read
    if not _covers(transform, alignment.size, area):
        moved = moved if moved.flags.owndata else moved.copy()
        there = reference()[area[0] : area[1], area[2] : area[3]]
        _fill(moved, there, transform, alignment.size, area)
    return moved


def _moved(
    stack: Stack,
    alignment: Alignment,
    index: int,
    area: Area,
    goal: Callable[[], NDArray[np.float32]] | None = None,
) -> Pixels:
    """Read one frame, moved, bent onto a goal, and made brighter or darker."""
    transform, gains = alignment.transforms[index], alignment.gains[index]
    assert transform is not None
    frame = stack[index]
    if goal is not None and index != alignment.reference:
        field = find_field(goal(), small(frame, stack), transform, alignment.size)
        return _interpolated(frame, transform, area, gains, stack.ceiling, field)
    if transform.is_identity and all(gain == 1 for gain in gains):
        return frame[area[0] : area[1], area[2] : area[3]]
    return warp(frame, transform, area=area, gains=gains, white=stack.ceiling)


def warp(
    frame: Pixels,
    transform: Transform,
    *,
    area: Area | None = None,
    gains: Sequence[float] = (1.0,),
    white: float = 1.0,
) -> Pixels:
    """Look a frame up at the transformed pixels of an area of the reference (default: all).

    Values stay within those of the frame, times the gains; integers are rounded. Outside the
    frame its border is repeated. A shift by whole pixels within the frame alone copies nothing:
    the result is then a view of the frame.
    """
    area = area or (0, frame.shape[0], 0, frame.shape[1])
    shift = transform.whole_shift
    if shift is None:
        return _interpolated(frame, transform, area, gains, white)
    moved = _shifted(frame, shift, area)
    if all(gain == 1 for gain in gains):
        return moved
    out, ceiling = np.empty_like(moved, order="C"), max(float(frame.max()), white)
    for top in range(0, len(moved), _STRIP):
        strip = moved[top : top + _STRIP]
        values = strip.astype(np.float64 if frame.dtype == np.float64 else np.float32)
        _finish(values, gains, white, ceiling, out[top : top + _STRIP])
    return out


def _turns_little(transform: Transform) -> bool:
    """Whether a transform is affine and near enough to a shift for two passes."""
    linear = transform.matrix[:2, :2]
    apart = np.abs(linear - np.diag(np.diag(linear))).max()
    scale = np.diag(linear)
    return bool(
        (transform.matrix[2, :2] == 0).all()
        and apart <= _MOST_TURN
        and scale.min() >= 1 / _MOST_SCALE
        and scale.max() <= _MOST_SCALE
    )


def _shifted(frame: Pixels, shift: tuple[int, int], area: Area) -> Pixels:
    """Cut an area out of a frame, moved by whole pixels; its border is repeated outside."""
    top, bottom, left, right = area
    rows, columns = (top + shift[1], bottom + shift[1]), (left + shift[0], right + shift[0])
    inside = min(rows[0], columns[0]) >= 0
    if inside and rows[1] <= frame.shape[0] and columns[1] <= frame.shape[1]:
        return frame[rows[0] : rows[1], columns[0] : columns[1]]
    y, x = (
        np.clip(np.arange(*ends), 0, size - 1)
        for ends, size in zip((rows, columns), frame.shape[:2], strict=True)
    )
    return np.asarray(frame[y[:, None], x])


def _finish(
    values: NDArray[Any], gains: Sequence[float], white: float, ceiling: float, out: Pixels
) -> None:
    """Multiply floats by the gains, limit them, and write them in the type of the frame."""
    if any(gain != 1 for gain in gains):
        values = np.minimum(apply_gains(values, gains, white), ceiling)
    out[:] = values if out.dtype.kind == "f" else np.rint(values, out=values)


def _interpolated(
    frame: Pixels,
    transform: Transform,
    area: Area,
    gains: Sequence[float],
    white: float,
    field: Field | None = None,
    *,
    two_passes: bool = True,
) -> Pixels:
    """Interpolate under any transform, after the shifts of a field, strip by strip.

    Two passes, along rows and then along columns, are several times faster than OpenCV, and do not
    round places to a 32nd of a pixel. They need float32 and a transform that turns little.
    """
    frame = np.ascontiguousarray(frame)
    top, bottom, left, right = area
    working: type[Any] = np.float64 if frame.dtype == np.float64 else np.float32
    low, high = working(frame.min()), working(frame.max())
    ceiling = max(float(high), white)
    out = np.empty((bottom - top, right - left, *frame.shape[2:]), frame.dtype)
    two_passes &= field is None and working is np.float32 and _turns_little(transform)
    look_up = _in_two_passes if two_passes else partial(_by_opencv, field=field)
    for y, x in product(range(top, bottom, _STRIP), range(left, right, _STRIP_WIDTH)):
        rows, columns = slice(y, min(y + _STRIP, bottom)), slice(x, min(x + _STRIP_WIDTH, right))
        strip = look_up(frame, transform, rows, columns, working)
        np.clip(strip, low, high, out=strip)
        part = out[y - top : rows.stop - top, x - left : columns.stop - left]
        _finish(strip, gains, white, ceiling, part)
    return out


def _in_two_passes(
    frame: Pixels, transform: Transform, rows: slice, columns: slice, working: type[Any]
) -> NDArray[Any]:
    """Interpolate a strip by the compiled loops."""
    from cofuse.alignment.resampling import resample

    planes = frame.reshape(*frame.shape[:2], -1)
    planes.flags.writeable = False  # one compiled version serves frames of either kind
    size = rows.stop - rows.start, columns.stop - columns.start
    strip = np.empty((*size, planes.shape[2]), working)
    to_frame = transform.matrix @ _shift(columns.start, rows.start)
    resample(planes, strip, tuple(to_frame[:2].ravel().tolist()))
    return strip.reshape(*size, *frame.shape[2:])


def _by_opencv(
    frame: Pixels,
    transform: Transform,
    rows: slice,
    columns: slice,
    working: type[Any],
    *,
    field: Field | None,
) -> NDArray[Any]:
    """Interpolate a strip by OpenCV, under any transform and field."""
    x, y = columns.start, rows.start
    width, height = columns.stop - x, rows.stop - y
    matrix = transform.matrix @ _shift(x, y)
    across, down = ((0.0, 0.0), (0.0, 0.0)) if field is None else zip(*field.bounds, strict=True)
    ends_x, ends_y = (across[0], width + across[1]), (down[0], height + down[1])
    ends = Transform(matrix, "homography")(list(product(ends_x, ends_y)))
    # Only what the strip needs becomes floats.
    size = np.array(frame.shape[1::-1])
    first = np.clip(np.floor(ends.min(axis=0)) - _REACH, 0, size - 1).astype(int)
    last = np.clip(np.ceil(ends.max(axis=0)) + _REACH, first, size - 1).astype(int)
    source: NDArray[Any] = np.ascontiguousarray(
        frame[first[1] : last[1] + 1, first[0] : last[0] + 1], working
    )
    matrix = _shift(-first[0], -first[1]) @ matrix
    border = cv2.BORDER_REPLICATE
    if field is not None:
        places = _places(matrix, field(x, y, width, height))
        return np.asarray(cv2.remap(source, *places, cv2.INTER_CUBIC, borderMode=border))
    flags = cv2.INTER_LANCZOS4 | cv2.WARP_INVERSE_MAP
    strip = cv2.warpPerspective(source, matrix, (width, height), flags=flags, borderMode=border)
    return np.asarray(strip)


def _shift(x: float, y: float) -> NDArray[np.float64]:
    return np.array([[1.0, 0, x], [0, 1.0, y], [0, 0, 1.0]])


def _places(
    matrix: NDArray[np.float64], shifts: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Transform the shifted pixels of a strip."""
    h = matrix.astype(np.float32)
    x = shifts[..., 0] + np.arange(shifts.shape[1], dtype=np.float32)
    y = shifts[..., 1] + np.arange(shifts.shape[0], dtype=np.float32)[:, None]
    u, v, down = (row[0] * x + row[1] * y + row[2] for row in h)
    return (u, v) if not h[2, :2].any() else (u / down, v / down)


def common_area(transforms: Sequence[Transform], size: tuple[int, int]) -> Area:
    """Return the largest rectangle of reference pixels that all frames cover.

    A frame covers a pixel whose place in it is not beyond the centres of its border pixels. Each
    such region is convex, so rows bound an interval and a rectangle is bounded by its end rows.
    """
    left, right = np.zeros(size[0]), np.full(size[0], size[1] - 1.0)
    for transform in transforms:
        low, high = _covered(transform, size, np.arange(size[0], dtype=np.float64))
        left, right = np.maximum(left, low), np.minimum(right, high)
    left, right = np.ceil(left - _ROUNDING), np.floor(right + _ROUNDING)
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


def _covered(
    transform: Transform, size: tuple[int, int], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for rows y of the reference the x between which a frame covers them."""
    to_u, to_v, down = transform.matrix
    # 0 <= u/d <= W - 1 and the same for v, with d > 0: five half-planes a x + b y + c >= 0.
    planes = (to_u, (size[1] - 1) * down - to_u, to_v, (size[0] - 1) * down - to_v, down)
    low, high = np.full(y.shape, -np.inf), np.full(y.shape, np.inf)
    for a, b, c in planes:
        # A frame that misses a place by rounding alone covers it.
        rest = b * y + c + _ROUNDING
        if abs(a) < 1e-15:
            high[rest < 0] = -np.inf
        elif a > 0:
            low = np.maximum(low, -rest / a)
        else:
            high = np.minimum(high, -rest / a)
    return low, high


def _covers(transform: Transform, size: tuple[int, int], area: Area) -> bool:
    """Whether a frame covers all of an area; its corners tell, the region being convex."""
    top, bottom, left, right = area
    low, high = _covered(transform, size, np.array([top, bottom - 1.0]))
    return bool((low <= left + _ROUNDING).all() and (high >= right - 1 - _ROUNDING).all())


def _fill(
    moved: Pixels, reference: Pixels, transform: Transform, size: tuple[int, int], area: Area
) -> None:
    """Put the reference where a frame covers nothing, faded in over a band inside its border."""
    rows = np.arange(area[0], area[1], dtype=np.float64)
    low, high = (np.clip(x, -1, size[1]) for x in _covered(transform, size, rows))
    x = np.arange(area[2], area[3])
    covered = (x >= low[:, None] - _ROUNDING) & (x <= high[:, None] + _ROUNDING)
    # The border of the reference is no border of the frame: only uncovered pixels are.
    distance = cv2.distanceTransform(covered.astype(np.uint8), cv2.DIST_L2, 5)
    ratio = _border_ratio(moved, reference, (distance > 0) & (distance <= _FEATHER))
    touched = distance <= _FEATHER
    weight = np.clip(distance[touched] / _FEATHER, 0, 1).astype(np.float64)
    weight = weight * weight * (3 - 2 * weight)
    weight = weight[:, None] if moved.ndim == 3 else weight
    filled = np.minimum(reference[touched] * ratio, max(reference.max(), moved.max()))
    mixed = weight * moved[touched] + (1 - weight) * filled
    moved[touched] = mixed if moved.dtype.kind == "f" else np.rint(mixed)


def _border_ratio(moved: Pixels, reference: Pixels, band: NDArray[np.bool_]) -> Any:
    """Brightness of a frame over that of the reference along its border, by channel."""
    if not band.any():
        return 1.0
    ours = np.mean(moved[band], axis=0, dtype=np.float64)
    theirs = np.mean(reference[band], axis=0, dtype=np.float64)
    ratio = np.divide(ours, theirs, out=np.ones_like(np.asarray(ours)), where=theirs > 0)
    return np.clip(ratio, 1 / _MOST_RATIO, _MOST_RATIO)
