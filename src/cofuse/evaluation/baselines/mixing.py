"""Methods that mix frames and know nothing of noise.

Frames are grey or RGB, K ≥ 1, and streamed: memory does not grow with K. The luminance decides for
all three colours.
"""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np

from cofuse.arguments import check_number
from cofuse.evaluation.baselines.copying import Array, choose_largest
from cofuse.evaluation.baselines.denoising import import_extra
from cofuse.images import Fusion, Pixels, Stack, luminance

#: Most detail bands of pyramid and wavelet transform; fewer where the picture is too small.
_LEVELS = 4


def fuse_average(stack: Stack) -> Fusion:
    """Return the mean of all frames: the least noise, σ/√K, and the least sharpness."""
    total = sum((stack.to_levels(frame) for frame in stack), np.zeros(stack.shape))
    return Fusion(image=stack.from_levels((total / len(stack)).astype(np.float32)))


def fuse_laplacian(stack: Stack, *, window: int = 3) -> Fusion:
    """Fuse by Laplacian pyramids: strongest detail by windowed salience, mean of the top.

    With ``window`` 1 the largest magnitude is taken, coefficient by coefficient. After Burt and
    Adelson (1983) and Burt and Kolczynski (1993).
    """
    check_number("window", window, 1, whole=True)
    depth = min(_LEVELS, int(np.log2(min(stack.shape[:2]))))
    pyramids = (_laplacian_pyramid(stack.to_levels(frame), depth) for frame in stack)
    return Fusion(image=stack.from_levels(_collapse(_merge(pyramids, window))))


def fuse_dwt(stack: Stack) -> Fusion:
    """Fuse by discrete wavelet transforms: strongest coefficient, mean of the approximation.

    Coefficients are compared by their mean magnitude over 3×3, the area-based selection of Li,
    Manjunath and Mitra (1995). The transform is that of PyWavelets, with mirrored borders.
    """
    pywt = import_extra("pywt", "PyWavelets", "wavelet fusion")
    wavelet = pywt.Wavelet("db4")
    depth = min(_LEVELS, pywt.dwt_max_level(min(stack.shape[:2]), wavelet.dec_len))

    def bands(frame: Pixels) -> list[Array]:
        coarse, *rest = pywt.wavedec2(stack.to_levels(frame), wavelet, level=depth, axes=(0, 1))
        return [*(band for triple in rest for band in triple), coarse]

    *details, coarse = _merge(map(bands, stack), 3)
    triples = [tuple(details[k : k + 3]) for k in range(0, len(details), 3)]
    fused = pywt.waverec2([coarse, *triples], wavelet, axes=(0, 1))
    # An odd side comes back one pixel longer.
    fused = np.asarray(fused, dtype=np.float32)[: stack.height, : stack.width]
    return Fusion(image=stack.from_levels(fused))


def fuse_guided_filter(stack: Stack) -> Fusion:
    """Blend base and detail layers by guided-filtered weights: GFF (Li, Kang, Hu 2013).

    A frame's base layer is its mean over 31×31 pixels, the rest is its detail layer. The saliency
    of a frame is its smoothed absolute Laplacian; the map that is 1 where a frame is the most
    salient, filtered with the frame as guide, weighs its base and, filtered less, its detail.
    """
    border = cv2.BORDER_REPLICATE

    def saliency(k: int) -> Array:
        high = np.abs(cv2.Laplacian(stack.luminance(k), cv2.CV_32F, borderType=border))
        return cv2.GaussianBlur(high, (11, 11), 5.0, borderType=border)

    chosen = choose_largest(map(saliency, range(len(stack))))
    pixel = (*stack.shape[:2], *[1] * (len(stack.shape) - 2))
    sums, weights = np.zeros((2, *stack.shape)), np.zeros((2, *pixel))
    for k, frame in enumerate(stack):
        levels = stack.to_levels(frame)
        smooth = cv2.blur(levels, (31, 31), borderType=border)
        guide = luminance(levels).astype(np.float64) / 255.0
        mask = (chosen == k).astype(np.float64)
        # Radius and regularisation, on a 0-1 scale of grey, as the paper has them.
        for n, (layer, strength) in enumerate(((smooth, (45, 0.3)), (levels - smooth, (7, 1e-6)))):
            weight = guided_filter(guide, mask, *strength).reshape(pixel)
            sums[n] += layer * weight
            weights[n] += weight
    return Fusion(image=stack.from_levels((sums / weights).sum(axis=0).astype(np.float32)))


def _merge(pyramids: Iterable[list[Array]], window: int) -> list[Array]:
    """Keep the most salient details of all frames, of equals the first's, and the mean top."""
    rest = iter(pyramids)
    *kept, top = next(rest)
    best = [_salience(band, window) for band in kept]
    total, count = top.astype(np.float64), 1
    for *details, top in rest:
        total += top
        count += 1
        for so_far, most, band in zip(kept, best, details, strict=True):
            here = _salience(band, window)
            better = here > most
            np.maximum(most, here, out=most)
            np.copyto(so_far, band, where=better[..., None] if band.ndim == 3 else better)
    return [*kept, (total / count).astype(np.float32)]


def _laplacian_pyramid(fine: Array, depth: int) -> list[Array]:
    """Return ``depth`` detail bands, finest first, and the coarse residue."""
    pyramid: list[Array] = []
    for _ in range(depth):
        coarse = cv2.pyrDown(fine)
        pyramid.append(fine - cv2.pyrUp(coarse, dstsize=fine.shape[1::-1]))
        fine = coarse
    return [*pyramid, fine]


def _collapse(pyramid: list[Array]) -> Array:
    """Undo `_laplacian_pyramid`: exact but for rounding, since each band is a difference."""
    *details, top = pyramid
    for band in reversed(details):
        top = band + cv2.pyrUp(top, dstsize=band.shape[1::-1])
    return top


def _salience(band: Array, window: int) -> Array:
    """Average the luminance's magnitude over a square; at the borders over its part inside."""
    # Every position has the same count of pixels in all frames: sums compare as means do.
    square, border = (window, window), cv2.BORDER_CONSTANT
    return cv2.boxFilter(np.abs(luminance(band)), -1, square, borderType=border)


def guided_filter(guide: Array, mask: Array, radius: int, epsilon: float) -> Array:
    """Filter a map of zeros and ones by the guided filter of He, Sun and Tang; keep it in [0, 1].

    Windows end at the picture's border. The result stays a little above zero, so that the weights
    of all frames have a sum to be divided by.
    """

    def window_sum(values: Array) -> Array:
        square, border = (2 * radius + 1, 2 * radius + 1), cv2.BORDER_CONSTANT
        return cv2.boxFilter(values, cv2.CV_64F, square, normalize=False, borderType=border)

    inside = window_sum(np.ones_like(guide))

    def mean(values: Array) -> Array:
        return window_sum(values) / inside

    mean_guide, mean_mask = mean(guide), mean(mask)
    slope = mean(guide * mask) - mean_guide * mean_mask
    slope /= mean(guide * guide) - mean_guide**2 + epsilon
    offset = mean_mask - slope * mean_guide
    return np.asarray(np.clip(mean(slope) * guide + mean(offset), 1e-9, 1.0))
