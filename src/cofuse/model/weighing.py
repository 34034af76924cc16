"""The weights of `auto`: coarse ones from all frames, exact ones where it matters.

`ModelWeigher.look` runs the networks that see every frame at a quarter of its size, and gives
coarse weights with a context for each frame. `Glance.weigh` runs `border` at full size, only on
frames whose coarse weight matters there. The weights are the softmax of the scores over the frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np

from cofuse.images import Levels, Stack
from cofuse.images.pixels import MIXED_BANDS, REACH, blurred, mean_of_channels
from cofuse.images.tiles import GREY, MULTIPLE, Tile, map_ahead, padded, parts_of, relative
from cofuse.model.runtime import Networks
from cofuse.sensor import NoiseLaw
from cofuse.sensor.bands import octaves_in_bands

#: Halo of a tile in pixels. The receptive field reaches 112; what lies beyond the halo has never
#: changed a picture by more than a ten-thousandth of a grey level.
HALO = 96
#: Receptive field of `border` in pixels to each side, beside the window of the detail's strength.
_NEAR = 12
#: By what the networks that see all frames make pictures smaller.
_COARSE = 4
#: A frame is left out where its coarse weight is below this share of the largest one.
LEAST_SHARE = 0.03
#: The same for exact weights, so that the only sharp frame has weight 1 and its pixels stay.
_LEAST_WEIGHT = 0.001
#: Sides of tiles in pixels. Halos of large ones cost least, but the features of all frames of a
#: tile should take no more than so many bytes unless tiles would become smaller than is fair.
_SIDES, _FEATURE_BYTES, _FAIR_SIDE = (1536, 1280, 1024, 768, 512, 256, 128), 250_000_000, 512
LEAST_SIDE = _SIDES[-1]
#: Sides in pixels of the parts of tiles; the smaller one is for tiles below a fair side, or of it,
#: which are for many frames.
_PARTS = 256, 128
#: Bytes for a pixel of a frame: filter responses, or features, or context.
_FILTERED, _FEATURES, _CONTEXT = 4 * 33 / 16, 4 * (32 / 16 + 48 / 64 + 96 / 256), 4 * 32 / 16
#: Bytes for a pixel that the networks need at most for themselves; the runtime's store, which grows
#: by doubling, holds more than is in use.
_NETWORK_BYTES = 320


def tile_sides(frames: int) -> list[int]:
    """Sides of tiles in pixels that suit a number of frames, the best one first."""
    most = max(_FEATURE_BYTES, _feature_bytes(frames, _FAIR_SIDE))
    return [side for side in _SIDES if _feature_bytes(frames, side) <= most]


def _feature_bytes(frames: int, side: int) -> float:
    return frames * max(_FILTERED, _FEATURES) * (side + 2 * HALO) ** 2


def part_side(side: int) -> int:
    """Side in pixels of the parts of tiles of a given side."""
    return _PARTS[side <= _FAIR_SIDE]


def working_bytes(shape: tuple[int, int], frames: int, side: int) -> int:
    """Bytes that weighing a tile takes."""
    seen = math.prod(min(side + 2 * HALO, length + MULTIPLE) for length in shape)
    part = math.prod(min(part_side(side) + 2 * REACH, length + MULTIPLE) for length in shape)
    every = seen * max(_FILTERED, _FEATURES, _CONTEXT) + part * 4 * (MIXED_BANDS + 9)
    return round(frames * every + (seen + part) * _NETWORK_BYTES)


class FrameTold(NamedTuple):
    """Noise level of a frame's luminance in fine and in coarse bands, at mid-grey, white at 1.

    ``floor`` is the share of the variance that is left in black.
    """

    fine: float
    coarse: float
    floor: float


def frames_told(law: NoiseLaw) -> list[FrameTold]:
    """Noise levels of every frame of a law."""
    levels = law.levels[:, 0] * law.at_mid_grey / 255.0
    if law.levels.shape[1] == 3:
        # The luminance plane of a law is a sum over channels by the root of their number.
        levels = levels / 3**0.5
    bands = np.sqrt(levels**2 @ octaves_in_bands().T)
    variance = float(law.model.sigma_at(127.5)) ** 2
    floor = law.model.floor**2 / variance if variance > 0 else 1.0
    return [FrameTold(float(own[0]), float(own[2]), floor) for own in bands]


class ModelWeigher:
    """Weighs frames by the trained networks.

    Parameters
    ----------
    networks
        Of `runtime.load_networks`.
    told
        The noise of every frame, of `frames_told`.
    side, part
        Sides in pixels of tiles and of their parts, each of which has its own list of frames that
        matter; of `tile_sides` and `part_side`.
    """

    halo = HALO

    def __init__(self, networks: Networks, told: Sequence[FrameTold], side: int, part: int) -> None:
        self.networks, self.side, self.part = networks, side, part
        self.told = [np.array([own], np.float32) for own in told]

    def look(self, stack: Stack, tile: Tile) -> Glance:
        """Look at all frames of a stack around a tile at a quarter of their size."""
        run, numbers = self.networks, range(len(stack))
        ahead = partial(map_ahead, pixels=tile.pixels)

        def filtered(number: int) -> list[Levels]:
            return run("filter", _beyond(light(stack.part_levels(number, tile.around))))

        owns, (pooled,) = _with_pools(ahead(filtered, numbers))

        def featured(number: int) -> list[Levels]:
            # Responses are dropped one by one as features take their place.
            own, owns[number] = owns[number], []
            return run("look", *own, pooled, self.told[number])

        features, pools = _with_pools(ahead(featured, numbers))
        shared = run("share", *pools)

        def scored(number: int) -> Levels:
            own, features[number] = features[number], []
            return np.asarray(run("weigh", *own, *shared)[0][0])

        contexts = list(ahead(scored, numbers))
        shares = _shares(np.stack([own[:MIXED_BANDS] for own in contexts]))
        shape = stack.height, stack.width
        return Glance(run, tile, shape, contexts, shares, self.part)


def light(levels: Levels) -> Levels:
    """Luminance as the networks see it: the mean of the channels, white at 1."""
    return mean_of_channels(levels) / np.float32(255)


def _beyond(plane: Levels) -> Levels:
    """Mirror a plane (h, w) beyond its last row and column, up to a multiple and once more.

    Grey there, though networks count from grey, would be an edge stronger than any detail.
    """
    down, right = (MULTIPLE + -length % MULTIPLE for length in plane.shape)
    return np.pad(plane, ((0, down), (0, right)), mode="symmetric")[None, None]


def _with_pools(of_frames: Iterable[list[Levels]]) -> tuple[list[list[Levels]], list[Levels]]:
    """Planes (1, …) of all frames, and mean and maximum over frames of each, side by side."""
    every: list[list[Levels]] = []
    pooled: list[Levels] = []
    for planes in of_frames:
        every.append(planes)
        if not pooled:
            # Features are never below 0, so zeros are no maximum of their own.
            pooled = [np.zeros((1, 2 * p.shape[1], *p.shape[2:]), np.float32) for p in planes]
        for both, own in zip(pooled, planes, strict=True):
            total, largest = (half.reshape(len(half), -1) for half in np.split(both[0], 2))
            flat = own[0].reshape(len(total), -1)
            cv2.add(total, flat, total)
            cv2.max(largest, flat, largest)
    for both in pooled:
        both[:, : both.shape[1] // 2] /= np.float32(len(every))
    return every, pooled


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


@dataclass(frozen=True)
class Glance:
    """Coarse weights and contexts of all frames around a tile, at a quarter of the size.

    Attributes
    ----------
    networks
        The networks.
    tile, shape
        The tile, and rows and columns of the whole picture.
    contexts
        For every frame its coarse scores, one for each band, then context planes: (planes, h, w).
    shares
        Share of every frame in the mixture that `border` sees beside a frame: (frames, h, w).
    part
        Side of parts in pixels.
    """

    networks: Networks
    tile: Tile
    shape: tuple[int, int]
    contexts: Sequence[Levels]
    shares: Levels
    part: int

    def parts(self) -> Iterable[tuple[Tile, list[int]]]:
        """Cut the tile into parts, each with the numbers of the frames that matter there."""
        for part in parts_of(self.tile, self.part, self.shape, REACH):
            shares = self.shares[:, *self._within(part)]
            yield part, [number for number, own in enumerate(shares) if own.any()]

    def _within(self, part: Tile) -> tuple[slice, slice]:
        rows, columns = (
            slice(here.start // _COARSE, -(-here.stop // _COARSE))
            for here in relative(part.around, self.tile.around)
        )
        return rows, columns

    def share(self, number: int, part: Tile) -> Levels:
        """Share of a frame around a part, in full size."""
        rows, columns = (here.stop - here.start for here in part.around)
        share = self.shares[number, *self._within(part)]
        size = share.shape[1] * _COARSE, share.shape[0] * _COARSE
        large = cv2.resize(share, size, interpolation=cv2.INTER_LINEAR)
        return np.asarray(large[:rows, :columns], np.float32)

    def context(self, number: int, part: Tile) -> Levels:
        """Context of a frame around a part: (1, planes, h, w)."""
        return np.ascontiguousarray(self.contexts[number][:, *self._within(part)])[None]

    def weigh(self, part: Tile, frames: Mapping[int, Levels]) -> Levels:
        """Weigh frames at the pixels of a part: (frames, bands, h, w), adding up to 1."""
        lights = {number: light(frame) for number, frame in frames.items()}
        shares = {number: self.share(number, part) for number in lights}
        details = {}
        shape = next(iter(lights.values())).shape
        mixture, strength = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for number, seen in lights.items():
            details[number] = seen - blurred(seen, 5)
            mixture += shares[number] * seen
            strength += shares[number] * np.abs(details[number])
        strength = blurred(strength, 9)
        boxes = {n: box for n in lights if (box := _box(shares[n], part)) is not None}
        size = tuple(here.stop - here.start for here in part.here)
        scores = np.full((len(lights), MIXED_BANDS, *size), -np.inf, np.float32)
        for scored, number in zip(scores, lights, strict=True):
            if number not in boxes:
                continue
            box = boxes[number]
            looked_at, there = relative(box.around, part.around), relative(box.here, part.here)
            made = np.zeros((MIXED_BANDS, 1, 1), np.float32)  # it is alone
            if len(boxes) > 1:
                planes = (
                    padded(np.stack([own[looked_at], of_all[looked_at]]), _COARSE, beyond)
                    for own, of_all, beyond in (
                        (lights[number], mixture, GREY),
                        (details[number], strength, 0.0),
                    )
                )
                context = self.context(number, box)
                made = self.networks("border", *planes, context)[0][0][:, *box.within]
            has_share = shares[number][relative(box.here, part.around)] > 0
            np.copyto(scored[:, *there], made, where=has_share)
        scores -= scores.max(axis=0)
        weights = np.exp(scores, out=scores)
        weights *= weights > _LEAST_WEIGHT
        weights /= weights.sum(axis=0)
        return weights

    def confidence(self, part: Tile, weights: Levels) -> Levels:
        """1 minus the second largest weight in the two finest bands over the largest."""
        first, second = np.zeros((2, *weights.shape[2:]), np.float32)
        for own in weights:
            detail = own[0] + own[1]
            np.maximum(second, np.minimum(first, detail), out=second)
            np.maximum(first, detail, out=first)
        return np.asarray(1 - second / first)


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
