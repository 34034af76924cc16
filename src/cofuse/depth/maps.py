"""The noun `Depth`, and how to look at it: as 16 bits, in colours, as points in space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images.values import white_of_type

Levels = NDArray[np.float32]
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

#: Rows of points made at a time.
_ROWS = 128
_AXES, _TONES = ("x", "y", "z"), ("red", "green", "blue")


@dataclass(frozen=True)
class Depth:
    """Where along the stack every pixel is in focus.

    Attributes
    ----------
    position
        In frames, from 0 (in focus in the first) to K − 1 (in the last), with fractions, float32 of
        shape (H, W). Always finite: places without a focus of their own take their neighbours'.
    confidence
        How far the place's own frames told its position: 0 not at all (it was filled in), 1 by one
        clear peak.
    evidence
        Whether the frames differ here in detail by more than noise, 0 to 1. Where there is none,
        nothing is in focus or there is nothing to focus on. The confidence asks for more: one
        peak, and not a trace of some outline nearby.
    frames
        Number K of frames.
    z_step
        Distance between the focus planes of neighbouring frames, in any unit, negative where later
        frames are focused nearer; None if not known.
    """

    position: Levels
    confidence: Levels
    evidence: Levels
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
    """Spread the positions over 16 bits: the first frame is 0, the last one 65535.

    The range is that of the frames and not of the values found, so that pictures of one stack can
    be compared: ``position = value / 65535 * (K − 1)``.
    """
    scale = np.float32(65535.0 / max(depth.frames - 1, 1))
    return np.asarray(np.rint(np.clip(depth.position * scale, 0.0, 65535.0)), np.uint16)


@cache
def colour_table(count: int = 256) -> Picture:
    """Make the colours of depth, dark to light, shape (count, 3)."""
    colours = np.frombuffer(_COLOURS, np.uint8).reshape(-1, 3)
    known, wanted = np.arange(len(colours)), np.linspace(0, len(colours) - 1, count)
    planes = [np.interp(wanted, known, plane) for plane in colours.T]
    return np.asarray(np.rint(np.stack(planes, axis=1)), np.uint8)


def depth_colours(depth: Depth) -> Picture:
    """Colour every pixel by its position, the first frame dark and the last one light."""
    steps = depth.position * np.float32(255.0 / max(depth.frames - 1, 1))
    return np.asarray(colour_table()[np.rint(steps).astype(np.uint8)])


def depth_preview(depth: Depth, *, largest: int = 1600, unit: str = "") -> Picture:
    """Show the depth in colours with a legend at its side.

    Its longer side becomes at most ``largest`` pixels. With ``depth.z_step`` the legend also tells
    physical depth, in ``unit``.
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


def ply_chunks(
    depth: Depth,
    colours: NDArray[Any],
    *,
    white: float | None = None,
    pixel_size: float = 1.0,
    most_points: int = 2_000_000,
    least_confidence: float = 0.0,
) -> Iterator[bytes]:
    """Yield a binary PLY file of points with colours, which any 3-D program opens, in pieces.

    x points right, y up and z towards the first frame's side, so that the points show the picture
    the right way round in a viewer. The first focus plane is at z = 0. Where ``depth.z_step`` is
    not known all frames together are as deep as a quarter of the picture's longer side.

    Parameters
    ----------
    depth, colours
        The positions, and a grey or RGB picture of the same size.
    white
        Value of the picture that stands for white; by default the largest of its dtype, or 1.0.
    pixel_size
        Distance between neighbouring pixels, in the unit of ``depth.z_step``.
    most_points
        Of pictures with more pixels every second, third … row and column is taken.
    least_confidence
        Points of less confidence are left out.
    """
    height, width = depth.position.shape
    if colours.shape not in ((height, width), (height, width, 3)):
        raise CofuseError(
            f"the colours have shape {colours.shape} but the depth {depth.position.shape}; "
            "they must be of the same size"
        )
    if most_points < 1:
        raise CofuseError(f"most_points is {most_points}; expected at least 1")
    z_step = depth.z_step
    if z_step is None:
        z_step = 0.25 * max(height, width) * pixel_size / max(depth.frames - 1, 1)
    step = 1
    while -(-height // step) * -(-width // step) > most_points:
        step += 1
    sure = depth.confidence[::step, ::step] >= np.float32(least_confidence)
    properties = [*(f"float {axis}" for axis in _AXES), *(f"uchar {tone}" for tone in _TONES)]
    lines = ["ply", "format binary_little_endian 1.0", "comment cofuse"]
    lines += [f"element vertex {int(sure.sum())}", *(f"property {text}" for text in properties)]
    yield "\n".join([*lines, "end_header\n"]).encode("ascii")
    scale = 255.0 / (white_of_type(colours.dtype) if white is None else white)
    point = np.dtype([*((axis, "<f4") for axis in _AXES), *((tone, "u1") for tone in _TONES)])
    for start in range(0, len(sure), _ROWS):
        rows, columns = np.nonzero(sure[start : start + _ROWS])
        rows, columns = (rows + start) * step, columns * step
        points = np.empty(len(rows), point)
        points["x"] = columns * pixel_size
        points["y"] = (height - 1 - rows) * pixel_size
        points["z"] = -depth.position[rows, columns] * np.float32(z_step)
        tones = np.rint(np.clip(colours[rows, columns] * scale, 0.0, 255.0)).astype(np.uint8)
        for channel, name in enumerate(_TONES):
            points[name] = tones[:, channel] if tones.ndim == 2 else tones
        yield points.tobytes()
