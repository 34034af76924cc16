"""Patches of a picture: where they lie, taking them out, and averaging them back.

Patches start at rows (and columns) 0, s, 2s, … for a stride s, plus the last place that fits, so
that every pixel is covered and no border has to be invented.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError

Array = NDArray[Any]
Positions = tuple[NDArray[np.intp], NDArray[np.intp]]


def patch_positions(shape: tuple[int, ...], patch_size: int, stride: int) -> Positions:
    """Rows and columns at which the patches of a picture start."""
    if not 1 <= stride <= patch_size:
        raise CofuseError(
            f"the stride is {stride}; expected 1 to {patch_size}, the side of a patch, so that "
            "every pixel is covered"
        )
    if min(shape[:2]) < patch_size:
        raise CofuseError(
            f"a picture of {shape[1]}x{shape[0]} pixels is smaller than a patch of "
            f"{patch_size}x{patch_size}; use smaller patches, as another operator has"
        )
    ys, xs = (
        np.unique(np.append(np.arange(0, side - patch_size + 1, stride), side - patch_size))
        for side in shape[:2]
    )
    return ys, xs


def take_patches(image: Array, patch_size: int, positions: Positions) -> Array:
    """Copy patches of a grey picture into columns, shape (n², patch rows · patch columns)."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (patch_size, patch_size))
    return windows[np.ix_(*positions)].reshape(-1, patch_size**2).T


def add_patches(patches: Array, shape: tuple[int, int], positions: Positions) -> Array:
    """Add patches from columns to an empty picture: the adjoint of `take_patches`."""
    n = round(len(patches) ** 0.5)
    ys, xs = positions
    offsets = patches.reshape(n, n, len(ys), len(xs))
    image = np.zeros(shape, dtype=patches.dtype)
    for dy in range(n):
        for dx in range(n):
            # The positions of one offset are distinct, so plain fancy addition loses nothing.
            image[np.ix_(ys + dy, xs + dx)] += offsets[dy, dx]
    return image


def average_patches(patches: Array, shape: tuple[int, int], positions: Positions) -> Array:
    """Put overlapping patches together; a pixel gets the mean of all patches that cover it."""
    ones = np.broadcast_to(patches.dtype.type(1), patches.shape)
    sums, counts = (add_patches(values, shape, positions) for values in (patches, ones))
    return np.asarray(sums / counts)
