"""Whether a transform is right: the parts of the picture must agree that it is.

The second picture is brought into place and both are cut into windows. With c_i(s) the covariance
of window i at a further shift s,

    z(s) = sum_i d_i / sqrt(sum_i d_i²),    d_i = m v_i(s) c_i(0) - c_i(s),

with v_i the part of the window that still lies in the picture, is what the windows say together
against that shift, in units of their own scatter. N windows that agree give sqrt(N); windows that
contradict each other cancel out; a single one, however strong, gives 1; and by chance z is about
normal. So z² counts the windows that confirm the transform. The least z over all shifts, nearby on
a fine level and farther away on a coarse one, is the evidence.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.pyramid import Level, Pyramid, at_level
from cofuse.alignment.transforms import Matrix, Transform, shift_by

#: Evidence of a right transform: nine windows that agree give it. Against a single rival one pair
#: in seven hundred reaches it by chance.
LEAST_EVIDENCE = 3.0
#: Pixels by which a corner may move in a frame that stays.
_STAYS = 1.0
#: Longer side of the levels compared: one for shifts nearby, one for those farther away.
_SIDES = (300, 130)
#: Windows along the shorter side, and the side of a window. Eight pixels hold one independent
#: value of the band-passed picture, thirty-two enough to be placed alone.
_ALONG, _LEAST_WINDOW, _MOST_WINDOW = 8, 8, 32
#: Windows that are enough, of a picture as long as a ribbon.
_MOST_WINDOWS = 256
#: Shifts that are compared, in pixels of a level. Those within half a wave of the band-pass, which
#: is 16 pixels long, are the same place.
_REACH, _SAME_PLACE = 16, 8.0
_ALONG_SHIFTS = np.arange(-_REACH, _REACH + 1)
_FAR = np.hypot(_ALONG_SHIFTS[:, None], _ALONG_SHIFTS) > _SAME_PLACE
#: Part of the picture that must be seen at another place for it to be a rival.
_LEAST_SEEN = 0.4
#: What a rival may lose by lying half a pixel beside the places that are compared. Frames that
#: move must beat every rival by it, frames that stay need not: a periodic pattern may lie still.
_BETWEEN_PIXELS = 0.1


def evidence(first: Pyramid, second: Pyramid, matrix: Matrix) -> float:
    """Return how much the parts of the pictures agree on a transform, in standard deviations."""
    stays = Transform(matrix).corner_displacement(first.shape) <= _STAYS
    margin = 1 + _BETWEEN_PIXELS if stays else 1 - _BETWEEN_PIXELS
    fine, coarse = (first.level_within(side) for side in _SIDES)

    def compare(level: int, moved: Matrix) -> tuple[NDArray[Any], NDArray[Any]]:
        at = at_level(first, second, matrix, level) @ moved
        return _covariances(first.levels[level], second.levels[level], at)

    covariances, visible = compare(fine, np.eye(3))
    here = covariances[:, _REACH, _REACH]
    near, _ = _least_z(margin * here, covariances, visible, _FAR)
    if coarse == fine:
        return near
    covariances, visible = compare(coarse, np.eye(3))
    far, rival = _least_z(margin * covariances[:, _REACH, _REACH], covariances, visible, _FAR)
    if far < 0:
        # The coarse level takes a rival for the place found; the fine one may distinguish them.
        there = compare(fine, shift_by(*rival * 2.0 ** (coarse - fine)))
        far, _ = _least_z(margin * here, *there, ~_FAR)
    # Levels are different bands: what they say adds up as independent numbers do (Stouffer), but
    # one that knows a better place is not outvoted.
    return min(near, far) if min(near, far) < 0 else (near + far) / math.sqrt(2)


def _covariances(a: Level, b: Level, matrix: Matrix) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return covariance and visible part of every window at every shift, (N, S, S) each."""
    height, width = a.shape
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    placed, cover = (
        np.pad(cv2.warpPerspective(p, matrix, (width, height), flags=flags), _REACH)
        for p in (b.values, b.cover)
    )
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
        for p, n in ((a.values, side), (placed, wide))
    )
    size = (cv2.getOptimalDFTSize(wide),) * 2
    spectrum = np.conj(np.fft.rfft2(windows, size)) * np.fft.rfft2(around, size)
    shifts = 2 * _REACH + 1
    covariances = np.fft.irfft2(spectrum, size)[:, :shifts, :shifts]
    part = cv2.boxFilter(cover, -1, (side, side), anchor=(0, 0), borderType=cv2.BORDER_CONSTANT)
    visible = np.lib.stride_tricks.sliding_window_view(part, (shifts, shifts))[y, x]
    return np.asarray(covariances), visible


def _least_z(
    here: NDArray[Any], there: NDArray[Any], visible: NDArray[Any], places: NDArray[np.bool_]
) -> tuple[float, NDArray[Any]]:
    """Return the least z of covariances here against those at some shifts, and that shift."""
    rows, columns = np.nonzero(places & (visible.mean(axis=0) >= _LEAST_SEEN))
    if not len(rows):
        return 0.0, np.zeros(2)
    against = visible[:, rows, columns] * here[:, None] - there[:, rows, columns]
    scatter = np.sqrt((against**2).sum(axis=0))
    z = np.divide(against.sum(axis=0), scatter, out=np.zeros_like(scatter), where=scatter > 0)
    worst = int(z.argmin())
    return float(z[worst]), np.array([columns[worst], rows[worst]]) - _REACH
