"""What is measured on a result: by its sources, clean and noisy, and by the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.evaluation.metrics import psnr, q_abf, q_mi, ssim
from experiments.pictures import Situation, to_8_bit

#: PSNR of a picture equal to the truth, which has none: JSON knows no infinity.
HIGHEST_PSNR = 100.0
#: MFI-WHU was blurred with black beyond its borders: ``inside`` leaves 8 pixels at each side out.
_INSIDE = np.s_[8:-8, 8:-8]


def scores_of(picture: NDArray[Any], given: Situation) -> dict[str, float]:
    """Score an 8-bit result; only grey ones are held against their sources."""
    scores: dict[str, float] = {}
    if picture.ndim == 2 and len(given.clean) > 1:
        noisy = [to_8_bit(given.stack.to_levels(frame)) for frame in given.stack]
        for reference, frames in (("clean", given.clean), ("noisy", noisy)):
            scores[f"q_mi_{reference}"] = q_mi(frames, picture)
            scores[f"q_abf_{reference}"] = q_abf(frames, picture)
    truth = given.truth
    if truth is not None:
        scores["psnr"] = min(psnr(picture, truth), HIGHEST_PSNR)
        scores["inside"] = min(psnr(picture[_INSIDE], truth[_INSIDE]), HIGHEST_PSNR)
        scores["ssim"] = ssim(picture, truth)
    return {name: value for name, value in scores.items() if math.isfinite(value)}
