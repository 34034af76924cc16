"""The noise of a stack from its frames alone.

Blocks that show nothing but noise are looked for in single frames and in combinations of
neighbouring frames (`sampling`), band by band. A band with much detail is also predicted from the
bands beside it: spectra of noise are smooth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check_callback
from cofuse.images import Stack
from cofuse.progress import ProgressCallback, silent
from cofuse.sensor.law import BANDS, SHARES, Array, NoiseLaw, NoiseModel
from cofuse.sensor.sampling import DOUBT, FIRST, Candidates, Curve, Floor, Sample, sample_stack

#: Relative error of a variance, and of a level, by detail that no test finds.
_TEXTURE_ERROR, _HIDDEN_ERROR = 0.06, 0.06
#: A brightness this many errors above the model counts as textured.
_OUTLIER = 3.0
#: A model that grows needs this many brightnesses near it, over this many grey levels; its χ² must
#: be less than that of a constant by this much, and by this factor.
_FEWEST_BINS, _SPAN, _EVIDENCE, _BETTER = 4, 48.0, 9.0, 2.0
#: Width of a step of brightness in grey levels; prior error of the logarithm of its variance.
_BRIGHTNESS_STEP, _BRIGHTNESS_ERROR = 16.0, 0.3
#: Within this many standard deviations of black and white noise is clipped.
_MARGIN = 3.0
#: Share of the blocks that is averaged in any case where rounding may have removed noise.
_FIRST_ROUNDED = 0.2
#: Each change of the logarithm of the level, from octave to octave, is this part of the last
#: change (less after a JPEG, whose rounding makes the first change too large); relative error of
#: that, and its least error.
_FADING, _FADING_ROUNDED, _FADING_ERROR, _LEAST_ERROR = 0.43, 0.3, 0.3, 0.05
#: The first change is this part of the change within the finest octave; its relative error.
_WITHIN, _WITHIN_ERROR = 0.95, 0.2
#: A change within the finest octave below this is more likely that of detail.
_NEARLY_WHITE = 0.25
#: The first change before anything is known, and that of chrominance after a JPEG; their error.
_COARSE, _COARSE_PATCHY, _COARSE_ERROR = 0.3, 1.2, 0.4
#: Difference between the changes of luminance and those of chrominance.
_COLOUR_ERROR = 0.3
#: Least level, in units of a frame's noise.
_LEAST = 1e-3
#: Doubt of a band that has hardly any detail.
_LITTLE_DOUBT = 0.5


def estimate_noise(
    stack: Stack | Sequence[ArrayLike], *, progress: ProgressCallback = silent
) -> NoiseLaw:
    """Estimate the noise of a stack, or of arrays, as `fuse` does by default.

    Windows of every frame are read, each frame once. The frames must be aligned, as for `fuse`.

    Examples
    --------
    >>> import numpy as np, cofuse
    >>> noise = np.random.default_rng(0).normal(scale=8, size=(3, 128, 128))
    >>> law = cofuse.estimate_noise((120 + noise).astype(np.float32) / 255)
    >>> abs(law.sigma - 8) < 0.8
    True
    """
    check_callback("progress", progress)
    stack = Stack.of(stack)
    sample = sample_stack(stack, progress)
    bands, blocks = sample.combined, sample.blocks
    if not bands:  # the frames are smaller than a block
        nothing = NoiseLaw.white(0.0, frames=len(stack), colour=stack.is_colour)
        return replace(nothing, errors=np.ones_like(nothing.levels), estimated=True)
    rows = _by_brightness(sample)
    shape = _fit_model(rows)
    curve = shape.sigma_at if shape.gain > 0 else _curve(rows, sample)
    profile, errors = _profile(bands, curve, 3 if stack.is_colour else 1, jpeg=blocks > 0)
    levels, frame_errors = _by_frame(sample, curve, profile)
    # The level of a channel's values in a typical frame, where the curve is 1.
    total = float(np.sqrt(np.median(np.mean(levels**2 @ SHARES, axis=1))))
    brightness = np.stack([rows[:, 0], np.sqrt(rows[:, 1]), 0.5 * rows[:, 2]], axis=1)
    brightness[:, 1] *= total / max(profile[0, 0], _LEAST)
    model = NoiseModel(total)
    if shape.gain > 0 and total > 0:
        model = NoiseModel(shape.floor * total, shape.gain * total**2)
        levels = levels * (model.stabilised_sigma / total)
    all_errors = np.hypot(errors, frame_errors[:, None, None])
    return NoiseLaw(
        model=model,
        levels=levels,
        errors=all_errors,
        brightness=brightness,
        blocks=blocks,
        estimated=True,
    )


def noise_level(picture: NDArray[np.float32]) -> float:
    """Estimate the standard deviation of the noise of one grey picture given in grey levels."""
    return estimate_noise(Stack.from_arrays([picture], white=255.0)).overall


def _by_brightness(sample: Sample) -> Array:
    """Find the variance at every brightness: rows of grey level, variance, and relative error.

    The error grows with the detail of single frames: detail that fills a picture is in all blocks
    of a combination of few frames, as noise is.
    """
    rows = sample.combined[0].by_brightness(_BRIGHTNESS_STEP)
    reach = _MARGIN * np.sqrt(rows[:, 1]) * np.median(sample.rough)
    rows = rows[(rows[:, 1] > 0) & (rows[:, 0] > reach) & (rows[:, 0] < 255.0 - reach)]
    alone = Candidates.together([frame[0] for frame in sample.alone])
    seen = alone.by_brightness(_BRIGHTNESS_STEP)
    if len(seen):
        detail = np.interp(rows[:, 0], seen[:, 0], seen[:, 3])
        rows[:, 2] = np.hypot(rows[:, 2], np.log(detail) ** DOUBT)
    return rows[:, :3]


def _curve(rows: Array, sample: Sample) -> Curve:
    """Smooth the variances by brightness; the mean square of the curve over the picture is 1.

    Tone curves make noise rise and fall with brightness. Without evidence the variance at a
    brightness is that of all.
    """
    finest = sample.combined[0]
    least = finest.floor().variance
    if not len(rows) or not least:
        return np.ones_like
    level, variance, error = rows.T
    near = np.exp(-0.5 * ((level[:, None] - level) / _BRIGHTNESS_STEP) ** 2)
    near /= error**2 + _HIDDEN_ERROR**2
    # In a picture full of detail the variance at one brightness is less to be trusted.
    full = np.median([frame[0].floor().doubt for frame in sample.alone])
    usual = (_BRIGHTNESS_ERROR * np.exp(-full)) ** -2
    logs = (near @ np.log(variance) + usual * np.log(least)) / (near.sum(axis=1) + usual)
    mean = np.mean(np.exp(np.interp(finest.brightness, level, logs)))
    return lambda levels: np.asarray(np.exp(0.5 * np.interp(levels, level, logs)) / mean**0.5)


def _profile(
    bands: Sequence[Candidates], curve: Curve, planes: int, *, jpeg: bool
) -> tuple[Array, Array]:
    """Find the level of every plane and band, and its relative error: shape (planes, `BANDS`)."""
    logs, errors = np.zeros((planes, BANDS)), np.zeros((planes, BANDS))
    # Chrominance has less detail and so predicts luminance. A JPEG removes all but its coarse
    # bands: these are then predicted by luminance.
    for plane in range(planes) if jpeg else reversed(range(planes)):
        floors = []
        for number, band in enumerate(bands):
            # Where rounding may have removed the noise of some blocks, more of them are measured.
            # That is in fine chrominance, and after a JPEG in all chrominance and in the finest
            # luminance, unless luminance has much detail, which more blocks would contain.
            if plane:
                rounded = jpeg or number < 2
            else:
                rounded = jpeg and number == 0 and band.floor(0, curve).doubt < _LITTLE_DOUBT
            floors.append(band.floor(plane, curve, _FIRST_ROUNDED if rounded else FIRST))
        slopes = coarse = None
        if jpeg and plane:
            coarse = logs[0]
        elif planes > 1 and plane == 0 and not jpeg:
            slopes = np.diff(logs[1:].mean(axis=0), prepend=0.0)
        logs[plane], errors[plane] = _smooth(floors, slopes, coarse, jpeg=jpeg)
    return np.exp(logs), errors


def _smooth(
    floors: Sequence[Floor], slopes: Array | None, coarse: Array | None, *, jpeg: bool
) -> tuple[Array, Array]:
    """Average measurement and prediction of every band, finest first, by their errors.

    Returns logarithms of the levels, and their errors. ``slopes`` are the changes of other planes
    from octave to octave. ``coarse`` are logarithms of the levels of luminance, given for
    chrominance after a JPEG. With ``jpeg`` the finest band has lost noise by rounding.
    """
    logs, errors = np.zeros(BANDS), np.zeros(BANDS)
    # Noise is white or clearly coarse; a small slope is that of detail.
    within = floors[0].slope
    if not jpeg:
        within = within**3 / (within**2 + _NEARLY_WHITE**2)
    doubt = 0.0
    for band in range(BANDS):
        # Logarithms of the level, each with its error.
        guesses: list[tuple[float, float]] = []
        last, last_error = logs[band - 1], 0.5 * errors[band - 1]
        if band < len(floors):
            floor = floors[band]
            # Detail grows towards coarse bands, though few blocks may not show it.
            doubt = max(doubt, floor.doubt) if band else 0.0
            change = floor.slope if band else within
            # The finer half of the band has the least detail.
            unlike = np.log((1.0 + np.exp(2.0 * change)) / (1.0 + np.exp(2.0 * floor.slope)))
            measured = max(0.5 * (np.log(max(floor.variance, 1e-12)) + unlike), np.log(_LEAST))
            guesses.append((measured, np.hypot(0.5 * floor.error, doubt)))
        if band == 1 and coarse is not None:
            guesses.append((last + _COARSE_PATCHY, _COARSE_ERROR))
        elif band == 1:
            guesses.append((last + _COARSE, _COARSE_ERROR))
            spread = np.hypot(_LEAST_ERROR, _WITHIN_ERROR * abs(within))
            guesses.append((last + _WITHIN * within, np.hypot(spread, floors[0].doubt)))
        elif band > 1:
            change = last - logs[band - 2]
            known = _FADING_ERROR if coarse is None else 1.0
            spread = np.hypot(_LEAST_ERROR, known * abs(change))
            expected = last + (_FADING_ROUNDED if jpeg else _FADING) * change
            guesses.append((expected, np.hypot(spread, last_error)))
            if coarse is not None:
                guesses.append((coarse[band], _COARSE_ERROR))
        if band and slopes is not None:
            guesses.append((last + slopes[band], np.hypot(_COLOUR_ERROR, last_error)))
        value, error = np.array(guesses).T
        if band and band < len(floors):
            # Detail only adds: what exceeds the prediction is an error of the measurement.
            expected = np.average(value[1:], weights=error[1:] ** -2.0)
            error[0] = np.hypot(error[0], max(value[0] - expected, 0.0))
        weight = np.maximum(error, 1e-3) ** -2.0
        logs[band] = np.average(value, weights=weight)
        errors[band] = weight.sum() ** -0.5
    return logs, np.hypot(errors, _HIDDEN_ERROR)


def _by_frame(sample: Sample, curve: Curve, profile: Array) -> tuple[Array, Array]:
    """Find the level of every frame, plane and band, and the relative error of every frame.

    Resampled frames have lost noise in their finest band, but little in the others.
    """
    scale = np.array(sample.rough)
    levels = scale[:, None, None] * profile
    if len(sample.combined) > 1:
        second = [alone[1].floor(0, curve) for alone in sample.alone]
        ratio = np.array([max(floor.variance, 1e-12) ** 0.5 for floor in second]) / scale
        doubt = np.array([floor.doubt for floor in second])
        share = (ratio / np.median(ratio)) ** (1.0 / (1.0 + (doubt / _COLOUR_ERROR) ** 2))
        levels[:, :, 1:] *= share[:, None, None]
    # The level of a frame with much detail everywhere is only a bound.
    finest = [alone[0].floor(0, curve) for alone in sample.alone]
    errors = np.array([np.hypot(0.5 * floor.error, min(floor.doubt, 1.0)) for floor in finest])
    return levels[sample.same], errors[sample.same]


def _fit_model(rows: Array) -> NoiseModel:
    """Fit variances by brightness; the gain is 0 unless the evidence for growth is clear.

    Texture only adds to the variance: brightnesses far above a model weigh little against it.
    """
    level, variance, error = rows.T
    error = np.hypot(_TEXTURE_ERROR, error)

    def residuals(models: Array) -> Array:
        """Errors between the data and models, rows of variance at black and gain."""
        return np.asarray(np.log(variance / (models[:, :1] + models[:, 1:] * level)) / error)

    def misfits(models: Array) -> Array:
        distance = residuals(models)
        squares = distance**2
        bounded = squares / (1.0 + squares / _OUTLIER**2)
        return np.asarray(np.where(distance > 0, bounded, squares).sum(axis=1))

    # Every line through two of the data is tried, and every constant.
    one, other = np.triu_indices(len(level), 1)
    gain = (variance[other] - variance[one]) / (level[other] - level[one])
    offset = variance[one] - gain * level[one]
    through_black = np.stack([0 * gain, variance[other] / level[other]], axis=1)
    lines = np.where(offset[:, None] > 0, np.stack([offset, gain], axis=1), through_black)
    lines = lines[gain > 0]
    if not len(lines):
        return NoiseModel(1.0)
    constant = misfits(np.stack([variance, 0 * variance], axis=1)).min()
    misfit = misfits(lines)
    near = np.abs(residuals(lines[misfit.argmin()][None])[0]) < _OUTLIER
    clear = near.sum() >= _FEWEST_BINS and np.ptp(level[near]) >= _SPAN
    if not clear or constant < max(misfit.min() + _EVIDENCE, _BETTER * misfit.min()):
        return NoiseModel(1.0)
    return least_squares(level[near], variance[near], error[near])


def least_squares(level: Array, variance: Array, error: Array) -> NoiseModel:
    """Fit ``floor² + gain·I``, neither of them negative, to variances with relative errors."""
    design = np.stack([np.ones_like(level), level], axis=1) / (variance * error)[:, None]
    goal = 1.0 / error
    fit = np.linalg.lstsq(design, goal, rcond=None)[0]
    if (fit < 0).any():
        # One of them is 0, and the other what fits best alone.
        alone = np.maximum(design.T @ goal, 0.0) / np.square(design).sum(axis=0)
        floor, gain = np.linalg.norm(design * alone - goal[:, None], axis=0)
        fit = alone * ([1, 0] if floor < gain else [0, 1])
    return NoiseModel(float(np.sqrt(fit[0])), float(fit[1]))
