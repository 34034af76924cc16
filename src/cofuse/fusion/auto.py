"""The trained model's method: frames weighed at every pixel, band by band, mixed, and restored."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.fusion.choice import Choice
from cofuse.fusion.distinct import distinct_frames
from cofuse.fusion.presets import AutoSettings
from cofuse.fusion.run import Run
from cofuse.images import Fusion, Levels, Pixels
from cofuse.images.bands import MIXED_BANDS, smoothed
from cofuse.images.spill import Shelf
from cofuse.images.tiles import Tile, tiles_of
from cofuse.model import restoring, weighing
from cofuse.model.restoring import NoiseLeft, halved, restore
from cofuse.model.runtime import Networks, load_networks
from cofuse.model.telling import FrameTold, frames_told
from cofuse.model.weighing import glance, light, weigh
from cofuse.progress import Preview, Progress
from cofuse.sensor import NoiseLaw, estimate_noise

__all__ = ["AutoRun", "is_lottery"]

#: See `is_lottery`.
_LOTTERY = 0.25


@dataclass(kw_only=True)
class AutoRun(Run):
    """Every stack goes one way, clean or noisy: weigh, mix, restore what noise is left."""

    settings: AutoSettings
    #: Whether the features of all frames of a large tile are kept; see `fusion.memory`.
    keep_features: bool = True
    #: Told of every part of the picture as soon as it is there; noise may be taken out after that.
    preview: Preview | None = None

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; ``denoise`` blends the mixture with the restored one."""
        numbers = distinct_frames(self.stack)
        every, self.stack = self.stack, self.stack.only(numbers)
        given = noise is not None
        if noise is not None:
            self.noise = noise.only(numbers)
        else:
            with self.stage("noise"):
                self.noise = estimate_noise(self.stack, progress=self.progress)
        removed = self.noise.beyond_texture() if self.noise.estimated else self.noise
        self.sigma = self.noise.sigma if removed.overall > 0 else 0.0
        image, choice = self.weigh_and_restore(removed, denoise)
        fusion = self.result(image, choice, estimated=not given)
        index: NDArray[np.unsignedinteger[Any]] = np.array(
            numbers, np.uint8 if len(every) <= 256 else np.uint16
        )
        return replace(fusion, source_map=index[choice.index])

    def weigh_and_restore(self, law: NoiseLaw, denoise: float) -> tuple[Pixels, Choice]:
        """Mix tile by tile, restore where there is noise, and return native pixels."""
        stack = self.stack
        shape = stack.height, stack.width
        networks = load_networks(self.settings.model, self.device)
        noise = NoiseLeft(law)
        restores = denoise > 0 and bool(noise.typical.any())
        image = np.empty(stack.shape, stack.dtype)
        index = np.zeros(shape, np.uint8 if len(stack) <= 256 else np.uint16)
        confidence = np.ones(shape, np.float32)
        with ExitStack() as shelves:
            if restores:
                mixtures = shelves.enter_context(Shelf(1, stack.shape, np.float32))
                half = tuple(-(-length // 2) for length in shape)
                scales = shelves.enter_context(Shelf(1, (*half, MIXED_BANDS), np.float32))
            with self.stage("fusion"):
                done = lottery = 0
                for part, numbers, weights, mixture in self.mixed(networks, frames_told(law)):
                    best, largest, confidence[part.here] = _chosen(weights)
                    lottery += int(is_lottery(largest, len(stack)).sum())
                    index[part.here] = np.array(numbers)[best]
                    if restores:
                        mixtures.write(0, mixture, *part.here)
                        scales.write(0, noise.scales(numbers, weights), *halved(part.here))
                    if not restores or self.preview is not None:
                        self.take(image, part, mixture)
                    done += math.prod(weights.shape[2:])
                    self.progress(Progress("fusion", done, math.prod(shape)))
            if 2 * lottery > math.prod(shape):
                warnings.warn(
                    "the frames hardly differ in focus: most of the picture is a mean of all, and "
                    "the source map, like depth made from it, says little",
                    stacklevel=3,
                )
            if restores:
                tiles = list(tiles_of(shape, restoring.SIDE, restoring.HALO))
                with self.stage("restoration"):
                    for done, tile in enumerate(tiles, start=1):
                        around = mixtures.read(0, *tile.around)
                        told = scales.read(0, *halved(tile.around))
                        restored = restore(networks, around, told, noise)
                        mixture, restored = around[tile.within], restored[tile.within]
                        if denoise < 1:
                            restored = mixture + np.float32(denoise) * (restored - mixture)
                        self.take(image, tile, restored)
                        self.progress(Progress("restoration", done, len(tiles)))
        return image, Choice(index, confidence)

    def mixed(
        self, networks: Networks, told: list[FrameTold]
    ) -> Iterator[tuple[Tile, list[int], Levels, Levels]]:
        """Yield every part with the numbers of the frames in it, their weights, and the mixture."""
        stack = self.stack
        shape = stack.height, stack.width
        side = weighing.tile_side(len(stack), keep=self.keep_features)

        for tile in tiles_of(shape, side, weighing.HALO):
            if len(stack) == 1:
                rows, columns = (part.stop - part.start for part in tile.here)
                whole = np.ones((1, MIXED_BANDS, rows, columns), np.float32)
                yield tile, [0], whole, stack.part_levels(0, tile.here)
            else:
                seen = glance(networks, stack, told, tile, keep=self.keep_features)
                for part, numbers in seen.parts(shape):
                    frames = {number: stack.part_levels(number, part.around) for number in numbers}
                    lights = {number: light(frame) for number, frame in frames.items()}
                    weights = weigh(networks, seen, part, lights)
                    yield part, numbers, weights, _mixed(frames.values(), weights, part)

    def take(self, image: Pixels, tile: Tile, levels: Levels) -> None:
        """Write a tile into the picture in native values, and show it to the preview."""
        image[tile.here] = self.stack.from_levels(levels)
        if self.preview is not None:
            self.preview(*tile.here, image[tile.here])


def is_lottery(largest: Levels, frames: int) -> NDArray[np.bool_]:
    """Where the largest weight is less than `_LOTTERY` of the way from an even share to 1."""
    even = 1 / frames
    return np.asarray(largest < even + _LOTTERY * (1 - even))


def _mixed(frames: Iterable[Levels], weights: Levels, part: Tile) -> Levels:
    """Mix frames, given with the halo of a part, by weights (frames, bands, h, w)."""
    mixture: list[Levels] = []
    for frame, own in zip(frames, weights, strict=True):
        if not mixture:
            channels = 1 if frame.ndim == 2 else frame.shape[2]
            mixture = [np.zeros(weights.shape[2:], np.float32) for _ in range(channels)]
        if own.any():
            # The same as to weigh bands, which are differences of neighbouring smoothed pictures.
            steps = [own[0], *(coarser - finer for finer, coarser in pairwise(own))]
            for picture, step in zip(smoothed(frame), steps, strict=True):
                for target, plane in zip(mixture, cv2.split(picture[part.within]), strict=True):
                    cv2.accumulateProduct(plane, step, target)
    return mixture[0] if len(mixture) == 1 else np.asarray(cv2.merge(mixture), np.float32)


def _chosen(weights: Levels) -> tuple[NDArray[np.intp], Levels, Levels]:
    """Number of the frame with the largest weight in the two finest bands, that weight, and the
    confidence: 1 minus the second largest over the largest.
    """
    detail = weights[:, :2].mean(axis=1)
    best = np.zeros(detail.shape[1:], np.intp)
    first, second = detail[0].copy(), np.zeros(best.shape, np.float32)
    for number, own in enumerate(detail[1:], start=1):
        best[own > first] = number
        np.maximum(second, np.minimum(first, own), out=second)
        np.maximum(first, own, out=first)
    return best, first, 1 - second / first
