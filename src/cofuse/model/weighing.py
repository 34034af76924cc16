"""What every frame of a stack weighs, band by band, at the pixels of a tile."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cofuse.mixing import MIXED_BANDS, blurred
from cofuse.model.runtime import Networks
from cofuse.model.telling import FrameTold
from cofuse.model.tiles import MULTIPLE, Tile, padded

__all__ = ["HALO", "tile_side", "weigh_tile", "working_bytes"]

Levels = NDArray[np.float32]
#: Reads a frame's luminance, 0 to 1, in rows and columns.
Read = Callable[[int, tuple[slice, slice]], Levels]

#: Pixels around a tile that its weights depend on.
HALO = 128
#: A weight, by the largest at the same place, below which it counts as none: where one frame is
#: the only sharp one its pixels are not touched, and frames without weight need not be mixed.
_LEAST_WEIGHT = 0.001
#: Sides of tiles in pixels. What is seen around a tile costs the less the larger it is, so the
#: largest is taken in which the features of all frames fit into so many bytes; where they fit into
#: none but the smallest, frames are looked at twice, and luminance and weights have to fit.
_SIDES, _KEPT_BYTES = (768, 512, 256), 450_000_000
#: Bytes that features and folded planes have for a pixel: what `network.Look` returns.
_FEATURE_BYTES = 4 * (4 + 32 / 4 + 48 / 16 + 64 / 64 + 96 / 256)
#: Bytes a pixel that the networks need beside at their most.
_NETWORK_BYTES = 600


def tile_side(frames: int, *, keep: bool = True) -> int:
    """Side of the tiles of a stack of so many frames, in pixels; the smallest with nothing kept."""
    if not keep:
        return _SIDES[-1]
    keeping = [side for side in _SIDES[:-1] if _fit(frames, side, _FEATURE_BYTES, 0)]
    looking = [side for side in _SIDES if _fit(frames, side, 4, 4 * MIXED_BANDS)]
    return (keeping or looking or _SIDES[-1:])[0]


def _fit(frames: int, side: int, seen: float, made: float) -> bool:
    """Whether so many bytes for each pixel seen and made of all frames may be kept."""
    return frames * (seen * (side + 2 * HALO) ** 2 + made * side**2) <= _KEPT_BYTES


def working_bytes(shape: tuple[int, int], frames: int, *, keep: bool) -> int:
    """Memory that weighing a tile takes, with features kept if they fit or with nothing kept."""
    side = tile_side(frames, keep=keep)
    made = math.prod(min(side, length) for length in shape)
    seen = math.prod(min(side + 2 * HALO, length + MULTIPLE) for length in shape)
    keep = keep and _fit(frames, side, _FEATURE_BYTES, 0)
    every = seen * (4 + _FEATURE_BYTES * keep) + made * 4 * MIXED_BANDS
    return round(frames * every + seen * _NETWORK_BYTES)


def weigh_tile(
    networks: Networks,
    read: Read,
    told: list[FrameTold],
    reference: int | None,
    tile: Tile,
    *,
    keep: bool = True,
) -> Levels:
    """Weigh all frames at the pixels of a tile: (frames, bands, h, w), adding up to 1.

    Features of all frames are kept between two passes, or made twice.
    """
    count = len(told)
    keep = keep and _fit(count, tile_side(count), _FEATURE_BYTES, 0)
    frames = [read(number, tile.around) for number in range(count)]
    mean, strength = np.zeros_like(frames[0]), np.zeros_like(frames[0])
    for frame in frames:
        mean += frame / np.float32(count)
        detail = frame - blurred(frame, 5)
        strength += np.abs(detail) / np.float32(count)
    strength = blurred(strength, 9)
    beside = frames[0 if reference is None else reference]
    stack = padded(np.stack([mean, strength, beside]))

    def look(number: int) -> list[Levels]:
        own = told[number]
        numbers = [own.fine, own.coarse, own.floor, number == reference, reference is not None]
        return networks(
            "look", padded(frames[number][None]), stack, np.array([numbers], np.float32)
        )

    kept: list[list[Levels]] = []
    pooled: list[Levels] = []
    for number in range(count):
        seen = look(number)
        features = seen[1:]
        if keep:
            kept.append(seen)
        if not pooled:
            # Activations are never below 0, so that 0 is no maximum of its own.
            pooled = [np.zeros((2, *feature.shape[1:]), np.float32) for feature in features]
        for (mean_so_far, largest), feature in zip(pooled, features, strict=True):
            mean_so_far += feature[0] / np.float32(count)
            np.maximum(largest, feature[0], out=largest)
    shared = networks("share", *(both.reshape(1, -1, *both.shape[2:]) for both in pooled))
    del pooled
    rows, columns = tile.within
    shape = rows.stop - rows.start, columns.stop - columns.start
    scores = np.empty((count, MIXED_BANDS, *shape), np.float32)
    for number in range(count):
        seen = kept[number] if keep else look(number)
        (made,) = networks("weigh", *seen, *shared)
        scores[number] = made[0][:, rows, columns]
        if keep:
            kept[number] = []
    scores -= scores.max(axis=0)
    weights = np.exp(scores, out=scores)
    weights *= weights > _LEAST_WEIGHT
    weights /= weights.sum(axis=0)
    return weights
