"""Compiled interpolation of whole frames under affine maps that turn little: rows, then columns.

Lanczos' kernel of eight points is a product of one along the rows and one along the columns, so a
frame can be interpolated along its rows first and then along the columns of what comes out: 16
products a value instead of 64. With ``u = a x + b y + c`` and ``v = d x + e y + f`` the place of a
pixel (x, y) in the frame, the first pass makes the value at row v and column

    u = (a - b d / e) x + (b / e) v + c - b f / e,

and the second looks these columns up at v. Rows of the first pass are kept as long as the second
needs them.

Within a pixel each of the eight weights is a polynomial of the place, to 2e-5: the loops go along
a row without looking anything up, as far as the whole part of the place stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = ["resample", "weights_at"]

#: Points of the kernel, and columns beyond a frame's sides that its border is repeated in.
_TAPS, _PAD = 8, 8

_options: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
_options |= {"fastmath": {"contract", "nsz"}}
_jit: Callable[..., Any] = njit(**_options)
_inner: Callable[..., Any] = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_options)


def _fitted() -> tuple[tuple[float, ...], ...]:
    """Fit the weights of the four points on the left, as powers of the place from the middle.

    With t from -½ to ½ the weight of the point as far on the right is the same with -t. The first
    three rows are the coefficients of 1, t² and t⁴, the others of t, t³ and t⁵.
    """
    t = 0.5 * np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)[:, None]
    away = np.arange(_TAPS) - (_TAPS - 1) / 2 - t
    weights = np.sinc(away) * np.sinc(away / (_TAPS / 2))
    weights /= weights.sum(axis=1, keepdims=True)
    left, right = weights[:, :4], weights[:, :3:-1]
    even = np.linalg.lstsq(t ** [0, 2, 4], (left + right) / 2, rcond=None)[0]
    odd = np.linalg.lstsq(t ** [1, 3, 5], (left - right) / 2, rcond=None)[0]
    # All eight sum to 1 at every place: what is flat stays flat.
    even += (np.array([0.5, 0.0, 0.0]) - even.sum(axis=1))[:, None] / 4
    return tuple(tuple(row) for row in np.concatenate([even, odd]).astype(np.float32).tolist())


_A, _B, _C, _D, _E, _F = (tuple(np.float32(value) for value in row) for row in _fitted())


def weights_at(place: float) -> list[float]:
    """Return the weights of the eight points around a place from 0 to 1 within the middle two."""
    t = place - 0.5
    even = [a + t**2 * (b + t**2 * c) for a, b, c in zip(_A, _B, _C, strict=True)]
    odd = [t * (d + t**2 * (e + t**2 * f)) for d, e, f in zip(_D, _E, _F, strict=True)]
    left = [float(p + q) for p, q in zip(even, odd, strict=True)]
    return left + [float(p - q) for p, q in zip(even[::-1], odd[::-1], strict=True)]


@_jit
def resample(frame, out, affine):  # type: ignore[no-untyped-def]
    """Fill ``out`` with the frame's values at the mapped pixels; both (rows, columns, channels).

    ``affine`` holds a to f of the module; ``out`` is of float32.
    """
    height, width, channels = frame.shape
    rows, columns = out.shape[:2]
    a, b, c, d, e, f = affine
    slope, tilt, shift = a - b * d / e, b / e, c - b * f / e
    reach = int(abs(d) * columns) + 2 * _TAPS + 4
    # Rows of the first pass: that of row v lies at v modulo their number.
    lines = np.empty((reach, columns * channels), np.float32)
    source = np.empty((width + 2 * _PAD) * channels, np.float32)
    # How far places run ahead of whole pixels along the first pass, and along the second.
    ahead, below = (
        np.empty(columns * channels, np.float32),
        np.empty(columns * channels, np.float32),
    )
    for i in range(columns * channels):
        ahead[i] = (slope - 1.0) * (i // channels)
        below[i] = d * (i // channels)
    made = -1  # the last row that went through the first pass
    for y in range(rows):
        start = e * y + f
        first = min(start, start + d * (columns - 1))
        last = max(start, start + d * (columns - 1))
        top = min(max(int(np.floor(first)) - _TAPS // 2, 0), height - 1)
        bottom = min(max(int(np.floor(last)) + _TAPS // 2 + 2, 0), height - 1)
        for row in range(max(top, made + 1), bottom + 1):
            _pad_row(frame[row], source)
            _across(source, width, channels, ahead, tilt * row + shift, lines[row % reach])
        made = max(made, bottom)
        _down(lines, height, channels, below, start, out[y].reshape(-1))


@_inner
def _pad_row(row, source):  # type: ignore[no-untyped-def]
    """Copy a row as floats, with its first and last pixel repeated on either side."""
    width, channels = row.shape
    for channel in range(channels):
        for x in range(_PAD):
            source[x * channels + channel] = np.float32(row[0, channel])
            source[(_PAD + width + x) * channels + channel] = np.float32(row[width - 1, channel])
    middle = source[_PAD * channels : (_PAD + width) * channels]
    values = row.reshape(-1)
    for i in range(len(middle)):
        middle[i] = np.float32(values[i])


@_inner
def _run_end(x, channels, drift, place):  # type: ignore[no-untyped-def]
    """Return the first x' > x at which ``drift + place`` has another whole part, or the end."""
    end = len(drift) // channels
    whole = np.floor(drift[x * channels] + place)
    # The drift is linear: what the last has in common with the first, all between have.
    if np.floor(drift[(end - 1) * channels] + place) == whole:
        return end
    low, high = x, end - 1
    while high - low > 1:
        middle = (low + high) // 2
        if np.floor(drift[middle * channels] + place) == whole:
            low = middle
        else:
            high = middle
    return high


@_inner
def _across(source, width, channels, drift, place, line):  # type: ignore[no-untyped-def]
    """Interpolate one padded row at the columns ``x + drift + place``."""
    x, columns, n = 0, len(line) // channels, channels
    while x < columns:
        stop = _run_end(x, channels, drift, place)
        whole = int(np.floor(drift[x * n] + place))
        # Pixels whose eight points all lie beyond a side see that side alone.
        before = min(max(3 - _PAD - whole, x), stop)
        after = max(min(width + _PAD - 4 - whole, stop), before)
        for i in range(x * n, before * n):
            line[i] = source[i % n]
        for i in range(after * n, stop * n):
            line[i] = source[(width + _PAD) * n + i % n]
        if after > before:
            s = source[(before + whole - 3 + _PAD) * n : (after + whole + 4 + _PAD) * n]
            t = drift[before * n : after * n]
            to = line[before * n : after * n]
            rest = np.float32(place - whole - 0.5)
            _blend(
                s, s[n:], s[2 * n :], s[3 * n :], s[4 * n :], s[5 * n :], s[6 * n :], s[7 * n :],
                t, rest, to,
            )  # fmt: skip
        x = stop


@_inner
def _down(lines, height, channels, drift, place, result):  # type: ignore[no-untyped-def]
    """Interpolate between the rows of the first pass at the rows ``drift + place``."""
    x, columns, reach, m = 0, len(result) // channels, len(lines), height - 1
    while x < columns:
        stop = _run_end(x, channels, drift, place)
        whole = int(np.floor(drift[x * channels] + place))
        begin, end = x * channels, stop * channels
        _blend(
            lines[min(max(whole - 3, 0), m) % reach, begin:end],
            lines[min(max(whole - 2, 0), m) % reach, begin:end],
            lines[min(max(whole - 1, 0), m) % reach, begin:end],
            lines[min(max(whole, 0), m) % reach, begin:end],
            lines[min(max(whole + 1, 0), m) % reach, begin:end],
            lines[min(max(whole + 2, 0), m) % reach, begin:end],
            lines[min(max(whole + 3, 0), m) % reach, begin:end],
            lines[min(max(whole + 4, 0), m) % reach, begin:end],
            drift[begin:end], np.float32(place - whole - 0.5), result[begin:end],
        )  # fmt: skip
        x = stop


@_inner
def _blend(s0, s1, s2, s3, s4, s5, s6, s7, drift, rest, to):  # type: ignore[no-untyped-def]
    """Weigh eight rows at the places ``drift + rest`` from the middle between the fourth and fifth.

    Points as far on the left as on the right share their even powers, and have opposite odd ones.
    """
    for i in range(len(to)):
        t = drift[i] + rest
        q = t * t
        p0, p1, p2, p3 = s0[i] + s7[i], s1[i] + s6[i], s2[i] + s5[i], s3[i] + s4[i]
        m0, m1, m2, m3 = s0[i] - s7[i], s1[i] - s6[i], s2[i] - s5[i], s3[i] - s4[i]
        even = _C[0] * p0 + _C[1] * p1 + _C[2] * p2 + _C[3] * p3
        even = even * q + (_B[0] * p0 + _B[1] * p1 + _B[2] * p2 + _B[3] * p3)
        even = even * q + (_A[0] * p0 + _A[1] * p1 + _A[2] * p2 + _A[3] * p3)
        odd = _F[0] * m0 + _F[1] * m1 + _F[2] * m2 + _F[3] * m3
        odd = odd * q + (_E[0] * m0 + _E[1] * m1 + _E[2] * m2 + _E[3] * m3)
        odd = odd * q + (_D[0] * m0 + _D[1] * m1 + _D[2] * m2 + _D[3] * m3)
        to[i] = even + odd * t
