"""The letter's method: choose patches, estimate each, average them, reconstruct the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.fusion.mixing import Choice, Indices, Run, choose
from cofuse.fusion.presets import PaperSettings
from cofuse.images import Fusion, Levels, Pixels, from_opponent, to_opponent
from cofuse.operators import AnalysisOperator
from cofuse.operators.cosparse import estimate_patches
from cofuse.operators.patches import (
    Positions,
    add_patches,
    average_patches,
    patch_positions,
    take_patches,
)
from cofuse.operators.reconstruction import reconstruct
from cofuse.progress import Progress
from cofuse.sensor import NoiseLaw, estimate_noise


@dataclass(kw_only=True)
class PaperRun(Run):
    """The letter's method, patch by patch."""

    settings: PaperSettings
    operator: AnalysisOperator

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; the letter knows no strength between all and nothing, ``denoise`` is 1."""
        estimated = noise is None
        if noise is None:
            with self.stage("noise"):
                noise = estimate_noise(self.stack, progress=self.progress)
        self.noise = noise
        self.sigma = (noise.to_remove() if estimated else noise).sigma
        image, choice = self.estimate_and_reconstruct()
        return self.result(image, choice, estimated=estimated)

    def estimate_and_reconstruct(self) -> tuple[Pixels, Choice]:
        """Choose patches, estimate each, average them, and reconstruct the whole."""
        stack, settings, operator = self.stack, self.settings, self.operator
        n = operator.patch_size
        shape = (stack.height, stack.width)
        positions = patch_positions(shape, n, settings.stride or n - 1)

        def activity(index: int) -> Levels:
            patches = take_patches(stack.luminance(index), n, positions)
            magnitudes = np.abs(operator.apply(patches))
            return np.asarray(magnitudes.sum(axis=0).reshape([*map(len, positions)]))

        with self.stage("choice"):
            chosen = choose(self.each_frame("choice", activity))
            choice = patch_votes(chosen, len(stack), n, shape, positions)

        def frame_planes(index: int) -> Levels:
            return to_opponent(stack.to_levels(stack[index]))

        with self.stage("local estimate"):
            frames = self.each_frame("local estimate", frame_planes)
            planes = gather_patches(frames, chosen.index, n, positions)
            estimates = []
            for name, patches in zip(self.plane_names(), planes, strict=True):
                if self.sigma > 0:
                    patches, trace = estimate_patches(
                        patches,
                        operator,
                        weight=settings.local_weight * self.sigma,
                        epsilon=settings.epsilon,
                        x_step=settings.x_step,
                        max_iterations=settings.max_iterations,
                    )
                    self.trace[f"local estimate{name}"] = trace
                estimates.append(average_patches(patches, shape, positions))
        with self.stage("reconstruction"):
            estimate = from_opponent(np.stack(estimates, axis=-1))
            image = self.by_plane("planes", estimate, self.reconstruct_plane)
        return image, choice

    def reconstruct_plane(self, plane: Levels, name: str) -> Levels:
        """Solve the letter's global problem on one plane; without noise there is none."""
        if self.sigma == 0 or self.settings.global_weight == 0:
            return plane
        plane, self.trace[f"reconstruction{name}"] = reconstruct(
            plane,
            self.operator,
            weight=self.settings.global_weight * self.sigma,
            accuracy=self.settings.accuracy,
            max_iterations=self.settings.max_iterations,
            progress=self.progress,
        )
        return plane

    def by_plane(self, stage: str, levels: Levels, work: Callable[[Levels, str], Levels]) -> Pixels:
        """Restore luminance and chrominance planes one by one and return native pixels."""
        planes = to_opponent(levels)
        done = []
        for index, name in enumerate(self.plane_names()):
            done.append(work(np.ascontiguousarray(planes[..., index]), name))
            self.progress(Progress(stage, index + 1, planes.shape[-1]))
        return self.stack.from_levels(from_opponent(np.stack(done, axis=-1)))

    def plane_names(self) -> tuple[str, ...]:
        """Suffixes that tell the planes of a colour picture apart in traces."""
        return (" Y", " C1", " C2") if self.stack.is_colour else ("",)

    def each_frame(self, stage: str, work: Callable[[int], Any]) -> Iterator[Any]:
        """Do ``work`` on one frame after the other, reporting each."""
        for index in range(len(self.stack)):
            yield work(index)
            self.progress(Progress(stage, index + 1, len(self.stack)))


def gather_patches(
    frames: Iterable[Levels], index: Indices, patch_size: int, positions: Positions
) -> Levels:
    """Take every patch from its chosen frame, shape (planes, n², patches).

    ``frames`` have shape (H, W, planes) and pass one at a time.
    """
    chosen_frame = index.ravel()
    gathered: Levels | None = None
    for number, frame in enumerate(frames):
        if gathered is None:
            gathered = np.empty((frame.shape[-1], patch_size**2, chosen_frame.size), np.float32)
        mine = chosen_frame == number
        if mine.any():
            for plane in range(frame.shape[-1]):
                patches = take_patches(frame[..., plane], patch_size, positions)
                gathered[plane][:, mine] = patches[:, mine]
    assert gathered is not None, "a stack has at least one frame"
    return gathered


def patch_votes(
    choice: Choice, frames: int, patch_size: int, shape: tuple[int, int], positions: Positions
) -> Choice:
    """Turn a choice of patches into one of pixels: the frame most covering patches chose."""

    def votes(values: NDArray[Any]) -> Levels:
        spread = np.broadcast_to(values.ravel(), (patch_size**2, values.size))
        return add_patches(spread.astype(np.float32), shape, positions)

    majority = choose(votes(choice.index == k) for k in range(frames))
    confidence = votes(choice.confidence) / votes(np.ones_like(choice.confidence))
    return Choice(majority.index, confidence)
