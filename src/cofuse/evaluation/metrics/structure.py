r"""Scores from local structure: windowed similarity of the fused picture with each source.

All four start from the universal quality index of Wang and Bovik,

.. math:: Q_0(x, y) = \frac{2 \mu_x \mu_y}{\mu_x^2 + \mu_y^2}
          \cdot \frac{2 \sigma_{xy}}{\sigma_x^2 + \sigma_y^2},

of means, variances and covariance under a sliding window, and differ in how they weigh the sources
and the windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.evaluation.metrics.pictures import check_sources, row_bands
from cofuse.evaluation.metrics.windows import gaussian_window, mean_inside, slopes

__all__ = ["q_e", "q_s", "q_w", "q_y"]

_PIELLA_SIDE = 8
#: Keeps the quotients of flat windows finite; small enough to leave all others alone.
_PIELLA_GUARD = (1e-6 * 255.0) ** 2
#: Saliency given to every source where all of them are flat, in squared grey levels.
_FLAT_SALIENCY = 0.5
_PREWITT = (1.0, 1.0, 1.0)

_YANG_RADIUS, _YANG_SIGMA = 3, 1.5
_YANG_GUARD = 2e-16
#: Variances below this, in squared grey levels, are rounding noise.
_NO_SPREAD = 1e-8
#: Sources that look at least this much alike are averaged; else the better kept one counts.
_YANG_ALIKE = 0.75

Values = NDArray[np.float64]


def q_s(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Fusion quality index of Piella and Heijmans, :math:`Q_S` [1]_.

    .. math:: Q_S = \frac{1}{|W|} \sum_{w \in W} \sum_k \lambda_k(w)\, Q_0(S_k, F \mid w),
              \qquad \lambda_k = \frac{\sigma_k^2}{\sum_j \sigma_j^2}

    over all 8×8 windows w; the variances :math:`\sigma_k^2` of the sources are their saliency.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), at least 8×8, uint8 or float on the 0-255
        scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between -1 and 1; more is better.

    Notes
    -----
    Where all sources are flat they share the weight equally. :math:`Q_0` carries the constant
    6.5e-8 in each sum, so that two equal flat windows score 1.

    References
    ----------
    .. [1] G. Piella, H. Heijmans, "A new quality metric for image fusion", ICIP 2003.
    """
    frames, picture = check_sources(sources, fused)
    quality = [float(local.sum()) for local, _ in _piella(frames, picture, edges=False)]
    return math.fsum(quality) / _window_count(picture, _PIELLA_SIDE)


def q_w(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Weighted fusion quality index of Piella and Heijmans, :math:`Q_W` [1]_.

    .. math:: Q_W = \sum_{w \in W} c(w) \sum_k \lambda_k(w)\, Q_0(S_k, F \mid w),
              \qquad c(w) = \frac{\max_k \sigma_k^2(w)}{\sum_{w'} \max_k \sigma_k^2(w')}

    It is `q_s` with the windows weighed by the saliency of their most salient source.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), at least 8×8, uint8 or float on the 0-255
        scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between -1 and 1; more is better.

    References
    ----------
    .. [1] G. Piella, H. Heijmans, "A new quality metric for image fusion", ICIP 2003.
    """
    frames, picture = check_sources(sources, fused)
    return _weighted_quality(frames, picture, edges=False)


def q_e(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Edge-dependent fusion quality index of Piella and Heijmans, :math:`Q_E` [1]_.

    .. math:: Q_E(S, F) = Q_W(S, F) \cdot Q_W(S', F')

    where the prime is the gradient magnitude under Prewitt's 3×3 filters, zero outside the
    picture.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), at least 8×8, uint8 or float on the 0-255
        scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between -1 and 1; more is better.

    References
    ----------
    .. [1] G. Piella, H. Heijmans, "A new quality metric for image fusion", ICIP 2003.
    """
    frames, picture = check_sources(sources, fused)
    on_levels = _weighted_quality(frames, picture, edges=False)
    return on_levels * _weighted_quality(frames, picture, edges=True)


def q_y(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Structural similarity metric of Yang and others, :math:`Q_Y` [1]_.

    .. math:: Q_Y = \frac{1}{|W|} \sum_{w \in W} \begin{cases}
              \sum_k \lambda_k(w)\, Q_0(S_k, F \mid w), & \text{the sources are alike in } w \\
              \max_k Q_0(S_k, F \mid w), & \text{otherwise} \end{cases}

    under 7×7 Gaussian windows of σ = 1.5 pixels, with the shares of variance :math:`\lambda_k` of
    `q_s`. Sources are alike where :math:`Q_0` of every two of them is at least 0.75.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), at least 7×7, uint8 or float on the 0-255
        scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between -1 and 1; more is better.

    Notes
    -----
    Variances under 1e-8 squared grey levels, which are rounding noise, count as zero, and the
    second factor of :math:`Q_0` as 1 where both pictures are flat. The published implementation
    divides that noise by itself, so its value is arbitrary in flat windows: on ordinary pictures
    with flat parts its scores differ from these by up to 6e-4, and it can leave [-1, 1].

    References
    ----------
    .. [1] C. Yang, J.-Q. Zhang, X.-R. Wang, X. Liu, "A novel similarity based quality metric for
       image fusion", Information Fusion 9, 2008.
    """
    frames, picture = check_sources(sources, fused)
    window = gaussian_window(_YANG_RADIUS, _YANG_SIGMA)
    quality = []
    for rows in _window_rows(picture, window.size):
        target = _Moments(_rows_of(picture, rows, edges=False), window, _NO_SPREAD)
        local = [
            _Moments(_rows_of(frame, rows, edges=False), window, _NO_SPREAD) for frame in frames
        ]
        kept = [source.similarity(target, _YANG_GUARD) for source in local]
        total = sum(source.variance for source in local)
        shared = sum(
            np.where(total == 0, 1.0, source.variance) * similarity
            for source, similarity in zip(local, kept, strict=True)
        ) / np.where(total == 0, len(local), total)
        alike = np.logical_and.reduce(
            [a.similarity(b, _YANG_GUARD) >= _YANG_ALIKE for a, b in combinations(local, 2)]
        )
        quality.append(float(np.where(alike, shared, np.maximum.reduce(kept)).sum()))
    return math.fsum(quality) / _window_count(picture, window.size)


def _weighted_quality(
    frames: Sequence[NDArray[Any]], picture: NDArray[Any], *, edges: bool
) -> float:
    """Mean local quality, weighed by the largest saliency of each window."""
    quality, weights = [], []
    for local, saliency in _piella(frames, picture, edges=edges):
        quality.append(float((saliency * local).sum()))
        weights.append(float(saliency.sum()))
    return math.fsum(quality) / math.fsum(weights)


def _piella(
    frames: Sequence[NDArray[Any]], picture: NDArray[Any], *, edges: bool
) -> Iterator[tuple[Values, Values]]:
    """Local quality and largest saliency of every window, band by band of rows."""
    window = np.full(_PIELLA_SIDE, 1.0 / _PIELLA_SIDE)
    for rows in _window_rows(picture, _PIELLA_SIDE):
        target = _Moments(_rows_of(picture, rows, edges=edges), window)
        quality, total, largest = np.zeros((3, *target.mean.shape))
        spread = [_Moments(_rows_of(frame, rows, edges=edges), window) for frame in frames]
        flat = sum(source.variance for source in spread) == 0
        for source in spread:
            saliency = np.where(flat, _FLAT_SALIENCY, source.variance)
            quality += saliency * source.similarity(target, _PIELLA_GUARD)
            total += saliency
            np.maximum(largest, saliency, out=largest)
        quality /= total
        yield quality, largest


def _window_rows(picture: NDArray[Any], side: int) -> Iterator[slice]:
    """Bands of picture rows, overlapping so that every window lies in exactly one of them."""
    height, width = picture.shape
    if min(height, width) < side:
        raise CofuseError(
            f"the pictures are {width}x{height}; this metric needs at least {side}x{side} pixels"
        )
    for band in row_bands((height - side + 1, width)):
        yield slice(band.start, band.stop + side - 1)


def _window_count(picture: NDArray[Any], side: int) -> int:
    """Number of windows that lie wholly inside a picture."""
    height, width = picture.shape
    return int((height - side + 1) * (width - side + 1))


def _rows_of(picture: NDArray[Any], rows: slice, *, edges: bool) -> Values:
    """The grey levels of some rows, or their gradient magnitude."""
    if not edges:
        return picture[rows].astype(np.float64)
    s_x, s_y = slopes(picture, rows, _PREWITT)
    return np.sqrt(s_x * s_x + s_y * s_y)


class _Moments:
    """Mean and variance of a picture under every window that lies wholly inside it."""

    def __init__(self, values: Values, window: Values, no_spread: float = 0.0) -> None:
        self.values = values
        self.window = window
        self.mean = mean_inside(values, window)
        variance = mean_inside(values * values, window) - self.mean * self.mean
        # Rounding leaves flat windows a variance near zero, of either sign.
        self.variance = np.where(variance > no_spread, variance, 0.0)

    def similarity(self, other: _Moments, guard: float) -> Values:
        """Universal quality index of two pictures, with a guard added to each of its sums."""
        product = self.mean * other.mean
        covariance = mean_inside(self.values * other.values, self.window) - product
        covariance[(self.variance == 0) | (other.variance == 0)] = 0.0
        luminance = (2.0 * product + guard) / (self.mean**2 + other.mean**2 + guard)
        return luminance * (2.0 * covariance + guard) / (self.variance + other.variance + guard)
