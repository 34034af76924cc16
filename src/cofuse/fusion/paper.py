"""The letter's method: choose patches, estimate each, average them, reconstruct the whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cofuse.errors import CofuseError
from cofuse.fusion.choice import Choice, choose, gather_patches, patch_activity, patch_votes
from cofuse.fusion.run import Run
from cofuse.images import Fusion, Levels, Pixels, from_opponent, to_opponent
from cofuse.operators import AnalysisOperator
from cofuse.operators.cosparse import estimate_patches
from cofuse.operators.patches import average_patches, patch_positions
from cofuse.operators.reconstruction import reconstruct
from cofuse.sensor import NoiseLaw

__all__ = ["LetterRun"]


@dataclass
class LetterRun(Run):
    """The letter's method, patch by patch."""

    operator: AnalysisOperator = field(kw_only=True)

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; the letter knows no strength between all and nothing."""
        if denoise != 1:
            raise CofuseError(
                f"denoise is {denoise}, but the letter's method restores whole; use the preset "
                "auto or fast, or sigma 0"
            )
        self.find_noise(noise)
        image, choice = self.estimate_and_reconstruct()
        return self.result(image, choice, estimated=noise is None)

    def estimate_and_reconstruct(self) -> tuple[Pixels, Choice]:
        """Choose patches, estimate each, average them, and reconstruct the whole."""
        stack, settings, operator = self.stack, self.settings, self.operator
        n = operator.patch_size
        shape = (stack.height, stack.width)
        positions = patch_positions(shape, n, settings.stride or n - 1)

        def activity(index: int) -> Levels:
            return patch_activity(stack.luminance(index), operator, positions)

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
