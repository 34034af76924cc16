"""Colours as a browser shows them: 8 bits a channel of sRGB, whatever the frames' profile is."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shown = NDArray[np.uint8]


def eight_bits(values: NDArray[Any], white: float) -> Shown:
    """Scale values from 0 to ``white`` to 8 bits; those beyond are clipped."""
    if values.dtype == np.uint8 and white == 255:
        return np.array(values)
    return np.rint(np.clip(values * np.float32(255 / white), 0, 255)).astype(np.uint8)


@lru_cache(maxsize=16)
def to_srgb(profile: bytes | None) -> Callable[[Shown], Shown]:
    """Return what turns 8-bit pictures, grey or RGB, from a colour profile into sRGB.

    Without a profile, or with one that cannot be used, they stay as they are.
    """
    from PIL import Image, ImageCms

    if profile is None:
        return _unchanged
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = {"RGB": "RGB", "GRAY": "L"}[given.profile.xcolor_space.strip()]
        change = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, KeyError, OSError):
        return _unchanged

    def converted(pixels: Shown) -> Shown:
        if (pixels.ndim == 3) != (mode == "RGB"):
            return pixels
        shown = ImageCms.applyTransform(Image.fromarray(np.ascontiguousarray(pixels)), change)
        colours: Shown = np.asarray(shown)
        return colours if pixels.ndim == 3 else np.ascontiguousarray(colours[..., 0])

    steps = np.arange(0, 256, 15).astype(np.uint8)
    lattice = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, steps.size, 3)
    sample = lattice if mode == "RGB" else steps[None]
    moved = np.abs(converted(sample).astype(int) - sample).max()
    return converted if moved > 1 else _unchanged  # most profiles are sRGB under another name


def _unchanged(pixels: Shown) -> Shown:
    return pixels
