"""The depth as points in space: binary PLY, which any 3-D program opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.depth.maps import Depth
from cofuse.errors import CofuseError

__all__ = ["ply_chunks"]

#: Rows of points made at a time.
_ROWS = 128
_POINT = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("red", "u1"), ("green", "u1"), ("blue", "u1")]
)


def ply_chunks(
    depth: Depth,
    colours: NDArray[Any],
    *,
    white: float | None = None,
    pixel_size: float = 1.0,
    z_scale: float | None = None,
    most_points: int = 2_000_000,
    least_confidence: float = 0.0,
) -> Iterator[bytes]:
    """Yield a binary PLY file of points with colours, piece by piece.

    x points right, y up and z towards the first frame's side, so that the points show the picture
    the right way round in a viewer. The first focus plane is at z = 0.

    Parameters
    ----------
    depth, colours
        The positions, and a grey or RGB picture of the same size.
    white
        Value of the picture that stands for white; by default the largest of its dtype, or 1.0.
    pixel_size, z_scale
        Distance between neighbouring pixels and between neighbouring frames, in one unit. Default
        of the second: ``depth.z_step``, or else such that all frames together are as deep as a
        quarter of the picture's longer side.
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
    if z_scale is None:
        z_scale = depth.z_step
    if z_scale is None:
        z_scale = 0.25 * max(height, width) * pixel_size / max(depth.frames - 1, 1)
    if white is None:
        white = float(np.iinfo(colours.dtype).max) if colours.dtype.kind == "u" else 1.0
    step = 1
    while -(-height // step) * -(-width // step) > most_points:
        step += 1
    sure = depth.confidence[::step, ::step] >= np.float32(least_confidence)
    properties = "".join(f"property float {axis}\n" for axis in "xyz")
    properties += "".join(f"property uchar {name}\n" for name in ("red", "green", "blue"))
    yield (
        "ply\nformat binary_little_endian 1.0\ncomment cofuse\n"
        f"element vertex {int(sure.sum())}\n{properties}end_header\n"
    ).encode("ascii")
    for start in range(0, len(sure), _ROWS):
        rows, columns = np.nonzero(sure[start : start + _ROWS])
        rows, columns = (rows + start) * step, columns * step
        points = np.empty(len(rows), _POINT)
        points["x"] = columns * pixel_size
        points["y"] = (height - 1 - rows) * pixel_size
        points["z"] = -depth.position[rows, columns] * np.float32(z_scale)
        taken = np.clip(colours[rows, columns] * (255.0 / white), 0.0, 255.0)
        tones = np.rint(taken).astype(np.uint8)
        for channel, name in enumerate(("red", "green", "blue")):
            points[name] = tones[:, channel] if tones.ndim == 2 else tones
        yield points.tobytes()
