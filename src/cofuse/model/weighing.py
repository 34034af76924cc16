"""The weights of `auto`: coarse ones from all frames, exact ones where it matters.

`ModelWeigher.look` runs the networks that see every frame at a quarter of its size, and gives
coarse weights with a context for each frame. `Glance.weigh` runs `border` at full size, only on
frames whose coarse weight matters there. The weights are the softmax of the scores over the frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np

from cofuse.images import Levels, Stack
from cofuse.images.pixels import MIXED_BANDS, REACH, blurred
from cofuse.images.tiles import (
    Tile,
    box_of,
    map_ahead,
    padded,
    parts_of,
    relative,
)
from cofuse.model.runtime import Networks, Planes
from cofuse.model.tiling import HALO, LEAST_SHARE, assembled, block_side, seen_of, smaller
from cofuse.sensor import NoiseLaw
from cofuse.sensor.bands import octaves_in_bands

#: Pixels that filters see around a block.
_FILTERED_AROUND = 4
#: Receptive field of `border` in pixels to each side, beside the window of the detail's strength.
_NEAR = 12
#: By what the networks that see all frames make pictures smaller.
_COARSE = 4
#: The same as `LEAST_SHARE` for exact weights, so that the only sharp frame has weight 1 and its
#: pixels stay.
_LEAST_WEIGHT = 0.001


class Told(NamedTuple):
    """What networks are told of noise.

    ``levels`` (frames, 2) are those of every frame's luminance in fine and in coarse bands, at
    mid-grey, white at 1; ``floor`` is the share of the variance that is left in black.
    """

    levels: Levels
    floor: float


def noise_told(law: NoiseLaw) -> Told:
    """Noise of the frames of a law."""
    levels = law.levels[:, 0] * law.at_mid_grey / 255.0
    if law.levels.shape[1] == 3:
        # The luminance plane of a law is a sum over channels by the root of their number.
        levels = levels / 3**0.5
    bands = np.sqrt(levels**2 @ octaves_in_bands().T)
    variance = float(law.model.sigma_at(127.5)) ** 2
    floor = law.model.floor**2 / variance if variance > 0 else 1.0
    return Told(bands[:, [0, 2]].astype(np.float32), floor)


class ModelWeigher:
    """Weighs frames by the trained networks.

    Parameters
    ----------
    networks
        Of `runtime.load_networks`.
    told
        The noise of the frames, of `noise_told`.
    side, part
        Sides in pixels of tiles and of their parts, each of which has its own list of frames that
        matter; of `tile_sides` and `part_side`.
    """

    halo = HALO

    def __init__(self, networks: Networks, told: Told, side: int, part: int) -> None:
        self.networks, self.told, self.side, self.part = networks, told, side, part

    def look(self, stack: Stack, tile: Tile) -> Glance:
        """Look at all frames of a stack around a tile at a quarter of their size."""
        run, numbers = self.networks, range(len(stack))
        ahead = partial(map_ahead, pixels=tile.pixels)
        shape = stack.height, stack.width
        seen = seen_of(tile, shape)
        ends = seen.rows.stop, seen.columns.stop
        blocks = list(parts_of(seen, block_side(len(stack)), ends, _FILTERED_AROUND))
        related = assembled(seen, blocks, ahead(partial(self._related, stack, tile), blocks))

        def featured(number: int) -> list[Planes]:
            # What was seen of a frame is dropped as its features take the place.
            own, related[number] = related[number], np.empty(0, np.uint8)
            return run("look", own)

        features = list(ahead(featured, numbers))
        shared = assembled(seen, blocks, ahead(partial(self._shared, features), blocks))

        def scored(number: int) -> list[Planes]:
            own, features[number] = features[number], []
            return run("weigh", *own, *shared)

        scores, contexts = zip(*ahead(scored, numbers), strict=True)
        shares = _shares(np.concatenate(scores))
        return Glance(run, tile, shape, scores, contexts, shares, self.part)

    def _related(self, stack: Stack, tile: Tile, block: Tile) -> list[Planes]:
        """Filter a block of a tile in all frames, and relate what is filtered of each to all.

        A block is so small that what lies between the networks does not leave the cache.
        """
        run, within = self.networks, smaller(block.within, _COARSE)

        def filtered(number: int) -> list[Planes]:
            seen = _mirrored_light(stack, number, tile, block)[None, None]
            return [np.ascontiguousarray(planes[..., *within]) for planes in run("filter", seen)]

        owns, ((mean, largest), (mean_light, _)) = _with_pools(map(filtered, range(len(stack))))
        floor = np.array([[self.told.floor]], np.float32)
        beside = largest, *run("compare", mean, largest, mean_light, floor)
        levels = self.told.levels[:, None]
        return [
            run("relate", *own, *beside, level)[0] for own, level in zip(owns, levels, strict=True)
        ]

    def _shared(self, features: Sequence[Sequence[Planes]], block: Tile) -> list[Planes]:
        """What the features of all frames have in common in a block."""
        of_block = (
            [
                np.ascontiguousarray(planes[..., *smaller(block.here, _COARSE << size)])
                for size, planes in enumerate(own)
            ]
            for own in features
        )
        _, pools = _with_pools(of_block)
        return self.networks("share", *(np.concatenate(pair, axis=1) for pair in pools))


def light(levels: Levels) -> Levels:
    """Luminance as the networks see it: the mean of the channels, 0 at mid-grey, white at 0.5."""
    # Grey frames, and colours that are all alike, have the same sum to the last bit.
    alike = np.ones((1, 3), np.float32)
    total = 3 * levels if levels.ndim == 2 else cv2.transform(levels, alike)
    return np.asarray(cv2.transform(total, np.array([[1 / 765, -0.5]], np.float32)), np.float32)


def _mirrored_light(stack: Stack, number: int, tile: Tile, block: Tile) -> Levels:
    """Luminance of a frame around a block of what is seen of a tile."""
    places = []
    for part, around in zip(block.around, tile.around, strict=True):
        length = around.stop - around.start
        place = np.arange(part.start, part.stop) % (2 * length)  # it may be mirrored again
        places.append(around.start + np.minimum(place, 2 * length - 1 - place))
    rows, columns = (slice(int(place.min()), int(place.max()) + 1) for place in places)
    seen = light(stack.part_levels(number, (rows, columns)))
    if all(place[-1] - place[0] == len(place) - 1 for place in places):
        return seen  # nothing is mirrored
    return seen[np.ix_(*(place - place.min() for place in places))]


def _with_pools(
    of_frames: Iterable[list[Planes]],
) -> tuple[list[list[Planes]], list[tuple[Levels, Levels]]]:
    """Planes (1, …) of all frames, and mean and maximum over frames of each."""
    every: list[list[Planes]] = []
    sums: list[Planes] = []
    largest: list[Planes] = []
    for planes in of_frames:
        every.append(planes)
        if not sums:
            # Whole numbers of steps add up exactly in single precision too.
            sums = [np.zeros(own.shape, "f4" if own.dtype == np.uint8 else "f8") for own in planes]
            largest = [own.copy() for own in planes]
        for total, most, own in zip(sums, largest, planes, strict=True):
            rows = own.reshape(own.shape[1], -1)
            cv2.accumulate(rows, total.reshape(rows.shape))
            cv2.max(rows, most.reshape(rows.shape), most.reshape(rows.shape))
    means = ((total / len(every)).astype(np.float32, copy=False) for total in sums)
    return every, list(zip(means, (most.astype(np.float32) for most in largest), strict=True))


def _shares(scores: Levels) -> Levels:
    """Shares in the mixture that `border` sees: roots of weights, so that runners-up show in it.

    The same as `training.weighing.shares`.
    """
    weights = np.exp(scores - scores.max(axis=0))
    weights /= _total(weights)
    mean = weights.mean(axis=1)
    seen = np.sqrt(mean)
    seen *= mean > LEAST_SHARE * mean.max(axis=0)
    return np.asarray(seen / _total(seen), np.float32)


def _total(of_frames: Levels) -> Levels:
    """Sum over frames; in double precision their order makes no difference."""
    return np.asarray(of_frames.sum(axis=0, dtype=np.float64), np.float32)


@dataclass(frozen=True)
class Glance:
    """Coarse weights and contexts of all frames around a tile, at a quarter of the size.

    Attributes
    ----------
    networks
        The networks.
    tile, shape
        The tile, and rows and columns of the whole picture.
    scores, contexts
        For every frame its coarse scores, one for each band, and what else it is scored by:
        (1, planes, h, w).
    shares
        Share of every frame in the mixture that `border` sees beside a frame: (frames, h, w).
    part
        Side of parts in pixels.
    """

    networks: Networks
    tile: Tile
    shape: tuple[int, int]
    scores: Sequence[Levels]
    contexts: Sequence[Planes]
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

    def context(self, number: int, part: Tile) -> list[Planes]:
        """Scores and context of a frame around a part."""
        every = self.scores[number], self.contexts[number]
        return [np.ascontiguousarray(own[:, :, *self._within(part)]) for own in every]

    def weigh(self, part: Tile, frames: Mapping[int, Levels]) -> Levels:
        """Weigh frames at the pixels of a part: (frames, bands, h, w), adding up to 1."""
        lights = {number: light(frame) for number, frame in frames.items()}
        shares = {number: self.share(number, part) for number in lights}
        details = {}
        shape = next(iter(lights.values())).shape
        sums = np.zeros((2, *shape), np.float64)
        everywhere = Tile(*part.around, *part.around)
        for number, seen in lights.items():
            detail = details[number] = seen - blurred(seen, 5)
            if (box := box_of(everywhere, shares[number] > 0, 0)) is not None:
                there = relative(box.here, part.around)
                share = shares[number][there]
                cv2.accumulateProduct(share, seen[there], sums[0][there])
                cv2.accumulateProduct(share, np.abs(detail[there]), sums[1][there])
        mixture, strength = sums.astype(np.float32)
        strength = blurred(strength, 9)
        having = ((n, share[part.within] > 0) for n, share in shares.items())
        boxes = {n: box for n, has in having if (box := box_of(part, has, _NEAR, _COARSE))}
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
                    padded(np.stack([own[looked_at], of_all[looked_at]]), _COARSE, 0.0)
                    for own, of_all in ((lights[number], mixture), (details[number], strength))
                )
                context = self.context(number, box)
                made = self.networks("border", *planes, *context)[0][0][:, *box.within]
            has_share = shares[number][relative(box.here, part.around)] > 0
            np.copyto(scored[:, *there], made, where=has_share)
        scores -= scores.max(axis=0)
        weights = np.exp(scores, out=scores)
        weights *= weights > _LEAST_WEIGHT
        weights /= _total(weights)
        return weights

    def confidence(self, part: Tile, weights: Levels) -> Levels:
        """1 minus the second largest weight in the two finest bands over the largest."""
        first, second = np.zeros((2, *weights.shape[2:]), np.float32)
        for own in weights:
            detail = own[0] + own[1]
            np.maximum(second, np.minimum(first, detail), out=second)
            np.maximum(first, detail, out=first)
        return np.asarray(1 - second / first)
