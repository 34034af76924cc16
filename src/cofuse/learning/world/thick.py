"""Scenes of a body too thick to be all in focus: every frame has its own detail.

Light passes it, or it shines. There is no picture with all of that detail in it, only a jumble of
no frame's. What is right is the frame that is liveliest at a place, not the darkest or the
brightest one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.canvas import Canvas
from cofuse.learning.world.chance import Chance
from cofuse.learning.world.drawing import dots, outline, places
from cofuse.learning.world.focus import Sweep, surface
from cofuse.learning.world.layered import Light
from cofuse.learning.world.motion import warped
from cofuse.learning.world.settings import WorldSettings
from cofuse.learning.world.sources import Sources, luminance
from cofuse.learning.world.specimens import microscope

__all__ = ["liveliest", "thick"]

#: Detail is compared in windows of so many pixels; twice a window is a smooth one.
_WINDOW = 13
#: How much more a frame counts that has twice the energy of another: where one is clearly
#: livelier it is the truth. A mean of two would teach to mix frames that differ.
_POWER = 40


def thick(
    sources: Sources, settings: WorldSettings, canvas: Canvas, batch: int, frames: int
) -> Light:
    """Draw bodies of three to five sheets, each with a texture of its own, one behind the other.

    In half of them smaller bodies swim about: every frame has them elsewhere.
    """
    chance = sources.chance
    lens = microscope(chance, settings, canvas, batch)
    sweep = Sweep.draw(chance, batch, frames, canvas.largest_blur)
    grey = luminance(sources.photograph(batch, canvas.torus, sources.scale()))[:, 0]
    body = outline(chance, batch, canvas.torus, grey)
    body = torch.where(chance.some(0.3, batch, 1, 1), 1.0, body)
    stain = chance.log_uniform(0.3, 6.0, batch, 1, 1, 1) * chance.uniform(batch, 3, 1, 1, low=0.2)
    count, shines, swum = chance.whole(3, 5), chance.happens(0.3), chance.happens(0.5)
    sheets = []
    for number in range(count + swum):
        swims = number == count
        density = _density(sources, batch, canvas.torus)
        bodies = dots(chance, batch, canvas.torus, chance.log_number(20, 120), share=0.3)
        if swims:
            density = 1.5 * density * bodies
        else:
            density = density * body + 0.3 * chance.uniform(batch, 1, 1) * bodies
        planes = stain / count**0.5 * density[:, None]
        planes = 0.3 * planes if shines else torch.exp(-planes)
        slant = 0.3 * surface(chance, batch, canvas.side, canvas.middle(grey))
        place = (
            chance.uniform(batch, 1, 1) if swims else (number + chance.uniform(batch, 1, 1)) / count
        )
        depth = sweep.depth[:, None, None] * (place + slant)
        apart = depth[:, None] - sweep.focus[..., None, None]
        sheet = lens.ladder(planes, canvas.side).at(apart).clamp_min(0)
        sheets.append(_elsewhere(chance, sheet) if swims else sheet)
    together = torch.stack(sheets)
    views = together.sum(0) if shines else together.prod(0)
    views = views * chance.uniform(batch, 1, 1, 1, 1, low=0.5, high=1.05)
    return Light(views, liveliest(views), linear=True)


def _elsewhere(chance: Chance, sheet: Tensor) -> Tensor:
    """Shift a sheet (B, K, 3, H, W) from frame to frame by whole pixels, so that it stays sharp."""
    batch, frames = sheet.shape[:2]
    step = chance.log_uniform(2.0, 32.0, batch, 1, 1) * chance.normal(batch, frames, 2)
    shift = step.cumsum(1).round().flatten(0, 1)[:, :, None, None]
    y, x = places(sheet.shape[-1], sheet.device)
    return warped(sheet.flatten(0, 1), x + shift[:, 0], y + shift[:, 1]).view_as(sheet).clamp_min(0)


def _density(sources: Sources, batch: int, side: int) -> Tensor:
    """How much light (B, N, N) a sheet takes, from 0 to about 2."""
    chance = sources.chance
    kind = chance.pick(photograph=0.5, grains=0.5)
    if kind == "photograph":
        grey = luminance(sources.photograph(batch, side, sources.scale()))[:, 0]
    else:
        grey = _grains(chance, batch, side)
    middle, spread = grey.mean((1, 2), keepdim=True), grey.std((1, 2), keepdim=True)
    return (1 + chance.log_uniform(0.3, 1.2, batch, 1, 1) * (grey - middle) / spread).clamp_min(0)


def _grains(chance: Chance, batch: int, side: int) -> Tensor:
    """Granules, chloroplasts, folds: blobs and lines of about one size."""
    across = chance.log_number(2.5, 14.0)
    field = chance.field(batch, max(4, round(side / across)), side)
    if chance.happens(0.5):
        field = 1 - 2 * field.abs()
    return (3 * field).sigmoid()


def liveliest(frames: Tensor) -> Tensor:
    """Of frames (B, K, 3, H, W) the mean (B, 3, H, W), by far the most of the liveliest one."""
    batch, count = frames.shape[:2]
    light = luminance(frames.flatten(0, 1).clamp_min(0).sqrt())
    energy = (light - _smooth(light, 5)).square()
    energy = _smooth(_smooth(energy, _WINDOW), _WINDOW).view(batch, count, 1, *frames.shape[-2:])
    share = (_POWER * (energy + 1e-9).log()).softmax(1)
    return (frames * share).sum(1)


def _smooth(planes: Tensor, side: int) -> Tensor:
    return F.avg_pool2d(F.pad(planes, (side // 2,) * 4, mode="replicate"), side, 1)
