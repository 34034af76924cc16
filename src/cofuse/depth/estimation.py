"""Depth of a stack: the frames are read once, then the peaks of all scales become one map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check, check_callback, check_number
from cofuse.depth.curves import NOISE_ENERGIES, FocusCurve, Peaks, band_energies, find_peaks
from cofuse.depth.filling import enlarge, enlarge_along, fill, spread
from cofuse.depth.maps import Depth
from cofuse.errors import CofuseError
from cofuse.images import Levels, Pixels, Stack, luminance
from cofuse.progress import Progress, ProgressCallback, silent
from cofuse.sensor import noise_level

#: Mean luminance that every frame is scaled to: lamps flicker, and shutters are not exact.
_MEAN = 100.0
#: From this many frames on their depths of field usually overlap. Then there is a second curve, of
#: this many points that are averages of frames.
_MANY, _POINTS = 24, 12


def estimate_depth(
    stack: Stack | Sequence[ArrayLike],
    *,
    source_map: NDArray[np.unsignedinteger[Any]] | None = None,
    source_confidence: Levels | None = None,
    picture: Pixels | None = None,
    z_step: float | None = None,
    most_pixels: int = 8_000_000,
    progress: ProgressCallback = silent,
) -> Depth:
    """Find at which position along the stack, between the frames, every pixel is sharpest.

    The frames have to be aligned and in order of focus. Each is read once; the memory needed does
    not grow with their number.

    Parameters
    ----------
    stack
        A `Stack`, or arrays as `Stack.from_arrays` takes them.
    source_map, source_confidence
        The frame that a fusion took for every pixel, and how clear that choice was, 0 to 1. The
        peak is searched near this frame where the confidence is 0.1 or more, or not given.
    picture
        The fused picture. If frames are made smaller, the outlines of this picture guide how the
        depth is enlarged again.
    z_step
        Distance between neighbouring focus planes, in any unit, for physical depth; negative where
        later frames are focused nearer.
    most_pixels
        Frames with more pixels are made smaller, by a power of two.
    progress
        Called after every frame.
    """
    stack = Stack.of(stack)
    if z_step is not None:
        check("z_step", z_step, "a number other than 0", lambda step: np.isfinite(step) and step)
    check_number("most_pixels", most_pixels, 1)
    check_callback("progress", progress)
    shape = stack.shape[:2]
    maps = {"source_map": source_map, "source_confidence": source_confidence, "picture": picture}
    for name, given in maps.items():
        if given is not None and np.shape(given)[:2] != shape:
            raise CofuseError(f"{name} has shape {np.shape(given)} but the frames {stack.shape}")
    scale = 1
    while shape[0] * shape[1] > most_pixels * scale * scale:
        scale *= 2
    chosen = None
    if source_map is not None:
        chosen = source_map[::scale, ::scale].astype(np.int32)
        if source_confidence is not None:
            chosen[source_confidence[::scale, ::scale] < 0.1] = -1
    position, confidence = _small_maps(stack, scale, chosen, progress)
    if scale > 1 and picture is not None:
        position = enlarge_along(position, small_luminance(stack, picture, 1))
    return Depth(
        position=enlarge(position, shape),
        confidence=enlarge(confidence, shape),
        frames=len(stack),
        z_step=z_step,
    )


def _small_maps(
    stack: Stack, scale: int, chosen: NDArray[np.int32] | None, progress: ProgressCallback
) -> tuple[Levels, Levels]:
    """Find position and confidence in frames made ``scale`` times smaller.

    The peak is searched near the frames ``chosen``, and anywhere where that is -1.
    """
    near = max(1, round(0.05 * len(stack)))
    curves: list[tuple[int, FocusCurve]] = []
    guide = np.zeros(0, np.float32)
    variance = 0.0
    for number, frame in enumerate(stack):
        grey, level = _prepare(stack, frame, scale)
        variance += level**2 / len(stack)
        energies = band_energies(grey)
        if not curves:
            kinds = [_POINTS, len(stack)] if len(stack) >= _MANY else [len(stack)]
            curves = [
                (octave, FocusCurve(energy.shape, len(stack), points))
                for octave, energy in reversed([*enumerate(energies)])
                for points in kinds
            ]
            guide = np.zeros_like(grey)
        for octave, energy in enumerate(energies):
            energy -= level**2 * NOISE_ENERGIES[octave][0]
        for octave, curve in curves:
            allowed: NDArray[np.bool_] | bool = True
            if chosen is not None:
                there = chosen[:: 2**octave, :: 2**octave]
                allowed = (there < 0) | (np.abs(there - number) <= near)
            better = curve.offer(number, energies[octave], allowed)
            if octave == 0:
                np.copyto(guide, grey, where=better)
        progress(Progress("depth", number + 1, len(stack)))
    position, confidence = _join(curves, variance)
    position[confidence <= 0] = (len(stack) - 1) / 2.0
    # Neighbours this many frames apart lie on different surfaces, not on a slope.
    step = max(1.0, 0.03 * len(stack))
    confidence *= _agreement(position, confidence, step)
    position = fill(position, confidence, guide, noise=variance**0.5, step=step)
    return np.clip(position, 0.0, len(stack) - 1.0), confidence


def _agreement(position: Levels, confidence: Levels, step: float) -> Levels:
    """Tell how far positions agree with the median around them, 0 to 1.

    A single pixel more than about half a ``step`` off is no surface: even a hair is as wide as the
    smallest window. Along the rim of the picture, where outlines beyond it leave defocused traces,
    the median of a larger neighbourhood counts too, within two steps.
    """
    filled = spread(position, confidence**2)
    off = np.abs(position - _median_around(filled, 2)) * (2.0 / step)
    rim = round(max(position.shape) / 40)
    if rim:
        farther = np.abs(position - _median_around(filled, max(rim // 3, 2)))
        farther[rim:-rim, rim:-rim] = 0.0
        off = np.maximum(off, farther * (0.5 / step))
    return np.asarray(np.exp(-off * off), np.float32)


def _median_around(plane: Levels, step: int) -> Levels:
    """Median of five by five places that are ``step`` pixels apart."""
    few = cv2.medianBlur(np.ascontiguousarray(plane[::step, ::step]), 5)
    return enlarge(np.asarray(few, np.float32), plane.shape)


def _prepare(stack: Stack, frame: Pixels, scale: int) -> tuple[Levels, float]:
    """Make a smaller luminance of mean `_MEAN` from a frame, and estimate its noise level."""
    picture = small_luminance(stack, frame, scale)
    variance = noise_level(picture) ** 2
    if stack.dtype.kind == "u":
        variance += (255.0 / stack.white) ** 2 / 12.0  # of rounding
    factor = _MEAN / max(float(picture.mean()), 1e-6)
    picture *= factor
    # Arithmetic is not exact, so no frame is without noise.
    return picture, max(variance**0.5 * factor, 1e-4 * _MEAN)


def small_luminance(stack: Stack, frame: Pixels, scale: int) -> Levels:
    """Average the luminance, in grey levels, over blocks of ``scale`` x ``scale`` pixels.

    Blocks that reach over the right or lower border average the pixels inside.
    """
    bands = []
    # Only a band of rows at a time becomes floats.
    for top in range(0, len(frame), 128 * scale):
        band = luminance(stack.to_levels(frame[top : top + 128 * scale]))
        if scale > 1:
            rows, columns = (np.arange(0, side, scale) for side in band.shape)
            sums = np.add.reduceat(np.add.reduceat(band, rows, axis=0), columns, axis=1)
            sides = np.diff(rows, append=len(band)), np.diff(columns, append=band.shape[1])
            band = np.asarray(sums / np.outer(*sides), np.float32)
        bands.append(band)
    return np.concatenate(bands)


def _join(curves: list[tuple[int, FocusCurve]], variance: float) -> tuple[Levels, Levels]:
    """Join the peaks of all scales, coarsest first: the finer one where it is clear.

    The list of curves is emptied, so that each frees its memory before the next needs some.
    """
    position = confidence = np.zeros((1, 1), np.float32)
    found: list[Peaks] = []
    while curves:
        octave, curve = curves.pop(0)
        gain, deviation = NOISE_ENERGIES[octave]
        peaks = find_peaks(curve, noise=gain * variance, deviation=deviation, coarser=found)
        found.append(peaks)
        shape = curve.best.shape
        del curve
        wide, coarse = enlarge(position, shape), enlarge(confidence, shape)
        # Of two that disagree squares give nearly all weight to the clearer one. Beside the finer
        # scale half the confidence of the coarser one counts.
        share = peaks.confidence**2
        share /= share + (0.5 * coarse) ** 2 + 1e-12
        position = wide + share * (peaks.position - wide)
        confidence = coarse + share * (peaks.confidence - coarse)
    return position, confidence
