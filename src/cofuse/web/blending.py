r"""Blending a patch into a picture so that its rim does not show.

A difference between the two of a certain size is faded in over about that size: fine detail over
a few pixels, brightness over the whole fade. One ramp for all would show detail double where it is
wide, and a step of brightness where it is narrow. The difference D becomes a Laplacian pyramid;
with G its levels of means, U the way up from the next level and a_l a smooth ramp 4·2^l pixels
wide, all ramps about one line inside of the rim,

.. math:: B_l = a_l (G_l - U G_{l+1}) + U B_{l+1},

and the picture gets I + B₀. Where all ramps are 1 the sum telescopes to I + D, the patch itself.
Means are of pixels inside of the rim only: what lies outside must not matter, and where the two
agree inside nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

#: Width of the finest ramp in pixels, and of the widest in fades: it is smeared a little on its way
#: up, and must not reach the patch's core.
_FINEST, _WIDEST = 4.0, 0.75
#: Keeps quotients of nothing by nothing finite.
_TINY = np.float32(1e-12)


def blend(image: NDArray[Any], patch: NDArray[Any], depth: Floats, *, fade: float) -> NDArray[Any]:
    """Lay ``patch`` over ``image`` where ``depth`` is positive.

    ``image`` and ``patch`` have one shape, (H, W) or (H, W, 3), and one dtype; ``depth`` is the
    distance of every pixel from the rim in pixels, positive inside, shape (H, W), and ``fade`` the
    depth from which on the result is ``patch``. Outside of the rim the result has the very values
    of ``image``, deep inside those of ``patch``.
    """
    inside, solid = depth > 0, depth >= fade
    ring = inside & ~solid
    levels = _levels(inside, depth, fade) if ring.any() else []
    result = image.copy()
    # Channel by channel: planes that lie in one piece are several times faster to work on.
    planes = (np.atleast_3d(pixels) for pixels in (image, patch, result))
    for old, new, out in zip(*(np.moveaxis(pixels, -1, 0) for pixels in planes), strict=True):
        if levels:
            before, after = old.astype(np.float32), new.astype(np.float32)
            mixed = before + _faded((after - before) * levels[0].weight, levels)
            # Bands may overshoot: values are kept within those that occur here.
            low, high = min(before.min(), after.min()), max(before.max(), after.max())
            np.clip(mixed, low, high, out=mixed)
            if image.dtype.kind == "u":
                np.rint(mixed, out=mixed)
            np.copyto(out, mixed.astype(image.dtype), where=ring)
        np.copyto(out, new, where=solid)
    return result


@dataclass(frozen=True)
class _Level:
    """What all channels share of a level of the pyramid.

    ``weight`` says how much of each pixel lies inside, ``ramp`` how far its band is faded in, and
    ``spread`` is one over the next level's weight brought up to this one.
    """

    weight: Floats
    ramp: Floats
    spread: Floats | None


def _levels(inside: NDArray[np.bool_], depth: Floats, fade: float) -> list[_Level]:
    """Prepare the levels, the finest first; the last one's ramp takes most of the fade."""
    import cv2

    levels, weight, width = [], inside.astype(np.float32), _FINEST
    while 4.0 * width <= fade:
        small = cv2.pyrDown(weight)
        spread = cv2.pyrUp(small, dstsize=weight.shape[::-1])
        np.divide(np.float32(1.0), np.maximum(spread, _TINY), out=spread)
        levels.append(_Level(weight, _ramp(depth, fade, width), np.asarray(spread, np.float32)))
        weight, depth, width = np.asarray(small, np.float32), depth[::2, ::2], 2.0 * width
    return [*levels, _Level(weight, _ramp(depth, fade, _WIDEST * fade), None)]


def _faded(sums: Floats, levels: list[_Level]) -> Floats:
    """Fade a difference in, given its values times the first level's weight."""
    import cv2

    level, *coarser = levels
    means = sums / np.maximum(level.weight, _TINY)
    if level.spread is None:
        return np.asarray(level.ramp * means, np.float32)
    small = np.asarray(cv2.pyrDown(sums), np.float32)
    size = sums.shape[::-1]
    band = level.ramp * (means - level.spread * cv2.pyrUp(small, dstsize=size))
    coarse = coarser[0].weight * _faded(small, coarser)
    return np.asarray(band + level.spread * cv2.pyrUp(coarse, dstsize=size), np.float32)


def _ramp(depth: Floats, fade: float, width: float) -> Floats:
    """Rise smoothly from 0 to 1 over ``width`` pixels about the middle of the fade."""
    t = np.clip((depth - np.float32(fade / 2.0)) / np.float32(width) + np.float32(0.5), 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), np.float32)
