"""Compiled loops over rows of patches, called by `cpu` with one band of rows a thread.

The coefficients of one row of patches under all filters fit the cache: they are made, used and
spread back before the next row, and never kept. The inner loops run along the row, four filters
and four taps at once: every pixel loaded serves four filters, which keeps the multipliers and not
the memory busy. Filters come padded with zeros to whole groups of four either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = [
    "MARGIN",
    "activity_full",
    "activity_separable",
    "areas",
    "cosupport",
    "dual_band",
    "hard_band",
    "pairing_band",
    "wiener_band",
]

#: Zero columns on either side of a row buffer, at least the widest filter's padded width.
MARGIN = 40

_jit: Callable[..., Any] = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})


@_jit
def _analyse_row(image, y, width, taps, u):  # type: ignore[no-untyped-def]
    """u[j, M + x] = Σ taps[j]·image at the patch whose corner is (y, x), for all filters."""
    filters, rows, columns = taps.shape
    for j in range(0, filters, 4):
        u0 = u[j, MARGIN : MARGIN + width]
        u1 = u[j + 1, MARGIN : MARGIN + width]
        u2 = u[j + 2, MARGIN : MARGIN + width]
        u3 = u[j + 3, MARGIN : MARGIN + width]
        u0[:] = np.float32(0)
        u1[:] = np.float32(0)
        u2[:] = np.float32(0)
        u3[:] = np.float32(0)
        for dy in range(rows):
            for d in range(0, columns, 4):
                line = image[y + dy, d : d + width + 3]
                a, b, c, e = taps[j, dy], taps[j + 1, dy], taps[j + 2, dy], taps[j + 3, dy]
                a0, a1, a2, a3 = a[d], a[d + 1], a[d + 2], a[d + 3]
                b0, b1, b2, b3 = b[d], b[d + 1], b[d + 2], b[d + 3]
                c0, c1, c2, c3 = c[d], c[d + 1], c[d + 2], c[d + 3]
                e0, e1, e2, e3 = e[d], e[d + 1], e[d + 2], e[d + 3]
                for x in range(width):
                    p0, p1, p2, p3 = line[x], line[x + 1], line[x + 2], line[x + 3]
                    u0[x] += a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3
                    u1[x] += b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3
                    u2[x] += c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3
                    u3[x] += e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3


@_jit
def _spread_row(u, width, taps, y, out):  # type: ignore[no-untyped-def]
    """Adjoint of `_analyse_row`: add every coefficient's filter to the rows y … y + n − 1."""
    filters, rows, columns = taps.shape
    for j in range(0, filters, 4):
        for dy in range(rows):
            for d in range(0, columns, 4):
                # Gathered, not scattered: pixel x takes from the coefficients at x − d − 3 … x − d.
                target = out[y + dy, : width + columns]
                first = MARGIN - d - 3
                u0 = u[j, first : first + width + columns + 3]
                u1 = u[j + 1, first : first + width + columns + 3]
                u2 = u[j + 2, first : first + width + columns + 3]
                u3 = u[j + 3, first : first + width + columns + 3]
                a, b, c, e = taps[j, dy], taps[j + 1, dy], taps[j + 2, dy], taps[j + 3, dy]
                a0, a1, a2, a3 = a[d], a[d + 1], a[d + 2], a[d + 3]
                b0, b1, b2, b3 = b[d], b[d + 1], b[d + 2], b[d + 3]
                c0, c1, c2, c3 = c[d], c[d + 1], c[d + 2], c[d + 3]
                e0, e1, e2, e3 = e[d], e[d + 1], e[d + 2], e[d + 3]
                for x in range(width + columns):
                    target[x] += (
                        (a0 * u0[x + 3] + a1 * u0[x + 2] + a2 * u0[x + 1] + a3 * u0[x])
                        + (b0 * u1[x + 3] + b1 * u1[x + 2] + b2 * u1[x + 1] + b3 * u1[x])
                        + (c0 * u2[x + 3] + c1 * u2[x + 2] + c2 * u2[x + 1] + c3 * u2[x])
                        + (e0 * u3[x + 3] + e1 * u3[x + 2] + e2 * u3[x + 1] + e3 * u3[x])
                    )


@_jit
def activity_full(image, taps, start, stop, result):  # type: ignore[no-untyped-def]
    """Activity of the patch rows start … stop − 1 under a full operator."""
    width = result.shape[1]
    u = np.zeros((taps.shape[0], width + 2 * MARGIN), np.float32)
    for y in range(start, stop):
        _analyse_row(image, y, width, taps, u)
        total = result[y]
        total[:] = np.float32(0)
        for j in range(taps.shape[0]):
            _add_magnitudes(u[j, MARGIN : MARGIN + width], total)


@_jit
def activity_separable(image, left, right, start, stop, result):  # type: ignore[no-untyped-def]
    """Activity under A ⊗ B: filter each picture row once along x, then combine n rows along y."""
    width = result.shape[1]
    n = image.shape[0] - result.shape[0] + 1
    ring = np.zeros((n, right.shape[0], width), np.float32)
    u = np.zeros(width, np.float32)
    for y in range(start, stop + n - 1):
        _filter_along(image[y], right, ring[y % n])
        top = y - n + 1
        if top < start:
            continue
        total = result[top]
        total[:] = np.float32(0)
        first = 0
        if n == 7:
            # Four filters at once, which fill the registers. The product of the constants is the
            # patch's mean and no row of Ω: it counts nothing.
            while first + 4 <= left.shape[0]:
                weights = left[first : first + 4]
                for b in range(right.shape[0]):
                    _add_four_magnitudes(
                        ring[top % n, b],
                        ring[(top + 1) % n, b],
                        ring[(top + 2) % n, b],
                        ring[(top + 3) % n, b],
                        ring[(top + 4) % n, b],
                        ring[(top + 5) % n, b],
                        ring[(top + 6) % n, b],
                        weights,
                        np.float32(0) if first + b == 0 else np.float32(1),
                        total,
                    )
                first += 4
        for a in range(first, left.shape[0]):
            for b in range(right.shape[0]):
                if a == 0 and b == 0:
                    continue  # the product of the constants
                u[:] = np.float32(0)
                for dy in range(n):
                    weight = left[a, dy]
                    line = ring[(top + dy) % n, b]
                    for x in range(width):
                        u[x] += weight * line[x]
                _add_magnitudes(u, total)


@_jit
def _add_four_magnitudes(l0, l1, l2, l3, l4, l5, l6, taps, of_first, total):  # type: ignore[no-untyped-def]
    """Add |Σ_d taps[i, d]·l_d| of four rows i to total, the first times ``of_first``."""
    a, b, c, e = taps[0], taps[1], taps[2], taps[3]
    a0, a1, a2, a3, a4, a5, a6 = a[0], a[1], a[2], a[3], a[4], a[5], a[6]
    b0, b1, b2, b3, b4, b5, b6 = b[0], b[1], b[2], b[3], b[4], b[5], b[6]
    c0, c1, c2, c3, c4, c5, c6 = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    e0, e1, e2, e3, e4, e5, e6 = e[0], e[1], e[2], e[3], e[4], e[5], e[6]
    zero = np.float32(0)
    for x in range(total.shape[0]):
        p0, p1, p2, p3, p4, p5, p6 = l0[x], l1[x], l2[x], l3[x], l4[x], l5[x], l6[x]
        u = a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3 + a4 * p4 + a5 * p5 + a6 * p6
        v = b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3 + b4 * p4 + b5 * p5 + b6 * p6
        w = c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3 + c4 * p4 + c5 * p5 + c6 * p6
        z = e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4 + e5 * p5 + e6 * p6
        # Without these maxima the compiler may add in another order, and change the last bits.
        u, v, w, z = max(abs(u), zero), max(abs(v), zero), max(abs(w), zero), max(abs(z), zero)
        total[x] += (of_first * u + v) + (w + z)


@_jit
def _filter_along(line, taps, result):  # type: ignore[no-untyped-def]
    """result[b, x] = Σ taps[b, d]·line[x + d]."""
    width = result.shape[1]
    for b in range(taps.shape[0]):
        target = result[b]
        target[:] = np.float32(0)
        for d in range(taps.shape[1]):
            weight = taps[b, d]
            source = line[d : d + width]
            for x in range(width):
                target[x] += weight * source[x]


@_jit
def _add_magnitudes(u, total):  # type: ignore[no-untyped-def]
    """Add |u| to total."""
    for x in range(total.shape[0]):
        total[x] += abs(u[x])


@_jit
def dual_band(image, taps, dual, previous, numbers, start, stop, out):  # type: ignore[no-untyped-def]
    """One dual step over a band, its adjoint collected in ``out``."""
    width = dual.shape[2]
    momentum, step, limit = numbers[0], numbers[1], numbers[2]
    u = np.zeros((taps.shape[0], width + 2 * MARGIN), np.float32)
    for y in range(start, stop):
        _analyse_row(image, y, width, taps, u)
        for j in range(dual.shape[0]):
            line = u[j, MARGIN : MARGIN + width]
            state, old = dual[j, y], previous[j, y]
            for x in range(width):
                ahead = state[x] + momentum * (state[x] - old[x])
                value = min(max(ahead + step * line[x], -limit), limit)
                old[x] = state[x]
                state[x] = value
                line[x] = value
        _spread_row(u, width, taps, y - start, out)


@_jit
def pairing_band(image, taps, dual, start, stop):  # type: ignore[no-untyped-def]
    """The two sums of `pairing` over a band, added up in double precision."""
    width = dual.shape[2]
    u = np.zeros((taps.shape[0], width + 2 * MARGIN), np.float32)
    norm, inner = 0.0, 0.0
    for y in range(start, stop):
        _analyse_row(image, y, width, taps, u)
        for j in range(dual.shape[0]):
            line = u[j, MARGIN : MARGIN + width]
            state = dual[j, y]
            row_norm, row_inner = 0.0, 0.0
            for x in range(width):
                row_norm += abs(np.float64(line[x]))
                row_inner += np.float64(line[x]) * np.float64(state[x])
            norm += row_norm
            inner += row_inner
    return norm, inner


@_jit
def hard_band(image, taps, threshold, start, stop, out):  # type: ignore[no-untyped-def]
    """`hard_shrinkage` over a band: what is removed in out[0], the weights in out[1]."""
    width = out.shape[2] - MARGIN - taps.shape[1] + 1
    u = np.zeros((taps.shape[0], width + 2 * MARGIN), np.float32)
    weight = np.empty(width, np.float32)
    for y in range(start, stop):
        _analyse_row(image, y, width, taps, u)
        weight[:] = np.float32(1)
        for j in range(threshold.shape[0]):
            line = u[j, MARGIN : MARGIN + width]
            for x in range(width):
                if abs(line[x]) > threshold[j]:
                    weight[x] += np.float32(1)
                    line[x] = np.float32(0)
        _spread_weighted(u, weight, taps, y - start, out)


@_jit
def wiener_band(image, guide, taps, variance, start, stop, out):  # type: ignore[no-untyped-def]
    """`wiener_shrinkage` over a band: what is removed in out[0], the weights in out[1]."""
    width = out.shape[2] - MARGIN - taps.shape[1] + 1
    u = np.zeros((taps.shape[0], width + 2 * MARGIN), np.float32)
    v = np.zeros((taps.shape[0], width + 2 * MARGIN), np.float32)
    weight = np.empty(width, np.float32)
    for y in range(start, stop):
        _analyse_row(image, y, width, taps, u)
        _analyse_row(guide, y, width, taps, v)
        weight[:] = np.float32(1)
        for j in range(variance.shape[0]):
            line = u[j, MARGIN : MARGIN + width]
            model = v[j, MARGIN : MARGIN + width]
            for x in range(width):
                removed = variance[j] / (model[x] * model[x] + variance[j])
                weight[x] += (np.float32(1) - removed) ** 2
                line[x] *= removed
        _spread_weighted(u, weight, taps, y - start, out)


@_jit
def _spread_weighted(u, weight, taps, y, out):  # type: ignore[no-untyped-def]
    """Weigh each patch by 1 / weight and spread both the coefficients and the weights."""
    width = weight.shape[0]
    n = taps.shape[1]
    for x in range(width):
        weight[x] = np.float32(1) / weight[x]
    for j in range(taps.shape[0]):
        line = u[j, MARGIN : MARGIN + width]
        for x in range(width):
            line[x] *= weight[x]
    _spread_row(u, width, taps, y, out[0])
    for dy in range(n):
        for dx in range(n):
            target = out[1, y + dy, dx : dx + width]
            for x in range(width):
                target[x] += weight[x]


@_jit
def cosupport(order, gram, rank, chosen):  # type: ignore[no-untyped-def]
    """Grow each co-support by an incremental Cholesky factorisation of its Gram matrix."""
    size = gram.shape[0]
    factor = np.zeros((rank, rank))
    taken = np.zeros(rank, np.int64)
    for column in range(order.shape[0]):
        count = 0
        for place in range(size):
            row = order[column, place]
            left = gram[row, row]
            for i in range(count):
                value = gram[taken[i], row]
                for k in range(i):
                    value -= factor[i, k] * factor[count, k]
                value /= factor[i, i]
                factor[count, i] = value
                left -= value * value
            if left > 1e-6:
                factor[count, count] = np.sqrt(left)
                taken[count] = row
                chosen[column, row] = True
                count += 1
                if count == rank:
                    break


@_jit
def _root(links, i):  # type: ignore[no-untyped-def]
    """Representative of i's region, shortening the way there."""
    while links[i] >= 0:
        above = links[i]
        if links[above] >= 0:
            links[i] = links[above]
        i = above
    return i


@_jit
def _join(links, i, j):  # type: ignore[no-untyped-def]
    """Make one region of two."""
    i, j = _root(links, i), _root(links, j)
    if i != j:
        links[j] += links[i]
        links[i] = j


@_jit
def areas(labels, links):  # type: ignore[no-untyped-def]
    """Union-find over the pixels in ``links``, all -1 at first; it becomes the regions' areas.

    A pixel links to another one of its region; the last has the region's area, negative. All in
    one array: whole pictures come here.
    """
    height, width = labels.shape
    for y in range(height):
        for x in range(width):
            here = y * width + x
            if x > 0 and labels[y, x] == labels[y, x - 1]:
                _join(links, here, here - 1)
            if y > 0 and labels[y, x] == labels[y - 1, x]:
                _join(links, here, here - width)
    for i in range(height * width):
        root = _root(links, i)
        if root != i:
            links[i] = root
    for i in range(height * width):
        if links[i] >= 0:
            links[i] = links[links[i]]
    for i in range(height * width):
        links[i] = -links[i]
