"""Baselines that mix frames: the mean, pyramids, wavelets, and weights by guided filtering.

Frames are grey or RGB, K ≥ 1, and streamed: memory does not grow with K. Decisions are made on the
luminance and hold for all three colours. Nothing is denoised: ``sigma`` is recorded, not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_number, check_sigma
from cofuse.evaluation.baselines.copying import choose_largest
from cofuse.evaluation.baselines.denoising import import_extra
from cofuse.images import Fusion, Levels, Stack, luminance

__all__ = ["fuse_average", "fuse_dwt", "fuse_guided_filter", "fuse_laplacian"]

Band = NDArray[np.float32]
Values = NDArray[np.float64]

#: Most detail bands of pyramid and wavelet transform; fewer where the picture is too small.
_LEVELS = 4
#: Side of the square over which magnitudes of detail are averaged to salience.
_SALIENCE_SIDE = 3
_WAVELET = "db4"

#: GFF, as the paper has them: side of the mean filter that makes the base layer, radius and spread
#: of the Gaussian that smooths the saliency, and radius and regularisation (on a 0-1 scale of
#: grey) of the guided filters of base and detail.
_BASE_SIDE = 31
_SALIENCY_RADIUS, _SALIENCY_SPREAD = 5, 5.0
_BASE_RADIUS, _BASE_EPSILON = 45, 0.3
_DETAIL_RADIUS, _DETAIL_EPSILON = 7, 1e-6


def fuse_average(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Return the mean of all frames: the least noise, σ/√K, and the least sharpness."""
    check_sigma(sigma)
    total = np.zeros(stack.shape, dtype=np.float64)
    for frame in stack:
        total += stack.to_levels(frame)
    mean = (total / len(stack)).astype(np.float32)
    return Fusion(image=stack.from_levels(mean), sigma=sigma)


def fuse_laplacian(stack: Stack, *, sigma: float = 0.0, window: int = _SALIENCE_SIDE) -> Fusion:
    """Fuse by Laplacian pyramids [1]_: strongest detail by windowed salience, mean of the top [2]_.

    With ``window`` 1 the largest magnitude is taken, coefficient by coefficient. The largest of K
    details is noisier than one.

    References
    ----------
    .. [1] P. Burt, E. Adelson, "The Laplacian pyramid as a compact image code", IEEE Trans.
       Commun. 31, 1983.
    .. [2] P. Burt, R. Kolczynski, "Enhanced image capture through fusion", ICCV 1993.
    """
    check_sigma(sigma)
    check_number("window", window, 1, whole=True)
    levels = min(_LEVELS, int(np.log2(min(stack.shape[:2]))))
    merged = _Merged(window)
    for frame in stack:
        *details, top = _laplacian_pyramid(stack.to_levels(frame), levels)
        merged.add(details, top)
    return Fusion(
        image=stack.from_levels(_collapse(merged.details, merged.mean_top())), sigma=sigma
    )


def fuse_dwt(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Fuse by discrete wavelet transforms [1]_: strongest coefficient, mean of the approximation.

    Coefficients are compared by their mean magnitude over 3×3, the paper's area-based selection.
    The transform is that of PyWavelets (extra ``bench``), with mirrored borders.

    References
    ----------
    .. [1] H. Li, B. Manjunath, S. Mitra, "Multisensor image fusion using the wavelet transform",
       Graph. Models Image Process. 57, 1995.
    """
    check_sigma(sigma)
    pywt = import_extra("pywt", package="PyWavelets", purpose="wavelet fusion")
    taps = pywt.Wavelet(_WAVELET).dec_len
    levels = min(_LEVELS, pywt.dwt_max_level(min(stack.shape[:2]), taps))
    merged = _Merged(_SALIENCE_SIDE)
    for frame in stack:
        coarse, *rest = pywt.wavedec2(stack.to_levels(frame), _WAVELET, level=levels, axes=(0, 1))
        merged.add([band for triple in rest for band in triple], coarse)
    details = iter(merged.details)
    triples = list(zip(details, details, details, strict=True))
    fused = pywt.waverec2([merged.mean_top(), *triples], _WAVELET, axes=(0, 1))
    # An odd side comes back one pixel longer.
    fused = np.asarray(fused, dtype=np.float32)[: stack.height, : stack.width]
    return Fusion(image=stack.from_levels(fused), sigma=sigma)


def fuse_guided_filter(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Blend base and detail layers by guided-filtered weights: GFF [1]_.

    A frame's base layer is its mean over 31×31 pixels, the rest is its detail layer. The saliency
    of a frame is its smoothed absolute Laplacian; the map that is 1 where a frame is the most
    salient, filtered with the frame as guide, weighs its base and, filtered less, its detail.
    Frames are read twice: weights need all saliencies first.

    References
    ----------
    .. [1] S. Li, X. Kang, J. Hu, "Image fusion with guided filtering", IEEE Trans. Image
       Process. 22, 2013.
    """
    import cv2

    check_sigma(sigma)
    chosen = choose_largest(_saliency(stack.luminance(k)) for k in range(len(stack)))
    base, detail = _WeightedMean(stack.shape), _WeightedMean(stack.shape)
    for k, frame in enumerate(stack):
        levels = stack.to_levels(frame)
        smooth = cv2.blur(levels, (_BASE_SIDE, _BASE_SIDE), borderType=cv2.BORDER_REPLICATE)
        guide = luminance(levels).astype(np.float64) / 255.0
        mask = (chosen == k).astype(np.float64)
        base.add(smooth, _guided_filter(guide, mask, _BASE_RADIUS, _BASE_EPSILON))
        detail.add(levels - smooth, _guided_filter(guide, mask, _DETAIL_RADIUS, _DETAIL_EPSILON))
    fused = (base.value() + detail.value()).astype(np.float32)
    return Fusion(image=stack.from_levels(fused), sigma=sigma)


class _Merged:
    """What is kept of the frames seen so far: the most salient details, the sum of the tops."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.details: list[Band] = []
        self._salience: list[Band] = []
        self._total: Values = np.zeros(())
        self._frames = 0

    def add(self, details: list[Band], top: Levels) -> None:
        """Take one more frame in; of equally salient details the earlier frame's stay."""
        salience = [_mean_magnitude(luminance(band), self.window) for band in details]
        self._total = self._total + top
        self._frames += 1
        if self._frames == 1:
            self.details, self._salience = list(details), salience
            return
        for kept, so_far, band, here in zip(
            self.details, self._salience, details, salience, strict=True
        ):
            better = here > so_far
            np.copyto(so_far, here, where=better)
            np.copyto(kept, band, where=better[..., None] if band.ndim == 3 else better)

    def mean_top(self) -> Levels:
        """Return the mean of the coarse residues."""
        return (self._total / self._frames).astype(np.float32)


def _laplacian_pyramid(levels: Levels, depth: int) -> list[Band]:
    """Return ``depth`` detail bands, finest first, and the coarse residue."""
    import cv2

    pyramid: list[Band] = []
    fine = levels
    for _ in range(depth):
        coarse = np.asarray(cv2.pyrDown(fine), dtype=np.float32)
        pyramid.append(fine - _expand(coarse, fine.shape))
        fine = coarse
    return [*pyramid, fine]


def _collapse(details: list[Band], top: Levels) -> Levels:
    """Undo `_laplacian_pyramid`: exact but for rounding, since each band is a difference."""
    for band in reversed(details):
        top = band + _expand(top, band.shape)
    return top


def _expand(coarse: Levels, shape: tuple[int, ...]) -> Levels:
    """Stretch a level of the pyramid to the shape of the next finer one."""
    import cv2

    return np.asarray(cv2.pyrUp(coarse, dstsize=(shape[1], shape[0])), dtype=np.float32)


def _mean_magnitude(band: Band, window: int) -> Band:
    """Average |band| over a square; at the borders over the part of it inside the picture."""
    import cv2

    # Every position has the same count of pixels in all frames: sums compare as means do.
    border = cv2.BORDER_CONSTANT
    means = cv2.boxFilter(np.abs(band), -1, (window, window), borderType=border)
    return np.asarray(means, np.float32)


class _WeightedMean:
    """A running weighted mean of pictures, whose weights are divided by their sum at the end."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._sum = np.zeros(shape, dtype=np.float64)
        self._weights = np.zeros((*shape[:2], *[1] * (len(shape) - 2)), dtype=np.float64)

    def add(self, picture: NDArray[Any], weight: Values) -> None:
        """Add one picture (H, W) or (H, W, 3) with a weight a pixel."""
        weight = weight.reshape(self._weights.shape)
        self._sum += picture * weight
        self._weights += weight

    def value(self) -> Values:
        """Return the mean, its weights summing to one."""
        return np.asarray(self._sum / self._weights)


def _saliency(grey: Levels) -> Levels:
    """Absolute Laplacian, smoothed by a Gaussian."""
    import cv2

    border = cv2.BORDER_REPLICATE
    high = np.abs(np.asarray(cv2.Laplacian(grey, cv2.CV_32F, ksize=1, borderType=border)))
    side, spread = 2 * _SALIENCY_RADIUS + 1, _SALIENCY_SPREAD
    return np.asarray(cv2.GaussianBlur(high, (side, side), spread, borderType=border), np.float32)


def _guided_filter(guide: Values, mask: Values, radius: int, epsilon: float) -> Values:
    """Filter a map of zeros and ones by the guided filter of He, Sun and Tang; keep it in [0, 1].

    Windows end at the picture's border. The result stays a little above zero, so that the weights
    of all frames have a sum to be divided by.
    """
    import cv2

    def window_sum(values: Values) -> Values:
        square, border = (2 * radius + 1, 2 * radius + 1), cv2.BORDER_CONSTANT
        sums = cv2.boxFilter(values, cv2.CV_64F, square, normalize=False, borderType=border)
        return np.asarray(sums, dtype=np.float64)

    inside = window_sum(np.ones_like(guide))

    def mean(values: Values) -> Values:
        return window_sum(values) / inside

    mean_guide, mean_mask = mean(guide), mean(mask)
    slope = mean(guide * mask) - mean_guide * mean_mask
    slope /= mean(guide * guide) - mean_guide**2 + epsilon
    offset = mean_mask - slope * mean_guide
    return np.clip(mean(slope) * guide + mean(offset), 1e-9, 1.0)
