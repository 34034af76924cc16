"""Triton kernels of the joint model's stages, for CUDA devices, and what all kernels share.

A convolution is a product of matrices, filters by taps and taps by pixels, the latter gathered on
the way; `gpu_triton_weigher` holds those of the weigher. The device multiplies halves (float16)
much faster than floats: a float is the sum of two halves to 22 bits, and three products of these
are as good as one in float32. A single product of TF32 would be a thousand times coarser. Filters
without a mean see the differences from the middle of their patch, which loses nothing and leaves
small numbers.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cofuse.kernels.joint_gpu_layers import HALVES_SCALE

__all__ = [
    "UNIT",
    "add_product",
    "add_split_product",
    "convert",
    "halve",
    "jit",
    "mirrored",
    "prepare",
    "pull",
    "split",
]

#: Arguments of kernels that are sizes: no picture needs a kernel of its own.
_SIZES = {"count", "height", "width", "rows", "columns", "top", "left", "area", "wide"}
_SIZES |= {"blocks", "block_columns", "stride", "frame_stride", "part_stride", "out_stride"}
_SIZES |= {"out_part_stride", "out_wide", "strip", "pairs", "first", "native_stride"}


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel once for pictures of all sizes."""
    sizes = [name for name in inspect.signature(function).parameters if name in _SIZES]
    return triton.jit(function, do_not_specialize=sizes)


#: What products of halves are multiplied by in the end.
UNIT = tl.constexpr(1.0 / HALVES_SCALE)
#: Coefficients of one row that a program works on, its warps, the stages of its pipeline, and
#: registers of a thread; found on an H200.
PULL: tuple[int, int, int, int | None] = 64, 4, 1, 168
#: Programs that a multiprocessor runs at a time, and rows of one, at most.
_RESIDENT, _MOST_ROWS = 3, 256
_BLOCK = 512
#: Whether the device has the instruction for a reciprocal that is good enough.
_FAST = torch.version.hip is None and os.environ.get("TRITON_INTERPRET") != "1"


@jit
def split(values):  # type: ignore[no-untyped-def]
    """Two halves that sum up to values."""
    # Kept within the range of halves; nothing real goes beyond it.
    values = tl.minimum(tl.maximum(values, -60000.0), 60000.0)
    upper = values.to(tl.float16)
    return upper, (values - upper.to(tl.float32)).to(tl.float16)


@jit
def add_split_product(upper, lower, high, low, total):  # type: ignore[no-untyped-def]
    """Total plus (upper + lower) @ (high + low), to the accuracy of float32; still to be scaled."""
    product = tl.dot(lower, high)
    product = tl.dot(upper, low, product)
    # Added outside: the device cuts digits off where it adds products up, and rounds here.
    return total + tl.dot(upper, high, product)


@jit
def add_product(values, high, low, total):  # type: ignore[no-untyped-def]
    """Total plus values @ (high + low), as above."""
    upper, lower = split(values)
    return add_split_product(upper, lower, high, low, total)


@jit
def _mirror(at, length):  # type: ignore[no-untyped-def]
    """Mirror places at both ends."""
    return length - 1 - tl.abs(length - 1 - tl.abs(at))


@jit
def _inverse(values, FAST: tl.constexpr):  # type: ignore[no-untyped-def]
    """1 / values; to the last digit but one, and 0 for infinity, if it is to be fast."""
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [values], tl.float32, True, 1
        )
    return 1.0 / values


@jit
def _pull_kernel(  # type: ignore[no-untyped-def]
    x, logs, weight, back, terms, mixed, fidelity, slow, out, rows, columns, strip, limit, most,
    SIDE: tl.constexpr, RING: tl.constexpr, FILTERS: tl.constexpr, LAST: tl.constexpr,
    FAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Ωᵀφ(Ωx), row by row of coefficients.

    Every row gives to the SIDE rows of its patches. These are summed up in as many slots of a ring:
    the filters go round instead of the sums.
    """
    plane = tl.program_id(1).to(tl.int64)
    across = tl.cdiv(columns, BLOCK - SIDE + 1)
    first = tl.program_id(0) // across * strip
    left = (tl.program_id(0) % across) * (BLOCK - SIDE + 1)
    reach = SIDE // 2
    wide = columns + 4 * reach
    place = tl.arange(0, BLOCK)
    # What lies past the end is of no use, and not stored; but loads are of neighbours, as it is.
    at = left + place
    mirrored = tl.maximum(_mirror(at - reach, columns), 0)
    tap = tl.arange(0, RING * RING)
    f = tl.arange(0, FILTERS)
    # Weights beyond the patch are zeros.
    offset = tl.minimum(tap // RING, SIDE - 1) * wide + tl.minimum(tap % RING, SIDE - 1)
    filters = weight + tap[:, None] * FILTERS + f[None, :]
    high, low = tl.load(filters), tl.load(filters + RING * RING * FILTERS)
    term = terms + plane * 8 * FILTERS + f
    picture = x + plane * (rows + 4 * reach) * wide
    ring = tl.zeros((BLOCK, RING * RING), tl.float32)
    # Column c of the result is the sum of what coefficients c … c + SIDE − 1 give to it.
    slot = tl.arange(0, RING)
    giver = tl.minimum(place[:, None] + tl.maximum(SIDE - 1 - slot[None, :], 0), BLOCK - 1)
    column = left + place
    inside = (place < BLOCK - SIDE + 1) & (column < columns)
    for y in range(first, tl.minimum(first + strip, rows) + SIDE - 1):
        corner = picture + y * wide + at
        patches = tl.load(corner[:, None] + offset[None, :])
        patches -= tl.load(corner + (reach * wide + reach))[:, None]
        upper = patches.to(tl.float16)
        lower = (patches - upper.to(tl.float32)).to(tl.float16)
        # Numbers of this row are multiplied with the unit, rather than its coefficients.
        u = tl.dot(upper, high, tl.dot(upper, low, tl.dot(lower, high)))
        log = logs + _mirror(y - reach, rows) * columns + mirrored
        narrow = tl.exp(tl.load(log + rows * columns))
        tall = tl.minimum(tl.exp(tl.load(log)), narrow * most) * UNIT
        root = u * (narrow * UNIT)[:, None]
        # Beyond the limit the slope is nothing, and must not become the quotient of infinities.
        square = tl.minimum(root * root, limit)
        # Loaded for every row: there are too many of them to be kept.
        a0, a1 = tl.load(term)[None, :], tl.load(term + FILTERS)[None, :]
        b1, b2 = tl.load(term + 2 * FILTERS)[None, :], tl.load(term + 3 * FILTERS)[None, :]
        above = a0 + a1 * square
        below = 1.0 + square * (b1 + b2 * square)
        a0, a1 = tl.load(term + 4 * FILTERS)[None, :], tl.load(term + 5 * FILTERS)[None, :]
        b1, b2 = tl.load(term + 6 * FILTERS)[None, :], tl.load(term + 7 * FILTERS)[None, :]
        other = 1.0 + square * (b1 + b2 * square)
        above = above * other + (a0 + a1 * square) * below
        bent = u * tall[:, None] * (above * _inverse(below * other, FAST))
        turned = (tap // RING + (SIDE - 1) + RING - y % RING) % RING * RING + tap % RING
        turned_filters = back + f[:, None] * (RING * RING) + turned[None, :]
        turned_low = tl.load(turned_filters + RING * RING * FILTERS)
        upper = bent.to(tl.float16)
        lower = (bent - upper.to(tl.float32)).to(tl.float16)
        ring = add_split_product(upper, lower, tl.load(turned_filters), turned_low, ring)
        # No later row gives to this one.
        row = y - (SIDE - 1)
        slots = tl.reshape(ring, (BLOCK, RING, RING))
        done = tl.where(slot == (row + RING) % RING, 1.0, 0.0)
        given = tl.sum(slots * done[None, :, None], axis=1)
        ring = tl.reshape(slots * (1.0 - done)[None, :, None], (BLOCK, RING * RING))
        if row >= first:
            given = tl.gather(given, giver, 0)
            total = tl.sum(tl.where(slot[None, :] < SIDE, given, 0.0), axis=1) * -UNIT
            target = plane * rows * columns + row * columns + column
            if LAST:
                here = tl.load(picture + (row + 2 * reach) * wide + column + 2 * reach, inside, 0.0)
                faithful = tl.load(logs + 2 * rows * columns + row * columns + column, inside, 0.0)
                faithful = tl.exp(faithful) * tl.load(fidelity + plane)
                total += here + faithful * (tl.load(mixed + target, inside, 0.0) - here)
                # Pixel 2i lies a quarter before pixel i of the small plane, 2i + 1 one after it.
                h, w = (rows + 1) // 2, (columns + 1) // 2
                near_y, near_x = row // 2, tl.minimum(column // 2, w - 1)
                far_y = tl.minimum(tl.maximum(near_y + 2 * (row % 2) - 1, 0), h - 1)
                far_x = tl.minimum(tl.maximum(near_x + 2 * (column % 2) - 1, 0), w - 1)
                small = slow + plane * h * w
                near = 0.75 * tl.load(small + near_y * w + near_x)
                near += 0.25 * tl.load(small + near_y * w + far_x)
                away = 0.75 * tl.load(small + far_y * w + near_x)
                away += 0.25 * tl.load(small + far_y * w + far_x)
                total += 0.75 * near + 0.25 * away
            tl.store(out + target, total, inside)


@jit
def _mirrored_kernel(  # type: ignore[no-untyped-def]
    planes, out, height, width, MOST: tl.constexpr, BORDER: tl.constexpr, BLOCK: tl.constexpr
):
    """Planes mirrored at their borders, and limited."""
    plane = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide, high = width + 2 * BORDER, height + 2 * BORDER
    inside = position < high * wide
    y = _mirror(position // wide - BORDER, height)
    x = _mirror(position % wide - BORDER, width)
    value = tl.load(planes + plane * height * width + y * width + x, inside, 0.0)
    value = tl.minimum(tl.maximum(value, -MOST), MOST)
    tl.store(out + plane * high * wide + position, value, inside)


def mirrored(planes: Tensor, border: int, most: float) -> Tensor:
    """Mirror planes (n, H, W), longer than the border, and limit them, as `pull` wants them.

    What is asked for past their end is there, though it is nothing.
    """
    count, height, width = planes.shape
    size = count, height + 2 * border, width + 2 * border
    area = size[1] * size[2]
    whole = planes.new_empty(count * area + 2 * PULL[0])
    whole[count * area :].zero_()
    _mirrored_kernel[(triton.cdiv(area, _BLOCK), count)](
        planes, whole, height, width, MOST=most, BORDER=border, BLOCK=_BLOCK, num_warps=4
    )
    return whole[: count * area].view(size)


def pull(
    padded: Tensor,
    logs: Tensor,
    weights: tuple[Tensor, Tensor],
    terms: Tensor,
    limits: tuple[float, float],
    side: int,
    last: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Make −Ωᵀφ(Ωx) of pictures (planes, h, w), `mirrored` by 2 (side // 2).

    ``logs`` (2 or 3, h, w) are those of tall and narrow; ``weights`` (2, taps, filters), see
    `joint_gpu_layers.halves`, and the same turned round; ``terms`` (planes, 8, filters); ``limits``
    the largest square that these can take and the largest ratio of tall by narrow. Nothing padded
    may be beyond ±30000. With ``last``, which is mixture, fidelity, and the coarse bank's result,
    all that a stage adds to x is added; a third of ``logs`` is then that of the fidelity.
    """
    planes = len(padded)
    rows, columns = logs.shape[1:]
    out = torch.empty((planes, rows, columns), device=padded.device)
    ring, filters = 1 << (side - 1).bit_length(), terms.shape[2]
    block, warps, stages, registers = PULL
    across = planes * triton.cdiv(columns, block - side + 1)
    strip = _strip(rows, across, side, _RESIDENT * _processors(padded.device))
    mixed, fidelity, slow = last or (padded, padded, padded)
    _pull_kernel[(triton.cdiv(rows, strip) * (across // planes), planes)](
        padded, logs, *weights, terms, mixed, fidelity, slow, out, rows, columns, strip, *limits,
        SIDE=side, RING=ring, FILTERS=filters, LAST=last is not None, FAST=_FAST, BLOCK=block,
        num_warps=warps, num_stages=stages, maxnreg=registers,
    )  # fmt: skip
    return out


def _strip(rows: int, across: int, side: int, resident: int) -> int:
    """Rows a program, for the least time: it works on some more than these, and rounds are whole.

    ``across`` programs are beside each other, and so many run at a time.
    """
    strips = range(-(-rows // _MOST_ROWS), -(-rows // 8) + 1)
    found = [-(-rows // count) for count in strips]
    return min(found, key=lambda n: -(-(-(-rows // n) * across) // resident) * (n + side - 1))


@cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@jit
def _prepare_kernel(  # type: ignore[no-untyped-def]
    guide, fine, coarse, left_noise, out, rows, columns, wide, area,
    MOST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Logarithms of how strong, narrow and faithful a stage is; guides are of half the size."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < rows * columns
    y, x = position // columns, position % columns
    first, last = tl.load(fine + position, inside, 0.0), tl.load(coarse + position, inside, 0.0)
    source = guide + (y % 2 * 2 + x % 2) * area + y // 2 * wide + x // 2
    for kind in tl.static_range(3):
        told = tl.load(source + kind * 4 * area, inside, 0.0)
        told = tl.minimum(tl.maximum(told, -MOST), MOST)
        told += tl.load(left_noise + 2 * kind) * first
        told += tl.load(left_noise + 2 * kind + 1) * last
        tl.store(out + kind * rows * columns + position, told, inside)


def prepare(guide: Tensor, fine: Tensor, coarse: Tensor, left_noise: Tensor, most: float) -> Tensor:
    """Logarithms (3, H, W) of a stage's numbers, from guides (12, h, w) of half the size."""
    rows, columns = fine.shape
    out = fine.new_empty((3, rows, columns))
    _prepare_kernel[(triton.cdiv(rows * columns, _BLOCK),)](
        guide, fine, coarse, left_noise, out, rows, columns, guide.shape[2],
        guide.shape[1] * guide.shape[2], MOST=most, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out


@jit
def _halve_kernel(  # type: ignore[no-untyped-def]
    planes, out, height, width, rows, columns, BLOCK: tl.constexpr
):
    """Means with the weights 1 3 3 1, edges repeated."""
    plane = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < rows * columns
    y, x = position // columns, position % columns
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(4):
        row = tl.minimum(tl.maximum(2 * y + (i - 1), 0), height - 1)
        line = planes + plane * height * width + row * width
        sums = tl.zeros((BLOCK,), tl.float32)
        for j in tl.static_range(4):
            column = tl.minimum(tl.maximum(2 * x + (j - 1), 0), width - 1)
            value = tl.load(line + column, inside, 0.0)
            sums += 3.0 * value if j == 1 or j == 2 else value
        total += 3.0 * sums if i == 1 or i == 2 else sums
    tl.store(out + plane * rows * columns + position, total / 64.0, inside)


def halve(planes: Tensor) -> Tensor:
    """Halve planes (n, H, W), as `joint_gpu_layers.halve`."""
    count, height, width = planes.shape
    rows, columns = (height + 1) // 2, (width + 1) // 2
    out = planes.new_empty((count, rows, columns))
    _halve_kernel[(triton.cdiv(rows * columns, _BLOCK), count)](
        planes, out, height, width, rows, columns, BLOCK=_BLOCK, num_warps=4
    )
    return out


@jit
def _convert_kernel(  # type: ignore[no-untyped-def]
    native, matrix, out, height, width, rows, columns, native_stride, out_stride, bend, reach,
    scale, CHANNELS: tl.constexpr, PLANES: tl.constexpr, WORDS: tl.constexpr, BEND: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Planes of native pixels; beyond these the edges are repeated."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < rows * columns
    y = tl.minimum(position // columns, height - 1)
    x = tl.minimum(position % columns, width - 1)
    source = native + y.to(tl.int64) * native_stride + x * CHANNELS
    for channel in tl.static_range(CHANNELS):
        value = tl.load(source + channel, inside, 0)
        if WORDS:
            value = value.to(tl.int32) & 0xFFFF
        levels = value.to(tl.float32) * scale
        if BEND:
            root = tl.sqrt(1.0 + bend * tl.maximum(levels, 0.0))
            levels = levels * (reach / (root + 1.0))
        if channel == 0:
            first = levels
            second = levels
            third = levels
        elif channel == 1:
            second = levels
        else:
            third = levels
    for plane in tl.static_range(PLANES):
        total = first * tl.load(matrix + plane * CHANNELS)
        if CHANNELS == 3:
            total += second * tl.load(matrix + plane * CHANNELS + 1)
            total += third * tl.load(matrix + plane * CHANNELS + 2)
        target = out + plane * out_stride.to(tl.int64) + position
        tl.store(target, total, inside)


def convert(
    native: Tensor, matrix: Tensor, scale: float, bend: float, reach: float, out: Tensor
) -> Tensor:
    """Planes of native pixels (H, W) or (H, W, 3); see `gpu_frames.Conversion`."""
    planes, rows, columns = out.shape
    _convert_kernel[(triton.cdiv(rows * columns, _BLOCK),)](
        native, matrix, out, *native.shape[:2], rows, columns, native.stride(0), out.stride(0),
        bend, reach, scale, CHANNELS=matrix.shape[1], PLANES=planes,
        WORDS=native.dtype == torch.int16, BEND=bend != 0, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out
