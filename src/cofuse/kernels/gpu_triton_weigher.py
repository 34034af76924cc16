"""Triton kernels of the joint model's weigher, for CUDA devices.

Planes between layers are *sheets*: halves of the shape (2, K, H + 2, W + 2 or 3, channels). What a
number is, is the sum of the two; channels lie together, and the outermost pixels are repeated once
around. A row of a product of matrices is two pixels side by side: four columns of taps, by as many
channels, are a power of two, and lie in memory one after the other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from cofuse.kernels.gpu_triton import UNIT, add_product, add_split_product, jit, split

__all__ = [
    "FRAME_BORDER",
    "analyse",
    "convolve",
    "repeat_edges",
    "sheet",
    "sheet_strides",
]

#: Pixels that are repeated around frames to be analysed.
FRAME_BORDER = 4
#: Rows of products that a program makes, and its warps, by kernel; found on an H200.
ANALYSE = 128, 4
CONVOLVE = 128, 4


def sheet(count: int, height: int, width: int, channels: int, device: torch.device) -> Tensor:
    """Make an empty sheet of so many frames; zeros fill channels up, which come last."""
    size = 2, count, height + 2, width + 2 + width % 2, max(16, 1 << (channels - 1).bit_length())
    return torch.empty(size, dtype=torch.float16, device=device)


def sheet_strides(planes: Tensor) -> tuple[int, int, int]:
    """Pixels from the one half to the other, from frame to frame, and from row to row."""
    channels = planes.shape[-1]
    return planes.stride(0) // channels, planes.stride(1) // channels, planes.shape[3]


@jit
def _edges_kernel(  # type: ignore[no-untyped-def]
    planes, part_stride, frame_stride, wide, height, width, CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Repeat the outermost pixels."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start = tl.program_id(1).to(tl.int64) * frame_stride
    start += tl.program_id(2).to(tl.int64) * part_stride
    more = wide - width
    is_row = i < 2 * wide
    beside = tl.maximum(i - 2 * wide, 0)
    row = tl.where(is_row, i // wide * (height + 1), beside // more + 1)
    column = tl.where(beside % more == 0, 0, width + beside % more)
    column = tl.where(is_row, i % wide, column)
    inside = (row < height + 2) & (is_row | (row <= height))
    from_row = tl.minimum(tl.maximum(row, 1), height)
    from_column = tl.minimum(tl.maximum(column, 1), width)
    c = tl.arange(0, CHANNELS)[None, :]
    source = planes + start * CHANNELS + (from_row * wide + from_column)[:, None] * CHANNELS + c
    target = planes + start * CHANNELS + (row * wide + column)[:, None] * CHANNELS + c
    tl.store(target, tl.load(source, inside[:, None], 0.0), inside[:, None])


def repeat_edges(planes: Tensor, width: int) -> None:
    """Repeat the outermost pixels of a sheet of frames of that width."""
    height, wide = planes.shape[2] - 2, planes.shape[3]
    count = 2 * wide + height * (wide - width)
    _edges_kernel[(triton.cdiv(count, 128), planes.shape[1], 2)](
        planes,
        *sheet_strides(planes),
        height,
        width,
        CHANNELS=planes.shape[-1],
        BLOCK=128,
        num_warps=4,
    )


@jit
def _analyse_kernel(  # type: ignore[no-untyped-def]
    frames, weight, base, bias, out, frame_stride, wide, rows, columns,
    out_part_stride, out_stride, out_wide,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, TAPS: tl.constexpr, FILTERS: tl.constexpr,
    PIXELS: tl.constexpr, BORDER: tl.constexpr, COMPRESS: tl.constexpr, CHANNELS: tl.constexpr,
    FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Filters at every STRIDEth pixel; energies compressed and rectified; see `analyse`."""
    groups = columns // PIXELS
    across = tl.cdiv(groups, BLOCK)
    frame = tl.program_id(1).to(tl.int64)
    y = tl.program_id(0) // across
    group = (tl.program_id(0) % across) * BLOCK + tl.arange(0, BLOCK)
    inside = (group < groups)[:, None]
    group = tl.minimum(group, groups - 1)
    tap = tl.arange(0, TAPS)
    n = tl.arange(0, PIXELS * FILTERS)
    used = tl.minimum(tap, SIDE * (SIDE + PIXELS - 1) - 1)  # the others' weights are zeros
    offset = used // (SIDE + PIXELS - 1) * wide + used % (SIDE + PIXELS - 1)
    start: tl.constexpr = BORDER - (SIDE - 1) // 2
    corner = frames + frame * frame_stride + (STRIDE * y + start) * wide + start
    corner += STRIDE * PIXELS * group
    patches = tl.load(corner[:, None] + offset[None, :])
    patches -= tl.load(corner + (SIDE - 1) // 2 * (wide + 1))[:, None]
    filters = weight + tap[:, None] * (PIXELS * FILTERS) + n[None, :]
    low = tl.load(filters + TAPS * PIXELS * FILTERS)
    u = tl.zeros((BLOCK, PIXELS * FILTERS), tl.float32)
    u = add_product(patches, tl.load(filters), low, u) * UNIT
    at = (y * groups + group)[:, None] * (PIXELS * FILTERS) + n[None, :]
    if COMPRESS:
        u += tl.load(base + at)
        root = tl.sqrt(tl.sqrt(tl.sqrt(1.0 + u * u)))
        shift = tl.load(bias + frame * PIXELS * FILTERS + n)
        upper, lower = split(tl.maximum(2.0 * root - 2.0 + shift[None, :], 0.0))
        target = out + frame * out_stride * CHANNELS
        target += ((y + 1) * out_wide + PIXELS * group + 1)[:, None] * CHANNELS
        target += (n // FILTERS * CHANNELS + n % FILTERS + FIRST)[None, :]
        tl.store(target, upper, inside)
        tl.store(target + out_part_stride.to(tl.int64) * CHANNELS, lower, inside)
    else:
        tl.store(out + at, u, inside)


def analyse(
    frames: Tensor,
    weight: Tensor,
    side: int,
    pixels: int,
    out: Tensor,
    base: Tensor | None = None,
    bias: Tensor | None = None,
    first: int = 0,
) -> Tensor:
    """Filter frames (K, H + 8, W + 8), edges repeated; filters of an even side halve them.

    ``weight`` is (2, taps, pixels · filters), for so many pixels side by side. Without ``base``
    the coefficients of one frame are written to ``out`` (h, w, filters); with it, which is
    another's, energies are compressed, a ``bias`` (K, pixels · filters) is added, and they are
    written to a sheet from channel ``first`` on.
    """
    count, height, width = frames.shape
    stride = 2 - side % 2
    rows, columns = ((n - 2 * FRAME_BORDER) // stride for n in (height, width))
    block, warps = ANALYSE
    where = (0, 0, 0) if base is None else sheet_strides(out)
    _analyse_kernel[(rows * triton.cdiv(columns // pixels, block), count)](
        frames, weight, frames if base is None else base, frames if bias is None else bias, out,
        frames.stride(0), width, rows, columns, *where, SIDE=side, STRIDE=stride,
        TAPS=weight.shape[1], FILTERS=weight.shape[2] // pixels, PIXELS=pixels,
        BORDER=FRAME_BORDER, COMPRESS=base is not None, CHANNELS=out.shape[-1], FIRST=first,
        BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out


@jit
def _convolve_kernel(  # type: ignore[no-untyped-def]
    planes, weight, base, small, answer, out, part_stride, frame_stride, wide, height, width,
    top, left, rows, columns, out_part_stride, out_stride, out_wide,
    IN: tl.constexpr, OUT: tl.constexpr, ANSWERS: tl.constexpr, WHOLE_BASE: tl.constexpr,
    ENLARGE: tl.constexpr, SHUFFLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """3 × 3 filters, rectified, of a part of the planes; see `convolve`."""
    pairs = (columns + 1) // 2
    across = tl.cdiv(pairs, BLOCK)
    frame = tl.program_id(1).to(tl.int64)
    y = tl.program_id(0) // across + top
    pair = (tl.program_id(0) % across) * BLOCK + tl.arange(0, BLOCK)
    inside = (pair < pairs)[:, None]
    x = left + 2 * tl.minimum(pair, pairs - 1)
    k = tl.arange(0, 4 * IN)
    o = tl.arange(0, 2 * OUT)
    source = planes + frame * frame_stride * IN + (y * wide + x)[:, None] * IN + k[None, :]
    far = part_stride.to(tl.int64) * IN
    total = tl.zeros((BLOCK, 2 * OUT), tl.float32)
    for dy in tl.static_range(3):
        upper = tl.load(source + dy * wide * IN)
        lower = tl.load(source + dy * wide * IN + far)
        filters = weight + (dy * 4 * IN + k)[:, None] * (2 * OUT) + o[None, :]
        low = tl.load(filters + 3 * 4 * IN * 2 * OUT)
        total = add_split_product(upper, lower, tl.load(filters), low, total)
    total *= UNIT
    p = (o // OUT)[None, :]
    if WHOLE_BASE:
        at = (y * width + x)[:, None] * OUT + o[None, :]
        total += tl.load(base + at, x[:, None] + p < width, 0.0)
    else:
        total += tl.load(base + o)[None, :]
    if ENLARGE:
        # Pixel 2i lies a quarter before pixel i of the small plane, 2i + 1 a quarter after it.
        h, w = height // 2, width // 2
        near_y, near_x = y // 2, tl.minimum(x // 2, w - 1)[:, None]
        far_y = tl.minimum(tl.maximum(near_y + 2 * (y % 2) - 1, 0), h - 1)
        far_x = tl.minimum(tl.maximum(near_x + 2 * p - 1, 0), w - 1)
        coarse = small + frame * h * w * OUT + (o % OUT)[None, :]
        near = 0.75 * tl.load(coarse + (near_y * w + near_x) * OUT)
        near += 0.25 * tl.load(coarse + (near_y * w + far_x) * OUT)
        away = 0.75 * tl.load(coarse + (far_y * w + near_x) * OUT)
        away += 0.25 * tl.load(coarse + (far_y * w + far_x) * OUT)
        total += 0.75 * near + 0.25 * away
    total = tl.maximum(total, 0.0)
    if ANSWERS > 0:
        a = tl.arange(0, 16)
        matrix = answer + o[:, None] * 16 + a[None, :]
        scores = tl.zeros((BLOCK, 16), tl.float32)
        low = tl.load(matrix + 2 * OUT * 16)
        scores = add_product(total, tl.load(matrix), low, scores) * UNIT
        scores = tl.reshape(scores, (2 * BLOCK, 8))
        a = tl.arange(0, 8)
        x = (tl.program_id(0) % across) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
        where = ((y - top) * columns + x)[:, None] + a.to(tl.int64)[None, :] * rows * columns
        kept = (x < columns)[:, None] & (a < ANSWERS)[None, :]
        tl.store(out + frame * out_stride + where, scores, kept)
    else:
        upper, lower = split(total)
        if SHUFFLE:
            # Four planes become one of twice the size: channels last, before them the place.
            s = (o // (OUT // 4) % 4)[None, :]
            where = (2 * y + s // 2 + 1) * out_wide + 2 * (x[:, None] + p) + s % 2 + 1
            where = where * 16 + (o % (OUT // 4))[None, :]
            target = out + frame * out_stride * 16 + where
            kept = inside & (x[:, None] + p < width)
            tl.store(target, upper, kept)
            tl.store(target + out_part_stride.to(tl.int64) * 16, lower, kept)
        else:
            target = out + frame * out_stride * OUT
            target += ((y + 1) * out_wide + x + 1)[:, None] * OUT + o[None, :]
            tl.store(target, upper, inside)
            tl.store(target + out_part_stride.to(tl.int64) * OUT, lower, inside)


def convolve(
    planes: Tensor,
    size: tuple[int, int],
    weight: Tensor,
    base: Tensor,
    out: Tensor,
    *,
    small: Tensor | None = None,
    answer: Tensor | None = None,
    shuffle: bool = False,
    corner: tuple[int, int] = (0, 0),
) -> Tensor:
    """Rectified 3 × 3 filters of a sheet of frames of some size, written to another.

    ``weight`` is (2, 3, 4 · channels, 2 · outputs), for two pixels side by side. ``base`` is a
    number for every output of both or (H, W, outputs); ``small`` (K, h, w, outputs) of half the
    size is enlarged and added. The result may be shuffled to the first channels of a sheet of twice
    the size, or go through a matrix ``answer`` and be written to planes ``out`` (K, answers, h, w):
    those of a part, from a ``corner`` on.
    """
    rows, columns = size if answer is None else (out.shape[2], out.shape[3])
    block, warps = CONVOLVE
    where = sheet_strides(out) if answer is None else (0, out.stride(0), 0)
    _convolve_kernel[(rows * triton.cdiv(triton.cdiv(columns, 2), block), planes.shape[1])](
        planes, weight, base, base if small is None else small,
        weight if answer is None else answer, out, *sheet_strides(planes), *size, *corner, rows,
        columns, *where, IN=planes.shape[-1], OUT=weight.shape[3] // 2,
        ANSWERS=0 if answer is None else out.shape[1], WHOLE_BASE=base.ndim > 1,
        ENLARGE=small is not None, SHUFFLE=shuffle, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out
