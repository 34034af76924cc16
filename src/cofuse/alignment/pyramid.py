"""Reduced copies of a frame, and the pyramid of its luminance that the estimation compares.

At every level of the pyramid the luminance is band-passed and divided by its local contrast. A
detail that is sharp in one frame and defocused in the next keeps its place under that filter, and
about its height; brightness, vignetting and slow shading are gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.transforms import Matrix, Transform, homogeneous, to_reduced
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
    def shape(self) -> tuple[int, int]:
        """(height, width) of this level."""
        return self.values.shape[0], self.values.shape[1]

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
        height, width = self.shape
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
        sides = [max(level.shape) for level in self.levels]
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


def put(
    picture: NDArray[Any],
    transform: Transform,
    size: tuple[int, int],
    border: int = cv2.BORDER_CONSTANT,
) -> NDArray[Any]:
    """Bring the reduced copy of a frame of a (height, width) into its place, bilinearly."""
    to_small = to_reduced(size, picture.shape)
    matrix = to_small @ transform.matrix @ np.linalg.inv(to_small)
    across, flags = picture.shape[1::-1], cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpPerspective(picture, matrix, across, flags=flags, borderMode=border))


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
