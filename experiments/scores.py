"""What is measured on a result: the usual scores, and what became of the texture.

Three measures of texture stand beside the PSNR, which a picture wiped smooth does well in. With I
the result, T the truth and H the high-pass, x minus x under a Gaussian of 1.5 pixels (borders
mirrored), all on luminance in grey levels:

* *gradient error*, RMS(∇I − ∇T) / RMS(∇T), ∇ by Sobel filters: 0 is perfect, 1 is what a flat
  picture has;
* *residual correlation*, the correlation coefficient of I − T with H(T): −1 when what is wrong is
  texture taken away, 0 when the error knows nothing of the texture (what noise left alone
  has), above 0 when texture is exaggerated;
* *texture kept*, ΣH(I)² / ΣH(T)² over the textured area: 1 is as much fine detail as in the
  truth, less is lost detail, more is noise left in. The textured area is where the mean of H(T)²
  under a Gaussian of 4 pixels is between its median and its 90th percentile: flat parts show only
  noise, and outlines, which every method keeps, would drown the rest.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.evaluation.metrics import gradient_error, psnr, q_abf, q_mi, ssim
from cofuse.images import luminance
from experiments.pictures import Situation, to_8_bit

Picture = NDArray[Any]
Values = NDArray[np.float64]

#: PSNR of a picture equal to the truth, which has none: JSON knows no infinity.
HIGHEST_PSNR = 100.0
_FINE, _AREA = 1.5, 4.0
_FROM, _TO = 0.5, 0.9
#: Mean squares below this (grey levels) are rounding, not picture.
_ROUNDING = 1e-8
#: MFI-WHU was blurred with black beyond its borders: ``inside`` leaves 8 pixels at each side out.
_INSIDE = np.s_[8:-8, 8:-8]
#: Side of the window in which the largest error is looked for.
WINDOW = 64


def scores_of(picture: Picture, given: Situation) -> dict[str, float]:
    """Score an 8-bit result: grey ones against their sources, clean and noisy, and by the truth."""
    scores: dict[str, float] = {}
    if picture.ndim == 2 and len(given.clean) > 1:
        noisy = [to_8_bit(given.stack.to_levels(frame)) for frame in given.stack]
        for reference, frames in (("clean", given.clean), ("noisy", noisy)):
            scores[f"q_mi_{reference}"] = q_mi(frames, picture)
            scores[f"q_abf_{reference}"] = q_abf(frames, picture)
    truth = given.truth
    if truth is not None:
        result, ideal = (luminance(p.astype(np.float32)).astype(float) for p in (picture, truth))
        top, left, error = worst_window(picture, truth)
        scores |= {
            "psnr": min(psnr(picture, truth), HIGHEST_PSNR),
            "inside": min(psnr(picture[_INSIDE], truth[_INSIDE]), HIGHEST_PSNR),
            "ssim": ssim(picture, truth),
            "gradient": relative_gradient_error(result, ideal),
            "correlation": residual_correlation(result, ideal),
            "texture": texture_kept(result, ideal),
            "worst": error,
            "worst_top": float(top),
            "worst_left": float(left),
        }
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def relative_gradient_error(result: Picture, truth: Picture) -> float:
    """RMS of the gradient's error over the RMS of the truth's gradient; NaN for a flat truth."""
    scale = gradient_error(truth, np.zeros_like(truth))
    return gradient_error(result, truth) / scale if scale > 0 else math.nan


def residual_correlation(result: Picture, truth: Picture) -> float:
    """Correlation of the residual with the truth's high-pass; 0 where there is no residual."""
    residual = result.astype(np.float64) - truth
    residual -= residual.mean()
    fine = high_pass(truth)
    fine -= fine.mean()
    energies = [float((part**2).mean()) for part in (residual, fine)]
    if min(energies) < _ROUNDING:
        return 0.0
    return float((residual * fine).mean()) / math.sqrt(math.prod(energies))


def texture_kept(result: Picture, truth: Picture) -> float:
    """Share of the truth's high-pass energy in its textured area; NaN for a flat truth."""
    fine = high_pass(truth) ** 2
    energy = _smooth(fine, _AREA)
    low, high = np.quantile(energy, (_FROM, _TO))
    textured = (energy >= low) & (energy <= high)
    if (mean := float(fine[textured].mean())) < _ROUNDING:
        return math.nan
    return float((high_pass(result)[textured] ** 2).mean()) / mean


def high_pass(picture: Picture) -> Values:
    """Subtract a Gaussian mean of 1.5 pixels."""
    values = picture.astype(np.float64)
    return values - _smooth(values, _FINE)


def worst_window(picture: Picture, truth: Picture, side: int = WINDOW) -> tuple[int, int, float]:
    """Find the window with the largest error: its top, its left, and the RMS in it."""
    squares = (picture.astype(np.float64) - truth) ** 2
    squares = squares.mean(axis=-1) if squares.ndim == 3 else squares
    height, width = (min(side, length) for length in squares.shape)
    # Anchored at its corner, the window's positions wholly inside are the top left ones.
    means = cv2.boxFilter(squares, cv2.CV_64F, (width, height), anchor=(0, 0))
    inside = means[: squares.shape[0] - height + 1, : squares.shape[1] - width + 1]
    top, left = np.unravel_index(int(inside.argmax()), inside.shape)
    return int(top), int(left), float(np.sqrt(max(inside.max(), 0.0)))


def _smooth(values: Values, sigma: float) -> Values:
    return cv2.GaussianBlur(values, (0, 0), sigma, borderType=cv2.BORDER_REFLECT)
