r"""Scores against the sources, where no truth is known.

All take ``(sources, fused)``: K ≥ 2 grey pictures :math:`S_k` and the fused one F, all of one
shape (H, W), uint8 or float on the 0-255 scale. Of all of them more is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.evaluation.metrics.with_truth import (
    Values,
    bands,
    check_pictures,
    gaussian_window,
    mean_inside,
)
from cofuse.images import Pixels

Sources = Sequence[ArrayLike]
Bins = NDArray[np.uint8]

_BINS = 256


def q_mi(sources: Sources, fused: ArrayLike) -> float:
    r"""Normalised mutual information, 0 (independent) to 2, after Hossny and others (2008).

    .. math:: Q_{MI} = 2 \cdot \frac{2}{K} \sum_{k=1}^{K}
              \frac{MI(S_k, F)}{H(S_k) + H(F)}

    with entropies of 256-bin histograms. The factor 2/K preserves Hossny's range for more than two
    sources. The metric rewards copying: a picture that repeats one source scores above every real
    fusion. Float pictures are first stretched to their own range and rounded. A term whose two
    pictures are constant is 0/0 and counts as 1/2.
    """
    *frames, picture = map(_to_bins, _check(sources, fused))
    total = 0.0
    for frame in frames:
        shared, entropies = _mutual_information(frame, picture)
        total += shared / entropies if entropies > 0 else 0.5
    return 2.0 * (2.0 / len(frames)) * total


def q_ncie(sources: Sources, fused: ArrayLike) -> float:
    r"""Nonlinear correlation information entropy, :math:`1 - \log_{256}(K+1)` to 1.

    .. math:: Q_{NCIE} = 1 + \sum_{i=1}^{K+1} \frac{\lambda_i}{K+1} \log_{256} \frac{\lambda_i}{K+1}

    where :math:`\lambda_i` are the eigenvalues of the matrix of mutual information, in units of 8
    bits, between all K + 1 pictures (its diagonal is 1). Values for different K do not compare.
    After Wang, Shen and Jin (2008).
    """
    binned = [_to_bins(picture) for picture in _check(sources, fused)]
    correlation = np.eye(len(binned))
    for i, j in combinations(range(len(binned)), 2):
        shared, _ = _mutual_information(binned[i], binned[j])
        correlation[i, j] = correlation[j, i] = shared / np.log2(_BINS)
    # Rounding may leave an eigenvalue of a singular matrix a little below zero; 0 log 0 is 0.
    share = np.linalg.eigvalsh(correlation) / len(binned)
    share = share[share > 0]
    return float(1.0 + (share * np.log2(share)).sum() / np.log2(_BINS))


def q_abf(sources: Sources, fused: ArrayLike) -> float:
    r"""Edge transfer of Xydeas and Petrović (2000), :math:`Q^{AB/F}`, 0 to 0.975.

    .. math:: Q^{AB/F} = \frac{\sum_k \sum_n w_k(n)\, Q_k(n)}{\sum_k \sum_n w_k(n)},
              \qquad Q_k = \frac{\Gamma_g}{1 + e^{\kappa_g (G_k - \sigma_g)}}
              \cdot \frac{\Gamma_\alpha}{1 + e^{\kappa_\alpha (A_k - \sigma_\alpha)}}

    over the sources k and the pixels n. :math:`G_k` is the smaller over the larger gradient
    magnitude of source and fused picture, :math:`A_k = 1 - \frac{2}{\pi}|\alpha_k - \alpha_F|`
    how well their directions agree, and the weight :math:`w_k` is the source's gradient magnitude.

    As in the published evaluations, gradients come from 3×3 Sobel filters over a picture that is
    zero outside, so its border counts as an edge; and the direction :math:`\arctan(s_y / s_x)` is
    not unwrapped: nearly vertical edges on either side of the jump count as opposite.
    """
    *frames, picture = _check(sources, fused)
    transferred, weights = [], []
    for band in bands(picture.shape):
        fused_strength, fused_angle = _edges(picture, band)
        for frame in frames:
            strength, angle = _edges(frame, band)
            ratio = np.minimum(strength, fused_strength) / np.maximum(strength, fused_strength)
            agreement = 1.0 - 2.0 / np.pi * np.abs(angle - fused_angle)
            kept = _sigmoid(ratio, 0.9994, -15.0, 0.5) * _sigmoid(agreement, 0.9879, -22.0, 0.8)
            # Not a BLAS product: its threads cost more than they win on a band.
            transferred.append(float((strength * kept).sum()))
            weights.append(float(strength.sum()))
    return math.fsum(transferred) / math.fsum(weights)


def q_y(sources: Sources, fused: ArrayLike) -> float:
    r"""Structural similarity metric of Yang, Zhang, Wang and Liu (2008), :math:`Q_Y`, -1 to 1.

    .. math:: Q_Y = \frac{1}{|W|} \sum_{w \in W} \begin{cases}
              \sum_k \lambda_k(w)\, Q_0(S_k, F \mid w), & \text{the sources are alike in } w \\
              \max_k Q_0(S_k, F \mid w), & \text{otherwise} \end{cases}

    under 7×7 Gaussian windows of σ = 1.5 pixels, with each source's share of variance
    :math:`\lambda_k = \sigma_k^2 / \sum_j \sigma_j^2` and the universal quality index of Wang and
    Bovik,

    .. math:: Q_0(x, y) = \frac{2 \mu_x \mu_y}{\mu_x^2 + \mu_y^2}
              \cdot \frac{2 \sigma_{xy}}{\sigma_x^2 + \sigma_y^2}.

    Sources are alike where :math:`Q_0` of every two of them is at least 0.75. Variances under 1e-8
    squared grey levels are rounding noise and count as zero; the second factor of :math:`Q_0` is 1
    where both pictures are flat. The published implementation divides that noise by itself: on
    pictures with flat parts its scores differ by up to 6e-4, and it can leave [-1, 1].
    """
    *frames, picture = _check(sources, fused)
    window = gaussian_window(3, 1.5)
    quality, windows = [], 0
    for rows in bands(picture.shape, window.size):
        target = _Moments(picture[rows], window)
        local = [_Moments(frame[rows], window) for frame in frames]
        kept = np.stack([source.similarity(target) for source in local])
        variance = np.stack([source.variance for source in local])
        total = variance.sum(axis=0)
        shares = np.where(total == 0, 1.0, variance) / np.where(total == 0, len(local), total)
        pairs = [a.similarity(b) >= 0.75 for a, b in combinations(local, 2)]
        best = np.where(np.all(pairs, axis=0), (shares * kept).sum(axis=0), kept.max(axis=0))
        quality.append(float(best.sum()))
        windows += best.size
    return math.fsum(quality) / windows


def q_cb(sources: Sources, fused: ArrayLike) -> float:
    r"""Perceptual metric of Chen and Blum (2009), :math:`Q_{CB}`, 0 to 1.

    .. math:: Q_{CB} = \frac1N \sum_n \sum_k \lambda_k(n)
              \frac{\min(C'_k, C'_F)}{\max(C'_k, C'_F)}, \qquad
              \lambda_k = \frac{C'^2_k}{\sum_j C'^2_j}, \qquad C' = \frac{C^3}{C^2 + 10^{-4}}

    where :math:`C = |G_2 * I / G_4 * I - 1|` is the local contrast of a picture after contrast
    sensitivity filtering, between Gaussian means of σ = 2 and 4 pixels.

    Each picture is first stretched to its own range and rounded. The sensitivity filter
    :math:`e^{-(r/15.387)^2} - 0.7622\, e^{-(r/1.3456)^2}` acts by FFT; the highest frequency of an
    axis is r = side/30. Pixels without contrast in any source share the weight equally, and two
    contrasts of zero count as equal.
    """
    *frames, picture = _check(sources, fused)
    height, width = picture.shape
    u, v = width / 15.0 * np.fft.rfftfreq(width), height / 15.0 * np.fft.fftfreq(height)
    radius = np.hypot(v[:, None], u)
    sensitivity = np.exp(-((radius / 15.387) ** 2)) - 0.7622 * np.exp(-((radius / 1.3456) ** 2))
    target = _masked_contrast(picture, sensitivity)
    quality, total, preserved = np.zeros((3, *picture.shape))
    for frame in frames:
        contrast = _masked_contrast(frame, sensitivity)
        smallest, largest = np.minimum(contrast, target), np.maximum(contrast, target)
        kept = np.divide(smallest, largest, out=np.ones_like(target), where=largest > 0)
        saliency = contrast * contrast
        quality += saliency * kept
        total += saliency
        preserved += kept / len(frames)
    np.divide(quality, total, out=preserved, where=total > 0)
    return float(preserved.mean())


def _check(sources: Sources, fused: ArrayLike) -> list[Pixels]:
    """Refuse what is not at least two grey sources and a picture alike; return all as arrays."""
    if len(sources) < 2:
        raise CofuseError(f"{len(sources)} source was given; a fusion metric compares at least two")
    pictures = {f"source {k}": source for k, source in enumerate(sources, 1)}
    return check_pictures(pictures | {"the fused picture": fused}, grey=True)


def _stretch(picture: Pixels) -> Bins:
    """Stretch a picture so that its own range fills 0-255, and round; a constant one becomes 0."""
    low, high = float(picture.min()), float(picture.max())
    # Divide first, then multiply: averages of 8-bit pictures lie on ties, and the last bit decides
    # which way a tie goes.
    levels = (picture.astype(np.float64) - low) / max(high - low, np.finfo(float).tiny) * 255.0
    return np.floor(levels + 0.5).astype(np.uint8)


def _to_bins(picture: Pixels) -> Bins:
    """Stretch a picture to 0-255; for uint8 that only renames the bins, so it is left out."""
    return picture if picture.dtype == np.uint8 else _stretch(picture)


def _mutual_information(first: Bins, second: Bins) -> tuple[float, float]:
    """Mutual information of two binned pictures and the sum of both entropies, in bits."""
    joint = np.zeros(_BINS * _BINS, dtype=np.int64)
    for band in bands(first.shape):
        pairs = first[band].astype(np.intp).ravel() * _BINS + second[band].ravel()
        joint += np.bincount(pairs, minlength=_BINS * _BINS)
    table = joint.reshape(_BINS, _BINS)
    both = _entropy(table.sum(axis=1)) + _entropy(table.sum(axis=0))
    return max(both - _entropy(joint), 0.0), both


def _entropy(counts: NDArray[np.int64]) -> float:
    """Entropy in bits of a histogram given as whole counts."""
    present = counts[counts > 0].astype(np.float64)
    total = present.sum()
    return float(np.log2(total) - (present * np.log2(present)).sum() / total)


def _edges(picture: Pixels, rows: slice) -> tuple[Values, Values]:
    """Magnitude and direction of the Sobel gradient in a band of rows, the picture zero outside."""
    import cv2

    # One row more on either side, except at the picture's border, where the filters see zeros.
    top = max(rows.start - 1, 0)
    band = picture[top : rows.stop + 1]
    band = band if band.dtype == np.uint8 else band.astype(np.float64)
    inner = slice(rows.start - top, rows.stop - top)
    s_x, s_y = (
        np.asarray(cv2.Sobel(band, cv2.CV_64F, *order, borderType=cv2.BORDER_CONSTANT))[inner]
        for order in ((1, 0), (0, 1))
    )
    strength = np.sqrt(s_x * s_x + s_y * s_y)
    # A tiny value stands for zero, so that every quotient exists.
    strength[strength == 0] = 1e-5
    s_x[s_x == 0] = 1e-5
    return strength, np.arctan(s_y / s_x)


def _sigmoid(values: Values, gain: float, slope: float, centre: float) -> Values:
    return np.asarray(gain / (1.0 + np.exp(slope * (values - centre))))


class _Moments:
    """Mean and variance of a picture under every window that lies wholly inside it."""

    def __init__(self, picture: Pixels, window: Values) -> None:
        self.values = picture.astype(np.float64)
        self.window = window
        self.mean = mean_inside(self.values, window)
        variance = mean_inside(self.values * self.values, window) - self.mean * self.mean
        self.variance = np.where(variance > 1e-8, variance, 0.0)

    def similarity(self, other: _Moments) -> Values:
        """Universal quality index of two pictures, with a guard added to each of its sums."""
        product = self.mean * other.mean
        covariance = mean_inside(self.values * other.values, self.window) - product
        covariance[(self.variance == 0) | (other.variance == 0)] = 0.0
        guard = 2e-16
        luminance = (2.0 * product + guard) / (self.mean**2 + other.mean**2 + guard)
        return luminance * (2.0 * covariance + guard) / (self.variance + other.variance + guard)


def _masked_contrast(picture: Pixels, sensitivity: Values) -> Values:
    """Local contrast after the eye's filter and masking; zero where the surround is black."""
    spectrum = np.fft.rfft2(_stretch(picture).astype(np.float64))
    seen = np.fft.irfft2(spectrum * sensitivity, s=picture.shape)
    centre, surround = (_open_gaussian(seen, sigma) for sigma in (2.0, 4.0))
    ratio = np.divide(centre, surround, out=np.ones_like(centre), where=surround != 0)
    contrast = np.abs(ratio - 1.0)
    return contrast * (contrast**2 / (contrast**2 + 1e-4))


def _open_gaussian(values: Values, sigma: float) -> Values:
    """Filter by a truncated Gaussian that is scaled by its integral, zero outside the picture."""
    import cv2

    offsets = np.arange(-15, 16)
    window = np.exp(-(offsets**2) / (2.0 * sigma**2)) / (math.sqrt(2.0 * math.pi) * sigma)
    means = cv2.sepFilter2D(values, cv2.CV_64F, window, window, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(means, dtype=np.float64)
