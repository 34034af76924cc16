"""Running the joint model: frames and their noise in, choice of frame and restored picture out.

Pictures of any size are worked through in tiles that overlap by as much as the model looks
around, so that the tiles do not show: every pixel is what it would be in one piece. How large they
are depends neither on how much memory there is nor on the number of frames; only whether what
frames have in a tile is kept in memory does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from cofuse.errors import CofuseError
from cofuse.joint import BANDS, JointModel
from cofuse.joint_tiles import JointResult, PlaneReader, TileWork, spans_of
from cofuse.noise.law import BANDS as NOISE_BANDS
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = [
    "JointResult",
    "PlaneReader",
    "fuse_planes",
    "fuse_tiles",
    "tile_bytes",
    "tile_side",
]

#: Working memory that tiles are made for, less what is kept of every frame.
_WORKING_BYTES = 400 << 20
#: Bytes of it a pixel that the weigher looks at, a pixel that is mixed and restored, and more of
#: these for every plane.
_LOOKED_BYTES, _MADE_BYTES, _MADE_BYTES_A_PLANE = 62, 256, 40
#: Pixels that the stages and the second weighing look around a tile, and the weigher around those.
_STAGES_REACH, _WEIGHER_REACH = 92, 207


def fuse_planes(
    model: JointModel,
    frames: Sequence[PlaneReader],
    shape: tuple[int, int],
    noise: ArrayLike,
    *,
    restore: bool = True,
    weights: Literal["all", "chosen"] = "all",
    tile: int | None = None,
    progress: ProgressCallback = silent,
) -> JointResult:
    """Fuse frames given by planes, and return all of the result at once; see `fuse_tiles`."""
    planes = np.shape(noise)[1] if np.ndim(noise) > 1 else 1
    index = np.empty(shape, np.uint8 if len(frames) <= 256 else np.uint16)
    confidence = np.empty(shape, np.float32)
    mixed = np.empty((*shape, planes), np.float32)
    restored = np.empty_like(mixed) if restore else None
    tiles = fuse_tiles(
        model,
        frames,
        shape,
        noise,
        restore=restore,
        weights=weights,
        tile=tile,
        progress=progress,
    )
    for here, part in tiles:
        index[here], confidence[here], mixed[here] = part.index, part.confidence, part.mixed
        if restored is not None:
            restored[here] = part.restored
    return JointResult(index, confidence, mixed, restored)


def fuse_tiles(
    model: JointModel,
    frames: Sequence[PlaneReader],
    shape: tuple[int, int],
    noise: ArrayLike,
    *,
    restore: bool = True,
    weights: Literal["all", "chosen"] = "all",
    looks: Sequence[PlaneReader] | None = None,
    tile: int | None = None,
    keep_planes: bool = True,
    keep_scores: bool = True,
    progress: ProgressCallback = silent,
) -> Iterator[tuple[tuple[slice, slice], JointResult]]:
    """Fuse frames given by planes: grey, or luminance and two chrominances (`to_opponent`).

    The frames are weighed by their first plane, and all planes mixed with its weights. Each plane
    is restored by itself, guided by what the first one showed. The result comes tile by tile, each
    with its rows and columns.

    Parameters
    ----------
    model
        The model to fuse with.
    frames
        One reader a frame; called once for every tile, or a few times where its planes are not
        kept.
    shape
        Rows and columns of the frames.
    noise
        Noise level of every band of every plane of every frame in grey levels, as in a `NoiseLaw`:
        shape (frames, planes, bands), or (frames, planes) of white noise.
    restore
        Whether to restore the mixture; without it only choice and mixture are made.
    weights
        "chosen" takes every pixel from the one frame with the best score instead of mixing all,
        and weighs the frames only once.
    looks
        Readers of no more than the first plane of every frame, which the model looks at far around
        a tile; by default ``frames`` read all planes as far.
    tile
        Side of the tiles in pixels. Default: as large as some hundred megabytes allow.
    keep_planes, keep_scores
        Whether to keep what every frame has in a tile in memory: its planes, which are otherwise
        read again, and its scores, which otherwise go to a temporary file. See `tile_bytes`.
    progress
        Called after every tile.
    """
    levels = np.array(noise, np.float64)
    shapes = [(len(frames), planes, *last) for planes in (1, 3) for last in ((), (NOISE_BANDS,))]
    if levels.shape not in shapes:
        raise CofuseError(
            f"noise has shape {levels.shape}; expected one row for each of {len(frames)} frames, "
            f"a column for each plane, 1 or 3, and {NOISE_BANDS} bands where they differ"
        )
    if not (np.isfinite(levels) & (levels >= 0)).all() or min(shape) < 1:
        raise CofuseError("noise levels must be numbers from 0 on, and pictures not empty")
    if tile is not None and tile < 1:
        raise CofuseError(f"tile is {tile}; expected a number of pixels")
    if weights not in ("all", "chosen"):
        raise CofuseError(f"weights are {weights!r}; expected 'all' or 'chosen'")
    work = TileWork(
        model,
        frames,
        shape,
        levels,
        restore=restore,
        weigh_all=weights == "all",
        keep_planes=keep_planes,
        keep_scores=keep_scores,
        looks=looks,
    )
    side = tile or tile_side(levels.shape[1], restore)
    tiles = list(itertools.product(*(spans_of(length, side) for length in shape)))
    for done, (rows, columns) in enumerate(tiles, start=1):
        yield (slice(*rows), slice(*columns)), work.piece(rows, columns)
        progress(Progress("fusion" if restore else "choice", done, len(tiles)))


def tile_side(planes: int, restore: bool) -> int:
    """Largest side of tiles whose working memory, less what is kept of frames, has a limit."""
    side = 4096
    while _tile_bytes((side, side), (1 << 20, 1 << 20), planes, restore)[0] > _WORKING_BYTES:
        side -= 32
    return side


def tile_bytes(shape: tuple[int, int], planes: int, restore: bool) -> tuple[int, int, int]:
    """Memory that a picture's tile takes: in any case, and for each frame's planes and scores."""
    side = tile_side(planes, restore)
    height, width = (max(b - a for a, b in spans_of(length, side)) for length in shape)
    return _tile_bytes((height, width), shape, planes, restore)


def _tile_bytes(
    tile: tuple[int, int], shape: tuple[int, int], planes: int, restore: bool
) -> tuple[int, int, int]:
    around = _STAGES_REACH * restore
    made = math.prod(min(n + 2 * around, m) for n, m in zip(tile, shape, strict=True))
    around += _WEIGHER_REACH
    looked = math.prod(min(n + 2 * around, m) for n, m in zip(tile, shape, strict=True))
    working = _LOOKED_BYTES * looked + (_MADE_BYTES + _MADE_BYTES_A_PLANE * planes) * made
    return working, 4 * looked + 4 * (planes - 1) * made, 4 * (1 + BANDS) * made * restore
