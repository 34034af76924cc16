"""Baselines that know nothing of noise: some mix frames, others copy the one in focus.

Frames are grey or RGB, K ≥ 1, and streamed: memory does not grow with K. The luminance decides for
all three colours. Those that copy do so in the native type, exactly, and return a source map.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_number
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.denoising import import_extra
from cofuse.images import Fusion, Pixels, Stack, luminance
from cofuse.operators.patches import patch_positions

Array = NDArray[Any]
Choice = NDArray[np.intp]

#: Most detail bands of pyramid and wavelet transform; fewer where the picture is too small.
_LEVELS = 4
#: Side in pixels of the blocks that are copied.
_BLOCK = 8


def fuse_average(stack: Stack) -> Fusion:
    """Return the mean of all frames: the least noise, σ/√K, and the least sharpness."""
    total = np.zeros(stack.shape, dtype=np.float64)
    for frame in stack:
        total += stack.to_levels(frame)
    return Fusion(image=stack.from_levels((total / len(stack)).astype(np.float32)))


def fuse_laplacian(stack: Stack, *, window: int = 3) -> Fusion:
    """Fuse by Laplacian pyramids: strongest detail by windowed salience, mean of the top.

    With ``window`` 1 the largest magnitude is taken, coefficient by coefficient. After Burt and
    Adelson (1983) and Burt and Kolczynski (1993).
    """
    check_number("window", window, 1, whole=True)
    depth = min(_LEVELS, int(np.log2(min(stack.shape[:2]))))
    pyramids = (_laplacian_pyramid(stack.to_levels(frame), depth) for frame in stack)
    return Fusion(image=stack.from_levels(_collapse(_merge(pyramids, window))))


def fuse_dwt(stack: Stack) -> Fusion:
    """Fuse by discrete wavelet transforms: strongest coefficient, mean of the approximation.

    Coefficients are compared by their mean magnitude over 3×3, the area-based selection of Li,
    Manjunath and Mitra (1995). The transform is that of PyWavelets, with mirrored borders.
    """
    pywt = import_extra("pywt", "PyWavelets", "wavelet fusion")
    wavelet = pywt.Wavelet("db4")
    depth = min(_LEVELS, pywt.dwt_max_level(min(stack.shape[:2]), wavelet.dec_len))

    def bands(frame: Pixels) -> list[Array]:
        coarse, *rest = pywt.wavedec2(stack.to_levels(frame), wavelet, level=depth, axes=(0, 1))
        return [*(band for triple in rest for band in triple), coarse]

    *details, coarse = _merge(map(bands, stack), 3)
    triples = [tuple(details[k : k + 3]) for k in range(0, len(details), 3)]
    fused = pywt.waverec2([coarse, *triples], wavelet, axes=(0, 1))
    # An odd side comes back one pixel longer.
    fused = np.asarray(fused, dtype=np.float32)[: stack.height, : stack.width]
    return Fusion(image=stack.from_levels(fused))


def fuse_guided_filter(stack: Stack) -> Fusion:
    """Blend base and detail layers by guided-filtered weights: GFF (Li, Kang, Hu 2013).

    A frame's base layer is its mean over 31×31 pixels, the rest is its detail layer. The saliency
    of a frame is its smoothed absolute Laplacian; the map that is 1 where a frame is the most
    salient, filtered with the frame as guide, weighs its base and, filtered less, its detail.
    """
    chosen = _choose_largest(_saliency(stack.luminance(k)) for k in range(len(stack)))
    pixel = (*stack.shape[:2], *[1] * (len(stack.shape) - 2))
    sums, weights = np.zeros((2, *stack.shape)), np.zeros((2, *pixel))
    for k, frame in enumerate(stack):
        levels = stack.to_levels(frame)
        smooth = cv2.blur(levels, (31, 31), borderType=cv2.BORDER_REPLICATE)
        guide = luminance(levels).astype(np.float64) / 255.0
        mask = (chosen == k).astype(np.float64)
        # Radius and regularisation, on a 0-1 scale of grey, as the paper has them.
        for n, (layer, strength) in enumerate(((smooth, (45, 0.3)), (levels - smooth, (7, 1e-6)))):
            weight = _guided_filter(guide, mask, *strength).reshape(pixel)
            sums[n] += layer * weight
            weights[n] += weight
    return Fusion(image=stack.from_levels((sums / weights).sum(axis=0).astype(np.float32)))


def fuse_dct_variance(stack: Stack) -> Fusion:
    r"""Copy each block from the frame where it has the largest variance: DCT+Var+CV.

    The variance of an N×N block is read off its orthonormal DCT coefficients d as

    .. math:: \sigma^2 = \frac{1}{N^2} \Big(\sum_{k,l} d_{k,l}^2 - d_{0,0}^2\Big),

    which, by Parseval, is the variance of its pixels; so it is computed here, from the pixels.
    Blocks cut off by the picture's border are completed by mirroring. Consistency verification
    then gives every block to the frame chosen most often in the 3×3 blocks around it; on a tie it
    keeps its own. After Haghighat, Aghagolzadeh and Seyedarabi (2011).
    """
    chosen = _choose_largest(_block_variance(stack.luminance(k)) for k in range(len(stack)))
    return _copy_blocks(stack, chosen, _BLOCK)


def fuse_sf_dct(stack: Stack, *, block_size: int = _BLOCK) -> Fusion:
    r"""Copy each block from the frame where its spatial frequency is largest: SF-DCT.

    A majority vote over 3×3 blocks mends lone decisions. After Cao, Jin and others (2015). What
    the paper leaves open, and what we do:

    - *Sides that are no multiple of the block.* The last block is moved inwards until it fits; of
      it only the pixels that no other block covers are copied.
    - *More than two frames.* A block goes to the frame most of its (up to nine) neighbours chose,
      itself included; at a tie it keeps its choice, or else takes the earliest frame.
    """
    if block_size < 2 or min(stack.height, stack.width) < block_size:
        raise CofuseError(
            f"block_size is {block_size} for frames of {stack.width}x{stack.height} px; expected "
            "2 or more, and no more than either side"
        )
    places = np.ix_(*patch_positions(stack.shape, block_size, block_size))
    windows = np.lib.stride_tricks.sliding_window_view
    chosen = _choose_largest(
        _spatial_frequency(windows(stack.luminance(k), (block_size, block_size))[places])
        for k in range(len(stack))
    )
    return _copy_blocks(stack, chosen, block_size)


def fuse_focus_measure(stack: Stack) -> Fusion:
    """Copy each pixel from the frame with the strongest dense gradient histograms: DSIFT.

    Activity is the ℓ₁ norm of the unnormalised dense SIFT descriptor: gradient magnitudes, sorted
    into eight directions and four by four cells of six pixels. A sliding block goes to the frame
    with the largest sum of activity; a pixel whose blocks all go to one frame is certain. Regions
    of certain pixels that are too small lose their certainty, holes in them too small are filled;
    what is left open goes, pixel by pixel, to the largest spatial frequency over 7×7 pixels.

    After Liu, Liu and Wang (2015), without their feature matching, which looks for a misregistered
    pixel's counterpart: frames are taken to be aligned, and pixels are copied.
    """
    # For the 520×520 pixels of the Lytro set these are the 3600 of the authors' program.
    smallest = max(round(stack.height * stack.width / 75), 1)
    side = min(_BLOCK, stack.height, stack.width)
    frames = range(len(stack))
    blocks = _choose_largest(
        _block_sums(_descriptor_norm(stack.luminance(k)), side) for k in frames
    )
    source_map = _choose_largest(_local_frequency(stack.luminance(k)) for k in frames)
    for k in frames:
        certain = _all_blocks_agree(blocks == k, side)
        source_map[_drop_small_regions(certain, smallest)] = k
    return _copy_chosen(stack, source_map)


def _merge(pyramids: Iterable[list[Array]], window: int) -> list[Array]:
    """Keep the most salient details of all frames, of equals the first's, and the mean top."""
    rest = iter(pyramids)
    *kept, top = next(rest)
    best = [_salience(band, window) for band in kept]
    total, count = top.astype(np.float64), 1
    for *details, top in rest:
        total += top
        count += 1
        for so_far, most, band in zip(kept, best, details, strict=True):
            here = _salience(band, window)
            better = here > most
            np.copyto(most, here, where=better)
            np.copyto(so_far, band, where=better[..., None] if band.ndim == 3 else better)
    return [*kept, (total / count).astype(np.float32)]


def _laplacian_pyramid(levels: Array, depth: int) -> list[Array]:
    """Return ``depth`` detail bands, finest first, and the coarse residue."""
    pyramid: list[Array] = []
    fine = levels
    for _ in range(depth):
        coarse = cv2.pyrDown(fine)
        pyramid.append(fine - cv2.pyrUp(coarse, dstsize=fine.shape[1::-1]))
        fine = coarse
    return [*pyramid, fine]


def _collapse(pyramid: list[Array]) -> Array:
    """Undo `_laplacian_pyramid`: exact but for rounding, since each band is a difference."""
    *details, top = pyramid
    for band in reversed(details):
        top = band + cv2.pyrUp(top, dstsize=band.shape[1::-1])
    return top


def _salience(band: Array, window: int) -> Array:
    """Average the luminance's magnitude over a square; at the borders over its part inside."""
    # Every position has the same count of pixels in all frames: sums compare as means do.
    square, border = (window, window), cv2.BORDER_CONSTANT
    return cv2.boxFilter(np.abs(luminance(band)), -1, square, borderType=border)


def _saliency(grey: Array) -> Array:
    """Absolute Laplacian, smoothed by a Gaussian of 5 pixels."""
    border = cv2.BORDER_REPLICATE
    high = np.abs(cv2.Laplacian(grey, cv2.CV_32F, ksize=1, borderType=border))
    return cv2.GaussianBlur(high, (11, 11), 5.0, borderType=border)


def _guided_filter(guide: Array, mask: Array, radius: int, epsilon: float) -> Array:
    """Filter a map of zeros and ones by the guided filter of He, Sun and Tang; keep it in [0, 1].

    Windows end at the picture's border. The result stays a little above zero, so that the weights
    of all frames have a sum to be divided by.
    """

    def window_sum(values: Array) -> Array:
        square, border = (2 * radius + 1, 2 * radius + 1), cv2.BORDER_CONSTANT
        return cv2.boxFilter(values, cv2.CV_64F, square, normalize=False, borderType=border)

    inside = window_sum(np.ones_like(guide))

    def mean(values: Array) -> Array:
        return window_sum(values) / inside

    mean_guide, mean_mask = mean(guide), mean(mask)
    slope = mean(guide * mask) - mean_guide * mean_mask
    slope /= mean(guide * guide) - mean_guide**2 + epsilon
    offset = mean_mask - slope * mean_guide
    return np.asarray(np.clip(mean(slope) * guide + mean(offset), 1e-9, 1.0))


def _choose_largest(values: Iterable[Array]) -> Choice:
    """Return for every place the index of the frame with the largest value; of equals the first."""
    rest = iter(values)
    largest = next(rest).copy()
    choice = np.zeros(largest.shape, np.intp)
    for k, value in enumerate(rest, 1):
        better = value > largest
        np.copyto(largest, value, where=better)
        choice[better] = k
    return choice


def _choose_majority(choice: Choice, frames: int) -> Choice:
    """Give every place to the frame chosen most often in 3×3; on a tie it keeps its own."""

    def votes(mine: Array) -> Array:
        counts = cv2.boxFilter(mine, -1, (3, 3), normalize=False, borderType=cv2.BORDER_CONSTANT)
        # Counts are whole numbers: half a vote more breaks ties and nothing else.
        return np.asarray(counts + 0.5 * mine)

    return _choose_largest(votes((choice == k).astype(np.float32)) for k in range(frames))


def _copy_blocks(stack: Stack, chosen: Choice, side: int) -> Fusion:
    """Let blocks vote with their neighbours, and copy each from the frame that won it."""
    blocks = _choose_majority(chosen, len(stack))
    source_map = blocks.repeat(side, axis=0).repeat(side, axis=1)
    return _copy_chosen(stack, source_map[: stack.height, : stack.width])


def _copy_chosen(stack: Stack, source_map: Choice) -> Fusion:
    """Copy every pixel, in its native type, from the frame chosen for it."""
    image: Pixels = np.empty(stack.shape, dtype=stack.dtype)
    for k, frame in enumerate(stack):
        mask = source_map == k
        image[mask] = frame[mask]
    index = source_map.astype(np.min_scalar_type(len(stack) - 1))
    return Fusion(image=image, source_map=index)


def _block_variance(grey: Array) -> Array:
    """Variance of the pixels in every block."""
    side = _BLOCK
    padded = np.pad(grey, [(0, -length % side) for length in grey.shape], mode="symmetric")
    rows, columns = (length // side for length in padded.shape)
    blocks = padded.reshape(rows, side, columns, side)
    return np.asarray(blocks.var(axis=(1, 3), dtype=np.float64))


def _spatial_frequency(blocks: Array) -> Array:
    r"""Spatial frequency of blocks (…, n, n) → (…), by their orthonormal DCT-II.

    It is the root of the summed squares of all differences of horizontal and vertical neighbours
    over the number of pixels. Differences within a block are diagonal in the DCT: for an n × n
    block x with transform X

    .. math:: \mathrm{SF}^2
              = \frac1{n^2} \sum_{i,j} (x_{i,j} - x_{i,j-1})^2 + (x_{i,j} - x_{i-1,j})^2
              = \frac1{n^2} \sum_{u,v} (\lambda_u + \lambda_v)\, X_{u,v}^2, \qquad
              \lambda_k = 4 \sin^2 \frac{\pi k}{2n}
    """
    n = blocks.shape[-1]
    basis = np.cos(np.pi / n * np.outer(np.arange(n), np.arange(n) + 0.5))
    basis = (basis / np.linalg.norm(basis, axis=1, keepdims=True)).astype(blocks.dtype)
    transformed = basis @ blocks @ basis.T
    eigenvalues = 4.0 * np.sin(np.pi * np.arange(n) / (2 * n)) ** 2
    weights = ((eigenvalues[:, None] + eigenvalues) / n**2).astype(blocks.dtype)
    return np.asarray(np.sqrt(np.einsum("...uv,...uv,uv->...", transformed, transformed, weights)))


def _descriptor_norm(grey: Array) -> Array:
    """ℓ₁ norm of the unnormalised dense SIFT descriptor around every pixel.

    A direction's bin holds the magnitude times cos⁹ of the angle between them where that is
    positive, so two opposite bins of the eight hold |cos|⁹; the cells, four by four, overlap as
    tents do. The norm is a sum of bins and cells, so neither is ever laid out.
    """
    border = cv2.BORDER_REFLECT
    smooth = cv2.GaussianBlur(grey, (5, 5), 1.0, borderType=border)
    slope_x, slope_y = (
        cv2.filter2D(smooth, -1, kernel, borderType=border)
        for kernel in (np.array([[-0.5, 0.0, 0.5]]), np.array([[-0.5], [0.0], [0.5]]))
    )
    magnitude = np.hypot(slope_x, slope_y)
    bins = np.zeros_like(magnitude)
    for angle in np.arange(4) * (np.pi / 4):
        along = np.abs(slope_x * np.float32(np.cos(angle)) + slope_y * np.float32(np.sin(angle)))
        bins += (along / np.maximum(magnitude, 1e-6)) ** 9
    centres = np.zeros(3 * 6 + 1)  # of four cells of six pixels
    centres[::6] = 1.0
    cells = np.convolve(centres, 1.0 - np.abs(np.arange(-5, 6)) / 6)
    return cv2.sepFilter2D(bins * magnitude, -1, cells, cells, borderType=border)


def _block_sums(activity: Array, side: int) -> Array:
    """Sum over every block that lies inside the picture, in the order of its top left pixel."""
    height, width = (length - side + 1 for length in activity.shape)
    sums = cv2.boxFilter(activity, cv2.CV_64F, (side, side), anchor=(0, 0), normalize=False)
    return sums[:height, :width]


def _all_blocks_agree(won: Array, side: int) -> Array:
    """Return the pixels that lie in won blocks only; blocks are named by their top left pixel."""
    reach = side - 1
    padded = np.pad(won.astype(np.uint8), reach, constant_values=1)
    agreed = cv2.erode(padded, np.ones((side, side), np.uint8), anchor=(0, 0))
    height, width = (length + reach for length in won.shape)
    return agreed[:height, :width].astype(bool)


def _drop_small_regions(mask: Array, smallest: int) -> Array:
    """Remove regions of fewer than ``smallest`` pixels, then fill holes as small."""
    for value in (True, False):
        regions = (mask == value).astype(np.uint8)
        _, labels, stats, _ = cv2.connectedComponentsWithStats(regions, connectivity=8)
        small = stats[:, cv2.CC_STAT_AREA] < smallest
        small[0] = False  # label 0 is everything else
        mask = mask ^ small[labels]
    return mask


def _local_frequency(grey: Array) -> Array:
    """Squared spatial frequency over 7×7 pixels: mean square of first differences."""
    squares = np.zeros_like(grey)
    squares[1:] += np.square(grey[1:] - grey[:-1])
    squares[:, 1:] += np.square(grey[:, 1:] - grey[:, :-1])
    return cv2.blur(squares, (7, 7), borderType=cv2.BORDER_REFLECT)
