"""Compiled loops of the joint model's weigher, called with one band of rows a thread.

As in `loops`, the inner loops run along lines of pixels and serve four outputs with every pixel
loaded. The weights of one inner loop stay in registers, the lines it adds to in the nearest cache.
Outputs and channels come in fours, see the packing in `joint_layers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = [
    "add_upsampled",
    "analyse",
    "compress",
    "convolve",
    "correct",
    "detail",
    "mix_channels",
    "place",
    "pool",
]

#: Pixels of a line worked on at once by the convolutions: the lines in use fit the cache.
_CHUNK = 768

# NumPy's rule for divisions by zero: Python's would test every one, and no loop would vectorise.
_jit: Callable[..., Any] = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}
)


@_jit
def _add_five_taps(line, taps, t0, t1, t2, t3):  # type: ignore[no-untyped-def]
    """t_i[x] += Σ_d taps[i, d]·line[x + d], d < 5."""
    a, b, c, e = taps[0], taps[1], taps[2], taps[3]
    a0, a1, a2, a3, a4 = a[0], a[1], a[2], a[3], a[4]
    b0, b1, b2, b3, b4 = b[0], b[1], b[2], b[3], b[4]
    c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
    e0, e1, e2, e3, e4 = e[0], e[1], e[2], e[3], e[4]
    for x in range(t0.shape[0]):
        p0, p1, p2, p3, p4 = line[x], line[x + 1], line[x + 2], line[x + 3], line[x + 4]
        t0[x] += a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3 + a4 * p4
        t1[x] += b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3 + b4 * p4
        t2[x] += c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3 + c4 * p4
        t3[x] += e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4


@_jit
def _add_nine_taps(l, m, n, taps, t0, t1, t2, t3):  # type: ignore[no-untyped-def]  # noqa: E741
    """t_i[x] += Σ_d taps[i, d]·l[x + d] + taps[i, 3 + d]·m[x + d] + taps[i, 6 + d]·n[x + d], d < 3.

    36 products for 17 loads and stores: with 24 it was half as fast, with 48 slower again.
    """
    a, b, c, e = taps[0], taps[1], taps[2], taps[3]
    a0, a1, a2, a3, a4 = a[0], a[1], a[2], a[3], a[4]
    a5, a6, a7, a8 = a[5], a[6], a[7], a[8]
    b0, b1, b2, b3, b4 = b[0], b[1], b[2], b[3], b[4]
    b5, b6, b7, b8 = b[5], b[6], b[7], b[8]
    c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
    c5, c6, c7, c8 = c[5], c[6], c[7], c[8]
    e0, e1, e2, e3, e4 = e[0], e[1], e[2], e[3], e[4]
    e5, e6, e7, e8 = e[5], e[6], e[7], e[8]
    for x in range(t0.shape[0]):
        p0, p1, p2, p3, p4, p5 = l[x], l[x + 1], l[x + 2], m[x], m[x + 1], m[x + 2]
        p6, p7, p8 = n[x], n[x + 1], n[x + 2]
        t0[x] += (
            a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3 + a4 * p4 + a5 * p5 + a6 * p6 + a7 * p7 + a8 * p8
        )
        t1[x] += (
            b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3 + b4 * p4 + b5 * p5 + b6 * p6 + b7 * p7 + b8 * p8
        )
        t2[x] += (
            c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3 + c4 * p4 + c5 * p5 + c6 * p6 + c7 * p7 + c8 * p8
        )
        t3[x] += (
            e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4 + e5 * p5 + e6 * p6 + e7 * p7 + e8 * p8
        )


@_jit
def _add_eight_taps(l, m, taps, t0, t1, t2, t3):  # type: ignore[no-untyped-def]  # noqa: E741
    """t_i[x] += Σ_d taps[i, d]·l[x + d] + taps[i, 4 + d]·m[x + d], d < 4."""
    a, b, c, e = taps[0], taps[1], taps[2], taps[3]
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    a4, a5, a6, a7 = a[4], a[5], a[6], a[7]
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    b4, b5, b6, b7 = b[4], b[5], b[6], b[7]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    c4, c5, c6, c7 = c[4], c[5], c[6], c[7]
    e0, e1, e2, e3 = e[0], e[1], e[2], e[3]
    e4, e5, e6, e7 = e[4], e[5], e[6], e[7]
    for x in range(t0.shape[0]):
        p0, p1, p2, p3 = l[x], l[x + 1], l[x + 2], l[x + 3]
        p4, p5, p6, p7 = m[x], m[x + 1], m[x + 2], m[x + 3]
        t0[x] += a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3 + a4 * p4 + a5 * p5 + a6 * p6 + a7 * p7
        t1[x] += b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3 + b4 * p4 + b5 * p5 + b6 * p6 + b7 * p7
        t2[x] += c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3 + c4 * p4 + c5 * p5 + c6 * p6 + c7 * p7
        t3[x] += e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4 + e5 * p5 + e6 * p6 + e7 * p7


@_jit
def _add_four_lines(l0, l1, l2, l3, taps, t0, t1, t2, t3):  # type: ignore[no-untyped-def]
    """t_i[x] += Σ_k taps[i, k]·l_k[x]."""
    a, b, c, e = taps[0], taps[1], taps[2], taps[3]
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    e0, e1, e2, e3 = e[0], e[1], e[2], e[3]
    for x in range(t0.shape[0]):
        p0, p1, p2, p3 = l0[x], l1[x], l2[x], l3[x]
        t0[x] += a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3
        t1[x] += b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3
        t2[x] += c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3
        t3[x] += e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3


@_jit
def analyse(even, odd, taps, start, stop, out):  # type: ignore[no-untyped-def]
    """Add 8 × 8 filters at every second pixel, from the even and the odd columns of a picture."""
    width = out.shape[2]
    for y in range(start, stop):
        for j in range(0, out.shape[0], 4):
            t0, t1, t2, t3 = out[j, y], out[j + 1, y], out[j + 2, y], out[j + 3, y]
            for dy in range(8):
                left, right = even[2 * y + dy, : width + 3], odd[2 * y + dy, : width + 3]
                _add_eight_taps(left, right, taps[j // 4, dy], t0, t1, t2, t3)


@_jit
def compress(values, bias, start, stop):  # type: ignore[no-untyped-def]
    """Make values max(2 (1 + values²)^(1/8) − 2 + bias, 0) in the rows start … stop − 1."""
    for c in range(values.shape[0]):
        for y in range(start, stop):
            _compress_line(values[c, y], bias[c])


@_jit
def _compress_line(line, bias):  # type: ignore[no-untyped-def]
    one, two = np.float32(1), np.float32(2)
    for x in range(line.shape[0]):
        root = np.sqrt(np.sqrt(np.sqrt(one + line[x] * line[x])))
        line[x] = max(two * root - two + bias, np.float32(0))


@_jit
def detail(signal, taps, start, stop, out):  # type: ignore[no-untyped-def]
    """Add 5 × 5 filters at every pixel to the rows start … stop − 1."""
    for y in range(start, stop):
        for j in range(0, out.shape[0], 4):
            t0, t1, t2, t3 = out[j, y], out[j + 1, y], out[j + 2, y], out[j + 3, y]
            for dy in range(5):
                _add_five_taps(signal[y + dy], taps[j // 4, dy], t0, t1, t2, t3)


# Planes that a convolution reads and writes are flat lines with the same row length: what it
# writes past a row's end is garbage that nobody reads, and short rows cost no more.


@_jit
def convolve(planes, taps, stride, start, stop, out):  # type: ignore[no-untyped-def]
    """Add 3 × 3 filters of all planes, flat with rows of ``stride``, to out[:, start:stop].

    The sums are rectified.
    """
    for a in range(start, stop, _CHUNK):
        b = min(a + _CHUNK, stop)
        for j in range(0, out.shape[0], 4):
            t0, t1, t2, t3 = out[j, a:b], out[j + 1, a:b], out[j + 2, a:b], out[j + 3, a:b]
            for c in range(planes.shape[0]):
                above = planes[c, a : b + 2]
                here = planes[c, a + stride : b + stride + 2]
                below = planes[c, a + 2 * stride : b + 2 * stride + 2]
                _add_nine_taps(above, here, below, taps[j // 4, c], t0, t1, t2, t3)
            for x in range(b - a):
                t0[x], t1[x] = max(t0[x], np.float32(0)), max(t1[x], np.float32(0))
                t2[x], t3[x] = max(t2[x], np.float32(0)), max(t3[x], np.float32(0))


@_jit
def mix_channels(planes, weights, start, stop, shift, out):  # type: ignore[no-untyped-def]
    """Add weights @ planes[:, start:stop] to out, as far as ``shift`` earlier; planes are flat."""
    for a in range(start, stop, _CHUNK):
        b = min(a + _CHUNK, stop)
        for j in range(0, out.shape[0], 4):
            t0, t1 = out[j, a - shift : b - shift], out[j + 1, a - shift : b - shift]
            t2, t3 = out[j + 2, a - shift : b - shift], out[j + 3, a - shift : b - shift]
            for c in range(0, planes.shape[0], 4):
                p0, p1 = planes[c, a:b], planes[c + 1, a:b]
                p2, p3 = planes[c + 2, a:b], planes[c + 3, a:b]
                _add_four_lines(p0, p1, p2, p3, weights[j // 4, c // 4], t0, t1, t2, t3)


@_jit
def pool(planes, row, column, start, stop, out):  # type: ignore[no-untyped-def]
    """Means of 2 × 2 pixels, the first at (row, column)."""
    for c in range(out.shape[0]):
        for y in range(start, stop):
            above = planes[c, row + 2 * y, column:]
            below = planes[c, row + 2 * y + 1, column:]
            line = out[c, y]
            for x in range(line.shape[0]):
                pair = (above[2 * x] + above[2 * x + 1]) + (below[2 * x] + below[2 * x + 1])
                line[x] = np.float32(0.25) * pair


@_jit
def add_upsampled(planes, row, column, width, start, stop, out):  # type: ignore[no-untyped-def]
    """Add planes of half the size, bilinearly enlarged; out starts at pixel (row, column).

    Pixel 2i lies a quarter before pixel i of the small plane, 2i + 1 a quarter after it. The
    small planes start at the one that (row − 1, column − 1) halves to.
    """
    quarter, most = np.float32(0.25), np.float32(0.75)
    blend = np.empty(planes.shape[2], np.float32)
    for c in range(planes.shape[0]):
        for y in range(start, stop):
            near = (row + y - 1) // 2 - (row - 1) // 2
            share = quarter if (row + y) % 2 == 0 else most
            above, below = planes[c, near], planes[c, near + 1]
            for x in range(blend.shape[0]):
                blend[x] = share * above[x] + (np.float32(1) - share) * below[x]
            line = out[c, y, :width]
            # An odd column and the next even one lie between the same two of the small plane.
            if column % 2 == 0:
                line[0] += quarter * blend[0] + most * blend[1]
                first = 1
            else:
                first = 0
            pairs = (width - first) // 2
            small, line = blend[first:], line[first:]
            for i in range(pairs):
                line[2 * i] += most * small[i] + quarter * small[i + 1]
                line[2 * i + 1] += quarter * small[i] + most * small[i + 1]
            if (width - first) % 2:
                line[2 * pairs] += most * small[pairs] + quarter * small[pairs + 1]


@_jit
def _interleave(even, odd, first, line):  # type: ignore[no-untyped-def]
    """Even and odd pixels to a line that starts at ``first``, 0 or 1. Pairs of stores vectorise."""
    pairs = (line.shape[0] - first) // 2
    if first:
        line[0] = odd[0]
    if (line.shape[0] - first) % 2:
        line[-1] = even[first + pairs]
    even, odd, line = even[first:], odd[first:], line[first:]
    for i in range(pairs):
        line[2 * i] = even[i]
        line[2 * i + 1] = odd[i]


@_jit
def _fill_row(risen, at, signal, base, taps, bias, y, left, lines):  # type: ignore[no-untyped-def]
    """Row y of the planes at full size into ``lines``: the answers risen, then the details.

    Answers come as four planes a channel, the first at (row, column) ``at`` of full size; lines
    have a pixel more on either side where the picture goes on, and repeat its edge where not.
    """
    width, channels = base.shape[2], risen.shape[0] // 4
    for c in range(channels):
        plane, row = 4 * c + 2 * ((y + at[0]) % 2), (y + at[0]) // 2
        _interleave(risen[plane, row], risen[plane + 1, row], at[1], lines[c, left : left + width])
    first = channels
    for j in range(base.shape[0]):
        line, start = lines[first + j, left : left + width], base[j, y]
        for x in range(width):
            line[x] = start[x]
    for j in range(0, base.shape[0], 4):
        # Rows first: slices of whole arrays would not be known to lie in one block.
        d0, d1 = lines[first + j, left : left + width], lines[first + j + 1, left : left + width]
        d2, d3 = (
            lines[first + j + 2, left : left + width],
            lines[first + j + 3, left : left + width],
        )
        for dy in range(5):
            _add_five_taps(signal[y + dy], taps[j // 4, dy], d0, d1, d2, d3)
    for j in range(base.shape[0]):
        _compress_line(lines[first + j, left : left + width], bias[j])
    for c in range(lines.shape[0]):
        if left:
            lines[c, 0] = lines[c, left]
        lines[c, left + width :] = lines[c, left + width - 1]


@_jit
def place(risen, at, signal, base, taps, bias, weights, shift, answer, corner, start, stop, out):  # type: ignore[no-untyped-def]
    """Scores of the rows start … stop − 1: planes at full size, 3 × 3 filters, 1 × 1 filters.

    ``corner`` says where the scores start within the planes. Only three rows of planes exist at
    any time.
    """
    width = out.shape[2]
    groups, planes = weights.shape[:2]
    rows = np.empty((3, planes, width + 2), np.float32)
    hidden = np.empty((4 * groups, min(width, _CHUNK)), np.float32)
    for y in range(start - 2, stop):
        # Row y of the scores takes the planes' rows y − 1, y and y + 1; the edges repeat.
        below = min(max(y + 1 + corner[0], 0), base.shape[1] - 1)
        _fill_row(risen, at, signal, base, taps, bias, below, 1 - corner[1], rows[(y + 3) % 3])
        if y < start:
            continue
        for a in range(0, width, _CHUNK):
            b = min(a + _CHUNK, width)
            for j in range(4 * groups):
                hidden[j] = shift[j]
            size = b - a
            for j in range(groups):
                t0, t1 = hidden[4 * j, :size], hidden[4 * j + 1, :size]
                t2, t3 = hidden[4 * j + 2, :size], hidden[4 * j + 3, :size]
                for c in range(planes):
                    above, here = rows[(y + 1) % 3, c, a : b + 2], rows[(y + 2) % 3, c, a : b + 2]
                    below = rows[y % 3, c, a : b + 2]
                    _add_nine_taps(above, here, below, weights[j, c], t0, t1, t2, t3)
            for j in range(4 * groups):
                line = hidden[j]
                for x in range(size):
                    line[x] = max(line[x], np.float32(0))
            out[:, y, a:b] = np.float32(0)
            s0, s1, s2, s3 = out[0, y, a:b], out[1, y, a:b], out[2, y, a:b], out[3, y, a:b]
            for j in range(groups):
                h0, h1 = hidden[4 * j, :size], hidden[4 * j + 1, :size]
                h2, h3 = hidden[4 * j + 2, :size], hidden[4 * j + 3, :size]
                _add_four_lines(h0, h1, h2, h3, answer[0, j], s0, s1, s2, s3)


@_jit
def correct(inputs, hidden, bias, correction, start, stop, logits):  # type: ignore[no-untyped-def]
    """Add what the small network of the second weighing says; all planes flat."""
    inner = np.empty((bias.shape[0], _CHUNK), np.float32)
    outer = np.empty((4 * correction.shape[0], _CHUNK), np.float32)
    for a in range(start, stop, _CHUNK):
        b = min(a + _CHUNK, stop)
        size = b - a
        for j in range(bias.shape[0]):
            inner[j] = bias[j]
        outer[:] = np.float32(0)
        mix_channels(inputs, hidden, a, b, a, inner)
        for j in range(bias.shape[0]):
            line = inner[j]
            for x in range(size):
                line[x] = max(line[x], np.float32(0))
        mix_channels(inner, correction, 0, size, 0, outer)
        for j in range(logits.shape[0]):
            logits[j, a:b] += outer[j, :size]
