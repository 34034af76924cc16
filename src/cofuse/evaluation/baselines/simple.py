"""The two baselines every fusion has to beat: the mean of all frames, and one frame alone."""

from __future__ import annotations

import time

import numpy as np

from cofuse.arguments import check_sigma
from cofuse.images import Fusion, Levels, Stack

__all__ = ["fuse_average", "fuse_single_best"]


def fuse_average(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Return the mean of all frames: the least noise, σ/√K, and the least sharpness.

    Frames are streamed. Nothing is denoised: ``sigma`` is recorded, not used.
    """
    check_sigma(sigma)
    started = time.perf_counter()
    total = np.zeros(stack.shape, dtype=np.float64)
    for frame in stack:
        total += stack.to_levels(frame)
    mean = (total / len(stack)).astype(np.float32)
    seconds = {"average": time.perf_counter() - started}
    return Fusion(stack.from_levels(mean), sigma=sigma, seconds=seconds)


def fuse_single_best(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Return a copy of the frame whose luminance has the most high-frequency energy.

    The energy is the mean square of the discrete Laplacian; of equal frames the first one wins.
    Frames are streamed. Nothing is denoised: ``sigma`` is recorded, not used. White noise of one
    level in all frames adds the same energy to each, and on average leaves the choice as it is.
    """
    check_sigma(sigma)
    started = time.perf_counter()
    energies = [_laplacian_energy(stack.luminance(k)) for k in range(len(stack))]
    best = int(np.argmax(energies))
    source_map = np.full(stack.shape[:2], best, dtype=np.min_scalar_type(len(stack) - 1))
    image = stack[best].copy()
    seconds = {"choose": time.perf_counter() - started}
    return Fusion(image, source_map, None, sigma=sigma, seconds=seconds)


def _laplacian_energy(levels: Levels) -> float:
    """Mean square of the five-point Laplacian, the picture continued by its border pixels."""
    centre = np.pad(levels, 1, mode="edge")
    bend = 4.0 * levels - centre[:-2, 1:-1] - centre[2:, 1:-1] - centre[1:-1, :-2]
    bend -= centre[1:-1, 2:]
    return float(np.square(bend).mean(dtype=np.float64))
