"""The hot loops on the CPU: the same functions as in `reference`, same arguments, compiled.

A picture is worked through in bands of patch rows, one band a thread; the loops themselves are in
`loops`. Threads are our own: Numba's parallel mode must not be entered from several of them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.images.threads import processors as _threads
from cofuse.operators import AnalysisOperator, loops

__all__ = [
    "activity",
    "dual_step",
    "hard_shrinkage",
    "pairing",
    "region_areas",
    "select_cosupport",
    "wiener_shrinkage",
]

Array = NDArray[Any]
Floats = NDArray[np.float32]


def activity(image: Array, operator: AnalysisOperator) -> Floats:
    """Sum of the magnitudes of the analysis coefficients of every patch, ``‖Ω W_ij I‖₁``."""
    n = operator.patch_size
    padded = _pad(image)
    result = np.empty((image.shape[0] - n + 1, image.shape[1] - n + 1), np.float32)
    if operator.factors:
        left, right = (_taps(factor[:, None, :])[: len(factor)] for factor in operator.factors)

        def work(start: int, stop: int) -> None:
            loops.activity_separable(padded, left[:, 0], right[:, 0], start, stop, result)
    else:
        taps = _taps(operator.filters)

        def work(start: int, stop: int) -> None:
            loops.activity_full(padded, taps, start, stop, result)

    _over_bands(work, len(result))
    return result


def dual_step(
    dual: Floats,
    previous: Floats,
    image: Array,
    operator: AnalysisOperator,
    *,
    momentum: float,
    step: float,
    limit: float,
) -> tuple[Floats, Floats, Floats]:
    """One accelerated projected ascent of the dual; returns the new dual, the old, and ``Ω_Fᵀu``.

    Both duals are updated in place: they are by far the largest arrays at hand.
    """
    padded, taps = _pad(image), _taps(operator.filters)
    numbers = np.array([momentum, step, limit], np.float32)

    def work(start: int, stop: int) -> Floats:
        out = np.zeros(_band_shape(image, start, stop, taps), np.float32)
        loops.dual_band(padded, taps, dual, previous, numbers, start, stop, out)
        return out

    return dual, previous, _gather(_over_bands(work, dual.shape[1]), image)


def pairing(dual: Floats, image: Array, operator: AnalysisOperator) -> tuple[float, float]:
    """‖Ω_F x‖₁ and ⟨Ω_F x, u⟩: what the duality gap is made of."""
    padded, taps = _pad(image), _taps(operator.filters)

    def work(start: int, stop: int) -> Array:
        return np.array(loops.pairing_band(padded, taps, dual, start, stop))

    parts = [part for _, part in _over_bands(work, dual.shape[1])]
    norm, inner = np.sum(parts, axis=0)
    return float(norm), float(inner)


def hard_shrinkage(image: Array, operator: AnalysisOperator, *, threshold: ArrayLike) -> Floats:
    """Drop every patch's coefficients up to ``threshold``, one or a row's, and average."""
    limits = np.full(len(operator.rows), threshold, np.float32)

    def work(padded: Floats, taps: Floats, start: int, stop: int, out: Floats) -> None:
        loops.hard_band(padded, taps, limits, start, stop, out)

    return _shrunk(image, operator, work)


def wiener_shrinkage(
    image: Array, guide: Array, operator: AnalysisOperator, *, variance: ArrayLike
) -> Floats:
    """Scale every coefficient by v² / (v² + variance), v that of ``guide``, and average.

    There is one variance, or one for every row.
    """
    guiding, variances = _pad(guide), np.full(len(operator.rows), variance, np.float32)

    def work(padded: Floats, taps: Floats, start: int, stop: int, out: Floats) -> None:
        loops.wiener_band(padded, guiding, taps, variances, start, stop, out)

    return _shrunk(image, operator, work)


def _shrunk(image: Array, operator: AnalysisOperator, work: Callable[..., None]) -> Floats:
    """Picture less the weighted mean of what ``work`` takes from the patches."""
    padded, taps = _pad(image), _taps(operator.filters)

    def band(start: int, stop: int) -> Floats:
        out = np.zeros((2, *_band_shape(image, start, stop, taps)), np.float32)
        work(padded, taps, start, stop, out)
        return out

    rows = image.shape[0] - operator.patch_size + 1
    removed, weights = _gather(_over_bands(band, rows), image)
    return np.asarray(image - removed / weights, np.float32)


def select_cosupport(coefficients: Array, gram: Array, rank: int) -> NDArray[np.bool_]:
    """Choose every column's co-support: its smallest coefficients whose rows have ``rank``."""
    order = np.argsort(np.abs(coefficients), axis=0).T.copy()
    chosen = np.zeros(order.shape, dtype=np.bool_)
    loops.cosupport(order, np.ascontiguousarray(gram, np.float64), rank, chosen)
    return chosen.T


def region_areas(labels: Array) -> NDArray[np.signedinteger[Any]]:
    """For every pixel the number of pixels in its region: same label, joined by edges."""
    areas: NDArray[np.signedinteger[Any]] = np.full(
        labels.size, -1, np.int32 if labels.size < 2**31 else np.int64
    )
    loops.areas(np.ascontiguousarray(labels), areas)
    return areas.reshape(labels.shape)


def _over_bands(work: Callable[[int, int], Any], rows: int) -> list[tuple[int, Any]]:
    """Run ``work(start, stop)`` over bands of patch rows and return (start, result) in order."""
    count = min(_threads(), max(1, rows // 16))
    edges = [rows * k // count for k in range(count + 1)]
    if count == 1:
        return [(0, work(0, rows))]
    pool = _pool()
    futures = [pool.submit(work, a, b) for a, b in itertools.pairwise(edges)]
    wait(futures)  # also when one fails: the others write to arrays that its caller still holds
    return [(a, f.result()) for a, f in zip(edges, futures, strict=False)]


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that last: some work is short.

    Bands must not be worked on in bands themselves, they would wait for each other.
    """
    return ThreadPoolExecutor(os.cpu_count() or 1, "cofuse")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in a child


def _pad(image: Array) -> Floats:
    """Copy a picture to float32 with zero columns on its right for the filters' padded taps."""
    padded = np.zeros((image.shape[0], image.shape[1] + loops.MARGIN), np.float32)
    padded[:, : image.shape[1]] = image
    return padded


def _taps(filters: Array) -> Floats:
    """Pad filters (h, rows, n) with zeros to whole groups of four filters and of four taps."""
    h, rows, n = filters.shape
    taps = np.zeros((-(-h // 4) * 4, rows, -(-n // 4) * 4), np.float32)
    taps[:h, :, :n] = filters
    return taps


def _band_shape(image: Array, start: int, stop: int, taps: Floats) -> tuple[int, int]:
    """Shape of the piece of picture that a band of patch rows spreads back on."""
    return stop - start + taps.shape[1] - 1, image.shape[1] + loops.MARGIN


def _gather(bands: list[tuple[int, Floats]], image: Array) -> Floats:
    """Add the bands' overlapping results to one picture (or one a plane)."""
    planes = bands[0][1].shape[:-2]
    result = np.zeros((*planes, *image.shape), np.float32)
    for start, band in bands:
        result[..., start : start + band.shape[-2], :] += band[..., : image.shape[1]]
    return result
