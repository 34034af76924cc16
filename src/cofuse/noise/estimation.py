"""The noise of a stack from its frames alone.

Places that show nothing but noise are looked for in single frames and in combinations of
neighbouring ones (`residues`), band by band. The finest bands are measured; how far coarser ones
may be trusted depends on how much detail there is, and where there is much the bands beside them
have a say: spectra of noise are smooth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check_callback
from cofuse.images import Stack
from cofuse.noise.brightness import NoiseModel, fit_model
from cofuse.noise.law import BANDS, SHARES, NoiseLaw
from cofuse.noise.sampling import Candidates, Floor, Sample, sample_stack
from cofuse.progress import ProgressCallback, silent

__all__ = ["estimate_noise"]

Array = NDArray[np.float64]

#: Grey levels that count as one brightness.
_BRIGHTNESS_STEP = 16.0
#: Part of the blocks of a chrominance that went through a JPEG that is taken at least: where it is
#: weak it is rounded away in some blocks and not in others.
_FIRST_OF_CHROMA = 0.2
#: From octave to octave the logarithm of the level changes by this part of its last change, as it
#: does in noise that was blurred, demosaiced or resampled; the change is known to a part of it,
#: and to this in any case.
_FADING, _FADING_ERROR, _LEAST_ERROR = 0.43, 0.3, 0.05
#: The same from the finest octave to the next, before anything is known.
_FIRST_CHANGE, _FIRST_ERROR = 0.35, 0.5
#: How far the spectra of luminance and chrominance differ from octave to octave.
_COLOUR_ERROR = 0.3
#: What every level is off by, relatively, by detail that no test finds.
_HIDDEN_ERROR = 0.06
#: Level below which nothing is told apart, in units of a frame's noise, and its logarithm.
_LEAST = 1e-3
_NOTHING = float(np.log(_LEAST))
#: More detail than this says no more about what is left of it where there is least.
_MOST_DETAIL = 50.0


def estimate_noise(
    stack: Stack | Sequence[ArrayLike], *, progress: ProgressCallback = silent
) -> NoiseLaw:
    """Estimate the noise of a stack, or of arrays, as `fuse` does that is not told it.

    Every frame is read once, and of it only some windows. Frames have to lie in place, as for
    `fuse`.
    """
    check_callback("progress", progress)
    stack = Stack.of(stack)
    sample = sample_stack(stack, progress)
    blocks = sample.blocks
    planes = 3 if stack.is_colour else 1
    bands = [Candidates.together(parts) for parts in sample.combined if parts]
    if not bands:  # smaller than a block: nobody knows
        nothing = NoiseLaw.white(0.0, frames=len(stack), colour=stack.is_colour)
        return replace(nothing, errors=np.ones_like(nothing.levels), estimated=True)
    rows = bands[0].by_brightness(_BRIGHTNESS_STEP)
    shape = fit_model(rows)
    profile, errors = _profile(bands, shape, planes, jpeg=blocks > 0)
    levels, frame_errors = _by_frame(sample, shape, profile)
    # Of a channel's values in a typical frame, where the model's variance is 1.
    total = float(np.sqrt(np.median(np.mean(levels**2 @ SHARES, axis=1))))
    brightness = np.stack([rows[:, 0], np.sqrt(rows[:, 1]), 0.5 * rows[:, 2]], axis=1)
    brightness[:, 1] *= total / max(profile[0, 0], _LEAST)
    model = NoiseModel(total)
    if shape.gain > 0 and total > 0:
        model = NoiseModel(shape.floor * total, shape.gain * total**2)
        levels = levels * (model.stabilised_sigma / total)
    all_errors = np.hypot(errors, frame_errors[:, None, None])
    return NoiseLaw(model, levels, all_errors, brightness, blocks, estimated=True)


def _profile(
    bands: Sequence[Candidates], shape: NoiseModel, planes: int, *, jpeg: bool
) -> tuple[Array, Array]:
    """Find the level of every plane and band, and its relative error: shape (planes, `BANDS`)."""
    logs, errors = np.zeros((planes, BANDS)), np.zeros((planes, BANDS))
    # Chrominances first: they have less detail, and so tell what luminance may be like.
    for plane in reversed(range(planes)):
        patchy = jpeg and plane > 0
        floors = [
            band.floor(plane, shape, *([_FIRST_OF_CHROMA] if patchy else [])) for band in bands
        ]
        hint = None if jpeg or plane or planes == 1 else logs[1:].mean(axis=0)
        logs[plane], errors[plane] = _smooth(floors, hint, patchy=patchy)
    return np.exp(logs), errors


def _smooth(
    floors: Sequence[Floor], hint: Array | None, *, patchy: bool
) -> tuple[Array, Array]:
    """Weigh what was measured in every band against what finer bands and a hint let expect.

    Returns logarithms of levels, and their errors.
    """
    logs, errors = np.zeros(BANDS), np.zeros(BANDS)
    doubt = 0.0
    for band in range(BANDS):
        guesses: list[tuple[float, float]] = []
        if band < len(floors):
            floor = floors[band]
            # There is ever more detail towards coarse bands, though few blocks may hide it.
            doubt = max(doubt, _doubt(floor)) if band else 0.0
            measured = max(0.5 * np.log(max(floor.variance, 1e-12)), _NOTHING)
            guesses.append((measured, np.hypot(0.5 * floor.error, doubt)))
        if band == 1:
            guesses.append((logs[0] + _FIRST_CHANGE, _FIRST_ERROR))
        elif band > 1:
            change = logs[band - 1] - logs[band - 2]
            part = 1.0 if patchy else _FADING_ERROR
            spread = np.hypot(_LEAST_ERROR, part * abs(change))
            guesses.append(
                (logs[band - 1] + _FADING * change, np.hypot(spread, 0.5 * errors[band - 1]))
            )
        if band > 0 and hint is not None:
            expected = logs[band - 1] + hint[band] - hint[band - 1]
            guesses.append((expected, np.hypot(_COLOUR_ERROR, 0.5 * errors[band - 1])))
        value, error = np.array(guesses).T
        weight = 1.0 / np.maximum(error, 1e-3) ** 2
        logs[band] = weight @ value / weight.sum()
        errors[band] = weight.sum() ** -0.5
    return logs, np.hypot(errors, _HIDDEN_ERROR)


def _doubt(floor: Floor) -> float:
    """How far a level may be off by detail, as a logarithm; little detail is found and left out."""
    return float(np.log(min(floor.detail, _MOST_DETAIL))) ** 2


def _by_frame(sample: Sample, shape: NoiseModel, profile: Array) -> tuple[Array, Array]:
    """Find the level of every frame, plane and band, and the relative error of a frame's.

    Frames that were resampled have lost of their finest band, but little of the others.
    """
    fine = [alone[0].floor(0, shape) for alone in sample.alone]
    scale = np.array(sample.rough)
    share = np.ones(len(scale))
    if all(len(alone) > 1 for alone in sample.alone):
        second = [alone[1].floor(0, shape) for alone in sample.alone]
        ratio = np.array([max(floor.variance, 1e-12) ** 0.5 for floor in second]) / scale
        doubt = np.array([_doubt(floor) for floor in second])
        share = (ratio / np.median(ratio)) ** (1.0 / (1.0 + (doubt / _COLOUR_ERROR) ** 2))
    levels = scale[:, None, None] * profile * np.ones(BANDS)
    levels[:, :, 1:] *= share[:, None, None]
    errors = np.array([0.5 * floor.error for floor in fine])
    return levels[sample.same], errors[sample.same]
