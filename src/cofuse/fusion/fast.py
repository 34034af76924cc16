"""Choose pixels by the operator's activity, and restore by shrinkage of DCT coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.fusion.choice import Choice, choose, compose, remove_small_regions, window_activity
from cofuse.fusion.presets import FastSettings
from cofuse.fusion.run import Run
from cofuse.images import Fusion, Levels, Pixels
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.operators.patches import patch_positions
from cofuse.operators.reconstruction import check_orthonormal, shrink, shrink_twice
from cofuse.sensor import NoiseLaw
from cofuse.sensor.spectrum import luminance_levels, noise_seen

__all__ = ["FastRun"]


@dataclass(kw_only=True)
class FastRun(Run):
    """Fast and without a trained model."""

    settings: FastSettings
    operator: AnalysisOperator

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; ``denoise`` blends the composed picture with the restored one."""
        law = self.find_noise(noise)
        image, choice = self.choose_and_restore(law.levels * law.at_mid_grey, denoise)
        return self.result(image, choice, estimated=noise is None)

    def choose_and_restore(
        self, levels: NDArray[np.float64], denoise: float
    ) -> tuple[Pixels, Choice]:
        """Choose pixels, compose, and where there is noise restore the composed picture.

        ``levels`` are those of a `NoiseLaw`: every coefficient is held against the noise in it.
        """
        stack, settings, operator = self.stack, self.settings, self.operator
        restoring = load_operator(settings.restoring_operator) if levels.any() else None
        if restoring:
            patch_positions(stack.shape, restoring.patch_size, 1)
            check_orthonormal(restoring)

        def activity(index: int) -> Levels:
            picture = stack.luminance(index)
            if restoring:
                noise = noise_seen(restoring.filters, luminance_levels(levels[index]))
                picture = shrink(picture, restoring, sigma=noise)
            return window_activity(picture, operator, window=settings.window)

        with self.stage("choice"):
            choice = choose(self.each_frame("choice", activity))
            fair_share = choice.index.size / len(stack)
            choice = remove_small_regions(choice, round(settings.smallest_region * fair_share))
        with self.stage("composition"):
            image = compose(stack, choice.index, progress=self.progress)
        if restoring and denoise > 0:
            typical = np.sqrt((levels**2).mean(axis=0))
            by_plane = dict(zip(self.plane_names(), typical, strict=True))

            def restore(plane: Levels, name: str) -> Levels:
                noise = noise_seen(restoring.filters, by_plane[name])
                restored = shrink_twice(plane, restoring, sigma=noise)
                return (
                    restored if denoise == 1 else plane + np.float32(denoise) * (restored - plane)
                )

            with self.stage("restoration"):
                image = self.by_plane("restoration", stack.to_levels(image), restore)
        return image, choice
