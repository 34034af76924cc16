"""JPEG: what is left of frames that were stored as such."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

#: Steps at quality 50 of luminance and chrominance (ITU-T T.81, Annex K).
_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *(((99,) * 8,) * 4),
)
#: Rows: Y, Cb, Cr from red, green, blue.
_TO_YCC = (
    (0.299, 0.587, 0.114),
    (-0.168735892, -0.331264108, 0.5),
    (0.5, -0.418687589, -0.081312411),
)
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136286, -0.714136286), (1.0, 1.772, 0.0))


def compressed(frames: Tensor, quality: Tensor, subsampling: tuple[int, int] = (1, 1)) -> Tensor:
    """Write frames (B, K, 3, H, W), 0 to 1, as JPEG of a quality (B,) and read them again.

    ``subsampling`` says how many rows and columns share their chrominance. Blocks begin at the
    first row and column.
    """
    to_ycc = torch.tensor(_TO_YCC, device=frames.device)
    levels = (frames.clamp(0, 1) * 255).round()
    # Whole numbers between all steps, as libraries have them.
    ycc = (levels[:, :, None] * to_ycc[:, :, None, None]).sum(3).round()
    luminance, chrominance = ycc[:, :, :1] - 128, ycc[:, :, 1:]
    luminance = _quantised(luminance, quality, _LUMINANCE)
    shape = chrominance.shape
    small = F.avg_pool2d(chrominance.flatten(0, 1), subsampling, ceil_mode=True).round()
    small = _quantised(small.view(*shape[:3], *small.shape[-2:]), quality, _CHROMINANCE)
    scale = tuple(float(n) for n in subsampling)
    large = F.interpolate(small.flatten(0, 1), scale_factor=scale, mode="bilinear")
    chrominance = large[..., : shape[-2], : shape[-1]].view(shape)
    ycc = torch.cat([luminance + 128, chrominance], 2)
    to_rgb = torch.tensor(_TO_RGB, device=frames.device)
    rgb = (ycc[:, :, None] * to_rgb[:, :, None, None]).sum(3)
    return rgb.round().clamp(0, 255) / 255


def _quantised(planes: Tensor, quality: Tensor, table: tuple[tuple[int, ...], ...]) -> Tensor:
    """Round the cosine transform of planes (B, K, C, H, W) to the steps of a quality (B,)."""
    shape = planes.shape
    # In double precision: training may let matrix products of floats be rounded to 10 bits.
    flat = planes.flatten(0, 2)[:, None].double()
    flat = F.pad(flat, (0, -shape[-1] % 8, 0, -shape[-2] % 8), mode="replicate")
    rows, columns = flat.shape[-2] // 8, flat.shape[-1] // 8
    blocks = flat.view(shape[0], -1, rows, 8, columns, 8)
    place = torch.arange(8, device=planes.device)
    cosines = torch.cos(math.pi / 16 * torch.outer(place, 2 * place + 1).double())
    cosines = F.normalize(cosines, dim=1)
    coefficients = torch.einsum("ui,bnricj,vj->bnrucv", cosines, blocks, cosines)
    percent = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)[:, None, None]
    steps = torch.tensor(table, device=planes.device) * percent
    steps = ((steps + 50) / 100).floor().clamp(1, 255)[:, None, None, :, None]
    coefficients = (coefficients / steps).round() * steps
    blocks = torch.einsum("ui,bnrucv,vj->bnricj", cosines, coefficients, cosines)
    whole = blocks.reshape(-1, rows * 8, columns * 8)[:, : shape[-2], : shape[-1]]
    return whole.reshape(shape).round().clamp(-128, 127).to(planes.dtype)
