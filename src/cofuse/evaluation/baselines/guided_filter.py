"""Fusion with guided filtering: a decision by saliency, turned into weights that follow edges."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.arguments import check_count
from cofuse.evaluation.baselines.decision_maps import choose_largest
from cofuse.images import Fusion, Levels, Stack, luminance

__all__ = ["fuse_guided_filter"]

Values = NDArray[np.float64]

#: As the paper has them: side of the mean filter that makes the base layer,
#: radius and spread of the Gaussian that smooths the saliency.
_BASE_SIDE = 31
_SALIENCY_RADIUS, _SALIENCY_SPREAD = 5, 5.0


def fuse_guided_filter(
    stack: Stack,
    *,
    sigma: float = 0.0,
    base_radius: int = 45,
    base_epsilon: float = 0.3,
    detail_radius: int = 7,
    detail_epsilon: float = 1e-6,
) -> Fusion:
    """Blend base and detail layers by guided-filtered weights: GFF [1]_.

    A frame's base layer is its mean over 31×31 pixels, the rest is its detail layer. The saliency
    of a frame is its smoothed absolute Laplacian; the map that is 1 where a frame is the most
    salient, filtered with the frame as guide, weighs its base and, filtered less, its detail.

    Parameters
    ----------
    stack
        K ≥ 1 frames, grey or RGB. They are read twice: weights need all saliencies first. Memory
        does not grow with K.
    sigma
        Recorded, not used.
    base_radius, base_epsilon, detail_radius, detail_epsilon
        Radius and regularisation (on a 0–1 scale of grey) of the guided filters of both layers.

    References
    ----------
    .. [1] S. Li, X. Kang, J. Hu, "Image fusion with guided filtering", IEEE Trans. Image
       Process. 22, 2013.
    """
    import cv2

    check_sigma(sigma)
    check_count("base_radius", base_radius)
    check_count("detail_radius", detail_radius)
    if not (base_epsilon > 0 and detail_epsilon > 0):
        raise CofuseError(
            f"the epsilons are {base_epsilon} and {detail_epsilon}; expected positive numbers"
        )
    started = time.perf_counter()
    chosen = choose_largest(_saliency(stack.luminance(k)) for k in range(len(stack)))
    decided = time.perf_counter()
    base, detail = _WeightedMean(stack.shape), _WeightedMean(stack.shape)
    for k, frame in enumerate(stack):
        levels = stack.to_levels(frame)
        smooth = cv2.blur(levels, (_BASE_SIDE, _BASE_SIDE), borderType=cv2.BORDER_REPLICATE)
        guide = luminance(levels).astype(np.float64) / 255.0
        mask = (chosen == k).astype(np.float64)
        base.add(smooth, _guided_filter(guide, mask, base_radius, base_epsilon))
        detail.add(levels - smooth, _guided_filter(guide, mask, detail_radius, detail_epsilon))
    image = stack.from_levels((base.value() + detail.value()).astype(np.float32))
    seconds = {"choose": decided - started, "blend": time.perf_counter() - decided}
    return Fusion(image, sigma=sigma, seconds=seconds)


class _WeightedMean:
    """A running weighted mean of pictures, whose weights are divided by their sum at the end."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum = np.zeros(shape, dtype=np.float64)
        self._weights = np.zeros(shape[:2], dtype=np.float64)

    def add(self, picture: NDArray[Any], weight: Values) -> None:
        """Add one picture (H, W) or (H, W, 3) with a weight a pixel."""
        self._sum += picture * (weight[..., None] if picture.ndim == 3 else weight)
        self._weights += weight

    def value(self) -> Values:
        """Return the mean, its weights summing to one."""
        total = self._weights[..., None] if self._sum.ndim == 3 else self._weights
        return np.asarray(self._sum / total)


def _saliency(grey: Levels) -> Levels:
    """Absolute Laplacian, smoothed by a Gaussian."""
    import cv2

    border = cv2.BORDER_REPLICATE
    high = np.abs(np.asarray(cv2.Laplacian(grey, cv2.CV_32F, ksize=1, borderType=border)))
    side, spread = 2 * _SALIENCY_RADIUS + 1, _SALIENCY_SPREAD
    return np.asarray(cv2.GaussianBlur(high, (side, side), spread, borderType=border), np.float32)


def _guided_filter(guide: Values, mask: Values, radius: int, epsilon: float) -> Values:
    """Filter a map of zeros and ones by the guided filter of He, Sun and Tang; keep it in [0, 1].

    Windows end at the picture's border. The result is kept off zero by what cannot be seen, so
    that the weights of all frames have a sum to be divided by.
    """
    inside = _window_sum(np.ones_like(guide), radius)

    def mean(values: Values) -> Values:
        return _window_sum(values, radius) / inside

    mean_guide, mean_mask = mean(guide), mean(mask)
    slope = mean(guide * mask) - mean_guide * mean_mask
    slope /= mean(guide * guide) - mean_guide**2 + epsilon
    offset = mean_mask - slope * mean_guide
    return np.clip(mean(slope) * guide + mean(offset), 1e-9, 1.0)


def _window_sum(values: Values, radius: int) -> Values:
    """Sum over the part of a (2·radius + 1)² window inside the picture."""
    import cv2

    square, border = (2 * radius + 1, 2 * radius + 1), cv2.BORDER_CONSTANT
    sums = cv2.boxFilter(values, cv2.CV_64F, square, normalize=False, borderType=border)
    return np.asarray(sums, dtype=np.float64)
