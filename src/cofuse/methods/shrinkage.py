"""Choose pixels by the operator's activity, and restore by shrinkage of DCT coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofuse.images import Fusion, Pixels, luminance_noise
from cofuse.methods.run import Levels, Run
from cofuse.noise import NoiseLaw
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.patches import patch_positions
from cofuse.reconstruction import check_orthonormal, shrink, shrink_twice
from cofuse.selection import Choice, choose, compose, remove_small_regions, window_activity

__all__ = ["ShrinkageRun"]


@dataclass
class ShrinkageRun(Run):
    """Fast and without a trained model."""

    operator: AnalysisOperator | None = None

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; ``denoise`` blends the composed picture with the restored one."""
        self.find_noise(noise)
        image, choice = self.choose_and_restore(denoise)
        return self.result(image, choice, estimated=noise is None)

    def choose_and_restore(self, denoise: float) -> tuple[Pixels, Choice]:
        """Choose pixels, compose, and where there is noise restore the composed picture."""
        stack, settings, operator = self.stack, self.settings, self.operator
        assert operator is not None, "fusion looks the operator up"
        restoring = load_operator(settings.restoring_operator) if self.sigma > 0 else None
        if restoring:
            patch_positions(stack.shape, restoring.patch_size, 1)
            check_orthonormal(restoring)

        def activity(index: int) -> Levels:
            picture = stack.luminance(index)
            if restoring:
                picture = shrink(picture, restoring, sigma=luminance_noise(stack, self.sigma))
            return window_activity(picture, operator, window=settings.window)

        with self.stage("choice"):
            choice = choose(self.each_frame("choice", activity))
            fair_share = choice.index.size / len(stack)
            choice = remove_small_regions(choice, round(settings.smallest_region * fair_share))
        with self.stage("composition"):
            frames = self.each_frame("composition", stack.__getitem__)
            image = compose(stack, frames, choice.index, seam=settings.seam)
        if restoring and denoise > 0:

            def restore(plane: Levels, _: str) -> Levels:
                restored = shrink_twice(plane, restoring, sigma=self.sigma)
                return (
                    restored if denoise == 1 else plane + np.float32(denoise) * (restored - plane)
                )

            with self.stage("restoration"):
                image = self.by_plane("restoration", stack.to_levels(image), restore)
        return image, choice
