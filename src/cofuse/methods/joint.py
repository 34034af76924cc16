"""The joint model's method: every frame weighed at every pixel, their mixture restored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.camera_noise import StackNoise, estimate_stack_noise
from cofuse.images import Fusion, Pixels, from_opponent, luminance, to_opponent
from cofuse.joint import JointModel, load_model
from cofuse.joint_fusion import JointResult, PlaneReader, fuse_planes
from cofuse.methods.fitness import unfit_blocks
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
        if copied is None or strength > 0:
            fused = self.weigh(
                model, [self.reader(k, noise) for k in range(len(stack))], levels, strength > 0
            )
            with self.stage("composition"):
                image, choice = self.compose(fused, noise, strength, copied)
        else:
            image = copied
        return self.result(image, choice, estimated=sigma is None)

    def weigh(
        self,
        model: JointModel,
        readers: list[PlaneReader],
        levels: NDArray[np.float64],
        restore: bool,
        shape: tuple[int, int] | None = None,
    ) -> JointResult:
        """Run the model on frames, none of them used where it cannot be right."""
        shape = shape or (self.stack.height, self.stack.width)
        with self.stage("fusion"):
            unfit = None
            if len(readers) > 1:
                noise = levels[:, 0].astype(np.float32)
                # The luminance of opponent planes is √3 times that of a grey picture.
                white = 255.0 * np.sqrt(levels.shape[1])
                unfit = unfit_blocks(readers, shape, noise, self.stack.names, white=white)
            return fuse_planes(
                model,
                readers,
                shape,
                levels,
                restore=restore,
                weights=self.settings.weights,
                unfit=unfit,
                progress=self.progress,
            )

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
            frame = stack[number]

            def read(rows: slice, columns: slice) -> Levels:
                part = frame[
                    rows.start * scale : rows.stop * scale,
                    columns.start * scale : columns.stop * scale,
                ]
                return reduce(luminance(stack.to_levels(part)), scale)[..., None]

            return read

        readers = [reader(number) for number in range(len(stack))]
        fused = self.weigh(model, readers, levels[:, :1] / scale, False, shape)
        with self.stage("composition"):
            choice = self.clean_up(fused)
            choice = spread_choice(choice, scale, (stack.height, stack.width), len(stack))
            frames = self.each_frame("composition", stack.__getitem__)
            # A border is known to a small picture's pixel: it is blended over as much.
            seam = 1 if settings.seam == 1 else 2 * scale + 1
            image = compose(stack, frames, choice.index, seam=seam)
        return image, choice

    def clean_up(self, fused: JointResult) -> Choice:
        """Take specks out of the choice."""
        fair_share = fused.index.size / len(self.stack)
        smallest = round(self.settings.smallest_region * fair_share)
        return remove_small_regions(
            Choice(fused.index, fused.confidence), smallest, only_specks=True
        )

    def reader(self, number: int, noise: StackNoise) -> PlaneReader:
        """Read parts of a frame as planes in which the noise is white."""
        frame = self.stack[number]

        def read(rows: slice, columns: slice) -> Levels:
            levels = self.stack.to_levels(frame[rows, columns])
            return to_opponent(noise.model.stabilise(levels))

        return read

    def compose(
        self, fused: JointResult, noise: StackNoise, strength: float, copied: Pixels | None
    ) -> tuple[Pixels, Choice]:
        """Make native pixels: copied ones, restored ones, or a blend of both."""
        stack, settings = self.stack, self.settings
        choice = self.clean_up(fused)
        if strength < 1 and copied is None:
            mixed = noise.model.restore(from_opponent(fused.mixed))
            frames = self.each_frame("composition", stack.__getitem__)
            copied = compose_with(stack, frames, choice.index, mixed, seam=settings.seam)
        if fused.restored is None:
            assert copied is not None, "without restoring, all pixels are copies"
            return copied, choice
        restored = noise.model.restore_mean(from_opponent(fused.restored))
        if copied is not None:
            untouched = stack.to_levels(copied)
            restored = untouched + np.float32(strength) * (restored - untouched)
        return stack.from_levels(restored), choice


def noise_of_frames(noise: StackNoise) -> NDArray[np.float64]:
    """Noise level of every plane of every frame, shape (frames, planes)."""
    typical = float(np.median(noise.frames))
    share = np.array(noise.frames) / typical if typical > 0 else np.ones(len(noise.frames))
    return np.asarray(share[:, None] * np.array(noise.planes))


def _white(run: JointRun, sigma: float) -> tuple[StackNoise, NDArray[np.float64]]:
    """White noise of one level in all frames and planes."""
    noise = StackNoise.white(sigma, frames=len(run.stack), colour=run.stack.is_colour)
    return noise, noise_of_frames(noise)
