"""Learning to restore: pictures with noise, what the network is given of it, and the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.images.pixels import MIXED_BANDS
from cofuse.model.network import Networks
from training.bands import band_noise, octave_levels, psnr, split
from training.weighing import flipped_alike
from training.world.canvas import Canvas
from training.world.making import World
from training.world.pictures import drawn, photograph
from training.world.sensor import grain

#: Squared errors below this, 0.25 grey levels, are as good as none.
_SMALL_ERROR = 1e-6


@dataclass(frozen=True)
class Noisy:
    """Pictures with noise and without, (B, 3, S, S), and the noise levels the network is given.

    Levels (B, 2 bands, S/2, S/2) are those of luminance and of chrominance in every mixed band.
    """

    noisy: Tensor
    clean: Tensor
    levels: Tensor

    @staticmethod
    def draw(world: World, batch: int, size: int) -> Noisy:
        """Draw photographs with the noise that a mixture of frames leaves, or a camera made."""
        canvas = world.canvas.sized(batch, size)
        if canvas.happens(0.3):
            shot = world.draw_pictures(batch, size)
            noisy, clean = (
                _stabilised(planes[:, 0], shot.floor) for planes in (shot.frames, shot.clean)
            )
            return Noisy(noisy, clean, levels_left(canvas, noisy - clean))
        clean = photograph(canvas, 1.0 if canvas.happens(0.5) else canvas.number(0.5, 1.0))
        if canvas.happens(0.05):
            clean = drawn(canvas)
        if canvas.happens(0.3):
            clean = _stabilised(clean, canvas.log_uniform(0.03, 1.0))
        white = canvas.happens(0.5)
        noise = canvas.normal(3, size, size) if white else grain(canvas, 1)[:, 0]
        grey = canvas.some(0.35)
        clean = torch.where(grey, clean.mean(1, keepdim=True), clean)
        noise = torch.where(grey, noise[:, :1], noise) * canvas.log_uniform(1.5, 40.0) / 255
        # What a mixture leaves: all of one frame's noise here, a part of it there, band by band.
        left = torch.ones(batch, MIXED_BANDS, size, size, device=noise.device)
        if canvas.happens(0.5):
            every = canvas.field(canvas.whole(2, 12))
            own = canvas.field(canvas.whole(2, 8), MIXED_BANDS)
            left = torch.exp(-canvas.uniform(high=2.5) * torch.sigmoid(2 * every + 0.7 * own))
        levels = levels_left(canvas, noise, left)
        if canvas.happens(0.3):
            # Less noise than the levels say: flattened by JPEG, clipped, or estimated too high.
            noise = noise * (canvas.field(canvas.whole(1, 6)) > canvas.normal())
            even = clean.mean((2, 3), keepdim=True)
            clean = torch.where(canvas.some(0.3), even, clean)
        if canvas.happens(0.2):
            # Levels of noise that is not there must not keep the noise that is.
            levels = levels * canvas.log_uniform(1.2, 4.0)
        bands = split(noise)
        noisy = clean + sum(left[:, i, None] * band for i, band in enumerate(bands))
        if canvas.happens(0.5):
            noisy = noisy.clamp(0, 1)
        if canvas.happens(0.5):
            noisy = (noisy * 255).round() / 255
        return Noisy(noisy, clean, levels)

    @staticmethod
    def draw_white(world: World, batch: int, size: int, sigma: float) -> Noisy:
        """Draw photographs with white noise of ``sigma`` grey levels."""
        canvas = world.canvas.sized(batch, size)
        clean = photograph(canvas, 1.0)
        noise = canvas.normal(*clean.shape[1:]) * sigma / 255
        return Noisy(clean + noise, clean, levels_left(canvas, noise))

    def parts(self, canvas: Canvas) -> Iterator[Noisy]:
        """Use the pictures four times, flipped and transposed."""
        for _ in range(4):
            yield Noisy(*flipped_alike(canvas, (self.noisy, self.clean, self.levels)))

    def restored(self, networks: Networks) -> Tensor:
        """Restore the pictures by the network."""
        device = self.noisy.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            made: Tensor = networks.restore(self.noisy, self.levels)
        return made

    def loss(self, networks: Networks) -> Tensor:
        """Mean logarithm of the squared error, as in a peak signal to noise ratio."""
        error = (self.restored(networks).float() - self.clean).square().mean((1, 2, 3))
        return torch.log(error + _SMALL_ERROR).mean()

    def psnr(self, networks: Networks) -> float:
        """Peak signal to noise ratio in dB of the restored pictures."""
        return psnr(self.restored(networks), self.clean)


def levels_left(canvas: Canvas, noise: Tensor, left: Tensor | None = None) -> Tensor:
    """Estimate the noise (B, 2 bands, S/2, S/2) that mixing leaves of ``noise`` (B, 3, S, S).

    ``left`` (B, bands, S, S) is the part of it that is left in each band, by default all.
    """
    grey = noise.mean(1, keepdim=True)
    colours = (noise - grey) * 1.5**0.5
    levels = torch.stack([octave_levels(grey), octave_levels(colours)], 1)
    error = 0.08 * canvas.normal(1, 1) + 0.04 * canvas.normal(1, levels.shape[2])
    if left is None:
        left = noise.new_ones(len(noise), MIXED_BANDS, *noise.shape[2:])
    levels = band_noise(levels * torch.exp(error))[..., None, None]
    return (levels * F.avg_pool2d(left, 2)[:, None]).flatten(1, 2)


def _stabilised(picture: Tensor, floor: Tensor) -> Tensor:
    """Map values so that noise of this floor (B,) no longer grows; 0 and 1 stay as they are."""
    floor = floor.clamp_min(0.01).view(-1, 1, 1, 1)
    bend = 2 * (1 - floor) / floor
    return picture * ((1 + bend).sqrt() + 1) / ((1 + bend * picture.clamp_min(0)).sqrt() + 1)
