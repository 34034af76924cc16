"""The joint model's method: every frame weighed at every pixel, their mixture restored."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.images import (
    Fusion,
    Pixels,
    Stack,
    from_opponent,
    luminance_weights,
    to_opponent,
)
from cofuse.joint import JointModel, load_model
from cofuse.joint_fusion import JointResult, PlaneReader, fuse_tiles
from cofuse.memory import Shelf
from cofuse.methods.distinct import distinct_frames
from cofuse.methods.joint_device import weigh_on_device
from cofuse.methods.run import Levels, Run
from cofuse.noise import NoiseLaw
from cofuse.noise.spectrum import levels_of_smaller
from cofuse.selection import (
    Choice,
    compose,
    compose_with,
    picture_scale,
    remove_small_regions,
    spread_choice,
)

__all__ = ["JointRun"]

#: Rows that are blended at a time.
_BAND = 256

#: Takes rows and columns of a result and what the model makes of them.
Taker = Callable[[tuple[slice, slice], JointResult], None]


@dataclass
class JointRun(Run):
    """Clean stacks are copied, and mixed along the choice's borders; noisy ones are restored."""

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; ``denoise`` blends the copied pixels with the restored ones."""
        numbers = distinct_frames(self.stack)
        if len(numbers) == len(self.stack):
            return self.fuse_distinct(noise, denoise)
        every, self.stack = self.stack, self.stack.only(numbers)
        fusion = self.fuse_distinct(noise and noise.only(numbers), denoise)
        index: NDArray[np.unsignedinteger[Any]] = np.array(
            numbers, np.uint8 if len(every) <= 256 else np.uint16
        )
        assert fusion.source_map is not None, "a choice has been made"
        return replace(fusion, source_map=index[fusion.source_map])

    def fuse_distinct(self, given: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse frames of which none repeats another."""
        stack = self.stack
        model = load_model(self.settings.model)
        noise = self.find_noise(given)
        levels = noise.levels
        # Towards no noise at all the picture tends to the copied one: the model knows no noise
        # below one grey level.
        strength = denoise * min(1.0, noise.overall**2)
        copied: Pixels | None = None
        if strength < 1 and (scale := picture_scale(stack)) > 1:
            copied, choice = self.copied_from_small(model, levels, scale)
            if strength == 0:
                return self.result(copied, choice, estimated=given is None)
        with ExitStack() as shelves:
            image, choice = self.woven(model, noise, levels, strength, copied, shelves)
        return self.result(image, choice, estimated=given is None)

    def woven(
        self,
        model: JointModel,
        noise: NoiseLaw,
        levels: NDArray[np.float64],
        strength: float,
        copied: Pixels | None,
        shelves: ExitStack,
    ) -> tuple[Pixels, Choice]:
        """Weigh the frames and make native pixels: copied ones, restored ones, or a blend of both.

        Whole pictures in floats are put on ``shelves``, and only those that are needed.
        """
        stack, model_of_noise = self.stack, noise.model
        shape = stack.height, stack.width, levels.shape[1]
        mixed = restored = image = None
        if strength < 1 and copied is None:
            mixed = Shelf(1, stack.shape, stack.dtype, in_memory=self.plan.keep_pictures)
            shelves.enter_context(mixed)
        if 0 < strength < 1:
            restored = shelves.enter_context(Shelf(1, shape, np.float32, in_memory=False))
        elif strength > 0:
            image = np.empty(stack.shape, stack.dtype)

        def take(here: tuple[slice, slice], part: JointResult) -> None:
            if mixed is not None:
                pixels = stack.from_levels(model_of_noise.restore(from_opponent(part.mixed)))
                mixed.write(0, pixels, *here)
                if self.preview is not None:
                    self.preview(*here, pixels)
            if part.restored is not None:
                planes = np.ascontiguousarray(part.restored)
                if restored is not None:
                    restored.write(0, planes, *here)
                if image is not None:
                    levels = model_of_noise.restore_mean(from_opponent(planes))
                    image[here] = stack.from_levels(levels)
                    if self.preview is not None:
                        self.preview(*here, image[here])

        restore = strength > 0
        if self.device == "cpu":
            readers = [self.reader(number, noise) for number in range(len(stack))]
            first = self.first_planes(noise)
            choice = self.weigh(model, readers, levels, take, first=first, restore=restore)
        else:
            choice = weigh_on_device(self, model, noise, levels, take, image, restore=restore)
        with self.stage("composition"):
            choice = self.clean_up(choice)
            if mixed is not None:
                frames = self.each_frame("composition", stack.__getitem__)
                rows = _LevelRows(stack, mixed)
                copied = compose_with(stack, frames, choice.index, rows, seam=self.settings.seam)
            if image is None:
                assert copied is not None, "what is not all restored is copied"
                image = copied
            if restored is not None:
                for top in range(0, stack.height, _BAND):
                    here = slice(top, top + _BAND)
                    clean = model_of_noise.restore_mean(from_opponent(restored.read(0, here)))
                    untouched = stack.to_levels(image[here])
                    blend = untouched + np.float32(strength) * (clean - untouched)
                    image[here] = stack.from_levels(blend)
        return image, choice

    def weigh(
        self,
        model: JointModel,
        readers: list[PlaneReader],
        levels: NDArray[np.float64],
        take: Taker,
        *,
        first: list[PlaneReader],
        scale: int = 1,
        restore: bool,
    ) -> Choice:
        """Run the model on frames made ``scale`` times smaller; ``take`` gets every tile.

        ``first`` reads no more than the first plane of every frame.
        """
        shape = -(-self.stack.height // scale), -(-self.stack.width // scale)
        index = np.empty(shape, np.uint8 if len(self.stack) <= 256 else np.uint16)
        confidence = np.empty(shape, np.float32)
        with self.stage("fusion"):
            tiles = fuse_tiles(
                model,
                readers,
                shape,
                levels,
                restore=restore,
                weights=self.settings.weights,
                looks=first,
                keep_planes=self.plan.keep_planes,
                keep_scores=self.plan.keep_scores,
                progress=self.progress,
            )
            for here, part in tiles:
                index[here], confidence[here] = part.index, part.confidence
                take(here, part)
        return Choice(index, confidence)

    def copied_from_small(
        self, model: JointModel, levels: NDArray[np.float64], scale: int
    ) -> tuple[Pixels, Choice]:
        """Copy pixels, chosen on frames that are made smaller.

        Frames with more pixels than detail, as microscopes make them, are softer than any picture
        the model has learned from; made smaller they are not.
        """
        stack, settings = self.stack, self.settings
        self.device = "cpu"  # whatever was asked for: only the CPU has this way
        readers = [self.small_reader(number, scale) for number in range(len(stack))]

        def show(here: tuple[slice, slice], part: JointResult) -> None:
            if self.preview is not None:
                rows, columns = (slice(s.start * scale, s.stop * scale) for s in here)
                self.preview(rows, columns, self.pixels_of(part.index, (rows, columns), scale))

        choice = self.weigh(
            model,
            readers,
            levels_of_smaller(levels[:, :1], scale),
            show,
            first=readers,
            scale=scale,
            restore=False,
        )
        with self.stage("composition"):
            choice = self.clean_up(choice)
            choice = spread_choice(choice, scale, (stack.height, stack.width), len(stack))
            frames = self.each_frame("composition", stack.__getitem__)
            # A border is known to a small picture's pixel: it is blended over as much.
            seam = 1 if settings.seam == 1 else 2 * scale + 1
            image = compose(stack, frames, choice.index, seam=seam)
        return image, choice

    def pixels_of(self, index: NDArray[Any], here: tuple[slice, slice], scale: int) -> Pixels:
        """Copy rows and columns by a choice made on frames so many times smaller."""
        from cofuse.kernels.pictures import copy_chosen

        parts = {int(k): self.stack.part_reader(int(k))(*here) for k in np.unique(index)}
        pixels = np.empty_like(next(iter(parts.values())))
        large = index.repeat(scale, axis=0).repeat(scale, axis=1)
        large = np.ascontiguousarray(large[: pixels.shape[0], : pixels.shape[1]])
        for number, part in parts.items():
            copy_chosen(part, large, number, pixels)
        return pixels

    def clean_up(self, choice: Choice) -> Choice:
        """Take specks out of the choice."""
        fair_share = choice.index.size / len(self.stack)
        smallest = round(self.settings.smallest_region * fair_share)
        return remove_small_regions(choice, smallest, only_specks=True)

    def small_reader(self, number: int, scale: int) -> PlaneReader:
        """Read parts of a frame's luminance, made smaller."""
        from cofuse.kernels.pictures import luminance_means

        cut, weights = self.stack.part_reader(number), luminance_weights(self.stack)

        def read(rows: slice, columns: slice) -> Levels:
            part = cut(
                slice(rows.start * scale, rows.stop * scale),
                slice(columns.start * scale, columns.stop * scale),
            )
            return luminance_means(part, weights, scale)[..., None]

        return read

    def first_planes(self, noise: NoiseLaw) -> list[PlaneReader]:
        """Read parts of the first of the planes that `reader` reads."""
        from cofuse.kernels.pictures import luminance_means

        if noise.model.gain > 0:
            return [self.reader(number, noise) for number in range(len(self.stack))]
        channels = 3 if self.stack.is_colour else 1
        weights = [255.0 / self.stack.white / math.sqrt(channels)] * channels

        def reader(number: int) -> PlaneReader:
            cut = self.stack.part_reader(number)
            return lambda rows, columns: luminance_means(cut(rows, columns), weights)[..., None]

        return [reader(number) for number in range(len(self.stack))]

    def reader(self, number: int, noise: NoiseLaw) -> PlaneReader:
        """Read parts of a frame as planes in which the noise is white."""
        cut = self.stack.part_reader(number)

        def read(rows: slice, columns: slice) -> Levels:
            levels = self.stack.to_levels(cut(rows, columns))
            return to_opponent(noise.model.stabilise(levels))

        return read


@dataclass(frozen=True)
class _LevelRows:
    """A picture on a shelf in grey levels, by rows."""

    stack: Stack
    pictures: Shelf

    def __getitem__(self, rows: slice) -> Levels:
        return self.stack.to_levels(self.pictures.read(0, rows))
