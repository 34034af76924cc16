"""Baselines that decide, by frame, block or pixel, which frame is in focus, and copy it.

Frames are grey or RGB, K ≥ 1, and read twice: memory does not grow with K. The luminance decides,
and all colours are copied in their native type, exactly. Only `fuse_sf_dct` makes use of
``sigma``; the others record it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.denoising import denoise_then, denoise_tv
from cofuse.images import Fusion, Levels, Pixels, Stack
from cofuse.operators.patches import patch_positions

__all__ = [
    "choose_largest",
    "fuse_dct_variance",
    "fuse_focus_measure",
    "fuse_sf_dct",
    "fuse_single_best",
]

Mask = NDArray[np.bool_]
Choice = NDArray[np.intp]
Values = NDArray[np.float64]

#: Side in pixels of the blocks that are copied, and in blocks of the window of the majority vote.
_BLOCK = 8
_MAJORITY_SIDE = 3
#: The descriptor of dense SIFT: directions of the gradient, sharpness of their bins, cells a side.
_DIRECTIONS, _SHARPNESS, _CELLS = 8, 9, 4
_CELL_SIDE = 6
#: Smallest region kept, as part of the picture: for the 520×520 pixels of the Lytro set the 3600
#: of the authors' program.
_SMALLEST_REGION = 1 / 75
#: Radius of the window of spatial frequency that settles what the descriptors leave open.
_FREQUENCY_RADIUS = 3


def fuse_single_best(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Return a copy of the frame with the most high-frequency energy; of equal ones the first.

    The energy is the mean square of the discrete Laplacian. White noise of one level in all frames
    adds the same energy to each, and on average leaves the choice as it is.
    """
    check_sigma(sigma)
    energies = [_laplacian_energy(stack.luminance(k)) for k in range(len(stack))]
    return _copy_chosen(stack, np.full(stack.shape[:2], int(np.argmax(energies))), sigma)


def fuse_dct_variance(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    r"""Copy each block from the frame where it has the largest variance: DCT+Var+CV [1]_.

    The variance of an N×N block is read off its orthonormal DCT coefficients d as

    .. math:: \sigma^2 = \frac{1}{N^2} \Big(\sum_{k,l} d_{k,l}^2 - d_{0,0}^2\Big),

    which, by Parseval, is the variance of its pixels; so it is computed here, from the pixels.
    Blocks cut off by the picture's border are completed by mirroring. Consistency verification
    then gives every block to the frame chosen most often in the 3×3 blocks around it; on a tie it
    keeps its own.

    References
    ----------
    .. [1] M. Haghighat, A. Aghagolzadeh, H. Seyedarabi, "Multi-focus image fusion for visual
       sensor networks in DCT domain", Computers & Electrical Engineering 37, 2011.
    """
    check_sigma(sigma)
    chosen = choose_largest(_block_variance(stack.luminance(k)) for k in range(len(stack)))
    return _copy_blocks(stack, chosen, _BLOCK, sigma)


def fuse_sf_dct(stack: Stack, *, sigma: float = 0.0, block_size: int = _BLOCK) -> Fusion:
    r"""Copy each block from the frame where its spatial frequency is largest: SF-DCT [1]_.

    A majority vote over 3×3 blocks mends lone decisions. What the paper leaves open, and what we
    do:

    - *Sides that are no multiple of the block.* The last block is moved inwards until it fits; of
      it only the pixels that no other block covers are copied.
    - *More than two frames.* A block goes to the frame most of its (up to nine) neighbours chose,
      itself included; at a tie it keeps its choice, or else takes the earliest frame.
    - *Noise.* The method has no model of it: for σ > 0 the frames are denoised by total variation
      first, and the blocks come from the denoised frames.

    References
    ----------
    .. [1] L. Cao, L. Jin and others, "Multi-focus image fusion based on spatial frequency in
       discrete cosine transform domain", IEEE Signal Processing Letters, 2015.
    """
    check_sigma(sigma)
    if block_size < 2 or min(stack.height, stack.width) < block_size:
        raise CofuseError(
            f"block_size is {block_size} for frames of {stack.width}x{stack.height} px; expected "
            "2 or more, and no more than either side"
        )
    places = patch_positions(stack.shape, block_size, block_size)

    def fuse(frames: Stack) -> Fusion:
        chosen = choose_largest(
            _spatial_frequency(_windows(frames.luminance(k), block_size)[np.ix_(*places)])
            for k in range(len(frames))
        )
        return _copy_blocks(frames, chosen, block_size, 0.0)

    return denoise_then(fuse, denoise_tv)(stack, sigma=sigma)


def fuse_focus_measure(stack: Stack, *, sigma: float = 0.0) -> Fusion:
    """Copy each pixel from the frame with the strongest dense gradient histograms: DSIFT [1]_.

    Activity is the ℓ₁ norm of the unnormalised dense SIFT descriptor: gradient magnitudes, sorted
    into eight directions and four by four cells of six pixels. A sliding block goes to the frame
    with the largest sum of activity; a pixel whose blocks all go to one frame is certain. Regions
    of certain pixels that are too small lose their certainty, holes in them too small are filled;
    what is left open goes, pixel by pixel, to the largest spatial frequency over 7×7 pixels.

    Without the paper's feature matching, which looks for a misregistered pixel's counterpart and
    averages frames where it finds none: frames are taken to be aligned, and pixels are copied.

    References
    ----------
    .. [1] Y. Liu, S. Liu, Z. Wang, "Multi-focus image fusion with dense SIFT", Information
       Fusion 23, 2015.
    """
    check_sigma(sigma)
    smallest = max(round(stack.height * stack.width * _SMALLEST_REGION), 1)
    side = min(_BLOCK, stack.height, stack.width)
    blocks, local = _Largest(), _Largest()
    for k in range(len(stack)):
        grey = stack.luminance(k)
        blocks.add(_sum_blocks(_descriptor_norm(grey), side))
        local.add(_local_frequency(grey))
    source_map = local.choice
    for k in range(len(stack)):
        certain = _all_blocks_agree(blocks.choice == k, side)
        source_map[_drop_small_regions(certain, smallest)] = k
    return _copy_chosen(stack, source_map, sigma)


class _Largest:
    """A running argmax over frames; of equal ones the first is chosen."""

    def __init__(self) -> None:
        self.choice: Choice = np.empty((0, 0), dtype=np.intp)
        self._value: NDArray[Any] | None = None
        self._frames = 0

    def add(self, value: NDArray[Any]) -> None:
        """Compare one more frame with the best so far."""
        if self._value is None:
            self._value, self.choice = value.copy(), np.zeros(value.shape, dtype=np.intp)
        else:
            better = value > self._value
            np.copyto(self._value, value, where=better)
            self.choice[better] = self._frames
        self._frames += 1


def choose_largest(values: Iterable[NDArray[Any]]) -> Choice:
    """Return for every place the index of the frame with the largest value."""
    largest = _Largest()
    for value in values:
        largest.add(value)
    return largest.choice


def _choose_majority(choice: Choice, frames: int) -> Choice:
    """Give every place to the frame chosen most often around it; on a tie it keeps its own."""
    import cv2

    votes = _Largest()
    square = (_MAJORITY_SIDE, _MAJORITY_SIDE)
    for k in range(frames):
        mine = (choice == k).astype(np.float32)
        counts = cv2.boxFilter(mine, -1, square, normalize=False, borderType=cv2.BORDER_CONSTANT)
        # Counts are whole numbers: half a vote more breaks ties and nothing else.
        votes.add(np.asarray(counts) + 0.5 * mine)
    return votes.choice


def _copy_blocks(stack: Stack, chosen: Choice, side: int, sigma: float) -> Fusion:
    """Let blocks vote with their neighbours, and copy each from the frame that won it."""
    blocks = _choose_majority(chosen, len(stack))
    source_map = blocks.repeat(side, axis=0).repeat(side, axis=1)
    return _copy_chosen(stack, source_map[: stack.height, : stack.width], sigma)


def _copy_chosen(stack: Stack, source_map: Choice, sigma: float) -> Fusion:
    """Copy every pixel, in its native type, from the frame chosen for it."""
    image: Pixels = np.empty(stack.shape, dtype=stack.dtype)
    for k, frame in enumerate(stack):
        mask = source_map == k
        image[mask] = frame[mask]
    index = source_map.astype(np.min_scalar_type(len(stack) - 1))
    return Fusion(image=image, source_map=index, sigma=sigma)


def _laplacian_energy(levels: Levels) -> float:
    """Mean square of the five-point Laplacian, the picture continued by its border pixels."""
    centre = np.pad(levels, 1, mode="edge")
    bend = 4.0 * levels - centre[:-2, 1:-1] - centre[2:, 1:-1] - centre[1:-1, :-2]
    bend -= centre[1:-1, 2:]
    return float(np.square(bend).mean(dtype=np.float64))


def _block_variance(grey: Levels) -> Values:
    """Variance of the pixels in every block."""
    side = _BLOCK
    height, width = grey.shape
    padded = np.pad(grey, ((0, -height % side), (0, -width % side)), mode="symmetric")
    rows, columns = padded.shape[0] // side, padded.shape[1] // side
    blocks = padded.reshape(rows, side, columns, side)
    return np.asarray(blocks.var(axis=(1, 3), dtype=np.float64))


def _windows(grey: Levels, side: int) -> Levels:
    """Every block of a picture, shape (H - side + 1, W - side + 1, side, side)."""
    return np.lib.stride_tricks.sliding_window_view(grey, (side, side))


def _spatial_frequency(blocks: NDArray[Any]) -> NDArray[Any]:
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


def _descriptor_norm(grey: Levels) -> Levels:
    """ℓ₁ norm of the unnormalised dense SIFT descriptor around every pixel.

    A direction's bin holds the magnitude times cos⁹ of the angle between them where that is
    positive, so two opposite bins hold |cos|⁹; the cells overlap as tents do. The norm is a sum of
    bins and cells, so neither is ever laid out.
    """
    import cv2

    border = cv2.BORDER_REFLECT
    smooth = cv2.GaussianBlur(grey, (5, 5), 1.0, borderType=border)
    slope_x, slope_y = (
        np.asarray(cv2.filter2D(smooth, -1, kernel, borderType=border), np.float32)
        for kernel in (np.array([[-0.5, 0.0, 0.5]]), np.array([[-0.5], [0.0], [0.5]]))
    )
    magnitude = np.hypot(slope_x, slope_y)
    bins = np.zeros_like(magnitude)
    for angle in np.arange(_DIRECTIONS // 2) * (2.0 * np.pi / _DIRECTIONS):
        along = np.abs(slope_x * np.float32(np.cos(angle)) + slope_y * np.float32(np.sin(angle)))
        bins += (along / np.maximum(magnitude, 1e-6)) ** _SHARPNESS
    tent = 1.0 - np.abs(np.arange(1 - _CELL_SIDE, _CELL_SIDE)) / _CELL_SIDE
    centres = np.zeros((_CELLS - 1) * _CELL_SIDE + 1)
    centres[::_CELL_SIDE] = 1.0
    cells = np.convolve(centres, tent)
    norm = cv2.sepFilter2D(bins * magnitude, -1, cells, cells, borderType=border)
    return np.asarray(norm, dtype=np.float32)


def _sum_blocks(activity: Levels, side: int) -> Values:
    """Sum over every block that lies inside the picture, in the order of its top left pixel."""
    import cv2

    height, width = (length - side + 1 for length in activity.shape)
    sums = cv2.boxFilter(activity, cv2.CV_64F, (side, side), anchor=(0, 0), normalize=False)
    return np.asarray(sums, dtype=np.float64)[:height, :width]


def _all_blocks_agree(won: Mask, side: int) -> Mask:
    """Return the pixels that lie in won blocks only; blocks are named by their top left pixel."""
    import cv2

    reach = side - 1
    padded = np.pad(won.astype(np.uint8), reach, constant_values=1)
    agreed = cv2.erode(padded, np.ones((side, side), np.uint8), anchor=(0, 0))
    height, width = (length + reach for length in won.shape)
    return np.asarray(agreed, dtype=np.bool_)[:height, :width]


def _drop_small_regions(mask: Mask, smallest: int) -> Mask:
    """Remove regions of fewer than ``smallest`` pixels, then fill holes as small."""
    import cv2

    for value in (True, False):
        regions = (mask == value).astype(np.uint8)
        _, labels, stats, _ = cv2.connectedComponentsWithStats(regions, connectivity=8)
        small = stats[:, cv2.CC_STAT_AREA] < smallest
        small[0] = False  # label 0 is everything else
        mask = mask ^ small[labels]
    return mask


def _local_frequency(grey: Levels) -> Levels:
    """Squared spatial frequency over a small window: mean square of first differences."""
    import cv2

    squares = np.zeros_like(grey)
    squares[1:] += np.square(grey[1:] - grey[:-1])
    squares[:, 1:] += np.square(grey[:, 1:] - grey[:, :-1])
    side = 2 * _FREQUENCY_RADIUS + 1
    return np.asarray(cv2.blur(squares, (side, side), borderType=cv2.BORDER_REFLECT), np.float32)
