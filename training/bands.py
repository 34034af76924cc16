"""Bands of pictures, and noise levels by band: as the networks are given them at work."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.images.pixels import WINDOWS
from cofuse.sensor.bands import octaves_in_bands
from cofuse.sensor.law import BANDS
from training.world.canvas import Canvas


def octave_levels(planes: Tensor) -> Tensor:
    """Noise levels (N, octaves) of planes (N, C, H, W); white noise has its sigma in all."""
    levels = []
    for octave in range(BANDS):
        rows, columns = (length - length % 2 for length in planes.shape[2:])
        planes = planes[..., :rows, :columns]
        small = F.avg_pool2d(planes, 2)
        detail = planes - F.interpolate(small, scale_factor=2.0)
        # A mean of four halves white noise; the detail keeps three quarters of its power.
        levels.append((detail.square().mean((1, 2, 3)) / 0.75).sqrt() * 2**octave)
        planes = small
    return torch.stack(levels, -1)


def noise_levels(canvas: Canvas, noise: Tensor, clean: Tensor, floor: Tensor) -> Tensor:
    """Noise levels (B, K, octaves) of the channels' mean at mid-grey, with an estimate's errors.

    ``noise`` is the difference of frames (B, K, 3, H, W) from ``clean`` ones.
    """
    levels = octave_levels(noise.mean(2).flatten(0, 1)[:, None]).unflatten(0, noise.shape[:2])
    light = clean.mean((2, 3, 4))
    levels = levels / (floor[:, None] + (1 - floor[:, None]) * 2 * light).sqrt()[..., None]
    return levels * torch.exp(0.15 * canvas.normal(1, 1) + 0.07 * canvas.normal(1, BANDS))


def band_noise(levels: Tensor) -> Tensor:
    """Noise (…, bands) that frames of the given levels (…, octaves) have in mixed bands."""
    parts = torch.tensor(octaves_in_bands(), dtype=levels.dtype, device=levels.device)
    return (levels.square() @ parts.T).sqrt()


def noise_inputs(levels: Tensor) -> Tensor:
    """Inputs (B K, 2) of the networks: noise of each frame in fine and in coarse bands."""
    return band_noise(levels)[..., [0, 2]].flatten(0, 1)


def split(pictures: Tensor) -> list[Tensor]:
    """Split pictures (N, C, H, W) into bands, as those that frames are mixed by."""
    bands = []
    for side in WINDOWS:
        reach, smooth = side // 2, pictures
        for _ in range(2):
            smooth = F.pad(smooth, (reach,) * 4, mode="replicate")
            smooth = F.avg_pool2d(F.avg_pool2d(smooth, (side, 1), 1), (1, side), 1)
        bands.append(pictures - smooth)
        pictures = smooth
    return [*bands, pictures]


def mixed(bands: list[Tensor], weights: Tensor) -> list[Tensor]:
    """Mix bands (B K, C, H, W) with weights (B, K, bands, H, W): bands (B, C, H, W)."""
    return [
        (weights[:, :, i, None] * band.unflatten(0, weights.shape[:2])).sum(1)
        for i, band in enumerate(bands)
    ]


def psnr(pictures: Tensor, truth: Tensor) -> float:
    """Mean peak signal to noise ratio in dB of pictures (B, C, H, W)."""
    error = (pictures.float().clamp(0, 1) - truth).square().mean((1, 2, 3))
    return float((-10 * torch.log10(error + 1e-7)).mean())
