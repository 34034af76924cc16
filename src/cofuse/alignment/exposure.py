"""Brightness and white balance: the gain of every channel that makes a frame like the reference.

The gain is a factor about black, whatever the tone curve: twice the light multiplies the values of
a power curve by one factor as well. It is found from thumbnails so blurred that focus makes hardly
a difference, without clipped values and outliers.

No gain may clip what a frame still shows. Where the reference's brightness would do that to a
frame, all frames, the reference too, are made darker by one factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.pyramid import Values, put
from cofuse.alignment.transforms import Transform
from cofuse.images import Stack
from cofuse.images.store import Reduced, shrunk

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
#: Pixels of the thumbnail without which no gain is found.
_LEAST_PIXELS = 50
#: Part of white that values which are not clipped reach at most: one grey level less.
_BELOW_WHITE = 254 / 255


@dataclass(frozen=True)
class Thumbnail:
    """Blurred grey levels of a small copy, (h, w, channels), and where they are not clipped.

    ``largest`` is the largest value of every channel of the frame itself.
    """

    levels: Values
    valid: NDArray[np.bool_]
    largest: tuple[float, ...]


def thumbnail(reduced: Reduced, stack: Stack) -> Thumbnail:
    """Make the thumbnail of a frame from its reduced copy."""
    planes = np.atleast_3d(reduced.pixels)
    clipped = (planes <= _DARK * stack.white) | (planes >= _BRIGHT * stack.ceiling)
    factor = min(_SIDE / max(planes.shape[:2]), 1.0)
    size = (max(round(planes.shape[1] * factor), 1), max(round(planes.shape[0] * factor), 1))
    # Twice as large in the native type, so that rounding to it does not show in the end.
    twice = min((2 * size[0], 2 * size[1]), planes.shape[1::-1])
    levels = stack.to_levels(shrunk(planes, twice))
    part = shrunk(clipped.view(np.uint8) * np.uint8(255), twice) / np.float32(255)
    small, share = (
        cv2.GaussianBlur(cv2.resize(p, size, interpolation=cv2.INTER_AREA), (0, 0), _BLUR)
        for p in (levels, part)
    )
    small, share = (np.asarray(p, np.float32).reshape(*size[::-1], -1) for p in (small, share))
    return Thumbnail(small, share <= _MOST_CLIPPED, reduced.largest)


def exposure_gains(
    thumbnails: Mapping[int, Thumbnail],
    transforms: Sequence[Transform | None],
    reference: int,
    size: tuple[int, int],
    ceiling: float,
    *,
    match: bool = True,
) -> tuple[tuple[float, ...], ...]:
    """Return the gains of all frames; without ``match`` all 1.

    They bring the frames to the reference's brightness, or as near to it as no value below
    ``ceiling``, where light is clipped, reaches it. Frames left out do not count.
    """
    goal = thumbnails[reference]
    channels = range(goal.levels.shape[2])
    gains = [[1.0 for _ in channels] for _ in transforms]
    # By what factor the largest value of a channel exceeds its limit, at most.
    excess = 1.0
    for index, transform in enumerate(transforms):
        if transform is None:
            continue
        thumb = thumbnails[index]
        if match and index != reference:
            parts = (thumb.levels, thumb.valid.astype(np.float32))
            levels, valid = (put(part, transform, size).reshape(part.shape) for part in parts)
            moved = Thumbnail(levels, valid > 0.999, thumb.largest)
            gains[index] = [_gain(goal, moved, channel) for channel in channels]
        for gain, largest in zip(gains[index], thumb.largest, strict=True):
            excess = max(excess, largest / max(largest, _BELOW_WHITE * ceiling) * gain)
    return tuple(tuple(gain / excess for gain in of_frame) for of_frame in gains)


def _gain(goal: Thumbnail, frame: Thumbnail, channel: int) -> float:
    """Return the ratio of one channel's light in the two frames, or 1 where it says nothing."""
    a, b = goal.levels[..., channel], frame.levels[..., channel]
    good = goal.valid[..., channel] & frame.valid[..., channel]
    good &= (a > _LEAST_LEVEL) & (b > _LEAST_LEVEL)
    if good.sum() < _LEAST_PIXELS:
        return 1.0
    ratio = a[good] / b[good]
    off = np.abs(ratio - np.median(ratio))
    near = off <= _OUTLIER * np.median(off) + 1e-6
    # Defocus spreads light but keeps its sum, so sums are compared. The scatter between blocks
    # shows how far defocus may have moved light.
    rows, columns = np.nonzero(good)
    block = rows * _BLOCKS // a.shape[0] * _BLOCKS + columns * _BLOCKS // a.shape[1]
    ours, theirs = (np.bincount(block, p[good] * near, _BLOCKS**2) for p in (a, b))
    gain = float(ours.sum() / theirs.sum())
    error = float(np.linalg.norm(ours - gain * theirs) / theirs.sum())
    return 1.0 if abs(gain - 1.0) <= max(_SAME, _SAME_ERRORS * error) else gain
