"""Tiles for a device's memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

__all__ = ["free_memory", "pieces", "tile_side"]

#: Bytes a pixel that a tile takes: in any case, for every plane, and for every frame and plane.
_TILE_BYTES, _PLANE_BYTES, _FRAME_BYTES, _FRAME_PLANE_BYTES = 700, 300, 80, 20
#: Share of the free memory that tiles are made for.
_TILE_SHARE = 0.6
#: Smallest side of a tile, and the largest: offsets within its planes must fit 32 bits.
_LEAST_SIDE, _MOST_SIDE = 64, 6144
#: Pixels that the weigher looks around a tile.
_WEIGHER_REACH = 224
#: Where no device tells how much memory is free.
_UNKNOWN_MEMORY = 4 << 30


def free_memory(device: str) -> int:
    """Bytes that are free on a device, those included that torch holds but does not use."""
    if device != "cuda":
        return _UNKNOWN_MEMORY
    held = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0] + held)


def tile_side(shape: tuple[int, int], planes: int, frames: int, margin: int, device: str) -> int:
    """Choose a side of tiles that fit into the memory that is free.

    ``margin`` is what the stages look around a tile.
    """
    pixel = _TILE_BYTES + _PLANE_BYTES * planes
    pixel += frames * (_FRAME_BYTES + _FRAME_PLANE_BYTES * planes)
    most = _TILE_SHARE * free_memory(device) / pixel
    # A picture that fits has nothing around it; a tile has as much as the model looks at.
    if shape[0] * shape[1] <= most:
        return min(max(shape), _MOST_SIDE)
    side = int(most**0.5) - 2 * (margin + _WEIGHER_REACH)
    return min(max(side, _LEAST_SIDE), _MOST_SIDE)


def pieces(start: int, stop: int, side: int) -> Iterator[tuple[int, int]]:
    """Spans of nearly equal length, about ``side`` at most, from an even start; starts are even."""
    pairs = -(-(stop - start) // 2)
    count = -(-pairs // -(-side // 2))
    edges = (min(start + 2 * (pairs * i // count), stop) for i in range(count + 1))
    return itertools.pairwise(edges)
