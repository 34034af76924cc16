"""The joint model's method: every frame weighed at every pixel, their mixture restored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.camera_noise import StackNoise, estimate_stack_noise
from cofuse.images import Fusion, Pixels, from_opponent, luminance, to_opponent
from cofuse.joint import JointModel, load_model
from cofuse.joint_fusion import JointResult, PlaneReader, fuse_tiles
from cofuse.memory import Shelf
from cofuse.methods.fitness import Fitness, judge_frames
from cofuse.methods.focus import can_tell_focus, focus_of, out_of_focus_blocks
from cofuse.methods.run import Levels, Run
from cofuse.noise import CLEAN_BELOW
from cofuse.selection import (
    Choice,
    compose,
    compose_with,
    picture_scale,
    reduce,
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

    def fuse(self, sigma: float | None, denoise: float) -> Fusion:
        """Fuse; ``denoise`` blends the copied pixels with the restored ones."""
        stack = self.stack
        model = load_model(self.settings.model)
        if sigma is None:
            with self.stage("noise"):
                noise = estimate_stack_noise(stack, progress=self.progress)
                levels = noise_of_frames(noise)
                if np.sqrt(np.mean(levels**2)) < CLEAN_BELOW:
                    noise, levels = _white(self, 0.0)
        else:
            noise, levels = _white(self, sigma)
        level = float(np.sqrt(np.mean(levels**2)))
        self.sigma = float(noise.model.sigma_at(127.5)) if noise.model.gain > 0 else level
        # Towards no noise at all the picture tends to the copied one: the model knows no noise
        # below one grey level.
        strength = denoise * min(1.0, level**2)
        copied: Pixels | None = None
        if strength < 1 and (scale := picture_scale(stack)) > 1:
            copied, choice = self.copied_from_small(model, levels, scale)
            if strength == 0:
                return self.result(copied, choice, estimated=sigma is None)
        with ExitStack() as shelves:
            image, choice = self.woven(model, noise, levels, strength, copied, shelves)
        return self.result(image, choice, estimated=sigma is None)

    def woven(
        self,
        model: JointModel,
        noise: StackNoise,
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
            mixed = Shelf(1, shape, np.float32, in_memory=self.plan.keep_pictures)
            shelves.enter_context(mixed)
        if 0 < strength < 1:
            restored = shelves.enter_context(Shelf(1, shape, np.float32, in_memory=False))
        elif strength > 0:
            image = np.empty(stack.shape, stack.dtype)

        def take(here: tuple[slice, slice], part: JointResult) -> None:
            if mixed is not None:
                mixed.write(0, part.mixed, *here)
            if part.restored is not None:
                planes = np.ascontiguousarray(part.restored)
                if restored is not None:
                    restored.write(0, planes, *here)
                if image is not None:
                    levels = model_of_noise.restore_mean(from_opponent(planes))
                    image[here] = stack.from_levels(levels)

        readers = [self.reader(k, noise) for k in range(len(stack))]
        choice = self.weigh(model, readers, levels, take, restore=strength > 0, copy=strength < 1)
        with self.stage("composition"):
            choice = self.clean_up(choice)
            if mixed is not None:
                rows = _MixedRows(mixed, noise)
                frames = self.each_frame("composition", stack.__getitem__)
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
        take: Taker | None = None,
        shape: tuple[int, int] | None = None,
        *,
        restore: bool,
        copy: bool = True,
    ) -> Choice:
        """Run the model on frames, none of them used where it cannot be right.

        Where pixels are going to be copied one frame must be right: where the model cannot tell,
        they are held to the depth. What is only restored is a mixture, to which all of them add.
        """
        shape = shape or (self.stack.height, self.stack.width)
        index = np.empty(shape, np.uint8 if len(readers) <= 256 else np.uint16)
        confidence = np.empty(shape, np.float32)
        with self.stage("fusion"):
            unfit = None
            if len(readers) > 1:
                fitness = judge_frames(
                    readers,
                    shape,
                    levels[:, 0].astype(np.float32),
                    self.stack.names,
                    # The luminance of opponent planes is √3 times that of a grey picture.
                    white=255.0 * np.sqrt(levels.shape[1]),
                    in_memory=self.plan.keep_blocks,
                )
                unfit = fitness.unfit
                if copy and can_tell_focus(self.stack):
                    unfit = self.held_to_focus(fitness, shape)
            tiles = fuse_tiles(
                model,
                readers,
                shape,
                levels,
                restore=restore,
                weights=self.settings.weights,
                unfit=unfit,
                keep_planes=self.plan.keep_planes,
                keep_scores=self.plan.keep_scores,
                progress=self.progress,
            )
            for here, part in tiles:
                index[here], confidence[here] = part.index, part.confidence
                if take is not None:
                    take(here, part)
        return Choice(index, confidence)

    def held_to_focus(self, fitness: Fitness, shape: tuple[int, int]) -> NDArray[np.bool_]:
        """Where frames must not be used, being unfit or too far from the depth."""
        depth = focus_of(self.stack, self.progress)
        if depth is None:
            return fitness.unfit
        far = out_of_focus_blocks(depth, shape, everywhere=fitness.is_beyond_model)
        held = fitness.unfit | far
        none = held.all(axis=0)
        held[:, none] = fitness.unfit[:, none]
        return held

    def copied_from_small(
        self, model: JointModel, levels: NDArray[np.float64], scale: int
    ) -> tuple[Pixels, Choice]:
        """Copy pixels, chosen on frames that are made smaller.

        Frames with more pixels than detail, as microscopes make them, are softer than any picture
        the model has learned from; made smaller they are not.
        """
        stack, settings = self.stack, self.settings
        shape = -(-stack.height // scale), -(-stack.width // scale)

        def reader(number: int) -> PlaneReader:
            cut = stack.part_reader(number)

            def read(rows: slice, columns: slice) -> Levels:
                part = cut(
                    slice(rows.start * scale, rows.stop * scale),
                    slice(columns.start * scale, columns.stop * scale),
                )
                return reduce(luminance(stack.to_levels(part)), scale)[..., None]

            return read

        readers = [reader(number) for number in range(len(stack))]
        choice = self.weigh(model, readers, levels[:, :1] / scale, shape=shape, restore=False)
        with self.stage("composition"):
            choice = self.clean_up(choice)
            choice = spread_choice(choice, scale, (stack.height, stack.width), len(stack))
            frames = self.each_frame("composition", stack.__getitem__)
            # A border is known to a small picture's pixel: it is blended over as much.
            seam = 1 if settings.seam == 1 else 2 * scale + 1
            image = compose(stack, frames, choice.index, seam=seam)
        return image, choice

    def clean_up(self, choice: Choice) -> Choice:
        """Take specks out of the choice."""
        fair_share = choice.index.size / len(self.stack)
        smallest = round(self.settings.smallest_region * fair_share)
        return remove_small_regions(choice, smallest, only_specks=True)

    def reader(self, number: int, noise: StackNoise) -> PlaneReader:
        """Read parts of a frame as planes in which the noise is white."""
        cut = self.stack.part_reader(number)

        def read(rows: slice, columns: slice) -> Levels:
            levels = self.stack.to_levels(cut(rows, columns))
            return to_opponent(noise.model.stabilise(levels))

        return read


@dataclass(frozen=True)
class _MixedRows:
    """The mixture in grey levels, by rows."""

    mixed: Shelf
    noise: StackNoise

    def __getitem__(self, rows: slice) -> Levels:
        return self.noise.model.restore(from_opponent(self.mixed.read(0, rows)))


def noise_of_frames(noise: StackNoise) -> NDArray[np.float64]:
    """Noise level of every plane of every frame, shape (frames, planes)."""
    typical = float(np.median(noise.frames))
    share = np.array(noise.frames) / typical if typical > 0 else np.ones(len(noise.frames))
    return np.asarray(share[:, None] * np.array(noise.planes))


def _white(run: JointRun, sigma: float) -> tuple[StackNoise, NDArray[np.float64]]:
    """White noise of one level in all frames and planes."""
    noise = StackNoise.white(sigma, frames=len(run.stack), colour=run.stack.is_colour)
    return noise, noise_of_frames(noise)
