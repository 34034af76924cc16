"""What frames differ in, once their transforms are known: brightness, and parallax.

*Brightness.* The gain of a channel is a factor about black, whatever the tone curve: twice the
light multiplies the values of a power curve by one factor as well. It is found from thumbnails so
blurred that focus makes hardly a difference, without clipped values and outliers. No gain may clip
what a frame still shows. Where the reference's brightness would do that to a frame, all frames, the
reference too, are made darker by one factor.

*Parallax.* Near and far shift against each other, and no transform of the whole undoes it. Frames
in the place that their transform gives them, reduced to a million pixels at most, are brought onto
the reference by a *field*: a shift for every place, found by dense inverse search (OpenCV's
``DISOpticalFlow``) from the reference to the frame and back. Where both ways agree the shift
counts; between such places it is interpolated.

Between frames that differ in focus alone such a search drags outlines towards where blur makes
them seem to be. So a stack is tested first: the band-passed frame is compared with the reference
in windows, in its place and shifted. With the correlations r₀ and r a place *speaks for moving* if
both ways agree and

    1 - r₀²  >  2 (1 - r²):

the shift explains half of what was unexplained. Blur takes height from a band, not correlation, so
a shift that follows blur gains little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.comparison import LEAST_DETAIL, Values, band_pass, white_noise
from cofuse.alignment.transforms import Transform, to_reduced
from cofuse.images import Pixels, Stack, luminance
from cofuse.images.store import Reduced, reduce, shrunk

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

#: Pixels that frames are reduced to. A fifth of a pixel there is one in 24 million.
_MOST_PIXELS = 1_000_000
#: Shorter side below which no stack has parallax: a few patches of the search, which are 8 wide.
_LEAST_SIDE = 32
#: Frames that are tested, besides the reference. They stay in memory until all are aligned.
_MOST_TESTED = 8
#: Part of the detail, in the mean of the frames tested, that must speak for moving. Six stacks with
#: parallax have 0.45 to 0.67; fifty-four stacks and pairs without have at most 0.09.
_LEAST_MOVING = 0.2
#: Pixels by which the way there and back may miss its start: the finest detail that is compared is
#: about four long, and half a wave aside it is another.
_AGREES = 2.0
#: Band-pass (difference of two Gaussians) and window (Gaussian) of the comparison. The window
#: holds about twenty independent values of the band.
_FINE, _COARSE, _WINDOW = 1.0, 4.0, 8.0
#: Multiple of the power of noise and rounding that is detail.
_DETAIL = 4.0
#: A field is the mean of the shifts around, in Gaussian windows of these widths. Each counts only
#: where those before are empty; where all are, the field is 0.
_WIDTHS, _NEXT = (2.0, 8.0, 32.0), 0.01


def put(
    picture: NDArray[Any],
    transform: Transform,
    size: tuple[int, int],
    border: int = cv2.BORDER_CONSTANT,
) -> NDArray[Any]:
    """Bring the reduced copy of a frame of a (height, width) into its place, bilinearly."""
    to_small = to_reduced(size, picture.shape)
    matrix = to_small @ transform.matrix @ np.linalg.inv(to_small)
    across, flags = picture.shape[1::-1], cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpPerspective(picture, matrix, across, flags=flags, borderMode=border))


# --- brightness ----------------------------------------------------------------------------------


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


def gains_of(
    thumbnails: Mapping[int, Thumbnail],
    transforms: Sequence[Transform | None],
    reference: int,
    size: tuple[int, int],
    ceiling: float,
) -> tuple[tuple[float, ...], ...]:
    """Return the gains of all frames.

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
        if index != reference:
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


# --- parallax ------------------------------------------------------------------------------------


def small(frame: Pixels, stack: Stack) -> Values:
    """Return the luminance of a frame, which may have been reduced before, in grey levels."""
    reduced = reduce(frame, _MOST_PIXELS)
    return np.ascontiguousarray(luminance(stack.to_levels(reduced)), np.float32)


def frames_to_test(count: int, reference: int) -> frozenset[int]:
    """Choose the frames to test for parallax: the reference and at most eight others, evenly."""
    others = [k for k in range(count) if k != reference]
    chosen = np.linspace(0, len(others) - 1, min(len(others), _MOST_TESTED)).round().astype(int)
    return frozenset([reference, *(others[k] for k in chosen)])


def shows_parallax(
    pictures: Mapping[int, Values],
    transforms: Sequence[Transform | None],
    reference: int,
    size: tuple[int, int],
) -> bool:
    """Say whether frames, `small` and by their indices, lie better when bent."""
    goal = pictures[reference]
    if min(goal.shape) < _LEAST_SIDE:
        return False
    parts = []
    for index, picture in pictures.items():
        transform = transforms[index]
        if index == reference or transform is None:
            continue
        placed, cover, shifts, apart = _there_and_back(goal, picture, transform, size)
        noise = max(white_noise(goal), white_noise(placed))
        three = (goal, placed, _looked_up(placed, shifts))
        (band, floor), (stiff, _), (bent, _) = (band_pass(p, noise, _FINE, _COARSE) for p in three)
        before, power = _unexplained(band, stiff, floor)
        after, _ = _unexplained(band, bent, floor)
        detail = (power > _DETAIL * floor) & cover
        speaks = (before > 2 * after) & (apart < _AGREES) & detail
        parts.append(float(speaks.sum()) / max(float(detail.sum()), LEAST_DETAIL * detail.size))
    return bool(parts) and float(np.mean(parts)) >= _LEAST_MOVING


def find_field(
    reference: Values, frame: Values, transform: Transform, size: tuple[int, int]
) -> Values:
    """Find how a frame, in its place by its transform, is to be bent; both are `small`.

    The shifts (x, y) are in pixels of the reference of this size, (h, w, 2) at those of `small`.
    The transform of the frame is then applied to the shifted pixels.
    """
    _, cover, shifts, apart = _there_and_back(reference, frame, transform, size)
    trust = np.asarray(cover / (1 + (apart / _AGREES) ** 4), np.float32)
    total = np.zeros_like(shifts)
    weights = np.full(trust.shape, _NEXT ** (len(_WIDTHS) - 1), np.float32)
    for n, width in enumerate(_WIDTHS):
        total += _NEXT**n * cv2.GaussianBlur(shifts * trust[..., None], (0, 0), width)
        weights += _NEXT**n * cv2.GaussianBlur(trust, (0, 0), width)
    scale = np.diag(to_reduced(size, reference.shape))[:2].astype(np.float32)
    return np.asarray(total / weights[..., None] / scale, np.float32)


def _there_and_back(
    reference: Values, frame: Values, transform: Transform, size: tuple[int, int]
) -> tuple[Values, NDArray[np.bool_], Values, Values]:
    """Return a reduced frame in its place and where it covers the reference.

    Also return the shifts from the reference to it, and how far the way back misses.
    """
    placed = put(frame, transform, size, cv2.BORDER_REPLICATE)
    cover = put(np.ones_like(frame), transform, size) >= 1
    top = max(float(np.quantile(reference, 0.999)), 1e-3)
    gain = float(reference.sum()) / max(float(placed.sum()), 1e-3)
    a, b = (
        np.clip(np.rint(p * (factor * 255 / top)), 0, 255).astype(np.uint8)
        for p, factor in ((reference, 1.0), (placed, gain))
    )
    # Shifts given to it would be a first guess, so none are; OpenCV's types do not know that.
    search: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    there, back = search.calc(a, b, None), search.calc(b, a, None)
    missed = there + _looked_up(back, there)
    return placed, cover, there, np.asarray(np.hypot(missed[..., 0], missed[..., 1]))


def _looked_up(picture: Values, shifts: Values) -> Values:
    """Look a picture up at its shifted pixels."""
    x = np.arange(picture.shape[1], dtype=np.float32) + shifts[..., 0]
    y = np.arange(picture.shape[0], dtype=np.float32)[:, None] + shifts[..., 1]
    return np.asarray(cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE))


def _unexplained(a: Values, b: Values, floor: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return 1 - r² of windows around every pixel, and the lesser of their powers."""
    common, of_a, of_b = (cv2.GaussianBlur(p, (0, 0), _WINDOW) for p in (a * b, a * a, b * b))
    # With a floor under the powers pictures of noise alone correlate by little.
    correlation = np.maximum(common, 0) / np.sqrt((of_a + floor) * (of_b + floor))
    return 1 - correlation**2, np.minimum(of_a, of_b)
