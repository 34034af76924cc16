"""Batches of stacks with their truth, and of single pictures, from photographs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cofuse.errors import CofuseError
from cofuse.learning.world.aligning import Exposure, Motion, vignette
from cofuse.learning.world.camera import Scenes, photograph
from cofuse.learning.world.chance import Canvas, Chance, WorldSettings
from cofuse.learning.world.layered import Light, photographic
from cofuse.learning.world.pairs import mapped, masked
from cofuse.learning.world.sensor import STANDARD
from cofuse.learning.world.sources import Sources
from cofuse.learning.world.specimens import specimens, thick


class World:
    """Draws stacks and pictures from photographs (N, 3 or 1, H, W) of bytes, on their device."""

    def __init__(
        self, photos: Tensor, *, seed: int = 0, settings: WorldSettings | None = None
    ) -> None:
        if photos.ndim != 4 or photos.shape[1] not in (1, 3) or photos.dtype != torch.uint8:
            raise CofuseError(
                f"got photographs of {photos.dtype} and shape {tuple(photos.shape)}; give a uint8 "
                "tensor of the shape (number, 3, height, width), or with 1 plane of grey ones"
            )
        self.chance = Chance(photos.device, seed)
        self.sources = Sources(photos.expand(-1, 3, -1, -1), self.chance)
        self.settings = settings or WorldSettings()

    def draw(self, batch: int, frames: int, size: int) -> Scenes:
        """Draw stacks of frames of ``size`` x ``size`` pixels, a multiple of 8."""
        chance, settings = self.chance, self.settings
        if frames > 2 and chance.happens(settings.repeated):
            scenes = self.draw(batch, frames - 1, size)
            number = torch.arange(frames, device=chance.device).repeat(batch, 1)
            number[:, -1] = chance.index(frames - 1, batch)
            rows = torch.arange(batch, device=chance.device)[:, None]
            return replace(
                scenes, frames=scenes.frames[rows, number], clean=scenes.clean[rows, number]
            )
        canvas = Canvas.draw(chance, size, settings.largest_blur)
        kinds = ("photographic", "specimens", "masked", "mapped", "thick")
        kind = chance.pick(**{name: getattr(settings, name) for name in kinds})
        middle = torch.full((batch,), frames // 2, device=chance.device)
        reference = torch.where(chance.some(0.3, batch), middle, chance.index(frames, batch))
        collected = kind in ("masked", "mapped", "thick")
        differ = frames > 1 and not collected
        motion = exposure = None
        if differ and chance.happens(settings.moved):
            resampled = chance.happens(settings.resampled)
            motion = Motion.draw(chance, reference, frames, canvas.side, resampled=resampled)
        if differ and chance.happens(settings.unsteady):
            exposure = Exposure.draw(chance, reference, frames, canvas.side)

        if kind == "masked":
            light = masked(self.sources, canvas, batch, frames)
        elif kind == "mapped":
            light = mapped(self.sources, canvas, batch, frames)
        elif kind == "thick":
            light = thick(self.sources, settings, canvas, batch, frames)
        else:
            make = photographic if kind == "photographic" else specimens
            light = make(self.sources, settings, canvas, batch, frames, motion)
        if not collected and chance.happens(0.4):
            dim = vignette(chance, batch, canvas.side)
            light = replace(light, frames=light.frames * dim[:, None], truth=light.truth * dim)
        matched = None
        if exposure is not None:
            matched = exposure if chance.happens(settings.corrected) else None
            truth = light.truth if matched else light.truth * exposure.gain.mean(1)
            light = replace(light, frames=light.frames * exposure.gain, truth=truth)

        specimen = kind in ("specimens", "thick")
        grey = chance.some(settings.grey + 0.4 * specimen, batch)
        shot = photograph(chance, settings, light, grey, specimen=specimen)
        stack, clean = shot.frames, shot.clean
        if motion is not None:
            stack, clean = (motion.aligned(views).clamp(0, 1) for views in (stack, clean))
        if matched is not None:
            stack, clean = matched.corrected(chance, stack, clean)
        return _cut(canvas, replace(shot, frames=stack, clean=clean))

    def draw_pictures(self, batch: int, size: int) -> Scenes:
        """Draw stacks of one sharp frame of ``size`` x ``size`` pixels with noise, to restore."""
        chance, settings = self.chance, self.settings
        canvas = Canvas.draw(chance, size, 1.0)
        # Shrunk, a photograph loses what JPEG has left in it.
        light = STANDARD.light(self.sources.photograph(batch, canvas.side, chance.number(0.5, 1.0)))
        if chance.happens(0.1):
            light = self.sources.ground(batch, canvas.side, drawn=1.0)
        linear = chance.happens(0.5)
        if not linear:
            light = STANDARD.display(light)
        grey = chance.some(settings.grey, batch)
        shot = photograph(chance, settings, Light(light[:, None], light, linear), grey)
        return _cut(canvas, shot)


def _cut(canvas: Canvas, scenes: Scenes) -> Scenes:
    """Cut the part that is asked for out of scenes, as tensors of its own."""
    frames, clean, truth = (
        canvas.cut(planes).contiguous() for planes in (scenes.frames, scenes.clean, scenes.truth)
    )
    return Scenes(frames, clean, truth, scenes.floor)
