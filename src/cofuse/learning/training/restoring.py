"""Noisy pictures to learn restoring from, and the loss of `network.Restore`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.images.pixels import MIXED_BANDS
from cofuse.learning.training.steps import flipped_alike
from cofuse.learning.training.told import band_noise, octave_levels, split
from cofuse.learning.world import World
from cofuse.learning.world.chance import Chance
from cofuse.learning.world.sensor import grain
from cofuse.model.network import Networks

#: Squared errors below this, 0.25 grey levels, are as good as none.
_SMALL_ERROR = 1e-6


@dataclass(frozen=True)
class Noisy:
    """Pictures with noise and without, (B, 3, S, S), and the noise levels the network is given."""

    noisy: Tensor
    clean: Tensor
    told: Tensor


def drawn_pictures(world: World, batch: int, size: int) -> Noisy:
    """Draw photographs with the noise that a mixture of frames leaves, or a camera made."""
    chance = world.chance
    if chance.happens(0.3):
        shot = world.draw_pictures(batch, size)
        noisy, clean = (
            _stabilised(planes[:, 0], shot.floor) for planes in (shot.frames, shot.clean)
        )
        even = torch.ones(batch, MIXED_BANDS, size, size, device=noisy.device)
        return Noisy(noisy, clean, _told(world, noisy - clean, even))
    scale = 1.0 if chance.happens(0.5) else chance.number(0.5, 1.0)
    clean = world.sources.photograph(batch, size, scale)
    if chance.happens(0.05):
        clean = world.sources.drawn(batch, size)
    if chance.happens(0.3):
        clean = _stabilised(clean, chance.log_uniform(0.03, 1.0, batch))
    white = chance.happens(0.5)
    noise = chance.normal(batch, 3, size, size) if white else grain(chance, batch, 1, size)[:, 0]
    grey = chance.some(0.35, batch, 1, 1, 1)
    clean = torch.where(grey, clean.mean(1, keepdim=True), clean)
    noise = torch.where(grey, noise[:, :1], noise)
    noise = noise * chance.log_uniform(1.5, 40.0, batch, 1, 1, 1) / 255
    # What a mixture leaves: all of one frame's noise here, a part of it there, band by band.
    left = torch.ones(batch, MIXED_BANDS, size, size, device=noise.device)
    if chance.happens(0.5):
        every = chance.field(batch, chance.whole(2, 12), size)[:, None]
        own = chance.field(batch * MIXED_BANDS, chance.whole(2, 8), size).view_as(left)
        reach = chance.uniform(batch, 1, 1, 1, high=2.5)
        left = torch.exp(-reach * torch.sigmoid(2 * every + 0.7 * own))
    told = _told(world, noise, left)
    if chance.happens(0.3):
        # Less noise than the levels say: flattened by JPEG, clipped, or estimated too high.
        where = chance.field(batch, chance.whole(1, 6), size)[:, None]
        noise = noise * (where > chance.normal(batch, 1, 1, 1))
        even = clean.mean((2, 3), keepdim=True).expand_as(clean)
        clean = torch.where(chance.some(0.3, batch, 1, 1, 1), even, clean)
    if chance.happens(0.2):
        # What is told of noise that is not there must not keep the noise that is.
        told = told * chance.log_uniform(1.2, 4.0, batch, 1, 1, 1)
    bands = split(noise)
    noisy = clean + sum(left[:, i, None] * band for i, band in enumerate(bands))
    if chance.happens(0.5):
        noisy = noisy.clamp(0, 1)
    if chance.happens(0.5):
        noisy = (noisy * 255).round() / 255
    return Noisy(noisy, clean, told)


def flipped(pictures: Noisy, chance: Chance, times: int) -> Iterator[Noisy]:
    """Yield pictures ``times`` times, flipped and transposed."""
    for _ in range(times):
        yield Noisy(*flipped_alike(chance, (pictures.noisy, pictures.clean, pictures.told)))


def white_pictures(world: World, batch: int, size: int, sigma: float) -> Noisy:
    """Draw photographs with white noise of ``sigma`` grey levels."""
    clean = world.sources.photograph(batch, size, 1.0)
    noise = world.chance.normal(*clean.shape) * sigma / 255
    even = torch.ones(batch, MIXED_BANDS, size, size, device=noise.device)
    return Noisy(clean + noise, clean, _told(world, noise, even))


def _told(world: World, noise: Tensor, left: Tensor) -> Tensor:
    """Estimate the noise (B, 2 bands, S/2, S/2) that mixing leaves of ``noise`` (B, 3, S, S).

    ``left`` (B, bands, S, S) is the part of it that is left in each band.
    """
    chance, batch = world.chance, len(noise)
    grey = noise.mean(1, keepdim=True)
    colours = (noise - grey) * 1.5**0.5
    levels = torch.stack([octave_levels(grey), octave_levels(colours)], 1)
    error = 0.08 * chance.normal(batch, 1, 1) + 0.04 * chance.normal(batch, 1, levels.shape[2])
    told = band_noise(levels * torch.exp(error))
    half = F.avg_pool2d(left, 2)
    return (told[..., None, None] * half[:, None]).flatten(1, 2)


def _stabilised(picture: Tensor, floor: Tensor) -> Tensor:
    """Map values so that noise of this floor (B,) no longer grows; 0 and 1 stay as they are."""
    floor = floor.clamp_min(0.01).view(-1, 1, 1, 1)
    bend = 2 * (1 - floor) / floor
    return picture * ((1 + bend).sqrt() + 1) / ((1 + bend * picture.clamp_min(0)).sqrt() + 1)


def restored(networks: Networks, pictures: Noisy) -> Tensor:
    """Restore pictures by the network."""
    device = pictures.noisy.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        made: Tensor = networks.restore(pictures.noisy, pictures.told)
    return made


def restoring_loss(networks: Networks, pictures: Noisy) -> Tensor:
    """Mean logarithm of the squared error, as in a peak signal to noise ratio."""
    error = (restored(networks, pictures).float() - pictures.clean).square().mean((1, 2, 3))
    return torch.log(error + _SMALL_ERROR).mean()
