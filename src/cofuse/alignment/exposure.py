"""Brightness and white balance: the gain of every channel that makes a frame like the reference.

The gain is a factor about black, whatever the tone curve: light that doubles multiplies the
values of a power curve by one factor as well. It is found from thumbnails so blurred that focus
makes hardly a difference; clipped values and outliers do not count.

No gain may cut off what a frame still shows. Where the reference's brightness would do that to a
frame, all frames, the reference too, are made darker by one factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.pyramid import shrunk
from cofuse.alignment.transforms import Transform, to_reduced
from cofuse.images import Pixels, Stack

__all__ = ["Thumbnail", "apply_gains", "exposure_gains", "largest_values", "thumbnail"]

#: Longer side of a thumbnail and the blur over it, in its pixels.
_SIDE, _BLUR = 160, 3.0
#: Parts of white at which values count as clipped.
_DARK, _BRIGHT = 0.004, 0.98
#: Part of a thumbnail's pixel that may be clipped; grey level that a ratio needs.
_MOST_CLIPPED, _LEAST_LEVEL = 0.02, 6.0
#: A gain this close to 1, or closer than its own error times the factor, is 1.
_SAME, _SAME_ERRORS = 0.003, 5.0
#: Multiple of the median deviation beyond which a ratio is an outlier; blocks along a side.
_OUTLIER, _BLOCKS = 5.0, 5
#: Pixels of the thumbnail that a gain is worth finding from.
_LEAST_PIXELS = 50
#: Part of white above which a pixel is led back from its gain to its own value.
_HIGHLIGHT = 0.9
#: Part of white that values below it reach at most: one grey level less.
_BELOW_WHITE = 254 / 255

Values = NDArray[np.float32]


@dataclass(frozen=True)
class Thumbnail:
    """Blurred grey levels of a small copy, (h, w, channels), and where they can be trusted.

    ``largest`` is the largest value of every channel of the frame itself.
    """

    levels: Values
    valid: NDArray[np.bool_]
    largest: tuple[float, ...]


def largest_values(frame: Pixels) -> tuple[float, ...]:
    """Return the largest value of every channel."""
    of_columns = np.asarray(cv2.reduce(frame, 0, cv2.REDUCE_MAX)).reshape(frame.shape[1], -1)
    return tuple(float(value) for value in of_columns.max(axis=0))


def thumbnail(frame: Pixels, stack: Stack, *, largest: tuple[float, ...]) -> Thumbnail:
    """Make the thumbnail of a frame, which may have been reduced before."""
    planes = frame[..., None] if frame.ndim == 2 else frame
    clipped = (planes <= _DARK * stack.white) | (planes >= _BRIGHT * stack.ceiling)
    factor = min(_SIDE / max(frame.shape[:2]), 1.0)
    size = (max(round(frame.shape[1] * factor), 1), max(round(frame.shape[0] * factor), 1))
    # Twice as large in the native type, so that rounding to it does not show in the end.
    twice = min((2 * size[0], 2 * size[1]), frame.shape[1::-1])
    levels = stack.to_levels(shrunk(planes, twice))
    part = shrunk(clipped.view(np.uint8) * np.uint8(255), twice) / np.float32(255)
    small, share = (
        np.atleast_3d(
            cv2.GaussianBlur(cv2.resize(p, size, interpolation=cv2.INTER_AREA), (0, 0), _BLUR)
        ).reshape(size[1], size[0], -1)
        for p in (levels, part)
    )
    return Thumbnail(np.asarray(small, np.float32), share <= _MOST_CLIPPED, largest)


def exposure_gains(
    thumbnails: Mapping[int, Thumbnail],
    transforms: Sequence[Transform | None],
    reference: int,
    size: tuple[int, int],
    ceiling: float,
    *,
    match: bool = True,
) -> tuple[tuple[float, ...], ...]:
    """Return the gains of all frames; all 1 if unasked.

    They bring the frames to the reference's brightness, or as near to it as no value below
    ``ceiling``, where light is cut off, comes to lie there. Frames left out do not count.
    """
    goal = thumbnails[reference]
    ones = (1.0,) * goal.levels.shape[2]
    gains = []
    for index, transform in enumerate(transforms):
        if not match or transform is None or index == reference:
            gains.append(ones)
            continue
        moved = _move(thumbnails[index], transform, size)
        gains.append(tuple(_gain(goal, moved, channel) for channel in range(len(ones))))
    # By what the largest value of a channel would pass what it may become, at the most.
    excess = 1.0
    for index, transform in enumerate(transforms):
        if transform is not None:
            for gain, largest in zip(gains[index], thumbnails[index].largest, strict=True):
                excess = max(excess, largest / max(largest, _BELOW_WHITE * ceiling) * gain)
    return tuple(tuple(gain / excess for gain in channels) for channels in gains)


def _move(thumb: Thumbnail, transform: Transform, size: tuple[int, int]) -> Thumbnail:
    """Bring a thumbnail into the place of the reference's; outside it nothing is valid."""
    height, width = thumb.levels.shape[:2]
    small = to_reduced(size, (height, width))
    matrix = small @ transform.matrix @ np.linalg.inv(small)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    levels, valid = (
        np.asarray(
            cv2.warpPerspective(p, matrix, (width, height), flags=flags), np.float32
        ).reshape(height, width, -1)
        for p in (thumb.levels, thumb.valid.astype(np.float32))
    )
    return Thumbnail(levels, valid > 0.999, thumb.largest)


def _gain(goal: Thumbnail, frame: Thumbnail, channel: int) -> float:
    """Return the ratio of one channel's light in the two frames, or 1 where it says nothing."""
    a, b = goal.levels[..., channel], frame.levels[..., channel]
    good = goal.valid[..., channel] & frame.valid[..., channel]
    good &= (a > _LEAST_LEVEL) & (b > _LEAST_LEVEL)
    if good.sum() < _LEAST_PIXELS:
        return 1.0
    ratio = np.where(good, a / np.maximum(b, _LEAST_LEVEL), 1.0)
    middle = np.median(ratio[good])
    good &= np.abs(ratio - middle) <= _OUTLIER * np.median(np.abs(ratio[good] - middle)) + 1e-6
    # Defocus spreads light but keeps its sum, so sums are compared; the scatter between blocks
    # tells how far focus, and not exposure, may have moved it.
    rows, columns = np.nonzero(good)
    block = rows * _BLOCKS // a.shape[0] * _BLOCKS + columns * _BLOCKS // a.shape[1]
    ours, theirs = (np.bincount(block, p[good], _BLOCKS**2) for p in (a, b))
    gain = float(ours.sum() / theirs.sum())
    error = float(np.linalg.norm(ours - gain * theirs) / theirs.sum())
    return 1.0 if abs(gain - 1.0) <= max(_SAME, _SAME_ERRORS * error) else gain


def apply_gains(values: NDArray[Any], gains: Sequence[float], white: float) -> NDArray[Any]:
    """Multiply float values of native scale by the gains; what is white in all channels stays.

    Between 0.9 and 1 of white, in the darkest channel, gains below 1 fade to 1: a highlight that
    was clipped in all channels must neither turn grey nor take a colour. Larger gains take it
    beyond white, where the caller cuts it off.
    """
    factors = np.asarray(gains, values.dtype)
    if (factors == 1).all():
        return values
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
