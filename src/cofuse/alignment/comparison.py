"""What two frames are compared by: the pyramid of each, and how far their parts agree.

A pyramid holds the luminance of a frame at ever smaller sizes, band-passed and divided by its local
contrast. A detail that is sharp in one frame and defocused in the next keeps its place under that
filter, and about its height; brightness, vignetting and slow shading are gone.

Whether a transform is right, the parts of two pictures must agree on (`evidence`). The second is
brought into place and both are cut into windows. With c_i(s) the covariance of window i at a
further shift s,

    z(s) = sum_i d_i / sqrt(sum_i d_i²),    d_i = m v_i(s) c_i(0) - c_i(s),

with v_i the part of the window that still lies in the picture, is what the windows say together
against that shift, in units of their own scatter. N windows that agree give sqrt(N); windows that
contradict each other cancel out; a single one, however strong, gives 1; and by chance z is about
normal. So z² counts the windows that confirm the transform. The least z over all shifts, nearby on
a fine level and farther away on a coarse one, is the evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.transforms import Matrix, Transform, homogeneous, shift_by, to_reduced
from cofuse.images import Pixels, Stack, luminance

#: Shorter side below which no further level is made.
_LEAST_SIDE = 24
#: Band-pass: difference of two Gaussians; the finer one also evens out small defocus and noise.
_FINE, _COARSE = 2.0, 5.5
#: Side of the window of the local contrast.
_WINDOW = 31
#: Contrast, in grey levels, below which there is nothing but rounding.
_LEAST_CONTRAST = 0.4
#: What is left of white noise after each halving.
_NOISE_HALVED = 0.4
#: Pixels, more or less, that the noise is measured on.
_NOISE_PIXELS = 250_000
#: A picture holds something when this part of it has detail above the noise.
LEAST_DETAIL = 0.003
#: Places stay where the pictures, as they lie, correlate by this much in a window of this side
#: (pixels of a level: several independent values, few enough to follow an edge). Where more than
#: this part of a picture stays, nothing is hidden.
_STAYS, _STAYS_WINDOW, _MOST_STAYS = 0.7, 15, 0.85

#: Evidence of a right transform: nine windows that agree give it. Against a single rival one pair
#: in seven hundred reaches it by chance.
LEAST_EVIDENCE = 3.0
#: Pixels by which a corner may move in a frame that stays.
_STILL = 1.0
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

Values = NDArray[np.float32]


@dataclass(frozen=True)
class Level:
    """One size of a picture: evened luminance, (h, w), and its slopes along x and y, (2, h, w).

    Where `shown` is False nothing is to be compared, and the values are 0.
    """

    values: Values
    slopes: Values
    shown: NDArray[np.bool_] | None = None

    @property
    def cover(self) -> Values:
        """1 where something is to be compared, else 0."""
        return np.ones_like(self.values) if self.shown is None else self.shown.astype(np.float32)

    def only(self, shown: NDArray[np.bool_]) -> Level:
        """Hide the rest."""
        return Level(self.values * shown, self.slopes * shown, shown)

    def look_up(
        self, matrix: Matrix, points: Values
    ) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[Any]] | None:
        """Return values and slopes at points, (2, N), taken here by a matrix.

        The first array returned says which of the points lie in the picture; the others are of
        those alone. Slopes are turned back by the matrix. Of fewer than 64 points nothing is said.
        """
        h = matrix.astype(np.float32)
        image = homogeneous(h, points)
        u, v = image[:2] / image[2]
        height, width = self.values.shape
        inside = (u >= 0) & (u <= width - 1) & (v >= 0) & (v <= height - 1)
        if self.shown is not None:
            nearest = (np.rint(np.where(inside, at, 0)).astype(np.intp) for at in (v, u))
            inside &= self.shown[tuple(nearest)]
        u, v = u[inside], v[inside]
        count = len(u)
        if count < 64:
            return None
        # cv2.remap takes pictures, not lists, and none with a side beyond 32767.
        across = min(count, 1024)
        u, v = (np.resize(plane, (math.ceil(count / across), across)) for plane in (u, v))
        kinds = (cv2.INTER_CUBIC, cv2.INTER_LINEAR, cv2.INTER_LINEAR)
        value, *slopes = (
            cv2.remap(plane, u, v, kind, borderMode=cv2.BORDER_REPLICATE).ravel()[:count]
            for plane, kind in zip((self.values, *self.slopes), kinds, strict=True)
        )
        return inside, value, h[0, :2, None] * slopes[0] + h[1, :2, None] * slopes[1]


@dataclass(frozen=True)
class Pyramid:
    """The levels of a frame, finest first, and what takes its pixels to the finest level.

    A pixel x of a level is the pixel 2x of the next finer one.
    """

    levels: tuple[Level, ...]
    to_finest: Matrix
    shape: tuple[int, int]
    #: Whether it shows nothing but noise.
    is_flat: bool

    def to_level(self, level: int) -> Matrix:
        """Return the matrix from pixels of the frame to pixels of a level."""
        half = 0.5**level
        return np.diag([half, half, 1.0]) @ self.to_finest

    def level_within(self, side: int) -> int:
        """Return the finest level whose longer side is not above one, else the coarsest."""
        sides = [max(level.values.shape) for level in self.levels]
        return next((k for k, n in enumerate(sides) if n <= side), len(sides) - 1)


def at_level(first: Pyramid, second: Pyramid, matrix: Matrix, level: int) -> Matrix:
    """Turn a matrix between pixels of two frames into that between pixels of a level."""
    return second.to_level(level) @ matrix @ np.linalg.inv(first.to_level(level))


def without_what_stays(first: Pyramid, second: Pyramid) -> tuple[Pyramid, Pyramid]:
    """Hide what two pictures have in common as they lie: a border, a stop, a date, dust.

    What moves with the scene is then all that can be compared. On a level where most of the
    pictures agree nothing is hidden: the scene moves by too little to tell it from what stays.
    """
    hidden = []
    for a, b in zip(first.levels, second.levels, strict=True):
        common, of_a, of_b = (
            cv2.boxFilter(p, -1, (_STAYS_WINDOW, _STAYS_WINDOW), borderType=cv2.BORDER_REFLECT)
            for p in (a.values * b.values, a.values**2, b.values**2)
        )
        shown = common <= _STAYS * np.sqrt(np.maximum(of_a * of_b, 0))
        hides = shown.mean() > 1 - _MOST_STAYS
        hidden.append((a.only(shown), b.only(shown)) if hides else (a, b))
    one, other = zip(*hidden, strict=True)
    return replace(first, levels=one), replace(second, levels=other)


def build_pyramid(reduced: Pixels, stack: Stack) -> Pyramid:
    """Build the levels of a frame from its reduced copy."""
    grey = luminance(stack.to_levels(reduced))
    size = (stack.height, stack.width)
    to_finest, noise = to_reduced(size, grey.shape), white_noise(grey)
    levels: list[Level] = []
    detail = 0.0
    while True:
        band, floor = band_pass(grey, noise * _NOISE_HALVED ** len(levels), _FINE, _COARSE)
        power = cv2.boxFilter(band * band, -1, (_WINDOW, _WINDOW), borderType=cv2.BORDER_REFLECT)
        detail = max(detail, float(np.mean(power > 2.5 * floor)))
        # Dividing by the local contrast evens the picture out.
        values = np.asarray(band / np.sqrt(np.maximum(power, 0) + 3.0 * floor), np.float32)
        slopes = [cv2.Scharr(values, cv2.CV_32F, *axis, scale=1 / 32) for axis in ((1, 0), (0, 1))]
        levels.append(Level(values, np.stack(slopes)))
        if min(grey.shape) < 2 * _LEAST_SIDE:
            return Pyramid(tuple(levels), to_finest, size, detail < LEAST_DETAIL)
        grey = np.asarray(cv2.pyrDown(grey), np.float32)


def band_pass(grey: Values, noise: float, fine: float, coarse: float) -> tuple[Values, float]:
    """Return the difference of two Gaussian blurs, and what power noise and rounding have in it."""
    band = cv2.GaussianBlur(grey, (0, 0), fine) - cv2.GaussianBlur(grey, (0, 0), coarse)
    left = (fine**-2 + coarse**-2 - 4 / (fine**2 + coarse**2)) / (4 * math.pi)
    return np.asarray(band), (math.sqrt(left) * noise) ** 2 + _LEAST_CONTRAST**2


def white_noise(grey: Values) -> float:
    """White noise of a picture in grey levels: the median of diagonal second differences."""
    if min(grey.shape) < 3:
        return 0.0
    # A part of the rows is enough; differences are taken within pairs of neighbouring rows.
    every = max(1, grey.size // _NOISE_PIXELS)
    upper, lower = grey[:-1:every], grey[1::every]
    twice = upper[:, :-1] - upper[:, 1:] - lower[:, :-1] + lower[:, 1:]
    return float(np.median(np.abs(twice))) / (2 * 0.6745)


def evidence(first: Pyramid, second: Pyramid, matrix: Matrix) -> float:
    """Return how much the parts of the pictures agree on a transform, in standard deviations."""
    stays = Transform(matrix).corner_displacement(first.shape) <= _STILL
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
    height, width = a.values.shape
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
