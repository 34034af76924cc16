"""Triton kernels that weigh the joint model's frames again, for CUDA devices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from cofuse.kernels.gpu_triton import jit

__all__ = ["correct", "measure"]

_BLOCK = 256


@jit
def _compress(squares):  # type: ignore[no-untyped-def]
    """Tame energies: 2 (1 + q)^(1/8) − 2."""
    return 2.0 * tl.sqrt(tl.sqrt(tl.sqrt(1.0 + squares))) - 2.0


@jit
def _rows_kernel(  # type: ignore[no-untyped-def]
    frame, picture, detail, out, height, width, WINDOW: tl.constexpr, SMALL: tl.constexpr,
    LARGE: tl.constexpr, DETAIL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums along rows of a residual's square, of itself twice, and of its product with detail."""
    blocks = tl.cdiv(width, BLOCK)
    y = tl.program_id(0) // blocks
    x = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = x < width
    energy = tl.zeros((BLOCK,), tl.float32)
    small = tl.zeros((BLOCK,), tl.float32)
    large = tl.zeros((BLOCK,), tl.float32)
    product = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(-(DETAIL // 2), DETAIL // 2 + 1):
        at = y * width + width - 1 - tl.abs(width - 1 - tl.abs(x + tap))
        value = tl.load(picture + at, inside, 0.0) - tl.load(frame + at, inside, 0.0)
        product += value * tl.load(detail + at, inside, 0.0)
        if tap >= -(LARGE // 2) and tap <= LARGE // 2:
            large += value
        if tap >= -(SMALL // 2) and tap <= SMALL // 2:
            small += value
        if tap >= -(WINDOW // 2) and tap <= WINDOW // 2:
            energy += value * value
    target = out + y * width + x
    area = tl.cast(height * width, tl.int64)
    tl.store(target, energy, inside)
    tl.store(target + area, small, inside)
    tl.store(target + 2 * area, large, inside)
    tl.store(target + 3 * area, product, inside)


@jit
def _along(values, y, x, height, width, inside, ACROSS: tl.constexpr, SIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sum of SIDE values along an axis, mirrored."""
    total = tl.load(values + y * width + x, inside, 0.0)
    for tap in tl.static_range(1, SIDE // 2 + 1):
        if ACROSS:
            before = y * width + tl.abs(x - tap)
            after = y * width + width - 1 - tl.abs(width - 1 - (x + tap))
        else:
            before = tl.abs(y - tap) * width + x
            after = (height - 1 - tl.abs(height - 1 - (y + tap))) * width + x
        total += tl.load(values + before, inside, 0.0) + tl.load(values + after, inside, 0.0)
    return total


@jit
def _columns_kernel(  # type: ignore[no-untyped-def]
    sums, amount, means, out, height, width, WINDOW: tl.constexpr, SMALL: tl.constexpr,
    LARGE: tl.constexpr, DETAIL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Complete what `_rows_kernel` began: first and last measure, and squares of two means."""
    blocks = tl.cdiv(width, BLOCK)
    y = tl.program_id(0) // blocks
    x = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = x < width
    area = tl.cast(height * width, tl.int64)
    at = y * width + x
    energy = _along(sums, y, x, height, width, inside, False, WINDOW) / (WINDOW * WINDOW)
    tl.store(out + at, _compress(energy), inside)
    small = _along(sums + area, y, x, height, width, inside, False, SMALL) / (SMALL * SMALL)
    tl.store(means + at, small * small, inside)
    large = _along(sums + 2 * area, y, x, height, width, inside, False, LARGE) / (LARGE * LARGE)
    tl.store(means + area + at, large * large, inside)
    product = _along(sums + 3 * area, y, x, height, width, inside, False, DETAIL)
    product = product / (DETAIL * DETAIL) / tl.load(amount + at, inside, 1.0)
    tl.store(out + 3 * area + at, product, inside)


@jit
def _windows_kernel(  # type: ignore[no-untyped-def]
    means, out, height, width, ACROSS: tl.constexpr, SMALL: tl.constexpr, LARGE: tl.constexpr,
    SMALL_SCALE: tl.constexpr, LARGE_SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Means of two planes along rows, or along columns and compressed."""
    blocks = tl.cdiv(width, BLOCK)
    y = tl.program_id(0) // blocks
    x = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = x < width
    area = tl.cast(height * width, tl.int64)
    at = y * width + x
    small = _along(means, y, x, height, width, inside, ACROSS, SMALL) / SMALL
    large = _along(means + area, y, x, height, width, inside, ACROSS, LARGE) / LARGE
    if not ACROSS:
        small = _compress(small * (SMALL_SCALE * SMALL_SCALE))
        large = _compress(large * (LARGE_SCALE * LARGE_SCALE))
    tl.store(out + at, small, inside)
    tl.store(out + area + at, large, inside)


def measure(
    frame: Tensor,
    picture: Tensor,
    detail: Tensor,
    amount: Tensor,
    scales: Sequence[tuple[int, int]],
    side: int,
    out: Tensor,
) -> None:
    """Measure how a frame agrees with a picture, (4, H, W); see `joint_gpu_mixing.Agreement`.

    Of the three scales the first smooths nothing, and none more than ``side``, which is the window
    of the detail.
    """
    height, width = picture.shape
    (_, window), (small, small_window), (large, large_window) = scales
    sums, means = picture.new_empty((4, height, width)), picture.new_empty((2, height, width))
    grid = (height * triton.cdiv(width, 512),)
    first = {"WINDOW": window, "SMALL": small, "LARGE": large, "DETAIL": side}
    _rows_kernel[grid](frame, picture, detail, sums, height, width, **first, BLOCK=512)
    _columns_kernel[grid](sums, amount, means, out, height, width, **first, BLOCK=512)
    then = {"SMALL": small_window, "LARGE": large_window, "SMALL_SCALE": small}
    then |= {"LARGE_SCALE": large, "BLOCK": 512}
    _windows_kernel[grid](means, sums, height, width, ACROSS=True, **then)
    _windows_kernel[grid](sums, out[1:], height, width, ACROSS=False, **then)


@jit
def _correct_kernel(  # type: ignore[no-untyped-def]
    scores, measures, hidden, bias, correction, out, count, area, HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Bands' scores corrected by a small network of scores and measures; see `correct`."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < area
    mean0 = tl.zeros((BLOCK,), tl.float32)
    mean1 = tl.zeros((BLOCK,), tl.float32)
    mean2 = tl.zeros((BLOCK,), tl.float32)
    mean3 = tl.zeros((BLOCK,), tl.float32)
    for frame in range(count):
        source = measures + tl.cast(frame, tl.int64) * 4 * area + position
        mean0 += tl.load(source, inside, 0.0)
        mean1 += tl.load(source + area, inside, 0.0)
        mean2 += tl.load(source + 2 * area, inside, 0.0)
        mean3 += tl.load(source + 3 * area, inside, 0.0)
    for frame in range(count):
        source = measures + tl.cast(frame, tl.int64) * 4 * area + position
        m0, m1 = tl.load(source, inside, 0.0), tl.load(source + area, inside, 0.0)
        m2 = tl.load(source + 2 * area, inside, 0.0)
        m3 = tl.load(source + 3 * area, inside, 0.0)
        source = scores + tl.cast(frame, tl.int64) * 4 * area + position
        s0, s1 = tl.load(source, inside, 0.0), tl.load(source + area, inside, 0.0)
        s2 = tl.load(source + 2 * area, inside, 0.0)
        s3 = tl.load(source + 3 * area, inside, 0.0)
        d0, d1 = m0 - mean0 / count, m1 - mean1 / count
        d2, d3 = m2 - mean2 / count, m3 - mean3 / count
        lift1, lift2, lift3 = s1, s2, s3
        for j in tl.static_range(HIDDEN):
            w = hidden + j
            total = tl.load(bias + j) + s0 * tl.load(w) + s1 * tl.load(w + 16)
            total += s2 * tl.load(w + 32) + s3 * tl.load(w + 48)
            total += m0 * tl.load(w + 64) + m1 * tl.load(w + 80)
            total += m2 * tl.load(w + 96) + m3 * tl.load(w + 112)
            total += d0 * tl.load(w + 128) + d1 * tl.load(w + 144)
            total += d2 * tl.load(w + 160) + d3 * tl.load(w + 176)
            total = tl.maximum(total, 0.0)
            lift1 += total * tl.load(correction + j)
            lift2 += total * tl.load(correction + 16 + j)
            lift3 += total * tl.load(correction + 32 + j)
        target = out + tl.cast(frame, tl.int64) * 3 * area + position
        tl.store(target, lift1, inside)
        tl.store(target + area, lift2, inside)
        tl.store(target + 2 * area, lift3, inside)


def correct(
    scores: Tensor, measures: Tensor, hidden: Tensor, bias: Tensor, correction: Tensor, count: int
) -> Tensor:
    """Correct the scores (K, 4, H, W) of the bands, the last three, by measures (K, 4, H, W).

    ``hidden`` is (12, 16), for scores, measures and their difference from the mean of all frames;
    ``correction`` is (3, 16). Of the 16 so many count.
    """
    frames, _, height, width = scores.shape
    out = torch.empty((frames, 3, height, width), device=scores.device)
    _correct_kernel[(triton.cdiv(height * width, _BLOCK),)](
        scores, measures, hidden, bias, correction, out, frames, height * width, HIDDEN=count,
        BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out
