"""Batches of stacks with their truth, and of single pictures, from photographs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from training.world.camera import Scenes, capture
from training.world.canvas import Canvas, WorldSettings
from training.world.frames import Exposure, Motion, Plan, vignette
from training.world.pictures import ground, photograph
from training.world.scenes import mapped, masked, photographic
from training.world.sensor import STANDARD
from training.world.specimens import specimens, thick

#: Kinds of scenes, and what draws the views of a plan.
KINDS = {
    "photographic": photographic,
    "specimens": specimens,
    "masked": masked,
    "mapped": mapped,
    "thick": thick,
}


class World:
    """Draws stacks and pictures from photographs (N, 3, H, W) of bytes, on their device."""

    def __init__(
        self, photos: Tensor, *, seed: int = 0, settings: WorldSettings | None = None
    ) -> None:
        self.canvas = Canvas(photos, seed)
        self.settings = settings or WorldSettings()

    def draw(self, batch: int, frames: int, size: int) -> Scenes:
        """Draw stacks of frames of ``size`` x ``size`` pixels, a multiple of 8."""
        canvas, settings = self.canvas.sized(batch, size), self.settings
        if frames > 2 and canvas.happens(settings.repeated):
            scenes = self.draw(batch, frames - 1, size)
            number = torch.arange(frames, device=canvas.device).repeat(batch, 1)
            number[:, -1] = canvas.index(frames - 1)
            rows = torch.arange(batch, device=canvas.device)[:, None]
            return replace(
                scenes, frames=scenes.frames[rows, number], clean=scenes.clean[rows, number]
            )
        plan = Plan(canvas, settings, frames)
        canvas = plan.canvas
        kind = canvas.pick({name: getattr(settings, name) for name in KINDS})
        in_middle = canvas.some(0.3).flatten()
        reference = torch.where(in_middle, frames // 2, canvas.index(frames))
        # Collections have been aligned; what swims is a motion of its own.
        taken = kind in ("photographic", "specimens")
        exposure = None
        if taken and frames > 1:
            if canvas.happens(settings.moved):
                resampled = canvas.happens(settings.resampled)
                plan.motion = Motion(canvas, reference, frames, resampled=resampled)
            if canvas.happens(settings.unsteady):
                exposure = Exposure(canvas, reference, frames)
        views = KINDS[kind](plan)
        if taken and canvas.happens(settings.vignetted):
            views = views * vignette(canvas)[:, None]
        matched = exposure is not None and canvas.happens(settings.corrected)
        if exposure is not None:
            views = exposure.lit(views, matched=matched)
        shot = capture(
            canvas,
            settings,
            views,
            linear=kind not in ("masked", "mapped"),
            specimen=kind in ("specimens", "thick"),
        )
        stack, clean = shot.frames, shot.clean
        if plan.motion is not None:
            stack, clean = (plan.motion.aligned(views).clamp(0, 1) for views in (stack, clean))
        if exposure is not None and matched:
            stack, clean = exposure.corrected(canvas, stack, clean)
        return _cut(plan, replace(shot, frames=stack, clean=clean))

    def draw_pictures(self, batch: int, size: int) -> Scenes:
        """Draw stacks of one sharp frame of ``size`` x ``size`` pixels with noise, to restore."""
        settings = replace(self.settings, largest_blur=1.0)
        plan = Plan(self.canvas.sized(batch, size), settings, 1)
        canvas = plan.canvas
        # Shrunk, a photograph loses what JPEG has left in it.
        light = STANDARD.light(photograph(canvas, canvas.number(0.5, 1.0)))
        if canvas.happens(0.1):
            light = ground(canvas, share=1.0)
        linear = canvas.happens(0.5)
        views = (light if linear else STANDARD.display(light))[:, None].expand(-1, 2, -1, -1, -1)
        return _cut(plan, capture(canvas, settings, views, linear=linear))


def _cut(plan: Plan, scenes: Scenes) -> Scenes:
    """Cut the part that is asked for out of scenes, as tensors of its own."""
    frames, clean, truth = (
        plan.cut(planes).contiguous() for planes in (scenes.frames, scenes.clean, scenes.truth)
    )
    return Scenes(frames, clean, truth, scenes.floor)
