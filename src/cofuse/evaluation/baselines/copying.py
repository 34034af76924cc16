"""Methods that copy every pixel from the frame in focus and know nothing of noise.

Frames are grey or RGB, K ≥ 1, and streamed: memory does not grow with K. The luminance decides for
all three colours. Pixels are copied in their native type, and the result has a source map.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_number
from cofuse.evaluation.metrics.with_truth import box_inside
from cofuse.images import Fusion, Pixels, Stack
from cofuse.operators.patches import patch_positions

Array = NDArray[Any]
Choice = NDArray[np.intp]

#: Side in pixels of the blocks that are copied.
_BLOCK = 8


def fuse_dct_variance(stack: Stack) -> Fusion:
    """Copy each block from the frame where it has the largest variance: DCT+Var+CV.

    The paper reads the variance of a block off its orthonormal DCT coefficients, without the first;
    by Parseval it is the variance of the pixels, and computed from them here. Blocks cut off by the
    picture's border are completed by mirroring. Consistency verification then gives every block to
    the frame chosen most often in the 3×3 blocks around it; on a tie it keeps its own. After
    Haghighat, Aghagolzadeh and Seyedarabi (2011).
    """
    side = _BLOCK
    missing = [(0, -length % side) for length in stack.shape[:2]]

    def variance(k: int) -> Array:
        padded = np.pad(stack.luminance(k), missing, mode="symmetric")
        rows, columns = (length // side for length in padded.shape)
        blocks = padded.reshape(rows, side, columns, side)
        return np.asarray(blocks.var(axis=(1, 3), dtype=np.float64))

    return _copy_blocks(stack, choose_largest(map(variance, range(len(stack)))), side)


def fuse_sf_dct(stack: Stack, *, block_size: int = _BLOCK) -> Fusion:
    r"""Copy each block from the frame where its spatial frequency is largest: SF-DCT.

    The squared spatial frequency of an n × n block x is its mean square of first differences. The
    paper reads it off the block's orthonormal DCT-II X, where these are diagonal; they are computed
    from the pixels here:

    .. math:: \frac1{n^2} \sum_{i,j} (x_{i,j} - x_{i,j-1})^2 + (x_{i,j} - x_{i-1,j})^2
              = \frac4{n^2} \sum_{u,v}
                \Big(\sin^2 \frac{\pi u}{2n} + \sin^2 \frac{\pi v}{2n}\Big) X_{u,v}^2

    A majority vote over 3×3 blocks mends lone decisions. After Cao, Jin and others (2015). What
    the paper leaves open, and what we do:

    - *Sides that are no multiple of the block.* The last block is moved inwards until it fits; of
      it only the pixels that no other block covers are copied.
    - *More than two frames.* A block goes to the frame most of its (up to nine) neighbours chose,
      itself included; at a tie it keeps its choice, or else takes the earliest frame.
    """
    n = block_size
    check_number("block_size", n, 2, whole=True)
    places = np.ix_(*patch_positions(stack.shape, n, n))

    def frequency(k: int) -> Array:
        blocks = np.lib.stride_tricks.sliding_window_view(stack.luminance(k), (n, n))[places]
        down, across = (np.square(np.diff(blocks, axis=axis)) for axis in (2, 3))
        return np.asarray(down.sum(axis=(2, 3)) + across.sum(axis=(2, 3)))

    return _copy_blocks(stack, choose_largest(map(frequency, range(len(stack)))), n)


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
    blocks = choose_largest(box_inside(descriptor_norm(stack.luminance(k)), side) for k in frames)
    source_map = choose_largest(_local_frequency(stack.luminance(k)) for k in frames)
    for k in frames:
        certain = _all_blocks_agree(blocks == k, side)
        source_map[_drop_small_regions(certain, smallest)] = k
    return _copy_chosen(stack, source_map)


def choose_largest(values: Iterable[Array]) -> Choice:
    """Return for every place the index of the frame with the largest value; of equals the first."""
    rest = iter(values)
    largest = next(rest).copy()
    choice = np.zeros(largest.shape, np.intp)
    for k, value in enumerate(rest, 1):
        choice[value > largest] = k
        np.maximum(largest, value, out=largest)
    return choice


def choose_majority(choice: Choice, frames: int) -> Choice:
    """Give every place to the frame chosen most often in 3×3; on a tie it keeps its own."""

    def votes(mine: Array) -> Array:
        counts = cv2.boxFilter(mine, -1, (3, 3), normalize=False, borderType=cv2.BORDER_CONSTANT)
        # Counts are whole numbers: half a vote more breaks ties and nothing else.
        return np.asarray(counts + 0.5 * mine)

    return choose_largest(votes((choice == k).astype(np.float32)) for k in range(frames))


def _copy_blocks(stack: Stack, chosen: Choice, side: int) -> Fusion:
    """Let blocks vote with their neighbours, and copy each from the frame that won it."""
    blocks = choose_majority(chosen, len(stack))
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


def descriptor_norm(grey: Array) -> Array:
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
