"""What every frame of a stack weighs, band by band: a glance at all, then a look at some."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.images.bands import MIXED_BANDS, REACH, blurred
from cofuse.images.tiles import GREY, MULTIPLE, Tile, padded
from cofuse.model.runtime import Networks
from cofuse.model.telling import FrameTold

__all__ = ["HALO", "LEAST_SHARE", "Glance", "glance", "tile_side", "weigh", "working_bytes"]

Levels = NDArray[np.float32]
#: Reads a frame's luminance, 0 to 1, in rows and columns.
Read = Callable[[int, tuple[slice, slice]], Levels]

#: Pixels around a tile that its weights depend on. They could depend on 112; beyond these nothing
#: in a picture has been seen to change by more than a ten-thousandth of a grey level.
HALO = 96
#: Pixels around a part of a tile that are read of frames: enough for its weights, and for mixing.
_AROUND = REACH
#: Pixels around a place that its exact scores depend on, beside those that strength is taken of.
_NEAR = 12
#: Side in pixels of the parts of a tile, each with frames of its own that are looked at closely;
#: of the smallest tiles, which are for many frames, it is half of this.
_PART = 256
#: Pixels for each of a glance, along a side.
_COARSE = 4
#: A coarse weight, by the largest at the same place, below which a frame is left out there.
LEAST_SHARE = 0.03
#: The same of exact weights: where one frame is the only sharp one its pixels are not touched.
_LEAST_WEIGHT = 0.001
#: Sides of tiles in pixels. What is seen around a tile costs the less the larger it is, so the
#: largest is taken in which what is kept of all frames fits into so many bytes; where it fits into
#: none, frames are looked at again instead.
_SIDES, _KEPT_BYTES = (1536, 1280, 1024, 768, 512, 256), 300_000_000
#: Bytes that a glance has for a pixel of a frame: what is filtered, features, and context.
_FILTERED, _FEATURES, _CONTEXT = 4 * 33 / 16, 4 * (32 / 16 + 48 / 64 + 96 / 256), 4 * 32 / 16
#: Bytes a pixel that the networks need beside at their most.
_NETWORK_BYTES = 130


@dataclass(frozen=True)
class Glance:
    """What is seen of all frames around a tile at a quarter of the size.

    Attributes
    ----------
    tile
        The tile.
    contexts
        Scores of bands, and more, of every frame: (planes, h, w).
    shares
        Part that every frame has in the mixture to look at beside it: (frames, h, w).
    side
        Side of the parts in pixels.
    """

    tile: Tile
    contexts: Sequence[Levels]
    shares: Levels
    side: int = _PART

    def parts(self, shape: tuple[int, int]) -> Iterator[tuple[Tile, list[int]]]:
        """Cut the tile of a picture into parts, each with the numbers of frames that matter."""
        (rows, columns), side = self.tile.here, self.side
        for top in range(rows.start, rows.stop, side):
            for left in range(columns.start, columns.stop, side):
                down, right = min(top + side, rows.stop), min(left + side, columns.stop)
                part = Tile.of((slice(top, down), slice(left, right)), shape, _AROUND)
                shares = self.shares[:, *self._within(part)]
                yield part, [number for number, own in enumerate(shares) if own.any()]

    def _within(self, part: Tile) -> tuple[slice, slice]:
        rows, columns = (
            slice((here.start - all_.start) // _COARSE, -(-(here.stop - all_.start) // _COARSE))
            for here, all_ in zip(part.around, self.tile.around, strict=True)
        )
        return rows, columns

    def share(self, number: int, part: Tile) -> Levels:
        """Share of a frame around a part, in full size."""
        import cv2  # takes a while to load

        rows, columns = (here.stop - here.start for here in part.around)
        share = self.shares[number, *self._within(part)]
        size = share.shape[1] * _COARSE, share.shape[0] * _COARSE
        large = cv2.resize(share, size, interpolation=cv2.INTER_LINEAR)
        return np.asarray(large[:rows, :columns], np.float32)

    def context(self, number: int, part: Tile) -> Levels:
        """Context of a frame around a part: (1, planes, h, w)."""
        return np.ascontiguousarray(self.contexts[number][:, *self._within(part)])[None]


def tile_side(frames: int, *, keep: bool = True) -> int:
    """Side of the tiles of a stack of so many frames, in pixels; the smallest with nothing kept."""
    fitting = [side for side in _SIDES if keep and _fit(frames, side)]
    return (fitting or _SIDES[-1:])[0]


def _part_side(side: int) -> int:
    """Side of the parts of tiles of so many pixels."""
    return _PART if side > _SIDES[-1] else _PART // 2


def _fit(frames: int, side: int) -> bool:
    """Whether what is filtered of all frames, and then seen in its place, may be kept."""
    return frames * max(_FILTERED, _FEATURES) * (side + 2 * HALO) ** 2 <= _KEPT_BYTES


def working_bytes(shape: tuple[int, int], frames: int, *, keep: bool) -> int:
    """Memory that weighing a tile takes, with features kept if they fit or with nothing kept."""
    side = tile_side(frames, keep=keep)
    seen = math.prod(min(side + 2 * HALO, length + MULTIPLE) for length in shape)
    part = math.prod(min(_part_side(side) + 2 * _AROUND, length + MULTIPLE) for length in shape)
    kept = max(_FILTERED, _FEATURES) if keep and _fit(frames, side) else 0.0
    every = seen * max(kept, _CONTEXT) + part * 4 * (MIXED_BANDS + 9)
    return round(frames * every + (seen + part) * _NETWORK_BYTES)


def glance(
    networks: Networks,
    read: Read,
    told: list[FrameTold],
    tile: Tile,
    *,
    keep: bool = True,
) -> Glance:
    """Glance at all frames around a tile.

    What is filtered and seen of every frame is kept from pass to pass, or made again.
    """
    count = len(told)
    asked, keep = keep, keep and _fit(count, tile_side(count))
    numbers = told_numbers(told)

    def filtered(number: int) -> Levels:
        (own,) = networks("filter", _beyond(read(number, tile.around)[None]))
        return own

    owns = [filtered(number) for number in range(count)] if keep else []
    (stack,) = _pooled(([own] for own in owns or map(filtered, range(count))), count)

    def look(number: int) -> list[Levels]:
        # What is filtered makes room for what is seen.
        own = owns.pop(0) if keep else filtered(number)
        return networks("look", own, stack, numbers[number])

    kept = [look(number) for number in range(count)] if keep else []
    shared = networks("share", *_pooled(kept or map(look, range(count)), count))
    contexts = []
    for number in range(count):
        # And what is seen makes room for the context.
        features = kept.pop(0) if keep else look(number)
        contexts.append(networks("weigh", *features, *shared)[0][0])
    side = _part_side(tile_side(count, keep=asked))
    return Glance(tile, contexts, _shares(np.stack([own[:MIXED_BANDS] for own in contexts])), side)


def _beyond(planes: Levels) -> Levels:
    """Mirror planes (1, h, w) beyond the last row and column, always by some.

    Grey, which is nothing to networks, would be an edge stronger than all detail along it.
    """
    down, right = (MULTIPLE + -length % MULTIPLE for length in planes.shape[1:])
    return np.pad(planes, ((0, 0), (0, down), (0, right)), mode="symmetric")[None]


def _pooled(of_frames: Iterable[list[Levels]], count: int) -> list[Levels]:
    """Mean and maximum over frames of each of their planes (1, …), side by side."""
    pooled: list[Levels] = []
    for planes in of_frames:
        if not pooled:
            # Activations are never below 0, so that 0 is no maximum of its own.
            pooled = [np.zeros((1, 2 * p.shape[1], *p.shape[2:]), np.float32) for p in planes]
        for both, own in zip(pooled, planes, strict=True):
            mean, largest = np.split(both[0], 2)
            mean += own[0] / np.float32(count)
            np.maximum(largest, own[0], out=largest)
    return pooled


def told_numbers(told: list[FrameTold]) -> list[Levels]:
    """What networks are told of each frame."""
    return [np.array([[own.fine, own.coarse, own.floor]], np.float32) for own in told]


def _shares(scores: Levels) -> Levels:
    """Shares in the mixture to look at: roots of weights, as frames are to be seen before they win.

    The same as `learning.training.steps.shares`.
    """
    weights = np.exp(scores - scores.max(axis=0))
    weights /= weights.sum(axis=0)
    mean = weights.mean(axis=1)
    seen = np.sqrt(mean)
    seen *= mean > LEAST_SHARE * mean.max(axis=0)
    return np.asarray(seen / seen.sum(axis=0), np.float32)


def weigh(networks: Networks, seen: Glance, part: Tile, lights: Mapping[int, Levels]) -> Levels:
    """Weigh frames at the pixels of a part: (frames, bands, h, w), adding up to 1.

    ``lights`` are the luminances around it of the frames that matter.
    """
    shares = {number: seen.share(number, part) for number in lights}
    details = {}
    shape = next(iter(lights.values())).shape
    mixture, strength = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for number, light in lights.items():
        details[number] = light - blurred(light, 5)
        mixture += shares[number] * light
        strength += shares[number] * np.abs(details[number])
    strength = blurred(strength, 9)
    boxes = {number: box for number in lights if (box := _box(shares[number], part)) is not None}
    size = tuple(here.stop - here.start for here in part.here)
    scores = np.full((len(lights), MIXED_BANDS, *size), -np.inf, np.float32)
    for scored, number in zip(scores, lights, strict=True):
        if number not in boxes:
            continue
        box = boxes[number]
        looked_at, there = _relative(box.around, part.around), _relative(box.here, part.here)
        made = np.zeros((MIXED_BANDS, 1, 1), np.float32)  # it is alone
        if len(boxes) > 1:
            planes = (
                padded(np.stack([own[looked_at], of_all[looked_at]]), _COARSE, beyond)
                for own, of_all, beyond in (
                    (lights[number], mixture, GREY),
                    (details[number], strength, 0.0),
                )
            )
            context = seen.context(number, box)
            made = networks("border", *planes, context)[0][0][:, *box.within]
        has_share = shares[number][_relative(box.here, part.around)] > 0
        np.copyto(scored[:, *there], made, where=has_share)
    scores -= scores.max(axis=0)
    weights = np.exp(scores, out=scores)
    weights *= weights > _LEAST_WEIGHT
    weights /= weights.sum(axis=0)
    return weights


def _box(share: Levels, part: Tile) -> Tile | None:
    """Rows and columns of a part in which a frame has a share around it, if any."""
    has_share = share[part.within] > 0
    found = [np.flatnonzero(has_share.any(axis=axis)) for axis in (1, 0)]
    if not found[0].size:
        return None
    rows, columns = (
        slice(
            here.start + own[0] // _COARSE * _COARSE,
            min(here.start + (own[-1] // _COARSE + 1) * _COARSE, here.stop),
        )
        for here, own in zip(part.here, found, strict=True)
    )
    ends = part.around_rows.stop, part.around_columns.stop
    return Tile.of((rows, columns), ends, _NEAR)


def _relative(inner: tuple[slice, slice], outer: tuple[slice, slice]) -> tuple[slice, slice]:
    """Where rows and columns lie in others."""
    rows, columns = (
        slice(own.start - whole.start, own.stop - whole.start)
        for own, whole in zip(inner, outer, strict=True)
    )
    return rows, columns
