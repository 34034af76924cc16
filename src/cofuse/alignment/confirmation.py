"""Whether a transform is right: the parts of the picture must agree that it is.

The second picture is brought into place and both are cut into windows. With c_i(s) the covariance
of window i at a further shift s,

    z(s) = sum_i d_i / sqrt(sum_i d_i²),    d_i = m c_i(0) - c_i(s),

is what the windows say together against that shift, in units of their own scatter. N windows that
agree give sqrt(N); windows that contradict each other cancel out; a single one, however strong,
gives 1; and by chance z is about normal. So z² counts the windows that confirm the transform. The
least z over all shifts, nearby on a fine level and farther away on a coarse one, is the evidence.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.pictures import Level, Picture

__all__ = ["LEAST_EVIDENCE", "evidence"]

#: Evidence of a right transform: as much as sixteen windows give that agree. Of the hundreds of
#: places that a search compares the best is beyond 3 by chance; it then has as good rivals.
LEAST_EVIDENCE = 4.0
#: Evidence of a level, below which it speaks for another place whatever the other level says: one
#: standard deviation.
_OBJECTION = 1.0
#: Longer side of the levels that are looked at: one for shifts nearby, one for those farther away.
_SIDES = (300, 130)
#: Windows along the shorter side, and the side of a window. Eight pixels hold one independent
#: value of the band-passed picture, thirty-two enough to be placed alone.
_ALONG, _LEAST_WINDOW, _MOST_WINDOW = 8, 8, 32
#: Parts along each side whose own best shifts are looked for: several windows each, against noise.
_PARTS = 3
#: Windows that are enough, of a picture as long as a ribbon.
_MOST_WINDOWS = 256
#: Shifts that are compared, in pixels of a level. Those within half a wave of the band-pass, which
#: is 16 pixels long, are the same place.
_REACH, _SAME_PLACE = 16, 8.0
#: What a rival may lose by lying half a pixel beside the places that are compared. Frames that
#: move must beat every rival by it, frames that stay need not.
_BETWEEN_PIXELS = 0.1

Matrix = NDArray[np.float64]


def evidence(
    first: Picture, second: Picture, matrix: Matrix, *, stays: bool
) -> tuple[float, float]:
    """Return how much the parts agree on a transform, and how far the middle one lies apart.

    The first in standard deviations, the second in pixels of the finer level. Staying in place
    needs no reason: with `stays` another place must be better, not as good, to count against it,
    so that a pattern that repeats itself may lie still, but not move.
    """
    margin = 1 + _BETWEEN_PIXELS if stays else 1 - _BETWEEN_PIXELS
    found, apart = [], 0.0
    for level in sorted({first.level_within(side) for side in _SIDES}):
        a, b = first.levels[level], second.levels[level]
        at = second.to_level(level) @ matrix @ np.linalg.inv(first.to_level(level))
        covariances, part = _covariances(a, b, at)
        found.append(_least_z(covariances, margin))
        if len(found) == 1:
            apart = _apart(covariances, part)
    # Levels are different bands: what they say adds up as independent numbers do (Stouffer).
    least = min(found)
    return (least if least < _OBJECTION else sum(found) / math.sqrt(len(found))), apart


def _covariances(a: Level, b: Level, matrix: Matrix) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the covariance of every window at every shift, (N, 2 reach + 1, 2 reach + 1).

    And in which of the parts of the picture, numbered from 0, each window lies.
    """
    height, width = a.shape
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    placed = np.asarray(cv2.warpPerspective(b.values, matrix, (width, height), flags=flags))
    side = min(max(min(height, width) // _ALONG, _LEAST_WINDOW), _MOST_WINDOW, height, width)
    rows, columns = (
        np.arange((n % side) // 2, n - side + 1, side, dtype=np.intp) for n in (height, width)
    )
    y, x = (g.ravel() for g in np.meshgrid(rows, columns, indexing="ij"))
    every = math.ceil(len(y) / _MOST_WINDOWS)
    y, x = y[::every], x[::every]
    wide = side + 2 * _REACH
    windows, around = (
        np.lib.stride_tricks.sliding_window_view(p, (n, n))[y, x]
        for p, n in ((a.values, side), (np.pad(placed, _REACH), wide))
    )
    size = (cv2.getOptimalDFTSize(wide),) * 2
    spectrum = np.conj(np.fft.rfft2(windows, size)) * np.fft.rfft2(around, size)
    shifts = slice(0, 2 * _REACH + 1)
    part = y * _PARTS // height * _PARTS + x * _PARTS // width
    return np.asarray(np.fft.irfft2(spectrum, size)[:, shifts, shifts]), part


def _least_z(covariances: NDArray[Any], margin: float) -> float:
    """Return z against the shift that speaks most against the transform."""
    along = np.arange(-_REACH, _REACH + 1)
    rival = np.hypot(along[:, None], along) > _SAME_PLACE
    here = covariances[:, _REACH, _REACH]
    against = margin * here[:, None] - covariances[:, rival]
    scatter = np.sqrt((against**2).sum(axis=0))
    z = np.divide(against.sum(axis=0), scatter, out=np.zeros_like(scatter), where=scatter > 0)
    return float(z.min())


def _apart(covariances: NDArray[Any], part: NDArray[np.intp]) -> float:
    """Return the median distance from 0 of the shifts at which parts of the picture fit best."""
    near = slice(_REACH - int(_SAME_PLACE), _REACH + int(_SAME_PLACE) + 1)
    along = np.arange(-int(_SAME_PLACE), int(_SAME_PLACE) + 1)
    distances = []
    for k in np.unique(part):
        fit = covariances[part == k, near, near].sum(axis=0)
        y, x = np.unravel_index(int(fit.argmax()), fit.shape)
        distances.append(math.hypot(along[y], along[x]))
    return float(np.median(distances))
