"""Triton kernels that mix the joint model's frames, for CUDA devices: each pixel by itself."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cofuse.kernels.gpu_triton import jit

__all__ = ["blur", "choose", "mix"]

#: Below every score.
_LEAST = -1e30
_BLOCK = 256


@jit
def _blur_kernel(  # type: ignore[no-untyped-def]
    values, weights, out, height, width, SIDE: tl.constexpr, ACROSS: tl.constexpr,
    SQUARE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weighed means along one axis, borders mirrored."""
    plane = tl.program_id(1).to(tl.int64) * height * width
    blocks = tl.cdiv(width, BLOCK)
    y = tl.program_id(0) // blocks
    x = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = x < width
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(SIDE):
        if ACROSS:
            at = tl.abs(x + (tap - SIDE // 2))
            at = y * width + width - 1 - tl.abs(width - 1 - at)
        else:
            row = tl.abs(y + (tap - SIDE // 2))
            at = (height - 1 - tl.abs(height - 1 - row)) * width + x
        total += tl.load(weights + tap) * tl.load(values + plane + at, inside, 0.0)
    if SQUARE:
        total = total * total
    tl.store(out + plane + y * width + x, total, inside)


def blur(values: Tensor, weights: Tensor, *, across: bool, square: bool = False) -> Tensor:
    """Weighed means of planes (n, H, W) along one axis, borders mirrored; squared if asked for.

    Planes must be longer than half the weights.
    """
    count, height, width = values.shape
    out = torch.empty_like(values)
    block = 512
    _blur_kernel[(height * triton.cdiv(width, block), count)](
        values, weights, out, height, width, SIDE=len(weights), ACROSS=across, SQUARE=square,
        BLOCK=block, num_warps=4,
    )  # fmt: skip
    return out


@jit
def _choose_kernel(  # type: ignore[no-untyped-def]
    scores, index, confidence, count, area, stride, LEAST: tl.constexpr, BLOCK: tl.constexpr
):
    """Best frame of every pixel, and the lead of its softmax probability."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < area
    best = tl.full((BLOCK,), LEAST, tl.float32)
    second = tl.full((BLOCK,), LEAST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    chosen = tl.zeros((BLOCK,), tl.int32)
    for frame in range(count):
        value = tl.load(scores + tl.cast(frame, tl.int64) * stride + position, inside, 0.0)
        better = value > best
        less = tl.exp(-tl.abs(value - best))
        total = tl.where(better, total * less + 1.0, total + less)
        second = tl.where(better, best, tl.maximum(second, value))
        chosen = tl.where(better, frame, chosen)
        best = tl.maximum(best, value)
    tl.store(index + position, chosen, inside)
    tl.store(confidence + position, (1.0 - tl.exp(second - best)) / total, inside)


def choose(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Index and confidence of scores (K, 1 + bands, H, W)."""
    count, _, height, width = scores.shape
    index = torch.empty(
        (height, width), dtype=torch.uint8 if count <= 256 else torch.int16, device=scores.device
    )
    confidence = torch.empty((height, width), device=scores.device)
    _choose_kernel[(triton.cdiv(height * width, _BLOCK),)](
        scores, index, confidence, count, height * width, scores.stride(0),
        LEAST=_LEAST, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return index, confidence


@jit
def _mix_kernel(  # type: ignore[no-untyped-def]
    lows, lower, lowest, scores, relative, out, fine, coarse, count, area, stride,
    PLANES: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Three bands of all frames, each weighed by the softmax of its scores; and their noise."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < area
    nothing = tl.zeros((BLOCK,), tl.float32)
    peak0 = nothing + LEAST
    peak1 = nothing + LEAST
    peak2 = nothing + LEAST
    for frame in range(count):
        source = scores + tl.cast(frame, tl.int64) * stride + position
        peak0 = tl.maximum(peak0, tl.load(source, inside, 0.0))
        peak1 = tl.maximum(peak1, tl.load(source + area, inside, 0.0))
        peak2 = tl.maximum(peak2, tl.load(source + 2 * area, inside, 0.0))
    total0 = nothing
    total1 = nothing
    total2 = nothing
    power0 = nothing
    power2 = nothing
    first0 = nothing
    first1 = nothing
    first2 = nothing
    second0 = nothing
    second1 = nothing
    second2 = nothing
    third0 = nothing
    third1 = nothing
    third2 = nothing
    for frame in range(count):
        source = scores + tl.cast(frame, tl.int64) * stride + position
        weight0 = tl.exp(tl.load(source, inside, 0.0) - peak0)
        weight1 = tl.exp(tl.load(source + area, inside, 0.0) - peak1)
        weight2 = tl.exp(tl.load(source + 2 * area, inside, 0.0) - peak2)
        noise = tl.load(relative + frame)
        total0 += weight0
        total1 += weight1
        total2 += weight2
        power0 += weight0 * noise * (weight0 * noise)
        power2 += weight2 * noise * (weight2 * noise)
        at = tl.cast(frame, tl.int64) * PLANES * area + position
        a, b = tl.load(lows + at, inside, 0.0), tl.load(lower + at, inside, 0.0)
        c = tl.load(lowest + at, inside, 0.0)
        first0 += weight0 * (a - b)
        first1 += weight1 * (b - c)
        first2 += weight2 * c
        if PLANES == 3:
            at += area
            a, b = tl.load(lows + at, inside, 0.0), tl.load(lower + at, inside, 0.0)
            c = tl.load(lowest + at, inside, 0.0)
            second0 += weight0 * (a - b)
            second1 += weight1 * (b - c)
            second2 += weight2 * c
            at += area
            a, b = tl.load(lows + at, inside, 0.0), tl.load(lower + at, inside, 0.0)
            c = tl.load(lowest + at, inside, 0.0)
            third0 += weight0 * (a - b)
            third1 += weight1 * (b - c)
            third2 += weight2 * c
    tl.store(out + position, first0 / total0 + first1 / total1 + first2 / total2, inside)
    if PLANES == 3:
        second = second0 / total0 + second1 / total1 + second2 / total2
        tl.store(out + area + position, second, inside)
        third = third0 / total0 + third1 / total1 + third2 / total2
        tl.store(out + 2 * area + position, third, inside)
    tl.store(fine + position, 0.5 * tl.log(power0 / (total0 * total0) + 1e-6), inside)
    tl.store(coarse + position, 0.5 * tl.log(power2 / (total2 * total2) + 1e-6), inside)


def mix(
    lows: list[Tensor],
    scores: Tensor,
    relative: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mix three bands of frames (K, planes, H, W) with scores (K, 3, H, W), which may be a view.

    ``lows`` are the frames and their two smoother versions. Also returns half the log noise power
    of the finest and of the coarsest band.
    """
    count, planes, height, width = lows[0].shape
    out = torch.empty_like(lows[0][0])
    fine, coarse = (out.new_empty((height, width)) for _ in range(2))
    _mix_kernel[(triton.cdiv(height * width, _BLOCK),)](
        *lows, scores, relative, out, fine, coarse, count, height * width, scores.stride(0),
        PLANES=planes, LEAST=_LEAST, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out, fine, coarse
