"""Scenes as a microscope sees them: light through bodies, or from them, that cover nothing.

Transmitted light passes all bodies one after the other, so what each lets through multiplies;
emitted light adds. What is out of focus stays as a haze over all frames.

A body may be too thick to be all in focus: every frame then has its own detail, and a picture with
all of it would be a jumble. The truth is the frame that is liveliest at a place, not the darkest or
the brightest one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.aligning import Motion, warped
from cofuse.learning.world.chance import Canvas, Chance, WorldSettings
from cofuse.learning.world.drawing import dots, outline, places, scattered, turned, web
from cofuse.learning.world.layered import Light, softness, views_of
from cofuse.learning.world.lens import Aperture, Lens, Sweep, surface
from cofuse.learning.world.sources import Sources, luminance

#: Side in pixels of the box, passed twice, in which detail is compared.
_WINDOW = 13
#: Power of the energy by which frames are weighed: where one is clearly livelier it is the truth.
#: A mean of two would teach to mix frames that differ.
_POWER = 40


def specimens(
    sources: Sources,
    settings: WorldSettings,
    canvas: Canvas,
    batch: int,
    frames: int,
    motion: Motion | None = None,
) -> Light:
    """Draw scenes of two to four sheets of bodies at their own depths."""
    chance = sources.chance
    lens = _microscope(chance, settings, canvas, batch)
    sweep = Sweep.draw(chance, batch, frames, canvas.largest_blur)
    emits = chance.happens(0.4)
    kind = "emission" if emits else chance.pick(cells=0.65, smear=0.35)
    paint = {"emission": _emission, "cells": _cells, "smear": _smear}[kind]
    stains = _stains(chance, batch)
    # Bodies of one kind have one size, whatever sheet they lie in.
    apart = chance.log_number(*{"emission": (16, 120), "cells": (50, 220), "smear": (18, 90)}[kind])
    sheets: list[tuple[Tensor, Tensor]] = []
    for _ in range(chance.whole(1 if kind == "smear" else 2, 4)):
        planes = paint(sources, batch, canvas.torus, stains, apart)
        flat = surface(chance, batch, canvas.side, luminance(canvas.middle(planes))[:, 0])
        slant = chance.uniform(batch, 1, 1) * (flat - 0.5)
        depth = sweep.depth[:, None, None] * (chance.uniform(batch, 1, 1) + slant)
        sheets.append((lens.ladder(planes, canvas.side), depth))
    lamp = chance.uniform(batch, 1, 1, 1, 1, low=0.5, high=1.05)
    lamp = lamp * (1 + 0.06 * chance.uniform(batch, 1, 3, 1, 1, low=-1))
    ground = chance.log_uniform(0.002, 0.1, batch, 1, 1, 1, 1)

    farthest = sweep.depth[:, None, None]
    together = torch.stack(
        [views_of(lens, *sheet, sweep, motion=motion, farthest=farthest) for sheet in sheets]
    ).clamp_min(0)
    views = ground + together.sum(0) if emits else lamp * together.prod(0)
    return Light(views[:, :-1], views[:, -1], linear=True)


def _microscope(chance: Chance, settings: WorldSettings, canvas: Canvas, batch: int) -> Lens:
    """Draw lenses that often resolve less than their sensors do."""
    return Lens(
        Aperture.draw(chance, batch, gaussian=0.5),
        canvas.torus,
        canvas.largest_blur,
        softness(chance, settings.soft_specimens, batch),
        sided=chance.happens(0.5),
    )


def _stains(chance: Chance, batch: int) -> Tensor:
    """Densities (B, 2, 3, 1, 1) of bodies and nuclei in the colours of stains."""
    tables = torch.tensor(
        [
            [[0.10, 0.40, 0.30], [0.9, 1.2, 0.5]],  # eosin and haematoxylin
            [[0.05, 0.35, 0.40], [0.7, 0.9, 0.3]],  # Giemsa
            [[0.30, 0.10, 0.25], [0.5, 0.8, 0.9]],  # green and brown, unstained plants
            [[0.25, 0.25, 0.25], [1.0, 1.0, 1.0]],  # none
        ],
        device=chance.device,
    )
    tint = tables[chance.index(len(tables), batch)]
    strength = chance.log_uniform(0.15, 1.5, batch, 2, 1)
    return (tint * strength)[..., None, None]


def _texture(sources: Sources, batch: int, side: int) -> Tensor:
    """A grey texture (B, N, N) about 0."""
    grey = luminance(sources.photograph(batch, side, sources.scale()))[:, 0]
    return grey - grey.mean((1, 2), keepdim=True)


def _cells(sources: Sources, batch: int, side: int, stains: Tensor, apart: float) -> Tensor:
    """Light let through, (B, 3, N, N), by thin large cells with nuclei, folds and granules."""
    chance = sources.chance
    ragged = 0.1 * apart * chance.field(batch, max(2, round(3 * side / apart)), side)
    share = chance.uniform(batch, 1, 1, 1, low=0.3, high=0.9)
    down, right, own = scattered(chance, batch, side, apart, 6)
    across, along = turned(down, right, 2 * math.pi * own[0])
    away = torch.hypot(across * (1 + own[1]), along) + ragged[:, None]
    inside = apart * (0.45 + 0.4 * own[2]) - away
    there = (own[3] < share).float()
    body = (there * (0.5 + inside / 2).clamp(0, 1) * (0.5 + own[4])).sum(1)
    rim = (there * torch.exp(-((inside / 2) ** 2))).sum(1)
    core = apart * (0.06 + 0.08 * own[5]) - torch.hypot(across * (1 + 0.5 * own[1]), along)
    nucleus = (there * (0.5 + core / 2).clamp(0, 1)).amax(1)
    texture = 1 + chance.uniform(batch, 1, 1, high=2.0) * _texture(sources, batch, side)
    granules = dots(chance, batch, side, chance.log_number(5, 20), share=0.3)
    granules = granules * (chance.field(batch, 4, side) > 0) * body.clamp(0, 1)
    weights = chance.uniform(batch, 2, 1, 1, high=0.6)
    body = body * texture + weights[:, 0] * rim + weights[:, 1] * granules
    nucleus = nucleus * (0.8 + _texture(sources, batch, side))
    density = stains[:, 0] * body.clamp_min(0)[:, None] + stains[:, 1] * nucleus[:, None]
    return torch.exp(-density.clamp_min(0))


def _smear(sources: Sources, batch: int, side: int, stains: Tensor, apart: float) -> Tensor:
    """Light let through by blood: round cells, pale in the middle, some with a large nucleus."""
    chance = sources.chance
    share = chance.uniform(batch, 1, 1, 1, low=0.3, high=1.0)
    pallor = chance.uniform(batch, 1, 1, 1, low=0.1, high=0.8)
    down, right, own = scattered(chance, batch, side, apart, 4)
    radius = apart * (0.42 + 0.1 * own[0])
    away = torch.hypot(down * (1 + 0.25 * own[1]), right)
    there = (own[2] < share).float()
    pale = pallor * torch.exp(-((away / (0.45 * radius)) ** 2))
    body = (there * (radius + 0.5 - away).clamp(0, 1) * (1 - pale)).sum(1)
    lobes = torch.hypot(down + 0.3 * radius * torch.sin(right / radius * 3), right)
    nucleus = (there * (own[3] > 0.93) * (0.5 + 0.7 * radius - lobes).clamp(0, 1)).amax(1)
    texture = 1 + 0.3 * _texture(sources, batch, side)
    density = stains[:, 0] * (body * texture)[:, None] + stains[:, 1] * nucleus[:, None]
    return torch.exp(-density.clamp_min(0))


def _emission(sources: Sources, batch: int, side: int, stains: Tensor, apart: float) -> Tensor:
    """Light (B, 3, N, N) of fluorescent fibres, bodies and points on a dark ground."""
    chance = sources.chance
    half = chance.log_uniform(0.3, 2.0, batch, 1, 1)
    fibres = sum(
        (web(chance, batch, side, chance.whole(3, 14), half) for _ in range(chance.whole(1, 3))),
        torch.zeros(batch, side, side, device=chance.device),
    )
    bodies = dots(chance, batch, side, apart, share=0.7)
    points = dots(chance, batch, side, chance.log_number(6, 24), share=0.4)
    texture = (1 + 2 * _texture(sources, batch, side)).clamp_min(0)
    weights = chance.uniform(batch, 3, 1, 1) * chance.some(0.6, batch, 3, 1, 1)
    uneven = torch.exp(0.7 * chance.field(batch, 3, side))
    light = weights[:, 0] * fibres + weights[:, 1] * bodies * texture + weights[:, 2] * points
    light = (light + 0.1 * fibres) * uneven
    tint = torch.exp(-2 * chance.uniform(batch, 3, 1, 1) * chance.some(0.6, batch, 1, 1, 1))
    return chance.log_uniform(0.1, 1.5, batch, 1, 1, 1) * light[:, None] * tint


def thick(
    sources: Sources, settings: WorldSettings, canvas: Canvas, batch: int, frames: int
) -> Light:
    """Draw bodies of three to five sheets, each with a texture of its own, one behind the other.

    In half of them smaller bodies swim about: every frame has them elsewhere.
    """
    chance = sources.chance
    lens = _microscope(chance, settings, canvas, batch)
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
        sheet = lens.between(lens.ladder(planes, canvas.side), apart).clamp_min(0)
        sheets.append(_elsewhere(chance, sheet) if swims else sheet)
    together = torch.stack(sheets)
    views = together.sum(0) if shines else together.prod(0)
    views = views * chance.uniform(batch, 1, 1, 1, 1, low=0.5, high=1.05)
    return Light(views, liveliest(views), linear=True)


def _elsewhere(chance: Chance, sheet: Tensor) -> Tensor:
    """Shift a sheet (B, K, 3, H, W) from frame to frame by whole pixels, so that it stays sharp."""
    batch, frames = sheet.shape[:2]
    step = chance.log_uniform(2.0, 32.0, batch, 1, 1) * chance.normal(batch, frames, 2)
    shift = step.cumsum(1).round()[..., None, None]
    y, x = places(sheet.shape[-1], sheet.device)
    return warped(sheet, x + shift[:, :, 0], y + shift[:, :, 1]).clamp_min(0)


def _density(sources: Sources, batch: int, side: int) -> Tensor:
    """How much light (B, N, N) a sheet takes, from 0 to about 2."""
    chance = sources.chance
    if chance.happens(0.5):
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
