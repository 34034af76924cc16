"""The result `Depth`, and how to show it: as a 16-bit picture, in colours, as a point cloud."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images import Levels

Picture = NDArray[np.uint8]

#: Every fifth of 256 colours, RGB: from a dark violet over blue, teal and green to a light yellow.
#: In CIE Lab their lightness grows evenly from 14 to 94, so that equal steps of depth look equal,
#: also printed in grey and to the colour-blind; the hue turns one way, and the chroma is nearly as
#: large as sRGB holds.
_COLOURS = bytes.fromhex(
    "3a0d4e381553351d5833235c31295f2f2e622e34642d39662c3e682b426b2a476e294b71295073285576255979235e"
    "7b21637d21687f226c802471812775822c7a82317e823782823d8782438b81488f804d948052987f579d7e5da17c62"
    "a67967aa756caf7071b46a77b8637fbc5c89c05493c44c9cc746a6cb41b2cd46bdd04dc9d257d3d563dcd76fe3db7c"
    "e9de88eee295f3e6a2f8eaaefdeeb4"
)

#: Longer side of a picture in colours.
_LARGEST = 1600


@dataclass(frozen=True, kw_only=True)
class Depth:
    """Where along the stack every pixel is in focus.

    Attributes
    ----------
    position
        In frames, from 0 (in focus in the first) to K − 1 (in the last), with fractions, float32 of
        shape (H, W). Always finite: places without a clear peak are filled from those around.
    confidence
        How clear the peak of sharpness is, 0 (the position was filled in) to 1: a single one, more
        than noise explains, and not the defocused trace of an outline nearby.
    frames
        Number K of frames.
    z_step
        Distance between the focus planes of neighbouring frames, in any unit, negative where later
        frames are focused nearer; None if not known.
    """

    position: Levels
    confidence: Levels
    frames: int
    z_step: float | None = None

    @property
    def z(self) -> Levels:
        """Distance from the first focus plane, in the unit of ``z_step``."""
        if self.z_step is None:
            raise CofuseError(
                "the distance of focus planes is not known; pass z_step to estimate_depth"
            )
        return self.position * np.float32(self.z_step)


def depth_picture(depth: Depth) -> NDArray[np.uint16]:
    """Scale the positions to 16 bits: ``value = position / (K − 1) * 65535``."""
    scale = np.float32(65535.0 / max(depth.frames - 1, 1))
    return np.asarray(np.rint(np.clip(depth.position * scale, 0.0, 65535.0)), np.uint16)


@cache
def colour_table(size: int = 256) -> Picture:
    """Make the colours of depth, dark to light, shape (size, 3)."""
    colours = np.frombuffer(_COLOURS, np.uint8).reshape(-1, 3)
    known, wanted = np.arange(len(colours)), np.linspace(0, len(colours) - 1, size)
    planes = [np.interp(wanted, known, plane) for plane in colours.T]
    return np.asarray(np.rint(np.stack(planes, axis=1)), np.uint8)


def depth_preview(position: NDArray[Any], frames: int, z_step: float | None = None) -> Picture:
    """Show positions among frames in colours with a legend at their side, the first frame dark.

    The longer side, without the legend, becomes at most `_LARGEST` pixels. With ``z_step``, then in
    micrometres, the legend also shows physical depth.
    """
    from PIL import Image, ImageDraw  # takes a while to load

    steps = np.rint(position * np.float32(255.0 / max(frames - 1, 1)))
    colours = Image.fromarray(colour_table()[steps.astype(np.uint8)])
    colours.thumbnail((_LARGEST, _LARGEST), Image.Resampling.BOX)
    width, height = colours.size
    size = int(np.clip(height // 28, 11, 22))
    bar = Image.fromarray(colour_table()[::-1, None]).resize(
        (size, max(height - 4 * size, 2)), Image.Resampling.BILINEAR
    )
    canvas = Image.new("RGB", (width + (8 if z_step is None else 13) * size, height), "white")
    canvas.paste(colours, (0, 0))
    draw = ImageDraw.Draw(canvas)
    left, top = width + size, (height - bar.height) // 2
    canvas.paste(bar, (left, top))
    draw.text((left, max(top - 1.6 * size, 0)), "frame", fill="black", font_size=size)
    for number in _labels(frames, bar.height // (2 * size)):
        y = top + (bar.height - 1) * (1.0 - number / max(frames - 1, 1))
        text = f"{number + 1}"
        if z_step is not None:
            text += f"   {number * z_step + 0.0:.4g} um"  # Pillow's own font has no µ
        draw.line((left + size, y, left + 1.4 * size, y), fill="black")
        draw.text((left + 1.7 * size, y), text, fill="black", anchor="lm", font_size=size)
    return np.asarray(canvas)


def _labels(frames: int, most: int) -> list[int]:
    """Choose the frame indices to label: both ends, and about ``most`` round numbers between."""
    steps = (step * 10**power for power in count() for step in (1, 2, 5))
    step = next(s for s in steps if (frames - 1) / s < max(most, 2))
    inner = [n - 1 for n in range(step, frames, step) if n > 1 and frames - n >= step / 2]
    return sorted({0, *inner, frames - 1})


def ply_chunks(
    depth: Depth,
    colours: NDArray[Any],
    *,
    white: float,
    pixel_size: float = 1.0,
    most_points: int = 2_000_000,
) -> Iterator[bytes]:
    """Yield a binary PLY file of points with colours, which 3-D programs open, in pieces.

    x points right, y up and z towards the first frame's side, so that a viewer shows the picture
    the right way round. The first focus plane is at z = 0. Where ``depth.z_step`` is not known, all
    frames together are as deep as a quarter of the picture's longer side.

    Parameters
    ----------
    depth, colours
        The positions, and a grey or RGB picture of the same size.
    white
        Value of the picture that stands for white.
    pixel_size
        Distance between neighbouring pixels, in the unit of ``depth.z_step``.
    most_points
        Of pictures with more pixels every second, third … row and column is taken.
    """
    height, width = depth.position.shape
    z_step = depth.z_step
    if z_step is None:
        z_step = 0.25 * max(height, width) * pixel_size / max(depth.frames - 1, 1)
    step = next(s for s in count(1) if -(-height // s) * -(-width // s) <= most_points)
    x, y = np.arange(0, width, step), np.arange(height - 1, -1, -step)
    yield "\n".join(
        [
            "ply",
            "format binary_little_endian 1.0",
            "comment cofuse",
            f"element vertex {x.size * y.size}",
            *(f"property float {axis}" for axis in "xyz"),
            *(f"property uchar {tone}" for tone in ("red", "green", "blue")),
            "end_header\n",
        ]
    ).encode("ascii")
    for start in range(0, len(y), 128):
        rows = y[start : start + 128]
        position, shades = (plane[height - 1 - rows, ::step] for plane in (depth.position, colours))
        points = np.empty(position.shape, [("xyz", "<f4", 3), ("rgb", "u1", 3)])
        points["xyz"][..., 0] = x * pixel_size
        points["xyz"][..., 1] = rows[:, None] * pixel_size
        points["xyz"][..., 2] = -position * np.float32(z_step)
        tones = np.rint(np.clip(shades * (255.0 / white), 0.0, 255.0))
        points["rgb"] = tones.reshape(*position.shape, -1)
        yield points.tobytes()
