"""Depth of a stack: the frames pass once, then the curves' peaks become one map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check, check_callback, check_number
from cofuse.depth.curves import NOISE_ENERGIES, FocusCurve, Peaks, band_energies
from cofuse.depth.filling import Levels, enlarge, enlarge_along, fill, spread
from cofuse.depth.maps import Depth
from cofuse.errors import CofuseError
from cofuse.images import Pixels, Stack, luminance
from cofuse.progress import Progress, ProgressCallback, silent
from cofuse.sensor import noise_level

#: Pixels above which a picture is made smaller before its depth is looked for.
_MOST_PIXELS = 8_000_000
#: Rows of the smaller picture that are made at a time.
_BAND = 128
#: Mean luminance that every frame is brought to: lamps flicker, and shutters are not exact.
_MEAN = 100.0
#: Noise that is taken for granted, relative to the mean: arithmetic is not exact.
_LEAST_NOISE = 1e-4
#: Weight of a coarser scale's confidence beside that of the finer one.
_COARSE = 0.5
#: From this many frames on, then usually in each other's depth of field, the curves are also looked
#: at with frames averaged to this many points.
_MANY, _POINTS = 24, 12
#: Width of the rim as part of the longer side.
_RIM = 1 / 40
#: Part of the stack that counts as a step of depth, not as a slope.
_STEP = 0.03
#: Share of the frames by which the peak may be off the frame chosen, by one at least; and the
#: confidence below which none was chosen.
_NEAR, _NO_CHOICE = 0.05, 0.1


def estimate_depth(
    stack: Stack | Sequence[ArrayLike],
    *,
    source_map: NDArray[np.unsignedinteger[Any]] | None = None,
    source_confidence: Levels | None = None,
    picture: Pixels | None = None,
    z_step: float | None = None,
    most_pixels: int = _MOST_PIXELS,
    progress: ProgressCallback = silent,
) -> Depth:
    """Find at which position along the stack, between the frames, every pixel is sharpest.

    The frames have to be aligned and in order of focus. Each is read once; what is kept does not
    grow with their number.

    Parameters
    ----------
    stack
        A `Stack`, or arrays as `Stack.from_arrays` takes them.
    source_map, source_confidence
        The frame that a fusion chose for every pixel, and how clear it was. Given, the peak is
        looked for near that frame, so that depth and picture tell the same story; where the
        confidence is below 0.1 the choice says nothing. Without it the choice counts everywhere.
    picture
        The fused picture. Large frames are looked at at half the size or less, and the depth is
        enlarged again: along the outlines in this picture if it is given.
    z_step
        Distance between neighbouring focus planes, in any unit, for physical depth; negative where
        later frames are focused nearer.
    most_pixels
        Pictures with more pixels are made smaller, by a power of two.
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
            chosen[source_confidence[::scale, ::scale] < _NO_CHOICE] = -1
    position, confidence, evidence = _small_maps(stack, scale, chosen, progress)
    if scale > 1 and picture is not None:
        position = enlarge_along(position, small_luminance(stack, picture, 1))
    position, confidence, evidence = (
        enlarge(plane, shape) for plane in (position, confidence, evidence)
    )
    return Depth(position, confidence, evidence, len(stack), z_step)


def _small_maps(
    stack: Stack, scale: int, chosen: NDArray[np.int32] | None, progress: ProgressCallback
) -> tuple[Levels, Levels, Levels]:
    """Find position, confidence and evidence in frames made ``scale`` times smaller.

    ``chosen`` are frames near which the peak is looked for, -1 where anywhere.
    """
    near = max(1, round(_NEAR * len(stack)))
    curves: list[list[FocusCurve]] = []
    noise: list[float] = []
    guide = np.zeros(0, np.float32)
    for number, frame in enumerate(stack):
        grey, level = _prepare(stack, frame, scale)
        energies = band_energies(grey)
        if number == 0:
            kinds = [_POINTS, None] if len(stack) >= _MANY else [None]
            curves = [[FocusCurve(e.shape, len(stack), kind) for kind in kinds] for e in energies]
            guide = np.zeros_like(grey)
        for fineness, energy in enumerate(energies):
            allowed = None
            if chosen is not None:
                there = chosen[:: 2**fineness, :: 2**fineness]
                allowed = (there < 0) | (np.abs(there - number) <= near)
            energy -= level**2 * NOISE_ENERGIES[fineness][0]
            for curve in curves[fineness]:
                better = curve.offer(number, energy, allowed)
                if fineness == 0 and better is not None:
                    np.copyto(guide, grey, where=better)
        noise.append(level)
        progress(Progress("depth", number + 1, len(stack)))
    variance = float(np.mean(np.square(noise)))
    position, confidence, evidence = _join(curves, variance)
    position[confidence <= 0] = (len(stack) - 1) / 2.0
    step = max(1.0, _STEP * len(stack))
    confidence *= _company(position, confidence, step)
    position = fill(position, confidence, guide, noise=variance**0.5, step=step)
    return np.clip(position, 0.0, len(stack) - 1.0), confidence, evidence


def _company(position: Levels, confidence: Levels, step: float) -> Levels:
    """Tell how far positions are like most of those around them, 0 to 1.

    What stands alone is no surface: even a hair is as wide as the smallest window here. Along the
    rim, where outlines beyond it leave traces, it takes larger company. A step of half ``step``, or
    of two along the rim, is too much.
    """
    filled = spread(position, confidence**2)
    alone = np.abs(position - _median_around(filled, 2)) * (2.0 / step)
    rim = round(_RIM * max(position.shape))
    if rim:
        farther = np.abs(position - _median_around(filled, max(rim // 3, 2)))
        farther[rim:-rim, rim:-rim] = 0.0
        alone = np.maximum(alone, farther * (0.5 / step))
    return np.asarray(np.exp(-alone * alone), np.float32)


def _median_around(plane: Levels, step: int) -> Levels:
    """Median of five by five places, so many pixels apart."""
    import cv2

    few = cv2.medianBlur(np.ascontiguousarray(plane[::step, ::step]), 5)
    return enlarge(np.asarray(few, np.float32), plane.shape)


def _prepare(stack: Stack, frame: Pixels, scale: int) -> tuple[Levels, float]:
    """Turn a frame into a smaller luminance of a set mean, and measure its noise."""
    picture = small_luminance(stack, frame, scale)
    variance = noise_level(picture) ** 2
    if stack.dtype.kind == "u":
        variance += (255.0 / stack.white) ** 2 / 12.0
    factor = _MEAN / max(float(picture.mean()), 1e-6)
    picture *= factor
    return picture, max(variance**0.5 * factor, _LEAST_NOISE * _MEAN)


def small_luminance(stack: Stack, frame: Pixels, scale: int) -> Levels:
    """Average the luminance, in grey levels, over blocks of ``scale`` x ``scale`` pixels.

    The last blocks are means of the pixels that are there.
    """
    height, width = frame.shape[:2]
    bands = []
    # Only a band of rows at a time becomes floats.
    for top in range(0, height, _BAND * scale):
        band = luminance(stack.to_levels(frame[top : top + _BAND * scale]))
        if scale > 1:
            rows, columns = (np.arange(0, side, scale) for side in band.shape)
            sums = np.add.reduceat(np.add.reduceat(band, rows, axis=0), columns, axis=1)
            counts = np.outer(np.diff(rows, append=len(band)), np.diff(columns, append=width))
            band = np.asarray(sums / counts, np.float32)
        bands.append(band)
    return np.concatenate(bands)


def _join(curves: list[list[FocusCurve]], variance: float) -> tuple[Levels, Levels, Levels]:
    """Join the scales' peaks: the finer one where it is clear, the coarser one elsewhere."""
    position = confidence = evidence = np.zeros((1, 1), np.float32)
    found: list[Peaks] = []
    while curves:
        # The coarsest first; what has told all it knows makes room.
        kinds = curves.pop()
        gain, error = NOISE_ENERGIES[len(curves)]
        while kinds:
            curve = kinds.pop(0)
            peaks = Peaks(curve, noise=gain * variance, spread=error, coarser=found)
            found.append(peaks)
            shape = curve.best.shape
            del curve
            wide, coarse = enlarge(position, shape), enlarge(confidence, shape)
            # Squares let the clearer of two that disagree have nearly all the say.
            share = peaks.confidence**2
            share /= share + (_COARSE * coarse) ** 2 + 1e-12
            position = wide + share * (peaks.positions() - wide)
            peaks.logs = ()
            confidence = coarse + share * (peaks.confidence - coarse)
            evidence = np.maximum(enlarge(evidence, shape), peaks.evidence)
    return position, confidence, evidence
