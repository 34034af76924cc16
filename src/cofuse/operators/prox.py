"""The proximal map of the ℓ₁ norm, and the projection on its ball: pure functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["project_l1_ball", "soft_threshold"]

Array = NDArray[Any]


def soft_threshold(u: Array, threshold: ArrayLike) -> Array:
    r"""Shrink towards zero: the minimiser over v of ``½ (v − u)² + threshold · |v|``.

    .. math:: \mathrm{sign}(u)\,\max(|u| - t, 0)
    """
    shrunk: Array = u - np.clip(u, -np.asarray(threshold), threshold)
    return shrunk


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
