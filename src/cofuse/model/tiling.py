"""How a picture is cut up to be weighed and restored: tiles, parts, blocks; and their memory.

All frames of a *tile* are glanced at together. Its *parts* have lists of their own of the frames
that matter, and are looked at closely one by one. *Blocks* of a tile are as large as what lies
between two networks may be without leaving the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from cofuse.images.pixels import MIXED_BANDS, REACH
from cofuse.images.tiles import MULTIPLE, Tile, processors
from cofuse.model.runtime import Planes

#: Halo of a tile in pixels: all that the networks see. The least that was missing would be rounded
#: to other steps now and then, and tiles would not be equal to the whole.
HALO = 112
#: A frame does not matter where its coarse weight is below this share of the largest one.
LEAST_SHARE = 0.03
#: Sides in pixels of the blocks of a tile; the smaller one is for more frames than so many.
_BLOCKS, _MANY_FRAMES = (256, 128), 32
#: Sides of tiles in pixels. Halos of large ones cost least, but the features of all frames of a
#: tile should take no more than so many bytes unless tiles would become smaller than is fair.
_SIDES, _FEATURE_BYTES, _FAIR_SIDE = (2048, 1536, 1024, 768, 512, 256, 128), 320_000_000, 512
LEAST_SIDE = _SIDES[-1]
#: Sides in pixels of the parts of tiles; the smaller one is for tiles below a fair side, or of it,
#: which are for many frames.
_PARTS = 256, 128
#: Bytes for a pixel of a frame in a block: filter responses and what is related; and in a tile:
#: features, beside what is related or, later, scores and context.
_BLOCK_BYTES, _TILE_BYTES = 4 * 33 / 16 + 32 / 16, 32 / 16 + 48 / 64 + 96 / 256 + (4 * 4 + 32) / 16
#: Bytes for a pixel of a tile that all frames have in common; that every thread needs at most for
#: its networks, and for a pixel of a part. The runtime's store, which grows by doubling, holds more
#: than is in use.
_SHARED_BYTES, _THREAD_BYTES, _PART_BYTES = 10, 30, 320

#: The same for tiles that are restored one after the other: halo, all that the network sees, side,
#: and bytes a pixel.
RESTORED_HALO, RESTORED_SIDE, _RESTORED_BYTES = 96, 1088, 250


def tile_sides(frames: int) -> list[int]:
    """Sides of tiles in pixels that suit a number of frames, the best one first."""
    needed = {side: frames * _TILE_BYTES * (side + 2 * HALO) ** 2 for side in _SIDES}
    most = max(_FEATURE_BYTES, needed[_FAIR_SIDE])
    return [side for side, needs in needed.items() if needs <= most]


def part_side(side: int) -> int:
    """Side in pixels of the parts of tiles of a given side."""
    return _PARTS[side <= _FAIR_SIDE]


def working_bytes(shape: tuple[int, int], frames: int, side: int) -> int:
    """Bytes that weighing a tile takes."""
    seen = math.prod(min(side + 2 * HALO, length + 2 * MULTIPLE) for length in shape)
    part = math.prod(min(part_side(side) + 2 * REACH, length + 2 * MULTIPLE) for length in shape)
    block = math.prod(min(block_side(frames), length + 2 * MULTIPLE) for length in shape)
    threads = processors()
    parts = min(threads, (side // part_side(side)) ** 2)  # at work at a time, after the blocks
    at_work = max(parts * part * 4 * (MIXED_BANDS + 9), threads * block * _BLOCK_BYTES)
    every = seen * _TILE_BYTES + at_work
    common = seen * (_SHARED_BYTES + threads * _THREAD_BYTES) + threads * part * _PART_BYTES
    return round(frames * every + common)


def restoring_bytes(shape: tuple[int, int]) -> int:
    """Bytes that restoring a tile takes."""
    return _RESTORED_BYTES * math.prod(min(RESTORED_SIDE + 2 * RESTORED_HALO, n) for n in shape)


def block_side(frames: int) -> int:
    """Side in pixels of the blocks in which so many frames are filtered."""
    return _BLOCKS[frames > _MANY_FRAMES]


def seen_of(tile: Tile, shape: tuple[int, int]) -> Tile:
    """What networks see of a tile, counted from its halo: mirrored beyond the end of the picture.

    Up to a multiple and two more: grey there, though networks count from grey, would be an edge
    stronger than any detail; of small pictures, a row more would change by much what is seen
    beyond the last one.
    """
    rows, columns = (
        slice(0, length + (2 * MULTIPLE + -length % MULTIPLE if around.stop == whole else 0))
        for around, whole in zip(tile.around, shape, strict=True)
        for length in [around.stop - around.start]
    )
    return Tile(rows, columns, rows, columns)


def smaller(where: tuple[slice, slice], factor: int) -> tuple[slice, slice]:
    """Rows and columns where the picture is smaller by a factor."""
    rows, columns = (slice(part.start // factor, part.stop // factor) for part in where)
    return rows, columns


def assembled(seen: Tile, blocks: Sequence[Tile], made: Iterable[list[Planes]]) -> list[Planes]:
    """Put planes together that were made block by block."""
    whole: list[Planes] = []
    for block, parts in zip(blocks, made, strict=True):
        factors = [(block.rows.stop - block.rows.start) // planes.shape[2] for planes in parts]
        if not whole:
            whole = [
                np.empty((1, own.shape[1], *(side.stop // n for side in seen.here)), own.dtype)
                for own, n in zip(parts, factors, strict=True)
            ]
        for own, planes, factor in zip(whole, parts, factors, strict=True):
            own[..., *smaller(block.here, factor)] = planes
    return whole
