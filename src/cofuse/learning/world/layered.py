"""Scenes as a camera sees them: things before a ground, blurred each with its coverage."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.aligning import Motion
from cofuse.learning.world.chance import Canvas, Chance, WorldSettings
from cofuse.learning.world.drawing import outline
from cofuse.learning.world.lens import Aperture, Lens, Sweep, surface
from cofuse.learning.world.sources import Sources, luminance


@dataclass(frozen=True)
class Light:
    """What comes to the sensor: frames (B, K, 3, H, W) and, all in focus, truth (B, 3, H, W).

    In linear light, or, if not ``linear``, in values of a file already.
    """

    frames: Tensor
    truth: Tensor
    linear: bool


def views_of(
    lens: Lens,
    ladder: Tensor,
    depth: Tensor,
    sweep: Sweep,
    *,
    offset: Tensor | None = None,
    motion: Motion | None = None,
    farthest: Tensor | None = None,
) -> Tensor:
    """Show a sheet at depths (B, H, W) in all frames and, last, in the truth: (B, K + 1, C, H, W).

    The truth shows every place as the frame does that blurs it least, and where that frame does.
    ``offset`` is that of `Lens.between`; ``farthest`` (B, 1, 1) is the depth of a `Motion`'s 1.
    """
    apart = depth[:, None] - sweep.focus[..., None, None]
    least = apart.abs().argmin(1, keepdim=True)
    views = lens.between(ladder, torch.cat([apart, apart.gather(1, least)], 1), offset)
    if motion is None:
        return views
    part = depth / farthest
    moved = motion.seen(views[:, :-1], part)
    return torch.cat([moved, motion.at_its_best(views[:, -1:], part, least)], 1)


def softness(chance: Chance, share: float, batch: int) -> Tensor:
    """Standard deviation (B,) of the blur of what is in focus; a share have some."""
    soft = chance.log_uniform(0.4, 4.0, batch)
    return torch.where(chance.some(share, batch), soft, 0.0)


def fringes(chance: Chance, batch: int) -> Tensor:
    """How far (B, 6) red and blue are out of focus where green is in it, and their coverage."""
    red, blue = chance.uniform(2, batch, low=-1.5, high=1.5)
    return torch.stack([red, 0 * red, blue] * 2, 1)


def photographic(
    sources: Sources,
    settings: WorldSettings,
    canvas: Canvas,
    batch: int,
    frames: int,
    motion: Motion | None = None,
) -> Light:
    """Draw scenes of a ground and some things before it."""
    chance = sources.chance
    offset = fringes(chance, batch) if chance.happens(settings.fringed) else None
    lens = Lens(
        Aperture.draw(chance, batch),
        canvas.torus,
        canvas.largest_blur,
        softness(chance, settings.soft, batch),
        sided=chance.happens(0.2),
    )
    sweep = Sweep.draw(chance, batch, frames, canvas.largest_blur)
    ground = sources.ground(batch, canvas.torus, drawn=settings.drawn)
    relief = luminance(canvas.middle(ground)).sqrt()[:, 0]
    depth_of_ground = surface(chance, batch, canvas.side, relief) * sweep.depth[:, None, None]
    count = chance.whole(0, settings.objects)
    if count:
        # What lies far behind is never in focus, and as blurred in the last frame as in the first.
        beyond = canvas.largest_blur * chance.uniform(batch, 1, 1, low=0.3)
        behind = sweep.depth[:, None, None] + beyond + 0.2 * depth_of_ground
        far = chance.some(settings.far_ground, batch, 1, 1)
        depth_of_ground = torch.where(far, behind, depth_of_ground)
    nearness = chance.uniform(batch, count).sort(1, descending=True).values
    # Colours times coverage, then coverage, of each thing; and its depth.
    sheets: list[tuple[Tensor, Tensor]] = []
    for index in range(count):
        place = nearness[:, index] * sweep.depth
        place = torch.where(chance.some(0.6, batch), sweep.nearest(place), place)
        planes = _thing(sources, ground, canvas.torus)
        # Slanted, or round: its rim lies farther away than its middle.
        slant = surface(chance, batch, canvas.side, relief) - 0.5
        height = canvas.middle(_height(planes[:, 3:]))[:, 0]
        shape = torch.where(chance.some(0.5, batch, 1, 1), slant, 1 - height)
        reach = sweep.depth * chance.uniform(batch) * chance.some(0.7, batch)
        depth = place[:, None, None] + 0.7 * reach[:, None, None] * shape
        if offset is not None:
            # The coverage spreads with each colour.
            planes = torch.cat([planes, planes[:, 3:], planes[:, 3:]], 1)
        sheets.append((lens.ladder(planes, canvas.side), depth))

        # What stands near the ground keeps light from it.
        dark = chance.uniform(batch, 1, 1, 1, high=0.8) * chance.some(0.3, batch, 1, 1, 1)
        way = chance.whole(-16, 16), chance.whole(-16, 16)
        ground = ground * (1 - dark * _shadow(planes[:, 3:4]).roll(way, (2, 3)))
    sheets.insert(0, (lens.ladder(ground, canvas.side), depth_of_ground))

    farthest = sweep.depth[:, None, None] + canvas.largest_blur
    shown = (
        views_of(lens, *sheet, sweep, offset=offset, motion=motion, farthest=farthest)
        for sheet in sheets
    )
    views = next(shown)
    for planes in shown:
        views = views * (1 - planes[:, :, 3:].clamp(0, 1)) + planes[:, :, :3]
    views = views.clamp_min(0)
    return Light(views[:, :-1], views[:, -1], linear=True)


def _thing(sources: Sources, ground: Tensor, side: int) -> Tensor:
    """Colours times coverage, and coverage (B, 4, N, N), of something before the ground."""
    chance, batch = sources.chance, len(ground)
    kind = chance.pick(photograph=0.5, ground=0.15, plain=0.2, backlit=0.15)
    if kind == "ground":
        colour = ground.flip(3)
    else:
        colour = sources.ground(batch, side, drawn=0.1)
    cover = outline(chance, batch, side, luminance(colour).sqrt()[:, 0])
    if kind == "plain":
        mean = colour.mean((2, 3), keepdim=True)
        colour = mean + 0.2 * (colour - mean)
    if kind == "backlit":
        colour = colour * chance.log_uniform(0.02, 0.3, batch, 1, 1, 1)
    if chance.happens(0.6):
        # Light from one side, or from behind: the rim is darker, or brighter.
        height = _height(cover[:, None])
        lit = torch.exp(chance.uniform(batch, 1, 1, 1, low=-2.0, high=1.0) * (1 - height))
        slope = height - height.roll((-9, 7), (2, 3))
        colour = colour * lit * (1 + 2 * chance.normal(batch, 1, 1, 1) * slope).clamp(0.2, 3)
    return torch.cat([colour.clamp_min(0) * cover[:, None], cover[:, None]], 1)


def _shadow(cover: Tensor) -> Tensor:
    """A soft copy of a coverage (B, 1, N, N)."""
    small = F.avg_pool2d(cover, 8)
    for _ in range(2):
        small = F.avg_pool2d(small, 3, 1, 1, count_include_pad=False)
    return F.interpolate(small, cover.shape[-2:], mode="bilinear", align_corners=False)


def _height(cover: Tensor) -> Tensor:
    """A round body (B, 1, N, N) of height 0 to 1 over its coverage."""
    small = F.avg_pool2d(cover, 8)
    for _ in range(3):
        small = F.avg_pool2d(small, 5, 1, 2, count_include_pad=False)
    wide = F.interpolate(small, cover.shape[-2:], mode="bicubic", align_corners=False)
    return (2 * wide - 1).clamp(0, 1).sqrt()
