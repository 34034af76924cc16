"""What the noise of a stack is like, from its frames alone.

How it grows with brightness is fitted to what patches of different brightness show; the level of
every frame and colour plane is measured under the map that makes it one at any brightness.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.arguments import check_callback
from cofuse.images import Levels, Pixels, Stack, luminance, to_opponent
from cofuse.noise.brightness import NoiseModel
from cofuse.noise.law import BANDS, NoiseLaw
from cofuse.noise.patches import (
    noise_by_brightness,
    patch_noise_level,
    read_patches,
    unclipped,
)
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["estimate_noise"]

#: Patches kept of all frames together, and of one frame at least and at most.
_PATCHES_IN_ALL, _FEWEST_A_FRAME, _MOST_A_FRAME = 240_000, 6_000, 60_000
#: Patches of all frames and channels together on which noise is held against brightness.
_POOL = 120_000
#: Pixels of a patch.
_PIXELS = 49

#: Standard deviations from black and white within which the noise is cut off.
_MARGIN = 3.0
#: What the variance at one brightness is off by, relatively: by texture that no test finds, and
#: by chance on a single (overlapping) patch. From here on, tuned on training pictures such that
#: no white noise of theirs was taken for any other.
_TEXTURE_ERROR, _CHANCE_ERROR = 0.06, 3.0**0.5
#: Errors above the law beyond which a brightness counts as textured rather than as evidence.
_OUTLIER = 3.0
#: A law that grows needs this many brightnesses near it that span this many grey levels, has to
#: better a constant by this much (χ²), and to divide its misfit by this.
_FEWEST_BINS, _SPAN, _EVIDENCE, _BETTER = 4, 48.0, 9.0, 2.0


def estimate_noise(
    stack: Stack | Sequence[ArrayLike], *, progress: ProgressCallback = silent
) -> NoiseLaw:
    """Estimate the noise of a stack, or of arrays, as `fuse` does that is not told it.

    Every frame is read once, and of it only patches are kept.

    Returns
    -------
    NoiseLaw
        How the noise grows with brightness, and its levels by frame and colour plane.
    """
    check_callback("progress", progress)
    stack = Stack.of(stack)
    share = int(np.clip(_PATCHES_IN_ALL / len(stack), _FEWEST_A_FRAME, _MOST_A_FRAME))
    samples = []
    for index in range(len(stack)):
        patches = read_patches(stack.part_reader(index), stack.shape, share)
        samples.append(patches[unclipped(stack.to_levels(patches))])
        progress(Progress("noise", index + 1, len(stack)))
    frames, planes = _measure(stack, samples, NoiseModel(0.0))
    bins = noise_by_brightness(_pool(stack, samples, frames))
    grows = _fit(bins)
    if grows.gain > 0:
        law = _law(grows, *_measure(stack, samples, grows), bins)
        if not law.is_clean:
            return law
    return _law(NoiseModel(float(np.sqrt(np.mean(np.square(planes))))), frames, planes, bins)


def _law(
    model: NoiseModel,
    frames: NDArray[np.float64],
    planes: NDArray[np.float64],
    bins: NDArray[np.float64],
) -> NoiseLaw:
    """Put together what was measured: white noise, each frame with its share of the typical."""
    typical = float(np.median(frames))
    share = frames / typical if typical > 0 else np.ones(len(frames))
    levels = np.repeat(np.outer(share, planes)[..., None], BANDS, axis=-1)
    level, variance, count = bins.T
    brightness = np.stack([level, np.sqrt(variance), 0.5 * _error(count)], axis=1)
    return NoiseLaw(model, levels, np.zeros_like(levels), brightness, estimated=True)


def _measure(
    stack: Stack, samples: list[Pixels], model: NoiseModel
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Measure every frame's luminance and a typical frame's planes, after the model's map."""
    frames, planes = [], []
    for patches in samples:
        # Patches in rows are a picture as well, as far as maps of single pixels go.
        levels = model.stabilise(stack.to_levels(patches))
        opponent = np.moveaxis(to_opponent(levels), -1, 0)
        planes.append([patch_noise_level(plane) for plane in opponent])
        frames.append(patch_noise_level(luminance(levels)) if stack.is_colour else planes[-1][0])
    return np.array(frames), np.median(planes, axis=0)


def _pool(stack: Stack, samples: list[Pixels], noise: NDArray[np.float64]) -> Levels:
    """Put patches of all frames and channels together, evenly, as if all had the typical noise."""
    typical = float(np.median(noise))
    every = max(1, round(sum(patches.size for patches in samples) / _POOL / _PIXELS))
    parts = []
    for patches, level in zip(samples, noise, strict=True):
        channels = np.moveaxis(np.atleast_3d(stack.to_levels(patches[::every])), -1, 0)
        levels = channels.reshape(-1, _PIXELS)
        mean = levels.mean(axis=1, keepdims=True)
        ratio = np.clip(typical / level, 0.5, 2.0) if typical and level else 1.0
        parts.append(mean + (levels - mean) * np.float32(ratio))
    return np.concatenate(parts)


def _fit(bins: NDArray[np.float64]) -> NoiseModel:
    """Fit a law that grows to variances by brightness; unless it is clear the gain is 0.

    Texture only adds to the variance: brightnesses far above a law weigh little against it.
    """
    unclear = NoiseModel(0.0)
    level, variance, count = bins[bins[:, 1] > 0].T
    reach = _MARGIN * np.sqrt(variance)
    inside = (level > reach) & (level < 255.0 - reach)
    level, variance, count = level[inside], variance[inside], count[inside]
    error = _error(count)

    def residuals(law: tuple[float, float]) -> NDArray[np.float64]:
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


def _error(count: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative error of a variance measured on so many patches."""
    return np.asarray(np.hypot(_TEXTURE_ERROR, _CHANCE_ERROR / np.sqrt(count)))


def _least_squares(
    level: NDArray[np.float64], variance: NDArray[np.float64], error: NDArray[np.float64]
) -> NoiseModel:
    """Fit ``floor² + gain·I``, neither of them negative, to variances with relative errors."""
    design = np.stack([np.ones_like(level), level], axis=1) / (variance * error)[:, None]
    goal = 1.0 / error
    both = np.linalg.lstsq(design, goal, rcond=None)[0]
    if (both >= 0).all():
        return NoiseModel(float(np.sqrt(both[0])), float(both[1]))
    # One of them is 0, and the other what fits best alone.
    alone = np.maximum(design.T @ goal, 0.0) / np.square(design).sum(axis=0)
    floor, gain = (
        float(np.linalg.norm(column * a - goal)) for column, a in zip(design.T, alone, strict=True)
    )
    return (
        NoiseModel(float(np.sqrt(alone[0]))) if floor < gain else NoiseModel(0.0, float(alone[1]))
    )
