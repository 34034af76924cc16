"""Layers of the joint model's weigher: convolutions of pieces of pictures, and their memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.kernels import cpu, joint_loops
from cofuse.kernels.joint_reach import Spans, clip, grow

__all__ = [
    "CACHED_ROWS",
    "Piece",
    "Scratch",
    "convolve",
    "cut",
    "enlarged",
    "mix",
    "pack_analysis",
    "pack_detail",
    "pack_fours",
    "pack_threes",
]

Floats = NDArray[np.float32]

#: Rows on which all steps of a layer are taken before the next rows, while they are in the cache.
CACHED_ROWS = 16


class Scratch:
    """Buffers by name, used again and again: fresh memory costs about what a layer's sums do."""

    def __init__(self) -> None:
        self._buffers: dict[str, Floats] = {}

    def take(self, name: str, *shape: int) -> Floats:
        """Return an array of any content; it holds until the name is taken again."""
        size = math.prod(shape)
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers.pop(name, None)  # before its successor comes
            self._buffers[name] = np.empty(size, np.float32)
        return self._buffers[name][:size].reshape(shape)

    def clear(self) -> None:
        """Forget all buffers."""
        self._buffers.clear()


@dataclass(frozen=True)
class Piece:
    """Planes (channels, rows, columns) of a part of a picture, and which part it is.

    Planes may be wider than their span; what lies past it is garbage.
    """

    planes: Floats
    spans: Spans


def cut(piece: Piece, spans: Spans, out: Floats) -> Floats:
    """Copy spans of a piece to ``out``; what it lacks lies past the picture, where edges repeat."""
    inner, source, target = out, piece.planes, []
    for axis, (have, want) in enumerate(zip(piece.spans, spans, strict=True), 1):
        first, last = clip((want[0] - have[0], want[1] - have[0]), have[1] - have[0])
        before = first + have[0] - want[0]
        target.append((before, before + last - first))
        source = _along(source, axis, first, last)
        inner = _along(inner, axis, *target[-1])
    inner[...] = source
    for axis, (first, last) in enumerate(target, 1):
        _along(out, axis, 0, first)[...] = _along(out, axis, first, first + 1)
        _along(out, axis, last, None)[...] = _along(out, axis, last - 1, last)
    return out


def convolve(
    piece: Piece,
    spans: Spans,
    weight: Floats,
    base: Floats,
    names: tuple[str, str],
    scratch: Scratch,
    *,
    small: Piece | None = None,
) -> Piece:
    """Spans of a rectified 3 × 3 convolution, added to ``base`` and to ``small`` enlarged.

    ``names`` are those of the scratch for a copy of the input and for the result.
    """
    wider = grow(spans[0]), grow(spans[1])
    height, stride = (b - a for a, b in wider)
    channels, outputs = len(piece.planes), len(weight)
    padded = cut(piece, wider, scratch.take(names[0], channels, height, stride))
    height, width = height - 2, stride - 2
    taps, planes = pack_threes(weight), padded.reshape(channels, -1)
    out = scratch.take(names[1], outputs, height, stride)
    flat = out.reshape(outputs, -1)
    whole = np.broadcast_to(base, (outputs, height, width))
    enlarge = None if small is None else _to_enlarge(small, spans)

    def work(start: int, stop: int) -> None:
        for first in range(start, stop, CACHED_ROWS):
            last = min(first + CACHED_ROWS, stop)
            rows = out[:, first:last]
            rows[..., :width] = whole[:, first:last]
            rows[..., width:] = 0
            if enlarge is not None:
                joint_loops.add_upsampled(*enlarge, width, first, last, out)
            end = min(last * stride, height * stride - 2)
            joint_loops.convolve(planes, taps, stride, first * stride, end, flat)

    cpu._over_bands(work, height)
    return Piece(out, spans)


def mix(planes: Floats, weight: Floats, out: Floats) -> Floats:
    """1 × 1 convolution, added to ``out``; both in one block of memory."""
    flat, sums = planes.reshape(len(planes), -1), out.reshape(len(out), -1)
    packed = pack_fours(weight.reshape(len(weight), -1))
    rows, width = planes.shape[1:]
    cpu._over_bands(
        lambda start, stop: joint_loops.mix_channels(
            flat, packed, start * width, stop * width, 0, sums
        ),
        rows,
    )
    return out


def enlarged(small: Floats, out: Floats) -> None:
    """Add a whole plane, bilinearly enlarged to twice its size, to ``out``; the rest is cut off."""
    height, width = out.shape
    piece = Piece(small[None], ((0, small.shape[0]), (0, small.shape[1])))
    planes, row, column = _to_enlarge(piece, ((0, height), (0, width)))
    cpu._over_bands(
        lambda start, stop: joint_loops.add_upsampled(
            planes, row, column, width, start, stop, out[None]
        ),
        height,
    )


def _along(planes: Floats, axis: int, first: int, last: int | None) -> Floats:
    """Part of planes along one axis."""
    return planes[:, first:last] if axis == 1 else planes[:, :, first:last]


def _to_enlarge(piece: Piece, want: Spans) -> tuple[Floats, int, int]:
    """Cut what spans of planes of twice the size take, and say where these start."""
    rows, columns = (((w[0] - 1) // 2, w[1] // 2 + 1) for w in want)
    shape = len(piece.planes), rows[1] - rows[0], columns[1] - columns[0]
    return cut(piece, (rows, columns), np.empty(shape, np.float32)), want[0][0], want[1][0]


def pack_analysis(filters: Floats) -> Floats:
    """Filters (h, 8, 8) as (groups of 4, rows, 4, 8), the taps of even columns first."""
    apart = filters.reshape(-1, 4, 8, 4, 2).transpose(0, 2, 1, 4, 3)
    return np.ascontiguousarray(apart.reshape(len(apart), 8, 4, 8), np.float32)


def pack_detail(filters: Floats) -> Floats:
    """Filters (h, 5, 5) as (groups of 4, rows, 4, 5)."""
    return np.ascontiguousarray(filters.reshape(-1, 4, 5, 5).transpose(0, 2, 1, 3), np.float32)


def pack_threes(weight: Floats) -> Floats:
    """Filters (o, c, 3, 3) as (groups of 4 outputs, channels, 4, 9)."""
    outputs, channels = weight.shape[:2]
    return np.ascontiguousarray(
        weight.reshape(outputs // 4, 4, channels, 9).transpose(0, 2, 1, 3), np.float32
    )


def pack_fours(weight: Floats) -> Floats:
    """Matrix (o, c) as (groups of 4 outputs, groups of 4 channels, 4, 4), filled with zeros."""
    outputs, channels = (-(-n // 4) for n in weight.shape)
    whole = np.zeros((4 * outputs, 4 * channels), np.float32)
    whole[: weight.shape[0], : weight.shape[1]] = weight
    return np.ascontiguousarray(whole.reshape(outputs, 4, channels, 4).transpose(0, 2, 1, 3))
