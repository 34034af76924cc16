"""How sharp every place is in every frame, and the peak of that curve, in one pass over frames.

The measure is the energy of the luminance in a band of frequencies, averaged over a window, less
the energy that noise has there. There is one curve a scale: fine bands over small windows place the
borders, coarse bands over large ones see above the noise. Of each curve a fixed number of values is
kept, whatever the number of frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FocusCurve", "Peaks", "band_energies", "noise_energies"]

Levels = NDArray[np.float32]
Flags = NDArray[np.bool_]
Slices = tuple[slice, ...]

#: Number of scales, each half the size of the one before.
_SCALES = 3
#: Standard deviations, in pixels of the scale, of the smoothing that the band lies above and of
#: the window.
_BAND, _WINDOW = 1.2, 2.5

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


def band_energies(picture: Levels) -> list[Levels]:
    """Energy in a band of frequencies around every pixel, of each scale from fine to coarse."""
    import cv2

    energies = []
    for scale in range(_SCALES):
        if scale and min(picture.shape) < 4:
            break
        picture = np.asarray(cv2.pyrDown(picture) if scale else picture, np.float32)
        band = picture - cv2.GaussianBlur(picture, (7, 7), _BAND, borderType=cv2.BORDER_REFLECT)
        cv2.multiply(band, band, dst=band)
        window = cv2.GaussianBlur(band, (15, 15), _WINDOW, borderType=cv2.BORDER_REFLECT)
        energies.append(np.asarray(window, np.float32))
    return energies


@cache
def noise_energies() -> tuple[tuple[float, float], ...]:
    """Mean and relative spread of `band_energies` for white noise of level 1, measured."""
    noise = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    energies = band_energies(noise)
    return tuple((float(e.mean()), float(e.std() / e.mean())) for e in energies)


class Peaks:
    """The peaks of a scale's curves: values at the peak and beside it, and how clear it is.

    ``noise`` and ``spread`` are the energy of noise in one frame and its relative spread.
    """

    def __init__(
        self, curve: FocusCurve, *, noise: float, spread: float, coarser: Sequence[Peaks] = ()
    ) -> None:
        self.index, self.centres = curve.index, curve.centres
        frames = len(curve.centres)
        spread *= (frames / curve.frames) ** 0.5
        height = np.maximum(curve.best, 0.0)
        self.logs = tuple(
            np.log(np.maximum(value, _LEAST_SHARE * height) + np.float32(1e-30))
            for value in (curve.before, curve.best, curve.after)
        )
        # Noise of lossy files and demosaicing is stronger in coarse bands than white noise.
        noise += max(float(np.quantile(curve.least[::_STEP, ::_STEP], _EMPTY)), 0.0)
        # The largest of K values by chance is so many standard deviations above their mean.
        chance = _CHANCE + 2.0 * float(np.sqrt(2.0 * np.log(frames)))
        # What even the least sharp frame has may be noise that the estimate missed.
        error = np.clip(curve.least, 0.0, np.float32(_MISSED * noise))
        error += np.float32(noise)
        error *= np.float32(spread)
        rise = curve.best - curve.least
        rise /= error
        del error  # whole planes: each that is not needed any more makes room
        self.evidence = _ramp(rise, chance, _SURE)
        drop = curve.total - curve.best
        drop /= max(frames - 1, 1)
        drop = height - np.maximum(drop, 0.0, out=drop)
        drop /= np.float32(_DROP) * height + np.float32(1e-30)
        clear = np.clip(drop, 0.0, 1.0, out=drop)
        clear *= self.evidence
        # A single hill goes up and down once; noise, and outlines that spread as they defocus,
        # make the curve go up and down more often. (Squared, as noise halves it easily.)
        hill = np.multiply(curve.best, np.float32(2.0), out=rise)
        hill -= curve.first
        hill -= curve.previous
        hill /= np.maximum(curve.change, np.float32(1e-30))
        single = np.clip(hill, 0.0, 1.0, out=hill)
        clear *= np.square(single, out=single)
        del rise, hill, single
        largest, there = largest_around(height, curve.index)
        largest += np.float32(1e-30)
        self.share = height / largest
        del height, largest
        self.there = self.centres[there]
        self.spacing = curve.frames / frames
        at = self.centres[curve.index]
        own = self.own(at, self.spacing)
        for peaks in coarser:
            np.minimum(own, peaks.own(at, self.spacing), out=own)
        clear *= own
        self.confidence: Levels = clear

    def own(self, at: Levels, spacing: float) -> Levels:
        """Tell how far peaks in the given frames are detail of their own, 0 to 1.

        They are as a rule, but not weak ones in another frame than a strong peak nearby: farther
        than the spacing of either curve's points.
        """
        share, there = _nearest(self.share, at), _nearest(self.there, at)
        another = max(spacing, self.spacing, _ANOTHER * float(self.centres[-1]))
        near = np.abs(there - at) <= np.float32(another + 0.01)
        return np.where(near, np.float32(1), _ramp(share, _TRACE, _OWN))

    def typical_curvature(self) -> float | None:
        """Median of −(log curve)″ at the clear peaks between the ends; None if there are none."""
        before, peak, after = self.logs
        inside = (self.index > 0) & (self.index < len(self.centres) - 1) & (self.confidence > 0.5)
        if not inside.any():
            return None
        return float(np.median(2.0 * peak[inside] - before[inside] - after[inside]))

    def positions(self) -> Levels:
        r"""Place the peaks between the frames: the top of a Gaussian through three values.

        With the logarithms a, b, c before, at and after the peak the top lies at

        .. math:: \frac{c - a}{2 (2b - a - c)}

        from the peak, at most half a frame. At the ends of the stack, where one of the three is
        missing, the curve is taken to be bent as it typically is elsewhere; of two frames, where
        there is no elsewhere, the position is the second one's share of the energy.
        """
        before, peak, after = self.logs
        bend = 2.0 * peak - before - after
        offset = (after - before) / (2.0 * np.maximum(bend, np.float32(1e-6)))
        offset = np.clip(offset, -0.5, 0.5)
        count = len(self.centres)
        first, last = self.index == 0, self.index == count - 1
        usual = self.typical_curvature()
        if count == 1:
            offset[:] = 0.0
        elif count == 2:
            other = np.where(first, after, before)
            share = 1.0 / (1.0 + np.exp(peak - other))
            offset = np.where(first, share, -share)
        else:
            inward = np.where(first, peak - after, peak - before)
            bent = 0.5 - inward / usual if usual else np.zeros_like(inward)
            bent = np.clip(bent, 0.0, 0.5)
            offset = np.where(first, bent, np.where(last, -bent, offset))
        step = np.gradient(self.centres)[self.index] if count > 1 else 1.0
        return np.asarray(self.centres[self.index] + offset * step, np.float32)


def largest_around(height: Levels, index: NDArray[Any]) -> tuple[Levels, NDArray[np.int32]]:
    """Height and frame of the largest peak within the reach of a defocused outline.

    Heights are smooth: one of every few places will do.
    """
    reach = _REACH * max(height.shape) + 2.0 * _WINDOW
    step = int(np.clip(reach / 3.0, 1, _STEP))
    largest = np.ascontiguousarray(height[::step, ::step])
    frames = index[::step, ::step].astype(np.int32)
    # Along rows, columns and both diagonals in turn: an octagon, near enough to a disc.
    for down, right, part in ((1, 0, 0.41), (0, 1, 0.41), (1, 1, 0.29), (1, -1, 0.29)):
        heights, numbers = largest.copy(), frames.copy()
        for shift in range(1, round(part * reach / step) + 1):
            for way in (shift, -shift):
                to, of = _overlap(largest.shape, way * down, way * right)
                larger = heights[of] > largest[to]
                np.copyto(largest[to], heights[of], where=larger)
                np.copyto(frames[to], numbers[of], where=larger)
    return _nearest(largest, height), _nearest(frames, height)


def _overlap(shape: tuple[int, ...], down: int, right: int) -> tuple[Slices, Slices]:
    """Slices of a plane, and of its places so many rows up and columns to the left."""
    to = tuple(
        slice(max(way, 0), max(side + min(way, 0), 0))
        for side, way in zip(shape, (down, right), strict=True)
    )
    of = tuple(
        slice(max(-way, 0), max(side - max(way, 0), 0))
        for side, way in zip(shape, (down, right), strict=True)
    )
    return to, of


class FocusCurve:
    """What is kept of the curve of every place while the frames pass by.

    Parameters
    ----------
    shape
        Of the energies.
    frames
        How many there will be.
    points
        Into how many points of the curve they are averaged; by default each is one. With many
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


def _nearest(plane: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Stretch a plane to another one's shape, taking nearest values."""
    import cv2

    if plane.shape == like.shape:
        return plane
    size = like.shape[1], like.shape[0]
    return np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_NEAREST))


def _ramp(values: Levels, start: float, length: float) -> Levels:
    """Rise smoothly from 0 at ``start`` to 1 at ``start + length``."""
    t = np.clip((values - np.float32(start)) / np.float32(length), 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), np.float32)
