"""Noise level from the pictures alone, in 8-bit grey levels (0-255 scale).

White noise of standard deviation σ puts σ² on *every* direction of the space of patches, while
picture content leaves some directions empty. Where patches are not too textured the smallest
eigenvalue of their covariance is therefore σ², and σ itself tells which patches are not: one is
kept when its gradient energy is what noise alone could have made. The two are iterated from all
patches to a fixed point, after Liu, Tanaka and Okutomi (2013).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Stack
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["CLEAN_BELOW", "estimate_noise", "noise_level", "noise_to_remove"]

#: Estimates below this many grey levels count as a clean picture: there texture and rounding
#: cannot be told from noise, and restoring would cost more detail than noise.
CLEAN_BELOW = 1.5

_SIDE = 7
_MOST_PATCHES = 60_000
_FEWEST_PATCHES = 4 * _SIDE**2
_ROUNDS = 5
#: Share of pure-noise patches that may be taken for texture.
_FALSE_ALARMS = 1e-2


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
    patches = _sample(picture)
    if len(patches) < _FEWEST_PATCHES:
        return 0.0
    energy_form, shape, scale = _gradient_energy()
    energy = np.einsum("pi,pi->p", patches @ energy_form, patches)
    # Where a gamma variable of this shape and scale is exceeded with probability _FALSE_ALARMS.
    from scipy.special import gammainccinv

    limit = scale * float(gammainccinv(shape, _FALSE_ALARMS))
    variance = _least_variance(patches)
    for _ in range(_ROUNDS):
        kept = patches[energy <= limit * variance]
        if len(kept) < _FEWEST_PATCHES:
            break
        variance = _least_variance(kept)
    return float(np.sqrt(variance))


def _frame_level(stack: Stack, index: int) -> float:
    """Noise level of one frame: the root mean square over its channels."""
    levels = stack.to_levels(stack[index])
    planes = [levels[..., c] for c in range(3)] if stack.is_colour else [levels]
    return float(np.sqrt(np.mean([noise_level(plane) ** 2 for plane in planes])))


def _sample(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Take patches evenly over the picture, one a row, leaving clipped ones out."""
    if min(picture.shape) < _SIDE:
        return np.empty((0, _SIDE**2), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(picture, (_SIDE, _SIDE))
    stride = int(np.ceil(np.sqrt(windows.shape[0] * windows.shape[1] / _MOST_PATCHES)))
    patches = windows[::stride, ::stride].reshape(-1, _SIDE**2)
    # Black and white clip the noise away: such patches would pass for noise-free flat ones.
    # (Scaling a native white to 255 leaves it a rounding away.)
    clipped = ((np.abs(patches) < 1e-3) | (np.abs(patches - 255.0) < 1e-3)).any(axis=1)
    kept = patches[~clipped]
    return kept if len(kept) >= _FEWEST_PATCHES else patches


def _least_variance(patches: NDArray[np.float32]) -> float:
    """Smallest eigenvalue of the covariance, corrected for its downward bias in small samples.

    With p directions and N samples of pure noise the smallest eigenvalue is near
    σ² (1 − √(p/N))² (Marchenko-Pastur).
    """
    centred = patches - patches.mean(axis=0)
    covariance = (centred.T @ centred).astype(np.float64) / (len(patches) - 1)
    smallest = max(float(np.linalg.eigvalsh(covariance)[0]), 0.0)
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
