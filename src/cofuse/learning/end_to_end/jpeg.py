"""JPEG compression of batches of grey pictures, on the device they are on."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.jpeg import LUMINANCE

__all__ = ["compress"]


def compress(frames: Tensor, quality: float, corner: tuple[int, int]) -> Tensor:
    """Write frames (..., H, W) as JPEG and read them again.

    ``quality`` is 50 to 100 by the usual rule; ``corner`` says by how many rows and columns the
    first block begins before the picture.
    """
    height, width = frames.shape[-2:]
    top, left = corner
    flat = frames.reshape(-1, 1, height, width) - 128.0
    flat = F.pad(flat, (left, -(left + width) % 8, top, -(top + height) % 8), mode="replicate")
    rows, columns = flat.shape[-2] // 8, flat.shape[-1] // 8
    blocks = flat.view(-1, rows, 8, columns, 8)
    dct = _cosines(8, frames.device)
    coefficients = torch.einsum("ui,nrics,vs->nrucv", dct, blocks, dct)
    steps = torch.tensor(LUMINANCE, device=frames.device).float()
    steps = (steps * (2.0 - quality / 50.0)).round().clamp_min(1.0)[:, None, :]
    coefficients = (coefficients / steps).round() * steps
    blocks = torch.einsum("ui,nrucv,vs->nrics", dct, coefficients, dct)
    whole = (blocks.reshape(flat.shape) + 128.0).round().clamp(0.0, 255.0)
    return whole[..., top : top + height, left : left + width].reshape(frames.shape)


def _cosines(side: int, device: torch.device) -> Tensor:
    """The orthonormal DCT as a matrix."""
    steps = torch.arange(side, device=device)
    matrix = torch.cos(math.pi * torch.outer(steps, 2 * steps + 1) / (2 * side))
    return F.normalize(matrix, dim=1)
