"""How sharp every place is in every frame: focus curves, and their peaks.

The focus measure is the energy of the luminance in a band of frequencies, averaged over a window,
less the energy of noise in that band. Its values in all frames are the focus curve of a place, one
for each of three scales. Fine bands with small windows locate borders; coarse bands with large
windows stand out from noise. The memory of a curve does not grow with the number of frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.depth.filling import enlarge
from cofuse.images import Levels

Flags = NDArray[np.bool_]

#: Standard deviation of the window, in pixels of the scale.
_WINDOW = 2.5
#: Mean and relative standard deviation of `band_energies` of white noise of level 1, by scale; each
#: scale has half the side of the one before.
NOISE_ENERGIES = (
    (0.8355704545974731, 0.16857799887657166),
    (0.045734964311122894, 0.18510660529136658),
    (0.00821097195148468, 0.2070634365081787),
)
_TINY = 1e-30


def band_energies(picture: Levels) -> list[Levels]:
    """Energy in a band of frequencies around every pixel, one plane a scale, from fine to coarse.

    Each plane has half the side of the one before; pictures of a few pixels have fewer scales.
    """
    energies = []
    for scale in range(len(NOISE_ENERGIES)):
        if scale and min(picture.shape) < 4:
            break
        picture = np.asarray(cv2.pyrDown(picture) if scale else picture, np.float32)
        band = picture - cv2.GaussianBlur(picture, (7, 7), 1.2, borderType=cv2.BORDER_REFLECT)
        window = cv2.GaussianBlur(band * band, (15, 15), _WINDOW, borderType=cv2.BORDER_REFLECT)
        energies.append(np.asarray(window, np.float32))
    return energies


class FocusCurve:
    """What stays in memory of the focus curves of one scale while the frames are read.

    Neighbouring frames are averaged to a number of ``points``: where many frames share their depth
    of field, averages show the curve's shape above the noise. ``centres``
    are the positions of the points, in frames; ``change`` is the sum of the absolute differences
    between neighbouring points.
    """

    def __init__(self, shape: tuple[int, ...], frames: int, points: int) -> None:
        self._edges = np.rint(np.linspace(0, frames, points + 1)).astype(int)
        self.centres = ((self._edges[1:] + self._edges[:-1] - 1) / 2.0).astype(np.float32)
        self.frames = frames
        self._sum: Any = 0.0
        self._allowed: Any = False
        self.index = np.zeros(shape, np.uint16)
        # Energies can be negative, once that of noise is subtracted: any frame is above -inf.
        self.best = np.full(shape, -np.inf, np.float32)
        self.least = np.full(shape, np.inf, np.float32)
        self.before, self.after, self.previous, self.first, self.total, self.change = (
            np.zeros(shape, np.float32) for _ in range(6)
        )

    def offer(self, number: int, energy: Levels, allowed: Flags | bool = True) -> Flags:
        """Add the next frame and return where it completes a point that is the largest so far.

        A point can become the peak only where one of its frames is ``allowed`` to.
        """
        self._sum = self._sum + energy
        self._allowed = self._allowed | allowed
        if number + 1 not in self._edges:
            return np.zeros(1, np.bool_)
        point = int(np.searchsorted(self._edges, number, side="right")) - 1
        value = self._sum / np.float32(self._edges[point + 1] - self._edges[point])
        better: Flags = (value > self.best) & self._allowed
        self._sum, self._allowed = 0.0, False
        if point == 0:
            self.first = value
        else:
            np.copyto(self.after, value, where=self.index == point - 1)
            self.change += np.abs(value - self.previous)
        np.copyto(self.before, self.previous, where=better)
        np.copyto(self.best, value, where=better)
        np.minimum(self.least, value, out=self.least)
        self.index[better] = point
        self.total += value
        self.previous = value
        return better


@dataclass(frozen=True)
class Peaks:
    """The peaks of a scale: positions in frames, with confidence from 0 to 1.

    ``share`` is the height of each as a share of the largest peak around, whose position is
    ``there``. Peaks more than ``apart`` frames from each other count as different.
    """

    position: Levels
    confidence: Levels
    share: Levels
    there: Levels
    apart: float


def find_peaks(
    curve: FocusCurve, *, noise: float, deviation: float, coarser: Sequence[Peaks]
) -> Peaks:
    """Locate the peaks of curves and tell how clear they are.

    ``noise`` is the mean energy of noise in one frame, ``deviation`` its relative standard
    deviation. ``coarser`` are the peaks found at coarser scales.
    """
    points = len(curve.centres)
    height = np.maximum(curve.best, 0.0)
    # Noise of lossy files and demosaicing is stronger in coarse bands than white noise. Once
    # defocused, even a picture full of detail has a tenth of places with nothing but noise.
    noise += max(float(np.quantile(curve.least[::4, ::4], 0.1)), 0.0)
    # Up to four times the noise may have been missed: then even the least sharp frame has it.
    error = np.clip(curve.least, 0.0, 4.0 * noise) + noise
    error *= deviation * (points / curve.frames) ** 0.5
    # The largest of many values is by chance several standard deviations above their mean.
    chance = 5.0 + 2.0 * float(np.sqrt(2.0 * np.log(points)))
    differs = _ramp((curve.best - curve.least) / error, chance, 6.0)
    del error  # planes of large pictures: free each as soon as possible
    others = np.maximum((curve.total - curve.best) / max(points - 1, 1), 0.0)
    # A peak 30 % above the mean of the other points is as clear as any.
    clear = np.clip((height - others) / (0.3 * height + _TINY), 0.0, 1.0)
    clear *= differs
    # A single hill rises and falls once. Noise, and outlines that spread as they defocus, make the
    # curve rise and fall more often. (Squared, because noise alone easily halves this ratio.)
    hill = 2.0 * curve.best - curve.first - curve.previous
    hill /= np.maximum(curve.change, _TINY)
    clear *= np.square(np.clip(hill, 0.0, 1.0))
    del differs, others, hill
    largest, there = largest_around(height, curve.index)
    apart = max(curve.frames / points, 0.05 * float(curve.centres[-1]))
    share, there = height / (largest + _TINY), curve.centres[there]
    at = curve.centres[curve.index]
    own = _own(at, share, there, apart)
    for peaks in coarser:
        np.minimum(own, _own(at, peaks.share, peaks.there, max(apart, peaks.apart)), out=own)
    confidence = np.asarray(clear * own, np.float32)
    del largest, clear, own, at
    position = _positions(curve, confidence > 0.5)
    return Peaks(position, confidence, share, there, apart)


def _own(at: Levels, share: Levels, there: Levels, apart: float) -> Levels:
    """Tell how far peaks are detail of their own, not traces of an outline nearby, 0 to 1."""
    share, there = (enlarge(plane, at.shape, nearest=True) for plane in (share, there))
    # Only weak peaks far in depth from the strong one can be such traces: a defocused outline has
    # up to 3 % of its height when in focus.
    near = np.abs(there - at) <= apart + 0.01
    return np.where(near, np.float32(1), _ramp(share, 0.03, 0.2))


def _positions(curve: FocusCurve, sure: Flags) -> Levels:
    r"""Place the peaks between the frames: the top of a Gaussian through three values.

    With the logarithms a, b, c before, at and after the peak the top lies at

    .. math:: \frac{c - a}{2 (2b - a - c)}

    from the peak, at most half a frame. At both ends of the stack one of the three is missing;
    there 2b − a − c is its median over ``sure`` places between the ends. Of two frames the position
    is the second one's share of the energy.
    """
    count = len(curve.centres)
    if count == 1:
        return np.zeros_like(curve.best)
    least = 1e-3 * np.maximum(curve.best, 0.0)  # logarithms need positive values
    before, peak, after = (
        np.log(np.maximum(value, least) + _TINY)
        for value in (curve.before, curve.best, curve.after)
    )
    first, last = curve.index == 0, curve.index == count - 1
    inwards = np.where(first, peak - after, peak - before)
    if count == 2:
        share = 1.0 / (1.0 + np.exp(inwards))
        offset = np.where(first, share, -share)
    else:
        bend = 2.0 * peak - before - after
        offset = np.clip((after - before) / (2.0 * np.maximum(bend, 1e-6)), -0.5, 0.5)
        typical = bend[~first & ~last & sure]
        usual = float(np.median(typical)) if typical.size else 0.0
        end = np.clip(0.5 - inwards / usual, 0.0, 0.5) if usual else np.zeros_like(inwards)
        offset = np.where(first, end, np.where(last, -end, offset))
    step = np.gradient(curve.centres)[curve.index]
    return np.asarray(curve.centres[curve.index] + offset * step, np.float32)


def largest_around(height: Levels, index: NDArray[Any]) -> tuple[Levels, NDArray[Any]]:
    """Height and index of the largest peak within the reach of a defocused outline."""
    reach = max(height.shape) / 40 + 2.0 * _WINDOW
    # Heights are smooth: one of every few places is enough.
    step = int(np.clip(reach / 3.0, 1, 4))
    largest = np.ascontiguousarray(height[::step, ::step])
    frames = index[::step, ::step].astype(np.int32)
    # Along rows, columns and both diagonals in turn: an octagon, near enough to a disc.
    for down, right, part in ((1, 0, 0.41), (0, 1, 0.41), (1, 1, 0.29), (1, -1, 0.29)):
        most = round(part * reach / step)
        heights, numbers = np.pad(largest, most, constant_values=-1.0), np.pad(frames, most)
        for shift in (sign * n for n in range(1, most + 1) for sign in (1, -1)):
            top, left = most - shift * down, most - shift * right
            there = np.s_[top : top + len(largest), left : left + largest.shape[1]]
            larger = heights[there] > largest
            np.copyto(largest, heights[there], where=larger)
            np.copyto(frames, numbers[there], where=larger)
    largest, frames = (enlarge(plane, height.shape, nearest=True) for plane in (largest, frames))
    return largest, frames


def _ramp(values: Levels, start: float, length: float) -> Levels:
    """Rise smoothly from 0 at ``start`` to 1 at ``start + length``."""
    t = np.clip((values - start) / length, 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), np.float32)
