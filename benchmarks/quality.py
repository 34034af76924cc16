"""Scores of a fused file against the truth, also where a program cut or moved its result.

A program that aligns leaves the picture where its own reference frame lies, and cuts it to its own
size. The truth is then brought to the result by OpenCV's ECC, which is nobody's own aligner here,
and the inner part of the result is scored. Where the truth must be interpolated for that, a little
of the score is lost: compare such scores with care.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray

from benchmarks.measuring import Failure
from cofuse.evaluation.metrics import psnr, ssim

#: Pixels on which the place is looked for, coarse and then fine.
_COARSE, _FINE = 250_000, 6_000_000
#: A place is taken for whole pixels when no corner is off by more than this.
_SNAP = 0.15
#: Share of each side that is not scored, where programs have moved their frames.
_RIM = 0.05

Picture = NDArray[Any]
Matrix = NDArray[np.float32]


def score(output: Path, truth_file: Path, *, moved: bool) -> dict[str, float]:
    """PSNR and SSIM of a file; ``moved`` says that the result may lie anywhere."""
    truth = tifffile.imread(truth_file)
    fused = _like(tifffile.imread(output, key=0), truth)
    if moved:
        place = find_place(fused, truth)
        flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        truth = cv2.warpAffine(truth, place, fused.shape[1::-1], flags=flags)
        rows, columns = (slice(round(_RIM * n), round((1 - _RIM) * n)) for n in fused.shape[:2])
        fused, truth = fused[rows, columns], truth[rows, columns]
    if fused.shape != truth.shape:
        raise Failure(f"the result has shape {fused.shape}, the truth {truth.shape}")
    return {"psnr": psnr(fused, truth), "ssim": ssim(fused, truth)}


def find_place(fused: Picture, truth: Picture) -> Matrix:
    """Where a point (x, y) of the result lies in the truth, as a 2 × 3 matrix."""
    place = np.eye(2, 3, dtype=np.float32)
    place[:, 2] = [(t - f) / 2 for t, f in zip(truth.shape[1::-1], fused.shape[1::-1], strict=True)]
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 100, 1e-6)
    for pixels in (_COARSE, _FINE):
        scale = min(1.0, float(np.sqrt(pixels / (truth.shape[0] * truth.shape[1]))))
        small, large = (_small(picture, scale) for picture in (fused, truth))
        try:
            _, found = cv2.findTransformECC(
                small, large, _scaled(place, scale), cv2.MOTION_AFFINE, stop, None, 5
            )
        except cv2.error as error:
            raise Failure("the result could not be found in the truth") from error
        place = _scaled(np.asarray(found, np.float32), 1.0 / scale)
    height, width = fused.shape[:2]
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]], np.float32)
    moves = corners @ place.T - corners[:, :2]
    whole = np.rint(moves.mean(axis=0))
    if np.abs(moves - whole).max() < _SNAP:
        place = np.eye(2, 3, dtype=np.float32)
        place[:, 2] = whole
    return place


def _small(picture: Picture, scale: float) -> Picture:
    grey = picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def _scaled(place: Matrix, scale: float) -> Matrix:
    """Give the same place in pictures of another size; pixels are squares, not points."""
    scaled = place.copy()
    middle = np.full(2, 0.5, np.float32)
    offset = place[:, 2] + place[:, :2] @ middle - middle
    scaled[:, 2] = scale * offset - (place[:, :2] @ middle - middle)
    return scaled


def _like(fused: Picture, truth: Picture) -> Picture:
    """Take off coverage, channels that a grey picture was given, and depth."""
    if truth.ndim == 3:
        fused = fused[..., : truth.shape[2]]
    elif fused.ndim == 3:
        fused = fused[..., 0]
    if fused.dtype == np.uint16:
        fused = np.rint(fused / 257.0)
    return np.ascontiguousarray(fused, np.uint8)
