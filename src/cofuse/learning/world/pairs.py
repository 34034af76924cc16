"""Scenes as collections with a truth are made: a picture, blurred in a part of each frame.

The values of files are blurred, not light. Masks have hard edges and what is sharp is an exact
copy; or the blur of every pixel follows a map of depth, whose steps nothing spreads over.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Canvas, Chance
from cofuse.learning.world.drawing import outline
from cofuse.learning.world.layered import Light, views_of
from cofuse.learning.world.lens import Aperture, Lens, Sweep, blurred, surface
from cofuse.learning.world.sources import Sources, luminance


def masked(sources: Sources, canvas: Canvas, batch: int, frames: int) -> Light:
    """Draw frames that are each sharp in a region of their own and blurred elsewhere."""
    chance = sources.chance
    picture = _picture(sources, canvas, batch)
    region = _regions(chance, canvas, picture, frames)
    gaussian = chance.happens(0.6)
    aperture = Aperture.draw(chance, batch, gaussian=float(gaussian))
    # Standard deviations of 1 to 12 pixels, or discs of these radii.
    radius = chance.log_uniform(1.0, 12.0, batch, 1) * (2.0 if gaussian else 1.0)
    kernel = aperture.kernel(aperture.gauge(canvas.torus), radius)
    # Some tools blur as if it were dark beyond the border, half of whose light is lost.
    lit = canvas.lit(picture) if chance.happens(0.5) else picture
    soft = canvas.middle(blurred(lit, kernel))
    sharp = canvas.middle(picture)
    # In some collections every other frame is sharp there, in others one alone.
    one_blurred = frames > 2 and chance.happens(0.3)
    number = torch.arange(frames, device=chance.device).view(1, -1, 1, 1)
    mine = (region[:, None] == number) != one_blurred
    views = torch.where(mine[:, :, None], sharp[:, None], soft.clamp(0, 1)[:, None])
    return Light(views if frames > 1 else sharp[:, None], sharp, linear=False)


def mapped(sources: Sources, canvas: Canvas, batch: int, frames: int) -> Light:
    """Draw frames whose every pixel is blurred after its depth."""
    chance = sources.chance
    picture = _picture(sources, canvas, batch)
    relief = luminance(canvas.middle(picture))[:, 0]
    largest = min(canvas.largest_blur, 16.0)
    sweep = Sweep.draw(chance, batch, frames, largest)
    depth = surface(chance, batch, canvas.side, relief)
    for _ in range(chance.whole(1, 3)):
        thing = canvas.middle(outline(chance, batch, canvas.torus, luminance(picture)[:, 0])) > 0.5
        depth = torch.where(thing, chance.uniform(batch, 1, 1) + 0.2 * depth, depth)
    if chance.happens(0.4):
        levels = chance.whole(2, 12)
        depth = (depth * levels).round() / levels
    depth = depth.clamp(0, 1) * sweep.depth[:, None, None]
    none = torch.zeros(batch, device=chance.device)
    lens = Lens(
        Aperture.draw(chance, batch, gaussian=0.6), canvas.torus, largest, none, sided=False
    )
    views = views_of(lens, lens.ladder(picture, canvas.side), depth, sweep).clamp(0, 1)
    return Light(views[:, :-1], views[:, -1], linear=False)


def _picture(sources: Sources, canvas: Canvas, batch: int) -> Tensor:
    """Display values (B, 3, N, N), mostly of photographs as they are."""
    if sources.chance.happens(0.1):
        return sources.drawn(batch, canvas.torus)
    return sources.photograph(batch, canvas.torus, sources.scale())


def _regions(chance: Chance, canvas: Canvas, picture: Tensor, frames: int) -> Tensor:
    """Number of the frame that is sharp at each place, (B, H, W)."""
    batch, side = len(picture), canvas.side
    if frames == 2 and chance.happens(0.7):
        region = canvas.middle(outline(chance, batch, canvas.torus, luminance(picture)[:, 0]))
        region = (region > 0.5).long()
    else:
        relief = F.avg_pool2d(luminance(canvas.middle(picture)), 7, 1, 3)[:, 0]
        field = surface(chance, batch, side, relief)
        rank = field.flatten(1).argsort(1).argsort(1).view_as(field)
        region = (rank * frames) // rank[0].numel()
    mask = region[:, None].float()
    if chance.happens(0.15):
        block = chance.pick(b4=1, b8=1, b16=1)[1:]
        small = F.max_pool2d(mask, int(block), ceil_mode=True)
        mask = F.interpolate(small, scale_factor=float(block))[..., :side, :side]
    return mask[:, 0].long()
