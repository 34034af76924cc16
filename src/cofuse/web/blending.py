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
