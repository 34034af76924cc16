"""Noise level from the pictures alone, in 8-bit grey levels (0-255 scale).

White noise of standard deviation σ puts σ² on *every* direction of the space of patches, while
picture content leaves some directions empty. Where patches are not too textured the smallest
eigenvalue of their covariance is therefore σ², and σ itself tells which patches are not: one is
kept when its gradient energy is what noise alone could have made. The two are iterated from all
patches to a fixed point, after Liu, Tanaka and Okutomi (2013).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Stack
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = [
    "CLEAN_BELOW",
    "estimate_noise",
    "noise_by_brightness",
    "noise_level",
    "noise_to_remove",
    "patch_noise_level",
    "sample_patches",
    "unclipped",
]

#: Estimates below this many grey levels count as a clean picture: there texture and rounding
#: cannot be told from noise, and restoring would cost more detail than noise.
CLEAN_BELOW = 1.5

_SIDE = 7
_MOST_PATCHES = 60_000
_FEWEST_PATCHES = 4 * _SIDE**2
_ROUNDS = 5
#: Share of pure-noise patches that may be taken for texture.
_FALSE_ALARMS = 1e-2

#: Grey levels that count as one brightness, and patches below which nothing is measured in it.
_BIN = 16.0
_FEWEST_IN_BIN = 100
#: Directions taken as empty, of 49, and the quantile of the energy in them.
_EMPTY = 12
_QUANTILE = 0.25


def estimate_noise(stack: Stack, *, progress: ProgressCallback = silent) -> float:
    """Estimate a stack's noise level: the median of its frames'."""
    levels = []
    for index in range(len(stack)):
        levels.append(_frame_level(stack, index))
        progress(Progress("noise", index + 1, len(stack)))
    return float(np.median(levels))


def noise_to_remove(stack: Stack, *, progress: ProgressCallback = silent) -> float:
    """Estimate a stack's noise level as restoring goes by it: 0 where it counts as clean."""
    level = estimate_noise(stack, progress=progress)
    return level if level >= CLEAN_BELOW else 0.0


def noise_level(picture: NDArray[np.float32]) -> float:
    """Estimate the noise level of one grey picture given in grey levels.

    A picture too small to tell (fewer than about 200 patches of 7 × 7 pixels) counts as clean.
    """
    patches = sample_patches(picture)
    return patch_noise_level(patches[unclipped(patches)])


def patch_noise_level(patches: NDArray[np.float32]) -> float:
    """Estimate the noise level of patches of 49 pixels, one a row; of too few it is 0."""
    if len(patches) < _FEWEST_PATCHES:
        return 0.0
    texture = _texture(patches)
    variance = _least_variance(patches)
    for _ in range(_ROUNDS):
        kept = patches[texture <= variance]
        if len(kept) < _FEWEST_PATCHES:
            break
        variance = _least_variance(kept)
    return float(np.sqrt(variance))


def noise_by_brightness(patches: NDArray[np.float32]) -> NDArray[np.float64]:
    """Measure the noise variance where patches are dark, less dark, and so on to white.

    The directions that pictures leave empty are found on all patches together, so that a few at
    one brightness suffice. Of the energies in them a low quantile is held against that of noise:
    most patches may have texture there after all.

    Returns
    -------
    ndarray
        A row for every brightness that has enough patches: mean grey level, variance, and the
        number of patches it was measured on.
    """
    from scipy.special import gammaincinv

    if len(patches) < _FEWEST_PATCHES:
        return np.empty((0, 3))
    texture, brightness = _texture(patches), patches.mean(axis=1)
    detail = patches - brightness[:, None]
    # The first direction is the mean, which was taken out.
    empty = np.linalg.eigh(_covariance(detail))[1][:, 1 : _EMPTY + 1].astype(np.float32)
    energy = np.square(detail @ empty).sum(axis=1)
    # The energy of unit white noise is a χ² of _EMPTY degrees of freedom: this is its quantile.
    unit = 2.0 * float(gammaincinv(_EMPTY / 2, _QUANTILE))
    bins = np.floor(brightness / _BIN)
    rows = []
    for index in np.unique(bins):
        here = bins == index
        kept = energy[here]
        for _ in range(_ROUNDS):
            variance = np.quantile(kept, _QUANTILE) / unit
            kept = energy[here][texture[here] <= variance]
            if len(kept) < _FEWEST_IN_BIN:
                break
        else:
            rows.append((brightness[here].mean(), variance, len(kept)))
    return np.array(rows, np.float64).reshape(-1, 3)


def sample_patches(frame: NDArray[Any], most: int = _MOST_PATCHES) -> NDArray[Any]:
    """Take patches evenly over a frame: shape (N, 49), or (N, 49, 3) of an RGB frame."""
    if min(frame.shape[:2]) < _SIDE:
        return np.empty((0, _SIDE**2, *frame.shape[2:]), frame.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(frame, (_SIDE, _SIDE), axis=(0, 1))
    stride = int(np.ceil(np.sqrt(windows.shape[0] * windows.shape[1] / most)))
    taken = windows[::stride, ::stride]
    if frame.ndim == 3:
        taken = np.moveaxis(taken, 2, -1)
    return taken.reshape(-1, _SIDE**2, *frame.shape[2:])


def unclipped(patches: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell the patches without a black or white value, or take all if hardly any is.

    Black and white clip the noise away: such patches would pass for noise-free flat ones.
    """
    # Scaling a native white to 255 leaves it a rounding away.
    clipped = (np.abs(patches) < 1e-3) | (np.abs(patches - 255.0) < 1e-3)
    kept = ~clipped.any(axis=tuple(range(1, patches.ndim)))
    return kept if kept.sum() >= _FEWEST_PATCHES else np.ones_like(kept)


def _frame_level(stack: Stack, index: int) -> float:
    """Noise level of one frame: the root mean square over its channels."""
    levels = stack.to_levels(stack[index])
    planes = [levels[..., c] for c in range(3)] if stack.is_colour else [levels]
    return float(np.sqrt(np.mean([noise_level(plane) ** 2 for plane in planes])))


def _texture(patches: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give the noise variance from which on a patch's gradient energy may be all noise."""
    from scipy.special import gammainccinv

    energy_form, shape, scale = _gradient_energy()
    energy = np.einsum("pi,pi->p", patches @ energy_form, patches)
    # Where a gamma variable of this shape and scale is exceeded with probability _FALSE_ALARMS.
    limit = scale * float(gammainccinv(shape, _FALSE_ALARMS))
    return np.asarray(energy / np.float32(limit))


def _covariance(patches: NDArray[np.float32]) -> NDArray[np.float64]:
    """Covariance of the 49 pixels over the patches."""
    centred = patches - patches.mean(axis=0)
    return np.asarray((centred.T @ centred).astype(np.float64) / (len(patches) - 1))


def _least_variance(patches: NDArray[np.float32]) -> float:
    """Smallest eigenvalue of the covariance, corrected for its downward bias in small samples.

    With p directions and N samples of pure noise the smallest eigenvalue is near
    σ² (1 − √(p/N))² (Marchenko-Pastur).
    """
    smallest = max(float(np.linalg.eigvalsh(_covariance(patches))[0]), 0.0)
    shrinkage = (1.0 - np.sqrt(patches.shape[1] / len(patches))) ** 2
    return float(smallest / shrinkage)


@cache
def _gradient_energy() -> tuple[NDArray[np.float32], float, float]:
    """The form G with xᵀGx the gradient energy of a patch, and the gamma law of it under noise.

    For unit white noise xᵀGx has mean tr G and variance 2 tr G²; a gamma law is matched to both.
    """
    step = (np.eye(_SIDE, k=2) - np.eye(_SIDE))[:-2]
    smooth = step.T @ step
    form = np.kron(smooth, np.eye(_SIDE)) + np.kron(np.eye(_SIDE), smooth)
    mean, variance = np.trace(form), 2.0 * np.trace(form @ form)
    return form.astype(np.float32), float(mean**2 / variance), float(variance / mean)
