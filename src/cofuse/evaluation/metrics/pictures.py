"""What the metrics share: checks of their pictures, the grey they are scored in, small filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.images import LUMINANCE_WEIGHTS

__all__ = [
    "Pixels",
    "Values",
    "against_sources",
    "check_pair",
    "gaussian_window",
    "mean_inside",
    "row_bands",
    "stretch",
    "to_grey",
    "window_bands",
]

Pixels = NDArray[Any]
Values = NDArray[np.float64]

#: Pixels of one band: its float64 temporaries stay inside a processor's second-level cache.
_BAND_PIXELS = 1 << 15

_GREY_DTYPES = (np.uint8, np.float32, np.float64)
_PICTURE_DTYPES = (np.uint8, np.uint16, np.float32, np.float64)


def to_grey(rgb: ArrayLike) -> Pixels:
    r"""Turn an RGB picture into the 8-bit grey the published fusion scores are computed on.

    .. math:: Y = \lfloor 0.298936\,R + 0.587043\,G + 0.114021\,B + \tfrac12 \rfloor

    with the ITU-R BT.601 weights to fifteen digits, which gives the grey of MATLAB's ``rgb2gray``
    bit for bit. Input: shape (H, W, 3), uint8, or float on the 0-255 scale (clipped to it). A
    picture of shape (H, W) is returned as it is.
    """
    picture = np.asarray(rgb)
    if picture.ndim == 2:
        return picture
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise CofuseError(
            f"to_grey got shape {picture.shape}; expected (height, width, 3) or (height, width)"
        )
    _check_values(picture, "the RGB picture", _GREY_DTYPES)
    grey = np.empty(picture.shape[:2], dtype=np.uint8)
    red, green, blue = LUMINANCE_WEIGHTS
    for band in row_bands(grey.shape):
        levels = picture[band].astype(np.float64)
        # The order of the sum decides the last bit, and with it which way a tie is rounded.
        weighted = red * levels[..., 0] + green * levels[..., 1] + blue * levels[..., 2]
        grey[band] = np.clip(np.floor(weighted + 0.5), 0, 255)
    return grey


def stretch(picture: Pixels) -> NDArray[np.uint8]:
    """Stretch a picture so that its own range fills 0-255, and round; a constant one becomes 0."""
    low, high = float(picture.min()), float(picture.max())
    stretched = np.zeros(picture.shape, dtype=np.uint8)
    if high > low:
        for band in row_bands(picture.shape):
            # Divide first, then multiply: averages of 8-bit pictures lie on ties, and the last
            # bit decides which way a tie goes.
            levels = (picture[band].astype(np.float64) - low) / (high - low) * 255.0
            stretched[band] = np.floor(levels + 0.5)
    return stretched


def against_sources(
    metric: Callable[[Sequence[Pixels], Pixels], float],
) -> Callable[[Sequence[ArrayLike], ArrayLike], float]:
    """Give a metric of sources and fused picture its checks.

    Accepted are at least two grey sources and one fused picture, all of one shape (H, W), uint8
    or float on the 0-255 scale, without NaN. The metric gets them as arrays.
    """

    @wraps(metric)
    def checked(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
        frames = [np.asarray(source) for source in sources]
        if len(frames) < 2:
            raise CofuseError(
                f"{len(frames)} source was given; a fusion metric compares at least two"
            )
        picture = np.asarray(fused)
        names = [f"source {k + 1}" for k in range(len(frames))] + ["the fused picture"]
        for array, name in zip((*frames, picture), names, strict=True):
            if array.ndim != 2:
                raise CofuseError(
                    f"{name} has shape {array.shape}; expected grey (height, width): "
                    "convert colour with cofuse.evaluation.metrics.to_grey"
                )
            _check_values(array, name, _GREY_DTYPES)
            if array.shape != picture.shape:
                raise CofuseError(
                    f"{name} has shape {array.shape} but the fused picture {picture.shape}; "
                    "all pictures must agree"
                )
        return metric(frames, picture)

    return checked


def check_pair(image: ArrayLike, truth: ArrayLike, white: float) -> tuple[Pixels, Pixels]:
    """Refuse what cannot be compared with the truth; return both as arrays of (H, W, channels)."""
    if not (np.isfinite(white) and white > 0):
        raise CofuseError(f"`white` is {white}; expected a positive number")
    pair = np.asarray(image), np.asarray(truth)
    for array, name in zip(pair, ("the picture", "the truth"), strict=True):
        if array.ndim not in (2, 3):
            raise CofuseError(
                f"{name} has shape {array.shape}; expected (height, width) or "
                "(height, width, channels)"
            )
        _check_values(array, name, _PICTURE_DTYPES)
    if pair[0].shape != pair[1].shape:
        raise CofuseError(
            f"the picture has shape {pair[0].shape} but the truth {pair[1].shape}; "
            "crop them to the same size"
        )
    height, width = pair[0].shape[:2]
    return pair[0].reshape(height, width, -1), pair[1].reshape(height, width, -1)


def row_bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Cut the rows of a picture into bands small enough to be worked on inside the cache."""
    height, width = shape[:2]
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        yield slice(top, min(top + rows, height))


def window_bands(shape: tuple[int, ...], side: int) -> Iterator[slice]:
    """Cut the rows into bands, overlapping so that every window lies in exactly one of them."""
    height, width = shape[:2]
    if min(height, width) < side:
        raise CofuseError(
            f"the pictures are {width}x{height}; this metric needs at least {side}x{side} pixels"
        )
    for band in row_bands((height - side + 1, width)):
        yield slice(band.start, band.stop + side - 1)


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


def _check_values(array: Pixels, name: str, dtypes: Sequence[type]) -> None:
    """Refuse dtypes whose scale is unknown, empty pictures and values that are not finite."""
    if array.dtype not in dtypes:
        expected = ", ".join(np.dtype(dtype).name for dtype in dtypes)
        raise CofuseError(f"{name} has values of type {array.dtype}; expected one of {expected}")
    if array.size == 0:
        raise CofuseError(f"{name} is empty: its shape is {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise CofuseError(f"{name} holds NaN or infinite values; replace them before scoring")
