"""The trained model's method: frames weighed at every pixel, band by band, mixed, and restored."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse import restoring
from cofuse.images import Fusion, Pixels
from cofuse.memory import Shelf
from cofuse.methods.distinct import distinct_frames
from cofuse.methods.run import Levels, Run
from cofuse.mixing import MIXED_BANDS, REACH, mean_of_channels, split
from cofuse.model import weighing
from cofuse.model.runtime import Networks, load_networks
from cofuse.model.telling import FrameTold, frames_told
from cofuse.model.tiles import Tile, tiles_of
from cofuse.model.weighing import weigh_tile
from cofuse.noise import NoiseLaw, estimate_noise
from cofuse.progress import Progress
from cofuse.restoring import NoiseLeft, restore
from cofuse.selection import Choice

__all__ = ["MixedRun"]


@dataclass
class MixedRun(Run):
    """Every stack goes one way, clean or noisy: weigh, mix, restore what noise is left."""

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
        """Make native pixels: mixed tile by tile, and restored where there is noise."""
        stack = self.stack
        shape = stack.height, stack.width
        networks = load_networks(self.settings.model, self.device)
        told, noise = frames_told(law), NoiseLeft(law)
        restores = denoise > 0 and bool(noise.typical.any())
        image = np.empty(stack.shape, stack.dtype)
        index = np.zeros(shape, np.uint8 if len(stack) <= 256 else np.uint16)
        confidence = np.ones(shape, np.float32)
        with ExitStack() as shelves:
            if restores:
                kept = self.plan.keep_pictures
                mixtures = shelves.enter_context(Shelf(1, stack.shape, np.float32, in_memory=kept))
                scales = shelves.enter_context(Shelf(1, shape, np.float32, in_memory=kept))
            side = weighing.tile_side(len(stack), keep=self.plan.keep_features)
            tiles = list(tiles_of(shape, side, weighing.HALO))
            with self.stage("fusion"):
                for done, tile in enumerate(tiles, start=1):
                    weights = self.weights(networks, told, tile)
                    mixture = self.mixed(weights, tile)
                    index[tile.here], confidence[tile.here] = _chosen(weights)
                    if restores:
                        mixtures.write(0, mixture, *tile.here)
                        scales.write(0, noise.scale(weights), *tile.here)
                    if not restores or self.preview is not None:
                        self.take(image, tile, mixture)
                    self.progress(Progress("fusion", done, len(tiles)))
            if restores:
                tiles = list(tiles_of(shape, restoring.SIDE, restoring.HALO))
                with self.stage("restoration"):
                    for done, tile in enumerate(tiles, start=1):
                        around = mixtures.read(0, *tile.around)
                        restored = restore(around, scales.read(0, *tile.around), noise)
                        mixture, restored = around[tile.within], restored[tile.within]
                        if denoise < 1:
                            restored = mixture + np.float32(denoise) * (restored - mixture)
                        self.take(image, tile, restored)
                        self.progress(Progress("restoration", done, len(tiles)))
        return image, Choice(index, confidence)

    def weights(self, networks: Networks, told: list[FrameTold], tile: Tile) -> Levels:
        """Weigh the frames in a tile; one frame alone is all there is."""
        if len(told) == 1:
            rows, columns = (part.stop - part.start for part in tile.here)
            return np.ones((1, MIXED_BANDS, rows, columns), np.float32)

        def read(number: int, where: tuple[slice, slice]) -> Levels:
            return mean_of_channels(self.read(number, where)) / np.float32(255)

        keep = self.plan.keep_features
        return weigh_tile(networks, read, told, self.stack.reference, tile, keep=keep)

    def mixed(self, weights: Levels, tile: Tile) -> Levels:
        """Mix the frames of a tile, in grey levels."""
        wider = Tile.of(tile.here, (self.stack.height, self.stack.width), REACH)
        mixture = np.zeros((3 if self.stack.is_colour else 1, *weights.shape[2:]), np.float32)
        for number, own in enumerate(weights):
            if not own.any():
                continue
            part = self.read(number, wider.around)
            for target, plane in zip(mixture, cv2.split(part), strict=True):
                for band, weight in zip(split(np.asarray(plane, np.float32)), own, strict=True):
                    target += weight * band[wider.within]
        return np.moveaxis(mixture, 0, -1) if self.stack.is_colour else mixture[0]

    def read(self, number: int, where: tuple[slice, slice]) -> Levels:
        """Read a part of a frame, in grey levels."""
        return self.stack.to_levels(self.stack.part_reader(number)(*where))

    def take(self, image: Pixels, tile: Tile, levels: Levels) -> None:
        """Put what is made of a tile into the picture."""
        image[tile.here] = self.stack.from_levels(levels)
        if self.preview is not None:
            self.preview(*tile.here, image[tile.here])


def _chosen(weights: Levels) -> tuple[NDArray[np.intp], Levels]:
    """Which frame gives most of the detail, and how clearly more than the next."""
    detail = weights[:, :2].mean(axis=1)
    best = detail.argmax(axis=0)
    if len(detail) == 1:
        return best, np.ones(best.shape, np.float32)
    second, first = np.partition(detail, -2, axis=0)[-2:]
    return best, 1 - second / first
