"""Training patches: drawn at random from pictures, mean-free and of unit length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_number
from cofuse.errors import CofuseError

#: As many patches of 7 x 7 pixels take half a gigabyte, and a few times that while they are coded.
MOST_PATCHES = 1_000_000

#: Patches with less contrast (standard deviation, in grey levels) are flat: they teach nothing
#: and, brought to unit length, would be mostly quantisation noise.
_LEAST_CONTRAST = 2.0


def sample_patches(
    pictures: Sequence[NDArray[Any]], *, patch_size: int, count: int, seed: int
) -> NDArray[np.float64]:
    """Draw ``count`` normalised patches, shape (n², count), evenly over the area of all pictures.

    Pictures are grey, on the 0-255 scale, at least a patch in size. Flat patches are redrawn.
    """
    if not pictures:
        raise CofuseError("no pictures to learn from were given")
    check_number("patch_size", patch_size, 1, whole=True)
    check_number("seed", seed, 0, whole=True)
    check_number("count", count, 1, MOST_PATCHES, whole=True)
    n = patch_size
    for picture in pictures:
        if min(picture.shape) < n:
            raise CofuseError(
                f"a picture of {picture.shape[1]}x{picture.shape[0]} pixels is smaller than a "
                f"patch of {n}x{n}; leave it out or learn a smaller operator"
            )
    rng = np.random.default_rng(seed)
    places = np.array([(p.shape[0] - n + 1) * (p.shape[1] - n + 1) for p in pictures])
    drawn: list[NDArray[np.float64]] = []
    found = tried = 0
    while found < count:
        tried += 2 * count
        if tried > 100 * count:
            raise CofuseError(
                "the pictures are almost everywhere flat; learning needs pictures with detail"
            )
        chosen = np.bincount(
            rng.choice(len(pictures), size=2 * count, p=places / places.sum()),
            minlength=len(pictures),
        )
        for picture, amount in zip(pictures, chosen, strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(picture, (n, n))
            y = rng.integers(windows.shape[0], size=amount)
            x = rng.integers(windows.shape[1], size=amount)
            patches = windows[y, x].reshape(amount, n * n).T.astype(np.float64)
            patches = patches[:, patches.std(axis=0) >= _LEAST_CONTRAST]
            drawn.append(patches)
            found += patches.shape[1]
    patches = np.concatenate(drawn, axis=1)
    patches = patches[:, rng.permutation(patches.shape[1])[:count]]
    return normalise_patches(patches)


def normalise_patches(patches: NDArray[Any]) -> NDArray[np.float64]:
    """Take the mean off every column and scale it to unit length; flat columns become zero."""
    centred = patches - patches.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=0)
    return np.asarray(centred / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)
