"""Scores that model what the eye sees: contrast sensitivity before comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.evaluation.metrics.pictures import check_sources, stretch
from cofuse.evaluation.metrics.windows import mean_zero_padded, slopes

__all__ = ["q_cb", "q_cv"]

#: Difference of Gaussians of the eye's contrast sensitivity: both widths, share of the second.
_DOG_WIDE, _DOG_NARROW, _DOG_SHARE = 15.3870, 1.3456, 0.7622
#: Half the picture's side in the units of those widths: side/30 periods a degree.
_CB_VIEWING = 30.0
_CENTRE_SIGMA, _SURROUND_SIGMA, _CONTRAST_RADIUS = 2.0, 4.0, 15
#: Constant of the masking law C³/(C² + Z).
_MASKING = 1e-4

_CV_VIEWING = 8.0
_CV_BLOCK = 16
_CV_SALIENCY_POWER = 5
_SOBEL = (1.0, 2.0, 1.0)

Values = NDArray[np.float64]


def q_cb(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Perceptual metric of Chen and Blum, :math:`Q_{CB}` [1]_.

    .. math:: Q_{CB} = \frac1N \sum_n \sum_k \lambda_k(n)
              \frac{\min(C'_k, C'_F)}{\max(C'_k, C'_F)}, \qquad
              \lambda_k = \frac{C'^2_k}{\sum_j C'^2_j}, \qquad C' = \frac{C^3}{C^2 + 10^{-4}}

    where :math:`C = |G_2 * I / G_4 * I - 1|` is the local contrast of a picture after contrast
    sensitivity filtering, between Gaussian means of σ = 2 and 4 pixels.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), uint8 or float on the 0-255 scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between 0 and 1; more is better, 1 when every source is the fused picture.

    Notes
    -----
    Each picture is first stretched so that its own range fills 0-255, and rounded. The sensitivity
    filter :math:`e^{-(r/15.387)^2} - 0.7622\, e^{-(r/1.3456)^2}` acts by FFT, with the highest
    frequency at r = side/30. Pixels without contrast in any source share the weight equally, and
    two contrasts of zero count as equal.

    References
    ----------
    .. [1] Y. Chen, R. S. Blum, "A new automated quality assessment algorithm for image fusion",
       Image and Vision Computing 27 (10), 2009.
    """
    frames, picture = check_sources(sources, fused)
    radius = _visual_frequency(picture.shape, _CB_VIEWING)
    sensitivity = np.exp(-((radius / _DOG_WIDE) ** 2))
    sensitivity -= _DOG_SHARE * np.exp(-((radius / _DOG_NARROW) ** 2))
    target = _masked_contrast(picture, sensitivity)
    quality, total, preserved = np.zeros((3, *picture.shape))
    for frame in frames:
        contrast = _masked_contrast(frame, sensitivity)
        largest = np.maximum(contrast, target)
        kept = np.minimum(contrast, target)
        np.divide(kept, largest, out=kept, where=largest > 0)
        kept[largest == 0] = 1.0
        saliency = contrast * contrast
        quality += saliency * kept
        total += saliency
        preserved += kept
    preserved /= len(frames)
    np.divide(quality, total, out=preserved, where=total > 0)
    return float(preserved.mean())


def q_cv(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Perceptual error of Chen and Varshney, :math:`Q_{CV}` [1]_.

    .. math:: Q_{CV} = \frac{\sum_k \sum_b \lambda_k(b)\, D_k(b)}{\sum_k \sum_b \lambda_k(b)},
              \qquad \lambda_k(b) = \sum_{n \in b} |\nabla S_k(n)|^5

    over the 16×16 blocks b. :math:`D_k(b)` is the mean square over the block of the difference
    :math:`S_k - F` after the contrast sensitivity filter of Mannos and Sakrison,
    :math:`2.6\,(0.0192 + 0.144\,r)\,e^{-(0.144\,r)^{1.1}}`.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), uint8 or float on the 0-255 scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Zero or more, in squared grey levels; **less** is better.

    Notes
    -----
    Each picture is first stretched so that its own range fills 0-255, and rounded. Gradients are
    Sobel's, zero outside the picture; blocks that reach over the lower or right border are filled
    with zeros. The filter acts by FFT, with the highest frequency at r = side/8. Sources without
    any gradient weigh every block equally.

    References
    ----------
    .. [1] H. Chen, P. K. Varshney, "A human perception inspired quality metric for image fusion
       based on regional information", Information Fusion 8 (2), 2007.
    """
    frames, picture = check_sources(sources, fused)
    radius = 0.144 * _visual_frequency(picture.shape, _CV_VIEWING)
    sensitivity = 2.6 * (0.0192 + radius) * np.exp(-(radius**1.1))
    target = stretch(picture).astype(np.float64)
    weighted, weights, plain = [], [], []
    for frame in frames:
        levels = stretch(frame)
        s_x, s_y = slopes(levels, slice(0, levels.shape[0]), _SOBEL)
        saliency = _block_sums(np.sqrt(s_x * s_x + s_y * s_y) ** _CV_SALIENCY_POWER)
        error = _filter_spectrum(levels - target, sensitivity)
        distance = _block_sums(error * error) / _CV_BLOCK**2
        weighted.append(float((saliency * distance).sum()))
        weights.append(float(saliency.sum()))
        plain.append(float(distance.mean()))
    if math.fsum(weights) == 0:
        return math.fsum(plain) / len(frames)
    return math.fsum(weighted) / math.fsum(weights)


def _masked_contrast(picture: NDArray[Any], sensitivity: Values) -> Values:
    """Local contrast after the eye's filter and masking; zero where the surround is black."""
    seen = _filter_spectrum(stretch(picture).astype(np.float64), sensitivity)
    centre = mean_zero_padded(seen, _open_gaussian(_CENTRE_SIGMA))
    surround = mean_zero_padded(seen, _open_gaussian(_SURROUND_SIGMA))
    ratio = np.divide(centre, surround, out=np.ones_like(centre), where=surround != 0)
    contrast = np.abs(ratio - 1.0)
    return contrast * (contrast**2 / (contrast**2 + _MASKING))


def _open_gaussian(sigma: float) -> Values:
    """One side of the truncated Gaussian, scaled by its integral rather than by its sum."""
    offsets = np.arange(-_CONTRAST_RADIUS, _CONTRAST_RADIUS + 1)
    return np.asarray(np.exp(-(offsets**2) / (2.0 * sigma**2)) / (math.sqrt(2.0 * math.pi) * sigma))


def _visual_frequency(shape: tuple[int, ...], viewing: float) -> Values:
    """Modulus of every frequency of a real spectrum, the highest of an axis at side/viewing."""
    height, width = shape
    u = 2.0 * width / viewing * np.fft.rfftfreq(width)
    v = 2.0 * height / viewing * np.fft.fftfreq(height)
    return np.asarray(np.hypot(v[:, None], u))


def _filter_spectrum(values: Values, transfer: Values) -> Values:
    """Multiply the spectrum of a picture by a transfer function."""
    from scipy import fft

    return np.asarray(fft.irfft2(fft.rfft2(values) * transfer, s=values.shape))


def _block_sums(values: Values) -> Values:
    """Sums over 16×16 blocks from the top left; blocks over the border are filled with zeros."""
    height, width = values.shape
    rows = np.add.reduceat(values, np.arange(0, height, _CV_BLOCK), axis=0)
    return np.asarray(np.add.reduceat(rows, np.arange(0, width, _CV_BLOCK), axis=1))
