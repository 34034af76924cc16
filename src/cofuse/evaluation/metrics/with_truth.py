"""Scores against a known truth: for simulated stacks and for denoising.

All take ``(image, truth, *, white=255.0)``: two pictures of one shape, (H, W) or (H, W, channels),
and the value that stands for white in them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from cofuse.evaluation.metrics.pictures import (
    Pixels,
    Values,
    check_pair,
    gaussian_window,
    mean_inside,
    row_bands,
    window_bands,
)

__all__ = ["gradient_error", "psnr", "ssim"]

_SSIM_RADIUS, _SSIM_SIGMA = 5, 1.5
_SSIM_K1, _SSIM_K2 = 0.01, 0.03


def psnr(image: ArrayLike, truth: ArrayLike, *, white: float = 255.0) -> float:
    r"""Peak signal-to-noise ratio in decibels; more is better, infinite for equal pictures.

    .. math:: \mathrm{PSNR} = 10 \log_{10} \frac{w^2}{\frac1N \sum_n (I_n - T_n)^2}

    over all values of all channels.
    """
    first, second = check_pair(image, truth, white)
    squares = []
    for band in row_bands(first.shape):
        difference = first[band].astype(np.float64) - second[band]
        squares.append(float((difference * difference).sum()))
    error = math.fsum(squares) / first.size
    if error == 0:
        return math.inf
    return 20.0 * math.log10(white) - 10.0 * math.log10(error)


def ssim(image: ArrayLike, truth: ArrayLike, *, white: float = 255.0) -> float:
    r"""Structural similarity, -1 to 1, with the constants of the original paper [1]_.

    .. math:: \mathrm{SSIM} = \operatorname{mean}
              \frac{(2\mu_I\mu_T + C_1)(2\sigma_{IT} + C_2)}
                   {(\mu_I^2 + \mu_T^2 + C_1)(\sigma_I^2 + \sigma_T^2 + C_2)}

    with local moments under an 11×11 Gaussian window of σ = 1.5 pixels, :math:`C_i = (K_i w)^2`,
    K₁ = 0.01 and K₂ = 0.03, averaged over channels and the windows that lie wholly inside the
    picture.

    References
    ----------
    .. [1] Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image quality assessment: from
       error visibility to structural similarity", IEEE Trans. Image Processing 13 (4), 2004.
    """
    first, second = check_pair(image, truth, white)
    height, width, channels = first.shape
    side = 2 * _SSIM_RADIUS + 1
    sums = [
        float(_similarity(first[rows, :, channel], second[rows, :, channel], white).sum())
        for channel in range(channels)
        for rows in window_bands(first.shape, side)
    ]
    windows = int(channels * (height - side + 1) * (width - side + 1))
    return math.fsum(sums) / windows


def gradient_error(image: ArrayLike, truth: ArrayLike, *, white: float = 255.0) -> float:
    r"""Root mean square error of the gradient, in 8-bit grey levels a pixel; less is better.

    .. math:: \frac{255}{w} \sqrt{\tfrac1N \sum_n |\nabla I_n - \nabla T_n|^2}

    with ∇ by Sobel filters divided by 8, over the pixels that have all their neighbours. Unlike
    the PSNR it does not see a constant offset, and it weighs seams, halos and lost texture most.
    """
    import cv2

    first, second = check_pair(image, truth, white)
    height, width, channels = first.shape
    squares = []
    for channel in range(channels):
        for rows in window_bands(first.shape, 3):
            difference = first[rows, :, channel].astype(np.float64) - second[rows, :, channel]
            # The filters are linear: one pass over the difference gives both gradients' difference.
            for order in ((1, 0), (0, 1)):
                slope = cv2.Sobel(difference, cv2.CV_64F, *order, scale=1 / 8)[1:-1, 1:-1]
                squares.append(float((slope * slope).sum()))
    mean = math.fsum(squares) / (channels * (height - 2) * (width - 2))
    return 255.0 / white * math.sqrt(mean)


def _similarity(image: Pixels, truth: Pixels, white: float) -> Values:
    """SSIM of every window that lies wholly inside one band of one channel."""
    c1, c2 = (_SSIM_K1 * white) ** 2, (_SSIM_K2 * white) ** 2
    x, y = image.astype(np.float64), truth.astype(np.float64)
    window = gaussian_window(_SSIM_RADIUS, _SSIM_SIGMA)
    mu_x, mu_y = mean_inside(x, window), mean_inside(y, window)
    mu_xx, mu_yy, mu_xy = mu_x * mu_x, mu_y * mu_y, mu_x * mu_y
    spread = mean_inside(x * x + y * y, window) - mu_xx - mu_yy
    covariance = mean_inside(x * y, window) - mu_xy
    return (2.0 * mu_xy + c1) * (2.0 * covariance + c2) / ((mu_xx + mu_yy + c1) * (spread + c2))
