"""Compiled loops that mix the joint model's frames, called with one band of rows a thread.

Frames come one after the other: softmax sums are kept relative to the largest score so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = ["add_frame", "rank_frame"]

# NumPy's rule for divisions by zero: Python's would test every one, and no loop would vectorise.
_jit: Callable[..., Any] = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}
)


@_jit
def _exp(x):  # type: ignore[no-untyped-def]
    """e^x to float32 accuracy, in operations that vectorise (libm's would not); flushes below."""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    whole = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    rest = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    series = np.float32(1.9875691e-4)
    series = series * rest + np.float32(1.3981999e-3)
    series = series * rest + np.float32(8.3334519e-3)
    series = series * rest + np.float32(4.1665796e-2)
    series = series * rest + np.float32(1.6666665e-1)
    series = series * rest + np.float32(0.5)
    series = series * rest * rest + rest + np.float32(1.0)
    return series * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@_jit
def rank_frame(scores, frame, start, stop, index, best, second, total):  # type: ignore[no-untyped-def]
    """Take one more frame into the ranking: the best's number, the two best scores, Σ exp."""
    for y in range(start, stop):
        line, where = scores[y], index[y]
        first, runner_up, sums = best[y], second[y], total[y]
        for x in range(line.shape[0]):
            value, old = line[x], first[x]
            less = _exp(-abs(value - old))  # of the worse of the two, by the better
            sums[x] = sums[x] * less + np.float32(1) if value > old else sums[x] + less
            runner_up[x] = old if value > old else max(runner_up[x], value)
            where[x] = frame if value > old else where[x]
            first[x] = max(value, old)


@_jit
def add_frame(lows, scores, noise, start, stop, peak, total, power, sums):  # type: ignore[no-untyped-def]
    """Take one more frame into the mixture: its bands, weighed, and the power of its noise.

    ``lows`` (planes, bands, H, W) are ever smoother versions of the frame; bands are their
    differences.
    """
    bands, width = scores.shape[0], scores.shape[2]
    kept, weight = np.empty(width, np.float32), np.empty(width, np.float32)
    one = np.float32(1)
    for y in range(start, stop):
        for c in range(bands):
            line, top, parts, noisy = scores[c, y], peak[c, y], total[c, y], power[c, y]
            for x in range(width):
                value, old = line[x], top[x]
                less = _exp(-abs(value - old))
                before, now = (less, one) if value > old else (one, less)
                top[x] = max(value, old)
                parts[x] = parts[x] * before + now
                noisy[x] = noisy[x] * (before * before) + (now * noise) ** 2
                kept[x], weight[x] = before, now
            for p in range(lows.shape[0]):
                low, out = lows[p, c, y], sums[p, c, y]
                if c == bands - 1:
                    for x in range(width):
                        out[x] = out[x] * kept[x] + weight[x] * low[x]
                else:
                    lower = lows[p, c + 1, y]
                    for x in range(width):
                        out[x] = out[x] * kept[x] + weight[x] * (low[x] - lower[x])
