"""The noise of a stack from its frames alone.

Places that show nothing but noise are looked for in single frames and in combinations of
neighbouring ones (`sampling`), band by band. The finest bands are measured; how far coarser ones
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
from cofuse.progress import ProgressCallback, silent
from cofuse.sensor.law import BANDS, SHARES, Array, NoiseLaw, NoiseModel
from cofuse.sensor.sampling import DOUBT, FIRST, Candidates, Curve, Floor, Sample, sample_stack

#: What the variance at one brightness is off by, relatively, by texture that no test finds.
_TEXTURE_ERROR = 0.06
#: Errors above the law beyond which a brightness counts as textured rather than as evidence.
_OUTLIER = 3.0
#: A law that grows needs this many brightnesses near it that span this many grey levels, has to
#: better a constant by this much (χ²), and to divide its misfit by this.
_FEWEST_BINS, _SPAN, _EVIDENCE, _BETTER = 4, 48.0, 9.0, 2.0
#: Grey levels that count as one brightness, and how far variances may differ between them, as a
#: logarithm, before anything is known.
_BRIGHTNESS_STEP, _BRIGHTNESS_ERROR = 16.0, 0.3
#: Standard deviations from black and white within which the noise is cut off.
_MARGIN = 3.0
#: Part of the blocks that is taken in any case where noise may be rounded away in some.
_FIRST_ROUNDED = 0.2
#: From octave to octave the logarithm of the level changes by this part of its last change, as it
#: does in noise that was blurred, demosaiced or resampled; the change is known to a part of it,
#: and to this in any case. After a JPEG the first change is too large, by what is rounded away.
_FADING, _FADING_ROUNDED, _FADING_ERROR, _LEAST_ERROR = 0.43, 0.3, 0.3, 0.05
#: From the finest octave to the next it is this times the change within the finest, which is
#: known to a part of it.
_WITHIN, _WITHIN_ERROR = 0.95, 0.2
#: Changes within the finest octave below this are rather detail's than noise's.
_NEARLY_WHITE = 0.25
#: Before anything is known: noise is a little coarse, and chrominance after a JPEG very much so.
_COARSE, _COARSE_PATCHY, _COARSE_ERROR = 0.3, 1.2, 0.4
#: How far the spectra of luminance and chrominance differ from octave to octave.
_COLOUR_ERROR = 0.3
#: What every level is off by, relatively, by detail that no test finds.
_HIDDEN_ERROR = 0.06
#: Level below which nothing is told apart, in units of a frame's noise.
_LEAST = 1e-3
#: Doubt of a band that has hardly any detail.
_LITTLE_DOUBT = 0.5


def estimate_noise(
    stack: Stack | Sequence[ArrayLike], *, progress: ProgressCallback = silent
) -> NoiseLaw:
    """Estimate the noise of a stack, or of arrays, as `fuse` does that is not told it.

    Some windows of every frame are read, each frame once. Frames have to lie in place, as for
    `fuse`.

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
    if not bands:  # Frames are smaller than a block: nothing is known.
        nothing = NoiseLaw.white(0.0, frames=len(stack), colour=stack.is_colour)
        return replace(nothing, errors=np.ones_like(nothing.levels), estimated=True)
    rows = _by_brightness(bands[0], sample)
    shape = _fit_model(rows)
    curve = shape.sigma_at if shape.gain > 0 else _curve(rows, bands[0], sample)
    profile, errors = _profile(bands, curve, 3 if stack.is_colour else 1, jpeg=blocks > 0)
    levels, frame_errors = _by_frame(sample, curve, profile)
    # Of a channel's values in a typical frame, where the curve is 1.
    total = float(np.sqrt(np.median(np.mean(levels**2 @ SHARES, axis=1))))
    brightness = np.stack([rows[:, 0], np.sqrt(rows[:, 1]), 0.5 * rows[:, 2]], axis=1)
    brightness[:, 1] *= total / max(profile[0, 0], _LEAST)
    model = NoiseModel(total)
    if shape.gain > 0 and total > 0:
        model = NoiseModel(shape.floor * total, shape.gain * total**2)
        levels = levels * (model.stabilised_sigma / total)
    all_errors = np.hypot(errors, frame_errors[:, None, None])
    return NoiseLaw(model, levels, all_errors, brightness, blocks, estimated=True)


def noise_level(picture: NDArray[np.float32]) -> float:
    """Estimate the standard deviation of the noise of one grey picture given in grey levels."""
    return estimate_noise(Stack.from_arrays([picture], white=255.0)).overall


def _by_brightness(finest: Candidates, sample: Sample) -> Array:
    """Find the variance at every brightness: rows of grey level, variance, and relative error.

    The error grows with the detail that single frames have. Where detail fills a picture, a
    combination of few frames has it everywhere, as noise is, and so does not show it.
    """
    rows = finest.by_brightness(_BRIGHTNESS_STEP)
    reach = _MARGIN * np.sqrt(rows[:, 1]) * np.median(sample.rough)
    rows = rows[(rows[:, 1] > 0) & (rows[:, 0] > reach) & (rows[:, 0] < 255.0 - reach)]
    alone = Candidates.together([frame[0] for frame in sample.alone])
    seen = alone.by_brightness(_BRIGHTNESS_STEP)
    if len(seen):
        detail = np.interp(rows[:, 0], seen[:, 0], seen[:, 3])
        rows[:, 2] = np.hypot(rows[:, 2], np.log(detail) ** DOUBT)
    return rows[:, :3]


def _curve(rows: Array, finest: Candidates, sample: Sample) -> Curve:
    """Smooth what was found by brightness; its mean square over the picture is 1.

    Tone curves make noise rise and fall with brightness. Without evidence the noise of a brightness
    is that of all.
    """
    least = finest.floor().variance
    if not len(rows) or not least:
        return np.ones_like
    level, variance, error = rows.T
    near = np.exp(-0.5 * ((level[:, None] - level) / _BRIGHTNESS_STEP) ** 2)
    near /= error**2 + _HIDDEN_ERROR**2
    # A picture full of detail may have it at some brightnesses and not at others.
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
    # Chrominances have less detail, and so tell what luminance may be like. A JPEG takes more of
    # them away, all but what is coarse: then luminance tells what that may be like.
    for plane in range(planes) if jpeg else reversed(range(planes)):
        floors = [_floor(band, k, plane, curve, jpeg=jpeg) for k, band in enumerate(bands)]
        slopes = coarse = None
        if jpeg and plane:
            coarse = logs[0]
        elif planes > 1 and plane == 0 and not jpeg:
            slopes = np.diff(logs[1:].mean(axis=0), prepend=0.0)
        logs[plane], errors[plane] = _smooth(floors, slopes, coarse, jpeg=jpeg)
    return np.exp(logs), errors


def _floor(band: Candidates, number: int, plane: int, curve: Curve, *, jpeg: bool) -> Floor:
    """Measure a band; where noise may be rounded away in some blocks, in more of them.

    That may be in fine chrominance, and after a JPEG in all of it and in the finest luminance. If
    luminance has much detail, more blocks would have it too.
    """
    if plane:
        rounded = jpeg or number < 2
    else:
        rounded = jpeg and number == 0 and band.floor(0, curve).doubt < _LITTLE_DOUBT
    return band.floor(plane, curve, _FIRST_ROUNDED if rounded else FIRST)


def _smooth(
    floors: Sequence[Floor], slopes: Array | None, coarse: Array | None, *, jpeg: bool
) -> tuple[Array, Array]:
    """Weigh what was measured in every band, finest first, against what is to be expected.

    Returns logarithms of the levels, and their errors. ``slopes`` say by how much other planes
    change from octave to octave. ``coarse`` are logarithms of the levels of luminance, given for a
    chrominance that a JPEG has thinned out. With ``jpeg`` the finest band has lost by rounding.
    """
    logs, errors = np.zeros(BANDS), np.zeros(BANDS)
    # Noise is white or clearly coarse; detail adds a little.
    within = floors[0].slope
    if not jpeg:
        within = within**3 / (within**2 + _NEARLY_WHITE**2)
    doubt = 0.0
    for band in range(BANDS):
        # What the level may be, as a logarithm, and the error of that.
        guesses: list[tuple[float, float]] = []
        last, last_error = logs[band - 1], 0.5 * errors[band - 1]
        if band < len(floors):
            floor = floors[band]
            # There is ever more detail towards coarse bands, though few blocks may hide it.
            doubt = max(doubt, floor.doubt) if band else 0.0
            change = floor.slope if band else within
            # Of the band's two halves the finer one has the least detail.
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
            # Detail only adds: what is more than expected is doubted as much as it is more.
            expected = np.average(value[1:], weights=error[1:] ** -2.0)
            error[0] = np.hypot(error[0], max(value[0] - expected, 0.0))
        weight = np.maximum(error, 1e-3) ** -2.0
        logs[band] = np.average(value, weights=weight)
        errors[band] = weight.sum() ** -0.5
    return logs, np.hypot(errors, _HIDDEN_ERROR)


def _by_frame(sample: Sample, curve: Curve, profile: Array) -> tuple[Array, Array]:
    """Find the level of every frame, plane and band, and the relative error of every frame's.

    Frames that were resampled have lost some of their finest band, but little of the others.
    """
    scale = np.array(sample.rough)
    levels = scale[:, None, None] * profile
    if len(sample.combined) > 1:
        second = [alone[1].floor(0, curve) for alone in sample.alone]
        ratio = np.array([max(floor.variance, 1e-12) ** 0.5 for floor in second]) / scale
        doubt = np.array([floor.doubt for floor in second])
        share = (ratio / np.median(ratio)) ** (1.0 / (1.0 + (doubt / _COLOUR_ERROR) ** 2))
        levels[:, :, 1:] *= share[:, None, None]
    # Where a frame has much detail everywhere its level is a bound rather than a measure.
    finest = [alone[0].floor(0, curve) for alone in sample.alone]
    errors = np.array([np.hypot(0.5 * floor.error, min(floor.doubt, 1.0)) for floor in finest])
    return levels[sample.same], errors[sample.same]


def _fit_model(rows: Array) -> NoiseModel:
    """Fit a law that grows to variances by brightness; unless it is clear the gain is 0.

    Texture only adds to the variance: brightnesses far above a law weigh little against it.
    """
    level, variance, error = rows.T
    error = np.hypot(_TEXTURE_ERROR, error)

    def residuals(laws: Array) -> Array:
        """Of rows of variance at black and gain."""
        return np.asarray(np.log(variance / (laws[:, :1] + laws[:, 1:] * level)) / error)

    def misfits(laws: Array) -> Array:
        distance = residuals(laws)
        squares = distance**2
        bounded = squares / (1.0 + squares / _OUTLIER**2)
        return np.asarray(np.where(distance > 0, bounded, squares).sum(axis=1))

    # There are few enough to try every line through two of them, and every constant.
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
