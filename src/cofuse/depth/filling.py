"""Values where there are none: spread from reliable neighbours, not across edges of a picture."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.images import Levels

_TINY = np.float32(1e-30)


def spread(values: Levels, weights: Levels) -> Levels:
    """Keep values of weight 1; make those of weight 0 the mean of the smallest region with any.

    The regions are the pixels of a pyramid.
    """
    if max(values.shape) <= 2:
        total = float(weights.sum())
        mean = float((values * weights).sum()) / total if total > 0 else float(values.mean())
        return np.asarray(weights * values + (1.0 - weights) * np.float32(mean), np.float32)
    known = np.asarray(cv2.pyrDown(weights), np.float32)
    mixed = cv2.pyrDown(values * weights) / np.maximum(known, _TINY)
    means: Levels = np.where(known > _TINY, mixed, cv2.pyrDown(values)).astype(np.float32)
    # A quarter of the weight that a neighbourhood can have is enough to trust its mean.
    coarse = spread(means, np.minimum(known * 4.0, 1.0))
    wide = cv2.pyrUp(coarse, dstsize=values.shape[::-1])
    return np.asarray(weights * values + (1.0 - weights) * wide, np.float32)


def diffuse(
    values: Levels, weights: Levels, guide: Levels, *, reach: float, contrast: float, noise: float
) -> Levels:
    """Average values by their weights over about ``reach`` pixels, not across edges of the guide.

    This is the recursive domain transform (Gastal and Oliveira 2011): along rows and columns a
    step of ``contrast`` in the guide, less three times ``noise``, is as far as ``reach`` pixels.
    """
    planes = np.stack([values * weights, weights])
    steps = []
    for axis in (0, 1):
        rise = np.abs(np.diff(guide, axis=axis, prepend=np.take(guide, [0], axis=axis)))
        steps.append(1.0 + reach / contrast * np.maximum(rise - 3.0 * noise, 0.0))
    # Each of three rounds reaches half as far as the one before, so that no streaks remain; the
    # variances add up to that of the reach.
    for part in (4.0, 2.0, 1.0):
        sigma = reach * part / 21.0**0.5
        for axis in (0, 1):
            lines = np.ascontiguousarray(np.moveaxis(planes, axis + 1, 0))
            keep = np.exp(-(2**0.5) / sigma * np.moveaxis(steps[axis], axis, 0))
            for n in range(1, len(lines)):
                lines[n] += keep[n] * (lines[n - 1] - lines[n])
            for n in range(len(lines) - 2, -1, -1):
                lines[n] += keep[n + 1] * (lines[n + 1] - lines[n])
            planes = np.moveaxis(lines, 0, axis + 1)
    return np.asarray(planes[0] / np.maximum(planes[1], _TINY), np.float32)


def fill(values: Levels, confidence: Levels, guide: Levels, *, noise: float, step: float) -> Levels:
    """Replace values of little confidence by those around, and smooth all lightly.

    Values are filled in from within the outlines of the guide; ``noise`` is its noise level.
    Smoothing stops at steps of about ``step`` between the values themselves.
    """
    contrast = 0.5 * float(guide.std()) + 1e-6
    weights = confidence**2
    afar = 2e-3  # weight of values from beyond the outlines: for surfaces without any of their own
    total = weights + afar
    mixed = (weights * values + afar * spread(values, weights)) / total
    reach = max(guide.shape) / 30.0
    surface = diffuse(mixed, total, guide, reach=reach, contrast=contrast, noise=noise)
    settled = confidence * values + (1.0 - confidence) * surface
    reach = max(3.0, max(guide.shape) / 250.0)
    weights = confidence + np.float32(0.1)
    for _ in range(2):
        own = np.asarray(cv2.medianBlur(settled, 5), np.float32)
        settled = diffuse(settled, weights, own, reach=reach, contrast=step, noise=step / 30.0)
    return settled


def enlarge(values: NDArray[Any], shape: tuple[int, ...], *, nearest: bool = False) -> NDArray[Any]:
    """Resize a plane to a shape, bilinearly or to the nearest value."""
    if values.shape == shape:
        return values
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(values, (shape[1], shape[0]), interpolation=how))


def enlarge_along(values: Levels, guide: Levels) -> Levels:
    """Resize a plane to the shape of a guide, its outlines along those of the guide.

    Each pixel becomes a mean of the four values around it, weighted by distance and by difference
    in the guide.
    """
    small = np.asarray(cv2.resize(guide, values.shape[::-1], interpolation=cv2.INTER_AREA))
    sharpness = -0.5 / (0.1 * float(guide.std()) + 1e-6) ** 2
    across = _neighbours(guide.shape[1], values.shape[1])
    down = _neighbours(guide.shape[0], values.shape[0])
    result = np.empty(guide.shape, np.float32)
    for top in range(0, len(guide), 256):  # a band of rows at a time, for less memory
        rows = np.s_[top : top + 256]
        total = np.zeros_like(guide[rows])
        mixed = np.zeros_like(total)
        for row, near_y in down:
            for column, near_x in across:
                unlike = guide[rows] - small[row[rows]][:, column]
                # The constant is for pixels that are like none of the four.
                weight = np.exp(sharpness * unlike * unlike) + np.float32(1e-3)
                weight *= near_y[rows, None] * near_x
                total += weight
                mixed += weight * values[row[rows]][:, column]
        result[rows] = mixed / total
    return result


def _neighbours(large: int, small: int) -> tuple[tuple[NDArray[np.intp], Levels], ...]:
    """The two nearest of a short line for every place of a long one, each with its share."""
    at = np.clip((np.arange(large) + 0.5) * (small / large) - 0.5, 0.0, small - 1.0)
    first = np.minimum(at.astype(np.intp), max(small - 2, 0))
    share = (at - first).astype(np.float32)
    return (first, 1.0 - share), (np.minimum(first + 1, small - 1), share)
