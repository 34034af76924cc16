"""How sharp every place is in every frame, and the peak of that curve, in one pass over frames.

The measure is the energy of the luminance in a band of frequencies, averaged over a window, less
the energy that noise has there. There is one curve a scale: fine bands over small windows place the
borders, coarse bands over large ones see above the noise. Of each curve a fixed number of values is
kept, whatever the number of frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.depth.filling import Levels, enlarge

Flags = NDArray[np.bool_]

#: Standard deviations, in pixels of the scale, of the smoothing that the band lies above and of
#: the window.
_BAND, _WINDOW = 1.2, 2.5
#: Mean and relative spread of `band_energies` for white noise of level 1, by scale; each scale is
#: half the size of the one before.
NOISE_ENERGIES = (
    (0.8355704545974731, 0.16857799887657166),
    (0.045734964311122894, 0.18510660529136658),
    (0.00821097195148468, 0.2070634365081787),
)

#: Errors of a window's noise energy above which there is evidence of detail, besides those that
#: the best of many frames has by chance, and further ones at which it is complete.
_CHANCE, _SURE = 5.0, 6.0
#: Energy of noise that its estimate may miss, as a multiple: files compressed with loss have
#: noise that is not white.
_MISSED = 4.0
#: Share of the places that hold nothing but noise even in a picture full of detail, once defocused.
_EMPTY = 0.1
#: Share of the largest peak around up to which a peak in another frame may be but the trace of that
#: outline defocused, and the further share at which it counts as detail of its own.
_TRACE, _OWN = 0.03, 0.2
#: Part of the stack that is another frame, however many there are.
_ANOTHER = 0.05
#: Part of the picture's longer side that such traces reach, beside the window, and pixels between
#: places looked at.
_REACH, _STEP = 1 / 40, 4
#: A peak that drops by this share of its height is as clear as any.
_DROP = 0.3
#: Least share of the peak that its neighbours are taken to have, in logarithms.
_LEAST_SHARE = 1e-3
_TINY = 1e-30


def band_energies(picture: Levels) -> list[Levels]:
    """Energy in a band of frequencies around every pixel, of each scale from fine to coarse."""
    import cv2

    energies = []
    for scale in range(len(NOISE_ENERGIES)):
        if scale and min(picture.shape) < 4:
            break
        picture = np.asarray(cv2.pyrDown(picture) if scale else picture, np.float32)
        band = picture - cv2.GaussianBlur(picture, (7, 7), _BAND, borderType=cv2.BORDER_REFLECT)
        cv2.multiply(band, band, dst=band)
        window = cv2.GaussianBlur(band, (15, 15), _WINDOW, borderType=cv2.BORDER_REFLECT)
        energies.append(np.asarray(window, np.float32))
    return energies


class FocusCurve:
    """What is kept of the curve of every place while the frames pass by.

    Frames are averaged into so many ``points`` of the curve; by default each is one. With many
    frames in each other's depth of field the noise of single ones hides the shape.
    """

    def __init__(self, shape: tuple[int, ...], frames: int, points: int | None = None) -> None:
        self.frames = frames
        self._edges = np.rint(np.linspace(0, frames, (points or frames) + 1)).astype(int)
        self.centres = ((self._edges[1:] + self._edges[:-1] - 1) / 2.0).astype(np.float32)
        self._pending = np.zeros(shape if points else (0, 0), np.float32)
        self._allowed = np.zeros(self._pending.shape, np.bool_)
        self.index = np.zeros(shape, np.uint16)
        # Energies are at least minus that of the noise: any frame is better than none.
        self.best = np.full(shape, -np.inf, np.float32)
        self.least = np.full(shape, np.inf, np.float32)
        self.before, self.after, self.previous, self.first, self.total, self.change = (
            np.zeros(shape, np.float32) for _ in range(6)
        )

    def offer(self, number: int, energy: Levels, allowed: Flags | None = None) -> Flags | None:
        """Take in the next frame's energies and tell where they are the largest so far.

        Only where ``allowed`` may the frame become the peak. Nothing is told while frames are
        being averaged.
        """
        if self._pending.size:
            self._pending += energy
            self._allowed |= True if allowed is None else allowed
            if number + 1 not in self._edges:
                return None
            number = int(np.searchsorted(self._edges, number, side="right")) - 1
            energy = self._pending / np.float32(self._edges[number + 1] - self._edges[number])
            self._pending[:] = 0.0
            allowed, self._allowed = self._allowed, np.zeros_like(self._allowed)
        if number == 0:
            self.first[:] = energy
        else:
            np.copyto(self.after, energy, where=self.index == number - 1)
            self.change += np.abs(energy - self.previous)
        better = np.asarray(energy > self.best)
        if allowed is not None:
            better &= allowed
        np.copyto(self.before, self.previous, where=better)
        np.copyto(self.best, energy, where=better)
        np.minimum(self.least, energy, out=self.least)
        self.index[better] = number
        self.total += energy
        self.previous = energy
        return better


class Peaks:
    """The peaks of a scale's curves: values at the peak and beside it, and how clear it is.

    ``noise`` and ``spread`` are the energy of noise in one frame and its relative spread.
    """

    def __init__(
        self, curve: FocusCurve, *, noise: float, spread: float, coarser: Sequence[Peaks] = ()
    ) -> None:
        self.index, self.centres = curve.index, curve.centres
        frames = len(curve.centres)
        self.spacing = curve.frames / frames
        height = np.maximum(curve.best, 0.0)
        self.logs = tuple(
            np.log(np.maximum(value, _LEAST_SHARE * height) + _TINY)
            for value in (curve.before, curve.best, curve.after)
        )
        # Noise of lossy files and demosaicing is stronger in coarse bands than white noise.
        noise += max(float(np.quantile(curve.least[::_STEP, ::_STEP], _EMPTY)), 0.0)
        # The largest of K values by chance is so many standard deviations above their mean.
        chance = _CHANCE + 2.0 * float(np.sqrt(2.0 * np.log(frames)))
        # What even the least sharp frame has may be noise that the estimate missed.
        error = np.clip(curve.least, 0.0, _MISSED * noise) + noise
        error *= spread * (frames / curve.frames) ** 0.5
        self.evidence = _ramp((curve.best - curve.least) / error, chance, _SURE)
        del error  # whole planes: each that is not needed any more makes room
        others = np.maximum((curve.total - curve.best) / max(frames - 1, 1), 0.0)
        clear = np.clip((height - others) / (_DROP * height + _TINY), 0.0, 1.0)
        clear *= self.evidence
        # A single hill goes up and down once; noise, and outlines that spread as they defocus,
        # make the curve go up and down more often. (Squared, as noise halves it easily.)
        hill = 2.0 * curve.best - curve.first - curve.previous
        hill /= np.maximum(curve.change, _TINY)
        clear *= np.square(np.clip(hill, 0.0, 1.0))
        del others, hill
        largest, there = largest_around(height, curve.index)
        self.share = height / (largest + _TINY)
        self.there = self.centres[there]
        at = self.centres[curve.index]
        own = self.own(at, self.spacing)
        for peaks in coarser:
            np.minimum(own, peaks.own(at, self.spacing), out=own)
        self.confidence = np.asarray(clear * own, np.float32)

    def own(self, at: Levels, spacing: float) -> Levels:
        """Tell how far peaks in the given frames are detail of their own, 0 to 1.

        They are as a rule, but not weak ones in another frame than a strong peak nearby: farther
        than the spacing of either curve's points.
        """
        share, there = (
            enlarge(plane, at.shape, nearest=True) for plane in (self.share, self.there)
        )
        another = max(spacing, self.spacing, _ANOTHER * float(self.centres[-1]))
        near = np.abs(there - at) <= another + 0.01
        return np.where(near, np.float32(1), _ramp(share, _TRACE, _OWN))

    def positions(self) -> Levels:
        r"""Place the peaks between the frames: the top of a Gaussian through three values.

        With the logarithms a, b, c before, at and after the peak the top lies at

        .. math:: \frac{c - a}{2 (2b - a - c)}

        from the peak, at most half a frame. At the ends of the stack, where one of the three is
        missing, the curve is taken to be bent as it typically is elsewhere; of two frames, where
        there is no elsewhere, the position is the second one's share of the energy.
        """
        before, peak, after = self.logs
        count = len(self.centres)
        if count == 1:
            return np.zeros_like(peak)
        first, last = self.index == 0, self.index == count - 1
        fall = np.where(first, peak - after, peak - before)  # towards the inside, at the ends
        if count == 2:
            share = 1.0 / (1.0 + np.exp(fall))
            offset = np.where(first, share, -share)
        else:
            bend = 2.0 * peak - before - after
            offset = np.clip((after - before) / (2.0 * np.maximum(bend, 1e-6)), -0.5, 0.5)
            typical = bend[~first & ~last & (self.confidence > 0.5)]
            usual = float(np.median(typical)) if typical.size else 0.0
            bent = np.clip(0.5 - fall / usual, 0.0, 0.5) if usual else np.zeros_like(fall)
            offset = np.where(first, bent, np.where(last, -bent, offset))
        step = np.gradient(self.centres)[self.index]
        return np.asarray(self.centres[self.index] + offset * step, np.float32)


def largest_around(height: Levels, index: NDArray[Any]) -> tuple[Levels, NDArray[Any]]:
    """Height and frame of the largest peak within the reach of a defocused outline.

    Heights are smooth: one of every few places will do.
    """
    reach = _REACH * max(height.shape) + 2.0 * _WINDOW
    step = int(np.clip(reach / 3.0, 1, _STEP))
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
    return (
        enlarge(largest, height.shape, nearest=True),
        enlarge(frames, height.shape, nearest=True),
    )


def _ramp(values: Levels, start: float, length: float) -> Levels:
    """Rise smoothly from 0 at ``start`` to 1 at ``start + length``."""
    t = np.clip((values - start) / length, 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), np.float32)
