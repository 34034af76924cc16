"""The small filters the metrics share: local means under a window, and slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["gaussian_window", "mean_inside", "mean_zero_padded", "slopes"]

Values = NDArray[np.float64]


def gaussian_window(radius: int, sigma: float) -> Values:
    """One side of a separable Gaussian window, with 2·radius + 1 weights that sum to 1."""
    offsets = np.arange(-radius, radius + 1)
    window = np.exp(-(offsets**2) / (2.0 * sigma**2))
    return np.asarray(window / window.sum())


def mean_inside(values: Values, window: Values) -> Values:
    """Weighted mean under every position of a separable window wholly inside the picture."""
    import cv2

    height, width = (side - window.size + 1 for side in values.shape)
    # Anchored at its first weight, the window's valid positions are the top left ones.
    means = cv2.sepFilter2D(values, cv2.CV_64F, window, window, anchor=(0, 0))
    return np.asarray(means, dtype=np.float64)[:height, :width]


def mean_zero_padded(values: Values, window: Values) -> Values:
    """Weighted mean under a separable window centred on every pixel, zero outside the picture."""
    import cv2

    means = cv2.sepFilter2D(values, cv2.CV_64F, window, window, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(means, dtype=np.float64)


def slopes(
    picture: NDArray[Any], rows: slice, smoothing: tuple[float, float, float]
) -> tuple[Values, Values]:
    """Horizontal and vertical 3×3 derivatives of some rows of a picture that is zero outside.

    ``smoothing`` are the weights across the direction of the derivative: (1, 2, 1) makes Sobel's
    filters, (1, 1, 1) Prewitt's.
    """
    import cv2

    # One row more on either side, except at the picture's border, where the filters see zeros.
    top, bottom = max(rows.start - 1, 0), min(rows.stop + 1, picture.shape[0])
    band = picture[top:bottom]
    if band.dtype != np.uint8:
        band = band.astype(np.float64)
    across, along = np.array(smoothing), np.array([-1.0, 0.0, 1.0])
    s_x, s_y = (
        np.asarray(
            cv2.sepFilter2D(band, cv2.CV_64F, *kernels, borderType=cv2.BORDER_CONSTANT),
            dtype=np.float64,
        )[rows.start - top : rows.stop - top]
        for kernels in ((along, across), (across, along))
    )
    return s_x, s_y
