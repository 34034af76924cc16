"""The noise of a stack from its frames alone.

Places that show nothing but noise are looked for in single frames and in combinations of
neighbouring ones (`sampling`), band by band. The finest bands are measured; how far coarser ones
may be trusted depends on how much detail there is, and where there is much the bands beside them
have a say: spectra of noise are smooth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check_callback
from cofuse.images import Stack
from cofuse.progress import ProgressCallback, silent
from cofuse.sensor.law import BANDS, SHARES, Array, NoiseLaw, NoiseModel
from cofuse.sensor.sampling import FIRST, Candidates, Curve, Floor, Sample, sample_stack

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
#: Level below which nothing is told apart, in units of a frame's noise, and its logarithm.
_LEAST = 1e-3
_NOTHING = float(np.log(_LEAST))
#: More detail than this says no more about what is left of it where there is least.
_MOST_DETAIL, _DOUBT = 50.0, 1.5
#: Doubt of a band that has hardly any detail.
_LITTLE_DOUBT = 0.5


def estimate_noise(
    stack: Stack | Sequence[ArrayLike], *, progress: ProgressCallback = silent
) -> NoiseLaw:
    """Estimate the noise of a stack, or of arrays, as `fuse` does that is not told it.

    Every frame is read once, and of it only some windows. Frames have to lie in place, as for
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
    return law_of(sample_stack(stack, progress), colour=stack.is_colour)


def noise_level(picture: NDArray[np.float32]) -> float:
    """Estimate the standard deviation of the noise of one grey picture given in grey levels."""
    return estimate_noise(Stack.from_arrays([picture], white=255.0)).overall


def law_of(sample: Sample, *, colour: bool) -> NoiseLaw:
    """Make a law of what was seen of a stack."""
    blocks, planes = sample.blocks, 3 if colour else 1
    bands = sample.combined
    if not bands:  # smaller than a block: nobody knows
        nothing = NoiseLaw.white(0.0, frames=len(sample.same), colour=colour)
        return replace(nothing, errors=np.ones_like(nothing.levels), estimated=True)
    rows = _by_brightness(bands[0], sample)
    shape = fit_model(rows)
    curve = shape.sigma_at if shape.gain > 0 else _curve(rows, bands[0], sample)
    profile, errors = _profile(bands, curve, planes, jpeg=blocks > 0)
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


def _by_brightness(finest: Candidates, sample: Sample) -> Array:
    """Find the variance at every brightness: rows of grey level, variance, and relative error.

    How much detail there is, and may be left in it, is what single frames show: where detail fills
    a picture a combination of few has it everywhere, as noise is.
    """
    rows = finest.by_brightness(_BRIGHTNESS_STEP)
    frames = Candidates.together([frame[0] for frame in sample.alone])
    alone = frames.by_brightness(_BRIGHTNESS_STEP)
    reach = _MARGIN * np.sqrt(rows[:, 1]) * np.median(sample.rough)
    rows = rows[(rows[:, 1] > 0) & (rows[:, 0] > reach) & (rows[:, 0] < 255.0 - reach)]
    if len(rows) and len(alone):
        detail = np.interp(rows[:, 0], alone[:, 0], np.minimum(alone[:, 3], _MOST_DETAIL))
        rows[:, 2] = np.hypot(rows[:, 2], np.log(detail) ** _DOUBT)
    return rows[:, :3]


def _curve(rows: Array, finest: Candidates, sample: Sample) -> Curve:
    """Smooth what was found by brightness; its mean square over the picture is 1.

    Tone curves make noise rise and fall with brightness. Without evidence the noise of a brightness
    is that of all.
    """
    least = finest.floor(0, np.ones_like).variance
    if not len(rows) or not least:
        return np.ones_like
    level, variance, error = rows.T
    near = np.exp(-0.5 * ((level[:, None] - level) / _BRIGHTNESS_STEP) ** 2)
    near /= error**2 + _HIDDEN_ERROR**2
    # A picture full of detail may have it at some brightnesses and not at others.
    full = np.median([_doubt(frame[0].floor(0, np.ones_like)) for frame in sample.alone])
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

    That may be in fine chrominance, and after a JPEG in all of it and in the finest luminance; but
    where luminance has much detail more blocks would have it.
    """
    if plane:
        return band.floor(plane, curve, _FIRST_ROUNDED if jpeg or number < 2 else FIRST)
    floor = band.floor(plane, curve)
    if jpeg and number == 0 and _doubt(floor) < _LITTLE_DOUBT:
        return band.floor(plane, curve, _FIRST_ROUNDED)
    return floor


def _smooth(
    floors: Sequence[Floor], slopes: Array | None, coarse: Array | None, *, jpeg: bool
) -> tuple[Array, Array]:
    """Weigh what was measured in every band, finest first, against what is to be expected.

    Returns logarithms of the levels, and their errors. ``slopes`` say by how much other planes
    change from octave to octave, where that says something. ``coarse`` are logarithms of the levels
    of luminance; the plane is then a chrominance that a JPEG has thinned out. With ``jpeg`` the
    finest band has lost by rounding.
    """
    logs, errors = np.zeros(BANDS), np.zeros(BANDS)
    patchy = coarse is not None
    change_within = floors[0].slope if jpeg else _change_within(floors[0])
    fading = _FADING_ROUNDED if jpeg else _FADING
    doubt = 0.0
    for band in range(BANDS):
        guesses: list[tuple[float, float]] = []
        if band < len(floors):
            floor = floors[band]
            # There is ever more detail towards coarse bands, though few blocks may hide it.
            doubt = max(doubt, _doubt(floor)) if band else 0.0
            change = floor.slope if band else change_within
            # Of the band's two halves the finer one has the least detail.
            unlike = np.log((1.0 + np.exp(2.0 * change)) / (1.0 + np.exp(2.0 * floor.slope)))
            measured = max(0.5 * (np.log(max(floor.variance, 1e-12)) + unlike), _NOTHING)
            guesses.append((measured, np.hypot(0.5 * floor.error, doubt)))
        if band == 1:
            guesses.append((logs[0] + (_COARSE_PATCHY if patchy else _COARSE), _COARSE_ERROR))
            if not patchy:
                spread = np.hypot(_LEAST_ERROR, _WITHIN_ERROR * abs(change_within))
                expected = logs[0] + _WITHIN * change_within
                guesses.append((expected, np.hypot(spread, _doubt(floors[0]))))
        elif band > 1:
            change = logs[band - 1] - logs[band - 2]
            spread = np.hypot(_LEAST_ERROR, (1.0 if patchy else _FADING_ERROR) * abs(change))
            guesses.append(
                (logs[band - 1] + fading * change, np.hypot(spread, 0.5 * errors[band - 1]))
            )
            if coarse is not None:
                guesses.append((coarse[band], _COARSE_ERROR))
        if band > 0 and slopes is not None:
            spread = np.hypot(_COLOUR_ERROR, 0.5 * errors[band - 1])
            guesses.append((logs[band - 1] + slopes[band], spread))
        value, error = np.array(guesses).T
        if band and band < len(floors):
            # Detail only adds: what is more than expected is doubted as much as it is more.
            expected = np.average(value[1:], weights=error[1:] ** -2.0)
            error[0] = np.hypot(error[0], max(value[0] - expected, 0.0))
        weight = 1.0 / np.maximum(error, 1e-3) ** 2
        logs[band] = weight @ value / weight.sum()
        errors[band] = weight.sum() ** -0.5
    return logs, np.hypot(errors, _HIDDEN_ERROR)


def _change_within(floor: Floor) -> float:
    """Change within the finest octave: noise is white or clearly coarse, detail adds a little."""
    return float(floor.slope**3 / (floor.slope**2 + _NEARLY_WHITE**2))


def _doubt(floor: Floor) -> float:
    """How far a level may be off by detail, as a logarithm; little detail is found and left out."""
    return float(np.log(min(floor.detail, _MOST_DETAIL)) ** _DOUBT)


def _by_frame(sample: Sample, curve: Curve, profile: Array) -> tuple[Array, Array]:
    """Find the level of every frame, plane and band, and the relative error of a frame's.

    Frames that were resampled have lost of their finest band, but little of the others.
    """
    fine = [alone[0].floor(0, curve) for alone in sample.alone]
    scale = np.array(sample.rough)
    share = np.ones(len(scale))
    if all(len(alone) > 1 for alone in sample.alone):
        second = [alone[1].floor(0, curve) for alone in sample.alone]
        ratio = np.array([max(floor.variance, 1e-12) ** 0.5 for floor in second]) / scale
        doubt = np.array([_doubt(floor) for floor in second])
        share = (ratio / np.median(ratio)) ** (1.0 / (1.0 + (doubt / _COLOUR_ERROR) ** 2))
    levels = scale[:, None, None] * profile * np.ones(BANDS)
    levels[:, :, 1:] *= share[:, None, None]
    # Where a frame has much detail everywhere its level is a bound rather than a measure.
    errors = np.array([np.hypot(0.5 * floor.error, min(_doubt(floor), 1.0)) for floor in fine])
    return levels[sample.same], errors[sample.same]


def fit_model(rows: Array) -> NoiseModel:
    """Fit a law that grows to variances by brightness; unless it is clear the gain is 0.

    Texture only adds to the variance: brightnesses far above a law weigh little against it.
    """
    unclear = NoiseModel(1.0)
    level, variance, error = rows[rows[:, 1] > 0].T
    error = np.hypot(_TEXTURE_ERROR, error)

    def residuals(law: tuple[float, float]) -> Array:
        return np.asarray(np.log(variance / (law[0] + law[1] * level)) / error)

    def misfit(law: tuple[float, float]) -> float:
        distance = residuals(law)
        squares = distance**2
        bounded = squares / (1.0 + squares / _OUTLIER**2)
        return float(np.where(distance > 0, bounded, squares).sum())

    # There are few enough to try every line through two of them, and every constant.
    lines = []
    for i, j in combinations(range(len(level)), 2):
        gain = (variance[j] - variance[i]) / (level[j] - level[i])
        offset = variance[i] - gain * level[i]
        if gain > 0:
            lines.append((offset, gain) if offset > 0 else (0.0, variance[j] / level[j]))
    if not lines:
        return unclear
    constant = min(misfit((value, 0.0)) for value in variance)
    best = min(lines, key=misfit)
    near = np.abs(residuals(best)) < _OUTLIER
    if near.sum() < _FEWEST_BINS or np.ptp(level[near]) < _SPAN:
        return unclear
    if constant < max(misfit(best) + _EVIDENCE, _BETTER * misfit(best)):
        return unclear
    return _least_squares(level[near], variance[near], error[near])


def _least_squares(level: Array, variance: Array, error: Array) -> NoiseModel:
    """Fit ``floor² + gain·I``, neither of them negative, to variances with relative errors."""
    design = np.stack([np.ones_like(level), level], axis=1) / (variance * error)[:, None]
    goal = 1.0 / error
    both = np.linalg.lstsq(design, goal, rcond=None)[0]
    if (both >= 0).all():
        return NoiseModel(float(np.sqrt(both[0])), float(both[1]))
    # One of them is 0, and the other what fits best alone.
    alone = np.maximum(design.T @ goal, 0.0) / np.square(design).sum(axis=0)
    floor, gain = np.linalg.norm(design * alone - goal[:, None], axis=0)
    best = (float(np.sqrt(alone[0])), 0.0) if floor < gain else (0.0, float(alone[1]))
    return NoiseModel(*best)
