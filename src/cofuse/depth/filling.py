"""Values where there are none: spread from reliable neighbours, not across edges of a picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["diffuse", "enlarge", "enlarge_along", "fill", "spread"]

Levels = NDArray[np.float32]

#: Rounds of `diffuse`; each reaches half as far as the one before, so that no streaks remain.
_ROUNDS = 3
#: Weight at which a value spread from afar counts beside the nearer ones.
_AFAR = 2e-3
#: Rows of a picture that are enlarged at a time.
_BAND = 256
_TINY = np.float32(1e-30)


def spread(values: Levels, weights: Levels) -> Levels:
    """Fill by the means of ever larger neighbourhoods: pull down a pyramid, push back up.

    Where the weight is 1 values stay, where it is 0 they come from the smallest neighbourhood that
    has any.
    """
    import cv2

    if max(values.shape) <= 2:
        total = float(weights.sum())
        mean = float((values * weights).sum()) / total if total > 0 else float(values.mean())
        return np.asarray(weights * values + (1.0 - weights) * np.float32(mean), np.float32)
    known = np.asarray(cv2.pyrDown(weights), np.float32)
    mixed = cv2.pyrDown(values * weights) / np.maximum(known, _TINY)
    means: Levels = np.where(known > _TINY, mixed, cv2.pyrDown(values)).astype(np.float32)
    # A few good values in a neighbourhood are enough to speak for it.
    enough = np.asarray(np.minimum(known * 4.0, 1.0), np.float32)
    coarse = spread(means, enough)
    wide = cv2.pyrUp(coarse, dstsize=values.shape[::-1])
    return np.asarray(weights * values + (1.0 - weights) * wide, np.float32)


def diffuse(
    values: Levels, weights: Levels, guide: Levels, *, reach: float, contrast: float, noise: float
) -> Levels:
    """Average values by their weights over about ``reach`` pixels, not across edges of the guide.

    This is normalised convolution under the recursive domain transform (Gastal and Oliveira 2011):
    along rows and columns a step of ``contrast`` in the guide is as far as ``reach`` pixels. Steps
    that noise of the given level makes count as none.
    """
    planes = np.stack([values * weights, weights])
    steps = []
    for axis in (0, 1):
        rise = np.abs(np.diff(guide, axis=axis, prepend=np.take(guide, [0], axis=axis)))
        rise = np.maximum(rise - np.float32(3.0 * noise), 0.0)
        steps.append(1.0 + np.float32(reach / contrast) * rise)
    for turn in range(_ROUNDS):
        sigma = reach * 3**0.5 * 2.0 ** (_ROUNDS - turn - 1) / (4.0**_ROUNDS - 1.0) ** 0.5
        for axis in (0, 1):
            lines = np.ascontiguousarray(np.moveaxis(planes, axis + 1, 0))
            keep = np.exp(np.float32(-(2**0.5) / sigma) * np.moveaxis(steps[axis], axis, 0))
            for n in range(1, len(lines)):
                lines[n] += keep[n] * (lines[n - 1] - lines[n])
            for n in range(len(lines) - 2, -1, -1):
                lines[n] += keep[n + 1] * (lines[n + 1] - lines[n])
            planes = np.moveaxis(lines, 0, axis + 1)
    return np.asarray(planes[0] / np.maximum(planes[1], _TINY), np.float32)


def fill(values: Levels, confidence: Levels, guide: Levels, *, noise: float, step: float) -> Levels:
    """Replace values by their neighbours' as far as they are not trusted, and smooth lightly.

    First from anywhere, then over the surface they lie on, as far as the guide shows its outline.
    At last surfaces are smoothed, not across edges of their own: steps of about ``step``.
    """
    import cv2

    contrast = 0.5 * float(guide.std()) + 1e-6
    weights = np.asarray(confidence**2, np.float32)
    afar = spread(values, weights)
    total = weights + np.float32(_AFAR)
    mixed = (weights * values + np.float32(_AFAR) * afar) / total
    reach = max(guide.shape) / 30.0
    surface = diffuse(mixed, total, guide, reach=reach, contrast=contrast, noise=noise)
    settled = np.asarray(confidence * values + (1.0 - confidence) * surface, np.float32)
    for _ in range(2):
        settled = diffuse(
            settled,
            confidence + np.float32(0.1),
            np.asarray(cv2.medianBlur(settled, 5)),
            reach=max(3.0, max(guide.shape) / 250.0),
            contrast=step,
            noise=step / 30.0,
        )
    return settled


def enlarge(values: Levels, shape: tuple[int, int]) -> Levels:
    """Stretch a plane that was made smaller to its picture's shape."""
    import cv2

    if values.shape == shape:
        return values
    return np.asarray(cv2.resize(values, shape[::-1], interpolation=cv2.INTER_LINEAR), np.float32)


def enlarge_along(values: Levels, guide: Levels) -> Levels:
    """Stretch a plane to the shape of a guide, its borders along those of the guide.

    Of the four values around a pixel those count most whose places look like the pixel in the
    guide: bilateral weights.
    """
    import cv2

    small = np.asarray(cv2.resize(guide, values.shape[::-1], interpolation=cv2.INTER_AREA))
    sharpness = np.float32(-0.5 / (0.1 * float(guide.std()) + 1e-6) ** 2)
    across, share_x = _between(guide.shape[1], values.shape[1])
    down, share_y = _between(guide.shape[0], values.shape[0])
    result = np.empty(guide.shape, np.float32)
    for top in range(0, len(guide), _BAND):
        rows = np.s_[top : top + _BAND]
        total = np.zeros_like(guide[rows])
        mixed = np.zeros_like(total)
        for row, near_y in zip(down, (1.0 - share_y, share_y), strict=True):
            for column, near_x in zip(across, (1.0 - share_x, share_x), strict=True):
                unlike = guide[rows] - small[row[rows]][:, column]
                # A pixel that looks like none of the four takes the nearest ones.
                weight = np.exp(sharpness * unlike * unlike) + np.float32(1e-3)
                weight *= near_y[rows, None] * near_x
                total += weight
                mixed += weight * values[row[rows]][:, column]
        result[rows] = mixed / total
    return result


def _between(large: int, small: int) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], Levels]:
    """For every place of a long line the two nearest of a short one, and the second one's share."""
    at = np.clip((np.arange(large) + 0.5) * (small / large) - 0.5, 0.0, small - 1.0)
    first = np.minimum(at.astype(np.intp), max(small - 2, 0))
    second = np.minimum(first + 1, small - 1)
    return (first, second), (at - first).astype(np.float32)
