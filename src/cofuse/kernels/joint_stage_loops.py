"""Compiled loops of the joint model's stages, called with one band of rows a thread.

The inner loops run along lines of pixels and serve four outputs with every pixel loaded; four
outputs by seven taps of weights stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = ["TAPS", "halve", "logs", "stage_band"]

#: Taps of a stage's filters along a row that one inner loop takes.
TAPS = 7

# NumPy's rule for divisions by zero: Python's would test every one, and no loop would vectorise.
_jit: Callable[..., Any] = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}
)


@_jit
def _add_seven_taps(line, taps, t0, t1, t2, t3):  # type: ignore[no-untyped-def]
    """t_i[x] += Σ_d taps[i, d]·line[x + d], d < 7."""
    a, b, c, e = taps[0], taps[1], taps[2], taps[3]
    a0, a1, a2, a3, a4, a5, a6 = a[0], a[1], a[2], a[3], a[4], a[5], a[6]
    b0, b1, b2, b3, b4, b5, b6 = b[0], b[1], b[2], b[3], b[4], b[5], b[6]
    c0, c1, c2, c3, c4, c5, c6 = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    e0, e1, e2, e3, e4, e5, e6 = e[0], e[1], e[2], e[3], e[4], e[5], e[6]
    for x in range(t0.shape[0]):
        p0, p1, p2, p3 = line[x], line[x + 1], line[x + 2], line[x + 3]
        p4, p5, p6 = line[x + 4], line[x + 5], line[x + 6]
        t0[x] += a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3 + a4 * p4 + a5 * p5 + a6 * p6
        t1[x] += b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3 + b4 * p4 + b5 * p5 + b6 * p6
        t2[x] += c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3 + c4 * p4 + c5 * p5 + c6 * p6
        t3[x] += e0 * p0 + e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4 + e5 * p5 + e6 * p6


@_jit
def _slope(u, terms, tall, narrow):  # type: ignore[no-untyped-def]
    """Bend u ← tall·u·(n/p + m/q), with n, m linear and p, q quadratic in (u·narrow)².

    One division for both: n/p + m/q = (n q + m p) / (p q).
    """
    n0, n1, m0, m1 = terms[0], terms[1], terms[2], terms[3]
    p0, p1, p2, q0, q1, q2 = terms[4], terms[5], terms[6], terms[7], terms[8], terms[9]
    for x in range(u.shape[0]):
        root = u[x] * narrow[x]
        square = root * root
        p = p0 + square * (p1 + square * p2)
        q = q0 + square * (q1 + square * q2)
        above = (n0 + n1 * square) * q + (m0 + m1 * square) * p
        u[x] = tall[x] * u[x] * (above / (p * q))


@_jit
def stage_band(image, taps, back, terms, tall, narrow, start, stop, out):  # type: ignore[no-untyped-def]
    """Ωᵀφ(Ωx) of the coefficient rows start … stop − 1, added to ``out``.

    Row y of coefficients reads image rows from y on and adds to rows y − start on of ``out``.
    Four filters are analysed, bent and spread back before the next four: their four lines of
    coefficients are all that ever exists.
    """
    width, pixels = tall.shape[1], out.shape[1]
    groups = taps.shape[2]
    u = np.zeros((4, width + TAPS * groups), np.float32)
    u0, u1, u2, u3 = u[0, :width], u[1, :width], u[2, :width], u[3, :width]
    for y in range(start, stop):
        for j in range(0, terms.shape[0], 4):
            u[:, :width] = np.float32(0)
            for dy in range(taps.shape[1]):
                for g in range(groups):
                    line = image[y + dy, TAPS * g : TAPS * g + width + TAPS - 1]
                    _add_seven_taps(line, taps[j // 4, dy, g], u0, u1, u2, u3)
            for k in range(4):
                _slope(u[k, :width], terms[j + k], tall[y], narrow[y])
                for r in range(back.shape[1]):
                    row = y - start + 4 * r
                    t0, t1, t2, t3 = out[row], out[row + 1], out[row + 2], out[row + 3]
                    for g in range(groups):
                        line = u[k, TAPS * g : TAPS * g + pixels + TAPS - 1]
                        _add_seven_taps(line, back[j + k, r, g], t0, t1, t2, t3)


@_jit
def halve(plane, start, stop, out):  # type: ignore[no-untyped-def]
    """Rows start … stop − 1 of a plane at half size, weights 1 3 3 1 either way; edges repeat."""
    height, width = plane.shape
    line = np.empty(width + 3, np.float32)
    inner = line[1 : width + 1]
    three = np.float32(3)
    for y in range(start, stop):
        above, first = plane[max(2 * y - 1, 0)], plane[2 * y]
        second, below = plane[min(2 * y + 1, height - 1)], plane[min(2 * y + 2, height - 1)]
        for x in range(width):
            inner[x] = (above[x] + below[x]) + three * (first[x] + second[x])
        line[0] = line[1]
        line[width + 1 :] = line[width]
        small = out[y]
        for x in range(small.shape[0]):
            pair = three * (line[2 * x + 1] + line[2 * x + 2])
            small[x] = (line[2 * x] + pair + line[2 * x + 3]) / np.float32(64)


@_jit
def logs(guide, limit, fine, coarse, left, start, stop, out):  # type: ignore[no-untyped-def]
    """Rows of planes left[p, 0]·fine + left[p, 1]·coarse + guide, the guide within ±limit.

    A guide comes as four planes of half the size.
    """
    for p in range(out.shape[0]):
        f, c = left[p, 0], left[p, 1]
        for y in range(start, stop):
            line, finest, coarsest = out[p, y], fine[y], coarse[y]
            for parity in range(2):
                source = guide[4 * p + 2 * (y % 2) + parity, y // 2]
                for i in range((line.shape[0] - parity + 1) // 2):
                    x = 2 * i + parity
                    told = min(max(source[i], -limit), limit)
                    line[x] = told + f * finest[x] + c * coarsest[x]
