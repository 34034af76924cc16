"""Depth in colours, with a legend: 8-bit RGB to look at."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cofuse.depth.maps import Depth

__all__ = ["colour_table", "depth_colours", "depth_preview"]

Picture = NDArray[np.uint8]
Floats = NDArray[np.float64]

#: CIE L*, hue in degrees and chroma at even steps of the table: from a dark violet over blue,
#: teal and green to a light yellow, the hue turning one way and every chroma inside sRGB.
_LIGHTNESS = (14.0, 94.0)
_HUES = (318.0, 292.0, 262.0, 222.0, 180.0, 148.0, 122.0, 104.0, 96.0)
_CHROMA = 0.88

#: CIE XYZ of linear sRGB, white D65.
_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_LARGEST = 1600


@cache
def colour_table(count: int = 256) -> Picture:
    """Make the colours of depth, dark to light, shape (count, 3).

    In CIE Lab the lightness grows evenly, so that equal steps of depth look equal, also printed in
    grey and to the colour-blind; the hue turns one way. The chroma is as large as sRGB holds at
    every lightness and hue, less a margin, smoothed along the table.
    """
    t = np.linspace(0.0, 1.0, count)
    lightness = _LIGHTNESS[0] + (_LIGHTNESS[1] - _LIGHTNESS[0]) * t
    hue = np.radians(np.interp(t, np.linspace(0.0, 1.0, len(_HUES)), _HUES))
    low, high = np.zeros(count), np.full(count, 150.0)
    for _ in range(20):
        middle = (low + high) / 2.0
        linear = _linear_rgb(lightness, middle, hue)
        inside = ((linear >= 0.0) & (linear <= 1.0)).all(axis=1)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    # The lowest chroma near every place first: its mean then stays within what sRGB holds.
    reach = max(count // 10, 1)
    padded = np.pad(low, reach, mode="edge")
    least = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).min(axis=1)
    padded = np.pad(least, reach, mode="edge")
    chroma = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).mean(axis=1)
    linear = np.clip(_linear_rgb(lightness, _CHROMA * chroma, hue), 0.0, 1.0)
    gamma = 1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    table = np.where(linear <= 0.0031308, 12.92 * linear, gamma)
    return np.asarray(np.rint(255.0 * table), np.uint8)


def depth_colours(depth: Depth) -> Picture:
    """Colour every pixel by its position, the first frame dark and the last one light."""
    table = colour_table()
    steps = depth.position * np.float32((len(table) - 1) / max(depth.frames - 1, 1))
    return np.asarray(table[np.rint(steps).astype(np.uint8)])


def depth_preview(depth: Depth, *, largest: int = _LARGEST, unit: str = "") -> Picture:
    """Show the depth in colours with a legend at its side.

    Parameters
    ----------
    depth
        What to show.
    largest
        Longer side of the depth in the preview, in pixels; a smaller one is not enlarged.
    unit
        Name of the unit of ``depth.z_step``; the legend then also tells physical depth.
    """
    from PIL import Image, ImageDraw, ImageFont

    colours = Image.fromarray(depth_colours(depth))
    colours.thumbnail((largest, largest), Image.Resampling.BOX)
    width, height = colours.size
    size = int(np.clip(height // 28, 11, 22))
    bar = Image.fromarray(colour_table()[::-1, None]).resize(
        (size, max(height - 4 * size, 2)), Image.Resampling.BILINEAR
    )
    font = ImageFont.load_default(size=size)
    canvas = Image.new("RGB", (width + (8 if depth.z_step is None else 13) * size, height), "white")
    canvas.paste(colours, (0, 0))
    draw = ImageDraw.Draw(canvas)
    left, top = width + size, (height - bar.height) // 2
    canvas.paste(bar, (left, top))
    draw.text((left, max(top - 1.6 * size, 0)), "frame", fill="black", font=font)
    for number in _labels(depth.frames, bar.height // (2 * size)):
        y = top + (bar.height - 1) * (1.0 - number / max(depth.frames - 1, 1))
        text = f"{number + 1}"
        if depth.z_step is not None:
            # Pillow's own font has no µ.
            name = unit.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
            text += f"   {number * depth.z_step + 0.0:.4g} {name}"
        draw.line((left + size, y, left + 1.4 * size, y), fill="black")
        draw.text((left + 1.7 * size, y), text, fill="black", font=font, anchor="lm")
    return np.asarray(canvas)


def _labels(frames: int, most: int) -> list[int]:
    """Choose round steps among frame indices such that few enough numbers result."""
    if frames == 1:
        return [0]
    steps = (step * 10**power for power in range(4) for step in (1, 2, 5))
    step = next((s for s in steps if (frames - 1) / s < max(most, 2)), frames - 1)
    inner = [n - 1 for n in range(step, frames, step) if n > 1 and frames - n >= step / 2]
    return sorted({0, *inner, frames - 1})


def _linear_rgb(lightness: Floats, chroma: Floats, hue: Floats) -> Floats:
    """Turn CIE LCh into linear sRGB, shape (N, 3)."""
    base = (lightness + 16.0) / 116.0
    cubes = np.stack(
        [base + chroma * np.cos(hue) / 500.0, base, base - chroma * np.sin(hue) / 200.0], axis=1
    )
    xyz = np.where(cubes > 6 / 29, cubes**3, 3 * (6 / 29) ** 2 * (cubes - 4 / 29))
    return np.asarray(xyz * _XYZ.sum(axis=1) @ np.linalg.inv(_XYZ).T)
