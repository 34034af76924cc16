"""Weights of all frames, band by band: coarse ones from all frames, exact ones where it matters.

`glance` runs the networks that see every frame at a quarter of its size, and gives coarse weights
with a context for each frame. `weigh` runs `border` at full size, only on frames whose coarse
weight matters there. The weights are the softmax of the scores over the frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cofuse.images import Levels, Stack
from cofuse.images.bands import MIXED_BANDS, REACH, blurred, mean_of_channels
from cofuse.images.tiles import GREY, MULTIPLE, Tile, padded
from cofuse.model.runtime import Networks
from cofuse.model.telling import FrameTold

__all__ = [
    "HALO",
    "LEAST_SHARE",
    "Glance",
    "glance",
    "light",
    "tile_side",
    "weigh",
    "working_bytes",
]

#: Halo of a tile in pixels. The receptive field reaches 112; what lies beyond the halo has never
#: changed a picture by more than a ten-thousandth of a grey level.
HALO = 96
#: Halo of a part of a tile in pixels: enough for its weights and for the bands that are mixed.
_AROUND = REACH
#: Receptive field of `border` in pixels to each side, beside the window of the detail's strength.
_NEAR = 12
#: Side in pixels of the parts of a tile, each of which has its own list of frames that matter.
#: Parts of the smallest tiles, which are for many frames, have half of it.
_PART = 256
#: By what `glance` makes pictures smaller.
_COARSE = 4
#: A frame is left out where its coarse weight is below this share of the largest one.
LEAST_SHARE = 0.03
#: The same for exact weights, so that the only sharp frame has weight 1 and its pixels stay.
_LEAST_WEIGHT = 0.001
#: Sides of tiles in pixels, and the bytes that the features of all frames of a tile may take. The
#: largest side that fits is taken, because halos then cost least. Where none fits, features are
#: not kept but computed again.
_SIDES, _KEPT_BYTES = (1536, 1280, 1024, 768, 512, 256), 250_000_000
#: Bytes for a pixel of a frame in `glance`: filter responses, features, and context.
_FILTERED, _FEATURES, _CONTEXT = 4 * 33 / 16, 4 * (32 / 16 + 48 / 64 + 96 / 256), 4 * 32 / 16
#: Bytes for a pixel that the networks need at most for themselves; the runtime's store, which grows
#: by doubling, holds more than is in use.
_NETWORK_BYTES = 320


@dataclass(frozen=True)
class Glance:
    """Coarse weights and contexts of all frames around a tile, at a quarter of the size.

    Attributes
    ----------
    tile
        The tile.
    contexts
        For every frame its coarse scores, one for each band, then context planes: (planes, h, w).
    shares
        Share of every frame in the mixture that `border` sees beside a frame: (frames, h, w).
    side
        Side of the parts in pixels.
    """

    tile: Tile
    contexts: Sequence[Levels]
    shares: Levels
    side: int = _PART

    def parts(self, shape: tuple[int, int]) -> Iterator[tuple[Tile, list[int]]]:
        """Cut the tile of a picture into parts; with each come the numbers of the frames in it."""
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
    """Side of tiles in pixels for a number of frames; without keeping features, the smallest."""
    fitting = [side for side in _SIDES if keep and _fit(frames, side)]
    return (fitting or _SIDES[-1:])[0]


def _part_side(side: int) -> int:
    """Side of the parts of a tile of a given side, in pixels."""
    return _PART if side > _SIDES[-1] else _PART // 2


def _fit(frames: int, side: int) -> bool:
    """Whether filter responses of all frames, and then their features, fit into memory."""
    return frames * max(_FILTERED, _FEATURES) * (side + 2 * HALO) ** 2 <= _KEPT_BYTES


def working_bytes(shape: tuple[int, int], frames: int, *, keep: bool) -> int:
    """Bytes that weighing a tile takes, with features kept (if they fit) or not."""
    side = tile_side(frames, keep=keep)
    seen = math.prod(min(side + 2 * HALO, length + MULTIPLE) for length in shape)
    part = math.prod(min(_part_side(side) + 2 * _AROUND, length + MULTIPLE) for length in shape)
    kept = max(_FILTERED, _FEATURES) if keep and _fit(frames, side) else 0.0
    every = seen * max(kept, _CONTEXT) + part * 4 * (MIXED_BANDS + 9)
    return round(frames * every + (seen + part) * _NETWORK_BYTES)


def glance(
    networks: Networks,
    stack: Stack,
    told: list[FrameTold],
    tile: Tile,
    *,
    keep: bool = True,
) -> Glance:
    """Look at all frames of a stack around a tile at a quarter of their size.

    Filter responses and features are kept from pass to pass, or computed again.
    """
    count = len(told)
    asked, keep = keep, keep and _fit(count, tile_side(count))
    numbers = told_numbers(told)

    def filtered(number: int) -> Levels:
        (own,) = networks("filter", _beyond(light(stack.part_levels(number, tile.around))[None]))
        return own

    owns = [filtered(number) for number in range(count)] if keep else []
    (pooled,) = _pooled(([own] for own in owns or map(filtered, range(count))), count)

    def look(number: int) -> list[Levels]:
        # Responses are dropped one by one as features take their place.
        own = owns.pop(0) if keep else filtered(number)
        return networks("look", own, pooled, numbers[number])

    kept = [look(number) for number in range(count)] if keep else []
    shared = networks("share", *_pooled(kept or map(look, range(count)), count))
    contexts = []
    for number in range(count):
        # And features as contexts do.
        features = kept.pop(0) if keep else look(number)
        contexts.append(networks("weigh", *features, *shared)[0][0])
    side = _part_side(tile_side(count, keep=asked))
    return Glance(tile, contexts, _shares(np.stack([own[:MIXED_BANDS] for own in contexts])), side)


def light(levels: Levels) -> Levels:
    """Luminance as the networks see it: the mean of the channels, white at 1."""
    return mean_of_channels(levels) / np.float32(255)


def _beyond(planes: Levels) -> Levels:
    """Mirror planes (1, h, w) beyond the last row and column, up to a multiple and once more.

    Grey there, though networks count from grey, would be an edge stronger than any detail.
    """
    down, right = (MULTIPLE + -length % MULTIPLE for length in planes.shape[1:])
    return np.pad(planes, ((0, 0), (0, down), (0, right)), mode="symmetric")[None]


def _pooled(of_frames: Iterable[list[Levels]], count: int) -> list[Levels]:
    """Mean and maximum over frames of each of their planes (1, …), side by side."""
    pooled: list[Levels] = []
    for planes in of_frames:
        if not pooled:
            # Features are never below 0, so zeros are no maximum of their own.
            pooled = [np.zeros((1, 2 * p.shape[1], *p.shape[2:]), np.float32) for p in planes]
        for both, own in zip(pooled, planes, strict=True):
            mean, largest = np.split(both[0], 2)
            mean += own[0] / np.float32(count)
            np.maximum(largest, own[0], out=largest)
    return pooled


def told_numbers(told: list[FrameTold]) -> list[Levels]:
    """Noise levels of each frame as inputs of the networks."""
    return [np.array([[own.fine, own.coarse, own.floor]], np.float32) for own in told]


def _shares(scores: Levels) -> Levels:
    """Shares in the mixture that `border` sees: roots of weights, so that runners-up show in it.

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
    """The smallest box of a part that holds all pixels in which a frame has a share, if any."""
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
    """Rows and columns counted from the start of others."""
    rows, columns = (
        slice(own.start - whole.start, own.stop - whole.start)
        for own, whole in zip(inner, outer, strict=True)
    )
    return rows, columns
