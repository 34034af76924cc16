r"""Noise: its level, how it grows with brightness, and its grain.

The variance grows with the brightness :math:`y` from a floor :math:`f`,

.. math:: \sigma^2(y) = \sigma^2 (f + (1 - f) y / m),

and is :math:`\sigma^2` at mid-grey, :math:`m`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Chance
from cofuse.learning.world.mosaic import Mosaic
from cofuse.learning.world.settings import WorldSettings
from cofuse.learning.world.tone import Tone

__all__ = ["NoiseLevel", "grain", "smoothed"]


@dataclass(frozen=True)
class NoiseLevel:
    """Standard deviation (B, K, 1, 1, 1) at mid-grey, white is 1, and floor (B, 1, 1, 1, 1)."""

    sigma: Tensor
    floor: Tensor

    @staticmethod
    def draw(chance: Chance, settings: WorldSettings, batch: int, frames: int) -> NoiseLevel:
        """Draw levels, often none; a third of them do not grow, others all but start at 0."""
        loud = chance.log_uniform(0.5, settings.loudest, batch, 1, 1, 1, 1) / 255
        quiet = 0.5 / 255 * chance.uniform(batch, 1, 1, 1, 1)
        share = chance.uniform(batch, 1, 1, 1, 1)
        sigma = torch.where(share < settings.noiseless + settings.quiet, quiet, loud)
        sigma = torch.where(share < settings.noiseless, 0.0, sigma)
        spread = 0.2 * chance.some(0.25, batch, 1, 1, 1, 1)
        sigma = sigma * torch.exp(spread * chance.normal(batch, frames, 1, 1, 1))
        floor = chance.uniform(batch, 1, 1, 1, 1, low=0.02)
        return NoiseLevel(sigma, torch.where(chance.some(0.35, batch, 1, 1, 1, 1), 1.0, floor))

    def at(self, value: Tensor, middle: Tensor | float = 0.5) -> Tensor:
        """Standard deviation at values (B, K, C, H, W), whose mid-grey is ``middle``."""
        growth = self.floor + (1 - self.floor) * value.clamp_min(0) / middle
        return self.sigma * growth.sqrt()

    def floor_of(self, tone: Tone | None, middle: Tensor | float) -> Tensor:
        """Floor (B,) in the values of a file: of the line through what the tone curve leaves."""
        if tone is None:
            return self.floor.flatten()
        step = 1e-3
        light = torch.linspace(0.25, 0.95, 15, device=self.floor.device).square()
        light = light.view(1, 1, 1, 1, -1)
        slope = (tone.display(light + step) - tone.display(light - step)) / (2 * step)
        growth = self.floor + (1 - self.floor) * light / middle
        variance = (growth * slope.square()).flatten(1)
        value = tone.display(light).expand_as(growth).flatten(1)
        from_mean = value - value.mean(1, keepdim=True)
        rise = (from_mean * variance).sum(1) / from_mean.square().sum(1)
        at_grey = variance.mean(1) + rise * (0.5 - value.mean(1))
        return (1 - 0.5 * rise / at_grey).clamp(0, 1)


def grain(chance: Chance, batch: int, frames: int, side: int) -> Tensor:
    """Noise (B, K, 3, H, W) of unit variance that was white once, before a file was made of it."""
    kind = chance.pick(white=0.35, smooth=0.25, mosaic=0.15, shrunk=0.12, enlarged=0.13)
    size = side
    if kind == "shrunk":
        size = round(side * chance.number(1.3, 3.0))
    elif kind == "enlarged":
        size = round(side / chance.number(1.2, 3.0))
    if kind == "mosaic" or (kind == "shrunk" and chance.happens(0.7)):
        # Ways that are linear, so that they act on noise alone as on noise with a picture.
        way = "bilinear" if chance.happens(0.5) else "gradients"
        noise = Mosaic(chance, size).developed(chance.normal(batch, frames, size, size), way)
    else:
        noise = chance.normal(batch, frames, 3, size, size)
    if kind == "smooth":
        noise = smoothed(noise, chance.number(0.4, 1.1))
    if size != side:
        flat = F.interpolate(
            noise.flatten(0, 1),
            (side, side),
            mode="bicubic" if chance.happens(0.6) else "bilinear",
            antialias=size > side,
            align_corners=False,
        )
        noise = flat.view(batch, frames, 3, side, side)
    if chance.happens(0.4):
        noise = _coloured(chance, noise)
    return noise / noise.square().mean((1, 2, 3, 4), keepdim=True).sqrt()


def _coloured(chance: Chance, noise: Tensor) -> Tensor:
    """Make chrominance weaker or stronger than luminance, and coarser: blotches of colour."""
    grey = noise.mean(2, keepdim=True)
    colour = noise - grey
    if chance.happens(0.6):
        colour = smoothed(colour, chance.number(0.7, 3.0))
        spread = colour.square().mean((1, 2, 3, 4), keepdim=True).sqrt() + 1e-6
        colour = colour * noise.square().mean((1, 2, 3, 4), keepdim=True).sqrt() / spread
    return grey + chance.log_uniform(0.1, 1.5, len(noise), 1, 1, 1, 1) * colour


def smoothed(planes: Tensor, sigma: float) -> Tensor:
    """Blur planes (..., H, W) by a Gaussian of some pixels; the border is repeated."""
    reach = max(1, round(3 * sigma))
    # In double precision: training may let convolutions of floats be rounded to 10 bits.
    place = torch.arange(-reach, reach + 1, device=planes.device, dtype=torch.float64)
    weights = torch.exp(-0.5 * (place / sigma) ** 2)
    weights = (weights / weights.sum()).view(1, 1, 1, -1)
    flat = planes.reshape(-1, 1, *planes.shape[-2:])
    flat = F.pad(flat, (reach,) * 4, mode="replicate").double()
    flat = F.conv2d(F.conv2d(flat, weights), weights.transpose(2, 3))
    return flat.to(planes.dtype).view(planes.shape)
