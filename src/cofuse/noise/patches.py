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

from cofuse.images import PartReader

__all__ = [
    "noise_by_brightness",
    "noise_level",
    "patch_noise_level",
    "read_patches",
    "sample_patches",
    "unclipped",
]

_SIDE = 7
_MOST_PATCHES = 60_000
_FEWEST_PATCHES = 4 * _SIDE**2
_ROUNDS = 5
#: Gradient energy, as a multiple of the noise variance, that one patch in a hundred of pure noise
#: exceeds: of the gamma law with the mean and the variance that `_gradient_energy` has of it. A
#: constant, like the next, because the library that computes it takes long to load.
_NOISE_ENERGY = 229.7270137851659

#: Grey levels that count as one brightness, and patches below which nothing is measured in it.
_BIN = 16.0
_FEWEST_IN_BIN = 100
#: Directions taken as empty, of 49, and the quantile of the energy in them.
_EMPTY = 12
_QUANTILE = 0.25
#: That quantile of the energy of unit white noise, a χ² of so many degrees of freedom.
_UNIT_ENERGY = 8.438418766135793


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
    if len(patches) < _FEWEST_PATCHES:
        return np.empty((0, 3))
    texture, brightness = _texture(patches), patches.mean(axis=1)
    detail = patches - brightness[:, None]
    # The first direction is the mean, which was taken out.
    empty = np.linalg.eigh(_covariance(detail))[1][:, 1 : _EMPTY + 1].astype(np.float32)
    energy = np.square(detail @ empty).sum(axis=1)
    bins = np.floor(brightness / _BIN)
    rows = []
    for index in np.unique(bins):
        here = bins == index
        kept = energy[here]
        for _ in range(_ROUNDS):
            variance = np.quantile(kept, _QUANTILE) / _UNIT_ENERGY
            kept = energy[here][texture[here] <= variance]
            if len(kept) < _FEWEST_IN_BIN:
                break
        else:
            rows.append((brightness[here].mean(), variance, len(kept)))
    return np.array(rows, np.float64).reshape(-1, 3)


def sample_patches(frame: NDArray[Any], most: int = _MOST_PATCHES) -> NDArray[Any]:
    """Take patches evenly over a frame: shape (N, 49), or (N, 49, 3) of an RGB frame."""
    return read_patches(lambda rows, columns: frame[rows, columns], frame.shape, most)


def read_patches(read: PartReader, shape: tuple[int, ...], most: int) -> NDArray[Any]:
    """Take patches as `sample_patches` does, of a frame of which only their rows are read."""
    down, along = shape[0] - _SIDE + 1, shape[1] - _SIDE + 1
    if min(down, along) < 1:
        return read(slice(0, 0), slice(None)).reshape(0, _SIDE**2, *shape[2:])
    stride = int(np.ceil(np.sqrt(down * along / most)))
    taken = []
    for top in range(0, down, stride):
        rows = read(slice(top, top + _SIDE), slice(None))
        windows = np.lib.stride_tricks.sliding_window_view(rows, _SIDE, axis=1)[:, ::stride]
        # (row, place, channels…, column) to (place, row, column, channels…)
        windows = np.moveaxis(np.moveaxis(windows, -1, 2), 1, 0)
        taken.append(windows.reshape(len(windows), _SIDE**2, *shape[2:]))
    return np.concatenate(taken)


def unclipped(patches: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell the patches without a black or white value, or take all if hardly any is.

    Black and white clip the noise away: such patches would pass for noise-free flat ones.
    """
    # Scaling a native white to 255 leaves it a rounding away.
    clipped = (np.abs(patches) < 1e-3) | (np.abs(patches - 255.0) < 1e-3)
    kept = ~clipped.any(axis=tuple(range(1, patches.ndim)))
    return kept if kept.sum() >= _FEWEST_PATCHES else np.ones_like(kept)


def _texture(patches: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give the noise variance from which on a patch's gradient energy may be all noise."""
    energy = np.einsum("pi,pi->p", patches @ _gradient_energy(), patches)
    return np.asarray(energy / np.float32(_NOISE_ENERGY))


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
def _gradient_energy() -> NDArray[np.float32]:
    """Return the form G with xᵀGx the gradient energy of a patch.

    For unit white noise xᵀGx has mean tr G and variance 2 tr G².
    """
    step = (np.eye(_SIDE, k=2) - np.eye(_SIDE))[:-2]
    smooth = step.T @ step
    form = np.kron(smooth, np.eye(_SIDE)) + np.kron(np.eye(_SIDE), smooth)
    return form.astype(np.float32)
