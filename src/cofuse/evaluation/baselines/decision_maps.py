"""Baselines that decide, block by block or pixel by pixel, which frame is in focus, and copy it.

They decide on the luminance and copy all three colours, in their native type, exactly. Neither
denoises: ``sigma`` is recorded, not used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.evaluation.baselines.arguments import check_count
from cofuse.images import Fusion, Levels, Pixels, Stack

__all__ = ["choose_largest", "fuse_dct_variance", "fuse_focus_measure"]

Mask = NDArray[np.bool_]
Choice = NDArray[np.intp]
Values = NDArray[np.float64]

#: The descriptor of dense SIFT: directions of the gradient, sharpness of their bins, cells a side.
_DIRECTIONS, _SHARPNESS, _CELLS = 8, 9, 4
_CELL_SIDE = 6
#: Radius of the window of spatial frequency that settles what the descriptors leave open.
_FREQUENCY_RADIUS = 3


def fuse_dct_variance(
    stack: Stack, *, sigma: float = 0.0, block_size: int = 8, majority_window: int = 3
) -> Fusion:
    r"""Copy each block from the frame where it has the largest variance: DCT+Var+CV [1]_.

    The variance of an N×N block is read off its orthonormal DCT coefficients d as

    .. math:: \sigma^2 = \frac{1}{N^2} \Big(\sum_{k,l} d_{k,l}^2 - d_{0,0}^2\Big),

    which, by Parseval, is the variance of its pixels; so it is computed here, from the pixels.
    Consistency verification then gives every block to the frame chosen most often in the window
    of blocks around it.

    Parameters
    ----------
    stack
        K ≥ 1 frames, grey or RGB; they are streamed, twice.
    sigma
        Recorded, not used.
    block_size
        Side N of the blocks. Blocks cut off by the picture's border are completed by mirroring.
    majority_window
        Side, in blocks, of the window of consistency verification; odd, 1 for none. On a tie the
        block keeps its own frame.

    References
    ----------
    .. [1] M. Haghighat, A. Aghagolzadeh, H. Seyedarabi, "Multi-focus image fusion for visual
       sensor networks in DCT domain", Computers & Electrical Engineering 37, 2011.
    """
    check_sigma(sigma)
    check_count("block_size", block_size)
    check_count("majority_window", majority_window, odd=True)
    started = time.perf_counter()
    variances = (_block_variance(stack.luminance(k), block_size) for k in range(len(stack)))
    blocks = _choose_majority(choose_largest(variances), len(stack), majority_window)
    source_map = blocks.repeat(block_size, axis=0).repeat(block_size, axis=1)
    decided = time.perf_counter()
    return _copy_chosen(stack, source_map[: stack.height, : stack.width], sigma, started, decided)


def fuse_focus_measure(
    stack: Stack, *, sigma: float = 0.0, block_size: int = 8, smallest_region: int | None = None
) -> Fusion:
    """Copy each pixel from the frame with the strongest dense gradient histograms: DSIFT [1]_.

    Activity is the ℓ₁ norm of the unnormalised dense SIFT descriptor: gradient magnitudes, sorted
    into eight directions and four by four cells of six pixels. A sliding block goes to the frame
    with the largest sum of activity; a pixel whose blocks all go to one frame is certain. Regions
    of certain pixels that are too small lose their certainty, holes in them too small are filled;
    what is left open goes, pixel by pixel, to the largest spatial frequency over 7×7 pixels.

    Parameters
    ----------
    stack
        K ≥ 1 frames, grey or RGB; they are streamed, twice.
    sigma
        Recorded, not used.
    block_size
        Side of the sliding block.
    smallest_region
        Pixels of the smallest region kept. Default: 1/75 of the picture, which for the 520×520
        pixels of the Lytro set is the 3600 of the authors' program.

    Notes
    -----
    Without the paper's feature matching, which looks for a misregistered pixel's counterpart and
    averages frames where it finds none: frames are taken to be aligned, and pixels are copied.

    References
    ----------
    .. [1] Y. Liu, S. Liu, Z. Wang, "Multi-focus image fusion with dense SIFT", Information
       Fusion 23, 2015.
    """
    check_sigma(sigma)
    check_count("block_size", block_size)
    if smallest_region is None:
        smallest_region = max(round(stack.height * stack.width / 75), 1)
    check_count("smallest_region", smallest_region)
    started = time.perf_counter()
    side = min(block_size, stack.height, stack.width)
    blocks, local = _Largest(), _Largest()
    for k in range(len(stack)):
        grey = stack.luminance(k)
        blocks.add(_sum_blocks(_descriptor_norm(grey), side))
        local.add(_local_frequency(grey))
    source_map = local.choice
    for k in range(len(stack)):
        certain = _all_blocks_agree(blocks.choice == k, side)
        source_map[_drop_small_regions(certain, smallest_region)] = k
    decided = time.perf_counter()
    return _copy_chosen(stack, source_map, sigma, started, decided)


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


def choose_largest(values: Iterator[NDArray[Any]]) -> Choice:
    """Return for every place the index of the frame with the largest value."""
    largest = _Largest()
    for value in values:
        largest.add(value)
    return largest.choice


def _choose_majority(choice: Choice, frames: int, window: int) -> Choice:
    """Give every place to the frame chosen most often around it; on a tie it keeps its own."""
    import cv2

    votes = _Largest()
    for k in range(frames):
        mine = (choice == k).astype(np.float32)
        square = (window, window)
        counts = cv2.boxFilter(mine, -1, square, normalize=False, borderType=cv2.BORDER_CONSTANT)
        # Counts are whole numbers: half a vote more breaks ties and nothing else.
        votes.add(np.asarray(counts) + 0.5 * mine)
    return votes.choice


def _copy_chosen(
    stack: Stack, source_map: Choice, sigma: float, started: float, decided: float
) -> Fusion:
    """Copy every pixel, in its native type, from the frame chosen for it."""
    image: Pixels = np.empty(stack.shape, dtype=stack.dtype)
    for k, frame in enumerate(stack):
        mask = source_map == k
        image[mask] = frame[mask]
    small = source_map.astype(np.min_scalar_type(len(stack) - 1))
    seconds = {"choose": decided - started, "copy": time.perf_counter() - decided}
    return Fusion(image, small, None, sigma=sigma, seconds=seconds)


def _block_variance(grey: Levels, side: int) -> Values:
    """Variance of the pixels in every block."""
    height, width = grey.shape
    padded = np.pad(grey, ((0, -height % side), (0, -width % side)), mode="symmetric")
    rows, columns = padded.shape[0] // side, padded.shape[1] // side
    blocks = padded.reshape(rows, side, columns, side)
    return np.asarray(blocks.var(axis=(1, 3), dtype=np.float64))


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
