"""SF-DCT: fusion by the spatial frequency of blocks, computed from their DCT coefficients.

After Cao, Jin, Tan, *Multi-focus image fusion based on spatial frequency in discrete cosine
transform domain* (IEEE Signal Processing Letters, 2015). The frames are cut into blocks that do
not overlap; of each block the frame with the largest spatial frequency is taken, a majority filter
over 3×3 blocks mends lone decisions, and the blocks are copied.

What the paper leaves open, and what we do:

- *Sides that are no multiple of the block.* The last block is moved inwards until it fits; of it
  only the pixels that no other block covers are copied.
- *More than two frames.* The majority filter gives a block to the frame most of its (up to nine)
  neighbours chose, itself included; at a tie it keeps its choice, or else takes the earliest frame.
- *Colour.* The luminance decides for all channels.
- *Noise.* The method has no model of it: for σ > 0 the frames are denoised first, and the blocks
  come from the denoised frames. For σ = 0 native pixels are copied unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.images import Fusion, Levels, Stack, luminance
from cofuse.operators.patches import patch_positions
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["dct_spatial_frequency", "fuse_sf_dct"]

Array = NDArray[Any]

#: Denoised frames kept from the decision for the copying; beyond this they are made again.
_KEPT_BYTES = 512 << 20


def fuse_sf_dct(
    stack: Stack,
    *,
    sigma: float = 0.0,
    block_size: int = 8,
    consistency: bool = True,
    denoise: Callable[[Levels, float], Levels] | None = None,
    progress: ProgressCallback = silent,
) -> Fusion:
    """Fuse a stack block by block, taking the frame of largest spatial frequency.

    Parameters
    ----------
    stack
        One frame or more, grey or RGB, any dtype.
    sigma
        Noise level in 8-bit grey levels; above 0 the frames are denoised before anything else.
    block_size
        Side of the blocks in pixels.
    consistency
        Whether the majority filter runs over the decisions.
    denoise
        Denoiser of one grey plane, ``denoise(levels, sigma)``; default total variation. RGB goes
        plane by plane through `cofuse.evaluation.baselines.denoising.denoise_picture`.
    progress
        Told of every frame whose blocks have been measured.
    """
    check_sigma(sigma)
    if block_size < 2 or min(stack.height, stack.width) < block_size:
        raise CofuseError(
            f"block_size is {block_size} for frames of {stack.width}x{stack.height} px; expected "
            "2 or more, and no more than either side"
        )
    began = time.perf_counter()
    read = _levels_reader(stack, sigma, denoise)
    blocks = patch_positions(stack.shape, block_size, block_size)
    best = np.full((len(blocks[0]), len(blocks[1])), -1.0, np.float32)
    choice = np.zeros(best.shape, np.min_scalar_type(len(stack) - 1))
    for k in range(len(stack)):
        windows = np.lib.stride_tricks.sliding_window_view(
            luminance(read(k)), (block_size, block_size)
        )
        frequency = dct_spatial_frequency(_dct(windows[np.ix_(*blocks)]))
        better = frequency > best
        best[better] = frequency[better]
        choice[better] = k
        progress(Progress("choose", k + 1, len(stack)))
    if consistency:
        choice = _majority(choice)
    chosen_at = time.perf_counter()
    # A pixel belongs to the block counted from the top left; so the last, moved one gets the rest.
    rows, columns = (np.arange(side) // block_size for side in stack.shape[:2])
    source_map = choice[np.ix_(rows, columns)]
    image = np.empty(stack.shape, stack.dtype)
    for k in np.unique(choice).tolist():
        here = source_map == k
        image[here] = stack.from_levels(read(k)[here]) if sigma > 0 else stack[k][here]
    return Fusion(
        image=image,
        source_map=source_map,
        sigma=float(sigma),
        seconds={"choose": chosen_at - began, "copy": time.perf_counter() - chosen_at},
    )


def dct_spatial_frequency(coefficients: Array) -> Array:
    r"""Spatial frequency of blocks from their orthonormal DCT-II, (…, n, n) → (…).

    The spatial frequency is the root of the summed squares of all differences of horizontal and
    vertical neighbours over the number of pixels. Differences within a block are diagonal in the
    DCT: for an n × n block x with transform X

    .. math:: \mathrm{SF}^2
              = \frac1{n^2} \sum_{i,j} (x_{i,j} - x_{i,j-1})^2 + (x_{i,j} - x_{i-1,j})^2
              = \frac1{n^2} \sum_{u,v} (\lambda_u + \lambda_v)\, X_{u,v}^2, \qquad
              \lambda_k = 4 \sin^2 \frac{\pi k}{2n}

    so that no inverse transform is needed.
    """
    n = coefficients.shape[-1]
    eigenvalues = 4.0 * np.sin(np.pi * np.arange(n) / (2 * n)) ** 2
    weights = ((eigenvalues[:, None] + eigenvalues) / n**2).astype(coefficients.dtype)
    power = np.einsum("...uv,...uv,uv->...", coefficients, coefficients, weights)
    return np.asarray(np.sqrt(power))


def _dct(blocks: Array) -> Array:
    """Orthonormal DCT-II of the last two axes; blocks are small, so by two matrix products."""
    n = blocks.shape[-1]
    basis = np.cos(np.pi / n * np.outer(np.arange(n), np.arange(n) + 0.5))
    basis = (basis / np.linalg.norm(basis, axis=1, keepdims=True)).astype(blocks.dtype)
    return np.asarray(basis @ blocks @ basis.T)


def _majority(choice: Array) -> Array:
    """Give every block to the frame that most blocks of its 3×3 neighbourhood chose."""
    votes = np.zeros(choice.shape, np.int8)
    own = np.zeros(choice.shape, np.int8)
    winner = choice.copy()
    for k in np.unique(choice).tolist():
        padded = np.pad(choice == k, 1).astype(np.int8)
        count = np.lib.stride_tricks.sliding_window_view(padded, (3, 3)).sum(
            axis=(-2, -1), dtype=np.int8
        )
        own[choice == k] = count[choice == k]
        winner[count > votes] = k
        np.maximum(votes, count, out=votes)
    return np.where(own == votes, choice, winner)


def _levels_reader(
    stack: Stack, sigma: float, denoise: Callable[[Levels, float], Levels] | None
) -> Callable[[int], Levels]:
    """Return a function that reads a frame as grey levels, denoised where there is noise."""
    if sigma == 0:
        return lambda k: stack.to_levels(stack[k])
    from cofuse.evaluation.baselines.denoising import denoise_picture, denoise_tv

    denoiser = denoise or denoise_tv
    most = _KEPT_BYTES // (4 * int(np.prod(stack.shape)))
    kept: dict[int, Levels] = {}

    def read(k: int) -> Levels:
        if k in kept:
            return kept[k]
        levels = denoise_picture(stack.to_levels(stack[k]), sigma, denoiser)
        if len(kept) < most:
            kept[k] = levels
        return levels

    return read
