"""Scores against a known truth, and what all metrics share: grey, checks, bands and windows.

The scores take ``(image, truth, *, white=255.0)``: two pictures of one shape, (H, W) or
(H, W, channels), and the value that stands for white in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check
from cofuse.errors import CofuseError
from cofuse.images import LUMINANCE_WEIGHTS, Pixels
from cofuse.images.pixels import checked

Values = NDArray[np.float64]

#: Pixels of one band: its float64 temporaries stay inside a processor's second-level cache.
_BAND_PIXELS = 1 << 15


def psnr(image: ArrayLike, truth: ArrayLike, *, white: float = 255.0) -> float:
    r"""Peak signal-to-noise ratio in decibels; more is better, infinite for equal pictures.

    .. math:: \mathrm{PSNR} = 10 \log_{10} \frac{w^2}{\frac1N \sum_n (I_n - T_n)^2}

    over all values of all channels.
    """
    first, second = _check_pair(image, truth, white)
    squares = []
    for band in bands(first.shape):
        difference = first[band].astype(np.float64) - second[band]
        squares.append(float((difference * difference).sum()))
    error = math.fsum(squares) / first.size
    return math.inf if error == 0 else 20.0 * math.log10(white) - 10.0 * math.log10(error)


def ssim(image: ArrayLike, truth: ArrayLike, *, white: float = 255.0) -> float:
    r"""Structural similarity, -1 to 1, as Wang, Bovik, Sheikh and Simoncelli (2004) define it.

    .. math:: \mathrm{SSIM} = \operatorname{mean}
              \frac{(2\mu_I\mu_T + C_1)(2\sigma_{IT} + C_2)}
                   {(\mu_I^2 + \mu_T^2 + C_1)(\sigma_I^2 + \sigma_T^2 + C_2)}

    with local moments under an 11×11 Gaussian window of σ = 1.5 pixels, :math:`C_i = (K_i w)^2`,
    K₁ = 0.01 and K₂ = 0.03, averaged over channels and the windows that lie wholly inside the
    picture.
    """
    first, second = _check_pair(image, truth, white)
    c1, c2 = (0.01 * white) ** 2, (0.03 * white) ** 2
    window = gaussian_window(5, 1.5)
    sums, windows = [], 0
    for rows in bands(first.shape, window.size):
        for channel in range(first.shape[2]):
            x, y = (p[rows, :, channel].astype(np.float64) for p in (first, second))
            mu_x, mu_y = mean_inside(x, window), mean_inside(y, window)
            mu_xx, mu_yy, mu_xy = mu_x * mu_x, mu_y * mu_y, mu_x * mu_y
            spread = mean_inside(x * x + y * y, window) - mu_xx - mu_yy
            covariance = mean_inside(x * y, window) - mu_xy
            similarity = (2.0 * mu_xy + c1) * (2.0 * covariance + c2)
            similarity /= (mu_xx + mu_yy + c1) * (spread + c2)
            sums.append(float(similarity.sum()))
            windows += similarity.size
    return math.fsum(sums) / windows


def to_grey(rgb: ArrayLike) -> Pixels:
    r"""Turn an RGB picture into the 8-bit grey the published fusion scores are computed on.

    .. math:: Y = \lfloor 0.298936\,R + 0.587043\,G + 0.114021\,B + \tfrac12 \rfloor

    with the ITU-R BT.601 weights to fifteen digits, which gives the grey of MATLAB's ``rgb2gray``
    bit for bit. Input: shape (H, W, 3), uint8, or float on the 0-255 scale (clipped to it). A
    picture of shape (H, W) is returned as it is.
    """
    picture = checked(np.asarray(rgb), "the picture")
    if picture.ndim == 2:
        return picture
    if picture.dtype == np.uint16:
        raise CofuseError("the picture has values of type uint16; expected uint8, or float to 255")
    grey = np.empty(picture.shape[:2], dtype=np.uint8)
    red, green, blue = LUMINANCE_WEIGHTS
    for band in bands(grey.shape):
        levels = picture[band].astype(np.float64)
        # The order of the sum decides the last bit, and with it which way a tie is rounded.
        weighted = red * levels[..., 0] + green * levels[..., 1] + blue * levels[..., 2]
        grey[band] = np.clip(np.floor(weighted + 0.5), 0, 255)
    return grey


def bands(shape: tuple[int, ...], side: int = 1) -> Iterator[slice]:
    """Cut rows into bands that fit a cache; every window of a side lies in exactly one band."""
    height, width = shape[:2]
    if min(height, width) < side:
        raise CofuseError(
            f"the pictures are {width}x{height}; this metric needs at least {side}x{side} pixels"
        )
    rows = max(1, _BAND_PIXELS // width)
    last = height - side + 1
    for top in range(0, last, rows):
        yield slice(top, min(top + rows, last) + side - 1)


def gaussian_window(radius: int, sigma: float) -> Values:
    """One side of a separable Gaussian window, with 2·radius + 1 weights that sum to 1."""
    window = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2.0 * sigma**2))
    return np.asarray(window / window.sum())


def mean_inside(values: Values, window: Values) -> Values:
    """Weighted mean under every position of a separable window wholly inside the picture."""
    import cv2

    height, width = (side - window.size + 1 for side in values.shape)
    # Anchored at its first weight, the window's valid positions are the top left ones.
    means = cv2.sepFilter2D(values, cv2.CV_64F, window, window, anchor=(0, 0))
    return np.asarray(means, dtype=np.float64)[:height, :width]


def box_inside(values: NDArray[Any], side: int) -> Values:
    """Mean over every square of a side that lies wholly inside the picture."""
    import cv2

    height, width = (length - side + 1 for length in values.shape)
    means = cv2.boxFilter(np.asarray(values, np.float64), -1, (side, side), anchor=(0, 0))
    return np.asarray(means, np.float64)[:height, :width]


def check_pictures(pictures: Mapping[str, ArrayLike], *, grey: bool = False) -> list[Pixels]:
    """Refuse pictures that cannot be scored, or differ in shape from the last; return arrays.

    ``pictures`` are given by the names that messages use; those of ``grey`` metrics have 8 bits.
    """
    arrays = {name: checked(np.asarray(picture), name) for name, picture in pictures.items()}
    last, like = list(arrays.items())[-1]
    for name, array in arrays.items():
        if grey and (array.ndim != 2 or array.dtype == np.uint16):
            raise CofuseError(
                f"{name} has shape {array.shape} and values of type {array.dtype}; expected grey "
                "(height, width), uint8 or float: convert it with cofuse.evaluation.metrics.to_grey"
            )
        if array.shape != like.shape:
            raise CofuseError(
                f"{name} has shape {array.shape} but {last} {like.shape}; all pictures must agree: "
                "crop them to the same size"
            )
    return list(arrays.values())


def _check_pair(image: ArrayLike, truth: ArrayLike, white: float) -> tuple[Pixels, Pixels]:
    """Refuse what cannot be compared with the truth; return both as arrays of (H, W, channels)."""
    check("white", white, "a positive number", lambda given: 0 < given < math.inf)
    first, second = map(np.atleast_3d, check_pictures({"the picture": image, "the truth": truth}))
    return first, second
