"""Layers of the joint model on a torch device: fused kernels where there are any, else plain torch.

Planes are (channels, H, W), frames of them (K, channels, H, W), all float32.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cofuse.errors import CofuseError

__all__ = [
    "HALVES_SCALE",
    "Layer",
    "box",
    "box_weights",
    "compress",
    "convolve",
    "enlarge",
    "exact",
    "fused",
    "halve",
    "halves",
    "mean_free",
    "mirrored",
    "on_device",
    "packed",
]

Floats = NDArray[np.float32]

#: What halves are multiplied by: the lower ones of weights would otherwise be too small to be
#: numbers with all their digits.
HALVES_SCALE = 256.0
#: Halves beyond this are infinite, or nearly so.
_MOST_HALF = 65000.0


@contextmanager
def exact() -> Iterator[None]:
    """Work without gradients, and in float32 where torch would take TF32 for it."""
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, products.allow_tf32
    convolutions.allow_tf32 = products.allow_tf32 = False
    try:
        with torch.inference_mode():
            yield
    finally:
        convolutions.allow_tf32, products.allow_tf32 = before


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def fused(values: Tensor) -> bool:
    """Whether the fused kernels can work on a tensor."""
    # Triton's own interpreter runs them on the CPU, for tests.
    there = values.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    return there and _has_triton()


def on_device(values: ArrayLike, device: str) -> Tensor:
    """Take an array to the device, in float32."""
    return torch.as_tensor(np.array(values, np.float32), device=device)


def mean_free(filters: Floats) -> Floats:
    """Take the mean out of every filter."""
    return np.asarray(filters - filters.mean((-2, -1), keepdims=True), np.float32)


def packed(matrix: Floats, least: int = 16) -> Floats:
    """Fill the last two axes with zeros up to powers of two, as the fused kernels want them."""
    sides = [max(least, 1 << (n - 1).bit_length()) for n in matrix.shape[-2:]]
    whole = np.zeros((*matrix.shape[:-2], *sides), np.float32)
    whole[..., : matrix.shape[-2], : matrix.shape[-1]] = matrix
    return whole


def halves(matrix: Floats, device: str) -> Tensor:
    """Take a matrix to the device as the fused kernels want it: `packed`, as sums of two halves."""
    whole = packed(matrix) * np.float32(HALVES_SCALE)
    if float(np.abs(whole).max()) > _MOST_HALF:
        most = _MOST_HALF / HALVES_SCALE
        raise CofuseError(f"the model has weights beyond ±{most:g}, which devices cannot use")
    high = whole.astype(np.float16)
    low = (whole - high.astype(np.float32)).astype(np.float16)
    return torch.as_tensor(np.stack([high, low]), device=device)


class Layer:
    """A 3 × 3 convolution, edges repeated, with its bias."""

    def __init__(self, weight: Floats, bias: Floats, device: str) -> None:
        self.weight, self.bias = on_device(weight, device), on_device(bias, device)


def convolve(
    planes: Tensor, layer: Layer, *, base: Tensor | None = None, small: Tensor | None = None
) -> Tensor:
    """Rectified convolution of frames' planes.

    ``base``, common to all frames, takes the bias's place, and ``small`` planes of half the size
    are enlarged and added.
    """
    bias = layer.bias if base is None else None
    total = F.conv2d(F.pad(planes, (1,) * 4, mode="replicate"), layer.weight, bias)
    if base is not None:
        total += base
    if small is not None:
        total += enlarge(small)
    return total.relu_()


def compress(squares: Tensor) -> Tensor:
    """Tame energies over many magnitudes, as a logarithm would: 2 (1 + q)^(1/8) − 2."""
    return (squares + 1.0).sqrt_().sqrt_().sqrt_().mul_(2.0).sub_(2.0)


def enlarge(planes: Tensor) -> Tensor:
    """Enlarge frames' planes twofold, linearly."""
    return F.interpolate(planes, scale_factor=2, mode="bilinear", align_corners=False)


def halve(planes: Tensor) -> Tensor:
    """Halve planes (n, H, W) with the weights 1 3 3 1, the counterpart of `enlarge`."""
    height, width = planes.shape[-2:]
    padded = F.pad(planes, (1, 1 + width % 2, 1, 1 + height % 2), mode="replicate")
    rows = padded[:, :-3:2] + padded[:, 3::2] + 3.0 * (padded[:, 1:-2:2] + padded[:, 2:-1:2])
    inner = 3.0 * (rows[..., 1:-2:2] + rows[..., 2:-1:2])
    return (rows[..., :-3:2] + rows[..., 3::2] + inner) / 64.0


def mirrored(planes: Tensor, border: int) -> Tensor:
    """Mirror planes (n, H, W) at their outermost pixels."""
    if min(planes.shape[-2:]) > border:
        return F.pad(planes, (border,) * 4, mode="reflect")
    # Planes smaller than the border are mirrored again and again.
    for axis in (-2, -1):
        size = planes.shape[axis]
        at = np.abs(np.arange(-border, size + border)) % max(2 * size - 2, 1)
        at = np.minimum(at, 2 * size - 2 - at)
        planes = planes.index_select(axis, torch.as_tensor(at, device=planes.device))
    return planes


def box(planes: Tensor, side: int, *, square: bool = False) -> Tensor:
    """Window means of planes (n, H, W), borders mirrored; squared if asked for."""
    if fused(planes) and min(planes.shape[-2:]) > side // 2:
        from cofuse.kernels import gpu_triton_mixing

        weights = box_weights((side,), planes.device)
        rows = gpu_triton_mixing.blur(planes.contiguous(), weights, across=True)
        return gpu_triton_mixing.blur(rows, weights, across=False, square=square)
    padded = mirrored(planes, side // 2)
    rows = F.avg_pool2d(padded[:, None], (side, 1), 1)
    means = F.avg_pool2d(rows, (1, side), 1)[:, 0]
    return means.square_() if square else means


@cache
def box_weights(sides: tuple[int, ...], device: Any) -> Tensor:
    """Weights along one axis of so many window means one after the other."""
    weights = np.ones(1)
    for side in sides:
        weights = np.convolve(weights, np.full(side, 1.0 / side))
    return torch.as_tensor(weights.astype(np.float32), device=device)
