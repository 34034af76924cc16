"""Triton kernels of the joint model's weigher that work pixel by pixel, for CUDA devices.

They work on sheets, as `gpu_triton_weigher` calls them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cofuse.kernels.gpu_triton import UNIT, add_product, add_split_product, jit, split
from cofuse.kernels.gpu_triton_weigher import sheet_strides

__all__ = ["pool_answers", "share", "shrink", "transform"]

#: Pixels that a program works on, and its warps; found on an H200.
POINTS = 128, 4


@jit
def _load(planes, part_stride, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Numbers of a sheet."""
    low = tl.load(planes + part_stride.to(tl.int64) * CHANNELS)
    return tl.load(planes).to(tl.float32) + low.to(tl.float32)


@jit
def _shrink_kernel(  # type: ignore[no-untyped-def]
    planes, out, part_stride, frame_stride, wide, rows, columns, out_part_stride, out_stride,
    out_wide, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Means of four pixels."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    frame = tl.program_id(1).to(tl.int64)
    inside = (position < rows * columns)[:, None]
    position = tl.minimum(position, rows * columns - 1)
    y, x = position // columns, position % columns
    c = tl.arange(0, CHANNELS)[None, :]
    source = planes + frame * frame_stride * CHANNELS
    source += ((2 * y + 1) * wide + 2 * x + 1)[:, None] * CHANNELS + c
    total = _load(source, part_stride, CHANNELS) + _load(source + CHANNELS, part_stride, CHANNELS)
    source += wide * CHANNELS
    total += _load(source, part_stride, CHANNELS) + _load(source + CHANNELS, part_stride, CHANNELS)
    upper, lower = split(0.25 * total)
    target = out + frame * out_stride * CHANNELS
    target += ((y + 1) * out_wide + x + 1)[:, None] * CHANNELS + c
    tl.store(target, upper, inside)
    tl.store(target + out_part_stride.to(tl.int64) * CHANNELS, lower, inside)


def shrink(planes: Tensor, size: tuple[int, int], out: Tensor) -> Tensor:
    """Halve a sheet: means of four pixels, written to a sheet of frames of that size."""
    block, warps = POINTS
    _shrink_kernel[(triton.cdiv(size[0] * size[1], block), planes.shape[1])](
        planes, out, *sheet_strides(planes), *size, *sheet_strides(out), CHANNELS=planes.shape[-1],
        BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out


@jit
def _share_kernel(  # type: ignore[no-untyped-def]
    planes, weight, constant, out, part_stride, frame_stride, wide, count, rows, columns,
    CHANNELS: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A matrix of mean and largest of all frames."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (position < rows * columns)[:, None]
    position = tl.minimum(position, rows * columns - 1)
    y, x = position // columns, position % columns
    c = tl.arange(0, CHANNELS)
    o = tl.arange(0, OUT)
    source = planes + ((y + 1) * wide + x + 1)[:, None] * CHANNELS + c[None, :]
    mean = tl.zeros((BLOCK, CHANNELS), tl.float32)
    largest = tl.zeros((BLOCK, CHANNELS), tl.float32)  # nothing is below zero
    for _ in range(count):
        values = _load(source, part_stride, CHANNELS)
        mean += values
        largest = tl.maximum(largest, values)
        source += frame_stride.to(tl.int64) * CHANNELS
    matrix = weight + c[:, None] * OUT + o[None, :]
    further = matrix + CHANNELS * OUT
    total = tl.zeros((BLOCK, OUT), tl.float32)
    low = tl.load(matrix + 2 * CHANNELS * OUT)
    total = add_product(mean / count, tl.load(matrix), low, total)
    low = tl.load(further + 2 * CHANNELS * OUT)
    total = add_product(largest, tl.load(further), low, total)
    total = total * UNIT + tl.load(constant + o)[None, :]
    tl.store(out + position[:, None] * OUT + o[None, :], total, inside)


def share(planes: Tensor, size: tuple[int, int], weight: Tensor, constant: Tensor) -> Tensor:
    """What frames share, (h, w, outputs): a matrix of mean and largest, (2, 2, channels, outputs).

    The first axis of ``weight`` is that of its halves.
    """
    outputs = weight.shape[3]
    out = torch.empty((*size, outputs), device=planes.device)
    block, warps = POINTS
    _share_kernel[(triton.cdiv(size[0] * size[1], block),)](
        planes, weight, constant, out, *sheet_strides(planes), planes.shape[1], *size,
        CHANNELS=planes.shape[-1], OUT=outputs, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out


@jit
def _transform_kernel(  # type: ignore[no-untyped-def]
    planes, weight, out, part_stride, frame_stride, wide, rows, columns,
    CHANNELS: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A matrix of every pixel."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    frame = tl.program_id(1).to(tl.int64)
    inside = (position < rows * columns)[:, None]
    position = tl.minimum(position, rows * columns - 1)
    y, x = position // columns, position % columns
    c = tl.arange(0, CHANNELS)
    o = tl.arange(0, OUT)
    source = planes + frame * frame_stride * CHANNELS
    source += ((y + 1) * wide + x + 1)[:, None] * CHANNELS + c[None, :]
    lower = tl.load(source + part_stride.to(tl.int64) * CHANNELS)
    matrix = weight + c[:, None] * OUT + o[None, :]
    total = tl.zeros((BLOCK, OUT), tl.float32)
    low = tl.load(matrix + CHANNELS * OUT)
    total = add_split_product(tl.load(source), lower, tl.load(matrix), low, total) * UNIT
    target = out + (frame * rows * columns + position[:, None]) * OUT + o[None, :]
    tl.store(target, total, inside)


def transform(planes: Tensor, size: tuple[int, int], weight: Tensor) -> Tensor:
    """Multiply every pixel with a matrix (2, channels, outputs): (K, h, w, outputs)."""
    outputs = weight.shape[2]
    out = torch.empty((planes.shape[1], *size, outputs), device=planes.device)
    block, warps = POINTS
    _transform_kernel[(triton.cdiv(size[0] * size[1], block), planes.shape[1])](
        planes, weight, out, *sheet_strides(planes), *size, CHANNELS=planes.shape[-1], OUT=outputs,
        BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out


@jit
def _pool_kernel(  # type: ignore[no-untyped-def]
    planes, out, part_stride, frame_stride, wide, count, rows, columns, share,
    ADD: tl.constexpr, USED: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mean and largest of frames, or what these add to earlier ones."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    area = rows * columns
    c = tl.arange(0, CHANNELS)[None, :]
    inside = (position < area)[:, None] & (c < USED)
    at = tl.minimum(position, area - 1)
    source = planes + ((at // columns + 1) * wide + at % columns + 1)[:, None] * CHANNELS + c
    total = tl.zeros((BLOCK, CHANNELS), tl.float32)
    largest = tl.zeros((BLOCK, CHANNELS), tl.float32)  # nothing is below zero
    for _ in range(count):
        values = _load(source, part_stride, CHANNELS)
        total += values
        largest = tl.maximum(largest, values)
        source += frame_stride.to(tl.int64) * CHANNELS
    total *= share
    target = out + c.to(tl.int64) * area + position[:, None]
    further = target + tl.cast(area, tl.int64) * USED
    if ADD:
        total += tl.load(target, inside, 0.0)
        largest = tl.maximum(largest, tl.load(further, inside, 0.0))
    tl.store(target, total, inside)
    tl.store(further, largest, inside)


def pool_answers(planes: Tensor, out: Tensor, share: float, *, add: bool) -> None:
    """Write mean and largest of a sheet's frames to planes (2 · channels, h, w).

    ``share`` is what each counts in the mean; ``add`` to what earlier frames left there.
    """
    channels, rows, columns = out.shape
    block, warps = POINTS
    _pool_kernel[(triton.cdiv(rows * columns, block),)](
        planes, out, *sheet_strides(planes), planes.shape[1], rows, columns, share, ADD=add,
        USED=channels // 2, CHANNELS=planes.shape[-1], BLOCK=block, num_warps=warps,
    )  # fmt: skip
