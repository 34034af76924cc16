"""Thresholds, proximal maps and projections: pure functions of arrays.

The proximal map of f at u is the minimiser over v of ``½ (v − u)² + f(v)``, entry by entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["hard_threshold", "project_l1_ball", "prox_l0", "prox_log", "soft_threshold"]

Array = NDArray[Any]


def soft_threshold(u: Array, threshold: ArrayLike) -> Array:
    r"""Shrink towards zero, the proximal map of ``threshold · |v|``.

    .. math:: \mathrm{sign}(u)\,\max(|u| - t, 0)
    """
    shrunk: Array = u - np.clip(u, -np.asarray(threshold), threshold)
    return shrunk


def hard_threshold(u: Array, threshold: ArrayLike) -> Array:
    """Keep entries above ``threshold`` in magnitude, set the others to zero."""
    return np.where(np.abs(u) > threshold, u, np.zeros_like(u))


def prox_l0(u: Array, weight: ArrayLike) -> Array:
    r"""Proximal map of ``weight`` times the number of non-zeros.

    Keeping an entry costs ``weight``, dropping it costs ``u²/2``: the cut is at √(2·weight).
    """
    return hard_threshold(u, np.sqrt(2.0 * np.asarray(weight)))


def prox_log(u: Array, weight: float, scale: float) -> Array:
    r"""Proximal map of the log penalty ``weight · log(1 + |v| / scale)``.

    The stationary point on the side of u is the larger root of a quadratic,

    .. math:: v = \tfrac12\left(|u| - s + \sqrt{(|u| + s)^2 - 4 w}\right);

    where it does not exist, is negative, or costs more than v = 0, the result is 0.
    """
    magnitude = np.abs(u)
    discriminant = (magnitude + scale) ** 2 - 4.0 * weight
    root = 0.5 * (magnitude - scale + np.sqrt(np.maximum(discriminant, 0.0)))
    root = np.where(discriminant >= 0.0, np.maximum(root, 0.0), 0.0)
    cost = 0.5 * (root - magnitude) ** 2 + weight * np.log1p(root / scale)
    return np.where(cost < 0.5 * magnitude**2, np.copysign(root, u), np.zeros_like(u))


def project_l1_ball(u: Array, radius: ArrayLike) -> Array:
    """Project every column of ``u`` on the ℓ₁ ball of ``radius`` (one, or one a column).

    The projection is a soft threshold; the threshold is found from the sorted magnitudes
    (Duchi et al. 2008).
    """
    magnitude = np.abs(u)
    radius = np.broadcast_to(np.asarray(radius, dtype=u.dtype), u.shape[1:])
    descending = -np.sort(-magnitude, axis=0)
    excess = np.cumsum(descending, axis=0) - radius
    counts = np.arange(1, len(u) + 1, dtype=u.dtype).reshape(-1, *[1] * (u.ndim - 1))
    kept = np.count_nonzero(descending * counts > excess, axis=0)
    last = np.maximum(kept - 1, 0)
    threshold = np.take_along_axis(excess, last[None], axis=0)[0] / (last + 1)
    return soft_threshold(u, np.maximum(threshold, 0.0).astype(u.dtype))
